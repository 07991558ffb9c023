//! How frames are written and read.
//!
//! A frame is a kind (one byte), the length of its body (a varint), and the body. Numbers are varints (LEB128) unless
//! said otherwise; identities are 16 bytes, big-endian; texts and byte strings have their length before them. Every message has
//! one encoding only: what [`decode`] accepts, [`encode`] writes again byte by byte.

#[cfg(feature = "link")]
pub(crate) mod link;

use bytes::{Buf, BufMut, Bytes, BytesMut};

pub use super::error::WireError;
use super::{
    Declaration, End, Expected, Face, Failure, Frame, FromHome, Head, Kind, Memory, Moved, Names, NoDial, NoRelay,
    Poison, Read, Rejection, Relay, Room, Status, Terms, ToHome, Travel, Which, limits,
};
use crate::id::{ChannelId, Incarnation, Life, NodeId};

mod kind {
    pub(super) const HEARTBEAT: u8 = 0x01;
    pub(super) const ACK: u8 = 0x02;
    pub(super) const GOODBYE: u8 = 0x03;
    pub(super) const CONFIRM: u8 = 0x04;
    pub(super) const ATTACHED: u8 = 0x10;
    pub(super) const REJECTED: u8 = 0x11;
    pub(super) const TAKEN: u8 = 0x12;
    pub(super) const HELD: u8 = 0x13;
    pub(super) const RELEASED: u8 = 0x14;
    pub(super) const FAILED: u8 = 0x15;
    pub(super) const WITHDRAWN: u8 = 0x16;
    pub(super) const RESERVE: u8 = 0x17;
    pub(super) const ABORT: u8 = 0x18;
    pub(super) const CREDIT: u8 = 0x19;
    pub(super) const HOME_ENDED: u8 = 0x1a;
    pub(super) const HOME_IS: u8 = 0x1b;
    pub(super) const UNTAKEN: u8 = 0x1c;
    pub(super) const MOVING: u8 = 0x1d;
    pub(super) const SUPERSEDED: u8 = 0x1e;
    pub(super) const DRAINED: u8 = 0x1f;
    pub(super) const ATTACH: u8 = 0x20;
    pub(super) const OFFER: u8 = 0x21;
    pub(super) const GRANT: u8 = 0x22;
    pub(super) const SENT: u8 = 0x23;
    pub(super) const OFFER_CHOICE: u8 = 0x24;
    pub(super) const WITHDRAW: u8 = 0x25;
    pub(super) const REVOKE: u8 = 0x26;
    pub(super) const SENDER_ENDED: u8 = 0x27;
    pub(super) const MORE: u8 = 0x28;
    pub(super) const CUT: u8 = 0x29;
    pub(super) const TAKE: u8 = 0x2a;
    pub(super) const QUIET: u8 = 0x2b;
    pub(super) const DRAIN: u8 = 0x2c;
    pub(super) const STATE: u8 = 0x2d;
    pub(super) const ONWARD: u8 = 0x2e;
    pub(super) const UNREAD: u8 = 0x2f;
    pub(super) const DECLARE: u8 = 0x30;
    pub(super) const UNDECLARE: u8 = 0x31;
    pub(super) const FOUND: u8 = 0x32;
    pub(super) const NAME_REFUSED: u8 = 0x33;
    pub(super) const BAD_NAME: u8 = 0x34;
    pub(super) const GUEST: u8 = 0x35;
    pub(super) const NAME_FULL: u8 = 0x36;
    pub(super) const NAME_WAITING: u8 = 0x37;
    pub(super) const NAME_GONE: u8 = 0x38;
    pub(super) const ELSEWHERE: u8 = 0x39;
    pub(super) const NAME_UNFIT: u8 = 0x3a;
    pub(super) const WHERE: u8 = 0x40;
    pub(super) const AT: u8 = 0x41;
    pub(super) const FETCH: u8 = 0x42;
    pub(super) const SETTLED: u8 = 0x43;
    pub(super) const OVER: u8 = 0x44;
    pub(super) const LAPSED: u8 = 0x45;
    pub(super) const GRANT_UNREAD: u8 = 0x46;
    pub(super) const OFFER_UNREAD: u8 = 0x47;
    pub(super) const READ: u8 = 0x48;
    pub(super) const HURRY: u8 = 0x49;
    pub(super) const ASK_DIAL: u8 = 0x50;
    pub(super) const DIAL_BACK: u8 = 0x51;
    pub(super) const UNDIALLED: u8 = 0x52;
    pub(super) const NOT_DIALLED: u8 = 0x53;
    pub(super) const RELAY_TO: u8 = 0x54;
    pub(super) const RELAY_FROM: u8 = 0x55;
    pub(super) const RELAY_REFUSED: u8 = 0x56;
    pub(super) const RELAY_CREDIT: u8 = 0x57;
    pub(super) const RELAYED: u8 = 0x58;
    pub(super) const RELAY_END: u8 = 0x59;
    pub(super) const RELAY_ADMIT: u8 = 0x5a;
    pub(super) const MEMORY_CREDIT: u8 = 0x60;
    pub(super) const ANNOUNCE: u8 = 0x61;
    pub(super) const ADMIT: u8 = 0x62;
    pub(super) const RECANT: u8 = 0x63;
}

/// Pieces of values up to this size are copied behind their heads; larger ones stay where they are.
const INLINE: usize = 2048;

/// Writes a frame behind `out`. What is returned goes behind it, uncopied; `None` if all is in `out`.
pub fn encode(frame: &Frame, out: &mut BytesMut) -> Option<Bytes> {
    match frame {
        Frame::Heartbeat => head(out, kind::HEARTBEAT, 0),
        Frame::Ack { seen } => short(out, kind::ACK, |body| number(body, *seen)),
        Frame::Goodbye => head(out, kind::GOODBYE, 0),
        Frame::Confirm { signature } => {
            head(out, kind::CONFIRM, number_len(signature.len() as u64) + signature.len());
            string(out, signature);
        }
        Frame::FromHome(channel, said) => from_home(out, *channel, said),
        Frame::ToHome(channel, ToHome::Value { head, total, first }) => {
            return value(out, *channel, head, *total, first);
        }
        Frame::ToHome(channel, said) => to_home(out, *channel, said),
        Frame::More(channel, piece) => {
            head(out, kind::MORE, 16 + piece.len());
            out.put_u128(channel.0);
            return tail(out, piece);
        }
        Frame::Cut(channel) => {
            head(out, kind::CUT, 16);
            out.put_u128(channel.0);
        }
        Frame::Travel(channel, said) => travel(out, *channel, said),
        Frame::Names(said) => names(out, said),
        Frame::Read(channel, read) => short(out, kind::READ, |out| {
            out.put_u128(channel.0);
            out.put_u128(read.key);
            number(out, read.value_max);
        }),
        Frame::Relay(Relay::Bytes { stream, piece }) => {
            head(out, kind::RELAYED, number_len(*stream) + piece.len());
            number(out, *stream);
            return tail(out, piece);
        }
        Frame::Relay(said) => relay(out, said),
        Frame::Memory(said) => memory(out, *said),
    }
    None
}

