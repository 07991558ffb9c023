//! What every part of a node works on: the state behind its lock, the channels that reach other nodes, and
//! the words that their bridges receive.
//!
//! Everything of a node is behind one lock ([`State`]). No thread waits while holding it, and no code of
//! users runs then: that runs in the work on channels (`work.rs`). The methods of a [`Driver`] are above this
//! file, each group in its own: `driver.rs`, `work.rs`, `leaving.rs`, `ending.rs`, `bridge/`, `hub/`.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use dunlin_core::Why;
use dunlin_core::agent::{Event, PassedOn};
use dunlin_core::carrier::{AnyInlet, AnyOutlet, CarriedEnd, Value};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::id::{ChannelId, Contact, DialId, Life, MailboxId, NodeId, SocketId, Ticket};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, End, Failure, Terms, Which};
use dunlin_proto::{Closed, HomeHears, Machine, ProxyHears, Replied};
use dunlin_sorted::{SortedMap, SortedSet};
use ipnet::IpNet;
use tokio::sync::{oneshot, watch};

use super::applicant::{Applicant, Authorize};
use super::bell::{Bell, EndWaker};
use super::budget::Budget;
use super::codec::Encoding;
use super::events::{Limit, NodeEvent};
use super::halves::Halves;
use super::hub::{Hub, Reclaimed};
use super::id::Half;
use super::log::{Line, Log};
use super::message::kept::{Kept, Passing, Shelf};
use super::signals::table::Signals;
use super::trim::Trim;
use super::unsaid::{Abandoned, Flush, Losses};
use super::watch::{Serves, Watch};
use crate::lock::lock;
use crate::net::{Networks, PeerIdentity, Source};
use crate::world::Clock;

pub(crate) struct State {
    pub(crate) machine: Machine,
    // Boxed: a node of a B-tree is a third empty, or more.
    pub(super) stretched: Halves<Box<Stretched>>,
    /// The halves here, by their channels in the core.
    pub(super) by_core: SortedMap<CoreId, Half>,
    /// Channels in the core with an end in a message for the first time, and their names there.
    pub(super) first: SortedMap<CoreId, ChannelId>,
    /// Channels with ends that messages wait for, to be at rest, and the halves that have those messages.
    pub(super) awaited: SortedMap<ChannelId, SortedSet<Half>>,
    /// Ends of messages that are here and perhaps received, which has not been announced; by their channels
    /// in the core.
    pub(super) arriving: SortedMap<CoreId, ChannelId>,
    /// Receivers that left in a message of this node and returned through others before this node knew that
    /// the message had been taken. `None`: it was discarded.
    pub(super) returned: SortedMap<ChannelId, Option<AnyInlet>>,
    /// Messages that are here and not received, unread or with ends in them, and that may be forwarded as
    /// they are.
    pub(super) passing: SortedMap<PassedOn, Passing>,
    pub(super) replies: Replies,
    pub(crate) kept: Kept,
    pub(crate) shelf: Shelf,
    /// Homes that have ended here, until their senders have noticed, and how messages on them are encoded.
    /// Values in transit on credits are lost for their senders, and the ends in them are dropped here.
    pub(super) late: SortedMap<ChannelId, Encoding>,
    pub(super) sockets: SortedMap<SocketId, Entry>,
    pub(super) next_socket: u64,
    /// How many batches of words have arrived over sockets.
    pub(super) batches: u64,
    pub(super) trim: Trim,
    pub(super) mailboxes: Mailboxes,
    pub(super) signals: Signals,
    /// Sockets that are to be closed once their remaining output is written.
    pub(super) parting: SortedMap<SocketId, Closed>,
    pub(super) dials: Vec<(DialId, String)>,
    /// Whether other nodes may have connections with this one. `None`: all may.
    pub(super) authorize: Option<Authorize>,
    /// The nodes to ask that about.
    pub(super) applicants: Vec<(Authorize, SocketId, Applicant)>,
    /// The time that the clock task waits for.
    pub(super) alarm: Option<Time>,
    /// When the hub has to be called.
    pub(super) hub_alarm: Option<Time>,
    /// `None` while it is in use.
    pub(crate) hub: Option<Box<Hub>>,
    /// The most bytes of a channel's values that may be buffered here.
    pub(crate) buffered_max: u64,
    /// Values of this size or more, whose receivers are elsewhere, are not sent here.
    pub(crate) straight_min: u64,
    /// Each socket from these is a source of its own.
    pub(crate) trusted_sources: Vec<IpNet>,
    /// Notified when everything sent so far has been acknowledged.
    pub(super) flushed: Vec<oneshot::Sender<()>>,
    /// Notified when this node answers for nothing more that it has handed on.
    pub(super) settled: Vec<oneshot::Sender<()>>,
    /// Notified when everything sent up to some moment has been acknowledged.
    pub(super) flushes: Vec<Flush>,
    /// What could not be written after its send was complete.
    pub(super) unwritten: Losses,
    /// To be delivered where nothing is locked.
    pub(super) due: Vec<Delivery>,
    /// Values that are no longer needed, and may be users'. They are dropped where nothing is locked.
    pub(crate) garbage: Vec<Box<dyn Send>>,
    /// How many batches of garbage, and bridges that have ended, are being dropped.
    pub(super) clearing: usize,
    /// Receivers that have arrived and have not been used, and how long they may stay so.
    pub(super) resting: VecDeque<(Time, ChannelId)>,
    /// Lines for people: they, too, are written where nothing is locked.
    pub(crate) lines: Vec<Line>,
}

