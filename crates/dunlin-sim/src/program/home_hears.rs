//! What homes learn of their senders, and whether it is true.

use bytes::Bytes;
use dunlin_proto::HomeHears;
use dunlin_proto::id::{ChannelId, Contact};
use dunlin_proto::wire::End;

use super::{AtHome, Channel, Half, Offer, Outcome, Stage, offer_in, value};
use crate::world::{Event, World, node_index};

impl World {
    pub(crate) fn home_hears(&mut self, proc: usize, channel: ChannelId, giver: Contact, heard: HomeHears) {
        if let Some(line) = self.line_of(channel) {
            return self.line_home_hears(line, proc, giver, heard);
        }
        let from = node_index(giver.node);
        let found = self.channels.iter().position(|known| known.id == channel && known.proc == proc);
        let Some(at) = found else {
            return self.broke(format!("a channel that is not there gets {heard:?}"));
        };
        let life = self.procs[proc].views[from].life;
        let half = self.channels[at].halves.iter().position(|half| half.node == from);
        let Some(half) = half else {
            if let HomeHears::Lost(stood) = &heard {
                // This home has settled it in the same event, and its machine was ahead.
                let event = self.coverage.events;
                if stood.iter().any(|offer| self.offers[*offer as usize].decided_in != event) {
                    self.broke(format!("channel {at} loses {stood:?} of n{from}, which is not attached"));
                }
                self.procs[proc].views[from].lost_told = true;
                return;
            }
            let late = matches!(heard, HomeHears::Withdraw(_) | HomeHears::Revoke(_) | HomeHears::Announced);
            if late && self.channels[at].forgot_in == self.coverage.events {
                return;
            }
            if heard != HomeHears::Attached {
                return self
                    .broke(format!("channel {at} gets a message from n{from}, which is not attached: {heard:?}"));
            }
            let Some(from_proc) = self.proc_of(from, life) else {
                return self.broke(format!("channel {at} is attached by n{from}, which is not connected"));
            };
            let credits = self.channels[at].terms.credits;
            self.channels[at].halves.push(Half { node: from, proc: from_proc, gone: false, granted: credits.into() });
            return;
        };
        let from_proc = self.channels[at].halves[half].proc;
        if let HomeHears::Offered(ticket, _)
        | HomeHears::OfferedUnread(ticket, _)
        | HomeHears::OfferedByChoice(ticket, _) = heard
            && let Some(offer) = self.offers.get_mut(ticket as usize)
        {
            offer.giver = Some(giver);
        }
        match heard {
            HomeHears::Attached => self.broke(format!("n{from} is attached to channel {at} twice")),
            HomeHears::Offered(ticket, value) | HomeHears::OfferedUnread(ticket, value) => {
                let offer = ticket as usize;
                if !self.arrives(at, from_proc, offer, Some(&value)) {
                    return;
                }
                self.offers[offer].at_home = AtHome::Waiting;
                self.channels[at].queue.push(offer);
                if self.random.chance(20) {
                    // A receive already waits.
                    self.receive(at);
                }
                self.admit(at);
            }
            HomeHears::OfferedByChoice(ticket, choice) => {
                let offer = ticket as usize;
                if !self.arrives(at, from_proc, offer, None) {
                    return;
                }
                if self.offers[offer].choice != Some(choice as usize) {
                    return self.broke(format!("{offer} arrives as another choice's"));
                }
                self.offers[offer].at_home = AtHome::Tentative;
                self.channels[at].queue.push(offer);
                if self.random.chance(50) {
                    self.reserve(at, offer);
                }
            }
            HomeHears::Granted(ticket, request, bytes) | HomeHears::GrantedUnread(ticket, request, bytes) => {
                let offer = ticket as usize;
                if !self.channels[at].queue.contains(&offer) || self.offers[offer].at_home != AtHome::Asked(request) {
                    if self.offers[offer].decided_in == self.coverage.events {
                        return;
                    }
                    return self.broke(format!("{offer} is granted to request {request}, which was never made"));
                }
                if bytes != value(offer, self.offers[offer].size) {
                    return self.broke(format!("the value of {offer} has changed on its way"));
                }
                self.offers[offer].at_home = AtHome::Granted(request);
                if self.random.chance(40) {
                    self.receive(at);
                }
            }
            HomeHears::Sent(value) => {
                if !self.plan.holds {
                    self.procs[proc].machine.drained(self.channels[at].id, 1, value.len() as u64);
                }
                let Some(offer) = offer_in(&value).filter(|offer| *offer < self.offers.len()) else {
                    return self.broke("a value that was not sent");
                };
                if self.channels[at].ended.as_ref().is_some_and(|(how, _)| *how != End::Retired) {
                    // The value is not received.
                    return self.ends_arrive_late(self.offers[offer].cargo.clone(), proc, giver);
                }
                if !self.arrives(at, from_proc, offer, Some(&value)) {
                    return;
                }
                let sender = self.offers[offer].sender;
                let (number, expected) = (self.offers[offer].number, self.senders[sender].sent_arrived);
                if self.offers[offer].outcome != Some(Outcome::Sent) {
                    return self.broke(format!("{offer} was offered, and arrives as sent on a credit"));
                }
                if number != expected {
                    return self.broke(format!("of sender {sender}, number {number} arrives where {expected} is next"));
                }
                self.senders[sender].sent_arrived += 1;
                let granted = &mut self.channels[at].halves[half].granted;
                if *granted == 0 {
                    return self.broke(format!("{offer} arrives without a credit"));
                }
                *granted -= 1;
                self.happens(offer);
                self.offers[offer].at_home = AtHome::Done;
                self.channels[at].buffer.push_back(offer);
                self.offers[offer].giver = Some(giver);
                if !self.healed && !self.offers[offer].cargo.is_empty() && self.random.chance(20) {
                    // As in other takes, its program may report it late.
                    let wait = self.random.below(50_000);
                    self.after(wait, Event::EndsCome(offer));
                } else {
                    self.ends_come(offer);
                }
            }
            HomeHears::Announced => {
                self.channels[at].asked = true;
                if self.random.chance(20) {
                    // A receive already waits.
                    self.receive(at);
                }
            }
            HomeHears::Withdraw(ticket) => {
                let offer = ticket as usize;
                if self.channels[at].queue.contains(&offer) {
                    self.channels[at].queue.retain(|other| *other != offer);
                    self.offers[offer].at_home = AtHome::Done;
                    self.note(39, offer as u64, || format!("channel {at}: {offer} is withdrawn"));
                    self.home_call(offer, |machine, now, id, from| machine.withdrawn(now, id, from, offer as u64));
                }
            }
            HomeHears::Revoke(ticket) => {
                let offer = ticket as usize;
                if matches!(self.offers[offer].at_home, AtHome::Asked(_) | AtHome::Granted(_))
                    && self.channels[at].queue.contains(&offer)
                {
                    self.abort(offer);
                }
            }
            HomeHears::Ended(how) => {
                let said = self
                    .senders
                    .iter()
                    .any(|sender| sender.channel == at && sender.proc == from_proc && sender.ended.contains(&how));
                // A half answers poison by itself.
                let poisoned = matches!(self.channels[at].ended, Some((End::Poisoned(_), _)));
                if !(said || poisoned && how == End::Gone) {
                    return self.broke(format!("channel {at} gets {how:?} of n{from}, which has not sent that"));
                }
                if how == End::Gone {
                    self.channels[at].halves[half].gone = true;
                    self.channels[at].halves[half].granted = 0;
                    self.tidy(at);
                } else {
                    self.end(at, how);
                }
            }
            HomeHears::Lost(mut stood) => {
                stood.sort_unstable();
                let mut known: Vec<u64> = (0..self.offers.len())
                    .filter(|offer| {
                        let entry = &self.offers[*offer];
                        entry.channel == at
                            && self.senders[entry.sender].proc == from_proc
                            && !matches!(entry.at_home, AtHome::Away | AtHome::Done)
                    })
                    .map(|offer| offer as u64)
                    .collect();
                known.sort_unstable();
                let event = self.coverage.events;
                let settled = |offer: &u64| known.contains(offer) || self.offers[*offer as usize].decided_in == event;
                // No program received the offers that arrived as the channel ended.
                let has_ended = self.channels[at].ended.is_some();
                if !known.iter().all(|offer| stood.contains(offer)) || !(has_ended || stood.iter().all(settled)) {
                    return self.broke(format!("channel {at} loses {stood:?} of n{from}, and knows of {known:?}"));
                }
                self.channels[at].halves.remove(half);
                for offer in stood {
                    self.offers[offer as usize].at_home = AtHome::Done;
                    self.channels[at].queue.retain(|other| *other != offer as usize);
                }
                self.procs[proc].views[from].lost_told = true;
            }
            heard @ (HomeHears::Take
            | HomeHears::Leave
            | HomeHears::Empty
            | HomeHears::Arrived(_)
            | HomeHears::Lapsed(_)
            | HomeHears::Failed(_)) => self.broke(format!("channel {at}, which does not travel, gets {heard:?}")),
        }
        self.tidy(at);
    }