/// Whether frames of this kind are said because the other node has said something, or will be in time; not because of what processes here do.
pub(crate) fn is_answer(kind: u8) -> bool {
    matches!(
        kind,
        kind::ATTACHED..=kind::DRAINED
            | kind::ONWARD
            | kind::OFFER_UNREAD
            | kind::FOUND..=kind::BAD_NAME
            | kind::NAME_FULL..=kind::NAME_UNFIT
            | kind::WHERE..=kind::LAPSED
            | kind::HURRY
            | kind::DIAL_BACK..=kind::NOT_DIALLED
            | kind::RELAY_FROM..=kind::RELAY_CREDIT
            | kind::RELAY_ADMIT
            | kind::MEMORY_CREDIT
            | kind::ADMIT
    )
}

fn tail(out: &mut BytesMut, piece: &Bytes) -> Option<Bytes> {
    if piece.len() > INLINE {
        return Some(piece.clone());
    }
    out.put_slice(piece);
    None
}

fn head(out: &mut BytesMut, kind: u8, length: usize) {
    out.put_u8(kind);
    number(out, length as u64);
}

/// For bodies that are shorter than 128 bytes: their length is one byte, written afterwards.
fn short(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    out.put_u8(kind);
    let at = out.len();
    out.put_u8(0);
    body(out);
    let length = out.len() - at - 1;
    debug_assert!(length < 128, "a short frame of {length} bytes");
    out[at] = length as u8;
}

/// For bodies of any length.
fn long(out: &mut BytesMut, kind: u8, body: impl FnOnce(&mut BytesMut)) {
    let mut text = BytesMut::new();
    body(&mut text);
    head(out, kind, text.len());
    out.put_slice(&text);
}

pub(super) fn number(out: &mut BytesMut, mut n: u64) {
    while n >= 0x80 {
        out.put_u8(n as u8 | 0x80);
        n >>= 7;
    }
    out.put_u8(n as u8);
}

fn number_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

pub(super) fn string(out: &mut BytesMut, text: &[u8]) {
    number(out, text.len() as u64);
    out.put_slice(text);
}

fn value(out: &mut BytesMut, channel: ChannelId, what: &Head, total: u64, first: &Bytes) -> Option<Bytes> {
    let (kind, numbers): (u8, &[u64]) = match what {
        Head::Offer(ticket) => (kind::OFFER, &[*ticket]),
        Head::Unread(ticket) => (kind::UNREAD, &[*ticket]),
        Head::Grant(ticket, request) => (kind::GRANT, &[*ticket, *request]),
        Head::GrantUnread(ticket, request) => (kind::GRANT_UNREAD, &[*ticket, *request]),
        Head::Sent => (kind::SENT, &[]),
    };
    let fields = numbers.iter().map(|n| number_len(*n)).sum::<usize>() + number_len(total);
    head(out, kind, 16 + fields + first.len());
    out.put_u128(channel.0);
    numbers.iter().for_each(|n| number(out, *n));
    number(out, total);
    tail(out, first)
}

fn memory(out: &mut BytesMut, said: Memory) {
    match said {
        Memory::Credit(bytes) => short(out, kind::MEMORY_CREDIT, |out| number(out, bytes)),
        Memory::Announce { number: n, channel, kind, total } => short(out, kind::ANNOUNCE, |out| {
            number(out, n);
            out.put_u128(channel.0);
            out.put_u8(match kind {
                Kind::Offer => 0,
                Kind::Grant => 1,
                Kind::Sent => 2,
            });
            number(out, total);
        }),
        Memory::Admit(n) => short(out, kind::ADMIT, |out| number(out, n)),
        Memory::Recant(n) => short(out, kind::RECANT, |out| number(out, n)),
    }
}

fn from_home(out: &mut BytesMut, channel: ChannelId, said: &FromHome) {
    let kind = match said {
        FromHome::Attached(_) => kind::ATTACHED,
        FromHome::Rejected(_) => kind::REJECTED,
        FromHome::Taken(_) => kind::TAKEN,
        FromHome::Held(_) => kind::HELD,
        FromHome::Released(_) => kind::RELEASED,
        FromHome::Failed(..) => kind::FAILED,
        FromHome::Withdrawn(_) => kind::WITHDRAWN,
        FromHome::Reserve(..) => kind::RESERVE,
        FromHome::Abort(..) => kind::ABORT,
        FromHome::Credit(_) => kind::CREDIT,
        FromHome::Ended(_) => kind::HOME_ENDED,
        FromHome::HomeIs { .. } => kind::HOME_IS,
        FromHome::NotHome(_) | FromHome::Fenced(_) => kind::UNTAKEN,
        FromHome::Moving { .. } => kind::MOVING,
        FromHome::Superseded(_) => kind::SUPERSEDED,
        FromHome::Drained => kind::DRAINED,
        FromHome::Onward(_) => kind::ONWARD,
        FromHome::Unread(_) => kind::OFFER_UNREAD,
    };
    let body = |out: &mut BytesMut| {
        out.put_u128(channel.0);
        match said {
            FromHome::Attached(terms) => write_terms(out, *terms),
            FromHome::Rejected(why) => match why {
                Rejection::NoSuchChannel => out.put_u8(0),
                Rejection::Occupied => out.put_u8(1),
                Rejection::Mismatch(theirs) => {
                    out.put_u8(2);
                    declaration(out, theirs);
                }
                Rejection::Full => out.put_u8(3),
            },
            FromHome::Taken(ticket)
            | FromHome::Held(ticket)
            | FromHome::Released(ticket)
            | FromHome::Withdrawn(ticket)
            | FromHome::Onward(ticket)
            | FromHome::Unread(ticket) => number(out, *ticket),
            FromHome::Failed(ticket, why) => {
                number(out, *ticket);
                failure(out, why);
            }
            FromHome::Reserve(ticket, request) | FromHome::Abort(ticket, request) => {
                number(out, *ticket);
                number(out, *request);
            }
            FromHome::Credit(n) => number(out, (*n).into()),
            FromHome::Ended(how) => end(out, how),
            FromHome::HomeIs { transfer, epoch, terms } => {
                number(out, *transfer);
                number(out, *epoch);
                write_terms(out, *terms);
            }
            FromHome::NotHome(transfer) => {
                number(out, *transfer);
                out.put_u8(0);
            }
            FromHome::Fenced(transfer) => {
                number(out, *transfer);
                out.put_u8(1);
            }
            FromHome::Moving { epoch, to, addresses } => place(out, *epoch, *to, addresses),
            FromHome::Superseded(transfer) => number(out, *transfer),
            FromHome::Drained => {}
        }
    };
    match said {
        FromHome::Rejected(_) | FromHome::Failed(..) | FromHome::Ended(_) | FromHome::Moving { .. } => {
            long(out, kind, body);
        }
        _ => short(out, kind, body),
    }
}

