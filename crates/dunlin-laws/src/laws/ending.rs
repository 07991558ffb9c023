//! Ending: by drop, by retire, by poison.

use dunlin::{Reason, Receiver, RecvError, SendError, Sender, Strength, Why};

use crate::counted::Counted;
use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, THERE, all, laws};
use crate::rig::give_way;
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        senders_gone_then_drained if all =>
            "when the sender is dropped, what is buffered is received, then Closed for ever";
        waiting_receive_sees_the_end if all =>
            "a waiting receive is woken when the channel ends, in whatever way";
        retire_keeps_what_is_buffered if all =>
            "retire, from either end: what is buffered is received, then Closed";
        retire_refuses_waiting_sends if Kind::waits =>
            "retire refuses waiting sends, even if a receive comes before they are polled";
        retire_then_try_recv if Kind::waits =>
            "after retire try_recv takes nothing from sends that waited";
        retire_is_idempotent if all =>
            "retire twice, and from both ends, is as once";
        poison_reaches_both_ends if all =>
            "after poison, from either end, everything at both ends fails with the reason; the first reason stands";
        poison_destroys_what_is_buffered if |kind| !kind.is_rendezvous() =>
            "poison destroys what is buffered, at once and once";
        read_then_poison if Kind::is_rendezvous =>
            "read, then poison before the woken writer has run: that write succeeded, the next fails";
        weak_poison_does_nothing if all =>
            "poison that is not stronger than the channel's immunity does nothing, from either end; the receiver reports that";
        weak_poison_is_reported if all, needs [PoisonVerdict] =>
            "poison that is too weak is reported, from either end";
        strong_poison_has_its_strength if all =>
            "stronger poison ends the channel, also for waiting operations, and the errors at both ends carry its strength";
        full_poison_overcomes_all if all =>
            "no channel is immune to poison of full strength";
        poison_does_not_overtake if all =>
            "poison does not reach what a later stage has accepted";
        poison_after_retire if all =>
            "poison counts after retire";
        ends_race_with_sends if Kind::is_rendezvous =>
            "whenever the receiver retires, poisons or is dropped: a send is Ok if and only if received, otherwise its value is returned";
        retire_races_with_a_buffer if |kind| kind.keeps() =>
            "whenever the receiver retires: what was sent with Ok is received, all else is returned";
        the_end_is_for_all_clones if all, needs [Shared] =>
            "a shared end ends its side when its last handle is dropped, not before";
        drop_of_both_ends_drops_the_values if all =>
            "values that are left are dropped with the channel, each once";
        no_poison_ends_work_the_same if all =>
            "an end without the power to poison does all else";
    ]
}

fn senders_gone_then_drained<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let values = cx.fill(&mut tx);
    drop(tx);
    cx.settle();
    for value in values {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
    assert_eq!(cx.now(rx.next()), Ok(None));
    assert_eq!(cx.now(rx.recv_extended()).unwrap_err(), RecvError::Closed);
}

fn waiting_receive_sees_the_end<X: Transport>(cx: &Cx<'_, X>) {
    /// Ends the channel; returns the sender if it still exists.
    type End = fn(Sender<u32>) -> Option<Sender<u32>>;
    let ways: [(End, RecvError); 3] = [
        (|_| None, RecvError::Closed),
        (
            |tx| {
                tx.retire();
                Some(tx)
            },
            RecvError::Closed,
        ),
        (
            |tx| {
                tx.poison("now");
                Some(tx)
            },
            RecvError::Poisoned("now".into()),
        ),
    ];
    for (end, why) in ways {
        let (tx, mut rx) = cx.channel();
        let recv = cx.begin(rx.recv());
        let _tx = end(tx);
        assert!(recv.is_woken());
        assert_eq!(recv.out(), Err(why));
    }
}

fn retire_keeps_what_is_buffered<X: Transport>(cx: &Cx<'_, X>) {
    for from_sender in [true, false] {
        let (mut tx, mut rx) = cx.channel();
        let values = cx.fill(&mut tx);
        if from_sender {
            tx.retire()
        } else {
            rx.retire()
        }
        cx.settle();
        assert_eq!(cx.now(tx.send(1)), Err(SendError::NotTaken { value: 1, why: Why::Closed }));
        for value in values {
            assert_eq!(cx.now(rx.recv()), Ok(value));
        }
        assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
    }
}

fn retire_refuses_waiting_sends<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let values = cx.fill(&mut tx);
    let send = cx.begin(tx.send(1));
    rx.retire();
    cx.settle();
    for value in values {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
    assert_eq!(send.out(), Err(SendError::NotTaken { value: 1, why: Why::Closed }));
}

fn retire_then_try_recv<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let values = cx.fill(&mut tx);
    let send = cx.begin(tx.send(1));
    rx.retire();
    cx.settle();
    for value in values {
        assert_eq!(rx.try_recv(), Ok(value));
    }
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    assert_eq!(send.out(), Err(SendError::NotTaken { value: 1, why: Why::Closed }));
}

