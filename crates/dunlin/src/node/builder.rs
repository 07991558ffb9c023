//! Settings of a node, and how it joins.

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin_core::agent;
use dunlin_proto::Machine;
use dunlin_proto::id::{Incarnation, Life};
use dunlin_proto::names::{NameService, Registry, RegistryConfig};
use ipnet::IpNet;

use super::applicant::{Applicant, Authorize};
use super::error::NodeError;
use super::hub::Hub;
use super::identity::Key;
use super::log::Log;
use super::role::Role;
use super::roles::{JoinWait, Settings};
use super::state::Driver;
use super::{Inner, Node, Peer, ending, files, id, listen, message, roles, serve};
use crate::config::{Config, Origin, Sources, is_application};
use crate::net::{Network, Networks, compiled_here};
use crate::world;

/// Settings of a node: see [`Node::builder`].
#[derive(Default)]
#[must_use = "a builder makes no node until `join` is awaited"]
pub struct NodeBuilder {
    application: Option<String>,
    named: Option<String>,
    source: Source,
    listen: Vec<String>,
    advertise: Vec<String>,
    names: Option<String>,
    serves_names: Option<bool>,
    networks: Networks,
    grace: Option<Duration>,
    refused: Option<Duration>,
    heartbeat: Option<Duration>,
    message_max: Option<u64>,
    buffered_max: Option<u64>,
    held_max: Option<u64>,
    straight_min: Option<u64>,
    relay: Option<bool>,
    dial_local: Option<bool>,
    relayed: Option<bool>,
    trusted_sources: Option<Vec<IpNet>>,
    authorize: Option<Authorize>,
    pub(super) roles: Settings,
}

/// Where the configuration comes from.
#[derive(Debug, Default)]
enum Source {
    #[default]
    Search,
    Read(Sources),
    Nowhere,
}

impl NodeBuilder {
    /// The application's name: nodes of different applications refuse each other. 1 to 64 bytes, without
    /// control characters.
    pub fn app(mut self, application: &str) -> Self {
        self.application = Some(application.to_owned());
        self
    }

    /// This node's own name: it appears in [events](Node::events), and among the nodes that have [not
    /// left](NodeError::Stragglers). It also selects this node's section of the configuration, `[node.NAME]`,
    /// if there is one. Default: the value of `DUNLIN_NODE`; without that its [`Peer`] as text, and no
    /// section.
    pub fn named(mut self, name: &str) -> Self {
        self.named = Some(name.to_owned());
        self
    }

    /// Reads this file in place of the `dunlin.toml` files that are [searched for](crate::config), and of the
    /// file that `DUNLIN_CONFIG` names. In a simulation nothing is read.
    ///
    /// # Errors
    /// [`NodeError::Config`]: also if there is no such file.
    pub fn config(self, path: impl AsRef<Path>) -> Result<Self, NodeError> {
        if world::is_simulated() { Ok(self) } else { Ok(self.sources(Sources::file(path)?)) }
    }

    /// Uses this configuration in place of everything that is [searched for](crate::config): for a program
    /// that has read it already, perhaps from standard input, which can be read once. In a simulation nothing
    /// is read.
    ///
    /// # Examples
    /// ```
    /// # use dunlin::prelude::*;
    /// use dunlin::config::Sources;
    ///
    /// # dunlin::block_on(async {
    /// let sources = Sources::search()?;
    /// let builder = Node::builder().sources(sources).app("tides");
    /// let node = builder.listen("memory:").names("memory:sources").join().await?;
    /// # node.leave().await }).unwrap();
    /// ```
    pub fn sources(mut self, sources: Sources) -> Self {
        if !world::is_simulated() {
            self.source = Source::Read(sources);
        }
        self
    }

    /// Reads no configuration, neither files nor variables.
    pub fn no_config(mut self) -> Self {
        self.source = Source::Nowhere;
        self
    }

