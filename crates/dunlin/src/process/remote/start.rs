//! Starting a function at another node.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::time::Duration;

use dunlin_core::{CallError, Operation, Why, channel_with, fifo};

use super::super::link::{OutsideProcess, link};
use super::super::monitor::monitor;
use super::super::pid::Pid;
use super::error::{StartError, StartFailure};
use super::function::{RemoteCall, RemoteFunction};
use super::handle::RemoteProcess;
use super::request::{Admission, Answer, Asks, Start, StartOf, Starts, function_name};
use crate::node::{Node, words};
use crate::time::{Deadline, Instant};
use crate::world;

impl Node {
    /// Starts a process at the node that [offers](Self::offer) the function under this name. Waits until a
    /// node has that offer, unless it is given [a time](SpawnOn::within).
    ///
    /// The process belongs to the other node: it runs on when this node has gone, unless it is
    /// [linked](SpawnOn::linked). Its arguments and its output travel as messages do, with the ends in them.
    /// Schemas of both programs are compared first. Awaited, this gives a [`RemoteProcess`], whose output is
    /// that of the function.
    ///
    /// # Errors
    /// When it is awaited: [`StartError::NotStarted`] with the call, and the ends in its arguments, if it was
    /// certainly not started; [`StartError::Lost`] if the other node was lost with the arguments.
    ///
    /// # Cancel safety
    /// If it is dropped while it is awaited, the function is not run, and the arguments are dropped.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::StartFailure;
    ///
    /// #[dunlin::remote]
    /// async fn half(n: u32) -> Result<u32, String> {
    ///     if n % 2 == 0 { Ok(n / 2) } else { Err(format!("{n} is odd")) }
    /// }
    ///
    /// #[dunlin::remote]
    /// async fn shut_down() {}
    /// # dunlin::block_on(async {
    /// # let names = "memory:spawn-on-example";
    /// let here = Node::builder().app("halves").names(names).listen("memory:").join().await?;
    /// let there = Node::builder().app("halves").names(names).listen("memory:").join().await?;
    /// let _offer = there.offer("worker").function::<half>().await?;
    ///
    /// let process = here.spawn_on("worker", half(10)).await?;
    /// assert_eq!(process.await?, Ok(5));
    ///
    /// let refused = here.spawn_on("worker", shut_down()).await.unwrap_err();
    /// assert_eq!(refused.why(), Some(&StartFailure::NotOffered));
    /// # there.leave().await?;
    /// # here.leave().await
    /// # }).unwrap();
    /// ```
    pub fn spawn_on<F: RemoteFunction>(&self, offer: &str, call: RemoteCall<F>) -> SpawnOn<'_, F> {
        SpawnOn { node: self, offer: offer.to_owned(), call, is_linked: false, patience: None }
    }
}

/// A function that is to be started at another node: await it. Made by [`Node::spawn_on`].
#[must_use = "the function is started when this is awaited"]
pub struct SpawnOn<'a, F: RemoteFunction> {
    node: &'a Node,
    offer: String,
    call: RemoteCall<F>,
    is_linked: bool,
    patience: Option<Duration>,
}

impl<F: RemoteFunction> SpawnOn<'_, F> {
    /// The process is [linked](crate::link()) with the calling one in both directions, from before the
    /// function runs. Each also ends when its node gives the other's up: so at a split both may run for a
    /// while, one without the other.
    pub fn linked(mut self) -> Self {
        self.is_linked = true;
        self
    }

    /// The name of the offer.
    pub fn offer(&self) -> &str {
        &self.offer
    }

    /// How long the start may take. If no node has the offer by then, or the arguments were not taken, the
    /// call is given back.
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }
}

impl<F: RemoteFunction> fmt::Debug for SpawnOn<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpawnOn").field("offer", &self.offer).field("call", &self.call).finish_non_exhaustive()
    }
}

impl<'a, F: RemoteFunction> IntoFuture for SpawnOn<'a, F> {
    type Output = Result<RemoteProcess<F::Output>, StartError<F>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start())
    }
}

impl<F: RemoteFunction> SpawnOn<'_, F> {
    async fn start(self) -> Result<RemoteProcess<F::Output>, StartError<F>> {
        let Self { node, offer, call, is_linked, patience } = self;
        let limit = Limit(patience.map(|patience| world::now() + patience));
        let not_started = |call, why| Err(StartError::NotStarted { call, why });
        let own = Pid::current();
        if is_linked && own.is_none() {
            return not_started(call, OutsideProcess.into());
        }
        if let Err(why) = ask::<F>(node, &offer, limit).await {
            return not_started(call, why);
        }
        let client = node.client::<Starts<F>>(&function_name(&offer, F::NAME));
        let client = match limit.left() {
            Some(left) => client.within(left).await,
            None => client.await,
        };
        let mut starter = match client {
            Ok(starter) => starter,
            Err(error) => return not_started(call, error.into()),
        };
        let (sender, output) = channel_with(fifo(1));
        let start: StartOf<F> = Start { arguments: call.arguments, output: sender };
        let again = |start: StartOf<F>| RemoteCall { arguments: start.arguments };
        let (pid, confirm) = match limit.run(starter.call(start)).await {
            Ok(Answer::Started(pid, confirm)) => (pid, confirm),
            Ok(Answer::Refused(refusal, start)) => return not_started(again(start), refusal.into()),
            Err(CallError::NotTaken { request, why }) => return not_started(again(request), not_taken(why)),
            Err(CallError::NoReply(_) | CallError::Unknown { .. }) => return Err(StartError::Lost),
        };
        // From here on nothing waits, so the start cannot be dropped halfway.
        if let (true, Some(own)) = (is_linked, own) {
            // Both are of a spawned process.
            let _ = (link(own, pid), link(pid, own));
        }
        let process = RemoteProcess::new(pid, monitor(pid), output);
        // If this cannot be sent, the node has been lost, and the monitor says so.
        let _ = confirm.send(());
        Ok(process)
    }
}

/// Asks whether the function may be started.
async fn ask<F: RemoteFunction>(node: &Node, offer: &str, limit: Limit) -> Result<(), StartFailure> {
    let client = node.client::<Asks>(offer);
    let mut asks = match limit.left() {
        Some(left) => client.within(left).await?,
        None => client.await?,
    };
    match limit.run(asks.call(words::encode(&F::NAME))).await {
        Ok(answer) => words::decode::<Admission>(&answer).ok_or(StartFailure::Unreadable)?.map_err(StartFailure::from),
        Err(CallError::NotTaken { why, .. }) => Err(not_taken(why)),
        Err(CallError::NoReply(error)) => Err(StartFailure::NoAnswer(error)),
        Err(CallError::Unknown { .. }) => Err(StartFailure::NotTaken(Why::NodeLost)),
    }
}

fn not_taken(why: Why) -> StartFailure {
    if why.is_timed_out() { StartFailure::TimedOut } else { StartFailure::NotTaken(why) }
}

/// When a start must be done.
#[derive(Clone, Copy)]
struct Limit(Option<Instant>);

impl Limit {
    fn left(self) -> Option<Duration> {
        self.0.map(|limit| limit.saturating_duration_since(world::now()))
    }

    async fn run<O: Operation>(self, operation: O) -> O::Output {
        match self.0 {
            Some(limit) => operation.by(limit).await,
            None => operation.await,
        }
    }
}
