//! The hub of a broadcast: what the channels of its receivers, its members, share.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Poll, Waker};

use super::policy::Policy;
use crate::error::{Reason, Why};
use crate::lock::Lock;
use crate::waits::Pid;
use crate::wake;

/// The channel of a receiver, as its hub sees it.
pub(crate) trait Member {
    /// Poisons the channel. The poison is known to be strong enough.
    fn poison_surely(&self, reason: Reason);

    /// Reports that the hub, which stands for the sender, has forgotten this channel.
    fn sender_gone(&self);
}

/// What the channels `M` of one broadcast share. `E` is a sending end of one of them.
pub(crate) struct Hub<M, E> {
    /// The policy of each of them.
    pub(crate) policy: Policy,
    pub(crate) state: Lock<State<M, E>>,
}

pub(crate) struct State<M, E> {
    /// The channels of the receivers that have joined and not left.
    pub(crate) members: Vec<Arc<M>>,
    pub(crate) joiners: usize,
    /// Why no send can succeed any more, once none can.
    pub(crate) over: Option<Why>,
    /// The waker of the send that waits for more receivers to join.
    pub(crate) waker: Option<Waker>,
    /// The last process that used the sending end: a new receiver waits for it.
    pub(crate) sender: Pid,
    /// How many receivers must have joined. `None`: no number was set.
    pub(crate) least: Option<usize>,
    /// How many values stand for the sending end: while it moves into a message there are two.
    pub(crate) values: usize,
    /// The sending end has come here, and its list of joined receivers and its least number are still on
    /// their way.
    pub(crate) coming: bool,
    /// Set while the sending end is elsewhere.
    pub(crate) away: Option<Away<E>>,
}

/// News for the node of the sending end.
pub(crate) struct Away<E> {
    /// The sending ends of the channels of receivers that have joined.
    pub(crate) joins: VecDeque<E>,
    /// Whether to report, behind `joins`, that these were all receivers joined there when the sending end
    /// left.
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "nothing ever leaves the program"))]
    pub(crate) rest: bool,
    /// The waker of the task that sends the news.
    pub(crate) waker: Option<Waker>,
    /// The carrier by which the joiner of this hub came: the sending ends of receivers that join travel by
    /// it.
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "as `rest`"))]
    pub(crate) carrier: Option<u64>,
}

impl<M, E> State<M, E> {
    pub(crate) fn new() -> Self {
        Self {
            members: Vec::new(),
            joiners: 0,
            over: None,
            waker: None,
            sender: Pid::current(),
            least: None,
            values: 1,
            coming: false,
            away: None,
        }
    }

    pub(crate) fn least(&self) -> usize {
        self.least.unwrap_or(0)
    }

    /// The wakers of the send that waits for more joins, and of the task that reports elsewhere that none
    /// follow.
    pub(crate) fn take_wakers(&mut self) -> impl Iterator<Item = Waker> + use<M, E> {
        let talks = self.away.as_mut().and_then(|away| away.waker.take());
        self.waker.take().into_iter().chain(talks)
    }

    fn find(&self, chan: *const ()) -> Option<usize> {
        self.members.iter().position(|member| Arc::as_ptr(member).cast() == chan)
    }
}

/// A hub as the channels of its members know it, whatever the type of their values.
pub(crate) trait AnyHub {
    /// Removes a receiver that was dropped (`gone`), or that retired its own channel.
    fn left(&self, chan: *const (), gone: bool);

    /// Poisons all receivers, including the one that the poison comes from.
    fn poison(&self, reason: &Reason, from: *const ());
}

impl<M: Member, E> AnyHub for Hub<M, E> {
    fn left(&self, chan: *const (), gone: bool) {
        self.left(chan, gone);
    }

    fn poison(&self, reason: &Reason, from: *const ()) {
        self.poison(reason, Some(from));
    }
}

/// A channel's path to the hub of its broadcast.
pub(crate) struct HubRef(Weak<dyn AnyHub>);

// SAFETY: the values of the hub are those of the channel that has this path, so the channel is sent only if
// they may be.
unsafe impl Send for HubRef {}

impl HubRef {
    pub(crate) fn new<M: Member, E>(hub: &Arc<Hub<M, E>>) -> Self {
        let hub: Weak<Hub<M, E>> = Arc::downgrade(hub);
        let hub: Weak<dyn AnyHub + '_> = hub;
        // SAFETY: only the channel of a member has it, and reaches the hub only in its methods, while the
        // values of the channel, which are also those of the hub, may be used.
        Self(unsafe { std::mem::transmute::<Weak<dyn AnyHub + '_>, Weak<dyn AnyHub>>(hub) })
    }

    pub(crate) fn upgrade(&self) -> Option<Arc<dyn AnyHub>> {
        self.0.upgrade()
    }
}

impl<M: Member, E> Hub<M, E> {
    /// The channels that a value goes to, once enough receivers have joined.
    pub(crate) fn poll_members(&self, waker: &Waker) -> Poll<Result<Vec<Arc<M>>, Why>> {
        let mut state = self.state.lock();
        state.sender = Pid::current();
        if let Some(why) = &state.over {
            return Poll::Ready(Err(why.clone()));
        }
        if !state.coming {
            if state.members.len() >= state.least().max(usize::from(state.joiners == 0)) {
                return Poll::Ready(Ok(state.members.clone()));
            }
            if state.joiners == 0 {
                return Poll::Ready(Err(Why::Closed));
            }
        }
        // Dropped after the lock is released: a task's last waker may drop the task.
        let old = state.waker.replace(wake::keep(waker));
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// Removes a receiver that was dropped (`gone`), or that retired its own channel.
    pub(crate) fn left(&self, chan: *const (), gone: bool) {
        let mut state = self.state.lock();
        let Some(index) = state.find(chan) else { return };
        if state.over.is_some() && !gone {
            // All channels were retired.
            return;
        }
        let member = state.members.swap_remove(index);
        // Only a send without any receiver left to wait for needs to know.
        let woken = if state.joiners == 0 { state.waker.take() } else { None };
        drop(state);
        wake::both(|| woken.into_iter().for_each(wake::wake), || member.sender_gone());
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        matches!(self.state.lock().over, Some(Why::Poisoned(_)))
    }

    /// Ends the broadcast: calls `tell` for each channel. It has no effect after poison, or if `from` is a
    /// receiver that has left.
    pub(crate) fn end(&self, why: Why, from: Option<*const ()>, tell: impl Fn(&M)) {
        let mut state = self.state.lock();
        if matches!(state.over, Some(Why::Poisoned(_))) || from.is_some_and(|chan| state.find(chan).is_none()) {
            return;
        }
        state.over = Some(why);
        let (members, woken) = (state.members.clone(), state.waker.take());
        drop(state);
        wake::both(|| woken.into_iter().for_each(wake::wake), || wake::each(members, |member| tell(&member)));
    }

    /// Poisons all receivers, including the one that the poison comes from.
    pub(crate) fn poison(&self, reason: &Reason, from: Option<*const ()>) {
        self.end(Why::Poisoned(reason.clone()), from, |member| member.poison_surely(reason.clone()));
    }

    pub(crate) fn count_joiners(&self, count: impl FnOnce(&mut usize)) {
        let mut state = self.state.lock();
        count(&mut state.joiners);
        let woken = (state.joiners == 0).then(|| state.take_wakers());
        drop(state);
        wake::wake_all(woken.into_iter().flatten());
    }
}
