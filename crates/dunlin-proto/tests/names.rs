//! The name service: which ends are joined, and which nodes are notified of what.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::names::{Directory, DirectoryEvent, EntryState, NameService, Registry, RegistryConfig};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, Names, Room, Status, codec};
use dunlin_proto::{Config, Down, Source};

const LEASE: Duration = Duration::from_secs(3);

fn life(node: u128) -> Life {
    Life { node: NodeId(node), incarnation: Incarnation(1) }
}

fn face(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

fn shared(face: Face) -> Declaration {
    Declaration { face, shared: true, expects: Expected::Unknown, schema: Bytes::new() }
}

fn unreachable() -> Down {
    Down::Unreachable(Duration::from_secs(15), "no route".into())
}

/// A registry, and what it answers.
struct Server {
    registry: Registry,
    now: Time,
}

impl Server {
    fn new() -> Self {
        Self::with(RegistryConfig::default())
    }

    fn with(config: RegistryConfig) -> Self {
        Self { registry: Registry::new(config), now: Time(1) }
    }

    fn answers(&mut self) -> Vec<(Life, Names)> {
        std::iter::from_fn(|| self.registry.poll()).collect()
    }

    fn heard(&mut self, from: Life, said: Names) -> Vec<(Life, Names)> {
        self.now.0 += 1;
        self.registry.heard(self.now, from, said, &mut |_| Ok(()));
        self.answers()
    }

    /// Node `n` declares its end number `number`; a home's channel is `100 n + number`.
    fn declare(&mut self, n: u128, number: u64, face: &Declaration) -> Vec<(Life, Names)> {
        self.declare_as(n, number, face, Status::New)
    }

    fn declare_as(&mut self, n: u128, number: u64, face: &Declaration, status: Status) -> Vec<(Life, Names)> {
        self.heard(life(n), declare(n, number, "tides", face, status))
    }

    fn undeclare(&mut self, n: u128, number: u64) -> Vec<(Life, Names)> {
        self.heard(life(n), Names::Undeclare { number })
    }

    fn lost(&mut self, n: u128, why: &Down) -> Vec<(Life, Names)> {
        self.registry.lost(self.now, NodeId(n), why);
        self.answers()
    }

    fn wait(&mut self, wait: Duration) -> Vec<(Life, Names)> {
        self.now = self.now + wait;
        self.registry.tick(self.now);
        self.answers()
    }

    fn waiting(&self) -> Vec<(Face, u128)> {
        self.registry.waiting().map(|end| (end.face, end.who.node.0)).collect()
    }
}

fn channel(n: u128, number: u64) -> ChannelId {
    ChannelId(100 * n + u128::from(number))
}

fn declare(n: u128, number: u64, name: &str, face: &Declaration, status: Status) -> Names {
    let home = matches!(face.face, Face::Receiver | Face::Server | Face::Acceptor);
    let channel = if home { channel(n, number) } else { ChannelId(0) };
    Names::Declare { number, name: name.into(), channel, face: face.clone(), status }
}

/// Node `to` is notified that `of` has the other face.
fn found(to: (u128, u64), of: u128, channel: ChannelId, face: &Declaration) -> (Life, Names) {
    let (partner, face) = (life(of), face.clone());
    (life(to.0), Names::Found { number: to.1, partner, addresses: vec![], channel, face })
}

fn waits(n: u128, number: u64) -> (Life, Names) {
    (life(n), Names::Waiting { number })
}

fn refused(to: (u128, u64), there: &Declaration, holder: u128) -> (Life, Names) {
    (life(to.0), Names::Refused { number: to.1, there: there.clone(), holder: life(holder), addresses: vec![] })
}

fn unfit(to: (u128, u64), refused: &Declaration, by: u128) -> (Life, Names) {
    (life(to.0), Names::Unfit { number: to.1, refused: refused.clone(), by: life(by), addresses: vec![] })
}

fn gone(to: (u128, u64), partner: u128) -> (Life, Names) {
    (life(to.0), Names::Gone { number: to.1, partner: life(partner) })
}

const PAIRS: [(Face, Face); 3] =
    [(Face::Sender, Face::Receiver), (Face::Client, Face::Server), (Face::Client, Face::Acceptor)];

#[test]
fn every_pair_joins_in_either_order() {
    for (near, home) in PAIRS {
        for home_first in [false, true] {
            let mut server = Server::new();
            server.registry.met(life(1), &["one".into()], Source::Unknown);
            server.registry.met(life(2), &["two".into(), "zwei".into()], Source::Unknown);
            let ends = [(1, face(near)), (2, face(home))];
            let (first, second) = if home_first { (&ends[1], &ends[0]) } else { (&ends[0], &ends[1]) };
            assert_eq!(server.declare(first.0, 1, &first.1), [waits(first.0, 1)]);
            assert_eq!(server.waiting().len(), usize::from(first.1.face != Face::Acceptor));
            let answers = server.declare(second.0, 1, &second.1);

            let told = |to, of, addresses: &[&str], face: &Declaration| {
                let addresses = addresses.iter().map(|a| a.to_string()).collect();
                let (partner, face) = (life(of), face.clone());
                (life(to), Names::Found { number: 1, partner, addresses, channel: channel(2, 1), face })
            };
            let mut expected = vec![told(1, 2, &["two", "zwei"], &ends[1].1)];
            match home {
                Face::Acceptor if !home_first => expected.push(waits(2, 1)),
                Face::Acceptor => {}
                _ => expected.push(told(2, 1, &["one"], &ends[0].1)),
            }
            assert_eq!(answers, expected, "{near:?} {home:?}, home first: {home_first}");
            assert_eq!(server.waiting(), []);
        }
    }
}

#[test]
fn ends_of_different_names_are_not_joined() {
    let mut server = Server::new();
    server.declare(1, 1, &face(Face::Sender));
    let other = declare(2, 1, "tide", &face(Face::Receiver), Status::New);
    assert_eq!(server.heard(life(2), other), [waits(2, 1)]);
    let lines: Vec<_> = server.registry.waiting().collect();
    assert_eq!(
        (lines[0].name, lines[0].face, lines[0].who, lines[0].since),
        ("tide", Face::Receiver, life(2), Time(3))
    );
    assert_eq!((lines[1].name, lines[1].face, lines[1].who, lines[1].since), ("tides", Face::Sender, life(1), Time(2)));
}

/// The state of each declaration, in one list.
#[test]
fn every_declaration_is_listed() {
    let states = |server: &Server| -> Vec<(String, Face, u128, EntryState)> {
        let entries = server.registry.entries_from("");
        entries.map(|entry| (entry.name.to_owned(), entry.face.face, entry.who.node.0, entry.state)).collect()
    };
    let mut server = Server::new();
    server.registry.met(life(1), &["one".into()], Source::Unknown);
    server.declare(1, 1, &face(Face::Sender));
    server.heard(life(2), declare(2, 1, "lights", &face(Face::Acceptor), Status::New));
    let lights = ("lights".to_owned(), Face::Acceptor, 2, EntryState::Accepting);
    let sender = |state| ("tides".to_owned(), Face::Sender, 1, state);
    let receiver = |state| ("tides".to_owned(), Face::Receiver, 2, state);
    assert_eq!(states(&server), [lights.clone(), sender(EntryState::Waiting)]);
    let first = server.registry.entries_from("").nth(1).unwrap();
    assert_eq!((first.addresses, first.since), (&["one".to_owned()][..], Time(2)));
    server.declare(2, 2, &face(Face::Receiver));
    assert_eq!(states(&server), [lights.clone(), sender(EntryState::Joined), receiver(EntryState::Joined)]);
    server.lost(1, &unreachable());
    assert_eq!(states(&server), [lights, sender(EntryState::Away), receiver(EntryState::Joined)]);

    // A server that takes over admits no new holder for one lease.
    let mut next = Server { registry: Registry::taking_over(RegistryConfig::default(), Time(0)), now: Time(1) };
    next.declare(1, 1, &face(Face::Sender));
    assert_eq!(states(&next), [sender(EntryState::Unadmitted)]);
    next.wait(LEASE);
    assert_eq!(states(&next), [sender(EntryState::Waiting)]);

    // Each holder of a home's other face is joined, and so is the home.
    let mut several = Server::new();
    several.declare(2, 1, &shared(Face::Receiver));
    several.declare(1, 1, &shared(Face::Sender));
    assert_eq!(states(&several), [receiver(EntryState::Joined), sender(EntryState::Joined)]);
}

#[test]
fn one_node_may_have_both_faces() {
    let mut server = Server::new();
    server.declare(1, 1, &face(Face::Sender));
    let answers = server.declare(1, 2, &face(Face::Receiver));
    let told =
        [found((1, 1), 1, channel(1, 2), &face(Face::Receiver)), found((1, 2), 1, channel(1, 2), &face(Face::Sender))];
    assert_eq!(answers, told);
}

#[test]
fn names_are_checked() {
    let long = "x".repeat(255);
    for good in ["a", "tide tables", "~!@#", " ", &long] {
        let mut server = Server::new();
        let said = declare(1, 1, good, &face(Face::Sender), Status::New);
        assert_eq!(server.heard(life(1), said), [waits(1, 1)], "{good}");
    }
    let longer = "x".repeat(256);
    for bad in ["", "a/b", "/", "tab\t", "del\x7f", "Flöße", "line\n", &longer] {
        let mut server = Server::new();
        for status in [Status::New, Status::Known, Status::Joined(ChannelId(1))] {
            let said = declare(1, 1, bad, &face(Face::Sender), status);
            assert_eq!(server.heard(life(1), said), [(life(1), Names::BadName { number: 1 })], "{bad}");
        }
        assert!(server.registry.is_empty());

        // A directory does not send the request: a longer name would break the protocol.
        let mut directory = Directory::new();
        directory.server_is(NodeId(9));
        directory.declare(Time(0), 1, bad, face(Face::Sender), ChannelId(0));
        assert_eq!(directory.poll(), Some(DirectoryEvent::BadName { number: 1 }));
        assert_eq!((directory.poll_said(), directory.len()), (None, 0));
    }
}

#[test]
fn a_mismatch_is_refused_with_the_existing_face() {
    let expecting = |face, shared, expects| Declaration { face, shared, expects, schema: Bytes::from_static(b"f64") };
    let cases = [
        // Two of an unshared face.
        (face(Face::Sender), face(Face::Sender)),
        (face(Face::Receiver), face(Face::Receiver)),
        (face(Face::Server), face(Face::Server)),
        (face(Face::Acceptor), face(Face::Acceptor)),
        (face(Face::Sender), shared(Face::Sender)),
        (shared(Face::Receiver), face(Face::Receiver)),
        // Another kind.
        (face(Face::Sender), face(Face::Client)),
        (face(Face::Sender), face(Face::Server)),
        (face(Face::Receiver), face(Face::Acceptor)),
        (face(Face::Client), face(Face::Receiver)),
        (face(Face::Client), face(Face::Sender)),
        // Two kinds of home, shared or not.
        (face(Face::Server), face(Face::Acceptor)),
        (shared(Face::Acceptor), shared(Face::Server)),
        // A mismatch with what the other face expects.
        (expecting(Face::Sender, false, Expected::Shared), face(Face::Receiver)),
        (shared(Face::Sender), expecting(Face::Receiver, false, Expected::Unshared)),
        (shared(Face::Client), expecting(Face::Acceptor, false, Expected::Unshared)),
    ];
    for (there, comes) in cases {
        let mut server = Server::new();
        server.declare(1, 4, &there);
        let (kinds, sides) = ([Face::Sender, Face::Receiver], [Face::Receiver, Face::Server, Face::Acceptor]);
        let differs = |faces: &[Face]| faces.contains(&there.face) != faces.contains(&comes.face);
        // The existing end is notified, unless the new one only has the same face.
        let told = (differs(&kinds) || differs(&sides)).then(|| unfit((1, 4), &comes, 2));
        let answers: Vec<_> = told.into_iter().chain([refused((2, 5), &there, 1)]).collect();
        assert_eq!(server.declare(2, 5, &comes), answers, "{there:?} {comes:?}");
        assert_eq!(server.registry.len(), 1);
        // The existing declaration stands.
        let face = match there.face {
            Face::Sender => Face::Receiver,
            Face::Receiver => Face::Sender,
            Face::Client => Face::Server,
            Face::Server | Face::Acceptor => Face::Client,
        };
        let answers = server.declare(3, 6, &expecting(face, there.expects == Expected::Shared, Expected::Unknown));
        let told = |answer: &(Life, Names)| matches!(answer.1, Names::Found { .. });
        assert_eq!(answers.iter().filter(|a| told(a)).count(), if there.face == Face::Acceptor { 1 } else { 2 });
    }
}

#[test]
fn a_declaration_is_notified_once_of_each_node_that_does_not_fit() {
    let unfitting = Declaration { expects: Expected::Shared, ..face(Face::Client) };
    let there = face(Face::Acceptor);
    let mut server = Server::new();
    server.registry.met(life(2), &["tcp://sea:7400".into()], Source::Unknown);
    server.declare(1, 4, &there);
    let answers = server.declare(2, 5, &unfitting);
    let Names::Unfit { addresses, .. } = &answers[0].1 else { panic!("{answers:?}") };
    assert_eq!((answers[0].0, &addresses[..]), (life(1), &["tcp://sea:7400".to_owned()][..]));
    // The same node again, and then many others.
    assert_eq!(server.declare(2, 6, &unfitting), [refused((2, 6), &there, 1)]);
    let told = (10..100).filter(|n| server.declare(*n, 1, &unfitting).len() == 2).count();
    assert_eq!(told, 15, "a declaration is notified of 16 nodes");
    // Others that fit are joined meanwhile.
    assert_eq!(server.declare(3, 1, &face(Face::Client)), [found((3, 1), 1, channel(1, 4), &there)]);
}

#[test]
fn a_declaration_on_lease_is_notified_when_it_is_back() {
    let unfitting = Declaration { expects: Expected::Shared, ..face(Face::Sender) };
    let there = face(Face::Receiver);
    let mut server = Server::new();
    server.declare(1, 4, &there);
    server.lost(1, &unreachable());
    assert_eq!(server.declare(2, 5, &unfitting), []);
    // It has returned, and is notified now.
    assert!(server.declare(1, 4, &there).contains(&unfit((1, 4), &unfitting, 2)));
}

#[test]
fn a_directory_keeps_an_end_that_another_did_not_fit() {
    let (server, mine) = (NodeId(9), face(Face::Receiver));
    let mut directory = Directory::new();
    directory.server_is(server);
    directory.declare(Time(0), 1, "tides", mine, ChannelId(7));
    directory.heard(server, unfit((1, 1), &face(Face::Sender), 2).1);
    let (by, refused) = (life(2), face(Face::Sender));
    let unfit_here = DirectoryEvent::Unfit { number: 1, refused, by, addresses: vec![] };
    assert_eq!(events(&mut directory), [unfit_here]);
    assert_eq!(directory.len(), 1);
    // An event for an end that is gone, or from another node, is ignored.
    directory.heard(NodeId(8), unfit((1, 1), &face(Face::Sender), 2).1);
    directory.undeclare(1);
    directory.heard(server, unfit((1, 1), &face(Face::Sender), 2).1);
    assert_eq!(events(&mut directory), []);
}

#[test]
fn ends_join_only_if_sharing_matches_both_expectations() {
    let holds = |expected, shared: bool| match expected {
        Expected::Unknown => true,
        Expected::Unshared => !shared,
        Expected::Shared => shared,
    };
    let all = || {
        let sharing = [false, true].into_iter();
        sharing.flat_map(|s| [Expected::Unknown, Expected::Unshared, Expected::Shared].map(move |e| (s, e)))
    };
    let mut joined = 0;
    for (near, home) in PAIRS {
        for (near_shared, near_expects) in all() {
            for (home_shared, home_expects) in all() {
                for home_first in [false, true] {
                    let schema = Bytes::from_static(b"f64");
                    let a =
                        Declaration { face: near, shared: near_shared, expects: near_expects, schema: schema.clone() };
                    let b = Declaration { face: home, shared: home_shared, expects: home_expects, schema };
                    let ends =
                        if home_first { [(2, b.clone()), (1, a.clone())] } else { [(1, a.clone()), (2, b.clone())] };
                    let mut server = Server::new();
                    server.declare(ends[0].0, 1, &ends[0].1);
                    let answers = server.declare(ends[1].0, 1, &ends[1].1);
                    if holds(near_expects, home_shared) && holds(home_expects, near_shared) {
                        assert_eq!(answers[0], found((1, 1), 2, channel(2, 1), &b));
                        joined += 1;
                    } else {
                        let told = unfit((ends[0].0, 1), &ends[1].1, ends[1].0);
                        assert_eq!(answers, [told, refused((ends[1].0, 1), &ends[0].1, ends[0].0)]);
                    }
                }
            }
        }
    }
    // For each face: unshared or shared, and two of the three expectations hold.
    assert_eq!(joined, 3 * 2 * (2 * 2) * (2 * 2));
}

#[test]
fn a_home_is_notified_of_every_shared_partner() {
    let (sender, receiver) = (shared(Face::Sender), face(Face::Receiver));
    let mut server = Server::new();
    server.declare(1, 1, &sender);
    assert_eq!(server.declare(2, 1, &sender), [waits(2, 1)]);
    let c = channel(9, 1);
    let answers = server.declare(9, 1, &receiver);
    let both = |n| [found((n, 1), 9, c, &receiver), found((9, 1), n, c, &sender)];
    assert_eq!(answers, [both(1), both(2)].concat());
    assert_eq!(server.declare(3, 1, &sender), both(3));

    // One end leaves, and others still join, even after all have left.
    assert_eq!(server.undeclare(1, 1), [gone((9, 1), 1)]);
    assert_eq!(server.waiting(), []);
    assert_eq!(server.lost(2, &Down::Left), [gone((9, 1), 2)]);
    assert_eq!(server.undeclare(3, 1), [gone((9, 1), 3)]);
    assert_eq!(server.waiting(), [(Face::Receiver, 9)]);
    assert_eq!(server.declare(4, 1, &sender), both(4));
}

#[test]
fn a_partner_with_two_ends_has_gone_when_both_have() {
    let mut server = Server::new();
    server.declare(9, 1, &face(Face::Receiver));
    server.declare(1, 1, &shared(Face::Sender));
    server.declare(1, 2, &shared(Face::Sender));
    assert_eq!(server.undeclare(1, 1), []);
    assert_eq!(server.undeclare(1, 2), [gone((9, 1), 1)]);
}

#[test]
fn first_of_several_holders_of_a_home_is_the_home() {
    let (sender, receiver) = (face(Face::Sender), shared(Face::Receiver));
    let mut server = Server::new();
    assert_eq!(server.declare(1, 1, &receiver), [waits(1, 1)]);
    let c = channel(1, 1);
    assert_eq!(server.declare(2, 1, &receiver), [found((2, 1), 1, c, &receiver)]);
    assert_eq!(server.declare(3, 1, &sender), [found((3, 1), 1, c, &receiver), found((1, 1), 3, c, &sender)]);
    // Also while its one partner is there, but not when that has gone.
    assert_eq!(server.declare(4, 1, &receiver), [found((4, 1), 1, c, &receiver)]);
    assert_eq!(server.undeclare(3, 1), [gone((1, 1), 3)]);
    assert_eq!(server.declare_as(1, 1, &receiver, Status::Joined(c)), []);
    assert_eq!(server.declare(5, 1, &receiver), [waits(5, 1)]);
    // The others were joined to the first's channel; they do not replace it.
    server.undeclare(1, 1);
    assert_eq!(server.declare(6, 1, &sender)[0], found((6, 1), 5, channel(5, 1), &receiver));
}

/// It would lose its partners, and they their channel, if it were moved to the channel of the first when that
/// returns.
#[test]
fn a_holder_that_was_joined_while_the_first_was_away_stays_a_home() {
    let mut server = Server::new();
    let (sender, receiver) = (shared(Face::Sender), shared(Face::Receiver));
    server.declare(2, 1, &receiver);
    server.declare(3, 1, &sender);
    server.lost(2, &unreachable());
    server.declare(4, 1, &receiver);
    let mine = channel(4, 1);
    assert_eq!(
        server.declare(5, 1, &sender),
        [found((5, 1), 4, mine, &receiver), found((4, 1), 5, mine, &sender)],
        "the first is away"
    );
    let first = channel(2, 1);
    assert_eq!(server.declare_as(2, 1, &receiver, Status::Known), [found((2, 1), 3, first, &sender)]);
    // Later ends are joined to the first, which is one of two homes now. Once the other one has no partner,
    // it is joined to the first like a later holder.
    assert_eq!(server.declare(6, 1, &sender), [found((6, 1), 2, first, &receiver), found((2, 1), 6, first, &sender)]);
    assert_eq!(server.undeclare(5, 1), [gone((4, 1), 5), found((4, 1), 2, first, &receiver)]);
}

#[test]
fn an_acceptor_has_any_number_of_clients() {
    let (client, acceptor) = (face(Face::Client), face(Face::Acceptor));
    let c = channel(9, 1);
    let mut server = Server::new();
    assert_eq!(server.declare(1, 1, &client), [waits(1, 1)]);
    // The server cannot tell yet whether two are too many.
    assert_eq!(server.declare(2, 1, &client), []);
    assert_eq!(server.declare(3, 1, &shared(Face::Client)), []);
    assert_eq!(server.waiting(), [(Face::Client, 1), (Face::Client, 2), (Face::Client, 3)]);
    let to = |n| found((n, 1), 9, c, &acceptor);
    let answers = server.declare(9, 1, &acceptor);
    assert_eq!(answers, [to(1), to(2), to(3), waits(9, 1)]);
    assert_eq!(server.declare(4, 1, &client), [to(4)]);
    assert_eq!((server.registry.len(), server.waiting()), (1, vec![]));

    // Its clients need no name any more: another server may have it.
    server.undeclare(9, 1);
    assert_eq!(server.declare(8, 1, &face(Face::Server)), [waits(8, 1)]);
    assert_eq!(server.declare(5, 1, &client)[0], found((5, 1), 8, channel(8, 1), &face(Face::Server)));
}

/// Seed 584: an acceptor is lost, and a shared and an unshared client wait for it; it does not return, and a
/// server is declared.
#[test]
fn server_takes_one_of_the_clients_that_waited_for_a_lost_acceptor() {
    let mut server = Server::new();
    server.declare(9, 1, &face(Face::Acceptor));
    server.lost(9, &unreachable());
    assert_eq!(server.declare(1, 1, &shared(Face::Client)), [waits(1, 1)]);
    assert_eq!(server.declare(2, 1, &face(Face::Client)), []);
    assert_eq!(server.declare(8, 1, &face(Face::Server)), []);
    let c = channel(8, 1);
    let answers = server.wait(LEASE);
    let both = [found((1, 1), 8, c, &face(Face::Server)), found((8, 1), 1, c, &shared(Face::Client))];
    assert_eq!(answers[..1], [refused((2, 1), &shared(Face::Client), 1)]);
    assert_eq!(answers[1..], both);
}

#[test]
fn client_of_a_former_server_does_not_block_an_acceptor() {
    let (client, acceptor) = (face(Face::Client), face(Face::Acceptor));
    let mut server = Server::new();
    server.declare(1, 1, &client);
    server.declare(8, 1, &face(Face::Server));
    server.undeclare(8, 1);
    assert_eq!(server.declare(9, 1, &acceptor), [waits(9, 1)]);
    assert_eq!(server.declare(2, 1, &client), [found((2, 1), 9, channel(9, 1), &acceptor)]);
}

#[test]
fn of_several_clients_a_server_takes_the_first() {
    let (client, there) = (face(Face::Client), face(Face::Server));
    let c = channel(9, 1);
    let mut server = Server::new();
    server.declare(1, 1, &client);
    server.declare(2, 1, &client);
    server.declare(3, 1, &client);
    let answers = server.declare(9, 1, &there);
    let mut expected = vec![
        found((1, 1), 9, c, &there),
        found((9, 1), 1, c, &client),
        refused((2, 1), &client, 1),
        refused((3, 1), &client, 1),
    ];
    expected.sort_by_key(|(to, _)| *to);
    let mut sorted = answers;
    sorted.sort_by_key(|(to, _)| *to);
    assert_eq!(sorted, expected);
    assert_eq!(server.declare(4, 1, &client), [refused((4, 1), &client, 1)]);
    // If the first leaves before there is a server, the next one takes its place.
    let mut server = Server::new();
    server.declare(1, 1, &client);
    server.declare(2, 1, &client);
    assert_eq!(server.undeclare(1, 1), [waits(2, 1)]);
    assert_eq!(server.declare(9, 1, &there)[0], found((2, 1), 9, c, &there));
}

#[test]
fn an_unshared_pair_is_used_up() {
    let (sender, receiver) = (face(Face::Sender), face(Face::Receiver));
    let mut server = Server::new();
    server.declare(1, 1, &sender);
    server.declare(2, 1, &receiver);
    let c = channel(2, 1);
    assert_eq!(server.declare_as(2, 1, &receiver, Status::Joined(c)), [found((2, 1), 1, c, &sender)]);
    assert_eq!(server.declare(3, 1, &sender), [refused((3, 1), &sender, 1)]);
    assert_eq!(server.declare(3, 1, &receiver), [refused((3, 1), &receiver, 2)]);

    // The sender leaves: the next one waits, but not for this receiver.
    assert_eq!(server.undeclare(1, 1), [gone((2, 1), 1)]);
    assert_eq!(server.declare(3, 1, &sender), [waits(3, 1)]);
    assert_eq!(server.waiting(), [(Face::Sender, 3)]);
    assert_eq!(server.declare(4, 1, &receiver), [refused((4, 1), &receiver, 2)]);
    assert_eq!(server.undeclare(2, 1), []);
    assert_eq!(server.declare(4, 1, &receiver)[0], found((3, 1), 4, channel(4, 1), &receiver));

    // The receiver leaves first: the remaining sender belongs to no pair.
    assert_eq!(server.undeclare(4, 1), []);
    assert_eq!(server.declare(5, 1, &receiver), [waits(5, 1)]);
    assert_eq!(server.declare(6, 1, &sender), [refused((6, 1), &sender, 3)]);
    assert_eq!(server.undeclare(3, 1), []);
    assert_eq!(server.declare(6, 1, &sender)[0], found((6, 1), 5, channel(5, 1), &receiver));
}

#[test]
fn a_partner_that_never_attached_has_not_used_the_home_up() {
    let (sender, receiver) = (face(Face::Sender), face(Face::Receiver));
    let mut server = Server::new();
    server.declare(2, 1, &receiver);
    server.declare(1, 1, &sender);
    assert_eq!(server.lost(1, &Down::Restarted), [gone((2, 1), 1)]);
    assert_eq!(server.declare(3, 1, &sender), [waits(3, 1)], "the home's node has not answered");
    let c = channel(2, 1);
    let answers = server.declare_as(2, 1, &receiver, Status::Known);
    assert_eq!(answers, [found((3, 1), 2, c, &receiver), found((2, 1), 3, c, &sender)]);
}

#[test]
fn a_lost_node_keeps_its_place_for_one_lease() {
    let (sender, receiver) = (face(Face::Sender), face(Face::Receiver));
    let mut server = Server::new();
    server.declare(1, 1, &sender);
    assert_eq!(server.lost(1, &unreachable()), []);
    assert_eq!(server.waiting(), []);
    // It is not joined, and an end that would be refused because of it waits.
    assert_eq!(server.declare(2, 1, &receiver), [waits(2, 1)]);
    assert_eq!(server.declare(3, 1, &sender), []);
    // It returns, and everything is as if it had never been away.
    let c = channel(2, 1);
    let both = [found((1, 1), 2, c, &receiver), found((2, 1), 1, c, &sender)];
    let answers = server.declare_as(1, 1, &sender, Status::Known);
    assert_eq!(answers[0], refused((3, 1), &sender, 1));
    assert_eq!(answers[1..], both);

    // It is lost again without having received the answer: it is notified again, and no other is joined.
    server.lost(1, &Down::GivenUp);
    assert_eq!(server.declare_as(1, 1, &sender, Status::Known), both);
    server.lost(1, &Down::GivenUp);
    assert_eq!(server.declare_as(1, 1, &sender, Status::Joined(c)), both[1..]);
    server.lost(2, &Down::GivenUp);
    assert_eq!(server.declare_as(2, 1, &receiver, Status::Known), both[1..]);
    assert_eq!(server.registry.len(), 2);

    // It does not return.
    let lost_at = server.now;
    server.lost(1, &unreachable());
    assert_eq!(server.declare(3, 1, &sender), []);
    assert!(server.registry.next_tick().is_some_and(|at| at <= lost_at + LEASE));
    assert_eq!(server.wait(LEASE - Duration::from_micros(2)), []);
    assert_eq!(server.wait(Duration::from_micros(1)), [gone((2, 1), 1), waits(3, 1)]);
    assert_eq!(server.registry.len(), 2);
    assert_eq!(server.registry.next_tick(), None);
}

#[test]
fn leases_end_without_a_tick_too() {
    let mut server = Server::new();
    server.declare(1, 1, &face(Face::Sender));
    server.lost(1, &unreachable());
    server.now = server.now + LEASE;
    assert_eq!(server.declare(2, 1, &face(Face::Sender)), [waits(2, 1)]);
}

/// Any member can report that an end of its own was joined elsewhere, even if none was.
#[test]
fn a_claimed_join_excludes_no_other_from_a_name() {
    for hostile in [face(Face::Sender), shared(Face::Sender), shared(Face::Receiver), face(Face::Receiver)] {
        let mut server = Server::new();
        let acceptor = face(Face::Acceptor);
        assert_eq!(server.declare(1, 0, &acceptor), [waits(1, 0)]);
        // At once, or for an end that was refused or waits.
        let joined = Status::Joined(channel(66, 6));
        assert_eq!(server.declare_as(66, 6, &hostile, joined), [refused((66, 6), &acceptor, 1)]);
        for client in 2..4 {
            let answers = server.declare(client, 0, &face(Face::Client));
            assert!(answers.contains(&found((client, 0), 1, channel(1, 0), &acceptor)), "{hostile:?}: {answers:?}");
        }
        // When the existing declaration has gone, the claimed one counts like any other.
        server.undeclare(1, 0);
        let answers = server.declare(4, 0, &acceptor);
        assert!(answers.contains(&refused((4, 0), &hostile, 66)), "{answers:?}");
    }
}

/// A joined end of the same node names a home, which is then in use, whatever else was declared.
#[test]
fn a_claimed_use_takes_no_holder_from_a_name() {
    let mut server = Server::new();
    let acceptor = face(Face::Acceptor);
    server.declare(1, 0, &acceptor);
    server.declare_as(66, 7, &face(Face::Client), Status::Joined(channel(66, 6)));
    let answers = server.declare(66, 6, &acceptor);
    assert!(answers.contains(&refused((66, 6), &acceptor, 1)), "{answers:?}");
    let answers = server.declare(2, 0, &face(Face::Client));
    assert!(answers.contains(&found((2, 0), 1, channel(1, 0), &acceptor)), "{answers:?}");
}

/// A second client waits for a server that takes one: it cannot claim to have been joined.
#[test]
fn a_waiting_end_that_claims_to_be_joined_is_checked() {
    let mut server = Server::new();
    server.declare(1, 0, &face(Face::Receiver));
    server.declare(2, 0, &face(Face::Sender));
    let answers = server.declare(66, 6, &face(Face::Server));
    assert!(answers.iter().any(|(_, said)| matches!(said, Names::Refused { number: 6, .. })), "{answers:?}");
    let answers = server.declare_as(66, 6, &face(Face::Server), Status::Joined(channel(66, 6)));
    assert!(answers.iter().any(|(_, said)| matches!(said, Names::Refused { number: 6, .. })), "{answers:?}");
    server.undeclare(2, 0);
    let answers = server.declare(3, 0, &face(Face::Sender));
    assert!(!answers.iter().any(|(_, said)| matches!(said, Names::Refused { .. })), "{answers:?}");
}

#[test]
fn nodes_that_left_or_restarted_keep_no_place() {
    let (sender, receiver) = (face(Face::Sender), face(Face::Receiver));
    for why in [Down::Left, Down::Restarted] {
        let mut server = Server::new();
        server.declare(1, 1, &sender);
        server.declare(1, 2, &shared(Face::Receiver));
        server.lost(1, &why);
        assert!(server.registry.is_empty());
        assert_eq!(server.declare(2, 1, &sender), [waits(2, 1)]);
    }
    // The server sees the node's next life, or connects to it, before the connection reports it.
    for met in [false, true] {
        let mut server = Server::new();
        server.declare(1, 1, &sender);
        let next = Life { node: NodeId(1), incarnation: Incarnation(2) };
        if met {
            server.registry.met(next, &[], Source::Unknown);
            assert!(server.registry.is_empty());
        }
        let said = declare(1, 1, "tides", &receiver, Status::New);
        assert_eq!(server.heard(next, said), [(next, Names::Waiting { number: 1 })]);
        assert_eq!(server.declare(1, 5, &sender), [], "the server ignores the former life");
        assert_eq!(server.registry.len(), 1);
    }
}

#[test]
fn a_server_that_takes_over_learns_all_before_it_joins() {
    let (sender, receiver) = (face(Face::Sender), face(Face::Receiver));
    let c = channel(2, 1);
    let taking_over = || {
        let mut server = Server::new();
        server.registry = Registry::taking_over(RegistryConfig::default(), server.now);
        server
    };
    // Strangers declare first; they get the places that the former nodes leave.
    let mut server = taking_over();
    assert_eq!(server.declare(3, 1, &sender), []);
    assert_eq!(server.declare(4, 1, &receiver), []);
    assert_eq!(server.waiting().len(), 2);
    assert_eq!(server.declare_as(1, 1, &sender, Status::Known), [waits(1, 1)]);
    assert_eq!(server.declare_as(2, 1, &receiver, Status::Known), [waits(2, 1)]);
    assert_eq!(server.wait(LEASE)[..2], [refused((3, 1), &sender, 1), refused((4, 1), &receiver, 2)]);
    assert_eq!(server.registry.len(), 2);

    // Only one of a pair knew of it: the other is notified, and no other end is joined to it.
    for home_first in [false, true] {
        for known in [Status::Known, Status::New] {
            let mut server = taking_over();
            server.declare(3, 1, &sender);
            let mut answers = Vec::new();
            for home in [home_first, !home_first] {
                answers.extend(match home {
                    true => server.declare_as(2, 1, &receiver, known),
                    false => server.declare_as(1, 1, &sender, Status::Joined(c)),
                });
            }
            answers.extend(server.wait(LEASE));
            let found = answers.iter().filter(|(_, said)| matches!(said, Names::Found { .. }));
            let expected = (
                life(2),
                Names::Found { number: 1, partner: life(1), addresses: vec![], channel: c, face: sender.clone() },
            );
            assert_eq!(found.collect::<Vec<_>>(), [&expected], "{home_first} {known:?}");
            assert!(answers.contains(&refused((3, 1), &sender, 1)));
        }
    }

    // A receiver that is used up is not joined again.
    let mut server = taking_over();
    server.declare_as(2, 1, &receiver, Status::Joined(c));
    server.declare(3, 1, &sender);
    assert_eq!(server.wait(LEASE), [waits(3, 1)]);
}

/// The previous server has notified the client, and ended before it notified the home.
#[test]
fn a_home_without_its_client_yet_is_not_refused_for_another() {
    let (client, home) = (shared(Face::Client), face(Face::Server));
    let mut server = Server::new();
    server.registry.take_over(server.now);
    server.declare(4, 1, &home);
    server.declare_as(3, 1, &client, Status::Joined(channel(2, 1)));
    server.declare(2, 1, &home);
    let answers = [found((2, 1), 3, channel(2, 1), &client), refused((4, 1), &home, 2)];
    assert_eq!(server.wait(LEASE), answers);
    // If the other home has been admitted before, both stand, and the second is notified.
    let mut server = Server::new();
    server.declare(4, 1, &home);
    server.registry.take_over(server.now);
    server.declare_as(3, 1, &client, Status::Joined(channel(2, 1)));
    server.declare(2, 1, &home);
    let answers = [found((2, 1), 3, channel(2, 1), &client), refused((2, 1), &home, 4)];
    assert_eq!(server.wait(LEASE), answers);
}

#[test]
fn declaring_something_else_under_a_number_replaces_it() {
    let mut server = Server::new();
    server.declare(1, 1, &face(Face::Sender));
    assert_eq!(server.declare(1, 1, &face(Face::Receiver)), [waits(1, 1)]);
    let elsewhere = declare(1, 1, "ebb", &face(Face::Receiver), Status::New);
    assert_eq!(server.heard(life(1), elsewhere), [waits(1, 1)]);
    assert_eq!((server.registry.len(), server.registry.waiting().next().unwrap().name), (1, "ebb"));
}

/// The memory for a node's declarations is known exactly, and a declaration without room is refused; an
/// earlier one under its number ends then.
#[test]
fn declarations_without_room_in_memory_are_refused() {
    let mut registry = Registry::new(RegistryConfig::default());
    let with = |name: &str, schema: usize| {
        let face = Declaration { schema: Bytes::from(vec![0; schema]), ..shared(Face::Sender) };
        declare(1, 1, name, &face, Status::New)
    };
    let (mut asked, max) = (0, 5000);
    let mut says = |registry: &mut Registry, said| {
        registry.heard(Time(0), life(1), said, &mut |bytes| {
            asked = bytes;
            if bytes <= max { Ok(()) } else { Err(max) }
        });
        let answers: Vec<Names> = std::iter::from_fn(|| registry.poll()).map(|(_, said)| said).collect();
        (asked, registry.cost_of(NodeId(1)), answers)
    };
    let (asked, cost, answers) = says(&mut registry, with("a", 0));
    assert_eq!((asked, answers), (cost, vec![Names::Waiting { number: 1 }]));
    // The same declaration again takes no more, and another one in its place takes only the difference.
    assert_eq!(says(&mut registry, with("a", 0)).0, cost);
    assert_eq!(says(&mut registry, with("b", 100)).1, cost + 100);
    let full = vec![Names::Full { number: 1, room: Room::Memory, max }];
    assert_eq!(says(&mut registry, with("b", 5000)), (cost + 5000, 0, full));
    assert!(registry.is_empty());
}

/// A declaration is compared with the clients that wait, and not with every pair of them: otherwise a few
/// thousand, of 27 bytes each, would stop a name service for minutes.
#[test]
fn many_clients_of_one_name_wait_at_little_cost() {
    const CLIENTS: u64 = 4_000;
    let mut server = Server::new();
    let client = shared(Face::Client);
    for number in 0..CLIENTS {
        server.heard(life(1), declare(1, number, "shop", &client, Status::New));
    }
    assert_eq!(server.registry.len(), CLIENTS as usize);
    // The same number of clients that claim to be joined: a new one is compared with the kinds of them, and
    // not with each.
    for number in 0..CLIENTS {
        server.heard(life(2), declare(2, number, "shop", &face(Face::Client), Status::Joined(channel(3, number))));
    }
    for number in CLIENTS..2 * CLIENTS {
        server.heard(life(1), declare(1, number, "shop", &face(Face::Client), Status::New));
    }
    // Those of one node are removed in one pass.
    server.lost(2, &Down::Left);
    assert_eq!(server.registry.len(), 2 * CLIENTS as usize);
    server.lost(1, &Down::Left);
    assert!(server.registry.is_empty());
}

/// Each home is notified once of all that ended with a node, unless it still has a partner there.
#[test]
fn homes_are_notified_once_of_all_that_ended_with_a_node() {
    let mut server = Server::new();
    for home in 0..3 {
        server.declare(1, home, &shared(Face::Receiver));
    }
    for (node, number) in [(2, 0), (2, 1), (3, 0)] {
        server.declare(node, number, &shared(Face::Sender));
    }
    let at = |said: &[(Life, Names)]| said.iter().filter(|(_, said)| matches!(said, Names::Gone { .. })).count();
    assert_eq!(at(&server.undeclare(2, 0)), 0, "node 2 has another one");
    assert_eq!(server.lost(2, &Down::Left), [gone((1, 0), 2)]);
    server.declare(2, 5, &shared(Face::Sender));
    server.lost(3, &unreachable());
    assert_eq!(server.wait(LEASE), [gone((1, 0), 3)]);
}

#[test]
fn limits_are_reported() {
    let mut config = RegistryConfig::default();
    (config.declarations_max, config.names_max, config.bytes_max) = (2, 3, 30);
    let mut server = Server::with(config);
    let mut says = |n, number, name: &str, schema: usize| {
        let mut face = shared(Face::Sender);
        face.schema = Bytes::from(vec![0; schema]);
        let answers = server.heard(life(n), declare(n, number, name, &face, Status::New));
        answers.into_iter().map(|(_, said)| said).collect::<Vec<_>>()
    };
    let full = |number, room, max| [Names::Full { number, room, max }];
    assert_eq!(says(1, 1, "a", 0), [Names::Waiting { number: 1 }]);
    assert_eq!(says(1, 2, "b", 29), full(2, Room::Bytes, 30));
    assert_eq!(says(1, 2, "b", 28), [Names::Waiting { number: 2 }]);
    assert_eq!(says(1, 3, "b", 0), full(3, Room::Declarations, 2));
    assert_eq!(says(1, 2, "b", 28), [Names::Waiting { number: 2 }], "it is there already");
    assert_eq!(says(2, 1, "c", 0), [Names::Waiting { number: 1 }]);
    assert_eq!(says(2, 2, "d", 0), full(2, Room::Names, 3));
    assert_eq!(says(2, 2, "a", 0), [Names::Waiting { number: 2 }]);
    // An undeclared end makes room, for its node and for all.
    assert_eq!(server.undeclare(1, 2), []);
    assert_eq!(server.undeclare(1, 2), []);
    let said = declare(1, 3, "dd", &shared(Face::Sender), Status::New);
    assert_eq!(server.heard(life(1), said), [waits(1, 3)]);
    server.lost(1, &Down::Left);
    server.lost(2, &Down::Left);
    assert_eq!((server.registry.len(), server.registry.is_empty()), (0, true));
}

/// Four nodes of one host declare as many names as possible: the last quarter is left to others.
#[test]
fn one_source_leaves_names_to_others() {
    let mut config = RegistryConfig::default();
    config.names_max = 256;
    let mut server = Server::with(config);
    let host = |last| Source::V4([127, 0, 0, last]);
    for n in 1..=4 {
        server.registry.met(life(n), &[], host(2));
    }
    let says = |server: &mut Server, n: u128, number: u64, name: &str| {
        let said = declare(n, number, name, &shared(Face::Sender), Status::New);
        server.heard(life(n), said).into_iter().map(|(_, said)| said).next()
    };
    let waiting = |number| Some(Names::Waiting { number });
    let full = |number, room, max| Some(Names::Full { number, room, max });
    for number in 0..64 {
        for n in 1..=4 {
            let refused = number >= 48;
            let answer = if refused { full(number, Room::Share, 4) } else { waiting(number) };
            assert_eq!(says(&mut server, n, number, &format!("{n} {number}")), answer);
        }
    }
    // Existing names can be joined, and declared again.
    assert_eq!(says(&mut server, 4, 0, "4 0"), waiting(0));
    assert_eq!(says(&mut server, 4, 99, "1 0"), waiting(99));
    // Others have a 64th each, until all is taken.
    let mut others = (5..).flat_map(|n| (0..5).map(move |number| (n, number)));
    for _ in 0..79 {
        let (n, number) = others.next().unwrap();
        server.registry.met(life(n), &[], host(n as u8));
        let answer = if number == 4 { full(4, Room::Share, 4) } else { waiting(number) };
        assert_eq!(says(&mut server, n, number, &format!("{n} {number}")), answer);
    }
    let (n, number) = others.next().unwrap();
    assert_eq!(says(&mut server, n, number, "the last of all"), full(number, Room::Names, 256));
    // A name that stays is charged to its remaining holders: "1 0" was the first node's.
    server.lost(1, &Down::Left);
    server.registry.met(life(100), &[], host(100));
    for number in 0..5 {
        let answer = if number == 4 { full(4, Room::Share, 4) } else { waiting(number) };
        assert_eq!(says(&mut server, 100, number, &format!("100 {number}")), answer);
    }
    for n in 2..=100 {
        server.lost(n, &Down::Left);
    }
    assert!(server.registry.is_empty());
    // All charges have been released.
    for number in 0..192 {
        assert_eq!(says(&mut server, 200, number, &format!("{number}")), waiting(number));
    }
}

#[test]
fn notifications_fit_a_frame() {
    let mut server = Server::new();
    let addresses: Vec<String> = (0..16).map(|n| format!("tcp://host{n}:1")).chain(["x".repeat(256)]).rev().collect();
    server.registry.met(life(2), &addresses, Source::Unknown);
    server.declare(2, 1, &face(Face::Receiver));
    let answers = server.declare(1, 1, &face(Face::Sender));
    let Names::Found { addresses: told, .. } = &answers[0].1 else { panic!("{answers:?}") };
    assert_eq!(told[..], addresses[1..9]);
    let mut directory = Directory::new();
    let mut long = face(Face::Sender);
    long.schema = Bytes::from(vec![0; (32 << 10) + 1]);
    directory.declare(Time(0), 1, "tides", long, ChannelId(0));
    let full = DirectoryEvent::Full { number: 1, room: Room::Bytes, max: 32 << 10 };
    assert_eq!(directory.poll(), Some(full));
}

#[test]
fn frames_of_names_are_read_as_written() {
    let frames = [
        declare(1, 1, "tides", &shared(Face::Acceptor), Status::New),
        declare(1, 300, "tides", &face(Face::Sender), Status::Known),
        declare(1, u64::MAX, "tides", &face(Face::Server), Status::Joined(ChannelId(u128::MAX))),
        Names::Full { number: u64::MAX, room: Room::Declarations, max: u64::MAX },
        Names::Full { number: 1, room: Room::Names, max: 1 },
        Names::Full { number: 1, room: Room::Bytes, max: 1 },
        Names::Waiting { number: u64::MAX },
        Names::Gone { number: u64::MAX, partner: life(u128::MAX) },
    ];
    for said in frames {
        let frame = Frame::Names(said);
        let mut out = BytesMut::new();
        assert_eq!(codec::encode(&frame, &mut out), None);
        let Ok(codec::Next::Frame { head, body }) = codec::next(&out) else { panic!("{frame:?}") };
        assert_eq!(head + body, out.len());
        let kind = out[0];
        assert_eq!(codec::decode(kind, out.freeze().split_off(head)), Ok(frame));
    }
}

#[test]
fn a_machine_knows_where_a_node_can_be_dialled() {
    let mut machine = StandIn::machine(Config::new("tides"), life(1), 1);
    assert!(machine.addresses_of(NodeId(2)).is_empty());
    machine.learn(NodeId(2), &["there".into()]);
    assert_eq!(machine.addresses_of(NodeId(2)), ["there"]);
}

// The declaring side.

fn events(directory: &mut Directory) -> Vec<DirectoryEvent> {
    std::iter::from_fn(|| directory.poll()).collect()
}

fn said(directory: &mut Directory) -> Vec<(NodeId, Names)> {
    std::iter::from_fn(|| directory.poll_said()).collect()
}

fn event(to: (u128, u64), of: u128, channel: ChannelId, face: &Declaration) -> (Names, DirectoryEvent) {
    let (_, said) = found(to, of, channel, face);
    let (number, partner, face) = (to.1, life(of), face.clone());
    (said, DirectoryEvent::Found { number, partner, addresses: vec![], channel, face })
}

#[test]
fn a_directory_declares_to_every_server_and_follows_the_present_one() {
    let (a, b) = (NodeId(8), NodeId(9));
    let mut directory = Directory::new();
    directory.declare(Time(5), 1, "tides", face(Face::Sender), ChannelId(0));
    assert_eq!(said(&mut directory), []);
    let line = directory.waiting().next().unwrap();
    assert_eq!(
        (line.number, line.name, line.face, line.since, line.admitted),
        (1, "tides", Face::Sender, Time(5), false)
    );
    directory.server_is(a);
    assert_eq!(said(&mut directory), [(a, declare(1, 1, "tides", &face(Face::Sender), Status::New))]);
    directory.server_is(a);
    assert_eq!(said(&mut directory), [], "it knows");
    directory.heard(a, Names::Waiting { number: 1 });
    directory.heard(a, Names::Waiting { number: 1 });
    assert_eq!(events(&mut directory), [DirectoryEvent::Waiting { number: 1 }]);
    assert!(directory.waiting().next().unwrap().admitted);

    // The server is lost, with the messages to it; its late ones are ignored.
    directory.declare(Time(6), 2, "ebb", face(Face::Client), ChannelId(0));
    directory.server_lost();
    assert_eq!((said(&mut directory), directory.server()), (vec![], None));
    let (late, _) = event((1, 1), 7, channel(7, 1), &face(Face::Receiver));
    directory.heard(a, late.clone());
    directory.heard(a, Names::BadName { number: 1 });
    directory.server_is(b);
    directory.heard(a, late);
    assert_eq!(events(&mut directory), []);
    let again = [
        (b, declare(1, 1, "tides", &face(Face::Sender), Status::Known)),
        (b, declare(1, 2, "ebb", &face(Face::Client), Status::New)),
    ];
    assert_eq!(said(&mut directory), again);
    directory.heard(b, Names::Waiting { number: 1 });
    assert_eq!(events(&mut directory), [], "it was reported before");

    // Joined: once, for good, and every server learns of it.
    let c = channel(7, 1);
    let (says, news) = event((1, 1), 7, c, &face(Face::Receiver));
    directory.heard(b, says.clone());
    directory.heard(b, says.clone());
    directory.heard(b, event((1, 1), 6, channel(6, 1), &face(Face::Receiver)).0);
    directory.heard(b, refused((1, 1), &face(Face::Sender), 5).1);
    let conflict = DirectoryEvent::Conflict { number: 1, there: face(Face::Sender), holder: life(5) };
    assert_eq!(events(&mut directory), [news, conflict]);
    directory.server_is(a);
    directory.heard(a, says);
    assert_eq!(events(&mut directory), []);
    assert_eq!(said(&mut directory)[0], (a, declare(1, 1, "tides", &face(Face::Sender), Status::Joined(c))));

    directory.undeclare(1);
    directory.undeclare(1);
    assert_eq!(said(&mut directory), [(a, Names::Undeclare { number: 1 })]);
}

#[test]
fn a_directory_reports_a_refusal_once_and_forgets_the_end() {
    let server = NodeId(9);
    let holder = life(5);
    let there = face(Face::Sender);
    let cases = [
        (Names::BadName { number: 1 }, DirectoryEvent::BadName { number: 1 }),
        (
            Names::Full { number: 1, room: Room::Names, max: 7 },
            DirectoryEvent::Full { number: 1, room: Room::Names, max: 7 },
        ),
        (
            Names::Refused { number: 1, there: there.clone(), holder, addresses: vec![] },
            DirectoryEvent::Refused { number: 1, there, holder, addresses: vec![] },
        ),
    ];
    for (answer, news) in cases {
        let mut directory = Directory::new();
        directory.server_is(server);
        directory.declare(Time(0), 1, "tides", face(Face::Sender), ChannelId(0));
        said(&mut directory);
        directory.heard(server, answer.clone());
        directory.heard(server, answer);
        assert_eq!((events(&mut directory), directory.is_empty()), (vec![news], true));
        directory.undeclare(1);
        assert_eq!(said(&mut directory), []);
    }
}

#[test]
fn a_home_is_notified_once_of_every_life_until_it_is_used_up() {
    let server = NodeId(9);
    let c = channel(2, 1);
    let mut directory = Directory::new();
    directory.server_is(server);
    directory.declare(Time(0), 1, "tides", face(Face::Receiver), c);
    said(&mut directory);
    let next = Life { node: NodeId(1), incarnation: Incarnation(2) };
    let finds = |partner, shared| {
        let face = Declaration { shared, ..face(Face::Sender) };
        Names::Found { number: 1, partner, addresses: vec![], channel: c, face }
    };
    let count = |directory: &mut Directory| events(directory).len();
    directory.heard(server, finds(life(1), true));
    directory.heard(server, finds(life(1), true));
    assert_eq!(count(&mut directory), 1);
    directory.heard(server, finds(next, true));
    assert_eq!(count(&mut directory), 1);
    assert_eq!(directory.waiting().count(), 0);
    directory.server_lost();
    directory.server_is(server);
    directory.heard(server, finds(next, true));
    assert_eq!(count(&mut directory), 0);
    assert_eq!(said(&mut directory), [(server, declare(2, 1, "tides", &face(Face::Receiver), Status::Known))]);
    // A shared partner leaves that has not attached: the home may be found again. If the partner returns, the
    // home is notified again.
    directory.heard(server, gone((2, 1), 1).1);
    assert_eq!(said(&mut directory), [(server, declare(2, 1, "tides", &face(Face::Receiver), Status::Known))]);
    directory.heard(server, finds(life(1), true));
    assert_eq!(count(&mut directory), 1);

    // An unshared partner leaves that has not attached, and one that has.
    let mut directory = Directory::new();
    directory.server_is(server);
    directory.declare(Time(0), 1, "tides", face(Face::Receiver), c);
    said(&mut directory);
    directory.heard(server, finds(life(1), false));
    directory.heard(server, gone((2, 1), 1).1);
    assert_eq!(said(&mut directory), [(server, declare(2, 1, "tides", &face(Face::Receiver), Status::Known))]);
    assert_eq!(directory.waiting().count(), 1);
    directory.heard(server, finds(life(3), false));
    directory.attached(1);
    directory.attached(1);
    assert_eq!(said(&mut directory), [(server, declare(2, 1, "tides", &face(Face::Receiver), Status::Joined(c)))]);
    directory.heard(server, gone((2, 1), 3).1);
    assert_eq!((said(&mut directory), directory.waiting().count()), (vec![], 0));
}

#[test]
fn directory_forgets_a_client_once_its_acceptor_is_found() {
    let server = NodeId(9);
    let mut directory = Directory::new();
    directory.server_is(server);
    directory.declare(Time(0), 1, "tides", face(Face::Client), ChannelId(0));
    said(&mut directory);
    let (says, news) = event((1, 1), 7, channel(7, 1), &face(Face::Acceptor));
    directory.heard(server, says.clone());
    directory.heard(server, says);
    assert_eq!((events(&mut directory), directory.is_empty()), (vec![news], true));

    // An acceptor waits until it is admitted; after that, clients are joined without notice.
    directory.declare(Time(0), 2, "ebb", face(Face::Acceptor), ChannelId(2));
    assert_eq!(directory.waiting().count(), 1);
    directory.heard(server, Names::Waiting { number: 2 });
    assert_eq!(directory.waiting().count(), 0);
}

#[test]
fn a_later_holder_of_a_home_joins_the_first() {
    let server = NodeId(9);
    let mut directory = Directory::new();
    directory.server_is(server);
    directory.declare(Time(0), 1, "tides", shared(Face::Receiver), channel(2, 1));
    said(&mut directory);
    let (says, news) = event((2, 1), 7, channel(7, 1), &shared(Face::Receiver));
    directory.heard(server, says.clone());
    directory.heard(server, says);
    // It is not a home, so no partner can be found for it.
    directory.heard(server, event((2, 1), 1, channel(2, 2), &shared(Face::Sender)).0);
    assert_eq!(events(&mut directory), [news]);
    directory.server_lost();
    directory.server_is(server);
    let joined = Status::Joined(channel(7, 1));
    assert_eq!(said(&mut directory), [(server, declare(2, 1, "tides", &shared(Face::Receiver), joined))]);
}

/// If only one end may hold a face, that includes a shared one.
#[test]
fn shared_face_has_one_holder_if_several_are_not_allowed() {
    let one_holder = || {
        let mut config = RegistryConfig::default();
        config.several_holders = false;
        Server::with(config)
    };
    for (near, home) in [(Face::Sender, Face::Receiver), (Face::Client, Face::Server)] {
        let (near, home) = (shared(near), shared(home));
        let mut server = one_holder();
        server.declare(1, 1, &near);
        let c = channel(9, 1);
        assert_eq!(server.declare(9, 1, &home), [found((1, 1), 9, c, &home), found((9, 1), 1, c, &near)]);
        assert_eq!(server.declare(2, 1, &near), [refused((2, 1), &near, 1)]);
        assert_eq!(server.declare(8, 1, &home), [refused((8, 1), &home, 9)]);
        // The home is used up, unless its node reports that no half has attached.
        assert_eq!(server.undeclare(1, 1), [gone((9, 1), 1)]);
        assert_eq!(server.declare(2, 1, &near), [waits(2, 1)]);
        let again = server.declare_as(9, 1, &home, Status::Known);
        assert_eq!(again, [found((2, 1), 9, c, &home), found((9, 1), 2, c, &near)]);
    }
    // An acceptor has any number of clients, shared or not.
    let (client, acceptor) = (shared(Face::Client), face(Face::Acceptor));
    let mut server = one_holder();
    server.declare(1, 1, &client);
    assert_eq!(server.declare(2, 1, &client), []);
    let told = |n| found((n, 1), 9, channel(9, 1), &acceptor);
    assert_eq!(server.declare(9, 1, &acceptor), [told(1), told(2), waits(9, 1)]);
    assert_eq!(server.declare(3, 1, &client), [told(3)]);
}

/// Two parts of a network, each with a server, have each joined a pair of one name. One server cedes.
#[test]
fn second_of_two_pairs_is_notified_and_continues() {
    let (sender, receiver) = (face(Face::Sender), face(Face::Receiver));
    let (c, d) = (channel(2, 1), channel(4, 1));
    let mut server = Server::new();
    server.declare(1, 1, &sender);
    server.declare(2, 1, &receiver);
    // The first pair is not notified.
    assert_eq!(server.declare_as(3, 1, &sender, Status::Joined(d)), [refused((3, 1), &sender, 1)]);
    let answers = server.declare_as(4, 1, &receiver, Status::Joined(d));
    assert_eq!(answers, [found((4, 1), 3, d, &sender), refused((4, 1), &receiver, 2)]);
    assert_eq!(server.registry.len(), 4);
    // A waiting end that does not fit is refused.
    assert_eq!(server.declare_as(5, 1, &sender, Status::Known), [refused((5, 1), &sender, 1)]);
    // Once the first pair has left, the second has the name.
    server.undeclare(1, 1);
    server.undeclare(2, 1);
    assert_eq!(server.declare(5, 1, &sender), [refused((5, 1), &sender, 3)]);
    assert_eq!(server.declare(6, 1, &receiver), [refused((6, 1), &receiver, 4)]);

    // A node was away, and another pair was joined meanwhile.
    let mut server = Server::new();
    server.declare(1, 1, &sender);
    server.declare(2, 1, &receiver);
    server.declare_as(1, 1, &sender, Status::Joined(c));
    server.lost(1, &unreachable());
    assert_eq!(server.declare_as(3, 1, &sender, Status::Joined(d)), []);
    let back = server.declare_as(1, 1, &sender, Status::Joined(c));
    assert_eq!(back, [found((2, 1), 1, c, &sender), refused((1, 1), &sender, 3)]);
    assert!(!server.declare_as(1, 1, &sender, Status::Joined(c)).contains(&refused((1, 1), &sender, 3)));
}

#[test]
fn a_directory_reports_each_conflict_once() {
    let (ceding, server) = (NodeId(8), NodeId(9));
    let (sender, c) = (face(Face::Sender), channel(2, 1));
    let mut directory = Directory::new();
    directory.server_is(ceding);
    directory.declare(Time(0), 1, "tides", sender.clone(), ChannelId(0));
    directory.declare(Time(0), 2, "tide", sender.clone(), ChannelId(0));
    directory.heard(ceding, found((1, 1), 2, c, &face(Face::Receiver)).1);
    said(&mut directory);
    events(&mut directory);
    // Declarations at the server that ceded are withdrawn there.
    directory.leave_server();
    assert_eq!(directory.server(), None);
    let taken_back = [(ceding, Names::Undeclare { number: 1 }), (ceding, Names::Undeclare { number: 2 })];
    directory.server_is(server);
    let joined = declare(1, 1, "tides", &sender, Status::Joined(c));
    let anew = [(server, joined), (server, declare(1, 2, "tide", &sender, Status::New))];
    assert_eq!(said(&mut directory), [&taken_back[..], &anew[..]].concat());

    for holder in [5, 5, 6] {
        directory.heard(server, refused((1, 1), &sender, holder).1);
        directory.heard(server, refused((1, 2), &sender, holder).1);
    }
    let conflict = |n| DirectoryEvent::Conflict { number: 1, there: sender.clone(), holder: life(n) };
    let over = DirectoryEvent::Refused { number: 2, there: sender.clone(), holder: life(5), addresses: vec![] };
    assert_eq!(events(&mut directory), [conflict(5), over, conflict(6)]);
    assert_eq!(directory.len(), 1);
}

/// A name server may find ever new partners, or name ever new holders: the directory follows it up to a
/// limit.
#[test]
fn directory_bounds_partners_and_holders_from_a_name_server() {
    let (server, home) = (NodeId(9), face(Face::Receiver));
    let mut directory = Directory::new();
    directory.server_is(server);
    directory.declare(Time(0), 1, "tides", home.clone(), channel(1, 1));
    for partner in 0..(1 << 16) + 100 {
        directory.heard(server, found((1, 1), 1000 + partner, channel(1, 1), &face(Face::Sender)).1);
    }
    assert_eq!(events(&mut directory).len(), 1 << 16);
    for holder in 0..100 {
        directory.heard(server, refused((1, 1), &home, 1000 + holder).1);
    }
    assert_eq!(events(&mut directory).len(), 16);
}
