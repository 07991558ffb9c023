//! The commands that run a program on the participants in this binary.

use std::env;
use std::process::Command;

use anyhow::{Context, Result};

use crate::measure::Participant;
use crate::program::Bench;

impl Bench {
    /// Runs it once on one participant, with the arguments of [`One`](crate::program::One).
    pub(crate) fn command(&self, who: &str, workers: usize) -> Result<Command> {
        let mut command = Command::new(env::current_exe().context("cannot find this binary")?);
        command.args(["one", who, &self.program.to_string(), &self.n.to_string(), &workers.to_string()]);
        command.args(["--size", &self.size.to_string()]);
        Ok(command)
    }

    /// These participants, with each number of workers.
    pub(crate) fn participants(&self, workers: &[usize], who: &[&'static str]) -> Result<Vec<Participant>> {
        let all = workers.iter().flat_map(|&workers| who.iter().map(move |&who| (who, workers)));
        all.map(|(who, workers)| Ok(Participant { who, workers, ways: vec![self.command(who, workers)?] })).collect()
    }
}
