//! Agents: how a channel extends over something that is not memory.
//!
//! A channel whose ends are apart is two halves. The half at the sender has an [`Outlet`] in place of its
//! receiver; the half at the receiver has an [`Inlet`] in place of its sender. Each is just another party at
//! the same queue, so a channel without agents pays nothing for them. The carrier of the messages (the crate
//! `dunlin`'s nodes, or [`join`] within memory) polls both and answers:
//!
//! ```text
//!   sender's half                                          receiver's half
//!   Outlet::credit       ◀── Inlet::credits, Credit ──
//!   Sent(value)                    ── value ──▶            Inlet::push
//!   FirmOffer(ticket, value)       ── offer ──▶            Inlet::offer
//!   ChoiceOffer(ticket, id)        ── offer, no value ──▶  Inlet::offer_choice
//!   Outlet::reserve      ◀── Reserve ──      value ──▶     Inlet::grant; it may go back: Outlet::give_back
//!     (Later: kept until Unlocked(ticket), unless AskedBack(ticket) comes first.
//!     Gone: ── refuse ──▶ Inlet::withdraw, unanswered.)
//!   Outlet::held         ◀── Held ──
//!   Outlet::taken        ◀── Taken, Released ──
//!   Outlet::give_back    ◀── Abort ──
//!   Outlet::failed       ◀── Failed ──
//!   AskedBack(ticket)              ── withdraw ──▶         Inlet::withdraw: Outlet::withdrawn, or too late
//!   Revoke(ticket)                 ── revoke ──▶           Inlet::revoke
//!   Outlet::retire, Outlet::gone    ◀── Retired, Gone ──
//!   Retired                        ── retire ──▶           Inlet::retire
//!   Poisoned, Outlet::poison    ◀── poison ──▶             Poisoned, Inlet::poison
//!     (Only poison of full strength. The receiver's half decides about the rest: it knows the immunity.)
//!   Gone                           ── gone ──▶             the inlet is dropped, and then the outlet
//! ```
//!
//! Each side's messages arrive in the order in which it sent them.
//!
//! The policy, the bounds and the buffer are those of the receiver's half. Section 3 of `docs/choice.md`
//! defines the protocol.
//!
//! # Credits
//!
//! A send into a FIFO of n or an unbounded buffer costs no round trip. The receiver's half promises places
//! (*credits*), which count as taken there from then on. At the sender's half a send with a credit is
//! complete at once; a send without one waits there, and no message for it crosses. So granted and buffered
//! places together never exceed n, and both ends behave like those of a buffer in one memory:
//! - *retire*, from either end, keeps the values that were sent. If the receiver retires, receives wait for
//!   values on their way until the sender's half has answered ([`Inlet::retire`]). Until then the receiver's
//!   half promises places for sends that have waited there since before;
//! - *poison*, from either end, destroys buffered values and those on their way;
//! - an extended receive keeps its place until the release.
//!
//! All other policies, and a bound on pending senders, decide on a value when it arrives: no places are
//! promised.
//!
//! # Values
//!
//! A carrier over a network owns the value of [`Event::FirmOffer`] and of [`Reserved::Granted`]. It encodes
//! the value by reference and keeps it under the ticket until it learns the outcome:
//!
//! | message | call at the sender's half | the value |
//! |---|---|---|
//! | `Taken`, `Released` | [`Outlet::taken`] | is dropped |
//! | `Held` | [`Outlet::held`]; `Released` follows | is dropped |
//! | `Failed` | [`Outlet::failed`] | is returned; `None` if it never left |
//! | an answer to a withdrawal: not taken | [`Outlet::withdrawn`] | is returned; `None` if it never left |
//! | `Abort` | [`Outlet::give_back`] | is returned |
//! | none, and the node is lost | [`Outlet::lost`] | is returned |
//!
//! At the receiver's half the values in `Failed`, in `Abort` and from [`Inlet::withdraw`] are copies, which
//! are dropped. When two answers cross (an `Abort` and a withdrawal), the first has the value and the second
//! has none. [`Outlet::failed`] returns a value that cannot be encoded. [`Event::Sent`] has no answer: a
//! carrier drops the value once it is encoded.
//!
//! # The end
//!
//! - *The sender is dropped.* Its forgotten offers stand (as in one memory) and are carried, with credits for
//!   them; the answers about its dropped offers are awaited. So after [`Event::Gone`] or [`Event::Lost`] no
//!   ticket is open and no message is outstanding: the event goes to the receiver's half, behind all others,
//!   and both agents are dropped.
//! - *The receiver is dropped.* [`FromReceiver::Gone`], or [`FromReceiver::Down`], is not the last event:
//!   offers on their way fail when they arrive, and their values come back. The carrier calls
//!   [`Outlet::gone`]. [`Event::Retired`] answers, unless the channel was retired before, and no offer
//!   follows it. Both agents are dropped when that answer has reached the receiver's half and that half's
//!   events until then have come back, or at [`Event::Gone`].
//! - *A node is lost for good.* At the sender's half: [`Outlet::lost`] for every value that is kept, then
//!   [`Outlet::down`]. At the receiver's: [`Inlet::down`].

mod lone;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::call::{Callee, Caller};
pub(crate) use crate::channel::elsewhere::Names;
pub use crate::channel::elsewhere::{Missing, PassedOn};
use crate::channel::queue::events::{Carried, Collected, FromSender, Heard};
pub use crate::channel::queue::events::{FromReceiver, Given, Reserved};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::state::Chan;
use crate::choice::decision::{self, Reserver};
use crate::clock::{self, PATIENCE_TICKS, Patient, be_patient};
use crate::error::{MessageId, Reason, Why};
use crate::handle::Handle;
use crate::lock::Lock;
use crate::reply::Reply;
use crate::share::Shared;
use crate::waits::ChannelId;
use crate::wake::Queued;
pub(crate) use lone::Lone;
pub use lone::LoneOutlet;

