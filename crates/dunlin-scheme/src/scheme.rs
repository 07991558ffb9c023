//! A machine with a top level, for embedders.

use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::data::Value;
use crate::datum::Datum;
use crate::error::Error;
use crate::expand::bind_specials;
use crate::heap::Word;
use crate::heap::word::pid;
use crate::interrupt::Interrupter;
use crate::names::Symbols;
use crate::print::{self, Style};
use crate::proc::{Channels, Host, Local};
use crate::read::Reader;
use crate::vm::{self, Machine, PRELUDE_NAME, Program};
use crate::wire::{ReadError, WriteError};

/// What every machine begins with.
const PRELUDE: [&str; 5] = [
    include_str!("lib/base.scm"),
    include_str!("lib/list.scm"),
    include_str!("lib/process.scm"),
    include_str!("lib/channel.scm"),
    include_str!("lib/server.scm"),
];

/// A Scheme machine with its top level, and the processes of its program.
///
/// The forms of a text are the main process. Others run while it runs or waits, and stay when a text ends. An
/// error leaves the machine usable: definitions made before stay, and the next text runs.
pub struct Scheme {
    machine: Machine,
    fuel: Option<u64>,
    turn: u64,
    rewrite: bool,
    console: Option<Console>,
}

/// What a program prints is handed to the console at least after so much fuel, about 4 ms.
const FLUSH_FUEL: u64 = 100_000;

/// What takes the text that a program prints.
type Console = Box<dyn FnMut(&str)>;

impl Default for Scheme {
    fn default() -> Self {
        Self::new()
    }
}

impl Scheme {
    /// A machine that has loaded the standard procedures.
    ///
    /// The first of a program compiles them; the others are copies, and share the code until they load their
    /// own.
    pub fn new() -> Self {
        static FIRST: LazyLock<Mutex<Machine>> = LazyLock::new(|| Mutex::new(Scheme::compiled()));
        let machine = FIRST.lock().unwrap_or_else(PoisonError::into_inner).another();
        Self { machine, fuel: None, turn: u64::MAX, rewrite: false, console: None }
    }

    fn compiled() -> Machine {
        let mut machine = Machine::new();
        let Program { symbols, syntaxes, inlines, .. } = &mut machine.commons.program;
        bind_specials(symbols, syntaxes);
        *inlines = vm::inlines(symbols);
        let name: Arc<str> = PRELUDE_NAME.into();
        let builtins = vm::builtins(&mut machine.commons.program.symbols, &name);
        let entry = machine.load(builtins).expect("the tables of a new machine have room");
        machine.start(entry);
        machine.run(u64::MAX).expect("definitions do not fail");
        let mut scheme = Self { machine, fuel: None, turn: u64::MAX, rewrite: false, console: None };
        scheme.set_arguments(["scheme"]);
        for text in PRELUDE {
            if let Err(error) = scheme.eval(PRELUDE_NAME, text) {
                unreachable!("the prelude does not run: {error}");
            }
        }
        scheme.machine.set_process_entry();
        scheme.machine.seal();
        scheme.machine
    }

    /// The machine by itself.
    pub(crate) fn into_machine(self) -> Machine {
        self.machine
    }

    /// Evaluates every form of a text, and returns the last value as `write` shows it.
    ///
    /// `source_name` names the text in errors.
    ///
    /// # Errors
    /// [`Error::Syntax`] for text that is no program, [`Error::Raised`] for an object that no handler took,
    /// and the limits and ends that [`Error`] lists. Forms before the one that failed have run.
    pub fn eval(&mut self, source_name: &str, text: &str) -> Result<String, Error> {
        let last = self.eval_forms(source_name, text)?;
        Ok(self.show(last))
    }

    /// Evaluates every form of a text as [`Scheme::eval`] does, and returns no value.
    ///
    /// # Errors
    /// As those of [`Scheme::eval`].
    pub fn run_text(&mut self, source_name: &str, text: &str) -> Result<(), Error> {
        self.eval_forms(source_name, text).map(drop)
    }

