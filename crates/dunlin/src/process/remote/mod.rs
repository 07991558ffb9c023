//! Processes that are started at another node.
//!
//! - `function.rs`: functions that may be started elsewhere, and their calls as values;
//! - `offer.rs`: what a node lets others start; `rules.rs`: which nodes may, and how many processes run;
//! - `request.rs`: what the two nodes say; `begin.rs`: how the offering node starts a process;
//! - `start.rs`: [`SpawnOn`], the starting side; `handle.rs`: [`RemoteProcess`];
//! - `dispatcher.rs`: [`Dispatcher`], which starts at the less loaded of several nodes;
//! - `error.rs`: why nothing was started.
//!
//! A dispatcher asks an acceptor of the offer, once a second, how much runs.
//!
//! All of it stands on public parts: acceptors, calls, mailboxes, links and monitors.
//!
//! # How a process is started
//!
//! 1. An offer declares an acceptor for each function, and one under its own name, which says whether a
//!    function may be started. The starting node asks that first, so what is refused never leaves it.
//! 2. The arguments travel as one request to the function's acceptor, with an end for the output. Schemas are
//!    compared when the starting node declares its client.
//! 3. The offering node starts a process, and answers with its pid and an address. The process waits for a
//!    message at that address before it calls the function.
//! 4. The starting node links and monitors the pid, and then sends that message. Signals and messages of one
//!    process are in one stream, so the function does not run before links and monitors are in place.

mod begin;
mod dispatcher;
mod error;
mod function;
mod handle;
mod offer;
mod request;
mod rules;
mod start;

pub use dispatcher::Dispatcher;
pub use error::{StartError, StartFailure};
pub use function::{RemoteCall, RemoteFunction};
pub use handle::RemoteProcess;
pub use offer::{FunctionOffer, Offering};
pub use start::SpawnOn;
