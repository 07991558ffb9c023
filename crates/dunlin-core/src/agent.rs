//! Agents: how a channel stretches over something that is not memory.
//!
//! A channel whose ends are apart is two halves. The half at the sender has an [`Outlet`] in place of its receiver; the half at
//! the receiver has an [`Inlet`] in place of its sender. Each is just another party at the same queue: neither costs a
//! channel anything that has none. Whoever carries messages (the crate `dunlin`'s nodes, or [`join`] within memory) listens to
//! both and answers:
//!
//! ```text
//!   sender's half                                              receiver's half
//!   FirmOffer(ticket, value)       ── offer ──▶                Inlet::offer
//!   ChoiceOffer(ticket, id)        ── offer, no value ──▶      Inlet::offer_choice
//!   Outlet::reserve      ◀── Reserve ──      value ──▶         Inlet::grant, which may give it back: Outlet::give_back
//!   Outlet::held         ◀── Held ──
//!   Outlet::taken        ◀── Taken, Released ──
//!   Outlet::give_back    ◀── Abort ──
//!   Outlet::failed       ◀── Failed ──
//!   AskedBack(ticket)              ── withdraw ──▶             Inlet::withdraw: Outlet::withdrawn, or it is too late
//!   Revoke(ticket)                 ── revoke ──▶               Inlet::revoke
//! ```
//!
//! The policy, the bounds and the buffer are those of the receiver's half. The protocol is that of section 3 of `docs/choice.md`.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::call::{Callee, Caller, Reply};
use crate::channel::queue::far::{Collected, FromSender};
pub use crate::channel::queue::far::{FromReceiver, Reserved};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::state::Chan;
use crate::choice::decision::Reserver;
use crate::error::{Reason, Why};
use crate::share::{PATIENCE_TICKS, Patient, be_patient};
use crate::waits::{self, ChannelId};

/// What an agent hears from the sending half. Tickets name its offers.
#[derive(Debug)]
pub enum Event<T> {
    /// A send offers this value. The agent has it now and must say what became of it.
    FirmOffer(u64, T),
    /// A choice offers something; its value comes when it is [reserved](Outlet::reserve). The second number is the choice's, for the
    /// order in which choices give way to each other.
    ChoiceOffer(u64, u64),
    /// The sender wants the offer back: it timed out, was dropped, is held back by a claim, or its choice was decided.
    AskedBack(u64),
    /// What answered [`Reserved::Later`] may be tried again.
    Unlocked(u64),
    /// The choice that is reserved would like to decide for another branch.
    Revoke(u64),
    /// The channel was retired from here.
    Retired,
    /// The channel was poisoned from here.
    Poisoned(Reason),
    /// The sender is gone; nothing more will be offered.
    Gone,
}

/// Stands in for the receiver at the half where the sender is.
///
/// Dropped, it is a receiver that is dropped; values it had and did not hand over count as received.
pub struct Outlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
    /// What was buffered here: it goes before everything else.
    buffered: VecDeque<T>,
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
    fn tell(&self, event: FromSender) {
        self.chan.with_queue(|queue, _, after| {
            if let Some(outlet) = &mut queue.outlet {
                outlet.tell(event, &mut after.wakes);
            }
        });
    }
}

impl<T: Send> Reserver for Ticket<T> {
    fn unlocked(&self) {
        self.tell(FromSender::Unlocked(self.ticket));
    }

    fn revoke(&self) {
        self.tell(FromSender::Revoke(self.ticket));
    }
}

