//! Choice: exactly one branch happens, and the others have no effect.

use std::cell::{Cell, RefCell};

use dunlin::{Choice, ChoiceFuture, Receiver, RecvError, SendError, Sender, Why, alt, future, send_to_any};

use crate::counted::Counted;
use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, all, laws};
use crate::rig::{Hand, cut_off, eager, give_way};
use crate::transport::Transport;

fn plain(kind: &Kind) -> bool {
    kind.is_rendezvous() && kind.is_open()
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        prioritised_goes_down_the_list if all, needs [Choice] =>
            "a prioritised choice takes the first branch that is ready";
        a_prioritised_send_has_its_turn if all, needs [Choice] =>
            "a prioritised send to a waiting receiver goes before lower branches and before skip";
        skip_if_nothing_is_ready if all, needs [Choice] =>
            "skip is taken if nothing is ready at once, and only then; every offered value is returned";
        off_branches_are_not_evaluated if all, needs [Choice] =>
            "behind a false condition nothing is evaluated; an empty slot is off";
        all_off_panics if plain, needs [Choice] =>
            "a choice in which every branch is off panics instead of waiting for ever";
        unchosen_branches_have_no_effect if all, needs [Choice, Shared] =>
            "an unchosen send, receive, extended receive, claim and deadline have had no effect";
        a_chosen_send_is_alone if Kind::is_rendezvous, needs [Choice] =>
            "of several sends offered by one choice one is taken, also before the choice is polled again";
        a_choice_waits_for_any if all, needs [Choice] =>
            "a waiting choice is woken by whichever branch becomes ready, and by nothing else for good";
        ended_branches_are_ready if all, needs [Choice] =>
            "a branch whose channel has ended is ready with that error; its slot is full";
        decided_while_it_is_made if Kind::is_rendezvous, needs [Choice] =>
            "a choice that is decided while it still makes its offers is decided once, whichever receiver takes one at that moment";
        skip_and_a_taker_race if Kind::is_rendezvous, needs [Choice] =>
            "a receiver that comes at the very moment of skip: the slot shows which of them won";
        both_ends_choose if Kind::is_rendezvous, needs [Choice] =>
            "a choice of sends and a choice of receives meet on exactly one channel";
        symmetric_pair if plain, needs [Choice] =>
            "two processes that each choose between sending to and receiving from the other always make progress";
        three_cycle if plain, needs [Choice] =>
            "three processes in a ring that each choose between sending on and receiving always make progress";
        diamond_of_four if plain, needs [Choice] =>
            "four processes in a diamond, mixed choices at every end, always make progress";
        complete_graph_of_four if plain, needs [Choice] =>
            "four processes, each with channels to all others and cancelled at random, lose nothing and make progress";
        dead_offers_cost_nothing_lasting if Kind::is_rendezvous, needs [Choice, Shared], at most 3 =>
            "550 offers left dead by choices that were decided elsewhere: all values are returned, none is received, the channel is as new";
        poison_loses_no_value_of_a_choice if Kind::is_rendezvous, needs [Choice] =>
            "poison racing a committed choice: the taken value was received, all others are in their slots";
        its_own_channel if Kind::is_rendezvous, needs [Choice] =>
            "both ends of one channel in one choice: the send ends as OwnChannel with its value, whichever comes first";
        its_own_channel_and_another if Kind::is_rendezvous, needs [Choice] =>
            "a choice over both ends of one channel still takes from others what is ready";
        send_to_any_reaches_one if all, needs [Choice] =>
            "send_to_any: one receiver has the value, the slot is empty; the result names which";
        send_to_any_gives_back if plain, needs [Choice] =>
            "send_to_any dropped, or with an ended channel, leaves the value in the slot and names the channel";
        send_to_any_in_a_choice if all, needs [Choice] =>
            "send_to_any as a branch: it happens through one sender or not at all, and names which; otherwise the value is in the slot";
        send_to_any_of_nothing if all, needs [Choice] =>
            "send_to_any of an empty slot completes; over no senders it panics";
        a_foreign_branch_closes_the_choice if plain, needs [Choice] =>
            "while a choice polls a foreign future its offers cannot be taken; a receiver that was turned away is woken after";
        a_foreign_branch_and_a_stubborn_receiver if plain, needs [Choice] =>
            "the same when the receiver comes along every time the foreign future is polled: it gets its turn";
        a_foreign_branch_wins_alone if plain, needs [Choice] =>
            "a foreign future that takes the choice's own offer, and is ready, wins alone: the value is back";
        clones_may_be_twice if plain, needs [Choice, Shared] =>
            "two clones of a shared end in one choice: one of them happens";
        an_end_is_free_in_the_body if all, needs [Choice] =>
            "a body can use every end its choice was over";
        choices_are_dropped_at_any_poll if plain, needs [Choice] =>
            "send_to_any dropped after any number of polls: the slot is empty if and only if one has the value";
    ]
}

