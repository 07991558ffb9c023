//! Time: deadlines on operations, sleeping, and the coarse clock of the wait records.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use dunlin_core::__rt::{ChoiceCx, end_turn};
use dunlin_core::waits::{Doing, Pid, Watch};
use dunlin_core::{Branch, Broadcasting, Completing, Operation, Until};

use crate::watchdog::Watchdog;
use crate::world;

/// A point in time: tokio's, so that a paused test clock is respected.
pub type Instant = tokio::time::Instant;

/// Deadlines for operations, and their blocking form.
pub trait Deadline: Operation {
    /// Runs this operation for at most `patience`. Then it fails with an exact timeout error, and a send
    /// returns its value.
    ///
    /// A patience of zero still gives a receiver that is already waiting the chance to take the value: until
    /// the receiver has been polled, or for a millisecond; for up to 5 ms where threads wait for a processor.
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

    /// Runs this operation until `instant`: as [`within`](Self::within).
    fn by(self, instant: Instant) -> Until<Self, Sleep> {
        self.until(Sleep { watched: None, ..sleep_until(instant) })
    }

    /// Runs this operation, blocking the calling thread: for threads outside the runtime, and the bodies of
    /// blocking calls.
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
    #[track_caller]
    fn wait(self) -> Self::Output {
        wait(self)
    }
}

impl<O: Operation> Deadline for O {}

/// How long receivers at other nodes have for their answers when the [bound](CompleteWithin) of a broadcast
/// has passed: several round trips of a working connection.
const ANSWERS: Duration = Duration::from_millis(250);

/// Runs a future on this thread, which sleeps while it waits: for threads outside the runtime, and the bodies
/// of blocking calls.
///
/// Operations have [`Deadline::wait`]. This is for all other futures, above all a choice between an operation
/// and [`Stop::requested`](crate::Stop::requested).
///
/// # Panics
/// Within async code: it would hold up all processes that its thread drives.
///
/// # Examples
/// A call that receives until it is asked to stop:
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (mut tx, mut rx) = channel::<u64>();
/// let summing = blocking(move |stop| {
///     blocking::wait(async {
///         let mut sum = 0;
///         loop {
///             alt! {
///                 n = rx.recv() => sum += n?,
///                 _ = stop.requested() => return Ok::<_, Error>(sum),
///             }
///         }
///     })
/// });
/// tx.send(3).await?;
/// tx.send(4).await?;
/// let Ended::Terminated(sum) = summing.terminate().await else { panic!() };
/// assert_eq!(sum?, 7);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
#[track_caller]
pub fn wait<F: IntoFuture>(future: F) -> F::Output {
    let future = future.into_future();
    keep_ticking();
    // Within a runtime, its handle knows which threads may block, and panics with advice on the others.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        return runtime.block_on(future);
    }
    // Elsewhere each thread gets a small runtime: the wait may have a deadline, which needs a timer.
    thread_local! {
        static TIMER: tokio::runtime::Runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap_or_else(|error| panic!("the operating system cannot create a timer: {error}"));
    }
    TIMER.with(|timer| timer.block_on(future))
}

/// The second bound of a [`Broadcast::send`](crate::Broadcast::send), on the wait for its receivers.
pub trait CompleteWithin: Sized {
    /// The send with its bound.
    type Completing: Operation;

