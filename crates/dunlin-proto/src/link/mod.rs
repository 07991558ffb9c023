//! One connection between two nodes, with the channels that it carries, as a state machine.
//!
//! A [`Link`] has neither a socket nor a clock: its driver gives it bytes and the time, and writes what it returns. It uses the outbox, the
//! inbox and the window of the connections of a [`Machine`](crate::Machine), and acknowledges as that does. It has no handshake, no
//! heartbeats, no names and no moves, and each side grants the other unlimited memory ([`Memory::Credit`](crate::wire::Memory) is never
//! sent): those are parts of the redesign behind the slice that this is.
//!
//! # Channels
//! A channel has a half at each side. Both sides [open](Link::open) it under one number, which they know from elsewhere, and then
//! [attach](Link::attach) it: the sending half says so, the home answers. From then on each frame names the half that it is for by that
//! half's place in the slab of its own node, its *alias*. Words that are [sent](Link::send) before that wait. An alias is used again
//! when both halves are [closed](Link::close): nothing that is on its way can be for the half before.
//!
//! # What is checked
//! The link knows which offers are open on each half (`dialogue.rs`), and ends with a [`Violation`] when the peer sends a word that it
//! cannot have sent. A word that crossed another one is dropped, and the half does not receive it.
//!
//! # After a cut
//! When its socket is [cut](Link::cut), the link keeps all that its peer has not acknowledged. Each side tells the other how many
//! frames it has [seen](Link::seen), and [resumes](Link::resume) from there on the next socket.

mod dialogue;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::{BTreeMap, VecDeque};

use bytes::{Bytes, BytesMut};

pub use self::violation::{Misstep, Violation};
use crate::account::Charge;
use crate::config::Config;
use crate::connection::inbox::{Arrived, Begun, Inbox};
use crate::connection::outbox::{Outbox, Recalled};
use crate::id::{ChannelId, ChoiceId, Request, Ticket};
use crate::time::Time;
use crate::wire::codec::WireError;
use crate::wire::codec::link::{self as codec, Front};
use crate::wire::{End, Failure, Frame, FromHome, Head, Terms, ToHome, Which};
use dialogue::{Dialogue, Heard};

/// So many offers of one half may be open at its home. A sender makes one after the other, so that more than two are a peer's mistake.
const OFFERS_MAX: usize = 32;

/// What one half of a channel sends to the other: `dunlin_core::remote::Word` on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the home: a send offers this value.
    Offer(Ticket, Bytes),
    /// To the home: a choice offers a value.
    OfferChoice(Ticket, ChoiceId),
    /// To the home: the value that this reservation asked for.
    Grant(Ticket, Request, Bytes),
    /// To the home: the offer that was reserved is not there any more.
    Refuse(Ticket),
    /// To the home: the offer is withdrawn.
    Withdraw(Ticket),
    /// To the home: the choice asks for its reservation back.
    Revoke(Ticket),
    /// To the sending half: a receive has returned the value.
    Taken(Ticket),
    /// To the sending half: an extended receive has returned the value.
    Held(Ticket),
    /// To the sending half: the extended receive is over.
    Released(Ticket),
    /// To the sending half: the offer has failed.
    Failed(Ticket, Failure),
    /// To the sending half: the offer was withdrawn in time.
    Withdrawn(Ticket),
    /// To the sending half: a receive asks for the value of a choice.
    Reserve(Ticket, Request),
    /// To the sending half: the value that was granted is not wanted any more.
    Abort(Ticket),
    /// The half has ended the channel.
    Ended(End),
}