fn prioritised_goes_down_the_list<X: Transport>(cx: &Cx<'_, X>) {
    let ends: Vec<_> = (0..4).map(|_| cx.channel()).collect();
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    for _ in 0..5 {
        let ready: Vec<bool> = (0..4).map(|_| cx.below(2) == 0).collect();
        let Some(first) = ready.iter().position(|ready| *ready) else { continue };
        let sends: Vec<_> =
            senders.iter_mut().enumerate().filter(|(n, _)| ready[*n]).map(|(n, tx)| cx.begin(tx.send(n))).collect();
        let (index, value) = cx.now(Choice::prioritised().all(receivers.iter_mut().map(|rx| rx.recv())).into_future());
        assert_eq!((index, value), (first, Ok(first)));
        drop(sends);
        for rx in &mut receivers {
            cx.drain(rx);
        }
    }
}

fn a_prioritised_send_has_its_turn<X: Transport>(cx: &Cx<'_, X>) {
    for with_skip in [false, true] {
        let ((mut tx, mut rx), (mut loud, mut other)) = (cx.channel(), cx.channel());
        let send = cx.begin(loud.send(2));
        let mut recv = cx.begin(rx.recv());
        let mut slot = Some(1);
        let mut choice = Choice::prioritised().on(tx.send_from(&mut slot), Ok);
        choice = if with_skip { choice.skip(Err(Ok(0))) } else { choice.on(other.recv(), Err) };
        let mut choice = cx.hand(choice.into_future());
        cx.rig.together(&mut [&mut choice, &mut recv]);
        assert_eq!(choice.out(), (0, Ok(Ok(()))), "a receiver was waiting");
        assert_eq!(recv.out(), Ok(1));
        drop(send);
    }
}

fn skip_if_nothing_is_ready<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut tx, mut rx), (mut loud, mut other)) = (cx.channel(), cx.channel());
    let before = cx.fill(&mut tx);
    let mut slot = Some(1_u32);
    if cx.kind.waits() {
        let chosen = cx.now(async {
            alt! { sent = tx.send_from(&mut slot) => Some(sent.is_ok()), value = other.recv() => Some(value == Ok(0_u32)), skip => None }
        });
        assert_eq!((chosen, slot), (None, Some(1)));
        assert_eq!(cx.drain(&mut rx), before);
    }
    let send = cx.begin(loud.send(5));
    let chosen = cx.now(async {
        alt! { value = other.recv() => value.ok(), skip => None }
    });
    assert_eq!(chosen, Some(5));
    assert_eq!(send.out(), Ok(()));
    assert_eq!(cx.now(Choice::fair().all([other.recv()]).skip(Ok(9)).into_future()), (1, Ok(9)));
}

fn off_branches_are_not_evaluated<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let evaluated = Cell::new(0);
    let mut empty = None;
    let chosen = cx.now(async {
        alt! {
            biased;
            value = { evaluated.set(1); rx.recv() }, if false => value.map(drop).is_ok(),
            sent = tx.send_from(&mut empty) => panic!("{sent:?}"),
            () = future(async {}), if evaluated.get() == 0 => true,
        }
    });
    assert!(chosen);
    let choice = Choice::fair()
        .on_if(
            false,
            || {
                evaluated.set(2);
                future(async {})
            },
            |()| 1,
        )
        .on(tx.send_from(&mut empty), |_| 2)
        .on_if(true, || future(async {}), |()| 3);
    assert_eq!(cx.now(choice.into_future()), (2, 3));
    assert_eq!(evaluated.get(), 0);
    empty = Some(1_u8);
    drop((empty, rx));
}

