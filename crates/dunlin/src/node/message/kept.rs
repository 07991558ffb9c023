//! What a node keeps for messages that are on their way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dunlin_core::agent::PassedOn;
use dunlin_core::carrier::WeakSharedEnd;
use dunlin_proto::id::{ChannelId, Contact};
use dunlin_proto::{ReceiverPlace, SenderPlace, Trip};

use crate::lock::lock;
use crate::node::codec::Encoding;

/// So many nodes may read one value at once. Honestly it is one; another one if the first has given up, and
/// that is not known yet.
pub(super) const READERS_MAX: usize = 16;

/// The shared ends that this node keeps, of which handles have gone to others. A handle that comes home is
/// one of those here again.
#[derive(Default)]
pub(crate) struct Kept {
    pub(super) ends: BTreeMap<u128, WeakSharedEnd>,
    /// How many they may be before it is looked which of them are over.
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

    /// How many of them have a handle yet.
    pub(crate) fn len(&self) -> usize {
        self.ends.values().filter(|end| end.is_there()).count()
    }
}

/// A message with ends in it, or one that is [unread](super::unread), that has arrived in an offer, and has
/// not been received here.
pub(crate) struct Passing {
    /// Over which channel.
    pub(super) over: ChannelId,
    pub(super) from: Contact,
    pub(super) bytes: Bytes,
    pub(super) encoding: Encoding,
    /// The message itself is still where it was sent, and this says where it can be read.
    pub(super) is_unread: bool,
    /// Its giver is being asked to say it anew.
    pub(super) is_asked_anew: bool,
}

/// The values of this node that are offered unread, by their keys.
#[derive(Clone, Default)]
pub(crate) struct Shelf(pub(super) Arc<Mutex<BTreeMap<u128, Arc<Bytes>>>>);

impl Shelf {
    /// The value under this key, for one more node that reads it. `None`: it is not here, or as many read it
    /// as may.
    pub(super) fn take(&self, key: u128) -> Option<Arc<Bytes>> {
        let on_shelf = lock(&self.0);
        // One of those who hold it is the shelf.
        on_shelf.get(&key).filter(|message| Arc::strong_count(message) <= READERS_MAX).cloned()
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Such a value. Dropped, when its offer stands no more, it cannot be read any more.
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

/// The ends of a message that goes through this node, until it is known what became of it.
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
    fn a_value_has_so_many_readers_at_once() {
        let shelf = Shelf::default();
        lock(&shelf.0).insert(7, Arc::new(Bytes::from_static(b"krill")));
        let mut readers: Vec<_> = std::iter::from_fn(|| shelf.take(7)).take(2 * READERS_MAX).collect();
        assert_eq!(readers.len(), READERS_MAX);
        readers.pop();
        assert!(shelf.take(7).is_some() && shelf.take(8).is_none());
    }
}
