//! Values with ends in them that travel from one node to another through a third one, which keeps the shared
//! end between the two: in simulations, with random schedules, deadlines, choices, claims, and cut
//! connections. Each end is where its value was received, or unchanged with its sender; it works there, and
//! nothing of it is left in between.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use dunlin::Operation;
use dunlin::node::Encoding;
use dunlin::prelude::*;
use dunlin::sim::Sim;
use serde::{Deserialize, Serialize};

use crate::support::{carry, nothing_is_left};

/// An end that travels; its holder receives, sends or asks a number with it.
#[derive(Debug, Serialize, Deserialize)]
enum Cargo {
    Says(Sender<u32>),
    Hears(Receiver<u32>),
    Shared(Shared<Sender<u32>>),
    SharedHears(Shared<Receiver<u32>>),
    Asks(Caller<u32, u32>),
    /// Both ends of a channel.
    Both(Sender<u32>, Receiver<u32>),
    /// An end in a channel's place for ends.
    Deep(Vec<(u8, Option<Sender<Sender<u32>>>)>),
}

/// The other end, which the sender of the parcel keeps.
enum Stub {
    Says(Sender<u32>),
    Hears(Receiver<u32>),
    Answers(Callee<u32, u32>),
    Nothing,
    Deep(Receiver<Sender<u32>>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Parcel {
    number: u32,
    cargo: Cargo,
}

fn pack(sim: &Sim, number: u32) -> (Parcel, Stub) {
    let (tx, rx) = if sim.below(4) == 0 { channel_with(fifo(2)) } else { channel::<u32>() };
    let (cargo, stub) = match sim.below(7) {
        0 => (Cargo::Says(tx), Stub::Hears(rx)),
        1 => (Cargo::Hears(rx), Stub::Says(tx)),
        2 => (Cargo::Shared(tx.share()), Stub::Hears(rx)),
        3 => (Cargo::SharedHears(rx.share()), Stub::Says(tx)),
        4 => {
            let (asks, answers) = dunlin::call();
            (Cargo::Asks(asks), Stub::Answers(answers))
        }
        5 => (Cargo::Both(tx, rx), Stub::Nothing),
        _ => {
            let (tx, rx) = channel();
            (Cargo::Deep(vec![(1, None), (2, Some(tx))]), Stub::Deep(rx))
        }
    };
    (Parcel { number, cargo }, stub)
}

fn wrong(what: impl std::fmt::Debug) -> dunlin::Error {
    Error::other(format!("{what:?}"))
}

impl Parcel {
    async fn used(self) -> Result {
        let Self { number, cargo } = self;
        let number = &number;
        let heard = match cargo {
            Cargo::Says(mut tx) => return tx.send(*number).await.map_err(wrong),
            Cargo::Shared(mut tx) => return tx.send(*number).await.map_err(wrong),
            Cargo::Hears(mut rx) => rx.recv().await?,
            Cargo::SharedHears(mut rx) => rx.recv().await?,
            Cargo::Asks(mut asks) => asks.call(*number).await.map_err(wrong)?,
            Cargo::Both(mut tx, mut rx) => {
                let (sent, heard) = par!(tx.send(*number), rx.recv());
                sent.map_err(wrong)?;
                heard?
            }
            Cargo::Deep(mut ends) => {
                let Some((2, Some(mut to))) = ends.pop() else { return Err(wrong(ends)) };
                let (tx, mut rx) = channel();
                // The drop of the returned sender ends `rx`.
                let sends = async { to.send(tx).await.map_err(|error| wrong(error.why())) };
                let (sent, heard) = par!(sends, rx.recv());
                sent?;
                heard?
            }
        };
        if heard == *number { Ok(()) } else { Err(wrong((heard, number))) }
    }
}

impl Stub {
    async fn used(self, number: u32) -> Result {
        let heard = match self {
            Self::Says(mut tx) => return tx.send(number).await.map_err(wrong),
            Self::Nothing => return Ok(()),
            Self::Hears(mut rx) => rx.recv().await?,
            Self::Answers(mut answers) => {
                let request = answers.accept().await?;
                let asked = *request;
                request.reply(asked).map_err(wrong)?;
                asked
            }
            Self::Deep(mut rx) => return rx.recv().await?.send(number).await.map_err(wrong),
        };
        if heard == number { Ok(()) } else { Err(wrong((heard, number))) }
    }
}

#[derive(Clone, Default)]
struct Log {
    sent: Arc<Mutex<BTreeSet<u32>>>,
    received: Arc<Mutex<Vec<u32>>>,
    /// The parcels whose ends were dropped when they were received.
    dropped: Arc<Mutex<BTreeSet<u32>>>,
    uses: Arc<Mutex<Vec<Process<Result>>>>,
}

impl Log {
    /// Uses it at once, beside all else.
    fn uses(&self, used: impl Future<Output = Result> + Send + 'static) {
        self.uses.lock().unwrap().push(dunlin::spawn(used));
    }

    fn received(&self, sim: &Sim, parcel: Parcel) {
        self.received.lock().unwrap().push(parcel.number);
        if sim.below(4) == 0 {
            self.dropped.lock().unwrap().insert(parcel.number);
        } else {
            self.uses(parcel.used());
        }
    }

    /// Like `became`, where nodes are lost: a sender with an unknown outcome has its value back, and the
    /// receiver may have received it, too. One of them can use it.
    fn may_have_become(&self, number: u32, sent: Result<(), SendError<Parcel>>, stub: Stub) {
        let value = match sent {
            Ok(()) => {
                self.sent.lock().unwrap().insert(number);
                None
            }
            Err(SendError::NotTaken { value, .. } | SendError::Unknown { value, .. }) => Some(value),
        };
        self.uses(async move {
            let value = async {
                match value {
                    Some(value) => value.used().await,
                    None => Ok(()),
                }
            };
            // Each of them ends.
            let _ = par!(value, stub.used(number));
            Ok(())
        });
    }

    /// Checks the outcome of a parcel.
    fn became(&self, number: u32, sent: Result<(), SendError<Parcel>>, stub: Stub) -> Result {
        match sent {
            Ok(()) => {
                self.sent.lock().unwrap().insert(number);
                let dropped = self.dropped.clone();
                self.uses(async move {
                    match stub.used(number).await {
                        // The drop of the other end ended it.
                        Err(_) if dropped.lock().unwrap().contains(&number) => Ok(()),
                        used => used,
                    }
                });
            }
            Err(SendError::NotTaken { value, why: dunlin::Why::TimedOut }) => self.uses(async move {
                let (one, other) = par!(value.used(), stub.used(number));
                one?;
                other
            }),
            Err(other) => return Err(wrong((number, other))),
        }
        Ok(())
    }

    async fn all_used(&self) -> Result {
        loop {
            let Some(next) = self.uses.lock().unwrap().pop() else { return Ok(()) };
            next.await.map_err(wrong)??;
        }
    }

    fn check(&self) {
        let mut received = self.received.lock().unwrap().clone();
        received.sort_unstable();
        let sent: Vec<u32> = self.sent.lock().unwrap().iter().copied().collect();
        assert_eq!(received, sent);
        assert!(sent.len() > 1, "{sent:?}");
    }
}

async fn pause(sim: &Sim, at_most: u64) {
    sleep(Duration::from_micros(sim.below(at_most) + 1)).await;
}

/// Sends, with and without deadlines, by itself and as a branch.
macro_rules! send_some {
    ($sim:expr, $tx:expr, $first:expr, $log:expr) => {
        for number in $first..$first + 12 {
            let (parcel, stub) = pack($sim, number);
            let wait = Duration::from_micros($sim.below(9000));
            let sent = match $sim.below(3) {
                0 => $tx.send(parcel).await,
                1 => $tx.send(parcel).within(wait).await,
                _ => {
                    let mut slot = Some(parcel);
                    let sent = alt! {
                        sent = $tx.send_from(&mut slot) => Some(sent),
                        _ = sleep(wait) => None,
                    };
                    match (sent, slot) {
                        (Some(Ok(())), None) => Ok(()),
                        (None, Some(value)) => Err(SendError::NotTaken { value, why: dunlin::Why::TimedOut }),
                        (sent, slot) => {
                            return Err(wrong((sent.map(|sent| sent.map_err(|error| error.to_string())), slot)));
                        }
                    }
                }
            };
            $log.became(number, sent, stub)?;
            if $sim.below(3) == 0 {
                pause($sim, 4000).await;
            }
        }
    };
}

async fn mouth(sim: &Sim, mut tx: Sender<Parcel>, first: u32, log: Log) -> Result {
    send_some!(sim, tx, first, log);
    Ok(())
}

async fn voice(sim: &Sim, mut tx: Shared<Sender<Parcel>>, first: u32, log: Log) -> Result {
    if sim.below(2) == 0 {
        send_some!(sim, tx, first, log);
    } else {
        let mut tx = tx.claim().await.map_err(wrong)?;
        send_some!(sim, tx, first, log);
    }
    Ok(())
}

async fn ear(sim: &Sim, mut rx: Shared<Receiver<Parcel>>, log: Log) -> Result {
    loop {
        let wait = Duration::from_micros(sim.below(9000));
        let heard = match sim.below(5) {
            0 => rx.recv().await,
            1 => rx.recv().within(wait).await,
            2 => match rx.recv_extended().await {
                Ok(held) => {
                    if sim.below(2) == 0 {
                        pause(sim, 3000).await;
                    }
                    Ok(held.release())
                }
                Err(error) => Err(error),
            },
            3 => alt! {
                parcel = rx.recv() => parcel,
                _ = sleep(wait) => Err(RecvError::TimedOut),
            },
            _ => match rx.claim().within(Duration::from_millis(1 + sim.below(100))).await {
                Ok(mut held) => held.recv().within(wait).await,
                Err(_) => continue,
            },
        };
        match heard {
            Ok(parcel) => log.received(sim, parcel),
            Err(RecvError::TimedOut) => {}
            Err(RecvError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

async fn cuts(sim: &Sim, nodes: &[Node]) -> Result {
    let count = nodes.len() as u64;
    for _ in 0..sim.below(4) {
        pause(sim, 20_000).await;
        let a = sim.below(count);
        let b = (a + 1 + sim.below(count - 1)) % count;
        sim.cut(&nodes[a as usize], &nodes[b as usize]);
    }
    Ok(())
}

type All<'a> = Vec<std::pin::Pin<Box<dyn Future<Output = Result> + Send + 'a>>>;

async fn all(processes: All<'_>) -> Result {
    for done in processes.into_iter().collect::<Par<_>>().await {
        done?;
    }
    Ok(())
}

fn for_all_seeds(few: u64, run: impl Fn(&Sim, Log) -> Result) {
    let of = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = of("DUNLIN_FIRST_SEED").unwrap_or(0);
    for seed in first..first + of("DUNLIN_SEEDS").unwrap_or(few) {
        let log = Log::default();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&Sim::new(seed), log.clone())));
        match done {
            Ok(Ok(())) => {}
            Ok(Err(error)) => panic!("seed {seed}: {error}"),
            Err(_) => panic!("seed {seed} panicked"),
        }
    }
}

/// The keeper of the receiver, its sender, and handles at two more nodes, or at the sender's.
#[test]
fn ends_pass_through_the_keeper_of_a_shared_receiver() {
    for_all_seeds(100, |sim, log| {
        sim.run(async {
            let mut nodes = Vec::new();
            for _ in 0..4 {
                nodes.push(Node::join("through").await?);
            }
            let (tx, rx) = channel::<Parcel>();
            let keeper = rx.share();
            let tx = carry(tx, &nodes[0], &nodes[1], "mouth").await?;
            let mut processes: All<'_> = vec![Box::pin(mouth(sim, tx, 0, log.clone())), Box::pin(cuts(sim, &nodes))];
            for (n, node) in nodes.iter().enumerate().skip(1 + sim.below(2) as usize) {
                let handle = carry(keeper.clone(), &nodes[0], node, &format!("handle {n}")).await?;
                processes.push(Box::pin(ear(sim, handle, log.clone())));
            }
            if sim.below(3) == 0 {
                processes.push(Box::pin(ear(sim, keeper, log.clone())));
            } else {
                drop(keeper);
            }
            all(processes).await?;
            log.all_used().await?;
            log.check();
            nothing_is_left(&nodes).await
        })
    });
}

/// The keeper of the sender, handles at other nodes, and the receiver at yet another one; it may be shared
/// there, with handles elsewhere, so that two keepers are in between.
#[test]
fn ends_pass_through_the_keeper_of_a_shared_sender() {
    for_all_seeds(100, |sim, log| {
        sim.run(async {
            let mut nodes = Vec::new();
            for _ in 0..5 {
                nodes.push(Node::join("through").await?);
            }
            let (tx, rx) = channel::<Parcel>();
            let keeper = tx.share();
            let ear_keeper = carry(rx, &nodes[0], &nodes[1], "ear").await?.share();
            let mut processes: All<'_> = vec![Box::pin(cuts(sim, &nodes))];
            for (n, node) in nodes.iter().enumerate().skip(2).take(2) {
                let handle = carry(keeper.clone(), &nodes[0], node, &format!("handle {n}")).await?;
                processes.push(Box::pin(voice(sim, handle, 100 * n as u32, log.clone())));
            }
            if sim.below(3) == 0 {
                processes.push(Box::pin(voice(sim, keeper, 0, log.clone())));
            } else {
                drop(keeper);
            }
            if sim.below(2) == 0 {
                let handle = carry(ear_keeper.clone(), &nodes[1], &nodes[4], "far ear").await?;
                processes.push(Box::pin(ear(sim, handle, log.clone())));
            }
            processes.push(Box::pin(ear(sim, ear_keeper, log.clone())));
            all(processes).await?;
            log.all_used().await?;
            log.check();
            nothing_is_left(&nodes).await
        })
    });
}

/// The keeper, or the receiver's node, is lost at any moment: no operation waits for ever, and each value
/// that is known to have been sent was received, once.
#[test]
fn ends_in_transit_survive_a_lost_node_or_fail() {
    for_all_seeds(100, |sim, log| {
        sim.run(async {
            let mut nodes = Vec::new();
            for _ in 0..4 {
                nodes.push(Node::join("through").await?);
            }
            let (tx, rx) = channel::<Parcel>();
            let keeper = rx.share();
            let mut tx = carry(tx, &nodes[0], &nodes[1], "mouth").await?;
            let mut processes: All<'_> = Vec::new();
            for n in 2..4 {
                let mut handle = carry(keeper.clone(), &nodes[0], &nodes[n], &format!("handle {n}")).await?;
                let log = log.clone();
                processes.push(Box::pin(async move {
                    while let Ok(parcel) = handle.recv().await {
                        log.received.lock().unwrap().push(parcel.number);
                        let used = parcel.used();
                        log.uses(async {
                            let _ = used.await;
                            Ok(())
                        });
                    }
                    Ok(())
                }));
            }
            let says = log.clone();
            processes.push(Box::pin(async move {
                for number in 0..12 {
                    let (parcel, stub) = pack(sim, number);
                    says.may_have_become(number, tx.send(parcel).await, stub);
                    if sim.below(3) == 0 {
                        pause(sim, 4000).await;
                    }
                }
                Ok(())
            }));
            processes.push(Box::pin(async {
                pause(sim, 30_000).await;
                let lost = if sim.below(2) == 0 { 0 } else { 2 };
                for other in (0..nodes.len()).filter(|other| *other != lost) {
                    sim.part(&nodes[lost], &nodes[other]);
                }
                drop(keeper);
                Ok(())
            }));
            all(processes).await?;
            log.all_used().await?;
            let mut received = log.received.lock().unwrap().clone();
            received.sort_unstable();
            let count = received.len();
            received.dedup();
            if received.len() < count || log.sent.lock().unwrap().iter().any(|sent| !received.contains(sent)) {
                return Err(wrong((received, &log.sent)));
            }
            Ok(())
        })
    });
}

/// The value was refused for this reason, and not received: its end stays where it was and works.
async fn is_refused(
    sends: impl Future<Output = Result<(), SendError<Parcel>>>,
    receives: impl Operation<Output = Result<Parcel, RecvError>>,
    ear: &mut Receiver<u32>,
    reason: &str,
) -> Result {
    let (sent, received) = par!(sends, receives.within(Duration::from_secs(1)));
    let Err(SendError::NotTaken { value, why: Why::Unsendable(why) }) = sent else { return Err(wrong(sent)) };
    assert_eq!(why.to_string(), reason);
    assert_eq!(received.map(|parcel| parcel.number), Err(RecvError::TimedOut));
    let (used, heard) = par!(value.used(), ear.recv());
    used?;
    assert_eq!(heard, Ok(1));
    Ok(())
}

/// A parcel with a sender in it, and the sender's receiver.
fn with_sender() -> (Parcel, Receiver<u32>) {
    let (tx, rx) = channel();
    (Parcel { number: 1, cargo: Cargo::Says(tx) }, rx)
}

/// A shared receiver is declared with one encoding, and a handle of it travels over a channel with another
/// one: only the keeper can receive values with an end.
#[test]
fn handle_with_another_encoding_refuses_a_value_with_an_end() {
    let done = Sim::new(1).run(async {
        let (a, b, c) = (Node::join("through").await?, Node::join("through").await?, Node::join("through").await?);
        let mut tx = a.sender::<Parcel>("parcels").encoding(Encoding::Compact).await?;
        let mut keeper = b.receiver::<Parcel>("parcels").encoding(Encoding::Compact).shared().await?;
        let mut handle = carry(keeper.clone(), &b, &c, "handle").await?;
        let (parcel, mut ear) = with_sender();
        let reason = "a value that contains an end is forwarded to another node as it was encoded, and the two \
                      channels have different encodings: send the handles of the shared end over channels of the \
                      encoding that the end was declared with";
        is_refused(tx.send(parcel), handle.recv(), &mut ear, reason).await?;
        // The keeper itself receives it.
        let (parcel, mut ear) = with_sender();
        let (sent, received) = par!(tx.send(parcel), keeper.recv());
        sent.map_err(wrong)?;
        let (used, heard) = par!(received?.used(), ear.recv());
        used?;
        assert_eq!(heard, Ok(1));
        drop((tx, keeper, handle));
        nothing_is_left(&[a, b, c]).await
    });
    done.unwrap();
}

/// The receiver of a shared sender has returned to the keeper: values with an end from a handle elsewhere
/// cannot arrive there.
#[test]
fn value_with_an_end_cannot_return_to_its_keeper() {
    let done = Sim::new(1).run(async {
        let (a, b, c) = (Node::join("through").await?, Node::join("through").await?, Node::join("through").await?);
        let (tx, rx) = channel::<Parcel>();
        let keeper = tx.share();
        let away = carry(rx, &b, &c, "away").await?;
        let mut back = carry(away, &c, &b, "back").await?;
        let mut handle = carry(keeper.clone(), &b, &a, "handle").await?;
        let (parcel, mut ear) = with_sender();
        let reason = "a value that contains an end cannot return to the node of the shared end over a channel that \
                      has travelled and has both ends there: make a new channel there";
        is_refused(handle.send(parcel), back.recv(), &mut ear, reason).await?;
        drop((keeper, handle, back));
        nothing_is_left(&[a, b, c]).await
    });
    done.unwrap();
}
