//! Broadcast: single cases, and random operations against a sequential model.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn, ready};
use std::panic::Location;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use dunlin_core::agent::{Event, Outlet};
use dunlin_core::waits::{self, Doing};
use dunlin_core::{
    Broadcast, BroadcastError, CompleteError, Joiner, MessageId, Operation, Receiver, RecvError, Why, alt, broadcast,
    broadcast_with, doc, fifo, par,
};
use proptest::prelude::*;

use common::{Wakes, poll, poll_woken};

fn failed<T>(value: T, why: Why, received: usize) -> Option<Result<(), BroadcastError<T>>> {
    Some(Err(BroadcastError { value, why, received }))
}

#[test]
fn broadcast_is_ok_when_all_receivers_have_the_value() {
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b) = (joiner.join(), joiner.join());
    let wakes = Arc::new(Wakes::default());
    let mut send = tx.send(1);
    assert_eq!(poll_woken(&mut send, &wakes), None);
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll_woken(&mut send, &wakes), None, "b has not");
    assert_eq!(a.try_recv(), Err(RecvError::WouldBlock), "each value once");
    assert_eq!(b.try_recv(), Ok(1));
    assert_eq!(wakes.count(), 2);
    assert_eq!(poll_woken(&mut send, &wakes), Some(Ok(())));
}

#[test]
fn send_does_not_wait_for_a_leaving_receiver() {
    let (mut tx, joiner) = broadcast();
    let (mut a, b, c) = (joiner.join(), joiner.join(), joiner.join());
    let wakes = Arc::new(Wakes::default());
    let mut send = tx.send(1);
    assert_eq!(poll_woken(&mut send, &wakes), None);
    assert_eq!(a.try_recv(), Ok(1));
    drop(b);
    assert_eq!(poll_woken(&mut send, &wakes), None, "c has joined");
    c.retire();
    assert_eq!(wakes.count(), 3);
    assert_eq!(poll_woken(&mut send, &wakes), Some(Ok(())));
    drop(send);
    assert_eq!(tx.joined(), 1);
}

#[test]
fn receiver_that_joins_during_a_send_gets_the_next_value() {
    let (mut tx, joiner) = broadcast();
    let mut a = joiner.join();
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    let mut b = joiner.join();
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), Some(Ok(())), "b came too late for this one");
    drop(send);
    let mut send = tx.send(2);
    assert_eq!(poll(&mut send), None);
    assert_eq!((a.try_recv(), b.try_recv()), (Ok(2), Ok(2)));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

fn incomplete<T>(value: T, received: usize, withdrawn: usize, unknown: usize) -> Option<Result<(), CompleteError<T>>> {
    Some(Err(CompleteError::Incomplete { value, received, withdrawn, unknown }))
}

/// A deadline that is ready once `passed` is set.
fn bound(passed: &Cell<bool>) -> impl Future<Output = ()> + use<'_> {
    std::future::poll_fn(|_| if passed.get() { Poll::Ready(()) } else { Poll::Pending })
}

