//! Shuttle: barriers with more parties than loom can explore, in random orders: several barriers, channels
//! beside them, newcomers, parties that give up, leave, or are reserved for a remote receiver.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p dunlin-core --test shuttle_barrier`
#![cfg(shuttle)]

mod shuttle_support;

use std::future::{pending, poll_fn, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::{
    Barrier, Choice, Operation, PATIENCE_TICKS, Par, Receiver, Sender, SyncError, barrier, channel, future, waits,
};
use shuttle::rand::Rng;
use shuttle::thread;
use shuttle_support::{block_on, check, join_all, try_once};

/// A number below `n`, chosen by the model.
fn below(n: u32) -> u32 {
    shuttle::rand::thread_rng().gen_range(0..n)
}

/// A future that wakes itself `times` times and is never ready.
async fn restless(times: u32) {
    let mut left = times;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    pending().await
}

/// What a party of the models holds.
#[derive(Default)]
struct Party {
    barriers: Vec<Barrier>,
    sends: Vec<Sender<u32>>,
    receives: Vec<Receiver<u32>>,
    /// Whether it sometimes polls a branch that closes its choice meanwhile.
    restless: bool,
    /// Whether its barriers are kept elsewhere: it then learns only later that a choice it gave up took a
    /// phase.
    is_far: bool,
    /// The number of choices that it gave up and of which that is still unknown.
    unknown: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Did {
    Synced(usize),
    Sent,
    Received(u32),
    Ended,
    /// It was polled once and dropped.
    GaveUp,
}

impl Party {
    fn phases(&self) -> Vec<u64> {
        self.barriers.iter().map(Barrier::phases).collect()
    }

    /// One choice over all its ends. At each barrier it takes part in exactly the phases that it reports.
    fn choose(&mut self, value: u32, gives_up: bool) -> Did {
        let before = self.phases();
        let mut slots: Vec<_> = self.sends.iter().map(|_| Some(value)).collect();
        let mut choice = if below(2) == 0 { Choice::prioritised() } else { Choice::fair() };
        let restless = restless(below(3));
        if self.restless && below(2) == 0 {
            choice = choice.on(future(restless), |()| unreachable!());
        }
        if below(2) == 0 {
            for rx in &mut self.receives {
                choice = choice.on(rx.recv(), |got| got.map_or(Did::Ended, Did::Received));
            }
            for (n, phase) in self.barriers.iter_mut().enumerate() {
                choice = choice.on(phase.sync(), move |synced| synced.map_or(Did::Ended, |()| Did::Synced(n)));
            }
            for (tx, slot) in self.sends.iter_mut().zip(&mut slots) {
                choice = choice.on(tx.send_from(slot), |sent| sent.map_or(Did::Ended, |()| Did::Sent));
            }
        } else {
            for (tx, slot) in self.sends.iter_mut().zip(&mut slots) {
                choice = choice.on(tx.send_from(slot), |sent| sent.map_or(Did::Ended, |()| Did::Sent));
            }
            for (n, phase) in self.barriers.iter_mut().enumerate().rev() {
                choice = choice.on(phase.sync(), move |synced| synced.map_or(Did::Ended, |()| Did::Synced(n)));
            }
            for rx in &mut self.receives {
                choice = choice.on(rx.recv(), |got| got.map_or(Did::Ended, Did::Received));
            }
        }
        let chosen = if gives_up { try_once(choice.into_future()) } else { Some(block_on(choice.into_future())) };
        let mut did = chosen.map_or(Did::GaveUp, |(_, did)| did);
        let sent = slots.iter().filter(|slot| slot.is_none()).count();
        let mut taken: u64 = self.phases().iter().zip(&before).map(|(now, before)| now - before).sum();
        let expected = u64::from(matches!(did, Did::Synced(_)));
        let late = taken.saturating_sub(expected).min(self.unknown);
        if self.is_far {
            (taken, self.unknown) = (taken - late, self.unknown - late);
            self.unknown += u64::from(did == Did::GaveUp);
        }
        if did == Did::GaveUp {
            // The choice may have been decided before it was dropped.
            assert!(sent as u64 + taken <= 1, "sent {sent}, synced {taken}");
            if sent == 1 {
                did = Did::Sent;
            }
            return did;
        }
        assert_eq!((sent == 1, taken), (did == Did::Sent, expected), "{did:?}");
        if let Did::Synced(n) = did {
            assert!((before[n] + 1..=before[n] + 1 + late).contains(&self.barriers[n].phases()));
        }
        did
    }

    /// Makes `rounds` choices, and then drops everything.
    fn run(mut self, rounds: u32, gives_up: bool) -> Vec<Did> {
        let mut did = Vec::new();
        for round in 0..rounds {
            let now = self.choose(round, gives_up && below(3) == 0);
            did.push(now);
            if now == Did::Ended {
                // A channel that has ended is always ready, so only the barriers remain in the next choices.
                self.sends.clear();
                self.receives.clear();
                if self.barriers.is_empty() {
                    break;
                }
            }
        }
        did
    }
}

/// Runs the parties, each on its own thread: every value sent is received, once.
fn all(parties: Vec<Party>, rounds: u32, gives_up: bool) -> Vec<Vec<Did>> {
    let threads = parties.into_iter().map(|party| thread::spawn(move || party.run(rounds, gives_up)));
    let did = join_all(threads.collect());
    let count = |what: fn(&Did) -> bool| did.iter().flatten().filter(|did| what(did)).count();
    let (sent, received) = (count(|did| *did == Did::Sent), count(|did| matches!(did, Did::Received(_))));
    assert_eq!(sent, received, "{did:?}");
    did
}

/// This many enrolments on one barrier.
fn enrolments(count: usize) -> Vec<Barrier> {
    let first = barrier();
    let mut all: Vec<_> = (1..count).map(|_| first.enrol()).collect();
    all.push(first);
    all
}

/// No party begins a phase before all have finished the previous one.
#[test]
fn five_parties() {
    check(500, || {
        let counts: Arc<Vec<AtomicU32>> = Arc::new((0..5).map(|_| AtomicU32::new(0)).collect());
        let run = |(n, mut phase): (usize, Barrier)| {
            let counts = counts.clone();
            thread::spawn(move || {
                for round in 1..4 {
                    counts[n].store(round, Relaxed);
                    assert_eq!(block_on(phase.sync()), Ok(()));
                    assert!(counts.iter().all(|count| count.load(Relaxed) >= round));
                }
            })
        };
        join_all(enrolments(5).into_iter().enumerate().map(run).collect());
    });
}

/// Five choices at two barriers each, in either order: all parties take every phase, or none does.
#[test]
fn five_choices_at_two_barriers() {
    check(500, || {
        // In the order of enrolment at one barrier, and in reverse at the other.
        let pairs = enrolments(5).into_iter().zip(enrolments(5).into_iter().rev());
        let parties = pairs.map(|(a, b)| Party { barriers: vec![a, b], ..Party::default() });
        let did = all(parties.collect(), 3, false);
        // No party has left before all had finished, so all have the same outcomes.
        for did in &did {
            assert_eq!(did.len(), 3);
        }
    });
}

/// Barriers that overlap: each party is at two of three.
#[test]
fn three_barriers_in_a_ring() {
    check(500, || {
        let mut ends: Vec<Party> = (0..3).map(|_| Party::default()).collect();
        for n in 0..3 {
            let a = barrier();
            ends[(n + 1) % 3].barriers.push(a.enrol());
            ends[n].barriers.push(a);
        }
        all(ends, 3, false);
    });
}

/// The same with channels beside them: each party may send to the next and receive from the one before.
fn ring(count: usize, rounds: u32, gives_up: bool, restless: bool) {
    let mut parties: Vec<Party> =
        enrolments(count).into_iter().map(|a| Party { barriers: vec![a], restless, ..Party::default() }).collect();
    for n in 0..count {
        let (tx, rx) = channel();
        parties[n].sends.push(tx);
        parties[(n + 1) % count].receives.push(rx);
    }
    all(parties, rounds, gives_up);
}

#[test]
fn a_barrier_beside_a_ring_of_channels() {
    check(500, || ring(4, 3, false, false));
}

#[test]
fn restless_choices_at_a_barrier() {
    check(400, || ring(3, 3, false, true));
}

/// Parties that drop a choice at any time are not at the barrier, and arrive again.
#[test]
fn parties_that_give_up_arrive_again() {
    check(500, || ring(3, 4, true, false));
}

/// Lone operations whose deadline passes: a party that reports the phase complete took part.
#[test]
fn deadlines() {
    check(500, || {
        let run = |mut phase: Barrier| {
            thread::spawn(move || {
                for _ in 0..4 {
                    let before = phase.phases();
                    let synced = match below(3) {
                        0 => block_on(phase.sync()),
                        _ => block_on(phase.sync().until(ready(()))),
                    };
                    assert_eq!(phase.phases() - before, u64::from(synced.is_ok()), "{synced:?}");
                    assert!(matches!(synced, Ok(()) | Err(SyncError::TimedOut)));
                }
            })
        };
        join_all(enrolments(3).into_iter().map(run).collect());
    });
}

/// Parties enrol others and leave, all the time.
#[test]
fn newcomers_and_leavers() {
    fn party(mut phase: Barrier, generations: u32) {
        let before = phase.phases();
        assert_eq!(block_on(phase.sync()), Ok(()));
        assert_eq!(phase.phases(), before + 1);
        if generations == 0 {
            return;
        }
        let newcomers: Vec<_> = (0..1 + below(2)).map(|_| phase.enrol()).collect();
        let threads = newcomers.into_iter().map(|phase| thread::spawn(move || party(phase, generations - 1)));
        let threads: Vec<_> = threads.collect();
        if below(2) == 0 {
            assert_eq!(block_on(phase.sync()), Ok(()));
        }
        drop(phase);
        join_all(threads);
    }
    check(500, || {
        let parties = enrolments(2).into_iter().map(|phase| thread::spawn(move || party(phase, 2)));
        join_all(parties.collect());
    });
}

/// The channels beside the barrier lead to other nodes, so choices are reserved while the other parties have
/// arrived. Time passes.
#[test]
fn receivers_elsewhere() {
    check(200, || {
        let mut parties: Vec<Party> =
            enrolments(3).into_iter().map(|a| Party { barriers: vec![a], ..Party::default() }).collect();
        let mut agents = Vec::new();
        for n in 0..3 {
            let ((tx, far), (near, rx)) = (channel(), channel());
            agents.push(join(Outlet::new(far), Inlet::new(near)));
            parties[n].sends.push(tx);
            parties[(n + 1) % 3].receives.push(rx);
        }
        let agents = thread::spawn(move || block_on(async { agents.into_iter().collect::<Par<_>>().await }));
        let time = thread::spawn(|| {
            for _ in 0..3 {
                thread::yield_now();
                waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS + 1));
            }
        });
        all(parties, 3, false);
        agents.join().unwrap();
        time.join().unwrap();
    });
}

