//! How a command reaches a node: which addresses it can dial, how long it waits, and its error if no node
//! answers.

use std::time::Duration;

use dunlin::node::NameError;
use dunlin_terminal::failure::Failure;
use dunlin_terminal::output::printable;

/// How long an answer may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Whether it is the address of a single place, with a known port.
pub fn can_be_dialled(address: &str) -> bool {
    !address.starts_with("default-route") && !address.starts_with("memory:") && !address.ends_with(":0")
}

/// The error if no node answers at a given address.
pub fn nobody(app: &str, address: &str, why: &dyn std::fmt::Display) -> Failure {
    // The error names the address once.
    let mut why = why.to_string();
    for said in [format!("{address}: "), format!("cannot connect to `{address}`: ")] {
        why = why.replace(&said, "");
    }
    // The address may come from another node.
    let (address, why) = (printable(address), printable(&why));
    let next = "Check the address: `dunlin names list` shows the nodes and their addresses";
    Failure::failed(format_args!("no node of application {app:?} at {address} ({why}). {next}"))
}

/// The error if a command could not query the node at a given address.
pub fn unanswered(app: &str, address: &str, why: &NameError) -> Failure {
    let plain = plainly(why);
    if !why.is_busy() {
        return nobody(app, address, &plain);
    }
    Failure::failed(format_args!(
        "the node at {} refuses this connection ({}). Try again; its log names the limit",
        printable(address),
        printable(&plain)
    ))
}

/// Why a command could not query a node, without the terms used between nodes.
pub fn plainly(why: &NameError) -> String {
    match why {
        NameError::Unreachable { why, .. } | NameError::TimedOut { without_names: Some(why), .. } => why.clone(),
        NameError::TimedOut { patience, .. } => format!("no answer within {patience:?}"),
        why => why.to_string(),
    }
}
