//! Random identities.

use dunlin_proto::id::{ChannelId, NodeId};

fn random() -> u128 {
    let mut bytes = [0; 16];
    // Without a source of randomness two channels could be taken for each other: nothing sensible can go on.
    getrandom::fill(&mut bytes).expect("the system has no source of randomness");
    u128::from_ne_bytes(bytes).max(1)
}

pub(crate) fn channel() -> ChannelId {
    ChannelId(random())
}

pub(crate) fn node() -> NodeId {
    NodeId(random())
}

pub(crate) fn seed() -> u64 {
    random() as u64
}
