//! The programs whose costs are counted: those of `dunlin-bench`, each on one thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use dunlin::prelude::*;
use dunlin::server::Server;
use dunlin::{Address, Bundle, Call, Mailbox, mailbox};
use dunlin_heap::{Allocated, Counting, Thread};
use tokio::runtime::{Builder, Runtime};

/// The allocator of the programs, which counts.
#[global_allocator]
static HEAP: Counting<Thread> = Counting(Thread);

/// A program, and how to count its costs.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// The unit of its costs.
    pub(crate) unit: &'static str,
    /// The length of the shorter of its two runs. The longer one is [`longer`](Self::longer).
    pub(crate) shorter: u64,
    pub(crate) longer: u64,
    /// How many units each step of the length has.
    pub(crate) units_each: u64,
    /// By how many percent its instructions may exceed their bound, and its bytes and allocations theirs.
    pub(crate) slack: (f64, f64),
    /// Whether its calls of locks, trees and clocks are counted too.
    pub(crate) has_calls: bool,
    run: fn(u64),
}

/// A table of the core stores its entries in chunks of doubling size. These counts fill exactly the first six
/// chunks, and the first seven; the difference is one chunk, divided among the processes.
const FULL_TABLE: [u64; 2] = [64 * 63, 64 * 127];

const fn local(name: &'static str, unit: &'static str, units_each: u64, run: fn(u64)) -> Program {
    Program { name, unit, shorter: 10_000, longer: 20_000, units_each, slack: (2.0, 0.0), has_calls: false, run }
}

const fn parked(name: &'static str, run: fn(u64)) -> Program {
    let [shorter, longer] = FULL_TABLE;
    Program { name, unit: "process", shorter, longer, units_each: 1, slack: (2.0, 0.0), has_calls: false, run }
}

/// Between two nodes, or two ends of a link. `memory`: the slack of bytes and allocations.
const fn between(name: &'static str, unit: &'static str, memory: f64, run: fn(u64)) -> Program {
    Program { name, unit, shorter: 1_000, longer: 3_000, units_each: 1, slack: (5.0, memory), has_calls: true, run }
}

pub(crate) static ALL: &[Program] = &[
    local("commstime-par", "communication", 4, |n| in_par(commstime_par(n))),
    local("commstime-spawned", "communication", 4, |n| spawned(commstime_spawned(n))),
    local("pingpong-par", "round trip", 1, |n| in_par(pingpong_par(n))),
    local("pingpong-spawned", "round trip", 1, |n| spawned(pingpong_spawned(n))),
    local("choice-ready-par", "choice", 1, |n| in_par(choice_ready_par(n))),
    local("choice-ready-spawned", "choice", 1, |n| spawned(choice_ready_spawned(n))),
    local("choice-waits-par", "choice", 1, |n| in_par(choice_waits_par(None, n))),
    local("choice-waits-spawned", "choice", 1, |n| spawned(choice_waits_spawned(n))),
    // Over channels with a queue: shared, buffered or bounded ones.
    local("choice-fifo-waits-par", "choice", 1, |n| in_par(choice_waits_par(Some(fifo(1)), n))),
    // Equal bounds: the cost of a value does not depend on how many receivers wait for it.
    local("crowd-1000-par", "value", 1, |n| in_par(crowd_par(1_000, n))),
    local("crowd-20000-par", "value", 1, |n| in_par(crowd_par(20_000, n))),
    local("fan-in-1000-par", "value", 1, |n| in_par(fan_in_par(1_000, n))),
    parked("parked-par", parked_par),
    parked("parked-spawned", parked_spawned),
    parked("parked-mailbox", parked_mailbox),
    // Of two processes, in both directions.
    parked("parked-links", parked_links),
    local("process", "process", 1, |n| spawned(processes(n))),
    local("post", "message", 1, |n| spawned(posts(n))),
    // The mailbox of the caller is empty, or has 10^5 messages that no call is about.
    local("server-call", "call", 1, |n| spawned(server_calls(0, n))),
    local("server-call-unread", "call", 1, |n| spawned(server_calls(UNREAD, n))),
    // A question and its answer by mailboxes, with a mark.
    local("asked", "question", 1, |n| spawned(asked(0, n))),
    local("asked-unread", "question", 1, |n| spawned(asked(UNREAD, n))),
    between("remote-8-bytes", "round trip", 5.0, |n| spawned(remote(n))),
    // Its places for replies are found by random numbers: trees of these take more or less memory.
    between("remote-call", "call", 10.0, |n| spawned(remote_calls(n))),
    #[cfg(feature = "link")]
    between("link-8-bytes", "round trip", 5.0, |n| spawned(link(n))),
];

