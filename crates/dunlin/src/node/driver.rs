//! What drives the protocol machine of a node: sockets, time, and the bridges of its channels.
//!
//! Everything of a node is behind one lock ([`State`]). Nobody waits while holding it. Each socket has a task (`carrier.rs`) that reads
//! and writes it; an end that has something to say wakes the task of its connection's socket, which fetches it, so that a message takes no
//! detour. One more task per node dials, keeps the time, and stands in where there is no socket.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_proto::id::{ChannelId, DialId, NodeId, SocketId};
use dunlin_proto::time::Time;
use dunlin_proto::{Action, Closed, HomeHears, Machine, ProxyHears, State as ConnectionState};
use tokio::sync::{Notify, oneshot};

use super::bridge::{self, Bridge, NewBridge, Says};
use super::carrier::Carrier;
use super::hub::{Heard, Hub};
use super::network::{Networks, Socket};
use crate::world::{self, Clock};
use dunlin_core::carrier::Value;

/// A task that can be woken from anywhere, and remembers that it was.
#[derive(Default)]
pub(crate) struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // Not within the lock: who is woken may want to wait again at once.
            let waker = lock(&self.waker).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Whether it was rung since it was last asked; if not, the task will be woken.
    pub(super) fn poll_rung(&self, cx: &Context<'_>) -> bool {
        if self.rung.swap(false, Ordering::AcqRel) {
            return true;
        }
        let mut waker = lock(&self.waker);
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        drop(waker);
        self.rung.swap(false, Ordering::AcqRel)
    }
}

/// A panic in somebody's `Serialize` must not take the node with it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How an end wakes whoever fetches what it has to say.
pub(crate) struct EndWaker {
    channel: ChannelId,
    driver: Weak<Driver>,
    /// The task of the socket that carries the end's connection.
    carrier: Mutex<Option<Arc<Bell>>>,
}

impl Wake for EndWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Some(driver) = self.driver.upgrade() else { return };
        lock(&driver.stirred).push(self.channel);
        match &*lock(&self.carrier) {
            Some(bell) => bell.ring(),
            None => driver.bell.ring(),
        }
    }
}

/// A channel of this node that reaches another one.
struct Stretched {
    bridge: Box<dyn Bridge>,
    waker: Arc<EndWaker>,
    /// The other node, once it is known.
    peer: Option<NodeId>,
}

pub(crate) struct State {
    pub(crate) machine: Machine,
    stretched: BTreeMap<ChannelId, Stretched>,
    pub(super) sockets: BTreeMap<SocketId, Arc<Bell>>,
    /// The socket whose task has the lock, and will ask what there is to write before it gives it back.
    pub(super) at_hand: Option<SocketId>,
    next_socket: u64,
    /// Sockets that are to be closed once what they still have to say is written.
    pub(super) parting: BTreeMap<SocketId, Closed>,
    dials: Vec<(DialId, String)>,
    /// The time that the clock task waits for.
    alarm: Option<Time>,
    /// When the hub wants to be called.
    hub_alarm: Option<Time>,
    /// `None` while it is spoken to.
    pub(crate) hub: Option<Box<Hub>>,
    /// Wants to know when all that was said has been heard.
    flushed: Option<oneshot::Sender<()>>,
    /// Messages that nobody needs any more; they are dropped where nothing is locked.
    pub(super) dropped: Vec<Value>,
}

/// This thread's name for [`Driver::holder`].
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    // A thread that ends has none any more, and drives no node.
    HERE.try_with(|here| std::ptr::from_ref(here).addr()).unwrap_or(0)
}

/// The state, locked by this thread.
pub(super) struct Held<'a> {
    holder: &'a AtomicUsize,
    pub(super) state: MutexGuard<'a, State>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.holder.store(0, Ordering::Relaxed);
    }
}

pub(crate) struct Driver {
    clock: Clock,
    state: Mutex<State>,
    /// Which thread has locked it. Code of users may run meanwhile (they write, read and drop messages), and must not wait for itself.
    holder: AtomicUsize,
    /// Declarations that nobody waits for any more.
    given_up: Mutex<Vec<u64>>,
    /// No handle of the node is left.
    abandoned: AtomicBool,
    /// Channels whose ends have something to say.
    stirred: Mutex<Vec<ChannelId>>,
    pub(crate) bell: Arc<Bell>,
    networks: Networks,
    /// So long a dial may take: a network that drops what is sent to it answers nothing.
    dial_max: std::time::Duration,
    closing: AtomicBool,
}

