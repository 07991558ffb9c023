//! Futures that are dropped at any await, or forgotten: no value is lost or duplicated, and the next
//! operation works.

use dunlin::{Choice, RecvError, send_to_any};

use crate::kind::{Kind, NO_BOUND};
use crate::law::{Cx, Law, all, laws};
use crate::rig::{cut_off, give_way};
use crate::transport::Transport;

fn finite(kind: &Kind) -> bool {
    kind.waits() && kind.room < NO_BOUND
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        cut_receives_lose_nothing if Kind::keeps =>
            "receives of all kinds, dropped after any number of polls, lose and double nothing";
        cut_choices_lose_nothing if Kind::waits, needs [Choice] =>
            "choices of sends and receives at both ends, dropped after any number of polls, lose and double nothing";
        forgotten_send_stands if finite, needs [Forgetting] =>
            "the offer of a forgotten send stands: it is received first, and later sends work";
        forgotten_send_settles if finite, needs [Forgetting] =>
            "settle returns the value of a forgotten send_from, and that value is never received";
        settle_after_taken if finite, needs [Forgetting] =>
            "settle leaves the slot empty if the forgotten send was received";
        settle_leaves_a_full_slot if finite, needs [Forgetting] =>
            "settle does not overwrite a full slot; what was forgotten stays offered";
        forgotten_receive_keeps_nothing if all, needs [Forgetting] =>
            "a forgotten receive takes nothing from later ones";
        forgotten_choice_settles if Kind::is_rendezvous, needs [Forgetting, Choice] =>
            "of a forgotten choice whose one send was taken, settle returns the other's value";
        forgotten_choice_happens_once if Kind::is_rendezvous, needs [Forgetting, Choice] =>
            "a forgotten choice offers one of its values, not several";
        forgotten_before_its_first_poll if all, needs [Forgetting] =>
            "forgetting what was never polled loses nothing that a slot holds";
        stream_polls_can_stop if all =>
            "a stream that was polled and not polled again has taken nothing";
    ]
}

fn cut_receives_lose_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let plan: Vec<_> = (0..60).map(|_| (cx.below(3), cx.below(4))).collect();
    let sender = cx.spawn(async move {
        let mut sent = Vec::new();
        for value in 0..20 {
            if tx.send(value).await.is_ok() {
                sent.push(value);
            }
            give_way().await;
        }
        sent
    });
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for (kind, polls) in plan {
            let cut = match kind {
                0 => cut_off(polls, rx.recv()).await.and_then(Result::ok),
                1 => cut_off(polls, rx.next()).await.and_then(Result::ok).flatten(),
                _ => match cut_off(polls, rx.recv_extended()).await {
                    Some(Ok(guard)) => {
                        give_way().await;
                        Some(guard.release())
                    }
                    _ => None,
                },
            };
            got.extend(cut);
        }
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    assert_eq!(receiver.out(), sender.out());
}

fn cut_choices_lose_nothing<X: Transport>(cx: &Cx<'_, X>) {
    // Two processes with a channel in each direction; both choose, and both drop some of their choices.
    let (ping_tx, ping_rx) = cx.channel::<u64>();
    let (pong_tx, pong_rx) = cx.channel::<u64>();
    let party = |first: u64, mut tx: dunlin::Sender<u64>, mut rx: dunlin::Receiver<u64>| {
        let plan: Vec<u64> = (0..40).map(|_| cx.below(7)).collect();
        async move {
            let (mut sent, mut got, mut next) = (Vec::new(), Vec::new(), first);
            for polls in plan {
                let mut slot = Some(next);
                let choice = Choice::fair()
                    .on(tx.send_from(&mut slot), |sent| sent.map(|()| None).map_err(drop))
                    .on(rx.recv(), |value| value.map(Some).map_err(drop))
                    .into_future();
                if let Some((_, Ok(Some(value)))) = cut_off(polls, choice).await {
                    got.push(value);
                }
                tx.settle(&mut slot).await.expect("known");
                if slot.is_none() {
                    sent.push(next);
                    next += 1;
                }
            }
            drop(tx);
            while let Ok(value) = rx.recv().await {
                got.push(value);
            }
            (sent, got)
        }
    };
    let a = cx.spawn(party(0, ping_tx, pong_rx));
    let b = cx.spawn(party(1000, pong_tx, ping_rx));
    cx.settle();
    let ((a_sent, a_got), (b_sent, b_got)) = (a.out(), b.out());
    assert_eq!((a_sent, b_sent), (b_got, a_got));
}

