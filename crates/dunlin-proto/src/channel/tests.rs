//! A home and a sending half, each with peers that only record their calls: no handshake, no socket.

mod replies;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::*;
use crate::account::{Announced, cost};
use crate::config::Config;
use crate::connection::inbox::{Arrived, Begun};
use crate::connection::outbox::Recalled;
use crate::machine::Action;
use crate::misbehaved::PeerMisbehaved;
use crate::wire::{Expected, Face, Frame, FromHome, Kind, ToHome};

const CHANNEL: ChannelId = ChannelId(7);
const HOME: NodeId = NodeId(1);
const SENDER: NodeId = NodeId(2);
const TERMS: Terms = Terms { window: 2, credits: 0, value_max: 100 };

/// Peers that only record.
struct Recorder {
    config: Config,
    here: NodeId,
    said: Vec<(NodeId, Frame)>,
    heard: Vec<Action>,
    lost: BTreeSet<NodeId>,
    /// Whether sent frames are written at once, and cannot be recalled.
    writes: bool,
    /// How many more bytes of values may be queued.
    room: u64,
    /// Senders that wait for such room.
    short: Vec<ChannelId>,
    /// Bytes of values that are kept for each node.
    kept: BTreeMap<NodeId, u64>,
    announced: Option<Announced>,
    places: Vec<Place>,
    /// Frames that have changed nothing.
    nothing: usize,
}

impl Peers for Recorder {
    fn config(&self) -> &Config {
        &self.config
    }

    fn here(&self) -> NodeId {
        self.here
    }

    fn act(&mut self, action: Action) {
        self.heard.push(action);
    }

    fn contact(&self, node: NodeId) -> Contact {
        Contact { node, lives: 1 }
    }

    fn is_over(&self, contact: Contact) -> bool {
        self.lost.contains(&contact.node)
    }

    fn addresses_of_any(&self, node: NodeId) -> Vec<String> {
        vec![format!("address of {node}")]
    }

    fn hear_of(&mut self, _: NodeId, _: NodeId, _: &[String]) -> bool {
        true
    }

    fn connect(&mut self, _: NodeId) {}

    fn hears_nothing(&mut self, _: NodeId) {
        self.nothing += 1;
    }

    fn fit(&mut self, _: NodeId, here: &Declaration, there: &Declaration) -> bool {
        here.face != there.face
    }

    fn say(&mut self, node: NodeId, frame: Frame) {
        self.said.push((node, frame));
    }

    fn recall(&mut self, node: NodeId, channel: ChannelId, ticket: Ticket) -> Recalled {
        if self.writes {
            return Recalled::Sent;
        }
        let all = self.said.len();
        self.said.retain(|(to, frame)| {
            let is_offer = |head: &Head| matches!(head, Head::Offer(t) | Head::Unread(t) if *t == ticket);
            let said = matches!(frame, Frame::ToHome(c, ToHome::Value { head, .. }) if *c == channel && is_offer(head));
            !(*to == node && said)
        });
        if self.said.len() < all { Recalled::Unsent } else { Recalled::Sent }
    }

    fn recall_grant(&mut self, _: NodeId, _: ChannelId, _: Ticket) -> Recalled {
        Recalled::Sent
    }

    fn is_unsent(&self, _: NodeId, _: ChannelId, _: Ticket) -> bool {
        !self.writes
    }

    fn room_for(&self, _: NodeId, _: ChannelId) -> u64 {
        self.room
    }

    fn is_short(&mut self, _: NodeId, channel: ChannelId) {
        self.short.push(channel);
    }

    fn begin_value(&mut self, _: NodeId, _: ChannelId, value: Begun, first: Bytes) -> Arrived {
        assert_eq!(first.len() as u64, value.total, "values of these tests come whole");
        value.whole(first)
    }

