//! Functions that are started at another node, over connections that are cut, parted and lost.

use std::sync::atomic::{AtomicU32, Ordering};

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::supervisor::Child;
use dunlin::{Address, StartError, mailbox, monitor};

use crate::starts::{Answer, Start, Starts, name_of};

/// How many seeds each test has.
const SEEDS: u64 = 100;

/// Logs that it runs, and returns its number.
#[dunlin::remote]
async fn run(n: u32, log: Address<u32>) -> u32 {
    let _ = log.send(n);
    n
}

/// Logs that it runs, and runs for longer than a connection that is parted stands.
#[dunlin::remote]
async fn stay(n: u32, log: Address<u32>) {
    let _ = log.send(n);
    sleep(Duration::from_secs(50)).await;
}

/// Cuts or parts the two nodes, for less than the grace period.
async fn disturb(sim: &Sim, here: &Node, there: &Node) {
    match sim.below(3) {
        0 => sim.cut(here, there),
        1 => {
            sim.part(here, there);
            sleep(Duration::from_millis(sim.below(3000))).await;
            sim.heal(here, there);
            // Otherwise several of these may together exceed the grace period.
            sleep(Duration::from_secs(10)).await;
        }
        _ => sleep(Duration::from_millis(sim.below(30))).await,
    }
}

/// A connection that resumes says nothing: each function runs once, before its output is there.
#[test]
fn functions_over_cut_sockets_run_once() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("remote").await?, Node::join("remote").await?);
            let _offer = there.offer("worker").function::<run>().await?;
            let (address, mut log) = mailbox::<u32>();
            let starter = here.clone();
            let starting = spawn(async move {
                for n in 0..10 {
                    let process = starter.spawn_on("worker", run(n, address.clone())).await?;
                    assert_eq!(process.await?, n);
                    // It has been logged before.
                    assert_eq!((log.len(), log.recv().await?), (1, n));
                }
                Ok::<_, Error>(())
            });
            while !starting.is_finished() {
                disturb(&sim, &here, &there).await;
            }
            starting.await?
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

/// Whatever is lost: a function runs at most once, and not at all if the start says so. A linked process and
/// its starter end.
#[test]
fn functions_over_lost_connections_run_at_most_once() {
    let (mut outputs, mut lost, mut unstarted) = (0, 0, 0);
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("remote").await?, Node::join("remote").await?);
            let _offer = there.offer("worker").function::<run>().function::<stay>().await?;
            let mut log = there.mailbox::<u32>("log").await?;
            let address = here.address::<u32>("log").await?;
            let mut ends = Vec::new();
            for n in 0..6 {
                let (starter, address) = (here.clone(), address.clone());
                let started = spawn(async move {
                    let patience = Duration::from_secs(200);
                    if n % 2 == 0 {
                        let process = starter.spawn_on("worker", run(n, address)).within(patience).await;
                        return process.map_err(Lack::of)?.await.map_err(Lack::Exit);
                    }
                    let process = starter.spawn_on("worker", stay(n, address)).within(patience).linked().await;
                    process.map_err(Lack::of)?.await.map_err(Lack::Exit)?;
                    Ok::<_, Lack>(n)
                });
                sleep(Duration::from_millis(sim.below(80))).await;
                sim.part(&here, &there);
                sleep(Duration::from_secs(60)).await;
                sim.heal(&here, &there);
                ends.push((n, started.await));
            }
            // All processes that wait for their confirmation, and all others, have ended by then.
            sleep(Duration::from_secs(120)).await;
            let mut ran = Vec::new();
            while !log.is_empty() {
                ran.push(log.recv().await?);
            }
            Ok::<_, Error>((ends, ran))
        });
        let (ends, ran) = result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
        for (n, end) in ends {
            let times = ran.iter().filter(|ran| **ran == n).count();
            assert!(times <= 1, "{n} ran {times} times with seed {seed}");
            match end {
                Ok(Ok(_)) => {
                    assert_eq!(times, 1, "{n} with seed {seed}");
                    outputs += 1;
                }
                Ok(Err(Lack::Start)) => {
                    assert_eq!(times, 0, "{n} with seed {seed}");
                    unstarted += 1;
                }
                Ok(Err(Lack::Exit(exit))) | Err(exit) => {
                    assert!(matches!(exit.reason, ExitReason::NodeLost(_)), "{n} with seed {seed}: {exit}");
                    lost += 1;
                }
            }
        }
    }
    assert!(outputs > 0 && lost > 0 && unstarted > 0, "{outputs} outputs, {lost} lost, {unstarted} not started");
}

