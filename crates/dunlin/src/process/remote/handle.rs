//! The handle of a process that was started at another node.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin_core::__rt::ChoiceCx;
use dunlin_core::Branch;
use dunlin_core::Receiver;

use super::super::exit::Exit;
use super::super::monitor::Monitor;
use super::super::pid::Pid;

/// A process that was started at another node: await it for its output.
///
/// Awaiting returns the output, or the [`Exit`] with the reason why there is none. For processes that are
/// linked to it, the process has ended as its [`Outcome`](crate::Outcome) says; an output that is an error is
/// returned here like any other. If the connection with its node is lost, the reason is
/// [`NodeLost`](crate::ExitReason::NodeLost), and the process may run on. Dropping the handle detaches the
/// process. It can be a branch of a choice, as `&mut process`.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing: the output stays until it is taken.
#[must_use = "the output is returned when this is awaited; dropped, it lets the process run on"]
pub struct RemoteProcess<R> {
    pid: Pid,
    outcome: Pin<Box<dyn Future<Output = Result<R, Exit>> + Send>>,
}

impl<R: Send + 'static> RemoteProcess<R> {
    pub(super) fn new(pid: Pid, down: Monitor, mut output: Receiver<R>) -> Self {
        let outcome = Box::pin(async move {
            let exit = down.await;
            // A process that returns has sent its output before its end. The channel ends with the process,
            // and with the node.
            output.recv().await.map_err(|_| exit)
        });
        Self { pid, outcome }
    }
}

impl<R> RemoteProcess<R> {
    /// Its identity, with which it can be [linked](crate::link()), [monitored](crate::monitor()) and
    /// [killed](crate::Pid::kill).
    pub fn pid(&self) -> Pid {
        self.pid
    }
}

impl<R> fmt::Debug for RemoteProcess<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteProcess").field(&self.pid).finish()
    }
}

impl<R> Future for RemoteProcess<R> {
    type Output = Result<R, Exit>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.outcome.as_mut().poll(cx)
    }
}

impl<R> Branch for RemoteProcess<R> {
    type Output = Result<R, Exit>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        choice.poll_foreign(false, || self.poll(cx))
    }
}
