//! Messages that can leave this program: values that serde can write and read, with the ends inside them.
//!
//! An end is written as a number. The end itself goes beside the bytes: [`carrier`] describes how, and `ends`
//! implements it for each kind of end. `agents` stand for an end that has left, without the type of its
//! messages, and `codec` writes values.

mod agents;
#[doc(hidden)]
pub mod carrier;
pub(crate) mod codec;
mod ends;
#[cfg(feature = "link")]
mod message;
#[cfg(feature = "link")]
pub(crate) mod scratch;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A message that can be sent to another node: a type that serde can write and read again, and that owns its
/// contents.
///
/// Do not implement this by hand; derive serde's two traits. Ends are portable when their messages are, so a
/// message may hold ends, also of channels of its own type. In a message they *move*: the receiver of the
/// message holds the end from then on. The pending state of an end goes with it: a buffered value, a
/// forgotten offer.
///
/// Only the carrier of a message can take an end along. With any other serializer, say to a file, writing an
/// end is an error, and the end is unchanged.
///
/// A message must be the only owner of its ends. If an end has another owner (behind an `Arc`, say, with
/// serde's feature `rc`), it stays there, the hand-over fails, and the reader of the message gets an error
/// for the end: [`share`](crate::Sender::share) it instead. (A place for a reply may go all the same: the
/// first reply is the one that counts.)
///
/// Enums may be tagged in any of serde's ways, and fields flattened. An `untagged` enum is read by trying its
/// variants; an end that a failed try has read is there for the next. Serde itself refuses two things, with
/// an error and nothing lost: a `flatten` on an end, and a bare end as variant of an internally tagged enum
/// (`#[serde(tag = "..")] enum E { A(Sender<u8>) }`; write `A { tx: Sender<u8> }`).
///
/// # Examples
/// A protocol that sends its own channels:
/// ```
/// use dunlin_core::{Portable, Sender, Shared};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// enum Turn {
///     Play { card: u8, next: Sender<Turn> },
///     Watch(Shared<Sender<u8>>),
///     Over,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(bound = "T: Portable")] // what serde guesses, `T: Serialize`, is not enough for a `Sender<T>`
/// struct Ask<T> {
///     what: T,
///     reply: Sender<T>,
/// }
///
/// fn portable<T: Portable>() {}
/// portable::<Turn>();
/// portable::<Sender<Sender<Ask<Turn>>>>();
/// ```
///
/// In the default encoding between nodes, CBOR, `Some(None)` arrives as `None`, also where the inner `None`
/// is that of a newtype, as `Some(N(None))` of `struct N(Option<u8>)`. Ends declared with `Encoding::Compact`
/// preserve it.
///
/// A message with an end, carried by hand:
/// ```
/// use dunlin_core::carrier::{Inbox, Outbox};
/// use dunlin_core::{Sender, channel_with, fifo};
///
/// # dunlin_core::doc::block_on(async {
/// let (tx, mut rx) = channel_with::<String>(fifo(2));
/// let message = ("krill", tx);
///
/// let mut outbox = Outbox::new();
/// let json = outbox.encode(|| serde_json::to_string(&message)).unwrap();
/// let ends = outbox.seal().unwrap().commit(message).unwrap();
/// assert_eq!(json, r#"["krill",0]"#);
///
/// let mut inbox = Inbox::new(ends);
/// let (what, mut tx): (String, Sender<String>) = inbox.decode(|| serde_json::from_str(&json)).unwrap();
/// tx.send(what).await.unwrap();
/// assert_eq!(rx.recv().await.unwrap(), "krill");
/// # });
/// ```
///
/// A type that serde cannot write does not leave the node:
/// ```compile_fail,E0277
/// fn portable<T: dunlin_core::Portable>() {}
/// portable::<dunlin_core::Sender<std::fs::File>>();
/// ```
///
/// # Source
/// Mobile channel ends of occam-pi (Welch and Barnes, 2005), networked by pony (Schweigler, 2006).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent to another node",
    label = "this, or what it carries, is not `Portable`",
    note = "a message is portable if it owns what it holds, is `Send`, and has `#[derive(serde::Serialize, serde::Deserialize)]`",
    note = "an end is portable if its messages are; a generic message with ends in it needs `#[serde(bound = \"T: Portable\")]`",
    note = "a bundle that stays in this program is declared with `#[bundle(local)]`"
)]
pub trait Portable: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Portable for T {}
