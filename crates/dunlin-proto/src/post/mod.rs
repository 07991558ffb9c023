//! Messages for mailboxes at other nodes.
//!
//! A message goes one way: it is sent when the connection has it, and nothing answers it. All messages of a
//! connection are in one stream of its outbox (`queue.rs`), in turns with channels and in pieces, so they
//! arrive in the order in which they were sent, and none delays a channel by more than a piece. They are
//! short: a message waits for few others.
//!
//! The bytes of a message are charged to the account of its connection until it has been received or dropped.
//! For that, the sending node spends credit when it sends a message, not when it writes it; without credit it
//! does not send. Besides, each mailbox has room for a few messages of each other node (`room.rs`). So a
//! mailbox that never receives takes little of the account, and others are not affected. A sending node that
//! has no room asks for it once, and reports when there may be some again. Whatever a node allows, only so
//! much is queued for it.
//!
//! A mailbox is known by its number and 64 random bits. A message with other bits is dropped. Before its
//! first message to a mailbox, a node sends the schema of its messages. If the mailbox cannot read them they
//! are dropped, and the sending node gets the schema of those that it can read.

pub(crate) mod queue;
mod room;
pub(crate) mod state;

use bytes::Bytes;
use dunlin_sorted::SortedMap;

use crate::account::{Charge, cost};
use crate::channel::Peers;
use crate::connection::outbox::queued_max;
use crate::id::{Contact, MailboxId, NodeId};
use crate::machine::{Action, Declined, Endpoint, Machine};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::time::Time;
use crate::wire::{Declaration, Expected, Face, Frame, Post, limits};
use queue::Arriving;
use room::Granted;
use state::{Mailbox, NotPosted, PostHears};

fn declared(face: Face, schema: Bytes) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema }
}

impl Endpoint {
    /// Sends an answer to a node that has sent something before: this makes no connection.
    fn say_of_mailbox(&mut self, node: NodeId, said: Post) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        connection.outbox.push(Frame::Post(said));
        if let Some(socket) = connection.socket() {
            self.act_write(socket);
        }
    }

    /// Allows that node more messages to this mailbox, if there is reason to.
    fn grant_room(&mut self, node: NodeId, number: u64) {
        let granted = self.mailboxes.0.get_mut(&number).and_then(|mailbox| mailbox.from.get_mut(&node));
        if let Some((posts, bytes)) = granted.and_then(Granted::grant) {
            self.say_of_mailbox(node, Post::Room { mailbox: number, posts, bytes });
        }
    }

    /// A message begins to arrive: whether there is a mailbox for it.
    fn message_begins(&mut self, now: Time, node: NodeId, to: MailboxId, total: u64) -> Result<bool, PeerMisbehaved> {
        let Some(connection) = self.connections.get_mut(node) else { return Ok(false) };
        // Released with a charge of the same size.
        let _charge = connection.inbox.account.charge(total)?;
        let is_low = connection.inbox.account.wants_credit();
        if is_low {
            self.tell_credit(node, false);
        }
        match self.mailboxes.0.get_mut(&to.number) {
            Some(mailbox) if mailbox.bits == to.bits => {
                let posts_max = mailbox.posts_max;
                let granted = mailbox.from.get_or_insert_with(node, || Granted::new(posts_max));
                granted.arrives(to.number, cost(total))?;
                if let Some(connection) = self.connections.get_mut(node) {
                    connection.posts.here.insert(to.number);
                }
                self.grant_room(node, to.number);
                return Ok(true);
            }
            Some(_) => {
                // The sending node may have the right bits too, and has one room for both.
                self.declines(node, Declined::Post(to.number));
                self.hears_nothing(now, node);
                self.say_of_mailbox(node, Post::Room { mailbox: to.number, posts: 1, bytes: cost(total) });
                return Ok(false);
            }
            None => {}
        }
        self.hears_nothing(now, node);
        self.say_of_mailbox(node, Post::Closed(to.number));
        Ok(false)
    }

    /// That node is about to send messages of this schema.
    fn uses_mailbox(&mut self, now: Time, node: NodeId, to: MailboxId, schema: Bytes) {
        let Some(mailbox) = self.mailboxes.0.get_mut(&to.number).filter(|mailbox| mailbox.bits == to.bits) else {
            // The message that follows is answered.
            return self.hears_nothing(now, node);
        };
        let (here, posts_max) = (mailbox.declared.clone(), mailbox.posts_max);
        let there = declared(Face::Sender, schema);
        let is_unfit = !self.fits(now, node, &here, &there);
        let Some(mailbox) = self.mailboxes.0.get_mut(&to.number) else { return };
        mailbox.from.get_or_insert_with(node, || Granted::new(posts_max)).is_unfit = is_unfit;
        if let Some(connection) = self.connections.get_mut(node) {
            connection.posts.here.insert(to.number);
        }
        if is_unfit {
            self.say_of_mailbox(node, Post::Mismatch { mailbox: to.number, schema: here.schema });
        }
    }

    fn piece_of_message(&mut self, node: NodeId, mut message: Arriving, piece: &[u8]) -> Result<(), PeerMisbehaved> {
        if !message.extend(piece) {
            return Err(PeerMisbehaved::StrayPiece);
        }
        if !message.is_complete() {
            if let Some(connection) = self.connections.get_mut(node) {
                connection.posts.arriving = Some(message);
            }
            return Ok(());
        }
        let (to, total) = (message.to.number, message.total);
        let granted = self.mailboxes.0.get_mut(&to).and_then(|mailbox| mailbox.from.get_mut(&node));
        match (message.whole(), granted) {
            (Some(whole), Some(granted)) if !granted.is_unfit => {
                let from = self.contact(node);
                self.act(Action::Post(PostHears::Message(from, to, whole)));
            }
            (Some(_), Some(granted)) => {
                granted.received(cost(total));
                self.release(node, Charge::of_credit(total));
                self.grant_room(node, to);
            }
            _ => self.release(node, Charge::of_credit(total)),
        }
        Ok(())
    }

    /// The life of the connection with that node is over.
    pub(crate) fn forget_posts(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        for number in std::mem::take(&mut connection.posts.here) {
            if let Some(mailbox) = self.mailboxes.0.get_mut(&number) {
                mailbox.from.remove(&node);
            }
        }
    }

    /// Messages to that node have been written: those that waited for that may fit now.
    pub(crate) fn posts_written(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        if connection.posts.is_long && connection.outbox.queued_posts() < queued_max(&self.config) / 2 {
            connection.posts.is_long = false;
            self.posts_have_credit(node);
        }
    }

    /// That node has given new credit: messages that did not fit may now.
    pub(crate) fn posts_have_credit(&mut self, node: NodeId) {
        let Some(connection) = self.connections.get_mut(node) else { return };
        for number in std::mem::take(&mut connection.posts.waiting) {
            if let Some(room) = connection.posts.there.get_mut(&number) {
                room.may_ask();
            }
            self.actions.push_back(Action::Post(PostHears::Room(node, number)));
        }
    }
}

