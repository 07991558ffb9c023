//! Scheme processes that are dunlin processes.
//!
//! A [`Program`] is code, definitions and processes of Scheme. Each of its processes is a task with a
//! [`Pid`](dunlin::Pid) of dunlin's, also those that Scheme spawns: it runs for 20 us, and gives way.
//!
//! - **Links and monitors** of Rust see the end of a Scheme process, and [`Pid::kill`](dunlin::Pid::kill)
//!   ends one between two turns, also one that never waits. The object that it raised is the
//!   [payload](dunlin::Exit::payload) of its exit, as a [`Value`].
//! - **In Scheme**, a process of Rust is a pid ([`Program::pid`]) for `inbound-link`, `outbound-link` and
//!   `kill`. Its exit is raised where the Scheme process waits for a message next: its payload if that is a
//!   `Value`, the symbols `killed` and `no-process`, or an error of the kind `exit` with the text of its
//!   reason. A normal end raises nothing.
//! - **Messages** to Scheme are values that serde can encode ([`Program::send`]); a mailbox of Rust is a pid
//!   in Scheme ([`Program::address`]), to which `!` sends what fits its type.
//!   [`value_of`](dunlin_scheme::value_of) has the table of types.
//! - **Channels** that Scheme makes are dunlin's: a send is done when a receive has taken the value, and
//!   `alt` is a [`Choice`](dunlin::Choice). [`ChannelEnd`] hands ends from Rust to Scheme, and back.
//!
//! # Threads
//! The processes of one program run in parallel, on all worker threads: each worker has a machine of the
//! program while it gives a turn. What changes what they share takes turns: sends, spawns, definitions,
//! ports, the compilation of a form. Programs do not wait for each other.
//!
//! # Map
//! `program`: what users call; `machine`: the machines of a program; `body`: what a process's task does;
//! `outside`: what Scheme knows of Rust; `ends`, `operation`: channels; `local`, `computations`: those of a
//! machine without tasks.

mod body;
mod computations;
mod ends;
mod local;
mod machine;
mod operation;
mod outside;
mod program;

pub use body::Body;
pub use dunlin_scheme::{End, EndKind, Error, Failure, ProcessNumber, Value, ValueError};
pub use ends::{ChannelEnd, EndError};
pub use local::LocalChannels;
pub use program::Program;
