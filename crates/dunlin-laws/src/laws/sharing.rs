//! Shared ends: claims in order, and operations for a single message.

use dunlin::{
    Bundle, Choice, ClaimError, Operation, PATIENCE_TICKS, Portable, Receiver, RecvError, SendError, Sender, Shared,
    ToClient, ToServer, Why, waits,
};

use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, THERE, all, expired, laws};
use crate::rig::{cut_off, give_way};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        a_claim_is_exclusive if |kind| kind.keeps() && kind.is_open(), needs [Shared] =>
            "what is sent under one claim arrives together, whatever others send";
        claims_in_order if all, needs [Shared] =>
            "claims are granted in the order in which they were requested, one at a time";
        a_sleeper_is_passed_over if all, needs [Shared], at most 10 =>
            "a waiter that is offered the end and not polled within its patience is asleep: the next gets it";
        a_poll_restores_the_place if all, needs [Shared], at most 10 =>
            "a sleeper that is polled again has its old place, before all that came later";
        a_sleeper_takes_what_is_free if all, needs [Shared], at most 10 =>
            "a sleeper that is polled when the end is free has it";
        a_forgotten_waiter_is_passed_over if all, needs [Shared, Forgetting], at most 10 =>
            "a waiter that is forgotten holds the others up for its patience and no longer";
        a_dropped_waiter_passes_it_on if all, needs [Shared] =>
            "a waiter that is dropped after it was offered the end passes it on";
        a_claim_ends_by_panic if all, needs [Shared] =>
            "a claim is returned when its holder panics";
        claim_in_a_choice if all, needs [Shared, Choice] =>
            "a claim as a branch is granted when free, and leaves the line when not chosen";
        claim_until if all, needs [Shared] =>
            "a claim whose deadline passes reports that and has left the line";
        try_claim_does_not_wait if all, needs [Shared] =>
            "try_claim is granted if the end is free and no claim waits for it";
        lone_sends_are_held_back if Kind::waits, needs [Shared] =>
            "while a claim is out, sends of other handles wait; they go on when it ends";
        lone_receives_are_held_back if all, needs [Shared] =>
            "while a claim of the receiver is out, receives of other handles take nothing; they go on when it ends";
        held_back_sends_can_time_out if Kind::is_rendezvous, needs [Shared] =>
            "a send that is held back has its deadline and its value like any other";
        the_floor_after_a_claim if Kind::is_rendezvous, needs [Shared] =>
            "when a claim ends, the operations held back have the floor before the next claim";
        the_floor_is_given_up if Kind::is_rendezvous, needs [Shared], at most 10 =>
            "the floor is kept for a patience and no longer";
        the_end_reaches_those_held_back if all, needs [Shared] =>
            "a channel that ends while its receiver is claimed ends the receives that were held back";
        the_end_reaches_held_back_senders if Kind::waits, needs [Shared] =>
            "a channel that ends while its sender is claimed ends the sends that were held back, values returned";
        a_claimed_end_is_the_end if all, needs [Shared] =>
            "under a claim the end does all that an unshared one does, also poison";
        a_claimer_retires if all, needs [Shared] =>
            "the holder of a claim retires the receiver: waiting sends are refused, and every handle receives what is buffered, then Closed";
        any_handle_poisons if all, needs [Shared] =>
            "any handle poisons the channel at once, whichever has the claim; the claim is returned and still passes on";
        a_handle_retires_in_its_turn if all, needs [Shared] =>
            "a handle retires the channel when no claim is out: what was sent under the claims before it arrives, a claim behind it finds the channel retired";
        a_retire_is_given_up if all, needs [Shared, Choice] =>
            "a retire whose deadline passes, or that is not chosen, has retired nothing and has left the line";
        claims_are_dropped_at_any_poll if all, needs [Shared] =>
            "claims dropped after any number of polls: one handle holds the end at a time, and in the end each has held it";
        face_claims_in_order if Kind::is_rendezvous, needs [Shared] =>
            "claims of a shared face are granted in order, one at a time, and each has all channels of the face to itself";
        face_claim_in_a_choice if Kind::is_rendezvous, needs [Shared, Choice] =>
            "a claim of a face as a branch is granted when its turn comes, and leaves the line when not chosen";
        a_face_claim_or_a_send if Kind::is_rendezvous, needs [Shared, Choice] =>
            "of a claim of a face and a send in one choice exactly one happens, whichever party decides it and when";
        face_claim_until if Kind::is_rendezvous, needs [Shared] =>
            "a claim of a face whose deadline passes while another holds it reports that, has left the line, and the next is offered";
        a_dropped_face_claimer_passes_it_on if Kind::is_rendezvous, needs [Shared] =>
            "a waiter for a face that is dropped, before or after it was offered, passes it on";
        a_face_claim_ends_by_panic if Kind::is_rendezvous, needs [Shared] =>
            "a face is returned when its holder panics, and all its channels work";
        a_face_sleeper_is_passed_over if Kind::is_rendezvous, needs [Shared], at most 10 =>
            "a waiter that is offered a face and not polled within its patience is asleep: the next gets it; a later poll restores its place";
        forgotten_lone_send if |kind| kind.waits() && kind.is_open(), needs [Shared, Forgetting], at most 10 =>
            "a forgotten send of one handle stands, and claims still go round";
    ]
}

