//! The child's side of a supervision.

use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin_core::__rt::{ChoiceCx, Look};

use super::notice::Notice;
use crate::{Branch, Receiver, Receiving, RecvError, Sender};

/// What a supervised process gets from its supervisor: the request to shut down, and the word that it has
/// started.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::supervisor::{Child, Supervised, Supervisor};
///
/// async fn tick(ticks: &mut Sender<u64>, mut supervised: Supervised) -> Result {
///     supervised.ready(); // the children behind it start now
///     for n in 0.. {
///         alt! {
///             _ = supervised.requested() => break,
///             sent = ticks.send(n) => sent?,
///         }
///     }
///     Ok(())
/// }
/// # dunlin::block_on(async {
/// let (ticks, mut clock) = channel();
/// let ticker = Child::supervised("ticker", ticks, tick).start_within(Duration::from_secs(1));
/// let tree = Supervisor::one_for_one().with(ticker).spawn();
/// assert_eq!(clock.recv().await, Ok(0));
/// tree.shutdown();
/// tree.await??;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Supervised {
    /// Its sender is dropped as the request: so it stays requested.
    shutdown: Receiver<()>,
    ready: Option<Notice>,
}

impl Supervised {
    pub(super) fn new(shutdown: Receiver<()>, ready: Notice) -> Self {
        Self { shutdown, ready: Some(ready) }
    }

    /// For a process without a supervisor: shutdown is requested when the sender is dropped.
    pub(in crate::process) fn alone() -> (Sender<()>, Self) {
        let (request, shutdown) = crate::channel();
        (request, Self { shutdown, ready: None })
    }

    /// Tells the supervisor that the child has started. A child with a
    /// [deadline for its start](super::Child::start_within) has to; for others, and when called again, it has
    /// no effect.
    pub fn ready(&mut self) {
        if let Some(ready) = self.ready.take() {
            ready.post();
        }
    }

    /// Waits until the supervisor requests the shutdown of the child. Then it is ready at once, each time.
    ///
    /// The child has its [deadline](super::Child::shutdown_within) to return. After that it is cancelled.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing.
    pub fn requested(&mut self) -> Requested<'_> {
        Requested { shutdown: self.shutdown.recv() }
    }
}

/// The operation of [`Supervised::requested`].
#[derive(Debug)]
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Requested<'a> {
    shutdown: Receiving<'a, ()>,
}

impl Future for Requested<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.shutdown).poll(cx).map(drop::<Result<(), RecvError>>)
    }
}

impl Branch for Requested<'_> {
    type Output = ();

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        Pin::new(&mut self.shutdown).poll_branch(cx, choice).map(drop::<Result<(), RecvError>>)
    }

    fn look(&self) -> Look {
        self.shutdown.look()
    }

    fn chosen(&self, turn: u32) {
        self.shutdown.chosen(turn);
    }
}
