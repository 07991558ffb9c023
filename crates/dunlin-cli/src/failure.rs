//! How a command ends that did not succeed.

use std::future::Future;
use std::process::ExitCode;

use crate::output::unwritten;

/// Why a command ends early. Its text says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for what is not there: exit code 2.
    #[error("{0}")]
    Line(String),
    /// Something failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C (or SIGTERM: 143), after an orderly leave: exit code 130. Nothing is printed.
    #[error("interrupted")]
    Interrupted(Signal),
}

/// Who has asked this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

impl Signal {
    /// The exit code of a process that it has ended.
    pub fn code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

impl Failure {
    /// Something failed.
    pub fn failed(why: impl ToString) -> Self {
        Self::Failed(why.to_string())
    }

    fn code(&self) -> u8 {
        match self {
            Self::Line(_) => 2,
            Self::Failed(_) => 1,
            Self::Interrupted(signal) => signal.code(),
        }
    }
}

/// What a command that was a node has come to: an interrupt is only one after an orderly leave.
///
/// # Errors
/// Those of the command; else that it did not leave in order.
pub fn after_leaving(ended: Result<(), Failure>, left: dunlin::Result) -> Result<(), Failure> {
    match ended {
        Ok(()) | Err(Failure::Interrupted(_)) => left.map_err(Failure::failed).and(ended),
        failed => failed,
    }
}

/// The exit code of a command that ended so; errors go to stderr.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    let written = unwritten().map_or(Ok(()), |why| {
        Err(Failure::failed(format_args!("the output could not be written: {why}. Make room, or let it go elsewhere")))
    });
    match result.and(written) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Interrupted(_)) {
                eprintln!("error: {failure}");
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Hears when this process is asked to end, from when it is made on.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    /// Asking this process to end does not kill it from now on.
    ///
    /// # Errors
    /// [`Failure::Failed`], if the system tells nobody of signals.
    pub fn hear() -> Result<Self, Failure> {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let hear =
                |kind| signal(kind).map_err(|error| Failure::failed(format_args!("cannot hear of signals: {error}")));
            Ok(Self { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())? })
        }
        #[cfg(not(unix))]
        Ok(Self {})
    }

    /// Does this until this process is asked to end: then it is dropped.
    ///
    /// # Errors
    /// Its own, or [`Failure::Interrupted`].
    pub async fn or<T>(&mut self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        #[cfg(unix)]
        tokio::select! {
            done = work => done,
            _ = self.interrupt.recv() => Err(Failure::Interrupted(Signal::Interrupt)),
            _ = self.terminate.recv() => Err(Failure::Interrupted(Signal::Terminate)),
        }
        #[cfg(not(unix))]
        tokio::select! {
            done = work => done,
            _ = tokio::signal::ctrl_c() => Err(Failure::Interrupted(Signal::Interrupt)),
        }
    }
}
