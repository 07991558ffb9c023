//! Broadcast: each value goes to all joined receivers.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use dunlin::{
    Broadcast, BroadcastError, CompleteError, Joiner, Operation, Policy, Portable, Receiver, RecvError, Why, alt,
    broadcast_with,
};

use crate::counted::Counted;
use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, expired, laws};
use crate::rig::{cut_off, give_way};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        all_have_returned_it if Kind::is_plain_rendezvous, needs [Stretched] =>
            "a broadcast completes when all that had joined have returned its value, and not before";
        a_leaving_receiver_is_not_waited_for if Kind::is_plain_rendezvous, needs [Stretched] =>
            "a receiver that leaves, by drop or by retire, lets the broadcast proceed";
        a_joining_receiver_gets_the_next if Kind::is_plain_rendezvous, needs [Stretched] =>
            "a receiver that joins while a value is sent gets the next one";
        the_least_number_is_waited_for if Kind::is_plain_rendezvous, needs [Stretched] =>
            "a value waits for the least number of receivers, and only that wait has a deadline; without a joiner it is Closed";
        poison_of_one_is_for_all if |kind| kind.is_open() && kind.keeps(), needs [Stretched] =>
            "poison of one receiver reaches all others, the sender, and every later joiner";
        weak_poison_of_a_broadcast if |kind| kind.is_open(), needs [Stretched] =>
            "a broadcast whose channels are immune to a poison continues, from whichever end the poison came";
        a_dropped_broadcast_is_withdrawn if Kind::is_plain_rendezvous, needs [Stretched] =>
            "a dropped broadcast has reached the receivers that have received its value, and reaches no others";
        a_bounded_broadcast_reports_deliveries if Kind::is_plain_rendezvous, needs [Stretched] =>
            "a bound on the wait for receivers withdraws a value from those that have not received it, and reports how many have; the next value goes to all";
        the_sender_ends_it_for_all if |kind| kind.is_open(), needs [Stretched] =>
            "when the sender of a broadcast is dropped or retires it, receivers get what is in their channels, then Closed";
        all_receivers_get_the_same if |kind| kind.is_open() && kind.keeps(), needs [Stretched] =>
            "each receiver of a broadcast gets all values sent while it was joined, in order, each once";
        a_broadcast_in_choices if Kind::is_plain_rendezvous, needs [Stretched, Choice] =>
            "a joined receiver is a branch of a choice like any other";
        clones_are_dropped_once if |kind| kind.is_open(), needs [Stretched] =>
            "every clone that a broadcast makes is received or dropped, once";
    ]
}

/// A broadcast of the column's policy, whose receivers are at the other side.
struct Cast<'a, X: Transport, T = u32> {
    cx: &'a Cx<'a, X>,
    joiner: Joiner<T>,
    /// Whether the joiner is at the other side, too.
    is_there: bool,
    /// A receiver that had joined before the sending end moved to the other side.
    early: RefCell<Option<Receiver<T>>>,
}

impl<X: Transport, T: Portable> Cast<'_, X, T> {
    /// Joins with the whole policy, which only a node carries to the other side.
    fn join_whole(&self) -> Receiver<T> {
        if self.cx.transport.has_nodes() { self.join() } else { self.joiner.join() }
    }

    fn join(&self) -> Receiver<T> {
        if let Some(early) = self.early.take() {
            return early;
        }
        let receiver = self.joiner.join();
        if self.is_there {
            self.cx.settle();
            return receiver;
        }
        self.cx.stretch(receiver)
    }
}

/// Creates a broadcast. Over nodes its receivers or its joiner move to the other side; the sender may, too.
fn cast<'a, X: Transport>(cx: &'a Cx<'a, X>) -> (Broadcast<u32>, Cast<'a, X>) {
    cast_of(cx, cx.kind.policy.clone())
}

