//! How users end a node: `leave` and `flush`; and how the nodes of a runtime of dunlin's own end with it.

use std::cell::RefCell;
use std::future::Future;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dunlin_proto::id::NodeId;
use dunlin_sorted::SortedSet;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::{NameError, NodeError};
use super::leaving::{Departed, Patience, warn};
use super::role::Role;
use super::state::Driver;
use super::unsaid::Flush;
use super::{Inner, Node};
use crate::lock::lock;
use crate::net::{BoxFuture, compiled_here};
use crate::world::{self, Own, Timer};

/// How long all nodes of a runtime together may delay its end.
const TOGETHER: Duration = Duration::from_secs(1);
/// The part of that which is kept for the node's tasks to end.
const RESERVE: Duration = Duration::from_millis(50);
/// The most that a node then waits for its members, and for ends that it has sent on.
const OTHERS: Duration = Duration::from_millis(300);
/// The same for a member, which has to notify its main node that it leaves: otherwise it counts as lost.
const SAYING: Duration = Duration::from_millis(600);

impl Node {
    /// Leaves in order: first waits until the other nodes have acknowledged everything, for at most 5
    /// seconds. Ends of this node that are still held end with
    /// [`OwnNodeLeft`](dunlin_core::Why::OwnNodeLeft), those of other nodes with
    /// [`NodeLost`](dunlin_core::Why::NodeLost).
    ///
    /// Ends that this node has sent to other nodes need it until they are used there (until the first send or
    /// receive). So it first asks those nodes to take them over as if they were used, and waits for that, for
    /// at most 4 of these seconds. It waits as long for messages that were complete when they were sent, and
    /// that wait because an end in them is not at rest.
    ///
    /// A [main node](super::roles) first notifies its members, and waits until they have left, for at most
    /// [`NodeBuilder::shutdown`](super::NodeBuilder::shutdown). A member first notifies its main node.
    ///
    /// A node whose program does not call this [leaves by itself](super#how-a-node-ends).
    ///
    /// # Errors
    /// [`NodeError::Stragglers`]: members that had not left. [`NodeError::Unsettled`]: ends that were sent on
    /// are lost. [`NodeError::NotFlushed`]: nodes that have not acknowledged everything in time.
    /// [`NodeError::Unwritten`]: values that could not be written, and that no `flush` has reported. The node
    /// has left all the same.
    pub fn leave(self) -> impl Future<Output = crate::Result> + Send {
        compiled_here(self.depart())
    }

    async fn depart(self) -> crate::Result {
        tracing::info!(target: "dunlin::node", application = self.application(), "leaving");
        let members = self.inner.roles.close(&self.inner.driver, Duration::MAX).await;
        let driver = &self.inner.driver;
        let Departed { lost, unacknowledged } = self.end(Patience::USUAL).await;
        match unacknowledged {
            _ if !members.is_empty() => Err(NodeError::Stragglers { members }.into()),
            _ if !lost.is_empty() => Err(NodeError::Unsettled { ends: lost }.into()),
            None => Ok(driver.speak(|locked| locked.state.unwritten.tell(locked.state.unwritten.told))?),
            Some(peers) => Err(NodeError::NotFlushed { peers }.into()),
        }
    }

    /// Waits until the other nodes have acknowledged all values that ends of this node had sent before the
    /// call.
    ///
    /// A send into a FIFO or an unbounded buffer returns `Ok` once a place there is promised to it, which is
    /// before the value has arrived. `flush` returns `Ok` once each such value is at the node of its
    /// receiver, received or buffered. From then on the value is lost only if that node or its receiver ends.
    /// It does not mean that the program there has received the value, nor that its work on it is done: a
    /// [call](crate::call()) means that. See the table of [what `Ok` means](super#what-ok-means).
    ///
    /// `flush` does not wait for values that are sent after the call. While another node cannot be reached,
    /// it waits, for at most the [grace](super::NodeBuilder::grace) of that connection.
    ///
    /// # Errors
    /// [`NodeError::NotFlushed`] names the nodes whose connections ended before everything was acknowledged.
    /// It does not cover values that were lost with a connection before the call. [`NodeError::Unwritten`]:
    /// values could not be written though their sends had returned `Ok`, since the last `flush` that reported
    /// some. [`NameError::Left`]: this node has left.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, it has had no effect.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    ///
    /// # dunlin::block_on(async {
    /// let names = "memory:names-of-the-log";
    /// let here = Node::builder().app("log").names(names).listen("memory:").join().await?;
    /// let there = Node::builder().app("log").names(names).listen("memory:").join().await?;
    ///
    /// let mut lines = there.receiver::<String>("lines").policy(fifo(64)).await?;
    /// let mut log = here.sender::<String>("lines").await?;
    /// for n in 0..10 {
    ///     log.send(format!("line {n}")).await?; // Ok: there is a place for it
    /// }
    /// here.flush().await?; // Ok: they are at the other node, whatever becomes of this one
    /// assert_eq!(lines.recv().await?, "line 0");
    /// # here.leave().await?;
    /// # there.leave().await
    /// # }).unwrap();
    /// ```
    pub fn flush(&self) -> impl Future<Output = crate::Result> + Send {
        compiled_here(self.flushed())
    }

