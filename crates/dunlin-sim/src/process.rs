//! The processes of the nodes, and the books of what they send each other: see `processes.rs` and `calls.rs`.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_proto::id::Contact;

use crate::random::Random;

/// About how many bytes an item takes without a message: a signal, and the frames that it causes.
pub(crate) const ITEM: usize = 150;

/// How many processes a node has.
pub(crate) const PROCESSES: usize = 3;

/// What was sent from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// To the mailbox of this process, of this incarnation of its node.
    Post(usize, u64),
    /// An exit, a link, or a kill.
    Signal,
    /// The end of a process, for this watch. It has no effect if the watch has ended.
    Down(usize),
}

#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) stream: Stream,
    /// Its place in the stream.
    pub(crate) place: usize,
    pub(crate) sent: Sent,
    /// About how many bytes it takes.
    pub(crate) size: usize,
}

/// What one process of the simulation sends to one node in one life of their connection: the process, the
/// node, and how many lives have ended before.
pub(crate) type Stream = (usize, usize, u32);

/// What a process of the simulation has heard of another node in the present life of the connection.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) stream: Option<Stream>,
    /// How many items of it have arrived, or had no effect.
    pub(crate) next: usize,
    pub(crate) over: BTreeSet<Stream>,
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) proc: usize,
    pub(crate) node: usize,
    pub(crate) number: u64,
    pub(crate) is_told: bool,
    pub(crate) has_ended: bool,
    /// If it is for a link: the numbers of the source and of the target, a process here.
    pub(crate) link: Option<(u64, u64)>,
    /// In which event an unlink has ended it.
    pub(crate) unlinked_in: Option<u64>,
}

impl Watch {
    pub(crate) fn new(proc: usize, node: usize, number: u64, link: Option<(u64, u64)>) -> Self {
        Self { proc, node, number, is_told: false, has_ended: false, link, unlinked_in: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) is_over: bool,
    pub(crate) watchers: Vec<(Contact, u64)>,
}

/// All that concerns processes of nodes.
#[derive(Debug)]
pub(crate) struct Processes {
    pub(crate) is_there: bool,
    pub(crate) random: Random,
    /// Those of each process of the simulation.
    pub(crate) here: Vec<[Process; PROCESSES]>,
    pub(crate) items: Vec<Item>,
    pub(crate) streams: BTreeMap<Stream, Vec<usize>>,
    /// How many lives of a connection with that node this process of the simulation has seen end.
    pub(crate) lives: BTreeMap<(usize, usize), u32>,
    pub(crate) heard: BTreeMap<(usize, usize), Heard>,
    pub(crate) watches: Vec<Watch>,
    /// Who was told of a lost node in this event.
    pub(crate) lost: Vec<(usize, usize)>,
    /// In which event the last life of a connection ended.
    pub(crate) ended_at: BTreeMap<(usize, usize), u64>,
    /// Who waits for room at which node's mailbox.
    pub(crate) full: BTreeSet<(usize, usize, u64)>,
}

impl Processes {
    pub(crate) fn new(seed: u64, holds: bool) -> Self {
        let mut random = Random::new(seed.rotate_left(53) ^ 0x9105);
        Self {
            is_there: random.chance(30) && !holds,
            random,
            here: Vec::new(),
            items: Vec::new(),
            streams: BTreeMap::new(),
            lives: BTreeMap::new(),
            heard: BTreeMap::new(),
            watches: Vec::new(),
            lost: Vec::new(),
            ended_at: BTreeMap::new(),
            full: BTreeSet::new(),
        }
    }

    /// The tag of the next item, which is not sent yet.
    pub(crate) fn tag(&self) -> u64 {
        self.items.len() as u64
    }

    /// The item with the next tag has been handed to the machine.
    pub(crate) fn sends(&mut self, proc: usize, node: usize, sent: Sent, size: usize) {
        let stream = (proc, node, self.lives.get(&(proc, node)).copied().unwrap_or(0));
        let tags = self.streams.entry(stream).or_default();
        let place = tags.len();
        tags.push(self.items.len());
        self.items.push(Item { stream, place, sent, size });
    }
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    /// The caller's process of the simulation, and the node that is called.
    pub(crate) proc: usize,
    pub(crate) node: usize,
    /// Of the node that is called: its next life drops the message.
    pub(crate) incarnation: u64,
    /// The caller waits no more: it was told, or has given up.
    pub(crate) is_over: bool,
    /// What the node that is called has done with the place.
    pub(crate) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It has not arrived, or nothing was done.
    Open,
    /// There was no room for it, or the life of its connection was over.
    Refused,
    Replied,
    Dropped,
}

/// All calls.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) random: Random,
    pub(crate) calls: Vec<Call>,
    /// By the tags of their messages.
    pub(crate) of_items: BTreeMap<u64, usize>,
}

impl Calls {
    pub(crate) fn new(seed: u64) -> Self {
        let random = Random::new(seed.rotate_left(29) ^ 0xca11);
        Self { random, calls: Vec::new(), of_items: Default::default() }
    }
}
