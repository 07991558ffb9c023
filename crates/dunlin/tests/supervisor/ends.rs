//! Ends that are lent to children.

use dunlin::prelude::*;
use dunlin::supervisor::{Child, Lent, Supervised, Supervisor};

use super::settle;

/// Waits for its order before it receives, and fails if there is none.
async fn take_later(ends: &mut (Receiver<bool>, Receiver<u32>, Sender<u32>)) -> Result {
    let (orders, values, out) = ends;
    if !orders.recv().await? {
        panic!("before it has received");
    }
    let value = values.recv().await?;
    Ok(out.send(value).await?)
}

#[tokio::test(start_paused = true)]
async fn a_send_pending_at_a_crash_is_taken_by_the_successor() {
    let ((mut orders, ordered), (mut tx, rx), (out, mut output)) = (channel(), channel(), channel());
    let tree = Supervisor::one_for_one().child("taker", (ordered, rx, out), take_later).spawn();
    let sender = spawn(async move { tx.send(7).await });
    settle().await;
    orders.send(false).await.unwrap();
    settle().await;
    assert_eq!(tree.tree().children[0].restarts, 1);
    assert!(!sender.is_finished());
    orders.send(true).await.unwrap();
    assert_eq!(output.recv().await, Ok(7));
    assert_eq!(sender.await, Ok(Ok(())));
    tree.await.unwrap().unwrap();
}

/// Sends nothing itself: its successor finds the sender as it was.
async fn send_two(ends: &mut (u32, Sender<u32>)) -> Result {
    ends.0 += 1;
    ends.1.send(ends.0).await?;
    if ends.0 < 3 { Err(Error::other("after a send")) } else { Ok(()) }
}

#[tokio::test(start_paused = true)]
async fn successors_send_on_the_lent_sender_in_order() {
    let (tx, mut rx) = channel();
    let tree = Supervisor::one_for_one().child("sender", (0, tx), send_two).spawn();
    for n in 1..=3 {
        assert_eq!(rx.recv().await, Ok(n));
    }
    tree.await.unwrap().unwrap();
    assert_eq!(rx.recv().await, Err(RecvError::Closed));
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_was_passed_on_keeps_the_ends_from_the_successor() {
    let (keep, mut kept) = channel::<Lent<Receiver<u8>>>();
    let keep = keep.share();
    let (mut tx, rx) = channel();
    let child = Child::lent("passer", rx, move |lent: Lent<Receiver<u8>>, _: Supervised| {
        let mut keep = keep.clone();
        async move { keep.send(lent).await.map_err(|_| "gone") }
    });
    let tree = Supervisor::one_for_one().with(child.permanent()).spawn();
    let mut lent = kept.recv().await.unwrap();
    let (sent, got) = par!(tx.send(1), lent.recv());
    assert_eq!((sent, got), (Ok(()), Ok(1)));
    settle().await;
    assert_eq!(tree.tree().children[0].restarts, 0);
    drop(lent);
    let mut lent = kept.recv().await.unwrap();
    assert_eq!(tree.tree().children[0].restarts, 1);
    let (sent, got) = par!(tx.send(2), lent.recv());
    assert_eq!((sent, got), (Ok(()), Ok(2)));
    tree.cancel();
    assert!(tree.await.is_err());
}
