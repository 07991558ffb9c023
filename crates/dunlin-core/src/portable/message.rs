//! Messages of a node that are nothing but values, as [`Terms`] has it: written and read in the polls of
//! their ends.
//!
//! What does not go so, a value with an end in it or one whose `Serialize` says no, is left to the agent that
//! stands by, which also says what is wrong with it.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Poll, Waker};

use bytes::Bytes;

use super::Portable;
use super::codec::{Sink, Write, read_value};
use crate::channel::words::Terms;
use crate::error::Why;

/// A buffer of a thread keeps so much memory, and a larger message takes it along.
const BYTES_KEPT: usize = 64 << 10;

/// Shorter [`Bytes`] are copied when they arrive: they are a part of a large buffer, which a part keeps
/// whole.
const SHARED_MIN: usize = 2 << 10;

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Writes a message.
pub(crate) fn write<T: Portable>(value: &T, terms: Terms, bytes_max: u64, _: &Waker) -> Poll<Result<Bytes, Why>> {
    let value_of_any: &dyn Any = value;
    let raw = value_of_any.downcast_ref::<Bytes>().cloned();
    let raw = raw.or_else(|| value_of_any.downcast_ref::<Vec<u8>>().map(|bytes| Bytes::copy_from_slice(bytes)));
    if let Some(bytes) = raw {
        return Poll::Ready(check(bytes.len() as u64, bytes_max).map(|()| bytes));
    }
    let mut buffer = SCRATCH.try_with(Cell::take).unwrap_or_default();
    buffer.clear();
    buffer.push(0);
    // As the limit of an agent, which leaves room for what is said of ends.
    let mut sink = Sink::new(&mut buffer, bytes_max);
    let written = catch_unwind(AssertUnwindSafe(|| Write::write(value, terms.format, &mut sink)));
    let written = match written {
        Ok(Ok(())) => check(sink.bytes(), bytes_max),
        Ok(Err(failure)) => Err(Why::Unsendable(format!("{failure:?}").into())),
        Err(panic) => {
            forget_panic(panic);
            Err(Why::Unsendable("writing the message panicked".into()))
        }
    };
    let bytes = written.map(|()| {
        if buffer.len() > BYTES_KEPT {
            Bytes::from(std::mem::take(&mut buffer))
        } else {
            Bytes::copy_from_slice(&buffer)
        }
    });
    if buffer.capacity() <= 2 * BYTES_KEPT {
        let _ = SCRATCH.try_with(|scratch| scratch.set(buffer));
    }
    Poll::Ready(bytes)
}

fn check(bytes: u64, bytes_max: u64) -> Result<(), Why> {
    if bytes > bytes_max { Err(Why::TooLarge { bytes, bytes_max }) } else { Ok(()) }
}

/// Reads a message.
pub(crate) fn read<T: Portable>(bytes: &Bytes, terms: Terms) -> Result<T, Why> {
    let mut slot = None;
    let value_of_any: &mut dyn Any = &mut slot;
    if let Some(slot) = value_of_any.downcast_mut::<Option<Bytes>>() {
        let is_short = bytes.len() < SHARED_MIN;
        *slot = Some(if is_short { Bytes::copy_from_slice(bytes) } else { bytes.clone() });
    } else if let Some(slot) = value_of_any.downcast_mut::<Option<Vec<u8>>>() {
        *slot = Some(bytes.to_vec());
    }
    if let Some(value) = slot {
        return Ok(value);
    }
    let Some((0, body)) = bytes.split_first() else { return Err(Why::Unsendable("ends come with it".into())) };
    // What is dropped because it is not wanted is the user's as well.
    let read = catch_unwind(AssertUnwindSafe(|| match read_value::<T>(terms.format, body) {
        (Ok(value), 0) => Some(value),
        _ => None,
    }));
    let read = read.unwrap_or_else(|panic| {
        forget_panic(panic);
        None
    });
    read.ok_or_else(|| Why::Unsendable("the message cannot be read".into()))
}

/// What a panic carries may panic when it is dropped.
fn forget_panic(panic: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
}
