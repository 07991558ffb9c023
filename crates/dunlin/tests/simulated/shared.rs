//! Shared ends over several nodes under random schedules, deadlines, drops, choices, and cut connections: no
//! other value comes between those of a claim, and each send that is `Ok` is received once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{RecvError, Why};

use crate::support::{Wanderer, carry, nothing_is_left};

/// A value: its sender, the number of the claim (0: none), and its own number.
type Word = (u32, u32, u32);

#[derive(Default)]
struct Log {
    heard: Vec<Word>,
    /// The outcome of each value: sent, or not.
    sent: BTreeMap<u32, bool>,
    next: u32,
    claims: u32,
}

#[derive(Clone, Default)]
struct Shout(Arc<Mutex<Log>>);

impl Shout {
    fn word(&self, voice: u32, claim: u32) -> Word {
        let mut log = self.0.lock().unwrap();
        log.next += 1;
        (voice, claim, log.next)
    }

    fn claim(&self) -> u32 {
        let mut log = self.0.lock().unwrap();
        log.claims += 1;
        log.claims
    }

    fn became<T: std::fmt::Debug>(&self, word: Word, sent: Result<(), SendError<T>>) {
        let sent = match sent {
            Ok(()) => true,
            // No process fails here, and none ends before all values are sent.
            Err(SendError::NotTaken { why: Why::TimedOut, .. }) => false,
            Err(error) => panic!("{word:?}: {error:?}"),
        };
        assert!(self.0.lock().unwrap().sent.insert(word.2, sent).is_none());
    }

    fn heard(&self, word: Word) {
        self.0.lock().unwrap().heard.push(word);
    }

    fn check(&self, seed: u64) {
        let log = self.0.lock().unwrap();
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        for word in &log.heard {
            *times.entry(word.2).or_default() += 1;
        }
        for word in 1..=log.next {
            let heard = times.get(&word).copied().unwrap_or(0);
            assert_eq!(log.sent.get(&word).map(|sent| usize::from(*sent)), Some(heard), "word {word}, seed {seed}");
        }
        // No other value comes between those of a claim.
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for (at, (_, claim, word)) in log.heard.iter().enumerate() {
            if *claim != 0
                && let Some(before) = last.insert(*claim, at)
            {
                assert_eq!(before + 1, at, "a value came between, before word {word}, seed {seed}: {:?}", log.heard);
            }
        }
        assert!(log.heard.len() > 10, "seed {seed}: {}", log.heard.len());
    }
}

fn not_chosen() -> SendError<()> {
    SendError::NotTaken { value: (), why: Why::TimedOut }
}

async fn pause(sim: &Sim, at_most: u64) {
    sleep(Duration::from_micros(sim.below(at_most) + 1)).await;
}

/// Sends alone and in claims, with and without deadlines, by itself and as a branch.
async fn voice(sim: &Sim, number: u32, mut shared: Shared<Sender<Word>>, shout: Shout) -> Result {
    for _ in 0..8 {
        match sim.below(5) {
            0 => {
                let word = shout.word(number, 0);
                shout.became(word, shared.send(word).await);
            }
            1 => {
                let word = shout.word(number, 0);
                shout.became(word, shared.send(word).within(Duration::from_micros(sim.below(6000))).await);
            }
            2 => {
                // As a branch: it is sent, or not at all.
                let word = shout.word(number, 0);
                let mut slot = Some(word);
                let wait = Duration::from_micros(sim.below(6000));
                let sent = alt! {
                    sent = shared.send_from(&mut slot) => sent,
                    _ = sleep(wait) => Err(not_chosen()),
                };
                assert_eq!(slot.is_none(), sent.is_ok());
                shout.became(word, sent);
            }
            _ => {
                let wait = Duration::from_millis(1 + sim.below(300));
                if let Ok(mut stage) = shared.claim().within(wait).await {
                    let claim = shout.claim();
                    for _ in 0..=sim.below(3) {
                        let word = shout.word(number, claim);
                        let sent = if sim.below(3) == 0 {
                            stage.send(word).within(Duration::from_micros(sim.below(8000))).await
                        } else {
                            stage.send(word).await
                        };
                        shout.became(word, sent);
                        if sim.below(3) == 0 {
                            pause(sim, 2000).await;
                        }
                    }
                }
            }
        }
        if sim.below(2) == 0 {
            pause(sim, 5000).await;
        }
    }
    Ok(())
}

