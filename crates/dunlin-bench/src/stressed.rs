//! Stressed alternation, after CoCoL's: many writers share each of many channels, and one fair choice reads
//! them all.
//!
//! Two runs of one program. The first is timed, and counts how often the reader received from each writer.
//! The second keeps a log, which is judged: *no channel is chosen twice while another one was ready all the
//! time*. Readiness is known for certain only in one direction: a writer records its offer after the offer
//! stands, so a recorded offer exists, but an existing offer may not be recorded yet. So the judge never
//! blames a choice for an offer that the choice could not see.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use dunlin::prelude::*;

use crate::dunlin_side::Dunlin;
use crate::library::Library;
use crate::program::Program;
use crate::programs::nanoseconds_each;

/// The number of channels, and of writers on each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    channels: usize,
    writers: usize,
}

impl Shape {
    /// The shape of a program, if it is a stressed alternation.
    pub(crate) fn of(program: Program) -> Option<Self> {
        match program {
            Program::StressedAlt8x4 | Program::StressedAlt8x4One | Program::StressedAlt8x4All => {
                Some(Self { channels: 8, writers: 4 })
            }
            Program::StressedAlt200x100 | Program::StressedAlt200x100One | Program::StressedAlt200x100All => {
                Some(Self { channels: 200, writers: 100 })
            }
            _ => None,
        }
    }

    pub(crate) fn channels(self) -> usize {
        self.channels
    }

    fn parties(self) -> usize {
        self.channels * self.writers
    }
}

/// Both ends of each.
pub(crate) type Channels = Vec<(Sender<u64>, Receiver<u64>)>;

/// How to run the processes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// All in one `Par`.
    Par,
    /// Spawned, except for the reader, which runs in the caller.
    Spawned,
}

/// For this many timed decisions, one more is logged.
const TIMED_PER_LOGGED: u64 = 5;

/// Performs both runs; the figure is nanoseconds per event. Prints each writer's share on standard error.
pub(crate) async fn run(who: &str, how: How, shape: Shape, n: u64) -> anyhow::Result<f64> {
    let (time, counts) = network(how, local(shape), shape, writer, |events| timed_reader(events, shape, n)).await?;
    let decisions = (n / TIMED_PER_LOGGED).max(1);
    let others = logged(how, shape, decisions, Events::fair).await;
    let others = others.with_context(|| format!("{who}: the choice is not fair"))?;
    eprintln!(
        "{who}: {}; fair by the log, with {others} others ready at {decisions} decisions",
        shares(shape, &counts)
    );
    Ok(nanoseconds_each(time, n))
}

/// The same with some channels between nodes; spawned, and not judged, because a standing offer may still be
/// in flight. Prints each share on standard error.
pub(crate) async fn networked(channels: Channels, shape: Shape, n: u64) -> anyhow::Result<f64> {
    let reader = |events| timed_reader(events, shape, n);
    let (time, counts) = network(How::Spawned, channels, shape, writer, reader).await?;
    eprintln!("{}", shares(shape, &counts));
    Ok(nanoseconds_each(time, n))
}

fn local(shape: Shape) -> Channels {
    (0..shape.channels).map(|_| channel()).collect()
}

/// The shares of channels and of writers.
fn shares(shape: Shape, counts: &[u64]) -> String {
    let all: u64 = counts.iter().sum();
    let range = |counts: &mut dyn Iterator<Item = u64>| {
        let (least, most) = counts.fold((u64::MAX, 0), |(least, most), n| (n.min(least), n.max(most)));
        format!("{:.3} to {:.3} %", 100.0 * least as f64 / all as f64, 100.0 * most as f64 / all as f64)
    };
    let channels = range(&mut counts.chunks(shape.writers).map(|writers| writers.iter().sum()));
    format!("a channel had {channels} of the events, a writer {}", range(&mut counts.iter().copied()))
}

