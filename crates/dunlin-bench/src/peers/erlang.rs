//! Erlang: processes and asynchronous messages, `peers/erlang/dunlin_peer.erl`, compiled so that the BEAM's JIT is used.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::compile;
use crate::bench::{Bench, Program};

/// How it is called in the report.
pub(crate) const ERLANG: &str = "erlang";

/// The folder with the compiled module.
pub(crate) struct Erlang {
    modules: PathBuf,
}

impl Erlang {
    pub(super) fn build(sources: &Path, out: &Path) -> anyhow::Result<Self> {
        compile(Command::new("erlc").arg("-o").arg(out).arg(sources.join("dunlin_peer.erl")))?;
        // `erlc` alone is not enough: there are installations of the compiler without the command that runs programs.
        compile(Command::new("erl").args(["-noshell", "-eval", "halt()."]))?;
        Ok(Self { modules: out.to_owned() })
    }

    /// Erlang has no channels, so neither a choice among them nor the memory of one.
    pub(crate) fn has(&self, program: Program) -> bool {
        matches!(program, Program::Commstime | Program::Pingpong | Program::Spawn | Program::Ring)
    }

    pub(crate) fn command(&self, bench: &Bench, workers: usize) -> Command {
        let mut command = Command::new("erl");
        // +Bd: Ctrl-C ends it instead of opening its menu. +P: room for the processes of the largest ring.
        command.args(["-noshell", "-noinput", "+Bd", "+P", "2000000", "+S", &format!("{workers}:{workers}"), "-pa"]);
        command.arg(&self.modules).args(["-run", "dunlin_peer", "main"]);
        command.args([bench.program.to_string(), bench.n.to_string()]);
        command
    }
}
