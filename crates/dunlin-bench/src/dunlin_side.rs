//! dunlin's own side: as a [`Library`] whose processes are spawned, and the same programs inside `par!`.

use std::fmt::Debug;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use dunlin::prelude::*;

use crate::library::{Library, Received};
use crate::memory;
use crate::program::Program;
use crate::programs::{
    consumer, copy, delta, eager_writer, eight_channels, nanoseconds_each, ping, prefix, reader_of_any,
    reader_of_turns, ring_leader, ring_rounds, successor, writer_in_turn,
};

/// All processes in one task, by `par!` or a `Par` collection.
pub(crate) const PAR: &str = "dunlin par";
/// All processes spawned.
pub(crate) const SPAWN: &str = "dunlin spawn";

pub(crate) struct Dunlin;

impl Library for Dunlin {
    const NAME: &'static str = SPAWN;
    type Tx = Sender<u64>;
    type Rx = Receiver<u64>;

    fn channel() -> (Self::Tx, Self::Rx) {
        dunlin::channel()
    }

    fn send(tx: &mut Self::Tx, value: u64) -> impl Future<Output = Result<(), impl Debug>> + Send {
        tx.send(value)
    }

    fn recv(rx: &mut Self::Rx) -> impl Future<Output: Received> + Send {
        rx.recv()
    }

    fn spawn<F>(process: F) -> impl Future<Output = Result<(), impl Debug>> + Send
    where
        F: Future<Output = ()> + Send + 'static,
    {
        dunlin::spawn(process)
    }

    async fn choose(rxs: &mut [Self::Rx; 8]) -> Option<u64> {
        let [a, b, c, d, e, f, g, h] = rxs;
        alt! {
            v = a.recv() => v.value(),
            v = b.recv() => v.value(),
            v = c.recv() => v.value(),
            v = d.recv() => v.value(),
            v = e.recv() => v.value(),
            v = f.recv() => v.value(),
            v = g.recv() => v.value(),
            v = h.recv() => v.value(),
        }
    }
}

/// Runs `program` with all its processes in one task, on this thread, and returns its figure.
pub(crate) fn par(program: Program, n: u64) -> anyhow::Result<f64> {
    Ok(match program {
        Program::Commstime => nanoseconds_each(dunlin::block_on(commstime(n)), 4 * n),
        Program::Pingpong => nanoseconds_each(dunlin::block_on(pingpong(n)), n),
        Program::ChoiceReady => nanoseconds_each(dunlin::block_on(choice_ready(n)), n),
        Program::ChoiceWaits => nanoseconds_each(dunlin::block_on(choice_waits(n)), n),
        Program::Spawn => nanoseconds_each(dunlin::block_on(branches(n)), n),
        Program::Ring => nanoseconds_each(dunlin::block_on(ring(n)), ring_rounds(n) * n),
        Program::Memory => dunlin::block_on(parked_branches(n))?,
        program => anyhow::bail!("{program} is not for one process"),
    })
}

/// `n` cycles of four communications.
pub(crate) async fn commstime(n: u64) -> Duration {
    let (to_delta, from_prefix) = channel();
    let (to_successor, from_delta) = channel();
    let (to_prefix, from_successor) = channel();
    let (to_consumer, counted) = channel();
    let start = Instant::now();
    par!(
        prefix::<Dunlin>(from_successor, to_delta),
        delta::<Dunlin>(from_prefix, to_successor, to_consumer),
        successor::<Dunlin>(from_delta, to_prefix),
        consumer::<Dunlin>(counted, n),
    );
    start.elapsed()
}

async fn pingpong(n: u64) -> Duration {
    let (there, from_ping) = channel();
    let (to_ping, back) = channel();
    let start = Instant::now();
    par!(copy::<Dunlin>(from_ping, to_ping), ping::<Dunlin>(there, back, n));
    start.elapsed()
}

/// The processes of a choice. One type, so that all of them can be branches of one flat `Par`.
enum Party {
    EagerWriter(Sender<u64>),
    WriterInTurn { first: bool, mine: Receiver<u64>, event: Sender<u64>, next: Sender<u64> },
    ReaderOfAny([Receiver<u64>; 8], u64),
    ReaderOfTurns([Receiver<u64>; 8], u64),
}

impl Party {
    async fn run(self) {
        match self {
            Self::EagerWriter(event) => eager_writer::<Dunlin>(event).await,
            Self::WriterInTurn { first, mine, event, next } => {
                writer_in_turn::<Dunlin>(first, mine, event, next).await;
            }
            Self::ReaderOfAny(events, n) => reader_of_any::<Dunlin>(events, n).await,
            Self::ReaderOfTurns(events, n) => reader_of_turns::<Dunlin>(events, n).await,
        }
    }
}

async fn choice_ready(n: u64) -> Duration {
    let (writers, events) = eight_channels::<Dunlin>();
    let start = Instant::now();
    let writers = writers.into_iter().map(Party::EagerWriter);
    writers.chain([Party::ReaderOfAny(events, n)]).map(Party::run).collect::<Par<_>>().await;
    start.elapsed()
}

async fn choice_waits(n: u64) -> Duration {
    let (writers, events) = eight_channels::<Dunlin>();
    let (mut turns, mine) = eight_channels::<Dunlin>();
    // Each writer sends to the turn channel of the next one.
    turns.rotate_left(1);
    let start = Instant::now();
    let writers = mine.into_iter().zip(writers).zip(turns).enumerate();
    let writers = writers.map(|(i, ((mine, event), next))| Party::WriterInTurn { first: i == 0, mine, event, next });
    writers.chain([Party::ReaderOfTurns(events, n)]).map(Party::run).collect::<Par<_>>().await;
    start.elapsed()
}

async fn branches(n: u64) -> Duration {
    let start = Instant::now();
    (0..n).map(|_| async {}).collect::<Par<_>>().await;
    start.elapsed()
}

async fn ring(n: u64) -> Duration {
    // Process i receives from channel i and sends to the next; the leader is process 0.
    let (mut outputs, inputs): (Vec<_>, Vec<_>) = (0..n).map(|_| channel()).unzip();
    outputs.rotate_left(1);
    let mut leader_time = Duration::ZERO;
    let mut leader = Some(&mut leader_time);
    let processes = inputs.into_iter().zip(outputs).map(|(input, output)| {
        let leader = leader.take();
        async move {
            match leader {
                Some(time) => *time = ring_leader::<Dunlin>(input, output, ring_rounds(n)).await,
                None => copy::<Dunlin>(input, output).await,
            }
        }
    });
    processes.collect::<Par<_>>().await;
    leader_time
}

async fn parked_branches(n: u64) -> anyhow::Result<f64> {
    let mut ends = memory::places(n);
    let before = memory::resident_bytes()?;
    let processes = ends.iter_mut().map(|end| {
        let (tx, mut rx) = channel::<u64>();
        *end = Some(tx);
        async move {
            memory::one_waits();
            rx.recv().await
        }
    });
    let mut all = pin!(processes.collect::<Par<_>>());
    // A `Par` may yield before all its branches have run once.
    std::future::poll_fn(|cx| {
        assert!(all.as_mut().poll(cx).is_pending(), "nobody sends to the parked processes");
        if memory::all_wait(n) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    let after = memory::resident_bytes()?;
    // The ends live until here; otherwise the processes would have ended instead of waiting.
    drop(ends);
    Ok(memory::bytes_each(before, after, n))
}
