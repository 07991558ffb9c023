//! Exactly what each policy does with a value for which no receiver waits.

use dunlin::{Receiver, RecvError, SendError, Sender, Why};

use crate::counted::Counted;
use crate::kind::{Full, Kind, NO_BOUND};
use crate::law::{Cx, HERE, Law, all, laws};
use crate::transport::{Feature, Transport};
use crate::users::ROOM_MAX;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        capacity_is_exact if all =>
            "exactly as many sends complete at once as the policy has room for";
        what_is_kept_is_exact if all =>
            "of more values than there is room for, exactly those the policy promises are received";
        len_counts if all =>
            "len of the receiver is what is buffered, after every step";
        the_senders_len_counts if all, needs [Len] =>
            "len of the sender is what is buffered, after every step";
        room_comes_back if |kind| !kind.is_rendezvous() && kind.room < NO_BOUND, needs [TrySend] =>
            "a receive makes room for exactly one more";
        waiting_sends_enter_in_order if |kind| kind.waits() && !kind.is_rendezvous() =>
            "sends that wait for room enter the buffer in order, each when there is room";
        try_forms_agree if all, needs [TrySend] =>
            "try_send and try_recv do what send and recv would do at once";
        dropped_values_are_dropped_once if |kind| !kind.keeps() =>
            "a value that a policy drops is dropped once, at the send that displaced it";
    ]
}

/// The values of `0..count` that the channel keeps if nothing is received.
fn kept(kind: &Kind, count: u32) -> Vec<u32> {
    let room = kind.room as u32;
    if count <= room {
        return (0..count).collect();
    }
    match kind.full {
        Full::Waits | Full::DropsThis | Full::Refuses => (0..room).collect(),
        Full::DropsOldest => (count - room..count).collect(),
        Full::ReplacesNewest => (0..room - 1).chain(count - 1..count).collect(),
    }
}

fn capacity_is_exact<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, _rx) = cx.channel();
    for n in 0..8 {
        let mut send = cx.begin(tx.send(n));
        if (n as usize) < cx.kind.room
            || matches!(cx.kind.full, Full::DropsOldest | Full::ReplacesNewest | Full::DropsThis)
        {
            assert_eq!(send.out(), Ok(()), "send {n}");
        } else if cx.kind.full == Full::Refuses {
            assert_eq!(send.out(), Err(SendError::NotTaken { value: n, why: Why::Refused }));
        } else {
            assert!(!send.poll(), "send {n} must wait");
        }
    }
}

fn what_is_kept_is_exact<X: Transport>(cx: &Cx<'_, X>) {
    for count in 1..9 {
        let (mut tx, mut rx) = cx.channel();
        for n in 0..count {
            drop(cx.begin(tx.send(n)));
        }
        drop(tx);
        let mut got = Vec::new();
        while let Some(value) = cx.now(rx.next()).expect("no error") {
            got.push(value);
        }
        assert_eq!(got, kept(cx.kind, count), "of {count}");
    }
}

fn len_counts<X: Transport>(cx: &Cx<'_, X>) {
    len_of(cx, |_, rx| (rx.len(), rx.is_empty()));
}

fn the_senders_len_counts<X: Transport>(cx: &Cx<'_, X>) {
    len_of(cx, |tx, _| (tx.len(), tx.is_empty()));
}

fn len_of<X: Transport>(cx: &Cx<'_, X>, len: fn(&Sender<u32>, &Receiver<u32>) -> (usize, bool)) {
    let (mut tx, mut rx) = cx.channel();
    assert_eq!(len(&tx, &rx), (0, true));
    for n in 0..6 {
        drop(cx.begin(tx.send(n)));
        cx.settle();
        let expected = kept(cx.kind, n + 1).len();
        assert_eq!(len(&tx, &rx), (expected, expected == 0), "after {} sends", n + 1);
    }
    let mut left = kept(cx.kind, 6).len();
    while left > 0 {
        rx.try_recv().expect("something is buffered");
        cx.settle();
        left -= 1;
        assert_eq!(len(&tx, &rx), (left, left == 0));
    }
}

fn room_comes_back<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut inside: std::collections::VecDeque<_> = cx.fill(&mut tx).into();
    for n in 0..6 {
        assert_eq!(cx.now(rx.recv()).ok(), inside.pop_front());
        cx.settle();
        assert_eq!(tx.try_send(n), Ok(()));
        inside.push_back(n);
        cx.settle();
        let one_more = tx.try_send(100);
        match cx.kind.full {
            Full::Waits => assert_eq!(one_more.unwrap_err().why(), Some(&Why::WouldBlock)),
            Full::Refuses => assert_eq!(one_more.unwrap_err().why(), Some(&Why::Refused)),
            Full::DropsThis => assert_eq!(one_more, Ok(())),
            Full::DropsOldest => {
                inside.pop_front();
                inside.push_back(100);
            }
            Full::ReplacesNewest => {
                inside.pop_back();
                inside.push_back(100);
            }
        }
    }
    assert_eq!(cx.drain(&mut rx), Vec::from(inside));
}

fn waiting_sends_enter_in_order<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let mut ends: Vec<_> = cx.handles::<_, { ROOM_MAX + 3 }>(tx.share()).into_iter().take(cx.kind.room + 3).collect();
    let mut sends: Vec<_> = ends.iter_mut().enumerate().map(|(n, tx)| cx.begin(tx.send(n))).collect();
    for n in 0..sends.len() {
        let done = sends.iter_mut().filter_map(|send| send.run().then_some(())).count();
        assert_eq!(done, (cx.kind.room + n).min(cx.kind.room + 3));
        assert_eq!(cx.now(rx.recv()), Ok(n));
    }
}

fn try_forms_agree<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
    for n in 0..6 {
        cx.settle();
        match tx.try_send(n) {
            Ok(()) => assert!((n as usize) < cx.kind.room || !cx.kind.keeps()),
            Err(error) => {
                assert!(n as usize >= cx.kind.room);
                let why = if cx.kind.full == Full::Refuses { Why::Refused } else { Why::WouldBlock };
                assert_eq!(error, SendError::NotTaken { value: n, why });
            }
        }
    }
    cx.settle();
    assert_eq!(cx.drain(&mut rx), kept(cx.kind, 6));
    let send = cx.begin(tx.send(7));
    assert_eq!(rx.try_recv(), Ok(7), "try_recv takes the offered value");
    assert_eq!(send.out(), Ok(()));
    drop(tx);
    cx.settle();
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}

fn dropped_values_are_dropped_once<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let counted = Counted::new();
    let inside = || counted.count() - 1;
    // A buffer of bytes holds no values.
    let room = if cx.can(Feature::BufferedValues) { cx.kind.room } else { 0 };
    for n in 0..8 {
        assert_eq!(cx.now(tx.send(counted.clone())), Ok(()));
        cx.settle();
        assert_eq!(inside(), room.min(n + 1), "after {} sends", n + 1);
    }
    assert!(rx.try_recv().is_ok());
    assert_eq!(inside(), room.saturating_sub(1));
    drop(rx);
    cx.settle();
    assert_eq!(inside(), 0, "buffered values are dropped with the receiver");
}
