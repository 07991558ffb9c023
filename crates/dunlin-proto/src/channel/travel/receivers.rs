//! A receiver that travels, and the home with it.

use bytes::Bytes;
use dunlin_sorted::SortedSet;

use super::declaration;
use super::state::{Arrival, Leaving, ReceiverPlace, Stage, Trip, Visitor, Waits, take_early, wait_for_word};
use crate::account::Ledger;
use crate::channel::{Attached, Channels, Home, HomeHears, Peers};
use crate::connection::inbox::{Arrived, Begun, Whole};
use crate::id::{ChannelId, Contact, NodeId};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::{End, Frame, FromHome, Head, Moved, Terms, ToHome, Travel, Which};

/// The terms until the driver has set them.
const NO_TERMS: Terms = Terms { window: 1, credits: 0, value_max: 0 };

impl Channels {
    /// A node has the sender, and uses it.
    pub(in crate::channel) fn hear_take(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        transfer: u64,
    ) {
        if let Some(visitor) = self.visitors.get_mut(&channel)
            && visitor.fetching
        {
            match wait_for_word(&mut visitor.takers, from, transfer) {
                Waits::Anew => {}
                Waits::Again => peers.hears_nothing(from),
                Waits::InVain => peers.tell(from, channel, FromHome::NotHome(transfer)),
            }
            return;
        }
        let Some(home) = self.homes.get_mut(&channel) else {
            return peers.tell(from, channel, FromHome::NotHome(transfer));
        };
        if home.phase.has_said_so() && !planted!(OldHomeAdmits) {
            return peers.tell(from, channel, FromHome::NotHome(transfer));
        }
        // Values that an attached half has sent on credits still arrive at a retired home: such a half is
        // admitted, and then notified of the end.
        let comes = |half: &Attached| !half.gone && !half.retired;
        let admits = home.rare.ended == Some(End::Retired)
            && home.attached.get(&from).is_some_and(comes)
            && !planted!(RetiredRefuses);
        if let Some(how) = home.rare.ended.clone().filter(|_| !admits) {
            self.detach(peers, channel, from);
            self.forget_home_if_over(peers, channel);
            return peers.say(from, Frame::Travel(channel, Travel::Over(Which::Sender, how)));
        }
        // A half that is already here keeps the credits granted here or by the previous home.
        let credits = home.attached.get(&from).map_or(0, |half| half.credits);
        let present =
            home.attached.iter().find(|(_, half)| !half.gone).map(|(node, half)| (*node, half.open.is_empty()));
        match present {
            Some((node, _)) if node == from && transfer == home.rare.transfer => {}
            Some((node, true)) if transfer > home.rare.transfer || planted!(StaleTake) => {
                home.rare.transfer = transfer;
                self.detach(peers, channel, node);
                if node != from && !planted!(SupersededUntold) {
                    peers.tell(node, channel, FromHome::Superseded(transfer));
                }
            }
            _ => return peers.tell(from, channel, FromHome::Fenced(transfer)),
        }
        self.detach(peers, channel, from);
        let Some(home) = self.homes.get_mut(&channel) else { return };
        home.attached.insert(from, Attached { told: false, credits, ..Attached::new(0) });
        peers.hears(channel, from, HomeHears::Take);
    }

    /// Detaches the half at this node.
    pub(in crate::channel) fn detach(&mut self, peers: &mut impl Peers, channel: ChannelId, node: NodeId) {
        if let Some(mut half) = self.homes.get_mut(&channel).and_then(|home| home.attached.remove(&node)) {
            self.free_half(peers, node, channel, &mut half);
        }
    }

    pub(crate) fn credits_of(&self, channel: ChannelId, node: NodeId) -> u32 {
        let half = self.homes.get(&channel).and_then(|home| home.attached.get(&node));
        half.map_or(0, |half| half.credits.try_into().unwrap_or(u32::MAX))
    }

    pub(crate) fn admit(&mut self, peers: &mut impl Peers, channel: ChannelId, node: NodeId, mut terms: Terms) {
        terms.value_max = terms.value_max.min(peers.config().value_max as u64);
        terms.window = terms.window.max(1);
        let Some(home) = self.homes.get_mut(&channel) else { return };
        if home.phase.has_said_so() {
            return;
        }
        let Some(half) = home.attached.get_mut(&node).filter(|half| !half.told) else { return };
        half.told = true;
        half.credits = terms.credits.into();
        home.terms = terms;
        let (epoch, transfer) = (home.rare.epoch, home.rare.transfer);
        let is_retired = [&home.phase.ended, &home.rare.ended].contains(&&Some(End::Retired));
        peers.tell(node, channel, FromHome::HomeIs { transfer, epoch, terms });
        if is_retired {
            // The channel was retired where the sender was before, or by the receiver before its channel had
            // followed it. This half may not know that.
            peers.tell(node, channel, FromHome::Ended(End::Retired));
        }
    }

