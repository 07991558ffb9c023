//! Fairness, judged on the log: a choice takes the ready branch that was chosen least recently.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dunlin::{
    Barrier, CallError, Callee, Choice, Receiver, Sender, Shared, alt, barrier, channel, channel_with, future,
    unbounded,
};

use crate::kind::{Kind, NO_BOUND};
use crate::law::{Cx, HERE, Law, laws};
use crate::transport::{Feature, Transport};

fn finite(kind: &Kind) -> bool {
    kind.waits() && kind.room < NO_BOUND
}

fn plain(kind: &Kind) -> bool {
    kind.is_rendezvous() && kind.is_open()
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        eight_take_equal_turns if finite, needs [Choice] =>
            "a fair choice over 8 channels that are always ready takes each exactly as often";
        buffered_ones_take_equal_turns if |kind| kind.room >= 4 && kind.keeps(), needs [Choice] =>
            "a fair choice over filled buffers takes each exactly as often";
        turns_are_kept_between_choices if finite, needs [Choice] =>
            "fairness holds from one choice to another at a different place of the program";
        a_branch_long_unready_comes_first if finite, needs [Choice] =>
            "a branch that was not ready for long is taken at once when it is";
        sends_take_equal_turns if plain, needs [Choice] =>
            "a fair choice over sends whose receivers always wait takes each exactly as often";
        a_send_has_its_turn_beside_receives if plain, needs [Choice] =>
            "a send beside a receive that is always ready, and the receive beside it, take equal turns";
        a_shared_send_has_its_turn if plain, needs [Choice, Shared] =>
            "the same for a send of a shared end";
        claims_take_turns if plain, needs [Choice, Shared] =>
            "a claim that is free beside a receive that is always ready: equal turns";
        stressed_alternation if |kind| finite(kind) && kind.is_open(), needs [Choice, Shared] =>
            "among 8 channels with 4 writers each, sending at will, the log has no channel chosen twice while another was ready all the time";
        ends_are_not_passed_over if finite, needs [Choice] =>
            "a fair choice over n branches takes each end that is ready, whatever its operation, at least once in n + 1 choices, at every place and beside branches of every kind";
        branches_without_an_end_share_by_lot if plain, needs [Choice], at most 1 =>
            "of 100,000 fair choices over n ready branches each branch without an end (future, post, `closed()`) gets between half and twice its share";
        random_takes_every_branch if finite, needs [Choice] =>
            "a random choice over four that are ready takes each sometimes";
    ]
}

const ROUNDS: usize = 40;

/// More than any of these laws receives: a policy that never makes a send wait, contrary to its declaration,
/// must not keep a law running for ever.
const SENDS_MAX: usize = 1000;

/// Receivers whose senders send as soon as they can.
fn always_ready<X: Transport>(cx: &Cx<'_, X>, count: usize) -> Vec<dunlin::Receiver<usize>> {
    let make = |n: usize| {
        let (mut tx, rx) = cx.channel();
        cx.spawn(async move {
            for _ in 0..SENDS_MAX {
                if tx.send(n).await.is_err() {
                    return;
                }
            }
        });
        rx
    };
    let receivers = (0..count).map(make).collect();
    cx.settle();
    receivers
}

fn eight_take_equal_turns<X: Transport>(cx: &Cx<'_, X>) {
    let mut receivers = always_ready(cx, 8);
    let mut turns = [0; 8];
    for round in 1..=10 {
        for _ in 0..8 {
            let (n, value) = cx.now(Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future());
            assert_eq!(value, Ok(n));
            turns[n] += 1;
            cx.settle();
        }
        assert_eq!(turns, [round; 8], "after {round} rounds");
    }
}

