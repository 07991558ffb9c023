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
}

/// The bit of a number that is none of this program.
const FAR: u64 = 1 << 55;
/// Names of others that a program keeps.
const FAR_MAX: usize = 1 << 20;

impl NodeNames {
    /// A program of its own, with a number drawn at random.
    pub(crate) fn new() -> Self {
        Self { node: RandomState::new().hash_one(0_u64), far: Vec::new(), numbers: HashMap::new() }
    }

    /// The program of a process or a tag, and its number there.
    pub(crate) fn far(&self, number: u64) -> (u64, u64) {
        if number & FAR == 0 { (self.node, number) } else { self.far[(number ^ FAR) as usize] }
    }

    /// The number here of what has `number` in a program.
    pub(super) fn near(&mut self, node: u64, number: u64) -> Option<u64> {
        if number >= FAR {
            return None;
        }
        if node == self.node {
            return Some(number);
        }
        if let Some(near) = self.numbers.get(&(node, number)) {
            return Some(*near);
        }
        if self.far.len() >= FAR_MAX {
            return None;
        }
        let near = FAR | self.far.len() as u64;
        self.far.push((node, number));
        self.numbers.insert((node, number), near);
        Some(near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_that_comes_home_is_the_same_again() {
        let (mut one, mut two) = (NodeNames::new(), NodeNames::new());
        let (node, number) = one.far(7);
        let there = two.near(node, number).unwrap();
        assert_ne!(there, 7);
        assert_eq!(two.near(node, number), Some(there));
        let (node, number) = two.far(there);
        assert_eq!(one.near(node, number), Some(7));
        assert_eq!(one.near(node, FAR), None);
    }
}
