//! Nodes: programs, or parts of them, that share channels over connections.
//!
//! - [`Encoding`]: how messages are written;
//! - [`network`]: what connections run over: TCP, unix sockets, memory.

// Its user, the node itself, comes with the next step.
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) mod codec;
pub mod network;

pub use codec::Encoding;
