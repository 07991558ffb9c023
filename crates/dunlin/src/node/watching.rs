//! How a program watches what happens to its node.

use dunlin_core::{Receiver, channel_with, overwrite_oldest};

use super::Node;
use super::events::{NodeEvent, Refusals};
use super::peer::{ConnectionState, NameConflict, Peer};

/// How many events are kept until they are received.
const KEPT: usize = 1024;

impl Node {
    /// What happens to this node, from now on: a channel that can be chosen over. It begins with the nodes
    /// that have [joined](NodeEvent::Joined) already, the present [conflicts](NodeEvent::Conflict), and the
    /// [closing](NodeEvent::Closing) of the application, if it closes. It keeps up to 1024 events until they
    /// are received, and then drops the oldest. It ends when the node has left.
    ///
    /// The same events go to `tracing`, with the target `dunlin::node`. Under `#[dunlin::main]` and
    /// `block_on`, in a program without a subscriber, a [mismatch](NodeEvent::Mismatch) is printed to
    /// standard error.
    ///
    /// # Examples
    /// ```
    /// use dunlin::node::NodeEvent;
    /// use dunlin::prelude::*;
    ///
    /// # dunlin::block_on(async {
    /// let names = "memory:names-of-events";
    /// let here = Node::builder().app("events").names(names).listen("memory:").join().await?;
    /// let mut events = here.events();
    /// let there = Node::builder().app("events").names(names).listen("memory:").join().await?;
    /// let _tx = there.sender::<u32>("krill").await?;
    /// loop {
    ///     match events.recv().await? {
    ///         NodeEvent::Joined { peer, .. } => break assert_eq!(peer, there.me()),
    ///         other => println!("{other}"),
    ///     }
    /// }
    /// # Result::<()>::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn events(&self) -> Receiver<NodeEvent> {
        let (mut tx, rx) = channel_with(overwrite_oldest(KEPT));
        self.inner.driver.with_hub_now(|hub, _| {
            if hub.present().into_iter().all(|event| tx.try_send(event).is_ok()) {
                hub.watch(Box::new(move |event| tx.try_send(event.clone()).is_ok()));
            }
        });
        rx
    }

    /// How often this node has refused others since it joined. Each refusal was an [event](Self::events). The
    /// log has one line a minute for each [source](crate::net::Source), ten in all, and then the number
    /// of the others.
    pub fn refusals(&self) -> Refusals {
        self.inner.driver.with_hub_now(|hub, _| hub.refusals())
    }

    /// What happens to this node's connections, from now on: a subset of the [events](Self::events).
    pub fn connections(&self) -> Receiver<(Peer, ConnectionState)> {
        let (mut tx, rx) = channel_with(overwrite_oldest(KEPT));
        let watcher = move |event: &NodeEvent| match event {
            NodeEvent::Connection(peer, state) => tx.try_send((*peer, state.clone())).is_ok(),
            _ => true,
        };
        self.inner.driver.with_hub_now(|hub, _| hub.watch(Box::new(watcher)));
        rx
    }

    /// The joined ends of this node whose name another node has too: a subset of the [events](Self::events),
    /// which begins with the present conflicts.
    ///
    /// A conflict arises when two parts of a network, in which the same name was joined, meet again: see
    /// [names](super#names). Both pairs continue. This node and the node at the other end are notified if
    /// their pair came second.
    pub fn conflicts(&self) -> Receiver<NameConflict> {
        let (mut tx, rx) = channel_with(overwrite_oldest(KEPT));
        let mut watcher = move |event: &NodeEvent| match event {
            NodeEvent::Conflict(conflict) => tx.try_send(conflict.clone()).is_ok(),
            _ => true,
        };
        self.inner.driver.with_hub_now(|hub, _| {
            if hub.present().iter().all(&mut watcher) {
                hub.watch(Box::new(watcher));
            }
        });
        rx
    }
}
