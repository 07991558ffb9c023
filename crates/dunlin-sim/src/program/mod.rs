//! The programs on the nodes: senders that offer, and homes that take. The homes are a small honest model of
//! a channel's queue.
//!
//! - here: their books; [`setting_up`]: how they are set up;
//! - [`sending`]: what senders do; [`sender_hears`]: what they learn, and whether it is true;
//! - [`homes`]: what homes do; [`home_hears`]: what they learn;
//! - [`chat`]: what nodes send each other.

mod chat;
mod home_hears;
mod homes;
mod sender_hears;
mod sending;
mod setting_up;

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Contact};
use dunlin_proto::wire::{Declaration, End, Expected, Face, Terms};

/// The state of an offer at its home's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtHome {
    /// It has not arrived.
    Away,
    /// A firm offer, in the queue.
    Waiting,
    Tentative,
    Asked(u64),
    Granted(u64),
    Held,
    /// Its sender has learned the outcome, or has ended.
    Done,
}

/// The outcome that its sender learned in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    NotTaken,
    Unknown,
    /// Sent on a credit: its sender learns no outcome.
    Sent,
    /// Its sender's process has ended.
    Nobody,
}

#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) sender: usize,
    pub(crate) channel: usize,
    pub(crate) choice: Option<usize>,
    pub(crate) size: usize,
    pub(crate) at_home: AtHome,
    /// It has arrived at the home's program, with its value or without.
    pub(crate) arrived: bool,
    /// A receive has returned it, or a buffer has admitted it.
    pub(crate) taken: bool,
    pub(crate) held_told: bool,
    pub(crate) withdrawing: bool,
    pub(crate) failed_by_home: bool,
    pub(crate) outcome: Option<Outcome>,
    /// The event in which the home's program last decided about it. What its machine had received by then may
    /// still arrive.
    pub(crate) decided_in: u64,
    /// Its position among the values sent on credit.
    pub(crate) number: u64,
    /// The ends in it.
    pub(crate) cargo: Vec<usize>,
    /// The node that gave them, as the home knows, and the node that took them, as the sender knows.
    pub(crate) giver: Option<Contact>,
    pub(crate) taker: Option<Contact>,
}

/// A choice of a sending process: at most one of its offers happens.
#[derive(Debug)]
pub(crate) struct Choice {
    pub(crate) offers: Vec<usize>,
    /// Reserved by this request of this offer's home.
    pub(crate) by: Option<(usize, u64)>,
    /// The value has been granted to `by`.
    granted: bool,
    asks: VecDeque<(usize, u64)>,
    pub(crate) decided: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    New,
    Attaching {
        since: u64,
    },
    Attached,
    /// The home has retired the channel. The sender may still use its credits; then it reports that it is
    /// gone.
    Closing,
    Over,
}

#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) proc: usize,
    pub(crate) channel: usize,
    pub(crate) stage: Stage,
    credits: u64,
    value_max: u64,
    /// It attaches with a declaration that does not fit.
    misfit: bool,
    pub(crate) gone: bool,
    /// Each way in which it has ended the channel.
    pub(crate) ended: Vec<End>,
    pub(crate) sent: u64,
    pub(crate) sent_arrived: u64,
    /// Its connection died.
    pub(crate) lost: bool,
    last_arrived: Option<usize>,
}

/// A node with a sending half, as the home's program knows it.
#[derive(Debug)]
pub(crate) struct Half {
    pub(crate) node: usize,
    pub(crate) proc: usize,
    pub(crate) gone: bool,
    /// Places that have been granted and are not used yet.
    granted: u64,
}

#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) id: ChannelId,
    pub(crate) proc: usize,
    pub(crate) opened: Option<u64>,
    /// How it ended, and in which event.
    pub(crate) ended: Option<(End, u64)>,
    /// It carries ends that travel.
    pub(crate) mail: bool,
    pub(crate) many: bool,
    /// 0: rendezvous.
    room: u64,
    terms: Terms,
    pub(crate) queue: Vec<usize>,
    buffer: VecDeque<usize>,
    /// Its machine asks on behalf of the next receive that waits.
    asked: bool,
    pub(crate) halves: Vec<Half>,
    /// The event in which a half was last forgotten.
    forgot_in: u64,
    asks: u64,
}

fn value(offer: usize, size: usize) -> Bytes {
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(&(offer as u32).to_le_bytes());
    bytes.extend((4..size).map(|at| (at as u8).wrapping_mul(31).wrapping_add(offer as u8)));
    Bytes::from(bytes)
}

/// Whether this value is offered, or granted, unread. No node here reads remotely: the value is replaced by
/// the address where it can be read, and that address is what is sent here.
pub(crate) fn goes_unread(ticket: u64) -> bool {
    ticket % 4 == 3
}

fn offer_in(value: &Bytes) -> Option<usize> {
    value.first_chunk().map(|first| u32::from_le_bytes(*first) as usize)
}

fn declaration(face: Face, shared: bool, expects: Expected) -> Declaration {
    Declaration { face, shared, expects, schema: Bytes::new() }
}
