//! How master and workers find each other over nodes: the only part of the farms that knows of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dunlin::node::network::Networks;
use dunlin::node::{Client, Encoding, Naming};
use dunlin::prelude::*;

use super::protocol::{Calling, Door, DoorClient, DoorServer};

/// The application of all farms.
pub(super) const APPLICATION: &str = "dunlin-farm";
/// The name of the door.
const DOOR: &str = "door";

/// The master's node: it serves the names itself, and lets in whoever comes, be it to hear that all `is_over`.
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
    // Who has gone again needs nothing.
    let _ = guest.calling.send(calling).await;
}

/// A worker's node, and what it is to do.
///
/// # Errors
/// Nobody answers at the address; or who does has no farm.
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
