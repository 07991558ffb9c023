//! The amount of work of each run of a program, its reference, and the goals.

use crate::dunlin_side::{PAR, SPAWN};
use crate::library::Library;
use crate::peers::async_channel::AsyncChannel;
use crate::peers::erlang::ERLANG;
use crate::peers::go::GO;
use crate::program::{Bench, Program};
use crate::stressed::Shape;
use crate::{actors, nodes, offload, remote, streams};

impl Bench {
    /// The participant with which all others are compared.
    pub(crate) fn versus(&self) -> &'static str {
        match self.program {
            Program::RemoteBeside | Program::RemoteBesideTransfer => remote::OWN_SOCKET,
            Program::LocalBeside => remote::ALONE,
            Program::Idle => remote::EPOLL,
            Program::ClientsEach | Program::ClientsMemory => remote::TCP_EACH,
            Program::ClientsShared => remote::TCP_IDS,
            Program::MoveMessages | Program::MoveTcp | Program::MoveSim => nodes::VALUE,
            Program::ChoiceMessages | Program::ChoiceTcp | Program::ChoiceSim => nodes::PLAIN,
            Program::ClaimMessages | Program::ClaimTcp | Program::ClaimSim => nodes::NOT_SHARED,
            Program::CommstimeOne | Program::CommstimeAll => nodes::REMOC,
            Program::Names => nodes::RECEIVERS,
            Program::CallRing | Program::CallCompute => offload::ALONE,
            program if program.is_offload() => offload::SPAWN_BLOCKING,
            program if program.is_of_streams() => streams::TOKIO,
            program if program.is_of_actors() => ERLANG,
            Program::SharedParked => AsyncChannel::NAME,
            Program::Window | Program::Farm => nodes::BOUND,
            program if Shape::of(program).is_some() && program.networked().is_some() => nodes::LOCAL,
            program if program.is_remote() => remote::TCP,
            _ => GO,
        }
    }
}

