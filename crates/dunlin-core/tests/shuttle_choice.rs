//! Shuttle: more parties than loom can explore, in random orders: rings, a diamond, many senders and
//! receivers, claims, poison.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p dunlin-core --test shuttle_choice`
#![cfg(shuttle)]

mod shuttle_support;

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::Poll;

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::{
    Choice, PATIENCE_TICKS, Par, Receiver, RecvError, Sender, Shared, alt, broadcast, broadcast_with, channel,
    channel_with, fifo, future, par, rendezvous, send_to_any, waits,
};
use shuttle::thread;
use shuttle_support::{block_on, check, join_all, try_once};

/// The outcome of a party's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Sent(u32),
    Received(u32),
    Ended,
}

/// One choice over sends of the numbers in `sends` and receives on all of `receives`, fair.
fn choose(sends: &mut [(Sender<u32>, u32)], receives: &mut [Receiver<u32>]) -> Did {
    let mut slots: Vec<_> = sends.iter().map(|(_, value)| Some(*value)).collect();
    let mut choice = Choice::fair();
    for ((tx, value), slot) in sends.iter_mut().zip(&mut slots) {
        let value = *value;
        choice = choice.on(tx.send_from(slot), move |sent| sent.map_or(Did::Ended, |()| Did::Sent(value)));
    }
    for rx in receives {
        choice = choice.on(rx.recv(), |got| got.map_or(Did::Ended, Did::Received));
    }
    let (_, did) = block_on(choice.into_future());
    let gone: Vec<_> = slots.iter().zip(sends).filter(|(slot, _)| slot.is_none()).map(|(_, (_, v))| *v).collect();
    match did {
        Did::Sent(value) => assert_eq!(gone, [value]),
        _ => assert_eq!(gone, [0; 0], "{did:?}, but a slot is empty"),
    }
    did
}

/// Checks that every value sent was received, once; returns the number of values.
fn agree(did: &[Did]) -> usize {
    let mut sent: Vec<_> = did.iter().filter_map(|d| if let Did::Sent(v) = d { Some(*v) } else { None }).collect();
    let mut got: Vec<_> = did.iter().filter_map(|d| if let Did::Received(v) = d { Some(*v) } else { None }).collect();
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(sent, got, "{did:?}");
    sent.len()
}

type Party = (Vec<(Sender<u32>, u32)>, Vec<Receiver<u32>>);

/// Parties with a channel for each pair in `edges`, from the first to the second. Each makes one choice over
/// all its ends, and leaves. With `apart`, agents join the halves of every channel, on one more thread.
fn parties(count: usize, edges: &[(usize, usize)], apart: bool) -> Vec<Did> {
    let mut all: Vec<Party> = (0..count).map(|_| Default::default()).collect();
    let mut agents = Vec::new();
    for (n, (from, to)) in edges.iter().enumerate() {
        let (tx, rx) = if apart {
            let ((tx, far), (near, rx)) = (channel(), channel());
            agents.push(join(Outlet::new(far), Inlet::new(near)));
            (tx, rx)
        } else {
            channel()
        };
        all[*from].0.push((tx, n as u32));
        all[*to].1.push(rx);
    }
    let run = |(mut sends, mut receives): Party| thread::spawn(move || choose(&mut sends, &mut receives));
    let agents = thread::spawn(move || block_on(async { agents.into_iter().collect::<Par<_>>().await }));
    let did = join_all(all.into_iter().map(run).collect());
    agents.join().unwrap();
    did
}

/// At least one pair in the ring communicates.
fn ring(count: usize, apart: bool) {
    let edges: Vec<_> = (0..count).map(|n| (n, (n + 1) % count)).collect();
    let met = agree(&parties(count, &edges, apart));
    assert!(met >= 1, "no pair communicated");
}

#[test]
fn ring_of_three() {
    check(20_000, || ring(3, false));
}

#[test]
fn ring_of_five() {
    check(15_000, || ring(5, false));
}

/// The same when every offer, request and answer is a message.
#[test]
fn ring_of_three_apart() {
    check(8_000, || ring(3, true));
}

