//! Loom: parties of a barrier against each other, in choices and outside of them, and against events that end
//! a wait.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_barrier`
#![cfg(loom)]

mod loom_support;

use std::future::{pending, poll_fn};

use dunlin_core::agent::{Event, Outlet, Reserved};
use dunlin_core::{Barrier, Operation, Receiver, Sender, SyncError, alt, barrier, channel, future};
use loom_support::{block_on, model, model_within, spawn, try_once, yield_once};

/// The outcome of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Synced,
    Sent,
    Received,
}

fn sync_or_receive(phase: &mut Barrier, rx: &mut Receiver<u32>, receive_first: bool) -> Did {
    block_on(async {
        if receive_first {
            alt! { biased;
                v = rx.recv() => { assert_eq!(v, Ok(7)); Did::Received }
                r = phase.sync() => { assert_eq!(r, Ok(())); Did::Synced }
            }
        } else {
            alt! { biased;
                r = phase.sync() => { assert_eq!(r, Ok(())); Did::Synced }
                v = rx.recv() => { assert_eq!(v, Ok(7)); Did::Received }
            }
        }
    })
}

fn sync_or_send(phase: &mut Barrier, tx: &mut Sender<u32>, send_first: bool) -> Did {
    let mut slot = Some(7);
    let did = block_on(async {
        if send_first {
            alt! { biased;
                r = tx.send_from(&mut slot) => { assert_eq!(r, Ok(())); Did::Sent }
                r = phase.sync() => { assert_eq!(r, Ok(())); Did::Synced }
            }
        } else {
            alt! { biased;
                r = phase.sync() => { assert_eq!(r, Ok(())); Did::Synced }
                r = tx.send_from(&mut slot) => { assert_eq!(r, Ok(())); Did::Sent }
            }
        }
    });
    assert_eq!(slot.is_none(), did == Did::Sent, "{did:?}, slot {slot:?}");
    did
}

/// Syncs with one of two barriers.
fn sync_one_of(one: &mut Barrier, other: &mut Barrier) -> u32 {
    block_on(async {
        alt! { biased;
            r = one.sync() => { assert_eq!(r, Ok(())); 1 }
            r = other.sync() => { assert_eq!(r, Ok(())); 2 }
        }
    })
}

/// Two parties, phase after phase: neither gets ahead of the other.
#[test]
fn two_parties() {
    model(|| {
        let mut a = barrier();
        let mut b = a.enrol();
        let other = spawn(move || {
            for phase in 0..2 {
                assert_eq!(b.phases(), phase);
                assert_eq!(block_on(b.sync()), Ok(()));
            }
        });
        for phase in 0..2 {
            assert_eq!(a.phases(), phase);
            assert_eq!(block_on(a.sync()), Ok(()));
        }
        other.join();
    });
}

#[test]
fn three_parties() {
    model_within(2, || {
        let mut a = barrier();
        let others = [a.enrol(), a.enrol()].map(|mut b| spawn(move || block_on(b.sync())));
        assert_eq!(block_on(a.sync()), Ok(()));
        for other in others {
            assert_eq!(other.join(), Ok(()));
        }
        assert_eq!(a.phases(), 1);
    });
}

/// A party waits | the other resigns.
#[test]
fn sync_completes_when_the_other_party_resigns() {
    model(|| {
        let mut a = barrier();
        let b = a.enrol();
        let other = spawn(move || drop(b));
        assert_eq!(block_on(a.sync()), Ok(()));
        other.join();
    });
}

/// The same in a choice, whose other branch never happens.
#[test]
fn sync_branch_completes_when_the_other_party_resigns() {
    model(|| {
        let (mut a, (_tx, mut rx)) = (barrier(), channel());
        let b = a.enrol();
        let other = spawn(move || drop(b));
        assert_eq!(sync_or_receive(&mut a, &mut rx, false), Did::Synced);
        other.join();
    });
}

/// Two choices at one barrier.
#[test]
fn two_choices() {
    model(|| {
        let ((mut a, (_tx, mut rx)), (ty, mut ry)) = ((barrier(), channel()), channel());
        let mut b = a.enrol();
        let other = spawn(move || {
            let _ty = ty;
            sync_or_receive(&mut b, &mut ry, true)
        });
        assert_eq!(sync_or_receive(&mut a, &mut rx, false), Did::Synced);
        assert_eq!(other.join(), Did::Synced);
    });
}

