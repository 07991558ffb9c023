//! The link of a half whose agent stands by: each word of the half becomes a call of the machine, in the same
//! poll.
//!
//! It is called under the lock of a channel and takes the node's lock: so nothing may lock a channel that has
//! a link while the node is locked.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Wake, Waker};

use dunlin_core::remote::{Link, Terms, Word};
use dunlin_proto::Machine;
use dunlin_proto::id::{NodeId, Ticket};
use dunlin_proto::time::Time;

use super::words::failure;
use crate::lock::lock;
use crate::node::bell::EndWaker;
use crate::node::budget::Budget;
use crate::node::codec::Encoding;
use crate::node::id::Half;

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
    fn speak_now(&self, f: &mut dyn FnMut(&mut Machine, Time));
}

/// A link to the machine of this node.
pub(in crate::node) struct MachineLink {
    node: Weak<dyn Machines>,
    half: Half,
    /// At a home: where the sending half is.
    from: Option<NodeId>,
    /// Wakes the task that handles the machine's events.
    waker: Waker,
    /// Wakes the bridge.
    bridge: Arc<EndWaker>,
    /// Offers whose values the machine has not taken, since another request had come meanwhile: they must be
    /// notified that they are no longer reserved.
    refused: Mutex<Vec<Ticket>>,
    /// There may be some.
    has_refused: AtomicBool,
    /// At a home: how much may be buffered. It is locked only under the channel's lock, so the buffered sizes
    /// that it is given are current.
    budget: Mutex<Option<Budget>>,
}

impl MachineLink {
    /// `from`: at a home. `bridge`: wakes the bridge.
    pub(in crate::node) fn new(
        node: Weak<dyn Machines>,
        half: Half,
        bridge: Arc<EndWaker>,
        from: Option<NodeId>,
    ) -> Arc<Self> {
        let waker = Waker::from(Arc::new(Task(bridge.clone())));
        Arc::new(Self {
            node,
            half,
            from,
            waker,
            bridge,
            refused: Mutex::default(),
            has_refused: AtomicBool::new(false),
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
        if !self.has_refused.load(Ordering::Acquire) {
            return None;
        }
        let mut refused = lock(&self.refused);
        let next = refused.pop();
        self.has_refused.store(!refused.is_empty(), Ordering::Release);
        next
    }
}

/// The terms for messages of an end of this encoding, of at most this many bytes.
pub(super) fn terms(encoding: Encoding, value_max: u64) -> Terms {
    Terms { format: encoding.format(), value_max, is_message: true }
}

impl MachineLink {
    /// `false`: the machine has not taken a value.
    fn say_to_home(&self, word: Word, machine: &mut Machine, now: Time) -> bool {
        let channel = self.half.0;
        match word {
            Word::Offer { ticket, value } => machine.offer(now, channel, ticket, value),
            // Without a place for it the channel is over, which is about to be reported.
            Word::Sent { value } => drop(machine.send_on_credit(now, channel, value)),
            Word::OfferChoice { ticket, choice } => machine.offer_choice(now, channel, ticket, choice),
            Word::Grant { ticket, request, value } => {
                let is_granted = machine.grant(now, channel, ticket, request, value);
                if !is_granted {
                    let mut refused = lock(&self.refused);
                    refused.push(ticket);
                    self.has_refused.store(true, Ordering::Release);
                }
                return is_granted;
            }
            Word::Refuse { ticket } | Word::Withdraw { ticket } => machine.withdraw(now, channel, ticket),
            Word::Revoke { ticket } => machine.revoke(now, channel, ticket),
            word => debug_assert!(false, "no sending half says {word:?} while its agent stands by"),
        }
        true
    }

    fn say_to_sender(&self, word: Word, from: NodeId, machine: &mut Machine, now: Time) {
        let channel = self.half.0;
        match word {
            Word::Taken { ticket } => drop(machine.taken(now, channel, from, ticket)),
            Word::Held { ticket } => drop(machine.held(now, channel, from, ticket)),
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
        node.speak_now(&mut |machine, now| {
            machine.drained(channel, values, bytes);
            machine.credit(now, channel, from, places);
        });
        Some(self.waker.clone())
    }

    fn has_come(&self, bytes: usize, buffered: usize) -> Option<u32> {
        lock(&self.budget).as_mut()?.arrived(bytes, buffered)
    }

    fn say(&self, word: Word) -> Option<Waker> {
        let node = self.node.upgrade()?;
        let (mut word, mut is_refused) = (Some(word), false);
        node.speak_now(&mut |machine, now| {
            let Some(word) = word.take() else { return };
            match self.from {
                None => is_refused = !self.say_to_home(word, machine, now),
                Some(from) => self.say_to_sender(word, from, machine, now),
            }
        });
        Some(if is_refused { Waker::from(self.bridge.clone()) } else { self.waker.clone() })
    }

    fn close(&self) -> Option<Waker> {
        None
    }

    fn awaited(&self) -> Option<Waker> {
        self.node.upgrade()?.speak_now(&mut |machine, _| machine.awaited(self.half.0));
        Some(self.waker.clone())
    }
}

/// Wakes the task that carries an end's connection.
struct Task(Arc<EndWaker>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.wake_carrier();
    }
}
