//! Barriers: the result of each case, and random operations against a sequential model.
//!
//! `PROPTEST_CASES=100000 cargo test -p dunlin-core --test barrier` runs more cases.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use dunlin_core::agent::{Event, Outlet, Reserved};
use dunlin_core::waits::{self, Doing, Wait};
use dunlin_core::{Barrier, Choice, Operation, SyncError, alt, barrier, channel, future};

use common::{Hand, hand, now, waiting};

fn expired<O: Operation>(operation: O) -> dunlin_core::Until<O, std::future::Ready<()>> {
    operation.until(ready(()))
}

#[test]
fn all_or_none() {
    let mut a = barrier();
    let (mut b, mut c) = (a.enrol(), a.enrol());
    for phase in 1..4 {
        let (mut first, mut second) = (waiting(a.sync()), waiting(b.sync()));
        assert!(first.poll().is_none() && second.poll().is_none(), "one party has not arrived");
        assert_eq!(now(c.sync()), Ok(()));
        assert_eq!((first.woken(), second.woken()), (1, 1));
        assert_eq!((first.poll(), second.poll()), (Some(Ok(())), Some(Ok(()))));
        drop((first, second));
        assert_eq!((a.phases(), a.parties()), (phase, 3));
    }
}

#[test]
fn a_single_party_completes_alone() {
    let mut phase = barrier();
    assert_eq!(now(phase.sync()), Ok(()));
    assert_eq!(
        now(async {
            alt! { biased; r = phase.sync() => r, skip => panic!() }
        }),
        Ok(())
    );
    assert_eq!(phase.phases(), 2);
}

