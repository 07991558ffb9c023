//! The outcome of each text, from the events of the parts.

use std::collections::BTreeMap;

use serde::Serialize;

use super::event::{Connection, Event, Outcome, Said};
use super::plan::{Plan, Role};

/// The node of each part, and the address where it listens.
type Nodes = BTreeMap<String, (String, String)>;

/// The outcome of the demo.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: Vec<Row>,
    nodes: Nodes,
    /// The broker's number of appointments.
    pub(super) appointments: u64,
    /// The traffic of the broker's node, if the broker has reported it.
    pub(super) carried: Option<Vec<Carried>>,
    pub(super) returned: u64,
    /// Parts that failed, or ended in an unexpected way.
    pub(super) troubles: Vec<(String, String)>,
}

/// The outcome of a text.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) file: String,
    pub(super) customer: String,
    /// Workers that were lost with it.
    pub(super) lost: Vec<LostWorker>,
    #[serde(flatten)]
    pub(super) state: State,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct LostWorker {
    pub(super) worker: String,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub(super) enum State {
    NotServed {
        why: String,
    },
    Unreadable {
        why: String,
    },
    Served {
        worker: String,
        bytes: u64,
        pieces: u64,
        words: u64,
        distinct: u64,
        exact: bool,
        /// The connection between the customer and the worker; `None` within one process.
        connection: Option<Link>,
    },
}

/// A connection between a customer and its worker.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Link {
    pub(super) route: String,
    /// The worker's node, and the address where it listens.
    pub(super) node: String,
    pub(super) address: String,
}

/// The traffic between the broker's node and another.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Carried {
    /// The part whose node it is.
    pub(super) part: String,
    pub(super) sent: u64,
    pub(super) received: u64,
}

impl Tally {
    pub(super) fn new(plan: &Plan) -> Self {
        let texts = plan.parts.iter().filter_map(|part| match &part.role {
            Role::Customer { texts } => Some(texts.iter().map(|text| (part.name.clone(), text.to_string()))),
            _ => None,
        });
        let row = |(customer, file)| {
            let why = "the customer did not get that far".to_owned();
            Row { file, customer, lost: Vec::new(), state: State::NotServed { why } }
        };
        Self { rows: texts.flatten().map(row).collect(), ..Self::default() }
    }

    /// How many texts were served exactly.
    pub(super) fn served(&self) -> usize {
        self.rows.iter().filter(|row| matches!(row.state, State::Served { exact: true, .. })).count()
    }

    /// The bytes of all counted texts.
    pub(super) fn bytes(&self) -> u64 {
        let bytes = |row: &Row| if let State::Served { bytes, .. } = row.state { bytes } else { 0 };
        self.rows.iter().map(bytes).sum()
    }

    /// How many texts this customer has, and how many of them need no further send.
    pub(super) fn of(&self, customer: &str) -> (usize, usize) {
        let of = || self.rows.iter().filter(|row| row.customer == customer);
        (of().count(), of().filter(|row| !matches!(row.state, State::NotServed { .. })).count())
    }

    /// The connection with this worker, among those of a customer.
    pub(super) fn link(&self, worker: &str, connected: &[Connection]) -> Option<Link> {
        link(&self.nodes, worker, connected)
    }

    /// The bytes that the broker's node has carried, if it has reported them.
    pub(super) fn carried_bytes(&self) -> Option<u64> {
        let carried = self.carried.as_ref()?;
        Some(carried.iter().map(|carried| carried.sent + carried.received).sum())
    }

    fn row(&mut self, customer: &str, file: &str) -> Option<&mut Row> {
        self.rows.iter_mut().find(|row| row.customer == customer && row.file == file)
    }

    pub(super) fn hear(&mut self, said: &Said) {
        let part = &said.part;
        let set = |tally: &mut Self, file: &str, state| {
            if let Some(row) = tally.row(part, file) {
                row.state = state;
            }
        };
        match &said.event {
            Event::Joined { node, address } => {
                self.nodes.insert(part.clone(), (node.clone(), address.clone()));
            }
            Event::Appointed { .. } => self.appointments += 1,
            Event::Returned { .. } => self.returned += 1,
            Event::Served { file, worker, bytes, pieces, exact, table } => {
                let state = State::Served {
                    worker: worker.clone(),
                    bytes: *bytes,
                    pieces: *pieces,
                    words: table.words(),
                    distinct: table.distinct(),
                    exact: *exact,
                    connection: None,
                };
                set(self, file, state);
            }
            Event::Connections { nodes: connected } => {
                let nodes = &self.nodes;
                for row in self.rows.iter_mut().filter(|row| row.customer == *part) {
                    let State::Served { worker, connection: connection @ None, .. } = &mut row.state else { continue };
                    *connection = link(nodes, worker, connected);
                }
            }
            Event::Carried { connections } => {
                let part = |node: &str| {
                    let known = self.nodes.iter().find(|(_, (of, _))| of == node);
                    known.map_or_else(|| node.to_owned(), |(part, _)| part.clone())
                };
                let carried = connections.iter().map(|carriage| Carried {
                    part: part(&carriage.node),
                    sent: carriage.sent,
                    received: carriage.received,
                });
                let mut carried: Vec<_> = carried.collect();
                carried.sort_by(|a, b| a.part.cmp(&b.part));
                self.carried = Some(carried);
            }
            Event::Lost { file, worker, outcome } => {
                let lost = LostWorker { worker: worker.clone(), outcome: outcome.clone() };
                if let Some(row) = self.row(part, file) {
                    row.lost.push(lost);
                }
            }
            Event::Unreadable { file, why } => set(self, file, State::Unreadable { why: why.to_string() }),
            Event::NotServed { file, why } => set(self, file, State::NotServed { why: why.clone() }),
            Event::Failed { why } => self.troubles.push((part.clone(), why.clone())),
            Event::Ended { status, in_order: false } if !self.troubles.iter().any(|(troubled, _)| troubled == part) => {
                self.troubles.push((part.clone(), format!("has ended: {status}")));
            }
            _ => {}
        }
    }
}

fn link(nodes: &Nodes, worker: &str, connected: &[Connection]) -> Option<Link> {
    let (node, address) = nodes.get(worker)?;
    let connection = connected.iter().find(|connection| connection.node == *node)?;
    Some(Link { route: connection.route.clone(), node: node.clone(), address: address.clone() })
}
