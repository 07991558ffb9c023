//! What every part of a node works on: what is behind its lock, the channels that reach other nodes, and the
//! words that are said to them.
//!
//! Everything of a node is behind one lock ([`State`]). Nobody waits while holding it, and no code of users
//! runs then: that does in the work on channels (`work.rs`). What a [`Driver`] does, and how, is above this
//! file, each in its own: `driver.rs`, `work.rs`, `leaving.rs`, `ending.rs`, `bridge/`, `hub/`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake};
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::Why;
use dunlin_core::agent::PassedOn;
use dunlin_core::carrier::{AnyInlet, AnyOutlet, CarriedEnd};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::id::{ChannelId, Contact, DialId, NodeId, SocketId, Ticket};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, End, Failure, Terms, Which};
use dunlin_proto::{Closed, HomeHears, Machine, ProxyHears};
use ipnet::IpNet;
use tokio::sync::{oneshot, watch};

use super::applicant::{Applicant, Authorize};
use super::bell::{Bell, EndWaker};
use super::bridge::link::{MachineLink, Machines};
use super::codec::Encoding;
use super::events::{Limit, NodeEvent};
use super::hub::{Hub, Reclaimed};
use super::id::Half;
use super::log::{Line, Log};
use super::message::kept::{Kept, Passing, Shelf};
use super::trim::Trim;
use super::unsaid::{Abandoned, Flush, Losses};
use super::watch::{Serves, Watch};
use crate::lock::lock;
use crate::net::{Networks, PeerIdentity, Source};
use crate::world::Clock;

pub(crate) struct State {
    pub(crate) machine: Machine,
    // Boxed: a node of a B-tree is a third empty, or more.
    pub(super) stretched: BTreeMap<Half, Box<Stretched>>,
    /// The halves here, by their channels in the core.
    pub(super) by_core: BTreeMap<CoreId, Half>,
    /// Channels in the core of which an end is in a message for the first time, and how they are named there.
    pub(super) first: BTreeMap<CoreId, ChannelId>,
    /// Channels whose ends messages wait for, to be at rest, and the halves that have those messages.
    pub(super) awaited: BTreeMap<ChannelId, BTreeSet<Half>>,
    /// Ends in messages that are here and perhaps received, though that is yet to be said; by their channels
    /// in the core.
    pub(super) arriving: BTreeMap<CoreId, ChannelId>,
    /// Receivers that have come back from a message of this node's, and through others, before it was known
    /// that it had been taken. `None`: nobody wanted it.
    pub(super) returned: BTreeMap<ChannelId, Option<AnyInlet>>,
    /// Messages that are here, with ends in them or unread, and not received, and may go on to another node
    /// as they are.
    pub(super) passing: BTreeMap<PassedOn, Passing>,
    pub(crate) kept: Kept,
    pub(crate) shelf: Shelf,
    /// Homes that are over here, until their senders have noticed, and how messages are written on them: what
    /// is on its way on credits has gone for those who sent it, and the ends in it are dropped here.
    pub(super) late: BTreeMap<ChannelId, Encoding>,
    pub(super) sockets: BTreeMap<SocketId, Entry>,
    pub(super) next_socket: u64,
    pub(super) trim: Trim,
    /// Sockets that are to be closed once what they still have to say is written.
    pub(super) parting: BTreeMap<SocketId, Closed>,
    pub(super) dials: Vec<(DialId, String)>,
    /// Whether other nodes may have connections with this one. `None`: all may.
    pub(super) authorize: Option<Authorize>,
    /// About whom that is to be asked.
    pub(super) applicants: Vec<(Authorize, SocketId, Applicant)>,
    /// The time that the clock task waits for.
    pub(super) alarm: Option<Time>,
    /// When the hub wants to be called.
    pub(super) hub_alarm: Option<Time>,
    /// `None` while it is spoken to.
    pub(crate) hub: Option<Box<Hub>>,
    /// So many bytes of a channel's values may lie here.
    pub(crate) buffered_max: u64,
    /// Values of so many bytes or more, of which receivers are elsewhere, are not sent here.
    pub(crate) straight_min: u64,
    /// Each socket from these is a source of its own.
    pub(crate) trusted_sources: Vec<IpNet>,
    /// Want to know when all that was said has been heard.
    pub(super) flushed: Vec<oneshot::Sender<()>>,
    /// Want to know when this node has to answer for nothing that it has handed on.
    pub(super) settled: Vec<oneshot::Sender<()>>,
    /// Want to know when what had been said by some moment has been heard.
    pub(super) flushes: Vec<Flush>,
    /// What could not be written after its send was complete.
    pub(super) unwritten: Losses,
    /// What nobody needs any more, and may be users'. It is dropped where nothing is locked.
    pub(crate) garbage: Vec<Box<dyn Send>>,
    /// How many heaps of it, and bridges that are over, are being dropped.
    pub(super) clearing: usize,
    /// Receivers that have come and have not been used, and until when they may go on so.
    pub(super) resting: VecDeque<(Time, ChannelId)>,
    /// What people are to read: written where nothing is locked, too.
    pub(crate) lines: Vec<Line>,
}

