//! Operations on channels.
//!
//! A process asks with `%operate`, and waits. The instruction runs again when there is an outcome, or when
//! the process was woken for another reason: then the operation has been withdrawn, and is asked anew unless
//! an exit or the end of the wait comes first. So a process that waits is its frames alone.

use std::collections::HashSet;

use super::fail::{Fail, Result, wrong_type};
use super::machine::Machine;
use super::slow::list_items;
use crate::data::{self, End, Value, ValueError};
use crate::heap::Tag;
use crate::heap::word::{self, EOF, FALSE, TRUE, Word, as_end, as_natural, fixnum, is_shared_end};
use crate::proc::{Branch, Channels, Operation, Operations, Outcome, Refusal};

/// Branches of one choice.
const BRANCHES_MAX: usize = 1 << 16;
/// Fuel of an operation, besides what its ends take.
const OPERATION_FUEL: u64 = 10;
/// Values that may wait in a channel.
const CAPACITY_MAX: u64 = 1 << 20;

impl Machine {
    pub(crate) fn set_channels(&mut self, driver: Box<dyn Channels + Send>) {
        self.commons.operations.driver = Some(driver);
    }

    /// The ends that no process has any more, since this was called last.
    pub(crate) fn take_released_ends(&mut self) -> Vec<End> {
        std::mem::take(&mut self.released)
    }

    /// The end with this number, if the process that runs may use it.
    fn own_end(&mut self, word: Word) -> Result<End> {
        let Some(number) = as_end(word) else { return Err(wrong_type("an end of a channel", word)) };
        let end = self.commons.operations.ends.use_end(number, self.running.pid);
        end.ok_or_else(|| Fail::Raise("end", "end not held here:".into(), vec![word]))
    }

    /// A value as data, with the ends that the process that runs may use.
    pub(crate) fn export(&self, word: Word) -> std::result::Result<Value, ValueError> {
        let end = |number| self.commons.operations.ends.find(number, self.running.pid).cloned();
        data::to_value(&self.heap, &self.commons.program.symbols, &end, word)
    }

    /// The word of data that came for a process, with the ends in it, or for none yet.
    pub(super) fn import(&mut self, value: &Value, to: Option<u64>) -> std::result::Result<Word, ValueError> {
        let word = data::of_value(&mut self.heap, &mut self.commons.program.symbols, value)?;
        data::ends_of(value).into_iter().for_each(|end| self.commons.operations.ends.add(end, to));
        Ok(word)
    }

    /// The ends in a value that the process that runs sends go to another process, or, with `None`, away.
    pub(super) fn pass_ends(&mut self, value: Word, to: Option<u64>) {
        let from = self.running.pid;
        if !self.commons.operations.ends.holds_any(from) {
            return;
        }
        let (numbers, count) = self.heap.ends_in(value);
        self.charge += count as u64 / 16;
        for number in numbers.into_iter().filter(|number| !is_shared_end(*number)) {
            match to {
                Some(to) => self.commons.operations.ends.pass(number, from, to),
                None => self.commons.operations.ends.remove(number, from),
            }
        }
    }

    /// The process that runs gives up an end.
    pub(super) fn leave_end(&mut self, word: Word) -> Result<()> {
        let end = self.own_end(word)?;
        self.commons.operations.ends.remove(end.number(), self.running.pid);
        Ok(())
    }

    /// What an operation ended with: a pair of the number of a branch and its value, true if an exit comes
    /// first, or false if the time is over. Without a value the process waits for the outcome, at most until
    /// this time.
    pub(super) fn operate(&mut self, request: Word, deadline: Word) -> Result<std::result::Result<Word, Option<u64>>> {
        self.take_letters();
        let outcome = self.commons.operations.outcomes.remove(&self.running.pid);
        let was_asked = outcome.is_some();
        if let Some(outcome) = &outcome {
            self.take_back(outcome);
        }
        let fields = self.vector(request, "a request")?;
        if fields.first() == Some(&COMPUTE) {
            return self.compute(&fields, outcome);
        }
        match outcome {
            Some(Outcome::Done(branch, value)) => {
                let imported = self.import(&value, Some(self.running.pid));
                let word = imported.map_err(|error| {
                    // To drop them here would wake others while the machine is in use.
                    self.commons.operations.ends.release_value(&value);
                    refused(&error.to_string())
                })?;
                if fields.first() == Some(&MAKE) {
                    let ends = data::ends_of(&value);
                    ends.into_iter().for_each(|end| self.commons.operations.ends.add_new(end, self.running.pid));
                }
                return Ok(Ok(self.heap.cons(fixnum(branch as i64), word)));
            }
            Some(Outcome::Ended(branch)) => return Ok(Ok(self.heap.cons(fixnum(branch as i64), EOF))),
            Some(Outcome::Failed(Refusal { kind, message, detail })) => {
                let details = detail.map(|text| self.heap.string(&text)).into_iter().collect();
                return Err(Fail::Raise(kind, message, details));
            }
            Some(Outcome::Withdrawn | Outcome::Computed(_)) | None => {}
        }
        if self.running.mailbox.has_exit() {
            return Ok(Ok(TRUE));
        }
        let deadline = as_natural(deadline);
        let is_late = self.is_past(deadline);
        if was_asked && is_late {
            return Ok(Ok(FALSE));
        }
        if !self.is_embedded && self.commons.operations.driver.is_none() {
            return Err(refused("this machine has no channels"));
        }
        let operation = self.operation(request, is_late)?;
        self.charge += OPERATION_FUEL;
        if deadline.is_none() && matches!(&operation, Operation::Choice { branches, .. } if branches.is_empty()) {
            return Err(refused("no clause of this alt can ever be chosen"));
        }
        self.lend(&operation);
        self.asked = Some(operation);
        // One that is late already is tried once: it withdraws itself.
        Ok(Err(deadline.filter(|_| !is_late)))
    }

