//! The link of a half whose agent stands by: each word of the half becomes a call of the machine, in the same
//! poll.
//!
//! It is called under the lock of a channel and takes the node's lock: so nothing may lock a channel that has
//! a link while the node is locked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Wake, Waker};

use bytes::Bytes;
use dunlin_core::Why;
use dunlin_core::carrier::Sealed;
use dunlin_core::remote::{Link, ReadPlaces, Request, SentPlaces, Terms, Word};
use dunlin_proto::id::{ChannelId, NodeId, Ticket};
use dunlin_proto::time::Time;

use super::words::failure;
use crate::lock::lock;
use crate::node::bell::EndWaker;
use crate::node::budget::Budget;
use crate::node::codec::Encoding;
use crate::node::id::Half;
use crate::node::message::Leaving;
use crate::node::message::places::{self, Places};
use crate::node::state::{Driver, Guarded, Says, State};

/// Bounds the attempts to link, since some fail, or are given up again: an agent that has had to resume four
/// times, or could not stand by 64 times, is not linked again.
#[derive(Default)]
pub(super) struct Tries(u8);

impl Tries {
    const MAX: u8 = 64;
    const OF_A_LINK: u8 = 16;

    pub(super) fn is_worth_one(&self) -> bool {
        self.0 < Self::MAX
    }

    /// `is_linked`: the agent stands by.
    pub(super) fn count(&mut self, is_linked: bool) {
        self.0 += if is_linked { Self::OF_A_LINK } else { 1 };
    }
}

/// Access to a node's machine in the polls of ends.
pub(in crate::node) trait Machines: Send + Sync {
    /// Calls the machine, where only a channel is locked. The task that is woken next handles the results.
    ///
    /// The time is that of the last reading of the clock, which may be long ago. The machine uses it only to
    /// dial a node that it has lost, and dials late rather than early: when its time is next read.
    fn speak_now(&self, f: &mut dyn FnMut(&mut State, Time));
}

impl Machines for Guarded {
    fn speak_now(&self, f: &mut dyn FnMut(&mut State, Time)) {
        f(&mut self.locked(), self.lately());
    }
}

impl Says<'_> {
    /// A link of this half over the machine. `from`: for a home, where its sending half is. `None`: the half
    /// has ended.
    pub(super) fn link(&self, encoding: Encoding, from: Option<NodeId>) -> Option<Arc<MachineLink>> {
        let bridge = self.speak(|locked| locked.state.waker_of(self.half()))?;
        let node = Arc::downgrade(&self.driver.guarded);
        Some(MachineLink::new(node, Arc::downgrade(self.driver), self.half(), bridge, encoding, from))
    }
}

/// A link to the machine of this node.
pub(in crate::node) struct MachineLink {
    node: Weak<dyn Machines>,
    /// For use where nothing is locked.
    driver: Weak<Driver>,
    half: Half,
    /// How the messages of the channel are encoded.
    encoding: Encoding,
    /// At a home: where the sending half is.
    from: Option<NodeId>,
    /// Wakes the bridge, or the task that handles the machine's events.
    bridge: Arc<EndWaker>,
    /// Offers whose values the machine has not taken, since another request had come meanwhile: they must be
    /// notified that they are no longer reserved.
    refused: Open<()>,
    /// An open offer cannot go over a link: the agent must resume.
    is_stuck: AtomicBool,
    /// The places for replies in requests that are open, at the sending half.
    asked: Open<Leaving>,
    /// The same at the home, for a request that is being taken.
    taking: Open<Places>,
    /// At a home: how much may be buffered. It is locked only under the channel's lock, so the buffered sizes
    /// that it is given are current.
    budget: Mutex<Option<Budget>>,
}

impl MachineLink {
    /// `from`: at a home. `bridge`: wakes the bridge.
    pub(in crate::node) fn new(
        node: Weak<dyn Machines>,
        driver: Weak<Driver>,
        half: Half,
        bridge: Arc<EndWaker>,
        encoding: Encoding,
        from: Option<NodeId>,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            driver,
            half,
            encoding,
            from,
            bridge,
            refused: Open::default(),
            is_stuck: AtomicBool::new(false),
            asked: Open::default(),
            taking: Open::default(),
            budget: Mutex::default(),
        })
    }

    /// Sets the home's budget, which belongs to the link while the agent stands by.
    pub(super) fn set_budget(&self, budget: Option<Budget>) {
        *lock(&self.budget) = budget;
    }

    pub(super) fn take_budget(&self) -> Option<Budget> {
        lock(&self.budget).take()
    }

    /// The next offer that is no longer reserved.
    pub(super) fn next_refused(&self) -> Option<Ticket> {
        self.refused.take_if(|_| true).map(|(ticket, ())| ticket)
    }
}

