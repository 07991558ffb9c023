//! Barriers: all enrolled parties complete a phase together, or none does.
//!
//! - [`parties`]: the enrolled parties, which of them are there, and what completes a phase.
//! - [`group`]: the parties at another node, and the messages between it and the keeper of the barrier.
//! - [`dialogue`]: the effects of these messages.
//! - [`attempt`]: the choices of a phase with choices at several nodes; [`reserving`]: how they are reserved.
//! - `far`: how an enrolment moves to another node.
//! - here: an enrolment, and the operation on it.

mod attempt;
mod dialogue;
#[cfg(feature = "serde")]
mod far;
mod group;
mod parties;
mod reserving;

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parties::{Left, Parties, Place};

use crate::budget;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::SyncError;
use crate::operation::Operation;
use crate::waits::Recorded;

/// One enrolment on a barrier: a party that every phase needs.
///
/// A party is enrolled while it holds this value, and resigns by dropping it, also by a panic or when its
/// process ends. A phase is complete when every enrolled party is [there](Self::sync); then all of them
/// continue.
///
/// [`barrier`] makes the first enrolment, and [`enrol`](Self::enrol) on any enrolment makes another. It is an
/// owned value like an end of a channel: to enrol a process, move one into it.
///
/// # Examples
/// ```
/// use dunlin_core::{Barrier, SyncError, barrier, par};
/// use std::cell::Cell;
///
/// async fn work(mut phase: Barrier, steps: u32, done: &Cell<u32>) -> Result<(), SyncError> {
///     for _ in 0..steps {
///         done.set(done.get() + 1);
///         phase.sync().await?; // no party begins the next step before all have done this one
///     }
///     Ok(()) // resigns: the others continue without it
/// }
/// # dunlin_core::doc::block_on(async {
/// let (phase, done) = (barrier(), Cell::new(0));
/// let (a, b) = par!(work(phase.enrol(), 3, &done), work(phase, 5, &done));
/// assert_eq!((a, b, done.get()), (Ok(()), Ok(()), 8));
/// # });
/// ```
///
/// # Over nodes
/// An enrolment is portable (feature `serde`): sent in a message to another node, it moves there, and works
/// as it did here. The barrier stays at the node where it was made, which keeps it.
/// - A phase takes place for all parties at all nodes, or for none, whether they wait or choose. It costs one
///   round trip to the keeper's node. Choices at other nodes are reserved first, which costs one more round
///   trip for each of these nodes, one after the other.
/// - No node knows at once that all parties are there, so a choice takes another branch that is ready, or its
///   `skip`, rather than wait for this one.
/// - Enrolling from an enrolment at another node needs no message. The enrolments made from it are one group:
///   [`parties`](Self::parties) counts the group, and [`phases`](Self::phases) counts from when the first of
///   it arrived.
/// - Sent on to a third node, an enrolment is routed through the node in between, and is lost with it. Sent
///   to the keeper's node, it is one of the local enrolments again.
/// - All parties at a lost node have resigned. If the keeper's node is lost, a sync fails with
///   [`SyncError::NodeLost`]: it is unknown whether the phase took place.
///
/// # Source
/// Barriers of occam-pi (Welch and Barnes, 2005); as a branch of a choice: `AltingBarrier` of JCSP (Welch,
/// Brown, Moores, Chalmers and Sputh, 2007).
pub struct Barrier {
    place: Place,
    // Dropped before the barrier's own record, to which it refers.
    record: Recorded,
    parties: Arc<Parties>,
}

/// Makes a barrier with one enrolled party: the holder of the returned value.
///
/// # Examples
/// ```
/// use dunlin_core::barrier;
/// let phase = barrier();
/// let other = phase.enrol();
/// assert_eq!(phase.parties(), 2);
/// drop(other);
/// assert_eq!(phase.parties(), 1);
/// ```
#[track_caller]
pub fn barrier() -> Barrier {
    Barrier::new(&Arc::new(Parties::new(Location::caller())))
}

impl Barrier {
    fn new(parties: &Arc<Parties>) -> Self {
        let record = Recorded::enrolment(&parties.record);
        Self { place: parties.enrol(record.entry()), record, parties: parties.clone() }
    }

    /// Enrols one more party: the holder of the returned value.
    ///
    /// It is enrolled at once, also where another node keeps the barrier. A phase that others wait for
    /// already needs this party too.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{Operation, SyncError, barrier, par};
    /// # dunlin_core::doc::block_on(async {
    /// let mut phase = barrier();
    /// phase.sync().await.unwrap(); // alone: no party to wait for
    /// let mut other = phase.enrol();
    /// let at_once = std::future::ready(());
    /// assert_eq!(phase.sync().until(at_once).await, Err(SyncError::TimedOut));
    /// assert_eq!(par!(phase.sync(), other.sync()), (Ok(()), Ok(())));
    /// # });
    /// ```
    pub fn enrol(&self) -> Self {
        Self::new(&self.parties)
    }

