//! Calls between processes of the nodes: messages with a place for their reply, and their laws.
//!
//! Some of the messages that processes post are calls. The receiving node replies later, or drops the place;
//! the caller may give the call up before.
//!
//! The laws:
//! - each call ends once: with the reply to it and no other, without one only if its place was dropped, or
//!   lost only if the life of the connection ends, or the receiving node has no room for the place;
//! - a call that was given up is not told of; its place serves no later call;
//! - at rest no call is open.

use bytes::Bytes;
use dunlin_proto::Replied;
use dunlin_proto::id::{ChannelId, Contact};

use crate::process::{Call, ITEM, Place};
use crate::view::Standing;
use crate::world::{Event, World, node_id};

/// The channels of all calls have numbers from here on.
const FIRST: u128 = 0xca11 << 64;

fn channel(call: usize) -> ChannelId {
    ChannelId(FIRST + call as u128)
}

fn reply_to(call: usize) -> Bytes {
    Bytes::copy_from_slice(&call.to_le_bytes())
}

impl World {
    /// A process has posted this message: it may be a call.
    pub(crate) fn may_call(&mut self, proc: usize, node: usize, tag: u64) {
        if !self.calls.random.chance(30) {
            return;
        }
        let call = self.calls.calls.len();
        self.procs[proc].machine.await_reply(channel(call), node_id(node));
        self.note(73, call as u64, || format!("#{tag} is call {call} of n{node}"));
        let incarnation = self.procs[self.current[node]].incarnation;
        self.calls.calls.push(Call { proc, node, incarnation, is_over: false, place: Place::Open });
        self.calls.of_items.insert(tag, call);
        if self.calls.random.chance(30) {
            let wait = self.calls.random.below(200_000);
            self.after(wait, Event::GivesUp(proc, call));
        }
    }

    pub(crate) fn gives_call_up(&mut self, proc: usize, call: usize) {
        if std::mem::replace(&mut self.calls.calls[call].is_over, true) {
            return;
        }
        let now = self.time();
        self.note(74, call as u64, || format!("call {call} is given up"));
        self.procs[proc].machine.refuse_reply(now, channel(call));
        self.pump(proc);
    }

    /// Nothing fails any more. Calls of an earlier life of their node may have been dropped, so their callers
    /// give them up.
    pub(crate) fn calls_end(&mut self) {
        for call in 0..self.calls.calls.len() {
            let Call { proc, node, incarnation, .. } = self.calls.calls[call];
            if self.procs[proc].alive && incarnation != self.procs[self.current[node]].incarnation {
                self.gives_call_up(proc, call);
            }
        }
    }

    /// This message has arrived: if it is a call, its place is here.
    pub(crate) fn may_be_called(&mut self, proc: usize, from: Contact, tag: u64) {
        let Some(call) = self.calls.of_items.get(&tag).copied() else { return };
        let now = self.time();
        if !self.procs[proc].machine.hold_reply(now, channel(call), from) {
            self.calls.calls[call].place = Place::Refused;
            return;
        }
        let wait = if self.healed { 0 } else { self.calls.random.below(60_000) };
        self.after(wait, Event::Answers(proc, call));
    }

    /// A node replies to a call, or drops the place.
    pub(crate) fn answers(&mut self, proc: usize, call: usize) {
        let now = self.time();
        let machine = &mut self.procs[proc].machine;
        if self.calls.random.chance(80) {
            if machine.reply(now, channel(call), reply_to(call)) {
                self.calls.calls[call].place = Place::Replied;
            }
        } else {
            machine.end_reply(now, channel(call));
            self.calls.calls[call].place = Place::Dropped;
        }
        self.pump(proc);
    }

    /// A call has ended.
    pub(crate) fn replied(&mut self, proc: usize, channel: ChannelId, replied: &Replied) {
        let call = channel.0.wrapping_sub(FIRST) as usize;
        let me = self.procs[proc].node;
        let Some(Call { proc: by, node, is_over, place, .. }) = self.calls.calls.get_mut(call) else {
            return self.broke(format!("n{me} is told of a call that there is not"));
        };
        let (by, node, place) = (*by, *node, *place);
        if by != proc || std::mem::replace(is_over, true) {
            return self.broke(format!("n{me} is told of call {call} to n{node} after that was over: {replied:?}"));
        }
        self.coverage.calls += 1;
        let is_right = match replied {
            Replied::Value(reply) => *reply == reply_to(call) && place == Place::Replied,
            Replied::None => place == Place::Dropped,
            Replied::Lost => {
                if place != Place::Refused {
                    self.processes.lost.push((proc, node));
                }
                true
            }
            _ => false,
        };
        if !is_right {
            self.broke(format!("n{me} gets {replied:?} for call {call} to n{node}, whose place is {place:?}"));
        }
    }

    /// About how many bytes calls still cause.
    pub(crate) fn calls_bytes(&self) -> usize {
        2 * ITEM * self.open_calls().count()
    }

    /// A call that has not ended.
    pub(crate) fn calls_unsettled(&self) -> Option<String> {
        let call = self.open_calls().next()?;
        Some(format!("call {call:?} of n{} has not ended", self.procs[call.proc].node))
    }

    fn open_calls(&self) -> impl Iterator<Item = &Call> {
        let is_met = |call: &Call| self.procs[call.proc].views[call.node].state != Standing::Idle;
        self.calls.calls.iter().filter(move |call| !call.is_over && self.procs[call.proc].alive && is_met(call))
    }
}
