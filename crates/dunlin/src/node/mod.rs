//! Nodes: a program's membership in an application, whose programs find each other's channels by name.
//!
//! ```
//! use dunlin::prelude::*;
//!
//! # dunlin::block_on(async {
//! // Two nodes; usually they are in two programs.
//! let names = "memory:weather-names";
//! let here = Node::builder().app("weather").names(names).listen("memory:").join().await?;
//! let there = Node::builder().app("weather").names(names).listen("memory:").join().await?;
//!
//! let mut readings = here.receiver::<f64>("readings").await?; // any end first
//! let mut thermometer = there.sender::<f64>("readings").await?;
//! let (sent, received) = par!(thermometer.send(21.5), readings.recv());
//! sent?; // Ok: it was received, over there
//! assert_eq!(received?, 21.5);
//!
//! there.leave().await?;
//! here.leave().await
//! # }).unwrap();
//! ```
//!
//! # Names
//!
//! A name service joins the two ends of a name, whichever is declared first. It is not needed afterwards: the
//! two nodes have a connection of their own. An end of a name has one holder, and a second declaration of it
//! is refused ([`NameError::Refused`]), unless both declare it as [shared](Naming::shared): then each holds a
//! handle of it.
//!
//! These rules hold only among the nodes that reach the same name service:
//!
//! - **One address** (with [`NodeBuilder::names`]): the node at that address serves the names. While it
//!   cannot be reached, no end is admitted: a declaration waits, as [`Node::waiting`] shows. So a split
//!   network never joins a name twice. (A restarted service knows no earlier declaration until the other
//!   nodes have reconnected: an end that is declared in that interval may be admitted first.)
//! - **Several addresses** (the default, on loopback): where no service answers, the next free address gets
//!   one. The new service waits for 3 seconds before it admits new ends; ends that were joined or admitted
//!   before return in that time. But two services that cannot reach each other both admit ends, because the
//!   network is split or one was stalled for longer than the grace period. So a name may be joined twice,
//!   once in each part.
//! - **When the services meet**, the one at the later address gives way: every 5 seconds it looks for a
//!   service at an earlier address. All its users declare their ends anew, and the earlier service's ends
//!   take precedence. Of the ends that come second, an unjoined one is refused: its operations fail, poisoned
//!   with the reason. A joined pair continues beside the other, and both its nodes are notified by
//!   [`Node::conflicts`]. New ends of the name have to fit the first pair; when that pair ends, the name
//!   belongs to the second.
//!
//! A service lists a server until the service itself has given up the server's node. A client that is led to
//! a dead server waits for its own whole [grace period](NodeBuilder::grace), and is only then declared anew.
//!
//! # Programs of different age
//!
//! When an end is declared, its messages are compared with those of the other end: kinds, and names of fields
//! and variants, including those of ends that messages carry. What one side writes must be readable by the
//! other; [`Encoding`] lists the differences that are allowed. Otherwise the end that comes second is
//! refused with the first difference ([`NameError::Mismatch`]): "`Order.items[].price`: u32 there, text
//! here". The end that was declared first stands. Its node learns which node was refused, and why, from
//! [`NodeEvent::Mismatch`], [`Node::waiting`], and the text of a deadline that passes at that end
//! ([`Why::Unmatched`](dunlin_core::Why::Unmatched)). The shape of a type is derived from its `Deserialize`,
//! which is called once for that purpose, without data; so a type has to write what it reads. A type that
//! depends on the bytes (`untagged`, internally and adjacently tagged enums, `flatten`) cannot be analysed:
//! it must have the same name at both ends.
//!
//! # Nodes that cannot dial each other
//!
//! A firewall or an address translator may let a node dial out, and block all dials to it. It is enough that
//! each node can dial one that others have a connection with, such as the one that serves the names. If a
//! node cannot dial another, the node that introduced them (by a name, or by an end in a message) asks the
//! other to dial back. If that fails, the introducer *relays*: all traffic between the two goes through it,
//! which is slower, and the relay could read it. [`Node::peers`] and [`Node::connections`] show which
//! connections are relayed, and by which node. When the relay is lost, others that both are connected
//! with are asked. If none relays within the grace period, the connection ends, as if the other node were
//! lost. [`NodeBuilder::relay`] stops a node from relaying.
//!
//! # Roles, and leaving in order
//!
//! Nodes are equals unless they are given roles: [`roles`] has a main node and members, which wait for it
//! when they join, and for which it waits when it leaves. A program may join several applications, with a
//! node of each; an end of one application does not go over the other. State that the program itself keeps
//! serves both: handles of a shared end, enrolments on a barrier, and joiners of a broadcast go over either,
//! each through the node of its application. From the node that receives them they continue over the
//! application by which they came (an enrolment over either). A shared face belongs to the application in
//! which it is claimed first. A claimant in the other application uses it through this program, and whatever
//! can go over both goes over it.
//!
//! # How a node ends
//!
//! - **[`Node::leave`]** waits until the other nodes have acknowledged everything, for at most 5 seconds, and
//!   returns an error that lists those that have not.
//! - **`main` returns.** Under `#[dunlin::main]`, `#[dunlin::test]` and [`block_on`](crate::block_on), each
//!   node that has not left leaves then, whether `main` returns `Ok` or an error, or panics. All nodes
//!   together may take 1 second; of that a [main node](roles) gives its members 0.3 seconds. A warning counts
//!   the values that were not acknowledged by then. It is a `tracing` event; a program without a subscriber
//!   gets it on its standard error.
//! - **The last handle of a node is dropped** while its runtime continues: the node leaves in the background,
//!   as `leave` does; but a main node gives its members 1 second. Ends of the node that are still held end.
//!   The same warning counts what was not acknowledged after 5 seconds.
//! - **The runtime ends first**, such as one of `#[tokio::main]`: the node sends nothing more. The warning
//!   counts the values that were not acknowledged; await `leave` before the runtime ends.
//! - **The process exits** by `std::process::exit` or a signal: the same, without a warning.
//!
//! # What `Ok` means
//!
//! This section is about sends to a receiver at another node. If both ends are at one node, no value is in
//! transit, and `Ok` has the meaning that the policy gives it.
//!
//! | the receiver's channel | a send returns `Ok` when | after `Ok` the value is lost if |
//! |---|---|---|
//! | rendezvous (the default) | the receiver has received it | never |
//! | [`fifo`](crate::fifo), [`unbounded`](crate::unbounded) | a place in the buffer is promised to it; it may still be on its way | it is not acknowledged when the sender's node or the connection ends; or not received when the receiver or its node ends |
//! | [`overwrite_oldest`](crate::overwrite_oldest), [`overwrite_newest`](crate::overwrite_newest), a bound on [pending senders](crate::Policy::pending_senders), a policy of one's own | the buffer at the receiver's node has admitted it | a later value overwrites it, as the policy says; or it is not received when the receiver or its node ends |
//! | [`drop_newest`](crate::drop_newest) | it is at the receiver's node | the buffer was full; or it is not received when the receiver or its node ends |
//! | a [call](crate::call()) | the reply is there | never |
//! | a [broadcast](crate::broadcast()) | each receiver has received it | never |
//!
//! A [posted](crate::Sender::send_nowait) value counts as one whose send has not returned: its handle has the
//! outcome. A [reply](crate::Reply) to a call does not wait; the caller has the outcome.
//!
//! | event | a value in a FIFO or unbounded buffer whose send has returned `Ok` |
//! |---|---|
//! | [`Node::flush`] returns `Ok` | is at the receiver's node: lost only if the receiver or its node ends before receiving it |
//! | the sender is dropped, or [retires](crate::Sender::retire) the channel | is received before `Closed` |
//! | the sender's node leaves, its last handle is dropped, or `main` returns | is received, unless the other node does not acknowledge it in time: that is an error of `leave`, otherwise a warning (of `tracing`, or on standard error if the program has no subscriber) |
//! | the sender's runtime ends first | is lost if it is not acknowledged yet; the same warning counts such values |
//! | the sender's program is killed | is lost if it is not acknowledged yet |
//! | the connection breaks, and is back within the [grace](NodeBuilder::grace) | is received, once |
//! | the connection breaks for longer | is received if it had arrived; otherwise it is lost, and the next send fails with `NodeLost` |
//! | the receiver is dropped, its node leaves, or its program is killed | is lost if it is not received yet |
//! | the channel is poisoned, from either end | is destroyed if it is not received yet |
//! | the value turns out to be [too large](NodeBuilder::message_max_bytes), or cannot be encoded | is lost; the channel is poisoned, and the next `flush` or `leave` of this node fails with [`NodeError::Unwritten`] |
//!
//! None of these means that the receiving program has processed a value. For that use a call: the server
//! replies when the work is done.
//!
//! # What happens to a node
//!
//! [`Node::events`] is a channel of the node's events: nodes that join and leave, states of connections,
//! refusals and their reasons, limits that were reached, and the closing of the application. `tracing` has
//! the same events for people, under the target `dunlin::node`, with the fields `application` and `peer`; it
//! also has where a node listens and dials, and which node serves the names. No event is written for a value.
//!
//! # What there is
//!
//! - [`Node`], [`NodeBuilder`]: join an application, leave it; [`Unacknowledged`]: a node that had not
//!   acknowledged everything;
//! - [`roles`], [`Role`]: a main node and members;
//! - [`NodeEvent`], [`Limit`]: what happens to a node;
//! - [`Naming`]: how an end is declared: shared or not, what it expects of the other end, how its messages
//!   are encoded;
//! - [`Guest`]: a client of an acceptor;
//! - [`Peer`], [`ConnectionState`], [`Route`], [`Down`]: the other nodes, the states of the connections to
//!   them, and why one ended; [`Traffic`]: what they have carried;
//! - [`Encoding`]: how messages are encoded;
//!
//! In the folder: `driver.rs` drives the protocol machine of `dunlin-proto`, `carrier.rs` one socket,
//! `bridge/` connects it with the channels of the core, `message.rs` and `codec` turn values into bytes,
//! `hub/` handles names, `mailboxes.rs` mailboxes, `signals/` processes, `events.rs` reports events,
//! `leaving.rs` and `ending.rs` end a node.

