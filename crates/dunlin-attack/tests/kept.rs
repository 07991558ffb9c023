//! What a node keeps of many small things that one peer sends: values of one byte in a buffer, and names. The
//! allocator of this binary counts live bytes.

use std::time::Duration;

use bytes::Bytes;
use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face, hello, life, run_alone};
use dunlin_heap::{Counting, Program};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{Face, Frame, FromHome, Head, Names, Terms, ToHome};

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

const OTHER: [u8; 4] = [127, 0, 0, 3];

/// A pause in which a home with room would have granted a credit.
const QUIET: Duration = Duration::from_secs(1);

async fn node(application: &str, buffered_max: u64) -> (Node, String) {
    let names = format!("memory:names-of-{application}");
    let node = Node::builder().app(application).names(&names).listen("127.0.0.1:0").buffered_max_bytes(buffered_max);
    let node = node.join().await.expect("it joins");
    let address = node.addresses()[0].clone();
    (node, address)
}

async fn join(application: &str, address: &str, number: u128) -> Peer {
    let there = Peer::who_is(OTHER, address, application, life(1)).await.expect("it gives its identity");
    let hello = hello(application, life(number), there);
    Peer::join(OTHER, address, &hello, Duration::ZERO).await.expect("the door is open")
}

/// A value of one byte as a node encodes it: the peer is the home of a channel whose sender is at the node.
async fn one_byte(node: &Node, peer: &mut Peer) -> Bytes {
    let channel = ChannelId(7);
    peer.say(&[declare(7, "how", channel, &face(Face::Receiver))]).await.expect("the connection stays");
    let sends = dunlin::spawn({
        let node = node.clone();
        async move {
            node.sender::<Vec<u8>>("how").await?.send(vec![7]).await.map_err(|error| Error::other(error.to_string()))
        }
    });
    loop {
        match peer.hear_at_last().await.expect("the connection stays") {
            Frame::ToHome(channel, ToHome::Attach(_)) => {
                let terms = Terms { window: 1, credits: 1, value_max: 1 << 20 };
                peer.say(&[Frame::FromHome(channel, FromHome::Attached(terms))]).await.expect("the connection stays");
            }
            Frame::ToHome(_, ToHome::Value { head: Head::Sent, first, .. }) => {
                sends.await.expect("it is not cancelled").expect("the value is sent");
                return first;
            }
            _ => {}
        }
    }
}

/// Attaches to a receiver, and sends values as long as the home grants credits. Returns the channel and the
/// number of values.
async fn fills(peer: &mut Peer, name: &str, value: &Bytes) -> (ChannelId, u64) {
    let face = face(Face::Sender);
    peer.say(&[declare(9, name, ChannelId(9), &face)]).await.expect("the connection stays");
    let channel = loop {
        if let Frame::Names(Names::Found { channel, .. }) = peer.hear_at_last().await.expect("the connection stays") {
            break channel;
        }
    };
    peer.say(&[Frame::ToHome(channel, ToHome::Attach(face))]).await.expect("the connection stays");
    let (mut sent, mut seen) = (0, 0);
    while let Ok(heard) = tokio::time::timeout(QUIET, peer.hear_at_last()).await {
        let credits = match heard.expect("the connection stays") {
            Frame::FromHome(_, FromHome::Attached(terms)) => terms.credits,
            Frame::FromHome(_, FromHome::Credit(more)) => more,
            _ => continue,
        };
        seen += 1;
        let (head, total) = (Head::Sent, value.len() as u64);
        let values = (0..credits).map(|_| Frame::ToHome(channel, ToHome::Value { head, total, first: value.clone() }));
        let said: Vec<Frame> = values.chain([Frame::Ack { seen }]).collect();
        peer.say(&said).await.expect("the connection stays");
        sent += u64::from(credits);
    }
    (channel, sent)
}

