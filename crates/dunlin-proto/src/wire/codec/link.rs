//! The frames of a [link](crate::link): as the other frames, but an alias of one to five bytes stands in place of a channel's id of 16.
//!
//! The outbox keeps [`Frame`]s, which have no words of their own for four frames of a link. These stand in for them:
//!
//! | frame of a link | kind | as a [`Frame`] | fields |
//! |---|---|---|---|
//! | attach | `ATTACH` | `ToHome::Drain`, its id from [`attach_id`] | the sender's alias, the channel's number |
//! | attached | `ATTACHED` | `FromHome::Attached` | to, the home's alias (`credits`), window, largest value |
//! | refuse | `TAKE` | `ToHome::Take` | to, ticket |
//! | over | `QUIET`, `DRAINED` | `ToHome::Quiet`, `FromHome::Drained` | to |
//!
//! All others are what they are called. `to` is the alias of the half that is to get the frame, in its node's slab.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Next, Reader, end, failure, head, kind, next, number, number_len, tail};
use crate::id::ChannelId;
use crate::wire::codec::WireError;
use crate::wire::{Frame, FromHome, Head, Terms, ToHome, limits};

/// The id under which the outbox keeps the attachment of a channel with this number: no alias is as large.
pub(crate) fn attach_id(number: u64, alias: u32) -> ChannelId {
    ChannelId(1 << 96 | u128::from(number) << 32 | u128::from(alias))
}

/// The two numbers of [`attach_id`]: the channel's, and the alias.
pub(crate) fn of_attach_id(id: ChannelId) -> (u64, u32) {
    ((id.0 >> 32) as u64, alias(id))
}

/// The alias that an id stands for.
pub(crate) fn alias(id: ChannelId) -> u32 {
    id.0 as u32
}

/// Writes a frame behind `out`. The piece of a value that is returned goes behind it, uncopied.
pub(crate) fn encode(frame: &Frame, out: &mut BytesMut) -> Option<Bytes> {
    match frame {
        Frame::Ack { seen } => numbers(out, kind::ACK, &[*seen]),
        Frame::ToHome(id, said) => {
            let to = u64::from(alias(*id));
            match said {
                ToHome::Value { head: of, total, first } => return value(out, to, *of, *total, first),
                ToHome::Drain => numbers(out, kind::ATTACH, &[to, of_attach_id(*id).0]),
                ToHome::OfferChoice(ticket, choice) => {
                    head(out, kind::OFFER_CHOICE, number_len(to) + number_len(*ticket) + 16);
                    number(out, to);
                    number(out, *ticket);
                    out.put_u128(*choice);
                }
                ToHome::Withdraw(ticket) => numbers(out, kind::WITHDRAW, &[to, *ticket]),
                ToHome::Revoke(ticket) => numbers(out, kind::REVOKE, &[to, *ticket]),
                ToHome::Take(ticket) => numbers(out, kind::TAKE, &[to, *ticket]),
                ToHome::Ended(how) => long(out, kind::SENDER_ENDED, &[to], |out| end(out, how)),
                ToHome::Quiet => numbers(out, kind::QUIET, &[to]),
                ToHome::Attach(_) | ToHome::State(_) => unreachable!("a link does not send {said:?}"),
            }
        }
        Frame::FromHome(id, said) => {
            let to = u64::from(alias(*id));
            match said {
                FromHome::Taken(ticket) => numbers(out, kind::TAKEN, &[to, *ticket]),
                FromHome::Held(ticket) => numbers(out, kind::HELD, &[to, *ticket]),
                FromHome::Released(ticket) => numbers(out, kind::RELEASED, &[to, *ticket]),
                FromHome::Withdrawn(ticket) => numbers(out, kind::WITHDRAWN, &[to, *ticket]),
                FromHome::Reserve(ticket, request) => numbers(out, kind::RESERVE, &[to, *ticket, *request]),
                FromHome::Abort(ticket, _) => numbers(out, kind::ABORT, &[to, *ticket]),
                FromHome::Failed(ticket, why) => long(out, kind::FAILED, &[to, *ticket], |out| failure(out, why)),
                FromHome::Ended(how) => long(out, kind::HOME_ENDED, &[to], |out| end(out, how)),
                FromHome::Attached(terms) => {
                    let Terms { window, credits: alias, value_max } = *terms;
                    numbers(out, kind::ATTACHED, &[to, alias.into(), window.into(), value_max]);
                }
                FromHome::Drained => numbers(out, kind::DRAINED, &[to]),
                said => unreachable!("a link does not send {said:?}"),
            }
        }
        Frame::More(id, piece) => {
            let to = u64::from(alias(*id));
            head(out, kind::MORE, number_len(to) + piece.len());
            number(out, to);
            return tail(out, piece);
        }
        Frame::Cut(id) => numbers(out, kind::CUT, &[alias(*id).into()]),
        frame => unreachable!("a link does not send {frame:?}"),
    }
    None
}