impl<T: Send + 'static> Outlet<T> {
    /// Takes the place of a receiver. One that has been in use: what is buffered is the agent's, as the first firm offers
    /// (sent already, so nothing comes of it if they fail), and there is no buffer here from now on; what waits is offered next.
    pub fn new<P>(receiver: Receiver<T, P>) -> Self {
        let chan = receiver.chan().clone();
        let buffered = chan.with_queue(|queue, ends, after| queue.replace_receiver(ends, after));
        // The receiver's end lives on as this.
        receiver.into_outlet();
        Self { chan, buffered }
    }

    /// The channel whose half this stands at, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.chan.record.id()
    }

    /// The next thing the sender's half has to say.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<T>> {
        if let Some(value) = self.buffered.pop_front() {
            return Poll::Ready(Event::FirmOffer(BUFFERED_TICKETS + self.buffered.len() as u64, value));
        }
        self.chan.with_queue(|queue, _, after| {
            loop {
                let Some(outlet) = &mut queue.outlet else { return Poll::Pending };
                let Some(event) = outlet.events.pop_front() else {
                    after.stale.store(&mut outlet.waker, cx.waker());
                    return Poll::Pending;
                };
                return Poll::Ready(match event {
                    FromSender::Offered(ticket) => match queue.collect(ticket) {
                        Collected::Firm(value) => Event::FirmOffer(ticket, value),
                        Collected::Choice(choice) => Event::ChoiceOffer(ticket, choice),
                        // Taken back before anybody noticed it.
                        Collected::Gone => continue,
                    },
                    FromSender::AskedBack(ticket) => Event::AskedBack(ticket),
                    FromSender::Unlocked(ticket) => Event::Unlocked(ticket),
                    FromSender::Revoke(ticket) => Event::Revoke(ticket),
                    FromSender::Retired => Event::Retired,
                    FromSender::Poisoned(reason) => Event::Poisoned(reason),
                    FromSender::Gone => Event::Gone,
                });
            }
        })
    }

    /// Promises an offer of a choice to a receiver elsewhere. [`Reserved::Granted`]: until [`taken`](Self::taken),
    /// [`give_back`](Self::give_back) or [`failed`](Self::failed) no other branch of that choice can happen.
    pub fn reserve(&self, ticket: u64) -> Reserved<T> {
        let reserver: Arc<dyn Reserver> = Arc::new(Ticket { chan: self.chan.clone(), ticket });
        self.chan.with_queue(|queue, _, _| queue.reserve(ticket, &reserver))
    }

    /// A receive elsewhere has returned the value: the send is complete. After [`held`](Self::held): the extended receive is over.
    pub fn taken(&self, ticket: u64) {
        self.chan.with_queue(|queue, _, after| queue.far_took(ticket, false, after));
    }

    /// An extended receive elsewhere has returned the value: the send cannot fail any more, and waits.
    pub fn held(&self, ticket: u64) {
        self.chan.with_queue(|queue, _, after| queue.far_took(ticket, true, after));
    }

    /// The value is not wanted now; the offer stands as it did.
    pub fn give_back(&self, ticket: u64, value: T) {
        self.chan.with_queue(|queue, _, after| queue.far_gave_back(ticket, value, after));
    }

    /// The offer has failed elsewhere. No value: it is still here, or on its way back.
    pub fn failed(&self, ticket: u64, value: Option<T>, why: Why) {
        self.chan.with_queue(|queue, _, after| queue.far_failed(ticket, value, why, after));
    }

    /// The offer that was [asked back](Event::AskedBack) has not been taken. No value: it had none over there.
    pub fn withdrawn(&self, ticket: u64, value: Option<T>) {
        self.chan.with_queue(|queue, _, after| queue.far_withdrew(ticket, value, after));
    }

    /// The channel was retired elsewhere.
    pub fn retire(&self) {
        self.chan.retire();
    }

    /// The channel was poisoned elsewhere.
    pub fn poison(&self, reason: Reason) {
        self.chan.poison(reason);
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
/// Dropped, it is a sender that is dropped: what it offered stays.
pub struct Inlet<T: Send + 'static> {
    chan: Arc<Chan<T>>,
}

impl<T: Send + 'static> fmt::Debug for Inlet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Inlet").field(&self.chan.record.id()).finish()
    }
}

impl<T: Send> Patient for Chan<T> {
    fn patience_ran_out(&self, tick: u32) -> bool {
        self.with_queue(|queue, _, after| {
            queue.release_stale_asks(tick.wrapping_sub(PATIENCE_TICKS), after);
            queue.patient = queue.has_grants();
            queue.patient
        })
    }
}

impl<T: Send + 'static> Inlet<T> {
    /// Takes the place of a sender. What one that has been in use forgot stays offered.
    pub fn new<P>(sender: Sender<T, P>) -> Self {
        let chan = sender.chan().clone();
        chan.with_queue(|queue, ends, _| queue.replace_sender(ends));
        // The sender's end lives on as this.
        sender.into_inlet();
        Self { chan }
    }

    /// The channel whose half this stands at, as in the wait records.
    pub fn channel(&self) -> ChannelId {
        self.chan.record.id()
    }

    /// The next thing the receiver's half has to say.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<FromReceiver<T>> {
        self.chan.with_queue(|queue, _, after| {
            let Some(inlet) = &mut queue.inlet else { return Poll::Pending };
            match inlet.events.pop_front() {
                Some(event) => Poll::Ready(event),
                None => {
                    after.stale.store(&mut inlet.waker, cx.waker());
                    Poll::Pending
                }
            }
        })
    }

    /// Offers a value under a number of the agent's choosing. It comes back as [`FromReceiver::Taken`] or [`FromReceiver::Failed`].
    pub fn offer(&self, number: u64, value: T) {
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(number, Some(value), None, ends, after));
    }

    /// Offers what the choice with the number `choice` would send; the value is asked for by [`FromReceiver::Reserve`].
    pub fn offer_choice(&self, number: u64, choice: u64) {
        self.chan.with_queue(|queue, ends, after| queue.offer_from_far(number, None, Some(choice), ends, after));
    }

    /// Hands over the value that was asked for.
    ///
    /// # Errors
    /// The value, if nobody wants it any more.
    pub fn grant(&self, number: u64, request: u64, value: T) -> Result<(), T> {
        let tick = waits::tick();
        let be_patient_now = self.chan.with_queue(|queue, _, after| {
            queue.grant(number, request, value, tick, after)?;
            Ok(queue.has_grants() && !std::mem::replace(&mut queue.patient, true))
        })?;
        if be_patient_now {
            let patient: Weak<Chan<T>> = Arc::downgrade(&self.chan);
            be_patient(patient);
        }
        Ok(())
    }

    /// Takes an offer back. `Some`: it had not been taken; the value, if it had come. `None`: what became of it is or will be heard.
    pub fn withdraw(&self, number: u64) -> Option<Option<T>> {
        self.chan.with_queue(|queue, _, after| queue.withdraw_from_far(number, after))
    }

    /// Asks for a reservation back; [`FromReceiver::Abort`] answers, unless the value has been taken.
    pub fn revoke(&self, number: u64) {
        self.chan.with_queue(|queue, _, after| queue.revoke(number, after));
    }

    /// The channel was retired elsewhere.
    pub fn retire(&self) {
        self.chan.retire();
    }

    /// The channel was poisoned elsewhere.
    pub fn poison(&self, reason: Reason) {
        self.chan.poison(reason);
    }
}