impl Word {
    fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Offer(ticket, _)
            | Self::OfferChoice(ticket, _)
            | Self::Grant(ticket, ..)
            | Self::Refuse(ticket)
            | Self::Withdraw(ticket)
            | Self::Revoke(ticket)
            | Self::Taken(ticket)
            | Self::Held(ticket)
            | Self::Released(ticket)
            | Self::Failed(ticket, _)
            | Self::Withdrawn(ticket)
            | Self::Reserve(ticket, _)
            | Self::Abort(ticket) => Some(*ticket),
            Self::Ended(_) => None,
        }
    }

    /// The frame in which a half sends it to the half with that alias.
    fn frame(self, from: Which, to: u32) -> Frame {
        let id = ChannelId(to.into());
        let value = |head, value: Bytes| ToHome::Value { head, total: value.len() as u64, first: value };
        let to_home = match self {
            Self::Offer(ticket, bytes) => value(Head::Offer(ticket), bytes),
            Self::Grant(ticket, request, bytes) => value(Head::Grant(ticket, request), bytes),
            Self::OfferChoice(ticket, choice) => ToHome::OfferChoice(ticket, choice),
            Self::Refuse(ticket) => ToHome::Take(ticket),
            Self::Withdraw(ticket) => ToHome::Withdraw(ticket),
            Self::Revoke(ticket) => ToHome::Revoke(ticket),
            Self::Ended(how) if from == Which::Sender => ToHome::Ended(how),
            Self::Ended(how) => return Frame::FromHome(id, FromHome::Ended(how)),
            Self::Taken(ticket) => return Frame::FromHome(id, FromHome::Taken(ticket)),
            Self::Held(ticket) => return Frame::FromHome(id, FromHome::Held(ticket)),
            Self::Released(ticket) => return Frame::FromHome(id, FromHome::Released(ticket)),
            Self::Failed(ticket, why) => return Frame::FromHome(id, FromHome::Failed(ticket, why)),
            Self::Withdrawn(ticket) => return Frame::FromHome(id, FromHome::Withdrawn(ticket)),
            Self::Reserve(ticket, request) => return Frame::FromHome(id, FromHome::Reserve(ticket, request)),
            // Each grant has one answer, and a half grants no second time before it, so that no number is needed.
            Self::Abort(ticket) => return Frame::FromHome(id, FromHome::Abort(ticket, 0)),
        };
        Frame::ToHome(id, to_home)
    }
}

/// One half of a channel, in its place in the slab.
#[derive(Clone, Debug)]
struct Half {
    number: u64,
    dialogue: Dialogue,
    /// The alias of the other half, in the slab of its node. `None`: the channel is not attached.
    to: Option<u32>,
    /// What is sent before that. `None`: the half is closed.
    early: VecDeque<Option<Word>>,
    /// This half sends nothing more.
    closed: bool,
    /// The other half sends nothing more.
    over: bool,
}

/// One side of a connection.
#[derive(Clone, Debug)]
pub struct Link {
    config: Config,
    outbox: Outbox,
    inbox: Inbox,
    slab: Vec<Option<Half>>,
    free: Vec<u32>,
    /// The homes that wait for their sending halves to attach, by the numbers of their channels...
    homes: BTreeMap<u64, u32>,
    /// ... and the sending halves, by the aliases that the peer gave them, that wait for their homes.
    attaching: BTreeMap<u64, u32>,
    /// Answers that this side gives itself, for offers that were not sent yet.
    answers: VecDeque<(u32, Word)>,
    /// What was read is acknowledged then at the latest.
    ack_at: Option<Time>,
}

impl Link {
    /// A link without channels or a socket. Of the configuration only the sizes, and the times of acknowledgements, count.
    pub fn new(config: Config) -> Self {
        let mut outbox = Outbox::written_by(codec::encode);
        outbox.grow_credit(u64::MAX);
        Self {
            config,
            outbox,
            inbox: Inbox::default(),
            slab: Vec::new(),
            free: Vec::new(),
            homes: BTreeMap::new(),
            attaching: BTreeMap::new(),
            answers: VecDeque::new(),
            ack_at: None,
        }
    }

