//! The schemas of messages, each traced and encoded once (`dunlin-schema`): when an end is first declared
//! under a name. Channels that stay in this program have none.

use std::any::TypeId;
use std::sync::Mutex;

use bytes::Bytes;
use dunlin_core::Portable;
use dunlin_schema::{Coding, Schema};
use dunlin_sorted::SortedMap;

use super::codec::Encoding;
use crate::lock::lock;

static KNOWN: Mutex<SortedMap<(TypeId, Coding), Bytes>> = Mutex::new(SortedMap::new());

/// The schema of a channel of these messages, or of a bundle whose clients have this face.
pub(crate) fn of_messages<T: Portable>(encoding: Encoding) -> Bytes {
    let coding = match encoding {
        Encoding::Cbor => Coding::Cbor,
        Encoding::Compact => Coding::Compact,
    };
    let key = (TypeId::of::<T>(), coding);
    if let Some(known) = lock(&KNOWN).get(&key) {
        return known.clone();
    }
    // Tracing runs a user's `Deserialize`, so it does not hold the lock.
    let bytes = Schema::of::<T>(coding).encode().expect("a traced schema is within its limits");
    lock(&KNOWN).insert(key, bytes.clone());
    bytes
}