fn forgotten_send_stands<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut expected = cx.fill(&mut tx);
    cx.begin(tx.send(1)).forget();
    expected.extend([1, 2]);
    if cx.kind.pending.is_none() && cx.below(2) == 0 {
        drop(cx.begin(tx.send(9)));
    }
    let mut second = cx.begin(tx.send(2));
    for value in expected {
        assert_eq!(cx.now(rx.recv()), Ok(value));
        second.run();
    }
    assert_eq!(second.out(), Ok(()));
    let third = cx.begin(tx.send(3));
    assert_eq!(cx.now(rx.recv()), Ok(3));
    assert_eq!(third.out(), Ok(()));
}

fn forgotten_send_settles<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    let mut slot = Some(1);
    cx.begin(tx.send_from(&mut slot)).forget();
    assert_eq!(slot, None, "the offer has it");
    assert_eq!(cx.now(tx.settle(&mut slot)), Ok(()));
    assert_eq!(slot, Some(1));
    assert_eq!(cx.now(tx.settle(&mut slot)), Ok(()), "twice is harmless");
    assert_eq!(slot, Some(1));
    assert_eq!(cx.drain(&mut rx), before);
    let send = cx.begin(tx.send_from(&mut slot));
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
}

fn settle_after_taken<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut expected = cx.fill(&mut tx);
    expected.push(1);
    let mut slot = Some(1);
    cx.begin(tx.send_from(&mut slot)).forget();
    assert_eq!(cx.drain(&mut rx), expected);
    assert_eq!(cx.now(tx.settle(&mut slot)), Ok(()));
    assert_eq!(slot, None);
}

fn settle_leaves_a_full_slot<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut expected = cx.fill(&mut tx);
    expected.push(1);
    let mut slot = Some(1);
    cx.begin(tx.send_from(&mut slot)).forget();
    let mut other = Some(2);
    assert_eq!(cx.now(tx.settle(&mut other)), Ok(()));
    assert_eq!(other, Some(2));
    assert_eq!(cx.drain(&mut rx), expected);
}

fn forgotten_receive_keeps_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    cx.begin(rx.recv()).forget();
    let send = cx.begin(tx.send(1));
    let mut recv = cx.hand(rx.recv());
    assert!(recv.run());
    assert_eq!(recv.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
    cx.begin(rx.recv()).forget();
    drop(tx);
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
}

fn forgotten_choice_settles<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    let (mut a, mut b) = (Some(1), Some(2));
    cx.begin(Choice::fair().on(a_tx.send_from(&mut a), drop).on(b_tx.send_from(&mut b), drop).into_future()).forget();
    assert_eq!(cx.now(a_rx.recv()), Ok(1));
    if cx.below(2) == 0 {
        assert_eq!(b_rx.try_recv(), Err(RecvError::WouldBlock), "the choice has been made");
    }
    cx.settle();
    assert_eq!(cx.now(a_tx.settle(&mut a)), Ok(()));
    assert_eq!(cx.now(b_tx.settle(&mut b)), Ok(()));
    assert_eq!((a, b), (None, Some(2)));
}

fn forgotten_choice_happens_once<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    let mut slot = Some(1);
    let mut ends = [a_tx, b_tx];
    cx.begin(send_to_any(&mut slot, &mut ends)).forget();
    {
        let (mut one, mut other) = (cx.hand(a_rx.recv()), cx.hand(b_rx.recv()));
        cx.rig.together(&mut [&mut one, &mut other]);
        assert!(one.is_done() != other.is_done(), "exactly one of them has it");
        assert_eq!(if one.is_done() { one.out() } else { other.out() }, Ok(1));
    }
    [a_tx, b_tx] = ends;
    let send = cx.begin(b_tx.send(2));
    assert_eq!(cx.now(b_rx.recv()), Ok(2));
    assert_eq!(send.out(), Ok(()));
    drop(a_tx);
}

fn forgotten_before_its_first_poll<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut slot = Some(1);
    std::mem::forget(tx.send_from(&mut slot));
    assert_eq!(slot, Some(1));
    let mut ends = [tx];
    std::mem::forget(send_to_any(&mut slot, &mut ends));
    assert_eq!(slot, Some(1), "nothing was offered");
    std::mem::forget(rx.recv());
    assert_eq!(cx.drain(&mut rx), []);
}

fn stream_polls_can_stop<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    drop(cx.begin(std::future::poll_fn(|cx| futures_core::Stream::poll_next(std::pin::Pin::new(&mut rx), cx))));
    let send = cx.begin(tx.send(1));
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
}
