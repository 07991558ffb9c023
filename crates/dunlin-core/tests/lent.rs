//! Operations that are lent to several choices in turn, or are awaited in between:
//! `alt! { r = &mut operation => .. }`.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::pin::pin;
use std::sync::Arc;

use common::{Wakes, poll, poll_woken};
use dunlin_core::{Choice, Receiver, Sender, alt, channel, channel_with, fifo, future, send_to_any};

/// A receiver that is always ready.
fn ended() -> Receiver<u8> {
    channel().1
}

#[test]
fn unchosen_lent_send_is_offered_in_the_next_choice() {
    let ((mut tx, mut rx), mut other, mut slot) = (channel(), ended(), Some(7));
    let mut sending = tx.send_from(&mut slot);
    {
        let mut choice = pin!(async {
            alt! { v = &mut sending => Some(v), _ = other.recv() => None }
        });
        assert_eq!(poll(&mut choice), Some(None));
    }
    {
        let (_silent, mut never) = channel::<u8>();
        let mut choice = pin!(async {
            alt! { v = &mut sending => Some(v), _ = never.recv() => None }
        });
        assert_eq!(poll(&mut choice), None);
        assert_eq!(poll(&mut rx.recv()), Some(Ok(7)));
        assert_eq!(poll(&mut choice), Some(Some(Ok(()))));
    }
    drop(sending);
    assert_eq!(slot, None);
}

#[test]
fn unchosen_lent_send_can_be_awaited() {
    let ((mut tx, mut rx), mut slot, wakes) = (channel(), Some(7), Arc::<Wakes>::default());
    let mut sending = tx.send_from(&mut slot);
    {
        let mut other = ended();
        // The send comes first, so it is offered when the other branch is chosen.
        let mut choice = pin!(async {
            alt! { biased; v = &mut sending => Some(v), _ = other.recv() => None }
        });
        assert_eq!(poll(&mut choice), Some(None));
    }
    assert_eq!(poll_woken(&mut sending, &wakes), None);
    assert_eq!(poll(&mut rx.recv()), Some(Ok(7)));
    assert!(wakes.count() > 0);
    assert_eq!(poll(&mut sending), Some(Ok(())));
}

/// The choice was dropped while it was open, as by a `select!`: a receive that took the value then decided
/// the old choice, and another branch of the next choice happened too.
#[test]
fn send_of_a_dropped_choice_belongs_to_the_next_choice() {
    for first_dropped in [true, false] {
        let ((mut tx, mut rx), (mut ty, mut ry), mut slot) = (channel(), channel(), Some(7));
        let mut sending = tx.send_from(&mut slot);
        if first_dropped {
            let (_silent, mut never) = channel::<u8>();
            let mut choice = pin!(async {
                alt! { _ = &mut sending => {}, _ = never.recv() => {} }
            });
            assert_eq!(poll(&mut choice), None);
        } else {
            assert_eq!(poll(&mut sending), None, "awaited for a while, it was a firm offer");
        }
        let mut choice = pin!(async {
            alt! { biased; v = ry.recv() => Err(v), v = &mut sending => Ok(v) }
        });
        assert_eq!(poll(&mut choice), None);
        let mut other = ty.send(1_u8);
        assert_eq!(poll(&mut other), None);
        let got = poll(&mut rx.recv());
        match poll(&mut choice) {
            Some(Ok(sent)) => assert_eq!((sent, got), (Ok(()), Some(Ok(7)))),
            chosen => panic!("{chosen:?}, and the value is received: {got:?}"),
        }
    }
}

#[test]
fn lent_send_received_between_choices_is_complete() {
    let ((mut tx, mut rx), mut slot) = (channel(), Some(7));
    let mut sending = tx.send_from(&mut slot);
    {
        let (_silent, mut never) = channel::<u8>();
        let mut choice = pin!(async {
            alt! { _ = &mut sending => {}, _ = never.recv() => {} }
        });
        assert_eq!(poll(&mut choice), None);
    }
    assert_eq!(poll(&mut rx.recv()), Some(Ok(7)));
    let mut choice = pin!(async {
        alt! { v = &mut sending => Some(v), skip => None }
    });
    assert_eq!(poll(&mut choice), Some(Some(Ok(()))));
}

