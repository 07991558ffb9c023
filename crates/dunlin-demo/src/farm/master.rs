//! The master: gives out jobs and gathers the results, while workers join and leave.

use std::collections::BTreeSet;

use dunlin::prelude::*;

use super::ledger::Ledger;
use super::protocol::{Enrolment, Farewell, Job, Numbered, Part, Report, SharedEnds};

/// How jobs reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All workers share two channels.
    Shared,
    /// Each worker has two of its own, and the master chooses among them.
    Multiplexed,
}

/// How many jobs wait in the channel of a shared farm: with a rendezvous, each would block the master for a
/// round trip.
const AHEAD: usize = 16;

/// What a master reports while it works.
#[derive(Debug)]
pub enum Event<R> {
    /// A worker has joined.
    Joined {
        /// Its number, from 1.
        worker: u64,
        /// Its name.
        name: String,
    },
    /// A worker has left in order.
    Left {
        /// Its number.
        worker: u64,
        /// Its name.
        name: String,
        /// How many of its jobs go to others.
        back: usize,
    },
    /// A worker is lost.
    Lost {
        /// Its number.
        worker: u64,
        /// Its name.
        name: String,
        /// How many jobs go to others. (A shared farm does not know which jobs the worker had, so it gives
        /// out all that were out, unless they are done first.)
        back: usize,
    },
    /// A job is done.
    Done {
        /// Its place among the jobs of the run.
        index: usize,
        /// The result of the job.
        outcome: R,
    },
}

/// A worker, as the master sees it.
struct Worker<J: Job> {
    number: u64,
    name: String,
    farewell: Receiver<Farewell>,
    desk: Option<Desk<J>>,
}

/// The channels with one worker of a multiplexed farm.
struct Desk<J: Job> {
    jobs: Sender<Numbered<J>>,
    reports: Receiver<Report<J::Outcome>>,
    /// No report can arrive any more; the farewell gives the reason.
    is_silent: bool,
    /// The jobs that it has received and not reported.
    holds: BTreeSet<u64>,
}

/// The channels of a shared farm.
struct Common<J: Job> {
    jobs: Sender<Numbered<J>>,
    reports: Receiver<Report<J::Outcome>>,
    /// The job that waits for a place in the channel.
    posted: Option<Posted<Numbered<J>>>,
}

/// The master of a farm.
pub struct Master<J: Job> {
    enrolments: Receiver<Enrolment<J>>,
    workers: Vec<Worker<J>>,
    common: Option<Common<J>>,
    part: Part<J>,
    enrolled: u64,
    /// The number of the next run's first job.
    next: u64,
}

/// What the master waits for.
enum Heard<J: Job> {
    Enrolled(Result<Enrolment<J>, RecvError>),
    Farewell(usize, Result<Farewell, RecvError>),
    Reported(Option<usize>, Result<Report<J::Outcome>, RecvError>),
    Posted(Result<(), SendError<Numbered<J>>>),
}

impl<J: Job> Master<J> {
    /// A master without workers: a worker joins with a copy of its [part](Self::part). `buffer` is how many
    /// jobs may wait at each, beside the current one.
    pub fn new(sharing: Sharing, buffer: usize) -> Self {
        let (enrol, enrolments) = channel();
        let (common, shared) = match sharing {
            Sharing::Multiplexed => (None, None),
            Sharing::Shared => {
                let ((to_workers, jobs), (reports, to_master)) = (channel_with(fifo(AHEAD)), channel());
                let common = Common { jobs: to_workers, reports: to_master, posted: None };
                (Some(common), Some(SharedEnds { jobs: jobs.share(), reports: reports.share() }))
            }
        };
        let part = Part { enrol: enrol.share(), buffer, shared };
        Self { enrolments, workers: Vec::new(), common, part, enrolled: 0, next: 0 }
    }

    /// What a worker needs to take part.
    pub fn part(&self) -> Part<J> {
        self.part.clone()
    }

    /// Waits until this many workers have joined.
    ///
    /// # Errors
    /// None that its own ends could cause: it holds both ends of the channels that the workers share.
    pub async fn gather(&mut self, count: usize, mut tell: impl FnMut(Event<J::Outcome>)) -> Result {
        let mut nothing = Ledger::new(self.next, Vec::new());
        while self.workers.len() < count {
            let heard = self.hear().await;
            self.note(heard, &mut nothing, &mut tell)?;
        }
        Ok(())
    }

