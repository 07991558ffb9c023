//! The bridge at the receiver's half: the channel's home.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin_core::agent::FromReceiver;
use dunlin_core::carrier::{Agent, AnyInlet, AnyOutlet, CarriedEnd, Returned, Value};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_proto::id::{ChannelId, Contact, NodeId, Request, Ticket};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{End, Failure, Poison, Terms, Which};
use dunlin_proto::{HomeHears, Machine, ProxyHears};
use dunlin_sorted::{SortedMap, SortedSet};

use super::link::{Tries, terms};
use super::linked::{LinkedHalf, has_ends};
use super::words::{failure, full_poison, poison, reason};
use crate::node::budget::Budget;
use crate::node::codec::{self, Encoding};
use crate::node::message::{self, Arriving, Completion, Leaving, NotNow, Reading, Reads, WINDOW};
use crate::node::state::{Bridge, Delivery, Linked, Says};

/// The bridge at the receiver's half: the channel's home.
pub(crate) struct ReceivingBridge {
    /// `None`: the bridge is over.
    inlet: Option<AnyInlet>,
    /// How many credits the inlet gave at first.
    credits: u32,
    /// How many values and bytes may be here that were sent on credits. `None`: the link has it.
    budget: Option<Budget>,
    /// Places of the buffer are promised to the sender. A reply always has its place.
    lends: bool,
    encoding: Encoding,
    /// Ends may come in its messages.
    carries_ends: bool,
    from: Option<NodeId>,
    /// `None`: so far no value had ends in it, was unread, or was to go on.
    values: Option<Box<Values>>,
    /// Whether the sender's half must offer large values unread.
    unread: Unread,
    /// The receiver came in a message, and the channel still has to follow: as soon as the receiver is used.
    visits: bool,
    /// The inlet was told that the sender has retired the channel: its own event of that is ignored.
    told_retired: bool,
    /// `None`: neither end has left or ended the channel.
    parting: Option<Box<Parting>>,
    /// The agent stands by, or has resumed and this bridge has not taken over.
    link: Option<Arc<LinkedHalf>>,
    tries: Tries,
    /// An offer has been settled: the agent may stand by.
    has_settled: bool,
}

/// The open state of values that are more than their bytes.
#[derive(Default)]
struct Values {
    /// The ends in values that are here and have not been received.
    arriving: SortedMap<Ticket, Arriving>,
    /// Offers that must be made anew, once they have come back.
    onward: SortedSet<Ticket>,
    /// Values that are being read, and for which request. `None`: for a receiver here.
    reading: SortedMap<Ticket, (Option<Request>, Reads)>,
}

/// How a home ends, or moves to its receiver's node.
#[derive(Default)]
struct Parting {
    /// How the receiver has ended it before the home arrived.
    early_ends: Vec<End>,
    /// The receiver, if it has left in a message.
    lent: Option<CarriedEnd>,
    /// That message was taken, and the receiver is gone.
    lapsed: bool,
    /// Where its values must go. They go as soon as the receiver is here.
    ships: Option<Contact>,
    /// The agent in that receiver's place, the buffered values, and those of them that have been written.
    outlet: Option<AnyOutlet>,
    shipping: VecDeque<Value>,
    shipped: Vec<(Bytes, Leaving, Value)>,
    /// The sender has retired the channel, and the receiver is away.
    retired: bool,
    /// The sender has poisoned it meanwhile. The receiver's place decides whether the poison is strong
    /// enough.
    poisoned: Option<Poison>,
    /// The sender is gone, and why.
    over: Option<End>,
}

impl Values {
    fn is_empty(&self) -> bool {
        self.arriving.is_empty() && self.onward.is_empty() && self.reading.is_empty()
    }
}

impl Parting {
    /// Whether the sender has ended the channel, and the receiver has not been fully notified.
    fn ends(&self) -> bool {
        self.retired || self.poisoned.is_some() || self.over.is_some()
    }
}

/// Whether the sender's half must offer large values unread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unread {
    /// It has not been asked to, and does not.
    Unsaid,
    Said,
    /// No longer: a receiver here takes them, or cannot read them.
    Never,
}

impl ReceivingBridge {
    /// `from`: the node of the sender, if it is already known.
    pub(crate) fn new(inlet: AnyInlet, credits: u32, budget: Budget, encoding: Encoding, from: Option<NodeId>) -> Self {
        Self {
            carries_ends: !codec::is_raw(inlet.shape()),
            inlet: Some(inlet),
            credits,
            budget: Some(budget),
            lends: true,
            encoding,
            from,
            values: None,
            unread: Unread::Unsaid,
            visits: false,
            told_retired: false,
            parting: None,
            link: None,
            tries: Tries::default(),
            has_settled: false,
        }
    }