/// Makes the numbers of choices unique among several operating system processes. Of two choices that wait for
/// each other one gives way, and both must pick the same one, so their numbers have one order everywhere. The
/// high half of a number is `origin`, unique to this process (for a node: its incarnation, or 64 random
/// bits); the low half counts. A process without agents needs no origin.
///
/// It must be called before the first choice with a send over an agent, because that choice's number must not
/// change. The first origin stands.
///
/// # Errors
/// `false`: another origin was set before.
#[must_use = "another origin may stand"]
pub fn set_origin(origin: u64) -> bool {
    decision::set_origin(origin)
}

/// The name of this inlet's offer under this number. An offer from another half within this memory has its
/// name from there: only the half that carries it over the network knows the name.
fn name_of<T>(chan: &Chan<T>, far: Option<(Handle, u64)>) -> Option<PassedOn> {
    let (of, number) = far?;
    // Each name is looked up without a lock.
    match chan.with_queue(|queue, _, _| queue.names_of(of)) {
        Some(names) => names(number),
        None => Some(PassedOn { channel: chan.record.id(), of, number }),
    }
}

/// An event from the sending half to an agent. Tickets name its offers.
#[derive(Debug)]
pub enum Event<T> {
    /// This value was sent on a [credit](Outlet::credit): its send is complete. It has no ticket, and the
    /// agent reports nothing about it.
    Sent(T),
    /// A send offers this value. The agent now owns it and must report the outcome.
    FirmOffer(u64, T),
    /// A choice offers a value, which [reserve](Outlet::reserve) returns. The second number is the choice's,
    /// for the order in which choices give way to each other: see [`set_origin`].
    ChoiceOffer(u64, u128),
    /// The sender withdraws the offer: it timed out, was dropped, is held back by a claim, or its choice was
    /// decided.
    AskedBack(u64),
    /// A reservation that returned [`Reserved::Later`] may be tried again.
    Unlocked(u64),
    /// The reserved choice could decide for another branch.
    Revoke(u64),
    /// A task here waits for the end of the channel. The receiver may not know of an end that was not used
    /// since it arrived: from now on the end is in use.
    Watched,
    /// This half retired the channel.
    Retired,
    /// This half poisoned the channel.
    Poisoned(Reason),
    /// The sender was dropped, and all its values and offers have been reported and settled: the carrier
    /// drops both agents.
    Gone,
    /// Like `Gone`, but the sender was lost with its node before the receiver came to its present place: the
    /// carrier calls [`Inlet::down`] at the receiver's half.
    Lost,
}

/// Stands in for the receiver at the half where the sender is.
///
/// Dropping it drops the receiver; values that it took and did not hand over count as received.
pub struct Outlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    /// Buffered values, in order, that have not been reported or were given back: they go before everything
    /// else.
    buffered: Lock<VecDeque<(u64, T)>>,
}

/// The first ticket of buffered values; only the outlet knows these tickets.
const BUFFERED_TICKETS: u64 = 1 << 63;

impl<T: Send + 'static> fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.chan.record.id()).finish()
    }
}

/// The path from a decision to the outlet that has reserved one of its offers.
struct Ticket<T> {
    chan: Arc<Chan<T>>,
    ticket: u64,
}

impl<T> Ticket<T> {
    fn tell(&self, event: FromSender<T>) {
        self.chan.with_queue(|queue, _, after| {
            if let Some(outlet) = &mut queue.outlet {
                outlet.tell(event, &mut after.wakes);
            }
        });
    }
}

impl<T: Send> Queued for Ticket<T> {
    fn unlocked(self: Arc<Self>) {
        self.tell(FromSender::Unlocked(self.ticket));
    }
}

impl<T: Send> Reserver for Ticket<T> {
    fn revoke(self: Arc<Self>) {
        self.tell(FromSender::Revoke(self.ticket));
    }
}