fn all_off_panics<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u8>();
    let mut empty = None;
    let off = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cx.now(async {
            alt! { sent = tx.send_from(&mut empty) => drop(sent), value = rx.recv(), if false => drop(value) }
        })
    }));
    assert!(off.is_err());
    let none = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cx.now(Choice::<()>::fair().into_future())));
    assert!(none.is_err());
    let send = cx.begin(tx.send(1));
    assert_eq!(cx.now(rx.recv()), Ok(1), "the ends are as before");
    assert_eq!(send.out(), Ok(()));
}

fn unchosen_branches_have_no_effect<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    let ((mut c_tx, mut c_rx), (d_tx, _d_rx)) = (cx.channel(), cx.channel_from::<u8>(HERE));
    let (mut e_tx, mut e_rx) = cx.channel();
    let before = cx.fill(&mut c_tx);
    let mut shared = d_tx.share();
    let (ours, theirs) = (&mut cx.there(&shared), &mut shared);
    let (b_send, e_send) = (cx.begin(b_tx.send(2)), cx.begin(e_tx.send(5)));
    let a_send = cx.begin(a_tx.send(1));
    let mut slot = Some(3);
    let chosen = cx.now(async {
        alt! {
            biased;
            value = a_rx.recv() => value,
            value = b_rx.recv() => panic!("{value:?}"),
            sent = c_tx.send_from(&mut slot) => panic!("{sent:?}"),
            claim = ours.claim() => panic!("{claim:?}"),
            value = e_rx.recv_extended() => panic!("{value:?}"),
            () = future(async {}) => panic!("not chosen"),
        }
    });
    assert_eq!(chosen, Ok(1));
    assert_eq!(a_send.out(), Ok(()));
    assert_eq!(slot, Some(3));
    assert_eq!(cx.drain(&mut c_rx), before);
    assert!(theirs.try_claim().is_ok());
    assert_eq!((cx.now(b_rx.recv()), cx.now(e_rx.recv())), (Ok(2), Ok(5)));
    assert_eq!((b_send.out(), e_send.out()), (Ok(()), Ok(())));
}

fn a_chosen_send_is_alone<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    let (mut a, mut b) = (Some(1), Some(2));
    let mut choice =
        cx.begin(Choice::fair().on(a_tx.send_from(&mut a), |r| r).on(b_tx.send_from(&mut b), |r| r).into_future());
    let from_a = cx.below(2) == 0;
    let mut other = if from_a {
        assert_eq!(cx.now(a_rx.recv()), Ok(1));
        cx.begin(b_rx.recv())
    } else {
        assert_eq!(cx.now(b_rx.recv()), Ok(2));
        cx.begin(a_rx.recv())
    };
    assert!(!other.is_done(), "the choice was made");
    assert!(choice.run());
    assert!(!other.run() && !other.poll());
    assert_eq!(choice.out(), (usize::from(!from_a), Ok(())));
    assert_eq!((a, b), if from_a { (None, Some(2)) } else { (Some(1), None) });
}

fn a_choice_waits_for_any<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    for round in 0..6 {
        let order = match cx.below(3) {
            0 => Choice::fair(),
            1 => Choice::prioritised(),
            _ => Choice::random(),
        };
        let mut choice = cx.begin(order.on(a_rx.recv(), |v| v).on(b_rx.recv(), |v| v).into_future());
        assert!(!choice.is_done());
        let first = cx.below(2) == 0;
        let send = cx.begin(if first { a_tx.send(round) } else { b_tx.send(round) });
        assert!(choice.is_woken());
        assert!(choice.run());
        assert_eq!(choice.out(), (usize::from(!first), Ok(round)));
        assert_eq!(send.out(), Ok(()));
    }
}

fn ended_branches_are_ready<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut tx, rx), (loud, mut other)) = (cx.channel(), cx.channel::<u8>());
    let mut slot = Some(1);
    let (_quiet, mut silent) = cx.channel::<u8>();
    let mut choice = cx.begin(Choice::fair().on(silent.recv(), |v| v).on(other.recv(), |v| v).into_future());
    drop(loud);
    assert!(choice.run());
    assert_eq!(choice.out(), (1, Err(RecvError::Closed)));
    rx.poison("now");
    cx.settle();
    let choice = Choice::prioritised().on(silent.recv(), |_| None).on(tx.send_from(&mut slot), Some).into_future();
    assert_eq!(cx.now(choice), (1, Some(Err(SendError::NotTaken { value: (), why: Why::Poisoned("now".into()) }))));
    assert_eq!(slot, Some(1));
}