    fn charge(
        &mut self,
        from: NodeId,
        _: ChannelId,
        total: u64,
        kept: bool,
        _: bool,
    ) -> Result<Charge, PeerMisbehaved> {
        if !kept {
            return Ok(Charge::NONE);
        }
        *self.kept.entry(from).or_default() += cost(total);
        Ok(Charge { bytes: cost(total), ..Charge::NONE })
    }

    fn give_back(
        &mut self,
        from: NodeId,
        channel: ChannelId,
        charge: Charge,
        place: impl FnOnce(Announced) -> Place,
    ) -> bool {
        let kept = self.kept.get_mut(&from).expect("nothing is given back that was not charged");
        *kept = kept.checked_sub(charge.bytes).expect("each charge is given back once");
        self.consider(from, channel, place)
    }

    fn consider(&mut self, _: NodeId, _: ChannelId, place: impl FnOnce(Announced) -> Place) -> bool {
        self.places.extend(self.announced.map(place));
        false
    }

    fn awaited(&mut self, _: NodeId, _: ChannelId) {}

    fn attach(&mut self, _: NodeId) -> Option<Charge> {
        Some(Charge::NONE)
    }

    fn pay_for_end(&mut self, _: ChannelId, _: Contact) -> Option<Option<Source>> {
        Some(None)
    }

    fn free_end(&mut self, _: Option<Source>) {}
}

/// One node.
struct Node {
    channels: Channels,
    peers: Recorder,
}

impl Node {
    fn new(here: NodeId) -> Self {
        let peers = Recorder {
            config: Config::new("tides"),
            here,
            said: Vec::new(),
            heard: Vec::new(),
            lost: BTreeSet::new(),
            writes: true,
            room: u64::MAX,
            short: Vec::new(),
            kept: BTreeMap::new(),
            announced: None,
            places: Vec::new(),
            nothing: 0,
        };
        Self { channels: Channels::default(), peers }
    }

    /// The events of the home's driver.
    fn home_heard(&mut self) -> Vec<HomeHears> {
        let heard = std::mem::take(&mut self.peers.heard).into_iter();
        heard.map(|action| if let Action::Home(_, _, heard) = action { heard } else { panic!("{action:?}") }).collect()
    }

    /// The events of the sending half's driver.
    fn sender_heard(&mut self) -> Vec<ProxyHears> {
        let heard = std::mem::take(&mut self.peers.heard).into_iter();
        heard.map(|action| if let Action::Proxy(_, heard) = action { heard } else { panic!("{action:?}") }).collect()
    }

    /// The frames sent on the channel, and the node that each is for.
    fn said(&mut self) -> Vec<(NodeId, Frame)> {
        std::mem::take(&mut self.peers.said)
    }

    fn hear(&mut self, from: NodeId, frame: Frame) -> Result<(), PeerMisbehaved> {
        match frame {
            Frame::ToHome(channel, said) => self.channels.hear_sender(&mut self.peers, from, channel, said),
            Frame::FromHome(channel, said) => self.channels.hear_home(&mut self.peers, from, channel, said),
            Frame::Travel(channel, said) => self.channels.hear_travel(&mut self.peers, from, channel, said),
            other => panic!("{other:?}"),
        }
    }

    /// Bytes that are kept here for that node.
    fn kept_for(&self, node: NodeId) -> u64 {
        self.peers.kept.get(&node).copied().unwrap_or(0)
    }
}

/// A home and a sending half, on two nodes.
struct Pair {
    home: Node,
    sender: Node,
}

impl Pair {
    /// The half is attached, and each driver has had that event.
    fn attached(terms: Terms) -> Self {
        let mut pair = Self { home: Node::new(HOME), sender: Node::new(SENDER) };
        pair.home.channels.open_home(&mut pair.home.peers, CHANNEL, terms, declared(Face::Receiver), false).unwrap();
        pair.sender.channels.attach(&mut pair.sender.peers, CHANNEL, HOME, declared(Face::Sender)).unwrap();
        pair.carry();
        assert_eq!(pair.home.home_heard(), [HomeHears::Attached]);
        assert_eq!(pair.sender.sender_heard(), [ProxyHears::Attached(terms)]);
        pair
    }