    /// Waits for at most `patience`, from when the value has been offered to all receivers, for those that
    /// have not received it.
    ///
    /// Then the value is withdrawn from them. The send asks receivers at other nodes whether they have
    /// received it, and waits 250 ms for their answers: it ends at the latest that long after `patience`,
    /// even if a node is silent. All receivers stay joined, and the next value goes to them too.
    ///
    /// The wait for [enough receivers](crate::Broadcast::at_least) comes before, and is bounded by
    /// [`within`](Deadline::within) behind this one.
    ///
    /// # Errors
    /// [`CompleteError::Incomplete`](crate::CompleteError::Incomplete) if some have not received it: how many
    /// have, how many never will, and of how many that is unknown.
    /// [`CompleteError::Failed`](crate::CompleteError::Failed) as of a send without this bound.
    ///
    /// # Panics
    /// When polled outside a tokio runtime with time.
    ///
    /// # Cancel safety
    /// As of the send.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (mut clock, joiner) = broadcast();
    /// let (mut quick, _slow) = (joiner.join(), joiner.join());
    /// let (sent, got) = par!(clock.send("tick").complete_within(Duration::from_millis(5)), quick.recv());
    /// let Err(CompleteError::Incomplete { received, withdrawn, unknown, .. }) = sent else {
    ///     unreachable!()
    /// };
    /// assert_eq!((got, received, withdrawn, unknown), (Ok("tick"), 1, 1, 0));
    /// # });
    /// ```
    fn complete_within(self, patience: Duration) -> Self::Completing;
}

impl<'a, T: Clone> CompleteWithin for Broadcasting<'a, T> {
    type Completing = Completing<'a, T, Sleep, Sleep>;

    fn complete_within(self, patience: Duration) -> Self::Completing {
        let timer = |duration| Sleep { watched: None, ..sleep(duration) };
        self.complete_until(timer(patience), timer(ANSWERS))
    }
}

pin_project_lite::pin_project! {
    /// A timer: a future, and a branch of a choice. Made by [`sleep`] and [`sleep_until`].
    #[must_use = "a timer does nothing until it is awaited or chosen over"]
    pub struct Sleep {
        when: When,
        // Made when first polled: an operation that is ready at once needs no timer.
        #[pin]
        timer: Option<world::Timer>,
        // Where it was made, and its wait record; none for a deadline, whose operation has one.
        watched: Option<(&'static Location<'static>, Watch)>,
    }
}

#[derive(Clone, Copy, Debug)]
enum When {
    After(Duration),
    At(Instant),
}

impl When {
    /// Whether it has passed and needs no timer. Tokio rounds timers up to the next millisecond.
    fn is_past(self) -> bool {
        match self {
            Self::After(duration) => duration.is_zero(),
            Self::At(instant) => !world::is_simulated() && instant <= Instant::now(),
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sleep").field(&self.when).finish()
    }
}

/// Waits for `duration`, counted from the first poll, to the nearest millisecond.
///
/// A waiting process has a line in the [wait records](crate::waits): for a timer, made where, since when.
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
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let soon = Instant::now() + Duration::from_millis(1);
/// sleep_until(soon).await;
/// assert!(Instant::now() >= soon);
/// # });
/// ```
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
            if this.when.is_past() {
                return if world::is_simulated() { Poll::Ready(()) } else { poll_at_once(cx) };
            }
            if !world::has_timers() {
                no_timers(this.watched.as_ref().map(|(made, _)| *made));
            }
            this.timer.set(Some(match *this.when {
                When::After(duration) => world::Timer::after(duration),
                When::At(instant) => world::Timer::at(instant),
            }));
        }
        let polled = this.timer.as_pin_mut().map_or(Poll::Ready(()), |timer| timer.poll(cx));
        match this.watched {
            Some((made, watch)) => watch.note(polled, Doing::Time, Pid::OUTSIDE, made),
            None => polled,
        }
    }
}

/// Tokio's own panic would name a line of this file. So does this one, since a poll has no line of the user's
/// code; so the text begins with that line.
#[cold]
fn no_timers(made: Option<&'static Location<'static>>) -> ! {
    let which = made.map_or_else(|| "a deadline".to_owned(), |made| format!("{made}: the timer that is made here"));
    panic!("{which} was polled outside of a tokio runtime: use `#[dunlin::main]` or `dunlin::block_on`");
}

/// Ready, but it consumes the task's tokio budget as any timer does: otherwise a loop over such timers would
/// never end its poll.
fn poll_at_once(cx: &mut Context<'_>) -> Poll<()> {
    std::task::ready!(world::poll_budget(cx));
    tokio::task::coop::poll_proceed(cx).map(|proceeded| proceeded.made_progress())
}

