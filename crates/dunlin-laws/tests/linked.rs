//! The laws of unshared channels over a link. `DUNLIN_SEEDS=1000` runs more seeds.

mod support;

use std::cell::RefCell;
use std::rc::Rc;

use dunlin::{Choice, Operation, Policy, Receiver, SendError, Sender, fifo, unbounded};
use dunlin_laws::rig::{Random, cut_off};
use dunlin_laws::{Linked, Pushed, Rig, Transport, kinds, laws, run};

fn judge<X: Transport>(transport: &X) {
    support::judge(transport.name(), &run(transport, &kinds(), &laws()));
}

#[test]
fn two_halves_that_push_words() {
    judge(&Pushed);
}

#[test]
fn two_links_whose_wire_is_cut() {
    judge(&Linked::default());
}

/// The value's own number, and some more bytes.
type Message = (u64, Vec<u8>);

/// A value of this size takes several frames.
const LARGE: usize = 150_000;

/// The values that one seed's processes have sent and received, in order, on each channel.
#[derive(Default)]
struct Ledger {
    /// Finished sends: the number, and whether the value was taken.
    sent: Vec<(u64, bool)>,
    received: Vec<u64>,
}

/// A process with an end of each of two channels, which sends on one and receives on the other in every way
/// there is.
async fn process(rig: Rc<Seeded>, mut tx: Sender<Message>, mut rx: Receiver<Message>, own: Shelf, other: Shelf) {
    let mut number = 0;
    let mut slot = None;
    for _ in 0..12 {
        if slot.is_none() {
            number += 1;
            let size = if rig.large && rig.below(4) == 0 { LARGE } else { [0, 10, 1500][rig.below(3) as usize] };
            slot = Some((number, vec![0; size]));
        }
        let polls = rig.below(30) + 1;
        let got = match rig.below(8) {
            0 | 1 => cut_off(polls, rx.recv()).await.and_then(Result::ok),
            2 => cut_off(polls, rx.recv_extended()).await.and_then(Result::ok).map(|held| (held.0, Vec::new())),
            3 => {
                let value = slot.take().expect("it was just filled");
                let sent = tx.send(value).until(std::future::ready(())).await;
                record(&own, number, sent.is_ok());
                if let Err(SendError::Unknown { .. }) = sent {
                    panic!("the connection is never lost");
                }
                None
            }
            4 => {
                let (kept, post) = (number, tx.send_nowait(slot.take().expect("it was just filled")));
                let back = post.cancel().await.expect("the channel lives");
                record(&own, kept, back.is_none());
                None
            }
            5 => {
                let choice = Choice::fair().on(rx.recv(), |got| got.ok()).on(tx.send_from(&mut slot), |_| None);
                let got = cut_off(polls, choice.into_future()).await.and_then(|(_, got)| got);
                settle(&mut tx, &mut slot, &own, number).await;
                got
            }
            6 => {
                let choice = Choice::prioritised().on(tx.send_from(&mut slot), |_| None).on(rx.recv(), |got| got.ok());
                let got = cut_off(polls, choice.into_future()).await.and_then(|(_, got)| got);
                settle(&mut tx, &mut slot, &own, number).await;
                got
            }
            _ => {
                let _ = cut_off(polls, tx.send_from(&mut slot)).await;
                settle(&mut tx, &mut slot, &own, number).await;
                None
            }
        };
        other.borrow_mut().received.extend(got.map(|(number, _)| number));
    }
    drop(tx);
    // Receives what the other process still sends, until that ends.
    while let Some(got) = rx.next().await.expect("the connection is never lost") {
        other.borrow_mut().received.push(got.0);
    }
}

type Shelf = Rc<RefCell<Ledger>>;

fn record(ledger: &Shelf, number: u64, taken: bool) {
    ledger.borrow_mut().sent.push((number, taken));
}

/// Settles a send that may have been dropped. A value that was not taken is given up.
async fn settle(tx: &mut Sender<Message>, slot: &mut Option<Message>, ledger: &Shelf, number: u64) {
    let was_empty = slot.is_none();
    tx.settle(slot).await.expect("the connection is never lost");
    let taken = was_empty && slot.is_none();
    record(ledger, number, taken);
    // Each number belongs to one send.
    *slot = None;
}

/// Random numbers of a run, apart from the rig's own.
struct Seeded {
    random: RefCell<Random>,
    /// Whether some values are large.
    large: bool,
}

impl Seeded {
    fn below(&self, n: u64) -> u64 {
        self.random.borrow_mut().below(n)
    }
}

/// Random programs of two processes over two links whose wire is cut: each value whose send was `Ok`, and no
/// other, is received once and in order, and no half of a channel is left. `DUNLIN_PROGRAMS=100000` runs that
/// many programs.
#[test]
fn random_programs_neither_lose_nor_duplicate_values() {
    let number = |name: &str| std::env::var(name).ok().map(|n| n.parse::<u64>().expect("a number"));
    let first = number("DUNLIN_SEED").unwrap_or(0);
    let count = number("DUNLIN_PROGRAMS").unwrap_or(300);
    for seed in first..first + count {
        let large = seed % 3 == 0;
        let transport = if large { Linked::in_pieces(40_000) } else { Linked::default() };
        let rig = Rig::new(seed);
        transport.begin(&rig, seed);
        let seeded = Rc::new(Seeded { random: RefCell::new(Random::new(seed ^ 0xd0_0d)), large });
        let policy = [Policy::default(), fifo(1), fifo(3), unbounded()][(seed % 4) as usize].clone();
        let [one, two] = [(); 2].map(|()| transport.channel(policy.clone(), &mut |_| {}));
        let ledgers: [Shelf; 2] = Default::default();
        let [a, b] = &ledgers;
        // The first channel goes from one link to the other, the second one back.
        let first = rig.spawn(process(seeded.clone(), one.0, two.1, a.clone(), b.clone()));
        let second = rig.spawn(process(seeded, two.0, one.1, b.clone(), a.clone()));
        rig.settle();
        assert!(first.is_done() && second.is_done(), "seed {seed}: a process waits for ever");
        assert_eq!(transport.halves(), [0, 0], "seed {seed}: halves are left");
        transport.end();
        for ledger in &ledgers {
            let ledger = ledger.borrow();
            let taken: Vec<u64> = ledger.sent.iter().filter(|(_, taken)| *taken).map(|(number, _)| *number).collect();
            assert_eq!(ledger.received, taken, "seed {seed}: received, and sent with Ok");
        }
    }
}