fn write_terms(out: &mut BytesMut, terms: Terms) {
    number(out, terms.window.into());
    number(out, terms.credits.into());
    number(out, terms.value_max);
}

/// A number, a node, and where it can be dialled.
fn place(out: &mut BytesMut, count: u64, node: NodeId, list: &[String]) {
    number(out, count);
    out.put_u128(node.0);
    addresses(out, list);
}

fn which(out: &mut BytesMut, which: Which) {
    out.put_u8(match which {
        Which::Sender => 0,
        Which::Receiver => 1,
    });
}

fn travel(out: &mut BytesMut, channel: ChannelId, said: &Travel) {
    let counted = |out: &mut BytesMut, count: u64| {
        out.put_u128(channel.0);
        number(out, count);
    };
    let given = |out: &mut BytesMut, end_of: Which, trip: u64| {
        out.put_u128(channel.0);
        which(out, end_of);
        number(out, trip);
    };
    match said {
        Travel::Where(epoch) => short(out, kind::WHERE, |out| counted(out, *epoch)),
        Travel::At { epoch, home, addresses } => long(out, kind::AT, |out| {
            out.put_u128(channel.0);
            place(out, *epoch, *home, addresses);
        }),
        Travel::Fetch(claim) => short(out, kind::FETCH, |out| counted(out, *claim)),
        Travel::Settled(end_of, trip) => short(out, kind::SETTLED, |out| given(out, *end_of, *trip)),
        Travel::Hurry(end_of, trip) => short(out, kind::HURRY, |out| given(out, *end_of, *trip)),
        Travel::Over(end_of, how) => long(out, kind::OVER, |out| {
            out.put_u128(channel.0);
            which(out, *end_of);
            end(out, how);
        }),
        Travel::Lapsed(end_of, trip, how) => long(out, kind::LAPSED, |out| {
            given(out, *end_of, *trip);
            end(out, how);
        }),
    }
}

fn moved(out: &mut BytesMut, state: &Moved) {
    number(out, state.epoch);
    number(out, state.transfer);
    match &state.sender {
        None => out.put_u8(0),
        Some((node, list)) => {
            out.put_u8(1);
            out.put_u128(node.0);
            addresses(out, list);
        }
    }
    match &state.ended {
        None => out.put_u8(0),
        Some(how) => {
            out.put_u8(1);
            end(out, how);
        }
    }
    number(out, state.credits);
    number(out, state.values);
}

fn to_home(out: &mut BytesMut, channel: ChannelId, said: &ToHome) {
    match said {
        ToHome::Attach(face) => long(out, kind::ATTACH, |out| {
            out.put_u128(channel.0);
            declaration(out, face);
        }),
        ToHome::Value { .. } => unreachable!("`encode` writes values itself"),
        ToHome::OfferChoice(ticket, choice) => short(out, kind::OFFER_CHOICE, |out| {
            out.put_u128(channel.0);
            number(out, *ticket);
            out.put_u128(*choice);
        }),
        ToHome::Withdraw(ticket) => short(out, kind::WITHDRAW, |out| {
            out.put_u128(channel.0);
            number(out, *ticket);
        }),
        ToHome::Revoke(ticket) => short(out, kind::REVOKE, |out| {
            out.put_u128(channel.0);
            number(out, *ticket);
        }),
        ToHome::Ended(how) => long(out, kind::SENDER_ENDED, |out| {
            out.put_u128(channel.0);
            end(out, how);
        }),
        ToHome::Take(transfer) => short(out, kind::TAKE, |out| {
            out.put_u128(channel.0);
            number(out, *transfer);
        }),
        ToHome::Quiet => short(out, kind::QUIET, |out| out.put_u128(channel.0)),
        ToHome::Drain => short(out, kind::DRAIN, |out| out.put_u128(channel.0)),
        ToHome::State(state) => long(out, kind::STATE, |out| {
            out.put_u128(channel.0);
            moved(out, state);
        }),
    }
}

fn end(out: &mut BytesMut, how: &End) {
    match how {
        End::Gone => out.put_u8(0),
        End::Retired => out.put_u8(1),
        End::Poisoned(why) => {
            out.put_u8(2);
            poison(out, why);
        }
        End::Lost => out.put_u8(3),
    }
}

fn poison(out: &mut BytesMut, poison: &Poison) {
    out.put_u8(poison.strength);
    string(out, clip(&poison.reason));
}

fn failure(out: &mut BytesMut, why: &Failure) {
    match why {
        Failure::Closed => out.put_u8(0),
        Failure::Poisoned(why) => {
            out.put_u8(1);
            poison(out, why);
        }
        Failure::Refused => out.put_u8(2),
        Failure::Expired => out.put_u8(3),
        Failure::WouldBlock => out.put_u8(4),
        Failure::TooLarge { max } => {
            out.put_u8(5);
            number(out, *max);
        }
        Failure::Undecodable(text) => {
            out.put_u8(6);
            string(out, clip(text));
        }
        Failure::OwnChannel => out.put_u8(7),
        Failure::Unknown => out.put_u8(8),
        Failure::Unread => out.put_u8(9),
    }
}