impl Branch for Sleep {
    type Output = ();

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        choice.poll_lasting(|| self.poll(cx))
    }

    fn unchosen(&self) {
        if let Some((_, watch)) = &self.watched {
            watch.end();
        }
    }
}

/// A timer that is kept, and set again: it is `Unpin`, so `&mut timer` is awaited, or is a branch of a
/// choice.
///
/// Once its time has come it stays ready until it is [reset](Self::reset).
///
/// # Panics
/// When polled outside a tokio runtime with time.
///
/// # Cancel safety
/// Awaiting through `&mut` loses nothing: the timer stays as it is.
///
/// # Waits
/// As [`sleep`]: the line names the place where the timer was made.
///
/// # Examples
/// A deadline that each message puts off:
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let patience = Duration::from_millis(5);
/// let (mut tx, mut rx) = channel();
/// let sender = spawn(async move { tx.send("krill").await.map(|()| tx) });
/// let mut silence = Timer::after(patience);
/// let mut received = 0;
/// loop {
///     alt! {
///         word = rx.recv() => {
///             received += usize::from(word.is_ok());
///             silence.reset(patience);
///         }
///         _ = &mut silence => break,
///     }
/// #   if received > 0 { break }
/// }
/// # drop(sender);
/// # });
/// ```
#[must_use = "a timer does nothing until it is awaited or chosen over"]
pub struct Timer {
    sleep: Pin<Box<Sleep>>,
    made: &'static Location<'static>,
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Timer").field(&self.sleep.when).finish()
    }
}

impl Timer {
    /// A timer for `duration`, counted from its first poll, to the nearest millisecond.
    #[track_caller]
    pub fn after(duration: Duration) -> Self {
        Self { sleep: Box::pin(sleep(duration)), made: Location::caller() }
    }

    /// A timer for `instant`.
    #[track_caller]
    pub fn at(instant: Instant) -> Self {
        Self { sleep: Box::pin(sleep_until(instant)), made: Location::caller() }
    }

    /// Sets the timer to `duration`, counted from its next poll, whether or not its time had come.
    pub fn reset(&mut self, duration: Duration) {
        self.set(When::After(duration));
    }

    /// Sets the timer to `instant`, whether or not its time had come.
    pub fn reset_at(&mut self, instant: Instant) {
        self.set(When::At(instant));
    }

    fn set(&mut self, when: When) {
        let watched = Some((self.made, Watch::default()));
        self.sleep.as_mut().set(Sleep { when, timer: None, watched });
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.sleep.as_mut().poll(cx)
    }
}

impl Branch for Timer {
    type Output = ();

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        self.sleep.as_mut().poll_branch(cx, choice)
    }

    fn unchosen(&self) {
        self.sleep.unchosen();
    }
}

/// Ticks once every `period`, the first time at once. It is `Unpin`: `every.tick()` and `&mut every` are
/// branches of a choice.
///
/// Ticks that are late because nothing awaited them are skipped, and the next one keeps the rhythm.
///
/// # Panics
/// If `period` is zero.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// # dunlin::block_on(async {
/// let (_tx, mut rx) = channel::<u8>();
/// let mut every = interval(Duration::from_millis(1));
/// for _ in 0..3 {
///     alt! {
///         v = rx.recv() => panic!("{v:?}"),
///         _ = every.tick() => {}
///     }
/// }
/// # });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of zero would tick without end: use at least 1 ns");
    Interval { timer: Timer::after(Duration::ZERO), period, next: None }
}

/// Ticks at regular times: made by [`interval`].
#[derive(Debug)]
#[must_use = "an interval does nothing until a tick is awaited or chosen over"]
pub struct Interval {
    timer: Timer,
    period: Duration,
    /// When the timer is due; none before the first tick.
    next: Option<Instant>,
}

