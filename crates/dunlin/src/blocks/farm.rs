//! A farm: workers that share the jobs.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use super::error::{Poison, poison_all, reason};
use crate::{
    Error, Exit, Par, Process, Receiver, RecvError, Sender, Shared, alt, channel, channel_with, overwrite_oldest, par,
    spawn,
};

/// How many results for each worker may wait to be received, or for an earlier one to be sent. At this limit
/// the farm takes no more jobs.
const WAITING_PER_WORKER: usize = 2;

/// Runs `work` on each of `jobs`, at most `workers` at once, and sends the results to `results`.
///
/// ```text
///                   ┌─▶ work ─┐
///          ┌──────┐ │         │ ┌──────┐
///   jobs ─▶│ farm │─┼─▶ work ─┼▶│ farm │─▶ results
///          └──────┘ │         │ └──┬───┘
///                   └─▶ work ─┘    ▼
///                               progress
/// ```
///
/// A process of its own does each job ([`spawn`](crate::spawn)), so the jobs use all of the runtime's
/// threads; the farm itself runs where the returned [`Farm`] is awaited or spawned. Results come as they are
/// ready, or [in the order of the jobs](Farm::in_order). The farm takes a job when a worker is free for it.
/// If the results are not received, it keeps at most two for each worker before it takes no more jobs.
///
/// When the jobs have ended in order and all results are sent, it returns `Ok`.
///
/// # Errors
/// [`FarmError`], with the results that were not sent:
/// - the results' channel has ended in order: the farm ends the jobs' channel;
/// - one of the two channels was poisoned, or has otherwise not ended in order: the other is poisoned with
///   the same reason;
/// - `work` panicked: both are poisoned, and [`FarmError::error`] is the [`Exit`](crate::Exit) of its
///   process. Its job is lost with it.
///
/// The channels end as soon as the farm does. It returns when the running jobs have ended, so that no other
/// result is lost.
///
/// # Cancel safety
/// Dropped, it leaves its channels and cancels the running jobs.
///
/// # Panics
/// If `workers` is 0: then no job could ever run. Outside of a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::blocks::farm;
/// use dunlin::prelude::*;
///
/// # dunlin::block_on(async {
/// let ((mut jobs, from), (to, mut results)) = (channel(), channel());
/// spawn(farm(from, to, 4, async |n: u64| (1..=n).product::<u64>()).in_order());
/// spawn(async move {
///     for n in 1..=5 {
///         jobs.send(n).await?;
///     }
///     Ok::<_, Error>(())
/// });
/// let mut factorials = vec![];
/// while let Some(n) = results.next().await? {
///     factorials.push(n);
/// }
/// assert_eq!(factorials, [1, 2, 6, 24, 120]);
/// # Ok::<_, Error>(()) }).unwrap();
/// ```
#[track_caller]
pub fn farm<J, R, W, F>(jobs: Receiver<J>, results: Sender<R>, workers: usize, work: W) -> Farm<J, R, W>
where
    W: Fn(J) -> F,
    F: Future<Output = R>,
{
    assert!(workers > 0, "a farm without workers would never do a job; give it at least 1");
    Farm { jobs, results, workers, work, in_order: false, progress: None }
}

/// How far a [`farm`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// How many jobs are done. Their results may still wait to be received.
    pub done: u64,
    /// How many jobs are running.
    pub busy: usize,
    /// How many there are in all: known when the jobs have ended.
    pub total: Option<u64>,
}

/// What [`farm`] makes: await or spawn it.
#[must_use = "a farm does nothing until it is awaited or spawned"]
pub struct Farm<J, R, W> {
    jobs: Receiver<J>,
    results: Sender<R>,
    workers: usize,
    work: W,
    in_order: bool,
    progress: Option<Sender<Progress>>,
}

impl<J, R, W> Farm<J, R, W> {
    /// Sends the results in the order of the jobs.
    ///
    /// One slow job then holds up the results behind it and, when two for each worker are kept, the jobs.
    pub fn in_order(mut self) -> Self {
        self.in_order = true;
        self
    }

