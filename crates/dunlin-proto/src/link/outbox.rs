//! What a link has to send, in two lanes, and what it may have to send again.
//!
//! It does the same as the [outbox](crate::connection::outbox) of a connection, with its window and its sizes
//! of pieces, but in fewer instructions. Streams are in a slab, by the aliases of their halves. Words are
//! encoded when they are written, so that those of homes overtake values, and one sequence is enough to
//! resume. Frames written at once are kept as one group.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

use super::word::{Said, Word};
use crate::config::Config;
use crate::connection::outbox::{Company, PAGE, PAGE_MIN, SMALL, Sizes};
use crate::connection::window::Window;
use crate::id::Ticket;
use crate::time::Time;
use crate::wire::Which;
use crate::wire::codec::{self, link};

/// Frames that have been written together and have not all been acknowledged.
#[derive(Clone, Debug)]
struct Group {
    bytes: Bytes,
    /// A piece of a value that was not copied behind the last head.
    piece: Option<Bytes>,
    frames: u64,
}

impl Group {
    fn len(&self) -> usize {
        self.bytes.len() + self.piece.as_ref().map_or(0, Bytes::len)
    }

    /// The first frames have been acknowledged, but not all.
    fn forget(&mut self, frames: u64) {
        for _ in 0..frames {
            if let Ok(codec::Next::Frame { head, body }) = codec::next(&self.bytes) {
                self.bytes.advance(head + body);
            }
        }
        self.frames -= frames;
    }
}

/// What one sending half has to send.
#[derive(Clone, Debug, Default)]
struct Stream {
    /// The rest of a value of which a piece has been written, and the alias of its home. A value that is not
    /// an offer has no ticket: it is not recalled.
    rest: Option<(Option<Ticket>, u32, Bytes)>,
    /// Words, with the aliases of their homes: the previous half under the same alias may have left some.
    /// `None`: it is closed.
    waiting: VecDeque<(u32, Option<Word>)>,
    /// It is in one of the queues.
    has_turn: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    control: VecDeque<(u32, Said)>,
    /// By the aliases of the sending halves.
    streams: Vec<Stream>,
    /// The streams that have something to send, in the order of their turns...
    turns: VecDeque<u32>,
    /// ... and those that have just begun, with something small. They alternate with the others.
    newcomers: VecDeque<u32>,
    /// The last turn was a newcomer's.
    others_wait: bool,
    written: VecDeque<Group>,
    written_bytes: usize,
    /// The number of the first frame in `written`.
    acked: u64,
    /// How many groups of `written` have been written to the present socket.
    current: usize,
    /// The number of the next frame.
    next: u64,
    window: Window,
    company: Company,
    /// The caller writes more at once than others should have to wait for.
    is_roomy: bool,
    /// Room for small frames.
    page: BytesMut,
}

impl Outbox {
    /// Queues a frame that overtakes values: a word of a home, or one of the link.
    pub(super) fn push_control(&mut self, to: u32, said: Said) {
        if let Said::Word(Word::Credit(more)) = said
            && let Some((last, Said::Word(Word::Credit(places)))) = self.control.back_mut()
            && *last == to
            && let Some(sum) = places.checked_add(more)
        {
            *places = sum;
            return;
        }
        self.control.push_back((to, said));
    }

    /// Queues a word of the sending half with this alias for the home with that one; `None`: the half is
    /// closed.
    pub(super) fn push(&mut self, alias: u32, to: u32, word: Option<Word>) {
        let at = alias as usize;
        if self.streams.len() <= at {
            self.streams.resize_with(at + 1, Stream::default);
        }
        let stream = &mut self.streams[at];
        if !stream.has_turn {
            stream.has_turn = true;
            let is_small = word.as_ref().and_then(Word::value).is_none_or(|value| value.len() <= SMALL);
            if is_small { &mut self.newcomers } else { &mut self.turns }.push_back(alias);
        }
        stream.waiting.push_back((to, word));
    }

