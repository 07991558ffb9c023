//! Agents: how a channel stretches over something that is not memory.
//!
//! A channel whose ends are apart is two halves. The half at the sender has an [`Outlet`] in place of its
//! receiver; the half at the receiver has an [`Inlet`] in place of its sender. Each is just another party at
//! the same queue: neither costs a channel anything that has none. Whoever carries messages (the crate
//! `dunlin`'s nodes, or [`join`] within memory) listens to both and answers:
//!
//! ```text
//!   sender's half                                          receiver's half
//!   Outlet::credit       ◀── Inlet::credits, Credit ──
//!   Sent(value)                    ── value ──▶            Inlet::push
//!   FirmOffer(ticket, value)       ── offer ──▶            Inlet::offer
//!   ChoiceOffer(ticket, id)        ── offer, no value ──▶  Inlet::offer_choice
//!   Outlet::reserve      ◀── Reserve ──      value ──▶     Inlet::grant; it may go back: Outlet::give_back
//!     (Later: kept until Unlocked(ticket), unless AskedBack(ticket) is heard before.
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
//!     (Of full strength. Else the receiver's half decides, which knows what the channel is immune to.)
//!   Gone                           ── gone ──▶             the inlet is dropped, and then the outlet
//! ```
//!
//! Each side's messages arrive in the order in which they were said.
//!
//! The policy, the bounds and the buffer are those of the receiver's half. The protocol is that of section 3
//! of `docs/choice.md`.
//!
//! # Credits
//!
//! A send into a FIFO of n or an unbounded buffer costs no round trip. The receiver's half promises places
//! (*credits*), which count as taken there from then on. At the sender's half a send that has one is complete
//! at once; without one it waits there, and nothing of it crosses. So granted and buffered together never are
//! more than n, and both ends behave as those of a buffer in one memory:
//! - *retire*, from either end, keeps what was sent. If it came from the receiver, receives wait for what is
//!   on its way, until the sender's half has answered ([`Inlet::retire`]); until then places are promised for
//!   what waits for them there since before;
//! - *poison*, from either end, destroys what is buffered and what is on its way;
//! - an extended receive keeps its place until the release.
//!
//! All other policies decide on a value when it has come, and so does a bound on pending senders: nothing is
//! promised.
//!
//! # Values
//!
//! A carrier over a network has the value of [`Event::FirmOffer`], or of [`Reserved::Granted`], by value. It
//! encodes it by reference and keeps it under the ticket until it hears what became of it:
//!
//! | heard | the sender's half is told | and the value |
//! |---|---|---|
//! | `Taken`, `Released` | [`Outlet::taken`] | is dropped |
//! | `Held` | [`Outlet::held`]; `Released` follows | is dropped |
//! | `Failed` | [`Outlet::failed`] | is given back; `None` if it never left |
//! | an answer to a withdrawal: not taken | [`Outlet::withdrawn`] | is given back; `None` if it never left |
//! | `Abort` | [`Outlet::give_back`] | is given back |
//! | nothing, and the node is lost | [`Outlet::lost`] | is given back |
//!
//! At the receiver's half the values in `Failed`, `Abort` and what [`Inlet::withdraw`] gives are copies,
//! which are dropped. When two answers cross (an `Abort` and a withdrawal), the first has the value and the
//! second has none. A value that cannot be encoded is given back by [`Outlet::failed`]. Of [`Event::Sent`]
//! nothing is heard: a carrier drops the value when it is encoded.
//!
//! # The end
//!
//! - *The sender is dropped.* What it has forgotten stands (as in one memory) and is carried, credits for it
//!   too; of what it has dropped the answer is awaited. So after [`Event::Gone`] or [`Event::Lost`] no ticket
//!   is open and nothing is left to hear: the message goes to the receiver's half, behind all others, and
//!   both agents are dropped.
//! - *The receiver is dropped.* [`FromReceiver::Gone`], or [`FromReceiver::Down`], is not the last word:
//!   offers that were on their way fail when they arrive, and their values come back. The carrier calls
//!   [`Outlet::gone`], which [`Event::Retired`] answers unless the channel was retired before: nothing is
//!   offered behind that. When it has come to the receiver's half, and what that half had to say until then
//!   has come back, or at [`Event::Gone`], both agents are dropped.
//! - *A node is lost for good.* At the sender's half: [`Outlet::lost`] for every value that is kept, then
//!   [`Outlet::down`]. At the receiver's: [`Inlet::down`].

