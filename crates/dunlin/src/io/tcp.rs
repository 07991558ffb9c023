//! TCP sockets.

use std::io;

use tokio::net::{TcpStream, ToSocketAddrs};

use super::connection::Connection;
use super::listener::Listener;
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
/// It has no deadline but the system's, of minutes, and no `.within`: make it a branch with
/// [`future`](crate::future()) beside a [`sleep`](crate::sleep()).
///
/// # Errors
/// Those of the system: [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if nothing listens there.
///
/// # Cancel safety
/// Dropped, it has no connection.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::{Connection, tcp};
/// use dunlin::prelude::*;
///
/// async fn connect(address: &str) -> Result<Connection> {
///     alt! {
///         connection = future(tcp::connect(address)) => Ok(connection?),
///         _ = sleep(Duration::from_secs(5)) => Err(Error::other(format!("{address} does not answer"))),
///     }
/// }
/// # dunlin::block_on(async {
/// # let listener = tcp::listen("127.0.0.1:0").await?;
/// connect(&listener.address()?.to_string()).await?;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub async fn connect(address: impl ToSocketAddrs) -> io::Result<Connection> {
    let stream = TcpStream::connect(address).await?;
    // A connection has no buffer, so each write is complete: it need not wait for more.
    stream.set_nodelay(true)?;
    Ok(Connection::new(Stream::Tcp(stream)))
}
