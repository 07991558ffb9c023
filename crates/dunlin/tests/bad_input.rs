//! Input that a node receives over a real socket from a peer that does not keep to the protocol. The node
//! answers, or closes the connection, and reports the reason to its program. Its other connections keep
//! working: meanwhile two nodes play ping-pong.
#![cfg(feature = "net")]

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use dunlin::node::{ConnectionState, Down, Encoding, Limit, NameError, NodeError, NodeEvent, Peer};
use dunlin::prelude::*;
use dunlin_attack::{ANY, Key, Peer as Intruder, bytes_of, declare, face, life, offer};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::identity::sign_hello;
use dunlin_proto::wire;
use dunlin_proto::wire::handshake::{Answer, Hello, MAGIC, Refusal, Welcome};
use dunlin_proto::wire::{
    Declaration, End, Face, Failure, Frame, FromHome, Head, Memory, Names, Read, Rejection, ToHome, VERSIONS,
};
use dunlin_schema::{Coding, Kind, Schema};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The node that receives the input, with a friend. Both find their names at a third node, so that this one
/// has a registry of its own.
struct Stage {
    node: Node,
    connections: Receiver<(Peer, ConnectionState)>,
    names: Node,
    pings: watch::Receiver<u64>,
    playing: [Process<Result>; 2],
}

impl Stage {
    async fn new(test: &str) -> Result<Self> {
        let builder = || {
            let builder = Node::builder().app(test).names(&format!("memory:names-of-{test}"));
            builder.heartbeat(Duration::from_millis(200)).grace(Duration::from_secs(1))
        };
        let names = builder().listen("memory:").join().await?;
        let _served = names.receiver::<u64>("nothing").await?;
        let (node, friend) = (builder().join().await?, builder().join().await?);
        let (mut ping, mut pinged) = (friend.sender::<u64>("ping").await?, node.receiver::<u64>("ping").await?);
        let (mut pong, mut ponged) = (node.sender::<u64>("pong").await?, friend.receiver::<u64>("pong").await?);
        let (count, pings) = watch::channel(0);
        let playing = [
            spawn(async move {
                for n in 0.. {
                    if count.send(n).is_err() {
                        break; // the stage is closed
                    }
                    ping.send(n).await?;
                    assert_eq!(ponged.recv().await?, n);
                }
                ping.retire();
                friend.leave().await
            }),
            spawn(async move {
                while let Some(n) = pinged.next().await? {
                    pong.send(n).await?;
                }
                Ok(())
            }),
        ];
        let connections = node.connections();
        let mut stage = Self { node, connections, names, pings, playing };
        stage.goes_on().await;
        Ok(stage)
    }

    fn address(&self) -> &str {
        &self.node.addresses()[0]
    }

    /// Waits for ten more rounds of the game, over the connection that was there before.
    async fn goes_on(&mut self) {
        let now = *self.pings.borrow_and_update();
        self.pings.wait_for(|pings| *pings >= now + 10).await.expect("ping and pong continue");
    }

    /// Waits until the connection to this intruder is down, and returns the reason.
    async fn down(&mut self, life: Life) -> Down {
        loop {
            let (peer, state) = self.connections.recv().await.unwrap();
            match state {
                ConnectionState::Down(why) if peer.to_string() == life.node.to_string() => return why,
                ConnectionState::Down(why) => panic!("the connection to {peer} is down: {why}"),
                _ => {}
            }
        }
    }

    async fn close(self) -> Result {
        drop(self.pings);
        for playing in self.playing {
            playing.await??;
        }
        self.node.leave().await?;
        self.names.leave().await
    }
}

fn run(test: impl Future<Output = Result>) {
    let limit = Duration::from_secs(120);
    dunlin::block_on(async { tokio::time::timeout(limit, test).await.expect("the test hangs") }).unwrap();
}

/// The address from which intruders dial.
const ELSEWHERE: [u8; 4] = [127, 0, 0, 1];

/// Asks for the identity of the node.
fn hello(stage: &Stage, me: Life) -> Hello {
    dunlin_attack::hello(stage.node.application(), me, ANY)
}

