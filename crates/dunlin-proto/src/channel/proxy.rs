//! A sending half: what its driver says, and what the home answers.

use bytes::Bytes;

use super::travel::state::{Whereabouts, place_in_line};
use super::{Proxy, ProxyHears, Standing, Waiting};
use crate::account::cost;
use crate::connection::outbox::Recalled;
use crate::id::{ChannelId, ChoiceId, Contact, NodeId, Request, Ticket};
use crate::machine::{Action, Machine};
use crate::planted::planted;
use crate::time::Time;
use crate::wire::codec::WireError;
use crate::wire::{Declaration, End, Failure, Frame, FromHome, Head, Read, Terms, ToHome};

impl Machine {
    /// The sender of this channel is here, its home at that node. Offers may follow at once. The half before it has to be over
    /// ([`has_half`](Self::has_half)): what is still open on it would be forgotten.
    ///
    /// # Errors
    /// The declaration is too long to be sent; there is no sender here then.
    pub fn attach(
        &mut self,
        now: Time,
        channel: ChannelId,
        home: NodeId,
        declaration: Declaration,
    ) -> Result<(), WireError> {
        declaration.check()?;
        self.proxies.insert(channel, Box::new(Proxy { unanswered: true, ..Proxy::new(home) }));
        self.say_to_home(now, channel, ToHome::Attach(declaration));
        Ok(())
    }

