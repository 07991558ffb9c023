//! The frames of a [link](crate::link). As in other frames, a kind and a length come first, and numbers are
//! varints. An alias replaces the channel's id: it is the index, in its node's slab, of the half that
//! receives the frame. In `ATTACH` it is the index of the sending half.
//!
//! Kinds are those of other frames with the same meaning, except for `HOME_IS` (how the home takes values),
//! `TAKE` (refuse), `QUIET` and `DRAINED` (the other half is closed).

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Next, WireError, next};
use crate::link::word::{Said, Word};
use crate::wire::fields::{Field, Reader, Writer, number_len, tail};
use crate::wire::{End, Head, Which, limits};

/// Kinds of other frames that a link uses too.
mod kind {
    pub(super) use crate::wire::{frame::kind::*, home::kind::*, sender::kind::*, value::kind::*};
}

/// The content of a frame for a half, or for the link.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Ack(u64),
    Attach {
        number: u64,
    },
    Attached {
        alias: u32,
    },
    /// A word from the half at this end of the channel.
    Word(Which, Word),
    /// The first piece of a value.
    Begins {
        head: Head,
        total: u64,
        first: Bytes,
    },
    More(Bytes),
    Cut,
    /// The half at this end of the channel is closed.
    Over(Which),
}

/// The content at the front of a buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// A frame for the half with this alias, taken out of the buffer.
    Frame(u32, Heard),
    /// No whole frame: at least this many bytes are missing.
    Missing(usize),
}

/// Writes a frame of at most four numbers, and `follows` bytes that the caller writes.
#[inline]
fn head<const N: usize>(out: &mut BytesMut, kind: u8, numbers: [u64; N], follows: usize) {
    /// A kind and a length of one byte: that of nearly all frames.
    const SHORT: usize = 2;
    /// A kind and a length of up to five bytes.
    const LONG: usize = 6;
    let mut bytes = [0; LONG + 40];
    let end = numbers.iter().fold(LONG, |at, n| put(&mut bytes, at, *n));
    let length = end - LONG + follows;
    let mut start = LONG - SHORT;
    if length < 0x80 {
        bytes[start + 1] = length as u8;
    } else {
        start = LONG - 1 - number_len(length as u64);
        put(&mut bytes, start + 1, length as u64);
    }
    bytes[start] = kind;
    out.put_slice(&bytes[start..end]);
}

#[inline]
fn put(bytes: &mut [u8; 46], mut at: usize, mut n: u64) -> usize {
    while n >= 0x80 {
        bytes[at] = n as u8 | 0x80;
        n >>= 7;
        at += 1;
    }
    bytes[at] = n as u8;
    at + 1
}

/// The same, followed by a field with a form of its own.
fn long<const N: usize>(out: &mut BytesMut, kind: u8, numbers: [u64; N], field: &impl Field) {
    let mut bytes = BytesMut::new();
    field.write(&mut Writer::fields(&mut bytes));
    head(out, kind, numbers, bytes.len());
    out.put_slice(&bytes);
}

pub(crate) fn write_ack(seen: u64, out: &mut BytesMut) {
    head(out, kind::ACK, [seen], 0);
}

pub(crate) fn write_more(to: u32, piece: Bytes, out: &mut BytesMut) -> Option<Bytes> {
    head(out, kind::MORE, [to.into()], piece.len());
    tail(out, &piece)
}

pub(crate) fn write_over(from: Which, to: u32, out: &mut BytesMut) {
    head(out, if from == Which::Sender { kind::QUIET } else { kind::DRAINED }, [to.into()], 0);
}

/// Writes a frame of the control lane.
pub(crate) fn write_said(to: u32, said: Said, out: &mut BytesMut) {
    match said {
        Said::Word(word) => {
            let piece = write_word(Which::Receiver, to, word, 0, out);
            debug_assert!(piece.is_none(), "a home sends no values");
        }
        Said::Attach { number } => head(out, kind::ATTACH, [to.into(), number], 0),
        Said::Attached { alias } => head(out, kind::ATTACHED, [to.into(), alias.into()], 0),
        Said::Cut => head(out, kind::CUT, [to.into()], 0),
        Said::Over => write_over(Which::Receiver, to, out),
    }
}

