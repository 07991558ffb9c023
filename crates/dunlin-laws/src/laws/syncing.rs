//! Barriers: every enrolled party takes a phase or none does, also in choices with channels.
//!
//! Over nodes some parties are not at the node where the barrier was created. The channels beside it are the
//! transport's.

use std::cell::RefCell;
use std::rc::Rc;

use dunlin::waits::{self, Doing};
use dunlin::{Barrier, Choice, Receiver, Sender, SyncError, alt, barrier};

use crate::kind::Kind;
use crate::law::{Cx, HERE, Law, all, expired, laws};
use crate::rig::{cut_off, eager, give_way};
use crate::transport::Transport;

fn plain(kind: &Kind) -> bool {
    kind.is_rendezvous() && kind.is_open()
}

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        all_go_on_together if plain =>
            "sync returns for no party before every enrolled party has arrived; then it returns for all";
        phases_in_step if plain =>
            "under any schedule, no party begins a phase before every other has ended the one before; a party that resigns is not waited for";
        a_newcomer_is_waited_for if plain =>
            "a party that enrols while others wait is needed for that phase too";
        a_resigned_party_is_not_waited_for if plain =>
            "a party that resigns, by drop, by a panic or with its task, completes the phase for the waiting ones";
        a_cancelled_sync_has_not_arrived if plain =>
            "a sync that was dropped, or whose deadline passed, has not arrived; its party is still waited for";
        the_last_goes_first if plain =>
            "a party that is woken by the completed phase and continues at once finds the next phase, and no party is left behind";
        one_of_two_barriers if plain =>
            "choices over two barriers in any order take one and the same phase, and the other barrier has not moved";
        twice_in_one_choice if plain =>
            "of two enrolments on one barrier in one choice neither branch happens; the choice takes another one";
        waits_at_a_barrier_are_shown if plain,
            at one node: "each node shows its own waits, and parties elsewhere as one group" =>
            "a wait at a barrier is a line of the snapshot: how many have arrived, of how many, and one that has not";
        a_sync_beside_channels if Kind::waits, needs [Choice] =>
            "a choice of a sync, a send and a receive takes the one that is ready, and the others have had no effect";
        a_sync_in_its_order if all, needs [Choice] =>
            "a prioritised choice takes a sync that is ready before what is below it, and after what is above it";
        syncs_take_turns if |kind| kind.waits() && kind.keeps(), needs [Choice] =>
            "a fair choice of a sync and a receive that are always ready takes each as often";
        a_receiver_and_a_party_race if plain, needs [Choice] =>
            "a choice of a send and a sync, the receiver and the other party at once: one of the two is taken, and the other party proceeds without it";
        two_mixed_choices_agree if plain, needs [Choice] =>
            "two choices that could sync, or one send to the other, always make progress, and take the same";
        barriers_and_channels if plain, needs [Choice] =>
            "four processes, each with two barriers and channels to the next, cancelled at random: all make progress, nothing is lost, no phase is half taken";
    ]
}

/// Enrols a party; over nodes the seed decides whether it moves to the other node.
fn enrol<X: Transport>(cx: &Cx<'_, X>, first: &Barrier) -> Barrier {
    let party = first.enrol();
    if cx.transport.has_nodes() && cx.below(3) > 0 { cx.carry(party, HERE) } else { party }
}

fn parties<X: Transport>(cx: &Cx<'_, X>, count: u64) -> Vec<Barrier> {
    let first = barrier();
    let mut all: Vec<_> = (1..count).map(|_| enrol(cx, &first)).collect();
    all.push(first);
    all
}

/// Two parties. Over nodes one of them moves to the other node; the seed decides which.
fn pair<X: Transport>(cx: &Cx<'_, X>) -> (Barrier, Barrier) {
    let one = barrier();
    let other = one.enrol();
    if !cx.transport.has_nodes() {
        return (one, other);
    }
    let other = cx.carry(other, HERE);
    if cx.below(2) == 0 { (one, other) } else { (other, one) }
}

