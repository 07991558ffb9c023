//! A sender that travels.

use super::declaration;
use super::state::{Arrival, Leaving, SenderPlace, Trip, Whereabouts, place_in_line, take_early};
use crate::channel::{Attached, Channels, Home, Peers, Proxy, ProxyHears, Standing, Waiting};
use crate::id::{ChannelId, Contact, NodeId};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::{End, Frame, FromHome, Terms, ToHome, Travel, Which};

impl Channels {
    pub(crate) fn pair(&mut self, peers: &mut impl Peers, channel: ChannelId, terms: Terms) {
        let me = peers.here();
        if self.knows(channel) {
            return;
        }
        let mut home = Home::new(terms, declaration(), false);
        home.attached.insert(me, Attached::new(terms.credits));
        self.homes.insert(channel, Box::new(home));
        let credits = terms.credits.into();
        let proxy = Proxy { terms: Some(terms), credits, told: credits, ..Proxy::new(me) };
        self.proxies.insert(channel, Box::new(proxy));
    }

    pub(crate) fn pack_sender(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Leaving<SenderPlace> {
        let me = peers.here();
        let trip = self.next_trip();
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Leaving::Over(End::Gone) };
        if let Some(how) = &proxy.way.over {
            return Leaving::Over(how.clone());
        }
        match proxy.way.state {
            Whereabouts::Resting => {
                proxy.way.packed = Some(trip);
                proxy.way.early = None;
                let (home, epoch, transfer) = (proxy.home, proxy.way.epoch, proxy.way.transfer);
                let (sponsor, sponsor_addresses) = proxy.way.sponsor.clone().unwrap_or((me, Vec::new()));
                let addresses = match &proxy.way.told {
                    Some((_, addresses)) => addresses.clone(),
                    None => peers.addresses_of_any(home),
                };
                let place = SenderPlace { trip, transfer, epoch, home, addresses, sponsor, sponsor_addresses };
                Leaving::Ready(place, trip)
            }
            Whereabouts::Known if proxy.way.draining => Leaving::Wait,
            Whereabouts::Known
                if proxy.may_speak()
                    && proxy.standing() == 0
                    && proxy.terms.is_some()
                    && !proxy.unanswered
                    && !proxy.gone =>
            {
                if proxy.way.undrained && !planted!(DrainSkipped) {
                    proxy.way.undrained = false;
                    proxy.way.draining = true;
                    self.say_to_home(peers, channel, ToHome::Drain);
                    return Leaving::Wait;
                }
                proxy.way.packed = Some(trip);
                proxy.way.early = None;
                let (home, epoch, transfer) = (proxy.home, proxy.way.epoch, proxy.way.transfer + 1);
                let (addresses, sponsor_addresses) = (peers.addresses_of_any(home), peers.addresses_of_any(me));
                let place = SenderPlace { trip, transfer, epoch, home, addresses, sponsor: me, sponsor_addresses };
                Leaving::Ready(place, trip)
            }
            _ => Leaving::Wait,
        }
    }

    pub(crate) fn home_of(&self, channel: ChannelId) -> Option<NodeId> {
        self.proxies.get(&channel).map(|proxy| proxy.home)
    }

    pub(crate) fn terms_of(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Option<(Terms, u32)> {
        let proxy = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.state == Whereabouts::Known)?;
        proxy.told = 0;
        proxy.terms.map(|terms| (terms, self.more_credits(peers, channel, true)))
    }

    pub(crate) fn has_retired(&self, channel: ChannelId) -> bool {
        self.proxies.get(&channel).is_some_and(|proxy| proxy.spent)
    }