fn retire_is_idempotent<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let values = cx.fill(&mut tx);
    for _ in 0..2 {
        tx.retire();
        rx.retire();
        cx.settle();
    }
    assert_eq!(cx.drain(&mut rx), values);
    rx.retire();
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
    drop(rx);
    tx.retire();
    assert!(cx.now(tx.send(1)).unwrap_err().is_closed());
}

fn poison_reaches_both_ends<X: Transport>(cx: &Cx<'_, X>) {
    for from_sender in [true, false] {
        let (mut tx, mut rx): (Sender<u32>, Receiver<u32>) = cx.channel();
        cx.fill(&mut tx);
        if from_sender {
            tx.poison("first")
        } else {
            rx.poison("first")
        }
        cx.settle();
        if from_sender {
            rx.poison("second")
        } else {
            tx.poison("second")
        }
        cx.settle();
        let (why, none) = (Why::Poisoned("first".into()), RecvError::Poisoned("first".into()));
        assert_eq!(cx.now(tx.send(1)), Err(SendError::NotTaken { value: 1, why: why.clone() }));
        assert_eq!(tx.try_send(2), Err(SendError::NotTaken { value: 2, why }));
        assert_eq!(cx.now(rx.recv()), Err(none.clone()));
        assert_eq!(cx.now(rx.next()), Err(none.clone()));
        assert_eq!(cx.now(rx.recv_extended()).unwrap_err(), none);
        assert_eq!(rx.try_recv(), Err(none));
        cx.now(tx.closed());
        cx.now(rx.closed());
        assert!(tx.is_closed() && rx.is_closed());
    }
}

fn poison_destroys_what_is_buffered<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let counted = Counted::new();
    for _ in 0..cx.kind.room.min(3) {
        assert_eq!(cx.now(tx.send(counted.clone())), Ok(()));
    }
    tx.poison("now");
    cx.settle();
    assert_eq!(counted.count(), 1);
    assert!(cx.now(rx.recv()).unwrap_err().is_poisoned());
}

fn read_then_poison<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut slot = Some(1);
    let mut send = cx.begin(tx.send_from(&mut slot));
    let mut recv = cx.hand(rx.recv());
    assert!(recv.poll());
    drop(recv);
    rx.poison("now");
    cx.settle();
    assert!(send.run());
    assert_eq!(send.out(), Ok(()), "that write succeeded");
    assert_eq!(slot, None);
    assert!(cx.now(tx.send(2)).unwrap_err().is_poisoned());
}

fn poison_does_not_overtake<X: Transport>(cx: &Cx<'_, X>) {
    // head -> relay -> tail; the relay has accepted 1 and offers it on.
    let (mut head, mut relay_rx) = cx.channel();
    let (mut relay_tx, mut tail) = cx.channel();
    let sent = cx.begin(head.send(1));
    let value = cx.now(relay_rx.recv()).expect("offered");
    assert_eq!(sent.out(), Ok(()));
    head.poison("upstream");
    cx.settle();
    let on = cx.begin(relay_tx.send(value));
    assert!(cx.now(relay_rx.recv()).unwrap_err().is_poisoned());
    assert_eq!(cx.now(tail.recv()), Ok(1), "the value that the relay accepted stays");
    assert_eq!(on.out(), Ok(()));
    relay_tx.poison("passed on");
    cx.settle();
    assert!(cx.now(tail.recv()).unwrap_err().is_poisoned());
}

fn poison_after_retire<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    cx.fill(&mut tx);
    tx.retire();
    cx.settle();
    rx.poison("now");
    cx.settle();
    assert!(cx.now(rx.recv()).unwrap_err().is_poisoned());
    assert!(cx.now(tx.send(1)).unwrap_err().is_poisoned());
}

/// Sends until the channel ends; returns the values that were sent.
async fn send_all(mut tx: Sender<u64>, pauses: Vec<u64>) -> Vec<u64> {
    let mut sent = Vec::new();
    for (value, pause) in (0..).zip(pauses) {
        let mut slot = Some(value);
        let result = tx.send_from(&mut slot).await;
        assert_eq!(result.is_ok(), slot.is_none(), "the slot of {value}");
        match result {
            Ok(()) => sent.push(value),
            Err(error) if error.why() == Some(&Why::Refused) => {}
            Err(_) => break,
        }
        for _ in 0..pause {
            give_way().await;
        }
    }
    sent
}

fn ends_race_with_sends<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel::<u64>();
    let sender = cx.spawn(send_all(tx, (0..30).map(|_| cx.below(3)).collect()));
    let (count, way, pause) = (cx.below(4), cx.below(3), cx.below(6));
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for _ in 0..count {
            got.push(rx.recv().await.expect("the sender is there"));
        }
        for _ in 0..pause {
            give_way().await;
        }
        match way {
            0 => drop(rx),
            1 => rx.retire(),
            _ => rx.poison("now"),
        }
        got
    });
    cx.settle();
    assert_eq!(sender.out(), receiver.out(), "sent, and received (way {way})");
}

