//! Bugs of ends that travel that the simulator found: one scene each, played by hand. Seeds would shift with
//! every change of the code; these scenes stay.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use dunlin_proto::id::{ChannelId, Contact, Incarnation, Life, NodeId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{End, Frame, Poison, Terms, Travel, Which};
use dunlin_proto::{
    Action, Arrival, Config, HomeHears, Leaving, Machine, ProxyHears, ReceiverPlace, SenderPlace, Stand, Trip,
};

const NOW: Time = Time(0);
const CHANNEL: ChannelId = ChannelId(1);
const TERMS: Terms = Terms { window: 4, credits: 0, value_max: 100 };

fn id(node: usize) -> NodeId {
    NodeId(node as u128 + 1)
}

/// Some machines that are all connected, and the frames between them.
struct Nodes {
    machines: Vec<Machine>,
    wires: BTreeMap<(usize, usize), VecDeque<Frame>>,
    /// Directions whose frames are held back.
    held: Vec<(usize, usize)>,
    homes: Vec<(usize, HomeHears)>,
    proxies: Vec<(usize, ProxyHears)>,
}

impl Nodes {
    /// Both ends of the channel are at node 0.
    fn new(count: usize) -> Self {
        let machine = |me: usize| {
            let mut config = Config::new("regressions");
            config.addresses = vec![me.to_string()];
            let mut machine = StandIn::machine(config, Life { node: id(me), incarnation: Incarnation(1) }, 1);
            for other in (0..count).filter(|other| *other != me) {
                machine.learn(id(other), &[other.to_string()]);
                machine.model_up(id(other));
            }
            machine
        };
        let mut machines: Vec<Machine> = (0..count).map(machine).collect();
        machines[0].pair(CHANNEL, TERMS);
        Self { machines, wires: BTreeMap::new(), held: Vec::new(), homes: Vec::new(), proxies: Vec::new() }
    }

    /// Delivers everything that is not held. Each node answers as one without values does.
    fn run(&mut self) {
        loop {
            let mut busy = false;
            for me in 0..self.machines.len() {
                busy |= self.act(me);
            }
            let pairs: Vec<(usize, usize)> = self.wires.keys().copied().collect();
            for (from, to) in pairs.into_iter().filter(|pair| !self.held.contains(pair)) {
                while let Some(frame) = self.wires.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
                    self.machines[to].model_hear(id(from), frame).expect("no node breaks the protocol");
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
    }

    fn act(&mut self, me: usize) -> bool {
        let mut busy = false;
        while let Some(action) = self.machines[me].poll() {
            busy = true;
            let machine = &mut self.machines[me];
            match action {
                Action::Home(_, Contact { node: from, .. }, heard) => {
                    match &heard {
                        HomeHears::Take => {
                            let credits = machine.credits_of(CHANNEL, from);
                            machine.admit(NOW, CHANNEL, from, Terms { credits, ..TERMS });
                        }
                        HomeHears::Leave => machine.leave_home(NOW, CHANNEL),
                        HomeHears::Empty => machine.ship(NOW, CHANNEL, Vec::new()),
                        HomeHears::Arrived(_) => machine.install(NOW, CHANNEL),
                        _ => {}
                    }
                    self.homes.push((me, heard));
                }
                Action::Proxy(_, heard) => self.proxies.push((me, heard)),
                _ => {}
            }
        }
        for to in (0..self.machines.len()).filter(|to| *to != me) {
            while let Some(frame) = self.machines[me].model_next(id(to)) {
                self.wires.entry((me, to)).or_default().push_back(frame);
                busy = true;
            }
        }
        busy
    }

    fn lose(&mut self, me: usize, other: usize) {
        self.wires.remove(&(other, me));
        self.machines[me].model_lost(id(other));
    }

    fn pack_sender(&mut self, me: usize) -> (SenderPlace, Trip) {
        match self.machines[me].pack_sender(NOW, CHANNEL) {
            Leaving::Ready(place, trip) => (place, trip),
            other => panic!("it stays: {other:?}"),
        }
    }

    fn pack_receiver(&mut self, me: usize) -> (ReceiverPlace, Trip) {
        match self.machines[me].pack_receiver(CHANNEL) {
            Leaving::Ready(place, trip) => (place, trip),
            other => panic!("it stays: {other:?}"),
        }
    }

    fn sender_arrives(&mut self, at: usize, place: SenderPlace, from: usize) -> Arrival {
        let giver = self.machines[at].contact(id(from));
        self.machines[at].sender_arrives(NOW, CHANNEL, place, giver)
    }

    fn receiver_arrives(&mut self, at: usize, place: ReceiverPlace, from: usize) -> Arrival {
        let giver = self.machines[at].contact(id(from));
        self.machines[at].receiver_arrives(NOW, CHANNEL, place, giver)
    }

    fn sender_left(&mut self, at: usize, trip: Trip, to: usize) {
        let taker = self.machines[at].contact(id(to));
        self.machines[at].sender_left(NOW, CHANNEL, trip, taker);
    }

    fn receiver_left(&mut self, at: usize, trip: Trip, to: usize) {
        let taker = self.machines[at].contact(id(to));
        self.machines[at].receiver_left(NOW, CHANNEL, trip, taker);
    }

    fn move_sender(&mut self, from: usize, to: usize) -> Arrival {
        let (place, trip) = self.pack_sender(from);
        let arrival = self.sender_arrives(to, place, from);
        self.sender_left(from, trip, to);
        arrival
    }

    fn move_receiver(&mut self, from: usize, to: usize) -> Arrival {
        let (place, trip) = self.pack_receiver(from);
        let arrival = self.receiver_arrives(to, place, from);
        self.receiver_left(from, trip, to);
        arrival
    }

    fn home_heard(&self, node: usize, what: &HomeHears) -> bool {
        self.homes.contains(&(node, what.clone()))
    }
}

/// A receiver went in a circle and was given again to a node where it had been; the frame that settled the
/// first gift ended the second.
#[test]
fn drop_of_a_receiver_that_went_in_a_circle_reaches_its_home() {
    let mut nodes = Nodes::new(3);
    assert_eq!(nodes.move_receiver(0, 1), Arrival::Guest);
    assert_eq!(nodes.move_receiver(1, 2), Arrival::Guest);
    // The frame from node 1 to node 2 that settles its gift is late.
    nodes.held.push((1, 2));
    assert_eq!(nodes.move_receiver(2, 0), Arrival::Returned);
    nodes.run();
    // It has another claim than before.
    assert_eq!(nodes.move_receiver(0, 2), Arrival::Guest);
    nodes.held.clear();
    nodes.run();
    nodes.machines[2].drop_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Lapsed(End::Gone)), "{:?}", nodes.homes);
}

