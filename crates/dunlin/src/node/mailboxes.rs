//! Mailboxes between nodes: those of this node that others may send to, and those of other nodes that this
//! program has addresses of.
//!
//! A mailbox is opened to others when its address is first encoded, and closed when it is dropped. An address
//! is data in a message: where its mailbox is, and which. It needs no channel and no task. It is encoded and
//! decoded for one node, which [`through`] names: an address that is decoded at the node of its mailbox is
//! the mailbox's own again.
//!
//! Messages are decoded by their receiver. Until then, a [`Receipt`] stands for what the message takes here.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use bytes::Bytes;
use dunlin_proto::id::{Incarnation, Life, MailboxId, NodeId};
use dunlin_proto::wire::{Declaration, Expected, Face, limits};
use dunlin_proto::{Down, NotPosted, PostHears, Source, difference};
use serde::{Deserialize, Serialize};

use super::Node;
use super::events::{Limit, NodeEvent};
use super::id::Half;
use super::peer::Peer;
pub(crate) use super::state::{Delivered, Inbox, Receipt, Remote};
use super::state::{Delivery, Driver, Errand, Mailboxes, RemoteState, State};
use crate::lock::lock;

/// Where the nodes that a node has connections with come from.
pub(crate) struct Sources(Weak<Driver>);

impl Sources {
    /// A node without a connection has no known source.
    pub(crate) fn of(&self, peer: Peer) -> Source {
        let driver = self.0.upgrade();
        driver.map_or(Source::Unknown, |driver| driver.with(|state, _| state.machine.source_of(peer.0.node)))
    }
}

impl Node {
    pub(crate) fn sources(&self) -> Sources {
        Sources(Arc::downgrade(&self.inner.driver))
    }
}

impl Receipt {
    /// Decodes the message for its node.
    pub(crate) fn through<R>(&self, decode: impl FnOnce() -> R) -> R {
        through(self.node.clone(), Giver::Node(self.from.node), decode)
    }

    /// The message cannot be read, and is dropped.
    pub(crate) fn is_unreadable(&self, why: &str) {
        let Some(driver) = self.node.upgrade() else { return };
        let node = self.from.node;
        driver.with(|state, now| {
            let source = state.machine.source_of(node);
            driver.with_hub(state, now, |hub, _| {
                if let Some(peer) = hub.peer(node) {
                    hub.tell_of(NodeEvent::Unreadable { peer, why: why.to_owned() }, source);
                }
            });
        });
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(driver) = self.node.upgrade() {
            let Self { mailbox, from, bytes, .. } = *self;
            driver.do_soon(Errand::Received { mailbox, from, bytes });
        }
    }
}

/// Why a message was not sent.
pub(crate) enum NotSent {
    Full,
    Closed,
    TooLarge { bytes: u64, bytes_max: u64 },
    Mismatch(Arc<str>),
}

impl Remote {
    /// A mailbox that never was.
    pub(crate) fn nowhere() -> Arc<Self> {
        let home = Life { node: NodeId(0), incarnation: Incarnation(0) };
        let state = RemoteState { is_closed: true, ..RemoteState::default() };
        Arc::new(Self {
            node: Weak::new(),
            home,
            id: MailboxId { number: 0, bits: 0 },
            addresses: Vec::new(),
            giver: None,
            state: Mutex::new(state),
        })
    }

    pub(crate) fn id(&self) -> MailboxId {
        self.id
    }

    pub(crate) fn is_closed(&self) -> bool {
        lock(&self.state).is_closed || self.node.upgrade().is_none()
    }

    /// Encodes something for the node that this mailbox is reached through.
    pub(crate) fn through<R>(&self, encode: impl FnOnce() -> R) -> R {
        through(self.node.clone(), Giver::Nobody, encode)
    }

