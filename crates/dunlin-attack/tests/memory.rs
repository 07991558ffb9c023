//! Peers that make a node keep what they send. The allocator of this binary counts live bytes; the attackers
//! themselves keep one copy of what they send.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, hello, life, run_alone, sender_on_its_way};
use dunlin_heap::{Counting, Program};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{
    Declaration, Expected, Face, Frame, FromHome, Head, Kind, Memory, Names, Rejection, Room, Status, Terms, ToHome,
};

const OTHER: [u8; 4] = [127, 0, 0, 3];
const MB: usize = 1 << 20;

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

fn growth(before: usize) -> usize {
    HEAP.0.peak().saturating_sub(before)
}

/// A node that serves the names of an application, and where.
async fn serve(builder: impl FnOnce(dunlin::node::NodeBuilder) -> dunlin::node::NodeBuilder) -> (Node, String) {
    let names = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let node = builder(Node::builder().app("memory").names(&names)).join().await.unwrap();
    // Once a name has its place, the name service works.
    drop(node.receiver::<u32>("first").await.unwrap());
    (node, names)
}

async fn join(names: &str, number: u128) -> Peer {
    join_from(OTHER, names, number).await
}

async fn join_from(host: [u8; 4], names: &str, number: u128) -> Peer {
    let there = Peer::who_is(host, names, "memory", life(1)).await.unwrap();
    Peer::join(host, names, &hello("memory", life(number), there), Duration::ZERO).await.unwrap()
}

fn sender() -> Declaration {
    Declaration { face: Face::Sender, shared: false, expects: Expected::Unknown, schema: Bytes::new() }
}

/// The next frame with an effect. Meanwhile the peer sends heartbeats.
async fn hear(peer: &mut Peer) -> std::io::Result<Frame> {
    loop {
        match tokio::time::timeout(Duration::from_millis(500), peer.hear()).await {
            Ok(Ok(Frame::Heartbeat | Frame::Ack { .. })) => {}
            Ok(frame) => return frame,
            Err(_) => peer.say(&[Frame::Heartbeat]).await?,
        }
    }
}

/// Attaches a sender to each receiver of these names. Returns the channels, and how many attachments were
/// refused for lack of room.
async fn attach(peer: &mut Peer, names: impl Iterator<Item = String>) -> (Vec<ChannelId>, usize) {
    let (mut channels, mut full) = (Vec::new(), 0);
    for (number, name) in names.enumerate() {
        let (number, channel) = (number as u64, ChannelId(number as u128));
        peer.say(&[Frame::Names(Names::Declare { number, name, channel, face: sender(), status: Status::New })])
            .await
            .unwrap();
        let channel = match hear(peer).await.unwrap() {
            Frame::Names(Names::Found { channel, .. }) => channel,
            Frame::Names(Names::Full { room: Room::Memory, .. }) => {
                full += 1;
                continue;
            }
            other => panic!("{other:?}"),
        };
        peer.say(&[Frame::ToHome(channel, ToHome::Attach(sender()))]).await.unwrap();
        match hear(peer).await.unwrap() {
            Frame::FromHome(_, FromHome::Attached(_)) => channels.push(channel),
            Frame::FromHome(_, FromHome::Rejected(Rejection::Full)) => full += 1,
            other => panic!("{other:?}"),
        }
    }
    (channels, full)
}

/// Offers a value of `total` bytes, and writes the first `bytes` of it.
async fn offer(peer: &mut Peer, channel: ChannelId, ticket: u64, total: usize, bytes: usize) -> std::io::Result<()> {
    let piece = Bytes::from(vec![7; MB.min(bytes)]);
    let (head, total) = (Head::Offer(ticket), total as u64);
    peer.say(&[Frame::ToHome(channel, ToHome::Value { head, total, first: piece.clone() })]).await?;
    let mut left = bytes - piece.len();
    while left > 0 {
        let piece = piece.slice(..left.min(piece.len()));
        left -= piece.len();
        peer.say(&[Frame::More(channel, piece)]).await?;
    }
    Ok(())
}

