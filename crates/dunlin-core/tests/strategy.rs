//! Choices with a strategy of the user's own: what it sees, what its answers do, and what they cannot do.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use dunlin_core::agent::{Event, Outlet, Reserved};
use dunlin_core::{Candidate, Choice, Picker, Receiver, Sender, Strategy, channel, channel_with, fifo, future};

use common::{hand, waiting};

fn outcome<F: Future>(future: F) -> F::Output {
    hand(future).run().expect("it waits")
}

/// `count` channels, each with `values` in its buffer.
fn full(count: usize, values: usize) -> (Vec<Sender<usize>>, Vec<Receiver<usize>>) {
    let (mut senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| channel_with(fifo(values.max(1)))).unzip();
    for tx in &mut senders {
        (0..values).for_each(|value| tx.try_send(value).unwrap());
    }
    (senders, receivers)
}

fn first(ready: &[Candidate]) -> usize {
    ready[0].branch
}

/// CoCoL's priorities, written as strategies: first, fair, and a share of one's own.
#[test]
fn the_strategy_decides_which_ready_branch_is_taken() {
    fn taken(strategy: impl Strategy) -> Vec<usize> {
        let (_senders, mut receivers) = full(3, 12);
        let mut picker = Picker::new(strategy);
        let mut choose = || {
            let choice = Choice::random().all(receivers.iter_mut().map(|rx| rx.recv()));
            outcome(choice.picked_by(&mut picker).into_future()).unwrap().0
        };
        (0..8).map(|_| choose()).collect()
    }
    assert_eq!(taken(first), [0; 8]);
    assert_eq!(taken(|ready: &[Candidate]| ready[ready.len() - 1].branch), [2; 8]);
    let longest = |ready: &[Candidate]| ready.iter().rev().max_by_key(|c| c.passed).unwrap().branch;
    assert_eq!(taken(longest), [0, 1, 2, 0, 1, 2, 0, 1]);
    let share = |c: &Candidate| c.turns * [1, 1, 2][c.branch];
    let shares = taken(move |ready: &[Candidate]| ready.iter().min_by_key(|c| share(c)).unwrap().branch);
    assert_eq!(shares, [0, 1, 2, 0, 1, 0, 1, 2]);
}

#[test]
fn a_strategy_sees_only_what_is_on_and_looks_ready_and_the_turns() {
    let (_senders, mut receivers) = full(4, 2);
    let _ = (receivers[1].try_recv(), receivers[1].try_recv());
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let record = seen.clone();
    let mut picker = Picker::new(move |ready: &[Candidate]| {
        record.lock().unwrap().push(ready.iter().map(|c| (c.branch, c.turns, c.passed)).collect::<Vec<_>>());
        ready[0].branch
    });
    for _ in 0..3 {
        let [a, b, c, d] = &mut receivers[..] else { unreachable!() };
        let choice = Choice::fair().on(a.recv(), |r| r).on(b.recv(), |r| r).on_if(false, || c.recv(), |r| r);
        let chosen = outcome(choice.on(d.recv(), |r| r).picked_by(&mut picker).into_future()).unwrap().0;
        assert!(chosen == 0 || chosen == 3);
    }
    assert_eq!(*seen.lock().unwrap(), [vec![(0, 0, 0), (3, 0, 0)], vec![(0, 1, 0), (3, 0, 1)], vec![(3, 0, 2)]]);
    assert_eq!([0, 1, 2, 3, 100].map(|branch| picker.turns(branch)), [2, 0, 0, 1, 0]);
}

#[test]
fn an_answer_that_is_no_ready_branch_is_an_error_and_nothing_has_happened() {
    // Not ready, off, and no branch at all.
    for picked in [0, 2, 3, usize::MAX] {
        let (_senders, mut receivers) = full(3, 1);
        receivers[0].try_recv().unwrap();
        let mut picker = Picker::new(move |_: &[Candidate]| picked);
        let [a, b, c] = &mut receivers[..] else { unreachable!() };
        let choice = Choice::fair().on(a.recv(), |r| r).on(b.recv(), |r| r).on_if(false, || c.recv(), |r| r);
        let error = outcome(choice.skip(Ok(9)).picked_by(&mut picker).into_future()).unwrap_err();
        assert_eq!((error.picked, &error.ready[..]), (picked, &[1][..]));
        let text = format!("the strategy picked branch {picked}, which is none of the ready ones [1]");
        assert_eq!(error.to_string(), text);
        assert_eq!((picker.turns(picked), picker.turns(1)), (0, 0));
        assert_eq!((receivers[1].try_recv(), receivers[2].try_recv()), (Ok(0), Ok(0)));
    }
}

#[test]
fn a_wrong_answer_withdraws_the_send_beside_it() {
    let ((mut tx, mut far), (mut ty, mut ry)) = (channel(), channel());
    let mut slot = Some(7);
    let mut asked = 0;
    let mut picker = Picker::new(|ready: &[Candidate]| {
        asked += 1;
        if asked == 1 { ready[0].branch } else { 9 }
    });
    let choice = Choice::fair().on(tx.send_from(&mut slot), |r| r.is_ok()).on(ry.recv(), |r| r.is_ok());
    let mut choice = waiting(choice.picked_by(&mut picker).into_future());
    let send = waiting(ty.send(1));
    assert_eq!(choice.run().unwrap().unwrap_err().ready, [0, 1]);
    assert!(far.try_recv().is_err(), "the offer is withdrawn before the choice is dropped");
    drop((choice, send));
    assert_eq!(slot, Some(7));
}