mod lone;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::call::{Callee, Caller, Reply};
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
use crate::share::Shared;
use crate::waits::ChannelId;
use crate::wake::Queued;
pub(crate) use lone::Lone;
pub use lone::LoneOutlet;

/// Tells apart the choices of several operating system processes: of two choices that wait for each other one
/// gives way, and both must mean the same one. So their numbers are in one order everywhere. The high half is
/// `origin`, which belongs to this process alone (of a node: its incarnation, or 64 random bits), the low
/// half counts; a process without agents needs none.
///
/// It belongs before the first choice with a send over an agent, whose number must not change. The first
/// origin stands.
///
/// # Errors
/// `false`: there was another before.
#[must_use = "another origin may stand"]
pub fn set_origin(origin: u64) -> bool {
    decision::set_origin(origin)
}

/// What the offer of this inlet, under this number, is called. If it came from another half within this
/// memory, as it was called there: only who carries it over the network knows a name.
fn name_of<T>(chan: &Chan<T>, far: Option<(Handle, u64)>) -> Option<PassedOn> {
    let (of, number) = far?;
    // Each name is asked for where nothing is locked.
    match chan.with_queue(|queue, _, _| queue.names_of(of)) {
        Some(names) => names(number),
        None => Some(PassedOn { channel: chan.record.id(), of, number }),
    }
}

/// What an agent hears from the sending half. Tickets name its offers.
#[derive(Debug)]
pub enum Event<T> {
    /// This value was sent on a [credit](Outlet::credit): its send is complete. It has no ticket, and the
    /// agent says nothing more about it.
    Sent(T),
    /// A send offers this value. The agent has it now and must say what became of it.
    FirmOffer(u64, T),
    /// A choice offers something; its value comes when it is [reserved](Outlet::reserve). The second number
    /// is the choice's, for the order in which choices give way to each other: see [`set_origin`].
    ChoiceOffer(u64, u128),
    /// The sender wants the offer back: it timed out, was dropped, is held back by a claim, or its choice was
    /// decided.
    AskedBack(u64),
    /// What answered [`Reserved::Later`] may be tried again.
    Unlocked(u64),
    /// The choice that is reserved would like to decide for another branch.
    Revoke(u64),
    /// Somebody here wants to know when the channel ends. Of an end that nobody has used since it came, its
    /// receiver may not know: now it is used.
    Watched,
    /// The channel was retired from here.
    Retired,
    /// The channel was poisoned from here.
    Poisoned(Reason),
    /// The sender is gone, and all that it has sent and offered has been said before and is settled: the
    /// carrier drops both agents.
    Gone,
    /// The same, but it was lost with its node, before the receiver came to where it is: the receiver's half
    /// hears [`Inlet::down`].
    Lost,
}

/// Stands in for the receiver at the half where the sender is.
///
/// Dropped, it is a receiver that is dropped; values it had and did not hand over count as received.
pub struct Outlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    /// What was buffered here, in order, and has not been said or has come back: it goes before everything
    /// else.
    buffered: Lock<BTreeMap<u64, T>>,
}

/// The tickets of what was buffered start here; nothing else knows them.
const BUFFERED_TICKETS: u64 = 1 << 63;

impl<T: Send + 'static> fmt::Debug for Outlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outlet").field(&self.chan.record.id()).finish()
    }
}

