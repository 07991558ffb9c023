//! The bridge at the sender's half.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use dunlin_core::agent::{Event, Reserved};
use dunlin_core::carrier::{AnyOutlet, Open, Value};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_core::{MessageId, Reason, Strength, Why};
use dunlin_proto::difference;
use dunlin_proto::id::{ChannelId, ChoiceId, Contact, NodeId, Request, Ticket};
use dunlin_proto::wire::{Declaration, End, Failure, Rejection, Terms, Which};
use dunlin_proto::{HomeHears, ProxyHears};
use dunlin_sorted::SortedMap;

use super::link::{Tries, terms};
use super::linked::LinkedHalf;
use super::words::{full_poison, poison, reason, why_failed};
use crate::node::budget;
use crate::node::codec::Encoding;
use crate::node::message::{self, Completion, Leaving, NotNow, OVERHEAD, Shelved};
use crate::node::name::describe;
use crate::node::state::{Bridge, Linked, Locked, Says};

/// A value that was offered elsewhere, kept until its outcome is known.
struct Kept {
    value: Value,
    /// The ends in it.
    leaving: Leaving,
    /// Its length in bytes.
    bytes: u64,
    /// It was sent as a grant.
    granted: bool,
    /// It can be read here: it was offered unread.
    _shelved: Option<Shelved>,
}

impl Kept {
    /// It has not been taken.
    fn back(self, says: &Says<'_>) -> Value {
        self.leaving.stay(says);
        self.value
    }

    /// Whether it has been taken is unknown.
    fn doubtful(self, says: &Says<'_>) -> Value {
        self.leaving.back(says);
        self.value
    }
}

/// An offer that waits for its home.
enum Early {
    Firm(Value),
    Choice(ChoiceId),
}

/// Offers from this number on have values that were in the channel's buffer when its receiver left: their
/// sends are complete.
const WAS_BUFFERED: Ticket = 1 << 63;

/// The bridge at the sender's half.
pub(crate) struct SendingBridge {
    /// `None`: the bridge is over.
    outlet: Option<AnyOutlet>,
    /// `None`: it has not been found.
    home: Option<NodeId>,
    /// The declaration of this end that the home was given.
    declared: Option<Box<Declaration>>,
    /// Offers made before the home had sent its terms.
    early: Vec<(Ticket, Early)>,
    /// How the channel was ended here before the home was known: by poison that may be too weak, and then for
    /// good.
    early_ends: Vec<End>,
    encoding: Encoding,
    /// The home's limit, once it has answered; until then nothing is fetched from the sender.
    value_max: Option<u64>,
    kept: SortedMap<Ticket, Kept>,
    /// The sender is gone, and its offers are not settled.
    gone: bool,
    /// The channel was retired here, which is sent behind the buffered values.
    retires: bool,
    /// The sender's events behind a value that cannot go yet, with that value first: an end in it is not at
    /// rest.
    blocked: VecDeque<Event<Value>>,
    /// Values to be offered again at a new home, which cannot go yet.
    anew: Vec<(Ticket, Value)>,
    /// Reservations to be tried again when the choice is no longer busy.
    later: SortedMap<Ticket, Request>,
    /// Ends in values whose outcome was reported to the user as unknown, though it may still arrive.
    unsettled: SortedMap<Ticket, Leaving>,
    /// The user has asked to be notified at once when the connection is lost.
    fail_fast: bool,
    /// For a reply: its sender does not wait, and would not notice that it could not go.
    is_reply: bool,
    /// The home passes messages on to other nodes, so the ends in them must be written in a form that can go
    /// on.
    onward: bool,
    /// Values of this many bytes or more are offered unread. 0: none.
    unread_min: u64,
    /// The agent stands by, or has resumed and this bridge has not taken over.
    link: Option<Arc<LinkedHalf>>,
    tries: Tries,
}

impl SendingBridge {
    pub(crate) fn new(outlet: AnyOutlet, home: Option<NodeId>, encoding: Encoding, fail_fast: bool) -> Self {
        Self {
            outlet: Some(outlet),
            home,
            declared: None,
            early: Vec::new(),
            early_ends: Vec::new(),
            encoding,
            value_max: None,
            kept: SortedMap::new(),
            gone: false,
            retires: false,
            blocked: VecDeque::new(),
            anew: Vec::new(),
            later: SortedMap::new(),
            unsettled: SortedMap::new(),
            fail_fast,
            is_reply: false,
            onward: false,
            unread_min: 0,
            link: None,
            tries: Tries::default(),
        }
    }

    /// From here on values bypass the agent, if possible. Called where an offer has just been settled.
    fn link(&mut self, says: &Says<'_>) {
        let (Some(outlet), Some(value_max)) = (&self.outlet, self.value_max) else { return };
        let is_plain = !self.is_reply && !self.fail_fast && !self.onward && self.unread_min == 0;
        let is_open = self.has_offers() || !self.later.is_empty() || !self.early_ends.is_empty();
        if self.link.is_some() || !self.tries.is_worth_one() || !is_plain || is_open || self.gone || self.retires {
            return;
        }
        let (Some(queue), Some(link)) = (outlet.word_sink(), says.link(self.encoding, None)) else { return };
        let is_linked = outlet.link(terms(self.encoding, value_max.saturating_sub(OVERHEAD)), link.clone());
        self.tries.count(is_linked);
        self.link = is_linked.then(|| LinkedHalf::new(queue, link, false));
    }