/// Two channels, one each way, that are claimed as one.
#[derive(Bundle)]
struct Till {
    pay: ToServer<u32>,
    receipt: ToClient<u32>,
}

/// Creates a channel whose sender is [here](HERE).
fn channel<X: Transport, T: Portable>(cx: &Cx<'_, X>) -> (Sender<T>, Receiver<T>) {
    cx.channel_from(HERE)
}

/// Both faces of a till over the transport; the client's is shared.
fn till<X: Transport>(cx: &Cx<'_, X>) -> (Shared<TillClient>, TillServer) {
    let ((pay, paid), (give, receipt)) = (cx.channel_from(HERE), cx.channel_from(THERE));
    (TillClient { pay, receipt }.share(), TillServer { pay: paid, receipt: give })
}

/// Pays and gets a receipt: under a claim, all channels of the face work.
fn buy<X: Transport>(cx: &Cx<'_, X>, held: &mut TillClient, server: &mut TillServer, coins: u32) {
    let pay = cx.begin(held.pay.send(coins));
    assert_eq!(cx.now(server.pay.recv()), Ok(coins));
    assert_eq!(pay.out(), Ok(()));
    let give = cx.begin(server.receipt.send(coins + 1));
    assert_eq!(cx.now(held.receipt.recv()), Ok(coins + 1));
    assert_eq!(give.out(), Ok(()));
}

fn face_claims_in_order<X: Transport>(cx: &Cx<'_, X>) {
    let (face, mut server) = till(cx);
    let [mut a, mut b, mut c] = cx.handles(face);
    let mut first = cx.now(a.claim()).expect("free");
    let (mut second, mut third) = (cx.begin(b.claim()), cx.begin(c.claim()));
    buy(cx, &mut first, &mut server, 1);
    assert!(!second.poll() && !third.poll(), "one at a time");
    drop(first);
    assert!(!third.run() && !third.poll(), "the second asked before");
    let mut first = cx.begin(a.claim());
    let mut held = second.out().expect("granted");
    buy(cx, &mut held, &mut server, 2);
    assert!(!third.poll() && !first.poll());
    drop(held);
    assert!(!first.run(), "a repeated claim is the last in line");
    let mut held = third.out().expect("granted");
    buy(cx, &mut held, &mut server, 3);
    drop(held);
    buy(cx, &mut first.out().expect("granted"), &mut server, 4);
}

fn face_claim_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let ((face, mut server), (mut loud, mut other)) = (till(cx), cx.channel::<u32>());
    let [mut a, mut b, mut c] = cx.handles(face);
    // Once beside a receive and once beside a send, in which case another party may decide the choice.
    for sends in [false, true] {
        let ((mut out, mut far), mut slot) = (cx.channel::<u32>(), sends.then_some(1));
        let held = cx.now(a.claim()).expect("free");
        {
            let branches = Choice::fair().on(b.claim(), |claim| claim.is_ok()).on(other.recv(), |_| false);
            let mut choice = cx.begin(branches.on(out.send_from(&mut slot), |_| false).into_future());
            let mut third = cx.begin(c.claim());
            let taken = sends.then(|| cx.begin(far.recv()));
            let given = (!sends).then(|| cx.begin(loud.send(1)));
            assert!(choice.run());
            assert_eq!(choice.out(), (if sends { 2 } else { 1 }, false), "not chosen");
            assert_eq!(taken.map(|recv| recv.out()), sends.then_some(Ok(1)));
            assert_eq!(given.map(|send| send.out()), (!sends).then_some(Ok(())));
            drop(held);
            assert!(third.run(), "an unchosen claim has left the line");
            drop(third.out());
        }
        let held = cx.now(a.claim()).expect("free");
        let mut slot = sends.then_some(2);
        let branches = Choice::fair().on(b.claim(), Some).on(other.recv(), |_| None);
        let choice = cx.begin(branches.on(out.send_from(&mut slot), |_| None).into_future());
        let mut third = cx.begin(c.claim());
        assert!(!choice.is_done() && !third.is_done());
        drop(held);
        assert!(!third.run(), "the choice was in line before");
        let (index, claim) = choice.out();
        assert_eq!(index, 0, "chosen");
        buy(cx, &mut claim.expect("the claim").expect("granted"), &mut server, 3);
        assert!(third.run());
        drop(third.out());
        assert_eq!(slot, sends.then_some(2), "a send that was not chosen has its value");
        cx.settle();
        assert!(far.try_recv().is_err());
    }
}

