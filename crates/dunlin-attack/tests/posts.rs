//! Peers that misuse mailboxes: messages beyond their room, to no mailbox, of other types and sizes, torn and
//! repeated; addresses and words about room that no honest node sends. The node drops them within its limits,
//! and honest messages arrive.

#[path = "support/ended.rs"]
mod ended;
#[path = "support/given.rs"]
mod given;

use std::time::{Duration, Instant};

use bytes::{BufMut, Bytes, BytesMut};
use dunlin::node::{ConnectionState, NodeEvent};
use dunlin::prelude::*;
use dunlin::{Address, Bound, Mailbox, PostError, mailbox, mailbox_with};
use dunlin_attack::{Peer, bytes_of, hello, life, run_alone};
use dunlin_heap::{Counting, Program};
use dunlin_proto::id::{Life, MailboxId};
use dunlin_proto::wire::handshake::{Hello, Resume};
use dunlin_proto::wire::{Frame, Memory, Post, limits};
use dunlin_schema::{Coding, Kind, Schema};
use ended::{down, nothing_is_left};

const PEER: [u8; 4] = [127, 0, 0, 4];
/// No operation of a test may wait that long.
const PATIENCE: Duration = Duration::from_secs(20);
const MB: usize = 1 << 20;

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

async fn node(test: &str) -> Node {
    let builder = Node::builder().app("posts").names(&format!("memory:names-of-{test}")).listen("127.0.0.1:0");
    let builder = builder.heartbeat(Duration::from_millis(200)).grace(Duration::from_secs(2));
    builder.join().await.expect("it joins")
}

async fn meet(node: &Node, number: u128) -> Peer {
    Peer::meet(PEER, &node.addresses()[0], "posts", life(number)).await.expect("the door is open")
}

/// What an address is in a message.
#[derive(Clone, Debug)]
struct Place {
    home: Life,
    id: MailboxId,
    addresses: Vec<String>,
}

/// A number as CBOR writes it; `major` is what kind of item it is, or has the length of.
fn item(major: u8, number: u64, out: &mut BytesMut) {
    match number {
        0..=23 => out.put_u8(major << 5 | number as u8),
        24..=0xff => out.put_slice(&[major << 5 | 24, number as u8]),
        0x100..=0xffff => {
            out.put_u8(major << 5 | 25);
            out.put_u16(number as u16);
        }
        0x1_0000..=0xffff_ffff => {
            out.put_u8(major << 5 | 26);
            out.put_u32(number as u32);
        }
        _ => {
            out.put_u8(major << 5 | 27);
            out.put_u64(number);
        }
    }
}

impl Place {
    /// Reads the address in a message of a channel that carries addresses.
    fn of(message: &[u8]) -> Self {
        let mut rest = given::fields(message);
        let [high, low, incarnation, of_mailbox, bits] = [(); 5].map(|()| given::number(&mut rest));
        let node = dunlin_proto::id::NodeId(u128::from(high) << 64 | u128::from(low));
        let home = Life { node, incarnation: dunlin_proto::id::Incarnation(incarnation) };
        Self { home, id: MailboxId { number: of_mailbox, bits }, addresses: Vec::new() }
    }

    /// A message for a mailbox that receives addresses.
    fn message(&self) -> Bytes {
        let mut out = BytesMut::new();
        item(4, 6, &mut out);
        let node = self.home.node.0;
        for field in [(node >> 64) as u64, node as u64, self.home.incarnation.0, self.id.number, self.id.bits] {
            item(0, field, &mut out);
        }
        item(4, self.addresses.len() as u64, &mut out);
        for address in &self.addresses {
            item(3, address.len() as u64, &mut out);
            out.put_slice(address.as_bytes());
        }
        out.freeze()
    }
}

/// Gives a peer the address of a mailbox, over a channel of this name.
async fn give<M: Portable>(node: &Node, peer: &mut Peer, name: &str, address: &Address<M>) -> MailboxId {
    give_place(node, peer, name, address).await.id
}

async fn give_place<M: Portable>(node: &Node, peer: &mut Peer, name: &str, address: &Address<M>) -> Place {
    Place::of(&given::give(node, peer, name, address.clone()).await)
}

