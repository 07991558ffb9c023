//! Places for the replies of calls.
//!
//! A request carries the place for its reply as an end of a new channel. Most replies are small and come from
//! the node that has received the request, so such a channel has neither a home nor a sending half: the
//! caller's node *awaits* the reply, the other node *holds* the place, and the reply is one frame. The place
//! becomes the two halves of a channel ([`Channels::stretch_reply`]) when that is not enough: for a reply
//! that is large or has ends in it, and for a place that is sent to a third node.
//!
//! ```text
//!   caller's node                                             the node with the request
//!   awaits   ──── the request (a value with the place) ───▶
//!            ◀─── Taken ───────────────────────────────────   holds
//!            ◀─── Reply, or Ended: there is none ──────────
//!   (or      ──── Ended: no caller waits any more ────────▶ )
//!   (or      ◀─── ReplyComes ──────────────────────────────   stretches: now a home, and a sending half)
//!   (or      ◀─── Take, from a third node: the place has gone on to it, and ReplyComes follows)
//! ```
//!
//! A frame about a place that is not here has crossed another one, and is ignored.

use bytes::Bytes;

use super::by_node::Concerns;
use super::{AwaitedReply, Channels, HeldReply, Peers, Replies};
use crate::id::{ChannelId, Contact, NodeId};
use crate::machine::{Action, Replied};
use crate::misbehaved::PeerMisbehaved;
use crate::planted::planted;
use crate::wire::{Declaration, End, Expected, Face, Frame, FromHome, Terms, ToHome};

impl Concerns for AwaitedReply {
    fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        each(self.from);
    }
}

impl Concerns for HeldReply {
    fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        each(self.caller.node);
    }
}

impl Replies {
    pub(crate) fn len(&self) -> usize {
        self.awaited.len() + self.held.len()
    }
}

/// The terms of a place for a reply, which both sides know without asking.
fn terms(value_max: usize) -> Terms {
    Terms { window: 1, credits: 0, value_max: value_max as u64 }
}

impl Channels {
    pub(crate) fn await_reply(&mut self, channel: ChannelId, from: NodeId) {
        self.replies.awaited.insert(channel, AwaitedReply { from });
    }

    pub(crate) fn forget_reply(&mut self, channel: ChannelId) {
        self.replies.awaited.remove(&channel);
    }

    pub(crate) fn refuse_reply(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(AwaitedReply { from }) = self.replies.awaited.remove(&channel) {
            peers.tell(from, channel, FromHome::Ended(End::Gone));
        }
    }

    pub(crate) fn hold_reply(&mut self, peers: &mut impl Peers, channel: ChannelId, caller: Contact) -> bool {
        let is_known = self.replies.held.contains_key(&channel)
            || self.has_half(channel)
            || (!peers.is_me(caller.node) && (self.has_home(channel) || self.replies.awaited.contains_key(&channel)));
        // No honest node gives two ends one number.
        if is_known || peers.is_over(caller) {
            return false;
        }
        let Some(paid_by) = peers.pay_for_end(channel, caller) else {
            peers.answer_unless_over(caller, Frame::ToHome(channel, ToHome::Ended(End::Lost)));
            return false;
        };
        self.replies.held.insert(channel, HeldReply { caller, paid_by });
        true
    }

    pub(crate) fn reply(&mut self, peers: &mut impl Peers, channel: ChannelId, reply: Bytes) -> bool {
        self.answer_call(peers, channel, ToHome::Reply(reply))
    }

    pub(crate) fn end_reply(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        self.answer_call(peers, channel, ToHome::Ended(End::Gone));
    }

    fn answer_call(&mut self, peers: &mut impl Peers, channel: ChannelId, answer: ToHome) -> bool {
        let Some(held) = self.replies.held.remove(&channel) else { return false };
        peers.free_end(held.paid_by);
        peers.say(held.caller.node, Frame::ToHome(channel, answer));
        true
    }

