//! Peers that register as many names as allowed: they must not keep others from registering.

use std::time::Duration;

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face, hello, life, run};
use dunlin_proto::id::{ChannelId, Life};
use dunlin_proto::wire::{Face, Frame, Names, Room};

const FLOODER: [u8; 4] = [127, 0, 0, 2];

/// The limits of a name service: names in all, and declarations of one node.
const NAMES_MAX: u64 = 1 << 16;
const OF_ONE_NODE: u64 = 1 << 14;

async fn node(application: &str) -> (Node, String, Life) {
    let names = format!("memory:names-of-{application}");
    // A peer that has registered its names is silent. On a busy machine it would count as lost before the
    // others have registered theirs, and its names would be free again.
    let node = Node::builder().app(application).names(&names).listen("127.0.0.1:0").heartbeat(Duration::from_secs(600));
    let node = node.join().await.expect("it joins");
    let address = node.addresses()[0].clone();
    let there = Peer::who_is(FLOODER, &address, application, life(1)).await.expect("it gives its identity");
    (node, address, there)
}

/// Registers names, and returns how many were admitted; the others were refused for the expected reason.
async fn register(peer: &mut Peer, from: &str, count: u64, expected: Room) -> u64 {
    let mut admitted = 0;
    for first in (0..count).step_by(1024) {
        let numbers = first..(first + 1024).min(count);
        let frames: Vec<Frame> = numbers
            .clone()
            .map(|number| declare(number, &format!("{from} {number}"), ChannelId(0), &face(Face::Sender)))
            .collect();
        peer.say(&frames).await.expect("the connection stays");
        let mut answered = 0;
        while answered < numbers.end - numbers.start {
            match peer.hear().await.expect("the connection stays") {
                Frame::Names(Names::Waiting { .. }) => (answered, admitted) = (answered + 1, admitted + 1),
                Frame::Names(Names::Full { room, .. }) if room == expected => answered += 1,
                Frame::Heartbeat | Frame::Ack { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    admitted
}

#[test]
fn names_of_one_address_leave_room_for_others() {
    run(async {
        let (node, address, there) = node("names").await;
        let mut events = node.events();
        let (mut peers, mut admitted) = (Vec::new(), 0);
        for n in 0..NAMES_MAX / OF_ONE_NODE {
            let hello = hello("names", life(100 + u128::from(n)), there);
            let mut peer = Peer::join(FLOODER, &address, &hello, Duration::ZERO).await.expect("the door is open");
            admitted += register(&mut peer, &format!("flood {n}"), OF_ONE_NODE, Room::Share).await;
            peers.push(peer);
        }
        // One is the node's own, at which it answers inquiries.
        assert_eq!(admitted, NAMES_MAX / 4 * 3 - 1);
        assert_eq!(node.refusals().registrations, NAMES_MAX / 4 + 1);
        let max = loop {
            if let NodeEvent::Limit(Limit::Registrations { max, .. }) = events.recv().await.expect("the node lives") {
                break max;
            }
        };
        assert_eq!(max, NAMES_MAX / 64);
        // A node of another address registers, and others find it. (This host's nodes dial from 127.0.0.1.)
        let join = || Node::builder().app("names").names(&address).listen("127.0.0.1:0").join();
        let (one, other) = (join().await.expect("it joins"), join().await.expect("it joins"));
        let mut tx = one.sender::<u32>("tides").await.expect("there is room");
        let mut rx = other.receiver::<u32>("tides").await.expect("there is room");
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent.is_ok(), received), (true, Ok(7)));
        drop(peers);
    });
}

/// The twin: an application whose nodes are all on one host has three quarters of all names.
#[test]
fn names_of_a_lone_address_are_many() {
    run(async {
        let (node, address, there) = node("many").await;
        let mut peers = Vec::new();
        for n in 0..3 {
            let hello = hello("many", life(100 + n), there);
            let mut peer = Peer::join(FLOODER, &address, &hello, Duration::ZERO).await.expect("the door is open");
            assert_eq!(register(&mut peer, &format!("{n}"), 16_000, Room::Share).await, 16_000);
            peers.push(peer);
        }
        assert_eq!(node.refusals().registrations, 0);
    });
}
