//! Values between nodes are encoded in the polls of their senders, and decoded and dropped in those of their
//! receivers, each once: the tasks of a node carry bytes.
#![cfg(feature = "net")]

use std::cell::Cell;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use dunlin::prelude::*;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

thread_local! {
    /// The end whose poll this thread runs.
    static POLLED: Cell<&'static str> = const { Cell::new("a task of the node") };
}

/// Polls `future` as this end.
async fn polled_as<F: Future>(end: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        let before = POLLED.replace(end);
        let polled = future.as_mut().poll(cx);
        POLLED.set(before);
        polled
    })
    .await
}

/// How often an operation ran in a poll of its own end, and elsewhere.
#[derive(Default)]
struct Tally {
    own: AtomicUsize,
    elsewhere: AtomicUsize,
}

impl Tally {
    const fn new() -> Self {
        Self { own: AtomicUsize::new(0), elsewhere: AtomicUsize::new(0) }
    }

    fn count(&self, end: &str) {
        if POLLED.get() == end { &self.own } else { &self.elsewhere }.fetch_add(1, SeqCst);
    }

    fn take(&self) -> (usize, usize) {
        (self.own.swap(0, SeqCst), self.elsewhere.swap(0, SeqCst))
    }
}

static WRITTEN: Tally = Tally::new();
static READ: Tally = Tally::new();
static DROPPED_BY_SENDER: Tally = Tally::new();

/// A message that counts where it is encoded, decoded, and dropped at its sender.
struct Krill {
    number: u32,
    was_read: bool,
}

impl Krill {
    fn new(number: u32) -> Self {
        Self { number, was_read: false }
    }
}

impl Serialize for Krill {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        WRITTEN.count("sender");
        serializer.serialize_u32(self.number)
    }
}

impl<'de> Deserialize<'de> for Krill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        READ.count("receiver");
        Ok(Self { number, was_read: true })
    }
}

impl Drop for Krill {
    fn drop(&mut self) {
        if !self.was_read {
            DROPPED_BY_SENDER.count("sender");
        }
    }
}

async fn two_nodes(test: &str) -> (Node, Node) {
    let node = |listen: &str| {
        let node = Node::builder().app(test).names(&format!("memory:names-of-{test}")).listen(listen);
        node.join()
    };
    (node("memory:").await.unwrap(), node("memory:").await.unwrap())
}

/// On one thread, so that each poll's end is known; and one after the other, since the tallies belong to the
/// process.
fn run(test: impl Future<Output = ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await.expect("the test hangs") });
}

/// Carries this many values, and checks that each was encoded, decoded and dropped once, by its own ends.
async fn carry(tx: &mut Sender<Krill>, rx: &mut Receiver<Krill>, values: u32) {
    WRITTEN.take();
    READ.take();
    DROPPED_BY_SENDER.take();
    let sends = polled_as("sender", async {
        for number in 0..values {
            tx.send(Krill::new(number)).await.unwrap();
        }
    });
    let receives = polled_as("receiver", async {
        for number in 0..values {
            assert_eq!(rx.recv().await.unwrap().number, number);
        }
    });
    tokio::join!(sends, receives);
}

#[test]
fn each_value_is_written_read_and_dropped_once_in_polls_of_its_ends() {
    run(async {
        let (a, b) = two_nodes("own_polls").await;
        let (tx, rx) = tokio::join!(a.sender::<Krill>("krill"), b.receiver::<Krill>("krill"));
        let (mut tx, mut rx) = (tx.unwrap(), rx.unwrap());
        // A value sent while the ends find each other passes through the node's tasks.
        carry(&mut tx, &mut rx, 2).await;
        carry(&mut tx, &mut rx, 100).await;
        assert_eq!(WRITTEN.take(), (100, 0), "written");
        assert_eq!(READ.take(), (100, 0), "read");
        assert_eq!(DROPPED_BY_SENDER.take(), (100, 0), "dropped");

        // A choice, over the same channel.
        let ((_other, mut never), mut slot) = (channel::<()>(), Some(Krill::new(7)));
        let choice = polled_as("sender", async {
            alt! {
                sent = tx.send_from(&mut slot) => sent.unwrap(),
                _ = never.recv() => unreachable!("nothing is sent there"),
            }
        });
        let receive = polled_as("receiver", async { assert_eq!(rx.recv().await.unwrap().number, 7) });
        tokio::join!(choice, receive);
        assert_eq!((WRITTEN.take(), READ.take()), ((1, 0), (1, 0)), "a choice's");

        // A value that is dropped before a receive takes it is returned, and dropped by its owner.
        {
            let mut send = pin!(tx.send(Krill::new(8)));
            let polled = polled_as("sender", std::future::poll_fn(|cx| Poll::Ready(send.as_mut().poll(cx)))).await;
            assert!(polled.is_pending());
        }
        carry(&mut tx, &mut rx, 10).await;
        assert_eq!((WRITTEN.take(), READ.take()), ((10, 0), (10, 0)), "behind a send that was dropped");
        a.leave().await.unwrap();
        b.leave().await.unwrap();
    });
}

