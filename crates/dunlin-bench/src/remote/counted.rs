//! A TCP network that counts the bytes that it carries, in both directions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use dunlin::net::{BoxFuture, Listener, Network, Socket, Tcp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Replaces [`Tcp`].
pub(crate) struct Counted(pub(crate) &'static AtomicU64);

struct CountedSocket {
    socket: Box<dyn Socket>,
    bytes: &'static AtomicU64,
}

struct CountedListener {
    listener: Box<dyn Listener>,
    bytes: &'static AtomicU64,
}

impl Network for Counted {
    fn scheme(&self) -> &'static str {
        Tcp.scheme()
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = Tcp.dial(address).await?;
            Ok(Box::new(CountedSocket { socket, bytes: self.0 }) as Box<dyn Socket>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = Tcp.listen(address).await?;
            Ok(Box::new(CountedListener { listener, bytes: self.0 }) as Box<dyn Listener>)
        })
    }
}

impl Listener for CountedListener {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = self.listener.accept().await?;
            Ok(Box::new(CountedSocket { socket, bytes: self.bytes }) as Box<dyn Socket>)
        })
    }

    fn address(&self) -> String {
        self.listener.address()
    }
}

impl Socket for CountedSocket {
    fn peer(&self) -> String {
        self.socket.peer()
    }
}

impl CountedSocket {
    fn count(&self, written: usize) -> usize {
        self.bytes.fetch_add(written as u64, Ordering::Relaxed);
        written
    }
}

impl AsyncRead for CountedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buf))?;
        self.count(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CountedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf))?;
        Poll::Ready(Ok(self.count(written)))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write_vectored(cx, bufs))?;
        Poll::Ready(Ok(self.count(written)))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