fn retire_races_with_a_buffer<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel::<u64>();
    let sender = cx.spawn(send_all(tx, (0..30).map(|_| cx.below(3)).collect()));
    let (count, pause) = (cx.below(4), cx.below(6));
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for _ in 0..count {
            got.extend(rx.recv().await);
        }
        for _ in 0..pause {
            give_way().await;
        }
        rx.retire();
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    assert_eq!(sender.out(), receiver.out());
}

fn the_end_is_for_all_clones<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from::<u32>(HERE);
    let (tx, rx) = (tx.share(), rx.share());
    let (mut last_tx, mut last_rx) = (cx.there(&tx), cx.carry(rx.clone(), THERE));
    drop((tx, rx));
    cx.settle();
    assert!(!last_tx.is_closed() && !last_rx.is_closed());
    let send = cx.begin(last_tx.send(1));
    assert_eq!(cx.now(last_rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
    if cx.below(2) == 0 {
        let recv = cx.begin(last_rx.recv());
        drop(last_tx);
        assert_eq!(recv.out(), Err(RecvError::Closed));
    } else {
        drop(last_rx);
        assert!(cx.now(last_tx.send(2)).unwrap_err().is_closed());
    }
}

fn drop_of_both_ends_drops_the_values<X: Transport>(cx: &Cx<'_, X>) {
    let counted = Counted::new();
    let (mut tx, rx) = cx.channel();
    for _ in 0..3 {
        drop(cx.begin(tx.send(counted.clone())));
        // Over a connection the end keeps the value of a dropped send until it is settled.
        let mut back = None;
        assert_eq!(cx.now(tx.settle(&mut back)), Ok(()));
    }
    if cx.below(2) == 0 {
        drop(tx);
        cx.settle();
        drop(rx);
    } else {
        drop(rx);
        cx.settle();
        assert_eq!(counted.count(), 1, "no receiver is left");
        drop(tx);
    }
    cx.settle();
    assert_eq!(counted.count(), 1);
}

fn no_poison_ends_work_the_same<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel::<u32>();
    let (mut tx, mut rx) = (tx.no_poison(), rx.no_poison());
    let send = cx.begin(tx.send(1));
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
    tx.retire();
    cx.settle();
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
}

fn weak_poison_does_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel_of(cx.kind.policy.clone().immunity(3));
    let values = cx.fill(&mut tx);
    assert!(!rx.poison_with(3, "weak"));
    tx.poison_with(2, "weaker");
    cx.settle();
    assert!(!tx.is_closed() && !rx.is_closed());
    for value in values {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    let recv = cx.begin(rx.recv());
    tx.poison_with(3, "weak");
    assert!(!recv.is_done() && !recv.is_woken());
    let send = cx.begin(tx.send(1));
    assert_eq!(recv.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
    drop(tx);
    cx.settle();
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed), "it ended in order");
}

fn weak_poison_is_reported<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_of::<u32>(cx.kind.policy.clone().immunity(3));
    assert_eq!((tx.poison_with(3, "weak"), rx.poison_with(3, "weak")), (false, false));
    assert_eq!((tx.poison_with(4, "strong"), rx.poison_with(4, "strong")), (true, true));
}

fn strong_poison_has_its_strength<X: Transport>(cx: &Cx<'_, X>) {
    for from_sender in [true, false] {
        let (mut tx, mut rx) = cx.channel_of(cx.kind.policy.clone().immunity(3));
        let (why, none) =
            (Reason::from("strong").of_strength(4), RecvError::Poisoned(Reason::from("strong").of_strength(4)));
        if from_sender {
            let recv = cx.begin(rx.recv());
            assert!(tx.poison_with(4, "strong"));
            assert_eq!(recv.out(), Err(none.clone()));
        } else if cx.kind.waits() {
            cx.fill(&mut tx);
            let send = cx.begin(tx.send(1));
            assert!(rx.poison_with(4, "strong"));
            assert_eq!(send.out(), Err(SendError::NotTaken { value: 1, why: Why::Poisoned(why.clone()) }));
        } else {
            assert!(rx.poison_with(4, "strong"));
        }
        cx.settle();
        tx.poison("too late");
        cx.settle();
        assert_eq!(cx.now(rx.recv()), Err(none));
        let Err(SendError::NotTaken { why: Why::Poisoned(heard), .. }) = cx.now(tx.send(2)) else {
            panic!("it is poisoned")
        };
        assert_eq!((heard.as_str(), heard.strength()), ("strong", Strength::from(4)));
        assert_eq!(heard, why);
    }
}

fn full_poison_overcomes_all<X: Transport>(cx: &Cx<'_, X>) {
    for from_sender in [true, false] {
        let (mut tx, mut rx) = cx.channel_of::<u32>(cx.kind.policy.clone().immunity(Strength::FULL));
        assert!(!rx.poison_with(254, "weak"));
        if from_sender {
            tx.poison("now")
        } else {
            rx.poison("now")
        }
        cx.settle();
        let why = Why::Poisoned("now".into());
        assert_eq!(cx.now(tx.send(1)), Err(SendError::NotTaken { value: 1, why }));
        assert_eq!(cx.now(rx.recv()), Err(RecvError::Poisoned("now".into())));
    }
}