impl Interval {
    /// Waits for the next tick.
    ///
    /// # Panics
    /// When polled outside a tokio runtime with time.
    ///
    /// # Cancel safety
    /// Dropped, or not chosen, it has taken no tick.
    ///
    /// # Waits
    /// As [`sleep`]: the line names the place where the interval was made.
    pub fn tick(&mut self) -> Tick<'_> {
        Tick { interval: self }
    }

    /// Moves the next tick to `period` from now.
    pub fn reset(&mut self) {
        let now = world::now();
        self.set(now.checked_add(self.period).unwrap_or(now + FAR));
    }

    fn set(&mut self, next: Instant) {
        self.next = Some(next);
        self.timer.reset_at(next);
    }

    /// Records that a tick was taken.
    fn advance(&mut self) {
        let now = world::now();
        let late = now.saturating_duration_since(self.next.unwrap_or(now));
        // The elapsed part of the current period: `late` may be many periods.
        let past = Duration::from_nanos((late.as_nanos() % self.period.as_nanos()) as u64);
        // As tokio does for an instant beyond the clock's range.
        self.set((now - past).checked_add(self.period).unwrap_or(now + FAR));
    }
}

impl Branch for Interval {
    type Output = ();

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        let polled = Pin::new(&mut self.timer).poll_branch(cx, choice);
        if polled.is_ready() {
            self.advance();
        }
        polled
    }

    fn unchosen(&self) {
        self.timer.unchosen();
    }
}

/// A tick of an [`Interval`]: a future, and a branch of a choice.
#[derive(Debug)]
#[must_use = "a tick does nothing until it is awaited or chosen over"]
pub struct Tick<'a> {
    interval: &'a mut Interval,
}

impl Future for Tick<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let polled = Pin::new(&mut self.interval.timer).poll(cx);
        if polled.is_ready() {
            self.interval.advance();
        }
        polled
    }
}

impl Drop for Tick<'_> {
    fn drop(&mut self) {
        // The timer lives on, and nothing waits for it any more.
        self.interval.timer.unchosen();
    }
}

impl Branch for Tick<'_> {
    type Output = ();

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<()> {
        Pin::new(&mut *self.interval).poll_branch(cx, choice)
    }
}

const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// How often the wait records' clock moves. It also bounds how late a claim passes on from a waiter that does
/// not take it.
const TICK: Duration = Duration::from_millis(5);

/// Starts the thread that moves the clock of the wait records, and that limits the patience with waiters that
/// do not take a claim offered to them. A program has one such thread.
///
/// [`spawn`](crate::spawn()), [`block_on`](crate::block_on), [`sleep`] and [`Deadline`] call this. Call it in
/// a program that uses none of them, only channels on a runtime of its own.
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
        dunlin_core::__rt::set_waking(world::wake_later);
        dunlin_core::__rt::set_turn_timer(end_turn_later);
        TICKER.runs.store(true, Ordering::Release);
        let ticker = std::thread::Builder::new().name("dunlin-tick".into()).spawn(|| TICKER.run());
        // Without the thread, only the ages in the wait records and the patience with sleeping claimers do
        // not work.
        if let Err(error) = ticker {
            TICKER.stopped();
            eprintln!("dunlin: no thread for the clock of the wait records: {error}");
        }
    });
}

/// How long a send that cannot wait waits for the receivers that it has woken to be polled.
const TURN: Duration = Duration::from_millis(1);

/// The most that it waits where the threads wait for a processor.
const TURN_MAX: Duration = Duration::from_millis(5);

/// Ends a turn of the core's later. `false`: that is not possible here.
fn end_turn_later(number: u32) -> bool {
    if world::is_simulated() {
        world::end_turn_after(TURN, number);
        return true;
    }
    // Another executor may have no notion of time, only an order of polls.
    tokio::runtime::Handle::try_current().is_ok() && TICKER.end_turn(number)
}

static TICKER: Ticker =
    Ticker { runs: AtomicBool::new(false), turns: Mutex::new(VecDeque::new()), begun: Condvar::new() };

