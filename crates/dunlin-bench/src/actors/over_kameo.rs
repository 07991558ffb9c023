//! kameo's actors, with unbounded mailboxes.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kameo::Actor;
use kameo::actor::{ActorId, ActorRef, Spawn, WeakActorRef};
use kameo::error::ActorStopReason;
use kameo::mailbox::unbounded;
use kameo::message::{Context, Message};
use tokio::sync::oneshot;

use super::counts::Counts;
use super::library::Actors;
use crate::memory::one_waits;

/// Its name in the report.
pub(super) const KAMEO: &str = "kameo";

pub(super) struct Kameo;

/// Counts the numbers that it receives, and answers calls.
struct Counter(Counts);

impl Actor for Counter {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(counter: Self, _: ActorRef<Self>) -> Result<Self, Infallible> {
        Ok(counter)
    }
}

struct Number(u64);

impl Message<Number> for Counter {
    type Reply = ();

    async fn handle(&mut self, Number(number): Number, _: &mut Context<Self, ()>) {
        self.0.receive(number);
    }
}

struct Ask(u64);

impl Message<Ask> for Counter {
    type Reply = u64;

    async fn handle(&mut self, Ask(number): Ask, _: &mut Context<Self, u64>) -> u64 {
        number + 1
    }
}

/// An actor that only waits for messages.
pub(super) struct Idle;

impl Actor for Idle {
    type Args = ();
    type Error = Infallible;

    async fn on_start((): (), _: ActorRef<Self>) -> Result<Self, Infallible> {
        one_waits();
        Ok(Self)
    }

    /// As by default, with a reason that does not contain those of all actors before it: along a chain of a
    /// hundred thousand these would take gigabytes.
    async fn on_link_died(
        &mut self,
        _: WeakActorRef<Self>,
        _: ActorId,
        _: ActorStopReason,
    ) -> Result<ControlFlow<ActorStopReason>, Infallible> {
        Ok(ControlFlow::Break(ActorStopReason::Killed))
    }
}

impl Actors for Kameo {
    type Parked = ActorRef<Idle>;

    async fn spawn(n: u64) -> Result<Duration> {
        let start = Instant::now();
        let mut actors = Vec::new();
        for _ in 0..n {
            let actor = Idle::spawn_with_mailbox((), unbounded());
            actor.stop_gracefully().await.map_err(|error| anyhow::anyhow!("{error}"))?;
            actors.push(actor);
        }
        for actor in actors {
            actor.wait_for_shutdown().await;
        }
        Ok(start.elapsed())
    }

    /// The reference of an actor reports its end, as a monitor does.
    async fn down(n: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..n {
            let actor = Idle::spawn_with_mailbox((), unbounded());
            actor.stop_gracefully().await.map_err(|error| anyhow::anyhow!("{error}"))?;
            actor.wait_for_shutdown().await;
        }
        Ok(start.elapsed())
    }

    async fn post(n: u64) -> Result<Duration> {
        let (done, all) = oneshot::channel();
        let start = Instant::now();
        let actor = Counter::spawn_with_mailbox(Counter(Counts::new(n, done)), unbounded());
        for number in 0..n {
            actor.tell(Number(number)).try_send().map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        ensure!(all.await?, "a message is lost");
        Ok(start.elapsed())
    }

    async fn call(n: u64) -> Result<Duration> {
        let actor = Counter::spawn_with_mailbox(Counter(Counts::none()), unbounded());
        let start = Instant::now();
        for number in 0..n {
            let answer = actor.ask(Ask(number)).await.map_err(|error| anyhow::anyhow!("{error}"))?;
            ensure!(answer == number + 1, "{answer} is the answer to {number}");
        }
        Ok(start.elapsed())
    }

    fn park() -> Self::Parked {
        Idle::spawn_with_mailbox((), unbounded())
    }

    async fn link(one: &Self::Parked, other: &Self::Parked) -> Result<()> {
        one.link(other).await;
        Ok(())
    }

    async fn exit(first: &Self::Parked, last: Self::Parked) -> Result<Duration> {
        let start = Instant::now();
        first.kill();
        last.wait_for_shutdown().await;
        Ok(start.elapsed())
    }
}