/// Writes a word of the half at this end of its channel, with the whole of a value of `total` bytes or its
/// first piece. The returned bytes follow it, uncopied.
pub(crate) fn write_word(from: Which, to: u32, word: Word, total: usize, out: &mut BytesMut) -> Option<Bytes> {
    let (to, total) = (u64::from(to), total as u64);
    match word {
        Word::Offer(ticket, value) => {
            head(out, kind::OFFER, [to, ticket, total], value.len());
            return tail(out, &value);
        }
        Word::Grant(ticket, request, value) => {
            head(out, kind::GRANT, [to, ticket, request, total], value.len());
            return tail(out, &value);
        }
        Word::Sent(value) => {
            head(out, kind::SENT, [to, total], value.len());
            return tail(out, &value);
        }
        // One more than the places, or 0 for none.
        Word::Opened(places) => head(out, kind::HOME_IS, [to, places.map_or(0, |places| u64::from(places) + 1)], 0),
        Word::Credit(places) => head(out, kind::CREDIT, [to, places.into()], 0),
        Word::OfferChoice(ticket, choice) => {
            head(out, kind::OFFER_CHOICE, [to, ticket], 16);
            out.put_u128(choice);
        }
        Word::Refuse(ticket) => head(out, kind::TAKE, [to, ticket], 0),
        Word::Withdraw(ticket) => head(out, kind::WITHDRAW, [to, ticket], 0),
        Word::Revoke(ticket) => head(out, kind::REVOKE, [to, ticket], 0),
        Word::Taken(ticket) => head(out, kind::TAKEN, [to, ticket], 0),
        Word::Held(ticket) => head(out, kind::HELD, [to, ticket], 0),
        Word::Released(ticket) => head(out, kind::RELEASED, [to, ticket], 0),
        Word::Withdrawn(ticket) => head(out, kind::WITHDRAWN, [to, ticket], 0),
        Word::Reserve(ticket, request) => head(out, kind::RESERVE, [to, ticket, request], 0),
        // Each grant has one answer, and a half does not grant again before that: no number is needed.
        Word::Abort(ticket) => head(out, kind::ABORT, [to, ticket], 0),
        Word::Failed(ticket, why) => long(out, kind::FAILED, [to, ticket], &why),
        Word::Ended(how) => {
            let kind = if from == Which::Sender { kind::SENDER_ENDED } else { kind::HOME_ENDED };
            long(out, kind, [to], &how);
        }
    }
    None
}

/// Takes a frame from the front of `buffer`. The piece of a value is a part of the buffer, not a copy.
#[inline]
pub(crate) fn read(buffer: &mut BytesMut) -> Result<Front, WireError> {
    let (head, body) = match next(buffer)? {
        Next::Wait(missing) => return Ok(Front::Missing(missing)),
        Next::Frame { head, body } => (head, body),
    };
    let kind = buffer[0];
    let mut fields = Fields { bytes: &buffer[head..head + body], at: 0 };
    let f = &mut fields;
    if kind == kind::ACK {
        let seen = f.number("a count of frames")?;
        return finish(buffer, head, body, 0, Heard::Ack(seen));
    }
    let to = f.alias()?;
    let (home, sender) = (|word| Heard::Word(Which::Receiver, word), |word| Heard::Word(Which::Sender, word));
    let heard = match kind {
        kind::TAKEN => home(Word::Taken(f.ticket()?)),
        kind::OFFER | kind::GRANT | kind::SENT => {
            let of = match kind {
                kind::SENT => Head::Sent,
                kind::OFFER => Head::Offer(f.ticket()?),
                _ => Head::Grant(f.ticket()?, f.number("a request")?),
            };
            let (total, at) = (f.number("a value's length")?, head + f.at);
            let length = head + body - at;
            if length as u64 > total {
                return Err(WireError::Trailing((length as u64 - total) as usize));
            }
            buffer.advance(at);
            // Only the empty value has an empty piece: otherwise a value could stay unfinished at no cost to
            // its sender.
            let first = if total == 0 { Bytes::new() } else { piece(buffer, length)? };
            let heard = if length as u64 == total {
                sender(Word::whole(of, first))
            } else {
                Heard::Begins { head: of, total, first }
            };
            return Ok(Front::Frame(to, heard));
        }
        kind::MORE => {
            let at = head + f.at;
            buffer.advance(at);
            return Ok(Front::Frame(to, Heard::More(piece(buffer, head + body - at)?)));
        }
        kind::CUT => Heard::Cut,
        kind::ATTACH => Heard::Attach { number: f.number("a channel's number")? },
        kind::ATTACHED => Heard::Attached { alias: f.alias()? },
        kind::OFFER_CHOICE => sender(Word::OfferChoice(f.ticket()?, f.id()?)),
        kind::WITHDRAW => sender(Word::Withdraw(f.ticket()?)),
        kind::REVOKE => sender(Word::Revoke(f.ticket()?)),
        kind::TAKE => sender(Word::Refuse(f.ticket()?)),
        kind::QUIET => Heard::Over(Which::Sender),
        kind::SENDER_ENDED => sender(Word::Ended(f.end()?)),
        kind::HOME_IS => home(Word::Opened(f.opened()?)),
        kind::CREDIT => home(Word::Credit(f.places()?)),
        kind::HELD => home(Word::Held(f.ticket()?)),
        kind::RELEASED => home(Word::Released(f.ticket()?)),
        kind::WITHDRAWN => home(Word::Withdrawn(f.ticket()?)),
        kind::RESERVE => home(Word::Reserve(f.ticket()?, f.number("a request")?)),
        kind::ABORT => home(Word::Abort(f.ticket()?)),
        kind::FAILED => home(Word::Failed(f.ticket()?, f.rest()?)),
        kind::HOME_ENDED => home(Word::Ended(f.end()?)),
        kind::DRAINED => Heard::Over(Which::Receiver),
        unknown => return Err(WireError::UnknownKind(unknown)),
    };
    let left = body - fields.at;
    if left > 0 { Err(WireError::Trailing(left)) } else { finish(buffer, head, body, to, heard) }
}