/// A receiver that takes one value inside its own wake.
fn taker(mut rx: Receiver<u32>) -> std::sync::Arc<std::sync::Mutex<Vec<u32>>> {
    let got = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let place = got.clone();
    eager(async move {
        while let Ok(value) = rx.recv().await {
            place.lock().expect("one thread").push(value);
        }
    });
    got
}

fn decided_while_it_is_made<X: Transport>(cx: &Cx<'_, X>) {
    for order in [Choice::prioritised(), Choice::fair(), Choice::random()] {
        let ((mut a_tx, a_rx), (mut b_tx, b_rx)) = (cx.channel(), cx.channel());
        let (first, second) = (taker(a_rx), taker(b_rx));
        cx.settle();
        let (mut a, mut b) = (Some(1), Some(2));
        let choice = order.on(a_tx.send_from(&mut a), |r| r).on(b_tx.send_from(&mut b), |r| r);
        let (index, sent) = cx.now(choice.into_future());
        assert_eq!(sent, Ok(()));
        assert_eq!((a, b), if index == 0 { (None, Some(2)) } else { (Some(1), None) });
        let got = (first.lock().expect("one thread").clone(), second.lock().expect("one thread").clone());
        assert_eq!(got, if index == 0 { (vec![1], vec![]) } else { (vec![], vec![2]) });
    }
}

fn skip_and_a_taker_race<X: Transport>(cx: &Cx<'_, X>) {
    for order in [Choice::prioritised(), Choice::fair()] {
        let (mut tx, rx) = cx.channel();
        let (_quiet, mut silent) = cx.channel::<u8>();
        let got = taker(rx);
        cx.settle();
        let mut slot = Some(1);
        let choice = order.on(tx.send_from(&mut slot), |_| true).on(silent.recv(), |_| true).skip(false);
        let (_, sent) = cx.now(choice.into_future());
        assert!(sent, "a receiver was waiting");
        assert_eq!((slot, got.lock().expect("one thread").clone()), (None, vec![1]));
    }
}

fn both_ends_choose<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    for _ in 0..4 {
        let (mut a, mut b) = (Some(1), Some(2));
        let mut sends =
            cx.hand(Choice::fair().on(a_tx.send_from(&mut a), |r| r).on(b_tx.send_from(&mut b), |r| r).into_future());
        let mut receives = cx.hand(Choice::random().on(a_rx.recv(), |r| r).on(b_rx.recv(), |r| r).into_future());
        cx.rig.together(&mut [&mut sends, &mut receives]);
        let ((sent, result), (received, value)) = (sends.out(), receives.out());
        assert_eq!(result, Ok(()));
        assert_eq!(sent, received);
        assert_eq!(value, Ok(received + 1));
        assert_eq!((a, b), if sent == 0 { (None, Some(2)) } else { (Some(1), None) });
    }
    assert_eq!((cx.drain(&mut a_rx), cx.drain(&mut b_rx)), (vec![], vec![]));
}

/// What a process of a graph sent and got.
type Done = (Vec<u64>, Vec<u64>);

/// A process with ends to others: it chooses between them up to `rounds` times, then leaves and drains.
async fn party(
    first: u64,
    rounds: usize,
    cuts: Vec<u64>,
    mut out: Vec<Sender<u64>>,
    mut into: Vec<Receiver<u64>>,
) -> Done {
    let (mut sent, mut got, mut next) = (Vec::new(), Vec::new(), first);
    let mut cuts = cuts.into_iter();
    while sent.len() + got.len() < rounds && !(out.is_empty() && into.is_empty()) {
        let mut slots: Vec<_> = (0..out.len() as u64).map(|n| Some(next + n)).collect();
        let mut choice = Choice::fair();
        for (tx, slot) in out.iter_mut().zip(&mut slots) {
            choice = choice.on(tx.send_from(slot), |sent| sent.map(|()| None).map_err(drop));
        }
        for rx in &mut into {
            choice = choice.on(rx.recv(), |value| value.map(Some).map_err(drop));
        }
        let chosen = match cuts.next() {
            Some(polls) => cut_off(polls, choice.into_future()).await,
            None => Some(choice.await),
        };
        let empty = slots.iter().position(Option::is_none);
        match chosen {
            Some((n, Ok(None))) => assert_eq!(empty, Some(n)),
            Some((_, Ok(Some(value)))) => {
                assert_eq!(empty, None);
                got.push(value);
            }
            Some((n, Err(()))) => {
                assert_eq!(empty, None);
                if n < out.len() {
                    drop(out.remove(n));
                } else {
                    drop(into.remove(n - slots.len()));
                }
            }
            None => {}
        }
        if let Some(n) = empty {
            sent.push(next + n as u64);
        }
        next += slots.len() as u64;
    }
    out.clear();
    for mut rx in into {
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
    }
    (sent, got)
}

