//! Exhaustive searches of dunlin's hard protocols: every order in which messages can arrive, and every moment
//! for each action of a user, within small bounds.
//!
//! For ends that travel ([`travel`]) and choices ([`choices`]), the transition functions are those of
//! `dunlin-proto`: a [`Machine`](dunlin_proto::Machine) for each node, without sockets. Only the users and a
//! channel's queue are models there. For channels over links ([`reading`]), everything but the messages is a
//! model. For claims ([`claims`]) and barriers ([`barriers`]), the search runs the futures of `dunlin-core`
//! ([`live`]). `cargo run --release -p dunlin-models --features search -- --list` lists the scenarios.
//!
//! Without the feature `search` the crate is empty: a build of the whole workspace has the protocol that
//! ships.
#![cfg(feature = "search")]

pub mod barriers;
pub mod choices;
pub mod claims;
pub mod explore;
pub mod live;
pub mod reading;
pub mod scenarios;
pub mod travel;
