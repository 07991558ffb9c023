//! The byte budget of a channel bounds the memory of the node that buffers its values. The allocator of this
//! binary counts live bytes; the sender is another process, so that only the receiver's node is counted.
#![cfg(feature = "net")]

#[path = "support/actor.rs"]
mod actor;

use std::time::Duration;

use actor::{Actor, say};
use dunlin::prelude::*;
use dunlin_heap::{Counting, Program};

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

/// A send that takes longer waits for room, or the machine is busy.
const STALLED: Duration = Duration::from_millis(500);
/// So many such sends in succession say that there is no room, if the memory is taken that there has to be
/// room for...
const STALLS: u32 = 2;
/// ... and so many if it is not.
const STALLS_EARLY: u32 = 60;

#[test]
#[ignore = "what the process of the other test runs"]
fn a_role() {
    let Some((role, knows)) = actor::role() else { return };
    let [names, size] = &knows[..] else { panic!("it has to know two things") };
    let size: usize = size.parse().unwrap();
    assert_eq!(role, "sender");
    dunlin::block_on(async {
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
    })
    .unwrap();
}

/// So much of its budget a full buffer takes at least.
fn least(budget: u64) -> u64 {
    budget / 3
}

/// Fills a buffer with values of one size, until sends find no room: gives the peak growth of this node, and
/// how many values it held.
async fn fill(size: usize, policy: Policy, budget: u64) -> Result<(usize, u64)> {
    let names = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let node = Node::builder().app("buffered").names(&names).buffered_max_bytes(budget).join().await?;
    let mut rx = node.receiver::<Vec<u8>>("values").policy(policy).await?;
    let before = HEAP.0.forget_peak();
    let mut sender = Actor::start(&[], "sender", &[&names, &size.to_string()]);
    let mut goes_on = node.sender::<bool>("goes on").await?;
    let (mut sent, mut stalls, mut is_full, mut peak) = (0, 0, false, 0);
    while !is_full {
        let said;
        (said, sender) = blocking(move |_| (sender.hear(), sender)).await?;
        let now: u64 = said.parse().unwrap();
        stalls = if now == sent { stalls + 1 } else { 1 };
        (sent, peak) = (now, HEAP.0.peak() - before);
        is_full = stalls >= if peak as u64 >= least(budget) { STALLS } else { STALLS_EARLY };
        goes_on.send(!is_full).await?;
    }
    let mut received = 0;
    while let Some(value) = rx.next().await? {
        assert_eq!(value.len(), size);
        received += 1;
    }
    assert_eq!(received, sent);
    assert!(blocking(move |_| sender.end()).await?.success());
    node.leave().await?;
    Ok((peak, sent))
}

#[test]
fn buffered_values_of_any_size_stay_within_the_byte_budget() {
    const BUDGET: u64 = 16 << 20;
    dunlin::block_on(async {
        for size in [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1] {
            // Each ends with a send that waits in vain, so not all sizes have both.
            let both = [unbounded(), fifo(100_000_000)];
            for policy in both.into_iter().take(if size == 1 || size == 1_000_000 { 2 } else { 1 }) {
                let (peak, held) = fill(size, policy, BUDGET).await?;
                println!("{size} bytes: {held} values, peak growth {peak}");
                assert!(peak as u64 <= BUDGET + BUDGET / 5, "{held} values of {size} bytes take {peak}");
                assert!(peak as u64 >= least(BUDGET), "only {held} values of {size} bytes, {peak} bytes");
            }
        }
        Ok::<_, Error>(())
    })
    .unwrap();
}