/// A peer that has shaken hands, and then sends any bytes.
async fn meet(stage: &Stage, me: Life) -> Intruder {
    Intruder::meet(ELSEWHERE, stage.address(), stage.node.application(), me).await.unwrap()
}

/// The hello as its node signs it.
fn signed(hello: &Hello) -> Bytes {
    sign_hello(&Key::of(hello.me.node), hello.clone()).encode()
}

/// Sends all these bytes, and returns all answers until the node closes the socket.
async fn last_words(address: &str, said: &[u8]) -> BytesMut {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The node may have closed the socket before it has read all.
    let _ = stream.write_all(said).await;
    rest(&mut stream).await
}

async fn rest(stream: &mut TcpStream) -> BytesMut {
    let mut heard = BytesMut::new();
    while stream.read_buf(&mut heard).await.is_ok_and(|bytes| bytes > 0) {}
    heard
}

/// A sender with this description of its messages.
fn sender(schema: Bytes) -> Declaration {
    Declaration { schema, ..face(Face::Sender) }
}

#[test]
fn strangers_are_refused_or_cut_off() {
    run(async {
        let mut stage = Stage::new("strangers").await?;
        let good = hello(&stage, life(1));
        let encoded = good.encode();

        // The node does not answer bytes that are no hello.
        let mut too_long = MAGIC.to_vec();
        too_long.extend([1, 0xFF, 0xFF]);
        let mut more = BytesMut::from(&encoded[..]);
        more[MAGIC.len() + 2] += 1;
        more.extend_from_slice(b"x");
        let unknown = [&MAGIC[..], &[9, 0, 0]].concat();
        for garbage in [&b"GET / HTTP/1.1\r\nHost: krill\r\n\r\n"[..], &[0; 100_000], &too_long, &more, &unknown] {
            assert_eq!(last_words(stage.address(), garbage).await.len(), 0);
            stage.goes_on().await;
        }
        // The node waits for the rest of a hello, but only for a limited time.
        for end in 0..encoded.len() {
            let mut stream = TcpStream::connect(stage.address()).await?;
            stream.write_all(&encoded[..end]).await?;
        }
        stage.goes_on().await;
        assert_eq!(last_words(stage.address(), &encoded[..encoded.len() - 1]).await.len(), 0);

        // A peer that could be a node gets the reason, and this node's program an event.
        let mut events = stage.node.events();
        let mut old = BytesMut::from(&encoded[..]);
        old[MAGIC.len() + 3..][..4].copy_from_slice(&[0xEE, 0, 0xEE, 1]);
        let application = Hello { application: "krill".to_owned(), ..good.clone() };
        let elsewhere = Hello { wanted: NodeId(7), ..good.clone() };
        for (said, expected, told) in [
            (old.freeze(), Refusal::Version(VERSIONS), "the dialler speaks none of the protocol versions"),
            (
                application.encode(),
                Refusal::Application("strangers".to_owned()),
                "the node belongs to application \"krill\"",
            ),
        ] {
            let answer = Answer::decode(&mut last_words(stage.address(), &said).await);
            assert_eq!(answer, Ok(Some(Answer::Refused(expected))));
            let why = loop {
                if let NodeEvent::Stranger { why, .. } = events.recv().await? {
                    break why;
                }
            };
            assert!(why.starts_with(told), "{why}");
            stage.goes_on().await;
        }
        let answer = Answer::decode(&mut last_words(stage.address(), &elsewhere.encode()).await);
        assert!(matches!(answer, Ok(Some(Answer::Refused(Refusal::WrongNode(_))))), "{answer:?}");

        // A former life, and an earlier attempt, are too late.
        let mut events = stage.node.events();
        let intruder = meet(&stage, Life { incarnation: Incarnation(5), ..life(1) }).await;
        // The node has read the confirmation, too. (Earlier nodes are reported first.)
        let met = |peer: &Peer| peer.to_string() == intruder.me().node.to_string();
        while !matches!(events.recv().await?, NodeEvent::Joined { peer, .. } if met(&peer)) {}
        let answer = Answer::decode(&mut last_words(stage.address(), &encoded).await);
        assert!(matches!(answer, Ok(Some(Answer::Over(Refusal::Stale(Incarnation(5)), ..)))), "{answer:?}");
        let Ok(Some(Answer::Welcome(Welcome { me, .. }))) =
            Answer::decode(&mut last_words(stage.address(), &hello(&stage, life(2)).encode()).await)
        else {
            panic!("no welcome")
        };
        let replayed = Hello { me: intruder.me(), wanted: me.node, ..good.clone() };
        let answer = Answer::decode(&mut last_words(stage.address(), &signed(&replayed)).await);
        assert_eq!(answer, Ok(Some(Answer::Refused(Refusal::Late))));
        // A later life is refused too, since each node draws its id when it starts; so is a node with
        // another's key.
        let later = Life { incarnation: Incarnation(u64::MAX), ..intruder.me() };
        let later = Hello { me: later, wanted: me.node, ..good.clone() };
        let answer = Answer::decode(&mut last_words(stage.address(), &signed(&later)).await);
        assert!(matches!(answer, Ok(Some(Answer::Over(Refusal::AnotherLife(Incarnation(5)), ..)))), "{answer:?}");
        let other = Hello { me: life(3), ..good };
        let answer = Answer::decode(&mut last_words(stage.address(), &other.encode()).await);
        assert_eq!(answer, Ok(Some(Answer::Refused(Refusal::Unproven))));
        stage.goes_on().await;
        drop(intruder);
        stage.close().await
    });
}