#[test]
fn lent_send_held_by_extended_receive_completes_at_the_release() {
    let ((mut tx, mut rx), mut slot, wakes) = (channel(), Some(7), Arc::<Wakes>::default());
    let mut sending = tx.send_from(&mut slot);
    let (_silent, mut never) = channel::<u8>();
    {
        let mut choice = pin!(async {
            alt! { _ = &mut sending => {}, _ = never.recv() => {} }
        });
        assert_eq!(poll(&mut choice), None);
    }
    let held = poll(&mut rx.recv_extended()).unwrap().unwrap();
    let mut choice = pin!(async {
        alt! { v = &mut sending => Some(v), _ = never.recv() => None }
    });
    assert_eq!(poll_woken(&mut choice, &wakes), None);
    drop(held);
    assert!(wakes.count() > 0);
    assert_eq!(poll(&mut choice), Some(Some(Ok(()))));
}

/// The send waited behind a forgotten offer and was reported as sent.
#[test]
fn a_send_behind_a_forgotten_one_is_offered_in_a_choice() {
    let ((mut tx, mut rx), mut slot) = (channel(), Some(7));
    let mut forgotten = tx.send(1);
    assert_eq!(poll(&mut forgotten), None);
    std::mem::forget(forgotten);
    let mut sending = tx.send_from(&mut slot);
    assert_eq!(poll(&mut sending), None);
    {
        let mut choice = pin!(async {
            alt! { v = &mut sending => Some(v), skip => None }
        });
        assert_eq!(poll(&mut choice), Some(None));
    }
    drop(sending);
    assert_eq!(slot, Some(7));
    assert_eq!(poll(&mut rx.recv()), Some(Ok(1)));
}

#[test]
fn unchosen_lent_send_to_a_buffer_is_admitted_in_the_next_choice() {
    let ((mut tx, mut rx), mut slot) = (channel_with(fifo(1)), Some(7));
    assert_eq!(poll(&mut tx.send(1)), Some(Ok(())));
    let mut sending = tx.send_from(&mut slot);
    {
        let mut other = ended();
        let mut choice = pin!(async {
            alt! { biased; v = &mut sending => Some(v), _ = other.recv() => None }
        });
        assert_eq!(poll(&mut choice), Some(None));
    }
    assert_eq!(poll(&mut rx.recv()), Some(Ok(1)));
    let mut choice = pin!(async {
        alt! { v = &mut sending => Some(v), skip => None }
    });
    assert_eq!(poll(&mut choice), Some(Some(Ok(()))));
    assert_eq!(poll(&mut rx.recv()), Some(Ok(7)));
}

/// Two senders, and their receivers.
fn two() -> ([Sender<u8>; 2], [Receiver<u8>; 2]) {
    let ((tx, rx), (ty, ry)) = (channel(), channel());
    ([tx, ty], [rx, ry])
}

#[test]
fn lent_send_to_any_received_between_choices_is_complete() {
    for awaited in [false, true] {
        let ((mut senders, mut receivers), mut slot) = (two(), Some(7));
        let mut any = send_to_any(&mut slot, &mut senders);
        let (_silent, mut never) = channel::<u8>();
        {
            let mut choice = pin!(async {
                alt! { _ = &mut any => {}, _ = never.recv() => {} }
            });
            assert_eq!(poll(&mut choice), None);
        }
        assert_eq!(poll(&mut receivers[1].recv()), Some(Ok(7)));
        if awaited {
            assert_eq!(poll(&mut any), Some(Ok(1)));
        } else {
            let mut choice = pin!(async {
                alt! { v = &mut any => Some(v), _ = never.recv() => None }
            });
            assert_eq!(poll(&mut choice), Some(Some(Ok(1))));
        }
        drop(any);
        assert_eq!(slot, None);
    }
}

#[test]
fn lent_send_to_any_held_by_extended_receive_completes_at_the_release() {
    let ((mut senders, mut receivers), mut slot, wakes) = (two(), Some(7), Arc::<Wakes>::default());
    let mut any = send_to_any(&mut slot, &mut senders);
    let (_silent, mut never) = channel::<u8>();
    {
        let mut choice = pin!(async {
            alt! { _ = &mut any => {}, _ = never.recv() => {} }
        });
        assert_eq!(poll(&mut choice), None);
    }
    let held = poll(&mut receivers[1].recv_extended()).unwrap().unwrap();
    let mut choice = pin!(async {
        alt! { v = &mut any => Some(v), _ = never.recv() => None }
    });
    assert_eq!(poll_woken(&mut choice, &wakes), None);
    drop(held);
    assert!(wakes.count() > 0);
    assert_eq!(poll(&mut choice), Some(Some(Ok(1))));
}

