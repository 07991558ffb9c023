//! Processes that join their ends by themselves: what `#[process]` makes, and the code that runs it.

use std::any::Any;
use std::fmt;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use dunlin_core::__rt::{Tether, keep, panic_text, wake_all};
use dunlin_core::{CallError, ClaimError, Reason, RecvError, SendError, Why};

use super::Scope;
use super::error::{At, ScopeError};
use super::forks::Enrolled;
use super::names::Joining;
use super::place::Site;
use crate::lock::lock;
use crate::{Error, Process};

/// What can be [forked](Scope::fork) in a scope: it joins its ends there, and then runs.
///
/// A function with `#[process]` gives one, and so does [`wired`]. Any future is one that joins nothing.
#[must_use = "a process does not run until it is forked in a scope"]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be forked in a scope",
    note = "fork the result of a `#[process]` function, `wired(..)`, or a future that is `Send` and owns what it uses"
)]
pub trait Wired: Sized + Send + 'static {
    /// What the process returns.
    type Output: Send + 'static;
    #[doc(hidden)]
    type Body: Future<Output = Self::Output> + Send + 'static;

    /// Joins all ends.
    #[doc(hidden)]
    fn wire(self, scope: &Scope) -> Joining<Self::Body>;

    #[doc(hidden)]
    fn name(&self) -> Option<&'static str> {
        None
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Wired for F {
    type Output = F::Output;
    type Body = F;

    fn wire(self, _: &Scope) -> Joining<F> {
        Box::pin(ready(Ok(self)))
    }
}

/// A process wired by hand: `join` joins the ends it needs and gives the process's body.
///
/// `join` completes before the process, or one that was forked together with it, runs.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let scope = Scope::new();
/// scope.fork(wired(|scope| async move {
///     let mut out = scope.sender::<&str>("out").await?;
///     Ok(async move { out.send("krill").await })
/// }));
/// let mut out = scope.receiver::<&str>("out").await?;
/// assert_eq!(out.recv().await?, "krill");
/// scope.finish(Duration::from_secs(5)).await?;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub fn wired<J, F, B>(join: J) -> impl Wired<Output = B::Output>
where
    J: FnOnce(Scope) -> F + Send + 'static,
    F: Future<Output = Result<B, ScopeError>> + Send + 'static,
    B: Future<Output: Send + 'static> + Send + 'static,
{
    Wires { name: None, join }
}

/// As [`wired`]: what `#[process]` expands to.
#[doc(hidden)]
pub fn named<J, F, B>(name: &'static str, join: J) -> impl Wired<Output = B::Output>
where
    J: FnOnce(Scope) -> F + Send + 'static,
    F: Future<Output = Result<B, ScopeError>> + Send + 'static,
    B: Future<Output: Send + 'static> + Send + 'static,
{
    Wires { name: Some(name), join }
}

struct Wires<J> {
    name: Option<&'static str>,
    join: J,
}

impl<J, F, B> Wired for Wires<J>
where
    J: FnOnce(Scope) -> F + Send + 'static,
    F: Future<Output = Result<B, ScopeError>> + Send + 'static,
    B: Future<Output: Send + 'static> + Send + 'static,
{
    type Output = B::Output;
    type Body = B;

    fn wire(self, scope: &Scope) -> Joining<B> {
        Box::pin((self.join)(scope.clone()))
    }

    fn name(&self) -> Option<&'static str> {
        self.name
    }
}

/// Where siblings wait until all have joined their ends.
pub(super) struct Gate(Mutex<GateState>);

struct GateState {
    missing: usize,
    failed: Option<ScopeError>,
    waiting: Vec<Waker>,
}

impl Gate {
    pub(super) fn new(parties: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(GateState { missing: parties, failed: None, waiting: Vec::new() })))
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<(), ScopeError>> {
        let mut state = lock(&self.0);
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(error.clone()));
        }
        if state.missing == 0 {
            return Poll::Ready(Ok(()));
        }
        if !state.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.waiting.push(keep(cx.waker()));
        }
        Poll::Pending
    }
}