    /// Takes the ends that an operation is to take along from the process that runs.
    fn lend(&mut self, operation: &Operation) {
        let mut lent = Vec::new();
        match operation {
            Operation::Choice { branches, .. } => {
                for (number, branch) in branches.iter().enumerate() {
                    let Branch::Send(_, value) = branch else { continue };
                    let own = data::ends_of(value).into_iter().filter(|end| !end.is_shared());
                    lent.extend(own.map(|end| (number, end)));
                }
            }
            Operation::Share(end) if !end.is_shared() => lent.push((0, end.clone())),
            _ => {}
        }
        if !lent.is_empty() {
            lent.iter().for_each(|(_, end)| self.commons.operations.ends.remove(end.number(), self.running.pid));
            self.commons.operations.lent.insert(self.running.pid, lent);
        }
    }

    /// What the process that runs has asked does not begin.
    pub(super) fn forget_asked(&mut self) {
        if self.asked.take().is_some() {
            self.take_back(&Outcome::Withdrawn);
        }
    }

    /// What an operation was to take along: what its branch has sent is gone, the rest is back.
    fn take_back(&mut self, outcome: &Outcome) {
        let pid = self.running.pid;
        let lent = self.commons.operations.lent.remove(&pid).unwrap_or_default();
        let chosen = if let Outcome::Done(chosen, _) = outcome { Some(*chosen) } else { None };
        let sent = lent.iter().filter(|(branch, _)| Some(*branch) == chosen);
        let gone: HashSet<u64> = sent.map(|(_, end)| end.number()).collect();
        for (_, end) in lent {
            if gone.contains(&end.number()) {
                self.commons.operations.ends.release_end(end);
            } else {
                self.commons.operations.ends.add(end, Some(pid));
            }
        }
    }

    /// The operation that a request describes: a vector that the prelude makes.
    fn operation(&mut self, request: Word, skips: bool) -> Result<Operation> {
        let fields = self.vector(request, "a request")?;
        match *fields.as_slice() {
            [MAKE, capacity] => {
                self.expect_room()?;
                if capacity == FALSE {
                    return Ok(Operation::Make(None));
                }
                let room = as_natural(capacity).filter(|room| (1..=CAPACITY_MAX).contains(room));
                room.map(|room| Operation::Make(Some(room as usize)))
                    .ok_or_else(|| wrong_type("a number of values from 1 to 1048576", capacity))
            }
            [CHOICE, is_fair, list] => {
                let mut items = Vec::new();
                if !list_items(&self.heap, list, &mut items) || items.len() > BRANCHES_MAX {
                    return Err(wrong_type("a list of branches", list));
                }
                self.charge += items.len() as u64 / 4;
                let branches = items.into_iter().map(|item| self.branch(item)).collect::<Result<Vec<_>>>()?;
                if let Some(twice) = used_twice(&branches) {
                    let ends = vec![word::end(twice.number())];
                    return Err(Fail::Raise("channel", "an end is in a choice twice:".into(), ends));
                }
                Ok(Operation::Choice { branches, is_fair: is_fair != FALSE, skips })
            }
            [SHARE, shared] => {
                self.expect_room()?;
                Ok(Operation::Share(self.own_end(shared)?))
            }
            [RETIRE, retired] => Ok(Operation::Retire(self.own_end(retired)?)),
            [POISON, poisoned, text] => {
                let reason = self.text_argument(text)?;
                Ok(Operation::Poison(self.own_end(poisoned)?, reason))
            }
            _ => Err(wrong_type("a request", request)),
        }
    }

    fn expect_room(&self) -> Result<()> {
        let is_full = self.commons.operations.ends.is_full();
        if is_full { Err(Fail::Raise("limit", "too many ends of channels".into(), vec![])) } else { Ok(()) }
    }

