//! The first half of a call: a branch that is chosen when the server has accepted the request. The second
//! half, the reply, is what it returns.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Asked, Caller};
use crate::channel::sender::{Spare, expire};
use crate::channel::state::{Chan, Post};
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{CallError, Failed, RecvError};
use crate::handle::Handle;
use crate::operation::Operation;
use crate::reply::{Answer, channel_reply_at};
use crate::share::{Lone, Shared};
use crate::turn::Turn;
use crate::waits::Doing;

impl<Q, A> Caller<Q, A> {
    /// Sends the request, and gives the reply to await: [`call`](Self::call) in two halves.
    ///
    /// It is ready when the server has accepted the request, and returns the [`BegunCall`]. That borrows
    /// nothing, so several calls may be under way. In a choice, `Q` must be `Copy`: otherwise an unchosen
    /// branch would drop the request. Use [`begin_from`](Self::begin_from) there.
    ///
    /// # Errors
    /// [`CallError::NotTaken`] with the request, if no server accepted it, or the deadline passed before;
    /// [`CallError::Unknown`] only if the server's node is lost.
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, no server has accepted the request.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{call, par};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut caller, mut callee) = call::<u32, u32>();
    /// let (first, second) = par!(
    ///     async { (caller.begin(7).await.unwrap(), caller.begin(8).await.unwrap()) },
    ///     async { (callee.accept().await.unwrap(), callee.accept().await.unwrap()) },
    /// );
    /// second.1.reply(80).unwrap();
    /// second.0.reply(70).unwrap();
    /// assert_eq!((first.0.await, first.1.await), (Ok(70), Ok(80)));
    /// # });
    /// ```
    #[track_caller]
    pub fn begin(&mut self, request: Q) -> BeginningCall<'_, Q, A> {
        BeginningCall { request: Some(request), asking: Asking::new(self.requests.chan(), Handle::END) }
    }

    /// As [`begin`](Self::begin), with the request in `slot`, which is empty if and only if a server has
    /// accepted it.
    ///
    /// An empty slot has no request: as a branch of a choice the operation is off; awaited, it is ready at
    /// once, and there is no reply.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin); the request is in `slot`.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, it puts the request back into `slot`.
    ///
    /// # Examples
    /// ```
    /// use dunlin_core::{alt, call, channel, par};
    /// # dunlin_core::doc::block_on(async {
    /// let (mut caller, mut callee) = call::<String, usize>();
    /// let (_tx, mut rx) = channel::<u8>();
    /// let mut slot = Some("krill".to_string());
    /// let (length, ()) = par!(
    ///     async {
    ///         alt! {
    ///             begun = caller.begin_from(&mut slot) => begun.unwrap().await.unwrap(),
    ///             _ = rx.recv() => 0,
    ///         }
    ///     },
    ///     async {
    ///         let ask = callee.accept().await.unwrap();
    ///         let length = ask.len();
    ///         ask.reply(length).unwrap();
    ///     },
    /// );
    /// assert_eq!((length, slot), (5, None));
    /// # });
    /// ```
    #[track_caller]
    pub fn begin_from<'a>(&'a mut self, slot: &'a mut Option<Q>) -> BeginningCallFrom<'a, Q, A> {
        BeginningCallFrom { slot, asking: Asking::new(self.requests.chan(), Handle::END) }
    }
}

impl<Q, A> Shared<Caller<Q, A>> {
    /// Begins one call: see [`Caller::begin`]. Held back while another handle's claim is out.
    #[track_caller]
    pub fn begin(&mut self, request: Q) -> Lone<'_, BeginningCall<'_, Q, A>> {
        let made = Location::caller();
        Lone::new(self, Doing::Send, |chan, handle| BeginningCall {
            request: Some(request),
            asking: Asking::made(chan, handle, made),
        })
    }

    /// Begins one call: see [`Caller::begin_from`]. Held back while another handle's claim is out.
    #[track_caller]
    pub fn begin_from<'a>(&'a mut self, slot: &'a mut Option<Q>) -> Lone<'a, BeginningCallFrom<'a, Q, A>> {
        let made = Location::caller();
        Lone::new(self, Doing::Send, |chan, handle| BeginningCallFrom {
            slot,
            asking: Asking::made(chan, handle, made),
        })
    }
}

