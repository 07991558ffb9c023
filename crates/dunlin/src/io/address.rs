//! Where a socket is.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The address of a socket, or of its peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// Of the internet.
    Tcp(SocketAddr),
    /// Of a unix socket; `None` if it has no path, as that of a client.
    Unix(Option<PathBuf>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(Some(path)) => path.display().fmt(f),
            Self::Unix(None) => f.write_str("a unix socket without a path"),
        }
    }
}

#[cfg(unix)]
impl From<tokio::net::unix::SocketAddr> for Address {
    fn from(address: tokio::net::unix::SocketAddr) -> Self {
        Self::Unix(address.as_pathname().map(PathBuf::from))
    }
}

#[cfg(target_os = "linux")]
impl From<socket2::SockAddr> for Address {
    fn from(address: socket2::SockAddr) -> Self {
        let unix = || Self::Unix(address.as_pathname().map(PathBuf::from));
        address.as_socket().map_or_else(unix, Self::Tcp)
    }
}
