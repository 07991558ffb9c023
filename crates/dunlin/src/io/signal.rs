//! Signals by which a user or the system asks the program to end.
//!
//! # Examples
//! A server that Ctrl-C and `kill` end:
//! ```no_run
//! use dunlin::io::{signal, tcp};
//! use dunlin::prelude::*;
//!
//! #[dunlin::main]
//! async fn main() -> Result {
//!     let mut listener = tcp::listen("127.0.0.1:7000").await?;
//!     let mut interrupt = signal::ctrl_c()?; // before the loop
//!     loop {
//!         alt! { biased;
//!             _ = interrupt.recv() => break,
//!             connection = listener.accept() => println!("a client: {}", connection?.peer()?),
//!         }
//!     }
//!     println!("cleaning up");
//!     Ok(())
//! }
//! ```

use std::io;
use std::task::{Context, Poll};

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

use super::operation::{Action, IoOperation};

#[cfg(unix)]
type Source = tokio::signal::unix::Signal;
#[cfg(windows)]
type Source = tokio::signal::windows::CtrlC;

/// Registers for Ctrl-C: `SIGINT` on Unix.
///
/// From now on Ctrl-C does not end the program, also when the value has been dropped. Several values receive
/// the same signals.
///
/// # Errors
/// Those of the system.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::signal;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// # let (mut tx, mut work) = channel();
/// # drop(spawn(async move { tx.send("krill").await }));
/// let mut interrupt = signal::ctrl_c()?;
/// alt! { biased;
///     _ = interrupt.recv() => println!("interrupted"),
///     job = work.recv() => println!("working on {}", job?),
/// }
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub fn ctrl_c() -> io::Result<Signal> {
    #[cfg(unix)]
    return signal(SignalKind::interrupt()).map(Signal);
    #[cfg(windows)]
    tokio::signal::windows::ctrl_c().map(Signal)
}

/// Registers for `SIGTERM`, which `kill` and service managers send: as [`ctrl_c`]. Unix only.
///
/// # Errors
/// Those of the system.
///
/// # Panics
/// Outside a tokio runtime.
///
/// # Examples
/// ```
/// use dunlin::io::signal;
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let mut terminate = signal::terminate()?;
/// let none = terminate.recv().within(Duration::from_millis(1)).await;
/// assert_eq!(none.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[cfg(unix)]
pub fn terminate() -> io::Result<Signal> {
    signal(SignalKind::terminate()).map(Signal)
}

/// A signal for which the program is registered.
#[derive(Debug)]
pub struct Signal(Source);

impl Signal {
    /// Waits for the next signal. Signals that arrive while nothing waits are kept, as one.
    ///
    /// # Errors
    /// [`TimedOut`](io::ErrorKind::TimedOut) at a deadline.
    ///
    /// # Cancel safety
    /// Dropped, not chosen, or after its deadline, it has taken no signal.
    #[track_caller]
    pub fn recv(&mut self) -> Recv<'_> {
        IoOperation::new(Receiving(&mut self.0))
    }
}

/// The operation of [`Signal::recv`].
pub type Recv<'a> = IoOperation<Receiving<'a>>;

#[doc(hidden)]
#[derive(Debug)]
pub struct Receiving<'a>(&'a mut Source);

impl Action for Receiving<'_> {
    type Output = ();

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // `None` would mean that the registration has ended, which lasts as long as the program.
        self.0.poll_recv(cx).map(|signal| signal.ok_or_else(|| io::ErrorKind::BrokenPipe.into()))
    }
}
