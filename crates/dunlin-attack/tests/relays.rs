//! One host that asks for all the relays of a node: another host still gets its share. A node that refuses
//! relayed bytes reports an event itself, since the relay only forwards bytes.

use std::time::Duration;

use bytes::Bytes;
use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life, run};
use dunlin_proto::id::Life;
use dunlin_proto::wire::{Frame, NoRelay, Relay};

const FLOODER: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];
const TARGET: [u8; 4] = [127, 0, 0, 4];

/// How many sockets a node relays.
const RELAYS_MAX: u64 = 64;

/// Asks for this many relays to that node.
async fn ask(peer: &mut Peer, me: Life, relay: Life, to: Life, count: u64) {
    let odd = u64::from(me.node > relay.node);
    let asks = (1..=count).map(|k| Frame::Relay(Relay::To { stream: 2 * k + odd, node: to.node }));
    peer.say(&asks.collect::<Vec<_>>()).await.expect("the connection stays");
}

#[test]
fn relays_of_one_address_leave_room_for_others() {
    run(async {
        let names = "memory:names-of-relays";
        let node = Node::builder().app("relays").names(names).listen("127.0.0.1:0").join().await.expect("it joins");
        let mut events = node.events();
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(FLOODER, &address, "relays", life(1)).await.expect("it gives its identity");
        let join = async |from, me| {
            let peer = Peer::join(from, &address, &hello("relays", me, there), Duration::ZERO).await;
            peer.expect("the door is open")
        };
        let (target, flooder, other) = (life(2), life(3), life(4));
        let mut at_target = join(TARGET, target).await;
        let mut flood = join(FLOODER, flooder).await;
        ask(&mut flood, flooder, there, target, RELAYS_MAX).await;
        let mut refused = 0;
        while refused < RELAYS_MAX / 4 {
            if let Frame::Relay(Relay::Refused { why, .. }) = flood.hear().await.expect("the connection stays") {
                assert_eq!(why, NoRelay::Full);
                refused += 1;
            }
        }
        assert_eq!(node.refusals().relays, refused);
        while !matches!(events.recv().await.expect("the node lives"), NodeEvent::Limit(Limit::Relays { .. })) {}

        let mut honest = join(OTHER, other).await;
        ask(&mut honest, other, there, target, 1).await;
        let mut relayed = 0;
        loop {
            match at_target.hear().await.expect("the connection stays") {
                Frame::Relay(Relay::From { node, .. }) if node == other.node => break,
                Frame::Relay(Relay::From { .. }) => relayed += 1,
                _ => {}
            }
        }
        assert_eq!(relayed, RELAYS_MAX / 4 * 3, "the twin: a lone address has three quarters");
    });
}

#[test]
fn refused_relayed_socket_is_an_event_at_its_target() {
    run(async {
        let builder = || Node::builder().app("relayed").listen("127.0.0.1:0");
        let relay = builder().names("memory:names-of-relayed").join().await.expect("it joins");
        let _served = relay.receiver::<u8>("nothing").await.expect("there is room");
        let address = relay.addresses()[0].clone();
        let target = builder().names(&address).serve_names(false).join().await.expect("it joins");
        let _declared = target.receiver::<u8>("target").await.expect("there is room");
        let mut events = target.events();
        let there = Peer::who_is(OTHER, &address, "relayed", life(1)).await.expect("it gives its identity");
        let peer = life(2);
        let mut asker = Peer::join(OTHER, &address, &hello("relayed", peer, there), Duration::ZERO).await.unwrap();
        let to = Peer::who_is(OTHER, &target.addresses()[0], "relayed", life(1)).await.expect("it gives its identity");
        ask(&mut asker, peer, there, to, 1).await;
        let stream = 2 + u64::from(peer.node > there.node);
        let piece = Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n");
        asker.say(&[Frame::Relay(Relay::Bytes { stream, piece })]).await.expect("the connection stays");
        let from = loop {
            if let NodeEvent::Stranger { from, .. } = events.recv().await.expect("the node lives") {
                break from;
            }
        };
        assert_eq!(from, format!("node {}, relayed by {}", peer.node, there.node));
        assert_eq!((target.refusals().strangers, relay.refusals().strangers), (1, 0));
        // The twin: its relay still works.
        let (mut tx, mut rx) =
            (relay.sender::<u8>("tides").await.unwrap(), target.receiver::<u8>("tides").await.unwrap());
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent.is_ok(), received), (true, Ok(7)));
    });
}
