//! A Scheme without mutation.
//!
//! [`Scheme`] is one machine with a top level: it reads text, expands and compiles each form to register
//! bytecode, and runs it, with the processes that it spawns. Each process has a heap of its own, of which
//! continuations, frames and closures are objects like any other.
//!
//! What is not here: `set!` and every procedure that changes an object. Using one is an error when the
//! program is compiled, and names the alternative.
//!
//! ```
//! use dunlin_scheme::Scheme;
//!
//! let mut scheme = Scheme::new();
//! let text = "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib 20)";
//! assert_eq!(scheme.eval("example", text)?, "6765");
//! # Ok::<(), dunlin_scheme::Error>(())
//! ```
//!
//! # Map
//!
//! - `read`: text to data with positions; `datum`, `names`: what data are made of;
//! - `expand`: data to the `core` language, with macros that capture nothing;
//! - `compile`: core to `code`, the bytecode;
//! - `heap`: words, objects and the collector; `value`, `print`: values from and to data and text; `data`:
//!   values outside of a machine, and of Rust;
//! - `num`: the numeric tower;
//! - `proc`: processes, which of them runs, time, and what they ask of channels; `interrupt`: ends that
//!   another thread asks for;
//! - `scheme`, `engine`: machines for embedders;
//! - `vm`: the machine, its loop and its primitives;
//! - `wire`: values to and from bytes;
//! - `lib/*.scm`: what is written in Scheme.

mod clock;
mod code;
mod compile;
mod core;
mod data;
mod datum;
mod engine;
mod error;
mod expand;
mod heap;
mod interrupt;
mod names;
mod num;
mod print;
mod proc;
mod read;
mod scheme;
mod value;
mod vm;
mod wire;

pub use data::{End, EndKind, ProcessNumber, Value, ValueError};
#[cfg(feature = "serde")]
pub use data::{from_value, value_of};
pub use datum::Pos;
pub use engine::{Engine, Workers};
pub use error::{Error, Place, Raised, SyntaxError};
pub use interrupt::Interrupter;
pub use num::{Computation, Computed};
pub use proc::{Branch, Channels, Host, Operation, Outcome, Refusal};
pub use read::FILE_BYTES_MAX;
pub use scheme::{Scheme, is_incomplete};
pub use vm::{Failure, Request, Step};
pub use wire::{ReadError, WriteError};
