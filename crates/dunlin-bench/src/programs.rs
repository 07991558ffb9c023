//! The programs, written once for all Rust channels; `peers/go/main.go` and `peers/erlang/dunlin_peer.erl`
//! are equivalent.
//!
//! First the processes, which `dunlin_side` also runs inside `par!`, then the programs, which spawn them. A
//! process ends when one of its channels has ended, so the end of the measuring process ends all the others.

use std::time::{Duration, Instant};

use crate::library::{Library, Received};
use crate::memory;
use crate::program::Program;

/// Forwards the values that it receives.
pub(crate) async fn copy<L: Library>(mut input: L::Rx, mut output: L::Tx) {
    while let Some(value) = L::recv(&mut input).await.value() {
        if L::send(&mut output, value).await.is_err() {
            return;
        }
    }
}

/// Sends a zero, then forwards the values that it receives.
pub(crate) async fn prefix<L: Library>(mut input: L::Rx, mut output: L::Tx) {
    if L::send(&mut output, 0).await.is_err() {
        return;
    }
    while let Some(value) = L::recv(&mut input).await.value() {
        if L::send(&mut output, value).await.is_err() {
            return;
        }
    }
}

/// Sends each received value to both outputs, one after the other.
pub(crate) async fn delta<L: Library>(mut input: L::Rx, mut first: L::Tx, mut second: L::Tx) {
    while let Some(value) = L::recv(&mut input).await.value() {
        if L::send(&mut first, value).await.is_err() || L::send(&mut second, value).await.is_err() {
            return;
        }
    }
}

/// Sends each received value plus one.
pub(crate) async fn successor<L: Library>(mut input: L::Rx, mut output: L::Tx) {
    while let Some(value) = L::recv(&mut input).await.value() {
        if L::send(&mut output, value + 1).await.is_err() {
            return;
        }
    }
}

/// Receives 0, 1, ..., n - 1: a channel that loses or doubles a value must not appear fast.
pub(crate) async fn consumer<L: Library>(mut input: L::Rx, n: u64) {
    for expected in 0..n {
        assert_eq!(L::recv(&mut input).await.value(), Some(expected));
    }
}

/// Makes `n` round trips.
pub(crate) async fn ping<L: Library>(mut there: L::Tx, mut back: L::Rx, n: u64) {
    for value in 0..n {
        L::send(&mut there, value).await.expect("the other process outlives this one");
        assert_eq!(L::recv(&mut back).await.value(), Some(value));
    }
}

/// Sends as often as the reader receives. The reader still waits at times, when it was faster than all the
/// writers: in Go, with a count added to the program, at every other choice.
pub(crate) async fn eager_writer<L: Library>(mut event: L::Tx) {
    let mut value = 0;
    while L::send(&mut event, value).await.is_ok() {
        value += 1;
    }
}

/// Receives `n` values from any writer that is ready.
pub(crate) async fn reader_of_any<L: Library>(mut events: [L::Rx; 8], n: u64) {
    for _ in 0..n {
        L::choose(&mut events).await.expect("the writers outlive the reader");
    }
}

/// Sends one event when it has the turn, then passes the turn on. The first writer begins with the turn.
///
/// Turns pass from writer to writer, not through the reader, because only then should a reader of a true
/// rendezvous wait each time: the writer's send returns, and the turn moves on, once the reader has its
/// value. (If the reader answered the writer, the next event could arrive before the reader's own send had
/// returned.) In Go, where a send to a waiting receiver returns earlier, the reader waits at every other
/// choice (counted), and the figure is about a tenth lower than when the reader answers. Buffered channels
/// let several events queue up. So this program favours the peers.
pub(crate) async fn writer_in_turn<L: Library>(first: bool, mut mine: L::Rx, mut event: L::Tx, mut next: L::Tx) {
    let mut turn = if first { Some(0) } else { L::recv(&mut mine).await.value() };
    while let Some(value) = turn {
        if L::send(&mut event, value).await.is_err() || L::send(&mut next, value + 1).await.is_err() {
            return;
        }
        turn = L::recv(&mut mine).await.value();
    }
}

/// Receives `n` values, each from another writer. A rendezvous delivers them in order. If a send returns
/// before its value is received, a choice may take values out of order, but never by more than each writer
/// can have in flight.
pub(crate) async fn reader_of_turns<L: Library>(mut events: [L::Rx; 8], n: u64) {
    const UNDER_WAY_MAX: u64 = 2 * 8;
    for expected in 0..n {
        let value = L::choose(&mut events).await.expect("the writers outlive the reader");
        assert!(value.abs_diff(expected) <= UNDER_WAY_MAX, "expected about {expected}, received {value}");
    }
}

