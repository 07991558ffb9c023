//! The receiving side of a mailbox, and its receives.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_core::__rt::{ChoiceCx, counted};
use dunlin_core::waits::{self, Doing, Watch};
use dunlin_core::{Branch, Operation};

use super::super::core::Core;
use super::super::exit::Exit;
use super::super::link::OutsideProcess;
use super::super::pid::NearPid;
use super::address::Address;
use super::error::MailboxError;
use super::queue::{Entry, ExitsInto, Notices, Shared};

/// The messages of a process: made by [`mailbox`](crate::mailbox()).
///
/// It belongs to the process that first receives from it, and can be moved before. When that process has
/// ended, it belongs to the next one that receives from it. Code outside of every process may own one, too.
/// Dropping it closes it: messages that have not been received are dropped, and sends return theirs.
///
/// A receive takes the first message that fits, and leaves the others where they are, in order. It tests each
/// message once: what arrives later is tested when it arrives. A new receive begins at the first message
/// again, also the same one in a choice in a loop. [`mark`](Self::mark) lets it begin behind what is there.
pub struct Mailbox<M> {
    pub(super) shared: Arc<Shared<M>>,
    /// The messages that have been looked at, and those behind them.
    list: VecDeque<Entry<M>>,
    /// Where a receive begins.
    mark: usize,
    /// How many of the oldest messages in the list have lost their places, and are still to be dropped.
    pushed_out: usize,
    /// The process that it belongs to, or the code outside of every process.
    owner: Option<NearPid>,
}

impl<M> Mailbox<M> {
    pub(super) fn new(shared: Arc<Shared<M>>) -> Self {
        Self { shared, list: VecDeque::new(), mark: 0, pushed_out: 0, owner: None }
    }

