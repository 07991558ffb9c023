//! Panics in users' code: the channel stays usable or has ended, and no operation hangs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dunlin::{Admit, Buffering, Choice, Why, future};
use serde::{Deserialize, Serialize};

use crate::kind::{Full, Kind};
use crate::law::{Cx, Law, laws};
use crate::transport::Transport;

fn own(kind: &Kind) -> bool {
    kind.full == Full::Refuses
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        drop_panics_in_overwriting if |kind| !kind.keeps(), needs [Moved] =>
            "if the Drop of an overwritten value panics, the send panics and the channel keeps working";
        drop_panics_in_poison if |kind| !kind.is_rendezvous(), needs [Moved] =>
            "if the Drop of a destroyed value panics, the channel is poisoned and every operation sees it";
        drop_panics_in_closing if |kind| !kind.is_rendezvous(), needs [Moved] =>
            "if the Drop of a buffered value panics as the receiver is dropped, the channel has ended";
        drop_panics_in_release if Kind::is_rendezvous, needs [Moved, Extended] =>
            "if the Drop of a held value panics, its sender proceeds";
        admit_panics_in_send if own, needs [PolicyPanics] =>
            "if a policy panics at a send, the slot keeps its value and the channel keeps working";
        admit_panics_in_receive if own =>
            "if a policy panics as a receive makes room, the receive has its value and the send that waited is refused";
        a_branch_panics if Kind::is_rendezvous, needs [Choice] =>
            "if a future in a choice panics, the other branches have had no effect and their slots are full";
        map_panics if Kind::is_rendezvous, needs [Choice] =>
            "if a branch's map panics, the other branches have had no effect";
    ]
}

/// Panics when dropped armed.
#[derive(Serialize, Deserialize)]
struct Bomb(u32, bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if std::mem::take(&mut self.1) && !std::thread::panicking() {
            panic!("the Drop of {} panics", self.0);
        }
    }
}

fn disarmed(bomb: Bomb) -> u32 {
    let mut bomb = bomb;
    bomb.1 = false;
    bomb.0
}

fn panics<R>(f: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(f()))).is_err()
}

fn drop_panics_in_overwriting<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for n in 0..cx.kind.room as u32 {
        assert!(cx.now(tx.send(Bomb(n, true))).is_ok());
    }
    assert!(panics(|| cx.now(tx.send(Bomb(9, true))).is_ok()), "one of them was dropped");
    cx.settle();
    let mut left = Vec::new();
    while let Ok(bomb) = rx.try_recv() {
        left.push(disarmed(bomb));
    }
    assert_eq!(left.len(), cx.kind.room);
    // If a task carries the values, the panic ended that task, and so the channel.
    match cx.now(tx.send(Bomb(10, false))) {
        Ok(()) => assert_eq!(cx.now(rx.recv()).map(disarmed), Ok(10)),
        Err(error) => assert!(error.is_closed()),
    }
}

fn drop_panics_in_poison<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    assert!(cx.now(tx.send(Bomb(0, true))).is_ok());
    assert!(panics(|| {
        tx.poison("now");
        cx.settle()
    }));
    cx.settle();
    assert!(cx.now(rx.recv()).is_err_and(|error| error.is_poisoned()));
    assert!(cx.now(tx.send(Bomb(1, false))).is_err_and(|error| error.is_poisoned()));
}

fn drop_panics_in_closing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel();
    assert!(cx.now(tx.send(Bomb(0, true))).is_ok());
    assert!(panics(|| {
        drop(rx);
        cx.settle()
    }));
    cx.settle();
    assert!(cx.now(tx.send(Bomb(1, false))).is_err_and(|error| error.is_closed()));
}

fn drop_panics_in_release<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let send = cx.begin(tx.send(Bomb(0, true)));
    let guard = cx.now(rx.recv_extended()).expect("offered");
    assert!(panics(|| drop(guard)));
    assert!(send.out().is_ok());
    let send = cx.begin(tx.send(Bomb(1, false)));
    assert_eq!(cx.now(rx.recv()).map(disarmed), Ok(1));
    assert!(send.out().is_ok());
}

/// A buffer of one that panics on demand.
#[derive(Clone)]
struct Moody(Arc<AtomicBool>);

impl Buffering for Moody {
    fn admit(&mut self, queued: usize) -> Admit {
        assert!(!self.0.swap(false, Ordering::Relaxed), "the policy panics");
        if queued == 0 { Admit::Keep } else { Admit::Wait }
    }
}

fn admit_panics_in_send<X: Transport>(cx: &Cx<'_, X>) {
    let mood = Arc::new(AtomicBool::new(true));
    let (mut tx, mut rx) = cx.channel_of(Moody(mood.clone()));
    let mut slot = Some(1);
    assert!(panics(|| cx.now(tx.send_from(&mut slot))));
    cx.settle();
    assert_eq!(slot, Some(1));
    assert_eq!(cx.now(tx.send_from(&mut slot)), Ok(()));
    assert_eq!(cx.now(rx.recv()), Ok(1));
}

fn admit_panics_in_receive<X: Transport>(cx: &Cx<'_, X>) {
    let mood = Arc::new(AtomicBool::new(false));
    let (mut tx, mut rx) = cx.channel_of(Moody(mood.clone()));
    assert_eq!(cx.now(tx.send(1)), Ok(()));
    let mut slot = Some(2);
    let send = cx.begin(tx.send_from(&mut slot));
    mood.store(true, Ordering::Relaxed);
    assert_eq!(cx.now(rx.recv()), Ok(1), "the received value is not lost");
    assert_eq!(send.out().unwrap_err().why(), Some(&Why::Refused));
    assert_eq!(slot, Some(2));
    assert_eq!(cx.now(tx.send_from(&mut slot)), Ok(()), "the channel stays usable");
    assert_eq!(cx.now(rx.recv()), Ok(2));
}

fn a_branch_panics<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut tx, mut rx), (mut loud, mut other)) = (cx.channel(), cx.channel());
    let mut slot = Some(1);
    let choice = Choice::prioritised()
        .on(tx.send_from(&mut slot), drop)
        .on(future(async { panic!("a branch panics") }), |()| ())
        .on(other.recv(), drop);
    assert!(panics(|| cx.now(choice.into_future())));
    assert_eq!(slot, Some(1));
    assert_eq!(cx.drain(&mut rx), []);
    let (send, on) = (cx.begin(loud.send(2)), cx.begin(tx.send_from(&mut slot)));
    assert_eq!((cx.now(other.recv()), cx.now(rx.recv())), (Ok(2), Ok(1)));
    assert_eq!((send.out(), on.out()), (Ok(()), Ok(())));
}

fn map_panics<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut tx, mut rx), (mut loud, mut other)) = (cx.channel(), cx.channel());
    let send = cx.begin(loud.send(2));
    let mut slot = Some(1);
    let choice = Choice::prioritised()
        .on(tx.send_from(&mut slot), drop)
        .on(other.recv(), |value| panic!("the map of {value:?} panics"));
    assert!(panics(|| cx.now(choice.into_future())));
    assert_eq!(slot, Some(1));
    assert_eq!(send.out(), Ok(()), "it was received before the map ran");
    assert_eq!(cx.drain(&mut rx), []);
}
