//! The measured programs, and the arguments of their runs.

use std::fmt;

use clap::{Args, ValueEnum};

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
    SharedParked,
    RemotePingpong,
    RemoteLink,
    RemoteThroughput,
    RemoteCommstime,
    RemoteOverhead,
    RemoteBeside,
    RemoteBesideTransfer,
    Idle,
    ClientsEach,
    ClientsShared,
    ClientsMemory,
    LocalBeside,
    MoveMessages,
    MoveTcp,
    MoveSim,
    ChoiceMessages,
    ChoiceTcp,
    ChoiceSim,
    ClaimMessages,
    ClaimTcp,
    ClaimSim,
    CommstimeOne,
    CommstimeAll,
    #[value(name = "stressed-alt-8x4-one")]
    StressedAlt8x4One,
    #[value(name = "stressed-alt-8x4-all")]
    StressedAlt8x4All,
    #[value(name = "stressed-alt-200x100-one")]
    StressedAlt200x100One,
    #[value(name = "stressed-alt-200x100-all")]
    StressedAlt200x100All,
    Names,
    Window,
    Farm,
    CallTrigger,
    CallReturn,
    CallRing,
    CallThroughput,
    CallCompute,
    IoPingpong,
    IoPipe,
    IoStart,
    ProcessSpawn,
    ProcessDown,
    LinkExit,
    Post,
    ServerCall,
    ProcessBytes,
    LinkBytes,
    AddressPingpong,
    AddressPosts,
}

/// How many channels of a program are between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Networked {
    One,
    All,
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
            Self::SharedParked => "shared-parked",
            Self::RemotePingpong => "remote-pingpong",
            Self::RemoteLink => "remote-link",
            Self::RemoteThroughput => "remote-throughput",
            Self::RemoteCommstime => "remote-commstime",
            Self::RemoteOverhead => "remote-overhead",
            Self::RemoteBeside => "remote-beside",
            Self::RemoteBesideTransfer => "remote-beside-transfer",
            Self::Idle => "idle",
            Self::ClientsEach => "clients-each",
            Self::ClientsShared => "clients-shared",
            Self::ClientsMemory => "clients-memory",
            Self::LocalBeside => "local-beside",
            Self::MoveMessages => "move-messages",
            Self::MoveTcp => "move-tcp",
            Self::MoveSim => "move-sim",
            Self::ChoiceMessages => "choice-messages",
            Self::ChoiceTcp => "choice-tcp",
            Self::ChoiceSim => "choice-sim",
            Self::ClaimMessages => "claim-messages",
            Self::ClaimTcp => "claim-tcp",
            Self::ClaimSim => "claim-sim",
            Self::CommstimeOne => "commstime-one",
            Self::CommstimeAll => "commstime-all",
            Self::StressedAlt8x4One => "stressed-alt-8x4-one",
            Self::StressedAlt8x4All => "stressed-alt-8x4-all",
            Self::StressedAlt200x100One => "stressed-alt-200x100-one",
            Self::StressedAlt200x100All => "stressed-alt-200x100-all",
            Self::Names => "names",
            Self::Window => "window",
            Self::Farm => "farm",
            Self::CallTrigger => "call-trigger",
            Self::CallReturn => "call-return",
            Self::CallRing => "call-ring",
            Self::CallThroughput => "call-throughput",
            Self::CallCompute => "call-compute",
            Self::IoPingpong => "io-pingpong",
            Self::IoPipe => "io-pipe",
            Self::IoStart => "io-start",
            Self::ProcessSpawn => "process-spawn",
            Self::ProcessDown => "process-down",
            Self::LinkExit => "link-exit",
            Self::Post => "post",
            Self::ServerCall => "server-call",
            Self::ProcessBytes => "process-bytes",
            Self::LinkBytes => "link-bytes",
            Self::AddressPingpong => "address-pingpong",
            Self::AddressPosts => "address-posts",
        })
    }
}

/// A program with an amount of work: one section of the report.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) program: Program,
    pub(crate) name: &'static str,
    /// The amount of work of one run: cycles, round trips, events or processes.
    pub(crate) n: u64,
    /// Bytes of each message, where OS processes exchange messages.
    pub(crate) size: usize,
    pub(crate) unit: &'static str,
}

