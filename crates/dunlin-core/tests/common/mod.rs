//! Shared by several test files: futures polled by hand, and a waker that counts.
#![allow(dead_code, unreachable_pub)] // every file that includes this uses some of it

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

/// Counts its wakes.
#[derive(Default)]
pub struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Wakes {
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }

    /// The number of wakes since the last call.
    pub fn take(&self) -> usize {
        self.0.swap(0, SeqCst)
    }
}

/// Polls once and ignores the wakes.
pub fn poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    dunlin_core::__rt::renew();
    output(Pin::new(future).poll(&mut Context::from_waker(Waker::noop())))
}

/// Polls once and counts the wakes in `wakes`.
pub fn poll_woken<F: Future + Unpin>(future: &mut F, wakes: &Arc<Wakes>) -> Option<F::Output> {
    dunlin_core::__rt::renew();
    output(Pin::new(future).poll(&mut Context::from_waker(&wakes.clone().into())))
}

fn output<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
