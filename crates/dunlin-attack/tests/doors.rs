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

/// A flood is this many silent sockets a second.
const FLOOD: u64 = 1_800;
/// More than a node has places for.
const PLACES: u64 = 1_024;

/// Opens a tenth more silent sockets a second than a flood needs, and counts those that it has opened, until
/// it is dropped.
async fn flood(to: String, opened: watch::Sender<u64>) {
    let mut held = JoinSet::new();
    let mut pace = tokio::time::interval(Duration::from_millis(5));
    loop {
        // The interval makes up for ticks that a busy machine missed.
        pace.tick().await;
        for _ in 0..10 {
            // Each in a task of its own: a dial that waits for the node to accept delays no other.
            let (to, opened) = (to.clone(), opened.clone());
            held.spawn(async move {
                // The node closes the oldest sockets; a read notices that.
                if let Ok(stream) = dial(FLOODER, &to).await {
                    opened.send_modify(|opened| *opened += 1);
                    let _ = stream.readable().await;
                }
            });
        }
        while held.try_join_next().is_some() {}
    }
}

/// Shakes hands, and waits until the node has adopted the socket. The peer's last message may arrive after
/// its place is gone.
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

        // From another address, each joins within two seconds. A round counts only if the flood reached its
        // rate; on a busy machine it may fall behind.
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
        // The node has accepted them: for each it has refused an older one.
        let (opened, refused) = (*opened.borrow(), node.refusals().handshakes);
        assert!(refused + 2 * PLACES >= opened, "{opened} were opened, and {refused} refused");
        // From the flooder's address, over links with a round trip of 200 ms, at least half of the attempts
        // join.
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

/// The processor time that this process has used.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("the system reports it");
    // The fields follow the name, which may contain anything. Linux counts hundredths of a second there,
    // whatever its clock.
    let (_, fields) = stat.rsplit_once(") ").expect("it has a name");
    let hundredths = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().expect("it is a number"));
    Duration::from_millis(10 * hundredths.sum::<u64>())
}

/// The twin: many honest nodes behind one address dial at once, over links of 50 ms, and retry as nodes do.
#[test]
fn many_honest_nodes_of_one_address_join_at_once() {
    const NODES: u128 = 5_000;
    const IN_ORDER: u128 = 250;
    /// The limit on an idle machine. On a busy one the joins may take little more processor time than as many
    /// joins in sequence: then other programs cause the delay.
    const AT_ONCE: Duration = Duration::from_secs(30);
    const TIMES: u32 = 6;
    // With the pauses between them this many attempts take 30 seconds. The test counts attempts, since a busy
    // machine takes longer.
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
    // This process holds both ends of each connection.
    needs_files(12_000);
    run_alone(async {
        let node = node("twins").await;
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "twins", life(1)).await.unwrap();
        // In sequence: the least that this many joins cost.
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