/// A text for people, cut at its limit: better a shorter reason than a connection that fails because of it.
pub(super) fn clip(text: &str) -> &[u8] {
    if text.len() <= limits::TEXT {
        return text.as_bytes();
    }
    let end = (0..=limits::TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text.as_bytes()[..end]
}

fn declaration(out: &mut BytesMut, said: &Declaration) {
    out.put_u8(match said.face {
        Face::Sender => 0,
        Face::Receiver => 1,
        Face::Client => 2,
        Face::Server => 3,
        Face::Acceptor => 4,
    });
    out.put_u8(said.shared.into());
    out.put_u8(match said.expects {
        Expected::Unknown => 0,
        Expected::Unshared => 1,
        Expected::Shared => 2,
    });
    string(out, &said.schema);
}

pub(super) fn life(out: &mut BytesMut, life: Life) {
    out.put_u128(life.node.0);
    out.put_u64(life.incarnation.0);
}

pub(super) fn addresses(out: &mut BytesMut, addresses: &[String]) {
    number(out, addresses.len() as u64);
    addresses.iter().for_each(|address| string(out, address.as_bytes()));
}

fn names(out: &mut BytesMut, said: &Names) {
    match said {
        Names::Declare { number: n, name, channel, face, status } => long(out, kind::DECLARE, |out| {
            number(out, *n);
            string(out, name.as_bytes());
            out.put_u128(channel.0);
            declaration(out, face);
            match status {
                Status::New => out.put_u8(0),
                Status::Known => out.put_u8(1),
                Status::Joined(channel) => {
                    out.put_u8(2);
                    out.put_u128(channel.0);
                }
            }
        }),
        Names::Undeclare { number: n } => short(out, kind::UNDECLARE, |out| number(out, *n)),
        Names::Found { number: n, partner, addresses: list, channel, face } => long(out, kind::FOUND, |out| {
            number(out, *n);
            life(out, *partner);
            addresses(out, list);
            out.put_u128(channel.0);
            declaration(out, face);
        }),
        Names::Refused { number: n, there, holder, addresses: list } => long(out, kind::NAME_REFUSED, |out| {
            number(out, *n);
            life(out, *holder);
            addresses(out, list);
            declaration(out, there);
        }),
        Names::Unfit { number: n, refused, by, addresses: list } => long(out, kind::NAME_UNFIT, |out| {
            number(out, *n);
            life(out, *by);
            addresses(out, list);
            declaration(out, refused);
        }),
        Names::BadName { number: n } => short(out, kind::BAD_NAME, |out| number(out, *n)),
        Names::Full { number: n, room, max } => short(out, kind::NAME_FULL, |out| {
            number(out, *n);
            out.put_u8(match room {
                Room::Declarations => 0,
                Room::Names => 1,
                Room::Bytes => 2,
                Room::Share => 3,
                Room::Memory => 4,
            });
            number(out, *max);
        }),
        Names::Waiting { number: n } => short(out, kind::NAME_WAITING, |out| number(out, *n)),
        Names::Gone { number: n, partner } => short(out, kind::NAME_GONE, |out| {
            number(out, *n);
            life(out, *partner);
        }),
        Names::Guest { acceptor, guest } => short(out, kind::GUEST, |out| {
            out.put_u128(acceptor.0);
            out.put_u128(guest.0);
        }),
        Names::Elsewhere => head(out, kind::ELSEWHERE, 0),
    }
}

fn relay(out: &mut BytesMut, said: &Relay) {
    let asks = |out: &mut BytesMut, kind, node: NodeId, list: &[String]| {
        long(out, kind, |out| {
            out.put_u128(node.0);
            addresses(out, list);
        });
    };
    let begins = |out: &mut BytesMut, kind, stream, node: NodeId| {
        short(out, kind, |out| {
            number(out, stream);
            out.put_u128(node.0);
        });
    };
    match said {
        Relay::AskDial { node, addresses } => asks(out, kind::ASK_DIAL, *node, addresses),
        Relay::DialBack { node, addresses } => asks(out, kind::DIAL_BACK, *node, addresses),
        Relay::Undialled(node) => short(out, kind::UNDIALLED, |out| out.put_u128(node.0)),
        Relay::NotDialled(node, why) => short(out, kind::NOT_DIALLED, |out| {
            out.put_u128(node.0);
            out.put_u8(match why {
                NoDial::NotConnected => 0,
                NoDial::Failed => 1,
            });
        }),
        Relay::Admit => head(out, kind::RELAY_ADMIT, 0),
        Relay::To { stream, node } => begins(out, kind::RELAY_TO, *stream, *node),
        Relay::From { stream, node } => begins(out, kind::RELAY_FROM, *stream, *node),
        Relay::Refused { stream, why } => short(out, kind::RELAY_REFUSED, |out| {
            number(out, *stream);
            out.put_u8(match why {
                NoRelay::Unwilling => 0,
                NoRelay::Full => 1,
                NoRelay::NotConnected => 2,
                NoRelay::Local => 3,
            });
        }),
        Relay::Credit { stream } => short(out, kind::RELAY_CREDIT, |out| number(out, *stream)),
        Relay::Bytes { .. } => unreachable!("`encode` writes bytes itself"),
        Relay::End { stream } => short(out, kind::RELAY_END, |out| number(out, *stream)),
    }
}

/// How much of what has arrived is the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A whole frame: so many bytes of head, and so many of body behind it.
    Frame {
        /// The kind and the length.
        head: usize,
        /// The rest.
        body: usize,
    },
    /// Not yet a whole one. At least so many bytes are missing.
    Wait(usize),
}

/// Looks at the beginning of what has arrived. Nothing is allocated for what has not arrived.
///
/// # Errors
/// [`WireError::TooLong`], [`WireError::UnknownKind`]: this will never be a frame.
pub fn next(bytes: &[u8]) -> Result<Next, WireError> {
    let Some(&kind) = bytes.first() else { return Ok(Next::Wait(2)) };
    let max = longest(kind)?;
    let mut body: u64 = 0;
    for at in 1..=5 {
        let Some(&byte) = bytes.get(at) else { return Ok(Next::Wait(1)) };
        body |= u64::from(byte & 0x7f) << (7 * (at - 1));
        if byte & 0x80 == 0 {
            if byte == 0 && at > 1 {
                return Err(WireError::Overlong("a length"));
            }
            if body > max as u64 {
                return Err(WireError::TooLong { what: "a frame", bytes: body, bytes_max: max as u64 });
            }
            let (head, body) = (at + 1, body as usize);
            return Ok(if bytes.len() >= head + body {
                Next::Frame { head, body }
            } else {
                Next::Wait(head + body - bytes.len())
            });
        }
    }
    Err(WireError::TooLong { what: "a frame", bytes: body, bytes_max: max as u64 })
}

