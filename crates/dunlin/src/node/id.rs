//! Random identities.

use dunlin_proto::id::ChannelId;

fn random() -> u128 {
    crate::world::random().max(1)
}

pub(crate) fn channel() -> ChannelId {
    ChannelId(random())
}

pub(crate) fn seed() -> u64 {
    random() as u64
}