impl<T: Send + 'static> Outlet<T> {
    /// Takes the place of a receiver. If that has been in use, its buffered values go to the agent first: on
    /// the first [credits](Self::credit), or without credits as firm offers (their sends are complete, so a
    /// failure has no effect). From now on this half has no buffer, for that is at the other half. Standing
    /// offers follow, and then how the channel ended, if it has.
    pub fn new<P>(receiver: Receiver<T, P>) -> Self {
        let chan = receiver.chan().clone();
        let buffered = chan.add_agent(|queue, after| {
            #[cfg(feature = "link")]
            queue.unlink(after);
            queue.replace_receiver(after)
        });
        let buffered = Lock::new((BUFFERED_TICKETS..).zip(buffered).collect());
        // The receiver's end lives on in this agent.
        receiver.into_outlet();
        Self { chan, buffered }
    }

    /// Takes the buffered values that have not been reported. A carrier that moves the channel itself takes
    /// them along, and drops this agent.
    pub fn take_buffered(&self) -> Vec<T> {
        let buffered = self.chan.with_queue(|_, _, _| std::mem::take(&mut *self.buffered.lock()));
        buffered.into_iter().map(|(_, value)| value).collect()
    }

    /// How many values have completed their sends and have yet to be [reported](Self::poll).
    pub fn unsaid(&self) -> usize {
        self.chan.with_queue(|queue, _, _| queue.unsaid() + self.buffered.lock().len())
    }

    /// The channel at whose half this agent stands, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.chan.record.id()
    }

    #[cfg(feature = "link")]
    pub(crate) fn chan(&self) -> &Arc<Chan<T>> {
        &self.chan
    }

    /// Whether a buffered value has not been reported.
    #[cfg(feature = "link")]
    pub(crate) fn has_buffered(&self) -> bool {
        !self.buffered.lock().is_empty()
    }

    /// The next event of the sender's half.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>> {
        self.chan.with_queue(|queue, _, after| {
            match queue.carry(&mut self.buffered.lock(), cx.waker(), after) {
                Carried::Sent(value) => return Poll::Ready(Event::Sent(value)),
                Carried::Offered(ticket, value) => return Poll::Ready(Event::FirmOffer(ticket, value)),
                Carried::Waits => return Poll::Pending,
                Carried::Nothing => {}
            }
            loop {
                let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
                let Some(event) = outlet.events.pop_front() else {
                    after.stale.store(&mut outlet.waker, cx.waker());
                    return Poll::Pending;
                };
                return Poll::Ready(match event {
                    FromSender::Sent(value) => Event::Sent(value),
                    FromSender::Offered(ticket) => match queue.collect(ticket, after) {
                        Collected::Firm(value) => Event::FirmOffer(ticket, value),
                        Collected::Choice(choice) => Event::ChoiceOffer(ticket, choice),
                        // Withdrawn before this poll saw it.
                        Collected::Gone => continue,
                    },
                    FromSender::AskedBack(ticket) => Event::AskedBack(ticket),
                    FromSender::Unlocked(ticket) => Event::Unlocked(ticket),
                    FromSender::Revoke(ticket) => Event::Revoke(ticket),
                    FromSender::Watched => Event::Watched,
                    FromSender::Retired => Event::Retired,
                    FromSender::Poisoned(reason) => Event::Poisoned(reason),
                    FromSender::Gone => Event::Gone,
                    FromSender::Lost => Event::Lost,
                });
            }
        })
    }

    /// Ready once [`Event::Gone`] or [`Event::Lost`] is among the events of the sender's half;
    /// [`poll`](Self::poll) still returns them all. Until then each new event wakes the task.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        self.chan.with_queue(|queue, _, after| {
            let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
            if outlet.events.iter().any(|event| matches!(event, FromSender::Gone | FromSender::Lost)) {
                return Poll::Ready(());
            }
            after.stale.store(&mut outlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// Ready if the sender's half has an [event](Self::poll). Otherwise the next event wakes the task.
    pub fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        self.chan.with_queue(|queue, _, after| {
            let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
            if !outlet.events.is_empty() || !self.buffered.lock().is_empty() {
                return Poll::Ready(());
            }
            after.stale.store(&mut outlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// Gives the sender `places` more places in the buffer elsewhere: that many sends complete without a
    /// round trip. After the first credit, sends wait here for a place and are not offered, so the first call
    /// belongs before the first [`poll`](Self::poll). 0 changes nothing.
    pub fn credit(&self, places: u32) {
        self.chan.with_queue(|queue, _, after| queue.credit(places, after));
    }

    /// Promises an offer of a choice to a receiver elsewhere. After [`Reserved::Granted`] no other branch of
    /// that choice can happen until [`taken`](Self::taken), [`give_back`](Self::give_back) or
    /// [`failed`](Self::failed).
    pub fn reserve(&self, ticket: u64) -> Reserved<T> {
        self.reserve_given(ticket, false).of_values()
    }

    /// Like [`reserve`](Self::reserve), for a carrier that can read a value [where it was
    /// sent](Inlet::offer_unread). A carrier always uses the same one of the two.
    pub fn reserve_unread(&self, ticket: u64) -> Reserved<Given<T>> {
        self.reserve_given(ticket, true)
    }

    fn reserve_given(&self, ticket: u64, reads: bool) -> Reserved<Given<T>> {
        let reserver: Arc<dyn Reserver> = Arc::new(Ticket { chan: self.chan.clone(), ticket });
        self.chan.with_queue(|queue, _, after| queue.reserve(ticket, reads, &reserver, after))
    }

    /// Identifies this offer among those of [its inlet](Inlet::passes_on), if it came from elsewhere itself
    /// and has not been received here. Only its receive, wherever that is, permits the use of the ends in it.
    pub fn passed_on(&self, ticket: u64) -> Option<PassedOn> {
        let far = self.chan.with_queue(|queue, _, _| queue.far_source(ticket));
        name_of(&self.chan, far)
    }

    fn names(&self) -> Names {
        let chan = Arc::downgrade(&self.chan);
        Arc::new(move |ticket| {
            let chan = chan.upgrade()?;
            let far = chan.with_queue(|queue, _, _| queue.far_source(ticket));
            name_of(&chan, far)
        })
    }

    /// Reports that a receive elsewhere has returned the value: the send is complete. After
    /// [`held`](Self::held): the extended receive has ended.
    pub fn taken(&self, ticket: u64) {
        self.chan.with_queue(|queue, _, after| queue.far_took(ticket, false, after));
    }

    /// Reports that an extended receive elsewhere has returned the value: the send cannot fail any more, and
    /// waits.
    pub fn held(&self, ticket: u64) {
        self.chan.with_queue(|queue, _, after| queue.far_took(ticket, true, after));
    }

    /// Returns a value that is not needed now; the offer stands as before.
    pub fn give_back(&self, ticket: u64, value: impl Into<Given<T>>) {
        let value = value.into();
        if ticket >= BUFFERED_TICKETS {
            return self.chan.with_queue(|queue, _, after| {
                if let Some(value) = value.read() {
                    let mut buffered = self.buffered.lock();
                    let at = buffered.partition_point(|(other, _)| *other < ticket);
                    buffered.insert(at, (ticket, value));
                }
                queue.carry_again(&mut after.wakes);
            });
        }
        self.chan.with_queue(|queue, _, after| queue.far_gave_back(ticket, value, after));
    }

    /// Repeats [`Event::Retired`] or [`Event::Gone`], after an offer from before it was [given
    /// back](Self::give_back): the repeated event follows that offer.
    pub fn end_again(&self, retired: bool) {
        self.chan.with_queue(|queue, _, after| queue.end_again(retired, &mut after.wakes));
    }

    /// Reports that the offer failed elsewhere. No value: it is still here, or on its way back.
    pub fn failed(&self, ticket: u64, value: Option<Given<T>>, why: Why) {
        self.chan.with_queue(|queue, _, after| queue.far_failed(ticket, value, why, after));
    }

    /// Reports that the [withdrawn](Event::AskedBack) offer has not been taken. No value: the other half had
    /// none.
    pub fn withdrawn(&self, ticket: u64, value: Option<Given<T>>) {
        // Without a missing end this is only a look at the queue. The query to the carrier waits for no lock
        // that can be held here.
        let timed_out = self.chan.send_timed_out();
        self.chan.with_queue(|queue, _, after| queue.far_withdrew(ticket, value, timed_out, after));
    }

    /// Reports that the receiver's node is lost for good, and that it is unknown whether a receive there has
    /// returned this value. The send ends as [`SendError::Unknown`](crate::SendError::Unknown), and with it
    /// the choice, if the send was a branch of one.
    pub fn lost(&self, ticket: u64, value: impl Into<Given<T>>, id: MessageId) {
        let value = value.into();
        self.chan.with_queue(|queue, _, after| queue.far_lost(ticket, value, id, after));
    }

    /// Reports that the receiver's node is lost for good. Values that wait here, and all that are sent from
    /// now on, were certainly not taken, and fail with [`Why::NodeLost`]. Offers whose values the carrier has
    /// must have ended as [`lost`](Self::lost) before; any others count as received, as in a drop.
    pub fn down(self) {
        self.lose();
    }

    /// Reports that the sender's own node is leaving: [`down`](Self::down) follows, and operations fail with
    /// [`Why::OwnNodeLeft`].
    pub fn own_node_leaves(&self) {
        self.chan.with_queue(|queue, _, _| queue.own_node_leaves());
    }

    /// Reports that the other end is not connected yet. Until this is `None` again, an operation whose
    /// deadline passes fails with [`Why::Unmatched`] and the [text](Missing::text) of `missing`.
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.chan.set_unmatched(missing);
    }

    fn lose(&self) {
        self.chan.with_queue(|queue, ends, _| queue.lose_receiver(ends));
    }

    /// Retires the channel, which was retired elsewhere. [`Event::Retired`] answers, behind all that was sent
    /// and offered before.
    pub fn retire(&self) {
        self.chan.with_queue(|queue, _, _| queue.end_credits());
        self.chan.retire();
    }

    /// Reports that the receiver there was dropped and receives nothing more. The answer is that of
    /// [`retire`](Self::retire).
    pub fn gone(&self) {
        self.retire();
    }

    /// Poisons the channel, which was poisoned elsewhere.
    pub fn poison(&self, reason: Reason) {
        self.chan.poison_surely(reason);
    }
}

impl<T: Send + 'static> Drop for Outlet<T> {
    fn drop(&mut self) {
        self.chan.with_queue(|queue, _, after| queue.agent_gone(after));
        self.chan.receiver_gone();
    }
}

/// Stands in for the sender at the half where the receiver is.
///
/// Dropping it drops the sender; its offers stay. They get no answer any more, so a carrier drops it only
/// when nothing is left to answer: after [`Event::Gone`].
pub struct Inlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    /// If set, it stands in for one handle of a shared sender.
    lone: Option<Box<Lone>>,
}

