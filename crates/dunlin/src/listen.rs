//! TCP listeners, of nodes and of `dunlin::io`.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, ToSocketAddrs, lookup_host};

/// So many connections wait to be accepted. The standard library asks for 128; what comes beyond is dropped
/// by Linux, and tried again after a second, which many clients at once would meet. The system may allow
/// fewer.
const WAITING_MAX: u32 = 4_096;

/// Listens at the first of these addresses that can be had.
pub(crate) async fn listen(addresses: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut failed = None;
    for address in lookup_host(addresses).await? {
        match listen_at(address) {
            Ok(listener) => return Ok(listener),
            // In use at one address and unknown at the next, the first is what there is to be told.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
}

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // As the standard library: a port may be had again while connections of a program that has ended linger.
    // On Windows two programs could have one port by this.
    #[cfg(not(windows))]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING_MAX)
}
