//! The machine.
//!
//! - [`machine`]: its state, and how code is loaded;
//! - `run`: the loop, for the common cases; `slow`: the others; `turn`: what they leave to each other;
//! - `frames`: the stack, and frames on the heap;
//! - `state`: what runs as a value, and values as bytes;
//! - `prim`: the primitives.

mod compile;
mod fail;
mod frames;
mod machine;
mod port;
mod prim;
mod run;
mod slow;
mod state;
mod trace;
mod turn;

pub(crate) use machine::Machine;
pub(crate) use prim::{builtins, inlines};
pub(crate) use turn::Turn;

/// The name of the prelude as a source text: backtraces leave it out.
pub(crate) const PRELUDE_NAME: &str = "(prelude)";
