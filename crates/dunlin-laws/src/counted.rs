//! A value that counts its copies, including copies that have crossed to another node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// All clones of one [`Counted::new`] are copies of each other.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    number: u64,
    count: Arc<()>,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// Only the number is serialized: deserialization finds the count here.
static COUNTS: Mutex<(u64, BTreeMap<u64, Weak<()>>)> = Mutex::new((0, BTreeMap::new()));

fn counts() -> MutexGuard<'static, (u64, BTreeMap<u64, Weak<()>>)> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counted {
    pub(crate) fn new() -> Self {
        let mut counts = counts();
        counts.0 += 1;
        counts.1.retain(|_, count| count.strong_count() > 0);
        let (number, count) = (counts.0, Arc::default());
        counts.1.insert(number, Arc::downgrade(&count));
        Self { number, count }
    }

    /// The number of copies, including this one.
    pub(crate) fn count(&self) -> usize {
        Arc::strong_count(&self.count)
    }
}

impl Serialize for Counted {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        let count = counts().1.get(&number).and_then(Weak::upgrade);
        count.map(|count| Self { number, count }).ok_or_else(|| de::Error::custom("all of it have been dropped"))
    }
}