    /// Where others can dial this node. Default: 127.0.0.1, at the first free port from 7500. `default-route`
    /// is the address of this machine that its default route begins at, with the first free port;
    /// `default-route:7510` sets the port. Each call adds an address.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen.push(address.to_owned());
        self
    }

    /// The address that other nodes are given to dial, if it differs from the one this node listens at: of a
    /// forwarded port, or of a host that others know by another name. Each call adds an address. Default:
    /// where it listens.
    pub fn advertise(mut self, address: &str) -> Self {
        self.advertise.push(address.to_owned());
        self
    }

    /// Where the application's name service is. The node that this address leads to serves the names.
    /// Default: the first port from 7400 of 127.0.0.1 that has this application's service; on loopback (or
    /// `memory:`, `unix:`) a node that finds none there serves the names itself. `default-route` is the
    /// address of this machine that its default route begins at, with port 7400 unless another is given
    /// (`default-route:7410`); a node that listens there serves the names. What names guarantee:
    /// [names](super#names).
    pub fn names(mut self, address: &str) -> Self {
        self.names = Some(address.to_owned());
        self
    }

    /// Whether this node may serve the names if it finds no service. Default: it may, on loopback (or
    /// `memory:`, `unix:`), unless the configuration gives that to another node (`run = "names"`). A node
    /// that may not serve them waits for a service: so programs can be started before it, and a short-lived
    /// visitor, such as an inspection tool, takes no service away when it leaves. The node that listens at
    /// the address of the names serves them in any case.
    pub fn serve_names(mut self, may: bool) -> Self {
        self.serves_names = Some(may);
        self
    }

    /// Adds another kind of network, beside TCP, unix sockets and memory.
    pub fn network(mut self, network: impl Network) -> Self {
        self.networks = self.networks.with(network);
        self
    }

    /// How long a disconnected peer may take to reconnect before the connection counts as dead, from the loss
    /// of the last socket on which something arrived; see also [`refused`](Self::refused). Default: 15 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How far apart two refused dials must be before other nodes take this node for dead, although their
    /// [`grace`](Self::grace) is not over. When this process dies without a goodbye, no process listens at
    /// its addresses any more, and dials there are refused. The refusals count only if they come from all
    /// addresses at which this node listens itself (not those that it only [advertises](Self::advertise)) and
    /// at which the others have reached it. On the same host (loopback, unix sockets, memory) the second
    /// refusal counts at once. Default: 1 s. Zero: at once everywhere. A time longer than their grace: never,
    /// except on the same host. Set a longer time if something on the way to this node's own addresses may
    /// refuse dials while the node lives, such as a firewall that is being reconfigured.
    ///
    /// Windows reports a refused dial only after about 2 s, so a death is detected after about 4 s there. On
    /// BSD and macOS a unix socket whose accept queue is full refuses too: there a live node that is stalled
    /// until its queue is full may be taken for dead.
    ///
    /// # Examples
    /// ```
    /// # use std::time::Duration;
    /// # use dunlin::prelude::*;
    /// # dunlin::block_on(async {
    /// let builder = Node::builder().app("tides").refused(Duration::from_secs(5));
    /// let node = builder.listen("memory:").names("memory:refused").join().await?;
    /// assert_eq!(node.config().refused.value, Duration::from_secs(5));
    /// # node.leave().await }).unwrap();
    /// ```
    pub fn refused(mut self, apart: Duration) -> Self {
        self.refused = Some(apart);
        self
    }

    /// How often this node sends a heartbeat when it has nothing else to send. A socket on which nothing
    /// arrives for 3.5 times as long counts as lost. Default: 1 s. All nodes of an application should use the
    /// same value.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// The largest encoded message that this node accepts, in bytes. Default: 64 MiB.
    pub fn message_max_bytes(mut self, bytes: u64) -> Self {
        self.message_max = Some(bytes);
        self
    }

    /// The most bytes of each channel that may be buffered at this node, where its receiver is, if its sender
    /// is at another node and sends into a buffer (a FIFO, or an unbounded one). Above that the buffer counts
    /// as full, whatever its policy: sends wait until enough was received. One message is allowed in any
    /// case. Default: 16 MiB.
    ///
    /// A message counts as its encoded bytes, twice the size of its type (a buffer that grows doubles), and
    /// 40 bytes.
    ///
    /// The receiver's node promises places according to the sizes of the last messages. Before the first one
    /// it assumes 1 MiB for a message that owns memory. When messages become larger, those promised to the
    /// sender before that still arrive (at most 1024, and no more than the FIFO has places). Channels whose
    /// two ends are at one node are not counted: nothing of them is encoded. (A channel without a buffer is
    /// [bounded otherwise](Self::held_max_bytes).)
    pub fn buffered_max_bytes(mut self, bytes: u64) -> Self {
        self.buffered_max = Some(bytes);
        self
    }

    /// The most bytes that this node keeps for other nodes in all: messages that have arrived and have not
    /// been received, messages that are arriving, and the records of each attached sender. In addition each
    /// other node has 256 KiB. Default: a quarter of the machine's memory, or of its control group's limit,
    /// and at least four times [`message_max_bytes`](Self::message_max_bytes), which is the minimum.
    ///
    /// Small messages are sent unasked, up to 8 MiB from each other node that have not been received. A
    /// message beyond that is announced, and waits at its sender's node until this node has room for all of
    /// it. No node can take all the room that is left, nor can all nodes of one host or network. A message
    /// for which a receive waits has room beside those that are not received. On a channel without a buffer
    /// one message, or 64 KiB, is sent before a receive asks for it.
    pub fn held_max_bytes(mut self, bytes: u64) -> Self {
        self.held_max = Some(bytes);
        self
    }

    /// The size in bytes from which values bypass this node, if it keeps a receiver that is shared over
    /// nodes. The keeper's node matches each value from another node with its receiver. Values of this size
    /// or more wait at their sender's node meanwhile, and go straight from there to the node that receives
    /// them. Smaller values come here and are forwarded: they arrive sooner than the messages that a direct
    /// transfer needs. Default: 64 KiB.
    pub fn straight_min_bytes(mut self, bytes: u64) -> Self {
        self.straight_min = Some(bytes.max(1));
        self
    }

    /// Whether this node relays between other nodes that cannot dial each other, for at most 64 pairs at
    /// once. Default: it does. If no node relays, and two nodes cannot dial each other, their connection
    /// fails with [`Down::Unrelayed`](super::Down::Unrelayed) after the grace period.
    pub fn relay(mut self, relay: bool) -> Self {
        self.relay = Some(relay);
        self
    }

    /// Whether this node dials addresses of its own host (loopback, unix sockets) that others have sent it
    /// over a network. Default: it does not, and a dial that is not made is an event
    /// ([`NodeEvent::Unwelcome`](super::NodeEvent::Unwelcome)): others could have it connect to programs that
    /// trust this host. Addresses from a socket of this host, or from this node's program, are dialled in any
    /// case. Set `true` where nodes of one host have a name service elsewhere, and listen on loopback.
    pub fn dial_local(mut self, dial: bool) -> Self {
        self.dial_local = Some(dial);
        self
    }

    /// Whether nodes of other hosts may reach this one through a relay on its own host. A node that is
    /// reached only over loopback or a unix socket is closed to other hosts; a relay on the same host, such
    /// as the name service, lets them in only if this is set. A relay that this node reaches over a network
    /// lets them in anyway. Default: no.
    pub fn relayed(mut self, relayed: bool) -> Self {
        self.relayed = Some(relayed);
        self
    }

    /// Addresses of routers and load balancers, each of whose sockets counts as a source of its own.
    /// Otherwise all sockets from one address count as one source, where a table is full and in the log.
    /// Default: none.
    ///
    /// # Examples
    /// ```
    /// use dunlin::prelude::*;
    ///
    /// # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    /// let balancer = std::net::IpAddr::from([10, 0, 0, 7]);
    /// let sources = [balancer.into(), "192.168.0.0/16".parse()?];
    /// let builder = Node::builder().app("tides").trusted_sources(sources);
    /// # drop(builder);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trusted_sources(mut self, sources: impl IntoIterator<Item = IpNet>) -> Self {
        self.trusted_sources = Some(sources.into_iter().collect());
        self
    }

    /// Which nodes may have connections with this one. Tasks of the node call `admits` in each handshake,
    /// also when a connection that had lost its socket resumes, so it should not take long. A node of this
    /// application that is not admitted is notified, and has no connection: its own side fails with
    /// [`Down::Refused`](super::Down::Refused), this one, if it has dialled, with
    /// [`Down::Unauthorized`](super::Down::Unauthorized); here it is an event
    /// ([`NodeEvent::Stranger`](super::NodeEvent::Stranger),
    /// [`NodeEvent::Unwelcome`](super::NodeEvent::Unwelcome)). Default: all are admitted.
    ///
    /// A node draws a new id whenever it starts, so a decision mostly rests on what the [network has
    /// verified](Applicant::identity), or on where the node comes from.
    ///
    /// # Examples
    /// Only processes of this user, by unix sockets:
    /// ```
    /// use dunlin::net::PeerIdentity;
    /// use dunlin::prelude::*;
    ///
    /// let user = 1000;
    /// let builder = Node::builder().app("tides").authorize(move |applicant| {
    ///     matches!(applicant.identity(), Some(PeerIdentity::Process { uid, .. }) if *uid == user)
    /// });
    /// # drop(builder);
    /// ```
    pub fn authorize(mut self, admits: impl Fn(&Applicant) -> bool + Send + Sync + 'static) -> Self {
        self.authorize = Some(Authorize::new(admits));
        self
    }

    /// All settings: those that were made here, and the configuration for the rest.
    fn settle(&mut self) -> Result<Config, NodeError> {
        let (app, name) = (self.application.as_deref(), self.named.as_deref());
        let searched = |app, name| Sources::search()?.resolve(app, name);
        let mut config = match &self.source {
            _ if world::is_simulated() => Config::default(),
            Source::Nowhere => Config::default(),
            Source::Search => searched(app, name)?,
            Source::Read(sources) => sources.resolve(app, name)?,
        };
        let said = |addresses: &mut Vec<String>| Some(std::mem::take(addresses)).filter(|said| !said.is_empty());
        config.app.overridden(self.application.take());
        config.node.overridden(self.named.take().map(Some));
        config.names.overridden(self.names.take().map(Some));
        config.listen.overridden(said(&mut self.listen));
        config.advertise.overridden(said(&mut self.advertise));
        config.grace.overridden(self.grace);
        config.refused.overridden(self.refused);
        config.heartbeat.overridden(self.heartbeat);
        config.message_max_bytes.overridden(self.message_max);
        config.buffered_max_bytes.overridden(self.buffered_max);
        config.held_max_bytes.overridden(self.held_max.map(Some));
        config.straight_min_bytes.overridden(self.straight_min);
        config.relay.overridden(self.relay);
        config.dial_local.overridden(self.dial_local);
        config.relayed.overridden(self.relayed);
        config.trusted_sources.overridden(self.trusted_sources.take());
        config.role.overridden(self.roles.role().map(Some));
        self.roles.settle(config.role.value, config.node.value.clone());
        if config.app.value.is_empty() {
            let what = "the application has no name: set one in the program (`.app(\"weather\")`), by \
                        DUNLIN_APP=weather, or by app = \"weather\" in dunlin.toml";
            return Err(NodeError::Setting(what.to_owned()));
        }
        if !is_application(&config.app.value) {
            let what = "is not accepted: write 1 to 64 bytes, without control characters";
            return Err(NodeError::Setting(format!("the application's name {:?} {what}", config.app.value)));
        }
        config.check()?;
        Ok(config)
    }

    /// Joins the application, with the [configuration](crate::config) for all that was not set here.
    ///
    /// Returns once the node listens. The node finds the name service in the background; ends that are
    /// declared wait until then. With a [role](Self::role) it returns once the node has taken it: a member
    /// waits for the main node.
    ///
    /// # Errors
    /// [`NodeError::Config`], [`NodeError::Setting`], [`NodeError::Listen`]; with a role
    /// [`NodeError::SecondMain`], [`NodeError::NoMain`], [`NodeError::NoNames`].
    ///
    /// # Cancel safety
    /// If the future is dropped, the node has not joined, or sends a goodbye.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[track_caller]
    pub fn join(self) -> impl Future<Output = Result<Node, NodeError>> + Send {
        let called = Location::caller();
        compiled_here(async move {
            // The message gives `called`: a poll has no line of the user's.
            assert!(
                world::is_simulated() || tokio::runtime::Handle::try_current().is_ok(),
                "{called}: a node joins here, and is polled outside of a tokio runtime: use `#[dunlin::main]` or \
                 `dunlin::block_on`"
            );
            self.enter(registry()).await
        })
    }

    /// `service`: for the application's names, if this node serves them, and for its own.
    pub(super) async fn enter(mut self, service: Box<dyn NameService>) -> Result<Node, NodeError> {
        let settings = self.settle()?;
        let (networks, host) = world::networks(self.networks);
        let names = listen::names(settings.names.value.clone()).map_err(|why| NodeError::Setting(why.to_string()))?;
        let listeners = listen::listen(&networks, &settings.listen).await?;
        let mut config = dunlin_proto::Config::new(settings.app.value.clone());
        let listening: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
        for address in &listening {
            tracing::info!(target: "dunlin::node", application = settings.app.value, address, "listening");
        }
        config.addresses =
            if settings.advertise.value.is_empty() { listening.clone() } else { settings.advertise.value.clone() };
        config.bound = listening.iter().filter(|address| config.addresses.contains(address)).cloned().collect();
        config.grace = settings.grace.value;
        config.refused = settings.refused.value;
        if settings.heartbeat.origin != Origin::Default {
            config.heartbeat = settings.heartbeat.value;
            config.silence = config.heartbeat.mul_f32(3.5);
            // A peer that does not answer a handshake is as silent as one that stops sending later.
            config.handshake = config.handshake.min(config.silence);
        }
        config.value_max = usize::try_from(settings.message_max_bytes.value).unwrap_or(usize::MAX);
        if !settings.relay.value {
            config.relays_max = 0;
        }
        config.relayed = settings.relayed.value;
        config.value_max = config.value_max.saturating_add(message::OVERHEAD as usize);
        config.dial_local = settings.dial_local.value;
        config.authorizes = self.authorize.is_some();
        config.held_max = settings.held_max().max((config.value_max as u64).saturating_mul(4));
        files::share(&mut config);
        // Each node draws its own id, below.
        config.keeps_id = false;
        config.check().map_err(|why| NodeError::Setting(why.to_string()))?;
        let addresses = config.addresses.clone();
        let key = Key::draw();
        let me = Life { node: key.node(), incarnation: Incarnation(world::incarnation()) };
        // The first node of a process sets the origin for all: one order of choices is all that is needed.
        let _ = agent::set_origin(id::seed());
        let dial_max = config.handshake;
        let roles = self.roles.roles(Peer(me));
        let hub = Hub::new(me, self.roles.role().is_some(), service);
        let machine = Machine::new(config, me.incarnation, id::seed(), Arc::new(key));
        let log = Log::new(settings.app.value.clone(), ending::is_own_runtime());
        let driver = Driver::new(machine, networks.clone(), dial_max, hub, log);
        driver.with(|state, _| {
            state.buffered_max = settings.buffered_max_bytes.value;
            state.straight_min = settings.straight_min_bytes.value;
            state.trusted_sources.clone_from(&settings.trusted_sources.value);
            state.authorize = self.authorize;
        });
        driver.with_hub_now(|hub, cx| hub.answer_inquiries(cx, &listening));
        // It ends when the node has left.
        // It looks after the tasks of sockets, which users' code may hold up on any thread.
        let run = world::spawn_own(world::run_by_any_thread(driver.clone().run()));
        let mut tasks = Vec::new();
        for listener in listeners {
            tasks.push(world::spawn_own(serve::accept(Arc::downgrade(&driver), listener)));
        }
        // Otherwise the first node to come takes the address of the node that is to serve the names.
        let leaves_them = settings.names_node.is_some() && settings.run.value.as_deref() != Some(crate::config::NAMES);
        let service = serve::Service {
            address: names,
            may_serve: self.serves_names.unwrap_or(!leaves_them),
            node: settings.names_node.clone(),
        };
        tasks.push(world::spawn_own(serve::names(driver.clone(), networks, service)));
        let tasks = tasks.into();
        let inner = Arc::new(Inner { driver, me, config: settings, addresses, listening, roles, tasks, host });
        ending::joined(&inner, run);
        roles::enter(Node { inner }, self.roles).await
    }
}