/// The program of this name.
pub(crate) fn find(name: &str) -> Result<&'static Program, String> {
    let unknown = || {
        let names: Vec<_> = ALL.iter().map(|program| program.name).collect();
        format!("there is no program `{name}`; there are {}", names.join(", "))
    };
    ALL.iter().find(|program| program.name == name).ok_or_else(unknown)
}

impl Program {
    /// The allocations of a run of `n`; for parked processes, the bytes that they hold.
    pub(crate) fn run(&self, n: u64) -> Allocated {
        let before = HEAP.0.allocated();
        (self.run)(n);
        let all = HEAP.0.allocated();
        let bytes =
            if self.name.starts_with("parked") { PARKED.get().cast_unsigned() } else { all.bytes - before.bytes };
        Allocated { calls: all.calls - before.calls, bytes }
    }
}

/// Polls `program` until it is done. It runs without a runtime: a `par!` that yields is polled again at once.
fn in_par(program: impl Future<Output = ()>) {
    let mut program = pin!(program);
    let mut cx = Context::from_waker(Waker::noop());
    while program.as_mut().poll(&mut cx).is_pending() {}
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("the system gives what a runtime needs")
}

/// Runs `program` as a task of a runtime with only this thread.
fn spawned(program: impl Future<Output = ()> + Send + 'static) {
    let runtime = runtime();
    runtime.block_on(async { tokio::spawn(program).await }).expect("it does not panic");
}

/// Starts a process that nothing waits for.
fn fork(process: impl Future<Output = ()> + Send + 'static) {
    drop(dunlin::spawn(process));
}

// ---- processes. They end when one of their channels has ended, so the end of one process ends all.

async fn copy<T>(mut input: Receiver<T>, mut output: Sender<T>) {
    while let Ok(value) = input.recv().await {
        if output.send(value).await.is_err() {
            return;
        }
    }
}

async fn prefix(mut input: Receiver<u64>, mut output: Sender<u64>) {
    if output.send(0).await.is_err() {
        return;
    }
    while let Ok(value) = input.recv().await {
        if output.send(value).await.is_err() {
            return;
        }
    }
}

async fn delta(mut input: Receiver<u64>, mut first: Sender<u64>, mut second: Sender<u64>) {
    while let Ok(value) = input.recv().await {
        if first.send(value).await.is_err() || second.send(value).await.is_err() {
            return;
        }
    }
}

async fn successor(mut input: Receiver<u64>, mut output: Sender<u64>) {
    while let Ok(value) = input.recv().await {
        if output.send(value + 1).await.is_err() {
            return;
        }
    }
}

async fn consumer(mut input: Receiver<u64>, n: u64) {
    for expected in 0..n {
        assert_eq!(input.recv().await.ok(), Some(expected));
    }
}

async fn ping(mut there: Sender<u64>, mut back: Receiver<u64>, n: u64) {
    for value in 0..n {
        there.send(value).await.expect("the other process outlives this one");
        assert_eq!(back.recv().await.ok(), Some(value));
    }
}

async fn eager_writer(mut event: Sender<u64>) {
    let mut value = 0;
    while event.send(value).await.is_ok() {
        value += 1;
    }
}

async fn choose(events: &mut [Receiver<u64>; 8]) -> Option<u64> {
    let [a, b, c, d, e, f, g, h] = events;
    alt! {
        v = a.recv() => v.ok(),
        v = b.recv() => v.ok(),
        v = c.recv() => v.ok(),
        v = d.recv() => v.ok(),
        v = e.recv() => v.ok(),
        v = f.recv() => v.ok(),
        v = g.recv() => v.ok(),
        v = h.recv() => v.ok(),
    }
}

async fn reader_of_any(mut events: [Receiver<u64>; 8], n: u64) {
    for _ in 0..n {
        choose(&mut events).await.expect("the writers outlive the reader");
    }
}

/// Sends one event when it has the turn, then passes the turn on, so that the reader waits each time.
async fn writer_in_turn(first: bool, mut mine: Receiver<u64>, mut event: Sender<u64>, mut next: Sender<u64>) {
    let mut turn = if first { Some(0) } else { mine.recv().await.ok() };
    while let Some(value) = turn {
        if event.send(value).await.is_err() || next.send(value + 1).await.is_err() {
            return;
        }
        turn = mine.recv().await.ok();
    }
}

