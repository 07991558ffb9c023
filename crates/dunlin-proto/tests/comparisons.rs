//! The cost of comparing the schemas that peers declare, in steps: two small schemas may take very many.

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::names::{NameService, Registry, RegistryConfig};
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Frame, Names, Status, Terms, ToHome, codec};
use dunlin_proto::{Action, Config, Machine};
use dunlin_schema::{Coding, Field, Kind, Schema};

const NOW: Time = Time(1000);
const SOCKET: SocketId = SocketId(1);
/// The limit for all comparisons of one frame.
const STEPS_MAX: u64 = 1 << 17;
/// The depth of a list of lists, after which it starts again. A comparison with one of another depth takes
/// the product of both in visits, of five steps each.
const LONG: u16 = 161;
const LONGER: u16 = 162;

fn expensive(name: &str, lists: u16) -> Bytes {
    let first = Field { names: vec!["lists".into()], kind: 1, required: true };
    let mut kinds = vec![Kind::Struct { name: name.into(), fields: vec![first], closed: false }];
    kinds.extend((1..=lists).map(|at| Kind::List(at % lists + 1)));
    Schema::new(Coding::Cbor, kinds).expect("it is one").encode().expect("it is short")
}

fn declared(face: Face, schema: &Bytes) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: schema.clone() }
}

fn declare(number: u64, face: &Declaration, status: Status) -> Names {
    Names::Declare { number, name: "tides".into(), channel: ChannelId(number.into()), face: face.clone(), status }
}

fn life(node: u128) -> Life {
    Life { node: NodeId(node), incarnation: Incarnation(1) }
}

/// Returns the steps that it takes.
fn says(registry: &mut Registry, from: Life, said: Names) -> u64 {
    registry.heard(NOW, from, said, &mut |_| Ok(()))
}

fn answers(registry: &mut Registry) -> Vec<Names> {
    std::iter::from_fn(|| registry.poll()).map(|(_, said)| said).collect()
}

#[test]
fn comparisons_of_one_declaration_have_a_bound() {
    let mut registry = Registry::new(RegistryConfig::default());
    let mut steps = 0;
    for n in 1..=100 {
        let receiver = declared(Face::Receiver, &expensive(&format!("receiver {n}"), LONG));
        let face = Declaration { shared: true, ..receiver };
        let joined = Status::Joined(ChannelId(n.into()));
        steps += says(&mut registry, life(n.into()), declare(n, &face, joined));
    }
    answers(&mut registry);
    let looks: u64 = (1..=100).map(|declared| declared / 16).sum();
    assert_eq!(steps, looks, "receivers are not compared with each other");
    let face = declared(Face::Sender, &expensive("sender", LONGER));
    let steps = says(&mut registry, life(1000), declare(1, &face, Status::New)) - 101 / 16;
    assert!((STEPS_MAX / 2..=STEPS_MAX).contains(&steps), "{steps} steps");
    // The registry cannot determine whether it fits all of them.
    assert!(answers(&mut registry).iter().any(|said| matches!(said, Names::Refused { .. })));
}

#[test]
fn a_pair_that_was_compared_is_looked_up() {
    let mut registry = Registry::new(RegistryConfig::default());
    let receiver = declared(Face::Receiver, &expensive("receiver", LONG));
    says(&mut registry, life(1), declare(1, &receiver, Status::New));
    let sender = declared(Face::Sender, &expensive("sender", LONGER));
    for n in 0..100 {
        answers(&mut registry);
        let steps = says(&mut registry, life(2), declare(n, &sender, Status::New));
        // Although it is compared once to be admitted, and once to be joined.
        assert!(answers(&mut registry).iter().any(|said| matches!(said, Names::Found { .. })));
        if n == 0 {
            assert!((STEPS_MAX / 2..=STEPS_MAX).contains(&steps), "{steps} steps");
        } else {
            assert!(steps <= 2, "{steps} steps");
        }
        says(&mut registry, life(2), Names::Undeclare { number: n });
        says(&mut registry, life(1), Names::Undeclare { number: 1 });
        says(&mut registry, life(1), declare(1, &receiver, Status::New));
    }
}

/// The memory of comparisons is bounded: a pair that was compared long ago is compared again.
#[test]
fn memory_of_comparisons_is_bounded() {
    let mut registry = Registry::new(RegistryConfig::default());
    let receiver = declared(Face::Receiver, &expensive("receiver", 2));
    says(&mut registry, life(1), declare(1, &receiver, Status::New));
    let mut comes = |name: &str| {
        let sender = declared(Face::Sender, &expensive(name, 3));
        says(&mut registry, life(2), declare(1, &sender, Status::New))
            + says(&mut registry, life(2), Names::Undeclare { number: 1 })
            + says(&mut registry, life(1), declare(1, &receiver, Status::New))
    };
    let first = comes("first");
    assert!(comes("first") < first);
    for n in 0..300 {
        comes(&n.to_string());
    }
    assert_eq!(comes("first"), first);
}

// The same at a node.

fn machine(n: u128) -> Machine {
    StandIn::machine(Config::new("comparisons"), life(n), 7)
}

fn fill(machine: &mut Machine) -> BytesMut {
    let mut out = Vec::new();
    while machine.fill(NOW, SOCKET, 1 << 16, &mut out) > 0 {}
    BytesMut::from(&out.concat()[..])
}

fn told(machine: &mut Machine) -> Vec<Action> {
    std::iter::from_fn(|| machine.poll()).collect()
}

