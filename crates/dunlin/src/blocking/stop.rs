//! How a blocking call notices that it should stop. It can check ([`Stop::asked`]), wait for the request
//! ([`Stop::requested`]), wait for a descriptor or the request ([`Stop::ready`], Unix only), or let the
//! request shut a socket down ([`Stop::shuts_down`], Unix only).
//!
//! Nothing else wakes a thread that blocks in a system call. On Linux, closing its descriptor does not, and
//! nothing can leave a call from outside.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use dunlin_core::__rt::{ChoiceCx, wake_all};
use dunlin_core::waits::{Doing, Pid, Watch};
use dunlin_core::{Branch, Operation};

#[cfg(unix)]
use super::bell::Bells;
use super::phase::{Asked, Phase, Word};
use crate::lock::lock;

/// Tells a blocking call whether it should stop. Threads that the call starts may check too.
pub struct Stop {
    /// It becomes `Asked` under the lock of `waiting`.
    pub(super) word: Word,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next_ticket: u64,
    wakers: Vec<(u64, Waker)>,
    /// Runs if the call is cut, the last one first.
    clean_ups: Vec<Box<dyn FnOnce() + Send>>,
    #[cfg(unix)]
    bells: Bells,
    /// Interrupts the system call that the call is in. Does not wait.
    #[cfg(target_os = "linux")]
    interrupt: Option<Box<dyn Fn() + Send>>,
}

impl Stop {
    pub(super) fn new() -> Self {
        Self { word: Word::new(), waiting: Mutex::default() }
    }

    /// Whether the call has been asked to stop. Cheap: a load. Once this has returned `true` the call counts
    /// as [terminated](super::Ended::Terminated).
    pub fn asked(&self) -> bool {
        self.word.heed()
    }

    /// Waits until the call is asked to stop: `true`, and the request counts as seen. `false`, only with a
    /// deadline: the deadline has passed.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it has seen nothing.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let beats = blocking(|stop| {
    ///     let mut beats = 0;
    ///     while !stop.requested().within(Duration::from_millis(1)).wait() {
    ///         beats += 1; // every millisecond, and it stops at once
    ///     }
    ///     beats
    /// });
    /// # use dunlin::waits::{Doing, snapshot};
    /// # while !snapshot().iter().any(|wait| wait.who == beats.pid() && wait.doing == Doing::Stop) {}
    /// let Ended::Terminated(beats) = beats.terminate().await else { panic!() };
    /// println!("{beats} beats");
    /// # });
    /// ```
    #[track_caller]
    pub fn requested(&self) -> Requested<'_> {
        Requested { stop: self, ticket: None, made: Location::caller(), watch: Watch::default() }
    }

    /// Commits the call to its end: a termination that begins after this gets
    /// [`Ended::Finishing`](super::Ended::Finishing) at once, and [`asked`](Self::asked) stays false.
    /// `false`: the call has been asked before, counts as having seen that, and should stop.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let (mut began, mut has_begun) = channel();
    /// let (mut tx, mut rx) = channel::<u8>();
    /// let writing = blocking(move |stop| {
    ///     let committed = stop.finishing();
    ///     began.send(committed).wait().unwrap();
    ///     rx.recv().wait().unwrap() // must not be cut off
    /// });
    /// assert!(has_begun.recv().await.unwrap());
    /// let Ended::Finishing(writing) = writing.terminate().await else { panic!() };
    /// tx.send(7).await.unwrap();
    /// assert_eq!(writing.await.unwrap(), 7);
    /// # });
    /// ```
    pub fn finishing(&self) -> bool {
        self.word.finish()
    }

    /// Runs `clean_up` if the call is cut: if it has seen that it should stop by the time it returns or
    /// panics.
    ///
    /// It runs once, on the thread of the call, after the call has returned and before the handle gets the
    /// outcome. Of several clean-ups the last one given runs first. Otherwise `state` is dropped, with all
    /// that the call held. If a clean-up panics, the outcome is [`Ended::Panicked`](super::Ended::Panicked);
    /// the others still run.
    ///
    /// # Examples
    /// Removes a partly written file:
    /// ```
    /// use dunlin::prelude::*;
    /// # let path = std::env::temp_dir().join(format!("dunlin-on-cut-{}", std::process::id()));
    /// # dunlin::block_on(async {
    /// # let part = path.clone();
    /// let writing = blocking(move |stop| {
    ///     stop.on_cut(part.clone(), |part| std::fs::remove_file(part).unwrap());
    ///     std::fs::write(&part, "the first half")?;
    ///     stop.requested().wait(); // a long step
    ///     std::io::Result::Ok(())
    /// });
    /// # while !path.exists() {}
    /// assert!(matches!(writing.terminate().await, Ended::Terminated(Ok(()))));
    /// assert!(!path.exists());
    /// # });
    /// ```
    pub fn on_cut<S: Send + 'static>(&self, state: S, clean_up: impl FnOnce(S) + Send + 'static) {
        lock(&self.waiting).clean_ups.push(Box::new(move || clean_up(state)));
    }

    /// Asks the call to stop, and wakes all that wait for the request.
    pub(super) fn ask(&self) -> Asked {
        let mut waiting = lock(&self.waiting);
        let asked = self.word.ask();
        if asked != Asked::First {
            return asked;
        }
        // Under the lock: what the call has taken back is no longer touched.
        #[cfg(unix)]
        waiting.bells.ring();
        #[cfg(target_os = "linux")]
        if let Some(interrupt) = &waiting.interrupt {
            interrupt();
        }
        let wakers = std::mem::take(&mut waiting.wakers);
        drop(waiting);
        wake_all(wakers.into_iter().map(|(_, waker)| waker));
        asked
    }

    /// Records that the call has returned. Gives its phase then, and the clean-ups to run if it was cut.
    pub(super) fn over(&self) -> (Phase, Vec<Box<dyn FnOnce() + Send>>) {
        let phase = self.word.over();
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        (phase, waiting.clean_ups)
    }

    /// Whether the request has been seen, and what it will interrupt.
    #[cfg(target_os = "linux")]
    pub(super) fn with_interrupt<R>(&self, f: impl FnOnce(bool, &mut Option<Box<dyn Fn() + Send>>) -> R) -> R {
        let mut waiting = lock(&self.waiting);
        f(self.asked(), &mut waiting.interrupt)
    }

    #[cfg(unix)]
    pub(super) fn with_bells<R>(&self, f: impl FnOnce(&mut Bells) -> R) -> R {
        f(&mut lock(&self.waiting).bells)
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.word.get()).finish()
    }
}

