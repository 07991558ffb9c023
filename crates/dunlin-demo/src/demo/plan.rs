//! Which parts the demo has, what each does, and the order in which they start.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::texts::Text;

/// One of the parts of the demo.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// "names", "broker", "worker 1", "customer 1", ...
    pub name: String,
    /// What it does.
    pub role: Role,
}

/// What a part does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Serves the names.
    Names,
    /// Matches the others.
    Broker,
    /// Counts words.
    Worker,
    /// Has the words of these texts counted.
    Customer {
        /// The texts, one after the other.
        texts: Vec<Text>,
    },
}

/// The parts to run, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts, in the order in which they are started.
    pub parts: Vec<Part>,
    /// Whether each process starts only when the one before has joined. (A join needs neither names nor a
    /// broker.)
    pub in_turn: bool,
    /// How long a customer waits before each piece of a text.
    pub pace: Duration,
    /// How long the parts wait for the name service and the broker.
    pub patience: Duration,
}

impl Plan {
    /// Each customer gets its share of the texts.
    pub fn new(customers: u16, workers: u16, texts: Vec<Text>) -> Self {
        let part = |name: String, role| Part { name, role };
        let mut shares = vec![Vec::new(); customers.into()];
        for (n, text) in texts.into_iter().enumerate() {
            shares[n % usize::from(customers)].push(text);
        }
        let mut parts = vec![part("names".to_owned(), Role::Names), part("broker".to_owned(), Role::Broker)];
        parts.extend((1..=workers).map(|n| part(format!("worker {n}"), Role::Worker)));
        let customers = (1..).zip(shares);
        parts.extend(customers.map(|(n, texts)| part(format!("customer {n}"), Role::Customer { texts })));
        Self { parts, in_turn: false, pace: Duration::ZERO, patience: Duration::from_secs(20) }
    }

    /// Puts the parts in an order derived from this seed, in which they start in turn.
    pub fn shuffle(&mut self, seed: u64) {
        self.in_turn = true;
        let mut state = seed;
        for n in (1..self.parts.len()).rev() {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            self.parts.swap(n, ((state >> 33) % (n as u64 + 1)) as usize);
        }
    }
}