/// Two choices over two barriers in opposite order. They must lock both decisions in ascending order, or they
/// deadlock; both must take the same barrier, or one of them stays alone.
#[test]
fn two_barriers_over_two_choices() {
    model_within(2, || {
        // At each of the two barriers another party enrols first.
        let (mut a, mut y) = (barrier(), barrier());
        let (mut b, mut x) = (a.enrol(), y.enrol());
        let other = spawn(move || 3 - sync_one_of(&mut y, &mut b));
        let mine = sync_one_of(&mut a, &mut x);
        assert_eq!(other.join(), mine);
        assert_eq!((a.phases(), x.phases()), if mine == 1 { (1, 0) } else { (0, 1) });
    });
}

/// A choice between two barriers, at each of which a party waits: one party proceeds; the other proceeds when
/// the choice resigns.
#[test]
fn a_choice_between_two_waiting_parties() {
    model_within(2, || {
        let (mut a, mut x) = (barrier(), barrier());
        let (mut b, mut y) = (a.enrol(), x.enrol());
        let others = [spawn(move || block_on(b.sync())), spawn(move || block_on(y.sync()))];
        let mine = sync_one_of(&mut a, &mut x);
        assert_eq!((a.phases(), x.phases()), if mine == 1 { (1, 0) } else { (0, 1) });
        drop((a, x));
        for other in others {
            assert_eq!(other.join(), Ok(()));
        }
    });
}

/// A choice between a barrier and a channel | the other party arrives | a value is sent: one of the two.
fn barrier_or_channel(receive_first: bool) {
    let (mut a, (mut tx, mut rx)) = (barrier(), channel());
    let mut b = a.enrol();
    let other = spawn(move || block_on(b.sync()));
    let sender = spawn(move || block_on(tx.send(7)).is_ok());
    let did = sync_or_receive(&mut a, &mut rx, receive_first);
    assert_eq!(a.phases(), u64::from(did == Did::Synced));
    drop((a, rx));
    assert_eq!(sender.join(), did == Did::Received);
    assert_eq!(other.join(), Ok(()));
}

#[test]
fn barrier_before_a_receive() {
    model_within(2, || barrier_or_channel(false));
}

#[test]
fn barrier_after_a_receive() {
    model_within(2, || barrier_or_channel(true));
}

/// Both parties are in choices, and one could send to the other instead: they agree on the phase or on the
/// value.
fn agree_on_one(send_first: bool, receive_first: bool) {
    let (mut a, (mut tx, mut rx)) = (barrier(), channel());
    let mut b = a.enrol();
    let other = spawn(move || sync_or_send(&mut b, &mut tx, send_first));
    let mine = sync_or_receive(&mut a, &mut rx, receive_first);
    match (mine, other.join()) {
        (Did::Synced, Did::Synced) => assert_eq!(a.phases(), 1),
        (Did::Received, Did::Sent) => assert_eq!(a.phases(), 0),
        other => panic!("the two do not agree: {other:?}"),
    }
}

#[test]
fn agree_barrier_first() {
    model_within(2, || agree_on_one(false, false));
}

#[test]
fn agree_barrier_last() {
    model_within(2, || agree_on_one(true, true));
}

/// A deadline is ready | the other party arrives: both report the same. The other ends when this one resigns.
#[test]
fn a_deadline_races_the_last_arrival() {
    model(|| {
        let mut a = barrier();
        let mut b = a.enrol();
        let other = spawn(move || {
            assert_eq!(block_on(b.sync()), Ok(()));
            b.phases()
        });
        let mine = block_on(a.sync().until(yield_once()));
        let took_part = a.phases() == 1;
        drop(a);
        match mine {
            Ok(()) => assert!(took_part),
            Err(SyncError::TimedOut) => assert!(!took_part),
            Err(other) => panic!("{other:?}"),
        }
        assert_eq!(other.join(), 1);
    });
}

