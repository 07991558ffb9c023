//! An enrolment that goes to another node.
//!
//! The barrier stays where it was made: that node *keeps* it. What goes becomes, there, a group with one
//! party, and here a party that stands for the group ([`group`](super::group)). Enrolling at the group's node
//! makes the group larger, and nobody has to be asked. When the last of it resigns, its channels end; so they
//! do when a node is lost. One that is sent on from there is a group of that group: what it says goes through
//! the node in between. One that comes home, to the node that keeps the barrier, is a party there again: the
//! carrier knows the barrier by its number.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use super::Barrier;
use super::group::{Down, Up};
use super::parties::Parties;
use crate::agent::{Inlet, Outlet};
use crate::channel::policy::{fifo, rendezvous};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::{MayPoison, ends};
use crate::portable::carrier::{Agent, AnyShared, CarriedEnd, Chore, Several, SharedEnd};

/// How many words of one side may be on their way. More wait where they are said.
const WORDS: usize = 4;

impl Barrier {
    /// Its number among all that are here.
    pub(crate) fn number(&self) -> u32 {
        self.record.index()
    }

    /// One more enrolment, unless nobody is enrolled any more.
    pub(crate) fn another(&self) -> impl FnOnce() -> Option<Self> + use<> {
        let parties: Weak<Parties> = Arc::downgrade(&self.parties);
        move || parties.upgrade().map(|parties| Self::new(&parties))
    }

    /// This enrolment goes elsewhere: what stands here for it.
    pub(crate) fn into_agents(self) -> Several {
        let (reports, heard) = ends::<Up, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let (says, words) = ends::<Down, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let agents = vec![Agent::Inlet(Inlet::new(reports).into()), Agent::Outlet(Outlet::new(words).into())];
        self.parties.stand_for_group(self.place);
        Several { agents, chore: Box::pin(keep(self, heard, says)) }
    }

    /// The barrier, for a carrier.
    pub(crate) fn shared_end(&self) -> SharedEnd {
        SharedEnd::new(self.parties.clone())
    }

    /// Of an enrolment that was adopted.
    pub(crate) fn has_number(&self, number: u128) {
        let _ = self.parties.number.set(number);
    }

    /// An enrolment on a barrier that another node keeps.
    pub(crate) fn adopt() -> (Self, Several) {
        let (reports, heard) = ends::<Up, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        let (says, words) = ends::<Down, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let agents = vec![Agent::Outlet(Outlet::new(heard).into()), Agent::Inlet(Inlet::new(says).into())];
        let parties = Arc::new(Parties::new(Location::caller()));
        parties.go_far();
        let enrolment = Self::new(&parties);
        (enrolment, Several { agents, chore: belong(Over(parties), reports, words) })
    }
}

impl AnyShared for Parties {
    fn number(&self, new: &mut dyn FnMut() -> u128) -> u128 {
        *self.number.get_or_init(new)
    }

    fn is_here(&self) -> bool {
        self.state.lock().uplink.is_none()
    }

    /// One more enrolment. Until what it was elsewhere has resigned both are needed, and that one is in a
    /// message: so no phase goes by in which it would be missed.
    fn handle(self: Arc<Self>, token: u64) -> CarriedEnd {
        CarriedEnd::new(token, Barrier::new(&self))
    }
}

/// Where the barrier is kept: hears a group and answers it. Dropped, it resigns for the group.
async fn keep(group: Barrier, mut heard: Receiver<Up>, mut says: Sender<Down>) {
    let (parties, place) = (&group.parties, group.place);
    let listen = async {
        while let Ok(word) = heard.recv().await {
            if !parties.hear_up(place, word) {
                return;
            }
        }
    };
    let talk = async {
        while let Some(word) = poll_fn(|cx| parties.poll_down(place, cx)).await {
            if says.send(word).await.is_err() {
                return;
            }
        }
    };
    first(listen, talk).await;
}

/// However it ends, nothing will be heard here of the barrier any more.
struct Over(Arc<Parties>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.lose();
    }
}

/// Where a group is: says how it stands, and hears when it may go on.
fn belong(over: Over, mut reports: Sender<Up>, mut words: Receiver<Down>) -> Chore {
    Box::pin(async move {
        let parties = &over.0;
        let listen = async {
            while let Ok(word) = words.recv().await {
                if !parties.hear_down(word) {
                    return;
                }
            }
        };
        let talk = async {
            while let Some(word) = poll_fn(|cx| parties.poll_up(cx)).await {
                if reports.send(word).await.is_err() {
                    return;
                }
            }
        };
        first(listen, talk).await;
    })
}

/// Both, until one of them ends.
async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let ended = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
