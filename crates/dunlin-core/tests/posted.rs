//! Sends that are not awaited, and the sink.
#![cfg(not(any(loom, shuttle)))]

mod common;

use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use dunlin_core::waits::{self, Doing};
use dunlin_core::{
    Operation, Overflow, Posted, RecvError, SendError, Why, alt, channel, channel_with, doc, fifo, par, rendezvous,
};
use futures_sink::Sink;
use futures_util::{SinkExt, StreamExt, stream};

use common::{Wakes, poll};

fn closed<T>(value: T) -> Option<Result<(), SendError<T>>> {
    Some(Err(SendError::NotTaken { value, why: Why::Closed }))
}

#[test]
fn posted_values_are_received_in_order_before_later_sends() {
    let (mut tx, mut rx) = channel();
    let mut posts: Vec<_> = (0..3).map(|n| tx.send_nowait(n)).collect();
    let mut slot = Some(3);
    let mut send = tx.send_from(&mut slot);
    assert_eq!(poll(&mut send), None);
    for n in 0..3 {
        assert!(!posts[n as usize].is_done());
        assert_eq!(rx.try_recv(), Ok(n));
        assert!(posts[n as usize].is_done());
        assert_eq!(posts[n as usize].try_outcome(), Some(Ok(())));
        assert_eq!(posts[n as usize].try_outcome(), None, "reported once");
    }
    assert_eq!(rx.try_recv(), Ok(3));
    assert_eq!(poll(&mut send), Some(Ok(())));
}

#[test]
fn a_receiver_that_waits_is_woken_by_a_post() {
    let (mut tx, mut rx) = channel();
    let wakes = Arc::new(Wakes::default());
    let mut recv = rx.recv();
    assert!(Pin::new(&mut recv).poll(&mut Context::from_waker(&wakes.clone().into())).is_pending());
    let mut post = tx.send_nowait(7);
    assert_eq!(wakes.count(), 1);
    let awaits = Arc::new(Wakes::default());
    assert!(Pin::new(&mut post).poll(&mut Context::from_waker(&awaits.clone().into())).is_pending());
    assert_eq!(poll(&mut recv), Some(Ok(7)));
    assert_eq!(awaits.count(), 1);
    assert_eq!(poll(&mut post), Some(Ok(())));
}

#[test]
fn post_handle_returns_unsent_value() {
    let (mut tx, rx) = channel();
    let (mut before, mut looked_at) = (tx.send_nowait("krill"), tx.send_nowait("squid"));
    drop(rx);
    assert!(before.is_done());
    assert_eq!(poll(&mut before), closed("krill"));
    assert_eq!(looked_at.try_outcome(), closed("squid"));
    assert_eq!(tx.send_nowait("whale").try_outcome(), closed("whale"));

    let (mut tx, rx) = channel();
    let mut post = tx.send_nowait("krill");
    rx.poison("sick");
    let why = Why::Poisoned("sick".into());
    assert_eq!(post.try_outcome(), Some(Err(SendError::NotTaken { value: "krill", why })));

    let (mut tx, rx) = channel_with(fifo(1));
    let (mut kept, mut waits) = (tx.send_nowait(1), tx.send_nowait(2));
    assert_eq!(kept.try_outcome(), Some(Ok(())), "the buffer has admitted it");
    assert!(!waits.is_done());
    rx.retire();
    assert_eq!(waits.try_outcome(), closed(2));
}

#[test]
fn a_dropped_handle_leaves_the_value_offered() {
    let (mut tx, mut rx) = channel();
    tx.send_nowait(1).detach();
    drop(tx.send_nowait(2));
    let last = tx.send_nowait(3);
    drop(tx);
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(1), Ok(2)), "also when the sender is gone");
    drop(last);
    assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(3), Err(RecvError::Closed)));
}

#[test]
fn detached_value_is_dropped_when_the_channel_ends() {
    for way in 0..6 {
        let counted = Rc::new(());
        let (mut tx, rx) = channel();
        let (before, after) = (tx.send_nowait(counted.clone()), tx.send_nowait(counted.clone()));
        before.detach();
        let mut rx = Some(rx);
        match way {
            0 => drop(rx.take()),
            1 => rx.as_ref().unwrap().retire(),
            2 => tx.retire(),
            3 => rx.as_ref().unwrap().poison("now"),
            4 => tx.poison("now"),
            _ => {
                drop(rx.take());
                drop(tx.send_nowait(counted.clone()));
            }
        }
        assert_eq!(Rc::strong_count(&counted), 2, "the handle keeps its own ({way})");
        drop(after);
        assert_eq!(Rc::strong_count(&counted), 1, "{way}");
    }
}