fn all_go_on_together<X: Transport>(cx: &Cx<'_, X>) {
    let mut parties = parties(cx, 1 + cx.below(5));
    for phase in 0..3 {
        let count = parties.len();
        parties.rotate_left(cx.below(count as u64) as usize);
        let Some((last, others)) = parties.split_last_mut() else { return };
        let mut waiting: Vec<_> = others.iter_mut().map(|party| cx.begin(party.sync())).collect();
        assert!(waiting.iter_mut().all(|sync| !sync.poll()), "one party has not arrived");
        assert_eq!(last.phases(), phase);
        assert_eq!(cx.now(last.sync()), Ok(()));
        for mut sync in waiting {
            assert!(sync.is_woken() && sync.run());
            assert_eq!(sync.out(), Ok(()));
        }
    }
}

fn phases_in_step<X: Transport>(cx: &Cx<'_, X>) {
    let steps: Vec<u64> = (0..5).map(|_| cx.below(6)).collect();
    let done = Rc::new(RefCell::new(vec![0; 5]));
    let tasks: Vec<_> = parties(cx, 5)
        .into_iter()
        .zip(steps.clone())
        .enumerate()
        .map(|(n, (mut phase, steps))| {
            let (done, gives_way, all_steps) = (done.clone(), cx.below(3), steps);
            cx.spawn(async move {
                for step in 1..=all_steps {
                    for _ in 0..gives_way {
                        give_way().await;
                    }
                    done.borrow_mut()[n] = step;
                    phase.sync().await.expect("no node is lost");
                    // Parties with fewer steps have left.
                    assert_eq!(phase.phases(), step);
                }
                all_steps
            })
        })
        .collect();
    let watch = {
        let (done, steps) = (done.clone(), steps.clone());
        move || {
            let done = done.borrow();
            let ahead = done.iter().max().copied().unwrap_or(0);
            assert!(done.iter().zip(&steps).all(|(done, steps)| *done + 1 >= ahead || done == steps), "{done:?}");
        }
    };
    cx.rig.settle_watching(watch);
    for (task, steps) in tasks.into_iter().zip(steps) {
        assert_eq!(task.out(), steps);
    }
}

fn a_newcomer_is_waited_for<X: Transport>(cx: &Cx<'_, X>) {
    let mut parties = parties(cx, 3);
    let (mut second, mut first) = (parties.remove(1), parties.remove(0));
    let mut waiting = cx.begin(first.sync());
    let mut newcomer = parties[0].enrol();
    if cx.below(2) == 0 {
        drop(parties);
    } else {
        let third = cx.begin(parties[0].sync());
        drop(third);
        drop(parties);
    }
    let mut other = cx.begin(second.sync());
    assert!(!waiting.poll() && !other.poll());
    assert_eq!(cx.now(newcomer.sync()), Ok(()));
    assert_eq!((waiting.out(), other.out()), (Ok(()), Ok(())));
    assert_eq!(newcomer.parties(), 3);
}

fn a_resigned_party_is_not_waited_for<X: Transport>(cx: &Cx<'_, X>) {
    for way in 0..4 {
        let mut first = barrier();
        let (mut second, leaver) = (enrol(cx, &first), enrol(cx, &first));
        let (waiting, other) = (cx.begin(first.sync()), cx.begin(second.sync()));
        match way {
            0 => drop(leaver),
            1 => {
                let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
                    let _mine = leaver;
                    panic!("while it is enrolled");
                }));
                assert!(panicked.is_err());
            }
            2 => {
                let task = cx.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(leaver);
                });
                cx.settle();
                task.cancel();
            }
            _ => {
                let (_tx, mut rx) = cx.channel_of::<u8>(dunlin::rendezvous());
                let mut newcomer = leaver.enrol();
                let mut choice = cx.begin(Choice::fair().on(newcomer.sync(), drop).on(rx.recv(), drop).into_future());
                assert!(!choice.poll());
                drop(choice);
                drop((leaver, newcomer));
            }
        }
        assert_eq!((waiting.out(), other.out()), (Ok(()), Ok(())), "way {way}");
    }
}

