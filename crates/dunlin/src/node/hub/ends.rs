//! The ends that are declared here, by number, and those that clients call by their channel.

#[cfg(test)]
use std::cell::Cell;

use dunlin_proto::id::ChannelId;
use dunlin_sorted::SortedMap;

use super::end::{DeclaredEnd, Role};

/// The declared ends. A peer may call any channel as often as it likes, and a node may have very many ends:
/// tests count the ends visited by searches.
#[derive(Default)]
pub(super) struct Ends {
    // Boxed: with ascending numbers a node of a B-tree is about half empty.
    all: SortedMap<u64, Box<DeclaredEnd>>,
    /// Acceptors and servers, by the channel that their clients call.
    called: SortedMap<ChannelId, u64>,
    /// How many ends were visited in search of others.
    #[cfg(test)]
    visited: Cell<usize>,
}

impl Ends {
    pub(super) fn get(&self, number: u64) -> Option<&DeclaredEnd> {
        self.all.get(&number).map(|end| &**end)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut DeclaredEnd> {
        self.all.get_mut(&number).map(|end| &mut **end)
    }

    pub(super) fn insert(&mut self, number: u64, end: Box<DeclaredEnd>) {
        if let Role::Acceptor(_) | Role::Server(_) = end.role {
            self.called.insert(end.channel, number);
        }
        self.all.insert(number, end);
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<Box<DeclaredEnd>> {
        let end = self.all.remove(&number)?;
        self.called.remove(&end.channel);
        Some(end)
    }

    /// The acceptor or server with this channel.
    pub(super) fn called(&mut self, channel: ChannelId) -> Option<(u64, &mut DeclaredEnd)> {
        let number = *self.called.get(&channel)?;
        Some((number, self.get_mut(number)?))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &DeclaredEnd)> {
        self.all.iter().map(|(number, end)| {
            #[cfg(test)]
            self.visited.set(self.visited.get() + 1);
            (*number, &**end)
        })
    }

    /// Removes all of them.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = DeclaredEnd> + use<> {
        self.called.clear();
        std::mem::take(&mut self.all).into_values().map(|end| *end)
    }

    #[cfg(test)]
    pub(super) fn visited(&self) -> usize {
        self.visited.get()
    }
}