    /// Evaluates every form of a text, and returns the last value as data.
    ///
    /// ```
    /// use dunlin_scheme::{Scheme, Value};
    ///
    /// let mut scheme = Scheme::new();
    /// scheme.define("numbers", &Value::List(vec![Value::Integer(3), Value::Integer(4)]))?;
    /// assert_eq!(scheme.eval_value("example", "(apply + numbers)")?, Value::Integer(7));
    /// # Ok::<(), dunlin_scheme::Error>(())
    /// ```
    ///
    /// # Errors
    /// As those of [`Scheme::eval`], and [`Error::Value`] for a value that is no data.
    pub fn eval_value(&mut self, source_name: &str, text: &str) -> Result<Value, Error> {
        let last = self.eval_forms(source_name, text)?;
        Ok(self.machine.export(last)?)
    }

    /// Defines a global as this value.
    ///
    /// # Errors
    /// [`Error::Value`] for a value that no machine has; [`Error::HeapLimit`] if the values of globals take
    /// more than a heap may.
    pub fn define(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        self.machine.define_value(name, value)
    }

    fn eval_forms(&mut self, source_name: &str, text: &str) -> Result<Word, Error> {
        self.machine.interrupts.take();
        let source_name: Arc<str> = source_name.into();
        let mut reader = Reader::new(text, &source_name);
        let mut last = crate::heap::word::UNSPECIFIED;
        while let Some(form) = reader.next(&mut self.machine.commons.program.symbols)? {
            last = self.form(&form, &source_name)?;
        }
        Ok(last)
    }

    /// Evaluates every form of a text, also those after one that fails, and hands each result to `each` with
    /// what the form printed. It ends where `each` breaks, and where the text cannot be read.
    pub fn eval_each(
        &mut self,
        source_name: &str,
        text: &str,
        mut each: impl FnMut(Result<String, Error>, String) -> ControlFlow<()>,
    ) {
        self.machine.interrupts.take();
        let source_name: Arc<str> = source_name.into();
        let mut reader = Reader::new(text, &source_name);
        loop {
            let result = match reader.next(&mut self.machine.commons.program.symbols) {
                Ok(None) => return,
                Ok(Some(form)) => self.form(&form, &source_name).map(|value| self.show(value)),
                Err(error) => {
                    let _ = each(Err(error.into()), String::new());
                    return;
                }
            };
            let output = self.take_output();
            if each(result, output).is_break() {
                return;
            }
        }
    }

    fn form(&mut self, form: &Datum, source_name: &Arc<str>) -> Result<Word, Error> {
        let entry = self.machine.load_form(form, source_name)?;
        self.machine.start(entry);
        self.run()
    }

    fn show(&self, value: Word) -> String {
        print::value(&self.machine.heap, &self.machine.commons.program.symbols, value, Style::Write, print::TEXT_MAX)
    }

    fn run(&mut self) -> Result<Word, Error> {
        let Self { machine, fuel, turn, rewrite, console } = self;
        let mut printed = 0;
        let mut flush = |machine: &mut Machine, now: bool| {
            let Some(console) = console else { return };
            printed += machine.last_used();
            if now || printed >= FLUSH_FUEL {
                printed = 0;
                let text = machine.take_output();
                if !text.is_empty() {
                    console(&text);
                }
            }
        };
        let result = machine.run_main(*turn, fuel, *rewrite, &mut flush);
        flush(machine, true);
        result
    }

