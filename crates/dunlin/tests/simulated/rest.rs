//! At rest nothing is left: whatever the history of a channel's ends, all nodes have forgotten the channel
//! when its ends have no holder any more.

use std::sync::{Arc, Mutex};

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{overwrite_oldest, rendezvous};

use crate::ends::End;
use crate::support::{carry, nothing_is_left};

/// The present ends of a node. `None`: it accepts no more.
type Bag = Arc<Mutex<Option<Vec<End>>>>;

/// A process at a node, which uses its ends at random.
struct User<'a> {
    sim: &'a Sim,
    bag: Bag,
    roads: Vec<Sender<End>>,
}

impl User<'_> {
    fn below(&self, n: u64) -> u64 {
        self.sim.below(n)
    }

    fn wait(&self) -> Duration {
        Duration::from_micros(self.below(8000))
    }

    fn keep(&self, ends: impl IntoIterator<Item = End>) {
        if let Some(bag) = &mut *self.bag.lock().unwrap() {
            bag.extend(ends);
        }
    }

    fn any(&self) -> Option<End> {
        let mut bag = self.bag.lock().unwrap();
        let bag = bag.as_mut().filter(|bag| !bag.is_empty())?;
        Some(bag.swap_remove(self.below(bag.len() as u64) as usize))
    }

    fn make(&self) {
        let policy = match self.below(4) {
            0 => fifo(2),
            1 => overwrite_oldest(2),
            _ => rendezvous(),
        };
        match self.below(6) {
            0 => {
                let (caller, callee) = call();
                self.keep([End::Caller(caller), End::Callee(callee)]);
            }
            1 => {
                let one = barrier();
                self.keep([End::Barrier(one.enrol()), End::Barrier(one)]);
            }
            2 => {
                let (broadcast, joiner) = broadcast_with(policy);
                self.keep([End::Broadcast(broadcast), End::Joiner(joiner)]);
            }
            _ => {
                let (tx, rx) = channel_with(policy);
                self.keep([End::Sender(tx), End::Receiver(rx)]);
            }
        }
    }

    /// Sends one to another node, if that accepts it in time.
    async fn pass_on(&mut self) {
        let Some(end) = self.any() else { return };
        let (road, wait) = (self.below(self.roads.len() as u64) as usize, self.wait());
        if let Err(error) = self.roads[road].send(end).within(wait).await {
            self.keep([error.into_value()]);
        }
    }

    /// Uses one as its kind allows, and ignores the outcome.
    async fn use_one(&self) {
        let (Some(end), wait, how) = (self.any(), self.wait(), self.below(7)) else { return };
        match end {
            End::Sender(mut tx) => {
                match how {
                    0 => tx.poison("enough"),
                    1 => tx.retire(),
                    3 => return self.keep([End::Senders(tx.share())]),
                    4 => alt! { _ = tx.closed() => {}, _ = sleep(wait) => {} },
                    _ => drop(tx.send(1).within(wait).await),
                }
                self.keep([End::Sender(tx)]);
            }
            End::Receiver(mut rx) => {
                match how {
                    0 => rx.poison("enough"),
                    1 => rx.retire(),
                    2 => drop(rx.recv_extended().within(wait).await),
                    3 => return self.keep([End::Receivers(rx.share())]),
                    4 => alt! { _ = rx.closed() => {}, _ = sleep(wait) => {} },
                    _ => drop(rx.recv().within(wait).await),
                }
                self.keep([End::Receiver(rx)]);
            }
            End::Senders(mut shared) => {
                match how {
                    0 | 1 => {
                        if let Ok(mut tx) = shared.claim().within(wait).await {
                            match self.below(4) {
                                0 => tx.poison("enough"),
                                1 => tx.retire(),
                                _ => drop(tx.send(1).within(wait).await),
                            }
                        }
                    }
                    2 => self.keep([End::Senders(shared.clone())]),
                    _ => drop(shared.send(1).within(wait).await),
                }
                self.keep([End::Senders(shared)]);
            }
            End::Receivers(mut shared) => {
                match how {
                    0 | 1 => {
                        if let Ok(mut rx) = shared.claim().within(wait).await {
                            match self.below(4) {
                                0 => rx.poison("enough"),
                                1 => rx.retire(),
                                _ => drop(rx.recv().within(wait).await),
                            }
                        }
                    }
                    2 => self.keep([End::Receivers(shared.clone())]),
                    _ => drop(shared.recv().within(wait).await),
                }
                self.keep([End::Receivers(shared)]);
            }
            End::Caller(caller) if how == 0 => self.keep([End::Callers(caller.share())]),
            End::Caller(mut caller) => {
                drop(caller.call(1).within(wait).await);
                self.keep([End::Caller(caller)]);
            }
            End::Callers(mut shared) => {
                if how == 0 {
                    self.keep([End::Callers(shared.clone())]);
                } else if let Ok(mut caller) = shared.claim().within(wait).await {
                    drop(caller.call(1).within(wait).await);
                }
                self.keep([End::Callers(shared)]);
            }
            End::Callee(mut callee) => {
                if let Ok(ask) = callee.accept().within(wait).await
                    && how > 1
                {
                    let _ = ask.reply(2);
                }
                self.keep([End::Callee(callee)]);
            }
            End::Barrier(mut barrier) => {
                match how {
                    0 => self.keep([End::Barrier(barrier.enrol())]),
                    _ => drop(barrier.sync().within(wait).await),
                }
                self.keep([End::Barrier(barrier)]);
            }
            End::Broadcast(mut broadcast) => {
                match how {
                    0 => broadcast.poison("enough"),
                    1 => broadcast.retire(),
                    // (Its deadline would bound only its wait for receivers.)
                    _ => alt! { _ = future(broadcast.send(1)) => {}, _ = sleep(wait) => {} },
                }
                self.keep([End::Broadcast(broadcast)]);
            }
            End::Joiner(joiner) => {
                match how {
                    0 => self.keep([End::Joiner(joiner.clone())]),
                    _ => self.keep([End::Receiver(joiner.join())]),
                }
                self.keep([End::Joiner(joiner)]);
            }
        }
    }

    async fn run(mut self) {
        for _ in 0..60 {
            match self.below(8) {
                0 => self.make(),
                1 => drop(self.any()),
                2..5 => self.pass_on().await,
                _ => self.use_one().await,
            }
            if self.below(3) == 0 {
                sleep(self.wait()).await;
            }
        }
    }
}

