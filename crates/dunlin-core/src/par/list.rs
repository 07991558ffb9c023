//! The list of the ready branches of one `par!`, in the order they became so.

/// The ready branches, first in first out: a list threaded through one number for each branch.
#[derive(Default)]
pub(super) struct Local {
    first: u32,
    last: u32,
    /// For each branch: the next one in the list, or [`LAST`]; [`IDLE`] if it is not in the list.
    pub(super) next: Vec<u32>,
    /// How many operations of the branches may still be ready before this poll ends.
    pub(super) operations: u32,
    /// Set when a `par!` inside this one has spent its budget. This poll has to end, so the list looks empty,
    /// and its content is here.
    ending: Option<Held>,
}

/// First and last of a list; both [`LAST`] if it is empty.
type Held = (u32, u32);

const IDLE: u32 = u32::MAX;
const LAST: u32 = u32::MAX - 1;

impl Local {
    /// All of `branches`, in their order.
    pub(super) fn fill(&mut self, branches: u32) {
        self.next.clear();
        self.next.extend(1..=branches);
        self.first = if branches == 0 { LAST } else { 0 };
        self.ending = None;
        if let Some(last) = self.next.last_mut() {
            *last = LAST;
            self.last = branches - 1;
        }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, branch: u32) {
        let Some(next) = self.next.get_mut(branch as usize) else { return };
        if *next != IDLE {
            return;
        }
        *next = LAST;
        if self.first == LAST {
            self.first = branch;
        } else {
            self.next[self.last as usize] = branch;
        }
        self.last = branch;
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let branch = self.first;
        // `LAST`, of an empty list, is the number of no branch.
        let next = self.next.get_mut(branch as usize)?;
        self.first = std::mem::replace(next, IDLE);
        Some(branch)
    }

    /// Makes the poll end soon: `pop` returns only branches that are pushed from now on.
    pub(super) fn end_poll(&mut self) {
        let (first, last) = (std::mem::replace(&mut self.first, LAST), self.last);
        self.ending = Some(match self.ending {
            None | Some((LAST, _)) => (first, last),
            Some(held) if first == LAST => held,
            Some((held, before)) => {
                self.next[before as usize] = first;
                (held, last)
            }
        });
    }

    /// The [budget](crate::budget) refused one of its operations, after `operations` that were ready.
    pub(super) fn spend(&mut self, operations: u32) {
        self.operations = self.operations.saturating_sub(operations);
        if self.operations == 0 {
            self.end_poll();
        }
    }

    /// Whether the poll has to end. This restores the list for the next one.
    pub(super) fn take_ending(&mut self) -> bool {
        let Some((first, last)) = self.ending.take() else { return false };
        if first != LAST {
            if self.first == LAST {
                self.last = last;
            } else {
                self.next[last as usize] = self.first;
            }
            self.first = first;
        }
        true
    }
}
