//! Posting: sends whose outcome is not awaited.

use dunlin::{RecvError, SendError, Why, alt};

use crate::counted::Counted;
use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, expired, laws};
use crate::rig::{cut_off, give_way};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        a_post_is_offered_at_once if Kind::waits =>
            "a posted value is offered without a waiting task: a receive gets it, and then its handle returns Ok";
        posts_keep_order if |kind| kind.is_open() && kind.waits() =>
            "posted values arrive in their order, and before what is sent after them";
        a_detached_post_stays if |kind| kind.is_open() && kind.waits() =>
            "a dropped handle leaves its value offered, also when the sender is dropped";
        a_post_comes_back if Kind::waits =>
            "when the channel ends, in whatever way, the handle has the value and the reason";
        a_post_can_be_taken_back if Kind::waits =>
            "cancel, or a deadline, returns a posted value exactly if it is not received";
        posts_are_not_settled if Kind::is_plain_rendezvous, needs [Forgetting] =>
            "settle returns what a forgotten send has left, and nothing that was posted";
        every_post_has_one_fate if |kind| kind.is_open() && kind.waits() =>
            "whatever is cancelled or dropped and when: each posted value is received once or returned, and in order";
        a_post_in_a_choice if Kind::waits, needs [Choice] =>
            "a handle is a branch of a choice, and not chosen it stays posted";
        a_post_and_a_claim if Kind::is_plain_rendezvous, needs [Shared] =>
            "what was posted before a claim is received before what is sent within it; what is posted meanwhile, after it";
        posted_values_are_dropped_once if |kind| kind.is_open() && kind.waits() =>
            "posted values that no handle waits for are dropped with the channel's end, once";
    ]
}

fn a_post_is_offered_at_once<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    for value in cx.fill(&mut tx) {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    let recv = cx.begin(rx.recv());
    let mut post = tx.send_nowait(1);
    assert!(recv.is_woken(), "the receive is woken before the post is polled");
    assert_eq!(recv.out(), Ok(1));
    cx.settle();
    assert!(post.is_done());
    assert_eq!(post.try_outcome(), Some(Ok(())));
    let full = cx.fill(&mut tx);
    let post = tx.send_nowait(2);
    cx.settle();
    assert!(!post.is_done());
    let wait = cx.begin(post);
    for value in full {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Ok(2));
    assert!(wait.is_woken());
    assert_eq!(wait.out(), Ok(()));
}

fn posts_keep_order<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let posts: Vec<_> = (0..10).map(|n| tx.send_nowait(n)).collect();
    let send = cx.begin(tx.send(10));
    for n in 0..=10 {
        assert_eq!(cx.now(rx.recv()), Ok(n));
    }
    assert_eq!(send.out(), Ok(()));
    for post in posts {
        assert_eq!(cx.now(post), Ok(()));
    }
}

fn a_detached_post_stays<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let full = cx.fill(&mut tx);
    tx.send_nowait(1).detach();
    // The post is dropped while it waits.
    drop(cx.begin(tx.send_nowait(2)));
    if cx.below(2) == 0 {
        cx.settle();
    }
    drop(tx);
    cx.settle();
    for value in full.into_iter().chain([1, 2]) {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Err(RecvError::Closed));
}

fn a_post_comes_back<X: Transport>(cx: &Cx<'_, X>) {
    for way in 0..4 {
        let (mut tx, rx) = cx.channel();
        cx.fill(&mut tx);
        let (waits, looks) = (cx.begin(tx.send_nowait(1)), tx.send_nowait(2));
        let mut rx = Some(rx);
        match (way, &rx) {
            (1, Some(rx)) => rx.retire(),
            (2, Some(rx)) => rx.poison("now"),
            (3, _) => tx.poison("now"),
            _ => drop(rx.take()),
        }
        let why = if way < 2 { Why::Closed } else { Why::Poisoned("now".into()) };
        cx.settle();
        assert_eq!(waits.out(), Err(SendError::NotTaken { value: 1, why: why.clone() }), "way {way}");
        assert!(looks.is_done());
        assert_eq!(cx.now(looks), Err(SendError::NotTaken { value: 2, why: why.clone() }));
        let late = tx.send_nowait(3);
        assert_eq!(cx.now(late), Err(SendError::NotTaken { value: 3, why }));
    }
}

fn a_post_can_be_taken_back<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let full = cx.fill(&mut tx);
    let post = tx.send_nowait(1);
    if cx.below(2) == 0 {
        cx.settle();
    }
    assert_eq!(cx.now(post.cancel()), Ok(Some(1)));
    let post = tx.send_nowait(2);
    cx.settle();
    let timed_out = SendError::NotTaken { value: 2, why: Why::TimedOut };
    assert_eq!(cx.now(expired(post)), Err(timed_out));
    let post = tx.send_nowait(3);
    for value in full {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Ok(3), "the other values are no longer offered");
    assert_eq!(cx.now(post.cancel()), Ok(None));
}

