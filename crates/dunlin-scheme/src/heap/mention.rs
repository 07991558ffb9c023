//! The ends of channels that a value names.

use std::collections::HashSet;

use super::Heap;
use super::word::{PAIR, TAG_MASK, Word, as_code, as_end, is_pointer};

impl Heap {
    /// The numbers of the ends that a value reaches, and how many objects were looked at.
    pub(crate) fn ends_in(&self, root: Word) -> (Vec<u64>, usize) {
        let (mut ends, mut met, mut left) = (Vec::new(), HashSet::new(), vec![root]);
        while let Some(word) = left.pop() {
            if let Some(end) = as_end(word) {
                ends.push(end);
            }
            if !is_pointer(word) || as_code(word).is_some() || !met.insert(word) {
                continue;
            }
            if word & TAG_MASK == PAIR {
                left.extend([self.cdr(word), self.car(word)]);
            } else if self.tag(word).is_some_and(|tag| !tag.is_raw()) {
                left.extend(self.fields(word).iter().rev());
            }
        }
        (ends, met.len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Tag;
    use super::super::word::{NIL, end, fixnum};
    use super::*;

    #[test]
    fn ends_are_found_in_any_object_and_in_cycles() {
        let mut heap = Heap::new(64, 1 << 20, Arc::default());
        let text = heap.string("no word of this is an end");
        let vector = heap.make(Tag::Vector, &[end(8), text, fixnum(1)]);
        let ring = heap.cons(vector, NIL);
        heap.patch(ring, 1, ring);
        let both = heap.cons(ring, vector);
        assert_eq!(heap.ends_in(both), (vec![8], 4));
        assert_eq!(heap.ends_in(end(9)), (vec![9], 0));
    }
}