/// How a decision speaks to the outlet that has reserved one of its offers.
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
    /// Takes the place of a receiver. One that has been in use: what is buffered is the agent's, and goes
    /// first: on the first [credits](Self::credit), or where there are none as firm offers (sent already, so
    /// nothing comes of it if they fail). There is no buffer here from now on, for that is at the other half.
    /// Offers that stand already, and how the channel may have ended, are said next.
    pub fn new<P>(receiver: Receiver<T, P>) -> Self {
        let chan = receiver.chan().clone();
        let buffered = chan.add_agent(|queue, after| {
            #[cfg(feature = "link")]
            queue.unlink(after);
            queue.replace_receiver(after)
        });
        let buffered = Lock::new((BUFFERED_TICKETS..).zip(buffered).collect());
        // The receiver's end lives on as this.
        receiver.into_outlet();
        Self { chan, buffered }
    }

    /// What was buffered here, and has not been said: whoever carries the channel itself elsewhere takes it
    /// along, and drops this.
    pub fn take_buffered(&self) -> Vec<T> {
        self.chan.with_queue(|_, _, _| std::mem::take(&mut *self.buffered.lock())).into_values().collect()
    }

    /// How many values are sent, so that their sends are complete, and have yet to be [said](Self::poll).
    pub fn unsaid(&self) -> usize {
        self.chan.with_queue(|queue, _, _| queue.unsaid() + self.buffered.lock().len())
    }

    /// The channel whose half this stands at, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.chan.record.id()
    }

    #[cfg(feature = "link")]
    pub(crate) fn chan(&self) -> &Arc<Chan<T>> {
        &self.chan
    }

    /// Whether something that was buffered here has not been said.
    #[cfg(feature = "link")]
    pub(crate) fn has_buffered(&self) -> bool {
        !self.buffered.lock().is_empty()
    }

    /// The next thing the sender's half has to say.
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
                        // Taken back before anybody noticed it.
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

    /// Ready once [`Event::Gone`] or [`Event::Lost`] is among what the sender's half has to say, all of which
    /// [`poll`](Self::poll) still says. Until then the task is woken whenever there is more of it.
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

    /// Ready if the sender's half has something to [say](Self::poll). Otherwise the task is woken once it
    /// has.
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

    /// Gives the sender `places` more in the buffer elsewhere: so many sends are complete without asking.
    /// From the first one on, sends wait here for a place and are not offered; so it belongs before the first
    /// [`poll`](Self::poll). 0 changes nothing.
    pub fn credit(&self, places: u32) {
        self.chan.with_queue(|queue, _, after| queue.credit(places, after));
    }

    /// Promises an offer of a choice to a receiver elsewhere. [`Reserved::Granted`]: until
    /// [`taken`](Self::taken), [`give_back`](Self::give_back) or [`failed`](Self::failed) no other branch of
    /// that choice can happen.
    pub fn reserve(&self, ticket: u64) -> Reserved<T> {
        self.reserve_given(ticket, false).of_values()
    }

    /// The same, of who can read a value [where it was sent](Inlet::offer_unread). A carrier uses always this
    /// one, or always the other.
    pub fn reserve_unread(&self, ticket: u64) -> Reserved<Given<T>> {
        self.reserve_given(ticket, true)
    }

    fn reserve_given(&self, ticket: u64, reads: bool) -> Reserved<Given<T>> {
        let reserver: Arc<dyn Reserver> = Arc::new(Ticket { chan: self.chan.clone(), ticket });
        self.chan.with_queue(|queue, _, after| queue.reserve(ticket, reads, &reserver, after))
    }

    /// If this offer came from elsewhere itself, and has not been received here: which one of [its
    /// inlet](Inlet::passes_on) it is. Only its receive, wherever that is, says that the ends in it may be
    /// used.
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

    /// A receive elsewhere has returned the value: the send is complete. After [`held`](Self::held): the
    /// extended receive is over.
    pub fn taken(&self, ticket: u64) {
        self.chan.with_queue(|queue, _, after| queue.far_took(ticket, false, after));
    }

    /// An extended receive elsewhere has returned the value: the send cannot fail any more, and waits.
    pub fn held(&self, ticket: u64) {
        self.chan.with_queue(|queue, _, after| queue.far_took(ticket, true, after));
    }

    /// The value is not wanted now; the offer stands as it did.
    pub fn give_back(&self, ticket: u64, value: impl Into<Given<T>>) {
        let value = value.into();
        if ticket >= BUFFERED_TICKETS {
            return self.chan.with_queue(|queue, _, after| {
                self.buffered.lock().extend(value.read().map(|value| (ticket, value)));
                queue.carry_again(&mut after.wakes);
            });
        }
        self.chan.with_queue(|queue, _, after| queue.far_gave_back(ticket, value, after));
    }

    /// [`Event::Retired`] or [`Event::Gone`] was heard, and what had been offered before it was [given back](Self::give_back) since: it is said again, behind
    /// that.
    pub fn end_again(&self, retired: bool) {
        self.chan.with_queue(|queue, _, after| queue.end_again(retired, &mut after.wakes));
    }

    /// The offer has failed elsewhere. No value: it is still here, or on its way back.
    pub fn failed(&self, ticket: u64, value: Option<Given<T>>, why: Why) {
        self.chan.with_queue(|queue, _, after| queue.far_failed(ticket, value, why, after));
    }

    /// The offer that was [asked back](Event::AskedBack) has not been taken. No value: it had none over
    /// there.
    pub fn withdrawn(&self, ticket: u64, value: Option<Given<T>>) {
        // Where nothing is missing this is only a look: what asks the carrier waits for nothing that can be
        // locked here.
        let timed_out = self.chan.send_timed_out();
        self.chan.with_queue(|queue, _, after| queue.far_withdrew(ticket, value, timed_out, after));
    }

    /// The receiver's node is lost for good, and nobody knows whether a receive there has returned this
    /// value: the send ends as [`SendError::Unknown`](crate::SendError::Unknown), and if it was a branch of a
    /// choice, the choice does.
    pub fn lost(&self, ticket: u64, value: impl Into<Given<T>>, id: MessageId) {
        let value = value.into();
        self.chan.with_queue(|queue, _, after| queue.far_lost(ticket, value, id, after));
    }

    /// The receiver's node is lost for good. What waits here, and all that is sent from now on, was certainly
    /// not taken, and fails with [`Why::NodeLost`]. Offers whose values the carrier has must have ended as
    /// [`lost`](Self::lost) before; what is left counts as received, as in a drop.
    pub fn down(self) {
        self.lose();
    }

    /// It is the sender's own node that ends: [`down`](Self::down) follows, and operations fail with
    /// [`Why::OwnNodeLeft`].
    pub fn own_node_leaves(&self) {
        self.chan.with_queue(|queue, _, _| queue.own_node_leaves());
    }

    /// Nothing is at the other end yet: until this is `None` again, an operation whose deadline passes fails
    /// with [`Why::Unmatched`] and what this [says](Missing::text).
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        self.chan.set_unmatched(missing);
    }

    fn lose(&self) {
        self.chan.with_queue(|queue, ends, _| queue.lose_receiver(ends));
    }

    /// The channel was retired elsewhere. [`Event::Retired`] answers, behind all that was sent and offered
    /// before.
    pub fn retire(&self) {
        self.chan.with_queue(|queue, _, _| queue.end_credits());
        self.chan.retire();
    }

    /// The receiver there is gone: nothing more will be received. It is answered as [`retire`](Self::retire)
    /// is.
    pub fn gone(&self) {
        self.retire();
    }

    /// The channel was poisoned elsewhere.
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
/// Dropped, it is a sender that is dropped: what it offered stays. No answer comes to that any more, so it is
/// dropped when there is nothing left to answer: after [`Event::Gone`].
pub struct Inlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    /// Set: it stands in for one handle of a sender that several share.
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
    /// Takes the place of a sender. What one that has been in use forgot stays offered. How the channel may
    /// have ended is its first event.
    pub fn new<P>(sender: Sender<T, P>) -> Self {
        let chan = sender.chan().clone();
        chan.add_agent(|queue, after| {
            #[cfg(feature = "link")]
            queue.unlink(after);
            #[cfg(not(feature = "link"))]
            let _ = after;
            queue.inlet = Some(Heard::new());
        });
        // The sender's end lives on as this.
        sender.into_inlet();
        Self { chan, lone: None }
    }

    /// The same for a receiver that has come from elsewhere: until the first [credits](Self::credits) it
    /// awaits what was sent before, also if it retires the channel meanwhile.
    #[cfg(feature = "serde")]
    pub(crate) fn of_coming<P>(sender: Sender<T, P>) -> Self {
        let inlet = Self::new(sender);
        inlet.chan.with_queue(|queue, _, _| queue.comes());
        inlet
    }

    /// Takes the place of one handle of a shared sender: what it offers are lone sends, which are held back
    /// while a claim is out. Nothing is promised to it, and when it is gone the others go on.
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

    /// A lone operation elsewhere waits here, or does not any more.
    fn waits(&self, number: u64, is_new: bool) {
        let Some(lone) = &self.lone else { return };
        if !is_new {
            return lone.ended(number);
        }
        lone.began(number);
    }

    /// The channel whose half this stands at, as in the wait records; of a [lone](Self::lone) one the handle.
    pub fn channel(&self) -> ChannelId {
        self.lone.as_ref().map_or_else(|| self.chan.record.id(), |lone| lone.id)
    }

    /// What the offer under this number is called by an outlet of the same channel by which it [goes
    /// on](Outlet::passed_on).
    pub fn passes_on(&self, number: u64) -> PassedOn {
        PassedOn { channel: self.chan.record.id(), of: self.of(), number }
    }

    /// The next thing the receiver's half has to say.
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

    /// Ready once [`FromReceiver::Gone`] or [`FromReceiver::Down`] is among what the receiver's half has to
    /// say, all of which [`poll`](Self::poll) still says. Until then the task is woken whenever there is more
    /// of it.
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

    /// Ready if the receiver's half has an event to [say](Self::poll). Otherwise the task is woken once it
    /// has one, or has a place to promise.
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

    /// How many places the sender's half may be given now ([`Outlet::credit`]); they are its from this call
    /// on, and more follow as [`FromReceiver::Credit`]. A FIFO of n: those of the n that are free, and 1024
    /// at most. An unbounded buffer: 1024. Anything else: none, ever.
    ///
    /// An agent that never asks has none promised, and offers every value.
    pub fn credits(&self) -> u32 {
        if self.lone.is_some() {
            return 0;
        }
        self.chan.with_queue(|queue, _, after| queue.lend(&mut after.wakes))
    }

    /// The sender's half is another one from now on, and has none of the places that the one before was
    /// promised: as [`credits`](Self::credits). Nothing that was sent into those may still be on its way.
    ///
    /// `promised`: so many it was promised where the receiver was before, and has not used. It gets no fewer.
    pub fn credits_anew(&self, promised: u32) -> u32 {
        if self.lone.is_some() {
            return 0;
        }
        self.chan.with_queue(|queue, _, after| queue.lend_anew(promised, &mut after.wakes))
    }

    /// From now on at most so many places are promised, less what is buffered then: fewer than the policy
    /// has, if its values are large. What was promised before stays, and one place there always is. Default:
    /// as many as the policy has.
    pub fn lend_at_most(&self, places: u32) {
        self.chan.with_queue(|queue, _, after| queue.lend_at_most(places, &mut after.wakes));
    }

    /// A value that was sent on a credit ([`Event::Sent`]): enters the buffer in the place that was promised
    /// for it. If the channel was poisoned or the receiver is gone it is destroyed, as what was buffered has
    /// been. Gives how many values are buffered then.
    ///
    /// # Errors
    /// The value, if the sender's half had no credit left, or has said that it sends nothing more
    /// ([`retire`](Self::retire)): whoever sent this breaks the protocol.
    pub fn push(&self, value: T) -> Result<usize, T> {
        self.chan.with_queue(|queue, _, after| queue.push_from_far(value, after))
    }

    /// How many values are buffered. When half of what there was at the last [`push`](Self::push) has been
    /// received, [`FromReceiver::Credit`] is heard, perhaps of no place.
    pub fn buffered(&self) -> usize {
        self.chan.with_queue(|queue, _, _| queue.buffered())
    }

    /// The carrier has a value that comes only once it is received: [`FromReceiver::Awaited`] is heard as
    /// soon as a receive waits; at once if one does. Once for each time that this is asked.
    pub fn ask_awaited(&self) {
        let of = self.of();
        self.chan.with_queue(|queue, _, after| queue.ask_awaited(of, after));
    }

    /// A value that was buffered at the half where the receiver was before: it enters the buffer, behind what
    /// was restored before. To be said before all else.
    pub fn restore(&self, value: T) {
        self.chan.with_queue(|queue, _, after| queue.restore(value, after));
    }

    /// Offers a value under a number of the agent's choosing. It comes back as [`FromReceiver::Taken`] or
    /// [`FromReceiver::Failed`].
    pub fn offer(&self, number: u64, value: T) {
        self.waits(number, true);
        let of = self.of();
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(of, number, Some(value), None, ends, after));
    }

    /// Offers a value that stays where it was sent until somebody is found for it. A handle of a shared
    /// receiver that is elsewhere can have the offer as it is ([`LoneOutlet::reserve_unread`]), and read the
    /// value there. Who wants it here, or through this half, asks ([`FromReceiver::Reserve`]): then it is to
    /// be read, and [brought](Self::bring).
    pub fn offer_unread(&self, number: u64) {
        self.waits(number, true);
        let of = self.of();
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(of, number, None, None, ends, after));
    }

    /// The value of an [unread](Self::offer_unread) offer, which keeps its place.
    ///
    /// # Errors
    /// The value, if the offer does not stand here: a handle elsewhere has it, or it is over.
    pub fn bring(&self, number: u64, value: T) -> Result<(), T> {
        let of = self.of();
        self.chan.with_queue(|queue, _, after| queue.bring(of, number, value, after))
    }

    /// What is offered here comes from an outlet that calls it so.
    fn comes_from(&self, names: Names) {
        let of = self.of();
        self.chan.with_queue(|queue, _, _| queue.has_names(of, names));
    }

    /// Whether it was made for a receiver that has come from elsewhere, and has not been told of what was
    /// sent before.
    #[cfg(feature = "serde")]
    pub(crate) fn is_of_coming(&self) -> bool {
        self.chan.with_queue(|queue, _, _| queue.is_coming())
    }

    /// Whether handles of a shared receiver that are elsewhere may receive what is offered here.
    pub fn is_demanded(&self) -> bool {
        self.chan.with_queue(|queue, _, _| queue.is_demanded())
    }

    /// Offers what the choice with the number `choice` would send; the value is asked for by
    /// [`FromReceiver::Reserve`].
    pub fn offer_choice(&self, number: u64, choice: u128) {
        self.waits(number, true);
        let of = self.of();
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(of, number, None, Some(choice), ends, after));
    }

    /// Hands over the value that was asked for.
    ///
    /// # Errors
    /// The value, if nobody wants it any more.
    pub fn grant(&self, number: u64, request: u64, value: T) -> Result<(), T> {
        let tick = clock::tick();
        let be_patient_now = self.chan.with_queue(|queue, _, after| {
            queue.grant(self.of(), number, request, value, tick, after)?;
            Ok(queue.has_grants() && !std::mem::replace(&mut queue.patient, true))
        })?;
        self.be_patient(be_patient_now);
        Ok(())
    }

    /// The value that was asked for [stays](Self::offer_unread) where it is. `false`: who has asked for it
    /// has to have it here, or nobody has: it is to be read here, and then [granted](Self::grant).
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

    /// Whether who has asked for this offer waits for its value.
    fn is_asked(&self, number: u64, request: u64) -> bool {
        self.chan.with_queue(|queue, _, _| queue.is_asked(self.of(), number, request))
    }

    fn be_patient(&self, now: bool) {
        if now {
            let patient: Weak<Chan<T>> = Arc::downgrade(&self.chan);
            be_patient(patient);
        }
    }

    /// Takes an offer back. `Some`: it had not been taken; the value, if it had come. `None`: what became of
    /// it is or will be heard.
    pub fn withdraw(&self, number: u64) -> Option<Option<T>> {
        let withdrawn = self.chan.with_queue(|queue, _, after| queue.withdraw_from_far(self.of(), number, after));
        if withdrawn.is_some() {
            self.waits(number, false);
        }
        withdrawn
    }

    /// The sender's node is lost for good. Its offers are withdrawn; receives get what was admitted before,
    /// and then fail with [`RecvError::NodeLost`](crate::RecvError::NodeLost).
    pub fn down(self) {
        self.lose();
    }

    /// It is the receiver's own node that ends: [`down`](Self::down) follows, and receives fail with
    /// [`RecvError::OwnNodeLeft`](crate::RecvError::OwnNodeLeft).
    pub fn own_node_leaves(&self) {
        if self.lone.is_none() {
            self.chan.with_queue(|queue, _, _| queue.own_node_leaves());
        }
    }

    /// Nothing is at the other end yet: until this is `None` again, a receive whose deadline passes fails
    /// with [`RecvError::Unmatched`](crate::RecvError::Unmatched) and what this [says](Missing::text).
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

    /// Asks for a reservation back; [`FromReceiver::Abort`] answers, unless the value has been taken.
    pub fn revoke(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.revoke(self.of(), number, after));
    }

    /// The sender's half [wants to know](Event::Watched) when the channel ends.
    pub fn watch_end(&self) {
        self.chan.with_queue(|queue, _, after| queue.watch_end(after));
    }

    /// The channel was retired elsewhere, or the sender's half has heard that it was retired here. Nothing
    /// sent on credits comes after this.
    pub fn retire(&self) {
        if self.lone.is_none() {
            self.chan.with_queue(|queue, _, after| queue.end_lending(after));
        }
        self.chan.retire();
    }

    /// The channel was poisoned elsewhere. Poison that is not of full strength may do nothing, since the
    /// channel is immune to it; else [`FromReceiver::Poisoned`] answers.
    pub fn poison(&self, reason: Reason) {
        self.chan.poison(reason);
    }
}

