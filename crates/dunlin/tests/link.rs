//! Channels over a link of their own, over sockets. `dunlin-laws` runs them over wires that break.

use std::time::Duration;

use dunlin::node::link::{Link, LinkConfig, LinkError};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::net::{TcpListener, TcpStream};

fn links() -> [Link; 2] {
    [Link::new(LinkConfig::default()), Link::new(LinkConfig::default())]
}

/// Both sides are served over memory.
fn joined() -> [Link; 2] {
    let links = links();
    let (here, there) = duplex(16 << 10);
    tokio::spawn(links[0].serve(here));
    tokio::spawn(links[1].serve(there));
    links
}

/// Waits until nothing of the channels is left.
async fn all_over(links: &[Link; 2]) {
    while links.iter().any(|link| link.halves() > 0 || !link.is_quiet()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn echo<T: Portable>(mut input: Receiver<T>, mut output: Sender<T>) {
    while let Ok(value) = input.recv().await {
        if output.send(value).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_any_size_make_round_trips_over_tcp() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (there, _) = listener.accept().await.unwrap();
    let links = links();
    for (link, socket) in links.iter().zip([here, there]) {
        socket.set_nodelay(true).unwrap();
        tokio::spawn(link.serve(socket));
    }
    tokio::spawn(echo(links[1].receiver::<Vec<u8>>(1), links[1].sender::<Vec<u8>>(2)));
    let (mut there, mut back) = (links[0].sender::<Vec<u8>>(1), links[0].receiver::<Vec<u8>>(2));
    for size in [0, 1, 8, 1_000, 16 << 10, 300_000, 5_000_000, 3] {
        let value: Vec<u8> = (0..size).map(|at| at as u8).collect();
        there.send(value.clone()).await.unwrap();
        assert_eq!(back.recv().await.unwrap(), value);
    }
    drop((there, back));
    all_over(&links).await;
}

#[tokio::test]
async fn a_choice_on_both_sides_takes_one_value() {
    let links = joined();
    let (mut a, mut b) = (links[0].sender::<u32>(1), links[0].sender::<u32>(2));
    let (mut from_a, mut from_b) = (links[1].receiver::<u32>(1), links[1].receiver::<u32>(2));
    let receives = tokio::spawn(async move {
        let mut received = Vec::new();
        for _ in 0..100 {
            received.push(alt! {
                value = from_a.recv() => value.unwrap(),
                value = from_b.recv() => value.unwrap(),
            });
        }
        received
    });
    let mut sent = Vec::new();
    for value in 0..100 {
        alt! {
            done = a.send(value) => done.unwrap(),
            done = b.send(1_000 + value) => done.unwrap(),
        }
        sent.push(value);
    }
    let received = receives.await.unwrap();
    assert_eq!(received.iter().map(|value| value % 1_000).collect::<Vec<_>>(), sent);
    drop((a, b));
    all_over(&links).await;
}

/// It is encoded as a number, and decoded only if that is even.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
struct Even(u32);

impl Clone for Even {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl From<Even> for u32 {
    fn from(value: Even) -> Self {
        value.0
    }
}

impl TryFrom<u32> for Even {
    type Error = String;

    fn try_from(value: u32) -> Result<Self, String> {
        if value.is_multiple_of(2) { Ok(Self(value)) } else { Err(format!("{value} is odd")) }
    }
}

#[tokio::test]
async fn undecodable_value_is_returned_to_its_sender() {
    let links = joined();
    let (mut there, mut input) = (links[0].sender::<Even>(1), links[1].receiver::<Even>(1));
    let receives = tokio::spawn(async move { input.recv().await });
    let failed = there.send(Even(3)).await.unwrap_err();
    assert!(format!("{failed:?}").contains("3 is odd") && failed.into_value() == Even(3));
    there.send(Even(4)).await.unwrap();
    assert_eq!(receives.await.unwrap(), Ok(Even(4)));
}

#[tokio::test]
async fn poison_and_retirement_cross_the_link() {
    let links = joined();
    let (there, mut input) = (links[0].sender::<u32>(1), links[1].receiver::<u32>(1));
    there.poison("oil");
    assert!(matches!(input.recv().await, Err(RecvError::Poisoned(reason)) if reason.as_str() == "oil"));
    let (mut there, input) = (links[0].sender::<u32>(2), links[1].receiver::<u32>(2));
    input.retire();
    assert_eq!(there.send(1).await.unwrap_err().into_value(), 1);
    drop((there, input));
}

#[tokio::test]
async fn a_link_resumes_over_another_socket() {
    let links = links();
    let (mut there, mut input) = (links[0].sender::<u64>(1), links[1].receiver::<u64>(1));
    let sends = tokio::spawn(async move {
        for value in 0..2_000 {
            there.send(value).await.unwrap();
        }
    });
    let receives = tokio::spawn(async move {
        for value in 0..2_000 {
            assert_eq!(input.recv().await, Ok(value));
        }
    });
    let mut sockets = 0;
    while !receives.is_finished() {
        let (here, there) = duplex(64);
        let both = [tokio::spawn(links[0].serve(here)), tokio::spawn(links[1].serve(there))];
        tokio::time::sleep(Duration::from_millis(2)).await;
        // Values on their way are lost with the sockets.
        for served in both {
            served.abort();
            let _ = served.await;
        }
        sockets += 1;
    }
    receives.await.unwrap();
    sends.abort();
    assert!(sockets > 1, "{sockets} sockets");
}

#[tokio::test]
async fn garbage_ends_all_channels() {
    let link = Link::new(LinkConfig::default());
    let (here, mut there) = duplex(1 << 10);
    let served = tokio::spawn(link.serve(here));
    let mut input = link.receiver::<u64>(1);
    there.write_all(&[0; 8]).await.unwrap();
    there.read_u64().await.unwrap();
    there.write_all(b"\x30\x00").await.unwrap();
    assert!(matches!(served.await.unwrap(), Err(LinkError::Violation(_))));
    assert!(input.recv().await.is_err());
    assert!(link.sender::<u64>(2).send(1).await.is_err());
}