impl Machine {
    /// From now on other nodes may send messages that fit this schema to this mailbox of this node. It has
    /// room for `posts_max` messages of each of them, but at least for [`limits::POSTS_FIRST`].
    pub fn open_mailbox(&mut self, mailbox: MailboxId, schema: Bytes, posts_max: u32) {
        let MailboxId { number, bits } = mailbox;
        let declared = declared(Face::Receiver, schema);
        self.endpoint.mailboxes.0.insert(number, Mailbox { bits, declared, posts_max, from: SortedMap::new() });
    }

    /// There is no such mailbox any more. Messages that have not been received are still to be
    /// [reported](Self::post_received).
    pub fn close_mailbox(&mut self, number: u64) {
        let Some(mailbox) = self.endpoint.mailboxes.0.remove(&number) else { return };
        for node in mailbox.from.into_keys() {
            if let Some(connection) = self.endpoint.connections.get_mut(node) {
                connection.posts.here.remove(&number);
            }
            self.endpoint.say_of_mailbox(node, Post::Closed(number));
        }
    }

    /// Sends a message of this schema to a mailbox of that node, and connects to the node if there is no
    /// connection. Messages to one node arrive in the order in which they were sent, as long as the life of
    /// the connection lasts.
    ///
    /// # Errors
    /// The message was not sent.
    ///
    /// # Panics
    /// If the schema is longer than [`limits::SCHEMA`].
    pub fn post(
        &mut self,
        now: Time,
        node: NodeId,
        to: MailboxId,
        schema: &Bytes,
        message: Bytes,
    ) -> Result<(), NotPosted> {
        assert!(schema.len() <= limits::SCHEMA, "a schema of {} bytes", schema.len());
        let (bytes, bytes_max) = (message.len() as u64, limits::POST as u64);
        if bytes > bytes_max {
            return Err(NotPosted::TooLarge { bytes, bytes_max });
        }
        if self.endpoint.is_me(node) || self.endpoint.leaving || self.replaced_by().is_some() {
            return Err(NotPosted::NotHere);
        }
        let queued_max = queued_max(&self.endpoint.config);
        let connection = self.endpoint.connection(node);
        let room = connection.posts.there.get_or_default(to.number);
        // An honest node gives no credit for more.
        if connection.outbox.queued_posts() >= queued_max {
            connection.posts.waiting.insert(to.number);
            connection.posts.is_long = true;
            return Err(NotPosted::Full);
        }
        if !room.has(cost(bytes)) || !connection.outbox.spend_credit(bytes) {
            connection.posts.waiting.insert(to.number);
            if room.asks() {
                self.endpoint.say(now, node, Frame::Post(Post::Ask(to.number)));
            }
            return Err(NotPosted::Full);
        }
        room.spend(cost(bytes));
        if room.is_first(to.bits) {
            self.endpoint.say(now, node, Frame::Post(Post::Use { to, schema: schema.clone() }));
        }
        self.endpoint.say(now, node, Frame::Post(Post::Message { to, total: bytes, first: message }));
        Ok(())
    }

