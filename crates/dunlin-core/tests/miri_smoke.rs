//! Short runs through every place with `unsafe`, for Miri: the lock, the waker of two numbers, the list of
//! ready branches with a wake from another thread, the pinned slice, the static places of the wait records,
//! tables whose entries are reused.
//!
//! `MIRIFLAGS=-Zmiri-strict-provenance cargo +nightly miri test -p dunlin-core --test miri_smoke`
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the tests need threads

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use dunlin_core::{
    Barrier, Choice, Par, RecvError, alt, barrier, broadcast, call, channel, channel_with, fifo, future, par,
    send_to_any, waits,
};

struct Parked {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let parked = Arc::new(Parked { thread: thread::current(), woken: AtomicBool::new(true) });
    let waker = parked.clone().into();
    let mut cx = Context::from_waker(&waker);
    loop {
        while !parked.woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

#[test]
fn two_branches_exchange_values() {
    let (mut tx, mut rx) = channel::<String>();
    let ((), heard) = block_on(async {
        par!(
            async {
                for n in 0..3 {
                    tx.send(n.to_string()).await.unwrap();
                }
                drop(tx);
            },
            async {
                let mut heard = Vec::new();
                while let Some(value) = rx.next().await.unwrap() {
                    heard.push(value);
                }
                heard
            },
        )
    });
    assert_eq!(heard, ["0", "1", "2"]);
}

#[test]
fn two_threads_exchange_values_through_a_slot_and_a_queue() {
    for policy in [dunlin_core::rendezvous(), fifo(1)] {
        let (mut tx, mut rx) = channel_with::<Box<u32>>(policy);
        let sender = thread::spawn(move || {
            for n in 0..4 {
                block_on(tx.send(Box::new(n))).unwrap();
            }
        });
        for n in 0..4 {
            assert_eq!(*block_on(rx.recv()).unwrap(), n);
        }
        assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
        sender.join().unwrap();
    }
}

#[test]
fn a_branch_is_woken_from_another_thread() {
    for _ in 0..3 {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel::<u32>(), channel::<u32>());
        let other = thread::spawn(move || {
            block_on(tx.send(1)).unwrap();
            block_on(ry.recv()).unwrap()
        });
        block_on(async {
            par!(
                async {
                    let got = rx.recv().await.unwrap();
                    ty.send(got + 1).await.unwrap();
                },
                async { par!(async {}, async {}) },
            )
        });
        assert_eq!(other.join().unwrap(), 2);
    }
}

#[test]
fn a_stale_waker_wakes_no_task() {
    let kept = Mutex::new(Vec::<Waker>::new());
    let keep = || {
        poll_fn(|cx| {
            kept.lock().unwrap().push(cx.waker().clone());
            Poll::Ready(())
        })
    };
    block_on(async { (0..5).map(|_| keep()).collect::<Par<_>>().await });
    let stale = kept.into_inner().unwrap();
    let also = stale.clone();
    let thread = thread::spawn(move || also.into_iter().for_each(Waker::wake));
    block_on(async { par!(async { stale.iter().for_each(Waker::wake_by_ref) }, async {}) });
    thread.join().unwrap();
}

#[test]
fn a_par_is_moved_and_dropped_half_way() {
    let (tx, rx) = channel::<String>();
    let mut half = Box::pin(async move {
        let (mut tx, mut rx) = (tx, rx);
        (0..3).map(async |n| n).collect::<Par<_>>().await;
        par!(async { rx.recv().await }, async { std::future::pending::<()>().await }, async {
            tx.send("krill".into()).await
        })
    });
    assert!(half.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let half = thread::spawn(move || {
        assert!(half.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        half
    });
    drop(half.join().unwrap());
}

#[test]
fn a_panic_in_a_branch_leaves_the_entry_usable() {
    let panicked = std::panic::catch_unwind(|| block_on(async { par!(async { panic!("on purpose") }, async {}) }));
    assert!(panicked.is_err());
    two_branches_exchange_values();
}

#[test]
fn choices_communicate_between_two_threads() {
    let ((mut tx, mut rx), (mut ty, mut ry)) = (channel::<Box<u32>>(), channel::<Box<u32>>());
    let other = thread::spawn(move || {
        let mut slot = Some(Box::new(2));
        let got = block_on(async {
            alt! { sent = ty.send_from(&mut slot) => { sent.unwrap(); None }, got = rx.recv() => Some(*got.unwrap()) }
        });
        assert_eq!(slot.is_none(), got.is_none());
        got
    });
    let mut slot = Some(Box::new(1));
    let got = block_on(async {
        alt! {
            sent = tx.send_from(&mut slot) => { sent.unwrap(); None }
            got = ry.recv() => Some(*got.unwrap()),
            () = future(std::future::pending()) => None,
        }
    });
    assert!(matches!((got, other.join().unwrap()), (Some(2), None) | (None, Some(1))));
}

#[test]
fn a_choice_over_a_pinned_slice() {
    let (mut txs, mut rxs): (Vec<_>, Vec<_>) = (0..3).map(|_| channel::<String>()).unzip();
    let (sent, (index, got)) = block_on(async {
        par!(
            async {
                let mut slot = Some("dig".to_string());
                send_to_any(&mut slot, &mut txs).await.unwrap()
            },
            async { Choice::fair().all(rxs.iter_mut().map(|rx| rx.recv())).await },
        )
    });
    assert_eq!((sent, got), (index, Ok("dig".to_string())));
}

#[test]
fn forgotten_and_dropped_operations() {
    let (mut tx, mut rx) = channel::<String>();
    {
        let mut slot = Some("krill".to_string());
        let mut send = Box::pin(tx.send_from(&mut slot));
        assert!(send.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(send);
        assert_eq!(slot.as_deref(), Some("krill"));
    }
    let receive = thread::spawn(move || {
        let held = block_on(rx.recv_extended()).unwrap();
        let value = held.clone();
        drop(held);
        value
    });
    block_on(tx.send("squid".to_string())).unwrap();
    assert_eq!(receive.join().unwrap(), "squid");
}

#[test]
fn claims_and_calls() {
    let (mut caller, mut callee) = call::<u32, String>();
    let server = thread::spawn(move || block_on(callee.accept()).unwrap().reply("krill".to_string()).unwrap());
    assert_eq!(block_on(caller.call(7)).unwrap(), "krill");
    server.join().unwrap();

    let (tx, rx) = channel_with::<Box<u32>>(fifo(2));
    let mut one = tx.share();
    let mut other = one.clone();
    let claimer = thread::spawn(move || block_on(block_on(other.claim()).unwrap().send(Box::new(1))).unwrap());
    block_on(block_on(one.claim()).unwrap().send(Box::new(2))).unwrap();
    claimer.join().unwrap();
    rx.poison("on purpose");
}

#[test]
fn records_are_read_while_others_write_them() {
    let (mut tx, mut rx) = channel::<u32>();
    let reader = thread::spawn(|| {
        for _ in 0..3 {
            waits::advance(waits::tick() + 1);
            for wait in waits::snapshot() {
                assert!(wait.to_string().contains(file!()), "{wait}");
            }
            for process in waits::processes() {
                assert!(process.count > 0 && process.made.line() > 0);
            }
        }
    });
    block_on(async { par!(async { tx.send(1).await.unwrap() }, async { rx.recv().await.unwrap() }) });
    for _ in 0..3 {
        drop(channel::<u32>());
    }
    reader.join().unwrap();
}

#[test]
fn parties_of_a_barrier_on_two_threads() {
    let phase = barrier();
    let run = |mut phase: Barrier| {
        let (_tx, mut rx) = channel::<u8>();
        block_on(async {
            for n in 0..3 {
                if n % 2 == 0 {
                    phase.sync().await.unwrap();
                } else {
                    alt! { r = phase.sync() => r.unwrap(), _ = rx.recv() => unreachable!() }
                }
            }
            phase.phases()
        })
    };
    let mine = phase.enrol();
    let other = thread::spawn(move || run(phase));
    assert_eq!((run(mine), other.join().unwrap()), (3, 3));
}

#[test]
fn a_broadcast_and_its_receivers() {
    let (mut tx, joiner) = broadcast::<Box<u32>>();
    let receivers: Vec<_> = (1..=2)
        .map(|stays| {
            let mut rx = joiner.join();
            thread::spawn(move || (0..stays).map(|_| *block_on(rx.recv()).unwrap()).collect::<Vec<_>>())
        })
        .collect();
    drop(joiner);
    let sent = (0..).take_while(|n| block_on(tx.send(Box::new(*n))).is_ok()).count();
    let got: Vec<_> = receivers.into_iter().map(|receiver| receiver.join().unwrap()).collect();
    assert_eq!(got, [vec![0], vec![0, 1]]);
    assert!(sent >= 2);
}

#[test]
fn a_post_is_awaited_cancelled_and_dropped() {
    let (mut tx, mut rx) = channel::<Box<u32>>();
    let posts: Vec<_> = (0..4).map(|n| tx.send_nowait(Box::new(n))).collect();
    let receiver = thread::spawn(move || {
        let first = block_on(rx.recv()).unwrap();
        drop(rx);
        first
    });
    let mut posts = posts.into_iter();
    assert!(block_on(posts.next().unwrap()).is_ok());
    let cancelled = block_on(posts.next().unwrap().cancel());
    assert!(matches!(cancelled, Ok(Some(_)) | Err(_)), "the receiver takes one");
    posts.next().unwrap().detach();
    assert_eq!(*receiver.join().unwrap(), 0);
    assert!(block_on(posts.next().unwrap()).is_err());
}
