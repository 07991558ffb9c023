//! What drivers say of channels. Most of it goes to [`Channels`](crate::channel::Channels) as it is, with the
//! endpoint as their peers.

use std::sync::Arc;

use bytes::Bytes;

use super::{Endpoint, Machine};
use crate::channel::{Arrival, Channels, Leaving, Passage, ReceiverPlace, SenderPlace, Stand, Trip, Unsettled};
use crate::id::{ChannelId, ChoiceId, Contact, Life, NodeId, Request, Ticket};
use crate::time::Time;
use crate::wire::codec::WireError;
use crate::wire::{Declaration, End, Failure, Frame, Read, Terms, Which};

/// Methods that the channels have under the same names: those of something that happens `now`, those that
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
        /// The receiver of this channel has come in a message from that node, where its sender stays. As
        /// [`open_home_to`](Self::open_home_to); and the giver's source pays for it until it is over here.
        ///
        /// `false`: there is no room for it, and the sender hears that it is lost.
        #[must_use = "`false`: nothing is here for the receiver that came"]
        pub fn open_home_given(
            &mut self,
            now: Time,
            channel: ChannelId,
            terms: Terms,
            declaration: impl Into<Arc<Declaration>>,
            giver: Contact,
        ) -> bool;

        /// The message with the sender of this channel has been taken, and its new half has to know the
        /// terms.
        pub fn tell_terms(&mut self, now: Time, channel: ChannelId, to: NodeId, terms: Terms);

        /// A receive has returned the value of this offer. `false`: its node is lost, and does not hear of
        /// it.
        pub fn taken(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool;

        /// An extended receive has returned the value. `false`: its node is lost, and does not hear of it.
        pub fn held(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool;

        /// The extended receive is over.
        pub fn released(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket);

        /// The offer has failed.
        pub fn failed(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, why: Failure);

        /// The offer that was [asked back](crate::HomeHears::Withdraw) has not been taken.
        pub fn withdrawn(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket);

        /// The value of this offer is to go on to another node, and the ends in it are said so that only this
        /// one can use them: it has to be said anew. An offer of a value is over with this; of a choice's say
        /// [`abort`](Self::abort), too. `false`: its sender is gone, and says nothing any more.
        pub fn onward(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket) -> bool;

        /// From here on values of so many bytes or more are to be [offered
        /// unread](crate::HomeHears::OfferedUnread) by this half, and with zero none any more. What is
        /// offered already stays as it is.
        pub fn unread(&mut self, now: Time, channel: ChannelId, from: NodeId, size: u64);

        /// Asks for what a choice offers.
        pub fn reserve(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, request: Request);

        /// Gives a reservation up.
        pub fn abort(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket);

        /// A [grant](crate::HomeHears::Granted) is not wanted any more. If it has been asked for anew
        /// meanwhile, that request stands.
        pub fn decline(&mut self, now: Time, channel: ChannelId, from: NodeId, ticket: Ticket, request: Request);

        /// So many more places for values that are sent on credit.
        pub fn credit(&mut self, now: Time, channel: ChannelId, to: NodeId, count: u32);

        /// The channel has ended here. What was offered and not taken must have been told before.
        ///
        /// Values that went on a credit still arrive until the sending halves have noticed
        /// ([`HomeHears::Sent`](crate::HomeHears::Sent)): after [`End::Retired`] for the receiver, else for
        /// nobody, but the ends in them have come, and are dropped here. So a home that is retired still has
        /// to answer [`HomeHears::Take`](crate::HomeHears::Take), until its receiver is [gone](End::Gone),
        /// too.
        pub fn end_home(&mut self, now: Time, channel: ChannelId, how: End);

        /// The sender of this channel is here, its home at that node. Offers may follow at once. The half
        /// before it has to be over ([`has_half`](Self::has_half)): what is still open on it would be
        /// forgotten.
        ///
        /// # Errors
        /// The declaration is too long to be sent; there is no sender here then.
        pub fn attach(
            &mut self,
            now: Time,
            channel: ChannelId,
            home: NodeId,
            declaration: Declaration,
        ) -> Result<(), WireError>;

        /// The same, of a sender that has come in a message from that node: its source pays for it until it
        /// is over here.
        ///
        /// `false`: that channel is here already; or there is no room for it, and its home hears that it is
        /// lost.
        #[must_use = "`false`: nothing is here for what was adopted"]
        pub fn adopt_given(
            &mut self,
            now: Time,
            channel: ChannelId,
            giver: Contact,
            terms: Option<Terms>,
        ) -> bool;

        /// Offers a value. What becomes of it is heard under its number.
        pub fn offer(&mut self, now: Time, channel: ChannelId, ticket: Ticket, value: Bytes);

        /// Offers a value that stays here: `place` says where it can be [read](Self::read).
        pub fn offer_unread(&mut self, now: Time, channel: ChannelId, ticket: Ticket, place: Bytes);

        /// Offers a value again that the home before this one had
        /// ([`ProxyHears::Moved`](crate::ProxyHears::Moved)). Nothing happens if it has been asked back
        /// since: that is answered.
        pub fn offer_again(&mut self, now: Time, channel: ChannelId, ticket: Ticket, value: Bytes);

        /// Offers what a choice would send; the value is asked for by
        /// [`ProxyHears::Reserve`](crate::ProxyHears::Reserve).
        pub fn offer_choice(&mut self, now: Time, channel: ChannelId, ticket: Ticket, choice: ChoiceId);

        /// Hands over what was [asked for](crate::ProxyHears::Reserve). A value larger than the terms allow
        /// does not go: its offer is withdrawn.
        ///
        /// `false`: it is not asked for any more under this number, and nothing will be heard of it. Another
        /// request may have come behind this one, which the driver has yet to hear.
        pub fn grant(
            &mut self,
            now: Time,
            channel: ChannelId,
            ticket: Ticket,
            request: Request,
            value: Bytes,
        ) -> bool;

        /// The same, with the place where the value can be [read](Self::read).
        pub fn grant_unread(
            &mut self,
            now: Time,
            channel: ChannelId,
            ticket: Ticket,
            request: Request,
            place: Bytes,
        ) -> bool;

        /// Sends a value on a credit: nothing more will be heard of it. `false`: there is no credit, or no
        /// channel, or the value is larger than the terms allow; it has not been sent.
        pub fn send_on_credit(&mut self, now: Time, channel: ChannelId, value: Bytes) -> bool;

        /// Asks an offer back: [`ProxyHears::Withdrawn`](crate::ProxyHears::Withdrawn), or what became of it.
        /// If it has not been sent yet, that is known at once.
        pub fn withdraw(&mut self, now: Time, channel: ChannelId, ticket: Ticket);

        /// Asks for a reservation back.
        pub fn revoke(&mut self, now: Time, channel: ChannelId, ticket: Ticket);

        /// The sending half has ended the channel, or ([`End::Gone`], [`End::Lost`]) is gone; what it offered
        /// stays.
        pub fn end_proxy(&mut self, now: Time, channel: ChannelId, how: End);

        /// Answers [`HomeHears::Take`](crate::HomeHears::Take): what the half at that node may do from now
        /// on.
        pub fn admit(&mut self, now: Time, channel: ChannelId, node: NodeId, terms: Terms);

        /// The message with the receiver has not been taken. If its channel is over meanwhile:
        /// [`HomeHears::Failed`](crate::HomeHears::Failed).
        pub fn receiver_stays(&mut self, now: Time, channel: ChannelId, trip: Trip);

        /// The message with the receiver has been taken by that node. `false`: it is here again already.
        pub fn receiver_left(&mut self, now: Time, channel: ChannelId, trip: Trip, taker: Contact) -> bool;

        /// Nobody knows whether the message with the receiver was taken. `true`: it is here again, unless
        /// somebody else uses it, or its channel is over: then
        /// [`HomeHears::Failed`](crate::HomeHears::Failed). `false`: it was taken.
        pub fn receiver_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool;

        /// A receiver has come to this node in a message from `giver`, and was taken.
        pub fn receiver_arrives(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: ReceiverPlace,
            giver: Contact,
        ) -> Arrival;

        /// The receiver is used here: its home is to be here.
        /// [`HomeHears::Arrived`](crate::HomeHears::Arrived) or
        /// [`HomeHears::Failed`](crate::HomeHears::Failed) follows.
        pub fn use_receiver(&mut self, now: Time, channel: ChannelId);

        /// The receiver has been dropped here while it was a [guest](Self::is_guest).
        pub fn drop_receiver(&mut self, now: Time, channel: ChannelId);

        /// Answers [`HomeHears::Leave`](crate::HomeHears::Leave): nothing is to be said any more of what was
        /// taken here.
        pub fn leave_home(&mut self, now: Time, channel: ChannelId);

        /// Answers [`HomeHears::Empty`](crate::HomeHears::Empty): the values of the channel's buffer, in
        /// order. Nothing of it is here any more.
        pub fn ship(&mut self, now: Time, channel: ChannelId, values: Vec<Bytes>);

        /// Answers [`HomeHears::Arrived`](crate::HomeHears::Arrived): the receiver can be used here.
        pub fn install(&mut self, now: Time, channel: ChannelId);

        /// The sender of this channel is to go into a message: what that has to say. Say
        /// [`sender_left`](Self::sender_left) when the message is taken, [`sender_stays`](Self::sender_stays)
        /// if it is not, [`sender_back`](Self::sender_back) if nobody knows.
        pub fn pack_sender(&mut self, now: Time, channel: ChannelId) -> Leaving<SenderPlace>;

        /// The message with the sender has not been taken.
        pub fn sender_stays(&mut self, now: Time, channel: ChannelId, trip: Trip);

        /// The message with the sender has been taken by that node. `false`: it is here again already.
        pub fn sender_left(&mut self, now: Time, channel: ChannelId, trip: Trip, taker: Contact) -> bool;

        /// Nobody knows whether the message with the sender was taken. `true`: it is here again, unless the
        /// home says that another one has it. `false`: it was taken.
        pub fn sender_back(&mut self, now: Time, channel: ChannelId, trip: Trip) -> bool;

        /// A sender has come to this node in a message from `giver`, and was taken. If another one is here
        /// that has been replaced elsewhere, that one [is lost](crate::ProxyHears::Lost) first.
        pub fn sender_arrives(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: SenderPlace,
            giver: Contact,
        ) -> Arrival;

        /// The sender is used here: its home has to know.
        pub fn use_sender(&mut self, now: Time, channel: ChannelId);

        /// Nobody knows whether the message with an end of this [pair](Self::pair) was taken: both are here,
        /// and nobody else's. Whoever has taken it in spite of that, at whatever node, hears that it is lost.
        pub fn unpair(&mut self, now: Time, channel: ChannelId);

        /// That message has been taken by `to`, and the end of which it says `which` is that node's. What was
        /// told of this node's answering for it counts no more: it has the end already, by another way or in
        /// spite of who has it now.
        pub fn end_taken(&mut self, now: Time, channel: ChannelId, which: Which, trip: Trip, to: NodeId);

        /// A sender that came in a message from `giver`, with these words, has gone on in message `trip` to
        /// `taker`. Both have been taken.
        pub fn sender_passed(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: SenderPlace,
            giver: Contact,
            taken: (Contact, Trip),
        );

        /// As [`sender_passed`](Self::sender_passed), of a receiver.
        pub fn receiver_passed(
            &mut self,
            now: Time,
            channel: ChannelId,
            place: ReceiverPlace,
            giver: Contact,
            taken: (Contact, Trip),
        );

        /// This node is to leave, and waits until nothing is [unsettled](Self::unsettled): from now on
        /// whoever has an end from here, unused, is asked to use it, and need this node no more. Without that
        /// it would be lost, if nobody used it meanwhile.
        pub fn hurry(&mut self, now: Time);

        /// This receiver is used, if it has come here in a message, and is in no other one now.
        pub fn use_resting(&mut self, now: Time, channel: ChannelId);
    }

    any_time {
        /// The receiver of this channel is here: sending halves may attach. `many`: of several nodes.
        ///
        /// The terms' `value_max` is lowered to the configuration's.
        ///
        /// # Errors
        /// The declaration is too long to be sent to who does not fit; there is no home here then.
        pub fn open_home(
            &mut self,
            channel: ChannelId,
            terms: Terms,
            declaration: impl Into<Arc<Declaration>>,
            many: bool,
        ) -> Result<(), WireError>;

        /// The receiver of this channel is here, and its sender is in a message to this node, which says
        /// [`Machine::adopt`] when it takes that. To be said when the message is sent: what the sender's new
        /// half says may follow the word that it was taken at once.
        pub fn open_home_to(
            &mut self,
            channel: ChannelId,
            terms: Terms,
            declaration: impl Into<Arc<Declaration>>,
            node: NodeId,
        );

        /// The message with the receiver of this channel has not been taken: nobody has heard of the channel.
        pub fn forget_half(&mut self, channel: ChannelId);

        /// The message with the sender of this channel has not been taken: nobody has heard of the channel.
        pub fn forget_home(&mut self, channel: ChannelId);

        /// The sender of this channel is here since a message from its home brought it. `terms`: if both
        /// sides know them without a word; else the home tells them. The home says [`Machine::open_home_to`].
        ///
        /// `false`: that channel is here already. The number came from elsewhere, and must not take another's
        /// place.
        #[must_use = "`false`: nothing is here for what was adopted"]
        pub fn adopt(&mut self, channel: ChannelId, home: NodeId, terms: Option<Terms>) -> bool;

        /// The receiver of this channel is to go into a message: what that has to say. As
        /// [`pack_sender`](Self::pack_sender).
        pub fn pack_receiver(&mut self, channel: ChannelId) -> Leaving<ReceiverPlace>;

        /// Both ends of this channel are here, and one of them may leave: from now on the machine knows of
        /// it.
        pub fn pair(&mut self, channel: ChannelId, terms: Terms);

        /// For a driver that is new to the sender that is here: what the home grants to it, and how many of
        /// the credits that are left the driver may use at once; it is told of more. `None`: the home has not
        /// said.
        pub fn terms_of(&mut self, channel: ChannelId) -> Option<(Terms, u32)>;

        /// So many values that were [sent on credits](crate::HomeHears::Sent) have left the buffer of this
        /// home, the oldest first, or were never put there; of so many bytes in all. Until that is said this
        /// node keeps them for their sender.
        pub fn drained(&mut self, channel: ChannelId, values: u64, bytes: u64);

        /// A receive waits on this channel, where a value was [announced](crate::HomeHears::Announced): that
        /// goes before those that none waits for, and into room that they leave.
        pub fn awaited(&mut self, channel: ChannelId);

        /// A guest of that node comes to an acceptor here, and has these channels: each counts as a half of
        /// that node, from now on until it is over here. To be said before they are opened and attached.
        ///
        /// # Errors
        /// There is no room for them; so much there is for all nodes.
        pub fn keep_guest(&mut self, node: NodeId, channels: impl IntoIterator<Item = ChannelId>) -> Result<(), u64>;

        /// These channels have not been opened: the guest is not let in.
        pub fn forget_guest(&mut self, channels: impl IntoIterator<Item = ChannelId>);
    }

    look {
        /// What the home of this channel grants to a sending half that attaches.
        pub fn granted_at(&self, channel: ChannelId) -> Option<Terms>;

        /// Whether there is a sending half of this channel here, or what is open on one that is gone.
        pub fn has_half(&self, channel: ChannelId) -> bool;

        /// Whether anything of this channel is here, its home or a half.
        pub fn knows(&self, channel: ChannelId) -> bool;

        /// Whether it [knows](Self::knows) any of so many channels, one at least, that are numbered from this
        /// one. That costs the same however many they are.
        pub fn knows_any(&self, first: ChannelId, count: u128) -> bool;

        /// Whether the home is known and can be spoken to. Until then what is [sent on
        /// credits](Self::send_on_credit) waits here, and is dropped if the channel ends: of a value with
        /// ends in it nobody would hear.
        pub fn speaks_to_home(&self, channel: ChannelId) -> bool;

        /// So many credits a half that [takes](crate::HomeHears::Take) has already, of this home or the one
        /// before: it is to be granted no fewer.
        pub fn credits_of(&self, channel: ChannelId, node: NodeId) -> u32;

        /// Whether the receiver of this channel is here.
        pub fn has_home(&self, channel: ChannelId) -> bool;

        /// Whether the receiver is in a message, or elsewhere.
        pub fn receiver_is_away(&self, channel: ChannelId) -> bool;

        /// Whether the receiver of the home that is here is in a message of which it is not known whether it
        /// was taken.
        pub fn receiver_is_packed(&self, channel: ChannelId) -> bool;

        /// Whether no node has a sending half.
        pub fn home_is_left(&self, channel: ChannelId) -> bool;

        /// The home of the sender that is here, as far as this node knows.
        pub fn home_of(&self, channel: ChannelId) -> Option<NodeId>;

        /// Whether the sender that is here has retired its channel. If it has come back, its agent is another
        /// one, and does not know.
        pub fn has_retired(&self, channel: ChannelId) -> bool;

        /// Whether this end came to this node in a message and has not been used. It goes on in a message
        /// that waits for its receive; on a credit only when it has been used, for what is said of it
        /// overtakes such a message.
        pub fn is_guest(&self, channel: ChannelId, which: Which) -> bool;

        /// What is here of this channel.
        pub fn stand(&self, channel: ChannelId) -> Stand;

        /// How the ends of this channel stand with other nodes on their way.
        pub fn passages(&self, channel: ChannelId) -> Vec<(Passage, NodeId)>;
    }
}

