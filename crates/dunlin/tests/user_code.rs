//! A node runs code of its users, which encodes, decodes and drops messages. That code can block or fail its
//! own channel only.
#![cfg(feature = "net")]

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;

use dunlin::prelude::*;
use serde::ser::SerializeTupleStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// With a thread for each blocked call, and some that keep running.
fn run(test: impl Future<Output = Result>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(6).enable_all().build().unwrap();
    let result = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    // If the test has failed, a blocked call must not delay the shutdown.
    runtime.shutdown_background();
    result.expect("the test hangs").unwrap();
}

/// A node that notices within a second if user code holds up its connections.
async fn node(test: &str) -> Node {
    node_of(test, Duration::from_millis(400), Duration::from_secs(1)).await
}

/// A node that loses no connection because the machine is busy: only if a peer violates the protocol.
async fn calm_node(test: &str) -> Node {
    node_of(test, Duration::from_secs(20), Duration::from_secs(50)).await
}

async fn node_of(test: &str, heartbeat: Duration, grace: Duration) -> Node {
    let node = Node::builder().app(test).names(&format!("memory:names-of-{test}"));
    node.heartbeat(heartbeat).grace(grace).listen("memory:").join().await.unwrap()
}

/// A node on threads of its own, which exist until the program ends.
///
/// A worker of tokio's that user code blocks keeps the task that was woken last on it: other workers do not
/// steal that one. Over memory, a write of the node wakes the task of the peer's socket there.
async fn node_apart(test: &'static str) -> Node {
    on_its_own_threads(node(test)).await
}

async fn on_its_own_threads(node: impl Future<Output = Node> + Send + 'static) -> Node {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let runtime: &'static tokio::runtime::Runtime = Box::leak(Box::new(runtime));
    runtime.spawn(node).await.unwrap()
}

/// Blocks every caller until it is opened.
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    come: AtomicUsize,
}

impl Gate {
    const fn new() -> Self {
        Self { open: Mutex::new(false), opened: Condvar::new(), come: AtomicUsize::new(0) }
    }