/// A value of the receiver's limit, sent by an honest node, still arrives.
async fn goes_on(node: &Node, names: &str, name: &str, bytes: usize) {
    let friend = Node::builder().app("memory").names(names).serve_names(false).join().await.unwrap();
    let mut rx = node.receiver::<Vec<u8>>(name).await.unwrap();
    let mut tx = friend.sender::<Vec<u8>>(name).await.unwrap();
    for _ in 0..3 {
        let sent = dunlin::spawn(async move {
            tx.send(vec![7; bytes]).await?;
            Ok::<_, Error>(tx)
        });
        assert_eq!(rx.recv().await.unwrap().len(), bytes);
        tx = sent.await.unwrap().unwrap();
    }
    friend.leave().await.unwrap();
}

/// A peer that does not ask for admission offers 64 MiB 32 times, each without its last byte.
#[test]
fn large_values_that_are_not_announced_end_the_connection() {
    run_alone(async {
        let (node, names) = serve(|builder| builder).await;
        let _rx = node.receiver::<Vec<u8>>("values").await.unwrap();
        let mut peer = join(&names, 2).await;
        let (channels, _) = attach(&mut peer, std::iter::once("values".to_owned())).await;
        let before = HEAP.0.forget_peak();
        let mut refused = false;
        for ticket in 0..32 {
            refused |= offer(&mut peer, channels[0], ticket, 64 * MB, 64 * MB - 1).await.is_err();
        }
        assert!(refused, "the node still reads");
        let most = growth(before);
        println!("{most} bytes for values that were not announced");
        assert!(most < 16 * MB, "{most} bytes");
        goes_on(&node, &names, "others", MB).await;
    });
}

/// A peer that waits for each answer announces a value of 16 MiB on each of 64 channels without a receive,
/// and sends the admitted ones, with the last byte or without it.
async fn fills(whole: bool) {
    const LARGE: usize = 16 * MB;
    const HELD: usize = 128 * MB;
    const CHANNELS: usize = 64;
    let (node, names) = serve(|builder| {
        builder.message_max_bytes(LARGE as u64).held_max_bytes(HELD as u64).grace(Duration::from_secs(3))
    })
    .await;
    let mut receivers = Vec::new();
    for n in 0..CHANNELS {
        receivers.push(node.receiver::<Vec<u8>>(&format!("r{n}")).await.unwrap());
    }
    let mut peer = join(&names, 2).await;
    let (channels, full) = attach(&mut peer, (0..CHANNELS).map(|n| format!("r{n}"))).await;
    assert_eq!(full, 0);
    let before = HEAP.0.forget_peak();
    let announce = |(number, channel): (usize, &ChannelId)| {
        let (number, total) = (number as u64, LARGE as u64);
        Frame::Memory(Memory::Announce { number, channel: *channel, kind: Kind::Offer, total })
    };
    peer.say(&channels.iter().enumerate().map(announce).collect::<Vec<_>>()).await.unwrap();
    // The node sends its admissions at once, and then nothing more.
    let mut admitted = 0;
    while let Ok(frame) = tokio::time::timeout(Duration::from_millis(500), peer.hear()).await {
        if let Frame::Memory(Memory::Admit(number)) = frame.unwrap() {
            let bytes = if whole { LARGE } else { LARGE - 1 };
            offer(&mut peer, channels[number as usize], 1, LARGE, bytes).await.unwrap();
            admitted += 1;
        }
    }
    let most = growth(before);
    println!("{admitted} values of 16 MiB were admitted, for {most} bytes");
    assert!((1..=3).contains(&admitted), "{admitted}");
    // (A buffer that grows takes twice its size for a moment.)
    assert!(most <= HELD, "{most} bytes");
    goes_on(&node, &names, "others", LARGE).await;
    if whole {
        // The others wait only for receives, without a limit.
        let heard = tokio::time::timeout(Duration::from_secs(5), hear(&mut peer)).await;
        assert!(heard.is_err(), "{heard:?}");
    } else {
        // The node cuts a connection whose reserved bytes do not arrive.
        let cut = async { while hear(&mut peer).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(20), cut).await.expect("the reservation stands for ever");
    }
    drop(receivers);
}