    /// Delivers frames in both directions until neither side sends more.
    fn carry(&mut self) {
        while !(self.home.peers.said.is_empty() && self.sender.peers.said.is_empty()) {
            for (to, frame) in self.sender.said() {
                assert_eq!(to, HOME);
                self.home.hear(SENDER, frame).expect("an honest word");
            }
            for (to, frame) in self.home.said() {
                assert_eq!(to, SENDER);
                self.sender.hear(HOME, frame).expect("an honest word");
            }
        }
    }

    fn offer(&mut self, ticket: Ticket, value: &'static str) {
        self.sender.channels.offer(&mut self.sender.peers, CHANNEL, ticket, value.into());
    }

    /// Makes an offer of a choice, and reserves it under that number.
    fn reserve(&mut self, ticket: Ticket, request: Request) {
        self.sender.channels.offer_choice(&mut self.sender.peers, CHANNEL, ticket, 99);
        self.carry();
        self.home.channels.reserve(&mut self.home.peers, CHANNEL, SENDER, ticket, request);
        self.carry();
        assert_eq!(self.home.home_heard(), [HomeHears::OfferedByChoice(ticket, 99)]);
        assert_eq!(self.sender.sender_heard(), [ProxyHears::Reserve(ticket, request)]);
    }

    fn grant(&mut self, ticket: Ticket, request: Request, value: &'static str) -> bool {
        self.sender.channels.grant(&mut self.sender.peers, CHANNEL, ticket, request, value.into())
    }

    fn send(&mut self, value: &'static str) -> bool {
        self.sender.channels.send_on_credit(&mut self.sender.peers, CHANNEL, value.into())
    }
}

fn declared(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

fn there(node: NodeId) -> Contact {
    Contact { node, lives: 1 }
}

#[test]
fn half_that_does_not_fit_is_rejected() {
    let mut pair = Pair { home: Node::new(HOME), sender: Node::new(SENDER) };
    let receiver = declared(Face::Receiver);
    pair.home.channels.open_home(&mut pair.home.peers, CHANNEL, TERMS, receiver.clone(), false).unwrap();
    pair.sender.channels.attach(&mut pair.sender.peers, CHANNEL, HOME, receiver.clone()).unwrap();
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Rejected(Rejection::Mismatch(receiver))]);
    assert!(!pair.sender.channels.has_half(CHANNEL) && pair.home.channels.home_is_left(CHANNEL));
}

#[test]
fn second_half_is_rejected_where_one_is_attached() {
    let mut pair = Pair::attached(TERMS);
    pair.home.hear(NodeId(3), Frame::ToHome(CHANNEL, ToHome::Attach(declared(Face::Sender)))).unwrap();
    let occupied = Frame::FromHome(CHANNEL, FromHome::Rejected(Rejection::Occupied));
    assert_eq!(pair.home.said(), [(NodeId(3), occupied)]);
}

#[test]
fn offer_is_taken_and_its_charge_given_back() {
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "krill");
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(1, "krill".into())]);
    assert_eq!(pair.home.kept_for(SENDER), cost(5));
    assert!(pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 1));
    assert_eq!(pair.home.kept_for(SENDER), 0);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Taken(1, there(HOME))]);
    assert!(!pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 1), "it stands no more");
    assert!(pair.home.said().is_empty());
}

#[test]
fn offers_beyond_the_window_wait_in_order() {
    let mut pair = Pair::attached(TERMS);
    for (ticket, value) in [(1, "a"), (2, "b"), (3, "c")] {
        pair.offer(ticket, value);
    }
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(1, "a".into()), HomeHears::Offered(2, "b".into())]);
    pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 2);
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(3, "c".into())]);
}

#[test]
fn value_above_the_terms_fails_without_a_frame() {
    let mut pair = Pair::attached(Terms { value_max: 4, ..TERMS });
    pair.offer(1, "krill");
    assert!(pair.sender.said().is_empty());
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Failed(1, Failure::TooLarge { max: 4 })]);
}

