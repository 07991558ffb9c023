//! The machine.
//!
//! - [`program`]: what processes share; [`commons`]: that, and how machines take turns with it; [`machine`]:
//!   a worker, and the process that runs; how code is loaded;
//! - `schedule`: which process runs; what processes do to each other;
//! - `fuel`: the fuel that a process has in a second;
//! - `turns`: turns that an embedder gives; `outside`: what it gets;
//! - `channel`: operations on channels; `port`: ports; `library`: bodies of libraries;
//! - `long`: operations on long numbers;
//! - `run`: the loop, for the common cases; `slow`: the others; `turn`: what they leave to each other;
//! - `frames`: the stack, and frames on the heap;
//! - `state`: values and processes as bytes;
//! - `prim`: the primitives.

mod channel;
mod commons;
mod compile;
mod fail;
mod frames;
mod fuel;
mod library;
mod long;
mod machine;
mod outside;
mod port;
mod prim;
mod program;
mod run;
mod schedule;
mod slow;
mod state;
mod trace;
mod turn;
mod turns;

pub(crate) use commons::Home;
pub(crate) use machine::Machine;
pub(crate) use outside::Script;
pub use outside::{Failure, Request, Step};
pub(crate) use prim::{builtins, inlines};
pub(crate) use program::Program;

/// The name of the prelude as a source text: backtraces leave it out.
pub(crate) const PRELUDE_NAME: &str = "(prelude)";
