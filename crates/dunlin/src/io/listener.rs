//! A listener: a receiver of connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dunlin_core::{Receiver, alt, channel};
#[cfg(target_os = "linux")]
use socket2::SockRef;
use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;

#[cfg(target_os = "linux")]
use super::accepted::Listening as Socket;
use super::address::Address;
use super::connection::Connection;
use super::operation::{Action, IoOperation};
use super::spawn;
use super::stream::Stream;
use crate::{Sleep, sleep};

/// Accepts connections, one by one: made by [`tcp::listen`](super::tcp::listen) and `unix::listen`.
///
/// Connections that have not been accepted wait in the system. Dropping the listener refuses them.
///
/// # Examples
/// ```
/// use dunlin::io::tcp;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let mut listener = tcp::listen("127.0.0.1:0").await?;
/// let (mut stop, mut stopped) = channel::<()>();
/// # let server = spawn(async move {
/// loop {
///     alt! {
///         connection = listener.accept() => println!("a client: {}", connection?.peer()?),
///         _ = stopped.recv() => return Ok(()),
///     }
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Error>(()) });
/// # stop.send(()).await?;
/// # server.await??;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Listener(Socket);

#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Listener {
    pub(super) fn tcp(listener: TcpListener) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        {
            // An accepted socket inherits the option.
            SockRef::from(&listener).set_tcp_nodelay(true)?;
            Socket::new(listener.into_std()?.into()).map(Self)
        }
        #[cfg(not(target_os = "linux"))]
        Ok(Self(Socket::Tcp(listener)))
    }

    #[cfg(unix)]
    pub(super) fn unix(listener: UnixListener) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        return Socket::new(listener.into_std()?.into()).map(Self);
        #[cfg(not(target_os = "linux"))]
        Ok(Self(Socket::Unix(listener)))
    }

    /// Accepts the next connection.
    ///
    /// A client that leaves before it is accepted is skipped. While the program, or the system, has no
    /// descriptor or memory left, this tries again every 100 ms.
    ///
    /// # Errors
    /// Those of the system, and [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has taken no connection.
    #[track_caller]
    pub fn accept(&mut self) -> Accept<'_> {
        IoOperation::new(Accepting { socket: &self.0, pause: None })
    }

    /// Makes an ordinary receiver of it, and a process that accepts: for several processes that share it, or
    /// for blocks and farms.
    ///
    /// The process accepts one connection ahead. It ends when the receiver is gone. An error of the listener
    /// poisons the channel, with its text.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn into_receiver(mut self) -> Receiver<Connection> {
        let (mut tx, rx) = channel();
        drop(spawn(async move {
            loop {
                let accepted = alt! { biased;
                    () = tx.closed() => return,
                    accepted = self.accept() => accepted,
                };
                match accepted {
                    Ok(connection) => {
                        if tx.send(connection).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => return tx.poison(error.to_string()),
                }
            }
        }));
        rx
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Those of the system.
    pub fn address(&self) -> io::Result<Address> {
        self.0.address()
    }
}

/// The operation of [`Listener::accept`].
pub type Accept<'a> = IoOperation<Accepting<'a>>;

#[doc(hidden)]
#[derive(Debug)]
pub struct Accepting<'a> {
    socket: &'a Socket,
    /// Until it tries again.
    pause: Option<Pin<Box<Sleep>>>,
}

/// The system reports when a connection comes, but not when a descriptor becomes free.
const PAUSE: Duration = Duration::from_millis(100);

impl Action for Accepting<'_> {
    type Output = Connection;

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Connection>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(poll_accept(self.socket, cx)) {
                Ok(stream) => return Poll::Ready(Ok(Connection::new(stream))),
                Err(error) if is_of_the_client(&error) => {}
                Err(error) if is_scarce(&error) => self.pause = Some(Box::pin(sleep(PAUSE))),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn poll_accept(socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
    socket.poll_accept(cx).map_ok(Stream::Accepted)
}

#[cfg(not(target_os = "linux"))]
fn poll_accept(socket: &Socket, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
    match socket {
        Socket::Tcp(socket) => socket.poll_accept(cx).map_ok(|(stream, _)| {
            // A connection that has been reset meanwhile has no options.
            let _ = stream.set_nodelay(true);
            Stream::Tcp(stream)
        }),
        #[cfg(unix)]
        Socket::Unix(socket) => socket.poll_accept(cx).map_ok(|(stream, _)| Stream::Unix(stream)),
    }
}

#[cfg(not(target_os = "linux"))]
impl Socket {
    fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(socket) => socket.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Self::Unix(socket) => socket.local_addr().map(Address::from),
        }
    }
}

/// Whether the error concerns only the connection to be accepted, which has ended.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown, NetworkUnreachable,
    };
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | HostUnreachable | Interrupted | NetworkDown | NetworkUnreachable
    )
}

/// Whether the error passes when something is freed, here or in another program.
#[cfg(unix)]
fn is_scarce(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

#[cfg(not(unix))]
fn is_scarce(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::OutOfMemory
}
