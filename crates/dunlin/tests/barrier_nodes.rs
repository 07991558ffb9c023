//! Barriers with parties at several nodes: phases, choices at two nodes at once, forwarded enrolments, and
//! lost nodes.
#![cfg(feature = "net")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use dunlin::prelude::*;
use dunlin::{Barrier, SyncError, barrier};

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{carry, nodes, run};

/// Three nodes with two parties each: no party begins a step before all have done the one before.
#[test]
fn parties_at_three_nodes_sync_in_phases() {
    run(async {
        let [a, b, c] = nodes("parties_at_three_nodes_sync_in_phases").await;
        let at_a = barrier();
        let at_b = carry(at_a.enrol(), &a, &b, "ab").await?;
        let at_c = carry(at_a.enrol(), &a, &c, "ac").await?;
        let done = Arc::new(AtomicU64::new(0));
        let mut parties = Vec::new();
        for phase in [at_a.enrol(), at_b.enrol(), at_c.enrol(), at_a, at_b, at_c] {
            parties.push(spawn(work(phase, done.clone())));
        }
        for party in parties {
            party.await??;
        }
        assert_eq!(done.load(SeqCst), 6 * 50);
        Ok(())
    });
}

async fn work(mut phase: Barrier, done: Arc<AtomicU64>) -> Result {
    for step in 1..=50 {
        done.fetch_add(1, SeqCst);
        phase.sync().await?;
        let now = done.load(SeqCst);
        assert!((6 * step..6 * (step + 1)).contains(&now), "{now} after step {step}");
        phase.sync().await?;
    }
    Ok(())
}

/// An enrolment travels through three nodes and back, again and again: it counts at each of them.
#[test]
fn enrolment_counts_after_each_round_trip() {
    run(async {
        let [a, b, c] = nodes("an_enrolment_goes_home").await;
        let mut stays = barrier();
        let mut goes = stays.enrol();
        for round in 0..10 {
            for (stop, (from, to)) in [(&a, &b), (&b, &c), (&c, &a)].into_iter().enumerate() {
                // (A node that reuses a name has to wait until it is free.)
                goes = carry(goes, from, to, &format!("way {round} {stop}")).await?;
                let waits = stays.sync().within(Duration::from_millis(2)).await;
                assert_eq!(waits, Err(SyncError::TimedOut));
                let (one, other) = par!(stays.sync(), goes.sync());
                one?;
                other?;
            }
            // The enrolments that it left at the other nodes resign, and the barrier needs none of them.
            while stays.parties() > 2 {
                tokio::task::yield_now().await;
            }
        }
        b.leave().await?;
        c.leave().await?;
        let (one, other) = par!(stays.sync(), goes.sync());
        one?;
        other?;
        drop(goes);
        stays.sync().await?;
        Ok(())
    });
}

/// Choices at three nodes between two barriers, kept at two of them, and a channel: all choose the same
/// barrier each time.
#[test]
fn choices_at_several_nodes_agree() {
    run(async {
        let [a, b, c] = nodes("choices_at_several_nodes").await;
        let (one, two) = (barrier(), barrier());
        let at_a = (carry(two.enrol(), &b, &a, "two to a").await?, one.enrol());
        let at_c = (carry(two.enrol(), &b, &c, "two to c").await?, carry(one.enrol(), &a, &c, "one to c").await?);
        let at_b = (two, carry(one, &a, &b, "one to b").await?);
        let mut choosers = Vec::new();
        let mut tickers = Vec::new();
        for (two, one) in [at_a, at_b, at_c] {
            let (mut tx, ticks) = channel::<u32>();
            choosers.push(spawn(choose(one, two, ticks)));
            tickers.push(spawn(async move {
                for n in 0..20 {
                    tx.send(n).await?;
                }
                // The channel lasts as long as a choice includes it.
                tx.closed().await;
                Ok::<(), dunlin::Error>(())
            }));
        }
        let mut chosen = Vec::new();
        let mut kept = Vec::new();
        for chooser in choosers {
            let (log, barriers) = chooser.await??;
            chosen.push(log);
            kept.push(barriers);
        }
        assert_eq!(chosen[0].len(), 30);
        assert_eq!(chosen[0], chosen[1]);
        assert_eq!(chosen[0], chosen[2]);
        for ticker in tickers {
            ticker.await??;
        }
        Ok(())
    });
}

