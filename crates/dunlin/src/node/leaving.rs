//! How a node ends: `leave`, the drop of its last handle, the end of its runtime. And which of its values
//! are not acknowledged.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId};
use dunlin_sorted::SortedMap;

use super::error::{Unacknowledged, UnsettledEnd};
use super::id::Half;
use super::log::{self, nobody_reads};
use super::peer::Peer;
use super::roles::SAY_LEAVING;
use super::state::{Driver, State};
use super::unsaid::Abandoned;
use crate::world::{self, Own};

/// How long a node that leaves waits for the other nodes.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Until they have acknowledged everything...
    pub(super) all: Duration,
    /// ... and of that, until ends that this node has sent on do not need it any more.
    pub(super) handed_on: Duration,
}

impl Patience {
    /// For `leave`, and after the last handle is dropped.
    pub(super) const USUAL: Self = Self { all: Duration::from_secs(5), handed_on: Duration::from_secs(4) };
}

/// What has been lost with a node.
#[derive(Default)]
pub(super) struct Departed {
    pub(super) lost: Vec<UnsettledEnd>,
    /// `None`: everything was acknowledged.
    pub(super) unacknowledged: Option<Vec<Unacknowledged>>,
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

    /// The home of this channel is lost: values that waited for it are not sent any more.
    pub(super) fn lose_detained(&mut self, channel: ChannelId) {
        for flush in &mut self.flushes {
            flush.lost.extend(flush.detained.remove(&channel).flatten());
        }
    }

    /// The same for values that this half has not sent.
    pub(super) fn lose_owed(&mut self, half: Half) {
        let peer = self.peer_of(half);
        for flush in self.flushes.iter_mut().filter(|flush| flush.owing.contains(&half)) {
            flush.lost.extend(peer);
        }
    }

    /// The nodes that have not acknowledged everything, and how many values of complete sends that is.
    pub(super) fn unacknowledged(&self) -> Vec<Unacknowledged> {
        let unacknowledged = self.machine.unacknowledged().into_iter();
        let mut found: SortedMap<NodeId, (Life, u64)> =
            unacknowledged.map(|(life, values)| (life.node, (life, values))).collect();
        for (peer, unsaid) in self.unsaid() {
            if peer != self.machine.me().node {
                found.get_or_insert_with(peer, || (self.life_of(peer), 0)).1 += unsaid;
            }
        }
        found.into_values().map(|(life, values)| self.has_not_acknowledged(life, values)).collect()
    }

    pub(super) fn has_not_acknowledged(&self, life: Life, values: u64) -> Unacknowledged {
        Unacknowledged { peer: Peer(life), addresses: self.machine.last_addresses_of(life.node).to_vec(), values }
    }

    pub(super) fn life_of(&self, node: NodeId) -> Life {
        let met = self.machine.peers().find(|peer| peer.node == node);
        met.unwrap_or(Life { node, incarnation: Incarnation(0) })
    }
}

impl Driver {
    /// Held by the task that drives the node.
    pub(super) fn watchdog(self: &Arc<Self>) -> impl Drop + use<> {
        Watchdog(self.clone())
    }

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

/// Reports how many values have not been acknowledged, if any.
pub(super) fn warn(application: &str, unacknowledged: &[Unacknowledged], why: &str) {
    let values: u64 = unacknowledged.iter().map(|peer| peer.values).sum();
    if values > 0 {
        let peers: Vec<String> = unacknowledged.iter().map(ToString::to_string).collect();
        let (peers, values_were) = (peers.join(", "), if values == 1 { "value was" } else { "values were" });
        let text = format!(
            "{values} {values_were} sent and not acknowledged when this node ended, since {why}; they may be lost. Await \
             `Node::flush` or `Node::leave` first"
        );
        // The program's sends have returned `Ok`, and nothing else reports the loss.
        if nobody_reads() {
            log::tell(application, format_args!("{text} (not acknowledged by {peers})"));
        }
        tracing::warn!(target: "dunlin::node", application, values, peers, "{text}");
    }
}

/// Dropped with the task that drives a node. If the node has not ended by then, its runtime has.
struct Watchdog(Arc<Driver>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            let unacknowledged = self.0.speak(|locked| locked.state.unacknowledged());
            warn(self.0.log.application(), &unacknowledged, "its runtime ended");
        }
    }
}
