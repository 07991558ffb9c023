//! Messages in transit between nodes: the value's bytes, and the ends that go with them.
//!
//! A message begins with the number of its ends (one byte), and for each of them: what it is and how it goes
//! (one byte), its channel, and for one that has travelled before, where it comes from ([`Going`]). A handle
//! of a shared end is encoded as its kind, followed by the ends that it consists of ([`parts`]), which are
//! always new. Before those goes the number by which the keeper of the end knows it ([`Kept`]). A channel of
//! [`Bytes`], or of `Vec<u8>`, has no ends and no such byte: its messages are the bytes themselves.
//!
//! Ends travel once they are taken (`docs/laws.md`): until then they belong to the sending side, and work. An
//! unshared end goes anywhere; a shared end stays, and its handles go.

pub(in crate::node) mod kept;
pub(in crate::node) mod places;
mod through;
mod unread;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dunlin_core::agent::PassedOn;
use dunlin_core::carrier::{
    Agent, AnyOutlet, CarriedEnd, Chore, EndKind, Inbox, Outbox, PolicyNote, Sealed, Several, Shape, SharedEnd,
    StagedEnd, Value,
};
use dunlin_core::waits::ChannelId as CoreId;
use dunlin_core::{Policy, Why, fifo, rendezvous};
use dunlin_proto::id::{ChannelId, Contact, NodeId};
use dunlin_proto::wire::{Declaration, End, Expected, Face, Terms, Which, limits};
use dunlin_proto::{Arrival, HomeHears, ReceiverPlace, SenderPlace, Trip};

pub(crate) use self::kept::Shelved;
use self::kept::{Passing, Place, Through};
pub(crate) use self::through::pass_on;
pub(crate) use self::unread::{Reading, Reads, read, serve, shelve};
use super::budget::{self, Budget};
use super::codec::{self, EncodeError, Encoding};
use super::id::{self, Half};
use super::mailboxes::{Giver, through};
use super::state::{Delivery, Held, Locked, NewReceiver, NewReceiverKind, NewSender, NewSenderKind, Says, Told};
use crate::world;

/// How many offers of one sending half may stand at its home.
pub(crate) const WINDOW: u32 = 32;

/// What a message may take beside its value, in bytes, if none of its ends has travelled before.
pub(crate) const OVERHEAD: u64 = 1 + 17 * u8::MAX as u64;

/// Why a message is not sent.
pub(crate) enum NotNow {
    /// It cannot be.
    Never(Why),
    /// A sender in it is not at rest: the bridge is [told](super::work::Told::Retry) when to try again.
    Later,
}

impl From<Why> for NotNow {
    fn from(why: Why) -> Self {
        Self::Never(why)
    }
}

/// How an end goes.
enum Going {
    /// Its channel has both ends on this node, and is named for the message.
    First,
    /// The same, but its home is open here already, and the taker of the end asks that home. For a sender in
    /// a message that is complete when it is sent, since a word from its home could arrive before the
    /// message; or in one with its receiver. For any end in a message that is forwarded by the node that it
    /// is sent to.
    Late(Place, Trip),
    /// Its channel is between nodes: where the end comes from, and how messages on the channel are encoded.
    On(Place, Trip, Encoding),
    /// Its channel has ended.
    Over,
}

/// An end of a message that leaves.
struct LeavingEnd {
    /// Its number in the message, shared by all parts of a handle of a shared end.
    token: u64,
    /// It is the first part of an end of this kind, which has several parts.
    handle: Option<EndKind>,
    /// For a handle of a shared end: the end's number. Otherwise 0.
    number: u128,
    channel: ChannelId,
    core: Option<CoreId>,
    kind: EndKind,
    /// For an end that receives.
    policy: Option<PolicyNote>,
    going: Going,
}

/// The ends of a message that leaves this node, until it has been taken.
pub(crate) struct Leaving {
    /// `None`: there are none.
    sealed: Option<Sealed>,
    ends: Vec<LeavingEnd>,
    encoding: Encoding,
    /// For a message that itself came from another node.
    through: Option<Through>,
}

/// How an end has arrived.
enum Coming {
    First,
    On(Place, Encoding),
    Over,
}

/// An end of a message that has arrived.
struct ArrivingEnd {
    channel: ChannelId,
    coming: Coming,
    kind: EndKind,
    /// `None`: it was discarded, or is a place for a reply, which is `held`.
    agent: Option<Agent>,
    held: Option<Arc<Held>>,
}

impl ArrivingEnd {
    /// Its channel in the core.
    fn core(&self) -> Option<CoreId> {
        self.held.as_ref().map(|held| held.core()).or_else(|| self.agent.as_ref()?.channel())
    }
}

/// The ends of a message that has arrived, until it has been received.
pub(crate) struct Arriving {
    ends: Vec<ArrivingEnd>,
    /// The tasks that handles of shared ends need.
    chores: Vec<Chore>,
    /// The message as it was encoded.
    bytes: Bytes,
    encoding: Encoding,
    /// The name under which it may be forwarded to another node, once it can be received.
    name: Option<PassedOn>,
    /// It is the offer of a choice.
    is_granted: bool,
    /// It names the place where the message can be read.
    is_unread: bool,
}

/// When a message is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// When it has been received.
    Taken,
    /// The same, and the node that it is sent to forwards it: any other node may take it.
    TakenAnywhere,
    /// When it is sent.
    Sent,
}

/// Encodes a message. Its ends stay where they are.
pub(crate) fn leave(
    value: &Value,
    encoding: Encoding,
    bytes_max: u64,
    completion: Completion,
    says: &Says<'_>,
) -> Result<(Bytes, Leaving), NotNow> {
    write(value, encoding, bytes_max, completion, true, says)
}

