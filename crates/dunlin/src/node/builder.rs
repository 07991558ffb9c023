//! Settings of a node, and how it comes to be.

use std::sync::Arc;
use std::time::Duration;

use dunlin_core::agent;
use dunlin_proto::id::{Incarnation, Life};
use dunlin_proto::{Config, Machine};

use super::driver::Driver;
use super::error::NodeError;
use super::events::Log;
use super::hub::Hub;
use super::network::{Listener, Network, Networks};
use super::roles::{Roles, Settings};
use super::{Inner, Node, Peer, id, message, roles, serve};
use crate::world;

/// Settings of a node: see [`Node::builder`].
#[derive(Default)]
#[must_use = "`join` makes the node"]
pub struct NodeBuilder {
    application: String,
    listen: Vec<String>,
    advertise: Vec<String>,
    names: Option<String>,
    networks: Networks,
    grace: Option<Duration>,
    heartbeat: Option<Duration>,
    message_max: Option<u64>,
    buffered_max: Option<u64>,
    relay: Option<bool>,
    pub(super) roles: Settings,
}

impl NodeBuilder {
    /// The application's name: nodes of different applications refuse each other. 1 to 64 bytes.
    pub fn app(mut self, application: &str) -> Self {
        application.clone_into(&mut self.application);
        self
    }

    /// Where others can dial this node. Default: a free port of 127.0.0.1. Can be said several times.
    pub fn listen(mut self, address: &str) -> Self {
        self.listen.push(address.to_owned());
        self
    }

    /// What the others are told to dial, if that is another address than the one this node listens at: of a forwarded port, or
    /// of a host that others know by another name. Can be said several times. Default: where it listens.
    pub fn advertise(mut self, address: &str) -> Self {
        self.advertise.push(address.to_owned());
        self
    }

    /// Where the application's name service is. The node that this address leads to serves it. Default: the first port from 7400 of 127.0.0.1 that has this application's; on loopback
    /// (or `memory:`, `unix:`) a node that finds none there serves it itself. What names guarantee: [names](super#names).
    pub fn names(mut self, address: &str) -> Self {
        self.names = Some(address.to_owned());
        self
    }

    /// Another kind of network, beside TCP, unix sockets and memory.
    pub fn network(mut self, network: impl Network) -> Self {
        self.networks = self.networks.with(network);
        self
    }

    /// For so long a connection may be without a socket before it counts as dead. Default: 15 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// How often this node says that it lives when it has nothing else to say. A socket on which nothing arrived for 3.5 times as
    /// long counts as lost. Default: 1 s. All nodes of an application should say the same.
    pub fn heartbeat(mut self, heartbeat: Duration) -> Self {
        self.heartbeat = Some(heartbeat);
        self
    }

    /// The largest encoded message that this node accepts, in bytes. Default: 64 MiB.
    pub fn message_max_bytes(mut self, bytes: u64) -> Self {
        self.message_max = Some(bytes);
        self
    }

    /// So much of what was sent into a buffer (a FIFO, or an unbounded one) of a channel may lie at this node, where its receiver is: in encoded bytes,
    /// for each channel whose sender is at another node. Above that the buffer counts as full, whatever its policy: sends wait until enough was received.
    /// One message there may be in any case. Default: 16 MiB.
    ///
    /// It is kept to by how large the last messages were: when they become larger, what had been promised to the sender before that still comes (at most as many as the FIFO
    /// has places, or 1024). Channels whose two ends are at one node are not counted: nothing of them is encoded. A rendezvous has up to 32 messages
    /// here, of those who wait to send.
    pub fn buffered_max_bytes(mut self, bytes: u64) -> Self {
        self.buffered_max = Some(bytes);
        self
    }

    /// Whether this node relays what other nodes say that cannot dial each other, for at most 64 pairs at once. Default: it does. If nobody does, and two nodes cannot dial each other,
    /// their connection fails with [`Down::Unrelayed`](super::Down::Unrelayed) after the grace period.
    pub fn relay(mut self, relay: bool) -> Self {
        self.relay = Some(relay);
        self
    }

    /// Joins the application.
    ///
    /// Returns once the node listens. The name service is found in the background: until then, ends that are declared wait. With a [role](Self::role) it
    /// returns once the node has that: a member waits for the main node.
    ///
    /// # Errors
    /// [`NodeError::Setting`], [`NodeError::Listen`]; with a role [`NodeError::SecondMain`], [`NodeError::NoMain`], [`NodeError::NoNames`].
    ///
    /// # Cancel safety
    /// Dropped, the node has not joined, or says goodbye.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub async fn join(self) -> Result<Node, NodeError> {
        let (networks, host) = world::networks(self.networks);
        let addresses = if self.listen.is_empty() { vec!["127.0.0.1:0".to_owned()] } else { self.listen };
        let mut listeners = Vec::new();
        for address in addresses {
            let listener = networks.listen(&address).await;
            listeners.push(listener.map_err(|error| NodeError::Listen { address, error })?);
        }
        let mut config = Config::new(self.application.clone());
        let listening: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
        for address in &listening {
            tracing::info!(target: "dunlin::node", application = self.application, address, "listening");
        }
        config.addresses = if self.advertise.is_empty() { listening.clone() } else { self.advertise };
        if let Some(grace) = self.grace {
            config.grace = grace;
        }
        if let Some(heartbeat) = self.heartbeat {
            config.heartbeat = heartbeat;
            config.silence = heartbeat.mul_f32(3.5);
            // Who does not answer a handshake is as silent as who says nothing later.
            config.handshake = config.handshake.min(config.silence);
        }
        if let Some(max) = self.message_max {
            config.value_max = usize::try_from(max).unwrap_or(usize::MAX);
        }
        if self.relay == Some(false) {
            config.relays_max = 0;
        }
        config.value_max = config.value_max.saturating_add(message::OVERHEAD as usize);
        config.check().map_err(|why| NodeError::Setting(why.to_string()))?;
        let addresses = config.addresses.clone();
        let me = Life { node: id::node(), incarnation: Incarnation(world::incarnation()) };
        // The first node of a process says it for all: one order of choices is all that is needed.
        let _ = agent::set_origin(id::seed());
        let dial_max = config.handshake;
        let roles = Roles::new(&self.roles, Peer(me));
        let hub = Hub::new(me, self.roles.has_role());
        let machine = Machine::new(config, me, id::seed());
        let log = Log::new(self.application.clone());
        let driver = Driver::new(machine, networks.clone(), dial_max, hub, log);
        if let Some(max) = self.buffered_max {
            driver.with(|state, _| state.buffered_max = max);
        }
        // It ends when the node has left.
        world::spawn_own(driver.clone().run());
        let mut tasks = Vec::new();
        for listener in listeners {
            tasks.push(world::spawn_own(serve::accept(Arc::downgrade(&driver), listener)));
        }
        tasks.push(world::spawn_own(serve::names(driver.clone(), networks, self.names)));
        let tasks = tasks.into();
        let inner = Inner { driver, me, application: self.application, addresses, listening, roles, tasks, host };
        roles::enter(Node { inner: Arc::new(inner) }, self.roles).await
    }
}

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder").field("application", &self.application).finish_non_exhaustive()
    }
}

pub(super) type BoxListener = Box<dyn Listener>;