    /// Stops the calls of the machine.
    fn end_link(&mut self) {
        if self.link.is_some() {
            self.outlet.iter().for_each(AnyOutlet::unlink);
            self.take_over_offers();
        }
    }

    /// If the agent has resumed, this bridge takes over its open offers.
    fn take_over(&mut self, says: &Says<'_>) {
        for (ticket, request) in self.take_over_offers() {
            self.reserve(ticket, request, says);
        }
    }

    /// Takes over the open offers, and returns the requests for them.
    fn take_over_offers(&mut self) -> Vec<(Ticket, Request)> {
        let open = self.outlet.as_ref().filter(|_| self.link.is_some()).and_then(AnyOutlet::take_over);
        let Some(Open { offers, requests }) = open else { return Vec::new() };
        let link = self.link.take();
        for (ticket, value, granted) in offers {
            let leaving = link.as_ref().and_then(|linked| linked.link.take_asked(ticket));
            let leaving = leaving.unwrap_or_else(|| Leaving::nothing(self.encoding));
            self.kept.insert(ticket, Kept { value, leaving, bytes: 0, granted, _shelved: None });
        }
        while let Some(ticket) = link.as_ref().and_then(|linked| linked.link.next_refused()) {
            if let (Some(kept), Some(outlet)) = (self.kept.remove(&ticket), &self.outlet) {
                outlet.give_back(ticket, kept.value);
            }
        }
        requests
    }

    /// Makes the agent resume.
    fn go_on(&mut self, says: &Says<'_>) {
        if self.link.is_some() {
            self.outlet.iter().for_each(AnyOutlet::unlink);
            self.take_over(says);
        }
    }

    /// Whether the agent stands by. Otherwise it must be polled.
    fn poll_linked(&self, cx: &Context<'_>) -> bool {
        let Some(linked) = &self.link else { return false };
        linked.hear_refused();
        !linked.link.is_stuck() && self.outlet.as_ref().is_some_and(|outlet| outlet.stands_by(cx))
    }

    fn has_offers(&self) -> bool {
        let waits = !self.early.is_empty() || !self.blocked.is_empty() || !self.anew.is_empty();
        waits || !self.kept.is_empty() || !self.unsettled.is_empty()
    }

    /// For a reply: the home's terms are known in advance. `first`: what its holder has done, to be handled
    /// when the bridge is told to try [again](Told::Retry).
    pub(crate) fn for_reply(mut self, value_max: u64, first: Option<Event<Value>>) -> Self {
        self.value_max = Some(value_max);
        self.blocked.extend(first);
        self.is_reply = true;
        self
    }

    /// Its sender has come in a message. `granted`: if its home already knows it. `has_retired`: it is back
    /// here, where it has retired the channel.
    pub(crate) fn arrived(mut self, granted: Option<(Terms, u32)>, is_reply: bool, has_retired: bool) -> Self {
        self.is_reply = is_reply;
        let outlet = self.outlet.as_ref();
        if let Some((terms, credits)) = granted {
            self.value_max = Some(terms.value_max);
            outlet.iter().for_each(|outlet| outlet.credit(if has_retired { 0 } else { credits }));
        }
        if has_retired {
            outlet.iter().for_each(|outlet| outlet.retire());
        }
        self
    }

    /// Takes early offers back, as if they had not been made.
    fn give_back_early(&mut self) {
        let Some(outlet) = &self.outlet else { return };
        for (ticket, early) in self.early.drain(..) {
            if let Early::Firm(value) = early {
                outlet.give_back(ticket, value);
            }
        }
    }

