//! The actions that a machine asks of its driver, and what it reports.

use bytes::Bytes;

use crate::channel::{HomeHears, ProxyHears};
use crate::connection::State;
use crate::id::{ChannelId, Contact, DialId, Life, NodeId, SocketId};
use crate::post::state::PostHears;
use crate::signal::state::SignalHears;
use crate::wire::handshake::Refusal;
use crate::wire::{Names, Read};

/// An action for the driver to perform, or a report to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a socket to this address; answer with [`Machine::dialled`](crate::Machine::dialled),
    /// [`Machine::dial_refused`](crate::Machine::dial_refused) or
    /// [`Machine::dial_failed`](crate::Machine::dial_failed).
    Dial(DialId, String),
    /// Only with [`Config::authorizes`](crate::Config::authorizes): decide whether that life of a node may
    /// have connections with this one. It has dialled this node by that socket, or was dialled. Answer with
    /// [`Machine::authorized`](crate::Machine::authorized).
    Authorize(SocketId, Life),
    /// The socket has something to write: call [`Machine::fill`](crate::Machine::fill) when it can.
    Write(SocketId),
    /// Fill the socket once more, write that, close it, and call [`Machine::closed`](crate::Machine::closed).
    Close(SocketId, Closed),
    /// A relayed socket is closed. The first node relays it, and the second one, by its own account, dialled
    /// on it. The driver has nothing to do: it never saw this socket.
    ClosedRelayed(NodeId, NodeId, Closed),
    /// A connection has changed.
    Connection(NodeId, State),
    /// An event for the home of a channel, from the node with a sending half.
    Home(ChannelId, Contact, HomeHears),
    /// An event for a proxy.
    Proxy(ChannelId, ProxyHears),
    /// The outcome of a call of this node, by the [place](crate::Machine::await_reply) for its reply.
    Replied(ChannelId, Replied),
    /// No caller waits for the reply that this node [holds](crate::Machine::hold_reply) the place for.
    Unwanted(ChannelId),
    /// A message of the name service, from this node.
    Names(Life, Box<Names>),
    /// About a mailbox.
    Post(PostHears),
    /// From a process of another node, or about one.
    Signal(Box<SignalHears>),
    /// That node requests a value that was [offered unread](crate::Machine::offer_unread) here. The value
    /// goes over this channel, whose home is at that node and whose sending half is here.
    Read(NodeId, ChannelId, Read),
    /// That node has asked this one to relay, but there is [no room](crate::Config::relays_max).
    Unrelayed(NodeId),
    /// This node has declined another request of that node.
    Declined(NodeId, Declined),
    /// The result of [`Machine::introduce`](crate::Machine::introduce): the node at this address, which may
    /// be this one, or an error.
    Introduced(String, Result<NodeId, String>),
}

impl Action {
    pub(crate) fn signal(heard: SignalHears) -> Self {
        Self::Signal(Box::new(heard))
    }
}

/// The outcome of a call, at the caller's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replied {
    /// The reply.
    Value(Bytes),
    /// The place was dropped without a reply.
    None,
    /// The node with the place is lost, or has no room for it.
    Lost,
    /// The reply will come as a value on the channel, from a sender at that node: the home of the channel is
    /// open here from now on.
    Comes(NodeId),
}

/// A request that a node declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declined {
    /// To attach to this channel: that node has attached as many halves as it may, or
    /// [`Config::held_max`](crate::Config::held_max) has no room for more.
    Half(ChannelId),
    /// To send to the mailbox with this number: the message did not have its random bits.
    Post(u64),
    /// To send a signal to the process with this number: it did not have its random bits.
    Signal(u64),
    /// To link the process with this number: the driver keeps no more links for that source.
    Link(u64),
    /// To be dialled back by this node: it already dials back as many others as it may.
    DialBack,
    /// A path to this node, by a dial-back or a relay. It is on this node's own host, the asking node is not,
    /// and it has not declared that it [may be relayed to](crate::Config::relayed).
    Admittance(NodeId),
}

/// Why a socket is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// Nothing arrived from it for too long.
    #[error("no bytes arrived from the node for too long")]
    Silent,
    /// It did not finish its handshake in time.
    #[error("the handshake timed out")]
    NoHandshake,
    /// Another socket has taken its place.
    #[error("another socket replaced this one")]
    Superseded,
    /// The node that dialled, or answered, under this id has not signed the handshake with that node's key.
    #[error("the other side claims to be node {0} without that node's key")]
    Unproven(NodeId),
    /// This node does not [admit](Action::Authorize) the one that answered its dial.
    #[error("this node does not admit node {0}")]
    Unauthorized(NodeId),
    /// One side refused the other.
    #[error("{0}")]
    Refused(Refusal),
    /// The dialler belongs to another application, and this node has answered so.
    #[error("the dialler is node {node} of application {application:?}")]
    Stranger {
        /// The dialler.
        node: NodeId,
        /// Its application.
        application: String,
    },
    /// The bytes that arrived on it are not the protocol.
    #[error("the bytes that arrived are not the protocol: {0}")]
    Garbage(String),
    /// Too many sockets are without a handshake.
    #[error("too many sockets are waiting for their handshake")]
    Crowded,
    /// The node whose connection it carried broke the protocol; [`Down::Violation`](crate::Down::Violation)
    /// is reported next.
    #[error("node {0} violated the protocol")]
    Violation(NodeId),
    /// The connection is over.
    #[error("the connection ended")]
    Over,
    /// This node dropped a part of a frame that it now needs. The peer sends it again on the next socket.
    #[error("this node dropped part of a frame and now needs that part")]
    Again,
}
