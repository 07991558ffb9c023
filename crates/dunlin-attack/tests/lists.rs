//! Many peers that ask a name service for all its names at once: the memory that it keeps for them is
//! bounded, and peers that receive nothing keep no other from its names.
#![cfg(target_os = "linux")]

use std::process::Stdio;
use std::time::{Duration, Instant};

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin_attack::{Peer, declare, face, forget_peak, hello, life, offer, resident, run, run_alone};
use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::{Face, Frame, FromHome, Head, Names, Status, Terms, ToHome};
use tokio::task::JoinSet;

const ADDRESS: &str = "DUNLIN_ATTACK_NAMES_AT";
const NAMES: usize = 65_000;
const ASKERS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(60);

/// Registers names, and sends the peer's heartbeats, until it is dropped.
async fn registers(
    from: [u8; 4],
    address: String,
    hello: dunlin_proto::wire::handshake::Hello,
    numbers: std::ops::Range<u64>,
) {
    let mut peer = Peer::join(from, &address, &hello, Duration::ZERO).await.expect("the door is open");
    for number in numbers.clone() {
        let name = format!("a name that is as long as names are {number}");
        peer.say(&[declare(number, &name, ChannelId(0), &face(Face::Sender))]).await.expect("the connection stays");
    }
    let mut waiting = numbers.count();
    while waiting > 0 {
        if let Frame::Names(said) = peer.hear().await.expect("the connection stays") {
            assert!(matches!(said, Names::Waiting { .. }), "{said:?}");
            waiting -= 1;
        }
    }
    tokio::spawn(async move {
        let mut beat = tokio::time::interval(Duration::from_secs(1));
        loop {
            beat.tick().await;
            if peer.say(&[Frame::Heartbeat]).await.is_err() {
                return;
            }
        }
    });
}

/// The other process of the test.
#[test]
#[ignore = "runs as a child of the test below"]
fn asks_for_all_names() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    run(async {
        let mut all = JoinSet::new();
        for _ in 0..ASKERS {
            let address = address.clone();
            all.spawn(async move {
                let node =
                    Node::builder().app("lists").names(&address).listen("memory:").join().await.expect("it joins");
                let mut asks = node.inquire(Some(&address), PATIENCE).await.expect("it is there");
                let names = asks.names(PATIENCE).await.expect("it answers");
                let ours = names.ends.iter().filter(|end| end.name.starts_with("a name")).count();
                assert_eq!(ours, NAMES);
                assert!(names.ends.windows(2).all(|pair| pair[0].name <= pair[1].name), "each page follows the last");
            });
        }
        all.join_all().await;
    });
}

/// The twin: a node that asks for few names, repeatedly, gets exactly these, in order.
#[test]
fn a_list_of_few_names_is_exact() {
    run_alone(async {
        let names = "memory:names-of-few";
        let node = Node::builder().app("few").names(names).listen("127.0.0.1:0").join().await.expect("it joins");
        let mut ends = Vec::new();
        for n in [3, 1, 2] {
            ends.push(node.sender::<u32>(&format!("tide {n}")).await.expect("there is room"));
        }
        let address = node.addresses()[0].clone();
        let visitor = Node::builder().app("few").names(&address).listen("memory:").join().await.expect("it joins");
        let mut asks = visitor.inquire(Some(&address), PATIENCE).await.expect("it is there");
        for count in [3, 2, 1] {
            let listed = asks.names(PATIENCE).await.expect("it answers");
            let listed: Vec<&str> = listed.ends.iter().map(|end| end.name.as_str()).collect();
            let mut here: Vec<String> = [3, 1, 2][..count].iter().map(|n| format!("tide {n}")).collect();
            here.sort();
            assert_eq!(listed, here);
            drop(ends.pop());
            // The name goes when its channel has ended, which no event marks.
            while asks.names(PATIENCE).await.expect("it answers").ends.len() == count {}
        }
    });
}

#[test]
fn lists_of_all_names_at_once_take_little_memory() {
    run_alone(async {
        let names = "memory:names-of-lists";
        let node = Node::builder().app("lists").names(names).listen("127.0.0.1:0").join().await.expect("it joins");
        let address = node.addresses()[0].clone();
        let there = Peer::who_is([127, 0, 0, 2], &address, "lists", life(1)).await.expect("it gives its identity");
        // Three quarters belong to one source, and the rest to others, a thousand each.
        let mut parts: Vec<(u8, std::ops::Range<u64>)> = (0..3).map(|n| (2, n * 16_000..(n + 1) * 16_000)).collect();
        parts.extend((0..17).map(|n| (10 + n as u8, 48_000 + n * 1_000..48_000 + (n + 1) * 1_000)));
        for (n, (host, numbers)) in parts.into_iter().enumerate() {
            let hello = hello("lists", life(100 + n as u128), there);
            registers([127, 0, 0, host], address.clone(), hello, numbers).await;
        }
        forget_peak();
        let (before, _) = resident();
        let began = Instant::now();
        let mut child = tokio::process::Command::new(std::env::current_exe().expect("it runs"));
        child.args(["--ignored", "--exact", "asks_for_all_names"]).env(ADDRESS, &address).stdout(Stdio::null());
        let status = child.status().await.expect("it starts");
        assert!(status.success(), "{status}");
        let grown = resident().1 - before;
        println!("{ASKERS} lists of {NAMES} names: {grown} bytes more, {:?}", began.elapsed());
        assert!(grown < 64 << 20, "{grown} bytes");
        drop(node);
    });
}