/// The beginning of a long frame, one with more than [`limits::FRAME`] of body: these have pieces of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Long {
    pub(crate) channel: ChannelId,
    /// Of the value that begins with it: what it is, and its length. `None`: it goes on.
    pub(crate) value: Option<(Head, u64)>,
    /// Where the piece begins.
    pub(crate) fields: usize,
    /// How long the frame is, and its piece.
    pub(crate) whole: usize,
    pub(crate) piece: u64,
}

/// Looks at a frame of which a part has arrived. `None`: it is no long one, or too little of it is there.
///
/// # Errors
/// It will never be a frame.
pub(crate) fn begins_long(part: &[u8]) -> Result<Option<Long>, WireError> {
    // A head, a channel and three numbers.
    const FIELDS: usize = 6 + 16 + 3 * 10;
    let Next::Wait(missing) = next(part)? else { return Ok(None) };
    let whole = part.len() + missing;
    if whole <= limits::FRAME {
        return Ok(None);
    }
    // Its length is there, else less would be missing.
    let head = 1 + number_len_at(&part[1..]);
    if whole - head <= limits::FRAME {
        return Ok(None);
    }
    let begins = Bytes::copy_from_slice(&part[head..part.len().min(FIELDS)]);
    let has_all = part.len() >= FIELDS;
    let before = begins.len();
    let mut r = Reader(begins);
    match r.beginning(part[0]) {
        Ok((channel, value)) => {
            let fields = head + before - r.0.len();
            Ok(Some(Long { channel, value, fields, whole, piece: (whole - fields) as u64 }))
        }
        Err(WireError::Truncated(_)) if !has_all => Ok(None),
        Err(why) => Err(why),
    }
}

/// How many bytes the number takes that is at the front.
fn number_len_at(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| byte & 0x80 == 0).map_or(bytes.len(), |last| last + 1)
}

/// Whether schemas may have to be compared for a frame of this kind, which takes long.
pub(crate) fn compares(kind: u8) -> bool {
    matches!(kind, kind::DECLARE | kind::ATTACH | kind::NAME_REFUSED | kind::NAME_UNFIT)
}

/// Takes [`Frame::Confirm`] from the front of what has arrived, and gives its signature. `None`: it is not all there.
///
/// # Errors
/// It is something else, which is not waited for.
pub(crate) fn confirms(arrived: &mut BytesMut) -> Result<Option<Bytes>, WireError> {
    if let Some(&kind) = arrived.first().filter(|kind| **kind != kind::CONFIRM) {
        return Err(WireError::Invalid { what: "the kind of the first frame", value: kind.into() });
    }
    let Next::Frame { head, body } = next(arrived)? else { return Ok(None) };
    let mut r = Reader(arrived.split_to(head + body).freeze().slice(head..));
    let signature = r.bytes("a signature", limits::SIGNATURE)?;
    r.finish()?;
    Ok(Some(signature))
}

/// How long the body of a frame of this kind may be.
fn longest(kind: u8) -> Result<usize, WireError> {
    Ok(match kind {
        kind::HEARTBEAT | kind::GOODBYE | kind::ELSEWHERE | kind::RELAY_ADMIT => 0,
        kind::CONFIRM => limits::SIGNATURE + 2,
        kind::OFFER | kind::UNREAD | kind::GRANT | kind::GRANT_UNREAD | kind::SENT | kind::MORE => limits::CHUNK + 64,
        kind::ATTACHED
        | kind::TAKEN
        | kind::HELD
        | kind::RELEASED
        | kind::WITHDRAWN
        | kind::RESERVE
        | kind::ABORT
        | kind::CREDIT
        | kind::OFFER_CHOICE
        | kind::WITHDRAW
        | kind::REVOKE
        | kind::CUT
        | kind::UNDECLARE
        | kind::BAD_NAME
        | kind::NAME_FULL
        | kind::NAME_WAITING
        | kind::NAME_GONE
        | kind::GUEST
        | kind::HOME_IS
        | kind::UNTAKEN
        | kind::SUPERSEDED
        | kind::DRAINED
        | kind::ONWARD
        | kind::OFFER_UNREAD
        | kind::READ
        | kind::TAKE
        | kind::QUIET
        | kind::DRAIN
        | kind::WHERE
        | kind::FETCH
        | kind::SETTLED
        | kind::HURRY
        | kind::UNDIALLED
        | kind::NOT_DIALLED
        | kind::RELAY_TO
        | kind::RELAY_FROM
        | kind::RELAY_REFUSED
        | kind::RELAY_CREDIT
        | kind::RELAY_END
        | kind::MEMORY_CREDIT
        | kind::ANNOUNCE
        | kind::ADMIT
        | kind::RECANT
        | kind::ACK => 127,
        kind::REJECTED
        | kind::FAILED
        | kind::HOME_ENDED
        | kind::ATTACH
        | kind::SENDER_ENDED
        | kind::DECLARE
        | kind::FOUND
        | kind::MOVING
        | kind::STATE
        | kind::AT
        | kind::OVER
        | kind::LAPSED
        | kind::ASK_DIAL
        | kind::DIAL_BACK
        | kind::NAME_REFUSED
        | kind::NAME_UNFIT
        | kind::RELAYED => limits::FRAME,
        unknown => return Err(WireError::UnknownKind(unknown)),
    })
}

