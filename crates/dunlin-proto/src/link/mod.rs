//! One connection between two nodes, with the channels that it carries, as a state machine.
//!
//! A [`Link`] has neither a socket nor a clock: its driver passes it bytes and the time, and writes what it
//! returns. It uses the inbox and the window of the connections of a [`Machine`](crate::Machine),
//! acknowledges as a machine does, and has the lanes of its outbox. It has no handshake, no heartbeats, no
//! names and no moves, and each side grants the other unlimited memory
//! ([`Memory::Credit`](crate::wire::Memory) is never sent): those are later parts of the redesign of which
//! this is a slice.
//!
//! # Channels
//! A channel has a half at each side. Both sides [open](Link::open) it under one number, which they know from
//! elsewhere, and then [attach](Link::attach) it: the sending half sends `ATTACH`, the home answers. From
//! then on each frame names its half by the index in the slab of that half's node, its *alias*. Words that
//! are [sent](Link::send) earlier wait. An alias is reused when both halves are [closed](Link::close): then
//! no frame on its way can be for the earlier half.
//!
//! # What is checked
//! The link knows which offers are open on each half (`dialogue.rs`), and ends with a [`Violation`] when the
//! peer sends a word that is impossible now. A word that crossed another one is dropped, and the half does
//! not receive it.
//!
//! # After a cut
//! When its socket is [cut](Link::cut), the link keeps everything that its peer has not acknowledged. Each
//! side sends the other how many frames it has [received](Link::seen), and [resumes](Link::resume) from there
//! on the next socket.

mod dialogue;
mod outbox;
#[cfg(test)]
mod tests;
mod violation;
pub(crate) mod word;

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use dunlin_sorted::SortedMap;

pub use self::violation::{Misstep, Violation};
pub use self::word::Word;
use crate::account::Charge;
use crate::config::Config;
use crate::connection::inbox::{Arrived, Begun, Inbox};
use crate::connection::outbox::SMALL;
use crate::id::{ChannelId, Ticket};
use crate::time::Time;
use crate::wire::codec::link::{self as codec, Front};
use crate::wire::{Head, Which};
use dialogue::{Dialogue, Heard};
use outbox::Outbox;
use word::Said;

/// One half of a channel, in its place in the slab.
#[derive(Clone, Debug)]
struct Half {
    number: u64,
    dialogue: Dialogue,
    /// The alias of the other half, in the slab of its node. `None`: the channel is not attached.
    to: Option<u32>,
    /// The words sent before that. `None`: the half is closed.
    early: VecDeque<Option<Word>>,
    /// This half sends nothing more.
    closed: bool,
    /// The other half sends nothing more.
    over: bool,
}

impl Half {
    /// Queues a word, or (`None`) the close of the half.
    #[inline]
    fn push(&mut self, alias: u32, word: Option<Word>, outbox: &mut Outbox) {
        match (self.to, self.dialogue.which()) {
            (None, _) => self.early.push_back(word),
            (Some(to), Which::Sender) => outbox.push(alias, to, word),
            (Some(to), Which::Receiver) => outbox.push_control(to, word.map_or(Said::Over, Said::Word)),
        }
    }

    /// Recalls an offer that has not been written in whole. `false`: it has.
    fn recall(&mut self, alias: u32, ticket: Ticket, outbox: &mut Outbox) -> bool {
        let is_offer = |word: &Option<Word>| word.as_ref().is_some_and(|word| word.offers() == Some(ticket));
        let recalled = match self.to {
            Some(_) => outbox.recall(alias, ticket),
            None => {
                let at = self.early.iter().position(is_offer);
                at.and_then(|at| self.early.remove(at)).is_some()
            }
        };
        if recalled {
            self.dialogue.recalled(ticket);
        }
        recalled
    }
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
    homes: SortedMap<u64, u32>,
    /// ... and the sending halves, by the aliases that the peer gave them, that wait for their homes.
    attaching: SortedMap<u64, u32>,
    /// Answers of this side to itself, for offers that were not sent yet.
    answers: VecDeque<(u32, Word)>,
    /// The latest time to acknowledge what was read.
    ack_at: Option<Time>,
}

