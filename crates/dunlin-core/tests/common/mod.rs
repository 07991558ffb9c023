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

/// A future in hand, and the count of its wakes.
pub struct Hand<F> {
    pub future: Pin<Box<F>>,
    pub woken: Arc<Wakes>,
}

pub fn hand<F: Future>(future: F) -> Hand<F> {
    Hand { future: Box::pin(future), woken: Arc::default() }
}

/// A future in hand that returned `Pending` from its first poll.
pub fn waiting<F: Future>(future: F) -> Hand<F> {
    let mut hand = hand(future);
    assert!(hand.poll().is_none(), "it does not wait");
    hand
}

/// The output of the first poll.
pub fn now<F: Future>(future: F) -> F::Output {
    hand(future).poll().expect("it waits")
}

impl<F: Future> Hand<F> {
    pub fn poll(&mut self) -> Option<F::Output> {
        poll_woken(&mut self.future, &self.woken)
    }

    pub fn woken(&self) -> usize {
        self.woken.count()
    }

    /// Polls the future while it wakes itself.
    pub fn run(&mut self) -> Option<F::Output> {
        loop {
            let before = self.woken();
            let output = self.poll();
            if output.is_some() || self.woken() == before {
                return output;
            }
        }
    }
}
