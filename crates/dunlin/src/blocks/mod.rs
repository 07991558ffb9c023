//! Blocks and skeletons: the small processes and the shapes that programs are made of.
//!
//! | block | what it does |
//! |---|---|
//! | [`identity`] | passes on what it receives |
//! | [`prefix`] | sends a value of its own first |
//! | [`successor`] | adds one |
//! | [`map`] | applies a function |
//! | [`pairs`] | adds neighbours |
//! | [`delta`], [`delta_all`] | sends each value to two outputs, or to all of many |
//! | [`merge`] | many inputs, one output, fairly |
//! | [`paraplex`] | one value from each of many inputs, as a row |
//! | [`sign`] | puts a sign before each value |
//! | [`demultiplex`] | many outputs; each value says its own |
//! | [`tap`] | sends a copy of each value to a watcher |
//! | [`generate`] | sends one value again and again |
//! | [`numbers`] | sends 0, 1, 2 and so on |
//!
//! | skeleton | the processes in it |
//! |---|---|
//! | [`pipeline`] | each receives from the one before |
//! | [`ring`] | the same, and the first receives from the last |
//! | [`farm`] | several workers, which share the jobs |
//!
//! A block is an async function: `spawn` it, or run it inside [`par!`](crate::par).
//!
//! # How they end
//! A block owns its ends, and leaves its channels when it returns.
//!
//! - When its input has ended in order and all values are passed on, it returns `Ok`.
//! - When its output has ended in order, it returns [`BlockError::Send`] with the value in hand. It notices
//!   at its next send. Its input then ends, and a failed send there returns its value. So nothing is lost.
//! - *Poison is passed on*: when one of its channels is poisoned, it poisons all its other channels with the
//!   same reason, and returns the error. Any other disorderly end, such as a lost node, does the same with
//!   the error's text as the reason: no process mistakes it for the end of the input.
//!
//! A block that is dropped before it has ended leaves its channels too, and the value in hand is dropped.
//!
//! # Source
//! The names are those of the occam course library, JCSP and C++CSP.

mod copying;
mod error;
#[cfg(feature = "rt")]
mod farm;
mod joining;
mod making;
mod shapes;
mod sorting;

pub use copying::{delta, delta_all, tap};
pub use error::BlockError;
#[cfg(feature = "rt")]
pub use farm::{Farm, FarmError, FarmFuture, Progress, farm};
pub use joining::{identity, map, merge, pairs, paraplex, prefix, sign, successor};
pub use making::{generate, numbers};
pub use shapes::{pipeline, ring};
pub use sorting::demultiplex;
