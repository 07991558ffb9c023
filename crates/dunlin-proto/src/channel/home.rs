//! The home of a channel: what its driver says, and what arrives from the sending halves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{Attached, Home, HomeHears, Standing, check_value};
use crate::account::{Charge, Way, may_stand};
use crate::connection::inbox::{Arrived, Begun, NO_VALUE};
use crate::id::{ChannelId, Contact, NodeId, Request, Ticket};
use crate::machine::{Action, Declined, Machine};
use crate::planted::planted;
use crate::time::Time;
use crate::wire::codec::WireError;
use crate::wire::{Declaration, End, Failure, Frame, FromHome, Head, Kind, Rejection, Terms, ToHome, Travel, Which};

impl Machine {
    /// The receiver of this channel is here: sending halves may attach. `many`: of several nodes.
    ///
    /// The terms' `value_max` is lowered to the configuration's.
    ///
    /// # Errors
    /// The declaration is too long to be sent to who does not fit; there is no home here then.
    pub fn open_home(
        &mut self,
        channel: ChannelId,
        mut terms: Terms,
        declaration: impl Into<Arc<Declaration>>,
        many: bool,
    ) -> Result<(), WireError> {
        let declaration = declaration.into();
        declaration.check()?;
        terms.value_max = terms.value_max.min(self.config.value_max as u64);
        terms.window = terms.window.max(1);
        self.remove_home(channel);
        self.homes.insert(channel, Box::new(Home::new(terms, declaration, many)));
        Ok(())
    }

    /// What the home of this channel grants to a sending half that attaches.
    pub fn granted_at(&self, channel: ChannelId) -> Option<Terms> {
        self.homes.get(&channel).map(|home| home.terms)
    }

    /// The sending half of this channel will be at that node, and at no other. If the connection to it is over before it has attached, the home
    /// hears that it is [lost](HomeHears::Lost).
    pub fn await_half(&mut self, channel: ChannelId, node: NodeId) {
        if let Some(home) = self.homes.get_mut(&channel) {
            home.rare.awaits = Some(node);
        }
    }

    /// The receiver of this channel is here, and its sender is in a message to this node, which says [`Machine::adopt`] when it takes that. To
    /// be said when the message is sent: what the sender's new half says may follow the word that it was taken at once.
    pub fn open_home_to(
        &mut self,
        channel: ChannelId,
        terms: Terms,
        declaration: impl Into<Arc<Declaration>>,
        node: NodeId,
    ) {
        let attached = BTreeMap::from([(node, Attached::new(terms.credits))]);
        self.remove_home(channel);
        self.homes.insert(channel, Box::new(Home { attached, ..Home::new(terms, declaration.into(), false) }));
    }

    /// The receiver of this channel has come in a message from that node, where its sender stays. As
    /// [`open_home_to`](Self::open_home_to); and the giver's source pays for it until it is over here.
    ///
    /// `false`: there is no room for it, and the sender hears that it is lost.
    #[must_use = "`false`: nothing is here for the receiver that came"]
    pub fn open_home_given(
        &mut self,
        now: Time,
        channel: ChannelId,
        terms: Terms,
        declaration: impl Into<Arc<Declaration>>,
        giver: Contact,
    ) -> bool {
        let Some(paid_by) = self.pay_for_end(channel, giver) else {
            self.answer_unless_over(now, giver, Frame::FromHome(channel, FromHome::Attached(terms)));
            self.answer_unless_over(now, giver, Frame::FromHome(channel, FromHome::Ended(End::Lost)));
            return false;
        };
        self.open_home_to(channel, terms, declaration, giver.node);
        if let Some(home) = self.homes.get_mut(&channel)
            && paid_by.is_some()
        {
            home.rare.paid_by = paid_by;
        }
        true
    }

