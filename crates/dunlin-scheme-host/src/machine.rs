//! The machines of a program, and how its processes use them.
//!
//! A process has a machine of its program for a turn: as many machines as workers give turns at once. What
//! the turn caused is carried out afterwards, in the task of that process: wakes, messages to mailboxes of
//! Rust, links. No code of users runs while a machine uses what the machines share.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::{Instant, Pid};
use dunlin_scheme::{
    End, Engine, Error, Host, Outcome, ProcessNumber, Request, Step, Value, ValueError, Workers as Engines,
};

use crate::outside::{Directory, Outside, Post};

/// The machines of a program, and the tasks of its processes.
pub(crate) struct Shared {
    engines: Engines,
    /// Machines that no worker uses; the one that was used last is the next.
    idle: Mutex<Vec<Machine>>,
    /// The processes that have a task, or are to have one.
    tasks: Mutex<HashMap<u64, Arc<Task>>>,
    directory: Mutex<Directory>,
    clock: Clock,
    console: Mutex<Console>,
    dropped: AtomicU64,
}

/// What takes the text that a program prints.
type Console = Box<dyn FnMut(&str) + Send>;

/// The task of a process.
#[derive(Default)]
pub(crate) struct Task {
    /// It has been woken since its last turn began.
    is_ready: AtomicBool,
    waker: Mutex<Option<Waker>>,
    /// None before its first turn, and for one that runs outside of every process.
    pid: OnceLock<Pid>,
}

impl Task {
    fn begin_turn(&self) {
        self.is_ready.store(false, Ordering::Release);
    }

    fn ready(&self) -> Option<Waker> {
        // Before the lock: a poll that has it sees this, or leaves its waker.
        self.is_ready.store(true, Ordering::Release);
        lock(&self.waker).take()
    }

    /// Whether it has been woken since its last turn began.
    pub(crate) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let mut waker = lock(&self.waker);
        if self.is_ready.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        *waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Its process is now the one that polls it.
    pub(crate) fn begin(&self) {
        if let Some(pid) = Pid::current() {
            let _ = self.pid.set(pid);
        }
    }
}

/// The time of a program.
#[derive(Clone, Copy)]
struct Clock {
    began: Instant,
    began_us: u64,
}

impl Clock {
    fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_us: since_epoch.as_micros() as u64 }
    }

    fn now_us(self) -> u64 {
        self.began_us + self.began.elapsed().as_micros() as u64
    }

    fn instant(self, at_us: u64) -> Instant {
        self.began + Duration::from_micros(at_us.saturating_sub(self.began_us))
    }
}

/// Processes that a machine has woken, spawned or ended, and the time.
#[derive(Clone)]
struct Ready {
    numbers: Arc<Mutex<Vec<u64>>>,
    clock: Clock,
}

impl Host for Ready {
    fn ready(&mut self, process: u64) {
        lock(&self.numbers).push(process);
    }

    fn now_us(&mut self) -> u64 {
        self.clock.now_us()
    }

    // The engine asks for no more: tasks have their own order, and timers of their own.
    fn next(&mut self) -> Option<u64> {
        None
    }

    fn set_timer(&mut self, _: u64, _: u64) {}

    fn cancel_timer(&mut self, _: u64, _: u64) {}

    fn wait(&mut self) -> bool {
        false
    }
}

/// A machine, which one thread uses at a time.
struct Machine {
    engine: Engine,
    ready: Ready,
}

/// A process that a turn has spawned, and that needs a task.
pub(crate) type Spawned = (u64, Arc<Task>);

/// What is to be done once no machine is in use.
#[derive(Default)]
#[must_use]
struct Effects {
    wakers: Vec<Waker>,
    /// Only a turn spawns.
    spawned: Vec<Spawned>,
    requests: Vec<Request>,
    /// Ends of channels that are dropped then: that may wake tasks.
    ends: Vec<End>,
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new() -> Self {
        let clock = Clock::new();
        let ready = Ready { numbers: Arc::default(), clock };
        let engine = Engine::new(ready.clone());
        Self {
            engines: engine.workers(),
            idle: Mutex::new(vec![Machine { engine, ready }]),
            tasks: Mutex::default(),
            directory: Mutex::default(),
            clock,
            console: Mutex::new(Box::new(|_| {})),
            dropped: AtomicU64::new(0),
        }
    }

    /// Uses a machine: another one if all are in use.
    fn with<T>(&self, with: impl FnOnce(&mut Machine) -> T) -> T {
        let idle = lock(&self.idle).pop();
        let mut machine = idle.unwrap_or_else(|| {
            let ready = Ready { numbers: Arc::default(), clock: self.clock };
            Machine { engine: self.engines.engine(ready.clone()), ready }
        });
        let result = with(&mut machine);
        lock(&self.idle).push(machine);
        result
    }

    /// Uses a machine, and carries out what that caused.
    fn with_effects<T>(&self, with: impl FnOnce(&mut Engine) -> T) -> T {
        let (result, effects) = self.with(|machine| {
            let result = with(&mut machine.engine);
            (result, self.settle(machine))
        });
        self.carry_out(effects);
        result
    }

    /// Uses the engine for what wakes no process.
    pub(crate) fn with_engine<T>(&self, with: impl FnOnce(&mut Engine) -> T) -> T {
        self.with(|machine| with(&mut machine.engine))
    }