/// How many pages may be under way at once.
const PAGES_MAX: usize = 32;

/// The first channel of an inquirer, from which its ends are numbered: a caller for pings, a sender of
/// inquiries, a receiver of pages.
fn inquirer(n: u64) -> ChannelId {
    ChannelId(u128::from(n) * 1_000)
}

/// Becomes this many inquirers, which ask for the names, and receive none of the pages offered to them.
/// Returns once as many pages are under way as there may be.
async fn ask_silently(peer: &mut Peer, inquirers: u64) {
    let client = face(Face::Client);
    for number in 1..=inquirers {
        let said = Names::Declare {
            number,
            name: "dunlin.node".to_owned(),
            channel: ChannelId(0),
            face: client.clone(),
            status: Status::New,
        };
        peer.say(&[Frame::Names(said)]).await.expect("the connection stays");
    }
    let mut offered = 0;
    while offered < PAGES_MAX {
        match peer.hear_at_last().await.expect("the connection stays") {
            Frame::Names(Names::Found { number, channel: acceptor, .. }) => {
                let guest = Names::Guest { acceptor, guest: inquirer(number) };
                peer.say(&[Frame::Names(guest)]).await.expect("the connection stays");
            }
            Frame::Names(Names::Guest { guest, .. }) => {
                let list = ChannelId(guest.0 + 1);
                let mut said = vec![Frame::ToHome(list, ToHome::Attach(client.clone()))];
                // No ends, and an empty list in CBOR.
                said.extend(offer(list, 1, &bytes::Bytes::from_static(&[0, 0x80])));
                peer.say(&said).await.expect("the connection stays");
            }
            Frame::ToHome(pages, ToHome::Attach(_)) => {
                let terms = Terms { window: 1, credits: 0, value_max: 1 << 20 };
                peer.say(&[Frame::FromHome(pages, FromHome::Attached(terms))]).await.expect("the connection stays");
            }
            Frame::ToHome(_, ToHome::Value { head: Head::Offer(_), .. }) => offered += 1,
            Frame::FromHome(_, said @ FromHome::Failed(..)) => panic!("the question is not read: {said:?}"),
            _ => {}
        }
    }
}

#[test]
fn silent_inquirers_of_one_source_keep_no_other_from_the_names() {
    run_alone(async {
        let builder = || Node::builder().app("silent").names("memory:names-of-silent");
        let node = builder().listen("127.0.0.1:0").join().await.expect("it joins");
        let address = node.addresses()[0].clone();
        let mut events = node.events();
        let mut peer = Peer::meet([127, 0, 0, 2], &address, "silent", life(1)).await.expect("it is let in");
        ask_silently(&mut peer, 64).await;

        // Each page would wait for 10 s, and half of the inquirers would wait for those pages.
        let patience = Duration::from_secs(5);
        let other = builder().listen("memory:").join().await.expect("it joins");
        let mut asks = other.inquire(Some(&address), patience).await.expect("it is there");
        let names = asks.names(patience).await.expect("it answers though others receive nothing");
        assert_eq!(names.node, node.me().to_string());
        // The inquirer whose page was dropped is notified later.
        while !matches!(events.recv().await.expect("the node lives"), NodeEvent::Limit(Limit::Lists { .. })) {}
        assert_eq!(node.refusals().lists, 1, "{:?}", node.refusals());
        drop((peer, node));
    });
}

/// The twin: more inquirers of one source than there are pages get their names, one after the other.
#[test]
fn many_inquirers_of_one_source_get_the_names() {
    run_alone(async {
        let builder = || Node::builder().app("patient").names("memory:names-of-patient");
        let node = builder().listen("127.0.0.1:0").join().await.expect("it joins");
        let address = node.addresses()[0].clone();
        let other = builder().listen("memory:").join().await.expect("it joins");
        let mut all = JoinSet::new();
        for _ in 0..2 * PAGES_MAX {
            let mut asks = other.inquire(Some(&address), PATIENCE).await.expect("it is there");
            all.spawn(async move { asks.names(PATIENCE).await.map(|_| ()) });
        }
        assert!(all.join_all().await.into_iter().all(|names| names.is_ok()));
        assert_eq!(node.refusals().lists, 0);
        drop(node);
    });
}

/// A trusted address stands for many hosts, so each of its sockets counts alone.
#[test]
fn sockets_of_a_trusted_source_are_sources_of_their_own() {
    run_alone(async {
        let builder = || Node::builder().app("trusted").names("memory:names-of-trusted");
        let network = "127.0.0.0/30".parse().expect("it is a network");
        let node = builder().listen("127.0.0.1:0").trusted_sources([network]).join().await.expect("it joins");
        let address = node.addresses()[0].clone();
        // The inquirers and the node that asks have one address.
        let mut peer = Peer::meet([127, 0, 0, 1], &address, "trusted", life(1)).await.expect("it is let in");
        ask_silently(&mut peer, 64).await;
        let patience = Duration::from_secs(5);
        // It joins over TCP, too.
        let other = Node::builder().app("trusted").names(&address).serve_names(false).join().await.expect("it joins");
        let mut asks = other.inquire(Some(&address), patience).await.expect("it is there");
        asks.names(patience).await.expect("its socket is not that of the inquirers");
        drop((peer, node));
    });
}