#[test]
fn announced_values_that_are_not_complete_are_bounded_and_cut() {
    run_alone(fills(false));
}

#[test]
fn complete_values_that_are_not_received_are_bounded() {
    run_alone(fills(true));
}

/// The honest twin: a node sends 32 values of 16 MiB to a slow receiver, and all of them arrive, in little
/// memory.
#[test]
fn a_slow_reader_gets_all_large_values() {
    const LARGE: usize = 16 * MB;
    run_alone(async {
        let (node, names) =
            serve(|builder| builder.message_max_bytes(LARGE as u64).held_max_bytes(4 * LARGE as u64)).await;
        let friend = Node::builder().app("memory").names(&names).serve_names(false).join().await.unwrap();
        let mut rx = node.receiver::<Vec<u8>>("slow").policy(fifo(8)).await.unwrap();
        let mut tx = friend.sender::<Vec<u8>>("slow").await.unwrap();
        let sender = dunlin::spawn(async move {
            for n in 0..32 {
                tx.send(vec![n; LARGE]).await?;
            }
            Ok::<_, Error>(())
        });
        for n in 0..32 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let value = rx.recv().await.unwrap();
            assert!(value.len() == LARGE && value[0] == n, "value {n}");
        }
        sender.await.unwrap().unwrap();
        let _ = friend.leave().await;
    });
}

/// Some receivers of a node have a large value each that they do not receive. Other receivers of that node
/// get theirs, whether they receive before the announcement or after; and the first get theirs once they
/// receive.
#[test]
fn unreceived_values_leave_room_for_received_ones() {
    const RECEIVERS: usize = 8;
    run_alone(async {
        let (node, names) = serve(|builder| builder.message_max_bytes(MB as u64).held_max_bytes(4 * MB as u64)).await;
        let friend = Node::builder().app("memory").names(&names).serve_names(false).join().await.unwrap();
        let (mut receivers, mut sends) = (Vec::new(), Vec::new());
        for n in 0..RECEIVERS {
            receivers.push(node.receiver::<Vec<u8>>(&format!("r{n}")).await.unwrap());
            let mut tx = friend.sender::<Vec<u8>>(&format!("r{n}")).await.unwrap();
            sends.push(dunlin::spawn(async move {
                for _ in 0..3 {
                    tx.send(vec![7; MB - 100]).await?;
                }
                Ok::<_, Error>(())
            }));
        }
        // The first ones take all the room for values without a waiting receive.
        for rx in receivers[RECEIVERS / 2..].iter_mut().rev() {
            for _ in 0..3 {
                assert_eq!(rx.recv().await.unwrap().len(), MB - 100);
            }
        }
        for rx in &mut receivers[..RECEIVERS / 2] {
            for _ in 0..3 {
                assert_eq!(rx.recv().await.unwrap().len(), MB - 100);
            }
        }
        for sent in sends {
            sent.await.unwrap().unwrap();
        }
        friend.leave().await.unwrap();
    });
}

