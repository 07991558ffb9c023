//! Loom: choices against each other, against lone operations, and against events that end them.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_choice`
#![cfg(loom)]

mod loom_support;

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use dunlin_core::{Operation, Receiver, RecvError, SendError, Sender, Why, alt, channel, channel_with, fifo, future};
use loom_support::{block_on, model, model_within, poll_once, spawn, try_once, yield_once};

/// What a party of several choices did.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Did {
    Sent,
    Received(u32),
    /// The other end of a branch was gone.
    Ended,
}

/// Offers `value` on `tx` and receives from `rx`, until one of the two happens.
fn send_or_receive(tx: &mut Sender<u32>, rx: &mut Receiver<u32>, value: u32, receive_first: bool) -> Did {
    let mut slot = Some(value);
    let did = block_on(async {
        if receive_first {
            alt! { biased;
                got = rx.recv() => got.map_or(Did::Ended, Did::Received),
                sent = tx.send_from(&mut slot) => sent.map_or(Did::Ended, |()| Did::Sent),
            }
        } else {
            alt! { biased;
                sent = tx.send_from(&mut slot) => sent.map_or(Did::Ended, |()| Did::Sent),
                got = rx.recv() => got.map_or(Did::Ended, Did::Received),
            }
        }
    });
    assert_eq!(slot.is_none(), did == Did::Sent, "{did:?}, slot {slot:?}");
    did
}

/// A choice posts an offer, which creates the queue | a lone receive checks or watches.
#[test]
fn send_branch_completes_with_lone_receive() {
    model(|| {
        let ((mut tx, mut rx), (_ty, mut ry)) = (channel(), channel());
        let receiver = spawn(move || block_on(rx.recv()));
        assert_eq!(send_or_receive(&mut tx, &mut ry, 7, false), Did::Sent);
        assert_eq!(receiver.join(), Ok(7));
    });
}

/// A lone send in the slot or in the queue, with a choice that watches or checks.
#[test]
fn receive_branch_completes_with_lone_send() {
    model(|| {
        let ((mut tx, mut rx), (mut ty, _ry)) = (channel(), channel());
        let sender = spawn(move || block_on(tx.send(7)).unwrap());
        assert_eq!(send_or_receive(&mut ty, &mut rx, 8, false), Did::Received(7));
        sender.join();
    });
}

/// A choice of receives only, which has no decision: of two lone sends it takes one.
#[test]
fn two_senders_one_receiving_choice() {
    model_within(2, || {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel(), channel());
        let sender = spawn(move || block_on(tx.send(1)).is_ok());
        let receiver = spawn(move || {
            block_on(async {
                alt! { biased; a = rx.recv() => a, b = ry.recv() => b }
            })
        });
        let other = block_on(ty.send(2)).is_ok();
        let (one, got) = (sender.join(), receiver.join().unwrap());
        assert_eq!((one, other), (got == 1, got == 2));
    });
}

/// Both parties send to and receive from each other, and see each other's offer at once. They must lock both
/// decisions in ascending order, or they deadlock; and both must decide, or a value is duplicated.
fn symmetric_pair(first: bool, second: bool) {
    let ((mut tx, mut rx), (mut ty, mut ry)) = (channel(), channel());
    let other = spawn(move || send_or_receive(&mut ty, &mut rx, 2, second));
    let one = send_or_receive(&mut tx, &mut ry, 1, first);
    match (one, other.join()) {
        (Did::Sent, Did::Received(1)) | (Did::Received(2), Did::Sent) => {}
        other => panic!("the two do not agree: {other:?}"),
    }
}

#[test]
fn symmetric_pair_sending_first() {
    model(|| symmetric_pair(false, false));
}

#[test]
fn symmetric_pair_receiving_first() {
    model(|| symmetric_pair(true, true));
}

#[test]
fn symmetric_pair_mixed() {
    model(|| symmetric_pair(true, false));
}

/// Offers 1 and 2 on two channels; returns the number that was taken. The other is still in its slot.
fn offer_both(tx: &mut Sender<u32>, ty: &mut Sender<u32>) -> u32 {
    let (mut a, mut b) = (Some(1), Some(2));
    let sent = block_on(async {
        alt! { biased;
            sent = tx.send_from(&mut a) => sent.map(|()| 1),
            sent = ty.send_from(&mut b) => sent.map(|()| 2),
        }
    });
    let sent = sent.expect("the channels are open");
    assert_eq!((a, b), if sent == 1 { (None, Some(2)) } else { (Some(1), None) }, "sent {sent}");
    sent
}

