//! The machine that the processes of a program share, and how they use it.
//!
//! A process has the machine for a turn, under a lock. What the turn caused is carried out afterwards, in the
//! task of that process: wakes, messages to mailboxes of Rust, links. No code of users runs under the lock.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::{Instant, Pid};
use dunlin_scheme::{End, Engine, Error, Host, Outcome, ProcessNumber, Request, Step, Value, ValueError};

use crate::outside::{Directory, Outside, Post};

/// A machine, and the tasks of its processes.
pub(crate) struct Shared {
    state: Mutex<State>,
    console: Mutex<Console>,
    dropped: AtomicU64,
}

/// What takes the text that a program prints.
type Console = Box<dyn FnMut(&str) + Send>;

struct State {
    engine: Engine,
    ready: Ready,
    /// The processes that have a task, or are to have one.
    tasks: HashMap<u64, Task>,
    directory: Directory,
}

/// The task of a process.
#[derive(Default)]
struct Task {
    /// It has been woken since its last turn began.
    is_ready: bool,
    waker: Option<Waker>,
    /// `None` before its first turn, and for one that runs outside of every process.
    pid: Option<Pid>,
}

/// Processes that can run, and the time.
#[derive(Clone)]
struct Ready {
    numbers: Arc<Mutex<Vec<u64>>>,
    began: Instant,
    began_us: u64,
}

impl Ready {
    fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { numbers: Arc::default(), began: Instant::now(), began_us: since_epoch.as_micros() as u64 }
    }

    /// When it is this time of the machine's.
    fn instant(&self, at_us: u64) -> Instant {
        self.began + Duration::from_micros(at_us.saturating_sub(self.began_us))
    }
}

impl Host for Ready {
    fn ready(&mut self, process: u64) {
        lock(&self.numbers).push(process);
    }

    fn now_us(&mut self) -> u64 {
        self.began_us + self.began.elapsed().as_micros() as u64
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

/// What is to be done once the machine is not locked.
#[derive(Default)]
#[must_use]
struct Effects {
    wakers: Vec<Waker>,
    /// Only a turn spawns.
    spawned: Vec<u64>,
    requests: Vec<Request>,
    /// Ends of channels that are dropped then: that may wake tasks.
    ends: Vec<End>,
}

pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn settle(&mut self) -> Effects {
        let (requests, ends) = (self.engine.take_requests(), self.engine.take_released_ends());
        let mut effects = Effects { requests, ends, ..Effects::default() };
        let numbers = std::mem::take(&mut *lock(&self.ready.numbers));
        for number in numbers {
            if let Some(task) = self.tasks.get_mut(&number) {
                task.is_ready = true;
                effects.wakers.extend(task.waker.take());
            } else if self.engine.is_alive(number) {
                self.tasks.insert(number, Task::default());
                effects.spawned.push(number);
            }
        }
        effects
    }

    /// The process of dunlin's that has this number.
    fn pid(&self, number: u64) -> Option<Pid> {
        match self.directory.find(number) {
            Some(Outside::Process(pid)) => Some(pid),
            Some(Outside::Mailbox(_)) => None,
            None => self.tasks.get(&number)?.pid,
        }
    }
}

impl Shared {
    pub(crate) fn new() -> Self {
        let ready = Ready::new();
        let engine = Engine::new(ready.clone());
        let state = State { engine, ready, tasks: HashMap::new(), directory: Directory::default() };
        Self { state: Mutex::new(state), console: Mutex::new(Box::new(|_| {})), dropped: AtomicU64::new(0) }
    }

    /// Makes a process that evaluates a text, and that has a task from now on.
    ///
    /// # Errors
    /// As those of [`Engine::start`].
    pub(crate) fn start(&self, source_name: &str, text: &str) -> Result<u64, Error> {
        let mut state = lock(&self.state);
        let number = state.engine.start(source_name, text)?;
        state.tasks.insert(number, Task::default());
        Ok(number)
    }

