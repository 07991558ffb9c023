//! The errors of the pony benches.

use std::path::PathBuf;
use std::time::Duration;

/// An error, and how to correct it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PonyError {
    #[error(
        "only {heard} of {workers} workers could be heard in {patience:?}: is the machine busy, or are there too many?"
    )]
    Silent { heard: usize, workers: usize, patience: Duration },
    #[error("the master has stopped receiving")]
    Ended,
    #[error("{at} is no point of this sweep: {why}")]
    Point { at: usize, why: &'static str },
    #[error(
        "what the network adds cannot be counted without a network namespace, which is not to be had here ({why}); only dunlin's part is measured"
    )]
    NoNetwork { why: String },
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} line {line} is not what `pony ... --json` prints: {source}", path.display())]
    Line { path: PathBuf, line: usize, source: serde_json::Error },
    #[error("there is nothing to draw in these files")]
    Empty,
}