impl<T: Send + 'static> Drop for Inlet<T> {
    fn drop(&mut self) {
        // What it has not heard may hold values, which are dropped where the channel is not locked.
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

/// Carries everything between two halves within memory, until both are done: the second transport of the
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

/// What stands for the receiver at the sender's half.
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

/// The same, once the outlet has its first credits.
pub(crate) fn join_with<T: Send + 'static>(
    outlet: impl SendingHalf<T>,
    inlet: Inlet<T>,
) -> impl Future<Output = ()> + Send {
    inlet.comes_from(outlet.names());
    let mut joint = Joint { outlet, inlet, later: Vec::new(), unread: BTreeSet::new(), receiver_gone: false };
    poll_fn(move |cx| {
        loop {
            // Both sides in turn, so that neither keeps the other from being heard.
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
                // Nothing is on its way: with the receiver gone, all that was offered to it has failed.
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
    /// Offers that the inlet has been granted as they are, [unread](Inlet::offer_unread): they come back
    /// without a value.
    unread: BTreeSet<u64>,
    receiver_gone: bool,
}

impl<T: Send + 'static, O: SendingHalf<T>> Joint<T, O> {
    /// `false`: the sender has gone, and nothing that it has offered is open.
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
                    // Who asks cannot read it. Marked so, it is not what the outlet gives next: that half
                    // gets the value first.
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

    /// What the inlet gives back of an offer. `None`: it had nothing.
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
            // Nothing has to be asked for here.
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

/// Of a channel whose sender a task of the carrier has, in the place of ends at other nodes: what its
/// receiver lacks.
#[derive(Debug)]
pub struct Lack<T>(Weak<Chan<T>>);

impl<T> Lack<T> {
    /// Of the receiver of this sender.
    pub fn of(sender: &Sender<T>) -> Self {
        Self(Arc::downgrade(sender.chan()))
    }

    /// As [`Inlet::unmatched`].
    pub fn unmatched(&self, missing: Option<Arc<dyn Missing>>) {
        if let Some(chan) = self.0.upgrade() {
            chan.set_unmatched(missing);
        }
    }
}