    /// Compiles and loads every form of a text, and runs none but `define-macro`: images that name its code
    /// can be read then.
    ///
    /// # Errors
    /// [`Error::Syntax`] for text that is no program; what a definition of a macro raises.
    pub fn load(&mut self, source_name: &str, text: &str) -> Result<(), Error> {
        let source_name: Arc<str> = source_name.into();
        let mut reader = Reader::new(text, &source_name);
        while let Some(form) = reader.next(&mut self.machine.commons.program.symbols)? {
            let entry = self.machine.load_form(&form, &source_name)?;
            let head = form.items().and_then(|items| items.first()).and_then(Datum::name);
            if head.is_some_and(|name| &**self.machine.commons.program.symbols.text(name) == "define-macro") {
                self.machine.start(entry);
                self.run()?;
            }
        }
        Ok(())
    }

    /// Writes the value of a global, with all that it reaches, as bytes.
    ///
    /// # Errors
    /// [`WriteError`] if a part of it is state of this machine.
    pub fn write_global(&mut self, name: &str) -> Result<Vec<u8>, WriteError> {
        let name = self.machine.program_name(name);
        let value = self.machine.global_value(&name);
        self.machine.write(value)
    }

    /// Reads a value that [`Scheme::write_global`] wrote on any machine, and defines a global as it.
    ///
    /// # Errors
    /// [`ReadError`] for bytes that are no image, and for one whose code this machine has not loaded. Any bytes
    /// may be read: what the machine could not use is an error here, not later.
    pub fn read_global(&mut self, name: &str, image: &[u8]) -> Result<(), ReadError> {
        let value = self.machine.read(image)?;
        let limit = self.machine.heap.limit();
        let name = self.machine.defined_name(name);
        self.machine.set_global(&name, value, limit).map_err(|_| ReadError::TooLarge)
    }

    /// Writes a process other than the main one, with its mailbox, as bytes; it goes on here, too. `None` if
    /// there is no such process.
    ///
    /// ```
    /// use dunlin_scheme::Scheme;
    ///
    /// let program = "(define (serve) (recv ((from tag 'name) (! from (list tag 'auk)))) (serve))";
    /// let mut here = Scheme::new();
    /// here.eval("example", program)?;
    /// here.eval("example", "(spawn serve) (sleep 0)")?;
    /// let process = here.processes()[0];
    /// let image = here.write_process(process).expect("it serves")?;
    ///
    /// let mut there = Scheme::new();
    /// there.eval("example", program)?;
    /// let process = there.read_process(&image)?;
    /// there.define_process("server", process);
    /// assert_eq!(there.eval("example", "(!? server 'name)")?, "auk");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`WriteError`] if a part of it is state of this machine.
    pub fn write_process(&mut self, process: u64) -> Option<Result<Vec<u8>, WriteError>> {
        self.machine.write_process(process)
    }

    /// Reads a process that [`Scheme::write_process`] wrote on any machine, and returns its number here. It
    /// goes on where it was written, during the next evaluation. Where it named itself it names the copy.
    ///
    /// # Errors
    /// As those of [`Scheme::read_global`].
    pub fn read_process(&mut self, image: &[u8]) -> Result<u64, ReadError> {
        self.machine.read_process(image)
    }

    /// Defines a global as a process.
    pub fn define_process(&mut self, name: &str, process: u64) {
        let name = self.machine.defined_name(name);
        self.machine.set_global(&name, pid(process), usize::MAX).expect("the number of a process takes no memory");
    }

    /// The numbers of the processes that have not ended, but for the main one.
    pub fn processes(&self) -> Vec<u64> {
        self.machine.processes()
    }

    /// The bytes of a process while it does not run: its heap, its mailbox, and the rest; what it shares with
    /// others counts in full. `None` if there is no such process.
    pub fn process_bytes(&mut self, process: u64) -> Option<usize> {
        self.machine.process_bytes(process)
    }

    /// Limits the fuel that each process may use in a second: about 25,000,000 units are what a processor
    /// does. `None`, as in the beginning, is no limit. A process that has used its fuel pauses, the main one
    /// too; others go on. It may use the fuel of a tenth of a second in advance, and a turn.
    pub fn set_fuel_rate(&mut self, per_second: Option<NonZeroU64>) {
        self.machine.set_fuel_rate(per_second);
    }

