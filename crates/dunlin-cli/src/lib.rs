//! The `dunlin` command, as a library: its tests use the same parts.
//!
//! Each subcommand has a module of its name. `main.rs` only hands over.

pub mod commands;
pub mod farm;

pub use commands::run;