fn buffered_ones_take_equal_turns<X: Transport>(cx: &Cx<'_, X>) {
    let ends: Vec<_> = (0..3).map(|_| cx.channel()).collect();
    let (senders, mut receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    for mut tx in senders {
        cx.fill(&mut tx);
    }
    let mut turns = [0; 3];
    for _ in 0..4 * 3 {
        let (n, _) = cx.now(Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future());
        turns[n] += 1;
    }
    assert_eq!(turns, [4; 3]);
}

fn turns_are_kept_between_choices<X: Transport>(cx: &Cx<'_, X>) {
    let [a, b] = &mut always_ready(cx, 2)[..] else { return };
    let mut turns = [0_u32; 2];
    for round in 0..ROUNDS {
        let taken = if round % 2 == 0 {
            cx.now(async {
                alt! { v = a.recv() => v, v = b.recv() => v }
            })
        } else {
            cx.now(Choice::fair().on(b.recv(), |v| v).on(a.recv(), |v| v).into_future()).1
        };
        turns[taken.expect("open")] += 1;
        cx.settle();
    }
    assert_eq!(turns, [ROUNDS as u32 / 2; 2]);
}

fn a_branch_long_unready_comes_first<X: Transport>(cx: &Cx<'_, X>) {
    let mut receivers = always_ready(cx, 3);
    let (mut tx, rare) = cx.channel();
    receivers.push(rare);
    for _ in 0..5 {
        for _ in 0..cx.below(9) {
            let (n, _) = cx.now(Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future());
            assert!(n < 3);
            cx.settle();
        }
        let send = cx.begin(tx.send(3));
        // The choice takes each of the others at most once before it.
        let mut waited = 0;
        while cx.now(Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future()).0 != 3 {
            waited += 1;
            assert!(waited <= 3, "passed over {waited} times");
            cx.settle();
        }
        assert_eq!(send.out(), Ok(()));
    }
}

/// Senders whose receivers always wait.
fn always_willing<X: Transport>(cx: &Cx<'_, X>) -> dunlin::Sender<usize> {
    let (tx, mut rx) = cx.channel_from(HERE);
    cx.spawn(async move { while rx.recv().await.is_ok() {} });
    cx.settle();
    tx
}

fn sends_take_equal_turns<X: Transport>(cx: &Cx<'_, X>) {
    let mut senders: Vec<_> = (0..4).map(|_| always_willing(cx)).collect();
    let mut turns = [0; 4];
    for _ in 0..ROUNDS {
        let mut slots = [Some(1); 4];
        let mut choice = Choice::fair();
        for (tx, slot) in senders.iter_mut().zip(&mut slots) {
            choice = choice.on(tx.send_from(slot), |sent| sent);
        }
        let (n, sent) = cx.now(choice.into_future());
        assert_eq!(sent, Ok(()));
        turns[n] += 1;
        cx.settle();
    }
    assert_eq!(turns, [ROUNDS / 4; 4]);
}

fn a_send_has_its_turn_beside_receives<X: Transport>(cx: &Cx<'_, X>) {
    for send_first in [true, false] {
        let (mut rx, mut tx) = (always_ready(cx, 1).remove(0), always_willing(cx));
        let mut turns = [0_u32; 2];
        for _ in 0..ROUNDS {
            let mut slot = Some(1);
            let (send, recv) = (tx.send_from(&mut slot), rx.recv());
            let choice = if send_first {
                Choice::fair().on(send, |_| 0).on(recv, |_| 1)
            } else {
                Choice::fair().on(recv, |_| 1).on(send, |_| 0)
            };
            let which: usize = cx.now(choice.into_future()).1;
            turns[which] += 1;
            cx.settle();
        }
        assert!(turns[0].abs_diff(turns[1]) <= 1, "send and receive: {turns:?}");
    }
}

fn a_shared_send_has_its_turn<X: Transport>(cx: &Cx<'_, X>) {
    let (mut rx, [mut tx]) = (always_ready(cx, 1).remove(0), cx.handles(always_willing(cx).share()));
    let mut turns = [0_u32; 2];
    for _ in 0..ROUNDS {
        let mut slot = Some(1);
        let choice = Choice::fair().on(tx.send_from(&mut slot), |_| 0).on(rx.recv(), |_| 1);
        let which: usize = cx.now(choice.into_future()).1;
        turns[which] += 1;
        cx.settle();
    }
    assert!(turns[0].abs_diff(turns[1]) <= 1, "send and receive: {turns:?}");
}

fn claims_take_turns<X: Transport>(cx: &Cx<'_, X>) {
    let (mut rx, [mut tx]) = (always_ready(cx, 1).remove(0), cx.handles(always_willing(cx).share()));
    let mut turns = [0_u32; 2];
    for _ in 0..ROUNDS {
        let choice = Choice::fair().on(tx.claim(), |claim| usize::from(claim.is_err())).on(rx.recv(), |_| 1);
        turns[cx.now(choice.into_future()).1] += 1;
        cx.settle();
    }
    assert!(turns[0].abs_diff(turns[1]) <= 1, "claim and receive: {turns:?}");
}

/// CoCoL's law. The choice takes the ready channel whose last turn was earliest, which is a stronger
/// condition.
fn stressed_alternation<X: Transport>(cx: &Cx<'_, X>) {
    const CHANNELS: usize = 8;
    const WRITERS: usize = 4;
    let (mut receivers, mut writers) = (Vec::new(), Vec::new());
    for n in 0..CHANNELS {
        let (tx, rx) = cx.channel_from(HERE);
        for mut tx in cx.handles::<_, WRITERS>(tx.share()) {
            // It sends once for each permit.
            let (permit, mut permits) = channel_with(unbounded());
            cx.spawn(async move { while permits.recv().await.is_ok() && tx.send(n).await.is_ok() {} });
            writers.push((n, permit));
        }
        receivers.push(rx);
    }
    let (mut offered, mut last) = ([0; CHANNELS], [0; CHANNELS]);
    for decision in 1..=2 * ROUNDS {
        for _ in 0..cx.below(4) {
            let (n, permit) = &mut writers[cx.below((CHANNELS * WRITERS) as u64) as usize];
            cx.now(permit.send(())).expect("the writer is there");
            offered[*n] += 1;
        }
        cx.settle();
        let ready: Vec<usize> = (0..CHANNELS).filter(|n| offered[*n] > 0).collect();
        if ready.is_empty() {
            continue;
        }
        let (n, value) = cx.now(Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future());
        assert_eq!(value, Ok(n));
        assert!(ready.contains(&n), "no value was sent on {n}");
        for other in ready {
            assert!(last[n] <= last[other], "in decision {decision} {n} was chosen, {other} was ready, {last:?}");
        }
        (last[n], offered[n]) = (decision, offered[n] - 1);
    }
}

fn random_takes_every_branch<X: Transport>(cx: &Cx<'_, X>) {
    let mut receivers = always_ready(cx, 4);
    let mut turns = [0; 4];
    for _ in 0..200 {
        turns[cx.now(Choice::random().all(receivers.iter_mut().map(|rx| rx.recv())).into_future()).0] += 1;
        cx.settle();
    }
    assert!(turns.iter().all(|turns| *turns > 10), "{turns:?}");
}

/// What an end does in a branch of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Recv,
    Next,
    Extended,
    Send,
    LoneRecv,
    LoneSend,
    Claim,
    Sync,
    Accept,
}