    /// From here on values bypass the agent, if possible.
    fn link(&mut self, says: &Says<'_>) {
        let (Some(inlet), Some(from)) = (&self.inlet, self.from) else { return };
        let is_plain = self.lends && !self.visits && self.unread == Unread::Unsaid && !self.told_retired;
        let is_open = self.parting.is_some() || self.values.as_ref().is_some_and(|values| !values.is_empty());
        if self.link.is_some() || !self.tries.is_worth_one() || !is_plain || is_open {
            return;
        }
        let (Some(queue), Some(link)) = (inlet.word_sink(), says.link(self.encoding, Some(from))) else { return };
        link.set_budget(self.budget.take());
        let is_linked = inlet.link(terms(self.encoding, u64::MAX), link.clone());
        self.tries.count(is_linked);
        if is_linked {
            self.link = Some(LinkedHalf::new(queue, link, self.carries_ends));
        } else {
            self.budget = link.take_budget();
        }
    }

    /// If the agent has resumed, this bridge offers the values that have come.
    fn take_over(&mut self, says: &Says<'_>) {
        let (Some(returned), Some(from)) = (self.take_returned(), self.from) else { return };
        let giver = says.speak(|locked| locked.state.machine.contact(from));
        for value in returned {
            match value {
                Returned::Offer(ticket, bytes) => {
                    self.hear_from_sender(giver, HomeHears::Offered(ticket, bytes), says);
                }
                Returned::Grant(ticket, request, bytes) => {
                    self.hear_from_sender(giver, HomeHears::Granted(ticket, request, bytes), says);
                }
                Returned::Unreadable(why) => self.is_unreadable(&why.to_string(), says),
            }
        }
    }

    /// What the agent returns, if it has resumed.
    fn take_returned(&mut self) -> Option<Vec<Returned>> {
        let linked = self.link.as_ref()?;
        let returned = self.inlet.as_ref()?.take_returned()?;
        self.budget = linked.link.take_budget();
        self.link = None;
        Some(returned)
    }

    /// A value cannot be decoded, and its send is complete, so it cannot be refused: both ends must be
    /// notified.
    fn is_unreadable(&self, why: &str, says: &Says<'_>) {
        let reason = format!("a value that arrived could not be read: {why}");
        self.inlet.iter().for_each(|inlet| inlet.poison(reason.as_str().into()));
        // The home before this one has read it.
        if !self.visits {
            says.end_home(full_poison(&reason));
        }
    }

    /// Makes the agent resume.
    fn go_on(&mut self, says: &Says<'_>) {
        if self.link.is_some() {
            self.inlet.iter().for_each(AnyInlet::unlink);
            self.take_over(says);
        }
    }

    /// Stops the calls of the machine. Values that had come are no longer offered. Buffered values stay.
    fn end_link(&mut self) {
        if self.link.is_none() {
            return;
        }
        self.inlet.iter().for_each(AnyInlet::unlink);
        for value in self.take_returned().unwrap_or_default() {
            if let (Returned::Unreadable(why), Some(inlet)) = (value, &self.inlet) {
                inlet.poison(format!("a value that arrived could not be read: {why}").as_str().into());
            }
        }
    }

    fn values(&mut self) -> &mut Values {
        self.values.get_or_insert_default()
    }

    fn arriving(&self, ticket: Ticket) -> Option<&Arriving> {
        self.values.as_ref()?.arriving.get(&ticket)
    }

    fn take_arriving(&mut self, ticket: Ticket) -> Option<Arriving> {
        self.values.as_mut()?.arriving.remove(&ticket)
    }

    fn take_onward(&mut self, ticket: Ticket) -> bool {
        self.values.as_mut().is_some_and(|values| values.onward.remove(&ticket))
    }

    fn take_reading(&mut self, ticket: Ticket) -> Option<(Option<Request>, Reads)> {
        self.values.as_mut()?.reading.remove(&ticket)
    }

    fn parting(&mut self) -> &mut Parting {
        self.parting.get_or_insert_default()
    }

    /// The receiver has come in a message. Its channel stays where it is until the receiver is used.
    pub(crate) fn visiting(mut self) -> Self {
        self.visits = true;
        self
    }

    /// Marks the bridge of a place for a reply.
    pub(crate) fn of_reply(mut self) -> Self {
        self.lends = false;
        self
    }

