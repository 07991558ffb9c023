//! Sockets, pipes, files, programs and standard streams as values, as branches of a choice, and as channels.

mod connections;
mod ends;
mod files;
mod listeners;
#[cfg(unix)]
mod pipes;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
#[path = "../support/runs.rs"]
mod runs;
#[cfg(unix)]
mod signals;
#[cfg(target_os = "linux")]
mod standard;
#[cfg(feature = "net")]
#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "../support/nodes.rs"]
mod support;
mod udp;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use dunlin::io::{Bytes, Connection, tcp};
use dunlin::waits::{self, Doing, Pid};

/// Pairs of connections, each the other's peer, of each kind.
async fn pairs() -> Vec<(Connection, Connection)> {
    let mut listener = tcp::listen("127.0.0.1:0").await.unwrap();
    let to = listener.address().unwrap().to_string();
    let client = tcp::connect(to).await.unwrap();
    vec![
        (client, listener.accept().await.unwrap()),
        #[cfg(unix)]
        dunlin::io::unix::pair().unwrap(),
    ]
}

/// Polls once.
fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits until `pid` waits for a descriptor.
async fn until_waits(pid: Pid) {
    while !waits::snapshot().iter().any(|wait| wait.who == pid && wait.doing == Doing::Ready) {
        tokio::task::yield_now().await;
    }
}

/// More bytes than any system accepts at once.
const LARGE: usize = 8_000_000;

/// This many bytes, no two pieces of which are equal.
fn large() -> Bytes {
    (0..LARGE).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect()
}

/// Reads all bytes until the end.
async fn read_all(connection: &mut Connection) -> std::io::Result<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let piece = connection.read(64 << 10).await?;
        if piece.is_empty() {
            return Ok(all);
        }
        all.extend_from_slice(&piece);
    }
}
