//! What a node reports to its program, as events, and to people, by `tracing`. Two applications in one
//! program. Absent nodes.
#![cfg(feature = "net")]

use std::fmt;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::BytesMut;
use dunlin::net::{BoxFuture, Listener, Memory, Network, Socket};
use dunlin::node::roles::JoinWait;
use dunlin::node::{ConnectionState, Down, Encoding, Limit, NameError, NodeError, NodeEvent, Role};
use dunlin::prelude::*;
use dunlin::{ClaimError, broadcast, call};
use dunlin_attack::{Peer, declare, face, life, needs_files};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::handshake::{Answer, Refusal};
use dunlin_proto::wire::{Declaration, Face, Frame};
use dunlin_schema::{Coding, Kind, Schema};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

#[allow(dead_code, reason = "each test needs a part of it")]
#[path = "support/nodes.rs"]
mod support;
use support::{carry, run, way};

#[path = "support/far.rs"]
mod far;
use far::Far;

fn builder(application: &str) -> dunlin::node::NodeBuilder {
    Node::builder().app(application).names(&format!("memory:names-of-{application}")).listen("memory:")
}

/// Nodes of an application of their own, which has the test's name. The first serves the names.
async fn nodes<const N: usize>(test: &str) -> Result<[Node; N]> {
    let mut nodes = vec![builder(test).join().await?];
    nodes[0].sender::<u8>("somebody serves the names").await?;
    while nodes.len() < N {
        nodes.push(builder(test).join().await?);
    }
    Ok(nodes.try_into().unwrap())
}

/// The next event for which `f` returns a value.
async fn next<R>(events: &mut Receiver<NodeEvent>, mut f: impl FnMut(NodeEvent) -> Option<R>) -> Result<R> {
    loop {
        if let Some(wanted) = f(events.recv().await?) {
            return Ok(wanted);
        }
    }
}

/// All events up to the one with this text.
async fn until(events: &mut Receiver<NodeEvent>, text: &str) -> Result<Vec<NodeEvent>> {
    let mut all = Vec::new();
    loop {
        all.push(events.recv().await?);
        if all.last().unwrap().to_string() == text {
            return Ok(all);
        }
    }
}

#[test]
fn joins_and_leaves_are_events() {
    run(async {
        let [a] = nodes("joins").await?;
        let mut events = a.events();
        let [b, c] = [builder("joins").join().await?, builder("joins").join().await?];
        for node in [&b, &c] {
            node.sender::<u8>(&node.me().to_string()).await?;
        }
        let mut all = Vec::new();
        // Either may be the first.
        for node in [&b, &c] {
            let joined = format!("{} has joined", node.me());
            if !all.iter().any(|event: &NodeEvent| event.to_string() == joined) {
                all.append(&mut until(&mut events, &joined).await?);
            }
        }
        for node in [&b, &c] {
            let peer = node.me();
            let at = |event: &NodeEvent| all.iter().position(|other| other == event).unwrap();
            let joined = NodeEvent::Joined { peer, name: peer.to_string() };
            assert!(at(&NodeEvent::Connection(peer, ConnectionState::Up)) < at(&joined));
        }
        // A later subscriber gets the present members.
        let mut late = a.events();
        let mut there = [late.try_recv().unwrap().to_string(), late.try_recv().unwrap().to_string()];
        there.sort();
        let mut expected = [&b, &c].map(|node| format!("{} has joined", node.me()));
        expected.sort();
        assert_eq!(there, expected);
        assert!(late.try_recv().is_err());

        let peer = b.me();
        b.leave().await?;
        let all = until(&mut events, &format!("{peer} has left")).await?;
        let down = NodeEvent::Connection(peer, ConnectionState::Down(Down::Left));
        assert_eq!(all, [down, NodeEvent::Left { peer, name: peer.to_string(), in_order: true }]);
        // A channel of events ends with its node.
        a.leave().await?;
        while let Ok(event) = events.recv().await {
            assert_eq!(event, NodeEvent::Connection(c.me(), ConnectionState::Down(Down::Leaving)));
        }
        Ok(())
    });
}

#[test]
fn refused_declaration_is_reported_as_event() {
    run(async {
        let [a, b] = nodes("refused").await?;
        let mut events = b.events();
        let _tx = a.sender::<u32>("tides").await?;
        let error = b.sender::<u32>("tides").await.unwrap_err();
        let told = next(&mut events, |event| match event {
            NodeEvent::Refused { name, why } => Some((name, why)),
            _ => None,
        });
        assert_eq!(told.await?, ("tides".to_owned(), error));
        Ok(())
    });
}

#[test]
fn mismatched_ends_are_an_event() {
    run(async {
        let [a, b] = nodes("mismatch").await?;
        let mut events = b.events();
        let mut difference = async || {
            next(&mut events, |event| match event {
                NodeEvent::Mismatch { name, difference } => Some((name, difference)),
                _ => None,
            })
            .await
        };
        let _tx = a.sender::<u32>("tides").await?;
        let error = b.receiver::<u32>("tides").encoding(Encoding::Compact).await.unwrap_err();
        let NameError::Mismatch { difference: why, .. } = error else { panic!("{error}") };
        assert_eq!(difference().await?, (Some("tides".to_owned()), why.to_string()));
        let _rx = a.receiver::<String>("words").await?;
        assert!(b.sender::<u32>("words").await.is_err());
        assert_eq!(difference().await?, (Some("words".to_owned()), "text there, u32 here".to_owned()));
        // Both on one node, where nothing is encoded: the types have to be the same.
        let mut tx = b.sender::<u32>("numbers").await?;
        let _rx = b.receiver::<u64>("numbers").await?;
        let (_, text) = difference().await?;
        assert!(text.contains("messages of"), "{text}");
        assert!(tx.send(1).await.unwrap_err().to_string().contains(&text));
        Ok(())
    });
}

async fn limit(events: &mut Receiver<NodeEvent>) -> Result<Limit> {
    next(events, |event| match event {
        NodeEvent::Limit(limit) => Some(limit),
        _ => None,
    })
    .await
}

#[test]
fn a_message_that_is_too_large_is_an_event() {
    run(async {
        let [a] = nodes("large").await?;
        let b = builder("large").message_max_bytes(1000).join().await?;
        let mut events = a.events();
        let (mut tx, _rx) = (a.sender::<Vec<u8>>("blobs").await?, b.receiver::<Vec<u8>>("blobs").await?);
        let error = tx.send(vec![0; 100_000]).await.unwrap_err();
        assert!(matches!(error, SendError::NotTaken { why: Why::TooLarge { .. }, .. }), "{error}");
        let Limit::Message { name, bytes, bytes_max } = limit(&mut events).await? else { panic!() };
        assert_eq!((name.as_deref(), bytes), (Some("blobs"), 100_000));
        assert!((1000..10_000).contains(&bytes_max), "{bytes_max}");
        Ok(())
    });
}

