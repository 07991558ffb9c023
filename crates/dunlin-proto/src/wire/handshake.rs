//! How two nodes meet on a new socket: the dialler says [`Hello`], the other side answers [`Answer`].
//!
//! Both begin with [`MAGIC`], so that whatever else dials a node, or is dialled, is known for what it is after 8 bytes. Then a
//! kind (one byte), the length of the rest (two bytes, big-endian), and the rest.

use bytes::{BufMut, Bytes, BytesMut};

use super::codec::{self, Reader, WireError};
use super::{VERSIONS, limits};
use crate::id::{ConnectionId, Incarnation, Life, NodeId};

/// What every handshake message begins with. The line end is there to be mangled by whatever is not 8-bit clean.
pub const MAGIC: [u8; 8] = *b"dunlin\r\n";

const HEADER: usize = MAGIC.len() + 3;

/// How far a side has come in the life of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// Which connection: the dialler knows it from an earlier `Welcome`, or from its own.
    pub connection: ConnectionId,
    /// Which life of the connection between these two: both give up a life when either does.
    pub run: u64,
    /// How many numbered frames this side has *seen* in that life: the other one goes on from there.
    pub seen: u64,
}

/// At which of its addresses a node listens itself, and when a refusal there says that it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// A bit for each of the addresses, the least for the first.
    pub which: u8,
    /// Two refusals have to be so far apart, in milliseconds.
    pub refused_ms: u64,
}

impl Bound {
    /// Those of the addresses.
    pub(crate) fn of(self, addresses: &[String]) -> impl Iterator<Item = &String> {
        addresses
            .iter()
            .take(limits::ADDRESSES)
            .enumerate()
            .filter(move |(at, _)| self.which & (1 << at) != 0)
            .map(|(_, a)| a)
    }

    fn encode(self, out: &mut BytesMut) {
        out.put_u8(self.which);
        codec::number(out, self.refused_ms);
    }
}

/// What a dialler says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version it speaks.
    pub versions: (u16, u16),
    /// Its application.
    pub application: String,
    /// Who it is.
    pub me: Life,
    /// Who it thinks it has dialled; all zero if it does not know.
    pub wanted: NodeId,
    /// Which life of that node it has met; 0 if none.
    pub met: Incarnation,
    /// Counts the dialler's attempts to reach other nodes: a later one supersedes an earlier one.
    pub attempt: u64,
    /// Where the connection stands at its side.
    pub resume: Resume,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// Where it listens itself.
    pub bound: Bound,
    /// Proof of who it is. Empty until a later version.
    pub identity: Bytes,
}

/// What the dialled node answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Frames follow.
    Welcome(Welcome),
    /// The socket will be closed.
    Refused(Refusal),
}

/// The connection goes on, or begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version both speak from now on.
    pub version: u16,
    /// Who the dialled node is.
    pub me: Life,
    /// Where the connection stands at its side, in the life that both are in from now on.
    pub resume: Resume,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// Where it listens itself.
    pub bound: Bound,
    /// Proof of who it is. Empty until a later version.
    pub identity: Bytes,
}

/// Why a node does not want this socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The two speak no common version.
    #[error("it speaks protocol versions {} to {}, this node {} to {}", .0.0, .0.1, super::VERSIONS.0, super::VERSIONS.1)]
    Version((u16, u16)),
    /// It belongs to another application.
    #[error("it belongs to the application {0:?}")]
    Application(String),
    /// It is not the node that was wanted.
    #[error("it is the node {0}, not the one that was wanted")]
    WrongNode(NodeId),
    /// A later life of the dialler has been met.
    #[error("a later life of this node has been met: incarnation {}", .0.0)]
    Stale(Incarnation),
    /// A later attempt of the dialler has arrived before.
    #[error("a later attempt arrived before this one")]
    Late,
    /// Both have dialled, and the other socket is kept.
    #[error("both sides have dialled; the other socket is kept")]
    Crossed,
    /// The node dialled itself.
    #[error("it is this node itself")]
    Myself,
    /// The node is leaving, or has no room.
    #[error("it is busy: it has no room for another connection, or is leaving")]
    Busy,
    /// The node does not know the connection that is to go on.
    #[error("it has given the connection up, and keeps nothing of it")]
    Forgotten,
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const REFUSED: u8 = 3;
}

