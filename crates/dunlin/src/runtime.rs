//! Running a program: a tokio runtime with the defaults of dunlin programs.

use std::future::Future;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;

use dunlin_core::__rt::Alone;

use crate::blocking::pool::{Pool, calls_go_to};
use crate::blocking::profile;
#[cfg(feature = "net")]
use crate::node::{Nodes, works_for};

/// Without nodes there is nothing to leave.
#[cfg(not(feature = "net"))]
mod nodes {
    use std::sync::Arc;

    #[derive(Default)]
    pub(super) struct Nodes;

    impl Nodes {
        pub(super) fn are_none(&self) -> bool {
            true
        }

        pub(super) async fn leave(&self) {}
    }

    pub(super) fn works_for(_: Option<Arc<Nodes>>) -> Option<Arc<Nodes>> {
        None
    }
}
#[cfg(not(feature = "net"))]
use nodes::{Nodes, works_for};

fn build(workers: Option<usize>, nodes: &Arc<Nodes>, pool: &Arc<Pool>) -> io::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(workers) = workers {
        builder.worker_threads(workers);
    }
    has_room_for_files()?;
    let (nodes, pool) = (nodes.clone(), pool.clone());
    builder.on_thread_start(move || {
        drop(works_for(Some(nodes.clone())));
        drop(calls_go_to(Some(pool.clone())));
    });
    builder.thread_name("dunlin-worker").enable_all().build()
}

/// Whether as many files can be opened as a runtime needs: tokio panics if it cannot open those for signals.
#[cfg(unix)]
fn has_room_for_files() -> io::Result<()> {
    const PAIRS: usize = 4;
    (0..PAIRS).map(|_| std::os::unix::net::UnixStream::pair()).collect::<io::Result<Vec<_>>>().map(drop)
}

#[cfg(not(unix))]
fn has_room_for_files() -> io::Result<()> {
    Ok(())
}

/// The message of a program that gets no runtime.
const NO_RUNTIME: &str = "the operating system cannot create the threads or files of a runtime";

/// Runs `future` to its end on a new runtime with a worker for each core. When it returns, processes that
/// still run are cancelled.
///
/// Before that, each node in this runtime that has joined an application and has not left leaves, also if
/// `future` panics: first the other nodes acknowledge what its ends have sent. All nodes together may take 1
/// second; then a warning (of `tracing`, or on standard error if the program has no subscriber) counts the
/// unacknowledged values.
///
/// Then running [blocking calls](mod@crate::blocking) are asked to stop, and may take 5 seconds; calls that
/// run on are named on standard error.
///
/// While it runs, SIGQUIT prints what the program waits for, and dev builds warn of suspected deadlocks: see
/// [`waits`](crate::waits).
///
/// # Panics
/// Inside a runtime: await the future there. If the operating system gives no threads or files for a runtime.
///
/// # Examples
/// ```
/// assert_eq!(dunlin::block_on(async { 6 * 7 }), 42);
/// ```
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    block_on_workers(None, future)
}

/// What `#[dunlin::test]` expands to, and `#[dunlin::main]` on another function than `main`.
#[doc(hidden)]
#[track_caller]
pub fn block_on_workers<F: Future>(workers: Option<usize>, future: F) -> F::Output {
    match try_block_on(workers, future) {
        Ok(output) => output,
        Err(error) => panic!("{NO_RUNTIME}: {error}"),
    }
}

/// What `#[dunlin::main]` expands to: a program that gets no runtime prints the reason and exits.
#[doc(hidden)]
#[track_caller]
pub fn main<F: Future>(workers: Option<usize>, future: F) -> F::Output {
    match try_block_on(workers, future) {
        Ok(output) => output,
        Err(error) => {
            let _ = crate::report::failure(&format!("{NO_RUNTIME}: {error}"), None);
            std::process::exit(1);
        }
    }
}

#[track_caller]
fn try_block_on<F: Future>(workers: Option<usize>, future: F) -> io::Result<F::Output> {
    let mut output = None;
    run(workers, Box::pin(async { output = Some(future.await) }))?;
    Ok(output.expect("a future that has not panicked has ended"))
}

/// Waits for the threads of a closed pool, and names the calls that do not return.
fn name_those_that_run_on(pool: &Pool) {
    let calls = pool.wait_for_threads();
    if calls.is_empty() {
        return;
    }
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "dunlin: the runtime has ended, but blocking calls were asked to stop and still run:");
    for call in calls {
        let _ = writeln!(stderr, "  {call}");
    }
}

/// Independent of the program's types, so that it is compiled here and not in each program.
#[track_caller]
fn run(workers: Option<usize>, future: Pin<Box<dyn Future<Output = ()> + '_>>) -> io::Result<()> {
    /// While this thread runs `future` it works for that runtime; afterwards for the previous one again.
    struct Back(Option<Arc<Nodes>>, Option<Arc<Pool>>);
    impl Drop for Back {
        fn drop(&mut self) {
            works_for(self.0.take());
            calls_go_to(self.1.take());
        }
    }

    crate::time::keep_ticking();
    let _profile = profile::asked();
    let nodes = Arc::<Nodes>::default();
    let pool = Pool::new({
        let nodes = nodes.clone();
        move || drop(works_for(Some(nodes.clone())))
    });
    let runtime = build(workers, &nodes, &pool)?;
    // Inside of another runtime this panics, and names the caller's line: the closure below would hide that.
    runtime.handle().block_on(std::future::ready(()));
    let watched = crate::watchdog::watch(runtime.handle());
    let _back = Back(works_for(Some(nodes.clone())), calls_go_to(Some(pool.clone())));
    // When this returns, `future` is dropped, with the nodes and ends that it had.
    let outcome = catch_unwind(AssertUnwindSafe(|| runtime.block_on(Alone::outside(future))));
    drop(watched);
    if !nodes.are_none() {
        runtime.block_on(nodes.leave());
    }
    pool.close();
    // Processes first: calls may wait for their ends.
    drop(runtime);
    name_those_that_run_on(&pool);
    outcome.unwrap_or_else(|panic| resume_unwind(panic));
    Ok(())
}
