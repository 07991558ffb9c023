//! Exhaustive searches of dunlin's hard protocols: every order in which messages can arrive, every moment for each thing a user can do,
//! within small bounds.
//!
//! The transition functions are those of `dunlin-proto`: a [`Machine`](dunlin_proto::Machine) for each node, without sockets. What is a
//! model here is only the users and a channel's queue. `cargo run --release -p dunlin-models` says what there is to search.

pub mod barriers;
pub mod choices;
pub mod claims;
pub mod explore;
pub mod live;
pub mod scenarios;
pub mod travel;
