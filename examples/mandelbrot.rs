//! The Mandelbrot set, with a process for each pixel: 250,000 of them.
//!
//! Every process computes its pixel and sends it over one shared end to a collector, which accepts them in
//! any order. The last process drops the last holder of the end, so the channel ends and the collector stops.
//!
//! Run it: `cargo run --release --example mandelbrot [picture.pgm]`. Without a file it prints a small
//! preview.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::time::Instant;

use dunlin::prelude::*;

/// After this many iterations a point counts as one of the set.
const ITERATIONS_MAX: u8 = 255;

/// How many iterations of z² + c it takes `c` to leave the circle of radius 2.
fn iterations(re: f64, im: f64) -> u8 {
    let (mut x, mut y) = (0.0, 0.0);
    for n in 0..ITERATIONS_MAX {
        let (xx, yy) = (x * x, y * y);
        if xx + yy > 4.0 {
            return n;
        }
        (x, y) = (xx - yy + re, 2.0 * x * y + im);
    }
    ITERATIONS_MAX
}

/// One pixel of a picture of `side` × `side`.
struct Pixel {
    x: usize,
    y: usize,
    iterations: u8,
}

async fn pixel(x: usize, y: usize, side: usize, mut to: Shared<Sender<Pixel>>) -> Result {
    let scale = 3.0 / side as f64;
    let iterations = iterations(x as f64 * scale - 2.25, y as f64 * scale - 1.5);
    to.send(Pixel { x, y, iterations }).await?;
    Ok(())
}

/// Draws the set with `side` × `side` processes, and returns the rows of the picture in order.
pub(crate) async fn draw(side: usize) -> Result<Vec<u8>> {
    let (tx, mut pixels) = channel();
    let tx = tx.share();
    for y in 0..side {
        for x in 0..side {
            spawn(pixel(x, y, side, tx.clone()));
        }
    }
    drop(tx); // else the channel would not end with the last process
    let mut picture = vec![0; side * side];
    let mut came = 0;
    while let Some(Pixel { x, y, iterations }) = pixels.next().await? {
        picture[y * side + x] = iterations;
        came += 1;
    }
    assert_eq!(came, side * side);
    Ok(picture)
}

/// A portable grey map: the set is black.
fn write_pgm(path: &str, side: usize, picture: &[u8]) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write!(file, "P5\n{side} {side}\n255\n")?;
    let shades: Vec<u8> = picture.iter().map(|&n| 255 - n).collect();
    file.write_all(&shades)?;
    file.flush()
}

/// Every tenth pixel of every twentieth row: the more iterations, the darker.
fn print_preview(side: usize, picture: &[u8]) {
    for row in picture.chunks(side).step_by(20) {
        let shades = row.iter().step_by(10).map(|&n| match n {
            0..2 => ' ',
            2..4 => '.',
            4..8 => ':',
            8..16 => '+',
            16..32 => '*',
            _ => '#',
        });
        println!("{}", shades.collect::<String>());
    }
}

#[dunlin::main]
async fn main() -> Result {
    const SIDE: usize = 500;
    let began = Instant::now();
    let picture = draw(SIDE).await?;
    let elapsed = began.elapsed();
    match std::env::args().nth(1) {
        Some(path) => write_pgm(&path, SIDE, &picture)?,
        None => print_preview(SIDE, &picture),
    }
    println!("{} processes, each of which sent its pixel: {elapsed:.1?}", SIDE * SIDE);
    Ok(())
}