impl<T: Send + 'static> fmt::Debug for Inlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inlet").field(&self.chan.record.id()).finish()
    }
}

impl<T: Send> Patient for Chan<T> {
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool {
        self.with_queue(|queue, _, after| {
            queue.release_stale_asks(tick.wrapping_sub(PATIENCE_TICKS), after);
            queue.patient = queue.has_grants();
            queue.patient
        })
    }
}

impl<T: Send + 'static> Inlet<T> {
    /// Takes the place of a sender. Offers that the sender forgot stay offered. If the channel has ended,
    /// that is the first event.
    pub fn new<P>(sender: Sender<T, P>) -> Self {
        let chan = sender.chan().clone();
        chan.add_agent(|queue, after| {
            #[cfg(feature = "link")]
            queue.unlink(after);
            #[cfg(not(feature = "link"))]
            let _ = after;
            queue.inlet = Some(Heard::new());
        });
        // The sender's end lives on in this agent.
        sender.into_inlet();
        Self { chan, lone: None }
    }

    /// Like [`new`](Self::new), for a receiver that has come from elsewhere. Until the first
    /// [credits](Self::credits) it awaits the values sent before, even if it retires the channel meanwhile.
    #[cfg(feature = "serde")]
    pub(crate) fn of_coming<P>(sender: Sender<T, P>) -> Self {
        let inlet = Self::new(sender);
        inlet.chan.with_queue(|queue, _, _| queue.comes());
        inlet
    }

    /// Takes the place of one handle of a shared sender: its offers are lone sends, which are held back while
    /// a claim is out. It is promised no places, and the other handles continue after its drop.
    pub fn lone<P: 'static>(handle: Shared<Sender<T, P>>) -> Self {
        let (chan, lone) = Lone::of(handle);
        Self::lone_of(chan, lone)
    }

    pub(crate) fn lone_of(chan: Arc<Chan<T>>, lone: Lone) -> Self {
        chan.add_agent(|queue, after| queue.add_lone_inlet(lone.handle, after));
        Self { chan, lone: Some(Box::new(lone)) }
    }

    #[cfg(feature = "link")]
    pub(crate) fn chan(&self) -> &Arc<Chan<T>> {
        &self.chan
    }

    #[cfg(feature = "link")]
    pub(crate) fn is_lone(&self) -> bool {
        self.lone.is_some()
    }

    fn of(&self) -> Handle {
        self.lone.as_ref().map_or(Handle::END, |lone| lone.handle)
    }

    /// Records that a lone operation elsewhere waits here, or no longer waits.
    fn waits(&self, number: u64, is_new: bool) {
        let Some(lone) = &self.lone else { return };
        if !is_new {
            return lone.ended(number);
        }
        lone.began(number);
    }

    /// The channel at whose half this agent stands, as in the wait records; for a [lone](Self::lone) inlet,
    /// the handle.
    pub fn channel(&self) -> ChannelId {
        self.lone.as_ref().map_or_else(|| self.chan.record.id(), |lone| lone.id)
    }

    /// The name of the offer under this number, for an outlet of the same channel that
    /// [forwards](Outlet::passed_on) it.
    pub fn passes_on(&self, number: u64) -> PassedOn {
        PassedOn { channel: self.chan.record.id(), of: self.of(), number }
    }

    /// The next event of the receiver's half.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FromReceiver<T>> {
        let of = self.of();
        let event = self.chan.with_queue(|queue, _, after| {
            if let Some(event) = queue.next_for_inlet(of) {
                return Poll::Ready(event);
            }
            if let Some(inlet) = queue.inlet_of(of) {
                after.stale.store(&mut inlet.waker, cx.waker());
            }
            Poll::Pending
        });
        if let Poll::Ready(
            FromReceiver::Taken(number)
            | FromReceiver::Held(number)
            | FromReceiver::Failed(number, ..)
            | FromReceiver::Withdrawn(number, _)
            | FromReceiver::Lost(number, ..),
        ) = &event
        {
            self.waits(*number, false);
        }
        if let (Some(lone), Poll::Ready(FromReceiver::Retired | FromReceiver::Poisoned(_))) = (&self.lone, &event) {
            lone.is_over();
        }
        event
    }

    /// Ready once [`FromReceiver::Gone`] or [`FromReceiver::Down`] is among the events of the receiver's
    /// half; [`poll`](Self::poll) still returns them all. Until then each new event wakes the task.
    pub fn poll_gone(&self, cx: &Context<'_>) -> Poll<()> {
        let of = self.of();
        self.chan.with_queue(|queue, _, after| {
            let Some(inlet) = queue.inlet_of(of) else { return Poll::Pending };
            if inlet.events.iter().any(|event| matches!(event, FromReceiver::Gone | FromReceiver::Down)) {
                return Poll::Ready(());
            }
            after.stale.store(&mut inlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// Ready if the receiver's half has an [event](Self::poll). Otherwise the next event, or a place to
    /// promise, wakes the task.
    pub fn poll_stirs(&self, cx: &Context<'_>) -> Poll<()> {
        let of = self.of();
        self.chan.with_queue(|queue, _, after| {
            let Some(inlet) = queue.inlet_of(of) else { return Poll::Pending };
            if !inlet.events.is_empty() {
                return Poll::Ready(());
            }
            after.stale.store(&mut inlet.waker, cx.waker());
            Poll::Pending
        })
    }

    /// How many places the sender's half may be given now ([`Outlet::credit`]). They belong to it from this
    /// call on, and more follow as [`FromReceiver::Credit`]. A FIFO of n gives those of the n that are free,
    /// at most 1024; an unbounded buffer gives 1024; every other policy none, ever.
    ///
    /// An agent that never calls this gets no places, and offers every value.
    pub fn credits(&self) -> u32 {
        if self.lone.is_some() {
            return 0;
        }
        self.chan.with_queue(|queue, _, after| queue.lend(&mut after.wakes))
    }

    /// Like [`credits`](Self::credits), for a new sender's half, which has none of the places promised to its
    /// predecessor. No value sent into those may still be on its way.
    ///
    /// `promised`: how many unused places it was promised where the receiver was before. It gets no fewer.
    pub fn credits_anew(&self, promised: u32) -> u32 {
        if self.lone.is_some() {
            return 0;
        }
        self.chan.with_queue(|queue, _, after| queue.lend_anew(promised, &mut after.wakes))
    }

    /// Limits the promised places from now on to `places`, less the values buffered at that time: fewer than
    /// the policy has, if its values are large. Places promised before stay, and at least one always remains.
    /// The default is as many as the policy has.
    pub fn lend_at_most(&self, places: u32) {
        self.chan.with_queue(|queue, _, after| queue.lend_at_most(places, &mut after.wakes));
    }

    /// Puts a value that was sent on a credit ([`Event::Sent`]) into the place promised for it. If the
    /// channel was poisoned or the receiver was dropped, the value is destroyed, like those buffered before.
    /// Returns how many values are then buffered.
    ///
    /// # Errors
    /// The value, if the sender's half had no credit left or has already announced that it sends nothing more
    /// ([`retire`](Self::retire)): the peer violates the protocol.
    pub fn push(&self, value: T) -> Result<usize, T> {
        self.chan.with_queue(|queue, _, after| queue.push_from_far(value, after))
    }

    /// How many values are buffered. When half of the number at the last [`push`](Self::push) has been
    /// received, [`FromReceiver::Credit`] follows, possibly with 0 places.
    pub fn buffered(&self) -> usize {
        self.chan.with_queue(|queue, _, _| queue.buffered())
    }

    /// Requests one [`FromReceiver::Awaited`]: at once if a receive waits, otherwise as soon as one does. For
    /// a carrier with a value that arrives only once it is received.
    pub fn ask_awaited(&self) {
        let of = self.of();
        self.chan.with_queue(|queue, _, after| queue.ask_awaited(of, after));
    }

    /// Puts a value that was buffered at the receiver's previous half into the buffer, behind those restored
    /// before. The carrier must call this before everything else.
    pub fn restore(&self, value: T) {
        self.chan.with_queue(|queue, _, after| queue.restore(value, after));
    }

    /// Offers a value under a number of the agent's choice. [`FromReceiver::Taken`] or
    /// [`FromReceiver::Failed`] answers.
    pub fn offer(&self, number: u64, value: T) {
        self.waits(number, true);
        let of = self.of();
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(of, number, Some(value), None, ends, after));
    }

    /// Offers a value that stays where it was sent until a receiver for it is found. A handle of a shared
    /// receiver elsewhere can have the offer as it is ([`LoneOutlet::reserve_unread`]), and read the value
    /// there. A receiver here, or through this half, requests it ([`FromReceiver::Reserve`]): then the
    /// carrier reads the value and [supplies](Self::bring) it.
    pub fn offer_unread(&self, number: u64) {
        self.waits(number, true);
        let of = self.of();
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(of, number, None, None, ends, after));
    }

    /// Supplies the value of an [unread](Self::offer_unread) offer, which keeps its place.
    ///
    /// # Errors
    /// The value, if the offer does not stand here: a handle elsewhere has it, or it has ended.
    pub fn bring(&self, number: u64, value: T) -> Result<(), T> {
        let of = self.of();
        self.chan.with_queue(|queue, _, after| queue.bring(of, number, value, after))
    }

    /// Sets the names by which the outlet behind this inlet knows its offers.
    fn comes_from(&self, names: Names) {
        let of = self.of();
        self.chan.with_queue(|queue, _, _| queue.has_names(of, names));
    }

    /// Whether it was made for a receiver that has come from elsewhere and does not yet know the values sent
    /// before.
    #[cfg(feature = "serde")]
    pub(crate) fn is_of_coming(&self) -> bool {
        self.chan.with_queue(|queue, _, _| queue.is_coming())
    }

    /// Whether handles of a shared receiver elsewhere may receive offers from here.
    pub fn is_demanded(&self) -> bool {
        self.chan.with_queue(|queue, _, _| queue.is_demanded())
    }

    /// Offers a value of the choice with the number `choice`; [`FromReceiver::Reserve`] requests the value.
    pub fn offer_choice(&self, number: u64, choice: u128) {
        self.waits(number, true);
        let of = self.of();
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(of, number, None, Some(choice), ends, after));
    }

    /// Supplies the requested value.
    ///
    /// # Errors
    /// The value, if no receiver requests it any more.
    pub fn grant(&self, number: u64, request: u64, value: T) -> Result<(), T> {
        let tick = clock::tick();
        let be_patient_now = self.chan.with_queue(|queue, _, after| {
            queue.grant(self.of(), number, request, value, tick, after)?;
            Ok(queue.has_grants() && !std::mem::replace(&mut queue.patient, true))
        })?;
        self.be_patient(be_patient_now);
        Ok(())
    }

    /// Grants a request with a value that [stays](Self::offer_unread) where it is. `false`: the requester
    /// needs the value here, or has given up. The carrier reads the value here and then [grants](Self::grant)
    /// it.
    #[must_use = "`false`: the value is wanted here"]
    pub fn grant_unread(&self, number: u64, request: u64) -> bool {
        let tick = clock::tick();
        let (granted, be_patient_now) = self.chan.with_queue(|queue, _, after| {
            let granted = queue.grant_unread(self.of(), number, request, tick, after);
            (granted, granted && !std::mem::replace(&mut queue.patient, true))
        });
        self.be_patient(be_patient_now);
        granted
    }

    /// Whether this request for the offer still waits for its value.
    fn is_asked(&self, number: u64, request: u64) -> bool {
        self.chan.with_queue(|queue, _, _| queue.is_asked(self.of(), number, request))
    }

    fn be_patient(&self, now: bool) {
        if now {
            let patient: Weak<Chan<T>> = Arc::downgrade(&self.chan);
            be_patient(patient);
        }
    }

    /// Withdraws an offer. `Some`: it had not been taken; the value, if it had come. `None`: an event reports
    /// the outcome, now or later.
    pub fn withdraw(&self, number: u64) -> Option<Option<T>> {
        let withdrawn = self.chan.with_queue(|queue, _, after| queue.withdraw_from_far(self.of(), number, after));
        if withdrawn.is_some() {
            self.waits(number, false);
        }
        withdrawn
    }

    /// Reports that the sender's node is lost for good. Its offers are withdrawn; receives get the values
    /// admitted before, and then fail with [`RecvError::NodeLost`](crate::RecvError::NodeLost).
    pub fn down(self) {
        self.lose();
    }

    /// Reports that the receiver's own node is leaving: [`down`](Self::down) follows, and receives fail with
    /// [`RecvError::OwnNodeLeft`](crate::RecvError::OwnNodeLeft).
    pub fn own_node_leaves(&self) {
        if self.lone.is_none() {
            self.chan.with_queue(|queue, _, _| queue.own_node_leaves());
        }
    }

    /// Reports that the other end is not connected yet. Until this is `None` again, a receive whose deadline
    /// passes fails with [`RecvError::Unmatched`](crate::RecvError::Unmatched) and the [text](Missing::text)
    /// of `missing`.
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.chan.set_unmatched(missing);
    }

    fn lose(&self) {
        match &self.lone {
            None => self.chan.with_queue(|queue, ends, after| queue.lose_sender(ends, after)),
            Some(lone) => {
                drop(self.chan.with_queue(|queue, _, after| queue.remove_lone_inlet(lone.handle, true, after)));
            }
        }
    }

    /// Requests the return of a reservation; [`FromReceiver::Abort`] answers, unless the value has been
    /// taken.
    pub fn revoke(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.revoke(self.of(), number, after));
    }

    /// Requests notice of the channel's end, for a [waiting](Event::Watched) task at the sender's half.
    pub fn watch_end(&self) {
        self.chan.with_queue(|queue, _, after| queue.watch_end(after));
    }

    /// Retires the channel, which was retired elsewhere, or whose retirement here has reached the sender's
    /// half. No value sent on credits follows.
    pub fn retire(&self) {
        if self.lone.is_none() {
            self.chan.with_queue(|queue, _, after| queue.end_lending(after));
        }
        self.chan.retire();
    }

    /// Poisons the channel, which was poisoned elsewhere. The channel may be immune to poison of less than
    /// full strength; otherwise [`FromReceiver::Poisoned`] answers.
    pub fn poison(&self, reason: Reason) {
        self.chan.poison(reason);
    }
}

