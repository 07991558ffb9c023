//! The links of a process: those it has accepted, and those that others have accepted from it.

use dunlin_core::waits;

use super::pid::Pid;
use super::set::Set;

/// The number that the target of a link has given it.
pub(super) type LinkId = u64;

/// What a process is in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Target,
    Source,
}

/// A process, and the number of the link with it.
pub(super) type Entry = (Pid, LinkId);

/// The other processes of all links of a process, by their sides.
#[derive(Default)]
pub(super) struct Links {
    near: Set<Near, Short>,
    /// Links over nodes, and those with a large number.
    wide: Option<Box<Set<(Side, Pid), LinkId>>>,
}

/// A process of this program and its side, in one word: its number alone identifies it, and is below 2^63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Near(u64);

/// Where the process is found in its table, and the number of the link.
#[derive(Clone, Copy)]
struct Short(u32, u32);

impl Near {
    fn of(side: Side, pid: Pid) -> Option<Self> {
        if pid.is_far() { None } else { Some(Self(pid.number() << 1 | side as u64)) }
    }

    fn entry(self, Short(place, id): Short) -> Entry {
        (Pid::of(place, waits::Pid::numbered(self.0 >> 1)), id.into())
    }
}

impl Links {
    pub(super) fn get(&self, side: Side, pid: Pid) -> Option<LinkId> {
        let near = Near::of(side, pid).and_then(|near| self.near.get(near));
        near.map(|short| short.1.into()).or_else(|| self.wide.as_ref()?.get((side, pid)).copied())
    }

    /// Adds a link; an earlier one with that process is replaced.
    pub(super) fn insert(&mut self, side: Side, pid: Pid, id: LinkId) {
        self.remove(side, pid);
        match (Near::of(side, pid), u32::try_from(id)) {
            (Some(near), Ok(short)) => drop(self.near.insert(near, Short(pid.place(), short))),
            _ => drop(self.wide.get_or_insert_default().insert((side, pid), id)),
        }
    }

    pub(super) fn remove(&mut self, side: Side, pid: Pid) -> Option<LinkId> {
        let near = Near::of(side, pid).and_then(|near| self.near.remove(near));
        near.map(|short| short.1.into()).or_else(|| self.wide.as_mut()?.remove((side, pid)))
    }

    /// Takes the targets, and the sources.
    pub(super) fn take(&mut self) -> (Vec<Entry>, Vec<Entry>) {
        let near = self.near.take().into_iter();
        let near = near.map(|(near, short)| (near.0 & 1 == Side::Target as u64, near.entry(short)));
        let wide = self.wide.take().map(|mut wide| wide.take()).unwrap_or_default().into_iter();
        let wide = wide.map(|((side, pid), id)| (side == Side::Target, (pid, id)));
        let (targets, sources): (Vec<_>, Vec<_>) = near.chain(wide).partition(|(is_target, _)| *is_target);
        let entries = |side: Vec<(bool, Entry)>| side.into_iter().map(|(_, entry)| entry).collect();
        (entries(targets), entries(sources))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: u64) -> Pid {
        Pid::of(number as u32 + 7, waits::Pid::numbered(number))
    }

    #[test]
    fn small_and_large_numbers_behave_alike() {
        for id in [1, u64::from(u32::MAX), u64::from(u32::MAX) + 1, u64::MAX] {
            let mut links = Links::default();
            links.insert(Side::Source, pid(3), 9);
            links.insert(Side::Source, pid(3), id);
            assert_eq!((links.get(Side::Source, pid(3)), links.get(Side::Target, pid(3))), (Some(id), None));
            // Back to a small one: there is one link with a process.
            links.insert(Side::Source, pid(3), 8);
            assert_eq!((links.remove(Side::Source, pid(3)), links.remove(Side::Source, pid(3))), (Some(8), None));
            links.insert(Side::Target, pid(3), id);
            links.insert(Side::Source, pid(4), id);
            let (targets, sources) = links.take();
            assert_eq!((&targets, &sources), (&vec![(pid(3), id)], &vec![(pid(4), id)]));
            assert_eq!((targets[0].0.place(), sources[0].0.place()), (10, 11));
            assert_eq!(links.take(), (vec![], vec![]));
        }
    }

    #[test]
    fn a_link_of_this_program_takes_sixteen_bytes() {
        assert_eq!(size_of::<(Near, Short)>(), 16);
    }
}
