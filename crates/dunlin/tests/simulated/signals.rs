//! Links, monitors, exits and kills between nodes over connections that are cut, parted and lost: each
//! monitor is told once, behind the messages of its process, and a connection that resumes tells nothing.

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Down, ExitReason, MonitorId, MonitorInto, Pid, exit, link, mailbox, monitor_into, unlink};
use serde::{Deserialize, Serialize};

/// How many seeds each test has.
const SEEDS: u64 = 100;

/// How many processes.
const WORKERS: u32 = 6;

#[derive(Debug, Serialize, Deserialize)]
enum Said {
    /// A worker has started.
    Started(u32, Pid),
    /// It works.
    Number(u32, u32),
}

#[derive(Debug)]
enum Msg {
    Said(Said),
    Down(Down),
}

impl From<Down> for Msg {
    fn from(down: Down) -> Self {
        Self::Down(down)
    }
}

/// Sends numbers until it ends, or is killed.
async fn work(own: u32, numbers: u32, to: Address<Said>, pause: Duration) -> Result {
    to.offer(Said::Started(own, Pid::current().unwrap())).await?;
    for n in 0..numbers {
        to.offer(Said::Number(own, n)).await?;
        sleep(pause).await;
    }
    exit(own.to_string()).await?;
    Ok(())
}

/// Passes on what workers say: a mailbox that receives downs is not portable.
async fn pass_on(mut from: Mailbox<Said>, to: Address<Msg>) -> Result {
    loop {
        to.send(Msg::Said(from.recv().await?))?;
    }
}

fn disturb(sim: &Sim, here: &Node, there: &Node) -> Option<Duration> {
    match sim.below(12) {
        0 => sim.cut(here, there),
        1 => {
            sim.part(here, there);
            return Some(Duration::from_millis(sim.below(3000)));
        }
        _ => {}
    }
    None
}

/// What the watching process knows of a worker.
struct Worker {
    pid: Pid,
    kept: Vec<MonitorInto>,
    told: usize,
}

/// Everything races: ends, kills, monitors made and dropped, links, cuts. In the end each kept monitor has
/// been told once, and no dropped one after that.
#[test]
fn each_monitor_is_told_once_over_cut_sockets() {
    let mut races = 0;
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("signals").await?, Node::join("signals").await?);
            let said = here.mailbox::<Said>("said").await?;
            let to = there.address::<Said>("said").await?;
            for own in 0..WORKERS {
                let (numbers, pause) = (sim.below(40) as u32, Duration::from_millis(sim.below(100)));
                spawn(work(own, numbers, to.clone(), pause));
            }
            let (address, mut me) = mailbox::<Msg>();
            spawn(pass_on(said, address));
            let mut workers: Vec<Worker> = Vec::new();
            let mut dropped: Vec<MonitorId> = Vec::new();
            let mut downs: Vec<MonitorId> = Vec::new();
            while (workers.len() as u32) < WORKERS || workers.iter().any(|worker| worker.told < worker.kept.len()) {
                if let Some(parted) = disturb(&sim, &here, &there) {
                    sleep(parted).await;
                    sim.heal(&here, &there);
                    sleep(Duration::from_secs(10)).await;
                }
                if !workers.is_empty() {
                    let at = sim.below(workers.len() as u64) as usize;
                    let worker = &mut workers[at];
                    match sim.below(6) {
                        0 if worker.kept.len() < 5 => worker.kept.push(monitor_into(worker.pid, &me)),
                        1 => {
                            let monitor = monitor_into(worker.pid, &me);
                            sleep(Duration::from_millis(sim.below(50))).await;
                            dropped.push(monitor.id());
                            drop(monitor);
                        }
                        2 if sim.below(8) == 0 => {
                            worker.pid.kill();
                        }
                        _ => {}
                    }
                }
                match me.recv().await? {
                    Msg::Said(Said::Started(_, pid)) => {
                        let kept = vec![monitor_into(pid, &me)];
                        workers.push(Worker { pid, kept, told: 0 });
                    }
                    Msg::Said(Said::Number(..)) => {}
                    Msg::Down(down) => {
                        let worker = workers.iter_mut().find(|worker| worker.pid == down.exit.pid).unwrap();
                        assert!(worker.kept.iter().any(|kept| kept.id() == down.monitor), "{down:?}");
                        assert!(!downs.contains(&down.monitor), "twice: {down:?}");
                        assert!(!matches!(down.exit.reason, ExitReason::NodeLost(_)), "{down:?}");
                        downs.push(down.monitor);
                        worker.told += 1;
                        races += u32::from(down.exit.reason == ExitReason::Killed);
                    }
                }
            }
            loop {
                alt! { biased;
                    said = me.recv() => assert!(matches!(said?, Msg::Said(_)), "a monitor is told twice"),
                    // Whatever was on its way has arrived by then.
                    () = sleep(Duration::from_secs(10)) => break,
                }
            }
            assert!(dropped.iter().all(|monitor| !downs.contains(monitor)));
            Ok::<_, Error>(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
    assert!(races > 0, "no worker was killed");
}

