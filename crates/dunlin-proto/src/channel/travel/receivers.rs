//! A receiver that travels, and with it the home.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::declaration;
use super::state::{Arrival, Leaving, ReceiverPlace, Stage, Trip, Visitor, Waits, take_early, wait_for_word};
use crate::account::{Charge, Ledger};
use crate::channel::{Attached, Home, HomeHears};
use crate::connection::inbox::{Arrived, Begun};
use crate::id::{ChannelId, Contact, NodeId};
use crate::machine::Machine;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::{End, Frame, FromHome, Head, Moved, Terms, ToHome, Travel, Which};

/// Until the driver has told the terms.
const NO_TERMS: Terms = Terms { window: 1, credits: 0, value_max: 0 };

impl Machine {
    /// A node has the sender, and uses it.
    pub(in crate::channel) fn hear_take(&mut self, now: Time, from: NodeId, channel: ChannelId, transfer: u64) {
        if let Some(visitor) = self.visitors.get_mut(&channel)
            && visitor.fetching
        {
            match wait_for_word(&mut visitor.takers, from, transfer) {
                Waits::Anew => {}
                Waits::Again => self.hears_nothing(now, from),
                Waits::InVain => self.tell(now, from, channel, FromHome::NotHome(transfer)),
            }
            return;
        }
        let Some(home) = self.homes.get_mut(&channel) else {
            return self.tell(now, from, channel, FromHome::NotHome(transfer));
        };
        if home.phase.has_said_so() && !planted!(OldHomeAdmits) {
            return self.tell(now, from, channel, FromHome::NotHome(transfer));
        }
        // What a half that is known here has sent on credits still comes to a home that is retired: that one is admitted, and then hears of the end.
        let comes = |half: &Attached| !half.gone && !half.retired;
        let admits = home.rare.ended == Some(End::Retired)
            && home.attached.get(&from).is_some_and(comes)
            && !planted!(RetiredRefuses);
        if let Some(how) = home.rare.ended.clone().filter(|_| !admits) {
            self.detach(channel, from);
            self.forget_home_if_over(channel);
            return self.say(now, from, Frame::Travel(channel, Travel::Over(Which::Sender, how)));
        }
        // The half that is there already keeps what it was promised, here or by the home before this one.
        let credits = home.attached.get(&from).map_or(0, |half| half.credits);
        let present =
            home.attached.iter().find(|(_, half)| !half.gone).map(|(node, half)| (*node, half.open.is_empty()));
        match present {
            Some((node, _)) if node == from && transfer == home.rare.transfer => {}
            Some((node, true)) if transfer > home.rare.transfer || planted!(StaleTake) => {
                home.rare.transfer = transfer;
                self.detach(channel, node);
                if node != from && !planted!(SupersededUntold) {
                    self.tell(now, node, channel, FromHome::Superseded(transfer));
                }
            }
            _ => return self.tell(now, from, channel, FromHome::Fenced(transfer)),
        }
        self.detach(channel, from);
        let Some(home) = self.homes.get_mut(&channel) else { return };
        home.attached.insert(from, Attached { told: false, credits, ..Attached::new(0) });
        self.hears(channel, from, HomeHears::Take);
    }

    /// The half at this node is not attached any more.
    pub(in crate::channel) fn detach(&mut self, channel: ChannelId, node: NodeId) {
        if let Some(mut half) = self.homes.get_mut(&channel).and_then(|home| home.attached.remove(&node)) {
            self.free_half(node, channel, &mut half);
        }
    }

    /// So many credits a half that [takes](HomeHears::Take) has already, of this home or the one before: it is to be granted no fewer.
    pub fn credits_of(&self, channel: ChannelId, node: NodeId) -> u32 {
        let half = self.homes.get(&channel).and_then(|home| home.attached.get(&node));
        half.map_or(0, |half| half.credits.try_into().unwrap_or(u32::MAX))
    }

    /// Answers [`HomeHears::Take`]: what the half at that node may do from now on.
    pub fn admit(&mut self, now: Time, channel: ChannelId, node: NodeId, mut terms: Terms) {
        terms.value_max = terms.value_max.min(self.config.value_max as u64);
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
        self.tell(now, node, channel, FromHome::HomeIs { transfer, epoch, terms });
        if is_retired {
            // Where the sender was before, or by the receiver before its channel had followed it. Here nobody may know.
            self.tell(now, node, channel, FromHome::Ended(End::Retired));
        }
    }