#[test]
fn complete_until_withdraws_from_receivers_that_have_not_received() {
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b, mut c) = (joiner.join(), joiner.join(), joiner.join());
    let (passed, answers) = (Cell::new(false), Cell::new(false));
    let mut send = Box::pin(tx.send(1).complete_until(bound(&passed), bound(&answers)));
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), None, "the bound has not passed");
    assert_eq!(c.try_recv(), Ok(1));
    passed.set(true);
    assert_eq!(poll(&mut send), incomplete(1, 2, 1, 0), "nothing here has to be awaited");
    assert_eq!(b.try_recv(), Err(RecvError::WouldBlock), "it never gets the value");
    drop(send);
    assert_eq!(tx.joined(), 3);
    let mut send = tx.send(2);
    assert_eq!(poll(&mut send), None);
    assert_eq!((a.try_recv(), b.try_recv(), c.try_recv()), (Ok(2), Ok(2), Ok(2)));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn complete_until_is_ok_when_all_have_received() {
    let (mut tx, joiner) = broadcast();
    let (mut a, b) = (joiner.join(), joiner.join());
    let mut send = Box::pin(tx.send(1).complete_until(std::future::pending::<()>(), ready(())));
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(1));
    drop(b);
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn complete_until_bounds_only_the_wait_for_receivers() {
    let (tx, joiner) = broadcast();
    let mut tx = tx.at_least(2);
    let _a = joiner.join();
    let mut send = Box::pin(tx.send(1).complete_until(ready(()), ready(())));
    assert_eq!(poll(&mut send), None, "it waits for another one to join");
    let _b = joiner.join();
    assert_eq!(poll(&mut send), incomplete(1, 0, 2, 0));
    drop(send);
    let mut tx = tx.at_least(3);
    let mut send = Box::pin(tx.send(2).complete_until(ready(()), ready(())).until(ready(())));
    let error = BroadcastError { value: 2, why: Why::TimedOut, received: 0 };
    assert_eq!(poll(&mut send), Some(Err(CompleteError::Failed(error))), "too few have joined");
}

#[test]
fn complete_until_counts_a_value_that_is_held_as_received() {
    for plain in [true, false] {
        let (mut tx, joiner) = broadcast();
        let (mut a, mut b) = (joiner.join(), joiner.join());
        let passed = Cell::new(false);
        let mut send = Box::pin(tx.send(1).complete_until(bound(&passed), std::future::pending::<()>()));
        assert_eq!(poll(&mut send), None);
        let held = if plain {
            doc::block_on(a.recv_extended()).unwrap()
        } else {
            // A choice makes the channel create its queue.
            doc::block_on(async {
                alt! { held = a.recv_extended() => held.unwrap() }
            })
        };
        passed.set(true);
        assert_eq!(poll(&mut send), incomplete(1, 1, 1, 0));
        drop(send);
        assert_eq!(*held, 1);
        drop(held);
        let mut send = tx.send(2);
        assert_eq!(poll(&mut send), None);
        assert_eq!((a.try_recv(), b.try_recv()), (Ok(2), Ok(2)));
        assert_eq!(poll(&mut send), Some(Ok(())));
    }
}

#[test]
fn complete_until_is_poisoned_when_a_receiver_poisons() {
    let (mut tx, joiner) = broadcast();
    let (a, mut b) = (joiner.join(), joiner.join());
    let passed = Cell::new(false);
    let mut send = Box::pin(tx.send(1).complete_until(bound(&passed), ready(())));
    assert_eq!(poll(&mut send), None);
    assert_eq!(b.try_recv(), Ok(1));
    a.poison("no");
    passed.set(true);
    let error = BroadcastError { value: 1, why: Why::Poisoned("no".into()), received: 1 };
    assert_eq!(poll(&mut send), Some(Err(CompleteError::Failed(error))));
}