impl Deed {
    /// The deeds that the transport supports.
    fn possible<X: Transport>(cx: &Cx<'_, X>) -> Vec<Self> {
        let mut deeds = vec![Self::Recv, Self::Next, Self::Send, Self::Sync];
        let features = [
            (Feature::Extended, &[Self::Extended][..]),
            (Feature::Shared, &[Self::LoneRecv, Self::LoneSend, Self::Claim]),
            (Feature::Calls, &[Self::Accept]),
        ];
        for (feature, more) in features {
            if cx.can(feature) {
                deeds.extend(more);
            }
        }
        deeds
    }
}

/// An end whose operation is ready whenever the others have settled.
enum End {
    Recv(Receiver<usize>),
    Next(Receiver<usize>),
    Extended(Receiver<usize>),
    Send(Sender<usize>, Option<usize>),
    // The handles stay with the end: elsewhere they would first have to ask its keeper.
    LoneRecv(Shared<Receiver<usize>>),
    LoneSend(Shared<Sender<usize>>, Option<usize>),
    Claim(Shared<Sender<usize>>),
    Sync(Barrier),
    Accept(Callee<usize, usize>),
}

impl End {
    fn ready<X: Transport>(cx: &Cx<'_, X>, deed: Deed) -> Self {
        let receiver = || always_ready(cx, 1).remove(0);
        match deed {
            Deed::Recv => Self::Recv(receiver()),
            Deed::Next => Self::Next(receiver()),
            Deed::Extended => Self::Extended(receiver()),
            Deed::Send => Self::Send(always_willing(cx), None),
            Deed::LoneRecv => Self::LoneRecv(receiver().share()),
            Deed::LoneSend => Self::LoneSend(always_willing(cx).share(), None),
            Deed::Claim => Self::Claim(always_willing(cx).share()),
            Deed::Sync => Self::Sync(always_there(cx)),
            Deed::Accept => Self::Accept(always_called(cx)),
        }
    }

