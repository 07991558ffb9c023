//! Processes on tokio's worker threads.

use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use dunlin_core::__rt::{Alone, ChoiceCx};
use dunlin_core::Branch;
use dunlin_core::waits::{Doing, Identities, Watch};

use super::core::Core;
use super::exit::{Exit, ExitReason, Outcome};
use super::pid::{NearPid, Pid as ProcessId};
use crate::quiet::quietly;
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

/// Starts a process whose output is not looked at.
#[track_caller]
pub(crate) fn start<F>(name: Option<&str>, future: F, made: &'static Location<'static>) -> Process<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    Starting::new(name, made).run::<F, Unseen>(future)
}

/// A process that has its identity, and does not run yet: so it can be linked before.
pub(super) struct Starting {
    life: Life,
    who: Who,
    made: &'static Location<'static>,
}

impl Starting {
    pub(super) fn new(name: Option<&str>, made: &'static Location<'static>) -> Self {
        crate::time::keep_ticking();
        let (identities, place) = Identities::spawned(made);
        let name: Option<Arc<str>> = name.map(Arc::from);
        if let Some(name) = &name {
            identities.set_name(name.clone());
        }
        let who = Who { pid: NearPid::of(place, identities.first()), name };
        Self { life: Life { identities }, who, made }
    }

    pub(super) fn pid(&self) -> ProcessId {
        self.who.pid.pid()
    }

    /// Starts it. `J` knows what its output means.
    #[track_caller]
    pub(super) fn run<F, J>(self, future: F) -> Process<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
        J: Judge<F::Output> + 'static,
    {
        let Self { life, who, made } = self;
        let running = Running { body: Some(Alone::new(future)), life, judge: PhantomData::<fn() -> J> };
        Process { task: world::spawn(running), who, made, watch: Watch::default(), not_started: None }
    }
}

/// Knows what the output of a process means for its end.
pub(super) trait Judge<T> {
    fn reason(output: &T) -> ExitReason;
}

/// Any output is a normal end.
pub(super) struct Unseen;

impl<T> Judge<T> for Unseen {
    fn reason(_: &T) -> ExitReason {
        ExitReason::Normal
    }
}

/// The output is an [`Outcome`].
pub(super) struct Seen;

impl<T: Outcome> Judge<T> for Seen {
    fn reason(output: &T) -> ExitReason {
        output.exit_reason()
    }
}

pin_project_lite::pin_project! {
    /// A process's task. The body is dropped by the process itself: when it has returned, when an exit ends
    /// it, or when its task is dropped. Then its end is reported to others.
    struct Running<F, J> {
        // (The state of an async block leaves room for the `None`: the `Option` takes no bytes.)
        #[pin]
        body: Option<Alone<F>>,
        life: Life,
        judge: PhantomData<fn() -> J>,
    }

    impl<F, J> PinnedDrop for Running<F, J> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if this.body.is_some() {
                let _entered = this.life.identities.enter();
                this.body.set(None);
            }
        }
    }
}

impl<F: Future, J: Judge<F::Output>> Future for Running<F, J> {
    type Output = Result<F::Output, Box<Exit>>;

    // Each poll of each process takes this path, so all but a `Pending` is elsewhere.
    #[inline(always)]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let _entered = this.life.identities.enter();
        if !this.life.identities.is_quiet()
            && let Some(exit) = this.life.look()
        {
            return Poll::Ready(Err(this.life.dies(this.body, exit)));
        }
        let Some(body) = this.body.as_mut().as_pin_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| body.poll(cx))) {
            Ok(Poll::Pending) => {
                // (Looked at again: a value kept over the poll of the body would cost each poll more.)
                if !this.life.identities.is_quiet() {
                    this.life.identities.waits(cx.waker());
                }
                Poll::Pending
            }
            Ok(Poll::Ready(output)) => {
                this.life.returns::<F, J>(this.body, &output);
                Poll::Ready(Ok(output))
            }
            Err(panic) => this.life.panics_in(this.body, panic),
        }
    }
}

