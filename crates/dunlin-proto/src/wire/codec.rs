//! How frames are found in what has arrived.
//!
//! A frame is a kind (one byte), the length of its body (a varint), and the body. Numbers are varints
//! (LEB128) unless said otherwise; identities are 16 bytes, big-endian; texts and byte strings have their
//! length before them. Every message has one encoding only: what [`decode`] accepts, [`encode`] writes again
//! byte by byte.

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

/// Whether frames of this kind are said because the other node has said something, or will be in time; not
/// because of what processes here do.
pub(crate) fn is_answer(kind: u8) -> bool {
    facts(kind).is_ok_and(|facts| facts.answer)
}

/// Whether schemas may have to be compared for a frame of this kind, which takes long.
pub(crate) fn compares(kind: u8) -> bool {
    facts(kind).is_ok_and(|facts| facts.compares)
}

/// How much of what has arrived is the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole frame: so many bytes of head, and so many of body behind it.
    Frame {
        /// The kind and the length.
        head: usize,
        /// The rest.
        body: usize,
    },
    /// Not yet a whole one. At least so many bytes are missing.
    Wait(usize),
}

/// Looks at the beginning of what has arrived. Nothing is allocated for what has not arrived.
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
    /// Of the value that begins with it: what it is, and its length. `None`: it goes on.
    pub(crate) value: Option<(Head, u64)>,
    /// Where the piece begins.
    pub(crate) fields: usize,
    /// How long the frame is, and its piece.
    pub(crate) whole: usize,
    pub(crate) piece: u64,
}

/// Looks at a frame of which a part has arrived. `None`: it is no long one, or too little of it is there.
///
/// # Errors
/// It will never be a frame.
pub(crate) fn begins_long(part: &[u8]) -> Result<Option<Long>, WireError> {
    // A head, a channel and three numbers.
    const FIELDS: usize = 6 + 16 + 3 * 10;
    let Next::Wait(missing) = next(part)? else { return Ok(None) };
    let whole = part.len() + missing;
    if whole <= limits::FRAME {
        return Ok(None);
    }
    // Its length is there, else less would be missing.
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

/// What is before the piece in a frame of this kind.
fn beginning(kind: u8, r: &mut Reader<'_>) -> Result<(ChannelId, Option<(Head, u64)>), WireError> {
    let channel = r.channel()?;
    if kind == kind::MORE {
        return Ok((channel, None));
    }
    Ok((channel, Some((Head::read(kind, r)?, r.number("a value's length")?))))
}

/// How many bytes the number takes that is at the front.
fn number_len_at(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| byte & 0x80 == 0).map_or(bytes.len(), |last| last + 1)
}

/// Takes [`Frame::Confirm`] from the front of what has arrived, and gives its signature. `None`: it is not
/// all there.
///
/// # Errors
/// It is something else, which is not waited for.
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