#[test]
fn a_deadline_of_a_branch_races_the_last_arrival() {
    model(|| {
        let (mut a, (_tx, mut rx)) = (barrier(), channel::<u32>());
        let mut b = a.enrol();
        let other = spawn(move || block_on(b.sync()));
        let mine = block_on(async {
            alt! { biased; r = a.sync().until(yield_once()) => r, v = rx.recv() => panic!("{v:?}") }
        });
        assert_eq!(a.phases(), u64::from(mine.is_ok()));
        drop(a);
        assert_eq!(other.join(), Ok(()));
    });
}

/// `skip` | the other party arrives.
#[test]
fn skip_races_the_last_arrival() {
    model(|| {
        let mut a = barrier();
        let mut b = a.enrol();
        let other = spawn(move || block_on(b.sync()));
        let synced = block_on(async {
            alt! { biased; r = a.sync() => { r.unwrap(); true } skip => false }
        });
        assert_eq!(a.phases(), u64::from(synced));
        drop(a);
        assert_eq!(other.join(), Ok(()));
    });
}

/// A choice is dropped | the other party arrives: the phase number shows whether the phase took place.
#[test]
fn a_dropped_choice_races_the_last_arrival() {
    model(|| {
        let (mut a, (_tx, mut rx)) = (barrier(), channel::<u32>());
        let mut b = a.enrol();
        let other = spawn(move || {
            let there = try_once(b.sync()).is_some();
            (there, b)
        });
        let synced = try_once(async {
            alt! { biased; r = a.sync() => r.unwrap(), v = rx.recv() => drop(v) }
        });
        let (there, b) = other.join();
        // The last of the two to arrive sees the phase; the first was dropped before it could.
        assert_eq!(b.phases(), u64::from(synced.is_some() || there));
    });
}

/// A party enrols a newcomer while all others have arrived or arrive: a complete phase did not count the
/// newcomer, or the newcomer took part.
#[test]
fn a_newcomer_races_completion() {
    model_within(2, || {
        let mut a = barrier();
        let (mut b, door) = (a.enrol(), a.enrol());
        let other = spawn(move || {
            assert_eq!(block_on(b.sync()), Ok(()));
            b.phases()
        });
        let newcomer = spawn(move || {
            let mut newcomer = door.enrol();
            assert_eq!(newcomer.phases(), 0, "no party proceeds without the door");
            drop(door);
            assert_eq!(block_on(newcomer.sync()), Ok(()));
            newcomer.phases()
        });
        assert_eq!(block_on(a.sync()), Ok(()));
        assert_eq!((other.join(), newcomer.join()), (1, 1));
    });
}

/// A party that does not wait enrols a newcomer, before or after the phase is complete.
#[test]
fn enrolled_during_completion() {
    model(|| {
        let mut a = barrier();
        let b = a.enrol();
        let other = spawn(move || {
            let newcomer = b.enrol();
            let before = newcomer.phases();
            drop(b);
            // The other party waits, or will wait, for this one alone.
            assert_eq!(newcomer.phases(), before);
            drop(newcomer);
        });
        assert_eq!(block_on(a.sync()), Ok(()));
        other.join();
        assert_eq!((a.phases(), a.parties()), (1, 1));
    });
}

/// While a choice polls a foreign future it is closed: a last arrival then does not complete the phase, and
/// no other party arrives later.
#[test]
fn a_closed_choice_is_not_missed() {
    model(|| {
        let mut a = barrier();
        let mut b = a.enrol();
        let other = spawn(move || block_on(b.sync()));
        block_on(async {
            alt! { biased;
                r = a.sync() => r.unwrap(),
                () = future(async { yield_once().await; pending().await }) => {}
            }
        });
        assert_eq!(other.join(), Ok(()));
    });
}

/// The same when the barrier is polled first and the foreign future after it.
#[test]
fn a_choice_that_closes_last_is_not_missed() {
    model(|| {
        let mut a = barrier();
        let mut b = a.enrol();
        let other = spawn(move || block_on(b.sync()));
        block_on(async {
            alt! { biased;
                r = a.sync().until(pending::<()>()) => r.unwrap(),
                () = future(async { yield_once().await; pending().await }) => {}
            }
        });
        assert_eq!(other.join(), Ok(()));
    });
}