/// The thread that keeps the coarse time, ends turns, and looks for deadlocks. It needs no runtime, and a
/// paused test clock does not stop it.
struct Ticker {
    runs: AtomicBool,
    /// When turns end, in this order.
    turns: Mutex<VecDeque<Due>>,
    begun: Condvar,
}

/// A turn that is due to end.
struct Due {
    at: std::time::Instant,
    number: u32,
    began: std::time::Instant,
}

/// The thread is this late only where threads wait for a processor. Then the receivers' threads wait too, so
/// the turns continue, but not beyond [`TURN_MAX`].
const LATE: Duration = Duration::from_micros(200);

impl Due {
    fn new(number: u32, now: std::time::Instant) -> Self {
        Self { at: now + TURN, number, began: now }
    }

    fn is_put_off(&self, now: std::time::Instant) -> bool {
        now > self.at + LATE && now + TURN <= self.began + TURN_MAX
    }
}

/// Ends a turn. The waker belongs to some runtime: if it panics, the panic hook reports that, and neither the
/// thread nor other turns end.
fn end_turn_of(due: Due) {
    let _ = catch_unwind(AssertUnwindSafe(|| end_turn(due.number)));
}

/// The thread runs until this is dropped.
struct Running<'a>(&'a Ticker);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.stopped();
    }
}

impl Ticker {
    /// The thread has stopped: turns end by a number of polls, and those that have begun end now.
    fn stopped(&self) {
        let mut turns = self.lock();
        self.runs.store(false, Ordering::Release);
        let turns = std::mem::take(&mut *turns);
        turns.into_iter().for_each(end_turn_of);
    }

    fn run(&self) {
        let _running = Running(self);
        let began = std::time::Instant::now();
        let mut next_tick = began + TICK;
        let mut watchdog = Watchdog::new();
        loop {
            let (now, mut turns) = (std::time::Instant::now(), self.lock());
            let due = turns.iter().take_while(|due| due.at <= now).count();
            let mut due: Vec<_> = turns.drain(..due).collect();
            let put_off = due.extract_if(.., |due| due.is_put_off(now));
            turns.extend(put_off.map(|due| Due { at: now + TURN, ..due }));
            if due.is_empty() && now < next_tick {
                let next = turns.front().map_or(next_tick, |due| next_tick.min(due.at));
                drop(self.begun.wait_timeout(turns, next - now));
                continue;
            }
            drop(turns);
            due.into_iter().for_each(end_turn_of);
            if now >= next_tick {
                dunlin_core::waits::advance(began.elapsed().as_millis() as u32);
                watchdog.look(TICK);
                next_tick = now + TICK;
            }
        }
    }

    /// `false`: the thread is not running.
    fn end_turn(&self, number: u32) -> bool {
        let mut turns = self.lock();
        let runs = self.runs.load(Ordering::Acquire);
        if runs {
            turns.push_back(Due::new(number, std::time::Instant::now()));
            let first = turns.len() == 1;
            drop(turns);
            if first {
                self.begun.notify_one();
            }
        }
        runs
    }

    /// Nothing panics under this lock.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Due>> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_of_a_late_thread_is_extended_by_at_most_five_milliseconds() {
        let began = std::time::Instant::now();
        let ends = |late: Duration| {
            let mut due = Due::new(1, began);
            loop {
                let now = due.at + late;
                if !due.is_put_off(now) {
                    return now - began;
                }
                due.at = now + TURN;
            }
        };
        assert_eq!(ends(Duration::ZERO), TURN);
        assert_eq!(ends(LATE), TURN + LATE);
        for late in [201, 300, 500, 1_000, 2_000, 3_000].map(Duration::from_micros) {
            let end = ends(late);
            assert!(end > TURN + late && end <= TURN_MAX + late, "{late:?} late: {end:?}");
        }
        // Another millisecond would be too late.
        assert_eq!(ends(Duration::from_micros(3_999)), TURN + Duration::from_micros(3_999));
        // It was too late already.
        assert_eq!(ends(Duration::from_millis(7)), Duration::from_millis(8));
    }
}