mod applicant;
mod arrivals;
mod bell;
mod bridge;
mod budget;
mod builder;
mod carrier;
pub(crate) mod codec;
mod driver;
mod ending;
mod error;
mod events;
#[cfg(test)]
mod far;
mod files;
mod halves;
mod hub;
mod id;
mod identity;
pub mod inquiry;
mod leaving;
#[cfg(feature = "link")]
#[doc(hidden)]
pub mod link;
mod listen;
mod log;
pub(crate) mod mailboxes;
mod memory;
mod message;
mod name;
#[cfg(unix)]
mod own;
mod peer;
mod post;
mod records;
mod replies;
mod role;
pub mod roles;
mod schema;
mod serve;
mod sharing;
pub(crate) mod signals;
#[cfg(feature = "sim")]
mod simulated;
mod state;
mod trim;
mod unsaid;
mod watch;
mod watching;
pub(crate) mod words;
mod work;

use std::fmt;
use std::future::{IntoFuture, poll_fn};
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use dunlin_core::agent::{Inlet, Lack, Outlet};
use dunlin_core::carrier::{AnyInlet, AnyOutlet};
use dunlin_core::{ChannelFactory, Pairing, Policy, Portable, Receiver, Sender};
use dunlin_proto::id::Life;
use dunlin_proto::wire::Face;
use tokio::sync::mpsc::error::TrySendError;

