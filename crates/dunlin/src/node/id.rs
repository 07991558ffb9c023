//! Identities of channels, drawn at random, and their halves.

use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::Which;

/// A channel's half at this node: its sending half, or its home. If both its ends are here, both halves are.
pub(crate) type Half = (ChannelId, Which);

fn random() -> u128 {
    crate::world::random().max(1)
}

pub(crate) fn channel() -> ChannelId {
    ChannelId(random())
}

pub(crate) fn seed() -> u64 {
    random() as u64
}