impl Driver {
    pub(crate) fn new(machine: Machine, networks: Networks, dial_max: std::time::Duration, hub: Hub) -> Arc<Self> {
        Arc::new(Self {
            clock: Clock::new(),
            state: Mutex::new(State {
                machine,
                stretched: BTreeMap::new(),
                sockets: BTreeMap::new(),
                at_hand: None,
                next_socket: 0,
                parting: BTreeMap::new(),
                dials: Vec::new(),
                alarm: None,
                hub_alarm: None,
                hub: Some(Box::new(hub)),
                flushed: None,
                dropped: Vec::new(),
            }),
            holder: AtomicUsize::new(0),
            given_up: Mutex::default(),
            abandoned: AtomicBool::new(false),
            stirred: Mutex::new(Vec::new()),
            bell: Arc::default(),
            networks,
            dial_max,
            closing: AtomicBool::new(false),
        })
    }

    /// Which node this is.
    pub(crate) fn me(&self) -> NodeId {
        lock(&self.state).machine.me().node
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Speaks to the machine, and does what it says.
    pub(crate) fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut State, Time) -> R) -> R {
        let now = self.now();
        let mut held = self.hold();
        let result = f(&mut held.state, now);
        self.act(&mut held.state, now);
        let dropped = std::mem::take(&mut held.state.dropped);
        drop(held);
        drop(dropped);
        result
    }

    pub(super) fn hold(&self) -> Held<'_> {
        let state = lock(&self.state);
        self.holder.store(this_thread(), Ordering::Relaxed);
        Held { holder: &self.holder, state }
    }

    /// Whether this thread is within [`with`](Self::with): then this is called by a message that is written, read or dropped there.
    fn is_held_here(&self) -> bool {
        // Only this thread stores its own name, so no order is needed.
        let here = this_thread();
        here != 0 && self.holder.load(Ordering::Relaxed) == here
    }

    /// A channel of this node now reaches `peer`, or will.
    pub(crate) fn stretch(
        self: &Arc<Self>,
        state: &mut State,
        channel: ChannelId,
        peer: Option<NodeId>,
        bridge: Box<dyn Bridge>,
    ) {
        let waker = Arc::new(EndWaker { channel, driver: Arc::downgrade(self), carrier: Mutex::new(None) });
        state.stretched.insert(channel, Stretched { bridge, waker, peer });
        if let Some(peer) = peer {
            state.carried_by(peer);
        }
        lock(&self.stirred).push(channel);
        self.bell.ring();
    }

    /// Fetches what ends have to say, and does what the machine says, until both are quiet.
    pub(super) fn act(self: &Arc<Self>, state: &mut State, now: Time) {
        loop {
            let given_up = std::mem::take(&mut *lock(&self.given_up));
            if !given_up.is_empty() {
                self.with_hub(state, now, |hub, _| given_up.into_iter().for_each(|number| hub.undeclare(number)));
            }
            let stirred = std::mem::take(&mut *lock(&self.stirred));
            for channel in stirred {
                self.fetch(state, channel, now);
            }
            let Some(action) = state.machine.poll() else {
                if lock(&self.stirred).is_empty() {
                    break;
                }
                continue;
            };
            self.do_action(state, now, action);
        }
        if state.flushed.is_some() && state.machine.is_flushed() {
            let _ = state.flushed.take().map(|told| told.send(()));
        }
        let next = state.machine.next_tick().into_iter().chain(state.hub_alarm).min();
        if let Some(at) = next
            && state.alarm.is_none_or(|alarm| at < alarm)
        {
            state.alarm = Some(at);
            self.bell.ring();
        }
    }

    fn do_action(self: &Arc<Self>, state: &mut State, now: Time, action: Action) {
        match action {
            Action::Dial(id, address) => {
                state.dials.push((id, address));
                self.bell.ring();
            }
            Action::Write(socket) => {
                if state.at_hand != Some(socket)
                    && let Some(bell) = state.sockets.get(&socket)
                {
                    bell.ring();
                }
            }
            Action::Close(socket, why) => {
                if let Some(bell) = state.sockets.get(&socket) {
                    state.parting.insert(socket, why);
                    bell.ring();
                }
            }
            Action::Connection(node, how) => {
                state.carried_by(node);
                if matches!(how, ConnectionState::Lost(_)) {
                    let mut new = Vec::new();
                    let told = state.tell_lost(node, now, &mut new);
                    self.stretch_all(state, new);
                    // Some may be over with that.
                    told.into_iter().for_each(|channel| self.fetch(state, channel, now));
                }
                self.with_hub(state, now, |hub, cx| hub.hear(cx, Heard::Connection(node, how)));
            }
            Action::Names(from, said) => self.with_hub(state, now, |hub, cx| hub.hear(cx, Heard::Names(from, said))),
            Action::Introduced(address, who) => {
                self.with_hub(state, now, |hub, cx| hub.hear(cx, Heard::Introduced(address, who)));
            }
            Action::Home(channel, from, heard) => {
                if heard == HomeHears::Attached {
                    state.meets(channel, from);
                    self.with_hub(state, now, |hub, cx| hub.attached(cx, channel));
                }
                self.tell(state, channel, now, Told::Home(from, heard));
            }
            Action::Proxy(channel, heard) => self.tell(state, channel, now, Told::Proxy(heard)),
        }
    }

    fn fetch(self: &Arc<Self>, state: &mut State, channel: ChannelId, now: Time) {
        let Some(stretched) = state.stretched.get_mut(&channel) else { return };
        let waker = Waker::from(stretched.waker.clone());
        let mut new = Vec::new();
        let mut says = Says { machine: &mut state.machine, now, channel, new: &mut new, dropped: &mut state.dropped };
        if stretched.bridge.poll(&mut Context::from_waker(&waker), &mut says).is_ready() {
            state.stretched.remove(&channel);
            self.with_hub(state, now, |hub, cx| hub.over(cx, channel));
        }
        self.stretch_all(state, new);
    }

    fn tell(self: &Arc<Self>, state: &mut State, channel: ChannelId, now: Time, told: Told) {
        let Some(stretched) = state.stretched.get_mut(&channel) else { return };
        let mut new = Vec::new();
        let mut says = Says { machine: &mut state.machine, now, channel, new: &mut new, dropped: &mut state.dropped };
        match told {
            Told::Home(from, heard) => stretched.bridge.hear_sender(from, heard, &mut says),
            Told::Proxy(heard) => stretched.bridge.hear_home(heard, &mut says),
        }
        self.stretch_all(state, new);
        self.fetch(state, channel, now);
    }

    fn stretch_all(self: &Arc<Self>, state: &mut State, new: Vec<NewBridge>) {
        for NewBridge { channel, peer, bridge } in new {
            self.stretch(state, channel, Some(peer), bridge);
        }
    }

    /// Speaks to the hub, which speaks to everything else.
    pub(crate) fn with_hub<R: Default>(
        self: &Arc<Self>,
        state: &mut State,
        now: Time,
        f: impl FnOnce(&mut Hub, &mut HubCx<'_>) -> R,
    ) -> R {
        // Whoever the hub speaks to may have to speak to the hub: what is told then, it hears from its own records.
        let Some(mut hub) = state.hub.take() else { return R::default() };
        let mut cx = HubCx { driver: self, state, now };
        let result = f(&mut hub, &mut cx);
        hub.settle(&mut cx);
        state.hub = Some(hub);
        result
    }

    /// Nothing is done, and the default given, if the node has left, or if a message asks while this node writes, reads or drops it.
    pub(crate) fn with_hub_now<R: Default>(self: &Arc<Self>, f: impl FnOnce(&mut Hub, &mut HubCx<'_>) -> R) -> R {
        if self.is_held_here() {
            return R::default();
        }
        self.with(|state, now| self.with_hub(state, now, f))
    }

    /// Nobody waits for this declaration any more. Can be called from anywhere, also by what a message drops.
    pub(crate) fn give_up(&self, number: u64) {
        lock(&self.given_up).push(number);
        self.bell.ring();
    }

    /// No handle of the node is left: it says goodbye, and ends. Can be called from anywhere.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.bell.ring();
    }

    /// Told when the name service is lost.
    pub(crate) fn names_lost(self: &Arc<Self>) -> Arc<Notify> {
        self.with_hub_now(|hub, _| hub.names_lost.clone())
    }

    /// The clock has to ring then, if not before.
    pub(crate) fn alarm(&self, state: &mut State, at: Time) {
        if state.hub_alarm.is_none_or(|alarm| at < alarm) {
            state.hub_alarm = Some(at);
            self.bell.ring();
        }
    }

    /// All that was said has been heard, or nobody is there to hear it.
    pub(crate) fn flushed(self: &Arc<Self>) -> oneshot::Receiver<()> {
        let (told, flushed) = oneshot::channel();
        self.with(|state, _| state.flushed = Some(told));
        flushed
    }

    fn add_socket(self: &Arc<Self>, state: &mut State, socket: Box<dyn Socket>) -> SocketId {
        let id = SocketId(state.next_socket);
        state.next_socket += 1;
        let bell = Arc::<Bell>::default();
        state.sockets.insert(id, bell.clone());
        let mut carrier = Carrier::new(self.clone(), id, bell, socket);
        world::spawn_own(async move { poll_fn(|cx| carrier.poll(cx)).await });
        id
    }

    /// Dials and keeps the time, for as long as the node lives.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut sleep = Box::pin(self.clock.timer(Time(0)));
        let mut sleeps_until = Time(0);
        loop {
            if self.abandoned.load(Ordering::Acquire) && !self.closing.load(Ordering::Acquire) {
                self.with(|state, now| state.machine.leave(now));
                self.close();
            }
            let dials = self.with(|state, now| {
                state.machine.tick(now);
                if state.hub_alarm.is_some_and(|at| now >= at) {
                    state.hub_alarm = None;
                    self.with_hub(state, now, |_, _| ());
                }
                // Nobody has to ring for what is looked at below.
                state.alarm = Some(Time(0));
                std::mem::take(&mut state.dials)
            });
            {
                let mut state = lock(&self.state);
                state.alarm = state.machine.next_tick().into_iter().chain(state.hub_alarm).min();
            }
            let dials = if self.closing.load(Ordering::Acquire) { Vec::new() } else { dials };
            for (id, address) in dials {
                world::spawn_own(self.clone().dial(id, address));
            }
            if self.closing.load(Ordering::Acquire) && lock(&self.state).sockets.is_empty() {
                return;
            }
            poll_fn(|cx| {
                if self.bell.poll_rung(cx) {
                    return Poll::Ready(());
                }
                let Some(at) = lock(&self.state).alarm else { return Poll::Pending };
                if sleeps_until != at {
                    sleeps_until = at;
                    sleep.set(self.clock.timer(at));
                }
                sleep.as_mut().poll(cx)
            })
            .await;
        }
    }

    async fn dial(self: Arc<Self>, id: DialId, address: String) {
        let dialled = world::within(self.dial_max, self.networks.dial(&address)).await;
        let result = dialled.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        self.with(|state, now| match result {
            // Nobody is here any more. Whoever closes looks for sockets after it has said so.
            _ if self.closing.load(Ordering::Acquire) => {}
            Ok(socket) => {
                let socket = self.add_socket(state, socket);
                state.machine.dialled(now, id, socket);
            }
            Err(error) => state.machine.dial_failed(now, id, format!("{address}: {error}")),
        });
    }

    /// Somebody has dialled this node.
    pub(crate) fn accepted(self: &Arc<Self>, socket: Box<dyn Socket>) {
        self.with(|state, now| {
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            let socket = self.add_socket(state, socket);
            state.machine.accepted(now, socket);
        });
    }

    /// Ends every socket, and what this node's ends wait for; the tasks of the node end with the sockets.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closing.store(true, Ordering::Release);
        let mut held = self.hold();
        let state = &mut *held.state;
        let sockets: Vec<SocketId> = state.sockets.keys().copied().collect();
        for socket in sockets {
            state.parting.insert(socket, Closed::Over);
            state.sockets[&socket].ring();
        }
        let (stretched, mut hub) = (std::mem::take(&mut state.stretched), state.hub.take());
        drop(held);
        if let Some(hub) = &mut hub {
            hub.farewell();
        }
        // They drop what is their users'.
        drop((stretched, hub));
        self.bell.ring();
    }
}