/// The outcome at a remote receiver whose agent has the value is unknown until the agent answers.
#[test]
fn complete_until_counts_a_silent_agent_as_unknown() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Answer {
        None,
        Withdrawn,
        Taken,
        Lost,
    }
    for answer in [Answer::None, Answer::Withdrawn, Answer::Taken, Answer::Lost] {
        let (mut tx, joiner) = broadcast::<u8>();
        let (mut here, there) = (joiner.join(), joiner.join());
        let mut agent = Outlet::new(there);
        let (passed, over) = (Cell::new(false), Cell::new(false));
        let wakes = Arc::new(Wakes::default());
        let mut send = Box::pin(tx.send(1).complete_until(bound(&passed), bound(&over)));
        assert_eq!(poll_woken(&mut send, &wakes), None);
        assert_eq!(here.try_recv(), Ok(1));
        let Some(Event::FirmOffer(ticket, value)) = poll(&mut poll_fn(|cx| agent.poll(cx))) else { panic!() };
        passed.set(true);
        assert_eq!(poll_woken(&mut send, &wakes), None, "the agent is asked");
        let asked = poll(&mut poll_fn(|cx| agent.poll(cx)));
        assert!(matches!(asked, Some(Event::AskedBack(asked)) if asked == ticket));
        let before = wakes.count();
        match answer {
            Answer::None => over.set(true),
            Answer::Withdrawn => agent.withdrawn(ticket, Some(value.into())),
            Answer::Taken => agent.taken(ticket),
            Answer::Lost => agent.lost(ticket, value, MessageId { channel: 1, number: 1 }),
        }
        assert_eq!(wakes.count() > before, answer != Answer::None, "{answer:?}");
        let sent = poll_woken(&mut send, &wakes);
        drop(send);
        match answer {
            Answer::None => {
                assert_eq!(sent, incomplete(1, 1, 0, 1));
                // The agent answers later.
                agent.withdrawn(ticket, Some(value.into()));
            }
            Answer::Withdrawn => assert_eq!(sent, incomplete(1, 1, 1, 0)),
            Answer::Taken => assert_eq!(sent, Some(Ok(()))),
            Answer::Lost => assert_eq!((sent, tx.joined()), (Some(Ok(())), 1), "it has left"),
        }
        if answer == Answer::Lost {
            continue;
        }
        let mut send = Box::pin(tx.send(2));
        assert_eq!(poll(&mut send), None);
        let next = poll(&mut poll_fn(|cx| agent.poll(cx)));
        let Some(Event::FirmOffer(ticket, 2)) = next else { panic!("{next:?}") };
        agent.taken(ticket);
        assert_eq!((here.try_recv(), poll(&mut send)), (Ok(2), Some(Ok(()))), "{answer:?}");
    }
}

#[test]
fn a_broadcast_without_a_minimum_needs_no_receiver() {
    let (mut tx, joiner) = broadcast();
    assert_eq!(poll(&mut tx.send(1)), Some(Ok(())));
    let mut tx = tx.at_least(2);
    let wakes = Arc::new(Wakes::default());
    let mut send = tx.send(2);
    assert_eq!(poll_woken(&mut send, &wakes), None);
    let mut a = joiner.join();
    assert_eq!(poll_woken(&mut send, &wakes), None);
    drop(joiner.join());
    assert_eq!(poll_woken(&mut send, &wakes), None, "that one has left again");
    let mut b = joiner.join();
    assert!(wakes.take() > 0);
    assert_eq!(poll_woken(&mut send, &wakes), None, "begun");
    assert_eq!((a.try_recv(), b.try_recv()), (Ok(2), Ok(2)));
    assert_eq!(poll_woken(&mut send, &wakes), Some(Ok(())));
}

#[test]
fn closed_when_no_joiner_is_left() {
    let (tx, joiner) = broadcast();
    let mut tx = tx.at_least(2);
    let (mut a, b) = (joiner.join(), joiner.clone());
    let wakes = Arc::new(Wakes::default());
    let mut send = tx.send("krill");
    assert_eq!(poll_woken(&mut send, &wakes), None);
    drop(joiner);
    assert_eq!(poll_woken(&mut send, &wakes), None, "there is another one");
    drop(b);
    assert_eq!(wakes.count(), 1);
    assert_eq!(poll_woken(&mut send, &wakes), failed("krill", Why::Closed, 0));
    drop(send);
    assert!(!tx.is_closed(), "one is still there");
    let mut tx = tx.at_least(1);
    let mut send = tx.send("squid");
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok("squid"));
    assert_eq!(poll(&mut send), Some(Ok(())));
    drop(send);
    drop(a);
    assert!(tx.is_closed());
    let mut tx = tx.at_least(0);
    assert_eq!(poll(&mut tx.send("plankton")), failed("plankton", Why::Closed, 0), "no receiver can join");
}

/// Enough receivers are joined for the send to begin; then one leaves. Only the beginning counts.
#[test]
fn the_last_leave_wakes_a_broadcast_that_waits_for_the_minimum() {
    let (tx, joiner) = broadcast();
    let mut tx = tx.at_least(2);
    let a = joiner.join();
    let wakes = Arc::new(Wakes::default());
    let mut send = tx.send(1);
    assert_eq!(poll_woken(&mut send, &wakes), None);
    drop((joiner, a));
    assert!(wakes.count() > 0);
    assert_eq!(poll_woken(&mut send, &wakes), failed(1, Why::Closed, 0));
}

