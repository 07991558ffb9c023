//! Regressions from a review of nodes.
#![cfg(feature = "net")]

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin::Why;
use dunlin::net::{BoxFuture, Listener, Memory, Network, Socket};
use dunlin::node::NameError;
use dunlin::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::run;

async fn node(test: &str) -> Node {
    let node = Node::builder().app(test).names(&format!("memory:names-of-{test}"));
    node.grace(Duration::from_millis(200)).listen("memory:").join().await.unwrap()
}

async fn nodes<const N: usize>(test: &str) -> [Node; N] {
    let mut nodes = Vec::new();
    for _ in 0..N {
        nodes.push(node(test).await);
    }
    nodes.try_into().unwrap()
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx))).await
}

/// Waits until everything has happened that needs no time.
async fn quiet() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn an_unmatched_send_is_not_taken_when_the_node_leaves() {
    run(async {
        let [a] = nodes("r-nobody").await;
        let mut tx = a.sender::<u32>("nobody").await?;
        let mut sending = Box::pin(tx.send(7));
        assert!(poll_once(&mut sending).await.is_pending());
        quiet().await;
        a.leave().await?;
        let sent = sending.await;
        assert!(matches!(&sent, Err(error) if error.why() == Some(&Why::OwnNodeLeft)), "{sent:?}");
        assert_eq!(sent.unwrap_err().into_value(), 7);
        Ok(())
    });
}

#[test]
fn an_unmatched_send_is_not_taken_when_the_node_is_dropped() {
    run(async {
        let [a] = nodes("r-nobody-dropped").await;
        let mut tx = a.sender::<u32>("nobody").await?;
        let mut sending = Box::pin(tx.send(7));
        assert!(poll_once(&mut sending).await.is_pending());
        quiet().await;
        drop(a);
        let sent = sending.await;
        assert!(matches!(&sent, Err(error) if error.why() == Some(&Why::OwnNodeLeft)), "{sent:?}");
        Ok(())
    });
}

#[test]
fn ends_end_when_their_node_leaves_though_another_handle_of_it_stays() {
    run(async {
        let [a] = nodes("r-handle-stays").await;
        let mut tx = a.sender::<u32>("nobody").await?;
        let mut rx = a.receiver::<u32>("nothing").await?;
        let stays = a.clone();
        let mut sending = Box::pin(tx.send(7));
        assert!(poll_once(&mut sending).await.is_pending());
        a.leave().await?;
        assert_eq!(sending.await.unwrap_err().why(), Some(&Why::OwnNodeLeft));
        assert_eq!(rx.recv().await, Err(RecvError::OwnNodeLeft));
        assert!(matches!(stays.sender::<u32>("late").await, Err(NameError::Left)));
        Ok(())
    });
}

#[test]
fn send_without_its_answer_is_unknown_when_the_node_is_dropped() {
    run(async {
        let (a, gate) = gated("r-answer-out").await;
        let b = node("r-answer-out").await;
        let mut tx = a.sender::<u32>("n").await?;
        let mut rx = b.receiver::<u32>("n").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        let heard = b.heard();
        let mut sending = Box::pin(tx.send(7));
        assert!(poll_once(&mut sending).await.is_pending());
        // The offer.
        while b.heard() == heard {
            tokio::task::yield_now().await;
        }
        gate.shut();
        drop(a);
        let sent = sending.await;
        assert!(matches!(&sent, Err(SendError::Unknown { .. })), "{sent:?}");
        drop(rx);
        Ok(())
    });
}

/// Its drop looks at its node.
#[derive(serde::Serialize, serde::Deserialize)]
struct Curious {
    #[serde(skip)]
    node: Option<Node>,
}

impl Drop for Curious {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            node.waiting();
        }
    }
}

#[test]
fn drop_of_a_value_may_query_its_node() {
    run(async {
        let [a, b] = nodes("r-curious").await;
        let mut tx = a.sender::<Curious>("c").await?;
        let mut rx = b.receiver::<Curious>("c").await?;
        let (sent, received) = par!(tx.send(Curious { node: Some(a.clone()) }), rx.recv());
        sent.map_err(|_| "not sent").unwrap();
        received?;
        Ok(())
    });
}

