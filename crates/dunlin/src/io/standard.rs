//! The standard streams of this program. Unix only.
//!
//! The kind of the stream decides how an operation waits:
//!
//! | the stream is | waits by | an operation that is given up |
//! |---|---|---|
//! | a terminal, a pipe or a FIFO (Linux) | tokio, at a descriptor of its own that does not block | has done nothing |
//! | a socket (Linux) | tokio; each operation sets the flag not to block | has done nothing |
//! | one of these on another system, or that cannot be opened again | a [blocking call](mod@crate::blocking) | continues, see below |
//! | a file, `/dev/null` | a blocking call | continues, see below |
//!
//! The streams themselves are never set non-blocking, since the shell and other programs share them.
//!
//! A read by a call that was not chosen leaves its bytes in the [`Input`], for the next read. A write by a
//! call returns when the bytes have been handed over; the next write, or a [`flush`](Output::flush), waits
//! until they are written and reports whether that failed. So an operation that is given up has taken, or
//! written, nothing here either.
//!
//! `std::io::stdin` and `std::io::stdout` have buffers. Reads and writes through them are not in order with
//! those made here.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dunlin_core::{Branch, Receiver, Sender, channel_with, fifo};
use rustix::buffer::spare_capacity;
use rustix::fs::FileType;
use tokio::io::Interest;

use super::carry::{PIECE_MAX, PIECES, Poisoned, Sink, Source, inward, outward};
use super::descriptor::{Descriptor, whole};
use super::operation::{Action, IoOperation, READ_MAX};
use super::spawn;
use crate::Process;
use crate::blocking::{Blocking, Interest as For, Readiness, Room, Stop, room};

/// Opens the standard input.
///
/// Take it once, and keep it: dropped while a [call](self) reads, it loses the bytes that the call has read.
///
/// # Errors
/// Those of the system, for example if the stream is closed.
///
/// # Panics
/// Outside a tokio runtime, as all functions of this module.
///
/// # Examples
/// A program that ends with its input, or when a channel stops it:
/// ```
/// use dunlin::io::standard;
/// use dunlin::prelude::*;
///
/// async fn count(mut stop: Receiver<()>) -> Result<usize> {
///     let mut input = standard::input()?;
///     let mut count = 0;
///     loop {
///         alt! {
///             piece = input.read(4096) => match piece? {
///                 end if end.is_empty() => return Ok(count),
///                 piece => count += piece.len(),
///             },
///             _ = stop.recv() => return Ok(count),
///         }
///     }
/// }
/// # let _ = count;
/// ```
pub fn input() -> io::Result<Input> {
    Input::of(io::stdin().as_fd())
}

/// Opens the standard output.
///
/// # Errors
/// Those of the system, for example if the stream is closed.
///
/// # Examples
/// ```
/// use dunlin::io::{Bytes, standard};
/// # dunlin::block_on(async {
/// standard::output()?.write_all(&mut Bytes::from("krill\n")).await?;
/// # Ok::<(), dunlin::Error>(())
/// # }).unwrap();
/// ```
pub fn output() -> io::Result<Output> {
    Output::of(io::stdout().as_fd())
}

/// Opens the standard error.
///
/// # Errors
/// Those of the system, for example if the stream is closed.
pub fn error() -> io::Result<Output> {
    Output::of(io::stderr().as_fd())
}

/// The [standard input](input), or another descriptor that other programs share.
#[derive(Debug)]
pub struct Input(ReadMeans);

#[derive(Debug)]
enum ReadMeans {
    Ready(Descriptor),
    Calls {
        fd: Arc<OwnedFd>,
        work: Work<Bytes>,
        /// Bytes that a call has read and no operation has taken.
        rest: Bytes,
    },
}

impl Input {
    /// Reads a descriptor as it does the standard input: without changing it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(match non_blocking(fd, Interest::READABLE)? {
            Some(descriptor) => ReadMeans::Ready(descriptor),
            None => {
                ReadMeans::Calls { fd: Arc::new(fd.try_clone_to_owned()?), work: Work::default(), rest: Bytes::new() }
            }
        }))
    }

    /// Reads one piece of at most `max` bytes, and at most 1 MiB: the bytes available, or an empty piece at
    /// the end. A terminal gives a line at a time, and may continue after an end.
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
        IoOperation::new(Reading { means: &mut self.0, max })
    }

    /// Makes an ordinary receiver of it, and a process that reads up to 4 pieces ahead.
    ///
    /// It ends with the stream. An error poisons it, with its text. The process ends when the receiver is
    /// dropped.
    pub fn into_receiver(mut self) -> Receiver<Bytes> {
        let (tx, rx) = channel_with(fifo(PIECES));
        // The error has poisoned the channel.
        drop(spawn(async move { inward(&mut self, &mut Some(tx)).await }));
        rx
    }
}

