//! What is measured: the programs, how much work each run does, and the goals.

use std::fmt;

use clap::ValueEnum;

use crate::dunlin_side::{PAR, SPAWN};

/// A program that participants run. Its value name is the subcommand of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    Commstime,
    Pingpong,
    ChoiceReady,
    ChoiceWaits,
    Spawn,
    Ring,
    Memory,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Commstime => "commstime",
            Self::Pingpong => "pingpong",
            Self::ChoiceReady => "choice-ready",
            Self::ChoiceWaits => "choice-waits",
            Self::Spawn => "spawn",
            Self::Ring => "ring",
            Self::Memory => "memory",
        })
    }
}

/// A program with an amount of work: one section of the report.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) program: Program,
    pub(crate) name: &'static str,
    /// What one run of the program is given: cycles, round trips, events or processes.
    pub(crate) n: u64,
    pub(crate) unit: &'static str,
}

/// The benches of `program`: two sizes of ring, one of everything else.
pub(crate) fn benches(program: Program, quick: bool) -> Vec<Bench> {
    let bench = |name, n, unit| Bench { program, name, n, unit };
    // At Go's pace a run takes about 0.2 to 0.5 s, and a fifth of that when quick.
    let events = if quick { 100_000 } else { 500_000 };
    match program {
        Program::Commstime => vec![bench("commstime", events, "ns/communication")],
        Program::Pingpong => vec![bench("pingpong", events, "ns/round trip")],
        Program::ChoiceReady => vec![bench("choice-ready", events, "ns/event")],
        Program::ChoiceWaits => vec![bench("choice-waits", events, "ns/event")],
        Program::Spawn => vec![bench("spawn", events, "ns/process")],
        Program::Ring if quick => vec![bench("ring-100000", 100_000, "ns/hop")],
        Program::Ring => {
            vec![bench("ring-100000", 100_000, "ns/hop"), bench("ring-1000000", 1_000_000, "ns/hop")]
        }
        Program::Memory => vec![bench("memory", if quick { 100_000 } else { 1_000_000 }, "bytes/process")],
    }
}

/// What dunlin is meant to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// At most this fraction of Go's value in the same round: 6.5 means 1/6.5.
    OneOverOfGo(f64),
    /// At most this value.
    AtMost(f64),
}

impl Goal {
    /// Of `who` in `program`, with 1 and with 2 workers alike. The figures are from the design.
    pub(crate) fn of(program: Program, who: &str) -> Option<Self> {
        match (program, who) {
            (Program::Commstime, PAR) => Some(Self::OneOverOfGo(6.5)),
            (Program::Commstime, SPAWN) => Some(Self::OneOverOfGo(2.8)),
            (Program::ChoiceReady | Program::ChoiceWaits, PAR | SPAWN) => Some(Self::OneOverOfGo(4.0)),
            (Program::Memory, PAR) => Some(Self::AtMost(200.0)),
            _ => None,
        }
    }

    /// Whether it is reached; `None` when there is no ratio to judge by.
    pub(crate) fn reached(self, value: f64, ratio_to_go: Option<f64>) -> Option<bool> {
        match self {
            Self::OneOverOfGo(times) => ratio_to_go.map(|ratio| ratio <= 1.0 / times),
            Self::AtMost(limit) => Some(value <= limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_shown_as_it_is_parsed() {
        for program in Program::value_variants() {
            assert_eq!(Program::from_str(&program.to_string(), false).as_ref(), Ok(program));
        }
    }

    #[test]
    fn a_goal_is_reached_exactly_at_its_limit() {
        assert_eq!(Goal::OneOverOfGo(4.0).reached(100.0, Some(0.25)), Some(true));
        assert_eq!(Goal::OneOverOfGo(4.0).reached(100.0, Some(0.26)), Some(false));
        assert_eq!(Goal::AtMost(200.0).reached(200.0, None), Some(true));
        assert_eq!(Goal::AtMost(200.0).reached(200.5, None), Some(false));
    }

    #[test]
    fn without_go_a_relative_goal_is_not_judged() {
        assert_eq!(Goal::OneOverOfGo(4.0).reached(1.0, None), None);
    }
}