fn a_cancelled_sync_has_not_arrived<X: Transport>(cx: &Cx<'_, X>) {
    let (mut first, mut second) = pair(cx);
    for way in 0..2 {
        match way {
            0 => drop(cx.begin(first.sync())),
            _ => assert_eq!(cx.now(expired(first.sync())), Err(SyncError::TimedOut)),
        }
        let mut waiting = cx.begin(second.sync());
        assert!(!waiting.poll());
        if cx.transport.has_nodes() {
            // A party at another node has to ask, and its deadline passes first.
            assert_eq!(cx.now(first.sync()), Ok(()));
        } else {
            assert_eq!(cx.now(expired(first.sync())), Ok(()), "all have arrived: the deadline does not matter");
        }
        assert_eq!(waiting.out(), Ok(()));
    }
}

fn the_last_goes_first<X: Transport>(cx: &Cx<'_, X>) {
    let mut parties = parties(cx, 3);
    let mut last = parties.remove(0);
    // These parties continue inside their own wakes.
    for mut phase in parties {
        eager(async move {
            for _ in 0..4 {
                phase.sync().await.expect("no node is lost");
            }
        });
    }
    for phase in 1..=4 {
        assert_eq!(cx.now(last.sync()), Ok(()));
        assert_eq!(last.phases(), phase);
    }
    assert_eq!(last.parties(), 1, "the others are done");
}

fn one_of_two_barriers<X: Transport>(cx: &Cx<'_, X>) {
    let ends: Vec<_> = parties(cx, 3).into_iter().zip(parties(cx, 3)).collect();
    let tasks: Vec<_> = ends
        .into_iter()
        .map(|(mut a, mut x)| {
            let orders: Vec<_> = (0..5).map(|_| (cx.below(2), cx.below(2))).collect();
            cx.spawn(async move {
                let mut taken = Vec::new();
                for (fair, a_first) in orders {
                    let before = (a.phases(), x.phases());
                    let choice = if fair == 0 { Choice::fair() } else { Choice::prioritised() };
                    let choice = if a_first == 0 {
                        choice.on(a.sync(), |r| r.map(|()| 'a')).on(x.sync(), |r| r.map(|()| 'x'))
                    } else {
                        choice.on(x.sync(), |r| r.map(|()| 'x')).on(a.sync(), |r| r.map(|()| 'a'))
                    };
                    let which = choice.await.1.expect("no node is lost");
                    let moved = (a.phases() - before.0, x.phases() - before.1);
                    assert_eq!(moved, if which == 'a' { (1, 0) } else { (0, 1) });
                    taken.push(which);
                }
                // No party leaves before all have taken the same number of phases.
                a.sync().await.expect("no node is lost");
                taken
            })
        })
        .collect();
    cx.settle();
    let taken: Vec<_> = tasks.into_iter().map(|task| task.out()).collect();
    assert!(taken.iter().all(|one| *one == taken[0]), "{taken:?}");
}

fn twice_in_one_choice<X: Transport>(cx: &Cx<'_, X>) {
    let (mut loud, mut rx) = cx.channel();
    let mut parties = parties(cx, 3);
    let (mut third, mut second) = (parties.remove(2), parties.remove(1));
    let first = &mut parties[0];
    let mut waiting = cx.begin(third.sync());
    {
        let choice = Choice::fair().on(first.sync(), |_| 0).on(second.sync(), |_| 0).on(rx.recv(), |v| v.unwrap_or(9));
        let mut choice = cx.begin(choice.into_future());
        assert!(!choice.poll() && !waiting.poll());
        let send = cx.begin(loud.send(7));
        assert_eq!(choice.out(), (2, 7));
        assert_eq!(send.out(), Ok(()));
    }
    let one = cx.begin(first.sync());
    assert_eq!(cx.now(second.sync()), Ok(()));
    assert_eq!((one.out(), waiting.out()), (Ok(()), Ok(())));
}

