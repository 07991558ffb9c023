//! A library of processes with mailboxes, as the programs see it.

use std::time::Duration;

use anyhow::Result;

/// A library of processes with mailboxes.
pub(super) trait Actors: Send + 'static {
    /// A handle of a parked process, which keeps its mailbox open.
    type Parked: Send + 'static;

    /// Starts `n` processes that end at once, and waits until all have ended.
    fn spawn(n: u64) -> impl Future<Output = Result<Duration>> + Send;

    /// Starts `n` monitored processes that end at once, one after the other, until each has been reported.
    fn down(n: u64) -> impl Future<Output = Result<Duration>> + Send;

    /// Posts `n` numbers to a process, which checks them, and waits until it has all.
    fn post(n: u64) -> impl Future<Output = Result<Duration>> + Send;

    /// Makes `n` calls, one after the other.
    fn call(n: u64) -> impl Future<Output = Result<Duration>> + Send;

    /// Starts a process that calls [`one_waits`](crate::memory::one_waits), and waits for its mailbox.
    fn park() -> Self::Parked;

    /// Links two processes, so that the end of each one ends the other.
    fn link(one: &Self::Parked, other: &Self::Parked) -> impl Future<Output = Result<()>> + Send;

    /// Kills the first process of a chain, and waits for the end of the last.
    fn exit(first: &Self::Parked, last: Self::Parked) -> impl Future<Output = Result<Duration>> + Send;
}