/// The same where the channel has a buffer: that holds bytes, until a receive takes one of its values.
#[test]
fn buffered_value_is_decoded_by_the_receive_that_takes_it() {
    run(async {
        let (a, b) = two_nodes("own_polls_buffered").await;
        let (tx, rx) =
            tokio::join!(a.sender::<Krill>("krill"), b.receiver::<Krill>("krill").policy(fifo(8)).into_future());
        let (mut tx, mut rx) = (tx.unwrap(), rx.unwrap());
        // The values of the first places pass through the node's tasks: how many depends on the order in
        // which those and the ends run.
        loop {
            carry(&mut tx, &mut rx, 32).await;
            if WRITTEN.take() == (32, 0) {
                break;
            }
        }
        carry(&mut tx, &mut rx, 100).await;
        assert_eq!((WRITTEN.take(), READ.take(), DROPPED_BY_SENDER.take()), ((100, 0), (100, 0), (100, 0)));

        polled_as("sender", async {
            for number in 0..8 {
                tx.send(Krill::new(number)).await.unwrap();
            }
        })
        .await;
        a.flush().await.unwrap();
        while rx.len() < 8 {
            tokio::task::yield_now().await;
        }
        assert_eq!(READ.take(), (0, 0), "nothing is read before it is received");
        assert_eq!(polled_as("receiver", rx.recv()).await.unwrap().number, 0);
        assert_eq!(READ.take(), (1, 0));
        // The receiver still receives what is left when the sender ends the channel.
        drop(tx);
        for number in 1..8 {
            assert_eq!(polled_as("receiver", rx.recv()).await.unwrap().number, number);
        }
        assert!(rx.recv().await.is_err());
        a.leave().await.unwrap();
        b.leave().await.unwrap();
    });
}

/// A node that ends leaves its receivers their buffered values.
#[test]
fn receiver_keeps_its_buffered_values_after_its_node_leaves() {
    run(async {
        let (a, b) = two_nodes("own_polls_outlived").await;
        let (tx, rx) =
            tokio::join!(a.sender::<Krill>("krill"), b.receiver::<Krill>("krill").policy(fifo(8)).into_future());
        let (mut tx, mut rx) = (tx.unwrap(), rx.unwrap());
        for number in 0..8 {
            tx.send(Krill::new(number)).await.unwrap();
        }
        a.flush().await.unwrap();
        while rx.len() < 8 {
            tokio::task::yield_now().await;
        }
        b.leave().await.unwrap();
        for number in 0..8 {
            assert_eq!(rx.recv().await.unwrap().number, number);
        }
        assert!(rx.recv().await.is_err());
        drop(tx);
        a.leave().await.unwrap();
    });
}

/// The tasks of a dropped runtime end in any order and at once: a send that is withdrawn may find only the
/// handle to its node left.
#[test]
fn a_runtime_may_be_dropped_while_sends_wait() {
    const CHANNELS: usize = 16;
    const RUNTIMES: usize = 150;
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for _ in 0..RUNTIMES {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let (a, b) = two_nodes("dropped").await;
                for channel in 0..CHANNELS {
                    let name = format!("krill {channel}");
                    let (tx, rx) = tokio::join!(a.sender::<u32>(&name), b.receiver::<u32>(&name));
                    let (mut tx, mut rx) = (tx.unwrap(), rx.unwrap());
                    let (first, received) = tokio::join!(tx.send(0), rx.recv());
                    assert_eq!((first, received), (Ok(()), Ok(0)));
                    tokio::spawn(async move {
                        tx.send(1).await.unwrap();
                        drop(tx);
                    });
                    tokio::spawn(async move {
                        std::future::pending::<()>().await;
                        drop(rx);
                    });
                }
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop((a, b));
                });
            });
            drop(runtime);
            done.send(()).unwrap();
        }
    });
    // Each ends in time: on a busy machine all of them together may take long.
    for n in 0..RUNTIMES {
        is_done.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|why| panic!("runtime {n} does not end: {why}"));
    }
}
