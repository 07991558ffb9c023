//! What values cost that are kept here.

use std::collections::VecDeque;

use crate::id::{Contact, Ticket};
use crate::wire::Kind;
use crate::wire::limits::{self, AHEAD, AHEAD_SMALL, VALUE};

/// The credit of a new connection, which no other connection can take away.
pub(crate) const FLOOR: u64 = limits::CREDIT;

/// What a sending half costs at its home, with the offers that its window allows.
pub(crate) const HALF: u64 = 2 << 10;

/// What a watch of a process costs at the node of the process.
pub(crate) const WATCH: u64 = 512;

/// The cost of an end that arrived in a message, with what serves it: its half, its bridge, and its queue.
pub(crate) const END: u64 = 8 << 10;

/// How many bytes of announced values the buffer of a channel may hold, if it is more than one value.
const BUFFERED: u64 = 16 << 20;

/// The cost of a value of `total` bytes.
pub(crate) fn cost(total: u64) -> u64 {
    total.saturating_add(VALUE)
}

/// Whether a value may be offered beside `others` bytes of open values that are not [small](AHEAD_SMALL).
pub(crate) fn may_stand(others: u64, total: u64) -> bool {
    others == 0 || total <= AHEAD_SMALL || others.saturating_add(total) <= AHEAD
}

/// How a charge was allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the connection's credit.
    #[default]
    Credit,
    /// By a reservation in the pool.
    Reserved,
    /// The same, for a half that is attached.
    Half,
}

/// The cost of one value. Its holder gives it back to the account, once.
#[must_use = "it has to be given back"]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) bytes: u64,
    pub(crate) way: Way,
}

impl Charge {
    /// For values that a node sends to itself.
    pub(crate) const NONE: Self = Self { bytes: 0, way: Way::Credit };

    /// For `total` bytes that were charged to the credit.
    pub(crate) fn of_credit(total: u64) -> Self {
        Self { bytes: cost(total), way: Way::Credit }
    }
}

/// The costs of the values of open offers at a home. There are few: the window bounds them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Charges(Vec<(Ticket, Kind, Charge)>);

impl Charges {
    pub(crate) fn add(&mut self, ticket: Ticket, kind: Kind, charge: Charge) {
        if charge != Charge::NONE {
            self.0.push((ticket, kind, charge));
        }
    }

    pub(crate) fn take(&mut self, ticket: Ticket) -> Charge {
        match self.0.iter().position(|(other, ..)| *other == ticket) {
            Some(at) => self.0.swap_remove(at).2,
            None => Charge::NONE,
        }
    }

    /// How many bytes of values are offered that are not [small](AHEAD_SMALL), and were not requested.
    pub(crate) fn ahead(&self) -> u64 {
        let offered = self.0.iter().filter(|(_, kind, _)| *kind == Kind::Offer);
        offered.map(|(.., charge)| charge.bytes.saturating_sub(VALUE)).filter(|bytes| *bytes > AHEAD_SMALL).sum()
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Charge> + '_ {
        self.0.drain(..).map(|(.., charge)| charge)
    }
}

/// Consecutive values that arrived over one connection in one way.
#[derive(Clone, Copy, Debug)]
struct Row {
    from: Contact,
    values: u64,
    charge: Charge,
}

/// The costs of the values in the buffer of a channel, in their order.
#[derive(Clone, Debug, Default)]
// Boxed: a node may have very many channels, and the buffers of most are empty.
#[expect(clippy::box_collection, reason = "a queue takes four words also when it is empty")]
pub(crate) struct Ledger(Option<Box<VecDeque<Row>>>);

impl Ledger {
    pub(crate) fn add(&mut self, from: Contact, charge: Charge) {
        if charge == Charge::NONE {
            return;
        }
        let rows = self.0.get_or_insert_default();
        match rows.back_mut() {
            Some(last) if last.from == from && last.charge.way == charge.way => {
                last.values += 1;
                last.charge.bytes += charge.bytes;
            }
            _ => rows.push_back(Row { from, values: 1, charge }),
        }
    }

    /// `values` values have left the buffer, `bytes` bytes in all.
    pub(crate) fn take(&mut self, values: u64, bytes: u64) -> Vec<(Contact, Charge)> {
        let mut left = (values, bytes.saturating_add(VALUE.saturating_mul(values)));
        let mut taken = Vec::new();
        let Some(rows) = &mut self.0 else { return taken };
        while left.0 > 0
            && let Some(row) = rows.front_mut()
        {
            if row.values <= left.0 {
                left.0 -= row.values;
                left.1 = left.1.saturating_sub(row.charge.bytes);
                taken.push((row.from, row.charge));
                rows.pop_front();
            } else {
                let part = Charge { bytes: left.1.min(row.charge.bytes), ..row.charge };
                row.values -= left.0;
                row.charge.bytes -= part.bytes;
                taken.push((row.from, part));
                break;
            }
        }
        taken
    }

    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Contact, Charge)> + '_ {
        self.0.iter_mut().flat_map(|rows| rows.drain(..)).map(|row| (row.from, row.charge))
    }

    /// Whether an announced value of this cost has to wait until some of these have been received.
    pub(crate) fn is_full_for(&self, cost: u64) -> bool {
        let rows = self.0.iter().flat_map(|rows| rows.iter());
        let bytes = rows.map(|row| row.charge.bytes).sum::<u64>();
        self.0.as_ref().is_some_and(|rows| !rows.is_empty()) && bytes.saturating_add(cost) > BUFFERED
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::NodeId;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Values leave a buffer in groups of any size, and their costs are exact.
        #[test]
        fn ledger_returns_the_exact_charges_of_taken_values(
            values in prop::collection::vec((0..3_u128, any::<bool>(), 0..100_000_u64), 1..100),
            groups in prop::collection::vec(1..20_usize, 1..100),
        ) {
            let mut ledger = Ledger::default();
            for (node, reserved, total) in &values {
                let way = if *reserved { Way::Reserved } else { Way::Credit };
                ledger.add(Contact { node: NodeId(*node), lives: 1 }, Charge { bytes: cost(*total), way });
            }
            let mut left = &values[..];
            for group in groups {
                let (gone, rest) = left.split_at(group.min(left.len()));
                left = rest;
                let taken = ledger.take(gone.len() as u64, gone.iter().map(|(.., total)| total).sum());
                for (node, reserved) in [(0, false), (0, true), (1, false), (1, true), (2, false), (2, true)] {
                    let way = if reserved { Way::Reserved } else { Way::Credit };
                    let expected: u64 =
                        gone.iter().filter(|(n, r, _)| (*n, *r) == (node, reserved)).map(|(.., total)| cost(*total)).sum();
                    let given: u64 = taken.iter().filter(|(from, charge)| from.node == NodeId(node) && charge.way == way).map(|(_, charge)| charge.bytes).sum();
                    prop_assert_eq!(given, expected);
                }
            }
        }
    }
}
