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

/// A message of either direction: what it is, then its fields. These channels are compiled into every
/// program, and a list of numbers needs a tenth of the code that the messages themselves would.
type Word = Vec<u64>;

impl Up {
    fn word(self) -> Word {
        match self {
            Self::There { round, choices } => {
                let ids = choices.into_iter().flat_map(|(high, low)| [high, low]);
                [0, round].into_iter().chain(ids).collect()
            }
            Self::Not { round } => vec![1, round],
            Self::Held { attempt, upto } => vec![2, attempt, upto],
            Self::Revoke { attempt } => vec![3, attempt],
        }
    }

    /// `None`: a peer that breaks the protocol has sent it.
    fn of(word: &[u64]) -> Option<Self> {
        Some(match *word {
            [0, round, ref ids @ ..] if ids.len().is_multiple_of(2) => {
                Self::There { round, choices: ids.chunks_exact(2).map(|id| (id[0], id[1])).collect() }
            }
            [1, round] => Self::Not { round },
            [2, attempt, upto] => Self::Held { attempt, upto },
            [3, attempt] => Self::Revoke { attempt },
            _ => return None,
        })
    }
}

impl Down {
    fn word(self) -> Word {
        match self {
            Self::Reserve { attempt, upto } => vec![4, attempt, upto],
            Self::Abort => vec![5],
            Self::Done { round } => vec![6, round],
            Self::Left { round } => vec![7, round],
        }
    }

    /// `None`: a peer that breaks the protocol has sent it.
    fn of(word: &[u64]) -> Option<Self> {
        Some(match *word {
            [4, attempt, upto] => Self::Reserve { attempt, upto },
            [5] => Self::Abort,
            [6, round] => Self::Done { round },
            [7, round] => Self::Left { round },
            _ => return None,
        })
    }
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
        while let Ok(word) = heard.recv().await {
            if !Up::of(&word).is_some_and(|word| parties.hear_up(place, word)) {
                return;
            }
        }
    };
    let talk = async {
        while let Some(word) = poll_fn(|cx| parties.poll_down(place, cx)).await {
            if says.send(word.word()).await.is_err() {
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
            while let Ok(word) = words.recv().await {
                if !Down::of(&word).is_some_and(|word| parties.hear_down(word)) {
                    return;
                }
            }
        };
        let talk = async {
            while let Some(word) = poll_fn(|cx| parties.poll_up(cx)).await {
                if reports.send(word.word()).await.is_err() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (round, attempt, upto) = (7, 1 << 40, 3);
        let choices = |n| (0..n).map(|n| (n, u64::MAX - n)).collect();
        let up = [
            Up::There { round, choices: choices(0) },
            Up::There { round, choices: choices(3) },
            Up::Not { round },
            Up::Held { attempt, upto },
            Up::Revoke { attempt },
        ];
        for message in up {
            let word = message.clone().word();
            assert_eq!((Up::of(&word), Down::of(&word)), (Some(message), None));
            assert!(Up::of(&word[1..]).is_none() && Up::of(&[&word[..], &[1]].concat()).is_none());
        }
        let down = [Down::Reserve { attempt, upto }, Down::Abort, Down::Done { round }, Down::Left { round }];
        for message in down {
            let word = message.clone().word();
            assert_eq!((Down::of(&word), Up::of(&word)), (Some(message), None));
            assert!(Down::of(&word[1..]).is_none() && Down::of(&[&word[..], &[1]].concat()).is_none());
        }
        assert!(Up::of(&[]).is_none() && Down::of(&[]).is_none() && Up::of(&[8, 1]).is_none());
    }
}
