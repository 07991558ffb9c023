//! The specification of a child: what runs, and how it starts, restarts and stops.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lent::{Lent, Slot};
use super::notice::{AtEnd, Notice};
use super::supervised::Supervised;
use super::tree::Rows;
use crate::{ExitReason, Outcome, Process};

/// When a child starts again after its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restart {
    /// However it ended.
    Permanent,
    /// Unless its end was normal: it returned, and returned no error.
    #[default]
    Transient,
    /// Never.
    Temporary,
}

impl Restart {
    /// Whether a death with this exit is followed by a restart.
    pub(super) fn follows(self, normal: bool) -> bool {
        match self {
            Self::Permanent => true,
            Self::Transient => !normal,
            Self::Temporary => false,
        }
    }
}

/// How long a child has to end after the request to shut down, and after its cancellation.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(5);

/// The specification of a child of a [`Supervisor`](super::Supervisor).
///
/// Unless it says otherwise, a child is [transient](Restart::Transient), has started as soon as its process
/// has, and has 5 seconds to shut down.
///
/// # Source
/// Child specifications of Erlang/OTP's `supervisor`.
pub struct Child {
    pub(super) name: Arc<str>,
    pub(super) restart: Restart,
    /// `None`: it has started at once.
    pub(super) start_within: Option<Duration>,
    /// `None`: it has all the time it takes.
    pub(super) shutdown_within: Option<Duration>,
    /// Its process learns of a request to shut down.
    pub(super) is_asked: bool,
    /// `None` once it has ended for good, so that its ends are dropped.
    pub(super) body: Option<Box<dyn Start>>,
    /// If it is a supervisor: its children.
    pub(super) rows: Option<Rows>,
}

impl Child {
    /// A child that runs `body` on `ends`, which are lent to each of its processes in turn: an
    /// `async fn(&mut E)` that returns nothing or a `Result`.
    ///
    /// Its process does not see a request to shut down: it is cancelled at its next await. See
    /// [`supervised`](Self::supervised) for one that does.
    pub fn new<E, B>(name: &str, ends: E, body: B) -> Self
    where
        E: Send + 'static,
        B: for<'a> Body<'a, E>,
    {
        let body = Arc::new(body);
        let run = move |mut ends: Lent<E>, _| {
            let body = body.clone();
            async move { body.run(&mut ends).await.exit_reason() }
        };
        Self { is_asked: false, ..Self::of(name, ends, run) }
    }

    /// A child that also sees the requests of its supervisor: an `async fn(&mut E, Supervised)`.
    pub fn supervised<E, B>(name: &str, ends: E, body: B) -> Self
    where
        E: Send + 'static,
        B: for<'a> SupervisedBody<'a, E>,
    {
        let body = Arc::new(body);
        Self::of(name, ends, move |mut ends: Lent<E>, supervised| {
            let body = body.clone();
            async move { body.run(&mut ends, supervised).await.exit_reason() }
        })
    }

