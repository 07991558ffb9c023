//! UDP sockets.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;
use tokio::net::{ToSocketAddrs, UdpSocket};

use super::operation::{Action, IoOperation};

/// Sends and receives datagrams. Datagrams may get lost, arrive twice, or out of order.
///
/// # Examples
/// ```
/// use dunlin::io::udp;
/// # dunlin::block_on(async {
/// let (mut here, mut there) = (udp::bind("127.0.0.1:0").await?, udp::bind("127.0.0.1:0").await?);
/// here.send_to(b"krill", there.address()?).await?;
/// let (datagram, from) = there.recv_from(1500).await?;
/// assert_eq!((&*datagram, from), (&b"krill"[..], here.address()?));
/// # Ok::<(), dunlin::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Socket(UdpSocket);

/// Binds a socket to an address of this machine. Port 0 selects a free one, which [`Socket::address`]
/// returns.
///
/// # Errors
/// Those of the system: [`AddrInUse`](io::ErrorKind::AddrInUse) if the port is taken.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn bind(address: impl ToSocketAddrs) -> io::Result<Socket> {
    UdpSocket::bind(address).await.map(Socket)
}

impl Socket {
    /// Sends one datagram, whole.
    ///
    /// # Errors
    /// Those of the system: for example, that it is too large, or that earlier datagrams were refused.
    /// [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has sent nothing.
    #[track_caller]
    pub fn send_to<'a>(&'a mut self, datagram: &'a [u8], to: SocketAddr) -> SendTo<'a> {
        IoOperation::new(Sending { socket: &self.0, datagram, to })
    }

    /// Receives one datagram, keeps at most `max` bytes of it, and returns the sender's address.
    ///
    /// # Errors
    /// Those of the system. [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has taken no datagram.
    #[track_caller]
    pub fn recv_from(&mut self, max: usize) -> RecvFrom<'_> {
        IoOperation::new(Receiving { socket: &self.0, max })
    }

    /// Its own address.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// The operation of [`Socket::send_to`].
pub type SendTo<'a> = IoOperation<Sending<'a>>;

/// No datagram is longer.
const DATAGRAM_MAX: usize = 64 << 10;

/// The operation of [`Socket::recv_from`].
pub type RecvFrom<'a> = IoOperation<Receiving<'a>>;

#[doc(hidden)]
#[derive(Debug)]
pub struct Sending<'a> {
    socket: &'a UdpSocket,
    datagram: &'a [u8],
    to: SocketAddr,
}

impl Action for Sending<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_send_to(cx, self.datagram, self.to).map_ok(|_| ())
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct Receiving<'a> {
    socket: &'a UdpSocket,
    max: usize,
}

impl Action for Receiving<'_> {
    type Output = (Bytes, SocketAddr);

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Bytes, SocketAddr)>> {
        // It allocates only once a datagram is ready.
        ready!(self.socket.poll_recv_ready(cx))?;
        let mut room = vec![0; self.max.min(DATAGRAM_MAX)];
        let mut read = ReadBuf::new(&mut room);
        let from = ready!(self.socket.poll_recv_from(cx, &mut read))?;
        let length = read.filled().len();
        room.truncate(length);
        Poll::Ready(Ok((room.into(), from)))
    }
}