/// A sender returned to a node after an unknown message, was used there, and then the other copy arrived: the
/// offers of the first had no outcome.
#[test]
fn a_sender_that_is_in_use_is_not_replaced_by_its_copy() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    let (place, trip) = nodes.pack_sender(1);
    assert_eq!(nodes.sender_arrives(2, place, 1), Arrival::Guest);
    assert!(nodes.machines[1].sender_back(NOW, CHANNEL, trip));
    nodes.machines[1].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.run();
    assert_eq!(nodes.move_sender(2, 1), Arrival::Stale);
    nodes.run();
    nodes.machines[0].taken(NOW, CHANNEL, id(1), 1);
    nodes.run();
    assert!(
        nodes.proxies.contains(&(1, ProxyHears::Taken(1, nodes.machines[1].contact(id(0))))),
        "{:?}",
        nodes.proxies
    );
}

/// A half whose end was elsewhere, without its knowledge, was forgotten with its offers when that end arrived
/// at its node.
#[test]
fn a_replaced_half_is_notified() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    let (place, trip) = nodes.pack_sender(1);
    nodes.sender_arrives(2, place, 1);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    // The home's answer to node 1 is late.
    nodes.held.push((0, 1));
    assert!(!nodes.machines[1].sender_back(NOW, CHANNEL, trip), "its home has reported that it is elsewhere");
    let (place, trip) = nodes.pack_sender(2);
    nodes.sender_arrives(1, place.clone(), 2);
    assert!(nodes.machines[2].sender_back(NOW, CHANNEL, trip));
    nodes.machines[1].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.run();
    // Node 1 waits for the answer of its home, which has not arrived. Meanwhile node 2 moves the end again.
    let place = SenderPlace { transfer: place.transfer + 1, ..place };
    assert_eq!(nodes.sender_arrives(1, place, 2), Arrival::Guest);
    nodes.run();
    let lost = ProxyHears::Lost { unknown: Vec::new(), not_taken: vec![1], taken: Vec::new() };
    assert!(nodes.proxies.contains(&(1, lost)), "{:?}", nodes.proxies);
}

/// The receiver returned to its home after an unknown message, and moved; its copy arrived at the new home,
/// and replaced it there.
#[test]
fn a_late_copy_of_a_receiver_is_stale() {
    let mut nodes = Nodes::new(3);
    let (late, trip) = nodes.pack_receiver(0);
    assert!(nodes.machines[0].receiver_back(NOW, CHANNEL, trip));
    assert_eq!(nodes.move_receiver(0, 1), Arrival::Guest);
    // It is here, and has not been used.
    assert_eq!(nodes.receiver_arrives(1, late.clone(), 2), Arrival::Stale);
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Arrived(None)), "{:?}", nodes.homes);
    // It is at home here.
    assert_eq!(nodes.receiver_arrives(1, late.clone(), 2), Arrival::Stale);
    // It is elsewhere, and this was its home.
    assert_eq!(nodes.receiver_arrives(0, late, 2), Arrival::Stale);
}

/// A channel returned to a node that had been its home; a claim of the first stay was taken for one of the
/// second.
#[test]
fn receiver_with_a_claim_of_a_former_stay_fails() {
    let mut nodes = Nodes::new(3);
    let (late, trip) = nodes.pack_receiver(0);
    assert!(nodes.machines[0].receiver_back(NOW, CHANNEL, trip));
    for (from, to) in [(0, 1), (1, 0)] {
        nodes.move_receiver(from, to);
        nodes.machines[to].use_receiver(NOW, CHANNEL);
        nodes.run();
    }
    // It is at node 1, unused, when node 2 uses the copy from the first stay.
    nodes.move_receiver(0, 1);
    nodes.receiver_arrives(2, late, 0);
    nodes.machines[2].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(2, &HomeHears::Failed(End::Lost)), "{:?}", nodes.homes);
    nodes.homes.clear();
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Arrived(None)), "{:?}", nodes.homes);
}

/// The answer to a withdrawal came late to the home, which had passed the offer on and had announced by then
/// that its receiver is elsewhere. The home forwarded the answer, and broke the protocol.
#[test]
fn a_home_that_announced_its_move_answers_no_offers() {
    let mut nodes = Nodes::new(3);
    nodes.move_receiver(0, 1);
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    nodes.machines[0].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.run();
    nodes.machines[0].withdraw(NOW, CHANNEL, 1);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Withdraw(1)), "{:?}", nodes.homes);
    nodes.move_receiver(1, 2);
    nodes.machines[2].use_receiver(NOW, CHANNEL);
    // So this home is not empty yet.
    nodes.held.push((0, 1));
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Leave), "{:?}", nodes.homes);
    nodes.machines[1].withdrawn(NOW, CHANNEL, id(0), 1);
    nodes.run();
    nodes.held.clear();
    nodes.run();
    assert!(nodes.home_heard(2, &HomeHears::Arrived(None)), "{:?}", nodes.homes);
    assert!(nodes.proxies.contains(&(0, ProxyHears::Withdrawn(1))), "{:?}", nodes.proxies);
}

