//! A machine with a top level, for embedders.

use std::rc::Rc;

use crate::error::{Error, SyntaxError};
use crate::expand::bind_specials;
use crate::print::{self, Style};
use crate::read::Reader;
use crate::vm::{self, Machine, PRELUDE_NAME, Turn};

/// What every machine begins with.
const PRELUDE: [&str; 1] = [include_str!("lib/base.scm")];

/// A Scheme machine with its top level.
///
/// An error leaves it usable: definitions made before stay, and the next text runs.
pub struct Scheme {
    machine: Machine,
    fuel: Option<u64>,
    turn: u64,
}

impl Default for Scheme {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheme {
    /// A machine that has loaded the standard procedures.
    pub fn new() -> Self {
        let mut machine = Machine::new();
        bind_specials(&mut machine.symbols, &mut machine.syntaxes);
        machine.inlines = vm::inlines(&mut machine.symbols);
        let name: Rc<str> = PRELUDE_NAME.into();
        let builtins = vm::builtins(&mut machine.symbols, &name);
        let entry = machine.load(builtins).expect("the tables of a new machine have room");
        machine.start(entry);
        machine.run(u64::MAX).expect("definitions do not fail");
        let mut scheme = Self { machine, fuel: None, turn: u64::MAX };
        for text in PRELUDE {
            if let Err(error) = scheme.eval(PRELUDE_NAME, text) {
                unreachable!("the prelude does not run: {error}");
            }
        }
        scheme.machine.syntaxes.seal();
        scheme
    }

    /// Evaluates every form of a text, and returns the last value as `write` shows it.
    ///
    /// `source_name` names the text in errors.
    ///
    /// # Errors
    /// [`Error::Syntax`] for text that is no program, [`Error::Raised`] for an object that no handler took,
    /// and the limits and ends that [`Error`] lists. Forms before the one that failed have run.
    pub fn eval(&mut self, source_name: &str, text: &str) -> Result<String, Error> {
        let source_name: Rc<str> = source_name.into();
        let mut reader = Reader::new(text, &source_name);
        let mut last = crate::heap::word::UNSPECIFIED;
        while let Some(form) = reader.next(&mut self.machine.symbols)? {
            let unit = self.machine.compile(&form, &source_name)?;
            let full =
                |message| SyntaxError { source_name: source_name.clone(), pos: form.pos, message, incomplete: false };
            let entry = self.machine.load(unit).map_err(full)?;
            self.machine.start(entry);
            last = self.run()?;
        }
        Ok(print::value(&self.machine.heap, &self.machine.symbols, last, Style::Write))
    }

    fn run(&mut self) -> Result<crate::heap::Word, Error> {
        loop {
            let turn = self.fuel.map_or(self.turn, |fuel| fuel.min(self.turn));
            match self.machine.run(turn)? {
                Turn::Done(value) => return Ok(value),
                Turn::OutOfFuel => {
                    if let Some(fuel) = &mut self.fuel {
                        *fuel = fuel.saturating_sub(turn);
                        if *fuel == 0 {
                            return Err(Error::OutOfFuel);
                        }
                    }
                }
            }
        }
    }

    /// Limits the fuel of all that runs from now on; a call or a turn of a loop costs one unit.
    pub fn set_fuel(&mut self, fuel: u64) {
        self.fuel = Some(fuel);
    }

    /// Ends a turn after so much fuel. The program goes on in the next turn, and cannot tell.
    pub fn set_turn(&mut self, fuel: u64) {
        self.turn = fuel.max(1);
    }

    /// Limits the memory of live objects.
    pub fn set_heap_limit(&mut self, bytes: usize) {
        self.machine.heap.set_limit(bytes / 8);
    }

    /// Collects at every point that may collect: slow, and finds values that no root holds.
    pub fn set_collect_always(&mut self, always: bool) {
        self.machine.heap.set_stress(always);
    }

    /// How often the collector ran.
    pub fn collections(&self) -> u64 {
        self.machine.heap.collections()
    }

    /// What the program printed since this was called last.
    pub fn take_output(&mut self) -> String {
        self.machine.take_output()
    }
}
