//! One host that asks for all that a node relays: another one still has its share.

use std::time::Duration;

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life, run};
use dunlin_proto::id::Life;
use dunlin_proto::wire::{Frame, NoRelay, Relay};

const FLOODER: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];
const TARGET: [u8; 4] = [127, 0, 0, 4];

/// So many sockets a node relays.
const RELAYS_MAX: u64 = 64;

/// Asks for so many relays to that node.
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
        let there = Peer::who_is(FLOODER, &address, "relays", life(1)).await.expect("it says who it is");
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