/// Choices over three barriers that are closed now and then, and are given up: a barrier that finds a choice
/// closed retries.
#[test]
fn restless_choices_at_three_barriers() {
    check(300, || {
        let mut parties: Vec<Party> = (0..4).map(|_| Party { restless: true, ..Party::default() }).collect();
        for n in 0..3 {
            let mut enrolled = enrolments(4);
            enrolled.rotate_left(n);
            parties.iter_mut().zip(enrolled).for_each(|(party, barrier)| party.barriers.push(barrier));
        }
        let gives_up = below(2) == 0;
        let did = all(parties, 3, gives_up);
        if !gives_up {
            // No party has left before all had finished, so all have the same outcomes.
            assert!(did.iter().all(|own| *own == did[0]), "{did:?}");
        }
    });
}

/// Barriers that other nodes keep: enrolments carried by hand, connections on their own threads.
#[cfg(feature = "serde")]
mod far {
    use std::future::Future;
    use std::pin::Pin;

    use dunlin_core::carrier::{Agent, EndKind, Inbox, Outbox};
    use dunlin_core::rendezvous;

    use super::*;

    type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Carries the enrolment to another node. The tasks that carry for it go to `work`.
    fn carry(enrolment: Barrier, work: &mut Vec<Work>) -> Barrier {
        let mut outbox = Outbox::new();
        let json = outbox.encode(|| serde_json::to_string(&enrolment)).unwrap();
        let end = outbox.seal().unwrap().commit(enrolment).unwrap().remove(0);
        let Agent::Several(near) = end.into_agent() else { panic!() };
        let mut inbox = Inbox::default();
        inbox.expect(0, EndKind::Barrier, rendezvous());
        let there: Barrier = inbox.decode(|| serde_json::from_str(&json)).unwrap();
        let Some(Agent::Several(far)) = inbox.into_adopted().remove(0).agent else { panic!() };
        for pair in near.agents.into_iter().zip(far.agents) {
            let (outlet, inlet) = match pair {
                (Agent::Outlet(outlet), Agent::Inlet(inlet)) | (Agent::Inlet(inlet), Agent::Outlet(outlet)) => {
                    (outlet, inlet)
                }
                _ => panic!("their agents do not fit"),
            };
            let credits = inlet.credits();
            work.push(Box::pin(outlet.join(inlet, credits).ok().unwrap()));
        }
        work.push(near.chore);
        work.push(far.chore);
        there
    }