/// Processes that choose at both ends of `edges`. All must finish, and every value sent must be received
/// once.
fn graph<X: Transport>(cx: &Cx<'_, X>, parties: usize, edges: &[(usize, usize)], cut: bool) {
    let mut ends: Vec<(Vec<_>, Vec<_>)> = (0..parties).map(|_| Default::default()).collect();
    for (from, to) in edges {
        let (tx, rx) = cx.channel();
        ends[*from].0.push(tx);
        ends[*to].1.push(rx);
    }
    let tasks: Vec<_> = ends
        .into_iter()
        .enumerate()
        .map(|(n, (out, into))| {
            let cuts = (0..if cut { 12 } else { 0 }).map(|_| cx.below(6)).collect();
            cx.spawn(party(n as u64 * 1_000_000, 8, cuts, out, into))
        })
        .collect();
    cx.settle();
    let (mut sent, mut got) = (Vec::new(), Vec::new());
    for task in tasks {
        assert!(task.is_done(), "willing partners stay apart");
        let done = task.out();
        sent.extend(done.0);
        got.extend(done.1);
    }
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(sent, got);
    assert!(sent.len() >= 4, "hardly anything happened: {sent:?}");
}

fn symmetric_pair<X: Transport>(cx: &Cx<'_, X>) {
    graph(cx, 2, &[(0, 1), (1, 0)], false);
}

fn three_cycle<X: Transport>(cx: &Cx<'_, X>) {
    graph(cx, 3, &[(0, 1), (1, 2), (2, 0)], false);
}

fn diamond_of_four<X: Transport>(cx: &Cx<'_, X>) {
    graph(cx, 4, &[(0, 1), (0, 2), (1, 3), (2, 3), (1, 0), (2, 0), (3, 1), (3, 2)], false);
}

fn complete_graph_of_four<X: Transport>(cx: &Cx<'_, X>) {
    let edges: Vec<_> = (0..4).flat_map(|a| (0..4).filter(move |b| *b != a).map(move |b| (a, b))).collect();
    graph(cx, 4, &edges, true);
}

/// A choice over two sends, in hand.
type TwoSends<'a> = Hand<'a, ChoiceFuture<'a, Result<(), SendError<()>>>>;

fn dead_offers_cost_nothing_lasting<X: Transport>(cx: &Cx<'_, X>) {
    // Over nodes each step waits until both are at rest, which inspects every end that they hold.
    let offers = if cx.transport.has_nodes() { 120 } else { 550 };
    let counted = Counted::new();
    let policy = dunlin::rendezvous();
    let ((x_tx, mut x_rx), (y_tx, mut y_rx)) = (cx.channel_of(policy.clone()), cx.channel_of(policy));
    let (x_tx, y_tx) = (x_tx.share(), y_tx.share());
    let mut ends: Vec<_> = (0..offers).map(|_| (x_tx.clone(), y_tx.clone())).collect();
    let mut slots: Vec<_> = (0..offers).map(|_| (Some((0, counted.clone())), Some((1, counted.clone())))).collect();
    {
        // The choices borrow only longer-lived values, and the hands do not poll them again.
        let mut choices: Vec<TwoSends<'_>> = Vec::new();
        for ((x, y), (left, right)) in ends.iter_mut().zip(&mut slots) {
            let choice = Choice::fair().on(x.send_from(left), |r| r).on(y.send_from(right), |r| r);
            choices.push(cx.begin(choice.into_future()));
        }
        for _ in 0..offers {
            assert_eq!(cx.now(x_rx.recv()).map(|value| value.0), Ok(0));
        }
        // All choices are decided and none has been polled since: all offers on y are dead.
        let mut recv = cx.begin(y_rx.recv());
        assert!(!recv.is_done(), "a dead offer was received");
        let mut lone = y_tx.clone();
        let send = cx.begin(lone.send((2, counted.clone())));
        assert!(recv.run());
        assert_eq!(recv.out().map(|value| value.0), Ok(2));
        assert_eq!(send.out(), Ok(()));
        if cx.below(2) == 0 {
            for choice in choices {
                assert_eq!(choice.out(), (0, Ok(())));
            }
        }
    }
    cx.settle();
    assert!(slots.iter().all(|(left, right)| left.is_none() && right.is_some()));
    drop(slots);
    cx.settle();
    assert_eq!(counted.count(), 1, "a value was left in the channel");
    assert_eq!(y_rx.try_recv().map(|value| value.0), Err(RecvError::WouldBlock));
}

