//! Futures polled by hand.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub(crate) fn cx() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut cx())
}

#[track_caller]
pub(crate) fn ready<F: Future>(future: Pin<&mut F>) -> F::Output {
    let Poll::Ready(output) = poll(future) else { panic!("it waits") };
    output
}