/// The operation of [`Stop::requested`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Requested<'a> {
    stop: &'a Stop,
    ticket: Option<u64>,
    made: &'static Location<'static>,
    watch: Watch,
}

impl Requested<'_> {
    fn poll_asked(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Cloned before the lock is taken, and dropped after: a waker is user code.
        let waker = cx.waker().clone();
        let mut waiting = lock(&self.stop.waiting);
        if self.stop.asked() {
            return Poll::Ready(true);
        }
        let ticket = *self.ticket.get_or_insert_with(|| {
            waiting.next_ticket += 1;
            waiting.next_ticket
        });
        let old = match waiting.wakers.iter_mut().find(|(other, _)| *other == ticket) {
            Some((_, old)) => Some(std::mem::replace(old, waker)),
            None => {
                waiting.wakers.push((ticket, waker));
                None
            }
        };
        drop(waiting);
        drop(old);
        Poll::Pending
    }
}

impl Future for Requested<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        let polled = self.poll_asked(cx);
        let made = self.made;
        self.watch.note(polled, Doing::Stop, Pid::OUTSIDE, made)
    }
}

impl Branch for Requested<'_> {
    type Output = bool;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<bool> {
        choice.poll_lasting(|| self.poll(cx))
    }

    fn unchosen(&self) {
        self.watch.end();
    }
}

impl Operation for Requested<'_> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(false)
    }
}

impl Drop for Requested<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut waiting = lock(&self.stop.waiting);
            let index = waiting.wakers.iter().position(|(other, _)| *other == ticket);
            let gone = index.map(|index| waiting.wakers.swap_remove(index));
            drop(waiting);
            drop(gone);
        }
    }
}

impl fmt::Debug for Requested<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requested").field(self.stop).finish()
    }
}