/// Peers of one host, each under an id of its own, have announced a large value for a waiting receive, and
/// send nothing of it. Values from nodes of another host arrive meanwhile.
#[test]
fn peers_of_one_host_leave_memory_to_other_hosts() {
    const PEERS: usize = 64;
    const LEAST: usize = 8;
    run_alone(async {
        let (node, names) = serve(|builder| {
            builder.message_max_bytes(MB as u64).held_max_bytes(32 * MB as u64).grace(Duration::from_secs(60))
        })
        .await;
        let (tell, mut heard) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..PEERS {
            let mut rx = node.receiver::<Vec<u8>>(&format!("r{n}")).await.unwrap();
            dunlin::spawn(async move { rx.recv().await });
            let mut peer = join(&names, 2 + n as u128).await;
            let (channels, full) = attach(&mut peer, std::iter::once(format!("r{n}"))).await;
            assert_eq!(full, 0, "a half of peer {n}");
            let announce = Memory::Announce { number: 0, channel: channels[0], kind: Kind::Offer, total: MB as u64 };
            // The node answers in this order: it has looked for room for the value before it reports that a
            // name waits.
            let name = format!("a name of peer {n}");
            let declare =
                Names::Declare { number: 1, name, channel: ChannelId(1), face: sender(), status: Status::New };
            peer.say(&[Frame::Memory(announce), Frame::Names(declare)]).await.unwrap();
            let tell = tell.clone();
            tokio::spawn(async move {
                while let Ok(frame) = hear(&mut peer).await {
                    let _ = tell.send(frame);
                }
            });
        }
        let (mut admitted, mut answered) = (0, 0);
        while answered < PEERS || admitted < LEAST {
            match heard.recv().await.unwrap() {
                Frame::Memory(Memory::Admit(_)) => admitted += 1,
                Frame::Names(Names::Waiting { .. } | Names::Full { .. }) => answered += 1,
                _ => {}
            }
        }
        goes_on(&node, &names, "others", MB - 100).await;
        while let Ok(frame) = heard.try_recv() {
            admitted += usize::from(matches!(frame, Frame::Memory(Memory::Admit(_))));
        }
        println!("{admitted} values of peers of one host were admitted");
        assert!((LEAST..PEERS).contains(&admitted), "{admitted}");
    });
}

/// A peer attaches to every receiver. The node has room for a limited number, and others still find some.
#[test]
fn attached_halves_are_bounded() {
    const RECEIVERS: usize = 1_500;
    run_alone(async {
        let (node, names) = serve(|builder| builder.message_max_bytes(1000).held_max_bytes(2 * MB as u64)).await;
        let mut receivers = BTreeMap::new();
        for n in 0..RECEIVERS + 10 {
            receivers.insert(n, node.receiver::<u32>(&format!("r{n}")).await.unwrap());
        }
        let mut peer = join(&names, 2).await;
        let before = HEAP.0.forget_peak();
        let (attached, full) = attach(&mut peer, (0..RECEIVERS).map(|n| format!("r{n}"))).await;
        let most = growth(before);
        println!("{} halves were attached, {full} were not, for {most} bytes", attached.len());
        assert!(full > 0 && attached.len() > 100, "{full}");
        // Some have no name already.
        let refusals = node.refusals();
        assert!(refusals.halves > 0, "{refusals:?}");
        assert_eq!(refusals.halves + refusals.registrations, full as u64, "each is an event: {refusals:?}");
        assert!(most < 3 * MB, "{most} bytes");
        let friend = Node::builder().app("memory").names(&names).serve_names(false).join().await.unwrap();
        for n in RECEIVERS..RECEIVERS + 10 {
            let mut tx = friend.sender::<u32>(&format!("r{n}")).await.unwrap();
            let sent = dunlin::spawn(async move { tx.send(7).await });
            assert_eq!(receivers.get_mut(&n).unwrap().recv().await, Ok(7));
            sent.await.unwrap().unwrap();
        }
        friend.leave().await.unwrap();
    });
}

/// The ends of a client of [`guests_are_bounded`] and of its server.
#[derive(Bundle)]
struct Visit {
    first: ToServer<u32>,
    second: ToServer<Vec<u8>>,
    third: ToClient<u32>,
    fourth: ToClient<Vec<u8>>,
}