    /// Acknowledges that the value of this offer was received. If the sender's node does not get that, it is
    /// lost, and with it the homes of the ends in the value: they end.
    fn received(
        &mut self,
        ticket: Ticket,
        from: NodeId,
        says: &Says<'_>,
        say: impl FnOnce(&mut Machine, Time, ChannelId, NodeId, Ticket) -> bool,
    ) {
        let (mut arriving, encoding) = (self.take_arriving(ticket), self.encoding);
        let due = says.speak(|locked| {
            if say(&mut locked.state.machine, locked.now, says.channel, from, ticket)
                && let Some(arriving) = arriving.take()
            {
                // The offer stood until now, so it came in the present life of the connection.
                let giver = locked.state.machine.contact(from);
                arriving.adopt(giver, encoding, locked);
            }
            if let Some(arriving) = arriving.take() {
                arriving.forget(locked);
            }
            std::mem::take(&mut locked.state.due)
        });
        // Its receiver may have replied already.
        due.into_iter().for_each(Delivery::run);
    }

    /// Releases the message of this offer, which was not received here.
    fn forget(&mut self, ticket: Ticket, says: &Says<'_>) {
        if let Some(arriving) = self.take_arriving(ticket) {
            says.speak(|locked| arriving.forget(locked));
        }
    }

    /// The message of this offer has arrived, with these ends, and may be received.
    fn announce(&mut self, ticket: Ticket, arriving: Option<Arriving>, giver: Contact, says: &Says<'_>) {
        if let (Some(mut arriving), Some(inlet)) = (arriving, &self.inlet) {
            let name = inlet.passes_on(ticket);
            says.speak(|locked| arriving.announce(name, says.channel, giver, locked));
            self.values().arriving.insert(ticket, arriving);
        }
    }

    /// Asks the sender to make this offer anew; no receiver here has it.
    fn ask_anew(&mut self, ticket: Ticket, from: NodeId, says: &Says<'_>) {
        self.forget(ticket, says);
        if !says.speak(|locked| locked.state.machine.onward(locked.now, says.channel, from, ticket)) {
            let why = "an end in a value of a dropped sender cannot be forwarded to another node";
            says.failed(from, ticket, Failure::Undecodable(why.to_owned()));
        }
    }

    /// If receivers of these offers are at other nodes, asks that large values stay where they are until
    /// their receiver is known.
    fn say_unread(&mut self, says: &Says<'_>) {
        if self.unread == Unread::Unsaid
            && let Some(from) = self.from
            && self.inlet.as_ref().is_some_and(AnyInlet::is_demanded)
        {
            self.unread = Unread::Said;
            says.speak(|locked| {
                let size = locked.state.straight_min;
                locked.state.machine.unread(locked.now, says.channel, from, size);
            });
        }
    }

    /// A receiver here takes this value, so it is read.
    fn bring(&mut self, ticket: Ticket, says: &Says<'_>) {
        let reading = self.arriving(ticket).and_then(Arriving::reading);
        let (Some(reading), Some(from)) = (reading, self.from) else { return };
        if self.unread == Unread::Said {
            says.speak(|locked| locked.state.machine.unread(locked.now, says.channel, from, 0));
        }
        self.unread = Unread::Never;
        let read = || (None, message::read(reading, ticket, from, says));
        self.values().reading.get_or_insert_with(ticket, read);
    }

    /// A value for a receiver here has been read.
    fn brought(&mut self, ticket: Ticket, message: Option<Bytes>, encoding: Encoding, says: &Says<'_>) {
        let (Some(inlet), Some(from)) = (&self.inlet, self.from) else { return };
        let read = message.ok_or_else(|| "the value could not be read from the node of the sender".to_owned());
        match read.and_then(|message| read_whole(inlet, message, encoding, says)) {
            // It may be with another node that has read it: then that will be reported.
            Ok(value) => {
                if inlet.bring(ticket, value).is_ok() {
                    self.forget(ticket, says);
                }
            }
            Err(why) => {
                if inlet.withdraw(ticket).is_some() {
                    self.forget(ticket, says);
                    says.failed(from, ticket, Failure::Undecodable(why));
                }
            }
        }
    }

    /// The requested value is here.
    fn grant(&mut self, ticket: Ticket, request: Request, value: Value, from: NodeId, says: &Says<'_>) {
        let Some(inlet) = &self.inlet else { return };
        if let Err(copy) = inlet.grant(ticket, request, value) {
            says.speak(|locked| locked.state.machine.decline(locked.now, says.channel, from, ticket, request));
            self.forget(ticket, says);
            drop(copy);
        } else {
            if let Some(arriving) = self.values.as_mut().and_then(|values| values.arriving.get_mut(&ticket)) {
                arriving.granted();
            }
        }
    }

