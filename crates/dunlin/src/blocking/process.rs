//! A function in a process of the operating system, which can always be ended: it is killed. Linux only.
//!
//! The process runs the program's own executable again. A variable names its function, and its standard input
//! is a socket; `#[dunlin::main(remote = [..])]` checks both before anything else, and finds the function in
//! its list. The arguments go through the socket and the output comes back. The process kills its group when
//! the socket closes: so it ends with the program that started it, however that ends.

use std::any::Any;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use rustix::fs::FileType;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::child::ChildEnd;
use super::descriptor::{Interest, Readiness};
use super::handle::{Blocking, start};
use super::pool::Pool;
use super::stop::Stop;

/// The number of the parent process, a colon, and the name of a function.
const VARIABLE: &str = "DUNLIN_REMOTE";

/// A call of a `#[dunlin::remote]` function: a value; nothing has run yet.
#[must_use = "a remote call does not run until it is passed to `blocking_process`"]
pub struct Remote<R> {
    name: &'static str,
    arguments: Result<Vec<u8>, String>,
    output: PhantomData<fn() -> R>,
}

impl<R> fmt::Debug for Remote<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Remote").field(&self.name).finish()
    }
}

/// Why a [process](blocking_process) has no output.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// It was killed, since the call was asked to stop.
    Killed,
    /// The function panicked, with this text.
    Panicked(String),
    /// It ended without an answer; `None` if other code has taken its status.
    Exited(Option<ExitStatus>),
    /// Arguments or output could not be encoded or decoded.
    Encoding(String),
    /// The function of this name is not in the list of `#[dunlin::main(remote = [..])]`, or `main` has none.
    NotListed(&'static str),
    /// The system did not start it, or the connection with it failed.
    Io(io::Error),
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed => f.write_str("the process was killed, since the call was asked to stop"),
            Self::Panicked(text) => write!(f, "the process panicked: {text}"),
            Self::Exited(Some(status)) => write!(f, "the process ended without an answer: {status}"),
            Self::Exited(None) => {
                f.write_str("the process ended without an answer; its status was taken by other code")
            }
            Self::Encoding(why) => write!(f, "the arguments or the output of the process cannot be encoded: {why}"),
            Self::NotListed(name) => {
                write!(f, "no process was started: add the function {name} to `#[dunlin::main(remote = [..])]`")
            }
            Self::Io(error) => write!(f, "the process could not be run: {error}"),
        }
    }
}

impl std::error::Error for ProcessError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for ProcessError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<ProcessError> for crate::Error {
    fn from(error: ProcessError) -> Self {
        Self::other(error)
    }
}

/// Runs a `#[dunlin::remote]` function in a process of its own, which is killed when it is asked to stop.
/// Linux only.
///
/// This is for calls that nothing else ends: foreign code, or a computation that does not check. A
/// termination has the outcome `Terminated(Err(ProcessError::Killed))`. The process is the leader of a group.
/// Programs that it has started are killed with it, except those that have made a group of their own. It also
/// ends when this program does.
///
/// `#[dunlin::main(remote = [..])]` lists the functions that the program may run this way. The function sees
/// nothing of this program's state; its standard input is empty, output and error are the program's. A thread
/// waits for it, as for any blocking call.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```no_run
/// use dunlin::blocking::{ProcessError, blocking_process};
/// use dunlin::prelude::*;
///
/// #[dunlin::remote]
/// fn collatz(mut n: u64) -> u64 {
///     let mut steps = 0;
///     while n != 1 {
///         n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
///         steps += 1;
///     }
///     steps
/// }
///
/// #[dunlin::main(remote = [collatz])]
/// async fn main() -> Result {
///     println!("{} steps", blocking_process(collatz(27)).await??);
///     let endless = blocking_process(collatz(0));
///     match endless.terminate().await {
///         Ended::Terminated(Err(ProcessError::Killed)) | Ended::NeverStarted => Ok(()),
///         ended => Err(Error::other(format!("{ended:?}"))),
///     }
/// }
/// ```
#[track_caller]
pub fn blocking_process<R: DeserializeOwned + Send + 'static>(call: Remote<R>) -> Blocking<Result<R, ProcessError>> {
    crate::world::needs_runtime("a blocking call was started");
    start(Box::new(move |stop| run(stop, call)), Pool::current(), None, Location::caller())
}

fn run<R: DeserializeOwned>(stop: &Stop, call: Remote<R>) -> Result<R, ProcessError> {
    // A program that does not serve the function would run its `main` again, which would start a process.
    if find(call.name).is_none() {
        return Err(ProcessError::NotListed(call.name));
    }
    let arguments = call.arguments.map_err(ProcessError::Encoding)?;
    let (here, there) = UnixStream::pair()?;
    here.set_nonblocking(true)?;
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = std::env::args_os().next() {
        command.arg0(name);
    }
    command.env(VARIABLE, format!("{}:{}", std::process::id(), call.name)).stdin(OwnedFd::from(there));
    let mut child = stop.command(&mut command)?;
    // The command holds the other end, which must close when the child ends.
    drop(command);
    let answer = match exchange(stop, &here, &arguments) {
        Ok(answer) => answer,
        Err(error) if error.kind() == ErrorKind::Interrupted => None,
        // The process has gone: its status gives the reason.
        Err(_) => None,
    };
    let end = child.wait()?;
    match answer.as_deref() {
        Some([OK, output @ ..]) => {
            postcard::from_bytes(output).map_err(|error| ProcessError::Encoding(error.to_string()))
        }
        Some([PANICKED, text @ ..]) => Err(ProcessError::Panicked(String::from_utf8_lossy(text).into_owned())),
        Some([_, text @ ..]) => Err(ProcessError::Encoding(String::from_utf8_lossy(text).into_owned())),
        Some([]) | None => Err(match end {
            ChildEnd::Killed => ProcessError::Killed,
            ChildEnd::Exited(status) => ProcessError::Exited(Some(status)),
            ChildEnd::Unknown => ProcessError::Exited(None),
        }),
    }
}

