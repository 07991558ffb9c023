//! Turns that an embedder gives, to each process for itself, and what processes ask of its surroundings.

use std::sync::Arc;

use super::commons::Home;
use super::fail::Result;
use super::machine::{Machine, NONE};
use super::outside::{Failure, Request, Script, Step};
use super::schedule::{MAIN, TURN_FUEL};
use super::turn::Turn;
use crate::data::{Value, ValueError};
use crate::datum::Datum;
use crate::error::{Error, SyntaxError};
use crate::heap::word::{NIL, Word, symbol};
use crate::proc::{Process, Wait, is_outside};

impl Machine {
    /// From now on the embedder gives the turns: there is no main process, and between two turns none is in
    /// the machine.
    pub(crate) fn leave_turns_to_embedder(&mut self) {
        self.is_embedded = true;
        self.commons.table.remove(MAIN);
        self.empty();
        self.commons.release();
    }

    /// Another machine of the same program.
    pub(crate) fn worker(home: Arc<Home>) -> Self {
        let mut machine = Self::of(home);
        machine.is_embedded = true;
        machine.commons.release();
        machine
    }

    pub(crate) fn home(&self) -> Arc<Home> {
        self.commons.home().clone()
    }

    /// Whether the program had printed something when the last call of the embedder ended.
    pub(crate) fn has_output(&self) -> bool {
        self.has_output
    }

    /// The embedder's call begins.
    pub(crate) fn begin(&mut self) {
        self.commons.machines += 1;
        // Whether another one is in use is known from now on.
        self.commons.count();
    }

    /// The embedder's call is over: takes what is for the embedder, and puts the commons back.
    pub(crate) fn rest(&mut self) {
        self.released.append(&mut self.commons.operations.ends.take_released());
        self.has_output = !self.commons.output.is_empty();
        self.commons.machines -= 1;
        self.commons.release();
    }

    /// What processes have asked since this was called last.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    /// Makes a process that evaluates a script.
    ///
    /// # Errors
    /// [`Error::TooManyProcesses`].
    pub(crate) fn add_process(&mut self) -> std::result::Result<u64, Error> {
        if self.commons.table.is_full() {
            return Err(Error::TooManyProcesses);
        }
        let pid = self.commons.table.add();
        let mut process = Box::new(Process::new(pid));
        process.is_queued = true;
        self.commons.table.put(process);
        Ok(pid)
    }

    /// Gives a process a turn.
    pub(crate) fn turn_of(&mut self, pid: u64) -> Step {
        if let Some(error) = self.take_end(pid) {
            return Step::Ended(Err(error.into()));
        }
        self.sync();
        if let Some(at) = self.pause_of(pid) {
            return Step::Paused(at);
        }
        let Some(process) = self.commons.table.take(pid) else { return Step::Ended(Err(Error::Killed.into())) };
        let mut script = self.commons.scripts.remove(&pid).unwrap_or_default();
        if process.is_busy {
            // It does not need them soon.
            self.commons.release();
        } else {
            self.commons.rest();
        }
        self.bring(process);
        self.set_ready();
        let step = self.step(&mut script);
        if !script.forms.is_empty() && !matches!(step, Step::Ended(_)) {
            self.commons.scripts.insert(pid, script);
        }
        if matches!(step, Step::Ended(_)) {
            self.empty();
            return step;
        }
        self.count_fuel();
        self.put_away(matches!(step, Step::Waiting(_) | Step::Operating(..)));
        match self.take_end(pid) {
            // It did not fit its heap, or another process ended it.
            Some(error) => {
                self.empty();
                Step::Ended(Err(error.into()))
            }
            None => step,
        }
    }

    fn step(&mut self, script: &mut Script) -> Step {
        if self.live == 0 {
            let Some(form) = script.forms.pop_front() else { return self.ended(Ok(Value::Unspecified)) };
            match self.load_form(&form, &script.source_name) {
                Ok(entry) => self.start(entry),
                Err(error) => return self.ended(Err(error.into())),
            }
        }
        match self.run(TURN_FUEL) {
            Ok(Turn::Done(_)) if !script.forms.is_empty() => {
                self.frames.clear();
                (self.kont, self.marks, self.live, self.base) = (NIL, NIL, 0, 0);
                self.running.is_queued = true;
                Step::Again
            }
            Ok(Turn::Done(value)) => {
                let value = self.export(value);
                self.ended(Ok(value.unwrap_or(Value::Unspecified)))
            }
            Ok(Turn::Halted) | Err(Error::Exit(0)) => self.ended(Ok(Value::Unspecified)),
            Ok(Turn::OutOfFuel) => {
                self.running.is_queued = true;
                self.running.is_busy = true;
                Step::Again
            }
            Ok(Turn::Waiting(deadline)) => {
                self.running.wait = Wait::Message(deadline);
                self.running.is_busy = false;
                Step::Waiting(deadline)
            }
            Ok(Turn::Operating(deadline)) => match self.asked.take() {
                Some(operation) => {
                    self.running.wait = Wait::Outcome(deadline);
                    Step::Operating(operation, deadline)
                }
                None => Step::Again,
            },
            Err(error) => self.ended(Err(error)),
        }
    }

