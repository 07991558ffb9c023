//! dunlin: one concurrency model inside a program and between programs.
//!
//! A *process* is light and owns its state; it talks over *channels*. A channel is synchronous: a send that returns
//! `Ok` has been received.
//!
//! ```
//! use dunlin::prelude::*;
//!
//! #[dunlin::main]
//! async fn main() -> Result {
//!     let (mut tx, mut rx) = channel();
//!     let greeter = spawn(async move {
//!         tx.send("hello").await?; // returns once a receive has returned it
//!         tx.send("goodbye").await
//!     });
//!     while let Some(word) = rx.next().await? {
//!         println!("{word}");
//!     }
//!     greeter.await??; // its exit, then its result
//!     Ok(())
//! }
//! ```
//!
//! # Map
//! - the core, from the crate `dunlin-core`: [`channel`], [`alt!`], [`Choice`], [`par!`], [`Shared`], [`call`], [`waits`];
//! - [`spawn`], [`Process`], [`Exit`]: processes on tokio's worker threads;
//! - [`blocking`](blocking()), [`Blocking`], [`Stop`]: calls that block, on threads of their own;
//! - [`Deadline`]: `.within(duration)`, `.by(instant)` on every operation, and `.wait()` for threads; [`sleep`];
//! - [`Error`], [`Result`]: one error that all others convert into;
//! - [`prelude`]: what most programs need.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "rt")]
mod blocking;
mod error;
mod face;
#[cfg(feature = "net")]
pub mod node;
#[cfg(feature = "rt")]
mod run;
#[cfg(feature = "rt")]
mod runtime;
#[cfg(feature = "sim")]
#[cfg_attr(docsrs, doc(cfg(feature = "sim")))]
pub mod sim;
#[cfg(feature = "rt")]
mod spawn;
#[cfg(feature = "rt")]
mod time;
#[cfg(feature = "rt")]
mod world;

pub use dunlin_core::*;
#[cfg(feature = "macros")]
pub use dunlin_macros::{Bundle, main};
#[cfg(feature = "serde")]
#[doc(hidden)]
pub use serde;

#[cfg(feature = "rt")]
pub use blocking::{Blocking, Ended, Requested, Stop, Terminating, blocking};
pub use error::{Error, Result};
#[cfg(feature = "rt")]
pub use runtime::block_on;
#[cfg(feature = "rt")]
pub use spawn::{Exit, ExitReason, Process, spawn, spawn_named};
#[cfg(feature = "rt")]
pub use time::{Deadline, Instant, Sleep, sleep, sleep_until, start_clock};

/// What most programs need: `use dunlin::prelude::*;`.
pub mod prelude {
    #[cfg(feature = "macros")]
    pub use crate::Bundle;
    #[cfg(feature = "serde")]
    pub use crate::Portable;
    #[cfg(feature = "net")]
    pub use crate::node::{Guest, Node};
    pub use crate::{
        Admit, Buffering, Call, CallError, Callee, Caller, ChannelFactory, Choice, Claim, ClaimError, Error, Extended,
        Flip, NoPoison, Operation, Overflow, Par, Policy, Receiver, RecvError, Result, SendError, Sender, Share,
        Shared, ToClient, ToServer, Why, alt, call, channel, channel_with, drop_newest, fifo, future, overwrite_newest,
        overwrite_oldest, par, send_to_any, unbounded,
    };
    #[cfg(feature = "rt")]
    pub use crate::{Deadline, Ended, Exit, Process, blocking, sleep, spawn};
    pub use std::time::Duration;
}

/// What the macros expand to. Not for use by hand.
#[doc(hidden)]
pub mod __rt {
    #[cfg(feature = "serde")]
    pub use crate::face::field_name;
    #[cfg(feature = "rt")]
    pub use crate::runtime::main;
    pub use dunlin_core::__rt::*;
}

/// The README's example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