/// The arguments of the hidden subcommand.
#[derive(Args)]
pub(crate) struct One {
    pub(crate) who: String,
    pub(crate) program: Program,
    pub(crate) n: u64,
    pub(crate) threads: usize,
    /// On tokio's runtime of one thread; otherwise on that of many threads, with `threads` of them
    #[arg(long)]
    pub(crate) current_thread: bool,
    /// Bytes of each packet, where there are packets
    #[arg(long, default_value_t = 8)]
    pub(crate) size: usize,
}

impl Program {
    /// The programs of one OS process, which Go and the other channels run too.
    pub(crate) const LOCAL: [Self; 10] = [
        Self::Commstime,
        Self::Pingpong,
        Self::ChoiceReady,
        Self::ChoiceWaits,
        Self::StressedAlt8x4,
        Self::StressedAlt200x100,
        Self::SharedParked,
        Self::Spawn,
        Self::Ring,
        Self::Memory,
    ];

    /// Whether it needs several OS processes, or something in their place.
    pub(crate) fn is_remote(self) -> bool {
        let is_other = self.is_over_nodes() || self.is_offload() || self.is_of_streams() || self.is_of_actors();
        !Self::LOCAL.contains(&self) && !is_other
    }

    /// Whether it has many clients of one server.
    pub(crate) fn is_of_clients(self) -> bool {
        matches!(self, Self::ClientsEach | Self::ClientsShared | Self::ClientsMemory)
    }

    /// Whether it measures blocking calls.
    pub(crate) fn is_offload(self) -> bool {
        use Program::{CallCompute, CallReturn, CallRing, CallThroughput, CallTrigger};
        matches!(self, CallTrigger | CallReturn | CallRing | CallThroughput | CallCompute)
    }

    /// Whether it measures sockets, pipes and programs.
    pub(crate) fn is_of_streams(self) -> bool {
        matches!(self, Self::IoPingpong | Self::IoPipe | Self::IoStart)
    }

    /// Whether it measures processes with mailboxes, links and servers.
    pub(crate) fn is_of_actors(self) -> bool {
        use Program::{LinkBytes, LinkExit, Post, ProcessBytes, ProcessDown, ProcessSpawn, ServerCall};
        let is_local = matches!(self, ProcessSpawn | ProcessDown | LinkExit | Post | ServerCall);
        is_local || matches!(self, ProcessBytes | LinkBytes) || self.is_of_addresses()
    }

    /// Whether it measures mailboxes between two nodes, each in an OS process.
    pub(crate) fn is_of_addresses(self) -> bool {
        matches!(self, Self::AddressPingpong | Self::AddressPosts)
    }

    /// Whether it needs several nodes in one process.
    pub(crate) fn is_over_nodes(self) -> bool {
        use Program::{
            ChoiceMessages, ChoiceSim, ChoiceTcp, ClaimMessages, ClaimSim, ClaimTcp, Farm, MoveMessages, MoveSim,
            MoveTcp, Names, Window,
        };
        let counted = matches!(self, MoveMessages | ChoiceMessages | ClaimMessages);
        let timed = matches!(self, MoveTcp | ChoiceTcp | ClaimTcp | Names);
        let simulated = matches!(self, MoveSim | ChoiceSim | ClaimSim | Window | Farm);
        counted || timed || simulated || self.networked().is_some()
    }

    /// How many of its channels are between nodes of one process, if it is a program that also runs without
    /// nodes.
    pub(crate) fn networked(self) -> Option<Networked> {
        match self {
            Self::CommstimeOne | Self::StressedAlt8x4One | Self::StressedAlt200x100One => Some(Networked::One),
            Self::CommstimeAll | Self::StressedAlt8x4All | Self::StressedAlt200x100All => Some(Networked::All),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_round_trip_through_the_parser() {
        for program in Program::value_variants() {
            assert_eq!(Program::from_str(&program.to_string(), false).as_ref(), Ok(program));
        }
    }
}
