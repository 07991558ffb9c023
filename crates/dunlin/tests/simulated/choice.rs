//! Choices on both sides of channels between four nodes, again and again: sends, receives, extended receives,
//! lone sends of a shared end, claims, accepted calls, timers. In three of four seeds their ends travel
//! between the choices. Each successful send is received once, each other send still has its value, and none
//! waits for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use dunlin::prelude::*;
use dunlin::sim::Sim;
use dunlin::{CallError, Callee, Caller, RecvError, Why};

use crate::support::{Wanderer, carry, nothing_is_left};

type Word = u32;

/// How many nodes, with a process at each.
const N: usize = 4;
/// How many choices each process makes.
const ROUNDS: usize = 40;

/// The sent values, and how often each was received.
#[derive(Default)]
struct Words {
    last: Word,
    became: BTreeMap<Word, (bool, u32)>,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Words>>);

impl Log {
    fn word(&self) -> Word {
        let mut log = self.0.lock().unwrap();
        log.last += 1;
        log.last
    }

    fn sent(&self, word: Word) {
        self.0.lock().unwrap().became.entry(word).or_default().0 = true;
    }

    fn heard(&self, word: Word) {
        self.0.lock().unwrap().became.entry(word).or_default().1 += 1;
    }

    fn check(&self, seed: u64) {
        let log = self.0.lock().unwrap();
        for (word, (sent, heard)) in &log.became {
            assert_eq!(u32::from(*sent), *heard, "word {word}, seed {seed}");
        }
        assert!(log.became.len() > 40, "seed {seed}: {}", log.became.len());
    }
}

struct Ends {
    tx: [Wanderer<Sender<Word>>; 2],
    rx: [Wanderer<Receiver<Word>>; 2],
    board: Shared<Sender<Word>>,
    caller: Caller<Word, Word>,
    callee: Wanderer<Callee<Word, Word>>,
}

impl Ends {
    /// Each end that can travels to another node, or stays.
    async fn go(&mut self, sim: &Sim, nodes: &[Node], on: &[bool; 4]) -> Result {
        let further = || (sim.below(20) == 0).then(|| 1 + sim.below(nodes.len() as u64 - 1) as usize);
        for (tx, on) in self.tx.iter_mut().zip(on) {
            if let Some(further) = further().filter(|_| *on) {
                tx.go(nodes, further).await?;
            }
        }
        for (rx, on) in self.rx.iter_mut().zip(&on[2..]) {
            if let Some(further) = further().filter(|_| *on) {
                rx.go(nodes, further).await?;
            }
        }
        if let Some(further) = further() {
            self.callee.go(nodes, further).await?;
        }
        Ok(())
    }
}

