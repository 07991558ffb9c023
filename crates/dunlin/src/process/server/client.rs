//! The clients of a server.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use dunlin_core::__rt::{Answer, reply};

use super::error::{ReplaceError, ServerCallError};
use super::queue::{Message, Replacement, Served};
use super::slot::{Fate, Slot};
use crate::{Monitor, Operation, Pid, SendError, Sender, Shared, Why, monitor};

/// Calls a server, and casts to it. It can be cloned, for other processes.
///
/// What one process sends to a server, by whichever clients, arrives in the order sent. A server that was
/// [started](super::Server::start) ends when its last client is dropped.
pub struct Client<Q, A, C> {
    queue: Shared<Sender<Message<Q, A, C>>>,
    served: Served,
    /// Of the process that served at the first call: so that its exit is known if it ends during a call.
    monitor: Option<Monitor>,
}

impl<Q, A, C> Client<Q, A, C> {
    pub(super) fn new(queue: Shared<Sender<Message<Q, A, C>>>, served: Served) -> Self {
        Self { queue, served, monitor: None }
    }

    /// Sends a call, and waits for its reply. The call waits in the server's queue, and `call` does not wait
    /// for room there.
    ///
    /// # Errors
    /// [`ServerCallError::NotTaken`] with the call, if no server has received it, also by the deadline
    /// ([`within`](crate::Deadline::within)); [`ServerCallError::TimedOut`] if one has, and has not replied
    /// by then; [`ServerCallError::Exit`] if it has ended; [`ServerCallError::NoReply`] if it has dropped the
    /// reply; [`ServerCallError::Oneself`] in the process that serves.
    ///
    /// The exit is [`NoSuchProcess`](crate::ExitReason::NoSuchProcess) if another process had served at the
    /// first call of this client, and this one had ended before its exit could be asked for.
    ///
    /// # Cancel safety
    /// If it is dropped before a server has received the call, the call has not happened. After that, the
    /// reply is dropped.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::server::{Server, ServerCallError};
    ///
    /// struct Sleeper;
    /// impl Server for Sleeper {
    ///     type Call = Duration;
    ///     type Reply = ();
    ///     type Cast = ();
    ///     async fn call(&mut self, how_long: Duration) -> Result {
    ///         sleep(how_long).await;
    ///         Ok(())
    ///     }
    /// }
    /// # dunlin::block_on(async {
    /// let mut client = Sleeper.start();
    /// let hour = Duration::from_secs(3600);
    /// let slept = client.call(hour).within(Duration::from_millis(5)).await;
    /// assert_eq!(slept, Err(ServerCallError::TimedOut));
    /// // The server sleeps, and has not received this one.
    /// let slept = client.call(hour).within(Duration::from_millis(5)).await;
    /// assert_eq!(slept.unwrap_err().into_call(), Some(hour));
    /// # });
    /// ```
    ///
    /// # Source
    /// `gen_server:call` of Erlang/OTP, whose late replies lie in the caller's mailbox.
    pub fn call(&mut self, request: Q) -> Calling<'_, Q, A, C> {
        Calling { client: self, phase: Phase::Unsent(request) }
    }

    /// Sends a message without a reply; never waits.
    ///
    /// # Errors
    /// [`SendError::NotTaken`] with the message: the server has ended ([`Why::Closed`]), or its queue is full
    /// ([`Why::WouldBlock`], or what its policy says).
    pub fn cast(&mut self, cast: C) -> Result<(), SendError<C>> {
        let sent = self.queue.try_send(Message::Cast(cast));
        sent.map_err(|error| {
            error.map(|message| match message {
                Message::Cast(cast) => cast,
                Message::Call(..) | Message::Replace(..) => unreachable!("a send returns its own value"),
            })
        })
    }

    /// The process that serves, if one does.
    pub fn pid(&self) -> Option<Pid> {
        self.served.by().filter(|pid| pid.is_alive())
    }

    /// Whether the server has ended, and no other will serve this queue.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    pub(super) async fn send_replacement(&mut self, replacement: Replacement<Q, A, C>) -> Result<(), ReplaceError> {
        if is_oneself(self.served.by()) {
            return Err(ReplaceError::Oneself);
        }
        let (reply, answer) = reply();
        match self.queue.try_send(Message::Replace(replacement, reply)) {
            Ok(()) => answer.await.unwrap_or(Err(ReplaceError::Ended)),
            Err(error) => Err(ReplaceError::NotTaken(error.why().cloned().unwrap_or(Why::Closed))),
        }
    }
}

/// Whether the process that serves is the calling one.
fn is_oneself(served: Option<Pid>) -> bool {
    served.is_some_and(Pid::is_current)
}

impl<Q, A, C> Clone for Client<Q, A, C> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), served: self.served.clone(), monitor: None }
    }
}