    /// Handles events while nothing can be offered yet: offers wait, and can be withdrawn.
    fn hear_early(&mut self, event: Event<Value>, says: &Says<'_>) -> bool {
        if matches!(event, Event::FirmOffer(..) | Event::ChoiceOffer(..) | Event::Watched) {
            // If its sender came in a message, this is its first use.
            says.speak(|locked| locked.state.machine.use_sender(locked.now, says.channel));
        }
        let Some(outlet) = &self.outlet else { return false };
        match event {
            Event::FirmOffer(ticket, value) => self.early.push((ticket, Early::Firm(value))),
            Event::ChoiceOffer(ticket, choice) => self.early.push((ticket, Early::Choice(choice))),
            Event::AskedBack(ticket) => {
                if let Some(at) = self.early.iter().position(|(early, _)| *early == ticket) {
                    let value = match self.early.remove(at).1 {
                        Early::Firm(value) => Some(value),
                        Early::Choice(_) => None,
                    };
                    outlet.withdrawn(ticket, value);
                }
            }
            Event::Retired if self.holds_buffered() => {
                let (stands, fails) =
                    std::mem::take(&mut self.early).into_iter().partition(|(ticket, _)| *ticket >= WAS_BUFFERED);
                self.early = fails;
                fail_early(outlet, &mut self.early, &Why::Closed);
                self.early = stands;
                self.retires = true;
            }
            Event::Retired => self.end_early(End::Retired, says),
            Event::Poisoned(reason) if reason.strength() < Strength::FULL => {
                self.tell_end(End::Poisoned(poison(&reason)), says)
            }
            Event::Poisoned(reason) => self.end_early(End::Poisoned(poison(&reason)), says),
            // The sender of a reply is gone at once.
            Event::Gone | Event::Lost if !self.early.is_empty() => self.blocked.push_back(event),
            Event::Gone | Event::Lost => {
                // A known home will answer, and must know that this half is gone.
                says.end_proxy(over(&event));
                return false;
            }
            // Nothing was sent on credits, and nothing reserved.
            Event::Sent(_) | Event::Unlocked(_) | Event::Revoke(_) | Event::Watched => {}
        }
        true
    }

    /// The sender has ended the channel, and its home has not answered: waiting offers fail.
    fn end_early(&mut self, how: End, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        fail_early(outlet, &mut self.early, &why_ended(&how));
        self.tell_end(how, says);
    }

    /// Notifies the home of the end, as soon as it is known.
    fn tell_end(&mut self, how: End, says: &Says<'_>) {
        if self.home.is_some() {
            says.end_proxy(how);
        } else {
            self.early_ends.push(how);
        }
    }

    fn encode(&self, value: &Value, completion: Completion, says: &Says<'_>) -> Result<(Bytes, Leaving), NotNow> {
        self.watch_size(message::leave(value, self.encoding, self.value_max.unwrap_or(0), completion, says), says)
    }

    /// Encodes an offer, which may itself have come from another node: then the ends in it are not this
    /// node's.
    fn encode_offer(&self, ticket: Ticket, value: &Value, says: &Says<'_>) -> Result<(Bytes, Leaving), NotNow> {
        let (home, bytes_max) = (self.home, self.value_max.unwrap_or(0));
        if let Some(name) = self.outlet.as_ref().and_then(|outlet| outlet.passed_on(ticket))
            && let Some(written) = message::pass_on(name, home, self.encoding, bytes_max, says)
        {
            return self.watch_size(written, says);
        }
        if value.is_unread() {
            // This node does not know where it can be read: it was offered to another node of this program,
            // of another application; or its sender is gone meanwhile.
            return Err(NotNow::Later);
        }
        self.encode(value, if self.onward { Completion::TakenAnywhere } else { Completion::Taken }, says)
    }

    /// Keeps a large message here and returns the place where it can be read, if values are offered unread;
    /// with the message's length.
    fn shelve(&self, message: Bytes, leaving: &Leaving, says: &Says<'_>) -> (Bytes, Option<Shelved>, u64) {
        let bytes = message.len() as u64;
        if self.unread_min == 0 || bytes < self.unread_min || leaving.has_ends() {
            return (message, None, bytes);
        }
        let (place, shelved) = message::shelve(message, self.encoding, says);
        (place, Some(shelved), bytes)
    }

    fn watch_size(
        &self,
        written: Result<(Bytes, Leaving), NotNow>,
        says: &Says<'_>,
    ) -> Result<(Bytes, Leaving), NotNow> {
        if let Err(NotNow::Never(Why::TooLarge { bytes, bytes_max })) = &written {
            says.too_large(*bytes, *bytes_max);
        }
        written
    }

    fn reserve(&mut self, ticket: Ticket, request: Request, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        match outlet.reserve(ticket) {
            Reserved::Granted(value) => match self.encode_offer(ticket, &value, says) {
                Ok((message, leaving)) => {
                    let (message, shelved, bytes) = self.shelve(message, &leaving, says);
                    let is_unread = shelved.is_some() || leaving.is_unread();
                    let kept = Kept { value, leaving, bytes, granted: true, _shelved: shelved };
                    let granted = says.speak(|locked| {
                        Self::open_homes(&kept.leaving, says.channel, locked);
                        let (machine, now) = (&mut locked.state.machine, locked.now);
                        if is_unread {
                            machine.grant_unread(now, says.channel, ticket, request, message)
                        } else {
                            machine.grant(now, says.channel, ticket, request, message)
                        }
                    });
                    if granted {
                        self.kept.insert(ticket, kept);
                    } else {
                        // Two requests may have come at once: this may be the first, which has been given up
                        // for the second.
                        outlet.give_back(ticket, kept.back(says));
                    }
                }
                Err(NotNow::Never(why)) => {
                    outlet.failed(ticket, Some(value), why);
                    says.withdraw(ticket);
                }
                Err(NotNow::Later) if value.is_unread() => {
                    // It is read here first, if that is possible at all. (Marked so, it is not what the
                    // outlet gives next.)
                    outlet.give_back(ticket, Value::unreadable());
                    self.reserve(ticket, request, says);
                }
                Err(NotNow::Later) => {
                    outlet.give_back(ticket, value);
                    self.later.insert(ticket, request);
                }
            },
            Reserved::Later => {
                self.later.insert(ticket, request);
            }
            Reserved::Gone => says.withdraw(ticket),
        }
    }