    fn pass(&self) {
        self.come.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    async fn somebody_came(&self) {
        while self.come.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// A message that blocks in the operation that its type names.
macro_rules! stops {
    ($name:ident, $gate:ident, writing: $writing:expr, reading: $reading:expr, dropping: $dropping:expr) => {
        static $gate: Gate = Gate::new();

        #[derive(Debug)]
        struct $name(u32);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                if $writing {
                    $gate.pass();
                }
                self.0.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                // A node runs this without a value to find the schema of the type; a gate before this line
                // would block that.
                let n = u32::deserialize(deserializer)?;
                if $reading {
                    $gate.pass();
                }
                Ok(Self(n))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if $dropping {
                    $gate.pass();
                }
            }
        }
    };
}

stops!(StopsWriting, WRITING, writing: true, reading: false, dropping: false);
stops!(StopsReading, READING, writing: false, reading: true, dropping: false);
stops!(StopsWritingLate, WRITING_LATE, writing: true, reading: false, dropping: false);
stops!(StopsReadingLate, READING_LATE, writing: false, reading: true, dropping: false);

/// Channels on the same connection, in both directions, and on another one keep working while `gate` blocks
/// one of `T`; so does the node.
///
/// `late`: the nodes have been quiet before.
async fn others_go_on<T: Portable>(test: &str, message: fn(u32) -> T, gate: &'static Gate, late: bool) -> Result {
    let (a, b, c) = (node(test).await, node(test).await, node(test).await);
    let (mut held_tx, mut held_rx) = (a.sender::<T>("held").await?, b.receiver::<T>("held").await?);
    let (mut same_tx, mut same_rx) = (a.sender::<u32>("same").await?, b.receiver::<u32>("same").await?);
    let (mut back_tx, mut back_rx) = (b.sender::<u32>("back").await?, a.receiver::<u32>("back").await?);
    let (mut other_tx, mut other_rx) = (a.sender::<u32>("other").await?, c.receiver::<u32>("other").await?);
    let (mut third_tx, mut third_rx) = (c.sender::<u32>("third").await?, b.receiver::<u32>("third").await?);
    let states = a.connections();
    for n in 0..3 {
        let (sent, received) = par!(same_tx.send(n), same_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        let (sent, received) = par!(back_tx.send(n), back_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        let (sent, received) = par!(other_tx.send(n), other_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        let (sent, received) = par!(third_tx.send(n), third_rx.recv());
        assert_eq!((sent?, received?), ((), n));
    }
    if late {
        // Long enough that no watch for delayed tasks runs any more, so it has to start anew.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let held = tokio::spawn(async move {
        let (sent, received) = par!(held_tx.send(message(7)), held_rx.recv());
        (sent.is_ok(), received.is_ok())
    });
    gate.somebody_came().await;
    for n in 0..100 {
        let (sent, received) = par!(other_tx.send(n), other_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        let (sent, received) = par!(third_tx.send(n), third_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        let (sent, received) = par!(same_tx.send(n), same_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        let (sent, received) = par!(back_tx.send(n), back_rx.recv());
        assert_eq!((sent?, received?), ((), n));
        assert_eq!((a.waiting(), b.waiting()), (vec![], vec![]));
    }
    // Longer than the limit of silence: the test shows that nothing happens, and a blocked thread has no
    // virtual time.
    tokio::time::sleep(Duration::from_millis(2000)).await;
    assert!(!held.is_finished());
    gate.open();
    assert_eq!(held.await.unwrap(), (true, true));
    let mut states = states;
    while let Ok((_, state)) = states.try_recv() {
        assert_eq!(state, dunlin::node::ConnectionState::Up);
    }
    Ok(())
}

#[test]
fn slow_encoding_delays_no_other_channel() {
    run(others_go_on("u-writing", StopsWriting, &WRITING, false));
}

#[test]
fn slow_encoding_delays_no_other_channel_of_a_quiet_node() {
    run(others_go_on("u-writing-late", StopsWritingLate, &WRITING_LATE, true));
}

#[test]
fn slow_decoding_delays_no_other_channel() {
    run(others_go_on("u-reading", StopsReading, &READING, false));
}

#[test]
fn slow_decoding_delays_no_other_channel_of_a_quiet_node() {
    run(others_go_on("u-reading-late", StopsReadingLate, &READING_LATE, true));
}

static WRITING_ENDS: Gate = Gate::new();

/// Its encoding takes long if there are ends in it.
#[derive(Deserialize)]
struct Ends(Option<(Sender<u32>, Receiver<u32>)>);

impl Serialize for Ends {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.0.is_some() {
            WRITING_ENDS.pass();
        }
        serializer.serialize_newtype_struct("Ends", &self.0)
    }
}

/// Sends the end from one node to another, over a channel by this name.
async fn carry<T: Portable>(end: T, from: &Node, to: &Node, name: &str) -> Result<T> {
    let (mut tx, mut rx) = (from.sender::<T>(name).await?, to.receiver::<T>(name).await?);
    let (sent, received) = par!(tx.send(end), rx.recv());
    sent.map_err(|error| Error::other(error.to_string()))?;
    Ok(received?)
}

#[test]
fn ends_follow_a_receiver_that_moves_while_a_message_is_encoded() {
    run(async {
        let (a, b, c) = (
            calm_node("u-goes-on").await,
            calm_node("u-goes-on").await,
            on_its_own_threads(calm_node("u-goes-on")).await,
        );
        let mut connections = [a.connections(), b.connections(), c.connections()];
        let (mut tx, rx) = channel::<Ends>();
        let mut rx = carry(rx, &c, &b, "to b").await?;
        let (sent, received) = par!(tx.send(Ends(None)), rx.recv());
        assert!(sent.is_ok() && received?.0.is_none());
        let (there, mut here) = channel::<u32>();
        let (mut says, hears) = channel::<u32>();
        let sending = tokio::spawn(async move { tx.send(Ends(Some((there, hears)))).await.map_err(|_| "not sent") });
        WRITING_ENDS.somebody_came().await;
        let before = c.heard();
        let mut rx = carry(rx, &b, &a, "to a").await?;
        let receiving = tokio::spawn(async move { rx.recv().await });
        // One frame from the node that the receiver leaves, and one from its new node.
        while c.heard() < before + 2 {
            tokio::task::yield_now().await;
        }
        WRITING_ENDS.open();
        let (mut there, mut hears) = receiving.await.unwrap()?.0.unwrap();
        assert_eq!(sending.await.unwrap(), Ok(()));
        let (sent, received) = par!(there.send(1), here.recv());
        assert_eq!((sent?, received?), ((), 1));
        let (sent, received) = par!(says.send(2), hears.recv());
        assert_eq!((sent?, received?), ((), 2));
        // No peer has violated the protocol.
        for connections in &mut connections {
            while let Ok((_, state)) = connections.try_recv() {
                assert_eq!(state, dunlin::node::ConnectionState::Up);
            }
        }
        Ok(())
    });
}

static SENT: Gate = Gate::new();

/// The worker that polls the send wakes the task of the socket, and keeps it: other workers do not steal what
/// one of them has woken last.
#[test]
fn value_leaves_while_the_worker_that_polled_its_send_is_blocked() {
    run(async {
        let (a, b) = (calm_node("u-kept").await, on_its_own_threads(calm_node("u-kept")).await);
        let (mut tx, mut rx) = (a.sender::<u32>("kept").await?, b.receiver::<u32>("kept").await?);
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        let sending = tokio::spawn(async move {
            let mut send = pin!(tx.send(2));
            assert!(poll_fn(|cx| Poll::Ready(send.as_mut().poll(cx).is_pending())).await);
            SENT.pass();
            send.await.map_err(|error| error.to_string())
        });
        SENT.somebody_came().await;
        assert_eq!(rx.recv().await?, 2);
        SENT.open();
        assert_eq!(sending.await.unwrap(), Ok(()));
        Ok(())
    });
}

static WRITING_LEFT: Gate = Gate::new();

/// It blocks behind its end.
#[derive(Deserialize)]
struct Left(Sender<u32>, ());

impl Serialize for Left {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut left = serializer.serialize_tuple_struct("Left", 2)?;
        left.serialize_field(&self.0)?;
        WRITING_LEFT.pass();
        left.serialize_field(&())?;
        left.end()
    }
}

/// The encoding uses the kind of the end when that is known, and not the earlier one.
#[test]
fn end_closed_while_its_message_is_encoded_is_still_sent() {
    run(async {
        let (a, b) = (node_apart("u-left").await, node("u-left").await);
        let (mut tx, mut rx) = (a.sender::<Left>("left").await?, b.receiver::<Left>("left").await?);
        let (mut ping, mut pong) = (a.sender::<u32>("ping").await?, b.receiver::<u32>("ping").await?);
        let (there, here) = channel::<u32>();
        let there = carry(there, &b, &a, "to a").await?;
        let (sent, received) = par!(ping.send(1), pong.recv());
        assert_eq!((sent?, received?), ((), 1));
        let before = a.records().by_core;
        let sending = tokio::spawn(async move { tx.send(Left(there, ())).await.map_err(|error| error.to_string()) });
        let receiving = tokio::spawn(async move { rx.recv().await });
        WRITING_LEFT.somebody_came().await;
        drop(here);
        while a.records().by_core == before {
            tokio::task::yield_now().await;
        }
        // Ended channels are dropped before this has crossed both ways.
        for n in 0..20 {
            let (sent, received) = par!(ping.send(n), pong.recv());
            assert_eq!((sent?, received?), ((), n));
        }
        WRITING_LEFT.open();
        assert_eq!(sending.await.unwrap(), Ok(()));
        let Left(mut there, ()) = receiving.await.unwrap()?;
        assert!(there.send(1).await.is_err(), "its receiver has gone");
        Ok(())
    });
}

static GUARDED: Mutex<u32> = Mutex::new(0);
static COME: AtomicBool = AtomicBool::new(false);

/// It takes a lock that a caller of the node holds.
#[derive(Debug, Deserialize)]
struct Locks;

impl Serialize for Locks {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        COME.store(true, Ordering::SeqCst);
        let _guard = GUARDED.lock().unwrap();
        serializer.serialize_unit_struct("Locks")
    }
}

#[test]
fn encode_may_take_a_lock_that_a_caller_of_the_node_holds() {
    run(async {
        let (a, b) = (node_apart("u-locks").await, node("u-locks").await);
        let (mut tx, mut rx) = (a.sender::<Locks>("n").await?, b.receiver::<Locks>("n").await?);
        let asks = a.clone();
        let (ready, held) = std::sync::mpsc::channel();
        let asking = std::thread::spawn(move || {
            let _guard = GUARDED.lock().unwrap();
            ready.send(()).unwrap();
            while !COME.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            asks.waiting();
            asks.connections();
            asks.serves_names()
        });
        held.recv().unwrap();
        let (sent, received) = par!(tx.send(Locks), rx.recv());
        sent.map_err(|_| "not sent").unwrap();
        received?;
        asking.join().unwrap();
        Ok(())
    });
}

/// A message that panics in the operation that its type names, but never in a caller.
macro_rules! panics {
    ($name:ident, writing: $writing:expr, reading: $reading:expr, dropping: $dropping:expr) => {
        #[derive(Debug)]
        struct $name(u32);

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                assert!(!$writing(self.0), "no writing");
                self.0.serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
                let n = u32::deserialize(deserializer)?;
                assert!(!$reading(n), "no reading");
                Ok(Self(n))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // Only in a task of the node, which the test does not see.
                let here = std::thread::current().name() == Some("the node's");
                assert!(!here || !$dropping(self.0) || std::thread::panicking(), "no dropping");
            }
        }
    };
}

panics!(PanicsWriting, writing: |n| n == 7, reading: |_| false, dropping: |_| false);
panics!(PanicsReading, writing: |_| false, reading: |n| n == 7, dropping: |_| false);
panics!(PanicsDropping, writing: |_| false, reading: |_| false, dropping: |n| n == 7);

/// The nodes have threads of their own, known by their name; `test` runs on this one.
fn apart(test: &str, then: impl AsyncFnOnce(Node, Node) -> Result) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().thread_name("the node's").build().unwrap();
    let nodes = async { (node(test).await, node(test).await) };
    let (a, b) = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), nodes).await.unwrap() });
    let result = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), then(a, b)).await });
    result.expect("the test hangs").unwrap();
}