/// Two machines that are connected. The first has dialled, and the second has homes of all these channels.
fn pair(homes: u128, schema: &Bytes) -> [Machine; 2] {
    let [mut a, mut b] = [machine(1), machine(2)];
    a.learn(NodeId(2), &["memory:2".to_owned()]);
    a.connect(NOW, NodeId(2));
    let Some(Action::Dial(id, _)) = a.poll() else { panic!("it does not dial") };
    a.dialled(NOW, id, SOCKET);
    b.accepted(NOW, SOCKET);
    for channel in 0..homes {
        let terms = Terms { window: 4, credits: 0, value_max: 1 << 20 };
        b.open_home(ChannelId(channel), terms, declared(Face::Receiver, schema), false).expect("it is short");
    }
    loop {
        let (to_b, to_a) = (fill(&mut a), fill(&mut b));
        told(&mut a);
        told(&mut b);
        if to_a.is_empty() && to_b.is_empty() {
            return [a, b];
        }
        b.received(NOW, SOCKET, to_b.freeze());
        a.received(NOW, SOCKET, to_a.freeze());
    }
}

fn frames(frames: &[Frame]) -> BytesMut {
    let mut out = BytesMut::new();
    for frame in frames {
        let tail = codec::encode(frame, &mut out);
        out.extend_from_slice(&tail.unwrap_or_default());
    }
    out
}

fn attach(channel: u128, face: &Declaration) -> Frame {
    Frame::ToHome(ChannelId(channel), ToHome::Attach(face.clone()))
}

/// The number of batches for all bytes in the buffer, and the most steps that one of them takes.
fn batches(b: &mut Machine, buffer: &mut BytesMut) -> (usize, u64) {
    let (mut batches, mut most) = (0, 0);
    while !buffer.is_empty() {
        let before = b.steps();
        assert_eq!(b.received_in(NOW, SOCKET, buffer), 0, "only whole frames are there");
        told(b);
        batches += 1;
        most = most.max(b.steps() - before);
    }
    (batches, most)
}

#[test]
fn batch_ends_after_a_declaration_and_many_slow_down_their_socket() {
    let [_, mut b] = pair(20, &expensive("receiver", LONG));
    let said: Vec<Frame> =
        (0..20).map(|n| attach(n, &declared(Face::Sender, &expensive(&format!("sender {n}"), LONGER)))).collect();
    let (batches, most) = batches(&mut b, &mut frames(&said));
    assert_eq!(batches, 20);
    assert!((STEPS_MAX / 2..=STEPS_MAX).contains(&most), "{most} steps in one batch");
    assert!(b.paused_until(NOW, SOCKET).is_some());
}

/// By contrast, the declarations of honest programs are compared once, and their sockets are read at once.
#[test]
fn many_halves_with_few_schemas_are_attached_at_once() {
    let [_, mut b] = pair(1_000, &expensive("receiver", 7));
    let said: Vec<Frame> =
        (0..1_000).map(|n| attach(n, &declared(Face::Sender, &expensive(&format!("sender {}", n % 3), 11)))).collect();
    batches(&mut b, &mut frames(&said));
    assert_eq!(b.census().attached, 1_000);
    assert_eq!(b.paused_until(NOW, SOCKET), None);
    assert!(b.steps() < 5_000, "{} steps", b.steps());
}

/// The loss of a node settles names of other nodes: these comparisons have a budget of their own.
#[test]
fn budget_spent_by_a_message_refuses_no_end_after_a_loss() {
    let mut registry = Registry::new(RegistryConfig::default());
    let named = |number: u64, name: &str, face: &Declaration| Names::Declare {
        number,
        name: name.into(),
        channel: ChannelId(number.into()),
        face: face.clone(),
        status: Status::New,
    };
    let receiver = |name: &str, extra| declared(Face::Receiver, &expensive(name, extra));
    let sender = |name: &str, extra| declared(Face::Sender, &expensive(name, extra));
    // Of two senders one is joined and lost, and the other one waits.
    says(&mut registry, life(4), named(1, "honest", &receiver("honest receiver", 3)));
    says(&mut registry, life(1), named(1, "honest", &sender("honest sender", 5)));
    registry.lost(NOW, NodeId(1), &dunlin_proto::Down::GivenUp);
    says(&mut registry, life(2), named(1, "honest", &sender("other honest sender", 5)));
    // So many other pairs are compared that the outcome for the honest one is forgotten.
    for n in 0..300 {
        says(&mut registry, life(7), named(n, "many", &receiver(&format!("receiver {n}"), 3)));
        says(&mut registry, life(8), named(n, "many", &sender(&format!("sender {n}"), 4)));
        says(&mut registry, life(7), Names::Undeclare { number: n });
        says(&mut registry, life(8), Names::Undeclare { number: n });
    }
    // The last message spends its whole budget.
    for n in 1000..1100 {
        let face = Declaration { shared: true, ..receiver(&format!("receiver {n}"), LONG) };
        let (channel, status) = (ChannelId(n.into()), Status::Joined(ChannelId(n.into())));
        says(&mut registry, life(n.into()), Names::Declare { number: n, name: "costly".into(), channel, face, status });
    }
    says(&mut registry, life(8), named(9999, "costly", &sender("sender", LONGER)));
    answers(&mut registry);
    registry.lost(NOW, NodeId(1), &dunlin_proto::Down::Left);
    let answers = answers(&mut registry);
    assert!(!answers.is_empty() && !answers.iter().any(|said| matches!(said, Names::Refused { .. })), "{answers:?}");
}
