//! TCP listeners, of nodes and of `dunlin::io`.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs, lookup_host};

/// How many connections may wait to be accepted. The standard library asks for 128. Linux drops connections
/// beyond the limit, and their clients retry after a second, which many simultaneous clients would hit. The
/// system may allow fewer.
const WAITING_MAX: u32 = 4_096;

/// Listens at the first of these addresses that is available.
pub(crate) async fn listen(addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut failed = None;
    for address in lookup_host(addresses).await? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            // If one address is in use and the next unknown, the first error is the one to report.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As the standard library does: a port can be reused while connections of an ended program linger. On
    // Windows this would let two programs share a port.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}