    /// Another handle of its address.
    pub fn address(&self) -> Address<M> {
        Address::new(self.shared.clone())
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`MailboxError::NotOwner`] if the mailbox belongs to another process; [`MailboxError::TimedOut`] when
    /// a deadline ([`within`](crate::Deadline::within)) has passed.
    ///
    /// # Cancel safety
    /// If it is dropped, or not chosen, it has taken nothing.
    ///
    /// # Waits
    /// A waiting process has a line in the [wait records](crate::waits): for a receive, at the place where
    /// the mailbox was made.
    pub fn recv(&mut self) -> Receive<'_, M, fn(&M) -> bool> {
        self.recv_if(|_| true)
    }

    /// Waits for the first message that `fits`, and leaves the others in order.
    ///
    /// The macro [`receive!`](crate::receive) does the same with patterns.
    ///
    /// # Errors
    /// As of [`recv`](Self::recv).
    ///
    /// # Panics
    /// If `fits` panics. The message stays where it is, and the mailbox can be used.
    ///
    /// # Cancel safety
    /// If it is dropped, or not chosen, it has taken nothing.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::mailbox;
    /// # dunlin::block_on(async {
    /// let (address, mut mailbox) = mailbox();
    /// address.send("krill")?;
    /// address.send("squid")?;
    /// let word = alt! {
    ///     word = mailbox.recv_if(|word| word.starts_with('s')) => word?,
    ///     _ = sleep(Duration::from_secs(1)) => "nothing",
    /// };
    /// assert_eq!((word, mailbox.recv().await?), ("squid", "krill"));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn recv_if<F: FnMut(&M) -> bool>(&mut self, fits: F) -> Receive<'_, M, F> {
        Receive { scan: Scan::new(self), fits }
    }

    /// Waits for the first message for which `test` has a number.
    #[doc(hidden)]
    pub fn __select<F: FnMut(&M) -> Option<usize>>(&mut self, test: F) -> Selecting<'_, M, F> {
        Selecting { scan: Scan::new(self), test }
    }

    /// Marks what has arrived so far: receives through the result begin behind it, and cost nothing for it.
    ///
    /// For a question and its answer: nothing that is there before the question is sent can be the answer.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::mailbox;
    /// # dunlin::block_on(async {
    /// let (address, mut mailbox) = mailbox();
    /// address.send(1)?;
    /// let mut later = mailbox.mark();
    /// address.send(2)?;
    /// assert_eq!(later.recv().await?, 2);
    /// drop(later);
    /// assert_eq!(mailbox.recv().await?, 1);
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Source
    /// The optimised receive of Erlang, which its compiler finds by itself.
    pub fn mark(&mut self) -> Marked<'_, M> {
        let before = self.mark;
        self.shared.take_arrived(&mut self.list, None);
        self.drop_pushed_out();
        self.mark = self.list.len();
        Marked { mailbox: self, before }
    }

    /// How many messages are there, and have not been received.
    pub fn len(&mut self) -> usize {
        self.shared.take_arrived(&mut self.list, None);
        self.drop_pushed_out();
        self.list.len()
    }

    /// Whether no message is there.
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    /// From now on the calling process receives the exits of its [links](crate::link()) here, as messages,
    /// instead of being ended by them: every exit, also a normal one, until the mailbox is dropped.
    ///
    /// Exits that have arrived since the process was polled are received here, too. A process receives exits
    /// in one mailbox; the last call counts. A [kill](crate::Pid::kill) is not received.
    ///
    /// # Errors
    /// [`MailboxError::OutsideProcess`] if the caller runs outside of every spawned process;
    /// [`MailboxError::NotOwner`] if the mailbox belongs to another one.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::{ExitReason, mailbox, spawn_linked};
    ///
    /// struct Gone(Exit);
    /// impl From<Exit> for Gone {
    ///     fn from(exit: Exit) -> Self {
    ///         Self(exit)
    ///     }
    /// }
    /// # dunlin::block_on(async {
    /// let parent = spawn(async {
    ///     let (_, mut mailbox) = mailbox::<Gone>();
    ///     mailbox.exits()?;
    ///     let child = spawn_linked(async { Err::<(), _>("no krill") })?;
    ///     let Gone(exit) = mailbox.recv().await?;
    ///     assert_eq!(exit.pid, child.pid());
    ///     Ok::<_, Error>(exit.reason)
    /// });
    /// assert_eq!(parent.await??, ExitReason::Error("no krill".into()));
    /// # Ok::<(), Error>(())
    /// # }).unwrap();
    /// ```
    pub fn exits(&mut self) -> Result<(), MailboxError>
    where
        M: From<Exit> + Send + 'static,
    {
        let core = Core::current().ok_or(OutsideProcess)?;
        self.own()?;
        core.receive_exits(Arc::new(ExitsInto { shared: self.shared.clone(), convert: M::from }));
        Ok(())
    }

    pub(in super::super) fn notices(&self) -> Notices<M> {
        Notices(self.shared.clone())
    }

    /// The mailbox belongs to the process that runs now, or to no process that lives.
    fn own(&mut self) -> Result<(), MailboxError> {
        if self.owner.is_some_and(NearPid::is_current) {
            return Ok(());
        }
        let by = NearPid::current();
        match self.owner {
            Some(owner) if owner == by => Ok(()),
            // The code outside of every process does not end.
            Some(owner) if owner.in_records() == waits::Pid::OUTSIDE || owner.pid().is_alive() => {
                Err(MailboxError::NotOwner { owner: owner.in_records(), by: by.in_records() })
            }
            _ => {
                self.owner = Some(by);
                Ok(())
            }
        }
    }

    /// The message at `index`; `None` if it was withdrawn, or cannot be read, and is no longer there.
    fn look(&mut self, index: usize) -> Option<&M> {
        let is_valid = match self.list.get_mut(index)? {
            Entry::Post(_) => true,
            Entry::Notice(notice) => notice.message().is_some(),
            #[cfg(feature = "net")]
            Entry::Far(came) => came.message().is_some(),
        };
        if !is_valid {
            self.discard(index);
            return None;
        }
        match self.list.get_mut(index)? {
            Entry::Post(message) => Some(message),
            Entry::Notice(notice) => notice.message(),
            #[cfg(feature = "net")]
            Entry::Far(came) => came.message(),
        }
    }

    /// Removes an entry that is no message: a notice that was withdrawn, or what cannot be read.
    fn discard(&mut self, index: usize) {
        let Some(entry) = self.remove(index) else { return };
        if entry.is_post() {
            self.count_received(index);
        }
        drop(entry);
    }

    /// A post has been removed from this place in the list.
    fn count_received(&self, index: usize) {
        let list = &self.list;
        self.shared.received(|| list.iter().take(index).filter(|e| e.is_post()).count());
    }

    #[inline(always)]
    fn remove(&mut self, index: usize) -> Option<Entry<M>> {
        if index < self.mark {
            self.mark -= 1;
        }
        // Mostly the first one, which needs no gap to be closed.
        if index == 0 { self.list.pop_front() } else { self.list.remove(index) }
    }

    fn take(&mut self, index: usize) -> Option<M> {
        match self.remove(index)? {
            Entry::Post(message) => {
                self.count_received(index);
                Some(message)
            }
            Entry::Notice(notice) => (*notice).received(),
            #[cfg(feature = "net")]
            Entry::Far(came) => {
                self.count_received(index);
                (*came).received()
            }
        }
    }

    /// Drops the oldest messages that have lost their places. Returns the indices that they had, in order.
    #[inline]
    fn drop_pushed_out(&mut self) -> Vec<usize> {
        self.pushed_out += self.shared.take_pushed_out();
        if self.pushed_out == 0 { Vec::new() } else { self.drop_the_oldest() }
    }

    #[cold]
    fn drop_the_oldest(&mut self) -> Vec<usize> {
        let (mut indices, mut index) = (Vec::new(), 0);
        while self.pushed_out > 0 && index < self.list.len() {
            if self.list[index].is_post() {
                // (The drop may panic: the others are dropped by the next receive.)
                self.pushed_out -= 1;
                indices.push(index);
                let dropped = self.remove(index);
                drop(dropped);
            } else {
                index += 1;
            }
        }
        indices
    }
}