/// A handle at each node: each has arrived from the keeper, which is the first, or from the one before.
async fn handles<E: dunlin::End>(sim: &Sim, nodes: &[Node], shared: Shared<E>) -> Result<Vec<Shared<E>>>
where
    Shared<E>: Portable,
{
    let mut handles = vec![shared];
    for (n, node) in nodes.iter().enumerate().skip(1) {
        let from = if sim.below(2) == 0 { 0 } else { n - 1 };
        handles.push(carry(handles[from].clone(), &nodes[from], node, &format!("handle {n}")).await?);
    }
    Ok(handles)
}

/// The receiver is with the keeper of the shared sender, or at a node of its own, and in three of four seeds
/// travels between its receives; handles are at all nodes, and handles of handles.
fn a_choir(seed: u64) {
    eprintln!("seed {seed}");
    let sim = Sim::new(seed);
    let shout = Shout::default();
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.push(Node::join("choir").await?);
        }
        let (tx, rx) = channel::<Word>();
        let voices = handles(&sim, &nodes, tx.share()).await?;
        let mut rx = Wanderer::new(rx, 0, "ear");
        if sim.below(2) == 0 {
            rx.go(&nodes, 3).await?;
        }
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send>>> = Vec::new();
        for (n, shared) in voices.into_iter().enumerate() {
            let (n, sim) = (n as u32, &sim);
            if sim.below(2) == 0 {
                all.push(Box::pin(voice(sim, 10 + n, shared.clone(), shout.clone())));
            }
            all.push(Box::pin(voice(sim, n, shared, shout.clone())));
        }
        all.push(Box::pin(async {
            while let Some(word) = rx.next().await? {
                shout.heard(word);
                if sim.below(4) == 0 {
                    pause(&sim, 3000).await;
                }
                if seed % 4 < 3 && sim.below(4) == 0 {
                    rx.go(&nodes, 1 + sim.below(3) as usize).await?;
                }
            }
            Ok(())
        }));
        all.push(Box::pin(async {
            for _ in 0..sim.below(4) {
                pause(&sim, 20000).await;
                let a = sim.below(4) as usize;
                let b = (a + 1 + sim.below(3) as usize) % 4;
                sim.cut(&nodes[a], &nodes[b]);
            }
            Ok(())
        }));
        for done in all.into_iter().collect::<Par<_>>().await {
            done?;
        }
        nothing_is_left(&nodes).await
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    shout.check(seed);
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("DUNLIN_FIRST_SEED").unwrap_or(0);
    first..first + of("DUNLIN_SEEDS").unwrap_or(few)
}

#[test]
fn no_value_comes_between_those_of_a_claim() {
    seeds(60).for_each(a_choir);
}