/// The strategy answers nonsense while a receiver elsewhere has the send reserved: the choice waits for that
/// receiver, whose answer stands.
#[test]
fn a_reserved_send_comes_before_a_wrong_answer() {
    for given_back in [false, true] {
        let ((mut tx, far), (mut ty, mut ry)) = (channel(), channel());
        let (mut outlet, mut slot, mut asked) = (Outlet::new(far), Some(7), 0);
        let mut picker = Picker::new(|ready: &[Candidate]| {
            asked += 1;
            if asked == 1 { ready[0].branch } else { 9 }
        });
        let choice = Choice::fair().on(tx.send_from(&mut slot), |r| r.is_ok()).on(ry.recv(), |r| r.is_ok());
        let mut choice = hand(choice.picked_by(&mut picker).into_future());
        assert!(choice.run().is_none());
        let Event::ChoiceOffer(ticket, _) = outcome(poll_fn(|cx| outlet.poll(cx))) else { panic!("not offered") };
        let Reserved::Granted(value) = outlet.reserve(ticket) else { panic!("not reserved") };
        let send = waiting(ty.send(1));
        assert!(choice.run().is_none(), "reserved");
        if given_back {
            outlet.give_back(ticket, value);
            assert_eq!(choice.run().unwrap().unwrap_err().picked, 9);
        } else {
            outlet.taken(ticket);
            assert_eq!(choice.run().unwrap().unwrap(), (0, true));
        }
        drop((choice, send));
        assert_eq!((slot, asked), (given_back.then_some(7), 2));
    }
}

#[test]
fn a_picked_branch_that_is_not_ready_is_left_out() {
    let ((mut tx, _far), (mut ty, mut ry)) = (channel(), channel_with(fifo(1)));
    let mut slot = Some(7);
    let mut seen = Vec::new();
    ty.try_send(1).unwrap();
    let mut picker = Picker::new(|ready: &[Candidate]| {
        seen.push(ready.len());
        ready[0].branch
    });
    let choice = Choice::fair().on(tx.send_from(&mut slot), |r| r.is_ok()).on(future(pending()), |()| false);
    let choice = choice.on(ry.recv(), |r| r == Ok(1));
    assert_eq!(outcome(choice.picked_by(&mut picker).into_future()), Ok((2, true)));
    assert_eq!((picker.turns(2), picker.turns(0)), (1, 0));
    assert_eq!((seen, slot), (vec![3, 2, 1], Some(7)));
}

#[test]
fn a_choice_with_a_strategy_waits_skips_and_is_woken_like_any_other() {
    let ((mut tx, mut rx), (_ty, mut ry)) = (channel(), channel::<u8>());
    let mut picker = Picker::new(first);
    let choice = Choice::fair().on(rx.recv(), |r| r).on(ry.recv(), |r| r).skip(Ok(9));
    assert_eq!(outcome(choice.picked_by(&mut picker).into_future()), Ok((2, Ok(9))));
    assert_eq!(picker.turns(2), 0, "`skip` is no branch");
    let mut choice = waiting(Choice::fair().all([rx.recv(), ry.recv()]).picked_by(&mut picker).into_future());
    let mut send = waiting(tx.send(7));
    assert_eq!(choice.woken.count(), 1);
    assert_eq!((choice.poll(), send.poll()), (Some(Ok((0, Ok(7)))), Some(Ok(()))));
    drop((choice, send));
    // A send that a receive takes while the choice waits.
    let (mut tz, mut rz) = channel();
    let mut slot = Some(1);
    let choice = Choice::fair().on(ry.recv(), |_| false).on(tz.send_from(&mut slot), |r| r.is_ok());
    let mut choice = waiting(choice.picked_by(&mut picker).into_future());
    assert_eq!(rz.try_recv(), Ok(1));
    assert_eq!(choice.poll(), Some(Ok((1, true))));
    drop(choice);
    assert_eq!((slot, picker.turns(1)), (None, 1));
}

#[test]
fn many_branches_and_a_panic_of_the_strategy() {
    let (_senders, mut receivers) = full(200, 1);
    let mut picker = Picker::new(|ready: &[Candidate]| ready[ready.len() / 2].branch);
    for left in (1..=200).rev() {
        let mut on: Vec<_> = receivers.iter_mut().filter(|rx| !rx.is_empty()).collect();
        assert_eq!(on.len(), left);
        let chosen =
            outcome(Choice::fair().all(on.iter_mut().map(|rx| rx.recv())).picked_by(&mut picker).into_future());
        assert_eq!(chosen, Ok((left / 2, Ok(0))));
    }
    let (_senders, mut receivers) = full(1, 1);
    let mut panics = Picker::new(|_: &[Candidate]| -> usize { panic!("no idea") });
    let choice = Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).picked_by(&mut panics);
    assert!(catch_unwind(AssertUnwindSafe(|| outcome(choice.into_future()))).is_err());
    assert_eq!(receivers[0].try_recv(), Ok(0));
    let none = Choice::<u8>::fair();
    let every_branch_is_off = catch_unwind(AssertUnwindSafe(|| outcome(none.picked_by(&mut panics).into_future())));
    assert!(every_branch_is_off.is_err());
}