fn cast_of<'a, X: Transport, T: Portable + Clone>(cx: &'a Cx<'a, X>, policy: Policy) -> (Broadcast<T>, Cast<'a, X, T>) {
    let (tx, joiner) = broadcast_with(policy);
    let early = RefCell::default();
    if !cx.transport.has_nodes() {
        return (tx, Cast { cx, joiner, is_there: false, early });
    }
    match cx.below(4) {
        0 => (tx, Cast { cx, joiner, is_there: false, early }),
        1 => (tx, Cast { cx, joiner: cx.carry(joiner, HERE), is_there: true, early }),
        way => {
            early.replace((way == 2).then(|| joiner.join()));
            (cx.carry(tx, HERE), Cast { cx, joiner, is_there: true, early })
        }
    }
}

fn failed(value: u32, why: Why, received: usize) -> Result<(), BroadcastError<u32>> {
    Err(BroadcastError { value, why, received })
}

fn all_have_returned_it<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let (mut a, mut b, mut c) = (cast.join(), cast.join(), cast.join());
    for value in 0..3 {
        let waits = cx.begin(c.recv());
        let mut send = cx.begin(tx.send(value));
        assert!(waits.is_woken(), "a waiting receive is woken");
        assert!(!send.is_done());
        assert_eq!(waits.out(), Ok(value));
        assert_eq!(cx.now(b.recv()), Ok(value));
        assert!(!send.run(), "a has not");
        assert_eq!(cx.now(a.recv()), Ok(value));
        assert!(send.is_woken());
        assert_eq!(send.out(), Ok(()));
    }
}

fn a_leaving_receiver_is_not_waited_for<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let (mut a, b, c) = (cast.join(), cast.join(), cast.join());
    let mut send = cx.begin(tx.send(1));
    assert_eq!(cx.now(a.recv()), Ok(1));
    drop(b);
    assert!(!send.run(), "c has joined");
    c.retire();
    assert!(send.is_woken());
    assert_eq!(send.out(), Ok(()));
    assert_eq!(tx.joined(), 1);
    let send = cx.begin(tx.send(2));
    assert_eq!(cx.now(a.recv()), Ok(2));
    assert_eq!(send.out(), Ok(()));
}

fn a_joining_receiver_gets_the_next<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let mut a = cast.join();
    let send = cx.begin(tx.send(1));
    let mut b = cast.join();
    assert_eq!(cx.now(a.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
    let next = cx.begin(b.recv());
    let send = cx.begin(tx.send(2));
    assert_eq!(next.out(), Ok(2));
    assert_eq!(cx.now(a.recv()), Ok(2));
    assert_eq!(send.out(), Ok(()));
}

fn the_least_number_is_waited_for<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, cast) = cast(cx);
    let mut tx = tx.at_least(2);
    let mut a = cast.join();
    assert_eq!(cx.now(expired(tx.send(1))), failed(1, Why::TimedOut, 0));
    let passed = Rc::new(Cell::new(false));
    let deadline = poll_fn({
        let passed = passed.clone();
        move |_| if passed.get() { Poll::Ready(()) } else { Poll::Pending }
    });
    let mut send = cx.begin(tx.send(2).until(deadline));
    let mut b = cast.join();
    send.run();
    passed.set(true);
    for _ in 0..3 {
        assert!(!send.poll(), "it has begun: it goes to all, however long that takes");
    }
    assert_eq!((cx.now(a.recv()), cx.now(b.recv())), (Ok(2), Ok(2)));
    assert_eq!(send.out(), Ok(()));
    drop(b);
    cx.settle();
    let send = cx.begin(tx.send(3));
    drop(cast);
    assert_eq!(send.out(), failed(3, Why::Closed, 0));
    assert_eq!(cx.now(tx.send(4)), failed(4, Why::Closed, 0));
}

