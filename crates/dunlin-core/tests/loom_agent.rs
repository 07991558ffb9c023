//! Loom: a channel in two halves, with the agents that join them on a separate thread.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p dunlin-core --test loom_agent`
#![cfg(loom)]

mod loom_support;

use std::pin::pin;

use dunlin_core::agent::{Inlet, Outlet, join};
use dunlin_core::{
    PATIENCE_TICKS, Receiver, RecvError, SendError, Sender, alt, channel, channel_with, fifo, future, par, waits,
};
use loom_support::{Running, block_on, model, model_within, poll_once, spawn, try_once, yield_once};

/// Two halves, and the future that carries between them.
fn halves() -> (Sender<u32>, Receiver<u32>, impl Future<Output = ()> + Send) {
    let ((tx, far), (near, rx)) = (channel(), channel());
    (tx, rx, join(Outlet::new(far), Inlet::new(near)))
}

fn joined() -> (Sender<u32>, Receiver<u32>, Running<()>) {
    let (tx, rx, agents) = halves();
    (tx, rx, spawn(move || block_on(agents)))
}

/// Two halves of a FIFO of one, whose place is promised to the sender.
fn joined_fifo() -> (Sender<u32>, Receiver<u32>, Running<()>) {
    let ((tx, far), (near, rx)) = (channel(), channel_with(fifo(1)));
    let agents = join(Outlet::new(far), Inlet::new(near));
    (tx, rx, spawn(move || block_on(agents)))
}

/// A send on a credit | the receiver retires: the value is received before the end.
#[test]
fn a_credit_is_used_as_the_receiver_retires() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined_fifo();
        let sender = spawn(move || (tx.try_send(7).is_ok(), tx));
        rx.retire();
        let received = block_on(rx.recv());
        let (sent, tx) = sender.join();
        assert_eq!(received, if sent { Ok(7) } else { Err(RecvError::Closed) });
        drop((tx, rx));
        agents.join();
    });
}

/// A send waits for the place that a receive frees.
#[test]
fn waiting_send_gets_the_place_freed_by_a_receive() {
    model_within(1, || {
        let (mut tx, mut rx, agents) = joined_fifo();
        let sender = spawn(move || {
            block_on(tx.send(1)).unwrap();
            block_on(tx.send(2)).unwrap();
        });
        assert_eq!(
            block_on(async { (rx.recv().await, rx.recv().await, rx.recv().await) }),
            (Ok(1), Ok(2), Err(RecvError::Closed))
        );
        drop(rx);
        sender.join();
        agents.join();
    });
}

/// Offer, take and answer cross; then the end crosses, and the agents end with it.
#[test]
fn a_value_crosses_then_the_end() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
        let sender = spawn(move || block_on(tx.send(7)).unwrap());
        assert_eq!(block_on(rx.recv()), Ok(7));
        assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
        drop(rx);
        sender.join();
        agents.join();
    });
}

/// The receiver is dropped while an offer is in flight: its value is returned exactly if it was not taken.
#[test]
fn the_receiver_is_dropped() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
        let receiver = spawn(move || try_once(rx.recv()).and_then(Result::ok));
        let sent = block_on(tx.send(7));
        drop(tx);
        match (sent, receiver.join()) {
            (Ok(()), Some(7)) | (Err(SendError::NotTaken { value: 7, .. }), None) => {}
            other => panic!("a value lost or doubled: {other:?}"),
        }
        agents.join();
    });
}

/// A dropped send withdraws its value | the value is taken: after `settle` it is in one place.
#[test]
fn a_dropped_send_is_settled() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
        let receiver = spawn(move || block_on(rx.recv()).ok());
        let mut slot = Some(7);
        let _ = try_once(tx.send_from(&mut slot));
        block_on(tx.settle(&mut slot)).unwrap();
        drop(tx);
        let received = receiver.join();
        assert!(matches!((slot, received), (Some(7), None) | (None, Some(7))), "slot {slot:?}, received {received:?}");
        agents.join();
    });
}

/// A choice's offer crosses without its value; the receiver requests it, and the answer decides the choice.
#[test]
fn a_choice_is_reserved_and_decided() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
        let (_ty, mut ry) = channel::<u32>();
        let receiver = spawn(move || assert_eq!(block_on(rx.recv()), Ok(7)));
        let mut slot = Some(7);
        block_on(async {
            alt! { biased; sent = tx.send_from(&mut slot) => sent.unwrap(), got = ry.recv() => drop(got) }
        });
        assert_eq!(slot, None);
        drop(tx);
        receiver.join();
        agents.join();
    });
}

