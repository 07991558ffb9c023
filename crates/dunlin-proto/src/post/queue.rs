//! The messages for mailboxes and the signals that one connection has to send, and the message that is
//! arriving.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::account::cost;
use crate::id::MailboxId;
use crate::planted::planted;
use crate::wire::{Frame, Post};

/// Messages and signals that wait to be written, in the order in which they were sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    /// About how many bytes those take that answer the other node.
    answers: usize,
    /// How many of them have been taken out to be written.
    begun: u64,
    /// What those that wait cost.
    bytes: u64,
    /// The rest of a message whose first piece has been written.
    rest: Bytes,
}

#[derive(Clone, Debug)]
enum Waiting {
    Message(MailboxId, Bytes),
    /// A signal, and about how many bytes it takes if it is an answer.
    Signal(Frame, usize),
}

impl Queue {
    pub(crate) fn push(&mut self, to: MailboxId, message: Bytes) {
        self.bytes += cost(message.len() as u64);
        self.waiting.push_back(Waiting::Message(to, message));
    }

    pub(crate) fn push_signal(&mut self, signal: Frame, answers: usize) {
        self.answers += answers;
        if planted!(SignalFirst) {
            return self.waiting.push_front(Waiting::Signal(signal, answers));
        }
        self.waiting.push_back(Waiting::Signal(signal, answers));
    }

    pub(crate) fn answers(&self) -> usize {
        self.answers
    }

    /// What the messages cost of which nothing has been written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.rest.is_empty()
    }

    /// Whether messages have not been wholly written. Signals are none.
    pub(crate) fn has_messages(&self) -> bool {
        !self.rest.is_empty() || self.waiting.iter().any(|waiting| matches!(waiting, Waiting::Message(..)))
    }

    /// How many messages have not been wholly written.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + usize::from(!self.rest.is_empty())
    }

    /// Once [`has_written`](Self::has_written) returns true for this number, all of them have been written.
    pub(crate) fn mark(&self) -> u64 {
        self.begun + self.waiting.len() as u64
    }

    pub(crate) fn has_written(&self, mark: u64) -> bool {
        self.begun > mark || (self.begun == mark && self.rest.is_empty())
    }

    /// The next frame. A message of at most `whole` bytes is one piece; another one has pieces of `piece`
    /// bytes.
    pub(crate) fn next(&mut self, whole: usize, piece: usize) -> Option<Frame> {
        if !self.rest.is_empty() {
            let piece = self.rest.split_to(self.rest.len().min(piece));
            return Some(Frame::Post(Post::More(piece)));
        }
        let waiting = self.waiting.pop_front()?;
        self.begun += 1;
        let (to, mut message) = match waiting {
            Waiting::Message(to, message) => (to, message),
            Waiting::Signal(signal, answers) => {
                self.answers -= answers;
                return Some(signal);
            }
        };
        let total = message.len() as u64;
        self.bytes -= cost(total);
        let first = message.split_to(if message.len() <= whole { message.len() } else { piece });
        self.rest = message;
        Some(Frame::Post(Post::Message { to, total, first }))
    }
}

/// A message of which the first piece has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arriving {
    pub(crate) to: MailboxId,
    pub(crate) total: u64,
    arrived: u64,
    /// Empty if the message is not wanted.
    bytes: BytesMut,
    /// There is a mailbox for it.
    wanted: bool,
}

impl Arriving {
    pub(crate) fn new(to: MailboxId, total: u64, wanted: bool) -> Self {
        let bytes = if wanted { BytesMut::with_capacity(total as usize) } else { BytesMut::new() };
        Self { to, total, arrived: 0, bytes, wanted }
    }

    /// A piece arrives. `false`: the message is not as long as that.
    pub(crate) fn extend(&mut self, piece: &[u8]) -> bool {
        self.arrived += piece.len() as u64;
        if self.wanted && self.arrived <= self.total {
            self.bytes.extend_from_slice(piece);
        }
        self.arrived <= self.total
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.arrived == self.total
    }

    /// The message; `None` if it is not wanted.
    pub(crate) fn whole(self) -> Option<Bytes> {
        self.wanted.then(|| self.bytes.freeze())
    }
}
