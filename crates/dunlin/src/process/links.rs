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

/// The links of a process with the first two other ones, if these are of this program: most processes that
/// are linked have no more, and need no list.
#[derive(Default)]
pub(super) struct Pairs([Pair; 2]);

/// The links with another process in both directions, in 20 bytes.
#[derive(Clone, Copy, Default)]
struct Pair {
    /// In two halves, which need no padding.
    number: [u32; 2],
    /// Where the process is found in its table.
    place: u32,
    /// The numbers of the links, by the side of the process; 0: there is none.
    ids: [u32; 2],
}

impl Pair {
    fn is_free(self) -> bool {
        self.ids == [0; 2]
    }

    fn is_with(self, pid: Pid) -> bool {
        !pid.is_far() && !self.is_free() && self.number() == pid.number()
    }

    fn number(self) -> u64 {
        u64::from(self.number[0]) << 32 | u64::from(self.number[1])
    }

    fn id(self, side: Side) -> Option<u32> {
        let id = self.ids[side as usize];
        if id == 0 { None } else { Some(id) }
    }

    fn entry(self, side: Side) -> Option<Entry> {
        Some((Pid::of(self.place, waits::Pid::numbered(self.number())), self.id(side)?.into()))
    }
}

impl Pairs {
    pub(super) fn get(&self, side: Side, pid: Pid) -> Option<LinkId> {
        self.0.iter().find(|pair| pair.is_with(pid))?.id(side).map(LinkId::from)
    }

    /// Adds a link that is not there. `false`: it has no room here.
    pub(super) fn insert(&mut self, side: Side, pid: Pid, id: LinkId) -> bool {
        let (false, Ok(id @ 1..)) = (pid.is_far(), u32::try_from(id)) else { return false };
        let place = self.0.iter().position(|pair| pair.is_with(pid));
        let Some(at) = place.or_else(|| self.0.iter().position(|pair| pair.is_free())) else { return false };
        let pair = &mut self.0[at];
        pair.number = [(pid.number() >> 32) as u32, pid.number() as u32];
        pair.place = pid.place();
        pair.ids[side as usize] = id;
        true
    }

    pub(super) fn remove(&mut self, side: Side, pid: Pid) -> Option<LinkId> {
        let pair = self.0.iter_mut().find(|pair| pair.is_with(pid))?;
        let id = pair.id(side)?;
        pair.ids[side as usize] = 0;
        Some(id.into())
    }

    /// Takes the targets, and the sources.
    pub(super) fn take(&mut self) -> (Vec<Entry>, Vec<Entry>) {
        let pairs = std::mem::take(self).0;
        let entries = |side| pairs.iter().filter_map(|pair| pair.entry(side)).collect();
        (entries(Side::Target), entries(Side::Source))
    }
}

/// The other processes of all links that have no room in [`Pairs`], by their sides.
#[derive(Default)]
pub(super) struct Links {
    near: Set<Near, Short>,
    /// Links over nodes, and those with a large number.
    wide: Set<(Side, Pid), LinkId>,
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
        near.map(|short| short.1.into()).or_else(|| self.wide.get((side, pid)).copied())
    }

    /// Adds a link that is not there.
    pub(super) fn insert(&mut self, side: Side, pid: Pid, id: LinkId) {
        match (Near::of(side, pid), u32::try_from(id)) {
            (Some(near), Ok(short)) => drop(self.near.insert(near, Short(pid.place(), short))),
            _ => drop(self.wide.insert((side, pid), id)),
        }
    }

    pub(super) fn remove(&mut self, side: Side, pid: Pid) -> Option<LinkId> {
        let near = Near::of(side, pid).and_then(|near| self.near.remove(near));
        near.map(|short| short.1.into()).or_else(|| self.wide.remove((side, pid)))
    }

    /// Takes the targets, and the sources.
    pub(super) fn take(&mut self) -> (Vec<Entry>, Vec<Entry>) {
        let near = self.near.take().into_iter();
        let near = near.map(|(near, short)| (near.0 & 1 == Side::Target as u64, near.entry(short)));
        let wide = self.wide.take().into_iter().map(|((side, pid), id)| (side == Side::Target, (pid, id)));
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
            links.insert(Side::Source, pid(3), id);
            assert_eq!((links.get(Side::Source, pid(3)), links.get(Side::Target, pid(3))), (Some(id), None));
            assert_eq!((links.remove(Side::Source, pid(3)), links.remove(Side::Source, pid(3))), (Some(id), None));
            links.insert(Side::Target, pid(3), id);
            links.insert(Side::Source, pid(4), id);
            let (targets, sources) = links.take();
            assert_eq!((&targets, &sources), (&vec![(pid(3), id)], &vec![(pid(4), id)]));
            assert_eq!((targets[0].0.place(), sources[0].0.place()), (10, 11));
            assert_eq!(links.take(), (vec![], vec![]));
        }
    }

    #[test]
    fn two_processes_have_room_in_pairs_with_links_in_both_directions() {
        let large = pid(u64::from(u32::MAX) + 3);
        let mut pairs = Pairs::default();
        for (side, pid, id) in [(Side::Source, large, 9), (Side::Target, pid(3), 5), (Side::Target, large, 1)] {
            assert!(pairs.insert(side, pid, id));
            assert_eq!(pairs.get(side, pid), Some(id));
        }
        assert!(!pairs.insert(Side::Source, pid(4), 1), "a third process");
        assert!(!pairs.insert(Side::Source, pid(3), u64::from(u32::MAX) + 1), "a large number");
        assert_eq!((pairs.get(Side::Source, pid(3)), pairs.get(Side::Source, large)), (None, Some(9)));
        // A pair has its room as long as it has one of its links.
        assert_eq!((pairs.remove(Side::Source, large), pairs.remove(Side::Source, large)), (Some(9), None));
        assert!(!pairs.insert(Side::Source, pid(4), 1));
        assert_eq!(pairs.remove(Side::Target, large), Some(1));
        assert!(pairs.insert(Side::Source, pid(4), 2));
        let (targets, sources) = pairs.take();
        assert_eq!((&targets, &sources), (&vec![(pid(3), 5)], &vec![(pid(4), 2)]));
        assert_eq!((targets[0].0.place(), sources[0].0.place()), (10, 11));
        assert_eq!(pairs.take(), (vec![], vec![]));
    }

    #[test]
    fn a_link_of_this_program_takes_sixteen_bytes_and_two_in_a_pair_twenty() {
        assert_eq!((size_of::<(Near, Short)>(), size_of::<Pair>()), (16, 20));
    }
}
