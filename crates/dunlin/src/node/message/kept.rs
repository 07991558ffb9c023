//! What a node keeps for messages in flight.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dunlin_core::agent::PassedOn;
use dunlin_core::carrier::WeakSharedEnd;
use dunlin_proto::id::{ChannelId, Contact};
use dunlin_proto::{ReceiverPlace, SenderPlace, Trip};
use dunlin_sorted::SortedMap;

use crate::lock::lock;
use crate::node::codec::Encoding;

/// How many nodes may read one value at once. Normally one node reads it, and another one if the first has
/// given up and that is not known yet.
pub(super) const READERS_MAX: usize = 16;

/// The shared ends that this node keeps and whose handles have gone to other nodes. A handle that comes back
/// is a handle of one of these again.
#[derive(Default)]
pub(crate) struct Kept {
    pub(super) ends: SortedMap<u128, WeakSharedEnd>,
    /// At which number the ends that are over are removed.
    ends_max: usize,
}

impl Kept {
    pub(super) fn insert(&mut self, number: u128, end: WeakSharedEnd) {
        self.ends.insert(number, end);
        if self.ends.len() > self.ends_max {
            self.ends.retain(|_, end| end.is_there());
            self.ends_max = 2 * self.ends.len() + 16;
        }
    }

    /// How many of them still have a handle.
    pub(crate) fn len(&self) -> usize {
        self.ends.values().filter(|end| end.is_there()).count()
    }
}

/// A message with ends in it, or one that is [unread](super::unread), that has arrived in an offer, and has
/// not been received here.
pub(crate) struct Passing {
    /// The channel over which it came.
    pub(super) over: ChannelId,
    pub(super) from: Contact,
    pub(super) bytes: Bytes,
    pub(super) encoding: Encoding,
    /// The message itself is still at its sender's node, and these bytes name the place where it can be read.
    pub(super) is_unread: bool,
    /// Its giver is being asked to send it anew.
    pub(super) is_asked_anew: bool,
}

/// The values of this node that are offered unread, by their keys.
#[derive(Clone, Default)]
pub(crate) struct Shelf(pub(super) Arc<Mutex<SortedMap<u128, Arc<Bytes>>>>);

impl Shelf {
    /// The value under this key, for one more node that reads it. `None`: it is not here, or has the most
    /// readers allowed.
    pub(super) fn take(&self, key: u128) -> Option<Arc<Bytes>> {
        let on_shelf = lock(&self.0);
        // The shelf itself holds one reference.
        on_shelf.get(&key).filter(|message| Arc::strong_count(message) <= READERS_MAX).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// A shelved value. Dropped when its offer no longer stands; then it cannot be read any more.
pub(crate) struct Shelved {
    pub(super) shelf: Shelf,
    pub(super) key: u128,
}

impl Drop for Shelved {
    fn drop(&mut self) {
        lock(&self.shelf.0).remove(&self.key);
    }
}

/// Where an end is.
#[derive(Clone)]
pub(super) enum Place {
    Sender(SenderPlace),
    Receiver(ReceiverPlace),
}

/// The ends of a message that goes through this node, until their outcome is known.
pub(super) struct Through {
    pub(super) name: PassedOn,
    pub(super) from: Contact,
    pub(super) ends: Vec<(ChannelId, Place, Trip)>,
    pub(super) is_unread: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shelf_limits_concurrent_readers_of_a_value() {
        let shelf = Shelf::default();
        lock(&shelf.0).insert(7, Arc::new(Bytes::from_static(b"krill")));
        let mut readers: Vec<_> = std::iter::from_fn(|| shelf.take(7)).take(2 * READERS_MAX).collect();
        assert_eq!(readers.len(), READERS_MAX);
        readers.pop();
        assert!(shelf.take(7).is_some() && shelf.take(8).is_none());
    }
}