async fn reader_of_turns(mut events: [Receiver<u64>; 8], n: u64) {
    for expected in 0..n {
        assert_eq!(choose(&mut events).await, Some(expected));
    }
}

// ---- programs in one `par!`, and of spawned processes

async fn commstime_par(n: u64) {
    let (to_delta, from_prefix) = channel();
    let (to_successor, from_delta) = channel();
    let (to_prefix, from_successor) = channel();
    let (to_consumer, counted) = channel();
    par!(
        prefix(from_successor, to_delta),
        delta(from_prefix, to_successor, to_consumer),
        successor(from_delta, to_prefix),
        consumer(counted, n),
    );
}

async fn commstime_spawned(n: u64) {
    let (to_delta, from_prefix) = channel();
    let (to_successor, from_delta) = channel();
    let (to_prefix, from_successor) = channel();
    let (to_consumer, counted) = channel();
    fork(prefix(from_successor, to_delta));
    fork(delta(from_prefix, to_successor, to_consumer));
    fork(successor(from_delta, to_prefix));
    consumer(counted, n).await;
}

async fn pingpong_par(n: u64) {
    let (there, from_ping) = channel();
    let (to_ping, back) = channel();
    par!(copy(from_ping, to_ping), ping(there, back, n));
}

async fn pingpong_spawned(n: u64) {
    let (there, from_ping) = channel();
    let (to_ping, back) = channel();
    fork(copy(from_ping, to_ping));
    ping(there, back, n).await;
}

/// The processes of a choice. One type, so that all of them can be branches of one flat `Par`.
enum Party {
    EagerWriter(Sender<u64>),
    WriterInTurn { first: bool, mine: Receiver<u64>, event: Sender<u64>, next: Sender<u64> },
    ReaderOfAny([Receiver<u64>; 8], u64),
    ReaderOfTurns([Receiver<u64>; 8], u64),
}

impl Party {
    async fn run(self) {
        match self {
            Self::EagerWriter(event) => eager_writer(event).await,
            Self::WriterInTurn { first, mine, event, next } => writer_in_turn(first, mine, event, next).await,
            Self::ReaderOfAny(events, n) => reader_of_any(events, n).await,
            Self::ReaderOfTurns(events, n) => reader_of_turns(events, n).await,
        }
    }
}

/// The writers, and the receivers of their events.
fn eager_writers() -> (Vec<Party>, [Receiver<u64>; 8]) {
    let (writers, events): (Vec<_>, Vec<_>) = (0..8).map(|_| channel()).unzip();
    (writers.into_iter().map(Party::EagerWriter).collect(), events.try_into().expect("there are eight"))
}

/// The channels of the events have this policy.
fn writers_in_turn(policy: Option<&Policy>) -> (Vec<Party>, [Receiver<u64>; 8]) {
    let (writers, events): (Vec<_>, Vec<_>) = (0..8).map(|_| channel()).unzip();
    // Channels made with the policy would keep the compiler from inlining `channel` in the other programs.
    policy.into_iter().for_each(|policy| events.iter().for_each(|rx: &Receiver<u64>| assert!(rx.set_policy(policy))));
    let (mut turns, mine): (Vec<_>, Vec<_>) = (0..8).map(|_| channel()).unzip();
    // Each writer sends to the turn channel of the next one.
    turns.rotate_left(1);
    let parties = mine.into_iter().zip(writers).zip(turns).enumerate();
    let parties = parties.map(|(i, ((mine, event), next))| Party::WriterInTurn { first: i == 0, mine, event, next });
    (parties.collect(), events.try_into().expect("there are eight"))
}

async fn choice_ready_par(n: u64) {
    let (writers, events) = eager_writers();
    writers.into_iter().chain([Party::ReaderOfAny(events, n)]).map(Party::run).collect::<Par<_>>().await;
}

async fn choice_ready_spawned(n: u64) {
    let (writers, events) = eager_writers();
    writers.into_iter().for_each(|writer| fork(writer.run()));
    reader_of_any(events, n).await;
}

async fn choice_waits_par(policy: Option<Policy>, n: u64) {
    let (writers, events) = writers_in_turn(policy.as_ref());
    writers.into_iter().chain([Party::ReaderOfTurns(events, n)]).map(Party::run).collect::<Par<_>>().await;
}

async fn choice_waits_spawned(n: u64) {
    let (writers, events) = writers_in_turn(None);
    writers.into_iter().for_each(|writer| fork(writer.run()));
    reader_of_turns(events, n).await;
}