/// Receives alone and in claims, with and without deadlines.
async fn ear(sim: &Sim, mut shared: Shared<Receiver<Word>>, shout: Shout) -> Result {
    loop {
        let wait = Duration::from_micros(sim.below(8000));
        let heard = match sim.below(5) {
            0 => shared.recv().await,
            1 => shared.recv().within(wait).await,
            2 => shared.recv_extended().await.map(|held| *held),
            3 => alt! {
                word = shared.recv() => word,
                _ = sleep(wait) => Err(RecvError::TimedOut),
            },
            _ => {
                let Ok(mut held) = shared.claim().within(Duration::from_millis(1 + sim.below(300))).await else {
                    continue;
                };
                let mut last = Err(RecvError::TimedOut);
                for _ in 0..=sim.below(3) {
                    if let Ok(word) = last {
                        shout.heard(word);
                    }
                    last = held.recv().within(wait).await;
                }
                last
            }
        };
        match heard {
            Ok(word) => shout.heard(word),
            Err(RecvError::TimedOut) => {}
            Err(RecvError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        if sim.below(3) == 0 {
            pause(sim, 3000).await;
        }
    }
}

/// `moves`: it travels now and then, between its sends.
async fn mouth(sim: &Sim, nodes: &[Node], mut tx: Wanderer<Sender<Word>>, moves: bool, shout: Shout) -> Result {
    for _ in 0..60 {
        if moves && sim.below(6) == 0 {
            tx.go(nodes, 1 + sim.below(3) as usize).await?;
        }
        let word = shout.word(0, 0);
        match sim.below(3) {
            0 => shout.became(word, tx.send(word).await),
            1 => shout.became(word, tx.send(word).within(Duration::from_micros(sim.below(6000))).await),
            _ => {
                let mut slot = Some(word);
                let wait = Duration::from_micros(sim.below(6000));
                let sent = alt! {
                    sent = tx.send_from(&mut slot) => sent,
                    _ = sleep(wait) => Err(not_chosen()),
                };
                assert_eq!(slot.is_none(), sent.is_ok());
                shout.became(word, sent);
            }
        }
        if sim.below(3) == 0 {
            pause(sim, 2000).await;
        }
    }
    Ok(())
}

/// The sender is with the keeper of the shared receiver, or at a node of its own, and in three of four seeds
/// travels between its sends.
fn an_audience(seed: u64) {
    eprintln!("seed {seed}");
    let sim = Sim::new(seed);
    let shout = Shout::default();
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..4 {
            // With every second seed no value passes through the keeper.
            let straight = if seed % 2 == 1 { 1 } else { 64 << 10 };
            nodes.push(Node::builder().app("audience").straight_min_bytes(straight).join().await?);
        }
        let (tx, rx) = if sim.below(3) == 0 { channel_with::<Word>(fifo(2)) } else { channel::<Word>() };
        let ears = handles(&sim, &nodes, rx.share()).await?;
        let mut tx = Wanderer::new(tx, 0, "mouth");
        if sim.below(2) == 0 {
            tx.go(&nodes, 3).await?;
        }
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send>>> = Vec::new();
        for shared in ears {
            if sim.below(2) == 0 {
                all.push(Box::pin(ear(&sim, shared.clone(), shout.clone())));
            }
            all.push(Box::pin(ear(&sim, shared, shout.clone())));
        }
        all.push(Box::pin(mouth(&sim, &nodes, tx, seed % 4 < 3, shout.clone())));
        all.push(Box::pin(async {
            for _ in 0..sim.below(4) {
                pause(&sim, 20000).await;
                let a = sim.below(4) as usize;
                let b = (a + 1 + sim.below(3) as usize) % 4;
                sim.cut(&nodes[a], &nodes[b]);
            }
            Ok(())
        }));
        for done in all.into_iter().collect::<Par<_>>().await {
            done?;
        }
        nothing_is_left(&nodes).await
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    shout.check(seed);
}

#[test]
fn each_value_is_received_once() {
    seeds(60).for_each(an_audience);
}

#[derive(Bundle)]
struct Stage {
    say: ToServer<Word>,
    hear: ToClient<Word>,
}

/// Claims the face, and sends or receives a few words in each claim, until it receives the end.
async fn actor(sim: &Sim, number: u32, mut shared: Shared<StageClient>, said: Shout, told: Shout) -> Result {
    loop {
        let mut stage = match shared.claim().within(Duration::from_millis(1 + sim.below(300))).await {
            Ok(stage) => stage,
            Err(dunlin::ClaimError::TimedOut) => continue,
            Err(error) => return Err(error.into()),
        };
        let claim = said.claim();
        for _ in 0..=sim.below(3) {
            let wait = Duration::from_micros(sim.below(8000));
            if sim.below(2) == 0 {
                let word = said.word(number, claim);
                match sim.below(3) {
                    0 => said.became(word, stage.say.send(word).within(wait).await),
                    _ => said.became(word, stage.say.send(word).await),
                }
                continue;
            }
            let heard = match sim.below(3) {
                0 => stage.hear.recv().within(wait).await,
                1 => stage.hear.recv_extended().within(wait).await.map(|held| *held),
                _ => alt! {
                    word = stage.hear.recv() => word,
                    _ = sleep(wait) => Err(dunlin::RecvError::TimedOut),
                },
            };
            match heard {
                Ok(word) => told.heard(word),
                Err(dunlin::RecvError::TimedOut) => {}
                Err(dunlin::RecvError::Closed) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        drop(stage);
        if sim.below(2) == 0 {
            pause(sim, 5000).await;
        }
    }
}

/// A face is claimed at nodes of two applications, both of which its program has joined, and its other side
/// is in one of them or at home.
fn a_stage_of_two_towns(seed: u64) {
    let sim = Sim::new(seed);
    let (said, told) = (Shout::default(), Shout::default());
    sim.run(async {
        let mut towns = [Vec::new(), Vec::new()];
        for (town, nodes) in ["river", "market"].into_iter().zip(&mut towns) {
            for _ in 0..3 {
                nodes.push(Node::join(town).await?);
            }
        }
        let factory =
            if sim.below(3) == 0 { dunlin::ChannelFactory::new(fifo(2)) } else { dunlin::ChannelFactory::default() };
        let (client, mut server) = <Stage as dunlin::Pairing>::pair(&factory);
        let shared = client.share();
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send>>> = Vec::new();
        for (town, nodes) in (0..).zip(&towns) {
            for (n, handle) in (0..).zip(handles(&sim, nodes, shared.clone()).await?) {
                all.push(Box::pin(actor(&sim, 10 * town + n, handle, said.clone(), told.clone())));
            }
        }
        drop(shared);
        if let Some(nodes) = towns.get(sim.below(3) as usize) {
            server = carry(server, &nodes[0], &nodes[2], "server").await?;
        }
        let StageServer { say, hear } = server;
        all.push(Box::pin(mouth(&sim, &[], Wanderer::new(hear, 0, "hear"), false, told.clone())));
        all.push(Box::pin(async {
            let mut say = say;
            while let Some(word) = say.next().await? {
                said.heard(word);
                if sim.below(4) == 0 {
                    pause(&sim, 3000).await;
                }
            }
            Ok(())
        }));
        all.push(Box::pin(async {
            for _ in 0..sim.below(4) {
                pause(&sim, 20000).await;
                let nodes = &towns[sim.below(2) as usize];
                let a = sim.below(3) as usize;
                sim.cut(&nodes[a], &nodes[(a + 1 + sim.below(2) as usize) % 3]);
            }
            Ok(())
        }));
        for done in all.into_iter().collect::<Par<_>>().await {
            done?;
        }
        Result::<()>::Ok(())
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    said.check(seed);
    told.check(seed);
    // The next claimer receives the next value, also if a receive has been dropped.
    let heard = &told.0.lock().unwrap().heard;
    assert!(heard.is_sorted_by_key(|word| word.2), "seed {seed}: not in order: {heard:?}");
}

#[test]
fn a_face_is_claimed_in_two_applications() {
    seeds(60).for_each(a_stage_of_two_towns);
}

/// The receiver of a shared sender travels between its receives, while handles at four nodes send with
/// deadlines, alone and in claims. No node fails, so no value is lost.
fn a_receiver_that_moves(seed: u64) {
    eprintln!("seed {seed}");
    let sim = Sim::new(seed);
    let in_claims = seed % 4 == 3;
    let received = sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..4 {
            nodes.push(Node::join("moves").await?);
        }
        let (tx, rx) = channel::<u32>();
        let mut rx = Wanderer::new(rx, 0, "ear");
        let tx = tx.share();
        let mut voices = vec![tx.clone()];
        for (n, node) in nodes.iter().enumerate().skip(1) {
            voices.push(carry(tx.clone(), &nodes[0], node, &format!("handle {n}")).await?);
        }
        drop(tx);
        let sim = &sim;
        let send = async |mut tx: Shared<Sender<u32>>| {
            for n in 0..12 {
                let wait = Duration::from_micros(sim.below(6000));
                if !in_claims {
                    drop(tx.send(n).within(wait).await);
                } else if let Ok(mut stage) = tx.claim().within(Duration::from_millis(1 + sim.below(300))).await {
                    drop(stage.send(n).within(wait).await);
                }
                pause(sim, 3000).await;
            }
        };
        let receives = async {
            loop {
                if sim.below(3) == 0 {
                    rx.go(&nodes, 1 + sim.below(3) as usize).await?;
                }
                match rx.recv().await {
                    Ok(_) => {}
                    Err(RecvError::Closed) => return Result::<()>::Ok(()),
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let (_, received) = par!(voices.into_iter().map(send).collect::<Par<_>>(), receives);
        received?;
        nothing_is_left(&nodes).await
    });
    received.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

#[test]
fn moving_receiver_loses_no_value_of_shared_senders() {
    seeds(100).for_each(a_receiver_that_moves);
}

/// A claimer whose node is silent keeps its claim as long as its connection may come back, and no longer.
#[test]
fn a_claim_ends_with_its_connection() {
    let sim = Sim::new(5);
    sim.run(async {
        let a = Node::join("parted").await?;
        let b = Node::join("parted").await?;
        let (give, take) = par!(async { a.sender::<Shared<Sender<Word>>>("handle").await }, async {
            b.receiver::<Shared<Sender<Word>>>("handle").await
        },);
        let (mut give, mut take) = (give?, take?);
        let (tx, mut rx) = channel::<Word>();
        let mut here = tx.share();
        let (given, taken) = par!(give.send(here.clone()), take.recv());
        given?;
        let mut there = taken?;
        let mut stage = there.claim().await?;
        let (sent, heard) = par!(stage.send((1, 1, 1)), rx.recv());
        sent?;
        assert_eq!(heard?, (1, 1, 1));
        let began = sim.elapsed();
        sim.part(&a, &b);
        // Meanwhile a value of the lost claim is on its way. It is refused, and never received, not even when
        // the nodes reconnect.
        let (lost, mine) = par!(stage.send((1, 1, 2)), async {
            let mut mine = here.claim().await?;
            let waited = sim.elapsed() - began;
            assert!(waited >= Duration::from_secs(15) && waited < Duration::from_secs(40), "{waited:?}");
            let (sent, heard) = par!(mine.send((0, 2, 3)), rx.recv());
            sent?;
            assert_eq!(heard?, (0, 2, 3));
            sim.heal(&a, &b);
            Ok::<_, Error>(mine)
        });
        let mine = mine?;
        assert!(lost.is_err());
        drop(stage);
        // The nodes have reconnected: a value travels from one to the other.
        let (tx, again) = par!(async { b.sender::<u8>("again").await }, async { a.receiver::<u8>("again").await });
        let (mut tx, mut again) = (tx?, again?);
        let (sent, met) = par!(tx.send(1), again.recv());
        sent?;
        met?;
        drop(mine);
        let (sent, heard) = par!(here.send((0, 0, 4)), rx.recv());
        sent?;
        assert_eq!(heard?, (0, 0, 4));
        drop((here, there));
        assert!(rx.recv().await.is_err());
        Result::<()>::Ok(())
    })
    .unwrap();
}

/// Workers at nodes of their own, which share the receiver of the tasks and the sender of the results, and
/// ask for the next task while a result is on its way: each task costs one round trip, as it would with two
/// channels for each worker. All results arrive, each once.
#[test]
fn workers_that_request_ahead_take_one_round_trip_per_task() {
    const WORKERS: u64 = 8;
    const TASKS: u64 = 50 * WORKERS;
    let way = Duration::from_micros(500);
    let sim = Sim::new(1);
    sim.delay(way, way);
    sim.run(async {
        let farmer = Node::join("farm").await?;
        let (mut to_workers, tasks) = channel_with::<u64>(fifo(WORKERS as usize));
        let (results, mut done) = channel::<u64>();
        let (tasks, results) = (tasks.share(), results.share());
        for number in 0..WORKERS {
            let worker = Node::join("farm").await?;
            let name = format!("ends {number}");
            type Ends = (Shared<Receiver<u64>>, Shared<Sender<u64>>);
            let (give, take) =
                par!(async { farmer.sender::<Ends>(&name).await }, async { worker.receiver::<Ends>(&name).await });
            let (mut give, mut take) = (give?, take?);
            let (given, taken) = par!(give.send((tasks.clone(), results.clone())), take.recv());
            given?;
            let (mut tasks, mut results) = taken?;
            drop(spawn(async move {
                let mut task = tasks.next().await?;
                while let Some(done) = task {
                    let (sent, next) = par!(results.send(done), tasks.next());
                    sent?;
                    task = next?;
                }
                drop((tasks, results));
                worker.leave().await?;
                Result::<()>::Ok(())
            }));
        }
        drop((tasks, results));
        drop(spawn(async move {
            for task in 0..TASKS {
                to_workers.send(task).await?;
            }
            Result::<()>::Ok(())
        }));
        let mut all = Vec::new();
        let mut began = Duration::ZERO;
        while let Some(result) = done.next().await? {
            all.push(result);
            // Wait until each has begun.
            if all.len() as u64 == 4 * WORKERS {
                began = sim.elapsed();
            }
        }
        let round_trips = (sim.elapsed() - began).as_secs_f64() / (2 * way).as_secs_f64();
        let needed = (TASKS - 4 * WORKERS) as f64 / WORKERS as f64;
        // At the end some have nothing to do.
        assert!(round_trips < 1.1 * needed + 2.0, "{round_trips} round trips, where {needed} are needed");
        all.sort_unstable();
        assert!(all.iter().copied().eq(0..TASKS), "{all:?}");
        Result::<()>::Ok(())
    })
    .unwrap();
}
