//! Buckets: the result of each case, in choices and outside of them.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::{Event, Outlet, Reserved};
use dunlin_core::waits::{self, Doing, Wait};
use dunlin_core::{Bucket, BucketError, Choice, Operation, alt, bucket, channel, future};

use common::{hand, now, waiting};

/// The program of JCSP and C++CSP: workers fall into a bucket, each when it has done its part; a keeper
/// flushes it now and then.
#[test]
fn a_flush_releases_all_that_are_in_it_and_no_later_one() {
    let (flusher, bucket) = bucket();
    let mut workers: Vec<_> = (0..3).map(|_| bucket.clone()).collect();
    let mut late = bucket.clone();
    assert_eq!(now(flusher.flush()), Ok(0));
    let mut falls: Vec<_> = workers.iter_mut().map(|worker| waiting(worker.fall_in())).collect();
    assert_eq!((flusher.holding(), bucket.holding()), (3, 3));
    assert!(falls.iter_mut().all(|fall| fall.poll().is_none() && fall.woken() == 0));
    assert_eq!(now(flusher.flush()), Ok(3));
    let mut next = waiting(late.fall_in());
    assert_eq!(flusher.holding(), 1);
    assert!(falls.iter_mut().all(|fall| fall.woken() == 1 && fall.poll() == Some(Ok(()))));
    assert!(next.poll().is_none(), "it fell in after the flush");
    drop(falls);
    let again = waiting(workers[0].fall_in());
    assert_eq!(now(flusher.clone().flush()), Ok(2));
    assert_eq!(next.poll(), Some(Ok(())));
    // A released one that is dropped was counted.
    drop(again);
    assert_eq!(now(flusher.flush()), Ok(0));
}

#[test]
fn a_fall_that_is_dropped_or_times_out_is_not_counted() {
    let (flusher, mut mine) = bucket();
    drop(waiting(mine.fall_in()));
    assert_eq!((flusher.holding(), now(flusher.flush())), (0, Ok(0)));
    assert_eq!(now(mine.fall_in().until(ready(()))), Err(BucketError::TimedOut));
    assert_eq!((flusher.holding(), now(flusher.flush())), (0, Ok(0)));
    // A flush before the deadline comes first.
    let (mut ends, mut end) = channel();
    let mut fall = waiting(mine.fall_in().until(end.recv()));
    assert_eq!(now(flusher.flush()), Ok(1));
    let sent = waiting(ends.send(()));
    assert_eq!(fall.poll(), Some(Ok(())));
    drop((fall, sent));
    // A forgotten one stands until the next, or until its bucket is dropped.
    std::mem::forget(waiting(mine.fall_in()).future);
    assert_eq!(flusher.holding(), 1);
    let fall = waiting(mine.fall_in());
    assert_eq!(flusher.holding(), 1);
    drop(fall);
    std::mem::forget(waiting(mine.fall_in()).future);
    drop(mine);
    assert_eq!(now(flusher.flush()), Ok(0));
}

#[test]
fn poison_and_the_drop_of_the_last_flusher_end_the_waiters() {
    for poisons in [true, false] {
        let (flusher, mut firm) = bucket();
        let other = flusher.clone();
        let (mut choosing, (_tx, mut rx)) = (firm.clone(), channel::<u8>());
        let mut late = firm.clone();
        let mut fall = waiting(firm.fall_in());
        let mut choice = waiting(async {
            alt! { r = choosing.fall_in() => r, _ = rx.recv() => Ok(()) }
        });
        drop(flusher);
        assert_eq!((fall.woken(), choice.woken()), (0, 0), "there is another flusher");
        let expected = if poisons {
            other.poison("mine");
            other.poison("later");
            assert_eq!(now(other.flush()), Err(BucketError::Poisoned("mine".into())));
            BucketError::Poisoned("mine".into())
        } else {
            drop(other);
            BucketError::Closed
        };
        assert!(fall.woken() == 1 && choice.woken() == 1);
        assert_eq!(fall.poll(), Some(Err(expected.clone())));
        assert_eq!(choice.poll(), Some(Err(expected.clone())));
        drop((fall, choice));
        assert_eq!(now(late.fall_in()), Err(expected.clone()));
        let skips = now(async {
            alt! { biased; r = late.fall_in() => r, skip => Ok(()) }
        });
        assert_eq!(skips, Err(expected));
        assert_eq!(late.holding(), 0);
    }
}

#[test]
fn a_released_fall_is_released_though_the_bucket_ends_before_its_poll() {
    let (flusher, mut mine) = bucket();
    let mut fall = waiting(mine.fall_in());
    assert_eq!(now(flusher.flush()), Ok(1));
    drop(flusher);
    assert_eq!(fall.poll(), Some(Ok(())));
}