    /// Limits how many processes there may be at once, the main one included: 4,194,304 if this is not
    /// called. One more is an error of the kind `limit` in the program.
    pub fn set_process_limit(&mut self, count: usize) {
        self.machine.set_process_limit(count);
    }

    /// Lets programs read files as source text: for libraries that they import, and by `include`.
    ///
    /// `files` gets a path relative to the program, with `/` between folders and without `..`:
    /// `(import (a b))` reads `a/b.sld` if no library of this name is defined. Without this, programs have
    /// the libraries that they define, and the standard ones. `eval` and macros read no files. A text of more
    /// than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX) bytes is an error.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    ///
    /// let mut scheme = dunlin_scheme::Scheme::new();
    /// scheme.set_files(|path| match path {
    ///     "birds/auk.sld" => Ok("(define-library (birds auk)
    ///         (import (scheme base))
    ///         (export dives)
    ///         (begin (define (dives n) (list n 'dives))))".into()),
    ///     _ => Err(Error::from(ErrorKind::NotFound)),
    /// });
    /// assert_eq!(scheme.eval("example", "(import (prefix (birds auk) auk-)) (auk-dives 3)")?, "(3 dives)");
    /// # Ok::<(), dunlin_scheme::Error>(())
    /// ```
    pub fn set_files(&mut self, files: impl FnMut(&str) -> std::io::Result<String> + Send + 'static) {
        self.machine.files = Some(Box::new(files));
    }

    /// Hands processes and timers to another host. Call it before the first program.
    pub fn set_host(&mut self, host: impl Host + Send + 'static) {
        self.machine.set_host(Box::new(host));
    }

    /// Lets processes use channels, which `channels` carries out. Call it before the first program.
    ///
    /// Without this a machine has no channels: making one raises an error of the kind `channel`.
    pub fn set_channels(&mut self, channels: impl Channels + Send + 'static) {
        self.machine.set_channels(Box::new(channels));
    }

    /// Lets time be virtual: it begins at zero, a turn takes 20 us, and where all processes wait it goes on
    /// to the first timer at once. Call it before the first program.
    ///
    /// ```
    /// let mut scheme = dunlin_scheme::Scheme::new();
    /// scheme.set_virtual_time();
    /// scheme.eval("example", "(sleep 3600)")?;
    /// # Ok::<(), dunlin_scheme::Error>(())
    /// ```
    pub fn set_virtual_time(&mut self) {
        self.machine.set_host(Box::new(Local::simulated()));
    }

    /// Hands errors that end a process to `log`, with its number, unless other processes are linked to it.
    /// Without this, such a process ends in silence.
    pub fn set_failure_log(&mut self, log: impl FnMut(u64, &Error) + Send + 'static) {
        self.machine.set_failure_log(Box::new(log));
    }

    /// What interrupts evaluations of this machine, from another thread.
    pub fn interrupter(&self) -> Interrupter {
        self.machine.interrupts.interrupter()
    }

    /// Writes and reads each process at the end of each of its turns, also where it waits: as if it moved to
    /// another machine there.
    pub fn set_rewrite(&mut self, rewrite: bool) {
        self.rewrite = rewrite;
    }

    /// Limits the fuel of all that runs from now on; a call or a turn of a loop costs one unit.
    pub fn set_fuel(&mut self, fuel: u64) {
        self.fuel = Some(fuel);
    }

    /// Ends a turn after so much fuel. The program goes on in the next turn, and cannot tell.
    pub fn set_turn(&mut self, fuel: u64) {
        self.turn = fuel.max(1);
    }