impl<T: Send + 'static> Drop for Inlet<T> {
    fn drop(&mut self) {
        // Its unread events may hold values, which are dropped without the channel's lock.
        if let Some(lone) = &self.lone {
            // The handle in it is dropped after this.
            return drop(self.chan.with_queue(|queue, _, after| queue.remove_lone_inlet(lone.handle, false, after)));
        }
        let unheard = self.chan.with_queue(|queue, _, after| {
            queue.end_lending(after);
            queue.drop_choices_from_far(Handle::END, after);
            queue.inlet.take()
        });
        self.chan.sender_gone();
        drop(unheard);
    }
}

/// The ends of a call channel whose requests travel on this channel.
pub fn calls<Q, A>(requests: Sender<(Q, Reply<A>)>, asked: Receiver<(Q, Reply<A>)>) -> (Caller<Q, A>, Callee<Q, A>) {
    (Caller { requests }, Callee { asked })
}

/// Carries all messages between two halves within memory, until both are done: the second transport of the
/// laws.
///
/// # Examples
/// ```
/// use dunlin_core::agent::{Inlet, Outlet, join};
/// use dunlin_core::{channel, par};
/// # dunlin_core::doc::block_on(async {
/// let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
/// let (sent, received, ()) = par!(
///     async move { tx.send("krill").await },
///     async move { ry.recv().await },
///     join(Outlet::new(rx), Inlet::new(ty)),
/// );
/// assert_eq!((sent, received), (Ok(()), Ok("krill")));
/// # });
/// ```
pub fn join<T: Send + 'static>(outlet: Outlet<T>, inlet: Inlet<T>) -> impl Future<Output = ()> + Send {
    outlet.credit(inlet.credits());
    join_with(outlet, inlet)
}

