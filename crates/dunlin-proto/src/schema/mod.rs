//! What messages look like, in words that two programs share: kinds, and names of fields and variants.
//!
//! A [`Schema`] is a graph of [`Kind`]s, so a protocol that sends itself has one as well. Two of them are [compared](compare::compare) when an end
//! attaches: what one side writes must be what the other can read. What an end in a message carries is a part of the schema of that message, and so is
//! compared before any such message goes.
//!
//! - `bytes.rs`: how a schema is written in a declaration ([`Schema::encode`], [`Schema::decode`]);
//! - [`compare`]: what the two encodings can read of what was written otherwise;
//! - `known.rs`: comparisons that others bring about are remembered and counted.

mod bytes;
pub mod compare;
mod known;

pub use compare::{Difference, difference};
pub(crate) use known::Comparisons;

use std::collections::BTreeSet;

use crate::wire::codec::WireError;
use crate::wire::fits;

/// Limits of a schema, beside the one of its [bytes](crate::wire::limits::SCHEMA).
pub mod limits {
    /// So many kinds may a schema have.
    pub const KINDS: usize = 4096;
    /// A name of a type, a field or a variant, in bytes.
    pub const NAME: usize = 255;
    /// So many names may a field or a variant have.
    pub const NAMES: usize = 16;
}

/// The number of a kind in its schema.
pub type KindId = u16;

/// How the messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// They are bytes, and not encoded.
    Bytes,
    /// CBOR, with names: what is not known is passed over.
    Cbor,
    /// postcard, by position: both sides must have the same.
    Compact,
}

/// What a type looks like to its encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing in it.
    Unit,
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// Text.
    Text,
    /// Bytes in one piece.
    Bytes,
    /// A message that is bytes, and not encoded.
    Raw,
    /// A whole number of 8, 16, 32, 64 or 128 bits.
    Int {
        /// Whether it may be negative.
        signed: bool,
        /// Its width.
        bits: u8,
    },
    /// A number of 32 or 64 bits.
    Float {
        /// Its width.
        bits: u8,
    },
    /// That, or nothing.
    Option(KindId),
    /// Any number of that.
    List(KindId),
    /// Keys and values.
    Map(KindId, KindId),
    /// A number of things that are known by their place.
    Tuple(Vec<KindId>),
    /// Things with names.
    Struct {
        /// What it is called. Only people look at that.
        name: String,
        /// In their order.
        fields: Vec<Field>,
        /// Whether a field that it does not have is refused.
        closed: bool,
    },
    /// One of several.
    Enum {
        /// What it is called. Only people look at that.
        name: String,
        /// In their order.
        variants: Vec<Variant>,
        /// Whether a variant without content is read also if it is none of these.
        open: bool,
    },
    /// An end of a channel, and what it carries: as many kinds as the end [has messages](EndKind::messages).
    End(EndKind, Vec<KindId>),
    /// Nobody can tell; it has to be called the same.
    Opaque(String),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, and others by which it is read.
    pub names: Vec<String>,
    /// What it is.
    pub kind: KindId,
    /// Whether a struct without it cannot be read.
    pub required: bool,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name, and others by which it is read.
    pub names: Vec<String>,
    /// What it has. `None`: nothing.
    pub content: Option<KindId>,
}

/// An end in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum EndKind {
    /// A sender.
    Sender = 0,
    /// A sender that may not poison.
    MeekSender = 1,
    /// A caller.
    Caller = 2,
    /// A place for a reply.
    Reply = 3,
    /// A receiver.
    Receiver = 4,
    /// A receiver that may not poison.
    MeekReceiver = 5,
    /// A callee.
    Callee = 6,
    /// A handle of a shared face of a bundle.
    Shared = 7,
    /// A handle of a shared sender or caller.
    SharedSender = 8,
    /// A handle of a shared receiver.
    SharedReceiver = 9,
    /// An enrolment on a barrier.
    Barrier = 10,
    /// The sending end of a broadcast.
    Broadcast = 11,
    /// What joins a broadcast.
    Joiner = 12,
    /// What joins a broadcast for those who may not poison it.
    MeekJoiner = 13,
}

impl EndKind {
    /// All of them; each is at the place of its code.
    pub const ALL: [Self; 14] = [
        Self::Sender,
        Self::MeekSender,
        Self::Caller,
        Self::Reply,
        Self::Receiver,
        Self::MeekReceiver,
        Self::Callee,
        Self::Shared,
        Self::SharedSender,
        Self::SharedReceiver,
        Self::Barrier,
        Self::Broadcast,
        Self::Joiner,
        Self::MeekJoiner,
    ];