#[test]
fn a_deadline_bounds_only_the_wait_for_the_least_number() {
    let (tx, joiner) = broadcast();
    let mut tx = tx.at_least(1);
    assert_eq!(poll(&mut tx.send(1).until(ready(()))), failed(1, Why::TimedOut, 0));
    let mut a = joiner.join();
    let mut send = tx.send(2).until(ready(()));
    assert_eq!(poll(&mut send), None, "it has begun");
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(2));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn a_dropped_send_is_withdrawn_from_the_rest() {
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b) = (joiner.join(), joiner.join());
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(1));
    drop(send);
    assert_eq!(b.try_recv(), Err(RecvError::WouldBlock));
    let mut send = tx.send(2);
    assert_eq!(poll(&mut send), None);
    assert_eq!((a.try_recv(), b.try_recv()), (Ok(2), Ok(2)));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn a_forgotten_send_stands_before_the_next() {
    let (mut tx, joiner) = broadcast();
    let mut a = joiner.join();
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    std::mem::forget(send);
    let mut send = tx.send(2);
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(2));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn poison_from_one_receiver_reaches_all() {
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b, mut c) = (joiner.join(), joiner.join(), joiner.join());
    let mut waits = c.recv();
    let wakes = Arc::new(Wakes::default());
    assert_eq!(poll_woken(&mut waits, &wakes), None);
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(1));
    b.poison("sick");
    let sick = || RecvError::Poisoned("sick".into());
    assert!(wakes.count() > 0, "c is woken by the poison at once");
    assert_eq!(poll_woken(&mut waits, &wakes), Some(Err(sick())));
    assert_eq!((a.try_recv(), b.try_recv()), (Err(sick()), Err(sick())));
    assert_eq!(poll(&mut send), failed(1, Why::Poisoned("sick".into()), 1));
    drop(send);
    assert_eq!(poll(&mut tx.send(2)), failed(2, Why::Poisoned("sick".into()), 0));
    assert_eq!(joiner.join().try_recv(), Err(sick()), "a later receiver gets the reason, too");
    a.poison("too late");
    assert_eq!(joiner.join().try_recv(), Err(sick()), "the first reason stands");
}

#[test]
fn poison_after_delivery_fails_the_next_send() {
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b) = (joiner.join(), joiner.join());
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    assert_eq!((a.try_recv(), b.try_recv()), (Ok(1), Ok(1)));
    a.poison("sick");
    assert_eq!(poll(&mut send), Some(Ok(())));
    drop(send);
    assert!(poll(&mut tx.send(2)).unwrap().unwrap_err().is_poisoned());
}

/// A retired receiver has left, so poison of its own channel affects no other receiver.
#[test]
fn poison_of_a_retired_receiver_reaches_no_other() {
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b) = (joiner.join(), joiner.join());
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    b.retire();
    b.poison("sick");
    assert!(b.try_recv().unwrap_err().is_poisoned());
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn end_of_the_broadcast_reaches_all_receivers() {
    let (tx, joiner) = broadcast_with(fifo(1));
    let (mut tx, mut a) = (tx, joiner.join());
    assert_eq!(poll(&mut tx.send(1)), Some(Ok(())));
    tx.retire();
    assert!(poll(&mut tx.send(2)).unwrap().unwrap_err().is_closed());
    assert_eq!((a.try_recv(), a.try_recv()), (Ok(1), Err(RecvError::Closed)), "buffered values first");
    assert_eq!(joiner.join().try_recv(), Err(RecvError::Closed));
    tx.poison("now");
    assert_eq!(a.try_recv(), Err(RecvError::Poisoned("now".into())), "poison counts after retirement");

    let (tx, joiner) = broadcast::<u8>();
    let mut a = joiner.join();
    let wakes = Arc::new(Wakes::default());
    let mut recv = a.recv();
    assert_eq!(poll_woken(&mut recv, &wakes), None);
    drop(tx);
    assert_eq!(wakes.count(), 1);
    assert_eq!(poll(&mut recv), Some(Err(RecvError::Closed)));
    assert_eq!(joiner.join().try_recv(), Err(RecvError::Closed));
}

