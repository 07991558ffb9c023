//! A connection: its reads, its writes, and its close.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::address::Address;
use super::operation::{Action, IoOperation};
use super::stream::Stream;

/// A stream of bytes from and to a peer: a TCP or unix socket.
///
/// It is a value, without a channel or a process. It has no buffer either: while idle it costs no memory
/// beyond its socket, and small writes are sent as they are. Dropping it closes it, at once.
///
/// # Examples
/// ```
/// use dunlin::io::{Bytes, tcp};
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let mut listener = tcp::listen("127.0.0.1:0").await?;
/// let mut client = tcp::connect(listener.address()?.to_string()).await?;
/// let mut server = listener.accept().await?;
/// client.write_all(&mut Bytes::from("krill")).await?;
/// client.finish()?;
/// let (_tx, mut rx) = channel::<u8>();
/// alt! {
///     piece = server.read(4096) => assert_eq!(piece?, "krill"),
///     n = rx.recv() => panic!("{n:?}"),
/// }
/// assert!(server.read(4096).await?.is_empty(), "the client has ended");
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
}

impl Connection {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream }
    }

    /// Reads one piece of at most `max` bytes, and at most 1 MiB: the bytes available, or an empty piece when
    /// the peer has ended.
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
        read(&self.stream, max)
    }

    /// Writes as much of `bytes` as the system takes at once, removes that from `bytes`, and returns its
    /// length. Empty `bytes` return `0` at once.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has written nothing.
    #[track_caller]
    pub fn write<'a>(&'a mut self, bytes: &'a mut Bytes) -> Write<'a> {
        write(&self.stream, bytes)
    }

    /// Writes all of `bytes`, piece by piece. A peer that does not read keeps this waiting: set a deadline.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline. The unwritten rest is in
    /// `bytes`.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has written what it removed from `bytes`. Called again
    /// with the same `bytes`, it writes the rest.
    ///
    /// # Examples
    /// ```
    /// use dunlin::io::Bytes;
    /// use dunlin::prelude::*;
    /// # #[cfg(unix)]
    /// # dunlin::block_on(async {
    /// let (mut here, mut there) = dunlin::io::unix::pair()?;
    /// here.write_all(&mut Bytes::from("krill")).within(Duration::from_secs(5)).await?;
    /// assert_eq!(there.read(4096).await?, "krill");
    ///
    /// // More than the system keeps for a peer that does not read.
    /// let mut bytes = Bytes::from(vec![7; 10_000_000]);
    /// let late = here.write_all(&mut bytes).within(Duration::from_millis(1)).await.unwrap_err();
    /// assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
    /// assert!(!bytes.is_empty());
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    #[track_caller]
    pub fn write_all<'a>(&'a mut self, bytes: &'a mut Bytes) -> WriteAll<'a> {
        write_all(&self.stream, bytes)
    }

    /// Waits until the system takes bytes, or the connection has failed: for system calls on
    /// [its descriptor](std::os::fd::AsFd), such as `sendfile`. They do not wait, as the socket is
    /// non-blocking. Unix only.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// It has no effect.
    #[cfg(unix)]
    #[track_caller]
    pub fn writable(&mut self) -> Writable<'_> {
        IoOperation::new(AwaitingRoom { stream: &self.stream })
    }

    /// Sends the end of this side's output. The peer may continue to write, and this side to read. Does not
    /// wait.
    ///
    /// # Errors
    /// Those of the system. A connection that has ended gives none.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.finish()
    }

    /// Ends this side's output and waits until the peer has ended too. Bytes that arrive until then are
    /// discarded, and counted.
    ///
    /// Closing a socket while bytes arrive resets it, and the peer may lose the last bytes written to it.
    /// This does not happen with `close`. A peer may never end: set a deadline.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Once polled, it has sent the end, also if it is not chosen or its deadline passes. It can be called
    /// again.
    #[track_caller]
    pub fn close(&mut self) -> Close<'_> {
        IoOperation::new(Closing { stream: &self.stream, ended: false, discarded: 0 })
    }

    /// Both directions, to read and write at once: in two branches of a choice, or of a `par!`.
    pub fn split(&mut self) -> (Reader<'_>, Writer<'_>) {
        (Reader { stream: &self.stream }, Writer { stream: &self.stream })
    }

    /// The address of this side.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<Address> {
        self.stream.address()
    }

    /// The address of the peer.
    ///
    /// # Errors
    /// Those of the system; a connection that was reset has no peer.
    pub fn peer(&self) -> io::Result<Address> {
        self.stream.peer()
    }

    pub(super) fn reset(self) {
        self.stream.reset();
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for Connection {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// The reading side of a [connection](Connection::split).
#[derive(Debug)]
pub struct Reader<'a> {
    stream: &'a Stream,
}

impl Reader<'_> {
    /// As [`Connection::read`].
    ///
    /// # Panics
    /// If `max` is zero.
    #[track_caller]
    pub fn read(&mut self, max: usize) -> Read<'_> {
        read(self.stream, max)
    }
}