/// Introduces this many clients to the acceptor of this name; returns how many were admitted.
async fn visits(peer: &mut Peer, first: u128, count: u128) -> usize {
    let face = Declaration { face: Face::Client, ..sender() };
    let (name, channel) = ("door".to_owned(), ChannelId(first << 64));
    peer.say(&[Frame::Names(Names::Declare { number: 0, name, channel, face, status: Status::New })]).await.unwrap();
    let acceptor = loop {
        if let Frame::Names(Names::Found { channel, .. }) = hear(peer).await.unwrap() {
            break channel;
        }
    };
    let (mut answered, mut admitted) = (0, 0);
    for n in 0..count {
        peer.say(&[Frame::Names(Names::Guest { acceptor, guest: ChannelId((first << 64) + (n << 32)) })])
            .await
            .unwrap();
    }
    while answered < count {
        if let Frame::Names(Names::Guest { acceptor: answer, .. }) = hear(peer).await.unwrap() {
            answered += 1;
            admitted += usize::from(answer == acceptor);
        }
    }
    admitted
}

/// Clients arrive that the acceptor does not receive: the node has room for a limited number, and for some of
/// other hosts. Once the process has received and dropped them, others have their room.
#[test]
fn guests_are_bounded() {
    const CLIENTS: u128 = 600;
    run_alone(async {
        let (node, names) = serve(|builder| builder.message_max_bytes(1000).held_max_bytes(2 * MB as u64)).await;
        let (mut door, mut events) = (node.acceptor::<Visit>("door").await.unwrap(), node.events());
        let mut peer = join(&names, 2).await;
        let before = HEAP.0.forget_peak();
        let admitted = visits(&mut peer, 1, CLIENTS).await;
        let most = growth(before);
        println!("{admitted} clients were let in, for {most} bytes");
        assert!((10..CLIENTS as usize / 2).contains(&admitted), "{admitted}");
        assert!(most < 3 * MB, "{most} bytes");
        let told = std::iter::from_fn(|| events.try_recv().ok());
        let is_told = |event| matches!(event, NodeEvent::Limit(Limit::Memory { max, .. }) if max == 2 * MB as u64);
        let (turned_away, told) = (CLIENTS as usize - admitted, told.filter(|event| is_told(event.clone())).count());
        assert_eq!((told, node.refusals().guests), (turned_away, turned_away as u64));
        let friend = Node::builder().app("memory").names(&names).serve_names(false).join().await.unwrap();
        let mut client = friend.client::<Visit>("door").await.unwrap();
        let sent = dunlin::spawn(async move {
            client.first.send(7).await?;
            Ok::<_, Error>(client)
        });
        let mut guest = loop {
            let guest = door.recv().await.unwrap();
            if guest.peer() == friend.me() {
                break guest;
            }
        };
        assert_eq!(guest.first.recv().await, Ok(7));
        let _client = sent.await.unwrap().unwrap();
        let again = visits(&mut join(&names, 3).await, 2, CLIENTS).await;
        assert!(again > admitted / 2, "{again} of {admitted}");
    });
}

/// A message with a sender, whose home is given as a node that does not exist.
fn made_up_sender(number: u128) -> Bytes {
    sender_on_its_way(ChannelId(number << 64), [life(1_000_000 + number), life(2)], number as u64, 1)
}

/// Sends such messages to the receiver of this name, and waits until it has received all of them.
async fn give(peer: &mut Peer, name: &str, first: u128, count: u128) {
    let channel = peer.attach(1, name).await.unwrap();
    for number in first..first + count {
        peer.say(&dunlin_attack::offer(channel, number as u64, &made_up_sender(number))).await.unwrap();
        while !matches!(hear(peer).await.unwrap(), Frame::FromHome(_, FromHome::Taken(_))) {}
    }
}