/// A home ended before it had answered a sender, which then waited for ever.
#[test]
fn a_home_that_ends_answers_takes() {
    let mut nodes = Nodes::new(2);
    nodes.move_sender(0, 1);
    nodes.machines[1].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.act(1);
    let frames = nodes.wires.remove(&(1, 0)).expect("it has sent frames");
    frames.into_iter().for_each(|frame| nodes.machines[0].model_hear(id(1), frame).expect("an honest frame"));
    while nodes.machines[0].poll().is_some() {}
    nodes.machines[0].end_home(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert!(nodes.proxies.contains(&(1, ProxyHears::Ended(End::Gone))), "{:?}", nodes.proxies);
}

/// The sender was lost after its new home was known and before that was installed: the home waited for the
/// sender for ever.
#[test]
fn a_new_home_learns_of_a_sender_lost_meanwhile() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.move_receiver(0, 2);
    nodes.machines[2].use_receiver(NOW, CHANNEL);
    // The machine of node 2 has received what arrives, and its driver is slow.
    nodes.held.push((0, 2));
    nodes.run();
    for frame in nodes.wires.remove(&(0, 2)).expect("the state is there") {
        nodes.machines[2].model_hear(id(0), frame).expect("an honest frame");
    }
    nodes.lose(2, 1);
    nodes.held.clear();
    nodes.run();
    assert!(nodes.home_heard(2, &HomeHears::Lost(Vec::new())), "{:?}", nodes.homes);
}

/// A node took an end, and its connection ended before the giver learned of the take: the giver waited for it
/// for ever.
#[test]
fn an_end_that_went_to_a_lost_node_is_lost() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    let (_, trip) = nodes.pack_sender(1);
    nodes.lose(1, 2);
    nodes.sender_left(1, trip, 2);
    let (_, trip) = nodes.pack_receiver(0);
    nodes.lose(0, 2);
    nodes.receiver_left(0, trip, 2);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Ended(End::Lost)), "{:?}", nodes.homes);
    assert!(nodes.home_heard(0, &HomeHears::Lapsed(End::Lost)), "{:?}", nodes.homes);
}

/// The same, but the connection was up again, in another life, before the giver reported it: seed 80125668 of
/// the simulator (615b032 had it, too).
#[test]
fn an_end_that_went_in_an_earlier_life_of_the_connection_is_lost() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    for (giver, is_sender) in [(1, true), (0, false)] {
        let trip = if is_sender { nodes.pack_sender(giver).1 } else { nodes.pack_receiver(giver).1 };
        let taker = nodes.machines[giver].contact(id(2));
        nodes.lose(giver, 2);
        nodes.machines[giver].model_up(id(2));
        let machine = &mut nodes.machines[giver];
        match is_sender {
            true => drop(machine.sender_left(NOW, CHANNEL, trip, taker)),
            false => drop(machine.receiver_left(NOW, CHANNEL, trip, taker)),
        }
    }
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Ended(End::Lost)), "{:?}", nodes.homes);
    assert!(nodes.home_heard(0, &HomeHears::Lapsed(End::Lost)), "{:?}", nodes.homes);
}

/// A giver gives up what it has given in an earlier life of the connection. A record that waited for its
/// answer, after the end had moved on, stayed for ever.
#[test]
fn an_end_that_came_in_an_earlier_life_of_the_connection_has_no_giver() {
    let mut nodes = Nodes::new(4);
    let (sender, _) = nodes.pack_sender(0);
    let (receiver, _) = nodes.pack_receiver(0);
    let giver = nodes.machines[1].contact(id(0));
    nodes.lose(1, 0);
    nodes.machines[1].model_up(id(0));
    assert_eq!(nodes.machines[1].sender_arrives(NOW, CHANNEL, sender, giver), Arrival::Guest);
    assert_eq!(nodes.machines[1].receiver_arrives(NOW, CHANNEL, receiver, giver), Arrival::Guest);
    assert!(nodes.machines[1].passages(CHANNEL).is_empty());
    nodes.move_sender(1, 2);
    nodes.move_receiver(1, 3);
    nodes.run();
    assert_eq!(nodes.machines[1].stand(CHANNEL), Stand::default());
}

/// A home that had ended while its receiver was away stayed when the receiver was dropped there.
#[test]
fn ended_home_is_forgotten_when_its_receiver_is_dropped() {
    let mut nodes = Nodes::new(2);
    nodes.move_receiver(0, 1);
    nodes.machines[0].end_home(NOW, CHANNEL, End::Gone);
    nodes.run();
    nodes.machines[1].drop_receiver(NOW, CHANNEL);
    nodes.run();
    assert_eq!(nodes.machines[0].census().homes, 0);
}

/// A value that was sent on a credit reached a home that had ended, which dropped it silently: no node
/// answered for the ends in it.
#[test]
fn ended_home_receives_values_sent_on_credits() {
    let mut nodes = Nodes::new(2);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.machines[0].credit(NOW, CHANNEL, id(1), 1);
    nodes.run();
    let value = Bytes::from_static(b"with an end in it");
    assert!(nodes.machines[1].send_on_credit(NOW, CHANNEL, value.clone()));
    nodes.machines[0].end_home(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Sent(value)), "{:?}", nodes.homes);
    assert_eq!((nodes.machines[0].census().homes, nodes.machines[1].census().proxies), (0, 0));
}

