//! An address of a mailbox at another node: messages are encoded when they are sent.

use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use dunlin_core::Portable;
use dunlin_proto::wire::limits;

use super::error::PostError;
use crate::node::Encoding;
use crate::node::codec::{EncodeError, encode_post};
use crate::node::mailboxes::{NotSent, Remote};
use crate::node::of_messages;

/// Mailboxes always use CBOR, so that programs of different age understand each other.
pub(super) const ENCODING: Encoding = Encoding::Cbor;

/// An address of a mailbox at another node.
pub(super) struct Far<M> {
    remote: Arc<Remote>,
    encode: fn(&M) -> Result<Bytes, EncodeError>,
    schema: fn() -> Bytes,
}

impl<M> Clone for Far<M> {
    fn clone(&self) -> Self {
        Self { remote: self.remote.clone(), ..*self }
    }
}

impl<M: Portable> Far<M> {
    pub(super) fn new(remote: Arc<Remote>) -> Self {
        Self {
            remote,
            encode: |message| encode_post(message, ENCODING, limits::POST as u64),
            schema: || of_messages::<M>(ENCODING),
        }
    }
}

impl<M> Far<M> {
    pub(super) fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The place that the wait records show for operations that wait for room there.
    pub(super) fn made() -> &'static Location<'static> {
        Location::caller()
    }

    pub(super) fn send(&self, message: M) -> Result<(), PostError<M>> {
        if self.remote.is_closed() {
            return Err(PostError::Closed(message));
        }
        let bytes = match self.remote.through(|| (self.encode)(&message)) {
            Ok(bytes) => bytes,
            Err(EncodeError::TooLarge { bytes, bytes_max }) => {
                return Err(PostError::TooLarge { message, bytes, bytes_max });
            }
            Err(error) => return Err(PostError::Unsendable { message, why: error.to_string().into() }),
        };
        self.remote.send(self.schema, bytes).map_err(|why| match why {
            NotSent::Full => PostError::Full(message),
            NotSent::Closed => PostError::Closed(message),
            NotSent::TooLarge { bytes, bytes_max } => PostError::TooLarge { message, bytes, bytes_max },
            NotSent::Mismatch(why) => PostError::Unsendable { message, why },
        })
    }
}

impl<M> Far<M> {
    /// Sends the message in `slot` if there is room. Otherwise, `None`, the operation is woken when there may
    /// be.
    pub(super) fn offer(
        &self,
        slot: &mut Option<M>,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Option<Result<(), PostError<M>>> {
        let Some(message) = slot.take() else { return Some(Ok(())) };
        // Before the attempt: the room that it does not find may be there a moment later.
        self.remote.wait(ticket, waker);
        let posted = match self.send(message) {
            Err(PostError::Full(message)) => {
                *slot = Some(message);
                return None;
            }
            posted => posted,
        };
        self.remote.leave(ticket.take());
        Some(posted)
    }
}