/// Ends that arrive in messages, and that a process keeps or uses: the node has room for a limited number,
/// and for some of other hosts. An end that arrives without room is lost. Once the process has dropped them,
/// others have their room.
#[test]
fn ends_in_messages_are_bounded() {
    const ENDS: u128 = 1_500;
    for used in [false, true] {
        run_alone(async {
            let (node, names) = serve(|builder| builder.message_max_bytes(1000).held_max_bytes(2 * MB as u64)).await;
            let (takes, mut taken) = tokio::sync::mpsc::unbounded_channel();
            for name in ["ends", "friends", "later"] {
                let (mut ends, takes) = (node.receiver::<Sender<u32>>(name).await.unwrap(), takes.clone());
                dunlin::spawn(async move {
                    while let Ok(mut tx) = ends.recv().await {
                        if used {
                            dunlin::spawn(async move { tx.send(7).await });
                        } else {
                            takes.send(tx).unwrap();
                        }
                    }
                });
            }
            let mut peer = join(&names, 2).await;
            let before = HEAP.0.forget_peak();
            give(&mut peer, "ends", 1, ENDS).await;
            let (most, lost) = (growth(before), node.refusals().halves as u128);
            println!("{} ends were kept, for {most} bytes", ENDS - lost);
            // Each takes 8 KiB of the budget.
            let kept = ENDS - lost;
            assert!(kept > 50 && kept * (8 << 10) < 2 * MB as u128, "{kept} of {ENDS}");
            assert!(most < 3 * MB, "{most} bytes");
            let friend = Node::builder().app("memory").names(&names).serve_names(false).join().await.unwrap();
            let (tx, mut rx) = channel();
            let mut to = friend.sender::<Sender<u32>>("friends").await.unwrap();
            let mut ends = Vec::from_iter(std::iter::from_fn(|| taken.try_recv().ok()));
            to.send(tx).await.unwrap();
            if !used {
                let mut tx = taken.recv().await.unwrap();
                dunlin::spawn(async move { tx.send(7).await });
            }
            assert_eq!(rx.recv().await, Ok(7), "the twin: of another host there is room");
            if used {
                return;
            }
            let last = ends.last_mut().expect("all have come");
            assert_eq!(last.send(7).await, Err(SendError::NotTaken { value: 7, why: Why::NodeLost }));
            ends.clear();
            give(&mut join(&names, 3).await, "later", ENDS + 1, ENDS - lost).await;
            let lost_later = node.refusals().halves as u128 - lost;
            assert!(lost_later < (ENDS - lost) / 2, "{lost_later} of {}", ENDS - lost);
        });
    }
}

/// A peer is the home of a channel of which a process of the node is the sender, and grants more credits than
/// any home has places. Returns the peer and the count of complete sends.
async fn grants(node: &Node, names: &str, bytes: usize) -> (Peer, tokio::sync::watch::Receiver<usize>) {
    let mut peer = join(names, 2).await;
    let channel = ChannelId(1);
    let face = Declaration { face: Face::Receiver, ..sender() };
    let (number, name) = (0, "values".to_owned());
    peer.say(&[Frame::Names(Names::Declare { number, name, channel, face, status: Status::New })]).await.unwrap();
    let attaches = async {
        while !matches!(hear(&mut peer).await.unwrap(), Frame::ToHome(_, ToHome::Attach(_))) {}
        let terms = Terms { window: 1, credits: 1 << 20, value_max: MB as u64 };
        peer.say(&[Frame::FromHome(channel, FromHome::Attached(terms))]).await.unwrap();
    };
    let (tx, ()) = tokio::join!(node.sender::<Vec<u8>>("values"), attaches);
    let (mut tx, (count, sent)) = (tx.unwrap(), tokio::sync::watch::channel(0));
    dunlin::spawn(async move {
        while tx.send(vec![7; bytes]).await.is_ok() {
            count.send_modify(|count| *count += 1);
        }
    });
    (peer, sent)
}

/// The home of a channel grants a million credits and reads nothing: the sender waits.
#[test]
fn memory_for_values_sent_to_home_that_reads_nothing_is_bounded() {
    run_alone(async {
        for bytes in [1 << 10, 256 << 10] {
            let (node, names) = serve(|builder| builder).await;
            let before = HEAP.0.forget_peak();
            let (mut peer, mut sent) = grants(&node, &names, bytes).await;
            // Each complete send is an event; without further events, the sender waits. The peer stays alive.
            while let Ok(changed) = tokio::time::timeout(Duration::from_millis(700), sent.changed()).await {
                changed.unwrap();
                let most = growth(before);
                assert!(most < 64 * MB, "{most} bytes of {} values that were sent", *sent.borrow());
                let _ = peer.say(&[Frame::Heartbeat]).await;
            }
            println!("{} values of {bytes} bytes were sent, for {} bytes", *sent.borrow(), growth(before));
            assert!(*sent.borrow() > 0);
            goes_on(&node, &names, "others", MB).await;
        }
    });
}

