//! The third transport: two halves that exchange delayed messages.
//!
//! The calls within [`Joined`](crate::Joined) are messages here, in order in each direction, each delivered
//! some polls later. Requests cross with their withdrawals, and the end of one side with messages that the
//! other has just sent. The carrier follows the table in `dunlin_core::agent` as a node does.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll};

use dunlin::agent::{Event, FromReceiver, Inlet, Outlet, Reserved, calls};
use dunlin::{Callee, Caller, Policy, Portable, Reason, Receiver, Sender, channel, channel_with};

use crate::joined::hole;
use crate::kind::Kind;
use crate::transport::{Background, Feature, Transport};

/// Two halves, with messages in flight between them.
#[derive(Clone, Copy, Debug)]
pub struct Apart;

impl Transport for Apart {
    fn name(&self) -> &'static str {
        "apart"
    }

    fn channel<T: Portable>(&self, policy: Policy, spawn: &mut dyn FnMut(Background)) -> (Sender<T>, Receiver<T>) {
        let (sender, far) = channel();
        (sender, apart(far, policy, spawn))
    }

    fn stretch<T: Portable>(&self, receiver: Receiver<T>, spawn: &mut dyn FnMut(Background)) -> Option<Receiver<T>> {
        Some(apart(receiver, Policy::default(), spawn))
    }

    fn call_from<Q: Portable, A: Portable>(
        &self,
        side: usize,
        spawn: &mut dyn FnMut(Background),
    ) -> Option<(Caller<Q, A>, Callee<Q, A>)> {
        let (requests, asked) = self.channel_from(side, Policy::default(), spawn);
        Some(calls(requests, asked))
    }

    fn hole(&self, feature: Feature, kind: &Kind) -> Option<&'static str> {
        hole(feature, kind)
    }
}

/// Returns the receiver of a second half that is joined to `far`.
fn apart<T: Portable>(far: Receiver<T>, policy: Policy, spawn: &mut dyn FnMut(Background)) -> Receiver<T> {
    let (near, receiver) = channel_with(policy);
    let mut carrier = Carrier::new(Outlet::new(far), Inlet::new(near));
    spawn(Box::pin(poll_fn(move |cx| carrier.poll(cx))));
    receiver
}

/// Messages to the receiver's half. They carry the values, so values need not be cloned; a node keeps its
/// values and sends copies.
enum Forth<T> {
    Sent(T),
    Offer(u64, T),
    OfferChoice(u64, u128),
    Grant(u64, u64, T),
    /// The requested offer no longer exists.
    Refuse(u64),
    Withdraw(u64),
    Revoke(u64),
    Retire,
    Poison(Reason),
    Gone,
}

/// Messages to the sender's half.
enum Answer<T> {
    Said(FromReceiver<T>),
    Withdrawn(u64, Option<T>),
    /// The receiver no longer needs the granted value.
    NotWanted(u64, T),
}

struct Carrier<T: Send + 'static> {
    outlet: Outlet<T>,
    inlet: Inlet<T>,
    forth: VecDeque<Forth<T>>,
    back: VecDeque<Answer<T>>,
    /// Requests (ticket, request) for offers whose choice was busy.
    later: Vec<(u64, u64)>,
    receiver_gone: bool,
    random: u32,
}