fn write(
    value: &Value,
    encoding: Encoding,
    bytes_max: u64,
    completion: Completion,
    is_first: bool,
    says: &Says<'_>,
) -> Result<(Bytes, Leaving), NotNow> {
    let mut outbox = Outbox::new();
    let body_max = bytes_max.saturating_sub(OVERHEAD);
    let encode = || codec::encode(value, encoding, body_max);
    let encode = || through(Arc::downgrade(says.driver), Giver::Nobody, encode);
    let body = outbox.encode(encode).map_err(|error| match error {
        EncodeError::TooLarge { bytes, bytes_max } => Why::TooLarge { bytes, bytes_max },
        error => Why::Unsendable(error.to_string().into()),
    })?;
    if value.downcast_ref::<Bytes>().is_some() || value.downcast_ref::<Vec<u8>>().is_some() {
        return Ok((body, Leaving::nothing(encoding)));
    }
    let sealed = outbox.seal().map_err(|error| Why::Unsendable(error.to_string().into()))?;
    let staged: Vec<StagedEnd> = sealed.ends().collect();
    if staged.is_empty() {
        return Ok((body, Leaving::nothing(encoding)));
    }
    if staged.len() > usize::from(u8::MAX) {
        return Err(Why::Unsendable("a message can have at most 255 ends".into()).into());
    }
    if let Some(end) = staged.iter().find(|end| code(end.kind).is_none()) {
        return Err(Why::Unsendable(format!("a {} cannot leave its node yet", end.kind).into()).into());
    }
    if staged.iter().any(|end| has_policy(end.kind) && end.policy.is_none()) {
        let why = "a receiver or broadcast with a custom policy cannot leave its node, since the other node may not \
                   have the policy; use one of dunlin's policies (`rendezvous`, `fifo`, ...), or keep the end here \
                   and forward its values";
        return Err(Why::Unsendable(why.into()).into());
    }
    let ends = says.speak(|locked| {
        let mut ends = pack(&staged, completion, encoding, says.half(), locked)?;
        for end in ends.iter_mut().filter(|end| end.handle.is_some_and(has_number)) {
            let Some(shared) = sealed.shared_end(end.token) else { continue };
            end.number = shared.number(|| id::channel().0);
            // Now: the end may be back before this node learns that it has left.
            if let Some(kept) = shared.kept() {
                locked.state.kept.insert(end.number, kept);
            }
        }
        Ok::<_, NotNow>(ends)
    });
    let ends = match ends {
        // An agent that an end had when it was encoded may be gone since: the end is its holder's alone now.
        Err(NotNow::Never(_)) if is_first && staged.iter().any(|end| end.stretched) => {
            return write(value, encoding, bytes_max, completion, false, says);
        }
        ends => ends?,
    };
    let leaving = Leaving { sealed: Some(sealed), ends, encoding, through: None };
    let mut message = BytesMut::with_capacity(body.len() + 17 * leaving.ends.len());
    message.put_u8(staged.len() as u8);
    for end in &leaving.ends {
        write_end(end, encoding, &mut message);
    }
    message.put_slice(&body[1..]);
    if message.len() as u64 > bytes_max {
        let bytes = message.len() as u64;
        leaving.stay(says);
        return Err(Why::TooLarge { bytes, bytes_max }.into());
    }
    Ok((message.freeze(), leaving))
}

/// Which end of its channel this kind is.
fn which(kind: EndKind) -> Which {
    match kind {
        EndKind::Receiver { .. } | EndKind::Callee => Which::Receiver,
        _ => Which::Sender,
    }
}

/// Whether its channel's policy goes with it.
fn has_policy(kind: EndKind) -> bool {
    which(kind) == Which::Receiver || matches!(kind, EndKind::Broadcast | EndKind::Joiner { .. })
}

/// Whether it is a handle of a shared end, or an enrolment on a barrier: the number of the end or barrier
/// goes with it.
fn has_number(kind: EndKind) -> bool {
    matches!(kind, EndKind::Shared | EndKind::SharedSender | EndKind::SharedReceiver | EndKind::Barrier)
}

/// How each of these ends goes. If one cannot yet, none does.
fn pack(
    staged: &[StagedEnd],
    completion: Completion,
    encoding: Encoding,
    carrying: Half,
    locked: &mut Locked<'_>,
) -> Result<Vec<LeavingEnd>, NotNow> {
    let mut ends: Vec<LeavingEnd> = Vec::with_capacity(staged.len());
    for end in staged {
        let parts = parts(end.kind);
        if !parts.is_empty() {
            if end.stretched {
                ends.iter().for_each(|end| unpack(end, locked));
                return Err(NotNow::Never(Why::Unsendable(OTHER_TYPE.into())));
            }
            if end.carrier.is_some_and(|carrier| carrier != locked.driver.number) {
                ends.iter().for_each(|end| unpack(end, locked));
                return Err(NotNow::Never(Why::Unsendable(OTHER_NODE.into())));
            }
            let first = ends.len();
            ends.extend(parts.iter().map(|part| pack_new(end.token, None, *part, None, completion, locked)));
            (ends[first].handle, ends[first].policy) = (Some(end.kind), end.policy);
            continue;
        }
        let goes_with = |other: &StagedEnd| other.token != end.token && other.channel == end.channel;
        let is_paired = end.channel.is_some_and(|core| locked.state.half_of(core).is_none());
        let packed = if is_paired && !end.stretched && staged.iter().any(goes_with) {
            pack_paired(end, encoding, carrying, locked)
        } else {
            pack_end(end, completion, carrying, locked)
        };
        match packed {
            Ok(end) => ends.push(end),
            Err(why) => {
                ends.iter().for_each(|end| unpack(end, locked));
                return Err(why);
            }
        }
    }
    Ok(ends)
}

fn pack_end(
    end: &StagedEnd,
    completion: Completion,
    carrying: Half,
    locked: &mut Locked<'_>,
) -> Result<LeavingEnd, NotNow> {
    let never = |why: &'static str| Err(NotNow::Never(Why::Unsendable(why.into())));
    let (core, kind, policy) = (end.channel, end.kind, end.policy);
    let Some((half, encoding)) = core.and_then(|core| locked.state.half_of(core)) else {
        if let Some(channel) = core.and_then(|core| locked.state.arriving.get(&core).copied()) {
            // Its holder has received it, before this node was notified of that.
            locked.state.wait_for(channel, carrying);
            return Err(NotNow::Later);
        }
        if let Some(channel) = core.and_then(|core| locked.stretch_place(core)) {
            locked.state.wait_for(channel, carrying);
            return Err(NotNow::Later);
        }
        if end.stretched {
            if locked.wait_for_garbage(carrying) {
                // Its agent may be in the garbage: then its channel has ended.
                return Err(NotNow::Later);
            }
            return never(
                "an end that another node of this program has (perhaps of another application), or whose name was \
                 joined to its other end on this node, cannot leave this node: send an end of a new channel, and \
                 forward the values",
            );
        }
        if let Some(first) = core.and_then(|core| locked.state.first.get(&core).copied()) {
            // The other end is in transit, and may yet stay here.
            locked.state.wait_for(first, carrying);
            return Err(NotNow::Later);
        }
        return Ok(pack_new(end.token, core, kind, policy, completion, locked));
    };
    let channel = half.0;
    if channel == carrying.0 {
        return never("an end cannot be sent over its own channel");
    }
    let is_quiet = locked.state.is_quiet(half);
    // (A home is open from the beginning. An end that was joined, and is unknown now, has ended.)
    if half.1 == Which::Sender && is_quiet && !locked.state.has_peer(half) {
        return never("an end cannot leave its node before its name has found the other end");
    }
    if half.1 == Which::Receiver && stays_here(carrying, locked) {
        if locked.state.machine.receiver_is_away(carrying.0) {
            // It moves soon: then the bridge tries again.
            return Err(NotNow::Later);
        }
        return never(STAYS_HERE);
    }
    // Words from the end that the machine does not have yet come first, and so do words to the end: its
    // channel may have ended.
    let leaving = if !is_quiet {
        locked.state.unlink(half);
        dunlin_proto::Leaving::Wait
    } else {
        match half.1 {
            Which::Sender => into_place(locked.state.machine.pack_sender(locked.now, channel), Place::Sender),
            Which::Receiver => into_place(locked.state.machine.pack_receiver(channel), Place::Receiver),
        }
    };
    let going = match leaving {
        dunlin_proto::Leaving::Ready(ref place, trip)
            if locked.state.machine.is_guest(channel, half.1) && !goes_unused(place, completion, carrying, locked) =>
        {
            match half.1 {
                Which::Sender => {
                    locked.state.machine.sender_stays(locked.now, channel, trip);
                    locked.state.machine.use_sender(locked.now, channel);
                }
                Which::Receiver => {
                    locked.state.machine.receiver_stays(locked.now, channel, trip);
                    locked.state.machine.use_receiver(locked.now, channel);
                }
            }
            locked.state.wait_for(channel, carrying);
            return Err(NotNow::Later);
        }
        dunlin_proto::Leaving::Ready(place, trip) => Going::On(place, trip, encoding),
        dunlin_proto::Leaving::Over(_) => Going::Over,
        dunlin_proto::Leaving::Wait => {
            locked.state.wait_for(channel, carrying);
            return Err(NotNow::Later);
        }
    };
    Ok(LeavingEnd { token: end.token, handle: None, number: 0, channel, core, kind, policy, going })
}

