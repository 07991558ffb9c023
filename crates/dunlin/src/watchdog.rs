//! The watchdog of a running program: dev builds warn when every process waits for another, and SIGQUIT
//! prints all waits.
//!
//! It runs on the thread of the coarse clock ([`crate::time`]), so it works while all worker threads are
//! busy. A false alarm is worse than silence. It warns only if for 2 s
//! - no process was polled, and none is being polled ([`dunlin_core::waits::activity`] counts that in dev
//!   builds);
//! - no code outside of dunlin keeps the waker of a process: no timer (a deadline is one), socket, signal or
//!   `future(..)`;
//! - the runtime has no tasks but processes: so there is no node, whose peers could send something;
//! - the program has no threads but this one, the runtime's workers, the one that drives `main`, and idle
//!   ones of the pool for blocking calls: no blocking call, and no thread that may hold an end.

use std::collections::VecDeque;
use std::fmt::Write;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dunlin_core::waits::activity::{self, Activity};
use dunlin_core::waits::{self, Known, Pid, Wait};
use dunlin_sorted::SortedMap;
use tokio::runtime::Handle;

#[cfg(unix)]
use crate::blocking::pool::calls;
use crate::blocking::pool::idle_threads;

/// The variable that turns the watchdog off, or sets after how many seconds it suspects something.
pub(crate) const VARIABLE: &str = "DUNLIN_WATCHDOG";

const PATIENCE: Duration = Duration::from_secs(2);

/// After how many ticks a program that stands still is looked at again: what it may wait for, such as a
/// thread, ends without a poll.
const AGAIN: u32 = 32;

/// After how long a warning is due; `None` if the watchdog is off.
static SETTING: LazyLock<Option<Duration>> = LazyLock::new(|| setting(std::env::var(VARIABLE).ok().as_deref()));

fn setting(variable: Option<&str>) -> Option<Duration> {
    let Some(text) = variable.map(str::trim) else { return Some(PATIENCE) };
    if text == "off" {
        return None;
    }
    if let Ok(Ok(patience)) = text.parse().map(Duration::try_from_secs_f64) {
        return Some(patience);
    }
    print(format!("dunlin: the variable {VARIABLE} is {text:?}: expected \"off\", or a number of seconds\n"));
    Some(PATIENCE)
}

/// The runtimes of dunlin in which a `main` runs, with a number each.
static RUNTIMES: Mutex<Vec<(u64, Handle)>> = Mutex::new(Vec::new());

fn runtimes() -> MutexGuard<'static, Vec<(u64, Handle)>> {
    RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The watchdog looks at a runtime until this is dropped.
pub(crate) struct Watched(u64);

pub(crate) fn watch(runtime: &Handle) -> Watched {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut runtimes = runtimes();
    runtimes.push((number, runtime.clone()));
    #[cfg(unix)]
    signal::listen(true);
    Watched(number)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut runtimes = runtimes();
        runtimes.retain(|(number, _)| *number != self.0);
        #[cfg(unix)]
        signal::listen(!runtimes.is_empty());
    }
}

#[cfg(unix)]
mod signal {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, OnceLock};

    use super::*;

    #[derive(Default)]
    struct Flags {
        asked: Arc<AtomicBool>,
        /// The signal ends the program, as it does without dunlin.
        default: Arc<AtomicBool>,
    }

    static FLAGS: OnceLock<Flags> = OnceLock::new();

    fn register() -> Flags {
        let flags = Flags::default();
        let signal = signal_hook::consts::SIGQUIT;
        let default = signal_hook::flag::register_conditional_default(signal, flags.default.clone());
        let asked = default.and_then(|_| signal_hook::flag::register(signal, flags.asked.clone()));
        // If it fails, only this feature is missing.
        if let Err(error) = asked {
            print(format!("dunlin: no handler for SIGQUIT: {error}\n"));
        }
        flags
    }

    /// Sets whether the watchdog handles SIGQUIT.
    pub(super) fn listen(listen: bool) {
        if SETTING.is_some() {
            FLAGS.get_or_init(register).default.store(!listen, Ordering::Relaxed);
        }
    }

    pub(super) fn was_asked() -> bool {
        FLAGS.get().is_some_and(|flags| flags.asked.swap(false, Ordering::Relaxed))
    }
}

/// Texts that have not been printed; `None` while no thread prints.
static TEXTS: Mutex<Option<VecDeque<String>>> = Mutex::new(None);

/// How many texts may wait while stderr takes none.
const TEXTS_MAX: usize = 16;

/// Prints on stderr, in a thread that ends once all is printed: the clock must not wait for a full pipe. Text
/// that cannot be written is lost.
fn print(text: String) {
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(waiting) = &mut *texts {
        if waiting.len() < TEXTS_MAX {
            waiting.push_back(text);
        }
        return;
    }
    let thread = std::thread::Builder::new().name("dunlin-print".to_owned()).spawn(|| {
        loop {
            let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(text) = texts.as_mut().and_then(VecDeque::pop_front) else {
                *texts = None;
                return;
            };
            drop(texts);
            let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
        }
    });
    *texts = thread.is_ok().then(|| VecDeque::from([text]));
}

