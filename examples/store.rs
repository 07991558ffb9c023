//! A key-value store on three nodes, supervised. Each node is a program of its own; a fourth starts them, has
//! the supervisors, and loads the store. Meanwhile workers, supervisors and nodes are killed at random.
//!
//! ```text
//!  supervisor ── supervisor ─┬─ "store-0" ═══ linked ═══ shard      (program 0)
//!                            ├─ "store-1" ═══ linked ═══ shard      (program 1)
//!                            └─ "store-2" ═══ linked ═══ shard      (program 2)
//!                                                          ▲
//!  clients ───────────────────── calls ────────────────────┘
//! ```
//!
//! A shard that dies loses what it had stored: its successor is a new generation. Each shard posts the
//! requests that it applies to a ledger, which outlives it. The example checks that each call ends, with an
//! answer or a typed error; that no request is applied twice, be it by two generations; and that none is
//! applied that a call has reported as not taken.
//!
//! Run it: `cargo run --release --example store [seconds [seed]]`. The gate runs it for 5 s. A run of 60 s
//! has to kill at least 200 of them:
//!
//! ```text
//! cargo run --release --example store 60
//! ```

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child as Program, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use dunlin::node::{NameError, NodeError};
use dunlin::prelude::*;
use dunlin::supervisor::Child;
use dunlin::{Address, Mailbox, mailbox};
use serde::{Deserialize, Serialize};

const SHARDS: usize = 3;

/// How many clients each shard has.
const CLIENTS: usize = 4;

/// How many have to be killed in [`LONG`].
const KILLED_MIN: u64 = 200;
const LONG: Duration = Duration::from_secs(60);

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request: adds a number to what is stored under a key. No two have the same id.
#[derive(Debug, Serialize, Deserialize)]
struct Add {
    id: u64,
    key: String,
    number: u64,
}

/// What a shard answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// What is stored there now, and the place of the request among all that the shard has applied.
    Added { sum: u64, place: u64 },
    /// A request of this id was applied before.
    Twice,
}

/// How a shard is reached: its process, which is also its generation, and a client's end.
type Announced = (Pid, Caller<Add, Answer>);

/// The ids of the requests that were applied. `None`: no more follow.
type Ledger = Address<Option<u64>>;

#[dunlin::remote]
async fn shard(mut announce: Sender<Announced>, ledger: Ledger) -> Result<(), String> {
    let (caller, mut calls) = call();
    let own = Pid::current().ok_or("a shard is a process")?;
    announce.send((own, caller)).await.map_err(|error| error.to_string())?;
    let (mut stored, mut applied) = (BTreeMap::<String, u64>::new(), BTreeSet::new());
    loop {
        let (request, reply) = calls.accept().await.map_err(|error| error.to_string())?.split();
        // Before the answer: the shard may be killed between the two.
        ledger.offer(Some(request.id)).await.map_err(|error| error.to_string())?;
        let answer = if applied.insert(request.id) {
            let sum = stored.entry(request.key).or_default();
            *sum += request.number;
            Answer::Added { sum: *sum, place: applied.len() as u64 }
        } else {
            Answer::Twice
        };
        // The caller may be gone.
        let _ = reply.send(answer);
    }
}

#[dunlin::main]
async fn main() -> Result {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("--node") => serve(&arguments.next().unwrap_or_default(), &arguments.next().unwrap_or_default()).await,
        seconds => {
            let seconds = seconds.and_then(|text| text.parse().ok()).unwrap_or(5);
            let seed = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(1);
            run(Duration::from_secs(seconds), seed).await
        }
    }
}

/// In a program of the store: offers the shard, until the program is killed or its input ends.
async fn serve(names: &str, offer: &str) -> Result {
    let node = Node::builder().app("store").names(names).serve_names(false).join().await?;
    let _offer = loop {
        match node.offer(offer).function::<shard>().await {
            // The name service has not noticed yet that the program before this one was killed.
            Err(NameError::Refused { .. }) => sleep(Duration::from_millis(20)).await,
            offer => break offer?,
        }
    };
    println!("ready");
    blocking(|_| std::io::stdin().read(&mut [0])).await??;
    leave(node).await
}

/// The program of one node of the store. It is killed when this is dropped.
struct Running(Program);

impl Running {
    fn start(names: &str, shard: usize) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--node", names, &offer(shard)]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn()?))
    }

    /// Waits until it has made its offer.
    fn wait_until_ready(&mut self) -> Result {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().expect("it is piped")).read_line(&mut line)?;
        Ok(())
    }
}

