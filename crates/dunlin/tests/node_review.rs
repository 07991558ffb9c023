//! Regressions from a review of nodes: each was wrong once.
#![cfg(feature = "net")]

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin::node::network::{BoxFuture, Listener, Memory, Network, Socket};
use dunlin::prelude::*;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

fn run(test: impl Future<Output = Result>) {
    dunlin::block_on(async { tokio::time::timeout(Duration::from_secs(20), test).await.expect("the test hangs") })
        .unwrap();
}

async fn node(test: &str) -> Node {
    Node::builder().app(test).names(&format!("memory:names-of-{test}")).listen("memory:").join().await.unwrap()
}

/// Memory whose sockets can be kept from writing.
#[derive(Clone, Default)]
struct Gated(Arc<Gate>);

#[derive(Default)]
struct Gate {
    shut: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

struct GatedSocket {
    socket: Box<dyn Socket>,
    gate: Arc<Gate>,
}

impl Gated {
    fn shut(&self) {
        self.0.shut.store(true, Ordering::SeqCst);
    }

    fn open(&self) {
        self.0.shut.store(false, Ordering::SeqCst);
        self.0.waiting.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

impl Network for Gated {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = Memory.dial(address).await?;
            Ok(Box::new(GatedSocket { socket, gate: self.0.clone() }) as Box<dyn Socket>)
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = Memory.listen(address).await?;
            Ok(Box::new(GatedListener { listener, gate: self.0.clone() }) as Box<dyn Listener>)
        })
    }
}

struct GatedListener {
    listener: Box<dyn Listener>,
    gate: Arc<Gate>,
}

impl Listener for GatedListener {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, std::io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = self.listener.accept().await?;
            Ok(Box::new(GatedSocket { socket, gate: self.gate.clone() }) as Box<dyn Socket>)
        })
    }

    fn address(&self) -> String {
        self.listener.address()
    }
}

impl Socket for GatedSocket {
    fn peer(&self) -> String {
        self.socket.peer()
    }
}

impl AsyncRead for GatedSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.socket).poll_read(cx, buf)
    }
}

impl AsyncWrite for GatedSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        if self.gate.shut.load(Ordering::SeqCst) {
            self.gate.waiting.lock().unwrap().push(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut *self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut *self.socket).poll_shutdown(cx)
    }
}

/// A node whose sockets go through a gate.
async fn gated(test: &str) -> (Node, Gated) {
    let gate = Gated::default();
    let names = format!("memory:names-of-{test}");
    let node = Node::builder().app(test).names(&names).network(gate.clone()).listen("memory:").join().await.unwrap();
    (node, gate)
}

#[test]
fn a_socket_that_cannot_be_written_is_read() {
    run(async {
        let test = "r-gate";
        let (a, gate) = gated(test).await;
        let b = node(test).await;
        let mut rx = a.receiver::<u32>("n").policy(fifo(100)).await?;
        let mut tx = b.sender::<u32>("n").await?;
        tx.send(0).await?;
        assert_eq!(rx.recv().await?, 0);
        gate.shut();
        // Each of these makes the receiver's node want to write: an acknowledgement, and places.
        for n in 1..30 {
            tx.send(n).await?;
            let received = tokio::time::timeout(Duration::from_secs(2), rx.recv()).await;
            assert_eq!(received.expect("it is not read")?, n);
        }
        gate.open();
        Ok(())
    });
}