/// The honest twin grants as many, and reads.
#[test]
fn reading_home_receives_all_granted_values() {
    const VALUES: usize = 50_000;
    run_alone(async {
        let (node, names) = serve(|builder| builder).await;
        let before = HEAP.0.forget_peak();
        let (mut peer, _sent) = grants(&node, &names, 1 << 10).await;
        let (mut arrived, mut bytes) = (0, 0);
        // The node received the first few numbered frames before.
        let mut seen = 0;
        while arrived < VALUES {
            let frame = hear(&mut peer).await.unwrap();
            seen += 1;
            match frame {
                Frame::ToHome(_, ToHome::Value { head: Head::Sent, total, .. }) => {
                    (arrived, bytes) = (arrived + 1, bytes + total + 128);
                }
                Frame::Memory(Memory::Announce { number, .. }) => {
                    peer.say(&[Frame::Memory(Memory::Admit(number))]).await.unwrap();
                }
                _ => {}
            }
            if bytes >= 64 << 10 {
                peer.say(&[Frame::Ack { seen }, Frame::Memory(Memory::Credit(bytes))]).await.unwrap();
                bytes = 0;
            }
        }
        println!("{arrived} values arrived, for {} bytes", growth(before));
        assert!(growth(before) < 32 * MB, "{}", growth(before));
    });
}

/// Declares up to this many names with schemas as long as allowed. Returns how many were admitted; the others
/// were refused for lack of room.
async fn declares(peer: &mut Peer, from: &str, count: u64, held: usize) -> u64 {
    let mut admitted = 0;
    for number in 0..count {
        let (name, channel) = (format!("{from} {number}"), ChannelId(0));
        let face = Declaration { schema: Bytes::from(vec![255; 32 << 10]), ..sender() };
        peer.say(&[Frame::Names(Names::Declare { number, name, channel, face, status: Status::New })]).await.unwrap();
        match hear(peer).await.unwrap() {
            Frame::Names(Names::Waiting { .. }) => admitted += 1,
            Frame::Names(Names::Full { room: Room::Memory, max, .. }) => assert_eq!(max, held as u64),
            other => panic!("{other:?}"),
        }
    }
    admitted
}

/// Peers declare more than there is room for in all: the node refuses the excess, and honest nodes keep
/// working. Nothing is left of the peers when they have left.
#[test]
fn declarations_are_bounded() {
    const EACH: u64 = 250;
    const HELD: usize = 8 * MB;
    run_alone(async {
        let (node, names) = serve(|builder| builder.message_max_bytes(1000).held_max_bytes(HELD as u64)).await;
        let before = HEAP.0.forget_peak();
        let (mut peers, mut admitted) = (Vec::new(), Vec::new());
        for n in 0..8 {
            // The last peer is of another host.
            let mut peer = join_from(if n < 7 { OTHER } else { [127, 0, 0, 4] }, &names, 10 + n).await;
            admitted.push(declares(&mut peer, &n.to_string(), EACH, HELD).await);
            peers.push(peer);
        }
        let most = growth(before);
        println!("{most} bytes for {admitted:?} declarations");
        assert!(admitted[0] < EACH && admitted[6] < admitted[0] && admitted[7] > 1, "{admitted:?}");
        assert!(most < HELD + 2 * MB, "{most} bytes");
        goes_on(&node, &names, "others", 1000).await;
        for mut peer in peers {
            peer.say(&[Frame::Goodbye]).await.unwrap();
            while peer.hear().await.is_ok() {}
        }
        let mut peer = join(&names, 100).await;
        assert_eq!(declares(&mut peer, "again", EACH, HELD).await, admitted[0]);
    });
}