/// Two receivers compete for one choice with two offers: one gets a value, the other gets the end.
#[test]
fn two_receivers_compete_for_one_choice() {
    model_within(2, || {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel(), channel());
        let one = spawn(move || block_on(rx.recv()));
        let other = spawn(move || block_on(ry.recv()));
        let sent = offer_both(&mut tx, &mut ty);
        drop((tx, ty));
        let got = (one.join(), other.join());
        let closed = Err(RecvError::Closed);
        assert_eq!(got, if sent == 1 { (Ok(1), closed) } else { (closed, Ok(2)) });
    });
}

/// The receiver takes the second offer, and then finds the first one dead, while the owner polls. The owner
/// must return the second, though its first offer has also been removed.
#[test]
fn choice_distinguishes_dead_offer_from_taken_offer() {
    model(|| {
        let ((mut tx, mut rx), (mut ty, mut ry)) = (channel(), channel());
        let receiver = spawn(move || {
            let got = block_on(ry.recv());
            assert_eq!(try_once(rx.recv()), None, "the choice is decided");
            (got, rx)
        });
        let (mut a, mut b) = (Some(1), Some(2));
        let mut choice = Box::pin(async {
            alt! { biased;
                sent = tx.send_from(&mut a) => sent.map(|()| 1),
                sent = ty.send_from(&mut b) => sent.map(|()| 2),
            }
        });
        // The first poll may only offer.
        let first = poll_once(choice.as_mut());
        assert_eq!(first.unwrap_or_else(|| block_on(choice)), Ok(2));
        assert_eq!((a, b), (Some(1), None));
        assert_eq!(receiver.join().0, Ok(2));
    });
}

/// The same with one value for two channels.
#[test]
fn send_to_any_names_the_right_channel() {
    model(|| {
        let ((tx, mut rx), (ty, mut ry)) = (channel(), channel());
        let receiver = spawn(move || {
            let got = block_on(ry.recv());
            assert_eq!(try_once(rx.recv()), None, "the choice is decided");
            (got, rx)
        });
        let (mut slot, mut senders) = (Some(7), [tx, ty]);
        assert_eq!(block_on(dunlin_core::send_to_any(&mut slot, &mut senders)).ok(), Some(1));
        assert_eq!(slot, None);
        assert_eq!(receiver.join().0, Ok(7));
    });
}

/// A choice that is dropped | its offer is taken: the value is in one place.
#[test]
fn choice_dropped_races_take() {
    model(|| {
        let ((mut tx, mut rx), (_ty, mut ry)) = (channel(), channel::<u32>());
        let receiver = spawn(move || block_on(rx.recv()).ok());
        let mut slot = Some(7);
        let _ = try_once(async {
            alt! { biased; sent = tx.send_from(&mut slot) => drop(sent), got = ry.recv() => drop(got) }
        });
        drop(tx);
        let received = receiver.join();
        assert!(matches!((slot, received), (Some(7), None) | (None, Some(7))), "slot {slot:?}, received {received:?}");
    });
}

/// While a choice polls a foreign future its offers cannot be taken: a receiver that arrives then is turned
/// away, and woken when the choice is open again.
#[test]
fn receiver_turned_away_by_a_closed_choice_is_woken() {
    model(|| {
        let (mut tx, mut rx) = channel();
        let receiver = spawn(move || block_on(rx.recv()));
        let mut slot = Some(7);
        block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut slot) => sent.unwrap(),
                () = future(async { yield_once().await; pending().await }) => {}
            }
        });
        assert_eq!(receiver.join(), Ok(7));
    });
}

/// A foreign future becomes ready | the offer beside it is taken: exactly one of the two happens.
#[test]
fn foreign_races_take() {
    model(|| {
        let (mut tx, mut rx) = channel();
        let receiver = spawn(move || block_on(rx.recv()).ok());
        let mut slot = Some(7);
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut slot) => { sent.unwrap(); true }
                () = future(yield_once()) => false,
            }
        });
        drop(tx);
        assert_eq!((slot, receiver.join()), if sent { (None, Some(7)) } else { (Some(7), None) });
    });
}

/// A receiver with a choice of its own is also turned away; its other branch never happens.
#[test]
fn choice_turned_away_by_a_closed_choice_is_woken() {
    model(|| {
        let ((mut tx, mut rx), (mut ty, _ry)) = (channel(), channel());
        let receiver = spawn(move || send_or_receive(&mut ty, &mut rx, 8, false));
        let mut slot = Some(7);
        block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut slot) => sent.unwrap(),
                () = future(async { yield_once().await; pending().await }) => {}
            }
        });
        assert_eq!(receiver.join(), Did::Received(7));
    });
}

