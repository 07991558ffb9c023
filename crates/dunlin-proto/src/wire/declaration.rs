//! What the holder of an end, or of one of a bundle, declares.

use bytes::Bytes;

use super::error::WireError;
use super::fields::{Field, Reader, Writer, byte_field, fits};
use super::limits;

/// A face of a named channel or bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Face {
    /// A channel's sender.
    Sender,
    /// A channel's receiver.
    Receiver,
    /// A bundle's client.
    Client,
    /// A bundle's server.
    Server,
    /// A receiver of a fresh bundle for every client.
    Acceptor,
}

byte_field!(Face, "a face", Sender, Receiver, Client, Server, Acceptor);

/// What the holder of a face expects of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expected {
    /// Nothing.
    Unknown,
    /// It has one holder.
    Unshared,
    /// It may have many holders.
    Shared,
}

byte_field!(Expected, "what is expected", Unknown, Unshared, Shared);

/// What the holder of a face has declared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Which face it is.
    pub face: Face,
    /// Whether many may hold it.
    pub shared: bool,
    /// What it expects of the other face.
    pub expects: Expected,
    /// The schema of the messages, as [`Schema::encode`](dunlin_schema::Schema::encode) writes it; empty if
    /// not known.
    pub schema: Bytes,
}

impl Field for Declaration {
    fn write(&self, w: &mut Writer<'_>) {
        w.put(&self.face).byte(self.shared.into()).put(&self.expects).string(&self.schema);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (face, shared, expects) = (r.field()?, r.flag("sharing")?, r.field()?);
        Ok(Self { face, shared, expects, schema: r.bytes("a schema", limits::SCHEMA)? })
    }
}

impl Declaration {
    /// Checks that it can be sent.
    ///
    /// # Errors
    /// [`WireError::TooLong`] with both numbers, if the schema is longer than [`limits::SCHEMA`].
    pub fn check(&self) -> Result<(), WireError> {
        fits("a schema", self.schema.len(), limits::SCHEMA)
    }
}
