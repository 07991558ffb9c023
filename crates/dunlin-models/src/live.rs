//! The search of code that runs: tasks at several nodes that run `dunlin-core`'s own futures, and the
//! messages that its agents send each other.
//!
//! A future cannot be cloned, so every way is played from its beginning. The search chooses which message
//! arrives next, which user proceeds, when time passes, and when a node is lost. A message may be on its way
//! for any time; messages arrive in order within their channel and direction.
//!
//! A future cannot be inspected, but its state follows from the events at its node, in order. Two ways with
//! the same events at each node therefore lead to the same state, and the search follows only one of them
//! (`Past`).
//!
//! Moves of ends between nodes are modelled: an end in a message is where the message has arrived.
//! `travel.rs` searches those moves.

use std::cell::{Cell, RefCell};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::{Event, FromReceiver, PassedOn, Reserved};
use dunlin_core::carrier::{
    Agent, AnyInlet, AnyOutlet, Format, Inbox, Outbox, Several, Sink, Value, WeakSharedEnd, Write as _, read_value,
};
use dunlin_core::waits::{self, ChannelId};
use dunlin_core::{MessageId, PATIENCE_TICKS, Portable, Why, rendezvous};

use crate::explore::{Broken, Seen};

/// A node's number.
pub type Node = usize;

/// A value that users send: the user, its claim (0: none), and the number of the value.
pub type Word = (u32, u32, u32);

/// The order in which the woken tasks of a node run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Older tasks first.
    #[default]
    First,
    /// Newer tasks first.
    Last,
    /// Any order: the search covers each.
    Any,
}

/// The events that may happen, besides arrivals of messages and steps of users.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The order in which tasks run.
    pub order: Order,
    /// How often time may pass while something else can happen. When nothing else can, time passes in any
    /// case.
    pub ticks: u32,
    /// How many waits users may give up.
    pub drops: u32,
    /// The nodes of which one may be lost.
    pub deaths: &'static [Node],
    /// Whether a message that gives a value back carries that value, as in [`dunlin_core::agent::join`].
    /// Otherwise a node sends a copy, and keeps the value until it knows the outcome.
    pub moves: bool,
    /// Whether users' values stay where they are until their receiver is known: the message names where each
    /// can be read, and the read takes time.
    pub unread: Unread,
    /// Whether the first messages are still on their way when the search begins.
    pub young: bool,
    /// Nodes that faces cannot move to: those nodes use their ends from there.
    pub lends: &'static [Node],
    /// Whether those nodes cannot use them from there either.
    pub refuses: bool,
    /// A planted bug.
    pub plant: Plant,
}

/// Where users' values are while they are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unread {
    /// In the offers.
    #[default]
    No,
    /// At the sender, from where they are read.
    Straight,
    /// The same, but only the keeper of the receiver can read them.
    Unreachable,
}

