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
//! - [`mailbox`](mailbox()), [`Address`], [`receive!`]: messages that a process receives in an order of its
//!   own; [`link`](link()), [`spawn_linked`], [`monitor`](monitor()), [`Pid`]: processes that end, or learn
//!   of each other's end;
//! - [`supervisor`], [`server`]: processes that restart others, and processes that serve calls;
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
mod process;
#[cfg(feature = "rt")]
mod quiet;
#[cfg(feature = "rt")]
mod report;
#[cfg(feature = "rt")]
mod runtime;
#[cfg(feature = "rt")]
pub mod scope;
#[cfg(feature = "sim")]
#[cfg_attr(docsrs, doc(cfg(feature = "sim")))]
pub mod sim;
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
#[cfg(all(feature = "macros", feature = "net"))]
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
pub use process::{
    Address, Bound, Down, Exit, ExitReason, Leaving, Mailbox, MailboxError, Marked, Monitor, MonitorId, MonitorInto,
    Offer, OfferFrom, Outcome, OutsideProcess, Pid, PostError, Process, Receive, exit, exit_with, link, mailbox,
    mailbox_with, monitor, monitor_into, server, spawn, spawn_linked, spawn_linked_named, spawn_named, supervisor,
    unlink,
};
#[cfg(feature = "net")]
pub use process::{
    Dispatcher, FunctionOffer, Offering, PayloadError, RemoteCall, RemoteFunction, RemoteProcess, SpawnOn, StartError,
    StartFailure, exit_with_portable,
};
#[cfg(feature = "rt")]
pub use runtime::block_on;
#[cfg(feature = "rt")]
pub use scope::{FinishError, Place, Scope, ScopeError, Wired, wired};
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

/// Receives the first message of a [`Mailbox`] that fits one of several patterns, and leaves the others in
/// order.
///
/// ```text
/// receive!(mailbox,
///     pattern => body,
///     pattern if guard => body,                    // the guard sees references
///     after duration => body,                      // if nothing that fits has arrived by then
/// )
/// ```
///
/// The patterns of one message are tried in the order written, and messages in the order in which they
/// arrived. Each message is tested once by a receive: what does not fit stays, and what arrives later is
/// tested when it arrives. [`Mailbox::mark`] lets a receive begin behind what is there. Names that a pattern
/// binds are references in its guard, and owned in its body. Bodies are ordinary code of the enclosing
/// function: `?`, `return`, `.await` and `break` work as they do outside.
///
/// `duration` is for the whole receive, however many messages arrive meanwhile that do not fit. With
/// `Duration::ZERO`, what is there is received.
///
/// The value is `Ok` with that of the body. As a branch of a choice, use [`Mailbox::recv_if`].
///
/// # Errors
/// [`MailboxError::NotOwner`] if the mailbox belongs to another process.
///
/// # Panics
/// If a guard panics. The message stays where it is, and the mailbox can be used.
///
/// # Cancel safety
/// Dropped while it waits, it has taken nothing. Once a body has begun, it is as cancel safe as that body.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{Mailbox, mailbox, receive};
///
/// enum Msg {
///     Get(u32),
///     Answer { id: u32, text: String },
/// }
///
/// async fn answer(me: &mut Mailbox<Msg>, wanted: u32) -> Result<Option<String>> {
///     Ok(receive!(me,
///         Msg::Answer { id, text } if *id == wanted => Some(text),
///         after Duration::from_millis(1) => None,
///     )?)
/// }
/// # dunlin::block_on(async {
/// let (address, mut me) = mailbox();
/// address.send(Msg::Get(1))?;
/// address.send(Msg::Answer { id: 8, text: "squid".into() })?;
/// assert_eq!(answer(&mut me, 7).await?, None);
/// address.send(Msg::Answer { id: 7, text: "krill".into() })?;
/// assert_eq!(answer(&mut me, 7).await?.as_deref(), Some("krill"));
/// assert!(matches!(me.recv().await?, Msg::Get(1)));
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
///
/// # Source
/// `receive` of Erlang, `recv` of Termite.
#[cfg(all(feature = "macros", feature = "rt"))]
#[macro_export]
macro_rules! receive {
    ($($input:tt)*) => {
        $crate::__rt::__receive! { ($crate) $($input)* }
    };
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
    #[cfg(all(feature = "macros", feature = "rt"))]
    pub use crate::receive;
    #[cfg(feature = "rt")]
    pub use crate::{
        Address, Blocking, CompleteWithin, Deadline, Down, Ended, Exit, ExitReason, FinishError, Instant, Interval,
        Mailbox, Pid, Place, Process, Scope, ScopeError, Stop, Timer, Wired, blocking, interval, link, mailbox,
        monitor, sleep, sleep_until, spawn, spawn_linked, wired,
    };
    pub use crate::{
        Admit, Barrier, Broadcast, BroadcastError, Bucket, BucketError, Buffering, Call, CallError, Callee, Caller,
        ChannelFactory, Choice, Claim, ClaimError, CompleteError, Error, Extended, Flip, Flusher, Joiner, NoPoison,
        Operation, Overflow, Par, Policy, Posted, Receiver, RecvError, Reply, Result, SendError, Sender, Share, Shared,
        SyncError, ToClient, ToServer, Why, alt, barrier, broadcast, broadcast_with, bucket, call, channel,
        channel_with, drop_newest, fifo, future, overwrite_newest, overwrite_oldest, par, send_to_any, unbounded,
    };
    #[cfg(feature = "rt")]
    pub use crate::{server::Server, supervisor::Supervisor};
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
    #[cfg(all(feature = "macros", feature = "rt"))]
    pub use dunlin_macros::__receive;
}

/// The README's example runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
