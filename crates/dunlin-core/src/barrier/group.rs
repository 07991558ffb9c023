//! Parties at another node, which count as one where the barrier is kept.
//!
//! There a [`Group`] stands for them; at their own node an [`Uplink`] stands for who keeps the barrier. What
//! they say to each other, over two channels that keep the order:
//!
//! | group | keeper |
//! |---|---|
//! | [`There`](Up::There): all its parties are, with these choices | [`Done`](Down::Done): the phase is complete |
//! | [`Not`](Up::Not): one is not any more | [`Left`](Down::Left): so it is; or `Done` was on its way |
//! | [`Held`](Up::Held): they are reserved | [`Reserve`](Down::Reserve): so many of the choices |
//! | [`Revoke`](Up::Revoke): one wants another branch | [`Abort`](Down::Abort): they are not needed now |
//!
//! Each `There` has a number and gets one answer, `Done` or `Left`, which names it. Between `Not` and the
//! answer nobody comes to the barrier at the group's node: so it is always known whom the answer is about,
//! and phases do not mix.
//!
//! A group of a group is the same thing again.

use std::collections::VecDeque;
use std::task::Waker;

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use crate::channel::after::After;

/// What a group says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub(super) enum Up {
    /// All its parties are there; some with choices, of these numbers, in ascending order (high and low
    /// half).
    There { round: u64, choices: Vec<(u64, u64)> },
    /// One of them is not any more.
    Not { round: u64 },
    /// So many of its choices are reserved.
    Held { attempt: u64, upto: u64 },
    /// One that is reserved wants another branch.
    Revoke { attempt: u64 },
}

/// What is said to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub(super) enum Down {
    /// Reserve so many of the choices.
    Reserve { attempt: u64, upto: u64 },
    /// Give them back.
    Abort,
    /// The phase is complete.
    Done { round: u64 },
    /// It was not, when `Not` came.
    Left { round: u64 },
}

/// What stands for a group where the barrier is kept.
#[derive(Default)]
pub(super) struct Group {
    pub(super) round: u64,
    /// It is there, with these choices.
    pub(super) there: Option<Vec<u128>>,
    /// It is not any more; but it is itself to be asked of who keeps the barrier whether the phase was
    /// complete before.
    pub(super) left: bool,
    /// It came while that was asked.
    pub(super) next: Option<(u64, Vec<u128>)>,
    /// Of its choices so many are reserved, of so many that it was asked for.
    pub(super) held: usize,
    pub(super) asked: usize,
    /// It has heard that it is to reserve some.
    pub(super) told: bool,
    pub(super) out: VecDeque<Down>,
    pub(super) waker: Option<Waker>,
}

impl Group {
    pub(super) fn say(&mut self, word: Down, after: &mut After<()>) {
        self.out.push_back(word);
        after.wakes.add(self.waker.take());
    }

    /// The phase is complete. `true`: for this group.
    pub(super) fn go_on(&mut self, after: &mut After<()>) -> bool {
        (self.held, self.asked, self.left) = (0, 0, false);
        // It lets go what it holds by itself.
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

    /// It is to reserve `run` more than it holds.
    pub(super) fn reserve(&mut self, attempt: u64, run: usize, after: &mut After<()>) {
        let upto = self.held + run;
        if self.asked < upto {
            self.asked = upto;
            self.say(Down::Reserve { attempt, upto: upto as u64 }, after);
        }
    }

    /// It is to give back what it was asked to reserve. What it has not heard is not said at all.
    pub(super) fn call_off(&mut self, after: &mut After<()>) {
        (self.held, self.asked) = (0, 0);
        while matches!(self.out.back(), Some(Down::Reserve { .. })) {
            self.out.pop_back();
        }
        if self.told && self.out.back() != Some(&Down::Abort) {
            self.say(Down::Abort, after);
        }
    }
}

/// How a group stands with who keeps the barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not all its parties are there.
    Away,
    /// `There` was said.
    There,
    /// `Not` was said, and there is no answer.
    Asked,
    /// Who keeps the barrier is lost.
    Lost,
}

/// What stands for who keeps the barrier at a group's node.
pub(super) struct Uplink {
    pub(super) standing: Standing,
    pub(super) round: u64,
    /// The attempt for which choices are reserved here.
    pub(super) attempt: Option<u64>,
    /// It was asked to give them back.
    pub(super) asked_back: bool,
    pub(super) out: VecDeque<Up>,
    pub(super) waker: Option<Waker>,
}

impl Uplink {
    pub(super) fn say(&mut self, word: Up, after: &mut After<()>) {
        self.out.push_back(word);
        after.wakes.add(self.waker.take());
    }

    /// All that were asked for are reserved.
    pub(super) fn held(&mut self, upto: usize, after: &mut After<()>) {
        if let (Standing::There, Some(attempt)) = (self.standing, self.attempt) {
            let word = Up::Held { attempt, upto: upto as u64 };
            if self.out.back() != Some(&word) {
                self.say(word, after);
            }
        }
    }

    pub(super) fn ask_back(&mut self, after: &mut After<()>) {
        if let (Standing::There, Some(attempt)) = (self.standing, self.attempt)
            && !std::mem::replace(&mut self.asked_back, true)
        {
            self.say(Up::Revoke { attempt }, after);
        }
    }

    /// The attempt is over: what has not been said of it need not be.
    pub(super) fn forget_attempt(&mut self) {
        (self.attempt, self.asked_back) = (None, false);
        self.out.retain(|word| !matches!(word, Up::Held { .. } | Up::Revoke { .. }));
    }
}
