//! Extended receives: the value is received, and its sender or its place is still held.

use dunlin::{Choice, RecvError, SendError, Why};

use crate::kind::{Full, Kind, NO_BOUND};
use crate::law::{Cx, HERE, Law, THERE, all, expired, laws};
use crate::transport::Transport;
use crate::users::ROOM_MAX;

fn buffered(kind: &Kind) -> bool {
    !kind.is_rendezvous()
}

fn finite(kind: &Kind) -> bool {
    buffered(kind) && kind.room < NO_BOUND
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        held_sender_waits if Kind::is_rendezvous, needs [Extended] =>
            "of a rendezvous the sender completes at the release, not before; dropping the guard releases";
        held_place_is_taken if finite, needs [Extended] =>
            "in a buffer the held value keeps its place: of as many writes as the buffer has places the last finds it full";
        held_values_are_never_overwritten if |kind| matches!(kind.full, Full::DropsOldest | Full::ReplacesNewest), needs [Extended] =>
            "overwriting never drops what is held; if all places are held, a value enters beside them";
        release_lets_one_in if |kind| kind.waits() && buffered(kind), needs [Extended] =>
            "a release makes room for exactly one send that waits";
        extended_in_a_choice if all, needs [Extended, Choice] =>
            "an extended receive as a branch of a choice holds like one that was awaited";
        a_choices_send_is_held if Kind::is_rendezvous, needs [Extended, Choice] =>
            "a choice whose send was taken by an extended receive is decided, and returns at the release";
        deadline_while_held if Kind::is_rendezvous, needs [Extended] =>
            "a deadline that passes while the value is held does not end the send: it is Ok at the release";
        dropped_while_held if Kind::is_rendezvous, needs [Extended] =>
            "a send that is dropped while its value is held has sent it, and its slot is empty";
        forgotten_guard_is_released if all, needs [Extended, Forgetting] =>
            "a guard that is forgotten is released by the next receive";
        forgotten_guard_goes_with_the_receiver if Kind::is_rendezvous, needs [Extended, Forgetting] =>
            "a guard that is forgotten is released with the receiver";
        forgotten_guard_and_retired if Kind::is_rendezvous, needs [Extended, Forgetting] =>
            "after retire, the next receive still releases a forgotten guard";
        forgotten_guard_and_poisoned if Kind::is_rendezvous, needs [Extended, Forgetting] =>
            "after poison, the next receive still releases a forgotten guard";
        poison_while_held if Kind::is_rendezvous, needs [Extended] =>
            "poison while a value is held comes too late for it: its send is Ok at the release, the next fails";
        retire_while_held if Kind::is_rendezvous, needs [Extended] =>
            "retire while a value is held comes too late for it: its send is Ok at the release, the next fails";
        poison_while_a_place_is_held if |kind| kind.waits() && buffered(kind), needs [Extended] =>
            "after poison no send that waits for a held place enters at the release: its value is returned";
        retire_while_a_place_is_held if |kind| kind.waits() && buffered(kind), needs [Extended] =>
            "after retire no send that waits for a held place enters at the release: its value is returned";
        released_value_is_the_value if all, needs [Extended] =>
            "a guard gives its value by reference while it holds, and as a whole at the release";
        two_extended_at_once if |kind| kind.is_rendezvous() && kind.is_open(), needs [Extended, Shared] =>
            "two receivers of a shared end hold a sender each, and release their own";
    ]
}

fn held_sender_waits<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for value in 0..3 {
        let mut send = cx.begin(tx.send(value));
        let guard = cx.now(rx.recv_extended()).expect("offered");
        assert_eq!(*guard, value);
        cx.settle();
        assert!(!send.run() && !send.poll(), "the sender is held");
        if value == 1 {
            drop(guard);
        } else {
            guard.release();
        }
        assert_eq!(send.out(), Ok(()));
    }
}

fn held_place_is_taken<X: Transport>(cx: &Cx<'_, X>) {
    let room = cx.kind.room as u32;
    let (mut tx, mut rx) = cx.channel();
    assert_eq!(cx.now(tx.send(100)), Ok(()));
    let guard = cx.now(rx.recv_extended()).expect("buffered");
    for n in 0..room - 1 {
        assert_eq!(cx.now(tx.send(n)), Ok(()), "there is room for all but one");
    }
    let mut last = cx.begin(tx.send(room - 1));
    match cx.kind.full {
        Full::Waits => {
            assert!(!last.run());
            drop(last);
            cx.settle();
        }
        Full::Refuses => assert_eq!(last.out().unwrap_err().why(), Some(&Why::Refused)),
        _ => assert_eq!(last.out(), Ok(())),
    }
    assert_eq!(guard.release(), 100);
    drop(tx);
    let expected: Vec<u32> = match cx.kind.full {
        // The last value was dropped: by the policy, or with its send in the match above.
        Full::Waits | Full::Refuses | Full::DropsThis => (0..room - 1).collect(),
        // The only place is held, so a value is buffered beside it.
        _ if room == 1 => vec![0],
        Full::DropsOldest => (1..room).collect(),
        Full::ReplacesNewest => (0..room - 2).chain([room - 1]).collect(),
    };
    cx.settle();
    assert_eq!(cx.drain(&mut rx), expected);
}