    /// Each party is at its own node, and each barrier is kept at another one of them.
    fn choices_between(nodes: usize, barriers: usize, rounds: u32, gives_up: bool, restless: bool) {
        let mut work = Vec::new();
        let mut parties: Vec<Party> =
            (0..nodes).map(|_| Party { restless, is_far: true, ..Party::default() }).collect();
        for n in 0..barriers {
            let keeper = barrier();
            for (at, party) in parties.iter_mut().enumerate() {
                let here = keeper.enrol();
                party.barriers.push(if at == n % nodes { here } else { carry(here, &mut work) });
            }
        }
        let mut carriers = Vec::new();
        while !work.is_empty() {
            let some = work.split_off(work.len().saturating_sub(4));
            carriers.push(thread::spawn(move || block_on(some.into_iter().collect::<Par<_>>())));
        }
        // Some attempts take too long: they are released and begun again.
        let time = thread::spawn(|| {
            for _ in 0..4 {
                thread::yield_now();
                waits::advance(waits::tick().wrapping_add(5 * PATIENCE_TICKS + 1));
            }
        });
        let did = all(parties, rounds, gives_up);
        if !gives_up {
            assert!(did.iter().all(|own| *own == did[0]), "{did:?}");
        }
        join_all(carriers);
        time.join().unwrap();
    }

    #[test]
    fn choices_between_two_barriers_of_other_nodes() {
        check(200, || choices_between(3, 2, 2, false, false));
    }

    #[test]
    fn choices_between_three_barriers_of_other_nodes() {
        check(100, || choices_between(3, 3, 2, false, true));
    }

    #[test]
    fn choices_between_barriers_of_other_nodes_give_up() {
        check(100, || choices_between(3, 2, 3, true, true));
    }
}
