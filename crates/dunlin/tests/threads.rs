//! The laws under real threads: tokio with two workers, processes cut off at any moment, and counted values.
//! No test sleeps.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin::prelude::*;
use dunlin::{RecvError, rendezvous};

/// Runs on two workers.
fn on_two<F: Future<Output: Send> + Send + 'static>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // Not every test starts the clock otherwise, and each has to pass alone.
    dunlin::start_clock();
    runtime.block_on(async { tokio::spawn(future).await.unwrap() })
}

/// Yields `n` times.
async fn give_way(n: u64) {
    for _ in 0..n {
        tokio::task::yield_now().await;
    }
}

/// Numbers from a seed: enough to vary a schedule.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const VALUES: u64 = if cfg!(debug_assertions) { 3_000 } else { 30_000 };

fn policies() -> [dunlin::Policy; 4] {
    [rendezvous(), fifo(1), fifo(7), unbounded()]
}

#[test]
fn cut_off_sends_and_receives_lose_nothing() {
    for (seed, policy) in policies().into_iter().enumerate() {
        let (mut tx, mut rx) = channel_with::<u64>(policy);
        on_two(async move {
            let sender = spawn(async move {
                let mut random = Random(seed as u64);
                for value in 0..VALUES {
                    let mut slot = Some(value);
                    while slot.is_some() {
                        let patience = random.below(4);
                        tokio::select! {
                            biased;
                            sent = tx.send_from(&mut slot) => sent.unwrap(),
                            () = give_way(patience) => {}
                        }
                    }
                }
            });
            let receiver = spawn(async move {
                let (mut random, mut next) = (Random(seed as u64 + 99), 0);
                loop {
                    let patience = random.below(4);
                    let got = tokio::select! {
                        biased;
                        got = rx.next() => got.unwrap(),
                        () = give_way(patience) => continue,
                    };
                    match got {
                        Some(value) => assert_eq!(value, next, "lost, doubled or out of order"),
                        None => return next,
                    }
                    next += 1;
                }
            });
            sender.await.unwrap();
            assert_eq!(receiver.await.unwrap(), VALUES);
        });
    }
}

#[test]
fn deadlines_are_exact() {
    let (mut tx, mut rx) = channel::<u64>();
    on_two(async move {
        let sender = spawn(async move {
            let (mut random, mut sent) = (Random(3), Vec::new());
            for value in 0..VALUES {
                match tx.send(value).until(give_way(random.below(3))).await {
                    Ok(()) => sent.push(value),
                    Err(SendError::NotTaken { value: back, why: Why::TimedOut }) => assert_eq!(back, value),
                    Err(other) => panic!("{other:?}"),
                }
            }
            sent
        });
        let receiver = spawn(async move {
            let (mut random, mut got) = (Random(4), Vec::new());
            while let Ok(value) = rx.recv().await {
                got.push(value);
                give_way(random.below(3)).await;
            }
            got
        });
        assert_eq!(sender.await.unwrap(), receiver.await.unwrap());
    });
}

/// Counts its own instances.
struct Counted(u64, Arc<AtomicUsize>);

