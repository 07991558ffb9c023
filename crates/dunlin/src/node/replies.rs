//! The replies of calls between nodes: one small message each, without a channel.
//!
//! A place for a reply that a request carries for the first time has no bridge. At the caller's node an
//! [`Awaited`] has the agent of the caller's slot; a reply is decoded into the slot by the task of the socket
//! that it arrives by, or by the one that hands the request over. At the other node a [`Held`] has the slot
//! of the place, and is the waker of the slot: the reply is encoded, and given to the machine, in the call
//! that replies.
//!
//! A reply that is not for one frame, and a place that leaves for a third node, have the channel stretched,
//! with a bridge on each side (`dunlin-proto`'s `channel/replies.rs` has the protocol).

use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;
use dunlin_core::Reason;
use dunlin_core::agent::Event;
use dunlin_core::carrier::{AnyInlet, AnyOutlet, Outbox, Value};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::Replied;
use dunlin_proto::id::{ChannelId, Contact, NodeId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{End, Which, limits};

use super::arrivals::Arrivals;
use super::budget::Budget;
use super::codec::{self, Encoding, catch};
use super::mailboxes::{Giver, through};
use super::state::{
    Awaited, Caller, Delivery, Driver, Errand, Held, Locked, NewReceiver, NewReceiverKind, NewSender, NewSenderKind,
    Replies, ReplySlot, State, Told,
};
use super::work::discard;
use crate::lock::lock;

impl Delivery {
    /// Users' code may run. Nothing is locked.
    pub(super) fn run(self) {
        // A panic in it concerns no caller: only the panic's own message shows it.
        let _ = catch(|| self.deliver());
    }

    fn deliver(self) {
        match self {
            Self::Woken(waker) => waker.wake(),
            Self::Later(later) => drop(later),
            Self::Replied(caller, Replied::Value(reply)) => caller.hear(reply),
            Self::Replied(Caller { inlet, .. }, Replied::Lost) => inlet.down(),
            Self::Replied(caller, Replied::None | Replied::Comes(_)) => drop(caller),
            Self::Unwanted(held) => {
                let outlet = lock(&held.slot).outlet.take();
                outlet.iter().for_each(AnyOutlet::gone);
                discard(outlet);
            }
            Self::Stirred(held) => held.stir(),
        }
    }
}

impl Caller {
    fn hear(self, reply: Bytes) {
        let shape = self.inlet.shape();
        let read = catch(|| {
            if !codec::is_raw(shape) && reply.first() != Some(&0) {
                return Err("it has ends in it".to_owned());
            }
            let decode = || codec::decode(shape, reply, self.encoding).map_err(|error| error.to_string());
            through(self.driver.clone(), Giver::Node(self.from), decode)
        });
        match read.unwrap_or_else(|text| Err(format!("reading it panicked: {text}"))) {
            Ok(value) => {
                self.inlet.credits();
                // (A caller that has gone takes no reply.)
                if let Err(value) = self.inlet.push(value) {
                    discard(value);
                }
            }
            Err(why) => self.inlet.poison(Reason::from(format!("the reply could not be read: {why}"))),
        }
    }
}

/// Wakes the node when a caller is gone.
struct Leaves {
    driver: Weak<Driver>,
    channel: ChannelId,
}

impl Wake for Leaves {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(driver) = self.driver.upgrade() {
            driver.do_soon(Errand::CallerLeaves(self.channel));
        }
    }
}

impl Held {
    /// For the slot of a place that has arrived in a message, which no receiver has yet.
    pub(super) fn new(driver: &Arc<Driver>, channel: ChannelId, outlet: AnyOutlet, encoding: Encoding) -> Arc<Self> {
        let core = outlet.channel();
        let slot = Mutex::new(ReplySlot { outlet: Some(outlet), is_here: false, early: None });
        let held = Arc::new(Self { driver: Arc::downgrade(driver), channel, core, encoding, slot });
        held.stir();
        held
    }

    pub(super) fn core(&self) -> CoreId {
        self.core
    }

    /// The holder of the place has replied, or dropped it. (Or not: then the slot keeps this waker.)
    fn stir(self: &Arc<Self>) {
        let (event, outlet) = {
            let slot = &mut *lock(&self.slot);
            if slot.early.is_none() {
                let Some(outlet) = &mut slot.outlet else { return };
                let waker = Waker::from(self.clone());
                let Poll::Ready(event) = outlet.poll(&mut Context::from_waker(&waker)) else { return };
                slot.early = Some(event);
            }
            let is_over = matches!(slot.early, Some(Event::Gone | Event::Lost));
            // Otherwise the slot, which has this waker, would keep itself alive.
            let outlet = slot.outlet.take_if(|_| is_over || slot.is_here);
            (slot.early.take_if(|_| slot.is_here), outlet)
        };
        match (event, outlet) {
            (Some(event), outlet) => self.tell(event, outlet),
            (None, outlet) => discard(outlet),
        }
    }