/// A sibling's ticket for the gate. If it is dropped before the sibling arrives, no sibling passes.
struct Ticket(Option<Arc<Gate>>);

impl Ticket {
    fn come(&mut self, joined: Result<(), ScopeError>) {
        let Some(gate) = self.0.take() else { return };
        let mut state = lock(&gate.0);
        state.missing -= 1;
        if let Err(error) = joined {
            state.failed.get_or_insert(error);
        }
        let open = state.missing == 0 || state.failed.is_some();
        let woken = if open { std::mem::take(&mut state.waiting) } else { Vec::new() };
        drop(state);
        wake_all(woken);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.come(Err(ScopeError::Sibling));
    }
}

/// A process that is about to start: it has joined, or begun to join, its ends.
pub(super) struct Prepared<W: Wired> {
    name: Option<String>,
    enrolled: Enrolled,
    stage: Stage<W::Body>,
    ticket: Ticket,
    gate: Arc<Gate>,
    site: Option<Arc<Site>>,
}

impl<W: Wired> Prepared<W> {
    pub(super) fn new(scope: &Scope, name: Option<&str>, wired: W, gate: &Arc<Gate>, at: At) -> Self {
        let name = name.or(wired.name()).map(str::to_owned);
        let mut ticket = Ticket(Some(gate.clone()));
        let mut refuse = |error: ScopeError| {
            ticket.come(Err(error.clone()));
            Stage::Refused { error: Some(error) }
        };
        let (enrolled, stage) = match scope.forks().enrol(name.clone(), at) {
            Err(error) => (scope.forks().refused(name.clone(), at, error.clone()), refuse(error)),
            Ok(enrolled) => {
                let mut wiring = wired.wire(scope);
                // Ends of this program are joined in this first poll: all of them before any process starts.
                let stage = match wiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(body)) => {
                        ticket.come(Ok(()));
                        Stage::Waiting { body: Some(body) }
                    }
                    Poll::Ready(Err(error)) => refuse(error),
                    Poll::Pending => Stage::Joining { wiring },
                };
                (enrolled, stage)
            }
        };
        Self { name, enrolled, stage, ticket, gate: gate.clone(), site: scope.site() }
    }

    #[track_caller]
    pub(super) fn start(self, at: At) -> Process<W::Output> {
        let Self { name, enrolled, stage, ticket, gate, site } = self;
        let fork = enrolled.fork().clone();
        let _entered = site.as_ref().map(|site| site.enter());
        let running = Running { stage, ticket, gate, enrolled, site: site.clone() };
        fork.is(crate::process::start(name.as_deref(), running, at))
    }
}

pin_project_lite::pin_project! {
    #[project = StageProjection]
    enum Stage<B> {
        Joining { wiring: Joining<B> },
        Waiting { body: Option<B> },
        Running { #[pin] body: B },
        Refused { error: Option<ScopeError> },
        Over,
    }
}

pin_project_lite::pin_project! {
    /// A process of a scope. Its fields are dropped in the order written here.
    struct Running<B> {
        #[pin]
        stage: Stage<B>,
        ticket: Ticket,
        gate: Arc<Gate>,
        // Its drop notifies the scope that the process has ended.
        enrolled: Enrolled,
        // Keeps the place open.
        site: Option<Arc<Site>>,
    }
}

impl<B: Future> Future for Running<B> {
    type Output = B::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<B::Output> {
        let mut this = self.project();
        loop {
            let next = match this.stage.as_mut().project() {
                StageProjection::Running { body } => {
                    let polled = catch_unwind(AssertUnwindSafe(|| body.poll(cx)));
                    return polled.unwrap_or_else(|panic| {
                        this.enrolled.panicked(&*panic);
                        resume_unwind(panic)
                    });
                }
                StageProjection::Joining { wiring } => match wiring.as_mut().poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(body)) => {
                        this.ticket.come(Ok(()));
                        Stage::Waiting { body: Some(body) }
                    }
                    Poll::Ready(Err(error)) => {
                        this.ticket.come(Err(error.clone()));
                        Stage::Refused { error: Some(error) }
                    }
                },
                StageProjection::Waiting { body } => match this.gate.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(())) => match body.take() {
                        Some(body) => Stage::Running { body },
                        None => Stage::Over,
                    },
                    Poll::Ready(Err(error)) => Stage::Refused { error: Some(error) },
                },
                StageProjection::Refused { error } => {
                    if let Some(error) = error.take() {
                        this.enrolled.give_up(error);
                    }
                    Stage::Over
                }
                // It has been cancelled, and has nothing left to be polled for.
                StageProjection::Over => return Poll::Pending,
            };
            this.stage.set(next);
        }
    }
}