    /// Recalls an offer. `false`: all of it has been written.
    pub(super) fn recall(&mut self, alias: u32, ticket: Ticket) -> bool {
        let Some(stream) = self.streams.get_mut(alias as usize) else { return false };
        let is_offer =
            |(_, word): &(u32, Option<Word>)| word.as_ref().is_some_and(|word| word.offers() == Some(ticket));
        if let Some(at) = stream.waiting.iter().rposition(is_offer) {
            stream.waiting.remove(at);
            return true;
        }
        let Some((_, to, _)) = stream.rest.take_if(|(begun, ..)| *begun == Some(ticket)) else { return false };
        self.control.push_back((to, Said::Cut));
        true
    }

    /// Whether values may be written, with `in_hand` bytes not flushed yet; and whether small frames may.
    fn room(&self, in_hand: usize, config: &Config) -> (bool, bool) {
        let alone = self.is_roomy && self.company.is_alone;
        let (on_its_way, window) = (self.written_bytes + in_hand, self.window.bytes(alone, config));
        let small = window.saturating_add(config.chunk).min(config.unacked_max.max(window));
        (on_its_way < window, on_its_way < small)
    }

    /// A value, or a piece of one, was sent or received.
    pub(super) fn meets(&mut self, now: Time, is_sent: bool, alias: u32, is_small: bool, config: &Config) {
        self.company.meet(now, is_sent, crate::id::ChannelId(alias.into()), is_small, config);
    }

    /// Appends what may be written now to `out`, about `room` bytes, after `ack`. Returns how many bytes.
    pub(super) fn fill(
        &mut self,
        now: Time,
        ack: Option<u64>,
        config: &Config,
        room: usize,
        out: &mut Vec<Bytes>,
    ) -> usize {
        self.is_roomy = room > config.chunk_alone;
        let before = self.next;
        let mut total = 0;
        if let Some(seen) = ack {
            self.make_page();
            link::write_ack(seen, &mut self.page);
            total = self.page.len();
        }
        if self.current < self.written.len() && !self.page.is_empty() {
            out.push(self.page.split().freeze());
        }
        while total < room && self.current < self.written.len() {
            let again = &self.written[self.current];
            out.push(again.bytes.clone());
            out.extend(again.piece.clone());
            total += again.len();
            self.current += 1;
        }
        let (mut start, mut frames) = (self.page.len(), 0);
        while total < room {
            self.make_page();
            let at = self.page.len();
            let piece = if let Some((to, said)) = self.control.pop_front() {
                link::write_said(to, said, &mut self.page);
                None
            } else {
                match self.write_next(now, at - start, config, room) {
                    Some(piece) => piece,
                    None => break,
                }
            };
            frames += 1;
            total += self.page.len() - at + piece.as_ref().map_or(0, Bytes::len);
            if piece.is_some() {
                self.flush(start, frames, piece, out);
                (start, frames) = (0, 0);
            }
        }
        self.flush(start, frames, None, out);
        if self.next > before {
            self.window.written(now, self.next, self.written_bytes, !self.turns.is_empty(), config);
        }
        total
    }

    fn make_page(&mut self) {
        if self.page.is_empty() && self.page.capacity() < PAGE_MIN {
            self.page.reserve(PAGE);
        }
    }

    /// Flushes the page, with `frames` frames from `start` on.
    fn flush(&mut self, start: usize, frames: u64, piece: Option<Bytes>, out: &mut Vec<Bytes>) {
        if self.page.is_empty() {
            return;
        }
        let bytes = self.page.split().freeze();
        out.push(bytes.clone());
        out.extend(piece.clone());
        if frames > 0 {
            let mut bytes = bytes;
            bytes.advance(start);
            let group = Group { bytes, piece, frames };
            self.written_bytes += group.len();
            self.next += frames;
            self.current += 1;
            self.written.push_back(group);
        }
    }

