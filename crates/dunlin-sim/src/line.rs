//! Channels whose ends travel, as the simulator's books record them.
//!
//! A [`Line`] is such a channel, and a [`Cargo`] an end of one in a message.

use std::collections::{BTreeMap, VecDeque};

use dunlin_proto::id::{ChannelId, Contact};
use dunlin_proto::wire::End;
use dunlin_proto::{ReceiverPlace, SenderPlace, Trip};

use crate::program::Outcome;

/// One value of a line. Its number is its ticket: a higher one was sent later, at whichever node the sender
/// was.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) size: usize,
    /// The program that offered it.
    pub(crate) by: usize,
    pub(crate) choice: bool,
    pub(crate) outcome: Option<Outcome>,
    /// A receive has returned it, or a buffer has admitted it.
    pub(crate) taken: bool,
    /// The node that has taken it.
    pub(crate) taken_at: Option<usize>,
    /// The node that gave it, as the taker knows, and the node that took it, as its sender knows.
    pub(crate) giver: Option<Contact>,
    pub(crate) taker: Option<Contact>,
    pub(crate) received: bool,
    pub(crate) failed_by_home: bool,
    /// The ends in it, of other lines.
    pub(crate) cargo: Vec<usize>,
}

/// An offer whose outcome its sender has not received.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    pub(crate) choice: bool,
    /// The request that reserved it, and whether the value has been granted.
    pub(crate) reserved: Option<u64>,
    pub(crate) granted: bool,
    /// The home has given up that request and asked again, with this one.
    pub(crate) next: Option<u64>,
    pub(crate) held: bool,
    pub(crate) withdrawing: bool,
    pub(crate) revoking: bool,
    /// A slow program has yet to offer it again.
    pub(crate) again: bool,
}

/// A sender at a process.
#[derive(Debug, Default)]
pub(crate) struct Half {
    /// Its program owns it; otherwise it is in a message, or with the node that took it from one.
    pub(crate) in_hand: bool,
    pub(crate) open: BTreeMap<usize, Open>,
    pub(crate) credits: u64,
    /// It goes into a message as soon as it is at rest.
    pub(crate) leaving: bool,
    /// Its channel has ended.
    pub(crate) failed: bool,
    /// It has returned after a message with an unknown outcome, in which it had this number.
    pub(crate) doubt: u64,
    /// The node where its home is, as last reported to it.
    pub(crate) home: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiver {
    /// It arrived in a message.
    Guest,
    Fetching,
    Home,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    Waiting,
    Tentative,
    Asked(u64),
    Granted,
}

/// A receiver at a process.
#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) state: Receiver,
    pub(crate) in_hand: bool,
    /// It stays as it arrived: no program here will use it.
    pub(crate) idle: bool,
    pub(crate) queue: Vec<(usize, usize, Queued)>,
    pub(crate) buffer: VecDeque<usize>,
    /// Places of the buffer that the sender has been granted.
    pub(crate) granted: u64,
    pub(crate) held: Option<(usize, usize)>,
    /// How the sender has ended the channel.
    pub(crate) ended: Option<End>,
    /// It has reported that the receiver is elsewhere.
    pub(crate) left: bool,
    /// It has reported that the channel has ended.
    pub(crate) over: bool,
    /// It retires the channel as soon as it is at home.
    pub(crate) retires: bool,
    /// It has retired the channel, and receives the values sent before the sender has learned that.
    pub(crate) retired: bool,
    /// The claim that the message with it named.
    pub(crate) claim: u64,
}

impl Home {
    pub(crate) fn new(state: Receiver) -> Self {
        Self {
            state,
            in_hand: true,
            idle: false,
            queue: Vec::new(),
            buffer: VecDeque::new(),
            granted: 0,
            held: None,
            ended: None,
            left: false,
            over: false,
            retires: false,
            retired: false,
            claim: 0,
        }
    }
}

/// A channel whose ends travel.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) id: ChannelId,
    /// 0: rendezvous.
    pub(crate) room: u64,
    pub(crate) window: u32,
    pub(crate) values: Vec<Value>,
    pub(crate) last_received: Option<usize>,
    pub(crate) halves: BTreeMap<usize, Half>,
    pub(crate) homes: BTreeMap<usize, Home>,
    /// Nodes where an end has been.
    pub(crate) touched: Vec<usize>,
    /// How its programs have ended it, at either side.
    pub(crate) sender_said: Vec<End>,
    pub(crate) receiver_said: Vec<End>,
    /// A receiver that had retired the channel has received all values, and was dropped.
    pub(crate) drained: bool,
    pub(crate) asks: u64,
    /// The nodes that were admitted with the sender, by its number.
    pub(crate) admitted: BTreeMap<u64, usize>,
    /// Claims of receivers that have returned to their home.
    pub(crate) void: Vec<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sender(SenderPlace),
    Receiver(ReceiverPlace),
}

/// An end in a message.
#[derive(Debug)]
pub(crate) struct Cargo {
    pub(crate) line: usize,
    pub(crate) place: Place,
    pub(crate) trip: Trip,
    /// Its sender knows that it was taken, and by which node.
    pub(crate) taker: Option<Contact>,
    /// Another one has arrived where it was, so this one is void.
    pub(crate) void: bool,
    pub(crate) by: usize,
}

impl Line {
    /// Whether a value sent by this process may be on its way.
    pub(crate) fn is_on_its_way(&self, by: usize) -> bool {
        self.values.iter().any(|value| value.by == by && value.outcome == Some(Outcome::Sent) && !value.received)
    }
}
