//! How a program watches what happens to its node.

use dunlin_core::{Receiver, channel_with, overwrite_oldest};

use super::Node;
use super::events::{NodeEvent, Refusals};
use super::peer::{ConnectionState, NameConflict, Peer};

/// So many events are kept for who does not receive them.
const KEPT: usize = 1024;

impl Node {
    /// What happens to this node, from now on: a channel that can be chosen over. First come those who [are
    /// there](NodeEvent::Joined) already, the [conflicts](NodeEvent::Conflict) that there are, and that the
    /// application [closes](NodeEvent::Closing), if it does. What nobody receives is kept up to 1024 events;
    /// then the oldest go. It ends when the node has left.
    ///
    /// The same are `tracing` events with the target `dunlin::node`. Under `#[dunlin::main]` and `block_on`,
    /// in a program without a subscriber, a [mismatch](NodeEvent::Mismatch) is printed to standard error.
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

    /// How often this node has refused others, since it joined. Each of them was an [event](Self::events);
    /// the log has one line for each [source](crate::net::Source) in a minute, ten in all, and then how
    /// many more there were.
    pub fn refusals(&self) -> Refusals {
        self.inner.driver.with_hub_now(|hub, _| hub.refusals())
    }

    /// What happens to this node's connections, from now on: of the [events](Self::events) those.
    pub fn connections(&self) -> Receiver<(Peer, ConnectionState)> {
        let (mut tx, rx) = channel_with(overwrite_oldest(KEPT));
        let watcher = move |event: &NodeEvent| match event {
            NodeEvent::Connection(peer, state) => tx.try_send((*peer, state.clone())).is_ok(),
            _ => true,
        };
        self.inner.driver.with_hub_now(|hub, _| hub.watch(Box::new(watcher)));
        rx
    }

    /// The ends of this node that are joined, and whose name somebody else has too: of the
    /// [events](Self::events) those, and first the conflicts that there are.
    ///
    /// That happens when two parts of a network, in which the same name was joined, meet again: see
    /// [names](super#names). Each pair goes on; this node is told if what it has came second, and so is the
    /// node at the other end.
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
