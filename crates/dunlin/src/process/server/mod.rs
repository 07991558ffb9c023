//! Generic servers: processes with a state that serve calls and casts.
//!
//! - [`Server`], [`child`]: a server as a type, started alone or by a supervisor (`serve.rs`);
//! - [`Client`]: its callers (`client.rs`); [`Me`], [`Info`]: its own view (`me.rs`);
//! - [`requests`]: the same for a server whose loop is written by hand (`queue.rs`).
//!
//! A call is a message in the server's queue with two places of its own: one for the request, from which the
//! caller can take it back (`slot.rs`), and one for the reply. So no mailbox is searched for a reply, and a
//! late one is dropped. Calls, casts and replacements wait in one queue; an info waits until what was there
//! before it has been served.

mod client;
mod error;
mod me;
mod queue;
mod serve;
mod slot;

pub use client::{Calling, Client};
pub use error::{ReplaceError, ServerCallError};
pub use me::{Info, Me};
pub use queue::{Accepting, Asked, Incoming, Requests};
pub use serve::{ClientOf, Server, child, requests};