    /// Queues events behind a value that cannot go yet, except those that withdraw something.
    fn hear_in_turn(&mut self, event: Event<Value>, says: &Says<'_>) -> bool {
        let Some(outlet) = &self.outlet else { return false };
        if self.blocked.is_empty() {
            return self.hear(event, says);
        }
        match event {
            Event::AskedBack(ticket) => {
                let waits = |event: &Event<Value>| match event {
                    Event::FirmOffer(other, _) | Event::ChoiceOffer(other, _) => *other == ticket,
                    _ => false,
                };
                match self.blocked.iter().position(waits).and_then(|at| self.blocked.remove(at)) {
                    Some(Event::FirmOffer(_, value)) => outlet.withdrawn(ticket, Some(value)),
                    Some(_) => outlet.withdrawn(ticket, None),
                    None => return self.hear(Event::AskedBack(ticket), says),
                }
                self.unblock(says)
            }
            Event::Unlocked(_) | Event::Revoke(_) | Event::Poisoned(_) => self.hear(event, says),
            event => {
                self.blocked.push_back(event);
                true
            }
        }
    }

    /// `false`: the sender has gone.
    fn unblock(&mut self, says: &Says<'_>) -> bool {
        while let Some(event) = self.blocked.pop_front() {
            let before = self.blocked.len();
            if !self.hear(event, says) {
                return false;
            }
            if self.blocked.len() > before {
                break;
            }
        }
        true
    }

    /// `false`: the sender has gone, and all its offers are settled.
    fn hear(&mut self, event: Event<Value>, says: &Says<'_>) -> bool {
        let Some(outlet) = &self.outlet else { return false };
        match event {
            Event::FirmOffer(ticket, value) => match self.encode_offer(ticket, &value, says) {
                Ok((message, leaving)) => {
                    let (message, shelved, bytes) = self.shelve(message, &leaving, says);
                    let is_unread = shelved.is_some();
                    let kept = Kept { value, leaving, bytes, granted: false, _shelved: shelved };
                    says.speak(|locked| {
                        Self::open_homes(&kept.leaving, says.channel, locked);
                        if is_unread {
                            locked.state.machine.offer_unread(locked.now, says.channel, ticket, message);
                        } else {
                            locked.state.machine.offer(locked.now, says.channel, ticket, message);
                        }
                    });
                    self.kept.insert(ticket, kept);
                }
                Err(NotNow::Later) => self.blocked.push_front(Event::FirmOffer(ticket, value)),
                Err(NotNow::Never(why)) if self.is_reply => {
                    let reason = Reason::from(format!("the reply could not be written: {why}"));
                    outlet.poison(reason.clone());
                    says.end_proxy(End::Poisoned(poison(&reason)));
                }
                Err(NotNow::Never(why)) => outlet.failed(ticket, Some(value), why),
            },
            Event::ChoiceOffer(ticket, choice) => says.speak(|locked| {
                locked.state.machine.offer_choice(locked.now, says.channel, ticket, choice);
            }),
            Event::Sent(value) => match self.encode(&value, Completion::Sent, says) {
                Ok((bytes, leaving)) => {
                    let (home, waits) = says.speak(|locked| {
                        if leaving.has_ends() && !locked.state.machine.speaks_to_home(says.channel) {
                            return (None, locked.state.machine.has_half(says.channel));
                        }
                        let home = Self::open_homes(&leaving, says.channel, locked);
                        locked.state.machine.send_on_credit(locked.now, says.channel, bytes);
                        (home, false)
                    });
                    if let Some(home) = home {
                        leaving.hand_over(value, home, says);
                        return true;
                    }
                    // Its ends go to the home that takes it. If that is unknown, the channel moves; if the
                    // home is gone, they are dropped here.
                    leaving.stay(says);
                    if waits {
                        self.blocked.push_front(Event::Sent(value));
                    }
                }
                Err(NotNow::Later) => self.blocked.push_front(Event::Sent(value)),
                // The send is complete, but its receiver will not get the value: both ends must be notified,
                // and a flush.
                Err(NotNow::Never(why)) => {
                    says.unwritten(&why);
                    let reason = Reason::from(format!("a value that was sent could not be written: {why}"));
                    outlet.poison(reason.clone());
                    says.end_proxy(End::Poisoned(poison(&reason)));
                }
            },
            Event::AskedBack(ticket) => {
                self.later.remove(&ticket);
                says.withdraw(ticket);
            }
            Event::Unlocked(ticket) => {
                if let Some(request) = self.later.remove(&ticket) {
                    self.reserve(ticket, request, says);
                }
            }
            // The end is in use.
            Event::Watched => {}
            Event::Revoke(ticket) => {
                says.speak(|locked| locked.state.machine.revoke(locked.now, says.channel, ticket));
            }
            Event::Retired => {
                self.retires = true;
                self.say_retired(says);
            }
            Event::Poisoned(reason) => says.end_proxy(End::Poisoned(poison(&reason))),
            // The sender of a reply is gone at once; but the ends in it are handed over when it is taken.
            Event::Gone | Event::Lost if !self.kept.is_empty() => {
                says.end_proxy(over(&event));
                self.gone = true;
            }
            Event::Gone | Event::Lost => {
                says.end_proxy(over(&event));
                return false;
            }
        }
        true
    }