fn waits_at_a_barrier_are_shown<X: Transport>(cx: &Cx<'_, X>) {
    let (mut first, made) = (barrier(), line!());
    let (mut second, mut third) = (first.enrol(), first.enrol());
    let lines = || {
        let here = |wait: &waits::Wait| wait.made.file().ends_with("syncing.rs") && wait.made.line() == made;
        let lines = waits::snapshot().into_iter().filter(here);
        let mut there: Vec<_> = lines.map(|wait| (wait.doing, wait.there.unwrap_or_default())).collect();
        // Other tests may run this law at the same time.
        there.dedup();
        there
    };
    let waiting = cx.begin(first.sync());
    assert!(lines().contains(&(Doing::Sync, (1, 3))));
    let other = cx.begin(second.sync());
    assert!(lines().contains(&(Doing::Sync, (2, 3))));
    assert_eq!(cx.now(third.sync()), Ok(()));
    assert_eq!((waiting.out(), other.out()), (Ok(()), Ok(())));
}

fn a_sync_beside_channels<X: Transport>(cx: &Cx<'_, X>) {
    let ((mut tx, mut rx), (mut loud, mut other)) = (cx.channel(), cx.channel());
    let before = cx.fill(&mut tx);
    let (mut mine, mut party) = pair(cx);
    for sync_first in [true, false] {
        for ready in 0..3 {
            let mut slot = Some(1);
            let choice = Choice::fair();
            let (send, recv) = (tx.send_from(&mut slot), other.recv());
            let (sent, got) = (|r: Result<(), _>| if r.is_ok() { 1 } else { 9 }, |r| if r == Ok(7) { 2 } else { 9 });
            let synced = |r: Result<(), _>| if r.is_ok() { 0 } else { 9 };
            let choice = if sync_first {
                choice.on(mine.sync(), synced).on(send, sent).on(recv, got)
            } else {
                choice.on(recv, got).on(send, sent).on(mine.sync(), synced)
            };
            let mut choice = cx.begin(choice.into_future());
            assert!(!choice.is_done());
            match ready {
                0 => assert_eq!(cx.now(party.sync()), Ok(())),
                1 => {
                    // This receives the choice's value, or a buffered one, which makes room.
                    let recv = cx.now(rx.recv());
                    assert!(recv.is_ok());
                }
                _ => {
                    let send = cx.begin(loud.send(7));
                    choice.run();
                    assert_eq!(send.out(), Ok(()));
                }
            }
            assert!(choice.run(), "{ready} is ready");
            assert_eq!(choice.out().1, ready);
            assert_eq!(slot.is_none(), ready == 1);
            cx.settle();
            if ready == 1 {
                // Restores the full channel.
                cx.drain(&mut rx);
                assert_eq!(cx.fill(&mut tx), before);
            }
            let waiting = cx.begin(party.sync());
            assert!(!waiting.is_done(), "the choice has left the barrier");
        }
    }
    assert_eq!(mine.phases(), 2);
    assert_eq!(cx.drain(&mut rx), before);
}

fn a_sync_in_its_order<X: Transport>(cx: &Cx<'_, X>) {
    let (mut loud, mut rx) = cx.channel();
    // Away from its keeper, a barrier's completion is never known at once, so the choice is at the keeper.
    let mut mine = barrier();
    let mut party = enrol(cx, &mine);
    for sync_first in [true, false] {
        let mut waiting = cx.begin(party.sync());
        let send = cx.begin(loud.send(7));
        let choice = Choice::prioritised();
        let choice = if sync_first {
            choice.on(mine.sync(), |_| true).on(rx.recv(), |_| false)
        } else {
            choice.on(rx.recv(), |_| false).on(mine.sync(), |_| true)
        };
        assert_eq!(cx.now(choice.into_future()), (0, sync_first));
        assert_eq!(waiting.poll(), sync_first);
        drop(send);
        cx.settle();
        cx.drain(&mut rx);
    }
    let skipped = cx.now(async {
        alt! { biased; r = mine.sync() => r.is_err(), skip => true }
    });
    assert!(skipped, "not all parties have arrived");
    let waiting = cx.begin(party.sync());
    let synced = cx.now(async {
        alt! { biased; r = mine.sync() => r.is_ok(), skip => false }
    });
    assert!(synced);
    assert_eq!(waiting.out(), Ok(()));
}

