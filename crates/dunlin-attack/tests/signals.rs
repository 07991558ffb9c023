//! Peers that misuse signals: monitors and links without number, and links, exits, kills and ends for
//! processes that are none of the node's, or none at all. What the node keeps is bounded, its processes live
//! on, and honest nodes are served.

#[path = "support/ended.rs"]
mod ended;
#[path = "support/given.rs"]
mod given;

use std::time::{Duration, Instant};

use dunlin::node::{Limit, NodeEvent};
use dunlin::prelude::*;
use dunlin::{ExitReason, Mailbox, Pid, link, mailbox, monitor};
use dunlin_attack::{Peer, life, run_alone};
use dunlin_heap::{Counting, Program};
use dunlin_proto::id::{Incarnation, Life, NodeId, ProcessId};
use dunlin_proto::wire::{Exit as SentExit, Frame, Reason, Signal};
use ended::{down, nothing_is_left};

const PEER: [u8; 4] = [127, 0, 0, 4];
/// No operation of a test may wait that long.
const PATIENCE: Duration = Duration::from_secs(20);
const MB: usize = 1 << 20;

#[global_allocator]
static HEAP: Counting<Program> = Counting(Program::new());

async fn node(test: &str) -> Node {
    let builder = Node::builder().app("signals").names(&format!("memory:names-of-{test}")).listen("127.0.0.1:0");
    let builder = builder.heartbeat(Duration::from_millis(200)).grace(Duration::from_secs(2));
    builder.join().await.expect("it joins")
}

async fn meet(node: &Node, number: u128) -> Peer {
    Peer::meet(PEER, &node.addresses()[0], "signals", life(number)).await.expect("the door is open")
}

/// Gives a peer the right to a process.
async fn give(node: &Node, peer: &mut Peer, name: &str, pid: Pid) -> ProcessId {
    let message = given::give(node, peer, name, pid).await;
    let mut rest = given::fields(&message);
    let [high, low, incarnation, number, place, bits] = [(); 6].map(|()| given::number(&mut rest));
    let node = NodeId(u128::from(high) << 64 | u128::from(low));
    ProcessId { life: Life { node, incarnation: Incarnation(incarnation) }, number, place: place as u32, bits }
}

fn signal(signal: Signal) -> Frame {
    Frame::Signal(Box::new(signal))
}

fn failed() -> SentExit {
    SentExit { text: "enough".to_owned(), ..SentExit::of(Reason::Error) }
}

/// The answer to this watch of the peer.
async fn answer(peer: &mut Peer, watch: u64) -> Reason {
    loop {
        if let Frame::Signal(heard) = peer.hear_at_last().await.unwrap()
            && let Signal::Down { watch: of, exit } = *heard
            && of == watch
        {
            return exit.reason;
        }
    }
}

/// How many signals an attack sends, a few more than are kept. `DUNLIN_SIGNALS=1000000` tries that many:
/// those that have no effect are read slowly, a thousand a second, so links do not get that far.
fn signals() -> u64 {
    std::env::var("DUNLIN_SIGNALS").map_or(68_000, |number| number.parse().unwrap())
}

/// Sends them all, and reads what comes; ends early with the connection, or after 20 s. Returns how many it
/// has sent.
async fn flood(peer: &mut Peer, frame: impl Fn(u64) -> Frame) -> u64 {
    const EACH: u64 = 1000;
    let (began, mut sent) = (Instant::now(), 0);
    while sent < signals() && began.elapsed() < Duration::from_secs(20) {
        let frames: Vec<_> = (sent..sent + EACH).map(&frame).collect();
        if peer.say(&frames).await.is_err() {
            break;
        }
        sent += EACH;
        while let Ok(heard) = tokio::time::timeout(Duration::ZERO, peer.hear()).await {
            if heard.is_err() {
                return sent;
            }
        }
    }
    sent
}

/// A process that receives exits, and looks at none before it is told to; then it counts them.
struct Deaf {
    process: Process<usize>,
    go: Sender<()>,
}

