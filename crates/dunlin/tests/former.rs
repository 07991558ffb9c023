//! A name service that runs for years: what remains of nodes that have joined, called and left.
#![cfg(feature = "net")]

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::prelude::*;
use dunlin_attack::{Key, Peer, hello, life};
use dunlin_heap::{Counting, Program};
use dunlin_proto::identity::Identity;
use dunlin_proto::wire::Frame;
use dunlin_proto::wire::handshake::Hello;

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

/// One test at a time, since all allocations are counted.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Bundle)]
struct Till {
    pay: ToServer<u32>,
    receipt: ToClient<u32>,
}

fn builder() -> dunlin::node::NodeBuilder {
    Node::builder().no_config().app("former").names("memory:names-of-former")
}

/// A client on its own node, which finds the till only through the name service.
async fn joins_calls_and_leaves(n: u32) -> Result {
    let node = builder().join().await?;
    let mut till = node.client::<Till>("till").await?;
    till.pay.send(n).await?;
    assert_eq!(till.receipt.recv().await?, n + 1);
    drop(till);
    node.leave().await?;
    Ok(())
}

/// The live bytes once the nodes that have left are gone: the least value in a while.
async fn live_bytes(clients: impl Fn() -> usize) -> usize {
    while clients() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    let mut least = usize::MAX;
    for _ in 0..20 {
        sleep(Duration::from_millis(10)).await;
        least = least.min(HEAP.0.live());
    }
    least
}

/// After this many clients, or nodes, the live bytes are constant: 10^4 of them, and in a short test a tenth.
fn first_of(cycles: u32) -> u32 {
    10_000.min(cycles / 10)
}

/// Runs `first` clients, and then `cycles` in ten rounds. Returns the live bytes after the first and after
/// the last round.
async fn rounds(first: u32, cycles: u32) -> Result<(usize, usize)> {
    let names = builder().listen("memory:").join().await?;
    let mut guests = names.acceptor::<Till>("till").await?;
    let serving = spawn(async move {
        while let Ok(guest) = guests.recv().await {
            let mut till = guest.into_face();
            let paid = till.pay.recv().await?;
            till.receipt.send(paid + 1).await?;
        }
        Ok::<(), Error>(())
    });
    for n in 0..first {
        joins_calls_and_leaves(n).await?;
    }
    let early = live_bytes(|| names.peers().len()).await;
    let mut late = early;
    for round in 0..10 {
        let began = Instant::now();
        for n in 0..cycles / 10 {
            joins_calls_and_leaves(first + round * (cycles / 10) + n).await?;
        }
        late = live_bytes(|| names.peers().len()).await;
        println!(
            "{} clients: {late} bytes live, the last {} took {:?}",
            (round + 1) * (cycles / 10),
            cycles / 10,
            began.elapsed()
        );
    }
    serving.cancel();
    names.leave().await?;
    Ok((early, late))
}

fn run(cycles: u32) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let first = first_of(cycles);
    let (early, late) = dunlin::block_on(rounds(first, cycles)).unwrap();
    assert!(late < early + (32 << 10), "{early} bytes are live after {first} clients, {late} after {cycles} more");
}

#[test]
fn clients_that_have_left_leave_nothing() {
    run(2000);
}

/// Takes ten minutes: `cargo test --release -p dunlin --test former a_hundred -- --ignored --nocapture`.
#[test]
#[ignore = "takes too long for the gate"]
fn a_hundred_thousand_clients_that_have_left_leave_nothing() {
    run(100_000);
}

// From plain sockets.

/// A node that joins, and sends a goodbye. Each dials from one of 200 addresses: a used port rests for a
/// minute.
async fn comes_and_goes(me: u128, first: &Hello, address: &str) -> Result {
    let key = Key::numbered(me);
    // ([`life`] keeps some bytes of each.)
    let hello = Hello { me: key.life(), key: key.key(), ..first.clone() };
    let mut peer = Peer::dial([127, 0, 1, (me % 200) as u8 + 1], address).await?;
    peer.greet_as(&hello, &key).await?;
    peer.confirm(&key).await?;
    peer.say(&[Frame::Goodbye]).await?;
    let mut heard = 0;
    while peer.hear().await.is_ok() {
        heard += 1;
    }
    assert!(heard > 0, "its goodbye is acknowledged");
    Ok(())
}

/// Like [`rounds`].
async fn goodbyes(first_nodes: u128, cycles: u128) -> Result<(usize, usize)> {
    let node = builder().names("127.0.0.1:0").listen("127.0.0.1:0").join().await?;
    let address = node.addresses()[0].clone();
    let address = address.strip_prefix("tcp://").unwrap_or(&address).to_owned();
    let me = Peer::who_is([127, 0, 0, 1], &address, "former", life(1)).await?;
    let first = hello("former", life(1), me);
    for n in 0..first_nodes {
        comes_and_goes(2 + n, &first, &address).await?;
    }
    let early = live_bytes(|| node.peers().len()).await;
    let mut late = early;
    for round in 0..10 {
        let began = Instant::now();
        for n in 0..cycles / 10 {
            comes_and_goes(2 + first_nodes + round * (cycles / 10) + n, &first, &address).await?;
        }
        late = live_bytes(|| node.peers().len()).await;
        println!(
            "{} nodes: {late} bytes live, the last {} took {:?}",
            (round + 1) * (cycles / 10),
            cycles / 10,
            began.elapsed()
        );
    }
    node.leave().await?;
    Ok((early, late))
}

fn run_goodbyes(cycles: u32) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let first = first_of(cycles);
    let (early, late) = dunlin::block_on(goodbyes(first.into(), cycles.into())).unwrap();
    assert!(late < early + (32 << 10), "{early} bytes are live after {first} nodes, {late} after {cycles} more");
}

#[test]
fn nodes_that_connect_and_leave_leave_nothing() {
    run_goodbyes(10_000);
}

/// Takes a quarter of an hour: `cargo test --release -p dunlin --test former a_million -- --ignored
/// --nocapture`.
#[test]
#[ignore = "takes too long for the gate"]
fn a_million_nodes_that_connect_and_leave_leave_nothing() {
    run_goodbyes(1_000_000);
}
