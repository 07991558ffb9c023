//! What is searched: each scenario says what users may do and what may happen to them, and how often.

use crate::choices::{self, Ring};
use crate::explore::{Broken, Seen, explore};
use crate::travel::{Scenario, Travel};

/// Something to search.
#[derive(Clone, Debug)]
pub enum Search {
    /// Ends that travel.
    Travel(Scenario),
    /// Choices that are run again and again.
    Choices(choices::Scenario),
}

impl Search {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Travel(scenario) => scenario.name,
            Self::Choices(scenario) => scenario.name,
        }
    }

    /// Searches it, up to so many states; `progress` as in [`explore`].
    ///
    /// # Errors
    /// A state that breaks a law, and a shortest way there.
    pub fn explore(self, states_max: u64, progress: impl FnMut(Seen)) -> Result<Seen, Box<Broken>> {
        match self {
            Self::Travel(scenario) => explore(Travel::new(scenario), states_max, progress),
            Self::Choices(scenario) => explore(Ring::new(scenario), states_max, progress),
        }
    }
}

/// All of them.
pub fn all() -> Vec<Search> {
    travelling().into_iter().map(Search::Travel).chain(looped().into_iter().map(Search::Choices)).collect()
}

/// Choices in a ring of parties, each run more than once: one digit is the number of parties, the other how often each runs its choice.
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

/// Ends that travel, the small ones first. The name says what is special; two digits are the sender's moves and the receiver's.
fn travelling() -> Vec<Scenario> {
    let base = Scenario { nodes: 3, start: (0, 1), sends: 1, window: 4, ..Scenario::default() };
    vec![
        Scenario { name: "sender", moves: (2, 0), ..base.clone() },
        Scenario { name: "receiver", moves: (0, 2), ..base.clone() },
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
