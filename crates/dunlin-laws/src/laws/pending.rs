//! Bounds on waiting operations, and which operation gives way.

use dunlin::{Overflow, RecvError, SendError, Why};

use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, laws};
use crate::transport::Transport;

fn bounded(kind: &Kind) -> bool {
    kind.pending.is_some()
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        one_sender_too_many if bounded, needs [Shared] =>
            "of three senders where two may wait: the first expires (fifo), the second expires (lifo), or the third is refused (reject); with its value";
        one_receiver_too_many if bounded, needs [Shared],
            at one node: "a receive elsewhere waits at its own half, which has no bound" =>
            "of three receivers where two may wait: the first expires (fifo), the second expires (lifo), or the third is refused (reject)";
        places_are_given_back if bounded, needs [Shared] =>
            "an operation that is dropped, times out or completes while waiting frees its place";
        slots_of_expired_sends_are_full if bounded, needs [Shared] =>
            "a send_from that expires or is refused leaves its value in the slot";
        choices_count_as_waiting if bounded, needs [Shared, Choice] =>
            "a send in a choice that is pushed out ends the choice with that error, and its value is returned";
    ]
}

/// The expected outcome for three operations: the number of the one that fails, and whether it had waited.
fn loser(kind: &Kind) -> (usize, bool) {
    match kind.pending {
        Some((_, Overflow::Fifo)) => (0, true),
        Some((_, Overflow::Lifo)) => (1, true),
        _ => (2, false),
    }
}

fn one_sender_too_many<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let mut sends = [cx.begin(a.send(0)), cx.begin(b.send(1)), cx.begin(c.send(2))];
    let (loser, waited) = loser(cx.kind);
    let why = if waited { Why::Expired } else { Why::Refused };
    for (n, send) in sends.iter_mut().enumerate() {
        assert_eq!(send.run(), n == loser, "sender {n}");
    }
    for value in (0..3).filter(|n| *n != loser) {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    for (n, send) in sends.into_iter().enumerate() {
        let expected = if n == loser { Err(SendError::NotTaken { value: n, why: why.clone() }) } else { Ok(()) };
        assert_eq!(send.out(), expected);
    }
}

fn one_receiver_too_many<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel();
    let mut a = rx.share();
    let (mut b, mut c) = (a.clone(), a.clone());
    let mut receives = [cx.begin(a.recv()), cx.begin(b.recv()), cx.begin(c.recv())];
    let (loser, waited) = loser(cx.kind);
    for (n, receive) in receives.iter_mut().enumerate() {
        assert_eq!(receive.run(), n == loser, "receiver {n}");
    }
    let mut got = Vec::new();
    for value in 0..2 {
        let send = cx.begin(tx.send(value));
        for receive in &mut receives {
            receive.run();
        }
        assert_eq!(send.out(), Ok(()));
    }
    for (n, receive) in receives.into_iter().enumerate() {
        match receive.out() {
            Err(error) => {
                assert_eq!(n, loser);
                assert_eq!(error, if waited { RecvError::Expired } else { RecvError::Refused });
            }
            Ok(value) => got.push(value),
        }
    }
    got.sort_unstable();
    assert_eq!(got, [0, 1]);
}

fn places_are_given_back<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from(HERE);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    // The bound does not count receives at other nodes, so all handles stay here.
    let mut x = rx.share();
    let (mut y, mut z) = (x.clone(), x.clone());
    {
        let (first, mut second) = (cx.begin(a.send(0)), cx.begin(b.send(1)));
        drop(first);
        let mut third = cx.begin(c.send(2));
        assert!(!second.poll() && !third.poll(), "a dropped sender frees its place");
        assert_eq!(cx.now(x.recv()), Ok(1));
        assert_eq!(second.out(), Ok(()));
        let mut again = cx.begin(a.send(3));
        assert!(!again.poll() && !third.poll(), "a served sender frees its place");
    }
    let (first, mut second) = (cx.begin(x.recv()), cx.begin(y.recv()));
    drop(first);
    let mut third = cx.begin(z.recv());
    assert!(!second.poll() && !third.poll(), "a dropped receiver frees its place");
}

fn slots_of_expired_sends_are_full<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let mut slots = [Some(0), Some(1), Some(2)];
    let [s, t, u] = &mut slots;
    let mut sends = [cx.begin(a.send_from(s)), cx.begin(b.send_from(t)), cx.begin(c.send_from(u))];
    let (loser, _) = loser(cx.kind);
    let (one, two) = (cx.now(rx.recv()), cx.now(rx.recv()));
    for send in &mut sends {
        assert!(send.run());
    }
    drop(sends);
    let mut all: Vec<_> = slots.into_iter().flatten().collect();
    assert_eq!(all, [loser]);
    all.extend([one, two].into_iter().flatten());
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2]);
}

fn choices_count_as_waiting<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let (_other, mut silent) = cx.channel::<u8>();
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let mut slots = [Some(0), Some(1), Some(2)];
    let [s, t, u] = &mut slots;
    let (loser, waited) = loser(cx.kind);
    let choose = |send, recv| dunlin::Choice::fair().on(send, Some).on(recv, |_: Result<u8, RecvError>| None);
    // Only the losing send is in a choice.
    let mut sends: Vec<Box<dyn crate::rig::Runs + '_>> = Vec::new();
    let outcome = std::rc::Rc::new(std::cell::RefCell::new(None));
    let mut silent = Some(&mut silent);
    for (n, (end, slot)) in [(&mut a, s), (&mut b, t), (&mut c, u)].into_iter().enumerate() {
        if n == loser {
            let choice = choose(end.send_from(slot), silent.take().expect("one loser").recv());
            let outcome = outcome.clone();
            sends.push(Box::new(cx.begin(async move { *outcome.borrow_mut() = Some(choice.await.1) })));
        } else {
            let send = end.send_from(slot);
            sends.push(Box::new(cx.begin(async move { assert_eq!(send.await, Ok(())) })));
        }
    }
    for send in &mut sends {
        while send.turn() {}
    }
    let why = if waited { Why::Expired } else { Why::Refused };
    assert_eq!(outcome.take(), Some(Some(Err(SendError::NotTaken { value: (), why }))));
    for value in (0..3).filter(|n| *n != loser) {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    for send in &mut sends {
        while send.turn() {}
    }
    drop(sends);
    assert_eq!(slots.into_iter().flatten().collect::<Vec<_>>(), [loser]);
}