impl<T: Send + 'static> Carrier<T> {
    fn new(outlet: Outlet<T>, inlet: Inlet<T>) -> Self {
        outlet.credit(inlet.credits());
        let (forth, back) = (VecDeque::new(), VecDeque::new());
        Self { outlet, inlet, forth, back, later: Vec::new(), receiver_gone: false, random: 1 }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(event) = self.outlet.poll(cx) {
            self.hear_sender(event);
        }
        while let Poll::Ready(event) = self.inlet.poll(cx) {
            self.back.push_back(Answer::Said(event));
        }
        if self.forth.is_empty() && self.back.is_empty() {
            return if self.receiver_gone { Poll::Ready(()) } else { Poll::Pending };
        }
        cx.waker().wake_by_ref();
        // Xorshift (Marsaglia, 2003).
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        match self.random % 3 {
            0 => {
                if let Some(message) = self.forth.pop_front()
                    && !self.deliver_forth(message)
                {
                    return Poll::Ready(());
                }
            }
            1 => {
                if let Some(message) = self.back.pop_front() {
                    self.deliver_back(message);
                }
            }
            _ => {}
        }
        Poll::Pending
    }

    fn hear_sender(&mut self, event: Event<T>) {
        self.forth.push_back(match event {
            Event::Sent(value) => Forth::Sent(value),
            Event::FirmOffer(ticket, value) => Forth::Offer(ticket, value),
            Event::ChoiceOffer(ticket, choice) => Forth::OfferChoice(ticket, choice),
            Event::AskedBack(ticket) => {
                self.later.retain(|(later, _)| *later != ticket);
                Forth::Withdraw(ticket)
            }
            Event::Unlocked(ticket) => {
                if let Some(index) = self.later.iter().position(|(later, _)| *later == ticket) {
                    let (_, request) = self.later.remove(index);
                    self.reserve(ticket, request);
                }
                return;
            }
            Event::Watched => return self.inlet.watch_end(),
            Event::Revoke(ticket) => Forth::Revoke(ticket),
            Event::Retired => Forth::Retire,
            Event::Poisoned(reason) => Forth::Poison(reason),
            Event::Gone => Forth::Gone,
            Event::Lost => unreachable!("all of it is on one node"),
        });
    }

    fn reserve(&mut self, ticket: u64, request: u64) {
        match self.outlet.reserve(ticket) {
            Reserved::Granted(value) => self.forth.push_back(Forth::Grant(ticket, request, value)),
            Reserved::Later => self.later.push((ticket, request)),
            Reserved::Gone => self.forth.push_back(Forth::Refuse(ticket)),
        }
    }

    /// Returns `false` if no message can follow.
    fn deliver_forth(&mut self, message: Forth<T>) -> bool {
        match message {
            Forth::Sent(value) => assert!(self.inlet.push(value).is_ok(), "sent without a credit"),
            Forth::Offer(ticket, value) => self.inlet.offer(ticket, value),
            Forth::OfferChoice(ticket, choice) => self.inlet.offer_choice(ticket, choice),
            Forth::Grant(ticket, request, value) => {
                if let Err(value) = self.inlet.grant(ticket, request, value) {
                    self.say_back(Answer::NotWanted(ticket, value));
                }
            }
            Forth::Refuse(ticket) => {
                self.inlet.withdraw(ticket);
            }
            Forth::Withdraw(ticket) => {
                if let Some(value) = self.inlet.withdraw(ticket) {
                    self.say_back(Answer::Withdrawn(ticket, value));
                }
            }
            Forth::Revoke(ticket) => self.inlet.revoke(ticket),
            Forth::Retire => self.inlet.retire(),
            Forth::Poison(reason) => self.inlet.poison(reason),
            Forth::Gone => return false,
        }
        true
    }

    /// Queues an answer behind all events of the receiver's half.
    fn say_back(&mut self, message: Answer<T>) {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(event) = self.inlet.poll(&mut cx) {
            self.back.push_back(Answer::Said(event));
        }
        self.back.push_back(message);
    }

    fn deliver_back(&mut self, message: Answer<T>) {
        let event = match message {
            Answer::Withdrawn(ticket, value) => return self.outlet.withdrawn(ticket, value.map(Into::into)),
            Answer::NotWanted(ticket, value) => return self.outlet.give_back(ticket, value),
            Answer::Said(event) => event,
        };
        match event {
            FromReceiver::Taken(ticket) | FromReceiver::Released(ticket) => self.outlet.taken(ticket),
            FromReceiver::Held(ticket) => self.outlet.held(ticket),
            FromReceiver::Failed(ticket, value, why) => self.outlet.failed(ticket, value.map(Into::into), why),
            FromReceiver::Withdrawn(ticket, value) => self.outlet.withdrawn(ticket, value.map(Into::into)),
            FromReceiver::Lost(ticket, value, id) => {
                value.into_iter().for_each(|value| self.outlet.lost(ticket, value, id))
            }
            FromReceiver::Abort(ticket, value) => {
                value.into_iter().for_each(|value| self.outlet.give_back(ticket, value))
            }
            FromReceiver::Reserve(ticket, request) => self.reserve(ticket, request),
            FromReceiver::Credit(places) => self.outlet.credit(places),
            FromReceiver::Used | FromReceiver::Awaited => {}
            FromReceiver::Retired => self.outlet.retire(),
            FromReceiver::Poisoned(reason) => self.outlet.poison(reason),
            FromReceiver::Gone => {
                self.receiver_gone = true;
                self.outlet.retire();
            }
            FromReceiver::Down => unreachable!("all of it is on one node"),
        }
    }
}
