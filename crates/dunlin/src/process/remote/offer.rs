//! What a node lets others start.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use dunlin_core::{Callee, Receiver, alt, future};
use tokio::sync::watch;

use super::begin::begin;
use super::function::RemoteFunction;
use super::request::{Admission, Answer, Asks, Refusal, Starts, function_name, load_name};
use super::rules::{Allow, Rules};
use crate::node::{Guest, NameError, Node, Peer, words};
use crate::world;

/// How many processes an offer lets run at once, unless it says otherwise.
const PROCESSES_MAX: usize = 4096;

type Declaring<'a> = Pin<Box<dyn Future<Output = Result<(), NameError>> + Send + 'a>>;

/// Declares one function of an offer.
type Declare = for<'a> fn(&'a Node, String, Arc<Rules>, watch::Receiver<()>) -> Declaring<'a>;

impl Node {
    /// Lets other nodes start functions here, under this name: add them with
    /// [`function`](Offering::function). Nothing else can be started here.
    ///
    /// A started process counts for the node that has started it, and for all nodes: see
    /// [`processes_max`](Offering::processes_max).
    ///
    /// # Errors
    /// [`NameError`], when the builder is awaited: the name is taken, for example. The name and the path of
    /// each function make a name, which must be valid.
    ///
    /// # Cancel safety
    /// If it is dropped while it is awaited, all declarations are withdrawn.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    ///
    /// #[dunlin::remote]
    /// async fn count_words(mut lines: Receiver<String>) -> usize {
    ///     let mut n = 0;
    ///     while let Ok(line) = lines.recv().await {
    ///         n += line.split_whitespace().count();
    ///     }
    ///     n
    /// }
    /// # dunlin::block_on(async {
    /// # let names = "memory:offer-example";
    /// let here = Node::builder().app("words").names(names).listen("memory:").join().await?;
    /// let there = Node::builder().app("words").names(names).listen("memory:").join().await?;
    /// let _offer = there.offer("big-machine").function::<count_words>().await?;
    ///
    /// let (mut tx, lines) = channel();
    /// let count = here.spawn_on("big-machine", count_words(lines)).await?;
    /// tx.send("krill and squid".to_owned()).await?;
    /// tx.send("salp".to_owned()).await?;
    /// drop(tx);
    /// assert_eq!(count.await?, 4);
    /// # there.leave().await?;
    /// # here.leave().await
    /// # }).unwrap();
    /// ```
    ///
    /// # Source
    /// `spawn/4` of Erlang, which needs no offer.
    pub fn offer(&self, name: &str) -> Offering<'_> {
        Offering { node: self, name: name.to_owned(), functions: Vec::new(), max: PROCESSES_MAX, allow: None }
    }
}

/// An offer that is to be declared: await it.
#[must_use = "the offer is declared when this is awaited"]
pub struct Offering<'a> {
    node: &'a Node,
    name: String,
    functions: Vec<(&'static str, Declare)>,
    max: usize,
    allow: Option<Allow>,
}

impl Offering<'_> {
    /// Offers this function too.
    pub fn function<F: RemoteFunction>(mut self) -> Self {
        self.functions.push((F::NAME, declare::<F>));
        self
    }

    /// How many processes of this offer may run at once, instead of 4,096; further starts are refused
    /// ([`StartFailure::Full`](super::StartFailure::Full)). Once three quarters of these run, a source (a
    /// host, or a user of this host) that has a 64th of them gets no more.
    pub fn processes_max(mut self, max: usize) -> Self {
        self.max = max;
        self
    }

    /// Which nodes may start its functions, instead of all. It is asked for each start, and should not block.
    pub fn allow(mut self, allow: impl Fn(Peer) -> bool + Send + Sync + 'static) -> Self {
        self.allow = Some(Box::new(allow));
        self
    }
}

impl fmt::Debug for Offering<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offering").field("name", &self.name).field("max", &self.max).finish_non_exhaustive()
    }
}

impl<'a> IntoFuture for Offering<'a> {
    type Output = Result<FunctionOffer, NameError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { node, name, functions, max, allow } = self;
        Box::pin(async move {
            let (open, closed) = watch::channel(());
            let names = functions.iter().map(|(name, _)| *name).collect();
            let rules = Arc::new(Rules::new(names, allow, max, node.sources()));
            for (function, declare) in functions {
                declare(node, function_name(&name, function), rules.clone(), closed.clone()).await?;
            }
            let meters = node.acceptor::<Asks>(&load_name(&name)).await?;
            let load = {
                let rules = rules.clone();
                move |peer, _| words::encode(&rules.load(peer))
            };
            world::spawn_own(serve(meters, closed.clone(), load));
            // The last, so that whoever finds the offer finds its functions.
            let guests = node.acceptor::<Asks>(&name).await?;
            let answer = move |peer, function: Bytes| {
                let function = words::decode::<String>(&function).ok_or(Refusal::NotOffered);
                let admission: Admission = function.and_then(|function| rules.check(peer, &function));
                words::encode(&admission)
            };
            world::spawn_own(serve(guests, closed, answer));
            Ok(FunctionOffer { name, _open: open })
        })
    }
}

/// The functions that other nodes may start here: made by [`Node::offer`].
///
/// Dropping it withdraws the offer: nothing is started any more, and the name is free again soon after. The
/// processes that it has started run on.
#[must_use = "the offer is withdrawn when its handle is dropped"]
pub struct FunctionOffer {
    name: String,
    _open: watch::Sender<()>,
}

impl FunctionOffer {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Debug for FunctionOffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionOffer").field(&self.name).finish()
    }
}

fn declare<F: RemoteFunction>(
    node: &Node,
    name: String,
    rules: Arc<Rules>,
    closed: watch::Receiver<()>,
) -> Declaring<'_> {
    Box::pin(async move {
        let guests = node.acceptor::<Starts<F>>(&name).await?;
        let answer = move |peer, start| match rules.enter(peer, F::NAME) {
            Ok(running) => begin::<F>(start, running),
            Err(refusal) => Answer::Refused(refusal, start),
        };
        world::spawn_own(serve(guests, closed, answer));
        Ok(())
    })
}

/// Answers each request of each guest, until the offer is withdrawn.
async fn serve<Q, A>(
    mut guests: Receiver<Guest<Callee<Q, A>>>,
    closed: watch::Receiver<()>,
    answer: impl Fn(Peer, Q) -> A + Clone + Send + 'static,
) where
    Q: Send + 'static,
    A: Send + 'static,
{
    let mut until = closed.clone();
    loop {
        let guest = alt! { biased;
            _ = future(until.changed()) => return,
            guest = guests.recv() => guest,
        };
        let Ok(guest) = guest else { return };
        let (answer, mut until) = (answer.clone(), closed.clone());
        world::spawn_own(async move {
            let peer = guest.peer();
            let mut callee = guest.into_face();
            loop {
                let asked = alt! { biased;
                    _ = future(until.changed()) => return,
                    asked = callee.accept() => asked,
                };
                let Ok(asked) = asked else { return };
                let (request, reply) = asked.split();
                // The asking node may be gone.
                let _ = reply.send(answer(peer, request));
            }
        });
    }
}