/// A sender whose sponsor had been an earlier life of its giver was lost: its giver, which had answered for
/// that life, kept its record of the gift.
#[test]
fn a_giver_that_answers_for_an_earlier_life_forgets_its_gift() {
    let mut nodes = Nodes::new(3);
    let (home, sponsor) = (id(1), id(1));
    let place = SenderPlace {
        trip: 1,
        transfer: 1,
        epoch: 0,
        home,
        addresses: Vec::new(),
        sponsor,
        sponsor_addresses: Vec::new(),
    };
    assert_eq!(nodes.sender_arrives(1, place, 0), Arrival::Guest);
    assert_eq!(nodes.move_sender(1, 2), Arrival::Guest);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    assert_eq!((nodes.machines[1].census().proxies, nodes.machines[2].census().proxies), (0, 0));
}

/// A sender's channel ended while the sender was in a message; then the sender returned by another way, and
/// its record stayed.
#[test]
fn sender_returning_to_a_node_where_its_channel_ended_is_lost() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    // Node 1 has not learned that its message was taken.
    let (place, trip) = nodes.pack_sender(1);
    assert_eq!(nodes.sender_arrives(2, place, 1), Arrival::Guest);
    nodes.lose(1, 0);
    nodes.run();
    assert_eq!(nodes.move_sender(2, 1), Arrival::Stale);
    nodes.sender_left(1, trip, 2);
    nodes.run();
    assert_eq!((nodes.machines[1].census().proxies, nodes.machines[2].census().proxies), (0, 0));
}

/// The same for a receiver that was passed on.
#[test]
fn receiver_returning_to_a_node_where_its_channel_ended_is_lost() {
    let mut nodes = Nodes::new(3);
    nodes.move_receiver(0, 1);
    nodes.run();
    let (place, trip) = nodes.pack_receiver(1);
    assert_eq!(nodes.receiver_arrives(2, place, 1), Arrival::Guest);
    let over = Frame::Travel(CHANNEL, Travel::Over(Which::Receiver, End::Lost));
    nodes.machines[1].model_hear(id(0), over).expect("an honest frame");
    assert_eq!(nodes.move_receiver(2, 1), Arrival::Stale);
    nodes.receiver_left(1, trip, 2);
    nodes.run();
    assert_eq!((nodes.machines[1].census().visitors, nodes.machines[2].census().visitors), (0, 0));
}

/// A half learned `not home` from an earlier life of its home's node, asked its sponsor, which knew nothing
/// newer, and waited for ever for a connection to the node's later life.
#[test]
fn a_half_that_asks_for_its_home_reconnects_there() {
    let mut nodes = Nodes::new(3);
    let (home, sponsor) = (id(1), id(0));
    let place = SenderPlace {
        trip: 1,
        transfer: 5,
        epoch: 0,
        home,
        addresses: Vec::new(),
        sponsor,
        sponsor_addresses: Vec::new(),
    };
    nodes.sender_arrives(2, place, 0);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.lose(2, 1);
    assert!(nodes.machines[2].model_wants(id(1)));
}

/// A receiver was at home again and in a new message when a node that it had passed through reported it as
/// lost: the home ended, although the receiver still existed.
#[test]
fn report_of_a_lost_receiver_counts_for_its_message_only() {
    let mut nodes = Nodes::new(3);
    nodes.move_receiver(0, 1);
    nodes.move_receiver(1, 2);
    nodes.held.push((0, 1));
    assert_eq!(nodes.move_receiver(2, 0), Arrival::Returned);
    nodes.run();
    let (_, trip) = nodes.pack_receiver(0);
    nodes.lose(1, 2);
    nodes.run();
    nodes.machines[0].receiver_stays(NOW, CHANNEL, trip);
    nodes.run();
    assert!(!nodes.homes.iter().any(|(_, heard)| matches!(heard, HomeHears::Lapsed(_))), "{:?}", nodes.homes);
    // The same for a receiver that was taken, and lost: that report counts.
    let (place, trip) = nodes.pack_receiver(0);
    nodes.receiver_arrives(2, place, 0);
    nodes.machines[2].drop_receiver(NOW, CHANNEL);
    nodes.run();
    nodes.receiver_left(0, trip, 2);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Lapsed(End::Gone)), "{:?}", nodes.homes);
}

/// A receiver came home unused and left again under the same claim. The node that had returned it did not
/// know that it was taken, and fetched the home.
#[test]
fn former_holder_cannot_use_a_receiver_that_came_home() {
    let mut nodes = Nodes::new(3);
    nodes.move_receiver(0, 1);
    let (place, trip) = nodes.pack_receiver(1);
    assert_eq!(nodes.receiver_arrives(0, place, 1), Arrival::Returned);
    nodes.move_receiver(0, 2);
    assert!(nodes.machines[1].receiver_back(NOW, CHANNEL, trip));
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Failed(End::Lost)), "{:?}", nodes.homes);
    nodes.machines[2].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(2, &HomeHears::Arrived(None)), "{:?}", nodes.homes);
}

/// A sender was lost with its node, and the node that asked for its home learned that the channel had ended
/// in order.
#[test]
fn asking_for_the_home_of_a_lost_sender_reports_the_loss() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.move_sender(1, 2);
    nodes.machines[1].model_hear(id(0), Frame::Travel(CHANNEL, Travel::Where(7))).expect("an honest frame");
    nodes.lose(1, 2);
    nodes.act(1);
    let over = Frame::Travel(CHANNEL, Travel::Over(Which::Sender, End::Lost));
    assert!(nodes.wires[&(1, 0)].contains(&over), "{:?}", nodes.wires);
}

