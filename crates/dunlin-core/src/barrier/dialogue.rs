//! The messages that a group and the keeper of the barrier exchange, and their effects.
//!
//! [`group`](super::group) defines the messages.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::group::{Down, Standing, Up, Uplink};
use super::parties::{Parties, Place, State, discard, publish};
use crate::channel::after::After;
use crate::lock::Guard;
use crate::waits::Doing;

/// At a group's node.
impl Parties {
    /// Reports that the group is there, if all its parties are.
    pub(super) fn report(&self, g: &mut Guard<'_, State>, after: &mut After) {
        if !g.are_all_there() {
            return;
        }
        let Some(attempt) = g.new_attempt() else { return };
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

    /// A party that was reported to be there has left.
    pub(super) fn withdraw(&self, g: &mut Guard<'_, State>, after: &mut After) {
        let Some(uplink) = &mut g.uplink else { return };
        if uplink.standing != Standing::There {
            return;
        }
        if matches!(uplink.out.back(), Some(Up::There { .. })) {
            // The keeper has not received it.
            uplink.out.pop_back();
            return self.settle_left(g, after);
        }
        uplink.standing = Standing::Asked;
        let round = uplink.round;
        uplink.say(Up::Not { round }, after);
    }

    /// Removes the arrivals that were left.
    fn settle_left(&self, g: &mut Guard<'_, State>, after: &mut After) {
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

    /// The answer has arrived.
    fn rest(&self, g: &mut Guard<'_, State>, after: &mut After) {
        if let Some(uplink) = &mut g.uplink {
            uplink.standing = Standing::Away;
            uplink.forget_attempt();
        }
        self.report(g, after);
    }
}

/// Called by the channels between a group and its keeper.
#[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "only messages take enrolments to other nodes"))]
impl Parties {
    /// Makes these a group of a barrier that another node keeps.
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

    /// Makes this party stand for a group.
    pub(super) fn stand_for_group(&self, place: Place) {
        self.state.lock().party(place).group = Some(Box::default());
    }

    /// The next message to the group. `None`: there will be none.
    pub(super) fn poll_down(&self, place: Place, cx: &mut Context<'_>) -> Poll<Option<Down>> {
        let mut after = After::new();
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

    /// Handles a message from a group. `false`: no honest group sends it.
    pub(super) fn hear_up(self: &Arc<Self>, place: Place, word: Up) -> bool {
        let mut after = After::new();
        let mut g = self.state.lock();
        let honest = self.hear_up_locked(&mut g, place, word, &mut after);
        publish(&mut g);
        honest
    }

    fn hear_up_locked(self: &Arc<Self>, g: &mut Guard<'_, State>, place: Place, word: Up, after: &mut After) -> bool {
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
                // Otherwise the phase is complete, and `Done` is on its way.
            }
            Up::Held { attempt, upto } => {
                self.group_held(g, place.0, attempt, usize::try_from(upto).unwrap_or(usize::MAX), after);
            }
            Up::Revoke { attempt } => self.ask_back(g, Some(attempt), after),
        }
        true
    }

    /// The next message to the keeper. `None`: no party is enrolled here any more.
    pub(super) fn poll_up(&self, cx: &mut Context<'_>) -> Poll<Option<Up>> {
        let mut after = After::new();
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

    /// Handles a message from the keeper. `false`: no honest keeper sends it.
    pub(super) fn hear_down(self: &Arc<Self>, word: Down) -> bool {
        let mut after = After::new();
        let mut g = self.state.lock();
        let honest = self.hear_down_locked(&mut g, word, &mut after);
        publish(&mut g);
        honest
    }

    fn hear_down_locked(self: &Arc<Self>, g: &mut Guard<'_, State>, word: Down, after: &mut After) -> bool {
        let State { uplink: Some(uplink), attempt, attempts, .. } = &mut **g else { return false };
        match word {
            // Withdrawn choices are not reserved.
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

    /// The keeper is lost: no more messages about the barrier will arrive. A reserved choice cannot continue
    /// as if nothing had happened: it ends with the error.
    pub(super) fn lose(&self) {
        let mut after = After::new();
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