/// The poison of one of ten thousand receivers reaches all of them, by a loop and not by recursion.
#[test]
fn poison_reaches_ten_thousand_receivers() {
    let (_tx, joiner) = broadcast::<u8>();
    let mut receivers: Vec<_> = (0..10_000).map(|_| joiner.join()).collect();
    receivers[17].poison("sick");
    assert!(receivers.iter_mut().all(|rx| rx.try_recv().is_err_and(|e| e.is_poisoned())));
}

#[test]
fn a_slow_receiver_holds_up_only_the_next_value() {
    let (mut tx, joiner) = broadcast_with(fifo(1));
    let (mut quick, mut slow) = (joiner.join(), joiner.join());
    assert_eq!(poll(&mut tx.send(1)), Some(Ok(())));
    assert_eq!(quick.try_recv(), Ok(1));
    let mut send = tx.send(2);
    assert_eq!(poll(&mut send), None, "the slow one has no room");
    assert_eq!(quick.try_recv(), Ok(2), "the quick receiver does not wait for it");
    assert_eq!(slow.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn a_refusal_by_one_policy_is_reported() {
    #[derive(Clone)]
    struct One;
    impl dunlin_core::Buffering for One {
        fn admit(&mut self, queued: usize) -> dunlin_core::Admit {
            if queued == 0 { dunlin_core::Admit::Keep } else { dunlin_core::Admit::Refuse }
        }
    }
    let (mut tx, joiner) = broadcast_with(One);
    let (mut quick, mut slow) = (joiner.join(), joiner.join());
    assert_eq!(poll(&mut tx.send(1)), Some(Ok(())));
    assert_eq!(quick.try_recv(), Ok(1));
    assert_eq!(poll(&mut tx.send(2)), failed(2, Why::Refused, 1));
    assert_eq!((quick.try_recv(), slow.try_recv()), (Ok(2), Ok(1)));
    assert_eq!(poll(&mut tx.send(3)), Some(Ok(())), "it is still there");
}

#[test]
fn a_panicking_clone_has_reached_no_receiver() {
    struct Fragile(Rc<Cell<u32>>);
    impl Clone for Fragile {
        fn clone(&self) -> Self {
            self.0.set(self.0.get() + 1);
            assert!(self.0.get() != 2, "fragile");
            Self(self.0.clone())
        }
    }
    let (mut tx, joiner) = broadcast();
    let (mut a, mut b) = (joiner.join(), joiner.join());
    let clones = Rc::new(Cell::new(0));
    let value = Fragile(clones.clone());
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| _ = poll(&mut tx.send(value)))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"fragile"));
    assert!(a.try_recv().is_err() && b.try_recv().is_err());
    let mut send = tx.send(Fragile(clones.clone()));
    assert!(poll(&mut send).is_none());
    assert!(a.try_recv().is_ok() && b.try_recv().is_ok());
    assert!(matches!(poll(&mut send), Some(Ok(()))));
}

#[test]
fn a_joined_receiver_is_like_any_other() {
    doc::block_on(async {
        let (mut tx, joiner) = broadcast();
        let (mut a, b, mut c) = (joiner.join(), joiner.join(), joiner.join());
        let mut b = b.share();
        let mut twin = b.clone();
        let order = std::cell::RefCell::new(Vec::new());
        par!(
            async {
                tx.send(1).await.unwrap();
                order.borrow_mut().push("sent");
                tx.send(2).await.unwrap();
                drop(tx);
            },
            async {
                let value = a.recv_extended().await.unwrap();
                assert_eq!(*value, 1);
                order.borrow_mut().push("held");
                drop(value);
                assert_eq!((a.next().await, a.next().await), (Ok(Some(2)), Ok(None)));
            },
            async {
                assert_eq!(b.recv().await, Ok(1));
                assert_eq!(twin.claim().await.unwrap().recv().await, Ok(2));
            },
            async {
                for expected in [1, 2] {
                    let got = alt! { got = c.recv() => got };
                    assert_eq!(got, Ok(expected));
                }
            },
        );
        assert_eq!(*order.borrow(), ["held", "sent"]);
    });
}

