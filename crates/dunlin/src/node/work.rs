//! The work on channels that reach other nodes: it takes what their ends send, and gives them what arrives
//! for them.
//!
//! Code of users runs in it: messages are encoded, decoded and dropped. So nothing of the node is locked
//! meanwhile. A work takes the bridge of its channel out of the [`State`]; what arrives for the channel waits
//! until the bridge is back, and the machine is locked for one word at a time ([`Says::speak`]). So the works
//! of one channel follow one another, and those of different channels are independent.
//!
//! If that code panics, its channel is poisoned with the panic's text, and everything else continues.
//!
//! The task of the socket that carries a channel works on it too, so that a message takes no detour. If the
//! work delays the socket for too long, another task takes the socket over (`post.rs`). A channel whose works
//! have taken long gets a thread for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::HomeHears;
use dunlin_proto::id::{ChannelId, NodeId};
use dunlin_proto::time::Time;
use dunlin_proto::wire::Which;
use dunlin_sorted::SortedSet;
use tokio::sync::oneshot;

use super::bell::{Bell, EndWaker};
use super::codec::{Encoding, catch};
use super::id::Half;
use super::message;
use super::state::{Bridge, Driver, Linked, Locked, Says, State, Stretched, Told};
use crate::world;

/// A work that takes this long gets a thread of its own ...
pub(super) const LONG: Duration = Duration::from_millis(1);
/// ... and so do this many that follow it on its channel.
const WARY: u32 = 16;

/// How many panics one work may have; then its channel is dropped.
const PANICS_MAX: u32 = 16;

/// One work on a channel.
struct Job {
    half: Half,
    bridge: Option<Box<dyn Bridge>>,
    /// As what its agent stood by before. It is dropped with the work, where nothing is locked.
    linked: Option<Arc<dyn Linked>>,
    waker: Arc<EndWaker>,
    told: VecDeque<Told>,
    until: Vec<Arc<oneshot::Sender<()>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    GoesOn,
    /// The channel has ended.
    Over,
    /// The bridge has been taken away.
    Taken,
}

impl Job {
    fn run(&mut self, driver: &Arc<Driver>) -> Turn {
        for _ in 0..PANICS_MAX {
            let panicked = match catch(|| self.turn(driver)) {
                Ok(turn) => return turn,
                Err(text) => format!("a message panicked: {text}"),
            };
            let Some(bridge) = &mut self.bridge else { return Turn::Taken };
            if catch(|| bridge.fail(&panicked, &Says { driver, channel: self.half.0, which: self.half.1 })).is_err() {
                break;
            }
        }
        Turn::Over
    }

    fn turn(&mut self, driver: &Arc<Driver>) -> Turn {
        let says = Says { driver, channel: self.half.0, which: self.half.1 };
        loop {
            let told = self.told.pop_front();
            let Some(bridge) = &mut self.bridge else { return Turn::Taken };
            match told {
                Some(Told::Home(from, heard)) => bridge.hear_sender(from, heard, &says),
                Some(Told::Proxy(heard)) => bridge.hear_home(heard, &says),
                Some(Told::Retry) => bridge.retry(&says),
                Some(Told::Unlink) => bridge.unlink(&says),
                Some(Told::Matched) => bridge.matched(),
                Some(Told::Lent(end)) => bridge.lent(end, &says),
                Some(Told::Onward(ticket)) => bridge.onward(ticket, &says),
                Some(Told::Read(ticket, message)) => bridge.read(ticket, message, &says),
                Some(Told::ConnectionLost) => bridge.connection_lost(&says),
                Some(Told::Until(until)) => self.until.push(until),
                Some(Told::Take(taking)) => {
                    if let Some(bridge) = self.bridge.take() {
                        taking(driver, bridge);
                    }
                    return Turn::Taken;
                }
                None => {
                    let waker = Waker::from(self.waker.clone());
                    return match bridge.poll(&mut Context::from_waker(&waker), &says) {
                        Poll::Pending => Turn::GoesOn,
                        Poll::Ready(()) => Turn::Over,
                    };
                }
            }
        }
    }
}

/// Drops a value that may be a user's.
pub(super) fn discard<T>(value: T) {
    // A panic in such a drop concerns no caller: only the panic's own message shows it.
    let _ = catch(|| drop(value));
}

