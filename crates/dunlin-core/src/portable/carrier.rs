//! The hook of whoever carries messages: ends go beside the bytes.
//!
//! A message is handed over in three steps, and until the last nothing has happened to it:
//! 1. *Encode.* [`Outbox::encode`] runs the serializer. Each end it meets is *staged*, and written as its number among
//!    them. The message still holds its ends. If the serializer fails or panics, nothing is staged.
//! 2. *Carry.* [`Outbox::seal`] says that the encoding is what will be sent. The carrier keeps the message and the [`Sealed`] until
//!    it knows that the message was taken. If it was refused, it drops the `Sealed`, and the message is as it was: it is never rebuilt.
//! 3. *Hand over.* [`Sealed::commit`] consumes the message and gives its ends as [`CarriedEnd`]s: from then on they are the ends.
//!    Dropped, they are gone as if dropped by their holder.
//!
//! On the other side [`Inbox::decode`] runs the deserializer, which takes each end by its number, once. Ends that
//! nobody took (a field which this version does not know) are dropped as if by their holder.
//!
//! Which outbox or inbox is meant says a variable of the thread that lasts as long as the call. Calls nest: within one, a message can be
//! encoded that another carrier takes.
//!
//! # What a carrier must see to
//! The message given to `commit` is the one that was encoded, and it owns the ends that were staged. An end that a message
//! shares (`Arc<Mutex<Sender<T>>>`, with serde's feature `rc`) lives on in the other holders, who then have the same end
//! as the receiver of the message. A `Drop` of the message that uses its ends runs at the hand-over.

use std::any::{Any, type_name};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::thread::LocalKey;

use serde::{Deserialize, Deserializer, Serializer, de, ser};

/// What kind of end something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndKind {
    /// A [`Sender`](crate::Sender).
    Sender {
        /// Whether it has the power to poison.
        may_poison: bool,
    },
    /// A [`Receiver`](crate::Receiver).
    Receiver {
        /// Whether it has the power to poison.
        may_poison: bool,
    },
    /// A handle of a [`Shared`](crate::Shared) end.
    Shared,
    /// A [`Caller`](crate::Caller).
    Caller,
    /// A [`Callee`](crate::Callee).
    Callee,
    /// A [`Reply`](crate::Reply).
    Reply,
}

impl EndKind {
    /// The name of the newtype struct as which such an end is written; inside is its number, a `u64`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sender { .. } => "dunlin::Sender",
            Self::Receiver { .. } => "dunlin::Receiver",
            Self::Shared => "dunlin::Shared",
            Self::Caller => "dunlin::Caller",
            Self::Callee => "dunlin::Callee",
            Self::Reply => "dunlin::Reply",
        }
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sender { may_poison: true } => "sender",
            Self::Sender { may_poison: false } => "sender that may not poison",
            Self::Receiver { may_poison: true } => "receiver",
            Self::Receiver { may_poison: false } => "receiver that may not poison",
            Self::Shared => "shared end",
            Self::Caller => "caller",
            Self::Callee => "callee",
            Self::Reply => "place for a reply",
        })
    }
}

/// Why an end could not be written into a message, or read from one.
///
/// Serde's errors are the format's own, and have only the text of this. The carrier finds it in [`Outbox::error`] or
/// [`Inbox::error`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CarryError {
    /// An end was written outside of [`Outbox::encode`].
    #[error("an end can only travel inside a message on a dunlin channel")]
    NotCarried,
    /// An end was read outside of [`Inbox::decode`].
    #[error("an end can only be read from a message that came over a dunlin channel")]
    NotArrived,
    /// The same end was written twice.
    #[error("the same {kind} is in this message twice, and only one can hold it")]
    Twice {
        /// What it is.
        kind: EndKind,
    },
    /// [`Outbox::seal`] without an encoding that succeeded.
    #[error("no message has been encoded")]
    NotEncoded,
    /// A number for which no end came along.
    #[error("the message names end {token}, which did not come with it")]
    NoSuchEnd {
        /// The number.
        token: u64,
    },
    /// The end was read before, from the same message.
    #[error("the message names end {token} twice, or was read twice (as an `untagged` enum does)")]
    Taken {
        /// The end's number.
        token: u64,
    },
    /// The end is of another kind.
    #[error("end {token} of the message is a {found}; a {expected} was expected")]
    WrongKind {
        /// The end's number.
        token: u64,
        /// What the reader asked for.
        expected: EndKind,
        /// What came.
        found: EndKind,
    },
    /// The kind is right, but not the type of its messages.
    #[error("end {token} of the message is a `{found}`; a `{expected}` was expected")]
    WrongType {
        /// The end's number.
        token: u64,
        /// What the reader asked for.
        expected: &'static str,
        /// What came.
        found: &'static str,
    },
}