/// The benches of `program`: two sizes of ring and of messages, one of everything else.
pub(crate) fn benches(program: Program, quick: bool) -> Vec<Bench> {
    let bench = |name, n, unit| Bench { program, name, n, size: 8, unit };
    let sized = |name, n, size, unit| Bench { program, name, n: if quick { n / 5 } else { n }, size, unit };
    // At Go's pace a run takes about 0.2 to 0.5 s, and a fifth of that if quick.
    let events = if quick { 100_000 } else { 500_000 };
    match program {
        Program::Commstime => vec![bench("commstime", events, "ns/communication")],
        Program::Pingpong => vec![bench("pingpong", events, "ns/round trip")],
        Program::ChoiceReady => vec![bench("choice-ready", events, "ns/event")],
        Program::ChoiceWaits => vec![bench("choice-waits", events, "ns/event")],
        Program::StressedAlt8x4 => vec![bench("stressed-alt-8x4", events, "ns/event")],
        // Two hundred branches for each event.
        Program::StressedAlt200x100 => vec![bench("stressed-alt-200x100", events / 5, "ns/event")],
        // A value in the last bench must cost as much as in the first.
        Program::SharedParked => vec![
            bench("shared-parked-1000", 1_000, "ns/value"),
            bench("shared-parked-8000", 8_000, "ns/value"),
            bench("shared-parked-20000", 20_000, "ns/value"),
        ],
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
        // Only with the feature `link`, and apart from the others.
        Program::RemoteLink if cfg!(feature = "link") => {
            vec![
                sized("remote-link-8", 20_000, 8, "ns/round trip"),
                sized("remote-link-100000", 5_000, 100_000, "ns/round trip"),
            ]
        }
        Program::RemoteLink => Vec::new(),
        Program::RemoteThroughput => vec![sized("remote-throughput-100000", 10_000, 100_000, "ns/message")],
        Program::RemoteCommstime => vec![sized("remote-commstime", 5_000, 8, "ns/communication")],
        Program::RemoteOverhead => vec![sized("remote-overhead-100000", 2_000, 100_000, "% of payload")],
        // A gigabyte, also in a quick run.
        Program::RemoteBeside => vec![Bench { size: 1_000_000, ..bench("remote-beside", 1_000, "ns/round trip") }],
        Program::RemoteBesideTransfer => {
            vec![Bench { size: 1_000_000, ..bench("remote-beside-transfer", 1_000, "ns/megabyte") }]
        }
        // A run takes 15 s, for any number of connections.
        Program::Idle => vec![bench("idle-5000", if quick { 1_000 } else { 5_000 }, "us/connection and second")],
        Program::ClientsEach => vec![bench("clients-each", 30, "ns/call")],
        Program::ClientsShared => vec![bench("clients-shared", 30, "ns/call")],
        Program::ClientsMemory => vec![bench("clients-memory", 30, "bytes of the server/client")],
        Program::LocalBeside => vec![bench("local-beside", 20 * events, "ns/communication")],
        Program::MoveMessages => vec![bench("move-messages", 100, "messages/move")],
        Program::MoveTcp => vec![bench("move-tcp", 100, "ns/move")],
        Program::MoveSim => vec![bench("move-sim", 100, "ways/move")],
        Program::ChoiceMessages => vec![bench("choice-messages", 1_000, "messages/event")],
        Program::ChoiceTcp => vec![bench("choice-tcp", events / 50, "ns/event")],
        Program::ChoiceSim => vec![bench("choice-sim", 1_000, "ways/event")],
        Program::ClaimMessages => vec![bench("claim-messages", 1_000, "messages/event")],
        Program::ClaimTcp => vec![bench("claim-tcp", events / 100, "ns/event")],
        Program::ClaimSim => vec![bench("claim-sim", 1_000, "ways/event")],
        Program::CommstimeOne => vec![bench("commstime-one", events / 25, "ns/communication")],
        Program::CommstimeAll => vec![bench("commstime-all", events / 100, "ns/communication")],
        Program::StressedAlt8x4One => vec![bench("stressed-alt-8x4-one", events / 5, "ns/event")],
        Program::StressedAlt8x4All => vec![bench("stressed-alt-8x4-all", events / 10, "ns/event")],
        Program::StressedAlt200x100One => vec![bench("stressed-alt-200x100-one", events / 5, "ns/event")],
        Program::StressedAlt200x100All => vec![bench("stressed-alt-200x100-all", events / 10, "ns/event")],
        // An end in the second bench must cost as much as in the first.
        Program::Names => vec![bench("names-1000", 1_000, "ns/end"), bench("names-16000", 16_000, "ns/end")],
        Program::Window => WINDOWS.iter().map(|(places, name)| bench(name, *places, "messages/s")).collect(),
        Program::Farm => vec![bench("farm-25", 5_000, "tasks/s")],
        Program::CallTrigger => vec![bench("call-trigger", events / 25, "ns to the trigger")],
        Program::CallReturn => vec![bench("call-return", events / 25, "ns to the answer")],
        Program::CallRing => vec![bench("call-ring-256", 256, "ns/hop")],
        Program::CallThroughput => vec![
            sized("call-throughput-1", 20_000, 1, "ns/packet"),
            sized("call-throughput-64", 20_000, 64, "ns/packet"),
            sized("call-throughput-1024", 20_000, 1 << 10, "ns/packet"),
            sized("call-throughput-8192", 20_000, 8 << 10, "ns/packet"),
            sized("call-throughput-65536", 10_000, 64 << 10, "ns/packet"),
        ],
        Program::CallCompute => vec![bench("call-compute", events, "ns/unit")],
        Program::IoPingpong => vec![
            sized("io-pingpong-8", 20_000, 8, "ns/round trip"),
            sized("io-pingpong-65536", 5_000, 64 << 10, "ns/round trip"),
        ],
        Program::IoPipe => {
            vec![
                sized("io-pipe-1024", 100_000, 1 << 10, "ns/piece"),
                sized("io-pipe-65536", 10_000, 64 << 10, "ns/piece"),
            ]
        }
        Program::IoStart => vec![bench("io-start", events / 1_000, "ns/program")],
        Program::ProcessSpawn => vec![bench("process-spawn", events / 5, "ns/process")],
        Program::ProcessDown => vec![bench("process-down", events / 5, "ns/process")],
        // As many also in a quick run: the time must not grow faster than their number.
        Program::LinkExit => vec![bench("link-exit-100000", 100_000, "ns/process")],
        Program::Post => vec![bench("post", 2 * events, "ns/message")],
        Program::ServerCall => vec![bench("server-call", events / 2, "ns/call")],
        Program::ProcessBytes => vec![bench("process-bytes", if quick { 100_000 } else { 1_000_000 }, "bytes/process")],
        Program::LinkBytes => vec![bench("link-bytes", 100_000, "bytes/link")],
        Program::AddressPingpong => vec![sized("address-pingpong-8", 20_000, 8, "ns/round trip")],
        Program::AddressPosts => vec![sized("address-posts-8", 500_000, 8, "ns/message")],
    }
}