/// The [standard output](output), or another descriptor that other programs share.
///
/// Dropped before a [`flush`](Self::flush), it may lose bytes that were handed to a [call](self). Dropping it
/// does not end the stream, which the program holds until it ends.
#[derive(Debug)]
pub struct Output(WriteMeans);

#[derive(Debug)]
enum WriteMeans {
    Ready(Descriptor),
    Calls { fd: Arc<OwnedFd>, work: Work<()> },
}

impl Output {
    /// Writes to a descriptor as it does to the standard output: without changing it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(match non_blocking(fd, Interest::WRITABLE)? {
            Some(descriptor) => WriteMeans::Ready(descriptor),
            None => WriteMeans::Calls { fd: Arc::new(fd.try_clone_to_owned()?), work: Work::default() },
        }))
    }

    /// Writes, or [hands over](self), as much of `bytes` as is possible at once, removes that from `bytes`,
    /// and returns its length. Empty `bytes` return `0` at once.
    ///
    /// # Errors
    /// Those of the system, also of an earlier write; and [`TimedOut`](io::ErrorKind::TimedOut) at a
    /// deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has written nothing.
    #[track_caller]
    pub fn write<'a>(&'a mut self, bytes: &'a mut Bytes) -> Write<'a> {
        IoOperation::new(Writing { means: &mut self.0, bytes })
    }

    /// Waits until all handed-over bytes are written. Returns at once where writes do not use calls.
    ///
    /// # Errors
    /// Those of the earlier writes, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, nothing is lost.
    #[track_caller]
    pub fn flush(&mut self) -> Flush<'_> {
        IoOperation::new(Flushing { means: &mut self.0 })
    }

    /// Writes all of `bytes`, piece by piece, and flushes.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline. Bytes that were not
    /// handed over are in `bytes`.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has written, or handed over, what it removed from
    /// `bytes`.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::{Bytes, standard};
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let mut output = standard::output()?;
    /// output.write_all(&mut Bytes::from("krill\n")).within(Duration::from_secs(5)).await?;
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn write_all<'a>(&'a mut self, bytes: &'a mut Bytes) -> WriteAll<'a> {
        IoOperation::new(WritingAll { means: &mut self.0, bytes })
    }

    /// Makes an ordinary sender of it, and a process that writes the pieces sent: the process ends when the
    /// sender has been dropped and all is written.
    ///
    /// Up to 4 pieces are in flight. An error poisons the sender, with its text, and the process returns it;
    /// poison of the sender also ends the process with an error.
    pub fn into_sender(mut self) -> (Sender<Bytes>, Process<io::Result<()>>) {
        let (tx, rx) = channel_with(fifo(PIECES));
        let process = spawn(async move {
            let written = outward(&mut self, rx).await;
            written.unwrap_or_else(|Poisoned(reason)| Err(io::Error::other(reason)))
        });
        (tx, process)
    }
}

impl Source for Input {
    fn piece(&mut self, max: usize) -> impl Branch<Output = io::Result<Bytes>> + Unpin + Send {
        self.read(max)
    }
}

impl Sink for Output {
    async fn put(&mut self, bytes: &mut Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            self.write(bytes).await?;
        }
        Ok(())
    }

    async fn end(&mut self) -> io::Result<()> {
        self.flush().await
    }
}

/// A descriptor of this program's own for the same stream; `None` where the stream needs calls.
#[cfg(target_os = "linux")]
fn non_blocking(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<Option<Descriptor>> {
    use rustix::fs::{Mode, OFlags, open};
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    let direction = if interest.is_readable() { OFlags::RDONLY } else { OFlags::WRONLY };
    let made = match kind {
        FileType::Fifo | FileType::CharacterDevice => {
            // The reopened stream has flags of its own.
            let flags = direction | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
            let again = open(format!("/proc/self/fd/{}", fd.as_raw_fd()), flags, Mode::empty());
            again.map_err(io::Error::from).and_then(|fd| Descriptor::new(fd, interest))
        }
        FileType::Socket => fd.try_clone_to_owned().and_then(|fd| Descriptor::of_shared_socket(fd, interest)),
        _ => return Ok(None),
    };
    // A stream of another user, one without `/proc`, or a device like `/dev/null`, which is never reported as
    // ready.
    Ok(made.ok())
}

#[cfg(not(target_os = "linux"))]
fn non_blocking(_: BorrowedFd<'_>, _: Interest) -> io::Result<Option<Descriptor>> {
    Ok(None)
}

/// A blocking call that operations wait for, and that outlives them.
#[derive(Debug, Default)]
enum Work<R> {
    #[default]
    None,
    /// The call waits for a place in the pool.
    Place(Room),
    Call(Blocking<io::Result<R>>),
}

impl<R: Send + 'static> Work<R> {
    /// Waits for the call, if there is one, and returns its result once.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<R>>> {
        let Self::Call(call) = self else {
            return Poll::Ready(Ok(None));
        };
        let gave = ready!(call.poll_unseen(cx));
        *self = Self::None;
        let gave = gave.unwrap_or_else(|error| Err(io::Error::other(error.to_string())));
        Poll::Ready(gave.map(Some))
    }

    /// Starts a call when the pool has a place for it.
    fn poll_start<C>(&mut self, call: impl FnOnce() -> C, cx: &mut Context<'_>) -> Poll<()>
    where
        C: FnOnce(&Stop) -> io::Result<R> + Send + 'static,
    {
        if let Self::None = self {
            *self = Self::Place(room());
        }
        if let Self::Place(place) = self {
            let place = ready!(place.poll_unseen(cx));
            *self = Self::Call(place.blocking(call()));
        }
        Poll::Ready(())
    }
}

