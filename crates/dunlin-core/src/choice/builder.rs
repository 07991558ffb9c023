//! Choice over branches known only at run time; [`picking`]: with an order of the user's own.

pub(crate) mod picking;

use std::fmt;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::branch::{Branch, ChoiceCx, Look, PARTS_MAX};
use super::{Choosing, EVERY_BRANCH_IS_OFF, HOPELESS, Order, Step, Survey, step_on};
use crate::channel::erased::Erased;
use crate::channel::queue::offer::Retracted;
use crate::channel::queue::put;
use crate::channel::queue::value::{Pool, Pooled};
use crate::channel::sender::Sender;
use crate::channel::state::{Chan, Post};
use crate::error::{Failed, SendError};
use crate::handle::Handle;
use crate::lock::Lock;
use crate::pinned::Pinned;

/// Some branches of a [`Choice`], each reached by its number.
trait Group<T> {
    fn len(&self) -> usize;
    /// Reports the look of its branches; the first of them has the number `first`.
    fn survey(&mut self, first: usize, survey: &mut Survey);
    fn look(&mut self, index: usize) -> Look;
    fn step(&mut self, index: usize, step: Step<'_, '_>) -> Poll<T>;
}

struct One<B, M> {
    branch: Pin<Box<B>>,
    map: Option<M>,
}

impl<B: Branch, M: FnOnce(B::Output) -> T, T> Group<T> for One<B, M> {
    fn len(&self) -> usize {
        1
    }

    fn survey(&mut self, first: usize, survey: &mut Survey) {
        survey.see(first, self.branch.look());
    }

    fn look(&mut self, _: usize) -> Look {
        self.branch.look()
    }

    fn step(&mut self, _: usize, step: Step<'_, '_>) -> Poll<T> {
        let output = std::task::ready!(step_on(self.branch.as_mut(), step));
        match self.map.take() {
            Some(map) => Poll::Ready(map(output)),
            None => panic!("a choice that is done was polled again"),
        }
    }
}

impl<B: Branch> Group<B::Output> for Pinned<B> {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn survey(&mut self, first: usize, survey: &mut Survey) {
        for index in 0..Self::len(self) {
            survey.see(first + index, self.get(index).look());
        }
    }

    fn look(&mut self, index: usize) -> Look {
        self.get(index).look()
    }

    fn step(&mut self, index: usize, step: Step<'_, '_>) -> Poll<B::Output> {
        step_on(self.get(index), step)
    }
}

/// A choice made at run time: any number of branches, whose outputs are one type.
///
/// Awaited, it returns the number of the branch that happened, counted from 0 in the order they were added
/// (branches that are off count too), and its output.
///
/// With 32 or more branches and none ready, the first poll wakes the task and returns `Pending`; the choice
/// starts to wait in its second poll.
///
/// # Cancel safety
/// If the choice is dropped, no branch has happened.
///
/// # Examples
/// ```
/// use dunlin_core::{Choice, RecvError, channel};
/// # dunlin_core::doc::block_on(async {
/// let (tx, rx) = channel::<u8>();
/// let (mut ty, ry) = channel();
/// let mut inputs = vec![rx, ry];
/// let (sent, (index, value)) = dunlin_core::par!(
///     ty.send(5),
///     async { Choice::fair().all(inputs.iter_mut().map(|rx| rx.recv())).await },
/// );
/// assert_eq!((index, value), (1, Ok(5)));
/// # sent.unwrap();
/// # drop(tx);
/// # });
/// ```
#[must_use = "a choice does nothing until it is awaited"]
pub struct Choice<'a, T> {
    order: Order,
    groups: Vec<Box<dyn Group<T> + Send + 'a>>,
    skip: Option<T>,
}

impl<T> fmt::Debug for Choice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let branches: usize = self.groups.iter().map(|group| group.len()).sum();
        f.debug_struct("Choice").field("order", &self.order).field("branches", &branches).finish()
    }
}

impl<'a, T> Choice<'a, T> {
    fn new(order: Order) -> Self {
        Self { order, groups: Vec::new(), skip: None }
    }

    /// Takes, of the branches that are ready, the one whose end was chosen least recently. Branches without
    /// an end (timers, futures, processes) get their share by lot.
    pub fn fair() -> Self {
        Self::new(Order::Fair)
    }

    /// Takes the first of the branches that are ready.
    pub fn prioritised() -> Self {
        Self::new(Order::Prioritised)
    }

    /// Takes any of the branches that are ready, each with the same chance.
    pub fn random() -> Self {
        Self::new(Order::Random)
    }