    /// The names that have values at the top level, sorted; without those that the prelude keeps to itself.
    pub fn globals(&self) -> Vec<String> {
        let program = &self.machine.commons.program;
        let names = program.defined_globals().chain(program.syntaxes.imported());
        let mut names: Vec<String> = names.map(|name| program.symbols.text(name).to_string()).collect();
        names.retain(|name| !name.starts_with('%'));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The names of syntax at the top level, sorted; without those that the prelude keeps to itself.
    pub fn syntax_names(&self) -> Vec<String> {
        let Program { symbols, syntaxes, .. } = &self.machine.commons.program;
        let mut names: Vec<String> = syntaxes.names().map(|name| symbols.text(name).to_string()).collect();
        names.retain(|name| !name.starts_with('%'));
        names.sort_unstable();
        names
    }

    /// The names that programs have defined at the top level, sorted. One of [`Scheme::globals`] of a new
    /// machine is that of a standard procedure, which this definition replaces.
    pub fn defined(&self) -> Vec<String> {
        let Program { symbols, syntaxes, .. } = &self.machine.commons.program;
        let mut names: Vec<String> = syntaxes.defined().map(|name| symbols.text(name).to_string()).collect();
        names.sort_unstable();
        names
    }

    /// The most fuel that a turn used past its end, since this was called last: one primitive ends what it
    /// began.
    pub fn take_overrun(&mut self) -> u64 {
        self.machine.take_overrun()
    }

    /// Limits the memory of live objects, for each process, and that of its mailbox. A large message that
    /// processes share counts in full for each that holds a part of it.
    pub fn set_heap_limit(&mut self, bytes: usize) {
        self.machine.set_heap_limit(bytes / 8);
    }

    /// Collects at every point that may collect: slow, and finds values that no root holds.
    pub fn set_collect_always(&mut self, always: bool) {
        self.machine.heap.set_stress(always);
    }

    /// How often the collector ran.
    pub fn collections(&self) -> u64 {
        self.machine.heap.collections()
    }

    /// Hands what the program prints to `console`, every few milliseconds and where it waits;
    /// [`Scheme::take_output`] returns nothing then.
    pub fn set_console(&mut self, console: impl FnMut(&str) + 'static) {
        self.console = Some(Box::new(console));
    }

    /// What `command-line` returns from now on: the program's name first, then its arguments. No limit holds
    /// for them.
    pub fn set_arguments<'a>(&mut self, arguments: impl IntoIterator<Item = &'a str>) {
        let heap = &mut self.machine.heap;
        let words: Vec<Word> = arguments.into_iter().map(|argument| heap.string(argument)).collect();
        let list = heap.list(&words, crate::heap::word::NIL);
        self.machine.set_global("%command-line", list, usize::MAX).expect("it has no limit");
    }

    /// What the program printed since this was called last.
    pub fn take_output(&mut self) -> String {
        self.machine.take_output()
    }
}

/// Whether more text could make a program of this one: a list, a string or a block comment is open at its
/// end.
///
/// ```
/// use dunlin_scheme::is_incomplete;
///
/// assert!(is_incomplete("(define (f x)") && is_incomplete("\"text") && is_incomplete("'"));
/// assert!(!is_incomplete("(f 1)") && !is_incomplete("(f 1))") && !is_incomplete(""));
/// ```
pub fn is_incomplete(text: &str) -> bool {
    let mut symbols = Symbols::default();
    let mut reader = Reader::new(text, &"".into());
    loop {
        match reader.next(&mut symbols) {
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(error) => return error.incomplete,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_share_the_prelude_and_nothing_else() {
        let (mut first, mut second) = (Scheme::new(), Scheme::new());
        assert!(first.machine.shares_code_with(&second.machine));
        first.eval("test", "(define (square x) 'mine) (define-syntax two (syntax-rules () ((_) 2)))").unwrap();
        assert!(!first.machine.shares_code_with(&second.machine));
        assert_eq!(first.eval("test", "(list (square 3) (two))").unwrap(), "(mine 2)");
        assert_eq!(second.eval("test", "(square 3)").unwrap(), "9");
        assert!(second.eval("test", "(two)").is_err());
        assert_eq!(second.take_output(), "");
    }
}
