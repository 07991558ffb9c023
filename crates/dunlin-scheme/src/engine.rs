//! A machine whose processes have their turns from outside.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::data::{End, ProcessNumber, Value, ValueError};
use crate::error::Error;
use crate::proc::{Host, OUTSIDE, Outcome, is_outside};
use crate::read::Reader;
use crate::scheme::Scheme;
use crate::vm::{Home, Machine, Request, Script, Step};

/// A machine whose processes are tasks of an embedder, which gives each of them its turns.
///
/// There is no main process. The embedder starts processes with a text, and learns from its [`Host`] which
/// can run: [`Host::ready`] names a process that was woken or ended by another one, and one that it does not
/// know yet is one that a process has spawned. Of the host, only `ready` and `now_us` are used, and `ready`
/// may use no engine of the program.
///
/// Numbers that [`Engine::outside`] makes name what is outside of the machine, for instance processes and
/// mailboxes of Rust. In Scheme they are pids as others are; what a process asks of one is a [`Request`].
/// What it asks of channels is an [`Operation`](crate::Operation), for whose [`Outcome`] it waits.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use dunlin_scheme::{Engine, Host, Request, Step, Value};
///
/// /// Notes which processes can run.
/// struct Ready(Arc<Mutex<Vec<u64>>>);
///
/// impl Host for Ready {
///     fn ready(&mut self, process: u64) {
///         self.0.lock().unwrap().push(process);
///     }
///     fn next(&mut self) -> Option<u64> {
///         None
///     }
///     fn now_us(&mut self) -> u64 {
///         0
///     }
///     fn set_timer(&mut self, _: u64, _: u64) {}
///     fn cancel_timer(&mut self, _: u64, _: u64) {}
///     fn wait(&mut self) -> bool {
///         false
///     }
/// }
///
/// let ready = Arc::new(Mutex::new(Vec::new()));
/// let mut engine = Engine::new(Ready(ready.clone()));
/// let printer = Engine::outside(0);
/// engine.define("printer", &Value::Process(printer))?;
/// let doubler = engine.start("example", "(! printer (* 2 (?)))")?;
/// assert_eq!(engine.turn(doubler), Step::Waiting(None));
/// assert!(engine.send(doubler, &Value::Integer(21))?);
/// assert_eq!(*ready.lock().unwrap(), [doubler]);
/// assert!(matches!(engine.turn(doubler), Step::Ended(Ok(Value::Unspecified))));
/// assert_eq!(engine.take_requests(), [Request::Post { to: printer, message: Ok(Value::Integer(42)) }]);
/// # Ok::<(), dunlin_scheme::Error>(())
/// ```
///
/// An engine runs one process at a time. For several at a time each worker has an engine of its own, of the
/// same program: [`Workers`] makes them.
pub struct Engine {
    machine: Machine,
}

/// Makes engines of a program. All have the same processes, definitions and channels; each process has its
/// turns at any of them, at one at a time.
///
/// ```
/// # use dunlin_scheme::{Engine, Host, Step, Value};
/// # #[derive(Clone)]
/// # struct Nothing;
/// # impl Host for Nothing {
/// #     fn ready(&mut self, _: u64) {}
/// #     fn next(&mut self) -> Option<u64> { None }
/// #     fn now_us(&mut self) -> u64 { 0 }
/// #     fn set_timer(&mut self, _: u64, _: u64) {}
/// #     fn cancel_timer(&mut self, _: u64, _: u64) {}
/// #     fn wait(&mut self) -> bool { false }
/// # }
/// let mut one = Engine::new(Nothing);
/// let mut other = one.workers().engine(Nothing);
/// let process = one.start("example", "(define x 42) x")?;
/// assert_eq!(other.turn(process), Step::Again);
/// assert_eq!(one.turn(process), Step::Ended(Ok(Value::Integer(42))));
/// # Ok::<(), dunlin_scheme::Error>(())
/// ```
#[derive(Clone)]
pub struct Workers(Arc<Home>);

impl Workers {
    /// Another engine of the program. Its host is named what its own calls wake, spawn or end.
    pub fn engine(&self, host: impl Host + Send + 'static) -> Engine {
        let mut machine = Machine::worker(self.0.clone());
        machine.set_host(Box::new(host));
        Engine { machine }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workers")
    }
}

impl Engine {
    /// An engine that has loaded the standard procedures.
    pub fn new(host: impl Host + Send + 'static) -> Self {
        let mut machine = Scheme::new().into_machine();
        machine.set_host(Box::new(host));
        machine.leave_turns_to_embedder();
        Self { machine }
    }

    /// What makes other engines of this program.
    pub fn workers(&self) -> Workers {
        Workers(self.machine.home())
    }

    /// The number of something outside, by a place of the embedder's: at most 2^54 of them.
    pub fn outside(place: u64) -> u64 {
        OUTSIDE | (place & (OUTSIDE - 1))
    }