/// Places, and the name of the bench; without a place it is a rendezvous.
const WINDOWS: [(u64, &str); 12] = [
    (0, "window-0"),
    (1, "window-1"),
    (2, "window-2"),
    (4, "window-4"),
    (8, "window-8"),
    (16, "window-16"),
    (32, "window-32"),
    (64, "window-64"),
    (128, "window-128"),
    (256, "window-256"),
    (512, "window-512"),
    (1024, "window-1024"),
];

/// A goal of dunlin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// At most this fraction of Go's value in the same round: 6.5 means 1/6.5.
    OneOverOfGo(f64),
    /// At most this many times the value of its reference, in the same round.
    Times(f64),
    /// At most this value.
    AtMost(f64),
}

impl Goal {
    /// The goal of `who` in `program`, for 1 and for 2 workers. The figures are from the design.
    pub(crate) fn of(bench: &Bench, who: &str) -> Option<Self> {
        match (bench.program, who) {
            (Program::RemotePingpong, remote::BYTES) => Some(Self::Times(if bench.size <= 8 { 1.15 } else { 1.2 })),
            // At least 90 % of the throughput.
            (Program::RemoteThroughput, remote::FIFO) => Some(Self::Times(1.0 / 0.9)),
            (Program::RemoteOverhead, remote::FIFO | remote::RENDEZVOUS) => Some(Self::AtMost(1.8)),
            (Program::RemoteBeside, remote::SAME_SOCKET) => Some(Self::Times(1.5)),
            (Program::Idle, remote::NODE) => Some(Self::Times(3.0)),
            // At least .9 and .5 of the rate.
            (Program::ClientsEach, remote::GUESTS) => Some(Self::Times(1.0 / 0.9)),
            (Program::ClientsShared, remote::SHARED) => Some(Self::Times(2.0)),
            (Program::ClientsMemory, remote::GUESTS) => Some(Self::Times(1.2)),
            // The rounds show how large the noise is.
            (Program::LocalBeside, remote::WITH_NODE | remote::BESIDE_PING) => Some(Self::Times(1.05)),
            (Program::Commstime, PAR) => Some(Self::OneOverOfGo(6.5)),
            (Program::Commstime, SPAWN) => Some(Self::OneOverOfGo(2.8)),
            (Program::ChoiceReady | Program::ChoiceWaits, PAR | SPAWN) => Some(Self::OneOverOfGo(4.0)),
            (Program::CallTrigger, offload::BLOCKING) => Some(Self::Times(1.1)),
            (Program::CallRing, offload::BESIDE) => Some(Self::Times(1.1)),
            (Program::Memory, PAR) => Some(Self::AtMost(200.0)),
            // 0.25 s in all, and no slower than Erlang, which is what the ratio shows.
            (Program::LinkExit, actors::DUNLIN) => Some(Self::AtMost(2_500.0)),
            (Program::ProcessSpawn, actors::DUNLIN) => Some(Self::Times(1.0 / 3.0)),
            (Program::Post | Program::ServerCall | Program::ProcessDown, actors::DUNLIN) => Some(Self::Times(0.5)),
            (Program::AddressPingpong, actors::DUNLIN) => Some(Self::Times(0.8)),
            // At least 1.5 times the rate.
            (Program::AddressPosts, actors::DUNLIN) => Some(Self::Times(1.0 / 1.5)),
            (Program::ProcessBytes, actors::DUNLIN) => Some(Self::Times(0.25)),
            // 64 on each side, of both directions together: links of the others go both ways.
            (Program::LinkBytes, actors::DUNLIN) => Some(Self::AtMost(128.0)),
            (Program::SharedParked, PAR | SPAWN) => Some(Self::AtMost(1_000.0)),
            _ => None,
        }
    }

    /// Whether the goal is reached; `None` if there is no ratio to judge by.
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
    fn a_goal_is_reached_exactly_at_its_limit() {
        assert_eq!(Goal::OneOverOfGo(4.0).reached(100.0, Some(0.25)), Some(true));
        assert_eq!(Goal::OneOverOfGo(4.0).reached(100.0, Some(0.26)), Some(false));
        assert_eq!(Goal::AtMost(200.0).reached(200.0, None), Some(true));
        assert_eq!(Goal::AtMost(200.0).reached(200.5, None), Some(false));
    }

    #[test]
    fn relative_goal_without_reference_is_not_judged() {
        assert_eq!(Goal::OneOverOfGo(4.0).reached(1.0, None), None);
    }
}
