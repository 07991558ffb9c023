//! Messages for mailboxes of other nodes over connections that are cut and parted: each arrives once and in
//! order, as long as the life of the connection lasts.

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Address, Bound, PostError};

/// How many seeds each test has.
const SEEDS: u64 = 100;

/// How many senders, and how many messages of each.
const SENDERS: u32 = 3;
const MESSAGES: u32 = 200;

/// Sends numbers, each `pace` of them without a pause, and waits for room where there is none.
async fn send_all(address: Address<(u32, u32)>, own: u32, pace: u32) -> Result {
    for n in 0..MESSAGES {
        match address.send((own, n)) {
            Ok(()) => {}
            Err(PostError::Full(message)) => address.offer(message).await?,
            Err(error) => return Err(error.into()),
        }
        if (n + own).is_multiple_of(pace) {
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// A connection that resumes loses nothing, doubles nothing and keeps the order.
#[test]
fn messages_over_cut_sockets_arrive_once_and_in_order() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let here = Node::join("mailboxes").await?;
            let there = Node::join("mailboxes").await?;
            let mut mailbox = here.mailbox::<(u32, u32)>("numbers").await?;
            let address = there.address::<(u32, u32)>("numbers").await?;
            let senders: Vec<_> =
                (0..SENDERS).map(|own| spawn(send_all(address.clone(), own, 1 + sim.below(20) as u32))).collect();
            let mut expected = [0; SENDERS as usize];
            for _ in 0..SENDERS * MESSAGES {
                if sim.below(40) == 0 {
                    match sim.below(2) {
                        0 => sim.cut(&here, &there),
                        _ => {
                            sim.part(&here, &there);
                            sleep(Duration::from_millis(sim.below(3000))).await;
                            sim.heal(&here, &there);
                            // Otherwise several of these may together exceed the grace period.
                            sleep(Duration::from_secs(10)).await;
                        }
                    }
                }
                let (from, n) = mailbox.recv().await?;
                assert_eq!(n, expected[from as usize], "of sender {from}");
                expected[from as usize] += 1;
            }
            for sender in senders {
                sender.await??;
            }
            assert!(mailbox.is_empty());
            Ok::<_, Error>(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

/// After the grace period what was in transit is lost. What is sent later arrives, in order and once, with
/// nothing of the lost part after it.
#[test]
fn nothing_of_a_lost_life_arrives_in_the_next() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let here = Node::join("mailboxes").await?;
            let there = Node::join("mailboxes").await?;
            let mut mailbox = here.mailbox_with::<u32>("numbers", Bound::reject(1000)).await?;
            let address = there.address::<u32>("numbers").await?;
            let mut sent = 0;
            for round in 0..3 {
                while address.send(sent).is_ok() && sim.below(20) > 0 {
                    sent += 1;
                }
                sent += 1;
                if round < 2 {
                    sim.part(&here, &there);
                    // More is sent to the connection that is lost.
                    let _ = address.send(sent);
                    sent += 1;
                    sleep(Duration::from_secs(40)).await;
                    sim.heal(&here, &there);
                    sleep(Duration::from_secs(10)).await;
                }
            }
            address.offer(u32::MAX).await?;
            let mut last = None;
            let mut count = 0;
            loop {
                let n = mailbox.recv().await?;
                assert!(last.is_none_or(|last| last < n), "{n} after {last:?}");
                last = Some(n);
                if n == u32::MAX {
                    break;
                }
                count += 1;
            }
            Ok::<_, Error>(sent - count)
        });
        lost += result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
    assert!(lost > 0, "no message was in transit when a connection was lost");
}