fn a_face_claim_or_a_send<X: Transport>(cx: &Cx<'_, X>) {
    for _ in 0..10 {
        let ((face, _server), (mut out, mut far)) = (till(cx), cx.channel::<u32>());
        let [mut a, mut b] = cx.handles(face);
        let (held_for, away_for) = (cx.below(6), cx.below(6));
        // All are tasks, so that the claim ends, the offer is taken and the choice is polled in any order.
        let holder = cx.spawn(async move {
            let held = a.claim().await.expect("granted");
            for _ in 0..held_for {
                give_way().await;
            }
            drop(held);
            a
        });
        let chooser = cx.spawn(async move {
            let mut slot = Some(1);
            let choice = Choice::prioritised().on(out.send_from(&mut slot), |sent| sent.expect("taken"));
            let (index, ()) = choice.on(b.claim(), |claim| drop(claim.expect("granted"))).await;
            (index, slot)
        });
        let receiver = cx.spawn(async move {
            for _ in 0..away_for {
                give_way().await;
            }
            far.recv().await
        });
        cx.settle();
        let (index, slot) = chooser.out();
        assert_eq!(slot, (index == 1).then_some(1), "branch {index}");
        assert_eq!(receiver.out(), if index == 0 { Ok(1) } else { Err(RecvError::Closed) });
        drop(cx.now(holder.out().claim()).expect("free again"));
    }
}

fn face_claim_until<X: Transport>(cx: &Cx<'_, X>) {
    let (face, mut server) = till(cx);
    let [mut a, mut b, mut c] = cx.handles(face);
    let (mut ring, mut bell) = cx.channel::<u32>();
    let mut held = cx.now(a.claim()).expect("free");
    {
        let mut second = cx.begin(b.claim().until(bell.recv()));
        let mut third = cx.begin(c.claim());
        assert!(!second.poll());
        let rung = cx.begin(ring.send(1));
        assert!(second.run(), "the deadline has passed");
        assert_eq!(second.out().err(), Some(ClaimError::TimedOut));
        assert_eq!(rung.out(), Ok(()));
        buy(cx, &mut held, &mut server, 1);
        assert!(!third.poll(), "it is still held");
        drop(held);
        assert!(third.run(), "the next in line");
        drop(third.out());
    }
    drop(cx.now(b.claim()).expect("no claim is in line"));
    // Its turn and its deadline come together: the claim is granted.
    let held = cx.now(a.claim()).expect("free");
    let mut second = cx.begin(b.claim().until(bell.recv()));
    drop(held);
    assert!(second.is_woken());
    let rung = cx.begin(ring.send(1));
    assert!(second.run());
    drop(second.out().expect("granted"));
    drop(rung);
}

fn a_dropped_face_claimer_passes_it_on<X: Transport>(cx: &Cx<'_, X>) {
    for offered in [false, true] {
        let (face, mut server) = till(cx);
        let [mut a, mut b, mut c] = cx.handles(face);
        let held = cx.now(a.claim()).expect("free");
        let (second, mut third) = (cx.begin(b.claim()), cx.begin(c.claim()));
        if offered {
            drop(held);
            assert!(second.is_woken() && !third.is_woken());
            drop(second);
        } else {
            drop(second);
            assert!(!third.run());
            drop(held);
        }
        assert!(third.is_woken(), "passed on");
        assert!(third.run());
        buy(cx, &mut third.out().expect("granted"), &mut server, 1);
    }
}

