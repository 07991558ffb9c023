//! The handshake of two nodes on a new socket: the dialler sends [`Hello`], the other side answers with
//! [`Answer`].
//!
//! Both begin with [`MAGIC`], so that any other protocol is recognised after 8 bytes. Then come a kind (one
//! byte), the length of the rest (two bytes, big-endian), and the rest.
//!
//! [`identity`](crate::identity) explains what is signed, and what for.

use bytes::{BufMut, Bytes, BytesMut};

use super::error::WireError;
use super::fields::{Reader, Writer, number, string};
use super::{VERSIONS, limits};
use crate::id::{ConnectionId, Incarnation, Life, NodeId};

/// The first bytes of every handshake message. A path that is not 8-bit clean damages the line end.
pub const MAGIC: [u8; 8] = *b"dunlin\r\n";

const HEADER: usize = MAGIC.len() + 3;

/// How far a side has come in the life of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resume {
    /// The connection: the dialler knows it from an earlier `Welcome`, or from its own.
    pub connection: ConnectionId,
    /// The life of the connection between these two: both give up a life when either does.
    pub run: u64,
    /// How many numbered frames this side has received in that life: the other one resumes from there.
    pub seen: u64,
}

/// The addresses at which a node listens itself, and when refusals there prove that it has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// A bit for each of the addresses, the least for the first.
    pub which: u8,
    /// The minimum time between two refusals, in milliseconds.
    pub refused_ms: u64,
}

impl Bound {
    /// Selects these from the addresses.
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
        number(out, self.refused_ms);
    }
}

/// The first message of a dialler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version it speaks.
    pub versions: (u16, u16),
    /// Its application.
    pub application: String,
    /// The dialler.
    pub me: Life,
    /// The node that it means to dial; all zero if unknown.
    pub wanted: NodeId,
    /// The life of that node that it has met; 0 if none.
    pub met: Incarnation,
    /// Counts the dialler's attempts to reach other nodes: a later one supersedes an earlier one.
    pub attempt: u64,
    /// The state of the connection at its side.
    pub resume: Resume,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// Where it listens itself.
    pub bound: Bound,
    /// Its public key, of which its id is a hash.
    pub key: Bytes,
    /// Drawn for this handshake.
    pub nonce: u128,
    /// Its signature of all that. Empty if it only asks which node is there.
    pub signature: Bytes,
}

/// The answer of the dialled node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Frames follow.
    Welcome(Welcome),
    /// The socket will be closed.
    Refused(Refusal),
    /// The same, with proof of which node answers: it ends everything between the two.
    Over(Refusal, Proof),
}

/// Proves which node has sent a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Its public key.
    pub key: Bytes,
    /// Its signature.
    pub signature: Bytes,
}

/// The connection resumes, or begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that both speak from now on.
    pub version: u16,
    /// The dialled node.
    pub me: Life,
    /// The state of the connection at its side, in the life that both are in from now on.
    pub resume: Resume,
    /// Where it can be dialled.
    pub addresses: Vec<String>,
    /// Where it listens itself.
    pub bound: Bound,
    /// Drawn for this handshake.
    pub nonce: u128,
    /// Proof that it is that node, and has received this `Hello`.
    pub proof: Proof,
}

/// Why a node refuses this socket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The two speak no common version.
    #[error("the node speaks protocol versions {} to {}, this one speaks {} to {}", .0.0, .0.1, super::VERSIONS.0, super::VERSIONS.1)]
    Version((u16, u16)),
    /// It belongs to another application.
    #[error("the node belongs to application {0:?}")]
    Application(String),
    /// It is not the node that was wanted.
    #[error("node {0} answered, not the expected one")]
    WrongNode(NodeId),
    /// This node has met a later life of the dialler.
    #[error("a later incarnation of the dialling node is known: {}", .0.0)]
    Stale(Incarnation),
    /// A later attempt of the dialler has arrived before this one.
    #[error("a later attempt arrived before this one")]
    Late,
    /// Both have dialled, and the other socket is kept.
    #[error("both sides have dialled; the other socket is kept")]
    Crossed,
    /// The node dialled itself.
    #[error("the address leads back to this node")]
    Myself,
    /// The node is leaving, or has no room.
    #[error("the node is busy: no room for another connection, or already leaving")]
    Busy,
    /// The node does not know the connection that is to resume.
    #[error("the node has given up the connection and kept no state of it")]
    Forgotten,
    /// The dialler's key is not that of its id, or has not signed its `Hello`.
    #[error("the dialling node did not prove its id: the key belongs to another id, or the signature is invalid")]
    Unproven,
    /// Nodes of this application draw their ids when they start, and this node knows another life of the
    /// dialler.
    #[error("another incarnation of the dialling node is known: {}; nodes of this application must draw a new id at \
             each start", .0.0)]
    AnotherLife(Incarnation),
    /// The life of the connection that the dialler names has a number that no connection can reach.
    #[error("the dialling node names a life that the connection cannot have reached")]
    Impossible,
    /// The program of the dialled node does not admit the dialler.
    #[error("the node does not admit this one")]
    Unauthorized,
}

