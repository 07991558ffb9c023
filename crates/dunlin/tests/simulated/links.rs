//! Links, monitors and posts under random schedules: order, and exactly once.

use std::collections::{BTreeMap, BTreeSet};

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{
    Address, Down, ExitReason, Mailbox, MonitorInto, Pid, exit, link, mailbox, monitor_into, receive, unlink,
};

use crate::random::Random;

enum Msg {
    Post(Pid, u32),
    Exit(Exit),
    Down(Down),
}

impl From<Exit> for Msg {
    fn from(exit: Exit) -> Self {
        Self::Exit(exit)
    }
}

impl From<Down> for Msg {
    fn from(down: Down) -> Self {
        Self::Down(down)
    }
}

/// Posts numbers until it ends, in one of several ways.
async fn worker(to: Address<Msg>, mut random: Random) -> Result {
    let own = Pid::current().expect("it was spawned");
    for n in 0..random.below(20) as u32 {
        to.send(Msg::Post(own, n))?;
        match random.below(4) {
            0 => sleep(Duration::from_millis(random.below(5))).await,
            1 => tokio_yield().await,
            _ => {}
        }
    }
    match random.below(4) {
        0 => panic!("no krill"),
        1 => match exit("enough").await? {},
        2 => std::future::pending().await,
        _ => Ok(()),
    }
}

/// Lets other processes run.
async fn tokio_yield() {
    let mut again = true;
    std::future::poll_fn(|cx| {
        if std::mem::take(&mut again) {
            cx.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    })
    .await;
}

/// What the collector knows of the workers.
#[derive(Default)]
struct Known {
    next: BTreeMap<Pid, u32>,
    /// Those whose end has been told.
    told: BTreeSet<Pid>,
    linked: BTreeSet<Pid>,
    monitors: Vec<MonitorInto>,
}

impl Known {
    fn hears(&mut self, message: Msg) {
        match message {
            Msg::Post(from, n) => {
                assert!(!self.told.contains(&from), "{from} has posted after its end was told");
                let next = self.next.entry(from).or_default();
                assert_eq!(n, *next, "posts of {from}");
                *next += 1;
            }
            Msg::Exit(exit) => {
                assert!(self.linked.remove(&exit.pid), "an exit without a link: {exit}");
                self.told.insert(exit.pid);
            }
            Msg::Down(down) => {
                let index = self.monitors.iter().position(|monitor| monitor.id() == down.monitor);
                let monitor = self.monitors.remove(index.expect("a down of a monitor that exists, once"));
                assert_eq!(monitor.pid(), down.exit.pid);
                self.told.insert(down.exit.pid);
            }
        }
    }
}

async fn collect(mut random: Random) -> Result {
    let own = Pid::current().expect("it was spawned");
    let (address, mut me): (_, Mailbox<Msg>) = mailbox();
    me.exits()?;
    let mut known = Known::default();
    let workers: Vec<Pid> = (0..6)
        .map(|_| {
            let seed = random.below(u64::MAX);
            spawn(worker(address.clone(), Random(seed))).pid()
        })
        .collect();
    for worker in &workers {
        link(*worker, own)?;
        known.linked.insert(*worker);
        for _ in 0..random.below(3) {
            known.monitors.push(monitor_into(*worker, &me));
        }
        if random.below(2) == 0 {
            // Among themselves, in rings too: an exit takes others along.
            link(*worker, workers[random.below(6) as usize])?;
        }
        if random.below(3) == 0 {
            tokio_yield().await;
        }
    }
    let victims: Vec<_> = (0..4).map(|_| (workers[random.below(6) as usize], random.below(30))).collect();
    let killer = spawn(async move {
        for (victim, after) in victims {
            sleep(Duration::from_millis(after)).await;
            victim.kill();
        }
    });
    loop {
        if random.below(20) == 0 {
            let worker = workers[random.below(6) as usize];
            unlink(worker, own)?;
            known.linked.remove(&worker);
        }
        if random.below(20) == 0 && !known.monitors.is_empty() {
            let index = random.below(known.monitors.len() as u64) as usize;
            drop(known.monitors.remove(index));
        }
        let is_quiet = receive!(me,
            message => {
                known.hears(message);
                false
            }
            after Duration::from_secs(1) => true,
        )?;
        if is_quiet {
            break;
        }
    }
    killer.await?;
    for worker in &workers {
        worker.kill();
    }
    while !known.linked.is_empty() || !known.monitors.is_empty() {
        known.hears(me.recv().within(Duration::from_secs(1)).await?);
    }
    Ok(())
}

#[test]
fn posts_exits_and_downs_keep_their_order_and_come_once() {
    let seeds = std::env::var("DUNLIN_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(500);
    // (The panics of the workers are silent.)
    let printing = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"no krill") {
            printing(info);
        }
    }));
    for seed in 0..seeds {
        let collected = Sim::new(seed).run(async move { spawn(collect(Random(seed))).await });
        assert!(matches!(collected, Ok(Ok(()))), "seed {seed}: {collected:?}");
    }
}

#[test]
fn an_exit_in_a_simulation_drops_the_guards_in_their_process() {
    struct Guard(std::sync::mpsc::Sender<Option<Pid>>);
    impl Drop for Guard {
        fn drop(&mut self) {
            let _ = self.0.send(Pid::current());
        }
    }
    Sim::new(0).run(async {
        let (dropped, in_process) = std::sync::mpsc::channel();
        for cancel in [false, true] {
            let guard = Guard(dropped.clone());
            let process = spawn(async move {
                let _guard = guard;
                std::future::pending::<()>().await;
            });
            sleep(Duration::from_millis(1)).await;
            if cancel {
                process.cancel();
            } else {
                process.pid().kill();
            }
            let (pid, exit) = (process.pid(), process.await.unwrap_err());
            assert_eq!(exit.reason, if cancel { ExitReason::Cancelled } else { ExitReason::Killed });
            assert_eq!(in_process.recv(), Ok(Some(pid)));
        }
    });
}