fn syncs_take_turns<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    cx.spawn(async move {
        // More sends than the law receives; the bound stops the sender of a policy that never makes it wait.
        for _ in 0..100 {
            if tx.send(1_u8).await.is_err() {
                break;
            }
        }
    });
    // Away from its keeper, a barrier's completion is never known at once, so the choice is at the keeper.
    let mut mine = barrier();
    let mut party = enrol(cx, &mine);
    cx.spawn(async move { while party.phases() < 10 && party.sync().await.is_ok() {} });
    cx.settle();
    let mut turns = [0; 2];
    for _ in 0..20 {
        turns[cx.now(Choice::fair().on(mine.sync(), drop).on(rx.recv(), drop).into_future()).0] += 1;
        cx.settle();
    }
    assert_eq!(turns, [10; 2]);
}

fn a_receiver_and_a_party_race<X: Transport>(cx: &Cx<'_, X>) {
    for _ in 0..3 {
        let (mut tx, mut rx) = cx.channel();
        let (mut mine, mut party) = pair(cx);
        let (mut slot, synced);
        {
            let (mut recv, mut other) = (cx.hand(rx.recv()), cx.hand(party.sync()));
            slot = Some(1);
            let choice = if cx.below(2) == 0 { Choice::fair() } else { Choice::prioritised() };
            let choice = if cx.below(2) == 0 {
                choice.on(mine.sync(), |r| r.is_ok()).on(tx.send_from(&mut slot), |r| r.is_err())
            } else {
                choice.on(tx.send_from(&mut slot), |r| r.is_err()).on(mine.sync(), |r| r.is_ok())
            };
            let mut choice = cx.hand(choice.into_future());
            if cx.below(2) == 0 {
                choice.poll();
            }
            cx.rig.together(&mut [&mut choice, &mut recv, &mut other]);
            assert!(choice.is_done(), "a receiver and a party are willing");
            synced = choice.out().1;
            assert_eq!((recv.is_done(), other.is_done()), (!synced, synced));
            if !synced {
                assert_eq!(recv.out(), Ok(1));
            }
        }
        assert_eq!(slot, synced.then_some(1));
        assert_eq!(mine.phases(), u64::from(synced));
    }
}

fn two_mixed_choices_agree<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel();
    let (mine, party) = pair(cx);
    let orders = |cx: &Cx<'_, X>| -> Vec<_> { (0..6).map(|_| (cx.below(2) == 0, cx.below(2) == 0)).collect() };
    let choice = |(fair, _): &(bool, bool)| if *fair { Choice::fair() } else { Choice::prioritised() };
    let sends = {
        let (orders, mut tx, mut mine): (_, Sender<u8>, _) = (orders(cx), tx, mine);
        cx.spawn(async move {
            let mut synced = Vec::new();
            for order in orders {
                let mut slot = Some(1);
                let choice = if order.1 {
                    choice(&order).on(mine.sync(), |r| r.is_ok()).on(tx.send_from(&mut slot), |r| r.is_err())
                } else {
                    choice(&order).on(tx.send_from(&mut slot), |r| r.is_err()).on(mine.sync(), |r| r.is_ok())
                };
                synced.push(choice.await.1);
                assert_eq!(slot.is_some(), synced.ends_with(&[true]));
            }
            (synced, tx, mine)
        })
    };
    let receives = {
        let (orders, mut rx, mut party): (_, Receiver<u8>, _) = (orders(cx), rx, party);
        cx.spawn(async move {
            let mut synced = Vec::new();
            for order in orders {
                let choice = if order.1 {
                    choice(&order).on(party.sync(), |r| r.is_ok()).on(rx.recv(), |r| r != Ok(1))
                } else {
                    choice(&order).on(rx.recv(), |r| r != Ok(1)).on(party.sync(), |r| r.is_ok())
                };
                synced.push(choice.await.1);
            }
            (synced, rx, party)
        })
    };
    cx.settle();
    let ((sends, _tx, mine), (receives, _rx, _party)) = (sends.out(), receives.out());
    // The sender may learn what became of a value after its partner has continued: the orders may differ, but
    // not the counts.
    let count = |all: &[bool]| all.iter().filter(|synced| **synced).count();
    assert_eq!(count(&sends), count(&receives));
    assert_eq!(mine.phases(), count(&sends) as u64);
}

