//! Pipes: bytes in one direction, within this program or between programs. Unix only.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_core::{Branch, Receiver, Sender, channel_with, fifo};
use rustix::fs::{FileType, OFlags};
use tokio::io::Interest;

use super::carry::{PIECES, Poisoned, Sink, Source, inward, outward};
use super::descriptor::Descriptor;
use super::operation::{Action, IoOperation};
use super::spawn;
use crate::Process;

/// Makes a pipe: bytes written at one end are read at the other.
///
/// # Errors
/// Those of the system: for one, that no descriptor is left.
///
/// # Panics
/// Outside a tokio runtime, as all conversions of this module.
///
/// # Examples
/// ```
/// use dunlin::io::{Bytes, pipe};
/// # dunlin::block_on(async {
/// let (mut read_end, mut write_end) = pipe::pair()?;
/// write_end.write_all(&mut Bytes::from("krill")).await?;
/// drop(write_end);
/// assert_eq!(read_end.read(4096).await?, "krill");
/// assert!(read_end.read(4096).await?.is_empty(), "the write end was dropped");
/// # Ok::<(), dunlin::Error>(())
/// # }).unwrap();
/// ```
pub fn pair() -> io::Result<(ReadEnd, WriteEnd)> {
    let (read, write) = io::pipe()?;
    Ok((ReadEnd::new(read.into())?, WriteEnd::new(write.into())?))
}

/// The reading end of a pipe. It has no buffer. Dropping it closes it; writes at the other end then fail.
#[derive(Debug)]
pub struct ReadEnd(Descriptor);

/// The writing end of a pipe. It has no buffer. Dropping it closes it, and the reader gets the end after the
/// bytes that were written.
#[derive(Debug)]
pub struct WriteEnd(Descriptor);

impl ReadEnd {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Descriptor::new(fd, Interest::READABLE).map(Self)
    }

    /// Reads one piece of at most `max` bytes, and at most 1 MiB: the bytes available, or an empty piece when
    /// all write ends are closed.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has taken no byte.
    ///
    /// # Panics
    /// If `max` is zero.
    #[track_caller]
    pub fn read(&mut self, max: usize) -> Read<'_> {
        assert!(max > 0, "a read of no bytes would look like the end");
        IoOperation::new(Reading { descriptor: &mut self.0, max })
    }

    /// Makes an ordinary receiver of it, and a process that reads.
    ///
    /// Up to 4 pieces of 1 byte to 64 KiB are read ahead. When all write ends are closed, the receiver ends
    /// after the bytes that were written. An error poisons it, with its text. When the receiver is dropped,
    /// the process ends and the pipe is closed.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::{Bytes, pipe};
    /// # dunlin::block_on(async {
    /// let (read_end, write_end) = pipe::pair()?;
    /// let (mut tx, process) = write_end.into_sender();
    /// let mut rx = read_end.into_receiver();
    /// tx.send(Bytes::from("krill")).await?;
    /// drop(tx);
    /// assert_eq!(rx.recv().await?, "krill");
    /// assert!(rx.recv().await.unwrap_err().is_closed());
    /// process.await??;
    /// # Ok::<(), dunlin::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn into_receiver(mut self) -> Receiver<Bytes> {
        let (tx, rx) = channel_with(fifo(PIECES));
        // An error has poisoned the channel.
        drop(spawn(async move { inward(&mut self, &mut Some(tx)).await }));
        rx
    }
}