fn poison_loses_no_value_of_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, b_rx)) = (cx.channel(), cx.channel());
    let (mut a, mut b) = (Some(1), Some(2));
    let mut choice =
        cx.begin(Choice::fair().on(a_tx.send_from(&mut a), |r| r).on(b_tx.send_from(&mut b), |r| r).into_future());
    let taken = cx.below(2) == 0;
    if taken {
        assert_eq!(cx.now(a_rx.recv()), Ok(1));
    }
    for which in if cx.below(2) == 0 { [0, 1] } else { [1, 0] } {
        if which == 0 { a_rx.poison("a") } else { b_rx.poison("b") }
    }
    cx.settle();
    assert!(choice.run());
    let (index, result) = choice.out();
    if taken {
        assert_eq!((index, result), (0, Ok(())));
        assert_eq!((a, b), (None, Some(2)));
    } else {
        assert!(result.is_err());
        assert_eq!((a, b), (Some(1), Some(2)));
    }
}

fn its_own_channel<X: Transport>(cx: &Cx<'_, X>) {
    for send_first in [true, false] {
        let (mut tx, mut rx) = cx.channel();
        let mut slot = Some(1);
        let (send, recv) = (tx.send_from(&mut slot), rx.recv());
        let choice = match (send_first, cx.below(2) == 0) {
            (true, true) => Choice::fair().on(send, Ok).on(recv, Err),
            (true, false) => Choice::prioritised().on(send, Ok).on(recv, Err),
            (false, true) => Choice::fair().on(recv, Err).on(send, Ok),
            (false, false) => Choice::prioritised().on(recv, Err).on(send, Ok),
        };
        let (_, result) = cx.now(choice.into_future());
        assert_eq!(result, Ok(Err(SendError::NotTaken { value: (), why: Why::OwnChannel })));
        assert_eq!(slot, Some(1));
    }
}

fn its_own_channel_and_another<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut tx, mut rx), (mut loud, mut other)) = (cx.channel(), cx.channel());
    let send = cx.begin(loud.send(5));
    let mut slot = Some(1);
    let choice = Choice::prioritised()
        .on(other.recv(), |v| v.ok())
        .on(tx.send_from(&mut slot), |_| None)
        .on(rx.recv(), |_| None);
    assert_eq!(cx.now(choice.into_future()), (0, Some(5)));
    assert_eq!(slot, Some(1));
    assert_eq!(send.out(), Ok(()));
}

fn send_to_any_reaches_one<X: Transport>(cx: &Cx<'_, X>) {
    let ends: Vec<_> = (0..3).map(|_| cx.channel()).collect();
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    for round in 0..4 {
        let mut slot = Some(round);
        let who = cx.below(3) as usize;
        let mut recv = cx.hand(receivers[who].recv());
        if cx.below(2) == 0 && cx.kind.is_rendezvous() {
            recv.run();
        }
        let mut send = cx.begin(send_to_any(&mut slot, &mut senders));
        let reached = if cx.kind.is_rendezvous() {
            assert!(recv.run());
            assert_eq!(recv.out(), Ok(round));
            assert!(send.run());
            assert_eq!(send.out(), Ok(who));
            who
        } else {
            drop(recv);
            assert!(send.run(), "there is room");
            let reached = send.out().expect("there is room");
            assert_eq!(receivers[reached].try_recv(), Ok(round));
            reached
        };
        assert!(reached < 3);
        assert_eq!(slot, None);
        for rx in &mut receivers {
            assert_eq!(cx.drain(rx), []);
        }
    }
}