/// A sender went to its own node in a message over a channel with both ends there: that node waited for
/// itself to report that the sender is in use.
#[test]
fn an_end_that_was_given_to_its_own_node_has_one_giver() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    assert_eq!(nodes.move_sender(1, 1), Arrival::Returned);
    nodes.move_sender(1, 2);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    assert_eq!(nodes.machines[1].census().proxies, 0);
    nodes.move_receiver(0, 1);
    assert_eq!(nodes.move_receiver(1, 1), Arrival::Returned);
    nodes.move_receiver(1, 2);
    nodes.machines[2].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert_eq!(nodes.machines[1].census().visitors, 0);
}

/// A channel had ended at its home while its receiver was in a message: a sender that arrived then was
/// admitted, and its offers waited for ever.
#[test]
fn a_home_that_has_ended_admits_no_sender_while_its_receiver_is_away() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    let (place, _) = nodes.pack_sender(1);
    nodes.sender_arrives(2, place, 1);
    let (_, trip) = nodes.pack_receiver(0);
    // The report that it has ended comes late to where the sender was.
    nodes.held.push((0, 1));
    nodes.machines[0].end_home(NOW, CHANNEL, End::Gone);
    nodes.machines[2].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.run();
    assert!(nodes.proxies.contains(&(2, ProxyHears::Ended(End::Gone))), "{:?}", nodes.proxies);
    nodes.held.clear();
    nodes.machines[0].receiver_stays(NOW, CHANNEL, trip);
    nodes.run();
    assert_eq!((nodes.machines[0].census().homes, nodes.machines[2].census().proxies), (0, 0));
}

/// An old copy of a sender reached a node that had since given the valid one away: its record was replaced,
/// and its home waited for it for ever.
#[test]
fn late_copy_of_a_sender_that_has_moved_on_is_stale() {
    let mut nodes = Nodes::new(3);
    let (late, trip) = nodes.pack_sender(0);
    nodes.sender_arrives(1, late.clone(), 0);
    nodes.sender_left(0, trip, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.move_sender(1, 2);
    assert_eq!(nodes.sender_arrives(1, late, 0), Arrival::Stale);
    nodes.machines[2].end_proxy(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Ended(End::Gone)), "{:?}", nodes.homes);
}

/// An end had gone in a circle and was given to a node again before the first message there was known to have
/// left. The frame that settled the first gift ended the second: no node learned the outcome of the end.
#[test]
fn settling_an_earlier_gift_does_not_end_a_later_one() {
    let mut nodes = Nodes::new(3);
    let (place, first) = nodes.pack_receiver(0);
    assert_eq!(nodes.receiver_arrives(1, place, 0), Arrival::Guest);
    assert_eq!(nodes.move_receiver(1, 2), Arrival::Guest);
    assert_eq!(nodes.move_receiver(2, 0), Arrival::Returned);
    nodes.run();
    assert_eq!(nodes.move_receiver(0, 1), Arrival::Guest);
    nodes.receiver_left(0, first, 1);
    nodes.run();
    nodes.machines[1].drop_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Lapsed(End::Gone)), "{:?}", nodes.homes);
    // The same for a sender, which was in use meanwhile.
    let mut nodes = Nodes::new(4);
    nodes.move_sender(0, 3);
    nodes.machines[3].use_sender(NOW, CHANNEL);
    nodes.run();
    let (place, first) = nodes.pack_sender(3);
    assert_eq!(nodes.sender_arrives(1, place, 3), Arrival::Guest);
    assert_eq!(nodes.move_sender(1, 2), Arrival::Guest);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    assert_eq!(nodes.move_sender(2, 3), Arrival::Guest);
    assert_eq!(nodes.move_sender(3, 1), Arrival::Guest);
    nodes.sender_left(3, first, 1);
    nodes.run();
    nodes.machines[1].end_proxy(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert_eq!(
        nodes.machines[3].census().proxies,
        0,
        "the sender's home was not notified of its end: {:?}",
        nodes.homes
    );
}

/// An end whose home, or sponsor, had been an earlier life of its node was taken for one that is used there,
/// and went on a credit: frames about it arrived first.
#[test]
fn an_end_that_an_earlier_life_has_used_is_a_guest() {
    let mut nodes = Nodes::new(2);
    let (home, sponsor) = (id(1), id(1));
    let (trip, addresses, sponsor_addresses) = (1, Vec::new(), Vec::new());
    let sender =
        SenderPlace { trip, transfer: 1, epoch: 0, home: id(0), addresses: Vec::new(), sponsor, sponsor_addresses };
    let receiver = ReceiverPlace { trip, claim: 0, epoch: 0, home, addresses };
    let [node, other] = [1, 0];
    let machine = &mut nodes.machines[node];
    let giver = machine.contact(id(other));
    assert_eq!(machine.sender_arrives(NOW, CHANNEL, sender, giver), Arrival::Guest);
    assert!(machine.is_guest(CHANNEL, Which::Sender));
    // A receiver is lost with its home.
    assert_eq!(machine.receiver_arrives(NOW, CHANNEL, receiver, giver), Arrival::Stale);
    let machine = &mut nodes.machines[other];
    assert!(!machine.is_guest(CHANNEL, Which::Sender) && !machine.is_guest(CHANNEL, Which::Receiver));
}

/// A sender went on a credit, and the report that its channel had ended overtook its message. It was passed
/// on and used, and its home reported the same; the node that had passed it on waited for its giver.
#[test]
fn a_taker_notifies_its_giver_when_its_home_reports_the_end() {
    let mut nodes = Nodes::new(4);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.move_receiver(0, 3);
    nodes.run();
    let (place, trip) = nodes.pack_sender(1);
    nodes.sender_left(1, trip, 2);
    nodes.machines[0].end_home(NOW, CHANNEL, End::Retired);
    nodes.run();
    assert_eq!(nodes.sender_arrives(2, place, 1), Arrival::Guest);
    assert_eq!(nodes.move_sender(2, 3), Arrival::Guest);
    nodes.machines[3].use_sender(NOW, CHANNEL);
    nodes.run();
    let halves = nodes.machines.iter().map(|machine| machine.census().proxies);
    assert_eq!(halves.collect::<Vec<_>>(), [0; 4], "{:?}", nodes.proxies);
}

