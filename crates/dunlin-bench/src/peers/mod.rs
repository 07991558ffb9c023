//! Those dunlin is compared with: Go and Erlang as programs of their own, the Rust channels as [`Library`] each.
//!
//! [`Library`]: crate::library::Library

pub(crate) mod async_channel;
pub(crate) mod erlang;
pub(crate) mod flume;
pub(crate) mod go;
pub(crate) mod kanal;
pub(crate) mod tokio_mpsc;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use anyhow::{Context, bail};

use self::erlang::Erlang;
use self::go::Go;

/// The peers in other languages, as far as their tools are installed.
#[derive(Default)]
pub(crate) struct Foreign {
    pub(crate) go: Option<Go>,
    pub(crate) erlang: Option<Erlang>,
}

impl Foreign {
    /// Builds what can be built, beside this binary in the target folder; says so on standard error where something cannot.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let this_binary = env::current_exe().context("cannot find this binary")?;
        let out = this_binary.with_file_name("bench-peers");
        fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
        Ok(Self {
            go: or_warn(Go::build(&sources("go"), &out), "NO GO: every ratio and every goal relative to Go is missing"),
            erlang: or_warn(Erlang::build(&sources("erlang"), &out), "NO ERLANG: its rows are missing"),
        })
    }
}

fn sources(peer: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(peer)
}

fn or_warn<T>(built: anyhow::Result<T>, loss: &str) -> Option<T> {
    built.inspect_err(|error| eprintln!("WARNING: {loss} ({error:#})")).ok()
}

/// Runs a compiler. What it prints goes to standard error: standard output may carry JSON.
fn compile(command: &mut Command) -> anyhow::Result<()> {
    let status = command.stdin(Stdio::null()).stdout(io::stderr()).status();
    let status = status.with_context(|| format!("cannot run {:?}; is it installed?", command.get_program()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