/// What one process sent and received.
type Done = (Vec<u64>, Vec<u64>);

/// Chooses over all its ends for a number of rounds; `cuts` drops some of the choices after a few polls.
async fn process(
    first: u64,
    rounds: u64,
    cuts: Vec<u64>,
    mut barriers: Vec<Barrier>,
    mut tx: Sender<u64>,
    rx: Receiver<u64>,
) -> Done {
    let (mut sent, mut got, mut into) = (Vec::new(), Vec::new(), vec![rx]);
    let mut cuts = cuts.into_iter();
    for next in first..first + rounds {
        let before: Vec<_> = barriers.iter().map(Barrier::phases).collect();
        let mut slot = Some(next);
        let mut choice = Choice::fair();
        for (n, phase) in barriers.iter_mut().enumerate() {
            choice = choice.on(phase.sync(), move |r| r.map(|()| (Some(n), None)).map_err(drop));
        }
        choice = choice.on(tx.send_from(&mut slot), |r| r.map(|()| (None, None)).map_err(drop));
        for rx in &mut into {
            choice = choice.on(rx.recv(), |r| r.map(|value| (None, Some(value))).map_err(drop));
        }
        let chosen = match cuts.next() {
            Some(polls) => cut_off(polls, choice.into_future()).await.map(|chosen| chosen.1),
            None => Some(choice.await.1),
        };
        if chosen.is_none() {
            // Over nodes the outcome may take a while.
            tx.settle(&mut slot).await.expect("no node was lost");
        }
        let moved: Vec<_> = barriers.iter().zip(before).map(|(phase, before)| phase.phases() - before).collect();
        match chosen {
            Some(Ok((Some(n), _))) => assert_eq!((moved[n], moved.iter().sum::<u64>(), slot), (1, 1, Some(next))),
            Some(Ok((None, Some(value)))) => {
                assert_eq!((moved.iter().sum::<u64>(), slot), (0, Some(next)));
                got.push(value);
            }
            Some(Ok((None, None))) => assert_eq!((moved.iter().sum::<u64>(), slot), (0, None)),
            Some(Err(())) => {
                // The neighbour has left, so this process stops choosing and drains its channels.
                assert_eq!((moved.iter().sum::<u64>(), slot), (0, Some(next)));
                break;
            }
            None => {
                // The end has asked, so it is known whether the receiver took the value.
                tx.settle(&mut slot).await.expect("known");
                assert!(moved.iter().sum::<u64>() + u64::from(slot.is_none()) <= 1);
            }
        }
        if slot.is_none() {
            sent.push(next);
        }
    }
    drop((tx, barriers));
    for mut rx in into {
        while let Ok(value) = rx.recv().await {
            got.push(value);
        }
    }
    (sent, got)
}

fn barriers_and_channels<X: Transport>(cx: &Cx<'_, X>) {
    const COUNT: usize = 4;
    // One barrier for all processes, and one for each pair of opposite ones.
    let mut barriers: Vec<Vec<Barrier>> = parties(cx, COUNT as u64).into_iter().map(|phase| vec![phase]).collect();
    for n in 0..COUNT / 2 {
        let pair = barrier();
        barriers[n + COUNT / 2].push(enrol(cx, &pair));
        barriers[n].push(pair);
    }
    let (senders, mut receivers): (Vec<_>, Vec<_>) = (0..COUNT).map(|_| cx.channel()).unzip();
    receivers.rotate_right(1);
    let ends = senders.into_iter().zip(receivers).zip(barriers).enumerate();
    let tasks: Vec<_> = ends
        .map(|(n, ((tx, rx), barriers))| {
            let cuts = (0..8).map(|_| cx.below(6)).collect();
            cx.spawn(process(n as u64 * 1_000_000, 14, cuts, barriers, tx, rx))
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
}
