//! What senders learn of their home, and whether that is true.

use dunlin_proto::ProxyHears;
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{End, Failure, Rejection};

use super::{AtHome, Outcome, Stage};
use crate::world::{Event, World};

impl World {
    pub(crate) fn proxy_hears(&mut self, proc: usize, channel: ChannelId, heard: ProxyHears) {
        if let Some(line) = self.line_of(channel) {
            return self.line_half_hears(line, proc, heard);
        }
        let found = self.senders.iter().rposition(|sender| {
            sender.proc == proc && self.channels[sender.channel].id == channel && sender.stage != Stage::Over
        });
        let Some(at) = found else {
            return self.broke(format!("a sender that has ended gets {heard:?}"));
        };
        match heard {
            ProxyHears::Attached(terms) => {
                if !matches!(self.senders[at].stage, Stage::Attaching { .. }) {
                    return self.broke(format!("sender {at} is attached twice"));
                }
                if self.senders[at].misfit {
                    return self.broke(format!("sender {at} does not fit and is attached"));
                }
                let sender = &mut self.senders[at];
                sender.stage = Stage::Attached;
                sender.credits += u64::from(terms.credits);
                sender.value_max = terms.value_max;
                self.forget_if_gone(at);
            }
            ProxyHears::Rejected(why) => {
                self.check_rejection(at, &why);
                self.sender_over(at, Some(Outcome::NotTaken));
            }
            ProxyHears::Taken(ticket, taker) => {
                if let Some(offer) = self.offers.get_mut(ticket as usize) {
                    offer.taker = Some(taker);
                }
                self.told(at, ticket, Outcome::Taken);
            }
            ProxyHears::Held(ticket, taker) => {
                let offer = ticket as usize;
                if !self.is_open(at, ticket) || self.offers[offer].held_told {
                    return self.broke(format!("{offer} is held, and is not open"));
                }
                if !self.offers[offer].taken {
                    return self.broke(format!("{offer} is reported as held, and no receive has it"));
                }
                self.offers[offer].held_told = true;
                self.offers[offer].taker = Some(taker);
                self.ends_left(self.offers[offer].cargo.clone(), proc, taker);
                if let Some(choice) = self.offers[offer].choice {
                    self.choice_decided(choice, Some(offer));
                }
            }
            ProxyHears::Released(ticket) => {
                if self.is_open(at, ticket) && !self.offers[ticket as usize].held_told {
                    self.broke(format!("{ticket} is released, and was not held"));
                }
                if self.offers.get(ticket as usize).is_some_and(|offer| offer.at_home != AtHome::Done) {
                    self.broke(format!("{ticket} is reported as released, and is not"));
                }
                self.told(at, ticket, Outcome::Taken);
            }
            ProxyHears::Failed(ticket, why) => {
                let offer = ticket as usize;
                let max = self.plan.value_max;
                let too_large = why == Failure::TooLarge { max } && self.offers[offer].size as u64 > max;
                if !too_large && !self.offers[offer].failed_by_home {
                    self.broke(format!("{offer} failed ({why:?}), without a failure"));
                }
                self.told(at, ticket, Outcome::NotTaken);
            }
            ProxyHears::Onward(_) | ProxyHears::Unread(_) => self.broke("a value goes on, and none here does"),
            ProxyHears::Withdrawn(ticket) => {
                if !self.offers[ticket as usize].withdrawing {
                    self.broke(format!("{ticket} is withdrawn without a request"));
                }
                self.told(at, ticket, Outcome::NotTaken);
            }
            ProxyHears::Reserve(ticket, request) => {
                if !self.is_open(at, ticket) {
                    return self.broke(format!("{ticket} is asked for, and is not open"));
                }
                self.asked(ticket as usize, request);
            }
            ProxyHears::Abort(ticket) => self.unlock(ticket as usize),
            ProxyHears::Credit(count) => {
                self.senders[at].credits += u64::from(count);
            }
            ProxyHears::Ended(how) => {
                let channel = &self.channels[self.senders[at].channel];
                if channel.ended.as_ref().is_none_or(|(ended, _)| *ended != how) {
                    return self.broke(format!("sender {at} gets {how:?}, and the channel has not ended so"));
                }
                if how == End::Retired && !self.senders[at].gone {
                    let open: Vec<usize> = self.open_offers(at).collect();
                    open.into_iter().for_each(|offer| self.conclude(offer, Outcome::NotTaken));
                    self.senders[at].stage = Stage::Closing;
                    let wait = if self.random.chance(50) { 0 } else { self.random.below(30_000) };
                    self.after(wait, Event::Sender(at));
                } else {
                    self.sender_over(at, Some(Outcome::NotTaken));
                }
            }
            ProxyHears::Lost { unknown, not_taken, taken } => {
                for (tickets, outcome) in
                    [(unknown, Outcome::Unknown), (not_taken, Outcome::NotTaken), (taken, Outcome::Taken)]
                {
                    for ticket in tickets {
                        if !self.is_open(at, ticket) {
                            return self.broke(format!("{ticket} is reported as {outcome:?}, and is not open"));
                        }
                        self.conclude(ticket as usize, outcome);
                    }
                }
                let node = self.procs[self.channels[self.senders[at].channel].proc].node;
                self.procs[proc].views[node].lost_told = true;
                self.senders[at].lost = true;
                self.sender_over(at, None);
            }
            heard @ (ProxyHears::Moved(..) | ProxyHears::Home(..) | ProxyHears::Rests | ProxyHears::Departed) => {
                self.broke(format!("sender {at}, which does not travel, gets {heard:?}"));
            }
        }
    }