/// A socket.
pub(super) struct Entry {
    pub(super) bell: Arc<Bell>,
    pub(super) post: Weak<dyn Serves>,
    /// Who is at its other end, for people to read.
    pub(super) peer: String,
    pub(super) source: Source,
    /// Where it was dialled. `None`: it was accepted.
    pub(super) dialled: Option<String>,
    pub(super) identity: Option<PeerIdentity>,
    pub(super) is_local: bool,
}

pub(crate) struct Driver {
    /// Which node of this program it is: no two have one number.
    pub(super) number: u64,
    pub(super) guarded: Arc<Guarded>,
    /// What the hub is to do, said where it may be locked.
    pub(super) errands: Mutex<Vec<Errand>>,
    /// No handle of the node is left: what has to be done for it to leave.
    pub(super) abandoned: Mutex<Option<Abandoned>>,
    /// The runtime ends soon: a node that leaves does not wait for others any more.
    pub(super) hurries: watch::Sender<bool>,
    pub(crate) bell: Arc<Bell>,
    pub(super) watch: Watch,
    pub(super) networks: Networks,
    /// So long a dial may take: a network that drops what is sent to it answers nothing.
    pub(super) dial_max: Duration,
    pub(super) closing: AtomicBool,
    pub(crate) log: Log,
}

/// The state of a node and its clock. The links of channels know this part only: one that is the last to let
/// go of it does so while a channel is locked, so nothing of users, and no end, may be left in it then.
pub(super) struct Guarded {
    pub(super) clock: Clock,
    /// When the clock was last read.
    pub(super) read: AtomicU64,
    pub(super) state: Mutex<State>,
    /// How often it was locked.
    #[cfg(test)]
    pub(super) locks: AtomicU64,
}

impl Guarded {
    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        self.locks.fetch_add(1, Ordering::Relaxed);
        lock(&self.state)
    }

    pub(super) fn now(&self) -> Time {
        let now = self.clock.now();
        self.read.store(now.0, Ordering::Relaxed);
        now
    }
}

impl Machines for Guarded {
    fn speak_now(&self, f: &mut dyn FnMut(&mut Machine, Time)) {
        let now = self.now();
        f(&mut self.locked().machine, now);
    }
}

/// What the hub is to do about a declaration.
pub(super) enum Errand {
    /// Nothing waits for it any more.
    Undeclare(u64),
    /// It waits, and has been used, or dropped.
    Stirs(u64),
    /// It is a client whose server was lost: it waits for the next.
    DeclareAnew(Reclaimed),
}

/// A node that is locked.
pub(crate) struct Locked<'a> {
    pub(crate) driver: &'a Arc<Driver>,
    pub(crate) state: &'a mut State,
    pub(crate) now: Time,
}

