//! What drives the protocol machine of a node: sockets, time, and the bridges of its channels.
//!
//! Its state is in `state.rs`, behind one lock. Each socket has a task (`carrier.rs`, `post.rs`) that reads
//! and writes it. An end with something to send wakes the task of its connection's socket, which works on its
//! channel, so that a message takes no detour. One more task per node dials, keeps the time, and does the
//! work of channels without a socket.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use dunlin_proto::id::{ChannelId, DialId, Life, NodeId, SocketId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::handshake::Refusal;
use dunlin_proto::wire::{End, Rejection, Which};
use dunlin_proto::{Action, Closed, HomeHears, Machine, ProxyHears, State as ConnectionState};
use dunlin_sorted::SortedMap;
use tokio::sync::{Notify, oneshot, watch};

use super::Peer;
use super::applicant::{Applicant, Authorize};
use super::arrivals::Arrivals;
use super::bell::Bell;
use super::carrier::Carrier;
use super::error::UnsettledEnd;
use super::events::{Limit, NodeEvent};
use super::halves::Halves;
use super::hub::{Heard, Hub, Reclaimed};
use super::log::Log;
use super::message;
use super::message::kept::{Kept, Shelf};
use super::post::Post;
use super::signals::table::Signals;
use super::state::{Delivery, Driver, Entry, Errand, Guarded, Locked, Mailboxes, Replies, State, Told};
use super::trim::{Trim, trim};
use super::unsaid::{Abandoned, Losses};
use super::watch::{Serves, Watch};
use super::work::discard;
use crate::config::{BUFFERED_MAX, STRAIGHT_MIN};
use crate::lock::lock;
use crate::net::{self, Networks, Socket, Source};
use crate::world::{self, Clock};

/// A receiver that has arrived and is not sent on within this time is not only passing through.
const REST: Duration = Duration::from_millis(10);

impl State {
    /// What the program may know of the node at the other end of this socket. A relayed node has no socket
    /// here.
    fn applicant(&self, socket: SocketId, life: Life) -> Applicant {
        let peer = Peer(life);
        match self.sockets.get(&socket) {
            Some(Entry { peer: from, dialled, identity, is_local, .. }) => Applicant {
                peer,
                from: from.clone(),
                dialled: dialled.clone(),
                identity: identity.clone(),
                is_local: *is_local,
            },
            None => Applicant { peer, from: "a relay".to_owned(), dialled: None, identity: None, is_local: false },
        }
    }
}

