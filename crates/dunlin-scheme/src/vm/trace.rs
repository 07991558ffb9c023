//! Backtraces.

use super::machine::Machine;
use crate::error::Place;
use crate::heap::Word;
use crate::heap::word::{NIL, fixnum_value};

/// Calls that a backtrace shows.
const CALLS_MAX: usize = 20;

impl Machine {
    /// The calls that are running, the innermost first; `first` is where the error is.
    pub(super) fn trace(&self, first: Option<usize>) -> Vec<Place> {
        let on_stack = self.frames.iter().rev().map(|frame| frame.pc as usize - 1);
        let mut on_heap = self.kont;
        let on_heap = std::iter::from_fn(|| {
            if on_heap == NIL {
                return None;
            }
            let pc: Word = self.heap.field(on_heap, 2);
            on_heap = self.heap.field(on_heap, 1);
            Some(fixnum_value(pc) as usize - 1)
        });
        let all = first.into_iter().chain(on_stack).chain(on_heap);
        let mut places: Vec<Place> = Vec::new();
        for place in all.take(4 * CALLS_MAX).filter_map(|pc| self.commons.program.index.place(pc)) {
            // What the prelude does between the program's calls explains nothing.
            if &*place.source_name != super::PRELUDE_NAME && places.last() != Some(&place) {
                places.push(place);
            }
            if places.len() == CALLS_MAX {
                break;
            }
        }
        places
    }
}