/// A planted bug, which the laws must find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plant {
    /// None.
    #[default]
    Nothing,
    /// Messages that begin with this text are lost.
    Lost(&'static str),
    /// Messages that begin with this text arrive over all links from or to the same node that accept their
    /// type.
    ToAll(&'static str),
    /// The task of this name is never woken.
    Deaf(&'static str),
    /// A granted value that is no longer wanted is not given back.
    NotGivenBack,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

impl Flag {
    fn woken() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }
}

/// A point where a user waits until the search lets it proceed.
#[derive(Default)]
pub struct Gate {
    wants: Cell<Option<&'static str>>,
    /// Whether this wait counts among those that users may give up.
    gives_up: Cell<bool>,
    is_open: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Gate {
    /// Waits until the search lets the user do this.
    pub async fn pass(&self, what: &'static str) {
        self.wait(what, false).await;
    }

    /// Waits until the search lets the user give up, if ever.
    pub async fn give_up(&self, what: &'static str) {
        self.wait(what, true).await;
    }

    async fn wait(&self, what: &'static str, gives_up: bool) {
        struct Left<'a>(&'a Gate);
        impl Drop for Left<'_> {
            fn drop(&mut self) {
                self.0.wants.set(None);
                self.0.is_open.set(false);
            }
        }
        let _left = Left(self);
        poll_fn(|cx| {
            if self.is_open.get() {
                return Poll::Ready(());
            }
            self.wants.set(Some(what));
            self.gives_up.set(gives_up);
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Waits for `future`, unless the user gives it up: then returns `None`.
    pub async fn unless<F: Future>(&self, what: &'static str, future: F) -> Option<F::Output> {
        let (mut future, mut gate) = (pin!(future), pin!(self.give_up(what)));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => gate.as_mut().poll(cx).map(|()| None),
        })
        .await
    }
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

struct Task {
    name: String,
    future: Running,
    flag: Arc<Flag>,
    gate: Option<Rc<Gate>>,
}

/// A node, and the index of a task or link that began there: the same on all ways with the same events there.
type Key = (Node, u32);

/// A message to the receiver's half.
enum Forth {
    Sent(Value),
    Offer(u64, Value),
    /// An offer whose value stays at its sender, and can be read there.
    Unread(u64, Word),
    OfferChoice(u64, u128),
    Grant(u64, u64, Value),
    GrantUnread(u64, u64, Word),
    Refuse(u64),
    Withdraw(u64),
    Revoke(u64),
    Retire,
    Gone,
}

/// A message to the sender's half.
enum Back {
    Said(FromReceiver<Value>),
    Withdrawn(u64, Option<Value>),
    NotWanted(u64, Option<Value>),
    /// The receiver's half could not read the value.
    Unreadable(u64),
}

/// The values that were offered without their bytes, and may be passed on in the same way.
#[derive(Clone, Default)]
struct Passing(Rc<RefCell<BTreeMap<PassedOn, Word>>>);

/// A channel whose ends are at two nodes: its agents, and the messages between them.
struct Link {
    outlet: Option<AnyOutlet>,
    inlet: Option<AnyInlet>,
    /// The nodes of the sender and the receiver.
    at: (Node, Node),
    flags: (Arc<Flag>, Arc<Flag>),
    forth: VecDeque<Forth>,
    back: VecDeque<Back>,
    /// Requests, by ticket, that cannot be granted yet.
    later: BTreeMap<u64, u64>,
    /// Users' values without an outcome: a node keeps what it has sent.
    kept: BTreeMap<u64, Word>,
    /// The same, for values that the node has not read itself.
    markers: BTreeMap<u64, Value>,
    unread: Unread,
    /// At the receiver's half: values that were offered without their bytes.
    offered_unread: BTreeMap<u64, Word>,
    /// Reads under way there, and the request of each. `None`: for a receive at that node.
    reading: BTreeMap<u64, (Option<u64>, Word)>,
    passing: Passing,
    /// The sending half keeps no values: a message that gives a value back carries it.
    moves: bool,
    /// The channel has a buffer: a send of one value never waits.
    has_places: bool,
    /// Messages that begin with one of these texts cannot be sent.
    refuses: &'static [&'static str],
    receiver_gone: bool,
    /// The node at the other side is lost, and this side has not been notified yet.
    lost: bool,
}

impl Link {
    fn new(outlet: Option<AnyOutlet>, inlet: Option<AnyInlet>, at: (Node, Node)) -> Self {
        let credits = inlet.as_ref().map_or(0, AnyInlet::credits);
        if let Some(outlet) = &outlet {
            outlet.credit(credits);
        }
        let mut link = Self {
            has_places: credits > 0,
            refuses: &[],
            at,
            flags: (Flag::woken(), Flag::woken()),
            forth: VecDeque::new(),
            back: VecDeque::new(),
            later: BTreeMap::new(),
            kept: BTreeMap::new(),
            markers: BTreeMap::new(),
            unread: Unread::No,
            offered_unread: BTreeMap::new(),
            reading: BTreeMap::new(),
            passing: Passing::default(),
            moves: false,
            receiver_gone: false,
            lost: false,
            outlet,
            inlet,
        };
        // The decoder of the end does not need its channels, so the other half learns that this one is gone.
        if link.outlet.is_none() {
            link.forth.push_back(Forth::Gone);
        }
        if link.inlet.is_none() {
            link.back.push_back(Back::Said(FromReceiver::Gone));
        }
        link
    }

    fn keep(&mut self, ticket: u64, value: &Value) {
        if let Some(word) = value.downcast_ref::<Word>() {
            self.kept.insert(ticket, *word);
        }
    }

    /// Collects the messages of the agents that were woken. `true`: there were some.
    fn pump(&mut self) -> bool {
        let mut busy = false;
        while self.outlet.is_some() && self.flags.0.0.swap(false, Relaxed) {
            let waker = Waker::from(self.flags.0.clone());
            while let Some(outlet) = &mut self.outlet
                && let Poll::Ready(event) = outlet.poll(&mut Context::from_waker(&waker))
            {
                busy = true;
                self.hear_sender(event);
            }
        }
        while let Some(inlet) = &mut self.inlet
            && self.flags.1.0.swap(false, Relaxed)
        {
            let waker = Waker::from(self.flags.1.clone());
            while let Poll::Ready(event) = inlet.poll(&mut Context::from_waker(&waker)) {
                busy = true;
                let settled = |event: &FromReceiver<Value>| match event {
                    FromReceiver::Taken(ticket)
                    | FromReceiver::Held(ticket)
                    | FromReceiver::Failed(ticket, ..)
                    | FromReceiver::Withdrawn(ticket, _)
                    | FromReceiver::Lost(ticket, ..)
                    | FromReceiver::Abort(ticket, _) => Some(*ticket),
                    _ => None,
                };
                if let Some(ticket) = settled(&event) {
                    self.offered_unread.remove(&ticket);
                    self.reading.remove(&ticket);
                }
                match (event, &self.outlet) {
                    // No task waits for a credit, which is checked; so its time of arrival does not matter.
                    (FromReceiver::Credit(places), Some(outlet)) => outlet.credit(places),
                    (FromReceiver::Reserve(ticket, _), _) if self.offered_unread.contains_key(&ticket) => {
                        let word = self.offered_unread[&ticket];
                        self.reading.entry(ticket).or_insert((None, word));
                    }
                    (FromReceiver::Reserve(ticket, request), _) if self.reading.contains_key(&ticket) => {
                        self.reading.entry(ticket).and_modify(|(wanted, _)| *wanted = Some(request));
                    }
                    (event, _) => self.back.push_back(Back::Said(event)),
                }
            }
        }
        busy
    }

    fn hear_sender(&mut self, event: Event<Value>) {
        let said = match event {
            Event::Sent(value) => Forth::Sent(value),
            Event::FirmOffer(ticket, value) => {
                let is_of_users = self.is_of_users() || self.inlet.is_none();
                assert!(is_of_users || !self.has_places, "a word has to wait: {}", text(&value));
                if !self.refuses.is_empty()
                    && let said = text(&value)
                    && self.refuses.iter().any(|begin| said.starts_with(begin))
                    && let Some(outlet) = &self.outlet
                {
                    return outlet.failed(ticket, Some(value), Why::Unsendable("it stays".into()));
                }
                self.keep(ticket, &value);
                match value.downcast_ref::<Word>() {
                    Some(word) if self.stays() => Forth::Unread(ticket, *word),
                    _ => Forth::Offer(ticket, value),
                }
            }
            Event::ChoiceOffer(ticket, choice) => Forth::OfferChoice(ticket, choice),
            Event::AskedBack(ticket) => {
                self.later.remove(&ticket);
                Forth::Withdraw(ticket)
            }
            Event::Unlocked(ticket) => {
                if let Some(request) = self.later.remove(&ticket) {
                    self.reserve(ticket, request);
                }
                return;
            }
            // Every end is in use.
            Event::Watched => return,
            Event::Revoke(ticket) => Forth::Revoke(ticket),
            Event::Retired => Forth::Retire,
            Event::Poisoned(reason) => unreachable!("nobody poisons: {reason}"),
            Event::Gone | Event::Lost => {
                self.outlet = None;
                Forth::Gone
            }
        };
        self.forth.push_back(said);
    }

    fn reserve(&mut self, ticket: u64, request: u64) {
        let Some(outlet) = &self.outlet else { return };
        match outlet.reserve(ticket) {
            Reserved::Granted(value) if value.is_unread() => {
                let name = outlet.passed_on(ticket).expect("it came from elsewhere");
                let word = self.passing.0.borrow()[&name];
                self.markers.insert(ticket, value);
                self.forth.push_back(Forth::GrantUnread(ticket, request, word));
            }
            Reserved::Granted(value) => {
                self.keep(ticket, &value);
                self.forth.push_back(match value.downcast_ref::<Word>() {
                    Some(word) if self.stays() => Forth::GrantUnread(ticket, request, *word),
                    _ => Forth::Grant(ticket, request, value),
                });
            }
            Reserved::Later => {
                self.later.insert(ticket, request);
            }
            Reserved::Gone => self.forth.push_back(Forth::Refuse(ticket)),
        }
    }

    /// Whether values stay at this sender's half: the receivers of its offers are elsewhere.
    fn stays(&self) -> bool {
        self.unread != Unread::No && self.inlet.as_ref().is_some_and(AnyInlet::is_demanded)
    }

    /// Completes the first read.
    fn read(&mut self) {
        let Some((ticket, (request, word))) = self.reading.pop_first() else { return };
        let Some(inlet) = &self.inlet else { return };
        let Ok(value) = inlet.shape().wrap(word) else { unreachable!("it is of users") };
        match request {
            None => {
                if inlet.bring(ticket, value).is_ok() {
                    self.offered_unread.remove(&ticket);
                }
            }
            Some(_) if self.unread == Unread::Unreachable && !inlet.is_demanded() => {
                inlet.withdraw(ticket);
                self.say_back(Back::Unreadable(ticket));
            }
            Some(request) => {
                if let Err(value) = inlet.grant(ticket, request, value) {
                    self.say_back(Back::NotWanted(ticket, Some(value)));
                }
            }
        }
    }

    fn deliver_forth(&mut self) {
        let Some(message) = self.forth.pop_front() else { return };
        let Some(inlet) = &mut self.inlet else {
            // Its receiver is gone, and has reported that.
            match message {
                Forth::Offer(ticket, value) | Forth::Grant(ticket, _, value) => {
                    self.back.push_back(Back::Said(FromReceiver::Failed(ticket, Some(value), Why::Closed)));
                }
                Forth::Unread(ticket, _) | Forth::GrantUnread(ticket, ..) => {
                    self.back.push_back(Back::Said(FromReceiver::Failed(ticket, None, Why::Closed)));
                }
                _ => {}
            }
            return;
        };
        match message {
            Forth::Sent(value) => assert!(inlet.push(value).is_ok(), "sent without a credit"),
            Forth::Offer(ticket, value) => inlet.offer(ticket, value),
            Forth::Unread(ticket, word) => {
                self.passing.0.borrow_mut().insert(inlet.passes_on(ticket), word);
                self.offered_unread.insert(ticket, word);
                inlet.offer_unread(ticket);
            }
            Forth::OfferChoice(ticket, choice) => inlet.offer_choice(ticket, choice),
            Forth::GrantUnread(ticket, request, word) => {
                self.passing.0.borrow_mut().insert(inlet.passes_on(ticket), word);
                if !inlet.grant_unread(ticket, request) {
                    self.reading.insert(ticket, (Some(request), word));
                }
            }
            Forth::Grant(ticket, request, value) => {
                if let Err(value) = inlet.grant(ticket, request, value) {
                    self.say_back(Back::NotWanted(ticket, Some(value)));
                }
            }
            Forth::Refuse(ticket) => drop(inlet.withdraw(ticket)),
            Forth::Withdraw(ticket) => {
                if let Some(value) = inlet.withdraw(ticket) {
                    self.offered_unread.remove(&ticket);
                    self.reading.remove(&ticket);
                    self.say_back(Back::Withdrawn(ticket, value));
                }
            }
            Forth::Revoke(ticket) => {
                inlet.revoke(ticket);
                if let Some((Some(_), _)) = self.reading.remove(&ticket) {
                    self.say_back(Back::NotWanted(ticket, None));
                }
            }
            Forth::Retire => inlet.retire(),
            Forth::Gone => self.inlet = None,
        }
    }

    /// Sends a message after those that the receiver's half has already sent.
    fn say_back(&mut self, message: Back) {
        self.flags.1.0.store(true, Relaxed);
        self.pump();
        self.back.push_back(message);
    }

    /// The value of this ticket, if only a copy was sent.
    fn back(&mut self, ticket: u64, copy: Option<Value>) -> Option<Value> {
        if self.moves || !self.is_of_users() {
            return copy;
        }
        if let Some(marker) = self.markers.remove(&ticket) {
            return Some(marker);
        }
        let (word, outlet) = (self.kept.remove(&ticket)?, self.outlet.as_ref()?);
        outlet.shape().wrap(word).ok()
    }

    fn deliver_back(&mut self) {
        let Some(message) = self.back.pop_front() else { return };
        match message {
            Back::Withdrawn(ticket, copy) | Back::Said(FromReceiver::Withdrawn(ticket, copy)) => {
                let value = self.back(ticket, copy);
                self.tell(|outlet| outlet.withdrawn(ticket, value));
            }
            Back::NotWanted(ticket, copy) | Back::Said(FromReceiver::Abort(ticket, copy)) => {
                // If a withdrawal came first, the value has already returned.
                if let Some(value) = self.back(ticket, copy) {
                    self.tell(|outlet| outlet.give_back(ticket, value));
                    // The grant was given up; a later request still stands.
                    if let Some(request) = self.later.remove(&ticket) {
                        self.reserve(ticket, request);
                    }
                }
            }
            Back::Unreadable(ticket) => {
                let value =
                    self.back(ticket, None).map(|value| if value.is_unread() { Value::unreadable() } else { value });
                self.tell(|outlet| outlet.failed(ticket, value, Why::NodeLost));
            }
            Back::Said(FromReceiver::Failed(ticket, copy, why)) => {
                let value = self.back(ticket, copy);
                self.tell(|outlet| outlet.failed(ticket, value, why));
            }
            Back::Said(FromReceiver::Taken(ticket) | FromReceiver::Released(ticket)) => {
                self.kept.remove(&ticket);
                self.markers.remove(&ticket);
                self.tell(|outlet| outlet.taken(ticket));
            }
            Back::Said(FromReceiver::Held(ticket)) => {
                self.kept.remove(&ticket);
                self.markers.remove(&ticket);
                self.tell(|outlet| outlet.held(ticket));
            }
            Back::Said(FromReceiver::Lost(ticket, copy, id)) => {
                let value = self.back(ticket, copy);
                self.tell(|outlet| value.into_iter().for_each(|value| outlet.lost(ticket, value, id)));
            }
            Back::Said(FromReceiver::Reserve(ticket, request)) => self.reserve(ticket, request),
            Back::Said(FromReceiver::Credit(places)) => self.tell(|outlet| outlet.credit(places)),
            Back::Said(FromReceiver::Used | FromReceiver::Awaited) => {}
            Back::Said(FromReceiver::Retired) => self.tell(AnyOutlet::retire),
            Back::Said(FromReceiver::Poisoned(reason)) => unreachable!("nobody poisons: {reason}"),
            Back::Said(FromReceiver::Gone | FromReceiver::Down) => {
                self.receiver_gone = true;
                self.tell(AnyOutlet::gone);
            }
        }
    }

    fn tell(&self, what: impl FnOnce(&AnyOutlet)) {
        if let Some(outlet) = &self.outlet {
            what(outlet);
        }
    }

    fn is_over(&self) -> bool {
        let settled = self.forth.is_empty() && self.back.is_empty();
        self.outlet.is_none() && self.inlet.is_none() || self.receiver_gone && settled
    }

    /// Notifies this side that the other node is lost.
    fn hear_loss(&mut self) {
        if let Some(outlet) = self.outlet.take() {
            let (shape, channel) = (outlet.shape(), 0);
            for (number, word) in std::mem::take(&mut self.kept) {
                if let Ok(value) = shape.wrap(word) {
                    outlet.lost(number, value, MessageId { channel, number });
                }
            }
            for (number, marker) in std::mem::take(&mut self.markers) {
                outlet.lost(number, marker, MessageId { channel, number });
            }
            outlet.down();
        }
        if let Some(inlet) = self.inlet.take() {
            inlet.down();
        }
    }

    /// Whether the channel carries users' messages. Otherwise it is the library's own, and only tasks at its
    /// node touch it.
    fn is_of_users(&self) -> bool {
        let outlet = self.outlet.as_ref().map(AnyOutlet::shape);
        outlet.or_else(|| self.inlet.as_ref().map(AnyInlet::shape)).is_some_and(|shape| shape.is::<Word>())
    }
}

/// The history of a way, without the order of events that commute.
///
/// The tasks at a node may touch everything there: their order counts, and so does what had arrived before
/// them. A message that arrives and wakes no task has touched its channel only: such messages of different
/// channels commute.
#[derive(Clone, Default)]
struct Past {
    ran: BTreeMap<Node, u64>,
    /// Messages since then, by node, channel and end (`true`: the receiver's).
    arrived: BTreeMap<(Node, Key, bool), u64>,
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Past {
    /// Records that tasks of these nodes ran, or may as well have.
    fn ran(&mut self, step: Step, nodes: &BTreeSet<Node>) {
        let mut arrived = self.arrived.clone();
        arrived.retain(|(node, ..), _| nodes.contains(node));
        self.arrived.retain(|(node, ..), _| !nodes.contains(node));
        let before: Vec<_> = nodes.iter().map(|node| self.ran.get(node).copied()).collect();
        let ran = hash((step, before, arrived));
        self.ran.extend(nodes.iter().map(|node| (*node, hash((ran, node)))));
    }

    fn arrived(&mut self, node: Node, link: Key, forth: bool) {
        *self.arrived.entry((node, link, forth)).or_default() += 1;
    }

    fn state(&self) -> u64 {
        hash((&self.ran, &self.arrived))
    }
}

/// A value as bytes, as JSON for people, and the channels whose ends are in it. All are empty if the value
/// cannot be encoded.
fn written(value: &Value) -> (Vec<u8>, String, Vec<ChannelId>) {
    let (mut outbox, mut bytes) = (Outbox::new(), Vec::new());
    if outbox.encode(|| value.write(Format::Cbor, &mut Sink::new(&mut bytes, u64::MAX))).is_err() {
        return Default::default();
    }
    let ends = outbox.seal().map(|sealed| sealed.ends().filter_map(|end| end.channel).collect());
    let json = read_value::<serde_json::Value>(Format::Cbor, &bytes).0.expect("JSON can say what is in it");
    (bytes, json.to_string(), ends.unwrap_or_default())
}

fn text(value: &Value) -> String {
    written(value).1
}

/// The tasks and links that begin while others run.
#[derive(Default)]
struct Begun {
    tasks: Vec<(Key, Task)>,
    links: Vec<(Key, Link)>,
    next: BTreeMap<Node, u32>,
    moves: bool,
    unread: Unread,
    lends: &'static [Node],
    refuses: bool,
    passing: Passing,
    kept: BTreeMap<u128, (Node, WeakSharedEnd)>,
}

/// Starts tasks, and moves ends from one node to another.
#[derive(Clone, Default)]
pub struct Ground(Rc<RefCell<Begun>>);

impl Ground {
    fn key(&self, node: Node) -> Key {
        let mut begun = self.0.borrow_mut();
        let next = begun.next.entry(node).or_default();
        *next += 1;
        (node, *next)
    }

    /// Runs a task at `node`.
    pub fn serve(&self, node: Node, name: impl Into<String>, future: impl Future<Output = ()> + 'static) {
        self.begin(node, name.into(), Box::pin(future), None);
    }

    /// Runs a user at `node`, which proceeds when the search decides.
    pub fn user<F: Future<Output = ()> + 'static>(
        &self,
        node: Node,
        name: impl Into<String>,
        user: impl FnOnce(Rc<Gate>) -> F,
    ) {
        let gate = Rc::new(Gate::default());
        let future = user(gate.clone());
        self.begin(node, name.into(), Box::pin(future), Some(gate));
    }

    fn begin(&self, node: Node, name: String, future: Running, gate: Option<Rc<Gate>>) {
        let key = self.key(node);
        self.0.borrow_mut().tasks.push((key, Task { name, future, flag: Flag::woken(), gate }));
    }

    /// Moves the end from one node to another at once. Messages over its channels take time.
    ///
    /// # Panics
    /// If the end cannot move: no other value may replace it.
    pub fn carry<E: Portable>(&self, from: Node, to: Node, end: E) -> E {
        let mut outbox = Outbox::new();
        let json = outbox.encode(|| serde_json::to_string(&end)).expect("an end can be written");
        let sealed = outbox.seal().expect("it was written");
        let (mut inbox, number) = (Inbox::default(), self.0.borrow().kept.len() as u128 + 1);
        for staged in sealed.ends() {
            match sealed.shared_end(staged.token) {
                Some(shared) => {
                    let number = shared.number(|| number);
                    let mut begun = self.0.borrow_mut();
                    if let Some(kept) = shared.kept() {
                        begun.kept.insert(number, (from, kept));
                    }
                    let here = begun.kept.get(&number).filter(|(at, _)| *at == to).and_then(|(_, end)| end.upgrade());
                    inbox.expect_handle(staged.token, staged.kind, number, here);
                }
                None => inbox.expect(staged.token, staged.kind, rendezvous()),
            }
        }
        let there = inbox.decode(|| serde_json::from_str(&json)).expect("an end can be read");
        let adopted = inbox.into_adopted();
        for (end, adopted) in sealed.commit(end).expect("nobody else has it").into_iter().zip(adopted) {
            self.connect(from, to, end.into_agent(), adopted.agent);
        }
        there
    }

    fn connect(&self, from: Node, to: Node, near: Agent, far: Option<Agent>) {
        let several = |agent| match agent {
            Agent::Several(Several { agents, chore }) => (agents, Some(chore)),
            one => (vec![one], None),
        };
        let (near, near_chore) = several(near);
        let (far, far_chore) = far.map_or((Vec::new(), None), several);
        let mut far = far.into_iter();
        for agent in near {
            let mut link = match (agent, far.next()) {
                (Agent::Outlet(outlet), None) => Link::new(Some(outlet), None, (from, to)),
                (Agent::Inlet(inlet), None) => Link::new(None, Some(inlet), (to, from)),
                (Agent::Outlet(outlet), Some(Agent::Inlet(inlet))) => Link::new(Some(outlet), Some(inlet), (from, to)),
                (Agent::Inlet(inlet), Some(Agent::Outlet(outlet))) => Link::new(Some(outlet), Some(inlet), (to, from)),
                (one, other) => unreachable!("{one:?} does not fit {other:?}"),
            };
            link.moves = self.0.borrow().moves;
            link.unread = self.0.borrow().unread;
            link.passing = self.0.borrow().passing.clone();
            if self.0.borrow().lends.contains(&link.at.1) {
                let refuses = self.0.borrow().refuses;
                link.refuses = if refuses { &["{\"Granted\":{", "{\"Lent\""] } else { &["{\"Granted\":{"] };
            }
            let key = self.key(from);
            self.0.borrow_mut().links.push((key, link));
        }
        if let Some(chore) = near_chore {
            self.serve(from, format!("keeper for {to}"), chore);
        }
        if let Some(chore) = far_chore {
            self.serve(to, format!("desk of {to}"), chore);
        }
    }
}

/// A step that can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Forth(Key),
    Back(Key),
    /// A read at the receiver's half completes.
    Read(Key),
    Go(Key),
    Run(Key),
    Dies(Node),
    Hears(Node),
    Tick,
}

/// The laws, in terms of the users' observations.
pub trait Laws {
    /// Checks every state.
    ///
    /// # Errors
    /// The law that fails.
    fn check(&self) -> Result<(), String>;

    /// Checks a state at rest. `dead`: the node that was lost.
    ///
    /// # Errors
    /// The law that fails.
    fn check_rest(&self, dead: Option<Node>) -> Result<(), String>;

    /// A message of the library's own arrives, or is lost with its receiver's node.
    fn heard(&self, _from: Node, _to: Node, _text: &str) {}

    /// A node is lost.
    fn died(&self, _node: Node) {}
}

/// The start of a world.
pub trait Play {
    /// The laws to check.
    type Laws: Laws;

    /// The events that may happen.
    fn bounds(&self) -> Bounds;

    /// Begins the tasks.
    fn begin(&self, ground: &Ground) -> Self::Laws;
}

struct Stage<L> {
    bounds: Bounds,
    ground: Ground,
    laws: L,
    tasks: BTreeMap<Key, Task>,
    links: BTreeMap<Key, Link>,
    past: Past,
    /// Nodes where tasks have run, or may as well have, in this step.
    ran: BTreeSet<Node>,
    idle: u32,
    dead: Option<Node>,
}

/// How often time passes without effect before the world counts as at rest.
const IDLE_TICKS: u32 = 3;

impl<L: Laws> Stage<L> {
    fn new<P: Play<Laws = L>>(play: &P) -> Self {
        let (ground, bounds) = (Ground::default(), play.bounds());
        ground.0.borrow_mut().moves = bounds.moves;
        ground.0.borrow_mut().unread = bounds.unread;
        ground.0.borrow_mut().lends = bounds.lends;
        ground.0.borrow_mut().refuses = bounds.refuses;
        let laws = play.begin(&ground);
        let mut stage = Self {
            bounds,
            ground,
            laws,
            tasks: BTreeMap::new(),
            links: BTreeMap::new(),
            past: Past::default(),
            ran: BTreeSet::new(),
            idle: 0,
            dead: None,
        };
        stage.settle();
        while !stage.bounds.young
            && let Some(word) =
                stage.steps().into_iter().find(|step| matches!(step, Step::Forth(_) | Step::Back(_) | Step::Read(_)))
        {
            stage.take(word);
        }
        stage
    }

    /// Runs everything that follows from the last step by itself. `true`: something did.
    fn settle(&mut self) -> bool {
        let mut busy = false;
        loop {
            let mut quiet = true;
            let (tasks, links) = {
                let mut begun = self.ground.0.borrow_mut();
                (std::mem::take(&mut begun.tasks), std::mem::take(&mut begun.links))
            };
            self.links.extend(links);
            for (key, task) in tasks {
                self.tasks.insert(key, task);
                self.run(key);
                quiet = false;
            }
            for link in self.links.values_mut() {
                quiet &= !link.pump();
            }
            for link in self.links.values_mut().filter(|link| link.lost) {
                lose(link, &self.laws, self.dead);
            }
            let over: Vec<Key> = self.links.iter().filter(|(_, link)| link.is_over()).map(|(key, _)| *key).collect();
            for link in over.iter().filter_map(|key| self.links.remove(key)) {
                quiet = false;
                if link.is_of_users() {
                    self.ran.extend([link.at.0, link.at.1]);
                }
            }
            if !quiet {
                busy = true;
                continue;
            }
            let mut woken = self.tasks.iter().filter(|(_, task)| task.flag.0.load(Relaxed)).map(|(key, _)| *key);
            let next = match self.bounds.order {
                Order::First => woken.next(),
                Order::Last => woken.next_back(),
                Order::Any => None,
            };
            let Some(next) = next else { return busy };
            self.ran.insert(next.0);
            self.run(next);
            busy = true;
        }
    }

    fn run(&mut self, key: Key) {
        let Some(task) = self.tasks.get_mut(&key) else { return };
        task.flag.0.store(false, Relaxed);
        let waker = match self.bounds.plant {
            Plant::Deaf(name) if task.name == name => Waker::noop().clone(),
            _ => Waker::from(task.flag.clone()),
        };
        // Earlier runs on this thread must have no influence.
        dunlin_core::__rt::renew();
        if task.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&key);
        }
    }

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (key, link) in &self.links {
            // A link to a lost node delivers no more messages.
            if !link.forth.is_empty() && !link.lost {
                steps.push(Step::Forth(*key));
            }
            if !link.back.is_empty() && !link.lost {
                steps.push(Step::Back(*key));
            }
            if !link.reading.is_empty() && !link.lost {
                steps.push(Step::Read(*key));
            }
        }
        for (key, task) in &self.tasks {
            if task.flag.0.load(Relaxed) {
                steps.push(Step::Run(*key));
            } else if let Some(gate) = task.gate.as_ref().filter(|gate| gate.wants.get().is_some())
                && (!gate.gives_up.get() || self.bounds.drops > 0)
            {
                steps.push(Step::Go(*key));
            }
        }
        if self.dead.is_none() {
            steps.extend(self.bounds.deaths.iter().map(|node| Step::Dies(*node)));
        }
        let ears = self.links.values().filter(|link| link.lost);
        let ears: BTreeSet<Node> = ears.map(|link| if link.outlet.is_some() { link.at.0 } else { link.at.1 }).collect();
        steps.extend(ears.into_iter().map(Step::Hears));
        let only_deaths = steps.iter().all(|step| matches!(step, Step::Dies(_)));
        if self.bounds.ticks > 0 || only_deaths && self.idle < IDLE_TICKS {
            steps.push(Step::Tick);
        }
        steps
    }

    /// Whether nothing more happens unless a node is lost.
    fn is_at_rest(&self, steps: &[Step]) -> bool {
        steps.iter().all(|step| matches!(step, Step::Dies(_)))
    }

    fn nodes(&self) -> BTreeSet<Node> {
        let ends = self.links.values().flat_map(|link| [link.at.0, link.at.1]);
        self.tasks.keys().map(|key| key.0).chain(ends).chain(self.past.ran.keys().copied()).collect()
    }

    fn take(&mut self, step: Step) {
        self.ran.clear();
        let mut arrives = None;
        if let Step::Forth(key) | Step::Back(key) = step {
            let (link, forth) = (&self.links[&key], matches!(step, Step::Forth(_)));
            let node = if forth { link.at.1 } else { link.at.0 };
            if link.is_of_users() {
                self.ran.insert(node);
            } else {
                arrives = Some((node, key, forth));
            }
        }
        if step != Step::Tick {
            self.idle = 0;
        }
        match step {
            Step::Forth(key) => self.deliver(key),
            Step::Read(key) => {
                if let Some(link) = self.links.get_mut(&key) {
                    self.ran.insert(link.at.1);
                    link.read();
                }
            }
            Step::Back(key) => {
                if let Some(link) = self.links.get_mut(&key) {
                    if self.bounds.plant == Plant::NotGivenBack && matches!(link.back[0], Back::NotWanted(..)) {
                        link.back.pop_front();
                    } else {
                        link.deliver_back();
                    }
                }
            }
            Step::Go(key) => {
                if let Some(gate) = self.tasks.get(&key).and_then(|task| task.gate.clone()) {
                    gate.is_open.set(true);
                    self.bounds.drops -= u32::from(gate.gives_up.get());
                    let waker = gate.waker.borrow_mut().take();
                    waker.into_iter().for_each(Waker::wake);
                }
                self.ran.insert(key.0);
                self.run(key);
            }
            Step::Run(key) => {
                self.ran.insert(key.0);
                self.run(key);
            }
            Step::Dies(node) => {
                self.ran = self.nodes();
                self.die(node);
            }
            Step::Hears(node) => {
                self.ran.insert(node);
                for link in self.links.values_mut().filter(|link| link.lost) {
                    let at = if link.outlet.is_some() { link.at.0 } else { link.at.1 };
                    if at == node {
                        link.hear_loss();
                    }
                }
            }
            Step::Tick => {
                self.ran = self.nodes();
                self.bounds.ticks = self.bounds.ticks.saturating_sub(1);
                waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS + 1));
                self.idle += 1;
            }
        }
        let busy = self.settle();
        if busy && step == Step::Tick {
            self.idle = 0;
        }
        match arrives {
            Some((node, key, forth)) if !self.ran.contains(&node) => self.past.arrived(node, key, forth),
            _ => {}
        }
        if !self.ran.is_empty() {
            self.past.ran(step, &self.ran);
        }
    }

    /// The other links at which a planted bug delivers this link's next message.
    fn heard_too(&self, key: Key) -> Vec<Key> {
        let Plant::ToAll(begin) = self.bounds.plant else { return Vec::new() };
        let link = &self.links[&key];
        let Some(Forth::Sent(value)) = link.forth.front() else { return Vec::new() };
        let Some(inlet) = link.inlet.as_ref().filter(|_| text(value).starts_with(begin)) else { return Vec::new() };
        let name = inlet.shape().type_name();
        let (from, to) = link.at;
        let accepts = |link: &Link| link.inlet.as_ref().is_some_and(|inlet| inlet.shape().type_name() == name);
        let hears = |link: &Link| (link.at.0 == from || link.at.1 == to) && accepts(link);
        self.links.iter().filter(|(other, link)| **other != key && hears(link)).map(|(other, _)| *other).collect()
    }

    fn deliver(&mut self, key: Key) {
        let others = self.heard_too(key);
        let Some(link) = self.links.get_mut(&key) else { return };
        let (from, to) = link.at;
        let mut bytes = Vec::new();
        if let Some(Forth::Sent(value) | Forth::Offer(_, value) | Forth::Grant(_, _, value)) = link.forth.front()
            && value.downcast_ref::<Word>().is_none()
        {
            let (said, ends);
            (bytes, said, ends) = written(value);
            if matches!(self.bounds.plant, Plant::Lost(begin) if said.starts_with(begin)) {
                link.forth.pop_front();
                return;
            }
            self.laws.heard(from, to, &said);
            if said.starts_with("{\"Lent\"") {
                return self.borrow(key);
            }
            for other in self.links.values_mut() {
                if let Some(outlet) = &other.outlet
                    && ends.contains(&outlet.channel())
                {
                    other.at.0 = to;
                }
                if let Some(inlet) = &other.inlet
                    && ends.contains(&inlet.channel())
                {
                    other.at.1 = to;
                }
            }
        }
        for other in others {
            if let Some(inlet) = self.links.get(&other).and_then(|link| link.inlet.as_ref()) {
                let shape = inlet.shape();
                let copy = Inbox::default().decode(|| shape.read(Format::Cbor, &bytes).0).expect("a word without ends");
                assert!(inlet.push(copy).is_ok(), "it has a place");
            }
        }
        if let Some(link) = self.links.get_mut(&key) {
            link.deliver_forth();
        }
    }

    /// Delivers a message that lends ends: they stay where they are, and are used from where the message
    /// arrives.
    fn borrow(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(&key) else { return };
        let (from, to) = link.at;
        if let (Some(inlet), Some(Forth::Offer(ticket, value))) = (&link.inlet, link.forth.pop_front()) {
            let (mut outbox, mut bytes, mut inbox) = (Outbox::new(), Vec::new(), Inbox::default());
            let written = outbox.encode(|| value.write(Format::Cbor, &mut Sink::new(&mut bytes, u64::MAX)));
            written.expect("it was written before");
            let sealed = outbox.seal().expect("it was written");
            sealed.ends().for_each(|end| inbox.expect(end.token, end.kind, rendezvous()));
            let shape = inlet.shape();
            let borrowed = inbox.decode(|| shape.read(Format::Cbor, &bytes).0).expect("an end can be read");
            let adopted = inbox.into_adopted();
            for (end, adopted) in sealed.commit(value).expect("nobody else has it").into_iter().zip(adopted) {
                self.ground.connect(from, to, end.into_agent(), adopted.agent);
            }
            inlet.offer(ticket, borrowed);
        }
    }

    /// Loses everything at this node, and all its messages that have not arrived.
    fn die(&mut self, node: Node) {
        self.dead = Some(node);
        for link in self.links.values_mut().filter(|link| link.at.0 == node || link.at.1 == node) {
            link.lost = true;
            if link.at.0 == node {
                link.outlet = None;
            }
            if link.at.1 == node {
                link.inlet = None;
            }
            lose(link, &self.laws, self.dead);
        }
        self.laws.died(node);
        self.links.retain(|_, link| !link.is_over());
        self.tasks.retain(|key, _| key.0 != node);
    }

    fn name(&self, step: Step) -> String {
        let mut name = String::new();
        let _ = match step {
            Step::Forth(key) => {
                let link = &self.links[&key];
                let (from, to) = link.at;
                match &link.forth[0] {
                    Forth::Sent(value) => write!(name, "{from} -> {to}: {}", text(value)),
                    Forth::Offer(n, value) => write!(name, "{from} -> {to}: offer {n} of {}", text(value)),
                    Forth::Unread(n, word) => write!(name, "{from} -> {to}: offer {n} of {word:?}, unread"),
                    Forth::GrantUnread(n, _, word) => write!(name, "{from} -> {to}: {n} is granted: {word:?}, unread"),
                    Forth::OfferChoice(n, _) => write!(name, "{from} -> {to}: offer {n}, of a choice"),
                    Forth::Grant(n, _, value) => write!(name, "{from} -> {to}: {n} is granted: {}", text(value)),
                    Forth::Refuse(n) => write!(name, "{from} -> {to}: {n} is refused"),
                    Forth::Withdraw(n) => write!(name, "{from} -> {to}: withdraw {n}"),
                    Forth::Revoke(n) => write!(name, "{from} -> {to}: revoke {n}"),
                    Forth::Retire => write!(name, "{from} -> {to}: retired"),
                    Forth::Gone => write!(name, "{from} -> {to}: gone"),
                }
            }
            Step::Back(key) => {
                let link = &self.links[&key];
                let (to, from) = link.at;
                match &link.back[0] {
                    Back::Said(said) => write!(name, "{from} => {to}: {said:?}"),
                    Back::Withdrawn(n, _) => write!(name, "{from} => {to}: {n} is withdrawn"),
                    Back::NotWanted(n, _) => write!(name, "{from} => {to}: {n} is not wanted"),
                    Back::Unreadable(n) => write!(name, "{from} => {to}: {n} could not be read"),
                }
            }
            Step::Read(key) => {
                let link = &self.links[&key];
                write!(name, "{} has read {:?}", link.at.1, link.reading.first_key_value())
            }
            Step::Go(key) => {
                let task = &self.tasks[&key];
                let what = task.gate.as_ref().and_then(|gate| gate.wants.get()).unwrap_or_default();
                write!(name, "{} {what}", task.name)
            }
            Step::Run(key) => write!(name, "{} runs", self.tasks[&key].name),
            Step::Dies(node) => write!(name, "{node} is lost"),
            Step::Hears(node) => write!(name, "{node} learns of it"),
            Step::Tick => write!(name, "patience runs out"),
        };
        name
    }
}

