//! The name service: faces of one name find each other, whichever comes first.
//!
//! A [`Directory`] keeps what a node has declared and speaks to one server of names at a time; a [`Registry`]
//! is that server. Every node has both: it may serve the names of its application, and it serves its own for
//! whoever dials `host:port/name`. Neither does I/O: their driver carries [`Names`](crate::wire::Names)
//! messages between them, over [`Machine::say_names`](crate::Machine::say_names) or, within a node, directly.
//! A node's numbers for its declarations must be unique, also if it has several directories.
//!
//! # What is joined
//!
//! - A name is 1 to 255 bytes of printable ASCII without `/`; see [`is_name`].
//! - A name is either a channel's ([`Sender`](Face::Sender), [`Receiver`](Face::Receiver)) or a bundle's
//!   ([`Client`](Face::Client), and [`Server`](Face::Server) or [`Acceptor`](Face::Acceptor)). Receiver,
//!   server and acceptor are *homes*: their channel is the one that is joined.
//! - A face has one holder, or any number if all declare it shared and the server
//!   [allows](RegistryConfig::several_holders) that. What each says of the other face must be so.
//! - What does not fit what is there is refused, and told what is there and which node has it. What is there
//!   goes on; if what was refused is of the other face, or of the other kind, it is told of that
//!   ([`Names::Unfit`](crate::wire::Names::Unfit)), once for each node.
//! - Both sides of a pair are told. With an acceptor only the client is: it introduces itself to the
//!   acceptor's node ([`Names::Guest`](crate::wire::Names::Guest)), and its declaration is over, so that an
//!   acceptor has any number of clients, shared or not.
//! - A client cannot know whether there will be an acceptor. So several unshared clients may wait, until
//!   there is a server (the first is joined, the others are refused) or an acceptor (all are joined).
//! - Of several holders of a shared home face, the first is the home; the others are told of it, by a `Found`
//!   with a face of their own side. A holder that was joined while the first was away stays a home for the
//!   partners it has.
//!
//! # For how many there is room
//!
//! - A node has so many declarations, and so many bytes of names and schemas; a server has so many names.
//!   What goes beyond is refused ([`Names::Full`](crate::wire::Names::Full)), and nothing that stands is
//!   taken back for it.
//! - Three quarters of the names are for whichever nodes declare; the last quarter is for
//!   [sources](crate::Source) that have few ([`has_place`](crate::source::has_place)), so that the nodes of
//!   one address leave names to others. A name counts for the source of the first of its declarations that is
//!   still there.
//!
//! # How often
//!
//! - What says that it was joined elsewhere goes on with what it has, as after the loss of a name service. If
//!   it does not fit what is here it is told so and stands apart: nothing is held against it, and nothing
//!   joined to it, until that has gone.
//! - Whoever is no home is joined once, to one channel, for good. When that channel's home goes, its end has
//!   ended, and can only be dropped and declared anew.
//! - A home is joined to any number of shared partners, whenever they come, but to one unshared partner (or
//!   shared one, if there may be only [one](RegistryConfig::several_holders)): then both are *used up*. If
//!   one of the two goes, the other goes on holding its face of the name. Who comes then waits for the other
//!   one's successor: nobody is joined to an end that has ended. The name is free again when both are gone.
//! - So a server whose client has ended is found by the next client only if clients are shared, or if it is
//!   an acceptor.
//! - Such a partner that goes before it attached has not used the home up. Only the home's node knows: it is
//!   asked ([`Names::Gone`](crate::wire::Names::Gone)) and declares again as what it is. So a driver
//!   undeclares an end that has been found only when the home has answered its attach.
//!
//! # How long
//!
//! - A declaration lives as long as its node's connection to the server. If that dies and the node may yet
//!   live, the declaration has a lease: it keeps its place, but is not joined; who would be refused because
//!   of it waits. If the same life declares it again within the lease, nothing has happened, except that
//!   answers it has not heard are given again. A node that left or was restarted loses its declarations at
//!   once.
//! - When another node serves names, everybody declares everything again, with a
//!   [`Status`](crate::wire::Status). Whoever has been joined is admitted as it is; a server that [takes
//!   over](Registry::taking_over) admits new declarations, and joins, only after one lease, when all have had
//!   the time to come back.
//! - Servers that do not know of each other (a network in two parts) each keep these rules among those who
//!   declare to them. When one of them cedes to the other, it says so
//!   ([`Names::Elsewhere`](crate::wire::Names::Elsewhere)), and all declare to that. What was joined in both
//!   parts goes on there as well; who comes second is told whom it does not fit
//!   ([`DirectoryEvent::Conflict`]). What was not joined is refused as ever.
//!
//! Every wait is visible: at the server ([`Registry::waiting`]) and at the declarer ([`Directory::waiting`]).

mod directory;
mod registry;

pub use directory::{DeclaredHere, Directory, DirectoryEvent, WaitingHere};
pub use registry::{EntryState, NameEntry, Registry, RegistryConfig, WaitingEnd};

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

/// Whether the channel that is joined is this face's.
fn is_home(face: Face) -> bool {
    matches!(face, Face::Receiver | Face::Server | Face::Acceptor)
}

fn is_of_bundle(face: Face) -> bool {
    matches!(face, Face::Client | Face::Server | Face::Acceptor)
}
