//! How frames are found in received bytes.
//!
//! A frame is a kind (one byte), the length of its body (a varint), and the body. Numbers are varints
//! (LEB128) unless stated otherwise; identities are 16 bytes, big-endian; texts and byte strings follow their
//! length. Every message has exactly one encoding: [`encode`] restores what [`decode`] accepts, byte by byte.

#[cfg(feature = "link")]
pub(crate) mod link;

use bytes::{Bytes, BytesMut};

pub use super::error::WireError;
use super::fields::Reader;
pub(crate) use super::frame::decode_within;
pub use super::frame::{decode, encode};
use super::frame::{facts, kind};
use super::limits;
use super::value::Head;
use crate::id::ChannelId;

/// Whether frames of this kind answer a frame of the other node, now or later, rather than an action of
/// processes here.
pub(crate) fn is_answer(kind: u8) -> bool {
    facts(kind).is_ok_and(|facts| facts.answer)
}

/// Whether a frame of this kind may need a comparison of schemas, which is slow.
pub(crate) fn compares(kind: u8) -> bool {
    facts(kind).is_ok_and(|facts| facts.compares)
}

/// How much of the received bytes is the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole frame: the lengths of its head and of the body that follows.
    Frame {
        /// The kind and the length.
        head: usize,
        /// The rest.
        body: usize,
    },
    /// Not a whole frame yet. At least this many bytes are missing.
    Wait(usize),
}

/// Examines the beginning of received bytes. Nothing is allocated for bytes that have not arrived.
///
/// # Errors
/// [`WireError::TooLong`], [`WireError::UnknownKind`]: this will never be a frame.
pub fn next(bytes: &[u8]) -> Result<Next, WireError> {
    let Some(&kind) = bytes.first() else { return Ok(Next::Wait(2)) };
    let max = facts(kind)?.longest;
    let mut body: u64 = 0;
    for at in 1..=5 {
        let Some(&byte) = bytes.get(at) else { return Ok(Next::Wait(1)) };
        body |= u64::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            if byte == 0 && at > 1 {
                return Err(WireError::Overlong("a length"));
            }
            if body > max.into() {
                return Err(WireError::TooLong { what: "a frame", bytes: body, bytes_max: max.into() });
            }
            let (head, body) = (at + 1, body as usize);
            return Ok(if bytes.len() >= head + body {
                Next::Frame { head, body }
            } else {
                Next::Wait(head + body - bytes.len())
            });
        }
    }
    Err(WireError::TooLong { what: "a frame", bytes: body, bytes_max: max.into() })
}

/// The beginning of a long frame, one with more than [`limits::FRAME`] of body: these have pieces of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub(crate) channel: ChannelId,
    /// If a value begins with it: its head, and its length. `None`: it continues a value.
    pub(crate) value: Option<(Head, u64)>,
    /// Where the piece begins.
    pub(crate) fields: usize,
    /// The length of the frame, and of its piece.
    pub(crate) whole: usize,
    pub(crate) piece: u64,
}

/// Examines a frame of which a part has arrived. `None`: it is not a long one, or too little has arrived.
///
/// # Errors
/// It can never be a frame.
pub(crate) fn begins_long(part: &[u8]) -> Result<Option<Long>, WireError> {
    // A head, a channel and three numbers.
    const FIELDS: usize = 6 + 16 + 3 * 10;
    let Next::Wait(missing) = next(part)? else { return Ok(None) };
    let whole = part.len() + missing;
    if whole <= limits::FRAME {
        return Ok(None);
    }
    // The length has arrived, otherwise less would be missing.
    let head = 1 + number_len_at(&part[1..]);
    if whole - head <= limits::FRAME {
        return Ok(None);
    }
    let begins = Bytes::copy_from_slice(&part[head..part.len().min(FIELDS)]);
    let has_all = part.len() >= FIELDS;
    let before = begins.len();
    let mut r = Reader::new(&begins, 0..before);
    match beginning(part[0], &mut r) {
        Ok((channel, value)) => {
            let fields = head + before - r.left();
            Ok(Some(Long { channel, value, fields, whole, piece: (whole - fields) as u64 }))
        }
        Err(WireError::Truncated(_)) if !has_all => Ok(None),
        Err(why) => Err(why),
    }
}

/// The fields before the piece in a frame of this kind.
fn beginning(kind: u8, r: &mut Reader<'_>) -> Result<(ChannelId, Option<(Head, u64)>), WireError> {
    let channel = r.channel()?;
    if kind == kind::MORE {
        return Ok((channel, None));
    }
    Ok((channel, Some((Head::read(kind, r)?, r.number("a value's length")?))))
}

/// How many bytes the number at the front takes.
fn number_len_at(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| byte & 0x80 == 0).map_or(bytes.len(), |last| last + 1)
}

/// Takes [`Frame::Confirm`] from the front of the received bytes, and returns its signature. `None`: it is
/// not complete.
///
/// # Errors
/// It is another message; do not wait for the rest.
pub(crate) fn confirms(arrived: &mut BytesMut) -> Result<Option<Bytes>, WireError> {
    if let Some(&kind) = arrived.first().filter(|kind| **kind != kind::CONFIRM) {
        return Err(WireError::Invalid { what: "the kind of the first frame", value: kind.into() });
    }
    let Next::Frame { head, body } = next(arrived)? else { return Ok(None) };
    let frame = arrived.split_to(head + body).freeze();
    let mut r = Reader::new(&frame, head..head + body);
    let signature = r.bytes("a signature", limits::SIGNATURE)?;
    r.finish()?;
    Ok(Some(signature))
}
