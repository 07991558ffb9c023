//! Shared ends, policies, and the agents of halves elsewhere.

use std::sync::Arc;
#[cfg(feature = "link")]
use std::task::Waker;

use super::{
    AnyChan, Chan, NO_RECEIVER, NO_SENDER, POISONED, RETIRED, UseOfQueue, ends, immunity_of, publish, queue, tell_ends,
};
#[cfg(feature = "serde")]
use super::{IMMUNITY_SHIFT, OFFER};
use crate::channel::after::After;
#[cfg(feature = "serde")]
use crate::channel::policy::Kind;
use crate::channel::policy::Policy;
use crate::channel::queue::Queue;
use crate::channel::queue::offer::Ends;
use crate::clock::{PATIENCE_TICKS, Patient};
#[cfg(feature = "serde")]
use crate::error::Strength;
use crate::handle::Handle;

/// The channel of an agent, whose values may be sent and own all that they hold.
pub(crate) trait FarChan: Patient {
    fn any(&self) -> &AnyChan<'_>;
}

impl<T: Send + 'static> FarChan for Chan<T> {
    fn any(&self) -> &AnyChan<'_> {
        self.any()
    }
}

impl<T: Send> Patient for Chan<T> {
    fn patience_ran_out(self: Arc<Self>, tick: u32) -> bool {
        self.with_queue(|queue, _, after| {
            queue.release_stale_asks(tick.wrapping_sub(PATIENCE_TICKS), after);
            queue.patient = queue.has_grants();
            queue.patient
        })
    }
}

impl<'v> AnyChan<'v> {
    // ---- sharing

    /// Gives the channel a queue, so that an end can have several handles.
    pub(crate) fn make_shared(&self) {
        #[cfg(feature = "link")]
        let mut after = After::new();
        let mut g = self.lock();
        #[cfg(feature = "link")]
        queue(&mut g).keep_agent(&mut after);
        #[cfg(not(feature = "link"))]
        queue(&mut g);
        publish(&mut g);
    }

    /// Records that a claim of the sending (or else the receiving) end goes out or comes back.
    pub(crate) fn claimed(&self, sending: bool, out: bool, claimer: Handle) {
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        let queue = queue(&mut g);
        if sending {
            queue.claim_sender(out, claimer, &mut after);
            if !out {
                queue.rouse(&mut after);
            }
        } else {
            #[cfg(feature = "link")]
            queue.keep_agent(&mut after);
            queue.receiver_claimed = out;
            queue.receiver_claimer = claimer;
            if !out {
                queue.end_receiver_claim(ends, &mut after);
            }
        }
        publish(&mut g);
    }

    /// Sets the policy of a channel that was made without one. `false`: it has a policy, or an agent.
    pub(crate) fn set_policy(&self, policy: &Policy) -> bool {
        let mut after = After::new();
        let mut g = self.lock();
        let set = queue(&mut g).set_policy(policy, &mut after);
        if set {
            g.set(immunity_of(policy));
        }
        publish(&mut g);
        set
    }

    /// The policy, for another channel with the same one. `None`: it is a user's own.
    #[cfg(feature = "serde")]
    pub(crate) fn policy(&self) -> Option<Policy> {
        let g = self.lock();
        let (kind, senders, receivers) = match &g.queue {
            Some(queue) => (queue.kind, queue.senders_bound, queue.receivers_bound),
            None => (Kind::Rendezvous, None, None),
        };
        let immunity = Strength::from((g.tag >> IMMUNITY_SHIFT) as u8);
        let mut policy = kind.policy()?;
        (policy.senders, policy.receivers, policy.immunity) = (senders, receivers, immunity);
        Some(policy)
    }

    /// Whether the sending, or else the receiving, end has been dropped.
    pub(crate) fn is_left(&self, sending: bool) -> bool {
        self.lock().has(if sending { NO_SENDER } else { NO_RECEIVER })
    }

    // ---- agents

    /// Notifies the carrier that waits for the other end, if any, that an end here is about to leave in a
    /// message.
    #[cfg(feature = "serde")]
    pub(crate) fn leaves(&self) {
        #[cfg(feature = "link")]
        self.unlink();
        let missing = self.lock().queue.as_ref().and_then(|queue| queue.unmatched.clone());
        if let Some(missing) = missing {
            missing.leaves();
        }
    }

    /// Whether an agent stands by, in the receiver's or else the sender's place. It is woken when it takes
    /// over. The contents of the slots stay there.
    #[cfg(feature = "link")]
    pub(crate) fn agent_stands_by(&self, is_receivers: bool, waker: &Waker) -> bool {
        let mut g = self.locked();
        let stale = g.queue.as_mut().and_then(|queue| queue.stands_by(is_receivers, waker));
        drop(g);
        stale.is_some()
    }

    /// Makes an agent that stands by take over.
    #[cfg(feature = "link")]
    pub(crate) fn unlink(&self) {
        let mut after = After::new();
        let mut g = self.lock();
        if let Some(queue) = &mut g.queue {
            queue.unlink(&mut after);
            publish(&mut g);
        }
    }

    /// Whether the other half is elsewhere, for the sender's or else the receiver's end here.
    #[cfg(feature = "serde")]
    pub(crate) fn is_stretched(&self, sending: bool) -> bool {
        let g = self.lock();
        g.queue.as_ref().is_some_and(|queue| if sending { queue.outlet.is_some() } else { queue.inlet.is_some() })
    }

    /// Whether an offer exists that only a receive can take, or the channel has ended.
    #[cfg(feature = "serde")]
    pub(crate) fn is_busy(&self) -> bool {
        let g = self.lock();
        let offered = match &g.queue {
            Some(queue) => queue.has_offers(),
            None => g.has(OFFER),
        };
        offered || g.has_any(RETIRED | POISONED)
    }

    /// Puts an agent into the place of an end, with `install`, and sends it the events so far.
    pub(crate) fn add_agent<R>(&self, install: impl FnOnce(&mut Queue, &mut After) -> R) -> R {
        let mut after = After::new();
        let mut g = self.lock();
        let ended = g.tag & (NO_SENDER | NO_RECEIVER | RETIRED | POISONED);
        let queue = queue(&mut g);
        let result = install(queue, &mut after);
        queue.offer_all(&mut after.wakes);
        tell_ends(queue, ended, &mut after.wakes);
        publish(&mut g);
        result
    }

    /// Calls `f` on the queue, under the lock. For agents, whose channels always have a queue.
    pub(crate) fn with_queue<R>(&self, f: impl FnOnce(&mut Queue, Ends, &mut After) -> R) -> R {
        let (mut f, mut result) = (Some(f), None);
        self.call_with_queue(&mut |queue, ends, after| result = f.take().map(|f| f(queue, ends, after)));
        result.expect("it was called")
    }

    /// [`with_queue`](Self::with_queue), compiled once for each type of message, and not for each caller.
    fn call_with_queue(&self, f: &mut UseOfQueue<'_>) {
        let mut after = After::new();
        let mut g = self.lock();
        let ends = ends(&g);
        let queue = queue(&mut g);
        f(queue, ends, &mut after);
        // After the sender is dropped, only agents settle its remaining offers.
        queue.sender_leaves(false, &mut after.wakes);
        publish(&mut g);
        drop(g);
        after.done();
    }
}
