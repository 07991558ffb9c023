//! A non-blocking descriptor that the system reports as ready. Unix only.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::net::{RecvFlags, SendFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::operation::READ_MAX;

/// A pipe, a terminal or a socket, used in one direction.
#[derive(Debug)]
pub(super) struct Descriptor {
    fd: AsyncFd<OwnedFd>,
    manner: Manner,
    /// Its readiness is not known yet. A FIFO without a writer is at its end, but is never reported as ready.
    fresh: bool,
}

/// How an operation avoids blocking.
#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    /// The descriptor is non-blocking.
    Set,
    /// Each operation on the socket sets the flag, since other programs share the descriptor.
    #[cfg(target_os = "linux")]
    Said,
}

impl Descriptor {
    /// Sets `fd` non-blocking, for all its holders.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        if !flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        }
        Ok(Self { fd: register(fd, interest)?, manner: Manner::Set, fresh: true })
    }

    /// Leaves the socket's flags as they are.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[cfg(target_os = "linux")]
    pub(super) fn of_shared_socket(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        Ok(Self { fd: register(fd, interest)?, manner: Manner::Said, fresh: true })
    }

    /// Reads one piece of 1 to `max` bytes, or none at the end. It allocates only once bytes are ready.
    pub(super) fn poll_read(&mut self, max: usize, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if self.fresh {
            match read(self.fd.get_ref(), self.manner, max) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.fresh = false,
                read => return Poll::Ready(read),
            }
        }
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            if let Ok(done) = ready.try_io(|fd| read(fd.get_ref(), self.manner, max)) {
                return Poll::Ready(done);
            }
        }
    }

    /// Writes as much as the system takes at once, and removes that from `bytes`.
    pub(super) fn poll_write(&mut self, bytes: &mut Bytes, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            let mut ready = ready!(self.fd.poll_write_ready(cx))?;
            if let Ok(done) = ready.try_io(|fd| write(fd.get_ref(), self.manner, bytes)) {
                let written = done?;
                bytes.advance(written);
                return Poll::Ready(Ok(written));
            }
        }
    }
}

/// Registers `fd` with the system for readiness.
///
/// # Panics
/// Outside a tokio runtime.
#[allow(deprecated, reason = "it is for descriptors that others may close, which the owner of this one excludes")]
pub(super) fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

pub(super) fn read(fd: &OwnedFd, manner: Manner, max: usize) -> io::Result<Bytes> {
    let max = max.min(READ_MAX);
    let mut piece = Vec::with_capacity(max);
    loop {
        let read = match manner {
            Manner::Set => rustix::io::read(fd, spare_capacity(&mut piece)),
            #[cfg(target_os = "linux")]
            Manner::Said => {
                rustix::net::recv(fd, spare_capacity(&mut piece), RecvFlags::DONTWAIT).map(|(read, _)| read)
            }
        };
        match read {
            Ok(_) => return Ok(whole(piece, max)),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(super) fn write(fd: &OwnedFd, manner: Manner, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let written = match manner {
            Manner::Set => rustix::io::write(fd, bytes),
            #[cfg(target_os = "linux")]
            Manner::Said => rustix::net::send(fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => return Ok(written),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// A piece that was read into room for `max` bytes, without keeping much more than itself alive.
pub(super) fn whole(piece: Vec<u8>, max: usize) -> Bytes {
    if piece.len() < max / 2 { piece.into_boxed_slice().into() } else { piece.into() }
}
