//! Mailboxes and addresses between nodes: how an address is written and read, and what a mailbox does with
//! messages from other nodes.
//!
//! A message is encoded when it is sent (`remote.rs`) and decoded when its receiver looks at it (`came.rs`),
//! so no task of a node runs code of users for it.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use bytes::Bytes;
use dunlin_core::Portable;
use dunlin_core::carrier::EndKind;
use dunlin_proto::id::MailboxId;
use dunlin_schema::ADDRESS;
use serde::de::{self, DeserializeSeed, VariantAccess};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser};

use super::address::{Address, To};
use super::bound::Bound;
use super::came::Came;
use super::queue::{Entry, Shared};
use super::remote::{ENCODING, Far};
use crate::node::codec::decode_post;
use crate::node::mailboxes::{Delivered, Found, Inbox, Opening, Place, Receipt, Remote, find, open, place_of};
use crate::node::of_messages;

impl<M: Portable> Inbox for Shared<M> {
    fn deliver(self: Arc<Self>, message: Bytes, receipt: Receipt) -> Delivered {
        let decode = |bytes: &Bytes| decode_post(bytes, ENCODING).map_err(|error| error.to_string());
        let came = Came::new(message, decode, receipt);
        let (dropped, was_full) = self.deliver_entry(Entry::Far(Box::new(came)));
        Delivered { was_full, dropped: dropped.map(|entry| Box::new(entry) as Box<dyn Send>) }
    }

    fn receiver(&self) -> Option<Waker> {
        self.take_receiver()
    }
}

impl<M: Portable> Address<M> {
    /// How a message names the mailbox.
    fn place(&self) -> Option<Place> {
        let shared = match &self.to {
            To::Here(shared) => shared,
            To::There(far) => return place_of(far.remote()),
        };
        let id = MailboxId { number: shared.number, bits: shared.bits() };
        let posts_max = match shared.bound() {
            Bound::Unbounded => u32::MAX,
            Bound::Reject(max) | Bound::DropOldest(max) => u32::try_from(max.get()).unwrap_or(u32::MAX),
        };
        let opening = Opening { id, schema: of_messages::<M>(ENCODING), posts_max };
        let (place, node) = open(shared.clone(), opening)?;
        shared.is_open_at(node);
        Some(place)
    }

    fn of_place(place: Place) -> Result<Self, String> {
        let bits = place.id().bits;
        match find(place)? {
            Found::There(remote) => Ok(Self::far(Far::new(remote))),
            Found::Here(inbox) => {
                let any: Arc<dyn Any + Send + Sync> = inbox;
                match any.downcast::<Shared<M>>() {
                    Ok(shared) if shared.bits() == bits => Ok(Self::new(shared)),
                    Ok(_) => Ok(Self::far(Far::new(Remote::nowhere()))),
                    Err(_) => Err("an address has come home as that of a mailbox of another type".to_owned()),
                }
            }
        }
    }
}

impl<M: Portable> Serialize for Address<M> {
    /// Writes where the mailbox is. The mailbox may then receive messages from other nodes.
    ///
    /// # Errors
    /// Outside of a message between nodes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let place = self.place().ok_or("an address can only travel inside a message between nodes");
        serializer.serialize_newtype_struct(ADDRESS, &place.map_err(ser::Error::custom)?)
    }
}

impl<'de, M: Portable> Deserialize<'de> for Address<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_newtype_struct(ADDRESS, AddressVisitor(PhantomData))
    }
}

struct AddressVisitor<M>(PhantomData<fn() -> M>);

impl<'de, M: Portable> de::Visitor<'de> for AddressVisitor<M> {
    type Value = Address<M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address of a mailbox")
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        Address::of_place(Place::deserialize(deserializer)?).map_err(de::Error::custom)
    }

    // Formats without newtype structs pass the inner value.
    fn visit_seq<A: de::SeqAccess<'de>>(self, sequence: A) -> Result<Self::Value, A::Error> {
        let place = Place::deserialize(de::value::SeqAccessDeserializer::new(sequence))?;
        Address::of_place(place).map_err(de::Error::custom)
    }

    // For the tracer of schemas, as ends: see `EndKind::label` of the core.
    fn visit_enum<A: de::EnumAccess<'de>>(self, access: A) -> Result<Self::Value, A::Error> {
        let (index, content) = access.variant_seed(WhichMessage)?;
        if index == EndKind::NOTHING {
            content.unit_variant()?;
        } else {
            drop(content.newtype_variant::<M>()?);
        }
        Ok(Address::far(Far::new(Remote::nowhere())))
    }
}

/// The seed for the message type to be traced.
struct WhichMessage;

impl<'de> DeserializeSeed<'de> for WhichMessage {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_enum(dunlin_schema::EndKind::Address.word(), &["message"], self)
    }
}

impl de::Visitor<'_> for WhichMessage {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number of what an address carries")
    }

    fn visit_u32<R>(self, index: u32) -> Result<u32, R> {
        Ok(index)
    }
}