/// The receiver's agent at the sender's half.
pub(crate) trait SendingHalf<T>: Send {
    fn names(&self) -> Names;
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>>;
    fn credit(&self, places: u32);
    fn reserve_unread(&self, ticket: u64) -> Reserved<Given<T>>;
    fn taken(&self, ticket: u64);
    fn held(&self, ticket: u64);
    fn give_back(&self, ticket: u64, value: Given<T>);
    fn failed(&self, ticket: u64, value: Option<Given<T>>, why: Why);
    fn withdrawn(&self, ticket: u64, value: Option<Given<T>>);
    fn lost(&self, ticket: u64, value: Given<T>, id: MessageId);
    fn lose(&self);
    fn retire(&self);
    fn gone(&self);
    fn poison(&self, reason: Reason);
}

macro_rules! sending_half {
    ($($agent:ident)*) => { $(
        impl<T: Send + 'static> SendingHalf<T> for $agent<T> {
            fn names(&self) -> Names {
                self.names()
            }

            fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>> {
                self.poll(cx)
            }

            fn credit(&self, places: u32) {
                self.credit(places);
            }

            fn reserve_unread(&self, ticket: u64) -> Reserved<Given<T>> {
                self.reserve_unread(ticket)
            }

            fn taken(&self, ticket: u64) {
                self.taken(ticket);
            }

            fn held(&self, ticket: u64) {
                self.held(ticket);
            }

            fn give_back(&self, ticket: u64, value: Given<T>) {
                self.give_back(ticket, value);
            }

            fn failed(&self, ticket: u64, value: Option<Given<T>>, why: Why) {
                self.failed(ticket, value, why);
            }

            fn withdrawn(&self, ticket: u64, value: Option<Given<T>>) {
                self.withdrawn(ticket, value);
            }

            fn lost(&self, ticket: u64, value: Given<T>, id: MessageId) {
                self.lost(ticket, value, id);
            }

            fn lose(&self) {
                self.lose();
            }

            fn retire(&self) {
                self.retire();
            }

            fn gone(&self) {
                self.gone();
            }

            fn poison(&self, reason: Reason) {
                self.poison(reason);
            }
        }
    )* };
}