impl Running {
    /// Lets it leave, and waits until it has ended.
    fn close(mut self) -> Result {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(Error::other(format!("a node of the store ended with {status}"))) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn offer(shard: usize) -> String {
    format!("store-{shard}")
}

/// The present process of each shard, and a client's end for it.
type Table = Arc<Mutex<Vec<Option<(Pid, Shared<Caller<Add, Answer>>)>>>>;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic happens under this lock")
}

/// A child that runs this shard at its node.
fn child(node: &Node, table: &Table, ledger: &Ledger, index: usize) -> Child {
    let (table, ledger) = (table.clone(), ledger.clone());
    Child::remote(&offer(index), node, &offer(index), move || {
        let (announce, mut announced) = channel();
        let table = table.clone();
        spawn(async move {
            // Unless it dies before.
            if let Ok((pid, caller)) = announced.recv().await {
                locked(&table)[index] = Some((pid, Caller::share(caller)));
            }
        });
        shard(announce, ledger.clone())
    })
}

/// How the calls of one generation of a shard have ended.
#[derive(Default)]
struct Calls {
    begun: u64,
    /// The places of the requests that were answered.
    places: Vec<u64>,
    not_taken: Vec<u64>,
    /// Nobody knows whether these were applied.
    undecided: u64,
    twice: u64,
}

/// The calls to each generation.
type Log = BTreeMap<Pid, Calls>;

/// Calls one shard until it is told to stop. Returns how the calls have ended.
async fn load(table: Table, shard: usize, client: u64, stop: Arc<AtomicBool>) -> Log {
    let mut log = Log::new();
    let mut id = client << 40;
    while !stop.load(Ordering::Relaxed) {
        let present = locked(&table)[shard].clone();
        let Some((generation, mut caller)) = present else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        id += 1;
        let request = Add { id, key: format!("key-{}", id % 10), number: 1 };
        log.entry(generation).or_default().begun += 1;
        let ended = caller.call(request).within(PATIENCE).await;
        let calls = log.entry(generation).or_default();
        let is_gone = ended.is_err();
        match ended {
            Ok(Answer::Added { place, .. }) => calls.places.push(place),
            Ok(Answer::Twice) => calls.twice += 1,
            Err(CallError::NotTaken { .. }) => calls.not_taken.push(id),
            Err(CallError::NoReply(_) | CallError::Unknown { .. }) => calls.undecided += 1,
        }
        if is_gone {
            // The successor has not announced itself yet.
            sleep(Duration::from_millis(5)).await;
        }
    }
    log
}

/// How many were killed.
#[derive(Default)]
struct Killed {
    shards: u64,
    supervisors: u64,
    nodes: u64,
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }
}

async fn run(time: Duration, seed: u64) -> Result {
    println!("seed {seed}, {} s", time.as_secs());
    // The name service of this application alone: at a port that is free.
    let names = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let node = Node::builder().app("store").names(&names).join().await?;
    let mut programs = Vec::new();
    for index in 0..SHARDS {
        programs.push(Running::start(&names, index)?);
    }
    for program in &mut programs {
        program.wait_until_ready()?;
    }

    let table: Table = Arc::new(Mutex::new(vec![None; SHARDS]));
    // Without a limit: it is about the restarts.
    let (most, each) = (u32::MAX, Duration::from_secs(1));
    let (inner_node, inner_table) = (node.clone(), table.clone());
    let (ledger, entries) = mailbox();
    let inner_ledger = ledger.clone();
    let kept = spawn(keep(entries));
    let stores = (0..SHARDS).fold(Supervisor::one_for_one().limit(most, each), move |supervisor, index| {
        supervisor.with(child(&inner_node, &inner_table, &inner_ledger, index))
    });
    let tree =
        Supervisor::one_for_one().limit(most, each).with(Child::supervisor("stores", stores).permanent()).spawn();

    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..SHARDS * CLIENTS)
        .map(|client| spawn(load(table.clone(), client % SHARDS, client as u64, stop.clone())))
        .collect();

    let killed = kill_at_random(time, Random(seed), &names, &mut programs, &table, &tree).await?;
    // What was killed last comes back, and is used.
    sleep(Duration::from_secs(1)).await;
    stop.store(true, Ordering::Relaxed);
    let mut log = Log::new();
    for client in clients {
        for (generation, calls) in client.await? {
            let all = log.entry(generation).or_default();
            all.begun += calls.begun;
            all.places.extend(calls.places);
            all.not_taken.extend(calls.not_taken);
            all.undecided += calls.undecided;
            all.twice += calls.twice;
        }
    }
    print!("{}", tree.tree());
    let living = tree.tree().children.iter().flat_map(|child| &child.children).map(|tree| tree.children.len()).sum();
    tree.shutdown();
    tree.await?.map_err(Error::other)?;
    let Killed { shards, supervisors, nodes } = killed;
    println!("killed: {shards} shards, {supervisors} supervisors, {nodes} nodes");
    if time >= LONG && shards + supervisors + nodes < KILLED_MIN {
        return Err(Error::other(format!("fewer than {KILLED_MIN} were killed")));
    }
    ledger.send(None).map_err(|_| Error::other("the ledger is closed"))?;
    let (applied, twice) = kept.await?;
    if let Some(id) = twice {
        return Err(Error::other(format!("request {id} was applied twice")));
    }
    check(log, &applied, living)?;
    programs.into_iter().try_for_each(Running::close)?;
    leave(node).await
}