impl Driver {
    pub(crate) fn new(machine: Machine, networks: Networks, dial_max: Duration, hub: Hub, log: Log) -> Arc<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let bell = Arc::new(Bell::default());
        let driver = Arc::new(Self {
            number: COUNT.fetch_add(1, Ordering::Relaxed),
            log,
            guarded: Arc::new(Guarded {
                clock: Clock::new(),
                read: AtomicU64::new(0),
                #[cfg(test)]
                locks: AtomicU64::new(0),
                state: Mutex::new(State {
                    machine,
                    stretched: Halves::default(),
                    by_core: SortedMap::new(),
                    first: SortedMap::new(),
                    awaited: SortedMap::new(),
                    arriving: SortedMap::new(),
                    passing: SortedMap::new(),
                    returned: SortedMap::new(),
                    replies: Replies::default(),
                    kept: Kept::default(),
                    shelf: Shelf::default(),
                    late: SortedMap::new(),
                    sockets: SortedMap::new(),
                    next_socket: 0,
                    batches: 0,
                    trim: Trim::default(),
                    mailboxes: Mailboxes::default(),
                    signals: Signals::default(),
                    parting: SortedMap::new(),
                    dials: Vec::new(),
                    authorize: None,
                    applicants: Vec::new(),
                    alarm: None,
                    hub_alarm: None,
                    hub: Some(Box::new(hub)),
                    buffered_max: BUFFERED_MAX,
                    straight_min: STRAIGHT_MIN,
                    trusted_sources: Vec::new(),
                    flushed: Vec::new(),
                    settled: Vec::new(),
                    flushes: Vec::new(),
                    unwritten: Losses::default(),
                    due: Vec::new(),
                    garbage: Vec::new(),
                    clearing: 0,
                    resting: VecDeque::new(),
                    lines: Vec::new(),
                }),
            }),
            errands: Mutex::default(),
            has_errands: AtomicBool::new(false),
            abandoned: Mutex::default(),
            hurries: watch::Sender::new(false),
            watch: Arc::new(Watch::new(bell.waker())),
            bell,
            networks,
            dial_max,
            closing: AtomicBool::new(false),
        });
        driver.takes_signals();
        driver
    }

    /// Calls the machine, and carries out its actions.
    pub(crate) fn with<R>(self: &Arc<Self>, f: impl FnOnce(&mut State, Time) -> R) -> R {
        self.now();
        self.speak(|locked| {
            let result = f(locked.state, locked.now);
            self.act(locked.state, locked.now);
            result
        })
    }

    /// Carries out the machine's actions until there are none.
    pub(super) fn act(self: &Arc<Self>, state: &mut State, now: Time) {
        self.act_beside(state, now, None);
    }

    /// The same. `arrivals`: what is passed on next; what needs no bridge is added to it.
    pub(super) fn act_beside(self: &Arc<Self>, state: &mut State, now: Time, mut arrivals: Option<&mut Arrivals>) {
        loop {
            if self.has_errands.load(Ordering::Acquire) {
                for errand in self.take_errands() {
                    self.run_errand(state, now, errand);
                }
            }
            let Some(action) = state.machine.poll() else { break };
            self.do_action(state, now, action, arrivals.as_deref_mut());
        }
        if !state.flushes.is_empty() {
            state.look_after_flushes();
        }
        if !state.flushed.is_empty() && state.machine.is_flushed() {
            for told in state.flushed.drain(..) {
                let _ = told.send(());
            }
        }
        if !state.settled.is_empty() && state.machine.unsettled().next().is_none() && !state.owes() {
            for told in state.settled.drain(..) {
                let _ = told.send(());
            }
        }
        if let Some(at) = state.next_alarm()
            && state.alarm.is_none_or(|alarm| at < alarm)
        {
            state.alarm = Some(at);
            self.bell.ring();
        }
        if !state.garbage.is_empty() || !state.lines.is_empty() || !state.due.is_empty() {
            self.bell.ring();
        }
    }

    fn do_action(self: &Arc<Self>, state: &mut State, now: Time, action: Action, arrivals: Option<&mut Arrivals>) {
        match action {
            Action::Dial(id, address) => {
                state.dials.push((id, address));
                self.bell.ring();
            }
            Action::Authorize(socket, life) => {
                // The machine asks only if the program has configured a check.
                if let Some(admits) = state.authorize.clone() {
                    let applicant = state.applicant(socket, life);
                    state.applicants.push((admits, socket, applicant));
                    self.bell.ring();
                }
            }
            Action::Write(socket) => {
                if let Some(entry) = state.sockets.get(&socket) {
                    entry.bell.ring();
                }
            }
            Action::Close(socket, why) => {
                self.tell_closed(state, now, socket, &why);
                if let Some(entry) = state.sockets.get(&socket) {
                    state.parting.insert(socket, why);
                    entry.bell.ring();
                }
            }
            Action::ClosedRelayed(by, from, why) => {
                let peer = format!("node {from}, relayed by {by}");
                let source = state.machine.source_of(by).relays();
                self.tell_why(state, now, peer, source, None, &why);
            }
            Action::Connection(node, how) => {
                state.carried_by(node);
                // Connections that the node relays go over its socket.
                state.machine.relayed_over(node).into_iter().for_each(|peer| state.carried_by(peer));
                match &how {
                    ConnectionState::Lost(_) => state.tell_lost(node),
                    ConnectionState::Down(why) => {
                        let woken = state.mailboxes.lost(node, why);
                        self.deliver(woken.into_iter().map(Delivery::Woken), state, arrivals);
                    }
                    _ => {}
                }
                self.with_hub(state, now, |hub, cx| hub.hear(cx, Heard::Connection(node, how)));
            }
            Action::Names(from, said) => self.with_hub(state, now, |hub, cx| hub.hear(cx, Heard::Names(from, *said))),
            Action::Replied(channel, replied) => {
                self.deliver(self.replied(state, now, channel, replied), state, arrivals)
            }
            Action::Unwanted(channel) => self.deliver(self.unwanted(state, channel), state, arrivals),
            Action::Read(from, channel, read) => {
                message::serve(from, channel, read, &mut Locked { driver: self, state, now });
            }
            Action::Post(heard) => self.deliver(self.hear_post(state, heard), state, arrivals),
            Action::Signal(heard) => self.deliver(self.hear_signal(state, now, *heard), state, arrivals),
            Action::Unrelayed(node) => {
                let source = state.machine.source_of(node);
                self.with_hub(state, now, |hub, _| hub.refuse_relay(node, source));
            }
            Action::Declined(node, what) => {
                let source = state.machine.source_of(node);
                self.with_hub(state, now, |hub, _| hub.decline(node, source, what));
            }
            Action::Introduced(address, who) => {
                self.with_hub(state, now, |hub, cx| hub.hear(cx, Heard::Introduced(address, who)));
            }
            // The end of its connection follows, and the client of this home is declared anew.
            Action::Home(channel, _, HomeHears::Lost(_))
                if self.with_hub(state, now, |hub, _| hub.is_unanswered(channel)) => {}
            Action::Home(channel, from, heard) => {
                match heard {
                    HomeHears::Attached => {
                        // This gives the home its bridge, if it has none.
                        self.with_hub(state, now, |hub, cx| hub.attached(cx, channel));
                        state.meets((channel, Which::Receiver), from.node);
                    }
                    HomeHears::Take => {
                        self.with_hub(state, now, |hub, cx| hub.rouse_home(cx, channel));
                        state.meets((channel, Which::Receiver), from.node);
                    }
                    HomeHears::Ended(End::Gone | End::Lost) | HomeHears::Lost(_) => self.over(state, now, channel),
                    _ => {}
                }
                if let HomeHears::Sent(bytes) = &heard
                    && let Some(encoding) = state.late.get(&channel).copied()
                    && !state.stretched.contains_key(&(channel, Which::Receiver))
                {
                    let bytes = bytes.clone();
                    state.machine.drained(channel, 1, bytes.len() as u64);
                    return message::drop_ends(bytes, from, encoding, &mut Locked { driver: self, state, now });
                }
                state.tell_beside((channel, Which::Receiver), Told::Home(from, heard), arrivals);
                state.has_settled(channel);
            }
            Action::Proxy(channel, heard) => {
                if let ProxyHears::Ended(End::Gone)
                | ProxyHears::Lost { .. }
                | ProxyHears::Rejected(Rejection::NoSuchChannel) = heard
                {
                    self.over(state, now, channel);
                }
                if let ProxyHears::Lost { .. } = heard {
                    state.lose_detained(channel);
                }
                if let ProxyHears::Home(home, ..) | ProxyHears::Moved(home, _) = heard {
                    state.meets((channel, Which::Sender), home);
                }
                state.tell_beside((channel, Which::Sender), Told::Proxy(heard), arrivals);
                state.has_settled(channel);
            }
        }
    }

    /// Reports why a socket is closed, if that is of interest.
    fn tell_closed(self: &Arc<Self>, state: &mut State, now: Time, socket: SocketId, why: &Closed) {
        let Some(Entry { peer, source, dialled, .. }) = state.sockets.get(&socket) else { return };
        let (peer, source, dialled) = (peer.clone(), *source, dialled.clone());
        self.tell_why(state, now, peer, source, dialled, why);
    }

    /// The same for a socket with this peer, from this source, or dialled at that address.
    fn tell_why(
        self: &Arc<Self>,
        state: &mut State,
        now: Time,
        peer: String,
        source: Source,
        dialled: Option<String>,
        why: &Closed,
    ) {
        let stays_so = |refusal: &Refusal| {
            matches!(refusal, Refusal::Version(_) | Refusal::Application(_) | Refusal::Unauthorized)
        };
        let event = match (dialled, why) {
            (Some(at), Closed::Refused(refusal)) if stays_so(refusal) => {
                NodeEvent::Unwelcome { at, why: refusal.to_string() }
            }
            (Some(at), Closed::Garbage(why)) => {
                NodeEvent::Unwelcome { at, why: format!("no dunlin node answers: {why}") }
            }
            (Some(at), Closed::Unproven(_) | Closed::Unauthorized(_)) => {
                NodeEvent::Unwelcome { at, why: why.to_string() }
            }
            (_, Closed::Violation(node)) => {
                let node = *node;
                return self.with_hub(state, now, |hub, _| hub.came_from(node, source));
            }
            (None, Closed::Stranger { node, application }) => {
                let why = format!("the node belongs to application {application:?}");
                let node = *node;
                return self.with_hub(state, now, |hub, _| hub.stranger(node, source, peer, why));
            }
            (None, Closed::Refused(Refusal::Version((oldest, newest)))) => NodeEvent::Stranger {
                from: peer,
                why: format!("the dialler speaks none of the protocol versions of this node, {oldest} to {newest}"),
            },
            (None, Closed::Refused(Refusal::Unauthorized)) => NodeEvent::Stranger {
                from: peer,
                why: "the program of this node does not admit the dialler".to_owned(),
            },
            (None, Closed::Garbage(why)) => NodeEvent::Stranger { from: peer, why: why.clone() },
            (
                None,
                Closed::Unproven(_)
                | Closed::Refused(Refusal::Unproven | Refusal::AnotherLife(_) | Refusal::Impossible),
            ) => NodeEvent::Stranger { from: peer, why: why.to_string() },
            (None, Closed::Crowded) => NodeEvent::Limit(Limit::Handshakes { from: peer }),
            (None, Closed::Refused(Refusal::Busy)) if !state.machine.is_leaving() => {
                NodeEvent::Limit(Limit::Connections { from: peer })
            }
            _ => return,
        };
        self.with_hub(state, now, |hub, _| match event {
            NodeEvent::Unwelcome { at, why } => hub.unwelcome(at, why),
            event => hub.refuse(event, source),
        });
    }

    /// A channel ends as soon as its end hears this. Its name is free earlier: the first party to hear it may
    /// declare the name anew.
    fn over(self: &Arc<Self>, state: &mut State, now: Time, channel: ChannelId) {
        self.with_hub(state, now, |hub, cx| hub.over(cx, channel));
    }

    /// Calls the hub, which calls everything else.
    pub(crate) fn with_hub<R: Default>(
        self: &Arc<Self>,
        state: &mut State,
        now: Time,
        f: impl FnOnce(&mut Hub, &mut Locked<'_>) -> R,
    ) -> R {
        // The callees of the hub may have to call the hub: it learns what they report then from its own
        // records.
        let Some(mut hub) = state.hub.take() else { return R::default() };
        let mut cx = Locked { driver: self, state, now };
        let result = f(&mut hub, &mut cx);
        hub.settle(&mut cx);
        state.hub = Some(hub);
        result
    }

    /// Does nothing, and returns the default, if the node has left. Whatever `f` owns then is dropped within
    /// the lock, so users' values have to be lent to it.
    pub(crate) fn with_hub_now<R: Default>(self: &Arc<Self>, f: impl FnOnce(&mut Hub, &mut Locked<'_>) -> R) -> R {
        self.with(|state, now| self.with_hub(state, now, f))
    }

    fn add_errand(&self, errand: Errand) {
        let mut errands = lock(&self.errands);
        errands.push(errand);
        self.has_errands.store(true, Ordering::Release);
    }

    /// May be called from anywhere, also within the lock.
    pub(super) fn do_soon(&self, errand: Errand) {
        self.add_errand(errand);
        self.bell.ring();
    }

    fn take_errands(&self) -> Vec<Errand> {
        let mut errands = lock(&self.errands);
        self.has_errands.store(false, Ordering::Release);
        std::mem::take(&mut *errands)
    }

    /// No caller waits for this declaration any more. May be called from anywhere, also by the drop of a
    /// message.
    pub(crate) fn give_up(&self, number: u64) {
        self.do_soon(Errand::Undeclare(number));
    }

    /// A client is to be declared anew. May be called from anywhere, also within the lock.
    pub(super) fn reclaimed(&self, reclaimed: Reclaimed) {
        self.do_soon(Errand::DeclareAnew(reclaimed));
    }

    /// A waiting end of this number has something to send. May be called from anywhere, also within the lock.
    pub(super) fn end_stirs(&self, number: u64) {
        self.do_soon(Errand::Stirs(number));
    }

    #[cold]
    fn run_errand(self: &Arc<Self>, state: &mut State, now: Time, errand: Errand) {
        match errand {
            Errand::Undeclare(number) => self.with_hub(state, now, |hub, cx| hub.undeclare(cx, number)),
            Errand::CallerLeaves(channel) => self.caller_stirs(state, now, channel),
            Errand::Stirs(number) => self.with_hub(state, now, |hub, cx| hub.stirs(cx, number)),
            Errand::Received { mailbox, from, bytes } => state.machine.post_received(mailbox, from, bytes),
            Errand::MailboxClosed(number) => self.close_mailbox(state, number),
            Errand::ExitReceived { from, bytes } => state.machine.exit_received(from, bytes),
            Errand::DeclareAnew(mut reclaimed) => {
                self.with_hub(state, now, |hub, cx| hub.declare_anew(cx, &mut reclaimed));
            }
        }
    }

    /// No handle of the node is left: it leaves, in a task of its own. May be called from anywhere.
    pub(super) fn abandon(&self, abandoned: Abandoned) {
        *lock(&self.abandoned) = Some(abandoned);
        self.bell.ring();
    }

    /// Notified when the name service is lost.
    pub(crate) fn names_lost(self: &Arc<Self>) -> Arc<Notify> {
        self.with_hub_now(|hub, _| hub.names_lost.clone())
    }

    /// Has the clock ring at this time at the latest.
    pub(crate) fn alarm(&self, state: &mut State, at: Time) {
        if state.hub_alarm.is_none_or(|alarm| at < alarm) {
            state.hub_alarm = Some(at);
            self.bell.ring();
        }
    }

    /// Resolves when everything sent was acknowledged, or no node is left to acknowledge it.
    pub(crate) fn flushed(self: &Arc<Self>) -> oneshot::Receiver<()> {
        let (told, flushed) = oneshot::channel();
        self.with(|state, _| state.flushed.push(told));
        flushed
    }

    /// Resolves when no end that this node has handed on needs it any more.
    pub(crate) fn settled(self: &Arc<Self>) -> oneshot::Receiver<()> {
        let (told, settled) = oneshot::channel();
        self.with(|state, _| state.settled.push(told));
        settled
    }

    /// The ends that this node has handed on, and that still need it.
    pub(crate) fn unsettled(self: &Arc<Self>) -> Vec<UnsettledEnd> {
        self.speak(|locked| {
            let ends = locked.state.machine.unsettled().map(|end| UnsettledEnd {
                what: match end.which {
                    Which::Sender => "sender",
                    Which::Receiver => "receiver",
                },
                holder: end.holder.map(Peer),
            });
            ends.collect()
        })
    }

    fn add_socket(
        self: &Arc<Self>,
        state: &mut State,
        socket: Box<dyn Socket>,
        dialled: Option<String>,
    ) -> (SocketId, Source) {
        let id = SocketId(state.next_socket);
        state.next_socket += 1;
        let peer = socket.peer();
        let (source, identity, is_local) = (socket.source(), socket.identity(), socket.is_local());
        let is_trusted = state.trusted_sources.iter().any(|trusted| net::is_in(source, trusted));
        let source = if is_trusted { Source::Socket(id) } else { source };
        let bell = Arc::<Bell>::default();
        let carrier = Carrier::new(self.clone(), id, bell.clone(), socket);
        let post = Post::new(self.clone(), bell.clone(), carrier);
        let post_of_it = Arc::downgrade(&post);
        state.sockets.insert(id, Entry { bell, post: post_of_it, peer, source, dialled, identity, is_local });
        state.looks_at_memory(self.lately());
        world::spawn_own(post.serve(0));
        (id, source)
    }

    /// A socket is gone, and its task ends.
    pub(super) fn socket_over(self: &Arc<Self>, id: SocketId, bell: &Bell) {
        self.with(|state, now| {
            state.sockets.remove(&id);
            state.looks_at_memory(now);
            state.parting.remove(&id);
            state.machine.closed(now, id);
            self.act(state, now);
            let left = bell.close();
            state.list_anew(left);
        });
        self.bell.ring();
    }

    /// Whether the node has left, or was given up.
    pub(super) fn has_ended(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Asks the program whether a node may have connections, in a task of its own: that is code of users.
    async fn admit(self: Arc<Self>, admits: Authorize, socket: SocketId, applicant: Applicant) {
        let is_admitted = admits.admits(&applicant);
        self.with(|state, now| state.machine.authorized(now, socket, is_admitted));
    }

    /// Dials and keeps the time, for as long as the node lives.
    pub(crate) async fn run(self: Arc<Self>) {
        let _watchdog = (!world::is_simulated()).then(|| self.watchdog());
        let mut sleep = Box::pin(self.guarded.clock.timer(Time(0)));
        let mut sleeps_until = Time(0);
        let mut look_at = None;
        loop {
            let abandoned = lock(&self.abandoned).take();
            if let Some(abandoned) = abandoned
                && !self.has_ended()
            {
                world::spawn_own(self.clone().last_words(abandoned));
            }
            let (dials, applicants, garbage, lines, due) = self.with(|state, now| {
                state.machine.tick(now);
                state.use_resting(now);
                let State { machine, late, .. } = &mut *state;
                late.retain(|channel, _| machine.has_home(*channel));
                state.looks_at_memory(now);
                if state.trim.is_time(now) && !world::is_simulated() {
                    // Not here: other threads wait for the lock.
                    drop(tokio::task::spawn_blocking(trim));
                }
                if state.hub_alarm.is_some_and(|at| now >= at) {
                    state.hub_alarm = None;
                    self.with_hub(state, now, |_, _| ());
                }
                // What is looked at below needs no ring.
                state.alarm = Some(Time(0));
                state.clearing += usize::from(!state.garbage.is_empty());
                let State { dials, applicants, garbage, lines, due, .. } = state;
                let (dials, applicants) = (std::mem::take(dials), std::mem::take(applicants));
                (dials, applicants, std::mem::take(garbage), std::mem::take(lines), std::mem::take(due))
            });
            let writes = !lines.is_empty();
            self.log.keep(lines);
            if self.bell.stirred() > 0 || !garbage.is_empty() || !due.is_empty() || writes {
                let driver = self.clone();
                // Not here: the work may be held up.
                world::spawn_own(async move {
                    driver.work(&driver.bell, true);
                    due.into_iter().for_each(Delivery::run);
                    if !garbage.is_empty() {
                        garbage.into_iter().for_each(discard);
                        driver.speak(|locked| locked.state.clearing -= 1);
                    }
                    driver.log.write();
                });
            }
            if look_at.is_none_or(|at| self.now() >= at) {
                look_at = self.watch.look(self.now(), || self.posts());
            }
            {
                let mut state = self.locked();
                state.alarm = state.next_alarm();
            }
            let dials = if self.closing.load(Ordering::Acquire) { Vec::new() } else { dials };
            for (id, address) in dials {
                world::spawn_own(self.clone().dial(id, address));
            }
            for (admits, socket, applicant) in applicants {
                world::spawn_own(self.clone().admit(admits, socket, applicant));
            }
            if self.closing.load(Ordering::Acquire) && self.locked().sockets.is_empty() {
                return;
            }
            poll_fn(|cx| {
                if self.bell.poll_rung(cx) {
                    return Poll::Ready(());
                }
                let Some(at) = self.locked().alarm.into_iter().chain(look_at).min() else { return Poll::Pending };
                if sleeps_until != at {
                    sleeps_until = at;
                    sleep.set(self.guarded.clock.timer(at));
                }
                sleep.as_mut().poll(cx)
            })
            .await;
        }
    }

    /// The posts that serve the sockets.
    fn posts(&self) -> Vec<Arc<dyn Serves>> {
        self.locked().sockets.values().filter_map(|entry| entry.post.upgrade()).collect()
    }

    async fn dial(self: Arc<Self>, id: DialId, address: String) {
        let may_dial_here = self.speak(|locked| locked.state.machine.may_dial_here(id));
        let dialling = async {
            if may_dial_here {
                self.networks.dial(&address).await
            } else {
                self.networks.dial_elsewhere(&address).await
            }
        };
        let dialled = world::within(self.dial_max, dialling).await;
        let result = dialled.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()));
        let application = self.log.application();
        match &result {
            Ok(_) => tracing::debug!(target: "dunlin::node", application, address, "dialled"),
            Err(why) => tracing::debug!(target: "dunlin::node", application, address, %why, "no node answers"),
        }
        self.with(|state, now| match result {
            // The node has ended. `close` sets this before it looks for sockets.
            _ if self.closing.load(Ordering::Acquire) => {}
            Ok(socket) => {
                let (is_local, host) = (socket.is_local(), socket.host());
                let (socket, source) = self.add_socket(state, socket, Some(address));
                state.machine.dialled(now, id, socket);
                state.machine.leads_to(socket, source);
                if let Some(host) = host {
                    state.machine.comes_from(socket, host);
                }
                if is_local {
                    state.machine.is_near(socket);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let is_local = self.networks.is_local(&address);
                state.machine.dial_refused(now, id, is_local, format!("{address}: {error}"));
            }
            Err(error) => {
                if !may_dial_here && error.kind() == io::ErrorKind::PermissionDenied {
                    let (at, why) = (address.clone(), error.to_string());
                    self.with_hub(state, now, |hub, _| hub.unwelcome(at, why));
                }
                state.machine.dial_failed(now, id, format!("{address}: {error}"));
            }
        });
    }

    /// A node has dialled this one.
    pub(crate) fn accepted(self: &Arc<Self>, socket: Box<dyn Socket>) {
        self.with(|state, now| {
            if self.closing.load(Ordering::Acquire) {
                return;
            }
            let (is_local, host) = (socket.is_local(), socket.host());
            let (socket, source) = self.add_socket(state, socket, None);
            state.machine.accepted_from(now, socket, source);
            if let Some(host) = host {
                state.machine.comes_from(socket, host);
            }
            if is_local {
                state.machine.is_near(socket);
            }
        });
    }

    /// Whether the tasks of many sockets, more than one in 32, have yet to close them.
    pub(crate) fn has_many_to_close(&self) -> bool {
        let state = self.locked();
        state.parting.len() * 32 > state.sockets.len()
    }

    /// Ends every socket, and what this node's ends wait for; the tasks of the node end with the sockets.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closing.store(true, Ordering::Release);
        let (stretched, hub, replies, due) = self.speak(|locked| {
            let (replies, due) = (locked.state.take_replies(), std::mem::take(&mut locked.state.due));
            let State { sockets, parting, .. } = locked.state;
            for (socket, entry) in sockets.iter() {
                parting.insert(*socket, Closed::Over);
                entry.bell.ring();
            }
            locked.state.flushes.clear();
            (std::mem::take(&mut locked.state.stretched), locked.state.hub.take(), replies, due)
        });
        let mut lines = self.speak(|locked| std::mem::take(&mut locked.state.lines));
        if let Some(hub) = hub {
            hub.farewell(&mut lines);
        }
        self.log.keep(lines);
        self.end_all(stretched);
        replies.end();
        due.into_iter().for_each(Delivery::run);
        self.log.write();
        self.bell.ring();
    }
}