#[test]
fn a_peer_that_breaks_the_protocol_is_cut_off() {
    run(async {
        let mut stage = Stage::new("violations").await?;
        let mut events = stage.node.events();
        let (taken, more) =
            (Frame::FromHome(ChannelId(1), FromHome::Taken(1)), Frame::More(ChannelId(1), Bytes::from_static(b"x")));
        let mut number = 0;
        for (what, said) in [
            ("an unknown kind", BytesMut::from(&[0xEE, 0][..])),
            (
                "an endless length",
                BytesMut::from(&[bytes_of(std::slice::from_ref(&more))[0], 0xFF, 0xFF, 0xFF, 0xFF, 0x7F][..]),
            ),
            ("a long heartbeat", {
                let mut said = bytes_of(&[Frame::Heartbeat]);
                said[1] = 5;
                said.extend_from_slice(b"krill");
                said
            }),
            ("a number in two bytes that has room in one", {
                let mut said = bytes_of(&[Frame::Ack { seen: 0 }]);
                said[1] += 1;
                let last = said.len() - 1;
                said[last] |= 0x80;
                said.extend_from_slice(&[0]);
                said
            }),
            ("a short frame", {
                let mut said = bytes_of(&[taken]);
                said[1] -= 1;
                said.truncate(said.len() - 1);
                said
            }),
            ("an acknowledgement of what was not said", bytes_of(&[Frame::Ack { seen: 1 << 40 }])),
            ("a piece before its value", bytes_of(&[more])),
            ("a cut of nothing", bytes_of(&[Frame::Cut(ChannelId(1))])),
        ] {
            number += 1;
            let mut intruder = meet(&stage, life(number)).await;
            // It may delay others, but no longer than that.
            intruder.write(&said).await?;
            let why = stage.down(intruder.me()).await;
            let Down::Violation(said) = &why else { panic!("{what}: {why}") };
            let limit = loop {
                if let NodeEvent::Limit(limit) = events.recv().await? {
                    break limit;
                }
            };
            let Limit::Peer { peer, why } = limit else { panic!("{what}: {limit}") };
            assert_eq!((peer.to_string(), &why), (intruder.me().node.to_string(), said), "{what}");
            while intruder.hear().await.is_ok() {}
            stage.goes_on().await;
        }
        stage.close().await
    });
}

/// The node's answer while a receive waits: a value that cannot be decoded fails when a receive decodes it.
async fn heard_while_receiving<T: Portable + std::fmt::Debug>(intruder: &mut Intruder, rx: &mut Receiver<T>) -> Frame {
    tokio::select! {
        heard = intruder.hear_word() => heard.unwrap(),
        received = rx.recv() => panic!("{received:?} was received"),
    }
}

