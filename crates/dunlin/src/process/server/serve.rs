//! What a server does, and the loop around it.

use std::any::{Any, type_name};
use std::time::Duration;

use super::super::supervisor::{Child, Lent, Supervised};
use super::client::Client;
use super::error::ReplaceError;
use super::me::{Info, Me};
use super::queue::{Body, Event, Feed, Message, Requests, Served, Serving, Turn};
use crate::{Error, ExitReason, Outcome, Policy, Reply, Result, unbounded};

/// A generic server: a process with a state, which serves calls and casts one after the other.
///
/// A call has a reply, a cast has none. Infos are what else reaches it: ends of processes. What one process
/// sends it arrives in the order sent.
///
/// A method that returns an error ends the server: callers that wait for a reply get its exit. So does a
/// method that panics, or the `Drop` of a value in it. An error that a caller should see is a part of
/// `Reply`.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::server::Server;
///
/// #[derive(Default)]
/// struct Counter(u64);
///
/// impl Server for Counter {
///     type Call = u64;
///     type Reply = u64;
///     type Cast = ();
///
///     async fn call(&mut self, n: u64) -> Result<u64> {
///         self.0 += n;
///         Ok(self.0)
///     }
///
///     async fn cast(&mut self, (): ()) -> Result {
///         self.0 = 0;
///         Ok(())
///     }
/// }
/// # dunlin::block_on(async {
/// let mut counter = Counter::default().start();
/// assert_eq!(counter.call(2).await?, 2);
/// counter.cast(())?;
/// assert_eq!(counter.call(3).within(Duration::from_secs(5)).await?, 3);
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
///
/// # Source
/// `gen_server` of Erlang/OTP; in Scheme, Termite (Germain, Feeley and Monnier, 2006).
pub trait Server: Send + Sized + 'static {
    /// What a call asks.
    type Call: Send + 'static;
    /// What it is answered.
    type Reply: Send + 'static;
    /// What a cast says.
    type Cast: Send + 'static;

    /// Runs first, in the server's process. Calls and casts wait.
    ///
    /// # Errors
    /// They end the server, without [`terminate`](Self::terminate).
    fn init(&mut self, me: &Me) -> impl Future<Output = Result> + Send {
        let _ = me;
        async { Ok(()) }
    }

    /// Serves a call: the value is the reply.
    ///
    /// A server without it, as one that takes only casts or has its own [`answer`](Self::answer), ends with
    /// an error at a call.
    ///
    /// # Errors
    /// They end the server.
    fn call(&mut self, call: Self::Call) -> impl Future<Output = Result<Self::Reply>> + Send {
        drop(call);
        async { Err(Error::other(format!("the server {} has no `call`", type_name::<Self>()))) }
    }

    /// Serves a call with the place for its reply, which can be kept, or handed on to another process; by
    /// default, with [`call`](Self::call).
    ///
    /// If the place is dropped and the server goes on, the call ends with
    /// [`NoReply`](super::ServerCallError::NoReply). Once it is handed on, the end of the server does not end
    /// the call.
    ///
    /// # Errors
    /// They end the server.
    fn answer(&mut self, call: Self::Call, reply: Reply<Self::Reply>) -> impl Future<Output = Result> + Send {
        async {
            let answer = self.call(call).await?;
            // A caller that has gone needs no answer.
            let _ = reply.send(answer);
            Ok(())
        }
    }

    /// Serves a cast. A server without it ends with an error at a cast.
    ///
    /// # Errors
    /// They end the server.
    fn cast(&mut self, cast: Self::Cast) -> impl Future<Output = Result> + Send {
        drop(cast);
        async { Err(Error::other(format!("the server {} has no `cast`", type_name::<Self>()))) }
    }

    /// Serves what it has asked for by [`Me`]. A server without it ignores infos.
    ///
    /// # Errors
    /// They end the server.
    fn info(&mut self, info: Info) -> impl Future<Output = Result> + Send {
        drop(info);
        async { Ok(()) }
    }

    /// Runs last, when the server ends in order or with an error of its own; not when it panics, is cancelled
    /// or is killed.
    fn terminate(&mut self, ended: &Result) -> impl Future<Output = ()> + Send {
        let _ = ended;
        async {}
    }

    /// Starts the server as a process, with an unbounded queue. It ends when all clients are dropped.
    ///
    /// # Panics
    /// As [`spawn`](crate::spawn()).
    fn start(self) -> ClientOf<Self> {
        self.start_with(unbounded())
    }

    /// Starts the server with a queue of this policy, which needs a buffer: `fifo(100)` refuses calls and
    /// casts beyond a hundred that wait.
    ///
    /// # Panics
    /// As [`spawn`](crate::spawn()).
    fn start_with(self, queue: impl Into<Policy>) -> ClientOf<Self> {
        let (client, mut requests, served) = queue_of(queue.into());
        let process = crate::spawn_named(type_name::<Self>(), async move {
            let reason = run(self, &mut requests, None).await.exit_reason();
            if reason != ExitReason::Normal {
                // So links, monitors and callers learn of it.
                let _ = crate::exit(reason).await;
            }
        });
        // So it is also known before its first step.
        served.set(Some(process.pid()));
        client
    }
}

