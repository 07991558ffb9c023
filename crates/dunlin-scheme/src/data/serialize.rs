//! Values of Rust as Scheme data.

use serde::ser::{self, Serialize, Serializer};

use super::end::passing::{self, END};
use super::{PROCESS, VALUE, Value, ValueError};

/// The Scheme data of a value of Rust.
///
/// | Rust | Scheme |
/// |---|---|
/// | `true`, `7`, `0.5`, `'a'`, `"text"` | `#t`, `7`, `.5`, `#\a`, `"text"` |
/// | `()`, a unit struct | `()` |
/// | `None`; `Some(value)` | `#f`; the value itself |
/// | a sequence, a tuple, a tuple struct | a list |
/// | a map | a list of pairs: `(("key" . value) ...)` |
/// | a struct | a list of pairs: `((field . value) ...)` |
/// | `Variant` | the symbol `Variant` |
/// | `Variant(value)`, `Variant(a, b)` | `(Variant value)`, `(Variant a b)` |
/// | `Variant { field: value }` | `(Variant (field . value))` |
/// | bytes, such as those of `serde_bytes` | a bytevector |
/// | `Value`, `ProcessNumber`, `End` | what it is; a process; an end of a channel |
///
/// Names are those of serde: `#[serde(rename_all = "kebab-case")]` makes them as Scheme has them.
///
/// ```
/// use dunlin_scheme::value_of;
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// #[serde(rename_all = "kebab-case")]
/// enum Request {
///     Add(i32, i32),
///     ReadAll,
/// }
/// assert_eq!(value_of(&Request::Add(1, 2))?.to_string(), "(add 1 2)");
/// assert_eq!(value_of(&Request::ReadAll)?.to_string(), "read-all");
/// assert_eq!(value_of(&(Some(1), None::<u8>))?.to_string(), "(1 #f)");
/// # Ok::<(), dunlin_scheme::ValueError>(())
/// ```
///
/// # Errors
/// [`ValueError::Part`] if the type fails to serialize, or for `Some(value)` if the value is `#f`, which
/// would be read as `None`.
pub fn value_of<T: Serialize + ?Sized>(value: &T) -> Result<Value, ValueError> {
    value.serialize(ToValue)
}

impl ser::Error for ValueError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Part(message.to_string())
    }
}

/// A pair; of a value and a list it makes a list.
fn pair(first: Value, rest: Value) -> Value {
    match rest {
        Value::List(mut items) => {
            items.insert(0, first);
            Value::List(items)
        }
        Value::Improper(mut items, tail) => {
            items.insert(0, first);
            Value::Improper(items, tail)
        }
        rest => Value::Improper(vec![first], Box::new(rest)),
    }
}

fn symbol(name: &str) -> Value {
    Value::Symbol(name.to_owned())
}

/// A part of a [`Value`] that serializes itself.
fn kind(variant: &str, inner: Value) -> Result<Value, ValueError> {
    Ok(match (variant, inner) {
        ("Exact", Value::String(text)) => Value::Exact(text),
        ("Symbol", Value::String(text)) => Value::Symbol(text),
        ("Vector", Value::List(items)) => Value::Vector(items),
        ("Process", Value::Integer(number)) => Value::Process(number as u64),
        ("Tag", Value::Integer(number)) => Value::Tag(number as u64),
        ("Bytes", Value::List(items)) => {
            let bytes = items.iter().map(|item| if let Value::Integer(byte) = item { *byte as u8 } else { 0 });
            Value::Bytes(bytes.collect())
        }
        (_, inner) => inner,
    })
}

struct ToValue;

macro_rules! integers {
    ($($method:ident: $type:ty),*) => {$(
        fn $method(self, value: $type) -> Result<Value, ValueError> {
            Ok(Value::Integer(value.into()))
        }
    )*};
}

impl Serializer for ToValue {
    type Ok = Value;
    type Error = ValueError;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Pairs;
    type SerializeStruct = Pairs;
    type SerializeStructVariant = Pairs;