/// A channel between the nodes keeps working.
async fn goes_on<T: Portable>(tx: &mut Sender<T>, rx: &mut Receiver<T>, message: fn(u32) -> T) -> Result {
    let (sent, received) = par!(tx.send(message(1)), rx.recv());
    assert!(sent.is_ok(), "{:?}", sent.map_err(|error| error.to_string()));
    received?;
    Ok(())
}

#[test]
fn message_that_panics_while_encoded_fails_its_send() {
    apart("u-panics-writing", async |a, b| {
        let (mut tx, mut rx) = (a.sender::<PanicsWriting>("n").await?, b.receiver::<PanicsWriting>("n").await?);
        goes_on(&mut tx, &mut rx, PanicsWriting).await?;
        let error = tx.send(PanicsWriting(7)).await.unwrap_err();
        assert!(matches!(error.why(), Some(dunlin::Why::Unsendable(_))), "{error:?}");
        assert!(error.to_string().contains("no writing"), "{error}");
        goes_on(&mut tx, &mut rx, PanicsWriting).await
    });
}

#[test]
fn message_that_panics_while_decoded_fails_its_send() {
    apart("u-panics-reading", async |a, b| {
        let (mut tx, mut rx) = (a.sender::<PanicsReading>("n").await?, b.receiver::<PanicsReading>("n").await?);
        goes_on(&mut tx, &mut rx, PanicsReading).await?;
        // As soon as a receive decodes it.
        let error = tokio::select! {
            sent = tx.send(PanicsReading(7)) => sent.unwrap_err(),
            received = rx.recv() => panic!("{received:?} was received"),
        };
        assert!(matches!(error.why(), Some(dunlin::Why::Unsendable(_))), "{error:?}");
        assert!(error.to_string().contains("no reading"), "{error}");
        goes_on(&mut tx, &mut rx, PanicsReading).await
    });
}