fn queue_of<Q, A, C>(policy: Policy) -> (Client<Q, A, C>, Requests<Q, A, C>, Served) {
    let (messages, queue) = crate::channel_with::<Message<Q, A, C>>(policy);
    let served = Served::default();
    let client = Client::new(messages.share(), served.clone());
    (client, Requests::new(queue, served.clone()), served)
}

/// Makes the queue of a server that is written by hand, and its client. The policy needs a buffer.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::server::{Incoming, requests};
/// # dunlin::block_on(async {
/// let (mut client, mut requests) = requests::<u32, String, ()>(fifo(8));
/// let (_tx, mut rx) = channel::<u8>();
/// let (reply, ()) = par!(client.call(7), async {
///     alt! { // being called is a branch of a choice
///         incoming = requests.accept() => match incoming.unwrap() {
///             Incoming::Call(asked) => {
///                 let text = format!("{} krill", *asked);
///                 asked.reply(text).unwrap();
///             }
///             Incoming::Cast(()) => {}
///         },
///         value = rx.recv() => panic!("{value:?}"),
///     }
/// });
/// assert_eq!(reply.unwrap(), "7 krill");
/// # });
/// ```
pub fn requests<Q, A, C>(policy: impl Into<Policy>) -> (Client<Q, A, C>, Requests<Q, A, C>) {
    let (client, requests, _) = queue_of(policy.into());
    (client, requests)
}

/// How long a supervised server's `init` may take.
const START_WITHIN: Duration = Duration::from_secs(5);

/// A server as the child of a supervisor, and its client. Each of its processes begins with a state that
/// `make` makes in it. The queue is lent to them, so what waits there at a crash is served by the successor.
///
/// It has started when its [`init`](Server::init) has returned, within 5 seconds. When the supervisor
/// requests its shutdown, it ends in order.
///
/// # Examples
/// ```
/// use dunlin::prelude::*;
/// use dunlin::server::{self, Server, ServerCallError};
/// use dunlin::supervisor::Supervisor;
///
/// #[derive(Default)]
/// struct Divider;
/// impl Server for Divider {
///     type Call = (u32, u32);
///     type Reply = u32;
///     type Cast = ();
///     async fn call(&mut self, (a, b): (u32, u32)) -> Result<u32> {
///         Ok(a / b)
///     }
/// }
/// # dunlin::block_on(async {
/// let (mut divider, child) = server::child("divider", unbounded(), Divider::default);
/// let tree = Supervisor::one_for_one().with(child).spawn();
/// assert!(matches!(divider.call((1, 0)).await, Err(ServerCallError::Exit(_))));
/// assert_eq!(divider.call((6, 2)).await, Ok(3)); // its successor
/// tree.shutdown();
/// tree.await??;
/// # Ok::<(), Error>(())
/// # }).unwrap();
/// ```
pub fn child<S: Server>(
    name: &str,
    queue: impl Into<Policy>,
    make: impl Fn() -> S + Send + Sync + 'static,
) -> (ClientOf<S>, Child) {
    type Queue<S> = Requests<<S as Server>::Call, <S as Server>::Reply, <S as Server>::Cast>;

    let (client, requests, _) = queue_of(queue.into());
    let serve = move |mut requests: Lent<Queue<S>>, supervised| {
        let state = make();
        async move { run(state, &mut requests, Some(supervised)).await }
    };
    (client, Child::lent(name, requests, serve).start_within(START_WITHIN))
}

/// The clients of a server of this type.
pub type ClientOf<S> = Client<<S as Server>::Call, <S as Server>::Reply, <S as Server>::Cast>;

