//! The queue of a server, and what its loop takes from there.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dunlin_core::__rt::{ChoiceCx, Look};

use super::super::supervisor::Supervised;
use super::error::ReplaceError;
use super::me::{Info, Me};
use super::slot::Slot;
use crate::lock::lock;
use crate::{
    Branch, Mailbox, MailboxError, MonitorInto, Operation, Pid, Receiver, Receiving, RecvError, Reply, Result, mailbox,
    monitor_into,
};

/// What waits in the queue.
pub(super) enum Message<Q, A, C> {
    Call(Slot<Q>, Reply<A>),
    Cast(C),
    Replace(Replacement<Q, A, C>, Reply<Result<(), ReplaceError>>),
}

/// Makes the successor of a state, or gives a state of another type back.
pub(super) type Replacement<Q, A, C> =
    Box<dyn FnOnce(Box<dyn Any + Send>) -> Result<Box<dyn Body<Q, A, C>>, Box<dyn Any + Send>> + Send>;

/// A server of any type for these messages.
pub(super) trait Body<Q, A, C>: Send {
    /// Serves until the server ends, or its state is replaced.
    fn serve<'a>(self: Box<Self>, feed: &'a mut Feed<'_, Q, A, C>) -> Serving<'a, Q, A, C>;
}

pub(super) type Serving<'a, Q, A, C> = Pin<Box<dyn Future<Output = Turn<Q, A, C>> + Send + 'a>>;

/// How a state was left.
pub(super) enum Turn<Q, A, C> {
    Ended(Result),
    Replaced(Box<dyn Body<Q, A, C>>),
}

/// Which process serves: so that it does not call itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Served(Arc<Mutex<Option<Pid>>>);

impl Served {
    pub(super) fn set(&self, pid: Option<Pid>) {
        *lock(&self.0) = pid;
    }

    pub(super) fn by(&self) -> Option<Pid> {
        *lock(&self.0)
    }
}

/// The queue of a server whose loop is written by hand: made by [`requests`](super::requests). Dropping it
/// ends the server for its clients.
///
/// As the end of a channel, it can be [lent](crate::supervisor::Lent) to a supervised process.
pub struct Requests<Q, A, C> {
    queue: Receiver<Message<Q, A, C>>,
    served: Served,
    /// Calls that were dropped without a reply: their callers learn of it once this server goes on.
    dropped: Dropped<Q>,
}

type Dropped<Q> = Arc<Mutex<Vec<Slot<Q>>>>;

impl<Q, A, C> Requests<Q, A, C> {
    pub(super) fn new(queue: Receiver<Message<Q, A, C>>, served: Served) -> Self {
        Self { queue, served, dropped: Dropped::default() }
    }

    /// Waits for the next call or cast.
    ///
    /// A branch of a choice. Calls that have been withdrawn are skipped. A
    /// [replacement](super::Client::replace) is refused.
    ///
    /// # Errors
    /// [`RecvError::Closed`] when no client is left, and the queue is empty; [`RecvError::TimedOut`] when a
    /// deadline has passed.
    ///
    /// # Cancel safety
    /// If it is dropped, or not chosen, it has taken nothing.
    pub fn accept(&mut self) -> Accepting<'_, Q, A, C> {
        self.served.set(Pid::current());
        let dropped = std::mem::take(&mut *lock(&self.dropped));
        // A call that another process had received, which has ended, ends with its exit.
        dropped.iter().filter(|slot| slot.taken_by() == Pid::current()).for_each(Slot::handled);
        Accepting { queue: self.queue.recv(), dropped: &self.dropped }
    }
}

impl<Q, A, C> fmt::Debug for Requests<Q, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Requests").field(&self.queue.id()).finish()
    }
}

/// The operation of [`Requests::accept`].
#[must_use = "an operation does nothing until it is awaited or chosen"]
pub struct Accepting<'a, Q, A, C> {
    queue: Receiving<'a, Message<Q, A, C>>,
    dropped: &'a Dropped<Q>,
}