/// Peers ask without end, and read none of the answers. The node cuts them at its limit, and has kept no more
/// for all of them than it may.
#[test]
fn answers_that_are_not_read_are_bounded() {
    const PEERS: u128 = 8;
    const HELD: usize = 4 * MB;
    run_alone(async {
        let (node, names) = serve(|builder| builder.message_max_bytes(1000).held_max_bytes(HELD as u64)).await;
        let mut receivers = Vec::new();
        for n in 0..PEERS {
            receivers.push(node.receiver::<u32>(&format!("asked {n}")).await.unwrap());
        }
        let before = HEAP.0.forget_peak();
        let mut floods = Vec::new();
        for n in 0..PEERS {
            let mut peer = join(&names, 10 + n).await;
            floods.push(tokio::spawn(async move {
                let (channels, _) = attach(&mut peer, std::iter::once(format!("asked {n}"))).await;
                let asks: Vec<Frame> =
                    (0..1000).map(|_| Frame::ToHome(channels[0], ToHome::Attach(sender()))).collect();
                // The loop ends when the node closes the socket.
                while peer.say(&asks).await.is_ok() {}
            }));
        }
        for flood in floods {
            flood.await.unwrap();
        }
        let most = growth(before);
        println!("{most} bytes for answers to {PEERS} peers");
        // Beside the held bytes: 128 KiB for each, the bytes read from its socket, and the cost of the
        // allocator's doubling.
        assert!(most < 2 * HELD + PEERS as usize * MB / 2, "{most} bytes");
        goes_on(&node, &names, "others", 1000).await;
    });
}

/// The beginning of a frame with a body of this many bytes, without the last 200.
fn half(kind: u8, body: usize) -> Bytes {
    let mut bytes = vec![kind];
    let mut length = body;
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.resize(bytes.len() + body - 200, 0);
    bytes.into()
}

/// Each member sends a part of such a frame, and then a byte every 50 ms. Returns the most bytes that takes,
/// and the bytes after some seconds.
async fn trickle(names: &str, first: u128, count: u128, kind: u8, body: usize) -> (usize, usize) {
    let half = half(kind, body);
    let before = HEAP.0.forget_peak();
    let trickles = (first..first + count).map(|number| {
        let (names, half) = (names.to_owned(), half.clone());
        tokio::spawn(async move {
            let mut peer = join(&names, number).await;
            let _ = peer.write(&half).await;
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                // The node may have closed the socket.
                let _ = peer.write(&[0]).await;
            }
            peer
        })
    });
    let mut peers = Vec::new();
    for trickle in trickles.collect::<Vec<_>>() {
        peers.push(trickle.await.unwrap());
    }
    let bytes = (growth(before), HEAP.0.live().saturating_sub(before));
    drop(peers);
    bytes
}

/// An incomplete frame in a socket's buffer: 64 KiB are free for each socket, and a longer frame is a piece
/// of a value that has its place, or is not kept. Any other ends the connection before the frame is read.
#[test]
fn frames_that_are_not_complete_are_bounded() {
    const MEMBERS: usize = 150;
    run_alone(async {
        let (node, names) = serve(|builder| builder.message_max_bytes(MB as u64).held_max_bytes(64 * MB as u64)).await;
        let (more, relayed, attach) = (0x28, 0x58, 0x20);
        for (nth, kind) in [more, relayed].into_iter().enumerate() {
            let (most, _) = trickle(&names, (1 + nth as u128) << 64, MEMBERS as u128, kind, MB + 60).await;
            println!("{most} bytes for half of frame {kind:x} each of {MEMBERS} members");
            // (A read takes 64 KiB, into a buffer of 256 KiB.)
            assert!(most < 64 * MB, "{most} bytes");
        }
        let (_, rest) = trickle(&names, 3 << 64, MEMBERS as u128, attach, 64 << 10).await;
        println!("{rest} bytes for half of a frame of 64 KiB each of {MEMBERS} members");
        assert!(rest < MEMBERS * (80 << 10), "{rest} bytes");
        goes_on(&node, &names, "others", MB).await;
    });
}
