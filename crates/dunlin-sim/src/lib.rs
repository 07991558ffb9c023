//! Many nodes of `dunlin-proto` over a simulated network: virtual time, one seed, faults, and a checker of the laws.
//!
//! [`run`] plays one seed: programs send and receive over channels while sockets are cut and nodes stop, return and leave. What every program is
//! told is compared with what the others did. Then all faults are healed, everything has to come to its end, and nothing may
//! be left. `docs/simulator.md` says what is checked, and how to use it.

mod coverage;
mod faults;
mod laws;
mod network;
mod program;
mod random;
mod world;

pub use coverage::{Coverage, Fault, Met};
pub use world::{Report, Verdict, run};