    /// The process in the machine has ended.
    fn ended(&mut self, result: std::result::Result<Value, Error>) -> Step {
        let object = self.failure.and_then(|word| self.export(word).ok());
        self.end(result.as_ref().err().cloned());
        Step::Ended(result.map_err(|error| Box::new(Failure { error, object })))
    }

    /// Compiles and loads a form of the top level.
    pub(crate) fn load_form(
        &mut self,
        form: &Datum,
        source_name: &Arc<str>,
    ) -> std::result::Result<usize, SyntaxError> {
        let unit = self.compile(form, source_name)?;
        let pos = form.pos.plain();
        let full = |message| SyntaxError { source_name: source_name.clone(), pos, message, incomplete: false };
        self.load(unit).map_err(full)
    }

    /// No process is in the machine.
    fn empty(&mut self) {
        self.clear();
        *self.running = Process::new(NONE);
    }

    /// Notes that another process, or a limit, ended this one: its next turn tells.
    pub(super) fn note_end(&mut self, pid: u64, error: &Error) {
        if self.is_embedded {
            self.commons.ends.insert(pid, error.clone());
            self.host.ready(pid);
        }
    }

    fn take_end(&mut self, pid: u64) -> Option<Error> {
        let ends = &mut self.commons.ends;
        if ends.is_empty() { None } else { ends.remove(&pid) }
    }

    /// Notes what a process asks of something outside. False if there is nothing outside.
    pub(super) fn ask(&mut self, request: Request) -> bool {
        if self.is_embedded {
            self.requests.push(request);
        }
        self.is_embedded
    }

    /// Sends a message to what has this number outside.
    pub(super) fn post(&mut self, to: u64, word: Word) {
        let message = self.export(word);
        self.pass_ends(word, None);
        self.charge += POST_FUEL;
        self.ask(Request::Post { to, message });
    }

    /// Sends a message to a process, from outside. False if it has ended.
    ///
    /// # Errors
    /// [`ValueError`] for a value that no machine has.
    pub(crate) fn send_value(&mut self, to: u64, message: &Value) -> std::result::Result<bool, ValueError> {
        if !self.commons.table.is_alive(to) {
            return Ok(false);
        }
        let word = self.import(message, Some(to))?;
        // Only to the process in the machine it could fail.
        let sent: Result<()> = self.send(to, word);
        self.heap.clear();
        Ok(sent.is_ok())
    }

    /// Raises an object in a process, where it waits for a message next: data, or an error with this text.
    pub(crate) fn raise_in(&mut self, to: u64, object: Option<&Value>, text: &str) {
        if !self.commons.table.is_alive(to) {
            return;
        }
        let data = object.and_then(|value| self.import(value, Some(to)).ok());
        let object = data.unwrap_or_else(|| self.condition("exit", text, &[], -1));
        self.tell_one(to, object);
        self.heap.clear();
    }

    /// Ends a process; those that are linked to it hear `killed`. Nothing else tells.
    pub(crate) fn kill_from_outside(&mut self, pid: u64) {
        let killed = symbol(self.commons.program.symbols.intern("killed"));
        if self.commons.table.is_alive(pid) {
            // The mailbox that it checks is that of no process.
            let _: Result<()> = self.end_other(pid, &Error::Killed, Some(killed));
        }
        self.take_end(pid);
    }

    /// Whether the process has not ended.
    pub(crate) fn is_alive(&mut self, pid: u64) -> bool {
        self.commons.table.is_alive(pid)
    }

    /// Whether what has one of these numbers is outside, and there is an outside.
    pub(super) fn concerns_outside(&self, numbers: [u64; 2]) -> bool {
        self.is_embedded && numbers.into_iter().any(is_outside)
    }
}

/// Fuel of a message that goes out, besides what copies of its parts take.
const POST_FUEL: u64 = 10;
