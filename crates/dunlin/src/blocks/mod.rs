//! Blocks and skeletons: the small processes and the shapes that programs are made of.
//!
//! | block | what it does |
//! |---|---|
//! | [`identity`] | passes on what it receives |
//! | [`prefix`] | sends a value of its own first |
//! | [`successor`] | adds one |
//! | [`map`] | applies a function |
//! | [`pairs`] | adds neighbours |
//! | [`delta`] | sends each value to two outputs |
//! | [`merge`] | many inputs, one output, fairly |
//! | [`tap`] | copies what passes to a watcher |
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
//! - When its output has ended in order, it returns [`BlockError::Send`] with the value that it had in hand.
//!   It notices when it next sends; its input then ends, and a sender there has its own value back. So
//!   nothing is lost.
//! - *Poison is passed on*: when a channel of it is poisoned, it poisons all its other channels with the same
//!   reason, and returns the error. So is any other end that is not in order, such as a lost node, with the
//!   error's text as the reason: no process takes it for the end of the input.
//!
//! A block that is dropped before it has ended leaves its channels too; a value that it has in hand is
//! dropped with it.
//!
//! # Source
//! The names are those of the occam course library, JCSP and C++CSP.

mod copying;
mod error;
#[cfg(feature = "rt")]
mod farm;
mod joining;
mod shapes;

pub use copying::{delta, tap};
pub use error::BlockError;
#[cfg(feature = "rt")]
pub use farm::{Farm, FarmError, FarmFuture, Progress, farm};
pub use joining::{identity, map, merge, pairs, prefix, successor};
pub use shapes::{pipeline, ring};