impl<T: Send + 'static> Drop for Inlet<T> {
    fn drop(&mut self) {
        self.chan.with_queue(|queue, _, _| queue.inlet = None);
        self.chan.sender_gone();
    }
}

/// The ends of a call channel whose requests travel on this channel.
pub fn calls<Q, A>(requests: Sender<(Q, Reply<A>)>, asked: Receiver<(Q, Reply<A>)>) -> (Caller<Q, A>, Callee<Q, A>) {
    (Caller { requests }, Callee { asked })
}

/// Carries everything between two halves within memory, until both are done: the second transport of the laws.
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
pub async fn join<T: Send + 'static>(outlet: Outlet<T>, inlet: Inlet<T>) {
    let mut joint = Joint { outlet, inlet, later: Vec::new() };
    poll_fn(|cx| {
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
                if !joint.hear_receiver(event) {
                    // What was offered after the receiver had gone has failed at once: that stands behind.
                    while let Poll::Ready(event) = joint.inlet.poll(cx) {
                        joint.hear_receiver(event);
                    }
                    return Poll::Ready(());
                }
            }
            if quiet {
                return Poll::Pending;
            }
        }
    })
    .await;
}

struct Joint<T: Send + 'static> {
    outlet: Outlet<T>,
    inlet: Inlet<T>,
    /// Requests (ticket, request) for offers whose choice was busy.
    later: Vec<(u64, u64)>,
}

impl<T: Send + 'static> Joint<T> {
    /// `false`: the sender has gone. What it left is still offered over there.
    fn hear_sender(&mut self, event: Event<T>) -> bool {
        match event {
            Event::FirmOffer(ticket, value) => self.inlet.offer(ticket, value),
            Event::ChoiceOffer(ticket, choice) => self.inlet.offer_choice(ticket, choice),
            Event::AskedBack(ticket) => {
                self.later.retain(|(later, _)| *later != ticket);
                if let Some(value) = self.inlet.withdraw(ticket) {
                    self.outlet.withdrawn(ticket, value);
                }
            }
            Event::Unlocked(ticket) => {
                if let Some(index) = self.later.iter().position(|(t, _)| *t == ticket) {
                    let (_, request) = self.later.remove(index);
                    self.reserve(ticket, request);
                }
            }
            Event::Revoke(ticket) => self.inlet.revoke(ticket),
            Event::Retired => self.inlet.retire(),
            Event::Poisoned(reason) => self.inlet.poison(reason),
            Event::Gone => return false,
        }
        true
    }

    fn reserve(&mut self, ticket: u64, request: u64) {
        match self.outlet.reserve(ticket) {
            Reserved::Granted(value) => {
                if let Err(value) = self.inlet.grant(ticket, request, value) {
                    self.outlet.give_back(ticket, value);
                }
            }
            Reserved::Later => self.later.push((ticket, request)),
            Reserved::Gone => {
                self.inlet.withdraw(ticket);
            }
        }
    }

    /// `false`: the receiver has gone. All that was offered to it has failed before.
    fn hear_receiver(&mut self, event: FromReceiver<T>) -> bool {
        match event {
            FromReceiver::Taken(ticket) | FromReceiver::Released(ticket) => self.outlet.taken(ticket),
            FromReceiver::Held(ticket) => self.outlet.held(ticket),
            FromReceiver::Failed(ticket, value, why) => self.outlet.failed(ticket, value, why),
            FromReceiver::Abort(ticket, value) => self.outlet.give_back(ticket, value),
            FromReceiver::Reserve(ticket, request) => self.reserve(ticket, request),
            FromReceiver::Retired => self.outlet.retire(),
            FromReceiver::Poisoned(reason) => self.outlet.poison(reason),
            FromReceiver::Gone => return false,
        }
        true
    }
}