/// A request that is offered. The request itself is in its operation's slot before the first poll, and goes
/// back there at the end if no server has accepted it.
struct Asking<'a, Q, A> {
    chan: &'a Chan<Asked<Q, A>>,
    post: Post,
    asked: Option<Asked<Q, A>>,
    /// Made with the first offer.
    answer: Option<Answer<A>>,
    made: &'static Location<'static>,
}

impl<'a, Q, A> Asking<'a, Q, A> {
    #[track_caller]
    fn new(chan: &'a Chan<Asked<Q, A>>, handle: Handle) -> Self {
        Self::made(chan, handle, Location::caller())
    }

    fn made(chan: &'a Chan<Asked<Q, A>>, handle: Handle, made: &'static Location<'static>) -> Self {
        Self { chan, post: Post::new(handle), asked: None, answer: None, made }
    }

    fn poll(
        &mut self,
        slot: &mut Option<Q>,
        cx: &mut Context<'_>,
        choice: Option<&ChoiceCx>,
    ) -> Poll<Result<BegunCall<A>, Failed>> {
        if self.answer.is_none() {
            let (reply, answer) = channel_reply_at(self.made);
            self.asked = slot.take().map(|request| (request, reply));
            self.answer = Some(answer);
        }
        let sent = match choice {
            Some(choice) => self.chan.poll_send_chosen(&mut self.post, &mut self.asked, cx, choice),
            None => self.chan.poll_send(&mut self.post, &mut self.asked, cx),
        };
        Poll::Ready(self.end(ready!(sent), slot))
    }

    fn poll_expire(&mut self, slot: &mut Option<Q>, cx: &mut Context<'_>) -> Poll<Result<BegunCall<A>, Failed>> {
        if self.answer.is_none() {
            return Poll::Ready(Err(self.chan.send_timed_out().into()));
        }
        let sent = ready!(expire(self.chan, &mut self.post, &mut self.asked, cx));
        Poll::Ready(self.end(sent, slot))
    }

    fn end(&mut self, sent: Result<(), Failed>, slot: &mut Option<Q>) -> Result<BegunCall<A>, Failed> {
        let back = self.asked.take().map(|(request, _)| request);
        let answer = self.answer.take().expect("a call that has begun is not polled again");
        match (sent, back) {
            (Err(failed), Some(request)) => {
                *slot = Some(request);
                Err(failed)
            }
            _ => Ok(BegunCall { answer }),
        }
    }

    /// Withdraws the offer. The request is in `slot`, unless a server has accepted it.
    fn abandon(&mut self, slot: &mut Option<Q>) {
        self.chan.abandon(&mut self.post, &mut self.asked);
        if let Some((request, _)) = self.asked.take() {
            *slot = Some(request);
        }
    }
}

/// The operation of [`Caller::begin`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct BeginningCall<'a, Q, A> {
    request: Option<Q>,
    asking: Asking<'a, Q, A>,
}

// The request is never pinned: it moves through the channel.
impl<Q, A> Unpin for BeginningCall<'_, Q, A> {}

impl<Q, A> BeginningCall<'_, Q, A> {
    fn outcome(&mut self, begun: Result<BegunCall<A>, Failed>) -> Result<BegunCall<A>, CallError<Q>> {
        begun.map_err(|failed| {
            let request = self.request.take().expect("a failed send returns its value");
            failed.with(request).into()
        })
    }
}

impl<Q, A> Future for BeginningCall<'_, Q, A> {
    type Output = Result<BegunCall<A>, CallError<Q>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let begun = ready!(this.asking.poll(&mut this.request, cx, None));
        Poll::Ready(this.outcome(begun))
    }
}

impl<Q: Spare, A> Branch for BeginningCall<'_, Q, A> {
    type Output = Result<BegunCall<A>, CallError<Q>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        let begun = ready!(this.asking.poll(&mut this.request, cx, Some(choice)));
        Poll::Ready(this.outcome(begun))
    }

    fn look(&self) -> Look {
        Look::Maybe(Some(self.asking.chan.record.sender.turn()))
    }

    fn chosen(&self, turn: u32) {
        self.asking.chan.record.sender.set_turn(turn);
    }

    fn rouse(&self) {
        self.asking.chan.rouse();
    }
}