fn poison_of_one_is_for_all<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let (mut a, b, mut c) = (cast.join(), cast.join(), cast.join());
    let waits = cx.begin(c.recv());
    b.poison_with(9, "sick");
    let sick = || RecvError::Poisoned(dunlin::Reason::from("sick").of_strength(9));
    assert_eq!(waits.out(), Err(sick()), "without the sender's doing anything");
    assert_eq!(cx.now(a.recv()), Err(sick()));
    let RecvError::Poisoned(reason) = sick() else { unreachable!() };
    assert_eq!(cx.now(tx.send(1)), failed(1, Why::Poisoned(reason.clone()), 0));
    assert_eq!(cx.now(cast.join().recv()), Err(sick()));
    tx.poison("too late");
    assert_eq!(cx.now(tx.send(2)), failed(2, Why::Poisoned(reason), 0));
}

fn weak_poison_of_a_broadcast<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast_of::<X, u32>(cx, cx.kind.policy.clone().immunity(3));
    let mut a = cast.join_whole();
    assert!(!a.poison_with(3, "weak") && !tx.poison_with(3, "weak"));
    let recv = cx.begin(a.recv());
    let send = cx.begin(tx.send(1));
    assert_eq!(recv.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
    assert!(tx.poison_with(4, "strong"));
    cx.settle();
    assert_eq!(cx.now(a.recv()).unwrap_err().to_string(), "the channel was poisoned: strong");
}

fn a_dropped_broadcast_is_withdrawn<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let (mut a, mut b) = (cast.join(), cast.join());
    let send = cx.begin(tx.send(1));
    let before = cx.below(2) == 0;
    if before {
        assert_eq!(cx.now(a.recv()), Ok(1));
    }
    drop(send);
    cx.settle();
    let (first, second) = (cx.begin(a.recv()), cx.begin(b.recv()));
    assert!(!first.is_done() && !second.is_done());
    let send = cx.begin(tx.send(2));
    assert_eq!((first.out(), second.out()), (Ok(2), Ok(2)));
    assert_eq!(send.out(), Ok(()));
}

fn a_bounded_broadcast_reports_deliveries<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let mut receivers = [cast.join(), cast.join(), cast.join()];
    let passed = Cell::new(false);
    let bound = poll_fn(|_| if passed.get() { Poll::Ready(()) } else { Poll::Pending });
    // The deadline for answers never passes, so every receiver answers.
    let mut send = cx.begin(tx.send(1).complete_until(bound, std::future::pending::<()>()));
    let quick = cx.below(4) as usize;
    for receiver in &mut receivers[..quick] {
        assert_eq!(cx.now(receiver.recv()), Ok(1));
    }
    assert_eq!(send.run(), quick == 3);
    passed.set(true);
    send.poll();
    if quick == 3 {
        assert_eq!(send.out(), Ok(()));
    } else {
        let error = CompleteError::Incomplete { value: 1, received: quick, withdrawn: 3 - quick, unknown: 0 };
        assert_eq!(send.out(), Err(error));
    }
    let [a, b, c] = &mut receivers;
    let hands = [a, b, c].map(|receiver| cx.begin(receiver.recv()));
    assert!(hands.iter().all(|hand| !hand.is_done()), "withdrawn");
    let send = cx.begin(tx.send(2));
    assert_eq!(hands.map(|hand| hand.out()), [Ok(2), Ok(2), Ok(2)]);
    assert_eq!(send.out(), Ok(()));
}

