//! `dunlin farm mandelbrot`: a picture of the Mandelbrot set, rectangle by rectangle.

mod picture;
mod rectangle;

use std::path::PathBuf;
use std::time::Instant;

use dunlin::prelude::*;
use dunlin_terminal::failure::Failure;
use serde_json::json;

use super::hands::{Hands, Outcome, farms};
use super::master::{Event, Master};
use super::show::Show;
use super::worker::Leave;

pub use picture::{Picture, Plan, Target};
pub use rectangle::{Counts, Rectangle};

/// How many rectangles a picture may have: the master keeps a line for each.
const RECTANGLES_MAX: u64 = 1_000_000;

/// Draws the Mandelbrot set on a farm of workers, which may come and go meanwhile
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// In pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1280, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub width: u32,
    /// In pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=16384))]
    pub height: u32,
    /// Iterations after which a point counts as one of the set
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..))]
    pub iterations: u16,
    /// The side of the rectangles into which the picture is divided
    #[arg(long, value_name = "PIXELS", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub rectangle: u32,
    /// The picture, a PNG file
    #[arg(long, value_name = "FILE", default_value = "mandelbrot.png")]
    pub out: PathBuf,
    /// The workers
    #[command(flatten)]
    pub hands: Hands,
}

impl Args {
    fn plan(&self) -> Plan {
        Plan { width: self.width, height: self.height, iterations_max: self.iterations, side: self.rectangle }
    }

    pub(super) fn wrong(&self) -> Option<String> {
        let count = self.plan().count();
        if count > RECTANGLES_MAX {
            return Some(format!(
                "{count} rectangles are more than {RECTANGLES_MAX}: give --rectangle a larger side, or draw a smaller picture"
            ));
        }
        self.hands.wrong()
    }
}

/// Has all workers draw the picture.
///
/// # Errors
/// A worker has sent a rectangle of the wrong size; and see [`Master::run`].
pub async fn draw(master: &mut Master<Rectangle>, plan: Plan, mut tell: impl FnMut(&Event<Counts>)) -> Result<Picture> {
    let rectangles = plan.rectangles();
    let mut picture = Picture::new(plan);
    let mut is_wrong = false;
    let drawn = master.run(rectangles.clone(), |event| {
        if let Event::Done { index, outcome } = &event {
            is_wrong |= !picture.put(&rectangles[*index], outcome);
        }
        tell(&event);
    });
    drawn.await?;
    if is_wrong {
        return Err(Error::other("a worker has sent too few pixels: check that all workers are of this version"));
    }
    Ok(picture)
}

pub(super) async fn run(args: Args, leave: &Leave, show: &Show) -> Result<Outcome, Failure> {
    let plan = args.plan();
    let unwritable =
        |error| Failure::Failed(format!("{} cannot be written: {error}; choose another --out", args.out.display()));
    let target = Target::open(&args.out).map_err(unwritable)?;
    show.object(&json!({ "event": "begun", "rectangles": plan.count() }));
    let drawn = farms(&args.hands, leave, show, async |master| {
        show.begin(plan.count(), "rectangles");
        let began = Instant::now();
        let picture = draw(master, plan, |event| show.event(event)).await?;
        show.end();
        Ok((picture, began.elapsed()))
    });
    let Some((picture, elapsed)) = drawn.await? else { return Ok(Outcome::Interrupted) };
    target.write(&picture).map_err(unwritable)?;
    let out = args.out.display();
    show.object(&json!({ "event": "done", "seconds": elapsed.as_secs_f64(), "out": out.to_string() }));
    show.result(format_args!("{out}: {} rectangles in {elapsed:.2?}", plan.count()));
    Ok(Outcome::Done)
}