/// What `#[process(propagate)]` makes of a body: its channels end as the body ends.
#[doc(hidden)]
pub async fn propagating<T: Propagates>(name: &str, tethers: Vec<Tether>, body: impl Future<Output = T>) -> T {
    let mut body = pin!(body);
    let poison = |reason: Reason| tethers.iter().for_each(|tether| tether.poison(&reason));
    let ended = std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| body.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            poison(panic_reason(name, &*panic));
            resume_unwind(panic)
        })
    })
    .await;
    match ended.ending(name) {
        Ending::InOrder => {}
        Ending::Retired => tethers.iter().for_each(Tether::retire),
        Ending::Poisoned(reason) => poison(reason),
    }
    ended
}

fn panic_reason(name: &str, panic: &(dyn Any + Send)) -> Reason {
    format!("{name} panicked: {}", panic_text(panic)).into()
}

/// How a process has ended, as its channels see it.
#[derive(Debug)]
pub enum Ending {
    /// Its ends are left.
    InOrder,
    /// Its channels are retired.
    Retired,
    /// Its channels are poisoned.
    Poisoned(Reason),
}

/// A return value with which a process can end its channels in the same way.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` does not show how a process ends",
    note = "`#[process(propagate)]` is for functions that return a `Result` whose error is dunlin's: `dunlin::Error`, or one of an operation"
)]
pub trait Propagates {
    #[doc(hidden)]
    fn ending(&self, name: &str) -> Ending;
}

impl<T, E: Cause> Propagates for Result<T, E> {
    fn ending(&self, name: &str) -> Ending {
        match self {
            Ok(_) => Ending::InOrder,
            Err(error) => error.cause().unwrap_or_else(|| Ending::Poisoned(format!("{name}: {error}").into())),
        }
    }
}

/// An error that may report that a channel had ended, and how.
#[diagnostic::on_unimplemented(
    message = "a `{Self}` does not show how a process ends",
    note = "`#[process(propagate)]` is for functions that return a `Result` whose error is dunlin's: `dunlin::Error`, or one of an operation"
)]
pub trait Cause: fmt::Display {
    #[doc(hidden)]
    fn cause(&self) -> Option<Ending>;
}

impl Cause for Why {
    fn cause(&self) -> Option<Ending> {
        match self {
            Self::Closed => Some(Ending::Retired),
            Self::Poisoned(reason) => Some(Ending::Poisoned(reason.clone())),
            _ => None,
        }
    }
}

impl Cause for RecvError {
    fn cause(&self) -> Option<Ending> {
        match self {
            Self::Closed => Some(Ending::Retired),
            Self::Poisoned(reason) => Some(Ending::Poisoned(reason.clone())),
            _ => None,
        }
    }
}

impl Cause for ClaimError {
    fn cause(&self) -> Option<Ending> {
        None
    }
}

impl<T> Cause for SendError<T> {
    fn cause(&self) -> Option<Ending> {
        self.why().and_then(Cause::cause)
    }
}

impl<Q> Cause for CallError<Q> {
    fn cause(&self) -> Option<Ending> {
        match self {
            Self::NotTaken { why, .. } => why.cause(),
            Self::NoReply(error) => error.cause(),
            Self::Unknown { .. } => None,
        }
    }
}

impl Cause for Error {
    fn cause(&self) -> Option<Ending> {
        match self {
            Self::NotTaken(why) => why.cause(),
            Self::Recv(error) | Self::NoReply(error) => error.cause(),
            _ => None,
        }
    }
}