    /// Adds a branch; `map` turns its output into the choice's.
    pub fn on<B: Branch + Send + 'a>(mut self, branch: B, map: impl FnOnce(B::Output) -> T + Send + 'a) -> Self {
        self.groups.push(Box::new(One { branch: Box::pin(branch), map: Some(map) }));
        self
    }

    /// Adds a branch if `condition` holds; else `branch` is not evaluated, but still counted.
    pub fn on_if<B: Branch + Send + 'a>(
        mut self,
        condition: bool,
        branch: impl FnOnce() -> B,
        map: impl FnOnce(B::Output) -> T + Send + 'a,
    ) -> Self {
        if condition {
            return self.on(branch(), map);
        }
        self.groups.push(Box::new(Off));
        self
    }

    /// Adds all of `branches`.
    pub fn all<B: Branch<Output = T> + Send + 'a>(mut self, branches: impl IntoIterator<Item = B>) -> Self {
        self.groups.push(Box::new(branches.into_iter().collect::<Pinned<B>>()));
        self
    }

    /// Sets the output if no branch is ready at once. `skip` counts as the last branch.
    pub fn skip(mut self, value: T) -> Self {
        self.skip = Some(value);
        self
    }
}

struct Off;

impl<T> Group<T> for Off {
    fn len(&self) -> usize {
        1
    }

    fn survey(&mut self, _: usize, _: &mut Survey) {}

    fn look(&mut self, _: usize) -> Look {
        Look::Off
    }

    fn step(&mut self, _: usize, _: Step<'_, '_>) -> Poll<T> {
        Poll::Pending
    }
}

/// The future of a [`Choice`].
pub struct ChoiceFuture<'a, T> {
    /// The location of the `.await`.
    awaited: &'static Location<'static>,
    choosing: Choosing,
    /// The number of each group's first branch.
    firsts: Vec<usize>,
    groups: Vec<Box<dyn Group<T> + Send + 'a>>,
    skip: Option<T>,
}

impl<T> fmt::Debug for ChoiceFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choosing.fmt(f)
    }
}

impl<'a, T> IntoFuture for Choice<'a, T> {
    type Output = (usize, T);
    type IntoFuture = ChoiceFuture<'a, T>;

    #[track_caller]
    fn into_future(self) -> ChoiceFuture<'a, T> {
        let mut firsts = Vec::with_capacity(self.groups.len());
        let mut branches = 0;
        for group in &self.groups {
            firsts.push(branches);
            branches += group.len();
        }
        let choosing = Choosing::new(self.order, self.skip.is_some(), branches);
        ChoiceFuture { awaited: Location::caller(), choosing, firsts, groups: self.groups, skip: self.skip }
    }
}

impl<T> Unpin for ChoiceFuture<'_, T> {}

impl<T> Drop for ChoiceFuture<'_, T> {
    fn drop(&mut self) {
        let Self { choosing, firsts, groups, .. } = self;
        choosing.tell_unchosen(&mut |branch, step| {
            let (group, index) = place(firsts, branch);
            groups[group].step(index, step).map(drop)
        });
    }
}

/// The group of a branch, and its index there.
fn place(firsts: &[usize], branch: usize) -> (usize, usize) {
    let group = firsts.partition_point(|first| *first <= branch) - 1;
    (group, branch - firsts[group])
}

impl<T> Future for ChoiceFuture<'_, T> {
    type Output = (usize, T);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<(usize, T)> {
        let Self { awaited, choosing, firsts, groups, skip } = self.get_mut();
        let mut output = None;
        let chosen = std::task::ready!(choosing.poll(
            &mut |branch: usize, step: Step<'_, '_>| {
                if let Step::Survey(survey) = step {
                    for (first, group) in firsts.iter().zip(groups.iter_mut()) {
                        group.survey(*first, survey);
                    }
                    return Poll::Pending;
                }
                let (group, index) = place(firsts, branch);
                groups[group].step(index, step).map(|value| output = Some(value))
            },
            cx
        ));
        assert!(chosen != HOPELESS, "at {awaited}: {EVERY_BRANCH_IS_OFF}");
        let value = output.or_else(|| skip.take()).expect("a branch that happened has an output, and skip a value");
        Poll::Ready((chosen, value))
    }
}

