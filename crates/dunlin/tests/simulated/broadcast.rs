//! Broadcasts over nodes under random schedules and cuts: joiners and receivers at four nodes travel, and so
//! does the sending end. Each receiver gets the values sent while it is joined, in order and once, and a send
//! is complete when all that had joined have returned the value or left.

use std::sync::{Arc, Mutex};

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{Broadcast, BroadcastError, Joiner, RecvError, Why, broadcast_with, fifo, rendezvous};

use crate::support::{carry, nothing_is_left};

const NODES: usize = 4;
const VALUES: u32 = 25;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// The values whose sends returned `Ok`.
    sent: Vec<u32>,
    /// The values of each receiver, and whether it has stayed to the end.
    got: Vec<(Vec<u32>, bool)>,
    over: bool,
}

impl Log {
    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.0.lock().unwrap())
    }
}

struct World<'a> {
    sim: &'a Sim,
    nodes: Vec<Node>,
    log: Log,
    buffered: bool,
}

impl World<'_> {
    fn pause(&self, up_to: u64) -> impl Future<Output = ()> + use<> {
        sleep(Duration::from_micros(self.sim.below(up_to)))
    }

    /// Sends all values, and travels to another node now and then.
    async fn cast(&self, mut clock: Broadcast<u32>, from: usize) -> Result {
        let mut at = from;
        for value in 0..VALUES {
            if self.sim.below(5) == 0 {
                let to = (at + 1 + self.sim.below(3) as usize) % NODES;
                clock = carry(clock, &self.nodes[at], &self.nodes[to], &format!("clock {value}")).await?;
                at = to;
            }
            let wait = Duration::from_micros(self.sim.below(30_000));
            clock = clock.at_least(self.sim.below(3) as usize);
            match self.sim.below(8) {
                // The send is dropped on its way: some receivers have the value.
                0 => {
                    alt! { r = future(clock.send(value)) => { r.map_err(|error| error.why).ok(); } _ = sleep(wait) => {} }
                }
                1 => match clock.send(value).within(wait).await {
                    Ok(()) => self.log.with(|log| log.sent.push(value)),
                    Err(BroadcastError { why: Why::TimedOut, received: 0, .. }) => {}
                    Err(error) => return Err(error.into()),
                },
                _ => {
                    clock.send(value).await?;
                    self.log.with(|log| {
                        log.sent.push(value);
                        if !self.buffered {
                            // Every joined receiver has it, and nothing later.
                            assert!(log.got.iter().all(|(got, _)| got.last().is_none_or(|last| *last <= value)));
                        }
                    });
                }
            }
            self.pause(3_000).await;
        }
        self.log.with(|log| log.over = true);
        // All leave, and none can join any more: the sender notices that.
        let mut waited = 0;
        while !clock.is_closed() {
            assert!(waited < 10_000, "{clock:?}");
            waited += 1;
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Joins, travels to other nodes, receives, leaves; and again, until the end.
    async fn listen(&self, joiner: Joiner<u32>, home: usize, name: usize) -> Result {
        for round in 0.. {
            if self.log.with(|log| log.over) && round > 0 {
                break;
            }
            let (mut rx, mut at) = (joiner.join(), home);
            let own = self.log.with(|log| {
                log.got.push((Vec::new(), false));
                log.got.len() - 1
            });
            let mut stays = self.sim.below(20);
            loop {
                if stays == 0 {
                    break;
                }
                stays -= 1;
                if self.sim.below(8) == 0 {
                    let to = (at + 1 + self.sim.below(3) as usize) % NODES;
                    rx = carry(rx, &self.nodes[at], &self.nodes[to], &format!("{name}: {round}, {stays}")).await?;
                    at = to;
                }
                let wait = Duration::from_micros(self.sim.below(20_000));
                match rx.recv().within(wait).await {
                    Ok(value) => self.log.with(|log| {
                        let got = &mut log.got[own].0;
                        assert!(got.last().is_none_or(|last| *last < value), "{got:?}, then {value}");
                        got.push(value);
                    }),
                    Err(RecvError::TimedOut) => {}
                    Err(RecvError::Closed) => {
                        self.log.with(|log| log.got[own].1 = true);
                        return Ok(());
                    }
                    Err(error) => return Err(error.into()),
                }
                self.pause(2_000).await;
            }
        }
        Ok(())
    }
}

fn a_show(seed: u64) {
    let sim = Sim::new(seed);
    let log = Log::default();
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..NODES {
            nodes.push(Node::join("show").await?);
        }
        let buffered = sim.below(2) == 0;
        let world = World { sim: &sim, nodes, log: log.clone(), buffered };
        let (clock, joiner) = broadcast_with::<u32>(if buffered { fifo(3) } else { rendezvous() });
        // A joiner arrives from the node where the broadcast was made, or from one in between.
        let mut joiners = vec![joiner];
        for n in 1..NODES {
            let from = if sim.below(2) == 0 { 0 } else { n - 1 };
            let joiner = joiners[from].clone();
            joiners.push(carry(joiner, &world.nodes[from], &world.nodes[n], &format!("joiner {n}")).await?);
        }
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send>>> = Vec::new();
        for name in 0..6 {
            let at = sim.below(NODES as u64) as usize;
            all.push(Box::pin(world.listen(joiners[at].clone(), at, name)));
        }
        drop(joiners);
        all.push(Box::pin(world.cast(clock, 0)));
        all.push(Box::pin(async {
            for _ in 0..sim.below(5) {
                sleep(Duration::from_micros(sim.below(40_000))).await;
                let a = sim.below(NODES as u64) as usize;
                let b = (a + 1 + sim.below(3) as usize) % NODES;
                sim.cut(&world.nodes[a], &world.nodes[b]);
            }
            Ok(())
        }));
        for done in all.into_iter().collect::<Par<_>>().await {
            done?;
        }
        nothing_is_left(&world.nodes).await
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    log.with(|log| {
        for (got, stayed) in &log.got {
            // No value sent while it was joined is missing.
            let Some(first) = got.first() else { continue };
            let last = got[got.len() - 1];
            let missing =
                log.sent.iter().find(|sent| *sent > first && (*stayed || **sent < last) && !got.contains(sent));
            assert!(missing.is_none(), "seed {seed}: {missing:?} is missing: {got:?}, {:?}", log.sent);
        }
    });
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("DUNLIN_FIRST_SEED").unwrap_or(0);
    first..first + of("DUNLIN_SEEDS").unwrap_or(few)
}

#[test]
fn broadcast_receiver_gets_each_value_sent_while_joined() {
    for seed in seeds(40) {
        eprintln!("seed {seed}");
        a_show(seed);
    }
}

/// Receivers join over a long way, and leave before or after its end has noticed that.
fn a_long_way(seed: u64) {
    let sim = Sim::new(seed);
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..3 {
            nodes.push(Node::join("way").await?);
        }
        let (mut clock, joiner) = broadcast_with::<u32>(rendezvous());
        for stop in 0..1 + sim.below(9) as usize {
            clock = carry(clock, &nodes[stop % 3], &nodes[(stop + 1) % 3], &format!("stop {stop}")).await?;
        }
        for _ in 0..3 {
            let rx = joiner.join();
            sleep(Duration::from_micros(sim.below(2) * sim.below(30_000))).await;
            drop(rx);
        }
        drop(joiner);
        let mut waited = 0;
        while !clock.is_closed() {
            assert!(waited < 1_000, "seed {seed}: {clock:?}");
            waited += 1;
            sleep(Duration::from_millis(10)).await;
        }
        drop(clock);
        nothing_is_left(&nodes).await
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// One of the receivers' nodes is silent, and one receiver does not receive: the send ends soon after its
/// bound, and reports each outcome.
#[test]
fn complete_within_does_not_wait_for_a_silent_node() {
    for seed in seeds(20) {
        let sim = Sim::new(seed);
        sim.run(async {
            let mut nodes = Vec::new();
            for _ in 0..3 {
                nodes.push(Node::join("complete").await?);
            }
            let (mut clock, joiner) = broadcast_with::<u32>(rendezvous());
            let mut here = joiner.join();
            let mut quick = carry(joiner.join(), &nodes[0], &nodes[1], "quick").await?;
            let mut slow = carry(joiner.join(), &nodes[0], &nodes[1], "slow").await?;
            let mut silent = carry(joiner.join(), &nodes[0], &nodes[2], "silent").await?;
            let (sent, ..) = par!(clock.send(1), here.recv(), quick.recv(), slow.recv(), silent.recv());
            assert_eq!(sent, Ok(()));
            let (bound, began) = (Duration::from_millis(500), sim.elapsed());
            let (sent, first, second, ()) =
                par!(clock.send(2).complete_within(bound), here.recv(), quick.recv(), async {
                    // By then the node has the value, and none of its frames arrives any more.
                    sleep(Duration::from_millis(20)).await;
                    sim.part(&nodes[0], &nodes[2]);
                });
            let took = sim.elapsed() - began;
            assert_eq!((first, second), (Ok(2), Ok(2)));
            let Err(CompleteError::Incomplete { value, received, withdrawn, unknown }) = sent else {
                panic!("{sent:?}");
            };
            assert_eq!((value, received, withdrawn, unknown), (2, 2, 1, 1), "seed {seed}");
            assert!(took >= bound && took < bound + Duration::from_millis(300), "{took:?}");
            // Without a silent node the send ends as soon as the answer arrives.
            sim.heal(&nodes[0], &nodes[2]);
            let (sent, ()) = par!(clock.send(3), async {
                let (.., got, ()) = par!(here.recv(), quick.recv(), slow.recv(), async {
                    // It may have received the value with the unknown outcome.
                    while silent.recv().await != Ok(3) {}
                });
                assert_eq!(got, Ok(3), "it never gets what was withdrawn");
            });
            assert_eq!(sent, Ok(()));
            let began = sim.elapsed();
            let (sent, ..) = par!(clock.send(4).complete_within(bound), here.recv(), quick.recv(), silent.recv());
            let took = sim.elapsed() - began;
            assert!(
                matches!(sent, Err(CompleteError::Incomplete { received: 3, withdrawn: 1, unknown: 0, .. })),
                "{sent:?}"
            );
            assert!(took >= bound && took < bound + Duration::from_millis(50), "{took:?}");
            Ok::<_, dunlin::Error>(())
        })
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_receiver_that_leaves_at_once_has_left() {
    for seed in seeds(60) {
        a_long_way(seed);
    }
}