    /// Makes a half of the channel with this number, and returns its alias. `which`: the end that is here. The peer is not told before the
    /// half is [attached](Self::attach), so that nothing can arrive for it.
    pub fn open(&mut self, which: Which, number: u64) -> u32 {
        let half = Half {
            number,
            dialogue: Dialogue::new(which),
            to: None,
            early: VecDeque::new(),
            closed: false,
            over: false,
        };
        if let Some(alias) = self.free.pop() {
            self.slab[alias as usize] = Some(half);
            return alias;
        }
        self.slab.push(Some(half));
        u32::try_from(self.slab.len() - 1).expect("a link has fewer than 2^32 channels")
    }

    /// The half is ready to receive.
    pub fn attach(&mut self, alias: u32) {
        let Some(half) = self.half(alias) else { return };
        let number = half.number;
        if half.dialogue.which() == Which::Sender {
            return self.outbox.push(Frame::ToHome(codec::attach_id(number, alias), ToHome::Drain));
        }
        match self.attaching.remove(&number) {
            Some(to) => self.answer_attach(alias, to),
            None => assert!(self.homes.insert(number, alias).is_none(), "channel {number} has one home"),
        }
    }

    /// The home answers the sending half.
    fn answer_attach(&mut self, alias: u32, to: u32) {
        let terms = Terms { window: OFFERS_MAX as u32, credits: alias, value_max: self.config.value_max as u64 };
        self.outbox.push(Frame::FromHome(ChannelId(to.into()), FromHome::Attached(terms)));
        self.attached(alias, to);
    }

    fn attached(&mut self, alias: u32, to: u32) {
        let Some(half) = self.half(alias) else { return };
        half.to = Some(to);
        for word in std::mem::take(&mut half.early) {
            match word {
                Some(word) => self.push(alias, word),
                None => self.push_over(alias),
            }
        }
    }

    fn half(&mut self, alias: u32) -> Option<&mut Half> {
        self.slab.get_mut(alias as usize)?.as_mut()
    }

    /// Queues a word of this half behind those before it. What a closed half sends is dropped.
    pub fn send(&mut self, alias: u32, word: Word) {
        let Some(half) = self.half(alias).filter(|half| !half.closed) else { return };
        if !half.dialogue.send(&word) {
            return;
        }
        if let Word::Withdraw(ticket) = word
            && self.recall(alias, ticket)
        {
            return self.answers.push_back((alias, Word::Withdrawn(ticket)));
        }
        self.push(alias, word);
    }

    fn push(&mut self, alias: u32, word: Word) {
        let Some(half) = self.half(alias) else { return };
        match half.to {
            Some(to) => {
                let frame = word.frame(half.dialogue.which(), to);
                self.outbox.push(frame);
            }
            None => half.early.push_back(Some(word)),
        }
    }

    /// Takes an offer back that has not been written in whole. `false`: it has.
    fn recall(&mut self, alias: u32, ticket: Ticket) -> bool {
        let Some(half) = self.half(alias) else { return false };
        let is_offer =
            |word: &Option<Word>| matches!(word, Some(Word::Offer(t, _) | Word::OfferChoice(t, _)) if *t == ticket);
        let recalled = match (half.to, half.early.iter().position(is_offer)) {
            (None, at) => at.and_then(|at| half.early.remove(at)).is_some(),
            (Some(to), _) => self.outbox.recall(ChannelId(to.into()), ticket) == Recalled::Unsent,
        };
        if recalled && let Some(half) = self.half(alias) {
            half.dialogue.recalled(ticket);
        }
        recalled
    }

    /// The half sends nothing more, and receives nothing more.
    pub fn close(&mut self, alias: u32) {
        let Some(half) = self.half(alias).filter(|half| !half.closed) else { return };
        half.closed = true;
        match half.to {
            Some(_) => self.push_over(alias),
            None => half.early.push_back(None),
        }
    }