    fn is_open(&self, at: usize, ticket: u64) -> bool {
        self.offers.get(ticket as usize).is_some_and(|offer| offer.sender == at && offer.outcome.is_none())
    }

    fn told(&mut self, at: usize, ticket: u64, outcome: Outcome) {
        if !self.is_open(at, ticket) {
            return self.broke(format!("{ticket} is reported as {outcome:?}, and is not open"));
        }
        self.conclude(ticket as usize, outcome);
        self.forget_if_gone(at);
    }

    /// The sender of an offer learns its outcome: once, and truly.
    pub(super) fn conclude(&mut self, offer: usize, outcome: Outcome) {
        let (taken, before) = (self.offers[offer].taken, self.offers[offer].outcome);
        self.note(20, offer as u64, || format!("{offer} is reported as {outcome:?}"));
        if before.is_some() {
            return self.broke(format!("{offer} has two outcomes: {before:?} and {outcome:?}"));
        }
        match outcome {
            Outcome::Taken if !taken => return self.broke(format!("{offer} is reported as taken, and is not")),
            Outcome::NotTaken if taken => return self.broke(format!("{offer} is reported as not taken, and is")),
            _ => {}
        }
        self.offers[offer].outcome = Some(outcome);
        let cargo = self.offers[offer].cargo.clone();
        if !cargo.is_empty() {
            let (proc, taker) = (self.senders[self.offers[offer].sender].proc, self.offers[offer].taker);
            self.ends_concluded(cargo, proc, taker, outcome);
        }
        if let Some(choice) = self.offers[offer].choice
            && !self.choices[choice].decided
        {
            match outcome {
                // Decided for this offer; or, if unknown, as a whole.
                Outcome::Taken | Outcome::Unknown => self.choice_decided(choice, Some(offer)),
                _ => self.unlock(offer),
            }
        }
    }

    fn check_rejection(&mut self, at: usize, why: &Rejection) {
        let sender = &self.senders[at];
        let Stage::Attaching { since } = sender.stage else {
            return self.broke(format!("sender {at} is rejected, and was not attaching"));
        };
        let channel = &self.channels[sender.channel];
        let home = &self.procs[channel.proc];
        let was_there = channel.opened.is_some_and(|opened| opened <= since)
            && channel.ended.is_none()
            && home.alive
            && self.procs[sender.proc].views[home.node].life == home.incarnation;
        let wrong = match why {
            Rejection::NoSuchChannel => was_there,
            Rejection::Mismatch(_) => !sender.misfit,
            Rejection::Occupied => {
                channel.many
                    && !self.senders.iter().any(|other| {
                        other.channel == sender.channel
                            && self.procs[other.proc].node == self.procs[sender.proc].node
                            && other.stage == Stage::Over
                    })
            }
            Rejection::Full => true,
        };
        if wrong {
            self.broke(format!("sender {at} is rejected without a cause: {why:?}"));
        }
    }
}
