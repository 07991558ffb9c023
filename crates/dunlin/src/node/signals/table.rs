//! What a node knows of processes: its own that others watch, those of other nodes that its own watch, and
//! the key that makes its pids.

use std::sync::Arc;

use dunlin_proto::id::{NodeId, ProcessId};
use dunlin_proto::wire::{Exit, limits};
use dunlin_sorted::SortedMap;
use ed25519_compact::sha512;

use crate::net::Source;
use crate::world;

/// How many links of one source a node keeps, from when they are asked for until their exits are received: as
/// many as two nodes may have.
const LINKS_MAX: usize = limits::WATCHES;

/// A process of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Here {
    pub(crate) number: u64,
    pub(crate) place: u32,
}

/// Where a process is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Where {
    Here(Here),
    There(ProcessId),
}

/// How a process ended, in a form that nodes exchange.
pub(crate) struct Ended {
    /// Without its origin.
    pub(crate) exit: Exit,
    /// The process where this began, if that is another one.
    pub(crate) origin: Option<Where>,
}

/// To be dropped where nothing is locked: that wakes what waits.
pub(crate) type Later = Option<Box<dyn Send>>;

/// Learns how a process of another node ended. Runs no code of users.
pub(crate) trait Told: Send + Sync {
    /// `via`: the node of this program that reports it.
    fn down(&self, via: u64, ended: Ended) -> Later;
}

/// Tells another node how a process of this program ended.
pub(crate) trait Report: Send + Sync {
    /// No node may be locked.
    fn report(&self, ended: Ended);
}

/// A link that another node asks for.
pub(crate) enum Linking {
    /// The target has it, under this number, and `told` is for it.
    Watch(u64, Arc<dyn Told>),
    /// There is nothing more to do.
    Done(Later),
}

/// The processes of this program, as its nodes use them. Called while a node is locked: nothing here locks a
/// node, or runs code of users.
pub(crate) trait Processes: Sync {
    /// Watches a process, under the number that is returned.
    ///
    /// # Errors
    /// It has ended.
    fn watch(&self, of: Here, report: Arc<dyn Report>) -> Result<u64, Box<Ended>>;

    fn unwatch(&self, of: Here, watch: u64);

    /// Links `target`. `held` is dropped when the link has ended, and its exit has been received.
    fn link(&self, via: u64, source: Where, target: Here, held: Arc<dyn Send + Sync>) -> Linking;

    /// Ends that link. `Some`: the target has had it, under this number, and its source is at another node.
    fn unlink(&self, via: u64, source: Where, target: Here) -> (Option<u64>, Later);

    /// `held` is dropped when the exit has been received.
    fn exit(&self, via: u64, to: Here, from: Where, ended: Ended, held: Arc<dyn Send + Sync>) -> Later;

    fn kill(&self, via: u64, to: Here, by: Where) -> Later;
}

/// A process of another node that one of this program watches.
pub(super) struct Asked {
    pub(super) told: Arc<dyn Told>,
    /// If it is the source of a link: the number of the target, and that of the link.
    pub(super) link: Option<(u64, u64)>,
}

/// Makes the bits of pids. They are a hash, so nothing is kept for a pid that was given away.
struct Key([u8; 32]);

impl Key {
    fn draw() -> Self {
        let mut key = [0; 32];
        key[..16].copy_from_slice(&world::random().to_ne_bytes());
        key[16..].copy_from_slice(&world::random().to_ne_bytes());
        Self(key)
    }

    fn bits(&self, use_of: &[u8; 4], number: u64) -> u64 {
        let mut hash = sha512::Hash::new();
        hash.update(self.0);
        hash.update(use_of);
        hash.update(number.to_be_bytes());
        let hash = hash.finalize();
        let (first, _) = hash.split_first_chunk().expect("it has 512 bits");
        u64::from_be_bytes(*first)
    }
}

/// The signals of a node.
pub(in crate::node) struct Signals {
    key: Key,
    /// Set before any pid of this node leaves it.
    pub(super) processes: Option<&'static dyn Processes>,
    /// By the numbers of the watches.
    pub(super) asked: SortedMap<u64, Asked>,
    /// The watches that are links, by the numbers of the target and of the link.
    pub(super) links: SortedMap<(u64, u64), (NodeId, u64)>,
    /// For each source, what its links keep: those that its nodes have asked for, and whose exits have not
    /// been received.
    linked_by: SortedMap<Source, Arc<()>>,
    /// The watches of other nodes, with the process and the number that it knows each by.
    pub(super) here: SortedMap<(NodeId, u64), (Here, u64)>,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            key: Key::draw(),
            processes: None,
            asked: SortedMap::new(),
            links: SortedMap::new(),
            linked_by: SortedMap::new(),
            here: SortedMap::new(),
        }
    }
}

impl Signals {
    /// The bits that let another node send signals to a process.
    pub(super) fn right(&self, number: u64) -> u64 {
        self.key.bits(b"send", number)
    }

    /// The bits that show a process to be one of this node, and let no node send to it.
    pub(super) fn name(&self, number: u64) -> u64 {
        self.key.bits(b"name", number)
    }

    /// For one more link that a node of this source asks for. `None`: there are too many. (The exit of a link
    /// takes memory until it is received, however the link ended.)
    pub(super) fn room_for_link(&mut self, by: Source) -> Option<Arc<()>> {
        if !self.linked_by.contains_key(&by) {
            self.linked_by.retain(|_, kept| Arc::strong_count(kept) > 1);
        }
        let kept = self.linked_by.get_or_default(by);
        if Arc::strong_count(kept) > LINKS_MAX { None } else { Some(kept.clone()) }
    }

    pub(super) fn take_asked(&mut self, watch: u64) -> Option<Asked> {
        let asked = self.asked.remove(&watch)?;
        if let Some(link) = asked.link {
            self.links.remove(&link);
        }
        Some(asked)
    }

    /// The processes of other nodes that are still watched: their watchers learn that they are lost.
    pub(in crate::node) fn take_all(&mut self) -> Vec<Arc<dyn Told>> {
        self.links.clear();
        std::mem::take(&mut self.asked).into_values().map(|asked| asked.told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_differ_by_node_process_and_use() {
        let (one, other) = (Signals::default(), Signals::default());
        let bits = [one.right(1), one.right(2), one.name(1), other.right(1)];
        for (at, bit) in bits.iter().enumerate() {
            assert!(!bits[..at].contains(bit), "{bits:?}");
        }
        assert_eq!(one.right(1), bits[0]);
    }
}