    fn push_over(&mut self, alias: u32) {
        let Some(half) = self.half(alias) else { return };
        let Some(to) = half.to else { return };
        let id = ChannelId(to.into());
        let frame = match half.dialogue.which() {
            Which::Sender => Frame::ToHome(id, ToHome::Quiet),
            Which::Receiver => Frame::FromHome(id, FromHome::Drained),
        };
        self.outbox.push(frame);
        self.free_if_over(alias);
    }

    fn free_if_over(&mut self, alias: u32) {
        if self.half(alias).is_some_and(|half| half.closed && half.over) {
            self.slab[alias as usize] = None;
            self.free.push(alias);
        }
    }

    /// Bytes have arrived, behind what the last call left in `buffer`. Each word for a half that is not closed goes to `deliver`, with the
    /// alias of that half. Returns how many bytes are missing at least of the frame whose beginning is left in `buffer`.
    ///
    /// A driver calls it without new bytes, too, after it was woken: withdrawals of what was not written yet are answered here.
    ///
    /// # Errors
    /// The peer breaks the protocol. The link is of no use then, but for [closing](Self::close) its halves.
    pub fn receive(
        &mut self,
        now: Time,
        buffer: &mut BytesMut,
        deliver: &mut impl FnMut(u32, Word),
    ) -> Result<usize, Violation> {
        while let Some((alias, word)) = self.answers.pop_front() {
            if self.half(alias).is_some_and(|half| !half.closed) {
                deliver(alias, word);
            }
        }
        let mut missing = 0;
        while !buffer.is_empty() {
            match codec::read(buffer)? {
                Front::Missing(bytes) => {
                    missing = bytes;
                    break;
                }
                Front::Frame(frame) => {
                    if let Some((alias, word)) = self.hear(now, frame)? {
                        deliver(alias, word);
                    }
                }
            }
        }
        self.inbox.within_frame = !buffer.is_empty();
        if self.ack_at.is_none() && self.inbox.heard() != self.inbox.acked {
            self.ack_at = Some(now + self.config.ack_delay);
        }
        Ok(missing)
    }

    fn hear(&mut self, now: Time, frame: Frame) -> Result<Option<(u32, Word)>, Violation> {
        if let Frame::Ack { seen } = frame {
            let plausible = self.outbox.acknowledge(now, seen, &self.config);
            return if plausible { Ok(None) } else { Err(Violation::Acknowledged(seen)) };
        }
        self.outbox.meets(now, false, &frame, &self.config);
        self.inbox.seen += 1;
        // As a `Machine` does: about what the peer keeps for it.
        self.inbox.unacked_bytes += 32;
        match frame {
            Frame::ToHome(id, ToHome::Drain) => {
                let (number, to) = codec::of_attach_id(id);
                self.hear_attach(number, to).map(|()| None)
            }
            Frame::ToHome(id, said) => self.hear_sender(codec::alias(id), said),
            Frame::More(id, piece) => {
                let alias = codec::alias(id);
                self.inbox.unacked_bytes += piece.len();
                let arrived = self.inbox.more(id, &piece);
                self.arrived(alias, arrived)
            }
            Frame::Cut(id) => {
                let alias = codec::alias(id);
                self.inbox.cut(id).map(|_| None).ok_or(Violation::StrayPiece(alias))
            }
            Frame::FromHome(id, said) => self.hear_home(codec::alias(id), said),
            _ => unreachable!("a link's codec reads no other frames"),
        }
    }

    fn hear_attach(&mut self, number: u64, to: u32) -> Result<(), Violation> {
        if let Some(alias) = self.homes.remove(&number) {
            self.answer_attach(alias, to);
            return Ok(());
        }
        if self.attaching.len() >= self.config.attached_max {
            return Err(Violation::TooManyHalves { halves_max: self.config.attached_max });
        }
        match self.attaching.insert(number, to) {
            None => Ok(()),
            Some(_) => Err(Violation::AttachedTwice(number)),
        }
    }