enum Heard {
    Exit(#[expect(dead_code, reason = "they are counted")] Exit),
}

impl From<Exit> for Heard {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl Deaf {
    async fn start() -> Self {
        let ((go, mut told), (mut ready, mut is_ready)) = (channel(), channel());
        let process = spawn(async move {
            let (_, mut exits): (_, Mailbox<Heard>) = mailbox();
            exits.exits().unwrap();
            ready.send(()).await.unwrap();
            told.recv().await.unwrap();
            exits.len()
        });
        is_ready.recv().await.unwrap();
        Self { process, go }
    }

    async fn count(mut self) -> usize {
        self.go.send(()).await.unwrap();
        self.process.await.unwrap()
    }
}

/// Another node monitors, links and ends processes of this one.
async fn serves_an_honest_node(node: &Node, test: &str) {
    let friend = self::node(test).await;
    let (mut tx, mut rx) =
        (node.sender::<Pid>("honest").await.unwrap(), friend.receiver::<Pid>("honest").await.unwrap());
    for _ in 0..20 {
        let process = spawn(std::future::pending::<()>());
        let (sent, pid) = (tx.send(process.pid()), rx.recv());
        let pid = par!(sent, pid).1.unwrap();
        let (down, source) = (monitor(pid), spawn(std::future::pending::<()>()));
        let from = source.pid();
        // The exit of the source comes over the link, or there is none any more.
        assert_eq!(spawn(async move { link(from, pid) }).await.unwrap(), Ok(true));
        assert_eq!(spawn(async move { from.exit("enough") }).await.unwrap(), Ok(true));
        let exit = down.await;
        let ended = ExitReason::Error("enough".to_owned());
        assert!(exit.reason == ended || exit.reason == ExitReason::NoSuchProcess, "{exit}");
        assert_eq!(process.await.unwrap_err().reason, exit.reason);
    }
    drop((tx, rx));
    friend.leave().await.unwrap();
}

/// More monitors than a node may have at another: the connection ends, and nothing of them is left.
#[test]
fn monitors_without_number_end_the_connection() {
    run_alone(async {
        let node = node("monitors").await;
        let mut connections = node.connections();
        let process = spawn(std::future::pending::<()>());
        let mut peer = meet(&node, 2).await;
        let of = give(&node, &mut peer, "given", process.pid()).await;
        let before = HEAP.0.forget_peak();
        let sent = flood(&mut peer, |n| signal(Signal::Watch { watch: 1 + n, of })).await;
        let why = down(&mut connections).await.to_string();
        let growth = HEAP.0.peak().saturating_sub(before);
        println!("{sent} monitors were sent, for {growth} bytes: {why}");
        assert!(why.contains("more than 65536 watches"), "{why}");
        assert!(growth < 64 * MB, "{growth} bytes");
        process.pid().kill();
        assert_eq!(process.await.unwrap_err().reason, ExitReason::Killed);
        serves_an_honest_node(&node, "monitors").await;
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}

/// Links from processes that there are, and are not, to one that receives exits and looks at none.
#[test]
fn links_without_number_are_bounded() {
    type Source = fn(Life, ProcessId, u64) -> ProcessId;
    // By processes of the peer, of its next life, and of nodes that there are not.
    let sources: [(&str, Source); 3] = [
        ("its own", |peer, target, n| ProcessId { life: peer, number: 1 + n, ..target }),
        ("of its next life", |peer, target, n| {
            let life = Life { incarnation: Incarnation(peer.incarnation.0 + 1), ..peer };
            ProcessId { life, number: 1 + n, ..target }
        }),
        ("invented", |peer, target, n| {
            let life = Life { node: NodeId(peer.node.0 ^ u128::from(n + 1)), ..peer };
            ProcessId { life, number: 1 + n, ..target }
        }),
    ];
    run_alone(async {
        for (at, (what, source)) in sources.into_iter().enumerate() {
            let node = node(&format!("links{at}")).await;
            let deaf = Deaf::start().await;
            let mut peer = meet(&node, 2).await;
            let target = give(&node, &mut peer, "given", deaf.process.pid()).await;
            let me = peer.me();
            let before = HEAP.0.forget_peak();
            let sent = flood(&mut peer, |n| signal(Signal::Link { source: source(me, target, n), target })).await;
            // The answer comes when all before it has been looked at.
            let nobody = ProcessId { life: life(77), ..target };
            peer.say(&[signal(Signal::Watch { watch: 1, of: nobody })]).await.unwrap();
            assert_eq!(answer(&mut peer, 1).await, Reason::NoSuchProcess);
            let growth = HEAP.0.peak().saturating_sub(before);
            drop(peer);
            let exits = deaf.count().await;
            println!("{sent} links from processes {what}: {growth} bytes, {exits} exits");
            assert!(growth < 64 * MB, "{what}: {growth} bytes");
            assert!(exits <= 1 << 16, "{what}: {exits} exits");
            // (A few that have just ended still count.)
            let made = sent - node.refusals().posts;
            assert!((60_000..=1 << 16).contains(&made), "{what}: {made} links were made");
            // Now there is room for others of that host.
            let idle = spawn(std::future::pending::<()>());
            let mut peer = meet(&node, 3).await;
            let target = give(&node, &mut peer, "given again", idle.pid()).await;
            peer.say(&[signal(Signal::Link { source: ProcessId { life: life(77), ..target }, target })]).await.unwrap();
            assert_eq!(idle.await.unwrap_err().reason, ExitReason::NodeLost(String::new()));
            drop(peer);
            serves_an_honest_node(&node, &format!("links{at}")).await;
            node.leave().await.unwrap();
        }
    });
}

/// Signals for processes of other nodes, of nodes that there are not and of earlier incarnations, and about
/// watches that there are not: nothing happens, and a watch gets its answer.
#[test]
fn signals_for_processes_of_other_nodes_are_dropped() {
    run_alone(async {
        let node = node("others").await;
        let mut events = node.events();
        let process = spawn(std::future::pending::<()>());
        let mut peer = meet(&node, 2).await;
        let own = give(&node, &mut peer, "given", process.pid()).await;
        let of = |life| ProcessId { life, ..own };
        let earlier = Life { incarnation: Incarnation(own.life.incarnation.0.wrapping_sub(1)), ..own.life };
        let later = Life { incarnation: Incarnation(own.life.incarnation.0 + 1), ..own.life };
        let others = [of(peer.me()), of(life(77)), of(earlier), of(later)];
        let sender = ProcessId { life: peer.me(), number: 3, ..own };
        for (at, to) in others.into_iter().enumerate() {
            let watch = 1 + at as u64;
            let frames = [
                Signal::Exit { to, from: sender, exit: failed() },
                Signal::Kill { to, by: sender },
                Signal::Link { source: sender, target: to },
                Signal::Unlink { source: sender, target: to },
                Signal::Down { watch, exit: failed() },
                Signal::Unwatch(1000 + watch),
                Signal::Watch { watch, of: to },
            ];
            peer.say(&frames.map(signal)).await.unwrap();
            assert_eq!(answer(&mut peer, watch).await, Reason::NoSuchProcess);
        }
        // With wrong bits each is counted.
        let forged = ProcessId { bits: own.bits ^ 1, ..own };
        let frames = [
            Signal::Exit { to: forged, from: sender, exit: failed() },
            Signal::Kill { to: forged, by: sender },
            Signal::Link { source: sender, target: forged },
            Signal::Unlink { source: sender, target: forged },
            Signal::Link { source: forged, target: own },
        ];
        let count = frames.len();
        peer.say(&frames.map(signal)).await.unwrap();
        for _ in 0..count {
            while !matches!(events.recv().within(PATIENCE).await.unwrap(), NodeEvent::Limit(Limit::Signal { .. })) {}
        }
        assert!(process.pid().is_alive());
        // The right ones, last.
        peer.say(&[signal(Signal::Exit { to: own, from: sender, exit: failed() })]).await.unwrap();
        assert_eq!(process.await.unwrap_err().reason, ExitReason::Error("enough".to_owned()));
        serves_an_honest_node(&node, "others").await;
        drop(peer);
        nothing_is_left(&node).await;
        node.leave().await.unwrap();
    });
}