    /// The bytes of a message with ends in it.
    fn with_ends(&self, bytes: &Bytes) -> Option<Bytes> {
        (self.carries_ends && has_ends(bytes)).then(|| bytes.clone())
    }

    /// Drops the ends of a value that cannot be received, and whose send is complete.
    fn drop_ends(&self, bytes: Option<Bytes>, giver: Contact, says: &Says<'_>) {
        if let Some(bytes) = bytes {
            says.speak(|locked| message::drop_ends(bytes, giver, self.encoding, locked));
        }
    }

    /// Moves the channel to its receiver's node: the values buffered here, with the ends in them.
    fn ship(&mut self, says: &Says<'_>) {
        let Some(parting) = &mut self.parting else { return };
        let Some(to) = parting.ships else { return };
        if let Some(end) = parting.lent.take() {
            let Agent::Outlet(outlet) = end.into_agent() else { return };
            parting.shipping = outlet.take_buffered().into();
            parting.outlet = Some(outlet);
        }
        if parting.outlet.is_none() {
            return;
        }
        let bytes_max = says.speak(|locked| locked.state.machine.value_max());
        while let Some(value) = parting.shipping.pop_front() {
            match message::leave(&value, self.encoding, bytes_max, Completion::Sent, says) {
                Ok((bytes, leaving)) => parting.shipped.push((bytes, leaving, value)),
                // An end in it has come, and its home is not known here yet.
                Err(NotNow::Later) => return parting.shipping.push_front(value),
                Err(NotNow::Never(why)) => {
                    // The receiver would not notice that a value is missing: it is notified that the channel
                    // is over.
                    let shipped = std::mem::take(&mut parting.shipped);
                    shipped.into_iter().for_each(|(_, leaving, _)| leaving.stay(says));
                    says.end_home(full_poison(&format!("a value that was buffered could not be written again: {why}")));
                    return self.leave();
                }
            }
        }
        let (values, left): (Vec<_>, Vec<_>) =
            parting.shipped.drain(..).map(|(bytes, leaving, value)| (bytes, (leaving, value))).unzip();
        says.speak(|locked| {
            left.iter().for_each(|(leaving, _): &(Leaving, Value)| leaving.open_homes(to.node, locked));
            locked.state.machine.ship(locked.now, says.channel, values);
        });
        for (leaving, value) in left {
            leaving.hand_over(value, to, says);
        }
        self.leave();
    }

    /// Handles all pending events of the receiver's half.
    fn flush(&mut self, says: &Says<'_>) {
        while let Some(inlet) = &mut self.inlet
            && let Poll::Ready(event) = inlet.poll(&mut Context::from_waker(Waker::noop()))
        {
            if !self.hear(event, says) {
                self.inlet = None;
            }
        }
    }

    /// Drops both agents, without notifying the ends here.
    fn leave(&mut self) {
        if let Some(parting) = &mut self.parting {
            parting.outlet = None;
        }
        self.inlet = None;
    }

    /// The sender has ended the channel, or is lost.
    fn ended(&mut self, how: End, says: &Says<'_>) {
        if self.inlet.is_none() {
            return;
        }
        match how {
            End::Retired => self.parting().retired = true,
            End::Poisoned(poison) => {
                let poisoned = &mut self.parting().poisoned;
                let is_weaker = poisoned.as_ref().is_some_and(|before| before.strength >= poison.strength);
                if !is_weaker {
                    *poisoned = Some(poison);
                }
            }
            over => {
                self.parting().over.get_or_insert(over);
            }
        }
        self.finish(says);
    }

    /// The sender has ended the channel, or is gone. A receiver that has left is notified where it is, behind
    /// the buffered values.
    fn finish(&mut self, says: &Says<'_>) {
        let Some(parting) = self.parting.as_mut().filter(|parting| parting.ends()) else { return };
        if says.speak(|locked| locked.state.machine.receiver_is_away(says.channel)) {
            return;
        }
        if let (Some(poison), Some(inlet)) = (parting.poisoned.take(), &self.inlet) {
            inlet.poison(reason(&poison));
        }
        if std::mem::take(&mut parting.retired)
            && let Some(inlet) = &self.inlet
        {
            self.told_retired = true;
            inlet.retire();
        }
        let Some(over) = parting.over.clone() else { return };
        // A reply always has its place, and comes with the event that its sender is gone.
        self.flush(says);
        says.end_home(End::Gone);
        let inlet = self.inlet.take();
        if over == End::Lost
            && let Some(inlet) = inlet
        {
            lose(inlet, says);
        }
    }