impl<Q, A, C> Accepting<'_, Q, A, C> {
    /// `None`: the message was withdrawn, or is refused.
    fn incoming(&self, message: Message<Q, A, C>) -> Option<Incoming<Q, A, C>> {
        match message {
            Message::Call(slot, reply) => {
                let request = slot.take(Pid::current())?;
                let done = Done { slot: Some(slot), dropped: self.dropped.clone() };
                Some(Incoming::Call(Asked { request, reply, done }))
            }
            Message::Cast(cast) => Some(Incoming::Cast(cast)),
            Message::Replace(_, reply) => {
                // A caller that has gone needs no answer.
                let _ = reply.send(Err(ReplaceError::OtherState));
                None
            }
        }
    }

    fn poll_with(
        &mut self,
        mut poll: impl FnMut(Pin<&mut Receiving<'_, Message<Q, A, C>>>) -> Poll<Result<Message<Q, A, C>, RecvError>>,
    ) -> Poll<Result<Incoming<Q, A, C>, RecvError>> {
        loop {
            let message = std::task::ready!(poll(Pin::new(&mut self.queue)))?;
            if let Some(incoming) = self.incoming(message) {
                return Poll::Ready(Ok(incoming));
            }
        }
    }
}

impl<Q, A, C> fmt::Debug for Accepting<'_, Q, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Accepting").field(&self.queue).finish()
    }
}

impl<Q, A, C> Future for Accepting<'_, Q, A, C> {
    type Output = Result<Incoming<Q, A, C>, RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(|queue| queue.poll(cx))
    }
}

impl<Q, A, C> Branch for Accepting<'_, Q, A, C> {
    type Output = Result<Incoming<Q, A, C>, RecvError>;

    fn poll_branch(mut self: Pin<&mut Self>, cx: &mut Context<'_>, choice: &ChoiceCx) -> Poll<Self::Output> {
        self.poll_with(|queue| queue.poll_branch(cx, choice))
    }

    fn look(&self) -> Look {
        self.queue.look()
    }

    fn chosen(&self, turn: u32) {
        self.queue.chosen(turn);
    }
}

impl<Q, A, C> Operation for Accepting<'_, Q, A, C> {
    fn poll_expire(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_with(|queue| queue.poll_expire(cx))
    }
}

/// What a hand-written server receives.
#[derive(Debug)]
pub enum Incoming<Q, A, C> {
    /// A call, to be replied to.
    Call(Asked<Q, A>),
    /// A cast.
    Cast(C),
}

/// A call that was received. It derefs to the request.
///
/// If it is dropped without a reply, the call fails: with the server's exit if the server ends, or with
/// [`NoReply`](super::ServerCallError::NoReply) when it accepts the next time.
#[must_use = "dropped without a reply, the call fails"]
pub struct Asked<Q, A> {
    request: Q,
    reply: Reply<A>,
    done: Done<Q>,
}

impl<Q, A> Asked<Q, A> {
    /// Replies; never waits.
    ///
    /// # Errors
    /// The answer, if the caller has gone.
    pub fn reply(self, answer: A) -> Result<(), A> {
        self.reply.send(answer)
    }

    /// Splits into the request and the place for its reply, which can be handed on. From then on the call
    /// does not end with this server, but with the place.
    pub fn split(mut self) -> (Q, Reply<A>) {
        self.done.slot.take().iter().for_each(Slot::handled);
        (self.request, self.reply)
    }
}

impl<Q, A> std::ops::Deref for Asked<Q, A> {
    type Target = Q;

    fn deref(&self) -> &Q {
        &self.request
    }
}

impl<Q, A> fmt::Debug for Asked<Q, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asked").finish_non_exhaustive()
    }
}

/// Leaves the slot of a call for the server's next accept.
struct Done<Q> {
    slot: Option<Slot<Q>>,
    dropped: Dropped<Q>,
}

impl<Q> Drop for Done<Q> {
    fn drop(&mut self) {
        lock(&self.dropped).extend(self.slot.take());
    }
}

/// What the loop of a server takes: calls, casts and infos, in the order in which each process has sent them.
pub(super) struct Feed<'a, Q, A, C> {
    requests: &'a mut Requests<Q, A, C>,
    infos: Mailbox<Info>,
    monitors: HashMap<Pid, MonitorInto>,
    /// An info that was received, and how many messages of the queue come before it: what its process has
    /// sent to the queue was there when its exit came.
    held: Option<(Info, usize)>,
    pub(super) me: Me,
    /// The server has asked for something that comes to `infos`.
    has_infos: bool,
    /// `None`: no supervisor requests a shutdown.
    pub(super) supervised: Option<Supervised>,
}

