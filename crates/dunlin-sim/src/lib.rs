//! Many nodes of `dunlin-proto` over a simulated network: virtual time, one seed, faults, and a checker of
//! the laws.
//!
//! [`run`] plays one seed: programs send and receive over channels while sockets are cut and nodes stop,
//! return and leave. The checker compares what each machine reports to its program with what the other
//! programs did. Then all faults are healed, every operation has to end, and no record may be left.
//! `docs/simulator.md` lists the checks, and explains how to use the simulator.

mod calls;
pub mod command;
mod coverage;
mod faults;
mod hostile;
mod laws;
mod line;
mod network;
mod plan;
mod process;
mod processes;
mod program;
mod random;
pub mod scale;
mod socket;
mod thief;
mod travel;
mod view;
mod world;

pub use coverage::{Coverage, Fault, Met};
pub use plan::Kind;
pub use world::{Report, Verdict, run, run_as};

/// The names of the bugs that are planted in this build.
#[cfg(feature = "planted")]
pub fn bugs() -> Vec<&'static str> {
    dunlin_proto::planted::Bug::ALL.iter().map(|bug| bug.name()).collect()
}

/// The names of the bugs that are planted in this build: none.
#[cfg(not(feature = "planted"))]
pub fn bugs() -> Vec<&'static str> {
    Vec::new()
}

/// Activates a planted bug for the runs of this thread, or deactivates all.
#[cfg(feature = "planted")]
pub fn wake(name: Option<&str>) {
    let bugs = dunlin_proto::planted::Bug::ALL;
    dunlin_proto::planted::choose(bugs.iter().copied().find(|bug| Some(bug.name()) == name));
}

/// Does nothing: no bugs are planted in this build.
#[cfg(not(feature = "planted"))]
pub fn wake(_name: Option<&str>) {}
