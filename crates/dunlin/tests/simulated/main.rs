//! Nodes in simulations: virtual time, random schedules, and cut connections. One binary, because one
//! simulation runs at a time in a process; `cargo test -p dunlin --features sim --test simulated` runs them.

#[path = "../support/ends.rs"]
mod ends;
#[path = "../support/random.rs"]
mod random;
#[path = "../support/scopes.rs"]
mod scope_support;
#[path = "../support/starts.rs"]
mod starts;
#[allow(dead_code, reason = "simulated tests use only a part of what tests of nodes share")]
#[path = "../support/nodes.rs"]
mod support;

mod barrier;
mod broadcast;
mod calls;
mod choice;
mod config;
mod costs;
mod dispatchers;
mod hostile;
mod leaving;
mod links;
mod mailboxes;
mod names;
mod pairs;
mod relays;
mod remote;
mod requests;
mod rest;
mod retiring;
mod roles;
mod scopes;
mod shared;
mod signals;
mod straight;
mod through;
mod whole;