/// The places for replies of a node.
#[derive(Default)]
pub(super) struct Replies {
    pub(super) awaited: SortedMap<ChannelId, Awaited>,
    pub(super) held: SortedMap<ChannelId, Arc<Held>>,
}

/// A reply to a call of this node, whose request has gone out.
pub(super) enum Awaited {
    /// It is not known yet that the request was taken. The reply may be here already.
    Asked(Option<Replied>),
    /// The caller waits for it.
    Caller(Caller),
}

/// The caller's slot.
pub(super) struct Caller {
    pub(super) inlet: AnyInlet,
    pub(super) encoding: Encoding,
    pub(super) driver: Weak<Driver>,
    /// The node with the request.
    pub(super) from: NodeId,
}

/// Something for the holder of a slot, or for a task: users' code may run.
pub(super) enum Delivery {
    /// A task waits for what has arrived.
    Woken(Waker),
    /// A signal has arrived. The drop wakes what waits for it.
    Later(Box<dyn Send>),
    Replied(Caller, Replied),
    /// The caller of a place that is held here is gone.
    Unwanted(Arc<Held>),
    /// Its holder has replied, or dropped it, before the place was known to be here.
    Stirred(Arc<Held>),
}

/// A place for a reply to another node, and the waker of its slot.
pub(super) struct Held {
    pub(super) driver: Weak<Driver>,
    pub(super) channel: ChannelId,
    pub(super) core: CoreId,
    pub(super) encoding: Encoding,
    pub(super) slot: Mutex<ReplySlot>,
}

pub(super) struct ReplySlot {
    /// `None`: the slot was filled, or is in use elsewhere.
    pub(super) outlet: Option<AnyOutlet>,
    /// The request with the place has been taken here.
    pub(super) is_here: bool,
    /// What the holder did before that.
    pub(super) early: Option<Event<Value>>,
}

/// A socket.
pub(super) struct Entry {
    pub(super) bell: Arc<Bell>,
    pub(super) post: Weak<dyn Serves>,
    /// What is at its other end, for people to read.
    pub(super) peer: String,
    pub(super) source: Source,
    /// Where it was dialled. `None`: it was accepted.
    pub(super) dialled: Option<String>,
    pub(super) identity: Option<PeerIdentity>,
    pub(super) is_local: bool,
}

pub(crate) struct Driver {
    /// The number of this node in its program: no two have the same.
    pub(super) number: u64,
    /// The part that the links of this node's channels use.
    pub(super) guarded: Arc<Guarded>,
    /// Tasks that can be added where the hub may be locked.
    pub(super) errands: Mutex<Vec<Errand>>,
    /// There may be some.
    pub(super) has_errands: AtomicBool,
    /// What has to be done for the node to leave, once no handle of it is left.
    pub(super) abandoned: Mutex<Option<Abandoned>>,
    /// The runtime ends soon: a node that leaves does not wait for others any longer.
    pub(super) hurries: watch::Sender<bool>,
    pub(crate) bell: Arc<Bell>,
    pub(super) watch: Arc<Watch>,
    pub(super) networks: Networks,
    /// How long a dial may take: a network that drops packets never answers.
    pub(super) dial_max: Duration,
    pub(super) closing: AtomicBool,
    pub(crate) log: Log,
}

/// The state of a node and its clock. The links of channels know only this part. A link that drops the last
/// reference does so while a channel is locked, so no value of users, and no end, may be left in it then.
pub(super) struct Guarded {
    pub(super) clock: Clock,
    /// When the clock was last read.
    pub(super) read: AtomicU64,
    pub(super) state: Mutex<State>,
    /// How often the state was locked.
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