#[test]
fn receivers_of_a_no_poison_joiner_cannot_poison() {
    let (mut tx, joiner) = broadcast::<u8>();
    let joiner = joiner.no_poison();
    let mut a: Receiver<u8, dunlin_core::NoPoison> = joiner.join();
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), Some(Ok(())));
    drop(send);
    drop((joiner, a));
    assert!(tx.is_closed(), "the joiner it was made of is gone");
}

#[test]
fn broadcast_waits_are_shown() {
    // Other tests of this file wait for joiners as well.
    let line = line!() + 1;
    let (tx, joiner) = broadcast();
    let mut tx = tx.at_least(2);
    let mut a = joiner.join();
    let of = |id| waits::snapshot().into_iter().filter(move |w| w.channel == Some(id)).map(|w| w.doing);
    let is_here = |made: &Location<'_>| made.file() == file!() && made.line() == line;
    let joins = || waits::snapshot().into_iter().filter(|w| w.doing == Doing::Join && is_here(w.made)).count();
    let before = joins();
    let mut send = tx.send(1);
    assert_eq!(poll(&mut send), None);
    assert_eq!(joins(), before + 1);
    let mut b = joiner.join();
    assert_eq!(poll(&mut send), None);
    assert_eq!(joins(), before);
    assert_eq!(of(a.id()).chain(of(b.id())).collect::<Vec<_>>(), [Doing::Send; 2]);
    assert_eq!(a.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), None);
    assert_eq!(of(a.id()).chain(of(b.id())).collect::<Vec<_>>(), [Doing::Send], "only b is waited for");
    assert_eq!(b.try_recv(), Ok(1));
    assert_eq!(poll(&mut send), Some(Ok(())));
    assert_eq!(of(a.id()).chain(of(b.id())).count(), 0);
}

/// Values that were not received are dropped, each once, and no reference remains.
#[test]
fn unreceived_broadcast_values_are_dropped_once() {
    let counted = Rc::new(());
    let (mut tx, joiner) = broadcast();
    let (mut a, b) = (joiner.join(), joiner.join());
    let mut send = tx.send(counted.clone());
    assert!(poll(&mut send).is_none());
    assert_eq!(Rc::strong_count(&counted), 4);
    drop(a.try_recv());
    drop(send);
    assert_eq!(Rc::strong_count(&counted), 1);
    let mut send = tx.send(counted.clone());
    assert!(poll(&mut send).is_none());
    std::mem::forget(send);
    drop((a, tx, b, joiner));
    // The forgotten operation keeps the value itself and two channels with one clone each.
    assert_eq!(Rc::strong_count(&counted), 4);
}

// ---- against a model

#[derive(Clone, Copy, Debug)]
enum Op {
    Join,
    Leave(usize),
    Retire(usize),
    Poison(usize),
    Recv(usize),
    Begin,
    Poll,
    Cut,
    Expire,
    Least(usize),
    LastJoiner,
    RetireAll,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => Just(Op::Join),
        3 => (0..4usize).prop_map(Op::Leave),
        1 => (0..4usize).prop_map(Op::Retire),
        1 => (0..9usize).prop_map(Op::Poison),
        16 => (0..4usize).prop_map(Op::Recv),
        8 => Just(Op::Begin),
        10 => Just(Op::Poll),
        2 => Just(Op::Cut),
        2 => Just(Op::Expire),
        2 => (0..4usize).prop_map(Op::Least),
        1 => Just(Op::LastJoiner),
        1 => Just(Op::RetireAll),
    ];
    proptest::collection::vec(op, 0..80)
}