    /// Writes the next word of the sending halves into the page. The returned bytes follow it. `None`:
    /// nothing may be written.
    fn write_next(&mut self, now: Time, in_hand: usize, config: &Config, at_once: usize) -> Option<Option<Bytes>> {
        let mut rooms = None;
        loop {
            if self.newcomers.is_empty() && self.turns.is_empty() {
                return None;
            }
            let (room, room_for_small) = *rooms.get_or_insert_with(|| self.room(in_hand, config));
            // Newcomers come first, as in fq_codel (RFC 8290), but not twice in succession while others wait.
            let first = room_for_small && (!room || !self.others_wait || self.turns.is_empty());
            let newcomer = if first { self.newcomers.pop_front() } else { None };
            self.others_wait = newcomer.is_some();
            let alias = newcomer.or_else(|| if room { self.turns.pop_front() } else { None })?;
            let is_last = self.turns.is_empty() && self.newcomers.is_empty();
            let sizes = || match is_last {
                true if self.is_roomy && self.company.is_alone && self.window.is_wide(at_once, config) => {
                    Sizes::undisturbed(config, at_once)
                }
                true => Sizes::alone(config),
                false => Sizes::beside_others(config),
            };
            let stream = &mut self.streams[alias as usize];
            let (piece, length) = if let Some((_, to, rest)) = &mut stream.rest {
                let (piece, to) = (rest.split_to(rest.len().min(sizes().piece)), *to);
                if rest.is_empty() {
                    stream.rest = None;
                }
                let length = piece.len();
                (Some(link::write_more(to, piece, &mut self.page)), length)
            } else {
                match stream.waiting.pop_front() {
                    None => (None, 0),
                    Some((to, None)) => {
                        link::write_over(Which::Sender, to, &mut self.page);
                        (Some(None), 0)
                    }
                    Some((to, Some(mut word))) => {
                        let (total, offer) = (word.value().map_or(0, Bytes::len), word.offers());
                        // (Fewer bytes always go in one piece.)
                        if total > config.chunk
                            && let Some(value) = word.value_mut()
                            && let sizes = sizes()
                            && total > sizes.whole
                        {
                            stream.rest = Some((offer, to, value.split_off(sizes.piece)));
                        }
                        (Some(link::write_word(Which::Sender, to, word, total, &mut self.page)), total)
                    }
                }
            };
            stream.has_turn = stream.rest.is_some() || !stream.waiting.is_empty();
            if stream.has_turn {
                self.turns.push_back(alias);
            }
            if piece.is_some() {
                self.meets(now, true, alias, length <= SMALL, config);
                return piece;
            }
        }
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_idle(&self) -> bool {
        let is_silent = self.turns.is_empty() && self.newcomers.is_empty();
        self.current == self.written.len() && self.control.is_empty() && is_silent
    }

    /// Whether [`fill`](Self::fill) would write anything numbered.
    pub(super) fn has_something(&self, config: &Config) -> bool {
        let (room, room_for_small) = self.room(0, config);
        let values = (room && !self.turns.is_empty()) || (room_for_small && !self.newcomers.is_empty());
        self.current < self.written.len()
            || !self.control.is_empty()
            || (values || (room && !self.newcomers.is_empty()))
    }

    /// Whether everything has been written and acknowledged.
    pub(super) fn is_done(&self) -> bool {
        self.written.is_empty() && self.is_idle()
    }

    /// The peer has received this many frames. `false`: that is not possible.
    pub(super) fn acknowledge(&mut self, now: Time, seen: u64, config: &Config) -> bool {
        let is_possible = self.forget(seen);
        if is_possible {
            self.window.acknowledged(now, seen, config);
        }
        is_possible
    }

    fn forget(&mut self, seen: u64) -> bool {
        if !(self.acked..=self.next).contains(&seen) {
            return false;
        }
        while let Some(group) = self.written.front_mut()
            && self.acked < seen
        {
            let (frames, length) = (group.frames.min(seen - self.acked), group.len());
            if frames < group.frames {
                group.forget(frames);
                self.written_bytes -= length - group.len();
            } else {
                self.written_bytes -= length;
                self.written.pop_front();
                self.current = self.current.saturating_sub(1);
            }
            self.acked += frames;
        }
        true
    }

    /// A new socket carries the link, and the peer has received `seen` frames. `false`: that is not possible.
    pub(super) fn resume(&mut self, seen: u64) -> bool {
        self.window = Window::default();
        let is_possible = self.forget(seen);
        self.current = 0;
        is_possible
    }
}