    /// Replies. Nothing is locked.
    fn tell(&self, event: Event<Value>, outlet: Option<AnyOutlet>) {
        let Some(driver) = self.driver.upgrade() else { return discard((event, outlet)) };
        let channel = self.channel;
        let reply = match &event {
            Event::FirmOffer(_, value) => self.encode(value),
            _ => None,
        };
        let rest = driver.with(|state, now| match (reply, event, outlet) {
            (Some(reply), event, outlet) => {
                state.release(channel);
                state.machine.reply(now, channel, reply);
                Some((event, outlet))
            }
            (None, Event::Gone, outlet) => {
                state.release(channel);
                state.machine.end_reply(now, channel);
                Some((Event::Gone, outlet))
            }
            (None, event, Some(outlet)) => {
                driver.stretch_held(state, now, channel, outlet, Some(event));
                None
            }
            (None, event, None) => Some((event, None)),
        });
        discard(rest);
    }

    /// `None`: it does not fit in one frame, or cannot be encoded.
    fn encode(&self, value: &Value) -> Option<Bytes> {
        let mut outbox = Outbox::new();
        let encode = || codec::encode(value, self.encoding, limits::REPLY as u64 - 1);
        let body = outbox.encode(|| through(self.driver.clone(), Giver::Nobody, encode)).ok()?;
        let has_ends = outbox.seal().is_ok_and(|sealed| sealed.ends().next().is_some());
        (!has_ends).then_some(body)
    }
}

impl Wake for Held {
    fn wake(self: Arc<Self>) {
        self.stir();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stir();
    }
}

impl State {
    /// A place is not held here any more.
    fn release(&mut self, channel: ChannelId) -> Option<Arc<Held>> {
        let held = self.replies.held.remove(&channel)?;
        if self.by_core.get(&held.core) == Some(&(channel, Which::Sender)) {
            self.by_core.remove(&held.core);
        }
        Some(held)
    }

    /// A request with this place has been taken here. `None`: the place was discarded.
    pub(super) fn hold_place(&mut self, now: Time, channel: ChannelId, held: Option<Arc<Held>>, caller: Contact) {
        if !self.machine.hold_reply(now, channel, caller) {
            // The caller has been notified that the place is lost.
            return self.drop_place(held);
        }
        let Some(held) = held else { return self.machine.end_reply(now, channel) };
        let is_stirred = {
            let slot = &mut *lock(&held.slot);
            slot.is_here = true;
            slot.early.is_some()
        };
        self.by_core.insert(held.core, (channel, Which::Sender));
        if is_stirred {
            self.due.push(Delivery::Stirred(held.clone()));
        }
        self.replies.held.insert(channel, held);
    }

    /// The message with this place was not received here.
    pub(super) fn drop_place(&mut self, held: Option<Arc<Held>>) {
        self.due.extend(held.map(Delivery::Unwanted));
    }

    /// A request with this place goes to that node.
    pub(super) fn expect_reply(&mut self, channel: ChannelId, to: NodeId) {
        self.machine.await_reply(channel, to);
        self.replies.awaited.get_or_insert_with(channel, || Awaited::Asked(None));
    }

    /// A request with this place was not taken, as far as this node knows.
    pub(super) fn forget_reply(&mut self, channel: ChannelId) {
        self.machine.forget_reply(channel);
        if let Some(Awaited::Asked(Some(Replied::Comes(_)))) = self.replies.awaited.remove(&channel) {
            self.machine.forget_home(channel);
            self.forget((channel, Which::Receiver));
        }
    }

    /// A request with this place was taken, but no caller waits for the reply.
    pub(super) fn refuse_reply(&mut self, now: Time, channel: ChannelId) {
        self.machine.refuse_reply(now, channel);
        if let Some(Awaited::Asked(Some(Replied::Comes(_)))) = self.replies.awaited.remove(&channel) {
            self.machine.end_home(now, channel, End::Gone);
            self.forget((channel, Which::Receiver));
        }
    }

    /// All places, as this node ends: nothing goes over them any more.
    pub(super) fn take_replies(&mut self) -> Replies {
        std::mem::take(&mut self.replies)
    }
}

impl Replies {
    pub(super) fn len(&self) -> usize {
        self.awaited.len() + self.held.len()
    }

    /// The node ends. Nothing is locked.
    pub(super) fn end(self) {
        for awaited in self.awaited.into_values() {
            if let Awaited::Caller(Caller { inlet, .. }) = awaited {
                inlet.own_node_leaves();
                inlet.down();
            }
        }
        self.held.into_values().map(Delivery::Unwanted).for_each(Delivery::run);
    }
}

