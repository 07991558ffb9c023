//! Messages on their way between nodes: the value's bytes, and the ends that go beside them.
//!
//! A message begins with the number of its ends (one byte) and 17 bytes for each: what it is, and the channel it belongs to. A
//! channel of [`Bytes`], or of `Vec<u8>`, has no ends and no such byte: its messages are what they are.
//!
//! Ends travel once they are taken (`docs/laws.md`): until then they are the sending side's, and work. So far only sending ends whose
//! channel has its receiver on the sending node can go; other ends are refused, those too that came from another node or lead there by name.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use dunlin_core::carrier::{AdoptedEnd, Agent, EndKind, Inbox, Outbox, Sealed, Shape, Value};
use dunlin_core::{Why, fifo, rendezvous};
use dunlin_proto::id::{ChannelId, NodeId};
use dunlin_proto::wire::{Declaration, End, Expected, Face, Terms};

use super::bridge::{ReceivingBridge, SendingBridge};
use super::codec::{self, EncodeError, Encoding};
use super::driver::Locked;
use super::id;
use super::work::Says;

/// So many offers of one sending half may stand at its home.
pub(crate) const WINDOW: u32 = 32;

/// What a message may take beside its value, in bytes.
pub(crate) const OVERHEAD: u64 = 1 + 17 * u8::MAX as u64;

/// The ends of a message that leaves this node, until it has been taken.
pub(crate) struct Leaving {
    /// `None`: there are none.
    sealed: Option<Sealed>,
    ends: Vec<(ChannelId, EndKind)>,
    encoding: Encoding,
}

/// The ends of a message that has arrived, until it has been received.
pub(crate) struct Arriving(Vec<(ChannelId, AdoptedEnd)>);

/// Writes a message. Its ends stay where they are.
pub(crate) fn leave(value: &Value, encoding: Encoding, bytes_max: u64) -> Result<(Bytes, Leaving), Why> {
    let mut outbox = Outbox::new();
    let body = outbox.encode(|| codec::encode(value, encoding, bytes_max)).map_err(|error| match error {
        EncodeError::TooLarge { bytes, bytes_max } => Why::TooLarge { bytes, bytes_max },
        error => Why::Unsendable(error.to_string().into()),
    })?;
    if value.downcast_ref::<Bytes>().is_some() || value.downcast_ref::<Vec<u8>>().is_some() {
        return Ok((body, Leaving { sealed: None, ends: Vec::new(), encoding }));
    }
    let sealed = outbox.seal().map_err(|error| Why::Unsendable(error.to_string().into()))?;
    if let Some(end) = sealed.ends().find(|end| end.stretched) {
        let why = format!("a {} whose channel leads to another node already cannot go on from here yet", end.kind);
        return Err(Why::Unsendable(why.into()));
    }
    let kinds: Vec<EndKind> = sealed.ends().map(|end| end.kind).collect();
    if kinds.is_empty() {
        return Ok((body, Leaving { sealed: None, ends: Vec::new(), encoding }));
    }
    if kinds.len() > usize::from(u8::MAX) {
        return Err(Why::Unsendable("a message can have at most 255 ends".into()));
    }
    let ends: Vec<(ChannelId, EndKind)> = kinds.into_iter().map(|kind| (id::channel(), kind)).collect();
    let mut message = BytesMut::with_capacity(body.len() + 17 * ends.len());
    message.put_u8(ends.len() as u8);
    for (channel, kind) in &ends {
        let Some(code) = code(*kind) else {
            return Err(Why::Unsendable(format!("a {kind} cannot leave its node yet").into()));
        };
        message.put_u8(code);
        message.put_u128(channel.0);
    }
    message.put_slice(&body[1..]);
    Ok((message.freeze(), Leaving { sealed: Some(sealed), ends, encoding }))
}

/// Reads a message, with ends of channels whose other half is elsewhere. Nothing is heard of them before [`Arriving::adopt`].
pub(crate) fn arrive(shape: Shape, mut bytes: Bytes, encoding: Encoding) -> Result<(Value, Option<Arriving>), String> {
    if codec::is_raw(shape) {
        return codec::decode(shape, bytes, encoding).map(|value| (value, None)).map_err(|error| error.to_string());
    }
    let count = bytes.first().copied().ok_or("the message is empty")?;
    if count == 0 {
        return codec::decode(shape, bytes, encoding).map(|value| (value, None)).map_err(|error| error.to_string());
    }
    bytes.advance(1);
    let mut inbox = Inbox::new(Vec::new());
    let mut channels = Vec::with_capacity(count.into());
    for token in 0..u64::from(count) {
        let code = bytes.try_get_u8().map_err(|_| "the message ends within its ends")?;
        let channel = bytes.try_get_u128().map_err(|_| "the message ends within its ends")?;
        let kind = kind(code).ok_or_else(|| format!("an end of the unknown kind {code}"))?;
        inbox.expect(token, kind, if kind == EndKind::Reply { fifo(1) } else { rendezvous() });
        channels.push(ChannelId(channel));
    }
    let mut body = BytesMut::with_capacity(bytes.len() + 1);
    body.put_u8(0);
    body.put_slice(&bytes);
    let value = inbox.decode(|| codec::decode(shape, body.freeze(), encoding)).map_err(|error| error.to_string())?;
    let adopted = inbox.into_adopted().into_iter();
    Ok((value, Some(Arriving(adopted.map(|end| (channels[end.token as usize], end)).collect()))))
}