/// The writing side of a [connection](Connection::split).
#[derive(Debug)]
pub struct Writer<'a> {
    stream: &'a Stream,
}

impl Writer<'_> {
    /// As [`Connection::write`].
    #[track_caller]
    pub fn write<'a>(&'a mut self, bytes: &'a mut Bytes) -> Write<'a> {
        write(self.stream, bytes)
    }

    /// As [`Connection::write_all`].
    ///
    /// # Errors
    /// As there.
    #[track_caller]
    pub fn write_all<'a>(&'a mut self, bytes: &'a mut Bytes) -> WriteAll<'a> {
        write_all(self.stream, bytes)
    }

    /// As [`Connection::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.finish()
    }
}

/// The operation of [`Connection::read`].
pub type Read<'a> = IoOperation<Reading<'a>>;

/// The operation of [`Connection::write`].
pub type Write<'a> = IoOperation<Writing<'a>>;

/// The operation of [`Connection::write_all`].
pub type WriteAll<'a> = IoOperation<WritingAll<'a>>;

/// The operation of [`Connection::writable`].
#[cfg(unix)]
pub type Writable<'a> = IoOperation<AwaitingRoom<'a>>;

/// The operation of [`Connection::close`].
pub type Close<'a> = IoOperation<Closing<'a>>;

#[track_caller]
fn read(stream: &Stream, max: usize) -> Read<'_> {
    assert!(max > 0, "a read of no bytes would look like the end");
    IoOperation::new(Reading { stream, max })
}

#[track_caller]
fn write<'a>(stream: &'a Stream, bytes: &'a mut Bytes) -> Write<'a> {
    IoOperation::new(Writing { stream, bytes })
}

#[track_caller]
fn write_all<'a>(stream: &'a Stream, bytes: &'a mut Bytes) -> WriteAll<'a> {
    IoOperation::new(WritingAll { stream, bytes })
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Reading<'a> {
    stream: &'a Stream,
    max: usize,
}

impl Action for Reading<'_> {
    type Output = Bytes;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        self.stream.poll_read(self.max, cx)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Writing<'a> {
    stream: &'a Stream,
    bytes: &'a mut Bytes,
}

impl Action for Writing<'_> {
    type Output = usize;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.stream.poll_write(self.bytes, cx)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct WritingAll<'a> {
    stream: &'a Stream,
    bytes: &'a mut Bytes,
}

impl Action for WritingAll<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() {
            ready!(self.stream.poll_write(self.bytes, cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(unix)]
#[doc(hidden)]
#[derive(Debug)]
pub struct AwaitingRoom<'a> {
    stream: &'a Stream,
}

#[cfg(unix)]
impl Action for AwaitingRoom<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_writable(cx)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Closing<'a> {
    stream: &'a Stream,
    ended: bool,
    discarded: u64,
}

/// The size of the pieces in which discarded bytes are read.
const DISCARDED_MAX: usize = 16 << 10;

impl Action for Closing<'_> {
    type Output = u64;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if !std::mem::replace(&mut self.ended, true) {
            self.stream.finish()?;
        }
        // Each piece takes from the task's budget, so a flooding peer does not hold it up.
        loop {
            let piece = ready!(self.stream.poll_read(DISCARDED_MAX, cx))?;
            if piece.is_empty() {
                return Poll::Ready(Ok(self.discarded));
            }
            self.discarded += piece.len() as u64;
        }
    }
}