#[test]
fn a_name_service_that_is_full_is_an_event() {
    run(async {
        let [a, b] = nodes("full").await?;
        let mut events = b.events();
        let _ = a;
        let mut ends = Vec::new();
        let error = loop {
            match b.client::<Counter>(&format!("end {}", ends.len())).await {
                Ok(end) => ends.push(end),
                Err(error) => break error,
            }
        };
        let NameError::Full { name, what, max } = error else { panic!("{error}") };
        assert_eq!(ends.len() as u64, max);
        let text = NameError::Full { name: name.clone(), what, max }.to_string();
        assert!(text.ends_with("or send ends in messages instead of declaring each"), "{text}");
        assert_eq!(limit(&mut events).await?, Limit::Names { name, what, max });
        Ok(())
    });
}

#[derive(Bundle)]
struct Counter {
    order: ToServer<u32>,
}

#[test]
fn guests_without_a_receiver_are_an_event() {
    run(async {
        let [a, b] = nodes("guests").await?;
        let mut events = a.events();
        let _nobody_receives = a.acceptor::<Counter>("counter").await?;
        let mut clients = Vec::new();
        let told = loop {
            clients.push(b.client::<Counter>("counter").await?);
            let mut told = None;
            while let Ok(event) = events.try_recv() {
                told = if let NodeEvent::Limit(limit) = event { Some(limit) } else { told };
            }
            if let Some(told) = told {
                break told;
            }
        };
        let Limit::Guests { name, peer, max } = told else { panic!("{told:?}") };
        assert_eq!((name.as_str(), peer), ("counter", b.me()));
        // The last quarter of the places is for others, and the event reports the limit that was reached.
        assert_eq!(max, 768);
        // The refused client gets the reason and the remedy.
        let mut last = clients.pop().unwrap();
        let error = last.order.send(7).await.unwrap_err().to_string();
        let told = "\"counter\" refused this client: the accepting node has no room for another client, or no longer \
                    accepts clients";
        assert!(error.contains(told) && error.contains("declare the client again"), "{error}");
        Ok(())
    });
}

#[test]
fn strangers_are_an_event() {
    needs_files(4_096);
    run(async {
        let names = "memory:names-of-strangers";
        let node = Node::builder().app("strangers").names(names).listen("127.0.0.1:0").join().await?;
        let address = &node.listening()[0];
        let mut events = node.events();
        let mut stranger = async || {
            next(&mut events, |event| match event {
                NodeEvent::Stranger { from, why } => Some((from, why)),
                _ => None,
            })
            .await
        };
        let mut browser = TcpStream::connect(address).await?;
        tokio::io::AsyncWriteExt::write_all(&mut browser, b"GET / HTTP/1.1\r\n\r\n").await?;
        let (from, why) = stranger().await?;
        assert!(from.contains(&browser.local_addr()?.to_string()), "{from}");
        assert!(!why.is_empty());

        // Each notices the other once.
        let other = builder("others").join().await?;
        let mut unwelcome = other.events();
        let mut errors = Vec::new();
        for _ in 0..3 {
            let error = other.sender::<u8>(&format!("{address}/krill")).await.unwrap_err();
            errors.push(error.to_string());
        }
        let (_, why) = stranger().await?;
        assert_eq!(why, "the node belongs to application \"others\"");
        assert!(errors[0].contains("the node belongs to application \"strangers\""), "{errors:?}");
        let told: Vec<_> = std::iter::from_fn(|| unwelcome.try_recv().ok())
            .filter_map(|event| match event {
                NodeEvent::Unwelcome { at, why } => Some((at, why)),
                _ => None,
            })
            .collect();
        assert_eq!(told, [(address.clone(), "the node belongs to application \"strangers\"".to_owned())]);

        // A silent socket takes a place, and the number of places is limited. The oldest make room, and
        // receive a refusal before they are closed. On a busy machine some are closed because they have been
        // silent for too long before all places are taken: others follow.
        let silent = || {
            let address = address.clone();
            async move {
                let mut socket = TcpStream::connect(address).await.unwrap();
                let mut answer = BytesMut::new();
                while socket.read_buf(&mut answer).await.unwrap() > 0 {}
                Answer::decode(&mut answer)
            }
        };
        let mut sockets: JoinSet<_> = (0..1030).map(|_| silent()).collect();
        let mut refused = 0;
        while refused < 5 {
            let answer = sockets.join_next().await.expect("there are 1030").unwrap();
            refused += u64::from(answer == Ok(Some(Answer::Refused(Refusal::Busy))));
            sockets.spawn(silent());
        }
        let told = next(&mut events, |event| match event {
            NodeEvent::Limit(_) | NodeEvent::Stranger { .. } => Some(event),
            _ => None,
        });
        assert!(matches!(told.await?, NodeEvent::Limit(Limit::Handshakes { .. })));
        let refusals = node.refusals();
        assert!(refusals.handshakes >= 5 && refusals.strangers >= 4, "{refusals:?}");
        Ok(())
    });
}

/// A network of a process that may open no more files. Its listener returns one socket, at the call of this
/// number.
struct NoFiles {
    calls: Arc<AtomicU64>,
    gives: u64,
}

/// Too many open files: EMFILE, or WSAEMFILE.
const EMFILE: i32 = if cfg!(unix) { 24 } else { 10024 };

/// After this many calls the listener fails: a node that calls without a pause would have no time for
/// anything else.
const CALLS_MAX: u64 = 10_000;

impl Network for NoFiles {
    fn scheme(&self) -> &'static str {
        "nofiles"
    }

    fn dial<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    fn listen<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Listener>>> {
        let listener = Self { calls: self.calls.clone(), gives: self.gives };
        Box::pin(async { Ok(Box::new(listener) as Box<dyn Listener>) })
    }
}

impl Listener for NoFiles {
    fn accept<'a>(&'a mut self) -> BoxFuture<'a, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            match self.calls.fetch_add(1, Ordering::Relaxed) + 1 {
                call if call == self.gives => {
                    let mut listener = Memory.listen("one-socket").await?;
                    drop(Memory.dial("one-socket").await?);
                    listener.accept().await
                }
                call if call > CALLS_MAX => Err(io::ErrorKind::InvalidInput.into()),
                _ => Err(io::Error::from_raw_os_error(EMFILE)),
            }
        })
    }

    fn address(&self) -> String {
        "all".to_owned()
    }
}