const OTHER_TYPE: &str = "a handle that arrived at the node of its shared end as another Rust type than the end was \
                          shared as cannot be forwarded from there: send a clone of a handle that was made there";

const OTHER_NODE: &str = "a handle of a shared end, or a joiner, that arrived at another node of this program \
                          (perhaps of another application) cannot be forwarded from this node, which does not reach \
                          the node of origin: send the handle from there over this application too, or send a handle \
                          of a new channel and forward the values";

const STAYS_HERE: &str = "a receiver cannot be sent over a channel that has travelled and has both ends on this node";

/// Whether an end that has not been used here may be sent on unused. If not, it is used here first.
fn goes_unused(place: &Place, completion: Completion, carrying: Half, locked: &Locked<'_>) -> bool {
    match (completion, place) {
        // Words about the end would overtake the message, and the next node would then wait for a giver that
        // has already reported.
        (Completion::Sent, _) => false,
        (_, Place::Sender(_)) => true,
        // A receiver does not return to its home unused: values sent to it there would be in the memory of
        // its first channel, and it has another one now.
        (Completion::Taken, Place::Receiver(place)) => locked.state.machine.home_of(carrying.0) != Some(place.home),
        (Completion::TakenAnywhere, Place::Receiver(_)) => false,
    }
}

/// Whether messages over this channel stay on this node.
fn stays_here(carrying: Half, locked: &Locked<'_>) -> bool {
    locked.state.machine.home_of(carrying.0) == Some(locked.state.machine.me().node)
}

/// Packs an end of a channel that has not been between nodes, and whose other end is in the same message. Its
/// home is here now, and each end leaves as if it had arrived here before. Buffered values follow the
/// receiver.
fn pack_paired(
    end: &StagedEnd,
    encoding: Encoding,
    carrying: Half,
    locked: &mut Locked<'_>,
) -> Result<LeavingEnd, NotNow> {
    if stays_here(carrying, locked) {
        return Err(NotNow::Never(Why::Unsendable(STAYS_HERE.into())));
    }
    if end.busy {
        let why = "both ends of a channel cannot leave together after the channel has ended, or while a posted value \
                   waits to be received";
        return Err(NotNow::Never(Why::Unsendable(why.into())));
    }
    let (core, kind, policy) = (end.channel, end.kind, end.policy);
    let fresh = id::channel();
    let channel = core.map_or(fresh, |core| *locked.state.first.get_or_insert_with(core, || fresh));
    let terms = Terms { window: WINDOW, credits: 0, value_max: locked.state.machine.value_max() };
    locked.state.machine.pair(channel, terms);
    let going = match which(kind) {
        Which::Sender => match locked.state.machine.pack_sender(locked.now, channel) {
            dunlin_proto::Leaving::Ready(place, trip) => Going::Late(Place::Sender(place), trip),
            _ => Going::Over,
        },
        Which::Receiver => match locked.state.machine.pack_receiver(channel) {
            dunlin_proto::Leaving::Ready(place, trip) => Going::On(Place::Receiver(place), trip, encoding),
            _ => Going::Over,
        },
    };
    Ok(LeavingEnd { token: end.token, handle: None, number: 0, channel, core, kind, policy, going })
}

/// Packs an end of a channel that has not been between nodes.
fn pack_new(
    token: u64,
    core: Option<CoreId>,
    kind: EndKind,
    policy: Option<PolicyNote>,
    completion: Completion,
    locked: &mut Locked<'_>,
) -> LeavingEnd {
    let channel = id::channel();
    if let Some(core) = core {
        locked.state.first.insert(core, channel);
    }
    let is_late = match completion {
        Completion::Taken => false,
        Completion::Sent => which(kind) == Which::Sender && kind != EndKind::Reply,
        Completion::TakenAnywhere => true,
    };
    let mut going = Going::First;
    if is_late {
        let window = if kind == EndKind::Reply { 1 } else { WINDOW };
        let terms = Terms { window, credits: 0, value_max: locked.state.machine.value_max() };
        locked.state.machine.pair(channel, terms);
        let leaving = match which(kind) {
            Which::Sender => into_place(locked.state.machine.pack_sender(locked.now, channel), Place::Sender),
            Which::Receiver => into_place(locked.state.machine.pack_receiver(channel), Place::Receiver),
        };
        if let dunlin_proto::Leaving::Ready(place, trip) = leaving {
            going = Going::Late(place, trip);
        }
    }
    LeavingEnd { token, handle: None, number: 0, channel, core, kind, policy, going }
}

/// The parts of a handle of a shared end (`Several`): its lone operations, if it has any, the requests of its
/// desk, and the replies. Of an enrolment on a barrier: the words of its group, and the replies. Of a
/// broadcast: the announcements of joiners; of a joiner: its announcement. Other ends have none.
fn parts(kind: EndKind) -> &'static [EndKind] {
    const SENDER: EndKind = EndKind::Sender { may_poison: true };
    const RECEIVER: EndKind = EndKind::Receiver { may_poison: true };
    match kind {
        EndKind::Shared | EndKind::Barrier => &[SENDER, RECEIVER],
        EndKind::SharedSender => &[SENDER, SENDER, RECEIVER],
        EndKind::SharedReceiver => &[RECEIVER, SENDER, RECEIVER],
        EndKind::Broadcast => &[RECEIVER],
        EndKind::Joiner { .. } => &[SENDER],
        _ => &[],
    }
}

fn into_place<T>(leaving: dunlin_proto::Leaving<T>, place: fn(T) -> Place) -> dunlin_proto::Leaving<Place> {
    match leaving {
        dunlin_proto::Leaving::Ready(end, trip) => dunlin_proto::Leaving::Ready(place(end), trip),
        dunlin_proto::Leaving::Wait => dunlin_proto::Leaving::Wait,
        dunlin_proto::Leaving::Over(how) => dunlin_proto::Leaving::Over(how),
    }
}