#[test]
fn a_choice_takes_one_branch_and_a_flush_counts_only_what_it_took() {
    let ((flusher, mut mine), (mut tx, mut rx)) = (bucket(), channel());
    // Flushed: the value is not taken.
    let mut choice = waiting(async {
        alt! { biased; v = rx.recv() => v.ok(), r = mine.fall_in() => { r.unwrap(); None } }
    });
    assert_eq!(flusher.holding(), 1);
    assert_eq!(now(flusher.flush()), Ok(1));
    assert_eq!(choice.woken(), 1);
    let mut send = waiting(tx.send(7));
    assert_eq!(choice.poll(), Some(None), "decided, though the branch above is ready");
    drop(choice);
    // Received: not in the bucket any more.
    let received = now(async {
        alt! { biased; r = mine.fall_in() => { r.unwrap(); None }, v = rx.recv() => v.ok() }
    });
    assert_eq!((received, send.poll()), (Some(7), Some(Ok(()))));
    assert_eq!(now(flusher.flush()), Ok(0));
    let skipped = now(async {
        alt! { biased; r = mine.fall_in() => r.is_err(), skip => true }
    });
    assert!(skipped);
    assert_eq!(now(flusher.flush()), Ok(0));
}

#[test]
fn a_choice_over_two_buckets_is_released_by_one() {
    let ((one, mut a), (other, mut b)) = (bucket(), bucket());
    let mut choice = waiting(async {
        alt! { r = a.fall_in() => { r.unwrap(); 1 }, r = b.fall_in() => { r.unwrap(); 2 } }
    });
    assert_eq!((now(other.flush()), now(one.flush())), (Ok(1), Ok(0)));
    assert_eq!((one.holding(), other.holding()), (0, 0));
    assert_eq!(choice.poll(), Some(2));
}

#[test]
fn a_fall_is_lent_to_several_choices() {
    let ((flusher, mut mine), (mut tx, mut rx)) = (bucket(), channel());
    let mut fall = mine.fall_in();
    for n in 0..3 {
        let mut choice = waiting(async {
            alt! { r = &mut fall => { r.unwrap(); None }, v = rx.recv() => v.ok() }
        });
        assert_eq!(flusher.holding(), 1);
        let send = waiting(tx.send(n));
        assert_eq!(choice.poll(), Some(Some(n)));
        drop(send);
        assert_eq!((flusher.holding(), now(flusher.flush())), (0, Ok(0)), "it took another branch");
    }
    let choice = waiting(async {
        alt! { r = &mut fall => r.is_ok(), _ = rx.recv() => false }
    });
    assert_eq!(now(flusher.flush()), Ok(1));
    drop(choice);
    assert_eq!(now(fall), Ok(()), "it was in the bucket when that was flushed");
}

/// The flush comes while the choice polls a branch that cannot be undone: it waits for that poll, and counts
/// the fall only if that branch was not ready.
#[test]
fn a_flush_waits_for_a_closed_choice() {
    for is_ready in [false, true] {
        let ((flusher, mut mine), mut polls) = (bucket(), 0);
        let mut firm = mine.clone();
        let mut other = waiting(firm.fall_in());
        let mut flush = hand(flusher.flush());
        let foreign = future(poll_fn(|_| {
            polls += 1;
            if polls < 2 {
                return Poll::Pending;
            }
            assert_eq!(flush.poll(), None, "the choice is closed");
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        }));
        let choice = Choice::prioritised().on(mine.fall_in(), |r| r.is_ok()).on(foreign, |()| false);
        let mut choice = waiting(choice.into_future());
        assert_eq!(choice.poll(), Some(if is_ready { (1, false) } else { (0, true) }));
        drop(choice);
        assert_eq!((flush.woken(), flush.poll()), (1, Some(Ok(if is_ready { 1 } else { 2 }))));
        assert_eq!(other.poll(), Some(Ok(())), "what is not in a choice does not wait for one");
    }
}

/// The flush comes while a receiver elsewhere has reserved the send beside the fall.
#[test]
fn a_flush_waits_for_a_reserved_choice() {
    for (given_back, forgotten, poisoned) in
        [(true, false, false), (false, false, false), (true, true, false), (true, false, true)]
    {
        let ((flusher, mut mine), (mut tx, far)) = (bucket(), channel());
        let mut outlet = Outlet::new(far);
        let mut slot = Some(7);
        let choice = Choice::prioritised().on(tx.send_from(&mut slot), |r| r.is_ok()).on(mine.fall_in(), |r| r.is_ok());
        let mut choice = waiting(choice.into_future());
        let Event::ChoiceOffer(ticket, _) = now(poll_fn(|cx| outlet.poll(cx))) else { panic!("not offered") };
        let Reserved::Granted(value) = outlet.reserve(ticket) else { panic!("not reserved") };
        let mut flush = waiting(flusher.flush());
        // A second flush does not count what the first is to release.
        assert_eq!(now(flusher.flush()), Ok(0));
        if poisoned {
            flusher.poison("mine");
            assert_eq!((flush.woken(), flush.poll()), (1, Some(Ok(0))));
        }
        if forgotten {
            drop(flush);
            outlet.give_back(ticket, value);
            assert_eq!(choice.poll(), None);
            assert_eq!(flusher.holding(), 1, "it stays for the next flush");
            assert_eq!(now(flusher.flush()), Ok(1));
            assert_eq!(choice.poll(), Some((1, true)));
        } else if given_back {
            outlet.give_back(ticket, value);
            assert_eq!(choice.poll(), Some((1, !poisoned)));
            assert!(poisoned || flush.poll() == Some(Ok(1)));
        } else {
            outlet.taken(ticket);
            assert_eq!((flush.woken(), flush.poll()), (1, Some(Ok(0))), "the choice has sent");
            assert_eq!(choice.poll(), Some((0, true)));
        }
        drop(choice);
        assert_eq!(slot, given_back.then_some(7));
        assert_eq!(flusher.holding(), 0);
    }
}