fn a_face_claim_ends_by_panic<X: Transport>(cx: &Cx<'_, X>) {
    let (face, mut server) = till(cx);
    let [mut a, mut b] = cx.handles(face);
    let mut waiting = cx.hand(b.claim());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut held = cx.now(a.claim()).expect("free");
        assert!(!waiting.run());
        // In the middle of a send: its value is returned with the panic, and no receiver gets it.
        let _pay = cx.begin(held.pay.send(1));
        panic!("while it is claimed");
    }));
    assert!(panicked.is_err());
    assert!(waiting.run());
    buy(cx, &mut waiting.out().expect("granted"), &mut server, 2);
    buy(cx, &mut cx.now(a.claim()).expect("free"), &mut server, 3);
}

fn a_face_sleeper_is_passed_over<X: Transport>(cx: &Cx<'_, X>) {
    let (mut a, mut server) = till(cx);
    // The sleeper is at the keeper: elsewhere it would have to request its claim again.
    let (mut b, [mut c, mut d]) = (a.clone(), cx.handles(a.clone()));
    let held = cx.now(a.claim()).expect("free");
    let (mut second, mut third, mut fourth) = (cx.begin(b.claim()), cx.begin(c.claim()), cx.begin(d.claim()));
    let began = waits::tick();
    // The whole program shares the clock: if another law has advanced it, the number of ticks is unknown.
    let calm = |passed: u32| waits::tick().wrapping_sub(began) == passed;
    drop(held);
    assert!(second.is_woken());
    cx.pass(PATIENCE_TICKS - 1);
    if third.run() {
        return assert!(!calm(PATIENCE_TICKS - 1), "its patience is not over");
    }
    cx.pass(2);
    if !third.run() || fourth.run() {
        return assert!(!calm(PATIENCE_TICKS + 1), "the next, after a patience");
    }
    let mut held = third.out().expect("granted");
    buy(cx, &mut held, &mut server, 1);
    assert!(!second.poll(), "awake again, and it waits");
    drop(held);
    assert!(second.is_woken() && !fourth.run(), "its place was kept");
    buy(cx, &mut second.out().expect("granted"), &mut server, 2);
    assert!(fourth.run());
    drop(fourth.out());
}

fn a_claim_is_exclusive<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = channel::<X, (u64, u64)>(cx);
    let tx = tx.share();
    for who in 0..3 {
        let (mut tx, lone) = (if who == 0 { cx.there(&tx) } else { tx.clone() }, cx.below(2) == 0);
        cx.spawn(async move {
            for round in 0..3 {
                if lone {
                    let _ = tx.send((who, 0)).await;
                }
                let mut claim = tx.claim().await.expect("granted");
                for n in 1..4 {
                    while claim.send((who, round * 3 + n)).await.is_err() {
                        give_way().await;
                    }
                }
            }
        });
    }
    drop(tx);
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    let claimed: Vec<_> = receiver.out();
    let mut open: Option<(u64, u64)> = None;
    for (who, n) in claimed {
        if let Some(last) = open {
            assert_eq!((who, n), (last.0, last.1 + 1), "another sender came between");
        }
        open = if n > 0 && !n.is_multiple_of(3) { Some((who, n)) } else { None };
    }
}

fn claims_in_order<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let first = tx.share();
    let mut handles = [first.clone(), first.clone(), cx.there(&first), first.clone(), first];
    let mut claims: std::collections::VecDeque<_> = handles.iter_mut().map(|tx| cx.begin(tx.claim())).collect();
    while let Some(mut first) = claims.pop_front() {
        assert!(first.run(), "the first in line has it");
        for other in &mut claims {
            assert!(!other.poll(), "one at a time");
        }
        drop(first.out().expect("granted"));
    }
}

fn a_sleeper_is_passed_over<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    let (mut second, mut third) = (cx.begin(b.claim()), cx.begin(c.claim()));
    drop(held);
    assert!(second.is_woken() && !third.run(), "offered in order");
    cx.pass(PATIENCE_TICKS + 1);
    assert!(third.run(), "the next, after a patience");
    assert!(!second.poll(), "one at a time");
    drop(third.out());
    assert!(second.run());
}