    /// The half that a word of the other one is for.
    fn addressed(&mut self, alias: u32, which: Which) -> Result<&mut Half, Violation> {
        let half = self.half(alias).filter(|half| half.to.is_some()).ok_or(Violation::UnknownAlias(alias))?;
        if half.dialogue.which() != which {
            return Err(Violation::WrongDirection(alias));
        }
        if half.over {
            return Err(Violation::Half { alias, misstep: Misstep::AfterEnd });
        }
        Ok(half)
    }

    fn hear_sender(&mut self, alias: u32, said: ToHome) -> Result<Option<(u32, Word)>, Violation> {
        let id = ChannelId(alias.into());
        if self.inbox.is_within_value(id) {
            return Err(Violation::WithinValue(alias));
        }
        let value_max = self.config.value_max as u64;
        let half = self.addressed(alias, Which::Receiver)?;
        let word = match said {
            ToHome::Value { head, total, first } => {
                let (ticket, is_offer) = match head {
                    Head::Offer(ticket) => (ticket, true),
                    Head::Grant(ticket, _) => (ticket, false),
                    _ => unreachable!("a link's codec reads no other values"),
                };
                half.dialogue.hear_value(ticket, is_offer).map_err(|misstep| Violation::Half { alias, misstep })?;
                if total > value_max {
                    return Err(Violation::ValueTooLarge { alias, bytes: total, bytes_max: value_max });
                }
                let wanted = !half.closed;
                self.inbox.unacked_bytes += first.len();
                if first.len() as u64 == total {
                    // Most are.
                    return self.hear_word(alias, whole(head, first));
                }
                let begun = Begun { head, total, wanted, charge: Charge::NONE };
                let arrived = self.inbox.begin(id, begun, first);
                return self.arrived(alias, arrived);
            }
            ToHome::OfferChoice(ticket, choice) => Word::OfferChoice(ticket, choice),
            ToHome::Withdraw(ticket) => Word::Withdraw(ticket),
            ToHome::Revoke(ticket) => Word::Revoke(ticket),
            ToHome::Take(ticket) => Word::Refuse(ticket),
            ToHome::Ended(End::Lost) => return Err(Violation::Wire(NOT_LOST)),
            ToHome::Ended(how) => Word::Ended(how),
            ToHome::Quiet => return self.hear_over(alias),
            ToHome::Drain | ToHome::Attach(_) | ToHome::State(_) => unreachable!("heard before, or not read"),
        };
        self.hear_word(alias, word)
    }

    /// A piece of a value has arrived.
    fn arrived(&mut self, alias: u32, arrived: Arrived) -> Result<Option<(u32, Word)>, Violation> {
        match arrived {
            Arrived::NotYet | Arrived::Unwanted(_) => Ok(None),
            Arrived::Whole(head, value, _) => self.hear_word(alias, whole(head, value)),
            Arrived::Wrong => Err(Violation::StrayPiece(alias)),
        }
    }

    fn hear_home(&mut self, alias: u32, said: FromHome) -> Result<Option<(u32, Word)>, Violation> {
        if let FromHome::Attached(terms) = said {
            return match self.half(alias) {
                Some(half) if half.dialogue.which() == Which::Sender && half.to.is_none() => {
                    self.attached(alias, terms.credits);
                    Ok(None)
                }
                Some(half) => Err(Violation::AttachedTwice(half.number)),
                None => Err(Violation::UnknownAlias(alias)),
            };
        }
        self.addressed(alias, Which::Sender)?;
        let word = match said {
            FromHome::Taken(ticket) => Word::Taken(ticket),
            FromHome::Held(ticket) => Word::Held(ticket),
            FromHome::Released(ticket) => Word::Released(ticket),
            FromHome::Failed(ticket, why) => Word::Failed(ticket, why),
            FromHome::Withdrawn(ticket) => Word::Withdrawn(ticket),
            FromHome::Reserve(ticket, request) => Word::Reserve(ticket, request),
            FromHome::Abort(ticket, _) => Word::Abort(ticket),
            FromHome::Ended(End::Lost) => return Err(Violation::Wire(NOT_LOST)),
            FromHome::Ended(how) => Word::Ended(how),
            FromHome::Drained => return self.hear_over(alias),
            _ => unreachable!("a link's codec reads no other frames"),
        };
        self.hear_word(alias, word)
    }

