//! dunlin: one concurrency model inside a program and between programs.
//!
//! A *process* is lightweight and owns its state; processes communicate over *channels*. A channel is
//! synchronous: when a send returns `Ok`, its value has been received.
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
//! - the core, from the crate `dunlin-core`: [`channel`], [`alt!`], [`Choice`], [`par!`], [`Shared`],
//!   [`barrier()`], [`call`], [`waits`];
//! - [`spawn`], [`Process`], [`Exit`]: processes on tokio's worker threads;
//! - [`Scope`], [`process`](macro@process): named channels that processes join by themselves, and waiting for
//!   those processes;
//! - [`blocking`](blocking()), [`Stop`], [`mod@blocking`]: calls that block, on threads of their own;
//! - [`io`]: sockets and files, whose operations are branches of a choice;
//! - [`Node`](node::Node), [`node`]: the program as a member of an application, and channels, calls and
//!   bundles by name between programs;
//! - [`Bundle`](macro@Bundle), [`ToServer`], [`ToClient`], [`Call`]: channels that belong together, as a
//!   struct with two faces;
//! - [`blocks`]: small processes and shapes that programs are made of: delta, merge, tap, pipeline, ring,
//!   farm;
//! - [`Deadline`]: `.within(duration)`, `.by(instant)` on every operation, and `.wait()` for threads;
//!   [`sleep`], [`Timer`], [`interval`]. [`send_to_any`] is not an operation of one end and has none of
//!   these: use it as a branch of an [`alt!`] beside a [`sleep`];
//! - [`net`]: what connections between nodes run over: TCP, unix sockets, memory, or a network of your own;
//! - [`config`]: `dunlin.toml` and environment variables, and where each value came from;
//! - [`laws!`]: the laws of channels as tests of a policy or a network of your own;
//! - [`Error`], [`Result`]: one error that all others convert into;
//! - [`prelude`]: what most programs need.
#![cfg_attr(docsrs, feature(doc_cfg))]

// Code that the macros generate refers to this crate by this name.
#[cfg(feature = "net")]
extern crate self as dunlin;

#[cfg(feature = "rt")]
pub mod blocking;
pub mod blocks;
#[cfg(feature = "net")]
pub mod config;
mod error;
mod face;
#[cfg(feature = "io")]
pub mod io;
#[cfg(feature = "rt")]
mod lock;
#[cfg(feature = "net")]
pub mod net;
#[cfg(feature = "net")]
pub mod node;
#[cfg(feature = "rt")]
mod report;
#[cfg(feature = "rt")]
mod runtime;
#[cfg(feature = "rt")]
pub mod scope;
#[cfg(feature = "sim")]
#[cfg_attr(docsrs, doc(cfg(feature = "sim")))]
pub mod sim;
#[cfg(feature = "rt")]
mod spawn;
#[cfg(any(feature = "io", feature = "net"))]
mod tcp;
#[cfg(feature = "rt")]
mod time;
#[cfg(feature = "rt")]
mod watchdog;
#[cfg(feature = "rt")]
mod world;

pub use dunlin_core::*;
#[cfg(all(feature = "macros", feature = "rt"))]
pub use dunlin_macros::process;
#[cfg(all(feature = "macros", feature = "net", target_os = "linux"))]
pub use dunlin_macros::remote;
#[cfg(feature = "macros")]
pub use dunlin_macros::{Bundle, main};
// (In tests of this crate it would take the place of the compiler's `test`.)
#[cfg(all(feature = "macros", feature = "rt", not(test)))]
pub use dunlin_macros::test;
#[cfg(feature = "serde")]
#[doc(hidden)]
pub use serde;

#[cfg(feature = "rt")]
pub use blocking::{Blocking, Ended, Requested, Stop, Terminating, blocking};
pub use error::{Error, Result};
pub use face::{ClientFace, ServerFace};
#[cfg(feature = "rt")]
pub use runtime::block_on;
#[cfg(feature = "rt")]
pub use scope::{FinishError, Place, Scope, ScopeError, Wired, wired};
#[cfg(feature = "rt")]
pub use spawn::{Exit, ExitReason, Process, spawn, spawn_named};
#[cfg(feature = "rt")]
pub use time::{
    CompleteWithin, Deadline, Instant, Interval, Sleep, Tick, Timer, interval, sleep, sleep_until, start_clock,
};
#[cfg(feature = "rt")]
pub use world::future;

/// Runs the laws of dunlin's channels as tests of your crate, for a policy or a network of your own.
///
/// Needs the crate `dunlin-laws` among the `dev-dependencies`; see its module `users`.
///
/// ```text
/// dunlin::laws! {
///     mod shed_load;
///     policy: ShedLoad { high: 3 },
///     room: 3,                       // how many unreceived values it keeps,
///     full: DropsOldest,             // and what it does with one more
/// }
///
/// dunlin::laws! {
///     mod pigeons;
///     network: Pigeons::default(),
///     listen: "",                    // without the prefix; takes a free place each time
/// }
/// ```
#[macro_export]
macro_rules! laws {
    ($($what:tt)*) => { ::dunlin_laws::laws! { $($what)* } };
}

/// What most programs need: `use dunlin::prelude::*;`.
pub mod prelude {
    #[cfg(feature = "macros")]
    pub use crate::Bundle;
    #[cfg(feature = "serde")]
    pub use crate::Portable;
    #[cfg(feature = "net")]
    pub use crate::node::{Guest, Node};
    #[cfg(all(feature = "macros", feature = "rt"))]
    pub use crate::process;
    pub use crate::{
        Admit, Barrier, Broadcast, BroadcastError, Buffering, Call, CallError, Callee, Caller, ChannelFactory, Choice,
        Claim, ClaimError, CompleteError, Error, Extended, Flip, Joiner, NoPoison, Operation, Overflow, Par, Policy,
        Posted, Receiver, RecvError, Reply, Result, SendError, Sender, Share, Shared, SyncError, ToClient, ToServer,
        Why, alt, barrier, broadcast, broadcast_with, call, channel, channel_with, drop_newest, fifo, future,
        overwrite_newest, overwrite_oldest, par, send_to_any, unbounded,
    };
    #[cfg(feature = "rt")]
    pub use crate::{
        Blocking, CompleteWithin, Deadline, Ended, Exit, FinishError, Instant, Interval, Place, Process, Scope,
        ScopeError, Stop, Timer, Wired, blocking, interval, sleep, sleep_until, spawn, wired,
    };
    pub use std::time::Duration;
}

/// Support code for the macros. Not for direct use.
#[doc(hidden)]
pub mod __rt {
    #[cfg(all(target_os = "linux", feature = "net"))]
    pub use crate::blocking::process::{RemoteEntry, remote, serve_processes, serve_remote};
    #[cfg(feature = "serde")]
    pub use crate::face::{Read, ReadField, ReadNothing, WriteField, WriteNothing, Written, field_name, travels};
    #[cfg(feature = "rt")]
    pub use crate::report::{Outcome, ReportBoxed, ReportError, ReportOther, ReportText};
    #[cfg(feature = "rt")]
    pub use crate::runtime::{block_on_workers, main};
    #[cfg(feature = "rt")]
    pub use crate::scope::joining::join;
    #[cfg(feature = "rt")]
    pub use crate::scope::names::{AsClient, AsReceiver, AsSender, AsServer};
    #[cfg(feature = "rt")]
    pub use crate::scope::wired::{named, propagating};
    pub use dunlin_core::__rt::*;
}

/// The README's example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
