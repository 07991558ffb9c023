//! A map from halves of channels.

use dunlin_proto::id::ChannelId;
use dunlin_proto::wire::Which;
use dunlin_sorted::SortedMap;

use super::id::Half;

/// Something for each half. A half that was found last is found again without a search.
pub(super) struct Halves<V> {
    senders: SortedMap<ChannelId, V>,
    receivers: SortedMap<ChannelId, V>,
}

impl<V> Default for Halves<V> {
    fn default() -> Self {
        Self { senders: SortedMap::new(), receivers: SortedMap::new() }
    }
}

impl<V> Halves<V> {
    fn of(&self, which: Which) -> &SortedMap<ChannelId, V> {
        match which {
            Which::Sender => &self.senders,
            Which::Receiver => &self.receivers,
        }
    }

    fn of_mut(&mut self, which: Which) -> &mut SortedMap<ChannelId, V> {
        match which {
            Which::Sender => &mut self.senders,
            Which::Receiver => &mut self.receivers,
        }
    }

    pub(super) fn get(&self, (channel, which): &Half) -> Option<&V> {
        self.of(*which).get(channel)
    }

    pub(super) fn get_mut(&mut self, (channel, which): &Half) -> Option<&mut V> {
        self.of_mut(*which).get_mut(channel)
    }

    pub(super) fn contains_key(&self, (channel, which): &Half) -> bool {
        self.of(*which).contains_key(channel)
    }

    pub(super) fn insert(&mut self, (channel, which): Half, value: V) {
        self.of_mut(which).insert(channel, value);
    }

    pub(super) fn remove(&mut self, (channel, which): &Half) -> Option<V> {
        self.of_mut(*which).remove(channel)
    }

    pub(super) fn len(&self) -> usize {
        self.senders.len() + self.receivers.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Half, &V)> {
        let senders = self.senders.iter().map(|(channel, value)| ((*channel, Which::Sender), value));
        senders.chain(self.receivers.iter().map(|(channel, value)| ((*channel, Which::Receiver), value)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.senders.values().chain(self.receivers.values())
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.senders.values_mut().chain(self.receivers.values_mut())
    }
}

impl<V> IntoIterator for Halves<V> {
    type Item = (Half, V);
    type IntoIter = std::vec::IntoIter<(Half, V)>;

    fn into_iter(self) -> Self::IntoIter {
        let senders = self.senders.into_iter().map(|(channel, value)| ((channel, Which::Sender), value));
        let receivers = self.receivers.into_iter().map(|(channel, value)| ((channel, Which::Receiver), value));
        senders.chain(receivers).collect::<Vec<_>>().into_iter()
    }
}
