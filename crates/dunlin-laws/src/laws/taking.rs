//! Rule 1: senders offer, and a receiver takes a value only in the poll that returns it.

use std::sync::{Arc, Mutex};

use dunlin::{Operation, PATIENCE_TICKS, RecvError};

use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, THERE, all, laws};
use crate::rig::{eager, give_way};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        ok_means_received if Kind::is_rendezvous =>
            "a send completes when a receive has returned its value, and not before";
        receive_first_then_send if all =>
            "a waiting receive is woken by a send and returns its value";
        dropped_receive_took_nothing if all, needs [Forgetting] =>
            "a receive that was woken for a value and then dropped has taken nothing";
        unpolled_receive_keeps_nothing if all, needs [Shared] =>
            "a receive that was woken and is not polled keeps no value from another receiver";
        created_operations_do_nothing if all =>
            "an operation that is created and never polled has no effect";
        dropped_send_is_not_received if Kind::waits =>
            "a send that is dropped while it waits is never received";
        every_waiting_send_is_woken if Kind::waits =>
            "every receive lets exactly one more waiting send proceed";
        wakes_are_outside_the_lock if all =>
            "a party that acts on the channel inside its own wake finds it unlocked: no deadlock, no loss";
        one_value_for_two_receivers if all, needs [Shared] =>
            "one value goes to one of two waiting receivers, and the other keeps waiting";
        parked_receivers_pass_wakes_on if Kind::is_open, needs [Shared], at most 10 =>
            "the wake limit: a value wakes at most 16 parked receivers of a shared end; a dropped one passes its wake on, and if none takes the value by the next tick, all are woken";
    ]
}

fn ok_means_received<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for value in 0..3 {
        let mut send = cx.begin(tx.send(value));
        assert!(!send.poll(), "no receiver has taken it");
        assert_eq!(cx.now(rx.recv()), Ok(value));
        assert_eq!(send.out(), Ok(()));
    }
}

fn receive_first_then_send<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for value in 0..3 {
        let mut recv = cx.begin(rx.recv());
        assert!(!recv.is_done());
        let send = cx.begin(tx.send(value));
        assert!(recv.is_woken(), "the receive was not woken");
        assert!(recv.run());
        assert_eq!(recv.out(), Ok(value));
        assert_eq!(send.out(), Ok(()));
    }
}

fn dropped_receive_took_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for value in 0..3 {
        let recv = cx.begin(rx.recv());
        let send = cx.begin(tx.send(value));
        assert!(recv.is_woken());
        if cx.below(2) == 0 {
            drop(recv);
        } else {
            recv.forget();
        }
        cx.settle();
        assert!(!cx.kind.is_rendezvous() || !send.is_done(), "a dropped receive took the value");
        assert_eq!(cx.now(rx.recv()), Ok(value));
        assert_eq!(send.out(), Ok(()));
    }
}

fn unpolled_receive_keeps_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel_from(THERE);
    let mut a = rx.share();
    let b = &mut cx.there(&a);
    let mut pinned = cx.begin(a.recv());
    let mut other = cx.begin(b.recv());
    let send = cx.begin(tx.send(1));
    assert!(pinned.is_woken() && other.is_woken(), "all waiting receives are woken");
    assert!(other.run(), "an unpolled receive keeps the value");
    assert_eq!(other.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
    assert!(!pinned.poll(), "the value was received twice");
    let send = cx.begin(tx.send(2));
    assert_eq!(pinned.out(), Ok(2), "the receive is woken again");
    assert_eq!(send.out(), Ok(()));
}

fn created_operations_do_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    drop(tx.send(1));
    let mut slot = Some(2);
    drop(tx.send_from(&mut slot));
    assert_eq!(slot, Some(2));
    drop(rx.recv());
    drop(rx.next());
    drop(rx.recv_extended());
    drop(tx.closed());
    drop(tx.send(3).until(give_way()));
    assert_eq!(cx.drain(&mut rx), []);
    let send = cx.begin(tx.send(4));
    assert_eq!(cx.now(rx.recv()), Ok(4));
    assert_eq!(send.out(), Ok(()));
}