#[test]
fn message_that_panics_while_dropped_poisons_its_channel() {
    apart("u-panics-dropping", async |a, b| {
        // With an end, which the node adopts when the value has been received, and then drops the rest of the
        // value.
        type WithEnd = (PanicsDropping, Sender<()>);
        let with_end = |n| (PanicsDropping(n), channel().0);
        let (mut tx, mut rx) = (a.sender::<WithEnd>("n").await?, b.receiver::<WithEnd>("n").await?);
        let (mut other_tx, mut other_rx) = (a.sender::<u32>("other").await?, b.receiver::<u32>("other").await?);
        goes_on(&mut tx, &mut rx, |n| (PanicsDropping(n), channel().0)).await?;
        // It is received; then the node of its sender drops the kept value.
        let (sent, received) = par!(tx.send(with_end(7)), rx.recv());
        assert!(sent.is_ok());
        assert_eq!(received?.0.0, 7);
        let poisoned = rx.recv().await.unwrap_err();
        assert_eq!(poisoned.to_string(), "the channel was poisoned: a message panicked: no dropping");
        let error = tx.send(with_end(1)).await.unwrap_err();
        assert!(matches!(error.why(), Some(dunlin::Why::Poisoned(_))), "{error:?}");
        goes_on(&mut other_tx, &mut other_rx, |n| n).await?;
        goes_on(&mut other_tx, &mut other_rx, |n| n).await
    });
}

/// It queries its node while it is encoded, and encodes the answer.
#[derive(Deserialize)]
#[serde(from = "usize")]
struct Asks {
    node: Option<Node>,
}

/// The decoded form has to match the encoded one.
impl From<usize> for Asks {
    fn from(_: usize) -> Self {
        Self { node: None }
    }
}

impl Serialize for Asks {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.node.as_ref().map_or(0, |node| node.waiting().len()).serialize(serializer)
    }
}

#[test]
fn message_may_query_its_node_while_encoded() {
    run(async {
        let (a, b) = (node("u-asks").await, node("u-asks").await);
        let (mut tx, mut rx) = (a.sender::<Asks>("n").await?, b.receiver::<usize>("n").await?);
        let _nobody = a.sender::<u32>("nobody").await?;
        let (sent, received) = par!(tx.send(Asks { node: Some(a.clone()) }), rx.recv());
        sent.map_err(|_| "not sent").unwrap();
        assert_eq!(received?, 1, "one end waits");
        Ok(())
    });
}