use crate::net::compiled_here;
pub use applicant::Applicant;
pub use builder::NodeBuilder;
pub use codec::Encoding;
pub use dunlin_proto::wire::NoRelay;
pub use dunlin_proto::{Down, Traffic};
pub use dunlin_schema::Difference;
pub(crate) use ending::{Nodes, works_for};
pub use error::{Advice, NameError, NodeError, Unacknowledged, UnsettledEnd, Unwritten};
pub use events::{Limit, NodeEvent, Refusals};
use hub::{Acceptance, Accepted, Half, Waiting};
pub use hub::{Guest, WaitingEnd};
pub use inquiry::Inquirer;
pub use listen::{LISTEN_PORTS, NAMES_PORTS};
pub(crate) use memory::memory_here;
pub use name::Expects;
pub use peer::{ConnectionState, NameConflict, Peer, Route};
pub use records::Records;
pub use role::Role;
use roles::Roles;
pub(crate) use schema::of_messages;
pub use sharing::Many;
use state::Driver;
use unsaid::Abandoned;

use crate::config::Config;
use crate::lock::lock;
use crate::world::{self, Own};

/// One program's membership in an application. Cloning gives another handle of the same node.
///
/// Tasks of the node encode, decode and drop its messages (and so run their `Serialize`, `Deserialize` and
/// `Drop`). A message for which that takes long, or which waits for something, delays only its own channel;
/// but it occupies a thread of the runtime meanwhile. A message that panics poisons its channel.
///
/// A node stays in its program: it is not [`Portable`], alone or in a message; only ends go to another
/// program.
/// ```compile_fail,E0277
/// # use dunlin::prelude::*;
/// fn portable<T: Portable>() {}
/// portable::<Node>();
/// ```
///
/// # Examples
/// See the [module](self).
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<Driver>,
    me: Life,
    config: Config,
    addresses: Vec<String>,
    listening: Vec<String>,
    roles: Arc<Roles>,
    /// Tasks that listen, look for the name service, and maintain the node's role.
    tasks: Mutex<Vec<Own>>,
    /// The node's host in a simulation.
    #[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "nothing is ever simulated"))]
    host: u64,
}

