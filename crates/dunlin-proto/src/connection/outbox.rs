//! What a connection has to say: two lanes, and what may have to be said again.
//!
//! A numbered frame gets its number when it is first written, not when it is queued. So control frames overtake values that
//! wait, and there is still only one sequence to resume.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::config::Config;
use crate::id::{ChannelId, Ticket};
use crate::planted::planted;
use crate::wire::{Frame, FromHome, Head, ToHome, codec};

/// A numbered frame that has been written and not been acknowledged.
#[derive(Debug)]
struct Written {
    head: Bytes,
    /// A piece of a value that was not copied behind its head.
    piece: Option<Bytes>,
}

impl Written {
    fn len(&self) -> usize {
        self.head.len() + self.piece.as_ref().map_or(0, Bytes::len)
    }
}

/// What one channel waits to say.
#[derive(Debug, Default)]
struct Stream {
    /// The rest of a value whose head has been written.
    rest: Option<(Head, Bytes)>,
    waiting: VecDeque<ToHome>,
}

/// Small frames are written into pieces of so many bytes...
const PAGE: usize = 4 << 10;
/// ... until less is left. A frame that needs more takes a piece of its own.
const PAGE_MIN: usize = 256;

/// What became of a value that is asked back from the outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recalled {
    /// It has not been sent, at least not all of it: nobody has it.
    Unsent,
    /// All of it has been written.
    Sent,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    control: VecDeque<Frame>,
    streams: BTreeMap<ChannelId, Stream>,
    /// The channels that have something to say, in the order of their turns.
    turns: VecDeque<ChannelId>,
    written: VecDeque<Written>,
    written_bytes: usize,
    /// The number of the first frame in `written`.
    acked: u64,
    /// So many of `written` have been written to the present socket.
    current: usize,
    goodbye: Goodbye,
    /// Room for small frames.
    page: BytesMut,
    /// Empty, but for its room.
    numbered: Vec<Range<usize>>,
}

/// A node that leaves says so behind all else, and then nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Goodbye {
    #[default]
    No,
    ToSay,
    Said,
}

impl Outbox {
    pub(crate) fn push(&mut self, frame: Frame) {
        match frame {
            Frame::ToHome(channel, said) => {
                let stream = self.streams.entry(channel).or_insert_with(|| {
                    self.turns.push_back(channel);
                    Stream::default()
                });
                stream.waiting.push_back(said);
            }
            Frame::Goodbye if !planted!(GoodbyeFirst) => self.goodbye = Goodbye::ToSay,
            control => self.control.push_back(control),
        }
    }

    /// Takes an offer back that may not have been sent yet.
    pub(crate) fn recall(&mut self, channel: ChannelId, ticket: Ticket) -> Recalled {
        let Some(stream) = self.streams.get_mut(&channel) else { return Recalled::Sent };
        if matches!(&stream.rest, Some((Head::Offer(begun), _)) if *begun == ticket) {
            stream.rest = None;
            self.control.push_back(Frame::Cut(channel));
            return Recalled::Unsent;
        }
        let position = stream.waiting.iter().position(|said| match said {
            ToHome::Value { head: Head::Offer(t), .. } | ToHome::OfferChoice(t, _) => *t == ticket,
            _ => false,
        });
        match position {
            Some(at) => {
                stream.waiting.remove(at);
                Recalled::Unsent
            }
            None => Recalled::Sent,
        }
    }

    /// Whether no byte of this offer has been written.
    pub(crate) fn is_unsent(&self, channel: ChannelId, ticket: Ticket) -> bool {
        self.streams.get(&channel).is_some_and(|stream| {
            stream.waiting.iter().any(|said| match said {
                ToHome::Value { head: Head::Offer(t), .. } | ToHome::OfferChoice(t, _) => *t == ticket,
                _ => false,
            }) || matches!(&stream.rest, Some((Head::Offer(t), _)) if *t == ticket)
        })
    }

    /// Writes what may be written now behind `out`, about `room` bytes; `moment` goes first. Returns how many bytes.
    pub(crate) fn fill(&mut self, moment: Option<Frame>, config: &Config, room: usize, out: &mut Vec<Bytes>) -> usize {
        if self.page.capacity() < PAGE_MIN {
            self.page.reserve(PAGE);
        }
        let mut page =
            Page { bytes: std::mem::take(&mut self.page), numbered: std::mem::take(&mut self.numbered), total: 0 };
        if let Some(frame) = moment {
            // Nothing that is not numbered carries a piece of a value.
            codec::encode(&frame, &mut page.bytes);
            page.total = page.bytes.len();
        }
        if self.current < self.written.len() {
            page.flush(self, out);
        }
        while page.total < room && self.current < self.written.len() {
            let again = &self.written[self.current];
            out.push(again.head.clone());
            out.extend(again.piece.clone());
            page.total += again.len();
            self.current += 1;
        }
        while page.total < room && self.goodbye != Goodbye::Said {
            let frame = match self.control.pop_front() {
                Some(frame) => frame,
                None if self.written_bytes + page.bytes.len() >= config.unacked_max => break,
                None => match self.next_of_channels(config) {
                    Some(frame) => frame,
                    None if self.goodbye == Goodbye::ToSay => {
                        self.goodbye = Goodbye::Said;
                        Frame::Goodbye
                    }
                    None => break,
                },
            };
            let start = page.bytes.len();
            let piece = codec::encode(&frame, &mut page.bytes);
            if planted!(TakenUnnumbered) && matches!(frame, Frame::FromHome(_, FromHome::Taken(_))) {
                page.total += page.bytes.len() - start;
                continue;
            }
            page.numbered.push(start..page.bytes.len());
            page.total += page.bytes.len() - start;
            if let Some(piece) = piece {
                page.flush(self, out);
                page.total += piece.len();
                self.written_bytes += piece.len();
                self.written.back_mut().expect("its head was just written").piece = Some(piece.clone());
                out.push(piece);
            }
        }
        page.flush(self, out);
        self.page = page.bytes;
        self.numbered = page.numbered;
        page.total
    }