/// A deadline in a send branch is ready | a receiver watches: the branch times out only with its value
/// returned, even if a receiver has removed the dead offer.
#[test]
fn deadline_of_a_branch_races_take() {
    model(|| {
        let ((mut tx, mut rx), (_ty, mut ry)) = (channel(), channel::<u32>());
        let receiver = spawn(move || block_on(rx.recv()).ok());
        let mut slot = Some(7);
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut slot).until(yield_once()) => sent,
                got = ry.recv() => unreachable!("{got:?}"),
            }
        });
        drop(tx);
        let received = receiver.join();
        match sent {
            Ok(()) => assert_eq!((slot, received), (None, Some(7))),
            Err(SendError::NotTaken { why, .. }) => {
                assert_eq!((why, slot, received), (Why::TimedOut, Some(7), None));
            }
            Err(other) => panic!("{other:?}"),
        }
    });
}

/// Poison of one branch's channel | the other branch is taken: one of the two, and no value is lost.
#[test]
fn poison_races_a_committed_choice() {
    model_within(2, || {
        let ((mut tx, rx), (mut ty, mut ry)) = (channel(), channel());
        let receiver = spawn(move || block_on(ry.recv()).ok());
        let poisoner = spawn(move || rx.poison("on purpose"));
        let (mut a, mut b) = (Some(1), Some(2));
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut a) => { assert!(sent.is_err()); None }
                sent = ty.send_from(&mut b) => { sent.unwrap(); Some(2) }
            }
        });
        drop((tx, ty));
        poisoner.join();
        assert_eq!(receiver.join(), sent);
        assert_eq!((a, b), (Some(1), if sent.is_some() { None } else { Some(2) }));
    });
}

/// The receivers of both branches are dropped: the choice ends, with both values in their slots.
#[test]
fn receivers_dropped_end_the_choice() {
    model(|| {
        let ((mut tx, rx), (mut ty, ry)) = (channel(), channel());
        let receivers = spawn(move || drop((rx, ry)));
        let (mut a, mut b) = (Some(1), Some(2));
        let sent = block_on(async {
            alt! { biased; sent = tx.send_from(&mut a) => sent, sent = ty.send_from(&mut b) => sent }
        });
        assert!(sent.is_err());
        assert_eq!((a, b), (Some(1), Some(2)));
        receivers.join();
    });
}

/// `skip` | the offer is taken: a skip means that no offer was taken.
#[test]
fn skip_races_take() {
    model(|| {
        let (mut tx, mut rx) = channel();
        let receiver = spawn(move || block_on(rx.recv()).ok());
        let mut slot = Some(7);
        let sent = block_on(async {
            alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false }
        });
        drop(tx);
        assert_eq!((slot, receiver.join()), if sent { (None, Some(7)) } else { (Some(7), None) });
    });
}

/// An offer of a choice waits for room in a buffer | a receive makes room: the offer is admitted once.
#[test]
fn offer_admitted_to_a_buffer() {
    model(|| {
        let ((mut tx, mut rx), (_ty, mut ry)) = (channel_with(fifo(1)), channel());
        tx.try_send(1).unwrap();
        let receiver = spawn(move || {
            assert_eq!(block_on(rx.recv()), Ok(1));
            rx
        });
        assert_eq!(send_or_receive(&mut tx, &mut ry, 7, false), Did::Sent);
        assert_eq!(receiver.join().try_recv(), Ok(7));
    });
}

/// An offer that was passed over because its choice was busy is withdrawn: a send behind it has room then,
/// and must not wait for the next receive.
#[test]
fn a_send_behind_a_withdrawn_offer_is_admitted() {
    model(|| {
        let (tx, mut rx) = channel_with(fifo(2));
        let mut tx = tx.share();
        let mut other = tx.clone();
        tx.try_send(1).unwrap();
        tx.try_send(2).unwrap();
        let second = spawn(move || {
            // There is room for both waiting sends. If this one is not admitted, no receive follows.
            assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(1), Ok(2)));
            block_on(other.send(3)).unwrap();
            rx
        });
        let mut slot = Some(7);
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut slot) => { sent.unwrap(); true }
                () = future(yield_once()) => false,
            }
        });
        let rx = second.join();
        assert_eq!((rx.len(), slot), if sent { (2, None) } else { (1, Some(7)) });
    });
}