impl Driver {
    /// Works on the channels that this bell has listed up to now. `timed`: measures how long each takes.
    pub(super) fn work(self: &Arc<Self>, bell: &Bell, timed: bool) {
        for _ in 0..bell.stirred() {
            let Some(half) = bell.next() else { return };
            self.work_on(half, true, timed);
        }
    }

    /// `briefly`: the caller holds something up.
    fn work_on(self: &Arc<Self>, half: Half, briefly: bool, timed: bool) {
        let since = timed.then(|| self.now());
        let job = self.speak(|locked| {
            let stretched = locked.state.stretched.get_mut(&half)?;
            if briefly && stretched.wary > 0 {
                return Some(None);
            }
            stretched.waker.heed();
            stretched.begin(half).map(Some)
        });
        match job {
            None => {}
            Some(None) => {
                let driver = self.clone();
                world::apart(move || driver.work_on(half, false, true));
            }
            Some(Some(mut job)) => {
                let turn = job.run(self);
                let took = since.map_or(Duration::ZERO, |since| self.now().since(since));
                let is_over = turn != Turn::GoesOn;
                self.speak(|locked| {
                    // From here on the end belongs to no half, and until the bridge has been dropped it does
                    // not belong to its holder alone either: a message with it waits.
                    locked.state.clearing += usize::from(is_over);
                    self.end_work(locked, &mut job, turn, took);
                    self.act(locked.state, locked.now);
                });
                let awaited = !job.until.is_empty();
                discard(job);
                if is_over {
                    self.speak(|locked| locked.state.clearing -= 1);
                }
                if awaited {
                    // The hub may have waited for this.
                    self.with_hub_now(|_, _| ());
                }
            }
        }
    }

    fn end_work(self: &Arc<Self>, locked: &mut Locked<'_>, job: &mut Job, turn: Turn, took: Duration) {
        let (state, now) = (&mut *locked.state, locked.now);
        let Some(stretched) = state.stretched.get_mut(&job.half) else { return };
        // Another half may have its place meanwhile.
        if !Arc::ptr_eq(&stretched.waker, &job.waker) {
            return;
        }
        if turn == Turn::GoesOn {
            stretched.wary = if took >= LONG { WARY } else { stretched.wary.saturating_sub(1) };
            stretched.end(job);
            return state.has_settled(job.half.0);
        }
        let unheard = std::mem::take(&mut stretched.told);
        state.remove(job.half);
        state.has_settled(job.half.0);
        if turn == Turn::Over {
            self.half_is_over(state, now, job.half);
            if let Some(encoding) = job.bridge.as_ref().and_then(|bridge| bridge.late_values()) {
                for told in unheard {
                    if let Told::Home(from, HomeHears::Sent(bytes)) = told {
                        state.machine.drained(job.half.0, 1, bytes.len() as u64);
                        message::drop_ends(bytes, from, encoding, &mut Locked { driver: self, state, now });
                    }
                }
                if state.machine.has_home(job.half.0) {
                    state.late.insert(job.half.0, encoding);
                }
            }
        }
    }

    /// If nothing of the channel is left here, its name is free.
    pub(super) fn half_is_over(self: &Arc<Self>, state: &mut State, now: Time, (channel, which): Half) {
        let other = if which == Which::Sender { Which::Receiver } else { Which::Sender };
        if !state.stretched.contains_key(&(channel, other)) {
            self.with_hub(state, now, |hub, cx| hub.over(cx, channel));
        }
    }

    /// A channel of this node now reaches `peer`, or will.
    pub(crate) fn stretch(
        self: &Arc<Self>,
        state: &mut State,
        channel: ChannelId,
        peer: Option<NodeId>,
        bridge: Box<dyn Bridge>,
    ) {
        let half = (channel, bridge.which());
        if !state.stretched.get(&half).is_some_and(|stretched| stretched.expected) {
            self.expect(state, half, peer);
        }
        if let Some(stretched) = state.stretched.get_mut(&half) {
            stretched.expected = false;
            stretched.core = bridge.core();
            if let Some((core, _)) = stretched.core {
                state.by_core.insert(core, half);
            }
            stretched.bridge = Some(bridge);
            stretched.waker.wake_by_ref();
        }
    }

    /// The bridge of this channel will come: whatever arrives for it before that waits.
    pub(crate) fn expect(self: &Arc<Self>, state: &mut State, half: Half, peer: Option<NodeId>) {
        let waker = EndWaker::new(half, Arc::downgrade(&self.bell));
        waker.carried_by(peer.and_then(|peer| state.bell_of(peer)));
        let expected = Stretched {
            bridge: None,
            core: None,
            waker,
            peer,
            told: VecDeque::new(),
            again: false,
            wary: 0,
            linked: None,
            expected: true,
        };
        state.remove(half);
        state.stretched.insert(half, Box::new(expected));
    }

