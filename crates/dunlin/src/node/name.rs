//! Names and their declarations, in words.

use dunlin_proto::wire::{Declaration, Expected, Face};
use dunlin_schema::{Coding, Schema};

/// Names with this prefix are the nodes' own.
pub(crate) const RESERVED: &str = "dunlin.";

/// What an end expects of the other one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Expects {
    /// Nothing.
    #[default]
    Any,
    /// That one node holds it.
    Unshared,
    /// That many nodes may hold it.
    Shared,
}

impl From<Expects> for Expected {
    fn from(expects: Expects) -> Self {
        match expects {
            Expects::Any => Self::Unknown,
            Expects::Unshared => Self::Unshared,
            Expects::Shared => Self::Shared,
        }
    }
}

pub(crate) fn word(face: Face) -> &'static str {
    match face {
        Face::Sender => "sender",
        Face::Receiver => "receiver",
        Face::Client => "client",
        Face::Server => "server",
        Face::Acceptor => "acceptor",
    }
}

/// A declaration as a phrase: "an unshared sender (cbor) that expects the other end to be shared".
pub(crate) fn describe(declared: &Declaration) -> String {
    let face = word(declared.face);
    let held = if declared.shared { "a shared" } else { "an unshared" };
    let expects = match declared.expects {
        Expected::Unknown => "",
        Expected::Unshared => " that expects the other end to be unshared",
        Expected::Shared => " that expects the other end to be shared",
    };
    let encoding = match encoding(declared) {
        "" => String::new(),
        encoding => format!(" ({encoding})"),
    };
    format!("{held} {face}{encoding}{expects}")
}

/// How its messages are encoded. Empty: the declaration does not specify it.
pub(crate) fn encoding(declared: &Declaration) -> &'static str {
    match Schema::decode(&declared.schema).ok().flatten().map(|schema| schema.coding()) {
        Some(Coding::Bytes) => "bytes",
        Some(Coding::Cbor) => "cbor",
        Some(Coding::Compact) => "compact",
        None => "",
    }
}

/// Splits `host:port/name`. Without an address, the name service is asked.
pub(crate) fn split(name: &str) -> (Option<&str>, &str) {
    match name.rsplit_once('/') {
        Some((address, name)) => (Some(address), name),
        None => (None, name),
    }
}
