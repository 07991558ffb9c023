//! Rule 8: the wait records show every wait, and nothing else.

use dunlin::waits::{self, ChannelId, Doing, Wait};
use dunlin::{Choice, Receiver, Sender};

use crate::kind::Kind;
use crate::law::{Cx, Law, all, expired, laws};
use crate::transport::Transport;

pub(crate) fn laws<X: Transport>() -> Vec<Law<X>> {
    laws![
        a_receive_is_shown if all, needs [Waits] =>
            "a waiting receive is a line of the snapshot, with its channel and since when";
        a_send_is_shown if Kind::waits, needs [Waits] =>
            "a waiting send is a line of the snapshot";
        a_claim_is_shown if all, needs [Waits, Shared],
            at one node: "each node shows its own waits; a handle elsewhere is a half of its own" =>
            "a waiting claim is a line of the snapshot, under its channel";
        lone_operations_are_shown if all, needs [Waits, Shared],
            at one node: "each node shows its own waits; a handle elsewhere is a half of its own" =>
            "every waiting handle of a shared end has its line";
        waits_for_the_end_are_shown if all, needs [Waits] =>
            "a wait for closed is a line of the snapshot";
        a_choice_has_a_line_for_each if all, needs [Waits, Choice] =>
            "a waiting choice has a line for every channel, and none when it is over";
        the_age_is_kept if all, needs [Waits], at most 5 =>
            "polling again does not make a wait younger";
        idle_is_silent if all, needs [Waits, Shared, Choice] =>
            "after operations of every kind have ended, in any way, nothing is shown";
        after_a_forgotten_send if Kind::waits, needs [Waits, Forgetting] =>
            "a send that waited behind a forgotten one and was dropped leaves no line";
    ]
}

fn lines(ids: &[ChannelId]) -> Vec<Wait> {
    waits::snapshot().into_iter().filter(|wait| wait.channel.is_some_and(|id| ids.contains(&id))).collect()
}

fn ids<T>(tx: &Sender<T>, rx: &Receiver<T>) -> [ChannelId; 2] {
    [tx.id(), rx.id()]
}

fn doing(ids: &[ChannelId]) -> Vec<Doing> {
    lines(ids).into_iter().map(|wait| wait.doing).collect()
}

fn a_receive_is_shown<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let ids = ids(&tx, &rx);
    assert_eq!(doing(&ids), []);
    let recv = cx.begin(rx.recv());
    let shown = lines(&ids);
    assert!(shown.iter().any(|wait| wait.doing == Doing::Receive && wait.channel == Some(ids[1])), "{shown:?}");
    assert!(waits::tick().wrapping_sub(shown[0].since) < 1000, "{shown:?}");
    let send = cx.begin(tx.send(1));
    assert_eq!(recv.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
    assert_eq!(doing(&ids), []);
}

fn a_send_is_shown<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let ids = ids(&tx, &rx);
    cx.fill(&mut tx);
    assert_eq!(doing(&ids), []);
    let send = cx.begin(tx.send(1));
    assert_eq!(doing(&ids[..1]), [Doing::Send]);
    drop(send);
    assert_eq!(doing(&ids), [], "dropped");
    let send = cx.begin(tx.send(2));
    cx.drain(&mut rx);
    assert_eq!(send.out(), Ok(()));
    assert_eq!(doing(&ids), [], "done");
    cx.fill(&mut tx);
    assert!(cx.now(expired(tx.send(3))).is_err());
    assert_eq!(doing(&ids), [], "timed out");
    let send = cx.begin(tx.send(4));
    drop(rx);
    assert!(send.out().is_err());
    assert_eq!(doing(&ids), [], "failed");
}

fn a_claim_is_shown<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel::<u8>();
    let ids = ids(&tx, &rx);
    let mut a = tx.share();
    let mut b = a.clone();
    let held = cx.now(a.claim()).expect("free");
    assert_eq!(doing(&ids), []);
    let claim = cx.begin(b.claim());
    assert_eq!(doing(&ids[..1]), [Doing::Claim]);
    drop(held);
    drop(claim.out());
    assert_eq!(doing(&ids), []);
    let held = cx.now(a.claim()).expect("free");
    drop(cx.begin(b.claim()));
    assert!(cx.now(expired(b.claim())).is_err());
    drop(held);
    assert_eq!(doing(&ids), []);
}