/// The first byte of an answer: its kind.
const OK: u8 = 0;
const PANICKED: u8 = 1;
const WRONG: u8 = 2;

/// Sends the arguments and receives the answer; `None` if the other side ends first, or the call is asked to
/// stop.
fn exchange(stop: &Stop, mut socket: &UnixStream, arguments: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut frame = (arguments.len() as u64).to_le_bytes().to_vec();
    frame.extend_from_slice(arguments);
    let mut left = &*frame;
    while !left.is_empty() {
        match socket.write(left) {
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.wait_for(socket.as_fd(), Interest::Write)? == Readiness::Asked {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match socket.read(&mut piece) {
            Ok(0) => return Ok(None),
            Ok(read) => answer.extend_from_slice(&piece[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.wait_for(socket.as_fd(), Interest::Read)? == Readiness::Asked {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
        if let Some((length, rest)) = answer.split_first_chunk()
            && u64::from_le_bytes(*length) == rest.len() as u64
        {
            return Ok(Some(rest.to_vec()));
        }
    }
}

/// The functions of this program that processes serve.
static LISTED: OnceLock<&'static [RemoteEntry]> = OnceLock::new();

fn find(name: &str) -> Option<&'static RemoteEntry> {
    LISTED.get()?.iter().find(|entry| entry.name == name)
}

/// The name of the function for which this process was started, and whether its parent is still there.
fn asked() -> Option<(String, bool)> {
    let variable = std::env::var(VARIABLE).ok()?;
    let (parent, name) = variable.split_once(':')?;
    let parent: i32 = parent.parse().ok()?;
    let is_there = rustix::process::getppid().is_some_and(|pid| pid.as_raw_nonzero().get() == parent);
    Some((name.to_owned(), is_there))
}

/// Serves the call for which this process was started, and ends the process. In any other process, calls may
/// start these functions from now on.
#[doc(hidden)]
pub fn serve_processes(functions: &'static [RemoteEntry]) {
    let _ = LISTED.set(functions);
    let Some((name, parent_is_there)) = asked() else { return };
    let is_socket = rustix::fs::fstat(io::stdin().as_fd())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    if !is_socket {
        // This process inherited the variable from a process that serves a call.
        return;
    }
    let served = if parent_is_there { serve(&name) } else { Err(ErrorKind::BrokenPipe.into()) };
    std::process::exit(i32::from(served.is_err()));
}

fn serve(name: &str) -> io::Result<()> {
    // Programs that this process starts do not get the socket.
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    let mut length = [0; 8];
    socket.read_exact(&mut length)?;
    let mut arguments = Vec::new();
    (&socket).take(u64::from_le_bytes(length)).read_to_end(&mut arguments)?;
    let mut watched = socket.try_clone()?;
    std::thread::Builder::new().name("dunlin-parent".to_owned()).spawn(move || {
        // Nothing more comes but the end.
        let _ = watched.read(&mut [0]);
        let _ = rustix::process::kill_process_group(rustix::process::getpid(), rustix::process::Signal::KILL);
        std::process::exit(1);
    })?;
    let answer = match find(name).map(|entry| catch_unwind(AssertUnwindSafe(|| (entry.serve)(&arguments)))) {
        Some(Ok(Ok(output))) => [vec![OK], output].concat(),
        Some(Ok(Err(wrong))) => [vec![WRONG], wrong.into_bytes()].concat(),
        Some(Err(panic)) => [vec![PANICKED], text_of(&*panic).into_bytes()].concat(),
        None => [vec![WRONG], format!("there is no function {name}").into_bytes()].concat(),
    };
    socket.write_all(&(answer.len() as u64).to_le_bytes())?;
    socket.write_all(&answer)
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a text").to_owned()
}

/// A `#[dunlin::remote]` function, as the other process finds it.
#[doc(hidden)]
#[derive(Debug)]
pub struct RemoteEntry {
    name: &'static str,
    serve: fn(&[u8]) -> Result<Vec<u8>, String>,
}

impl RemoteEntry {
    /// By its name.
    pub const fn new(name: &'static str, serve: fn(&[u8]) -> Result<Vec<u8>, String>) -> Self {
        Self { name, serve }
    }
}

/// What such a function returns.
#[doc(hidden)]
pub fn remote<A: Serialize, R>(entry: &RemoteEntry, arguments: &A) -> Remote<R> {
    let arguments = postcard::to_stdvec(arguments).map_err(|error| error.to_string());
    Remote { name: entry.name, arguments, output: PhantomData }
}

/// What such a function does in the other process.
#[doc(hidden)]
pub fn serve_remote<A: DeserializeOwned, R: Serialize>(
    arguments: &[u8],
    function: impl FnOnce(A) -> R,
) -> Result<Vec<u8>, String> {
    let arguments = postcard::from_bytes(arguments).map_err(|error| error.to_string())?;
    postcard::to_stdvec(&function(arguments)).map_err(|error| error.to_string())
}
