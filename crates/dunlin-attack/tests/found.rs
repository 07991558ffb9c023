//! Peers that send a node the places of names for which it has not asked. The allocator of this binary counts
//! live bytes.

use std::time::{Duration, Instant};

use dunlin::node::{ConnectionState, Down};
use dunlin::prelude::*;
use dunlin_attack::{Peer, bytes_of, face, hello, life, run_alone};
use dunlin_heap::{Counting, Program};
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_proto::wire::{Face, Frame, Names, ToHome};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

const OTHER: [u8; 4] = [127, 0, 0, 2];

/// A partner for each of these numbers, which no other peer has named.
fn found(numbers: std::ops::Range<u64>) -> Vec<Frame> {
    let told = |n: u64| {
        let (number, channel) = (n, ChannelId(n.into()));
        let partner = Life { node: NodeId(u128::from(n) << 64 | 7), incarnation: Incarnation(1) };
        let addresses = vec![format!("10.{}.{}.{}:7400", n >> 16 & 0xFF, n >> 8 & 0xFF, n & 0xFF)];
        Frame::Names(Names::Found { number, partner, addresses, channel, face: face(Face::Receiver) })
    };
    numbers.map(told).collect()
}

/// Two nodes that call each other.
struct Pair {
    node: Node,
    to: Sender<u64>,
    back: Receiver<u64>,
    server: Process<Result<(), Error>>,
    _friend: Node,
}

impl Pair {
    async fn new(application: &str) -> Self {
        let names = format!("memory:names-of-{application}");
        let builder = || Node::builder().app(application).names(&names).listen("127.0.0.1:0");
        let (node, friend) = (builder().join().await.unwrap(), builder().join().await.unwrap());
        let (to, mut asked) = (friend.sender::<u64>("to").await.unwrap(), node.receiver::<u64>("to").await.unwrap());
        let (mut answer, back) =
            (node.sender::<u64>("back").await.unwrap(), friend.receiver::<u64>("back").await.unwrap());
        let server = dunlin::spawn(async move {
            while let Ok(Some(n)) = asked.next().await {
                answer.send(n).await?;
            }
            Ok::<_, Error>(())
        });
        Self { node, to, back, server, _friend: friend }
    }

    async fn calls(&mut self) -> Duration {
        let began = Instant::now();
        for n in 0..250 {
            self.to.send(n).await.unwrap();
            assert_eq!(self.back.recv().await.unwrap(), n);
        }
        began.elapsed()
    }

    async fn close(self) {
        drop(self.to);
        self.server.await.unwrap().unwrap();
    }
}

/// 400,000 partners, sent by members of the application, 25,000 each.
#[test]
fn unrequested_partners_are_not_kept_and_end_the_connection() {
    const MEMBERS: u64 = 16;
    const EACH: u64 = 25_000;
    const PIECE: u64 = 1_000;
    /// The node cuts a flooder as soon as it reads; only a busy machine takes longer.
    const CUT: Duration = Duration::from_secs(30);
    run_alone(async {
        let (mut pair, mut untouched) = (Pair::new("found").await, Pair::new("untouched").await);
        let node = pair.node.clone();
        let address = node.addresses()[0].clone();
        let there = Peer::who_is(OTHER, &address, "found", life(1)).await.unwrap();
        // A call makes sure that they are connected.
        pair.calls().await;
        untouched.calls().await;
        let live = HEAP.0.forget_peak();
        let mut connections = node.connections();
        let mut flood = JoinSet::new();
        for n in 0..MEMBERS {
            let hello = hello("found", life(100 + u128::from(n)), there);
            let mut flooder = Peer::join(OTHER, &address, &hello, Duration::ZERO).await.unwrap();
            flood.spawn(async move {
                // It begins when it is a member: the node ignores a stranger.
                flooder.hear().await.expect("it is let in");
                for first in (0..EACH).step_by(PIECE as usize) {
                    let first = n * EACH + first;
                    if flooder.write(&bytes_of(&found(first..first + PIECE))).await.is_err() {
                        break;
                    }
                }
                let cut = tokio::time::timeout(CUT, async { while flooder.hear().await.is_ok() {} });
                cut.await.expect("it is cut off");
            });
        }
        flood.join_all().await;
        let (mut cut, mut violated) = (0, 0);
        while cut < MEMBERS {
            let (_, ConnectionState::Down(why)) = connections.recv().await.unwrap() else { continue };
            cut += 1;
            match why {
                Down::Violation(why) => {
                    assert_eq!(why, "an answer of a name service that was not asked");
                    violated += 1;
                }
                // On a busy machine a flooder may have been silent for too long before it began.
                Down::Unreachable(..) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(violated > 0);
        let peak = HEAP.0.peak().saturating_sub(live) as u64;
        println!("{peak} bytes were in use");
        assert!(peak <= 16 << 20, "{peak} bytes");
        // In turns, so that other load on the machine affects both.
        let (mut after, mut plain) = (Duration::MAX, Duration::MAX);
        for _ in 0..8 {
            after = after.min(pair.calls().await);
            plain = plain.min(untouched.calls().await);
        }
        println!("calls take {after:?}, and {plain:?} where there was no flood");
        assert!(after <= 2 * plain, "calls take {after:?}, and {plain:?} where there was no flood");
        // The node releases their sockets a moment later, without an event.
        let until = Instant::now() + Duration::from_secs(20);
        let left = || HEAP.0.live().saturating_sub(live) as u64;
        while left() > 256 << 10 {
            assert!(Instant::now() < until, "{} bytes are kept", left());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        println!("{} bytes are kept", left());
        pair.close().await;
        untouched.close().await;
    });
}

/// The twin: a node uses the answers for which it has asked its name service.
#[test]
fn requested_partner_is_dialled_and_connected() {
    run_alone(async {
        let (service, home) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let names = service.local_addr().unwrap().to_string();
        let node = Node::builder().app("asked").names(&names).serve_names(false).listen("127.0.0.1:0").join();
        let (node, service) = tokio::join!(node, Peer::accept(&service, life(1)));
        let (node, mut service) = (node.unwrap(), service.unwrap());
        let sends = dunlin::spawn(async move { node.sender::<u32>("tides").await.map(|tx| (tx, node)) });
        let (partner, channel) = (life(2), ChannelId(7));
        loop {
            if let Frame::Names(Names::Declare { number, name, .. }) = service.hear_at_last().await.unwrap()
                && name == "tides"
            {
                let addresses = vec![home.local_addr().unwrap().to_string()];
                let face = face(Face::Receiver);
                let found = Names::Found { number, partner, addresses, channel, face };
                service.say(&[Frame::Names(found)]).await.unwrap();
                break;
            }
        }
        let mut home = Peer::accept(&home, partner).await.unwrap();
        loop {
            if let Frame::ToHome(to, ToHome::Attach(_)) = home.hear_at_last().await.unwrap() {
                assert_eq!(to, channel);
                break;
            }
        }
        drop(sends);
    });
}
