//! Which channels belong to which end.

use dunlin_proto::id::ChannelId;
use dunlin_sorted::{SortedMap, SortedSet};

/// The end that a stretched channel belongs to, and all channels of an end that may have several. A node may
/// have very many of both, so no operation iterates over all of them.
#[derive(Default)]
pub(super) struct Channels {
    ends: SortedMap<ChannelId, u64>,
    /// The channels of bundles.
    of: SortedSet<(u64, ChannelId)>,
}

impl Channels {
    /// Adds the channel to that bundle.
    pub(super) fn insert(&mut self, channel: ChannelId, number: u64) {
        self.insert_alone(channel, number);
        self.of.insert((number, channel));
    }

    /// Adds the only channel of that end: the end is over with it, and the channel is not [listed](Self::of).
    pub(super) fn insert_alone(&mut self, channel: ChannelId, number: u64) {
        self.remove(channel);
        self.ends.insert(channel, number);
    }

    /// Returns the end that it belonged to.
    pub(super) fn remove(&mut self, channel: ChannelId) -> Option<u64> {
        let number = self.ends.remove(&channel)?;
        self.of.remove(&(number, channel));
        Some(number)
    }

    /// The end that it belongs to.
    pub(super) fn end_of(&self, channel: ChannelId) -> Option<u64> {
        self.ends.get(&channel).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// All channels of a bundle.
    pub(super) fn of(&self, number: u64) -> impl Iterator<Item = ChannelId> + '_ {
        let all = (number, ChannelId(u128::MIN))..=(number, ChannelId(u128::MAX));
        self.of.range(all).map(|(_, channel)| *channel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_lists_its_channels_until_they_are_removed_or_reassigned() {
        let mut channels = Channels::default();
        for channel in [0, 3, u128::MAX] {
            channels.insert(ChannelId(channel), 7);
        }
        channels.insert(ChannelId(4), 6);
        channels.insert(ChannelId(5), 8);
        let of = |channels: &Channels, number| channels.of(number).map(|channel| channel.0).collect::<Vec<_>>();
        assert_eq!(of(&channels, 7), [0, 3, u128::MAX]);
        channels.insert(ChannelId(3), 8);
        assert_eq!((of(&channels, 7), of(&channels, 8)), (vec![0, u128::MAX], vec![3, 5]));
        assert_eq!(channels.end_of(ChannelId(3)), Some(8));
        assert_eq!(channels.remove(ChannelId(0)), Some(7));
        assert_eq!(channels.remove(ChannelId(0)), None);
        assert_eq!(of(&channels, 7), [u128::MAX]);
        assert_eq!(of(&channels, 6), [4]);
        channels.insert_alone(ChannelId(4), 9);
        assert_eq!((channels.end_of(ChannelId(4)), channels.len()), (Some(9), 4));
        assert!(of(&channels, 6).is_empty() && of(&channels, 9).is_empty());
        assert_eq!(channels.remove(ChannelId(4)), Some(9));
    }
}