    /// Gives a receiver of the farm's progress: always the newest value, even if some were missed. The farm
    /// does not wait for a slow receiver. The channel ends with the farm.
    ///
    /// # Examples
    /// ```
    /// use dunlin::blocks::farm;
    /// use dunlin::prelude::*;
    ///
    /// # dunlin::block_on(async {
    /// let ((mut jobs, from), (to, mut results)) = (channel(), channel());
    /// let (farm, mut progress) = farm(from, to, 2, async |n: u32| n * n).watched();
    /// spawn(farm);
    /// jobs.send(7).await?;
    /// drop(jobs);
    /// while results.next().await?.is_some() {}
    /// let mut last = None;
    /// while let Some(newest) = progress.next().await? {
    ///     last = Some((newest.done, newest.busy, newest.total));
    /// }
    /// assert_eq!(last, Some((1, 0, Some(1))));
    /// # Ok::<_, Error>(()) }).unwrap();
    /// ```
    pub fn watched(mut self) -> (Self, Receiver<Progress>) {
        let (tx, rx) = channel_with(overwrite_oldest(1));
        self.progress = Some(tx);
        (self, rx)
    }
}

impl<J, R, W> fmt::Debug for Farm<J, R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Farm").field("workers", &self.workers).field("in_order", &self.in_order).finish_non_exhaustive()
    }
}

/// A running [`Farm`].
pub type FarmFuture<R> = Pin<Box<dyn Future<Output = Result<(), FarmError<R>>> + Send>>;

impl<J, R, W, F> IntoFuture for Farm<J, R, W>
where
    J: Send + 'static,
    R: Send + 'static,
    W: Fn(J) -> F + Send + Sync + 'static,
    F: Future<Output = R> + Send + 'static,
{
    type Output = Result<(), FarmError<R>>;
    type IntoFuture = FarmFuture<R>;

    fn into_future(self) -> FarmFuture<R> {
        Box::pin(self.run())
    }
}

impl<J, R, W, F> Farm<J, R, W>
where
    J: Send + 'static,
    R: Send + 'static,
    W: Fn(J) -> F + Send + Sync + 'static,
    F: Future<Output = R> + Send + 'static,
{
    async fn run(self) -> Result<(), FarmError<R>> {
        let (todo, idle) = channel();
        let (finished, done) = channel();
        let (idle, finished, work) = (idle.share(), finished.share(), Arc::new(self.work));
        let workers = (0..self.workers).map(|_| worker(idle.clone(), finished.clone(), work.clone()));
        let workers: Par<_> = workers.collect();
        let farmer = Farmer {
            jobs: self.jobs,
            results: self.results,
            todo,
            done,
            waiting: if self.in_order { Waiting::InOrder(BTreeMap::new()) } else { Waiting::Ready(VecDeque::new()) },
            taken: 0,
            sent: 0,
            workers: self.workers,
            watcher: self.progress,
            progress: Progress::default(),
        };
        par!(farmer.run(), workers).0
    }
}

/// A worker's report: the job's number, and the outcome.
type Finished<R> = (u64, Result<R, Exit>);

/// Runs jobs one after the other, each in a process of its own.
async fn worker<J, R, W, F>(
    mut idle: Shared<Receiver<(u64, J)>>,
    mut finished: Shared<Sender<Finished<R>>>,
    work: Arc<W>,
) where
    J: Send + 'static,
    R: Send + 'static,
    W: Fn(J) -> F + Send + Sync + 'static,
    F: Future<Output = R> + Send + 'static,
{
    while let Ok((number, job)) = idle.recv().await {
        let work = work.clone();
        let outcome = (&mut Cancelled(spawn(async move { work(job).await })).0).await;
        if finished.send((number, outcome)).await.is_err() {
            return;
        }
    }
}

/// A process that is cancelled when its handle is dropped.
struct Cancelled<T>(Process<T>);

impl<T> Drop for Cancelled<T> {
    fn drop(&mut self) {
        // No effect if it has ended.
        self.0.cancel();
    }
}

/// Results that are not sent yet.
enum Waiting<R> {
    Ready(VecDeque<R>),
    /// By the number of the job.
    InOrder(BTreeMap<u64, R>),
}