// ---- many receivers that wait at one shared end

async fn crowd_par(receivers: u64, n: u64) {
    let (mut tx, rx) = channel();
    let rx = rx.share();
    let crowd = (0..receivers).map(|_| rx.clone()).map(async |mut rx| while rx.recv().await.is_ok() {});
    let crowd = crowd.collect::<Par<_>>();
    drop(rx);
    par!(crowd, async move {
        for value in 0..n {
            tx.send(value).await.expect("the receivers outlive the sender");
        }
    });
}

/// Many senders that wait at one shared end.
async fn fan_in_par(senders: u64, n: u64) {
    let (tx, mut rx) = channel();
    let tx = tx.share();
    let crowd = (0..senders).map(|_| tx.clone()).map(async |mut tx| while tx.send(0_u64).await.is_ok() {});
    let crowd = crowd.collect::<Par<_>>();
    drop(tx);
    par!(crowd, async move {
        for _ in 0..n {
            rx.recv().await.expect("the senders outlive the receiver");
        }
    });
}

// ---- parked processes, each with its channel

thread_local! {
    /// The bytes that parked processes held when all of them had been parked.
    static PARKED: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// Places for the other ends of `n` channels. They are not part of a parked process.
fn places(n: u64) -> Vec<Option<Sender<u64>>> {
    (0..n).map(|_| None).collect()
}

fn parked_par(n: u64) {
    let mut ends = places(n);
    let before = HEAP.0.held();
    let processes = ends.iter_mut().map(|end| {
        let (tx, mut rx) = channel::<u64>();
        *end = Some(tx);
        async move { rx.recv().await }
    });
    let mut all = pin!(processes.collect::<Par<_>>());
    poll_all(all.as_mut(), n);
    PARKED.set(HEAP.0.held() - before);
    // The ends live until here; otherwise the processes would have ended instead of waiting.
    drop(ends);
}

/// A `Par` with many branches yields before all of them have run once.
fn poll_all<F: Future>(mut all: Pin<&mut Par<F>>, n: u64) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..=n / 1_000 {
        assert!(matches!(all.as_mut().poll(&mut cx), Poll::Pending), "nothing is sent to the parked processes");
    }
}

fn parked_spawned(n: u64) {
    let runtime = runtime();
    runtime.block_on(async {
        let mut ends = places(n);
        let before = HEAP.0.held();
        for end in &mut ends {
            let (tx, mut rx) = channel::<u64>();
            *end = Some(tx);
            fork(async move { drop(rx.recv().await) });
            // The process parks before the next one is spawned, so the runtime's list of ready tasks does not
            // grow.
            tokio::task::yield_now().await;
        }
        PARKED.set(HEAP.0.held() - before);
    });
}

fn parked_mailbox(n: u64) {
    runtime().block_on(async {
        let mut addresses: Vec<_> = (0..n).map(|_| None).collect();
        let before = HEAP.0.held();
        for place in &mut addresses {
            let (address, mut mailbox) = mailbox::<u64>();
            *place = Some(address);
            fork(async move { mailbox.recv().await.map(drop).unwrap_or_default() });
            tokio::task::yield_now().await;
        }
        PARKED.set(HEAP.0.held() - before);
    });
}

/// The bytes are those of the links alone.
fn parked_links(n: u64) {
    let chain = async move {
        let mut parked = Vec::new();
        for _ in 0..=n {
            parked.push(dunlin::spawn(std::future::pending::<()>()));
            tokio::task::yield_now().await;
        }
        let before = HEAP.0.held();
        for pair in parked.windows(2) {
            let (one, other) = (pair[0].pid(), pair[1].pid());
            let linked = dunlin::link(one, other).and(dunlin::link(other, one));
            assert_eq!(linked, Ok(true));
        }
        PARKED.set(HEAP.0.held() - before);
    };
    // Only a process can link.
    runtime().block_on(async { dunlin::spawn(chain).await }).expect("it does not panic");
}

// ---- processes with mailboxes, and servers

async fn processes(n: u64) {
    for _ in 0..n {
        dunlin::spawn(async {}).await.expect("it ends normally");
    }
}

async fn posts(n: u64) {
    let (address, mut mailbox) = mailbox();
    let receiver = dunlin::spawn(async move {
        for expected in 0..n {
            assert_eq!(mailbox.recv().await, Ok(expected));
        }
    });
    for number in 0..n {
        address.send(number).expect("the receiver waits for all");
    }
    receiver.await.expect("it does not panic");
}

