//! Nodes: programs, or parts of them, that share channels over connections.
//!
//! - [`network`]: what connections run over: TCP, unix sockets, memory.

pub mod network;