/// Loses the messages on their way to or from a lost node.
fn lose(link: &mut Link, laws: &impl Laws, dead: Option<Node>) {
    for said in link.forth.drain(..) {
        if let Forth::Sent(value) | Forth::Offer(_, value) = said
            && Some(link.at.1) == dead
        {
            laws.heard(link.at.0, link.at.1, &text(&value));
        }
    }
    link.back.clear();
}

impl<L> Drop for Stage<L> {
    fn drop(&mut self) {
        // Tasks may start others while they are dropped; those are dropped with the ground.
        self.tasks.clear();
        self.links.clear();
    }
}

/// The clock is global to the program, so one search runs at a time.
static CLOCK: Mutex<()> = Mutex::new(());

/// A point on the way: the steps that were possible, and the one taken.
struct Turn {
    steps: Vec<Step>,
    next: usize,
}

fn gone(way: &[Turn]) -> Vec<Step> {
    way.iter().map(|turn| turn.steps[turn.next]).collect()
}

/// Does one step. `Err`: the law that fails then.
fn step<L: Laws>(stage: &mut Stage<L>, step: Step) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| stage.take(step))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text");
        format!("a panic: {text}")
    })?;
    stage.laws.check()
}

/// Takes those of these steps that are possible. Returns the law that fails, and the steps taken.
fn walk<P: Play>(play: &P, way: &[Step]) -> Option<(String, Vec<Step>, Vec<String>)> {
    let mut stage = Stage::new(play);
    let (mut steps, mut names) = (Vec::new(), Vec::new());
    for one in way {
        if !stage.steps().contains(one) {
            continue;
        }
        steps.push(*one);
        names.push(stage.name(*one));
        if let Err(what) = step(&mut stage, *one) {
            return Some((what, steps, names));
        }
    }
    let is_at_rest = stage.is_at_rest(&stage.steps());
    let rest = if is_at_rest { stage.laws.check_rest(stage.dead) } else { Ok(()) };
    rest.err().map(|what| (what, steps, names))
}

