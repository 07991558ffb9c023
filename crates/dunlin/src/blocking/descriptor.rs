//! Waits for descriptors that end when the call is asked to stop, and sockets that the request shuts down.
//! Unix only.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
use std::task::Poll;

use dunlin_core::waits::{Doing, Pid, Watch};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, OFlags};

use super::bell::Bells;
use super::stop::Stop;

/// What a call waits for at a [descriptor](Stop::ready).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Interest {
    /// That a read, or an accept, would not block.
    Read,
    /// That a write, or a connect, would not block.
    Write,
}

/// What ended a wait for a [descriptor](Stop::ready).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// The descriptor is ready, or its other end has closed, or it has an error: the operation tells them
    /// apart.
    Ready,
    /// The call was asked to stop, and counts as having seen that.
    Asked,
}

impl Stop {
    /// Waits until `descriptor` is ready, or the call is asked to stop. Both at once count as asked. Unix
    /// only.
    ///
    /// Ready is a hint: another thread or program may have been faster. So the descriptor must be
    /// non-blocking, and a caller whose read, write or accept gives [`WouldBlock`](io::ErrorKind::WouldBlock)
    /// waits again.
    ///
    /// The first use in a call opens a descriptor, which is closed when the call returns.
    ///
    /// # Errors
    /// [`InvalidInput`](io::ErrorKind::InvalidInput), at once, for a regular file, a directory or a block
    /// device, which the system always reports as ready, though a read may wait for the disk; and for a
    /// descriptor that is not non-blocking. Other errors are the system's.
    ///
    /// # Waits
    /// The call has a line in the [wait records](crate::waits).
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::blocking::{Interest, Readiness};
    /// use std::io::{ErrorKind, Read};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// # dunlin::block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    /// # let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    /// # let (mut peer, _) = listener.accept().unwrap();
    /// let reading = blocking(move |stop| {
    ///     stream.set_nonblocking(true)?;
    ///     let mut read = Vec::new();
    ///     let mut piece = [0; 4096];
    ///     while stop.ready(&stream, Interest::Read)? == Readiness::Ready {
    ///         match (&stream).read(&mut piece) {
    ///             Ok(0) => break,
    ///             Ok(n) => read.extend_from_slice(&piece[..n]),
    ///             Err(error) if error.kind() == ErrorKind::WouldBlock => {} // ask again
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    ///     Ok(read)
    /// });
    /// # std::io::Write::write_all(&mut peer, b"krill").unwrap();
    /// # use dunlin::waits::{Doing, snapshot};
    /// # while !snapshot().iter().any(|wait| wait.who == reading.pid() && wait.doing == Doing::Ready) {}
    /// let ended = reading.terminate().await; // what it has read is not lost
    /// assert!(matches!(ended, Ended::Terminated(Ok(_))));
    /// # });
    /// ```
    #[track_caller]
    pub fn ready(&self, descriptor: impl AsFd, interest: Interest) -> io::Result<Readiness> {
        let descriptor = descriptor.as_fd();
        check(descriptor)?;
        self.wait_for(descriptor, interest)
    }

    /// As [`ready`](Self::ready), for a descriptor that is known to be of the right kind.
    #[track_caller]
    pub(crate) fn wait_for(&self, descriptor: BorrowedFd<'_>, interest: Interest) -> io::Result<Readiness> {
        let (mut watch, made) = (Watch::default(), Location::caller());
        let bell = self.with_bells(Bells::bell)?;
        let flags = match interest {
            Interest::Read => PollFlags::IN,
            Interest::Write => PollFlags::OUT,
        };
        loop {
            // The bell existed before this check, so a later stop request rings it.
            if self.asked() {
                return Ok(Readiness::Asked);
            }
            let _: Poll<()> = watch.note(Poll::Pending, Doing::Ready, Pid::OUTSIDE, made);
            let mut descriptors = [
                PollFd::from_borrowed_fd(descriptor, flags),
                PollFd::from_borrowed_fd(bell.descriptor(), PollFlags::IN),
            ];
            match rustix::event::poll(&mut descriptors, None) {
                Ok(_) if !descriptors[0].revents().is_empty() => {
                    return Ok(if self.asked() { Readiness::Asked } else { Readiness::Ready });
                }
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Shuts a socket down, both ways, when the call is asked to stop, until the returned guard is dropped.
    /// Unix only.
    ///
    /// It is for a thread that blocks in a read, a write or an accept of that socket. The operation then ends
    /// as if the peer had closed the connection, or with an error; [`asked`](Self::asked) tells the cases
    /// apart. Linux wakes an accept of a listening socket too; other systems may not.
    ///
    /// The socket is shut down for *every* holder of it, in other programs as well, and stays so. If the call
    /// has already been asked, it is shut down at once.
    ///
    /// # Errors
    /// Those of the system, when it duplicates the descriptor.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use std::os::unix::net::UnixStream;
    /// use std::io::Read;
    ///
    /// # dunlin::block_on(async {
    /// let (mut here, _there) = UnixStream::pair().unwrap();
    /// # let (mut began, mut has_begun) = channel();
    /// let reading = blocking(move |stop| {
    ///     let _cut = stop.shuts_down(&here)?;
    /// #   began.send(()).wait().unwrap();
    ///     let mut read = String::new();
    ///     here.read_to_string(&mut read)?; // it blocks
    ///     std::io::Result::Ok((read, stop.asked()))
    /// });
    /// # has_begun.recv().await.unwrap();
    /// let Ended::Terminated(Ok((_, was_cut))) = reading.terminate().await else { panic!() };
    /// assert!(was_cut);
    /// # });
    /// ```
    pub fn shuts_down(&self, socket: impl AsFd) -> io::Result<ShutDown<'_>> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        let ticket = self.with_bells(|bells| bells.add_socket(socket));
        Ok(ShutDown { stop: self, ticket })
    }
}

/// Whether readiness is meaningful there, and an operation on it does not block.
fn check(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(descriptor)?.st_mode);
    if matches!(kind, FileType::RegularFile | FileType::Directory | FileType::BlockDevice) {
        let text = "cannot wait for a regular file, directory or block device, which the system always reports as \
                    ready: read it without `ready`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    if !rustix::fs::fcntl_getfl(descriptor)?.contains(OFlags::NONBLOCK) {
        let text = "the descriptor is in blocking mode, so an operation could block even after `ready`: set it \
                    non-blocking first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// Shuts a socket down when the call is asked to stop, until this is dropped: made by [`Stop::shuts_down`].
#[must_use = "a dropped handle does nothing"]
pub struct ShutDown<'a> {
    stop: &'a Stop,
    ticket: u64,
}

impl Drop for ShutDown<'_> {
    fn drop(&mut self) {
        let gone = self.stop.with_bells(|bells| bells.remove_socket(self.ticket));
        drop(gone);
    }
}

impl fmt::Debug for ShutDown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ShutDown").field(self.stop).finish()
    }
}