/// What belongs to open offers, by their tickets. Most links have none.
struct Open<T> {
    kept: Mutex<Vec<(Ticket, T)>>,
    /// There may be some.
    is_used: AtomicBool,
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self { kept: Mutex::default(), is_used: AtomicBool::new(false) }
    }
}

impl<T> Open<T> {
    fn keep(&self, ticket: Ticket, kept: T) {
        lock(&self.kept).push((ticket, kept));
        self.is_used.store(true, Ordering::Release);
    }

    fn take(&self, ticket: Ticket) -> Option<T> {
        self.take_if(|other| other == ticket).map(|(_, taken)| taken)
    }

    fn take_if(&self, is_wanted: impl Fn(Ticket) -> bool) -> Option<(Ticket, T)> {
        if !self.is_used.load(Ordering::Acquire) {
            return None;
        }
        let mut kept = lock(&self.kept);
        let index = kept.iter().position(|(ticket, _)| is_wanted(*ticket))?;
        let taken = kept.swap_remove(index);
        self.is_used.store(!kept.is_empty(), Ordering::Release);
        Some(taken)
    }
}

/// The terms for messages of an end of this encoding, of at most this many bytes.
pub(super) fn terms(encoding: Encoding, value_max: u64) -> Terms {
    Terms { format: encoding.format(), value_max, is_message: true }
}

impl MachineLink {
    /// The machine has not taken the value of this offer.
    fn refuse(&self, ticket: Ticket) {
        self.refused.keep(ticket, ());
    }

    /// Whether an open offer waits for the agent to resume.
    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(Ordering::Acquire)
    }

    pub(super) fn channel(&self) -> ChannelId {
        self.half.0
    }

    pub(super) fn wake_bridge(&self) {
        self.bridge.wake_by_ref();
    }

    /// The driver, where nothing is locked.
    pub(super) fn driver(&self) -> Option<Arc<Driver>> {
        self.driver.upgrade()
    }

    /// The places in this request, whose outcome is known.
    pub(super) fn take_asked(&self, ticket: Ticket) -> Option<Leaving> {
        self.asked.take(ticket)
    }

    /// The machine knows that this request is taken, if it stood until now.
    fn hold_places(&self, ticket: Ticket, is_taken: bool, from: NodeId, state: &mut State, now: Time) {
        let Some(places) = self.taking.take(ticket) else { return };
        // The offer stood until now, so it came in the present life of the connection.
        let giver = state.machine.contact(from);
        for (channel, held) in places {
            if is_taken { state.hold_place(now, channel, held, giver) } else { state.drop_place(held) }
        }
    }

    /// `false`: the machine has not taken a value.
    fn say_to_home(&self, word: Word, state: &mut State, now: Time) -> bool {
        let (channel, machine) = (self.half.0, &mut state.machine);
        match word {
            Word::Offer { ticket, value } => machine.offer(now, channel, ticket, value),
            // Without a place for it the channel is over, which is about to be reported.
            Word::Sent { value } => drop(machine.send_on_credit(now, channel, value)),
            Word::OfferChoice { ticket, choice } => machine.offer_choice(now, channel, ticket, choice),
            Word::Grant { ticket, request, value } => {
                let is_granted = machine.grant(now, channel, ticket, request, value);
                if !is_granted {
                    self.refuse(ticket);
                }
                return is_granted;
            }
            Word::Refuse { ticket } | Word::Withdraw { ticket } => machine.withdraw(now, channel, ticket),
            Word::Revoke { ticket } => machine.revoke(now, channel, ticket),
            word => debug_assert!(false, "no sending half says {word:?} while its agent stands by"),
        }
        true
    }

    fn say_to_sender(&self, word: Word, from: NodeId, state: &mut State, now: Time) {
        let (channel, machine) = (self.half.0, &mut state.machine);
        match word {
            Word::Taken { ticket } => {
                let is_taken = machine.taken(now, channel, from, ticket);
                self.hold_places(ticket, is_taken, from, state, now);
            }
            Word::Held { ticket } => {
                let is_held = machine.held(now, channel, from, ticket);
                self.hold_places(ticket, is_held, from, state, now);
            }
            Word::Released { ticket } => machine.released(now, channel, from, ticket),
            Word::Failed { ticket, why } => machine.failed(now, channel, from, ticket, failure(why)),
            Word::Withdrawn { ticket } => machine.withdrawn(now, channel, from, ticket),
            Word::Reserve { ticket, request } => machine.reserve(now, channel, from, ticket, request),
            Word::Abort { ticket } => machine.abort(now, channel, from, ticket),
            Word::Decline { ticket, request } => machine.decline(now, channel, from, ticket, request),
            word => debug_assert!(false, "no home says {word:?} while its agent stands by"),
        }
    }
}