fn held_values_are_never_overwritten<X: Transport>(cx: &Cx<'_, X>) {
    let room = cx.kind.room as u32;
    let (mut tx, rx) = cx.channel_from(THERE);
    for n in 0..room {
        assert_eq!(cx.now(tx.send(n)), Ok(()));
    }
    let mut rx = rx.share();
    let mut handles: Vec<_> = cx.handles::<_, ROOM_MAX>(rx.clone()).into_iter().take(cx.kind.room).collect();
    let held: Vec<_> = handles.iter_mut().map(|rx| cx.now(rx.recv_extended()).expect("buffered")).collect();
    assert_eq!(cx.now(tx.send(100)), Ok(()), "beside the held ones");
    assert_eq!(cx.now(tx.send(101)), Ok(()), "and only one");
    assert!(held.into_iter().map(|value| value.release()).eq(0..room));
    cx.settle();
    assert_eq!(rx.try_recv(), Ok(101));
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
}

fn release_lets_one_in<X: Transport>(cx: &Cx<'_, X>) {
    if cx.kind.room == NO_BOUND {
        return;
    }
    let (mut tx, mut rx) = cx.channel_from(HERE);
    cx.fill(&mut tx);
    let [mut a, mut b] = cx.handles(tx.share());
    let (mut first, mut second) = (cx.begin(a.send(1)), cx.begin(b.send(2)));
    let guard = cx.now(rx.recv_extended()).expect("buffered");
    assert!(!first.poll() && !second.poll(), "the place is still taken");
    drop(guard);
    assert!(first.run(), "the first gets in at the release");
    assert!(!second.poll(), "and only the first");
}

fn extended_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let (_quiet, mut silent) = cx.channel::<u32>();
    let mut send = cx.begin(tx.send(1));
    let choice = Choice::fair().on(rx.recv_extended(), Some).on(silent.recv(), |_| None);
    let (index, guard) = cx.now(choice.into_future());
    assert_eq!(index, 0);
    let guard = guard.expect("the first branch").expect("offered");
    assert_eq!(send.poll(), !cx.kind.is_rendezvous());
    assert_eq!(guard.release(), 1);
    assert_eq!(send.out(), Ok(()));
}

fn a_choices_send_is_held<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let (mut loud, mut other) = cx.channel();
    let mut slot = Some(1);
    let mut choice = cx.begin(Choice::fair().on(tx.send_from(&mut slot), Ok).on(other.recv(), Err).into_future());
    let guard = cx.now(rx.recv_extended()).expect("offered");
    let send = cx.begin(loud.send(5));
    assert!(!choice.run() && !choice.poll(), "decided, and held");
    drop(guard);
    assert_eq!(choice.out(), (0, Ok(Ok(()))));
    assert_eq!(slot, None);
    assert_eq!(cx.now(other.recv()), Ok(5), "the other branch has had no effect");
    assert_eq!(send.out(), Ok(()));
}

fn deadline_while_held<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let (mut clock, mut bell) = cx.channel_of::<()>(dunlin::fifo(1));
    let mut send = cx.begin(dunlin::Operation::until(tx.send(1), bell.recv()));
    let guard = cx.now(rx.recv_extended()).expect("offered");
    assert_eq!(cx.now(clock.send(())), Ok(()));
    assert!(!send.run() && !send.poll(), "it was received in time");
    drop(guard);
    assert_eq!(send.out(), Ok(()));
    assert!(cx.now(expired(tx.send(2))).unwrap_err().is_timed_out());
}

fn dropped_while_held<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut slot = Some(1);
    let send = cx.begin(tx.send_from(&mut slot));
    let guard = cx.now(rx.recv_extended()).expect("offered");
    drop(send);
    assert_eq!(slot, None, "it was received");
    let mut next = cx.begin(tx.send(2));
    assert!(!next.is_done());
    assert_eq!(guard.release(), 1);
    assert!(!next.run(), "a release is not its own");
    assert_eq!(cx.now(rx.recv()), Ok(2));
    assert_eq!(next.out(), Ok(()));
}

fn forgotten_guard_is_released<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut send = cx.begin(tx.send(1));
    std::mem::forget(cx.now(rx.recv_extended()).expect("offered"));
    assert_eq!(send.poll(), !cx.kind.is_rendezvous());
    let mut next = cx.begin(rx.recv());
    assert!(!next.is_done());
    assert_eq!(send.out(), Ok(()));
    let send = cx.begin(tx.send(2));
    assert!(next.run());
    assert_eq!(next.out(), Ok(2));
    assert_eq!(send.out(), Ok(()));
    // The place of the forgotten guard is free: the channel has all its room again.
    cx.fill(&mut tx);
}