    pub(crate) fn add_mailbox(&self, mailbox: Arc<dyn Post>) -> ProcessNumber {
        lock(&self.state).directory.add_mailbox(mailbox)
    }

    pub(crate) fn number(&self, pid: Pid) -> ProcessNumber {
        lock(&self.state).directory.number(pid)
    }

    /// Uses the engine for what wakes no process.
    pub(crate) fn with_engine<T>(&self, with: impl FnOnce(&mut Engine) -> T) -> T {
        with(&mut lock(&self.state).engine)
    }

    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many processes have not ended.
    pub(crate) fn processes(&self) -> usize {
        lock(&self.state).tasks.len()
    }

    pub(crate) fn set_console(&self, console: Console) {
        *lock(&self.console) = console;
    }

    /// Sends a message to a process, or to what is outside. False if the process has ended.
    pub(crate) fn send(&self, to: u64, message: Value) -> Result<bool, ValueError> {
        let (sent, effects) = {
            let mut state = lock(&self.state);
            if let Some(outside) = state.directory.find(to) {
                drop(state);
                self.post(to, Some(outside), Ok(message));
                return Ok(true);
            }
            let sent = state.engine.send(to, &message);
            (sent, state.settle())
        };
        self.carry_out(effects);
        sent
    }

    /// The number of a process is now that of the process that polls it.
    pub(crate) fn begin(&self, number: u64) {
        if let Some(task) = lock(&self.state).tasks.get_mut(&number) {
            task.pid = Pid::current();
        }
    }

    /// Gives a process a turn. It may have spawned processes, which need a task each.
    pub(crate) fn turn(&self, number: u64) -> (Step, Vec<u64>) {
        let (step, mut effects, printed) = {
            let mut state = lock(&self.state);
            if let Some(task) = state.tasks.get_mut(&number) {
                task.is_ready = false;
            }
            let step = state.engine.turn(number);
            let output = state.engine.take_output();
            // Locked before another turn can print.
            let printed = if output.is_empty() { None } else { Some((output, lock(&self.console))) };
            (step, state.settle(), printed)
        };
        if let Some((output, mut console)) = printed {
            console(&output);
        }
        let spawned = std::mem::take(&mut effects.spawned);
        self.carry_out(effects);
        (step, spawned)
    }

    /// Whether the process has been woken since its last turn began.
    pub(crate) fn poll_ready(&self, number: u64, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.state);
        let Some(task) = state.tasks.get_mut(&number) else { return Poll::Ready(()) };
        if task.is_ready {
            return Poll::Ready(());
        }
        task.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// When it is this time of the machine's.
    pub(crate) fn instant(&self, at_us: u64) -> Instant {
        lock(&self.state).ready.instant(at_us)
    }

    /// Raises an object, or an error with this text, in a process.
    pub(crate) fn raise(&self, number: u64, object: Option<&Value>, text: &str) {
        let effects = {
            let mut state = lock(&self.state);
            state.engine.raise(number, object, text);
            state.settle()
        };
        self.carry_out(effects);
    }

    /// The task of a process is gone; if the process has not ended, it ends now.
    pub(crate) fn end(&self, number: u64) {
        let effects = {
            let mut state = lock(&self.state);
            state.engine.kill(number);
            let effects = state.settle();
            state.tasks.remove(&number);
            effects
        };
        self.carry_out(effects);
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
                    let outside = lock(&self.state).directory.find(to);
                    self.post(to, outside, message);
                }
                Request::Link { source, target } => self.link(source, target),
                Request::Kill(number) => {
                    let pid = lock(&self.state).pid(number);
                    pid.map(Pid::kill);
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
        let (pids, is_own) = {
            let state = lock(&self.state);
            ((state.pid(source), state.pid(target)), state.tasks.contains_key(&target))
        };
        let failed = match pids {
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