fn send_to_any_gives_back<X: Transport>(cx: &Cx<'_, X>) {
    let ((a_tx, mut a_rx), (b_tx, b_rx)) = (cx.channel(), cx.channel());
    let mut ends = [a_tx, b_tx];
    let mut slot = Some(1);
    drop(cx.begin(send_to_any(&mut slot, &mut ends)));
    assert_eq!(slot, Some(1));
    assert_eq!(cx.drain(&mut a_rx), []);
    drop(b_rx);
    cx.settle();
    let result = cx.now(send_to_any(&mut slot, &mut ends));
    assert_eq!(result, Err(SendError::NotTaken { value: 1, why: Why::Closed }));
    assert_eq!(slot, Some(1));
    assert_eq!(cx.drain(&mut a_rx), []);
}

fn send_to_any_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let ends: Vec<_> = (0..3).map(|_| cx.channel()).collect();
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let (mut loud, mut other) = cx.channel::<u32>();
    if cx.kind.is_rendezvous() {
        // Nothing receives, so the other branch is chosen.
        let (mut slot, give) = (Some(9), cx.begin(loud.send(7)));
        let choice = Choice::fair().on(send_to_any(&mut slot, &mut senders), |_| 0).on(other.recv(), |_| 1);
        assert_eq!(cx.now(choice.into_future()), (1, 1));
        assert_eq!((slot, give.out()), (Some(9), Ok(())));
    }
    for round in 0..4 {
        let (mut slot, receives) = (Some(round), cx.below(3) as usize);
        let mut recv = cx.hand(receivers[receives].recv());
        if cx.below(2) == 0 && cx.kind.is_rendezvous() {
            recv.run();
        }
        let to_any = send_to_any(&mut slot, &mut senders);
        let choice = match cx.below(2) {
            0 => Choice::fair().on(to_any, Some).on(other.recv(), |_| None),
            _ => Choice::prioritised().on(to_any, Some).on(other.recv(), |_| None),
        };
        let mut choice = cx.begin(choice.into_future());
        let reached = if cx.kind.is_rendezvous() {
            assert!(recv.run());
            assert_eq!(recv.out(), Ok(round));
            assert_eq!(choice.out(), (0, Some(Ok(receives))));
            receives
        } else {
            drop(recv);
            assert!(choice.run(), "there is room");
            let (branch, sent) = choice.out();
            let reached = sent.expect("the branch").expect("there is room");
            assert_eq!((branch, receivers[reached].try_recv()), (0, Ok(round)));
            reached
        };
        assert!(reached < 3 && slot.is_none());
        for rx in &mut receivers {
            assert_eq!(cx.drain(rx), []);
        }
    }
    // An empty slot disables the branch; the error has the index of the channel that has ended.
    let mut slot = None;
    let off = Choice::fair().on(send_to_any(&mut slot, &mut senders), |_| 0).on(future(std::future::ready(1)), |n| n);
    assert_eq!(cx.now(off.into_future()), (1, 1));
    drop(receivers.remove(1));
    cx.settle();
    if cx.kind.is_rendezvous() {
        let mut slot = Some(5);
        let ended = Choice::fair().on(send_to_any(&mut slot, &mut senders), |sent| sent);
        let error = SendError::NotTaken { value: 1, why: Why::Closed };
        assert_eq!(cx.now(ended.into_future()), (0, Err(error)));
        assert_eq!(slot, Some(5));
    }
}

fn send_to_any_of_nothing<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel::<u8>();
    let mut slot = None;
    assert_eq!(cx.now(send_to_any(&mut slot, &mut [tx])), Ok(0));
    assert_eq!(cx.drain(&mut rx), []);
    let none: &mut [Sender<u8>] = &mut [];
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(send_to_any(&mut slot, none)))).is_err());
}

fn a_foreign_branch_closes_the_choice<X: Transport>(cx: &Cx<'_, X>) {
    comes_along(cx, 1);
}

fn a_foreign_branch_and_a_stubborn_receiver<X: Transport>(cx: &Cx<'_, X>) {
    comes_along(cx, usize::MAX);
}

