//! Programs: processes of the operating system, with their streams as values. Linux only.
//!
//! A [`Program`] is killed with its group when it is dropped. It is reaped by its own number, and only after
//! its group has been killed, so no child of other code and no other group is affected.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::{Pin, pin};
use std::process::Command;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_core::{Receiver, Sender, channel_with, fifo};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::carry::{PIECES, Poisoned, inward, outward};
use super::descriptor::register;
use super::operation::{Action, IoOperation};
use super::pipe::{ReadEnd, WriteEnd};
use super::spawn;
use crate::Process;
use crate::blocking::{ChildEnd, kill_group, room};

/// Starts a program, in a process group of its own.
///
/// `command` goes to another thread, so it is moved: bind it, since its methods return references. It sets
/// the streams. A stream that is [piped](std::process::Stdio::piped) is an end of the [`Program`]. A thread
/// of the [pool](mod@crate::blocking) calls the system, which may read the program from a disk.
///
/// # Errors
/// Those of the system: [`NotFound`](io::ErrorKind::NotFound) if there is no such program.
///
/// # Cancel safety
/// Dropped, it has started nothing, or it kills the program that it has started.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::{Bytes, program};
/// use std::process::{Command, Stdio};
/// # dunlin::block_on(async {
/// let mut sort = Command::new("sort");
/// sort.stdin(Stdio::piped()).stdout(Stdio::piped());
/// let mut sort = program::start(sort).await?;
/// let mut input = sort.stdin.take().unwrap();
/// input.write_all(&mut Bytes::from("squid\nkrill\n")).await?;
/// drop(input); // it is the end, so it sorts
/// assert_eq!(sort.stdout.as_mut().unwrap().read(4096).await?, "krill\nsquid\n");
/// assert!(sort.exit().await?.is_success());
/// # Ok::<(), dunlin::Error>(())
/// # }).unwrap();
/// ```
pub async fn start(mut command: Command) -> io::Result<Program> {
    let place = room().await;
    let started = place.blocking(move |_| Started::new(&mut command)).await;
    let (started, pidfd) = started.unwrap_or_else(|error| Err(io::Error::other(error.to_string())))?;
    Program::new(started, pidfd)
}

/// A program started by [`start`]. Dropped before its [exit](Self::exit) was awaited, it is killed with its
/// group, and reaped.
///
/// A program of its group that has made a session or a group of its own (`setsid`) is not killed. Nor is a
/// program that still runs after the exit has been awaited.
///
/// # Examples
/// A deadline for a program and for all programs that it has started:
/// ```
/// use dunlin::blocking::ChildEnd;
/// use dunlin::io::program;
/// use dunlin::prelude::*;
/// use std::process::Command;
/// # dunlin::block_on(async {
/// let mut command = Command::new("sleep");
/// command.arg("1000");
/// let mut program = program::start(command).await?;
/// alt! {
///     end = program.exit() => panic!("{end:?}"),
///     () = sleep(Duration::from_millis(1)) => {}
/// }
/// assert_eq!(program.terminate().await?, ChildEnd::Killed);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Program {
    /// Its standard input, if the command pipes it.
    pub stdin: Option<WriteEnd>,
    /// Its standard output, if the command pipes it.
    pub stdout: Option<ReadEnd>,
    /// Its standard error, if the command pipes it.
    pub stderr: Option<ReadEnd>,
    leader: Watched,
}

