//! Parties at another node, which count as one where the barrier is kept.
//!
//! There a [`Group`] stands for them; at their own node an [`Uplink`] stands for who keeps the barrier. What they say to each other, over two channels that keep the
//! order:
//!
//! | group | keeper |
//! |---|---|
//! | [`There`](Up::There): all its parties are, with these choices | [`Done`](Down::Done): the phase is complete |
//! | [`Not`](Up::Not): one is not any more | [`Left`](Down::Left): so it is; or `Done` was on its way |
//! | [`Held`](Up::Held): they are reserved | [`Reserve`](Down::Reserve): so many of the choices |
//! | [`Revoke`](Up::Revoke): one wants another branch | [`Abort`](Down::Abort): they are not needed now |
//!
//! Each `There` has a number and gets one answer, `Done` or `Left`, which names it. Between `Not` and the answer nobody comes to the barrier at the group's node: so
//! it is always known whom the answer is about, and phases do not mix.
//!
//! A group of a group is the same thing again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};

use super::attempt::Attempt;
use super::parties::{Parties, Place, State, discard, publish};
use crate::channel::after::After;
use crate::lock::Guard;
use crate::waits::Doing;

/// What a group says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize, Deserialize))]
pub(super) enum Up {
    /// All its parties are there; some with choices, of these numbers, in ascending order (high and low half).
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
    round: u64,
    /// It is there, with these choices.
    pub(super) there: Option<Vec<u128>>,
    /// It is not any more; but it is itself to be asked of who keeps the barrier whether the phase was complete before.
    left: bool,
    /// It came while that was asked.
    next: Option<(u64, Vec<u128>)>,
    /// Of its choices so many are reserved, of so many that it was asked for.
    pub(super) held: usize,
    pub(super) asked: usize,
    /// It has heard that it is to reserve some.
    told: bool,
    out: VecDeque<Down>,
    waker: Option<Waker>,
}