    /// Whether values sent into the buffer here must still go into the buffer at the home.
    fn holds_buffered(&self) -> bool {
        let buffered = |ticket: &Ticket| *ticket >= WAS_BUFFERED;
        self.early.iter().any(|(ticket, _)| buffered(ticket))
            || self.kept.keys().any(buffered)
            || self.anew.iter().any(|(ticket, _)| buffered(ticket))
    }

    /// Whether values of complete sends are still here.
    fn has_sent(&self, outlet: &AnyOutlet) -> bool {
        self.holds_buffered() || self.blocked_sent() + outlet.unsaid() > 0
    }

    fn blocked_sent(&self) -> usize {
        self.blocked.iter().filter(|event| matches!(event, Event::Sent(_))).count()
    }

    /// Sends the retirement last: the sends before it are complete, and a home that knows of the end admits
    /// no value.
    fn say_retired(&mut self, says: &Says<'_>) {
        if self.retires && self.blocked.is_empty() && !self.holds_buffered() {
            self.retires = false;
            says.end_proxy(End::Retired);
        }
    }

    /// The value of this offer has been received: it is the receiver's, and so are the ends in it. `received`
    /// notifies its sender.
    fn hand_over(&mut self, ticket: Ticket, taker: Contact, received: fn(&AnyOutlet, Ticket), says: &Says<'_>) {
        let kept = self.kept.remove(&ticket);
        let Some(outlet) = &self.outlet else { return };
        // Even if a drop below panics.
        let received = Finally(|| received(outlet, ticket));
        let Some(kept) = kept else { return };
        if !kept.leaving.has_ends() {
            drop(received);
            return drop(kept.value);
        }
        // Once the sender is notified, the ends are not here any more, and the names by which they were found
        // are free.
        kept.leaving.hand_over(kept.value, taker, says);
    }

    /// The ends go to the home that the machine sends the message to. It may already be another one than this
    /// bridge knows: other tasks call the machine while the message is written.
    fn open_homes(leaving: &Leaving, channel: ChannelId, locked: &mut Locked<'_>) -> Option<Contact> {
        let home = locked.state.machine.home_of(channel)?;
        leaving.open_homes(home, locked);
        Some(locked.state.machine.contact(home))
    }

    /// For this half the receiver is gone.
    fn end(&mut self, how: &End, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        for (ticket, kept) in std::mem::take(&mut self.kept) {
            outlet.failed(ticket, Some(kept.back(says)), why_ended(how));
        }
        fail_early(outlet, &mut self.early, &why_ended(how));
        self.blocked.extend(self.anew.drain(..).map(|(ticket, value)| Event::FirmOffer(ticket, value)));
        let stands = |event: &Event<Value>| match event {
            Event::Sent(_) => *how == End::Retired,
            event => !matches!(event, Event::FirmOffer(..) | Event::ChoiceOffer(..)),
        };
        let (behind, mut over) = std::mem::take(&mut self.blocked).into_iter().partition(stands);
        self.blocked = behind;
        fail_blocked(outlet, &mut over, &why_ended(how));
        match how {
            // Values that were sent on credits, and are blocked or have not been fetched, must still go:
            // `Event::Retired` stands behind them.
            End::Retired => outlet.retire(),
            // A held value can still be released.
            End::Poisoned(poison) => outlet.poison(reason(poison)),
            End::Gone => self.outlet = None,
            End::Lost => {
                if let Some(outlet) = self.outlet.take() {
                    outlet.down();
                }
            }
        }
    }

    /// The end was notified that the connection is lost. But the connection may be restored, and then the
    /// outcome of the ends in this half's values arrives.
    fn settle(&mut self, heard: ProxyHears, says: &Says<'_>) {
        match heard {
            // The ends have been taken with the value, though they stayed here.
            ProxyHears::Taken(ticket, taker) | ProxyHears::Held(ticket, taker) => {
                if let Some(leaving) = self.unsettled.remove(&ticket) {
                    leaving.end(says, taker.node);
                }
            }
            ProxyHears::Failed(ticket, _) | ProxyHears::Withdrawn(ticket) | ProxyHears::Onward(ticket) => {
                if let Some(leaving) = self.unsettled.remove(&ticket) {
                    leaving.stay(says);
                }
            }
            ProxyHears::Rejected(_) | ProxyHears::Ended(_) | ProxyHears::Lost { .. } => {
                std::mem::take(&mut self.unsettled).into_values().for_each(|leaving| leaving.stay(says));
            }
            _ => {}
        }
    }

