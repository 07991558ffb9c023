//! A stream socket of any kind.

use std::io;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::buf::Limit;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use socket2::SockRef;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

#[cfg(target_os = "linux")]
use super::accepted::Accepted;
use super::address::Address;
use super::operation::READ_MAX;

/// All of its methods take `&self`, since the system lets one side read while the other writes.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
    /// Of either kind.
    #[cfg(target_os = "linux")]
    Accepted(Accepted),
}

/// Does the same with each kind.
macro_rules! each {
    ($stream:expr, $socket:ident => $does:expr) => {
        match $stream {
            Stream::Tcp($socket) => $does,
            #[cfg(unix)]
            Stream::Unix($socket) => $does,
            #[cfg(target_os = "linux")]
            Stream::Accepted($socket) => $does,
        }
    };
}

impl Stream {
    /// Reads one piece of 1 to `max` bytes, or none at the end. It allocates only once bytes are ready.
    pub(super) fn poll_read(&self, max: usize, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let max = max.min(READ_MAX);
        loop {
            ready!(each!(self, socket => socket.poll_read_ready(cx)))?;
            match self.try_read(max) {
                // Another reader was faster, or the readiness was stale.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }

    fn try_read(&self, max: usize) -> io::Result<Bytes> {
        match self {
            Self::Tcp(socket) => read_piece(max, |room| socket.try_read_buf(room)),
            #[cfg(unix)]
            Self::Unix(socket) => read_piece(max, |room| socket.try_read_buf(room)),
            #[cfg(target_os = "linux")]
            Self::Accepted(socket) => socket.try_read(max),
        }
    }

    /// Writes as much as the system takes at once, and removes that from `bytes`.
    pub(super) fn poll_write(&self, bytes: &mut Bytes, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            ready!(each!(self, socket => socket.poll_write_ready(cx)))?;
            match each!(self, socket => socket.try_write(bytes)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => {
                    bytes.advance(written);
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Ready when the system takes bytes. It polls the socket, since tokio is not notified of writes by other
    /// system calls.
    #[cfg(unix)]
    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let fd = self.as_fd();
        let look = || match poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&Timespec::default())) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            looked => looked.map(drop).map_err(io::Error::from),
        };
        loop {
            ready!(each!(self, socket => socket.poll_write_ready(cx)))?;
            match each!(self, socket => socket.try_io(tokio::io::Interest::WRITABLE, look)) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                looked => return Poll::Ready(looked),
            }
        }
    }

    #[cfg(unix)]
    pub(super) fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        each!(self, socket => socket.as_fd())
    }

    /// Sends the end of this side's output.
    pub(super) fn finish(&self) -> io::Result<()> {
        match each!(self, socket => SockRef::from(socket).shutdown(Shutdown::Write)) {
            // The connection has been reset, or closed by both sides: the peer awaits nothing.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            done => done,
        }
    }

    /// Lets the drop reset the connection instead of closing it: the peer does not take that for an end. Unix
    /// sockets have no reset.
    pub(super) fn reset(self) {
        match &self {
            Self::Tcp(socket) => {
                let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            }
            #[cfg(unix)]
            Self::Unix(_) => {}
            #[cfg(target_os = "linux")]
            Self::Accepted(socket) => {
                let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
            }
        }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Self::Unix(socket) => socket.local_addr().map(Address::from),
            #[cfg(target_os = "linux")]
            Self::Accepted(socket) => socket.address(),
        }
    }

    pub(super) fn peer(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(socket) => socket.peer_addr().map(Address::Tcp),
            #[cfg(unix)]
            Self::Unix(socket) => socket.peer_addr().map(Address::from),
            #[cfg(target_os = "linux")]
            Self::Accepted(socket) => socket.peer(),
        }
    }
}

/// Reads at most `max` bytes into new memory.
fn read_piece(max: usize, read: impl FnOnce(&mut Limit<&mut BytesMut>) -> io::Result<usize>) -> io::Result<Bytes> {
    let mut piece = BytesMut::with_capacity(max);
    let read = read(&mut (&mut piece).limit(max))?;
    // A short piece would keep the whole buffer alive.
    Ok(if read < max / 2 { Bytes::copy_from_slice(&piece) } else { piece.freeze() })
}