    pub(crate) fn sender_stays(&mut self, peers: &mut impl Peers, channel: ChannelId, trip: Trip) {
        let Some(proxy) = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.packed == Some(trip)) else { return };
        proxy.way.packed = None;
        if proxy.way.over.is_some() {
            self.remove_proxy(peers, channel);
        }
        self.hurry_on(peers, channel, Which::Sender);
    }

    pub(crate) fn sender_left(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        trip: Trip,
        taker: Contact,
    ) -> bool {
        let to = taker.node;
        if peers.is_me(to) {
            return true;
        }
        let Some(proxy) = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.packed == Some(trip)) else {
            // It has already been used there, or further on, or is here again.
            peers.answer(taker, channel, Travel::Settled(Which::Sender, trip));
            return !self.proxies.contains_key(&channel);
        };
        proxy.way.packed = None;
        proxy.way.lent = Some((to, trip));
        let gone = take_early(&mut proxy.way.early, to);
        if planted!(LentForgotten) {
            self.remove_proxy(peers, channel);
            return true;
        }
        if let Some(how) = proxy.way.over.clone() {
            self.end_way(peers, channel, how);
            return true;
        }
        let lost = peers.has_lost_taker(taker).then_some(End::Lost);
        if let Some(how) = gone.or(lost) {
            self.sender_lapsed(peers, channel, (to, trip), how);
        }
        self.forget_passed_on(peers, channel);
        self.hurry_on(peers, channel, Which::Sender);
        true
    }

    pub(crate) fn sender_back(&mut self, peers: &mut impl Peers, channel: ChannelId, trip: Trip) -> bool {
        let Some(proxy) = self.proxies.get_mut(&channel).filter(|proxy| proxy.way.packed == Some(trip)) else {
            return false;
        };
        proxy.way.packed = None;
        if proxy.way.over.is_some() {
            self.remove_proxy(peers, channel);
            return true;
        }
        proxy.way.doubtful = true;
        match proxy.way.state {
            Whereabouts::Resting => self.use_sender(peers, channel),
            Whereabouts::Known => self.take_again(peers, channel),
            Whereabouts::Taking { .. } | Whereabouts::Asking => {}
        }
        true
    }

    /// The home has admitted this half, but perhaps another, later one as well.
    fn take_again(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && std::mem::take(&mut proxy.way.doubtful)
        {
            proxy.way.transfer += u64::from(!planted!(TransferReused));
            proxy.way.state = Whereabouts::Taking { moved: true };
            let transfer = proxy.way.transfer;
            self.say_to_home(peers, channel, ToHome::Take(transfer));
        }
    }

    pub(crate) fn sender_arrives(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        place: SenderPlace,
        giver: Contact,
    ) -> Arrival {
        let from = giver.node;
        let silent = peers.is_silent(giver);
        let lost = Travel::Lapsed(Which::Sender, place.trip, End::Lost);
        let is_admitted = self.is_admitted_here(peers, channel);
        if let Some(proxy) = self.proxies.get_mut(&channel) {
            let next = if proxy.way.state == Whereabouts::Resting { 0 } else { 1 };
            let same = proxy.way.is_away() && place.transfer == proxy.way.transfer + next;
            if same && proxy.way.over.is_some() && !planted!(OverReturned) {
                // Its channel ended while it was on its way.
                self.remove_proxy(peers, channel);
                peers.answer(giver, channel, lost);
                return Arrival::Stale;
            }
            if same {
                proxy.way.packed = None;
                let lent = proxy.way.lent.take();
                if proxy.way.state == Whereabouts::Resting && !silent && !planted!(ReturnUnanswered) {
                    proxy.way.givers.push((from, place.trip));
                }
                if let Some((to, trip)) = lent {
                    peers.say(to, Frame::Travel(channel, Travel::Settled(Which::Sender, trip)));
                }
                return Arrival::Returned;
            }
            // A half here that its home has admitted is the latest, whatever a message claims.
            let is_latest = is_admitted || (proxy.way.state == Whereabouts::Known && !proxy.way.is_away());
            if place.transfer <= proxy.way.transfer || is_latest {
                peers.answer(giver, channel, lost);
                return Arrival::Stale;
            }
            // It has been used elsewhere since, and the home's notice is still on its way. If the message
            // lies, the home still relies on this half; otherwise it ignores this frame.
            if matches!(proxy.way.state, Whereabouts::Known | Whereabouts::Taking { .. }) {
                self.say_to_home(peers, channel, ToHome::Ended(End::Lost));
            }
            if self.proxies.get(&channel).is_some_and(|proxy| !proxy.way.is_away()) {
                self.lose_superseded(peers, channel);
            }
            self.settle_lent(peers, channel);
            self.drop_way(peers, channel, &End::Lost);
        }
        let Some(paid_by) = peers.pay_for_end(channel, giver) else {
            peers.answer(giver, channel, lost);
            return Arrival::Stale;
        };
        let mut proxy = Proxy::new(place.home);
        proxy.paid_by = paid_by;
        proxy.way.state = Whereabouts::Resting;
        proxy.way.epoch = place.epoch;
        proxy.way.transfer = place.transfer;
        proxy.way.sponsor = Some((place.sponsor, place.sponsor_addresses));
        proxy.way.told = Some((from, place.addresses));
        proxy.way.givers.extend((!silent).then_some((from, place.trip)));
        self.proxies.insert(channel, Box::new(proxy));
        Arrival::Guest
    }

    /// Whether the home is here, and has admitted the sender at this node: then the sender has been used
    /// nowhere else since, whatever a message claims.
    fn is_admitted_here(&self, peers: &impl Peers, channel: ChannelId) -> bool {
        let home = self.homes.get(&channel).filter(|home| !home.phase.has_said_so());
        home.and_then(|home| home.attached.get(&peers.here())).is_some_and(|half| !half.gone)
    }

    pub(crate) fn use_sender(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && proxy.way.state == Whereabouts::Resting
            && proxy.way.over.is_none()
        {
            proxy.way.state = Whereabouts::Taking { moved: false };
            let transfer = proxy.way.transfer;
            let (home, told) = (proxy.home, proxy.way.told.clone());
            if let Some((by, addresses)) = told
                && !peers.hear_of(home, by, &addresses)
            {
                return self.lose_proxy(peers, channel);
            }
            self.say_to_home(peers, channel, ToHome::Take(transfer));
        }
    }

    /// It was dropped, or lost, before its home has admitted it.
    pub(in crate::channel) fn lapse_sender(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        if let Some(proxy) = self.remove_proxy(peers, channel) {
            if planted!(LapsedKept) {
                return;
            }
            for (giver, trip) in proxy.way.givers {
                peers.say(giver, Frame::Travel(channel, Travel::Lapsed(Which::Sender, trip, how.clone())));
            }
        }
    }

    pub(super) fn settle_lent(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && let Some((to, trip)) = proxy.way.lent.take()
            && !planted!(SettledUntold)
        {
            peers.say(to, Frame::Travel(channel, Travel::Settled(Which::Sender, trip)));
        }
    }

    pub(super) fn drop_way(&mut self, peers: &mut impl Peers, channel: ChannelId, how: &End) {
        let Some(proxy) = self.remove_proxy(peers, channel) else { return };
        for (node, _) in proxy.way.askers {
            peers.say(node, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone())));
        }
    }

    /// No home admits a half that has sent `Take`: another node has the sender; or, if the channel was
    /// reported retired before, that report stands.
    pub(super) fn is_not_admitted(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if !proxy.way.retired_before {
            return self.lose_proxy(peers, channel);
        }
        proxy.backlog.clear();
        proxy.way.again.clear();
        peers.proxy_hears(channel, ProxyHears::Ended(End::Retired));
        self.end_way(peers, channel, End::Retired);
    }

    /// Ends this half. If it is in a message, its record waits for the outcome.
    pub(in crate::channel) fn end_way(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let how = proxy.way.over.take().unwrap_or(how);
        let admitted = matches!(proxy.way.state, Whereabouts::Known | Whereabouts::Taking { moved: true });
        for (giver, trip) in std::mem::take(&mut proxy.way.givers) {
            if !admitted {
                peers.say(giver, Frame::Travel(channel, Travel::Lapsed(Which::Sender, trip, End::Lost)));
            }
        }
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.packed.is_some() {
            proxy.way.over = Some(how.clone());
            let askers = std::mem::take(&mut proxy.way.askers);
            for (node, _) in askers {
                peers.say(node, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone())));
            }
            return;
        }
        if let Some((to, _)) = proxy.way.lent.take() {
            peers.say(to, Frame::Travel(channel, Travel::Over(Which::Sender, how.clone())));
            peers.proxy_hears(channel, ProxyHears::Departed);
        }
        self.drop_way(peers, channel, &how);
    }

    /// Handles the frame of a home whose sending half is not here.
    pub(in crate::channel) fn hear_home_of_none(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: &FromHome,
    ) {
        peers.hears_nothing(from);
        if matches!(said, FromHome::HomeIs { .. }) {
            // The half has failed meanwhile.
            peers.say(from, Frame::ToHome(channel, ToHome::Ended(End::Lost)));
        }
    }

    /// Handles a home's frames [about the places of ends](FromHome::is_about_place).
    pub(in crate::channel) fn hear_travelling_home(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: FromHome,
    ) -> Result<(), PeerMisbehaved> {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
        let is_home = proxy.home == from;
        let taking = matches!(proxy.way.state, Whereabouts::Taking { .. }) && is_home;
        match said {
            FromHome::HomeIs { transfer, epoch, terms }
                if (taking || (is_home && proxy.way.state == Whereabouts::Asking))
                    && transfer == proxy.way.transfer =>
            {
                self.home_is(peers, channel, epoch, terms)?;
            }
            // For a half that has been replaced here: it has failed.
            FromHome::HomeIs { .. } if proxy.way.state == Whereabouts::Resting => {
                peers.say(from, Frame::ToHome(channel, ToHome::Ended(End::Lost)));
            }
            FromHome::NotHome(transfer) if taking && transfer == proxy.way.transfer => match proxy.way.state {
                Whereabouts::Taking { moved: false } => self.ask(peers, channel),
                _ => self.is_not_admitted(peers, channel),
            },
            FromHome::Fenced(transfer) if taking && transfer == proxy.way.transfer && !planted!(FencedIgnored) => {
                self.is_not_admitted(peers, channel);
            }
            FromHome::Moving { epoch, to, addresses } if is_home && proxy.way.over.is_none() => {
                if !taking && proxy.way.state != Whereabouts::Known {
                    return Ok(());
                }
                self.home_moves(peers, channel, epoch, to, &addresses)?;
            }
            FromHome::Superseded(transfer) if proxy.way.is_away() && proxy.way.transfer < transfer => {
                self.settle_lent(peers, channel);
                self.drop_way(peers, channel, &End::Lost);
                peers.proxy_hears(channel, ProxyHears::Departed);
            }
            FromHome::Superseded(transfer)
                if proxy.way.transfer < transfer && proxy.way.state != Whereabouts::Resting =>
            {
                self.lose_superseded(peers, channel);
            }
            FromHome::Drained if is_home && proxy.way.draining => {
                proxy.way.draining = false;
                peers.proxy_hears(channel, ProxyHears::Rests);
            }
            // For a half that was here before.
            _ => {}
        }
        Ok(())
    }

    /// Another node has the sender whose outcome was unknown: this half's offers were not taken.
    pub(super) fn lose_superseded(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let again: Vec<u64> = std::mem::take(&mut proxy.open).into_keys().map(place_in_line).collect();
        proxy.way.again.extend(again);
        self.lose_proxy(peers, channel);
    }

    fn home_is(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        epoch: u64,
        terms: Terms,
    ) -> Result<(), PeerMisbehaved> {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
        // Credits of the previous home are places in its buffer, and have moved with that.
        let sent = proxy.backlog.iter().filter(|(_, what)| matches!(what, Waiting::Sent(_))).count() as u64;
        if proxy.spent {
            // A home that knows that nothing more comes grants none.
            (proxy.credits, proxy.told) = (0, 0);
        }
        let (all, had) = (u64::from(terms.credits), sent + proxy.credits);
        let Some(more) = all.checked_sub(had) else {
            return Err(PeerMisbehaved::CreditsTakenBack { credits: all, had });
        };
        let more = if planted!(CreditsTwice) { all } else { more };
        let home = proxy.home;
        proxy.credits += more;
        let is_first = proxy.terms.replace(terms).is_none();
        proxy.way.epoch = epoch;
        proxy.way.state = Whereabouts::Known;
        proxy.way.givers.clear();
        proxy.way.sponsor = None;
        proxy.way.told = None;
        proxy.way.undrained = false;
        proxy.way.draining = false;
        let more = self.more_credits(peers, channel, is_first);
        peers.proxy_hears(channel, ProxyHears::Home(home, terms, more));
        if let Some(proxy) = self.proxies.get_mut(&channel)
            && proxy.way.doubtful
        {
            self.take_again(peers, channel);
        }
        self.answer_askers(peers, channel);
        self.offer_waiting(peers, channel);
        self.forget_proxy_if_over(peers, channel);
        Ok(())
    }

    /// The home is not at the known place: asks the sponsor, which knows, or will.
    fn ask(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        let sponsor = proxy.way.sponsor.as_ref().map(|(sponsor, _)| *sponsor);
        // If that is this node, its knowledge is outdated.
        let Some(sponsor) = sponsor.filter(|sponsor| !peers.is_me(*sponsor)) else {
            return self.lose_proxy(peers, channel);
        };
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        proxy.way.state = Whereabouts::Asking;
        let epoch = proxy.way.epoch + 1;
        if let (Some((_, addresses)), Some((by, _))) = (proxy.way.sponsor.clone(), proxy.way.told.clone())
            && !peers.hear_of(sponsor, by, &addresses)
        {
            return self.lose_proxy(peers, channel);
        }
        peers.say(sponsor, Frame::Travel(channel, Travel::Where(epoch)));
    }

    /// A node has connected that may have been known in an earlier life: what that life reported about the
    /// home is void.
    pub(crate) fn take_anew(&mut self, peers: &mut impl Peers, node: NodeId) {
        for channel in self.asking(node) {
            let Some(transfer) = self.proxies.get(&channel).map(|proxy| proxy.way.transfer) else { continue };
            self.say_to_home(peers, channel, ToHome::Take(transfer));
        }
    }

    /// Whether a half here asks for its home, which may still be at this node, in another life: it [sends
    /// `Take` again](Self::take_anew) when they meet.
    pub(crate) fn asks_of_home(&mut self, node: NodeId) -> bool {
        !self.asking(node).is_empty()
    }

    /// The halves that ask for their homes, and whose last known home is at that node.
    fn asking(&mut self, node: NodeId) -> Vec<ChannelId> {
        let mut asking = self.proxies.of(node);
        asking.retain(|channel| {
            let half = self.proxies.get(channel);
            half.is_some_and(|proxy| proxy.home == node && proxy.way.state == Whereabouts::Asking)
        });
        asking
    }

    pub(super) fn answer_askers(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let Some(proxy) = self.proxies.get_mut(&channel) else { return };
        if proxy.way.state != Whereabouts::Known {
            return;
        }
        let (epoch, home) = (proxy.way.epoch, proxy.home);
        let (now_known, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut proxy.way.askers).into_iter().partition(|(_, min)| *min <= epoch);
        proxy.way.askers = if planted!(WhereForgotten) { Vec::new() } else { later };
        for (node, _) in now_known {
            let addresses = peers.addresses_of_any(home);
            peers.say(node, Frame::Travel(channel, Travel::At { epoch, home, addresses }));
        }
    }

    /// The receiver has left for another node, which is the home from now on.
    fn home_moves(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        epoch: u64,
        to: NodeId,
        addresses: &[String],
    ) -> Result<(), PeerMisbehaved> {
        self.say_to_home(peers, channel, ToHome::Quiet);
        let me = peers.is_me(to);
        let Some(proxy) = self.proxies.get_mut(&channel) else { return Ok(()) };
        let (mut withdrawn, mut aborted) = (Vec::new(), Vec::new());
        for (ticket, standing) in std::mem::take(&mut proxy.open) {
            match standing {
                Standing::Held => return Err(PeerMisbehaved::LeavesWhileHeld(ticket)),
                _ if proxy.way.withdrawing.contains(&ticket) && !planted!(AskedBackAgain) => {
                    withdrawn.push(ticket);
                    continue;
                }
                Standing::Asked(_) | Standing::Reserved(..) => aborted.push(ticket),
                Standing::Firm | Standing::Tentative => {}
            }
            match proxy.way.choices.remove(&ticket) {
                Some(choice) => proxy.wait_in_place(ticket, Waiting::Choice(choice)),
                None => drop(proxy.way.again.insert(place_in_line(ticket))),
            }
        }
        proxy.way.choices.clear();
        proxy.way.withdrawing.clear();
        proxy.gone_said = false;
        proxy.unanswered = false;
        if proxy.spent {
            // The previous home may have received poison after it, and forward only that.
            proxy.way.end_late(End::Retired);
        }
        let mover = std::mem::replace(&mut proxy.home, to);
        proxy.way.epoch = epoch;
        let moved = proxy.way.state == Whereabouts::Known || proxy.way.state == Whereabouts::Taking { moved: true };
        proxy.way.state = Whereabouts::Taking { moved: moved || me };
        if planted!(MovedUntold) {
            proxy.way.again.clear();
        }
        let (transfer, again) = (proxy.way.transfer, proxy.way.again.iter().copied().map(place_in_line).collect());
        for ticket in withdrawn {
            peers.proxy_hears(channel, ProxyHears::Withdrawn(ticket));
        }
        for ticket in aborted {
            peers.proxy_hears(channel, ProxyHears::Abort(ticket));
        }
        peers.proxy_hears(channel, ProxyHears::Moved(to, again));
        if !peers.hear_of(to, mover, addresses) {
            self.lose_proxy(peers, channel);
            return Ok(());
        }
        self.say_to_home(peers, channel, ToHome::Take(transfer));
        Ok(())
    }
}