    /// Waits until the ends of this node have sent everything that they have to send now.
    pub(crate) async fn all_said(self: &Arc<Self>) {
        let (until, said) = oneshot::channel();
        let until = Arc::new(until);
        // First ends that wait under a name and have been used get their bridges now.
        self.with(|_, _| ());
        self.with(|state, _| {
            for stretched in state.stretched.values_mut().filter(|stretched| !stretched.expected) {
                stretched.tell(Told::Until(until.clone()));
            }
        });
        drop(until);
        // No value is sent: the sender is dropped.
        let _ = said.await;
    }

    /// Passes on what had arrived for the channels; then drops them. Nothing is locked.
    pub(super) fn end_all(self: &Arc<Self>, stretched: impl IntoIterator<Item = (Half, Box<Stretched>)>) {
        for (half, mut stretched) in stretched {
            stretched.tell(Told::Take(Box::new(|_, bridge| drop(bridge))));
            if let Some(mut job) = stretched.begin(half) {
                job.run(self);
                discard(job);
            }
            discard(stretched);
        }
    }
}

impl Stretched {
    /// `None`: a task works on it, and will see that there is more to do.
    fn begin(&mut self, half: Half) -> Option<Job> {
        if self.linked.as_ref().is_some_and(|linked| linked.is_busy()) {
            return None;
        }
        let Some(bridge) = self.bridge.take() else {
            self.again = true;
            return None;
        };
        Some(Job {
            half,
            bridge: Some(bridge),
            linked: None,
            waker: self.waker.clone(),
            told: std::mem::take(&mut self.told),
            until: Vec::new(),
        })
    }

    fn end(&mut self, job: &mut Job) {
        self.bridge = job.bridge.take();
        let linked = self.bridge.as_ref().and_then(|bridge| bridge.linked());
        job.linked = std::mem::replace(&mut self.linked, linked);
        if self.told.is_empty() {
            // Keeps the allocation.
            std::mem::swap(&mut self.told, &mut job.told);
        } else {
            self.again = true;
        }
        if std::mem::take(&mut self.again) {
            self.waker.wake_by_ref();
        }
    }

    fn owes(&self) -> bool {
        !self.expected && self.bridge.as_ref().is_none_or(|bridge| bridge.owes())
    }
}

impl State {
    /// Does this with the bridge of a channel that ends here.
    pub(crate) fn take_bridge(
        &mut self,
        half: Half,
        then: impl FnOnce(&Arc<Driver>, Box<dyn Bridge>) + Send + 'static,
    ) {
        self.tell(half, Told::Take(Box::new(then)));
    }

    /// Its sender is dropped once the ends of channels to this node have received everything that has arrived
    /// for them so far.
    pub(crate) fn said_of(&mut self, node: NodeId) -> oneshot::Receiver<()> {
        let (until, said) = oneshot::channel();
        let until = Arc::new(until);
        let there = |stretched: &&mut Box<Stretched>| stretched.peer == Some(node) && !stretched.expected;
        for stretched in self.stretched.values_mut().filter(there) {
            stretched.tell(Told::Until(until.clone()));
        }
        said
    }

    /// The half here with this channel in the core, and how its messages are encoded.
    pub(super) fn half_of(&self, core: CoreId) -> Option<(Half, Encoding)> {
        let half = *self.by_core.get(&core)?;
        let (_, encoding) = self.stretched.get(&half)?.core?;
        Some((half, encoding))
    }

    fn remove(&mut self, half: Half) {
        let Some(gone) = self.stretched.remove(&half) else { return };
        // A home that was found by its name has another number, under which it is here already.
        if let Some((core, _)) = gone.core
            && self.by_core.get(&core) == Some(&half)
        {
            self.by_core.remove(&core);
        }
        self.garbage.push(gone);
    }

    /// Whether it has a bridge, or will have one.
    pub(super) fn is_stretched(&self, half: Half) -> bool {
        self.stretched.contains_key(&half)
    }

    /// Whether the node of the other half of its channel is, or was, known.
    pub(super) fn has_peer(&self, half: Half) -> bool {
        self.stretched.get(&half).is_some_and(|stretched| stretched.peer.is_some())
    }