impl<Q, A, C> fmt::Debug for Client<Q, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.served.by()).finish()
    }
}

/// The operation of [`Client::call`].
///
/// It is no branch of a choice, since a choice could not undo a call that a server has received.
#[must_use = "an operation does nothing until it is awaited"]
pub struct Calling<'a, Q, A, C> {
    client: &'a mut Client<Q, A, C>,
    phase: Phase<Q, A>,
}

enum Phase<Q, A> {
    Unsent(Q),
    Sent(Slot<Q>, Answer<A>),
    /// The reply was dropped by a server that had not done with the call.
    Ending(Slot<Q>, Option<Monitor>),
    Done,
}

// Nothing in it is pinned.
impl<Q, A, C> Unpin for Calling<'_, Q, A, C> {}

impl<Q, A, C> Calling<'_, Q, A, C> {
    /// Sends the call.
    fn send(&mut self, request: Q) -> Result<Phase<Q, A>, ServerCallError<Q>> {
        let served = self.client.served.by();
        if is_oneself(served) {
            return Err(ServerCallError::Oneself(request));
        }
        if let Some(pid) = served
            && self.client.monitor.as_ref().is_none_or(|monitor| monitor.pid() != pid)
        {
            self.client.monitor = Some(monitor(pid));
        }
        let slot = Slot::new(request);
        let (reply, answer) = reply();
        match self.client.queue.try_send(Message::Call(slot.clone(), reply)) {
            Ok(()) => Ok(Phase::Sent(slot, answer)),
            Err(error) => {
                let why = error.why().cloned().unwrap_or(Why::Closed);
                // A message that was not sent has been received by no server.
                let call = slot.withdraw().unwrap_or_else(|| unreachable!("a call was received and not sent"));
                Err(ServerCallError::NotTaken { call, why })
            }
        }
    }

    /// The reply was dropped.
    fn poll_fate(
        &mut self,
        slot: Slot<Q>,
        other: Option<Monitor>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<A, ServerCallError<Q>>> {
        let mut other = other;
        let pid = match slot.fate(cx) {
            Fate::NotTaken(call) => {
                let why = if self.client.queue.is_closed() { Why::Closed } else { Why::Refused };
                return Poll::Ready(Err(ServerCallError::NotTaken { call, why }));
            }
            Fate::NoReply => return Poll::Ready(Err(ServerCallError::NoReply)),
            Fate::TakenBy(pid) => pid,
        };
        let own = self.client.monitor.as_mut().filter(|monitor| monitor.pid() == pid);
        let exit = match own {
            Some(monitor) => Pin::new(monitor).poll(cx),
            None => Pin::new(other.get_or_insert_with(|| monitor(pid))).poll(cx),
        };
        if exit.is_pending() {
            self.phase = Phase::Ending(slot, other);
        }
        exit.map(|exit| Err(ServerCallError::Exit(exit)))
    }
}

impl<Q, A, C> fmt::Debug for Calling<'_, Q, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Calling").field(&self.client).finish()
    }
}

impl<Q, A, C> Future for Calling<'_, Q, A, C> {
    type Output = Result<A, ServerCallError<Q>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match std::mem::replace(&mut this.phase, Phase::Done) {
                Phase::Unsent(request) => this.phase = this.send(request)?,
                Phase::Sent(slot, mut answer) => match Pin::new(&mut answer).poll(cx) {
                    Poll::Ready(Ok(answer)) => return Poll::Ready(Ok(answer)),
                    Poll::Ready(Err(_)) => this.phase = Phase::Ending(slot, None),
                    Poll::Pending => {
                        this.phase = Phase::Sent(slot, answer);
                        return Poll::Pending;
                    }
                },
                Phase::Ending(slot, other) => return this.poll_fate(slot, other, cx),
                Phase::Done => panic!("a call was polled after it was ready"),
            }
        }
    }
}

impl<Q, A, C> Operation for Calling<'_, Q, A, C> {
    fn poll_expire(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let withdrawn = |call| Err(ServerCallError::NotTaken { call, why: Why::TimedOut });
        Poll::Ready(match std::mem::replace(&mut self.phase, Phase::Done) {
            Phase::Unsent(call) => withdrawn(call),
            Phase::Sent(slot, mut answer) => match slot.withdraw() {
                Some(call) => withdrawn(call),
                None => answer.take().ok_or(ServerCallError::TimedOut),
            },
            Phase::Ending(..) | Phase::Done => Err(ServerCallError::TimedOut),
        })
    }
}

impl<Q, A, C> Drop for Calling<'_, Q, A, C> {
    fn drop(&mut self) {
        if let Phase::Sent(slot, _) = &self.phase {
            // Dropped outside of the slot's lock.
            let withdrawn = slot.withdraw();
            drop(withdrawn);
        }
    }
}
