//! Halves of channels, and which of them the end of a node's life affects.

use std::cell::Cell;
use std::ops::RangeInclusive;

use dunlin_sorted::{SortedMap, SortedSet};

use crate::id::{ChannelId, NodeId};

/// How many changes are noted before halves that are gone are removed from the notes.
const CHANGES_MIN: usize = 64;

/// Something that names the nodes whose loss affects it.
pub(crate) trait Concerns {
    /// Calls `each` with each of them, perhaps several times.
    fn concerns(&self, each: &mut dyn FnMut(NodeId));
}

impl<T: Concerns> Concerns for Box<T> {
    fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
        (**self).concerns(each);
    }
}

/// Halves by channel, and by the nodes that they name.
///
/// The nodes that a half names change with many events, and are needed only when a life ends. So a half that
/// may have changed is noted once, and the noted halves are listed anew before the list is read. A half that
/// is created and removed while no life ends is never listed. The end of a life costs what has changed and
/// what it affects, however many halves there are.
#[derive(Clone, Debug)]
pub(crate) struct ByNode<T> {
    halves: SortedMap<ChannelId, Half<T>>,
    /// Halves that may have changed, and some that are gone.
    changed: Vec<ChannelId>,
    listed: SortedSet<(NodeId, ChannelId)>,
    /// The nodes under which a half is listed, if it is.
    names: SortedMap<ChannelId, Vec<NodeId>>,
    /// How many halves were examined because lives have ended, or in a search.
    visited: Cell<u64>,
}

#[derive(Clone, Debug)]
struct Half<T> {
    half: T,
    has_changed: bool,
}

impl<T> Default for ByNode<T> {
    fn default() -> Self {
        Self {
            halves: SortedMap::new(),
            changed: Vec::new(),
            listed: SortedSet::new(),
            names: SortedMap::new(),
            visited: Cell::new(0),
        }
    }
}

impl<T: Concerns> ByNode<T> {
    pub(crate) fn get(&self, channel: &ChannelId) -> Option<&T> {
        self.halves.get(channel).map(|half| &half.half)
    }

    pub(crate) fn get_mut(&mut self, channel: &ChannelId) -> Option<&mut T> {
        let half = self.halves.get_mut(channel)?;
        if !half.has_changed {
            half.has_changed = true;
            self.changed.push(*channel);
        }
        Some(&mut half.half)
    }

    /// An earlier half is no longer listed.
    pub(crate) fn insert(&mut self, channel: ChannelId, half: T) {
        self.remove(&channel);
        self.halves.insert(channel, Half { half, has_changed: true });
        if self.changed.len() >= CHANGES_MIN.max(2 * self.halves.len()) {
            let mut changed = std::mem::take(&mut self.changed);
            changed.sort_unstable();
            changed.dedup();
            changed.retain(|channel| self.halves.get(channel).is_some_and(|half| half.has_changed));
            self.changed = changed;
        }
        self.changed.push(channel);
    }

    pub(crate) fn remove(&mut self, channel: &ChannelId) -> Option<T> {
        let half = self.halves.remove(channel)?;
        self.unlist(channel);
        Some(half.half)
    }

    fn unlist(&mut self, channel: &ChannelId) {
        if !self.names.is_empty()
            && let Some(nodes) = self.names.remove(channel)
        {
            for node in nodes {
                self.listed.remove(&(node, *channel));
            }
        }
    }

    pub(crate) fn contains_key(&self, channel: &ChannelId) -> bool {
        self.halves.contains_key(channel)
    }

    pub(crate) fn len(&self) -> usize {
        self.halves.len()
    }