/// Which end it is: the same one twice in a message would have two holders afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The sending side of the channel at this address.
    Sending(usize),
    /// Its receiving side.
    Receiving(usize),
    /// The handle of a shared end that has this wait record.
    Handle(u32),
}

/// Makes the end that goes on in place of the staged one, whose own drop then means nothing.
pub(super) type Successor<E> = Box<dyn FnOnce() -> E + Send>;

/// An end that can be staged.
pub(super) trait Mobile: Send + Sized + 'static {
    fn kind() -> EndKind;
    fn place(&self) -> Place;
    fn successor(&self) -> Successor<Self>;
}

struct Staged {
    kind: EndKind,
    place: Place,
    hand_over: Box<dyn FnOnce(u64) -> CarriedEnd + Send>,
}

#[derive(Default)]
struct Staging {
    /// An end's number is its place here.
    ends: Vec<Staged>,
    error: Option<CarryError>,
}

thread_local! {
    static STAGING: RefCell<Option<Staging>> = const { RefCell::new(None) };
    static ARRIVING: RefCell<Option<Arriving>> = const { RefCell::new(None) };
}

/// What `own` holds is the thread's until this is dropped, also by a panic; then it is back, and what was the thread's before, too.
struct Installed<'a, T: 'static> {
    key: &'static LocalKey<RefCell<Option<T>>>,
    before: Option<T>,
    own: &'a mut T,
}

impl<'a, T: Default> Installed<'a, T> {
    fn new(key: &'static LocalKey<RefCell<Option<T>>>, own: &'a mut T) -> Self {
        let before = exchange(key, Some(std::mem::take(own)));
        Self { key, before, own }
    }
}

impl<T: 'static> Drop for Installed<'_, T> {
    fn drop(&mut self) {
        if let Some(own) = exchange(self.key, self.before.take()) {
            *self.own = own;
        }
    }
}

/// A thread that is ending has no variables any more: then nothing is installed, and ends are refused.
fn exchange<T>(key: &'static LocalKey<RefCell<Option<T>>>, value: Option<T>) -> Option<T> {
    key.try_with(|current| current.replace(value)).ok().flatten()
}

/// Calls `f` with what is installed. `f` runs no code of the user's: the variable is borrowed.
fn installed<T, R>(key: &'static LocalKey<RefCell<Option<T>>>, f: impl FnOnce(&mut T) -> R) -> Option<R> {
    key.try_with(|current| current.borrow_mut().as_mut().map(f)).ok().flatten()
}

/// Collects the ends of one message while it is encoded: see the [module](self).
///
/// # Examples
/// A message that was refused is still whole:
/// ```
/// use dunlin_core::carrier::Outbox;
/// use dunlin_core::{channel_with, fifo};
///
/// let (tx, mut rx) = channel_with(fifo(1));
/// let message = (7, tx);
///
/// let mut outbox = Outbox::new();
/// outbox.encode(|| serde_json::to_string(&message)).unwrap();
/// let sealed = outbox.seal().unwrap();
/// drop(sealed); // the other side would not have it
///
/// let (n, mut tx) = message;
/// tx.try_send(n).unwrap();
/// assert_eq!(rx.try_recv(), Ok(7));
/// ```
///
/// Without a carrier an end cannot be written:
/// ```
/// let (tx, _rx) = dunlin_core::channel::<u8>();
/// let error = serde_json::to_string(&tx).unwrap_err();
/// assert_eq!(error.to_string(), "an end can only travel inside a message on a dunlin channel");
/// ```
#[derive(Default)]
pub struct Outbox {
    staging: Staging,
    encoded: bool,
}

impl Outbox {
    /// An outbox with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `encode`, which serialises the message, and stages the ends that it meets on this thread.
    ///
    /// A second call begins anew: what counts is the last one. So a size can be asked for first.
    ///
    /// # Errors
    /// Those of `encode`. Nothing is staged then, as after a panic.
    pub fn encode<R, E>(&mut self, encode: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.encoded = false;
        self.staging = Staging::default();
        let encoding = Installed::new(&STAGING, &mut self.staging);
        let result = encode();
        drop(encoding);
        self.encoded = result.is_ok();
        if self.encoded {
            self.staging.error = None;
        } else {
            self.staging.ends.clear();
        }
        result
    }