/// Leaves the end where it was.
fn unpack(end: &LeavingEnd, locked: &mut Locked<'_>) {
    let channel = end.channel;
    lose_returned(channel, locked);
    match (&end.going, which(end.kind)) {
        (Going::First, Which::Sender) if end.kind == EndKind::Reply => locked.state.forget_reply(channel),
        (Going::First, Which::Sender) => {
            locked.state.machine.forget_home(channel);
            locked.state.forget((channel, Which::Receiver));
        }
        (Going::First, Which::Receiver) => {
            locked.state.machine.forget_half(channel);
            locked.state.forget((channel, Which::Sender));
        }
        (Going::Late(..), _) => {
            locked.state.machine.forget_home(channel);
            locked.state.machine.forget_half(channel);
            locked.state.forget((channel, Which::Receiver));
            locked.state.forget((channel, Which::Sender));
        }
        (Going::On(_, trip, _), Which::Sender) => locked.state.machine.sender_stays(locked.now, channel, *trip),
        (Going::On(_, trip, _), Which::Receiver) => {
            locked.state.machine.receiver_stays(locked.now, channel, *trip);
            locked.state.rests(locked.now, channel);
            locked.state.tell((channel, Which::Receiver), Told::Retry);
        }
        (Going::Over, _) => {}
    }
    not_first(end, locked);
}

/// It is unknown whether this end, in a message for the first time, has left: it stays here, and any other
/// node that has it loses it.
fn unpair(end: &LeavingEnd, locked: &mut Locked<'_>) {
    locked.state.machine.unpair(locked.now, end.channel);
    unpack(end, locked);
}

/// It is known whether this end, in a message for the first time, has left.
fn not_first(end: &LeavingEnd, locked: &mut Locked<'_>) {
    if let (Going::First | Going::Late(..), Some(core)) = (&end.going, end.core)
        && locked.state.first.get(&core) == Some(&end.channel)
    {
        locked.state.first.remove(&core);
        locked.state.has_settled(end.channel);
    }
}

/// In a code: the end has travelled before, and where it comes from follows.
const ON: u8 = 0x10;
/// In a code: its channel has ended.
const OVER: u8 = 0x20;

/// `encoding`: how a new channel's messages are encoded.
fn write_end(end: &LeavingEnd, encoding: Encoding, out: &mut BytesMut) {
    let mut policy = end.policy;
    if let Some(handle) = end.handle
        && let Some(code) = code(handle)
    {
        out.put_u8(code);
        // The parts of a handle carry no policy: the reader knows it.
        let policy = policy.take();
        if has_policy(handle) {
            write_policy(policy, out);
        }
        if has_number(handle) {
            out.put_u128(end.number);
        }
    }
    let Some(code) = code(end.kind) else { return };
    let flags = match &end.going {
        Going::First => 0,
        Going::Late(..) | Going::On(..) => ON,
        Going::Over => OVER,
    };
    out.put_u8(code | flags);
    out.put_u128(end.channel.0);
    if which(end.kind) == Which::Receiver {
        write_policy(policy, out);
    }
    match &end.going {
        Going::First | Going::Over => {}
        Going::Late(place, _) => write_place(place, encoding, out),
        Going::On(place, _, encoding) => write_place(place, *encoding, out),
    }
}

fn write_place(place: &Place, encoding: Encoding, out: &mut BytesMut) {
    out.put_u8(encoding.code());
    match place {
        Place::Sender(place) => write_sender(place, out),
        Place::Receiver(place) => {
            out.put_u64(place.trip);
            out.put_u64(place.claim);
            out.put_u64(place.epoch);
            write_node(place.home, &place.addresses, out);
        }
    }
}

fn write_policy(policy: Option<PolicyNote>, out: &mut BytesMut) {
    // A few numbers: their encoding cannot fail, nor be long.
    let policy = policy.map(|policy| postcard::to_allocvec(&policy).unwrap_or_default()).unwrap_or_default();
    out.put_u8(policy.len() as u8);
    out.put_slice(&policy);
}

fn read_policy(bytes: &mut Bytes) -> Option<Policy> {
    let length = usize::from(bytes.try_get_u8().ok()?);
    if bytes.len() < length {
        return None;
    }
    match length {
        0 => Some(rendezvous()),
        _ => postcard::from_bytes::<PolicyNote>(&bytes.split_to(length)).ok()?.policy(),
    }
}

fn write_sender(place: &SenderPlace, out: &mut BytesMut) {
    out.put_u64(place.trip);
    out.put_u64(place.transfer);
    out.put_u64(place.epoch);
    write_node(place.home, &place.addresses, out);
    write_node(place.sponsor, &place.sponsor_addresses, out);
}

fn write_node(node: NodeId, addresses: &[String], out: &mut BytesMut) {
    out.put_u128(node.0);
    out.put_u8(addresses.len() as u8);
    for address in addresses {
        // At most as long as the wire's handshake allows.
        out.put_u8(address.len() as u8);
        out.put_slice(address.as_bytes());
    }
}

fn read_node(bytes: &mut Bytes) -> Option<(NodeId, Vec<String>)> {
    let node = bytes.try_get_u128().ok().filter(|node| *node != 0)?;
    let count = bytes.try_get_u8().ok().filter(|count| usize::from(*count) <= limits::ADDRESSES)?;
    let mut addresses = Vec::with_capacity(count.into());
    for _ in 0..count {
        let length = usize::from(bytes.try_get_u8().ok()?);
        if bytes.len() < length {
            return None;
        }
        addresses.push(String::from_utf8(bytes.split_to(length).to_vec()).ok()?);
    }
    Some((NodeId(node), addresses))
}

/// The description of one end in a message.
struct ComingEnd {
    channel: ChannelId,
    kind: EndKind,
    /// For an end that receives.
    policy: Policy,
    coming: Coming,
    /// How many bytes of the message were left where its trip is encoded, if it is.
    left_at_trip: usize,
}

/// The description of an end, or of all parts of a handle of a shared one.
struct ComingWhole {
    handle: Option<EndKind>,
    /// For a handle with a policy.
    policy: Policy,
    /// For a handle of a shared end.
    number: u128,
    parts: Vec<ComingEnd>,
}

fn read_end(bytes: &mut Bytes) -> Option<ComingEnd> {
    let code = bytes.try_get_u8().ok()?;
    let channel = ChannelId(bytes.try_get_u128().ok()?);
    let kind = kind(code & !(ON | OVER))?;
    let policy = match kind {
        EndKind::Reply => fifo(1),
        _ if which(kind) == Which::Sender => rendezvous(),
        _ => read_policy(bytes)?,
    };
    let mut left_at_trip = 0;
    let coming = match code & (ON | OVER) {
        0 => Coming::First,
        OVER => Coming::Over,
        ON => {
            let encoding = Encoding::from_code(bytes.try_get_u8().ok()?)?;
            left_at_trip = bytes.len();
            let mut number = || bytes.try_get_u64().ok();
            let (trip, count, epoch) = (number()?, number()?, number()?);
            let (home, addresses) = read_node(bytes)?;
            let place = if which(kind) == Which::Receiver {
                Place::Receiver(ReceiverPlace { trip, claim: count, epoch, home, addresses })
            } else {
                let (sponsor, sponsor_addresses) = read_node(bytes)?;
                Place::Sender(SenderPlace { trip, transfer: count, epoch, home, addresses, sponsor, sponsor_addresses })
            };
            Coming::On(place, encoding)
        }
        _ => return None,
    };
    Some(ComingEnd { channel, kind, policy, coming, left_at_trip })
}

