//! How a node ends: `leave`, the drop of its last handle, the end of its runtime. And which of its values
//! are not acknowledged.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::Duration;

use dunlin_proto::Mark;
use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::driver::{Driver, State};
use super::error::{NameError, NodeError, Unacknowledged, UnsettledEnd, Unwritten};
use super::log::{self, nobody_reads};
use super::network::{BoxFuture, compiled_here};
use super::peer::Peer;
use super::role::Role;
use super::roles::{Roles, SAY_LEAVING};
use super::work::Half;
use super::{Inner, Node};
use crate::lock::lock;
use crate::world::{self, Own, Timer};

/// How long a node that leaves waits for the other nodes.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Until they have acknowledged everything...
    all: Duration,
    /// ... and of that, until ends that this node has sent on do not need it any more.
    handed_on: Duration,
}

impl Patience {
    /// For `leave`, and after the last handle is dropped.
    pub(super) const USUAL: Self = Self { all: Duration::from_secs(5), handed_on: Duration::from_secs(4) };
}

/// How long all nodes of a runtime together may delay its end.
const TOGETHER: Duration = Duration::from_secs(1);
/// The part of that which is kept for the node's tasks to end.
const RESERVE: Duration = Duration::from_millis(50);
/// The most that a node then waits for its members, and for ends that it has sent on.
const OTHERS: Duration = Duration::from_millis(300);
/// The same for a member, which has to tell its main node that it leaves: otherwise it counts as lost.
const SAYING: Duration = Duration::from_millis(600);

/// A node without handles, until it has left.
pub(super) struct Abandoned {
    pub(super) roles: Arc<Roles>,
    /// Those of a node with a role, which end with it.
    pub(super) tasks: Vec<Own>,
}

/// What has been lost with a node.
#[derive(Default)]
pub(super) struct Departed {
    pub(super) lost: Vec<UnsettledEnd>,
    /// `None`: everything was acknowledged.
    pub(super) unacknowledged: Option<Vec<Unacknowledged>>,
}

/// The values of a node that could not be written: how many there were, and the last of them.
#[derive(Default)]
pub(super) struct Losses {
    count: u64,
    /// So many of them have been told.
    told: u64,
    last: VecDeque<Unwritten>,
}

impl Losses {
    /// As many as a text names.
    const KEPT: usize = 8;

    pub(super) fn push(&mut self, name: Option<String>, why: String) {
        self.count += 1;
        self.last.push_back(Unwritten { name, why });
        if self.last.len() > Self::KEPT {
            self.last.pop_front();
        }
    }

    /// Tells of those behind the first so many.
    fn tell(&mut self, first: u64) -> Result<(), NodeError> {
        let count = self.count - first;
        if count == 0 {
            return Ok(());
        }
        self.told = self.count;
        let kept = self.last.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        Err(NodeError::Unwritten { count, values: self.last.range(self.last.len() - kept..).cloned().collect() })
    }
}

/// A call of [`Node::flush`] that waits.
pub(super) struct Flush {
    /// Halves with messages whose sends are complete, and which wait for an end in them to be at rest.
    owing: BTreeSet<Half>,
    /// Channels whose values wait until the home is known, and the node that it is said to be.
    detained: BTreeMap<ChannelId, Option<NodeId>>,
    /// Set once these two are empty.
    mark: Option<Mark>,
    lost: Vec<NodeId>,
    told: oneshot::Sender<Vec<NodeId>>,
}

impl State {
    /// Ends the flushes that are complete.
    pub(super) fn look_after_flushes(&mut self) {
        let mut flushes = std::mem::take(&mut self.flushes);
        flushes.retain_mut(|flush| !flush.told.is_closed());
        for mut flush in flushes {
            flush.owing.retain(|half| self.owes_of(*half));
            flush.detained.retain(|channel, home| {
                *home = self.machine.home_of(*channel).or(*home);
                self.machine.is_detained(*channel)
            });
            if flush.owing.is_empty() && flush.detained.is_empty() {
                let mark = flush.mark.get_or_insert_with(|| self.machine.mark());
                if self.machine.is_past(mark, &mut flush.lost) {
                    let _ = flush.told.send(flush.lost);
                    continue;
                }
            }
            self.flushes.push(flush);
        }
    }

    /// The home of this channel is lost: values that waited for it are not said any more.
    pub(super) fn lose_detained(&mut self, channel: ChannelId) {
        for flush in &mut self.flushes {
            flush.lost.extend(flush.detained.remove(&channel).flatten());
        }
    }

    /// The same of values that this half has not said.
    pub(super) fn lose_owed(&mut self, half: Half) {
        let peer = self.peer_of(half);
        for flush in self.flushes.iter_mut().filter(|flush| flush.owing.contains(&half)) {
            flush.lost.extend(peer);
        }
    }

