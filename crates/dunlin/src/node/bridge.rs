//! Between an agent at one of this node's channels and the protocol machine: one bridge for a channel that reaches another node.
//!
//! A [`SendingBridge`] stands at the sender's half, where the core has an [`Outlet`](dunlin_core::agent::Outlet) in the receiver's place; a
//! [`ReceivingBridge`] at the receiver's half, its home. Neither keeps any state of the protocol: what is open is the
//! machine's, what is waiting the core's. Between them are only the values that are on their way, and their ends.

use std::collections::{BTreeMap, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin_core::agent::{Event, FromReceiver, Reserved};
use dunlin_core::carrier::{Agent, AnyInlet, AnyOutlet, CarriedEnd, Value};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_core::{MessageId, Reason, Strength, Why};
use dunlin_proto::id::{ChannelId, ChoiceId, NodeId, Request, Ticket};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{End, Failure, Poison, Rejection, Terms, Which};
use dunlin_proto::{HomeHears, Machine, ProxyHears};

use super::budget::Budget;
use super::codec::Encoding;
use super::driver::Locked;
use super::message::{self, Arriving, Completion, Leaving, NotNow, WINDOW};
use super::name::describe;
use super::work::Says;

/// A channel of this node that reaches another one.
pub(crate) trait Bridge: Send {
    /// Of which end of its channel the agent speaks.
    fn which(&self) -> Which;
    /// Its channel in the core, and how messages are written on it.
    fn core(&self) -> Option<(CoreId, Encoding)>;
    /// Whether it has nothing that it has yet to say.
    fn rests(&self) -> bool;
    /// Passes on what the agent has to say. `Ready`: the bridge is over.
    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()>;
    /// The channel's home has spoken to this sending half.
    fn hear_home(&mut self, heard: ProxyHears, says: &Says<'_>);
    /// A sending half has spoken to this home.
    fn hear_sender(&mut self, from: NodeId, heard: HomeHears, says: &Says<'_>);
    /// A sender that one of its messages waits for may be at rest.
    fn retry(&mut self, _: &Says<'_>) {}
    /// The receiver of this home has left in a message.
    fn lent(&mut self, _: CarriedEnd, _: &Says<'_>) {}
    /// The connection has lost its socket, and may come back.
    fn connection_lost(&mut self, says: &Says<'_>);
    /// The sender turns out to be on this node as well: the inlet, and how many credits it has given.
    fn into_home(self: Box<Self>) -> Option<(AnyInlet, u32)> {
        None
    }
    /// The home of this sending half has been found.
    fn into_sender(self: Box<Self>) -> Option<SendingBridge> {
        None
    }
    /// The end cannot be what its holder has declared.
    fn poison(&mut self, text: &str);
    /// A message panicked in what was last asked of this bridge.
    fn fail(&mut self, text: &str, says: &Says<'_>);
}

/// A value that was offered elsewhere, kept until it is known what became of it.
struct Kept {
    value: Value,
    /// The ends in it.
    leaving: Leaving,
    /// How long it is, in bytes.
    bytes: u64,
    /// It has gone as a grant.
    granted: bool,
}

impl Kept {
    /// It has not been taken.
    fn back(self, says: &Says<'_>) -> Value {
        self.leaving.stay(says);
        self.value
    }

    /// Nobody knows whether it has been taken.
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

/// At the sender's half.
pub(crate) struct SendingBridge {
    /// `None`: the bridge is over.
    outlet: Option<AnyOutlet>,
    /// `None`: it has not been found.
    home: Option<NodeId>,
    /// What was offered before the home had told its terms.
    early: Vec<(Ticket, Early)>,
    /// How the channel was ended here before the home was known: by poison that may be too weak, and then for good.
    early_ends: Vec<End>,
    encoding: Encoding,
    /// The home's limit, once it has answered; until then nothing is fetched from the sender.
    value_max: Option<u64>,
    kept: BTreeMap<Ticket, Kept>,
    /// The sender is gone, and what it has offered is not settled.
    gone: bool,
    /// What the sender has said behind a value that cannot go yet, and that value first: an end in it is not at rest.
    blocked: VecDeque<Event<Value>>,
    /// What is to be offered again at a new home, and cannot go yet.
    anew: Vec<(Ticket, Value)>,
    /// Reservations that are to be tried again when the choice is not busy any more.
    later: BTreeMap<Ticket, Request>,
    /// Ends in values of which the user has been told that nobody knows, though it may yet be heard.
    unsettled: BTreeMap<Ticket, Leaving>,
    /// The user wants to hear at once when the connection is lost.
    fail_fast: bool,
    /// Of a reply: whoever gave it does not wait, and would not hear that it could not go.
    is_reply: bool,
}

impl SendingBridge {
    pub(crate) fn new(outlet: AnyOutlet, home: Option<NodeId>, encoding: Encoding, fail_fast: bool) -> Self {
        Self {
            outlet: Some(outlet),
            home,
            early: Vec::new(),
            early_ends: Vec::new(),
            encoding,
            value_max: None,
            kept: BTreeMap::new(),
            gone: false,
            blocked: VecDeque::new(),
            anew: Vec::new(),
            later: BTreeMap::new(),
            unsettled: BTreeMap::new(),
            fail_fast,
            is_reply: false,
        }
    }

    /// For a reply: the home's terms are known without a word.
    pub(crate) fn for_reply(mut self, value_max: u64) -> Self {
        self.value_max = Some(value_max);
        self.is_reply = true;
        self
    }

    /// Its sender has come in a message. `granted`: if its home knows it already.
    pub(crate) fn arrived(mut self, granted: Option<(Terms, u32)>, is_reply: bool) -> Self {
        self.is_reply = is_reply;
        if let Some((terms, credits)) = granted {
            self.value_max = Some(terms.value_max);
            if let Some(outlet) = &self.outlet {
                outlet.credit(credits);
            }
        }
        self
    }

    /// Its sender has left: nothing is heard of it any more.
    pub(crate) fn depart(mut self) {
        // At rest, it has nothing: so this ends nothing that somebody waits for.
        if let Some(outlet) = self.outlet.take() {
            outlet.down();
        }
    }

    pub(crate) fn connected(mut self, home: NodeId) -> Self {
        self.home = Some(home);
        self
    }

    /// The home is on this node.
    pub(crate) fn into_outlet(mut self) -> Option<AnyOutlet> {
        self.give_back_early();
        self.outlet.take()
    }

    /// What was offered early stands as if nobody had heard of it.
    fn give_back_early(&mut self) {
        let Some(outlet) = &self.outlet else { return };
        for (ticket, early) in self.early.drain(..) {
            if let Early::Firm(value) = early {
                outlet.give_back(ticket, value);
            }
        }
    }

    /// Nothing can be offered yet: it waits, and can be taken back.
    fn hear_early(&mut self, event: Event<Value>, says: &Says<'_>) -> bool {
        if matches!(event, Event::FirmOffer(..) | Event::ChoiceOffer(..)) {
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
            Event::Retired => self.end_early(End::Retired, says),
            Event::Poisoned(reason) if reason.strength() < Strength::FULL => {
                self.tell_end(End::Poisoned(poison(&reason)), says)
            }
            Event::Poisoned(reason) => self.end_early(End::Poisoned(poison(&reason)), says),
            // Whoever gave a reply is gone at once.
            Event::Gone if !self.early.is_empty() => self.blocked.push_back(Event::Gone),
            Event::Gone => {
                // If a home is known, it will answer, and has to know that nobody hears it.
                says.end_proxy(End::Gone);
                return false;
            }
            // Nothing was sent on credits, and nothing reserved.
            Event::Sent(_) | Event::Unlocked(_) | Event::Revoke(_) => {}
        }
        true
    }

    /// The sender has ended the channel, and its home has not answered: what waits for it has failed.
    fn end_early(&mut self, how: End, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        fail_early(outlet, &mut self.early, &why_ended(&how));
        self.tell_end(how, says);
    }

    /// The home hears of it, as soon as it is known.
    fn tell_end(&mut self, how: End, says: &Says<'_>) {
        if self.home.is_some() {
            says.end_proxy(how);
        } else {
            self.early_ends.push(how);
        }
    }

    fn encode(&self, value: &Value, completion: Completion, says: &Says<'_>) -> Result<(Bytes, Leaving), NotNow> {
        message::leave(value, self.encoding, self.value_max.unwrap_or(0), completion, says)
    }

    fn reserve(&mut self, ticket: Ticket, request: Request, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        match outlet.reserve(ticket) {
            Reserved::Granted(value) => match self.encode(&value, Completion::Taken, says) {
                Ok((bytes, leaving)) => {
                    let kept = Kept { value, leaving, bytes: bytes.len() as u64, granted: true };
                    let granted = says.speak(|locked| {
                        self.open_homes(&kept.leaving, locked);
                        locked.state.machine.grant(locked.now, says.channel, ticket, request, bytes)
                    });
                    if granted {
                        self.kept.insert(ticket, kept);
                    } else {
                        // Two requests may have come at once: this may be the first, which has been given up for the second.
                        outlet.give_back(ticket, kept.back(says));
                    }
                }
                Err(NotNow::Never(why)) => {
                    outlet.failed(ticket, Some(value), why);
                    says.withdraw(ticket);
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

    /// What is said while a value cannot go yet waits behind it, but for what takes something back.
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

    /// `false`: the sender has gone, and all that it offered is settled.
    fn hear(&mut self, event: Event<Value>, says: &Says<'_>) -> bool {
        let Some(outlet) = &self.outlet else { return false };
        match event {
            Event::FirmOffer(ticket, value) => match self.encode(&value, Completion::Taken, says) {
                Ok((bytes, leaving)) => {
                    let kept = Kept { value, leaving, bytes: bytes.len() as u64, granted: false };
                    says.speak(|locked| {
                        self.open_homes(&kept.leaving, locked);
                        locked.state.machine.offer(locked.now, says.channel, ticket, bytes);
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
                    says.speak(|locked| {
                        self.open_homes(&leaving, locked);
                        locked.state.machine.send_on_credit(locked.now, says.channel, bytes);
                    });
                    self.leave(leaving, value, says);
                }
                Err(NotNow::Later) => self.blocked.push_front(Event::Sent(value)),
                // The send is complete: its receiver will not get it, and both must know.
                Err(NotNow::Never(why)) => {
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
            Event::Revoke(ticket) => {
                says.speak(|locked| locked.state.machine.revoke(locked.now, says.channel, ticket));
            }
            Event::Retired => says.end_proxy(End::Retired),
            Event::Poisoned(reason) => says.end_proxy(End::Poisoned(poison(&reason))),
            // Whoever gave a reply is gone at once; but the ends in it are handed over when it is taken.
            Event::Gone if !self.kept.is_empty() => {
                says.end_proxy(End::Gone);
                self.gone = true;
            }
            Event::Gone => {
                says.end_proxy(End::Gone);
                return false;
            }
        }
        true
    }

    /// The value of this offer has been received: it is the receiver's, and so are the ends in it.
    fn hand_over(&mut self, ticket: Ticket, says: &Says<'_>) {
        if let Some(kept) = self.kept.remove(&ticket) {
            self.leave(kept.leaving, kept.value, says);
        }
    }

    fn open_homes(&self, leaving: &Leaving, locked: &mut Locked<'_>) {
        if let Some(home) = self.home {
            leaving.open_homes(home, locked);
        }
    }

    fn leave(&self, leaving: Leaving, value: Value, says: &Says<'_>) {
        match self.home {
            Some(home) => leaving.hand_over(value, home, says),
            None => drop(value),
        }
    }

    /// The receiver is gone as far as this half is concerned.
    fn end(&mut self, how: &End, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        for (ticket, kept) in std::mem::take(&mut self.kept) {
            outlet.failed(ticket, Some(kept.back(says)), why_ended(how));
        }
        fail_early(outlet, &mut self.early, &why_ended(how));
        self.blocked.extend(self.anew.drain(..).map(|(ticket, value)| Event::FirmOffer(ticket, value)));
        fail_blocked(outlet, &mut self.blocked, &why_ended(how));
        match how {
            // What has been sent on credits, and not been fetched, still has to go: `Event::Retired` stands behind it.
            End::Retired => outlet.retire(),
            // What is held is released yet.
            End::Poisoned(poison) => outlet.poison(reason(poison)),
            End::Gone => self.outlet = None,
            End::Lost => {
                if let Some(outlet) = self.outlet.take() {
                    outlet.down();
                }
            }
        }
    }

    /// The end has heard that the connection is lost; but that comes back, and with it what has become of the ends in this half's values.
    fn settle(&mut self, heard: ProxyHears, says: &Says<'_>) {
        match heard {
            // They have been taken too, and here they stayed.
            ProxyHears::Taken(ticket) | ProxyHears::Held(ticket) => {
                if let Some(leaving) = self.unsettled.remove(&ticket) {
                    leaving.end(says, self.home);
                }
            }
            ProxyHears::Failed(ticket, _) | ProxyHears::Withdrawn(ticket) => {
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
        for ticket in taken {
            outlet.taken(*ticket);
        }
        for (ticket, kept) in std::mem::take(&mut self.kept) {
            if unknown.contains(&ticket) {
                let id = MessageId { channel: channel.as_u64(), number: ticket };
                outlet.lost(ticket, kept.doubtful(says), id);
            } else {
                outlet.failed(ticket, Some(kept.back(says)), Why::NodeLost);
            }
        }
        fail_early(&outlet, &mut self.early, &Why::NodeLost);
        self.blocked.extend(self.anew.drain(..).map(|(ticket, value)| Event::FirmOffer(ticket, value)));
        fail_blocked(&outlet, &mut self.blocked, &Why::NodeLost);
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
                self.offer_again(tickets, says);
            }
            // What it says to whom waits for it is the driver's.
            ProxyHears::Rests | ProxyHears::Departed => {}
            ProxyHears::Rejected(why) => {
                let end = match why {
                    Rejection::NoSuchChannel => End::Gone,
                    Rejection::Occupied => full_poison("another node has this end, and it is not shared"),
                    Rejection::Full => full_poison("the other node has no room for another channel"),
                    Rejection::Mismatch(theirs) => {
                        full_poison(&format!("the other end does not fit: it is {}", describe(&theirs)))
                    }
                };
                self.end(&end, says);
            }
            ProxyHears::Taken(ticket) | ProxyHears::Released(ticket) => {
                outlet.taken(ticket);
                self.hand_over(ticket, says);
            }
            ProxyHears::Held(ticket) => {
                outlet.held(ticket);
                self.hand_over(ticket, says);
            }
            ProxyHears::Failed(ticket, Failure::Unknown) => {
                if let Some(kept) = self.kept.remove(&ticket) {
                    let id = MessageId { channel: outlet.channel().as_u64(), number: ticket };
                    outlet.lost(ticket, kept.doubtful(says), id);
                }
            }
            ProxyHears::Failed(ticket, why) => {
                let kept = self.kept.remove(&ticket);
                let bytes = kept.as_ref().map_or(0, |kept| kept.bytes);
                outlet.failed(ticket, kept.map(|kept| kept.back(says)), why_failed(why, bytes));
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
                    // What was granted is given up; a request behind it still stands.
                    if let Some(request) = asked_anew {
                        self.reserve(ticket, request, says);
                    }
                }
            }
            ProxyHears::Credit(count) => outlet.credit(count),
            ProxyHears::Ended(how) => self.end(&how, says),
            ProxyHears::Lost { unknown, not_taken: _, taken } => self.lost(&unknown, &taken, says),
        }
    }

    /// The home, perhaps a new one, knows this half, and has promised so many places more.
    fn granted(&mut self, terms: Terms, credits: u32, says: &Says<'_>) {
        let Some(outlet) = &self.outlet else { return };
        let is_first = self.value_max.replace(terms.value_max).is_none();
        if !is_first {
            return outlet.credit(credits);
        }
        if credits > 0 {
            // What waits goes on credits, before all else: given back first, it keeps its place.
            self.give_back_early();
            if let Some(outlet) = &self.outlet {
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

    /// The home has moved, and nothing of these offers was taken: they are made again.
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
        match self.encode(&value, Completion::Taken, says) {
            Ok((bytes, leaving)) => {
                let kept = Kept { value, leaving, bytes: bytes.len() as u64, granted: false };
                says.speak(|locked| {
                    self.open_homes(&kept.leaving, locked);
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
    /// An outlet that is merely dropped has received what it was offered; here nobody has.
    fn drop(&mut self) {
        let Some(outlet) = self.outlet.take() else { return };
        let channel = outlet.channel().as_u64();
        for (ticket, kept) in std::mem::take(&mut self.kept) {
            outlet.lost(ticket, kept.value, MessageId { channel, number: ticket });
        }
        fail_early(&outlet, &mut self.early, &Why::NodeLost);
        self.blocked.extend(self.anew.drain(..).map(|(ticket, value)| Event::FirmOffer(ticket, value)));
        fail_blocked(&outlet, &mut self.blocked, &Why::NodeLost);
        outlet.down();
    }
}

/// What could not go yet will not.
fn fail_blocked(outlet: &AnyOutlet, blocked: &mut VecDeque<Event<Value>>, why: &Why) {
    for event in blocked.drain(..) {
        if let Event::FirmOffer(ticket, value) = event {
            outlet.failed(ticket, Some(value), why.clone());
        }
    }
}

/// What was offered before the home had told its terms will not be.
fn fail_early(outlet: &AnyOutlet, early: &mut Vec<(Ticket, Early)>, why: &Why) {
    for (ticket, early) in early.drain(..) {
        if let Early::Firm(value) = early {
            outlet.failed(ticket, Some(value), why.clone());
        }
    }
}

/// As the wire has it.
fn poison(reason: &Reason) -> Poison {
    Poison { strength: reason.strength().as_u8(), reason: reason.as_str().to_owned() }
}

fn reason(poison: &Poison) -> Reason {
    Reason::from(poison.reason.as_str()).of_strength(poison.strength)
}

pub(crate) fn full_poison(text: &str) -> End {
    End::Poisoned(poison(&text.into()))
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
        let offers = self.early.is_empty() && self.blocked.is_empty() && self.anew.is_empty() && self.kept.is_empty();
        offers && self.later.is_empty() && self.early_ends.is_empty() && self.unsettled.is_empty()
    }

    fn retry(&mut self, says: &Says<'_>) {
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
        loop {
            let Some(outlet) = &mut self.outlet else {
                return if self.unsettled.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            };
            match outlet.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(event) => {
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
        self.hear_from_home(heard, says);
        if self.gone && self.kept.is_empty() {
            self.outlet = None;
        }
    }

    fn hear_sender(&mut self, _: NodeId, _: HomeHears, _: &Says<'_>) {
        debug_assert!(false, "a sending half is no home");
    }

    fn into_sender(self: Box<Self>) -> Option<SendingBridge> {
        Some(*self)
    }

    fn poison(&mut self, text: &str) {
        self.give_back_early();
        if let Some(outlet) = self.outlet.take() {
            outlet.poison(text.into());
        }
    }

    fn fail(&mut self, text: &str, says: &Says<'_>) {
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

fn why_failed(why: Failure, bytes: u64) -> Why {
    match why {
        Failure::Closed => Why::Closed,
        Failure::Poisoned(poison) => Why::Poisoned(reason(&poison)),
        Failure::Refused => Why::Refused,
        Failure::Expired => Why::Expired,
        Failure::WouldBlock => Why::WouldBlock,
        Failure::OwnChannel => Why::OwnChannel,
        Failure::TooLarge { max } => Why::TooLarge { bytes, bytes_max: max },
        Failure::Undecodable(text) => Why::Unsendable(text.into()),
        // Whoever kept the value says so; without it nothing had been sent.
        Failure::Unknown => Why::NodeLost,
    }
}

/// At the receiver's half: the channel's home.
pub(crate) struct ReceivingBridge {
    /// `None`: the bridge is over.
    inlet: Option<AnyInlet>,
    /// How many credits the inlet has given at first.
    credits: u32,
    /// How much may be here that was sent on credits.
    budget: Budget,
    /// Places of the buffer are promised. That of a reply is there in any case.
    lends: bool,
    encoding: Encoding,
    from: Option<NodeId>,
    /// The ends in values that are here and not received.
    arriving: BTreeMap<Ticket, Arriving>,
    /// The receiver came in a message, and the channel is still to follow.
    visits: bool,
    /// How the receiver has ended it meanwhile.
    early_ends: Vec<End>,
    /// The receiver, if it has left in a message.
    lent: Option<CarriedEnd>,
    /// That message was taken, and the receiver is gone.
    lapsed: bool,
    /// Its values are to go there. They do as soon as the receiver is here.
    ships: Option<NodeId>,
    /// The agent in that receiver's place, what was buffered, and what of it has been written.
    outlet: Option<AnyOutlet>,
    shipping: VecDeque<Value>,
    shipped: Vec<(Bytes, Leaving, Value)>,
    /// There is no sender any more, and why.
    over: Option<End>,
}

impl ReceivingBridge {
    /// `from`: if the node of the sender is known already.
    pub(crate) fn new(inlet: AnyInlet, credits: u32, budget: Budget, encoding: Encoding, from: Option<NodeId>) -> Self {
        Self {
            inlet: Some(inlet),
            credits,
            budget,
            lends: true,
            encoding,
            from,
            arriving: BTreeMap::new(),
            visits: false,
            early_ends: Vec::new(),
            lent: None,
            lapsed: false,
            ships: None,
            outlet: None,
            shipping: VecDeque::new(),
            shipped: Vec::new(),
            over: None,
        }
    }

    /// The receiver has come in a message, and is asked for.
    pub(crate) fn visiting(mut self) -> Self {
        self.visits = true;
        self
    }

    /// Of a place for a reply.
    pub(crate) fn of_reply(mut self) -> Self {
        self.lends = false;
        self
    }

    /// Says that the value of this offer was received. If its node does not hear of that, it is lost, and with it the homes of the ends in the
    /// value: they end.
    fn received(
        &mut self,
        ticket: Ticket,
        from: NodeId,
        says: &Says<'_>,
        say: impl FnOnce(&mut Machine, Time, ChannelId, NodeId, Ticket) -> bool,
    ) {
        let (mut arriving, encoding) = (self.arriving.remove(&ticket), self.encoding);
        says.speak(|locked| {
            if say(&mut locked.state.machine, locked.now, says.channel, from, ticket)
                && let Some(arriving) = arriving.take()
            {
                arriving.adopt(from, encoding, locked);
            }
        });
    }

    /// The channel goes to where its receiver is: what is buffered here, with the ends in it.
    fn ship(&mut self, says: &Says<'_>) {
        let Some(to) = self.ships else { return };
        if let Some(end) = self.lent.take() {
            let Agent::Outlet(outlet) = end.into_agent() else { return };
            self.shipping = outlet.take_buffered().into();
            self.outlet = Some(outlet);
        }
        if self.outlet.is_none() {
            return;
        }
        let bytes_max = says.speak(|locked| locked.state.machine.value_max());
        while let Some(value) = self.shipping.pop_front() {
            match message::leave(&value, self.encoding, bytes_max, Completion::Sent, says) {
                Ok((bytes, leaving)) => self.shipped.push((bytes, leaving, value)),
                // An end in it has come, and has not heard of its home yet.
                Err(NotNow::Later) => return self.shipping.push_front(value),
                Err(NotNow::Never(why)) => {
                    // The receiver would not know that one is missing: it hears that the channel is over.
                    let shipped = std::mem::take(&mut self.shipped);
                    shipped.into_iter().for_each(|(_, leaving, _)| leaving.stay(says));
                    says.end_home(full_poison(&format!("a value that was buffered could not be written again: {why}")));
                    return self.leave();
                }
            }
        }
        let (values, left): (Vec<_>, Vec<_>) =
            self.shipped.drain(..).map(|(bytes, leaving, value)| (bytes, (leaving, value))).unzip();
        says.speak(|locked| {
            left.iter().for_each(|(leaving, _): &(Leaving, Value)| leaving.open_homes(to, locked));
            locked.state.machine.ship(locked.now, says.channel, values);
        });
        for (leaving, value) in left {
            leaving.hand_over(value, to, says);
        }
        self.leave();
    }

    /// All that the receiver's half has to say now.
    fn flush(&mut self, says: &Says<'_>) {
        while let Some(inlet) = &mut self.inlet
            && let Poll::Ready(event) = inlet.poll(&mut Context::from_waker(Waker::noop()))
        {
            if !self.hear(event, says) {
                self.inlet = None;
            }
        }
    }

    /// Both agents go, and nobody here hears of it.
    fn leave(&mut self) {
        self.outlet = None;
        self.inlet = None;
    }

    /// The sender has ended the channel, or is lost.
    fn ended(&mut self, how: End, says: &Says<'_>) {
        let Some(inlet) = &self.inlet else { return };
        match how {
            End::Retired => inlet.retire(),
            End::Poisoned(poison) => inlet.poison(reason(&poison)),
            over => {
                self.over.get_or_insert(over);
                self.finish(says);
            }
        }
    }

    /// There is no sender any more. If the receiver has left, it hears of that where it is.
    fn finish(&mut self, says: &Says<'_>) {
        if self.over.is_none() || says.speak(|locked| locked.state.machine.receiver_is_away(says.channel)) {
            return;
        }
        // A reply has its place in any case, and comes with the word that its sender is gone.
        self.flush(says);
        says.end_home(End::Gone);
        let inlet = self.inlet.take();
        if self.over == Some(End::Lost)
            && let Some(inlet) = inlet
        {
            inlet.down();
        }
    }

    /// `false`: the receiver has gone.
    fn hear(&mut self, event: FromReceiver<Value>, says: &Says<'_>) -> bool {
        let channel = says.channel;
        let end = match event {
            FromReceiver::Retired => Some(End::Retired),
            FromReceiver::Poisoned(ref reason) => Some(End::Poisoned(poison(reason))),
            FromReceiver::Gone => Some(End::Gone),
            _ => None,
        };
        if let Some(end) = end {
            // Before it is gone it may poison what it has retired, and release what it holds.
            let goes_on = end != End::Gone;
            if self.visits {
                // As soon as the channel has followed.
                self.early_ends.push(end);
                return true;
            }
            says.end_home(end);
            return goes_on;
        }
        // Without a sender elsewhere nothing was offered from there.
        let Some(from) = self.from else { return true };
        match event {
            FromReceiver::Taken(ticket) => self.received(ticket, from, says, Machine::taken),
            FromReceiver::Held(ticket) => self.received(ticket, from, says, Machine::held),
            FromReceiver::Released(ticket) => {
                says.speak(|locked| locked.state.machine.released(locked.now, channel, from, ticket));
            }
            // The values here are copies, and nobody has heard of the ends in them.
            FromReceiver::Failed(ticket, copy, why) => {
                self.arriving.remove(&ticket);
                says.failed(from, ticket, failure(why));
                drop(copy);
            }
            FromReceiver::Withdrawn(ticket, copy) => {
                self.arriving.remove(&ticket);
                says.speak(|locked| locked.state.machine.withdrawn(locked.now, channel, from, ticket));
                drop(copy);
            }
            FromReceiver::Lost(ticket) => {
                self.arriving.remove(&ticket);
                says.failed(from, ticket, Failure::Unknown);
            }
            FromReceiver::Reserve(ticket, request) => {
                says.speak(|locked| locked.state.machine.reserve(locked.now, channel, from, ticket, request));
            }
            FromReceiver::Abort(ticket, copy) => {
                self.arriving.remove(&ticket);
                says.speak(|locked| locked.state.machine.abort(locked.now, channel, from, ticket));
                drop(copy);
            }
            FromReceiver::Credit(places) => {
                says.speak(|locked| locked.state.machine.credit(locked.now, channel, from, places));
            }
            FromReceiver::Retired | FromReceiver::Poisoned(_) | FromReceiver::Gone => unreachable!("it returned above"),
        }
        true
    }
}

fn failure(why: Why) -> Failure {
    match why {
        Why::Poisoned(reason) => Failure::Poisoned(poison(&reason)),
        Why::Refused => Failure::Refused,
        Why::Expired => Failure::Expired,
        Why::WouldBlock => Failure::WouldBlock,
        Why::OwnChannel => Failure::OwnChannel,
        _ => Failure::Closed,
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
        !self.visits && self.early_ends.is_empty() && self.over.is_none()
    }

    fn lent(&mut self, end: CarriedEnd, says: &Says<'_>) {
        if !self.lapsed {
            self.lent = Some(end);
            self.ship(says);
        }
    }

    fn retry(&mut self, says: &Says<'_>) {
        self.ship(says);
        self.finish(says);
    }

    fn poll(&mut self, cx: &mut Context<'_>, says: &Says<'_>) -> Poll<()> {
        loop {
            let Some(inlet) = &mut self.inlet else { return Poll::Ready(()) };
            match inlet.poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(event) => {
                    if !self.hear(event, says) {
                        self.inlet = None;
                    }
                }
            }
        }
    }

    fn hear_sender(&mut self, from: NodeId, heard: HomeHears, says: &Says<'_>) {
        let channel = says.channel;
        let Some(inlet) = &self.inlet else { return };
        match heard {
            HomeHears::Attached => self.from = Some(from),
            HomeHears::Offered(ticket, bytes) => match message::arrive(inlet.shape(), bytes, self.encoding) {
                Ok((value, arriving)) => {
                    self.arriving.extend(arriving.map(|arriving| (ticket, arriving)));
                    inlet.offer(ticket, value);
                }
                Err(why) => says.failed(from, ticket, Failure::Undecodable(why)),
            },
            HomeHears::OfferedByChoice(ticket, choice) => inlet.offer_choice(ticket, choice),
            HomeHears::Granted(ticket, request, bytes) => match message::arrive(inlet.shape(), bytes, self.encoding) {
                Ok((value, arriving)) => {
                    if let Err(copy) = inlet.grant(ticket, request, value) {
                        says.speak(|locked| {
                            locked.state.machine.decline(locked.now, channel, from, ticket, request);
                        });
                        drop(copy);
                    } else {
                        self.arriving.extend(arriving.map(|arriving| (ticket, arriving)));
                    }
                }
                Err(why) => {
                    inlet.withdraw(ticket);
                    says.failed(from, ticket, Failure::Undecodable(why));
                }
            },
            HomeHears::Sent(bytes) if self.visits => match message::arrive(inlet.shape(), bytes, self.encoding) {
                Ok((value, arriving)) => {
                    inlet.restore(value);
                    if let Some(arriving) = arriving {
                        says.speak(|locked| arriving.adopt(from, self.encoding, locked));
                    }
                }
                // The home before this one has read it.
                Err(why) => inlet.poison(format!("a value that arrived could not be read: {why}").as_str().into()),
            },
            HomeHears::Sent(bytes) => {
                let len = bytes.len();
                match message::arrive(inlet.shape(), bytes, self.encoding) {
                    Ok((value, arriving)) => {
                        // The machine has counted the credits; but a sender may have sent behind its own last word. Nobody waits for that.
                        let Ok(buffered) = inlet.push(value) else { return };
                        if let Some(places) = self.budget.arrived(len, buffered) {
                            inlet.lend_at_most(places);
                        }
                        if let Some(arriving) = arriving {
                            says.speak(|locked| arriving.adopt(from, self.encoding, locked));
                        }
                    }
                    // Its send is complete, so it cannot be refused: both ends must know.
                    Err(why) => {
                        let reason = format!("a value that arrived could not be read: {why}");
                        inlet.poison(reason.as_str().into());
                        says.end_home(full_poison(&reason));
                    }
                }
            }
            HomeHears::Withdraw(ticket) => {
                if let Some(copy) = inlet.withdraw(ticket) {
                    self.arriving.remove(&ticket);
                    says.speak(|locked| locked.state.machine.withdrawn(locked.now, channel, from, ticket));
                    drop(copy);
                }
            }
            HomeHears::Revoke(ticket) => inlet.revoke(ticket),
            HomeHears::Ended(how) => self.ended(how, says),
            HomeHears::Take => {
                self.from = Some(from);
                self.credits = if self.lends { inlet.credits_anew() } else { 0 };
                let terms = Terms {
                    window: WINDOW,
                    credits: self.credits,
                    value_max: says.speak(|locked| locked.state.machine.value_max()),
                };
                says.speak(|locked| locked.state.machine.admit(locked.now, channel, from, terms));
            }
            HomeHears::Leave => {
                // Nobody receives here; but what was received before has to be said first.
                self.flush(says);
                says.speak(|locked| locked.state.machine.leave_home(locked.now, channel));
            }
            HomeHears::Empty => {
                self.ships = Some(from);
                self.ship(says);
            }
            HomeHears::Arrived(how) => {
                self.visits = false;
                says.speak(|locked| locked.state.machine.install(locked.now, channel));
                for end in std::mem::take(&mut self.early_ends) {
                    let is_gone = end == End::Gone;
                    says.end_home(end);
                    if is_gone {
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
                self.lapsed = true;
                // Its receiver is gone, which is heard by its inlet.
                self.lent = None;
            }
            HomeHears::Failed(how) => {
                let inlet = self.inlet.take();
                match (how, inlet) {
                    (End::Lost, Some(inlet)) => inlet.down(),
                    (End::Poisoned(poison), Some(inlet)) => inlet.poison(reason(&poison)),
                    _ => {}
                }
                self.lent = None;
            }
            HomeHears::Lost(_) => self.ended(End::Lost, says),
        }
    }

    fn hear_home(&mut self, _: ProxyHears, _: &Says<'_>) {
        debug_assert!(false, "a home is no sending half");
    }

    fn connection_lost(&mut self, _: &Says<'_>) {}

    fn into_home(mut self: Box<Self>) -> Option<(AnyInlet, u32)> {
        self.inlet.take().map(|inlet| {
            // What is in this memory needs no bytes.
            inlet.lend_at_most(u32::MAX);
            (inlet, self.credits)
        })
    }

    fn poison(&mut self, text: &str) {
        if let Some(inlet) = self.inlet.take() {
            inlet.poison(text.into());
        }
    }

    fn fail(&mut self, text: &str, says: &Says<'_>) {
        says.end_home(full_poison(text));
        if let Some(inlet) = &self.inlet {
            inlet.poison(text.into());
        }
    }
}

/// The node has left, or its driver is gone: receives hear of that, and do not take it for an end in order.
impl Drop for ReceivingBridge {
    fn drop(&mut self) {
        if let Some(inlet) = self.inlet.take() {
            inlet.down();
        }
    }
}