#[test]
fn a_flush_does_not_wait_for_a_reserved_choice_that_is_dropped() {
    let ((flusher, mut mine), (mut tx, far)) = (bucket(), channel());
    let mut outlet = Outlet::new(far);
    let mut slot = Some(7);
    let choice = Choice::prioritised().on(tx.send_from(&mut slot), |r| r.is_ok()).on(mine.fall_in(), |r| r.is_ok());
    let choice = waiting(choice.into_future());
    let Event::ChoiceOffer(ticket, _) = now(poll_fn(|cx| outlet.poll(cx))) else { panic!("not offered") };
    let Reserved::Granted(value) = outlet.reserve(ticket) else { panic!("not reserved") };
    let mut flush = waiting(flusher.flush());
    drop(choice);
    assert_eq!((flush.woken(), flush.poll()), (1, Some(Ok(0))));
    outlet.give_back(ticket, value);
    assert_eq!(now(flusher.flush()), Ok(0));
}

#[test]
fn a_fair_choice_takes_turns_with_a_bucket() {
    let ((flusher, mut mine), (mut tx, mut rx)) = (bucket(), channel());
    flusher.poison("always ready");
    let mut turns = [0; 2];
    for _ in 0..20 {
        let mut send = waiting(tx.send(0));
        let taken = now(async {
            alt! { r = mine.fall_in() => { r.unwrap_err(); 0 }, v = rx.recv() => { v.unwrap(); 1 } }
        });
        turns[taken] += 1;
        assert_eq!(send.poll().is_some(), taken == 1);
    }
    assert_eq!(turns, [10, 10]);
}

/// Falls in, flushes and counts when woken.
struct Uses(Mutex<(dunlin_core::Flusher, Bucket)>);

impl Wake for Uses {
    fn wake(self: Arc<Self>) {
        let (flusher, mine) = &mut *self.0.lock().unwrap();
        drop(waiting(mine.fall_in()));
        assert_eq!(now(flusher.flush()), Ok(0));
    }
}

#[test]
fn wakes_are_outside_the_lock_of_a_bucket() {
    let (flusher, mut mine) = bucket();
    let waker: Waker = Arc::new(Uses(Mutex::new((flusher.clone(), mine.clone())))).into();
    let mut fall = mine.fall_in();
    assert!(Pin::new(&mut fall).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(now(flusher.flush()), Ok(1));
    assert!(Pin::new(&mut fall).poll(&mut Context::from_waker(&waker)).is_ready());
}

#[test]
fn waits_for_a_flush_are_visible() {
    let ((flusher, mut a), made) = (bucket(), line!());
    let lines = || -> Vec<Wait> {
        let here = |wait: &Wait| wait.made.file().ends_with("tests/bucket.rs") && wait.made.line() == made;
        waits::snapshot().into_iter().filter(here).collect()
    };
    let mut b = a.clone();
    assert_eq!(lines(), []);
    let first = waiting(a.fall_in());
    let mut second = waiting(async {
        alt! { r = b.fall_in() => r }
    });
    assert_eq!(lines().len(), 2);
    for wait in lines() {
        assert_eq!((wait.doing, wait.channel, wait.there), (Doing::Flush, None, None));
        assert!(format!("{wait}").contains("ms for a flush"), "{wait}");
    }
    drop(first);
    assert_eq!(lines().len(), 1);
    assert_eq!(now(flusher.flush()), Ok(1));
    assert_eq!(lines(), [], "released before it is polled");
    assert_eq!(second.poll(), Some(Ok(())));
    drop(second);
    let keeper = waits::Pid::current();
    let third = waiting(a.fall_in());
    assert_eq!(lines()[0].on, (keeper != waits::Pid::OUTSIDE).then_some(keeper));
    drop(third);
    assert_eq!(now(a.fall_in().until(ready(()))), Err(BucketError::TimedOut));
    assert_eq!(lines(), [], "timed out");
    assert!(format!("{flusher:?}").contains("holding: 0"));
}