impl Program {
    fn new(mut started: Started, pidfd: OwnedFd) -> io::Result<Self> {
        let child = &mut started.child;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Self {
            stdin: stdin.map(|stream| WriteEnd::new(stream.into())).transpose()?,
            stdout: stdout.map(|stream| ReadEnd::new(stream.into())).transpose()?,
            stderr: stderr.map(|stream| ReadEnd::new(stream.into())).transpose()?,
            leader: Watched::new(started, pidfd)?,
        })
    }

    /// Its number in the system, which is that of its group too.
    pub fn id(&self) -> u32 {
        self.leader.id
    }

    /// Waits until the program has ended, and reaps it. Later calls return the same result at once.
    ///
    /// The standard input stays open: a program that reads it to its end waits until
    /// [`stdin`](Self::stdin) is dropped.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, nothing is lost.
    #[track_caller]
    pub fn exit(&mut self) -> Exit<'_> {
        IoOperation::new(Exiting { leader: &mut self.leader, kills: Kills::None })
    }

    /// As [`exit`](Self::exit), and kills the programs of its group that still run then: none is left but
    /// those that have made a session or a group of their own.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, nothing is lost.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::program;
    /// use std::process::{Command, Stdio};
    /// # dunlin::block_on(async {
    /// let mut shell = Command::new("sh");
    /// shell.args(["-c", "sleep 1000 & exit 7"]).stdout(Stdio::piped());
    /// let mut shell = program::start(shell).await?;
    /// let end = shell.exit_with_group().await?;
    /// assert!(!end.is_success(), "the status is that of the shell: {end:?}");
    /// let rest = shell.stdout.as_mut().unwrap().read(4096).await?;
    /// assert!(rest.is_empty(), "`sleep` has been killed, so the pipe has ended");
    /// # Ok::<(), dunlin::Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn exit_with_group(&mut self) -> Exit<'_> {
        IoOperation::new(Exiting { leader: &mut self.leader, kills: Kills::Rest })
    }

    /// Kills the program with its group and waits for its end: [`ChildEnd::Killed`], unless it had ended
    /// before.
    ///
    /// # Errors
    /// Those of the system: `PermissionDenied` if the program has another user's rights. And
    /// [`TimedOut`](io::ErrorKind::TimedOut) at a deadline: a program that waits for a disk ends only when
    /// the disk answers.
    ///
    /// # Cancel safety
    /// Once polled, it has killed the program, also if it is not chosen or its deadline passes. It can be
    /// called again.
    #[track_caller]
    pub fn terminate(&mut self) -> Exit<'_> {
        IoOperation::new(Exiting { leader: &mut self.leader, kills: Kills::All })
    }

    /// Makes ordinary ends of its streams, and a process that serves them.
    ///
    /// The ends may go to another node; the program stays.
    ///
    /// - When `stdin` is dropped, the program gets the end of its input after the bytes that were sent. When
    ///   the program ends its output, `stdout` ends after the bytes that it has written; likewise `stderr`.
    /// - An error of a stream poisons its end, with its text: for example, when the program no longer reads.
    /// - Poison of `stdin` kills the program, and poisons `stdout` and `stderr`.
    /// - When `stdout` is dropped, nothing more is read, and a program that still writes gets `SIGPIPE`.
    /// - The process returns how the program ended, when both outputs have ended too; `stdin` is closed then.
    ///   Cancelled, it kills the program.
    ///
    /// Each stream has up to 4 pieces in flight.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::{Bytes, program};
    /// use std::process::{Command, Stdio};
    /// # dunlin::block_on(async {
    /// let mut cat = Command::new("cat");
    /// cat.stdin(Stdio::piped()).stdout(Stdio::piped());
    /// let mut cat = program::start(cat).await?.into_ends();
    /// let (mut stdin, mut stdout) = (cat.stdin.unwrap(), cat.stdout.unwrap());
    /// stdin.send(Bytes::from("krill")).await?;
    /// assert_eq!(stdout.recv().await?, "krill");
    /// drop(stdin);
    /// assert!(stdout.recv().await.unwrap_err().is_closed());
    /// assert!(cat.process.await??.is_success());
    /// # Ok::<(), dunlin::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_ends(mut self) -> Ends {
        let input = self.stdin.take().map(|stream| (stream, channel_with(fifo(PIECES))));
        let (stdin, input) = input.map(|(stream, (tx, rx))| (tx, (stream, rx))).unzip();
        let (stdout, output) = outgoing(self.stdout.take());
        let (stderr, errors) = outgoing(self.stderr.take());
        Ends { stdin, stdout, stderr, process: spawn(serve(self.leader, input, [output, errors])) }
    }
}

/// The ends of a [program's streams](Program::into_ends).
#[derive(Debug)]
pub struct Ends {
    /// The sender to its standard input, if that is piped.
    pub stdin: Option<Sender<Bytes>>,
    /// Its standard output, if that is piped.
    pub stdout: Option<Receiver<Bytes>>,
    /// Its standard error, if that is piped.
    pub stderr: Option<Receiver<Bytes>>,
    /// The process between them and the program. Dropped, it runs on.
    pub process: Process<io::Result<ChildEnd>>,
}

/// A stream of the program, and its destination.
type Output = Option<(ReadEnd, Sender<Bytes>)>;

fn outgoing(stream: Option<ReadEnd>) -> (Option<Receiver<Bytes>>, Output) {
    let ends = stream.map(|stream| {
        let (tx, rx) = channel_with(fifo(PIECES));
        (rx, (stream, tx))
    });
    ends.unzip()
}

/// Carries a stream to its channel. The stream is closed when it, or the channel, has ended.
async fn output(stream: Option<ReadEnd>, tx: &mut Option<Sender<Bytes>>) {
    if let Some(mut stream) = stream {
        // An error has poisoned the channel.
        let _ = inward(&mut stream, tx).await;
    }
}