    /// When the clock was last read.
    pub(super) fn lately(&self) -> Time {
        Time(self.read.load(Ordering::Relaxed))
    }
}

/// A task that can be added from anywhere: of the hub for a declaration, about a call, or about a mailbox.
pub(super) enum Errand {
    /// No caller waits for it any more.
    Undeclare(u64),
    /// Its end waits, and has been used, or dropped.
    Stirs(u64),
    /// It is a client whose server was lost: it waits for the next.
    DeclareAnew(Reclaimed),
    /// A caller no longer waits for its reply, perhaps.
    CallerLeaves(ChannelId),
    /// A message of that many bytes for this mailbox has been received, or dropped.
    Received { mailbox: u64, from: Contact, bytes: u64 },
    /// This mailbox has been dropped.
    MailboxClosed(u64),
    /// An exit from another node, which takes that many bytes, has been received, or dropped.
    ExitReceived { from: Contact, bytes: u64 },
}

/// A node that is locked.
pub(crate) struct Locked<'a> {
    pub(crate) driver: &'a Arc<Driver>,
    pub(crate) state: &'a mut State,
    pub(crate) now: Time,
}

impl Locked<'_> {
    /// Makes a message on `carrying` wait until the present garbage has been dropped. `false`: there is none.
    pub(crate) fn wait_for_garbage(&mut self, carrying: Half) -> bool {
        let is_there = self.state.clearing > 0 || !self.state.garbage.is_empty();
        if is_there {
            let behind = Behind { driver: Arc::downgrade(self.driver), carrying };
            self.state.garbage.push(Box::new(behind));
        }
        is_there
    }
}

/// Dropped with the garbage: the waiting message is written then.
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

    /// This node's id.
    pub(crate) fn me(&self) -> NodeId {
        self.locked().machine.me().node
    }

    pub(crate) fn now(&self) -> Time {
        self.guarded.now()
    }

    /// When the clock was last read. It is read before each work, and during a work as often as the watch
    /// looks: to read it for every word would cost more than the word.
    pub(super) fn lately(&self) -> Time {
        self.guarded.lately()
    }

    /// Calls the machine, with the time of [lately](Self::lately). The next caller of [`act`](Self::act)
    /// carries out its actions.
    pub(super) fn speak<R>(self: &Arc<Self>, f: impl FnOnce(&mut Locked<'_>) -> R) -> R {
        let mut state = self.locked();
        let now = self.lately();
        f(&mut Locked { driver: self, state: &mut state, now })
    }
}

impl State {
    /// Passes this to the bridge of a channel, once no task works on that.
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
    /// A word from a sending half to this home.
    Home(Contact, HomeHears),
    /// A word from the home to this sending half.
    Proxy(ProxyHears),
    /// The connection has lost its socket, and may resume.
    ConnectionLost,
    /// What it waits for may have happened.
    Retry,
    /// Its agent has to resume, if it stands by.
    Unlink,
    /// Its other end is found.
    Matched,
    /// The receiver of this home has left in a message.
    Lent(CarriedEnd),
    /// This offer to the home is to be forwarded to another node, and the ends in it cannot be.
    Onward(Ticket),
    /// The value under this number has been [read](super::message::read). `None`: it could not be.
    Read(Ticket, Option<Bytes>),
    /// The bridge is needed elsewhere; the channel ends here.
    Take(Taking),
    /// Dropped once the end has sent everything that it has to send now.
    Until(Arc<oneshot::Sender<()>>),
}

/// What to do with a bridge. Nothing is locked then.
pub(crate) type Taking = Box<dyn FnOnce(&Arc<Driver>, Box<dyn Bridge>) + Send>;

/// A channel of this node that reaches another one.
pub(crate) struct Stretched {
    /// `None`: a task works on it, or it has not [arrived yet](State::expect).
    pub(super) bridge: Option<Box<dyn Bridge>>,
    /// Its channel in the core, and how messages on it are encoded.
    pub(super) core: Option<(CoreId, Encoding)>,
    pub(super) waker: Arc<EndWaker>,
    /// The other node, once it is known.
    pub(super) peer: Option<NodeId>,
    pub(super) told: VecDeque<Told>,
    /// Something new arrived while a task was working on it.
    pub(super) again: bool,
    /// How many of its next works run on a thread of their own.
    pub(super) wary: u32,
    /// Its agent stands by: words for it need not go through the bridge.
    pub(super) linked: Option<Arc<dyn Linked>>,
    pub(super) expected: bool,
}