impl<Q, A> Operation for BeginningCall<'_, Q, A> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let begun = ready!(this.asking.poll_expire(&mut this.request, cx));
        Poll::Ready(this.outcome(begun))
    }

    fn turn(&self) -> Turn {
        self.asking.post.turn(self.asking.chan.any())
    }
}

impl<Q, A> Drop for BeginningCall<'_, Q, A> {
    fn drop(&mut self) {
        self.asking.abandon(&mut self.request);
    }
}

/// The operation of [`Caller::begin_from`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct BeginningCallFrom<'a, Q, A> {
    slot: &'a mut Option<Q>,
    asking: Asking<'a, Q, A>,
}

impl<Q, A> Unpin for BeginningCallFrom<'_, Q, A> {}

/// The error alone: the request is in the slot.
fn without_request<A>(begun: Result<BegunCall<A>, Failed>) -> Result<BegunCall<A>, CallError<()>> {
    begun.map_err(|failed| failed.with(()).into())
}

impl<Q, A> Future for BeginningCallFrom<'_, Q, A> {
    type Output = Result<BegunCall<A>, CallError<()>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.asking.poll(this.slot, cx, None).map(without_request)
    }
}

impl<Q, A> Branch for BeginningCallFrom<'_, Q, A> {
    type Output = Result<BegunCall<A>, CallError<()>>;

    fn poll_branch(self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.asking.poll(this.slot, cx, Some(choice)).map(without_request)
    }

    fn look(&self) -> Look {
        if self.slot.is_none() && self.asking.answer.is_none() {
            return Look::Off;
        }
        Look::Maybe(Some(self.asking.chan.record.sender.turn()))
    }

    fn chosen(&self, turn: u32) {
        self.asking.chan.record.sender.set_turn(turn);
    }

    fn rouse(&self) {
        self.asking.chan.rouse();
    }
}

impl<Q, A> Operation for BeginningCallFrom<'_, Q, A> {
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        this.asking.poll_expire(this.slot, cx).map(without_request)
    }

    fn turn(&self) -> Turn {
        self.asking.post.turn(self.asking.chan.any())
    }
}

impl<Q, A> Drop for BeginningCallFrom<'_, Q, A> {
    fn drop(&mut self) {
        self.asking.abandon(self.slot);
    }
}

/// A call whose request a server has accepted: await it for the reply.
///
/// It is an operation, with deadlines and as a branch of a choice. It borrows nothing, and its [`Caller`] may
/// be dropped meanwhile.
///
/// # Errors
/// [`CallError::NoReply`]: the server has dropped the request, ended, or been lost with its node; or the
/// deadline has passed. An operation with a deadline takes a borrow, `(&mut begun).within(..)`, if the reply
/// is to be awaited again.
///
/// # Cancel safety
/// Dropped, it refuses the reply: the server's reply fails. A choice that takes another branch takes no
/// reply; borrow it there, `&mut begun`.
#[must_use = "dropped, the server's reply fails"]
pub struct BegunCall<A> {
    answer: Answer<A>,
}

impl<A> Future for BegunCall<A> {
    type Output = Result<A, CallError<()>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(cx).map_err(CallError::NoReply)
    }
}

impl<A> Branch for BegunCall<A> {
    type Output = Result<A, CallError<()>>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        choice.poll_foreign(false, || self.as_mut().poll(cx))
    }

    fn unchosen(&self) {
        self.answer.unwatch();
    }
}

impl<A> Operation for BegunCall<A> {
    fn poll_expire(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(self.answer.take().ok_or(CallError::NoReply(RecvError::TimedOut)))
    }
}

impl<A> fmt::Debug for BegunCall<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BegunCall").finish_non_exhaustive()
    }
}

impl<Q, A> fmt::Debug for BeginningCall<'_, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BeginningCall").field(&self.asking.chan.record.id()).finish()
    }
}

impl<Q, A> fmt::Debug for BeginningCallFrom<'_, Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BeginningCallFrom").field(&self.asking.chan.record.id()).finish()
    }
}