    /// What the use of a machine has caused.
    fn settle(&self, machine: &mut Machine) -> Effects {
        let engine = &mut machine.engine;
        let (requests, ends) = (engine.take_requests(), engine.take_released_ends());
        let mut effects = Effects { requests, ends, ..Effects::default() };
        let mut numbers = std::mem::take(&mut *lock(&machine.ready.numbers));
        if numbers.is_empty() {
            return effects;
        }
        let tasks = lock(&self.tasks);
        numbers.retain(|number| {
            let task = tasks.get(number);
            effects.wakers.extend(task.and_then(|task| task.ready()));
            task.is_none()
        });
        drop(tasks);
        for number in numbers {
            if engine.is_alive(number) {
                effects.spawned.push((number, self.add_task(number)));
            } else {
                // Its task has ended, or it was killed before it had one: then this forgets why.
                engine.kill(number);
            }
        }
        effects
    }

    fn add_task(&self, number: u64) -> Arc<Task> {
        let task = Arc::<Task>::default();
        lock(&self.tasks).insert(number, task.clone());
        task
    }

    /// The process of dunlin's that has this number.
    fn pid(&self, number: u64) -> Option<Pid> {
        match lock(&self.directory).find(number) {
            Some(Outside::Process(pid)) => Some(pid),
            Some(Outside::Mailbox(_)) => None,
            None => lock(&self.tasks).get(&number)?.pid.get().copied(),
        }
    }

    /// Makes a process that evaluates a text, and that has a task from now on.
    ///
    /// # Errors
    /// As those of [`Engine::start`].
    pub(crate) fn start(&self, source_name: &str, text: &str) -> Result<Spawned, Error> {
        let number = self.with_engine(|engine| engine.start(source_name, text))?;
        Ok((number, self.add_task(number)))
    }

    pub(crate) fn add_mailbox(&self, mailbox: Arc<dyn Post>) -> ProcessNumber {
        lock(&self.directory).add_mailbox(mailbox)
    }

    pub(crate) fn number(&self, pid: Pid) -> ProcessNumber {
        lock(&self.directory).number(pid)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many processes have not ended.
    pub(crate) fn processes(&self) -> usize {
        lock(&self.tasks).len()
    }

    pub(crate) fn set_console(&self, console: Console) {
        *lock(&self.console) = console;
    }

    /// Sends a message to a process, or to what is outside. False if the process has ended.
    pub(crate) fn send(&self, to: u64, message: Value) -> Result<bool, ValueError> {
        let outside = lock(&self.directory).find(to);
        if outside.is_some() {
            self.post(to, outside, Ok(message));
            return Ok(true);
        }
        self.with_effects(|engine| engine.send(to, &message))
    }

    /// Gives a process a turn. It may have spawned processes, which need a task each.
    pub(crate) fn turn(&self, number: u64, task: &Task) -> (Step, Vec<Spawned>) {
        task.begin_turn();
        let (step, mut effects) = self.with(|machine| {
            let step = machine.engine.turn(number);
            if machine.engine.has_output() {
                self.print(&mut machine.engine);
            }
            (step, self.settle(machine))
        });
        let spawned = std::mem::take(&mut effects.spawned);
        self.carry_out(effects);
        (step, spawned)
    }

    fn print(&self, engine: &mut Engine) {
        // Locked first: what was printed first is taken first.
        let mut console = lock(&self.console);
        let output = engine.take_output();
        if !output.is_empty() {
            console(&output);
        }
    }

    /// When it is this time of the machine's.
    pub(crate) fn instant(&self, at_us: u64) -> Instant {
        self.clock.instant(at_us)
    }

    /// Raises an object, or an error with this text, in a process.
    pub(crate) fn raise(&self, number: u64, object: Option<&Value>, text: &str) {
        self.with_effects(|engine| engine.raise(number, object, text));
    }

    /// The task of a process is gone; if the process has not ended, it ends now.
    pub(crate) fn end(&self, number: u64) {
        self.with_effects(|engine| engine.kill(number));
        lock(&self.tasks).remove(&number);
    }

    /// Stores the outcome of what a process asked of channels.
    pub(crate) fn complete(&self, number: u64, outcome: Outcome) {
        // That of a process that has ended is dropped here, where nothing is locked.
        drop(self.with_engine(|engine| engine.complete(number, outcome)));
    }

    fn carry_out(&self, effects: Effects) {
        drop(effects.ends);
        effects.wakers.into_iter().for_each(Waker::wake);
        for request in effects.requests {
            match request {
                Request::Post { to, message } => {
                    let outside = lock(&self.directory).find(to);
                    self.post(to, outside, message);
                }
                Request::Link { source, target } => self.link(source, target),
                Request::Kill(number) => {
                    self.pid(number).map(Pid::kill);
                }
                _ => {}
            }
        }
    }

    fn post(&self, to: u64, outside: Option<Outside>, message: Result<Value, ValueError>) {
        let refused = match (outside, message) {
            (Some(Outside::Mailbox(mailbox)), Ok(message)) => mailbox.post(message).err(),
            (Some(Outside::Process(pid)), Ok(_)) => Some(format!("process {pid} has no mailbox for Scheme")),
            (Some(_), Err(error)) => Some(error.to_string()),
            (None, _) => Some("nothing has this number".to_owned()),
        };
        if let Some(why) = refused {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // A process that sends what does not fit does so often: the log grows with its logarithm.
            if dropped.is_power_of_two() {
                tracing::warn!(to, dropped, "a message of a Scheme process was dropped: {why}");
            }
        }
    }

    /// Makes the exit of one process end the other.
    fn link(&self, source: u64, target: u64) {
        let is_own = lock(&self.tasks).contains_key(&target);
        let failed = match (self.pid(source), self.pid(target)) {
            (Some(source), Some(target)) => dunlin::link(source, target).err().map(|error| error.to_string()),
            _ => Some("a link needs two processes: a mailbox is none, nor is code outside of a process".to_owned()),
        };
        match failed {
            Some(text) if is_own => self.raise(target, None, &text),
            Some(text) => tracing::warn!(source, target, "no link: {text}"),
            None => {}
        }
    }
}