fn code(kind: EndKind) -> Option<u8> {
    Some(match kind {
        EndKind::Sender { may_poison: true } => 0,
        EndKind::Sender { may_poison: false } => 1,
        EndKind::Caller => 2,
        EndKind::Reply => 3,
        _ => return None,
    })
}

fn kind(code: u8) -> Option<EndKind> {
    Some(match code {
        0 => EndKind::Sender { may_poison: true },
        1 => EndKind::Sender { may_poison: false },
        2 => EndKind::Caller,
        3 => EndKind::Reply,
        _ => return None,
    })
}

/// The terms of a place for a reply are known to both sides without a word.
fn terms_of_reply(value_max: u64) -> Terms {
    Terms { window: 1, credits: 0, value_max }
}

/// What there is to say of the receiver of an end that travels.
fn declaration() -> Declaration {
    Declaration { face: Face::Receiver, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

/// Whoever has adopted this end hears that it is over, and before it the terms, since nothing is heard before those.
fn end(channel: ChannelId, kind: EndKind, to: NodeId, locked: &mut Locked<'_>) {
    if kind != EndKind::Reply {
        let terms = Terms { window: WINDOW, credits: 0, value_max: locked.state.machine.value_max() };
        locked.state.machine.tell_terms(locked.now, channel, to, terms);
    }
    locked.state.machine.end_home(locked.now, channel, End::Gone);
    locked.state.forget(channel);
}

impl Leaving {
    /// The message goes: its ends will be asked for at their channels' homes, which are here, as soon as it has been taken.
    pub(crate) fn open_homes(&self, to: NodeId, locked: &mut Locked<'_>) {
        let terms = terms_of_reply(locked.state.machine.value_max());
        for (channel, _) in &self.ends {
            locked.state.machine.open_home_to(*channel, terms, declaration(), to);
            locked.driver.expect(locked.state, *channel, Some(to));
        }
    }

    /// The message has not been taken: its ends stay what they are.
    pub(crate) fn stay(self, says: &Says<'_>) {
        if self.ends.is_empty() {
            return;
        }
        says.speak(|locked| {
            for (channel, _) in self.ends {
                locked.state.machine.forget_home(channel);
                locked.state.forget(channel);
            }
        });
    }

    /// The message goes back, but its ends may yet have been taken. `None`: it has none.
    pub(crate) fn part(&mut self) -> Option<Self> {
        let ends = std::mem::take(&mut self.ends);
        (!ends.is_empty()).then_some(Self { sealed: None, ends, encoding: self.encoding })
    }

    /// The message has been taken by a receiver on that node, but its ends stayed here: over there they are over.
    pub(crate) fn end(self, says: &Says<'_>, to: Option<NodeId>) {
        let Some(to) = to else { return };
        says.speak(|locked| self.ends.iter().for_each(|(channel, kind)| end(*channel, *kind, to, locked)));
    }

    /// The message has been taken by a receiver on that node, and so have its ends.
    ///
    /// # Panics
    /// If the drop of the message does: its ends are gone then.
    pub(crate) fn hand_over(self, value: Value, to: NodeId, says: &Says<'_>) {
        let Some(sealed) = self.sealed else { return drop(value) };
        let (ends, panic) = match catch_unwind(AssertUnwindSafe(|| sealed.commit(value))) {
            Ok(handed_over) => (handed_over.unwrap_or_else(|not_all| not_all.ends), None),
            Err(panic) => (Vec::new(), Some(panic)),
        };
        let mut ends = ends.into_iter().peekable();
        let agents = (0u64..).zip(self.ends).map(|(token, (channel, kind))| {
            let agent = ends.next_if(|end| end.token() == token).and_then(|end| end.into_agent().ok());
            (channel, kind, agent)
        });
        let agents: Vec<_> = agents.collect();
        says.speak(|locked| {
            let value_max = locked.state.machine.value_max();
            for (channel, kind, agent) in agents {
                let Some(Agent::Inlet(inlet)) = agent else {
                    // The end was somebody else's too, who keeps it: over there it never was.
                    end(channel, kind, to, locked);
                    continue;
                };
                let mut credits = 0;
                if kind != EndKind::Reply {
                    credits = inlet.credits();
                    let terms = Terms { window: WINDOW, credits, value_max };
                    locked.state.machine.tell_terms(locked.now, channel, to, terms);
                }
                let bridge = Box::new(ReceivingBridge::new(inlet, credits, self.encoding, Some(to)));
                locked.driver.stretch(locked.state, channel, Some(to), bridge);
            }
        });
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Arriving {
    /// The message has been received here: its ends are this node's now. To be said together with that: its home may speak to them at once.
    pub(crate) fn adopt(self, home: NodeId, encoding: Encoding, locked: &mut Locked<'_>) {
        for (channel, end) in self.0 {
            let terms = (end.kind == EndKind::Reply).then(|| terms_of_reply(locked.state.machine.value_max()));
            if !locked.state.machine.adopt(channel, home, terms) {
                // No honest node gives two ends one number. The end that came is dropped; the channel that is here goes on.
                locked.state.garbage.push(Box::new(end));
                continue;
            }
            let Some(Agent::Outlet(outlet)) = end.agent else {
                // Nobody here wanted it.
                locked.state.machine.end_proxy(locked.now, channel, End::Gone);
                continue;
            };
            let bridge = SendingBridge::new(outlet, Some(home), encoding, false);
            let bridge = match terms {
                Some(terms) => bridge.for_reply(terms.value_max),
                None => bridge,
            };
            locked.driver.stretch(locked.state, channel, Some(home), Box::new(bridge));
        }
    }
}