    pub(crate) fn pack_receiver(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Leaving<ReceiverPlace> {
        let me = peers.here();
        let (addresses, trip) = (peers.addresses_of_any(me), self.next_trip());
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            return match &visitor.over {
                Some(how) => Leaving::Over(how.clone()),
                None if visitor.fetching => Leaving::Wait,
                None => {
                    visitor.packed = Some(trip);
                    visitor.early = None;
                    Leaving::Ready(ReceiverPlace { trip, ..visitor.place.clone() }, trip)
                }
            };
        }
        let Some(home) = self.homes.get_mut(&channel) else { return Leaving::Over(End::Gone) };
        let answered = home.attached.values().all(|half| half.retired);
        if home.rare.ended.as_ref().is_some_and(|how| *how != End::Retired || !answered) {
            // Wait until its sender has noticed. Then the home is gone, unless the channel was retired: a
            // retired home stays, with the values sent before.
            return Leaving::Wait;
        }
        let known = home.attached.len() <= 1 && home.attached.values().all(|half| half.told);
        let joined = !home.attached.is_empty() || home.phase.ended.is_some();
        if home.many || !known || !joined || home.phase.stage != Stage::Here {
            return Leaving::Wait;
        }
        home.phase.packed = Some(trip);
        home.phase.early = None;
        let (claim, epoch) = (home.phase.claim, home.rare.epoch);
        Leaving::Ready(ReceiverPlace { trip, claim, epoch, home: me, addresses }, trip)
    }

    pub(crate) fn has_home(&self, channel: ChannelId) -> bool {
        self.homes.contains_key(&channel) || self.visitors.contains_key(&channel)
    }

    pub(crate) fn receiver_is_away(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_some_and(|home| home.phase.is_away())
    }

    pub(crate) fn receiver_is_packed(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_some_and(|home| home.phase.packed.is_some())
    }

    pub(crate) fn home_is_left(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_none_or(|home| home.attached.is_empty())
    }

