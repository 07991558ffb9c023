//! Deadlines, streams, and asking whether a channel has ended.

use std::pin::Pin;

use dunlin::{Operation, RecvError, SendError, Why};

use crate::kind::{Full, Kind};
use crate::law::{Cx, Law, all, expired, laws};
use crate::rig::give_way;
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        receive_until if all =>
            "a receive whose deadline passes reports it and has taken nothing";
        expired_send_reaches_waiting_receiver if Kind::is_rendezvous =>
            "a send whose deadline has already passed still reaches a waiting receiver";
        deadline_and_receive_race if Kind::is_rendezvous =>
            "whichever comes first, deadline or receive, both sides report the same";
        until_in_a_choice if all, needs [Choice] =>
            "a receive with a deadline in a choice ends the choice when the deadline passes";
        send_until_in_a_choice if Kind::waits, needs [Choice] =>
            "a send with a deadline in a choice returns its value when the deadline passes";
        deadline_first_is_no_loss if all =>
            "an operation that is ready completes, even if its deadline has passed";
        as_a_stream if all =>
            "a receiver as a stream yields what receives would, and ends with the channel";
        as_a_stream_after_poison if all =>
            "a receiver as a stream yields poison once, then ends";
        closed_waits_for_the_other_end if all =>
            "closed waits until the other end is gone, at both ends, and loses nothing that is in the channel";
        closed_is_woken_by_retire_and_poison if all =>
            "retire and poison end every wait for closed";
        is_closed_is_exact if all =>
            "is_closed: for a sender that no send can succeed, for a receiver that no receive can";
        closed_in_a_choice if all, needs [Choice] =>
            "closed can be a branch of a choice";
    ]
}

fn receive_until<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    assert_eq!(cx.now(expired(rx.recv())), Err(RecvError::TimedOut));
    assert_eq!(cx.now(expired(rx.next())), Err(RecvError::TimedOut));
    let mut late = cx.hand(rx.recv().until(give_way()));
    late.poll();
    let send = cx.begin(tx.send(1));
    drop(late);
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
}

fn expired_send_reaches_waiting_receiver<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for value in 0..3 {
        let mut recv = cx.begin(rx.recv());
        let mut send = cx.hand(expired(tx.send(value)));
        cx.rig.together(&mut [&mut recv, &mut send]);
        assert_eq!(send.out(), Ok(()), "a receiver was waiting");
        assert_eq!(recv.out(), Ok(value));
    }
}

fn deadline_and_receive_race<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let patience: Vec<u64> = (0..12).map(|_| cx.below(5)).collect();
    let pauses: Vec<u64> = (0..60).map(|_| cx.below(4)).collect();
    let sender = cx.spawn(async move {
        let mut sent = Vec::new();
        for (value, patience) in patience.into_iter().enumerate() {
            let deadline = async {
                for _ in 0..patience {
                    give_way().await;
                }
            };
            match tx.send(value as u64).until(deadline).await {
                Ok(()) => sent.push(value as u64),
                Err(SendError::NotTaken { value: back, why: Why::TimedOut }) => assert_eq!(back, value as u64),
                other => panic!("{other:?}"),
            }
        }
        sent
    });
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for pause in pauses {
            for _ in 0..pause {
                give_way().await;
            }
            match rx.recv().await {
                Ok(value) => got.push(value),
                Err(_) => break,
            }
        }
        got
    });
    cx.settle();
    assert_eq!(sender.out(), receiver.out());
}

fn until_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let (_quiet, mut silent) = cx.channel::<u8>();
    let chosen = cx.now(async {
        dunlin::alt! {
            biased;
            value = rx.recv().until(give_way()) => value,
            value = silent.recv() => panic!("{value:?}"),
        }
    });
    assert_eq!(chosen, Err(RecvError::TimedOut));
    let send = cx.begin(tx.send(1));
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
}

fn send_until_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    let (_quiet, mut silent) = cx.channel::<u8>();
    let mut slot = Some(1);
    let chosen = cx.now(async {
        dunlin::alt! {
            sent = tx.send_from(&mut slot).until(give_way()) => sent,
            value = silent.recv() => panic!("{value:?}"),
        }
    });
    assert!(chosen.unwrap_err().is_timed_out());
    assert_eq!(slot, Some(1));
    assert_eq!(cx.drain(&mut rx), before);
}