impl Link for MachineLink {
    fn promise(&self, places: u32, buffered: usize) -> Option<Waker> {
        let (from, node) = (self.from?, self.node.upgrade()?);
        let (values, bytes) = lock(&self.budget).as_mut().map_or((0, 0), |budget| budget.left(buffered));
        let channel = self.half.0;
        node.speak_now(&mut |state, now| {
            state.machine.drained(channel, values, bytes);
            state.machine.credit(now, channel, from, places);
        });
        self.bridge.ring_carrier()
    }

    fn has_come(&self, bytes: usize, buffered: usize) -> Option<u32> {
        lock(&self.budget).as_mut()?.arrived(bytes, buffered)
    }

    fn say(&self, word: Word) -> Option<Waker> {
        let node = self.node.upgrade()?;
        let (mut word, mut is_refused) = (Some(word), false);
        node.speak_now(&mut |state, now| {
            let Some(word) = word.take() else { return };
            match self.from {
                None => is_refused = !self.say_to_home(word, state, now),
                Some(from) => self.say_to_sender(word, from, state, now),
            }
        });
        if is_refused { Some(Waker::from(self.bridge.clone())) } else { self.bridge.ring_carrier() }
    }

    fn write_request(&self, write: &mut dyn FnMut() -> Poll<Result<Bytes, Why>>) -> Poll<Result<Request, Why>> {
        places::write(write).map_ok(|(value, places)| (value, places.map(|places| -> SentPlaces { Box::new(places) })))
    }

    fn request(&self, ticket: Ticket, value: Bytes, places: SentPlaces) -> Option<Waker> {
        let node = self.node.upgrade()?;
        let (channel, mut places) = (self.half.0, places.downcast::<Sealed>().ok());
        node.speak_now(&mut |state, now| {
            let (Some(places), Some(home)) = (places.take(), state.machine.home_of(channel)) else { return };
            if let Some((message, leaving)) = places::leave(&value, *places, self.encoding, home, state) {
                state.machine.offer(now, channel, ticket, message);
                self.asked.keep(ticket, leaving);
            } else {
                self.is_stuck.store(true, Ordering::Release);
                self.refuse(ticket);
            }
        });
        if self.is_stuck() { Some(Waker::from(self.bridge.clone())) } else { self.bridge.ring_carrier() }
    }

    fn read_request(
        &self,
        message: &Bytes,
        read: &mut dyn FnMut(&Bytes) -> Result<(), Why>,
    ) -> Result<ReadPlaces, Why> {
        let driver = self.driver().ok_or(Why::OwnNodeLeft)?;
        Ok(Box::new(places::arrive(message, self.encoding, &driver, read)?))
    }

    fn takes(&self, ticket: Ticket, places: ReadPlaces) {
        if let Ok(places) = places.downcast::<Places>() {
            self.taking.keep(ticket, *places);
        }
    }

    fn takes_not(&self, places: ReadPlaces) -> Option<Waker> {
        let mut places = places.downcast::<Places>().ok();
        let Some(node) = self.node.upgrade() else {
            // It has ended. Nothing is dropped here: a channel is locked.
            places.into_iter().for_each(|places| self.taking.keep(Ticket::MAX, *places));
            return None;
        };
        node.speak_now(&mut |state, _| {
            places.take().into_iter().flat_map(|places| *places).for_each(|(_, held)| state.drop_place(held));
        });
        self.bridge.ring_carrier()
    }

    fn close(&self) -> Option<Waker> {
        None
    }

    fn awaited(&self) -> Option<Waker> {
        self.node.upgrade()?.speak_now(&mut |state, _| state.machine.awaited(self.half.0));
        self.bridge.ring_carrier()
    }
}