/// Keeps the ledger. Returns it, and a request that is in it twice.
async fn keep(mut entries: Mailbox<Option<u64>>) -> (HashSet<u64>, Option<u64>) {
    let (mut applied, mut twice) = (HashSet::new(), None);
    while let Ok(Some(id)) = entries.recv().await {
        if !applied.insert(id) {
            twice = Some(id);
        }
    }
    (applied, twice)
}

async fn leave(node: Node) -> Result {
    match node.leave().await {
        // Nodes that were killed acknowledge nothing.
        Err(Error::Node(NodeError::NotFlushed { .. })) => Ok(()),
        left => left,
    }
}

/// Kills something about ten times a second.
async fn kill_at_random(
    time: Duration,
    mut random: Random,
    names: &str,
    programs: &mut [Running],
    table: &Table,
    tree: &dunlin::supervisor::Supervision,
) -> Result<Killed> {
    let mut killed = Killed::default();
    let until = Instant::now() + time;
    while Instant::now() < until {
        sleep(Duration::from_millis(50 + random.below(100))).await;
        let index = random.below(SHARDS as u64) as usize;
        match random.below(10) {
            0 => {
                programs[index] = Running::start(names, index)?; // drops the old one, which kills it
                killed.nodes += 1;
            }
            1 => {
                if tree.tree().children[0].pid.is_some_and(Pid::kill) {
                    killed.supervisors += 1;
                }
            }
            _ => {
                // Taken, so that no generation is killed twice.
                let shard = locked(table)[index].take();
                if shard.is_some_and(|(pid, _)| pid.kill()) {
                    killed.shards += 1;
                }
            }
        }
    }
    Ok(killed)
}

/// Checks that all shards run, and that none has applied a request twice, or one that was not taken.
fn check(log: Log, applied: &HashSet<u64>, living: usize) -> Result {
    let (mut answered, mut not_taken, mut undecided, generations) = (0, 0, 0, log.len());
    for (generation, mut calls) in log {
        calls.places.sort_unstable();
        let answers = calls.places.len() as u64;
        let highest = calls.places.last().copied().unwrap_or(0);
        let is_doubled = calls.twice > 0 || calls.places.windows(2).any(|two| two[0] == two[1]);
        // Those before the highest place were answered, or nobody knows.
        let not_taken_here = calls.not_taken.len() as u64;
        let ended = answers + not_taken_here + calls.undecided + calls.twice;
        if is_doubled || highest > answers + calls.undecided || ended != calls.begun {
            return Err(Error::other(format!(
                "{generation} has applied {highest} requests of {}: {answers} were answered, {} were not taken, {} are \
                 undecided, {} came twice",
                calls.begun, not_taken_here, calls.undecided, calls.twice
            )));
        }
        if let Some(id) = calls.not_taken.iter().find(|id| applied.contains(id)) {
            return Err(Error::other(format!("{generation} has applied request {id}, which was not taken")));
        }
        answered += answers;
        not_taken += not_taken_here;
        undecided += calls.undecided;
    }
    println!("{answered} calls answered by {generations} generations; {not_taken} not taken, {undecided} undecided");
    println!("{} requests are in the ledger", applied.len());
    if living != SHARDS || answered == 0 {
        return Err(Error::other(format!("{living} of {SHARDS} shards run in the end")));
    }
    println!("no request was applied twice, and none that was not taken");
    std::io::stdout().flush()?;
    Ok(())
}