#[test]
fn value_may_hold_the_last_handle_of_its_node() {
    run(async {
        let [a, b] = nodes("r-last-handle").await;
        let mut tx = a.sender::<Curious>("c").await?;
        let mut rx = b.receiver::<Curious>("c").await?;
        let (_, received) = par!(tx.send(Curious { node: Some(a) }), rx.recv());
        received?;
        Ok(())
    });
}

/// Declares an end as soon as its name is free.
async fn freed<E, F: Future<Output = std::result::Result<E, NameError>>>(declare: impl Fn() -> F) -> E {
    loop {
        match declare().await {
            Ok(end) => return end,
            Err(NameError::Refused { .. }) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A memory network whose sockets can be kept from writing.
#[derive(Clone, Default)]
struct Gated(Arc<Gate>);

#[derive(Default)]
struct Gate {
    shut: AtomicBool,
    cut: AtomicBool,
    deaf: AtomicBool,
    dialled: Mutex<Vec<String>>,
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

    /// Breaks its sockets, and new ones as well.
    fn cut(&self) {
        self.0.cut.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// New sockets no longer break.
    fn mend(&self) {
        self.0.cut.store(false, Ordering::SeqCst);
    }

    fn open(&self) {
        self.0.shut.store(false, Ordering::SeqCst);
        self.wake();
    }

    fn listen(&self, listens: bool) {
        self.0.deaf.store(!listens, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        self.0.waiting.lock().unwrap().drain(..).for_each(Waker::wake);
    }
}

impl Network for Gated {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn dial<'a>(&'a self, address: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            self.0.dialled.lock().unwrap().push(address.to_owned());
            std::future::poll_fn(|cx| {
                self.0.waiting.lock().unwrap().push(cx.waker().clone());
                if self.0.deaf.load(Ordering::SeqCst) { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
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
        if self.gate.cut.load(Ordering::SeqCst) {
            return Poll::Ready(Err(std::io::ErrorKind::BrokenPipe.into()));
        }
        self.gate.waiting.lock().unwrap().push(cx.waker().clone());
        if self.gate.deaf.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
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
    gated_for(test, Duration::from_millis(200)).await
}

async fn gated_for(test: &str, grace: Duration) -> (Node, Gated) {
    let gate = Gated::default();
    let names = format!("memory:names-of-{test}");
    let node = Node::builder().app(test).names(&names).network(gate.clone());
    let node = node.grace(grace).listen("memory:").join().await.unwrap();
    (node, gate)
}

#[test]
fn unwritable_socket_is_read() {
    run(async {
        let test = "r-gate";
        let (a, gate) = gated(test).await;
        let b = node(test).await;
        let mut rx = a.receiver::<u32>("n").policy(fifo(100)).await?;
        let mut tx = b.sender::<u32>("n").await?;
        tx.send(0).await?;
        assert_eq!(rx.recv().await?, 0);
        gate.shut();
        // Each of these makes the receiver's node write: an acknowledgement, and places.
        for n in 1..30 {
            tx.send(n).await?;
            let received = tokio::time::timeout(Duration::from_secs(2), rx.recv()).await;
            assert_eq!(received.expect("it is not read")?, n);
        }
        gate.open();
        Ok(())
    });
}

#[test]
fn a_sender_that_is_dropped_before_its_home_has_answered() {
    run(async {
        let [a, b] = nodes("r-dropped-early").await;
        let mut rx = b.receiver::<u32>("n").await?;
        drop(a.sender::<u32>("n").await?);
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        Ok(())
    });
}

#[test]
fn a_channel_that_is_poisoned_before_its_home_has_answered() {
    run(async {
        let [a, b] = nodes("r-poisoned-early").await;
        let mut rx = b.receiver::<u32>("n").await?;
        let mut tx = a.sender::<u32>("n").await?;
        let mut sending = Box::pin(tx.send(1));
        assert!(poll_once(&mut sending).await.is_pending());
        drop(sending);
        tx.poison("no krill");
        // The offer stands at its home until that has received the request to withdraw it.
        let mut received = rx.recv().await;
        if received == Ok(1) {
            received = rx.recv().await;
        }
        assert!(matches!(received, Err(RecvError::Poisoned(_))), "{received:?}");
        Ok(())
    });
}

#[test]
fn a_channel_that_is_retired_before_its_home_is_known() {
    run(async {
        let [a, b] = nodes("r-retired-early").await;
        let mut tx = a.sender::<u32>("n").await?;
        let mut sending = Box::pin(tx.send(1));
        assert!(poll_once(&mut sending).await.is_pending());
        quiet().await;
        drop(sending);
        tx.retire();
        quiet().await;
        let mut rx = b.receiver::<u32>("n").policy(fifo(3)).await?;
        assert_eq!(rx.recv().await, Err(RecvError::Closed));
        assert!(tx.send(2).await.unwrap_err().is_closed());
        Ok(())
    });
}

/// Encodes an end that is also held elsewhere.
struct Sneaky(Arc<Mutex<Sender<u32>>>);

impl serde::Serialize for Sneaky {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.lock().unwrap().serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Sneaky {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Ok(Self(Arc::new(Mutex::new(Sender::deserialize(deserializer)?))))
    }
}

#[test]
fn end_that_stayed_at_its_sender_is_closed_at_the_receiver() {
    run(async {
        let [a, b] = nodes("r-sneaky").await;
        let mut tx = a.sender::<Sneaky>("n").await?;
        let mut rx = b.receiver::<Sneaky>("n").await?;
        let (ty, _ry) = channel::<u32>();
        let kept = Arc::new(Mutex::new(ty));
        let (sent, received) = par!(tx.send(Sneaky(kept.clone())), rx.recv());
        assert!(sent.is_ok());
        let there = Arc::into_inner(received?.0).unwrap().into_inner().unwrap();
        let mut there = there;
        assert!(there.send(1).await.unwrap_err().is_closed());
        Ok(())
    });
}

#[test]
fn a_mismatching_home_is_notified() {
    run(async {
        let [a, b] = nodes("r-home-refused").await;
        let _rx = a.receiver::<u32>("n").await?;
        assert!(matches!(b.receiver::<u32>("n").await, Err(NameError::Refused { .. })));
        Ok(())
    });
}

#[test]
fn name_is_free_when_both_ends_on_one_node_are_dropped() {
    run(async {
        let [a] = nodes("r-local-free").await;
        for n in 0..3 {
            let mut rx = freed(|| async { a.receiver::<u32>("n").await }).await;
            let mut tx = freed(|| async { a.sender::<u32>("n").await }).await;
            let (sent, received) = par!(tx.send(n), rx.recv());
            assert_eq!((sent?, received?), ((), n));
        }
        Ok(())
    });
}

#[test]
fn name_is_free_when_both_faces_on_one_node_are_dropped() {
    run(async {
        let [a] = nodes("r-local-faces-free").await;
        for n in 0..3 {
            let mut server = freed(|| async { a.server::<Post>("post").await }).await;
            let mut client = freed(|| async { a.client::<Post>("post").await }).await;
            let (sent, received) = par!(client.letters.send(n), server.letters.recv());
            assert_eq!((sent?, received?), ((), n));
            let (sent, received) = par!(server.answers.send(n), client.answers.recv());
            assert_eq!((sent?, received?), ((), n));
        }
        Ok(())
    });
}

#[derive(Bundle)]
struct Post {
    letters: ToServer<u32>,
    answers: ToClient<u32>,
}

#[test]
fn node_named_by_its_address_is_found_again_after_a_restart() {
    run(async {
        let test = "r-comes-back";
        let [names, a] = nodes(test).await;
        let there = |names: String| async move {
            Node::builder().app("r-comes-back").names(&names).listen("memory:r-there").join().await
        };
        let address = format!("memory:names-of-{test}");
        let b = there(address.clone()).await?;
        let mut tx = a.sender::<u32>("memory:r-there/n").await?;
        b.leave().await?;
        quiet().await;
        let b = there(address).await?;
        let mut rx = b.receiver::<u32>("n").await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        drop(names);
        Ok(())
    });
}

#[test]
fn guest_lost_before_it_attaches_is_dropped() {
    run(async {
        let test = "r-guest-lost";
        let names = format!("memory:names-of-{test}");
        let grace = Duration::from_millis(100);
        let a = Node::builder().app(test).names(&names).grace(grace).listen("memory:").join().await?;
        let (b, gate) = gated(test).await;
        let mut guests = a.acceptor::<Post>("post").await?;
        let client = b.client::<Post>("post").await?;
        // It has introduced itself with this.
        let guest = guests.recv().await;
        gate.shut();
        drop((client, b));
        let mut guest = guest?.into_face();
        assert!(guest.letters.recv().await.is_err());
        assert!(guest.answers.send(1).await.is_err());
        Ok(())
    });
}

#[test]
fn client_joins_the_next_server_if_the_first_is_lost_before_it_answers() {
    run_alone(async {
        let test = "r-server-lost";
        let b = node(test).await;
        // Otherwise the first server's node might serve the names, and be lost with them.
        while !b.serves_names() {
            tokio::task::yield_now().await;
        }
        let (a, gate) = gated(test).await;
        let server = a.server::<Post>("post").await?;
        let mut client = b.client::<Post>("post").await?;
        gate.shut();
        quiet().await;
        drop((server, a));
        gate.cut();
        let c = node(test).await;
        let mut server = freed(|| async { c.server::<Post>("post").await }).await;
        let (sent, letter) = par!(client.letters.send(1), server.letters.recv());
        let (answered, answer) = par!(server.answers.send(2), client.answers.recv());
        sent?;
        answered?;
        assert_eq!((letter?, answer?), (1, 2));
        Ok(())
    });
}

/// Runs on one thread, so that the order of polls is known.
fn run_alone(test: impl Future<Output = Result>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limit = Duration::from_secs(60);
    runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test hangs") }).unwrap();
}

#[test]
fn client_of_a_dropped_acceptor_is_refused() {
    // Before its node has received the guest, and when the guest waits to be received.
    for before in [true, false] {
        run_alone(async {
            let test = format!("r-turned-away-{before}");
            let names = node(&test).await;
            while !names.serves_names() {
                tokio::task::yield_now().await;
            }
            let (a, gate) = gated(&test).await;
            let b = node(&test).await;
            let guests = a.acceptor::<Post>("post").await?;
            gate.listen(!before);
            let mut client = b.client::<Post>("post").await?;
            drop(guests);
            quiet().await;
            gate.listen(true);
            let sent = client.letters.send(1).await.unwrap_err();
            let received = client.answers.recv().await;
            if before {
                let SendError::NotTaken { why: Why::Poisoned(why), .. } = sent else { panic!("{sent}") };
                assert!(why.as_str().contains("refused this client"), "{why}");
                assert_eq!(received, Err(RecvError::Poisoned(why)));
            } else {
                // The guest had arrived, and was dropped with the acceptor: that is an end in order.
                assert!(sent.is_closed(), "{sent}");
                assert_eq!(received, Err(RecvError::Closed));
            }
            Ok(())
        });
    }
}

#[test]
fn name_of_a_dropped_acceptor_is_free() {
    run(async {
        let [a, b] = nodes("r-acceptor-anew").await;
        drop(a.acceptor::<Post>("post").await?);
        let mut guests = freed(|| async { a.acceptor::<Post>("post").await }).await;
        let mut client = b.client::<Post>("post").await?;
        let mut guest = guests.recv().await?.into_face();
        let (sent, received) = par!(client.letters.send(1), guest.letters.recv());
        assert_eq!((sent?, received?), ((), 1));
        Ok(())
    });
}

#[test]
fn socket_of_a_pending_dial_is_closed_after_its_node_left() {
    run(async {
        let mut listener = Memory.listen("r-late-socket").await?;
        let (a, gate) = gated("r-late-socket-app").await;
        gate.listen(false);
        let mut naming = Box::pin(async { a.sender::<u32>("memory:r-late-socket/n").await });
        assert!(poll_once(&mut naming).await.is_pending());
        while !gate.0.dialled.lock().unwrap().iter().any(|address| address == "r-late-socket") {
            tokio::task::yield_now().await;
        }
        drop(naming);
        a.leave().await?;
        gate.listen(true);
        let mut socket = listener.accept().await?;
        assert_eq!(socket.read(&mut [0; 100]).await?, 0);
        Ok(())
    });
}

#[test]
fn unwritable_socket_is_closed() {
    run(async {
        let mut listener = Memory.listen("r-stuck-socket").await?;
        let (a, gate) = gated("r-stuck-socket-app").await;
        gate.shut();
        let mut naming = Box::pin(async { a.sender::<u32>("memory:r-stuck-socket/n").await });
        assert!(poll_once(&mut naming).await.is_pending());
        let mut socket = listener.accept().await?;
        quiet().await;
        drop(naming);
        a.leave().await?;
        assert_eq!(socket.read(&mut [0; 100]).await?, 0);
        Ok(())
    });
}

#[test]
fn an_end_that_has_failed_fast_frees_its_name() {
    run(async {
        let test = "r-fail-fast";
        let a = node(test).await;
        while !a.serves_names() {
            tokio::task::yield_now().await;
        }
        let (b, gate) = gated(test).await;
        let mut rx = b.receiver::<u32>("n").await?;
        let mut tx = a.sender::<u32>("n").fail_fast().await?;
        let (sent, received) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, received?), ((), 1));
        gate.cut();
        assert!(tx.send(2).await.is_err());
        drop(tx);
        freed(|| async { a.sender::<u32>("n").await }).await;
        Ok(())
    });
}

#[test]
fn received_end_closes_when_its_send_has_failed_fast() {
    run(async {
        let test = "r-fast-end";
        let (a, _) = gated_for(test, Duration::from_secs(50)).await;
        let (b, gate) = gated_for(test, Duration::from_secs(50)).await;
        let mut tx = a.sender::<Sender<u32>>("n").fail_fast().await?;
        let mut rx = b.receiver::<Sender<u32>>("n").await?;
        let (end, mut first) = channel::<u32>();
        let (sent, received) = par!(tx.send(end), rx.recv());
        sent.map_err(|_| "not sent").unwrap();
        let mut received = received?;
        let (sent, one) = par!(received.send(1), first.recv());
        assert_eq!((sent?, one?), ((), 1));

        // It is taken, and its node loses the socket before it receives the acknowledgement.
        let (end, mut second) = channel::<u32>();
        gate.shut();
        let (sent, received) = par!(
            async {
                let sent = tx.send(end).await;
                gate.mend();
                gate.open();
                sent
            },
            async {
                let received = rx.recv().await;
                gate.cut();
                received
            }
        );
        let Err(SendError::Unknown { value: end, .. }) = sent else {
            panic!("{:?}", sent.map_err(|_| "another error"))
        };
        let mut received = received?;
        let error = received.send(2).within(Duration::from_secs(40)).await.unwrap_err();
        assert_eq!(error.why(), Some(&Why::Closed));
        // Here it stayed.
        let mut end = end;
        let (sent, two) = par!(end.send(3), second.recv());
        assert_eq!((sent?, two?), ((), 3));
        Ok(())
    });
}

#[test]
fn unmatched_client_is_notified_that_its_node_leaves() {
    run(async {
        let [a] = nodes("r-client-leaves").await;
        let mut client = a.client::<Post>("nobody").await?;
        let mut server = a.server::<Post>("nothing").await?;
        let mut sends = [Box::pin(client.letters.send(7)), Box::pin(server.answers.send(7))];
        for sending in &mut sends {
            assert!(poll_once(sending).await.is_pending());
        }
        quiet().await;
        a.leave().await?;
        for sending in sends {
            assert_eq!(sending.await.unwrap_err().why(), Some(&Why::OwnNodeLeft));
        }
        assert_eq!(client.answers.recv().await, Err(RecvError::OwnNodeLeft));
        assert_eq!(server.letters.recv().await, Err(RecvError::OwnNodeLeft));
        Ok(())
    });
}

/// A network on which no node answers.
struct Nowhere;

impl Network for Nowhere {
    fn scheme(&self) -> &'static str {
        "nowhere"
    }

    fn dial<'a>(&'a self, _: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Socket>>> {
        Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
    }

    fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, std::io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(std::io::ErrorKind::AddrNotAvailable.into()) })
    }
}

#[test]
fn ends_without_a_name_service_are_listed_as_waiting() {
    run(async {
        let node = Node::builder().app("r-nowhere").names("nowhere:names").network(Nowhere);
        let node = node.listen("memory:").join().await?;
        let mut receiver = node.receiver::<u32>("readings").into_future();
        assert!(poll_once(&mut receiver).await.is_pending());
        let waiting = node.waiting();
        let waits: Vec<_> = waiting.iter().map(|end| (end.name.as_str(), end.what.as_str())).collect();
        assert_eq!(waits, [("readings", "receiver")]);
        drop(receiver);

        let patience = Duration::from_millis(30);
        let without_names = Some("nowhere:names: connection refused".to_owned());
        let timed_out = NameError::TimedOut { name: "readings".to_owned(), patience, without_names, before: None };
        // The node has joined before it has looked for a name service.
        let not_yet = Some("no name service has answered yet");
        let error = loop {
            let error = node.receiver::<u32>("readings").within(patience).await.unwrap_err();
            if !matches!(&error, NameError::TimedOut { without_names, .. } if without_names.as_deref() == not_yet) {
                break error;
            }
        };
        assert_eq!(error, timed_out);
        assert_eq!(node.sender::<u32>("readings").within(patience).await.unwrap_err(), timed_out);
        assert!(timed_out.to_string().contains("start the node that serves the names"), "{timed_out}");
        // They are withdrawn.
        node.leave().await
    });
}

static READS: Mutex<bool> = Mutex::new(false);
static MAY_READ: Condvar = Condvar::new();
static IS_READ: AtomicBool = AtomicBool::new(false);

/// A receiver, and a number that delays its decoding unless it is zero.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Late(#[serde(deserialize_with = "late")] u8, Receiver<u32>);

fn late<'de, D: serde::Deserializer<'de>>(deserializer: D) -> std::result::Result<u8, D::Error> {
    let n = <u8 as serde::Deserialize>::deserialize(deserializer)?;
    if n > 0 {
        IS_READ.store(true, Ordering::SeqCst);
        // No other task may wait for it: the other node's task may have been woken here last, and tokio keeps
        // that task for this thread.
        tokio::task::block_in_place(|| drop(MAY_READ.wait_while(READS.lock().unwrap(), |reads| !*reads).unwrap()));
    }
    Ok(n)
}

/// A message on a credit was decoded after its connection had ended and come up again. The receiver in it
/// waited for ever for its sender, which had been reported as lost.
#[test]
fn end_decoded_in_the_next_life_of_its_connection_is_lost() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let test = async {
        let test = "r-read-late";
        let a = node(test).await;
        let (b, gate) = gated(test).await;
        let mut tx = a.sender::<Late>("late").await?;
        let mut rx = b.receiver::<Late>("late").policy(fifo(3)).await?;
        // Then the credits have arrived.
        let (sent, received) = par!(tx.send(Late(0, channel().1)), rx.recv());
        assert!(sent.is_ok() && received.is_ok());
        let (mut other, end) = channel::<u32>();
        let received = spawn(async move { rx.recv().await });
        tx.send(Late(1, end)).await?;
        while !IS_READ.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        gate.cut();
        assert!(other.send(1).await.is_err());
        gate.mend();
        let (mut tx, mut rx) = (a.sender::<u32>("again").await?, b.receiver::<u32>("again").await?);
        let (sent, again) = par!(tx.send(1), rx.recv());
        assert_eq!((sent?, again?), ((), 1));
        *READS.lock().unwrap() = true;
        MAY_READ.notify_all();
        let Late(_, mut end) = received.await??;
        assert_eq!(end.recv().await, Err(RecvError::NodeLost));
        Result::<()>::Ok(())
    };
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await });
    // If the test has failed, a remaining decoder must not delay the shutdown.
    runtime.shutdown_background();
    ended.expect("the test hangs").unwrap();
}