/// The identity of a process while it lives. Dropping it reports the end, unless it has been reported.
struct Life {
    identities: Identities,
}

impl Life {
    /// Looks at the signals that have arrived. `Some`: the process must end.
    #[cold]
    fn look(&self) -> Option<Exit> {
        self.identities.look().and_then(Core::from_kept)?.must_end()
    }

    /// The body has returned.
    #[inline(never)]
    fn returns<F: Future, J: Judge<F::Output>>(&self, mut body: Pin<&mut Option<Alone<F>>>, output: &F::Output) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body.set(None))) {
            self.panics(panic);
        }
        // Most processes have no links and no monitors, so their output is not looked at.
        let Some(core) = self.identities.close().and_then(Core::from_kept) else { return };
        match catch_unwind(AssertUnwindSafe(|| J::reason(output))) {
            Ok(reason) => core.end_for(reason),
            Err(panic) => {
                core.end_for(ExitReason::panicked(&*panic));
                resume_unwind(panic)
            }
        }
    }

    /// An exit ends the process.
    #[cold]
    fn dies<F>(&self, mut body: Pin<&mut Option<Alone<F>>>, exit: Exit) -> Box<Exit> {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body.set(None))) {
            self.panics(panic);
        }
        if let Some(core) = self.identities.close().and_then(Core::from_kept) {
            core.end(exit.clone());
        }
        Box::new(exit)
    }

    /// The body has panicked.
    #[cold]
    fn panics_in<F>(&self, mut body: Pin<&mut Option<Alone<F>>>, panic: Box<dyn Any + Send>) -> ! {
        // (An async block has dropped what it held; another future may panic again.)
        quietly(|| body.set(None));
        self.panics(panic)
    }

    #[cold]
    fn panics(&self, panic: Box<dyn Any + Send>) -> ! {
        self.end(|| ExitReason::panicked(&*panic));
        resume_unwind(panic)
    }

    /// Closes the process for others, and reports its end to links and monitors.
    fn end(&self, reason: impl FnOnce() -> ExitReason) {
        if let Some(core) = self.identities.close().and_then(Core::from_kept) {
            core.end_for(reason());
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Unless it has ended before: its task is dropped.
        self.end(|| ExitReason::Cancelled);
    }
}

#[derive(Clone, PartialEq, Eq)]
struct Who {
    pid: NearPid,
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
    task: world::Task<Result<T, Box<Exit>>>,
    who: Who,
    made: &'static Location<'static>,
    watch: Watch,
    /// For a process of a scope: why its body never began, if it did not.
    not_started: Option<NotStarted>,
}

/// Set before a process that cannot begin is cancelled.
pub(crate) type NotStarted = Arc<OnceLock<ScopeError>>;

impl<T> Process<T> {
    /// Its identity, with which others reach it: it can be [linked](crate::link), [monitored](crate::monitor)
    /// and [killed](crate::Pid::kill).
    pub fn pid(&self) -> ProcessId {
        self.who.pid.pid()
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

    fn exit(&self, error: NoOutput) -> Exit {
        let reason = match (error, self.not_started.as_ref().and_then(|why| why.get())) {
            (NoOutput::Cancelled, Some(why)) => ExitReason::NotStarted(why.clone().into()),
            (error, _) => ExitReason::of(error),
        };
        Exit::new(self.pid(), self.who.name.clone(), reason)
    }
}

impl<T> fmt::Debug for Process<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("pid", &self.pid()).field("name", &self.who.name).finish()
    }
}

impl<T> Future for Process<T> {
    type Output = Result<T, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = self.task.poll(cx);
        let (on, made) = (self.who.pid.in_records(), self.made);
        let ended = self.watch.note(ended, Doing::Exit, on, made);
        ended.map(|ended| match ended {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(exit)) => Err(*exit),
            Err(error) => Err(self.exit(error)),
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