    /// The receiver has ended a channel that has not followed it. `false`: the channel never will.
    fn end_early(&mut self, how: End, says: &Says<'_>) -> bool {
        let channel = says.channel;
        let is_over = says.speak(|locked| {
            let machine = &mut locked.state.machine;
            let is_unused = how == End::Gone && machine.is_guest(channel, Which::Receiver);
            if is_unused {
                machine.drop_receiver(locked.now, channel);
            } else {
                machine.use_receiver(locked.now, channel);
            }
            is_unused
        });
        if !is_over {
            // The home is notified as soon as it is here.
            self.parting().early_ends.push(how);
        }
        !is_over
    }

    /// Handles an event from the sending half.
    fn hear_from_sender(&mut self, giver: Contact, heard: HomeHears, says: &Says<'_>) {
        let (channel, from) = (says.channel, giver.node);
        let Some(inlet) = &self.inlet else {
            if let HomeHears::Sent(bytes) = heard {
                says.drained(bytes.len());
                self.drop_ends(self.with_ends(&bytes), giver, says);
            }
            return;
        };
        match heard {
            HomeHears::Attached => {
                self.from = Some(from);
                self.say_unread(says);
            }
            HomeHears::OfferedUnread(ticket, bytes) => match Reading::parse(bytes.clone()) {
                Some(_) => {
                    self.announce(ticket, Some(Arriving::unread(bytes, self.encoding)), giver, says);
                    if let Some(inlet) = &self.inlet {
                        inlet.offer_unread(ticket);
                    }
                }
                None => says.failed(from, ticket, Failure::Undecodable(NO_PLACE.to_owned())),
            },
            HomeHears::GrantedUnread(ticket, request, bytes) => match Reading::parse(bytes.clone()) {
                Some(reading) => {
                    // Before it is passed on. It is released if that does not happen.
                    self.announce(ticket, Some(Arriving::unread(bytes, self.encoding)), giver, says);
                    if self.inlet.as_ref().is_none_or(|inlet| !inlet.grant_unread(ticket, request)) {
                        self.forget(ticket, says);
                        let reads = message::read(reading, ticket, from, says);
                        self.values().reading.insert(ticket, (Some(request), reads));
                    }
                }
                None => {
                    inlet.withdraw(ticket);
                    says.failed(from, ticket, Failure::Undecodable(NO_PLACE.to_owned()));
                }
            },
            HomeHears::Offered(ticket, bytes) => match message::arrive(inlet.shape(), bytes, self.encoding, says) {
                Ok((value, arriving)) => {
                    self.announce(ticket, arriving, giver, says);
                    if let Some(inlet) = &self.inlet {
                        inlet.offer(ticket, value);
                    }
                    self.say_unread(says);
                }
                Err(why) => says.failed(from, ticket, Failure::Undecodable(why)),
            },
            HomeHears::OfferedByChoice(ticket, choice) => inlet.offer_choice(ticket, choice),
            HomeHears::Granted(ticket, request, bytes) => {
                match message::arrive(inlet.shape(), bytes, self.encoding, says) {
                    Ok((value, arriving)) => {
                        self.announce(ticket, arriving, giver, says);
                        self.grant(ticket, request, value, from, says);
                    }
                    Err(why) => {
                        inlet.withdraw(ticket);
                        says.failed(from, ticket, Failure::Undecodable(why));
                    }
                }
            }
            HomeHears::Sent(bytes) => {
                let (len, with_ends) = (bytes.len(), self.with_ends(&bytes));
                match message::arrive(inlet.shape(), bytes, self.encoding, says) {
                    Ok((value, arriving)) => {
                        // First: its ends are here, whatever becomes of it, and its receiver may send them on
                        // at once.
                        if let Some(arriving) = arriving {
                            says.speak(|locked| arriving.adopt(giver, self.encoding, locked));
                        }
                        if self.visits {
                            return inlet.restore(value);
                        }
                        // The machine has counted the credits; but a sender may have sent after its own end
                        // of the channel. No process waits for such a value.
                        let Ok(buffered) = inlet.push(value) else { return says.drained(len) };
                        if let Some(places) = self.budget.as_mut().and_then(|budget| budget.arrived(len, buffered)) {
                            inlet.lend_at_most(places);
                        }
                    }
                    Err(why) => {
                        says.drained(len);
                        self.is_unreadable(&why, says);
                        self.drop_ends(with_ends, giver, says);
                    }
                }
            }
            HomeHears::Announced => inlet.ask_awaited(),
            HomeHears::Withdraw(ticket) => {
                if let Some(copy) = inlet.withdraw(ticket) {
                    self.take_reading(ticket);
                    self.forget(ticket, says);
                    says.speak(|locked| locked.state.machine.withdrawn(locked.now, channel, from, ticket));
                    drop(copy);
                }
            }
            HomeHears::Revoke(ticket) => {
                inlet.revoke(ticket);
                // A value that has not come yet has not been granted here.
                if let Some((Some(request), _)) = self.take_reading(ticket) {
                    says.speak(|locked| locked.state.machine.decline(locked.now, channel, from, ticket, request));
                }
            }
            HomeHears::Ended(how) => self.ended(how, says),
            HomeHears::Take => {
                self.from = Some(from);
                let promised = says.speak(|locked| locked.state.machine.credits_of(channel, from));
                self.credits = if self.lends { inlet.credits_anew(promised) } else { 0 };
                let terms = Terms {
                    window: WINDOW,
                    credits: self.credits,
                    value_max: says.speak(|locked| locked.state.machine.value_max()),
                };
                says.speak(|locked| locked.state.machine.admit(locked.now, channel, from, terms));
                // This is another sending half.
                if self.unread == Unread::Said {
                    self.unread = Unread::Unsaid;
                }
                self.say_unread(says);
            }
            HomeHears::Leave => {
                // Nothing is received here; but values received before must be acknowledged first.
                self.flush(says);
                says.speak(|locked| locked.state.machine.leave_home(locked.now, channel));
            }
            HomeHears::Empty => {
                self.parting().ships = Some(giver);
                self.ship(says);
            }
            HomeHears::Arrived(how) => {
                self.visits = false;
                says.speak(|locked| locked.state.machine.install(locked.now, channel));
                let early = self.parting.as_mut().map(|parting| std::mem::take(&mut parting.early_ends));
                for end in early.into_iter().flatten() {
                    if !end_by_receiver(end, says) {
                        return self.inlet = None;
                    }
                }
                if let Some(how) = how {
                    self.ended(how, says);
                    if says.speak(|locked| locked.state.machine.home_is_left(channel)) {
                        self.ended(End::Gone, says);
                    }
                }
            }
            HomeHears::Lapsed(_) => {
                self.parting().lapsed = true;
                // Its receiver is gone, which its inlet reports.
                self.parting().lent = None;
            }
            HomeHears::Failed(how) => {
                let inlet = self.inlet.take();
                match (how, inlet) {
                    (End::Lost, Some(inlet)) => lose(inlet, says),
                    (End::Poisoned(poison), Some(inlet)) => inlet.poison(reason(&poison)),
                    _ => {}
                }
                if let Some(parting) = &mut self.parting {
                    parting.lent = None;
                }
            }
            HomeHears::Lost(_) => self.ended(End::Lost, says),
        }
    }