/// Settings of the node's role.
impl NodeBuilder {
    /// This node's role in its application: see [`roles`](super::roles). Default: it has no role.
    #[track_caller]
    pub fn role(mut self, role: Role) -> Self {
        self.roles.role = Some((role, Location::caller()));
        self
    }

    /// How long [`join`](Self::join) waits for the main node, if this node is a member. After that it fails
    /// with [`NodeError::NoMain`]. A main node waits as long for a name service, and fails with
    /// [`NodeError::NoNames`]. Default: for ever.
    pub fn wait_for_main(mut self, patience: Duration) -> Self {
        self.roles.patience = Some(patience);
        self
    }

    /// [`join`](Self::join) calls this while a member waits for the main node, or a main node for a name
    /// service: after a quarter of a second, and then every 5 seconds. A program can show the wait: the text
    /// of a [`JoinWait`] advises what to do.
    pub fn on_wait(mut self, told: impl FnMut(&JoinWait) + Send + 'static) -> Self {
        self.roles.on_wait = Some(Box::new(told));
        self
    }

    /// How long [`leave`](Node::leave) of this node waits for its members, if this node is the main one. A
    /// member needs up to 5 s to leave, once its program has finished. Default: 10 s.
    pub fn shutdown(mut self, within: Duration) -> Self {
        self.roles.shutdown = Some(within);
        self
    }
}

/// The name service of a node: it keeps the declarations in memory.
pub(super) fn registry() -> Box<dyn NameService> {
    let mut config = RegistryConfig::default();
    // A home has one sending half. The other holders of a shared end have handles, from the node that keeps
    // it (`sharing.rs`).
    config.several_holders = false;
    Box::new(Registry::new(config))
}

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").field("application", &self.application).finish_non_exhaustive()
    }
}
