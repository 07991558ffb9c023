//! A socket that a listener has accepted: the runtime watches it only from the first wait on. Linux only.
//!
//! Most clients of a server have sent their request when their connection is accepted, and take a short
//! response at once. Such a connection is read, written and closed without two calls of `epoll_ctl`, and
//! without a wake-up of its process.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::SockRef;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;
use tokio::task::coop::consume_budget;

use super::address::Address;
use super::descriptor::{self, Manner, register};

/// A listening socket.
#[derive(Debug)]
pub(super) struct Listening {
    fd: AsyncFd<OwnedFd>,
    /// Watches the connections.
    runtime: Handle,
}

impl Listening {
    /// # Panics
    /// Outside a tokio runtime.
    pub(super) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self { fd: register(fd, Interest::READABLE)?, runtime: Handle::current() })
    }

    pub(super) fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        loop {
            let mut ready = ready!(self.fd.poll_read_ready(cx))?;
            if let Ok(accepted) = ready.try_io(|fd| Ok(acceptfrom_with(fd, flags)?)) {
                return Poll::Ready(accepted.map(|(socket, peer)| Accepted {
                    watched: OnceLock::new(),
                    socket,
                    peer: peer.and_then(|peer| peer.try_into().ok()),
                    runtime: self.runtime.clone(),
                }));
            }
        }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        SockRef::from(&self.fd).local_addr().map(Address::from)
    }
}

/// An accepted socket. All operations set the flag "do not wait", and none raises `SIGPIPE`.
#[derive(Debug)]
pub(super) struct Accepted {
    /// The registration, from the first operation on that would have waited. Before `socket`, since it is
    /// dropped first.
    watched: OnceLock<io::Result<AsyncFd<RawFd>>>,
    socket: OwnedFd,
    /// The address that came with the connection, if it is of the internet.
    peer: Option<SocketAddr>,
    runtime: Handle,
}

impl Accepted {
    /// Ready if a read may return bytes.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.watched()? {
            None => pin!(consume_budget()).poll(cx).map(Ok),
            Some(watched) => watched.poll_read_ready(cx).map_ok(drop),
        }
    }

    /// Ready if a write may take bytes.
    pub(super) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.watched()? {
            None => pin!(consume_budget()).poll(cx).map(Ok),
            Some(watched) => watched.poll_write_ready(cx).map_ok(drop),
        }
    }

    /// Reads one piece of at most `max` bytes.
    pub(super) fn try_read(&self, max: usize) -> io::Result<Bytes> {
        self.try_io(Interest::READABLE, || descriptor::read(&self.socket, Manner::Said, max))
    }

    /// Writes as much of `bytes` as the system takes.
    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_io(Interest::WRITABLE, || descriptor::write(&self.socket, Manner::Said, bytes))
    }

    /// Performs an operation that does not wait. If it returns `WouldBlock`, the socket is not ready until
    /// the system reports that it is.
    pub(super) fn try_io<R>(&self, interest: Interest, operation: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        if let Some(watched) = self.watched()? {
            return watched.try_io(interest, |_| operation());
        }
        let done = operation();
        if done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // A process in another runtime, or in none, may be the one that waits.
            let _runtime = self.runtime.enter();
            self.watched.get_or_init(|| watch(&self.socket));
        }
        done
    }

    fn watched(&self) -> io::Result<Option<&AsyncFd<RawFd>>> {
        match self.watched.get() {
            None => Ok(None),
            Some(Ok(watched)) => Ok(Some(watched)),
            // An error has no clone.
            Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }

    pub(super) fn address(&self) -> io::Result<Address> {
        SockRef::from(self).local_addr().map(Address::from)
    }

    pub(super) fn peer(&self) -> io::Result<Address> {
        self.peer.map_or_else(|| SockRef::from(self).peer_addr().map(Address::from), |peer| Ok(Address::Tcp(peer)))
    }
}

impl AsFd for Accepted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[allow(deprecated, reason = "it is for descriptors that others may close; `Accepted` owns this one")]
fn watch(socket: &OwnedFd) -> io::Result<AsyncFd<RawFd>> {
    AsyncFd::new(socket.as_raw_fd())
}
