//! TCP sockets.

use std::io;

use tokio::net::{TcpStream, ToSocketAddrs};

use super::connection::Connection;
use super::listener::Listener;
use super::operation::{Action, Awaiting, IoOperation};
use super::stream::Stream;

/// Listens at an address of this machine: `host:port`, or a [`SocketAddr`](std::net::SocketAddr). Port 0
/// selects a free one, which [`Listener::address`] returns.
///
/// # Errors
/// Those of the system: [`AddrInUse`](io::ErrorKind::AddrInUse) if the port is taken.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn listen(address: impl ToSocketAddrs) -> io::Result<Listener> {
    Listener::tcp(crate::tcp::listen(address).await?)
}

/// Connects to `host:port`, or to a [`SocketAddr`](std::net::SocketAddr). If a host has several addresses,
/// the first one that answers is used.
///
/// Without a deadline it waits as long as the system does, which is minutes.
///
/// # Errors
/// Those of the system: [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if nothing listens there.
/// [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
///
/// # Cancel safety
/// Dropped, not chosen, or after its deadline, it has no connection. The listener may have had one, and finds
/// it closed.
///
/// # Panics
/// When polled outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::{Connection, tcp};
/// use dunlin::prelude::*;
///
/// async fn connect(address: &str) -> std::io::Result<Connection> {
///     tcp::connect(address).within(Duration::from_secs(5)).await
/// }
/// # dunlin::block_on(async {
/// # let listener = tcp::listen("127.0.0.1:0").await?;
/// connect(&listener.address()?.to_string()).await?;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[track_caller]
pub fn connect(address: impl ToSocketAddrs) -> IoOperation<impl Action<Output = Connection>> {
    IoOperation::new(Awaiting::new(async {
        let stream = TcpStream::connect(address).await?;
        // A connection has no buffer, so each write is complete: it need not wait for more.
        stream.set_nodelay(true)?;
        Ok(Connection::new(Stream::Tcp(stream)))
    }))
}