/// Sends the token round, first once to warm up, so that all processes have run. Returns the time of `rounds`
/// further rounds.
pub(crate) async fn ring_leader<L: Library>(mut input: L::Rx, mut output: L::Tx, rounds: u64) -> Duration {
    let mut start = Instant::now();
    for round in 0..=rounds {
        if round == 1 {
            start = Instant::now();
        }
        L::send(&mut output, round).await.expect("the ring outlives its leader");
        assert_eq!(L::recv(&mut input).await.value(), Some(round));
    }
    start.elapsed()
}

/// How often the token goes round `n` processes, so that there are about a million hops.
pub(crate) fn ring_rounds(n: u64) -> u64 {
    (1_000_000 / n).max(1)
}

/// Eight of something.
pub(crate) fn eight<T>(make: impl FnMut(usize) -> T) -> [T; 8] {
    std::array::from_fn(make)
}

/// Eight channels, as all the senders and all the receivers.
pub(crate) fn eight_channels<L: Library>() -> ([L::Tx; 8], [L::Rx; 8]) {
    let mut receivers = Vec::with_capacity(8);
    let senders = eight(|_| {
        let (tx, rx) = L::channel();
        receivers.push(rx);
        tx
    });
    let mut receivers = receivers.into_iter();
    (senders, eight(|_| receivers.next().expect("one receiver was made with each sender")))
}

/// Nanoseconds for each of `events`.
pub(crate) fn nanoseconds_each(time: Duration, events: u64) -> f64 {
    time.as_nanos() as f64 / events as f64
}

/// Runs `program` with spawned processes and returns its figure. Call it on a worker of the measured runtime.
pub(crate) async fn spawned<L: Library>(program: Program, n: u64) -> anyhow::Result<f64> {
    Ok(match program {
        Program::Commstime => nanoseconds_each(commstime::<L>(n).await, 4 * n),
        Program::Pingpong => nanoseconds_each(pingpong::<L>(n).await, n),
        Program::ChoiceReady => nanoseconds_each(choice_ready::<L>(n).await, n),
        Program::ChoiceWaits => nanoseconds_each(choice_waits::<L>(n).await, n),
        Program::Spawn => nanoseconds_each(spawn::<L>(n).await, n),
        Program::Ring => nanoseconds_each(ring::<L>(n, ring_rounds(n)).await, ring_rounds(n) * n),
        Program::Memory => memory::spawned::<L>(n).await?,
        program => anyhow::bail!("{program} is not for one process"),
    })
}

async fn commstime<L: Library>(n: u64) -> Duration {
    let (to_delta, from_prefix) = L::channel();
    let (to_successor, from_delta) = L::channel();
    let (to_prefix, from_successor) = L::channel();
    let (to_consumer, counted) = L::channel();
    let start = Instant::now();
    fork::<L>(prefix::<L>(from_successor, to_delta));
    fork::<L>(delta::<L>(from_prefix, to_successor, to_consumer));
    fork::<L>(successor::<L>(from_delta, to_prefix));
    consumer::<L>(counted, n).await;
    start.elapsed()
}

async fn pingpong<L: Library>(n: u64) -> Duration {
    let (there, from_ping) = L::channel();
    let (to_ping, back) = L::channel();
    let start = Instant::now();
    fork::<L>(copy::<L>(from_ping, to_ping));
    ping::<L>(there, back, n).await;
    start.elapsed()
}

async fn choice_ready<L: Library>(n: u64) -> Duration {
    let (writers, events) = eight_channels::<L>();
    let start = Instant::now();
    for event in writers {
        fork::<L>(eager_writer::<L>(event));
    }
    reader_of_any::<L>(events, n).await;
    start.elapsed()
}

async fn choice_waits<L: Library>(n: u64) -> Duration {
    let (writers, events) = eight_channels::<L>();
    let (mut turns, mine) = eight_channels::<L>();
    // Each writer sends to the turn channel of the next one.
    turns.rotate_left(1);
    let start = Instant::now();
    for (i, ((mine, event), next)) in mine.into_iter().zip(writers).zip(turns).enumerate() {
        fork::<L>(writer_in_turn::<L>(i == 0, mine, event, next));
    }
    reader_of_turns::<L>(events, n).await;
    start.elapsed()
}

async fn spawn<L: Library>(n: u64) -> Duration {
    let start = Instant::now();
    let processes: Vec<_> = (0..n).map(|_| L::spawn(async {})).collect();
    for process in processes {
        process.await.expect("an empty process ends well");
    }
    start.elapsed()
}

/// The time that a token takes for `rounds` rounds of `n` processes.
pub(crate) async fn ring<L: Library>(n: u64, rounds: u64) -> Duration {
    let (output, mut last) = L::channel();
    for _ in 1..n {
        let (tx, rx) = L::channel();
        fork::<L>(copy::<L>(last, tx));
        last = rx;
    }
    ring_leader::<L>(last, output, rounds).await
}

/// Spawns a process that is not awaited.
fn fork<L: Library>(process: impl Future<Output = ()> + Send + 'static) {
    drop(L::spawn(process));
}
