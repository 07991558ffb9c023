//! Time: deadlines on operations, sleeping, and the coarse clock of the wait records.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_core::__rt::ChoiceCx;
use dunlin_core::waits::{Doing, Pid, Watch};
use dunlin_core::{Branch, Operation, Until};

use crate::world::{self, Timer};

/// A point in time: tokio's, so that a paused test clock is respected.
pub type Instant = tokio::time::Instant;

/// Deadlines for operations, and their blocking form.
pub trait Deadline: Operation {
    /// Does this operation for at most `patience`: then it ends with a timeout error that tells the truth, and a send has its
    /// value back.
    ///
    /// A patience of zero still gives a receiver that is already waiting the chance to take the value.
    ///
    /// # Panics
    /// When polled outside a tokio runtime with time.
    ///
    /// # Cancel safety
    /// As the operation's own.
    ///
    /// # Waits
    /// As the operation's own: the deadline has no line in the [wait records](crate::waits) beside it.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (mut tx, _rx) = channel();
    /// match tx.send("krill").within(Duration::from_millis(1)).await {
    ///     Err(SendError::NotTaken { value, why: Why::TimedOut }) => assert_eq!(value, "krill"),
    ///     other => panic!("{other:?}"),
    /// }
    /// # });
    /// ```
    fn within(self, patience: Duration) -> Until<Self, Sleep> {
        self.until(Sleep { watched: None, ..sleep(patience) })
    }

    /// Does this operation until `instant`: as [`within`](Self::within).
    fn by(self, instant: Instant) -> Until<Self, Sleep> {
        self.until(Sleep { watched: None, ..sleep_until(instant) })
    }

    /// Does this operation, blocking the calling thread: for threads outside the runtime, and the bodies of blocking calls.
    ///
    /// # Panics
    /// Within async code: it would hold up all processes that its thread drives.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// let (mut tx, mut rx) = channel();
    /// let thread = std::thread::spawn(move || tx.send("krill").wait());
    /// assert_eq!(rx.recv().wait(), Ok("krill"));
    /// assert_eq!(thread.join().unwrap(), Ok(()));
    /// ```
    fn wait(self) -> Self::Output {
        crate::runtime::block_thread_on(self)
    }
}

impl<O: Operation> Deadline for O {}

pin_project_lite::pin_project! {
    /// A timer: a future, and a branch of a choice. Made by [`sleep`] and [`sleep_until`].
    #[must_use = "a timer does nothing until it is awaited or chosen over"]
    pub struct Sleep {
        when: When,
        // Made when first polled: an operation that is ready at once needs no timer.
        #[pin]
        timer: Option<Timer>,
        // Where it was made, and its wait record; none for a deadline, whose operation has one.
        watched: Option<(&'static Location<'static>, Watch)>,
    }
}

#[derive(Clone, Copy, Debug)]
enum When {
    After(Duration),
    At(Instant),
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sleep").field(&self.when).finish()
    }
}

/// Waits for `duration`, counted from the first poll, to the nearest millisecond.
///
/// Who waits has a line in the [wait records](crate::waits): for a timer, made where, since when.
///
/// # Panics
/// When polled outside a tokio runtime with time.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (_tx, mut rx) = channel::<u8>();
/// alt! {
///     v = rx.recv() => panic!("{v:?}"),
///     _ = sleep(Duration::from_millis(1)) => {}
/// }
/// # });
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { when: When::After(duration), timer: None, watched: Some((Location::caller(), Watch::default())) }
}

/// Waits until `instant`: as [`sleep`].
///
/// # Panics
/// When polled outside a tokio runtime with time.
#[track_caller]
pub fn sleep_until(instant: Instant) -> Sleep {
    Sleep { when: When::At(instant), timer: None, watched: Some((Location::caller(), Watch::default())) }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if this.timer.is_none() {
            keep_ticking();
            if matches!(this.when, When::After(Duration::ZERO)) {
                return Poll::Ready(());
            }
            this.timer.set(Some(match *this.when {
                When::After(duration) => Timer::after(duration),
                When::At(instant) => Timer::at(instant),
            }));
        }
        let polled = this.timer.as_pin_mut().map_or(Poll::Ready(()), |timer| timer.poll(cx));
        match this.watched {
            Some((made, watch)) => watch.note(polled, Doing::Time, Pid::OUTSIDE, made),
            None => polled,
        }
    }
}

impl Branch for Sleep {
    type Output = ();

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        choice.poll_lasting(|| self.poll(cx))
    }
}

/// How often the wait records' clock moves. It also bounds how late a claim that was offered in vain moves on.
const TICK: Duration = Duration::from_millis(5);

/// Starts the thread that moves the clock of the wait records, and of patience with those who were offered a claim and do
/// not take it, once in a program.
///
/// [`spawn`](crate::spawn()), [`block_on`](crate::block_on), [`sleep`] and [`Deadline`] do that. Call it in a program that uses none of them, only
/// channels on a runtime of its own.
pub fn start_clock() {
    keep_ticking();
}

pub(crate) fn keep_ticking() {
    // A simulation moves it itself.
    if world::is_simulated() {
        return;
    }
    static TICKING: OnceLock<()> = OnceLock::new();
    TICKING.get_or_init(|| {
        let began = std::time::Instant::now();
        let ticker = std::thread::Builder::new().name("dunlin-tick".into()).spawn(move || {
            loop {
                std::thread::sleep(TICK);
                dunlin_core::waits::advance(began.elapsed().as_millis() as u32);
            }
        });
        // Without the thread everything works but the ages in the wait records, and patience with sleeping claimers.
        if let Err(error) = ticker {
            eprintln!("dunlin: no thread for the clock of the wait records: {error}");
        }
    });
}
