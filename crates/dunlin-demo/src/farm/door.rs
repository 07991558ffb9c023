//! How master and workers find each other over nodes: the only part of the farms that knows nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::net::Networks;
use dunlin::node::{Client, Encoding, Naming};
use dunlin::prelude::*;
use serde::{Deserialize, Serialize};

use super::fourier::Package;
use super::mandelbrot::Rectangle;
use super::protocol::Part;

/// The application of all farms.
pub(super) const APPLICATION: &str = "dunlin-farm";
/// The name of the door.
const DOOR: &str = "door";
/// The default address of a farm, behind the ports of the name services.
pub(super) const ADDRESS: &str = "127.0.0.1:7416";

/// What a farm offers at its door.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Calling {
    /// A part in drawing a picture.
    Mandelbrot(Part<Rectangle>),
    /// A part in a Fourier series.
    Fourier(Part<Package>),
    /// Nothing more: the farm closes.
    Over,
}

impl From<Part<Rectangle>> for Calling {
    fn from(part: Part<Rectangle>) -> Self {
        Self::Mandelbrot(part)
    }
}

impl From<Part<Package>> for Calling {
    fn from(part: Part<Package>) -> Self {
        Self::Fourier(part)
    }
}

/// Where workers enter: the bundle for which a farm's node has an acceptor.
#[derive(Debug, Bundle)]
pub(super) struct Door {
    /// What a worker that has entered receives.
    pub(super) calling: ToClient<Calling>,
}

/// The master's node: it serves the names itself, and admits every worker, even if `is_over` is set.
///
/// # Errors
/// The node cannot listen at the address.
pub(super) async fn opens(address: &str, grace: Duration, calling: Calling, is_over: Arc<AtomicBool>) -> Result<Node> {
    let node = Node::builder().app(APPLICATION).no_config().listen(address).names(address).grace(grace).join().await?;
    let mut guests = node.acceptor::<Door>(DOOR).encoding(Encoding::Compact).await?;
    drop(spawn(async move {
        while let Ok(Some(guest)) = guests.next().await {
            let calling = if is_over.load(Ordering::Acquire) { Calling::Over } else { calling.clone() };
            drop(spawn(welcomes(guest, calling)));
        }
    }));
    Ok(node)
}

async fn welcomes(mut guest: Guest<DoorServer>, calling: Calling) {
    // A worker that has left again needs nothing.
    let _ = guest.calling.send(calling).await;
}

/// A worker's node, and the worker's task.
///
/// # Errors
/// No node answers at the address, or the node there has no farm.
pub(super) async fn enters(address: &str, grace: Duration) -> Result<(Node, Calling)> {
    // Otherwise the join would wait silently for a node there.
    Networks::default().dial(address).await?;
    let node =
        Node::builder().app(APPLICATION).no_config().names(address).serve_names(false).grace(grace).join().await?;
    let mut door: DoorClient = naming(&node).within(Duration::from_secs(10)).await?;
    let calling = door.calling.recv().await?;
    Ok((node, calling))
}

/// The task for a node that has already joined: it waits for a farm.
///
/// # Errors
/// The farm has just closed.
pub(super) async fn asks(node: &Node) -> Result<Calling> {
    let mut door: DoorClient = naming(node).await?;
    Ok(door.calling.recv().await?)
}

fn naming(node: &Node) -> Naming<'_, Client<Door>> {
    node.client::<Door>(DOOR).encoding(Encoding::Compact)
}