impl Node {
    /// Joins an application as its [configuration](crate::config) specifies. Without one: over TCP on
    /// loopback, with the name service at port 7400, which this node serves itself if no other node does. If
    /// another application has that port, or its owner does not answer, the next one is tried, up to 7415.
    ///
    /// A name belongs to one pair while the nodes reach one name service; [names](self#names) describes what
    /// holds otherwise.
    ///
    /// # Errors
    /// See [`NodeBuilder::join`].
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[track_caller]
    pub fn join(application: &str) -> impl Future<Output = Result<Self, NodeError>> + Send + use<> {
        Self::builder().app(application).join()
    }

    /// A node with other settings.
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    /// This node's identity, for logs.
    pub fn me(&self) -> Peer {
        Peer(self.inner.me)
    }

    /// The application's name.
    pub fn application(&self) -> &str {
        &self.inner.config.app.value
    }

    /// All its settings, and where each came from.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The addresses that other nodes dial: see [`NodeBuilder::advertise`].
    pub fn addresses(&self) -> &[String] {
        &self.inner.addresses
    }

    /// Where this node listens, with the chosen ports where it asked for free ones.
    pub fn listening(&self) -> &[String] {
        &self.inner.listening
    }

    /// The sending end of the channel of this name; `host:port/name` asks the node at that address instead of
    /// the name service.
    ///
    /// It can be used before a node has the receiver: sends wait until then. A [deadline](crate::Deadline)
    /// that passes meanwhile reports that no receiver has declared the name
    /// ([`Why::Unmatched`](dunlin_core::Why::Unmatched)).
    ///
    /// # Errors
    /// [`NameError`], when the builder is awaited. A later failure (a receiver that does not fit) poisons the
    /// channel.
    #[track_caller]
    pub fn sender<T: Portable>(&self, name: &str) -> Naming<'_, Sender<T>> {
        self.naming(name, Face::Sender)
    }

    /// The receiving end of the channel of this name. Its [policy](Naming::policy) is the channel's.
    ///
    /// # Errors
    /// [`NameError`], when the builder is awaited.
    #[track_caller]
    pub fn receiver<T: Portable>(&self, name: &str) -> Naming<'_, Receiver<T>> {
        self.naming(name, Face::Receiver)
    }

    /// The client's face of the bundle of this name.
    ///
    /// # Errors
    /// [`NameError`], when the builder is awaited.
    #[track_caller]
    pub fn client<B: Pairing + 'static>(&self, name: &str) -> Naming<'_, Client<B>>
    where
        B::Client: Portable,
        B::Server: Portable,
    {
        self.naming(name, Face::Client)
    }

    /// The server's face of the bundle of this name, for one client.
    ///
    /// # Errors
    /// [`NameError`], when the builder is awaited.
    #[track_caller]
    pub fn server<B: Pairing + 'static>(&self, name: &str) -> Naming<'_, Server<B>>
    where
        B::Client: Portable,
        B::Server: Portable,
    {
        self.naming(name, Face::Server)
    }

    /// A receiver of guests: of a fresh server's face for each client of this name. A client cannot
    /// distinguish an acceptor from a server.
    ///
    /// A [deadline](crate::Deadline) of its `recv` that passes before the first client arrives reports that
    /// no client has declared the name ([`RecvError::Unmatched`](dunlin_core::RecvError::Unmatched)).
    ///
    /// # Errors
    /// [`NameError`], when the builder is awaited.
    #[track_caller]
    pub fn acceptor<B: Pairing + 'static>(&self, name: &str) -> Naming<'_, Acceptor<B>>
    where
        B::Client: Portable,
        B::Server: Portable + Send,
    {
        self.naming(name, Face::Acceptor)
    }

    /// The records that the node holds for channels.
    #[doc(hidden)]
    pub fn records(&self) -> Records {
        self.inner.driver.with(|state, _| Records::of(state, state.hub.as_deref()))
    }

    /// How many numbered frames this node has received: while it does not grow, other nodes send it nothing.
    #[doc(hidden)]
    pub fn heard(&self) -> u64 {
        self.inner.driver.with(|state, _| state.machine.census().heard)
    }

    /// Whether the node is still processing what it has received or what its ends have sent, perhaps on a
    /// separate thread.
    #[doc(hidden)]
    pub fn is_at_work(&self) -> bool {
        // First ends that wait under a name and have been used get their bridges now.
        self.inner.driver.with(|_, _| ());
        self.inner.driver.with(|state, _| state.is_at_work())
    }

    /// The node's host in its simulation.
    #[cfg(feature = "sim")]
    pub(crate) fn host(&self) -> u64 {
        self.inner.host
    }

    #[track_caller]
    fn naming<E: Declared>(&self, name: &str, face: Face) -> Naming<'_, E> {
        let said = self.inner.config.channels.get(name::split(name).1);
        let message_max = said.and_then(|said| said.message_max_bytes.value);
        let policy = said.and_then(|said| said.policy.value.as_ref()).map(|(_, policy)| policy.clone());
        let naming = Naming::new(&self.inner.driver, name, face);
        let options = hub::Options { message_max, ..naming.options };
        Naming { options, policy: policy.unwrap_or_default(), ..naming }
    }

    /// The nodes that this one has connections with, and the current route of each: also whether it is
    /// relayed, and by which node (see [`NodeBuilder::relay`]).
    pub fn peers(&self) -> Vec<(Peer, Route)> {
        self.inner.driver.with_hub_now(|hub, cx| hub.peers(cx))
    }

    /// What this node and each other one have carried between them, over all their connections. It covers the
    /// nodes that this one is connected with, and the last 64 others. Traffic that a node relays counts at
    /// its connections with both; traffic that is relayed for this node counts at the connection with the
    /// relay too.
    pub fn traffic(&self) -> Vec<(Peer, Traffic)> {
        self.inner
            .driver
            .with(|state, _| state.machine.traffic().map(|(life, traffic)| (Peer(life), traffic)).collect())
    }

    /// The ends of this node that wait for their other end, and what was refused because it does not fit
    /// them.
    pub fn waiting(&self) -> Vec<WaitingEnd> {
        self.inner.driver.with_hub_now(|hub, cx| hub.waiting(cx.now))
    }

    /// Asks the node at this address for pings, and for the names that it knows. Without an address it asks
    /// the node that serves the application's names. Every node answers these questions by itself.
    ///
    /// # Errors
    /// [`NameError::Unreachable`]; [`NameError::TimedOut`], if no node answered within `patience`.
    pub fn inquire<'a>(
        &'a self,
        address: Option<&'a str>,
        patience: Duration,
    ) -> impl Future<Output = Result<Inquirer, NameError>> + Send + 'a {
        compiled_here(Inquirer::new(self, address, patience))
    }

    /// Whether this node serves the application's names.
    pub fn serves_names(&self) -> bool {
        self.inner.driver.with_hub_now(|hub, _| hub.serves_names())
    }
}