fn a_poll_restores_the_place<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let mut a = tx.share();
    // The sleeper is at the keeper: elsewhere it would have to request its claim again.
    let (mut b, [mut c, mut d]) = (a.clone(), cx.handles(a.clone()));
    let held = cx.now(a.claim()).expect("free");
    let (mut second, mut third, mut fourth) = (cx.begin(b.claim()), cx.begin(c.claim()), cx.begin(d.claim()));
    drop(held);
    cx.settle();
    cx.pass(PATIENCE_TICKS + 1);
    let held = third.run().then(|| third.out().expect("granted")).expect("passed on");
    assert!(!second.poll(), "it is awake again");
    drop(held);
    assert!(!fourth.run(), "a later claim waits");
    assert!(second.run(), "its place was kept");
    drop(second.out());
    assert!(fourth.run());
}

fn a_sleeper_takes_what_is_free<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let [mut a, mut b] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    let mut second = cx.begin(b.claim());
    drop(held);
    cx.settle();
    cx.pass(PATIENCE_TICKS + 1);
    drop(cx.now(a.claim()).expect("only a sleeper waits"));
    assert!(second.run());
}

fn a_forgotten_waiter_is_passed_over<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    cx.begin(b.claim()).forget();
    let mut third = cx.begin(c.claim());
    drop(held);
    assert!(!third.run());
    cx.pass(PATIENCE_TICKS + 1);
    drop(third.out().expect("passed on"));
    drop(cx.now(b.claim()).expect("the same handle can claim again"));
}

fn a_dropped_waiter_passes_it_on<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    let (second, mut third) = (cx.begin(b.claim()), cx.begin(c.claim()));
    if cx.below(2) == 0 {
        drop(held);
        assert!(second.is_woken());
        drop(second);
    } else {
        drop(second);
        drop(held);
    }
    assert!(third.run(), "passed on");
}

fn a_claim_ends_by_panic<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let [mut a, mut b] = cx.handles(tx.share());
    let mut waiting = cx.hand(b.claim());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = cx.now(a.claim()).expect("free");
        assert!(!waiting.run());
        panic!("while it is claimed");
    }));
    assert!(panicked.is_err());
    assert!(waiting.run());
}

fn claim_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let (mut loud, mut other) = cx.channel::<u8>();
    let [mut a, mut b] = cx.handles(tx.share());
    let choice = Choice::fair().on(a.claim(), |claim| claim.is_ok()).on(other.recv(), |_| false);
    assert_eq!(cx.now(choice.into_future()), (0, true), "free");
    let held = cx.now(b.claim()).expect("given back");
    {
        let mut choice = cx.begin(Choice::fair().on(a.claim(), Some).on(other.recv(), |_| None).into_future());
        assert!(!choice.is_done());
        let send = cx.begin(loud.send(1));
        assert!(choice.run());
        assert!(choice.out().1.is_none());
        assert_eq!(send.out(), Ok(()));
    }
    {
        let mut choice = cx.begin(Choice::fair().on(a.claim(), Some).on(other.recv(), |_| None).into_future());
        assert!(!choice.is_done());
        drop(held);
        assert!(choice.run());
        assert!(choice.out().1.is_some_and(|claim| claim.is_ok()));
    }
    drop(cx.now(b.claim()).expect("no claim is in line"));
}

fn claim_until<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let mut a = tx.share();
    let mut b = cx.there(&a);
    assert!(cx.now(expired(a.claim())).is_ok(), "free, so the deadline does not matter");
    let held = cx.now(a.claim()).expect("free");
    assert_eq!(cx.now(expired(b.claim())).unwrap_err(), ClaimError::TimedOut);
    drop(held);
    drop(cx.now(a.claim()).expect("no claim is in line"));
}

fn try_claim_does_not_wait<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let mut a = tx.share();
    // `try_claim` sends no request, so both handles are at the claim's node, here or where the claim goes.
    let mut b = if cx.below(2) == 0 { a.clone() } else { cx.there(&a) };
    let mut c = b.clone();
    let held = a.try_claim().expect("free");
    assert_eq!(b.try_claim().unwrap_err(), ClaimError::WouldBlock);
    let waiting = cx.begin(c.claim());
    drop(held);
    assert_eq!(b.try_claim().unwrap_err(), ClaimError::WouldBlock, "a claim is in line");
    drop(waiting.out());
    assert!(b.try_claim().is_ok());
}