    /// The message with the sender of this channel has been taken, and its new half has to know the terms.
    pub fn tell_terms(&mut self, now: Time, channel: ChannelId, to: NodeId, terms: Terms) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        home.terms = terms;
        if let Some(attached) = home.attached.get_mut(&to) {
            attached.credits = terms.credits.into();
            self.tell(now, to, channel, FromHome::Attached(terms));
        }
    }

    /// The message with the receiver of this channel has not been taken: nobody has heard of the channel.
    pub fn forget_half(&mut self, channel: ChannelId) {
        self.remove_proxy(channel);
    }

    /// The message with the sender of this channel has not been taken: nobody has heard of the channel.
    pub fn forget_home(&mut self, channel: ChannelId) {
        self.remove_home(channel);
    }

    pub(super) fn tell(&mut self, now: Time, to: NodeId, channel: ChannelId, said: FromHome) {
        self.say(now, to, Frame::FromHome(channel, said));
    }

    /// A half whose offers can be answered here. Once it has been told that the receiver is elsewhere it makes them again there, and hears nothing of them from this home: what the driver says
    /// late, since it had heard something before that, is not said on.
    fn answered(&mut self, channel: ChannelId, from: NodeId) -> Option<&mut Attached> {
        let home = self.homes.get_mut(&channel).filter(|home| !home.phase.has_said_so() || planted!(AnswersLate))?;
        home.attached.get_mut(&from)
    }

    /// The record of an offer at a home, if it still stands.
    fn standing(&mut self, channel: ChannelId, from: NodeId, ticket: Ticket) -> Option<&mut Standing> {
        self.answered(channel, from)?.open.get_mut(&ticket)
    }

    /// The value of this offer is not kept for its sender any more.
    fn free_offer(&mut self, channel: ChannelId, from: NodeId, ticket: Ticket) {
        if let Some(attached) = self.homes.get_mut(&channel).and_then(|home| home.attached.get_mut(&from)) {
            let charge = attached.charges.take(ticket);
            self.give_back(from, channel, charge);
        }
    }

    fn settle_offer(&mut self, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let Some(attached) = self.answered(channel, from) else { return false };
        let stood = attached.open.remove(&ticket).is_some();
        let charge = attached.charges.take(ticket);
        self.give_back(from, channel, charge);
        self.forget_if_over(channel, from);
        stood
    }

    /// A receive has returned the value of this offer. `false`: its node is lost, and does not hear of it.
    pub fn taken(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let stood = self.settle_offer(channel, from, ticket);
        if stood {
            self.tell(now, from, channel, FromHome::Taken(ticket));
        }
        stood
    }

    /// An extended receive has returned the value. `false`: its node is lost, and does not hear of it.
    pub fn held(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let Some(standing) = self.standing(channel, from, ticket) else { return false };
        *standing = Standing::Held;
        self.free_offer(channel, from, ticket);
        self.tell(now, from, channel, FromHome::Held(ticket));
        true
    }

    /// The extended receive is over.
    pub fn released(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) {
        if self.settle_offer(channel, from, ticket) {
            self.tell(now, from, channel, FromHome::Released(ticket));
        }
    }

    /// The offer has failed.
    pub fn failed(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, why: Failure) {
        if self.settle_offer(channel, from, ticket) {
            self.tell(now, from, channel, FromHome::Failed(ticket, why));
        }
    }

    /// The offer that was [asked back](HomeHears::Withdraw) has not been taken.
    pub fn withdrawn(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) {
        // With the word that the channel has ended here the half has heard it of all that it had offered.
        let has_ended = self.homes.get(&channel).is_some_and(|home| home.rare.ended.is_some());
        if self.settle_offer(channel, from, ticket) && !has_ended {
            self.tell(now, from, channel, FromHome::Withdrawn(ticket));
        }
    }

    /// The value of this offer is to go on to another node, and the ends in it are said so that only this one can use them: it has to be said anew. An offer of a value is
    /// over with this; of a choice's say [`abort`](Self::abort), too. `false`: its sender is gone, and says nothing any more.
    pub fn onward(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let half = self.answered(channel, from);
        let Some(half) = half.filter(|half| half.open.contains_key(&ticket)) else { return true };
        if half.gone {
            return false;
        }
        if half.open.get(&ticket) == Some(&Standing::Firm) {
            self.settle_offer(channel, from, ticket);
        }
        self.tell(now, from, channel, FromHome::Onward(ticket));
        true
    }

    /// From here on values of so many bytes or more are to be [offered unread](HomeHears::OfferedUnread) by this half, and with zero none any more. What is offered already stays as it is.
    pub fn unread(&mut self, now: Time, channel: ChannelId, from: NodeId, size: u64) {
        let half = self.answered(channel, from);
        if half.is_some_and(|half| half.told && !half.gone) {
            self.tell(now, from, channel, FromHome::Unread(size));
        }
    }

    /// Asks for what a choice offers.
    pub fn reserve(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, request: Request) {
        if let Some(Standing::Reserved(..)) = self.standing(channel, from, ticket) {
            // Its value has come meanwhile, and whoever asks anew has not heard of it: it goes back.
            self.abort(now, channel, from, ticket);
        }
        if let Some(standing @ (Standing::Tentative | Standing::Asked(_))) = self.standing(channel, from, ticket) {
            *standing = Standing::Asked(request);
            self.tell(now, from, channel, FromHome::Reserve(ticket, request));
        }
    }

    /// Gives a reservation up.
    pub fn abort(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) {
        if let Some(standing) = self.standing(channel, from, ticket)
            && let Standing::Asked(request) | Standing::Reserved(request, _) = *standing
        {
            *standing = Standing::Tentative;
            self.free_offer(channel, from, ticket);
            if planted!(AbortUntold) {
                return;
            }
            self.tell(now, from, channel, FromHome::Abort(ticket, request));
        }
    }

    /// A [grant](HomeHears::Granted) is not wanted any more. If it has been asked for anew meanwhile, that request stands.
    pub fn decline(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, request: Request) {
        if let Some(Standing::Reserved(granted, _)) = self.standing(channel, from, ticket)
            && *granted == request
        {
            self.abort(now, channel, from, ticket);
        }
    }

    /// So many more places for values that are sent on credit.
    pub fn credit(&mut self, now: Time, channel: ChannelId, to: NodeId, count: u32) {
        // Once the sender has been told that the receiver is elsewhere, it hears nothing from here; the new home promises what it has places for.
        let home = self.homes.get_mut(&channel).filter(|home| !home.phase.has_said_so());
        let Some(attached) = home.and_then(|home| home.attached.get_mut(&to)) else { return };
        if count > 0 && !attached.gone && attached.told {
            attached.credits += u64::from(count);
            self.tell(now, to, channel, FromHome::Credit(count));
        }
    }

    /// The channel has ended here. What was offered and not taken must have been told before.
    ///
    /// Values that went on a credit still arrive until the sending halves have noticed ([`HomeHears::Sent`]): after [`End::Retired`] for the receiver, else for
    /// nobody, but the ends in them have come, and are dropped here. So a home that is retired still has to answer [`HomeHears::Take`], until its receiver is
    /// [gone](End::Gone), too.
    pub fn end_home(&mut self, now: Time, channel: ChannelId, how: End) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        if let Some(to) = home.phase.moves_to() {
            // The sender looks there already.
            self.remove_home(channel);
            return self.say(now, to, Frame::Travel(channel, Travel::Over(Which::Receiver, how)));
        }
        let was_retired = match home.rare.ended {
            None => false,
            // Poison counts after a retirement, for whoever is still there; and that the receiver is gone for who waits to be admitted.
            Some(End::Retired) if how != End::Retired => true,
            Some(_) => return,
        };
        home.rare.ended = Some(how.clone());
        let told_all = was_retired && !matches!(how, End::Poisoned(_));
        let halves: Vec<(NodeId, bool)> = home.attached.iter().map(|(node, half)| (*node, half.told)).collect();
        // A half that is gone says nothing more; but it may wait for what is to become of its offers. One that has come, and has not been told that this is
        // its home, hears nothing else; but if there is still a receiver for what it has sent on credits, it is told both.
        let (mut kept, mut over) = (BTreeMap::new(), BTreeMap::new());
        for (node, half) in std::mem::take(&mut home.attached) {
            let stays = !half.gone && (half.told || how == End::Retired);
            if stays { &mut kept } else { &mut over }.insert(node, half);
        }
        let mut charges: Vec<(NodeId, Charge)> = Vec::new();
        for (node, half) in &mut kept {
            charges.extend(half.charges.drain().map(|charge| (*node, charge)));
        }
        home.attached = kept;
        for (node, half) in &mut over {
            self.free_half(*node, channel, half);
        }
        for (node, charge) in charges {
            self.give_back(node, channel, charge);
        }
        for (node, _) in &halves {
            self.consider(*node, channel);
        }
        for (node, told) in halves {
            match told {
                true if told_all => {}
                true => self.tell(now, node, channel, FromHome::Ended(how.clone())),
                false if how == End::Retired => {}
                false => self.say(now, node, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone()))),
            }
        }
        self.forget_home_if_over(channel);
    }

    pub(super) fn forget_if_over(&mut self, channel: ChannelId, from: NodeId) {
        if let Some(home) = self.homes.get_mut(&channel) {
            if home.attached.get(&from).is_some_and(|attached| attached.gone && attached.open.is_empty())
                && let Some(mut half) = home.attached.remove(&from)
            {
                self.free_half(from, channel, &mut half);
            }
            self.forget_home_if_over(channel);
        }
    }

    pub(super) fn forget_home_if_over(&mut self, channel: ChannelId) {
        let over = |home: &Home| home.rare.ended.is_some() && home.attached.is_empty() && !home.phase.is_away();
        if self.homes.get(&channel).is_some_and(|home| over(home)) {
            self.remove_home(channel);
        }
    }

    pub(crate) fn hears(&mut self, channel: ChannelId, from: NodeId, heard: HomeHears) {
        let from = self.contact(from);
        self.actions.push_back(Action::Home(channel, from, heard));
    }

    /// What a sending half says.
    pub(crate) fn hear_sender(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        said: ToHome,
    ) -> Result<(), &'static str> {
        if self.is_within_value(from, channel) {
            return Err("something else within a value");
        }
        if self.visitors.contains_key(&channel) && !matches!(said, ToHome::Take(_)) {
            return self.hear_old_home(now, from, channel, said);
        }
        match said {
            ToHome::Take(transfer) => {
                self.hear_take(now, from, channel, transfer);
                Ok(())
            }
            ToHome::State(_) => Err("the state of a channel that nobody has fetched"),
            ToHome::Attach(theirs) => {
                self.attach_here(now, from, channel, &theirs);
                Ok(())
            }
            ToHome::Value { head, total, first } => self.value_begins(now, from, channel, head, total, first),
            said => {
                let Some(home) = self.homes.get_mut(&channel) else {
                    self.hears_nothing(now, from);
                    return Ok(());
                };
                let over = home.rare.ended.is_some();
                let leaves = home.phase.has_said_so();
                let Some(attached) = home.attached.get_mut(&from) else {
                    self.hears_nothing(now, from);
                    return Ok(());
                };
                match said {
                    ToHome::Quiet if !leaves => return Err("quiet, without having been asked"),
                    ToHome::Quiet => self.hear_quiet(channel),
                    ToHome::Drain => self.tell(now, from, channel, FromHome::Drained),
                    ToHome::OfferChoice(..) if attached.gone => {
                        return Err("an offer from a sending half that is gone");
                    }
                    ToHome::OfferChoice(ticket, _) if attached.open.contains_key(&ticket) => {
                        return Err("an offer under a number that is in use");
                    }
                    ToHome::OfferChoice(..) if attached.open.len() >= home.terms.window as usize => {
                        return Err("more offers than the window has");
                    }
                    ToHome::OfferChoice(..) if over => {}
                    ToHome::OfferChoice(ticket, choice) => {
                        attached.open.insert(ticket, Standing::Tentative);
                        if !leaves {
                            self.hears(channel, from, HomeHears::OfferedByChoice(ticket, choice));
                        }
                    }
                    // It will be offered again where the home is then, or not.
                    ToHome::Withdraw(_) | ToHome::Revoke(_) if leaves => {}
                    // What has been settled meanwhile has been told, or will be.
                    ToHome::Withdraw(ticket) if attached.open.contains_key(&ticket) => {
                        self.hears(channel, from, HomeHears::Withdraw(ticket));
                    }
                    ToHome::Revoke(ticket) if attached.open.contains_key(&ticket) => {
                        self.hears(channel, from, HomeHears::Revoke(ticket));
                    }
                    ToHome::Withdraw(_) | ToHome::Revoke(_) => {}
                    ToHome::Ended(how) => {
                        let mut freed = Vec::new();
                        if attached.gone {
                            return Err("an end from a sending half that is gone");
                        }
                        attached.retired |= how == End::Retired;
                        home.phase.ended_by_sender(&how);
                        attached.gone |= matches!(how, End::Gone | End::Lost);
                        if over {
                            attached.open.retain(|_, standing| *standing == Standing::Held);
                            let charges: Vec<Charge> = attached.charges.drain().collect();
                            freed = charges;
                        }
                        let tells = match home.rare.ended {
                            None | Some(End::Retired) => true,
                            // What is held is released yet.
                            Some(End::Poisoned(_)) => attached.open.is_empty(),
                            Some(End::Gone | End::Lost) => false,
                        };
                        if tells {
                            self.hears(channel, from, HomeHears::Ended(how));
                        }
                        for charge in freed {
                            self.give_back(from, channel, charge);
                        }
                        self.forget_if_over(channel, from);
                        self.empty_if_quiet(channel);
                    }
                    ToHome::Attach(_) | ToHome::Value { .. } | ToHome::Take(_) | ToHome::State(_) => {
                        unreachable!("they were matched above")
                    }
                }
                Ok(())
            }
        }
    }

    fn attach_here(&mut self, now: Time, from: NodeId, channel: ChannelId, theirs: &Declaration) {
        // Counted only where there can be so many: each attachment would look at all homes.
        let attached = || self.homes.iter().filter(|(_, home)| home.attached.contains_key(&from)).count();
        let room = self.homes.len() <= self.config.attached_max || attached() < self.config.attached_max;
        let giver = self.contact(from);
        let comparisons = &mut self.comparisons;
        comparisons.begin_frame();
        let rejection = match self.homes.get_mut(&channel) {
            None => Some(Rejection::NoSuchChannel),
            Some(home) if home.rare.ended.is_some() || home.rare.awaits.is_some_and(|node| node != from) => {
                Some(Rejection::NoSuchChannel)
            }
            Some(home) if !comparisons.fit(&home.declaration, theirs) => {
                Some(Rejection::Mismatch(Declaration::clone(&home.declaration)))
            }
            Some(home) if home.attached.contains_key(&from) || (!home.many && !home.attached.is_empty()) => {
                Some(Rejection::Occupied)
            }
            Some(_) if !room => Some(Rejection::Full),
            Some(home) => {
                let account = self.connections.get_mut(from).map(|connection| &mut connection.inbox.account);
                let paid = match self.guests.get(&channel) {
                    Some((guest, _)) if *guest == giver => self.guests.remove(&channel).map(|(_, place)| place),
                    _ => None,
                };
                let place = || account.map_or(Some(Charge::NONE), |account| account.attach(&mut self.pool));
                match paid.or_else(place) {
                    Some(place) => {
                        home.attached.insert(from, Attached { place, ..Attached::new(home.terms.credits) });
                        None
                    }
                    None => Some(Rejection::Full),
                }
            }
        };
        let steps = self.comparisons.take_steps();
        self.compares(now, from, steps);
        if rejection == Some(Rejection::Full) {
            self.declines(from, Declined::Half(channel));
        }
        match rejection {
            Some(why) => self.tell(now, from, channel, FromHome::Rejected(why)),
            None => {
                let Some(terms) = self.granted_at(channel) else { return };
                self.tell(now, from, channel, FromHome::Attached(terms));
                self.hears(channel, from, HomeHears::Attached);
            }
        }
    }

    fn value_begins(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        head: Head,
        total: u64,
        first: Bytes,
    ) -> Result<(), &'static str> {
        let (mut wanted, mut kept, mut stands) = (false, true, true);
        if let Some(home) = self.homes.get_mut(&channel)
            && let Some(attached) = home.attached.get_mut(&from)
        {
            check_value(home.terms, attached, head)?;
            stands = head.kind() != Kind::Offer || may_stand(attached.charges.ahead(), total);
            if head == Head::Sent {
                attached.credits -= 1;
            }
            // Who has sent it takes it for arrived, and the ends in it for gone.
            wanted = home.rare.ended.is_none() || (head == Head::Sent && !planted!(LateValueUntold));
            kept = matches!(home.rare.ended, None | Some(End::Retired)) && !home.phase.has_said_so();
            if total > home.terms.value_max {
                match head {
                    Head::Offer(ticket) | Head::Unread(ticket) => {
                        let max = home.terms.value_max;
                        self.tell(now, from, channel, FromHome::Failed(ticket, Failure::TooLarge { max }));
                    }
                    // Its sender knew the terms.
                    Head::Grant(..) | Head::GrantUnread(..) | Head::Sent => {
                        return Err("a value larger than the terms allow");
                    }
                }
                wanted = false;
            }
        }
        let charge = self.charge(from, channel, total, wanted && kept, stands)?;
        if wanted && first.len() as u64 == total && charge.way == Way::Credit {
            // Most are.
            return self.value_is_whole(now, from, channel, head, first, charge);
        }
        match self.begin_value(from, channel, Begun { head, total, wanted, charge }, first) {
            Arrived::Whole(head, value, charge) => self.value_is_whole(now, from, channel, head, value, charge),
            Arrived::Unwanted(charge) => {
                self.give_back(from, channel, charge);
                Ok(())
            }
            Arrived::NotYet | Arrived::Wrong => Ok(()),
        }
    }

    /// A value begins to arrive. What this node says to itself comes whole.
    pub(super) fn begin_value(&mut self, from: NodeId, channel: ChannelId, value: Begun, first: Bytes) -> Arrived {
        if self.is_me(from) {
            return value.whole(first);
        }
        let inbox = &mut self.connection(from).inbox;
        inbox.stalled = Duration::ZERO;
        inbox.begin(channel, value, first)
    }

    fn is_within_value(&mut self, from: NodeId, channel: ChannelId) -> bool {
        !self.is_me(from) && self.connection(from).inbox.is_within_value(channel)
    }

    /// The next piece of a value.
    pub(crate) fn more(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        piece: &Bytes,
    ) -> Result<(), &'static str> {
        match self.connection(from).inbox.more(channel, piece) {
            Arrived::NotYet => Ok(()),
            Arrived::Unwanted(charge) => {
                self.give_back(from, channel, charge);
                Ok(())
            }
            Arrived::Whole(_, value, charge) if self.visitors.contains_key(&channel) => {
                self.buffered_value(now, channel, from, value, charge);
                Ok(())
            }
            Arrived::Whole(head, value, charge) => self.value_is_whole(now, from, channel, head, value, charge),
            Arrived::Wrong => Err(NO_VALUE),
        }
    }

    fn value_is_whole(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        head: Head,
        value: Bytes,
        charge: Charge,
    ) -> Result<(), &'static str> {
        let attached = self.homes.get_mut(&channel).and_then(|home| {
            let over = home.rare.ended.is_some() && head != Head::Sent;
            let Home { attached, phase, buffered, rare, .. } = &mut **home;
            let attached = if over { None } else { attached.get_mut(&from) };
            attached.map(|attached| (attached, phase.has_said_so(), buffered, rare.ended.is_some()))
        });
        let Some((attached, has_said_so, buffered, has_ended)) = attached else {
            self.give_back(from, channel, charge);
            return Ok(());
        };
        if has_said_so {
            // What stands will be offered again at the new home, and what was sent goes there.
            match head {
                Head::Offer(ticket) | Head::Unread(ticket) => drop(attached.open.insert(ticket, Standing::Firm)),
                Head::Grant(..) | Head::GrantUnread(..) => {}
                Head::Sent => self.hears(channel, from, HomeHears::Sent(value)),
            }
            self.give_back(from, channel, charge);
            return Ok(());
        }
        match head {
            Head::Offer(ticket) => {
                attached.open.insert(ticket, Standing::Firm);
                attached.charges.add(ticket, head.kind(), charge);
                self.hears(channel, from, HomeHears::Offered(ticket, value));
                if planted!(AckOnArrival) {
                    self.taken(now, channel, from, ticket);
                }
            }
            Head::Unread(ticket) => {
                attached.open.insert(ticket, Standing::Firm);
                attached.charges.add(ticket, head.kind(), charge);
                self.hears(channel, from, HomeHears::OfferedUnread(ticket, value));
            }
            Head::Grant(ticket, request) | Head::GrantUnread(ticket, request) => match attached.open.get_mut(&ticket) {
                Some(standing)
                    if *standing == Standing::Asked(request)
                        || (planted!(GrantUnnumbered) && matches!(standing, Standing::Asked(_))) =>
                {
                    *standing = Standing::Reserved(request, None);
                    attached.charges.add(ticket, head.kind(), charge);
                    let heard = match head {
                        Head::GrantUnread(..) => HomeHears::GrantedUnread(ticket, request, value),
                        _ => HomeHears::Granted(ticket, request, value),
                    };
                    self.hears(channel, from, heard);
                }
                // It has been given up meanwhile: the value goes back.
                Some(_) => {
                    self.give_back(from, channel, charge);
                    self.tell(now, from, channel, FromHome::Abort(ticket, request));
                }
                None => self.give_back(from, channel, charge),
            },
            Head::Sent => {
                // Once the channel has ended its driver drops what comes.
                if has_ended {
                    self.give_back(from, channel, charge);
                } else {
                    let lives = self.connections.get(from).map_or(0, |connection| connection.lives);
                    buffered.add(Contact { node: from, lives }, charge);
                }
                self.hears(channel, from, HomeHears::Sent(value));
            }
        }
        Ok(())
    }

    /// A bug, planted: a connection has resumed, and its credits are granted once more.
    #[cfg(feature = "planted")]
    pub(crate) fn grant_again(&mut self, now: Time, node: NodeId) {
        let channels: Vec<ChannelId> = self.homes.iter().map(|(channel, _)| *channel).collect();
        for channel in channels {
            let Some(home) = self.homes.get(&channel) else { continue };
            let credits = home.attached.get(&node).map_or(0, |attached| attached.credits);
            self.credit(now, channel, node, credits as u32);
        }
    }

    /// A node is lost: what it offered stands no more.
    pub(crate) fn settle_homes(&mut self, node: NodeId) {
        for channel in self.homes.of(node) {
            let Some(home) = self.homes.get_mut(&channel).filter(|home| home.is_of(node)) else { continue };
            let attached = home.attached.remove(&node);
            home.phase.ended_by_sender(&End::Lost);
            // A receiver that has retired or poisoned the channel may wait for what is on its way, or to go into a message.
            let over = matches!(home.rare.ended, Some(End::Gone | End::Lost))
                || (planted!(RetiredUntold) && home.rare.ended == Some(End::Retired));
            if !over && !planted!(DeadOffers) {
                let stood = attached.map_or_else(Vec::new, |attached| attached.open.into_keys().collect());
                self.hears(channel, node, HomeHears::Lost(stood));
            }
            self.forget_home_if_over(channel);
            self.empty_if_quiet(channel);
        }
    }
}