impl<R> Waiting<R> {
    fn add(&mut self, number: u64, result: R) {
        match self {
            Self::Ready(results) => results.push_back(result),
            Self::InOrder(results) => drop(results.insert(number, result)),
        }
    }

    /// The result to send when this many were sent.
    fn next(&mut self, sent: u64) -> Option<R> {
        match self {
            Self::Ready(results) => results.pop_front(),
            Self::InOrder(results) => results.remove(&sent),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Ready(results) => results.len(),
            Self::InOrder(results) => results.len(),
        }
    }

    fn into_results(self) -> Vec<R> {
        match self {
            Self::Ready(results) => results.into(),
            Self::InOrder(results) => results.into_values().collect(),
        }
    }
}

/// Receives jobs, gives each to an idle worker, and sends the results.
struct Farmer<J, R> {
    jobs: Receiver<J>,
    results: Sender<R>,
    todo: Sender<(u64, J)>,
    done: Receiver<Finished<R>>,
    waiting: Waiting<R>,
    taken: u64,
    sent: u64,
    workers: usize,
    watcher: Option<Sender<Progress>>,
    progress: Progress,
}

impl<J: Send, R: Send> Farmer<J, R> {
    async fn run(mut self) -> Result<(), FarmError<R>> {
        let mut slot = None;
        let Err(error) = self.work(&mut slot).await else { return Ok(()) };
        // At once: the other channel must not wait for the running jobs.
        match reason(&error) {
            None => self.jobs.retire(),
            Some(reason) => poison_all(&reason, [&self.jobs as &dyn Poison, &self.results]),
        }
        while self.progress.busy > 0 {
            let finished = self.done.recv().await;
            // A second panic has no more information than the first.
            let _ = self.hear(finished);
        }
        let unsent = slot.into_iter().chain(self.waiting.into_results()).collect();
        Err(FarmError { unsent, error })
    }

    /// Runs until all jobs are done, or something fails. The result to be sent next is in `slot`.
    async fn work(&mut self, slot: &mut Option<R>) -> Result<(), Error> {
        loop {
            if slot.is_none() {
                *slot = self.waiting.next(self.sent);
            }
            let (busy, open) = (self.progress.busy, self.progress.total.is_none());
            let kept = self.waiting.len() + usize::from(slot.is_some());
            if !open && busy + kept == 0 {
                return Ok(());
            }
            let has_room = busy < self.workers && busy + kept < self.workers.saturating_mul(WAITING_PER_WORKER);
            alt! {
                job = self.jobs.next(), if open && has_room => match job? {
                    Some(job) => self.give(job).await,
                    None => self.progress.total = Some(self.taken),
                },
                finished = self.done.recv(), if busy > 0 => self.hear(finished)?,
                sent = self.results.send_from(slot) => {
                    sent?;
                    self.sent += 1;
                }
            }
            self.report();
        }
    }

    /// Gives a job to an idle worker: there is one.
    async fn give(&mut self, job: J) {
        self.todo.send((self.taken, job)).await.expect("the workers end after the farmer");
        self.taken += 1;
        self.progress.busy += 1;
    }

    /// Handles a worker's report.
    fn hear(&mut self, finished: Result<Finished<R>, RecvError>) -> Result<(), Exit> {
        let (number, outcome) = finished.expect("the workers end after the farmer");
        self.progress.busy -= 1;
        self.waiting.add(number, outcome?);
        self.progress.done += 1;
        Ok(())
    }

    fn report(&mut self) {
        if let Some(watcher) = &mut self.watcher
            && watcher.try_send(self.progress).is_err_and(|error| error.is_closed())
        {
            self.watcher = None;
        }
    }
}

/// Why a [`farm`] stopped before the end of its jobs; with the results that it had in hand.
pub struct FarmError<R> {
    /// The results that were not sent.
    pub unsent: Vec<R>,
    /// Why.
    pub error: Error,
}

// Not the results: an error must be printable for every `R`.
impl<R> fmt::Debug for FarmError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FarmError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<R> fmt::Display for FarmError<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<R> std::error::Error for FarmError<R> {}

impl<R> From<FarmError<R>> for Error {
    fn from(error: FarmError<R>) -> Self {
        error.error
    }
}