/// The paused clock advances only when every task waits, so each second is one of the node's own.
#[tokio::test(start_paused = true)]
async fn a_node_without_files_tries_again_each_20_ms() {
    let (calls, second) = (Arc::<AtomicU64>::default(), Duration::from_secs(1));
    let network = NoFiles { calls: calls.clone(), gives: 75 };
    let builder = Node::builder().app("no files").names("memory:names-of-no-files").network(network);
    let node = builder.listen("nofiles:all").join().await.unwrap();
    let mut events = node.events();
    for (spells, second_of) in [(1, "the first"), (2, "the second")] {
        let before = calls.load(Ordering::Relaxed);
        sleep(second).await;
        let tries = calls.load(Ordering::Relaxed) - before;
        assert!((45..=52).contains(&tries), "{tries} tries in {second_of} second");
        assert_eq!(node.refusals().files, spells, "one for each spell");
    }
    let told = std::iter::from_fn(|| events.try_recv().ok());
    let told = told.filter(|event| matches!(event, NodeEvent::Limit(Limit::Files { at, .. }) if at == "nofiles:all"));
    assert_eq!(told.count(), 2, "one for each spell");
}

/// A server declares over a network an address of this host. Its client does not dial that, and reports an
/// event that names the setting to allow it; where it is allowed the two connect, without an event.
#[test]
fn undialled_local_address_is_reported_as_event() {
    for dials in [false, true] {
        run(async {
            let application = format!("far away: {dials}");
            let far = || Node::builder().app(&application).network(Far::default()).listen("127.0.0.1:0");
            let names = "memory:names-of-".to_owned() + &application.replace([' ', ':'], "-");
            let service = far().names(&names).join().await?;
            let _served = service.receiver::<u8>("nothing").await?;
            let names = service.listening()[0].clone();
            let server = far().names(&names).dial_local(dials).join().await?;
            let mut rx = server.receiver::<u8>("krill").await?;
            let client = far().names(&names).dial_local(dials).join().await?;
            let mut events = client.events();
            let mut tx = client.sender::<u8>("krill").await?;
            let address = &server.listening()[0];
            if dials {
                let (sent, received) = par!(tx.send(7), rx.recv());
                sent?;
                assert_eq!(received?, 7);
                let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
                assert!(!told.iter().any(|event| matches!(event, NodeEvent::Unwelcome { .. })), "{told:?}");
            } else {
                let why = next(&mut events, |event| match event {
                    NodeEvent::Unwelcome { at, why } if at == *address => Some(why),
                    _ => None,
                });
                let why = why.await?;
                assert!(why.contains("is on this host") && why.contains("set dial_local = true"), "{why}");
            }
            Ok(())
        });
    }
}

/// An address without a node, where none may listen.
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
fn node_takes_no_role_without_a_name_service() {
    run(async {
        for role in [Role::Member, Role::Main] {
            let node = || {
                let node = Node::builder().app("nowhere").names("nowhere:names").network(Nowhere);
                node.listen("memory:").role(role)
            };
            let reason = Some("nowhere:names: connection refused".to_owned());
            let (says, mut said) = tokio::sync::mpsc::unbounded_channel::<JoinWait>();
            let waits = node().on_wait(move |wait| says.send(wait.clone()).unwrap()).join();
            let wait = alt! {
                joined = future(waits) => panic!("it joins: {:?}", joined.map(|node| node.me())),
                wait = future(said.recv()) => wait.expect("the node waits"),
            };
            assert_eq!((wait.role, &wait.without_names), (role, &reason));
            let text = wait.to_string();
            assert!(text.starts_with("waiting for a name service of the application \"nowhere\""), "{text}");
            let node = node().listen("memory:nowhere").wait_for_main(Duration::from_millis(400));
            let error = node.join().await.unwrap_err();
            match (role, &error) {
                (Role::Member, NodeError::NoMain { without_names, .. })
                | (Role::Main, NodeError::NoNames { without_names, .. }) => assert_eq!(*without_names, reason),
                _ => panic!("{error}"),
            }
            assert!(error.to_string().contains("(nowhere:names: connection refused). Start"), "{error}");
            // Its address is free again: the next node listens there.
        }
        Ok(())
    });
}

#[test]
fn an_address_in_use_is_an_error_with_its_remedy() {
    run(async {
        let node = Node::builder().app("in use").names("memory:in-use").listen("127.0.0.1:0").join().await?;
        let taken = &node.listening()[0];
        let error = builder("in use too").listen(taken).join().await.unwrap_err();
        let text = error.to_string();
        let NodeError::Listen { address, error, .. } = error else { panic!("{text}") };
        assert_eq!((&address, error.kind()), (taken, std::io::ErrorKind::AddrInUse));
        assert!(text.contains("end that one, or choose"), "{text}");
        Ok(())
    });
}

/// Each application has its own names and ends.
#[test]
fn a_program_may_join_two_applications() {
    run(async {
        let [river, mill] = nodes("river").await?;
        let [market, baker] = nodes("market").await?;
        // The same name in both is two channels.
        let (mut grain, mut ground) = (river.sender::<u32>("flour").await?, mill.receiver::<u32>("flour").await?);
        let (mut sacks, mut bread) = (market.sender::<u32>("flour").await?, baker.receiver::<u32>("flour").await?);
        let carries = async {
            for n in 0..10 {
                let (sent, received) = par!(grain.send(n), ground.recv());
                sent?;
                let n = received?;
                let (sent, received) = par!(sacks.send(n), bread.recv());
                sent?;
                assert_eq!(received?, n);
            }
            Result::<()>::Ok(())
        };
        carries.await?;

        // An end of one application is refused by the other: it stays, and works.
        let (mut to_baker, mut at_baker) =
            (market.sender::<Sender<u32>>("ends").await?, baker.receiver::<Sender<u32>>("ends").await?);
        let (sent, received) = par!(to_baker.send(grain), async {
            let received = at_baker.recv().within(Duration::from_millis(200)).await;
            received.map(|_| ())
        });
        let Err(SendError::NotTaken { value: mut grain, why: Why::Unsendable(text) }) = sent else {
            panic!("{sent:?}")
        };
        assert!(text.to_string().contains("another node of this program"), "{text}");
        assert_eq!(received, Err(RecvError::TimedOut));
        let (sent, received) = par!(grain.send(11), ground.recv());
        sent?;
        assert_eq!(received?, 11);
        // An end of neither application may travel.
        let (tx, mut rx) = channel::<u32>();
        let (sent, tx) = par!(to_baker.send(tx), at_baker.recv());
        assert!(sent.is_ok());
        let mut tx = tx?;
        let (sent, received) = par!(tx.send(12), rx.recv());
        sent?;
        assert_eq!(received?, 12);

        // A node that leaves one application leaves the other alone.
        let closing = river.closing();
        market.leave().await?;
        baker.leave().await?;
        let (sent, received) = par!(grain.send(13), ground.recv());
        sent?;
        assert_eq!(received?, 13);
        mill.leave().await?;
        river.leave().await?;
        assert_eq!(closing.await, Duration::ZERO);
        Ok(())
    });
}