/// Sends the value in `slot` on the first of `senders` whose receiver takes it, and returns that sender's
/// index.
///
/// Await it, or use it as a branch of a choice: an empty slot turns that branch off, and if another branch is
/// chosen the value is in the slot. Of the senders that are ready it takes the one that was chosen least
/// recently. It has no `.within`: bound it by a choice with `sleep`.
///
/// # Errors
/// [`SendError::NotTaken`] if one of the channels has ended. The error has its index; the value is in `slot`.
///
/// # Cancel safety
/// If it is dropped before it is done, the value is in `slot` unless a receive has taken it.
///
/// # Panics
/// If `senders` is empty: such a send could never complete. As a branch, if there are more than 4,094
/// senders. An empty slot has nothing to send: awaited, the send is done at once, and the index is 0.
///
/// # Examples
/// ```
/// use dunlin_core::{channel, par, send_to_any};
/// # dunlin_core::doc::block_on(async {
/// let ((tx, _rx), (ty, mut ry)) = (channel(), channel());
/// let (mut job, mut workers) = (Some("dig".to_string()), [tx, ty]);
/// let (sent, got) = par!(send_to_any(&mut job, &mut workers), ry.recv());
/// assert_eq!((sent.unwrap(), got.unwrap()), (1, "dig".to_string()));
/// assert_eq!(job, None);
/// # });
/// ```
///
/// As a branch:
/// ```
/// use dunlin_core::{alt, channel, send_to_any};
/// # dunlin_core::doc::block_on(async {
/// let ((tx, _rx), (ty, _ry)) = (channel(), channel());
/// let (mut job, mut workers) = (Some("dig".to_string()), [tx, ty]);
/// let idle = alt! {
///     sent = send_to_any(&mut job, &mut workers) => sent.is_err(),
///     skip => true, // no worker receives now
/// };
/// assert_eq!((idle, job.as_deref()), (true, Some("dig")));
/// # });
/// ```
#[track_caller]
pub fn send_to_any<'a, T, P>(slot: &'a mut Option<T>, senders: &'a mut [Sender<T, P>]) -> SendingToAny<'a, T> {
    assert!(!senders.is_empty(), "send_to_any over no senders would wait for ever");
    let posts: Vec<_> = senders.iter_mut().map(|s| (&**s.chan(), Post::new(Handle::END))).collect();
    let choosing = Choosing::new(Order::Fair, false, posts.len());
    SendingToAny {
        choosing,
        posts,
        pool: Pool::new(Lock::new(Pooled::new())),
        slot,
        is_out: false,
        of: None,
        received: None,
        sent: 0,
    }
}

/// The operation of [`send_to_any`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct SendingToAny<'a, T> {
    choosing: Choosing,
    posts: Vec<(&'a Chan<T>, Post)>,
    pool: Pool,
    slot: &'a mut Option<T>,
    /// The value is in the pool, not in the slot.
    is_out: bool,
    /// The choice in which this is a branch, by its decision's number.
    of: Option<u128>,
    /// The result, and its part, of an offer made for an earlier choice.
    received: Option<(usize, Result<(), Failed>)>,
    /// The sender that sent the value.
    sent: usize,
}

impl<T> fmt::Debug for SendingToAny<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.choosing.fmt(f)
    }
}

impl<T> Unpin for SendingToAny<'_, T> {}

impl<T> SendingToAny<'_, T> {
    fn withdraw(&mut self) {
        for (chan, post) in &mut self.posts {
            chan.withdraw(post, &mut None, true);
        }
    }

    fn take_back(&mut self) {
        self.withdraw();
        self.is_out = false;
        let value = self.pool.lock().take();
        value.into_iter().for_each(|value| put(self.slot, value));
    }

    /// Offers the value from the pool, for this choice. First it retracts what it offered for another choice;
    /// if a receiver has taken that since, `received` has the result. Pending while an extended receive or an
    /// agent holds the value.
    fn poll_begin(&mut self, of: Option<u128>, cx: &Context<'_>) -> Poll<()> {
        if self.is_out && self.of != of && self.received.is_none() {
            let mut waits = false;
            for (part, (chan, post)) in self.posts.iter_mut().enumerate() {
                match chan.poll_retract(post, &self.pool, cx) {
                    Poll::Pending => waits = true,
                    Poll::Ready(Retracted::Back) => {}
                    Poll::Ready(Retracted::Taken) => self.received = Some((part, Ok(()))),
                    Poll::Ready(Retracted::Failed(failed)) => self.received = Some((part, Err(failed))),
                }
            }
            if waits && self.received.is_none() {
                return Poll::Pending;
            }
        }
        if !self.is_out {
            self.is_out = true;
            // Before the value is offered: after that, other parties may take it from the pool.
            #[cfg(feature = "link")]
            let encoded = self.posts.iter().find_map(|(chan, _)| chan.encode_for_link(self.slot));
            let mut pool = self.pool.lock();
            self.slot.take().into_iter().for_each(|value| pool.put(Erased::new(value)));
            #[cfg(feature = "link")]
            {
                pool.encoded = encoded;
            }
        }
        self.of = of;
        Poll::Ready(())
    }

    fn end(&mut self, part: usize, sent: Result<(), Failed>) -> Poll<Result<usize, SendError<usize>>> {
        (self.received, self.sent) = (None, part);
        self.take_back();
        Poll::Ready(sent.map(|()| part).map_err(|failed| failed.with(part)))
    }
}