/// The same with a waiting receiver, while another one holds a place: the value that has room now must reach
/// it.
#[test]
fn a_value_behind_a_withdrawn_offer_finds_its_receiver() {
    model_within(2, || {
        let ((tx, rx), slot) = (channel_with(fifo(2)), &mut Some(7));
        let (mut tx, mut one) = (tx.share(), rx.share());
        let (mut also_tx, mut other) = (tx.clone(), one.clone());
        tx.try_send(1).unwrap();
        tx.try_send(2).unwrap();
        let held = try_once(one.recv_extended()).unwrap().unwrap();
        let receiver = spawn(move || (block_on(other.recv()), block_on(other.recv())));
        let sender = spawn(move || block_on(also_tx.send(3)).unwrap());
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(slot) => { sent.unwrap(); true }
                () = future(yield_once()) => false,
            }
        });
        let (first, second) = receiver.join();
        assert_eq!(first, Ok(2));
        assert!(second == Ok(3) || sent && second == Ok(7), "{second:?}");
        sender.join();
        assert_eq!(held.release(), 1);
    });
}

/// An extended receive takes a choice's offer: the choice is decided at once and ends with the release.
#[test]
fn extended_receive_of_a_choice() {
    model(|| {
        let ((mut tx, mut rx), (_ty, mut ry)) = (channel::<u32>(), channel());
        let receiver = spawn(move || block_on(rx.recv_extended()).map(|held| held.release()));
        assert_eq!(send_or_receive(&mut tx, &mut ry, 7, false), Did::Sent);
        assert_eq!(receiver.join(), Ok(7));
    });
}

/// A ring of three, in which each sends to the next and receives from the one before: two of them
/// communicate, the third gets the end.
#[test]
fn ring_of_three() {
    model_within(2, || {
        let ((mut ab, mut ba), (mut bc, mut cb), (mut ca, mut ac)) = (channel(), channel(), channel());
        let b = spawn(move || send_or_receive(&mut bc, &mut ba, 2, true));
        let c = spawn(move || send_or_receive(&mut ca, &mut cb, 3, true));
        let a = send_or_receive(&mut ab, &mut ac, 1, true);
        drop((ab, ac));
        let did = [a, b.join(), c.join()];
        let sent: Vec<_> = (0..3).filter(|i| did[*i] == Did::Sent).collect();
        assert_eq!(sent.len(), 1, "{did:?}");
        let from = sent[0];
        assert_eq!(did[(from + 1) % 3], Did::Received(from as u32 + 1), "{did:?}");
        assert_eq!(did[(from + 2) % 3], Did::Ended, "{did:?}");
    });
}

/// The owner of a pinned choice polls it with a new waker: only the last waker must be woken.
#[test]
fn the_last_waker_is_woken() {
    model(|| {
        let ((mut tx, mut rx), (_ty, mut ry)) = (channel(), channel::<u32>());
        let receiver = spawn(move || block_on(rx.recv()));
        let mut slot = Some(7);
        let mut choice = pin!(async {
            alt! { biased; sent = tx.send_from(&mut slot) => sent.unwrap(), got = ry.recv() => drop(got) }
        });
        if poll_once(choice.as_mut()).is_none() {
            block_on(poll_fn(|cx| match choice.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(()),
                Poll::Pending => Poll::Pending,
            }));
        }
        assert_eq!(receiver.join(), Ok(7));
    });
}

/// A send's turn, which no timer ends | the receiver that it woke is polled or dropped. The choice is woken.
#[test]
fn a_turn_ends_when_the_receiver_is_polled_or_gone() {
    for dropped in [true, false] {
        model(move || {
            // The timer accepts each turn and ends none.
            dunlin_core::__rt::set_turn_timer(|_| true);
            let (mut tx, mut rx) = channel();
            let receiver = spawn(move || {
                let mut receiving = pin!(rx.recv());
                let mut got = poll_once(receiving.as_mut());
                if got.is_none() && !dropped {
                    got = poll_once(receiving.as_mut());
                }
                got
            });
            let mut slot = Some(7);
            let sent = block_on(async {
                alt! { biased; sent = tx.send_from(&mut slot) => sent.is_ok(), skip => false }
            });
            let got = receiver.join();
            assert_eq!(sent, got == Some(Ok(7)));
            assert_eq!(sent, slot.is_none());
        });
    }
}