    /// Hands a message to the connection with the mailbox's node.
    pub(crate) fn send(&self, schema: fn() -> Bytes, message: Bytes) -> Result<(), NotSent> {
        let schema = {
            let mut state = lock(&self.state);
            if state.is_closed {
                return Err(NotSent::Closed);
            }
            if let Some(why) = &state.mismatch {
                return Err(NotSent::Mismatch(why.clone()));
            }
            if state.schema.is_empty() {
                drop(state);
                // Tracing runs code of users.
                let traced = schema();
                state = lock(&self.state);
                state.schema = traced;
            }
            state.schema.clone()
        };
        let driver = self.node.upgrade().ok_or(NotSent::Closed)?;
        let posted = driver.with(|state, now| {
            let machine = &mut state.machine;
            if let Some(giver) = self.giver
                && machine.addresses_of(self.home.node).is_empty()
            {
                machine.introduced(self.home.node, giver, &self.addresses);
            }
            machine.post(now, self.home.node, self.id, &schema, message)
        });
        posted.map_err(|why| match why {
            NotPosted::Full => NotSent::Full,
            NotPosted::TooLarge { bytes, bytes_max } => NotSent::TooLarge { bytes, bytes_max },
            _ => NotSent::Closed,
        })
    }

    /// Wakes the operation when there may be room. Call this before the attempt to send.
    pub(crate) fn wait(&self, ticket: &mut Option<u64>, waker: &Waker) {
        let old = {
            let mut state = lock(&self.state);
            let next = state.next;
            let own = *ticket.get_or_insert(next);
            state.next = next.max(own + 1);
            state.waiting.insert(own, waker.clone())
        };
        drop(old);
    }

    /// The operation no longer waits.
    pub(crate) fn leave(&self, ticket: Option<u64>) {
        let own = ticket.and_then(|ticket| lock(&self.state).waiting.remove(&ticket));
        drop(own);
    }

    /// Returns the wakers of the operations that look again.
    fn change(&self, change: impl FnOnce(&mut RemoteState)) -> Vec<Waker> {
        let mut state = lock(&self.state);
        change(&mut state);
        std::mem::take(&mut state.waiting).into_values().collect()
    }
}

/// The fewest entries that are examined for such as are gone.
const SWEEP_MIN: usize = 64;

impl Mailboxes {
    /// The other nodes' mailbox that this place names.
    fn remote(&mut self, node: &Weak<Driver>, place: Place, giver: Option<NodeId>) -> Arc<Remote> {
        let (home, id) = (place.home(), place.id());
        let key = (home.node, id);
        let known = self.there.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.home == home) {
            return known;
        }
        if self.there.len() >= self.sweep_at {
            self.there.retain(|_, remote| remote.strong_count() > 0);
            self.sweep_at = SWEEP_MIN.max(2 * self.there.len());
        }
        let (node, addresses) = (node.clone(), place.5);
        let remote = Arc::new(Remote { node, home, id, addresses, giver, state: Mutex::default() });
        self.there.insert(key, Arc::downgrade(&remote));
        remote
    }

    /// That mailbox, and any that forged addresses name by its number, without its random bits.
    fn known(&self, node: NodeId, number: u64) -> impl Iterator<Item = Arc<Remote>> {
        let [first, last] = [0, u64::MAX].map(|bits| (node, MailboxId { number, bits }));
        self.there.range(first..=last).filter_map(|(_, remote)| remote.upgrade())
    }

    /// The life of the connection with that node is over: what was in transit is lost. Returns what is to be
    /// woken.
    #[must_use]
    pub(super) fn lost(&mut self, node: NodeId, why: &Down) -> Vec<Waker> {
        let is_over = matches!(why, Down::Left | Down::Restarted | Down::Died(_));
        let [first, last] = [0, u64::MAX].map(|number| (node, MailboxId { number, bits: number }));
        let remotes = self.there.range(first..=last).filter_map(|(_, remote)| remote.upgrade());
        remotes.flat_map(|remote| remote.change(|state| state.is_closed |= is_over)).collect()
    }
}

/// Where a mailbox is, in a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place(u64, u64, u64, u64, u64, Vec<String>);

