//! Processes on tokio's worker threads.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use dunlin_core::__rt::{Alone, ChoiceCx, panic_text};
use dunlin_core::Branch;
use dunlin_core::waits::{Doing, Identities, Pid, Watch};

use crate::scope::ScopeError;
use crate::world::{self, Canceller, NoOutput};

/// Starts a process: `future` runs on the worker threads of the current tokio runtime, from now on and
/// whether or not the handle is awaited.
///
/// # Panics
/// Outside a tokio runtime: call it from within [`#[dunlin::main]`](macro@crate::main),
/// [`block_on`](crate::block_on), or a runtime of your own.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let process = spawn(async { 6 * 7 });
/// assert_eq!(process.await.unwrap(), 42);
/// # });
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> Process<F::Output>
where
    F: IntoFuture<IntoFuture: Send + 'static, Output: Send + 'static>,
{
    start(None, future.into_future(), Location::caller())
}

/// Starts a process with a name, which the wait records and its exit show.
///
/// # Panics
/// As [`spawn`].
#[track_caller]
pub fn spawn_named<F>(name: &str, future: F) -> Process<F::Output>
where
    F: IntoFuture<IntoFuture: Send + 'static, Output: Send + 'static>,
{
    start(Some(name), future.into_future(), Location::caller())
}

#[track_caller]
pub(crate) fn start<F>(name: Option<&str>, future: F, made: &'static Location<'static>) -> Process<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    crate::time::keep_ticking();
    let identities = Identities::new(1, made);
    if let Some(name) = name {
        identities.set_name(name);
    }
    let who = Who { pid: identities.first(), name: name.map(Arc::from) };
    let task = world::spawn(Alone::new(identities, future));
    Process { task, who, made, watch: Watch::default(), not_started: None }
}

#[derive(Clone, PartialEq, Eq)]
struct Who {
    pid: Pid,
    name: Option<Arc<str>>,
}

/// A process that was started: await it for its exit.
///
/// Dropping the handle detaches the process, which runs on. Awaiting returns the process's result, or the
/// [`Exit`] with the reason why it returned nothing. It can be a branch of a choice, as `&mut process`.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing: the exit stays until it is taken.
///
/// # Waits
/// An awaiting process has a line in the [wait records](crate::waits): for which process, started where,
/// since when.
pub struct Process<T> {
    task: world::Task<T>,
    who: Who,
    made: &'static Location<'static>,
    watch: Watch,
    /// For a process of a scope: why its body never began, if it did not.
    not_started: Option<NotStarted>,
}

/// Set before a process that cannot begin is cancelled.
pub(crate) type NotStarted = Arc<OnceLock<ScopeError>>;

impl<T> Process<T> {
    /// Its identity: what the wait records call it.
    pub fn pid(&self) -> Pid {
        self.who.pid
    }

    /// Its name, if it was given one.
    pub fn name(&self) -> Option<&str> {
        self.who.name.as_deref()
    }

    /// Ends the process at its next await, dropping all it holds. Its exit is [`ExitReason::Cancelled`]
    /// unless it ends by itself before that. Calling it twice is harmless.
    pub fn cancel(&self) {
        self.task.abort();
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// What cancels the process without its handle.
    pub(crate) fn canceller(&self) -> Canceller {
        self.task.canceller()
    }

    pub(crate) fn unless_not_started(self, why: NotStarted) -> Self {
        Self { not_started: Some(why), ..self }
    }

    fn reason(&self, error: NoOutput) -> ExitReason {
        match (error, self.not_started.as_ref().and_then(|why| why.get())) {
            (NoOutput::Cancelled, Some(why)) => ExitReason::NotStarted(why.clone().into()),
            (error, _) => ExitReason::of(error),
        }
    }
}

impl<T> fmt::Debug for Process<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.who.pid).field("name", &self.who.name).finish()
    }
}

impl<T> Future for Process<T> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = self.task.poll(cx);
        let (on, made) = (self.who.pid, self.made);
        let ended = self.watch.note(ended, Doing::Exit, on, made);
        ended.map(|ended| {
            ended.map_err(|error| Exit { pid: on, name: self.who.name.clone(), reason: self.reason(error) })
        })
    }
}

impl<T> Branch for Process<T> {
    type Output = Result<T, Exit>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        choice.poll_foreign(self.is_finished(), || self.poll(cx))
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}

/// How a process ended otherwise than by returning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Exit {
    /// Which process.
    pub pid: Pid,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Why.
    pub reason: ExitReason,
}

/// Why a process ended without returning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitReason {
    /// It panicked, with this text.
    Panicked(String),
    /// It was cancelled, or its runtime was shut down.
    Cancelled,
    /// It was forked in a [scope](crate::Scope), and could not join an end there.
    NotStarted(Box<ScopeError>),
}

impl ExitReason {
    pub(crate) fn of(error: NoOutput) -> Self {
        match error {
            NoOutput::Panicked(panic) => Self::Panicked(panic_text(&*panic)),
            NoOutput::Cancelled => Self::Cancelled,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked(text) => write!(f, "panicked: {text}"),
            Self::Cancelled => f.write_str("was cancelled"),
            Self::NotStarted(why) => write!(f, "was not started: {why}"),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "process {name} ({}) {}", self.pid, self.reason),
            None => write!(f, "process {} {}", self.pid, self.reason),
        }
    }
}

impl std::error::Error for Exit {}