    /// The choice with one more branch.
    fn on<'a>(&'a mut self, choice: Choice<'a, ()>) -> Choice<'a, ()> {
        match self {
            // A channel without senders is ready as well.
            Self::Recv(rx) => choice.on(rx.recv(), drop),
            Self::Next(rx) => choice.on(rx.next(), |got| assert!(matches!(got, Ok(Some(_))))),
            Self::Extended(rx) => choice.on(rx.recv_extended(), |got| drop(got.expect("open"))),
            Self::LoneRecv(rx) => choice.on(rx.recv(), |got| assert!(got.is_ok())),
            Self::Claim(tx) => choice.on(tx.claim(), |claim| drop(claim.expect("open"))),
            Self::Sync(party) => choice.on(party.sync(), |synced| synced.expect("synced")),
            Self::Accept(callee) => choice.on(callee.accept(), |call| drop(call.expect("open"))),
            Self::Send(tx, slot) => {
                *slot = Some(1);
                choice.on(tx.send_from(slot), |sent| sent.expect("open"))
            }
            Self::LoneSend(tx, slot) => {
                *slot = Some(1);
                choice.on(tx.send_from(slot), |sent| sent.expect("open"))
            }
        }
    }
}

/// A party of a barrier whose other party always waits.
fn always_there<X: Transport>(cx: &Cx<'_, X>) -> Barrier {
    let party = barrier();
    let mut other = party.enrol();
    cx.spawn(async move {
        for _ in 0..SENDS_MAX {
            if other.sync().await.is_err() {
                return;
            }
        }
    });
    cx.settle();
    party
}

/// A callee whose caller calls as soon as it can, though it is never answered.
fn always_called<X: Transport>(cx: &Cx<'_, X>) -> Callee<usize, usize> {
    let (mut caller, callee) = cx.call();
    cx.spawn(async move {
        for n in 0..SENDS_MAX {
            if !matches!(caller.call(n).await, Err(CallError::NoReply(_))) {
                return;
            }
        }
    });
    cx.settle();
    callee
}

/// A branch of a choice in which all branches are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The next of the ends.
    End(Deed),
    Future,
    Posted,
    ReceiversGone,
    SendersGone,
}

const ENDLESS: [Place; 4] = [Place::Future, Place::Posted, Place::ReceiversGone, Place::SendersGone];

/// The ends of the branches that are always ready and need no task.
struct Endless {
    poster: Sender<()>,
    posts: Receiver<()>,
    sender: Sender<()>,
    receiver: Receiver<()>,
}