impl Place {
    fn new(home: Life, id: MailboxId, addresses: Vec<String>) -> Self {
        let (node, incarnation) = (home.node.0, home.incarnation.0);
        Self((node >> 64) as u64, node as u64, incarnation, id.number, id.bits, addresses)
    }

    fn home(&self) -> Life {
        let node = NodeId(u128::from(self.0) << 64 | u128::from(self.1));
        Life { node, incarnation: Incarnation(self.2) }
    }

    pub(crate) fn id(&self) -> MailboxId {
        MailboxId { number: self.3, bits: self.4 }
    }

    /// Another node can have written anything.
    fn check(&self) -> Result<(), String> {
        if self.home().node == NodeId(0) || self.2 == 0 {
            return Err("an address has no node".to_owned());
        }
        let is_long = self.5.len() > limits::ADDRESSES || self.5.iter().any(|at| at.len() > limits::ADDRESS);
        if is_long { Err("an address names too many places, or one with too long a name".to_owned()) } else { Ok(()) }
    }

    fn addresses_mut(&mut self) -> &mut Vec<String> {
        &mut self.5
    }
}

/// What a place names.
pub(crate) enum Found {
    /// A mailbox of this node.
    Here(Arc<dyn Inbox>),
    There(Arc<Remote>),
}

/// Which node has sent the message that is decoded.
#[derive(Clone, Copy)]
pub(super) enum Giver {
    Nobody,
    Node(NodeId),
    /// The other node of this channel.
    Over(Half),
}

/// For which node a message is encoded or decoded.
struct Through {
    node: Weak<Driver>,
    giver: Giver,
}

thread_local! {
    static THROUGH: RefCell<Option<Through>> = const { RefCell::new(None) };
}

/// Encodes or decodes a message for this node, so that it may have addresses in it.
pub(super) fn through<R>(node: Weak<Driver>, giver: Giver, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Through>);

    impl Drop for Restore {
        fn drop(&mut self) {
            let own = exchange(self.0.take());
            drop(own);
        }
    }
    let _restore = Restore(exchange(Some(Through { node, giver })));
    f()
}

/// The variable of a thread that is ending is gone: then no address can be written.
fn exchange(value: Option<Through>) -> Option<Through> {
    THROUGH.try_with(|through| through.replace(value)).ok().flatten()
}

/// The node for which a message is encoded or decoded in this thread.
pub(super) fn current() -> Option<(Arc<Driver>, Giver)> {
    let of = |through: &RefCell<Option<Through>>| {
        let through = through.borrow();
        let through = through.as_ref()?;
        Some((through.node.upgrade()?, through.giver))
    };
    THROUGH.try_with(of).ok().flatten()
}

/// A mailbox that is about to be known to other nodes.
pub(crate) struct Opening {
    pub(crate) id: MailboxId,
    pub(crate) schema: Bytes,
    pub(crate) posts_max: u32,
}

/// A node at which a mailbox of this program is open to others.
#[derive(Clone, Debug)]
pub(crate) struct OpenAt(Weak<Driver>);

impl OpenAt {
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// The mailbox of this number has been dropped. May be called from anywhere, also within the node's lock.
    pub(crate) fn close(&self, number: u64) {
        if let Some(driver) = self.0.upgrade() {
            driver.do_soon(Errand::MailboxClosed(number));
        }
    }
}

/// Opens a mailbox of this program to others, and returns how a message names it, and the node it is open at.
/// `None`: no message is being encoded for a node.
pub(crate) fn open(inbox: Arc<dyn Inbox>, opening: Opening) -> Option<(Place, OpenAt)> {
    let (driver, _) = current()?;
    let Opening { id, schema, posts_max } = opening;
    let place = driver.with(|state, _| {
        if state.mailboxes.here.insert(id.number, inbox).is_none() {
            state.machine.open_mailbox(id, schema, posts_max);
        }
        Place::new(state.machine.me(), id, here(state))
    });
    Some((place, OpenAt(Arc::downgrade(&driver))))
}

fn here(state: &State) -> Vec<String> {
    state.machine.addresses_here().iter().take(limits::ADDRESSES).cloned().collect()
}