#[derive(Bundle)]
struct Mill {
    grind: Call<u32, u32>,
    bell: ToClient<u32>,
}

/// Sends an end over a channel of another application than its own: the send returns it, and it does not
/// arrive.
async fn stays<T: Portable>(end: T, from: &Node, to: &Node, name: &str) -> Result<T> {
    let (mut way, mut there) = way::<T>(from, to, name).await?;
    let Err(SendError::NotTaken { value, why: Why::Unsendable(text) }) = way.send(end).await else {
        panic!("{name} goes")
    };
    assert!(text.to_string().contains("of another application"), "{name}: {text}");
    drop(way);
    assert!(matches!(there.recv().await, Err(RecvError::Closed)), "{name} is there");
    Ok(value)
}

async fn passes(tx: &mut Sender<u32>, rx: &mut Receiver<u32>, n: u32) -> Result {
    let (sent, received) = par!(tx.send(n), rx.recv());
    sent?;
    assert_eq!(received?, n);
    Ok(())
}

/// Each end of each pair, when the other one is at another node of its own application.
#[test]
fn ends_of_every_kind_stay_in_their_application() {
    run(async {
        let [river, mill] = nodes("river of ends").await?;
        let [market, baker] = nodes("market of ends").await?;
        let (tx, rx) = channel::<u32>();
        let rx = carry(rx, &river, &mill, "receiver").await?;
        let mut tx = stays(tx, &market, &baker, "sender").await?;
        let mut rx = stays(rx, &market, &baker, "receiver").await?;
        passes(&mut tx, &mut rx, 1).await?;

        let (caller, callee) = call::<u32, u32>();
        let callee = carry(callee, &river, &mill, "callee").await?;
        let mut caller = stays(caller, &market, &baker, "caller").await?;
        let mut callee = stays(callee, &market, &baker, "callee").await?;
        let (replied, accepted) =
            par!(caller.call(2), async { callee.accept().await?.reply(3).map_err(|_| RecvError::Closed) });
        accepted?;
        assert_eq!(replied?, 3);

        let (client, server) = Mill::pair();
        let server = carry(server, &river, &mill, "server").await?;
        let mut client = stays(client, &market, &baker, "client").await?;
        let mut server = stays(server, &market, &baker, "server").await?;
        let (replied, accepted) =
            par!(client.grind.call(4), async { server.grind.accept().await?.reply(5).map_err(|_| RecvError::Closed) });
        accepted?;
        assert_eq!(replied?, 5);
        passes(&mut server.bell, &mut client.bell, 6).await?;

        // A place for a reply is made where the request is received, and its program forwards the reply.
        let (caller, mut callee) = call::<u32, u32>();
        let mut caller = carry(caller, &river, &mill, "a caller").await?;
        let (replied, accepted) = par!(caller.call(7), async {
            let (asked, reply) = callee.accept().await?.split();
            let reply = carry(reply, &market, &baker, "reply").await?;
            reply.send(asked + 1).map_err(|_| Error::other("the caller has left"))
        });
        accepted?;
        assert_eq!(replied?, 8);

        // A receiver that joined a broadcast of the other application.
        let (mut clock, joiner) = broadcast::<u32>();
        let joined = carry(joiner.join(), &river, &mill, "joined").await?;
        let mut joined = stays(joined, &market, &baker, "joined").await?;
        let (sent, received) = par!(clock.send(9), joined.recv());
        assert_eq!((sent, received), (Ok(()), Ok(9)));
        Ok(())
    });
}

/// A handle exchanges frames with the keeper of its end; a program in both applications keeps it for both.
#[test]
fn handles_of_every_kind_are_in_two_applications() {
    run(async {
        let [river, mill] = nodes("river of handles").await?;
        let [market, baker] = nodes("market of handles").await?;

        let (tx, mut rx) = channel::<u32>();
        let here = tx.share();
        let at_mill = carry(here.clone(), &river, &mill, "shared sender").await?;
        let at_baker = carry(here.clone(), &market, &baker, "shared sender").await?;
        for mut handle in [here, at_mill, at_baker] {
            let (sent, received) = par!(handle.send(1), rx.recv());
            sent?;
            assert_eq!(received?, 1);
            let mut claim = handle.claim().await?;
            passes(&mut claim, &mut rx, 2).await?;
            passes(&mut claim, &mut rx, 3).await?;
        }
        assert_eq!(rx.recv().await, Err(RecvError::Closed));

        let (mut tx, rx) = channel::<u32>();
        let here = rx.share();
        let at_mill = carry(here.clone(), &river, &mill, "shared receiver").await?;
        let at_baker = carry(here.clone(), &market, &baker, "shared receiver").await?;
        for mut handle in [here, at_mill, at_baker] {
            let (sent, received) = par!(tx.send(4), handle.recv());
            sent?;
            assert_eq!(received?, 4);
            let mut claim = handle.claim().await?;
            passes(&mut tx, &mut claim, 5).await?;
        }
        assert!(tx.send(6).await.is_err());

        let (caller, mut callee) = call::<u32, u32>();
        let here = caller.share();
        let at_mill = carry(here.clone(), &river, &mill, "shared caller").await?;
        let at_baker = carry(here.clone(), &market, &baker, "shared caller").await?;
        for mut handle in [here, at_mill, at_baker] {
            let (replied, accepted) =
                par!(handle.call(7), async { callee.accept().await?.reply(8).map_err(|_| RecvError::Closed) });
            accepted?;
            assert_eq!(replied?, 8);
        }

        let mut here = barrier();
        let mut at_mill = carry(here.enrol(), &river, &mill, "barrier").await?;
        let mut at_baker = carry(here.enrol(), &market, &baker, "barrier").await?;
        for _ in 0..3 {
            assert_eq!(here.sync().within(Duration::from_millis(5)).await, Err(SyncError::TimedOut));
            let (here, at_mill, at_baker) = par!(here.sync(), at_mill.sync(), at_baker.sync());
            assert_eq!((here, at_mill, at_baker), (Ok(()), Ok(()), Ok(())));
        }

        let (clock, joiner) = broadcast::<u32>();
        let mut clock = clock.at_least(3);
        let at_mill = carry(joiner.clone(), &river, &mill, "joiner").await?;
        let at_baker = carry(joiner.clone(), &market, &baker, "joiner").await?;
        let (mut one, mut two, mut three) = (joiner.join(), at_mill.join(), at_baker.join());
        for n in 0..3 {
            let all = par!(clock.send(n), one.recv(), two.recv(), three.recv());
            assert_eq!(all, (Ok(()), Ok(n), Ok(n), Ok(n)));
        }
        Ok(())
    });
}