/// Gives the sender's end another turn.
fn set_turn_of<T>(chan: &Chan<T>, next: fn(Look) -> Option<u32>) {
    let side = &chan.record.sender;
    next(Look::Maybe(Some(side.turn()))).into_iter().for_each(|turn| side.set_turn(turn));
}

/// Its channels are parts of one branch: the receive that takes the value decides for one part.
impl<T> Branch for SendingToAny<'_, T> {
    type Output = Result<usize, SendError<usize>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(this.posts.len() <= PARTS_MAX, "send_to_any as a branch has at most {PARTS_MAX} senders");
        let (decision, _) = choice.offering(cx.waker());
        std::task::ready!(this.poll_begin(Some(decision.id()), cx));
        if let Some((part, sent)) = this.received.clone() {
            return if choice.commit() { this.end(part, sent) } else { Poll::Pending };
        }
        let decided = choice.decided_part();
        let mut parts: Vec<usize> = match decided {
            // The other parts are dead, and an extended receive may hold the value.
            Some(part) => vec![part],
            None => (0..this.posts.len()).collect(),
        };
        parts.sort_by_key(|part| this.posts[*part].0.record.sender.turn());
        for part in parts {
            let (chan, post) = &mut this.posts[part];
            choice.at_part(Some(part));
            let sent = chan.any().poll_send_pooled(post, &this.pool, cx, choice);
            if let Poll::Ready(sent) = sent {
                choice.at_part(None);
                return this.end(part, sent);
            }
        }
        choice.at_part(None);
        Poll::Pending
    }

    fn look(&self) -> Look {
        if self.slot.is_none() && !self.is_out {
            return Look::Off;
        }
        // The latest turn: with the earliest, a sender without a receiver would put this branch first each
        // time.
        Look::Maybe(self.posts.iter().map(|(chan, _)| chan.record.sender.turn()).max())
    }

    fn chosen(&self, turn: u32) {
        self.posts[self.sent].0.record.sender.set_turn(turn);
    }

    fn set_turn(&self, next: fn(Look) -> Option<u32>) {
        for (chan, _) in &self.posts {
            set_turn_of(chan, next);
        }
    }

    fn rouse(&self) {
        self.posts.iter().for_each(|(chan, _)| chan.rouse());
    }
}

impl<T> Future for SendingToAny<'_, T> {
    type Output = Result<usize, SendError<usize>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.slot.is_none() && !self.is_out {
            return Poll::Ready(Ok(0));
        }
        std::task::ready!(self.poll_begin(None, cx));
        if let Some((part, sent)) = self.received.clone() {
            return self.end(part, sent);
        }
        let Self { choosing, posts, pool, .. } = &mut *self;
        let mut result = Ok(());
        let chosen = std::task::ready!(choosing.poll(
            &mut |branch: usize, step: Step<'_, '_>| {
                if let Step::Survey(survey) = step {
                    for (number, (chan, _)) in posts.iter().enumerate() {
                        survey.see(number, Look::Maybe(Some(chan.record.sender.turn())));
                    }
                    return Poll::Pending;
                }
                let (chan, post) = &mut posts[branch];
                match step {
                    Step::Poll(cx, choice) => {
                        return chan.any().poll_send_pooled(post, pool, cx, choice).map(|sent| result = sent);
                    }
                    Step::Survey(_) | Step::Unchosen => {}
                    Step::Chosen(turn) => chan.record.sender.set_turn(turn),
                    Step::Rouse => chan.rouse(),
                    Step::Turn(next) => set_turn_of(chan, next),
                }
                Poll::Pending
            },
            cx
        ));
        self.end(chosen, result)
    }
}

impl<T> Drop for SendingToAny<'_, T> {
    fn drop(&mut self) {
        self.take_back();
    }
}