#[test]
fn a_channel_survives_bad_messages_about_it() {
    run(async {
        let mut stage = Stage::new("channels").await?;
        let mut rx = stage.node.receiver::<u64>("numbers").await?;
        let mut intruder = meet(&stage, life(1)).await;
        let channel = intruder.attach(1, "numbers").await.unwrap();
        let seven = Bytes::from_static(&[0, 7]);

        // The node ignores frames of unknown channels.
        intruder.say(&offer(ChannelId(99), 1, &seven)).await.unwrap();
        intruder.say(&[Frame::ToHome(ChannelId(99), ToHome::Withdraw(1))]).await.unwrap();
        // Invalid values: CBOR of a text, no CBOR, a message without a byte behind its ends, an end of no
        // kind.
        for (ticket, bytes) in [(1, &[0, 0x61, b'x'][..]), (2, &[0, 0xFF]), (3, &[0]), (4, &[1, 77]), (5, &[0, 7, 7])] {
            intruder.say(&offer(channel, ticket, &Bytes::from_static(bytes))).await.unwrap();
            let heard = heard_while_receiving(&mut intruder, &mut rx).await;
            let Frame::FromHome(_, FromHome::Failed(failed, Failure::Undecodable(why))) = heard else {
                panic!("{ticket}: {heard:?}");
            };
            assert!(failed == ticket && !why.is_empty());
        }
        stage.goes_on().await;
        // And a valid one.
        intruder.say(&offer(channel, 6, &seven)).await.unwrap();
        assert_eq!(rx.recv().await?, 7);
        assert_eq!(intruder.hear_word().await.unwrap(), Frame::FromHome(channel, FromHome::Taken(6)));

        // The same offer again while it stands is a violation: the receiver has it once.
        intruder.say(&offer(channel, 7, &seven)).await.unwrap();
        intruder.say(&offer(channel, 7, &seven)).await.unwrap();
        let why = stage.down(intruder.me()).await;
        assert!(matches!(why, Down::Violation(_)), "{why}");
        assert_eq!(rx.recv().await, Err(RecvError::NodeLost));
        stage.goes_on().await;
        stage.close().await
    });
}

/// The message that refers to the value under this key at that node.
fn place(node: NodeId, key: u128) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u128(node.0);
    out.put_u8(0);
    out.put_u128(key);
    out.put_u64(2);
    out.put_u8(0);
    out.freeze()
}

