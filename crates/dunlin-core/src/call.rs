//! Call channels: a request to the server, a reply back.
//!
//! A call is a send of the request together with a place for the reply, so all guarantees of sends hold for
//! calls. The reply fills that place and so never waits. The server's `accept` can be a branch of a choice. A
//! call has two commit points, so each half of it can be one ([`beginning`]), but not the whole.

mod beginning;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::channel::policy::Policy;
use crate::channel::receiver::{Receiver, Receiving};
use crate::channel::sender::{Sender, Sending};
use crate::channel::state::Chan;
use crate::choice::ChoiceCx;
use crate::choice::branch::{Branch, Look};
use crate::error::{CallError, RecvError, SendError};
use crate::operation::Operation;
use crate::reply::{Answer, Reply, channel_reply};
use crate::share::{Claimer, End, Lone, Retire, Shared, refuse_clone};
use crate::waits::{ChannelId, Doing};

pub use beginning::{BeginningCall, BeginningCallFrom, BegunCall};

/// The message type of a call channel.
type Asked<Q, A> = (Q, Reply<A>);

/// A call channel with requests `Q` and replies `A`.
///
/// # Examples
/// ```
/// use dunlin_core::{call, par};
/// # dunlin_core::doc::block_on(async {
/// let (mut caller, mut callee) = call::<u32, String>();
/// let (reply, ()) = par!(
///     caller.call(7),
///     async {
///         let ask = callee.accept().await.unwrap();
///         let text = format!("{} krill", *ask);
///         ask.reply(text).unwrap();
///     },
/// );
/// assert_eq!(reply.unwrap(), "7 krill");
/// # });
/// ```
///
/// # Source
/// Call channels of JCSP and occam3.
#[track_caller]
pub fn call<Q, A>() -> (Caller<Q, A>, Callee<Q, A>) {
    call_with(&Policy::default(), Location::caller())
}

pub(crate) fn call_with<Q, A>(policy: &Policy, made: &'static Location<'static>) -> (Caller<Q, A>, Callee<Q, A>) {
    let (requests, asked) = crate::channel::ends(policy, made);
    (Caller { requests }, Callee { asked })
}

/// The client's end of a call channel.
#[derive(Debug)]
pub struct Caller<Q, A> {
    pub(crate) requests: Sender<Asked<Q, A>>,
}

/// The server's end of a call channel.
#[derive(Debug)]
pub struct Callee<Q, A> {
    pub(crate) asked: Receiver<Asked<Q, A>>,
}

impl<Q, A> Caller<Q, A> {
    #[cfg(feature = "serde")]
    pub(crate) fn over(requests: Sender<Asked<Q, A>>) -> Self {
        Self { requests }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn requests(&self) -> &Sender<Asked<Q, A>> {
        &self.requests
    }

    #[cfg(feature = "serde")]
    pub(crate) fn into_inner(self) -> Sender<Asked<Q, A>> {
        self.requests
    }

    /// Sends the request and waits for the reply.
    ///
    /// It cannot be a branch of a choice, since it has two commit points; [`begin`](Self::begin) can.
    ///
    /// # Errors
    /// [`CallError::NotTaken`] with the request, if no server accepted it; [`CallError::NoReply`] if a server
    /// accepted and dropped it, or if a deadline passed after it was accepted.
    ///
    /// # Cancel safety
    /// If the call is dropped before a server accepts the request, it has not happened. After that, the
    /// server's reply fails.
    #[track_caller]
    pub fn call(&mut self, request: Q) -> Calling<'_, Sending<'_, Asked<Q, A>>, A> {
        let (reply, answer) = channel_reply();
        Calling { request: Some(self.requests.send((request, reply))), answer, borrows: PhantomData }
    }

    /// Whether no server will ever accept again.
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Ends the call channel in order: see [`Sender::retire`].
    pub fn retire(&self) {
        self.requests.retire();
    }

    /// Makes this an end that several processes can hold.
    pub fn share(self) -> Shared<Self> {
        End::share(self)
    }
}

impl<Q, A> End for Caller<Q, A> {
    type Link = Arc<Chan<Asked<Q, A>>>;

    fn link(&self) -> Self::Link {
        self.requests.link()
    }

    fn hold_back(link: &Self::Link, out: bool, claimer: Claimer) {
        Sender::<Asked<Q, A>>::hold_back(link, out, claimer);
    }

    fn channel(link: &Self::Link) -> Option<ChannelId> {
        Some(link.record.id())
    }
}

refuse_clone! { <Q, A> Caller<Q, A>; }

impl<Q, A> Retire for Caller<Q, A> {
    fn retire_claimed(&self, tell_keeper: impl FnOnce()) {
        self.requests.retire_claimed(tell_keeper);
    }
}

impl<Q, A> Shared<Caller<Q, A>> {
    /// Calls once: see [`Caller::call`]. Held back while another handle's claim is out.
    #[track_caller]
    pub fn call(&mut self, request: Q) -> Calling<'_, Lone<'_, Sending<'_, Asked<Q, A>>>, A> {
        let (reply, answer) = channel_reply();
        let request = Lone::new(self, Doing::Send, |chan, handle| Sending::by(chan, handle, (request, reply)));
        Calling { request: Some(request), answer, borrows: PhantomData }
    }
}

