//! Scheme data as values of Rust.

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Unexpected, Visitor};

use super::end::passing::{self, END};
use super::{PROCESS, VALUE, Value, ValueError};

/// The value of Rust that some Scheme data are: as `value_of` makes them.
///
/// A sequence may be a list or a vector, and a float may be an exact integer. Fields of structs are found by
/// name, in any order.
///
/// ```
/// use dunlin_scheme::{Value, from_value};
/// use serde::Deserialize;
///
/// #[derive(Debug, Deserialize, PartialEq)]
/// #[serde(rename_all = "kebab-case")]
/// enum Request {
///     Add(i32, i32),
/// }
/// let add = |a: i128, b: i128| Value::List(vec![Value::Symbol("add".into()), a.into(), b.into()]);
/// assert_eq!(from_value(add(1, 2)), Ok(Request::Add(1, 2)));
/// let error = from_value::<Request>(add(1, 1 << 40)).unwrap_err().to_string();
/// assert!(error.contains("Request, got (add 1 1099511627776): "), "{error}");
/// ```
///
/// # Errors
/// [`ValueError::Shape`], with the type, the data, and what does not fit.
pub fn from_value<T: DeserializeOwned>(value: Value) -> Result<T, ValueError> {
    T::deserialize(Data(&value)).map_err(|error| ValueError::Shape {
        expected: std::any::type_name::<T>(),
        got: beginning(&value),
        reason: error.to_string(),
    })
}

/// Characters of a value in an error.
const SHOWN_MAX: usize = 160;

/// The text of a value; of a long one, its beginning.
fn beginning(value: &Value) -> String {
    let mut text = Beginning { text: String::new(), left: SHOWN_MAX };
    let is_whole = fmt::Write::write_fmt(&mut text, format_args!("{value}")).is_ok();
    if is_whole { text.text } else { text.text + ".." }
}

/// Takes a number of characters.
struct Beginning {
    text: String,
    left: usize,
}

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(fmt::Error)?;
            self.text.push(character);
        }
        Ok(())
    }
}

impl From<i128> for Value {
    fn from(number: i128) -> Self {
        Self::Integer(number)
    }
}

impl de::Error for ValueError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Part(message.to_string())
    }
}

/// Data that are read.
#[derive(Clone, Copy)]
struct Data<'v>(&'v Value);

/// A part of data that is no value by itself.
enum Part<'v> {
    Data(&'v Value),
    /// What is left of a list.
    Rest(&'v [Value], Option<&'v Value>),
    /// What a [`Value`] that reads itself reads.
    Made(Value),
}

impl<'de, 'v> IntoDeserializer<'de, ValueError> for Data<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn shape(value: &Value, expected: &str) -> ValueError {
    de::Error::custom(format_args!("expected {expected}, got {}", beginning(value)))
}

/// The two parts of a pair.
fn parts(value: &Value) -> Result<(&Value, Part<'_>), ValueError> {
    match value {
        Value::List(items) if !items.is_empty() => Ok((&items[0], Part::Rest(&items[1..], None))),
        Value::Improper(items, tail) if items.len() == 1 => Ok((&items[0], Part::Data(tail))),
        Value::Improper(items, tail) if !items.is_empty() => Ok((&items[0], Part::Rest(&items[1..], Some(tail)))),
        other => Err(shape(other, "a pair")),
    }
}

fn items(value: &Value) -> Result<&[Value], ValueError> {
    match value {
        Value::List(items) | Value::Vector(items) => Ok(items),
        other => Err(shape(other, "a list or a vector")),
    }
}

fn visit_items<'de, V: Visitor<'de>>(items: &[Value], visitor: V) -> Result<V::Value, ValueError> {
    let mut sequence = SeqDeserializer::new(items.iter().map(Data));
    let value = visitor.visit_seq(&mut sequence)?;
    sequence.end()?;
    Ok(value)
}

