//! Barriers whose parties are at several nodes, as the real code runs them (`dunlin-core/src/barrier/`):
//! [`live`](crate::live).
//!
//! Node 0 keeps the barrier. Parties are enrolled there and at other nodes, and each follows a script.

use std::cell::RefCell;
use std::future::pending;
use std::rc::Rc;

use dunlin_core::{Barrier, Operation, SyncError, alt, barrier, future};

use crate::live::{Bounds, Gate, Ground, Laws, Node, Play};

/// A world to search.
///
/// A script is a text; each letter is the party's next action: `s` syncs on the barrier, and may give up; `x`
/// syncs in a choice, whose other branch may be taken; `e` enrols another party, which runs the rest of the
/// script too; `A`, `B` and so on moves to node 0, 1 and so on; `.` stays enrolled. Otherwise the party
/// resigns at the end.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    /// The name of the scenario.
    pub name: &'static str,
    /// The node and the script of each party. Those at a node other than 0 are one group.
    pub parties: &'static [(Node, &'static str)],
    /// The faults and other events that may happen.
    pub bounds: Bounds,
}

/// The progress of a party, as the party itself knows it.
#[derive(Debug)]
struct Party {
    name: String,
    node: Node,
    /// The node that passed its enrolment on, and answers for it.
    by: Option<Node>,
    /// How many phases it has completed.
    done: u64,
    /// It has arrived at the next phase.
    is_there: bool,
    /// It stays enrolled, and does not sync again.
    rests: bool,
    /// It has resigned, or moved on as another party.
    is_over: bool,
}

/// The observations of the parties.
#[derive(Default)]
pub struct Facts {
    parties: RefCell<Vec<Party>>,
    broken: RefCell<Option<String>>,
    died: RefCell<Option<Node>>,
}

impl Facts {
    fn fail(&self, what: String) {
        self.broken.borrow_mut().get_or_insert(what);
    }

    /// `own` has completed a phase: so every party had arrived at it, and none has completed the next.
    fn complete(&self, own: usize) {
        let mut parties = self.parties.borrow_mut();
        parties[own].done += 1;
        parties[own].is_there = false;
        let n = parties[own].done;
        for other in parties.iter().filter(|party| !party.is_over) {
            let has_come = other.done >= n || other.done + 1 == n && other.is_there;
            if !has_come || other.done > n {
                self.fail(format!("{} has completed phase {n}, and {other:?}", parties[own].name));
            }
        }
    }
}

struct User {
    own: usize,
    node: Node,
    facts: Rc<Facts>,
    ground: Ground,
    gate: Rc<Gate>,
}

impl User {
    fn is_there(&self, is_there: bool) {
        self.facts.parties.borrow_mut()[self.own].is_there = is_there;
    }

    async fn follow(self, mut phase: Barrier, script: &'static str) {
        for (at, act) in script.bytes().enumerate() {
            match act {
                b's' | b'x' => {
                    self.gate.pass("comes").await;
                    if self.comes(&mut phase, act == b'x').await.is_err() {
                        break;
                    }
                }
                b'.' => {
                    self.facts.parties.borrow_mut()[self.own].rests = true;
                    pending::<()>().await;
                }
                b'e' => {
                    self.gate.pass("enrols another").await;
                    let done = self.facts.parties.borrow()[self.own].done;
                    let by = self.facts.parties.borrow()[self.own].by;
                    begin(&self.facts, &self.ground, (self.node, by), phase.enrol(), &script[at + 1..], done);
                }
                _ => {
                    let to = Node::from(act - b'A');
                    self.gate.pass("goes on").await;
                    let done = self.facts.parties.borrow()[self.own].done;
                    self.facts.parties.borrow_mut()[self.own].is_over = true;
                    let phase = self.ground.carry(self.node, to, phase);
                    let by = Some(self.node).filter(|node| *node != 0);
                    return begin(&self.facts, &self.ground, (to, by), phase, &script[at + 1..], done);
                }
            }
        }
        self.gate.pass("resigns").await;
        self.facts.parties.borrow_mut()[self.own].is_over = true;
    }

    async fn comes(&self, phase: &mut Barrier, by_choice: bool) -> Result<(), ()> {
        loop {
            self.is_there(true);
            let outcome = if by_choice {
                alt! {
                    synced = phase.sync() => synced,
                    _ = future(self.gate.give_up("takes another branch")) => Err(SyncError::TimedOut),
                }
            } else {
                phase.sync().until(self.gate.give_up("gives up")).await
            };
            match outcome {
                Ok(()) => {
                    self.facts.complete(self.own);
                    return Ok(());
                }
                Err(SyncError::TimedOut) => {
                    self.is_there(false);
                    self.gate.pass("comes again").await;
                }
                Err(SyncError::NodeLost) if self.facts.died.borrow().is_some() => {
                    self.facts.parties.borrow_mut()[self.own].is_over = true;
                    return Err(());
                }
                Err(error) => {
                    self.facts.fail(format!("{error}"));
                    return Err(());
                }
            }
        }
    }
}

fn begin(
    facts: &Rc<Facts>,
    ground: &Ground,
    (node, by): (Node, Option<Node>),
    phase: Barrier,
    script: &'static str,
    done: u64,
) {
    let own = facts.parties.borrow().len();
    let name = format!("party {own} at {node}");
    let party = Party { name: name.clone(), node, by, done, is_there: false, rests: false, is_over: false };
    facts.parties.borrow_mut().push(party);
    let (facts, on) = (facts.clone(), ground.clone());
    ground.user(node, name, |gate| User { own, node, facts, ground: on, gate }.follow(phase, script));
}

impl Play for Scenario {
    type Laws = Rc<Facts>;

    fn bounds(&self) -> Bounds {
        self.bounds.clone()
    }

    fn begin(&self, ground: &Ground) -> Rc<Facts> {
        let facts = Rc::new(Facts::default());
        let phase = barrier();
        let mut groups: Vec<(Node, Barrier)> = Vec::new();
        for (node, script) in self.parties {
            let enrolment = match groups.iter().find(|(other, _)| other == node) {
                Some((_, group)) => group.enrol(),
                None if *node == 0 => phase.enrol(),
                None => ground.carry(0, *node, phase.enrol()),
            };
            if *node != 0 && !groups.iter().any(|(other, _)| other == node) {
                groups.push((*node, enrolment.enrol()));
            }
            begin(&facts, ground, (*node, None), enrolment, script, 0);
        }
        facts
    }
}

impl Laws for Rc<Facts> {
    fn check(&self) -> Result<(), String> {
        self.broken.borrow().clone().map_or(Ok(()), Err)
    }

    fn check_rest(&self, dead: Option<Node>) -> Result<(), String> {
        let parties = self.parties.borrow();
        let waiting: Vec<_> =
            parties.iter().filter(|party| !party.is_over && !party.rests && Some(party.node) != dead).collect();
        if waiting.is_empty() { Ok(()) } else { Err(format!("they wait for ever: {waiting:?}")) }
    }

    fn died(&self, node: Node) {
        *self.died.borrow_mut() = Some(node);
        // The parties there, and those enrolled through it, are lost with it.
        let mut parties = self.parties.borrow_mut();
        let lost = parties.iter_mut().filter(|party| party.node == node || party.by == Some(node));
        lost.for_each(|party| party.is_over = true);
    }
}