/// A peer that has been given the address of a mailbox of this node.
async fn given<M: Portable>(node: &Node, number: u128, bound: Bound) -> (Peer, MailboxId, Mailbox<M>) {
    let (address, mailbox) = mailbox_with(bound);
    let mut peer = meet(node, number).await;
    let id = give(node, &mut peer, &format!("given to {number}"), &address).await;
    (peer, id, mailbox)
}

fn post(to: MailboxId, message: impl Into<Bytes>) -> Frame {
    let first = message.into();
    Frame::Post(Post::Message { to, total: first.len() as u64, first })
}

fn begun(to: MailboxId, total: usize, bytes: usize) -> Frame {
    Frame::Post(Post::Message { to, total: total as u64, first: vec![7; bytes].into() })
}

fn more(bytes: usize) -> Frame {
    Frame::Post(Post::More(vec![7; bytes].into()))
}

/// Another node finds a mailbox of this one, and its messages arrive.
async fn serves_an_honest_node(node: &Node, test: &str) {
    let friend = self::node(test).await;
    let mut mailbox = node.mailbox::<Vec<u8>>("honest").await.unwrap();
    let address = friend.address::<Vec<u8>>("honest").await.unwrap();
    for n in 0..1_000_u32 {
        address.offer(n.to_be_bytes().to_vec()).within(PATIENCE).await.unwrap();
        assert_eq!(mailbox.recv().within(PATIENCE).await.unwrap(), n.to_be_bytes());
    }
    drop((address, mailbox));
    friend.leave().await.unwrap();
}