impl<Q, A> Callee<Q, A> {
    #[cfg(feature = "serde")]
    pub(crate) fn over(asked: Receiver<Asked<Q, A>>) -> Self {
        Self { asked }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn asked(&self) -> &Receiver<Asked<Q, A>> {
        &self.asked
    }

    #[cfg(feature = "serde")]
    pub(crate) fn into_inner(self) -> Receiver<Asked<Q, A>> {
        self.asked
    }

    /// Waits for a request.
    ///
    /// # Errors
    /// Those of [`Receiver::recv`].
    ///
    /// # Cancel safety
    /// If it is dropped before it is ready, it has accepted nothing.
    pub fn accept(&mut self) -> Accepting<'_, Q, A> {
        Accepting { asked: self.asked.recv() }
    }

    /// Ends the call channel in order: see [`Receiver::retire`].
    pub fn retire(&self) {
        self.asked.retire();
    }
}

pin_project_lite::pin_project! {
    /// The operation of [`Caller::call`].
    #[must_use = "an operation does nothing until it is awaited"]
    pub struct Calling<'a, O, A> {
        // `None` once the server has accepted the request.
        #[pin]
        request: Option<O>,
        #[pin]
        answer: Answer<A>,
        borrows: PhantomData<&'a mut ()>,
    }
}

impl<O, A> fmt::Debug for Calling<'_, O, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calling").field("accepted", &self.request.is_none()).finish()
    }
}

impl<O, Q, A> Future for Calling<'_, O, A>
where
    O: Future<Output = Result<(), SendError<Asked<Q, A>>>>,
{
    type Output = Result<A, CallError<Q>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(request) = this.request.as_mut().as_pin_mut() {
            let sent = std::task::ready!(request.poll(cx));
            this.request.set(None);
            if let Err(error) = sent {
                return Poll::Ready(Err(error.map(|(request, _)| request).into()));
            }
        }
        this.answer.poll(cx).map_err(CallError::NoReply)
    }
}

impl<O, Q, A> Operation for Calling<'_, O, A>
where
    O: Operation<Output = Result<(), SendError<Asked<Q, A>>>>,
{
    fn poll_expire(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(request) = this.request.as_mut().as_pin_mut() {
            let sent = std::task::ready!(request.poll_expire(cx));
            this.request.set(None);
            if let Err(error) = sent {
                return Poll::Ready(Err(error.map(|(request, _)| request).into()));
            }
        }
        Poll::Ready(this.answer.take().ok_or(CallError::NoReply(RecvError::TimedOut)))
    }
}

/// The operation of [`Callee::accept`].
#[derive(Debug)]
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Accepting<'a, Q, A> {
    asked: Receiving<'a, Asked<Q, A>>,
}

fn accepted<Q, A>(asked: Result<Asked<Q, A>, RecvError>) -> Result<Request<Q, A>, RecvError> {
    asked.map(|(request, reply)| Request { request, reply })
}

impl<Q, A> Future for Accepting<'_, Q, A> {
    type Output = Result<Request<Q, A>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.asked).poll(cx).map(accepted)
    }
}

impl<Q, A> Branch for Accepting<'_, Q, A> {
    type Output = Result<Request<Q, A>, RecvError>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        Pin::new(&mut self.asked).poll_branch(cx, choice).map(accepted)
    }

    fn look(&self) -> Look {
        self.asked.look()
    }

    fn chosen(&self, turn: u32) {
        self.asked.chosen(turn);
    }
}

impl<Q, A> Operation for Accepting<'_, Q, A> {
    fn poll_expire(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.asked).poll_expire(cx).map(accepted)
    }
}

/// An accepted request: it derefs to the request value.
///
/// If it is dropped without a reply, the call fails with [`CallError::NoReply`].
#[derive(Debug)]
#[must_use = "dropped without a reply, the call fails"]
pub struct Request<Q, A> {
    request: Q,
    reply: Reply<A>,
}

impl<Q, A> Request<Q, A> {
    /// Replies; never waits.
    ///
    /// # Errors
    /// The answer, if the caller has gone.
    pub fn reply(self, answer: A) -> Result<(), A> {
        self.reply.send(answer)
    }

    /// Splits into the request and the place for its reply.
    pub fn split(self) -> (Q, Reply<A>) {
        (self.request, self.reply)
    }
}

impl<Q, A> Deref for Request<Q, A> {
    type Target = Q;

    fn deref(&self) -> &Q {
        &self.request
    }
}
