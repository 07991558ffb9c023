//! Sockets that do not shake hands: a flood from one source must not keep others out.
#![cfg(target_os = "linux")]

use std::io;
use std::time::{Duration, Instant};

use dunlin::prelude::*;
use dunlin_attack::{Peer, dial, hello, life, needs_files, run_alone};
use dunlin_proto::id::Life;
use dunlin_proto::wire::handshake::Hello;
use tokio::sync::watch;
use tokio::task::JoinSet;

const FLOODER: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];

async fn node(application: &str) -> Node {
    let names = format!("memory:names-of-{application}");
    Node::builder().app(application).names(&names).listen("127.0.0.1:0").join().await.expect("it joins")
}

/// So many silent sockets a second are a flood.
const FLOOD: u64 = 1_800;
/// More than a node has places for.
const PLACES: u64 = 1_024;

/// Opens a tenth more silent sockets a second than have to be, and counts those that are open, until it is
/// dropped.
async fn flood(to: String, opened: watch::Sender<u64>) {
    let mut held = JoinSet::new();
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    loop {
        // What a busy machine could not do in time comes at once.
        pace.tick().await;
        for _ in 0..10 {
            // One that waits for the node to take others in holds up none behind it.
            let (to, opened) = (to.clone(), opened.clone());
            held.spawn(async move {
                // The node closes the oldest: that is seen by reading.
                if let Ok(stream) = dial(FLOODER, &to).await {
                    opened.send_modify(|opened| *opened += 1);
                    let _ = stream.readable().await;
                }
            });
        }
        while held.try_join_next().is_some() {}
    }
}

/// Shakes hands until the node has taken the socket up. What the peer writes last may come when its place has
/// gone.
async fn joins(from: [u8; 4], address: &str, hello: &Hello, link: Duration) -> io::Result<Peer> {
    let mut peer = Peer::join(from, address, hello, link).await?;
    peer.is_taken_up().await?;
    Ok(peer)
}

#[test]
fn silent_sockets_of_one_address_keep_no_other_out() {
    const ROUNDS: u32 = 3;
    run_alone(async {
        let node = node("doors").await;
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "doors", life(1)).await.unwrap();
        let (counts, mut opened) = watch::channel(0);
        let flood = tokio::spawn(flood(address.clone(), counts));
        opened.wait_for(|opened| *opened > 2 * PLACES).await.unwrap();

        // Of another address: each within two seconds. What counts is a round in which the flood was one; on
        // a busy machine it may fall behind.
        let (mut rounds, mut tries, mut full) = (0, 0, 0);
        while full < ROUNDS {
            let (began, before) = (Instant::now(), *opened.borrow());
            let mut slowest = Duration::ZERO;
            for _ in 0..4 {
                let (began, now) = (Instant::now(), *opened.borrow());
                let hello = hello("doors", life(100 + tries), there);
                joins(OTHER, &address, &hello, Duration::ZERO).await.expect("the door is open");
                slowest = slowest.max(began.elapsed());
                opened.wait_for(|opened| *opened >= now + FLOOD / 4).await.unwrap();
                tries += 1;
            }
            let rate = (*opened.borrow() - before) as f64 / began.elapsed().as_secs_f64();
            println!("{rate:.0} silent sockets a second, {} were refused in all", node.refusals().handshakes);
            if rate >= FLOOD as f64 {
                assert!(slowest < Duration::from_secs(2), "{slowest:?}");
                full += 1;
            }
            rounds += 1;
            assert!(rounds < 10 * ROUNDS, "the machine is too busy for such a flood: {rate:.0} sockets a second");
        }
        // The node has taken them in: for each it has refused another one.
        let (opened, refused) = (*opened.borrow(), node.refusals().handshakes);
        assert!(refused + 2 * PLACES >= opened, "{opened} were opened, and {refused} refused");
        // Of the same address, over links of 200 ms there and back: half of the tries at least.
        let mut tries = JoinSet::new();
        for n in 0..20 {
            let (address, hello) = (address.clone(), hello("doors", life(200 + n), there));
            tries.spawn(async move { joins(FLOODER, &address, &hello, Duration::from_millis(200)).await.is_ok() });
        }
        let joined = tries.join_all().await.into_iter().filter(|joined| *joined).count();
        assert!(joined >= 10, "{joined} of 20");
        assert!(!flood.is_finished());
        flood.abort();
        drop(node);
    });
}

/// What this process has had of the processors.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the system says it");
    // Behind the name, which may have anything in it. Linux counts hundredths of a second there, whatever its
    // clock.
    let (_, fields) = stat.rsplit_once(") ").expect("it has a name");
    let hundredths = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("it is a number"));
    Duration::from_millis(10 * hundredths.sum::<u64>())
}

/// The twin: many honest nodes behind one address come at once, over links of 50 ms, and try again as nodes
/// do.
#[test]
fn many_honest_nodes_of_one_address_join_at_once() {
    const NODES: u128 = 5_000;
    const IN_ORDER: u128 = 250;
    /// Where other programs leave this one the processors. Else it may not take them for much longer than for
    /// as many one after the other: it is not the nodes that are slow then.
    const AT_ONCE: Duration = Duration::from_secs(30);
    const TIMES: u32 = 6;
    // With the pauses between them so many tries take 30 seconds: the test counts them, since a busy machine
    // takes longer.
    const TRIES: u64 = 35;
    async fn joins_at_last(address: String, me: Life, there: Life) -> (Peer, u64) {
        let mut pause = Duration::from_millis(20);
        for attempt in 1.. {
            let mut hello = hello("twins", me, there);
            hello.attempt = attempt;
            if let Ok(peer) = joins(OTHER, &address, &hello, Duration::from_millis(50)).await {
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
        // One after the other: what so many cost at least.
        let began = processor_time();
        for n in 0..IN_ORDER {
            let hello = hello("twins", life(100_000 + n), there);
            joins(OTHER, &address, &hello, Duration::ZERO).await.expect("the door is open");
        }
        let in_order = (processor_time() - began) * (NODES / IN_ORDER) as u32;
        let (began, began_with) = (Instant::now(), processor_time());
        let mut all = JoinSet::new();
        for n in 0..NODES {
            all.spawn(joins_at_last(address.clone(), life(100 + n), there));
        }
        let peers = all.join_all().await;
        let (took, at_once) = (began.elapsed(), processor_time() - began_with);
        println!(
            "{} nodes joined in {took:?}, and took {at_once:?} of processors, {in_order:?} one by one",
            peers.len()
        );
        assert!(took <= AT_ONCE || at_once <= TIMES * in_order, "{took:?}, {at_once:?}, {in_order:?} one by one");
        let most = peers.iter().map(|(_, tries)| *tries).max().unwrap_or_default();
        assert!(most <= TRIES, "one needed {most} tries");
        drop(peers);
        drop(node);
    });
}