/// Where a handle of a shared face is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Home,
    Mill,
    Baker,
}

/// Nodes of two applications: a program has one of each, `river` and `market`.
struct Two {
    river: Node,
    mill: Node,
    market: Node,
    baker: Node,
}

impl Two {
    async fn new(test: &str) -> Result<Self> {
        let [river, mill] = nodes(&format!("river of {test}")).await?;
        let [market, baker] = nodes(&format!("market of {test}")).await?;
        Ok(Self { river, mill, market, baker })
    }

    /// Sends the end there from the program.
    async fn to<T: Portable>(&self, at: At, end: T, name: &str) -> Result<T> {
        match at {
            At::Home => Ok(end),
            At::Mill => carry(end, &self.river, &self.mill, name).await,
            At::Baker => carry(end, &self.market, &self.baker, name).await,
        }
    }
}

/// Claims the face and uses all its ends: repeatedly, with a lasting claim, and with more operations in a row
/// than may be on their way at once.
async fn uses(client: &mut Shared<MillClient>, server: &mut MillServer, at: At) -> Result {
    for n in 0..3 {
        let mut claim = client.claim().await?;
        for n in n..n + 8 {
            let (replied, accepted) = par!(claim.grind.call(n), async {
                let (asked, reply) = server.grind.accept().await?.split();
                reply.send(asked + 1).map_err(|_| RecvError::Closed)
            });
            accepted?;
            assert_eq!(replied?, n + 1, "{at:?}");
            passes(&mut server.bell, &mut claim.bell, n).await?;
        }
    }
    Ok(())
}

/// A face travels to its claimer. If it cannot, since it has been at nodes of another application, the
/// claimer uses it from there, and it stays: for claimers in turn, and wherever its other side is.
#[test]
fn a_shared_face_serves_two_applications() {
    const ORDERS: [&[At]; 3] = [
        &[At::Home, At::Mill, At::Baker, At::Mill, At::Home, At::Baker, At::Baker, At::Mill, At::Home],
        &[At::Baker, At::Mill, At::Baker, At::Home, At::Mill, At::Home],
        &[At::Mill, At::Baker, At::Home],
    ];
    run(async {
        let nodes = Two::new("faces").await?;
        for (order, server_at) in ORDERS.into_iter().zip([At::Home, At::Mill, At::Baker].into_iter().cycle()) {
            for server_at in [server_at, At::Home, At::Mill, At::Baker] {
                let (client, server) = Mill::pair();
                let mut server = nodes.to(server_at, server, "server").await?;
                let mut here = client.share();
                let mut at_mill = nodes.to(At::Mill, here.clone(), "client").await?;
                let mut at_baker = nodes.to(At::Baker, here.clone(), "client").await?;
                for at in order {
                    let handle = match at {
                        At::Home => &mut here,
                        At::Mill => &mut at_mill,
                        At::Baker => &mut at_baker,
                    };
                    let used = uses(handle, &mut server, *at).await;
                    assert!(used.is_ok(), "{used:?}: server at {server_at:?}, {order:?}, at {at:?}");
                }
                drop((here, at_mill, at_baker));
                assert!(matches!(server.grind.accept().await, Err(RecvError::Closed)));
                server.bell.closed().await;
            }
        }
        Ok(())
    });
}