/// Why there is no output.
#[derive(Debug)]
enum Lack {
    Start,
    Exit(Exit),
}

impl Lack {
    fn of<F: dunlin::RemoteFunction>(_: StartError<F>) -> Self {
        Self::Start
    }
}

/// A process that is not confirmed does not run its function, and ends after a minute.
#[test]
fn start_without_a_confirmation_runs_nothing() {
    let sim = Sim::new(0);
    let result = sim.run(async {
        let (here, there) = (Node::join("remote").await?, Node::join("remote").await?);
        let _offer = there.offer("worker").function::<run>().await?;
        let mut client = here.client::<Starts<run>>(&name_of::<run>("worker")).await?;
        let (address, mut log) = mailbox::<u32>();
        for is_confirmed in [false, true] {
            let (output, mut outputs) = channel_with(fifo(1));
            let start = Start { arguments: (7, address.clone()), output };
            let Answer::Started(pid, confirm) = client.call(start).await? else { panic!("it was refused") };
            let began = sim.now();
            let down = monitor(pid);
            if is_confirmed {
                confirm.send(())?;
            }
            drop(confirm);
            let exit = down.await;
            if is_confirmed {
                assert_eq!(exit.reason, ExitReason::Normal);
                assert_eq!((log.recv().await?, outputs.recv().await?), (7, 7));
            } else {
                let text = "the node that has started it was lost before it began";
                assert_eq!(exit.reason, ExitReason::Error(text.into()));
                // It has begun to wait before this process knew of it, and the news of its end takes a while
                // too.
                assert_eq!((sim.now() - began).as_secs_f64().round(), 60.0);
                assert!(log.is_empty());
                assert_eq!(outputs.recv().await, Err(RecvError::Closed));
            }
        }
        Ok::<_, Error>(())
    });
    result.unwrap();
}

/// How many processes work. (One simulation runs at a time.)
static WORKING: AtomicU32 = AtomicU32::new(0);

struct Working;

impl Working {
    fn begin() -> Self {
        WORKING.fetch_add(1, Ordering::Relaxed);
        Self
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Logs its number, and works until it is ended, or for as many rounds as it was told.
#[dunlin::remote]
async fn work(n: u32, log: Address<u32>, rounds: u32) -> Result<(), String> {
    let _working = Working::begin();
    let _ = log.send(n);
    for _ in 0..rounds {
        sleep(Duration::from_secs(1)).await;
    }
    Err(format!("{n} has worked"))
}

/// A child on another node ends with its process here, and that one with the child, also if the connection is
/// lost; the supervisor starts it again.
#[test]
fn children_on_other_nodes_are_supervised() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("remote").await?, Node::join("remote").await?);
            let _offer = there.offer("worker").function::<work>().await?;
            let mut log = there.mailbox::<u32>("log").await?;
            let address = here.address::<u32>("log").await?;
            let count = AtomicU32::new(0);
            let child = Child::remote("work", &here, "worker", move || {
                let n = count.fetch_add(1, Ordering::Relaxed);
                // The first fails by itself.
                work(n, address.clone(), if n == 0 { 1 } else { u32::MAX })
            });
            let tree = Supervisor::one_for_one().limit(100, Duration::from_secs(1)).with(child).spawn();
            assert_eq!((log.recv().await?, log.recv().await?), (0, 1));
            assert!(tree.tree().to_string().contains("restarted once"), "{}", tree.tree());
            sleep(Duration::from_millis(sim.below(100))).await;
            sim.part(&here, &there);
            sleep(Duration::from_secs(60)).await;
            sim.heal(&here, &there);
            // (Starts that were lost in between have numbers, too.)
            assert!(log.recv().await? > 1);
            // What was cut off has ended, so this one runs alone.
            assert_eq!(WORKING.load(Ordering::Relaxed), 1);
            tree.shutdown();
            tree.await?.map_err(Error::other)?;
            // Its end follows that of its process here.
            sleep(Duration::from_secs(1)).await;
            assert_eq!(WORKING.load(Ordering::Relaxed), 0);
            Ok::<_, Error>(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}
