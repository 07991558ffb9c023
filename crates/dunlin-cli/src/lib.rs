//! The `dunlin` command, as a library, so that its tests use the same parts.
//!
//! Each subcommand has a module of its name, except `demo` and `farm`, which are in `dunlin-demo`. `main.rs`
//! only calls this library.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic if they cannot write")]

pub mod commands;
pub mod component;
pub mod config;
pub mod log;
pub mod names;
pub mod node;
pub mod ping;
pub mod profile;
pub mod reach;
#[cfg(unix)]
pub mod repl;
#[cfg(unix)]
pub mod scheme;
pub mod sim;
pub mod who;

pub use commands::run;