#[test]
fn held_value_is_released() {
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "krill");
    pair.carry();
    assert!(pair.home.channels.held(&mut pair.home.peers, CHANNEL, SENDER, 1));
    assert_eq!(pair.home.kept_for(SENDER), 0, "the receiver has the value");
    pair.home.channels.released(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Held(1, there(HOME)), ProxyHears::Released(1)]);
}

#[test]
fn unwritten_offer_is_withdrawn_at_once() {
    let mut pair = Pair::attached(TERMS);
    pair.sender.peers.writes = false;
    pair.offer(1, "krill");
    pair.sender.channels.withdraw(&mut pair.sender.peers, CHANNEL, 1);
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Withdrawn(1)]);
    assert!(pair.sender.said().is_empty());
}

#[test]
fn written_offer_is_withdrawn_by_the_home() {
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "krill");
    pair.sender.channels.withdraw(&mut pair.sender.peers, CHANNEL, 1);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), []);
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(1, "krill".into()), HomeHears::Withdraw(1)]);
    pair.home.channels.withdrawn(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Withdrawn(1)]);
    assert_eq!(pair.home.kept_for(SENDER), 0);
}

#[test]
fn taken_offer_is_not_withdrawn() {
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "krill");
    pair.carry();
    pair.sender.channels.withdraw(&mut pair.sender.peers, CHANNEL, 1);
    pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Taken(1, there(HOME))]);
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(1, "krill".into())], "the two have crossed");
}

#[test]
fn reserved_value_is_granted_and_taken() {
    let mut pair = Pair::attached(TERMS);
    pair.reserve(1, 10);
    assert!(pair.grant(1, 10, "krill"));
    assert!(!pair.grant(1, 10, "krill"), "one request has one grant");
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Granted(1, 10, "krill".into())]);
    pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Taken(1, there(HOME))]);
    assert_eq!(pair.home.kept_for(SENDER), 0);
}

#[test]
fn grant_of_an_aborted_request_is_not_one_of_the_next() {
    let mut pair = Pair::attached(TERMS);
    pair.reserve(1, 10);
    // The value crosses the abort and the next request.
    assert!(pair.grant(1, 10, "krill"));
    pair.home.channels.abort(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.home.channels.reserve(&mut pair.home.peers, CHANNEL, SENDER, 1, 11);
    pair.carry();
    assert_eq!(pair.home.home_heard(), []);
    assert_eq!(pair.home.kept_for(SENDER), 0);
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Abort(1), ProxyHears::Reserve(1, 11)]);
    assert!(!pair.grant(1, 10, "krill") && pair.grant(1, 11, "krill"));
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Granted(1, 11, "krill".into())]);
}

#[test]
fn aborted_request_leaves_the_offer() {
    let mut pair = Pair::attached(TERMS);
    pair.reserve(1, 10);
    assert!(pair.grant(1, 10, "krill"));
    pair.carry();
    pair.home.channels.decline(&mut pair.home.peers, CHANNEL, SENDER, 1, 9);
    assert!(pair.home.said().is_empty(), "another request was granted");
    pair.home.channels.decline(&mut pair.home.peers, CHANNEL, SENDER, 1, 10);
    assert_eq!(pair.home.kept_for(SENDER), 0, "its value goes back");
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Abort(1)]);
    pair.home.channels.reserve(&mut pair.home.peers, CHANNEL, SENDER, 1, 11);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Reserve(1, 11)]);
}

#[test]
fn value_sent_on_a_credit_is_kept_until_it_is_drained() {
    let mut pair = Pair::attached(Terms { credits: 2, ..TERMS });
    assert!(pair.send("a") && pair.send("bb"));
    assert!(!pair.send("c"), "there were two credits");
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Sent("a".into()), HomeHears::Sent("bb".into())]);
    pair.home.channels.drained(&mut pair.home.peers, CHANNEL, 1, 1);
    assert_eq!(pair.home.kept_for(SENDER), cost(2));
    pair.home.channels.credit(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Credit(1)]);
    assert!(pair.send("c") && !pair.send("d"));
    pair.carry();
    pair.home.channels.drained(&mut pair.home.peers, CHANNEL, 2, 3);
    assert_eq!(pair.home.kept_for(SENDER), 0);
}

