//! Links between processes, and ends that are asked for: `exit`, `kill`.

use std::any::type_name;
use std::convert::Infallible;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

#[cfg(feature = "net")]
use dunlin_core::Portable;
use dunlin_core::waits;

use super::core::Core;
use super::exit::{ExitReason, Outcome};
#[cfg(feature = "net")]
use super::far;
use super::payload::Payload;
use super::pid::Pid;
use super::signal::Signal;
use super::spawn::{Process, Seen, Starting};

/// The code that called runs outside of every spawned process, so it has no links, no exit and no mailbox
/// that receives exits: `main`, a task of another runtime, a thread. [`spawn`](crate::spawn()) it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("links and exits belong to a spawned process, and this code runs outside of one: start it with `spawn`")]
pub struct OutsideProcess;

fn current() -> Result<Arc<Core>, OutsideProcess> {
    Core::current().ok_or(OutsideProcess)
}

/// Links two processes in one direction: the exit of `source` ends `target`, at its next await, with the same
/// reason.
///
/// A [normal](ExitReason::Normal) exit ends no other process. A process that [receives
/// exits](crate::Mailbox::exits) gets every exit of its links as a message instead. If `source` has ended
/// already, `target` gets the exit at once: [`ExitReason::NoSuchProcess`]. If `target` has, the link has no
/// effect. A second link in the same direction is the same link.
///
/// Either may be a process of another node. If the connection with the node of `source` is lost for good,
/// `target` gets [`ExitReason::NodeLost`]; if that node leaves, [`ExitReason::NodeLeft`]. If `target` is at
/// another node, its node makes the link, a little later, and the result is as that of [`kill`](Pid::kill):
/// `false` if the request cannot be sent. Otherwise it is `true`.
///
/// A link in both directions is two links. A process may be linked to itself, and links may form a ring; each
/// process ends once.
///
/// # Errors
/// [`OutsideProcess`] if the caller runs outside of every spawned process.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{ExitReason, link};
/// # dunlin::block_on(async {
/// let group = spawn(async {
///     let worker = spawn(async { sleep(Duration::from_secs(3600)).await });
///     let helper = spawn(async { sleep(Duration::from_secs(3600)).await });
///     link(worker.pid(), helper.pid())?;
///     worker.pid().kill();
///     Ok::<_, Error>(helper.await) // ended by the exit of `worker`
/// });
/// let exit = group.await??.unwrap_err();
/// assert_eq!(exit.reason, ExitReason::Killed);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
///
/// # Source
/// Directed links: Termite (Germain, Feeley and Monnier, 2006); those of Erlang go both ways.
pub fn link(source: Pid, target: Pid) -> Result<bool, OutsideProcess> {
    current()?;
    #[cfg(feature = "net")]
    if target.is_far() {
        return Ok(far::request::link(source, target));
    }
    if let Some(target) = Core::of(target) {
        target.link_from(source).wake();
    }
    Ok(true)
}

/// Ends the [link](link()) from `source` to `target`: from now on no exit of that link reaches `target`, not
/// even one that has arrived and has not been received. Without such a link it has no effect. If `target` is
/// at another node, that holds from when its node has the request, and the result is as that of
/// [`link`](link()).
///
/// # Errors
/// As of [`link`](link()).
pub fn unlink(source: Pid, target: Pid) -> Result<bool, OutsideProcess> {
    current()?;
    #[cfg(feature = "net")]
    if target.is_far() {
        return Ok(far::request::unlink(source, target));
    }
    if let Some(target) = Core::of(target) {
        drop(target.unlink_from(source));
    }
    Ok(true)
}

