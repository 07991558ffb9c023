//! The picture: its rectangles, their pixels, and the file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::rectangle::{Counts, Rectangle};

/// The part of the plane that every picture shows, from left to right.
const LEFT: f64 = -2.25;
const RIGHT: f64 = 0.75;

/// The picture to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// After this many iterations a point counts as one of the set.
    pub iterations_max: u16,
    /// The side of its rectangles, in pixels.
    pub side: u32,
}

impl Plan {
    /// How many rectangles it has.
    pub fn count(&self) -> u64 {
        u64::from(self.width.div_ceil(self.side)) * u64::from(self.height.div_ceil(self.side))
    }

    /// The rectangles, row by row; those at the right and at the bottom may be smaller.
    pub fn rectangles(&self) -> Vec<Rectangle> {
        let step = (RIGHT - LEFT) / f64::from(self.width);
        let top = step * f64::from(self.height) / 2.0;
        let starts = |length: u32| (0..length).step_by(self.side as usize);
        let rectangle = |x, y| Rectangle {
            x,
            y,
            width: self.side.min(self.width - x),
            height: self.side.min(self.height - y),
            left: LEFT,
            top,
            step,
            iterations_max: self.iterations_max,
        };
        starts(self.height).flat_map(|y| starts(self.width).map(move |x| rectangle(x, y))).collect()
    }
}

/// The pixels that have arrived.
#[derive(Debug)]
pub struct Picture {
    plan: Plan,
    counts: Vec<u16>,
}

impl Picture {
    /// A picture without pixels.
    pub fn new(plan: Plan) -> Self {
        Self { plan, counts: vec![0; plan.width as usize * plan.height as usize] }
    }

    /// Puts a rectangle's pixels in their places. `false`: their number is wrong.
    #[must_use]
    pub fn put(&mut self, rectangle: &Rectangle, Counts(bytes): &Counts) -> bool {
        let width = rectangle.width as usize;
        if bytes.len() != 2 * width * rectangle.height as usize {
            return false;
        }
        for (y, row) in (rectangle.y as usize..).zip(bytes.chunks(2 * width)) {
            let first = y * self.plan.width as usize + rectangle.x as usize;
            for (count, bytes) in self.counts[first..first + width].iter_mut().zip(row.chunks(2)) {
                *count = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
        true
    }

    /// Writes the picture as a PNG file.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut encoder = png::Encoder::new(to, self.plan.width, self.plan.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        let mut rows = writer.stream_writer()?;
        let mut bytes = Vec::with_capacity(3 * self.plan.width as usize);
        for row in self.counts.chunks(self.plan.width as usize) {
            bytes.clear();
            bytes.extend(row.iter().flat_map(|&count| colour(count, self.plan.iterations_max)));
            rows.write_all(&bytes)?;
        }
        rows.finish()?;
        writer.finish()?;
        Ok(())
    }
}

/// The set is black; around it the colours repeat, more slowly the nearer they are.
fn colour(count: u16, max: u16) -> [u8; 3] {
    if count == max {
        return [0, 0, 0];
    }
    // Whole numbers only, so that all machines write the same file: the place in a circle of 1536 colours.
    let place = u32::from(count) * 1536 / 64 % 1536;
    let (sector, rise) = (place / 256, (place % 256) as u8);
    let fall = 255 - rise;
    match sector {
        0 => [0, rise / 2, 255],
        1 => [0, 128 + rise / 2, fall],
        2 => [rise, 255, 0],
        3 => [255, fall, 0],
        4 => [fall, 0, rise / 2],
        _ => [0, 0, 128 + rise / 2],
    }
}

/// The file of the picture: written beside its place, and renamed when it is complete. A target that is no
/// regular file, such as a device or a pipe, is written directly.
#[derive(Debug)]
pub struct Target {
    file: File,
    place: Option<Place>,
}

/// The temporary file, and its final path.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    beside: PathBuf,
}

impl Target {
    /// Checks that the file can be written, before the picture exists.
    ///
    /// # Errors
    /// It cannot.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut path = path.to_owned();
        if let Ok(there) = std::fs::metadata(&path) {
            if there.is_dir() {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, "the path is a directory"));
            }
            // A user that may not write the file may not replace it either.
            let file = File::options().append(true).open(&path)?;
            if !there.is_file() {
                return Ok(Self { file, place: None });
            }
            // A link stays one: its target is replaced.
            path = path.canonicalize()?;
        }
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        };
        let mut beside = name.to_owned();
        beside.push(format!(".{}.part", std::process::id()));
        let beside = path.with_file_name(beside);
        let file = File::options().write(true).create_new(true).open(&beside)?;
        Ok(Self { file, place: Some(Place { path, beside }) })
    }

    /// Writes the picture.
    ///
    /// # Errors
    /// Those of the file.
    pub fn write(mut self, picture: &Picture) -> io::Result<()> {
        let mut to = BufWriter::new(&mut self.file);
        picture.write(&mut to)?;
        to.flush()?;
        drop(to);
        if let Some(Place { path, beside }) = &self.place {
            std::fs::rename(beside, path)?;
        }
        self.place = None;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(Place { beside, .. }) = &self.place {
            let _ = std::fs::remove_file(beside);
        }
    }
}