    fn lost(&mut self, unknown: &[Ticket], taken: &[Ticket], says: &Says<'_>) {
        let Some(outlet) = self.outlet.take() else { return };
        let channel = outlet.channel();
        let leaves = says.own_node_leaves();
        let why = if leaves { Why::OwnNodeLeft } else { Why::NodeLost };
        if self.has_sent(&outlet) {
            says.speak(|locked| locked.state.lose_owed(says.half()));
        }
        for ticket in taken {
            outlet.taken(*ticket);
        }
        for (ticket, kept) in std::mem::take(&mut self.kept) {
            if unknown.contains(&ticket) {
                let id = MessageId { channel: channel.as_u64(), number: ticket };
                outlet.lost(ticket, kept.doubtful(says), id);
            } else {
                outlet.failed(ticket, Some(kept.back(says)), why.clone());
            }
        }
        fail_early(&outlet, &mut self.early, &why);
        self.blocked.extend(self.anew.drain(..).map(|(ticket, value)| Event::FirmOffer(ticket, value)));
        fail_blocked(&outlet, &mut self.blocked, &why);
        if leaves {
            outlet.own_node_leaves();
        }
        outlet.down();
    }

    fn hear_from_home(&mut self, heard: ProxyHears, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return self.settle(heard, says) };
        match heard {
            ProxyHears::Attached(terms) => self.granted(terms, terms.credits, says),
            ProxyHears::Home(home, terms, credits) => {
                self.home = Some(home);
                self.granted(terms, credits, says);
            }
            ProxyHears::Moved(home, tickets) => {
                self.home = Some(home);
                self.unread_min = 0;
                self.offer_again(tickets, says);
                // A receiver cannot go to this node over its own channel: it may have waited for another
                // home.
                self.retry(says);
            }
            // The driver notifies the halves that wait for this.
            ProxyHears::Rests | ProxyHears::Departed => {}
            ProxyHears::Rejected(why) => {
                let end = match why {
                    Rejection::NoSuchChannel => End::Gone,
                    Rejection::Occupied => full_poison("another node has this end, and it is not shared"),
                    Rejection::Full => full_poison("the other node has no room for another channel"),
                    Rejection::Mismatch(theirs) => {
                        let differs = self.declared.as_ref().and_then(|mine| difference(mine, &theirs));
                        full_poison(&match differs {
                            Some(difference) => format!("the messages of the other end do not fit: {difference}"),
                            None => format!("the other end does not fit: {}", describe(&theirs)),
                        })
                    }
                };
                self.end(&end, says);
            }
            ProxyHears::Taken(ticket, taker) => self.hand_over(ticket, taker, AnyOutlet::taken, says),
            ProxyHears::Held(ticket, taker) => self.hand_over(ticket, taker, AnyOutlet::held, says),
            // Its value was handed over when it was held.
            ProxyHears::Released(ticket) => outlet.taken(ticket),
            ProxyHears::Failed(ticket, Failure::Unknown) => {
                if let Some(kept) = self.kept.remove(&ticket) {
                    let id = MessageId { channel: outlet.channel().as_u64(), number: ticket };
                    outlet.lost(ticket, kept.doubtful(says), id);
                }
            }
            ProxyHears::Failed(ticket, why) => {
                let kept = self.kept.remove(&ticket);
                let bytes = kept.as_ref().map_or(0, |kept| kept.bytes);
                let mut value = kept.map(|kept| kept.back(says));
                if why == Failure::Unread && value.as_ref().is_some_and(Value::is_unread) {
                    value = Some(Value::unreadable());
                }
                outlet.failed(ticket, value, why_failed(why, bytes));
            }
            ProxyHears::Withdrawn(ticket) => {
                let anew = self.anew.iter().position(|(other, _)| *other == ticket);
                let anew = anew.map(|at| self.anew.remove(at).1);
                let value = anew.or_else(|| self.kept.remove(&ticket).map(|kept| kept.back(says)));
                outlet.withdrawn(ticket, value);
            }
            ProxyHears::Reserve(ticket, request) => self.reserve(ticket, request, says),
            ProxyHears::Abort(ticket) => {
                let asked_anew = self.later.remove(&ticket);
                if self.kept.get(&ticket).is_some_and(|kept| kept.granted)
                    && let Some(kept) = self.kept.remove(&ticket)
                {
                    outlet.give_back(ticket, kept.back(says));
                    // The grant is withdrawn; a request behind it still stands.
                    if let Some(request) = asked_anew {
                        self.reserve(ticket, request, says);
                    }
                }
            }
            ProxyHears::Onward(ticket) => {
                self.onward = true;
                // A choice's value is requested anew.
                if self.kept.get(&ticket).is_some_and(|kept| !kept.granted)
                    && let Some(kept) = self.kept.remove(&ticket)
                {
                    self.hear_in_turn(Event::FirmOffer(ticket, kept.back(says)), says);
                }
            }
            ProxyHears::Unread(size) => self.unread_min = size,
            ProxyHears::Credit(count) => outlet.credit(count),
            ProxyHears::Ended(how) => self.end(&how, says),
            ProxyHears::Lost { unknown, not_taken: _, taken } => self.lost(&unknown, &taken, says),
        }
    }

    /// The home, perhaps a new one, knows this half, and has promised this many more places.
    fn granted(&mut self, terms: Terms, credits: u32, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        let is_first = self.value_max.replace(terms.value_max).is_none();
        if !is_first {
            return outlet.credit(credits);
        }
        if credits > 0 {
            // Waiting offers go on credits, before all else: given back first, they keep their places. The
            // sender's later events are sent again.
            self.give_back_early();
            let (is_gone, retires) = (!self.blocked.is_empty(), std::mem::take(&mut self.retires));
            self.blocked.clear();
            if let Some(outlet) = &self.outlet {
                for retired in [retires.then_some(true), is_gone.then_some(false)].into_iter().flatten() {
                    outlet.end_again(retired);
                }
                outlet.credit(credits);
            }
        } else {
            let behind = std::mem::take(&mut self.blocked);
            for (ticket, early) in std::mem::take(&mut self.early) {
                let event = match early {
                    Early::Firm(value) => Event::FirmOffer(ticket, value),
                    Early::Choice(choice) => Event::ChoiceOffer(ticket, choice),
                };
                self.hear_in_turn(event, says);
            }
            for event in behind {
                if !self.hear_in_turn(event, says) {
                    self.outlet = None;
                }
            }
        }
        for how in std::mem::take(&mut self.early_ends) {
            says.end_proxy(how);
        }
    }

    /// The home has moved, and none of these offers was taken: they are made again.
    fn offer_again(&mut self, tickets: Vec<Ticket>, says: &Says<'_>) {
        for ticket in tickets {
            let Some(kept) = self.kept.remove(&ticket) else {
                // It has been given up meanwhile.
                says.withdraw(ticket);
                continue;
            };
            self.offer_anew(ticket, kept.back(says), says);
        }
    }

    fn offer_anew(&mut self, ticket: Ticket, value: Value, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        match self.encode_offer(ticket, &value, says) {
            Ok((bytes, leaving)) => {
                let kept = Kept { value, leaving, bytes: bytes.len() as u64, granted: false, _shelved: None };
                says.speak(|locked| {
                    Self::open_homes(&kept.leaving, says.channel, locked);
                    locked.state.machine.offer_again(locked.now, says.channel, ticket, bytes);
                });
                self.kept.insert(ticket, kept);
            }
            Err(NotNow::Later) => self.anew.push((ticket, value)),
            Err(NotNow::Never(why)) => {
                outlet.failed(ticket, Some(value), why);
                says.withdraw(ticket);
            }
        }
    }
}