    /// A message of `bytes` bytes that was [reported](PostHears::Message) for this mailbox has been received,
    /// or dropped.
    pub fn post_received(&mut self, mailbox: u64, from: Contact, bytes: u64) {
        if self.endpoint.is_over(from) {
            return;
        }
        if !planted!(CreditLost) {
            self.endpoint.release(from.node, Charge::of_credit(bytes));
        }
        let mailboxes = &mut self.endpoint.mailboxes.0;
        if let Some(granted) = mailboxes.get_mut(&mailbox).and_then(|mailbox| mailbox.from.get_mut(&from.node)) {
            granted.received(cost(bytes));
            self.endpoint.grant_room(from.node, mailbox);
        }
    }

    pub(crate) fn hear_post(&mut self, now: Time, node: NodeId, said: Post) -> Result<(), PeerMisbehaved> {
        let endpoint = &mut self.endpoint;
        let Some(connection) = endpoint.connections.get_mut(node) else { return Ok(()) };
        match said {
            Post::Message { to, total, first } => {
                if connection.posts.arriving.is_some() {
                    return Err(PeerMisbehaved::WithinPost);
                }
                let wanted = endpoint.message_begins(now, node, to, total)?;
                endpoint.piece_of_message(node, Arriving::new(to, total, wanted), &first)?;
            }
            Post::More(piece) => {
                let message = connection.posts.arriving.take().ok_or(PeerMisbehaved::StrayPiece)?;
                endpoint.piece_of_message(node, message, &piece)?;
            }
            Post::Ask(number) => match endpoint.mailboxes.0.get_mut(&number) {
                Some(mailbox) => {
                    let is_new = mailbox.from.get_mut(&node).is_some_and(Granted::asks);
                    endpoint.grant_room(node, number);
                    endpoint.tell_credit(node, true);
                    if !is_new {
                        endpoint.hears_nothing(now, node);
                    }
                }
                None => {
                    endpoint.hears_nothing(now, node);
                    endpoint.say_of_mailbox(node, Post::Closed(number));
                }
            },
            Post::Room { mailbox, posts, bytes } => {
                match connection.posts.there.get_mut(&mailbox) {
                    Some(room) => room.grow(posts, bytes),
                    None => endpoint.hears_nothing(now, node),
                }
                let Some(connection) = endpoint.connections.get_mut(node) else { return Ok(()) };
                if connection.posts.waiting.remove(&mailbox) && !planted!(RoomUntold) {
                    endpoint.act(Action::Post(PostHears::Room(node, mailbox)));
                }
            }
            Post::Use { to, schema } => endpoint.uses_mailbox(now, node, to, schema),
            Post::Mismatch { mailbox, schema } => match connection.posts.there.contains_key(&mailbox) {
                true => endpoint.act(Action::Post(PostHears::Mismatch(node, mailbox, schema))),
                false => endpoint.hears_nothing(now, node),
            },
            Post::Closed(mailbox) => {
                connection.posts.waiting.remove(&mailbox);
                match connection.posts.there.remove(&mailbox) {
                    Some(_) => endpoint.act(Action::Post(PostHears::Closed(node, mailbox))),
                    None => endpoint.hears_nothing(now, node),
                }
            }
        }
        Ok(())
    }
}
