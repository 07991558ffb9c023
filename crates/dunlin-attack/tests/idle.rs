//! Connections that carry nothing but heartbeats: the memory that each takes, and the memory left after they
//! end.
#![cfg(target_os = "linux")]

use std::process::Stdio;
use std::time::{Duration, Instant};

use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life, needs_files, resident, run};
use dunlin_proto::wire::Frame;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinSet;

const ADDRESS: &str = "DUNLIN_ATTACK_IDLE_AT";
const OTHER: [u8; 4] = [127, 0, 0, 3];
const PEERS: usize = 5_000;

/// Sends heartbeats, and reads the node's.
async fn idles(mut peer: Peer) {
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    loop {
        beat.tick().await;
        peer.say(&[Frame::Heartbeat]).await.expect("the connection stays");
        while let Some(heard) = peer.heard() {
            heard.expect("the connection stays");
        }
    }
}

/// The other process of the test, which keeps its memory apart from the node's. The test ends it.
#[test]
#[ignore = "runs as a child of the test below"]
fn is_many_idle_peers() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    run(async {
        let there = Peer::who_is(OTHER, &address, "idle", life(1)).await.expect("it gives its identity");
        let mut all = JoinSet::new();
        for n in 0..PEERS {
            let hello = hello("idle", life(100 + n as u128), there);
            let peer = Peer::join(OTHER, &address, &hello, Duration::ZERO).await.expect("the door is open");
            all.spawn(idles(peer));
        }
        // Each connection frees its spare memory after a quiet second.
        let idle = tokio::time::sleep(Duration::from_secs(4));
        tokio::select! {
            _ = all.join_next() => panic!("a connection is lost"),
            () = idle => println!("\nidle"),
        }
        all.join_next().await;
    });
}

#[test]
fn an_idle_connection_costs_little_and_leaves_nothing() {
    // A node uses three quarters of the files that its process may open for connections.
    needs_files(7_000);
    run(async {
        let names = "memory:names-of-idle";
        let node = Node::builder().app("idle").names(names).listen("127.0.0.1:0").grace(Duration::ZERO).join();
        let node = node.await.expect("it joins");
        let mut connections = node.connections();
        let (before, _) = resident();
        let mut child = tokio::process::Command::new(std::env::current_exe().expect("it runs"));
        child.args(["--ignored", "--exact", "--nocapture", "is_many_idle_peers"]).env(ADDRESS, &node.addresses()[0]);
        let mut child = child.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        while lines.next_line().await.expect("it speaks").expect("it becomes idle") != "idle" {}
        assert_eq!(node.peers().len(), PEERS);
        let each = resident().0.saturating_sub(before) / PEERS as u64;
        println!("{each} bytes for each connection");
        assert!(each <= 12 << 10, "{each} bytes");
        // The twin: the node serves another node that joins beside them and sends something.
        let friend = Node::builder().app("idle").names(names).serve_names(false).listen("memory:").join();
        let friend = friend.await.expect("it joins");
        let mut rx = node.receiver::<u32>("tides").await.expect("there is room");
        let mut tx = friend.sender::<u32>("tides").await.expect("there is room");
        let (sent, received) = par!(tx.send(7), rx.recv());
        assert_eq!((sent.is_ok(), received), (true, Ok(7)));
        drop((tx, rx));
        friend.leave().await.expect("it leaves");

        child.kill().await.expect("it is there");
        while !node.peers().is_empty() {
            connections.recv().await.expect("the node lives");
        }
        // The node frees memory after they have left; no event marks it.
        let left = || resident().0.saturating_sub(before) / PEERS as u64;
        let until = Instant::now() + Duration::from_secs(20);
        while left() > 2 << 10 {
            assert!(Instant::now() < until, "{} bytes are left of each", left());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("{} bytes are left of each", left());
    });
}