sending_half! { Outlet LoneOutlet }

/// Like [`join`], once the outlet has its first credits.
pub(crate) fn join_with<T: Send + 'static>(
    outlet: impl SendingHalf<T>,
    inlet: Inlet<T>,
) -> impl Future<Output = ()> + Send {
    inlet.comes_from(outlet.names());
    let mut joint = Joint { outlet, inlet, later: Vec::new(), unread: BTreeSet::new(), receiver_gone: false };
    poll_fn(move |cx| {
        loop {
            // Polls both sides in turn, so that neither starves the other.
            let mut quiet = true;
            if let Poll::Ready(event) = joint.outlet.poll(cx) {
                quiet = false;
                if !joint.hear_sender(event) {
                    return Poll::Ready(());
                }
            }
            if let Poll::Ready(event) = joint.inlet.poll(cx) {
                quiet = false;
                joint.hear_receiver(event);
            }
            if quiet {
                // Nothing is on its way: with the receiver gone, all offers to it have failed.
                return if joint.receiver_gone { Poll::Ready(()) } else { Poll::Pending };
            }
        }
    })
}

struct Joint<T: Send + 'static, O> {
    outlet: O,
    inlet: Inlet<T>,
    /// Requests (ticket, request) for offers whose choice was busy.
    later: Vec<(u64, u64)>,
    /// Offers granted to the inlet as they are, [unread](Inlet::offer_unread): they come back without a
    /// value.
    unread: BTreeSet<u64>,
    receiver_gone: bool,
}