    /// `false`: the receiver has gone.
    fn hear(&mut self, event: FromReceiver<Value>, says: &Says<'_>) -> bool {
        let channel = says.channel;
        let end = match event {
            // Its sender retired it and knows. To its own home it is a channel like any other: it may go on
            // to another node.
            FromReceiver::Retired if self.told_retired => return true,
            FromReceiver::Retired => Some(End::Retired),
            FromReceiver::Poisoned(ref reason) => Some(End::Poisoned(poison(reason))),
            FromReceiver::Gone => Some(End::Gone),
            FromReceiver::Down => Some(End::Lost),
            _ => None,
        };
        if let Some(end) = end {
            if self.visits {
                return self.end_early(end, says);
            }
            return end_by_receiver(end, says);
        }
        if self.visits && matches!(event, FromReceiver::Used) {
            says.speak(|locked| locked.state.machine.use_receiver(locked.now, channel));
            return true;
        }
        if matches!(event, FromReceiver::Awaited) {
            says.speak(|locked| locked.state.machine.awaited(channel));
            return true;
        }
        // Without a sender elsewhere no value was offered from there.
        let Some(from) = self.from else { return true };
        if let FromReceiver::Taken(ticket)
        | FromReceiver::Held(ticket)
        | FromReceiver::Failed(ticket, ..)
        | FromReceiver::Lost(ticket, ..) = event
        {
            self.take_onward(ticket);
            self.take_reading(ticket);
        }
        match event {
            FromReceiver::Taken(ticket) => {
                // Before the sender makes its next offer. The receiver of this value may have requested it
                // after it was offered.
                self.say_unread(says);
                self.received(ticket, from, says, Machine::taken);
            }
            FromReceiver::Held(ticket) => self.received(ticket, from, says, Machine::held),
            FromReceiver::Released(ticket) => {
                says.speak(|locked| locked.state.machine.released(locked.now, channel, from, ticket));
            }
            // The values here are copies, and their ends have not been announced.
            FromReceiver::Failed(ticket, copy, why) => {
                self.forget(ticket, says);
                says.failed(from, ticket, failure(why));
                drop(copy);
            }
            FromReceiver::Withdrawn(ticket, copy) if self.take_onward(ticket) => {
                self.ask_anew(ticket, from, says);
                drop(copy);
            }
            FromReceiver::Withdrawn(ticket, copy) => {
                self.forget(ticket, says);
                says.speak(|locked| locked.state.machine.withdrawn(locked.now, channel, from, ticket));
                drop(copy);
            }
            FromReceiver::Lost(ticket, copy, _) => {
                self.forget(ticket, says);
                says.failed(from, ticket, Failure::Unknown);
                drop(copy);
            }
            FromReceiver::Reserve(ticket, _) if self.arriving(ticket).is_some_and(Arriving::is_unread) => {
                self.bring(ticket, says);
            }
            FromReceiver::Reserve(ticket, request) => {
                // It may be in flight, for a request that has been given up.
                let reading = self.values.as_mut().and_then(|values| values.reading.get_mut(&ticket));
                if let Some((wanted, _)) = reading {
                    *wanted = Some(request);
                    return true;
                }
                says.speak(|locked| locked.state.machine.reserve(locked.now, channel, from, ticket, request));
            }
            FromReceiver::Abort(ticket, copy) => {
                self.forget(ticket, says);
                says.speak(|locked| locked.state.machine.abort(locked.now, channel, from, ticket));
                drop(copy);
            }
            FromReceiver::Credit(places) => {
                let (values, bytes) = match (&self.inlet, &mut self.budget) {
                    (Some(inlet), Some(budget)) => budget.left(inlet.buffered()),
                    _ => (0, 0),
                };
                says.speak(|locked| {
                    let machine = &mut locked.state.machine;
                    machine.drained(channel, values, bytes);
                    machine.credit(locked.now, channel, from, places);
                });
            }
            // The channel is here.
            FromReceiver::Used | FromReceiver::Awaited => {}
            FromReceiver::Retired | FromReceiver::Poisoned(_) | FromReceiver::Gone | FromReceiver::Down => {
                unreachable!("it returned above")
            }
        }
        true
    }
}