/// Starts a process that is linked with the calling one in both directions, from before its first step.
///
/// The [`Outcome`] of the process decides whether it has ended normally: `Err` has not.
///
/// # Errors
/// As of [`link`](link()); the process is not started.
///
/// # Panics
/// As [`spawn`](crate::spawn()).
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{ExitReason, spawn_linked};
/// # dunlin::block_on(async {
/// let parent = spawn(async {
///     spawn_linked(async { Err::<(), _>("no krill") })?;
///     sleep(Duration::from_secs(3600)).await;
///     Ok::<_, Error>(())
/// });
/// let exit = parent.await.unwrap_err();
/// assert_eq!(exit.reason, ExitReason::Error("no krill".into()));
/// # });
/// ```
#[track_caller]
pub fn spawn_linked<F>(future: F) -> Result<Process<F::Output>, OutsideProcess>
where
    F: IntoFuture<IntoFuture: Send + 'static, Output: Outcome + Send + 'static>,
{
    start_linked(None, future.into_future(), Location::caller())
}

/// [`spawn_linked`] with a name for the process, which the wait records and its exit show.
///
/// # Errors
/// As of [`spawn_linked`].
///
/// # Panics
/// As [`spawn`](crate::spawn()).
#[track_caller]
pub fn spawn_linked_named<F>(name: &str, future: F) -> Result<Process<F::Output>, OutsideProcess>
where
    F: IntoFuture<IntoFuture: Send + 'static, Output: Outcome + Send + 'static>,
{
    start_linked(Some(name), future.into_future(), Location::caller())
}

#[track_caller]
fn start_linked<F>(
    name: Option<&str>,
    future: F,
    made: &'static Location<'static>,
) -> Result<Process<F::Output>, OutsideProcess>
where
    F: Future<Output: Outcome + Send + 'static> + Send + 'static,
{
    let parent = current()?;
    let starting = Starting::new(name, made);
    if let Some(child) = Core::of(starting.pid()) {
        child.link_from(parent.pid()).wake();
        parent.link_from(child.pid()).wake();
    }
    Ok(starting.run::<F, Seen>(future))
}

impl Pid {
    /// Makes the exit of this process end `target`: see [`link`](link()).
    ///
    /// # Errors
    /// As of [`link`](link()).
    pub fn link(self, target: Self) -> Result<bool, OutsideProcess> {
        link(self, target)
    }

    /// Ends the link to `target`: see [`unlink`].
    ///
    /// # Errors
    /// As of [`link`](link()).
    pub fn unlink(self, target: Self) -> Result<bool, OutsideProcess> {
        unlink(self, target)
    }

    /// Ends the process at its next await, whatever it receives: its exit is [`ExitReason::Killed`]. Its
    /// links and monitors get that exit. `false`: it had ended.
    ///
    /// A process that never awaits is not ended.
    ///
    /// To a process of another node this sends a request. `true`: the connection has it; it is lost if the
    /// life of the connection ends before it has arrived. `false`: it cannot be sent, or has no room.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::ExitReason;
    /// # dunlin::block_on(async {
    /// let process = spawn(std::future::pending::<()>());
    /// assert!(process.pid().kill());
    /// let pid = process.pid();
    /// assert_eq!(process.await.unwrap_err().reason, ExitReason::Killed);
    /// assert!(!pid.kill());
    /// # });
    /// ```
    pub fn kill(self) -> bool {
        let by = Self::current().unwrap_or_else(|| Self::nowhere(waits::Pid::current()));
        #[cfg(feature = "net")]
        if self.is_far() {
            return far::request::kill(self, by);
        }
        let core = Core::of(self);
        core.iter().for_each(|core| core.send(Signal::Kill { by }));
        core.is_some()
    }