impl Inner {
    fn stop(&self) -> Vec<Own> {
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.iter().for_each(Own::abort);
        tasks
    }
}

impl Drop for Inner {
    /// A node on which `leave` was not called leaves now, in a task of its own.
    fn drop(&mut self) {
        // A node with a role keeps its tasks until it has left, as in `leave`: they inform the other nodes.
        let tasks = match self.roles.role() {
            Some(_) => std::mem::take(&mut *lock(&self.tasks)),
            None => {
                self.stop();
                Vec::new()
            }
        };
        // Leaving is deferred: a message may own the last handle, and be dropped under the node's lock.
        self.driver.abandon(Abandoned { roles: self.roles.clone(), tasks });
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.inner.me).field("application", &self.application()).finish()
    }
}

/// Stands for a bundle's client's face in [`Naming`].
pub type Client<B> = ClientOf<B, <B as Pairing>::Client>;

/// Stands for a bundle's server's face in [`Naming`].
pub type Server<B> = ServerOf<B, <B as Pairing>::Server>;

/// Stands for a receiver of guests in [`Naming`].
pub type Acceptor<B> = AcceptorOf<B, <B as Pairing>::Server>;

// The second parameter is the type that these resolve with, and does not depend on `B`: if `B` is no bundle,
// the compiler reports that of `client::<B>`, and nothing more of its `.await`.
/// See [`Client`].
#[doc(hidden)]
#[derive(Debug)]
pub struct ClientOf<B, Face>(PhantomData<(B, Face)>);

