//! ractor's actors. Its links are those of supervision: the end of an actor ends those below it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ractor::rpc::CallResult;
use ractor::{Actor, ActorProcessingErr, ActorRef, ActorRuntime, RpcReplyPort};
use tokio::sync::oneshot;

use super::counts::Counts;
use super::library::Actors;
use crate::memory::one_waits;

/// Its name in the report.
pub(super) const RACTOR: &str = "ractor";

pub(super) struct Ractor;

enum Message {
    Number(u64),
    Call(u64, RpcReplyPort<u64>),
}

/// Counts the numbers that it receives, and answers calls.
struct Counter;

impl Actor for Counter {
    type Msg = Message;
    type State = Counts;
    type Arguments = Counts;

    async fn pre_start(&self, _: ActorRef<Message>, counts: Counts) -> Result<Counts, ActorProcessingErr> {
        Ok(counts)
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        counts: &mut Counts,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Number(number) => counts.receive(number),
            Message::Call(number, reply) => reply.send(number + 1)?,
        }
        Ok(())
    }
}

/// An actor that only waits for messages.
struct Idle;

impl Actor for Idle {
    type Msg = u64;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<u64>, (): ()) -> Result<(), ActorProcessingErr> {
        one_waits();
        Ok(())
    }
}

/// An actor that ends at once.
struct Ends;

impl Actor for Ends {
    type Msg = u64;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<u64>, (): ()) -> Result<(), ActorProcessingErr> {
        myself.stop(None);
        Ok(())
    }
}

impl Actors for Ractor {
    type Parked = ActorRef<u64>;

    async fn spawn(n: u64) -> Result<Duration> {
        let start = Instant::now();
        let started = (0..n).map(|_| Ok(ActorRuntime::spawn_instant(None, Ends, ())?.1));
        for starting in started.collect::<Result<Vec<_>>>()? {
            starting.await??.await?;
        }
        Ok(start.elapsed())
    }

    /// The handle of an actor reports its end, as a monitor does.
    async fn down(n: u64) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..n {
            ActorRuntime::spawn_instant(None, Ends, ())?.1.await??.await?;
        }
        Ok(start.elapsed())
    }

    async fn post(n: u64) -> Result<Duration> {
        let (done, all) = oneshot::channel();
        let start = Instant::now();
        let (actor, _) = Actor::spawn(None, Counter, Counts::new(n, done)).await?;
        for number in 0..n {
            actor.cast(Message::Number(number)).map_err(|error| anyhow::anyhow!("{error}"))?;
        }
        ensure!(all.await?, "a message is lost");
        Ok(start.elapsed())
    }

    async fn call(n: u64) -> Result<Duration> {
        let (actor, _) = Actor::spawn(None, Counter, Counts::none()).await?;
        let start = Instant::now();
        for number in 0..n {
            let called = actor.call(|reply| Message::Call(number, reply), None).await;
            match called.map_err(|error| anyhow::anyhow!("{error}"))? {
                CallResult::Success(answer) => ensure!(answer == number + 1, "{answer} is the answer to {number}"),
                _ => bail!("no answer to {number}"),
            }
        }
        Ok(start.elapsed())
    }

    fn park() -> Self::Parked {
        let started = ActorRuntime::spawn_instant(None, Idle, ());
        started.expect("an actor without a name can always be started").0
    }

    /// (In one direction: an actor has one supervisor.)
    async fn link(one: &Self::Parked, other: &Self::Parked) -> Result<()> {
        other.get_cell().link(one.get_cell());
        Ok(())
    }

    async fn exit(first: &Self::Parked, last: Self::Parked) -> Result<Duration> {
        let start = Instant::now();
        first.kill();
        last.wait(None).await?;
        Ok(start.elapsed())
    }
}
