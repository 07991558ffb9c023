//! Nodes in one program, and ends that travel from one to another.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use dunlin::node::Records;
use dunlin::prelude::*;

/// The limit for every test; only a bug can reach it.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test of nodes.
pub(crate) fn run(test: impl Future<Output = Result>) {
    let limited = async { tokio::time::timeout(LIMIT, test).await.expect("the test hangs") };
    dunlin::block_on(limited).unwrap();
}

/// Nodes of an application of their own, which has the test's name.
pub(crate) async fn nodes<const N: usize>(test: &str) -> [Node; N] {
    let names = format!("memory:names-of-{test}");
    let mut nodes = Vec::new();
    for _ in 0..N {
        nodes.push(Node::builder().app(test).names(&names).listen("memory:").join().await.unwrap());
    }
    nodes.try_into().unwrap()
}

/// A channel from one node to another, for ends.
pub(crate) type Way<T> = (Sender<T>, Receiver<T>);

/// A way with this name.
pub(crate) async fn way<T: Portable>(from: &Node, to: &Node, name: &str) -> Result<Way<T>> {
    let (tx, rx) = par!(async { from.sender::<T>(name).await }, async { to.receiver::<T>(name).await });
    Ok((tx?, rx?))
}

/// Sends the end along this way.
pub(crate) async fn along<T: Portable>(end: T, way: &mut Way<T>) -> Result<T> {
    let (sent, received) = par!(way.0.send(end), way.1.recv());
    sent?;
    Ok(received?)
}

/// Sends the end from one node to another, over a channel by this name.
pub(crate) async fn carry<T: Portable>(end: T, from: &Node, to: &Node, name: &str) -> Result<T> {
    along(end, &mut way(from, to, name).await?).await
}

/// An end that travels from node to node, and is used as itself where it is.
pub(crate) struct Wanderer<E> {
    /// `None`: it was lost on its way, which was reported.
    end: Option<E>,
    at: usize,
    /// The prefix of the names of its ways.
    name: String,
    moves: u32,
}

impl<E: Portable> Wanderer<E> {
    /// Places it at this one of the nodes.
    pub(crate) fn new(end: E, at: usize, name: impl Into<String>) -> Self {
        Self { end: Some(end), at, name: name.into(), moves: 0 }
    }

    /// Travels to the node that is this many further.
    pub(crate) async fn go(&mut self, nodes: &[Node], further: usize) -> Result {
        let (to, name) = ((self.at + further) % nodes.len(), format!("{} {}", self.name, self.moves));
        let end = self.end.take().expect("it is there");
        self.end = Some(carry(end, &nodes[self.at], &nodes[to], &name).await?);
        (self.at, self.moves) = (to, self.moves + 1);
        Ok(())
    }
}

impl<E> Deref for Wanderer<E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.end.as_ref().expect("it is there")
    }
}

impl<E> DerefMut for Wanderer<E> {
    fn deref_mut(&mut self) -> &mut E {
        self.end.as_mut().expect("it is there")
    }
}

/// In a simulation: how long nodes may need to forget ended channels, if another node has been lost.
/// Otherwise it takes some round trips.
const FORGETS: Duration = Duration::from_secs(60);

/// In a simulation: waits until nothing is left at these nodes of any channel.
pub(crate) async fn nothing_is_left(nodes: &[Node]) -> Result {
    let step = Duration::from_millis(5);
    for _ in 0..FORGETS.as_millis() / step.as_millis() {
        if nodes.iter().all(|node| node.records() == Records::default()) {
            return Ok(());
        }
        sleep(step).await;
    }
    let left: Vec<_> = nodes.iter().map(|node| format!("\n  {:?}", node.records())).collect();
    Err(Error::other(format!("records are left:{}", left.concat())))
}
