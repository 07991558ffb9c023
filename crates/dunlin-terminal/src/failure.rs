//! How a command that did not succeed ends.

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use dunlin::node::Node;

use crate::output::{Lost, complain, is_written};

/// How long leaving may take before the way to quit is printed.
const SOON: Duration = Duration::from_secs(1);

/// Why a command ends early. Its text names the next step.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line requests something that does not exist: exit code 2.
    #[error("{0}")]
    Line(String),
    /// Something failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C (or SIGTERM: 143, SIGHUP: 129), after an orderly leave: exit code 130. Nothing is printed.
    #[error("interrupted")]
    Interrupted(Signal),
    /// The command only had to print, and its output is lost. It prints nothing more.
    #[error("the output is lost")]
    Lost(Lost),
}

/// Which signal asked this process to end.
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
    /// The exit code of a process that the signal has ended.
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

/// Combines a command's result with that of its node's leave: an interrupt counts only after an orderly
/// leave.
///
/// # Errors
/// The command's error; otherwise the error of the leave.
pub fn after_leaving(ended: Result<(), Failure>, left: dunlin::Result) -> Result<(), Failure> {
    match ended {
        Ok(()) | Err(Failure::Interrupted(_)) => left.map_err(Failure::failed).and(ended),
        failed => failed,
    }
}

/// The exit code of a command with this result; errors are printed to stderr.
pub fn exit(result: Result<(), Failure>) -> ExitCode {
    match result {
        // The command completed its other work.
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

/// The number of files that a runtime and a node open in places where a failure would panic.
#[cfg(unix)]
const FILES: usize = 16;

/// Runs a command on its own runtime.
///
/// # Errors
/// The command's own; [`Failure::Failed`] if this process may not open the files that a runtime needs.
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

/// The next step, if this is the text of an error about the limit of open files.
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

/// Listens for requests to end this process, from its construction on.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    /// `None`: this process should outlive its terminal (`nohup`).
    #[cfg(unix)]
    hang_up: Option<tokio::signal::unix::Signal>,
    #[cfg(windows)]
    interrupt: tokio::signal::windows::CtrlC,
}

impl Signals {
    /// Registers for the signals. From now on they no longer kill this process.
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

    /// Runs `work` until this process is asked to end; then it drops `work`.
    ///
    /// # Errors
    /// The error of `work`, or [`Failure::Interrupted`].
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

    /// Makes a node leave. If this process is asked to end again, it exits at once.
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

/// Most nodes leave before this prints anything.
async fn says_how_to_end<T>() -> T {
    dunlin::sleep(SOON).await;
    // A separate thread, because a standard error that is not read would block the signals.
    std::thread::spawn(|| {
        complain("waiting for other nodes to finish; press Ctrl-C again to quit now");
    });
    std::future::pending().await
}

/// Whether this process was started to ignore SIGHUP, as by `nohup`, as far as the system shows.
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
