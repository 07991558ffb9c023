//! Rule 2: a failed send returns its value, and a slot is empty if, and only if, its value was taken.

use dunlin::{Receiver, RecvError, SendError, Why};

use crate::kind::{Full, Kind};
use crate::law::{Cx, Law, all, expired, laws};
use crate::rig::cut_off;
use crate::transport::{Feature, Transport};

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        back_when_the_receiver_goes if all =>
            "when the receiver is dropped, waiting and later sends return their values: closed";
        back_when_retired if all =>
            "when the channel is retired, waiting and later sends return their values: closed";
        back_when_poisoned if all =>
            "when the channel is poisoned, waiting and later sends return their values, with the reason";
        back_when_timed_out if Kind::waits =>
            "a send whose deadline passes returns its value, and that value is never received";
        back_when_dropped if Kind::waits =>
            "a dropped send_from leaves its value in the slot, and that value is never received";
        back_when_refused if |kind| kind.full == Full::Refuses =>
            "a value that the policy refuses is returned, by every kind of send";
        back_when_it_would_block if Kind::waits =>
            "try_send returns a value that would have to wait";
        slot_is_empty_iff_received if Kind::keeps =>
            "whenever a send_from is dropped, its slot is empty if and only if the value is received";
        an_empty_slot_sends_nothing if all =>
            "a send_from with an empty slot completes at once and sends nothing";
    ]
}

/// Sends that wait when `end` ends the channel, and later ones, all fail with `why` and return their values.
fn all_come_back<X: Transport>(cx: &Cx<'_, X>, end: fn(Receiver<u32>) -> Option<Receiver<u32>>, why: &Why) {
    let (mut tx, rx) = cx.channel();
    cx.fill(&mut tx);
    let mut slot = Some(7);
    let _rx = if !cx.kind.waits() {
        end(rx)
    } else if cx.below(2) == 0 {
        let send = cx.begin(tx.send_from(&mut slot));
        let rx = end(rx);
        assert_eq!(send.out(), Err(SendError::NotTaken { value: (), why: why.clone() }));
        assert_eq!(slot, Some(7), "the slot of a failed send is full");
        rx
    } else {
        let send = cx.begin(tx.send(6));
        let rx = end(rx);
        assert_eq!(send.out(), Err(SendError::NotTaken { value: 6, why: why.clone() }));
        rx
    };
    cx.settle();
    assert_eq!(cx.now(tx.send(8)), Err(SendError::NotTaken { value: 8, why: why.clone() }));
    assert_eq!(cx.now(tx.send_from(&mut slot)), Err(SendError::NotTaken { value: (), why: why.clone() }));
    assert_eq!(slot, Some(7));
    assert_eq!(tx.try_send(9), Err(SendError::NotTaken { value: 9, why: why.clone() }));
    assert!(tx.is_closed());
}

fn back_when_the_receiver_goes<X: Transport>(cx: &Cx<'_, X>) {
    all_come_back(cx, |_| None, &Why::Closed);
}

fn back_when_retired<X: Transport>(cx: &Cx<'_, X>) {
    let retire = |rx: Receiver<u32>| {
        rx.retire();
        Some(rx)
    };
    all_come_back(cx, retire, &Why::Closed);
}

fn back_when_poisoned<X: Transport>(cx: &Cx<'_, X>) {
    let poison = |rx: Receiver<u32>| {
        rx.poison("too late");
        Some(rx)
    };
    all_come_back(cx, poison, &Why::Poisoned("too late".into()));
}

fn back_when_timed_out<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    let timed_out = cx.now(expired(tx.send(1)));
    assert_eq!(timed_out, Err(SendError::NotTaken { value: 1, why: Why::TimedOut }));
    let mut slot = Some(2);
    assert!(cx.now(expired(tx.send_from(&mut slot))).unwrap_err().is_timed_out());
    assert_eq!(slot, Some(2));
    assert_eq!(cx.drain(&mut rx), before, "a timed-out value was received");
}

fn back_when_dropped<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    let mut slot = Some(1);
    for polls in 0..3 {
        assert_eq!(cx.now(cut_off(polls, tx.send_from(&mut slot))), None);
        // Over a connection `settle` makes this true; locally it has nothing to do.
        assert_eq!(cx.now(tx.settle(&mut slot)), Ok(()));
        assert_eq!(slot, Some(1), "dropped after {polls} polls");
    }
    assert_eq!(cx.drain(&mut rx), before, "a returned value was received");
    let send = cx.begin(tx.send_from(&mut slot));
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
    assert_eq!(slot, None);
}

fn back_when_refused<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    assert_eq!(cx.now(tx.send(1)), Err(SendError::NotTaken { value: 1, why: Why::Refused }));
    let mut slot = Some(2);
    assert_eq!(cx.now(tx.send_from(&mut slot)), Err(SendError::NotTaken { value: (), why: Why::Refused }));
    assert_eq!(slot, Some(2));
    if cx.can(Feature::TrySend) {
        assert_eq!(tx.try_send(3), Err(SendError::NotTaken { value: 3, why: Why::Refused }));
    }
    assert_eq!(cx.drain(&mut rx), before);
    assert_eq!(cx.now(tx.send_from(&mut slot)), Ok(()), "the channel stays usable");
    assert_eq!(cx.now(rx.recv()), Ok(2));
}

fn back_when_it_would_block<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let before = cx.fill(&mut tx);
    cx.settle();
    assert_eq!(tx.try_send(1), Err(SendError::NotTaken { value: 1, why: Why::WouldBlock }));
    assert_eq!(cx.drain(&mut rx), before);
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
}

fn slot_is_empty_iff_received<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let plan: Vec<u64> = (0..20).map(|_| cx.below(6)).collect();
    let receiver_plan: Vec<u64> = (0..40).map(|_| cx.below(6)).collect();
    let sender = cx.spawn(async move {
        let mut taken = Vec::new();
        for (value, polls) in plan.into_iter().enumerate() {
            let mut slot = Some(value as u64);
            let ended = cut_off(polls, tx.send_from(&mut slot)).await;
            tx.settle(&mut slot).await.expect("known");
            match (ended, slot) {
                (Some(Ok(())), None) | (None, None) => taken.push(value as u64),
                (Some(Err(_)) | None, Some(_)) => {}
                other => panic!("{other:?}"),
            }
        }
        taken
    });
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for polls in receiver_plan {
            got.extend(cut_off(polls, rx.recv()).await.and_then(Result::ok));
        }
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    assert_eq!(sender.out(), receiver.out());
}

fn an_empty_slot_sends_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u8>();
    let mut slot = None;
    assert_eq!(cx.now(tx.send_from(&mut slot)), Ok(()));
    assert_eq!(cx.drain(&mut rx), []);
}