    /// What it carries: what each is called, and whether the end's holder writes it. Of a shared end that is the end itself, which is claimed.
    pub fn messages(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::Sender | Self::MeekSender | Self::Broadcast => &[("message", true)],
            Self::Receiver | Self::MeekReceiver | Self::Joiner | Self::MeekJoiner => &[("message", false)],
            Self::Caller => &[("request", true), ("reply", false)],
            Self::Callee => &[("request", false), ("reply", true)],
            Self::Reply => &[("reply", true)],
            // Whoever claims it gets it from there.
            Self::Shared | Self::SharedSender | Self::SharedReceiver => &[("end", false)],
            Self::Barrier => &[],
        }
    }

    /// How an error calls it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::MeekSender => "sender that may not poison",
            Self::Caller => "caller",
            Self::Reply => "place for a reply",
            Self::Receiver => "receiver",
            Self::MeekReceiver => "receiver that may not poison",
            Self::Callee => "callee",
            Self::Shared => "shared face",
            Self::SharedSender => "shared sender",
            Self::SharedReceiver => "shared receiver",
            Self::Barrier => "enrolment on a barrier",
            Self::Broadcast => "broadcast",
            Self::Joiner => "joiner of a broadcast",
            Self::MeekJoiner => "joiner of a broadcast that may not poison",
        }
    }
}

/// What the messages of a channel look like; or, of a bundle, its client's face.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    coding: Coding,
    kinds: Vec<Kind>,
}

impl Schema {
    /// A schema of these kinds, the first of which is the message.
    ///
    /// # Errors
    /// [`WireError`] if there are none or too many, a name is too long, a field or variant has none, a number names no kind, a width is none that there is, or
    /// an end has not as many kinds as it has messages.
    pub fn new(coding: Coding, kinds: Vec<Kind>) -> Result<Self, WireError> {
        if kinds.is_empty() || kinds.len() > limits::KINDS {
            return Err(WireError::Invalid { what: "a number of kinds", value: kinds.len() as u64 });
        }
        for kind in &kinds {
            check(kind, kinds.len())?;
        }
        Ok(Self { coding, kinds })
    }

    /// Of a channel whose messages are bytes.
    pub fn of_bytes() -> Self {
        Self { coding: Coding::Bytes, kinds: vec![Kind::Raw] }
    }

    /// How its messages are written.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// All kinds; the first is the message.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    fn kind(&self, id: KindId) -> &Kind {
        &self.kinds[usize::from(id)]
    }
}

fn check(kind: &Kind, count: usize) -> Result<(), WireError> {
    let there = |id: KindId| match usize::from(id) < count {
        true => Ok(()),
        false => Err(WireError::Invalid { what: "the number of a kind", value: id.into() }),
    };
    let name = |name: &String| fits("a name", name.len(), limits::NAME);
    // One field or variant has one name or more, and nobody else has it.
    let mut known = BTreeSet::new();
    let mut names = |names: &Vec<String>| {
        if !(1..=limits::NAMES).contains(&names.len()) {
            return Err(WireError::Invalid { what: "a number of names", value: names.len() as u64 });
        }
        names.iter().try_for_each(|called| {
            name(called)?;
            if known.insert(called.clone()) { Ok(()) } else { Err(WireError::Twice("a name")) }
        })
    };
    let width = |bits: u8, widths: &[u8]| match widths.contains(&bits) {
        true => Ok(()),
        false => Err(WireError::Invalid { what: "a width", value: bits.into() }),
    };
    match kind {
        Kind::Unit | Kind::Bool | Kind::Char | Kind::Text | Kind::Bytes | Kind::Raw => Ok(()),
        Kind::Int { bits, .. } => width(*bits, &[8, 16, 32, 64, 128]),
        Kind::Float { bits } => width(*bits, &[32, 64]),
        Kind::Option(id) | Kind::List(id) => there(*id),
        Kind::Map(key, value) => there(*key).and_then(|()| there(*value)),
        Kind::Tuple(ids) => ids.iter().try_for_each(|id| there(*id)),
        Kind::Struct { name: called, fields, .. } => {
            name(called)?;
            fields.iter().try_for_each(|field| names(&field.names).and_then(|()| there(field.kind)))
        }
        Kind::Enum { name: called, variants, .. } => {
            name(called)?;
            let content = |variant: &Variant| variant.content.map_or(Ok(()), there);
            variants.iter().try_for_each(|variant| names(&variant.names).and_then(|()| content(variant)))
        }
        Kind::End(end, ids) if ids.len() != end.messages().len() => {
            Err(WireError::Invalid { what: "a number of messages", value: ids.len() as u64 })
        }
        Kind::End(_, ids) => ids.iter().try_for_each(|id| there(*id)),
        Kind::Opaque(called) => name(called),
    }
}