    /// The receiver of this channel is to go into a message: what that has to say. As [`pack_sender`](Self::pack_sender).
    pub fn pack_receiver(&mut self, channel: ChannelId) -> Leaving<ReceiverPlace> {
        let me = self.me().node;
        let (addresses, trip) = (self.addresses_of_any(me), self.next_trip());
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
            // Until its sender has noticed. Then there is no home any more; but of a channel that was retired there is, with what was sent before.
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

    /// Whether the receiver of this channel is here.
    pub fn has_home(&self, channel: ChannelId) -> bool {
        self.homes.contains_key(&channel) || self.visitors.contains_key(&channel)
    }

    /// Whether the receiver is in a message, or elsewhere.
    pub fn receiver_is_away(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_some_and(|home| home.phase.is_away())
    }

    /// Whether the receiver of the home that is here is in a message of which it is not known whether it was taken.
    pub fn receiver_is_packed(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_some_and(|home| home.phase.packed.is_some())
    }

    /// Whether no node has a sending half.
    pub fn home_is_left(&self, channel: ChannelId) -> bool {
        self.homes.get(&channel).is_none_or(|home| home.attached.is_empty())
    }

    /// The message with the receiver has not been taken. If its channel is over meanwhile: [`HomeHears::Failed`].
    pub fn receiver_stays(&mut self, now: Time, channel: ChannelId, trip: Trip) {
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            self.fail_if_over(channel);
            self.hurry_on(now, channel, Which::Receiver);
        } else if let Some(home) = self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            home.phase.packed = None;
            self.forget_home_if_over(channel);
        }
    }

    /// A receiver that is here again, and whose channel was over while it was away.
    fn fail_if_over(&mut self, channel: ChannelId) {
        if let Some(how) = self.visitors.get(&channel).and_then(|visitor| visitor.over.clone()) {
            let me = self.me().node;
            self.remove_visitor(channel);
            self.hears(channel, me, HomeHears::Failed(how));
        }
    }

    /// The message with the receiver has been taken by that node. `false`: it is here again already.
    pub fn receiver_left(&mut self, now: Time, channel: ChannelId, trip: Trip, taker: Contact) -> bool {
        let to = taker.node;
        if self.is_me(to) {
            return true;
        }
        let lost = self.has_lost_taker(taker).then_some(End::Lost);
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            visitor.lent = Some((to, trip));
            let gone = take_early(&mut visitor.early, to);
            if let Some(how) = visitor.over.clone() {
                self.answer(now, taker, channel, Travel::Over(Which::Receiver, how));
                self.remove_visitor(channel);
            }
            if let Some(how) = gone.or(lost) {
                self.receiver_lapsed(now, channel, (to, trip), how);
            }
            self.forget_passed_on(now, channel);
        } else if let Some(home) = self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            home.phase.packed = None;
            home.phase.lent = Some((to, trip));
            if let Some(how) = take_early(&mut home.phase.early, to).or(lost) {
                self.receiver_lapsed(now, channel, (to, trip), how);
            }
        } else {
            self.answer(now, taker, channel, Travel::Settled(Which::Receiver, trip));
            return !self.has_home(channel);
        }
        self.hurry_on(now, channel, Which::Receiver);
        true
    }

    /// Nobody knows whether the message with the receiver was taken. `true`: it is here again, unless somebody else uses it, or its channel is over:
    /// then [`HomeHears::Failed`]. `false`: it was taken.
    pub fn receiver_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool {
        if let Some(visitor) = self.visitors.get_mut(&channel).filter(|visitor| visitor.packed == Some(trip)) {
            visitor.packed = None;
            visitor.doubtful = true;
            self.use_receiver(now, channel);
            self.fail_if_over(channel);
            return true;
        }
        match self.homes.get_mut(&channel).filter(|home| home.phase.packed == Some(trip)) {
            Some(home) if home.phase.stage == Stage::Here => {
                home.phase.claim += 1;
                home.phase.packed = None;
                self.forget_home_if_over(channel);
                true
            }
            _ => false,
        }
    }

    /// A receiver has come to this node in a message from `giver`, and was taken.
    pub fn receiver_arrives(&mut self, now: Time, channel: ChannelId, place: ReceiverPlace, giver: Contact) -> Arrival {
        let from = giver.node;
        let settled = |trip| Frame::Travel(channel, Travel::Settled(Which::Receiver, trip));
        let lost = Travel::Lapsed(Which::Receiver, place.trip, End::Lost);
        let is_mine = self.is_me(place.home);
        if let Some(home) = self.homes.get_mut(&channel) {
            // What an earlier home has said, or this one of an earlier message, counts no more.
            if !is_mine || home.phase.claim != place.claim || home.phase.stage != Stage::Here || !home.phase.is_away() {
                self.answer(now, giver, channel, lost);
                return Arrival::Stale;
            }
            home.phase.packed = None;
            // Who gave it back may not know that it was taken, and think that it still has it.
            home.phase.claim += u64::from(!planted!(ClaimKept));
            if let Some((to, trip)) = home.phase.lent.take() {
                self.say(now, to, settled(trip));
            }
            self.forget_home_if_over(channel);
            return Arrival::Returned;
        }
        if is_mine {
            // Its home was over before it came back, or was that of an earlier life. Nobody could fetch it.
            self.answer(now, giver, channel, lost);
            return Arrival::Stale;
        }
        let is_new = self.visitors.get(&channel).is_none_or(|visitor| {
            let same = visitor.place.home == place.home && visitor.place.claim == place.claim;
            !(visitor.is_away() && same) && place.claim > visitor.place.claim
        });
        let Some(paid_by) = (if is_new { self.pay_for_end(channel, giver) } else { Some(None) }) else {
            self.answer(now, giver, channel, lost);
            return Arrival::Stale;
        };
        let (mut late_answers, silent) = (Vec::new(), self.is_silent(giver));
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            let is_away = visitor.is_away();
            let same = visitor.place.home == place.home && visitor.place.claim == place.claim;
            let over = is_away && same && visitor.over.is_some();
            if over || (!(is_away && same) && place.claim <= visitor.place.claim) {
                self.answer(now, giver, channel, lost);
                if over {
                    // Its channel was over while it was on its way.
                    self.remove_visitor(channel);
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
                self.say(now, to, settled(trip));
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
            lost: BTreeSet::new(),
            lost_late: None,
            late_answers,
            over: None,
            buffered: Ledger::default(),
            paid_by,
        };
        self.remove_visitor(channel);
        self.visitors.insert(channel, visitor);
        Arrival::Guest
    }

    /// The receiver is used here: its home is to be here. [`HomeHears::Arrived`] or [`HomeHears::Failed`] follows.
    pub fn use_receiver(&mut self, now: Time, channel: ChannelId) {
        if let Some(visitor) = self.visitors.get_mut(&channel)
            && !visitor.fetching
            && visitor.over.is_none()
        {
            visitor.fetching = true;
            let (home, claim) = (visitor.place.home, visitor.place.claim);
            let (by, addresses) = (visitor.by, visitor.place.addresses.clone());
            if !self.hear_of(home, by, &addresses) {
                return self.fail_visitor(now, channel, End::Lost);
            }
            self.say(now, home, Frame::Travel(channel, Travel::Fetch(claim)));
        }
    }

    /// The receiver has been dropped here while it was a [guest](Self::is_guest).
    pub fn drop_receiver(&mut self, now: Time, channel: ChannelId) {
        self.lapse_receiver(now, channel, End::Gone);
    }

    pub(super) fn lapse_receiver(&mut self, now: Time, channel: ChannelId, how: End) {
        let Some(visitor) = self.remove_visitor(channel) else { return };
        for (giver, trip) in visitor.givers {
            self.say(now, giver, Frame::Travel(channel, Travel::Lapsed(Which::Receiver, trip, how.clone())));
        }
        for (node, transfer) in visitor.takers {
            self.tell(now, node, channel, FromHome::NotHome(transfer));
        }
    }

    /// A receiver that is not home yet cannot be.
    pub(super) fn fail_visitor(&mut self, now: Time, channel: ChannelId, how: End) {
        let me = self.me().node;
        let Some(visitor) = self.visitors.get(&channel) else { return };
        let (packed, lent) = (visitor.packed, visitor.lent);
        if packed.is_some()
            && let Some(visitor) = self.visitors.get_mut(&channel)
        {
            visitor.over = Some(how);
            return;
        }
        match lent {
            Some((to, _)) => self.say(now, to, Frame::Travel(channel, Travel::Over(Which::Receiver, how))),
            None => self.hears(channel, me, HomeHears::Failed(how)),
        }
        self.lapse_receiver(now, channel, End::Lost);
    }

    /// Somebody uses the receiver.
    pub(super) fn hear_fetch(&mut self, now: Time, from: NodeId, channel: ChannelId, claim: u64) {
        match self.homes.get_mut(&channel) {
            Some(home)
                if (home.phase.claim == claim || planted!(ClaimIgnored))
                    && home.phase.is_away()
                    && home.phase.stage == Stage::Here =>
            {
                home.phase.stage = Stage::Asked(from);
                self.hears(channel, from, HomeHears::Leave);
            }
            _ => self.say(now, from, Frame::Travel(channel, Travel::Over(Which::Receiver, End::Lost))),
        }
    }

    /// Answers [`HomeHears::Leave`]: nothing is to be said any more of what was taken here.
    pub fn leave_home(&mut self, now: Time, channel: ChannelId) {
        let Some(home) = self.homes.get_mut(&channel) else { return };
        let Stage::Asked(to) = home.phase.stage else { return };
        home.phase.stage = Stage::Leaving(to);
        let epoch = home.rare.epoch + 1;
        let nodes: Vec<NodeId> = home.attached.keys().copied().collect();
        if planted!(MovingUntold) {
            return self.hear_quiet(channel);
        }
        for node in nodes {
            let addresses = self.addresses_of_any(to);
            self.tell(now, node, channel, FromHome::Moving { epoch, to, addresses });
            // What waits there for room says that it is quiet behind that.
            self.consider(node, channel);
        }
        if planted!(QuietSkipped) {
            self.hear_quiet(channel);
        }
        self.empty_if_quiet(channel);
    }

    /// All that the sender had said is here.
    pub(in crate::channel) fn hear_quiet(&mut self, channel: ChannelId) {
        if let Some(home) = self.homes.get_mut(&channel)
            && let Stage::Leaving(to) = home.phase.stage
        {
            home.phase.stage = Stage::Emptying(to);
            self.hears(channel, to, HomeHears::Empty);
        }
    }

    /// There is nobody who could say anything.
    pub(in crate::channel) fn empty_if_quiet(&mut self, channel: ChannelId) {
        if self.homes.get(&channel).is_some_and(|home| home.attached.is_empty()) {
            self.hear_quiet(channel);
        }
    }

    /// Answers [`HomeHears::Empty`]: the values of the channel's buffer, in order. Nothing of it is here any more.
    pub fn ship(&mut self, now: Time, channel: ChannelId, values: Vec<Bytes>) {
        let Some(home) = self.homes.get(&channel) else { return };
        let Stage::Emptying(to) = home.phase.stage else { return };
        let Some(home) = self.remove_home(channel) else { return };
        let values = if planted!(BufferLeft) { Vec::new() } else { values };
        let sender = home.attached.keys().next().map(|node| (*node, self.addresses_of_any(*node)));
        let credits = home.attached.values().filter(|half| !half.retired).map(|half| half.credits).sum();
        // A half that is gone, and has offers standing, makes them again at the new home, and says behind them that it is gone.
        let says_again = |how: &End| sender.is_some() && matches!(how, End::Gone | End::Lost);
        let state = Moved {
            epoch: home.rare.epoch + 1,
            transfer: home.rare.transfer,
            ended: home.phase.ended.clone().filter(|how| !says_again(how)),
            sender,
            credits,
            values: values.len() as u64,
        };
        self.say(now, to, Frame::ToHome(channel, ToHome::State(state)));
        for value in values {
            let total = value.len() as u64;
            self.say(now, to, Frame::ToHome(channel, ToHome::Value { head: Head::Sent, total, first: value }));
        }
        if let Some((node, trip)) = home.phase.lent {
            self.say(now, node, Frame::Travel(channel, Travel::Settled(Which::Receiver, trip)));
        }
    }

    /// What the home says to where its receiver is now.
    pub(in crate::channel) fn hear_old_home(
        &mut self,
        now: Time,
        from: NodeId,
        channel: ChannelId,
        said: ToHome,
    ) -> Result<(), &'static str> {
        let Some(visitor) = self.visitors.get_mut(&channel) else { return Ok(()) };
        if visitor.place.home != from || !visitor.fetching {
            // To a home that was here before.
            return Ok(());
        }
        match said {
            ToHome::State(state) => {
                if visitor.state.is_some() || state.epoch != visitor.place.epoch + 1 {
                    return Err("the state of another home");
                }
                visitor.missing = state.values;
                visitor.state = Some(state);
                visitor.givers.clear();
                self.complete(now, channel, from);
                Ok(())
            }
            ToHome::Value { head: Head::Sent, total, first } => {
                if visitor.state.is_none() || visitor.missing == 0 {
                    return Err("a value that its home has not announced");
                }
                if total > self.config.value_max as u64 {
                    // The home before this one took larger ones. It cannot be told, and nobody else has the value.
                    let charge = self.charge(from, channel, total, false, true)?;
                    let value = Begun { head: Head::Sent, total, wanted: false, charge };
                    if let Arrived::Unwanted(charge) = self.begin_value(from, channel, value, first) {
                        self.give_back(from, channel, charge);
                    }
                    self.fail_visitor(now, channel, End::Lost);
                    return Ok(());
                }
                let charge = self.charge(from, channel, total, true, true)?;
                let value = Begun { head: Head::Sent, total, wanted: true, charge };
                if let Arrived::Whole(_, value, charge) = self.begin_value(from, channel, value, first) {
                    self.buffered_value(now, channel, from, value, charge);
                }
                Ok(())
            }
            _ => Err("a word to a home that is not one yet"),
        }
    }

    /// A value of the buffer that came with the receiver.
    pub(in crate::channel) fn buffered_value(
        &mut self,
        now: Time,
        channel: ChannelId,
        from: NodeId,
        value: Bytes,
        charge: Charge,
    ) {
        let contact = self.contact(from);
        if let Some(visitor) = self.visitors.get_mut(&channel) {
            visitor.buffered.add(contact, charge);
            visitor.missing = visitor.missing.saturating_sub(1);
            self.hears(channel, from, HomeHears::Sent(value));
            self.complete(now, channel, from);
        }
    }

    fn complete(&mut self, now: Time, channel: ChannelId, from: NodeId) {
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
        if let Some((node, addresses)) = sender.filter(|(node, _)| !self.is_me(*node)) {
            if self.hear_of(node, from, &addresses) {
                self.connect(now, node);
            } else if let Some(state) = self.visitors.get_mut(&channel).and_then(|visitor| visitor.state.as_mut()) {
                state.sender = None;
                state.ended.get_or_insert(End::Lost);
            }
        }
        let ended = self.visitors.get(&channel).and_then(|visitor| visitor.state.as_ref()?.ended.clone());
        self.hears(channel, from, HomeHears::Arrived(ended));
    }

    /// Answers [`HomeHears::Arrived`]: the receiver can be used here.
    pub fn install(&mut self, now: Time, channel: ChannelId) {
        if !self.visitors.get(&channel).is_some_and(|visitor| visitor.arrived) {
            return;
        }
        // The home that it becomes is paid for as the visitor was.
        let paid_by = self.visitors.get_mut(&channel).and_then(|visitor| visitor.paid_by.take());
        let Some(visitor) = self.remove_visitor(channel) else { return };
        let Some(state) = visitor.state else { return self.free_end(paid_by) };
        let mut home = Home::new(NO_TERMS, declaration(), false);
        home.rare.epoch = state.epoch;
        home.rare.transfer = state.transfer;
        home.rare.paid_by = paid_by;
        home.phase.ended = state.ended;
        // No fetch of a home before this one is one of this.
        home.phase.claim = if planted!(StaleEpoch) { 0 } else { state.epoch << 32 };
        let sender = state.sender.map(|(node, _)| node);
        if let Some(node) = sender {
            home.attached.insert(node, Attached { told: false, credits: state.credits, ..Attached::new(0) });
        }
        self.homes.insert(channel, Box::new(home));
        if let Some(node) = sender
            && !visitor.takers.iter().any(|(taker, _)| *taker == node)
        {
            // It may have failed before it could say so here.
            self.say(now, node, Frame::Travel(channel, Travel::Where(state.epoch)));
        }
        if let Some(node) = visitor.lost_late {
            self.hears(channel, node, HomeHears::Lost(Vec::new()));
        }
        for (node, transfer) in visitor.takers {
            self.hear_take(now, node, channel, transfer);
        }
    }
}