fn visit_pairs<'de, V: Visitor<'de>>(pairs: &[Value], visitor: V) -> Result<V::Value, ValueError> {
    let pairs = pairs.iter().map(parts).collect::<Result<Vec<_>, _>>()?;
    let mut map = MapDeserializer::new(pairs.into_iter().map(|(key, value)| (Data(key), value)));
    let value = visitor.visit_map(&mut map)?;
    map.end()?;
    Ok(value)
}

impl<'de> Deserializer<'de> for Data<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (Ok(value), _) => visitor.visit_i64(value),
                (_, Ok(value)) => visitor.visit_u64(value),
                _ => visitor.visit_i128(*value),
            },
            Value::Exact(text) => match text.parse() {
                Ok(value) => visitor.visit_u128(value),
                Err(_) => Err(de::Error::invalid_type(Unexpected::Other("an exact number"), &visitor)),
            },
            Value::Real(value) => visitor.visit_f64(*value),
            Value::Char(value) => visitor.visit_char(*value),
            Value::String(text) => visitor.visit_str(text),
            Value::Symbol(_) => Err(de::Error::invalid_type(Unexpected::Other("a symbol"), &visitor)),
            Value::Bytes(bytes) => visitor.visit_bytes(bytes),
            Value::List(items) | Value::Vector(items) => visit_items(items, visitor),
            Value::Improper(..) => Err(de::Error::invalid_type(Unexpected::Other("a pair"), &visitor)),
            Value::Unspecified => Err(de::Error::invalid_type(Unexpected::Other("no value"), &visitor)),
            Value::Process(_) => Err(de::Error::invalid_type(Unexpected::Other("a process"), &visitor)),
            Value::Tag(_) => Err(de::Error::invalid_type(Unexpected::Other("a tag"), &visitor)),
            Value::End(_) => Err(de::Error::invalid_type(Unexpected::Other("an end of a channel"), &visitor)),
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Value::Integer(value) => visitor.visit_f64(*value as f64),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if *self.0 == Value::Bool(false) { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Value::List(items) if items.is_empty() => visitor.visit_unit(),
            other => Err(shape(other, "()")),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.0 {
            Value::Process(number) if name == PROCESS => {
                visitor.visit_newtype_struct(Part::Made(Value::Integer((*number).into())))
            }
            other if name == PROCESS => Err(shape(other, "a process")),
            Value::End(end) if name == END => {
                passing::pass(end, || visitor.visit_newtype_struct(Part::Made(Value::List(Vec::new()))))
            }
            other if name == END => Err(shape(other, "an end of a channel")),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visit_pairs(items(self.0)?, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        if name == VALUE {
            return visitor.visit_enum(Whole(self.0));
        }
        match self.0 {
            Value::Symbol(variant) => visitor.visit_enum(Variant { name: variant, items: None }),
            Value::List(items) => match items.first() {
                Some(Value::Symbol(variant)) => visitor.visit_enum(Variant { name: variant, items: Some(&items[1..]) }),
                _ => Err(shape(self.0, "a list that begins with a symbol")),
            },
            other => Err(shape(other, "a symbol, or a list that begins with one")),
        }
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Value::Symbol(name) => visitor.visit_str(name),
            other => Err(shape(other, "a symbol")),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf seq tuple tuple_struct
    }
}

impl<'de, 'v> IntoDeserializer<'de, ValueError> for Part<'v> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl Part<'_> {
    fn read<T>(self, read: impl FnOnce(Data<'_>) -> Result<T, ValueError>) -> Result<T, ValueError> {
        match self {
            Self::Data(value) => read(Data(value)),
            Self::Made(value) => read(Data(&value)),
            Self::Rest(items, None) => read(Data(&Value::List(items.to_owned()))),
            Self::Rest(items, Some(tail)) => read(Data(&Value::Improper(items.to_owned(), Box::new(tail.clone())))),
        }
    }
}

macro_rules! forward {
    ($($method:ident),*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
            self.read(|data| data.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Part<'_> {
    type Error = ValueError;

    forward!(deserialize_any, deserialize_bool, deserialize_i8, deserialize_i16, deserialize_i32, deserialize_i64);
    forward!(deserialize_i128, deserialize_u8, deserialize_u16, deserialize_u32, deserialize_u64, deserialize_u128);
    forward!(deserialize_f32, deserialize_f64, deserialize_char, deserialize_str, deserialize_string);
    forward!(deserialize_bytes, deserialize_byte_buf, deserialize_option, deserialize_unit, deserialize_seq);
    forward!(deserialize_map, deserialize_identifier, deserialize_ignored_any);

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, ValueError> {
        self.read(|data| data.deserialize_unit_struct(name, visitor))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read(|data| data.deserialize_newtype_struct(name, visitor))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.read(|data| data.deserialize_tuple(len, visitor))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read(|data| data.deserialize_tuple_struct(name, len, visitor))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read(|data| data.deserialize_struct(name, fields, visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.read(|data| data.deserialize_enum(name, variants, visitor))
    }
}

/// A variant: a symbol, or a list that begins with it.
struct Variant<'v> {
    name: &'v str,
    items: Option<&'v [Value]>,
}

impl<'v> Variant<'v> {
    fn items(&self) -> Result<&'v [Value], ValueError> {
        let missing = || de::Error::custom(format_args!("{} is a list with more than its name", self.name));
        self.items.ok_or_else(missing)
    }
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ValueError> {
        let name: de::value::StrDeserializer<'_, ValueError> = self.name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        match self.items {
            None => Ok(()),
            Some(_) => Err(de::Error::custom(format_args!("{} is a symbol, no list", self.name))),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ValueError> {
        match self.items()? {
            [item] => seed.deserialize(Data(item)),
            items => Err(de::Error::invalid_length(items.len(), &"one value after the name")),
        }
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ValueError> {
        visit_items(self.items()?, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], visitor: V) -> Result<V::Value, ValueError> {
        visit_pairs(self.items()?, visitor)
    }
}

/// A [`Value`] that reads itself.
struct Whole<'v>(&'v Value);

impl<'de> de::EnumAccess<'de> for Whole<'_> {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), ValueError> {
        let name = match self.0 {
            Value::Unspecified => "Unspecified",
            Value::Bool(_) => "Bool",
            Value::Integer(_) => "Integer",
            Value::Exact(_) => "Exact",
            Value::Real(_) => "Real",
            Value::Char(_) => "Char",
            Value::String(_) => "String",
            Value::Symbol(_) => "Symbol",
            Value::Bytes(_) => "Bytes",
            Value::List(_) => "List",
            Value::Improper(..) => "Improper",
            Value::Vector(_) => "Vector",
            Value::Process(_) => "Process",
            Value::Tag(_) => "Tag",
            Value::End(_) => "End",
        };
        let name: de::value::StrDeserializer<'_, ValueError> = name.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Whole<'_> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, ValueError> {
        let made = match self.0 {
            Value::Exact(text) | Value::Symbol(text) => Value::String(text.clone()),
            Value::Process(number) | Value::Tag(number) => Value::Integer((*number).into()),
            Value::Bytes(bytes) => Value::List(bytes.iter().map(|byte| Value::Integer((*byte).into())).collect()),
            other => return seed.deserialize(Data(other)),
        };
        seed.deserialize(Part::Made(made))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ValueError> {
        let Value::Improper(items, tail) = self.0 else { return Err(shape(self.0, "an improper list")) };
        let parts = [Part::Made(Value::List(items.clone())), Part::Data(tail)];
        visitor.visit_seq(SeqDeserializer::new(parts.into_iter()))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, ValueError> {
        Err(shape(self.0, "a variant without fields"))
    }
}
