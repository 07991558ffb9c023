//! How master and workers find each other over nodes: the only part of the farms that knows of them.

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
/// The default address of a farm: after the ports of the name services.
pub(super) const ADDRESS: &str = "127.0.0.1:7416";

/// What is to be had at the door of a farm.
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

/// Where workers come in: the bundle that a farm's node has an acceptor of.
#[derive(Debug, Bundle)]
pub(super) struct Door {
    /// What a worker that has come in is given.
    pub(super) calling: ToClient<Calling>,
}

/// The master's node: it serves the names itself, and admits every worker, even if all `is_over`.
///
/// # Errors
/// It cannot listen there.
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

/// A worker's node, and what it is to do.
///
/// # Errors
/// No node answers at the address, or the one that does has no farm.
pub(super) async fn enters(address: &str, grace: Duration) -> Result<(Node, Calling)> {
    // Else it would wait for one without a word.
    Networks::default().dial(address).await?;
    let node =
        Node::builder().app(APPLICATION).no_config().names(address).serve_names(false).grace(grace).join().await?;
    let mut door: DoorClient = naming(&node).within(Duration::from_secs(10)).await?;
    let calling = door.calling.recv().await?;
    Ok((node, calling))
}

/// What there is to do, for a node that is there already: it waits for a farm.
///
/// # Errors
/// The farm has closed in this moment.
pub(super) async fn asks(node: &Node) -> Result<Calling> {
    let mut door: DoorClient = naming(node).await?;
    Ok(door.calling.recv().await?)
}

fn naming(node: &Node) -> Naming<'_, Client<Door>> {
    node.client::<Door>(DOOR).encoding(Encoding::Compact)
}
