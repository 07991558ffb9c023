//! What the types of messages look like, found out from their `Deserialize` alone: for the other side to compare (`dunlin_proto::schema`).
//!
//! It is made when an end is first declared under a name, once for each type; channels that stay in this program have none. `tracer.rs` does it.

#[cfg(test)]
mod tests;
mod tracer;

use std::any::{TypeId, type_name};
use std::collections::BTreeMap;
use std::sync::Mutex;

use bytes::Bytes;
use dunlin_core::Portable;
use dunlin_proto::schema::{Coding, Kind, Schema, limits};

use super::bell::lock;
use super::codec::Encoding;

static KNOWN: Mutex<BTreeMap<(TypeId, Coding), Bytes>> = Mutex::new(BTreeMap::new());

/// Of a channel of these messages; or of a bundle whose clients have this face.
pub(crate) fn of_messages<T: Portable>(encoding: Encoding) -> Bytes {
    let id = TypeId::of::<T>();
    let is_raw = id == TypeId::of::<Bytes>() || id == TypeId::of::<Vec<u8>>();
    let coding = match encoding {
        _ if is_raw => Coding::Bytes,
        Encoding::Cbor => Coding::Cbor,
        Encoding::Compact => Coding::Compact,
    };
    if let Some(known) = lock(&KNOWN).get(&(id, coding)) {
        return known.clone();
    }
    let bytes = if is_raw { encode(&Schema::of_bytes()) } else { made::<T>(coding) };
    lock(&KNOWN).insert((id, coding), bytes.clone());
    bytes
}

fn made<T: Portable>(coding: Coding) -> Bytes {
    let schema = Schema::new(coding, tracer::trace::<T>());
    if let Some(bytes) = schema.ok().and_then(|schema| schema.encode().ok()) {
        return bytes;
    }
    // It has too many parts, or names that are too long: then it has to be called the same.
    let opaque = Schema::new(coding, vec![Kind::Opaque(declared_name(type_name::<T>()))]);
    opaque.as_ref().map_or_else(|_| Bytes::new(), encode)
}

fn encode(schema: &Schema) -> Bytes {
    // A name is short. Without a schema nothing would be compared.
    schema.encode().unwrap_or_default()
}

/// A type's name without the paths of modules: `Vec<Order>`.
fn declared_name(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        match rest.strip_prefix("::") {
            Some(behind) => {
                let kept = short.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').len();
                short.truncate(kept);
                rest = behind;
            }
            None => {
                short.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    while short.len() > limits::NAME {
        short.pop();
    }
    short
}