/// The same when both choices are closed now and then.
#[test]
fn two_closed_choices_are_not_missed() {
    model_within(2, || {
        let a = barrier();
        let b = a.enrol();
        let choose = |mut phase: Barrier| {
            block_on(async {
                alt! { biased;
                    r = phase.sync() => r.unwrap(),
                    () = future(async { yield_once().await; pending().await }) => {}
                }
            })
        };
        let other = spawn(move || choose(b));
        choose(a);
        other.join();
    });
}

/// A foreign future becomes ready | the other party arrives: exactly one of the two happens.
#[test]
fn a_foreign_future_races_the_last_arrival() {
    model(|| {
        let mut a = barrier();
        let mut b = a.enrol();
        let other = spawn(move || block_on(b.sync()));
        let synced = block_on(async {
            alt! { biased; r = a.sync() => { r.unwrap(); true } () = future(yield_once()) => false }
        });
        assert_eq!(a.phases(), u64::from(synced));
        drop(a);
        assert_eq!(other.join(), Ok(()));
    });
}

/// A choice takes another branch, so it is no longer at the barrier, and then arrives again.
#[test]
fn choice_arrives_again_after_another_branch() {
    model_within(2, || {
        let (mut a, (mut tx, mut rx)) = (barrier(), channel());
        let mut b = a.enrol();
        let other = spawn(move || block_on(b.sync()));
        let sender = spawn(move || block_on(tx.send(7)).is_ok());
        let first = sync_or_receive(&mut a, &mut rx, false);
        if first == Did::Received {
            assert_eq!(block_on(a.sync()), Ok(()));
        } else {
            assert_eq!(block_on(rx.recv()), Ok(7));
        }
        assert!(sender.join());
        assert_eq!(other.join(), Ok(()));
        assert_eq!(a.phases(), 1);
    });
}

/// The send of a choice is reserved for a remote receiver, which takes it or gives it back | the other party
/// arrives.
fn a_reservation_races_the_last_arrival(takes: bool) {
    let (mut a, (mut tx, far)) = (barrier(), channel());
    let mut b = a.enrol();
    let mut outlet = Outlet::new(far);
    let other = spawn(move || block_on(b.sync()));
    let agent = spawn(move || {
        let mut taken = false;
        while let Event::ChoiceOffer(ticket, _) | Event::Unlocked(ticket) = block_on(poll_fn(|cx| outlet.poll(cx))) {
            match outlet.reserve(ticket) {
                Reserved::Granted(_) if takes => {
                    outlet.taken(ticket);
                    taken = true;
                }
                Reserved::Granted(value) => outlet.give_back(ticket, value),
                Reserved::Later => {}
                Reserved::Gone => break,
            }
        }
        (taken, outlet)
    });
    let did = sync_or_send(&mut a, &mut tx, true);
    assert_eq!(a.phases(), u64::from(did == Did::Synced));
    drop((a, tx));
    assert_eq!(other.join(), Ok(()));
    let (taken, _outlet) = agent.join();
    assert_eq!(taken, did == Did::Sent);
}

#[test]
fn a_reservation_that_is_used() {
    model_within(2, || a_reservation_races_the_last_arrival(true));
}

#[test]
fn a_reservation_that_is_given_back() {
    model_within(2, || a_reservation_races_the_last_arrival(false));
}

/// A phase was complete before this choice, and one branch reports it | the offer of the other branch is
/// taken: exactly one of the two happens.
#[test]
fn completed_phase_races_a_take() {
    model(|| {
        let ((mut a, (mut tx, mut rx)), mut slot) = ((barrier(), channel()), Some(7));
        let mut b = a.enrol();
        let mut sync = a.sync();
        assert_eq!(try_once(&mut sync), None);
        assert_eq!(try_once(b.sync()), Some(Ok(())));
        let receiver = spawn(move || block_on(rx.recv()).is_ok());
        let synced = block_on(async {
            alt! { biased; r = tx.send_from(&mut slot) => { r.unwrap(); false } r = &mut sync => { r.unwrap(); true } }
        });
        assert_eq!(synced, slot.is_some());
        if !synced {
            assert_eq!(try_once(&mut sync), Some(Ok(())), "the next sync reports the phase");
        }
        drop(tx);
        assert_eq!(receiver.join(), !synced);
    });
}
