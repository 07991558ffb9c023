//! Pids in messages.

use std::fmt;

use dunlin_proto::id::{Incarnation, Life, NodeId, ProcessId};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};

use super::super::pid::Pid;
use super::exit::{here, pid};
use super::into::HERE;
use crate::node::signals;

/// How a message names a process: the node in two halves, its incarnation, the number, the place, the bits.
type Parts = (u64, u64, u64, u64, u32, u64);

/// The name of the newtype struct, in schemas.
const PID: &str = "Pid";

const OUTSIDE: &str = "a pid can only travel inside a message between nodes";

impl Serialize for Pid {
    /// Writes which process it is, with the right to send signals to it.
    ///
    /// # Errors
    /// Outside of a message between nodes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let id = match self.id_there() {
            Some((id, _)) => Some(id),
            None => signals::id_of(here(*self), &HERE),
        };
        let id = id.ok_or_else(|| ser::Error::custom(OUTSIDE))?;
        let node = id.life.node.0;
        let parts: Parts = ((node >> 64) as u64, node as u64, id.life.incarnation.0, id.number, id.place, id.bits);
        serializer.serialize_newtype_struct(PID, &parts)
    }
}

impl<'de> Deserialize<'de> for Pid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(PID, PidVisitor)
    }
}

struct PidVisitor;

impl<'de> de::Visitor<'de> for PidVisitor {
    type Value = Pid;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the pid of a process")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Pid, D::Error> {
        of_parts(Parts::deserialize(deserializer)?)
    }

    // Formats without newtype structs pass the inner value.
    fn visit_seq<A: de::SeqAccess<'de>>(self, sequence: A) -> Result<Pid, A::Error> {
        of_parts(Parts::deserialize(de::value::SeqAccessDeserializer::new(sequence))?)
    }
}

/// The process that a message names.
fn of_parts<E: de::Error>(parts: Parts) -> Result<Pid, E> {
    let (high, low, incarnation, number, place, bits) = parts;
    let life = Life { node: NodeId(u128::from(high) << 64 | u128::from(low)), incarnation: Incarnation(incarnation) };
    let id = ProcessId { life, number, place, bits };
    match signals::find(id) {
        Some(_) if life.node == NodeId(0) || incarnation == 0 => Err(E::custom("a pid has no node")),
        Some((found, via)) => Ok(pid(via, found)),
        // The tracer of schemas reads a pid of zeros.
        None if life.node == NodeId(0) => Ok(Pid::there(id, u64::MAX)),
        None => Err(E::custom(OUTSIDE)),
    }
}
