//! What is searched: each scenario says what users may do and what may happen to them, and how often.

use crate::travel::Scenario;

/// All of them, the small ones first. The name says what is special; two digits are the sender's moves and the receiver's.
pub fn all() -> Vec<Scenario> {
    let base = Scenario { nodes: 3, start: (0, 1), sends: 1, ..Scenario::default() };
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
    ]
}