#[test]
fn hostile_claims_about_unread_values_leave_the_channel_working() {
    run(async {
        let mut stage = Stage::new("unread").await?;
        let mut rx = stage.node.receiver::<u64>("numbers").await?;
        let mut intruder = meet(&stage, life(1)).await;
        let channel = intruder.attach(1, "numbers").await.unwrap();
        let unread = |ticket, first: Bytes| {
            Frame::ToHome(channel, ToHome::Value { head: Head::Unread(ticket), total: first.len() as u64, first })
        };
        let (here, nowhere) = (intruder.me().node, life(2).node);

        // The place is incomplete.
        for (ticket, bytes) in [(1, Bytes::new()), (2, Bytes::from_static(b"there")), (3, place(NodeId(0), 1))] {
            intruder.say(&[unread(ticket, bytes)]).await.unwrap();
            let heard = intruder.hear_at_last().await.unwrap();
            assert!(
                matches!(heard, Frame::FromHome(_, FromHome::Failed(failed, Failure::Undecodable(_))) if failed == ticket)
            );
        }
        // The node asks no peer before a receive.
        let ends = Bytes::from_static(&[1, 77]);
        for (ticket, answer) in [(4, Some(ends)), (5, Some(Bytes::from_static(&[0, 0x61]))), (6, None)] {
            let (got, ()) = par!(rx.recv().within(Duration::from_secs(10)), async {
                intruder.say(&[unread(ticket, place(here, 9))]).await.unwrap();
                let Frame::Read(asked, Read { key: 9, .. }) = intruder.hear_at_last().await.unwrap() else {
                    panic!("{ticket}")
                };
                match answer {
                    Some(bytes) => intruder.say(&offer(asked, 0, &bytes)).await.unwrap(),
                    None => intruder.say(&[Frame::ToHome(asked, ToHome::Ended(End::Gone))]).await.unwrap(),
                }
                // Either the offer was taken or the channel has ended, and the node reports the outcome.
                loop {
                    match intruder.hear_at_last().await.unwrap() {
                        Frame::FromHome(of, FromHome::Failed(failed, Failure::Undecodable(why))) if of == channel => {
                            assert!(failed == ticket && !why.is_empty());
                            break;
                        }
                        Frame::FromHome(of, _) if of == asked => {}
                        heard => panic!("{ticket}: {heard:?}"),
                    }
                }
                intruder.say(&offer(channel, 10 + ticket, &Bytes::from_static(&[0, 7]))).await.unwrap();
                let heard = intruder.hear_at_last().await.unwrap();
                assert_eq!(heard, Frame::FromHome(channel, FromHome::Taken(10 + ticket)));
            });
            assert_eq!(got, Ok(7));
        }
        // The node waits for an absent node no longer than for a connection.
        let (got, ()) = par!(rx.recv(), async {
            intruder.say(&[unread(7, place(nowhere, 9))]).await.unwrap();
            loop {
                match intruder.hear_at_last().await.unwrap() {
                    Frame::FromHome(_, FromHome::Failed(7, Failure::Undecodable(_))) => break,
                    // It asks its known nodes for help.
                    Frame::Relay(_) => {}
                    heard => panic!("{heard:?}"),
                }
            }
            intruder.say(&offer(channel, 8, &Bytes::from_static(&[0, 8]))).await.unwrap();
        });
        assert_eq!(got, Ok(8));
        // A request for an unknown value gets that answer.
        intruder.say(&[Frame::Read(ChannelId(50), Read { key: 1, value_max: 100 })]).await.unwrap();
        loop {
            match intruder.hear_at_last().await.unwrap() {
                Frame::ToHome(ChannelId(50), ToHome::Ended(End::Gone)) => break,
                Frame::FromHome(_, FromHome::Taken(8)) | Frame::Relay(_) => {}
                heard => panic!("{heard:?}"),
            }
        }
        stage.goes_on().await;
        stage.close().await
    });
}

#[test]
fn connection_that_ends_at_any_byte_leaves_nothing() {
    run(async {
        let mut stage = Stage::new("truncated").await?;
        let text = "krill ".repeat(50);
        let mut value = vec![0, 0x79];
        value.extend((text.len() as u16).to_be_bytes());
        value.extend(text.as_bytes());
        let value = Bytes::from(value);
        let mut end = 0;
        let me = life(1);
        let mut intruder = meet(&stage, me).await;
        loop {
            let mut rx = stage.node.receiver::<String>("texts").await?;
            let channel = intruder.attach(1, "texts").await.unwrap();
            let conversation = bytes_of(
                &[
                    offer(channel, 1, &value),
                    vec![Frame::ToHome(channel, ToHome::Withdraw(1)), Frame::ToHome(channel, ToHome::Ended(End::Gone))],
                ]
                .concat(),
            );
            intruder.write(&conversation[..end.min(conversation.len())]).await?;
            let all = end >= conversation.len();
            if all {
                // Either the value or the end of the channel may be first.
                let received = rx.recv().await;
                if let Ok(received) = &received {
                    assert_eq!(*received, text);
                    assert_eq!(rx.recv().await, Err(RecvError::Closed));
                } else {
                    assert_eq!(received, Err(RecvError::Closed));
                }
                stage.goes_on().await;
                // The intruder has acknowledged nothing: the node has to give it up before it receives all of
                // that.
                drop(intruder);
                return stage.close().await;
            }
            // The intruder returns without its connection, so the old connection has ended.
            drop(intruder);
            intruder = meet(&stage, me).await;
            assert_eq!(stage.down(me).await, Down::GivenUp);
            match rx.recv().await {
                Ok(received) => assert_eq!(received, text, "it may have been received before"),
                Err(error) => assert!(matches!(error, RecvError::NodeLost | RecvError::Closed), "{error}"),
            }
            end += 7;
        }
    });
}

