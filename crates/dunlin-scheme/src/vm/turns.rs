//! Turns that an embedder gives, to each process for itself, and what processes ask of its surroundings.

use std::sync::Arc;

use super::fail::Result;
use super::machine::Machine;
use super::outside::{Failure, Outside, Request, Script, Step};
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
        self.outside = Some(Outside::default());
        self.table.remove(MAIN);
        self.empty();
    }

    /// What processes have asked since this was called last.
    pub(crate) fn take_requests(&mut self) -> Vec<Request> {
        self.outside.as_mut().map(|outside| std::mem::take(&mut outside.requests)).unwrap_or_default()
    }

    /// Makes a process that evaluates a script.
    ///
    /// # Errors
    /// [`Error::TooManyProcesses`].
    pub(crate) fn add_process(&mut self) -> std::result::Result<u64, Error> {
        if self.table.is_full() {
            return Err(Error::TooManyProcesses);
        }
        let pid = self.table.add();
        let mut process = Box::new(Process::new(pid));
        process.is_queued = true;
        self.table.put(process);
        Ok(pid)
    }

    /// Gives a process a turn.
    pub(crate) fn turn_of(&mut self, pid: u64, script: &mut Script) -> Step {
        if let Some(error) = self.take_end(pid) {
            return Step::Ended(Err(error.into()));
        }
        let Some(process) = self.table.take(pid) else { return Step::Ended(Err(Error::Killed.into())) };
        self.bring(process);
        self.set_ready();
        let step = self.step(script);
        if matches!(step, Step::Ended(_)) {
            self.empty();
            return step;
        }
        self.put_away(matches!(step, Step::Waiting(_) | Step::Operating(..)));
        match self.take_end(pid) {
            // It did not fit its heap.
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
                Step::Again
            }
            Ok(Turn::Waiting(deadline)) => {
                self.running.wait = Wait::Message(deadline);
                Step::Waiting(deadline)
            }
            Ok(Turn::Operating(deadline)) => match self.operations.asked.take() {
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
        let full =
            |message| SyntaxError { source_name: source_name.clone(), pos: form.pos, message, incomplete: false };
        self.load(unit).map_err(full)
    }

    /// No process is in the machine.
    fn empty(&mut self) {
        self.clear();
        *self.running = Process::new(u64::MAX);
    }

    /// Notes that another process, or a limit, ended this one: its next turn tells.
    pub(super) fn note_end(&mut self, pid: u64, error: &Error) {
        if let Some(outside) = &mut self.outside {
            outside.ends.insert(pid, error.clone());
            self.host.ready(pid);
        }
    }

    fn take_end(&mut self, pid: u64) -> Option<Error> {
        self.outside.as_mut()?.ends.remove(&pid)
    }

    /// Notes what a process asks of something outside. False if there is nothing outside.
    pub(super) fn ask(&mut self, request: Request) -> bool {
        let Some(outside) = &mut self.outside else { return false };
        outside.requests.push(request);
        true
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
        if !self.table.is_alive(to) {
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
        if !self.table.is_alive(to) {
            return;
        }
        let data = object.and_then(|value| self.import(value, Some(to)).ok());
        let object = data.unwrap_or_else(|| self.condition("exit", text, &[], -1));
        self.tell_one(to, object);
        self.heap.clear();
    }

    /// Ends a process; those that are linked to it hear `killed`. Nothing else tells.
    pub(crate) fn kill_from_outside(&mut self, pid: u64) {
        let killed = symbol(self.program.symbols.intern("killed"));
        if self.table.is_alive(pid) {
            // The mailbox that it checks is that of no process.
            let _: Result<()> = self.end_other(pid, &Error::Killed, Some(killed));
        }
        self.take_end(pid);
    }

    /// Whether the process has not ended.
    pub(crate) fn is_alive(&mut self, pid: u64) -> bool {
        self.table.is_alive(pid)
    }

    /// Whether what has one of these numbers is outside, and there is an outside.
    pub(super) fn concerns_outside(&self, numbers: [u64; 2]) -> bool {
        self.outside.is_some() && numbers.into_iter().any(is_outside)
    }
}

/// Fuel of a message that goes out, besides what copies of its parts take.
const POST_FUEL: u64 = 10;
