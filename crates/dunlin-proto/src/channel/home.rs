//! The home of a channel: calls of its driver, and frames from the sending halves.

use std::sync::Arc;

use bytes::Bytes;
use dunlin_sorted::SortedMap;

use super::{Attached, Channels, Home, HomeHears, Peers, Standing, check_value};
use crate::account::{Charge, Way, may_stand};
use crate::connection::inbox::{Arrived, Begun, Whole};
use crate::id::{ChannelId, Contact, NodeId, Request, Ticket};
use crate::machine::{Action, Declined};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::codec::WireError;
use crate::wire::{Declaration, End, Failure, Frame, FromHome, Head, Kind, Rejection, Terms, ToHome, Travel, Which};

impl Channels {
    pub(crate) fn open_home(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        mut terms: Terms,
        declaration: impl Into<Arc<Declaration>>,
        many: bool,
    ) -> Result<(), WireError> {
        let declaration = declaration.into();
        declaration.check()?;
        terms.value_max = terms.value_max.min(peers.config().value_max as u64);
        terms.window = terms.window.max(1);
        self.remove_home(peers, channel);
        self.homes.insert(channel, Box::new(Home::new(terms, declaration, many)));
        Ok(())
    }

    pub(crate) fn granted_at(&self, channel: ChannelId) -> Option<Terms> {
        self.homes.get(&channel).map(|home| home.terms)
    }

    pub(crate) fn await_half(&mut self, channel: ChannelId, node: NodeId) {
        if let Some(home) = self.homes.get_mut(&channel) {
            home.rare.awaits = Some(node);
        }
    }

    pub(crate) fn open_home_to(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        terms: Terms,
        declaration: impl Into<Arc<Declaration>>,
        node: NodeId,
    ) {
        let attached = SortedMap::from_iter([(node, Attached::new(terms.credits))]);
        self.remove_home(peers, channel);
        self.homes.insert(channel, Box::new(Home { attached, ..Home::new(terms, declaration.into(), false) }));
    }

    pub(crate) fn open_home_given(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        terms: Terms,
        declaration: impl Into<Arc<Declaration>>,
        giver: Contact,
    ) -> bool {
        let Some(paid_by) = peers.pay_for_end(channel, giver) else {
            peers.answer_unless_over(giver, Frame::FromHome(channel, FromHome::Attached(terms)));
            peers.answer_unless_over(giver, Frame::FromHome(channel, FromHome::Ended(End::Lost)));
            return false;
        };
        self.open_home_to(peers, channel, terms, declaration, giver.node);
        if let Some(home) = self.homes.get_mut(&channel)
            && paid_by.is_some()
        {
            home.rare.paid_by = paid_by;
        }
        true
    }

