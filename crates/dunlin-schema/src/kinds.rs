//! The parts of a schema: kinds, which refer to each other by number, and names of fields and variants.

use dunlin_sorted::SortedSet;

use crate::error::{SchemaError, fits};
use crate::limits;

/// The number of a kind in its schema.
pub type KindId = u16;

/// How the messages are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coding {
    /// The messages are bytes and are not encoded.
    Bytes,
    /// CBOR, with the names of fields and variants. Unknown fields are ignored.
    Cbor,
    /// postcard, by position: both sides need the same fields in the same order.
    Compact,
}

/// The structure of a value, as its encoding sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A unit, without content.
    Unit,
    /// `bool`.
    Bool,
    /// `char`.
    Char,
    /// A string.
    Text,
    /// A byte string.
    Bytes,
    /// A message that is bytes and is not encoded.
    Raw,
    /// An integer of 8, 16, 32, 64 or 128 bits.
    Int {
        /// Whether it may be negative.
        signed: bool,
        /// Its width.
        bits: u8,
    },
    /// A floating-point number of 32 or 64 bits.
    Float {
        /// Its width.
        bits: u8,
    },
    /// A value of this kind, or none.
    Option(KindId),
    /// A sequence of any length.
    List(KindId),
    /// A map: the kinds of its keys and of its values.
    Map(KindId, KindId),
    /// A sequence of fixed length, in which each place has its own kind.
    Tuple(Vec<KindId>),
    /// A struct.
    Struct {
        /// Its name. Errors show it; the comparison ignores it.
        name: String,
        /// Its fields, in order.
        fields: Vec<Field>,
        /// Whether an unknown field is an error (`deny_unknown_fields`).
        closed: bool,
    },
    /// An enum.
    Enum {
        /// Its name. Errors show it; the comparison ignores it.
        name: String,
        /// Its variants, in order.
        variants: Vec<Variant>,
        /// Whether an unknown variant without content is accepted (`other`).
        open: bool,
    },
    /// An end of a channel, with one kind for each of its [messages](EndKind::messages).
    End(EndKind, Vec<KindId>),
    /// A type that cannot be traced, by its name. It is compatible only with an opaque type of the same name.
    Opaque(String),
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name that the writer uses, then other names that the reader accepts (`alias`).
    pub names: Vec<String>,
    /// The kind of its value.
    pub kind: KindId,
    /// Whether decoding a struct without this field fails.
    pub required: bool,
}

/// A variant of an enum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name that the writer uses, then other names that the reader accepts (`alias`).
    pub names: Vec<String>,
    /// The kind of its content, if it has any.
    pub content: Option<KindId>,
}

/// Which end of a channel a message contains, or an address.
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
    /// The end with which receivers join a broadcast.
    Joiner = 12,
    /// The end with which receivers that may not poison a broadcast join it.
    MeekJoiner = 13,
    /// The address of a mailbox.
    Address = 14,
}

impl EndKind {
    /// All of them, each at the index of its code.
    pub const ALL: [Self; 15] = [
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
        Self::Address,
    ];

    /// The messages that the end carries: the name of each, and whether the holder of the end writes it. A
    /// shared end carries the end that a claim returns.
    pub fn messages(self) -> &'static [(&'static str, bool)] {
        match self {
            Self::Sender | Self::MeekSender | Self::Broadcast | Self::Address => &[("message", true)],
            Self::Receiver | Self::MeekReceiver | Self::Joiner | Self::MeekJoiner => &[("message", false)],
            Self::Caller => &[("request", true), ("reply", false)],
            Self::Callee => &[("request", false), ("reply", true)],
            Self::Reply => &[("reply", true)],
            // The claimant receives it.
            Self::Shared | Self::SharedSender | Self::SharedReceiver => &[("end", false)],
            Self::Barrier => &[],
        }
    }

    /// Its name in errors.
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
            Self::Address => "address of a mailbox",
        }
    }
}

/// The structure of the messages of a channel, or of the client's face of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    coding: Coding,
    kinds: Vec<Kind>,
}

impl Schema {
    /// Makes a schema of these kinds; the first kind is the message.
    ///
    /// # Errors
    /// [`SchemaError`] if there are no kinds or too many, a name is too long, a field or variant has no name
    /// or too many, two of one struct or enum share a name, a number refers to no kind, a width does not
    /// exist, or an end does not have exactly one kind for each of its messages.
    pub fn new(coding: Coding, kinds: Vec<Kind>) -> Result<Self, SchemaError> {
        if kinds.is_empty() || kinds.len() > limits::KINDS {
            return Err(SchemaError::Invalid { what: "a number of kinds", value: kinds.len() as u64 });
        }
        for kind in &kinds {
            check(kind, kinds.len())?;
        }
        Ok(Self { coding, kinds })
    }

    /// The schema of a channel whose messages are bytes.
    pub fn of_bytes() -> Self {
        Self { coding: Coding::Bytes, kinds: vec![Kind::Raw] }
    }

    /// How the messages are encoded.
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// All kinds; the first is the message.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    pub(crate) fn kind(&self, id: KindId) -> &Kind {
        &self.kinds[usize::from(id)]
    }
}

fn check(kind: &Kind, count: usize) -> Result<(), SchemaError> {
    let there = |id: KindId| match usize::from(id) < count {
        true => Ok(()),
        false => Err(SchemaError::Invalid { what: "the number of a kind", value: id.into() }),
    };
    let name = |name: &String| fits("a name", name.len(), limits::NAME);
    // A name belongs to one field or variant.
    let mut known = SortedSet::new();
    let mut names = |names: &Vec<String>| {
        if !(1..=limits::NAMES).contains(&names.len()) {
            return Err(SchemaError::Invalid { what: "a number of names", value: names.len() as u64 });
        }
        names.iter().try_for_each(|called| {
            name(called)?;
            if known.insert(called.clone()) { Ok(()) } else { Err(SchemaError::Twice("a name")) }
        })
    };
    let width = |bits: u8, widths: &[u8]| match widths.contains(&bits) {
        true => Ok(()),
        false => Err(SchemaError::Invalid { what: "a width", value: bits.into() }),
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
            Err(SchemaError::Invalid { what: "a number of messages", value: ids.len() as u64 })
        }
        Kind::End(_, ids) => ids.iter().try_for_each(|id| there(*id)),
        Kind::Opaque(called) => name(called),
    }
}