fn forgotten_guard_goes_with_the_receiver<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let send = cx.begin(tx.send(1));
    std::mem::forget(cx.now(rx.recv_extended()).expect("offered"));
    drop(rx);
    assert_eq!(send.out(), Ok(()), "it was received");
    assert!(cx.now(tx.send(2)).unwrap_err().is_closed());
}

fn forgotten_guard_and_retired<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let send = cx.begin(tx.send(1));
    std::mem::forget(cx.now(rx.recv_extended()).expect("offered"));
    rx.retire();
    cx.settle();
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
    assert_eq!(send.out(), Ok(()), "it was received");
}

fn forgotten_guard_and_poisoned<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let send = cx.begin(tx.send(1));
    std::mem::forget(cx.now(rx.recv_extended()).expect("offered"));
    rx.poison("done");
    cx.settle();
    assert!(cx.now(rx.recv()).unwrap_err().is_poisoned());
    assert_eq!(send.out(), Ok(()), "it was received");
}

fn poison_while_held<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from(THERE);
    let (mut tx, [mut rx, mut poisoner]) = (tx.share(), cx.handles(rx.share()));
    let mut send = cx.begin(tx.send(1));
    let guard = cx.now(rx.recv_extended()).expect("offered");
    cx.now(poisoner.claim()).expect("free").poison("now");
    cx.settle();
    assert!(!send.run() && !send.poll(), "still held");
    assert_eq!(guard.release(), 1);
    assert_eq!(send.out(), Ok(()), "poison came too late");
    let why = Why::Poisoned("now".into());
    assert_eq!(cx.now(tx.send(2)), Err(SendError::NotTaken { value: 2, why }));
}

fn retire_while_held<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from(THERE);
    let (mut tx, [mut rx, mut other]) = (tx.share(), cx.handles(rx.share()));
    let mut send = cx.begin(tx.send(1));
    let guard = cx.now(rx.recv_extended()).expect("offered");
    cx.now(other.claim()).expect("free").retire();
    cx.settle();
    assert!(!send.run() && !send.poll(), "still held");
    drop(guard);
    assert_eq!(send.out(), Ok(()), "it came too late");
    assert!(cx.now(tx.send(2)).unwrap_err().is_closed());
}

/// A send that waits for a place that an extended receive holds, while the channel ends.
fn ended_while_a_place_is_held<X: Transport>(cx: &Cx<'_, X>, end: fn(&dunlin::Receiver<u32>), why: &Why) {
    if cx.kind.room == NO_BOUND {
        return;
    }
    let (mut tx, rx) = cx.channel_from(THERE);
    cx.fill(&mut tx);
    let [mut rx, mut other] = cx.handles(rx.share());
    let mut slot = Some(7);
    let send = cx.begin(tx.send_from(&mut slot));
    let guard = cx.now(rx.recv_extended()).expect("buffered");
    end(&cx.now(other.claim()).expect("free"));
    cx.settle();
    guard.release();
    cx.settle();
    assert_eq!(send.out(), Err(SendError::NotTaken { value: (), why: why.clone() }));
    assert_eq!(slot, Some(7));
}

fn poison_while_a_place_is_held<X: Transport>(cx: &Cx<'_, X>) {
    ended_while_a_place_is_held(cx, |rx| rx.poison("now"), &Why::Poisoned("now".into()));
}

fn retire_while_a_place_is_held<X: Transport>(cx: &Cx<'_, X>) {
    ended_while_a_place_is_held(cx, |rx| rx.retire(), &Why::Closed);
}

fn released_value_is_the_value<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let send = cx.begin(tx.send(vec![1]));
    let mut guard = cx.now(rx.recv_extended()).expect("offered");
    guard.push(2);
    assert_eq!(*guard, [1, 2]);
    assert_eq!(guard.release(), [1, 2]);
    assert_eq!(send.out(), Ok(()));
}

fn two_extended_at_once<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from(HERE);
    let (rx, [mut a, mut b]) = (rx.share(), cx.handles(tx.share()));
    let (mut x, mut y) = (cx.carry(rx.clone(), THERE), rx);
    let (mut first, mut second) = (cx.begin(a.send(1)), cx.begin(b.send(2)));
    let one = cx.now(x.recv_extended()).expect("offered");
    let two = cx.now(y.recv_extended()).expect("offered");
    assert_eq!((*one, *two), (1, 2));
    drop(two);
    assert!(second.run() && !first.run() && !first.poll());
    drop(one);
    assert_eq!(first.out(), Ok(()));
}