/// A home had ended, and waited for its receiver, whose holder was lost, so the home was forgotten. Before
/// the driver handled that, the receiver returned by another way: it was a guest at the node that was to be
/// its home, which reported it as lapsed.
#[test]
fn receiver_returning_to_its_forgotten_home_is_stale() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.move_receiver(0, 1);
    nodes.machines[0].end_home(NOW, CHANNEL, End::Retired);
    nodes.run();
    nodes.machines[1].end_proxy(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert_eq!((nodes.machines[0].census().homes, nodes.machines[1].census().proxies), (1, 0));
    assert_eq!(nodes.move_receiver(1, 2), Arrival::Guest);
    nodes.lose(0, 1);
    assert_eq!(nodes.move_receiver(2, 0), Arrival::Stale);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Lapsed(End::Lost)), "{:?}", nodes.homes);
    let left = nodes.machines.iter().map(|machine| (machine.census().homes, machine.census().visitors));
    assert_eq!(left.collect::<Vec<_>>(), [(0, 0); 3]);
}

/// A sender arrived at a node that did not know that its channel had ended; it returned to where it had been
/// given, and moved on from there. Its user asked that node, which had spoken for it when it first left, and
/// learned that it is lost; only then did the node learn that the message by which it had arrived was taken.
/// Seed 200132600 of the simulator.
#[test]
fn asking_for_a_lost_sender_finds_it_in_an_unacknowledged_message() {
    let mut nodes = Nodes::new(3);
    let (place, trip) = nodes.pack_sender(0);
    nodes.sender_left(0, trip, 1);
    nodes.machines[0].end_home(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert_eq!(nodes.sender_arrives(1, place, 0), Arrival::Guest);
    assert_eq!(nodes.move_sender(1, 0), Arrival::Guest);
    nodes.run();
    let (place, trip) = nodes.pack_sender(0);
    assert_eq!(nodes.sender_arrives(2, place, 0), Arrival::Guest);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.sender_left(0, trip, 2);
    nodes.run();
    for node in 0..3 {
        assert_eq!(nodes.machines[node].stand(CHANNEL), Stand::default(), "at {node}");
    }
}

/// A sender that had retired its channel moved on while the receiver moved. Its giver learned at the new home
/// that the channel is retired, and reported it; the sender took that for the end, although the home had just
/// admitted it: the receiver learned that its sender is lost.
#[test]
fn sender_admitted_by_its_home_outlives_its_givers_report_of_the_end() {
    // The new home receives the sender's frame first, then its giver's; and the other way round.
    for held in [[(2, 0), (0, 2)], [(3, 2), (3, 2)]] {
        is_retired_at_its_new_home(held);
    }
}

fn is_retired_at_its_new_home(held: [(usize, usize); 2]) {
    let mut nodes = Nodes::new(4);
    nodes.move_receiver(0, 1);
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    nodes.machines[0].end_proxy(NOW, CHANNEL, End::Retired);
    assert!(matches!(nodes.machines[0].pack_sender(NOW, CHANNEL), Leaving::Wait), "its home does not know that yet");
    nodes.run();
    nodes.move_receiver(1, 2);
    nodes.move_sender(0, 3);
    nodes.machines[2].use_receiver(NOW, CHANNEL);
    nodes.held.push((1, 0));
    nodes.run();
    nodes.machines[3].use_sender(NOW, CHANNEL);
    nodes.run();
    // The home has left, which the giver does not know, and the sender has asked the giver.
    for held in held {
        nodes.held = vec![held];
        nodes.run();
    }
    nodes.held.clear();
    nodes.run();
    let of_sender: Vec<_> = nodes.proxies.iter().filter(|(at, _)| *at == 3).map(|(_, heard)| heard).collect();
    assert!(of_sender.contains(&&ProxyHears::Ended(End::Retired)), "{of_sender:?}");
    assert!(!of_sender.iter().any(|heard| matches!(heard, ProxyHears::Lost { .. })), "{of_sender:?}");
    let lost = |(at, heard): &(usize, HomeHears)| {
        *at == 2 && matches!(heard, HomeHears::Ended(End::Lost) | HomeHears::Lost(_))
    };
    assert!(!nodes.homes.iter().any(lost), "{:?}", nodes.homes);
}

fn poison(strength: u8) -> End {
    End::Poisoned(Poison { strength, reason: "a part of it is over".into() })
}

impl Nodes {
    /// The sender is at node 2 and has two credits, the receiver is at node 0.
    fn with_credits() -> Self {
        let mut nodes = Self::new(3);
        nodes.move_sender(0, 2);
        nodes.machines[2].use_sender(NOW, CHANNEL);
        nodes.run();
        nodes.machines[0].credit(NOW, CHANNEL, id(2), 2);
        nodes.run();
        nodes
    }

    /// The receiver is used at node 1, where its channel has followed it; the sender's `Take` to that node is
    /// late.
    fn with_credits_and_a_late_take() -> Self {
        let mut nodes = Self::with_credits();
        nodes.held.push((2, 1));
        nodes.move_receiver(0, 1);
        nodes.machines[1].use_receiver(NOW, CHANNEL);
        nodes.run();
        assert!(nodes.home_heard(1, &HomeHears::Arrived(None)), "{:?}", nodes.homes);
        nodes
    }

    fn is_empty(&self) -> bool {
        self.machines.iter().all(|machine| machine.census().homes == 0 && machine.census().proxies == 0)
    }
}

/// A new home was retired before its sender had reached it, and what the sender had sent on credits meanwhile
/// was lost.
#[test]
fn new_home_retired_before_its_sender_arrives_receives_sent_values() {
    let mut nodes = Nodes::with_credits_and_a_late_take();
    let value = Bytes::from_static(b"k");
    assert!(nodes.machines[2].send_on_credit(NOW, CHANNEL, value.clone()));
    nodes.machines[1].end_home(NOW, CHANNEL, End::Retired);
    nodes.held.clear();
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Sent(value)), "{:?}", nodes.homes);
    assert!(nodes.proxies.contains(&(2, ProxyHears::Ended(End::Retired))), "{:?}", nodes.proxies);
    nodes.machines[2].end_proxy(NOW, CHANNEL, End::Retired);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Ended(End::Retired)), "{:?}", nodes.homes);
    nodes.machines[2].end_proxy(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert!(nodes.is_empty());
}