/// The node's tasks have ended without closing it, as they do when a runtime is dropped.
impl Drop for Driver {
    fn drop(&mut self) {
        let mut state = self.locked();
        let stretched = std::mem::take(&mut state.stretched);
        let returned = std::mem::take(&mut state.returned);
        let hub = state.hub.take();
        let garbage = std::mem::take(&mut state.garbage);
        let (replies, due) = (state.take_replies(), std::mem::take(&mut state.due));
        let watched = state.signals.take_all();
        drop(state);
        self.takes_no_more_signals(watched);
        stretched.into_iter().for_each(discard);
        returned.into_values().for_each(discard);
        discard(hub);
        garbage.into_iter().for_each(discard);
        replies.end();
        due.into_iter().for_each(Delivery::run);
    }
}

impl State {
    fn looks_at_memory(&mut self, now: Time) {
        self.trim.sees(now, self.sockets.len(), self.machine.held_for_all());
    }

    fn next_alarm(&self) -> Option<Time> {
        let resting = self.resting.front().map(|(at, _)| *at);
        self.machine.next_tick().into_iter().chain(self.hub_alarm).chain(resting).chain(self.trim.due()).min()
    }

    /// A receiver has arrived in a message, or stays here after all. If it is not sent on soon its channel
    /// follows. Most receivers are used only after their program has been notified of something, and by then
    /// they must not need the node that sent them.
    pub(super) fn rests(&mut self, now: Time, channel: ChannelId) {
        if self.machine.is_guest(channel, Which::Receiver) {
            self.resting.push_back((now + REST, channel));
        }
    }

    fn use_resting(&mut self, now: Time) {
        while let Some((at, channel)) = self.resting.front().copied()
            && at <= now
        {
            self.resting.pop_front();
            self.machine.use_resting(now, channel);
        }
    }

    /// The bell of the task whose socket carries the connection to this node.
    pub(super) fn bell_of(&self, node: NodeId) -> Option<Arc<Bell>> {
        let entry = self.machine.carried_by(node).and_then(|socket| self.sockets.get(&socket));
        entry.map(|entry| entry.bell.clone())
    }
}
