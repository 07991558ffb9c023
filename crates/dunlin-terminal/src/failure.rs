//! How a command ends that did not succeed.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use dunlin::node::Node;

use crate::output::{Lost, complain, is_written};

/// How long leaving may take before the way to quit is printed.
const SOON: Duration = Duration::from_secs(1);

/// Why a command ends early. Its text has the next step.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line asks for what is not there: exit code 2.
    #[error("{0}")]
    Line(String),
    /// Something failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C (or SIGTERM: 143, SIGHUP: 129), after an orderly leave: exit code 130. Nothing is printed.
    #[error("interrupted")]
    Interrupted(Signal),
    /// It was all about the output, which is lost. Nothing more is printed.
    #[error("the output is lost")]
    Lost(Lost),
}

/// What has asked this process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: its terminal is gone.
    HangUp,
}

impl Signal {
    /// The exit code of a process that it has ended.
    pub fn code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::HangUp => 129,
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
            Self::Lost(lost) => lost.code(),
        }
    }
}

impl From<Lost> for Failure {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// What a command that was a node has come to: an interrupt is only one after an orderly leave.
///
/// # Errors
/// Those of the command; otherwise that it did not leave in order.
pub fn after_leaving(ended: Result<(), Failure>, left: dunlin::Result) -> Result<(), Failure> {
    match ended {
        Ok(()) | Err(Failure::Interrupted(_)) => left.map_err(Failure::failed).and(ended),
        failed => failed,
    }
}

/// The exit code of a command that ended so; errors go to stderr.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        // It did the rest of what it was to do.
        Ok(()) if is_written() == Err(Lost::Unwritten) => ExitCode::from(Lost::Unwritten.code()),
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::Interrupted(_) | Failure::Lost(_)) {
                let text = failure.to_string();
                let next = limit_of_files(&text).unwrap_or_default();
                complain(format_args!("error: {text}{next}"));
            }
            ExitCode::from(failure.code())
        }
    }
}

/// The files that a runtime and a node open where they could only panic without them.
#[cfg(unix)]
const FILES: usize = 16;

/// Runs a command on a runtime of its own.
///
/// # Errors
/// Its own; and [`Failure::Failed`], if this process may not open the files that a runtime needs.
pub fn on_runtime(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    has_files()?;
    dunlin::block_on(command)
}

/// Whether this process may open the files that a runtime needs.
///
/// # Errors
/// [`Failure::Failed`].
pub fn has_files() -> Result<(), Failure> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        let input = std::io::stdin();
        let opened: Result<Vec<_>, _> = (0..FILES).map(|_| input.as_fd().try_clone_to_owned()).collect();
        opened.map_err(|error| Failure::failed(format_args!("this process cannot start: {error}")))?;
    }
    Ok(())
}

/// What to do next, if this is the text of an error for want of files.
#[cfg(unix)]
fn limit_of_files(text: &str) -> Option<String> {
    use rustix::io::Errno;
    use rustix::process::{Resource, getrlimit};
    if !text.contains(&std::io::Error::from(Errno::MFILE).to_string()) {
        return None;
    }
    let max = getrlimit(Resource::Nofile).current?;
    Some(format!(". This process may have {max} files and sockets open at once: raise the limit with `ulimit -n`"))
}

#[cfg(not(unix))]
fn limit_of_files(_: &str) -> Option<String> {
    None
}

/// Hears when this process is asked to end, from when it is made on.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// `None`: this process is to outlive its terminal (`nohup`).
    #[cfg(unix)]
    hang_up: Option<tokio::signal::unix::Signal>,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
}

impl Signals {
    /// Asking this process to end does not kill it from now on.
    ///
    /// # Errors
    /// [`Failure::Failed`], if the system reports no signals.
    pub fn hear() -> Result<Self, Failure> {
        let unheard = |error| Failure::failed(format_args!("cannot register for signals: {error}"));
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            let hear = |kind| signal(kind).map_err(unheard);
            let hang_up = if ignores_hang_up() { None } else { Some(hear(SignalKind::hangup())?) };
            Ok(Self { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())?, hang_up })
        }
        #[cfg(windows)]
        Ok(Self { interrupt: tokio::signal::windows::ctrl_c().map_err(unheard)? })
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
            _ = hung_up(&mut self.hang_up) => Err(Failure::Interrupted(Signal::HangUp)),
        }
        #[cfg(windows)]
        tokio::select! {
            done = work => done,
            _ = self.interrupt.recv() => Err(Failure::Interrupted(Signal::Interrupt)),
        }
    }

    /// Has a node leave. Asked to end once more, this process ends at once.
    ///
    /// # Errors
    /// As [`Node::leave`].
    pub async fn leaving(&mut self, node: Node) -> dunlin::Result {
        let left = async {
            tokio::select! {
                left = node.leave() => left,
                never = says_how_to_end() => never,
            }
        };
        match self.or(async { Ok(left.await) }).await {
            Ok(left) => left,
            Err(failure) => std::process::exit(failure.code().into()),
        }
    }
}

/// Most leave before it prints anything.
async fn says_how_to_end<T>() -> T {
    dunlin::sleep(SOON).await;
    // On a thread of its own: a standard error that nothing reads would hold up the signals.
    std::thread::spawn(|| {
        complain("waiting for other nodes to finish; press Ctrl-C again to quit now");
    });
    std::future::pending().await
}

/// Whether this process was started to ignore SIGHUP, as by `nohup`, as far as the system shows it.
#[cfg(unix)]
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is 1, the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(unix)]
async fn hung_up(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