#[test]
fn credits_are_reported_up_to_the_room_in_the_outbox() {
    let mut pair = Pair::attached(TERMS);
    pair.sender.channels.expect_values(CHANNEL, 1_000);
    pair.sender.peers.room = 0;
    pair.home.channels.credit(&mut pair.home.peers, CHANNEL, SENDER, 3);
    pair.carry();
    assert_eq!((pair.sender.sender_heard(), &pair.sender.peers.short[..]), (vec![], &[CHANNEL][..]));
    pair.sender.peers.room = 2 * cost(1_000);
    pair.sender.channels.tell_credits(&mut pair.sender.peers, CHANNEL);
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Credit(2)]);
}

#[test]
fn ended_home_is_forgotten_when_its_half_has_noticed() {
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "krill");
    pair.carry();
    let poison = End::Gone;
    pair.home.channels.end_home(&mut pair.home.peers, CHANNEL, poison.clone());
    assert_eq!(pair.home.kept_for(SENDER), 0);
    assert!(pair.home.channels.has_home(CHANNEL), "its half has not noticed");
    pair.carry();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Ended(poison)]);
    assert!(!pair.home.channels.knows(CHANNEL) && !pair.sender.channels.knows(CHANNEL));
    pair.offer(2, "krill");
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Failed(2, Failure::Closed)]);
}

#[test]
fn retired_home_receives_values_sent_before_retirement() {
    let mut pair = Pair::attached(Terms { credits: 2, ..TERMS });
    assert!(pair.send("a"));
    pair.home.channels.end_home(&mut pair.home.peers, CHANNEL, End::Retired);
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Sent("a".into())]);
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Ended(End::Retired)]);
    assert!(pair.sender.channels.has_half(CHANNEL), "its driver says when nothing more comes");
    pair.sender.channels.end_proxy(&mut pair.sender.peers, CHANNEL, End::Gone);
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Ended(End::Gone)]);
    assert!(!pair.home.channels.knows(CHANNEL) && !pair.sender.channels.knows(CHANNEL));
}

#[test]
fn dropped_half_sends_its_end_after_its_last_offer() {
    let mut pair = Pair::attached(Terms { window: 1, ..TERMS });
    pair.offer(1, "a");
    pair.offer(2, "b");
    pair.sender.channels.end_proxy(&mut pair.sender.peers, CHANNEL, End::Gone);
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(1, "a".into())]);
    pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 1);
    pair.carry();
    assert_eq!(pair.home.home_heard(), [HomeHears::Offered(2, "b".into()), HomeHears::Ended(End::Gone)]);
    pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 2);
    pair.carry();
    assert!(!pair.sender.channels.has_half(CHANNEL) && pair.home.channels.home_is_left(CHANNEL));
}

#[test]
fn lost_home_leaves_only_written_offers_unknown() {
    for writes in [true, false] {
        let mut pair = Pair::attached(Terms { window: 3, ..TERMS });
        pair.offer(1, "a");
        pair.carry();
        pair.home.channels.held(&mut pair.home.peers, CHANNEL, SENDER, 1);
        pair.carry();
        pair.sender.sender_heard();
        pair.sender.peers.writes = writes;
        pair.offer(2, "b");
        pair.sender.channels.offer_choice(&mut pair.sender.peers, CHANNEL, 3, 99);
        pair.offer(4, "beyond the window");
        pair.sender.channels.settle(&mut pair.sender.peers, HOME);
        let (unknown, not_taken) = if writes { (vec![2], vec![4, 3]) } else { (vec![], vec![4, 2, 3]) };
        assert_eq!(pair.sender.sender_heard(), [ProxyHears::Lost { unknown, not_taken, taken: vec![1] }]);
        assert!(!pair.sender.channels.has_half(CHANNEL));
    }
}