impl Endless {
    fn new() -> Self {
        let ((poster, posts), (sender, _), (_, receiver)) = (channel(), channel(), channel());
        Self { poster, posts, sender, receiver }
    }

    /// A fair choice. Only `Place::End` may occur more than once in `places`.
    fn choice<'a>(&'a mut self, places: &[Place], ends: &'a mut [End]) -> Choice<'a, ()> {
        let mut ends = ends.iter_mut();
        let (mut sender, mut receiver) = (Some(&mut self.sender), Some(&mut self.receiver));
        let mut choice = Choice::fair();
        for place in places {
            choice = match place {
                Place::End(_) => ends.next().expect("an end for each").on(choice),
                Place::Future => choice.on(future(std::future::ready(())), drop),
                Place::Posted => {
                    let posted = self.poster.send_nowait(());
                    self.posts.try_recv().expect("a value was posted");
                    choice.on(posted, drop)
                }
                Place::ReceiversGone => choice.on(sender.take().expect("once").closed(), drop),
                Place::SendersGone => choice.on(receiver.take().expect("once").closed(), drop),
            };
        }
        choice
    }
}

/// `items` in a random order.
fn shuffled<X: Transport, T: Copy>(cx: &Cx<'_, X>, items: &[T]) -> Vec<T> {
    let mut items = items.to_vec();
    for n in (1..items.len()).rev() {
        items.swap(n, cx.below(n as u64 + 1) as usize);
    }
    items
}

fn ends_are_not_passed_over<X: Transport>(cx: &Cx<'_, X>) {
    let deeds = Deed::possible(cx);
    let mut places = shuffled(cx, &ENDLESS);
    places.truncate(1 + cx.below(ENDLESS.len() as u64) as usize);
    for _ in 0..=cx.below(deeds.len() as u64) {
        places.push(Place::End(deeds[cx.below(deeds.len() as u64) as usize]));
    }
    let places = shuffled(cx, &places);
    let deed = |place: &Place| if let Place::End(deed) = place { Some(*deed) } else { None };
    let mut ends: Vec<_> = places.iter().filter_map(deed).map(|deed| End::ready(cx, deed)).collect();
    let mut endless = Endless::new();
    let mut waited = vec![0; places.len()];
    for _ in 0..2 * ROUNDS {
        let (chosen, ()) = cx.now(endless.choice(&places, &mut ends).into_future());
        cx.settle();
        waited.iter_mut().for_each(|waited| *waited += 1);
        waited[chosen] = 0;
        let longest = places.iter().zip(&waited).filter(|(place, _)| deed(place).is_some()).map(|(_, waited)| *waited);
        assert!(longest.max() <= Some(places.len()), "{places:?}: not chosen in the last {waited:?} choices");
    }
}

fn branches_without_an_end_share_by_lot<X: Transport>(cx: &Cx<'_, X>) {
    const CHOICES: usize = 100_000;
    for (count, ends) in [(1, 1), (4, 1), (1, 4), (3, 3), (4, 0)] {
        // A receive from a channel without senders is always ready.
        let mut receivers: Vec<_> = (0..ends).map(|_| End::Recv(channel().1)).collect();
        let places = shuffled(cx, &[&ENDLESS[..count], &vec![Place::End(Deed::Recv); ends]].concat());
        let (mut endless, mut turns) = (Endless::new(), vec![0; places.len()]);
        for _ in 0..CHOICES {
            // No other task takes part, so the rig need not settle.
            let mut choice = endless.choice(&places, &mut receivers).into_future();
            dunlin::__rt::renew();
            let polled = Pin::new(&mut choice).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready((chosen, ())) = polled else { panic!("all branches are ready") };
            turns[chosen] += 1;
        }
        let share = CHOICES / places.len();
        for (place, turns) in places.iter().zip(&turns) {
            assert!(share / 2 <= *turns && *turns <= 2 * share, "{place:?} in {places:?}: {turns} of {CHOICES}");
        }
    }
}
