//! Processes: what one has for itself, and what decides which runs.
//!
//! - [`process`]: a process that does not run is data of its own heap, a mailbox, and who hears of its end;
//! - [`table`]: all processes of a program, by number;
//! - [`host`]: which process runs next, and what time it is.

mod host;
mod process;
mod table;

pub use host::Host;
pub(crate) use host::Local;
pub(crate) use process::{OwnGlobal, Process, Wait};
pub(crate) use table::{OUTSIDE, Table, is_outside};