impl Stretched {
    pub(super) fn tell(&mut self, told: Told) {
        self.told.push_back(told);
        // The task that works on it looks when that is done.
        if self.bridge.is_some() {
            self.waker.wake_by_ref();
        }
    }
}

/// A channel of this node that reaches another one.
pub(crate) trait Bridge: Send {
    /// The end of its channel that its agent stands for.
    fn which(&self) -> Which;
    /// Its channel in the core, and how messages on it are encoded.
    fn core(&self) -> Option<(CoreId, Encoding)>;
    /// Whether it has nothing left to send.
    fn rests(&self) -> bool;
    /// Whether it has yet to send messages that no caller waits for: their sends are complete, or their
    /// senders gone.
    fn owes(&self) -> bool {
        false
    }
    /// How many values with complete sends it has yet to send.
    fn unsaid(&self) -> usize {
        0
    }
    /// Passes on what the agent has to send. `Ready`: the bridge has ended.
    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()>;
    /// How messages are encoded whose ends still need an answer after this bridge has ended. `None`: there
    /// are none.
    fn late_values(&self) -> Option<Encoding> {
        None
    }
    /// The half, if its agent stands by.
    fn linked(&self) -> Option<Arc<dyn Linked>> {
        None
    }
    /// The agent resumes, if it stands by.
    fn unlink(&mut self, _: &Says<'_>) {}
    /// Handles a word from the channel's home to this sending half.
    fn hear_home(&mut self, heard: ProxyHears, says: &Says<'_>);
    /// Handles a word from a sending half to this home.
    fn hear_sender(&mut self, from: Contact, heard: HomeHears, says: &Says<'_>);
    /// A sender that one of its messages waits for may be at rest.
    fn retry(&mut self, _: &Says<'_>) {}
    /// Its other end is found: a deadline no longer asks what is missing.
    fn matched(&mut self) {}
    /// The receiver of this home has left in a message.
    fn lent(&mut self, _: CarriedEnd, _: &Says<'_>) {}
    /// This offer to the home is to be forwarded to another node, and the ends in it cannot be: it has to be
    /// made anew.
    fn onward(&mut self, _: Ticket, _: &Says<'_>) {}
    /// The value under this number has been read. `None`: it could not be.
    fn read(&mut self, _: Ticket, _: Option<Bytes>, _: &Says<'_>) {}
    /// The connection has lost its socket, and may resume.
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
    /// The approximate size of each message of this sending half in bytes, if it is known before there is
    /// one: the message owns no memory.
    fn value_bytes(&self) -> Option<u64> {
        None
    }
    /// The sender of this half has left: nothing more arrives from it.
    fn depart(self: Box<Self>) {}
    /// The end cannot be what its holder has declared.
    fn poison(&mut self, text: &str);
    /// A message panicked in what was last asked of this bridge.
    fn fail(&mut self, text: &str, says: &Says<'_>);
}

/// A half whose agent stands by: words that arrive for it need no bridge. While they are passed on, the
/// bridge does not work.
pub(crate) trait Linked: Send + Sync {
    /// Words of this batch are being passed on. `false`: another batch's are. The node is locked.
    fn begins(&self, batch: u64) -> bool;
    /// Whether words are being passed on. If so, the bridge is woken afterwards. The node is locked.
    fn is_busy(&self) -> bool;
    /// The words of this batch have been passed on; told for each of them.
    fn ends(&self, batch: u64);
    /// Passes on what the bridge would be told.
    ///
    /// # Errors
    /// It is for the bridge.
    fn hear(&self, told: Told) -> Result<(), Told>;
}

/// A mailbox of this program, without the type of its messages.
pub(crate) trait Inbox: Any + Send + Sync {
    /// Takes a message from another node.
    fn deliver(self: Arc<Self>, message: Bytes, receipt: Receipt) -> Delivered;

    /// The waker of the receiver, if it waits.
    fn receiver(&self) -> Option<Waker>;
}

/// The result of a delivery.
pub(crate) struct Delivered {
    /// The mailbox was full: a message was dropped.
    pub(crate) was_full: bool,
    /// What has to be dropped where nothing is locked.
    pub(crate) dropped: Option<Box<dyn Send>>,
}

/// Stands for what a message from another node takes at this one. Dropped when the message has been received,
/// or with it.
pub(crate) struct Receipt {
    pub(super) node: Weak<Driver>,
    pub(super) mailbox: u64,
    pub(super) from: Contact,
    pub(super) bytes: u64,
}

/// A mailbox of another node, as this program knows it: shared by all addresses of it.
#[derive(Debug)]
pub(crate) struct Remote {
    pub(super) node: Weak<Driver>,
    pub(super) home: Life,
    pub(super) id: MailboxId,
    /// Where its node can be dialled, as the message said, and which node has sent that.
    pub(super) addresses: Vec<String>,
    pub(super) giver: Option<NodeId>,
    pub(super) state: Mutex<RemoteState>,
}

#[derive(Debug, Default)]
pub(super) struct RemoteState {
    pub(super) is_closed: bool,
    /// Why the mailbox cannot read what was sent.
    pub(super) mismatch: Option<Arc<str>>,
    /// The schema of what was sent first.
    pub(super) schema: Bytes,
    /// Operations that wait for room.
    pub(super) waiting: SortedMap<u64, Waker>,
    pub(super) next: u64,
}

/// The mailboxes of a node.
#[derive(Default)]
pub(super) struct Mailboxes {
    pub(super) here: SortedMap<u64, Arc<dyn Inbox>>,
    pub(super) there: SortedMap<(NodeId, MailboxId), Weak<Remote>>,
    /// When `there` has this many entries, those that are gone are removed.
    pub(super) sweep_at: usize,
}

/// A sender here whose channel reaches another node from now on.
pub(crate) struct NewSender {
    pub(super) outlet: AnyOutlet,
    /// Where its receiver is, if known.
    pub(super) home: Option<NodeId>,
    pub(super) encoding: Encoding,
    pub(super) kind: NewSenderKind,
}

pub(crate) enum NewSenderKind {
    /// Its channel did not leave this node before.
    OfThisNode,
    /// A place for a reply: the home's terms are known without asking. `first`: what its holder has done.
    Reply { value_max: u64, first: Option<Event<Value>> },
    /// It arrived in a message. `granted`: if its home knows it already. `has_retired`: it is back here,
    /// where it has retired the channel.
    Arrived { granted: Option<(Terms, u32)>, is_reply: bool, has_retired: bool },
}

/// A receiver here whose channel reaches another node from now on.
pub(crate) struct NewReceiver {
    pub(super) inlet: AnyInlet,
    /// Bounds what the inlet promises, so it is made before `credits` are taken from the inlet.
    pub(super) budget: Budget,
    /// How many values may arrive before more are requested.
    pub(super) credits: u32,
    pub(super) encoding: Encoding,
    /// Where its sender is, if known.
    pub(super) from: Option<NodeId>,
    pub(super) kind: NewReceiverKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewReceiverKind {
    /// Its channel did not leave this node before.
    OfThisNode,
    /// A place for a reply.
    Reply,
    /// It arrived in a message. Its channel stays where it is until it is used.
    Visiting,
}

/// The interface of a bridge to its node.
pub(crate) struct Says<'a> {
    pub(super) driver: &'a Arc<Driver>,
    pub(crate) channel: ChannelId,
    pub(super) which: Which,
}

impl Says<'_> {
    pub(crate) fn half(&self) -> Half {
        (self.channel, self.which)
    }

    /// Which node of this program carries the channel's messages here.
    pub(super) fn carrier(&self) -> u64 {
        self.driver.number
    }

    /// Calls the machine. Code of users must not run within this.
    pub(crate) fn speak<R>(&self, f: impl FnOnce(&mut Locked<'_>) -> R) -> R {
        self.driver.speak(f)
    }

    /// Whether this node leaves: then its own end is the cause of what is lost.
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

    /// A value with a complete send could not be written.
    pub(super) fn unwritten(&self, why: &Why) {
        let name = self.driver.with_hub_now(|hub, _| hub.name_of(self.channel));
        self.speak(|locked| locked.state.unwritten.push(name, why.to_string()));
    }

    pub(super) fn withdraw(&self, ticket: Ticket) {
        self.speak(|locked| locked.state.machine.withdraw(locked.now, self.channel, ticket));
    }

    /// A value of this many bytes that was sent on a credit is not kept.
    pub(super) fn drained(&self, bytes: usize) {
        self.speak(|locked| locked.state.machine.drained(self.channel, 1, bytes as u64));
    }

    pub(super) fn failed(&self, from: NodeId, ticket: Ticket, why: Failure) {
        self.speak(|locked| locked.state.machine.failed(locked.now, self.channel, from, ticket, why));
    }
}