impl Refusal {
    /// Whether it ends an established connection, so that it needs [proof](Answer::Over).
    pub(crate) fn ends_something(&self) -> bool {
        matches!(self, Self::Stale(_) | Self::Forgotten | Self::AnotherLife(_) | Self::Impossible)
    }

    fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Version((oldest, newest)) => {
                out.put_u8(0);
                out.put_u16(*oldest);
                out.put_u16(*newest);
            }
            Self::Application(name) => {
                out.put_u8(1);
                string(out, name.as_bytes());
            }
            Self::WrongNode(node) => {
                out.put_u8(2);
                out.put_u128(node.0);
            }
            Self::Stale(known) => {
                out.put_u8(3);
                out.put_u64(known.0);
            }
            Self::Late => out.put_u8(4),
            Self::Crossed => out.put_u8(5),
            Self::Myself => out.put_u8(6),
            Self::Busy => out.put_u8(7),
            Self::Forgotten => out.put_u8(8),
            Self::Unproven => out.put_u8(9),
            Self::AnotherLife(known) => {
                out.put_u8(10);
                out.put_u64(known.0);
            }
            Self::Impossible => out.put_u8(11),
            Self::Unauthorized => out.put_u8(12),
        }
    }
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const WELCOME: u8 = 2;
    pub(super) const REFUSED: u8 = 3;
    pub(super) const OVER: u8 = 4;
}

/// The newest version that this crate and a node with these versions have in common.
pub(crate) fn common((oldest, newest): (u16, u16)) -> Option<u16> {
    let version = VERSIONS.1.min(newest);
    (version >= VERSIONS.0.max(oldest)).then_some(version)
}

impl Hello {
    /// The message in bytes.
    ///
    /// # Panics
    /// If it is longer than [`limits::HANDSHAKE`]. A machine's own messages never are:
    /// [`Config::check`](crate::Config::check) ensures that.
    pub fn encode(&self) -> Bytes {
        message(kind::HELLO, |out| {
            out.put_u16(self.versions.0);
            out.put_u16(self.versions.1);
            string(out, self.application.as_bytes());
            Writer::fields(out).life(self.me);
            out.put_u128(self.wanted.0);
            out.put_u64(self.met.0);
            number(out, self.attempt);
            resume(out, self.resume);
            Writer::fields(out).addresses(&self.addresses);
            self.bound.encode(out);
            string(out, &self.key);
            out.put_u128(self.nonce);
            string(out, &self.signature);
        })
    }

    /// Reads the message from the front of `arrived`. `None`: it is not complete.
    ///
    /// # Errors
    /// It is not a `Hello`. [`WireError::NotDunlin`] is known after at most 8 bytes. After
    /// [`WireError::Version`] only the versions are known: answer with [`Refusal::Version`].
    pub fn decode(arrived: &mut BytesMut) -> Result<Option<Self>, WireError> {
        whole(arrived)?.map(|message| Self::read(&message)).transpose()
    }