impl Counted {
    fn new(value: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(value, alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn aborted_processes_lose_nothing_of_others() {
    let alive = Arc::new(AtomicUsize::new(0));
    let counter = alive.clone();
    on_two(async move {
        for round in 0..60 {
            let (tx, rx) = channel_with::<Counted>(if round % 2 == 0 { rendezvous() } else { fifo(2) });
            let (tx, rx) = (tx.share(), rx.share());
            let sent = Arc::new(AtomicUsize::new(0));
            let got = Arc::new(std::sync::Mutex::new(Vec::new()));
            let processes: Vec<_> = (0..6)
                .map(|who| {
                    let (got, alive, sent) = (got.clone(), counter.clone(), sent.clone());
                    if who < 3 {
                        let mut tx = tx.clone();
                        spawn(async move {
                            for n in 0..40 {
                                if tx.send(Counted::new(who * 1000 + n, &alive)).await.is_ok() {
                                    sent.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        })
                    } else {
                        let mut rx = rx.clone();
                        spawn(async move {
                            for _ in 0..40 {
                                if let Ok(value) = rx.recv().await {
                                    got.lock().unwrap().push(value.0);
                                }
                            }
                        })
                    }
                })
                .collect();
            give_way(round % 7).await;
            // One of each side is aborted at any point; its partners continue without it.
            processes[0].cancel();
            processes[3].cancel();
            drop((tx, rx));
            let mut ends = Vec::new();
            for process in processes {
                ends.push(process.await.is_ok());
            }
            assert!(ends[1] && ends[2] && ends[4] && ends[5], "a process was aborted by mistake");
            let mut got = std::mem::take(&mut *got.lock().unwrap());
            got.sort_unstable();
            assert!(got.windows(2).all(|pair| pair[0] != pair[1]), "received twice");
            if round % 2 == 0 {
                // Of an aborted pair, the value may have been taken by a receive whose process then ended.
                assert!(got.len() + 1 >= sent.load(Ordering::Relaxed), "Ok, and not received");
            }
        }
    });
    assert_eq!(alive.load(Ordering::Relaxed), 0, "a value was leaked");
}

#[test]
fn branches_and_processes_exchange_values() {
    on_two(async {
        let ((mut a, mut b), (mut c, mut d)) = (channel::<u64>(), channel::<u64>());
        let far = spawn(async move {
            while let Some(value) = b.next().await.unwrap() {
                c.send(value + 1).await.unwrap();
            }
        });
        let (sum, ()) = par!(
            async {
                let mut sum = 0;
                while let Some(value) = d.next().await.unwrap() {
                    sum += value;
                }
                sum
            },
            async move {
                for value in 0..VALUES {
                    a.send(value).await.unwrap();
                }
            },
        );
        far.await.unwrap();
        assert_eq!(sum, VALUES * (VALUES + 1) / 2);
    });
}

#[test]
fn shared_ends_keep_claims_whole() {
    on_two(async {
        let (tx, mut rx) = channel::<(u64, u64)>();
        let tx = tx.share();
        let voices: Vec<_> = (0..4)
            .map(|who| {
                let mut tx = tx.clone();
                spawn(async move {
                    for round in 0..100 {
                        tx.send((who, 0)).await.unwrap();
                        let mut claim = tx.claim().await.unwrap();
                        for n in 1..4 {
                            claim.send((who, round * 3 + n)).await.unwrap();
                        }
                    }
                })
            })
            .collect();
        drop(tx);
        let (mut open, mut count) = (None, 0);
        while let Some((who, n)) = rx.next().await.unwrap() {
            if let Some((last, m)) = open {
                assert_eq!((who, n), (last, m + 1), "another value came between");
            }
            open = if n % 3 == 0 { None } else { Some((who, n)) };
            count += 1;
        }
        assert_eq!(count, 4 * 100 * 4);
        for voice in voices {
            voice.await.unwrap();
        }
    });
}

#[test]
fn an_unpolled_claimer_blocks_others_for_its_patience_only() {
    on_two(async {
        let (tx, _rx) = channel::<u8>();
        let mut a = tx.share();
        let (mut b, mut c) = (a.clone(), a.clone());
        let held = a.claim().await.unwrap();
        let mut sleeper = Box::pin(b.claim());
        assert!(futures_poll(sleeper.as_mut()).await.is_none());
        drop(held);
        // The clock of the wait records ticks on its own thread.
        drop(c.claim().await.unwrap());
    });
}

/// Polls once.
async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut future).poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// Sender and receiver meet while the receiver ends the channel by `end`: the slot shows whether the receiver
/// got the value.
fn race_with(end: fn(Receiver<u64>), policy: fn() -> dunlin::Policy) {
    on_two(async move {
        for round in 0..VALUES / 3 {
            let (mut tx, mut rx) = channel_with::<u64>(policy());
            let receiver = spawn(async move {
                give_way(round % 3).await;
                let got = if round % 2 == 0 { rx.recv().await.ok() } else { rx.try_recv().ok() };
                end(rx);
                got
            });
            let (mut taken, mut value) = (Vec::new(), 0);
            loop {
                let mut slot = Some(value);
                let result = tx.send_from(&mut slot).await;
                assert_eq!(result.is_ok(), slot.is_none(), "the slot must tell the truth");
                if result.is_err() {
                    break;
                }
                taken.push(value);
                value += 1;
            }
            let got = receiver.await.unwrap();
            assert_eq!(taken.first().copied().filter(|_| got.is_some()), got);
        }
    });
}

#[test]
fn poison_races_with_sends() {
    race_with(|rx| rx.poison("now"), rendezvous);
    race_with(|rx| rx.poison("now"), || fifo(2));
}

#[test]
fn retire_races_with_sends() {
    race_with(|rx| rx.retire(), rendezvous);
    race_with(|rx| rx.retire(), || fifo(2));
}

#[test]
fn drop_races_with_sends() {
    race_with(drop, rendezvous);
    race_with(drop, || fifo(2));
}

#[test]
fn a_rendezvous_is_exact_when_it_is_poisoned() {
    on_two(async {
        for round in 0..VALUES / 3 {
            let (mut tx, mut rx) = channel::<u64>();
            let receiver = spawn(async move {
                let mut got = 0;
                for _ in 0..=round % 4 {
                    got += u64::from(rx.recv().await.is_ok());
                }
                rx.poison("enough");
                got
            });
            let mut sent = 0;
            while tx.send(sent).await.is_ok() {
                sent += 1;
            }
            assert_eq!(receiver.await.unwrap(), sent, "Ok if, and only if, received");
        }
    });
}

/// A process that chooses between sends to and receives from all its neighbours.
async fn party(
    who: u64,
    rounds: usize,
    cut: bool,
    mut out: Vec<Sender<u64>>,
    mut into: Vec<Receiver<u64>>,
) -> (Vec<u64>, Vec<u64>) {
    let (mut random, mut sent, mut got, mut next) = (Random(who), Vec::new(), Vec::new(), who << 32);
    while sent.len() + got.len() < rounds && !(out.is_empty() && into.is_empty()) {
        let mut slots: Vec<_> = (0..out.len() as u64).map(|n| Some(next + n)).collect();
        let mut choice = Choice::fair();
        for (tx, slot) in out.iter_mut().zip(&mut slots) {
            choice = choice.on(tx.send_from(slot), |sent| sent.map(|()| None).map_err(drop));
        }
        for rx in &mut into {
            choice = choice.on(rx.recv(), |value| value.map(Some).map_err(drop));
        }
        let patience = if cut { random.below(6) } else { u64::MAX };
        let chosen = tokio::select! {
            biased;
            chosen = choice.into_future() => Some(chosen),
            () = give_way(patience), if cut => None,
        };
        let empty = slots.iter().position(Option::is_none);
        assert!(slots.iter().filter(|slot| slot.is_none()).count() <= 1, "two sends of one choice were taken");
        match chosen {
            Some((n, Ok(None))) => assert_eq!(empty, Some(n)),
            Some((_, Ok(Some(value)))) => {
                assert_eq!(empty, None, "a send and a receive of one choice");
                got.push(value);
            }
            Some((n, Err(()))) => {
                assert_eq!(empty, None);
                if n < out.len() {
                    drop(out.remove(n));
                } else {
                    drop(into.remove(n - slots.len()));
                }
            }
            None => {}
        }
        if let Some(n) = empty {
            sent.push(next + n as u64);
        }
        next += slots.len() as u64;
    }
    out.clear();
    for mut rx in into {
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
    }
    (sent, got)
}

/// Mixed choices at both ends of every edge: all make progress, and the received values are those that were
/// sent.
fn graph(parties: usize, edges: &[(usize, usize)], rounds: usize, cut: bool) {
    let mut ends: Vec<(Vec<_>, Vec<_>)> = (0..parties).map(|_| Default::default()).collect();
    for (from, to) in edges {
        let (tx, rx) = channel();
        ends[*from].0.push(tx);
        ends[*to].1.push(rx);
    }
    let (mut sent, mut got) = on_two(async move {
        let running: Vec<_> = ends
            .into_iter()
            .enumerate()
            .map(|(who, (out, into))| spawn(party(who as u64, rounds, cut, out, into)))
            .collect();
        let (mut sent, mut got) = (BTreeSet::new(), Vec::new());
        for process in running {
            let (of_one, into_one) = process.await.unwrap();
            sent.extend(of_one);
            got.extend(into_one);
        }
        (sent.into_iter().collect::<Vec<_>>(), got)
    });
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(sent.len(), got.len());
    assert_eq!(sent, got);
    // Every process does `rounds` communications, or has lost all its partners because they did.
    assert!(sent.len() >= rounds, "{} of {rounds}", sent.len());
}

const ROUNDS: usize = if cfg!(debug_assertions) { 1_000 } else { 10_000 };

#[test]
fn symmetric_pair_of_choices_makes_progress() {
    graph(2, &[(0, 1), (1, 0)], ROUNDS, false);
}

#[test]
fn ring_of_choices_makes_progress() {
    graph(4, &[(0, 1), (1, 2), (2, 3), (3, 0)], ROUNDS, false);
    graph(3, &[(0, 1), (1, 2), (2, 0)], ROUNDS, true);
}

#[test]
fn complete_graph_of_choices_makes_progress() {
    let edges: Vec<_> = (0..4).flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| (a, b))).collect();
    graph(4, &edges, ROUNDS, false);
    graph(4, &edges, ROUNDS, true);
}

const PHASES: u64 = 1_000;

/// A process that chooses between three barriers, its neighbours and an immediate branch, and drops some
/// choices, until all have passed this many phases. It reports each.
async fn restless(
    who: u64,
    mut barriers: [Barrier; 3],
    mut to: Sender<u64>,
    mut from: Receiver<u64>,
    phases: tokio::sync::watch::Sender<u64>,
) {
    let (mut random, mut round, mut done, mut slot) = (Random(who), who, 0, Some(who));
    while done < PHASES {
        round += 1;
        let [a, b, c] = &mut barriers;
        let [first, second, third] = match round % 3 {
            0 => [a, b, c],
            1 => [b, c, a],
            _ => [c, a, b],
        };
        let (is_restless, sends) = (random.below(4) == 0, slot.is_some());
        let choice = async {
            alt! {
                synced = first.sync() => synced.unwrap(),
                sent = to.send_from(&mut slot), if sends => sent.unwrap(),
                synced = second.sync() => synced.unwrap(),
                value = from.recv() => drop(value.unwrap()),
                synced = third.sync() => synced.unwrap(),
                () = future(tokio::task::yield_now()), if is_restless => {}
            }
        };
        let (gives_up, patience) = (random.below(4) == 0, random.below(4));
        tokio::select! { biased; () = choice => {}, () = give_way(patience), if gives_up => {} }
        // A dropped choice may have taken part in a phase: the barriers know.
        let now = barriers.iter().map(Barrier::phases).sum();
        if now > done {
            assert_eq!(now, done + 1, "two phases in one choice");
            done = now;
            phases.send_replace(done);
            // Not each time: a value on its way would wake a choice that the barrier has forgotten to wake.
            if random.below(8) == 0 {
                slot = Some(done);
            }
        }
    }
}

/// These once took over ten seconds under load. No livelock has been found since.
#[test]
fn choices_at_three_barriers_make_progress() {
    for parties in [4, 8] {
        let barriers: [Barrier; 3] = std::array::from_fn(|_| barrier());
        let enrolled: Vec<_> = (0..parties).map(|_| barriers.each_ref().map(Barrier::enrol)).collect();
        drop(barriers);
        let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..parties).map(|_| channel()).unzip();
        receivers.rotate_left(1);
        let (phases, mut has_gone_on) = tokio::sync::watch::channel(0);
        on_two(async move {
            let ends = senders.into_iter().zip(receivers);
            let processes: Vec<_> = (0..)
                .zip(enrolled.into_iter().zip(ends))
                .map(|(who, (barriers, (to, from)))| spawn(restless(who, barriers, to, from, phases.clone())))
                .collect();
            drop(phases);
            loop {
                match tokio::time::timeout(Duration::from_secs(10), has_gone_on.changed()).await {
                    Ok(Ok(())) => {}
                    // No party is left to notify.
                    Ok(Err(_)) => break,
                    Err(_) => {
                        let waits = dunlin::waits::snapshot();
                        let phases = *has_gone_on.borrow();
                        panic!("{parties} processes have not gone on for 10 s after {phases} phases: {waits:#?}")
                    }
                }
            }
            for process in processes {
                process.await.unwrap();
            }
            assert_eq!(*has_gone_on.borrow(), PHASES);
        });
    }
}

#[test]
fn send_to_any_reaches_exactly_one() {
    on_two(async {
        let ends: Vec<_> = (0..3).map(|_| channel::<u64>()).collect();
        let (mut senders, receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
        let workers: Vec<_> = receivers
            .into_iter()
            .map(|mut rx| {
                spawn(async move {
                    let (mut random, mut got) = (Random(1), Vec::new());
                    loop {
                        tokio::select! {
                            value = rx.next() => match value.unwrap() {
                                Some(value) => got.push(value),
                                None => return got,
                            },
                            () = give_way(random.below(4)) => {}
                        }
                    }
                })
            })
            .collect();
        let mut random = Random(2);
        for value in 0..VALUES {
            let mut slot = Some(value);
            while slot.is_some() {
                tokio::select! {
                    sent = send_to_any(&mut slot, &mut senders) => drop(sent.unwrap()),
                    () = give_way(random.below(4)) => {}
                }
            }
        }
        drop(senders);
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.await.unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, (0..VALUES).collect::<Vec<_>>());
    });
}

#[test]
fn skip_races_with_a_taker() {
    on_two(async {
        let (mut tx, mut rx) = channel::<u64>();
        let receiver = spawn(async move {
            let mut got = 0;
            loop {
                // It polls without ever parking, so it arrives at any moment of the choice.
                match rx.try_recv() {
                    Ok(value) => {
                        assert_eq!(value, got, "lost or doubled");
                        got += 1;
                    }
                    Err(RecvError::WouldBlock) => give_way(1).await,
                    Err(_) => return got,
                }
            }
        });
        let mut value = 0;
        for round in 0..VALUES * 30 {
            let mut slot = Some(value);
            let sent = alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false };
            assert_eq!(sent, slot.is_none(), "skip, though a receive has the value");
            value += u64::from(sent);
            give_way(u64::from(round % 64 == 0)).await;
        }
        drop(tx);
        assert_eq!(receiver.await.unwrap(), value);
        assert!(value > 0, "no receive ever came in time");
    });
}