/// A frame of at most four numbers, which are 40 bytes at most.
fn numbers(out: &mut BytesMut, kind: u8, numbers: &[u64]) {
    let mut bytes = [0; 42];
    let mut room = &mut bytes[2..];
    for n in numbers {
        let mut n = *n;
        while n >= 0x80 {
            room.put_u8(n as u8 | 0x80);
            n >>= 7;
        }
        room.put_u8(n as u8);
    }
    let length = 40 - room.len();
    bytes[..2].copy_from_slice(&[kind, length as u8]);
    out.put_slice(&bytes[..2 + length]);
}

/// A frame of some numbers and a body of any length.
fn long(out: &mut BytesMut, kind: u8, numbers: &[u64], body: impl FnOnce(&mut BytesMut)) {
    let mut text = BytesMut::new();
    numbers.iter().for_each(|n| number(&mut text, *n));
    body(&mut text);
    head(out, kind, text.len());
    out.put_slice(&text);
}

fn value(out: &mut BytesMut, to: u64, of: Head, total: u64, first: &Bytes) -> Option<Bytes> {
    match of {
        Head::Offer(ticket) => {
            head(out, kind::OFFER, number_len(to) + number_len(ticket) + number_len(total) + first.len());
            number(out, to);
            number(out, ticket);
        }
        Head::Grant(ticket, request) => {
            let fields = [to, ticket, request, total].map(number_len).iter().sum::<usize>();
            head(out, kind::GRANT, fields + first.len());
            number(out, to);
            number(out, ticket);
            number(out, request);
        }
        of => unreachable!("a link does not send {of:?}"),
    }
    number(out, total);
    tail(out, first)
}

/// What is at the front of a buffer.
pub(crate) enum Front {
    /// A frame, which has been taken out of the buffer.
    Frame(Frame),
    /// No whole frame: it lacks at least so many bytes.
    Missing(usize),
}