/// Ends of all kinds travel among four nodes, are used, ended in every way, abandoned, and dropped at last.
fn a_fair(seed: u64) {
    eprintln!("seed {seed}");
    const NODES: usize = 4;
    let sim = Sim::new(seed);
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(Node::join("fair").await?);
        }
        let bags: Vec<Bag> = nodes.iter().map(|_| Arc::new(Mutex::new(Some(Vec::new())))).collect();
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send>>> = Vec::new();
        let mut users = Vec::new();
        for (from, node) in nodes.iter().enumerate() {
            let mut user = User { sim: &sim, bag: bags[from].clone(), roads: Vec::new() };
            for further in 1..NODES {
                let to = (from + further) % NODES;
                let name = format!("{from} to {to}");
                // Some of them carry ends in messages whose sends are complete at once.
                let policy = if further == 1 { fifo(2) } else { rendezvous() };
                let mut road = nodes[to].receiver::<End>(&name).policy(policy).await?;
                user.roads.push(node.sender(&name).await?);
                let bag = bags[to].clone();
                all.push(Box::pin(async move {
                    while let Some(end) = road.next().await? {
                        if let Some(bag) = &mut *bag.lock().unwrap() {
                            bag.push(end);
                        }
                    }
                    Ok(())
                }));
            }
            for _ in 0..3 {
                user.make();
            }
            users.push(user);
        }
        all.push(Box::pin(async {
            let _ = users.into_iter().map(User::run).collect::<Par<_>>().await;
            // What arrives from now on is dropped, too.
            for bag in &bags {
                let _left = bag.lock().unwrap().take();
            }
            Ok(())
        }));
        all.push(Box::pin(async {
            for _ in 0..sim.below(4) {
                sleep(Duration::from_micros(sim.below(60_000))).await;
                let a = sim.below(NODES as u64) as usize;
                sim.cut(&nodes[a], &nodes[(a + 1 + sim.below(3) as usize) % NODES]);
            }
            Ok(())
        }));
        for done in all.into_iter().collect::<Par<_>>().await {
            done?;
        }
        nothing_is_left(&nodes).await
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

#[test]
fn nodes_forget_all_ends_of_random_use() {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("DUNLIN_FIRST_SEED").unwrap_or(0);
    (first..first + of("DUNLIN_SEEDS").unwrap_or(60)).for_each(a_fair);
    // Bugs that these seeds have found: an ended end could not travel at once; and a call through a keeper
    // was requested again and again.
    [4871, 6914].into_iter().for_each(a_fair);
}

/// The receiver of a channel is shared, and has a handle at another node; the channel is poisoned, by either
/// end, while it is claimed here or there, or not at all.
#[test]
fn nodes_forget_a_poisoned_shared_receiver() {
    for (by_sender, claimed) in [true, false].into_iter().flat_map(|by| [None, Some(0), Some(1)].map(|at| (by, at))) {
        let sim = Sim::new(0);
        let left = sim.run(async {
            let nodes = [Node::join("poisoned").await?, Node::join("poisoned").await?];
            let (tx, rx) = par!(async { nodes[1].sender::<u32>("channel").await }, async {
                nodes[0].receiver::<u32>("channel").await
            });
            let (tx, here) = (tx?, rx?.share());
            let there = carry(here.clone(), &nodes[0], &nodes[1], "handle").await?;
            let mut handles = [here, there];
            let claim = match claimed {
                Some(at) => Some(handles[at].claim().await?),
                None => None,
            };
            match &claim {
                Some(claim) if !by_sender => claim.poison("enough"),
                _ => tx.poison("enough"),
            }
            drop(claim);
            for handle in &mut handles {
                assert_eq!(handle.recv().await, Err(RecvError::Poisoned("enough".into())));
            }
            drop((tx, handles));
            nothing_is_left(&nodes).await
        });
        left.unwrap_or_else(|error| panic!("by the sender: {by_sender}, claimed at {claimed:?}: {error}"));
    }
}
