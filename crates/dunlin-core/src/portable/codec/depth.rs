//! Serde's serializers and deserializers with a bound on how deep values nest.
//!
//! A [`Bounded`] wraps each object that serde passes: serializer, deserializer, visitor, access, seed. It
//! counts the remaining levels, and passes one less to the inner objects. Levels are counted alike in both
//! directions and for both encodings, so that a receiver can read every value that a sender may send: one for
//! each struct, tuple, sequence, map, `Some`, and enum variant with content.
//!
//! It also carries error texts: an inner format may have no room for them in its errors (postcard has none),
//! so they bypass it, through the [`Context`].

use std::cell::Cell;
use std::fmt;

use serde::de::{self, Deserializer};
use serde::ser::{self, Serialize, Serializer};

/// How deep a value may nest.
pub const DEPTH_MAX: u32 = 256;

/// How much stack the nesting may take: half of a thread's. The stack that a level takes depends on its type,
/// and on the build: from a hundred bytes to tens of thousands (a struct with some arrays in it, without
/// optimisation), so levels alone do not prevent a stack overflow.
const STACK_BYTES_MAX: usize = 1024 * 1024;

/// How many elements may take no bytes: see [`Context::take_element`].
const EMPTY_ELEMENTS_MAX: u64 = 64 * 1024;

/// Why a value was not written or read.
#[derive(Debug)]
pub enum Failure {
    /// It nests too deep.
    TooDeep,
    /// The error of its `Serialize` or `Deserialize`, or of the format.
    Text(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => write!(f, "nested too deep: {DEPTH_MAX} levels at most"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Failure {}

impl ser::Error for Failure {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::Text(text.to_string())
    }
}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::Text(text.to_string())
    }
}

/// The state that all levels of one value share.
pub(super) struct Context {
    /// A failure on its way out through the inner format. It is empty while user code runs, so it is never
    /// stale.
    note: Cell<Option<Failure>>,
    elements_left: Cell<u64>,
    /// The stack address at which the value begins.
    stack_start: usize,
}

impl Context {
    /// The context for a value read from this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            note: Cell::new(None),
            elements_left: Cell::new(EMPTY_ELEMENTS_MAX + bytes as u64),
            stack_start: stack_address(),
        }
    }

    /// Counts one more element of a sequence or map whose length was claimed.
    ///
    /// Each takes at least a byte, unless it is of a type like `()`, which postcard writes as nothing: then
    /// 10 bytes could cause 2^64 iterations of a loop.
    fn take_element(&self) -> Result<(), Failure> {
        let left = self.elements_left.get().checked_sub(1).ok_or_else(|| {
            Failure::Text(format!("more than {EMPTY_ELEMENTS_MAX} elements of sequences are of types without content"))
        })?;
        self.elements_left.set(left);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Level<'c> {
    context: &'c Context,
    left: u32,
    /// In a sequence or map, whose length the bytes claim; not in a tuple or struct, whose length is that of
    /// the type.
    claimed: bool,
}

impl Level<'_> {
    #[inline]
    fn deeper(self) -> Result<Self, Failure> {
        match self.left.checked_sub(1) {
            Some(left) if stack_address().abs_diff(self.context.stack_start) <= STACK_BYTES_MAX => {
                Ok(Self { left, ..self })
            }
            _ => Err(Failure::TooDeep),
        }
    }

    /// Sends a failure out through the inner format: the error made by `placeholder` only has to be an error.
    #[cold]
    fn send<E>(self, failure: Failure, placeholder: impl FnOnce(&'static str) -> E) -> E {
        self.context.note.set(Some(failure));
        placeholder("")
    }

    /// The failure that was sent, or else the error of the inner format itself.
    #[cold]
    fn recover(self, error: impl fmt::Display) -> Failure {
        self.context.note.take().unwrap_or_else(|| Failure::Text(error.to_string()))
    }
}

/// The approximate current end of the stack.
#[inline]
fn stack_address() -> usize {
    let here = 0u8;
    (&raw const here).addr()
}

