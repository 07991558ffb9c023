//! The scenarios: each defines what users may do and what may happen to them, and how often.

use crate::barriers;
use crate::choices::{self, Ring};
use crate::claims;
use crate::explore::{Broken, Seen, explore, explore_to_rest};
use crate::live::{Bounds, Order, Unread, search};
use crate::reading::{self, Reading};
use crate::travel::{Scenario, Travel};

/// A scenario of any kind.
#[derive(Clone, Debug)]
pub enum Search {
    /// Ends that travel.
    Travel(Scenario),
    /// Choices that are run again and again.
    Choices(choices::Scenario),
    /// Values that are encoded and decoded in polls.
    Reading(reading::Scenario),
    /// Claims of a shared end.
    Claims(claims::Scenario),
    /// Barriers.
    Barriers(barriers::Scenario),
}

impl Search {
    /// The name of the scenario.
    pub fn name(&self) -> &str {
        match self {
            Self::Travel(scenario) => scenario.name,
            Self::Choices(scenario) => scenario.name,
            Self::Reading(scenario) => &scenario.name,
            Self::Claims(scenario) => scenario.name,
            Self::Barriers(scenario) => scenario.name,
        }
    }

    /// Searches it, up to this number of states; `progress` as in [`explore`].
    ///
    /// # Errors
    /// A state that breaks a law, and a shortest way there.
    pub fn explore(self, states_max: u64, progress: impl FnMut(Seen)) -> Result<Seen, Box<Broken>> {
        match self {
            Self::Travel(scenario) => explore(Travel::new(scenario), states_max, progress),
            Self::Choices(scenario) => explore(Ring::new(scenario), states_max, progress),
            Self::Reading(scenario) => {
                explore_to_rest(Reading::new(scenario), states_max, Reading::is_by_chance, progress)
            }
            Self::Claims(scenario) => search(&scenario, states_max, progress),
            Self::Barriers(scenario) => search(&scenario, states_max, progress),
        }
    }
}

/// All scenarios.
pub fn all() -> Vec<Search> {
    let travelling = travelling().into_iter().map(Search::Travel);
    let looped = looped().into_iter().map(Search::Choices);
    let read = read().into_iter().map(Search::Reading);
    let (claimed, synced) = (claimed().into_iter().map(Search::Claims), synced().into_iter().map(Search::Barriers));
    travelling.chain(looped).chain(read).chain(claimed).chain(synced).collect()
}