/// Reads the available bytes, once there are any.
fn read(stop: &Stop, fd: &OwnedFd, max: usize) -> io::Result<Bytes> {
    if waits(fd)? && stop.wait_for(fd.as_fd(), For::Read)? == Readiness::Asked {
        // The stream was dropped.
        return Ok(Bytes::new());
    }
    let max = max.min(READ_MAX);
    let mut piece = Vec::with_capacity(max);
    loop {
        match rustix::io::read(fd, spare_capacity(&mut piece)) {
            Ok(_) => return Ok(whole(piece, max)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn write(fd: &OwnedFd, mut bytes: Bytes) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(fd, &bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => drop(bytes.split_to(written)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether the system reports when there is something to read.
fn waits(fd: &OwnedFd) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode);
    Ok(!matches!(kind, FileType::RegularFile | FileType::Directory | FileType::BlockDevice))
}

/// The operation of [`Input::read`].
pub type Read<'a> = IoOperation<Reading<'a>>;

/// The operation of [`Output::write`].
pub type Write<'a> = IoOperation<Writing<'a>>;

/// The operation of [`Output::write_all`].
pub type WriteAll<'a> = IoOperation<WritingAll<'a>>;

/// The operation of [`Output::flush`].
pub type Flush<'a> = IoOperation<Flushing<'a>>;

#[doc(hidden)]
#[derive(Debug)]
pub struct Reading<'a> {
    means: &'a mut ReadMeans,
    max: usize,
}

impl Action for Reading<'_> {
    type Output = Bytes;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        match self.means {
            ReadMeans::Ready(descriptor) => descriptor.poll_read(self.max, cx),
            ReadMeans::Calls { fd, work, rest } => {
                if rest.is_empty() {
                    let max = self.max;
                    ready!(work.poll_start(
                        || {
                            let fd = fd.clone();
                            move |stop: &Stop| read(stop, &fd, max)
                        },
                        cx
                    ));
                    *rest = ready!(work.poll_over(cx))?.unwrap_or_default();
                }
                Poll::Ready(Ok(rest.split_to(self.max.min(rest.len()))))
            }
        }
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Writing<'a> {
    means: &'a mut WriteMeans,
    bytes: &'a mut Bytes,
}

impl Action for Writing<'_> {
    type Output = usize;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.means.poll_write(self.bytes, cx)
    }
}

impl WriteMeans {
    fn poll_write(&mut self, bytes: &mut Bytes, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            Self::Ready(descriptor) => descriptor.poll_write(bytes, cx),
            Self::Calls { .. } if bytes.is_empty() => Poll::Ready(Ok(0)),
            Self::Calls { fd, work } => {
                ready!(work.poll_over(cx))?;
                let length = bytes.len().min(PIECE_MAX);
                ready!(work.poll_start(
                    || {
                        let (fd, piece) = (fd.clone(), bytes.split_to(length));
                        move |_: &Stop| write(&fd, piece)
                    },
                    cx
                ));
                Poll::Ready(Ok(length))
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Ready(_) => Poll::Ready(Ok(())),
            Self::Calls { work, .. } => work.poll_over(cx).map_ok(|_| ()),
        }
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct WritingAll<'a> {
    means: &'a mut WriteMeans,
    bytes: &'a mut Bytes,
}

impl Action for WritingAll<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            ready!(self.means.poll_write(self.bytes, cx))?;
        }
        self.means.poll_flush(cx)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Flushing<'a> {
    means: &'a mut WriteMeans,
}

impl Action for Flushing<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.means.poll_flush(cx)
    }
}