#[test]
fn waiting_phase_also_needs_a_newcomer() {
    let mut a = barrier();
    let mut b = a.enrol();
    let door = a.enrol();
    let mut first = waiting(a.sync());
    let mut newcomer = door.enrol();
    drop(door);
    let mut second = waiting(b.sync());
    assert_eq!(now(newcomer.sync()), Ok(()));
    assert_eq!((first.poll(), second.poll()), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn sync_does_not_wait_for_a_resigned_party() {
    let mut a = barrier();
    let (mut b, c) = (a.enrol(), a.enrol());
    let (mut first, mut second) = (waiting(a.sync()), waiting(b.sync()));
    drop(c);
    assert_eq!((first.woken(), second.woken()), (1, 1));
    assert_eq!((first.poll(), second.poll()), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_panic_resigns() {
    let mut a = barrier();
    let b = a.enrol();
    let mut first = waiting(a.sync());
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _mine = b;
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(first.poll(), Some(Ok(())));
}

#[test]
fn a_cancelled_sync_has_not_arrived() {
    let mut a = barrier();
    let mut b = a.enrol();
    drop(waiting(a.sync()));
    let mut second = waiting(b.sync());
    assert_eq!(now(expired(a.sync())), Ok(()), "all were there, so the deadline does not matter");
    assert_eq!(second.poll(), Some(Ok(())));
    drop(second);
    assert_eq!(now(expired(a.sync())), Err(SyncError::TimedOut));
    let mut second = waiting(b.sync());
    assert!(second.poll().is_none(), "it timed out, so it has not arrived");
    drop(second);
    assert_eq!(a.phases(), 1);
}

#[test]
fn phase_completed_before_the_deadline_is_ok() {
    let mut a = barrier();
    let mut b = a.enrol();
    let late = AtomicUsize::new(0);
    let deadline = || poll_fn(|_| if late.load(SeqCst) == 0 { Poll::Pending } else { Poll::Ready(()) });
    let mut first = waiting(a.sync().until(deadline()));
    assert_eq!(now(b.sync()), Ok(()));
    late.store(1, SeqCst);
    assert_eq!(first.poll(), Some(Ok(())));
    drop(first);
    late.store(0, SeqCst);
    let mut first = waiting(async {
        alt! { r = a.sync().until(deadline()) => r }
    });
    assert_eq!(now(b.sync()), Ok(()));
    late.store(1, SeqCst);
    assert_eq!(first.poll(), Some(Ok(())));
    drop(first);
    assert_eq!(
        now(async {
            alt! { r = a.sync().until(deadline()) => r }
        }),
        Err(SyncError::TimedOut)
    );
    assert!(waiting(b.sync()).poll().is_none());
}

#[test]
fn forgotten_sync_stands_until_the_next_sync() {
    let mut a = barrier();
    let mut b = a.enrol();
    let mut forgotten = a.sync();
    assert!(Pin::new(&mut forgotten).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(forgotten);
    assert_eq!(now(b.sync()), Ok(()), "it stands");
    let mut forgotten = a.sync();
    assert!(Pin::new(&mut forgotten).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(forgotten);
    drop(waiting(a.sync()));
    assert!(waiting(b.sync()).poll().is_none(), "the next took its place, and gave it up");
    drop(a);
    assert_eq!(now(b.sync()), Ok(()));
}

#[test]
fn choice_takes_one_of_two_barriers() {
    for first in [true, false] {
        let (mut a, mut x) = (barrier(), barrier());
        let (mut b, mut y) = (a.enrol(), x.enrol());
        let (mut there_a, mut there_x) = (waiting(b.sync()), waiting(y.sync()));
        let chosen = now(async {
            if first {
                alt! { biased; r = a.sync() => r.map(|()| 'a'), r = x.sync() => r.map(|()| 'x') }
            } else {
                alt! { biased; r = x.sync() => r.map(|()| 'x'), r = a.sync() => r.map(|()| 'a') }
            }
        });
        assert_eq!(chosen, Ok(if first { 'a' } else { 'x' }));
        assert_eq!((there_a.poll().is_some(), there_x.poll().is_some()), (first, !first));
    }
}

#[test]
fn choices_at_two_barriers_agree_on_one() {
    let (mut a, mut x) = (barrier(), barrier());
    let (mut b, mut y) = (a.enrol(), x.enrol());
    let mut first = waiting(Choice::prioritised().all([a.sync(), x.sync()]).into_future());
    // In the other order, so it reaches `x` first.
    assert_eq!(now(Choice::prioritised().all([y.sync(), b.sync()]).into_future()), (0, Ok(())));
    assert_eq!(first.poll(), Some((1, Ok(()))));
    drop(first);
    assert_eq!((a.phases(), x.phases()), (0, 1));
}

#[test]
fn two_enrolments_in_one_choice_never_happen_together() {
    let mut a = barrier();
    let (mut b, mut c) = (a.enrol(), a.enrol());
    let ((mut tx, mut rx), third) = (channel(), waiting(c.sync()));
    let mut choice = waiting(async {
        alt! { r = a.sync() => { r.unwrap(); 0 }, r = b.sync() => { r.unwrap(); 0 }, v = rx.recv() => v.unwrap() }
    });
    assert!(choice.poll().is_none());
    let mut send = waiting(tx.send(7));
    assert_eq!(choice.poll(), Some(7), "another branch can happen");
    assert_eq!(send.poll(), Some(Ok(())));
    drop((choice, third));
    assert_eq!(a.phases(), 0);
    let (mut first, mut second) = (waiting(a.sync()), waiting(b.sync()));
    assert_eq!(now(c.sync()), Ok(()), "in two operations they can");
    assert_eq!((first.poll(), second.poll()), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn a_party_that_took_another_branch_has_not_arrived() {
    let mut a = barrier();
    let (mut b, (mut tx, mut rx)) = (a.enrol(), channel());
    let mut choice = waiting(async {
        alt! { r = a.sync() => { r.unwrap(); None }, v = rx.recv() => v.ok() }
    });
    let send = waiting(tx.send(7));
    assert_eq!(choice.poll(), Some(Some(7)));
    drop(send);
    let mut other = waiting(b.sync());
    assert!(other.poll().is_none());
    drop((choice, other));
    assert_eq!(a.phases(), 0);
}

/// The other party arrives while the choice is closed, because it polls a branch that cannot be undone. The
/// phase completes when the choice is open again, but not if that branch is ready.
#[test]
fn phase_completes_when_a_closed_choice_opens() {
    for (with_deadline, is_ready) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut a = barrier();
        let mut b = a.enrol();
        let (mut other, mut polls) = (hand(b.sync()), 0);
        let foreign = future(poll_fn(|_| {
            polls += 1;
            if polls < 2 {
                return Poll::Pending;
            }
            assert_eq!(other.poll(), None, "the choice is closed");
            if is_ready { Poll::Ready(()) } else { Poll::Pending }
        }));
        let choice = Choice::prioritised();
        // A branch with a deadline may always be ready, so it is polled first.
        let choice = if with_deadline {
            choice.on(a.sync().until(pending::<()>()), |r| r.is_ok())
        } else {
            choice.on(a.sync(), |r| r.is_ok())
        };
        let mut choice = waiting(choice.on(foreign, |()| false).into_future());
        assert_eq!(choice.run(), Some(if is_ready { (1, false) } else { (0, true) }));
        drop(choice);
        assert_eq!(other.poll(), if is_ready { None } else { Some(Ok(())) });
        drop(other);
        assert_eq!(a.phases(), u64::from(!is_ready));
    }
}

/// The other party arrives while the choice is reserved for a remote receiver, through the send beside the
/// party's sync.
#[test]
fn phase_completes_when_a_reserved_choice_is_released() {
    for (given_back, polled) in [(true, true), (true, false), (false, true)] {
        let (mut a, (mut tx, far)) = (barrier(), channel());
        let mut b = a.enrol();
        let mut outlet = Outlet::new(far);
        let mut slot = Some(7);
        // The last branch will be ready, but comes after the barrier.
        let (mut low, mut rx) = channel();
        let choice = Choice::prioritised().on(tx.send_from(&mut slot), |r| r.is_ok()).on(a.sync(), |r| r.is_ok());
        let choice = choice.on(rx.recv(), |r| r.is_err());
        let mut choice = hand(choice.into_future());
        assert_eq!(choice.run(), None);
        let Event::ChoiceOffer(ticket, _) = now(poll_fn(|cx| outlet.poll(cx))) else { panic!("not offered") };
        let Reserved::Granted(value) = outlet.reserve(ticket) else { panic!("not reserved") };
        let mut other = waiting(b.sync());
        let send = waiting(low.send(1));
        if polled {
            assert_eq!(choice.run(), None, "reserved");
        }
        assert_eq!(other.poll(), None);
        let (before, others) = (choice.woken(), other.woken());
        if given_back {
            outlet.give_back(ticket, value);
            if polled {
                assert!(
                    matches!(outlet.reserve(ticket), Reserved::Later),
                    "the party that wanted to sync has the first turn"
                );
            }
            assert!(choice.woken() > before && (polled || other.woken() > others), "the barrier waits for no poll");
            assert_eq!(choice.run(), Some((1, true)));
            assert_eq!(other.poll(), Some(Ok(())));
        } else {
            outlet.taken(ticket);
            assert_eq!(choice.poll(), Some((0, true)));
            assert_eq!(other.poll(), None, "the choice has sent, so it has not arrived");
        }
        drop((choice, send));
        assert_eq!(slot, given_back.then_some(7));
    }
}

#[test]
fn sync_is_lent_to_several_choices() {
    let mut a = barrier();
    let (mut b, (mut tx, mut rx)) = (a.enrol(), channel());
    let mut sync = a.sync();
    for n in 0..3 {
        let mut choice = waiting(async {
            alt! { r = &mut sync => { r.unwrap(); None }, v = rx.recv() => v.ok() }
        });
        let send = waiting(tx.send(n));
        assert_eq!(choice.poll(), Some(Some(n)));
        drop(send);
        let mut other = waiting(b.sync());
        assert!(other.poll().is_none(), "the choice has taken another branch");
    }
    let mut choice = waiting(async {
        alt! { r = &mut sync => { r.unwrap(); None }, v = rx.recv() => v.ok() }
    });
    assert_eq!(now(b.sync()), Ok(()));
    assert_eq!(choice.poll(), Some(None));
    drop(choice);
    drop(sync);
    let mut sync = a.sync();
    let choice = waiting(async {
        alt! { r = &mut sync => r.is_ok(), _ = rx.recv() => false }
    });
    assert_eq!(now(b.sync()), Ok(()));
    drop(choice);
    assert_eq!(now(sync), Ok(()), "it was there when the phase was complete");
}

/// Holds a party, and uses it when woken.
struct Uses(Mutex<Barrier>);

impl Wake for Uses {
    fn wake(self: Arc<Self>) {
        let mut mine = self.0.lock().unwrap();
        drop(mine.enrol());
        assert_eq!(now(expired(mine.sync())), Err(SyncError::TimedOut));
    }
}

#[test]
fn wakes_are_outside_the_lock() {
    let mut a = barrier();
    let (mut b, mut mine) = (a.enrol(), a.enrol());
    let mut there = mine.sync();
    assert!(Pin::new(&mut there).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(there);
    let waker = Arc::new(Uses(Mutex::new(mine))).into();
    let mut sync = a.sync();
    assert!(Pin::new(&mut sync).poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(now(b.sync()), Ok(()));
    assert!(Pin::new(&mut sync).poll(&mut Context::from_waker(&waker)).is_ready());
}

/// The last waker of a task may drop the task, and with it a party of this barrier.
#[test]
fn wakers_are_dropped_outside_the_lock() {
    for in_a_choice in [true, false] {
        let mut a = barrier();
        let (door, mine) = (a.enrol(), a.enrol());
        let mut sync: Pin<Box<dyn Future<Output = bool>>> = if in_a_choice {
            Box::pin(async {
                alt! { r = a.sync() => r.is_ok() }
            })
        } else {
            Box::pin(async { a.sync().await.is_ok() })
        };
        let waker = Arc::new(Uses(Mutex::new(mine))).into();
        assert!(sync.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        assert_eq!(door.parties(), 3, "the barrier keeps the waker");
        drop(sync);
        assert_eq!(door.parties(), 2);
    }
}

#[test]
fn a_fair_choice_takes_turns() {
    let mut a = barrier();
    let (mut b, (mut tx, mut rx)) = (a.enrol(), channel());
    let mut turns = [0; 2];
    let (mut other, mut send) = (waiting(b.sync()), waiting(tx.send(0)));
    for _ in 0..20 {
        let taken = now(async {
            alt! { r = a.sync() => { r.unwrap(); 0 }, v = rx.recv() => { v.unwrap(); 1 } }
        });
        turns[taken] += 1;
        if taken == 0 {
            assert_eq!(other.poll(), Some(Ok(())));
            drop(other);
            other = waiting(b.sync());
        } else {
            assert_eq!(send.poll(), Some(Ok(())));
            drop(send);
            send = waiting(tx.send(0));
        }
    }
    assert_eq!(turns, [10, 10]);
}

/// The waits at the barrier that was created on this line.
fn lines(made: u32) -> Vec<Wait> {
    let here = |wait: &Wait| wait.made.file().ends_with("tests/barrier.rs") && wait.made.line() == made;
    waits::snapshot().into_iter().filter(here).collect()
}

#[test]
fn waits_are_visible() {
    let (mut a, made) = (barrier(), line!());
    let (mut b, mut c, door) = (a.enrol(), a.enrol(), a.enrol());
    assert_eq!(lines(made), []);
    let (first, mut second) = (
        waiting(a.sync()),
        waiting(async {
            alt! { r = b.sync() => r }
        }),
    );
    let shown = lines(made);
    assert_eq!(shown.len(), 2);
    for wait in &shown {
        assert_eq!((wait.doing, wait.channel, wait.there, wait.on), (Doing::Sync, None, Some((2, 4)), None));
        assert!(format!("{wait}").ends_with(&format!("barrier.rs:{made}:26), 2 of 4 there")), "{wait}");
    }
    let debug = format!("{door:?}");
    assert!(debug.contains("enrolled: 4, there: 2, phases: 0"), "{debug}");
    drop(first);
    assert_eq!(lines(made).into_iter().map(|wait| wait.there).collect::<Vec<_>>(), [Some((1, 4))]);
    let (first, last) = (waiting(a.sync()), waiting(c.sync()));
    assert_eq!(lines(made).len(), 3);
    drop(door);
    assert_eq!(lines(made), [], "complete before any party is polled");
    assert_eq!(second.poll(), Some(Ok(())));
    drop((first, last, second));
    assert_eq!(lines(made), []);
    assert_eq!(now(expired(a.sync())), Err(SyncError::TimedOut));
    assert_eq!(lines(made), [], "timed out");
}

/// The records name a missing party: the process that used its enrolment last.
#[test]
fn the_missing_party_is_named() {
    let (a, made) = (barrier(), line!());
    let mut door = a.enrol();
    let (mine, other) = (std::cell::Cell::new(None), std::cell::Cell::new(None));
    let mut both = waiting(async {
        dunlin_core::par!(
            async {
                let mut a = a;
                mine.set(Some(waits::Pid::current()));
                a.sync().await
            },
            async {
                let b = door.enrol();
                other.set(Some(waits::Pid::current()));
                drop(door.sync());
                pending::<()>().await;
                drop(b);
            },
        )
    });
    assert!(both.poll().is_none());
    let shown = lines(made);
    assert_eq!(shown.len(), 1);
    assert_eq!((Some(shown[0].who), shown[0].on), (mine.get(), other.get()));
    assert!(format!("{}", shown[0]).contains("1 of 3 there, not yet #"), "{}", shown[0]);
}

mod random {
    //! Random operations of several processes at two barriers, against a model of a few lines: every answer
    //! is known, and every process that can proceed has been woken.

    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Enrol(usize),
        Resign(usize),
        /// An idle process begins to sync with these parties: one party outside of a choice, or several in
        /// one choice.
        Begin(usize, Vec<usize>, bool),
        Poll(usize),
        Drop(usize),
        /// The deadline of a process passes.
        Expire(usize),
    }

    const PROCESSES: usize = 4;
    /// More parties than ever exist.
    const PARTIES: usize = 8;

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            1 => (0..PARTIES).prop_map(Op::Enrol),
            1 => (0..PARTIES).prop_map(Op::Resign),
            6 => (0..PROCESSES, prop::collection::vec(0..PARTIES, 1..4), any::<bool>())
                .prop_map(|(who, with, choice)| Op::Begin(who, with, choice)),
            9 => (0..PROCESSES).prop_map(Op::Poll),
            3 => (0..PROCESSES).prop_map(Op::Drop),
            1 => (0..PROCESSES).prop_map(Op::Expire),
        ];
        prop::collection::vec(op, 1..60)
    }

    /// A party, which is here or with a process.
    struct Party {
        /// The index of its barrier.
        at: usize,
        home: Rc<RefCell<Option<Barrier>>>,
    }

    struct Lent(Option<Barrier>, Rc<RefCell<Option<Barrier>>>);

    impl Drop for Lent {
        fn drop(&mut self) {
            *self.1.borrow_mut() = self.0.take();
        }
    }

    type Output = (usize, Result<(), SyncError>);

    struct Running {
        /// Parties in the order of the branches, with their barriers.
        with: Vec<(usize, usize)>,
        choice: bool,
        begun: bool,
        /// The number of its wakes before its last poll.
        woken: usize,
        /// The branch that happened in the model.
        done: Option<usize>,
        expired: Rc<Cell<bool>>,
        future: Hand<Pin<Box<dyn Future<Output = Output>>>>,
    }

    fn begin(parties: &[Option<Party>], with: &[usize], choice: bool) -> Option<Running> {
        let mut lent = Vec::new();
        let mut numbers = Vec::new();
        for n in with {
            let Some(party) = &parties[*n] else { continue };
            let Some(barrier) = party.home.borrow_mut().take() else { continue };
            lent.push(Lent(Some(barrier), party.home.clone()));
            numbers.push((*n, party.at));
        }
        if !choice {
            lent.truncate(1);
            numbers.truncate(1);
        }
        if lent.is_empty() {
            return None;
        }
        let expired = Rc::new(Cell::new(false));
        let passed = expired.clone();
        let future: Pin<Box<dyn Future<Output = Output>>> = Box::pin(async move {
            let passed = || {
                let passed = passed.clone();
                poll_fn(move |_| if passed.get() { Poll::Ready(()) } else { Poll::Pending })
            };
            let syncs = lent.iter_mut().map(|lent| lent.0.as_mut().expect("lent").sync().until(passed()));
            if choice {
                // `Choice` requires branches that are `Send`.
                let mut syncs: Vec<_> = syncs.collect();
                match &mut syncs[..] {
                    [a] => alt! { biased; r = a => (0, r) },
                    [a, b] => alt! { biased; r = a => (0, r), r = b => (1, r) },
                    [a, b, c] => alt! { biased; r = a => (0, r), r = b => (1, r), r = c => (2, r) },
                    _ => unreachable!(),
                }
            } else {
                let only = syncs.into_iter().next().expect("one");
                (0, only.await)
            }
        });
        Some(Running { with: numbers, choice, begun: false, woken: 0, done: None, expired, future: hand(future) })
    }

    /// If all parties enrolled at this barrier have arrived, they take the phase.
    fn complete(at: usize, parties: &[Option<Party>], running: &mut [Option<Running>], phases: &mut [u64; 2]) {
        let enrolled = parties.iter().flatten().filter(|party| party.at == at).count();
        let there = |r: &&mut Running| r.begun && r.done.is_none();
        let (mut count, mut twice) = (0, false);
        for r in running.iter_mut().flatten().filter(there) {
            let of_this = r.with.iter().filter(|(_, barrier)| *barrier == at).count();
            count += of_this;
            twice |= of_this > 1;
        }
        if enrolled == 0 || count < enrolled || twice {
            return;
        }
        phases[at] += 1;
        for r in running.iter_mut().flatten().filter(there) {
            r.done = r.with.iter().position(|(_, barrier)| *barrier == at);
        }
    }

    fn run(ops: Vec<Op>) {
        let doors = [barrier(), barrier()];
        let new = |at: usize| Some(Party { at, home: Rc::new(RefCell::new(Some(doors[at].enrol()))) });
        let mut parties: Vec<Option<Party>> = [0, 0, 1, 1].into_iter().map(new).collect();
        parties.resize_with(PARTIES, || None);
        drop(doors);
        let mut running: Vec<Option<Running>> = (0..PROCESSES).map(|_| None).collect();
        let mut phases = [0; 2];
        for op in ops {
            match op {
                Op::Enrol(n) => {
                    let Some(free) = parties.iter().position(Option::is_none) else { continue };
                    let Some(party) = &parties[n] else { continue };
                    let Some(newcomer) = party.home.borrow().as_ref().map(Barrier::enrol) else { continue };
                    parties[free] = Some(Party { at: party.at, home: Rc::new(RefCell::new(Some(newcomer))) });
                }
                Op::Resign(n) => {
                    let Some(party) = &parties[n] else { continue };
                    let (at, Some(barrier)) = (party.at, party.home.take()) else { continue };
                    drop(barrier);
                    parties[n] = None;
                    complete(at, &parties, &mut running, &mut phases);
                }
                Op::Begin(who, with, choice) => {
                    if running[who].is_none() {
                        running[who] = begin(&parties, &with, choice);
                    }
                }
                Op::Poll(who) => {
                    let Some(r) = &mut running[who] else { continue };
                    let first = !std::mem::replace(&mut r.begun, true);
                    let (with, expired) = (r.with.clone(), r.expired.get());
                    if first {
                        // The branches reach their barriers one after the other.
                        let all = r.with.clone();
                        for n in 0..all.len() {
                            let Some(r) = &mut running[who] else { unreachable!() };
                            r.with = all[..=n].to_vec();
                            complete(with[n].1, &parties, &mut running, &mut phases);
                            let Some(r) = &mut running[who] else { unreachable!() };
                            if r.done.is_some() || expired {
                                break;
                            }
                        }
                        if let Some(r) = &mut running[who] {
                            r.with = all;
                        }
                    }
                    let Some(r) = &mut running[who] else { unreachable!() };
                    let expected = match r.done {
                        Some(branch) => Some((branch, Ok(()))),
                        None => expired.then_some((0, Err(SyncError::TimedOut))),
                    };
                    assert_eq!(r.future.poll(), expected, "process {who} with {with:?}, choice: {}", r.choice);
                    r.woken = r.future.woken();
                    if expected.is_some() {
                        running[who] = None;
                    }
                }
                Op::Drop(who) => running[who] = None,
                Op::Expire(who) => running[who].iter().for_each(|r| r.expired.set(true)),
            }
            for r in running.iter().flatten().filter(|r| r.done.is_some()) {
                assert!(r.future.woken() > r.woken, "{:?} can go on, and was not woken", r.with);
            }
            for party in parties.iter().flatten() {
                if let Some(barrier) = &*party.home.borrow() {
                    assert_eq!(barrier.phases(), phases[party.at]);
                    let enrolled = parties.iter().flatten().filter(|other| other.at == party.at).count();
                    assert_eq!(barrier.parties(), enrolled);
                }
            }
        }
    }

    fn config(cases: u32) -> ProptestConfig {
        // `PROPTEST_CASES` overrides this number.
        let given = std::env::var("PROPTEST_CASES").is_ok();
        let config =
            ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() };
        if given { config } else { ProptestConfig { cases, ..config } }
    }

    proptest! {
        #![proptest_config(config(500))]
        #[test]
        fn agrees_with_a_sequential_model(ops in ops()) {
            run(ops);
        }
    }
}