#[test]
fn offers_of_a_lost_sender_no_longer_stand() {
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "a");
    pair.offer(2, "b");
    pair.carry();
    pair.home.home_heard();
    pair.home.channels.settle(&mut pair.home.peers, SENDER);
    assert_eq!(pair.home.home_heard(), [HomeHears::Lost(vec![1, 2])]);
    assert!(!pair.home.channels.taken(&mut pair.home.peers, CHANNEL, SENDER, 1));
    assert!(pair.home.channels.home_is_left(CHANNEL) && pair.home.said().is_empty());
}

#[test]
fn announced_value_has_a_place_only_where_the_home_may_receive_it() {
    let mut pair = Pair::attached(TERMS);
    let places = |pair: &mut Pair, node, kind, bytes| {
        pair.home.peers.announced = Some(Announced::new(1, kind, bytes));
        pair.home.channels.consider(&mut pair.home.peers, node, CHANNEL);
        std::mem::take(&mut pair.home.peers.places)
    };
    assert_eq!(places(&mut pair, SENDER, Kind::Offer, 100), [Place::There]);
    assert_eq!(places(&mut pair, SENDER, Kind::Offer, 101), [Place::Unkept], "above the terms");
    assert_eq!(places(&mut pair, NodeId(3), Kind::Offer, 1), [Place::Unkept], "it is not attached");
    pair.home.channels.end_home(&mut pair.home.peers, CHANNEL, End::Retired);
    pair.home.peers.places.clear();
    assert_eq!(places(&mut pair, SENDER, Kind::Offer, 1), [Place::Unkept]);
    assert_eq!(places(&mut pair, SENDER, Kind::Sent, 1), [Place::There], "it was sent before");
}

#[test]
fn frames_for_an_unknown_channel_have_no_effect() {
    let mut node = Node::new(HOME);
    node.hear(SENDER, Frame::ToHome(CHANNEL, ToHome::Withdraw(1))).unwrap();
    node.hear(SENDER, Frame::FromHome(CHANNEL, FromHome::Taken(1))).unwrap();
    assert_eq!((node.peers.nothing, node.said(), node.peers.heard.len()), (2, vec![], 0));
}

/// Passes the frames of an attached half, with one credit and a window of two, to its home. Returns the
/// result of the last frame.
fn judged_at_home(said: &[ToHome]) -> Result<(), PeerMisbehaved> {
    let mut pair = Pair::attached(Terms { credits: 1, ..TERMS });
    let (last, before) = said.split_last().unwrap();
    for said in before {
        pair.home.hear(SENDER, Frame::ToHome(CHANNEL, said.clone())).expect("an honest word");
    }
    pair.home.hear(SENDER, Frame::ToHome(CHANNEL, last.clone()))
}

#[test]
fn violations_of_a_sending_half_are_detected() {
    use PeerMisbehaved::*;
    let value = |head, total| ToHome::Value { head, total, first: vec![7; total as usize].into() };
    let offer = |ticket| value(Head::Offer(ticket), 1);
    let choice = |ticket| ToHome::OfferChoice(ticket, 99);
    let gone = || ToHome::Ended(End::Gone);
    let cases: &[(PeerMisbehaved, &[ToHome])] = &[
        (TicketInUse(1), &[offer(1), offer(1)]),
        (TicketInUse(1), &[choice(1), offer(1)]),
        (TicketInUse(1), &[offer(1), choice(1)]),
        (WindowFull { window: 2 }, &[offer(1), choice(2), offer(3)]),
        (WindowFull { window: 2 }, &[offer(1), choice(2), choice(3)]),
        (NotAChoice(1), &[offer(1), value(Head::Grant(1, 1), 1)]),
        (NoCredit, &[value(Head::Sent, 1), value(Head::Sent, 1)]),
        (SentAfterEnd, &[ToHome::Ended(End::Retired), value(Head::Sent, 1)]),
        (ValueTooLarge { bytes: 101, bytes_max: 100 }, &[value(Head::Sent, 101)]),
        (ValueTooLarge { bytes: 101, bytes_max: 100 }, &[choice(1), value(Head::Grant(1, 1), 101)]),
        (HalfGone, &[offer(1), gone(), offer(2)]),
        (HalfGone, &[offer(1), gone(), choice(2)]),
        (HalfGone, &[offer(1), gone(), gone()]),
        (QuietUnasked, &[ToHome::Quiet]),
    ];
    for (why, said) in cases {
        assert_eq!(judged_at_home(said), Err(*why), "{said:?}");
    }
    // The sender of an offered value has not checked it, since it may not have known the terms.
    assert_eq!(judged_at_home(&[value(Head::Offer(1), 101)]), Ok(()));
}