/// The law that fails at the end of this way, and the way without the steps it does not need.
fn broken<P: Play>(play: &P, way: Vec<Step>) -> Box<Broken> {
    let Some((mut what, mut steps, mut names)) = walk(play, &way) else {
        return Box::new(Broken { what: "it does not happen a second time".into(), way: Vec::new() });
    };
    let mut at = 0;
    while at < steps.len() {
        let mut fewer = steps.clone();
        fewer.remove(at);
        match walk(play, &fewer).filter(|(_, shorter, _)| shorter.len() < steps.len()) {
            Some(shorter) => (what, steps, names) = shorter,
            None => at += 1,
        }
    }
    Box::new(Broken { what, way: names })
}

/// Searches all states that the start of `play` can lead to, up to `states_max`, depth first. Calls
/// `progress` for every 100,000th.
///
/// # Errors
/// A state that breaks a law, and a way there.
///
/// # Panics
/// If a way does not end.
pub fn search<P: Play>(play: &P, states_max: u64, mut progress: impl FnMut(Seen)) -> Result<Seen, Box<Broken>> {
    let _clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let mut seen = Seen { states: 1, ..Seen::default() };
    let mut way: Vec<Turn> = Vec::new();
    let mut stage = Stage::new(play);
    let mut known = HashSet::from([stage.past.state()]);
    loop {
        // This state is new: collect its next steps.
        let steps = stage.steps();
        seen.depth = seen.depth.max(way.len() as u32);
        assert!(way.len() < 2000, "it goes on for ever");
        if stage.is_at_rest(&steps) {
            seen.rests += 1;
            stage.laws.check_rest(stage.dead).map_err(|_| broken(play, gone(&way)))?;
        }
        way.push(Turn { steps, next: 0 });
        let mut is_here = true;
        loop {
            while way.last().is_some_and(|turn| turn.next == turn.steps.len()) {
                way.pop();
                is_here = false;
                if let Some(turn) = way.last_mut() {
                    turn.next += 1;
                }
            }
            let Some((last, before)) = way.split_last() else { return Ok(seen) };
            if !is_here {
                // Start again from the beginning.
                drop(stage);
                stage = Stage::new(play);
                before.iter().for_each(|turn| stage.take(turn.steps[turn.next]));
            }
            seen.steps += 1;
            step(&mut stage, last.steps[last.next]).map_err(|_| broken(play, gone(&way)))?;
            if known.insert(stage.past.state()) {
                break;
            }
            is_here = false;
            if let Some(turn) = way.last_mut() {
                turn.next += 1;
            }
        }
        seen.states += 1;
        if seen.states.is_multiple_of(100_000) {
            progress(seen);
        }
        if seen.states >= states_max {
            seen.capped = true;
            return Ok(seen);
        }
    }
}