/// Reads a frame: `kind` is its first byte, `body` what follows its length. The pieces of values are parts of `body`, not copies.
///
/// # Errors
/// The bytes are no frame.
pub fn decode(kind: u8, body: Bytes) -> Result<Frame, WireError> {
    let mut r = Reader(body);
    let frame = match kind {
        kind::HEARTBEAT => Frame::Heartbeat,
        kind::ACK => Frame::Ack { seen: r.number("a count of frames")? },
        kind::GOODBYE => Frame::Goodbye,
        kind::CONFIRM => Frame::Confirm { signature: r.bytes("a signature", limits::SIGNATURE)? },
        kind::ATTACHED => {
            let channel = r.channel()?;
            Frame::FromHome(channel, FromHome::Attached(r.terms()?))
        }
        kind::HOME_IS => {
            let channel = r.channel()?;
            let (transfer, epoch) = (r.number("a transfer")?, r.number("an epoch")?);
            Frame::FromHome(channel, FromHome::HomeIs { transfer, epoch, terms: r.terms()? })
        }
        kind::UNTAKEN => {
            let channel = r.channel()?;
            let transfer = r.number("a transfer")?;
            let fenced = r.flag("why it was not taken")?;
            Frame::FromHome(channel, if fenced { FromHome::Fenced(transfer) } else { FromHome::NotHome(transfer) })
        }
        kind::MOVING => {
            let channel = r.channel()?;
            let (epoch, to, addresses) = r.place()?;
            Frame::FromHome(channel, FromHome::Moving { epoch, to, addresses })
        }
        kind::SUPERSEDED => Frame::FromHome(r.channel()?, FromHome::Superseded(r.number("a transfer")?)),
        kind::DRAINED => Frame::FromHome(r.channel()?, FromHome::Drained),
        kind::ONWARD => Frame::FromHome(r.channel()?, FromHome::Onward(r.number("a ticket")?)),
        kind::OFFER_UNREAD => Frame::FromHome(r.channel()?, FromHome::Unread(r.number("a size")?)),
        kind::READ => {
            let channel = r.channel()?;
            Frame::Read(channel, Read { key: r.id("a key")?, value_max: r.number("a limit")? })
        }
        kind::TAKE => Frame::ToHome(r.channel()?, ToHome::Take(r.number("a transfer")?)),
        kind::QUIET => Frame::ToHome(r.channel()?, ToHome::Quiet),
        kind::DRAIN => Frame::ToHome(r.channel()?, ToHome::Drain),
        kind::STATE => Frame::ToHome(r.channel()?, ToHome::State(r.moved()?)),
        kind::WHERE => Frame::Travel(r.channel()?, Travel::Where(r.number("an epoch")?)),
        kind::AT => {
            let channel = r.channel()?;
            let (epoch, home, addresses) = r.place()?;
            Frame::Travel(channel, Travel::At { epoch, home, addresses })
        }
        kind::FETCH => Frame::Travel(r.channel()?, Travel::Fetch(r.number("a claim")?)),
        kind::SETTLED => Frame::Travel(r.channel()?, Travel::Settled(r.which()?, r.number("a trip")?)),
        kind::OVER => Frame::Travel(r.channel()?, Travel::Over(r.which()?, r.end()?)),
        kind::HURRY => Frame::Travel(r.channel()?, Travel::Hurry(r.which()?, r.number("a trip")?)),
        kind::LAPSED => Frame::Travel(r.channel()?, Travel::Lapsed(r.which()?, r.number("a trip")?, r.end()?)),
        kind::REJECTED => {
            let channel = r.channel()?;
            let why = match r.byte("a rejection")? {
                0 => Rejection::NoSuchChannel,
                1 => Rejection::Occupied,
                2 => Rejection::Mismatch(r.declaration()?),
                3 => Rejection::Full,
                value => return Err(invalid("a rejection", value)),
            };
            Frame::FromHome(channel, FromHome::Rejected(why))
        }
        kind::TAKEN => Frame::FromHome(r.channel()?, FromHome::Taken(r.number("a ticket")?)),
        kind::HELD => Frame::FromHome(r.channel()?, FromHome::Held(r.number("a ticket")?)),
        kind::RELEASED => Frame::FromHome(r.channel()?, FromHome::Released(r.number("a ticket")?)),
        kind::FAILED => Frame::FromHome(r.channel()?, FromHome::Failed(r.number("a ticket")?, r.failure()?)),
        kind::WITHDRAWN => Frame::FromHome(r.channel()?, FromHome::Withdrawn(r.number("a ticket")?)),
        kind::RESERVE => {
            Frame::FromHome(r.channel()?, FromHome::Reserve(r.number("a ticket")?, r.number("a request")?))
        }
        kind::ABORT => Frame::FromHome(r.channel()?, FromHome::Abort(r.number("a ticket")?, r.number("a request")?)),
        kind::CREDIT => Frame::FromHome(r.channel()?, FromHome::Credit(r.number32("credits")?)),
        kind::HOME_ENDED => Frame::FromHome(r.channel()?, FromHome::Ended(r.end()?)),
        kind::ATTACH => Frame::ToHome(r.channel()?, ToHome::Attach(r.declaration()?)),
        kind::OFFER => {
            let (channel, head) = (r.channel()?, Head::Offer(r.number("a ticket")?));
            r.value(channel, head)?
        }
        kind::UNREAD => {
            let (channel, head) = (r.channel()?, Head::Unread(r.number("a ticket")?));
            r.value(channel, head)?
        }
        kind::GRANT => {
            let (channel, head) = (r.channel()?, Head::Grant(r.number("a ticket")?, r.number("a request")?));
            r.value(channel, head)?
        }
        kind::GRANT_UNREAD => {
            let (channel, head) = (r.channel()?, Head::GrantUnread(r.number("a ticket")?, r.number("a request")?));
            r.value(channel, head)?
        }
        kind::SENT => {
            let channel = r.channel()?;
            r.value(channel, Head::Sent)?
        }
        kind::OFFER_CHOICE => {
            Frame::ToHome(r.channel()?, ToHome::OfferChoice(r.number("a ticket")?, r.id("a choice")?))
        }
        kind::WITHDRAW => Frame::ToHome(r.channel()?, ToHome::Withdraw(r.number("a ticket")?)),
        kind::REVOKE => Frame::ToHome(r.channel()?, ToHome::Revoke(r.number("a ticket")?)),
        kind::SENDER_ENDED => Frame::ToHome(r.channel()?, ToHome::Ended(r.end()?)),
        kind::MORE => {
            let channel = r.channel()?;
            Frame::More(channel, r.piece()?)
        }
        kind::CUT => Frame::Cut(r.channel()?),
        kind::DECLARE => Frame::Names(Names::Declare {
            number: r.number("a declaration")?,
            name: r.text("a name", limits::NAME)?,
            channel: r.channel()?,
            face: r.declaration()?,
            status: match r.byte("a status")? {
                0 => Status::New,
                1 => Status::Known,
                2 => Status::Joined(r.channel()?),
                value => return Err(invalid("a status", value)),
            },
        }),
        kind::UNDECLARE => Frame::Names(Names::Undeclare { number: r.number("a declaration")? }),
        kind::FOUND => Frame::Names(Names::Found {
            number: r.number("a declaration")?,
            partner: r.life()?,
            addresses: r.addresses()?,
            channel: r.channel()?,
            face: r.declaration()?,
        }),
        kind::NAME_REFUSED => Frame::Names(Names::Refused {
            number: r.number("a declaration")?,
            holder: r.life()?,
            addresses: r.addresses()?,
            there: r.declaration()?,
        }),
        kind::NAME_UNFIT => Frame::Names(Names::Unfit {
            number: r.number("a declaration")?,
            by: r.life()?,
            addresses: r.addresses()?,
            refused: r.declaration()?,
        }),
        kind::BAD_NAME => Frame::Names(Names::BadName { number: r.number("a declaration")? }),
        kind::NAME_FULL => Frame::Names(Names::Full {
            number: r.number("a declaration")?,
            room: match r.byte("what there is no room for")? {
                0 => Room::Declarations,
                1 => Room::Names,
                2 => Room::Bytes,
                3 => Room::Share,
                4 => Room::Memory,
                value => return Err(invalid("what there is no room for", value)),
            },
            max: r.number("a limit")?,
        }),
        kind::NAME_WAITING => Frame::Names(Names::Waiting { number: r.number("a declaration")? }),
        kind::NAME_GONE => Frame::Names(Names::Gone { number: r.number("a declaration")?, partner: r.life()? }),
        kind::GUEST => Frame::Names(Names::Guest { acceptor: r.channel()?, guest: r.channel()? }),
        kind::ELSEWHERE => Frame::Names(Names::Elsewhere),
        kind::ASK_DIAL => Frame::Relay(Relay::AskDial { node: r.node()?, addresses: r.addresses()? }),
        kind::DIAL_BACK => Frame::Relay(Relay::DialBack { node: r.node()?, addresses: r.addresses()? }),
        kind::UNDIALLED => Frame::Relay(Relay::Undialled(r.node()?)),
        kind::NOT_DIALLED => {
            let node = r.node()?;
            let failed = r.flag("why it has not dialled")?;
            Frame::Relay(Relay::NotDialled(node, if failed { NoDial::Failed } else { NoDial::NotConnected }))
        }
        kind::RELAY_ADMIT => Frame::Relay(Relay::Admit),
        kind::RELAY_TO => Frame::Relay(Relay::To { stream: r.number("a stream")?, node: r.node()? }),
        kind::RELAY_FROM => Frame::Relay(Relay::From { stream: r.number("a stream")?, node: r.node()? }),
        kind::RELAY_REFUSED => Frame::Relay(Relay::Refused {
            stream: r.number("a stream")?,
            why: match r.byte("why it is not relayed")? {
                0 => NoRelay::Unwilling,
                1 => NoRelay::Full,
                2 => NoRelay::NotConnected,
                3 => NoRelay::Local,
                value => return Err(invalid("why it is not relayed", value)),
            },
        }),
        kind::RELAY_CREDIT => Frame::Relay(Relay::Credit { stream: r.number("a stream")? }),
        kind::RELAYED => Frame::Relay(Relay::Bytes { stream: r.number("a stream")?, piece: r.piece()? }),
        kind::RELAY_END => Frame::Relay(Relay::End { stream: r.number("a stream")? }),
        kind::MEMORY_CREDIT => Frame::Memory(Memory::Credit(r.number("a credit")?)),
        kind::ANNOUNCE => Frame::Memory(Memory::Announce {
            number: r.number("an announcement")?,
            channel: r.channel()?,
            kind: match r.byte("a kind of value")? {
                0 => Kind::Offer,
                1 => Kind::Grant,
                2 => Kind::Sent,
                other => return Err(WireError::Invalid { what: "a kind of value", value: other.into() }),
            },
            total: r.number("a length")?,
        }),
        kind::ADMIT => Frame::Memory(Memory::Admit(r.number("an announcement")?)),
        kind::RECANT => Frame::Memory(Memory::Recant(r.number("an announcement")?)),
        unknown => return Err(WireError::UnknownKind(unknown)),
    };
    r.finish()?;
    Ok(frame)
}

