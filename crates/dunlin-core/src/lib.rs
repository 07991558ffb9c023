//! The core of dunlin: synchronous channels with choice, `par!`, claims and calls, independent of any
//! runtime.
//!
//! A *process* is an async body that owns its state; it talks over *channels*, whose two ends are owned
//! values. A send ends when a receive has returned the value. This crate needs only wakers: no clock, no
//! threads, no I/O. Most programs use the crate `dunlin`, which adds `spawn`, time and nodes.
//!
//! # The rules that never break
//! 1. *Senders offer, receivers take.* Only a receive that is being polled takes a value, and in that poll
//!    returns it. A receive that is dropped has taken nothing.
//! 2. *What is not sent comes back.* Every send that fails, times out or is not chosen gives its value back.
//!
//! # Map
//! - [`channel`], [`channel_with`]: the ends [`Sender`] and [`Receiver`], and policies.
//! - [`broadcast`]: each value to every receiver that has joined.
//! - [`alt!`], [`Choice`]: choice over operations not yet awaited.
//! - [`par!`], [`Par`]: processes inside the caller.
//! - [`Shared`], [`Claim`]: ends that many hold.
//! - [`barrier()`], [`Barrier`]: parties that go on together.
//! - [`call`], [`Bundle`]: call channels and bundles.
//! - [`waits`]: who waits on what, since when.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod agent;
mod barrier;
mod broadcast;
mod budget;
mod bundle;
mod call;
mod channel;
mod choice;
mod clock;
mod error;
mod handle;
mod line;
mod lock;
mod operation;
mod par;
mod pinned;
#[cfg(feature = "serde")]
mod portable;
#[cfg(feature = "link")]
#[doc(hidden)]
pub mod remote;
mod share;
mod sync;
mod table;
mod turn;
pub mod waits;
mod wake;

pub use barrier::{Barrier, Syncing, barrier};
pub use broadcast::{Broadcast, Broadcasting, Completing, Joiner, broadcast, broadcast_with};
pub use bundle::{Bundle, Call, Flip, Pairing, Share, ToClient, ToServer};
pub use call::{Accepting, Callee, Caller, Calling, Reply, Request, call};
pub use channel::factory::ChannelFactory;
pub use channel::policy::{
    Admit, Buffering, Overflow, Policy, drop_newest, fifo, overwrite_newest, overwrite_oldest, rendezvous, unbounded,
};
pub use channel::posted::Posted;
pub use channel::receiver::{ClosedReceiving, Extended, Extending, Next, Receiver, Receiving};
pub use channel::sender::{ClosedSending, Sender, Sending, SendingFrom};
pub use channel::sink::SenderSink;
pub use channel::{MayPoison, NoPoison, channel, channel_with};
pub use choice::branch::{Branch, Foreign, future};
pub use choice::builder::{Choice, ChoiceFuture, SendingToAny, send_to_any};
pub use clock::PATIENCE_TICKS;
pub use error::{
    BroadcastError, CallError, ClaimError, CompleteError, MessageId, Reason, RecvError, SendError, Strength, SyncError,
    Why,
};
pub use operation::{Operation, Until};
pub use par::Par;
#[cfg(feature = "serde")]
pub use portable::{Portable, carrier};
#[cfg(feature = "serde")]
pub use share::far::Lend;
pub use share::{Claim, Claiming, End, Lone, Retiring, Shared};

/// What the macros expand to. Not for use by hand.
#[doc(hidden)]
pub mod __rt {
    pub use crate::budget::{OPERATIONS_MAX, give_way_to_runtime, renew, set_waking};
    pub use crate::bundle::{NoPairing, Probe, Sides, is_pairing};
    pub use crate::channel::sender::Spare;
    pub use crate::channel::tether::{Tether, Tethered, Tethers, Tie, TieEnd, TieNothing};
    pub use crate::choice::branch::{ChoiceCx, Look};
    pub use crate::choice::{Order, Step, Survey, choose, hopeless, step, step_unawaited, survey};
    pub use crate::error::panic_text;
    pub use crate::par::Branches;
    pub use crate::par::ready::alone::Alone;
    pub use crate::share::WeakShared;
    pub use crate::turn::{Turn, end as end_turn, set_timer as set_turn_timer};
    pub use crate::wake::{keep, wake_all};
    pub use dunlin_macros::__alt;
}

/// Chooses one of several operations: exactly one happens, the others have had no effect.
///
/// ```text
/// alt! { biased;                               // in this order; without the word, fair
///     pattern = operation => body,
///     pattern = operation, if condition => body,
///     skip => body,                            // if none is ready at once
/// }
/// ```
///
/// An operation is what a method of an end returns, not yet awaited: a receive, a
/// [`send_from`](Sender::send_from), a [`send`](Sender::send) of a `Copy` value, a claim, an accept, a
/// [barrier](Barrier::sync), any of them with a deadline; other futures through [`future`]. One that is to
/// outlive the choice is borrowed: `&mut operation` if it is `Unpin`, else `pinned.as_mut()`. All conditions
/// are evaluated first; of a branch whose condition is false, nothing else is. A `send_from` whose slot is
/// empty is off. Before a body runs, all other operations have been taken back.
///
/// *Fair* means: of the branches that are ready, the one whose end was chosen least recently. Branches
/// without an end (timers, futures, processes) get their share by lot. Each ready end of n branches is chosen
/// at least once in n + 1 choices.
///
/// # Panics
/// If every branch is off and there is no `skip`: it would wait for ever.
///
/// # Cancel safety
/// Dropped, none of the branches has happened, and slots are as they were.
///
/// # Examples
/// ```
/// use dunlin_core::{alt, channel, par};
/// # dunlin_core::doc::block_on(async {
/// let ((mut tx, mut rx), (mut out, mut far)) = (channel::<u8>(), channel::<String>());
/// let mut held = Some("krill".to_string());
/// let (chosen, got) = par!(
///     async {
///         alt! {
///             n = rx.recv() => format!("received {n:?}"),
///             r = out.send_from(&mut held) => format!("sent {r:?}"),
///         }
///     },
///     far.recv(),
/// );
/// assert_eq!((chosen, got), ("sent Ok(())".to_string(), Ok("krill".to_string())));
/// # drop(tx);
/// # });
/// ```
///
/// The same end cannot be in two branches:
/// ```compile_fail,E0499
/// # async fn f(mut rx: dunlin_core::Receiver<u8>) {
/// dunlin_core::alt! { a = rx.recv() => drop(a), b = rx.recv() => drop(b) }
/// # }
/// ```
///
/// # Source
/// ALT of occam; the algorithm for choices with sends, found by exhaustive models: `docs/choice.md`.
#[macro_export]
macro_rules! alt {
    ($($branches:tt)*) => {
        $crate::__rt::__alt! { ($crate) $($branches)* }
    };
}

/// What the examples of this crate run on: a loop that polls one future on this thread.
#[doc(hidden)]
pub mod doc {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Wake};

    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// Runs `future` to its end.
    ///
    /// # Panics
    /// If it waits and nothing on this thread has woken it: nobody else could.
    pub fn block_on<F: Future>(future: F) -> F::Output {
        let mut future = pin!(future);
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = flag.clone().into();
        let mut cx = Context::from_waker(&waker);
        while flag.0.swap(false, Ordering::Acquire) {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
        }
        panic!("every process waits: {:#?}", crate::waits::snapshot());
    }
}