    /// Whether the machine has everything that this half has to send.
    pub(super) fn is_quiet(&self, half: Half) -> bool {
        self.stretched.get(&half).is_some_and(|stretched| {
            stretched.bridge.as_ref().is_some_and(|bridge| bridge.rests())
                && stretched.told.is_empty()
                && !stretched.again
                && !stretched.waker.is_stirred()
        })
    }

    /// The agent of this half resumes, if it stands by: an end that leaves has no link.
    pub(super) fn unlink(&mut self, half: Half) {
        if let Some(stretched) = self.stretched.get_mut(&half)
            && stretched.bridge.is_some()
            && stretched.linked.is_some()
        {
            stretched.tell(Told::Unlink);
        }
    }

    /// Whether a task works on a channel, or is going to.
    pub(super) fn is_at_work(&self) -> bool {
        let is_at_work = |stretched: &Stretched| {
            stretched.bridge.is_none()
                || !stretched.told.is_empty()
                || stretched.waker.is_stirred()
                || stretched.linked.as_ref().is_some_and(|linked| linked.is_busy())
        };
        self.stretched.values().any(|stretched| !stretched.expected && is_at_work(stretched))
    }

    /// Whether messages that no caller waits for are still to go.
    pub(super) fn owes(&self) -> bool {
        self.owing().next().is_some()
    }

    /// The halves with messages still to go that no caller waits for.
    pub(super) fn owing(&self) -> impl Iterator<Item = Half> {
        self.stretched.iter().filter(|(_, stretched)| stretched.owes()).map(|(half, _)| half)
    }

    /// Whether this half has such messages still to go.
    pub(super) fn owes_of(&self, half: Half) -> bool {
        self.stretched.get(&half).is_some_and(|stretched| stretched.owes())
    }

    /// The node at the other end, once it is known.
    pub(super) fn peer_of(&self, half: Half) -> Option<NodeId> {
        self.stretched.get(&half)?.peer
    }

    /// How many values with complete sends the halves here have yet to send, and to which node.
    pub(super) fn unsaid(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.stretched.values().filter_map(|stretched| {
            let unsaid = stretched.bridge.as_ref().map_or(0, |bridge| bridge.unsaid());
            stretched.peer.filter(|_| unsaid > 0).map(|peer| (peer, unsaid as u64))
        })
    }

    /// A message on `carrying` waits until an end of `channel`, which is in it, is at rest.
    pub(super) fn wait_for(&mut self, channel: ChannelId, carrying: Half) {
        self.awaited.get_or_insert_with(channel, SortedSet::new).insert(carrying);
    }

    /// Something of this channel has been settled: messages that wait for one of its ends try again.
    #[inline]
    pub(super) fn has_settled(&mut self, channel: ChannelId) {
        if !self.awaited.is_empty() {
            self.try_again(channel);
        }
    }

    #[cold]
    fn try_again(&mut self, channel: ChannelId) {
        for carrying in self.awaited.remove(&channel).into_iter().flatten() {
            self.tell(carrying, Told::Retry);
        }
    }

    /// The bridge that was [expected](Driver::expect) will not come.
    pub(crate) fn forget(&mut self, half: Half) {
        if self.stretched.get(&half).is_some_and(|stretched| stretched.expected) {
            self.remove(half);
        }
    }

    /// The ends of channels to this node wake the task of the socket that carries them now.
    pub(super) fn carried_by(&mut self, node: NodeId) {
        let bell = self.bell_of(node);
        for stretched in self.stretched.values().filter(|stretched| stretched.peer == Some(node)) {
            stretched.waker.carried_by(bell.clone());
        }
    }

    /// The other end of this channel is at that node.
    pub(super) fn meets(&mut self, half: Half, node: NodeId) {
        let bell = self.bell_of(node);
        if let Some(stretched) = self.stretched.get_mut(&half) {
            stretched.peer = Some(node);
            stretched.waker.carried_by(bell);
        }
    }

    pub(super) fn tell_lost(&mut self, node: NodeId) {
        for stretched in self.stretched.values_mut().filter(|stretched| stretched.peer == Some(node)) {
            stretched.tell(Told::ConnectionLost);
        }
    }

    /// A socket has ended: the channels listed at its bell are listed anew.
    pub(super) fn list_anew(&mut self, halves: VecDeque<Half>) {
        for half in halves {
            if let Some(stretched) = self.stretched.get(&half) {
                stretched.waker.list_anew();
            }
        }
    }
}