/// Decodes a message, with ends of channels whose other half is elsewhere. The ends receive nothing before
/// [`Arriving::adopt`].
pub(crate) fn arrive(
    shape: Shape,
    mut bytes: Bytes,
    encoding: Encoding,
    says: &Says<'_>,
) -> Result<(Value, Option<Arriving>), String> {
    if codec::is_raw(shape) {
        return codec::decode(shape, bytes, encoding).map(|value| (value, None)).map_err(|error| error.to_string());
    }
    let decode = |bytes| {
        let decode = || codec::decode(shape, bytes, encoding).map_err(|error| error.to_string());
        through(Arc::downgrade(says.driver), Giver::Over(says.half()), decode)
    };
    if *bytes.first().ok_or("the message is empty")? == 0 {
        return decode(bytes).map(|value| (value, None));
    }
    let whole = bytes.clone();
    let comings = read_ends(&mut bytes).ok_or("the ends of the message are not encoded by dunlin")?;
    let mut inbox = Inbox::by(says.carrier());
    for (token, coming) in (0..).zip(&comings) {
        match (coming.handle, coming.parts.as_slice()) {
            (Some(kind), _) if has_number(kind) => {
                inbox.expect_handle(token, kind, coming.number, kept(coming.number, says));
            }
            (Some(kind), _) => inbox.expect(token, kind, coming.policy.clone()),
            (None, ends) => ends.iter().for_each(|end| inbox.expect(token, end.kind, end.policy.clone())),
        }
    }
    let mut body = BytesMut::with_capacity(bytes.len() + 1);
    body.put_u8(0);
    body.put_slice(&bytes);
    let value = inbox.decode(|| decode(body.freeze()))?;
    let mut arriving = Arriving {
        ends: Vec::new(),
        chores: Vec::new(),
        bytes: whole,
        encoding,
        name: None,
        is_granted: false,
        is_unread: false,
    };
    for (end, coming) in inbox.into_adopted().into_iter().zip(comings) {
        let (agents, chore) = into_list(end.agent);
        arriving.chores.extend(chore);
        let mut agents = agents.into_iter();
        arriving.ends.extend(coming.parts.into_iter().map(|ComingEnd { channel, kind, coming, .. }| {
            let (agent, held) = match (kind, &coming, agents.next()) {
                (EndKind::Reply, Coming::First, Some(Agent::Outlet(outlet))) => {
                    (None, Some(Held::new(says.driver, channel, outlet, encoding)))
                }
                (_, _, agent) => (agent, None),
            };
            ArrivingEnd { channel, coming, kind, agent, held }
        }));
    }
    Ok((value, Some(arriving)))
}

/// The shared end of this number, if this node keeps it.
fn kept(number: u128, says: &Says<'_>) -> Option<SharedEnd> {
    says.speak(|locked| locked.state.kept.ends.get(&number).cloned())?.upgrade()
}

/// Reads the descriptions of a message's ends, which come before its value.
fn read_ends(bytes: &mut Bytes) -> Option<Vec<ComingWhole>> {
    let count = bytes.try_get_u8().ok()?;
    let mut comings = Vec::with_capacity(count.into());
    for _ in 0..count {
        let handle = bytes.first().and_then(|code| kind(*code)).filter(|kind| !parts(*kind).is_empty());
        let mut read = Vec::with_capacity(1);
        let (mut policy, mut number) = (rendezvous(), 0);
        match handle {
            None => read.push(read_end(bytes)?),
            Some(kind) => {
                bytes.advance(1);
                if has_policy(kind) {
                    policy = read_policy(bytes)?;
                }
                if has_number(kind) {
                    number = bytes.try_get_u128().ok()?;
                }
                for part in parts(kind) {
                    read.push(read_end(bytes).filter(|end| which(end.kind) == which(*part))?);
                }
            }
        }
        comings.push(ComingWhole { handle, policy, number, parts: read });
    }
    Some(comings)
}

/// Drops the ends of a message that was complete when it was sent, and whose value no receiver here can have,
/// so that their other ends are notified.
pub(crate) fn drop_ends(mut bytes: Bytes, from: Contact, encoding: Encoding, locked: &mut Locked<'_>) {
    for end in read_ends(&mut bytes).into_iter().flatten().flat_map(|coming| coming.parts) {
        let ComingEnd { channel, coming, kind, .. } = end;
        adopt(ArrivingEnd { channel, coming, kind, agent: None, held: None }, from, encoding, locked);
    }
}

/// All agents of an end.
fn into_list(agent: Option<Agent>) -> (Vec<Agent>, Option<Chore>) {
    match agent {
        Some(Agent::Several(Several { agents, chore })) => (agents, Some(chore)),
        agent => (agent.into_iter().collect(), None),
    }
}

fn code(kind: EndKind) -> Option<u8> {
    Some(match kind {
        EndKind::Sender { may_poison: true } => 0,
        EndKind::Sender { may_poison: false } => 1,
        EndKind::Caller => 2,
        EndKind::Reply => 3,
        EndKind::Receiver { may_poison: true } => 4,
        EndKind::Receiver { may_poison: false } => 5,
        EndKind::Callee => 6,
        EndKind::Shared => 7,
        EndKind::SharedSender => 8,
        EndKind::SharedReceiver => 9,
        EndKind::Barrier => 10,
        EndKind::Broadcast => 11,
        EndKind::Joiner { may_poison: true } => 12,
        EndKind::Joiner { may_poison: false } => 13,
        _ => return None,
    })
}

fn kind(code: u8) -> Option<EndKind> {
    Some(match code {
        0 => EndKind::Sender { may_poison: true },
        1 => EndKind::Sender { may_poison: false },
        2 => EndKind::Caller,
        3 => EndKind::Reply,
        4 => EndKind::Receiver { may_poison: true },
        5 => EndKind::Receiver { may_poison: false },
        6 => EndKind::Callee,
        7 => EndKind::Shared,
        8 => EndKind::SharedSender,
        9 => EndKind::SharedReceiver,
        10 => EndKind::Barrier,
        11 => EndKind::Broadcast,
        12 => EndKind::Joiner { may_poison: true },
        13 => EndKind::Joiner { may_poison: false },
        _ => return None,
    })
}

/// For one value: both sides know these terms without asking.
fn terms_for_one(value_max: u64) -> Terms {
    Terms { window: 1, credits: 0, value_max }
}