#[test]
fn detached_value_can_expire() {
    let counted = Rc::new(());
    let (mut tx, _rx) = channel_with(rendezvous().pending_senders(2, Overflow::Fifo));
    tx.send_nowait(counted.clone()).detach();
    let mut second = tx.send_nowait(counted.clone());
    let mut third = tx.send_nowait(counted.clone());
    assert_eq!(Rc::strong_count(&counted), 3, "the first has expired");
    let _fourth = tx.send_nowait(counted.clone());
    assert!(matches!(second.try_outcome(), Some(Err(SendError::NotTaken { why: Why::Expired, .. }))));
    assert!(third.try_outcome().is_none());
    let (mut tx, _rx) = channel_with(rendezvous().pending_senders(1, Overflow::Reject));
    let _first = tx.send_nowait(1);
    let refused = Some(Err(SendError::NotTaken { value: 2, why: Why::Refused }));
    assert_eq!(tx.send_nowait(2).try_outcome(), refused);
}

#[test]
fn cancel_returns_the_value_unless_it_was_received() {
    doc::block_on(async {
        let (mut tx, mut rx) = channel();
        let (first, second, third) = (tx.send_nowait(1), tx.send_nowait(2), tx.send_nowait(3));
        assert_eq!(second.cancel().await, Ok(Some(2)));
        assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(1), Ok(3)));
        assert_eq!(first.cancel().await, Ok(None));
        drop(rx);
        assert_eq!(third.cancel().await, Ok(None));
        let late = tx.send_nowait(4);
        assert_eq!(late.cancel().await, Err(SendError::NotTaken { value: 4, why: Why::Closed }));
    });
}

#[test]
fn cancel_waits_for_an_extended_receive() {
    let (mut tx, mut rx) = channel();
    let post = tx.send_nowait(1);
    let held = poll(&mut rx.recv_extended()).unwrap().unwrap();
    let mut cancel = Box::pin(post.cancel());
    assert_eq!(poll(&mut cancel), None);
    drop(held);
    assert_eq!(poll(&mut cancel), Some(Ok(None)));
}

#[test]
fn timed_out_post_returns_its_value() {
    let (mut tx, mut rx) = channel();
    let mut late = tx.send_nowait("krill").until(ready(()));
    assert_eq!(poll(&mut late), Some(Err(SendError::NotTaken { value: "krill", why: Why::TimedOut })));
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock));
}

/// `settle` concerns values that an operation has left, and takes no posted value.
#[test]
fn settle_does_not_take_posted_values() {
    doc::block_on(async {
        let (mut tx, mut rx) = channel();
        let mut post = tx.send_nowait(1);
        tx.send_nowait(2).detach();
        let mut forgotten = tx.send(3);
        assert_eq!(poll(&mut forgotten), None);
        std::mem::forget(forgotten);
        let mut slot = None;
        tx.settle(&mut slot).await.unwrap();
        assert_eq!(slot, Some(3));
        assert_eq!((rx.try_recv(), rx.try_recv()), (Ok(1), Ok(2)));
        assert_eq!(post.try_outcome(), Some(Ok(())));
    });
}

#[test]
fn post_handle_is_a_branch_of_a_choice() {
    doc::block_on(async {
        let (mut tx, mut rx) = channel();
        let (mut other, mut quit) = channel::<u8>();
        let mut post = tx.send_nowait(1);
        for _ in 0..2 {
            let nothing = alt! { biased; r = &mut post => Some(r), _ = quit.recv() => None, skip => None };
            assert_eq!(nothing, None);
        }
        assert_eq!(rx.try_recv(), Ok(1));
        let done = alt! { biased; _ = quit.recv() => None, r = &mut post => Some(r) };
        assert_eq!(done, Some(Ok(())));

        // Beside another offer of the same choice, which also receives the value.
        let mut post = tx.send_nowait(2);
        let mut slot = Some(9);
        let got = alt! { biased; _ = &mut post => 0, v = rx.recv() => v.unwrap(), _ = other.send_from(&mut slot) => 9 };
        assert_eq!((got, slot), (2, Some(9)));
        assert_eq!(poll(&mut post), Some(Ok(())));
    });
}