/// What has come first.
enum Came<Q, A, C> {
    Shutdown,
    Info(Result<Info, MailboxError>),
    /// The queue is closed when no client is left.
    Message(Result<Message<Q, A, C>, RecvError>),
}

/// What comes next.
pub(super) enum Event<Q, A, C> {
    Call(Slot<Q>, Q, Reply<A>),
    Cast(C),
    Info(Info),
    Replace(Replacement<Q, A, C>, Reply<Result<(), ReplaceError>>),
    /// The server ends in order.
    End,
}

impl<'a, Q, A, C> Feed<'a, Q, A, C> {
    pub(super) fn new(requests: &'a mut Requests<Q, A, C>, supervised: Option<Supervised>) -> Self {
        requests.served.set(Pid::current());
        let (_, infos) = mailbox();
        let (monitors, me) = (HashMap::new(), Me::default());
        Self { requests, infos, monitors, held: None, me, has_infos: false, supervised }
    }

    pub(super) async fn next(&mut self) -> Result<Event<Q, A, C>> {
        loop {
            if self.obey()? {
                return Ok(Event::End);
            }
            if let Some(info) = self.held.take_if(|(_, ahead)| *ahead == 0) {
                return Ok(Event::Info(info.0));
            }
            if let Some((_, ahead)) = &mut self.held {
                *ahead -= 1;
                if let Ok(message) = self.requests.queue.try_recv()
                    && let Some(event) = Self::event(message)
                {
                    return Ok(event);
                }
                continue;
            }
            match self.came().await {
                Came::Shutdown => return Ok(Event::End),
                Came::Info(info) => {
                    let info = info?;
                    if let Info::Down(down) = &info {
                        self.monitors.remove(&down.exit.pid);
                    }
                    self.held = Some((info, self.requests.queue.len()));
                }
                Came::Message(Err(_)) => return Ok(Event::End),
                Came::Message(Ok(message)) => {
                    if let Some(event) = Self::event(message) {
                        return Ok(event);
                    }
                }
            }
        }
    }

    /// Waits for what can come. That is no choice, which would cost several times a receive: none of these
    /// operations has taken anything when it is dropped. An info waits for what lies in the queue, so however
    /// many come, the queue has its turn.
    async fn came(&mut self) -> Came<Q, A, C> {
        let mut shutdown = self.supervised.as_mut().map(Supervised::requested);
        let mut infos = self.has_infos.then(|| self.infos.recv());
        let mut queue = self.requests.queue.recv();
        poll_fn(|cx| {
            if let Some(shutdown) = &mut shutdown
                && Pin::new(shutdown).poll(cx).is_ready()
            {
                return Poll::Ready(Came::Shutdown);
            }
            if let Some(infos) = &mut infos
                && let Poll::Ready(info) = Pin::new(infos).poll(cx)
            {
                return Poll::Ready(Came::Info(info));
            }
            Pin::new(&mut queue).poll(cx).map(Came::Message)
        })
        .await
    }

    /// `None`: a call that was withdrawn.
    fn event(message: Message<Q, A, C>) -> Option<Event<Q, A, C>> {
        Some(match message {
            Message::Call(slot, reply) => {
                let request = slot.take(Pid::current())?;
                Event::Call(slot, request, reply)
            }
            Message::Cast(cast) => Event::Cast(cast),
            Message::Replace(replacement, reply) => Event::Replace(replacement, reply),
        })
    }

    /// Does what the server has asked for. Returns whether it ends.
    fn obey(&mut self) -> Result<bool> {
        let Some(orders) = self.me.take() else { return Ok(false) };
        self.has_infos |= orders.exits || !orders.monitors.is_empty();
        if orders.exits {
            self.infos.exits()?;
        }
        for (pid, monitors) in orders.monitors {
            if !monitors {
                self.monitors.remove(&pid);
            } else if !self.monitors.contains_key(&pid) {
                self.monitors.insert(pid, monitor_into(pid, &self.infos));
            }
        }
        Ok(orders.stop)
    }
}