/// The newest version that both this crate and a node of these versions speak.
pub(crate) fn common((oldest, newest): (u16, u16)) -> Option<u16> {
    let version = VERSIONS.1.min(newest);
    (version >= VERSIONS.0.max(oldest)).then_some(version)
}

impl Hello {
    /// The message in bytes.
    ///
    /// # Panics
    /// It would be longer than [`limits::HANDSHAKE`]. What a machine says of itself is not, because [`Config::check`](crate::Config::check)
    /// has looked at it.
    pub fn encode(&self) -> Bytes {
        message(kind::HELLO, |out| {
            out.put_u16(self.versions.0);
            out.put_u16(self.versions.1);
            codec::string(out, self.application.as_bytes());
            codec::life(out, self.me);
            out.put_u128(self.wanted.0);
            out.put_u64(self.met.0);
            codec::number(out, self.attempt);
            resume(out, self.resume);
            codec::addresses(out, &self.addresses);
            self.bound.encode(out);
            codec::string(out, &self.identity);
        })
    }

    /// Reads the message from the front of `arrived`. `None`: it is not all there.
    ///
    /// # Errors
    /// It is no `Hello`. [`WireError::NotDunlin`] is known after at most 8 bytes. After [`WireError::Version`] nothing is known but the
    /// versions: answer with [`Refusal::Version`].
    pub fn decode(arrived: &mut BytesMut) -> Result<Option<Self>, WireError> {
        let Some((kind, mut r)) = open(arrived)? else { return Ok(None) };
        if kind != kind::HELLO {
            return Err(WireError::Invalid { what: "a first message", value: kind.into() });
        }
        let versions = (r.fixed16("a version")?, r.fixed16("a version")?);
        if common(versions).is_none() {
            return Err(WireError::Version(versions));
        }
        let mut hello = Self {
            versions,
            application: r.text("an application", limits::APPLICATION)?,
            me: r.life()?,
            wanted: NodeId(r.id("a node")?),
            met: Incarnation(r.fixed64("an incarnation")?),
            attempt: r.number("an attempt")?,
            resume: r.resume()?,
            addresses: r.addresses()?,
            bound: Bound::default(),
            identity: Bytes::new(),
        };
        hello.bound = r.bound(hello.addresses.len())?;
        hello.identity = r.bytes("an identity", limits::IDENTITY)?;
        // What a newer version adds stands behind: it is not for us.
        if versions.1 <= VERSIONS.1 {
            r.finish()?;
        }
        Ok(Some(hello))
    }
}

