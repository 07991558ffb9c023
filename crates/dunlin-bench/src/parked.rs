//! Many receivers parked on one shared end, and one sender: the cost of a value, for any number of receivers.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Instant;

use dunlin::prelude::*;

use crate::dunlin_side::Dunlin;
use crate::library::{Library, Received};
use crate::peers::async_channel::AsyncChannel;
use crate::peers::flume::Flume;
use crate::programs::nanoseconds_each;

/// The number of values that are timed, and the number sent before them to warm up.
const VALUES: u64 = 50_000;
const WARM_UP: u64 = 1_000;

/// A library whose receivers can be shared.
pub(crate) trait Shares: Library {
    type Handle: Clone + Send + 'static;

    fn share(rx: Self::Rx) -> Self::Handle;

    fn recv_shared(rx: &mut Self::Handle) -> impl Future<Output: Received> + Send;
}

impl Shares for Dunlin {
    type Handle = Shared<Receiver<u64>>;

    fn share(rx: Self::Rx) -> Self::Handle {
        rx.share()
    }

    fn recv_shared(rx: &mut Self::Handle) -> impl Future<Output: Received> + Send {
        rx.recv()
    }
}

impl Shares for Flume {
    type Handle = Self::Rx;

    fn share(rx: Self::Rx) -> Self::Handle {
        rx
    }

    fn recv_shared(rx: &mut Self::Handle) -> impl Future<Output: Received> + Send {
        Self::recv(rx)
    }
}

impl Shares for AsyncChannel {
    type Handle = Self::Rx;

    fn share(rx: Self::Rx) -> Self::Handle {
        rx
    }

    fn recv_shared(rx: &mut Self::Handle) -> impl Future<Output: Received> + Send {
        Self::recv(rx)
    }
}

#[derive(Default)]
struct Counts {
    /// How many receivers have begun to wait.
    parked: AtomicU64,
    received: AtomicU64,
}

/// Receives until the channel ends.
async fn receiver<L: Shares>(mut rx: L::Handle, counts: Arc<Counts>) {
    counts.parked.fetch_add(1, Relaxed);
    while L::recv_shared(&mut rx).await.value().is_some() {
        counts.received.fetch_add(1, Relaxed);
    }
}

/// Sends when all receivers are parked. The figure is nanoseconds for each value.
async fn sender<L: Shares>(mut tx: L::Tx, counts: Arc<Counts>, n: u64) -> f64 {
    until(|| counts.parked.load(Relaxed) == n).await;
    for value in 0..WARM_UP {
        L::send(&mut tx, value).await.expect("the receivers outlive the sender");
    }
    let began = Instant::now();
    for value in 0..VALUES {
        L::send(&mut tx, value).await.expect("the receivers outlive the sender");
    }
    let time = began.elapsed();
    // A channel that loses or doubles a value must not appear fast.
    until(|| counts.received.load(Relaxed) >= WARM_UP + VALUES).await;
    assert_eq!(counts.received.load(Relaxed), WARM_UP + VALUES);
    nanoseconds_each(time, VALUES)
}

/// Yields to other tasks until a condition holds.
async fn until(mut is_so: impl FnMut() -> bool) {
    poll_fn(|cx| {
        if is_so() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// With `n` receivers, all spawned.
pub(crate) async fn spawned<L: Shares>(n: u64) -> anyhow::Result<f64> {
    let ((tx, rx), counts) = (L::channel(), Arc::<Counts>::default());
    let rx = L::share(rx);
    for _ in 0..n {
        drop(L::spawn(receiver::<L>(rx.clone(), counts.clone())));
    }
    drop(rx);
    Ok(sender::<L>(tx, counts, n).await)
}

/// With `n` receivers, all in one task.
pub(crate) async fn in_par(n: u64) -> anyhow::Result<f64> {
    let ((tx, rx), counts) = (channel(), Arc::<Counts>::default());
    let rx = rx.share();
    let receivers = (0..n).map(|_| receiver::<Dunlin>(rx.clone(), counts.clone())).collect::<Par<_>>();
    drop(rx);
    Ok(par!(receivers, sender::<Dunlin>(tx, counts, n)).1)
}