/// Claims of a shared end that node 0 keeps: the scripts contain each claim and its node.
fn claimed() -> Vec<claims::Scenario> {
    use claims::{Scenario, What};
    let send = Scenario::default();
    let face = Scenario { what: What::Face, ..send.clone() };
    let receive = Scenario { what: What::Receiver, ..send.clone() };
    let any = Bounds { order: Order::Any, ..Bounds::default() };
    let last = Bounds { order: Order::Last, ..Bounds::default() };
    let young = Bounds { young: true, ..Bounds::default() };
    let late = Bounds { ticks: 1, ..Bounds::default() };
    let unread = |drops| Bounds { unread: Unread::Straight, drops, ..Bounds::default() };
    let drops = |drops| Bounds { drops, ..Bounds::default() };
    let dies = |nodes| Bounds { deaths: nodes, ..Bounds::default() };
    let lends = |nodes| Bounds { lends: nodes, ..Bounds::default() };
    let refuses = Bounds { refuses: true, ..lends(&[1]) };
    vec![
        Scenario { name: "claim", users: &[(0, "1."), (1, "1.")], ..send.clone() },
        Scenario { name: "claim-far", users: &[(1, "1."), (2, "1.")], ..send.clone() },
        Scenario { name: "claim-three", users: &[(0, "c."), (1, "c."), (2, "c.")], ..send.clone() },
        Scenario { name: "claim-again", users: &[(1, "cc."), (2, "cc.")], ..send.clone() },
        Scenario { name: "claim-clones", users: &[(1, "c."), (1, "c."), (2, "c.")], ..send.clone() },
        Scenario { name: "claim-any", users: &[(0, "c."), (1, "c.")], bounds: any.clone(), ..send.clone() },
        Scenario { name: "claim-last", users: &[(0, "c."), (1, "c."), (2, "c.")], bounds: last, ..send.clone() },
        Scenario { name: "claim-late", users: &[(0, "1."), (1, "1.")], bounds: late.clone(), ..send.clone() },
        Scenario { name: "claim-lone", users: &[(0, "o."), (1, "1.")], ..send.clone() },
        Scenario { name: "claim-lone-far", users: &[(1, "1."), (2, "o.")], ..send.clone() },
        Scenario { name: "claim-lone-own", users: &[(1, "1."), (1, "o."), (0, "c.")], ..send.clone() },
        Scenario { name: "claim-lone-late", users: &[(0, "o."), (1, "c.")], bounds: late, ..send.clone() },
        Scenario { name: "claim-between", users: &[(0, "o."), (1, "2.")], ..send.clone() },
        Scenario { name: "claim-between-far", users: &[(1, "2."), (2, "o.")], ..send.clone() },
        Scenario { name: "claim-third", users: &[(0, "1."), (1, "1.")], other: 2, ..send.clone() },
        Scenario { name: "claim-drops", users: &[(0, "c."), (1, "c."), (2, "c.")], bounds: drops(1), ..send.clone() },
        Scenario { name: "claim-drops-1", users: &[(0, "c."), (1, "1.")], bounds: drops(2), ..send.clone() },
        Scenario {
            name: "claim-any-drops",
            users: &[(0, "c."), (1, "c.")],
            bounds: Bounds { drops: 1, ..any.clone() },
            ..send.clone()
        },
        Scenario {
            name: "claim-goes-drops",
            users: &[(0, "c."), (1, "c."), (1, "C.")],
            bounds: drops(1),
            ..send.clone()
        },
        Scenario { name: "claim-wished", users: &[(1, "hh."), (2, "hc.")], ..send.clone() },
        Scenario { name: "claim-wished-leaves", users: &[(1, "h"), (2, "hc.")], ..send.clone() },
        Scenario { name: "claim-wished-three", users: &[(0, "c."), (1, "h."), (2, "h.")], ..send.clone() },
        Scenario { name: "claim-leaves", users: &[(0, "c."), (1, "c")], ..send.clone() },
        Scenario { name: "claim-goes", users: &[(0, "c."), (1, "."), (1, "Cc.")], ..send.clone() },
        Scenario { name: "claim-goes-held", users: &[(1, "c."), (1, "Cc.")], ..send.clone() },
        Scenario { name: "claim-goes-after", users: &[(0, "c."), (1, "."), (1, "cCc.")], ..send.clone() },
        Scenario { name: "claim-hurries", users: &[(1, "."), (1, "CDc.")], bounds: young.clone(), ..send.clone() },
        Scenario {
            name: "claim-home",
            users: &[(0, "c."), (1, "."), (1, "Ac.")],
            bounds: young.clone(),
            ..send.clone()
        },
        Scenario { name: "claim-round", users: &[(1, "."), (1, "ABc.")], ..send.clone() },
        Scenario { name: "claim-death", users: &[(0, "c."), (1, "1."), (2, "c.")], bounds: dies(&[1]), ..send.clone() },
        Scenario {
            name: "claim-death-0",
            users: &[(0, "c."), (1, "1."), (2, "c.")],
            bounds: dies(&[0]),
            ..send.clone()
        },
        Scenario {
            name: "claim-death-go",
            users: &[(0, "c."), (1, "."), (1, "Cc.")],
            bounds: dies(&[1]),
            ..send.clone()
        },
        Scenario { name: "claim-goes-alone", users: &[(1, "Cc.")], ..send.clone() },
        Scenario { name: "claim-goes-leaves", users: &[(0, "c."), (1, "Cc.")], ..send.clone() },
        Scenario { name: "claim-leaves-3", users: &[(0, "c."), (1, "c"), (2, "c")], ..send.clone() },
        Scenario { name: "face", users: &[(0, "1."), (1, "1."), (2, "1.")], ..face.clone() },
        Scenario { name: "face-any", users: &[(0, "1."), (1, "1.")], bounds: any.clone(), ..face.clone() },
        Scenario { name: "face-drops", users: &[(0, "1."), (1, "1."), (2, "1.")], bounds: drops(1), ..face.clone() },
        Scenario { name: "face-leaves", users: &[(0, "1."), (1, "1")], bounds: drops(1), ..face.clone() },
        Scenario { name: "face-goes", users: &[(0, "1."), (1, "1."), (1, "C1.")], ..face.clone() },
        Scenario { name: "face-hurries", users: &[(0, "1."), (1, "C1.")], bounds: young, ..face.clone() },
        Scenario { name: "face-death", users: &[(0, "1."), (1, "1."), (2, "1.")], bounds: dies(&[1]), ..face.clone() },
        Scenario { name: "face-far", users: &[(1, "1."), (2, "1.")], ..face.clone() },
        Scenario { name: "face-far-death", users: &[(1, "1."), (2, "1.")], bounds: dies(&[1]), ..face.clone() },
        Scenario { name: "face-lent", users: &[(0, "1."), (1, "1."), (2, "1.")], bounds: lends(&[2]), ..face.clone() },
        Scenario { name: "face-lent-again", users: &[(1, "1."), (2, "11.")], bounds: lends(&[2]), ..face.clone() },
        Scenario { name: "face-lent-both", users: &[(1, "1."), (2, "1.")], bounds: lends(&[1, 2]), ..face.clone() },
        Scenario {
            name: "face-lent-drops",
            users: &[(0, "1."), (1, "1")],
            bounds: Bounds { drops: 1, ..lends(&[1]) },
            ..face.clone()
        },
        Scenario {
            name: "face-lent-both-drops",
            users: &[(1, "1"), (2, "1.")],
            bounds: Bounds { drops: 1, ..lends(&[1, 2]) },
            ..face.clone()
        },
        Scenario {
            name: "face-lent-both-death",
            users: &[(1, "1."), (2, "1.")],
            bounds: Bounds { deaths: &[1], ..lends(&[1, 2]) },
            ..face.clone()
        },
        Scenario { name: "face-refused-far", users: &[(1, "11."), (2, "1.")], bounds: refuses.clone(), ..face.clone() },
        Scenario {
            name: "face-lent-goes",
            users: &[(0, "1."), (1, "1."), (1, "C1.")],
            bounds: lends(&[2]),
            ..face.clone()
        },
        Scenario {
            name: "face-lent-death",
            users: &[(0, "1."), (1, "1."), (2, "1.")],
            bounds: Bounds { deaths: &[1], ..lends(&[1]) },
            ..face.clone()
        },
        Scenario {
            name: "face-refused",
            users: &[(0, "1."), (1, "11."), (2, "1.")],
            bounds: refuses.clone(),
            ..face.clone()
        },
        Scenario {
            name: "face-refused-drops",
            users: &[(0, "1."), (1, "1"), (1, "1")],
            bounds: Bounds { drops: 1, ..refuses },
            ..face
        },
        Scenario { name: "receive", users: &[(0, "1."), (1, "1.")], values: 2, ..receive.clone() },
        Scenario { name: "receive-far", users: &[(1, "1."), (2, "1.")], values: 2, ..receive.clone() },
        Scenario { name: "receive-lone", users: &[(0, "o."), (1, "o."), (2, "o.")], values: 3, ..receive.clone() },
        Scenario { name: "receive-mixed", users: &[(0, "o."), (1, "1."), (2, "o.")], values: 3, ..receive.clone() },
        Scenario { name: "receive-third", users: &[(0, "o."), (1, "1.")], other: 2, values: 2, ..receive.clone() },
        Scenario {
            name: "receive-drops",
            users: &[(0, "o."), (1, "1.")],
            other: 2,
            values: 2,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread",
            users: &[(0, "o."), (1, "o.")],
            other: 2,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-two",
            users: &[(1, "o."), (3, "o.")],
            other: 2,
            values: 2,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread-claims",
            users: &[(1, "1."), (3, "1.")],
            other: 2,
            values: 2,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread-mixed",
            users: &[(0, "o."), (1, "1.")],
            other: 2,
            values: 2,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread-chosen",
            users: &[(0, "o."), (1, "o.")],
            other: 2,
            values: 2,
            by_choice: true,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread-choices",
            users: &[(0, "x."), (1, "x.")],
            other: 2,
            values: 2,
            by_choice: true,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-extended",
            users: &[(0, "e."), (1, "e.")],
            other: 2,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-retires",
            users: &[(1, "r."), (0, "z.")],
            other: 2,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-death",
            users: &[(0, "o."), (1, "o.")],
            other: 2,
            values: 2,
            bounds: Bounds { deaths: &[0, 1, 2], ..unread(0) },
            ..receive.clone()
        },
        Scenario {
            name: "unreadable",
            users: &[(1, "o."), (3, "o.")],
            other: 2,
            values: 2,
            bounds: Bounds { unread: Unread::Unreachable, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "unreadable-drops",
            users: &[(0, "o."), (1, "1.")],
            other: 2,
            values: 2,
            bounds: Bounds { unread: Unread::Unreachable, drops: 1, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "unreadable-chosen",
            users: &[(1, "o."), (3, "o.")],
            other: 2,
            values: 2,
            by_choice: true,
            bounds: Bounds { unread: Unread::Unreachable, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "unread-through",
            users: &[(0, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-claims",
            users: &[(0, "1."), (2, "1.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-chosen",
            users: &[(0, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            by_choice: true,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-choices",
            users: &[(0, "x."), (2, "x.")],
            through: Some(1),
            other: 3,
            values: 2,
            by_choice: true,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-extended",
            users: &[(0, "e."), (2, "e.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-two",
            users: &[(2, "o."), (4, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: unread(0),
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-death",
            users: &[(0, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: Bounds { deaths: &[0, 1, 2, 3], ..unread(0) },
            ..receive.clone()
        },
        Scenario {
            name: "unread-through-drops",
            users: &[(0, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: unread(1),
            ..receive.clone()
        },
        Scenario {
            name: "unreadable-through",
            users: &[(0, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: Bounds { unread: Unread::Unreachable, drops: 1, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "unreadable-through-chosen",
            users: &[(2, "o."), (4, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            by_choice: true,
            bounds: Bounds { unread: Unread::Unreachable, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "receive-drops-2",
            users: &[(0, "1."), (1, "o1.")],
            other: 2,
            values: 3,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-buffer",
            users: &[(0, "1."), (1, "o.")],
            values: 2,
            buffer: 2,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario { name: "receive-retires", users: &[(0, "."), (1, "rz")], values: 2, ..receive.clone() },
        Scenario { name: "receive-retires-lone", users: &[(0, "o."), (1, "rz")], values: 2, ..receive.clone() },
        Scenario {
            name: "receive-retires-buffer",
            users: &[(0, "."), (1, "rz")],
            values: 3,
            buffer: 2,
            ..receive.clone()
        },
        Scenario {
            name: "receive-retires-death",
            users: &[(0, "."), (1, "rz")],
            values: 2,
            bounds: dies(&[0, 1]),
            ..receive.clone()
        },
        Scenario {
            name: "receive-chosen",
            users: &[(0, "o."), (1, "o.")],
            other: 2,
            values: 2,
            by_choice: true,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-chosen-1",
            users: &[(0, "1."), (1, "1.")],
            other: 2,
            values: 2,
            by_choice: true,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-choices",
            users: &[(0, "x."), (1, "x.")],
            other: 2,
            values: 2,
            by_choice: true,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-choices-2",
            users: &[(1, "x."), (2, "x.")],
            other: 3,
            values: 2,
            by_choice: true,
            bounds: drops(2),
            ..receive.clone()
        },
        Scenario {
            name: "receive-choices-3",
            users: &[(1, "x1."), (2, "x.")],
            other: 3,
            values: 3,
            by_choice: true,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-extended",
            users: &[(0, "e."), (1, "e."), (1, "o.")],
            other: 2,
            values: 3,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-timed",
            users: &[(0, "o."), (1, "2.")],
            other: 2,
            values: 3,
            bounds: drops(2),
            ..receive.clone()
        },
        Scenario {
            name: "receive-moved",
            users: &[(0, "o."), (1, "2.")],
            other: 2,
            values: 3,
            bounds: Bounds { drops: 2, moves: true, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "receive-moved-1",
            users: &[(1, "o.")],
            other: 2,
            values: 1,
            bounds: Bounds { drops: 2, moves: true, ..Bounds::default() },
            ..receive.clone()
        },
        Scenario {
            name: "receive-at-third",
            users: &[(1, "1."), (2, "o.")],
            other: 2,
            values: 2,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-clones",
            users: &[(1, "1."), (1, "o."), (2, "o.")],
            other: 2,
            values: 3,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-buffered",
            users: &[(1, "1."), (1, "o."), (2, "o.")],
            other: 2,
            values: 3,
            buffer: 2,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-through",
            users: &[(0, "o."), (2, "1.")],
            through: Some(1),
            values: 2,
            bounds: drops(2),
            ..receive.clone()
        },
        Scenario {
            name: "receive-through-2",
            users: &[(2, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            bounds: drops(1),
            ..receive.clone()
        },
        Scenario {
            name: "receive-through-3",
            users: &[(0, "o."), (2, "o.")],
            through: Some(1),
            other: 3,
            values: 2,
            by_choice: true,
            bounds: drops(2),
            ..receive.clone()
        },
        Scenario { name: "claim-through", users: &[(0, "1."), (2, "1."), (3, "o.")], through: Some(1), ..send.clone() },
        Scenario {
            name: "claim-through-drops",
            users: &[(0, "o."), (2, "1o.")],
            through: Some(1),
            bounds: drops(2),
            ..send.clone()
        },
        Scenario { name: "receive-goes", users: &[(0, "o."), (1, "."), (1, "Co.")], values: 2, ..receive.clone() },
        Scenario { name: "receive-any", users: &[(0, "o."), (1, "1.")], values: 2, bounds: any, ..receive.clone() },
        Scenario {
            name: "receive-death",
            users: &[(0, "1."), (1, "1."), (2, "o.")],
            values: 3,
            bounds: dies(&[1]),
            ..receive
        },
    ]
}

/// Barriers that node 0 keeps: the scripts contain each party and its node.
fn synced() -> Vec<barriers::Scenario> {
    let only = |name, parties, bounds| barriers::Scenario { name, parties, bounds };
    let none = Bounds::default();
    let any = Bounds { order: Order::Any, ..Bounds::default() };
    let drops = |drops| Bounds { drops, ..Bounds::default() };
    let dies = |deaths| Bounds { deaths, ..Bounds::default() };
    vec![
        only("sync", &[(0, "ss"), (1, "ss")], none.clone()),
        only("sync-three", &[(0, "ss."), (1, "ss."), (2, "ss.")], none.clone()),
        only("sync-group", &[(0, "s."), (1, "s."), (1, "s."), (2, "s.")], none.clone()),
        only("sync-resigns", &[(0, "ss."), (1, "s"), (1, "ss."), (2, "s")], none.clone()),
        only("sync-any", &[(0, "s."), (1, "s."), (1, "s.")], any),
        only("sync-drops", &[(0, "ss."), (1, "ss."), (2, "ss.")], drops(1)),
        only("sync-drops-group", &[(0, "s."), (1, "s."), (1, "s.")], drops(2)),
        only("sync-enrols", &[(0, "s."), (1, "es."), (2, "s.")], none.clone()),
        only("sync-chosen", &[(0, "xx."), (1, "xx.")], drops(1)),
        only("sync-chosen-3", &[(0, "x."), (1, "x."), (2, "x.")], drops(1)),
        only("sync-chosen-group", &[(0, "s."), (1, "x."), (1, "x.")], drops(2)),
        only("sync-goes", &[(0, "ss."), (1, "sCs.")], none.clone()),
        only("sync-home", &[(0, "ss."), (1, "sAs.")], none),
        only("sync-goes-drops", &[(0, "s."), (1, "Cs."), (1, "s.")], drops(1)),
        only("sync-goes-chosen", &[(0, "x."), (1, "Cx.")], drops(1)),
        only("sync-death", &[(0, "s."), (1, "s."), (2, "s.")], dies(&[0, 1])),
        only("sync-death-chosen", &[(0, "x."), (1, "x."), (2, "x.")], dies(&[0, 1])),
        only("sync-death-goes", &[(0, "s."), (1, "Cs.")], dies(&[0, 1, 2])),
    ]
}

/// Choices in a ring of parties, each run more than once: the two digits are the number of parties, and how
/// often each runs its choice.
fn looped() -> Vec<choices::Scenario> {
    let base = choices::Scenario::default();
    vec![
        choices::Scenario { name: "loop-22", parties: 2, loops: 2, ..base.clone() },
        choices::Scenario { name: "loop-23", parties: 2, loops: 3, ..base.clone() },
        choices::Scenario { name: "loop-22-others", parties: 2, loops: 2, others: 2 },
        choices::Scenario { name: "loop-31", parties: 3, loops: 1, ..base.clone() },
        choices::Scenario { name: "loop-32", parties: 3, loops: 2, ..base },
        choices::Scenario { name: "loop-32-others", parties: 3, loops: 2, others: 1 },
    ]
}

/// Values that are encoded and decoded in polls: without chance events, or with the one that the name adds.
fn read() -> Vec<reading::Scenario> {
    type Base = (&'static str, &'static [(usize, usize)], &'static [(usize, &'static str, usize)]);
    let bases: [Base; 11] = [
        ("firm", &[(0, 1)], &[(0, "!0", 2), (1, "?0", 2)]),
        ("granted", &[(0, 1)], &[(0, "c!0", 2), (1, "?0", 2)]),
        ("sends", &[(0, 1), (0, 2)], &[(0, "c!0!1", 1), (1, "?0", 1), (2, "?1", 1)]),
        ("receives", &[(0, 1), (2, 1)], &[(0, "!0", 1), (1, "c?0?1", 2), (2, "c!1", 1)]),
        ("pair", &[(0, 1), (1, 0)], &[(0, "c!0?1", 1), (1, "c?0!1", 1)]),
        ("pair-small", &[(0, 1), (1, 0)], &[(0, "e!0?1", 1), (1, "e?0!1", 1)]),
        ("ring", &[(0, 1), (1, 2), (2, 0)], &[(0, "e!0?2", 1), (1, "c!1?0", 1), (2, "e!2?1", 1)]),
        ("two", &[(0, 1)], &[(0, "!0", 2), (1, "?0", 1), (1, "?0", 1)]),
        ("two-granted", &[(0, 1)], &[(0, "c!0", 2), (1, "?0", 1), (1, "?0", 1)]),
        ("two-mixed", &[(0, 1), (1, 2)], &[(0, "c!0", 1), (1, "e?0!1", 1), (1, "?0", 1), (2, "?1", 1)]),
        ("posts", &[(0, 1)], &[(0, "!0!0", 1), (1, "?0", 2), (1, "?0", 1)]),
    ];
    let chances = |name: String, channels, parties| {
        let base = reading::Scenario { name, channels, parties, ..reading::Scenario::default() };
        let name = |chance| format!("{}-{chance}", base.name);
        [
            reading::Scenario { name: name("drops"), drops: 2, ..base.clone() },
            reading::Scenario { name: name("expires"), expires: 2, ..base.clone() },
            reading::Scenario { name: name("fails"), fails: 2, ..base.clone() },
            reading::Scenario { name: name("retires"), retires: 1, fails: 1, ..base.clone() },
            reading::Scenario { name: name("cut"), cuts: 1, drops: 1, ..base.clone() },
            reading::Scenario { name: name("all"), drops: 1, expires: 1, fails: 1, cuts: 1, ..base.clone() },
            base,
        ]
    };
    bases.into_iter().flat_map(|(name, channels, parties)| chances(format!("read-{name}"), channels, parties)).collect()
}

/// Ends that travel, the small scenarios first. The name has what is special; two digits are the sender's
/// moves and the receiver's.
fn travelling() -> Vec<Scenario> {
    let base = Scenario { nodes: 3, start: (0, 1), sends: 1, window: 4, ..Scenario::default() };
    vec![
        Scenario { name: "sender", moves: (2, 0), ..base.clone() },
        Scenario { name: "receiver", moves: (0, 2), ..base.clone() },
        Scenario { name: "cut-10", moves: (1, 0), sends: 1, cuts: 1, ..base.clone() },
        Scenario { name: "cut-01", moves: (0, 1), sends: 1, cuts: 1, ..base.clone() },
        Scenario { name: "death-10", moves: (1, 0), sends: 1, deaths: 1, ..base.clone() },
        Scenario { name: "death-01", moves: (0, 1), sends: 1, deaths: 1, ..base.clone() },
        Scenario { name: "both", moves: (1, 1), ..base.clone() },
        Scenario { name: "both-buffer", moves: (1, 1), buffer: 2, sends: 2, ..base.clone() },
        Scenario { name: "sender-3", moves: (3, 0), sends: 2, ..base.clone() },
        Scenario { name: "receiver-3", moves: (0, 3), sends: 2, ..base.clone() },
        Scenario { name: "both-21", moves: (2, 1), sends: 2, ..base.clone() },
        Scenario { name: "both-12", moves: (1, 2), sends: 2, ..base.clone() },
        Scenario { name: "withdraw", moves: (1, 1), sends: 2, withdrawals: 1, ..base.clone() },
        Scenario { name: "refuse", moves: (1, 1), sends: 1, refusals: 1, ..base.clone() },
        Scenario { name: "drops", moves: (1, 1), sends: 1, drops: (true, true), ..base.clone() },
        Scenario { name: "cut", moves: (1, 1), sends: 1, cuts: 1, ..base.clone() },
        Scenario { name: "death", moves: (1, 1), sends: 1, deaths: 1, ..base.clone() },
        Scenario { name: "lazy", moves: (1, 1), sends: 2, lazy: true, ..base.clone() },
        Scenario { name: "lazy-buffer", moves: (1, 1), sends: 2, buffer: 2, lazy: true, ..base.clone() },
        Scenario { name: "slow", moves: (1, 1), sends: 2, slow: true, ..base.clone() },
        Scenario { name: "slow-buffer", moves: (1, 1), sends: 2, buffer: 2, slow: true, ..base.clone() },
        Scenario { name: "slow-withdraw", moves: (1, 1), sends: 2, withdrawals: 1, slow: true, ..base.clone() },
        Scenario { name: "slow-drops", moves: (1, 1), sends: 1, drops: (true, true), slow: true, ..base.clone() },
        Scenario { name: "slow-21", moves: (2, 1), sends: 1, slow: true, ..base.clone() },
        Scenario { name: "slow-12", moves: (1, 2), sends: 1, slow: true, ..base.clone() },
        Scenario { name: "slow-cut", moves: (1, 1), sends: 1, cuts: 1, slow: true, ..base.clone() },
        Scenario { name: "cut-drops", moves: (1, 1), sends: 1, cuts: 1, drops: (true, true), ..base.clone() },
        Scenario { name: "through", moves: (1, 0), throughs: 1, ..base.clone() },
        Scenario { name: "through-receiver", moves: (0, 1), throughs: 1, ..base.clone() },
        Scenario { name: "through-both", moves: (1, 1), throughs: 1, ..base.clone() },
        Scenario { name: "through-21", moves: (2, 1), throughs: 1, ..base.clone() },
        Scenario { name: "through-12", moves: (1, 2), throughs: 1, ..base.clone() },
        Scenario { name: "through-twice", moves: (1, 1), throughs: 2, ..base.clone() },
        Scenario { name: "through-drops", moves: (1, 1), throughs: 1, drops: (true, true), ..base.clone() },
        Scenario { name: "through-refuse", moves: (1, 1), throughs: 1, refusals: 1, ..base.clone() },
        Scenario { name: "through-cut", moves: (1, 1), throughs: 1, cuts: 1, ..base.clone() },
        Scenario { name: "through-death", moves: (1, 1), throughs: 1, deaths: 1, ..base.clone() },
        Scenario { name: "through-slow", moves: (1, 1), throughs: 1, slow: true, ..base.clone() },
        Scenario { name: "through-four", nodes: 4, moves: (1, 1), throughs: 1, ..base.clone() },
        Scenario { name: "both-22", moves: (2, 2), sends: 2, ..base.clone() },
        Scenario { name: "buffer-22", moves: (2, 2), sends: 2, buffer: 2, ..base.clone() },
        Scenario { name: "four", nodes: 4, moves: (2, 1), sends: 1, ..base.clone() },
        Scenario { name: "drops-22", moves: (2, 2), sends: 1, drops: (true, true), ..base.clone() },
        Scenario { name: "refuse-22", moves: (2, 2), sends: 1, refusals: 2, ..base.clone() },
        Scenario { name: "cut-21", moves: (2, 1), sends: 1, cuts: 1, ..base.clone() },
        Scenario { name: "cut-12", moves: (1, 2), sends: 1, cuts: 1, ..base.clone() },
        Scenario { name: "cut-2", moves: (1, 1), sends: 1, cuts: 2, ..base.clone() },
        Scenario { name: "cut-buffer", moves: (1, 1), sends: 2, buffer: 2, cuts: 1, ..base.clone() },
        Scenario { name: "cut-lazy", moves: (1, 1), sends: 1, cuts: 1, lazy: true, ..base.clone() },
        Scenario { name: "death-21", moves: (2, 1), sends: 1, deaths: 1, ..base.clone() },
        Scenario { name: "death-12", moves: (1, 2), sends: 1, deaths: 1, ..base.clone() },
        Scenario { name: "death-drops", moves: (1, 1), sends: 1, deaths: 1, drops: (true, true), ..base.clone() },
        Scenario { name: "withdraw-22", moves: (2, 1), sends: 2, withdrawals: 1, lazy: true, ..base.clone() },
        Scenario { name: "window", moves: (1, 1), sends: 3, window: 1, ..base.clone() },
        Scenario { name: "window-2", moves: (1, 1), sends: 3, window: 2, withdrawals: 1, ..base.clone() },
        Scenario { name: "window-02", moves: (0, 2), sends: 3, window: 2, slow: true, ..base.clone() },
        Scenario { name: "window-21", moves: (2, 1), sends: 3, window: 2, ..base.clone() },
        Scenario { name: "window-cut", moves: (1, 1), sends: 2, window: 1, cuts: 1, ..base.clone() },
        Scenario { name: "sockets-sender", moves: (1, 0), sends: 2, sockets: true, ..base.clone() },
        Scenario { name: "sockets-receiver", moves: (0, 1), sends: 2, sockets: true, ..base.clone() },
        Scenario { name: "sockets", moves: (1, 1), sends: 1, sockets: true, ..base.clone() },
        Scenario { name: "sockets-02", moves: (0, 2), sends: 1, withdrawals: 1, sockets: true, ..base.clone() },
        Scenario {
            name: "sockets-window",
            moves: (1, 1),
            sends: 2,
            window: 1,
            withdrawals: 1,
            sockets: true,
            ..base.clone()
        },
        Scenario {
            name: "sockets-choice",
            moves: (1, 1),
            sends: 1,
            choices: true,
            aborts: 1,
            sockets: true,
            ..base.clone()
        },
        Scenario { name: "choice", moves: (1, 1), sends: 1, choices: true, aborts: 1, ..base.clone() },
        Scenario { name: "choice-withdraw", moves: (1, 1), sends: 1, choices: true, withdrawals: 1, ..base.clone() },
        Scenario {
            name: "choice-2",
            moves: (1, 1),
            sends: 2,
            choices: true,
            aborts: 1,
            withdrawals: 1,
            ..base.clone()
        },
        Scenario {
            name: "choice-02",
            moves: (0, 2),
            sends: 1,
            choices: true,
            aborts: 2,
            withdrawals: 2,
            ..base.clone()
        },
        Scenario { name: "choice-21", moves: (2, 1), sends: 1, choices: true, aborts: 1, ..base.clone() },
        Scenario { name: "choice-12", moves: (1, 2), sends: 1, choices: true, aborts: 1, ..base.clone() },
        Scenario { name: "choice-slow", moves: (1, 1), sends: 1, choices: true, aborts: 1, slow: true, ..base.clone() },
        Scenario { name: "choice-lazy", moves: (1, 1), sends: 1, choices: true, aborts: 1, lazy: true, ..base.clone() },
        Scenario { name: "choice-cut", moves: (1, 1), sends: 1, choices: true, aborts: 1, cuts: 1, ..base.clone() },
        Scenario { name: "choice-death", moves: (1, 1), sends: 1, choices: true, deaths: 1, ..base.clone() },
        Scenario { name: "choice-drops", moves: (1, 1), sends: 1, choices: true, drops: (true, true), ..base.clone() },
        Scenario {
            name: "choice-window",
            moves: (0, 1),
            sends: 3,
            choices: true,
            aborts: 1,
            window: 2,
            ..base.clone()
        },
    ]
}
