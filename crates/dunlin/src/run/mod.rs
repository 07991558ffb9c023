//! Processes on queues of dunlin's own, driven by a few tasks of tokio's.

mod idle;
mod list;
mod pool;
mod process;
mod state;
mod sync;
mod worker;

use std::future::Future;

pub(crate) use pool::watch;
pub(crate) use process::Handle;

use pool::Pool;

/// Starts a process on the runtime that this is called in.
#[track_caller]
pub(crate) fn spawn<F>(future: F) -> Handle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let pool = worker::current().unwrap_or_else(|| Pool::of(tokio::runtime::Handle::current()));
    let (ready, handle) = process::make(pool, future);
    worker::schedule(ready);
    handle
}
