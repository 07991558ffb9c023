//! Processes on one node: exits, links, monitors, mailboxes.

mod exits;
mod links;
mod mailboxes;
#[path = "../support/messages.rs"]
mod messages;
mod monitors;
mod panics;
mod selective;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use dunlin::prelude::*;
use dunlin::{ExitReason, Pid, waits};
pub(crate) use messages::Msg;

/// Runs a test in the process that it needs, with worker threads.
pub(crate) fn in_process<T: Send + 'static>(test: impl Future<Output = T> + Send + 'static) -> T {
    dunlin::block_on(async { spawn(test).await }).unwrap()
}

/// On one thread, and in virtual time: each process runs until it waits, in the order in which they were
/// woken.
pub(crate) fn in_order<T: Send + 'static>(test: impl Future<Output = T> + Send + 'static) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { spawn(test).await }).unwrap()
}

/// Waits until all others wait. Only in order.
pub(crate) async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

/// Waits until this process waits for something.
pub(crate) async fn until_it_waits(pid: Pid) {
    while !waits::snapshot().iter().any(|wait| pid == wait.who) {
        tokio::task::yield_now().await;
    }
}

/// A process that never ends by itself.
pub(crate) fn idle() -> Process<()> {
    spawn(std::future::pending())
}

/// Counts how often it is dropped, and remembers in which process.
#[derive(Clone, Default)]
pub(crate) struct Guard(Arc<(AtomicUsize, std::sync::Mutex<Option<Pid>>)>);

impl Guard {
    pub(crate) fn held(&self) -> Held {
        Held(self.clone())
    }

    pub(crate) fn drops(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }

    pub(crate) fn dropped_in(&self) -> Option<Pid> {
        *self.0.1.lock().unwrap()
    }
}

pub(crate) struct Held(Guard);

impl Drop for Held {
    fn drop(&mut self) {
        let Guard(shared) = &self.0;
        shared.0.fetch_add(1, Ordering::SeqCst);
        *shared.1.lock().unwrap() = Pid::current();
    }
}

/// Polls once, outside of every task.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

pub(crate) async fn reason_of<T>(process: Process<T>) -> ExitReason {
    match process.await {
        Ok(_) => ExitReason::Normal,
        Err(exit) => exit.reason,
    }
}