    pub(crate) fn tell_terms(&mut self, peers: &mut impl Peers, channel: ChannelId, to: NodeId, terms: Terms) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        home.terms = terms;
        if let Some(attached) = home.attached.get_mut(&to) {
            attached.credits = terms.credits.into();
            peers.tell(to, channel, FromHome::Attached(terms));
        }
    }

    pub(crate) fn forget_half(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        self.remove_proxy(peers, channel);
    }

    pub(crate) fn forget_home(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        self.remove_home(peers, channel);
    }

    /// A half whose offers can be answered here. Once it has been notified that the receiver is elsewhere, it
    /// makes them again there and ignores this home. A late call of the driver, which answers an earlier
    /// event, is not forwarded.
    fn answered(&mut self, channel: ChannelId, from: NodeId) -> Option<&mut Attached> {
        let home = self.homes.get_mut(&channel).filter(|home| !home.phase.has_said_so() || planted!(AnswersLate))?;
        home.attached.get_mut(&from)
    }

    /// The record of an offer at a home, if it still stands.
    fn standing(&mut self, channel: ChannelId, from: NodeId, ticket: Ticket) -> Option<&mut Standing> {
        self.answered(channel, from)?.open.get_mut(&ticket)
    }

    /// Releases the charge for the value of this offer.
    fn free_offer(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) {
        if let Some(attached) = self.homes.get_mut(&channel).and_then(|home| home.attached.get_mut(&from)) {
            let charge = attached.charges.take(ticket);
            self.give_back(peers, from, channel, charge);
        }
    }

    fn settle_offer(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let Some(attached) = self.answered(channel, from) else { return false };
        let stood = attached.open.remove(&ticket).is_some();
        let (charge, is_gone) = (attached.charges.take(ticket), attached.gone);
        self.give_back(peers, from, channel, charge);
        if is_gone {
            self.forget_if_over(peers, channel, from);
        }
        stood
    }

    pub(crate) fn taken(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let stood = self.settle_offer(peers, channel, from, ticket);
        if stood {
            peers.tell(from, channel, FromHome::Taken(ticket));
        }
        stood
    }

    pub(crate) fn held(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let Some(standing) = self.standing(channel, from, ticket) else { return false };
        *standing = Standing::Held;
        self.free_offer(peers, channel, from, ticket);
        peers.tell(from, channel, FromHome::Held(ticket));
        true
    }

    pub(crate) fn released(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) {
        if self.settle_offer(peers, channel, from, ticket) {
            peers.tell(from, channel, FromHome::Released(ticket));
        }
    }

    pub(crate) fn failed(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        from: NodeId,
        ticket: Ticket,
        why: Failure,
    ) {
        if self.settle_offer(peers, channel, from, ticket) {
            peers.tell(from, channel, FromHome::Failed(ticket, why));
        }
    }

    pub(crate) fn withdrawn(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) {
        // The notice that the channel has ended here has already settled all offers of the half.
        let has_ended = self.homes.get(&channel).is_some_and(|home| home.rare.ended.is_some());
        if self.settle_offer(peers, channel, from, ticket) && !has_ended {
            peers.tell(from, channel, FromHome::Withdrawn(ticket));
        }
    }

    pub(crate) fn onward(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool {
        let half = self.answered(channel, from);
        let Some(half) = half.filter(|half| half.open.contains_key(&ticket)) else { return true };
        if half.gone {
            return false;
        }
        if half.open.get(&ticket) == Some(&Standing::Firm) {
            self.settle_offer(peers, channel, from, ticket);
        }
        peers.tell(from, channel, FromHome::Onward(ticket));
        true
    }

    pub(crate) fn unread(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, size: u64) {
        let half = self.answered(channel, from);
        if half.is_some_and(|half| half.told && !half.gone) {
            peers.tell(from, channel, FromHome::Unread(size));
        }
    }

    pub(crate) fn reserve(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        from: NodeId,
        ticket: Ticket,
        request: Request,
    ) {
        if let Some(Standing::Reserved(..)) = self.standing(channel, from, ticket) {
            // Its value has arrived meanwhile, unknown to the new request: return it.
            self.abort(peers, channel, from, ticket);
        }
        if let Some(standing @ (Standing::Tentative | Standing::Asked(_))) = self.standing(channel, from, ticket) {
            *standing = Standing::Asked(request);
            peers.tell(from, channel, FromHome::Reserve(ticket, request));
        }
    }

    pub(crate) fn abort(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId, ticket: Ticket) {
        if let Some(standing) = self.standing(channel, from, ticket)
            && let Standing::Asked(request) | Standing::Reserved(request, _) = *standing
        {
            *standing = Standing::Tentative;
            self.free_offer(peers, channel, from, ticket);
            if planted!(AbortUntold) {
                return;
            }
            peers.tell(from, channel, FromHome::Abort(ticket, request));
        }
    }

    pub(crate) fn decline(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        from: NodeId,
        ticket: Ticket,
        request: Request,
    ) {
        if let Some(Standing::Reserved(granted, _)) = self.standing(channel, from, ticket)
            && *granted == request
        {
            self.abort(peers, channel, from, ticket);
        }
    }

    pub(crate) fn credit(&mut self, peers: &mut impl Peers, channel: ChannelId, to: NodeId, count: u32) {
        // Once the sender has been notified that the receiver is elsewhere, it ignores this home; the new
        // home grants credits for its own places.
        let home = self.homes.get_mut(&channel).filter(|home| !home.phase.has_said_so());
        let Some(attached) = home.and_then(|home| home.attached.get_mut(&to)) else { return };
        if count > 0 && !attached.gone && attached.told {
            attached.credits += u64::from(count);
            peers.tell(to, channel, FromHome::Credit(count));
        }
    }

    pub(crate) fn end_home(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        if let Some(to) = home.phase.moves_to() {
            // The sender already uses the new home.
            self.remove_home(peers, channel);
            return peers.say(to, Frame::Travel(channel, Travel::Over(Which::Receiver, how)));
        }
        let was_retired = match home.rare.ended {
            None => false,
            // After a retirement, poison still counts for the halves that remain; and so does the loss of the
            // receiver, for a half that waits to be admitted.
            Some(End::Retired) if how != End::Retired => true,
            Some(_) => return,
        };
        home.rare.ended = Some(how.clone());
        let told_all = was_retired && !matches!(how, End::Poisoned(_));
        let halves: Vec<(NodeId, bool)> = home.attached.iter().map(|(node, half)| (*node, half.told)).collect();
        // A half that is gone sends nothing more, but may wait for the outcome of its offers. A half that has
        // asked to be admitted, without an answer yet, is not notified; but if a receiver is left for what it
        // has sent on credits, it is both admitted and notified.
        let (mut kept, mut over) = (SortedMap::new(), SortedMap::new());
        for (node, half) in std::mem::take(&mut home.attached) {
            let stays = !half.gone && (half.told || how == End::Retired);
            if stays { &mut kept } else { &mut over }.insert(node, half);
        }
        let mut charges: Vec<(NodeId, Charge)> = Vec::new();
        for (node, half) in kept.iter_mut() {
            charges.extend(half.charges.drain().map(|charge| (*node, charge)));
        }
        home.attached = kept;
        for (node, half) in over.iter_mut() {
            self.free_half(peers, *node, channel, half);
        }
        for (node, charge) in charges {
            self.give_back(peers, node, channel, charge);
        }
        for (node, _) in &halves {
            self.consider(peers, *node, channel);
        }
        for (node, told) in halves {
            match told {
                true if told_all => {}
                true => peers.tell(node, channel, FromHome::Ended(how.clone())),
                false if how == End::Retired => {}
                false => peers.say(node, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone()))),
            }
        }
        self.forget_home_if_over(peers, channel);
    }

    pub(super) fn forget_if_over(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId) {
        if let Some(home) = self.homes.get_mut(&channel) {
            if home.attached.get(&from).is_some_and(|attached| attached.gone && attached.open.is_empty())
                && let Some(mut half) = home.attached.remove(&from)
            {
                self.free_half(peers, from, channel, &mut half);
            }
            self.forget_home_if_over(peers, channel);
        }
    }

    pub(super) fn forget_home_if_over(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let over = |home: &Home| home.rare.ended.is_some() && home.attached.is_empty() && !home.phase.is_away();
        if self.homes.get(&channel).is_some_and(|home| over(home)) {
            self.remove_home(peers, channel);
        }
    }

    /// Handles a frame of a sending half.
    pub(crate) fn hear_sender(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: ToHome,
    ) -> Result<(), PeerMisbehaved> {
        if self.visitors.contains_key(&channel) && !matches!(said, ToHome::Take(_)) {
            return self.hear_old_home(peers, from, channel, said);
        }
        if self.hear_reply(peers, from, channel, &said) {
            return Ok(());
        }
        match said {
            ToHome::Take(transfer) => {
                self.hear_take(peers, from, channel, transfer);
                Ok(())
            }
            ToHome::State(_) => Err(PeerMisbehaved::StateUnasked),
            ToHome::Attach(theirs) => {
                self.attach_here(peers, from, channel, &theirs);
                Ok(())
            }
            ToHome::Value { head, total, first } => self.hear_value(peers, from, channel, head, total, first),
            said => {
                let Some(home) = self.homes.get_mut(&channel) else {
                    peers.hears_nothing(from);
                    return Ok(());
                };
                let over = home.rare.ended.is_some();
                let leaves = home.phase.has_said_so();
                let Some(attached) = home.attached.get_mut(&from) else {
                    peers.hears_nothing(from);
                    return Ok(());
                };
                match said {
                    ToHome::Quiet if !leaves => return Err(PeerMisbehaved::QuietUnasked),
                    ToHome::Quiet => self.hear_quiet(peers, channel),
                    ToHome::Drain => peers.tell(from, channel, FromHome::Drained),
                    ToHome::OfferChoice(..) if attached.gone => {
                        return Err(PeerMisbehaved::HalfGone);
                    }
                    ToHome::OfferChoice(ticket, _) if attached.open.contains_key(&ticket) => {
                        return Err(PeerMisbehaved::TicketInUse(ticket));
                    }
                    ToHome::OfferChoice(..) if attached.open.len() >= home.terms.window as usize => {
                        return Err(PeerMisbehaved::WindowFull { window: home.terms.window });
                    }
                    ToHome::OfferChoice(..) if over => {}
                    ToHome::OfferChoice(ticket, choice) => {
                        attached.open.insert(ticket, Standing::Tentative);
                        if !leaves {
                            peers.hears(channel, from, HomeHears::OfferedByChoice(ticket, choice));
                        }
                    }
                    // The half will offer it again at the new home, or not at all.
                    ToHome::Withdraw(_) | ToHome::Revoke(_) if leaves => {}
                    // A settled offer has been reported, or will be.
                    ToHome::Withdraw(ticket) if attached.open.contains_key(&ticket) => {
                        peers.hears(channel, from, HomeHears::Withdraw(ticket));
                    }
                    ToHome::Revoke(ticket) if attached.open.contains_key(&ticket) => {
                        peers.hears(channel, from, HomeHears::Revoke(ticket));
                    }
                    ToHome::Withdraw(_) | ToHome::Revoke(_) => {}
                    ToHome::Ended(how) => {
                        let mut freed = Vec::new();
                        if attached.gone {
                            return Err(PeerMisbehaved::HalfGone);
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
                            // Held values have yet to be released.
                            Some(End::Poisoned(_)) => attached.open.is_empty(),
                            Some(End::Gone | End::Lost) => false,
                        };
                        if tells {
                            peers.hears(channel, from, HomeHears::Ended(how));
                        }
                        for charge in freed {
                            self.give_back(peers, from, channel, charge);
                        }
                        self.forget_if_over(peers, channel, from);
                        self.empty_if_quiet(peers, channel);
                    }
                    ToHome::Attach(_)
                    | ToHome::Value { .. }
                    | ToHome::Take(_)
                    | ToHome::State(_)
                    | ToHome::Reply(_)
                    | ToHome::ReplyComes => unreachable!("they were matched above"),
                }
                Ok(())
            }
        }
    }

    fn attach_here(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, theirs: &Declaration) {
        // Counted only if the limit can be reached: each attachment would examine all homes.
        let attached = || self.homes.iter().filter(|(_, home)| home.attached.contains_key(&from)).count();
        let room = self.homes.len() <= peers.config().attached_max || attached() < peers.config().attached_max;
        let giver = peers.contact(from);
        let rejection = match self.homes.get_mut(&channel) {
            None => Some(Rejection::NoSuchChannel),
            Some(home) if home.rare.ended.is_some() || home.rare.awaits.is_some_and(|node| node != from) => {
                Some(Rejection::NoSuchChannel)
            }
            Some(home) if !peers.fit(from, &home.declaration, theirs) => {
                Some(Rejection::Mismatch(Declaration::clone(&home.declaration)))
            }
            Some(home) if home.attached.contains_key(&from) || (!home.many && !home.attached.is_empty()) => {
                Some(Rejection::Occupied)
            }
            Some(_) if !room => Some(Rejection::Full),
            Some(home) => {
                let paid = match self.guests.get(&channel) {
                    Some((guest, _)) if *guest == giver => self.guests.remove(&channel).map(|(_, place)| place),
                    _ => None,
                };
                match paid.or_else(|| peers.attach(from)) {
                    Some(place) => {
                        home.attached.insert(from, Attached { place, ..Attached::new(home.terms.credits) });
                        None
                    }
                    None => Some(Rejection::Full),
                }
            }
        };
        if rejection == Some(Rejection::Full) {
            peers.act(Action::Declined(from, Declined::Half(channel)));
        }
        match rejection {
            Some(why) => peers.tell(from, channel, FromHome::Rejected(why)),
            None => {
                let Some(terms) = self.granted_at(channel) else { return };
                peers.tell(from, channel, FromHome::Attached(terms));
                peers.hears(channel, from, HomeHears::Attached);
            }
        }
    }

    /// A value begins: decides whether it is kept, and what it costs.
    fn hear_value(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        head: Head,
        total: u64,
        first: Bytes,
    ) -> Result<(), PeerMisbehaved> {
        let (mut wanted, mut kept, mut stands) = (false, true, true);
        if let Some(home) = self.homes.get_mut(&channel)
            && let Some(attached) = home.attached.get_mut(&from)
        {
            check_value(home.terms, attached, head)?;
            stands = head.kind() != Kind::Offer || may_stand(attached.charges.ahead(), total);
            if head == Head::Sent {
                attached.credits -= 1;
            }
            // Its sender considers it arrived, and the ends in it gone.
            wanted = home.rare.ended.is_none() || (head == Head::Sent && !planted!(LateValueUntold));
            kept = matches!(home.rare.ended, None | Some(End::Retired)) && !home.phase.has_said_so();
            if total > home.terms.value_max {
                match head {
                    Head::Offer(ticket) | Head::Unread(ticket) => {
                        let max = home.terms.value_max;
                        peers.tell(from, channel, FromHome::Failed(ticket, Failure::TooLarge { max }));
                    }
                    // Its sender knew the terms.
                    Head::Grant(..) | Head::GrantUnread(..) | Head::Sent => {
                        let bytes_max = home.terms.value_max;
                        return Err(PeerMisbehaved::ValueTooLarge { bytes: total, bytes_max });
                    }
                }
                wanted = false;
            }
            if wanted && first.len() as u64 == total {
                // The common case: the channel is not searched for again.
                let charge = peers.charge(from, channel, total, kept, stands)?;
                if charge.way == Way::Credit && !planted!(AckOnArrival) {
                    let unneeded = home.hear_whole(peers, from, channel, Whole { head, bytes: first, charge });
                    self.give_back(peers, from, channel, unneeded);
                    return Ok(());
                }
                return self.value_begins(peers, from, channel, Begun { head, total, wanted, charge }, first);
            }
        }
        let charge = peers.charge(from, channel, total, wanted && kept, stands)?;
        self.value_begins(peers, from, channel, Begun { head, total, wanted, charge }, first)
    }

    fn value_begins(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        value: Begun,
        first: Bytes,
    ) -> Result<(), PeerMisbehaved> {
        match peers.begin_value(from, channel, value, first) {
            Arrived::Whole(value) => self.value_is_whole(peers, from, channel, value),
            Arrived::Unwanted(charge) => self.give_back(peers, from, channel, charge),
            Arrived::NotYet | Arrived::Wrong => {}
        }
        Ok(())
    }

    /// Handles a piece of a value, which may complete it.
    pub(crate) fn piece_arrived(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        arrived: Arrived,
    ) -> Result<(), PeerMisbehaved> {
        match arrived {
            Arrived::NotYet => Ok(()),
            Arrived::Unwanted(charge) => {
                self.give_back(peers, from, channel, charge);
                Ok(())
            }
            Arrived::Whole(value) if self.visitors.contains_key(&channel) => {
                self.buffered_value(peers, channel, from, value);
                Ok(())
            }
            Arrived::Whole(value) => {
                self.value_is_whole(peers, from, channel, value);
                Ok(())
            }
            Arrived::Wrong => Err(PeerMisbehaved::StrayPiece),
        }
    }

    fn value_is_whole(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, value: Whole) {
        let (head, charge) = (value.head, value.charge);
        let home = self.homes.get_mut(&channel);
        let unneeded = home.map_or(charge, |home| home.hear_whole(peers, from, channel, value));
        self.give_back(peers, from, channel, unneeded);
        if planted!(AckOnArrival)
            && let Head::Offer(ticket) = head
        {
            self.taken(peers, channel, from, ticket);
        }
    }

    /// A planted bug: a connection has resumed, and its credits are granted once more.
    #[cfg(feature = "planted")]
    pub(crate) fn grant_again(&mut self, peers: &mut impl Peers, node: NodeId) {
        let channels: Vec<ChannelId> = self.homes.iter().map(|(channel, _)| *channel).collect();
        for channel in channels {
            let Some(home) = self.homes.get(&channel) else { continue };
            let credits = home.attached.get(&node).map_or(0, |attached| attached.credits);
            self.credit(peers, channel, node, credits as u32);
        }
    }

    /// A node is lost, and with it its open offers.
    pub(crate) fn settle_homes(&mut self, peers: &mut impl Peers, node: NodeId) {
        for channel in self.homes.of(node) {
            let Some(home) = self.homes.get_mut(&channel).filter(|home| home.is_of(node)) else { continue };
            let attached = home.attached.remove(&node);
            home.phase.ended_by_sender(&End::Lost);
            // A receiver that has retired or poisoned the channel may wait for values on their way, or to go
            // into a message.
            let over = matches!(home.rare.ended, Some(End::Gone | End::Lost))
                || (planted!(RetiredUntold) && home.rare.ended == Some(End::Retired));
            if !over && !planted!(DeadOffers) {
                let stood = attached.map_or_else(Vec::new, |attached| attached.open.into_keys().collect());
                peers.hears(channel, node, HomeHears::Lost(stood));
            }
            self.forget_home_if_over(peers, channel);
            self.empty_if_quiet(peers, channel);
        }
    }
}

