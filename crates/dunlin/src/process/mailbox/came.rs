//! What a mailbox has of other nodes: their messages, which its receiver decodes, and how they know it.

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::node::mailboxes::{OpenAt, Receipt};
use crate::world;

/// How other nodes know a mailbox of this one.
pub(super) struct Exported {
    pub(super) bits: u64,
    /// The nodes of this program at which it is open.
    pub(super) nodes: Vec<OpenAt>,
    /// Dropped with the mailbox.
    pub(super) ends: Vec<oneshot::Sender<()>>,
}

impl Exported {
    pub(super) fn new() -> Self {
        Self { bits: world::random() as u64, nodes: Vec::new(), ends: Vec::new() }
    }

    /// The mailbox is dropped. Returns what has to be notified; its random bits stay.
    pub(super) fn close(&mut self) -> Closing {
        Closing { nodes: std::mem::take(&mut self.nodes), _ends: std::mem::take(&mut self.ends) }
    }
}

/// What a mailbox that is dropped has to notify.
pub(super) struct Closing {
    nodes: Vec<OpenAt>,
    _ends: Vec<oneshot::Sender<()>>,
}

impl Closing {
    /// The mailbox has this number. It must not be locked.
    pub(super) fn notify(self, number: u64) {
        self.nodes.iter().for_each(|node| node.close(number));
    }
}

/// A message from another node, in a mailbox.
pub(super) struct Came<M> {
    form: Form<M>,
    decode: fn(&Bytes) -> Result<M, String>,
    receipt: Receipt,
}

enum Form<M> {
    Bytes(Bytes),
    Message(M),
}

impl<M> Came<M> {
    pub(super) fn new(message: Bytes, decode: fn(&Bytes) -> Result<M, String>, receipt: Receipt) -> Self {
        Self { form: Form::Bytes(message), decode, receipt }
    }

    /// The message; `None` if it cannot be read.
    pub(super) fn message(&mut self) -> Option<&M> {
        if let Form::Bytes(bytes) = &self.form {
            match self.receipt.through(|| (self.decode)(bytes)) {
                Ok(message) => self.form = Form::Message(message),
                Err(why) => {
                    self.receipt.is_unreadable(&why);
                    return None;
                }
            }
        }
        match &self.form {
            Form::Message(message) => Some(message),
            Form::Bytes(_) => None,
        }
    }

    /// The message is received. `None`: it was not looked at before.
    pub(super) fn received(self) -> Option<M> {
        match self.form {
            Form::Message(message) => Some(message),
            Form::Bytes(_) => None,
        }
    }
}
