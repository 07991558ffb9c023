//! Peers that take a node's turns: a flood of frames without effect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dunlin::prelude::*;
use dunlin_attack::{Peer, bytes_of, dial, hello, life, run};
use dunlin_proto::id::Life;
use dunlin_proto::wire::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const OTHER: [u8; 4] = [127, 0, 0, 3];
/// Enough calls for a percentile.
const CALLS: usize = 1_000;
/// Other load on the machine does not last through all of them.
const ROUNDS: u128 = 4;

/// The most bytes of a flood that the node reads in this time: 4 KiB after each pause of 100 ms, beside those
/// that it read before it recognised the flood.
fn slowly(time: Duration) -> u64 {
    (256 << 10) + (4 << 10) * (time.as_millis() as u64 / 100 + 1)
}

/// Calls of an innocent pair of nodes; returns the 99th percentile of their times.
async fn calls(to: &mut Sender<u64>, back: &mut Receiver<u64>) -> Duration {
    let mut times = Vec::with_capacity(CALLS);
    for n in 0..CALLS as u64 {
        let began = Instant::now();
        to.send(n).await.unwrap();
        assert_eq!(back.recv().await.unwrap(), n);
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[CALLS * 99 / 100]
}

/// The same calls beside a flood into a plain sink.
async fn beside_a_sink(beats: &Bytes, calls: impl Future<Output = Duration>) -> Duration {
    let sink = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = sink.local_addr().unwrap().to_string();
    let drain = tokio::spawn(async move {
        let (mut stream, _) = sink.accept().await.unwrap();
        let mut buffer = vec![0; 64 << 10];
        while stream.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {}
    });
    let mut flooder = dial(OTHER, &address).await.unwrap();
    let bytes = beats.clone();
    let flood = tokio::spawn(async move { while flooder.write_all(&bytes).await.is_ok() {} });
    let plain = calls.await;
    flood.abort();
    drain.await.unwrap();
    plain
}

/// The same calls beside a flood into the node. The kernel's buffers take some of the flood; then the node
/// reads more slowly than it arrives.
async fn under_attack(node: &Node, beats: &Bytes, me: Life, calls: impl Future<Output = Duration>) -> Duration {
    let address = node.addresses()[0].clone();
    let there = Peer::who_is(OTHER, &address, "turns", life(1)).await.unwrap();
    let mut flooder = Peer::join(OTHER, &address, &hello("turns", me, there), Duration::ZERO).await.unwrap();
    let written = Arc::new(AtomicU64::new(0));
    let flood = tokio::spawn({
        let (written, bytes) = (written.clone(), beats.clone());
        async move {
            while flooder.write(&bytes).await.is_ok() {
                written.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let began = Instant::now();
    let under_attack = calls.await;
    let of_it = node.traffic().into_iter().find(|(peer, _)| peer.to_string() == me.node.to_string());
    let (read, most) = (of_it.map_or(0, |(_, traffic)| traffic.read), slowly(began.elapsed()));
    println!("{read} bytes of the flood were read, {most} may be");
    assert!(written.load(Ordering::Relaxed) > 0 && (1..=most).contains(&read), "{read} bytes, {most} may be");
    assert!(!flood.is_finished(), "the flooder is read slower, not cut off");
    flood.abort();
    under_attack
}

#[test]
fn heartbeat_flood_slows_other_nodes_no_more_than_a_plain_sink() {
    run(async {
        let builder = || Node::builder().app("turns").names("memory:names-of-turns");
        let node = builder().listen("127.0.0.1:0").join().await.unwrap();
        let friend = builder().listen("127.0.0.1:0").join().await.unwrap();
        let (mut to, mut asked) =
            (friend.sender::<u64>("to").await.unwrap(), node.receiver::<u64>("to").await.unwrap());
        let (mut answer, mut back) =
            (node.sender::<u64>("back").await.unwrap(), friend.receiver::<u64>("back").await.unwrap());
        let server = dunlin::spawn(async move {
            while let Ok(Some(n)) = asked.next().await {
                answer.send(n).await?;
            }
            Ok::<_, Error>(())
        });
        let beats = bytes_of(&vec![Frame::Heartbeat; 32 << 10]).freeze();
        // In turns, so that other load on the machine affects both.
        let (mut plain, mut attacked) = (Duration::MAX, Duration::MAX);
        for round in 0..ROUNDS {
            plain = plain.min(beside_a_sink(&beats, calls(&mut to, &mut back)).await);
            let flooder = life(2 + round);
            attacked = attacked.min(under_attack(&node, &beats, flooder, calls(&mut to, &mut back)).await);
        }
        println!("p99 of {CALLS} calls: {attacked:?}, and {plain:?} beside the same flood into a plain sink");
        assert!(attacked <= 3 * plain, "{attacked:?}, plain {plain:?}");
        drop(to);
        server.await.unwrap().unwrap();
    });
}
