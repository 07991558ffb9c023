//! Panics of branches and of wakers: a `Par` that is polled again continues, and one waker's panic leaves no
//! other task asleep.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::{
    Barrier, Choice, PATIENCE_TICKS, Par, RecvError, barrier, broadcast, channel, channel_with, fifo, waits,
};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Counts its wakes, and panics if `panics` is set.
struct Bell {
    rung: AtomicU32,
    panics: bool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics, "this waker panics");
    }
}

/// Wakers, the first of which panic.
struct Bells(Vec<Arc<Bell>>);

impl Bells {
    fn new(count: usize, panicking: usize) -> Self {
        Self((0..count).map(|n| Arc::new(Bell { rung: AtomicU32::new(0), panics: n < panicking })).collect())
    }

    fn waker(&self, n: usize) -> Waker {
        self.0[n].clone().into()
    }

    /// The number of wakes of each since the last call.
    fn rung(&self) -> Vec<u32> {
        self.0.iter().map(|bell| bell.rung.swap(0, Ordering::Relaxed)).collect()
    }

    /// Polls each future with a waker of its own; all wait.
    fn all_wait<F: Future + Unpin>(&self, futures: &mut [F]) {
        for (n, future) in futures.iter_mut().enumerate() {
            assert!(poll(future, &self.waker(n)).is_pending());
        }
        self.rung();
    }
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Calls `f`, which must panic with the panic of a waker.
fn panics(f: impl FnOnce()) {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("the panic of a waker goes to the caller");
    let text = panic.downcast_ref::<&str>().copied();
    assert_eq!(text, Some("this waker panics"));
}

#[test]
fn par_polled_after_a_panic_keeps_finished_branches() {
    let mut polls = 0;
    let late: Boxed<'_, u8> = Box::pin(poll_fn(|_| {
        polls += 1;
        assert!(polls > 1, "the first poll panics");
        Poll::Ready(2)
    }));
    let mut par: Par<Boxed<'_, u8>> = [Box::pin(async { 1_u8 }) as Boxed<'_, u8>, late].into_iter().collect();
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut par, Waker::noop()))).is_err());
    assert_eq!(poll(&mut par, Waker::noop()), Poll::Ready(vec![1, 2]));
}

#[test]
fn par_polled_after_a_panic_polls_the_branches_behind() {
    let behind: Boxed<'_, u8> = Box::pin(async { 3_u8 });
    let mut polls = 0;
    let first: Boxed<'_, u8> = Box::pin(poll_fn(|_| {
        polls += 1;
        if polls == 1 { panic!("the first poll panics") } else { Poll::Ready(1) }
    }));
    let mut par: Par<_> = [first, behind].into_iter().collect();
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut par, Waker::noop()))).is_err());
    assert_eq!(poll(&mut par, Waker::noop()), Poll::Ready(vec![1, 3]));
}

/// An `async` block that has panicked panics again; it does not leave the `Par` waiting for ever.
#[test]
fn par_polls_a_panicked_branch_again() {
    let branches: [Boxed<'_, u8>; 2] = [Box::pin(async { 1_u8 }), Box::pin(async { panic!("it always panics") })];
    let mut par: Par<_> = branches.into_iter().collect();
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut par, Waker::noop()))).is_err());
    }
}

#[test]
fn par_counts_a_branch_whose_drop_panics() {
    struct Bomb(bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!self.0, "it is dropped");
        }
    }
    let branch = |armed| {
        let bomb = Bomb(armed);
        poll_fn(move |_| {
            let _held = &bomb;
            Poll::Ready(armed)
        })
    };
    let mut par: Par<_> = [branch(true), branch(false)].into_iter().collect();
    assert!(catch_unwind(AssertUnwindSafe(|| poll(&mut par, Waker::noop()))).is_err());
    assert_eq!(poll(&mut par, Waker::noop()), Poll::Ready(vec![true, false]));
}

#[test]
fn a_panicking_waker_leaves_no_party_of_a_barrier_asleep() {
    let mut last = barrier();
    let mut parties: Vec<Barrier> = (0..4).map(|_| last.enrol()).collect();
    for panicking in 1..=4 {
        let bells = Bells::new(4, panicking);
        let mut syncs: Vec<_> = parties.iter_mut().map(Barrier::sync).collect();
        bells.all_wait(&mut syncs);
        panics(|| _ = poll(&mut last.sync(), Waker::noop()));
        assert_eq!(bells.rung(), [1; 4], "{panicking} wakers panic");
        assert!(syncs.iter_mut().all(|sync| poll(sync, Waker::noop()) == Poll::Ready(Ok(()))));
        drop(syncs);
        assert_eq!(last.phases(), panicking as u64);
    }
}