/// The node has left, or its driver is gone.
impl Drop for SendingBridge {
    /// A dropped outlet counts as having received its offers, which is wrong here.
    fn drop(&mut self) {
        self.end_link();
        let Some(outlet) = self.outlet.take() else { return };
        let channel = outlet.channel().as_u64();
        for (ticket, kept) in std::mem::take(&mut self.kept) {
            outlet.lost(ticket, kept.value, MessageId { channel, number: ticket });
        }
        fail_early(&outlet, &mut self.early, &Why::OwnNodeLeft);
        self.blocked.extend(self.anew.drain(..).map(|(ticket, value)| Event::FirmOffer(ticket, value)));
        fail_blocked(&outlet, &mut self.blocked, &Why::OwnNodeLeft);
        outlet.own_node_leaves();
        outlet.down();
    }
}

/// Runs this when it is dropped.
struct Finally<F: Fn()>(F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Fails the offers that could not go yet.
fn fail_blocked(outlet: &AnyOutlet, blocked: &mut VecDeque<Event<Value>>, why: &Why) {
    for event in blocked.drain(..) {
        if let Event::FirmOffer(ticket, value) = event {
            outlet.failed(ticket, Some(value), why.clone());
        }
    }
}

/// Fails the offers made before the home had sent its terms.
fn fail_early(outlet: &AnyOutlet, early: &mut Vec<(Ticket, Early)>, why: &Why) {
    for (ticket, early) in early.drain(..) {
        if let Early::Firm(value) = early {
            outlet.failed(ticket, Some(value), why.clone());
        }
    }
}

fn why_ended(how: &End) -> Why {
    match how {
        End::Gone | End::Retired => Why::Closed,
        End::Poisoned(poison) => Why::Poisoned(reason(poison)),
        End::Lost => Why::NodeLost,
    }
}

impl Bridge for SendingBridge {
    fn which(&self) -> Which {
        Which::Sender
    }

    fn core(&self) -> Option<(CoreId, Encoding)> {
        self.outlet.as_ref().map(|outlet| (outlet.channel(), self.encoding))
    }

    fn rests(&self) -> bool {
        let is_settled = !self.has_offers() && self.later.is_empty() && self.early_ends.is_empty();
        is_settled && !self.retires && self.link.is_none()
    }

    fn owes(&self) -> bool {
        self.outlet.is_some()
            && (self.blocked.iter().any(|event| matches!(event, Event::Sent(_) | Event::Gone)) || self.holds_buffered())
    }

    fn matched(&mut self) {
        self.outlet.iter().for_each(|outlet| outlet.unmatched(None));
    }

    fn unsaid(&self) -> usize {
        // The node is locked here, and a channel with a link has nothing unsent.
        let outlet = self.outlet.as_ref().filter(|_| self.link.is_none());
        self.blocked_sent() + outlet.map_or(0, AnyOutlet::unsaid)
    }

    fn retry(&mut self, says: &Says<'_>) {
        self.take_over(says);
        for (ticket, value) in std::mem::take(&mut self.anew) {
            self.offer_anew(ticket, value, says);
        }
        if !self.unblock(says) {
            self.outlet = None;
            return;
        }
        for (ticket, request) in std::mem::take(&mut self.later) {
            self.reserve(ticket, request, says);
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()> {
        if self.poll_linked(cx) {
            return Poll::Pending;
        }
        if self.link.as_ref().is_some_and(|linked| linked.link.is_stuck()) {
            self.outlet.iter().for_each(AnyOutlet::unlink);
        }
        self.take_over(says);
        loop {
            let Some(outlet) = &mut self.outlet else {
                return if self.unsettled.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            };
            match outlet.poll(cx) {
                Poll::Pending => {
                    self.say_retired(says);
                    return Poll::Pending;
                }
                Poll::Ready(event) => {
                    self.go_on(says);
                    let goes_on = if self.value_max.is_some() {
                        self.hear_in_turn(event, says)
                    } else {
                        self.hear_early(event, says)
                    };
                    if !goes_on {
                        self.outlet = None;
                    }
                }
            }
        }
    }

    fn hear_home(&mut self, heard: ProxyHears, says: &Says<'_>) {
        if self.link.as_ref().is_some_and(|linked| linked.hear_home(&heard)) {
            return;
        }
        self.go_on(says);
        let has_settled = matches!(
            heard,
            ProxyHears::Attached(_) | ProxyHears::Home(..) | ProxyHears::Taken(..) | ProxyHears::Credit(_)
        );
        let may_unblock = matches!(heard, ProxyHears::Home(..) | ProxyHears::Moved(..) | ProxyHears::Ended(_));
        self.hear_from_home(heard, says);
        if may_unblock && !self.unblock(says) {
            self.outlet = None;
        }
        if self.gone && self.kept.is_empty() {
            self.outlet = None;
        }
        if has_settled {
            self.link(says);
        }
    }

    fn unlink(&mut self, says: &Says<'_>) {
        self.go_on(says);
    }

    fn linked(&self) -> Option<Arc<dyn Linked>> {
        self.link.clone().map(|linked| linked as Arc<dyn Linked>)
    }

    fn hear_sender(&mut self, _: Contact, _: HomeHears, _: &Says<'_>) {
        debug_assert!(false, "a sending half is no home");
    }

    fn into_outlet(mut self: Box<Self>) -> Option<AnyOutlet> {
        self.end_link();
        self.give_back_early();
        self.outlet.take()
    }

    fn connected(&mut self, home: NodeId, declared: Declaration) {
        self.home = Some(home);
        self.declared = Some(Box::new(declared));
    }

    fn value_bytes(&self) -> Option<u64> {
        budget::value_bytes(self.outlet.as_ref()?)
    }

    fn depart(mut self: Box<Self>) {
        self.end_link();
        // At rest, it has no open offers: so this ends nothing that a process waits for.
        if let Some(outlet) = self.outlet.take() {
            outlet.down();
        }
    }

    fn poison(&mut self, text: &str) {
        self.give_back_early();
        self.end_link();
        if let Some(outlet) = self.outlet.take() {
            outlet.poison(text.into());
        }
    }

    fn fail(&mut self, text: &str, says: &Says<'_>) {
        self.go_on(says);
        let how = full_poison(text);
        if self.value_max.is_none() {
            self.end_early(how, says);
        } else {
            says.end_proxy(how);
        }
        if let Some(outlet) = &self.outlet {
            outlet.poison(text.into());
        }
    }

    fn connection_lost(&mut self, says: &Says<'_>) {
        // (A `fail_fast` channel has no link.)
        if !self.fail_fast {
            return;
        }
        let unknown: Vec<Ticket> = self.kept.keys().copied().collect();
        let ends = self.kept.iter_mut().filter_map(|(ticket, kept)| Some((*ticket, kept.leaving.part()?)));
        self.unsettled.extend(ends);
        unknown.iter().for_each(|ticket| says.withdraw(*ticket));
        says.end_proxy(End::Gone);
        self.lost(&unknown, &[], says);
    }
}

/// How the sender has ended the channel, with nothing to follow.
fn over(event: &Event<Value>) -> End {
    if matches!(event, Event::Lost) { End::Lost } else { End::Gone }
}
