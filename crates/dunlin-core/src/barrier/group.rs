//! Parties at another node, which count as one at the keeper of the barrier.
//!
//! At the keeper a [`Group`] stands for them; at their own node an [`Uplink`] stands for the keeper. They
//! exchange these messages, over two channels that keep the order:
//!
//! | group | keeper |
//! |---|---|
//! | [`There`](Up::There): all its parties are there, with these choices | [`Done`](Down::Done): the phase is complete |
//! | [`Not`](Up::Not): one is no longer there | [`Left`](Down::Left): confirmed; or `Done` was on its way |
//! | [`Held`](Up::Held): they are reserved | [`Reserve`](Down::Reserve): this many of the choices |
//! | [`Revoke`](Up::Revoke): one would take another branch | [`Abort`](Down::Abort): they are not needed now |
//!
//! Each `There` has a number and gets one answer, `Done` or `Left`, which names it. Between `Not` and the
//! answer no party arrives at the barrier at the group's node. So it is always known which parties the answer
//! concerns, and phases do not mix.
//!
//! A group of a group works in the same way.

use std::collections::VecDeque;
use std::task::Waker;

use crate::channel::after::After;

/// A message from a group to its keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Up {
    /// All its parties are there; some with choices, with these numbers, in ascending order (high and low
    /// half).
    There { round: u64, choices: Vec<(u64, u64)> },
    /// One of them is no longer there.
    Not { round: u64 },
    /// This many of its choices are reserved.
    Held { attempt: u64, upto: u64 },
    /// A reserved choice would take another branch.
    Revoke { attempt: u64 },
}

/// A message from the keeper to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Down {
    /// Reserve this many of the choices.
    Reserve { attempt: u64, upto: u64 },
    /// Return the reservations.
    Abort,
    /// The phase is complete.
    Done { round: u64 },
    /// The phase was not complete when `Not` arrived.
    Left { round: u64 },
}

/// Stands for a group at the keeper's node.
#[derive(Default)]
pub(super) struct Group {
    pub(super) round: u64,
    /// The choices with which it is there.
    pub(super) there: Option<Vec<u128>>,
    /// It has left. But this node is a group itself, and has yet to learn from its keeper whether the phase
    /// was complete before.
    pub(super) left: bool,
    /// Its arrival during that question.
    pub(super) next: Option<(u64, Vec<u128>)>,
    /// How many of its choices are reserved, and how many it was asked to reserve.
    pub(super) held: usize,
    pub(super) asked: usize,
    /// A request to reserve has been sent to it.
    pub(super) told: bool,
    pub(super) out: VecDeque<Down>,
    pub(super) waker: Option<Waker>,
}

impl Group {
    pub(super) fn say(&mut self, word: Down, after: &mut After) {
        self.out.push_back(word);
        after.wakes.add(self.waker.take());
    }

    /// The phase is complete. `true`: this group took it.
    pub(super) fn go_on(&mut self, after: &mut After) -> bool {
        (self.held, self.asked, self.left) = (0, 0, false);
        // The group releases its reservations by itself.
        self.told = false;
        let was_there = self.there.take().is_some();
        if was_there {
            self.say(Down::Done { round: self.round }, after);
        }
        self.come_next();
        was_there
    }

    pub(super) fn come_next(&mut self) {
        if let Some((round, choices)) = self.next.take() {
            (self.round, self.there) = (round, Some(choices));
        }
    }

    /// Asks the group to reserve `run` more choices than it holds.
    pub(super) fn reserve(&mut self, attempt: u64, run: usize, after: &mut After) {
        let upto = self.held + run;
        if self.asked < upto {
            self.asked = upto;
            self.say(Down::Reserve { attempt, upto: upto as u64 }, after);
        }
    }

    /// Asks the group to return its reservations. Requests that have not been sent are dropped.
    pub(super) fn call_off(&mut self, after: &mut After) {
        (self.held, self.asked) = (0, 0);
        while matches!(self.out.back(), Some(Down::Reserve { .. })) {
            self.out.pop_back();
        }
        if self.told && self.out.back() != Some(&Down::Abort) {
            self.say(Down::Abort, after);
        }
    }
}

/// The state of a group towards its keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not all its parties are there.
    Away,
    /// `There` was sent.
    There,
    /// `Not` was sent, and the answer has not arrived.
    Asked,
    /// The keeper is lost.
    Lost,
}

/// Stands for the keeper at a group's node.
pub(super) struct Uplink {
    pub(super) standing: Standing,
    pub(super) round: u64,
    /// The attempt for which choices are reserved here.
    pub(super) attempt: Option<u64>,
    /// The keeper was asked to give them up.
    pub(super) asked_back: bool,
    pub(super) out: VecDeque<Up>,
    pub(super) waker: Option<Waker>,
}

impl Uplink {
    pub(super) fn say(&mut self, word: Up, after: &mut After) {
        self.out.push_back(word);
        after.wakes.add(self.waker.take());
    }

    /// All requested choices are reserved.
    pub(super) fn held(&mut self, upto: usize, after: &mut After) {
        if let (Standing::There, Some(attempt)) = (self.standing, self.attempt) {
            let word = Up::Held { attempt, upto: upto as u64 };
            if self.out.back() != Some(&word) {
                self.say(word, after);
            }
        }
    }

    pub(super) fn ask_back(&mut self, after: &mut After) {
        if let (Standing::There, Some(attempt)) = (self.standing, self.attempt)
            && !std::mem::replace(&mut self.asked_back, true)
        {
            self.say(Up::Revoke { attempt }, after);
        }
    }

    /// The attempt has ended: messages about it that have not been sent are dropped.
    pub(super) fn forget_attempt(&mut self) {
        (self.attempt, self.asked_back) = (None, false);
        self.out.retain(|word| !matches!(word, Up::Held { .. } | Up::Revoke { .. }));
    }
}