/// The receiver has ended the channel. `false`: neither the receiver nor the sender will cause another event.
/// Before it is gone it may poison a channel that it has retired, and release held values.
fn end_by_receiver(end: End, says: &Says<'_>) -> bool {
    let is_last = matches!(end, End::Gone | End::Lost);
    let is_over = says.speak(|locked| {
        let machine = &mut locked.state.machine;
        let has_sender = !machine.home_is_left(says.channel);
        machine.end_home(locked.now, says.channel, end);
        // A sender that was still to come here has been notified, and answers nothing.
        has_sender && !machine.has_home(says.channel)
    });
    !is_last && !is_over
}

const NO_PLACE: &str = "the place where the value can be read is not encoded by dunlin";

/// Decodes a message that was [read](message::read), which has no ends.
fn read_whole(inlet: &AnyInlet, message: Bytes, encoding: Encoding, says: &Says<'_>) -> Result<Value, String> {
    match message::arrive(inlet.shape(), message, encoding, says)? {
        (value, None) => Ok(value),
        (_, Some(_)) => Err("a message that was offered unread has ends in it".to_owned()),
    }
}

impl Bridge for ReceivingBridge {
    fn which(&self) -> Which {
        Which::Receiver
    }

    fn core(&self) -> Option<(CoreId, Encoding)> {
        self.inlet.as_ref().map(|inlet| (inlet.channel(), self.encoding))
    }

    fn rests(&self) -> bool {
        let parting = self.parting.as_ref();
        self.link.is_none() && parting.is_none_or(|parting| parting.early_ends.is_empty() && !parting.ends())
    }

    fn matched(&mut self) {
        self.inlet.iter().for_each(|inlet| inlet.unmatched(None));
    }

    fn lent(&mut self, end: CarriedEnd, says: &Says<'_>) {
        self.go_on(says);
        if self.visits {
            // The receiver was not used here: the channel need not follow it. Its agent goes first, which
            // would otherwise report that it is gone.
            self.leave();
        } else if !self.parting().lapsed {
            self.parting().lent = Some(end);
            self.ship(says);
        }
    }

