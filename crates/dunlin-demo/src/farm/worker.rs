//! A worker: takes jobs, does them, reports. It may join and leave at any time; other workers do the jobs
//! that it has not done.

use std::collections::VecDeque;
use std::convert::Infallible;

use dunlin::blocking;
use dunlin::prelude::*;
use dunlin::{Branch, Pairing};

use super::protocol::{Desk, Enrolment, Farewell, Job, Numbered, Part, Report};

/// How many reports may wait to be received before a worker begins no other job.
const UNRECEIVED_MAX: usize = 2;

/// Ends when workers are to leave.
pub type Leave = Shared<Receiver<Infallible>>;

/// How a worker's work has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The farm has nothing more to do.
    Dismissed,
    /// It was asked to leave.
    Left,
}

/// What a worker reports to its own program while it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It has enrolled.
    Enrolled,
    /// It begins the job of this number.
    Begun(u64),
    /// The master has received the report of a job.
    Reported,
}

/// Works until the farm has nothing more to do, or `leave` ends. Then it stops, gives back the jobs that it
/// has not done, and returns when the master has received that.
///
/// # Errors
/// The farm's node is lost, or a job has panicked. Others do the jobs that it had taken.
pub async fn worker<J: Job>(
    part: Part<J>,
    name: String,
    mut leave: Leave,
    mut tell: impl FnMut(Told) + Send,
) -> Result<Ended> {
    let (mut farewell, farewells) = channel();
    let enrolment = Enrolment { name, farewell: farewells, desk: None };
    let (ended, back) = match takes_part(part, enrolment, &mut leave, &mut tell).await {
        Err(error) if error.is_closed() => (Ended::Dismissed, Vec::new()),
        worked => worked?,
    };
    // If the master has gone it needs no farewell.
    let _ = farewell.send(Farewell { back }).await;
    Ok(ended)
}

async fn takes_part<J: Job>(
    part: Part<J>,
    mut enrolment: Enrolment<J>,
    leave: &mut Leave,
    tell: &mut (impl FnMut(Told) + Send),
) -> Result<(Ended, Vec<u64>)> {
    let Part { enrol, buffer, shared } = part;
    let left = (Ended::Left, Vec::new());
    match shared {
        Some(shared) => {
            if !enrols(enrol, enrolment, leave).await? {
                return Ok(left);
            }
            tell(Told::Enrolled);
            works(shared.jobs, shared.reports, buffer, leave, tell).await
        }
        None => {
            let policy = if buffer == 0 { dunlin::rendezvous() } else { fifo(buffer) };
            let (client, server) = Desk::<J>::pair(&ChannelFactory::new(policy));
            enrolment.desk = Some(server);
            if !enrols(enrol, enrolment, leave).await? {
                return Ok(left);
            }
            tell(Told::Enrolled);
            // The buffered jobs wait in the channel.
            works(client.jobs, client.reports, 0, leave, tell).await
        }
    }
}

/// `false`: it was asked to leave before.
async fn enrols<J: Job>(
    mut enrol: Shared<Sender<Enrolment<J>>>,
    enrolment: Enrolment<J>,
    leave: &mut Leave,
) -> Result<bool> {
    let mut enrolment = Some(enrolment);
    alt! { biased;
        _ = leave.next() => Ok(false),
        enrolled = enrol.send_from(&mut enrolment) => {
            enrolled?;
            Ok(true)
        }
    }
}

/// Where jobs come from.
trait Incoming<J>: Send {
    fn next(&mut self) -> impl Branch<Output = Result<Option<Numbered<J>>, RecvError>> + Send + Unpin;
}

impl<J: Job> Incoming<J> for Receiver<Numbered<J>> {
    fn next(&mut self) -> impl Branch<Output = Result<Option<Numbered<J>>, RecvError>> + Send + Unpin {
        Self::next(self)
    }
}

impl<J: Job> Incoming<J> for Shared<Receiver<Numbered<J>>> {
    fn next(&mut self) -> impl Branch<Output = Result<Option<Numbered<J>>, RecvError>> + Send + Unpin {
        Self::next(self)
    }
}

/// Where reports go.
trait Outgoing<R>: Send {
    fn post(&mut self, report: Report<R>) -> Posted<Report<R>>;
}

impl<R: Send> Outgoing<R> for Sender<Report<R>> {
    fn post(&mut self, report: Report<R>) -> Posted<Report<R>> {
        self.send_nowait(report)
    }
}

impl<R: Send> Outgoing<R> for Shared<Sender<Report<R>>> {
    fn post(&mut self, report: Report<R>) -> Posted<Report<R>> {
        self.send_nowait(report)
    }
}

/// The job that runs on a thread of its own.
struct Computing<J: Job> {
    number: u64,
    call: dunlin::Blocking<Option<J::Outcome>>,
}

/// Takes up to `buffer` jobs beside the current one. Returns how it ended, and the jobs that it has not done.
async fn works<J: Job>(
    mut jobs: impl Incoming<J>,
    mut reports: impl Outgoing<J::Outcome>,
    buffer: usize,
    leave: &mut Leave,
    tell: &mut (impl FnMut(Told) + Send),
) -> Result<(Ended, Vec<u64>)> {
    let mut held = VecDeque::<Numbered<J>>::new();
    let mut computing: Option<Computing<J>> = None;
    let mut unreceived = VecDeque::new();
    'next: loop {
        // This branch outlives the choices that it loses: otherwise a job on its way from another node would
        // be sent back each time.
        let mut next = jobs.next();
        loop {
            while computing.is_none()
                && unreceived.len() < UNRECEIVED_MAX
                && let Some(Numbered { number, job }) = held.pop_front()
            {
                tell(Told::Begun(number));
                if job.is_long() {
                    let call = blocking(move |stop| job.work(&|| stop.asked()));
                    computing = Some(Computing { number, call });
                } else if let Some(outcome) = job.work(&|| false) {
                    unreceived.push_back(reports.post(Report { number, outcome }));
                }
            }
            let has_room = held.len() + usize::from(computing.is_some()) <= buffer;
            alt! {
                _ = leave.next() => break 'next,
                job = &mut next, if has_room => match job? {
                    Some(job) => {
                        held.push_back(job);
                        continue 'next;
                    }
                    None => {
                        // The master may have received the last reports without an acknowledgement yet. If it
                        // has not, it does not need them.
                        for posted in unreceived {
                            if posted.await.is_ok() {
                                tell(Told::Reported);
                            }
                        }
                        return Ok((Ended::Dismissed, Vec::new()));
                    }
                },
                outcome = &mut computing.as_mut().expect("it is there").call, if computing.is_some() => {
                    let number = computing.take().expect("it is there").number;
                    let outcome = outcome?.expect("nothing has asked it to stop");
                    unreceived.push_back(reports.post(Report { number, outcome }));
                }
                received = unreceived.front_mut().expect("there is one"), if !unreceived.is_empty() => {
                    received?;
                    unreceived.pop_front();
                    tell(Told::Reported);
                }
            }
        }
    }
    drop(jobs);
    let mut back: Vec<u64> = held.iter().map(|job| job.number).collect();
    if let Some(Computing { number, call }) = computing {
        match call.terminate().await {
            dunlin::Ended::AlreadyFinished(Some(outcome)) | dunlin::Ended::JustFinished(Some(outcome)) => {
                unreceived.push_back(reports.post(Report { number, outcome }));
            }
            _ => back.push(number),
        }
    }
    for posted in unreceived {
        posted.await?;
        tell(Told::Reported);
    }
    Ok((Ended::Left, back))
}
