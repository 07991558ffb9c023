//! What a machine wants its driver to do or to know.

use crate::channel::{HomeHears, ProxyHears};
use crate::connection::State;
use crate::id::{ChannelId, Contact, DialId, Life, NodeId, SocketId};
use crate::wire::handshake::Refusal;
use crate::wire::{Names, Read};

/// What the machine wants its driver to do or to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make a socket to this address; answer with [`Machine::dialled`](crate::Machine::dialled),
    /// [`Machine::dial_refused`](crate::Machine::dial_refused) or
    /// [`Machine::dial_failed`](crate::Machine::dial_failed).
    Dial(DialId, String),
    /// Only with [`Config::authorizes`](crate::Config::authorizes): whether that life of a node may have
    /// connections with this one. It has dialled this node by that socket, or was dialled. Answer with
    /// [`Machine::authorized`](crate::Machine::authorized).
    Authorize(SocketId, Life),
    /// The socket has something to write: call [`Machine::fill`](crate::Machine::fill) when it can.
    Write(SocketId),
    /// Fill the socket once more, write that, close it, and say [`Machine::closed`](crate::Machine::closed).
    Close(SocketId, Closed),
    /// A socket that the first node relays, and on which the second one has dialled as that one says, is
    /// closed. There is nothing to do: the driver has never heard of it.
    ClosedRelayed(NodeId, NodeId, Closed),
    /// A connection has changed.
    Connection(NodeId, State),
    /// Something for the home of a channel, from the node with a sending half.
    Home(ChannelId, Contact, HomeHears),
    /// Something for a proxy.
    Proxy(ChannelId, ProxyHears),
    /// A message of the name service, from this node.
    Names(Life, Names),
    /// That node wants a value that was [offered unread](crate::Machine::offer_unread) here: sent over this
    /// channel, of which it is the home, and the sending half here.
    Read(NodeId, ChannelId, Read),
    /// That node has asked this one to relay, which has [no room](crate::Config::relays_max) for it.
    Unrelayed(NodeId),
    /// That node has asked this one for something else that it was not given.
    Declined(NodeId, Declined),
    /// What became of [`Machine::introduce`](crate::Machine::introduce): the node at this address, which may
    /// be this one, or why there is none.
    Introduced(String, Result<NodeId, String>),
}

/// What a node was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Declined {
    /// To attach to this channel: it has attached as many halves as it may, or there is no room for them in
    /// [`Config::held_max`](crate::Config::held_max).
    Half(ChannelId),
    /// To be dialled back by this node: as many others are.
    DialBack,
    /// A way, by a dial-back or a relay, to this node, which is on this node's own host, while the other one
    /// is not: it has not said that it [may be relayed to](crate::Config::relayed).
    Admittance(NodeId),
}

/// Why a socket is closed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Closed {
    /// Nothing was heard from it for too long.
    #[error("nothing was heard from it for too long")]
    Silent,
    /// It did not finish its handshake in time.
    #[error("it did not finish its handshake in time")]
    NoHandshake,
    /// Another socket has taken its place.
    #[error("another socket has taken its place")]
    Superseded,
    /// The node that has dialled, or answered, under this id has not signed the handshake with that node's
    /// key.
    #[error("it says that it is node {0}, and has not proved it: it does not have that node's key")]
    Unproven(NodeId),
    /// This node does not [admit](Action::Authorize) the one that answered its dial.
    #[error("this node does not admit node {0}")]
    Unauthorized(NodeId),
    /// One side refused the other.
    #[error("{0}")]
    Refused(Refusal),
    /// Who dialled belongs to another application, and was told so.
    #[error("it is node {node} of the application {application:?}")]
    Stranger {
        /// Who.
        node: NodeId,
        /// Its application.
        application: String,
    },
    /// What arrived on it was not the protocol.
    #[error("what arrived is not the protocol: {0}")]
    Garbage(String),
    /// Too many sockets are without a handshake.
    #[error("too many sockets are waiting for their handshake")]
    Crowded,
    /// The node that it carried the connection with did not keep to the protocol, which
    /// [`Down::Violation`](crate::Down::Violation) tells next.
    #[error("node {0} did not keep to the protocol")]
    Violation(NodeId),
    /// The connection is over.
    #[error("the connection is over")]
    Over,
    /// A part of a frame was dropped that is wanted now: it is to come again, on the next socket.
    #[error("a part of a frame was dropped that is wanted now")]
    Again,
}