    async fn flushed(&self) -> crate::Result {
        let driver = &self.inner.driver;
        // A flush that began earlier also reports what another one reports meanwhile.
        let first = driver.speak(|locked| locked.state.unwritten.told);
        driver.all_said().await;
        let (told, flushed) = oneshot::channel();
        driver.with(|state, _| {
            if !driver.has_ended() {
                let detained = state.machine.detained().map(|channel| (channel, state.machine.home_of(channel)));
                let (owing, detained) = (state.owing().collect(), detained.collect());
                state.flushes.push(Flush { owing, detained, mark: None, lost: Vec::new(), told });
            }
        });
        let lost: SortedSet<NodeId> = flushed.await.map_err(|_| NameError::Left)?.into_iter().collect();
        if lost.is_empty() {
            return Ok(driver.speak(|locked| locked.state.unwritten.tell(first))?);
        }
        let peers = driver.speak(|locked| {
            let state = &*locked.state;
            lost.into_iter().map(|node| state.has_not_acknowledged(state.life_of(node), 0)).collect()
        });
        Err(NodeError::NotFlushed { peers }.into())
    }

    /// Ends the node, and waits for its tasks.
    async fn end(&self, patience: Patience) -> Departed {
        let departed = self.inner.driver.depart(patience).await;
        for task in self.inner.stop() {
            // Once the task has ended, its address is free.
            task.ended().await;
        }
        self.inner.roles.over();
        tracing::info!(target: "dunlin::node", application = self.application(), "left");
        departed
    }
}

/// The nodes that have joined in one runtime of dunlin's own.
#[derive(Default)]
pub(crate) struct Nodes(Mutex<Vec<Joined>>);

struct Joined {
    inner: Weak<Inner>,
    driver: Weak<Driver>,
    role: Option<Role>,
    /// Ends with the node.
    run: Own,
}

thread_local! {
    /// The nodes of the runtime that this thread works for.
    static HERE: RefCell<Option<Arc<Nodes>>> = const { RefCell::new(None) };
}

/// From now on this thread works for the runtime of these nodes. Returns those of the runtime before.
pub(crate) fn works_for(nodes: Option<Arc<Nodes>>) -> Option<Arc<Nodes>> {
    HERE.with(|here| here.replace(nodes))
}

/// Whether this thread works for a runtime that [`main`](crate::main) has made.
pub(crate) fn is_own_runtime() -> bool {
    let nodes = works_for(None);
    let is_own = nodes.is_some();
    works_for(nodes);
    is_own
}

/// Registers a node that has joined, if its runtime is one of dunlin's own. `run` drives it.
pub(super) fn joined(inner: &Arc<Inner>, run: Own) {
    let nodes = HERE.with(|here| here.borrow().clone());
    if let Some(nodes) = nodes.filter(|_| !world::is_simulated()) {
        let mut joined = lock(&nodes.0);
        joined.retain(|node| node.driver.strong_count() > 0);
        let driver = Arc::downgrade(&inner.driver);
        joined.push(Joined { inner: Arc::downgrade(inner), driver, role: inner.roles.role(), run });
    }
}

impl Nodes {
    /// Whether no node has joined.
    pub(crate) fn are_none(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// Makes each node leave that has not left.
    pub(crate) fn leave(&self) -> BoxFuture<'_, ()> {
        compiled_here(self.left())
    }

    async fn left(&self) {
        let nodes = std::mem::take(&mut *lock(&self.0));
        let leaving: Vec<_> = nodes
            .into_iter()
            .map(|node| {
                tokio::spawn(compiled_here(async move {
                    let _ = node.leave().await;
                }))
            })
            .collect();
        let all = async {
            for node in leaving {
                let _ = node.await;
            }
        };
        // For a node that takes longer, its watchdog logs what is missing.
        let _ = tokio::time::timeout(TOGETHER, all).await;
    }
}

impl Joined {
    async fn leave(self) {
        let until = Instant::now() + TOGETHER - RESERVE;
        let Self { inner, driver, role, run } = self;
        let patience = if role == Some(Role::Member) { SAYING } else { OTHERS };
        if let Some(inner) = inner.upgrade() {
            let node = Node { inner };
            tracing::info!(target: "dunlin::node", application = node.application(), "leaving: `main` has returned");
            node.inner.roles.close(&node.inner.driver, patience).await;
            let departed = node.end(Patience { all: until - Instant::now(), handed_on: OTHERS }).await;
            warn(node.application(), &departed.unacknowledged.unwrap_or_default(), "`main` returned");
        } else {
            // It is leaving already.
            world::spawn_own(async move {
                Timer::after(patience).await;
                if let Some(driver) = driver.upgrade() {
                    driver.hurries.send_replace(true);
                }
            });
        }
        run.ended().await;
    }
}
