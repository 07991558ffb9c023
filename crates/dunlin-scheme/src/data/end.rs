//! Ends of channels, as parts of values.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::heap::word;

/// An end of a channel, as a part of a value. A machine only names it: the code that carries out
/// [operations](crate::Operation) knows its type.
///
/// Clones are the same end. An end that is not shared belongs to one process at a time; a message that holds
/// it takes it along. Once the last clone is dropped, so is the end.
///
/// ```
/// use std::sync::Arc;
/// use dunlin_scheme::{End, EndKind};
///
/// let end = End::new(EndKind::Sender, false, Arc::new("a sender"));
/// assert_eq!(end.kind(), EndKind::Sender);
/// assert_eq!(end.get::<&str>(), Some(&"a sender"));
/// ```
#[derive(Clone)]
pub struct End {
    number: u64,
    held: Arc<dyn Any + Send + Sync>,
}

/// Which end of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndKind {
    /// Values go in there.
    Sender,
    /// Values come out there.
    Receiver,
}

impl End {
    /// An end that holds this.
    pub fn new(kind: EndKind, is_shared: bool, held: Arc<dyn Any + Send + Sync>) -> Self {
        // The numbers of two programs, also of two processes of the system, differ: an end that a program
        // does not know is none of its own.
        static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(0_u64)));
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { number: word::end_number(serial, kind == EndKind::Receiver, is_shared), held }
    }

    /// Which end of its channel it is.
    pub fn kind(&self) -> EndKind {
        if word::is_receiver(self.number) { EndKind::Receiver } else { EndKind::Sender }
    }

    /// Whether all processes may use it.
    pub fn is_shared(&self) -> bool {
        word::is_shared_end(self.number)
    }

    /// What it holds, if that has this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.held.downcast_ref()
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl PartialEq for End {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for End {}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#<{} {}>", word::end_name(self.number), self.number)
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An end passes between a value and a type of Rust beside serde, which sees `()` in its place.
#[cfg(feature = "serde")]
pub(super) mod passing {
    use std::cell::{Cell, RefCell};

    use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
    use serde::ser::{Error as _, Serialize, Serializer};

    use super::End;

    /// The name of the type that the two halves for serde know.
    pub(in super::super) const END: &str = "dunlin-scheme end";

    thread_local! {
        /// Whether an end may be put to `PASSED`.
        static IS_OPEN: Cell<bool> = const { Cell::new(false) };
        static PASSED: RefCell<Option<End>> = const { RefCell::new(None) };
    }

    /// The end that `serialize` passes.
    pub(in super::super) fn receive<T>(serialize: impl FnOnce() -> T) -> (T, Option<End>) {
        IS_OPEN.set(true);
        let result = serialize();
        IS_OPEN.set(false);
        (result, PASSED.take())
    }

    /// Passes an end to what is deserialized meanwhile.
    pub(in super::super) fn pass<T>(end: &End, deserialize: impl FnOnce() -> T) -> T {
        PASSED.replace(Some(end.clone()));
        let result = deserialize();
        PASSED.take();
        result
    }

    struct Passed<'e>(&'e End);

    impl Serialize for Passed<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            if !IS_OPEN.get() {
                return Err(S::Error::custom("an end of a channel of Scheme cannot be encoded"));
            }
            PASSED.replace(Some(self.0.clone()));
            serializer.serialize_unit()
        }
    }

    /// Only [`value_of`](crate::value_of) can encode it.
    impl Serialize for End {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_newtype_struct(END, &Passed(self))
        }
    }

    /// Only [`from_value`](crate::from_value) can decode it.
    impl<'de> Deserialize<'de> for End {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Taken;
            impl<'de> Visitor<'de> for Taken {
                type Value = End;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("an end of a channel")
                }

                fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<End, D::Error> {
                    <()>::deserialize(deserializer)?;
                    PASSED.take().ok_or_else(|| D::Error::custom("an end of a channel of Scheme cannot be decoded"))
                }
            }
            deserializer.deserialize_newtype_struct(END, Taken)
        }
    }
}