#[test]
fn ring_of_five_apart() {
    check(4_000, || ring(5, true));
}

#[test]
fn symmetric_triangle_apart() {
    check(4_000, || {
        let edges = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)];
        assert_eq!(agree(&parties(3, &edges, true)), 1);
    });
}

/// Two above and two below, each above joined with each below in both directions.
#[test]
fn diamond_of_four() {
    check(15_000, || {
        let edges = [(0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (2, 1), (3, 0), (3, 1)];
        assert!(agree(&parties(4, &edges, false)) >= 1);
    });
}

/// Three pairs of which any two choices conflict.
#[test]
fn symmetric_triangle() {
    check(15_000, || {
        let edges = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 0), (0, 2)];
        assert_eq!(agree(&parties(3, &edges, false)), 1);
    });
}

/// Four senders offer on four channels each, and four receivers receive from four each: all communicate.
#[test]
fn four_senders_four_receivers() {
    check(5_000, || {
        let mut senders: Vec<Vec<(Sender<u32>, u32)>> = (0..4).map(|_| Vec::new()).collect();
        let mut receivers: Vec<Vec<Receiver<u32>>> = (0..4).map(|_| Vec::new()).collect();
        for (s, sends) in senders.iter_mut().enumerate() {
            for receives in &mut receivers {
                let (tx, rx) = channel();
                sends.push((tx, s as u32));
                receives.push(rx);
            }
        }
        let ends = Arc::new(std::sync::Mutex::new(Vec::new()));
        let mut threads = Vec::new();
        for mut sends in senders {
            let ends = ends.clone();
            threads.push(thread::spawn(move || {
                let did = choose(&mut sends, &mut []);
                // Kept to the end: a party that left would end the others' choices.
                ends.lock().unwrap().push((sends, vec![]));
                did
            }));
        }
        for mut receives in receivers {
            let ends = ends.clone();
            threads.push(thread::spawn(move || {
                let did = choose(&mut [], &mut receives);
                ends.lock().unwrap().push((vec![], receives));
                did
            }));
        }
        assert_eq!(agree(&join_all(threads)), 4);
    });
}

/// The same in a loop, so that each choice finds what the last one left: two sending and two receiving
/// parties, three rounds, dead offers everywhere.
#[test]
fn choices_in_a_loop() {
    check(7_500, || {
        const ROUNDS: u32 = 3;
        let ((ta, ra), (tb, rb), (tc, rc), (td, rd)) = (channel(), channel(), channel(), channel());
        let send = |mut ends: Vec<(Sender<u32>, u32)>, first: u32| {
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    for end in &mut ends {
                        end.1 = first + round;
                    }
                    assert_eq!(choose(&mut ends, &mut []), Did::Sent(first + round));
                }
            })
        };
        let receive = |mut ends: Vec<Receiver<u32>>| {
            thread::spawn(move || {
                let mut got = Vec::new();
                while let Did::Received(value) = choose(&mut [], &mut ends) {
                    got.push(value);
                }
                // One of the channels has ended; the other may not have.
                for rx in &mut ends {
                    while let Ok(value) = block_on(rx.recv()) {
                        got.push(value);
                    }
                }
                got
            })
        };
        let receivers = vec![receive(vec![ra, rc]), receive(vec![rb, rd])];
        join_all(vec![send(vec![(ta, 0), (tb, 0)], 10), send(vec![(tc, 0), (td, 0)], 20)]);
        let mut got: Vec<_> = join_all(receivers).into_iter().flatten().collect();
        got.sort_unstable();
        assert_eq!(got, [10, 11, 12, 20, 21, 22]);
    });
}

