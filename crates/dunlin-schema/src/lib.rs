//! Schemas of messages: what both sides of a channel declare about its messages, and whether one side can
//! read what the other side writes.
//!
//! A [`Schema`] is a graph of [`Kind`]s, with the names of fields and variants; recursive types have one too.
//! A schema is data: two programs, or two versions of one, exchange their schemas as [bytes](Schema::encode),
//! and [`compare`] finds the first [`Difference`] before a message is sent. The comparison knows both
//! encodings of [dunlin](https://docs.rs/dunlin), CBOR and postcard, and what ends of channels in a message
//! carry.
//!
//! With the feature `trace`, `Schema::of` derives the schema of a type from its `Deserialize`; it needs
//! neither a derive of its own nor a sample value.
//!
//! Nodes of `dunlin` compare the schemas of named ends for you, and report a difference as
//! `NameError::Mismatch`. Depend on this crate to use schemas without a node, for example to test that a new
//! version of a message is compatible with the old one.
//!
//! # Examples
#![cfg_attr(feature = "trace", doc = "```")]
#![cfg_attr(not(feature = "trace"), doc = "```ignore")]
//! use dunlin_schema::{Coding, Schema, Sides, compare};
//!
//! mod v1 {
//!     #[derive(serde::Deserialize)]
//!     pub struct Order {
//!         pub fish: String,
//!         pub count: u16,
//!     }
//! }
//! mod v2 {
//!     #[derive(serde::Deserialize)]
//!     pub struct Order {
//!         pub fish: String,
//!         pub count: u32,
//!         #[serde(default)]
//!         pub on_ice: bool,
//!     }
//! }
//!
//! let before = Schema::of::<v1::Order>(Coding::Cbor);
//! let after = Schema::of::<v2::Order>(Coding::Cbor);
//!
//! // A receiver of version 2 reads what a sender of version 1 writes.
//! let receives = Sides { here_writes: false, is_face: false };
//! assert_eq!(compare(&after, &before, receives), Ok(()));
//!
//! // A receiver of version 1 does not read what a sender of version 2 writes.
//! let difference = compare(&before, &after, receives).unwrap_err();
//! assert_eq!(difference.to_string(), "`Order.count`: u32 there, u16 here");
//!
//! // Schemas are exchanged as bytes.
//! let bytes = after.encode()?;
//! assert_eq!(Schema::decode(&bytes)?, Some(after));
//! # Ok::<(), dunlin_schema::SchemaError>(())
//! ```

mod codec;
mod compare;
mod error;
mod kinds;
pub mod limits;
#[cfg(feature = "trace")]
mod trace;
#[cfg(feature = "trace")]
#[doc(hidden)]
pub use trace::ADDRESS;

pub use compare::{Difference, Sides, compare, compare_encoded};
pub use error::SchemaError;
pub use kinds::{Coding, EndKind, Field, Kind, KindId, Schema, Variant};
