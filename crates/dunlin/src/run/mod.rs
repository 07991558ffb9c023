//! Processes on queues of dunlin's own, driven by a few tasks of tokio's.

mod idle;
mod list;
#[cfg(all(test, dunlin_loom))]
mod models;
mod pool;
mod process;
mod slot;
mod state;
mod sync;
#[cfg(all(test, not(dunlin_loom)))]
mod tests;
mod worker;

use std::future::Future;

pub(crate) use pool::watch;
pub(crate) use process::{Canceller, Handle};

/// Starts a process on the runtime that this is called in.
///
/// # Panics
/// Outside a runtime.
#[track_caller]
pub(crate) fn spawn<F>(future: F) -> Handle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let runtime = tokio::runtime::Handle::current();
    let mut handle = None;
    worker::start(runtime, |pool| {
        let (ready, its_handle) = process::make(pool, future);
        handle = Some(its_handle);
        ready
    });
    handle.expect("it is made before it is started")
}