/// `inner`, and the levels left for its content.
pub(super) struct Bounded<'c, I> {
    inner: I,
    level: Level<'c>,
}

impl<'c, I> Bounded<'c, I> {
    /// The outermost.
    pub(super) fn new(inner: I, context: &'c Context) -> Self {
        Self { inner, level: Level { context, left: DEPTH_MAX, claimed: false } }
    }
}

/// A value inside another.
struct Child<'c, 'v, T: ?Sized> {
    value: &'v T,
    level: Level<'c>,
}

impl<T: Serialize + ?Sized> Serialize for Child<'_, '_, T> {
    #[inline]
    fn serialize<S: Serializer>(&self, inner: S) -> Result<S::Ok, S::Error> {
        let level = self.level;
        self.value
            .serialize(Bounded { inner, level })
            .map_err(|failure| level.send(failure, <S::Error as ser::Error>::custom))
    }
}

macro_rules! serialize_leaf {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[inline]
        fn $name(self, $($argument: $type),*) -> Result<S::Ok, Failure> {
            let level = self.level;
            self.inner.$name($($argument),*).map_err(|error| level.recover(error))
        }
    )*};
}

macro_rules! serialize_one {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[inline]
        fn $name<T: Serialize + ?Sized>(self, $($argument: $type,)* value: &T) -> Result<S::Ok, Failure> {
            let level = self.level;
            let child = Child { value, level: level.deeper()? };
            self.inner.$name($($argument,)* &child).map_err(|error| level.recover(error))
        }
    )*};
}

macro_rules! serialize_many {
    ($($name:ident($($argument:ident: $type:ty),*) -> $compound:ident;)*) => {$(
        #[inline]
        fn $name(self, $($argument: $type),*) -> Result<Self::$compound, Failure> {
            let level = self.level.deeper()?;
            let inner = self.inner.$name($($argument),*).map_err(|error| level.recover(error))?;
            Ok(Bounded { inner, level })
        }
    )*};
}

impl<'c, S: Serializer> Serializer for Bounded<'c, S> {
    type Ok = S::Ok;
    type Error = Failure;
    type SerializeSeq = Bounded<'c, S::SerializeSeq>;
    type SerializeTuple = Bounded<'c, S::SerializeTuple>;
    type SerializeTupleStruct = Bounded<'c, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Bounded<'c, S::SerializeTupleVariant>;
    type SerializeMap = Bounded<'c, S::SerializeMap>;
    type SerializeStruct = Bounded<'c, S::SerializeStruct>;
    type SerializeStructVariant = Bounded<'c, S::SerializeStructVariant>;