    /// The nodes that have not acknowledged everything, and how many values of complete sends that is.
    pub(super) fn unacknowledged(&self) -> Vec<Unacknowledged> {
        let unacknowledged = self.machine.unacknowledged().into_iter();
        let mut found: BTreeMap<NodeId, (Life, u64)> =
            unacknowledged.map(|(life, values)| (life.node, (life, values))).collect();
        for (peer, unsaid) in self.unsaid() {
            if peer != self.machine.me().node {
                found.entry(peer).or_insert_with(|| (self.life_of(peer), 0)).1 += unsaid;
            }
        }
        found.into_values().map(|(life, values)| self.has_not_acknowledged(life, values)).collect()
    }

    fn has_not_acknowledged(&self, life: Life, values: u64) -> Unacknowledged {
        Unacknowledged { peer: Peer(life), addresses: self.machine.last_addresses_of(life.node).to_vec(), values }
    }

    fn life_of(&self, node: NodeId) -> Life {
        let met = self.machine.peers().find(|peer| peer.node == node);
        met.unwrap_or(Life { node, incarnation: Incarnation(0) })
    }
}

impl Driver {
    /// Sends everything that the ends of this node have sent, and the goodbye, and waits until the other
    /// nodes have acknowledged it. Then the node has ended.
    pub(super) async fn depart(self: &Arc<Self>, patience: Patience) -> Departed {
        self.with_hub_now(|hub, _| hub.leave());
        let mut departed = Departed::default();
        let mut late = false;
        let flushed = world::within(patience.all, async {
            let handed_on = world::within(patience.handed_on, async {
                self.all_said().await;
                self.with(|state, now| state.machine.hurry(now));
                self.unless_hurried(self.settled()).await
            });
            if !matches!(handed_on.await, Some(Some(Ok(())))) {
                departed.lost = self.unsettled();
                late = departed.lost.is_empty();
            }
            self.all_said().await;
            self.with(|state, now| state.machine.leave(now));
            let _ = self.flushed().await;
            self.all_said().await;
        });
        if flushed.await.is_none() || late {
            departed.unacknowledged = Some(self.speak(|locked| locked.state.unacknowledged()));
        }
        self.close();
        departed
    }

    /// Leaves after the last handle of the node is dropped.
    pub(super) async fn last_words(self: Arc<Self>, abandoned: Abandoned) {
        let Abandoned { roles, tasks } = abandoned;
        self.unless_hurried(roles.close(&self, SAY_LEAVING)).await;
        let departed = self.depart(Patience::USUAL).await;
        tasks.iter().for_each(Own::abort);
        roles.over();
        warn(self.log.application(), &departed.unacknowledged.unwrap_or_default(), "its last handle was dropped");
    }

    /// `None`: the runtime ends soon, so this has been given up.
    async fn unless_hurried<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        let mut hurries = self.hurries.subscribe();
        let mut hurried = pin!(hurries.wait_for(|hurries| *hurries));
        let mut wait = pin!(wait);
        poll_fn(|cx| match wait.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => hurried.as_mut().poll(cx).map(|_| None),
        })
        .await
    }
}

/// Tells how many values have not been acknowledged, if there are such.
pub(super) fn warn(application: &str, unacknowledged: &[Unacknowledged], why: &str) {
    let values: u64 = unacknowledged.iter().map(|peer| peer.values).sum();
    if values > 0 {
        let peers: Vec<String> = unacknowledged.iter().map(ToString::to_string).collect();
        let (peers, values_were) = (peers.join(", "), if values == 1 { "value was" } else { "values were" });
        let text = format!(
            "{values} {values_were} sent and not acknowledged when this node ended, since {why}; they may be lost. Await \
             `Node::flush` or `Node::leave` first"
        );
        // The program's sends have returned `Ok`, and nothing else tells it.
        if nobody_reads() {
            log::tell(application, format_args!("{text} (not acknowledged by {peers})"));
        }
        tracing::warn!(target: "dunlin::node", application, values, peers, "{text}");
    }
}

/// Dropped with the task that drives a node. If the node has not ended by then, its runtime has.
pub(super) struct Watchdog(pub(super) Arc<Driver>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            let unacknowledged = self.0.speak(|locked| locked.state.unacknowledged());
            warn(self.0.log.application(), &unacknowledged, "its runtime ended");
        }
    }
}

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
    /// [`NodeError::Unwritten`]: values that could not be written, and no `flush` has said so. The node has left all the same.
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
    /// It knows nothing of values that were lost with a connection before the call. [`NodeError::Unwritten`]: values could
    /// not be written though their sends had returned `Ok`, since the last `flush` that said so. [`NameError::Left`]: this node has left.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has had no effect.
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
        // What one flush tells, another that has begun before tells, too.
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
        let lost: BTreeSet<NodeId> = flushed.await.map_err(|_| NameError::Left)?.into_iter().collect();
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
            // Once it has ended, its address is free.
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

    /// Has each node leave that has not left.
    pub(crate) fn leave(&self) -> BoxFuture<'_, ()> {
        compiled_here(self.left())
    }

    async fn left(&self) {
        let nodes = std::mem::take(&mut *lock(&self.0));
        let leaving: Vec<_> = nodes.into_iter().map(|node| tokio::spawn(node.leave())).collect();
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