/// See [`Server`].
#[doc(hidden)]
#[derive(Debug)]
pub struct ServerOf<B, Face>(PhantomData<(B, Face)>);

/// See [`Acceptor`].
#[doc(hidden)]
#[derive(Debug)]
pub struct AcceptorOf<B, Face>(PhantomData<(B, Face)>);

/// An end that is to be declared: await it.
///
/// # Cancel safety
/// If it is dropped while it is awaited, the declaration is withdrawn.
#[must_use = "the end is declared when this is awaited"]
pub struct Naming<'a, E: Kind> {
    driver: &'a Arc<Driver>,
    name: String,
    options: hub::Options,
    policy: Policy,
    /// Where the end was requested: the wait records name this as the place where its channels were made.
    made: &'static Location<'static>,
    declare: Declare<'a, E>,
}

/// Declares an end, and returns its number too. It is chosen where the end is requested, so an end that
/// cannot be declared is an error there, and not once more at the `.await`.
type Declare<'a, E> = fn(Naming<'a, E>) -> Named<'a, (<E as Kind>::End, u64)>;

impl<'a, E: Kind> Naming<'a, E> {
    #[track_caller]
    fn new(driver: &'a Arc<Driver>, name: &str, face: Face) -> Self
    where
        E: Declared,
    {
        let options = hub::Options { face, ..hub::Options::default() };
        let made = Location::caller();
        Self { driver, name: name.to_owned(), options, policy: Policy::default(), made, declare: E::declare }
    }

    /// Makes the channels of the end.
    fn factory(&self) -> ChannelFactory {
        ChannelFactory::default().made_at(self.made)
    }

    /// A name of the node's own, which programs cannot declare.
    fn reserved(mut self) -> Self {
        self.options.reserved = true;
        self
    }

    /// What this end expects of the other one. If the two do not fit, the end that comes second is refused.
    pub fn expects(mut self, expects: Expects) -> Self {
        self.options.expects = expects.into();
        self
    }

    /// How messages are encoded. Both ends must agree.
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.options.encoding = encoding;
        self
    }