#[test]
fn calls_from_many_processes() {
    on_two(async {
        let (caller, mut callee) = call::<u64, u64>();
        let caller = caller.share();
        let callers: Vec<_> = (0..4)
            .map(|who| {
                let mut caller = caller.clone();
                spawn(async move {
                    for n in 0..VALUES / 10 {
                        assert_eq!(caller.call(who * 100_000 + n).await.unwrap(), who * 100_000 + n + 1);
                    }
                })
            })
            .collect();
        drop(caller);
        let mut served = 0;
        while let Ok(request) = callee.accept().await {
            let answer = *request + 1;
            request.reply(answer).unwrap();
            served += 1;
        }
        assert_eq!(served, VALUES / 10 * 4);
        for caller in callers {
            caller.await.unwrap();
        }
    });
}

#[test]
fn extended_receives_hold_their_senders() {
    on_two(async {
        let (mut tx, mut rx) = channel::<u64>();
        let held = Arc::new(AtomicUsize::new(0));
        let seen = held.clone();
        let sender = spawn(async move {
            for value in 0..VALUES / 3 {
                tx.send(value).await.unwrap();
                assert_eq!(seen.load(Ordering::Acquire) as u64, value + 1, "the sender went on too early");
            }
        });
        while let Ok(value) = rx.recv_extended().await {
            give_way(*value % 3).await;
            held.fetch_add(1, Ordering::Release);
            drop(value);
        }
        sender.await.unwrap();
    });
}

#[test]
fn threads_use_the_blocking_forms() {
    let (mut tx, mut rx) = channel::<u64>();
    let (mut back, mut sums) = channel_with(fifo(2));
    std::thread::scope(|threads| {
        threads.spawn(move || {
            for value in 0..VALUES {
                tx.send(value).wait().unwrap();
            }
        });
        threads.spawn(move || {
            let mut sum = 0;
            while let Some(value) = rx.next().wait().unwrap() {
                sum += value;
            }
            back.send(sum).wait().unwrap();
        });
        assert_eq!(sums.recv().wait(), Ok(VALUES * (VALUES - 1) / 2));
        assert_eq!(sums.recv().wait(), Err(RecvError::Closed));
    });
}

#[test]
fn thread_and_process_exchange_values() {
    let (mut tx, mut rx) = channel::<u64>();
    let thread = std::thread::spawn(move || (0..VALUES).try_for_each(|value| tx.send(value).wait()));
    let sum = on_two(async move {
        let mut sum = 0;
        while let Some(value) = rx.next().await.unwrap() {
            sum += value;
        }
        sum
    });
    assert_eq!(sum, VALUES * (VALUES - 1) / 2);
    assert_eq!(thread.join().unwrap(), Ok(()));
}
