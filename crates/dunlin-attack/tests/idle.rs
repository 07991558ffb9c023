//! Connections on which nothing is said but heartbeats: what each costs in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life, run};
use dunlin_proto::wire::Frame;
use tokio::task::JoinSet;

const OTHER: [u8; 4] = [127, 0, 0, 3];
const PEERS: usize = 1_000;

/// Bytes of memory that this process has in use.
#[cfg(target_os = "linux")]
fn resident() -> i64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<i64>().unwrap() * 4096
}

/// Says that it lives, and hears the same, until all have joined and then so often.
async fn idles(mut peer: Peer, mut beats: u32, all_joined: Arc<AtomicBool>) -> Peer {
    let mut beat = tokio::time::interval(Duration::from_millis(500));
    while beats > 0 {
        beat.tick().await;
        beats -= u32::from(all_joined.load(Ordering::Relaxed));
        peer.say(&[Frame::Heartbeat]).await.unwrap();
        while let Ok(frame) = tokio::time::timeout(Duration::from_millis(1), peer.hear()).await {
            assert!(matches!(frame.unwrap(), Frame::Heartbeat | Frame::Ack { .. }));
        }
    }
    peer
}

#[cfg(target_os = "linux")]
#[test]
fn an_idle_connection_costs_little() {
    run(async {
        let names = "memory:names-of-idle";
        let node = Node::builder().app("idle").names(names).listen("127.0.0.1:0").join().await.unwrap();
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "idle", life(1)).await.unwrap();
        let before = resident();
        let mut all = JoinSet::new();
        let all_joined = Arc::<AtomicBool>::default();
        for n in 0..PEERS {
            let hello = hello("idle", life(100 + n as u128), there);
            let peer = Peer::join(OTHER, &address, &hello, Duration::ZERO).await.unwrap();
            all.spawn(idles(peer, 8, all_joined.clone()));
        }
        all_joined.store(true, Ordering::Relaxed);
        let peers = all.join_all().await;
        let each = (resident() - before) / PEERS as i64;
        println!("{each} bytes for each connection, with the peer's socket");
        // 12,750 were measured, and 21,012 when each kept a buffer for large reads.
        assert!(each < 17 << 10, "{each} bytes");
        drop(peers);
    });
}