    /// Values of this sender that are sent on credits are likely to have so many bytes. To be said before the first is sent: until then they are taken for large
    /// ones, and the driver is told of few credits.
    pub fn expect_values(&mut self, channel: ChannelId, bytes: u64) {
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            proxy.likely = cost(bytes);
        }
    }

    /// Whether there is a sending half of this channel here, or what is open on one that is gone.
    pub fn has_half(&self, channel: ChannelId) -> bool {
        self.proxies.contains_key(&channel)
    }

    /// Whether anything of this channel is here, its home or a half.
    pub fn knows(&self, channel: ChannelId) -> bool {
        self.has_home(channel) || self.proxies.contains_key(&channel)
    }

    /// Whether it [knows](Self::knows) any of so many channels, one at least, that are numbered from this one. That
    /// costs the same however many they are.
    pub fn knows_any(&self, first: ChannelId, count: u128) -> bool {
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

    /// The sender of this channel is here since a message from its home brought it. `terms`: if both sides know them without a word;
    /// else the home tells them. The home says [`Machine::open_home_to`].
    ///
    /// `false`: that channel is here already. The number came from elsewhere, and must not take another's place.
    #[must_use = "`false`: nothing is here for what was adopted"]
    pub fn adopt(&mut self, channel: ChannelId, home: NodeId, terms: Option<Terms>) -> bool {
        // What this node says to itself may bring both halves here.
        if self.has_half(channel) || (!self.is_me(home) && self.has_home(channel)) {
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

    /// The same, of a sender that has come in a message from that node: its source pays for it until it is
    /// over here.
    ///
    /// `false`: that channel is here already; or there is no room for it, and its home hears that it is lost.
    #[must_use = "`false`: nothing is here for what was adopted"]
    pub fn adopt_given(&mut self, now: Time, channel: ChannelId, giver: Contact, terms: Option<Terms>) -> bool {
        let Some(paid_by) = self.pay_for_end(channel, giver) else {
            self.answer_unless_over(now, giver, Frame::ToHome(channel, ToHome::Ended(End::Lost)));
            return false;
        };
        let is_adopted = self.adopt(channel, giver.node, terms);
        match self.proxies.get_mut(&channel).filter(|_| is_adopted) {
            Some(proxy) => proxy.paid_by = paid_by,
            None => self.free_end(paid_by),
        }
        is_adopted
    }

    pub(super) fn say_to_home(&mut self, now: Time, channel: ChannelId, said: ToHome) {
        if let Some(proxy) = self.proxies.get(&channel) {
            let home = proxy.home;
            self.say(now, home, Frame::ToHome(channel, said));
        }
    }

    /// Offers a value. What becomes of it is heard under its number.
    pub fn offer(&mut self, now: Time, channel: ChannelId, ticket: Ticket, value: Bytes) {
        self.wait_for_room(channel, ticket, Waiting::Value(value));
        self.use_sender(now, channel);
        self.offer_waiting(now, channel);
    }

    /// Offers a value that stays here: `place` says where it can be [read](Self::read).
    pub fn offer_unread(&mut self, now: Time, channel: ChannelId, ticket: Ticket, place: Bytes) {
        self.wait_for_room(channel, ticket, Waiting::Unread(place));
        self.use_sender(now, channel);
        self.offer_waiting(now, channel);
    }

    /// Asks that node for the value under this key, to be sent over this channel, whose home is [open](Self::open_home_to) here for it.
    pub fn read(&mut self, now: Time, node: NodeId, channel: ChannelId, read: Read) {
        self.say(now, node, Frame::Read(channel, read));
    }

    /// A node reads a value of this one. The half that sends it is here from now on, and not when the driver has heard of it: what that node says next of the
    /// channel, that nobody wants the value any more, may have come with it.
    pub(crate) fn hear_read(&mut self, now: Time, from: NodeId, channel: ChannelId, read: Read) {
        let terms = Terms { window: 1, credits: 0, value_max: read.value_max };
        // No honest node gives two channels one number.
        if self.adopt_given(now, channel, self.contact(from), Some(terms)) {
            self.actions.push_back(Action::Read(from, channel, read));
        }
    }

    /// Offers a value again that the home before this one had ([`ProxyHears::Moved`]). Nothing happens if it has been asked back since: that is answered.
    pub fn offer_again(&mut self, now: Time, channel: ChannelId, ticket: Ticket, value: Bytes) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.again.remove(&place_in_line(ticket)) {
            proxy.wait_in_place(ticket, Waiting::Value(value));
            self.offer_waiting(now, channel);
        }
    }

    /// Offers what a choice would send; the value is asked for by [`ProxyHears::Reserve`].
    pub fn offer_choice(&mut self, now: Time, channel: ChannelId, ticket: Ticket, choice: ChoiceId) {
        self.wait_for_room(channel, ticket, Waiting::Choice(choice));
        self.use_sender(now, channel);
        self.offer_waiting(now, channel);
    }

    fn wait_for_room(&mut self, channel: ChannelId, ticket: Ticket, what: Waiting) {
        match self.proxies.get_mut(&channel) {
            Some(proxy) if !proxy.retired && proxy.way.over.is_none() => {
                proxy.backlog.push_back((ticket, what));
            }
            _ => self.proxy_hears(channel, ProxyHears::Failed(ticket, Failure::Closed)),
        }
    }

    pub(super) fn offer_waiting(&mut self, now: Time, channel: ChannelId) {
        let me = self.me.node;
        while let Some(proxy) = self.proxies.get_mut(&channel)
            && proxy.may_speak()
            && proxy.has_room(proxy.home == me)
            && let Some((ticket, what)) = proxy.backlog.pop_front()
        {
            let said = match what {
                Waiting::Value(value) | Waiting::Unread(value) if proxy.is_too_large(&value) => {
                    let max = proxy.terms.map_or(0, |terms| terms.value_max);
                    self.proxy_hears(channel, ProxyHears::Failed(ticket, Failure::TooLarge { max }));
                    continue;
                }
                Waiting::Value(value) => {
                    proxy.stands(ticket, value.len() as u64);
                    ToHome::Value { head: Head::Offer(ticket), total: value.len() as u64, first: value }
                }
                Waiting::Unread(place) => {
                    proxy.stands(ticket, place.len() as u64);
                    ToHome::Value { head: Head::Unread(ticket), total: place.len() as u64, first: place }
                }
                Waiting::Choice(choice) => {
                    proxy.open.insert(ticket, Standing::Tentative);
                    proxy.way.choices.insert(ticket, choice);
                    ToHome::OfferChoice(ticket, choice)
                }
                Waiting::Sent(value) => {
                    proxy.way.undrained = true;
                    ToHome::Value { head: Head::Sent, total: value.len() as u64, first: value }
                }
            };
            self.say_to_home(now, channel, said);
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if !proxy.may_speak() || proxy.early || !(proxy.backlog.is_empty() || planted!(GoneFirst)) {
            return;
        }
        for how in std::mem::take(&mut proxy.way.late_ends) {
            self.say_ended(now, channel, how);
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.gone && !proxy.gone_said {
            proxy.gone_said = true;
            let how = if proxy.way.heir_lost { End::Lost } else { End::Gone };
            self.say_to_home(now, channel, ToHome::Ended(how));
        }
    }

    /// Hands over what was [asked for](ProxyHears::Reserve). A value larger than the terms allow does not go: its offer is withdrawn.
    ///
    /// `false`: it is not asked for any more under this number, and nothing will be heard of it. Another request may have come behind
    /// this one, which the driver has yet to hear.
    pub fn grant(&mut self, now: Time, channel: ChannelId, ticket: Ticket, request: Request, value: Bytes) -> bool {
        self.grant_as(now, channel, Head::Grant(ticket, request), value)
    }

    /// The same, with the place where the value can be [read](Self::read).
    pub fn grant_unread(
        &mut self,
        now: Time,
        channel: ChannelId,
        ticket: Ticket,
        request: Request,
        place: Bytes,
    ) -> bool {
        self.grant_as(now, channel, Head::GrantUnread(ticket, request), place)
    }

    fn grant_as(&mut self, now: Time, channel: ChannelId, head: Head, value: Bytes) -> bool {
        let (Head::Grant(ticket, request) | Head::GrantUnread(ticket, request)) = head else { return false };
        let Some(proxy) = self.proxies.get_mut(&channel) else { return false };
        if let Some(standing) = proxy.open.get_mut(&ticket)
            && *standing == Standing::Asked(request)
        {
            if proxy.terms.is_some_and(|terms| value.len() as u64 > terms.value_max) {
                self.say_to_home(now, channel, ToHome::Withdraw(ticket));
                return true;
            }
            *standing = Standing::Reserved(request, None);
            let total = value.len() as u64;
            self.say_to_home(now, channel, ToHome::Value { head, total, first: value });
            return true;
        }
        false
    }

    /// Whether the home is known and can be spoken to. Until then what is [sent on credits](Self::send_on_credit) waits here, and is dropped if the channel ends: of a
    /// value with ends in it nobody would hear.
    pub fn speaks_to_home(&self, channel: ChannelId) -> bool {
        self.proxies.get(&channel).is_some_and(|proxy| proxy.may_speak())
    }

    /// Sends a value on a credit: nothing more will be heard of it. `false`: there is no credit, or no channel, or the value is larger than
    /// the terms allow; it has not been sent.
    pub fn send_on_credit(&mut self, now: Time, channel: ChannelId, value: Bytes) -> bool {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return false };
        if proxy.credits == 0 || proxy.gone || proxy.is_too_large(&value) {
            return false;
        }
        let total = value.len() as u64;
        proxy.spends(cost(total));
        let are_held_back = proxy.told < proxy.credits;
        if !proxy.may_speak() {
            // The home before this one has a place for it, and so will the next.
            proxy.backlog.push_back((Ticket::MAX, Waiting::Sent(value)));
            return true;
        }
        proxy.way.undrained = true;
        self.say_to_home(now, channel, ToHome::Value { head: Head::Sent, total, first: value });
        if are_held_back {
            self.tell_credits(channel);
        }
        true
    }

    /// Tells the driver of credits that it has not been told of, as far as more may be queued for the home.
    pub(crate) fn tell_credits(&mut self, channel: ChannelId) {
        let more = self.more_credits(channel, false);
        if more > 0 {
            self.proxy_hears(channel, ProxyHears::Credit(more));
        }
    }

    /// How many credits the driver is to be told of. A half of which it knows only then whether there are any hears of one at least.
    pub(super) fn more_credits(&mut self, channel: ChannelId, is_first: bool) -> u32 {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return 0 };
        let home = proxy.home;
        if proxy.told >= proxy.credits || !proxy.may_speak() {
            return 0;
        }
        if home == self.me.node {
            // What this node says to itself waits for nothing.
            let more = u32::try_from(proxy.credits - proxy.told).unwrap_or(u32::MAX);
            proxy.told += u64::from(more);
            return more;
        }
        let mut connection = self.connections.get_mut(home);
        let room = connection.as_ref().map_or(u64::MAX, |connection| connection.outbox.room_for(channel, &self.config));
        let more = proxy.tells_credits(room.max(is_first.into()));
        if proxy.told == 0
            && let Some(connection) = &mut connection
        {
            connection.outbox.is_short(channel, &self.config);
        }
        more
    }

    /// Asks an offer back: [`ProxyHears::Withdrawn`], or what became of it. If it has not been sent yet, that is known at once.
    pub fn withdraw(&mut self, now: Time, channel: ChannelId, ticket: Ticket) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let again = proxy.way.again.remove(&place_in_line(ticket));
        let waiting = proxy.backlog.iter().position(|(t, _)| *t == ticket);
        if again || waiting.is_some() {
            waiting.map(|at| proxy.backlog.remove(at));
            self.proxy_hears(channel, ProxyHears::Withdrawn(ticket));
            self.offer_waiting(now, channel);
            return self.forget_proxy_if_over(now, channel);
        }
        let Some(standing) = proxy.open.get(&ticket).copied() else { return };
        proxy.way.withdrawing.insert(ticket);
        let home = proxy.home;
        let firm_or_tentative = matches!(standing, Standing::Firm | Standing::Tentative);
        self.recall_grant(channel, ticket);
        let recalled = firm_or_tentative.then(|| self.recall(home, channel, ticket));
        if recalled == Some(Recalled::Unsent) || (recalled.is_some() && planted!(WithdrawnUnasked)) {
            self.settled(now, channel, ticket);
            self.proxy_hears(channel, ProxyHears::Withdrawn(ticket));
            return self.forget_proxy_if_over(now, channel);
        }
        self.say_to_home(now, channel, ToHome::Withdraw(ticket));
    }

    /// Asks for a reservation back.
    pub fn revoke(&mut self, now: Time, channel: ChannelId, ticket: Ticket) {
        // A grant that has not been sent stays until the home aborts it. Without it the abort of a later request would be taken for
        // that of the granted one.
        self.say_to_home(now, channel, ToHome::Revoke(ticket));
        if planted!(OwnersClock)
            && let Some(standing) = self.proxies.get_mut(&channel).and_then(|proxy| proxy.open.get_mut(&ticket))
        {
            *standing = Standing::Tentative;
            self.proxy_hears(channel, ProxyHears::Abort(ticket));
        }
    }

    /// A value that was granted may have to wait for room at the home. What takes it back does not wait behind it.
    fn recall_grant(&mut self, channel: ChannelId, ticket: Ticket) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let Some(Standing::Reserved(request, next)) = proxy.open.get(&ticket).copied() else { return };
        let home = proxy.home;
        if self.is_me(home) || self.connection(home).outbox.recall_grant(channel, ticket) == Recalled::Sent {
            return;
        }
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            proxy.open.insert(ticket, Standing::Asked(next.unwrap_or(request)));
        }
        if let Some(socket) = self.connection(home).socket() {
            self.act_write(socket);
        }
    }

    /// The sending half has ended the channel, or ([`End::Gone`], [`End::Lost`]) is gone; what it offered stays.
    pub fn end_proxy(&mut self, now: Time, channel: ChannelId, how: End) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.gone {
            return;
        }
        let is_gone = matches!(how, End::Gone | End::Lost);
        if proxy.way.state == Whereabouts::Resting {
            if is_gone {
                return self.lapse_sender(now, channel, how);
            }
            self.use_sender(now, channel);
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        proxy.spent |= how == End::Retired;
        if is_gone {
            proxy.gone = true;
            proxy.way.heir_lost |= how == End::Lost;
            self.offer_waiting(now, channel);
            self.forget_proxy_if_over(now, channel);
        } else if proxy.may_speak() && !proxy.early {
            self.say_ended(now, channel, how);
        } else {
            proxy.way.end_late(how);
        }
    }

    /// The sending half has retired or poisoned the channel, and may go on. Where it goes that is not known: so it has to be heard by the home before.
    fn say_ended(&mut self, now: Time, channel: ChannelId, how: End) {
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            proxy.way.undrained = true;
        }
        self.say_to_home(now, channel, ToHome::Ended(how));
    }

    pub(super) fn proxy_hears(&mut self, channel: ChannelId, heard: ProxyHears) {
        self.actions.push_back(Action::Proxy(channel, heard));
    }

    /// `false`: no such offer stands.
    fn settled(&mut self, now: Time, channel: ChannelId, ticket: Ticket) -> bool {
        let stood = self.proxies.get_mut(&channel).is_some_and(|proxy| {
            proxy.way.withdrawing.remove(&ticket);
            proxy.way.choices.remove(&ticket);
            proxy.open.remove(&ticket).is_some()
        });
        self.offer_waiting(now, channel);
        stood
    }

    pub(super) fn forget_proxy_if_over(&mut self, now: Time, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get(&channel).filter(|proxy| proxy.is_over()) {
            let how = if proxy.way.heir_lost { End::Lost } else { End::Gone };
            self.end_way(now, channel, how);
        }
    }

    /// What the home says.
    pub(crate) fn hear_home(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        said: FromHome,
    ) -> Result<(), &'static str> {
        // A half that is gone here may still be spoken to: the two have crossed.
        let said = match self.hear_travelling_home(now, from, channel, said)? {
            Some(said) => said,
            None => return Ok(()),
        };
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
        if proxy.home != from {
            // A half that has come back may still be spoken to by the home of its first stay.
            let first = proxy.way.transfer == 0;
            return if first { Err("an answer from a node that is not the channel's home") } else { Ok(()) };
        }
        if proxy.way.state != Whereabouts::Known {
            return Ok(());
        }
        // The home answers an attachment before all else: this was said to one before.
        if proxy.unanswered && !matches!(said, FromHome::Attached(_) | FromHome::Rejected(_)) {
            return Ok(());
        }
        let heard = match said {
            FromHome::Attached(terms) => {
                (proxy.unanswered, proxy.early) = (false, false);
                if proxy.terms.replace(terms).is_some() {
                    return Err("terms for a half that has some");
                }
                proxy.credits += u64::from(terms.credits);
                self.offer_waiting(now, channel);
                ProxyHears::Attached(Terms { credits: self.more_credits(channel, true), ..terms })
            }
            FromHome::Rejected(why) => {
                self.remove_proxy(channel);
                ProxyHears::Rejected(why)
            }
            FromHome::Taken(ticket) => {
                if !self.settled(now, channel, ticket) {
                    return Err("a value taken that was not offered");
                }
                ProxyHears::Taken(ticket, self.contact(from))
            }
            FromHome::Held(ticket) => match proxy.open.get_mut(&ticket) {
                Some(standing) if *standing != Standing::Held => {
                    *standing = Standing::Held;
                    ProxyHears::Held(ticket, self.contact(from))
                }
                _ => return Err("a value held that was not offered"),
            },
            FromHome::Released(ticket) => {
                if proxy.open.get(&ticket) != Some(&Standing::Held) {
                    return Err("a value released that was not held");
                }
                self.settled(now, channel, ticket);
                ProxyHears::Released(ticket)
            }
            FromHome::Failed(ticket, why) => {
                // It may have crossed a cut: then the offer has been settled here.
                if !self.settled(now, channel, ticket) {
                    return Ok(());
                }
                ProxyHears::Failed(ticket, why)
            }
            FromHome::Withdrawn(ticket) => {
                if !self.settled(now, channel, ticket) {
                    return Err("a withdrawal of what was not offered");
                }
                ProxyHears::Withdrawn(ticket)
            }
            FromHome::Reserve(ticket, request) => match proxy.open.get_mut(&ticket) {
                Some(standing @ (Standing::Tentative | Standing::Asked(_))) => {
                    *standing = Standing::Asked(request);
                    ProxyHears::Reserve(ticket, request)
                }
                // The home has given the first request up; that is on its way, and so is the grant.
                Some(Standing::Reserved(_, next)) => {
                    *next = Some(request);
                    ProxyHears::Reserve(ticket, request)
                }
                _ => return Err("a reservation of what no choice offers"),
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
                    if !self.is_me(from) {
                        self.connection(from).outbox.recall_grant(channel, ticket);
                    }
                    ProxyHears::Abort(ticket)
                }
                // The answer to a grant that had crossed an earlier abort.
                _ => return Ok(()),
            },
            FromHome::Onward(ticket) => match proxy.open.get(&ticket) {
                Some(Standing::Firm) => {
                    let (asked_back, gone) = (proxy.way.withdrawing.contains(&ticket), proxy.gone);
                    self.settled(now, channel, ticket);
                    match (asked_back, gone) {
                        (true, _) => ProxyHears::Withdrawn(ticket),
                        // The two have crossed, and nothing is offered behind the word that it is gone.
                        (false, true) => ProxyHears::Failed(ticket, Failure::Closed),
                        (false, false) => ProxyHears::Onward(ticket),
                    }
                }
                Some(Standing::Held) => return Err("a value that was received is to go on"),
                Some(_) => ProxyHears::Onward(ticket),
                None => return Ok(()),
            },
            FromHome::Unread(size) => ProxyHears::Unread(size),
            FromHome::Credit(count) => {
                proxy.credits += u64::from(count);
                match self.more_credits(channel, false) {
                    0 => return Ok(()),
                    more => ProxyHears::Credit(more),
                }
            }
            FromHome::Ended(how) => {
                // What is held has been received; its release is still to come.
                proxy.open.retain(|_, standing| *standing == Standing::Held);
                proxy.backlog.retain(|(_, what)| matches!(what, Waiting::Sent(_)) && how == End::Retired);
                proxy.way.again.clear();
                proxy.retired = true;
                // The home has to know that nothing more is on its way. After a retirement the driver says so, behind what it has yet to send.
                proxy.gone |= how != End::Retired || proxy.way.is_away();
                if proxy.way.is_away() {
                    proxy.way.over = Some(how.clone());
                }
                self.offer_waiting(now, channel);
                ProxyHears::Ended(how)
            }
            FromHome::HomeIs { .. }
            | FromHome::NotHome(_)
            | FromHome::Fenced(_)
            | FromHome::Moving { .. }
            | FromHome::Superseded(_)
            | FromHome::Drained => unreachable!("they were heard above"),
        };
        self.proxy_hears(channel, heard);
        self.forget_proxy_if_over(now, channel);
        Ok(())
    }

    /// A node is lost, and all halves that need it.
    pub(crate) fn settle_proxies(&mut self, now: Time, node: NodeId) {
        let mut lost = self.proxies.of(node);
        lost.retain(|channel| self.proxies.get(channel).is_some_and(|proxy| proxy.needs(node)));
        for channel in lost.into_iter().take(if planted!(WakeOne) { 1 } else { usize::MAX }) {
            self.lose_proxy(now, channel);
        }
    }

    /// The home of this half is lost, or the way to it: what was offered is not taken if it was not sent, else nobody can know.
    pub(crate) fn lose_proxy(&mut self, now: Time, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let node = proxy.home;
        let open = std::mem::take(&mut proxy.open);
        let (mut unknown, mut not_taken, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        not_taken.extend(std::mem::take(&mut proxy.way.again).into_iter().map(place_in_line));
        let backlog = std::mem::take(&mut proxy.backlog);
        not_taken
            .extend(backlog.iter().filter(|(_, what)| !matches!(what, Waiting::Sent(_))).map(|(ticket, _)| *ticket));
        for (ticket, standing) in open {
            let unsent = || self.connections.get(node).is_some_and(|c| c.outbox.is_unsent(channel, ticket));
            match standing {
                Standing::Tentative | Standing::Asked(_) => not_taken.push(ticket),
                Standing::Firm if unsent() => not_taken.push(ticket),
                Standing::Firm | Standing::Reserved(..) if planted!(UnknownAsNotTaken) => not_taken.push(ticket),
                Standing::Firm | Standing::Reserved(..) => unknown.push(ticket),
                Standing::Held => taken.push(ticket),
            }
        }
        self.proxy_hears(channel, ProxyHears::Lost { unknown, not_taken, taken });
        self.end_way(now, channel, End::Lost);
    }

    /// What has to do with a node is settled; the connection to it is over.
    pub(crate) fn settle(&mut self, now: Time, node: NodeId) {
        self.settle_proxies(now, node);
        self.settle_homes(node);
        self.settle_travel(now, node);
    }
}