    /// Sends the process an exit of the calling process, as over a [link](link()): a reason that is not
    /// normal ends it at its next await, unless it [receives exits](crate::Mailbox::exits). `Ok(false)`: it
    /// had ended. For a process of another node, `Ok` is as the result of [`kill`](Self::kill).
    ///
    /// # Errors
    /// [`OutsideProcess`] if the caller runs outside of every spawned process.
    pub fn exit(self, reason: impl Into<ExitReason>) -> Result<bool, OutsideProcess> {
        let own = current()?;
        let exit = own.exit(reason.into());
        #[cfg(feature = "net")]
        if self.is_far() {
            return Ok(far::request::exit(self, exit));
        }
        let Some(core) = Core::of(self) else { return Ok(false) };
        core.send(Signal::Exit { exit, link: None });
        Ok(true)
    }
}

/// Ends the calling process, at this await, with this reason. A text is an [error](ExitReason::Error).
///
/// Inside a `par!` it ends the process around it, with all branches.
///
/// # Errors
/// When awaited: [`OutsideProcess`] if the caller runs outside of every spawned process. It returns nothing
/// else.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{ExitReason, exit};
/// # dunlin::block_on(async {
/// let process = spawn(async { exit("no krill").await });
/// assert_eq!(process.await.unwrap_err().reason, ExitReason::Error("no krill".into()));
/// # });
/// ```
pub fn exit(reason: impl Into<ExitReason>) -> Leaving {
    Leaving { reason: reason.into(), payload: None }
}

/// Ends the calling process, at this await, with an error that carries a value: see
/// [`Exit::payload`](crate::Exit::payload).
///
/// # Errors
/// As of [`exit`](exit()).
pub fn exit_with<P: Send + Sync + 'static>(payload: P) -> Leaving {
    exit(format!("exited with a value of type {}", type_name::<P>())).with(payload)
}

/// Ends the calling process, at this await, with an error that carries a value, also to other nodes: see
/// [`Exit::portable_payload`](crate::Exit::portable_payload).
///
/// The value is encoded at once. To another node it travels if it has, with the schema of its type, at most
/// 16 KiB, and no end of a channel in it; otherwise the exit arrives there without it, and says so.
///
/// # Errors
/// As of [`exit`](exit()).
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::{PayloadError, exit_with_portable};
/// # dunlin::block_on(async {
/// let process = spawn(async { exit_with_portable((7_u32, "krill".to_owned())).await });
/// let exit = process.await.unwrap_err();
/// assert_eq!(exit.portable_payload(), Ok((7_u32, "krill".to_owned())));
/// assert!(matches!(exit.portable_payload::<bool>(), Err(PayloadError::Mismatch(_))));
/// # });
/// ```
#[cfg(feature = "net")]
pub fn exit_with_portable<P: Portable>(payload: P) -> Leaving {
    exit(format!("exited with a value of type {}", type_name::<P>())).with_portable(&payload)
}

/// Ends the calling process: made by [`exit`](exit()) and [`exit_with`].
#[must_use = "the process ends when this is awaited"]
pub struct Leaving {
    reason: ExitReason,
    payload: Option<Payload>,
}

impl Leaving {
    /// The exit also carries this value: see [`Exit::payload`](crate::Exit::payload).
    pub fn with<P: Send + Sync + 'static>(self, payload: P) -> Self {
        Self { payload: Some(Payload::Value(Arc::new(payload))), ..self }
    }

    /// The exit also carries this value, also to other nodes: see
    /// [`Exit::portable_payload`](crate::Exit::portable_payload).
    #[cfg(feature = "net")]
    pub fn with_portable<P: Portable>(self, payload: &P) -> Self {
        Self { payload: Some(Payload::encoded(payload)), ..self }
    }
}

impl fmt::Debug for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaving").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl Future for Leaving {
    type Output = Result<Infallible, OutsideProcess>;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let core = match current() {
            Ok(core) => core,
            Err(error) => return Poll::Ready(Err(error)),
        };
        let exit = core.exit(self.reason.clone());
        let exit = match self.payload.take() {
            Some(payload) => exit.with_payload(payload),
            None => exit,
        };
        // This wakes the process, and the poll that follows ends it.
        core.send(Signal::Leave { exit });
        Poll::Pending
    }
}