/// Runs the reader with all its writers, and returns the reader's result. Each writer sends its number.
async fn network<O, R, W>(
    how: How,
    channels: Channels,
    shape: Shape,
    writer: impl Fn(Shared<Sender<u64>>, u64) -> W,
    reader: impl FnOnce(Vec<Receiver<u64>>) -> R,
) -> anyhow::Result<O>
where
    R: Future<Output = anyhow::Result<O>>,
    W: Future<Output = ()> + Send + 'static,
{
    let (mut writers, mut receivers) = (Vec::new(), Vec::new());
    for (tx, rx) in channels {
        let tx = tx.share();
        for _ in 0..shape.writers {
            writers.push(writer(tx.clone(), writers.len() as u64));
        }
        receivers.push(rx);
    }
    let reader = reader(receivers);
    match how {
        How::Par => {
            let parties = writers.into_iter().map(Party::Writer).chain([Party::Reader(reader)]);
            let outputs = parties.map(Party::run).collect::<Par<_>>().await;
            outputs.into_iter().flatten().next().context("the reader is one of the parties")?
        }
        How::Spawned => {
            for writer in writers {
                drop(spawn(writer));
            }
            reader.await
        }
    }
}

/// One type, so that all of them can be branches of one flat `Par`.
enum Party<W, R> {
    Writer(W),
    Reader(R),
}

impl<W: Future<Output = ()>, R: Future> Party<W, R> {
    async fn run(self) -> Option<R::Output> {
        match self {
            Self::Writer(writer) => {
                writer.await;
                None
            }
            Self::Reader(reader) => Some(reader.await),
        }
    }
}

/// Sends as often as the reader receives.
async fn writer(mut event: Shared<Sender<u64>>, me: u64) {
    while event.send(me).await.is_ok() {}
}

/// The time of `n` events, and the number of events of each writer, measured after enough events that all
/// writers have begun.
async fn timed_reader(events: Vec<Receiver<u64>>, shape: Shape, n: u64) -> anyhow::Result<(Duration, Vec<u64>)> {
    let mut events = Events::fair(events);
    for _ in 0..shape.parties() {
        events.choose().await?;
    }
    let mut counts = vec![0; shape.parties()];
    let began = Instant::now();
    for _ in 0..n {
        counts[events.choose().await?] += 1;
    }
    Ok((began.elapsed(), counts))
}

/// The receivers among which the reader chooses, and the kind of choice.
enum Events {
    Eight([Receiver<u64>; 8]),
    Many(Vec<Receiver<u64>>),
    #[cfg(test)]
    Prioritised(Vec<Receiver<u64>>),
}

impl Events {
    fn fair(events: Vec<Receiver<u64>>) -> Self {
        events.try_into().map_or_else(Self::Many, Self::Eight)
    }

    /// The number of the writer whose value was received.
    async fn choose(&mut self) -> anyhow::Result<usize> {
        let heard = match self {
            Self::Eight(events) => Dunlin::choose(events).await,
            Self::Many(events) => Choice::fair().all(events.iter_mut().map(|event| event.recv())).await.1.ok(),
            #[cfg(test)]
            Self::Prioritised(events) => {
                Choice::prioritised().all(events.iter_mut().map(|event| event.recv())).await.1.ok()
            }
        };
        Ok(heard.context("the writers outlive the reader")? as usize)
    }
}

/// Makes this many decisions, besides those that let all writers begin, and judges them. Returns how many
/// channels were known to be ready and not chosen, summed over all decisions: the sum is zero with one worker
/// that runs the reader after every offer.
async fn logged(
    how: How,
    shape: Shape,
    decisions: u64,
    choosing: fn(Vec<Receiver<u64>>) -> Events,
) -> anyhow::Result<u64> {
    let offers: Arc<Vec<AtomicU64>> = Arc::new((0..shape.channels).map(|_| AtomicU64::new(0)).collect());
    let writer = |event, me| noting_writer(event, me, shape, offers.clone());
    network(how, local(shape), shape, writer, |events| {
        judged_reader(choosing(events), shape, decisions, offers.clone())
    })
    .await
}

/// Sends as often as the reader receives, and counts its offers as soon as they stand.
async fn noting_writer(mut event: Shared<Sender<u64>>, me: u64, shape: Shape, offers: Arc<Vec<AtomicU64>>) {
    let offers = &offers[me as usize / shape.writers];
    loop {
        let mut send = pin!(event.send(me));
        let mut is_noted = false;
        let sent = poll_fn(|cx| {
            let mut sent = send.as_mut().poll(cx);
            if !std::mem::replace(&mut is_noted, true) {
                // A first poll may only yield, if many operations were ready before it. After a second poll
                // the offer stands.
                if sent.is_pending() {
                    sent = send.as_mut().poll(cx);
                }
                offers.fetch_add(1, Ordering::Release);
            }
            sent
        });
        if sent.await.is_err() {
            return;
        }
    }
}

