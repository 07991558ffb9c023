//! What a master and its workers send each other. Nothing here knows nodes: the same ends work inside a
//! program, and between programs.
//!
//! ```text
//! shared                                            multiplexed
//!
//!         jobs ┌─▶ worker ─┐ reports                       ┌─jobs──▶ worker
//!   master ════╪═▶ worker ─╪════▶ master             master ◀─reports─┘
//!              └─▶ worker ─┘                               └─ the same for each worker
//!   one channel, whose receiver all share;           a desk for each worker, made by the worker,
//!   one channel back, whose sender they share        which sends its server's face to the master
//! ```
//!
//! In both, each worker *enrols*, and sends its farewell on a channel of its own: that channel ends without
//! one when the worker is lost.

use std::fmt;
use std::marker::PhantomData;

use dunlin::prelude::*;
use dunlin::{ChannelFactory, Pairing};
use serde::{Deserialize, Serialize};

/// Work that a farm can divide.
pub trait Job: Portable + Clone + fmt::Debug + Sync {
    /// Its result.
    type Outcome: Portable + fmt::Debug;

    /// Does the job, and polls now and then whether it should stop. `None`: it stopped before its end.
    fn work(&self, is_asked: &dyn Fn() -> bool) -> Option<Self::Outcome>;

    /// Whether it takes longer than about half a millisecond, so that it must not block the worker's thread.
    fn is_long(&self) -> bool;
}

/// A job and its number, which no other job of the master ever has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "J: Portable")]
pub struct Numbered<J> {
    /// Its number; always 8 bytes.
    #[serde(with = "postcard::fixint::le")]
    pub number: u64,
    /// The job itself.
    pub job: J,
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(bound = "R: Portable")]
pub struct Report<R> {
    /// The job's number.
    #[serde(with = "postcard::fixint::le")]
    pub number: u64,
    /// The result.
    pub outcome: R,
}

/// A worker's last message. The master has received its reports before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Farewell {
    /// The jobs that it has taken and not done, for others to do.
    pub back: Vec<u64>,
}

/// How a worker registers with its master.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Enrolment<J: Job> {
    /// The worker's name.
    pub name: String,
    /// Carries its farewell. It ends without one when the worker is lost.
    pub farewell: Receiver<Farewell>,
    /// In a multiplexed farm: the master's side of the channels between the two.
    pub desk: Option<DeskServer<J>>,
}

/// The channels between a worker and the master of a multiplexed farm: the worker is the client.
///
/// (A bundle with a parameter, which `#[derive(Bundle)]` does not make.) The factory's policy is that of the
/// jobs' channel.
#[derive(Debug)]
pub struct Desk<J>(PhantomData<J>);

/// The worker's face of a [`Desk`].
#[derive(Debug)]
pub struct DeskClient<J: Job> {
    /// The jobs; those in the buffer wait at the worker.
    pub jobs: Receiver<Numbered<J>>,
    /// The results.
    pub reports: Sender<Report<J::Outcome>>,
}

/// The master's face of a [`Desk`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct DeskServer<J: Job> {
    /// The jobs.
    pub jobs: Sender<Numbered<J>>,
    /// The results.
    pub reports: Receiver<Report<J::Outcome>>,
}

impl<J: Job> Pairing for Desk<J> {
    type Client = DeskClient<J>;
    type Server = DeskServer<J>;

    fn pair(factory: &ChannelFactory) -> (DeskClient<J>, DeskServer<J>) {
        let ((to_worker, jobs), (reports, to_master)) = (factory.channel(), channel());
        (DeskClient { jobs, reports }, DeskServer { jobs: to_worker, reports: to_master })
    }
}

/// What a worker receives to take part.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Part<J: Job> {
    /// Where it enrols.
    pub enrol: Shared<Sender<Enrolment<J>>>,
    /// How many jobs may wait at the worker, beside the current one.
    pub buffer: usize,
    /// The ends that all share. `None`: the farm is multiplexed, and the worker makes a desk.
    pub shared: Option<SharedEnds<J>>,
}

/// The ends that the workers of a shared farm share.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct SharedEnds<J: Job> {
    /// The jobs, each for the worker that receives it.
    pub jobs: Shared<Receiver<Numbered<J>>>,
    /// The results.
    pub reports: Shared<Sender<Report<J::Outcome>>>,
}

// A derived impl would require `Clone` of the outcome.
impl<J: Job> Clone for Part<J> {
    fn clone(&self) -> Self {
        Self { enrol: self.enrol.clone(), buffer: self.buffer, shared: self.shared.clone() }
    }
}

impl<J: Job> Clone for SharedEnds<J> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), reports: self.reports.clone() }
    }
}