    /// The place that a number outside was made of.
    pub fn outside_place(number: u64) -> Option<u64> {
        if is_outside(number) { Some(number ^ OUTSIDE) } else { None }
    }

    /// Uses the machine, and leaves what its program shares to the others.
    fn with<T>(&mut self, with: impl FnOnce(&mut Machine) -> T) -> T {
        self.machine.begin();
        let result = with(&mut self.machine);
        self.machine.rest();
        result
    }

    /// Makes a process that evaluates the forms of a text, one after the other. It can run at once.
    ///
    /// # Errors
    /// [`Error::Syntax`] for text that cannot be read, [`Error::TooManyProcesses`].
    pub fn start(&mut self, source_name: &str, text: &str) -> Result<u64, Error> {
        self.with(|machine| {
            let source_name: Arc<str> = source_name.into();
            let mut reader = Reader::new(text, &source_name);
            let mut script = Script { source_name: source_name.clone(), ..Script::default() };
            while let Some(form) = reader.next(&mut machine.commons.program.symbols)? {
                script.forms.push_back(form);
            }
            let process = machine.add_process()?;
            machine.commons.scripts.insert(process, script);
            Ok(process)
        })
    }

    /// Gives a process a turn of about 20 us; a primitive ends what it began. One that waits asks anew
    /// whether it still has to. One that waits for an outcome has its turn once that is there.
    ///
    /// What other engines do to the process meanwhile, it learns when it waits, or after the turn.
    pub fn turn(&mut self, process: u64) -> Step {
        self.with(|machine| machine.turn_of(process))
    }

    /// Whether the process has not ended.
    pub fn is_alive(&mut self, process: u64) -> bool {
        self.with(|machine| machine.is_alive(process))
    }

    /// What processes have asked of what is outside, in turns of this engine since this was called last, in
    /// the order in which they did.
    pub fn take_requests(&mut self) -> Vec<Request> {
        self.machine.take_requests()
    }

    /// Puts a message into the mailbox of a process. False if it has ended.
    ///
    /// # Errors
    /// [`ValueError`] for a value that no machine has.
    pub fn send(&mut self, to: u64, message: &Value) -> Result<bool, ValueError> {
        self.with(|machine| machine.send_value(to, message))
    }

    /// Raises an object in a process, where it waits for a message next, as the end of a process does that it
    /// is linked to: `object` if it is given and a machine can have it, or else an error of the kind `exit`
    /// with this message.
    pub fn raise(&mut self, to: u64, object: Option<&Value>, message: &str) {
        self.with(|machine| machine.raise_in(to, object, message));
    }

    /// Gives a process the outcome of its operation, which [`Step::Operating`] began; its next turn uses it.
    /// If the process has ended, the outcome comes back.
    pub fn complete(&mut self, process: u64, outcome: Outcome) -> Option<Outcome> {
        self.with(|machine| machine.complete(process, outcome))
    }

    /// Ends of channels that no process has any more, found by calls of this engine since this was called
    /// last. To drop one may wake others.
    pub fn take_released_ends(&mut self) -> Vec<End> {
        self.machine.take_released_ends()
    }

    /// Ends a process, which may not be in its turn at another engine: `killed` is raised in those that are
    /// linked to it. It has no further turn.
    pub fn kill(&mut self, process: u64) {
        self.with(|machine| {
            machine.commons.scripts.remove(&process);
            machine.kill_from_outside(process);
        });
    }

    /// Defines a global as this value.
    ///
    /// # Errors
    /// As those of [`Scheme::define`].
    pub fn define(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        self.with(|machine| machine.define_value(name, value))
    }

    /// Whether the program had printed something when the last call of this engine ended.
    pub fn has_output(&self) -> bool {
        self.machine.has_output()
    }

    /// What the program printed since this was called last, at any engine.
    pub fn take_output(&mut self) -> String {
        self.with(|machine| machine.take_output())
    }

    /// Limits the memory of live objects, for each process, and that of its mailbox.
    pub fn set_heap_limit(&mut self, bytes: usize) {
        self.with(|machine| machine.set_heap_limit(bytes / 8));
    }

    /// Limits the fuel that each process may use in a second: about 25,000,000 units are what a processor
    /// does. `None`, as in the beginning, is no limit. A process that has used its fuel pauses
    /// ([`Step::Paused`]); others go on. It may use the fuel of a tenth of a second in advance, and a turn.
    pub fn set_fuel_rate(&mut self, per_second: Option<NonZeroU64>) {
        self.with(|machine| machine.set_fuel_rate(per_second));
    }

    /// Limits how many processes there may be at once: 4,194,304 if this is not called.
    pub fn set_process_limit(&mut self, count: usize) {
        self.with(|machine| machine.set_process_limit(count));
    }
}

impl From<ProcessNumber> for Value {
    fn from(process: ProcessNumber) -> Self {
        Self::Process(process.0)
    }
}