async fn judged_reader(
    mut events: Events,
    shape: Shape,
    decisions: u64,
    offers: Arc<Vec<AtomicU64>>,
) -> anyhow::Result<u64> {
    let mut judge = Judge::new(shape.channels);
    // While the writers begin, often at most one of them is ready.
    for _ in 0..shape.parties() as u64 + decisions {
        judge.look(|channel| offers[channel].load(Ordering::Acquire));
        judge.hear(events.choose().await? / shape.writers)?;
    }
    Ok(judge.others)
}

/// Judges the log decision by decision.
struct Judge {
    /// Decisions count from 1.
    decision: u64,
    channels: Vec<Judged>,
    /// How often a channel was known to be ready and was not chosen.
    others: u64,
}

#[derive(Clone, Default)]
struct Judged {
    /// The number of its offers that were taken.
    taken: u64,
    /// Its last decision.
    last: u64,
    /// The first decision since which the channel is known to be ready, without being chosen.
    ready_since: Option<u64>,
}

impl Judge {
    fn new(channels: usize) -> Self {
        Self { decision: 0, channels: vec![Judged::default(); channels], others: 0 }
    }

    /// Records, before a decision, how many offers of each channel the writers have noted.
    fn look(&mut self, offers: impl Fn(usize) -> u64) {
        self.decision += 1;
        for (number, channel) in self.channels.iter_mut().enumerate() {
            // An offer may be taken before it is noted.
            if offers(number) > channel.taken {
                channel.ready_since.get_or_insert(self.decision);
            } else {
                channel.ready_since = None;
            }
        }
    }

    /// Judges the decision.
    fn hear(&mut self, chosen: usize) -> anyhow::Result<()> {
        let before = self.channels[chosen].last;
        for (number, other) in self.channels.iter().enumerate().filter(|(number, _)| *number != chosen) {
            let Some(since) = other.ready_since else { continue };
            self.others += 1;
            ensure!(
                since > before,
                "channel {chosen} was chosen in decisions {before} and {}, and channel {number} was ready since {since}",
                self.decision
            );
        }
        let chosen = &mut self.channels[chosen];
        (chosen.last, chosen.ready_since) = (self.decision, None);
        chosen.taken += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;

    use super::*;

    const SMALL: Shape = Shape { channels: 8, writers: 4 };
    const LARGE: Shape = Shape { channels: 200, writers: 100 };

    fn judged(
        how: How,
        workers: usize,
        shape: Shape,
        choosing: fn(Vec<Receiver<u64>>) -> Events,
    ) -> anyhow::Result<u64> {
        let runtime = Builder::new_multi_thread().worker_threads(workers).build()?;
        let decisions = 3_000 + 20 * shape.channels as u64;
        runtime.block_on(runtime.spawn(logged(how, shape, decisions, choosing)))?
    }

    #[test]
    fn judge_accepts_a_fair_choice() {
        for shape in [SMALL, LARGE] {
            // Without an alternative, fairness cannot be judged.
            assert!(judged(How::Par, 1, shape, Events::fair).unwrap() > 0);
            for workers in [1, 2] {
                judged(How::Spawned, workers, shape, Events::fair).unwrap();
            }
        }
    }

    #[test]
    fn judge_detects_an_unfair_choice() {
        for how in [How::Par, How::Spawned] {
            let error = judged(how, 2, SMALL, Events::Prioritised).unwrap_err().to_string();
            assert!(error.contains("channel 0 was chosen in decisions"), "{error}");
        }
    }

    #[test]
    fn the_judge_ignores_channels_that_were_not_ready_all_the_time() {
        let mut judge = Judge::new(2);
        for (offers, chosen) in [([1, 1], 0), ([2, 1], 1), ([2, 1], 0), ([3, 1], 0), ([4, 2], 0)] {
            judge.look(|channel| offers[channel]);
            judge.hear(chosen).unwrap();
        }
        judge.look(|channel| [5, 2][channel]);
        assert!(judge.hear(0).is_err());
    }

    #[test]
    fn shares_cover_channels_and_writers() {
        let text = shares(Shape { channels: 2, writers: 2 }, &[10, 20, 30, 40]);
        assert_eq!(text, "a channel had 30.000 to 70.000 % of the events, a writer 10.000 to 40.000 %");
    }
}
