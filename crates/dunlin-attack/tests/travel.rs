//! Peers that receive ends and return them as no honest node does: the node keeps nothing of those ends.

#[allow(dead_code, reason = "these tests wait for no connection")]
#[path = "support/ended.rs"]
mod ended;

use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face, life, offer, run, sender_on_its_way};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{Face, Frame, FromHome, Head, Terms, ToHome};
use ended::nothing_is_left;

const PEER: [u8; 4] = [127, 0, 0, 4];

type Pair = (Sender<u32>, Receiver<u32>);

async fn node(names: &str) -> Node {
    let builder = Node::builder().app("travel").names(names).listen("127.0.0.1:0");
    let builder = builder.heartbeat(Duration::from_millis(200)).grace(Duration::from_secs(1));
    builder.join().await.expect("it joins")
}

/// An honest node would return this only after using it.
#[test]
fn returned_unused_ends_of_a_channel_leave_nothing() {
    run(async {
        let node = node("memory:names-of-travel").await;
        let given = node.clone();
        let given = spawn(async move { given.sender::<Pair>("given").await });
        let mut ends = node.receiver::<Pair>("ends").await.unwrap();
        let mut peer = Peer::meet(PEER, &node.addresses()[0], "travel", life(1)).await.unwrap();
        let back = peer.attach(1, "ends").await.unwrap();
        let own = ChannelId(2 << 64);
        peer.say(&[declare(2, "given", own, &face(Face::Receiver))]).await.unwrap();
        while !matches!(peer.hear_at_last().await.unwrap(), Frame::ToHome(channel, ToHome::Attach(_)) if channel == own)
        {
        }
        // So the node sends its values on credits, and such a send is complete at once.
        let terms = Terms { window: 4, credits: 4, value_max: 1 << 20 };
        peer.say(&[Frame::FromHome(own, FromHome::Attached(terms))]).await.unwrap();
        let mut given = given.await.unwrap().unwrap();
        given.send(channel()).await.unwrap();
        let message = loop {
            if let Frame::ToHome(_, ToHome::Value { head: Head::Sent, first, .. }) = peer.hear_at_last().await.unwrap()
            {
                break first;
            }
        };
        assert_eq!(message.first(), Some(&2), "both ends are in it: {message:?}");
        peer.say(&offer(back, 1, &message)).await.unwrap();
        let (mut tx, mut rx) = ends.recv().await.unwrap();
        // They have ended, or they work; their holder does not wait for ever.
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!(sent.is_ok(), received == Ok(7), "{sent:?}, {received:?}");
        drop((tx, rx, given, ends, peer));
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// A sender arrives, and the process uses it; then a second sender of the same channel arrives, with a higher
/// count of moves.
#[test]
fn sender_received_twice_leaves_nothing() {
    run(async {
        let node = node("memory:names-of-twice").await;
        let mut ends = node.receiver::<Sender<u32>>("ends").await.unwrap();
        let receiving = spawn(async move {
            while let Ok(mut tx) = ends.recv().await {
                spawn(async move { tx.send(7).await });
            }
        });
        let mut peer = Peer::meet(PEER, &node.addresses()[0], "travel", life(1)).await.unwrap();
        let to = peer.attach(1, "ends").await.unwrap();
        let own = peer.me();
        for transfer in 1..=2 {
            peer.say(&offer(to, transfer, &sender_on_its_way(ChannelId(9 << 64), [own, own], transfer, transfer)))
                .await
                .unwrap();
            // The process that receives the sender uses it, so its home gets a frame.
            let is_used =
                |frame: &Frame| matches!(frame, Frame::ToHome(_, ToHome::Take(number)) if *number == transfer);
            while !is_used(&peer.hear_at_last().await.unwrap()) {}
        }
        peer.say(&[Frame::Goodbye]).await.unwrap();
        receiving.cancel();
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// The honest twin.
#[test]
fn returned_ends_of_a_channel_work() {
    run(async {
        let names = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (a, b) = (node(&names).await, node(&names).await);
        let (there, arrives) = par!(async { a.sender::<Pair>("given").await }, async {
            b.receiver::<Pair>("given").policy(fifo(4)).await
        });
        let (back, ends) = par!(async { b.sender::<Pair>("ends").await }, async { a.receiver::<Pair>("ends").await });
        let (mut there, mut arrives, mut back, mut ends) =
            (there.unwrap(), arrives.unwrap(), back.unwrap(), ends.unwrap());
        for n in 0..10 {
            there.send(channel()).await.unwrap();
            let pair = arrives.recv().await.unwrap();
            let (sent, pair) = par!(back.send(pair), ends.recv());
            sent.unwrap();
            let (mut tx, mut rx) = pair.unwrap();
            let (sent, received) = par!(tx.send(n), rx.recv());
            assert_eq!((sent, received), (Ok(()), Ok(n)));
        }
        drop((there, arrives, back, ends));
        nothing_is_left(&a).await;
        nothing_is_left(&b).await;
        a.leave().await.unwrap();
        b.leave().await.unwrap();
    });
}
