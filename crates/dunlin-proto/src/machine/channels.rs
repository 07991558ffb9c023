//! The driver's methods for channels. Most go to [`Channels`](crate::channel::Channels) unchanged, with the
//! endpoint as their peers.

use std::sync::Arc;

use bytes::Bytes;

use super::{Endpoint, Machine};
use crate::channel::{Arrival, Channels, Leaving, Passage, ReceiverPlace, SenderPlace, Stand, Trip, Unsettled};
use crate::id::{ChannelId, ChoiceId, Contact, Life, NodeId, Request, Ticket};
use crate::time::Time;
use crate::wire::codec::WireError;
use crate::wire::{Declaration, End, Failure, Frame, Read, Terms, Which};

/// Methods that the channels have under the same names: those for an event that happens `now`, those that
/// need their peers at any time, and those that only `look`.
macro_rules! of_channels {
    (
        now { $(
            $(#[$now_attribute:meta])*
            pub fn $now:ident(&mut self, now: Time $(, $now_argument:ident: $now_type:ty)* $(,)?) $(-> $now_output:ty)?;
        )* }
        any_time { $(
            $(#[$any_attribute:meta])*
            pub fn $any:ident(&mut self $(, $any_argument:ident: $any_type:ty)* $(,)?) $(-> $any_output:ty)?;
        )* }
        look { $(
            $(#[$look_attribute:meta])*
            pub fn $look:ident(&self $(, $look_argument:ident: $look_type:ty)* $(,)?) $(-> $look_output:ty)?;
        )* }
    ) => {
        impl Machine {
            $(
                $(#[$now_attribute])*
                pub fn $now(&mut self, now: Time $(, $now_argument: $now_type)*) $(-> $now_output)? {
                    let (channels, peers) = self.at(now);
                    channels.$now(peers $(, $now_argument)*)
                }
            )*
            $(
                $(#[$any_attribute])*
                pub fn $any(&mut self $(, $any_argument: $any_type)*) $(-> $any_output)? {
                    self.channels.$any(&mut self.endpoint $(, $any_argument)*)
                }
            )*
            $(
                $(#[$look_attribute])*
                pub fn $look(&self $(, $look_argument: $look_type)*) $(-> $look_output)? {
                    self.channels.$look($($look_argument),*)
                }
            )*
        }
    };
}

of_channels! {
    now {
        /// The receiver of this channel has arrived in a message from that node, where its sender stays. As
        /// [`open_home_to`](Self::open_home_to); the giver's source is charged for it until it ends here.
        ///
        /// `false`: there is no room for it, and the sender is notified that it is lost.
        #[must_use = "`false`: nothing is here for the receiver that came"]
        pub fn open_home_given(
            &mut self,
            now: Time,
            channel: ChannelId,
            terms: Terms,
            declaration: impl Into<Arc<Declaration>>,
            giver: Contact,
        ) -> bool;

        /// The receiver of the message has taken it with the sender of this channel, and that sender's new
        /// half needs the terms.
        pub fn tell_terms(&mut self, now: Time, channel: ChannelId, to: NodeId, terms: Terms);

        /// A receive has returned the value of this offer. `false`: its node is lost, and is not notified.
        pub fn taken(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool;

        /// An extended receive has returned the value. `false`: its node is lost, and is not notified.
        pub fn held(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool;

        /// The extended receive is over.
        pub fn released(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket);

        /// The offer has failed.
        pub fn failed(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, why: Failure);

        /// The offer that was to be [withdrawn](crate::HomeHears::Withdraw) has not been taken.
        pub fn withdrawn(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket);

        /// The value of this offer is to be forwarded to another node, but the ends in it are encoded for
        /// this node only: the sender has to encode it again. This ends an offer of a value; for a choice's,
        /// call [`abort`](Self::abort) too. `false`: its sender is gone, and sends nothing any more.
        pub fn onward(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool;

        /// From now on this half offers values of at least `size` bytes
        /// [unread](crate::HomeHears::OfferedUnread), or none if `size` is zero. Existing offers stay as they
        /// are.
        pub fn unread(&mut self, now: Time, channel: ChannelId, from: NodeId, size: u64);

        /// Requests the value that a choice offers.
        pub fn reserve(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, request: Request);

        /// Gives a reservation up.
        pub fn abort(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket);

        /// Declines a [grant](crate::HomeHears::Granted). A newer request for the same offer stands.
        pub fn decline(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, request: Request);

        /// Grants `count` more places for values sent on credit.
        pub fn credit(&mut self, now: Time, channel: ChannelId, to: NodeId, count: u32);

        /// The channel has ended here. The driver must first report what became of every offer that it has
        /// not taken.
        ///
        /// Values sent on credit still arrive until the sending halves have noticed
        /// ([`HomeHears::Sent`](crate::HomeHears::Sent)). After [`End::Retired`] they are for the receiver;
        /// otherwise no receive gets them, but their ends have arrived and are dropped here. A retired home
        /// therefore still has to answer [`HomeHears::Take`](crate::HomeHears::Take), until its receiver is
        /// [gone](End::Gone) too.
        pub fn end_home(&mut self, now: Time, channel: ChannelId, how: End);

        /// The sender of this channel is here, and its home at that node. Offers may follow at once. The
        /// previous half must have ended ([`has_half`](Self::has_half)), otherwise its open offers would be
        /// lost.
        ///
        /// # Errors
        /// The declaration is too long to be sent; then there is no sender here.
        pub fn attach(
            &mut self,
            now: Time,
            channel: ChannelId,
            home: NodeId,
            declaration: Declaration,
        ) -> Result<(), WireError>;

        /// As [`attach`](Self::attach), for a sender that has arrived in a message from that node. The node's
        /// source is charged for it until it ends here.
        ///
        /// `false`: that channel is here already; or there is no room for it, and its home is notified that
        /// it is lost.
        #[must_use = "`false`: nothing is here for what was adopted"]
        pub fn adopt_given(
            &mut self,
            now: Time,
            channel: ChannelId,
            giver: Contact,
            terms: Option<Terms>,
        ) -> bool;

        /// No caller waits any more for the reply that is [awaited](Self::await_reply) in this place. The
        /// node that has the place, if it has, is notified.
        pub fn refuse_reply(&mut self, now: Time, channel: ChannelId);

        /// The place for the reply to a call has arrived in a message from that node, which
        /// [awaits](Self::await_reply) the reply. The node's source is charged for the place until the reply
        /// [is given](Self::reply), or no caller [waits](crate::Action::Unwanted).
        ///
        /// `false`: a channel of that number is here already; or there is no room for it, and the caller is
        /// notified that it is lost; or that life of the connection is over.
        #[must_use = "`false`: nothing is here for what was adopted"]
        pub fn hold_reply(&mut self, now: Time, channel: ChannelId, caller: Contact) -> bool;

        /// Sends the reply, of at most [`REPLY`](crate::wire::limits::REPLY) bytes. `false`: no caller waits.
        pub fn reply(&mut self, now: Time, channel: ChannelId, reply: Bytes) -> bool;

        /// The place was dropped without a reply.
        pub fn end_reply(&mut self, now: Time, channel: ChannelId);

        /// Makes the place a sending half, and opens its home at the caller's node: for a larger reply, one
        /// with ends, or a place that is sent to another node. Returns the caller's node, and the largest
        /// value that it takes. `None`: no caller waits.
        pub fn stretch_reply(&mut self, now: Time, channel: ChannelId) -> Option<(NodeId, u64)>;

        /// Offers a value. Events about it carry its number.
        pub fn offer(&mut self, now: Time, channel: ChannelId, ticket: Ticket, value: Bytes);

        /// Offers a value that stays here: `place` is where it can be [read](Self::read).
        pub fn offer_unread(&mut self, now: Time, channel: ChannelId, ticket: Ticket, place: Bytes);

        /// Offers a value again that the previous home had ([`ProxyHears::Moved`](crate::ProxyHears::Moved)).
        /// Does nothing if the offer has been withdrawn since: an answer to that follows.
        pub fn offer_again(&mut self, now: Time, channel: ChannelId, ticket: Ticket, value: Bytes);

        /// Offers a choice's send. [`ProxyHears::Reserve`](crate::ProxyHears::Reserve) requests the value.
        pub fn offer_choice(&mut self, now: Time, channel: ChannelId, ticket: Ticket, choice: ChoiceId);

        /// Grants a [request](crate::ProxyHears::Reserve) with the value. A value larger than the terms allow
        /// is not sent: its offer is withdrawn.
        ///
        /// `false`: no request with this number is open, and no event about it will follow. A newer request
        /// may already be on its way to the driver.
        pub fn grant(
            &mut self,
            now: Time,
            channel: ChannelId,
            ticket: Ticket,
            request: Request,
            value: Bytes,
        ) -> bool;

        /// As [`grant`](Self::grant), with the place where the value can be [read](Self::read).
        pub fn grant_unread(
            &mut self,
            now: Time,
            channel: ChannelId,
            ticket: Ticket,
            request: Request,
            place: Bytes,
        ) -> bool;

        /// Sends a value on a credit: no event about it follows. `false`: it was not sent, because there is
        /// no credit or no channel, or the value is larger than the terms allow.
        pub fn send_on_credit(&mut self, now: Time, channel: ChannelId, value: Bytes) -> bool;

        /// Withdraws an offer. [`ProxyHears::Withdrawn`](crate::ProxyHears::Withdrawn) answers, or the
        /// outcome of the offer. If it has not been sent yet, the answer comes at once.
        pub fn withdraw(&mut self, now: Time, channel: ChannelId, ticket: Ticket);

        /// Revokes a grant.
        pub fn revoke(&mut self, now: Time, channel: ChannelId, ticket: Ticket);

        /// The sending half has ended the channel, or ([`End::Gone`], [`End::Lost`]) is gone; its offers
        /// stay.
        pub fn end_proxy(&mut self, now: Time, channel: ChannelId, how: End);

        /// Answers [`HomeHears::Take`](crate::HomeHears::Take) with the terms for the half at that node from
        /// now on.
        pub fn admit(&mut self, now: Time, channel: ChannelId, node: NodeId, terms: Terms);

        /// The message with the receiver has not been taken. If its channel has ended since,
        /// [`HomeHears::Failed`](crate::HomeHears::Failed) follows.
        pub fn receiver_stays(&mut self, now: Time, channel: ChannelId, trip: Trip);

        /// That node has taken the message with the receiver. `false`: the receiver is here again already.
        pub fn receiver_left(&mut self, now: Time, channel: ChannelId, trip: Trip, taker: Contact) -> bool;

        /// Whether the message with the receiver was taken is unknown. `true`: the receiver is here again,
        /// unless another node uses it or its channel has ended: then
        /// [`HomeHears::Failed`](crate::HomeHears::Failed) follows. `false`: the message was taken.
        pub fn receiver_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool;

        /// This node has taken a message from `giver` with a receiver.
        pub fn receiver_arrives(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: ReceiverPlace,
            giver: Contact,
        ) -> Arrival;

        /// The receiver is used here, and its home is to move here.
        /// [`HomeHears::Arrived`](crate::HomeHears::Arrived) or
        /// [`HomeHears::Failed`](crate::HomeHears::Failed) follows.
        pub fn use_receiver(&mut self, now: Time, channel: ChannelId);

        /// The receiver has been dropped here while it was a [guest](Self::is_guest).
        pub fn drop_receiver(&mut self, now: Time, channel: ChannelId);

        /// Answers [`HomeHears::Leave`](crate::HomeHears::Leave): the driver has nothing more to report about
        /// values taken here.
        pub fn leave_home(&mut self, now: Time, channel: ChannelId);

        /// Answers [`HomeHears::Empty`](crate::HomeHears::Empty) with the values of the channel's buffer, in
        /// order. This node keeps nothing of it.
        pub fn ship(&mut self, now: Time, channel: ChannelId, values: Vec<Bytes>);

        /// Answers [`HomeHears::Arrived`](crate::HomeHears::Arrived): the receiver is ready for use here.
        pub fn install(&mut self, now: Time, channel: ChannelId);

        /// Packs the sender of this channel into a message, and returns what the message has to carry. Call
        /// [`sender_left`](Self::sender_left) when the message is taken, [`sender_stays`](Self::sender_stays)
        /// if it is not, [`sender_back`](Self::sender_back) if that is unknown.
        pub fn pack_sender(&mut self, now: Time, channel: ChannelId) -> Leaving<SenderPlace>;

        /// The message with the sender has not been taken.
        pub fn sender_stays(&mut self, now: Time, channel: ChannelId, trip: Trip);

        /// That node has taken the message with the sender. `false`: the sender is here again already.
        pub fn sender_left(&mut self, now: Time, channel: ChannelId, trip: Trip, taker: Contact) -> bool;

        /// Whether the message with the sender was taken is unknown. `true`: the sender is here again, unless
        /// the home reports that another node has it. `false`: the message was taken.
        pub fn sender_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool;

        /// This node has taken a message from `giver` with a sender. If a sender is here that has been
        /// replaced elsewhere, that one [is lost](crate::ProxyHears::Lost) first.
        pub fn sender_arrives(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: SenderPlace,
            giver: Contact,
        ) -> Arrival;

        /// The sender is used here, and its home has to be notified.
        pub fn use_sender(&mut self, now: Time, channel: ChannelId);

        /// Whether a message with an end of this [pair](Self::pair) was taken is unknown. Both ends are here,
        /// and belong to this node. If another node has taken the message after all, it is notified that the
        /// end is lost.
        pub fn unpair(&mut self, now: Time, channel: ChannelId);

        /// `to` has taken that message, and the end named by `which` is now that node's. Earlier reports that
        /// this node answers for the end no longer count: `to` already has the end, by another way or despite
        /// the present holder.
        pub fn end_taken(&mut self, now: Time, channel: ChannelId, which: Which, trip: Trip, to: NodeId);

        /// A sender that arrived in a message from `giver`, in this state, has left for `taker` in message
        /// `trip`. Both messages have been taken.
        pub fn sender_passed(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: SenderPlace,
            giver: Contact,
            taken: (Contact, Trip),
        );

        /// As [`sender_passed`](Self::sender_passed), for a receiver.
        pub fn receiver_passed(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: ReceiverPlace,
            giver: Contact,
            taken: (Contact, Trip),
        );

        /// This node is leaving, and waits until nothing is [unsettled](Self::unsettled). From now on it asks
        /// each holder of an unused end from here to use it, so that the holder needs this node no more.
        /// Otherwise an end that stays unused would be lost.
        pub fn hurry(&mut self, now: Time);

        /// Uses this receiver, if it has arrived here in a message and is not in another one now.
        pub fn use_resting(&mut self, now: Time, channel: ChannelId);
    }

    any_time {
        /// The receiver of this channel is here: sending halves may attach. `many`: from several nodes.
        ///
        /// The terms' `value_max` is lowered to the configuration's.
        ///
        /// # Errors
        /// The declaration is too long to be sent to a sender that does not fit; then there is no home here.
        pub fn open_home(
            &mut self,
            channel: ChannelId,
            terms: Terms,
            declaration: impl Into<Arc<Declaration>>,
            many: bool,
        ) -> Result<(), WireError>;

        /// The receiver of this channel is here, and its sender is in a message to this node, which calls
        /// [`Machine::adopt`] when it takes that. Call this when the message is sent: frames of the sender's
        /// new half may directly follow the notice that the message was taken.
        pub fn open_home_to(
            &mut self,
            channel: ChannelId,
            terms: Terms,
            declaration: impl Into<Arc<Declaration>>,
            node: NodeId,
        );

        /// The message with the receiver of this channel has not been taken: no other node knows the channel.
        pub fn forget_half(&mut self, channel: ChannelId);

        /// The message with the sender of this channel has not been taken: no other node knows the channel.
        pub fn forget_home(&mut self, channel: ChannelId);

        /// The sender of this channel is here, brought by a message from its home, where the driver calls
        /// [`Machine::open_home_to`]. `terms`: those that both sides know already; otherwise the home sends
        /// them.
        ///
        /// `false`: that channel is here already. The id came from another node, and must not replace an
        /// existing channel.
        #[must_use = "`false`: nothing is here for what was adopted"]
        pub fn adopt(&mut self, channel: ChannelId, home: NodeId, terms: Option<Terms>) -> bool;

        /// Packs the receiver of this channel into a message, and returns what the message has to carry. As
        /// [`pack_sender`](Self::pack_sender).
        pub fn pack_receiver(&mut self, channel: ChannelId) -> Leaving<ReceiverPlace>;

        /// Both ends of this channel are here, and one of them may leave: the machine keeps track of it from
        /// now on.
        pub fn pair(&mut self, channel: ChannelId, terms: Terms);

        /// For a driver that did not handle the sender here before: what the home grants to it, and how many
        /// of the remaining credits the driver may use at once; events announce more. `None`: the home has
        /// not sent the terms.
        pub fn terms_of(&mut self, channel: ChannelId) -> Option<(Terms, u32)>;

        /// `values` values that were [sent on credits](crate::HomeHears::Sent), `bytes` bytes in all, have
        /// left the buffer of this home, the oldest first, or were never put there. Until this call the node
        /// keeps their room charged to their sender.
        pub fn drained(&mut self, channel: ChannelId, values: u64, bytes: u64);

        /// A receive waits on this channel, where a value was [announced](crate::HomeHears::Announced). Such
        /// a value is admitted before those that no receive waits for, and into room that they leave.
        pub fn awaited(&mut self, channel: ChannelId);

        /// A guest of that node connects to an acceptor here, with these channels. Each counts as a half of
        /// that node until it ends here. Call this before they are opened and attached.
        ///
        /// # Errors
        /// There is no room for them; the error is the limit for all nodes.
        pub fn keep_guest(&mut self, node: NodeId, channels: impl IntoIterator<Item = ChannelId>) -> Result<(), u64>;

        /// These channels have not been opened: the guest is not admitted.
        pub fn forget_guest(&mut self, channels: impl IntoIterator<Item = ChannelId>);
    }

    look {
        /// What the home of this channel grants to a sending half that attaches.
        pub fn granted_at(&self, channel: ChannelId) -> Option<Terms>;

        /// Whether a sending half of this channel is here, or open offers of one that is gone.
        pub fn has_half(&self, channel: ChannelId) -> bool;

        /// Whether anything of this channel is here, its home or a half.
        pub fn knows(&self, channel: ChannelId) -> bool;

        /// Whether it [knows](Self::knows) any of `count` channels, at least one, numbered from `first`. The
        /// cost does not depend on `count`.
        pub fn knows_any(&self, first: ChannelId, count: u128) -> bool;

        /// Whether the home is known and reachable. Until then values [sent on credits](Self::send_on_credit)
        /// wait here, and are dropped if the channel ends; no event would report the ends in them.
        pub fn speaks_to_home(&self, channel: ChannelId) -> bool;

        /// How many credits a half that [takes](crate::HomeHears::Take) already has, from this home or the
        /// previous one: it must be granted no fewer.
        pub fn credits_of(&self, channel: ChannelId, node: NodeId) -> u32;

        /// Whether the receiver of this channel is here.
        pub fn has_home(&self, channel: ChannelId) -> bool;

        /// Whether the receiver is in a message, or at another node.
        pub fn receiver_is_away(&self, channel: ChannelId) -> bool;

        /// Whether the receiver of the home here is in a message that may or may not have been taken.
        pub fn receiver_is_packed(&self, channel: ChannelId) -> bool;

        /// Whether no node has a sending half.
        pub fn home_is_left(&self, channel: ChannelId) -> bool;

        /// The home of the sender that is here, as far as this node knows.
        pub fn home_of(&self, channel: ChannelId) -> Option<NodeId>;

        /// Whether the sender here has retired its channel. If the sender has come back, its agent is a new
        /// one that does not know.
        pub fn has_retired(&self, channel: ChannelId) -> bool;

        /// Whether this end arrived here in a message and has not been used. It may travel on in a message
        /// that waits for its receive. On a credit it may travel only after use, since frames about it
        /// overtake such a message.
        pub fn is_guest(&self, channel: ChannelId, which: Which) -> bool;

        /// The state of this channel here.
        pub fn stand(&self, channel: ChannelId) -> Stand;

        /// The passages of this channel's ends that are under way, each with the node concerned.
        pub fn passages(&self, channel: ChannelId) -> Vec<(Passage, NodeId)>;
    }
}

impl Machine {
    /// The channels and their peers, for an event that happens `now`.
    pub(super) fn at(&mut self, now: Time) -> (&mut Channels, &mut Endpoint) {
        self.endpoint.now = now;
        (&mut self.channels, &mut self.endpoint)
    }

    /// The sending half of this channel will be at that node, and at no other. If the connection with it ends
    /// before the half has attached, the home is notified that it is [lost](crate::HomeHears::Lost).
    pub fn await_half(&mut self, channel: ChannelId, node: NodeId) {
        self.channels.await_half(channel, node)
    }

    /// A request of this node goes to that node, with this place for its reply. An
    /// [event](crate::Action::Replied) tells the outcome, unless the place is [forgotten](Self::forget_reply)
    /// or the reply [refused](Self::refuse_reply) before.
    pub fn await_reply(&mut self, channel: ChannelId, from: NodeId) {
        self.channels.await_reply(channel, from)
    }

    /// The request was not taken, as far as this node knows: its place is for nothing.
    pub fn forget_reply(&mut self, channel: ChannelId) {
        self.channels.forget_reply(channel)
    }

    /// Values that this sender sends on credits are likely to have `bytes` bytes. Call this before the first
    /// is sent: until then they are assumed to be large, and the driver gets few credits.
    pub fn expect_values(&mut self, channel: ChannelId, bytes: u64) {
        self.channels.expect_values(channel, bytes)
    }

    /// A message with an end in it is to pass through this node: returns its number. Call
    /// [`sender_passed`](Self::sender_passed) or [`receiver_passed`](Self::receiver_passed) when it has been
    /// taken, else [`end_stays`](Self::end_stays).
    pub fn passes(&mut self) -> Trip {
        self.channels.passes()
    }

    /// That message has not been taken, or that is unknown.
    pub fn end_stays(&mut self, trip: Trip) {
        self.channels.end_stays(trip)
    }

    /// Requests the value under this key from that node, to be sent over this channel, whose home is
    /// [open](Self::open_home_to) here for it.
    pub fn read(&mut self, now: Time, node: NodeId, channel: ChannelId, read: Read) {
        self.endpoint.say(now, node, Frame::Read(channel, read));
    }

    /// The ends that this node has put into messages and answers for: if it leaves now, they are lost.
    pub fn unsettled(&self) -> impl Iterator<Item = Unsettled> {
        self.channels.unsettled().map(|(channel, which, holder)| Unsettled {
            channel,
            which,
            holder: holder.and_then(|node| self.life_of(node)),
        })
    }

    /// The present or last known life of that node.
    fn life_of(&self, node: NodeId) -> Option<Life> {
        let incarnation = self.endpoint.connections.get(node)?.met?;
        Some(Life { node, incarnation })
    }
}