#[inline]
fn finish(buffer: &mut BytesMut, head: usize, body: usize, to: u32, heard: Heard) -> Result<Front, WireError> {
    buffer.advance(head + body);
    Ok(Front::Frame(to, heard))
}

fn piece(buffer: &mut BytesMut, length: usize) -> Result<Bytes, WireError> {
    match length {
        0 => Err(WireError::Truncated("a piece of a value")),
        1..=limits::CHUNK => Ok(buffer.split_to(length).freeze()),
        _ => Err(WireError::TooLong {
            what: "a piece of a value",
            bytes: length as u64,
            bytes_max: limits::CHUNK as u64,
        }),
    }
}

/// Reads numbers from the front of a frame's body.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Fields<'_> {
    #[inline]
    fn number(&mut self, what: &'static str) -> Result<u64, WireError> {
        // Most have one byte, or two.
        match *self.bytes.get(self.at..).unwrap_or_default() {
            [byte @ 0..0x80, ..] => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            [low @ 0x80..=0xff, high @ 1..0x80, ..] => {
                self.at += 2;
                Ok(u64::from(low & 0x7f) | u64::from(high) << 7)
            }
            _ => self.long_number(what),
        }
    }

    fn long_number(&mut self, what: &'static str) -> Result<u64, WireError> {
        let mut n: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.bytes.get(self.at).ok_or(WireError::Truncated(what))?;
            self.at += 1;
            if shift == 63 && byte > 1 {
                break;
            }
            n |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(WireError::Overlong(what)) } else { Ok(n) };
            }
        }
        Err(WireError::Invalid { what, value: u64::MAX })
    }

    #[inline]
    fn ticket(&mut self) -> Result<u64, WireError> {
        self.number("a ticket")
    }

    #[inline]
    fn alias(&mut self) -> Result<u32, WireError> {
        let value = self.number("an alias")?;
        u32::try_from(value).map_err(|_| WireError::Invalid { what: "an alias", value })
    }

    fn places(&mut self) -> Result<u32, WireError> {
        let value = self.number("a count of places")?;
        u32::try_from(value).map_err(|_| WireError::Invalid { what: "a count of places", value })
    }

    fn opened(&mut self) -> Result<Option<u32>, WireError> {
        let value = self.number("a count of places")?;
        let Some(places) = value.checked_sub(1) else { return Ok(None) };
        u32::try_from(places).map(Some).map_err(|_| WireError::Invalid { what: "a count of places", value })
    }

    fn id(&mut self) -> Result<u128, WireError> {
        let bytes = self.bytes.get(self.at..self.at + 16).ok_or(WireError::Truncated("a choice"))?;
        self.at += 16;
        Ok(u128::from_be_bytes(bytes.try_into().expect("there are 16")))
    }

    /// How a half has ended its channel. A half never reports itself lost.
    fn end(&mut self) -> Result<End, WireError> {
        match self.rest()? {
            End::Lost => Err(WireError::Invalid { what: "an end", value: 3 }),
            how => Ok(how),
        }
    }

    /// Rare fields use the codec's own reader.
    fn rest<F: Field>(&mut self) -> Result<F, WireError> {
        let bytes = Bytes::copy_from_slice(&self.bytes[self.at..]);
        let mut reader = Reader::new(&bytes, 0..bytes.len());
        let value = F::read(&mut reader)?;
        self.at = self.bytes.len() - reader.left();
        Ok(value)
    }
}