    /// How long the end may wait to be admitted. After that it fails with [`NameError::TimedOut`], and the
    /// declaration is withdrawn. Default: it waits until a name service can be reached, and [`Node::waiting`]
    /// lists it.
    pub fn within(mut self, patience: Duration) -> Self {
        self.options.patience = Some(patience);
        self
    }

    /// The largest encoded message that this node accepts under this name, in bytes, if that is less than
    /// [the node's](NodeBuilder::message_max_bytes). A larger one is not sent: its send fails with
    /// [`Why::TooLarge`](dunlin_core::Why::TooLarge). Default: the limit in the
    /// [configuration](crate::config) for a channel of this name. It applies to messages that this node
    /// receives from another one, and does not go with a receiver that is handed on.
    pub fn message_max_bytes(mut self, bytes: u64) -> Self {
        self.options.message_max = Some(bytes);
        self
    }

    /// If the connection loses its socket, operations fail at once instead of waiting for it to resume.
    pub fn fail_fast(mut self) -> Self {
        self.options.fail_fast = true;
        self
    }
}

impl<T> Naming<'_, Receiver<T>> {
    /// The channel's policy. Default: the policy in the [configuration](crate::config) for a channel of this
    /// name, or else rendezvous. For values from another node a buffer is also full when they exceed
    /// [`NodeBuilder::buffered_max_bytes`].
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = policy.into();
        self
    }
}

impl<E: Kind> fmt::Debug for Naming<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Naming").field("name", &self.name).field("options", &self.options).finish()
    }
}

/// What a [`Naming`] resolves with.
pub type Named<'a, E> = Pin<Box<dyn Future<Output = Result<E, NameError>> + Send + 'a>>;

/// What a [`Naming`] can declare: a [`Sender`], a [`Receiver`], a [`Client`], a [`Server`], an [`Acceptor`],
/// or [`Many`].
pub trait Kind: Sized {
    /// What it resolves with.
    type End;
}

/// What can be declared.
#[doc(hidden)]
pub trait Declared: Kind {
    /// Declares it, and returns its number too.
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self::End, u64)>;
}

#[diagnostic::do_not_recommend]
impl<'a, E: Kind + 'a> IntoFuture for Naming<'a, E> {
    type Output = Result<E::End, NameError>;
    type IntoFuture = Named<'a, E::End>;

    fn into_future(self) -> Self::IntoFuture {
        let declared = (self.declare)(self);
        Box::pin(async move { Ok(declared.await?.0) })
    }
}

impl<T> Kind for Sender<T> {
    type End = Self;
}

impl<T: Portable> Declared for Sender<T> {
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self, u64)> {
        Box::pin(async move {
            let (tx, rx) = naming.factory().channel::<T>();
            let outlet = AnyOutlet::from(Outlet::new(rx));
            let schema = schema::of_messages::<T>(naming.options.encoding);
            let number = naming.driver.declare(&naming.name, naming.options, schema, Half::Sender(outlet)).await?;
            Ok((tx, number))
        })
    }
}

impl<T> Kind for Receiver<T> {
    type End = Self;
}

impl<T: Portable> Declared for Receiver<T> {
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self, u64)> {
        Box::pin(async move {
            let (tx, rx) = naming.factory().with(naming.policy).channel::<T>();
            let inlet = AnyInlet::from(Inlet::new(tx));
            let schema = schema::of_messages::<T>(naming.options.encoding);
            let number = naming.driver.declare(&naming.name, naming.options, schema, Half::Receiver(inlet)).await?;
            Ok((rx, number))
        })
    }
}

