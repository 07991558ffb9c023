//! Bugs that a review found, each with a description of the fault.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::*;

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counter() -> (Arc<Count>, Waker) {
    let count = Arc::new(Count(AtomicUsize::new(0)));
    (count.clone(), count.into())
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Both ends waited for the end of the channel under one name, so one of them was forgotten.
#[test]
fn closed_of_both_ends() {
    let (mut tx, mut rx) = channel::<u8>();
    let ((c1, w1), (_c2, w2)) = (counter(), counter());
    let mut a = pin!(tx.closed());
    assert!(poll(a.as_mut(), &w1).is_pending());
    {
        let mut b = pin!(rx.closed());
        assert!(poll(b.as_mut(), &w2).is_pending());
    }
    drop(rx);
    assert_eq!(c1.0.load(SeqCst), 1, "the sender's closed() is not woken");
}

/// The offer failed behind the receiver's last message when the agent no longer polled it: the send returned
/// `Ok`.
#[test]
fn receiver_gone_before_the_agent_sees_the_send() {
    let (mut tx, far) = channel();
    let (near, rx) = channel();
    let mut j = pin!(join(Outlet::new(far), Inlet::new(near)));
    let (_c, w) = counter();
    assert!(poll(j.as_mut(), &w).is_pending());
    drop(rx);
    let mut s = pin!(tx.send(1u8));
    assert!(poll(s.as_mut(), &w).is_pending());
    let _ = poll(j.as_mut(), &w);
    let r = poll(s.as_mut(), &w);
    assert!(matches!(r, Poll::Ready(Err(SendError::NotTaken { value: 1, .. }))), "{r:?}");
}

/// A choice that was reserved for a remote receiver skipped, and the receiver took the value nevertheless.
#[test]
fn skip_while_reserved() {
    let (mut tx, far) = channel();
    let (near, mut rx) = channel();
    let (_c, w) = counter();
    let mut j = pin!(join(Outlet::new(far), Inlet::new(near)));
    let mut slot = Some(7u8);
    let mut got = None;
    let skipped;
    {
        let mut r = pin!(rx.recv());
        assert!(poll(r.as_mut(), &w).is_pending());
        let mut n = 0;
        {
            let mut ch = pin!(async {
                alt! { biased; x = tx.send_from(&mut slot) => { x.unwrap(); false } skip => true }
            });
            skipped = loop {
                if let Poll::Ready(s) = poll(ch.as_mut(), &w) {
                    break s;
                }
                n += 1;
                // the receiver asks, and is granted, but is not polled again for a while
                if n == 1 {
                    let _ = poll(j.as_mut(), &w);
                    assert!(poll(r.as_mut(), &w).is_pending());
                    let _ = poll(j.as_mut(), &w);
                }
                if n > 100 {
                    break false;
                }
            };
        }
        for _ in 0..5 {
            if let Poll::Ready(v) = poll(r.as_mut(), &w) {
                got = Some(v);
                break;
            }
            let _ = poll(j.as_mut(), &w);
        }
    }
    assert!(!(skipped && got.is_some()), "skipped, and {got:?} was received; slot {slot:?}");
}

/// A receiver that had requested an offer was not notified of its withdrawal and did not request the next
/// one.
#[test]
fn asked_offer_withdrawn_other_choice_stands() {
    let (tx, far) = channel();
    let (near, mut rx) = channel::<u8>();
    let (_c, w) = counter();
    let mut j = pin!(join(Outlet::new(far), Inlet::new(near)));
    let mut a = tx.share();
    let mut b = a.clone();
    let (mut s1, mut s2) = (Some(1u8), Some(2u8));
    let (cr, wr) = counter();
    let (_tz, mut rz) = channel::<u8>();
    let (_ty, mut ry) = channel::<u8>();
    let mut c1 = Box::pin(async {
        alt! { x = a.send_from(&mut s1) => { x.unwrap(); } v = rz.recv() => { drop(v); } }
    });
    let mut c2 = Box::pin(async {
        alt! { x = b.send_from(&mut s2) => { x.unwrap(); } v = ry.recv() => { drop(v); } }
    });
    for _ in 0..40 {
        let _ = poll(c1.as_mut(), &w);
        let _ = poll(c2.as_mut(), &w);
    }
    let _ = poll(j.as_mut(), &w);
    let mut r = pin!(rx.recv());
    assert!(poll(r.as_mut(), &wr).is_pending()); // asks for the first
    drop(c1); // before the agent has received the request
    let _ = poll(j.as_mut(), &w);
    let mut woken = 0;
    for _ in 0..100 {
        let n = cr.0.swap(0, SeqCst);
        woken += n;
        if n > 0
            && let Poll::Ready(v) = poll(r.as_mut(), &wr)
        {
            assert_eq!(v, Ok(2));
            return;
        }
        let _ = poll(j.as_mut(), &w);
        let _ = poll(c2.as_mut(), &w);
    }
    panic!("the receiver was woken {woken} times and never got 2");
}

/// The value of a dropped send of a clone was returned to no owner.
#[test]
fn settle_by_shared() {
    let (tx, far) = channel();
    let (near, _rx) = channel::<u8>();
    let (_c, w) = counter();
    let mut j = pin!(join(Outlet::new(far), Inlet::new(near)));
    let mut a = tx.share();
    let mut slot = Some(1u8);
    {
        let mut s = pin!(a.send_from(&mut slot));
        assert!(poll(s.as_mut(), &w).is_pending());
        let _ = poll(j.as_mut(), &w);
    }
    assert_eq!(slot, None);
    {
        let mut cl = pin!(a.settle(&mut slot));
        for _ in 0..5 {
            if poll(cl.as_mut(), &w).is_ready() {
                break;
            }
            let _ = poll(j.as_mut(), &w);
        }
    }
    assert_eq!(slot, Some(1));
}

/// The value was in the choice's pool, which `settle` did not check.
#[test]
fn forgotten_send_to_any() {
    let (tx, rx) = channel();
    let (ty, _ry) = channel();
    let (_c, w) = counter();
    let mut s = [tx, ty];
    let mut slot = Some(1u8);
    {
        let mut f = Box::pin(send_to_any(&mut slot, &mut s));
        assert!(poll(f.as_mut(), &w).is_pending());
        std::mem::forget(f);
    }
    {
        let mut f = pin!(s[0].settle(&mut slot));
        assert!(poll(f.as_mut(), &w).is_ready());
    }
    drop(rx);
    assert_eq!(slot, Some(1));
}

/// An offer made during a claim was announced twice, and its ghost stranded a receiver.
#[test]
fn offered_twice_after_a_claim() {
    let (tx, far) = channel();
    let (near, rx) = channel::<u8>();
    let c = Arc::new(Count(AtomicUsize::new(0)));
    let w: Waker = c.into();
    let mut j = pin!(join(Outlet::new(far), Inlet::new(near)));
    let mut a = tx.share();
    let mut b = a.clone();
    let mut d = a.clone();
    let mut s1 = Some(1u8);
    let (_tz, mut rz) = channel::<u8>();
    let mut c1 = Box::pin(async {
        alt! { x = a.send_from(&mut s1) => { x.unwrap(); } v = rz.recv() => { drop(v); } }
    });
    let g = {
        let mut f = pin!(b.claim());
        let Poll::Ready(g) = poll(f.as_mut(), &w) else { panic!() };
        g.unwrap()
    };
    for _ in 0..40 {
        let _ = poll(c1.as_mut(), &w);
    }
    drop(g); // before the agent has received the offer
    let _ = poll(j.as_mut(), &w);
    let rx = rx.share();
    let (mut r1, mut r2) = (rx.clone(), rx);
    let mut s2 = Some(2u8);
    let (_ty, mut ry) = channel::<u8>();
    let mut f1 = Box::pin(async { r1.recv_extended().await.unwrap().release() });
    let mut hold = None;
    let _ = &mut hold as &mut Option<u8>;
    let mut e1 = Box::pin(async {
        let e = r2.recv_extended().await.unwrap();
        std::future::pending::<()>().await;
        drop(e);
    });
    // e1 takes and holds; f1 asks for the ghost
    for _ in 0..10 {
        let _ = poll(e1.as_mut(), &w);
        let _ = poll(f1.as_mut(), &w);
        let _ = poll(j.as_mut(), &w);
        let _ = poll(c1.as_mut(), &w);
    }
    let mut c2 = Box::pin(async {
        alt! { x = d.send_from(&mut s2) => { x.unwrap(); } v = ry.recv() => { drop(v); } }
    });
    for _ in 0..60 {
        let _ = poll(c2.as_mut(), &w);
        let _ = poll(j.as_mut(), &w);
        if let Poll::Ready(v) = poll(f1.as_mut(), &w) {
            assert_eq!(v, 2);
            return;
        }
    }
    panic!("the second receiver never gets the second choice's value");
}

struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!std::mem::take(&mut self.0) || std::thread::panicking(), "on purpose");
    }
}

