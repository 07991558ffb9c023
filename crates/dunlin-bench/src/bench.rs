//! What is measured: the programs, how much work each run does, and the goals.

use std::fmt;

use clap::ValueEnum;

use crate::dunlin_side::{PAR, SPAWN};
use crate::peers::go::GO;
use crate::remote;

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
    #[value(name = "stressed-alt-8x4")]
    StressedAlt8x4,
    #[value(name = "stressed-alt-200x100")]
    StressedAlt200x100,
    RemotePingpong,
    RemoteThroughput,
    RemoteCommstime,
    RemoteOverhead,
    RemoteBeside,
    RemoteBesideTransfer,
    LocalBeside,
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
            Self::StressedAlt8x4 => "stressed-alt-8x4",
            Self::StressedAlt200x100 => "stressed-alt-200x100",
            Self::RemotePingpong => "remote-pingpong",
            Self::RemoteThroughput => "remote-throughput",
            Self::RemoteCommstime => "remote-commstime",
            Self::RemoteOverhead => "remote-overhead",
            Self::RemoteBeside => "remote-beside",
            Self::RemoteBesideTransfer => "remote-beside-transfer",
            Self::LocalBeside => "local-beside",
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
    /// Bytes of each message, where processes of the system exchange some.
    pub(crate) size: usize,
    pub(crate) unit: &'static str,
}

impl Bench {
    /// What everybody is compared with.
    pub(crate) fn versus(&self) -> &'static str {
        match self.program {
            Program::RemoteBeside | Program::RemoteBesideTransfer => remote::OWN_SOCKET,
            Program::LocalBeside => remote::ALONE,
            program if program.is_remote() => remote::TCP,
            _ => GO,
        }
    }
}

impl Program {
    /// The programs of one process of the system, which Go and the other channels run too.
    pub(crate) const LOCAL: [Self; 9] = [
        Self::Commstime,
        Self::Pingpong,
        Self::ChoiceReady,
        Self::ChoiceWaits,
        Self::StressedAlt8x4,
        Self::StressedAlt200x100,
        Self::Spawn,
        Self::Ring,
        Self::Memory,
    ];

    /// Whether it needs nodes, or something in their place.
    pub(crate) fn is_remote(self) -> bool {
        !Self::LOCAL.contains(&self)
    }
}

/// The benches of `program`: two sizes of ring and of messages, one of everything else.
pub(crate) fn benches(program: Program, quick: bool) -> Vec<Bench> {
    let bench = |name, n, unit| Bench { program, name, n, size: 8, unit };
    let sized = |name, n, size, unit| Bench { program, name, n: if quick { n / 5 } else { n }, size, unit };
    // At Go's pace a run takes about 0.2 to 0.5 s, and a fifth of that when quick.
    let events = if quick { 100_000 } else { 500_000 };
    match program {
        Program::Commstime => vec![bench("commstime", events, "ns/communication")],
        Program::Pingpong => vec![bench("pingpong", events, "ns/round trip")],
        Program::ChoiceReady => vec![bench("choice-ready", events, "ns/event")],
        Program::ChoiceWaits => vec![bench("choice-waits", events, "ns/event")],
        Program::StressedAlt8x4 => vec![bench("stressed-alt-8x4", events, "ns/event")],
        // Two hundred branches for each event.
        Program::StressedAlt200x100 => vec![bench("stressed-alt-200x100", events / 5, "ns/event")],
        Program::Spawn => vec![bench("spawn", events, "ns/process")],
        Program::Ring if quick => vec![bench("ring-100000", 100_000, "ns/hop")],
        Program::Ring => {
            vec![bench("ring-100000", 100_000, "ns/hop"), bench("ring-1000000", 1_000_000, "ns/hop")]
        }
        Program::Memory => vec![bench("memory", if quick { 100_000 } else { 1_000_000 }, "bytes/process")],
        Program::RemotePingpong => vec![
            sized("remote-pingpong-8", 20_000, 8, "ns/round trip"),
            sized("remote-pingpong-100000", 5_000, 100_000, "ns/round trip"),
        ],
        Program::RemoteThroughput => vec![sized("remote-throughput-100000", 10_000, 100_000, "ns/message")],
        Program::RemoteCommstime => vec![sized("remote-commstime", 5_000, 8, "ns/communication")],
        Program::RemoteOverhead => vec![sized("remote-overhead-100000", 2_000, 100_000, "% of payload")],
        // A gigabyte, whatever else is quick.
        Program::RemoteBeside => vec![Bench { size: 1_000_000, ..bench("remote-beside", 1_000, "ns/round trip") }],
        Program::RemoteBesideTransfer => {
            vec![Bench { size: 1_000_000, ..bench("remote-beside-transfer", 1_000, "ns/megabyte") }]
        }
        Program::LocalBeside => vec![bench("local-beside", 20 * events, "ns/communication")],
    }
}

/// What dunlin is meant to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// At most this fraction of Go's value in the same round: 6.5 means 1/6.5.
    OneOverOfGo(f64),
    /// At most so many times the value of what it is compared with, in the same round.
    Times(f64),
    /// At most this value.
    AtMost(f64),
}

impl Goal {
    /// Of `who` in `program`, with 1 and with 2 workers alike. The figures are from the design.
    pub(crate) fn of(bench: &Bench, who: &str) -> Option<Self> {
        match (bench.program, who) {
            (Program::RemotePingpong, remote::BYTES) => Some(Self::Times(if bench.size <= 8 { 1.15 } else { 1.2 })),
            // At least 90 % of the throughput.
            (Program::RemoteThroughput, remote::FIFO) => Some(Self::Times(1.0 / 0.9)),
            (Program::RemoteOverhead, remote::FIFO | remote::RENDEZVOUS) => Some(Self::AtMost(1.8)),
            (Program::RemoteBeside, remote::SAME_SOCKET) => Some(Self::Times(1.5)),
            // What is noise is seen from the rounds.
            (Program::LocalBeside, remote::WITH_NODE | remote::BESIDE_PING) => Some(Self::Times(1.05)),
            (Program::Commstime, PAR) => Some(Self::OneOverOfGo(6.5)),
            (Program::Commstime, SPAWN) => Some(Self::OneOverOfGo(2.8)),
            (Program::ChoiceReady | Program::ChoiceWaits, PAR | SPAWN) => Some(Self::OneOverOfGo(4.0)),
            (Program::Memory, PAR) => Some(Self::AtMost(200.0)),
            _ => None,
        }
    }

    /// Whether it is reached; `None` when there is no ratio to judge by.
    pub(crate) fn reached(self, value: f64, ratio: Option<f64>) -> Option<bool> {
        match self {
            Self::OneOverOfGo(times) => ratio.map(|ratio| ratio <= 1.0 / times),
            Self::Times(times) => ratio.map(|ratio| ratio <= times),
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
