//! A broadcast over nodes.
//!
//! The [`Hub`](super::Hub), with all receivers that have joined, is where the sending end is. A receiver
//! elsewhere has its channel there; the channel's sending end is sent to the hub, which then has a member
//! like any other. So the only message needed is that a receiver has joined.
//!
//! A [`Joiner`] that is sent elsewhere belongs to a hub there that is *away*: a receiver that joins makes a
//! channel, and its sending end goes where the joiner came from. The sending end of the broadcast works the
//! other way round: the hub here is away from then on, and first sends the receivers that have joined so far;
//! a new hub is made there. Each node on the way of the sending end makes the route longer by one. When no
//! more receivers can join at a hub that is away, its channel ends, and the hub that it leads to has one
//! joiner less; the same happens when its node is lost.

use std::panic::Location;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use serde::{Deserialize, Serialize};

use super::{Broadcast, Joiner, end};
use crate::agent::{Inlet, Outlet};
use crate::channel::hub::{Away, Hub, State};
use crate::channel::policy::{Policy, fifo, rendezvous};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::state::{Chan, HubOf, SendingEnd};
use crate::channel::{MayPoison, ends};
use crate::error::{Reason, Why};
use crate::handle::one_gives_up;
use crate::lock::Lock;
use crate::portable::Portable;
use crate::portable::carrier::{Agent, Chore, Several};
use crate::wake;

/// How many messages may be in transit. More wait at their sender.
const WORDS: usize = 4;

/// A message from a hub that is away.
#[derive(Serialize, Deserialize)]
#[serde(bound = "T: Portable")]
enum Word<T> {
    /// The sending end of a receiver that has joined.
    Join(Sender<T>),
    /// All receivers that had joined when the sending end left have been sent.
    Rest { least: Option<u64>, over: Option<Over> },
}

/// Why nothing can be sent any more.
#[derive(Serialize, Deserialize)]
enum Over {
    Closed,
    Poisoned { text: String, strength: u8 },
}

impl Over {
    fn new(why: &Why) -> Self {
        match why {
            Why::Poisoned(reason) => {
                Self::Poisoned { text: reason.as_str().to_owned(), strength: reason.strength().as_u8() }
            }
            _ => Self::Closed,
        }
    }

    fn why(self) -> Why {
        match self {
            Self::Closed => Why::Closed,
            Self::Poisoned { text, strength } => Why::Poisoned(Reason::from(text).of_strength(strength)),
        }
    }
}

impl<T: Portable> HubOf<T> {
    fn make(policy: &Policy, change: impl FnOnce(&mut State<Chan<T>, SendingEnd<T>>)) -> Arc<Self> {
        let mut state = State::new();
        change(&mut state);
        Arc::new(Self { policy: policy.clone(), state: Lock::new(state) })
    }

    /// The next message to the sending end. `None`: no receiver can join here any more.
    fn poll_word(&self, cx: &mut Context<'_>) -> Poll<Option<Word<T>>> {
        let mut state = self.state.lock();
        let State { over, least, coming, joiners, away: Some(away), .. } = &mut *state else {
            return Poll::Ready(None);
        };
        if let Some(end) = away.joins.pop_front() {
            return Poll::Ready(Some(Word::Join(Sender::of(end))));
        }
        if !*coming {
            if std::mem::take(&mut away.rest) {
                let least = least.map(|least| least as u64);
                return Poll::Ready(Some(Word::Rest { least, over: over.as_ref().map(Over::new) }));
            }
            if *joiners == 0 {
                return Poll::Ready(None);
            }
        }
        // Dropped after the lock is released: a task's last waker may drop the task.
        let old = away.waker.replace(wake::keep(cx.waker()));
        drop(state);
        drop(old);
        Poll::Pending
    }

    /// A receiver has joined elsewhere.
    fn welcome(self: &Arc<Self>, sender: Sender<T>) {
        let chan = sender.chan().clone();
        // The hub stands for the sender from now on.
        sender.into_inlet();
        self.enter(&chan);
        // Events of the channel before it was a member have reached no hub.
        match chan.why_no_send() {
            Some(Why::Poisoned(reason)) => self.poison(&reason, Some(chan.address())),
            Some(_) => self.left(chan.address(), true),
            None => {}
        }
    }

    /// All receivers that had joined are known, or the rest is lost.
    fn has_come(&self, least: Option<usize>, over: Option<Why>) {
        let mut state = self.state.lock();
        if !std::mem::take(&mut state.coming) {
            return;
        }
        state.least = state.least.or(least);
        if state.over.is_none() {
            state.over = over;
        }
        let woken = state.take_wakers();
        drop(state);
        wake::wake_all(woken);
    }

    /// No message can reach the sending end any more.
    fn lose(&self) {
        let mut state = self.state.lock();
        let why = state.over.get_or_insert(Why::NodeLost).clone();
        let unsaid = state.away.as_mut().map(|away| std::mem::take(&mut away.joins)).unwrap_or_default();
        drop(state);
        wake::each(unsaid, |end| lose(Sender::of(end), &why));
    }
}

/// Ends a channel whose receiver could not join.
fn lose<T>(sender: Sender<T>, why: &Why) {
    let chan = sender.chan().clone();
    sender.into_inlet();
    end(&chan, why);
}