    serialize_leaf! {
        serialize_bool(value: bool);
        serialize_i8(value: i8);
        serialize_i16(value: i16);
        serialize_i32(value: i32);
        serialize_i64(value: i64);
        serialize_i128(value: i128);
        serialize_u8(value: u8);
        serialize_u16(value: u16);
        serialize_u32(value: u32);
        serialize_u64(value: u64);
        serialize_u128(value: u128);
        serialize_f32(value: f32);
        serialize_f64(value: f64);
        serialize_char(value: char);
        serialize_str(value: &str);
        serialize_bytes(value: &[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(name: &'static str);
        serialize_unit_variant(name: &'static str, index: u32, variant: &'static str);
    }

    serialize_one! {
        serialize_some();
        serialize_newtype_struct(name: &'static str);
        serialize_newtype_variant(name: &'static str, index: u32, variant: &'static str);
    }

    serialize_many! {
        serialize_seq(len: Option<usize>) -> SerializeSeq;
        serialize_tuple(len: usize) -> SerializeTuple;
        serialize_tuple_struct(name: &'static str, len: usize) -> SerializeTupleStruct;
        serialize_tuple_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeTupleVariant;
        serialize_map(len: Option<usize>) -> SerializeMap;
        serialize_struct(name: &'static str, len: usize) -> SerializeStruct;
        serialize_struct_variant(name: &'static str, index: u32, variant: &'static str, len: usize) -> SerializeStructVariant;
    }

    #[inline]
    fn collect_str<T: fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, Failure> {
        let level = self.level;
        self.inner.collect_str(value).map_err(|error| level.recover(error))
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! compound {
    ($($trait:ident: $($name:ident($($key:ident)?)),+;)*) => {$(
        impl<C: ser::$trait> ser::$trait for Bounded<'_, C> {
            type Ok = C::Ok;
            type Error = Failure;

            $(
                #[inline]
                fn $name<T: Serialize + ?Sized>(&mut self, $($key: &'static str,)? value: &T) -> Result<(), Failure> {
                    let level = self.level;
                    self.inner.$name($($key,)? &Child { value, level }).map_err(|error| level.recover(error))
                }
            )+

            #[inline]
            fn end(self) -> Result<C::Ok, Failure> {
                let level = self.level;
                self.inner.end().map_err(|error| level.recover(error))
            }
        }
    )*};
}

compound! {
    SerializeSeq: serialize_element();
    SerializeTuple: serialize_element();
    SerializeTupleStruct: serialize_field();
    SerializeTupleVariant: serialize_field();
    SerializeMap: serialize_key(), serialize_value();
    SerializeStruct: serialize_field(key);
    SerializeStructVariant: serialize_field(key);
}

macro_rules! deserialize {
    ($($name:ident($($argument:ident: $type:ty),*) $claimed:literal;)*) => {$(
        #[inline]
        fn $name<V: de::Visitor<'de>>(self, $($argument: $type,)* inner: V) -> Result<V::Value, Failure> {
            let level = Level { claimed: $claimed, ..self.level };
            self.inner.$name($($argument,)* Bounded { inner, level }).map_err(|error| level.recover(error))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Bounded<'_, D> {
    type Error = Failure;

    deserialize! {
        deserialize_any() false;
        deserialize_bool() false;
        deserialize_i8() false;
        deserialize_i16() false;
        deserialize_i32() false;
        deserialize_i64() false;
        deserialize_i128() false;
        deserialize_u8() false;
        deserialize_u16() false;
        deserialize_u32() false;
        deserialize_u64() false;
        deserialize_u128() false;
        deserialize_f32() false;
        deserialize_f64() false;
        deserialize_char() false;
        deserialize_str() false;
        deserialize_string() false;
        deserialize_bytes() false;
        deserialize_byte_buf() false;
        deserialize_option() false;
        deserialize_unit() false;
        deserialize_unit_struct(name: &'static str) false;
        deserialize_newtype_struct(name: &'static str) false;
        deserialize_seq() true;
        deserialize_tuple(len: usize) false;
        deserialize_tuple_struct(name: &'static str, len: usize) false;
        deserialize_map() true;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) false;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) false;
        deserialize_identifier() false;
        deserialize_ignored_any() false;
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit_leaf {
    ($($name:ident($($argument:ident: $type:ty)?);)*) => {$(
        #[inline]
        fn $name<E: de::Error>(self, $($argument: $type)?) -> Result<V::Value, E> {
            self.inner.$name::<Failure>($($argument)?).map_err(|failure| self.level.send(failure, E::custom))
        }
    )*};
}

macro_rules! visit_deeper {
    ($($name:ident($trait:path);)*) => {$(
        #[inline]
        fn $name<A: $trait>(self, inner: A) -> Result<V::Value, A::Error> {
            let level = self.level;
            level
                .deeper()
                .and_then(|level| self.inner.$name(Bounded { inner, level }))
                .map_err(|failure| level.send(failure, <A::Error as de::Error>::custom))
        }
    )*};
}

impl<'de, V: de::Visitor<'de>> de::Visitor<'de> for Bounded<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit_leaf! {
        visit_bool(value: bool);
        visit_i8(value: i8);
        visit_i16(value: i16);
        visit_i32(value: i32);
        visit_i64(value: i64);
        visit_i128(value: i128);
        visit_u8(value: u8);
        visit_u16(value: u16);
        visit_u32(value: u32);
        visit_u64(value: u64);
        visit_u128(value: u128);
        visit_f32(value: f32);
        visit_f64(value: f64);
        visit_char(value: char);
        visit_str(value: &str);
        visit_borrowed_str(value: &'de str);
        visit_string(value: String);
        visit_bytes(value: &[u8]);
        visit_borrowed_bytes(value: &'de [u8]);
        visit_byte_buf(value: Vec<u8>);
        visit_none();
        visit_unit();
    }

    visit_deeper! {
        visit_some(Deserializer<'de>);
        visit_newtype_struct(Deserializer<'de>);
        visit_seq(de::SeqAccess<'de>);
        visit_map(de::MapAccess<'de>);
    }

    /// The level is its content's: a variant without one nests no deeper.
    #[inline]
    fn visit_enum<A: de::EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let level = self.level;
        self.inner
            .visit_enum(Bounded { inner, level })
            .map_err(|failure| level.send(failure, <A::Error as de::Error>::custom))
    }
}

impl<'de, T: de::DeserializeSeed<'de>> de::DeserializeSeed<'de> for Bounded<'_, T> {
    type Value = T::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        let level = self.level;
        self.inner
            .deserialize(Bounded { inner, level })
            .map_err(|failure| level.send(failure, <D::Error as de::Error>::custom))
    }
}

impl<'de, A: de::SeqAccess<'de>> de::SeqAccess<'de> for Bounded<'_, A> {
    type Error = Failure;

    #[inline]
    fn next_element_seed<T: de::DeserializeSeed<'de>>(&mut self, inner: T) -> Result<Option<T::Value>, Failure> {
        let level = self.level;
        if level.claimed {
            level.context.take_element()?;
        }
        self.inner.next_element_seed(Bounded { inner, level }).map_err(|error| level.recover(error))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: de::MapAccess<'de>> de::MapAccess<'de> for Bounded<'_, A> {
    type Error = Failure;

    #[inline]
    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, inner: K) -> Result<Option<K::Value>, Failure> {
        let level = self.level;
        if level.claimed {
            level.context.take_element()?;
        }
        self.inner.next_key_seed(Bounded { inner, level }).map_err(|error| level.recover(error))
    }

    #[inline]
    fn next_value_seed<T: de::DeserializeSeed<'de>>(&mut self, inner: T) -> Result<T::Value, Failure> {
        let level = self.level;
        self.inner.next_value_seed(Bounded { inner, level }).map_err(|error| level.recover(error))
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'c, A: de::EnumAccess<'de>> de::EnumAccess<'de> for Bounded<'c, A> {
    type Error = Failure;
    type Variant = Bounded<'c, A::Variant>;

    #[inline]
    fn variant_seed<T: de::DeserializeSeed<'de>>(self, inner: T) -> Result<(T::Value, Self::Variant), Failure> {
        let level = self.level;
        let (value, inner) = self.inner.variant_seed(Bounded { inner, level }).map_err(|error| level.recover(error))?;
        Ok((value, Bounded { inner, level }))
    }
}

impl<'de, A: de::VariantAccess<'de>> de::VariantAccess<'de> for Bounded<'_, A> {
    type Error = Failure;

    #[inline]
    fn unit_variant(self) -> Result<(), Failure> {
        self.inner.unit_variant().map_err(|error| self.level.recover(error))
    }

    #[inline]
    fn newtype_variant_seed<T: de::DeserializeSeed<'de>>(self, inner: T) -> Result<T::Value, Failure> {
        let level = self.level.deeper()?;
        self.inner.newtype_variant_seed(Bounded { inner, level }).map_err(|error| level.recover(error))
    }

    // The visitor takes the level of these two.

    #[inline]
    fn tuple_variant<V: de::Visitor<'de>>(self, len: usize, inner: V) -> Result<V::Value, Failure> {
        let level = self.level;
        self.inner.tuple_variant(len, Bounded { inner, level }).map_err(|error| level.recover(error))
    }

    #[inline]
    fn struct_variant<V: de::Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        inner: V,
    ) -> Result<V::Value, Failure> {
        let level = self.level;
        self.inner.struct_variant(fields, Bounded { inner, level }).map_err(|error| level.recover(error))
    }
}
