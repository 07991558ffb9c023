//! Programs, for their users.

use std::num::NonZeroU64;
use std::sync::Arc;

use dunlin::{Address, Pid, Process};
use dunlin_scheme::{Error, ProcessNumber, Value, ValueError, value_of};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::body::{Body, ended};
use crate::machine::Shared;

/// Code, definitions and processes of Scheme. Its clones are handles of the same program.
///
/// # Examples
/// A server in Scheme, with a client in Rust:
/// ```
/// use dunlin::mailbox;
/// use dunlin_scheme_host::{Program, ProcessNumber};
///
/// # dunlin::block_on(async {
/// let program = Program::new();
/// let setup = program.spawn("setup", "
///     (define (count n)
///       (recv ((from 'next) (! from n) (count (+ n 1)))))
///     (define counter (spawn (lambda () (count 1))))
///     counter")?;
/// setup.await?;
/// let (address, mut mailbox) = mailbox::<u32>();
/// let me = program.address(address);
/// program.define("rust", &me)?;
/// program.spawn("client", "(! counter (list rust 'next)) (! counter (list rust 'next))")?;
/// assert_eq!((mailbox.recv().await?, mailbox.recv().await?), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// # Source
/// Termite: Germain, Feeley and Monnier, "Concurrency oriented programming in Termite Scheme", 2006.
#[derive(Clone)]
pub struct Program {
    shared: Arc<Shared>,
}

impl Default for Program {
    fn default() -> Self {
        Self::new()
    }
}

impl Program {
    /// A program that has only the standard procedures. What it prints is dropped, unless it gets a
    /// [console](Self::set_console).
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared::new()) }
    }

    /// Makes a Scheme process that evaluates the forms of a text, one after the other, as the body of a
    /// process: [`spawn_linked`](dunlin::spawn_linked), a scope or a supervisor runs it. Its output is the
    /// last value; one that is no data is [`Value::Unspecified`].
    ///
    /// # Errors
    /// [`Error::Syntax`] for text that cannot be read, [`Error::TooManyProcesses`].
    ///
    /// # Examples
    /// ```
    /// use dunlin::{spawn, spawn_linked};
    /// use dunlin_scheme_host::Program;
    ///
    /// # dunlin::block_on(async {
    /// let program = Program::new();
    /// let worker = program.body("worker", "(car 7)")?;
    /// let parent = spawn(async move {
    ///     spawn_linked(worker).unwrap();
    ///     std::future::pending::<()>().await // until the exit of the worker ends it
    /// });
    /// let exit = parent.await.unwrap_err();
    /// assert!(exit.reason.to_string().contains("expected a pair, got 7"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn body(&self, source_name: &str, text: &str) -> Result<Body, Error> {
        let started = self.shared.start(source_name, text)?;
        Ok(Body::new(self.shared.clone(), started))
    }

    /// Starts a process that evaluates the forms of a text. It ends with the last value, or with an exit: an
    /// error with the text of what was raised, and with the object as its [payload](dunlin::Exit::payload).
    ///
    /// # Errors
    /// As of [`body`](Self::body).
    ///
    /// # Panics
    /// As [`dunlin::spawn`].
    ///
    /// # Examples
    /// ```
    /// use dunlin_scheme_host::{Program, Value};
    /// # dunlin::block_on(async {
    /// let program = Program::new();
    /// assert_eq!(program.spawn("example", "(* 6 7)")?.await?, Value::Integer(42));
    /// let exit = program.spawn("example", "(raise '(krill 7))")?.await.unwrap_err();
    /// assert_eq!(exit.payload::<Value>().unwrap().to_string(), "(krill 7)");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn spawn(&self, source_name: &str, text: &str) -> Result<Process<Value>, Error> {
        Ok(dunlin::spawn(ended(self.body(source_name, text)?)))
    }

    /// The number by which Scheme processes of this program know a mailbox: a pid to which they send.
    ///
    /// A message that does not fit `M`, or for which a bound has no room, is dropped,
    /// [counted](Self::dropped) and logged, with both shapes. The program keeps the address.
    pub fn address<M: DeserializeOwned + Send + 'static>(&self, address: Address<M>) -> ProcessNumber {
        self.shared.add_mailbox(Arc::new(address))
    }

    /// The number by which Scheme processes of this program know a process, for links and `kill`. It has no
    /// mailbox of its own: messages to it are dropped and counted.
    pub fn pid(&self, pid: Pid) -> ProcessNumber {
        self.shared.number(pid)
    }

    /// Sends a message to a Scheme process of this program, or to a mailbox that it knows. It never waits.
    /// `false`: the process has ended.
    ///
    /// # Errors
    /// [`ValueError`] if the message is no data, as `value_of` says.
    pub fn send<M: Serialize + ?Sized>(&self, to: ProcessNumber, message: &M) -> Result<bool, ValueError> {
        self.shared.send(to.0, value_of(message)?)
    }

    /// Defines a name at the top level, for all processes.
    ///
    /// # Errors
    /// [`Error::Value`] for what is no data; [`Error::HeapLimit`] if the values of globals take too much.
    pub fn define<T: Serialize + ?Sized>(&self, name: &str, value: &T) -> Result<(), Error> {
        let value = value_of(value)?;
        self.shared.with_engine(|engine| engine.define(name, &value))
    }

    /// How many messages of Scheme processes to mailboxes and processes of Rust were dropped, because they
    /// did not fit.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped()
    }

    /// Hands what the program prints to `console`, after each turn. It may not use the program.
    pub fn set_console(&self, console: impl FnMut(&str) + Send + 'static) {
        self.shared.set_console(Box::new(console));
    }

    /// Limits the memory of live objects, for each process, and that of its mailbox.
    pub fn set_heap_limit(&self, bytes: usize) {
        self.shared.with_engine(|engine| engine.set_heap_limit(bytes));
    }

    /// Limits the fuel that each process may use in a second: about 25,000,000 units are what a processor
    /// does. `None`, as in the beginning, is no limit. A process that has used its fuel pauses, and others go
    /// on. It may use the fuel of a tenth of a second in advance, and a turn.
    ///
    /// # Examples
    /// ```
    /// use dunlin_scheme_host::Program;
    /// use std::num::NonZero;
    ///
    /// # dunlin::block_on(async {
    /// let program = Program::new();
    /// // A process that computes all the time takes a tenth of a processor.
    /// program.set_fuel_rate(NonZero::new(2_500_000));
    /// let guest = program.spawn("guest", "(let forever () (forever))")?;
    /// guest.pid().kill();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    pub fn set_fuel_rate(&self, per_second: Option<NonZeroU64>) {
        self.shared.with_engine(|engine| engine.set_fuel_rate(per_second));
    }

    /// Limits how many Scheme processes there may be at once.
    pub fn set_process_limit(&self, count: usize) {
        self.shared.with_engine(|engine| engine.set_process_limit(count));
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut program = f.debug_struct("Program");
        program.field("processes", &self.shared.processes()).field("dropped", &self.dropped()).finish_non_exhaustive()
    }
}