fn lone_operations_are_shown<X: Transport>(cx: &Cx<'_, X>) {
    let (tx, rx) = cx.channel();
    let ids = ids(&tx, &rx);
    let mut a = rx.share();
    let mut b = a.clone();
    let (first, second) = (cx.begin(a.recv()), cx.begin(b.next()));
    assert_eq!(doing(&ids[1..]), [Doing::Receive; 2]);
    drop(second);
    assert_eq!(doing(&ids[1..]), [Doing::Receive]);
    let mut tx = tx.share();
    let send = cx.begin(tx.send(1));
    assert_eq!(first.out(), Ok(1));
    assert_eq!(send.out(), Ok(()));
    assert_eq!(doing(&ids), []);
}

fn waits_for_the_end_are_shown<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel::<u8>();
    let ids = ids(&tx, &rx);
    let (there, here) = (cx.begin(rx.closed()), cx.begin(tx.closed()));
    assert_eq!(doing(&ids), [Doing::Closed; 2]);
    drop((there, here));
    assert_eq!(doing(&ids), []);
}

fn a_choice_has_a_line_for_each<X: Transport>(cx: &Cx<'_, X>) {
    let ends: Vec<_> = (0..3).map(|_| cx.channel()).collect();
    let all: Vec<_> = ends.iter().flat_map(|(tx, rx)| ids(tx, rx)).collect();
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let mut choice = cx.begin(Choice::fair().all(receivers.iter_mut().map(|rx| rx.recv())).into_future());
    assert_eq!(doing(&all), [Doing::Receive; 3]);
    let send = cx.begin(senders[1].send(1));
    assert!(choice.run());
    assert_eq!(choice.out(), (1, Ok(1)));
    assert_eq!(send.out(), Ok(()));
    assert_eq!(doing(&all), []);
}

fn the_age_is_kept<X: Transport>(cx: &Cx<'_, X>) {
    let (_tx, mut rx) = cx.channel::<u8>();
    let id = [rx.id()];
    let mut recv = cx.begin(rx.recv());
    let since = lines(&id)[0].since;
    cx.pass(7);
    recv.poll();
    assert_eq!(lines(&id)[0].since, since);
    assert!(waits::tick().wrapping_sub(since) >= 7);
}

fn idle_is_silent<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let ((mut other_tx, mut other_rx), all) = (cx.channel(), ids(&tx, &rx));
    let others = ids(&other_tx, &other_rx);
    for round in 0..12 {
        match cx.below(6) {
            0 => drop(cx.begin(rx.recv())),
            1 => drop(cx.begin(tx.send(round))),
            2 => drop(cx.now(expired(rx.next()))),
            3 => {
                let send = cx.begin(tx.send(round));
                drop(cx.now(rx.recv_extended()));
                drop(send);
            }
            4 => {
                let mut slot = Some(round);
                let choice = Choice::fair().on(other_tx.send_from(&mut slot), drop).on(rx.recv(), drop);
                drop(cx.begin(choice.into_future()));
            }
            _ => {
                let send = cx.begin(other_tx.send(round));
                cx.now(Choice::prioritised().on(rx.recv(), drop).on(other_rx.recv(), drop).into_future());
                drop(send);
            }
        }
        cx.settle();
        assert_eq!((doing(&all), doing(&others)), (vec![], vec![]), "after round {round}");
    }
}

fn after_a_forgotten_send<X: Transport>(cx: &Cx<'_, X>) {
    let (mut tx, mut rx) = cx.channel();
    let all = ids(&tx, &rx);
    cx.fill(&mut tx);
    cx.begin(tx.send(1)).forget();
    drop(cx.begin(tx.send(2)));
    cx.drain(&mut rx);
    assert_eq!(doing(&all), []);
}