impl WriteEnd {
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Descriptor::new(fd, Interest::WRITABLE).map(Self)
    }

    /// Writes as much of `bytes` as the pipe has room for, removes that from `bytes`, and returns its length.
    /// Empty `bytes` return `0` at once.
    ///
    /// # Errors
    /// [`BrokenPipe`](io::ErrorKind::BrokenPipe) when all read ends are closed, other errors of the system,
    /// and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has written nothing.
    #[track_caller]
    pub fn write<'a>(&'a mut self, bytes: &'a mut Bytes) -> Write<'a> {
        IoOperation::new(Writing { descriptor: &mut self.0, bytes })
    }

    /// Writes all of `bytes`, piece by piece. A reader that does not read keeps this waiting: set a deadline.
    ///
    /// # Errors
    /// As of [`write`](Self::write). The unwritten rest is in `bytes`.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has written what it removed from `bytes`.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::{Bytes, pipe};
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (_read_end, mut write_end) = pipe::pair()?;
    /// let mut bytes = Bytes::from(vec![7; 10_000_000]);
    /// let late = write_end.write_all(&mut bytes).within(Duration::from_millis(1)).await.unwrap_err();
    /// assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
    /// assert!(!bytes.is_empty());
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn write_all<'a>(&'a mut self, bytes: &'a mut Bytes) -> WriteAll<'a> {
        IoOperation::new(WritingAll { descriptor: &mut self.0, bytes })
    }

    /// Makes an ordinary sender of it, and a process that writes the pieces sent.
    ///
    /// Up to 4 pieces are in flight. When the sender is dropped, the pipe is closed after the bytes that were
    /// sent, and the process ends. An error poisons the sender, with its text, and the process returns it;
    /// poison of the sender also ends the process with an error.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn into_sender(mut self) -> (Sender<Bytes>, Process<io::Result<()>>) {
        let (tx, rx) = channel_with(fifo(PIECES));
        let process = spawn(async move {
            let written = outward(&mut self, rx).await;
            written.unwrap_or_else(|Poisoned(reason)| Err(io::Error::other(reason)))
        });
        (tx, process)
    }
}

/// Takes an end of a pipe, or of a FIFO in the file system. It is set non-blocking, for all its holders.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) if it is no pipe, or cannot be read. Others are the system's.
impl TryFrom<OwnedFd> for ReadEnd {
    type Error = io::Error;

    fn try_from(fd: OwnedFd) -> io::Result<Self> {
        check(fd.as_fd(), OFlags::WRONLY)?;
        Self::new(fd)
    }
}

/// Takes an end of a pipe, or of a FIFO in the file system. It is set non-blocking, for all its holders.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput) if it is no pipe, or cannot be written. Others are the
/// system's.
impl TryFrom<OwnedFd> for WriteEnd {
    type Error = io::Error;

    fn try_from(fd: OwnedFd) -> io::Result<Self> {
        check(fd.as_fd(), OFlags::RDONLY)?;
        Self::new(fd)
    }
}

/// Whether it is a pipe which is open in the right direction.
fn check(fd: BorrowedFd<'_>, wrong: OFlags) -> io::Result<()> {
    if FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode) != FileType::Fifo {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is no pipe"));
    }
    if rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE == wrong {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the descriptor is the other end of the pipe"));
    }
    Ok(())
}

impl Source for ReadEnd {
    fn piece(&mut self, max: usize) -> impl Branch<Output = io::Result<Bytes>> + Unpin + Send {
        self.read(max)
    }
}

impl Sink for WriteEnd {
    async fn put(&mut self, bytes: &mut Bytes) -> io::Result<()> {
        self.write_all(bytes).await
    }

    async fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The operation of [`ReadEnd::read`].
pub type Read<'a> = IoOperation<Reading<'a>>;

/// The operation of [`WriteEnd::write`].
pub type Write<'a> = IoOperation<Writing<'a>>;

/// The operation of [`WriteEnd::write_all`].
pub type WriteAll<'a> = IoOperation<WritingAll<'a>>;

#[doc(hidden)]
#[derive(Debug)]
pub struct Reading<'a> {
    descriptor: &'a mut Descriptor,
    max: usize,
}

impl Action for Reading<'_> {
    type Output = Bytes;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        self.descriptor.poll_read(self.max, cx)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Writing<'a> {
    descriptor: &'a mut Descriptor,
    bytes: &'a mut Bytes,
}

impl Action for Writing<'_> {
    type Output = usize;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.descriptor.poll_write(self.bytes, cx)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct WritingAll<'a> {
    descriptor: &'a mut Descriptor,
    bytes: &'a mut Bytes,
}

impl Action for WritingAll<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            ready!(self.descriptor.poll_write(self.bytes, cx))?;
        }
        Poll::Ready(Ok(()))
    }
}