/// A value nested as deep as its bytes require.
#[derive(Debug, Serialize, Deserialize)]
struct Nest(Vec<Self>);

/// The server of the name and the home refuse a schema that cannot be decoded, or takes long to compare.
#[test]
fn hostile_schemas_are_refused() {
    run(async {
        let mut stage = Stage::new("schemas").await?;
        let rx = stage.node.receiver::<Vec<Option<String>>>("lists").await?;
        let options = |count: u16| {
            let mut kinds: Vec<Kind> = (1..count).map(Kind::Option).collect();
            kinds.push(Kind::Option(0));
            Schema::new(Coding::Cbor, kinds).unwrap().encode().unwrap()
        };
        let number = Schema::new(Coding::Cbor, vec![Kind::List(1), Kind::Bool]).unwrap().encode().unwrap();
        let mut garbage = vec![0xFF; 32 << 10];
        garbage[0] = 1;
        let hostile = [
            Bytes::from_static(&[1]),
            Bytes::from_static(&[1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]),
            Bytes::from_static(&[1, 1, 1, 21, 0, 0, 0xFF, 0xFF, 3]),
            Bytes::from_static(&[1, 1, 1, 17, 9]),
            garbage.into(),
            options(4096),
            number.clone(),
        ];
        let mut intruder = meet(&stage, life(1)).await;
        for (number, schema) in (1..).zip(hostile) {
            intruder.say(&[declare(number, "lists", ChannelId(1), &sender(schema))]).await.unwrap();
            let heard = intruder.hear_word().await.unwrap();
            let Frame::Names(Names::Refused { number: answered, .. }) = heard else { panic!("{number}: {heard:?}") };
            assert_eq!(answered, number);
            stage.goes_on().await;
        }
        // They also refuse a peer that declares one schema for the name and another for the channel.
        intruder.say(&[declare(99, "lists", ChannelId(1), &sender(Bytes::new()))]).await.unwrap();
        let Frame::Names(Names::Found { channel, .. }) = intruder.hear_word().await.unwrap() else {
            panic!("it is not found")
        };
        intruder.say(&[Frame::ToHome(channel, ToHome::Attach(sender(number)))]).await.unwrap();
        let heard = intruder.hear_word().await.unwrap();
        assert!(
            matches!(&heard, Frame::FromHome(_, FromHome::Rejected(Rejection::Mismatch(face))) if !face.schema.is_empty()),
            "{heard:?}"
        );
        drop(intruder);
        let mut tx = stage.names.sender::<Vec<Option<String>>>("others").await?;
        let mut other = stage.node.receiver::<Vec<Option<String>>>("others").await?;
        let (sent, received) = par!(tx.send(vec![None]), other.recv());
        sent?;
        assert_eq!(received?, [None]);
        rx.retire();
        stage.goes_on().await;
        stage.close().await
    });
}

#[test]
fn a_value_nested_a_million_deep_is_refused() {
    run(async {
        let mut stage = Stage::new("deep").await?;
        for (number, (encoding, name, level)) in
            [(Encoding::Cbor, "cbor", 0x81), (Encoding::Compact, "compact", 0x01)].into_iter().enumerate()
        {
            let mut rx = stage.node.receiver::<Nest>(name).encoding(encoding).await?;
            let mut intruder = meet(&stage, life(number as u128 + 1)).await;
            let channel = intruder.attach(1, name).await.unwrap();
            let nest = |depth: usize| {
                let mut bytes = vec![level; depth + 2];
                bytes[0] = 0;
                bytes[depth + 1] &= !1;
                Bytes::from(bytes)
            };
            // The value exceeds the bytes that need no admission.
            let total = nest(1_000_000).len() as u64;
            intruder
                .say(&[Frame::Memory(Memory::Announce { number: 0, channel, kind: wire::Kind::Offer, total })])
                .await
                .unwrap();
            assert_eq!(intruder.hear_word().await.unwrap(), Frame::Memory(Memory::Admit(0)));
            intruder.say(&offer(channel, 1, &nest(1_000_000))).await.unwrap();
            let heard = heard_while_receiving(&mut intruder, &mut rx).await;
            let Frame::FromHome(_, FromHome::Failed(1, Failure::Undecodable(why))) = heard else {
                panic!("{name}: {heard:?}");
            };
            assert!(why.contains("too deep"), "{why}");
            stage.goes_on().await;
            intruder.say(&offer(channel, 2, &nest(100))).await.unwrap();
            let mut received = &rx.recv().await?;
            let mut depth = 0;
            while let [inner] = &*received.0 {
                (received, depth) = (inner, depth + 1);
            }
            assert_eq!(depth, 100);
        }
        stage.close().await
    });
}