    fn retry(&mut self, says: &Says<'_>) {
        self.take_over(says);
        self.ship(says);
        self.finish(says);
    }

    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()> {
        if self.link.is_some() && self.inlet.as_ref().is_some_and(|inlet| inlet.stands_by(cx)) {
            return Poll::Pending;
        }
        self.take_over(says);
        loop {
            let Some(inlet) = &mut self.inlet else {
                if let Some(left) = self.values.take() {
                    says.speak(|locked| left.arriving.into_values().for_each(|arriving| arriving.forget(locked)));
                }
                return Poll::Ready(());
            };
            match inlet.poll(cx) {
                Poll::Pending => {
                    if std::mem::take(&mut self.has_settled) {
                        self.link(says);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(event) => {
                    self.go_on(says);
                    self.has_settled |= matches!(event, FromReceiver::Taken(_) | FromReceiver::Credit(_));
                    if !self.hear(event, says) {
                        self.inlet = None;
                    }
                }
            }
        }
    }

    fn unlink(&mut self, says: &Says<'_>) {
        self.go_on(says);
    }

    fn linked(&self) -> Option<Arc<dyn Linked>> {
        self.link.clone().map(|linked| linked as Arc<dyn Linked>)
    }

    fn hear_sender(&mut self, giver: Contact, heard: HomeHears, says: &Says<'_>) {
        let heard = match &self.link {
            Some(linked) => linked.hear_sender(heard),
            None => Err(heard),
        };
        if let Err(heard) = heard {
            self.go_on(says);
            self.has_settled |= matches!(heard, HomeHears::Attached);
            self.hear_from_sender(giver, heard, says);
        }
    }

    fn read(&mut self, ticket: Ticket, message: Option<Bytes>, says: &Says<'_>) {
        let Some((request, reads)) = self.take_reading(ticket) else { return };
        let (Some(inlet), Some(from)) = (&self.inlet, self.from) else { return };
        let Some(request) = request else { return self.brought(ticket, message, reads.encoding, says) };
        let Some(message) = message else {
            inlet.withdraw(ticket);
            return says.failed(from, ticket, Failure::Unread);
        };
        match read_whole(inlet, message, reads.encoding, says) {
            Ok(value) => self.grant(ticket, request, value, from, says),
            Err(why) => {
                inlet.withdraw(ticket);
                says.failed(from, ticket, Failure::Undecodable(why));
            }
        }
    }

    fn onward(&mut self, ticket: Ticket, says: &Says<'_>) {
        let (Some(inlet), Some(from), Some(arriving)) = (&self.inlet, self.from, self.arriving(ticket)) else {
            return;
        };
        if arriving.is_granted() {
            // The node that could not pass it on has given up its reservation.
            says.speak(|locked| locked.state.machine.onward(locked.now, says.channel, from, ticket));
        } else if let Some(copy) = inlet.withdraw(ticket) {
            self.ask_anew(ticket, from, says);
            drop(copy);
        } else {
            self.values().onward.insert(ticket);
        }
    }

    fn late_values(&self) -> Option<Encoding> {
        self.carries_ends.then_some(self.encoding)
    }

    fn hear_home(&mut self, _: ProxyHears, _: &Says<'_>) {
        debug_assert!(false, "a home is no sending half");
    }

    fn connection_lost(&mut self, _: &Says<'_>) {}

    fn into_home(mut self: Box<Self>) -> Option<(AnyInlet, u32)> {
        self.end_link();
        self.inlet.take().map(|inlet| {
            // Values in this memory need no bytes.
            inlet.lend_at_most(u32::MAX);
            (inlet, self.credits)
        })
    }

    fn poison(&mut self, text: &str) {
        self.end_link();
        if let Some(inlet) = self.inlet.take() {
            inlet.poison(text.into());
        }
    }

    fn fail(&mut self, text: &str, says: &Says<'_>) {
        self.end_link();
        says.end_home(full_poison(text));
        if let Some(inlet) = &self.inlet {
            inlet.poison(text.into());
        }
    }
}

/// The sender is lost, with its node or with this one.
fn lose(inlet: AnyInlet, says: &Says<'_>) {
    if says.own_node_leaves() {
        inlet.own_node_leaves();
    }
    inlet.down();
}

/// The node has left, or its driver is gone: receives fail with that, and do not take it for an orderly end.
impl Drop for ReceivingBridge {
    fn drop(&mut self) {
        self.end_link();
        if let Some(inlet) = self.inlet.take() {
            inlet.own_node_leaves();
            inlet.down();
        }
    }
}
