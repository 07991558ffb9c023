//! A supervisor, before it runs and while it does.

use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_core::__rt::ChoiceCx;

use super::super::spawn::{Seen, Starting};
use super::control::Control;
use super::end::SupervisorError;
use super::order::Strategy;
use super::run::{Keep, Running};
use super::spec::{Body, Child};
use super::supervised::Supervised;
use crate::{Branch, Exit, Pid, Process, Result};

/// A supervisor that is not started yet: its strategy, its limit and its children.
///
/// Its process starts the children in order. When a child dies that is to be [started
/// again](super::Restart), it does so by its strategy, up to a limit of 3 restarts in any 5 seconds. At the
/// next death it stops all children, and ends with the cause: so a supervisor above it can decide.
///
/// It ends in order when it is [shut down](Control::shutdown), and when all children of its specification
/// have ended for good and no others are left. When its process is cancelled, so are its children.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
///
/// async fn crawl(urls: &mut Receiver<&'static str>) -> Result {
///     while let Some(url) = urls.next().await? {
///         assert_ne!(url, "about:krill", "cannot crawl {url}");
///     }
///     Ok(())
/// }
/// # dunlin::block_on(async {
/// let (mut tx, urls) = channel();
/// let crawling = Supervisor::one_for_one().child("crawler", urls, crawl);
/// let tree = crawling.limit(3, Duration::from_secs(10)).spawn();
/// tx.send("about:krill").await?; // the crawler panics
/// tx.send("about:auk").await?; // its successor takes this
/// assert_eq!(tree.tree().children[0].restarts, 1);
/// drop(tx);
/// tree.await??;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
///
/// # Source
/// Supervisors of Erlang/OTP.
pub struct Supervisor {
    name: Option<Box<str>>,
    keep: Keep,
}

impl Supervisor {
    /// A supervisor with this strategy, and no children.
    pub fn new(strategy: Strategy) -> Self {
        Self { name: None, keep: Keep::new(strategy) }
    }

    /// Only the child that died starts again.
    pub fn one_for_one() -> Self {
        Self::new(Strategy::OneForOne)
    }

    /// If a child dies, all others stop, and all start again.
    pub fn one_for_all() -> Self {
        Self::new(Strategy::OneForAll)
    }

    /// If a child dies, those that were started after it stop, and it and they start again.
    pub fn rest_for_one() -> Self {
        Self::new(Strategy::RestForOne)
    }

    /// Names its process.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Allows `restarts` restarts in any `period`, instead of 3 in 5 seconds. One more death ends the
    /// supervisor.
    pub fn limit(mut self, restarts: u32, period: Duration) -> Self {
        (self.keep.restarts, self.keep.period) = (restarts, period);
        self
    }

    /// Waits before a child starts again: for `first` after its first death, twice as long after each further
    /// one, `most` at most. A child that has lived for the period of the [limit](Self::limit) counts as new.
    /// By default children start again at once.
    pub fn back_off(mut self, first: Duration, most: Duration) -> Self {
        (self.keep.backoff.first, self.keep.backoff.most) = (first, most);
        self
    }

    /// Adds a child that runs `body` on `ends`: see [`Child::new`].
    pub fn child<E, B>(self, name: &str, ends: E, body: B) -> Self
    where
        E: Send + 'static,
        B: for<'a> Body<'a, E>,
    {
        self.with(Child::new(name, ends, body))
    }

    /// Adds a child.
    pub fn with(mut self, child: Child) -> Self {
        self.keep.specify(child);
        self
    }

    /// The way to the supervisor, also before it runs: children can be given it.
    pub fn control(&self) -> Control {
        self.keep.control.clone()
    }

    /// Starts the supervisor's process.
    ///
    /// # Panics
    /// As [`spawn`](crate::spawn()).
    #[track_caller]
    pub fn spawn(mut self) -> Supervision {
        let control = self.control();
        let name = self.name.take().unwrap_or_else(|| "supervisor".into());
        let starting = Starting::new(Some(&*name), Location::caller());
        // Its links and monitors see whether it ended in order.
        let process = starting.run::<_, Seen>(async move {
            // No supervisor requests the shutdown of this one: `_request` stays until it has ended.
            let (_request, supervised) = Supervised::alone();
            Ok(supervise(&mut self, supervised).await?)
        });
        Supervision { process, control }
    }
}

async fn supervise(supervisor: &mut Supervisor, supervised: Supervised) -> Result<(), SupervisorError> {
    Running::new(&mut supervisor.keep, supervised).run().await
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor").field("name", &self.name).field("control", &self.keep.control).finish()
    }
}

impl Child {
    /// A child that is a supervisor. It has started when all children of its specification have, and has no
    /// deadline, neither for its start nor to shut down: the deadlines of its own children bound both.
    ///
    /// If it starts again, so do the children of its specification that have not ended for good, but none of
    /// those that were added to it.
    pub fn supervisor(name: &str, supervisor: Supervisor) -> Self {
        let rows = supervisor.keep.control.rows().clone();
        let child = Self::supervised(name, supervisor, supervise).start_within(Duration::MAX);
        Self { rows: Some(rows), ..child.shutdown_without_deadline() }
    }
}

/// A running supervisor: await it for its end.
///
/// It derefs to the supervisor's [`Control`]. Dropping it detaches the supervisor, which runs on. It can be a
/// branch of a choice, as `&mut supervision`.
///
/// Awaiting returns how the supervisor ended:
/// [`Error::Supervisor`](crate::Error::Supervisor) if too many children died or some did not stop, or the
/// [`Exit`] of its process if that was cancelled.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing.
#[derive(Debug)]
pub struct Supervision {
    process: Process<Result>,
    control: Control,
}

impl Supervision {
    /// The supervisor's process.
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// Ends the supervisor's process at its next await, and cancels its children at theirs, all at once. See
    /// [`shutdown`](Control::shutdown) for an end in order.
    pub fn cancel(&self) {
        self.process.cancel();
    }
}

impl Deref for Supervision {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}

impl Future for Supervision {
    type Output = Result<Result, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.process).poll(cx)
    }
}

impl Branch for Supervision {
    type Output = Result<Result, Exit>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        Pin::new(&mut self.process).poll_branch(cx, choice)
    }

    fn unchosen(&self) {
        self.process.unchosen();
    }
}