#[test]
fn a_post_within_a_claim() {
    doc::block_on(async {
        let (tx, mut rx) = channel();
        let mut a = tx.share();
        let mut b = a.clone();
        let before = b.send_nowait("b before");
        let mut claim = a.claim().await.unwrap();
        let own = claim.send_nowait("a");
        let mut meanwhile = b.send_nowait("b meanwhile");
        assert_eq!((rx.try_recv(), rx.try_recv()), (Ok("b before"), Ok("a")));
        assert_eq!((before.await, own.await), (Ok(()), Ok(())));
        assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock), "held back");
        drop(claim);
        let mut claim = a.claim().await.unwrap();
        let mut late = claim.send_nowait("a again");
        assert_eq!((rx.try_recv(), rx.try_recv()), (Ok("b meanwhile"), Ok("a again")), "claims do not starve it");
        assert_eq!((meanwhile.try_outcome(), late.try_outcome()), (Some(Ok(())), Some(Ok(()))));
    });
}

#[test]
fn awaited_post_is_shown_as_a_wait() {
    let (mut tx, mut rx) = channel();
    let shown = |id| waits::snapshot().into_iter().filter(|w| w.channel == Some(id) && w.doing == Doing::Send).count();
    let id = tx.id();
    let (mut a, mut b) = (tx.send_nowait(1), tx.send_nowait(2));
    assert_eq!(shown(id), 0, "no operation waits");
    assert!(poll(&mut a).is_none() && poll(&mut b).is_none());
    assert_eq!(shown(id), 2);
    assert_eq!(rx.try_recv(), Ok(1));
    assert_eq!(poll(&mut a), Some(Ok(())));
    drop(b);
    assert_eq!(shown(id), 0);
}

#[test]
fn sink_is_flushed_when_all_values_are_received() {
    let (tx, mut rx) = channel();
    let mut sink = tx.into_sink();
    let mut cx = Context::from_waker(Waker::noop());
    let mut pinned = Pin::new(&mut sink);
    assert!(pinned.as_mut().poll_ready(&mut cx).is_ready());
    pinned.as_mut().start_send(1).unwrap();
    assert!(pinned.as_mut().poll_ready(&mut cx).is_pending(), "one at a time");
    assert!(pinned.as_mut().poll_flush(&mut cx).is_pending());
    assert_eq!(rx.try_recv(), Ok(1));
    assert!(pinned.as_mut().poll_flush(&mut cx).is_ready());
    pinned.as_mut().start_send(2).unwrap();
    assert!(pinned.as_mut().poll_close(&mut cx).is_pending(), "closed is flushed");
    assert_eq!(rx.try_recv(), Ok(2));
    assert_eq!(rx.try_recv(), Err(RecvError::WouldBlock), "not closed yet");
    assert!(pinned.as_mut().poll_close(&mut cx).is_ready());
    assert_eq!(rx.try_recv(), Err(RecvError::Closed));
    assert!(pinned.start_send(3).unwrap_err().is_closed());
}

#[test]
fn sink_returns_value_it_could_not_send() {
    doc::block_on(async {
        let (tx, rx) = channel();
        let mut sink = tx.into_sink();
        sink.feed("krill").await.unwrap();
        drop(rx);
        assert_eq!(sink.flush().await, Err(SendError::NotTaken { value: "krill", why: Why::Closed }));
        assert_eq!(sink.flush().await, Ok(()), "nothing is left in it");
        assert_eq!(sink.send("squid").await.unwrap_err().into_value(), "squid");
    });
}

#[test]
fn dropped_sink_withdraws_its_value() {
    let counted = Rc::new(());
    let (tx, mut rx) = channel();
    let mut sink = tx.into_sink();
    Pin::new(&mut sink).start_send(counted.clone()).unwrap();
    drop(sink);
    assert_eq!(Rc::strong_count(&counted), 1);
    assert!(rx.try_recv().unwrap_err().is_closed());
}

#[test]
#[should_panic(expected = "`poll_ready` first")]
fn start_send_panics_when_sink_is_not_ready() {
    let (tx, _rx) = channel();
    let mut sink = tx.into_sink();
    Pin::new(&mut sink).start_send(1).unwrap();
    let _ = Pin::new(&mut sink).start_send(2);
}

#[test]
fn sink_forwards_a_stream() {
    for policy in [rendezvous(), fifo(2)] {
        doc::block_on(async {
            let (tx, rx) = channel_with(policy);
            let (forwarded, got) =
                par!(stream::iter(0..10).map(Ok).forward(tx.into_sink()), rx.map(Result::unwrap).collect::<Vec<_>>(),);
            assert_eq!((forwarded, got), (Ok(()), (0..10).collect()));
        });
    }
}

fn assert_send<T: Send>(_: &T) {}

#[test]
fn a_post_can_move_to_another_thread() {
    let (mut tx, _rx) = channel::<u8>();
    let post: Posted<u8> = tx.send_nowait(1);
    assert_send(&post);
}