/// How a message names another node's mailbox. `None`: no message is being encoded for a node.
pub(crate) fn place_of(remote: &Remote) -> Option<Place> {
    let (driver, _) = current()?;
    let known = driver.with(|state, _| state.machine.addresses_of(remote.home.node).to_vec());
    let mut place = Place::new(remote.home, remote.id, known);
    if place.addresses_mut().is_empty() {
        *place.addresses_mut() = remote.addresses.clone();
    }
    place.addresses_mut().truncate(limits::ADDRESSES);
    Some(place)
}

/// The mailbox that a message names.
pub(crate) fn find(place: Place) -> Result<Found, String> {
    place.check()?;
    let Some((driver, giver)) = current() else {
        return Err("an address can only travel inside a message between nodes".to_owned());
    };
    let node = Arc::downgrade(&driver);
    Ok(driver.with(|state, _| {
        if place.home() == state.machine.me() {
            return match state.mailboxes.here.get(&place.id().number) {
                Some(inbox) => Found::Here(inbox.clone()),
                None => Found::There(Remote::nowhere()),
            };
        }
        let giver = match giver {
            Giver::Nobody => None,
            Giver::Node(node) => Some(node),
            Giver::Over(half) => state.stretched.get(&half).and_then(|stretched| stretched.peer),
        };
        Found::There(state.mailboxes.remote(&node, place, giver))
    }))
}

impl Driver {
    pub(super) fn close_mailbox(&self, state: &mut State, number: u64) {
        state.mailboxes.here.remove(&number);
        state.machine.close_mailbox(number);
    }

    /// What the machine reports of mailboxes. Returns what is to be woken.
    #[must_use = "something waits to be woken"]
    pub(super) fn hear_post(self: &Arc<Self>, state: &mut State, heard: PostHears) -> Vec<Delivery> {
        let woken: Vec<Waker> = match heard {
            PostHears::Message(from, number, message) => {
                let (node, bytes) = (Arc::downgrade(self), message.len() as u64);
                let receipt = Receipt { node, mailbox: number, from, bytes };
                // (If the mailbox is closed by now, the drop of the receipt reports that.)
                let Some(inbox) = state.mailboxes.here.get(&number).cloned() else { return Vec::new() };
                let delivered = inbox.clone().deliver(message, receipt);
                let woken = inbox.receiver();
                state.garbage.extend(delivered.dropped);
                if delivered.was_full {
                    let now = self.lately();
                    let source = state.machine.source_of(from.node);
                    self.with_hub(state, now, |hub, _| {
                        if let Some(peer) = hub.peer(from.node) {
                            hub.refuse(NodeEvent::Limit(Limit::Mailbox { peer }), source);
                        }
                    });
                }
                woken.into_iter().collect()
            }
            PostHears::Room(node, number) => {
                state.mailboxes.known(node, number).flat_map(|remote| remote.change(|_| {})).collect()
            }
            PostHears::Closed(node, number) => {
                let close = |remote: Arc<Remote>| remote.change(|state| state.is_closed = true);
                state.mailboxes.known(node, number).flat_map(close).collect()
            }
            PostHears::Mismatch(node, number, schema) => {
                let refuse = |remote: Arc<Remote>| {
                    remote.change(|state| {
                        let why = mismatch(&state.schema, schema.clone());
                        state.mismatch =
                            Some(why.map_or_else(|| "the mailbox's node cannot read them".into(), Arc::from));
                    })
                };
                state.mailboxes.known(node, number).flat_map(refuse).collect()
            }
        };
        woken.into_iter().map(Delivery::Woken).collect()
    }
}

/// Why a receiver with the schema `there` cannot read what a sender with the schema `here` writes. `None`: it
/// can.
pub(crate) fn mismatch(here: &Bytes, there: Bytes) -> Option<String> {
    let declared = |face, schema| Declaration { face, shared: false, expects: Expected::Unknown, schema };
    let difference = difference(&declared(Face::Sender, here.clone()), &declared(Face::Receiver, there))?;
    Some(difference.to_string())
}