/// The state of one receiver.
#[derive(Default)]
struct Member {
    buffered: VecDeque<u32>,
    /// The value that the send in progress offers it.
    offered: Option<u32>,
    /// It is no longer a member.
    left: bool,
    ended: Option<RecvError>,
}

struct Sent {
    value: u32,
    begun: bool,
    received: usize,
    poisoned: bool,
}

struct Model {
    room: usize,
    members: Vec<Member>,
    joiner: bool,
    least: usize,
    over: Option<Why>,
    send: Option<Sent>,
}

fn sick() -> Why {
    Why::Poisoned("sick".into())
}

impl Model {
    fn begin(&mut self, expired: bool) -> Option<Result<(), BroadcastError<u32>>> {
        let joined = self.members.iter().filter(|m| !m.left).count();
        let send = self.send.as_mut().expect("it was begun");
        let why = if let Some(why) = &self.over {
            why.clone()
        } else if joined >= self.least.max(usize::from(!self.joiner)) {
            send.begun = true;
            for member in self.members.iter_mut().filter(|m| !m.left) {
                if member.buffered.len() < self.room {
                    member.buffered.push_back(send.value);
                    send.received += 1;
                } else {
                    member.offered = Some(send.value);
                }
            }
            return None;
        } else if !self.joiner {
            Why::Closed
        } else if expired {
            Why::TimedOut
        } else {
            return None;
        };
        Some(Err(BroadcastError { value: send.value, why, received: 0 }))
    }

    fn poll(&mut self, expired: bool) -> Option<Result<(), BroadcastError<u32>>> {
        if !self.send.as_ref().is_some_and(|send| send.begun)
            && let Some(failed) = self.begin(expired)
        {
            return Some(failed);
        }
        let send = self.send.as_ref().filter(|send| send.begun)?;
        if self.members.iter().any(|m| m.offered.is_some()) {
            return None;
        }
        let failed = BroadcastError { value: send.value, why: sick(), received: send.received };
        Some(if send.poisoned { Err(failed) } else { Ok(()) })
    }

    fn recv(&mut self, at: usize) -> Result<u32, RecvError> {
        let (room, member) = (self.room, &mut self.members[at]);
        if let Some(ended @ RecvError::Poisoned(_)) = &member.ended {
            return Err(ended.clone());
        }
        let buffered = member.buffered.pop_front();
        let mut taken = buffered;
        if (buffered.is_some() || room == 0)
            && let Some(offered) = member.offered.take()
            && let Some(send) = &mut self.send
        {
            send.received += 1;
            if room == 0 { taken = Some(offered) } else { member.buffered.push_back(offered) }
        }
        taken.ok_or(member.ended.clone().unwrap_or(RecvError::WouldBlock))
    }

    fn poison(&mut self, at: usize) {
        let all = !self.members[at].left;
        for (n, member) in self.members.iter_mut().enumerate() {
            if n != at && (!all || member.left) {
                continue;
            }
            if member.offered.take().is_some()
                && let Some(send) = &mut self.send
            {
                send.poisoned = true;
            }
            member.buffered.clear();
            member.ended = Some(RecvError::Poisoned("sick".into()));
        }
        if all {
            self.over = Some(sick());
        }
    }
}

/// An end that returns to its owner when the operation that has it is dropped.
struct Lent(Option<Broadcast<u32>>, Rc<Cell<Option<Broadcast<u32>>>>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.1.set(self.0.take());
    }
}

type Sending = Pin<Box<dyn Future<Output = Result<(), BroadcastError<u32>>>>>;

fn send(home: &Rc<Cell<Option<Broadcast<u32>>>>, value: u32, expired: Rc<Cell<bool>>) -> Option<Sending> {
    let mut lent = Lent(Some(home.take()?), home.clone());
    Some(Box::pin(async move {
        let deadline = std::future::poll_fn(move |_| if expired.get() { Poll::Ready(()) } else { Poll::Pending });
        lent.0.as_mut().expect("lent").send(value).until(deadline).await
    }))
}

