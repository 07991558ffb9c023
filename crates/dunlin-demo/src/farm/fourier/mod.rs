//! `dunlin farm fourier`: the coefficients of a Fourier series, in more or fewer packages. It measures the
//! overhead of the farm itself.

mod series;

use std::time::{Duration, Instant};

use dunlin::prelude::*;
use dunlin_terminal::failure::Failure;
use dunlin_terminal::output::is_written;
use serde_json::json;

use super::hands::{Hands, Outcome, farms};
use super::master::{Event, Master};
use super::show::Show;
use super::worker::Leave;

pub use series::{Coefficients, KNOWN, PERIOD, Package, coefficient};

/// The trapeziums for the comparison of the first coefficients with the known ones, and the tolerance: the
/// rule's own error is a third of it.
const CHECKED_WITH: u64 = 1000;
const NEAR: f64 = 1e-4;

/// Computes a Fourier series on a farm of workers, in different numbers of packages, and prints how long that
/// takes
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The number of coefficients
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub coefficients: u64,
    /// The number of packages into which they are divided: a run for each
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [1, 10, 100, 1_000, 10_000],
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub packages: Vec<u64>,
    /// The number of trapeziums of the integration: for each a run with each number of packages
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [10, 100, 1_000],
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub trapeziums: Vec<u64>,
    /// The workers
    #[command(flatten)]
    pub hands: Hands,
}

impl Args {
    pub(super) fn wrong(&self) -> Option<String> {
        if let Some(packages) = self.packages.iter().find(|packages| **packages > self.coefficients) {
            let coefficients = self.coefficients;
            return Some(format!("--packages {packages} is more than there are coefficients: {coefficients}"));
        }
        self.hands.wrong()
    }
}

/// Has all workers compute the series.
///
/// # Errors
/// A worker has sent too few coefficients; and see [`Master::run`].
pub async fn compute(
    master: &mut Master<Package>,
    packages: Vec<Package>,
    mut tell: impl FnMut(&Event<Coefficients>),
) -> Result<Vec<f32>> {
    let mut coefficients = vec![f32::NAN; packages.iter().map(|package| package.count as usize).sum()];
    let mut is_wrong = false;
    let computed = master.run(packages.clone(), |event| {
        if let Event::Done { index, outcome } = &event {
            let (first, count) = (packages[*index].first as usize, packages[*index].count as usize);
            is_wrong |= outcome.numbers().count() != count;
            coefficients[first..first + count].iter_mut().zip(outcome.numbers()).for_each(|(to, from)| *to = from);
        }
        tell(&event);
    });
    computed.await?;
    if is_wrong {
        return Err(Error::other("a worker has sent too few coefficients: check that all workers are of this version"));
    }
    Ok(coefficients)
}

/// The time and the result of one run.
struct Run {
    packages: u64,
    trapeziums: u64,
    took: Duration,
    /// The greatest error of the first coefficients.
    off: f64,
    sum: f64,
}

pub(super) async fn run(args: Args, leave: &Leave, show: &Show) -> Result<Outcome, Failure> {
    let (coefficients, workers) = (args.coefficients, args.hands.count());
    let measured = farms(&args.hands, leave, show, async |master| {
        // They have joined before the first run begins.
        master.gather(workers.max(1), |event| show.event(&event)).await?;
        let mut runs = Vec::new();
        for &trapeziums in &args.trapeziums {
            for &packages in &args.packages {
                let jobs = Package::divide(coefficients, packages, trapeziums);
                let began = Instant::now();
                // No event for each package: it would be measured too.
                let computed = compute(master, jobs, |event| match event {
                    Event::Done { .. } => {}
                    event => show.event(event),
                });
                let computed = computed.await?;
                let took = began.elapsed();
                let run = judged(packages, trapeziums, took, &computed);
                show.object(&json!({
                    "event": "run", "packages": packages, "trapeziums": trapeziums, "seconds": took.as_secs_f64(),
                    "off": run.off, "sum": run.sum,
                }));
                runs.push(run);
                // The output has no reader, so the other runs are not needed.
                if is_written().is_err() {
                    return Ok(runs);
                }
            }
        }
        Ok(runs)
    });
    let Some(runs) = measured.await? else { return Ok(Outcome::Interrupted) };
    is_written()?;
    print(&args, &runs, show);
    let checked: Vec<&Run> = runs.iter().filter(|run| run.trapeziums == CHECKED_WITH).collect();
    if let Some(run) = checked.iter().find(|run| run.off > NEAR) {
        return Err(Failure::Failed(format!(
            "with {CHECKED_WITH} trapeziums a coefficient is {} from what it should be",
            run.off
        )));
    }
    show.object(&json!({ "event": "done", "checked": !checked.is_empty() }));
    Ok(Outcome::Done)
}

fn judged(packages: u64, trapeziums: u64, took: Duration, computed: &[f32]) -> Run {
    let off = computed.iter().zip(KNOWN).map(|(&computed, known)| (f64::from(computed) - known).abs());
    let sum = computed.iter().map(|&coefficient| f64::from(coefficient)).sum();
    Run { packages, trapeziums, took, off: off.fold(0.0, f64::max), sum }
}

/// A row for each number of packages.
fn print(args: &Args, runs: &[Run], show: &Show) {
    show.result(format_args!("{} coefficients, {} workers; milliseconds\n", args.coefficients, args.hands.count()));
    let row = |first: &str, others: &[String]| {
        let others: String = others.iter().map(|other| format!(" | {other:>16}")).collect();
        show.result(format_args!("{first:>8}{others}"));
    };
    row("packages", &args.trapeziums.iter().map(|n| format!("{n} trapeziums")).collect::<Vec<_>>());
    for &packages in &args.packages {
        let times = runs.iter().filter(|run| run.packages == packages);
        let times: Vec<String> = times.map(|run| format!("{:.2}", run.took.as_secs_f64() * 1000.0)).collect();
        row(&packages.to_string(), &times);
    }
    let off: Vec<String> = args
        .trapeziums
        .iter()
        .map(|&trapeziums| {
            let off = runs.iter().filter(|run| run.trapeziums == trapeziums).map(|run| run.off).fold(0.0, f64::max);
            format!("{off:.1e}")
        })
        .collect();
    row("off by", &off);
    let checked = KNOWN.len().min(args.coefficients as usize);
    show.result(format_args!("\n(off by: the first {checked} coefficients, from their known values)"));
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn default_runs_are_those_of_the_cppcsp_farm() {
        let Args { coefficients, packages, trapeziums, .. } = Line::parse_from([""]).args;
        assert_eq!(coefficients, 10_000);
        assert_eq!(packages, [1, 10, 100, 1_000, 10_000]);
        assert_eq!(trapeziums, [10, 100, 1_000]);
    }
}