    /// Forgets the halves that are gone and have no offers left.
    pub(super) fn tidy(&mut self, at: usize) {
        let Channel { halves, .. } = &self.channels[at];
        let over: Vec<usize> = halves
            .iter()
            .filter(|half| half.gone)
            .map(|half| half.proc)
            .filter(|proc| {
                !self.offers.iter().any(|offer| {
                    offer.channel == at
                        && self.senders[offer.sender].proc == *proc
                        && !matches!(offer.at_home, AtHome::Away | AtHome::Done)
                })
            })
            .collect();
        if !over.is_empty() {
            self.channels[at].forgot_in = self.coverage.events;
            self.channels[at].halves.retain(|half| !over.contains(&half.proc));
        }
    }

    /// The home gets the ends in a value that was sent on a credit.
    pub(crate) fn ends_come(&mut self, offer: usize) {
        let Offer { channel, giver, ref cargo, .. } = self.offers[offer];
        if let Some(giver) = giver {
            self.ends_arrive(cargo.clone(), self.channels[channel].proc, giver);
        }
    }

    /// Checks an offer or a value that arrives at its home: of the right life, once, whole, in order, and not
    /// yet withdrawn.
    fn arrives(&mut self, at: usize, from_proc: usize, offer: usize, bytes: Option<&Bytes>) -> bool {
        let before = self.broken.is_some();
        let Some(entry) = self.offers.get(offer) else {
            self.broke(format!("{offer} arrives, and was not offered"));
            return false;
        };
        let (sender, size, arrived, outcome) = (entry.sender, entry.size, entry.arrived, entry.outcome);
        if entry.channel != at || self.senders[sender].proc != from_proc {
            self.broke(format!("{offer} arrives at channel {at}, or from a life, where it was not offered"));
        } else if arrived {
            self.broke(format!("{offer} arrives twice"));
        } else if outcome == Some(Outcome::NotTaken) && self.senders[sender].stage != Stage::Over {
            // If the sender has ended, the home has not learned that yet. The home must not take the value,
            // which `happens` checks.
            self.broke(format!("{offer} arrives, and was reported as not taken"));
        } else if bytes.is_some_and(|bytes| *bytes != value(offer, size)) {
            self.broke(format!("the value of {offer} has changed on its way"));
        } else if let Some((how, event)) = &self.channels[at].ended
            && !(*how == End::Retired && outcome == Some(Outcome::Sent))
        {
            if *event != self.coverage.events {
                self.broke(format!("{offer} arrives after the end of channel {at}"));
            }
            self.offers[offer].decided_in = self.coverage.events;
            return false;
        }
        let sent = outcome == Some(Outcome::Sent);
        if !sent {
            if self.senders[sender].last_arrived.is_some_and(|last| last > offer) {
                self.broke(format!("{offer} arrives after a later one of its sender"));
            }
            self.senders[sender].last_arrived = Some(offer);
        }
        self.offers[offer].arrived = true;
        before || self.broken.is_none()
    }

    fn proc_of(&self, node: usize, life: u64) -> Option<usize> {
        self.procs.iter().position(|proc| proc.node == node && proc.incarnation == life)
    }
}