fn run(buffered: bool, ops: &[Op]) -> Result<(), TestCaseError> {
    let (tx, joiner) = if buffered { broadcast_with(fifo(1)) } else { broadcast() };
    let (home, mut joiner): (_, Option<Joiner<u32>>) = (Rc::new(Cell::new(Some(tx))), Some(joiner));
    let mut receivers: Vec<Receiver<u32>> = Vec::new();
    let (mut sending, expired): (Option<Sending>, _) = (None, Rc::new(Cell::new(false)));
    let room = usize::from(buffered);
    let mut model = Model { room, members: Vec::new(), joiner: true, least: 0, over: None, send: None };
    for (step, op) in ops.iter().enumerate() {
        let value = step as u32;
        match *op {
            Op::Join => {
                let Some(joiner) = &joiner else { continue };
                receivers.push(joiner.join());
                let ended = match &model.over {
                    None => None,
                    Some(Why::Poisoned(reason)) => Some(RecvError::Poisoned(reason.clone())),
                    Some(_) => Some(RecvError::Closed),
                };
                model.members.push(Member { left: ended.is_some(), ended, ..Member::default() });
            }
            Op::Leave(at) if at < receivers.len() => {
                drop(receivers.swap_remove(at));
                model.members.swap_remove(at);
            }
            Op::Retire(at) if at < receivers.len() => {
                receivers[at].retire();
                let member = &mut model.members[at];
                member.offered = None;
                member.left |= model.over.is_none();
                member.ended.get_or_insert(RecvError::Closed);
            }
            Op::Poison(at) if at < receivers.len() => {
                receivers[at].poison("sick");
                model.poison(at);
            }
            Op::Recv(at) if at < receivers.len() => {
                prop_assert_eq!(receivers[at].try_recv(), model.recv(at), "step {}", step);
            }
            Op::Begin if sending.is_none() => {
                expired.set(false);
                sending = send(&home, value, expired.clone());
                model.send = Some(Sent { value, begun: false, received: 0, poisoned: false });
            }
            Op::Poll | Op::Expire if sending.is_some() => {
                if let Op::Expire = op {
                    expired.set(true);
                }
                let polled = sending.as_mut().and_then(poll);
                prop_assert_eq!(&polled, &model.poll(expired.get()), "step {}", step);
                if polled.is_some() {
                    (sending, model.send) = (None, None);
                }
            }
            Op::Cut => {
                (sending, model.send) = (None, None);
                model.members.iter_mut().for_each(|member| member.offered = None);
            }
            Op::Least(least) => {
                if let Some(tx) = home.take() {
                    home.set(Some(tx.at_least(least)));
                    model.least = least;
                }
            }
            Op::LastJoiner if value.is_multiple_of(3) => (joiner, model.joiner) = (None, false),
            Op::RetireAll if value.is_multiple_of(3) => {
                let Some(tx) = home.take() else { continue };
                tx.retire();
                home.set(Some(tx));
                model.over.get_or_insert(Why::Closed);
                for member in model.members.iter_mut().filter(|m| !m.left) {
                    member.ended.get_or_insert(RecvError::Closed);
                }
            }
            _ => {}
        }
        if let Some(tx) = home.take() {
            let joined = model.members.iter().filter(|m| !m.left).count();
            prop_assert_eq!(tx.joined(), joined, "step {}", step);
            home.set(Some(tx));
        }
    }
    Ok(())
}

fn config() -> ProptestConfig {
    // `PROPTEST_CASES` overrides this number.
    let given = std::env::var("PROPTEST_CASES").is_ok();
    let config = ProptestConfig { max_shrink_iters: 20_000, failure_persistence: None, ..ProptestConfig::default() };
    if given { config } else { ProptestConfig { cases: 1_000, ..config } }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn behaves_like_the_model(buffered: bool, ops in ops()) {
        run(buffered, &ops)?;
    }
}