/// The declaration of the receiver of an end that travels.
fn declaration() -> Declaration {
    Declaration { face: Face::Receiver, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

/// Notifies the node that has adopted this end that its channel has ended, and of the terms first, since the
/// end accepts nothing before those.
fn end_first(channel: ChannelId, to: NodeId, locked: &mut Locked<'_>) {
    let terms = Terms { window: WINDOW, credits: 0, value_max: locked.state.machine.value_max() };
    locked.state.machine.tell_terms(locked.now, channel, to, terms);
    locked.state.machine.end_home(locked.now, channel, End::Gone);
    locked.state.forget((channel, Which::Receiver));
}

/// The message was taken, or may have been, but the end is still here.
fn keep(end: &LeavingEnd, to: NodeId, locked: &mut Locked<'_>) {
    let (channel, now) = (end.channel, locked.now);
    match (&end.going, which(end.kind)) {
        (Going::First, Which::Sender) if end.kind == EndKind::Reply => locked.state.refuse_reply(now, channel),
        (Going::First, Which::Sender) => end_first(channel, to, locked),
        (Going::First, Which::Receiver) => {
            locked.state.machine.end_proxy(now, channel, End::Gone);
            locked.state.forget((channel, Which::Sender));
        }
        (Going::On(_, trip, _), which) => {
            lose_returned(channel, locked);
            // The first node to claim the end has it, and no other.
            let is_here = match which {
                Which::Sender => locked.state.machine.sender_back(now, channel, *trip),
                Which::Receiver => locked.state.machine.receiver_back(now, channel, *trip),
            };
            if is_here && which == Which::Receiver {
                locked.state.tell((channel, Which::Receiver), Told::Retry);
            }
        }
        (Going::Late(..), _) => return unpair(end, locked),
        (Going::Over, _) => {}
    }
    not_first(end, locked);
}

impl Leaving {
    /// For a message without ends.
    pub(crate) fn nothing(encoding: Encoding) -> Self {
        Self { sealed: None, ends: Vec::new(), encoding, through: None }
    }

    /// The message leaves. As soon as it has been taken, words go to the other ends of its ends' channels, if
    /// those are here.
    pub(crate) fn open_homes(&self, to: NodeId, locked: &mut Locked<'_>) {
        let terms = terms_for_one(locked.state.machine.value_max());
        for end in &self.ends {
            let here: &[Which] = match (&end.going, which(end.kind)) {
                (Going::First, Which::Sender) if end.kind == EndKind::Reply => {
                    locked.state.expect_reply(end.channel, to);
                    &[]
                }
                (Going::First, Which::Sender) => {
                    locked.state.machine.open_home_to(end.channel, terms, declaration(), to);
                    &[Which::Receiver]
                }
                (Going::First, Which::Receiver) => {
                    let _ = locked.state.machine.adopt(end.channel, to, None);
                    &[Which::Sender]
                }
                // Its home is open.
                (Going::Late(..), Which::Sender) => &[Which::Receiver],
                (Going::Late(..), Which::Receiver) => &[Which::Receiver, Which::Sender],
                (Going::On(..) | Going::Over, _) => &[],
            };
            for which in here {
                locked.driver.expect(locked.state, (end.channel, *which), Some(to));
            }
        }
    }

    /// The message has not been taken: its ends stay what they are.
    pub(crate) fn stay(self, says: &Says<'_>) {
        if self.has_ends() {
            says.speak(|locked| {
                self.through.iter().for_each(|through| through.stay(locked));
                self.ends.iter().for_each(|end| unpack(end, locked));
            });
        }
    }

    /// It is unknown whether the message was taken: its ends are here, unless another node has them.
    pub(crate) fn back(self, says: &Says<'_>) {
        says.speak(|locked| {
            self.through.iter().for_each(|through| through.stay(locked));
            for end in &self.ends {
                lose_returned(end.channel, locked);
                match &end.going {
                    Going::On(_, trip, _) if which(end.kind) == Which::Sender => {
                        locked.state.machine.sender_back(locked.now, end.channel, *trip);
                    }
                    Going::On(_, trip, _) => {
                        locked.state.machine.receiver_back(locked.now, end.channel, *trip);
                        locked.state.tell((end.channel, Which::Receiver), Told::Retry);
                    }
                    Going::Late(..) => unpair(end, locked),
                    Going::First | Going::Over => unpack(end, locked),
                }
            }
        });
    }

    pub(crate) fn has_ends(&self) -> bool {
        !self.ends.is_empty() || self.through.is_some()
    }

    /// Whether the message names the place where a value can be read.
    pub(crate) fn is_unread(&self) -> bool {
        self.through.as_ref().is_some_and(Through::is_unread)
    }

    /// The message is returned, but its ends may yet have been taken. `None`: it has none.
    pub(crate) fn part(&mut self) -> Option<Self> {
        let (ends, through) = (std::mem::take(&mut self.ends), self.through.take());
        let parted = Self { sealed: None, ends, encoding: self.encoding, through };
        parted.has_ends().then_some(parted)
    }

    /// The message has been taken by a receiver on that node, but its ends stayed here: their channels end
    /// there.
    pub(crate) fn end(self, says: &Says<'_>, to: NodeId) {
        says.speak(|locked| {
            self.through.iter().for_each(|through| through.end(to, locked));
            self.ends.iter().for_each(|end| keep(end, to, locked));
        });
    }

    /// The message has been taken by a receiver on that node, and so have its ends.
    ///
    /// # Panics
    /// If the drop of the message panics: its ends are lost then.
    pub(crate) fn hand_over(self, value: Value, to: Contact, says: &Says<'_>) {
        if let Some(through) = self.through {
            says.speak(|locked| through.hand_over(to, locked));
        }
        let Some(sealed) = self.sealed else { return drop(value) };
        let (carried, panic) = match catch_unwind(AssertUnwindSafe(|| sealed.commit(value))) {
            Ok(handed_over) => (handed_over.unwrap_or_else(|not_all| not_all.ends), None),
            Err(panic) => (Vec::new(), Some(panic)),
        };
        let mut carried = carried.into_iter().peekable();
        let (mut chores, mut agents) = (Vec::new(), Vec::new().into_iter());
        let mut token_before = None;
        let ends = self.ends.into_iter().map(|end| {
            if token_before.replace(end.token) == Some(end.token) {
                return (end, Gone::First(agents.next()));
            }
            let carried = carried.next_if(|carried| carried.token() == end.token);
            let gone = match (&end.going, carried) {
                (Going::First | Going::Late(..), carried) => {
                    let (list, chore) = into_list(carried.map(CarriedEnd::into_agent));
                    chores.extend(chore);
                    agents = list.into_iter();
                    Gone::First(agents.next())
                }
                (Going::On(..) | Going::Over, carried) => Gone::On(carried),
            };
            (end, gone)
        });
        let ends: Vec<_> = ends.collect();
        let replies = says.speak(|locked| {
            let go = |(end, gone)| go(end, gone, to, self.encoding, locked);
            ends.into_iter().filter_map(go).collect::<Vec<_>>()
        });
        replies.into_iter().for_each(Delivery::run);
        chores.into_iter().for_each(run);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

/// An end that was handed over. `None`: it has another holder too, which keeps it.
enum Gone {
    First(Option<Agent>),
    On(Option<CarriedEnd>),
}

fn new_receiver(kind: EndKind) -> NewReceiverKind {
    if kind == EndKind::Reply { NewReceiverKind::Reply } else { NewReceiverKind::OfThisNode }
}

/// A message has been taken by a receiver on that node, and this end with it. Returns a reply that has come.
fn go(end: LeavingEnd, gone: Gone, taker: Contact, encoding: Encoding, locked: &mut Locked<'_>) -> Option<Delivery> {
    let (channel, to) = (end.channel, taker.node);
    let mut reply = None;
    match (&end.going, gone) {
        (Going::First, Gone::First(Some(Agent::Inlet(inlet)))) if end.kind == EndKind::Reply => {
            reply = locked.await_reply(channel, inlet, encoding, to);
        }
        (Going::First, Gone::First(Some(Agent::Inlet(inlet)))) => {
            let budget = Budget::of(&inlet, locked.state.buffered_max);
            let credits = inlet.credits();
            let terms = Terms { window: WINDOW, credits, value_max: locked.state.machine.value_max() };
            locked.state.machine.tell_terms(locked.now, channel, to, terms);
            let receiver =
                NewReceiver { inlet, budget, credits, encoding, from: Some(to), kind: new_receiver(end.kind) };
            locked.driver.stretch_receiver(locked.state, channel, Some(to), receiver);
        }
        (Going::Late(_, trip), Gone::First(Some(Agent::Inlet(inlet)))) => {
            // If it returns here before it has been used, it does not announce that.
            let me = locked.state.machine.me().node;
            let budget = Budget::of(&inlet, locked.state.buffered_max);
            let receiver =
                NewReceiver { inlet, budget, credits: 0, encoding, from: Some(me), kind: new_receiver(end.kind) };
            locked.driver.stretch_receiver(locked.state, channel, Some(to), receiver);
            locked.state.machine.sender_left(locked.now, channel, *trip, taker);
        }
        (Going::First, Gone::First(Some(Agent::Outlet(outlet)))) => {
            let sender = NewSender { outlet, home: Some(to), encoding, kind: NewSenderKind::OfThisNode };
            locked.driver.stretch_sender(locked.state, channel, Some(to), sender);
        }
        (Going::Late(_, trip), Gone::First(Some(Agent::Outlet(outlet))))
            if locked.state.returned.contains_key(&channel) =>
        {
            locked.state.machine.receiver_left(locked.now, channel, *trip, taker);
            meet(channel, outlet, locked);
            unpack(&end, locked);
        }
        (Going::Late(_, trip), Gone::First(Some(Agent::Outlet(outlet)))) => {
            // Its offers wait until the receiver is used.
            let home = locked.state.machine.me().node;
            let sender = NewSender { outlet, home: Some(home), encoding, kind: NewSenderKind::OfThisNode };
            locked.driver.stretch_sender(locked.state, channel, Some(to), sender);
            locked.driver.stretch_away(locked.state, channel, to);
            locked.state.machine.receiver_left(locked.now, channel, *trip, taker);
        }
        (Going::On(_, trip, _), Gone::On(Some(carried))) => match which(end.kind) {
            Which::Sender if !locked.state.machine.sender_left(locked.now, channel, *trip, taker) => {
                // It is here again, with an agent of its own.
                locked.state.garbage.push(Box::new(carried));
            }
            Which::Sender => {
                // The name by which it was found is free again before any node learns that it has left.
                locked.driver.half_is_over(locked.state, locked.now, (channel, Which::Sender));
                // Its agent goes first: otherwise the agent would see its sender as gone.
                locked.state.take_bridge((channel, Which::Sender), move |_, bridge| {
                    bridge.depart();
                    drop(carried);
                });
            }
            Which::Receiver if locked.state.returned.contains_key(&channel) => {
                locked.state.machine.receiver_left(locked.now, channel, *trip, taker);
                if let Agent::Outlet(outlet) = carried.into_agent() {
                    meet(channel, outlet, locked);
                }
            }
            Which::Receiver if !locked.state.machine.receiver_left(locked.now, channel, *trip, taker) => {
                // As with a sender.
                locked.state.garbage.push(Box::new(carried));
            }
            Which::Receiver => {
                locked.state.tell((channel, Which::Receiver), Told::Lent(carried));
                locked.driver.half_is_over(locked.state, locked.now, (channel, Which::Receiver));
            }
        },
        (Going::Over, Gone::On(carried)) => locked.state.garbage.push(Box::new(carried)),
        _ => {
            keep(&end, to, locked);
            return None;
        }
    }
    not_first(&end, locked);
    reply
}

/// A receiver has gone through other nodes, and returned here before it was known that it had been taken.
/// Values that were sent to it here go on to its present place, in memory.
fn meet(channel: ChannelId, outlet: AnyOutlet, locked: &mut Locked<'_>) {
    match locked.state.returned.remove(&channel).flatten() {
        // Everything promised was promised by the half that the receiver has left.
        Some(inlet) => match outlet.join(inlet, 0) {
            Ok(joining) => run(joining),
            Err((_, inlet)) => inlet.down(),
        },
        // No end has it.
        None => locked.state.garbage.push(Box::new(outlet)),
    }
}

/// The message was not taken after all, as far as this node knows. Its sender keeps the end, and the copy
/// that returned in the same message loses it.
fn lose_returned(channel: ChannelId, locked: &mut Locked<'_>) {
    if let Some(inlet) = locked.state.returned.remove(&channel).flatten() {
        inlet.down();
    }
}

impl Arriving {
    /// For a message that can be read elsewhere.
    pub(crate) fn unread(bytes: Bytes, encoding: Encoding) -> Self {
        Self { ends: Vec::new(), chores: Vec::new(), bytes, encoding, name: None, is_granted: false, is_unread: true }
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// The place where it can be read.
    pub(crate) fn reading(&self) -> Option<Reading> {
        Reading::parse(self.bytes.clone()).filter(|_| self.is_unread)
    }

    /// Must be called before the message can be received: its receiver may send its ends on at once. The
    /// message came from that node over this channel, and may be forwarded under this name.
    pub(crate) fn announce(&mut self, name: PassedOn, over: ChannelId, from: Contact, locked: &mut Locked<'_>) {
        self.name = Some(name);
        let (bytes, encoding, is_unread) = (self.bytes.clone(), self.encoding, self.is_unread);
        let passing = Passing { over, from, bytes, encoding, is_unread, is_asked_anew: false };
        locked.state.passing.insert(name, passing);
        locked.state.arriving.extend(self.ends.iter().filter_map(|end| Some((end.core()?, end.channel))));
    }

    /// It arrived because it was requested.
    pub(crate) fn granted(&mut self) {
        self.is_granted = true;
    }

    pub(crate) fn is_granted(&self) -> bool {
        self.is_granted
    }

    /// The message was not received here.
    pub(crate) fn forget(self, locked: &mut Locked<'_>) {
        if let Some(name) = self.name {
            locked.state.passing.remove(&name);
        }
        locked.state.garbage.push(Box::new(self.chores));
        for end in self.ends {
            if let Some(core) = end.core() {
                locked.state.arriving.remove(&core);
                locked.state.has_settled(end.channel);
            }
            locked.state.garbage.push(Box::new(end.agent));
            locked.state.drop_place(end.held);
        }
    }

    /// The message has been received here: its ends belong to this node now. Must be called together with the
    /// announcement of that: their homes may send to them at once.
    pub(crate) fn adopt(self, from: Contact, encoding: Encoding, locked: &mut Locked<'_>) {
        if self.name.is_some_and(|name| locked.state.passing.remove(&name).is_none()) {
            // It was forwarded, and received elsewhere.
            return self.forget(locked);
        }
        for end in self.ends {
            let channel = end.channel;
            let is_awaited = end.core().is_some_and(|core| locked.state.arriving.remove(&core).is_some());
            adopt(end, from, encoding, locked);
            if is_awaited {
                locked.state.has_settled(channel);
            }
        }
        self.chores.into_iter().for_each(run);
    }
}

/// Runs the task that serves a handle of a shared end, until the handle or the other node is gone.
fn run(chore: Chore) {
    world::spawn_own(chore);
}

/// Its agent is `None` if the end was discarded.
fn adopt(end: ArrivingEnd, from: Contact, encoding: Encoding, locked: &mut Locked<'_>) {
    let ArrivingEnd { channel, coming, kind, agent, held } = end;
    match coming {
        Coming::First if kind == EndKind::Reply => locked.state.hold_place(locked.now, channel, held, from),
        Coming::First => adopt_first(channel, kind, agent, from, encoding, locked),
        Coming::On(place, encoding) => adopt_on(channel, kind, agent, place, from, encoding, locked),
        // A dropped agent counts as a receiver that is gone.
        Coming::Over => locked.state.garbage.push(Box::new(agent)),
    }
}

fn adopt_first(
    channel: ChannelId,
    kind: EndKind,
    agent: Option<Agent>,
    giver: Contact,
    encoding: Encoding,
    locked: &mut Locked<'_>,
) {
    let (machine, other) = (&locked.state.machine, giver.node);
    if machine.is_over(giver) {
        // Its other end has been notified that this one is lost.
        return drop(living(agent, Arrival::Stale));
    }
    let is_known = match which(kind) {
        _ if other != machine.me().node => machine.knows(channel),
        // Its other half is here, and has just named it.
        Which::Sender => machine.has_half(channel),
        Which::Receiver => machine.has_home(channel),
    };
    if is_known {
        // No honest node gives two ends one number. The end that arrived is dropped; the channel that is here
        // continues.
        return locked.state.garbage.push(Box::new(agent));
    }
    let value_max = locked.state.machine.value_max();
    if which(kind) == Which::Receiver {
        let (now, terms) = (locked.now, terms_for_one(value_max));
        if !locked.state.machine.open_home_given(now, channel, terms, declaration(), giver) {
            return drop(living(agent, Arrival::Stale));
        }
        let Some(Agent::Inlet(inlet)) = agent else {
            return end_first(channel, other, locked);
        };
        let budget = Budget::of(&inlet, locked.state.buffered_max);
        let credits = inlet.credits();
        locked.state.machine.tell_terms(locked.now, channel, other, Terms { window: WINDOW, credits, value_max });
        let kind = NewReceiverKind::OfThisNode;
        let receiver = NewReceiver { inlet, budget, credits, encoding, from: Some(other), kind };
        return locked.driver.stretch_receiver(locked.state, channel, Some(other), receiver);
    }
    if !locked.state.machine.adopt_given(locked.now, channel, giver, None) {
        return drop(living(agent, Arrival::Stale));
    }
    let Some(Agent::Outlet(outlet)) = agent else {
        // The end was discarded here.
        return locked.state.machine.end_proxy(locked.now, channel, End::Gone);
    };
    let sender = NewSender { outlet, home: Some(other), encoding, kind: NewSenderKind::OfThisNode };
    locked.driver.stretch_sender(locked.state, channel, Some(other), sender);
}

/// The agent of an end that has arrived. After a message with an unknown outcome one end may have two: the
/// other one stands, and this one is told that its node is lost.
fn living(agent: Option<Agent>, arrival: Arrival) -> Option<Agent> {
    if arrival != Arrival::Stale {
        return agent;
    }
    match agent? {
        Agent::Outlet(outlet) => outlet.down(),
        Agent::Inlet(inlet) => inlet.down(),
        // Its parts are always new.
        Agent::Several(_) => {}
    }
    None
}

/// Adopts an end that has travelled before.
fn adopt_on(
    channel: ChannelId,
    kind: EndKind,
    agent: Option<Agent>,
    place: Place,
    from: Contact,
    encoding: Encoding,
    locked: &mut Locked<'_>,
) {
    let now = locked.now;
    match (place, agent) {
        (Place::Sender(place), agent) => {
            let arrival = locked.state.machine.sender_arrives(now, channel, place, from);
            if arrival == Arrival::Guest && locked.state.is_stretched((channel, Which::Sender)) {
                // Another agent of it was here: its bridge learns that the end is lost, and the new one does
                // not.
                locked.driver.act(locked.state, now);
            }
            let Some(Agent::Outlet(outlet)) = living(agent, arrival) else {
                // The end was discarded here, or another one of it exists.
                if arrival == Arrival::Stale {
                    return;
                }
                return locked.state.machine.end_proxy(now, channel, End::Gone);
            };
            if let Some(bytes) = budget::value_bytes(&outlet) {
                locked.state.machine.expect_values(channel, bytes);
            }
            let (home, granted) = (locked.state.machine.home_of(channel), locked.state.machine.terms_of(channel));
            let is_reply = kind == EndKind::Reply;
            let has_retired = locked.state.machine.has_retired(channel);
            let kind = NewSenderKind::Arrived { granted, is_reply, has_retired };
            locked.driver.stretch_sender(locked.state, channel, home, NewSender { outlet, home, encoding, kind });
        }
        (Place::Receiver(place), agent) => {
            let home = place.home;
            let is_packed = locked.state.machine.receiver_is_packed(channel);
            let arrival = locked.state.machine.receiver_arrives(now, channel, place, from);
            if arrival == Arrival::Returned && locked.state.machine.stand(channel).home.is_some() {
                let inlet = if let Some(Agent::Inlet(inlet)) = agent { Some(inlet) } else { None };
                if is_packed {
                    // The sender of that message has the other agent, until it is known that the message was
                    // taken.
                    locked.state.returned.insert(channel, inlet);
                } else {
                    // No honest node sends it home like this: see `goes_unused`. The bridge that its receiver
                    // has left ends with it, and so does that bridge's agent.
                    inlet.into_iter().for_each(dunlin_core::carrier::AnyInlet::down);
                    locked.state.machine.end_home(now, channel, End::Lost);
                    locked.state.tell((channel, Which::Receiver), Told::Home(from, HomeHears::Failed(End::Lost)));
                }
                return;
            }
            let Some(Agent::Inlet(inlet)) = living(agent, arrival) else {
                if arrival == Arrival::Stale {
                    return;
                }
                return locked.state.machine.drop_receiver(now, channel);
            };
            let budget = Budget::of(&inlet, locked.state.buffered_max);
            let says_when_used = inlet.says_when_used();
            let kind = NewReceiverKind::Visiting;
            let receiver = NewReceiver { inlet, budget, credits: 0, encoding, from: None, kind };
            locked.driver.stretch_receiver(locked.state, channel, Some(home), receiver);
            if says_when_used {
                locked.state.rests(now, channel);
            } else {
                locked.state.machine.use_receiver(now, channel);
            }
        }
    }
}
