//! Erlang: processes and asynchronous messages, also between nodes, `peers/erlang/dunlin_peer.erl`, compiled
//! so that the BEAM's JIT is used.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::compile;
use crate::program::{Bench, Program};
use crate::remote::sides::free_port;

/// Its name in the report.
pub(crate) const ERLANG: &str = "erlang";

/// The folder with the compiled module.
pub(crate) struct Erlang {
    modules: PathBuf,
}

impl Erlang {
    pub(super) fn build(sources: &Path, out: &Path) -> anyhow::Result<Self> {
        compile(Command::new("erlc").arg("-o").arg(out).arg(sources.join("dunlin_peer.erl")))?;
        // `erlc` alone is not enough: some installations have the compiler without the command that runs
        // programs.
        compile(Command::new("erl").args(["-noshell", "-eval", "halt()."]))?;
        Ok(Self { modules: out.to_owned() })
    }

    /// Erlang has no channels, so it has neither a choice among them nor the memory of one.
    pub(crate) fn has(&self, program: Program) -> bool {
        matches!(
            program,
            Program::Commstime
                | Program::Pingpong
                | Program::Spawn
                | Program::Ring
                | Program::RemotePingpong
                | Program::RemoteThroughput
                | Program::RemoteCommstime
        )
    }

    pub(crate) fn command(&self, bench: &Bench, workers: usize) -> Command {
        let mut command = if bench.program.is_remote() || bench.program.is_of_addresses() {
            distributed()
        } else {
            Command::new("erl")
        };
        // +Bd: Ctrl-C ends it instead of opening its menu. +P: room for the processes of the largest ring.
        command.args(["-noshell", "-noinput", "+Bd", "+P", "2000000", "+S", &format!("{workers}:{workers}"), "-pa"]);
        command.arg(&self.modules).args(["-run", "dunlin_peer", "main"]);
        command.args([bench.program.to_string(), bench.n.to_string(), bench.size.to_string()]);
        command
    }
}

/// `erl` as a node that can have others beside it, with its own port mapper on a free port, which ends with
/// it.
fn distributed() -> Command {
    const SCRIPT: &str = "
        epmd -address 127.0.0.1 & epmd=$!
        trap 'kill $epmd' EXIT
        until epmd -names >/dev/null 2>&1; do sleep 0.1; kill -0 $epmd || exit 1; done
        erl -sname bench@localhost -start_epmd false \"$@\"";
    let mut command = Command::new("sh");
    let port = free_port().unwrap_or(14_369).to_string();
    let cookie = format!("dunlin{}{port}", std::process::id());
    command.args(["-c", SCRIPT, "erl", "-setcookie", &cookie]).env("ERL_EPMD_PORT", port);
    command
}