impl Answer {
    /// The message in bytes.
    ///
    /// # Panics
    /// As [`Hello::encode`].
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Welcome(welcome) => message(kind::WELCOME, |out| {
                out.put_u16(welcome.version);
                codec::life(out, welcome.me);
                resume(out, welcome.resume);
                codec::addresses(out, &welcome.addresses);
                welcome.bound.encode(out);
                codec::string(out, &welcome.identity);
            }),
            Self::Refused(why) => message(kind::REFUSED, |out| match why {
                Refusal::Version((oldest, newest)) => {
                    out.put_u8(0);
                    out.put_u16(*oldest);
                    out.put_u16(*newest);
                }
                Refusal::Application(name) => {
                    out.put_u8(1);
                    codec::string(out, name.as_bytes());
                }
                Refusal::WrongNode(node) => {
                    out.put_u8(2);
                    out.put_u128(node.0);
                }
                Refusal::Stale(known) => {
                    out.put_u8(3);
                    out.put_u64(known.0);
                }
                Refusal::Late => out.put_u8(4),
                Refusal::Crossed => out.put_u8(5),
                Refusal::Myself => out.put_u8(6),
                Refusal::Busy => out.put_u8(7),
                Refusal::Forgotten => out.put_u8(8),
            }),
        }
    }

    /// Reads the message from the front of `arrived`. `None`: it is not all there.
    ///
    /// # Errors
    /// It is no answer to a `Hello`.
    pub fn decode(arrived: &mut BytesMut) -> Result<Option<Self>, WireError> {
        let Some((kind, mut r)) = open(arrived)? else { return Ok(None) };
        let answer = match kind {
            kind::WELCOME => {
                let (version, me, resume) = (r.fixed16("a version")?, r.life()?, r.resume()?);
                let addresses = r.addresses()?;
                let bound = r.bound(addresses.len())?;
                let identity = r.bytes("an identity", limits::IDENTITY)?;
                Self::Welcome(Welcome { version, me, resume, addresses, bound, identity })
            }
            kind::REFUSED => Self::Refused(match r.byte("a refusal")? {
                0 => Refusal::Version((r.fixed16("a version")?, r.fixed16("a version")?)),
                1 => Refusal::Application(r.text("an application", limits::APPLICATION)?),
                2 => Refusal::WrongNode(NodeId(r.id("a node")?)),
                3 => Refusal::Stale(Incarnation(r.fixed64("an incarnation")?)),
                4 => Refusal::Late,
                5 => Refusal::Crossed,
                6 => Refusal::Myself,
                7 => Refusal::Busy,
                8 => Refusal::Forgotten,
                value => return Err(WireError::Invalid { what: "a refusal", value: value.into() }),
            }),
            value => return Err(WireError::Invalid { what: "an answer", value: value.into() }),
        };
        r.finish()?;
        Ok(Some(answer))
    }
}

fn message(kind: u8, body: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::with_capacity(256);
    out.put_slice(&MAGIC);
    out.put_u8(kind);
    out.put_u16(0);
    body(&mut out);
    let length = out.len() - HEADER;
    assert!(length <= limits::HANDSHAKE, "a handshake of {length} bytes; at most {} are allowed", limits::HANDSHAKE);
    out[HEADER - 2..HEADER].copy_from_slice(&(length as u16).to_be_bytes());
    out.freeze()
}

/// The kind and the body of the message at the front, once it is all there.
fn open(arrived: &mut BytesMut) -> Result<Option<(u8, Reader)>, WireError> {
    let same = arrived.len().min(MAGIC.len());
    if arrived[..same] != MAGIC[..same] {
        return Err(WireError::NotDunlin);
    }
    if arrived.len() < HEADER {
        return Ok(None);
    }
    let kind = arrived[MAGIC.len()];
    let length = usize::from(u16::from_be_bytes([arrived[HEADER - 2], arrived[HEADER - 1]]));
    if length > limits::HANDSHAKE {
        let (bytes, bytes_max) = (length as u64, limits::HANDSHAKE as u64);
        return Err(WireError::TooLong { what: "a handshake", bytes, bytes_max });
    }
    if arrived.len() < HEADER + length {
        return Ok(None);
    }
    let body = arrived.split_to(HEADER + length).freeze().slice(HEADER..);
    Ok(Some((kind, Reader(body))))
}

fn resume(out: &mut BytesMut, resume: Resume) {
    out.put_u128(resume.connection.0);
    out.put_u64(resume.run);
    out.put_u64(resume.seen);
}

impl Reader {
    fn fixed16(&mut self, what: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes([self.byte(what)?, self.byte(what)?]))
    }

    fn bound(&mut self, addresses: usize) -> Result<Bound, WireError> {
        let which = self.byte("which addresses are bound")?;
        if addresses < 8 && which >> addresses != 0 {
            return Err(WireError::Invalid { what: "which addresses are bound", value: which.into() });
        }
        Ok(Bound { which, refused_ms: self.number("a time between refusals")? })
    }

    fn resume(&mut self) -> Result<Resume, WireError> {
        let connection = ConnectionId(self.id("a connection")?);
        let run = self.fixed64("a run")?;
        if run > limits::RUN {
            return Err(WireError::Invalid { what: "a run", value: run });
        }
        Ok(Resume { connection, run, seen: self.fixed64("a resume point")? })
    }
}
