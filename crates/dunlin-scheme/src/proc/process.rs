//! A process.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::port::Port;
use crate::error::Error;
use crate::heap::word::NIL;
use crate::heap::{Mentions, Parcel, Space, Word};

/// What a process does while it does not run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// It can run.
    Ready,
    /// It waits for a message, at most until this time of the host.
    Message(Option<u64>),
    /// It waits for the outcome of an operation on channels, at most until this time of the host.
    Outcome(Option<u64>),
    /// It waits for a long computation: nothing else wakes it.
    Computation,
    /// It could run, and has used the fuel that it has up to this time of the host.
    Fuel(u64),
}

impl Wait {
    /// The time of the host at which the wait ends.
    pub(crate) fn deadline(self) -> Option<u64> {
        match self {
            Self::Ready | Self::Computation => None,
            Self::Message(deadline) | Self::Outcome(deadline) => deadline,
            Self::Fuel(at) => Some(at),
        }
    }
}

/// A process. While it runs, its heap and frames are in the machine.
pub(crate) struct Process {
    pub(crate) pid: u64,
    pub(crate) space: Space,
    /// Where it goes on: a frame of its heap.
    pub(crate) frame: Word,
    pub(crate) marks: Word,
    pub(crate) mailbox: Mailbox,
    /// The processes that hear of an abnormal end of this one.
    pub(crate) links: BTreeSet<u64>,
    /// Its copies of globals with cells that were not written.
    pub(crate) own: Vec<OwnGlobal>,
    pub(crate) wait: Wait,
    /// Whether the host has it among those that can run.
    pub(crate) is_queued: bool,
    /// Whether its last turn ended because the fuel was used up.
    pub(crate) is_busy: bool,
    /// Whether it runs a procedure, and not the forms of a text.
    pub(crate) is_spawned: bool,
    /// When the fuel that it has used is what it may have used, if its fuel per second is limited.
    pub(crate) fuel_us: u64,
    /// What it keeps if it is a port: then it runs no code.
    pub(crate) port: Option<Box<Port>>,
}

/// A process's copy of a global.
#[derive(Clone, Copy)]
pub(crate) struct OwnGlobal {
    pub(crate) number: u32,
    /// The value that was copied: another one if the global was defined again.
    pub(crate) frozen: Word,
    pub(crate) value: Word,
}

impl Process {
    pub(crate) fn new(pid: u64) -> Self {
        Self {
            pid,
            space: Space::default(),
            frame: NIL,
            marks: NIL,
            mailbox: Mailbox::default(),
            links: BTreeSet::new(),
            own: Vec::new(),
            wait: Wait::Ready,
            is_queued: false,
            is_busy: false,
            is_spawned: false,
            fuel_us: 0,
            port: None,
        }
    }

    /// The values that it holds in its heap, besides its frames.
    pub(crate) fn roots(&self) -> Vec<Word> {
        let messages = self.mailbox.items.iter().take(self.mailbox.unpacked).map(|item| item.parcel.root);
        messages.chain(self.own.iter().map(|own| own.value)).collect()
    }

    /// Sets the values that `roots` returned to where they have moved.
    pub(crate) fn set_roots(&mut self, roots: &[Word]) {
        let unpacked = self.mailbox.unpacked;
        let messages = self.mailbox.items.iter_mut().take(unpacked).map(|item| &mut item.parcel.root);
        let places = messages.chain(self.own.iter_mut().map(|own| &mut own.value));
        places.zip(roots).for_each(|(place, root)| *place = *root);
    }

    /// The bytes that it takes while it does not run.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.space.bytes()
            + self.mailbox.items.capacity() * size_of::<Item>()
            + 8 * (self.mailbox.words + self.mailbox.mentions.as_ref().map_or(0, |mentions| mentions.words()))
            + self.own.capacity() * size_of::<OwnGlobal>()
            + self.port.as_ref().map_or(0, |port| size_of::<Port>() + port.kind.len())
    }
}

/// What comes for a process that runs at another machine.
pub(crate) enum Letter {
    Message(Parcel),
    /// The end of a process that it is linked to; without an object it was a normal one.
    Exit(u64, Option<Arc<Parcel>>),
    /// From now on this process hears of its end.
    Link(u64),
    /// The body of a library that it waits for is free.
    Body,
    /// It is to end.
    Parting(Parting),
}

/// What another process ends one with: an error, and the object that linked ones hear.
pub(crate) struct Parting {
    pub(crate) error: Error,
    pub(crate) object: Option<Parcel>,
}

/// Messages in the order in which they came.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// By ascending number.
    items: VecDeque<Item>,
    /// So many of the first were looked at: they lie in the heap.
    unpacked: usize,
    last: u64,
    /// What processes raised that this one is linked to, not yet raised here, with their numbers.
    exits: VecDeque<(u64, Arc<Parcel>)>,
    /// What exits, and messages that were not looked at, take.
    words: usize,
    /// The segments that these point to; most point to none.
    mentions: Option<Box<Mentions>>,
}

struct Item {
    number: u64,
    parcel: Parcel,
}

/// What a message takes besides its objects.
const ITEM_WORDS: usize = size_of::<Item>() / 8;

/// Messages for which a mailbox keeps room.
const ITEMS_KEPT: usize = 64;