/// Messages beyond the room and the credit, and pieces that belong nowhere: the connection ends, and the
/// event names the fault.
#[test]
fn posts_that_break_the_protocol_end_the_connection() {
    type Attack = (fn(MailboxId) -> Vec<Frame>, &'static str);
    let attacks: &[Attack] = &[
        (|to| vec![post(to, "x"); 600], "a message for mailbox"),
        (|to| vec![post(to, vec![7; limits::POST]); 2], "costs 65536 bytes, with room for 0 in 15 messages"),
        (|to| vec![begun(to, limits::POST + 1, 9)], "at most 65408 are allowed"),
        (|to| vec![begun(to, 9, 8), begun(to, 9, 1)], "another message for a mailbox between two pieces of one"),
        (|to| vec![begun(to, 9, 8), more(2)], "a piece that belongs to no value"),
        (|to| vec![post(to, "x"), more(1)], "a piece that belongs to no value"),
        // Beyond the credit of the connection: nothing of such a message is kept.
        (
            |_| (0..5).map(|at| begun(MailboxId { number: 1 << 40 | at, bits: 1 }, limits::POST, 9)).collect(),
            "between two",
        ),
    ];
    run_alone(async {
        let node = node("faults").await;
        let mut connections = node.connections();
        for (at, (attack, expected)) in attacks.iter().enumerate() {
            let (mut peer, id, mailbox) = given::<Vec<u8>>(&node, 2 + at as u128, Bound::Unbounded).await;
            // The node closes the socket, perhaps before it has read all.
            let _ = peer.say(&attack(id)).await;
            let why = down(&mut connections).await.to_string();
            assert!(why.starts_with("the node violated the protocol") && why.contains(expected), "attack {at}: {why}");
            drop((peer, mailbox));
        }
        serves_an_honest_node(&node, "faults").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// The credit of a connection covers all of its mailboxes.
#[test]
fn posts_beyond_the_credit_of_the_connection_end_it() {
    run_alone(async {
        let builder = Node::builder().app("posts").names("memory:names-of-credit").listen("127.0.0.1:0");
        let node = builder.message_max_bytes(70_000).held_max_bytes(2 * MB as u64).join().await.unwrap();
        let mut connections = node.connections();
        let mut peer = meet(&node, 2).await;
        let mut mailboxes = Vec::new();
        let mut posts = Vec::new();
        for n in 0..200 {
            let (address, mailbox) = mailbox::<Vec<u8>>();
            posts.push(post(give(&node, &mut peer, &format!("given {n}"), &address).await, vec![7; limits::POST]));
            mailboxes.push(mailbox);
        }
        let before = HEAP.0.live();
        let _ = peer.say(&posts).await;
        let why = down(&mut connections).await.to_string();
        println!("{why}");
        assert!(why.contains("credit"), "{why}");
        let kept = HEAP.0.live().saturating_sub(before);
        println!("{kept} bytes are kept");
        assert!(kept < 2 * (8 << 20), "{kept} bytes");
        let arrived: usize = mailboxes.iter_mut().map(Mailbox::len).sum();
        assert!((1..posts.len()).contains(&arrived), "{arrived}");
        serves_an_honest_node(&node, "credit").await;
        node.leave().await.unwrap();
    });
}

/// The next message has this length. The peer gets its room back.
async fn is_received(peer: &mut Peer, id: MailboxId, mailbox: &mut Mailbox<Vec<u8>>, length: usize) {
    assert_eq!(mailbox.recv().within(PATIENCE).await.unwrap(), vec![7; length]);
    peer.say(&[Frame::Post(Post::Ask(id.number))]).await.unwrap();
    while !matches!(peer.hear_at_last().await.unwrap(), Frame::Post(Post::Room { .. })) {}
}

/// The twin: messages of no, one and the most bytes, byte by byte and in pieces of one byte.
#[test]
fn posts_of_any_size_and_in_any_pieces_arrive() {
    run_alone(async {
        let node = node("sizes").await;
        let (mut peer, id, mut mailbox) = given::<Vec<u8>>(&node, 2, Bound::Unbounded).await;
        for length in [0, 1, 2, 127, 128, 300, limits::POST - 1, limits::POST] {
            peer.say(&[post(id, vec![7; length])]).await.unwrap();
            is_received(&mut peer, id, &mut mailbox, length).await;
        }
        for byte in bytes_of(&[post(id, ""), post(id, vec![7; 300]), begun(id, 9, 4), more(5)]) {
            peer.write(&[byte]).await.unwrap();
        }
        for length in [0, 300, 9] {
            is_received(&mut peer, id, &mut mailbox, length).await;
        }
        let pieces = std::iter::once(begun(id, limits::POST, 1)).chain((1..limits::POST).map(|_| more(1)));
        peer.say(&pieces.collect::<Vec<_>>()).await.unwrap();
        is_received(&mut peer, id, &mut mailbox, limits::POST).await;
        serves_an_honest_node(&node, "sizes").await;
        node.leave().await.unwrap();
    });
}

/// A socket closes within a message, and does not return: nothing of the message is received or kept.
#[test]
fn message_whose_node_ends_within_it_is_not_received() {
    run_alone(async {
        let node = node("torn").await;
        let frames = |id| bytes_of(&[post(id, vec![1; 9]), begun(id, 9, 4), more(5)]);
        let whole = frames(MailboxId { number: 9, bits: u64::MAX }).len();
        let torn = (0..whole).step_by(3).enumerate().map(|(at, bytes)| {
            let node = node.clone();
            async move {
                let (mut peer, id, mut mailbox) = given::<Vec<u8>>(&node, 2 + at as u128, Bound::Unbounded).await;
                let mut connections = node.connections();
                let said = frames(id);
                peer.write(&said[..bytes.min(said.len() - 1)]).await.unwrap();
                let me = peer.me().node.to_string();
                drop(peer);
                loop {
                    let (peer, state) = connections.recv().within(PATIENCE).await.unwrap();
                    if peer.to_string() == me && matches!(state, ConnectionState::Down(_)) {
                        break;
                    }
                }
                assert!(mailbox.len() <= 1, "{bytes} of {whole} bytes");
            }
        });
        torn.collect::<Par<_>>().await;
        serves_an_honest_node(&node, "torn").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// Messages to mailboxes that are not there, of which no answer is read, and words about such mailboxes.
#[test]
fn posts_to_no_mailbox_are_bounded() {
    run_alone(async {
        let node = node("nowhere").await;
        let nowhere = |n: u64| MailboxId { number: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), bits: n };
        let attacks: [(&str, &dyn Fn(u64) -> Frame); 6] = [
            ("posts", &|n| post(nowhere(n), "krill")),
            ("uses", &|n| Frame::Post(Post::Use { to: nowhere(n), schema: vec![1; 1000].into() })),
            ("asks", &|n| Frame::Post(Post::Ask(nowhere(n).number))),
            ("rooms", &|n| Frame::Post(Post::Room { mailbox: nowhere(n).number, posts: u32::MAX, bytes: u64::MAX })),
            ("closed", &|n| Frame::Post(Post::Closed(nowhere(n).number))),
            ("mismatches", &|n| Frame::Post(Post::Mismatch { mailbox: n, schema: vec![1; 1000].into() })),
        ];
        for (at, (what, attack)) in attacks.iter().enumerate() {
            let mut peer = meet(&node, 2 + at as u128).await;
            let frames = bytes_of(&(0..20_000).map(attack).collect::<Vec<_>>());
            let before = HEAP.0.forget_peak();
            // The node reads such a flood slowly.
            let flood = async { while peer.write(&frames).await.is_ok() {} };
            let _ = tokio::time::timeout(Duration::from_secs(1), flood).await;
            let growth = HEAP.0.peak().saturating_sub(before);
            println!("{what}: {growth} bytes");
            assert!(growth < 8 * MB, "{what}: {growth} bytes");
        }
        serves_an_honest_node(&node, "nowhere").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// The program of an honest node posts to a mailbox that never receives: what does not fit comes back, and is
/// no more than an error. `DUNLIN_POSTS` is how often.
#[test]
fn a_program_that_posts_without_end_gets_its_messages_back() {
    const EACH: u64 = 1000;
    let posts: u64 = std::env::var("DUNLIN_POSTS").map_or(100_000, |number| number.parse().unwrap());
    run_alone(async {
        let (node, friend) = (node("full").await, node("full").await);
        let mut deaf = node.mailbox::<Vec<u8>>("deaf").await.unwrap();
        let mut other = node.mailbox::<u64>("other").await.unwrap();
        let to_deaf = friend.address::<Vec<u8>>("deaf").await.unwrap();
        let to_other = friend.address::<u64>("other").await.unwrap();
        let before = HEAP.0.forget_peak();
        let (mut kept, mut full) = (0_u64, 0_u64);
        for round in 0..posts / EACH {
            for _ in 0..EACH {
                match to_deaf.send(vec![7; 128]) {
                    Ok(()) => kept += 1,
                    Err(PostError::Full(message)) if message == [7; 128] => full += 1,
                    Err(error) => panic!("{error}"),
                }
            }
            to_other.offer(round).within(PATIENCE).await.unwrap();
            assert_eq!(other.recv().within(PATIENCE).await, Ok(round));
        }
        let growth = HEAP.0.peak().saturating_sub(before);
        println!("{kept} messages were sent, {full} came back, for {growth} bytes");
        assert_eq!((kept + full, deaf.len() as u64), (posts / EACH * EACH, kept));
        assert!(kept <= 512 && growth < 4 * MB, "{kept} messages, {growth} bytes");
        friend.leave().await.unwrap();
        node.leave().await.unwrap();
    });
}

/// A mailbox that is never received from, with and without a bound, and a peer that posts all that it may,
/// and asks for more: little is kept, and another mailbox of the connection gets its messages meanwhile.
#[test]
fn endless_posts_to_a_mailbox_that_never_receives_are_bounded() {
    // (Each takes a round trip, for its room.)
    const POSTS: u64 = 20_000;
    run_alone(async {
        for (at, bound) in [Bound::Unbounded, Bound::reject(3), Bound::drop_oldest(3)].into_iter().enumerate() {
            let node = node(&format!("endless{at}")).await;
            let (mut peer, id, mut deaf) = given::<Vec<u8>>(&node, 2, bound).await;
            let (address, mut other) = mailbox::<Vec<u8>>();
            let to_other = give(&node, &mut peer, "other", &address).await;
            let before = HEAP.0.forget_peak();
            // What the peer may still send to the mailbox.
            let (mut posts, mut bytes, mut sent, mut seen, mut idle) = (16_u64, limits::POST_ROOM, 0_u64, 0, 0);
            let (mut posts_to_other, mut others, mut rounds) = (16_u64, 0_u64, 0);
            // (A mailbox without a bound drops nothing, and gives no room.)
            while sent < POSTS && idle < 10 {
                let count = posts.min(bytes / 256);
                peer.say(&vec![post(id, vec![7; 128]); count as usize]).await.unwrap();
                (sent, posts, bytes) = (sent + count, posts - count, bytes - 256 * count);
                rounds += 1;
                if rounds % 50 == 1 && posts_to_other > 0 {
                    peer.say(&[post(to_other, others.to_be_bytes().to_vec())]).await.unwrap();
                    assert_eq!(other.recv().within(PATIENCE).await.unwrap(), others.to_be_bytes());
                    (others, posts_to_other) = (others + 1, posts_to_other - 1);
                }
                // (A flood of these is read slowly.)
                let asks = (idle > 0).then_some(Frame::Post(Post::Ask(id.number)));
                peer.say(&asks.into_iter().chain([Frame::Heartbeat]).collect::<Vec<_>>()).await.unwrap();
                let heard = peer.hear().await.unwrap();
                seen += u64::from(!matches!(heard, Frame::Heartbeat | Frame::Ack { .. }));
                idle += 1;
                if let Frame::Post(Post::Room { mailbox, posts: more, bytes: free }) = heard {
                    idle = 0;
                    match mailbox == id.number {
                        true => (posts, bytes) = (posts + u64::from(more), bytes + free),
                        false => posts_to_other += u64::from(more),
                    }
                    peer.say(&[Frame::Ack { seen }]).await.unwrap();
                }
            }
            let growth = HEAP.0.peak().saturating_sub(before);
            let kept = deaf.len();
            println!("{bound:?}: {sent} messages were sent, {kept} are kept, for {growth} bytes; {others} to another");
            assert!(growth < 4 * MB, "{growth} bytes");
            assert!(deaf.len() <= 512, "{}", deaf.len());
            assert!(others > 0 && (bound == Bound::Unbounded || sent >= POSTS), "{sent} messages were sent");
            serves_an_honest_node(&node, &format!("endless{at}")).await;
            drop(peer);
            node.leave().await.unwrap();
        }
    });
}

/// A peer that lets a node send to a mailbox of its own without limit, and reads nothing: the node keeps no
/// more than its limit, and the program learns that the mailbox is full.
#[test]
fn messages_for_a_mailbox_that_reads_nothing_are_bounded() {
    const KEPT: usize = 24 * MB;
    run_alone(async {
        let node = node("deaf").await;
        let mut mailbox = node.mailbox::<Address<Vec<u8>>>("addresses").await.unwrap();
        let (mut peer, own) = (meet(&node, 2).await, MailboxId { number: 7, bits: 7 });
        let addresses = mailbox.address();
        let to = give(&node, &mut peer, "given", &addresses).await;
        let place = Place { home: peer.me(), id: own, addresses: Vec::new() };
        peer.say(&[post(to, place.message())]).await.unwrap();
        let address = mailbox.recv().within(PATIENCE).await.unwrap();
        let before = HEAP.0.forget_peak();
        address.send(vec![7; 1000]).unwrap();
        // The peer grants more again and again.
        let grants = [
            Frame::Post(Post::Room { mailbox: own.number, posts: u32::MAX, bytes: u64::MAX }),
            Frame::Memory(Memory::Credit(u64::MAX)),
            Frame::Heartbeat,
        ];
        let (began, mut sent, mut is_full) = (Instant::now(), 0, false);
        while began.elapsed() < Duration::from_secs(3) && HEAP.0.peak() < before + 2 * KEPT {
            peer.say(&grants).await.unwrap();
            tokio::task::yield_now().await;
            let posted = (0..1000).try_for_each(|_| address.send(vec![7; 1000]).map(|()| sent += 1));
            is_full |= matches!(posted, Err(PostError::Full(_)));
        }
        let growth = HEAP.0.peak().saturating_sub(before);
        println!("{sent} messages of 1000 bytes were sent, for {growth} bytes");
        assert!(growth < KEPT, "{growth} bytes for {sent} messages");
        assert!(is_full, "no message was refused");
        serves_an_honest_node(&node, "deaf").await;
        drop(peer);
        node.leave().await.unwrap();
    });
}

/// The twin reads, and gets all that it grants: one message after the other, or more than the node queues.
#[test]
fn mailbox_that_reads_gets_all_messages() {
    const MESSAGES: usize = 15_000;
    run_alone(async {
        for grants_all in [false, true] {
            let node = node(&format!("reads {grants_all}")).await;
            let mut mailbox = node.mailbox::<Address<Vec<u8>>>("addresses").await.unwrap();
            let (mut peer, own) = (meet(&node, 2).await, MailboxId { number: 7, bits: 7 });
            let to = give(&node, &mut peer, "given", &mailbox.address()).await;
            let place = Place { home: peer.me(), id: own, addresses: Vec::new() };
            peer.say(&[post(to, place.message())]).await.unwrap();
            let address = mailbox.recv().within(PATIENCE).await.unwrap();
            let sender = spawn(async move {
                for n in 0..MESSAGES as u32 {
                    let mut message = vec![7; 1000];
                    message[..4].copy_from_slice(&n.to_be_bytes());
                    address.offer(message).await.unwrap();
                }
            });
            let grant = |posts: u32| {
                let bytes = u64::from(posts) * 1128;
                let room = Post::Room { mailbox: own.number, posts, bytes };
                [Frame::Post(room), Frame::Memory(Memory::Credit(bytes))]
            };
            let (mut arrived, mut seen, mut message) = (0, 0, Vec::new());
            while arrived < MESSAGES {
                let frame = peer.hear_at_last().await.unwrap();
                seen += 1;
                match frame {
                    Frame::Post(Post::Message { first, .. }) => message = first.to_vec(),
                    Frame::Post(Post::More(piece)) => message.extend_from_slice(&piece),
                    _ => continue,
                }
                if message.len() == 1000 {
                    assert_eq!(message[..4], (arrived as u32).to_be_bytes());
                    arrived += 1;
                    let posts = if !grants_all { 1 } else { MESSAGES as u32 * u32::from(arrived == 1) };
                    peer.say(&grant(posts)).await.unwrap();
                    peer.say(&[Frame::Ack { seen }]).await.unwrap();
                }
            }
            sender.await.unwrap();
            serves_an_honest_node(&node, &format!("reads {grants_all}")).await;
            node.leave().await.unwrap();
        }
    });
}

/// Schemas that do not fit, that are none, and that take long to compare.
#[test]
fn messages_of_other_types_are_dropped() {
    run_alone(async {
        let node = node("types").await;
        let mut events = node.events();
        let (mut peer, id, mut texts) = given::<String>(&node, 2, Bound::Unbounded).await;
        let uses = |schema: Bytes| Frame::Post(Post::Use { to: id, schema });
        let of = |kind| Schema::new(Coding::Cbor, vec![kind]).unwrap().encode().unwrap();
        // More of them than there is room for: what is dropped gives its room back.
        for _ in 0..10 {
            peer.say(&[uses(of(Kind::Bool))]).await.unwrap();
            loop {
                if let Frame::Post(Post::Mismatch { mailbox, .. }) = peer.hear_at_last().await.unwrap() {
                    assert_eq!(mailbox, id.number);
                    break;
                }
            }
            peer.say(&vec![post(id, "\x61x"); 10]).await.unwrap();
        }
        assert!(texts.is_empty());
        // A schema that fits, and messages that are no texts all the same.
        let kelp = Bytes::from_static(b"\x64kelp");
        let bad: [&'static [u8]; 6] =
            [b"", b"\x07", b"\x61", b"\x61\xff", b"\x61xx", b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"];
        peer.say(&[uses(of(Kind::Text))]).await.unwrap();
        peer.say(&bad.map(|bad| post(id, Bytes::from_static(bad)))).await.unwrap();
        peer.say(&[post(id, kelp.clone())]).await.unwrap();
        assert_eq!(texts.recv().within(PATIENCE).await.unwrap(), "kelp");
        let mut unreadable = 0;
        while unreadable < bad.len() {
            if let NodeEvent::Unreadable { peer: from, why } = events.recv().within(PATIENCE).await.unwrap() {
                assert_eq!(from.to_string(), peer.me().node.to_string());
                assert!(!why.is_empty());
                unreadable += 1;
            }
        }
        // No schemas, and as long as may be: the node compares a few, and reads the peer slowly.
        let long = uses(vec![255; limits::SCHEMA].into());
        let began = Instant::now();
        peer.say(&[uses(Bytes::new()), uses(Bytes::from_static(&[1, 1, 200])), long, uses(of(Kind::Text))])
            .await
            .unwrap();
        peer.say(&[post(id, kelp)]).await.unwrap();
        assert_eq!(texts.recv().within(PATIENCE).await.unwrap(), "kelp");
        println!("the schemas took {:?}", began.elapsed());
        serves_an_honest_node(&node, "types").await;
        node.leave().await.unwrap();
    });
}

/// A connection resumes. A peer that repeats what the node has not received loses nothing, and doubles
/// nothing. One that repeats all has sent it again: the messages count once more, and no other peer notices.
#[test]
fn resumed_connections_repeat_posts_within_their_room() {
    run_alone(async {
        let node = node("resumed").await;
        for repeats_all in [false, true] {
            let me = life(if repeats_all { 3 } else { 2 });
            let (address, mut mailbox) = mailbox::<Vec<u8>>();
            // (The address is given to another peer, and a plain connection has only posts to count.)
            let mut first = meet(&node, 20 + me.node.0 % 7).await;
            let id = give(&node, &mut first, &format!("given {repeats_all}"), &address).await;
            let at = node.addresses()[0].clone();
            let there = Peer::who_is(PEER, &at, "posts", life(1)).await.unwrap();
            let mut peer = Peer::dial(PEER, &at).await.unwrap();
            let said = hello("posts", me, there);
            let resume = peer.greet(&said).await.unwrap().resume;
            peer.confirm(&dunlin_attack::Key::of(me.node)).await.unwrap();
            let all: Vec<Frame> = (0..6).map(|n| post(id, vec![n; 100])).collect();
            peer.say(&all[..4]).await.unwrap();
            for n in 0..4 {
                assert_eq!(mailbox.recv().within(PATIENCE).await.unwrap(), vec![n; 100]);
            }
            drop(peer);
            let mut peer = Peer::dial(PEER, &at).await.unwrap();
            let again = Hello { attempt: 2, resume: Resume { seen: 0, ..resume }, ..said };
            let welcome = peer.greet(&again).await.unwrap();
            peer.confirm(&dunlin_attack::Key::of(me.node)).await.unwrap();
            assert_eq!((welcome.resume.connection, welcome.resume.run), (resume.connection, resume.run));
            assert_eq!(welcome.resume.seen, 4);
            let next = if repeats_all { 0 } else { 4 };
            peer.say(&all[next..]).await.unwrap();
            for n in next..6 {
                assert_eq!(mailbox.recv().within(PATIENCE).await.unwrap(), vec![n as u8; 100]);
            }
            assert!(mailbox.is_empty());
        }
        serves_an_honest_node(&node, "resumed").await;
        node.leave().await.unwrap();
    });
}

/// Addresses that are none: the message with one is dropped by its receiver, and an event.
#[test]
fn impossible_addresses_cannot_be_read() {
    run_alone(async {
        let node = node("impossible").await;
        let mut events = node.events();
        let mut mailbox = node.mailbox::<Address<Vec<u8>>>("addresses").await.unwrap();
        let mut peer = meet(&node, 2).await;
        let to = give(&node, &mut peer, "given", &mailbox.address()).await;
        let (other, _texts) = dunlin::mailbox::<String>();
        let texts = give(&node, &mut peer, "texts", &other).await;
        let (same, _bytes) = dunlin::mailbox::<Vec<u8>>();
        let bytes = give(&node, &mut peer, "bytes", &same).await;
        let here = Peer::who_is(PEER, &node.addresses()[0], "posts", life(1)).await.unwrap();
        let good =
            Place { home: life(9), id: MailboxId { number: 1, bits: 1 }, addresses: vec!["10.9.9.9:1".to_owned()] };
        let no_node = Life { node: dunlin_proto::id::NodeId(0), ..good.home };
        let unborn = Life { incarnation: dunlin_proto::id::Incarnation(0), ..good.home };
        let bad = [
            Place { home: no_node, ..good.clone() },
            Place { home: unborn, ..good.clone() },
            Place { addresses: vec![String::new(); 9], ..good.clone() },
            Place { addresses: vec!["x".repeat(256)], ..good.clone() },
            // Of a mailbox of this node that receives another type.
            Place { home: here, id: texts, ..good.clone() },
        ];
        for (at, place) in bad.iter().enumerate() {
            peer.say(&[post(to, place.message()), post(to, place.message().slice(..9)), post(to, good.message())])
                .await
                .unwrap();
            // It is an address, of a mailbox that may be there.
            let address = mailbox.recv().within(PATIENCE).await.unwrap();
            assert!(!address.is_closed());
            let mut unreadable = 0;
            while unreadable < 2 {
                if let NodeEvent::Unreadable { why, .. } = events.recv().within(PATIENCE).await.unwrap() {
                    assert!(!why.is_empty());
                    println!("address {at}: {why}");
                    unreadable += 1;
                }
            }
        }
        // Of a mailbox of this node, with wrong bits, and of one that was never there: closed.
        for number in [bytes.number, 1 << 60] {
            let place = Place { home: here, id: MailboxId { number, bits: 1 }, ..good.clone() };
            peer.say(&[post(to, place.message())]).await.unwrap();
            assert!(mailbox.recv().within(PATIENCE).await.unwrap().is_closed());
        }
        serves_an_honest_node(&node, "impossible").await;
        drop(peer);
        node.leave().await.unwrap();
    });
}

/// A program gets a forged address, with wrong random bits, of a mailbox that it has an honest address of.
/// What it sends there is dropped. The honest address still works.
#[test]
fn forged_address_does_not_disturb_an_honest_one() {
    run_alone(async {
        let victim = node("forged").await;
        // This makes it serve the names before the other node could: the peer declares its ends here.
        let mut mailbox = victim.mailbox::<Address<Vec<u8>>>("addresses").await.unwrap();
        let home = node("forged").await;
        let mut target = home.mailbox::<Vec<u8>>("target").await.unwrap();
        let honest = victim.address::<Vec<u8>>("target").await.unwrap();
        let mut peer = meet(&victim, 2).await;
        let to = give(&victim, &mut peer, "given", &mailbox.address()).await;
        // (The peer needs only the number, which can be guessed.)
        let Place { home: there, id, .. } = give_place(&victim, &mut peer, "known", &honest).await;
        for round in 0..2 {
            let place = Place { home: there, id: MailboxId { bits: id.bits ^ 1, ..id }, addresses: Vec::new() };
            peer.say(&[post(to, place.message())]).await.unwrap();
            let forged = mailbox.recv().within(PATIENCE).await.unwrap();
            assert_ne!(forged, honest);
            for _ in 0..40 {
                // (It may be full.)
                let _ = forged.send(vec![2]);
            }
            let began = Instant::now();
            for n in 0..100 {
                let offered = honest.offer(vec![3]).within(PATIENCE).await;
                assert!(offered.is_ok(), "round {round}, message {n}: {offered:?}");
                assert_eq!(target.recv().within(PATIENCE).await.unwrap(), [3]);
            }
            assert!(!honest.is_closed());
            // An operation that is not woken is looked at once more when its time is over.
            assert!(began.elapsed() < PATIENCE / 2, "an offer was not woken");
        }
        drop(peer);
        home.leave().await.unwrap();
        victim.leave().await.unwrap();
    });
}