impl<T: Send + 'static, O: SendingHalf<T>> Joint<T, O> {
    /// `false`: the sender has gone, and none of its offers is open.
    fn hear_sender(&mut self, event: Event<T>) -> bool {
        match event {
            Event::Sent(value) => {
                let pushed = self.inlet.push(value);
                debug_assert!(pushed.is_ok(), "the sender's half has what was promised");
            }
            Event::FirmOffer(ticket, value) => self.inlet.offer(ticket, value),
            Event::ChoiceOffer(ticket, choice) => self.inlet.offer_choice(ticket, choice),
            Event::AskedBack(ticket) => {
                self.later.retain(|(later, _)| *later != ticket);
                if let Some(value) = self.inlet.withdraw(ticket) {
                    let given = self.back(ticket, value);
                    self.outlet.withdrawn(ticket, given);
                }
            }
            Event::Unlocked(ticket) => {
                if let Some(index) = self.later.iter().position(|(t, _)| *t == ticket) {
                    let (_, request) = self.later.remove(index);
                    self.reserve(ticket, request);
                }
            }
            Event::Revoke(ticket) => self.inlet.revoke(ticket),
            Event::Watched => self.inlet.watch_end(),
            Event::Retired => self.inlet.retire(),
            Event::Poisoned(reason) => self.inlet.poison(reason),
            Event::Gone => return false,
            Event::Lost => {
                self.inlet.lose();
                return false;
            }
        }
        true
    }

    fn reserve(&mut self, ticket: u64, request: u64) {
        match self.outlet.reserve_unread(ticket) {
            Reserved::Granted(Given::Value(value)) => {
                if let Err(value) = self.inlet.grant(ticket, request, value) {
                    self.outlet.give_back(ticket, value.into());
                }
            }
            Reserved::Granted(Given::Unread | Given::Unreadable) => {
                if self.inlet.grant_unread(ticket, request) {
                    self.unread.insert(ticket);
                } else if self.inlet.is_asked(ticket, request) {
                    // The requester cannot read it. The mark keeps the outlet from giving it again: that half
                    // fetches the value first.
                    self.outlet.give_back(ticket, Given::Unreadable);
                    self.reserve(ticket, request);
                } else {
                    self.outlet.give_back(ticket, Given::Unread);
                }
            }
            Reserved::Later => self.later.push((ticket, request)),
            Reserved::Gone => {
                self.inlet.withdraw(ticket);
            }
        }
    }

    /// What the inlet returns of an offer. `None`: it had nothing.
    fn back(&mut self, ticket: u64, value: Option<T>) -> Option<Given<T>> {
        let was_unread = self.unread.remove(&ticket);
        value.map(Given::Value).or(was_unread.then_some(Given::Unread))
    }

    fn hear_receiver(&mut self, event: FromReceiver<T>) {
        match event {
            FromReceiver::Taken(ticket) | FromReceiver::Released(ticket) => {
                self.unread.remove(&ticket);
                self.outlet.taken(ticket);
            }
            FromReceiver::Held(ticket) => self.outlet.held(ticket),
            FromReceiver::Failed(ticket, value, why) => {
                let given = self.back(ticket, value);
                self.outlet.failed(ticket, given, why);
            }
            FromReceiver::Withdrawn(ticket, value) => {
                let given = self.back(ticket, value);
                self.outlet.withdrawn(ticket, given);
            }
            FromReceiver::Lost(ticket, value, id) => {
                if let Some(given) = self.back(ticket, value) {
                    self.outlet.lost(ticket, given, id);
                }
            }
            FromReceiver::Abort(ticket, value) => {
                if let Some(given) = self.back(ticket, value) {
                    self.outlet.give_back(ticket, given);
                }
            }
            FromReceiver::Reserve(ticket, request) => self.reserve(ticket, request),
            FromReceiver::Credit(places) => self.outlet.credit(places),
            // A channel in this memory is here already.
            FromReceiver::Used => {}
            // No request is needed here.
            FromReceiver::Awaited => {}
            FromReceiver::Retired => self.outlet.retire(),
            FromReceiver::Poisoned(reason) => self.outlet.poison(reason),
            FromReceiver::Gone => {
                self.receiver_gone = true;
                self.outlet.gone();
            }
            FromReceiver::Down => {
                self.outlet.lose();
                self.receiver_gone = true;
                self.outlet.gone();
            }
        }
    }
}

/// What the receiver of a channel lacks, where a task of the carrier holds the sender in place of ends at
/// other nodes.
#[derive(Debug)]
pub struct Lack<T>(Weak<Chan<T>>);

impl<T> Lack<T> {
    /// The lack of the receiver that belongs to this sender.
    pub fn of(sender: &Sender<T>) -> Self {
        Self(Arc::downgrade(sender.chan()))
    }

    /// Like [`Inlet::unmatched`].
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        if let Some(chan) = self.0.upgrade() {
            chan.set_unmatched(missing);
        }
    }
}