async fn run<S: Server>(
    mut state: S,
    requests: &mut Requests<S::Call, S::Reply, S::Cast>,
    supervised: Option<Supervised>,
) -> Result {
    let mut feed = Feed::new(requests, supervised);
    state.init(&feed.me).await?;
    feed.supervised.iter_mut().for_each(Supervised::ready);
    let mut serving: Box<dyn Body<S::Call, S::Reply, S::Cast>> = body(state);
    loop {
        match serving.serve(&mut feed).await {
            Turn::Ended(ended) => return ended,
            Turn::Replaced(successor) => serving = successor,
        }
    }
}

impl<Q, A, C> Client<Q, A, C> {
    /// Replaces the server's state by `f` of it, between two messages, and waits for that. What waits in its
    /// queue stays. The successor can be of another type that serves the same messages; its
    /// [`init`](Server::init) is not called. If `f` panics, the server ends.
    ///
    /// A supervisor that starts the server again starts what its specification says.
    ///
    /// # Errors
    /// [`ReplaceError::OtherState`] if the state is not an `S`: the server goes on with it. The others if the
    /// server did not get to it.
    ///
    /// # Cancel safety
    /// If it is dropped, the state is still replaced.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    /// use dunlin::server::{ReplaceError, Server};
    ///
    /// struct Counter(u64);
    /// impl Server for Counter {
    ///     type Call = u64;
    ///     type Reply = u64;
    ///     type Cast = ();
    ///     async fn call(&mut self, n: u64) -> Result<u64> {
    ///         self.0 += n;
    ///         Ok(self.0)
    ///     }
    /// }
    ///
    /// struct Doubling(u64);
    /// impl Server for Doubling {
    ///     type Call = u64;
    ///     type Reply = u64;
    ///     type Cast = ();
    ///     async fn call(&mut self, n: u64) -> Result<u64> {
    ///         self.0 += 2 * n;
    ///         Ok(self.0)
    ///     }
    /// }
    /// # dunlin::block_on(async {
    /// let mut client = Counter(0).start();
    /// assert_eq!(client.call(2).await, Ok(2));
    /// client.replace(|Counter(n)| Doubling(n)).await.unwrap();
    /// assert_eq!(client.call(2).await, Ok(6));
    /// let again = client.replace(|Counter(n)| Doubling(n)).await;
    /// assert_eq!(again, Err(ReplaceError::OtherState));
    /// # });
    /// ```
    pub async fn replace<S, S2>(&mut self, f: impl FnOnce(S) -> S2 + Send + 'static) -> Result<(), ReplaceError>
    where
        S: Server<Call = Q, Reply = A, Cast = C>,
        S2: Server<Call = Q, Reply = A, Cast = C>,
    {
        self.send_replacement(Box::new(|state| Ok(body(f(*state.downcast()?))))).await
    }
}

fn body<S: Server>(state: S) -> Box<dyn Body<S::Call, S::Reply, S::Cast>> {
    Box::new(State(state))
}

struct State<S>(S);

impl<S: Server> Body<S::Call, S::Reply, S::Cast> for State<S> {
    fn serve<'a>(
        self: Box<Self>,
        feed: &'a mut Feed<'_, S::Call, S::Reply, S::Cast>,
    ) -> Serving<'a, S::Call, S::Reply, S::Cast> {
        Box::pin(serve(self.0, feed))
    }
}

async fn serve<S: Server>(
    mut state: S,
    feed: &mut Feed<'_, S::Call, S::Reply, S::Cast>,
) -> Turn<S::Call, S::Reply, S::Cast> {
    let ended = loop {
        let event = match feed.next().await {
            Ok(event) => event,
            Err(error) => break Err(error),
        };
        let served = match event {
            Event::Call(slot, call, reply) => {
                let served = state.answer(call, reply).await;
                if served.is_ok() {
                    slot.handled();
                }
                served
            }
            Event::Cast(cast) => state.cast(cast).await,
            Event::Info(info) => state.info(info).await,
            Event::Replace(replacement, reply) => {
                let before: Box<dyn Any + Send> = Box::new(state);
                // A caller that has gone needs no answer.
                match replacement(before) {
                    Ok(successor) => {
                        let _ = reply.send(Ok(()));
                        return Turn::Replaced(successor);
                    }
                    Err(same) => {
                        let _ = reply.send(Err(ReplaceError::OtherState));
                        state = *same.downcast().expect("a state of another type comes back as it was");
                        Ok(())
                    }
                }
            }
            Event::End => break Ok(()),
        };
        if let Err(error) = served {
            break Err(error);
        }
    };
    state.terminate(&ended).await;
    Turn::Ended(ended)
}