impl Machine {
    /// The channels and their peers, for something that happens now.
    pub(super) fn at(&mut self, now: Time) -> (&mut Channels, &mut Endpoint) {
        self.endpoint.now = now;
        (&mut self.channels, &mut self.endpoint)
    }

    /// The sending half of this channel will be at that node, and at no other. If the connection to it is
    /// over before it has attached, the home hears that it is [lost](crate::HomeHears::Lost).
    pub fn await_half(&mut self, channel: ChannelId, node: NodeId) {
        self.channels.await_half(channel, node)
    }

    /// Values of this sender that are sent on credits are likely to have so many bytes. To be said before the
    /// first is sent: until then they are taken for large ones, and the driver is told of few credits.
    pub fn expect_values(&mut self, channel: ChannelId, bytes: u64) {
        self.channels.expect_values(channel, bytes)
    }

    /// A message with an end in it is to go through this node: its number.
    /// [`sender_passed`](Self::sender_passed) or [`receiver_passed`](Self::receiver_passed) follows when it
    /// has been taken, else [`end_stays`](Self::end_stays).
    pub fn passes(&mut self) -> Trip {
        self.channels.passes()
    }

    /// That message has not been taken, or nobody knows.
    pub fn end_stays(&mut self, trip: Trip) {
        self.channels.end_stays(trip)
    }

    /// Asks that node for the value under this key, to be sent over this channel, whose home is
    /// [open](Self::open_home_to) here for it.
    pub fn read(&mut self, now: Time, node: NodeId, channel: ChannelId, read: Read) {
        self.endpoint.say(now, node, Frame::Read(channel, read));
    }

    /// The ends that this node has put into messages, and answers for: if it leaves now, they are lost.
    pub fn unsettled(&self) -> impl Iterator<Item = Unsettled> {
        self.channels.unsettled().map(|(channel, which, holder)| Unsettled {
            channel,
            which,
            holder: holder.and_then(|node| self.life_of(node)),
        })
    }

    /// The life of a node that is, or was last, met.
    fn life_of(&self, node: NodeId) -> Option<Life> {
        let incarnation = self.endpoint.connections.get(node)?.met?;
        Some(Life { node, incarnation })
    }
}
