//! The name service: faces of one name find each other, whichever comes first.
//!
//! A [`Directory`] keeps what a node has declared, and talks to one server of names at a time: a
//! [`NameService`], which the [`Registry`] implements. Every node has both: it may serve the names of its
//! application, and it serves its own to nodes that dial `host:port/name`. Neither does I/O: their driver
//! carries [`Names`](crate::wire::Names) messages between them, over
//! [`Machine::say_names`](crate::Machine::say_names) or, within a node, directly. A node's numbers for its
//! declarations must be unique, even if it has several directories.
//!
//! # What is joined
//!
//! - A name is 1 to 255 bytes of printable ASCII without `/`; see [`is_name`].
//! - A name is either a channel's ([`Sender`](Face::Sender), [`Receiver`](Face::Receiver)) or a bundle's
//!   ([`Client`](Face::Client), and [`Server`](Face::Server) or [`Acceptor`](Face::Acceptor)). Receiver,
//!   server and acceptor are *homes*: the join is on their channel.
//! - A face has one holder, or any number if all declare it shared and the server
//!   [allows](RegistryConfig::several_holders) that. What each declares about the other face must hold.
//! - A declaration that does not fit an existing one is refused; the refusal names the existing declaration
//!   and its node. The existing one stands. If the refused one is of the other face, or of the other kind,
//!   the server reports it to the holder ([`Names::Unfit`](crate::wire::Names::Unfit)), once for each node.
//! - The server notifies both sides of a pair. With an acceptor it notifies only the client, which introduces
//!   itself to the acceptor's node ([`Names::Guest`](crate::wire::Names::Guest)). The client's declaration is
//!   then over, so that an acceptor has any number of clients, shared or not.
//! - A client cannot know whether an acceptor will follow. So several unshared clients may wait, until a
//!   server arrives (the first is joined, the others are refused) or an acceptor (all are joined).
//! - Of several holders of a shared home face, the first is the home; a `Found` with a face of their own side
//!   tells the others. A holder that was joined while the first was away stays a home for its partners.
//!
//! # For how many there is room
//!
//! - A node may have a limited number of declarations, and of bytes of names and schemas; a server has a
//!   limited number of names. A declaration beyond that is refused
//!   ([`Names::Full`](crate::wire::Names::Full)); existing ones are never removed to make room.
//! - Three quarters of the names are for any node; the last quarter is for [sources](crate::Source) that have
//!   few ([`has_place`](crate::source::has_place)), so that the nodes of one address leave names to others. A
//!   name counts for the source of its oldest remaining declaration.
//!
//! # How often
//!
//! - A declaration that reports a join made elsewhere keeps it, as after the loss of a name service. If it
//!   does not fit the declarations here, the server refuses it and it stands apart: the server ignores it
//!   when it checks and joins others, until the conflict has gone.
//! - An end that is not a home is joined once, to one channel, for good. When that channel's home goes, the
//!   end has ended, and can only be dropped and declared anew.
//! - A home is joined to any number of shared partners, at any time, but to one unshared partner (or one
//!   shared partner, if there may be only [one](RegistryConfig::several_holders)): then both are *used up*.
//!   If one of the two goes, the other still holds its face of the name. A newcomer then waits for the other
//!   one's successor: no end is joined to one that has ended. The name is free again when both are gone.
//! - So a server whose client has ended is found by the next client only if clients are shared, or if it is
//!   an acceptor.
//! - Such a partner that goes before it attached has not used the home up. Only the home's node knows: the
//!   server asks it ([`Names::Gone`](crate::wire::Names::Gone)), and it declares again with its true status.
//!   So a driver undeclares an end that has been found only when the home has answered its attach.
//!
//! # How long
//!
//! - A declaration lives as long as its node's connection to the server. If that dies and the node may still
//!   live, the declaration has a lease: it keeps its place, but is not joined; a declaration that it
//!   conflicts with waits instead of being refused. If the same life declares it again within the lease,
//!   nothing changes, except that the server repeats answers that were not received. A node that left or was
//!   restarted loses its declarations at once.
//! - When another node serves names, all nodes declare everything again, with a
//!   [`Status`](crate::wire::Status). Joined ends are admitted as they are. A server that [takes
//!   over](Registry::taking_over) admits new declarations, and joins, only after one lease, when all nodes
//!   have had the time to come back.
//! - Servers that do not know of each other (a network in two parts) each keep these rules among the nodes
//!   that declare to them. When one of them cedes to the other, it announces that
//!   ([`Names::Elsewhere`](crate::wire::Names::Elsewhere)), and all declare to the other one. Ends joined in
//!   either part stay joined there as well; the second to arrive is notified of what it does not fit
//!   ([`DirectoryEvent::Conflict`]). Ends that were not joined are refused as usual.
//!
//! Every wait is visible: at the server ([`Registry::waiting`]) and at the declarer ([`Directory::waiting`]).

mod directory;
mod registry;
mod service;

pub use directory::{DeclaredHere, Directory, DirectoryEvent, WaitingHere};
pub use registry::{Registry, RegistryConfig, WaitingEnd};
pub use service::{EntryState, NameEntry, NameService};

use crate::wire::{Face, limits};

/// Whether an end can be declared under this name: 1 to 255 bytes of printable ASCII (space to `~`) without
/// `/`.
///
/// ```
/// use dunlin_proto::names::is_name;
///
/// assert!(is_name("tide tables 2"));
/// assert!(!is_name("") && !is_name("a/b") && !is_name("Ebbe & Flöße"));
/// ```
pub fn is_name(name: &str) -> bool {
    (1..=limits::NAME).contains(&name.len()) && name.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'/')
}

/// Whether a join is on the channel of this face.
fn is_home(face: Face) -> bool {
    matches!(face, Face::Receiver | Face::Server | Face::Acceptor)
}

fn is_of_bundle(face: Face) -> bool {
    matches!(face, Face::Client | Face::Server | Face::Acceptor)
}