/// A down is behind all messages of its process.
#[test]
fn down_is_behind_the_messages_over_cut_sockets() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("signals").await?, Node::join("signals").await?);
            let mut said = here.mailbox::<Said>("said").await?;
            let to = there.address::<Said>("said").await?;
            let numbers = 1 + sim.below(60) as u32;
            spawn(work(1, numbers, to, Duration::from_millis(sim.below(30))));
            let Said::Started(_, pid) = said.recv().await? else { unreachable!() };
            let mut down = dunlin::monitor(pid);
            let mut next = 0;
            let exit = loop {
                if let Some(parted) = disturb(&sim, &here, &there) {
                    sleep(parted).await;
                    sim.heal(&here, &there);
                    sleep(Duration::from_secs(10)).await;
                }
                alt! { biased;
                    exit = &mut down => break exit,
                    said = said.recv() => {
                        assert!(matches!(said?, Said::Number(1, n) if n == next));
                        next += 1;
                    }
                }
            };
            // All of them are here when the down is. (The worker may have ended before it was watched.)
            let reason = ExitReason::Error("1".into());
            assert!([reason, ExitReason::NoSuchProcess].contains(&exit.reason), "{exit}");
            assert_eq!(next + said.len() as u32, numbers);
            Ok::<_, Error>(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

/// When a connection is lost, monitors and links are told so, once. Nothing of that life comes later, and the
/// processes, which live, can be reached in the next.
#[test]
fn lost_connection_is_told_once_and_the_next_life_starts_afresh() {
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("signals").await?, Node::join("signals").await?);
            let mut said = here.mailbox::<Said>("said").await?;
            let to = there.address::<Said>("said").await?;
            let worker = spawn(work(1, 1, to, Duration::from_secs(1000)));
            let Said::Started(_, pid) = said.recv().await? else { unreachable!() };
            let (_address, mut me) = mailbox::<Msg>();
            let monitors: Vec<_> = (0..1 + sim.below(4)).map(|_| monitor_into(pid, &me)).collect();
            let linked = spawn(async move {
                link(pid, Pid::current().unwrap()).unwrap();
                std::future::pending::<()>().await;
            });
            sleep(Duration::from_millis(sim.below(300))).await;
            sim.part(&here, &there);
            if sim.below(2) == 0 {
                // The request is lost with the connection, or waits for the next.
                drop(monitor_into(pid, &me));
            }
            for _ in &monitors {
                let Msg::Down(down) = me.recv().await? else { unreachable!() };
                assert!(matches!(down.exit.reason, ExitReason::NodeLost(_)), "{down:?}");
                assert_eq!(down.exit.pid, pid);
            }
            assert!(matches!(linked.await.unwrap_err().reason, ExitReason::NodeLost(_)));
            sleep(Duration::from_secs(40)).await;
            sim.heal(&here, &there);
            sleep(Duration::from_secs(10)).await;
            assert!(!worker.is_finished());
            let again = monitor_into(pid, &me);
            pid.kill();
            let Msg::Down(down) = me.recv().await? else { unreachable!() };
            assert_eq!((down.monitor, down.exit.reason), (again.id(), ExitReason::Killed));
            assert!(me.is_empty());
            Ok::<_, Error>(())
        });
        result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
}

/// Links made and ended while the source ends and sockets are cut: after `unlink` no exit of that link
/// arrives, and without it the exit does.
#[test]
fn unlink_is_final_over_cut_sockets() {
    let mut survived = 0;
    for seed in 0..SEEDS {
        let sim = Sim::new(seed);
        let result = sim.run(async {
            let (here, there) = (Node::join("signals").await?, Node::join("signals").await?);
            let mut said = here.mailbox::<Said>("said").await?;
            let to = there.address::<Said>("said").await?;
            spawn(work(1, 1, to, Duration::from_millis(sim.below(400))));
            let Said::Started(_, pid) = said.recv().await? else { unreachable!() };
            let unlinks = sim.below(2) == 0;
            let pause = Duration::from_millis(sim.below(400));
            let target = spawn(async move {
                let own = Pid::current().unwrap();
                link(pid, own).unwrap();
                sleep(pause).await;
                if unlinks {
                    // From here on nothing of the link arrives.
                    unlink(pid, own).unwrap();
                }
                sleep(Duration::from_secs(60)).await;
                unlinks
            });
            for _ in 0..4 {
                sim.cut(&here, &there);
                sleep(Duration::from_millis(sim.below(200))).await;
            }
            let result = match target.await {
                Ok(true) => 1,
                Ok(false) => panic!("the exit of the link is lost"),
                Err(exit) => {
                    let reason = ExitReason::Error("1".into());
                    assert!([reason, ExitReason::NoSuchProcess].contains(&exit.reason), "{exit}");
                    0
                }
            };
            Ok::<_, Error>(result)
        });
        survived += result.unwrap_or_else(|error| panic!("with seed {seed}: {error}"));
    }
    assert!(survived > 10, "{survived}");
}
