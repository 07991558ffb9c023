//! Frames of signals between processes: watches, links, exits and kills.

use bytes::Bytes;

use super::error::WireError;
use super::fields::{Facts, Field, Reader, Wire, Writer, byte_field, kinds};
use super::limits;
use crate::id::ProcessId;

kinds! {
    WATCH = 0x78, SHORT;
    UNWATCH = 0x79, SHORT;
    DOWN = 0x7a, FRAME, answer;
    LINK = 0x7b, SHORT;
    UNLINK = 0x7c, SHORT;
    EXIT = 0x7d, FRAME;
    KILL = 0x7e, SHORT;
}

/// A signal from a process, or about one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The sending node wants to learn of the end of this process of the receiving node.
    Watch {
        /// The number of the watch, which its sender chooses, and uses once.
        watch: u64,
        /// The process.
        of: ProcessId,
    },
    /// The watch ends: its sender no longer needs the answer.
    Unwatch(u64),
    /// The watched process of the sending node has ended, or there is none: the watch ends.
    Down {
        /// The number of the watch.
        watch: u64,
        /// How the process ended.
        exit: Exit,
    },
    /// The exit of `source` is to end `target`, a process of the receiving node.
    Link {
        /// Any process.
        source: ProcessId,
        /// The process that is linked.
        target: ProcessId,
    },
    /// That link ends.
    Unlink {
        /// Any process.
        source: ProcessId,
        /// The process that is linked.
        target: ProcessId,
    },
    /// A process of the sending node sends an exit, without a link.
    Exit {
        /// A process of the receiving node.
        to: ProcessId,
        /// The sending process.
        from: ProcessId,
        /// The exit.
        exit: Exit,
    },
    /// A process of the receiving node is to end, whatever it receives.
    Kill {
        /// That process.
        to: ProcessId,
        /// By which process.
        by: ProcessId,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Why.
    pub reason: Reason,
    /// A text about the reason, for people. At most [`limits::TEXT`] bytes of it are written.
    pub text: String,
    /// The name of the process; empty: it has none. At most [`limits::NAME`] bytes of it are written.
    pub name: String,
    /// The process where this began, if that is another one.
    pub origin: Option<ProcessId>,
    /// A value that the exit carries.
    pub payload: Payload,
}

impl Exit {
    /// An exit of this reason, without anything else.
    pub fn of(reason: Reason) -> Self {
        Self { reason, text: String::new(), name: String::new(), origin: None, payload: Payload::None }
    }

    /// How many bytes it takes at the node that gets it.
    pub fn bytes(&self) -> u64 {
        let payload = match &self.payload {
            Payload::Value { schema, value } => schema.len() + value.len(),
            Payload::None | Payload::Left => 0,
        };
        (clip(&self.text, limits::TEXT).len() + clip(&self.name, limits::NAME).len() + payload) as u64
    }
}

/// Why a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It returned.
    Normal,
    /// It failed, with a text.
    Error,
    /// It panicked, with a text.
    Panicked,
    /// It was cancelled.
    Cancelled,
    /// It was killed.
    Killed,
    /// There is no such process.
    NoSuchProcess,
    /// Its node is lost.
    NodeLost,
    /// Its node has left.
    NodeLeft,
    /// Its node, or this one, keeps no more watches of the other.
    Refused,
}

byte_field!(
    Reason,
    "a reason of an exit",
    Normal,
    Error,
    Panicked,
    Cancelled,
    Killed,
    NoSuchProcess,
    NodeLost,
    NodeLeft,
    Refused
);

/// The value that an exit carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    None,
    /// There is one, which does not travel: it is too large, or cannot be encoded.
    Left,
    /// This one. Both parts together have at most [`limits::EXIT_PAYLOAD`] bytes.
    Value {
        /// Its schema, encoded.
        schema: Bytes,
        /// The value, encoded.
        value: Bytes,
    },
}

/// The longest beginning of `text` with at most `max` bytes.
fn clip(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

impl Field for ProcessId {
    fn write(&self, w: &mut Writer<'_>) {
        w.life(self.life).number(self.number).number(self.place.into()).fixed64(self.bits);
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            life: r.life()?,
            number: r.number("a process")?,
            place: r.number32("the place of a process")?,
            bits: r.fixed64("a process's random bits")?,
        })
    }
}

impl Field for Exit {
    fn write(&self, w: &mut Writer<'_>) {
        w.put(&self.reason).clipped(&self.text).string(clip(&self.name, limits::NAME).as_bytes());
        match &self.origin {
            None => w.byte(0),
            Some(origin) => w.byte(1).put(origin),
        };
        match &self.payload {
            Payload::None => w.byte(0),
            Payload::Left => w.byte(1),
            Payload::Value { schema, value } => w.byte(2).string(schema).string(value),
        };
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            reason: r.field()?,
            text: r.text("the text of an exit", limits::TEXT)?,
            name: r.text("the name of a process", limits::NAME)?,
            origin: if r.flag("whether an exit has an origin")? { Some(r.field()?) } else { None },
            payload: match r.one_of("the form of a payload", &[0, 1, 2])? {
                0 => Payload::None,
                1 => Payload::Left,
                _ => {
                    let schema = r.bytes("the schema of a payload", limits::EXIT_PAYLOAD)?;
                    let value = r.bytes("a payload", limits::EXIT_PAYLOAD - schema.len())?;
                    Payload::Value { schema, value }
                }
            },
        })
    }
}

impl Wire for Signal {
    const KINDS: &'static [(u8, Facts)] = kind::KINDS;

    fn write<'a>(&'a self, w: &mut Writer<'a>) {
        match self {
            Self::Watch { watch, of } => w.kind(kind::WATCH).number(*watch).put(of),
            Self::Unwatch(watch) => w.kind(kind::UNWATCH).number(*watch),
            Self::Down { watch, exit } => w.kind(kind::DOWN).number(*watch).put(exit),
            Self::Link { source, target } => w.kind(kind::LINK).put(source).put(target),
            Self::Unlink { source, target } => w.kind(kind::UNLINK).put(source).put(target),
            Self::Exit { to, from, exit } => w.kind(kind::EXIT).put(to).put(from).put(exit),
            Self::Kill { to, by } => w.kind(kind::KILL).put(to).put(by),
        };
    }

    fn read(kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(match kind {
            kind::WATCH => Self::Watch { watch: r.number("a watch")?, of: r.field()? },
            kind::UNWATCH => Self::Unwatch(r.number("a watch")?),
            kind::DOWN => Self::Down { watch: r.number("a watch")?, exit: r.field()? },
            kind::LINK => Self::Link { source: r.field()?, target: r.field()? },
            kind::UNLINK => Self::Unlink { source: r.field()?, target: r.field()? },
            kind::EXIT => Self::Exit { to: r.field()?, from: r.field()?, exit: r.field()? },
            kind::KILL => Self::Kill { to: r.field()?, by: r.field()? },
            unknown => return Err(WireError::UnknownKind(unknown)),
        })
    }
}
