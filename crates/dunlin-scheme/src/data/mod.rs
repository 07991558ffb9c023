//! Values outside of any machine.
//!
//! - `heap`: from and to the values of a machine;
//! - `end`: ends of channels;
//! - `serialize`, `deserialize` (feature `serde`): from and to the types of Rust.

#[cfg(feature = "serde")]
mod deserialize;
mod end;
mod heap;
#[cfg(feature = "serde")]
mod serialize;

use std::fmt;

#[cfg(feature = "serde")]
pub use deserialize::from_value;
pub use end::{End, EndKind};
pub(crate) use heap::{ends_of, of_value, to_value};
#[cfg(feature = "serde")]
pub use serialize::value_of;

/// A Scheme value that is data: no procedure, continuation, record or port.
///
/// With the feature `serde` it can be made of, and into, each type that serde can encode: see `value_of`. It
/// can be a part of such a type, too, and then stands for any data.
///
/// ```
/// use dunlin_scheme::Value;
///
/// let add = Value::Symbol("add".into());
/// let value = Value::List(vec![add, Value::Integer(1), Value::String("a\"b".into())]);
/// assert_eq!(value.to_string(), r#"(add 1 "a\"b")"#);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename = "dunlin-scheme value"))]
pub enum Value {
    /// What has no better value.
    Unspecified,
    /// `#t` or `#f`.
    Bool(bool),
    /// An integer.
    Integer(i128),
    /// Another exact number, as text: an integer that is larger, or a fraction.
    Exact(String),
    /// A number that is not exact.
    Real(f64),
    /// A character.
    Char(char),
    /// A string.
    String(String),
    /// A symbol.
    Symbol(String),
    /// A bytevector.
    Bytes(Vec<u8>),
    /// A list.
    List(Vec<Self>),
    /// A list that ends with a value that is no list: `(a . b)`.
    Improper(Vec<Self>, Box<Self>),
    /// A vector.
    Vector(Vec<Self>),
    /// A process, by its number in the machine.
    Process(u64),
    /// What `make-tag` made, by its number in the machine.
    Tag(u64),
    /// An end of a channel.
    End(End),
}

/// Names of types that the two halves for serde know.
#[cfg(feature = "serde")]
const VALUE: &str = "dunlin-scheme value";
#[cfg(feature = "serde")]
const PROCESS: &str = "dunlin-scheme process";

/// A process of a machine, as a part of messages of Rust: what is a pid in Scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename = "dunlin-scheme process"))]
pub struct ProcessNumber(pub u64);

/// Nesting of a value.
const DEPTH_MAX: usize = 500;
/// Parts of a value, and words of its texts.
const PARTS_MAX: usize = 1 << 20;

/// Why a value is not the one that was wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// A part is a procedure, a record or the like: its text, as `write` shows it.
    #[error("{0} is no data")]
    NotData(String),
    /// It nests too deeply.
    #[error("the value nests deeper than {DEPTH_MAX}")]
    TooDeep,
    /// It has too many parts, or is cyclic.
    #[error("the value has more than {PARTS_MAX} parts")]
    TooLarge,
    /// A number that no machine has.
    #[error("no number: {0}")]
    Number(String),
    /// It has another shape than the type.
    #[error("expected {expected}, got {got}: {reason}")]
    Shape {
        /// The type.
        expected: &'static str,
        /// The value's text; of a long one, its beginning.
        got: String,
        /// What does not fit.
        reason: String,
    },
    /// A part does not fit.
    #[error("{0}")]
    Part(String),
}

/// As `write` shows it; names of symbols as they are, and processes and tags by number.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = |f: &mut fmt::Formatter<'_>, items: &[Self]| {
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    f.write_str(" ")?;
                }
                item.fmt(f)?;
            }
            Ok(())
        };
        match self {
            Self::Unspecified => f.write_str("#<unspecified>"),
            Self::Bool(true) => f.write_str("#t"),
            Self::Bool(false) => f.write_str("#f"),
            Self::Integer(number) => number.fmt(f),
            Self::Exact(text) | Self::Symbol(text) => f.write_str(text),
            Self::Real(number) => write!(f, "{number:?}"),
            Self::Char(character) => write!(f, "#\\{character}"),
            Self::String(text) => write!(f, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Self::Bytes(bytes) => {
                f.write_str("#u8(")?;
                for (at, byte) in bytes.iter().enumerate() {
                    write!(f, "{}{byte}", if at > 0 { " " } else { "" })?;
                }
                f.write_str(")")
            }
            Self::List(list) => {
                f.write_str("(")?;
                items(f, list)?;
                f.write_str(")")
            }
            Self::Improper(first, tail) => {
                f.write_str("(")?;
                items(f, first)?;
                write!(f, " . {tail})")
            }
            Self::Vector(list) => {
                f.write_str("#(")?;
                items(f, list)?;
                f.write_str(")")
            }
            Self::Process(number) => write!(f, "#<process {number}>"),
            Self::Tag(number) => write!(f, "#<tag {number}>"),
            Self::End(end) => end.fmt(f),
        }
    }
}