impl<M> fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mailbox").field(&self.shared.number).finish()
    }
}

// No message in it is pinned.
impl<M> Unpin for Mailbox<M> {}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        // The next exit finds it closed, and ends the process.
        self.shared.close();
    }
}

/// A mailbox whose receives begin behind what had arrived when it was marked: made by [`Mailbox::mark`]. It
/// is used as the mailbox.
#[derive(Debug)]
pub struct Marked<'a, M> {
    mailbox: &'a mut Mailbox<M>,
    /// The mark around it.
    before: usize,
}

impl<M> Deref for Marked<'_, M> {
    type Target = Mailbox<M>;

    fn deref(&self) -> &Mailbox<M> {
        self.mailbox
    }
}

impl<M> DerefMut for Marked<'_, M> {
    fn deref_mut(&mut self) -> &mut Mailbox<M> {
        self.mailbox
    }
}

impl<M> Drop for Marked<'_, M> {
    fn drop(&mut self) {
        self.mailbox.mark = self.before.min(self.mailbox.mark);
    }
}

/// A receive's place in the list.
struct Scan<'a, M> {
    mailbox: &'a mut Mailbox<M>,
    /// The first message that has not been tested; `None` before the first poll.
    next: Option<usize>,
    again: bool,
    /// The mailbox may have its waker.
    waits: bool,
    watch: Watch,
}

impl<'a, M> Scan<'a, M> {
    fn new(mailbox: &'a mut Mailbox<M>) -> Self {
        Self { mailbox, next: None, again: false, waits: false, watch: Watch::default() }
    }

    fn poll<R>(
        &mut self,
        cx: &Context<'_>,
        test: &mut impl FnMut(&M) -> Option<R>,
    ) -> Poll<Result<(R, M), MailboxError>> {
        let polled = self.search(cx, test);
        self.waits = polled.is_pending();
        self.watch.note(polled, Doing::Receive, waits::Pid::OUTSIDE, self.mailbox.shared.made)
    }

