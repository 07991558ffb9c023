//! Comparisons of the schemas that two faces declare (`dunlin-schema`). This module remembers the outcomes of
//! those that peers cause, and counts their steps.
//!
//! A peer chooses both the schemas that it declares and how often it declares them, and two small schemas may
//! take many steps. So all comparisons that one frame causes share [`STEPS`] steps, and the driver charges
//! the steps taken to the node that sent the frame.

use std::collections::VecDeque;

use bytes::Bytes;
use dunlin_schema::limits::STEPS;
use dunlin_schema::{Difference, Sides, compare_encoded};
use dunlin_sorted::SortedMap;

use crate::wire::{Declaration, Expected, Face};

/// How many outcomes are remembered ...
const KNOWN_MAX: usize = 256;
/// ... and how many bytes their schemas may have together.
const BYTES_MAX: usize = 1 << 20;

/// Compares two faces, as seen from `here`. `None`: each reads what the other one writes, or one of them
/// declares no schema, or they do not belong to each other.
pub fn difference(here: &Declaration, there: &Declaration) -> Option<Difference> {
    let sides = sides(here, there)?;
    compare_encoded(&here.schema, &there.schema, sides, &mut { STEPS }).err()
}

/// `None`: there is nothing to compare.
fn sides(here: &Declaration, there: &Declaration) -> Option<Sides> {
    if here.schema.is_empty() || there.schema.is_empty() || here.schema == there.schema {
        return None;
    }
    // The schema of a bundle is that of its client's face, which a server gives to its clients.
    let side = |face| match face {
        Face::Sender => (false, true),
        Face::Receiver => (false, false),
        Face::Client => (true, false),
        Face::Server | Face::Acceptor => (true, true),
    };
    let ((is_face, here_writes), (is_face_there, there_writes)) = (side(here.face), side(there.face));
    (is_face == is_face_there && here_writes != there_writes).then_some(Sides { here_writes, is_face })
}

/// Two schemas. The key is their bytes, and not a hash: a peer that finds a collision could forge an outcome.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    here: Bytes,
    there: Bytes,
    sides: Sides,
}

impl Pair {
    fn bytes(&self) -> usize {
        self.here.len() + self.there.len()
    }
}

/// The outcomes of the latest comparisons, and the steps that they took.
#[derive(Clone, Debug)]
pub(crate) struct Comparisons {
    known: SortedMap<Pair, Option<Difference>>,
    /// Oldest first.
    order: VecDeque<Pair>,
    bytes: usize,
    /// The steps left for the present frame.
    steps_left: usize,
    steps: u64,
}

impl Default for Comparisons {
    fn default() -> Self {
        let (known, order) = (SortedMap::new(), VecDeque::new());
        Self { known, order, bytes: 0, steps_left: STEPS, steps: 0 }
    }
}

/// How many declarations count as one step.
const LOOKED_AT: usize = 16;

impl Comparisons {
    /// Starts the budget of another frame, which causes the comparisons from now on.
    pub(crate) fn begin_frame(&mut self) {
        self.steps_left = STEPS;
    }

    /// Counts the declarations of one name that were examined for the present frame: that is work too.
    pub(crate) fn looks_at(&mut self, declarations: usize) {
        self.steps += (declarations / LOOKED_AT) as u64;
    }

    /// The steps since the last call. A look-up of an outcome is one step.
    pub(crate) fn take_steps(&mut self) -> u64 {
        std::mem::take(&mut self.steps)
    }

    /// As [`difference`], within the remaining steps of the frame.
    pub(crate) fn difference(&mut self, here: &Declaration, there: &Declaration) -> Option<Difference> {
        let sides = sides(here, there)?;
        let pair = Pair { here: here.schema.clone(), there: there.schema.clone(), sides };
        if let Some(known) = self.known.get(&pair) {
            self.steps += 1;
            return known.clone();
        }
        let before = self.steps_left;
        let outcome = compare_encoded(&pair.here, &pair.there, sides, &mut self.steps_left).err();
        self.steps += (before - self.steps_left) as u64;
        // A pair that ran out of steps beside others of its frame may have enough on its own.
        if self.steps_left > 0 || before == STEPS {
            self.remember(&pair, outcome.clone());
        }
        outcome
    }

    fn remember(&mut self, pair: &Pair, outcome: Option<Difference>) {
        // Copies, since a slice keeps the whole buffer that it was read from.
        let copied = |schema: &Bytes| Bytes::copy_from_slice(schema);
        let pair = Pair { here: copied(&pair.here), there: copied(&pair.there), sides: pair.sides };
        self.bytes += pair.bytes();
        self.order.push_back(pair.clone());
        self.known.insert(pair, outcome);
        while self.order.len() > KNOWN_MAX || self.bytes > BYTES_MAX {
            let Some(earliest) = self.order.pop_front() else { break };
            self.bytes -= earliest.bytes();
            self.known.remove(&earliest);
        }
    }

    /// Whether each is shared as the other one expects, and reads what the other one writes.
    pub(crate) fn fit(&mut self, one: &Declaration, other: &Declaration) -> bool {
        let holds = |expected: Expected, shared: bool| match expected {
            Expected::Unknown => true,
            Expected::Unshared => !shared,
            Expected::Shared => shared,
        };
        if !holds(one.expects, other.shared) || !holds(other.expects, one.shared) {
            return false;
        }
        // The writer first, so that both orders have one outcome.
        match sides(one, other) {
            None => true,
            Some(Sides { here_writes: true, .. }) => self.difference(one, other).is_none(),
            Some(_) => self.difference(other, one).is_none(),
        }
    }
}