#[test]
fn address_without_a_node_is_an_error() {
    run(async {
        let mut stage = Stage::new("answers").await?;
        let application = |name: &str| Answer::Refused(Refusal::Application(name.to_owned())).encode();
        let version = Answer::Refused(Refusal::Version((0xEE00, 0xEE01))).encode();
        for (answer, expected) in [
            (Bytes::from_static(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not the protocol"),
            (Bytes::from_static(&[0xFF; 64]), "not the protocol"),
            (Bytes::new(), "closed"),
            (version, "the node speaks protocol versions 60928 to 60929"),
            (application("krill"), "the node belongs to application \"krill\""),
            // No node has a second life here: a peer that claims one does not part this node from the others.
            (
                Answer::Refused(Refusal::Stale(Incarnation(u64::MAX))).encode(),
                "a later incarnation of the dialling node is known",
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let name = format!("{}/numbers", listener.local_addr()?);
            let answering = async {
                let (mut stream, _) = listener.accept().await?;
                let mut hello = BytesMut::new();
                while Hello::decode(&mut hello).is_ok_and(|hello| hello.is_none()) {
                    stream.read_buf(&mut hello).await?;
                }
                stream.write_all(&answer).await?;
                stream.shutdown().await?;
                Ok::<_, Error>(stream)
            };
            let (error, answered) =
                par!(async { stage.node.sender::<u64>(&name).await.map(|_| ()).unwrap_err() }, answering);
            answered?;
            let NameError::Unreachable { why, .. } = error else { panic!("{error}") };
            assert!(why.contains(expected), "{why}");
            stage.goes_on().await;
        }
        stage.close().await
    });
}

#[test]
fn nodes_of_different_applications_refuse_each_other() {
    run(async {
        let mut stage = Stage::new("this").await?;
        let other = Node::builder().app("other").names("memory:names-of-other").join().await?;
        let name = format!("{}/numbers", stage.address());
        let error = other.sender::<u64>(&name).await.map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("the node belongs to application \"this\""), "{text}");
        stage.goes_on().await;
        stage.close().await
    });
}

#[test]
fn a_port_in_use_is_an_error() {
    run(async {
        let mut stage = Stage::new("port").await?;
        let taken = Node::builder().app("port").listen(stage.address()).join().await.unwrap_err();
        let NodeError::Listen { address, error, .. } = taken else { panic!("{taken}") };
        assert_eq!(address, stage.address());
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        stage.goes_on().await;
        stage.close().await
    });
}

/// Each would make the node keep data about nodes for which it has not asked.
#[test]
fn an_answer_of_a_name_service_that_was_not_asked_breaks_the_protocol() {
    run(async {
        let mut stage = Stage::new("unasked").await?;
        let (number, face, holder) = (1, sender(Bytes::new()), life(99));
        let (channel, addresses) = (ChannelId(7), vec!["10.0.0.1:1".to_owned()]);
        let found = Names::Found { number, partner: holder, addresses: addresses.clone(), channel, face: face.clone() };
        let refused = Names::Refused { number, there: face, holder, addresses };
        for (n, answer) in [found, refused, Names::Gone { number, partner: holder }].into_iter().enumerate() {
            let mut intruder = meet(&stage, life(n as u128 + 1)).await;
            intruder.say(&[Frame::Names(answer)]).await.unwrap();
            let why = Down::Violation("an answer of a name service that was not asked".to_owned());
            assert_eq!(stage.down(intruder.me()).await, why);
            stage.goes_on().await;
        }
        stage.close().await
    });
}
