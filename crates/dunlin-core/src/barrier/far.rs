//! Enrolments that move to another node.
//!
//! The barrier stays where it was made: that node *keeps* it. A moved enrolment becomes a group with one
//! party there, and here a party that stands for the group ([`group`](super::group)). Enrolling at the
//! group's node enlarges the group, without a message. When the last of the group resigns, its channels end;
//! they also end when a node is lost. An enrolment that is sent on from there is a group of that group: its
//! messages go through the node in between. An enrolment that returns home, to the keeper's node, is a party
//! there again: the carrier knows the barrier by its number.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use serde::{Deserialize, Serialize};

use super::Barrier;
use super::group::{Down, Up};
use super::parties::Parties;
use crate::agent::{Inlet, Outlet};
use crate::channel::policy::{fifo, rendezvous};
use crate::channel::receiver::Receiver;
use crate::channel::sender::Sender;
use crate::channel::{MayPoison, ends};
use crate::portable::carrier::{Agent, AnyShared, CarriedEnd, Chore, Several, SharedEnd};

/// How many messages of one side may be in transit. More wait at their sender.
const WORDS: usize = 4;

/// A message of either direction. There is one type because each one's channels are compiled anew, and these
/// are in every program.
#[derive(Serialize, Deserialize)]
enum Word {
    Up(Up),
    Down(Down),
}

impl Barrier {
    /// Its number among all enrolments in this program.
    pub(crate) fn number(&self) -> u32 {
        self.record.index()
    }

    /// Returns a function that makes one more enrolment, unless no party is enrolled any more.
    pub(crate) fn another(&self) -> impl FnOnce() -> Option<Self> + use<> {
        let parties: Weak<Parties> = Arc::downgrade(&self.parties);
        move || parties.upgrade().map(|parties| Self::new(&parties))
    }

    /// This enrolment moves elsewhere: makes the agents that stand here for it.
    pub(crate) fn into_agents(self) -> Several {
        let (reports, heard) = ends::<Word, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let (says, words) = ends::<Word, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
        let agents = vec![Agent::Inlet(Inlet::new(reports).into()), Agent::Outlet(Outlet::new(words).into())];
        self.parties.stand_for_group(self.place);
        Several { agents, chore: Box::pin(keep(self, heard, says)) }
    }

    /// The barrier, for a carrier.
    pub(crate) fn shared_end(&self) -> SharedEnd {
        SharedEnd::new(self.parties.clone())
    }

    /// Sets the number of an adopted enrolment's barrier.
    pub(crate) fn has_number(&self, number: u128) {
        let _ = self.parties.number.set(number);
    }

    /// An enrolment on a barrier that another node keeps.
    pub(crate) fn adopt() -> (Self, Several) {
        let (reports, heard) = ends::<Word, MayPoison, MayPoison>(&rendezvous(), Location::caller());
        let (says, words) = ends::<Word, MayPoison, MayPoison>(&fifo(WORDS), Location::caller());
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

    /// Makes one more enrolment. It and the enrolment that it was elsewhere are both needed until that one
    /// has resigned, and that one is in a message: so it misses no phase.
    fn handle(self: Arc<Self>, token: u64) -> CarriedEnd {
        CarriedEnd::new(token, Barrier::new(&self))
    }
}

/// Runs at the keeper: receives a group's messages and answers them. Dropping it resigns for the group.
async fn keep(group: Barrier, mut heard: Receiver<Word>, mut says: Sender<Word>) {
    let (parties, place) = (&group.parties, group.place);
    let listen = async {
        // (No honest group sends a word of the other direction.)
        while let Ok(Word::Up(word)) = heard.recv().await {
            if !parties.hear_up(place, word) {
                return;
            }
        }
    };
    let talk = async {
        while let Some(word) = poll_fn(|cx| parties.poll_down(place, cx)).await {
            if says.send(Word::Down(word)).await.is_err() {
                return;
            }
        }
    };
    first(listen, talk).await;
}

/// When it is dropped, no more messages about the barrier will arrive here.
struct Over(Arc<Parties>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.lose();
    }
}

/// Runs at a group's node: reports its state, and receives when a phase is complete.
fn belong(over: Over, mut reports: Sender<Word>, mut words: Receiver<Word>) -> Chore {
    Box::pin(async move {
        let parties = &over.0;
        let listen = async {
            while let Ok(Word::Down(word)) = words.recv().await {
                if !parties.hear_down(word) {
                    return;
                }
            }
        };
        let talk = async {
            while let Some(word) = poll_fn(|cx| parties.poll_up(cx)).await {
                if reports.send(Word::Up(word)).await.is_err() {
                    return;
                }
            }
        };
        first(listen, talk).await;
    })
}

/// Runs both until one of them ends.
async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| {
        let ended = one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready();
        if ended { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
