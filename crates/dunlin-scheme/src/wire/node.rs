//! Names of processes and tags that several programs know.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Which processes and tags of other programs a program has read about.
///
/// A number of this program names one of its own; numbers with the highest bit are places in a table of those
/// of others.
#[derive(Clone)]
pub(crate) struct NodeNames {
    node: u64,
    far: Vec<(u64, u64)>,
    numbers: HashMap<(u64, u64), u64>,
    /// Of processes that were read from an image of another one, also of other programs: which one.
    originals: HashMap<u64, (u64, u64)>,
}

/// Why a name of another program has no number here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoNumber {
    /// No program has such a name.
    Malformed,
    /// This program knows as many names of others as it may.
    Full,
}

/// Where a process or a tag stands among others. A copy of a process comes right after its original, so that
/// it has the place of that in a map that it took along.
type Place = ((u64, u64), Option<(u64, u64)>);

/// The bit of a number that is none of this program.
const FAR: u64 = 1 << 55;
impl NodeNames {
    /// A program of its own, with a number drawn at random.
    pub(crate) fn new() -> Self {
        Self {
            node: RandomState::new().hash_one(0_u64),
            far: Vec::new(),
            numbers: HashMap::new(),
            originals: HashMap::new(),
        }
    }

    /// The program of a process or a tag, and its number there.
    pub(crate) fn far(&self, number: u64) -> (u64, u64) {
        if number & FAR == 0 { (self.node, number) } else { self.far[(number ^ FAR) as usize] }
    }

    /// The place in the order of names, which is the same in every program.
    pub(crate) fn place(&self, number: u64) -> Place {
        match self.original(number) {
            Some(original) => (original, Some(self.far(number))),
            None => (self.far(number), None),
        }
    }

    /// The original of a process that is a copy: its program, and its number there.
    pub(super) fn original(&self, number: u64) -> Option<(u64, u64)> {
        self.originals.get(&number).copied()
    }

    /// From now on one process is a copy of another one, or of what that is a copy of. False if as many
    /// names are known as may be, `most`.
    pub(crate) fn set_copy(&mut self, copy: u64, of: u64, most: usize) -> bool {
        if copy == of {
            return true;
        }
        let has_room = self.far.len() + self.originals.len() < most;
        if has_room {
            let original = self.original(of).unwrap_or_else(|| self.far(of));
            self.originals.insert(copy, original);
        }
        has_room
    }

    /// The number here of what has `number` in a program; if it is a copy, `original` tells of what. Of names
    /// of others at most `most` are kept.
    pub(super) fn near(
        &mut self,
        node: u64,
        number: u64,
        original: Option<(u64, u64)>,
        most: usize,
    ) -> Result<u64, NoNumber> {
        if number >= FAR || original.is_some_and(|(_, number)| number >= FAR) {
            return Err(NoNumber::Malformed);
        }
        // What is a copy of what is known from the first image that names it: the order never changes.
        if node == self.node {
            return Ok(number);
        }
        if let Some(near) = self.numbers.get(&(node, number)) {
            return Ok(*near);
        }
        if self.far.len() + self.originals.len() >= most {
            return Err(NoNumber::Full);
        }
        let near = FAR | self.far.len() as u64;
        self.far.push((node, number));
        self.numbers.insert((node, number), near);
        if let Some(original) = original {
            self.originals.insert(near, original);
        }
        Ok(near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_comes_home_is_the_same_again() {
        let (mut one, mut two) = (NodeNames::new(), NodeNames::new());
        let (node, number) = one.far(7);
        let there = two.near(node, number, None, 10).unwrap();
        assert_ne!(there, 7);
        assert_eq!(two.near(node, number, None, 10), Ok(there));
        let (node, number) = two.far(there);
        assert_eq!(one.near(node, number, None, 10), Ok(7));
        assert_eq!(one.near(node, FAR, None, 10), Err(NoNumber::Malformed));
        assert_eq!(one.near(node, 1, Some((node, FAR)), 10), Err(NoNumber::Malformed));
    }

    #[test]
    fn copy_has_the_place_of_its_original_among_others() {
        let mut names = NodeNames::new();
        assert!(names.set_copy(9, 4, 10) && names.set_copy(2, 9, 10));
        let places = [3, 4, 2, 9, 5].map(|number| names.place(number));
        assert!(places.is_sorted(), "{places:?}");
        // Another program puts them into the same order.
        let mut other = NodeNames::new();
        let there = [3, 4, 2, 9, 5].map(|number| {
            let (node, far) = names.far(number);
            let near = other.near(node, far, names.original(number), 10).unwrap();
            other.place(near)
        });
        assert_eq!(there, places);
    }

    #[test]
    fn image_does_not_change_the_place_of_a_name_that_is_known() {
        let mut names = NodeNames::new();
        let near = names.near(1, 5, None, 10).unwrap();
        let (before, own) = (names.place(near), names.place(3));
        assert_eq!(names.near(1, 5, Some((1, 2)), 10), Ok(near));
        assert_eq!(names.near(names.node, 3, Some((1, 2)), 10), Ok(3));
        assert_eq!((names.place(near), names.place(3)), (before, own));
    }
}