    fn branch(&mut self, word: Word) -> Result<Branch> {
        let fields = self.vector(word, "a branch")?;
        let &[kind, named, value] = fields.as_slice() else { return Err(wrong_type("a branch", word)) };
        let end = self.own_end(named)?;
        let is_receiver = end.kind() == data::EndKind::Receiver;
        match kind {
            RECEIVE if is_receiver => Ok(Branch::Receive(end)),
            RECEIVE => Err(wrong_type("a receiver", named)),
            SEND if is_receiver => Err(wrong_type("a sender", named)),
            SEND => {
                let message = self.export(value).map_err(|error| refused(&format!("not sent: {error}")))?;
                Ok(Branch::Send(end, message))
            }
            CLAIM if end.is_shared() => Ok(Branch::Claim(end)),
            CLAIM => Err(wrong_type("a shared end", named)),
            _ => Err(wrong_type("a branch", word)),
        }
    }

    fn vector(&self, word: Word, expected: &str) -> Result<Vec<Word>> {
        self.expect(word, Tag::Vector, expected)?;
        Ok(self.heap.fields(word).to_vec())
    }

    /// Stores the outcome of the operation of a process, which can run. `Some`: the process has ended, and
    /// the outcome is of no use.
    pub(crate) fn complete(&mut self, pid: u64, outcome: Outcome) -> Option<Outcome> {
        if !self.commons.table.is_alive(pid) {
            return Some(outcome);
        }
        self.commons.operations.outcomes.insert(pid, outcome);
        None
    }

    /// The process has ended: its operation is withdrawn, and it holds no end any more.
    pub(super) fn forget_operation(&mut self, pid: u64) {
        self.withdraw(pid);
        let outcome = self.commons.operations.outcomes.remove(&pid);
        self.commons.operations.drop_outcome(outcome);
        let lent = self.commons.operations.lent.remove(&pid).unwrap_or_default();
        lent.into_iter().for_each(|(_, end)| self.commons.operations.ends.release_end(end));
        self.commons.operations.ends.release(pid);
    }

    /// The operation of the process that runs is over, whatever became of it.
    pub(super) fn abandon_operation(&mut self) {
        let pid = self.running.pid;
        self.withdraw(pid);
        if let Some(outcome) = self.commons.operations.outcomes.remove(&pid) {
            self.take_back(&outcome);
            self.commons.operations.drop_outcome(Some(outcome));
        }
    }

    /// Begins what the process that runs asks, in a machine that gives its turns itself.
    pub(super) fn start_operation(&mut self) {
        let Operations { driver, under_way, computing, .. } = &mut self.commons.operations;
        if let (Some(operation), Some(driver)) = (self.asked.take(), driver) {
            under_way.insert(self.running.pid);
            if let Operation::Compute(_) = operation {
                computing.insert(self.running.pid);
            }
            driver.start(self.running.pid, operation);
        }
    }

    /// Withdraws the operation of a process, if one is under way; its outcome is stored.
    pub(super) fn withdraw(&mut self, pid: u64) {
        let Operations { driver, under_way, computing, outcomes, .. } = &mut self.commons.operations;
        computing.remove(&pid);
        if !under_way.is_empty()
            && under_way.remove(&pid)
            && let Some(outcome) = driver.as_mut().and_then(|driver| driver.withdraw(pid))
        {
            outcomes.insert(pid, outcome);
        }
    }

    /// Wakes processes whose operations have ended, and drops ends that no process has any more.
    pub(super) fn finish_operations(&mut self) {
        if self.commons.operations.driver.is_none() {
            return;
        }
        loop {
            drop(self.commons.operations.ends.take_released());
            let Some((pid, outcome)) = self.commons.operations.driver.as_mut().and_then(|driver| driver.finished())
            else {
                return;
            };
            self.commons.operations.under_way.remove(&pid);
            if self.commons.operations.computing.remove(&pid) {
                self.end_computation(pid);
            }
            let outcome = self.complete(pid, outcome);
            self.commons.operations.drop_outcome(outcome);
            self.wake(pid);
        }
    }
}

fn refused(message: &str) -> Fail {
    Fail::Raise("channel", message.into(), vec![])
}

/// An end that is not shared, and that two branches use; or one uses it, and one sends it.
fn used_twice(branches: &[Branch]) -> Option<End> {
    let mut used = HashSet::new();
    let mut sent = Vec::new();
    for branch in branches {
        let (Branch::Receive(end) | Branch::Send(end, _) | Branch::Claim(end)) = branch;
        if !end.is_shared() && !used.insert(end.number()) {
            return Some(end.clone());
        }
        if let Branch::Send(_, value) = branch {
            sent.extend(data::ends_of(value));
        }
    }
    sent.into_iter().find(|end| used.contains(&end.number()))
}

/// The kinds of requests; the last one is no operation on channels.
const COMPUTE: Word = fixnum(5);
const MAKE: Word = fixnum(0);
const CHOICE: Word = fixnum(1);
const SHARE: Word = fixnum(2);
const RETIRE: Word = fixnum(3);
const POISON: Word = fixnum(4);

/// The kinds of branches.
const RECEIVE: Word = fixnum(0);
const SEND: Word = fixnum(1);
const CLAIM: Word = fixnum(2);