/// One process: chooses among all its ends for `ROUNDS` rounds. `moves`: its ends travel now and then.
async fn chooser(sim: &Sim, nodes: &[Node], mut ends: Ends, moves: bool, log: Log) -> Result {
    let mut other = ends.board.clone();
    let mut on = [true; 4];
    let mut slots = [None::<Word>; 2];
    for _ in 0..ROUNDS {
        if moves {
            ends.go(sim, nodes, &on).await?;
        }
        let [tx0, tx1] = &mut ends.tx;
        let [rx0, rx1] = &mut ends.rx;
        let (board, caller, callee) = (&mut ends.board, &mut ends.caller, &mut ends.callee);
        for slot in &mut slots {
            slot.get_or_insert_with(|| log.word());
        }
        let (first, second) = (slots[0], slots[1]);
        let [slot0, slot1] = &mut slots;
        let wait = Duration::from_micros(200 + sim.below(20_000));
        let lone = sim.below(3) == 0;
        let claims = !lone && sim.below(3) == 0;
        let asks = sim.below(3) == 0;
        let (posted, question) = (log.word(), log.word());
        // A call is no branch; its server chooses.
        if asks {
            match caller.call(question).within(wait).await {
                Ok(answer) => assert_eq!(answer, question + 1),
                Err(CallError::NotTaken { why: Why::TimedOut | Why::Closed, .. }) => {}
                Err(CallError::NoReply(RecvError::TimedOut | RecvError::Closed)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        alt! {
            sent = tx0.send_from(slot0), if on[0] => match is_open(sent)? {
                true => log.sent(first.unwrap()),
                false => on[0] = false,
            }
            sent = tx1.send_from(slot1), if on[1] => match is_open(sent)? {
                true => log.sent(second.unwrap()),
                false => on[1] = false,
            }
            word = rx0.recv_extended(), if on[2] => match word {
                Ok(word) => {
                    log.heard(*word);
                    sleep(Duration::from_micros(sim.below(2000))).await;
                }
                Err(RecvError::Closed) => on[2] = false,
                Err(error) => return Err(error.into()),
            }
            word = rx1.recv(), if on[3] => match word {
                Ok(word) => log.heard(word),
                Err(RecvError::Closed) => on[3] = false,
                Err(error) => return Err(error.into()),
            }
            sent = board.send(posted), if lone => {
                sent?;
                log.sent(posted);
            }
            claim = other.claim(), if claims => {
                let mut board = claim?;
                for _ in 0..sim.below(3) {
                    let word = log.word();
                    board.send(word).await?;
                    log.sent(word);
                }
            }
            ask = callee.accept() => match ask {
                Ok(ask) => {
                    let question = *ask;
                    // The caller may have dropped its call.
                    let _ = ask.reply(question + 1);
                }
                Err(RecvError::Closed) => sleep(wait).await,
                Err(error) => return Err(error.into()),
            },
            _ = sleep(wait) => {}
        }
        if sim.below(3) == 0 {
            sleep(Duration::from_micros(sim.below(3000))).await;
        }
    }
    Ok(())
}

/// `true`: the value was received. `false`: the other end is dropped; no other failure is possible, since no
/// node is lost here.
fn is_open(sent: Result<(), SendError<()>>) -> Result<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(SendError::NotTaken { why: Why::Closed, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn choices_over_four_nodes(seed: u64) {
    eprintln!("seed {seed}");
    let sim = Sim::new(seed);
    let log = Log::default();
    sim.run(async {
        let mut nodes = Vec::new();
        for _ in 0..N {
            nodes.push(Node::join("choices").await?);
        }
        let (board, mut reads) = channel::<Word>();
        let board = board.share();
        // From each node to the next two, and a call to the next one; made at any node.
        let (mut senders, mut receivers) = (BTreeMap::new(), BTreeMap::new());
        let (mut callers, mut callees) = (BTreeMap::new(), BTreeMap::new());
        for from in 0..N {
            for step in 1..=2 {
                let to = (from + step) % N;
                let (tx, rx) = channel::<Word>();
                let made = sim.below(N as u64) as usize;
                let name = format!("{from} to {to}");
                let tx = if made == from { tx } else { carry(tx, &nodes[made], &nodes[from], &name).await? };
                let name = format!("{to} from {from}");
                let rx = if made == to { rx } else { carry(rx, &nodes[made], &nodes[to], &name).await? };
                senders.insert((from, step), tx);
                receivers.insert((to, step), rx);
            }
            let to = (from + 1) % N;
            let (caller, callee) = dunlin::call::<Word, Word>();
            callers.insert(from, caller);
            callees.insert(to, carry(callee, &nodes[from], &nodes[to], &format!("calls of {from}")).await?);
        }
        let mut all: Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send>>> = Vec::new();
        for n in 0..N {
            let handle = board.clone();
            let handle =
                if n == 0 { handle } else { carry(handle, &nodes[0], &nodes[n], &format!("board {n}")).await? };
            let mut tx = |step| Wanderer::new(senders.remove(&(n, step)).unwrap(), n, format!("mouth {step} of {n}"));
            let mut rx = |step| Wanderer::new(receivers.remove(&(n, step)).unwrap(), n, format!("ear {step} of {n}"));
            let ends = Ends {
                tx: [tx(1), tx(2)],
                rx: [rx(1), rx(2)],
                board: handle,
                caller: callers.remove(&n).unwrap(),
                callee: Wanderer::new(callees.remove(&n).unwrap(), n, format!("callee of {n}")),
            };
            all.push(Box::pin(chooser(&sim, &nodes, ends, seed % 4 < 3, log.clone())));
        }
        drop(board);
        all.push(Box::pin(async {
            while let Some(word) = reads.next().await? {
                log.heard(word);
            }
            Ok(())
        }));
        all.push(Box::pin(async {
            for _ in 0..sim.below(4) {
                sleep(Duration::from_micros(sim.below(50_000))).await;
                let a = sim.below(N as u64) as usize;
                sim.cut(&nodes[a], &nodes[(a + 1 + sim.below(3) as usize) % N]);
            }
            Ok(())
        }));
        for done in all.into_iter().collect::<Par<_>>().await {
            done?;
        }
        nothing_is_left(&nodes).await
    })
    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    log.check(seed);
}

#[test]
fn choices_on_both_sides_at_four_nodes_make_progress() {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("DUNLIN_FIRST_SEED").unwrap_or(0);
    for seed in first..first + of("DUNLIN_SEEDS").unwrap_or(40) {
        choices_over_four_nodes(seed);
    }
}
