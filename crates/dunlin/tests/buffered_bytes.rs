//! The byte budget of a channel bounds the memory of the node that buffers its values. The allocator of this
//! binary counts live bytes; the sender is another process, so that only the receiver's node is counted. Each
//! receiver is a process of its own, too: memory that the system's allocator kept from an earlier run would
//! hide the growth of the next one.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
mod actor;

use std::time::Duration;

use actor::{Actor, say};
use dunlin::prelude::*;
use dunlin_heap::{Counting, Program};

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

/// A send that takes longer waits for room, unless the machine is busy.
const STALLED: Duration = Duration::from_millis(500);
/// This many such sends in succession show a full buffer, if it already takes the memory for which it must
/// have room...
const STALLS: u32 = 2;
/// ... and this many if it does not.
const STALLS_EARLY: u32 = 60;

#[test]
#[ignore = "what the process of the other test runs"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let done = match (&*role, &knows[..]) {
        ("sender", [names, size]) => dunlin::block_on(sends(names, size.parse().unwrap())),
        ("receiver", [size, policy, budget]) => {
            let policy = if policy == "unbounded" { unbounded() } else { fifo(100_000_000) };
            dunlin::block_on(fills(size.parse().unwrap(), policy, budget.parse().unwrap()))
        }
        _ => panic!("there is no such role"),
    };
    done.unwrap();
}

/// Sends values of this size, and prints their number whenever there is no room.
async fn sends(names: &str, size: usize) -> Result {
    let node = Node::builder().app("buffered").names(names).serve_names(false).join().await?;
    let mut tx = node.sender::<Vec<u8>>("values").await?;
    let mut goes_on = node.receiver::<bool>("goes on").await?;
    let mut sent = 0u64;
    loop {
        if tx.send(vec![7; size]).within(STALLED).await.is_ok() {
            sent += 1;
            continue;
        }
        say(sent);
        if !goes_on.recv().await? {
            break;
        }
    }
    drop(tx);
    node.leave().await
}

/// The least part of its budget that a full buffer takes.
fn least(budget: u64) -> u64 {
    budget / 3
}

/// glibc's allocator keeps freed memory in an arena for each thread: some megabytes on a busy machine,
/// whatever the budget, varying with the scheduler. A single arena shows the memory of the values.
const ONE_ARENA: &[&str] = if cfg!(target_os = "linux") { &["env", "MALLOC_ARENA_MAX=1"] } else { &[] };

/// The present and the peak memory of this process, as the system counts it. Zero where the system does not
/// report it.
fn resident() -> (u64, u64) {
    #[cfg(target_os = "linux")]
    return dunlin_attack::resident();
    #[cfg(not(target_os = "linux"))]
    return (0, 0);
}

/// Fills a buffer with values of one size until sends find no room. Prints the peak growth of this node's
/// live bytes, that of its memory in the system, and the number of values.
async fn fills(size: usize, policy: Policy, budget: u64) -> Result {
    let names = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let node = Node::builder().app("buffered").names(&names).buffered_max_bytes(budget).join().await?;
    let mut rx = node.receiver::<Vec<u8>>("values").policy(policy).await?;
    let before = HEAP.0.forget_peak();
    let (resident_before, _) = resident();
    let mut sender = Actor::start(&[], "sender", &[&names, &size.to_string()]);
    let mut goes_on = node.sender::<bool>("goes on").await?;
    let (mut sent, mut stalls, mut is_full) = (0, 0, false);
    while !is_full {
        let said;
        (said, sender) = blocking(move |_| (sender.hear(), sender)).await?;
        let now: u64 = said.parse().unwrap();
        stalls = if now == sent { stalls + 1 } else { 1 };
        sent = now;
        let (peak, taken) = (HEAP.0.peak() - before, resident().1.saturating_sub(resident_before));
        is_full = stalls >= if peak as u64 >= least(budget) { STALLS } else { STALLS_EARLY };
        say(format_args!("{peak} {taken} {sent}"));
        goes_on.send(!is_full).await?;
    }
    let mut received = 0;
    while let Some(value) = rx.next().await? {
        assert_eq!(value.len(), size);
        received += 1;
    }
    assert_eq!(received, sent);
    assert!(blocking(move |_| sender.end()).await?.success());
    say("all are received");
    node.leave().await
}

#[test]
fn buffered_values_of_any_size_stay_within_the_byte_budget() {
    const BUDGET: u64 = 16 << 20;
    const MOST: u64 = BUDGET + BUDGET / 5;
    for size in [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1] {
        // The allocator keeps blocks of such sizes, used for reads and decoding, for a while.
        let most_resident = if matches!(size, 10_000 | 100_000) { MOST + (10 << 20) } else { MOST };
        // Each run ends with a send that times out, so not all sizes use both policies.
        let both = ["unbounded", "bounded"];
        for policy in both.into_iter().take(if size == 1 || size == 1_000_000 { 2 } else { 1 }) {
            let receiver = Actor::start(ONE_ARENA, "receiver", &[&size.to_string(), policy, &BUDGET.to_string()]);
            let (mut peak, mut taken, mut held) = (0, 0, 0);
            loop {
                let said = receiver.hear();
                if said == "all are received" {
                    break;
                }
                let told: Vec<u64> = said.split(' ').map(|number| number.parse().unwrap()).collect();
                (peak, taken, held) = (told[0], told[1], told[2]);
            }
            assert!(receiver.end().success());
            println!("{size} bytes: {held} values, peak growth {peak}, of the system's memory {taken}");
            assert!(peak <= MOST, "{held} values of {size} bytes take {peak}");
            assert!(taken <= most_resident, "{held} values of {size} bytes take {taken} of the system's memory");
            assert!(peak >= least(BUDGET), "only {held} values of {size} bytes, {peak} bytes");
        }
    }
}