impl<T: Portable> Broadcast<T> {
    /// Identifies it among all broadcasts in this program.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.hub).addr()
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.hub.policy
    }

    /// Returns a function that makes another value that stands for this end, unless the end is gone.
    pub(crate) fn another(&self) -> impl FnOnce() -> Option<Self> + use<T> {
        let (hub, made) = (Arc::downgrade(&self.hub), self.made);
        move || {
            let hub: Arc<HubOf<T>> = Weak::upgrade(&hub)?;
            let mut state = hub.state.lock();
            let is_there = state.values > 0;
            state.values += usize::from(is_there);
            drop(state);
            is_there.then_some(Self { hub, made })
        }
    }

    pub(crate) fn is_several(&self) -> bool {
        self.hub.state.lock().values > 1
    }

    /// This value, if no other one stands for the end.
    pub(crate) fn alone(self) -> Option<Self> {
        let _others_wait = one_gives_up();
        (!self.is_several()).then_some(self)
    }

    /// The sending end moves elsewhere: makes the agents that stand here for it.
    pub(crate) fn into_agents(self) -> Several {
        let (says, words) = ends::<Word<T>, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        let hub = self.hub.clone();
        let mut state = hub.state.lock();
        let joins = std::mem::take(&mut state.members).into_iter().map(SendingEnd::new).collect();
        state.away = Some(Away { joins, rest: true, waker: None, carrier: None });
        drop(state);
        Several { agents: vec![Agent::Outlet(Outlet::new(words).into())], chore: talk(Talking(hub), says) }
    }

    /// The sending end of a broadcast whose receivers are elsewhere.
    pub(crate) fn adopt(policy: &Policy) -> (Self, Several) {
        let (says, words) = ends::<Word<T>, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let hub = Hub::make(policy, |state| state.coming = true);
        // This joiner counts for all joiners where the end comes from.
        let chore = listen(Listening(Joiner::new(hub.clone())), words);
        let agents = vec![Agent::Inlet(Inlet::new(says).into())];
        (Self { hub, made: Location::caller() }, Several { agents, chore })
    }
}

impl<T: Portable, P> Joiner<T, P> {
    pub(crate) fn policy(&self) -> &Policy {
        &self.hub.policy
    }

    /// Returns a function that makes one more joiner, unless all are gone.
    pub(crate) fn another(&self) -> impl FnOnce() -> Option<Self> + use<T, P> {
        let hub = Arc::downgrade(&self.hub);
        move || {
            let hub: Arc<HubOf<T>> = Weak::upgrade(&hub)?;
            let is_there = hub.state.lock().joiners > 0;
            is_there.then(|| Self::new(hub))
        }
    }

    /// This joiner moves elsewhere: makes the agents that stand here for it.
    pub(crate) fn into_agents(self) -> Several {
        let (says, words) = ends::<Word<T>, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let chore = listen(Listening(Joiner::new(self.hub.clone())), words);
        Several { agents: vec![Agent::Inlet(Inlet::new(says).into())], chore }
    }

    /// A joiner of a broadcast whose sending end is elsewhere.
    pub(crate) fn adopt(policy: &Policy) -> (Self, Several) {
        let (says, words) = ends::<Word<T>, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        let away = Away { joins: Default::default(), rest: false, waker: None, carrier: None };
        let hub = Hub::make(policy, |state| state.away = Some(away));
        let agents = vec![Agent::Outlet(Outlet::new(words).into())];
        (Self::new(hub.clone()), Several { agents, chore: talk(Talking(hub), says) })
    }

    /// Sets the carrier of an adopted joiner.
    pub(crate) fn brought_by(&self, carrier: u64) {
        if let Some(away) = &mut self.hub.state.lock().away {
            away.carrier = Some(carrier);
        }
    }

    /// The only carrier that can take it on. `None`: any can.
    pub(crate) fn carrier(&self) -> Option<u64> {
        self.hub.state.lock().away.as_ref()?.carrier
    }
}

/// A hub that is away. When it is dropped, no more receivers can join there.
struct Talking<T: Portable>(Arc<HubOf<T>>);

impl<T: Portable> Drop for Talking<T> {
    fn drop(&mut self) {
        self.0.lose();
    }
}

fn talk<T: Portable>(talking: Talking<T>, mut says: Sender<Word<T>>) -> Chore {
    Box::pin(async move {
        let hub = &talking.0;
        while let Some(word) = std::future::poll_fn(|cx| hub.poll_word(cx)).await {
            let Err(error) = says.send(word).await else { continue };
            let over = says.is_closed();
            if let Word::Join(sender) = error.into_value() {
                lose(sender, if over { &Why::NodeLost } else { &Why::Closed });
            }
            if over {
                return;
            }
        }
    })
}

/// The receiving side of a hub that is away. When it is dropped, no more receivers can join there.
struct Listening<T: Portable>(Joiner<T>);

impl<T: Portable> Drop for Listening<T> {
    fn drop(&mut self) {
        // Receivers that have not been reported will not be: their node is lost.
        self.0.hub.has_come(None, None);
    }
}

fn listen<T: Portable>(listening: Listening<T>, mut words: Receiver<Word<T>>) -> Chore {
    Box::pin(async move {
        let hub = &listening.0.hub;
        while let Ok(word) = words.recv().await {
            match word {
                Word::Join(sender) => hub.welcome(sender),
                Word::Rest { least, over } => {
                    let least = least.map(|least| usize::try_from(least).unwrap_or(usize::MAX));
                    hub.has_come(least, over.map(Over::why));
                }
            }
        }
    })
}