fn posts_are_not_settled<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let post = tx.send_nowait(1);
    tx.send_nowait(2).detach();
    cx.begin(tx.send(3)).forget();
    let mut slot = None;
    assert_eq!(cx.now(tx.settle(&mut slot)), Ok(()));
    assert_eq!(slot, Some(3));
    assert_eq!((cx.now(rx.recv()), cx.now(rx.recv())), (Ok(1), Ok(2)));
    assert_eq!(cx.now(post), Ok(()));
}

fn every_post_has_one_fate<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u64>();
    let plans: Vec<(u64, u64)> = (0..16).map(|_| (cx.below(4), cx.below(4))).collect();
    let sender = cx.spawn(async move {
        let (mut back, mut kept) = (Vec::new(), Vec::new());
        for (value, (fate, pauses)) in (0..).zip(plans) {
            let mut post = tx.send_nowait(value);
            for _ in 0..pauses {
                give_way().await;
            }
            match fate {
                0 => back.extend(post.cancel().await.expect("the channel is open")),
                1 => drop(cut_off(pauses, post).await),
                2 => _ = post.try_outcome(),
                _ => kept.push(post),
            }
        }
        for post in kept {
            assert_eq!(post.await, Ok(()));
        }
        back
    });
    let cuts: Vec<u64> = (0..40).map(|_| cx.below(4)).collect();
    let receiver = cx.spawn(async move {
        let mut got = Vec::new();
        for cut in cuts {
            got.extend(cut_off(cut, rx.recv()).await.and_then(Result::ok));
        }
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
        got
    });
    cx.settle();
    let (back, got) = (sender.out(), receiver.out());
    assert!(got.is_sorted_by(|a, b| a < b), "{got:?}");
    let mut all: Vec<u64> = got.iter().chain(&back).copied().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..16), "received {got:?}, back {back:?}");
}

fn a_post_in_a_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let (mut other, mut quit) = cx.channel_of::<u32>(dunlin::rendezvous());
    let full = cx.fill(&mut tx);
    let mut post = tx.send_nowait(1);
    let choice = cx.spawn(async move {
        let mut log = Vec::new();
        loop {
            alt! {
                r = &mut post => {
                    assert_eq!(r, Ok(()));
                    log.push(1);
                    return log;
                }
                n = quit.recv() => log.push(n.expect("offered")),
            }
        }
    });
    let send = cx.begin(other.send(7));
    cx.settle();
    assert_eq!(send.out(), Ok(()));
    for value in full {
        assert_eq!(cx.now(rx.recv()), Ok(value));
    }
    assert_eq!(cx.now(rx.recv()), Ok(1));
    cx.settle();
    assert_eq!(choice.out(), [7, 1]);
}

fn a_post_and_a_claim<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, mut rx) = cx.channel_from(HERE);
    let b = tx.share();
    let a = cx.there(&b);
    // The poster is at the keeper or at the claimer's node: elsewhere the claim would hold its posts back.
    let (mut a, mut b) = if cx.below(2) == 0 { (a, b) } else { (a.clone(), a) };
    let before = b.send_nowait(1);
    if cx.below(2) == 0 {
        cx.settle();
    }
    let mut claim = cx.now(a.claim()).expect("free");
    let (own, meanwhile) = (claim.send_nowait(2), b.send_nowait(4));
    assert_eq!((cx.now(rx.recv()), cx.now(rx.recv())), (Ok(1), Ok(2)));
    let send = cx.begin(claim.send(3));
    assert_eq!(cx.now(rx.recv()), Ok(3));
    assert_eq!(send.out(), Ok(()));
    let recv = cx.begin(rx.recv());
    assert!(!recv.is_done(), "held back");
    drop(claim);
    assert_eq!(recv.out(), Ok(4));
    for post in [before, own, meanwhile] {
        assert_eq!(cx.now(post), Ok(()));
    }
}

fn posted_values_are_dropped_once<X: Transport>(cx: &Cx<'_, X>) {
    let counted = Counted::new();
    let (mut tx, rx) = cx.channel();
    for _ in 0..cx.kind.room.min(4) + 2 {
        tx.send_nowait(counted.clone()).detach();
    }
    let kept = tx.send_nowait(counted.clone());
    if cx.below(2) == 0 {
        cx.settle();
    }
    match cx.below(3) {
        0 => drop(rx),
        1 => rx.poison("now"),
        _ => {
            tx.poison("now");
            drop(rx);
        }
    }
    cx.settle();
    assert_eq!(counted.count(), 2, "the handle has one");
    drop(kept);
    cx.settle();
    assert_eq!(counted.count(), 1);
}