#[test]
fn unchosen_lent_send_to_any_is_offered_again_and_awaited() {
    let ((mut senders, mut receivers), mut other, mut slot) = (two(), ended(), Some(7));
    let mut any = send_to_any(&mut slot, &mut senders);
    for _ in 0..3 {
        let mut choice = pin!(async {
            alt! { biased; v = &mut any => Some(v), _ = other.recv() => None }
        });
        assert_eq!(poll(&mut choice), Some(None));
    }
    assert_eq!(poll(&mut any), None);
    assert_eq!(poll(&mut receivers[0].recv()), Some(Ok(7)));
    assert_eq!(poll(&mut any), Some(Ok(0)));
}

/// A branch of a choice in which all are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    SendToAny,
    Receive,
    Timer,
}

/// The branch that a fair choice takes: a receive that is ready, one of several timers, or a send to the
/// waiting receivers.
fn chosen(
    places: &[Place],
    senders: &mut [Sender<u8>; 2],
    receivers: &mut [Receiver<u8>; 2],
    ready: &mut Receiver<u8>,
) -> Place {
    let (mut slot, [first, second]) = (Some(1), receivers);
    let (mut first, mut second) = (first.recv(), second.recv());
    let mut waiting = [Some(&mut first), Some(&mut second)];
    for receive in waiting.iter_mut().flatten() {
        assert_eq!(poll(receive), None);
    }
    let (mut send, mut receive) = (Some(send_to_any(&mut slot, senders)), Some(ready.recv()));
    let mut choice = Choice::fair();
    for place in places {
        choice = match place {
            Place::SendToAny => choice.on(send.take().expect("once"), |sent| assert!(sent.is_ok())),
            Place::Receive => choice.on(receive.take().expect("once"), drop),
            Place::Timer => choice.on(future(std::future::ready(())), drop),
        };
    }
    let mut choice = choice.into_future();
    for _ in 0..100 {
        if let Some((chosen, ())) = poll(&mut choice) {
            return places[chosen];
        }
        for receive in &mut waiting {
            if receive.as_mut().is_some_and(|receive| poll(receive).is_some()) {
                *receive = None;
            }
        }
    }
    panic!("no branch is chosen");
}

/// Each branch is chosen at least once in n + 1 choices.
#[test]
fn fair_choice_takes_send_to_any_and_receive_within_n_plus_1_choices() {
    for timers in [0, 1, 2, 6] {
        let branches = timers + 2;
        let pairs = (0..branches).flat_map(|send| (0..branches).map(move |receive| (send, receive)));
        for (send, receive) in pairs.filter(|(send, receive)| send != receive) {
            let mut places = vec![Place::Timer; branches];
            (places[send], places[receive]) = (Place::SendToAny, Place::Receive);
            let ((mut senders, mut receivers), mut ready) = (two(), ended());
            let mut waited = [0; 2];
            for _ in 0..200 {
                let chosen = chosen(&places, &mut senders, &mut receivers, &mut ready);
                for (waited, end) in waited.iter_mut().zip([Place::SendToAny, Place::Receive]) {
                    *waited = if chosen == end { 0 } else { *waited + 1 };
                }
                assert!(waited.iter().all(|waited| *waited <= branches), "{waited:?} in {places:?}");
            }
        }
    }
}

/// Counted by the turn of the sender that is never chosen, the branch would come first each time.
#[test]
fn send_to_any_with_an_unreceived_sender_leaves_other_branches_turns() {
    let ((mut senders, [_silent, mut receiver]), mut ready) = (two(), ended());
    let mut turns = [0; 2];
    for _ in 0..100 {
        let (mut slot, mut receive) = (Some(1), receiver.recv());
        assert_eq!(poll(&mut receive), None);
        let mut choice = pin!(async {
            alt! { _ = send_to_any(&mut slot, &mut senders) => 0, _ = ready.recv() => 1 }
        });
        let chosen = loop {
            if let Some(chosen) = poll(&mut choice) {
                break chosen;
            }
            let _ = poll(&mut receive);
        };
        turns[chosen as usize] += 1;
    }
    assert_eq!(turns, [50, 50]);
}