    fn hear_word(&mut self, alias: u32, word: Word) -> Result<Option<(u32, Word)>, Violation> {
        let Some(half) = self.half(alias) else { return Err(Violation::UnknownAlias(alias)) };
        let heard = half.dialogue.hear(&word).map_err(|misstep| Violation::Half { alias, misstep })?;
        Ok((heard == Heard::Deliver && !half.closed).then_some((alias, word)))
    }

    fn hear_over(&mut self, alias: u32) -> Result<Option<(u32, Word)>, Violation> {
        if let Some(half) = self.half(alias) {
            half.over = true;
        }
        self.free_if_over(alias);
        Ok(None)
    }

    /// Writes what may be written now behind `out`, about `room` bytes, and returns how many bytes. If it returns at least `room`, there may be
    /// more.
    pub fn fill(&mut self, now: Time, room: usize, out: &mut Vec<Bytes>) -> usize {
        let owed = self.inbox.heard() != self.inbox.acked;
        let moment = (owed && (self.outbox.has_something(&self.config) || self.must_acknowledge(now))).then(|| {
            self.inbox.acked = self.inbox.heard();
            self.inbox.unacked_bytes = 0;
            self.ack_at = None;
            Frame::Ack { seen: self.inbox.acked }
        });
        self.outbox.fill(now, moment, &self.config, room, out)
    }

    fn must_acknowledge(&self, now: Time) -> bool {
        self.ack_at.is_some_and(|at| now >= at) || self.inbox.must_acknowledge(&self.config)
    }

    /// Whether [`fill`](Self::fill) would write something, or [`receive`](Self::receive) has an answer for a half.
    pub fn has_something(&self, now: Time) -> bool {
        !self.answers.is_empty() || self.outbox.has_something(&self.config) || self.must_acknowledge(now)
    }

    /// When [`fill`](Self::fill) has to be called if nothing happens before.
    pub fn due_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// Whether the peer has acknowledged all that this side has to send, and knows that this side has read all that it sent.
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_done() && self.inbox.heard() == self.inbox.acked && self.answers.is_empty()
    }

    /// How many halves are in the slab, closed ones of channels that are not over among them.
    pub fn halves(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// The socket is gone. What is left of its bytes is to be dropped.
    pub fn cut(&mut self) {
        self.ack_at = None;
        self.inbox.within_frame = false;
    }

    /// How many frames of the peer this side has seen.
    pub fn seen(&self) -> u64 {
        self.inbox.seen
    }

    /// A new socket carries the link, and the peer has seen so many frames of this side. The peer was told [`seen`](Self::seen) of this side.
    ///
    /// # Errors
    /// The peer cannot have seen so many.
    pub fn resume(&mut self, seen: u64) -> Result<(), Violation> {
        self.inbox.acked = self.inbox.seen;
        self.inbox.unacked_bytes = 0;
        if self.outbox.resume(seen) { Ok(()) } else { Err(Violation::Acknowledged(seen)) }
    }
}

const NOT_LOST: WireError = WireError::Invalid { what: "an end", value: 3 };

fn whole(head: Head, value: Bytes) -> Word {
    match head {
        Head::Grant(ticket, request) => Word::Grant(ticket, request, value),
        Head::Offer(ticket) | Head::Unread(ticket) | Head::GrantUnread(ticket, _) => Word::Offer(ticket, value),
        Head::Sent => unreachable!("a link's codec reads no such value"),
    }
}
