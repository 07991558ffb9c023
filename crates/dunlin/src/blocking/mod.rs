//! Blocking calls: code that would hold up a process worker runs on threads of its own, and can be asked to
//! stop.
//!
//! [`blocking`](blocking()) starts a call and gives its handle, which is awaited or is a branch of a choice.
//! Each runtime of dunlin's own ([`block_on`](crate::block_on), `#[dunlin::main]`) has a pool of threads for
//! its calls, and all other runtimes of a program share one. A pool has three threads from its first call on,
//! keeps one free, grows up to 256, and shrinks when threads have been idle for 10 seconds. Up to 4,096 calls
//! wait for a thread. A further call is [refused](Refused), and the closure is given back; [`room`] waits for
//! a place first. [`limit`] sets other bounds, and [`calls`] lists the calls that have not ended.
//!
//! # How a call is stopped
//! Nothing can stop a thread from outside, so a call is *asked* to stop ([`Blocking::terminate`], or by
//! dropping the handle), and the outcome is known exactly:
//!
//! ```text
//!              begins           asks             looks            returns
//! queued ──────────────▶ running ─────▶ asked ─────────▶ heeded ──────────▶ Terminated(R)
//!    │ asked                │  │          │ returns, without having looked
//!    ▼                      │  │          └──────────────────────────────▶ JustFinished(R)
//! NeverStarted              │  └ returns, and is asked then ─────────────▶ AlreadyFinished(R)
//!                           └ says that it is finishing, and is asked then ▶ Finishing(handle)
//! ```
//!
//! In addition, a call may panic (`Panicked`), and a deadline of the termination may pass
//! (`Abandoned(handle)`).
//!
//! The means by which a call can notice the request, in the order in which to try them:
//!
//! | what the call does | means | where |
//! |---|---|---|
//! | computes, or does short calls in a loop | [`Stop::asked`] | everywhere |
//! | waits for a channel, in a choice | [`Stop::requested`] in [`wait`] | everywhere |
//! | waits for a socket, a pipe, a terminal | [`Stop::ready`] before each operation | Unix |
//! | blocks in a read, write or accept of a socket | [`Stop::shuts_down`] | Unix; accept: Linux |
//! | waits for a program | [`Stop::command`] | Linux |
//! | blocks in another system call | [`Stop::interrupting`] | Linux |
//! | runs foreign code, or cannot check | `blocking_process`: a process that is killed | Linux, with `net` |
//! | reads a file | none: the call is abandoned at the deadline | |
//!
//! [`Stop::on_cut`] cleans up after a call that was cut.
//!
//! # At the end of a runtime
//! Calls that wait for a thread are cancelled, running calls are asked to stop, and the runtime waits for
//! them for 5 seconds. Calls that run on are named on standard error and left running. This holds for the
//! runtimes of dunlin's own; the pool of the others lives as long as the program, and calls outlive their
//! runtime there.
//!
//! # Source
//! Blocking system calls of KRoC for Linux (Barnes, 2000).

mod atomic;
#[cfg(unix)]
mod bell;
mod call;
#[cfg(target_os = "linux")]
mod child;
#[cfg(unix)]
mod descriptor;
mod handle;
mod known;
mod limits;
mod phase;
pub(crate) mod pool;
#[cfg(all(target_os = "linux", feature = "net"))]
pub(crate) mod process;
pub mod profile;
mod refused;
mod room;
#[cfg(target_os = "linux")]
mod signal;
mod state;
mod stop;

use std::panic::Location;

#[cfg(all(target_os = "linux", feature = "io"))]
pub(crate) use bell::kill_group;
#[cfg(target_os = "linux")]
pub use child::{Child, ChildEnd};
#[cfg(unix)]
pub use descriptor::{Interest, Readiness, ShutDown};
pub use handle::{Blocking, Ended, Terminating};
pub use known::{CallState, KnownCall};
pub use limits::Limits;
pub use pool::calls;
#[cfg(all(target_os = "linux", feature = "net"))]
pub use process::{ProcessError, Remote, blocking_process};
pub use refused::{Body, Refused};
pub use room::{Reserved, Room, room};
#[cfg(target_os = "linux")]
pub use signal::set_interrupt_signal;
pub use stop::{Requested, Stop};

pub use crate::time::wait;

/// Runs `call`, which may block, on a thread where it holds up no process.
///
/// It starts at once, or when a thread of the pool is free, whether or not the handle is awaited. The handle
/// gives the call's result, can be a branch of a choice (`&mut handle`), and can
/// [`terminate`](Blocking::terminate) the call, if the call checks its [`Stop`]. Within the call, operations
/// on ends have their blocking form, [`Deadline::wait`](crate::Deadline::wait). If all threads are busy and
/// the queue is full, the handle gives [`Error::Refused`](crate::Error::Refused), with the call.
///
/// The [module](self) describes the pool, the outcomes, and how a call notices a stop request.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
///
/// async fn motto() -> Result<String> {
///     Ok(blocking(|_| std::fs::read_to_string("/etc/motto")).await??)
/// }
/// # dunlin::block_on(async {
/// assert!(matches!(motto().await, Err(Error::Io(_))));
/// # });
/// ```
///
/// A call that can be stopped:
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let mut count = blocking(|stop| (0..u64::MAX).take_while(|_| !stop.asked()).count());
/// alt! {
///     n = &mut count => panic!("{n:?}"),
///     () = sleep(Duration::from_millis(1)) => {}
/// }
/// match count.terminate().await {
///     Ended::Terminated(n) => println!("counted to {n}"),
///     Ended::NeverStarted => println!("no thread was free"),
///     ended => panic!("{ended:?}"),
/// }
/// # });
/// ```
#[track_caller]
pub fn blocking<R, F>(call: F) -> Blocking<R>
where
    F: FnOnce(&Stop) -> R + Send + 'static,
    R: Send + 'static,
{
    crate::world::needs_runtime("a blocking call was started");
    handle::start(Box::new(call), pool::Pool::current(), None, Location::caller())
}

/// Sets the bounds of the pool that runs this thread's calls: the runtime's, if it is one of dunlin's own,
/// else the program's. Threads beyond a lower bound end at once, or when their call has returned.
pub fn limit(limits: Limits) {
    pool::Pool::current().set_limits(limits);
}