/// The same, but then the receiver is dropped too, or poisons the channel: the value is not received.
#[test]
fn a_new_home_that_ends_after_its_retirement_reports_it() {
    for how in [End::Gone, End::Lost, poison(2)] {
        let mut nodes = Nodes::with_credits_and_a_late_take();
        assert!(nodes.machines[2].send_on_credit(NOW, CHANNEL, Bytes::from_static(b"k")));
        nodes.machines[1].end_home(NOW, CHANNEL, End::Retired);
        nodes.machines[1].end_home(NOW, CHANNEL, how.clone());
        nodes.held.clear();
        nodes.run();
        let heard = if how == End::Lost {
            ProxyHears::Lost { unknown: Vec::new(), not_taken: Vec::new(), taken: Vec::new() }
        } else {
            ProxyHears::Ended(how)
        };
        assert!(nodes.proxies.contains(&(2, heard)), "{:?}", nodes.proxies);
        assert!(nodes.is_empty());
    }
}

/// A sender was not sure that it had its end, and asked its home, which was retired meanwhile: what it sent
/// on credits until the answer arrived was lost.
#[test]
fn retired_home_receives_values_sent_while_its_sender_is_in_doubt() {
    let mut nodes = Nodes::with_credits();
    let (_, trip) = nodes.pack_sender(2);
    assert!(nodes.machines[2].sender_back(NOW, CHANNEL, trip));
    let value = Bytes::from_static(b"k");
    assert!(nodes.machines[2].send_on_credit(NOW, CHANNEL, value.clone()));
    nodes.machines[0].end_home(NOW, CHANNEL, End::Retired);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Sent(value)), "{:?}", nodes.homes);
    nodes.machines[2].end_proxy(NOW, CHANNEL, End::Gone);
    nodes.run();
    assert!(nodes.is_empty());
}

/// A receiver that had retired its channel waited for the values on their way, and did not learn that the
/// sender was lost.
#[test]
fn a_retired_home_learns_that_its_sender_is_lost() {
    let mut nodes = Nodes::with_credits();
    nodes.machines[0].end_home(NOW, CHANNEL, End::Retired);
    nodes.lose(0, 2);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Lost(Vec::new())), "{:?}", nodes.homes);
}

/// While its home moved, a sender ended its channel several times, and only the first poison reached the new
/// home: one that was immune to it learned of no other end.
#[test]
fn every_ending_of_a_channel_is_sent_to_the_next_home() {
    for (first, then) in [(poison(1), End::Retired), (End::Retired, poison(1)), (poison(1), poison(255))] {
        let mut nodes = Nodes::with_credits_and_a_late_take();
        nodes.machines[2].end_proxy(NOW, CHANNEL, first);
        nodes.machines[2].end_proxy(NOW, CHANNEL, then.clone());
        nodes.held.clear();
        nodes.run();
        assert!(nodes.home_heard(1, &HomeHears::Ended(then)), "{:?}", nodes.homes);
    }
}

/// Poison without effect at a home hid the later end of the channel: the next home learned only of that
/// poison.
#[test]
fn poison_that_may_be_too_weak_hides_no_end() {
    // Its receiver is there.
    let mut nodes = Nodes::with_credits();
    nodes.machines[2].end_proxy(NOW, CHANNEL, poison(1));
    nodes.machines[2].end_proxy(NOW, CHANNEL, End::Retired);
    nodes.run();
    nodes.move_receiver(0, 1);
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Arrived(Some(End::Retired))), "{:?}", nodes.homes);
    // Its receiver is elsewhere: only the receiver's node knows whether the poison is too weak.
    let mut nodes = Nodes::with_credits();
    nodes.move_receiver(0, 1);
    nodes.machines[2].end_proxy(NOW, CHANNEL, poison(1));
    nodes.machines[2].end_proxy(NOW, CHANNEL, poison(3));
    nodes.machines[2].end_proxy(NOW, CHANNEL, End::Retired);
    nodes.run();
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Arrived(Some(poison(3)))), "{:?}", nodes.homes);
    assert!(nodes.home_heard(1, &HomeHears::Ended(End::Retired)), "{:?}", nodes.homes);
    // And its sender is lost.
    let mut nodes = Nodes::with_credits();
    nodes.move_receiver(0, 1);
    nodes.machines[2].end_proxy(NOW, CHANNEL, poison(1));
    nodes.run();
    nodes.lose(0, 2);
    nodes.machines[1].use_receiver(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.home_heard(1, &HomeHears::Arrived(Some(End::Lost))), "{:?}", nodes.homes);
}