    integers!(serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128);
    integers!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);

    fn serialize_u128(self, value: u128) -> Result<Value, ValueError> {
        Ok(i128::try_from(value).map_or_else(|_| Value::Exact(value.to_string()), Value::Integer))
    }

    fn serialize_bool(self, value: bool) -> Result<Value, ValueError> {
        Ok(Value::Bool(value))
    }

    fn serialize_f32(self, value: f32) -> Result<Value, ValueError> {
        Ok(Value::Real(value.into()))
    }

    fn serialize_f64(self, value: f64) -> Result<Value, ValueError> {
        Ok(Value::Real(value))
    }

    fn serialize_char(self, value: char) -> Result<Value, ValueError> {
        Ok(Value::Char(value))
    }

    fn serialize_str(self, value: &str) -> Result<Value, ValueError> {
        Ok(Value::String(value.to_owned()))
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<Value, ValueError> {
        Ok(Value::Bytes(value.to_owned()))
    }

    fn serialize_none(self) -> Result<Value, ValueError> {
        Ok(Value::Bool(false))
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, ValueError> {
        match value.serialize(self)? {
            Value::Bool(false) => Err(ValueError::Part("Some(value) with a value that is #f would be None".into())),
            value => Ok(value),
        }
    }

    fn serialize_unit(self) -> Result<Value, ValueError> {
        Ok(Value::List(Vec::new()))
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<Value, ValueError> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, name: &'static str, _: u32, variant: &'static str) -> Result<Value, ValueError> {
        Ok(if name == VALUE { Value::Unspecified } else { symbol(variant) })
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<Value, ValueError> {
        if name == END {
            let (serialized, end) = passing::receive(|| value.serialize(self));
            let no_end = || ValueError::Part("no end of a channel".into());
            return serialized.and_then(|_| end.map(Value::End).ok_or_else(no_end));
        }
        let inner = value.serialize(self)?;
        if name == PROCESS { kind("Process", inner) } else { Ok(inner) }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, ValueError> {
        let inner = value.serialize(self)?;
        if name == VALUE { kind(variant, inner) } else { Ok(Value::List(vec![symbol(variant), inner])) }
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items, ValueError> {
        Ok(Items { items: Vec::new(), is_value: false })
    }

    fn serialize_tuple(self, _: usize) -> Result<Items, ValueError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items, ValueError> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items, ValueError> {
        let is_value = name == VALUE;
        Ok(Items { items: if is_value { Vec::new() } else { vec![symbol(variant)] }, is_value })
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Pairs, ValueError> {
        Ok(Pairs { items: Vec::new(), key: None })
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Pairs, ValueError> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Pairs, ValueError> {
        Ok(Pairs { items: vec![symbol(variant)], key: None })
    }
}

/// The items of a list.
struct Items {
    items: Vec<Value>,
    /// Of [`Value::Improper`], which serializes itself: its first items, and its tail.
    is_value: bool,
}

impl Items {
    fn push<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        self.items.push(value.serialize(ToValue)?);
        Ok(())
    }

    fn into_value(mut self) -> Result<Value, ValueError> {
        if self.is_value
            && let (Some(tail), Some(Value::List(items))) = (self.items.pop(), self.items.pop())
        {
            return Ok(items.into_iter().rev().fold(tail, |rest, item| pair(item, rest)));
        }
        Ok(Value::List(self.items))
    }
}

macro_rules! lists {
    ($($trait:ident $method:ident),*) => {$(
        impl ser::$trait for Items {
            type Ok = Value;
            type Error = ValueError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
                self.push(value)
            }

            fn end(self) -> Result<Value, ValueError> {
                self.into_value()
            }
        }
    )*};
}

lists!(
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field
);

/// The pairs of a map or a struct.
struct Pairs {
    items: Vec<Value>,
    key: Option<Value>,
}

impl ser::SerializeMap for Pairs {
    type Ok = Value;
    type Error = ValueError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), ValueError> {
        self.key = Some(key.serialize(ToValue)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        let key = self.key.take().ok_or_else(|| ValueError::Part("a map has a value without a key".into()))?;
        self.items.push(pair(key, value.serialize(ToValue)?));
        Ok(())
    }

    fn end(self) -> Result<Value, ValueError> {
        Ok(Value::List(self.items))
    }
}

macro_rules! structs {
    ($($trait:ident),*) => {$(
        impl ser::$trait for Pairs {
            type Ok = Value;
            type Error = ValueError;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), ValueError> {
                self.items.push(pair(symbol(name), value.serialize(ToValue)?));
                Ok(())
            }

            fn end(self) -> Result<Value, ValueError> {
                Ok(Value::List(self.items))
            }
        }
    )*};
}

structs!(SerializeStruct, SerializeStructVariant);