    fn search<R>(
        &mut self,
        cx: &Context<'_>,
        test: &mut impl FnMut(&M) -> Option<R>,
    ) -> Poll<Result<(R, M), MailboxError>> {
        let mailbox = &mut *self.mailbox;
        mailbox.own()?;
        // (After a panic it begins again.)
        let mut next = self.next.take().unwrap_or(mailbox.mark);
        loop {
            for index in mailbox.drop_pushed_out() {
                next -= usize::from(index < next);
            }
            while next < mailbox.list.len() {
                let Some(message) = mailbox.look(next) else { continue };
                if let Some(found) = test(message) {
                    self.next = Some(next);
                    return match mailbox.take(next) {
                        Some(message) => Poll::Ready(Ok((found, message))),
                        None => Poll::Pending,
                    };
                }
                next += 1;
            }
            self.next = Some(next);
            if !mailbox.shared.take_arrived(&mut mailbox.list, Some(cx.waker())) {
                return Poll::Pending;
            }
        }
    }

    /// Polls it outside of a choice.
    fn poll_alone<R>(
        &mut self,
        cx: &mut Context<'_>,
        test: &mut impl FnMut(&M) -> Option<R>,
    ) -> Poll<Result<(R, M), MailboxError>> {
        let again = std::mem::replace(&mut self.again, true);
        counted(again, cx, |cx| self.poll(cx, test))
    }
}

impl<M> Drop for Scan<'_, M> {
    fn drop(&mut self) {
        if self.waits {
            self.mailbox.shared.forget_receiver();
        }
    }
}

/// Waits for a message: made by [`Mailbox::recv`] and [`Mailbox::recv_if`].
///
/// A branch of a choice. Polled again through `&mut`, it continues behind what it has tested.
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Receive<'a, M, F> {
    scan: Scan<'a, M>,
    fits: F,
}

/// Tests a message with a predicate.
fn by<M>(fits: &mut impl FnMut(&M) -> bool) -> impl FnMut(&M) -> Option<()> {
    |message| if fits(message) { Some(()) } else { None }
}

impl<M, F> fmt::Debug for Receive<'_, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receive").field(&self.scan.mailbox).finish()
    }
}

// Nothing in it is pinned.
impl<M, F> Unpin for Receive<'_, M, F> {}

impl<M, F: FnMut(&M) -> bool> Future for Receive<'_, M, F> {
    type Output = Result<M, MailboxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { scan, fits } = &mut *self;
        scan.poll_alone(cx, &mut by(fits)).map_ok(|((), message)| message)
    }
}

impl<M, F: FnMut(&M) -> bool> Branch for Receive<'_, M, F> {
    type Output = Result<M, MailboxError>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let Self { scan, fits } = &mut *self;
        let polled = choice.poll_foreign(false, || scan.poll(cx, &mut by(fits)));
        polled.map_ok(|((), message)| message)
    }

    fn unchosen(&self) {
        self.scan.watch.end();
    }
}

impl<M, F: FnMut(&M) -> bool> Operation for Receive<'_, M, F> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(MailboxError::TimedOut))
    }
}

/// What [`receive!`](crate::receive) awaits.
#[doc(hidden)]
pub struct Selecting<'a, M, F> {
    scan: Scan<'a, M>,
    test: F,
}

impl<M, F> fmt::Debug for Selecting<'_, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Selecting").field(&self.scan.mailbox).finish()
    }
}

// Nothing in it is pinned.
impl<M, F> Unpin for Selecting<'_, M, F> {}

impl<M, F: FnMut(&M) -> Option<usize>> Future for Selecting<'_, M, F> {
    type Output = Result<(usize, M), MailboxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { scan, test } = &mut *self;
        scan.poll_alone(cx, test)
    }
}

impl<M, F: FnMut(&M) -> Option<usize>> Operation for Selecting<'_, M, F> {
    fn poll_expire(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Err(MailboxError::TimedOut))
    }
}
