//! Processes of other nodes: links, monitors, exits and kills between nodes.
//!
//! - `out.rs`: watching a process of another node, for a link or a monitor;
//! - `request.rs`: what is asked of another node: links of its processes, exits and kills;
//! - `into.rs`: the processes of this program, as nodes use them for what arrives;
//! - `exit.rs`, `pid.rs`: exits and pids on the wire.
//!
//! `node/signals/` has the half that knows connections.

mod exit;
mod into;
pub(super) mod out;
mod pid;
pub(super) mod request;