/// A peer sends values of one byte into a buffer of millions of places, which nothing receives, as long as
/// the home grants credits. Their memory in all is bounded by the budget of the buffer, whatever their bytes.
#[test]
fn values_of_one_byte_stay_within_the_byte_budget() {
    const BUDGET: u64 = 4 << 20;
    run_alone(async {
        let (node, address) = node("bytes", BUDGET).await;
        let mut rx = node.receiver::<Vec<u8>>("values").policy(fifo(100_000_000)).await.expect("it is declared");
        let mut peer = join("bytes", &address, 2).await;
        let value = one_byte(&node, &mut peer).await;
        let before = HEAP.0.forget_peak();
        let (_, sent) = fills(&mut peer, "values", &value).await;
        let grown = HEAP.0.peak().saturating_sub(before) as u64;
        println!("{sent} values of one byte take {grown} bytes");
        assert!(sent > 10_000 && grown <= BUDGET + BUDGET / 5, "{grown} bytes");
        // The twin: a receive makes room for more.
        for _ in 0..sent {
            assert_eq!(rx.recv().await, Ok(vec![7]));
        }
        loop {
            if let Frame::FromHome(_, FromHome::Credit(more)) = peer.hear_at_last().await.expect("the connection stays")
            {
                assert!(more > 0);
                break;
            }
        }
    });
}

/// One value more than there are credits for ends the connection, and the receiver receives the values before
/// it.
#[test]
fn a_value_without_a_promised_place_ends_the_connection() {
    const BUDGET: u64 = 64 << 10;
    run_alone(async {
        let (node, address) = node("unpromised", BUDGET).await;
        let mut rx = node.receiver::<Vec<u8>>("values").policy(fifo(100_000_000)).await.expect("it is declared");
        let mut peer = join("unpromised", &address, 2).await;
        let value = one_byte(&node, &mut peer).await;
        let (channel, sent) = fills(&mut peer, "values", &value).await;
        let (head, total) = (Head::Sent, value.len() as u64);
        let _ = peer.say(&[Frame::ToHome(channel, ToHome::Value { head, total, first: value })]).await;
        while peer.hear().await.is_ok() {}
        for _ in 0..sent {
            assert_eq!(rx.recv().await, Ok(vec![7]));
        }
    });
}

/// A peer declares ten thousand senders: each costs the name service little, and nothing once the peer has
/// left.
#[test]
fn ten_thousand_names_of_a_peer_cost_little_and_leave_nothing() {
    const ENDS: u64 = 10_000;
    /// As much as an honest node's: see `named_ends.rs` of `dunlin`.
    const EACH_MAX: u64 = 700;
    run_alone(async {
        let (node, address) = node("ends", 1 << 20).await;
        let mut peer = join("ends", &address, 2).await;
        let mut declares = async |from: &str, first: u64, count: u64| {
            for number in first..first + count {
                let name = format!("{from}-{number:05}");
                let said = [declare(number, &name, ChannelId(number.into()), &face(Face::Sender))];
                peer.say(&said).await.expect("the connection stays");
            }
            for _ in 0..count {
                let waits = peer.hear_at_last().await.expect("the connection stays");
                assert!(matches!(waits, Frame::Names(Names::Waiting { .. })), "{waits:?}");
            }
        };
        declares("before", 1, 100).await;
        let before = HEAP.0.live();
        declares("tide", 1_000, ENDS).await;
        let each = HEAP.0.live().saturating_sub(before) as u64 / ENDS;
        println!("{each} bytes for each name");
        assert!(each <= EACH_MAX, "{each} bytes");
        // The twin: a receiver of one of these names finds the peer's sender.
        let found = dunlin::spawn({
            let node = node.clone();
            async move { node.receiver::<Vec<u8>>("tide-05000").await }
        });
        let told = peer.hear_at_last().await.expect("the connection stays");
        assert!(matches!(told, Frame::Names(Names::Found { number: 5_000, .. })), "{told:?}");
        drop(found.await.expect("it is not cancelled").expect("it is declared"));
        peer.say(&[Frame::Goodbye]).await.expect("the connection stays");
        while peer.hear().await.is_ok() {}
        let left = || HEAP.0.live().saturating_sub(before) as u64 / ENDS;
        while left() > 8 {
            tokio::task::yield_now().await;
        }
        drop(node);
    });
}
