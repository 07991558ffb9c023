//! The carrier of all messages between two halves within memory.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll};

use dunlin_sorted::SortedSet;

use super::{Event, FromReceiver, Given, Names, RawInlet, RawLoneOutlet, RawOutlet, Reserved};
use crate::channel::erased::Erased;
use crate::error::{MessageId, Reason, Why};

/// The receiver's agent at the sender's half.
pub(crate) trait SendingHalf: Send {
    fn names(&self) -> Names;
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Erased>>;
    fn credit(&self, places: u32);
    fn reserve_unread(&self, ticket: u64) -> Reserved<Given<Erased>>;
    fn taken(&self, ticket: u64);
    fn held(&self, ticket: u64);
    fn give_back(&self, ticket: u64, value: Given<Erased>);
    fn failed(&self, ticket: u64, value: Option<Given<Erased>>, why: Why);
    fn withdrawn(&self, ticket: u64, value: Option<Given<Erased>>);
    fn lost(&self, ticket: u64, value: Given<Erased>, id: MessageId);
    fn lose(&self);
    fn retire(&self);
    fn gone(&self);
    fn poison(&self, reason: Reason);
}

macro_rules! sending_half {
    ($($agent:ident)*) => { $(
        impl SendingHalf for $agent {
            fn names(&self) -> Names {
                self.names()
            }

            fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event<Erased>> {
                self.poll(cx)
            }

            fn credit(&self, places: u32) {
                self.credit(places);
            }

            fn reserve_unread(&self, ticket: u64) -> Reserved<Given<Erased>> {
                self.reserve_unread(ticket)
            }

            fn taken(&self, ticket: u64) {
                self.taken(ticket);
            }

            fn held(&self, ticket: u64) {
                self.held(ticket);
            }

            fn give_back(&self, ticket: u64, value: Given<Erased>) {
                self.give_back(ticket, value);
            }

            fn failed(&self, ticket: u64, value: Option<Given<Erased>>, why: Why) {
                self.failed(ticket, value, why);
            }

            fn withdrawn(&self, ticket: u64, value: Option<Given<Erased>>) {
                self.withdrawn(ticket, value);
            }

            fn lost(&self, ticket: u64, value: Given<Erased>, id: MessageId) {
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

sending_half! { RawOutlet RawLoneOutlet }

/// Like [`join`](super::join), once the outlet has its first credits.
pub(crate) fn join(outlet: impl SendingHalf, inlet: RawInlet) -> impl Future<Output = ()> + Send {
    inlet.comes_from(outlet.names());
    let mut joint = Joint { outlet, inlet, later: Vec::new(), unread: SortedSet::new(), receiver_gone: false };
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

struct Joint<O> {
    outlet: O,
    inlet: RawInlet,
    /// Requests (ticket, request) for offers whose choice was busy.
    later: Vec<(u64, u64)>,
    /// Offers granted to the inlet as they are, [unread](RawInlet::offer_unread): they come back without a
    /// value.
    unread: SortedSet<u64>,
    receiver_gone: bool,
}

impl<O: SendingHalf> Joint<O> {
    /// `false`: the sender has gone, and none of its offers is open.
    fn hear_sender(&mut self, event: Event<Erased>) -> bool {
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
    fn back(&mut self, ticket: u64, value: Option<Erased>) -> Option<Given<Erased>> {
        let was_unread = self.unread.remove(&ticket);
        value.map(Given::Value).or(was_unread.then_some(Given::Unread))
    }

    fn hear_receiver(&mut self, event: FromReceiver<Erased>) {
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
