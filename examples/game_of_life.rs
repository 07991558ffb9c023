//! Conway's game of life, with a process for each strip of the board.
//!
//! All strips share the board, and two phases of one barrier keep them apart: first all of them read it,
//! their neighbours' cells too, and then each writes its own cells. Between the phases no process reads what
//! another one is writing, so there is no second board and no lock. Main is one more party: it takes a
//! picture of each generation while the others read.
//!
//! ```text
//!     strip 0   read  ║  write  ║  read  ║  write  ║
//!     strip 1   read  ║  write  ║  read  ║  write  ║      ║ : all of them are there
//!     main      look  ║         ║  look  ║         ║
//! ```
//!
//! Run it: `cargo run --release --example game_of_life [generations]`

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dunlin::prelude::*;

/// The board; beyond each edge is the opposite one.
///
/// The barrier keeps a process from writing a cell that another reads, and publishes the writes to the next
/// phase. Safe Rust requires atomics even so.
struct Board {
    width: usize,
    height: usize,
    cells: Vec<AtomicBool>,
}

impl Board {
    /// Reads a picture: `#` is alive. All lines must have the same length.
    fn new(picture: &str) -> Self {
        let lines: Vec<&str> = picture.lines().collect();
        let width = lines.first().map_or(0, |line| line.len());
        let cells: Vec<_> = lines.concat().bytes().map(|byte| AtomicBool::new(byte == b'#')).collect();
        assert_eq!(cells.len(), width * lines.len(), "the lines differ in length");
        Self { width, height: lines.len(), cells }
    }

    fn is_alive(&self, x: usize, y: usize) -> bool {
        self.cells[y % self.height * self.width + x % self.width].load(Relaxed)
    }

    fn will_live(&self, x: usize, y: usize) -> bool {
        let (left, above) = (x + self.width - 1, y + self.height - 1);
        let around = (0..9).filter(|n| self.is_alive(left + n % 3, above + n / 3)).count();
        // With the cell itself: three, or four of which it is one.
        around == 3 || around == 4 && self.is_alive(x, y)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for y in 0..self.height {
            let line: String = (0..self.width).map(|x| if self.is_alive(x, y) { '#' } else { '.' }).collect();
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

async fn strip(board: Arc<Board>, rows: Range<usize>, mut phase: Barrier, generations: usize) -> Result {
    let width = board.width;
    for _ in 0..generations {
        let next: Vec<bool> =
            rows.clone().flat_map(|y| (0..width).map(move |x| (x, y))).map(|(x, y)| board.will_live(x, y)).collect();
        phase.sync().await?; // no process writes before all have read
        for (cell, alive) in board.cells[rows.start * width..rows.end * width].iter().zip(next) {
            cell.store(alive, Relaxed);
        }
        phase.sync().await?; // no process reads before all have written
    }
    Ok(())
}

/// Plays this many generations with this many strips, and returns a picture of each, the first one included.
pub(crate) async fn play(picture: &str, strips: usize, generations: usize) -> Result<Vec<String>> {
    let board = Arc::new(Board::new(picture));
    let mut phase = barrier();
    let edge = |n: usize| n * board.height / strips;
    let running: Vec<_> =
        (0..strips).map(|n| spawn(strip(board.clone(), edge(n)..edge(n + 1), phase.enrol(), generations))).collect();
    let mut pictures = Vec::new();
    for _ in 0..generations {
        pictures.push(board.to_string());
        phase.sync().await?;
        phase.sync().await?;
    }
    pictures.push(board.to_string());
    for strip in running {
        strip.await??;
    }
    Ok(pictures)
}

/// A gun that makes a glider every 30 generations (Gosper, 1970).
pub(crate) const GUN: &str = "\
........................#...............
......................#.#...............
............##......##............##....
...........#...#....##............##....
##........#.....#...##..................
##........#...#.##....#.#...............
..........#.....#.......#...............
...........#...#........................
............##..........................
........................................
........................................
........................................
........................................
........................................
........................................
........................................
........................................
........................................
........................................
........................................
";

#[dunlin::main]
async fn main() -> Result {
    let generations = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(60);
    let pictures = play(GUN, 5, generations).await?;
    let alive = |picture: &String| picture.matches('#').count();
    for (n, picture) in pictures.iter().enumerate().filter(|(n, _)| n % 30 == 0) {
        println!("generation {n}, {} alive\n{picture}", alive(picture));
    }
    if generations == 60 {
        let gun_and = |gliders: usize| 36 + 5 * gliders;
        assert_eq!([0, 30, 60].map(|n| alive(&pictures[n])), [0, 1, 2].map(gun_and));
    }
    Ok(())
}