/// A value whose destructor panics at the end of a claim kept the claim from being released.
#[test]
fn claim_end_panics() {
    let w = Waker::noop();
    let (mut tx, _rx) = channel_with::<Bomb>(overwrite_oldest(1));
    assert!(tx.try_send(Bomb(true)).is_ok());
    let mut a = tx.share();
    let (mut b, mut c) = (a.clone(), a.clone());
    let Poll::Ready(Ok(g)) = poll(pin!(a.claim()), w) else { panic!() };
    let mut s = pin!(b.send(Bomb(false)));
    assert!(poll(s.as_mut(), w).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(g))).is_err());
    assert!(poll(s.as_mut(), w).is_ready());
    for t in 1..10 {
        waits::advance(t * 100);
    }
    assert!(poll(pin!(c.claim()), w).is_ready(), "the claim is never given back");
}

static NO_CLONE: RawWakerVTable = RawWakerVTable::new(|_| panic!("on purpose"), |_| {}, |_| {}, |_| {});

/// The value had left its slot when the executor's waker was cloned, and that code may panic.
#[test]
fn waker_clone_panics() {
    // SAFETY: no function of the table touches the data.
    let w = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &NO_CLONE)) };
    let (tx, _rx) = channel::<String>();
    let mut tx = tx.share();
    let mut slot = Some("x".to_string());
    {
        let mut f = pin!(tx.send_from(&mut slot));
        assert!(catch_unwind(AssertUnwindSafe(|| poll(f.as_mut(), &w))).is_err());
    }
    assert!(slot.is_some(), "the value is lost");
}