    /// A child that gets the [guard](Lent) of its ends. Unlike the others it can be a closure, and pass the
    /// guard on.
    pub fn lent<E, F>(name: &str, ends: E, body: impl Fn(Lent<E>, Supervised) -> F + Send + Sync + 'static) -> Self
    where
        E: Send + 'static,
        F: Future<Output: Outcome> + Send + 'static,
    {
        let body = Arc::new(body);
        Self::of(name, ends, move |ends, supervised| {
            let body = body.clone();
            async move { body(ends, supervised).await.exit_reason() }
        })
    }

    pub(super) fn of<E, F>(name: &str, ends: E, body: impl Fn(Lent<E>, Supervised) -> F + Send + 'static) -> Self
    where
        E: Send + 'static,
        F: Future<Output = ExitReason> + Send + 'static,
    {
        Self {
            name: name.into(),
            restart: Restart::default(),
            start_within: None,
            shutdown_within: Some(SHUTDOWN_WITHIN),
            is_asked: true,
            rows: None,
            body: Some(Box::new(Lending { slot: Slot::new(ends), body })),
        }
    }

    /// The child starts again however it ended.
    pub fn permanent(self) -> Self {
        Self { restart: Restart::Permanent, ..self }
    }

    /// The child starts again unless its end was normal. This is the default.
    pub fn transient(self) -> Self {
        Self { restart: Restart::Transient, ..self }
    }

    /// The child never starts again: also not when the death of a sibling has stopped it.
    pub fn temporary(self) -> Self {
        Self { restart: Restart::Temporary, ..self }
    }

    /// The child has started when it has said [`ready`](Supervised::ready), and fails if it has not within
    /// `deadline`: then it is cancelled, and counts as dead.
    pub fn start_within(self, deadline: Duration) -> Self {
        Self { start_within: Some(deadline), ..self }
    }

    /// How long the child has to end after a request to shut down, and once more after it was cancelled,
    /// instead of 5 seconds.
    pub fn shutdown_within(self, deadline: Duration) -> Self {
        Self { shutdown_within: Some(deadline), ..self }
    }

    /// The child has all the time it takes to shut down: it is never cancelled. This is the default of
    /// supervisors.
    pub fn shutdown_without_deadline(self) -> Self {
        Self { shutdown_within: None, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("name", &self.name).field("restart", &self.restart).finish_non_exhaustive()
    }
}

/// The body of a child: an `async fn(&mut E)` that returns nothing or a `Result`.
///
/// (A bound on `AsyncFn(&mut E)` cannot require that its future is `Send`.)
pub trait Body<'a, E: 'a>: Send + Sync + 'static {
    /// What the body returns.
    type Output: Outcome;
    /// Its future.
    type Run: Future<Output = Self::Output> + Send + 'a;

    /// Runs the body.
    fn run(&self, ends: &'a mut E) -> Self::Run;
}

impl<'a, E, F, R> Body<'a, E> for F
where
    E: 'a,
    F: Fn(&'a mut E) -> R + Send + Sync + 'static,
    R: Future<Output: Outcome> + Send + 'a,
{
    type Output = R::Output;
    type Run = R;

    fn run(&self, ends: &'a mut E) -> R {
        self(ends)
    }
}

/// The body of a child that sees the requests of its supervisor: an `async fn(&mut E, Supervised)`.
pub trait SupervisedBody<'a, E: 'a>: Send + Sync + 'static {
    /// What the body returns.
    type Output: Outcome;
    /// Its future.
    type Run: Future<Output = Self::Output> + Send + 'a;

    /// Runs the body.
    fn run(&self, ends: &'a mut E, supervised: Supervised) -> Self::Run;
}

impl<'a, E, F, R> SupervisedBody<'a, E> for F
where
    E: 'a,
    F: Fn(&'a mut E, Supervised) -> R + Send + Sync + 'static,
    R: Future<Output: Outcome> + Send + 'a,
{
    type Output = R::Output;
    type Run = R;

    fn run(&self, ends: &'a mut E, supervised: Supervised) -> R {
        self(ends, supervised)
    }
}

/// What one run of a child posts.
pub(super) struct Notices {
    pub(super) ended: Notice,
    /// If its ends are not back yet, so that it cannot start.
    pub(super) returned: Notice,
}

/// Starts the processes of a child.
pub(super) trait Start: Send {
    /// `None`: its ends are not back.
    fn start(&mut self, name: &str, supervised: Supervised, notices: Notices) -> Option<Process<()>>;
}

struct Lending<E, B> {
    slot: Slot<E>,
    /// It only makes the future: what can panic is within that.
    body: B,
}

impl<E, B, F> Start for Lending<E, B>
where
    E: Send + 'static,
    B: Fn(Lent<E>, Supervised) -> F + Send + 'static,
    F: Future<Output = ExitReason> + Send + 'static,
{
    fn start(&mut self, name: &str, supervised: Supervised, notices: Notices) -> Option<Process<()>> {
        let ends = self.slot.lend(notices.returned)?;
        let ended = AtEnd::new(notices.ended);
        let body = (self.body)(ends, supervised);
        Some(crate::spawn_named(name, async move {
            // Dropped last, when the ends are back.
            let _ended = ended;
            let reason = body.await;
            if reason != ExitReason::Normal {
                // So links and monitors learn of it.
                let _ = crate::exit(reason).await;
            }
        }))
    }
}