/// Takes a frame from the front of `buffer`. The piece of a value is a part of the buffer, not a copy.
pub(crate) fn read(buffer: &mut BytesMut) -> Result<Front, WireError> {
    let (head, body) = match next(buffer)? {
        Next::Wait(missing) => return Ok(Front::Missing(missing)),
        Next::Frame { head, body } => (head, body),
    };
    let kind = buffer[0];
    let mut fields = Fields { bytes: &buffer[head..head + body], at: 0 };
    let f = &mut fields;
    let frame = match kind {
        kind::ACK => Frame::Ack { seen: f.number("a count of frames")? },
        kind::OFFER => {
            let (to, of) = (f.to()?, Head::Offer(f.ticket()?));
            let (total, at) = (f.number("a value's length")?, head + f.at);
            return value_of(buffer, at, head + body - at, to, of, total);
        }
        kind::GRANT => {
            let (to, of) = (f.to()?, Head::Grant(f.ticket()?, f.number("a request")?));
            let (total, at) = (f.number("a value's length")?, head + f.at);
            return value_of(buffer, at, head + body - at, to, of, total);
        }
        kind::MORE => {
            let (to, at) = (f.to()?, head + f.at);
            buffer.advance(at);
            let piece = piece(buffer, head + body - at)?;
            return Ok(Front::Frame(Frame::More(to, piece)));
        }
        kind::CUT => Frame::Cut(f.to()?),
        kind::ATTACH => {
            let alias = f.alias()?;
            Frame::ToHome(attach_id(f.number("a channel's number")?, alias), ToHome::Drain)
        }
        kind::OFFER_CHOICE => Frame::ToHome(f.to()?, ToHome::OfferChoice(f.ticket()?, f.id()?)),
        kind::WITHDRAW => Frame::ToHome(f.to()?, ToHome::Withdraw(f.ticket()?)),
        kind::REVOKE => Frame::ToHome(f.to()?, ToHome::Revoke(f.ticket()?)),
        kind::TAKE => Frame::ToHome(f.to()?, ToHome::Take(f.ticket()?)),
        kind::QUIET => Frame::ToHome(f.to()?, ToHome::Quiet),
        kind::SENDER_ENDED => Frame::ToHome(f.to()?, ToHome::Ended(f.rest(Reader::end)?)),
        kind::TAKEN => Frame::FromHome(f.to()?, FromHome::Taken(f.ticket()?)),
        kind::HELD => Frame::FromHome(f.to()?, FromHome::Held(f.ticket()?)),
        kind::RELEASED => Frame::FromHome(f.to()?, FromHome::Released(f.ticket()?)),
        kind::WITHDRAWN => Frame::FromHome(f.to()?, FromHome::Withdrawn(f.ticket()?)),
        kind::RESERVE => Frame::FromHome(f.to()?, FromHome::Reserve(f.ticket()?, f.number("a request")?)),
        kind::ABORT => Frame::FromHome(f.to()?, FromHome::Abort(f.ticket()?, 0)),
        kind::FAILED => Frame::FromHome(f.to()?, FromHome::Failed(f.ticket()?, f.rest(Reader::failure)?)),
        kind::HOME_ENDED => Frame::FromHome(f.to()?, FromHome::Ended(f.rest(Reader::end)?)),
        kind::DRAINED => Frame::FromHome(f.to()?, FromHome::Drained),
        kind::ATTACHED => {
            let (to, credits) = (f.to()?, f.alias()?);
            let window = f.number("a window")?;
            let window = u32::try_from(window).map_err(|_| WireError::Invalid { what: "a window", value: window })?;
            Frame::FromHome(to, FromHome::Attached(Terms { window, credits, value_max: f.number("a limit")? }))
        }
        unknown => return Err(WireError::UnknownKind(unknown)),
    };
    if fields.at < body {
        return Err(WireError::Trailing(body - fields.at));
    }
    buffer.advance(head + body);
    Ok(Front::Frame(frame))
}

/// A value, or its first piece: `length` bytes of the buffer from `at`.
fn value_of(
    buffer: &mut BytesMut,
    at: usize,
    length: usize,
    to: ChannelId,
    of: Head,
    total: u64,
) -> Result<Front, WireError> {
    if length as u64 > total {
        return Err(WireError::Trailing((length as u64 - total) as usize));
    }
    buffer.advance(at);
    // Only the empty value has an empty piece: otherwise a value could stay unfinished at no cost to its sender.
    let first = if total == 0 { Bytes::new() } else { piece(buffer, length)? };
    Ok(Front::Frame(Frame::ToHome(to, ToHome::Value { head: of, total, first })))
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
    fn number(&mut self, what: &'static str) -> Result<u64, WireError> {
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

    fn ticket(&mut self) -> Result<u64, WireError> {
        self.number("a ticket")
    }

    fn alias(&mut self) -> Result<u32, WireError> {
        let value = self.number("an alias")?;
        u32::try_from(value).map_err(|_| WireError::Invalid { what: "an alias", value })
    }

    fn to(&mut self) -> Result<ChannelId, WireError> {
        self.alias().map(|alias| ChannelId(alias.into()))
    }

    fn id(&mut self) -> Result<u128, WireError> {
        let bytes = self.bytes.get(self.at..self.at + 16).ok_or(WireError::Truncated("a choice"))?;
        self.at += 16;
        Ok(u128::from_be_bytes(bytes.try_into().expect("there are 16")))
    }

    /// What seldom comes is read by the codec's own reader.
    fn rest<T>(&mut self, read: fn(&mut Reader) -> Result<T, WireError>) -> Result<T, WireError> {
        let mut reader = Reader(Bytes::copy_from_slice(&self.bytes[self.at..]));
        let value = read(&mut reader)?;
        self.at = self.bytes.len() - reader.0.len();
        Ok(value)
    }
}
