//! A sending half: calls of its driver, and answers of the home.

use bytes::Bytes;

use super::travel::state::{Whereabouts, place_in_line};
use super::{Channels, Peers, Proxy, ProxyHears, Standing, Waiting};
use crate::account::cost;
use crate::connection::outbox::Recalled;
use crate::id::{ChannelId, ChoiceId, Contact, NodeId, Request, Ticket};
use crate::machine::Action;
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::codec::WireError;
use crate::wire::{Declaration, End, Failure, Frame, FromHome, Head, Read, Terms, ToHome};

impl Channels {
    pub(crate) fn attach(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        home: NodeId,
        declaration: Declaration,
    ) -> Result<(), WireError> {
        declaration.check()?;
        self.proxies.insert(channel, Box::new(Proxy { unanswered: true, ..Proxy::new(home) }));
        self.say_to_home(peers, channel, ToHome::Attach(declaration));
        Ok(())
    }

    pub(crate) fn expect_values(&mut self, channel: ChannelId, bytes: u64) {
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            proxy.likely = cost(bytes);
        }
    }

    pub(crate) fn has_half(&self, channel: ChannelId) -> bool {
        self.proxies.contains_key(&channel)
    }

    pub(crate) fn knows(&self, channel: ChannelId) -> bool {
        self.has_home(channel) || self.proxies.contains_key(&channel)
    }

    pub(crate) fn knows_any(&self, first: ChannelId, count: u128) -> bool {
        let last = ChannelId(first.0.wrapping_add(count - 1));
        let is_any = |from: ChannelId, to: ChannelId| {
            self.proxies.has_any(from..=to) || self.homes.has_any(from..=to) || self.visitors.has_any(from..=to)
        };
        if first <= last {
            is_any(first, last)
        } else {
            is_any(first, ChannelId(u128::MAX)) || is_any(ChannelId(0), last)
        }
    }

    pub(crate) fn adopt(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        home: NodeId,
        terms: Option<Terms>,
    ) -> bool {
        // Frames of this node to itself may bring both halves here.
        if self.has_half(channel) || (!peers.is_me(home) && self.has_home(channel)) {
            return false;
        }
        let mut proxy = Proxy::new(home);
        proxy.terms = terms;
        proxy.early = terms.is_none();
        proxy.credits = terms.map_or(0, |terms| terms.credits.into());
        proxy.told = proxy.credits;
        self.proxies.insert(channel, Box::new(proxy));
        true
    }

    pub(crate) fn adopt_given(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        giver: Contact,
        terms: Option<Terms>,
    ) -> bool {
        let Some(paid_by) = peers.pay_for_end(channel, giver) else {
            peers.answer_unless_over(giver, Frame::ToHome(channel, ToHome::Ended(End::Lost)));
            return false;
        };
        let is_adopted = self.adopt(peers, channel, giver.node, terms);
        match self.proxies.get_mut(&channel).filter(|_| is_adopted) {
            Some(proxy) => proxy.paid_by = paid_by,
            None => peers.free_end(paid_by),
        }
        is_adopted
    }

    pub(super) fn say_to_home(&mut self, peers: &mut impl Peers, channel: ChannelId, said: ToHome) {
        if let Some(proxy) = self.proxies.get(&channel) {
            let home = proxy.home;
            peers.say(home, Frame::ToHome(channel, said));
        }
    }

    pub(crate) fn offer(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket, value: Bytes) {
        self.offer_as(peers, channel, ticket, Waiting::Value(value));
    }

    pub(crate) fn offer_unread(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket, place: Bytes) {
        self.offer_as(peers, channel, ticket, Waiting::Unread(place));
    }

    /// Handles a request to read a value of this node. The half that sends it exists from now on, not only
    /// when the driver handles the event: the node's next frame about the channel, that it no longer needs
    /// the value, may have arrived with this one.
    pub(crate) fn hear_read(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, read: Read) {
        let terms = Terms { window: 1, credits: 0, value_max: read.value_max };
        // An honest node never gives two channels one number.
        if self.adopt_given(peers, channel, peers.contact(from), Some(terms)) {
            peers.act(Action::Read(from, channel, read));
        }
    }

    pub(crate) fn offer_again(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket, value: Bytes) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.again.remove(&place_in_line(ticket)) {
            proxy.wait_in_place(ticket, Waiting::Value(value));
            self.offer_waiting(peers, channel);
        }
    }

    pub(crate) fn offer_choice(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        ticket: Ticket,
        choice: ChoiceId,
    ) {
        self.offer_as(peers, channel, ticket, Waiting::Choice(choice));
    }

    fn offer_as(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket, what: Waiting) {
        match self.proxies.get_mut(&channel) {
            Some(proxy) if !proxy.retired && proxy.way.over.is_none() => {
                proxy.backlog.push_back((ticket, what));
                if proxy.way.state == Whereabouts::Known {
                    return proxy.offer_waiting(peers, channel);
                }
            }
            _ => peers.proxy_hears(channel, ProxyHears::Failed(ticket, Failure::Closed)),
        }
        self.use_sender(peers, channel);
        self.offer_waiting(peers, channel);
    }

    pub(super) fn offer_waiting(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            proxy.offer_waiting(peers, channel);
        }
    }

    pub(crate) fn grant(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        ticket: Ticket,
        request: Request,
        value: Bytes,
    ) -> bool {
        self.grant_as(peers, channel, Head::Grant(ticket, request), value)
    }

    pub(crate) fn grant_unread(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        ticket: Ticket,
        request: Request,
        place: Bytes,
    ) -> bool {
        self.grant_as(peers, channel, Head::GrantUnread(ticket, request), place)
    }

    fn grant_as(&mut self, peers: &mut impl Peers, channel: ChannelId, head: Head, value: Bytes) -> bool {
        let (Head::Grant(ticket, request) | Head::GrantUnread(ticket, request)) = head else { return false };
        let Some(proxy) = self.proxies.get_mut(&channel) else { return false };
        if let Some(standing) = proxy.open.get_mut(&ticket)
            && *standing == Standing::Asked(request)
        {
            if proxy.terms.is_some_and(|terms| value.len() as u64 > terms.value_max) {
                self.say_to_home(peers, channel, ToHome::Withdraw(ticket));
                return true;
            }
            *standing = Standing::Reserved(request, None);
            let total = value.len() as u64;
            self.say_to_home(peers, channel, ToHome::Value { head, total, first: value });
            return true;
        }
        false
    }

    pub(crate) fn speaks_to_home(&self, channel: ChannelId) -> bool {
        self.proxies.get(&channel).is_some_and(|proxy| proxy.may_speak())
    }

    pub(crate) fn send_on_credit(&mut self, peers: &mut impl Peers, channel: ChannelId, value: Bytes) -> bool {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return false };
        if proxy.credits == 0 || proxy.gone || proxy.is_too_large(&value) {
            return false;
        }
        let total = value.len() as u64;
        proxy.spends(cost(total));
        let are_held_back = proxy.told < proxy.credits;
        if !proxy.may_speak() {
            // The previous home has a place for it, and so will the next.
            proxy.backlog.push_back((Ticket::MAX, Waiting::Sent(value)));
            return true;
        }
        proxy.way.undrained = true;
        self.say_to_home(peers, channel, ToHome::Value { head: Head::Sent, total, first: value });
        if are_held_back {
            self.tell_credits(peers, channel);
        }
        true
    }

    /// Announces further credits to the driver, as far as more may be queued for the home.
    pub(crate) fn tell_credits(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let more = self.more_credits(peers, channel, false);
        if more > 0 {
            peers.proxy_hears(channel, ProxyHears::Credit(more));
        }
    }

    /// How many credits to announce to the driver. A half whose driver learns only now whether there are any
    /// gets at least one.
    pub(super) fn more_credits(&mut self, peers: &mut impl Peers, channel: ChannelId, is_first: bool) -> u32 {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return 0 };
        let home = proxy.home;
        if proxy.told >= proxy.credits || !proxy.may_speak() {
            return 0;
        }
        if home == peers.here() {
            // Frames of this node to itself need not wait.
            let more = u32::try_from(proxy.credits - proxy.told).unwrap_or(u32::MAX);
            proxy.told += u64::from(more);
            return more;
        }
        let more = proxy.tells_credits(peers.room_for(home, channel).max(is_first.into()));
        if proxy.told == 0 {
            peers.is_short(home, channel);
        }
        more
    }

    pub(crate) fn withdraw(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let again = proxy.way.again.remove(&place_in_line(ticket));
        let waiting = proxy.backlog.iter().position(|(t, _)| *t == ticket);
        if again || waiting.is_some() {
            waiting.map(|at| proxy.backlog.remove(at));
            peers.proxy_hears(channel, ProxyHears::Withdrawn(ticket));
            self.offer_waiting(peers, channel);
            return self.forget_proxy_if_over(peers, channel);
        }
        let Some(standing) = proxy.open.get(&ticket).copied() else { return };
        proxy.way.withdrawing.insert(ticket);
        let home = proxy.home;
        let firm_or_tentative = matches!(standing, Standing::Firm | Standing::Tentative);
        self.recall_grant(peers, channel, ticket);
        let recalled = firm_or_tentative.then(|| peers.recall(home, channel, ticket));
        if recalled == Some(Recalled::Unsent) || (recalled.is_some() && planted!(WithdrawnUnasked)) {
            self.settled(peers, channel, ticket);
            peers.proxy_hears(channel, ProxyHears::Withdrawn(ticket));
            return self.forget_proxy_if_over(peers, channel);
        }
        self.say_to_home(peers, channel, ToHome::Withdraw(ticket));
    }

    pub(crate) fn revoke(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket) {
        // A grant that has not been sent stays until the home aborts it. Otherwise the abort of a later
        // request would be mistaken for that of the granted one.
        self.say_to_home(peers, channel, ToHome::Revoke(ticket));
        if planted!(OwnersClock)
            && let Some(standing) = self.proxies.get_mut(&channel).and_then(|proxy| proxy.open.get_mut(&ticket))
        {
            *standing = Standing::Tentative;
            peers.proxy_hears(channel, ProxyHears::Abort(ticket));
        }
    }

    /// Recalls a granted value that may wait for room at the home, so that the withdrawal does not wait
    /// behind it.
    fn recall_grant(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let Some(Standing::Reserved(request, next)) = proxy.open.get(&ticket).copied() else { return };
        let home = proxy.home;
        if peers.recall_grant(home, channel, ticket) == Recalled::Unsent
            && let Some(proxy) = self.proxies.get_mut(&channel)
        {
            proxy.open.insert(ticket, Standing::Asked(next.unwrap_or(request)));
        }
    }

    pub(crate) fn end_proxy(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.gone {
            return;
        }
        let is_gone = matches!(how, End::Gone | End::Lost);
        if proxy.way.state == Whereabouts::Resting {
            if is_gone {
                return self.lapse_sender(peers, channel, how);
            }
            self.use_sender(peers, channel);
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        proxy.spent |= how == End::Retired;
        if is_gone {
            proxy.gone = true;
            proxy.way.heir_lost |= how == End::Lost;
            self.offer_waiting(peers, channel);
            self.forget_proxy_if_over(peers, channel);
        } else if proxy.may_speak() && !proxy.early {
            proxy.say_ended(peers, channel, how);
        } else {
            proxy.way.end_late(how);
        }
    }

    /// `false`: no such offer is open.
    fn settled(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket) -> bool {
        self.proxies.get_mut(&channel).is_some_and(|proxy| proxy.settled(peers, channel, ticket))
    }

    pub(super) fn forget_proxy_if_over(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get(&channel).filter(|proxy| proxy.is_over()) {
            let how = if proxy.way.heir_lost { End::Lost } else { End::Gone };
            self.end_way(peers, channel, how);
        }
    }

    /// Handles a frame of the home.
    pub(crate) fn hear_home(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: FromHome,
    ) -> Result<(), PeerMisbehaved> {
        if self.hear_caller(peers, from, channel, &said)? {
            return Ok(());
        }
        // The home may still send to a half that is gone here: the two have crossed.
        let Some(proxy) = self.proxies.get_mut(&channel) else {
            self.hear_home_of_none(peers, from, channel, &said);
            return Ok(());
        };
        if said.is_about_place() {
            return self.hear_travelling_home(peers, from, channel, said);
        }
        if proxy.home != from {
            // The home of its first stay may still send to a half that has come back.
            let first = proxy.way.transfer == 0;
            return if first { Err(PeerMisbehaved::NotTheHome) } else { Ok(()) };
        }
        if proxy.way.state != Whereabouts::Known {
            return Ok(());
        }
        // The home answers an attachment before all else: this frame was for an earlier one.
        if proxy.unanswered && !matches!(said, FromHome::Attached(_) | FromHome::Rejected(_)) {
            return Ok(());
        }
        let may_be_over = proxy.gone || matches!(said, FromHome::Ended(_));
        let heard = match said {
            FromHome::Attached(terms) => {
                (proxy.unanswered, proxy.early) = (false, false);
                if proxy.terms.replace(terms).is_some() {
                    return Err(PeerMisbehaved::TermsTwice);
                }
                proxy.credits += u64::from(terms.credits);
                proxy.offer_waiting(peers, channel);
                ProxyHears::Attached(Terms { credits: self.more_credits(peers, channel, true), ..terms })
            }
            FromHome::Rejected(why) => {
                self.remove_proxy(peers, channel);
                ProxyHears::Rejected(why)
            }
            FromHome::Taken(ticket) => {
                if !proxy.settled(peers, channel, ticket) {
                    return Err(PeerMisbehaved::NotOffered(ticket));
                }
                ProxyHears::Taken(ticket, peers.contact(from))
            }
            FromHome::Held(ticket) => match proxy.open.get_mut(&ticket) {
                Some(standing) if *standing != Standing::Held => {
                    *standing = Standing::Held;
                    ProxyHears::Held(ticket, peers.contact(from))
                }
                _ => return Err(PeerMisbehaved::CannotHold(ticket)),
            },
            FromHome::Released(ticket) => {
                if proxy.open.get(&ticket) != Some(&Standing::Held) {
                    return Err(PeerMisbehaved::NotHeld(ticket));
                }
                proxy.settled(peers, channel, ticket);
                ProxyHears::Released(ticket)
            }
            FromHome::Failed(ticket, why) => {
                // It may have crossed a cut, which has already settled the offer here.
                if !proxy.settled(peers, channel, ticket) {
                    return Ok(());
                }
                ProxyHears::Failed(ticket, why)
            }
            FromHome::Withdrawn(ticket) => {
                if !proxy.settled(peers, channel, ticket) {
                    return Err(PeerMisbehaved::NotOffered(ticket));
                }
                ProxyHears::Withdrawn(ticket)
            }
            FromHome::Reserve(ticket, request) => match proxy.open.get_mut(&ticket) {
                Some(standing @ (Standing::Tentative | Standing::Asked(_))) => {
                    *standing = Standing::Asked(request);
                    ProxyHears::Reserve(ticket, request)
                }
                // The home has aborted the first request; that abort and the grant are both on their way.
                Some(Standing::Reserved(_, next)) => {
                    *next = Some(request);
                    ProxyHears::Reserve(ticket, request)
                }
                _ => return Err(PeerMisbehaved::NotAChoice(ticket)),
            },
            FromHome::Abort(ticket, request) => match proxy.open.get_mut(&ticket) {
                Some(standing @ Standing::Asked(_)) if *standing == Standing::Asked(request) => {
                    *standing = Standing::Tentative;
                    ProxyHears::Abort(ticket)
                }
                Some(standing @ Standing::Reserved(..)) => {
                    let Standing::Reserved(granted, next) = *standing else { return Ok(()) };
                    if granted != request {
                        return Ok(());
                    }
                    *standing = next.map_or(Standing::Tentative, Standing::Asked);
                    // It may still wait for room.
                    peers.recall_grant(from, channel, ticket);
                    ProxyHears::Abort(ticket)
                }
                // It answers a grant that crossed an earlier abort.
                _ => return Ok(()),
            },
            FromHome::Onward(ticket) => match proxy.open.get(&ticket) {
                Some(Standing::Firm) => {
                    let (asked_back, gone) = (proxy.way.withdrawing.contains(&ticket), proxy.gone);
                    proxy.settled(peers, channel, ticket);
                    match (asked_back, gone) {
                        (true, _) => ProxyHears::Withdrawn(ticket),
                        // The two have crossed, and a half offers nothing after it has reported itself gone.
                        (false, true) => ProxyHears::Failed(ticket, Failure::Closed),
                        (false, false) => ProxyHears::Onward(ticket),
                    }
                }
                Some(Standing::Held) => return Err(PeerMisbehaved::OnwardHeld(ticket)),
                Some(_) => ProxyHears::Onward(ticket),
                None => return Ok(()),
            },
            FromHome::Unread(size) => ProxyHears::Unread(size),
            FromHome::Credit(count) => {
                proxy.credits += u64::from(count);
                match self.more_credits(peers, channel, false) {
                    0 => return Ok(()),
                    more => ProxyHears::Credit(more),
                }
            }
            FromHome::Ended(how) => {
                // A held value has been received; its release is still to come.
                proxy.open.retain(|_, standing| *standing == Standing::Held);
                proxy.backlog.retain(|(_, what)| matches!(what, Waiting::Sent(_)) && how == End::Retired);
                proxy.way.again.clear();
                proxy.retired = true;
                // The home must know that nothing more is on its way. After a retirement the driver reports
                // that, after its last values.
                proxy.gone |= how != End::Retired || proxy.way.is_away();
                if proxy.way.is_away() {
                    proxy.way.over = Some(how.clone());
                }
                proxy.offer_waiting(peers, channel);
                ProxyHears::Ended(how)
            }
            FromHome::HomeIs { .. }
            | FromHome::NotHome(_)
            | FromHome::Fenced(_)
            | FromHome::Moving { .. }
            | FromHome::Superseded(_)
            | FromHome::Drained => unreachable!("they were heard above"),
        };
        peers.proxy_hears(channel, heard);
        if may_be_over {
            self.forget_proxy_if_over(peers, channel);
        }
        Ok(())
    }

    /// A node is lost, and with it all halves that need it.
    pub(crate) fn settle_proxies(&mut self, peers: &mut impl Peers, node: NodeId) {
        let mut lost = self.proxies.of(node);
        lost.retain(|channel| self.proxies.get(channel).is_some_and(|proxy| proxy.needs(node)));
        for channel in lost.into_iter().take(if planted!(WakeOne) { 1 } else { usize::MAX }) {
            self.lose_proxy(peers, channel);
        }
    }

    /// The home of this half, or the path to it, is lost. An offer that was not sent has not been taken; the
    /// outcome of any other is unknown.
    pub(crate) fn lose_proxy(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let node = proxy.home;
        let open = std::mem::take(&mut proxy.open);
        let (mut unknown, mut not_taken, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        not_taken.extend(std::mem::take(&mut proxy.way.again).into_iter().map(place_in_line));
        let backlog = std::mem::take(&mut proxy.backlog);
        not_taken
            .extend(backlog.iter().filter(|(_, what)| !matches!(what, Waiting::Sent(_))).map(|(ticket, _)| *ticket));
        for (ticket, standing) in open {
            let unsent = || peers.is_unsent(node, channel, ticket);
            match standing {
                Standing::Tentative | Standing::Asked(_) => not_taken.push(ticket),
                Standing::Firm if unsent() => not_taken.push(ticket),
                Standing::Firm | Standing::Reserved(..) if planted!(UnknownAsNotTaken) => not_taken.push(ticket),
                Standing::Firm | Standing::Reserved(..) => unknown.push(ticket),
                Standing::Held => taken.push(ticket),
            }
        }
        peers.proxy_hears(channel, ProxyHears::Lost { unknown, not_taken, taken });
        self.end_way(peers, channel, End::Lost);
    }

    /// The connection to a node is over: settles everything that involves it.
    pub(crate) fn settle(&mut self, peers: &mut impl Peers, node: NodeId) {
        self.settle_proxies(peers, node);
        self.settle_homes(peers, node);
        self.settle_travel(peers, node);
        self.settle_replies(peers, node);
    }
}

impl Proxy {
    /// Sends the waiting offers for which the home has room. After the last, notifies the home if the half is
    /// gone.
    fn offer_waiting(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let home = self.home;
        while self.may_speak()
            && self.has_room(home == peers.here())
            && let Some((ticket, what)) = self.backlog.pop_front()
        {
            let said = match what {
                Waiting::Value(value) | Waiting::Unread(value) if self.is_too_large(&value) => {
                    let max = self.terms.map_or(0, |terms| terms.value_max);
                    peers.proxy_hears(channel, ProxyHears::Failed(ticket, Failure::TooLarge { max }));
                    continue;
                }
                Waiting::Value(value) => {
                    self.stands(ticket, value.len() as u64);
                    ToHome::Value { head: Head::Offer(ticket), total: value.len() as u64, first: value }
                }
                Waiting::Unread(place) => {
                    self.stands(ticket, place.len() as u64);
                    ToHome::Value { head: Head::Unread(ticket), total: place.len() as u64, first: place }
                }
                Waiting::Choice(choice) => {
                    self.open.insert(ticket, Standing::Tentative);
                    self.way.choices.insert(ticket, choice);
                    ToHome::OfferChoice(ticket, choice)
                }
                Waiting::Sent(value) => {
                    self.way.undrained = true;
                    ToHome::Value { head: Head::Sent, total: value.len() as u64, first: value }
                }
            };
            peers.say(home, Frame::ToHome(channel, said));
        }
        if !self.may_speak() || self.early || !(self.backlog.is_empty() || planted!(GoneFirst)) {
            return;
        }
        for how in std::mem::take(&mut self.way.late_ends) {
            self.say_ended(peers, channel, how);
        }
        if self.gone && !self.gone_said {
            self.gone_said = true;
            let how = if self.way.heir_lost { End::Lost } else { End::Gone };
            peers.say(home, Frame::ToHome(channel, ToHome::Ended(how)));
        }
    }

    /// The sending half has retired or poisoned the channel, and may travel on. Its next place does not know
    /// that, so the home must be notified first.
    fn say_ended(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        self.way.undrained = true;
        peers.say(self.home, Frame::ToHome(channel, ToHome::Ended(how)));
    }

    /// `false`: no such offer is open.
    fn settled(&mut self, peers: &mut impl Peers, channel: ChannelId, ticket: Ticket) -> bool {
        self.way.withdrawing.remove(&ticket);
        self.way.choices.remove(&ticket);
        let stood = self.open.remove(&ticket).is_some();
        self.offer_waiting(peers, channel);
        stood
    }
}