/// What the hub speaks to.
pub(crate) struct HubCx<'a> {
    pub(crate) driver: &'a Arc<Driver>,
    pub(crate) state: &'a mut State,
    pub(crate) now: Time,
}

/// What a bridge is told.
enum Told {
    Home(NodeId, HomeHears),
    Proxy(ProxyHears),
}

impl State {
    /// The ends of channels to this node wake the task of the socket that carries them now.
    fn carried_by(&mut self, node: NodeId) {
        let bell = self.machine.carried_by(node).and_then(|socket| self.sockets.get(&socket)).cloned();
        for stretched in self.stretched.values().filter(|stretched| stretched.peer == Some(node)) {
            *lock(&stretched.waker.carrier) = bell.clone();
        }
    }

    fn meets(&mut self, channel: ChannelId, node: NodeId) {
        let bell = self.machine.carried_by(node).and_then(|socket| self.sockets.get(&socket)).cloned();
        if let Some(stretched) = self.stretched.get_mut(&channel) {
            stretched.peer = Some(node);
            *lock(&stretched.waker.carrier) = bell;
        }
    }

    fn tell_lost(&mut self, node: NodeId, now: Time, new: &mut Vec<NewBridge>) -> Vec<ChannelId> {
        let mut told = Vec::new();
        for (channel, stretched) in self.stretched.iter_mut().filter(|(_, stretched)| stretched.peer == Some(node)) {
            stretched.bridge.connection_lost(&mut Says {
                machine: &mut self.machine,
                now,
                channel: *channel,
                new,
                dropped: &mut self.dropped,
            });
            told.push(*channel);
        }
        told
    }

    /// The end of this channel cannot be what its holder has declared.
    pub(crate) fn poison(&mut self, channel: ChannelId, text: &str, now: Time) {
        if let Some(mut stretched) = self.stretched.remove(&channel) {
            stretched.bridge.poison(text);
            self.machine.end_home(now, channel, bridge::full_poison(text));
        }
    }

    /// The bridge of a channel whose other end has turned out to be here as well.
    pub(crate) fn take_bridge(&mut self, channel: ChannelId) -> Option<Box<dyn Bridge>> {
        self.stretched.remove(&channel).map(|stretched| stretched.bridge)
    }
}
