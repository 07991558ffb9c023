//! The peers that are separate programs, and how they are built.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context;

use super::erlang::Erlang;
use super::go::Go;

/// The peers in other languages whose tools are installed.
#[derive(Default)]
pub(crate) struct Foreign {
    pub(crate) go: Option<Go>,
    pub(crate) erlang: Option<Erlang>,
}

impl Foreign {
    /// Builds the peers whose tools are installed, beside this binary in the target folder, and reports the
    /// others on standard error.
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