/// The mail was read only when no branch was ready, so two branches that always wake each other kept it
/// unread for ever.
#[test]
fn wakes_from_elsewhere_are_not_starved() {
    const ROUNDS_MAX: u32 = if cfg!(miri) { 2_000 } else { 5_000_000 };
    let (mut ping, mut pong) = (channel::<()>(), channel::<()>());
    let (flag, woken) = (std::cell::Cell::new(false), std::cell::Cell::new(None::<Waker>));
    let rounds = doc::block_on(async {
        let (rounds, ..) = par!(
            async {
                let mut rounds = 0;
                while !flag.get() && rounds < ROUNDS_MAX {
                    ping.0.send(()).await.unwrap();
                    pong.1.recv().await.unwrap();
                    rounds += 1;
                    if rounds == 10
                        && let Some(waker) = woken.take()
                    {
                        // Another thread wakes the third branch; such a wake goes through the mail.
                        #[allow(clippy::disallowed_methods)] // the tests need threads
                        std::thread::spawn(move || waker.wake()).join().unwrap();
                    }
                }
                ping.0.retire();
                pong.1.retire();
                rounds
            },
            async {
                while ping.1.recv().await.is_ok() {
                    if pong.0.send(()).await.is_err() {
                        break;
                    }
                }
            },
            async {
                let mut first = true;
                std::future::poll_fn(|cx| {
                    if std::mem::take(&mut first) {
                        woken.set(Some(cx.waker().clone()));
                        return Poll::Pending;
                    }
                    Poll::Ready(())
                })
                .await;
                flag.set(true);
            },
        );
        rounds
    });
    assert!(rounds < 200, "the mail was read after {rounds} rounds");
}

/// A `par!` that had used up its budget woke itself, and the enclosing one polled it again for all of its own
/// budget: 2,048 polls to the power of the nesting before the task's neighbours got their turn. On a tokio
/// thread whose task had used up tokio's budget, that stood still for minutes.
#[test]
fn nested_budgets_do_not_multiply() {
    const BUDGET: u32 = 50;
    let (busy, sibling) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let count = |polls: &std::cell::Cell<u32>| polls.set(polls.get() + 1);
    let spin = |cx: &mut Context<'_>| {
        count(&busy);
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    };
    let innermost =
        || async { [(), ()].map(|()| std::future::poll_fn(spin)).into_iter().collect::<Par<_>>().budget(BUDGET).await };
    let inner = async { [(), ()].map(|()| innermost()).into_iter().collect::<Par<_>>().await };
    let mut outer = pin!(async {
        par!(inner, async {
            loop {
                count(&sibling);
                let mut first = true;
                std::future::poll_fn(|cx| {
                    cx.waker().wake_by_ref();
                    if std::mem::take(&mut first) { Poll::Pending } else { Poll::Ready(()) }
                })
                .await;
            }
        })
    });
    for round in 1..=10 {
        let (woken, waker) = counter();
        assert!(poll(outer.as_mut(), &waker).is_pending());
        assert_eq!(
            busy.get(),
            round * BUDGET,
            "one of them spends its budget, and then the task's neighbours have their turn"
        );
        assert_eq!(sibling.get(), round - 1, "its sibling gets a turn in between");
        assert!(woken.0.load(SeqCst) > 0);
    }
}