fn the_sender_ends_it_for_all<X: Transport>(cx: &Cx<'_, X>) {
    let retires = cx.below(2) == 0;
    let (mut tx, cast) = cast(cx);
    let mut rx = cast.join_whole();
    let mut sent = Vec::new();
    for value in 0..cx.kind.room.min(3) as u32 {
        assert_eq!(cx.now(tx.send(value)), Ok(()));
        sent.push(value);
    }
    let mut there = cast.join();
    let waits = cx.begin(there.recv());
    if retires {
        tx.retire();
        assert_eq!(cx.now(tx.send(9)), failed(9, Why::Closed, 0));
    } else {
        drop(tx);
    }
    assert_eq!(waits.out(), Err(RecvError::Closed));
    for value in sent {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
    assert_eq!(cx.now(cast.join().next()), Ok(None));
}

/// Receivers come and go; one of them is slow, one is cut off now and then.
fn all_receivers_get_the_same<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let pauses: Vec<u64> = (0..20).map(|_| cx.below(3)).collect();
    let receivers: Vec<_> = (0..4).map(|_| (cast.join(), cx.below(4), cx.below(25))).collect();
    let receivers: Vec<_> = receivers
        .into_iter()
        .map(|(mut rx, slow, stays)| {
            cx.spawn(async move {
                let mut got = Vec::new();
                while (got.len() as u64) < stays {
                    for _ in 0..slow {
                        give_way().await;
                    }
                    match cut_off(slow + 1, rx.recv()).await {
                        None => {}
                        Some(Ok(value)) => got.push(value),
                        Some(Err(error)) => {
                            assert_eq!(error, RecvError::Closed);
                            return (got, true);
                        }
                    }
                }
                (got, false)
            })
        })
        .collect();
    drop(cast);
    let sender = cx.spawn(async move {
        let mut sent = Vec::new();
        for (value, pause) in (0..).zip(pauses) {
            match tx.send(value).await {
                Ok(()) => sent.push(value),
                // Not every receiver has this value.
                Err(BroadcastError { why: Why::Refused, .. }) => {}
                Err(error) => {
                    assert!(error.is_closed(), "{error:?}");
                    break;
                }
            }
            for _ in 0..pause {
                give_way().await;
            }
        }
        sent
    });
    cx.settle();
    let sent: Vec<u32> = sender.out();
    for receiver in receivers {
        let (got, to_the_end) = receiver.out();
        let in_order = got.is_sorted_by(|a, b| a < b);
        assert!(in_order, "{got:?}");
        if to_the_end {
            assert!(sent.iter().all(|value| got.contains(value)), "sent to all {sent:?}, got {got:?}");
        }
        if cx.kind.waits() {
            let all = (0..got.len() as u32).eq(got.iter().copied());
            assert!(all, "none left out: {got:?}");
        }
    }
}

fn a_broadcast_in_choices<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, cast) = cast(cx);
    let (mut a, mut b) = (cast.join(), cast.join());
    let (mut other, mut quit) = cx.channel_of::<u32>(dunlin::rendezvous());
    let first = cx.spawn(async move {
        let mut log = Vec::new();
        loop {
            alt! {
                got = a.recv() => match got {
                    Ok(value) => log.push(value),
                    Err(_) => return log,
                },
                _ = quit.recv() => return log,
            }
        }
    });
    let second = cx.spawn(async move {
        let mut log = Vec::new();
        while let Ok(Some(value)) = alt! { got = b.next() => got } {
            log.push(value);
        }
        log
    });
    let sent = cx.spawn(async move {
        for value in 0..5 {
            assert_eq!(tx.send(value).await, Ok(()));
        }
        assert_eq!(other.send(0).await, Ok(()));
        assert_eq!(tx.send(5).await, Ok(()), "one has left");
    });
    cx.settle();
    sent.out();
    assert_eq!((first.out(), second.out()), ((0..5).collect(), (0..6).collect()));
}

fn clones_are_dropped_once<X: Transport>(cx: &Cx<'_, X>) {
    let counted = Counted::new();
    let (mut tx, cast) = cast_of(cx, cx.kind.policy.clone());
    let (mut a, b) = (cast.join(), cast.join());
    let send = cx.begin(tx.send(counted.clone()));
    drop(cx.now(a.recv()).expect("it is offered"));
    if cx.below(2) == 0 {
        drop(send);
        drop((a, tx));
        drop(b);
    } else {
        drop(b);
        assert!(send.out().is_ok());
        drop(tx);
        drop(a);
    }
    drop(cast);
    cx.settle();
    assert_eq!(counted.count(), 1);
}
