//! The peers of dunlin: Go and Erlang as separate programs, each Rust channel as a [`Library`].
//!
//! [`Library`]: crate::library::Library

pub(crate) mod async_channel;
pub(crate) mod erlang;
pub(crate) mod flume;
mod foreign;
pub(crate) mod go;
pub(crate) mod kanal;
pub(crate) mod tokio_mpsc;

use std::io;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

pub(crate) use foreign::Foreign;

/// Runs a compiler. Its output goes to standard error: standard output may carry JSON.
fn compile(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(io::stderr()).status();
    let status = status.with_context(|| format!("cannot run {:?}; is it installed?", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