impl Group {
    fn say(&mut self, word: Down, after: &mut After<()>) {
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

    fn come_next(&mut self) {
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
    round: u64,
    /// The attempt for which choices are reserved here.
    attempt: Option<u64>,
    /// It was asked to give them back.
    asked_back: bool,
    out: VecDeque<Up>,
    pub(super) waker: Option<Waker>,
}

impl Uplink {
    fn say(&mut self, word: Up, after: &mut After<()>) {
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
    fn forget_attempt(&mut self) {
        (self.attempt, self.asked_back) = (None, false);
        self.out.retain(|word| !matches!(word, Up::Held { .. } | Up::Revoke { .. }));
    }
}

/// At a group's node.
impl Parties {
    /// If all are there, the group is.
    pub(super) fn report(&self, g: &mut Guard<'_, State>, after: &mut After<()>) {
        if !g.are_all_there() {
            return;
        }
        let Some(attempt) = Attempt::new(g) else { return };
        let halves = |id: u128| ((id >> 64) as u64, id as u64);
        let choices = attempt.ids().into_iter().map(halves).collect();
        g.attempt = (attempt.len() > 0).then_some(attempt);
        if let Some(uplink) = &mut g.uplink {
            uplink.standing = Standing::There;
            uplink.round += 1;
            let round = uplink.round;
            uplink.say(Up::There { round, choices }, after);
        }
    }

    /// Not all are there any more who were when the group said so.
    pub(super) fn withdraw(&self, g: &mut Guard<'_, State>, after: &mut After<()>) {
        let Some(uplink) = &mut g.uplink else { return };
        if uplink.standing != Standing::There {
            return;
        }
        if matches!(uplink.out.back(), Some(Up::There { .. })) {
            // Nobody has heard it.
            uplink.out.pop_back();
            return self.settle_left(g, after);
        }
        uplink.standing = Standing::Asked;
        let round = uplink.round;
        uplink.say(Up::Not { round }, after);
    }

    /// Those who left are not there.
    fn settle_left(&self, g: &mut Guard<'_, State>, after: &mut After<()>) {
        self.give_back(g, after);
        if let Some(attempt) = g.attempt.take() {
            attempt.discard(after);
        }
        for party in g.places.iter_mut().flatten() {
            if let Some(arrival) = party.arrival.take_if(|arrival| arrival.left) {
                discard(arrival, after);
            }
            after.wakes.add(party.later.take());
            if let Some(group) = &mut party.group {
                if std::mem::take(&mut group.left) {
                    group.there = None;
                    let round = group.round;
                    group.say(Down::Left { round }, after);
                    party.record.receiver.end();
                }
                group.come_next();
            }
        }
        g.there = g.places.iter().flatten().filter(|party| party.is_there()).count();
        self.rest(g, after);
    }

    /// The answer has come.
    fn rest(&self, g: &mut Guard<'_, State>, after: &mut After<()>) {
        if let Some(uplink) = &mut g.uplink {
            uplink.standing = Standing::Away;
            uplink.forget_attempt();
        }
        self.report(g, after);
    }
}

/// What the channels between a group and its keeper bring and take.
#[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "only messages take enrolments to other nodes"))]
impl Parties {
    /// Makes these a group of a barrier that is kept elsewhere.
    pub(super) fn go_far(&self) {
        self.state.lock().uplink = Some(Uplink {
            standing: Standing::Away,
            round: 0,
            attempt: None,
            asked_back: false,
            out: VecDeque::new(),
            waker: None,
        });
    }

    /// This party is a group from now on.
    pub(super) fn stand_for_group(&self, place: Place) {
        self.state.lock().party(place).group = Some(Box::default());
    }

    /// What the group is to be told next. `None`: it can wait for nothing any more.
    pub(super) fn poll_down(&self, place: Place, cx: &mut Context<'_>) -> Poll<Option<Down>> {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        let lost = g.is_lost();
        let Some(group) = &mut g.party(place).group else { return Poll::Ready(None) };
        match group.out.pop_front() {
            Some(word) => {
                match word {
                    Down::Reserve { .. } => group.told = true,
                    Down::Abort => group.told = false,
                    Down::Done { .. } | Down::Left { .. } => {}
                }
                Poll::Ready(Some(word))
            }
            None if lost => Poll::Ready(None),
            None => {
                after.stale.store(&mut group.waker, cx.waker());
                Poll::Pending
            }
        }
    }

    /// A group says this. `false`: no honest one does.
    pub(super) fn hear_up(self: &Arc<Self>, place: Place, word: Up) -> bool {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        let honest = self.hear_up_locked(&mut g, place, word, &mut after);
        publish(&mut g);
        honest
    }

    fn hear_up_locked(
        self: &Arc<Self>,
        g: &mut Guard<'_, State>,
        place: Place,
        word: Up,
        after: &mut After<()>,
    ) -> bool {
        let asked = g.uplink.as_ref().is_some_and(|uplink| uplink.standing == Standing::Asked);
        let reported = asked || g.uplink.as_ref().is_some_and(|uplink| uplink.standing == Standing::There);
        let party = g.party(place);
        let Some(group) = &mut party.group else { return false };
        match word {
            Up::There { round, choices } => {
                let choices: Vec<_> =
                    choices.into_iter().map(|(high, low)| u128::from(high) << 64 | u128::from(low)).collect();
                let known = group.next.as_ref().map_or(group.round, |next| next.0);
                if group.there.is_some() || group.next.is_some() || round <= known || !choices.is_sorted() {
                    return false;
                }
                if asked {
                    group.next = Some((round, choices));
                    return true;
                }
                (group.round, group.there) = (round, Some(choices));
                party.record.receiver.begin(Doing::Sync);
                g.there += 1;
                self.changed(g, None, after);
            }
            Up::Not { round } => {
                if group.next.take_if(|next| next.0 == round).is_some() {
                    group.say(Down::Left { round }, after);
                } else if group.round == round && group.there.is_some() && !group.left {
                    if reported {
                        group.left = true;
                        self.withdraw(g, after);
                    } else {
                        group.there = None;
                        party.record.receiver.end();
                        g.there -= 1;
                        self.changed(g, None, after);
                        if let Some(group) = &mut g.party(place).group {
                            group.say(Down::Left { round }, after);
                        }
                    }
                }
                // Else the phase is complete, and `Done` on its way.
            }
            Up::Held { attempt, upto } => {
                self.group_held(g, place.0, attempt, usize::try_from(upto).unwrap_or(usize::MAX), after);
            }
            Up::Revoke { attempt } => self.ask_back(g, Some(attempt), after),
        }
        true
    }

    /// What is to be said next to who keeps the barrier. `None`: nobody is enrolled here any more.
    pub(super) fn poll_up(&self, cx: &mut Context<'_>) -> Poll<Option<Up>> {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        let empty = g.enrolled == 0;
        let Some(uplink) = &mut g.uplink else { return Poll::Ready(None) };
        if empty {
            return Poll::Ready(None);
        }
        if let Some(word) = uplink.out.pop_front() {
            return Poll::Ready(Some(word));
        }
        after.stale.store(&mut uplink.waker, cx.waker());
        Poll::Pending
    }

    /// Who keeps the barrier says this. `false`: no honest one does.
    pub(super) fn hear_down(self: &Arc<Self>, word: Down) -> bool {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        let honest = self.hear_down_locked(&mut g, word, &mut after);
        publish(&mut g);
        honest
    }

    fn hear_down_locked(self: &Arc<Self>, g: &mut Guard<'_, State>, word: Down, after: &mut After<()>) -> bool {
        let State { uplink: Some(uplink), attempt, attempts, .. } = &mut **g else { return false };
        match word {
            // What was withdrawn meanwhile is not reserved any more.
            Down::Reserve { .. } if uplink.standing == Standing::Asked => true,
            Down::Reserve { attempt: number, upto } => {
                let (Standing::There, Some(attempt), Ok(upto)) = (uplink.standing, attempt, usize::try_from(upto))
                else {
                    return false;
                };
                if upto > attempt.len() || upto <= attempt.limit {
                    return false;
                }
                if uplink.attempt != Some(number) {
                    if attempt.limit > 0 {
                        return false;
                    }
                    *attempts += 1;
                    attempt.number = *attempts;
                    (uplink.attempt, uplink.asked_back) = (Some(number), false);
                }
                attempt.limit = upto;
                self.advance(g, after);
                true
            }
            Down::Abort => {
                uplink.forget_attempt();
                self.give_back(g, after);
                true
            }
            Down::Done { round } => {
                let asked = matches!(uplink.standing, Standing::There | Standing::Asked);
                let all_held = attempt.as_ref().is_none_or(|attempt| attempt.held == attempt.len());
                if !asked || round != uplink.round || !all_held {
                    return false;
                }
                self.go_on(g, after);
                self.rest(g, after);
                true
            }
            Down::Left { round } => {
                if uplink.standing != Standing::Asked || round != uplink.round {
                    return false;
                }
                self.settle_left(g, after);
                true
            }
        }
    }

    /// Who keeps the barrier is lost: nobody will hear anything of it any more. A choice that is reserved cannot go on as if nothing had been: it ends, and says so.
    pub(super) fn lose(&self) {
        let mut after = After::<()>::new();
        let mut g = self.state.lock();
        let Some(uplink) = &mut g.uplink else { return };
        uplink.standing = Standing::Lost;
        if let Some(attempt) = g.attempt.take() {
            attempt.confirm_held(&mut after);
        }
        for party in g.places.iter_mut().flatten() {
            if let Some(mut arrival) = party.arrival.take() {
                after.wakes.add(arrival.waker.take());
                if let Some((decision, _)) = &arrival.choice {
                    decision.nudge(&mut after.wakes);
                }
                discard(arrival, &mut after);
            }
            after.wakes.add(party.later.take());
            if let Some(group) = &mut party.group {
                (group.there, group.next) = (None, None);
                after.wakes.add(group.waker.take());
            }
        }
        g.there = 0;
        publish(&mut g);
    }
}