impl<B, Face> Kind for ClientOf<B, Face> {
    type End = Face;
}

impl<B: Pairing + 'static> Declared for Client<B>
where
    B::Client: Portable,
    B::Server: Portable,
{
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self::End, u64)> {
        Box::pin(async move {
            let (client, server) = B::pair(&naming.factory());
            let agents = hub::agents_of(server)?;
            let schema = schema::of_messages::<B::Client>(naming.options.encoding);
            let number = naming.driver.declare(&naming.name, naming.options, schema, Half::Client(agents)).await?;
            Ok((client, number))
        })
    }
}

impl<B, Face> Kind for ServerOf<B, Face> {
    type End = Face;
}

impl<B: Pairing + 'static> Declared for Server<B>
where
    B::Client: Portable,
    B::Server: Portable,
{
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self::End, u64)> {
        Box::pin(async move {
            let (client, server) = B::pair(&naming.factory());
            let agents = hub::agents_of(client)?;
            let schema = schema::of_messages::<B::Client>(naming.options.encoding);
            let number = naming.driver.declare(&naming.name, naming.options, schema, Half::Server(agents)).await?;
            Ok((server, number))
        })
    }
}

impl<B, Face> Kind for AcceptorOf<B, Face> {
    type End = Receiver<Guest<Face>>;
}

impl<B: Pairing + 'static> Declared for Acceptor<B>
where
    B::Client: Portable,
    B::Server: Portable,
{
    fn declare(naming: Naming<'_, Self>) -> Named<'_, (Self::End, u64)> {
        Box::pin(async move {
            // A bundle that cannot be stretched is refused now, not when the first guest arrives.
            let factory = naming.factory();
            let (client, _server) = B::pair(&factory);
            let ends = hub::agents_of(client)?.len();
            let (mut door, guests) = factory.channel::<Guest<B::Server>>();
            let (welcomed, mut queue) = tokio::sync::mpsc::channel(hub::GUESTS_MAX);
            let lack = Lack::of(&door);
            let mut waiting = Waiting::default();
            let accept = Box::new(move |peer, source, garbage: &mut Vec<Box<dyn Send>>| {
                let (client, server) = B::pair(&factory);
                let agents = hub::agents_of(client).ok()?;
                let guest = Guest::new(server, Peer(peer));
                let waits = welcomed.max_capacity() - welcomed.capacity();
                if let (true, Err(max)) = (!welcomed.is_closed(), waiting.admit(source, waits)) {
                    garbage.push(Box::new((guest, agents)));
                    return Some(Accepted { agents: Vec::new(), full: Some(max) });
                }
                match welcomed.try_send(guest) {
                    Ok(()) => Some(Accepted { agents, full: None }),
                    Err(TrySendError::Full(guest) | TrySendError::Closed(guest)) => {
                        garbage.push(Box::new(guest));
                        None
                    }
                }
            });
            let accept = Acceptance::new(accept, ends, Box::new(move |missing| lack.unmatched(missing)));
            let driver = naming.driver;
            let schema = schema::of_messages::<B::Client>(naming.options.encoding);
            let number = driver.declare(&naming.name, naming.options, schema, Half::Acceptor(accept)).await?;
            let driver = Arc::downgrade(driver);
            world::spawn_own(async move {
                while let Some(guest) = next_guest(&mut door, &mut queue).await {
                    if door.send(guest).await.is_err() {
                        break;
                    }
                }
                if let Some(driver) = driver.upgrade() {
                    driver.give_up(number);
                }
            });
            Ok((guests, number))
        })
    }
}

/// `None`: the receiver of guests has ended, or no more guests can arrive.
async fn next_guest<S>(
    door: &mut Sender<Guest<S>>,
    queue: &mut tokio::sync::mpsc::Receiver<Guest<S>>,
) -> Option<Guest<S>> {
    let mut closed = pin!(door.closed());
    poll_fn(|cx| if closed.as_mut().poll(cx).is_ready() { Poll::Ready(None) } else { queue.poll_recv(cx) }).await
}
