//! Waits for what a node has to end.

use std::time::{Duration, Instant};

use dunlin::node::{ConnectionState, Down, Peer, Records};
use dunlin::prelude::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until the node has no channel, and no place for a reply, left.
pub(crate) async fn nothing_is_left(node: &Node) {
    let limit = Instant::now() + PATIENCE;
    let mut step = tokio::time::interval(Duration::from_millis(5));
    while node.records() != Records::default() {
        assert!(Instant::now() < limit, "records are left: {:?}", node.records());
        step.tick().await;
    }
}

/// Waits for the end of a connection, and returns what ended it.
pub(crate) async fn down(connections: &mut Receiver<(Peer, ConnectionState)>) -> Down {
    loop {
        if let (_, ConnectionState::Down(why)) = connections.recv().within(PATIENCE).await.unwrap() {
            return why;
        }
    }
}
