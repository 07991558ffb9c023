//! Ends of evaluations that another thread asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Interrupts the evaluation that a machine runs, from another thread: for Ctrl-C.
///
/// The evaluation fails with [`Error::Interrupted`](crate::Error::Interrupted) at the end of the turn, after
/// about 20 us; a primitive ends what it began first. If the main process waits, it fails at once. Other
/// processes stay, and run in the next evaluation. Without an evaluation this does nothing.
///
/// ```
/// use dunlin_scheme::{Error, Scheme};
///
/// let mut scheme = Scheme::new();
/// let interrupter = scheme.interrupter();
/// scheme.set_console(move |_| interrupter.interrupt());
/// let ended = scheme.eval("example", "(define (forever) (forever)) (display 1) (forever)");
/// assert_eq!(ended, Err(Error::Interrupted));
/// assert_eq!(scheme.eval("example", "(+ 1 2)")?, "3");
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Interrupter {
    is_asked: Arc<AtomicBool>,
    /// The machine's: it is parked where all processes wait for a timer.
    thread: Thread,
}

impl Interrupter {
    /// Interrupts the evaluation.
    pub fn interrupt(&self) {
        self.is_asked.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The machine's side of its interrupters.
#[derive(Default)]
pub(crate) struct Interrupts {
    is_asked: Arc<AtomicBool>,
}

impl Interrupts {
    /// An interrupter of the machine, which stays on this thread.
    pub(crate) fn interrupter(&self) -> Interrupter {
        Interrupter { is_asked: self.is_asked.clone(), thread: std::thread::current() }
    }

    /// Whether an interrupter asked since this was called last.
    pub(crate) fn take(&self) -> bool {
        // Most turns end without one: only a load, no write to memory that threads share.
        self.is_asked.load(Ordering::Relaxed) && self.is_asked.swap(false, Ordering::Acquire)
    }
}
