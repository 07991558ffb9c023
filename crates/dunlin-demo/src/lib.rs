//! The demo and the farms of the `dunlin` command: programs of many processes, made to be watched and read.
//!
//! - [`demo`]: a broker, workers and customers, for `dunlin demo`;
//! - [`farm`]: a master and its workers, for `dunlin farm`, and a worker for `dunlin node`.
//!
//! Their components are functions of channel ends. They run in one program over local channels, or each in an
//! OS process of its own.
//!
//! # In a command
//!
//! Both start their OS processes from the binary that they run in, so that binary answers to two command
//! lines: one whose first argument is [`demo::PART`], and `farm worker` with the options of
//! [`farm::Joining`].
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use clap::error::ErrorKind;
//! use clap::{CommandFactory, Parser};
//! use dunlin_demo::{demo, farm};
//!
//! #[derive(Parser)]
//! enum Line {
//!     Demo(demo::Options),
//!     #[command(subcommand)]
//!     Farm(farm::Farm),
//! }
//!
//! fn main() -> ExitCode {
//!     if std::env::args_os().nth(1).is_some_and(|word| word == demo::PART) {
//!         return demo::play();
//!     }
//!     match Line::parse() {
//!         Line::Demo(options) => demo::run(&options, false),
//!         Line::Farm(farm) => {
//!             if let Some(what) = farm.wrong() {
//!                 Line::command().error(ErrorKind::ValueValidation, what).exit();
//!             }
//!             farm.run(false)
//!         }
//!     }
//! }
//! ```

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic if they cannot write")]

pub mod demo;
pub mod farm;
