//! Exhaustive searches of dunlin's hard protocols: every order in which messages can arrive, every moment for
//! each thing a user can do, within small bounds.
//!
//! Of ends that travel ([`travel`]) and choices ([`choices`]) the transition functions are those of
//! `dunlin-proto`: a [`Machine`](dunlin_proto::Machine) for each node, without sockets. What is a model there
//! is only the users and a channel's queue. Of channels over links ([`reading`]) everything but the words is.
//! Of claims ([`claims`]) and barriers ([`barriers`]) it is the futures of `dunlin-core` that are run
//! ([`live`]). `cargo run --release -p dunlin-models --features search -- --list` lists what there is to
//! search.
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
