//! TCP as between hosts, on one host. The tests of `dunlin-attack` use this file as well.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin::net::{BoxFuture, Listener, Network, Socket, Source, Tcp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// TCP as between hosts: the other end of a socket is elsewhere.
#[derive(Default)]
pub(crate) struct Far {
    /// Addresses of other hosts, and the addresses on this one that stand for them.
    pub(crate) hosts: BTreeMap<String, String>,
}

struct FarListener(Box<dyn Listener>);

struct FarSocket(Box<dyn Socket>);

impl Network for Far {
    fn scheme(&self) -> &'static str {
        Tcp.scheme()
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        let address = self.hosts.get(address).map_or(address, String::as_str);
        Box::pin(async move { Ok(Box::new(FarSocket(Tcp.dial(address).await?)) as Box<dyn Socket>) })
    }

    fn dial_elsewhere<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        if self.hosts.contains_key(address) { self.dial(address) } else { Tcp.dial_elsewhere(address) }
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        Box::pin(async move { Ok(Box::new(FarListener(Tcp.listen(address).await?)) as Box<dyn Listener>) })
    }
}

impl Listener for FarListener {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move { Ok(Box::new(FarSocket(self.0.accept().await?)) as Box<dyn Socket>) })
    }

    fn address(&self) -> String {
        self.0.address()
    }
}

impl Socket for FarSocket {
    fn peer(&self) -> String {
        self.0.peer()
    }

    fn source(&self) -> Source {
        self.0.source()
    }
}

impl AsyncRead for FarSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for FarSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