impl Locked<'_> {
    /// A message on `carrying` waits until what is garbage now has been dropped. `false`: there is none.
    pub(crate) fn wait_for_garbage(&mut self, carrying: Half) -> bool {
        let is_there = self.state.clearing > 0 || !self.state.garbage.is_empty();
        if is_there {
            let behind = Behind { driver: Arc::downgrade(self.driver), carrying };
            self.state.garbage.push(Box::new(behind));
        }
        is_there
    }
}

/// Dropped with the garbage: the message that waits for that is written now.
struct Behind {
    driver: Weak<Driver>,
    carrying: Half,
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.upgrade() {
            driver.speak(|locked| locked.state.tell(self.carrying, Told::Retry));
        }
    }
}

impl Driver {
    pub(super) fn locked(&self) -> MutexGuard<'_, State> {
        self.guarded.locked()
    }

    /// What the links of this node's channels speak to.
    pub(super) fn guarded(&self) -> &Arc<Guarded> {
        &self.guarded
    }

    /// Which node this is.
    pub(crate) fn me(&self) -> NodeId {
        self.locked().machine.me().node
    }

    pub(crate) fn now(&self) -> Time {
        self.guarded.now()
    }

    /// When the clock was last read. That is done before each work, and while one goes on as often as
    /// somebody looks after it: to read it for every word would cost more than the word.
    pub(super) fn lately(&self) -> Time {
        Time(self.guarded.read.load(Ordering::Relaxed))
    }

    /// Speaks to the machine, with the time of [lately](Self::lately). What it says is done by who
    /// [acts](Self::act) next.
    pub(super) fn speak<R>(self: &Arc<Self>, f: impl FnOnce(&mut Locked<'_>) -> R) -> R {
        let mut state = self.locked();
        let now = self.lately();
        f(&mut Locked { driver: self, state: &mut state, now })
    }
}

impl State {
    /// Tells the bridge of a channel, when nobody works on that.
    pub(crate) fn tell(&mut self, half: Half, told: Told) {
        match self.stretched.get_mut(&half) {
            Some(stretched) => stretched.tell(told),
            None => self.garbage.push(Box::new(told)),
        }
    }

    pub(super) fn waker_of(&self, half: Half) -> Option<Arc<EndWaker>> {
        self.stretched.get(&half).map(|stretched| stretched.waker.clone())
    }
}

/// What a bridge is told.
pub(crate) enum Told {
    /// A sending half has spoken to this home.
    Home(Contact, HomeHears),
    /// The home has spoken to this sending half.
    Proxy(ProxyHears),
    /// The connection has lost its socket, and may come back.
    ConnectionLost,
    /// What it waits for may have happened.
    Retry,
    /// Its agent is to go on, if it stands by.
    Unlink,
    /// Its other end is found.
    Matched,
    /// The receiver of this home has left in a message.
    Lent(CarriedEnd),
    /// This offer to the home is to go on to another node, and the ends in it cannot.
    Onward(Ticket),
    /// The value under this number has been [read](super::message::read). `None`: it could not be.
    Read(Ticket, Option<Bytes>),
    /// The bridge is needed elsewhere; the channel is over here.
    Take(Taking),
    /// It is dropped once all has been said that the end has to say now.
    Until(Arc<oneshot::Sender<()>>),
}

/// What is to be done with a bridge. Nothing is locked then.
pub(crate) type Taking = Box<dyn FnOnce(&Arc<Driver>, Box<dyn Bridge>) + Send>;

/// A channel of this node that reaches another one.
pub(crate) struct Stretched {
    /// `None`: somebody works on it, or it has not [come yet](State::expect).
    pub(super) bridge: Option<Box<dyn Bridge>>,
    /// Its channel in the core, and how messages are written on it.
    pub(super) core: Option<(CoreId, Encoding)>,
    pub(super) waker: Arc<EndWaker>,
    /// The other node, once it is known.
    pub(super) peer: Option<NodeId>,
    pub(super) told: VecDeque<Told>,
    /// Something came up while somebody was working on it.
    pub(super) again: bool,
    /// Its next works are done on a thread of their own.
    pub(super) wary: u32,
    /// Its next work is not a [quick](QuickJob) one.
    pub(super) is_slow: bool,
    /// Where its last quick work was among those that were begun with it.
    pub(super) quick: usize,
    pub(super) expected: bool,
}