#[test]
fn violations_of_a_home_are_detected() {
    use PeerMisbehaved::*;
    let cases: &[(PeerMisbehaved, &[FromHome])] = &[
        (TermsTwice, &[FromHome::Attached(TERMS)]),
        (NotOffered(9), &[FromHome::Taken(9)]),
        (NotOffered(1), &[FromHome::Taken(1), FromHome::Taken(1)]),
        (NotOffered(9), &[FromHome::Withdrawn(9)]),
        (CannotHold(9), &[FromHome::Held(9)]),
        (CannotHold(1), &[FromHome::Held(1), FromHome::Held(1)]),
        (NotHeld(1), &[FromHome::Released(1)]),
        (OnwardHeld(1), &[FromHome::Held(1), FromHome::Onward(1)]),
        (NotAChoice(1), &[FromHome::Reserve(1, 1)]),
        (NotAChoice(9), &[FromHome::Reserve(9, 1)]),
    ];
    for (why, said) in cases {
        let mut pair = Pair::attached(TERMS);
        pair.offer(1, "krill");
        let (last, before) = said.split_last().unwrap();
        for said in before {
            pair.sender.hear(HOME, Frame::FromHome(CHANNEL, said.clone())).expect("an honest word");
        }
        assert_eq!(pair.sender.hear(HOME, Frame::FromHome(CHANNEL, last.clone())), Err(*why), "{said:?}");
    }
    let mut pair = Pair::attached(TERMS);
    pair.offer(1, "krill");
    assert_eq!(pair.sender.hear(NodeId(3), Frame::FromHome(CHANNEL, FromHome::Taken(1))), Err(NotTheHome));
}

/// A half has one credit left of its previous home, which moves to another node.
#[test]
fn new_home_takes_no_credits_back() {
    let mut pair = Pair::attached(Terms { credits: 1, ..TERMS });
    let (from, to) = (|said| Frame::FromHome(CHANNEL, said), NodeId(3));
    pair.sender.hear(HOME, from(FromHome::Moving { epoch: 1, to, addresses: Vec::new() })).unwrap();
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Moved(to, Vec::new())]);
    let quiet = (HOME, Frame::ToHome(CHANNEL, ToHome::Quiet));
    assert_eq!(pair.sender.said(), [quiet, (to, Frame::ToHome(CHANNEL, ToHome::Take(0)))]);
    let is_home = |credits| from(FromHome::HomeIs { transfer: 0, epoch: 1, terms: Terms { credits, ..TERMS } });
    let why = PeerMisbehaved::CreditsTakenBack { credits: 0, had: 1 };
    assert_eq!(pair.sender.hear(to, is_home(0)), Err(why));
    assert_eq!(pair.sender.hear(to, is_home(2)), Ok(()));
    // One more is not worth an event while there is one.
    assert_eq!(pair.sender.sender_heard(), [ProxyHears::Home(to, Terms { credits: 2, ..TERMS }, 0)]);
    assert!(pair.send("a") && pair.send("b") && !pair.send("c"));
}
