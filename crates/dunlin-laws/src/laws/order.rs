//! Order, and each value once.

use crate::kind::{Full, Kind};
use crate::law::{Cx, HERE, Law, THERE, all, laws};
use crate::rig::{cut_off, give_way};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        in_order if all =>
            "one sender's values arrive in the order in which they were sent, each at most once";
        nothing_is_lost if Kind::keeps =>
            "under any schedule, exactly the values sent with Ok are received";
        any_to_any if all, needs [Shared] =>
            "several senders and receivers: each value goes to one of them, in order for each pair, and a value whose send failed to none";
        relays_keep_order if Kind::waits =>
            "a chain of relays keeps order, and passes the end from its head to its tail";
    ]
}

const VALUES: u64 = 20;

fn in_order<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let sender = cx.spawn(async move {
        for value in 0..VALUES {
            let _ = tx.send(value).await;
        }
    });
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        while let Some(value) = rx.next().await.expect("no error") {
            got.push(value);
        }
        got
    });
    cx.settle();
    sender.out();
    let got = receiver.out();
    assert!(got.is_sorted_by(|a, b| a < b), "{got:?}");
    assert!(!got.is_empty());
    if matches!(cx.kind.full, Full::DropsOldest | Full::ReplacesNewest) {
        assert_eq!(got.last(), Some(&(VALUES - 1)), "an overwriting buffer keeps the last value: {got:?}");
    }
    if cx.kind.full == Full::DropsThis {
        assert_eq!(got[0], 0, "a dropping buffer keeps the first value");
    }
}

fn nothing_is_lost<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let sender = cx.spawn(async move {
        let mut sent = Vec::new();
        for value in 0..VALUES {
            if tx.send(value).await.is_ok() {
                sent.push(value);
            }
        }
        sent
    });
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    let sent = sender.out();
    assert!(cx.kind.full == Full::Refuses || sent.len() == VALUES as usize);
    assert_eq!(receiver.out(), sent);
}

fn any_to_any<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from::<(u64, u64)>(HERE);
    let senders: [_; 3] = cx.handles(tx.share());
    let rx = rx.share();
    // A receive at another node has no answer after a few polls, so that receiver drops none.
    let is_far = cx.transport.has_nodes();
    let receivers = [(cx.carry(rx.clone(), THERE), is_far), (rx.clone(), false), (rx, false)];
    let senders: Vec<_> = (0..)
        .zip(senders)
        .map(|(who, mut tx)| {
            let pause = cx.below(3);
            cx.spawn(async move {
                let mut sent = Vec::new();
                for n in 0..8 {
                    if tx.send((who, n)).await.is_ok() {
                        sent.push((who, n));
                    }
                    for _ in 0..pause {
                        give_way().await;
                    }
                }
                sent
            })
        })
        .collect();
    let receivers: Vec<_> = receivers
        .into_iter()
        .map(|(mut rx, is_patient)| {
            let impatience = cx.below(4);
            cx.spawn(async move {
                let mut got = Vec::new();
                loop {
                    let received =
                        if is_patient { Some(rx.recv().await) } else { cut_off(2 + impatience, rx.recv()).await };
                    match received {
                        None | Some(Err(dunlin::RecvError::Refused | dunlin::RecvError::Expired)) => give_way().await,
                        Some(Ok(value)) => got.push(value),
                        Some(Err(_)) => return got,
                    }
                }
            })
        })
        .collect();
    cx.settle();
    let sent: Vec<_> = senders.into_iter().flat_map(|task| task.out()).collect();
    let mut received = Vec::new();
    for receiver in receivers {
        let got = receiver.out();
        for who in 0..3 {
            let of_one: Vec<_> = got.iter().filter(|(sender, _)| *sender == who).collect();
            assert!(of_one.is_sorted_by(|a, b| a < b), "{got:?}");
        }
        received.extend(got);
    }
    received.sort_unstable();
    let before = received.len();
    received.dedup();
    assert_eq!(received.len(), before, "a value was received twice");
    if cx.kind.keeps() {
        assert_eq!(received, sent);
    } else {
        assert!(received.iter().all(|value| sent.contains(value)));
    }
}

fn relays_keep_order<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    for _ in 0..4 {
        let (mut out, next) = cx.channel();
        let mut from = std::mem::replace(&mut rx, next);
        cx.spawn(async move {
            while let Ok(value) = from.recv().await {
                if out.send(value).await.is_err() {
                    return;
                }
            }
        });
    }
    cx.spawn(async move {
        for value in 0..VALUES {
            tx.send(value).await.expect("received");
        }
        tx.retire();
    });
    let last = cx.spawn(async move {
        let mut got = Vec::new();
        while let Some(value) = rx.next().await.expect("no error") {
            got.push(value);
        }
        got
    });
    cx.settle();
    assert_eq!(last.out(), (0..VALUES).collect::<Vec<_>>());
}