impl Home {
    /// Handles a whole value of that node. Returns the charge for it, if the value is not kept.
    fn hear_whole(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, value: Whole) -> Charge {
        let Whole { head, bytes: value, charge } = value;
        let has_ended = self.rare.ended.is_some();
        let attached = self.attached.get_mut(&from).filter(|_| !has_ended || head == Head::Sent);
        let Some(attached) = attached else { return charge };
        if self.phase.has_said_so() {
            // Open offers are made again at the new home, and sent values go there.
            match head {
                Head::Offer(ticket) | Head::Unread(ticket) => attached.open.insert(ticket, Standing::Firm),
                Head::Grant(..) | Head::GrantUnread(..) => {}
                Head::Sent => peers.hears(channel, from, HomeHears::Sent(value)),
            }
            return charge;
        }
        match head {
            Head::Offer(ticket) => {
                attached.offered(ticket, head, charge);
                peers.hears(channel, from, HomeHears::Offered(ticket, value));
            }
            Head::Unread(ticket) => {
                attached.offered(ticket, head, charge);
                peers.hears(channel, from, HomeHears::OfferedUnread(ticket, value));
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
                    peers.hears(channel, from, heard);
                }
                // The reservation has been aborted meanwhile: return the value.
                Some(_) => {
                    peers.tell(from, channel, FromHome::Abort(ticket, request));
                    return charge;
                }
                None => return charge,
            },
            Head::Sent if has_ended => {
                // Its driver drops such values.
                peers.hears(channel, from, HomeHears::Sent(value));
                return charge;
            }
            Head::Sent => {
                self.buffered.add(peers.contact(from), charge);
                peers.hears(channel, from, HomeHears::Sent(value));
            }
        }
        Charge::NONE
    }
}