/// The request for a choice's value arrives while the choice polls a foreign future: it is answered after
/// that poll, and the reservation is revoked when the future needs its turn. The future then gets its turn,
/// however soon the receiver requests again: in no order do the two continue for ever.
#[test]
fn reservation_and_foreign_future_in_a_choice_do_not_livelock() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
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
        agents.join();
    });
}

/// The same with two receivers of one channel: one of them requests after the other's reservation was
/// revoked.
#[test]
fn two_receivers_race_a_foreign_branch() {
    model_within(2, || {
        let (mut tx, rx, agents) = joined();
        let mut rx = rx.share();
        let mut ry = rx.clone();
        let receivers = spawn(move || block_on(async { par!(rx.recv(), ry.recv()) }));
        let mut slot = Some(7);
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut slot) => { sent.unwrap(); true }
                () = future(yield_once()) => false,
            }
        });
        drop(tx);
        let received = match receivers.join() {
            (Ok(value), Err(RecvError::Closed)) | (Err(RecvError::Closed), Ok(value)) => Some(value),
            (Err(RecvError::Closed), Err(RecvError::Closed)) => None,
            other => panic!("{other:?}"),
        };
        assert_eq!((slot, received), if sent { (None, Some(7)) } else { (Some(7), None) });
        agents.join();
    });
}

/// The same with two receivers of two channels, whose agents reserve the one choice in turn.
#[test]
fn two_agents_race_a_foreign_branch() {
    model_within(1, || {
        let ((mut tx, mut rx, one), (mut ty, mut ry, other)) = (halves(), halves());
        let agents = spawn(move || block_on(async { par!(one, other) }));
        let receivers = spawn(move || block_on(async { par!(rx.recv(), ry.recv()) }));
        let (mut a, mut b) = (Some(1), Some(2));
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut a) => { sent.unwrap(); 1 }
                sent = ty.send_from(&mut b) => { sent.unwrap(); 2 }
                () = future(yield_once()) => 0,
            }
        });
        drop((tx, ty));
        let (x, y) = receivers.join();
        assert_eq!(
            (a.is_none(), b.is_none(), x.ok(), y.ok()),
            match sent {
                1 => (true, false, Some(1), None),
                2 => (false, true, None, Some(2)),
                _ => (false, false, None, None),
            }
        );
        agents.join();
    });
}

/// The requester gives up while the answer is in flight: the choice is open again, and its other branch can
/// happen.
#[test]
fn a_reservation_is_aborted() {
    model_within(1, || {
        let (mut tx, mut rx, agents) = joined();
        let (mut ty, mut ry) = channel();
        let receiver = spawn(move || {
            let got = try_once(rx.recv()).and_then(Result::ok);
            let other = if got.is_none() { block_on(ry.recv()).ok() } else { None };
            (got, other, rx, ry)
        });
        let (mut a, mut b) = (Some(1), Some(2));
        let sent = block_on(async {
            alt! { biased;
                sent = tx.send_from(&mut a) => { sent.unwrap(); 1 }
                sent = ty.send_from(&mut b) => { sent.unwrap(); 2 }
            }
        });
        drop((tx, ty));
        let (got, other, ..) = receiver.join();
        assert_eq!(
            (got, other, a, b),
            if sent == 1 { (Some(1), None, None, Some(2)) } else { (None, Some(2), Some(1), None) }
        );
        agents.join();
    });
}

/// Both parties choose, over halves in both directions: both wait for the other's answer, and the lower one
/// gives way.
#[test]
fn symmetric_pair() {
    model_within(1, || {
        let ((mut tx, mut rx, one), (mut ty, mut ry, other)) = (halves(), halves());
        let agents = spawn(move || block_on(async { par!(one, other) }));
        let party = |tx: &mut Sender<u32>, rx: &mut Receiver<u32>, value| {
            let mut slot = Some(value);
            let got = block_on(async {
                alt! { biased;
                    sent = tx.send_from(&mut slot) => { sent.unwrap(); None }
                    got = rx.recv() => Some(got.unwrap()),
                }
            });
            assert_eq!(slot.is_none(), got.is_none());
            got
        };
        let second = spawn(move || (party(&mut ty, &mut rx, 2), ty, rx));
        let first = party(&mut tx, &mut ry, 1);
        let (second, ty, rx) = second.join();
        assert!(matches!((first, second), (None, Some(1)) | (Some(2), None)), "{first:?} {second:?}");
        drop((tx, rx, ty, ry));
        agents.join();
    });
}

