//! Unix sockets. Unix only.

use std::io;
use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

use super::connection::Connection;
use super::listener::Listener;
use super::operation::{Action, Awaiting, IoOperation};
use super::stream::Stream;

/// Listens at a path, where it makes a socket. The file stays when the listener is dropped.
///
/// # Errors
/// Those of the system: [`AddrInUse`](io::ErrorKind::AddrInUse) if the file exists, even if nothing listens
/// there any more.
///
/// # Panics
/// Outside a tokio runtime.
pub fn listen(path: impl AsRef<Path>) -> io::Result<Listener> {
    Listener::unix(UnixListener::bind(path)?)
}

/// Connects to the socket at a path.
///
/// # Errors
/// Those of the system: [`NotFound`](io::ErrorKind::NotFound) if there is none,
/// [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if nothing listens there.
/// [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
///
/// # Cancel safety
/// Dropped, not chosen, or after its deadline, it has no connection.
///
/// # Panics
/// When polled outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::unix;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// # let path = std::env::temp_dir().join(format!("dunlin-connect-{}", std::process::id()));
/// let mut listener = unix::listen(&path)?;
/// let client = unix::connect(&path).within(Duration::from_secs(5)).await?;
/// # std::fs::remove_file(&path)?;
/// listener.accept().await?;
/// # drop(client);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[track_caller]
pub fn connect(path: impl AsRef<Path>) -> IoOperation<impl Action<Output = Connection>> {
    IoOperation::new(Awaiting::new(async {
        UnixStream::connect(path).await.map(|stream| Connection::new(Stream::Unix(stream)))
    }))
}

/// Two connections that are each other's peer.
///
/// # Errors
/// Those of the system.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::{Bytes, unix};
/// # dunlin::block_on(async {
/// let (mut here, mut there) = unix::pair()?;
/// here.write_all(&mut Bytes::from("krill")).await?;
/// assert_eq!(there.read(4096).await?, "krill");
/// # Ok::<(), dunlin::Error>(())
/// # }).unwrap();
/// ```
pub fn pair() -> io::Result<(Connection, Connection)> {
    let (here, there) = UnixStream::pair()?;
    Ok((Connection::new(Stream::Unix(here)), Connection::new(Stream::Unix(there))))
}