fn lone_sends_are_held_back<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = channel(cx);
    let [mut a, mut b] = cx.handles(tx.share());
    let mut held = cx.now(a.claim()).expect("free");
    let mut before = cx.fill(&mut held);
    let mut lone = cx.begin(b.send(1));
    assert_eq!(cx.drain(&mut rx), before);
    assert!(!lone.run() && !lone.poll(), "held back, though there is room or a receiver");
    let under = cx.begin(held.send(2));
    assert_eq!(cx.now(rx.recv()), Ok(2), "the claim goes first");
    assert_eq!(under.out(), Ok(()));
    before = cx.drain(&mut rx);
    assert_eq!(before, []);
    drop(held);
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(lone.out(), Ok(()));
}

fn lone_receives_are_held_back<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel_from(THERE);
    let [mut a, mut b] = cx.handles(rx.share());
    let waits_before = cx.below(2) == 0;
    let mut lone = cx.hand(b.recv());
    if waits_before {
        assert!(!lone.run());
    }
    let mut held = cx.now(a.claim()).expect("free");
    assert!(!lone.run());
    let send = cx.begin(tx.send(1));
    assert!(!lone.run() && !lone.poll(), "held back");
    assert_eq!(cx.now(held.recv()), Ok(1));
    assert_eq!(send.out(), Ok(()));
    let send = cx.begin(tx.send(2));
    assert!(!lone.run());
    drop(held);
    assert!(lone.run(), "woken when the claim ends");
    assert_eq!(lone.out(), Ok(2));
    assert_eq!(send.out(), Ok(()));
}

fn held_back_sends_can_time_out<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = channel(cx);
    let [mut a, mut b] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    let recv = cx.begin(rx.recv());
    assert_eq!(cx.now(expired(b.send(1))), Err(SendError::NotTaken { value: 1, why: Why::TimedOut }));
    assert!(matches!(b.try_send(2), Err(SendError::NotTaken { value: 2, why: Why::WouldBlock })));
    drop(held);
    let send = cx.begin(b.send(3));
    assert_eq!(recv.out(), Ok(3));
    assert_eq!(send.out(), Ok(()));
}

fn the_floor_after_a_claim<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = channel(cx);
    let mut a = tx.share();
    let is_there = cx.transport.has_nodes() && cx.below(2) == 0;
    let (mut b, mut c) = if is_there { (cx.there(&a), a.clone()) } else { (a.clone(), cx.there(&a)) };
    let held = cx.now(a.claim()).expect("free");
    let lone = cx.begin(b.send(1));
    let mut next = cx.begin(c.claim());
    drop(held);
    assert!(!next.run() && !next.poll(), "the held-back operation has the floor");
    assert_eq!(cx.now(rx.recv()), Ok(1));
    // An operation elsewhere completes at the keeper of the end, and its own node learns of it later.
    assert!(is_there || !next.run(), "until one of them is done");
    assert_eq!(lone.out(), Ok(()));
    assert!(next.run());
}

fn the_floor_is_given_up<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = channel(cx);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    let lone = cx.begin(b.send(1));
    let mut next = cx.begin(c.claim());
    drop(held);
    assert!(!next.run());
    cx.pass(PATIENCE_TICKS + 1);
    assert!(next.run(), "no value was received from them");
    let mut claim = next.out().expect("granted");
    let under = cx.begin(claim.send(2));
    assert_eq!(cx.now(rx.recv()), Ok(2));
    assert_eq!(under.out(), Ok(()));
    drop(claim);
    assert_eq!(cx.now(rx.recv()), Ok(1));
    assert_eq!(lone.out(), Ok(()));
}

fn the_end_reaches_those_held_back<X: Transport>(cx: &Cx<'_, X>) {
    for way in 0..3 {
        let (tx, rx) = cx.channel_from::<u32>(THERE);
        let [mut a, mut b] = cx.handles(rx.share());
        let held = cx.now(a.claim()).expect("free");
        let mut lone = cx.begin(b.recv());
        assert!(!lone.is_done());
        let mut tx = Some(tx);
        match way {
            0 => drop(tx.take()),
            1 => tx.iter().for_each(dunlin::Sender::retire),
            _ => tx.iter().for_each(|tx| tx.poison("now")),
        }
        // The receive may learn of the end now or when the claim ends.
        lone.run();
        drop(held);
        assert!(lone.run(), "the end never reaches a receive that was held back (way {way})");
        let why = if way == 2 { RecvError::Poisoned("now".into()) } else { RecvError::Closed };
        assert_eq!(lone.out(), Err(why));
    }
}