/// A choice of a send and a foreign future; the first `times` polls of that future also poll a receiver.
fn comes_along<X: Transport>(cx: &Cx<'_, X>, times: usize) {
    let (mut tx, mut rx) = cx.channel();
    let recv = RefCell::new(cx.hand(rx.recv()));
    let mut slot = Some(1);
    let polls = Cell::new(0);
    let mut choice = cx.hand(async {
        alt! {
            biased;
            sent = tx.send_from(&mut slot) => sent.is_ok(),
            () = future(std::future::poll_fn(|_| {
                polls.set(polls.get() + 1);
                let mut recv = recv.borrow_mut();
                if polls.get() <= times && !recv.is_done() {
                    assert!(!recv.poll(), "taken while the choice was closed");
                }
                std::task::Poll::Pending
            })) => false,
        }
    });
    assert!(!choice.run());
    assert!(polls.get() > 0);
    let mut turns = 0;
    while !choice.is_done() {
        turns += 1;
        assert!(turns < 100, "willing partners stay apart");
        // Not nested: the choice polls the receiver, too.
        recv.borrow_mut().run();
        choice.run();
    }
    assert!(choice.out());
    let recv = recv.into_inner();
    assert_eq!(recv.out(), Ok(1));
    assert_eq!(slot, None);
}

fn a_foreign_branch_wins_alone<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let mut slot = Some(1);
    let mut took = None;
    let chosen = cx.now(async {
        alt! {
            biased;
            sent = tx.send_from(&mut slot) => sent.is_ok(),
            () = future(async {
                took = Some(rx.try_recv());
            }) => false,
        }
    });
    assert!(!chosen);
    assert_eq!(took, Some(Err(RecvError::WouldBlock)));
    assert_eq!(slot, Some(1));
}

fn clones_may_be_twice<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let [mut a, mut b] = cx.handles(tx.share());
    let (mut s, mut t) = (Some(1), Some(2));
    let mut choice =
        cx.begin(Choice::fair().on(a.send_from(&mut s), |r| r).on(b.send_from(&mut t), |r| r).into_future());
    let value = cx.now(rx.recv());
    assert_eq!(cx.drain(&mut rx), []);
    assert!(choice.run());
    let (index, result) = choice.out();
    assert_eq!(result, Ok(()));
    assert_eq!(value, Ok(index + 1));
    assert_eq!((s, t), if index == 0 { (None, Some(2)) } else { (Some(1), None) });
    assert_eq!(cx.drain(&mut rx), []);
}

fn an_end_is_free_in_the_body<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut a_tx, mut a_rx), (mut b_tx, mut b_rx)) = (cx.channel(), cx.channel());
    let (first, second) = (cx.begin(a_tx.send(1)), cx.begin(b_tx.send(2)));
    let sum = cx.now(async {
        alt! {
            value = a_rx.recv() => value.unwrap() + b_rx.recv().await.unwrap(),
            value = b_rx.recv() => value.unwrap() + a_rx.recv().await.unwrap(),
        }
    });
    assert_eq!(sum, 3);
    assert_eq!((first.out(), second.out()), (Ok(()), Ok(())));
}

fn choices_are_dropped_at_any_poll<X: Transport>(cx: &Cx<'_, X>) {
    let ((a_tx, a_rx), (b_tx, b_rx)) = (cx.channel::<u64>(), cx.channel());
    let plan: Vec<u64> = (0..20).map(|_| cx.below(6)).collect();
    let sender = cx.spawn(async move {
        let (mut ends, mut sent) = ([a_tx, b_tx], Vec::new());
        for (value, polls) in plan.into_iter().enumerate() {
            let mut slot = Some(value as u64);
            let ended = cut_off(polls, send_to_any(&mut slot, &mut ends)).await;
            assert!(ended.is_none_or(|sent| sent.is_ok()));
            for end in &mut ends {
                end.settle(&mut slot).await.expect("known");
            }
            if slot.is_none() {
                sent.push(value as u64);
            }
            give_way().await;
        }
        sent
    });
    let receivers = [a_rx, b_rx].map(|mut rx| {
        let pause = cx.below(4);
        cx.spawn(async move {
            let mut got = Vec::new();
            while let Ok(value) = rx.recv().await {
                got.push(value);
                for _ in 0..pause {
                    give_way().await;
                }
            }
            got
        })
    });
    cx.settle();
    let mut got: Vec<_> = receivers.into_iter().flat_map(|receiver| receiver.out()).collect();
    got.sort_unstable();
    assert_eq!(got, sender.out());
}
