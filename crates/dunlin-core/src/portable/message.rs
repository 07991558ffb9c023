//! Messages of a node that hold values only ([`Terms`]): written and read in the polls of their ends.
//!
//! The link adds places for replies ([`write_request`](crate::remote::Link::write_request)). The agent that
//! stands by takes the other messages: a value with any other end in it, or one whose `Serialize` fails. It
//! also reports their errors.

use std::any::Any;
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::Portable;
use super::codec::{Sink, Write, read_value};
use super::scratch::{Scratch, catch, kept};
use crate::channel::erased::Erased;
use crate::channel::words::Terms;
use crate::error::Why;

/// Writes the message there.
///
/// # Safety
/// It is a `T`.
pub(crate) unsafe fn write_at<T: Portable>(
    value: *const (),
    terms: Terms,
    bytes_max: u64,
    _: &Waker,
) -> Poll<Result<Bytes, Why>> {
    // SAFETY: the caller's.
    write(unsafe { &*value.cast::<T>() }, terms, bytes_max)
}

/// Writes a message.
fn write<T: Portable>(value: &T, terms: Terms, bytes_max: u64) -> Poll<Result<Bytes, Why>> {
    let value_of_any: &dyn Any = value;
    let raw = value_of_any.downcast_ref::<Bytes>().cloned();
    let raw = raw.or_else(|| value_of_any.downcast_ref::<Vec<u8>>().map(|bytes| Bytes::copy_from_slice(bytes)));
    if let Some(bytes) = raw {
        return Poll::Ready(check(bytes.len() as u64, bytes_max).map(|()| bytes));
    }
    let mut buffer = Scratch::take();
    buffer.push(0);
    // Like the limit of an agent, which leaves room for the bytes that describe ends.
    let mut sink = Sink::new(&mut buffer, bytes_max);
    let written = match catch(|| Write::write(value, terms.format, &mut sink)) {
        Ok(Ok(())) => check(sink.bytes(), bytes_max),
        Ok(Err(failure)) => Err(Why::Unsendable(format!("{failure:?}").into())),
        Err(text) => Err(Why::Unsendable(text.into())),
    };
    Poll::Ready(written.map(|()| buffer.into_bytes()))
}

fn check(bytes: u64, bytes_max: u64) -> Result<(), Why> {
    if bytes > bytes_max { Err(Why::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

/// Reads a message, without its type.
pub(crate) fn read_erased<T: Portable>(bytes: &Bytes, terms: Terms, is_apart: bool) -> Result<Erased, Why> {
    read::<T>(bytes, terms, is_apart).map(Erased::new)
}

/// Reads a message. `is_apart`: its bytes keep no large buffer alive for it.
fn read<T: Portable>(bytes: &Bytes, terms: Terms, is_apart: bool) -> Result<T, Why> {
    let mut slot = None;
    let value_of_any: &mut dyn Any = &mut slot;
    if let Some(slot) = value_of_any.downcast_mut::<Option<Bytes>>() {
        *slot = Some(if is_apart { bytes.clone() } else { kept(bytes) });
    } else if let Some(slot) = value_of_any.downcast_mut::<Option<Vec<u8>>>() {
        *slot = Some(bytes.to_vec());
    }
    if let Some(value) = slot {
        return Ok(value);
    }
    let Some((0, body)) = bytes.split_first() else { return Err(Why::Unsendable("ends come with it".into())) };
    // A value that is dropped here is the user's as well, and may panic.
    let read = catch(|| match read_value::<T>(terms.format, body) {
        (Ok(value), 0) => Some(value),
        _ => None,
    });
    read.ok().flatten().ok_or_else(|| Why::Unsendable("the message cannot be read".into()))
}