    /// Reads the [whole] message.
    pub(crate) fn read(message: &Bytes) -> Result<Self, WireError> {
        let (kind, mut r) = open(message);
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
            key: Bytes::new(),
            nonce: 0,
            signature: Bytes::new(),
        };
        hello.bound = r.bound(hello.addresses.len())?;
        hello.key = r.bytes("a public key", limits::KEY)?;
        hello.nonce = r.nonce()?;
        hello.signature = r.bytes("a signature", limits::SIGNATURE)?;
        // Fields that a newer version adds come last, and are ignored.
        if versions.1 <= VERSIONS.1 {
            r.finish()?;
        }
        Ok(hello)
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
                Writer::fields(out).life(welcome.me);
                resume(out, welcome.resume);
                Writer::fields(out).addresses(&welcome.addresses);
                welcome.bound.encode(out);
                out.put_u128(welcome.nonce);
                welcome.proof.encode(out);
            }),
            Self::Refused(why) => message(kind::REFUSED, |out| why.encode(out)),
            Self::Over(why, proof) => message(kind::OVER, |out| {
                why.encode(out);
                proof.encode(out);
            }),
        }
    }

    /// The bytes that are [signed](crate::identity): the message with an empty signature.
    pub(crate) fn unsigned(&self) -> Bytes {
        let mut unsigned = self.clone();
        match &mut unsigned {
            Self::Welcome(Welcome { proof, .. }) | Self::Over(_, proof) => proof.signature = Bytes::new(),
            Self::Refused(_) => {}
        }
        unsigned.encode()
    }

    /// Reads the message from the front of `arrived`. `None`: it is not complete.
    ///
    /// # Errors
    /// It is not an answer to a `Hello`.
    pub fn decode(arrived: &mut BytesMut) -> Result<Option<Self>, WireError> {
        let Some(message) = whole(arrived)? else { return Ok(None) };
        let (kind, mut r) = open(&message);
        let answer = match kind {
            kind::WELCOME => {
                let (version, me, resume) = (r.fixed16("a version")?, r.life()?, r.resume()?);
                let addresses = r.addresses()?;
                let bound = r.bound(addresses.len())?;
                let (nonce, proof) = (r.nonce()?, r.proof()?);
                Self::Welcome(Welcome { version, me, resume, addresses, bound, nonce, proof })
            }
            kind::REFUSED => Self::Refused(r.refusal()?),
            kind::OVER => Self::Over(r.refusal()?, r.proof()?),
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

/// The message at the front, once it is complete.
pub(crate) fn whole(arrived: &mut BytesMut) -> Result<Option<Bytes>, WireError> {
    let same = arrived.len().min(MAGIC.len());
    if arrived[..same] != MAGIC[..same] {
        return Err(WireError::NotDunlin);
    }
    if arrived.len() < HEADER {
        return Ok(None);
    }
    let length = usize::from(u16::from_be_bytes([arrived[HEADER - 2], arrived[HEADER - 1]]));
    if length > limits::HANDSHAKE {
        let (bytes, bytes_max) = (length as u64, limits::HANDSHAKE as u64);
        return Err(WireError::TooLong { what: "a handshake", bytes, bytes_max });
    }
    if arrived.len() < HEADER + length {
        return Ok(None);
    }
    Ok(Some(arrived.split_to(HEADER + length).freeze()))
}

/// The kind and the body of a [whole] message.
fn open(message: &Bytes) -> (u8, Reader<'_>) {
    (message[MAGIC.len()], Reader::new(message, HEADER..message.len()))
}

fn resume(out: &mut BytesMut, resume: Resume) {
    out.put_u128(resume.connection.0);
    out.put_u64(resume.run);
    out.put_u64(resume.seen);
}

impl Proof {
    fn encode(&self, out: &mut BytesMut) {
        string(out, &self.key);
        string(out, &self.signature);
    }
}

impl Reader<'_> {
    fn nonce(&mut self) -> Result<u128, WireError> {
        self.id("a nonce")
    }

    fn proof(&mut self) -> Result<Proof, WireError> {
        let key = self.bytes("a public key", limits::KEY)?;
        Ok(Proof { key, signature: self.bytes("a signature", limits::SIGNATURE)? })
    }

    fn refusal(&mut self) -> Result<Refusal, WireError> {
        Ok(match self.byte("a refusal")? {
            0 => Refusal::Version((self.fixed16("a version")?, self.fixed16("a version")?)),
            1 => Refusal::Application(self.text("an application", limits::APPLICATION)?),
            2 => Refusal::WrongNode(NodeId(self.id("a node")?)),
            3 => Refusal::Stale(Incarnation(self.fixed64("an incarnation")?)),
            4 => Refusal::Late,
            5 => Refusal::Crossed,
            6 => Refusal::Myself,
            7 => Refusal::Busy,
            8 => Refusal::Forgotten,
            9 => Refusal::Unproven,
            10 => Refusal::AnotherLife(Incarnation(self.fixed64("an incarnation")?)),
            11 => Refusal::Impossible,
            12 => Refusal::Unauthorized,
            value => return Err(WireError::Invalid { what: "a refusal", value: value.into() }),
        })
    }

    fn fixed16(&mut self, what: &'static str) -> Result<u16, WireError> {
        Ok(u16::from_be_bytes([self.byte(what)?, self.byte(what)?]))
    }

    fn bound(&mut self, addresses: usize) -> Result<Bound, WireError> {
        let which = self.byte("the addresses that are bound")?;
        if addresses < 8 && which >> addresses != 0 {
            return Err(WireError::Invalid { what: "the addresses that are bound", value: which.into() });
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
