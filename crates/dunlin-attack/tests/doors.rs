//! Sockets that do not shake hands: a flood from one source must not keep others out.

use std::time::{Duration, Instant};

use dunlin::prelude::*;
use dunlin_attack::{Peer, dial, hello, life, needs_files, run_alone};
use dunlin_proto::id::Life;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const FLOODER: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];

async fn node(application: &str) -> Node {
    let names = format!("memory:names-of-{application}");
    Node::builder().app(application).names(&names).listen("127.0.0.1:0").join().await.expect("it joins")
}

/// 1,800 silent sockets a second, until it is dropped. `ready` fires when more have been opened than a node
/// has places for.
async fn flood(to: String, ready: mpsc::Sender<()>) {
    let mut held = JoinSet::new();
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    for n in 1.. {
        pace.tick().await;
        for _ in 0..9 {
            // The node closes the oldest: that is seen by reading.
            if let Ok(stream) = dial(FLOODER, &to).await {
                held.spawn(async move {
                    let _ = stream.readable().await;
                });
            }
        }
        while held.try_join_next().is_some() {}
        if n == 250 {
            let _ = ready.send(()).await;
        }
    }
}

#[test]
fn silent_sockets_of_one_address_keep_no_other_out() {
    run_alone(async {
        let node = node("doors").await;
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "doors", life(1)).await.unwrap();
        let (ready, mut flooded) = mpsc::channel(1);
        let flood = tokio::spawn(flood(address.clone(), ready));
        flooded.recv().await.unwrap();

        // Of another address: each within a second.
        for n in 0..10 {
            let began = Instant::now();
            let hello = hello("doors", life(100 + n), there);
            Peer::join(OTHER, &address, &hello, Duration::ZERO).await.expect("the door is open");
            let took = began.elapsed();
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
        // Of the same address, over links of 200 ms there and back: half of the tries at least.
        let mut tries = JoinSet::new();
        for n in 0..20 {
            let (address, hello) = (address.clone(), hello("doors", life(200 + n), there));
            tries.spawn(async move { Peer::join(FLOODER, &address, &hello, Duration::from_millis(200)).await.is_ok() });
        }
        let joined = tries.join_all().await.into_iter().filter(|joined| *joined).count();
        assert!(joined >= 10, "{joined} of 20");
        assert!(!flood.is_finished());
        flood.abort();
        drop(node);
    });
}

/// The twin: many honest nodes behind one address come at once, over links of 50 ms, and try again as nodes do.
#[test]
fn many_honest_nodes_of_one_address_join_at_once() {
    const NODES: u128 = 5_000;
    // With the pauses between them so many tries take 30 seconds: the test counts them, since a busy machine
    // takes longer.
    const TRIES: u64 = 35;
    async fn joins(address: String, me: Life, there: Life) -> (Peer, u64) {
        let mut pause = Duration::from_millis(20);
        for attempt in 1.. {
            let mut hello = hello("twins", me, there);
            hello.attempt = attempt;
            if let Ok(peer) = Peer::join(OTHER, &address, &hello, Duration::from_millis(50)).await {
                return (peer, attempt);
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(Duration::from_secs(1));
        }
        unreachable!("it tries again until it has joined")
    }
    // Both ends of each connection are here.
    needs_files(12_000);
    run_alone(async {
        let node = node("twins").await;
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "twins", life(1)).await.unwrap();
        let began = Instant::now();
        let mut all = JoinSet::new();
        for n in 0..NODES {
            all.spawn(joins(address.clone(), life(100 + n), there));
        }
        let peers = all.join_all().await;
        println!("{} nodes joined in {:?}", peers.len(), began.elapsed());
        let most = peers.iter().map(|(_, tries)| *tries).max().unwrap_or_default();
        assert!(most <= TRIES, "one needed {most} tries");
        drop(peers);
        drop(node);
    });
}