async fn serve(
    mut leader: Watched,
    input: Option<(WriteEnd, Receiver<Bytes>)>,
    outputs: [Output; 2],
) -> io::Result<ChildEnd> {
    let [(stdout, mut to_stdout), (stderr, mut to_stderr)] = outputs.map(Option::unzip);
    let served = {
        let mut stdout = pin!(output(stdout, &mut to_stdout));
        let mut stderr = pin!(output(stderr, &mut to_stderr));
        let mut input = pin!(async {
            match input {
                // The error has poisoned the sender. It says nothing about how the program ends.
                Some((mut stream, rx)) => outward(&mut stream, rx).await.map(|_| ()),
                None => Ok(()),
            }
        });
        let mut exit = pin!(IoOperation::new(Exiting { leader: &mut leader, kills: Kills::None }));
        let (mut is_written, mut out, mut err, mut end) = (false, false, false, None);
        poll_fn(|cx| {
            if !is_written && let Poll::Ready(written) = input.as_mut().poll(cx) {
                is_written = true;
                written?;
            }
            out = out || stdout.as_mut().poll(cx).is_ready();
            err = err || stderr.as_mut().poll(cx).is_ready();
            if end.is_none()
                && let Poll::Ready(over) = exit.as_mut().poll(cx)
            {
                end = Some(over);
            }
            if out
                && err
                && let Some(end) = end.take()
            {
                Poll::Ready(Ok(end))
            } else {
                Poll::Pending
            }
        })
        .await
    };
    match served {
        Ok(end) => end,
        Err(Poisoned(reason)) => {
            for tx in [to_stdout, to_stderr].iter().flatten() {
                tx.poison(reason.clone());
            }
            IoOperation::new(Exiting { leader: &mut leader, kills: Kills::All }).await?;
            Err(io::Error::other(reason))
        }
    }
}

/// The operation of [`Program::exit`], [`Program::exit_with_group`] and [`Program::terminate`].
pub type Exit<'a> = IoOperation<Exiting<'a>>;

#[doc(hidden)]
#[derive(Debug)]
pub struct Exiting<'a> {
    leader: &'a mut Watched,
    kills: Kills,
}

/// The programs that a wait for an end kills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kills {
    None,
    /// Those of the group that outlive the leader.
    Rest,
    /// The whole group, at once.
    All,
}

impl Action for Exiting<'_> {
    type Output = ChildEnd;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<ChildEnd>> {
        if self.kills == Kills::All {
            self.leader.kill()?;
        }
        self.leader.poll_end(self.kills, cx)
    }
}

/// The leader of a group. Dropped before it was reaped, it kills the group, waits for the leader's death, and
/// reaps it.
struct Started {
    child: std::process::Child,
    pid: Pid,
    was_killed: bool,
    was_reaped: bool,
}

impl Started {
    /// The program, and a descriptor that becomes readable when it ends.
    fn new(command: &mut Command) -> io::Result<(Self, OwnedFd)> {
        let mut child = command.process_group(0).spawn()?;
        let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::other("the system gave a program no number"));
        };
        let started = Self { child, pid, was_killed: false, was_reaped: false };
        // Before Linux 5.10 this flag does not exist.
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)
            .or_else(|_| rustix::process::pidfd_open(pid, PidfdFlags::empty()))?;
        Ok((started, pidfd))
    }

    /// Kills the group, once, while its leader exists.
    fn kill(&mut self) -> io::Result<()> {
        if !self.was_killed {
            // If other code has reaped the leader, the system reports that when this reaps it.
            self.was_killed = kill_group(self.pid)?;
        }
        Ok(())
    }

    /// Waits for the leader on this thread: it must have ended, or been killed.
    fn reap(&mut self) -> io::Result<ChildEnd> {
        self.was_reaped = true;
        match self.child.wait() {
            Ok(status) if self.was_killed && status.signal() == Some(libc::SIGKILL) => Ok(ChildEnd::Killed),
            Ok(status) => Ok(ChildEnd::Exited(status)),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Ok(ChildEnd::Unknown),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // A program with another user's rights cannot be killed, and may run for ever.
        if !self.was_reaped && self.kill().is_ok() {
            let _ = self.reap();
        }
    }
}

impl fmt::Debug for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("pid", &self.pid).field("was_killed", &self.was_killed).finish_non_exhaustive()
    }
}

/// The leader of a group, and when it ends. Its drop does not block: a task reaps it.
#[derive(Debug)]
struct Watched {
    id: u32,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The descriptor becomes readable when the leader has ended.
    Started(Started, AsyncFd<OwnedFd>),
    Over(ChildEnd),
}

impl Watched {
    fn new(started: Started, pidfd: OwnedFd) -> io::Result<Self> {
        let id = started.child.id();
        Ok(Self { id, state: State::Started(started, register(pidfd, Interest::READABLE)?) })
    }

    fn kill(&mut self) -> io::Result<()> {
        match &mut self.state {
            State::Started(started, _) => started.kill(),
            State::Over(_) => Ok(()),
        }
    }

    fn poll_end(&mut self, kills: Kills, cx: &mut Context<'_>) -> Poll<io::Result<ChildEnd>> {
        let end = match &mut self.state {
            State::Over(end) => return Poll::Ready(Ok(*end)),
            State::Started(started, pidfd) => {
                // The descriptor stays readable.
                let _ = ready!(pidfd.poll_read_ready(cx))?;
                if kills == Kills::Rest {
                    // Before the leader is reaped: the number of its group could belong to another one then.
                    kill_group(started.pid)?;
                }
                started.reap()?
            }
        };
        self.state = State::Over(end);
        Poll::Ready(Ok(end))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let State::Started(mut started, pidfd) = std::mem::replace(&mut self.state, State::Over(ChildEnd::Unknown))
        else {
            return;
        };
        let _ = started.kill();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let reap: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                if pidfd.readable().await.is_ok() {
                    let _ = started.reap();
                }
            });
            runtime.spawn(reap);
        }
    }
}