impl Stretched {
    pub(super) fn tell(&mut self, told: Told) {
        self.told.push_back(told);
        // Who works on it looks when that is done.
        if self.bridge.is_some() {
            self.waker.wake_by_ref();
        }
    }
}

/// A channel of this node that reaches another one.
pub(crate) trait Bridge: Send {
    /// Of which end of its channel the agent speaks.
    fn which(&self) -> Which;
    /// Its channel in the core, and how messages are written on it.
    fn core(&self) -> Option<(CoreId, Encoding)>;
    /// Whether it has nothing that it has yet to say.
    fn rests(&self) -> bool;
    /// Whether it has yet to say messages for which nobody waits: their sends are complete, or those who made
    /// them gone.
    fn owes(&self) -> bool {
        false
    }
    /// How many values it has yet to say of which the sends are complete.
    fn unsaid(&self) -> usize {
        0
    }
    /// Passes on what the agent has to say. `Ready`: the bridge is over.
    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()>;
    /// How messages are written whose ends somebody has to answer for also when this bridge is over. `None`:
    /// there are none.
    fn late_values(&self) -> Option<Encoding> {
        None
    }
    /// Whether its agent stands by, so that it does little and runs no code of users.
    fn is_quick(&self) -> bool {
        false
    }
    /// The agent goes on, if it stands by.
    fn unlink(&mut self, _: &Says<'_>) {}
    /// # Errors
    /// What it was told, if that takes longer.
    fn hear_quickly(&mut self, told: Told) -> Result<(), Told> {
        Err(told)
    }
    /// `false`: it has to be [polled](Self::poll).
    fn poll_quickly(&mut self, _: &Context<'_>) -> bool {
        false
    }
    /// The channel's home has spoken to this sending half.
    fn hear_home(&mut self, heard: ProxyHears, says: &Says<'_>);
    /// A sending half has spoken to this home.
    fn hear_sender(&mut self, from: Contact, heard: HomeHears, says: &Says<'_>);
    /// A sender that one of its messages waits for may be at rest.
    fn retry(&mut self, _: &Says<'_>) {}
    /// Its other end is found: a deadline does not ask any more what is missing.
    fn matched(&mut self) {}
    /// The receiver of this home has left in a message.
    fn lent(&mut self, _: CarriedEnd, _: &Says<'_>) {}
    /// This offer to the home is to go on to another node, and the ends in it cannot: it has to be made anew.
    fn onward(&mut self, _: Ticket, _: &Says<'_>) {}
    /// The value under this number has been read. `None`: it could not be.
    fn read(&mut self, _: Ticket, _: Option<Bytes>, _: &Says<'_>) {}
    /// The connection has lost its socket, and may come back.
    fn connection_lost(&mut self, says: &Says<'_>);
    /// The sender turns out to be on this node as well: the inlet, and how many credits it has given.
    fn into_home(self: Box<Self>) -> Option<(AnyInlet, u32)> {
        None
    }
    /// The home of this sending half is on this node: its outlet.
    fn into_outlet(self: Box<Self>) -> Option<AnyOutlet> {
        None
    }
    /// The home of this sending half is on that node.
    fn connected(&mut self, _home: NodeId, _declared: Declaration) {}
    /// How many bytes each message of this sending half has, about, if that is known before there is one: it
    /// owns no memory beside itself.
    fn value_bytes(&self) -> Option<u64> {
        None
    }
    /// The sender of this half has left: nothing is heard of it any more.
    fn depart(self: Box<Self>) {}
    /// The end cannot be what its holder has declared.
    fn poison(&mut self, text: &str);
    /// A message panicked in what was last asked of this bridge.
    fn fail(&mut self, text: &str, says: &Says<'_>);
}

/// A sender here whose channel reaches another node from now on.
pub(crate) struct NewSender {
    pub(super) outlet: AnyOutlet,
    /// Where its receiver is, if that is known.
    pub(super) home: Option<NodeId>,
    pub(super) encoding: Encoding,
    pub(super) kind: NewSenderKind,
}

pub(crate) enum NewSenderKind {
    /// Its channel was of this node alone.
    OfThisNode,
    /// A place for a reply: the home's terms are known without a word.
    Reply { value_max: u64 },
    /// It has come in a message. `granted`: if its home knows it already. `has_retired`: it is back here,
    /// where it has retired the channel.
    Arrived { granted: Option<(Terms, u32)>, is_reply: bool, has_retired: bool },
}

/// A receiver here whose channel reaches another node from now on.
pub(crate) struct NewReceiver {
    pub(super) inlet: AnyInlet,
    /// So many values may come before more are asked for.
    pub(super) credits: u32,
    pub(super) encoding: Encoding,
    /// Where its sender is, if that is known.
    pub(super) from: Option<NodeId>,
    pub(super) kind: NewReceiverKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewReceiverKind {
    /// Its channel was of this node alone.
    OfThisNode,
    /// A place for a reply.
    Reply,
    /// It has come in a message. Its channel stays where it is until it is used.
    Visiting,
}

/// What a bridge speaks to.
pub(crate) struct Says<'a> {
    pub(super) driver: &'a Arc<Driver>,
    pub(crate) channel: ChannelId,
    pub(super) which: Which,
}

impl Says<'_> {
    pub(crate) fn half(&self) -> Half {
        (self.channel, self.which)
    }

    /// A link of this half over the machine. `from`: of a home, where its sending half is. `None`: the half
    /// is over.
    pub(super) fn link(&self, from: Option<NodeId>) -> Option<Arc<MachineLink>> {
        let bridge = self.speak(|locked| locked.state.waker_of(self.half()))?;
        let node = Arc::downgrade(self.driver.guarded());
        Some(MachineLink::new(node, self.half(), bridge, from))
    }

    /// Which node of this program brings what comes over the channel.
    pub(super) fn carrier(&self) -> u64 {
        self.driver.number
    }

    /// Speaks to the machine. Code of users must not run within this.
    pub(crate) fn speak<R>(&self, f: impl FnOnce(&mut Locked<'_>) -> R) -> R {
        self.driver.speak(f)
    }

    /// Whether this node leaves: what is lost is lost since it ends.
    pub(super) fn own_node_leaves(&self) -> bool {
        self.speak(|locked| locked.state.machine.is_leaving())
    }

    pub(super) fn end_proxy(&self, how: End) {
        self.speak(|locked| locked.state.machine.end_proxy(locked.now, self.channel, how));
    }

    pub(super) fn end_home(&self, how: End) {
        self.speak(|locked| locked.state.machine.end_home(locked.now, self.channel, how));
    }

    /// A message was not sent because of its size.
    pub(super) fn too_large(&self, bytes: u64, bytes_max: u64) {
        self.driver.with_hub_now(|hub, _| {
            let name = hub.name_of(self.channel);
            hub.tell(NodeEvent::Limit(Limit::Message { name, bytes, bytes_max }));
        });
    }

    /// A value of which the send is complete could not be written.
    pub(super) fn unwritten(&self, why: &Why) {
        let name = self.driver.with_hub_now(|hub, _| hub.name_of(self.channel));
        self.speak(|locked| locked.state.unwritten.push(name, why.to_string()));
    }

    pub(super) fn withdraw(&self, ticket: Ticket) {
        self.speak(|locked| locked.state.machine.withdraw(locked.now, self.channel, ticket));
    }

    /// A value that was sent on a credit is not kept, of so many bytes.
    pub(super) fn drained(&self, bytes: usize) {
        self.speak(|locked| locked.state.machine.drained(self.channel, 1, bytes as u64));
    }

    pub(super) fn failed(&self, from: NodeId, ticket: Ticket, why: Failure) {
        self.speak(|locked| locked.state.machine.failed(locked.now, self.channel, from, ticket, why));
    }
}