impl Locked<'_> {
    /// The request with this place has been taken by a receiver on another node, and the caller waits.
    /// Returns the reply, if it has come.
    #[must_use = "the reply, if it has come"]
    pub(super) fn await_reply(
        &mut self,
        channel: ChannelId,
        inlet: AnyInlet,
        encoding: Encoding,
        from: NodeId,
    ) -> Option<Delivery> {
        let caller = Caller { inlet, encoding, driver: Arc::downgrade(self.driver), from };
        match self.state.replies.awaited.remove(&channel) {
            Some(Awaited::Asked(Some(Replied::Comes(from)))) => {
                self.driver.stretch_caller(self.state, channel, from, caller);
            }
            Some(Awaited::Asked(Some(replied))) => return Some(Delivery::Replied(caller, replied)),
            Some(Awaited::Asked(None) | Awaited::Caller(_)) | None => {
                self.state.replies.awaited.insert(channel, Awaited::Caller(caller));
                self.driver.caller_stirs(self.state, self.now, channel);
            }
        }
        None
    }

    /// The place with this slot is to leave for another node: its channel is stretched for that.
    /// `None`: there is no such place.
    pub(super) fn stretch_place(&mut self, core: CoreId) -> Option<ChannelId> {
        let (channel, _) = *self.state.by_core.get(&core)?;
        let held = self.state.replies.held.get(&channel).filter(|held| held.core == core)?;
        let outlet = lock(&held.slot).outlet.take()?;
        self.driver.stretch_held(self.state, self.now, channel, outlet, None);
        Some(channel)
    }
}

impl Driver {
    /// A caller may be gone.
    pub(super) fn caller_stirs(self: &Arc<Self>, state: &mut State, now: Time, channel: ChannelId) {
        let Some(Awaited::Caller(caller)) = state.replies.awaited.get(&channel) else { return };
        let waker = Waker::from(Arc::new(Leaves { driver: Arc::downgrade(self), channel }));
        if caller.inlet.poll_gone(&Context::from_waker(&waker)).is_ready()
            && let Some(Awaited::Caller(caller)) = state.replies.awaited.remove(&channel)
        {
            state.machine.refuse_reply(now, channel);
            state.garbage.push(Box::new(caller.inlet));
        }
    }

    fn stretch_caller(self: &Arc<Self>, state: &mut State, channel: ChannelId, from: NodeId, caller: Caller) {
        let Caller { inlet, encoding, .. } = caller;
        let budget = Budget::of(&inlet, state.buffered_max);
        let kind = NewReceiverKind::Reply;
        let receiver = NewReceiver { inlet, budget, credits: 0, encoding, from: Some(from), kind };
        self.stretch_receiver(state, channel, Some(from), receiver);
    }

    /// The machine reports the outcome of a call. Returns what is to be delivered.
    pub(super) fn replied(
        self: &Arc<Self>,
        state: &mut State,
        now: Time,
        channel: ChannelId,
        replied: Replied,
    ) -> Option<Delivery> {
        match (state.replies.awaited.remove(&channel), replied) {
            (Some(Awaited::Caller(caller)), Replied::Comes(from)) => self.stretch_caller(state, channel, from, caller),
            (Some(Awaited::Caller(caller)), replied) => return Some(Delivery::Replied(caller, replied)),
            (Some(Awaited::Asked(_)), replied) => {
                if let Replied::Comes(from) = replied {
                    self.expect(state, (channel, Which::Receiver), Some(from));
                }
                state.replies.awaited.insert(channel, Awaited::Asked(Some(replied)));
            }
            // The caller left while the reply arrived.
            (None, Replied::Comes(_)) => state.machine.end_home(now, channel, End::Gone),
            (None, _) => {}
        }
        None
    }

    /// The machine reports that no caller waits for this reply.
    pub(super) fn unwanted(&self, state: &mut State, channel: ChannelId) -> Option<Delivery> {
        state.release(channel).map(Delivery::Unwanted)
    }

    /// Delivers with what is passed on next, or as soon as nothing is locked.
    pub(super) fn deliver(
        &self,
        deliveries: impl IntoIterator<Item = Delivery>,
        state: &mut State,
        arrivals: Option<&mut Arrivals>,
    ) {
        match arrivals {
            Some(arrivals) => arrivals.deliver(deliveries),
            None => state.due.extend(deliveries),
        }
    }

    /// `first`: what its holder has done.
    fn stretch_held(
        self: &Arc<Self>,
        state: &mut State,
        now: Time,
        channel: ChannelId,
        outlet: AnyOutlet,
        first: Option<Event<Value>>,
    ) {
        let held = state.release(channel);
        match held.and_then(|held| Some((held.encoding, state.machine.stretch_reply(now, channel)?))) {
            Some((encoding, (caller, value_max))) => {
                let kind = NewSenderKind::Reply { value_max, first };
                let sender = NewSender { outlet, home: Some(caller), encoding, kind };
                self.stretch_sender(state, channel, Some(caller), sender);
                state.tell((channel, Which::Sender), Told::Retry);
            }
            None => state.garbage.push(Box::new((outlet, first))),
        }
    }
}