async fn choose(mut one: Barrier, mut two: Barrier, mut ticks: Receiver<u32>) -> Result<(Vec<u8>, [Barrier; 2])> {
    let (mut chosen, mut heard) = (Vec::new(), 0);
    while chosen.len() < 30 || heard < 20 {
        let more = chosen.len() < 30;
        alt! {
            r = one.sync(), if more => { r?; chosen.push(1) }
            r = two.sync(), if more => { r?; chosen.push(2) }
            tick = ticks.recv(), if heard < 20 => {
                assert_eq!(tick?, heard);
                heard += 1;
            }
        }
    }
    Ok((chosen, [one, two]))
}

/// A choice that is reserved for a phase still takes its other branch when that is ready.
#[test]
fn choice_takes_another_branch_before_the_phase() {
    run(async {
        let [a, b] = nodes("choice_takes_another_branch_before_the_phase").await;
        let mut at_a = barrier();
        let mut at_b = carry(at_a.enrol(), &a, &b, "ab").await?;
        assert_eq!(at_b.sync().within(Duration::from_millis(20)).await, Err(SyncError::TimedOut));
        let (mut tx, mut rx) = channel::<u32>();
        let choice = async {
            alt! { r = at_b.sync() => { r?; Ok::<_, dunlin::Error>(0) } value = rx.recv() => Ok(value?) }
        };
        let (sent, chosen) = par!(tx.send(7), choice);
        sent?;
        assert_eq!(chosen?, 7);
        assert_eq!(at_a.sync().within(Duration::from_millis(20)).await, Err(SyncError::TimedOut));
        // Both as a branch with a deadline.
        let limit = Duration::from_secs(50);
        let left = async {
            alt! { r = at_a.sync().within(limit) => r, r = rx.recv() => panic!("{r:?}") }
        };
        let right = async {
            alt! { r = at_b.sync().within(limit) => r, }
        };
        assert_eq!(par!(left, right), (Ok(()), Ok(())));
        assert_eq!((at_a.phases(), at_b.phases()), (1, 1));
        Ok(())
    });
}

/// An enrolment travels from a to b, where more are made; one of them travels on to c and one returns.
#[test]
fn forwarded_enrolment_syncs_across_three_nodes() {
    run(async {
        let [a, b, c] = nodes("forwarded_enrolment_syncs_across_three_nodes").await;
        let mut at_a = barrier();
        let mut at_b = carry(at_a.enrol(), &a, &b, "ab").await?;
        let mut at_c = carry(at_b.enrol(), &b, &c, "bc").await?;
        let mut home = carry(at_b.enrol(), &b, &a, "ba").await?;
        for _ in 0..3 {
            let synced = par!(at_a.sync(), at_b.sync(), at_c.sync(), home.sync());
            assert_eq!(synced, (Ok(()), Ok(()), Ok(()), Ok(())));
        }
        let limit = Duration::from_millis(20);
        let synced = par!(at_a.sync().within(limit), at_b.sync().within(limit), at_c.sync().within(limit));
        assert_eq!(synced, (Err(SyncError::TimedOut), Err(SyncError::TimedOut), Err(SyncError::TimedOut)));
        drop(home);
        assert_eq!(par!(at_a.sync(), at_b.sync(), at_c.sync()), (Ok(()), Ok(()), Ok(())));
        drop((at_b, at_c));
        assert_eq!(at_a.sync().await, Ok(()));
        Ok(())
    });
}

/// The barrier does not wait for a party enrolled at a node that leaves; that party gets an error, since the
/// keeper of the barrier is lost.
#[test]
fn barrier_does_not_wait_for_a_lost_node() {
    run(async {
        let [a, b, c] = nodes("barrier_does_not_wait_for_a_lost_node").await;
        let mut at_a = barrier();
        let mut at_b = carry(at_a.enrol(), &a, &b, "ab").await?;
        let mut at_c = carry(at_a.enrol(), &a, &c, "ac").await?;
        assert_eq!(par!(at_a.sync(), at_b.sync(), at_c.sync()), (Ok(()), Ok(()), Ok(())));
        let (left, first, third) = par!(b.leave(), at_a.sync(), at_c.sync());
        left?;
        assert_eq!((first, third), (Ok(()), Ok(())));
        assert_eq!(at_b.sync().await, Err(SyncError::NodeLost));
        let lost = async {
            alt! { r = at_c.sync() => r }
        };
        let (left, third) = par!(a.leave(), lost);
        left?;
        assert_eq!(third, Err(SyncError::NodeLost));
        assert_eq!(at_a.sync().await, Ok(()));
        Ok(())
    });
}
