//! The bytes of a value between two machines: no copies are made, and small values share a buffer.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
use dunlin_proto::identity::StandIn;
use dunlin_proto::time::Time;
use dunlin_proto::wire::{Declaration, Expected, Face, Terms};
use dunlin_proto::{Action, Config, HomeHears, Machine};

const NOW: Time = Time(1000);
const SOCKET: SocketId = SocketId(1);
/// The same as in the driver of a node.
const ROOM: usize = 64 << 10;

fn machine(n: u128) -> Machine {
    StandIn::machine(Config::new("copies"), Life { node: NodeId(n), incarnation: Incarnation(1) }, 7)
}

fn declared(face: Face) -> Declaration {
    Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

fn place(bytes: &[u8]) -> Range<usize> {
    let begin = bytes.as_ptr().addr();
    begin..begin + bytes.len()
}

/// One fill of a machine's socket, as the kernel would get it.
fn fill(machine: &mut Machine) -> Vec<Bytes> {
    let mut out = Vec::new();
    machine.fill(NOW, SOCKET, ROOM, &mut out);
    out
}

/// All actions of a machine, except those on sockets.
fn told(machine: &mut Machine) -> Vec<Action> {
    std::iter::from_fn(|| machine.poll()).collect()
}

/// Two machines that are connected, and this many channels from the first to the second.
fn pair(channels: u128) -> [Machine; 2] {
    let [mut a, mut b] = [machine(1), machine(2)];
    a.learn(NodeId(2), &["memory:2".to_owned()]);
    a.connect(NOW, NodeId(2));
    let Some(Action::Dial(id, _)) = a.poll() else { panic!("it does not dial") };
    a.dialled(NOW, id, SOCKET);
    b.accepted(NOW, SOCKET);
    for channel in 0..channels {
        let terms = Terms { window: 4, credits: 0, value_max: 1 << 20 };
        b.open_home(ChannelId(channel), terms, declared(Face::Receiver), false).unwrap();
        a.attach(NOW, ChannelId(channel), NodeId(2), declared(Face::Sender)).unwrap();
    }
    loop {
        let (to_b, to_a) = (fill(&mut a), fill(&mut b));
        told(&mut a);
        told(&mut b);
        if to_a.is_empty() && to_b.is_empty() {
            return [a, b];
        }
        to_b.into_iter().for_each(|bytes| b.received(NOW, SOCKET, bytes));
        to_a.into_iter().for_each(|bytes| a.received(NOW, SOCKET, bytes));
    }
}

#[test]
fn a_value_is_not_copied_on_its_way() {
    for size in [10_000, 60_000, 100_000] {
        let [mut a, mut b] = pair(1);
        let value = Bytes::from(vec![7; size]);
        a.offer(NOW, ChannelId(0), 1, value.clone());
        // The bytes for the socket are those that were offered.
        let mut out = Vec::new();
        while a.fill(NOW, SOCKET, ROOM, &mut out) > 0 {}
        let offered = place(&value);
        let as_they_are: usize =
            out.iter().map(|bytes| place(bytes)).filter(|at| offered.contains(&at.start)).map(|at| at.len()).sum();
        assert_eq!(as_they_are, size, "{size}");

        // They arrive together in one buffer, and the value is a part of that.
        let mut buffer = BytesMut::new();
        out.iter().for_each(|bytes| buffer.extend_from_slice(bytes));
        let arrived = place(&buffer);
        b.received_in(NOW, SOCKET, &mut buffer);
        let heard = told(&mut b).into_iter().find_map(|action| match action {
            Action::Home(_, _, HomeHears::Offered(1, value)) => Some(value),
            _ => None,
        });
        let heard = heard.expect("it has arrived");
        assert_eq!(heard, value);
        let at = place(&heard);
        assert!(arrived.contains(&at.start) && at.end <= arrived.end, "{size}: {at:?} is not in {arrived:?}");
    }
}

#[test]
fn small_values_share_one_immediate_write() {
    let [mut a, mut b] = pair(50);
    for channel in 0..50 {
        a.offer(NOW, ChannelId(channel), 1, Bytes::from_static(b"krill"));
    }
    let wanted = told(&mut a);
    assert!(matches!(wanted[..], [Action::Write(SOCKET)]), "one write, and no timer before it: {wanted:?}");
    let out = fill(&mut a);
    assert_eq!(out.len(), 1, "one piece of memory, one write");
    assert!(fill(&mut a).is_empty());
    b.received(NOW, SOCKET, out[0].clone());
    let offers = |action: &Action| matches!(action, Action::Home(_, _, HomeHears::Offered(1, _)));
    assert_eq!(told(&mut b).iter().filter(|action| offers(action)).count(), 50);

    // And so do the answers.
    for channel in 0..50 {
        b.taken(NOW, ChannelId(channel), NodeId(1), 1);
    }
    assert_eq!(fill(&mut b).len(), 1);
}
