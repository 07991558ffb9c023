//! Operating system processes that a call starts: they are killed with their group, and reaped, when the call
//! is cut. Linux only.
//!
//! The leader of a group is reaped only after its group has been killed, so the group's number cannot belong
//! to another group. It is reaped by its own number, never by "any child", so no child of other code is
//! taken.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus};

use rustix::process::{Pid, PidfdFlags};

use super::bell::kill_group;
use super::descriptor::{Interest, Readiness};
use super::stop::Stop;

impl Stop {
    /// Starts a program as a child of this call, in a process group of its own. Linux only.
    ///
    /// [`wait`](Child::wait) waits for its end. When the call is asked to stop, the group is killed: the
    /// program, and the programs that it has started. So a read of its output ends, too. A child that is
    /// dropped before it has ended, also by a panic, is killed and reaped. A program of the group that has
    /// made a session or a group of its own (`setsid`) is not killed.
    ///
    /// # Errors
    /// Those of the system when it starts the program.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::blocking::ChildEnd;
    /// use std::process::Command;
    /// # dunlin::block_on(async {
    /// let waiting = blocking(|stop| stop.command(Command::new("sleep").arg("1000"))?.wait());
    /// # use dunlin::waits::{Doing, snapshot};
    /// # while !snapshot().iter().any(|wait| wait.who == waiting.pid() && wait.doing == Doing::Ready) {}
    /// let ended = waiting.terminate().await;
    /// assert!(matches!(ended, Ended::Terminated(Ok(ChildEnd::Killed))), "{ended:?}");
    /// # });
    /// ```
    pub fn command(&self, command: &mut Command) -> io::Result<Child<'_>> {
        let mut child = command.process_group(0).spawn()?;
        let parts = i32::try_from(child.id()).ok().and_then(Pid::from_raw).map(|pid| {
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK);
            // Before Linux 5.10 this flag does not exist.
            (pid, pidfd.or_else(|_| rustix::process::pidfd_open(pid, PidfdFlags::empty())))
        });
        let Some((pid, Ok(pidfd))) = parts else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the system gives no descriptor for a process"));
        };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        self.with_bells(|bells| bells.add_group(pid));
        Ok(Child { stop: self, stdin, stdout, stderr, child, pid, pidfd, over: None })
    }
}

/// A program that a call has started by [`Stop::command`]. Dropped before it has ended, it is killed with its
/// group.
pub struct Child<'a> {
    stop: &'a Stop,
    /// Its standard input, if the command pipes it.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, if the command pipes it.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, if the command pipes it.
    pub stderr: Option<ChildStderr>,
    child: std::process::Child,
    pid: Pid,
    pidfd: OwnedFd,
    over: Option<ChildEnd>,
}

/// How a program ended that was started by a call or by [`program::start`](crate::io::program::start).
///
/// Its text is that of the [`ExitStatus`], as "exit status: 3", or says that it was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildEnd {
    /// By itself, or by a signal from other code.
    Exited(ExitStatus),
    /// It was killed with its group, since the call was asked to stop, or the program was terminated.
    Killed,
    /// It has ended, but other code of this program has taken its status.
    Unknown,
}

impl ChildEnd {
    /// Whether it ended by itself, with a success status.
    pub fn is_success(self) -> bool {
        matches!(self, Self::Exited(status) if status.success())
    }
}

impl fmt::Display for ChildEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::Killed => f.write_str("killed with its group"),
            Self::Unknown => f.write_str("ended, with a status that other code has taken"),
        }
    }
}

impl Child<'_> {
    /// Its number in the system, which is that of its group too.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the program has ended, or the call is asked to stop: then the group is killed first. The
    /// child is reaped.
    ///
    /// # Errors
    /// Those of the system.
    #[track_caller]
    pub fn wait(&mut self) -> io::Result<ChildEnd> {
        if let Some(over) = self.over {
            return Ok(over);
        }
        let end = match self.stop.wait_for(self.pidfd.as_fd(), Interest::Read)? {
            Readiness::Ready => self.reap()?,
            Readiness::Asked => self.kill()?,
        };
        self.over = Some(end);
        Ok(end)
    }

    /// Kills the group, while its leader exists, and reaps the leader.
    fn kill(&mut self) -> io::Result<ChildEnd> {
        if !kill_group(self.pid)? {
            return Ok(ChildEnd::Unknown);
        }
        Ok(match self.reap()? {
            ChildEnd::Exited(_) => ChildEnd::Killed,
            end => end,
        })
    }

    fn reap(&mut self) -> io::Result<ChildEnd> {
        self.stop.with_bells(|bells| bells.remove_group(self.pid));
        match self.child.wait() {
            Ok(status) => Ok(ChildEnd::Exited(status)),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CHILD.raw_os_error()) => {
                Ok(ChildEnd::Unknown)
            }
            Err(error) => Err(error),
        }
    }
}

impl Drop for Child<'_> {
    fn drop(&mut self) {
        if self.over.is_none() {
            let _ = self.kill();
            self.stop.with_bells(|bells| bells.remove_group(self.pid));
        }
    }
}

impl fmt::Debug for Child<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("id", &self.id()).field("over", &self.over).finish_non_exhaustive()
    }
}