    /// Has each of these jobs done once; returns when all are done. Without workers it waits for one.
    ///
    /// # Errors
    /// See [`gather`](Self::gather).
    pub async fn run(&mut self, jobs: Vec<J>, mut tell: impl FnMut(Event<J::Outcome>)) -> Result {
        let count = jobs.len() as u64;
        let mut ledger = Ledger::new(self.next, jobs);
        self.next += count;
        while ledger.left() > 0 {
            self.give(&mut ledger);
            let heard = self.hear().await;
            self.note(heard, &mut ledger, &mut tell)?;
        }
        Ok(())
    }

    /// Dismisses the workers, and returns when all have sent a farewell or are lost.
    pub async fn dismiss(self) {
        let Self { enrolments, workers, common, part, .. } = self;
        drop((enrolments, common, part));
        // The drops above and these dismiss all workers before the first wait.
        let farewells: Vec<Receiver<Farewell>> = workers.into_iter().map(|worker| worker.farewell).collect();
        for mut farewell in farewells {
            let _ = farewell.recv().await;
        }
    }

    /// Gives out the jobs for which there is room without waiting.
    fn give(&mut self, ledger: &mut Ledger<J>) {
        if let Some(common) = &mut self.common {
            if common.posted.is_none() {
                common.posted = ledger.give().map(|job| common.jobs.send_nowait(job));
            }
            return;
        }
        // The current job, and those that wait for it.
        let room = self.part.buffer + 1;
        // Always to the worker with the fewest, so that at the end none has many while others have none.
        while let Some(desk) = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.desk.as_mut())
            .filter(|desk| !desk.is_silent && desk.holds.len() < room)
            .min_by_key(|desk| desk.holds.len())
        {
            let Some(job) = ledger.give() else { return };
            desk.holds.insert(job.number);
            // It has room. If the worker is lost, its jobs go to others.
            desk.jobs.send_nowait(job).detach();
        }
    }

    /// Waits for the first event.
    async fn hear(&mut self) -> Heard<J> {
        let mut choice = Choice::fair().on(self.enrolments.recv(), Heard::Enrolled);
        for (at, worker) in self.workers.iter_mut().enumerate() {
            // Before its farewell: a worker that has left has reported before.
            if let Some(desk) = worker.desk.as_mut().filter(|desk| !desk.is_silent) {
                choice = choice.on(desk.reports.recv(), move |report| Heard::Reported(Some(at), report));
            }
            choice = choice.on(worker.farewell.recv(), move |farewell| Heard::Farewell(at, farewell));
        }
        if let Some(common) = &mut self.common {
            choice = choice.on(common.reports.recv(), |report| Heard::Reported(None, report));
            if let Some(posted) = &mut common.posted {
                choice = choice.on(posted, Heard::Posted);
            }
        }
        choice.await.1
    }

    fn note(&mut self, heard: Heard<J>, ledger: &mut Ledger<J>, tell: &mut impl FnMut(Event<J::Outcome>)) -> Result {
        match heard {
            Heard::Enrolled(enrolment) => {
                let Enrolment { name, farewell, desk } = enrolment?;
                self.enrolled += 1;
                let desk = desk.map(|desk| Desk {
                    jobs: desk.jobs,
                    reports: desk.reports,
                    is_silent: false,
                    holds: BTreeSet::new(),
                });
                tell(Event::Joined { worker: self.enrolled, name: name.clone() });
                self.workers.push(Worker { number: self.enrolled, name, farewell, desk });
            }
            Heard::Farewell(at, farewell) => {
                let Worker { number: worker, name, desk, .. } = self.workers.remove(at);
                let back = match (&farewell, desk) {
                    (_, Some(desk)) => ledger.back(desk.holds),
                    (Ok(farewell), None) => ledger.back(farewell.back.iter().copied()),
                    (Err(_), None) => ledger.all_back(),
                };
                tell(match farewell {
                    Ok(_) => Event::Left { worker, name, back },
                    Err(_) => Event::Lost { worker, name, back },
                });
            }
            Heard::Reported(from, Ok(Report { number, outcome })) => {
                if let Some(desk) = from.and_then(|at| self.workers[at].desk.as_mut()) {
                    desk.holds.remove(&number);
                }
                if let Some(index) = ledger.done(number) {
                    tell(Event::Done { index, outcome });
                }
            }
            Heard::Reported(Some(at), Err(_)) => {
                if let Some(desk) = &mut self.workers[at].desk {
                    desk.is_silent = true;
                }
            }
            // Unexpected: the master itself holds a handle of this sender.
            Heard::Reported(None, Err(error)) => return Err(error.into()),
            Heard::Posted(outcome) => {
                if let Some(common) = &mut self.common {
                    common.posted = None;
                }
                outcome?;
            }
        }
        Ok(())
    }
}

impl<J: Job> std::fmt::Debug for Master<J> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Master").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}