/// A handle that arrived over one application is refused by another one, in which no node reaches the keeper
/// of its end: the send returns it, and all handles are as before.
#[test]
fn handle_is_forwarded_in_its_own_application_only() {
    run(async {
        let Two { river, mill, market, baker } = Two::new("handles that go on").await?;

        let (tx, mut rx) = channel::<u32>();
        let here = tx.share();
        let at_mill = carry(here.clone(), &river, &mill, "sender").await?;
        let clone = at_mill.clone();
        let at_mill = stays(at_mill, &market, &baker, "sender").await?;
        // It travels on from the node by which it arrived.
        let back = carry(clone.clone(), &mill, &river, "sender, back").await?;
        let at_baker = carry(here.clone(), &market, &baker, "sender").await?;
        for mut handle in [clone, at_mill, here, back, at_baker] {
            for n in 0..2 {
                let (sent, received) = par!(handle.send(n), rx.recv());
                sent?;
                assert_eq!(received?, n);
                let mut claim = handle.claim().await?;
                passes(&mut claim, &mut rx, 2).await?;
            }
        }
        assert_eq!(rx.recv().await, Err(RecvError::Closed));

        let (mut tx, rx) = channel::<u32>();
        let here = rx.share();
        let at_mill = carry(here.clone(), &river, &mill, "receiver").await?;
        let clone = at_mill.clone();
        let at_mill = stays(at_mill, &market, &baker, "receiver").await?;
        let at_baker = carry(here.clone(), &market, &baker, "receiver").await?;
        for mut handle in [clone, at_mill, here, at_baker] {
            let (sent, received) = par!(tx.send(3), handle.recv());
            sent?;
            assert_eq!(received?, 3);
            let mut claim = handle.claim().await?;
            passes(&mut tx, &mut claim, 4).await?;
        }
        assert!(tx.send(5).await.is_err());

        let (caller, mut callee) = call::<u32, u32>();
        let here = caller.share();
        let at_mill = carry(here.clone(), &river, &mill, "caller").await?;
        let clone = at_mill.clone();
        let at_mill = stays(at_mill, &market, &baker, "caller").await?;
        let at_baker = carry(here.clone(), &market, &baker, "caller").await?;
        for mut handle in [clone, at_mill, here, at_baker] {
            let (replied, accepted) =
                par!(handle.call(6), async { callee.accept().await?.reply(7).map_err(|_| RecvError::Closed) });
            accepted?;
            assert_eq!(replied?, 7);
        }

        let (client, mut server) = Mill::pair();
        let mut here = client.share();
        let mut at_mill = carry(here.clone(), &river, &mill, "face").await?;
        let mut clone = at_mill.clone();
        uses(&mut clone, &mut server, At::Mill).await?;
        at_mill = stays(at_mill, &market, &baker, "face").await?;
        let mut at_baker = carry(here.clone(), &market, &baker, "face").await?;
        for _ in 0..2 {
            uses(&mut here, &mut server, At::Home).await?;
            uses(&mut at_baker, &mut server, At::Baker).await?;
            uses(&mut clone, &mut server, At::Mill).await?;
            uses(&mut at_mill, &mut server, At::Mill).await?;
        }

        let (clock, joiner) = broadcast::<u32>();
        let at_mill = carry(joiner.clone(), &river, &mill, "joiner").await?;
        let at_mill = stays(at_mill, &market, &baker, "joiner").await?;
        let (mut one, mut two) = (joiner.join(), at_mill.join());
        let mut clock = clock.at_least(2);
        let (sent, first, second) = par!(clock.send(8), one.recv(), two.recv());
        assert_eq!((sent, first, second), (Ok(()), Ok(8), Ok(8)));

        // Through a program that keeps the channel of the handle's way.
        let (tx, mut rx) = channel::<u32>();
        let (way, there) = channel::<Shared<Sender<u32>>>();
        let mut here = there.share();
        let mut way = carry(way, &river, &mill, "way").await?;
        let mut at_baker = carry(here.clone(), &market, &baker, "its receiver").await?;
        let refused = alt! {
            sent = future(way.send(tx.share())) => sent.err(),
            _ = at_baker.recv() => None,
        };
        let Some(SendError::NotTaken { value: mut handle, why: Why::Unsendable(_) }) = refused else {
            panic!("{refused:?}")
        };
        // The keeper may not know yet that the receive at the baker was dropped: then it refuses once more.
        let sends = async {
            loop {
                match way.send(handle).await {
                    Err(SendError::NotTaken { value, why: Why::Unsendable(_) }) => handle = value,
                    sent => return sent,
                }
            }
        };
        let (sent, received) = par!(sends, here.recv());
        sent?;
        let mut handle = received?;
        let (sent, received) = par!(handle.send(1), rx.recv());
        assert_eq!((sent, received), (Ok(()), Ok(1)));

        // An enrolment travels on: the frames of its group pass through the program.
        let mut here = barrier();
        let mut at_mill = carry(here.enrol(), &river, &mill, "barrier").await?;
        let mut at_baker = carry(at_mill.enrol(), &market, &baker, "barrier").await?;
        for _ in 0..3 {
            assert_eq!(here.sync().within(Duration::from_millis(5)).await, Err(SyncError::TimedOut));
            let (here, at_mill, at_baker) = par!(here.sync(), at_mill.sync(), at_baker.sync());
            assert_eq!((here, at_mill, at_baker), (Ok(()), Ok(()), Ok(())));
        }
        Ok(())
    });
}

#[derive(Bundle)]
struct Hoist {
    load: ToServer<Vec<u8>>,
    unload: ToClient<Vec<u8>>,
    rope: ToServer<Sender<u32>>,
}

/// The operations on a face that is used from another application: large values and those of choices, dropped
/// operations, and an end, if it belongs to the application in which the face has been.
#[test]
fn face_carries_operations_of_a_claimer_in_another_application() {
    run(async {
        let nodes = Two::new("hoists").await?;
        let (client, mut server) = Hoist::pair();
        let mut here = client.share();
        let mut at_mill = nodes.to(At::Mill, here.clone(), "client").await?;
        let mut at_baker = nodes.to(At::Baker, here.clone(), "client").await?;
        drop(at_mill.claim().await?);
        for n in 0..3u8 {
            let mut claim = at_baker.claim().await?;
            for size in [1, 100_000, 1_000_000] {
                let sack = vec![n; size];
                let (sent, received) = par!(claim.load.send(sack.clone()), server.load.recv());
                sent?;
                assert_eq!(received?, sack);
                let extended = async { Ok::<_, RecvError>(claim.unload.recv_extended().await?.release()) };
                let (sent, received) = par!(server.unload.send(sack.clone()), extended);
                sent?;
                assert_eq!(received?, sack);
                let mut slot = Some(sack);
                let chosen = async {
                    alt! {
                        sent = claim.load.send_from(&mut slot) => sent.is_ok(),
                        _ = future(std::future::pending::<()>()) => false,
                    }
                };
                let (sent, received) = par!(chosen, server.load.recv());
                assert!(sent);
                assert_eq!(received?.len(), size);
            }
            let given_up = claim.load.send(vec![n]).within(Duration::from_millis(5)).await.unwrap_err();
            assert_eq!(given_up.into_value(), [n]);
            let received = claim.unload.recv().within(Duration::from_millis(5)).await;
            assert_eq!(received, Err(RecvError::TimedOut));
            // This value is not received yet: the next claimer receives it.
            drop(claim);
            let (sent, received) = par!(server.unload.send(vec![n]), async {
                here.claim().await?.unload.recv().await.map_err(Error::from)
            });
            sent?;
            assert_eq!(received?, [n]);
        }

        let (tx, _rx) = channel::<u32>();
        let mut claim = at_baker.claim().await?;
        let Err(SendError::NotTaken { value: tx, why: Why::Unsendable(text) }) = claim.rope.send(tx).await else {
            panic!("it goes")
        };
        assert!(text.to_string().contains("of another application"), "{text}");
        drop(claim);
        let mut claim = at_mill.claim().await?;
        let (sent, received) = par!(claim.rope.send(tx), server.rope.recv());
        assert!(sent.is_ok() && received.is_ok());
        drop(claim);

        // The claimer ends a channel for all handles.
        let claim = at_baker.claim().await?;
        claim.load.retire();
        assert_eq!(server.load.recv().await, Err(RecvError::Closed));
        claim.unload.poison("done");
        assert!(server.unload.send(vec![]).await.is_err_and(|error| error.is_poisoned()));
        drop(claim);
        for handle in [&mut here, &mut at_mill, &mut at_baker] {
            let mut claim = handle.claim().await?;
            assert!(claim.load.send(vec![]).await.is_err_and(|error| error.is_closed()));
            assert!(matches!(claim.unload.recv().await, Err(RecvError::Poisoned(_))));
        }
        Ok(())
    });
}

