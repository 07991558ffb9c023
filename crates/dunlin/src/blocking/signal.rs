//! A signal to the thread of a call that blocks in a system call. Linux only, and only where a call asks for
//! it.
//!
//! The signal's handler does nothing: it exists so that the system call ends with `EINTR`. A signal that
//! arrives before the system call has begun has no effect, so it is sent again until the call has left it. It
//! is sent under a lock that the call takes when it leaves, so no other code of that thread is ever
//! interrupted.

use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use libc::{SIGRTMAX, SIGRTMIN};

use super::pool::{Pool, this_thread};
use super::stop::Stop;
use crate::lock::lock;

/// Other programs use real-time signals below this one more often.
const ABOVE_MIN: i32 = 5;

/// How long until the signal is sent again, at first and at most.
const AGAIN: Duration = Duration::from_millis(1);
const AGAIN_MAX: Duration = Duration::from_millis(100);

static SIGNAL: OnceLock<Result<i32, i32>> = OnceLock::new();

/// Makes [`Stop::interrupting`] use this real-time signal, from `SIGRTMIN` to `SIGRTMAX`, instead of
/// `SIGRTMIN + 5`. Its handler is replaced, now and for good. Linux only.
///
/// # Errors
/// [`InvalidInput`](io::ErrorKind::InvalidInput), if it is not a real-time signal;
/// [`AlreadyExists`](io::ErrorKind::AlreadyExists), if another signal is in use. Other errors are the
/// system's.
///
/// # Examples
/// ```
/// dunlin::blocking::set_interrupt_signal(40).unwrap();
/// assert!(dunlin::blocking::set_interrupt_signal(9).is_err());
/// ```
pub fn set_interrupt_signal(signal: i32) -> io::Result<()> {
    if !(SIGRTMIN()..=SIGRTMAX()).contains(&signal) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{signal} is not a real-time signal")));
    }
    match signal_or(signal)? {
        installed if installed == signal => Ok(()),
        other => Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("signal {other} is in use already"))),
    }
}

/// The signal in use, which is this one if none was.
fn signal_or(signal: i32) -> io::Result<i32> {
    SIGNAL.get_or_init(|| install(signal).map(|()| signal)).map_err(io::Error::from_raw_os_error)
}

extern "C" fn nothing(_: i32) {}

/// Makes the signal do nothing except end the system call that it interrupts.
fn install(signal: i32) -> Result<(), i32> {
    // SAFETY: zeros are a `sigaction` with an empty mask and no flags, so without SA_RESTART.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as libc::sighandler_t;
    // SAFETY: the handler does nothing, so it may run at any moment. The system copies `action`.
    match unsafe { libc::sigaction(signal, &raw const action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)),
    }
}