fn the_end_reaches_held_back_senders<X: Transport>(cx: &Cx<'_, X>) {
    for poison in [false, true] {
        let (tx, rx) = channel(cx);
        let [mut a, mut b] = cx.handles(tx.share());
        let held = cx.now(a.claim()).expect("free");
        let mut lone = cx.begin(b.send(1));
        assert!(!lone.is_done());
        if poison {
            rx.poison("now")
        } else {
            rx.retire()
        }
        lone.run();
        drop(held);
        let why = if poison { Why::Poisoned("now".into()) } else { Why::Closed };
        assert_eq!(lone.out(), Err(SendError::NotTaken { value: 1, why }));
    }
}

fn a_claimed_end_is_the_end<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel_from(HERE);
    let (mut tx, mut rx) = (cx.there(&tx.share()), rx.share());
    {
        let (mut tx, mut rx) = (cx.now(tx.claim()).expect("free"), cx.now(rx.claim()).expect("free"));
        let mut slot = Some(1);
        let send = cx.begin(tx.send_from(&mut slot));
        assert_eq!(cx.now(rx.recv_extended()).expect("offered").release(), 1);
        assert_eq!(send.out(), Ok(()));
        let send = cx.begin(tx.send(2));
        assert_eq!(cx.now(rx.next()), Ok(Some(2)));
        assert_eq!(send.out(), Ok(()));
        tx.poison("claimed");
    }
    cx.settle();
    assert!(tx.is_closed() && rx.is_closed());
    assert!(cx.now(rx.recv()).unwrap_err().is_poisoned());
}

fn a_claimer_retires<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, rx) = cx.channel_from(THERE);
    let [mut a, mut b, mut c] = cx.handles(rx.share());
    let mut claim = cx.now(a.claim()).expect("free");
    let mut values = cx.fill(&mut tx).into_iter();
    let send = cx.kind.waits().then(|| cx.begin(tx.send(1)));
    claim.retire();
    if cx.below(2) == 0 {
        cx.settle();
    }
    for _ in 0..cx.below(4) {
        assert_eq!(cx.now(claim.recv()), values.next().ok_or(RecvError::Closed), "within the claim");
    }
    drop(claim);
    if cx.below(2) == 0 {
        cx.settle();
    }
    for value in values {
        let handle = [&mut a, &mut b, &mut c].into_iter().nth(cx.below(3) as usize);
        assert_eq!(cx.now(handle.expect("one of three").recv()), Ok(value));
    }
    for handle in [&mut a, &mut b, &mut c] {
        assert_eq!(cx.now(handle.recv()), Err(RecvError::Closed));
    }
    if let Some(send) = send {
        assert_eq!(send.out(), Err(SendError::NotTaken { value: 1, why: Why::Closed }));
    }
}

fn any_handle_poisons<X: Transport>(cx: &Cx<'_, X>) {
    let poison = || RecvError::Poisoned("now".into());
    {
        let (tx, mut rx) = channel(cx);
        let [mut a, mut b] = cx.handles(tx.share());
        let mut held = cx.now(a.claim()).expect("free");
        cx.fill(&mut held);
        if cx.kind.waits() {
            let send = cx.begin(held.send(1));
            b.poison("now");
            assert_eq!(send.out(), Err(SendError::NotTaken { value: 1, why: Why::Poisoned("now".into()) }));
        } else {
            b.poison("now");
        }
        cx.settle();
        assert!(held.is_closed(), "also within the claim");
        assert_eq!(cx.now(rx.recv()), Err(poison()));
        drop(held);
        drop(cx.now(b.claim()).expect("given back"));
        assert!(cx.now(a.send(2)).unwrap_err().is_poisoned());
    }
    let (mut tx, rx) = cx.channel_from::<u32>(THERE);
    let [mut a, mut b] = cx.handles(rx.share());
    let mut held = cx.now(a.claim()).expect("free");
    let receive = cx.begin(held.recv());
    b.poison("now");
    cx.settle();
    assert_eq!(receive.out(), Err(poison()), "also within the claim");
    assert!(cx.now(tx.send(1)).unwrap_err().is_poisoned());
    drop(held);
    drop(cx.now(b.claim()).expect("given back"));
    assert_eq!(cx.now(a.recv()), Err(poison()));
}