    /// All halves. Not for use when a node comes or goes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&ChannelId, &T)> {
        self.survey().inspect(|_| self.visited.set(self.visited.get() + 1))
    }

    /// All halves, for outside observers: not counted.
    pub(crate) fn survey(&self) -> impl Iterator<Item = (&ChannelId, &T)> {
        self.halves.iter().map(|(channel, half)| (channel, &half.half))
    }

    /// Whether any of these channels is here.
    pub(crate) fn has_any(&self, channels: RangeInclusive<ChannelId>) -> bool {
        self.halves.range(channels).next().is_some()
    }

    /// The channels whose halves name this node, in order.
    pub(crate) fn of(&mut self, node: NodeId) -> Vec<ChannelId> {
        self.list_changed();
        let of_it = self.listed.range((node, ChannelId(0))..=(node, ChannelId(u128::MAX)));
        let channels: Vec<ChannelId> = of_it.map(|(_, channel)| *channel).collect();
        self.visited.set(self.visited.get() + channels.len() as u64);
        channels
    }

    fn list_changed(&mut self) {
        for channel in std::mem::take(&mut self.changed) {
            let Some(half) = self.halves.get_mut(&channel).filter(|half| half.has_changed) else { continue };
            self.visited.set(self.visited.get() + 1);
            half.has_changed = false;
            let mut nodes = Vec::new();
            half.half.concerns(&mut |node| nodes.push(node));
            nodes.sort_unstable();
            nodes.dedup();
            // A home may have thousands of nodes, and only one of them comes or goes.
            let before = self.names.remove(&channel).unwrap_or_default();
            for node in &nodes {
                if before.binary_search(node).is_err() {
                    self.listed.insert((*node, channel));
                }
            }
            for node in &before {
                if nodes.binary_search(node).is_err() {
                    self.listed.remove(&(*node, channel));
                }
            }
            if !nodes.is_empty() {
                self.names.insert(channel, nodes);
            }
        }
    }

    /// How many halves were examined because lives have ended, or in a search.
    pub(crate) fn visited(&self) -> u64 {
        self.visited.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    struct Names(Vec<u128>);

    impl Concerns for Names {
        fn concerns(&self, each: &mut dyn FnMut(NodeId)) {
            self.0.iter().for_each(|node| each(NodeId(*node)));
        }
    }

    fn halves(names: &[(u128, &[u128])]) -> ByNode<Names> {
        let mut halves = ByNode::default();
        for (channel, nodes) in names {
            halves.insert(ChannelId(*channel), Names(nodes.to_vec()));
        }
        halves
    }

    #[test]
    fn halves_are_found_under_the_nodes_that_they_name_now() {
        let mut halves = halves(&[(1, &[7, 8, 7]), (2, &[8]), (3, &[])]);
        let of = |halves: &mut ByNode<Names>, node| halves.of(NodeId(node)).iter().map(|c| c.0).collect::<Vec<_>>();
        assert_eq!((of(&mut halves, 7), of(&mut halves, 8), of(&mut halves, 9)), (vec![1], vec![1, 2], vec![]));
        halves.get_mut(&ChannelId(3)).unwrap().0.push(9);
        halves.get_mut(&ChannelId(1)).unwrap().0 = vec![9];
        halves.remove(&ChannelId(2));
        assert_eq!((of(&mut halves, 7), of(&mut halves, 8), of(&mut halves, 9)), (vec![], vec![], vec![1, 3]));
        halves.insert(ChannelId(1), Names(vec![7]));
        assert_eq!((of(&mut halves, 7), of(&mut halves, 9)), (vec![1], vec![3]));
        halves.remove(&ChannelId(1));
        halves.remove(&ChannelId(3));
        assert!(halves.listed.is_empty() && halves.names.is_empty() && halves.halves.is_empty());
    }

    #[test]
    fn end_of_a_life_visits_only_changed_and_affected_halves() {
        let many: Vec<(u128, &[u128])> = (0..10_000).map(|channel| (channel, &[1][..])).collect();
        let mut halves = halves(&many);
        halves.insert(ChannelId(1 << 64), Names(vec![2]));
        assert_eq!(halves.of(NodeId(3)).len(), 0);
        let listed = halves.visited();
        assert_eq!(listed, 10_001, "all that have changed were listed once");
        for node in 3..1_000 {
            assert_eq!(halves.of(NodeId(node)).len(), 0);
        }
        assert_eq!(halves.visited(), listed);
        halves.get_mut(&ChannelId(5));
        assert_eq!(halves.of(NodeId(2)), [ChannelId(1 << 64)]);
        assert_eq!(halves.visited(), listed + 2);
    }

    #[test]
    fn half_with_many_nodes_is_relisted_where_it_has_changed() {
        let mut halves = halves(&[(1, &[]), (2, &[3])]);
        halves.get_mut(&ChannelId(1)).unwrap().0 = (1..=1_000).rev().collect();
        assert_eq!(halves.of(NodeId(3)), [ChannelId(1), ChannelId(2)]);
        for node in 1..=1_000 {
            assert!(halves.of(NodeId(node)).contains(&ChannelId(1)), "{node}");
            let names = &mut halves.get_mut(&ChannelId(1)).unwrap().0;
            names.retain(|other| *other != node);
            names.push(1_000 + node);
            assert!(!halves.of(NodeId(node)).contains(&ChannelId(1)), "{node}");
        }
        assert_eq!(halves.of(NodeId(2_000)), [ChannelId(1)]);
        assert_eq!((halves.listed.len(), halves.names.len()), (1_001, 2));
    }

    #[test]
    fn halves_that_come_and_go_leave_nothing() {
        let mut halves = halves(&[(0, &[1])]);
        for channel in 1..100_000 {
            halves.insert(ChannelId(channel), Names(vec![1]));
            halves.get_mut(&ChannelId(channel));
            halves.remove(&ChannelId(channel));
        }
        assert!(halves.changed.len() <= CHANGES_MIN && halves.changed.capacity() <= 2 * CHANGES_MIN);
        assert_eq!(halves.of(NodeId(1)), [ChannelId(0)]);
    }
}
