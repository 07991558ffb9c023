//! Running a program: a tokio runtime with the defaults that dunlin programs want.

use std::future::Future;

fn build(workers: Option<usize>) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    let runtime = builder.thread_name("dunlin-worker").enable_all().build();
    runtime.unwrap_or_else(|error| panic!("the operating system gives no threads for a runtime: {error}"))
}

/// Runs `future` to its end on a new runtime with a worker for each core. When it returns, processes that still run are
/// cancelled.
///
/// # Panics
/// Inside a runtime: await the future there.
///
/// # Examples
/// ```
/// assert_eq!(dunlin::block_on(async { 6 * 7 }), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    main(None, future)
}

/// What `#[dunlin::main]` expands to.
#[doc(hidden)]
pub fn main<F: Future>(workers: Option<usize>, future: F) -> F::Output {
    crate::time::keep_ticking();
    build(workers).block_on(future)
}

/// Runs a future on this thread, which sleeps while it waits.
pub(crate) fn block_thread_on<F: Future>(future: F) -> F::Output {
    crate::time::keep_ticking();
    // Within a runtime its handle knows which threads may block, and panics with advice on the others.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        return runtime.block_on(future);
    }
    // Elsewhere a small one for each thread that asks: the wait may have a deadline, and that needs a timer.
    thread_local! {
        static TIMER: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap_or_else(|error| panic!("the operating system gives nothing to wait with: {error}"));
    }
    TIMER.with(|timer| timer.block_on(future))
}