fn a_handle_retires_in_its_turn<X: Transport>(cx: &Cx<'_, X>) {
    {
        let (tx, mut rx) = channel(cx);
        let [mut a, mut b, mut c] = cx.handles(tx.share());
        let mut held = cx.now(a.claim()).expect("free");
        let (mut retire, mut behind) = (cx.begin(b.retire()), cx.begin(c.claim()));
        assert!(!retire.run() && !retire.poll(), "a claim is out");
        let values = cx.fill(&mut held);
        drop(held);
        assert!(!behind.run(), "the retire asked before");
        assert_eq!(retire.out(), Ok(()));
        let mut claim = behind.out().expect("granted");
        assert!(cx.now(claim.send(1)).unwrap_err().is_closed(), "behind the retire");
        drop(claim);
        for value in values {
            assert_eq!(cx.now(rx.recv()), Ok(value), "sent before");
        }
        assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
        assert!(cx.now(a.send(2)).unwrap_err().is_closed());
        assert_eq!(cx.now(a.retire()), Ok(()), "twice is harmless");
    }
    let (mut tx, rx) = cx.channel_from(THERE);
    let [mut a, mut b, mut c] = cx.handles(rx.share());
    let mut values = cx.fill(&mut tx).into_iter();
    let mut held = cx.now(a.claim()).expect("free");
    let mut retire = cx.begin(b.retire());
    assert!(!retire.run() && !retire.poll(), "a claim is out");
    if let Some(first) = values.next() {
        assert_eq!(cx.now(held.recv()), Ok(first), "not retired yet");
    }
    drop(held);
    assert_eq!(retire.out(), Ok(()));
    for value in values {
        let handle = [&mut a, &mut b, &mut c].into_iter().nth(cx.below(3) as usize);
        assert_eq!(cx.now(handle.expect("one of three").recv()), Ok(value), "buffered");
    }
    for handle in [&mut a, &mut b, &mut c] {
        assert_eq!(cx.now(handle.recv()), Err(RecvError::Closed));
    }
    assert!(cx.now(tx.send(1)).unwrap_err().is_closed());
}

fn a_retire_is_given_up<X: Transport>(cx: &Cx<'_, X>) {
    let ((tx, mut rx), (mut loud, mut other)) = (channel(cx), cx.channel::<u32>());
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let held = cx.now(a.claim()).expect("free");
    assert_eq!(cx.now(expired(b.retire())), Err(ClaimError::TimedOut));
    let give = cx.begin(loud.send(1));
    let choice = Choice::fair().on(b.retire(), |_| false).on(other.recv(), |_| true);
    assert_eq!(cx.now(choice.into_future()), (1, true));
    assert_eq!(give.out(), Ok(()));
    drop(cx.begin(b.retire()));
    let mut behind = cx.begin(c.claim());
    drop(held);
    assert!(behind.run(), "those that were given up have left the line");
    let mut claim = behind.out().expect("granted");
    let send = cx.begin(claim.send(2));
    assert_eq!(cx.now(rx.recv()), Ok(2), "nothing is retired");
    assert_eq!(send.out(), Ok(()));
}

fn claims_are_dropped_at_any_poll<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, _rx) = channel::<X, u8>(cx);
    let tx = tx.share();
    let inside = std::rc::Rc::new(std::cell::Cell::new(0));
    let tasks: Vec<_> = (0..4)
        .map(|n| {
            let (mut tx, inside) = (if n < 2 { cx.there(&tx) } else { tx.clone() }, inside.clone());
            let plan: Vec<u64> = (0..10).map(|_| cx.below(5)).chain([u64::MAX]).collect();
            cx.spawn(async move {
                let mut granted = 0;
                for polls in plan {
                    if let Some(claim) = cut_off(polls, tx.claim()).await {
                        let claim = claim.expect("granted");
                        inside.set(inside.get() + 1);
                        give_way().await;
                        assert_eq!(inside.get(), 1, "two hold it");
                        inside.set(inside.get() - 1);
                        granted += 1;
                        drop(claim);
                    }
                }
                granted
            })
        })
        .collect();
    cx.settle();
    for task in tasks {
        assert!(task.out() > 0);
    }
}

fn forgotten_lone_send<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = channel(cx);
    let [mut a, mut b, mut c] = cx.handles(tx.share());
    let mut held = cx.now(a.claim()).expect("free");
    let mut expected = cx.fill(&mut held);
    cx.begin(b.send(1)).forget();
    let mut next = cx.begin(c.claim());
    drop(held);
    next.run();
    cx.pass(PATIENCE_TICKS + 1);
    drop(next.out().expect("claims go round"));
    expected.push(1);
    cx.settle();
    assert_eq!(cx.drain(&mut rx), expected);
    drop((a, b, c));
    cx.settle();
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
}