    /// Waits until all enrolled parties are there; then all of them continue, and the next phase begins.
    ///
    /// As a branch of a choice it is an offer, like that of a send: the phase takes place with all enrolled
    /// parties, or with none. A choice that takes another branch was not there. A party outside a choice is
    /// there while it waits.
    ///
    /// A choice takes one branch. If two enrolments on the same barrier are in one choice, neither of these
    /// branches can happen while both are there: the choice takes another branch, or waits for ever.
    ///
    /// # Errors
    /// [`SyncError::TimedOut`] with a deadline: then the phase has not taken place, and this party is no
    /// longer there. If another node keeps the barrier, that node is asked first, so the result may come a
    /// round trip after the deadline, and may be `Ok`. Only for such a barrier, [`SyncError::NodeLost`]: the
    /// keeper's node is lost, and it is unknown whether the phase took place.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, the party is no longer there; it is still enrolled, so the others
    /// wait for it. If the phase was completed before the drop, it counted this party, and
    /// [`phases`](Self::phases) counts the phase. If another node keeps the barrier, `phases` may count it
    /// only a round trip later, when that node has answered. The next `sync` waits for that answer, and is
    /// for the phase after it.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{alt, barrier, channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let mut phase = barrier();
    /// let (mut other, (_tx, mut rx)) = (phase.enrol(), channel::<u8>());
    /// let (chosen, synced) = par!(
    ///     async {
    ///         alt! {
    ///             r = phase.sync() => { r.unwrap(); "synced" }
    ///             _ = rx.recv() => "received",
    ///         }
    ///     },
    ///     other.sync(),
    /// );
    /// assert_eq!((chosen, synced), ("synced", Ok(())));
    /// # });
    /// ```
    pub fn sync(&mut self) -> Syncing<'_> {
        Syncing { barrier: self, stage: Stage::New }
    }

    /// How many parties are enrolled. If another node keeps the barrier: how many of the
    /// [group](Self#over-nodes) at this node.
    pub fn parties(&self) -> usize {
        self.parties.count().enrolled
    }

    /// How many phases of this barrier are complete.
    ///
    /// While this party is enrolled and not [there](Self::sync) the number does not change. If another node
    /// keeps the barrier, it counts from when the first of the [group](Self#over-nodes) arrived here; after a
    /// dropped [`sync`](Self::sync) it may still count that phase.
    pub fn phases(&self) -> u64 {
        self.parties.count().phases
    }
}

impl Drop for Barrier {
    fn drop(&mut self) {
        self.parties.resign(self.place);
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parties::Count { enrolled, there, phases } = self.parties.count();
        let made = self.parties.record.made();
        f.debug_struct("Barrier")
            .field("made", &format_args!("{made}"))
            .field("enrolled", &enrolled)
            .field("there", &there)
            .field("phases", &phases)
            .finish()
    }
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    New,
    /// The budget refused it.
    Refused,
    /// With the number of phases completed before.
    There(u64),
    /// Its deadline has passed, and the keeper is asked whether the phase was complete before.
    Leaving(u64),
    Over,
}

/// The operation of [`Barrier::sync`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Syncing<'a> {
    barrier: &'a Barrier,
    stage: Stage,
}

impl Syncing<'_> {
    fn poll_sync(&mut self, cx: &mut Context<'_>, choice: Option<&ChoiceCx>) -> Poll<Result<(), SyncError>> {
        let mut since = match self.stage {
            Stage::New | Stage::Refused => None,
            Stage::There(since) => Some(since),
            Stage::Leaving(since) => return self.poll_left(since, cx),
            Stage::Over => return Poll::Ready(Ok(())),
        };
        let polled = self.barrier.parties.poll(self.barrier.place, &mut since, cx, choice);
        self.stage = match (&polled, since) {
            (Poll::Ready(_), _) => Stage::Over,
            (Poll::Pending, Some(since)) => Stage::There(since),
            (Poll::Pending, None) => Stage::New,
        };
        polled
    }

    /// Called after the deadline has passed.
    fn poll_left(&mut self, since: u64, cx: &mut Context<'_>) -> Poll<Result<(), SyncError>> {
        let left = ready!(self.barrier.parties.poll_left(self.barrier.place, since, cx));
        self.stage = Stage::Over;
        Poll::Ready(left.into_result())
    }
}

impl Future for Syncing<'_> {
    type Output = Result<(), SyncError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if budget::is_spent() && matches!(this.stage, Stage::New) && budget::refuse(cx) {
            this.stage = Stage::Refused;
            return Poll::Pending;
        }
        budget::counted(true, cx, |cx| this.poll_sync(cx, None))
    }
}

impl Branch for Syncing<'_> {
    type Output = Result<(), SyncError>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        self.get_mut().poll_sync(cx, Some(choice))
    }

    fn look(&self) -> Look {
        let turn = Some(self.barrier.record.receiver.turn());
        let ready = self.barrier.parties.seems_ready(matches!(self.stage, Stage::There(_)));
        if ready { Look::Maybe(turn) } else { Look::Empty(turn) }
    }

    fn chosen(&self, turn: u32) {
        self.barrier.record.receiver.set_turn(turn);
    }
}

impl Operation for Syncing<'_> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let left = match this.stage {
            Stage::New | Stage::Refused => Left::Before,
            Stage::There(since) => {
                let left = this.barrier.parties.leave(this.barrier.place, since);
                if left == Left::Unknown {
                    this.stage = Stage::Leaving(since);
                    return this.poll_left(since, cx);
                }
                left
            }
            Stage::Leaving(since) => return this.poll_left(since, cx),
            Stage::Over => Left::Complete,
        };
        this.stage = Stage::Over;
        Poll::Ready(left.into_result())
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        if let Stage::There(since) = self.stage {
            self.barrier.parties.leave(self.barrier.place, since);
        }
    }
}

impl fmt::Debug for Syncing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Syncing").field(self.barrier).finish()
    }
}