#[test]
fn a_panicking_waker_leaves_no_choice_at_a_barrier_asleep() {
    let mut last = barrier();
    let mut parties: Vec<Barrier> = (0..3).map(|_| last.enrol()).collect();
    let bells = Bells::new(3, 1);
    let mut choices: Vec<_> = parties
        .iter_mut()
        .map(|party| Box::pin(Choice::fair().on(party.sync(), |synced| synced).into_future()))
        .collect();
    bells.all_wait(&mut choices);
    panics(|| _ = poll(&mut last.sync(), Waker::noop()));
    assert_eq!(bells.rung(), [1; 3]);
    assert!(choices.iter_mut().all(|choice| poll(choice, Waker::noop()).is_ready()));
}

#[test]
fn a_panicking_waker_leaves_no_receiver_of_a_shared_end_asleep() {
    let (tx, rx) = channel::<u8>();
    let first = rx.share();
    let mut handles: Vec<_> = (0..3).map(|_| first.clone()).collect();
    let bells = Bells::new(3, 2);
    let mut receives: Vec<_> = handles.iter_mut().map(|rx| Box::pin(rx.recv())).collect();
    bells.all_wait(&mut receives);
    panics(|| drop(tx));
    assert_eq!(bells.rung(), [1; 3]);
    assert!(receives.iter_mut().all(|rx| poll(rx, Waker::noop()) == Poll::Ready(Err(RecvError::Closed))));
}

#[test]
fn a_panicking_waker_leaves_no_receiver_of_a_broadcast_asleep() {
    type Ends = fn(dunlin_core::Broadcast<u8>);
    let ends: [(Ends, &str); 3] = [(|tx| tx.poison("all end"), "poison"), (|tx| tx.retire(), "retire"), (drop, "drop")];
    for (end, name) in ends {
        let (tx, joiner) = broadcast::<u8>();
        let mut receivers: Vec<_> = (0..3).map(|_| joiner.join()).collect();
        let bells = Bells::new(3, 2);
        let mut receives: Vec<_> = receivers.iter_mut().map(|rx| rx.recv()).collect();
        bells.all_wait(&mut receives);
        panics(|| end(tx));
        assert_eq!(bells.rung(), [1; 3], "{name}");
        assert!(receives.iter_mut().all(|rx| poll(rx, Waker::noop()).is_ready()), "{name}");
    }
}

/// A receiver poisons its broadcast and its own sender's waker panics; the other receivers still get the
/// poison.
#[test]
fn a_panicking_waker_keeps_no_poison_from_a_broadcast() {
    let (mut tx, joiner) = broadcast::<u8>();
    let poisons = joiner.join();
    let mut others = [joiner.join(), joiner.join()];
    let bells = Bells::new(1, 1);
    let mut send = pin!(tx.send(1));
    assert!(send.as_mut().poll(&mut Context::from_waker(&bells.waker(0))).is_pending());
    panics(|| poisons.poison("it ends"));
    for other in &mut others {
        assert!(matches!(poll(&mut other.recv(), Waker::noop()), Poll::Ready(Err(RecvError::Poisoned(_)))));
    }
}

#[test]
fn panicking_waker_blocks_no_claim() {
    let (tx, rx) = channel_with::<u8>(fifo(1));
    let mut tx = tx.share();
    let (mut lone, mut waits) = (tx.clone(), tx.clone());
    let bells = Bells::new(2, 1);
    let claim = poll(&mut tx.claim(), Waker::noop());
    // The send is held back, and woken when the claim ends.
    let mut send = Box::pin(lone.send(1));
    assert!(poll(&mut send, &bells.waker(0)).is_pending());
    let mut waiting = Box::pin(waits.claim());
    assert!(poll(&mut waiting, &bells.waker(1)).is_pending());
    panics(|| drop(claim));
    assert!(poll(&mut send, Waker::noop()).is_ready());
    drop(send);
    assert_eq!(bells.rung()[1], 1);
    assert!(poll(&mut waiting, Waker::noop()).is_ready());
    drop(rx);
}

/// The clock drives the patience of a line of claims; it stopped once a waker had panicked.
#[test]
fn panicking_waker_does_not_stop_the_patience_of_claims() {
    let (tx, _rx) = channel::<u8>();
    let mut tx = tx.share();
    let mut handles = [(); 3].map(|()| tx.clone());
    let bells = Bells::new(2, 1);
    let claim = poll(&mut tx.claim(), Waker::noop());
    let mut claims: Vec<_> = handles.iter_mut().map(|tx| Box::pin(tx.claim())).collect();
    let wakers = [Waker::noop().clone(), bells.waker(0), bells.waker(1)];
    assert!(claims.iter_mut().zip(&wakers).all(|(claim, waker)| poll(claim, waker).is_pending()));
    drop(claim);
    let pass = || waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS));
    pass();
    assert_eq!(bells.rung(), [1, 0], "the first was not polled, so it is the second one's turn, whose waker panics");
    pass();
    assert_eq!(bells.rung(), [0, 1], "the second was not polled either");
    assert!(poll(&mut claims[2], Waker::noop()).is_ready());
}