/// Lets the signal reach this thread, which may have been started with a mask of the program's.
fn unblock(signal: i32) -> io::Result<()> {
    // SAFETY: zeros are a set of signals, which the next two calls fill.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` lives on this stack, and all three calls only read or write it.
    let error = unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

fn kill(thread: &JoinHandle<()>, signal: i32) {
    // SAFETY: a thread that has a handle is neither joined nor detached, so its number is its own, also after
    // its end. The signal has a handler that does nothing.
    let _ = unsafe { libc::pthread_kill(thread.as_pthread_t(), signal) };
}

impl Stop {
    /// Runs `raw`, one system call that may block, and interrupts it by a signal if the call is asked to
    /// stop. Then this returns [`Interrupted`](io::ErrorKind::Interrupted), and the call counts as having
    /// seen the request. Linux only.
    ///
    /// This is the last resort, for system calls on which nothing else has an effect: a read or write of a
    /// pipe or terminal that must stay blocking, a lock of a file, the opening of a FIFO, a wait for a child.
    /// It needs plain system calls: functions of the standard library that retry after `EINTR` (`read_exact`,
    /// `File::open`, `accept`) block on. It does not end a read from a disk or a network file system.
    ///
    /// A system call that any other signal interrupts is repeated. From the first use of this function on,
    /// the program has a handler for the signal [in use](set_interrupt_signal).
    ///
    /// # Errors
    /// Those of `raw`. [`Unsupported`](io::ErrorKind::Unsupported), if this is not the call's own thread.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use std::io::{ErrorKind, Read};
    ///
    /// # dunlin::block_on(async {
    /// let (mut pipe, _writer) = std::io::pipe().unwrap();
    /// let reading = blocking(move |stop| {
    ///     let mut piece = [0; 4096];
    ///     stop.interrupting(|| pipe.read(&mut piece)) // a single read is not repeated
    /// });
    /// # while !dunlin::blocking::calls().iter().any(|call| call.pid == reading.pid()
    /// #     && call.state == dunlin::blocking::CallState::Running) {}
    /// let Ended::Terminated(Err(error)) = reading.terminate().await else { panic!() };
    /// assert_eq!(error.kind(), ErrorKind::Interrupted);
    /// # });
    /// ```
    pub fn interrupting<T>(&self, mut raw: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        let Some(number) = this_thread() else {
            let text = "only the thread of the call itself can be interrupted";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let signal = signal_or(SIGRTMIN() + ABOVE_MIN)?;
        unblock(signal)?;
        let inside = Arc::new(Raw {
            target: Mutex::new(Some(Target { pool: Pool::current(), number, signal })),
            left: Condvar::new(),
        });
        let Some(_leaves) = self.enter_raw(&inside) else { return Err(io::ErrorKind::Interrupted.into()) };
        loop {
            match raw() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !self.asked() => {}
                done => return done,
            }
        }
    }

    /// From now on a stop request interrupts. `None`: the request has come before.
    fn enter_raw<'a>(&'a self, inside: &'a Arc<Raw>) -> Option<Leaves<'a>> {
        let entered = self.with_interrupt(|asked, place| {
            if asked {
                return None;
            }
            let inside = inside.clone();
            Some(place.replace(Box::new(move || inside.begin())))
        });
        entered.map(|outer| Leaves { stop: self, inside, outer })
    }
}

/// The call is in its system call, until this is dropped.
struct Leaves<'a> {
    stop: &'a Stop,
    inside: &'a Raw,
    /// The interrupt that was set before, when a system call is made within another one.
    outer: Option<Box<dyn Fn() + Send>>,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        drop(lock(&self.inside.target).take());
        self.inside.left.notify_all();
        let outer = self.outer.take();
        let gone = self.stop.with_interrupt(|_, place| std::mem::replace(place, outer));
        drop(gone);
    }
}

/// A system call in which a thread may be.
struct Raw {
    /// `None` once the thread has left it.
    target: Mutex<Option<Target>>,
    left: Condvar,
}

struct Target {
    pool: Arc<Pool>,
    number: usize,
    signal: i32,
}

impl Raw {
    /// Interrupts the thread until it has left.
    fn begin(self: &Arc<Self>) {
        let inside = self.clone();
        let sends = std::thread::Builder::new().name("dunlin-signal".to_owned()).spawn(move || inside.repeat());
        if sends.is_err() {
            self.send(lock(&self.target).as_ref());
        }
    }

    fn repeat(&self) {
        let mut again = AGAIN;
        let mut target = lock(&self.target);
        while target.is_some() {
            self.send(target.as_ref());
            target = self.left.wait_timeout(target, again).unwrap_or_else(PoisonError::into_inner).0;
            again = (2 * again).min(AGAIN_MAX);
        }
    }

    /// The caller holds the lock that the thread takes when it leaves.
    fn send(&self, target: Option<&Target>) {
        if let Some(Target { pool, number, signal }) = target {
            // A thread that has just been started is not known yet: next time.
            pool.with_thread(*number, |thread| kill(thread, *signal));
        }
    }
}
