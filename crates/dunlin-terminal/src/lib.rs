//! Shared parts of dunlin's commands, so that they print, fail and stop in the same way.
//!
//! - [`output`]: text for people or JSON for scripts, and what happens when stdout cannot be written;
//! - [`failure`]: errors with their exit codes, and signals that end a command in order.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic if they cannot write")]

pub mod failure;
pub mod output;
