//! The log of a command that runs until it is stopped.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Shows the log records of this process on stderr from now on: warnings, or what `RUST_LOG` selects.
pub fn show() {
    let filter = EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy();
    let is_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(is_terminal);
    // A failed write to stderr cannot be reported on stderr. A subscriber that a test has set before remains.
    let _ = log.log_internal_errors(false).try_init();
}