impl Mailbox {
    /// Adds a message.
    pub(crate) fn push(&mut self, parcel: Parcel) {
        self.count(&parcel);
        self.last += 1;
        self.items.push_back(Item { number: self.last, parcel });
    }

    /// Adds what a linked process raised.
    pub(crate) fn push_exit(&mut self, from: u64, exit: Arc<Parcel>) {
        self.count(&exit);
        self.exits.push_back((from, exit));
    }

    fn count(&mut self, parcel: &Parcel) {
        self.words += parcel.words.len();
        for segment in &parcel.segments {
            self.mentions.get_or_insert_default().add(segment);
        }
    }

    fn discount(&mut self, parcel: &Parcel) {
        self.words -= parcel.words.len();
        if let Some(mentions) = &mut self.mentions {
            parcel.segments.iter().for_each(|segment| mentions.remove(segment));
        }
    }

    /// Whether it takes more than so many words, with those of segments that it keeps alive, but for the
    /// objects of messages that were looked at.
    pub(crate) fn exceeds(&mut self, limit: usize) -> bool {
        let words = self.words + (self.items.len() + self.exits.len()) * ITEM_WORDS;
        let Some(mentions) = &mut self.mentions else { return words > limit };
        if words.saturating_add(mentions.bound()) > limit {
            mentions.count();
        }
        words.saturating_add(mentions.bound()) > limit
    }

    /// Forgets all that came. Later messages have other numbers.
    pub(crate) fn clear(&mut self) {
        *self = Self { last: self.last, ..Self::default() };
    }

    /// Removes what came first of that.
    pub(crate) fn take_exit(&mut self) -> Option<Arc<Parcel>> {
        let (_, exit) = self.exits.pop_front()?;
        self.discount(&exit);
        Some(exit)
    }

    /// Whether a linked process raised something.
    pub(crate) fn has_exit(&self) -> bool {
        !self.exits.is_empty()
    }

    /// The process that raised what came first of that.
    pub(crate) fn exit_process(&self) -> Option<u64> {
        self.exits.front().map(|(from, _)| *from)
    }

    /// What linked processes raised, with their numbers.
    pub(crate) fn exits(&self) -> impl Iterator<Item = (u64, &Parcel)> {
        self.exits.iter().map(|(from, exit)| (*from, &**exit))
    }

    /// The number of the first message after `number`; numbers begin with one.
    pub(crate) fn after(&self, number: u64) -> Option<u64> {
        self.items.get(self.place_after(number)).map(|item| item.number)
    }

    fn place_after(&self, number: u64) -> usize {
        self.items.partition_point(|item| item.number <= number)
    }

    fn place(&self, number: u64) -> Option<usize> {
        let at = self.items.partition_point(|item| item.number < number);
        self.items.get(at).filter(|item| item.number == number).map(|_| at)
    }

    /// A message; `unpack` puts it into the heap when it is looked at for the first time.
    pub(crate) fn message(&mut self, number: u64, mut unpack: impl FnMut(&Parcel) -> Word) -> Option<Word> {
        let at = self.place(number)?;
        while self.unpacked <= at {
            let parcel = std::mem::replace(&mut self.items[self.unpacked].parcel, Parcel::of_word(NIL));
            self.items[self.unpacked].parcel.root = unpack(&parcel);
            self.discount(&parcel);
            self.unpacked += 1;
        }
        Some(self.items[at].parcel.root)
    }

    /// Removes a message, if it is there.
    pub(crate) fn remove(&mut self, number: u64) {
        let Some(at) = self.place(number) else { return };
        if let Some(item) = self.items.remove(at) {
            self.discount(&item.parcel);
        }
        if at < self.unpacked {
            self.unpacked -= 1;
        }
        // One that was long gives its memory back.
        if self.items.capacity() > ITEMS_KEPT && self.items.len() < self.items.capacity() / 4 {
            self.items.shrink_to(self.items.len() * 2);
        }
    }

    /// The numbers of all messages.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.items.iter().map(|item| item.number).collect()
    }

    /// Whether this many messages with these numbers could be those of a mailbox; takes them if so.
    pub(crate) fn restore(&mut self, messages: &[(u64, Word)], last: u64) -> bool {
        let ascending = messages.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !ascending || messages.first().is_some_and(|first| first.0 == 0) {
            return false;
        }
        if messages.last().is_some_and(|message| message.0 > last) {
            return false;
        }
        let item = |(number, root): &(u64, Word)| Item { number: *number, parcel: Parcel::of_word(*root) };
        self.items = messages.iter().map(item).collect();
        self.unpacked = messages.len();
        self.last = last;
        true
    }

    /// The number of the last message that came.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::word::fixnum;

    #[test]
    fn numbers_of_messages_must_ascend_up_to_the_last_one() {
        let restored = |numbers: &[u64], last| {
            let messages: Vec<_> = numbers.iter().map(|number| (*number, fixnum(1))).collect();
            Mailbox::default().restore(&messages, last)
        };
        assert!(restored(&[], 0) && restored(&[1, 3], 3) && restored(&[2], 9));
        assert!(!restored(&[0], 3) && !restored(&[3, 2], 3) && !restored(&[2, 2], 3) && !restored(&[4], 3));
    }
}
