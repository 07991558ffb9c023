//! Channels: synchronous by default, typed, with two ends that are owned values.
//!
//! - [`sender`], [`receiver`]: the ends and their operations; [`power`]: what an end may do.
//! - [`state`]: what both ends share: the one-slot rendezvous, and how the channel ended.
//! - [`queue`]: all the rest: buffers, several senders, offers of choices.
//! - [`erased`]: values without their type, which the queue keeps.
//! - [`posted`], [`sink`]: sends that no task waits for, and a sender as a sink.
//! - [`policy`]: what happens to a value that no receive waits for.
//! - [`elsewhere`]: queries to the other half of a channel at another node, and the names of its offers.
//! - [`hub`]: what the channels of one broadcast have in common.
//! - `words`: the messages between two halves over a link (feature `link`).
//! - [`tether`]: what a process knows of the ends that its body holds.
//! - [`factory`]: makes channels whose policy the user of the factory does not choose.

pub(crate) mod after;
pub(crate) mod elsewhere;
pub(crate) mod erased;
pub(crate) mod factory;
#[cfg(feature = "link")]
pub(crate) mod heard;
pub(crate) mod hub;
pub(crate) mod policy;
pub(crate) mod posted;
mod power;
pub(crate) mod queue;
pub(crate) mod receiver;
pub(crate) mod sender;
pub(crate) mod sink;
pub(crate) mod state;
pub(crate) mod tether;
#[cfg(feature = "link")]
pub(crate) mod words;

use std::panic::Location;
use std::sync::Arc;

pub(crate) use policy::{Policy, rendezvous};
pub use power::{MayPoison, NoPoison};
use receiver::Receiver;
use sender::Sender;
use state::Chan;

/// `Debug` of operations: shows the kind of operation and its channel.
macro_rules! debug_operation {
    ($($name:ident)*) => { $(
        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($name)).field(&self.chan.record.id()).finish()
            }
        }
    )* };
}
pub(crate) use debug_operation;

/// A synchronous channel: a send ends when a receive has returned the value.
///
/// # Examples
/// ```
/// use dunlin_core::{channel, par};
/// # dunlin_core::doc::block_on(async {
/// let (mut tx, mut rx) = channel();
/// let (sent, received) = par!(tx.send(1), rx.recv());
/// assert_eq!((sent, received), (Ok(()), Ok(1)));
/// # });
/// ```
///
/// An end that was moved cannot be used again:
/// ```compile_fail,E0382
/// # async fn f() {
/// let (mut tx, _rx) = dunlin_core::channel::<u8>();
/// let (mut carrier, _far) = dunlin_core::channel();
/// carrier.send(tx).await.unwrap();
/// tx.send(1).await.unwrap();
/// # }
/// ```
///
/// and an end is not `Clone` before it is [shared](Sender::share):
/// ```compile_fail,E0277
/// let (tx, _rx) = dunlin_core::channel::<u8>();
/// let second = tx.clone();
/// ```
///
/// # Source
/// Hoare, *Communicating Sequential Processes*, 1978; ends as values: occam-pi (Welch and Barnes, 2005).
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    ends(&rendezvous(), Location::caller())
}

/// Makes a channel with this policy.
///
/// # Examples
/// ```
/// use dunlin_core::{channel_with, fifo};
/// let (mut tx, mut rx) = channel_with(fifo(2));
/// tx.try_send(1).unwrap();
/// tx.try_send(2).unwrap();
/// assert!(tx.try_send(3).is_err());
/// assert_eq!(rx.try_recv(), Ok(1));
/// ```
#[track_caller]
pub fn channel_with<T>(policy: impl Into<Policy>) -> (Sender<T>, Receiver<T>) {
    ends(&policy.into(), Location::caller())
}

pub(crate) fn ends<T, P, Q>(policy: &Policy, made: &'static Location<'static>) -> (Sender<T, P>, Receiver<T, Q>) {
    let chan = Arc::new(Chan::new(policy, made));
    (Sender::new(chan.clone()), Receiver::new(chan))
}