    fn next_of_channels(&mut self, config: &Config) -> Option<Frame> {
        while let Some(channel) = self.turns.pop_front() {
            let Some(stream) = self.streams.get_mut(&channel) else { continue };
            let chunk = if self.turns.is_empty() { config.chunk_alone.max(config.chunk) } else { config.chunk };
            let frame = stream.next(channel, chunk);
            if stream.rest.is_none() && stream.waiting.is_empty() {
                self.streams.remove(&channel);
            } else {
                self.turns.push_back(channel);
            }
            if frame.is_some() {
                return frame;
            }
        }
        None
    }

    /// A socket begins to carry the connection, and the other side has seen so many frames.
    ///
    /// `false`: that cannot be, and the connection cannot go on.
    pub(crate) fn resume(&mut self, seen: u64) -> bool {
        let plausible = planted!(ResendAll) || self.acknowledge(seen);
        self.current = 0;
        plausible
    }

    /// The other side has seen so many frames. `false`: that cannot be.
    pub(crate) fn acknowledge(&mut self, seen: u64) -> bool {
        if seen < self.acked || seen > self.acked + self.written.len() as u64 {
            return false;
        }
        let count = (seen - self.acked) as usize;
        self.written_bytes -= self.written.drain(..count).map(|written| written.len()).sum::<usize>();
        self.acked = seen;
        self.current = self.current.saturating_sub(count);
        true
    }

    /// Whether [`fill`](Self::fill) would write anything numbered.
    pub(crate) fn has_something(&self, config: &Config) -> bool {
        let more = !self.turns.is_empty() || self.goodbye == Goodbye::ToSay;
        self.current < self.written.len()
            || (self.goodbye != Goodbye::Said
                && (!self.control.is_empty() || (more && self.written_bytes < config.unacked_max)))
    }

    /// Whether all has been written and acknowledged.
    pub(crate) fn is_done(&self) -> bool {
        let all_said = match self.goodbye {
            Goodbye::No => self.control.is_empty() && self.turns.is_empty(),
            Goodbye::ToSay => false,
            Goodbye::Said => true,
        };
        self.written.is_empty() && all_said
    }

    /// How many frames the other side is known to have seen.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// About how many bytes wait for the other side to read them, without values that have not been written.
    pub(crate) fn owed_bytes(&self) -> usize {
        // What waits in the control lane is short, but for a few texts.
        self.written_bytes + self.control.len() * 64
    }

    /// Bytes that are kept because they are not acknowledged.
    pub(crate) fn unacked_bytes(&self) -> usize {
        self.written_bytes
    }
}

impl Stream {
    fn next(&mut self, channel: ChannelId, chunk: usize) -> Option<Frame> {
        if let Some((head, mut rest)) = self.rest.take() {
            let piece = rest.split_to(rest.len().min(chunk));
            self.rest = (!rest.is_empty()).then_some((head, rest));
            return Some(Frame::More(channel, piece));
        }
        let ToHome::Value { head, total, first: mut value } = self.waiting.front()?.clone() else {
            return self.waiting.pop_front().map(|said| Frame::ToHome(channel, said));
        };
        self.waiting.pop_front();
        if planted!(NewestFirst) {
            self.waiting.make_contiguous().reverse();
        }
        let first = value.split_to(value.len().min(chunk));
        self.rest = (!value.is_empty()).then_some((head, value));
        Some(Frame::ToHome(channel, ToHome::Value { head, total, first }))
    }
}

/// Small frames one behind the other, so that they go out as one piece.
struct Page {
    bytes: BytesMut,
    /// Where the numbered ones are in `bytes`.
    numbered: Vec<Range<usize>>,
    total: usize,
}

impl Page {
    fn flush(&mut self, outbox: &mut Outbox, out: &mut Vec<Bytes>) {
        if self.bytes.is_empty() {
            return;
        }
        let bytes = self.bytes.split().freeze();
        for range in self.numbered.drain(..) {
            let head = bytes.slice(range);
            outbox.written_bytes += head.len();
            outbox.written.push_back(Written { head, piece: None });
            outbox.current += 1;
        }
        out.push(bytes);
    }
}