impl Link {
    /// A link without channels or a socket. Of the configuration, only the sizes and the times of
    /// acknowledgements count.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            outbox: Outbox::default(),
            inbox: Inbox::default(),
            slab: Vec::new(),
            free: Vec::new(),
            homes: SortedMap::new(),
            attaching: SortedMap::new(),
            answers: VecDeque::new(),
            ack_at: None,
        }
    }

    /// Makes a half of the channel with this number, and returns its alias. `which`: the end that is here.
    /// The link sends nothing about the half before it is [attached](Self::attach), so nothing can arrive for
    /// it.
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
            return self.outbox.push_control(alias, Said::Attach { number });
        }
        match self.attaching.remove(&number) {
            Some(to) => self.answer_attach(alias, to),
            None => assert!(self.homes.insert(number, alias).is_none(), "channel {number} has one home"),
        }
    }

    /// The home answers the sending half.
    fn answer_attach(&mut self, alias: u32, to: u32) {
        self.outbox.push_control(to, Said::Attached { alias });
        self.attached(alias, to);
    }

    fn attached(&mut self, alias: u32, to: u32) {
        let Some(half) = self.half(alias) else { return };
        half.to = Some(to);
        let early = std::mem::take(&mut half.early);
        if let Some(half) = self.slab.get_mut(alias as usize).and_then(Option::as_mut) {
            early.into_iter().for_each(|word| half.push(alias, word, &mut self.outbox));
        }
        self.free_if_over(alias);
    }

    fn half(&mut self, alias: u32) -> Option<&mut Half> {
        self.slab.get_mut(alias as usize)?.as_mut()
    }

    /// Queues a word of this half behind those before it. Words of a closed half are dropped.
    pub fn send(&mut self, alias: u32, word: Word) {
        let Some(half) = self.slab.get_mut(alias as usize).and_then(Option::as_mut) else { return };
        if half.closed || !half.dialogue.send(&word) {
            return;
        }
        if let Word::Withdraw(ticket) = word
            && half.recall(alias, ticket, &mut self.outbox)
        {
            return self.answers.push_back((alias, Word::Withdrawn(ticket)));
        }
        half.push(alias, Some(word), &mut self.outbox);
    }

    /// The half sends nothing more, and receives nothing more.
    pub fn close(&mut self, alias: u32) {
        let Some(half) = self.slab.get_mut(alias as usize).and_then(Option::as_mut) else { return };
        if !std::mem::replace(&mut half.closed, true) {
            half.push(alias, None, &mut self.outbox);
            self.free_if_over(alias);
        }
    }

    fn free_if_over(&mut self, alias: u32) {
        if self.half(alias).is_some_and(|half| half.closed && half.over && half.to.is_some()) {
            self.slab[alias as usize] = None;
            self.free.push(alias);
            self.answers.retain(|(of, _)| *of != alias);
        }
    }

    /// Bytes have arrived, appended to what the last call left in `buffer`. Each word for a half that is not
    /// closed goes to `deliver`, with the alias of that half. Returns how many bytes the frame whose
    /// beginning is left in `buffer` needs at least.
    ///
    /// A driver also calls it without new bytes after it was woken: withdrawals of unwritten offers are
    /// answered here.
    ///
    /// # Errors
    /// The peer breaks the protocol. The link is then useless, except for [closing](Self::close) its halves.
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
                Front::Frame(alias, heard) => self.hear(now, alias, heard, deliver)?,
            }
        }
        self.inbox.within_frame = !buffer.is_empty();
        if self.ack_at.is_none() && self.inbox.heard() != self.inbox.acked {
            self.ack_at = Some(now + self.config.ack_delay);
        }
        Ok(missing)
    }

    #[inline]
    fn hear(
        &mut self,
        now: Time,
        alias: u32,
        heard: codec::Heard,
        deliver: &mut impl FnMut(u32, Word),
    ) -> Result<(), Violation> {
        use codec::Heard;

        if let Heard::Ack(seen) = heard {
            let is_possible = self.outbox.acknowledge(now, seen, &self.config);
            return if is_possible { Ok(()) } else { Err(Violation::Acknowledged(seen)) };
        }
        self.inbox.seen += 1;
        // As in a `Machine`: about what the peer keeps for it.
        self.inbox.unacked_bytes += 32;
        match heard {
            Heard::Word(Which::Receiver, word) => {
                self.addressed(alias, Which::Sender)?;
                self.hear_word(alias, word, deliver)
            }
            Heard::Word(Which::Sender, word) => {
                if self.inbox.is_within_value(id(alias)) {
                    return Err(Violation::WithinValue(alias));
                }
                let length = word.value().map_or(0, Bytes::len);
                self.outbox.meets(now, false, alias, length <= SMALL, &self.config);
                self.inbox.unacked_bytes += length;
                self.addressed(alias, Which::Receiver)?;
                self.fits(alias, length as u64)?;
                self.hear_word(alias, word, deliver)
            }
            Heard::Begins { head, total, first } => self.hear_begin(now, alias, head, total, first),
            Heard::More(piece) => {
                self.outbox.meets(now, false, alias, piece.len() <= SMALL, &self.config);
                self.inbox.unacked_bytes += piece.len();
                match self.inbox.more(id(alias), &piece) {
                    Arrived::NotYet | Arrived::Unwanted(_) => Ok(()),
                    Arrived::Whole(value) => self.hear_word(alias, Word::whole(value.head, value.bytes), deliver),
                    Arrived::Wrong => Err(Violation::StrayPiece(alias)),
                }
            }
            Heard::Cut => self.inbox.cut(id(alias)).map(drop).ok_or(Violation::StrayPiece(alias)),
            Heard::Over(from) => {
                if self.inbox.is_within_value(id(alias)) {
                    return Err(Violation::WithinValue(alias));
                }
                let here = if from == Which::Sender { Which::Receiver } else { Which::Sender };
                self.addressed(alias, here)?.over = true;
                self.free_if_over(alias);
                Ok(())
            }
            Heard::Attach { number } => self.hear_attach(number, alias),
            Heard::Attached { alias: to } => match self.half(alias) {
                Some(half) if half.dialogue.which() == Which::Sender && half.to.is_none() => {
                    self.attached(alias, to);
                    Ok(())
                }
                Some(half) => Err(Violation::AttachedTwice(half.number)),
                None => Err(Violation::UnknownAlias(alias)),
            },
            Heard::Ack(_) => unreachable!("heard before"),
        }
    }

    /// Whether a value may have this length.
    fn fits(&self, alias: u32, bytes: u64) -> Result<(), Violation> {
        let bytes_max = self.config.value_max as u64;
        if bytes > bytes_max { Err(Violation::ValueTooLarge { alias, bytes, bytes_max }) } else { Ok(()) }
    }

    /// The first piece of a value has arrived.
    fn hear_begin(&mut self, now: Time, alias: u32, head: Head, total: u64, first: Bytes) -> Result<(), Violation> {
        if self.inbox.is_within_value(id(alias)) {
            return Err(Violation::WithinValue(alias));
        }
        self.outbox.meets(now, false, alias, first.len() <= SMALL, &self.config);
        self.inbox.unacked_bytes += first.len();
        let half = self.addressed(alias, Which::Receiver)?;
        let heard = match head {
            Head::Sent => half.dialogue.hear_sent(),
            Head::Offer(ticket) => half.dialogue.hear_value(ticket, true),
            Head::Grant(ticket, _) => half.dialogue.hear_value(ticket, false),
            _ => unreachable!("a link's codec reads no other values"),
        };
        heard.map_err(|misstep| Violation::Half { alias, misstep })?;
        let wanted = !half.closed;
        self.fits(alias, total)?;
        self.inbox.begin(id(alias), Begun { head, total, wanted, charge: Charge::NONE }, first);
        Ok(())
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

    /// The half that a word of the peer is for.
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

    #[inline]
    fn hear_word(&mut self, alias: u32, word: Word, deliver: &mut impl FnMut(u32, Word)) -> Result<(), Violation> {
        let Some(half) = self.half(alias) else { return Err(Violation::UnknownAlias(alias)) };
        let heard = half.dialogue.hear(&word).map_err(|misstep| Violation::Half { alias, misstep })?;
        if heard == Heard::Deliver && !half.closed {
            deliver(alias, word);
        }
        Ok(())
    }

    /// Appends what may be written now to `out`, about `room` bytes, and returns how many bytes. If it
    /// returns at least `room`, there may be more.
    pub fn fill(&mut self, now: Time, room: usize, out: &mut Vec<Bytes>) -> usize {
        let owed = self.inbox.heard() - self.inbox.acked;
        let rides = !self.outbox.is_idle() && self.inbox.acknowledges_beside(now, &self.config);
        let ack = (rides || (owed > 0 && self.must_acknowledge(now))).then(|| {
            self.ack_at = None;
            self.inbox.acknowledge(now)
        });
        if ack.is_none() && self.outbox.is_idle() {
            return 0;
        }
        self.outbox.fill(now, ack, &self.config, room, out)
    }

    fn must_acknowledge(&self, now: Time) -> bool {
        self.ack_at.is_some_and(|at| now >= at) || self.inbox.must_acknowledge(&self.config)
    }

    /// Whether [`fill`](Self::fill) would write something, or [`receive`](Self::receive) has an answer for a
    /// half.
    pub fn has_something(&self, now: Time) -> bool {
        !self.answers.is_empty() || self.outbox.has_something(&self.config) || self.must_acknowledge(now)
    }

    /// When [`fill`](Self::fill) has to be called if no event comes earlier.
    pub fn due_at(&self) -> Option<Time> {
        self.ack_at
    }

    /// Whether the peer has acknowledged everything from this side, and this side has acknowledged everything
    /// from the peer.
    pub fn is_quiet(&self) -> bool {
        self.outbox.is_done() && self.inbox.heard() == self.inbox.acked && self.answers.is_empty()
    }

    /// How many halves are in the slab, including closed ones of channels that are not over.
    pub fn halves(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// The socket is gone. The driver drops the rest of its bytes.
    pub fn cut(&mut self) {
        self.ack_at = None;
        self.inbox.within_frame = false;
    }

    /// How many frames of the peer this side has received.
    pub fn seen(&self) -> u64 {
        self.inbox.seen
    }

    /// A new socket carries the link, and the peer has received `seen` frames of this side. The peer has been
    /// sent [`seen`](Self::seen) of this side.
    ///
    /// # Errors
    /// The peer cannot have received that many.
    pub fn resume(&mut self, seen: u64) -> Result<(), Violation> {
        self.inbox.acked = self.inbox.seen;
        self.inbox.unacked_bytes = 0;
        if self.outbox.resume(seen) { Ok(()) } else { Err(Violation::Acknowledged(seen)) }
    }
}

fn id(alias: u32) -> ChannelId {
    ChannelId(alias.into())
}
