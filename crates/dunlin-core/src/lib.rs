//! The core of dunlin: synchronous channels with choice, `par!`, claims and calls, independent of any
//! runtime.
//!
//! A *process* is an async body that owns its state. It communicates over *channels*, whose two ends are
//! owned values. A send ends when a receive has returned the value. This crate needs only wakers: no clock,
//! no threads, no I/O. Most programs use the crate `dunlin`, which adds `spawn`, time and nodes.
//!
//! # The two rules
//! 1. *Senders offer, receivers take.* Only a receive that is being polled takes a value, and it returns the
//!    value in that poll. A receive that is dropped has taken nothing.
//! 2. *A failed send returns the value to the caller.* So does a send that times out or is not chosen.
//!
//! # Map
//! - [`channel`], [`channel_with`]: the ends [`Sender`] and [`Receiver`], and policies.
//! - [`broadcast`]: each value goes to every receiver that has joined.
//! - [`alt!`], [`Choice`]: choice over operations not yet awaited; [`Picker`], [`Strategy`]: in an order of
//!   the user's own.
//! - [`par!`], [`Par`]: processes inside the caller.
//! - [`Shared`], [`Claim`]: ends with several holders.
//! - [`barrier()`], [`Barrier`]: parties that synchronise.
//! - [`bucket()`], [`Flusher`]: processes that wait for a flush.
//! - [`call`], [`Bundle`]: call channels and bundles.
//! - [`waits`]: which process waits on which end, and since when.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod agent;
mod barrier;
mod broadcast;
mod bucket;
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
mod reply;
mod share;
mod sync;
mod table;
mod turn;
pub mod waits;
mod wake;

pub use barrier::{Barrier, Syncing, barrier};
pub use broadcast::{
    BeginningBroadcast, BeginningBroadcastFrom, Broadcast, Broadcasting, Completing, Joiner, broadcast, broadcast_with,
};
pub use bucket::{Bucket, Falling, Flusher, Flushing, bucket};
pub use bundle::{Bundle, Call, Flip, Pairing, Share, ToClient, ToServer};
pub use call::{Accepting, BeginningCall, BeginningCallFrom, BegunCall, Callee, Caller, Calling, Request, call};
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
pub use choice::builder::picking::{Candidate, PickedChoice, PickedFuture, Picker, Strategy, StrategyError};
pub use choice::builder::{Choice, ChoiceFuture, SendingToAny, send_to_any};
pub use clock::PATIENCE_TICKS;
pub use error::{
    BroadcastError, BucketError, CallError, ClaimError, CompleteError, MessageId, Reason, RecvError, SendError,
    Strength, SyncError, Why,
};
pub use operation::{Operation, Until};
pub use par::Par;
#[cfg(feature = "serde")]
pub use portable::{Portable, carrier};
pub use reply::Reply;
#[cfg(feature = "serde")]
pub use share::far::Lend;
pub use share::{Claim, Claiming, End, Lone, OwnedClaim, Retiring, Shared};

/// What the macros expand to. Not for use by hand.
#[doc(hidden)]
pub mod __rt {
    pub use crate::budget::{OPERATIONS_MAX, counted, give_way_to_runtime, renew, set_waking};
    pub use crate::bundle::{NoPairing, Probe, Sides, is_pairing};
    pub use crate::channel::sender::Spare;
    pub use crate::channel::tether::{Tether, Tethered, Tethers, Tie, TieEnd, TieNothing};
    pub use crate::choice::branch::{ChoiceCx, Look};
    pub use crate::choice::{Order, Step, Survey, choose, hopeless, step, step_unawaited, survey};
    pub use crate::error::panic_text;
    pub use crate::par::Branches;
    pub use crate::par::ready::alone::Alone;
    pub use crate::reply::{Answer, reply};
    pub use crate::share::WeakShared;
    pub use crate::turn::{Turn, end as end_turn, set_timer as set_turn_timer};
    pub use crate::wake::{keep, wake_all};
    pub use dunlin_macros::__alt;
}

/// Chooses one of several operations: exactly one happens, and the others have no effect.
///
/// ```text
/// alt! { biased;                               // in this order; without the word, fair
///     pattern = operation => body,
///     pattern = operation, if condition => body,
///     skip => body,                            // if none is ready at once
/// }
/// ```
///
/// An operation is the value that a method of an end returns, not yet awaited: a receive, a
/// [`send_from`](Sender::send_from), a [`send`](Sender::send) of a `Copy` value, a claim, an accept, the first
/// half of a [call](Caller::begin_from) or of a [broadcast](Broadcast::begin_from), a
/// [barrier](Barrier::sync), a [bucket](Bucket::fall_in), or any of these with a deadline. [`future`] turns
/// any other future into an operation. Borrow an operation that must outlive the choice: `&mut operation` if
/// it is `Unpin`, else `pinned.as_mut()`. All conditions are evaluated first. If a branch's condition is
/// false, its operation is not evaluated. A `send_from` whose slot is empty is off. All other operations are
/// withdrawn before a body runs.
///
/// *Fair* takes, of the branches that are ready, the one whose end was chosen least recently. Branches
/// without an end (timers, futures, processes) get their share by lot. Each ready end of n branches is chosen
/// at least once in n + 1 choices.
///
/// # Panics
/// If every branch is off and there is no `skip`: the choice would wait for ever.
///
/// # Cancel safety
/// If the choice is dropped, no branch has happened, and the slots are unchanged.
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
/// ALT of occam. `docs/choice.md` has the algorithm for choices with sends, found by exhaustive models.
#[macro_export]
macro_rules! alt {
    ($($branches:tt)*) => {
        $crate::__rt::__alt! { ($crate) $($branches)* }
    };
}

/// The executor of this crate's examples: a loop that polls one future on this thread.
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
    /// If `future` is pending and nothing on this thread has woken it: nothing else could.
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
