//! Loom: falls and flushes of a bucket against each other, in choices and outside of them, and against its
//! end.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_bucket`
#![cfg(loom)]

mod loom_support;

use std::future::pending;

use dunlin_core::{Bucket, BucketError, Flusher, Receiver, alt, bucket, channel, future};
use loom_support::{block_on, model, model_within, spawn, try_once, yield_once};

/// Flushes until `count` have been released.
fn flush_until(flusher: &Flusher, count: usize) {
    let mut released = 0;
    while released < count {
        released += block_on(flusher.flush()).unwrap();
        if released < count {
            loom::thread::yield_now();
        }
    }
    assert_eq!(released, count);
}

/// `true`: released; `false`: received.
fn fall_or_receive(mine: &mut Bucket, rx: &mut Receiver<u32>) -> bool {
    block_on(async {
        alt! { biased;
            r = mine.fall_in() => { assert_eq!(r, Ok(())); true }
            v = rx.recv() => { assert_eq!(v, Ok(7)); false }
        }
    })
}

/// Two fall in | flushes until both are released: each is counted once.
#[test]
fn each_fall_is_released_once() {
    model_within(2, || {
        let (flusher, mine) = bucket();
        let falls = [mine.clone(), mine].map(|mut mine| spawn(move || block_on(mine.fall_in())));
        flush_until(&flusher, 2);
        for fall in falls {
            assert_eq!(fall.join(), Ok(()));
        }
    });
}

/// A fall that is dropped at any moment | a flush: the count agrees with what is left.
#[test]
fn a_dropped_fall_was_released_or_left() {
    model(|| {
        let (flusher, mut mine) = bucket();
        let other = spawn(move || {
            let released = try_once(mine.fall_in()).is_some();
            assert!(!released, "a first poll is never ready");
            mine
        });
        let count = block_on(flusher.flush()).unwrap();
        assert!(count <= 1);
        let mut mine = other.join();
        assert_eq!(flusher.holding(), 0);
        assert!(try_once(mine.fall_in()).is_none());
    });
}

/// A choice of a fall and a receive | a sender that flushes, or whose value is received, but not both.
#[test]
fn a_choice_is_counted_or_receives() {
    model(|| {
        let ((flusher, mut mine), (mut tx, mut rx)) = (bucket(), channel());
        let other = spawn(move || {
            let count = block_on(flusher.flush()).unwrap();
            let sent = try_once(tx.send(7)).is_some();
            (count, sent, flusher, tx)
        });
        // Ends the choice, if neither did.
        let fell = block_on(async {
            alt! { biased;
                r = mine.fall_in() => { assert_eq!(r, Ok(())); Some(true) }
                v = rx.recv() => { assert!(v.is_ok() || v.unwrap_err().is_closed()); Some(false) }
                () = future(yield_once()) => None
            }
        });
        let (count, _sent, flusher, _tx) = other.join();
        assert_eq!(count, usize::from(fell == Some(true)));
        assert_eq!(flusher.holding(), 0);
    });
}

/// A flush meets a choice that polls a future: it waits for that poll, and is woken.
#[test]
fn a_flush_waits_for_a_choice_that_is_closed() {
    model(|| {
        let (flusher, mut mine) = bucket();
        let other = spawn(move || {
            block_on(async {
                alt! { biased;
                    () = future(async { yield_once().await; pending().await }) => {}
                    r = mine.fall_in() => assert_eq!(r, Ok(())),
                }
            });
        });
        flush_until(&flusher, 1);
        other.join();
    });
}

/// Two flushers, one fall: one of them counts it.
#[test]
fn two_flushes_count_a_fall_once() {
    model_within(2, || {
        let ((flusher, mut mine), (_tx, mut rx)) = (bucket(), channel());
        let second = flusher.clone();
        let fall = spawn(move || fall_or_receive(&mut mine, &mut rx));
        let other = spawn(move || block_on(second.flush()).unwrap());
        let first = block_on(flusher.flush()).unwrap();
        let count = first + other.join();
        assert!(count <= 1);
        if count == 0 {
            flush_until(&flusher, 1);
        }
        assert!(fall.join());
    });
}

/// Two choices over two buckets | flushes of both, in opposite order.
#[test]
fn a_choice_over_two_buckets_is_counted_by_one() {
    model_within(2, || {
        let ((one, mut a), (other, mut b)) = (bucket(), bucket());
        let fall = spawn(move || {
            block_on(async {
                alt! { r = a.fall_in() => { r.unwrap(); 1 }, r = b.fall_in() => { r.unwrap(); 2 } }
            })
        });
        let second = spawn(move || (block_on(other.flush()).unwrap(), other));
        let first = block_on(one.flush()).unwrap();
        let (second, other) = second.join();
        let chosen = match (first, second) {
            (1, 0) => 1,
            (0, 1) => 2,
            (0, 0) => {
                flush_until(&other, 1);
                2
            }
            both => panic!("{both:?}"),
        };
        assert_eq!(fall.join(), chosen);
    });
}

/// A fall, in a choice or not | the last flusher is dropped, or poisons.
#[test]
fn the_end_of_a_bucket_reaches_what_falls_in() {
    for (in_choice, poisons) in [(false, false), (true, false), (true, true)] {
        model(move || {
            let ((flusher, mut mine), (_tx, mut rx)) = (bucket(), channel::<u32>());
            let other = spawn(move || {
                if poisons {
                    flusher.poison("mine");
                }
            });
            let ended = block_on(async {
                if in_choice {
                    alt! { r = mine.fall_in() => r, _ = rx.recv() => Ok(()) }
                } else {
                    mine.fall_in().await
                }
            });
            assert_eq!(ended, Err(if poisons { BucketError::Poisoned("mine".into()) } else { BucketError::Closed }));
            other.join();
        });
    }
}