struct Successor;

impl Server for Successor {
    type Call = u64;
    type Reply = u64;
    type Cast = ();

    async fn call(&mut self, n: u64) -> dunlin::Result<u64> {
        Ok(n + 1)
    }
}

/// How many messages a mailbox has that nothing receives.
const UNREAD: u64 = 100_000;

/// A mailbox with so many messages, which the receiver has seen. (The program `post` alone has mailboxes of
/// its type, so that the compiler treats them as it does in a program of users.)
fn unread(messages: u64) -> (Address<i64>, Mailbox<i64>) {
    let (address, mut mailbox) = mailbox();
    for _ in 0..messages {
        address.send(-1).expect("the mailbox is open");
    }
    assert_eq!(mailbox.len() as u64, messages);
    (address, mailbox)
}

async fn server_calls(messages: u64, n: u64) {
    let client = dunlin::spawn(async move {
        let (_, mut mailbox) = unread(messages);
        let mut server = Successor.start();
        for number in 0..n {
            assert_eq!(server.call(number).await, Ok(number + 1));
        }
        assert_eq!(mailbox.len() as u64, messages);
    });
    client.await.expect("it does not panic");
}

/// Another process answers. The mark lets the receive begin behind what was there before the question.
async fn asked(messages: u64, n: u64) {
    let client = dunlin::spawn(async move {
        let (own, mut mailbox) = unread(messages);
        let (questions, mut asked) = dunlin::mailbox::<i64>();
        fork(async move {
            while let Ok(number) = asked.recv().await {
                own.send(number + 1).expect("the mailbox is open");
            }
        });
        for number in 0..n as i64 {
            let mut answer = mailbox.mark();
            questions.send(number).expect("the other process waits");
            assert_eq!(answer.recv_if(|answer| *answer == number + 1).await, Ok(number + 1));
        }
    });
    client.await.expect("it does not panic");
}

// ---- two nodes

/// Round trips between two nodes, connected over memory.
async fn remote(n: u64) {
    let (here, elsewhere) = (node().await, node().await);
    let declared = "the name is free";
    let there = here.sender::<Bytes>("there").await.expect(declared);
    let back = here.receiver::<Bytes>("back").await.expect(declared);
    let input = elsewhere.receiver::<Bytes>("there").await.expect(declared);
    let output = elsewhere.sender::<Bytes>("back").await.expect(declared);
    fork(copy(input, output));
    round_trips(there, back, n).await;
}

async fn node() -> Node {
    let long = Duration::from_secs(3600);
    let node = Node::builder().app("dunlin-counts").no_config().names("memory:names").listen("memory:");
    // The nodes send nothing because of elapsed time, which differs between runs.
    node.heartbeat(long).grace(2 * long).join().await.expect("memory has room for two nodes")
}

#[derive(Bundle)]
struct Counter {
    // The other programs use no channels of this type: each has the code that it had without this one.
    next: Call<u32, u32>,
}

/// Calls of a server on another node.
async fn remote_calls(n: u64) {
    let (here, elsewhere) = (node().await, node().await);
    let declared = "the name is free";
    let mut server = elsewhere.server::<Counter>("counter").await.expect(declared);
    let mut client = here.client::<Counter>("counter").await.expect(declared);
    fork(async move {
        while let Ok(request) = server.next.accept().await {
            let next = *request + 1;
            request.reply(next).expect("the caller waits");
        }
    });
    for number in 0..n as u32 {
        assert_eq!(client.next.call(number).await.expect("the server is here"), number + 1);
    }
}

/// The same between two links.
#[cfg(feature = "link")]
async fn link(n: u64) {
    use dunlin::node::link::{Link, LinkConfig};

    let [here, elsewhere] = [LinkConfig::default(); 2].map(Link::new);
    let (socket, other) = tokio::io::duplex(64 << 10);
    tokio::spawn(here.serve(socket));
    tokio::spawn(elsewhere.serve(other));
    fork(copy(elsewhere.receiver::<Bytes>(1), elsewhere.sender::<Bytes>(2)));
    round_trips(here.sender(1), here.receiver(2), n).await;
}

async fn round_trips(mut there: Sender<Bytes>, mut back: Receiver<Bytes>, n: u64) {
    let mut value = Bytes::from_static(b"8 bytes.");
    for _ in 0..n {
        there.send(value).await.expect("the other node is here");
        value = back.recv().await.expect("the other node is here");
    }
    assert_eq!(&*value, b"8 bytes.");
}