/// A lent end is not lost with the node that uses it.
#[test]
fn a_face_that_is_lent_outlives_its_claimer() {
    run(async {
        let nodes = Two::new("loans").await?;
        let (client, mut server) = Mill::pair();
        let mut here = client.share();
        let mut at_mill = nodes.to(At::Mill, here.clone(), "client").await?;
        let mut at_baker = nodes.to(At::Baker, here.clone(), "client").await?;
        uses(&mut at_mill, &mut server, At::Mill).await?;
        let mut claim = at_baker.claim().await?;
        passes(&mut server.bell, &mut claim.bell, 1).await?;
        let (left, used) = par!(nodes.baker.leave(), uses(&mut here, &mut server, At::Home));
        left?;
        used?;
        assert!(claim.grind.call(2).await.is_err());
        drop(claim);
        uses(&mut at_mill, &mut server, At::Mill).await
    });
}

/// A face that cannot be used from elsewhere: an enrolment belongs to one node.
#[derive(serde::Serialize, serde::Deserialize)]
struct Oath {
    say: Sender<u32>,
    all: Barrier,
}

impl dunlin::End for Oath {
    type Link = ();

    fn link(&self) {}
}

impl dunlin::Lend for Oath {
    type Other = ();

    fn lone(_: Shared<Self>) -> Option<dunlin::carrier::Agent> {
        None
    }

    fn another() -> (Option<dunlin::carrier::Agent>, ()) {
        (None, ())
    }

    fn carry(_: Shared<Self>, (): ()) -> Option<dunlin::carrier::Chore> {
        None
    }

    fn adopt() -> (Option<Self>, (), Option<dunlin::carrier::Agent>) {
        (None, (), None)
    }
}

/// A face that can neither travel to its claimer nor be used from there is refused, and stays.
#[test]
fn a_face_that_cannot_serve_two_applications_stays() {
    run(async {
        let nodes = Two::new("oaths").await?;
        let (say, mut heard) = channel::<u32>();
        let mut witness = barrier();
        let mut here = dunlin::End::share(Oath { say, all: witness.enrol() });
        let mut at_mill = nodes.to(At::Mill, here.clone(), "oath").await?;
        let mut at_baker = nodes.to(At::Baker, here.clone(), "oath").await?;
        let mut also_there = at_baker.clone();
        let mut swears = async |handle: &mut Shared<Oath>| {
            let mut claim = handle.claim().await?;
            passes(&mut claim.say, &mut heard, 1).await?;
            let (there, here) = par!(claim.all.sync(), witness.sync());
            there?;
            here?;
            Result::<()>::Ok(())
        };
        let refused = |claimed: Option<ClaimError>| match claimed {
            Some(ClaimError::Unsendable(why)) => assert!(why.as_str().contains("enrolment on a barrier"), "{why}"),
            other => panic!("{other:?}"),
        };
        swears(&mut at_mill).await?;
        for _ in 0..3 {
            let (one, other) = par!(at_baker.claim(), also_there.claim());
            refused(one.err());
            refused(other.err());
            refused(alt! {
                claimed = at_baker.claim() => claimed.err(),
                _ = future(std::future::pending::<()>()) => None,
            });
            assert_eq!(at_baker.try_claim().err(), Some(ClaimError::WouldBlock));
            swears(&mut here).await?;
            swears(&mut at_mill).await?;
        }
        // Also for a claim that waited while another handle had it, and was dropped.
        let held = at_mill.claim().await?;
        let given_up = also_there.claim().within(Duration::from_millis(5)).await;
        assert_eq!(given_up.err(), Some(ClaimError::TimedOut));
        let (claimed, ()) = par!(at_baker.claim(), async { drop(held) });
        refused(claimed.err());
        drop((at_baker, also_there));
        swears(&mut at_mill).await?;
        swears(&mut here).await
    });
}

#[test]
fn a_program_may_have_a_role_in_each_of_two_applications() {
    run(async {
        let south = builder("south").role(Role::Main).named("south").join().await?;
        let north = builder("north").role(Role::Main).named("north").join().await?;
        let [of_south, of_north] =
            [builder("south").role(Role::Member).join().await?, builder("north").role(Role::Member).join().await?];
        assert_eq!((south.members()[0].peer, north.members()[0].peer), (of_south.me(), of_north.me()));
        let closes = of_south.closing();
        let (left, done) = par!(south.leave(), async {
            closes.await;
            of_south.leave().await
        });
        left?;
        done?;
        assert_eq!(north.members().len(), 1);
        let (left, done) = par!(north.leave(), of_north.leave());
        left?;
        done
    });
}

/// A line of the log: level, target, message and fields, application.
type Line = (Level, String, String, Option<String>);

/// Keeps the lines, for all tests of this program.
#[derive(Default)]
struct Keeps {
    lines: Mutex<Vec<Line>>,
    /// Like a user's subscriber, it may query a node.
    asks: OnceLock<Node>,
}

static KEEPS: OnceLock<Arc<Keeps>> = OnceLock::new();

#[derive(Default)]
struct Fields {
    text: String,
    application: Option<String>,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "application" => self.application = Some(value.to_owned()),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text += &format!("{}={value:?};", field.name());
    }
}

struct Subscribed(Arc<Keeps>);

impl Subscriber for Subscribed {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("dunlin")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if let Some(node) = self.0.asks.get() {
            node.peers();
        }
        let (level, target) = (*event.metadata().level(), event.metadata().target().to_owned());
        self.0.lines.lock().unwrap().push((level, target, fields.text, fields.application));
    }
}

fn keeps() -> &'static Arc<Keeps> {
    KEEPS.get_or_init(|| {
        let keeps = Arc::<Keeps>::default();
        tracing::subscriber::set_global_default(Subscribed(keeps.clone())).unwrap();
        keeps
    })
}

/// A node of this application that dials from this address, is admitted, and then violates the protocol.
async fn violate(to: &str, from: Ipv4Addr, app: &str, me: u128) -> Result {
    let mut peer = Peer::meet(from.octets(), to, app, life(me)).await?;
    // It has confirmed, and then sends bytes that are no frame.
    peer.write(&[0xFF; 16]).await?;
    while peer.hear().await.is_ok() {}
    Ok(())
}