    pub(crate) fn stretch_reply(&mut self, peers: &mut impl Peers, channel: ChannelId) -> Option<(NodeId, u64)> {
        let held = self.replies.held.remove(&channel)?;
        let (caller, terms) = (held.caller.node, terms(peers.config().value_max));
        peers.say(caller, Frame::ToHome(channel, ToHome::ReplyComes));
        let is_adopted = self.adopt(peers, channel, caller, Some(terms));
        match self.proxies.get_mut(&channel).filter(|_| is_adopted) {
            Some(proxy) => proxy.paid_by = held.paid_by,
            None => peers.free_end(held.paid_by),
        }
        is_adopted.then_some((caller, terms.value_max))
    }

    /// Handles a frame of the node with a place. `false`: the frame is not about one.
    #[inline]
    pub(super) fn hear_reply(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: &ToHome,
    ) -> bool {
        let replied = match said {
            ToHome::Reply(reply) => Replied::Value(reply.clone()),
            ToHome::ReplyComes => Replied::Comes(from),
            ToHome::Ended(End::Gone) => Replied::None,
            ToHome::Ended(_) => Replied::Lost,
            // The place has gone on to this node, whose word is faster than that of the one before it.
            ToHome::Take(_) => {
                if let Some(AwaitedReply { from: holder }) = self.replies.awaited.get(&channel).copied()
                    && holder != from
                {
                    self.hear_replied(peers, holder, channel, Replied::Comes(holder));
                }
                return false;
            }
            _ => return false,
        };
        self.hear_replied(peers, from, channel, replied)
    }

    fn hear_replied(&mut self, peers: &mut impl Peers, from: NodeId, channel: ChannelId, replied: Replied) -> bool {
        let channel = match planted!(LateReply) && matches!(replied, Replied::Value(_)) {
            true if self.replies.awaited.contains_key(&channel) => channel,
            true => self.replies.awaited.of(from).first().copied().unwrap_or(channel),
            false => channel,
        };
        if self.replies.awaited.get(&channel).is_none_or(|awaited| awaited.from != from) {
            let is_about_one = matches!(replied, Replied::Value(_) | Replied::Comes(_));
            // (Perhaps its channel is here already.)
            if is_about_one && !self.has_home(channel) {
                peers.hears_nothing(from);
            }
            return is_about_one;
        }
        self.replies.awaited.remove(&channel);
        if let Replied::Comes(_) = replied {
            let schema = Bytes::new();
            let declaration = Declaration { face: Face::Receiver, shared: false, expects: Expected::Unknown, schema };
            let terms = terms(peers.config().value_max);
            self.open_home_to(peers, channel, terms, declaration, from);
        }
        peers.act(Action::Replied(channel, replied));
        true
    }

    /// Handles a frame to the holder of a place. `false`: the frame is not one.
    #[inline]
    pub(super) fn hear_caller(
        &mut self,
        peers: &mut impl Peers,
        from: NodeId,
        channel: ChannelId,
        said: &FromHome,
    ) -> Result<bool, PeerMisbehaved> {
        if self.replies.held.get(&channel).is_none_or(|held| held.caller.node != from) {
            return Ok(false);
        }
        match said {
            FromHome::Ended(_) => {
                self.unwanted(peers, channel);
                Ok(true)
            }
            _ => Err(PeerMisbehaved::NotTheHome),
        }
    }

    /// No caller waits for this reply any more.
    fn unwanted(&mut self, peers: &mut impl Peers, channel: ChannelId) {
        if let Some(held) = self.replies.held.remove(&channel) {
            peers.free_end(held.paid_by);
            peers.act(Action::Unwanted(channel));
        }
    }

    /// The connection to a node is over: no reply comes from it, and none goes to it.
    pub(super) fn settle_replies(&mut self, peers: &mut impl Peers, node: NodeId) {
        for channel in self.replies.awaited.of(node) {
            self.replies.awaited.remove(&channel);
            peers.act(Action::Replied(channel, Replied::Lost));
        }
        for channel in self.replies.held.of(node) {
            self.unwanted(peers, channel);
        }
    }
}