    pub(crate) fn receiver_stays(&mut self, peers: &mut impl Peers, channel: ChannelId, trip: Trip) {
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            self.fail_if_over(peers, channel);
            self.hurry_on(peers, channel, Which::Receiver);
        } else if let Some(home) = self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            home.phase.packed = None;
            self.forget_home_if_over(peers, channel);
        }
    }

    /// Fails a receiver that is here again, if its channel ended while it was away.
    fn fail_if_over(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(how) = self.visitors.get(&channel).and_then(|visitor| visitor.over.clone()) {
            let me = peers.here();
            self.remove_visitor(peers, channel);
            peers.hears(channel, me, HomeHears::Failed(how));
        }
    }

    pub(crate) fn receiver_left(
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
        let lost = peers.has_lost_taker(taker).then_some(End::Lost);
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            visitor.lent = Some((to, trip));
            let gone = take_early(&mut visitor.early, to);
            if let Some(how) = visitor.over.clone() {
                peers.answer(taker, channel, Travel::Over(Which::Receiver, how));
                self.remove_visitor(peers, channel);
            }
            if let Some(how) = gone.or(lost) {
                self.receiver_lapsed(peers, channel, (to, trip), how);
            }
            self.forget_passed_on(peers, channel);
        } else if let Some(home) = self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            home.phase.packed = None;
            home.phase.lent = Some((to, trip));
            if let Some(how) = take_early(&mut home.phase.early, to).or(lost) {
                self.receiver_lapsed(peers, channel, (to, trip), how);
            }
        } else {
            peers.answer(taker, channel, Travel::Settled(Which::Receiver, trip));
            return !self.has_home(channel);
        }
        self.hurry_on(peers, channel, Which::Receiver);
        true
    }

    pub(crate) fn receiver_back(&mut self, peers: &mut impl Peers, channel: ChannelId, trip: Trip) -> bool {
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            visitor.doubtful = true;
            self.use_receiver(peers, channel);
            self.fail_if_over(peers, channel);
            return true;
        }
        match self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            Some(home) if home.phase.stage == Stage::Here => {
                home.phase.claim += 1;
                home.phase.packed = None;
                self.forget_home_if_over(peers, channel);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn receiver_arrives(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        place: ReceiverPlace,
        giver: Contact,
    ) -> Arrival {
        let from = giver.node;
        let settled = |trip| Frame::Travel(channel, Travel::Settled(Which::Receiver, trip));
        let lost = Travel::Lapsed(Which::Receiver, place.trip, End::Lost);
        let is_mine = peers.is_me(place.home);
        if let Some(home) = self.homes.get_mut(&channel) {
            // A place named by an earlier home, or by this one for an earlier message, is void.
            if !is_mine || home.phase.claim != place.claim || home.phase.stage != Stage::Here || !home.phase.is_away() {
                peers.answer(giver, channel, lost);
                return Arrival::Stale;
            }
            home.phase.packed = None;
            // The node that gave it back may not know that it was taken, and act as if it still had it.
            home.phase.claim += u64::from(!planted!(ClaimKept));
            if let Some((to, trip)) = home.phase.lent.take() {
                peers.say(to, settled(trip));
            }
            self.forget_home_if_over(peers, channel);
            return Arrival::Returned;
        }
        if is_mine {
            // Its home ended before it came back, or belonged to an earlier life: no node could fetch it.
            peers.answer(giver, channel, lost);
            return Arrival::Stale;
        }
        let is_new = self.visitors.get(&channel).is_none_or(|visitor| {
            let same = visitor.place.home == place.home && visitor.place.claim == place.claim;
            !(visitor.is_away() && same) && place.claim > visitor.place.claim
        });
        let Some(paid_by) = (if is_new { peers.pay_for_end(channel, giver) } else { Some(None) }) else {
            peers.answer(giver, channel, lost);
            return Arrival::Stale;
        };
        let (mut late_answers, silent) = (Vec::new(), peers.is_silent(giver));
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            let is_away = visitor.is_away();
            let same = visitor.place.home == place.home && visitor.place.claim == place.claim;
            let over = is_away && same && visitor.over.is_some();
            if over || (!(is_away && same) && place.claim <= visitor.place.claim) {
                peers.answer(giver, channel, lost);
                if over {
                    // Its channel ended while it was on its way.
                    self.remove_visitor(peers, channel);
                }
                return Arrival::Stale;
            }
            visitor.packed = None;
            let lent = visitor.lent.take();
            let answers = same && !silent && !planted!(ReturnUnanswered);
            visitor.givers.extend(answers.then_some((from, place.trip)));
            late_answers = std::mem::take(&mut visitor.late_answers);
            if visitor.fetching && visitor.state.is_none() {
                late_answers.push(visitor.place.home);
            }
            if let Some((to, trip)) = lent {
                peers.say(to, settled(trip));
            }
            if is_away && same {
                return Arrival::Returned;
            }
        }
        let visitor = Visitor {
            by: from,
            givers: Vec::from_iter((!silent).then_some((from, place.trip))),
            place,
            packed: None,
            lent: None,
            early: None,
            hurried: false,
            doubtful: false,
            fetching: false,
            state: None,
            missing: 0,
            arrived: false,
            takers: Vec::new(),
            lost: SortedSet::new(),
            lost_late: None,
            late_answers,
            over: None,
            buffered: Ledger::default(),
            paid_by,
        };
        self.remove_visitor(peers, channel);
        self.visitors.insert(channel, visitor);
        Arrival::Guest
    }

    pub(crate) fn use_receiver(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(visitor) = self.visitors.get_mut(&channel)
            && !visitor.fetching
            && visitor.over.is_none()
        {
            visitor.fetching = true;
            let (home, claim) = (visitor.place.home, visitor.place.claim);
            let (by, addresses) = (visitor.by, visitor.place.addresses.clone());
            if !peers.hear_of(home, by, &addresses) {
                return self.fail_visitor(peers, channel, End::Lost);
            }
            peers.say(home, Frame::Travel(channel, Travel::Fetch(claim)));
        }
    }

    pub(crate) fn drop_receiver(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        self.lapse_receiver(peers, channel, End::Gone);
    }

    pub(super) fn lapse_receiver(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        let Some(visitor) = self.remove_visitor(peers, channel) else { return };
        for (giver, trip) in visitor.givers {
            peers.say(giver, Frame::Travel(channel, Travel::Lapsed(Which::Receiver, trip, how.clone())));
        }
        for (node, transfer) in visitor.takers {
            peers.tell(node, channel, FromHome::NotHome(transfer));
        }
    }

    /// Fails a receiver that is not home yet, and cannot become home.
    pub(super) fn fail_visitor(&mut self, peers: &mut impl Peers, channel: ChannelId, how: End) {
        let me = peers.here();
        let Some(visitor) = self.visitors.get(&channel) else { return };
        let (packed, lent) = (visitor.packed, visitor.lent);
        if packed.is_some()
            && let Some(visitor) = self.visitors.get_mut(&channel)
        {
            visitor.over = Some(how);
            return;
        }
        match lent {
            Some((to, _)) => peers.say(to, Frame::Travel(channel, Travel::Over(Which::Receiver, how))),
            None => peers.hears(channel, me, HomeHears::Failed(how)),
        }
        self.lapse_receiver(peers, channel, End::Lost);
    }

    /// A node uses the receiver.
    pub(super) fn hear_fetch(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, claim: u64) {
        match self.homes.get_mut(&channel) {
            Some(home)
                if (home.phase.claim == claim || planted!(ClaimIgnored))
                    && home.phase.is_away()
                    && home.phase.stage == Stage::Here =>
            {
                home.phase.stage = Stage::Asked(from);
                peers.hears(channel, from, HomeHears::Leave);
            }
            _ => peers.say(from, Frame::Travel(channel, Travel::Over(Which::Receiver, End::Lost))),
        }
    }

    pub(crate) fn leave_home(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        let Stage::Asked(to) = home.phase.stage else { return };
        home.phase.stage = Stage::Leaving(to);
        let epoch = home.rare.epoch + 1;
        let nodes: Vec<NodeId> = home.attached.keys().copied().collect();
        if planted!(MovingUntold) {
            return self.hear_quiet(peers, channel);
        }
        for node in nodes {
            let addresses = peers.addresses_of_any(to);
            peers.tell(node, channel, FromHome::Moving { epoch, to, addresses });
            // A value that waits there for room must not delay the sender's `Quiet`.
            self.consider(peers, node, channel);
        }
        if planted!(QuietSkipped) {
            self.hear_quiet(peers, channel);
        }
        self.empty_if_quiet(peers, channel);
    }

    /// Everything from the sender has arrived.
    pub(in crate::channel) fn hear_quiet(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(home) = self.homes.get_mut(&channel)
            && let Stage::Leaving(to) = home.phase.stage
        {
            home.phase.stage = Stage::Emptying(to);
            peers.hears(channel, to, HomeHears::Empty);
        }
    }

    /// No sender is left that could send anything.
    pub(in crate::channel) fn empty_if_quiet(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if self.homes.get(&channel).is_some_and(|home| home.attached.is_empty()) {
            self.hear_quiet(peers, channel);
        }
    }

    pub(crate) fn ship(&mut self, peers: &mut impl Peers, channel: ChannelId, values: Vec<Bytes>) {
        let Some(home) = self.homes.get(&channel) else { return };
        let Stage::Emptying(to) = home.phase.stage else { return };
        let Some(home) = self.remove_home(peers, channel) else { return };
        let values = if planted!(BufferLeft) { Vec::new() } else { values };
        let sender = home.attached.keys().next().map(|node| (*node, peers.addresses_of_any(*node)));
        let credits = home.attached.values().filter(|half| !half.retired).map(|half| half.credits).sum();
        // A half that is gone and has open offers makes them again at the new home, and reports itself gone
        // after them.
        let says_again = |how: &End| sender.is_some() && matches!(how, End::Gone | End::Lost);
        let state = Moved {
            epoch: home.rare.epoch + 1,
            transfer: home.rare.transfer,
            ended: home.phase.ended.clone().filter(|how| !says_again(how)),
            sender,
            credits,
            values: values.len() as u64,
        };
        peers.say(to, Frame::ToHome(channel, ToHome::State(Box::new(state))));
        for value in values {
            let total = value.len() as u64;
            peers.say(to, Frame::ToHome(channel, ToHome::Value { head: Head::Sent, total, first: value }));
        }
        if let Some((node, trip)) = home.phase.lent {
            peers.say(node, Frame::Travel(channel, Travel::Settled(Which::Receiver, trip)));
        }
    }

    /// Handles a frame of the home to the node where its receiver is now.
    pub(in crate::channel) fn hear_old_home(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: ToHome,
    ) -> Result<(), PeerMisbehaved> {
        let Some(visitor) = self.visitors.get_mut(&channel) else { return Ok(()) };
        if visitor.place.home != from || !visitor.fetching {
            // For a home that was here before.
            return Ok(());
        }
        match said {
            ToHome::State(state) => {
                let expected = visitor.place.epoch + 1;
                if visitor.state.is_some() || state.epoch != expected {
                    return Err(PeerMisbehaved::OtherState { epoch: state.epoch, expected });
                }
                visitor.missing = state.values;
                visitor.state = Some(*state);
                visitor.givers.clear();
                self.complete(peers, channel, from);
                Ok(())
            }
            ToHome::Value { head: Head::Sent, total, first } => {
                if visitor.state.is_none() || visitor.missing == 0 {
                    return Err(PeerMisbehaved::ValueNotInState);
                }
                if total > peers.config().value_max as u64 {
                    // The previous home accepted larger values. It cannot be notified, and no other node has
                    // the value.
                    let charge = peers.charge(from, channel, total, false, true)?;
                    let value = Begun { head: Head::Sent, total, wanted: false, charge };
                    if let Arrived::Unwanted(charge) = peers.begin_value(from, channel, value, first) {
                        self.give_back(peers, from, channel, charge);
                    }
                    self.fail_visitor(peers, channel, End::Lost);
                    return Ok(());
                }
                let charge = peers.charge(from, channel, total, true, true)?;
                let value = Begun { head: Head::Sent, total, wanted: true, charge };
                if let Arrived::Whole(value) = peers.begin_value(from, channel, value, first) {
                    self.buffered_value(peers, channel, from, value);
                }
                Ok(())
            }
            _ => Err(PeerMisbehaved::NotAHomeYet),
        }
    }

    /// Handles a value of the buffer that follows the receiver.
    pub(in crate::channel) fn buffered_value(
        &mut self,
        peers: &mut impl Peers,
        channel: ChannelId,
        from: NodeId,
        value: Whole,
    ) {
        let contact = peers.contact(from);
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            visitor.buffered.add(contact, value.charge);
            visitor.missing = visitor.missing.saturating_sub(1);
            peers.hears(channel, from, HomeHears::Sent(value.bytes));
            self.complete(peers, channel, from);
        }
    }

    fn complete(&mut self, peers: &mut impl Peers, channel: ChannelId, from: NodeId) {
        let Some(visitor) = self.visitors.get_mut(&channel) else { return };
        let Some(state) = &mut visitor.state else { return };
        if visitor.missing > 0 || visitor.arrived {
            return;
        }
        visitor.arrived = true;
        if state.sender.as_ref().is_some_and(|(node, _)| visitor.lost.contains(node)) {
            state.sender = None;
            state.ended.get_or_insert(End::Lost);
        }
        let sender = state.sender.clone();
        if let Some((node, addresses)) = sender.filter(|(node, _)| !peers.is_me(*node)) {
            if peers.hear_of(node, from, &addresses) {
                peers.connect(node);
            } else if let Some(state) = self.visitors.get_mut(&channel).and_then(|visitor| visitor.state.as_mut()) {
                state.sender = None;
                state.ended.get_or_insert(End::Lost);
            }
        }
        let ended = self.visitors.get(&channel).and_then(|visitor| visitor.state.as_ref()?.ended.clone());
        peers.hears(channel, from, HomeHears::Arrived(ended));
    }

    pub(crate) fn install(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if !self.visitors.get(&channel).is_some_and(|visitor| visitor.arrived) {
            return;
        }
        // The charge for the visitor passes to its home.
        let paid_by = self.visitors.get_mut(&channel).and_then(|visitor| visitor.paid_by.take());
        let Some(visitor) = self.remove_visitor(peers, channel) else { return };
        let Some(state) = visitor.state else { return peers.free_end(paid_by) };
        let mut home = Home::new(NO_TERMS, declaration(), false);
        home.rare.epoch = state.epoch;
        home.rare.transfer = state.transfer;
        home.rare.paid_by = paid_by;
        home.phase.ended = state.ended;
        // A fetch with a claim of an earlier home never matches this one.
        home.phase.claim = if planted!(StaleEpoch) { 0 } else { state.epoch << 32 };
        let sender = state.sender.map(|(node, _)| node);
        if let Some(node) = sender {
            home.attached.insert(node, Attached { told: false, credits: state.credits, ..Attached::new(0) });
        }
        self.homes.insert(channel, Box::new(home));
        if let Some(node) = sender
            && !visitor.takers.iter().any(|(taker, _)| *taker == node)
        {
            // It may have failed before it could report that here.
            peers.say(node, Frame::Travel(channel, Travel::Where(state.epoch)));
        }
        if let Some(node) = visitor.lost_late {
            peers.hears(channel, node, HomeHears::Lost(Vec::new()));
        }
        for (node, transfer) in visitor.takers {
            self.hear_take(peers, node, channel, transfer);
        }
    }
}