/// What the watchdog has seen.
pub(crate) struct Watchdog {
    last: Option<Activity>,
    /// For how many ticks it has been the same.
    still: u32,
    warned: bool,
}

impl Watchdog {
    pub(crate) const fn new() -> Self {
        Self { last: None, still: 0, warned: false }
    }

    /// Called once a `tick`. It counts ticks, not time: while the program is stopped, no tick passes.
    pub(crate) fn look(&mut self, tick: Duration) {
        #[cfg(unix)]
        if signal::was_asked() {
            print(all_waits());
        }
        let (Some(now), Some(patience)) = (activity::current(), *SETTING) else { return };
        if self.last != Some(now) || now.begun != now.ended {
            *self = Self { last: Some(now), ..Self::new() };
            return;
        }
        self.still = self.still.saturating_add(1);
        if self.warned || tick * self.still < patience || !self.still.is_multiple_of(AGAIN) {
            return;
        }
        if let Some(warning) = suspicion(now, patience) {
            self.warned = true;
            print(warning);
        }
    }
}

/// The warning for a program that has stood still since `activity`, for longer than `patience`, if there is
/// one.
fn suspicion(activity: Activity, patience: Duration) -> Option<String> {
    let runtime = match runtimes().as_slice() {
        [(_, runtime)] => runtime.metrics(),
        _ => return None,
    };
    // This thread, the one that drives `main`, and idle threads for blocking calls.
    let threads = runtime.num_workers() + 2 + idle_threads();
    if activity.foreign > 0 || runtime.num_alive_tasks() != activity.processes || self::threads() != Some(threads) {
        return None;
    }
    let waits = waits::snapshot();
    if waits.is_empty() || activity::current() != Some(activity) {
        return None;
    }
    let mut text = format!(
        "dunlin: suspected deadlock: for {patience:?} nothing has run, every process waits, and no timer, connection or thread could end a wait:\n"
    );
    tell(&mut text, waits, &waits::processes(), "does not wait in dunlin");
    let _ = writeln!(text, "  (a warning of dev builds; the variable {VARIABLE}=off turns it off)");
    Some(text)
}

/// How many threads this program has, where that is known.
fn threads() -> Option<usize> {
    if !cfg!(any(target_os = "linux", target_os = "android")) {
        return None;
    }
    std::fs::read_dir("/proc/self/task").ok().map(Iterator::count)
}

/// For SIGQUIT.
#[cfg(unix)]
fn all_waits() -> String {
    let (waits, processes) = (waits::snapshot(), waits::processes());
    let mut text = format!("dunlin: SIGQUIT: waits: {}\n", waits.len());
    tell(&mut text, waits, &processes, "runs, or waits outside dunlin");
    for call in calls() {
        let _ = writeln!(text, "  {call}");
    }
    text += "dunlin: end of the waits; the program goes on\n";
    text
}

/// Writes the waits by process, each followed by what the process is. A process without a wait gets `others`.
fn tell(text: &mut String, waits: Vec<Wait>, processes: &[Known], others: &str) {
    let mut by_process = SortedMap::<Pid, Vec<Wait>>::new();
    for wait in waits {
        by_process.get_or_default(wait.who).push(wait);
    }
    for known in processes.iter().filter(|known| known.count == 1) {
        by_process.get_or_default(known.first);
    }
    for (process, waits) in by_process {
        for wait in &waits {
            let _ = writeln!(text, "  {wait}");
        }
        let first = process.as_u64();
        let known = processes
            .iter()
            .find(|known| (0..u64::from(known.count)).contains(&first.wrapping_sub(known.first.as_u64())));
        let what = match known {
            None => "is the body of `main`, or code that is not a process".to_owned(),
            Some(Known { count: 1, name: Some(name), made, .. }) => format!("is {name}, started at {made}"),
            Some(Known { count: 1, made, .. }) => format!("was started at {made}"),
            Some(Known { made, .. }) => format!("is a branch of the par! at {made}"),
        };
        let others = if waits.is_empty() { format!(", and {others}") } else { String::new() };
        let _ = writeln!(text, "    {process} {what}{others}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_variable_is_off_or_seconds() {
        assert_eq!(setting(None), Some(PATIENCE));
        assert_eq!(setting(Some("off")), None);
        assert_eq!(setting(Some(" 0.1 ")), Some(Duration::from_millis(100)));
        for wrong in ["", "on", "-1", "inf"] {
            assert_eq!(setting(Some(wrong)), Some(PATIENCE), "{wrong}");
        }
    }
}