/// A node that was given a sender returns it, and reports that it was used since: the home, which is here,
/// knows better. It never learned that the half was dropped for that, and its record stayed.
#[test]
fn a_sender_that_was_not_used_elsewhere_is_not_replaced() {
    for (lie, twice) in [(1, false), (1 << 32, false), (0, true)] {
        let mut nodes = Nodes::new(2);
        let (place, trip) = nodes.pack_sender(0);
        nodes.sender_left(0, trip, 1);
        let word = SenderPlace { transfer: place.transfer + lie, ..place };
        if twice {
            assert_eq!(nodes.sender_arrives(0, word.clone(), 1), Arrival::Returned);
        }
        assert_eq!(nodes.sender_arrives(0, word, 1), Arrival::Stale, "{lie}");
        nodes.run();
        assert!(nodes.machines[0].has_half(CHANNEL), "{lie}");
        // Its holder drops it, or is lost: the home is notified.
        if twice {
            nodes.machines[0].end_proxy(NOW, CHANNEL, End::Gone);
        } else {
            nodes.lose(0, 1);
        }
        nodes.run();
        let end = if twice { End::Gone } else { End::Lost };
        assert!(nodes.home_heard(0, &HomeHears::Ended(end)), "{lie}: {:?}", nodes.homes);
        assert_eq!(nodes.machines[0].census().proxies, 0, "{lie}");
    }
}

/// The honest counterpart: it was used elsewhere, and returns.
#[test]
fn a_sender_that_was_used_elsewhere_comes_back_as_a_guest() {
    let mut nodes = Nodes::new(2);
    assert_eq!(nodes.move_sender(0, 1), Arrival::Guest);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    assert_eq!(nodes.move_sender(1, 0), Arrival::Guest);
    nodes.machines[0].use_sender(NOW, CHANNEL);
    nodes.run();
    assert!(nodes.machines[0].has_half(CHANNEL) && nodes.machines[0].has_home(CHANNEL));
    assert_eq!(nodes.machines[1].census().proxies, 0);
}

/// The same with the home at a third node, which would never have learned that the half was dropped. A half
/// that is here, and that its home has admitted, is the latest.
#[test]
fn a_sender_that_a_third_node_has_admitted_is_not_replaced() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    let (place, trip) = nodes.pack_sender(1);
    nodes.sender_left(1, trip, 2);
    assert_eq!(nodes.sender_arrives(1, place.clone(), 2), Arrival::Returned);
    for lie in [0, 1, 1 << 32] {
        let word = SenderPlace { transfer: place.transfer + lie, ..place.clone() };
        assert_eq!(nodes.sender_arrives(1, word, 2), Arrival::Stale, "{lie}");
        nodes.run();
        assert!(nodes.machines[1].stand(CHANNEL).known, "{lie}");
    }
    nodes.machines[1].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.machines[1].end_proxy(NOW, CHANNEL, End::Gone);
    nodes.run();
    nodes.machines[0].taken(NOW, CHANNEL, id(1), 1);
    nodes.run();
    assert!(nodes.home_heard(0, &HomeHears::Ended(End::Gone)), "{:?}", nodes.homes);
    assert_eq!(nodes.machines[1].census().proxies, 0);
}

/// A lent sender returns, and its borrower reports that it was used since. If that is false, the home knows
/// only the lent half, and has to learn that it has ended; also if it is the next home, which has not
/// answered that half.
#[test]
fn a_home_learns_of_a_replaced_lent_half() {
    for moves in [false, true] {
        let mut nodes = Nodes::new(4);
        nodes.move_sender(0, 1);
        nodes.machines[1].use_sender(NOW, CHANNEL);
        nodes.run();
        let (place, trip) = nodes.pack_sender(1);
        nodes.sender_left(1, trip, 2);
        let home = if moves {
            nodes.held.push((3, 1));
            nodes.move_receiver(0, 3);
            nodes.machines[3].use_receiver(NOW, CHANNEL);
            nodes.run();
            3
        } else {
            0
        };
        let word = SenderPlace { transfer: place.transfer + 1, ..place };
        assert_eq!(nodes.sender_arrives(1, word, 2), Arrival::Guest);
        nodes.held.clear();
        nodes.run();
        // The sender is not needed.
        nodes.machines[1].end_proxy(NOW, CHANNEL, End::Gone);
        nodes.run();
        assert!(nodes.home_heard(home, &HomeHears::Ended(End::Lost)), "{moves}: {:?}", nodes.homes);
        assert_eq!(nodes.machines[home].stand(CHANNEL).home, Some(0), "{moves}");
        assert_eq!(nodes.machines[1].census().proxies, 0, "{moves}");
    }
}

/// The honest counterpart: it was used there, and returns before the home's report of that.
#[test]
fn sender_used_by_a_third_node_returns_before_its_homes_report() {
    let mut nodes = Nodes::new(3);
    nodes.move_sender(0, 1);
    nodes.machines[1].use_sender(NOW, CHANNEL);
    nodes.run();
    nodes.held.push((0, 1));
    assert_eq!(nodes.move_sender(1, 2), Arrival::Guest);
    nodes.machines[2].use_sender(NOW, CHANNEL);
    nodes.run();
    assert_eq!(nodes.move_sender(2, 1), Arrival::Guest);
    nodes.run();
    nodes.held.clear();
    nodes.machines[1].offer(NOW, CHANNEL, 1, Bytes::from_static(b"k"));
    nodes.run();
    assert!(nodes.machines[1].stand(CHANNEL).known);
    assert!(!nodes.home_heard(0, &HomeHears::Ended(End::Lost)), "{:?}", nodes.homes);
    nodes.machines[0].taken(NOW, CHANNEL, id(1), 1);
    nodes.run();
    let taken = ProxyHears::Taken(1, nodes.machines[1].contact(id(0)));
    assert!(nodes.proxies.contains(&(1, taken)), "{:?}", nodes.proxies);
}