fn dropped_send_is_not_received<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    let mut recv = cx.hand(rx.recv());
    if before.is_empty() && cx.below(2) == 0 {
        recv.run();
    }
    let mut send = cx.begin(tx.send(1));
    assert!(!send.is_done());
    if cx.below(2) == 0 {
        send.poll();
    }
    drop(send);
    cx.settle();
    if before.is_empty() {
        assert!(!recv.run(), "a dropped send was received");
        assert!(!recv.poll(), "a dropped send was received");
    }
    drop(recv);
    assert_eq!(cx.drain(&mut rx), before);
    drop(tx);
    cx.settle();
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

fn every_waiting_send_is_woken<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let mut tx = tx.share();
    let room = cx.kind.room as u32;
    let waiting = if cx.kind.is_open() { 3 } else { 2 };
    let mut clones: Vec<_> = cx.handles::<_, 3>(tx.clone()).into_iter().take(waiting as usize).collect();
    for n in 0..room {
        assert_eq!(cx.now(tx.send(n)), Ok(()));
    }
    let mut sends: Vec<_> = clones.iter_mut().zip(room..).map(|(tx, n)| cx.begin(tx.send(n))).collect();
    for n in 0..room + waiting {
        let done = sends.iter_mut().filter_map(|send| send.run().then_some(())).count();
        assert_eq!(done as u32, n.min(waiting), "after {n} receives");
        assert_eq!(cx.now(rx.recv()), Ok(n));
    }
    for send in sends {
        assert_eq!(send.out(), Ok(()));
    }
}

fn wakes_are_outside_the_lock<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel_from::<u32>(HERE);
    let ((mut there, mut from), log) = (cx.channel_of::<u32>(dunlin::unbounded()), Arc::new(Mutex::new(Vec::new())));
    let place = log.clone();
    eager(async move {
        while let Ok(value) = rx.recv().await {
            if there.send(value).await.is_err() {
                return;
            }
        }
    });
    eager(async move {
        while let Ok(value) = from.recv().await {
            place.lock().expect("one thread").push(value);
        }
    });
    cx.settle();
    for value in 0..5 {
        assert_eq!(cx.now(tx.send(value)), Ok(()));
        cx.settle();
    }
    let shared = tx.share();
    let mut claim = cx.there(&shared);
    let mut claim = cx.now(claim.claim()).expect("free");
    assert_eq!(cx.now(claim.send(5)), Ok(()));
    claim.retire();
    cx.settle();
    assert_eq!(*log.lock().expect("one thread"), [0, 1, 2, 3, 4, 5]);
}

fn one_value_for_two_receivers<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel_from(THERE);
    let [mut a, mut b] = cx.handles(rx.share());
    let (mut first, mut second) = (cx.begin(a.recv()), cx.begin(b.recv()));
    let send = cx.begin(tx.send(1));
    cx.rig.together(&mut [&mut first, &mut second]);
    assert_eq!(send.out(), Ok(()));
    assert!(first.is_done() != second.is_done(), "exactly one has it");
    let send = cx.begin(tx.send(2));
    cx.rig.together(&mut [&mut first, &mut second]);
    assert_eq!(send.out(), Ok(()));
    let (first, second) = (first.out(), second.out());
    assert!(matches!((&first, &second), (Ok(1), Ok(2)) | (Ok(2), Ok(1))), "{first:?}, {second:?}");
}

fn parked_receivers_pass_wakes_on<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel_from(THERE);
    let mut handles = cx.handles::<_, 20>(rx.share());
    let mut parked: Vec<_> = handles.iter_mut().map(|handle| cx.begin(handle.recv())).collect();
    let send = cx.begin(tx.send(1));
    let woken = parked.iter().filter(|recv| recv.is_woken()).count();
    assert!(woken > 0);
    // Over nodes the other receivers must be asked whether they take the value, and each has longer to
    // answer.
    let ticks = if cx.transport.has_nodes() { PATIENCE_TICKS + 1 } else { 1 };
    assert!(woken <= 16 || ticks > 1, "{woken} were woken for one value");
    let mut last = parked.pop().expect("there are many");
    // All other receives are dropped, or never polled again.
    parked.retain(|_| cx.below(2) == 0);
    cx.settle();
    let mut passed = 0;
    while !last.run() {
        assert!(passed < if ticks == 1 { 1 } else { 20 }, "receivers that are not polled keep the value");
        cx.pass(ticks);
        passed += 1;
    }
    assert_eq!(last.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
}