/// Poison from either side | an offer in flight: a value that was taken was sent; any other is returned.
#[test]
fn poison_crosses() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
        let receiver = spawn(move || {
            let received = try_once(rx.recv()).and_then(Result::ok);
            rx.poison("on purpose");
            received
        });
        let sent = block_on(tx.send(7));
        drop(tx);
        match (sent, receiver.join()) {
            (Ok(()), Some(7)) | (Err(SendError::NotTaken { value: 7, .. }), None) => {}
            other => panic!("a value lost or doubled: {other:?}"),
        }
        agents.join();
    });
}

/// An extended receive over agents: the send completes after the release.
#[test]
fn an_extended_receive_crosses() {
    model(|| {
        let (mut tx, mut rx, agents) = joined();
        let mut slot = Some(7);
        let sender = spawn(move || {
            block_on(tx.send_from(&mut slot)).unwrap();
            slot
        });
        assert_eq!(block_on(rx.recv_extended()).unwrap().release(), 7);
        drop(rx);
        assert_eq!(sender.join(), None);
        agents.join();
    });
}

/// Two handles of a shared sender, one of them in a choice, share one agent: the receiver takes both values.
#[test]
fn two_handles_over_one_agent() {
    model_within(1, || {
        let (tx, mut rx, agents) = joined();
        let mut one = tx.share();
        let mut other = one.clone();
        let receiver = spawn(move || {
            let got = [block_on(rx.recv()).unwrap(), block_on(rx.recv()).unwrap()];
            assert_eq!(block_on(rx.recv()), Err(RecvError::Closed));
            got
        });
        let (_ty, mut ry) = channel::<u32>();
        let mut slot = Some(2);
        let (sent, ()) = block_on(async {
            par!(one.send(1), async {
                alt! { biased; sent = other.send_from(&mut slot) => sent.unwrap(), got = ry.recv() => drop(got) }
            })
        });
        assert_eq!((sent, slot), (Ok(()), None));
        drop((one, other));
        let got = receiver.join();
        assert!(got == [1, 2] || got == [2, 1], "{got:?}");
        agents.join();
    });
}

/// A claim is granted while the other handle's offer is in flight: the offer is taken before the claim's
/// values, or revoked and offered again after them; it never comes between.
#[test]
fn claim_does_not_interleave_with_an_offer_in_flight() {
    model_within(2, || {
        let (tx, mut rx, agents) = joined();
        let receiver = spawn(move || [(); 3].map(|()| block_on(rx.recv()).unwrap()));
        let mut one = tx.share();
        let mut other = one.clone();
        let mut sending = pin!(one.send(1));
        assert_eq!(poll_once(sending.as_mut()), None);
        block_on(async {
            let mut claim = other.claim().await.unwrap();
            claim.send(2).await.unwrap();
            claim.send(3).await.unwrap();
            drop(claim);
            // The claim may end before the revocation is answered.
            drop(other.claim().await.unwrap());
        });
        assert_eq!(block_on(sending), Ok(()));
        drop(other);
        let got = receiver.join();
        assert!(got == [1, 2, 3] || got == [2, 3, 1], "{got:?}");
        agents.join();
    });
}

/// The choice's patience with a receiver runs out | its grant arrives, or is in flight: the value is
/// returned, granted again, and received once.
#[test]
fn patience_runs_out_over_a_grant() {
    model_within(2, || {
        let (mut tx, mut rx, agents) = joined();
        let receiver = spawn(move || {
            let mut receiving = pin!(rx.recv());
            poll_once(receiving.as_mut()).unwrap_or_else(|| {
                waits::advance(waits::tick().wrapping_add(PATIENCE_TICKS));
                block_on(receiving)
            })
        });
        let (_ty, mut ry) = channel::<u32>();
        let mut slot = Some(7);
        block_on(async {
            alt! { biased; sent = tx.send_from(&mut slot) => sent.unwrap(), got = ry.recv() => drop(got) }
        });
        drop(tx);
        assert_eq!((slot, receiver.join()), (None, Ok(7)));
        agents.join();
    });
}