fn deadline_first_is_no_loss<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let send = cx.begin(tx.send(1));
    assert_eq!(cx.now(expired(rx.recv())), Ok(1));
    assert_eq!(send.out(), Ok(()));
    drop(tx);
    cx.settle();
    assert_eq!(cx.now(expired(rx.next())), Ok(None));
}

fn as_a_stream<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let sender = cx.spawn(async move {
        let mut sent = Vec::new();
        for n in 0..3 {
            if tx.send(n).await.is_ok() {
                sent.push(n);
            }
            give_way().await;
        }
        sent
    });
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        while let Some(item) = std::future::poll_fn(|cx| futures_core::Stream::poll_next(Pin::new(&mut rx), cx)).await {
            got.push(item.expect("no error"));
        }
        got
    });
    cx.settle();
    let (sent, got) = (sender.out(), receiver.out());
    assert!(cx.kind.full == Full::Refuses || sent.len() == 3, "there is room, or it waits");
    match cx.kind.full {
        Full::Waits | Full::Refuses => assert_eq!(got, sent),
        Full::DropsThis => assert_eq!(got.first(), sent.first()),
        Full::DropsOldest | Full::ReplacesNewest => assert_eq!(got.last(), sent.last()),
    }
}

fn as_a_stream_after_poison<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel::<u64>();
    let mut next = cx.begin(async move {
        let mut item = async || std::future::poll_fn(|cx| futures_core::Stream::poll_next(Pin::new(&mut rx), cx)).await;
        let first = item().await;
        (first, item().await)
    });
    tx.poison("bad");
    assert!(next.run());
    assert_eq!(next.out(), (Some(Err(RecvError::Poisoned("bad".into()))), None));
}

fn closed_waits_for_the_other_end<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel::<u32>();
    let mut closed = cx.begin(tx.closed());
    assert!(!closed.poll());
    drop(rx);
    assert!(closed.run());
    let (mut tx, mut rx) = cx.channel();
    let mut closed = cx.begin(rx.closed());
    let values = cx.fill(&mut tx);
    let mut early = cx.begin(tx.send(1));
    early.run();
    assert!(!closed.run() && !closed.poll(), "values are not the end");
    drop(early);
    drop(tx);
    assert!(closed.run());
    drop(closed);
    assert!(cx.drain(&mut rx).len() >= values.len().min(1), "buffered values can still be received");
}

fn closed_is_woken_by_retire_and_poison<X: Transport>(cx: &Cx<'_, X>) {
    for poison in [false, true] {
        let (tx, mut rx) = cx.channel::<u32>();
        let mut closed = cx.begin(rx.closed());
        if poison {
            tx.poison("now")
        } else {
            tx.retire()
        }
        assert!(closed.run());
        let (mut tx, rx) = cx.channel::<u32>();
        let mut closed = cx.begin(tx.closed());
        if poison {
            rx.poison("now")
        } else {
            rx.retire()
        }
        assert!(closed.run());
    }
}

fn is_closed_is_exact<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    assert!(!tx.is_closed() && !rx.is_closed());
    let values = cx.fill(&mut tx);
    drop(tx);
    cx.settle();
    assert_eq!(rx.is_closed(), values.is_empty(), "closed when nothing is left");
    cx.drain(&mut rx);
    assert!(rx.is_closed());
    let (mut tx, rx) = cx.channel();
    let values = cx.fill(&mut tx);
    tx.retire();
    cx.settle();
    assert!(tx.is_closed());
    assert_eq!(rx.is_closed(), values.is_empty());
    rx.poison("now");
    cx.settle();
    assert!(tx.is_closed() && rx.is_closed(), "poison drops buffered values");
}

fn closed_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel::<u8>();
    let (_quiet, mut silent) = cx.channel::<u8>();
    let choice = cx.begin(async {
        dunlin::alt! {
            () = tx.closed() => true,
            value = silent.recv() => panic!("{value:?}"),
        }
    });
    assert!(!choice.is_done());
    drop(rx);
    assert!(choice.out());
}