/// Each violation is an event, and counted; the log has a line for each source address, and ten at most.
#[test]
fn refusals_do_not_flood_the_log() {
    let keeps = keeps();
    run(async {
        let app = "violations";
        let node = builder(app).listen("127.0.0.1:0").join().await?;
        let address = node.addresses().iter().find(|address| address.starts_with("127.")).unwrap().clone();
        let mut events = node.events();
        let mut told = async || {
            let limit = next(&mut events, |event| match event {
                NodeEvent::Limit(Limit::Peer { .. }) => Some(()),
                _ => None,
            });
            limit.await
        };
        let lines = || {
            let lines = keeps.lines.lock().unwrap().clone();
            let here = lines.into_iter().filter(|line| line.3.as_deref() == Some(app) && line.0 == Level::WARN);
            here.map(|line| line.2).collect::<Vec<_>>()
        };
        for n in 0..5 {
            violate(&address, Ipv4Addr::LOCALHOST, app, n).await?;
            told().await?;
        }
        for n in 5..25 {
            violate(&address, Ipv4Addr::new(127, 0, 1, n as u8), app, n).await?;
            told().await?;
        }
        assert_eq!(node.refusals().peers, 25);
        node.leave().await?;
        // One of the five of one address, nine of the twenty others, and the count.
        assert_eq!(lines().len(), 11, "{:#?}", lines());
        assert!(
            lines()[..10].iter().all(|line| line.contains("was closed after a protocol violation")),
            "{:#?}",
            lines()
        );
        assert!(lines()[10].contains("15 more refusals"), "{:#?}", lines());
        Ok(())
    });
}

/// A peer that is no node, or proves no identity, has a line for each source address; a node of another
/// application, which only looks for its own, has one only at a finer level.
#[test]
fn strangers_have_a_line_each_and_do_not_flood_the_log() {
    let keeps = keeps();
    run(async {
        let app = "strange lines";
        let node = builder(app).listen("127.0.0.1:0").join().await?;
        let address = node.addresses().iter().find(|address| address.starts_with("127.")).unwrap().clone();
        let mut events = node.events();
        let lines = |level: Level| {
            let lines = keeps.lines.lock().unwrap().clone();
            let here = lines.into_iter().filter(move |line| line.3.as_deref() == Some(app) && line.0 == level);
            here.map(|line| line.2)
                .filter(|line| line.contains("refused a connection from") || line.contains("more refusals"))
        };
        for from in [&[[127, 0, 0, 1]; 5][..], &(0..20).map(|n| [127, 0, 1, n]).collect::<Vec<_>>()].concat() {
            let mut stranger = Peer::dial(from, &address).await?;
            stranger.write(b"GET / HTTP/1.1\r\n\r\n").await?;
            let told = next(&mut events, |event| matches!(event, NodeEvent::Stranger { .. }).then_some(()));
            told.await?;
        }
        assert_eq!(lines(Level::WARN).count(), 10, "one of the five of one address, and nine of the twenty others");
        Peer::who_is([127, 0, 0, 1], &address, "looking for its own", life(1)).await.unwrap_err();
        let why = next(&mut events, |event| match event {
            NodeEvent::Stranger { why, .. } => Some(why),
            _ => None,
        });
        assert!(why.await?.contains("looking for its own"));
        assert_eq!(node.refusals().strangers, 26);
        node.leave().await?;
        let lines: Vec<_> = lines(Level::WARN).collect();
        assert_eq!(lines.len(), 11, "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("looking")), "{lines:#?}");
        assert!(lines[10].contains("16 more refusals"), "{lines:#?}");
        Ok(())
    });
}

/// Like refusals: a peer chooses how many of its declarations do not fit.
#[test]
fn mismatches_do_not_flood_the_log() {
    const NAMES: u64 = 25;
    let keeps = keeps();
    run(async {
        let app = "mismatches";
        let node = builder(app).listen("127.0.0.1:0").join().await?;
        let address = node.addresses().iter().find(|address| address.starts_with("127.")).unwrap().clone();
        let mut events = node.events();
        let mut receivers = Vec::new();
        for n in 0..NAMES {
            receivers.push(node.receiver::<String>(&format!("m{n}")).await?);
        }
        let mut peer = Peer::meet([127, 0, 0, 2], &address, app, life(1)).await?;
        let schema = Schema::new(Coding::Cbor, vec![Kind::Bool]).expect("it is one").encode().expect("it is short");
        let face = Declaration { schema, ..face(Face::Sender) };
        for n in 0..NAMES {
            peer.say(&[declare(n, &format!("m{n}"), ChannelId(0), &face)]).await?;
            next(&mut events, |event| matches!(event, NodeEvent::Mismatch { .. }).then_some(())).await?;
        }
        peer.say(&[Frame::Goodbye]).await?;
        node.leave().await?;
        let lines = keeps.lines.lock().unwrap().clone();
        let here = lines.into_iter().filter(|line| line.3.as_deref() == Some(app) && line.0 == Level::WARN);
        let lines: Vec<String> = here.map(|line| line.2).collect();
        assert_eq!(lines.len(), 2, "{lines:#?}");
        assert!(lines[0].contains("do not agree") && lines[1].contains("24 more"), "{lines:#?}");
        Ok(())
    });
}

#[test]
fn log_reports_the_events_of_a_shutdown() {
    let keeps = keeps();
    run(async {
        let main = builder("read").role(Role::Main).named("master").join().await?;
        assert!(keeps.asks.set(main.clone()).is_ok());
        let member = builder("read").role(Role::Member).named("worker").join().await?;
        let mut events = member.events();
        let peer = member.me();
        let (left, done) = par!(main.clone().leave(), async {
            next(&mut events, |event| matches!(event, NodeEvent::Closing { .. }).then_some(())).await?;
            member.leave().await
        });
        left?;
        done?;
        let lines = keeps.lines.lock().unwrap().clone();
        let here: Vec<_> = lines.iter().filter(|line| line.3.as_deref() == Some("read")).collect();
        assert!(here.iter().all(|(_, target, ..)| target == "dunlin::node"));
        let at = |level: Level, text: &str| {
            let found = here.iter().position(|line| line.0 == level && line.2.contains(text));
            found.unwrap_or_else(|| panic!("{text} is not in {here:#?}"))
        };
        for text in ["message=listening;", "message=serving the names;", "message=dialled;"] {
            let level = if text.contains("dialled") { Level::DEBUG } else { Level::INFO };
            at(level, text);
        }
        let (joined, left) =
            (at(Level::INFO, "message=worker has joined;"), at(Level::INFO, "message=worker has left;"));
        // Each node writes its own in order, but one may be later than the other: both say this.
        let closing = at(Level::INFO, "message=the application is closing within 10s;");
        let last_closing = here.iter().rposition(|line| line.2.contains("message=the application is closing")).unwrap();
        assert!(joined < last_closing && closing < left);
        assert!(here[joined].2.contains(&format!("peer={peer};")), "{:?}", here[joined]);
        at(Level::DEBUG, &format!("message=connected with {peer};"));
        at(Level::INFO, "message=leaving;");
        Ok(())
    });
}