fn invalid(what: &'static str, value: u8) -> WireError {
    WireError::Invalid { what, value: value.into() }
}

/// Reads fields from the front; whatever is missing or too long is an error.
pub(super) struct Reader(pub(super) Bytes);

impl Reader {
    pub(super) fn finish(&self) -> Result<(), WireError> {
        if self.0.is_empty() { Ok(()) } else { Err(WireError::Trailing(self.0.len())) }
    }

    pub(super) fn byte(&mut self, what: &'static str) -> Result<u8, WireError> {
        self.0.try_get_u8().map_err(|_| WireError::Truncated(what))
    }

    pub(super) fn number(&mut self, what: &'static str) -> Result<u64, WireError> {
        let mut n: u64 = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            n |= part << shift;
            if byte & 0x80 == 0 {
                return if byte == 0 && shift > 0 { Err(WireError::Overlong(what)) } else { Ok(n) };
            }
        }
        Err(WireError::Invalid { what, value: u64::MAX })
    }

    fn number32(&mut self, what: &'static str) -> Result<u32, WireError> {
        let value = self.number(what)?;
        u32::try_from(value).map_err(|_| WireError::Invalid { what, value })
    }

    pub(super) fn fixed64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.0.try_get_u64().map_err(|_| WireError::Truncated(what))
    }

    pub(super) fn id(&mut self, what: &'static str) -> Result<u128, WireError> {
        self.0.try_get_u128().map_err(|_| WireError::Truncated(what))
    }

    fn channel(&mut self) -> Result<ChannelId, WireError> {
        self.id("a channel").map(ChannelId)
    }

    /// Zero says that a node, or its incarnation, is not known: no life of a node has either.
    pub(super) fn life(&mut self) -> Result<Life, WireError> {
        let (node, incarnation) = (self.id("a node")?, self.fixed64("an incarnation")?);
        match (node, incarnation) {
            (0, _) => Err(invalid("a node", 0)),
            (_, 0) => Err(invalid("an incarnation", 0)),
            _ => Ok(Life { node: NodeId(node), incarnation: Incarnation(incarnation) }),
        }
    }

    pub(super) fn bytes(&mut self, what: &'static str, max: usize) -> Result<Bytes, WireError> {
        let length = self.number(what)?;
        if length > max as u64 {
            return Err(WireError::TooLong { what, bytes: length, bytes_max: max as u64 });
        }
        if length > self.0.len() as u64 {
            return Err(WireError::Truncated(what));
        }
        Ok(self.0.split_to(length as usize))
    }

    pub(super) fn text(&mut self, what: &'static str, max: usize) -> Result<String, WireError> {
        let bytes = self.bytes(what, max)?;
        std::str::from_utf8(&bytes).map(str::to_owned).map_err(|_| WireError::NotText(what))
    }

    pub(super) fn addresses(&mut self) -> Result<Vec<String>, WireError> {
        let count = self.number("a count of addresses")?;
        if count > limits::ADDRESSES as u64 {
            return Err(WireError::Invalid { what: "a count of addresses", value: count });
        }
        (0..count).map(|_| self.text("an address", limits::ADDRESS)).collect()
    }

    fn end(&mut self) -> Result<End, WireError> {
        Ok(match self.byte("an end")? {
            0 => End::Gone,
            1 => End::Retired,
            2 => End::Poisoned(self.poison()?),
            3 => End::Lost,
            value => return Err(invalid("an end", value)),
        })
    }

    fn terms(&mut self) -> Result<Terms, WireError> {
        let terms = Terms {
            window: self.number32("a window")?,
            credits: self.number32("credits")?,
            value_max: self.number("a limit")?,
        };
        if terms.window == 0 { Err(invalid("a window", 0)) } else { Ok(terms) }
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, WireError> {
        match self.byte(what)? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(invalid(what, value)),
        }
    }

    fn which(&mut self) -> Result<Which, WireError> {
        Ok(if self.flag("which end")? { Which::Receiver } else { Which::Sender })
    }

    fn node(&mut self) -> Result<NodeId, WireError> {
        match self.id("a node")? {
            0 => Err(invalid("a node", 0)),
            node => Ok(NodeId(node)),
        }
    }

    /// A number, a node, and where it can be dialled.
    fn place(&mut self) -> Result<(u64, NodeId, Vec<String>), WireError> {
        Ok((self.number("an epoch")?, self.node()?, self.addresses()?))
    }

    fn moved(&mut self) -> Result<Moved, WireError> {
        let (epoch, transfer) = (self.number("an epoch")?, self.number("a transfer")?);
        let sender = if self.flag("a sender")? { Some((self.node()?, self.addresses()?)) } else { None };
        let ended = if self.flag("an end")? { Some(self.end()?) } else { None };
        let (credits, values) = (self.number("a count of places")?, self.number("a count of values")?);
        Ok(Moved { epoch, transfer, sender, ended, credits, values })
    }

    fn poison(&mut self) -> Result<Poison, WireError> {
        Ok(Poison { strength: self.byte("a strength")?, reason: self.text("a reason", limits::TEXT)? })
    }

    fn failure(&mut self) -> Result<Failure, WireError> {
        Ok(match self.byte("a failure")? {
            0 => Failure::Closed,
            1 => Failure::Poisoned(self.poison()?),
            2 => Failure::Refused,
            3 => Failure::Expired,
            4 => Failure::WouldBlock,
            5 => Failure::TooLarge { max: self.number("a limit")? },
            6 => Failure::Undecodable(self.text("a reason", limits::TEXT)?),
            7 => Failure::OwnChannel,
            8 => Failure::Unknown,
            9 => Failure::Unread,
            value => return Err(invalid("a failure", value)),
        })
    }

    fn declaration(&mut self) -> Result<Declaration, WireError> {
        let face = match self.byte("a face")? {
            0 => Face::Sender,
            1 => Face::Receiver,
            2 => Face::Client,
            3 => Face::Server,
            4 => Face::Acceptor,
            value => return Err(invalid("a face", value)),
        };
        let shared = match self.byte("sharing")? {
            0 => false,
            1 => true,
            value => return Err(invalid("sharing", value)),
        };
        let expects = match self.byte("what is expected")? {
            0 => Expected::Unknown,
            1 => Expected::Unshared,
            2 => Expected::Shared,
            value => return Err(invalid("what is expected", value)),
        };
        Ok(Declaration { face, shared, expects, schema: self.bytes("a schema", limits::SCHEMA)? })
    }

    /// What is before the piece in a frame of this kind.
    fn beginning(&mut self, kind: u8) -> Result<(ChannelId, Option<(Head, u64)>), WireError> {
        let channel = self.channel()?;
        let head = match kind {
            kind::MORE => return Ok((channel, None)),
            kind::OFFER => Head::Offer(self.number("a ticket")?),
            kind::UNREAD => Head::Unread(self.number("a ticket")?),
            kind::GRANT => Head::Grant(self.number("a ticket")?, self.number("a request")?),
            kind::GRANT_UNREAD => Head::GrantUnread(self.number("a ticket")?, self.number("a request")?),
            kind::SENT => Head::Sent,
            unknown => return Err(WireError::UnknownKind(unknown)),
        };
        Ok((channel, Some((head, self.number("a value's length")?))))
    }

    fn value(&mut self, channel: ChannelId, head: Head) -> Result<Frame, WireError> {
        let total = self.number("a value's length")?;
        // Only the empty value has an empty piece: else a value could stay unfinished at no cost to its sender.
        let first = if total == 0 { Bytes::new() } else { self.piece()? };
        if first.len() as u64 > total {
            return Err(WireError::Trailing((first.len() as u64 - total) as usize));
        }
        Ok(Frame::ToHome(channel, ToHome::Value { head, total, first }))
    }

    /// The rest, which is at least one byte.
    fn piece(&mut self) -> Result<Bytes, WireError> {
        let length = self.0.len();
        if length == 0 {
            return Err(WireError::Truncated("a piece of a value"));
        }
        if length > limits::CHUNK {
            let (bytes, bytes_max) = (length as u64, limits::CHUNK as u64);
            return Err(WireError::TooLong { what: "a piece of a value", bytes, bytes_max });
        }
        Ok(self.0.split_to(length))
    }
}
