//! The protocol between dunlin's nodes, as a pure state machine.
//!
//! A [`Machine`] is one node's half. Its driver (the crate `dunlin` over real networks, `dunlin-sim` over a
//! simulated one) passes events in and performs the actions that come out. The machine has no sockets, no
//! clock, no threads and no cryptography; its only randomness is its seed and its
//! [`Identity`](identity::Identity). `docs/wire.md` specifies the frames byte by byte.
//!
//! Two machines, joined by hand:
//! ```
//! use bytes::Bytes;
//! use dunlin_proto::{Action, Config, HomeHears, ProxyHears};
//! use dunlin_proto::id::{ChannelId, Incarnation, Life, NodeId, SocketId};
//! use dunlin_proto::identity::StandIn;
//! use dunlin_proto::time::Time;
//! use dunlin_proto::wire::{Declaration, Expected, Face, Terms};
//!
//! let life = |n| Life { node: NodeId(n), incarnation: Incarnation(1) };
//! // (Nodes have keys: this is a stand-in for them.)
//! let mut nodes = [1, 2].map(|n| StandIn::machine(Config::new("tides"), life(n), n as u64));
//! let (now, channel) = (Time(0), ChannelId(7));
//! let face = |face| Declaration { face, shared: false, expects: Expected::Unknown, schema: Bytes::new() };
//!
//! let terms = Terms { window: 8, credits: 0, value_max: 1 << 20 };
//! nodes[1].open_home(channel, terms, face(Face::Receiver), false)?;
//! nodes[0].learn(NodeId(2), &["there".into()]);
//! nodes[0].attach(now, channel, NodeId(2), face(Face::Sender))?;
//! nodes[0].offer(now, channel, 1, Bytes::from_static(b"krill"));
//!
//! let mut outcome = None;
//! let mut busy = true;
//! while busy {
//!     busy = false;
//!     for me in 0..2 {
//!         while let Some(action) = nodes[me].poll() {
//!             busy = true;
//!             match action {
//!                 Action::Dial(dial, _) => {
//!                     nodes[me].dialled(now, dial, SocketId(0));
//!                     nodes[1 - me].accepted(now, SocketId(0));
//!                 }
//!                 Action::Write(socket) => {
//!                     let mut out = Vec::new();
//!                     while nodes[me].fill(now, socket, 64 << 10, &mut out) > 0 {}
//!                     out.into_iter().for_each(|bytes| nodes[1 - me].received(now, socket, bytes));
//!                 }
//!                 Action::Home(channel, from, HomeHears::Offered(ticket, value)) => {
//!                     assert_eq!(&value[..], b"krill");
//!                     nodes[me].taken(now, channel, from.node, ticket);
//!                 }
//!                 Action::Proxy(_, heard @ ProxyHears::Taken(..)) => outcome = Some(heard),
//!                 _ => {}
//!             }
//!         }
//!     }
//! }
//! assert_eq!(outcome, Some(ProxyHears::Taken(1, nodes[0].contact(NodeId(2)))));
//! # Ok::<(), dunlin_proto::wire::codec::WireError>(())
//! ```

mod account;
pub mod channel;
mod comparisons;
mod config;
pub mod connection;
mod flush;
pub mod id;
pub mod identity;
#[cfg(feature = "link")]
#[doc(hidden)]
pub mod link;
mod machine;
mod misbehaved;
#[cfg(feature = "model")]
mod model;
pub mod names;
#[cfg(feature = "planted")]
pub mod planted;
#[cfg(not(feature = "planted"))]
mod planted;
mod post;
mod random;
mod reach;
mod relay;
#[doc(hidden)]
pub mod seldom;
mod signal;
pub mod source;
pub mod time;
pub mod wire;

pub use channel::{
    Arrival, HomeHears, Leaving, Passage, ProxyHears, ReceiverPlace, SenderPlace, Stand, Trip, Unsettled,
};
pub use comparisons::difference;
pub use config::{Config, ConfigError};
pub use connection::{Down, State, Traffic};
pub use flush::Mark;
pub use machine::{Action, Census, Closed, Declined, Machine, Replied};
pub use misbehaved::PeerMisbehaved;
pub use post::state::{NotPosted, PostHears};
pub use signal::state::{NotSignalled, SignalHears};
pub use source::Source;
