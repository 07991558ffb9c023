//! Processes: what one has for itself, and what decides which runs.
//!
//! - [`process`]: a process that does not run is data of its own heap, a mailbox, and its links;
//! - [`table`]: all processes of a program, by number;
//! - [`channel`]: what processes ask of channels; [`ends`]: which process holds which ends;
//!   [`operations`]: what is under way;
//! - [`port`]: a process that is a port; [`bodies`]: which process runs the body of a library;
//! - [`host`]: which process runs next, and what time it is.

mod bodies;
mod channel;
mod ends;
mod host;
mod operations;
mod port;
mod process;
mod table;

pub(crate) use bodies::{Bodies, Claim};
pub use channel::{Branch, Channels, Operation, Outcome, Refusal};
pub use host::Host;
pub(crate) use host::Local;
pub(crate) use operations::Operations;
pub(crate) use port::{Block, Port, PortKind};
pub(crate) use process::{Letter, OwnGlobal, Parting, Process, Wait};
pub(crate) use table::{OUTSIDE, Table, is_outside};
