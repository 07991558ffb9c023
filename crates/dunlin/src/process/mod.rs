//! Processes: starting them, how they fail, and how others learn of it.
//!
//! - [`spawn`], [`Process`], [`Pid`]: a process and its handle;
//! - [`Exit`], [`ExitReason`], [`Outcome`]: how it ended;
//! - [`link`](link()), [`spawn_linked`], [`exit`], [`Pid::kill`]: an exit that ends other processes;
//! - [`monitor`], [`monitor_into`]: an exit that is reported;
//! - [`mailbox`](mailbox()), [`Address`], [`Mailbox`]: messages that a process receives in an order of its
//!   own;
//! - [`RemoteCall`], [`RemoteProcess`], [`Dispatcher`]: a process that is started at another node;
//! - [`supervisor`], [`server`]: processes that restart others, and processes that serve calls.
//!
//! In the folder: `signal.rs` is the pure state machine of a process's links, monitors and exits; `core.rs`
//! gives each process that needs it one under a lock, and explains how signals travel; `links.rs` are the
//! links of one process, `set.rs` is a small map; `watch.rs` is what learns of an end. `far/` reaches
//! processes of other nodes, and `remote/` starts some there. `spawn.rs` polls a body, and ends it.
//! `mailbox/` has the queue (`queue.rs`), the address and the receives.

mod core;
mod down;
mod exit;
#[cfg(feature = "net")]
mod far;
mod link;
mod links;
mod mailbox;
mod monitor;
mod payload;
mod pid;
#[cfg(feature = "net")]
mod remote;
pub mod server;
mod set;
mod signal;
mod spawn;
pub mod supervisor;
mod watch;

pub use down::{Down, MonitorId};
pub use exit::{Exit, ExitReason, Outcome};
#[cfg(feature = "net")]
pub use link::exit_with_portable;
pub use link::{Leaving, OutsideProcess, exit, exit_with, link, spawn_linked, spawn_linked_named, unlink};
pub use mailbox::{
    Address, Bound, Mailbox, MailboxError, Marked, Offer, OfferFrom, PostError, Receive, mailbox, mailbox_with,
};
pub use monitor::{Monitor, MonitorInto, monitor, monitor_into};
#[cfg(feature = "net")]
pub use payload::PayloadError;
pub use pid::Pid;
#[cfg(feature = "net")]
pub use remote::{
    Dispatcher, FunctionOffer, Offering, RemoteCall, RemoteFunction, RemoteProcess, SpawnOn, StartError, StartFailure,
};
pub(crate) use spawn::{NotStarted, start};
pub use spawn::{Process, spawn, spawn_named};
