//! The value that an exit carries.

use std::any::Any;
use std::sync::Arc;

#[cfg(feature = "net")]
use bytes::Bytes;
#[cfg(feature = "net")]
use dunlin_core::Portable;
#[cfg(feature = "net")]
use dunlin_proto::wire::limits;

#[cfg(feature = "net")]
use crate::node::codec::{decode_post, encode_post};
#[cfg(feature = "net")]
use crate::node::mailboxes::mismatch;
#[cfg(feature = "net")]
use crate::node::{Encoding, of_messages};

/// Why [`Exit::portable_payload`](crate::Exit::portable_payload) returns no value.
#[cfg(feature = "net")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The exit carries no value.
    #[error("the exit carries no value")]
    Missing,
    /// It carried a value that is not here: the value is not portable, could not be encoded, or is too large
    /// to travel.
    #[error("the exit's value did not travel: it is too large, or not portable")]
    Left,
    /// The value is of another type.
    #[error("the exit's value cannot be read as this type: {0}")]
    Mismatch(String),
}

#[derive(Clone)]
pub(super) enum Payload {
    /// Stays in this program.
    Value(Arc<dyn Any + Send + Sync>),
    /// An encoded one, with its schema.
    #[cfg(feature = "net")]
    Encoded(Bytes, Bytes),
    /// There was one.
    #[cfg(feature = "net")]
    Left,
}

/// The encoding of payloads: programs of different age understand each other.
#[cfg(feature = "net")]
const ENCODING: Encoding = Encoding::Cbor;

impl Payload {
    pub(super) fn value<P: 'static>(&self) -> Option<&P> {
        match self {
            Self::Value(value) => value.downcast_ref(),
            #[cfg(feature = "net")]
            Self::Encoded(..) | Self::Left => None,
        }
    }

    /// Encodes a value. One that cannot be encoded is left.
    #[cfg(feature = "net")]
    pub(super) fn encoded<P: Portable>(value: &P) -> Self {
        match encode_post(value, ENCODING, limits::POST as u64) {
            Ok(bytes) => Self::Encoded(of_messages::<P>(ENCODING), bytes),
            Err(_) => Self::Left,
        }
    }

    #[cfg(feature = "net")]
    pub(super) fn read<P: Portable>(&self) -> Result<P, PayloadError> {
        let Self::Encoded(schema, bytes) = self else { return Err(PayloadError::Left) };
        let here = of_messages::<P>(ENCODING);
        if here != *schema
            && let Some(difference) = mismatch(schema, here)
        {
            return Err(PayloadError::Mismatch(difference));
        }
        decode_post(bytes, ENCODING).map_err(|error| PayloadError::Mismatch(error.to_string()))
    }

    /// In the form that nodes exchange.
    #[cfg(feature = "net")]
    pub(super) fn to_node(&self) -> dunlin_proto::wire::Payload {
        match self {
            Self::Encoded(schema, value) if schema.len() + value.len() <= limits::EXIT_PAYLOAD => {
                dunlin_proto::wire::Payload::Value { schema: schema.clone(), value: value.clone() }
            }
            _ => dunlin_proto::wire::Payload::Left,
        }
    }

    #[cfg(feature = "net")]
    pub(super) fn from_node(payload: dunlin_proto::wire::Payload) -> Option<Self> {
        match payload {
            dunlin_proto::wire::Payload::None => None,
            dunlin_proto::wire::Payload::Left => Some(Self::Left),
            // Copies: the bytes are parts of what a socket has read, which is larger.
            dunlin_proto::wire::Payload::Value { schema, value } => {
                Some(Self::Encoded(Bytes::copy_from_slice(&schema), Bytes::copy_from_slice(&value)))
            }
        }
    }
}

/// Two payloads are the same if they were given once, or have the same bytes.
impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => std::ptr::addr_eq(Arc::as_ptr(one), Arc::as_ptr(other)),
            #[cfg(feature = "net")]
            (Self::Encoded(schema, value), Self::Encoded(other_schema, other)) => {
                value == other && schema == other_schema
            }
            #[cfg(feature = "net")]
            (Self::Left, Self::Left) => true,
            #[cfg(feature = "net")]
            _ => false,
        }
    }
}