    /// Why the last encoding failed, if it was because of an end.
    pub fn error(&self) -> Option<&CarryError> {
        self.staging.error.as_ref()
    }

    /// The encoding is what will be sent.
    ///
    /// # Errors
    /// [`CarryError::NotEncoded`] if the last one failed, or there was none.
    pub fn seal(self) -> Result<Sealed, CarryError> {
        if self.encoded { Ok(Sealed { ends: self.staging.ends }) } else { Err(CarryError::NotEncoded) }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("encoded", &self.encoded).finish_non_exhaustive()
    }
}

/// The ends of a message that is on its way: see the [module](self). Dropped, it has changed nothing.
#[must_use = "without `commit` the ends stay where they are"]
pub struct Sealed {
    ends: Vec<Staged>,
}

impl Sealed {
    /// The kinds of the ends, in the order of their numbers.
    pub fn kinds(&self) -> impl ExactSizeIterator<Item = EndKind> {
        self.ends.iter().map(|staged| staged.kind)
    }

    /// The message was taken: consumes it, and gives its ends, in the order of their numbers.
    ///
    /// `message` must be the one that was encoded.
    pub fn commit<M>(self, message: M) -> Vec<CarriedEnd> {
        let ends = (0..).zip(self.ends).map(|(token, staged)| (staged.hand_over)(token)).collect();
        // Now, while each of its ends is to be ignored once; also if it panics, the new ends are dropped after it.
        drop(message);
        ends
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds()).finish()
    }
}

/// An end between two holders. Dropped, it is gone as if dropped by its holder.
#[must_use = "dropped, the end leaves its channel"]
pub struct CarriedEnd {
    token: u64,
    kind: EndKind,
    type_name: &'static str,
    end: Box<dyn Any + Send>,
}

impl CarriedEnd {
    fn new<E: Mobile>(token: u64, end: E) -> Self {
        Self { token, kind: E::kind(), type_name: type_name::<E>(), end: Box::new(end) }
    }

    /// Its number in the message.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// What it is.
    pub fn kind(&self) -> EndKind {
        self.kind
    }

    /// The end itself: a `Sender<T, P>`, or what its kind says.
    pub fn into_any(self) -> Box<dyn Any + Send> {
        self.end
    }

    /// Whether it is an `E`, and if not, why it cannot be read as one.
    fn check<E: Mobile>(&self) -> Result<(), CarryError> {
        let token = self.token;
        if self.end.is::<E>() {
            Ok(())
        } else if self.kind != E::kind() {
            Err(CarryError::WrongKind { token, expected: E::kind(), found: self.kind })
        } else {
            Err(CarryError::WrongType { token, expected: type_name::<E>(), found: self.type_name })
        }
    }
}

impl fmt::Debug for CarriedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CarriedEnd").field("token", &self.token).field("type", &self.type_name).finish()
    }
}

struct Arrival {
    token: u64,
    /// `None` once it was taken.
    end: Option<CarriedEnd>,
}

#[derive(Default)]
struct Arriving {
    /// In order of their numbers.
    ends: Vec<Arrival>,
    error: Option<CarryError>,
}

impl Arriving {
    fn take<E: Mobile>(&mut self, token: u64) -> Result<CarriedEnd, CarryError> {
        let index = self.ends.binary_search_by_key(&token, |arrival| arrival.token);
        let arrival = index.ok().and_then(|index| self.ends.get_mut(index)).ok_or(CarryError::NoSuchEnd { token })?;
        // What is not asked for rightly stays: a reader may try something else.
        arrival.end.as_ref().ok_or(CarryError::Taken { token })?.check::<E>()?;
        arrival.end.take().ok_or(CarryError::Taken { token })
    }
}

/// The ends that came with one message, for its deserializer to take: see the [module](self).
///
/// Dropped, it drops the ends in it as if by their holder.
///
/// # Examples
/// ```
/// use dunlin_core::carrier::{CarryError, Inbox, Outbox};
/// use dunlin_core::{Receiver, Sender, channel};
///
/// let (tx, _rx) = channel::<u8>();
/// let mut outbox = Outbox::new();
/// let json = outbox.encode(|| serde_json::to_string(&tx)).unwrap();
/// let mut inbox = Inbox::new(outbox.seal().unwrap().commit(tx));
///
/// let wrong: Result<Receiver<u8>, _> = inbox.decode(|| serde_json::from_str(&json));
/// assert_eq!(wrong.unwrap_err().to_string(), "end 0 of the message is a sender; a receiver was expected");
/// assert!(matches!(inbox.error(), Some(CarryError::WrongKind { token: 0, .. })));
///
/// // It is still there.
/// let tx: Sender<u8> = inbox.decode(|| serde_json::from_str(&json)).unwrap();
/// assert!(!tx.is_closed());
/// ```
#[derive(Default)]
pub struct Inbox {
    arriving: Arriving,
}