/// One value for any of three workers, while another party offers to the same three.
#[test]
fn two_send_to_any() {
    check(10_000, || {
        let pairs: Vec<_> = (0..3).map(|_| channel::<u32>()).collect();
        let (txs, rxs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let shared: Vec<Shared<Sender<u32>>> = txs.into_iter().map(Sender::share).collect();
        let workers: Vec<_> = rxs
            .into_iter()
            .map(|mut rx| {
                thread::spawn(move || {
                    let mut got = Vec::new();
                    while let Ok(value) = block_on(rx.recv()) {
                        got.push(value);
                    }
                    got
                })
            })
            .collect();
        let offer = |mut ends: Vec<Shared<Sender<u32>>>, value: u32| {
            thread::spawn(move || {
                let mut slots = vec![Some(value); ends.len()];
                let sends = ends.iter_mut().zip(&mut slots).map(|(tx, slot)| tx.send_from(slot));
                let (index, sent) = block_on(Choice::random().all(sends).into_future());
                sent.unwrap();
                let left: Vec<_> = (0..slots.len()).filter(|n| slots[*n].is_none()).collect();
                assert_eq!(left, [index]);
            })
        };
        let offers = vec![offer(shared.clone(), 1), offer(shared, 2)];
        join_all(offers);
        let mut got: Vec<_> = join_all(workers).into_iter().flatten().collect();
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

/// `send_to_any` beside a receive, with workers on other threads: only the worker that it names has the
/// value.
#[test]
fn send_to_any_in_choices() {
    check(2_000, || {
        let pairs = vec![channel::<u32>(), channel(), channel_with(fifo(1))];
        let (mut txs, rxs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        let work = |mut rx: Receiver<u32>| {
            thread::spawn(move || {
                let mut got = Vec::new();
                while let Ok(value) = block_on(rx.recv()) {
                    got.push(value);
                }
                got
            })
        };
        let workers = rxs.into_iter().map(work).collect();
        let (mut tx, mut rx) = channel::<u32>();
        let other = thread::spawn(move || (0..2).filter(|n| block_on(tx.send(*n)).is_ok()).count());
        let (mut sent, mut heard, mut ended) = (vec![Vec::new(); 3], 0, false);
        for value in 10..14 {
            let mut slot = Some(value);
            let to_any = send_to_any(&mut slot, &mut txs);
            let mut choice = Choice::random().on(to_any, |sent| Ok(sent.unwrap()));
            if !ended {
                choice = choice.on(rx.recv(), Err);
            }
            match block_on(choice.into_future()).1 {
                Ok(worker) => {
                    assert_eq!(slot, None);
                    sent[worker].push(value);
                }
                Err(received) => {
                    assert_eq!(slot, Some(value));
                    heard += usize::from(received.is_ok());
                    ended |= received.is_err();
                }
            }
        }
        drop((txs, rx));
        assert_eq!(join_all(workers), sent);
        assert_eq!(other.join().unwrap(), heard);
    });
}

/// Choices with a foreign branch that is polled often: a receiver that is turned away is woken later.
#[test]
fn busy_choices() {
    check(10_000, || {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel(), channel());
        async fn awake(times: u32) {
            let mut left = times;
            std::future::poll_fn(|cx| {
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
        let one = thread::spawn(move || {
            let mut slot = Some(1);
            block_on(async {
                alt! { sent = tx.send_from(&mut slot) => sent.unwrap(), got = ry.recv() => drop(got), () = future(awake(3)) => {} }
            });
        });
        let mut slot = Some(2);
        block_on(async {
            alt! { sent = ty.send_from(&mut slot) => sent.unwrap(), got = rx.recv() => drop(got), () = future(awake(2)) => {} }
        });
        one.join().unwrap();
    });
}

/// Lone sends, claims and dropped claims, through three handles each: none is stuck, and no value is lost or
/// duplicated.
#[test]
fn shared_ends_and_claims() {
    check(7_500, || {
        let (tx, rx) = channel_with::<u32>(fifo(1));
        let (tx, rx) = (tx.share(), rx.share());
        let sent = Arc::new(AtomicU32::new(0));
        let mut threads = Vec::new();
        for n in 0..3_u32 {
            let (mut tx, sent) = (tx.clone(), sent.clone());
            threads.push(thread::spawn(move || match n {
                0 => {
                    block_on(tx.send(1)).unwrap();
                    sent.fetch_add(1, Relaxed);
                }
                1 => {
                    let mut claim = block_on(tx.claim()).unwrap();
                    block_on(claim.send(10)).unwrap();
                    block_on(claim.send(10)).unwrap();
                    sent.fetch_add(20, Relaxed);
                }
                _ => {
                    // Dropped in any state.
                    if let Some(claim) = try_once(tx.claim()) {
                        drop(claim);
                    }
                    let mut slot = Some(100);
                    let _ = try_once(tx.send_from(&mut slot));
                    sent.fetch_add(100 * u32::from(slot.is_none()), Relaxed);
                }
            }));
        }
        drop(tx);
        let receive = |mut rx: Shared<Receiver<u32>>, claims: bool| {
            thread::spawn(move || {
                let mut sum = 0;
                if claims {
                    let mut claim = block_on(rx.claim()).unwrap();
                    sum += block_on(claim.recv()).unwrap_or(0);
                }
                while let Ok(value) = block_on(rx.recv()) {
                    sum += value;
                }
                sum
            })
        };
        let receivers = vec![receive(rx.clone(), true), receive(rx, false)];
        // All operations with the floor and all claimers that were offered the end are polled, but perhaps
        // late.
        let time = thread::spawn(|| {
            for _ in 0..4 {
                thread::yield_now();
                waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS + 1));
            }
        });
        join_all(threads);
        time.join().unwrap();
        let received: u32 = join_all(receivers).into_iter().sum();
        assert_eq!(received, sent.load(Relaxed));
    });
}

/// Poison from a third thread at any moment: a value that was taken was sent; any other is returned.
#[test]
fn poison_races_committed_choices() {
    check(15_000, || {
        let ((mut tx, rx), (ty, mut ry)) = (channel(), channel());
        let poisoner = {
            let rx = rx.share();
            let mut poisons = rx.clone();
            let thread = thread::spawn(move || block_on(poisons.claim()).unwrap().poison("on purpose"));
            (rx, thread)
        };
        let (mut rx, poisoner) = poisoner;
        let one = thread::spawn(move || {
            let (mut ty, mut slot) = (ty, Some(1));
            let did = block_on(async {
                alt! {
                    sent = ty.send_from(&mut slot) => sent.map_or(Did::Ended, |()| Did::Sent(1)),
                    got = rx.recv() => got.map_or(Did::Ended, Did::Received),
                }
            });
            assert_eq!(slot.is_none(), did == Did::Sent(1));
            did
        });
        let mut slot = Some(2);
        let did = block_on(async {
            alt! {
                sent = tx.send_from(&mut slot) => sent.map_or(Did::Ended, |()| Did::Sent(2)),
                got = ry.recv() => got.map_or(Did::Ended, Did::Received),
            }
        });
        assert_eq!(slot.is_none(), did == Did::Sent(2));
        drop((tx, ry));
        poisoner.join().unwrap();
        agree(&[did, one.join().unwrap()]);
    });
}

/// A `par!` on one thread; its branches are in choices with those of a `par!` on another.
#[test]
fn par_against_par() {
    check(10_000, || {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel::<u32>(), channel::<u32>());
        let other = thread::spawn(move || {
            block_on(async {
                par!(
                    async {
                        let mut sum = 0;
                        while let Ok(value) = rx.recv().await {
                            sum += value;
                        }
                        sum
                    },
                    async {
                        for n in 0..3 {
                            ty.send(n).await.unwrap();
                        }
                        drop(ty);
                    },
                )
                .0
            })
        });
        let (heard, ()) = block_on(async {
            par!(
                async {
                    let mut heard = Vec::new();
                    while let Ok(value) = ry.recv().await {
                        heard.push(value);
                    }
                    heard
                },
                async {
                    for n in 0..3 {
                        tx.send(n).await.unwrap();
                    }
                    drop(tx);
                },
            )
        });
        assert_eq!((heard, other.join().unwrap()), (vec![0, 1, 2], 3));
    });
}

/// Senders and receivers are dropped at any time while values are in flight.
#[test]
fn drops_at_any_time() {
    check(10_000, || {
        let (tx, rx) = channel::<Arc<()>>();
        let (tx, rx) = (tx.share(), rx.share());
        let value = Arc::new(());
        let mut threads = Vec::new();
        for patient in [true, false] {
            let (mut tx, value) = (tx.clone(), value.clone());
            threads.push(thread::spawn(move || {
                let mut slot = Some(value);
                if patient {
                    let _ = block_on(tx.send_from(&mut slot));
                } else {
                    let _ = try_once(tx.send_from(&mut slot));
                }
                u32::from(slot.is_none())
            }));
        }
        drop(tx);
        let mut receivers = Vec::new();
        for patient in [true, false] {
            let mut rx = rx.clone();
            receivers.push(thread::spawn(move || {
                let got = if patient { Some(block_on(rx.recv())) } else { try_once(rx.recv()) };
                assert!(!matches!(got, Some(Err(ref why)) if *why != RecvError::Closed));
                u32::from(matches!(got, Some(Ok(_))))
            }));
        }
        drop(rx);
        let sent: u32 = join_all(threads).into_iter().sum();
        let received: u32 = join_all(receivers).into_iter().sum();
        assert_eq!(sent, received);
        assert_eq!(Arc::strong_count(&value), 1, "all are dropped, once");
    });
}

/// Four receivers join and leave while values are sent; each gets all values that were sent while it was
/// joined.
#[test]
fn a_broadcast_to_receivers_that_come_and_go() {
    for policy in [rendezvous(), fifo(1)] {
        check(300, move || {
            let (tx, joiner) = broadcast_with(policy.clone());
            let mut tx = tx.at_least(1);
            let receivers = (1..=4usize).map(|stays| {
                let joiner = joiner.clone();
                thread::spawn(move || {
                    let mut rx = joiner.join();
                    drop(joiner);
                    let mut got: Vec<u32> = Vec::new();
                    while got.len() < stays
                        && let Ok(value) = block_on(rx.recv())
                    {
                        got.push(value);
                    }
                    (stays, got)
                })
            });
            let receivers: Vec<_> = receivers.collect();
            drop(joiner);
            let sender =
                thread::spawn(move || (0..).take_while(|value| block_on(tx.send(*value)).is_ok()).count() as u32);
            let (received, sent) = (join_all(receivers), sender.join().unwrap());
            for (stays, got) in received {
                let from = got.first().copied().unwrap_or(0);
                assert!(got.iter().copied().eq(from..from + got.len() as u32), "none left out: {got:?}");
                assert!(
                    got.len() == stays,
                    "the sender continues while a receiver is joined: {got:?} of {stays}, sent {sent}"
                );
            }
        });
    }
}

/// One of four receivers poisons at any moment: the others and the sender get the poison, and a value counts
/// as received exactly where it was.
#[test]
fn a_broadcast_is_poisoned() {
    check(300, || {
        let (mut tx, joiner) = broadcast();
        let receivers = (0..4u32).map(|number| {
            let mut rx = joiner.join();
            thread::spawn(move || {
                let mut got = 0;
                loop {
                    match block_on(rx.recv()) {
                        Ok(value) => assert_eq!(value, got),
                        Err(error) => break assert!(error.is_poisoned(), "{error}"),
                    }
                    got += 1;
                    if number == 0 && got == 2 {
                        rx.poison("sick");
                    }
                }
                got
            })
        });
        let receivers: Vec<_> = receivers.collect();
        let sender = thread::spawn(move || {
            for value in 0.. {
                if let Err(error) = block_on(tx.send(value)) {
                    return (error.value, error.received as u32);
                }
            }
            unreachable!("a receiver poisons it")
        });
        let late = thread::spawn(move || {
            let (mut rx, mut last) = (joiner.join(), None);
            while let Ok(value) = block_on(rx.recv()) {
                last = Some(value);
            }
            last
        });
        let (got, (failed, received)) = (join_all(receivers), sender.join().unwrap());
        let have_it =
            got.iter().filter(|got| **got > failed).count() + usize::from(late.join().unwrap() == Some(failed));
        assert_eq!(have_it, received as usize, "{got:?}: {failed} failed");
        assert!(got.iter().all(|got| *got == failed || *got == failed + 1), "{got:?}: {failed} failed");
    });
}

/// Remote receivers, each behind agents: one leaves, one drops a receive, and one of the sends is dropped.
/// The others get the values in order, each once, with every value whose send was `Ok`.
#[test]
fn a_broadcast_to_receivers_elsewhere() {
    check(1_000, || {
        let (tx, joiner) = broadcast();
        let mut tx = tx.at_least(1);
        let mut agents = Vec::new();
        let receivers = (0..3usize).map(|number| {
            let (near, mut rx) = channel();
            agents.push(join(Outlet::new(joiner.join()), Inlet::new(near)));
            thread::spawn(move || {
                let mut got = Vec::new();
                // The first leaves after one value, the others stay.
                while number > 0 || got.is_empty() {
                    if number == 2 && got.len() == 1 {
                        got.extend(try_once(rx.recv()).and_then(Result::ok));
                    }
                    match block_on(rx.recv()) {
                        Ok(value) => got.push(value),
                        Err(error) => {
                            assert_eq!(error, RecvError::Closed);
                            break;
                        }
                    }
                }
                got
            })
        });
        let receivers: Vec<_> = receivers.collect();
        drop(joiner);
        let agents = thread::spawn(move || block_on(async { agents.into_iter().collect::<Par<_>>().await }));
        let sender = thread::spawn(move || {
            let mut sent = Vec::new();
            for value in 0..4u32 {
                let cut = value == 1;
                let done = if cut { try_once(tx.send(value)) } else { Some(block_on(tx.send(value))) };
                match done {
                    Some(Ok(())) => sent.push(value),
                    Some(Err(error)) => panic!("two stay: {error}"),
                    None => {}
                }
            }
            sent
        });
        let (received, sent) = (join_all(receivers), sender.join().unwrap());
        agents.join().unwrap();
        assert!(sent.len() >= 3, "{sent:?}");
        for (number, got) in received.iter().enumerate() {
            assert!(got.is_sorted_by(|a, b| a < b), "each once, in order: {got:?}");
            if number > 0 {
                assert!(sent.iter().all(|value| got.contains(value)), "sent {sent:?}, got {got:?}");
            }
        }
    });
}

/// Three handles of a shared sender post, and cancel some posts, to two receivers: each value is received
/// once or returned.
#[test]
fn posts_of_several_senders() {
    for policy in [rendezvous(), fifo(2)] {
        check(300, move || {
            let (tx, rx) = channel_with(policy.clone());
            let (tx, rx) = (tx.share(), rx.share());
            let senders = (0..3u32).map(|number| {
                let mut tx = tx.clone();
                thread::spawn(move || {
                    let posts: Vec<_> = (0..3).map(|n| tx.send_nowait(10 * number + n)).collect();
                    let mut back = Vec::new();
                    for (n, post) in posts.into_iter().enumerate() {
                        match n {
                            0 => assert_eq!(block_on(post), Ok(())),
                            1 => back.extend(block_on(post.cancel()).unwrap()),
                            _ => post.detach(),
                        }
                    }
                    back
                })
            });
            let senders: Vec<_> = senders.collect();
            drop(tx);
            let receivers = (0..2).map(|_| {
                let mut rx = rx.clone();
                thread::spawn(move || {
                    let mut got = Vec::new();
                    while let Ok(value) = block_on(rx.recv()) {
                        got.push(value);
                    }
                    for number in 0..3 {
                        assert!(got.iter().filter(|value| **value / 10 == number).is_sorted(), "{got:?}");
                    }
                    got
                })
            });
            let receivers: Vec<_> = receivers.collect();
            drop(rx);
            let mut all: Vec<u32> = join_all(senders).into_iter().chain(join_all(receivers)).flatten().collect();
            all.sort_unstable();
            assert_eq!(all, [0, 1, 2, 10, 11, 12, 20, 21, 22]);
        });
    }
}