impl Inbox {
    /// An inbox with the ends of one message.
    pub fn new(ends: Vec<CarriedEnd>) -> Self {
        let mut ends: Vec<_> = ends.into_iter().map(|end| Arrival { token: end.token, end: Some(end) }).collect();
        ends.sort_by_key(|arrival| arrival.token);
        Self { arriving: Arriving { ends, error: None } }
    }

    /// Runs `decode`, which deserialises the message, and gives it the ends that it asks for on this thread.
    ///
    /// Once it has succeeded, the ends that it did not ask for are dropped as if by their holder.
    ///
    /// # Errors
    /// Those of `decode`. The ends that were not taken are still here; those that were are gone with what they were in.
    pub fn decode<R, E>(&mut self, decode: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        self.arriving.error = None;
        let decoding = Installed::new(&ARRIVING, &mut self.arriving);
        let result = decode();
        drop(decoding);
        if result.is_ok() {
            self.arriving.error = None;
            for arrival in &mut self.arriving.ends {
                arrival.end = None;
            }
        }
        result
    }

    /// Why the last decoding failed, if it was because of an end.
    pub fn error(&self) -> Option<&CarryError> {
        self.arriving.error.as_ref()
    }

    /// The ends that are still here, in the order of their numbers.
    pub fn into_ends(self) -> Vec<CarriedEnd> {
        self.arriving.ends.into_iter().filter_map(|arrival| arrival.end).collect()
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.arriving.ends.iter().filter_map(|arrival| arrival.end.as_ref())).finish()
    }
}

/// Stages the end and writes its number.
pub(super) fn write<E: Mobile, S: Serializer>(end: &E, serializer: S) -> Result<S::Ok, S::Error> {
    let token = stage(end).map_err(ser::Error::custom)?;
    serializer.serialize_newtype_struct(E::kind().name(), &token)
}

fn stage<E: Mobile>(end: &E) -> Result<u64, CarryError> {
    let (kind, place, successor) = (E::kind(), end.place(), end.successor());
    let hand_over = Box::new(move |token| CarriedEnd::new(token, successor()));
    let staged = Staged { kind, place, hand_over };
    installed(&STAGING, |staging| {
        if staging.ends.iter().any(|other| other.place == place) {
            let twice = CarryError::Twice { kind };
            staging.error = Some(twice.clone());
            return Err(twice);
        }
        let token = staging.ends.len() as u64;
        staging.ends.push(staged);
        Ok(token)
    })
    .unwrap_or(Err(CarryError::NotCarried))
}

/// Reads an end's number and takes the end.
pub(super) fn read<'de, E: Mobile, D: Deserializer<'de>>(deserializer: D) -> Result<E, D::Error> {
    let token = deserializer.deserialize_newtype_struct(E::kind().name(), TokenVisitor::<E>(PhantomData))?;
    take(token).map_err(de::Error::custom)
}

fn take<E: Mobile>(token: u64) -> Result<E, CarryError> {
    let carried = installed(&ARRIVING, |arriving| {
        let taken = arriving.take::<E>(token);
        arriving.error = taken.as_ref().err().cloned().or(arriving.error.take());
        taken
    });
    let carried = carried.unwrap_or(Err(CarryError::NotArrived))?;
    let found = carried.type_name;
    let end = carried.end.downcast::<E>();
    end.map(|end| *end).map_err(|_| CarryError::WrongType { token, expected: type_name::<E>(), found })
}

struct TokenVisitor<E>(PhantomData<fn() -> E>);

impl<'de, E: Mobile> de::Visitor<'de> for TokenVisitor<E> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the number of a {}", E::kind())
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        u64::deserialize(deserializer)
    }

    // Formats without newtype structs give what is inside.
    fn visit_u64<R>(self, token: u64) -> Result<u64, R> {
        Ok(token)
    }

    fn visit_i64<R: de::Error>(self, token: i64) -> Result<u64, R> {
        u64::try_from(token).map_err(|_| R::invalid_value(de::Unexpected::Signed(token), &self))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut sequence: A) -> Result<u64, A::Error> {
        sequence.next_element()?.ok_or_else(|| de::Error::invalid_length(0, &self))
    }
}
