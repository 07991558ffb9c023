//! What the reader makes of text: data with positions. The expander works on them, too.

use std::sync::Arc;

use crate::names::Name;
use crate::num::Number;

/// A place in a source text: line and column count from one; zero is "nowhere".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pos {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
    /// Which text, if it is not the one that is compiled: see `Sources`.
    pub(crate) source: u32,
}

impl Pos {
    /// The line and the column alone.
    pub(crate) fn plain(self) -> Self {
        Self { source: 0, ..self }
    }
}

/// A datum, and where it begins.
#[derive(Clone, Debug)]
pub(crate) struct Datum {
    /// Where it begins in its source text.
    pub(crate) pos: Pos,
    /// What it is.
    pub(crate) kind: Kind,
    /// How deep it nests: what recurses over data relies on a limit.
    height: u32,
}

/// The kinds of data.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// `#t`, `#f`
    Bool(bool),
    /// A character.
    Char(char),
    /// A number.
    Number(Number),
    /// A string.
    String(Arc<str>),
    /// A symbol, or an alias of the expander.
    Symbol(Name),
    /// A list. With a tail, which is no list, it is improper; without items it is `()`.
    List(Arc<[Datum]>, Option<Arc<Datum>>),
    /// A vector.
    Vector(Arc<[Datum]>),
    /// A bytevector.
    Bytes(Arc<[u8]>),
    /// The unspecified value.
    Unspecified,
    /// `#n=datum`
    Label(u32, Arc<Datum>),
    /// `#n#`
    Reference(u32),
}

impl Datum {
    /// A datum that begins at `pos`.
    pub(crate) fn new(pos: Pos, kind: Kind) -> Self {
        let highest = |items: &[Self]| items.iter().map(|item| item.height).max().unwrap_or(0) + 1;
        let height = match &kind {
            Kind::List(items, None) | Kind::Vector(items) => highest(items),
            Kind::List(items, Some(tail)) => highest(items).max(tail.height + 1),
            Kind::Label(_, inner) => inner.height + 1,
            _ => 0,
        };
        Self { pos, kind, height }
    }

    /// How deep it nests.
    pub(crate) fn height(&self) -> u32 {
        self.height
    }

    /// A symbol at `pos`.
    pub(crate) fn symbol(pos: Pos, name: Name) -> Self {
        Self::new(pos, Kind::Symbol(name))
    }

    /// A proper list at `pos`.
    pub(crate) fn list(pos: Pos, items: Vec<Self>) -> Self {
        Self::new(pos, Kind::List(items.into(), None))
    }

    /// A list of `items` before `tail`; a tail that is a list becomes part of it.
    pub(crate) fn improper(pos: Pos, mut items: Vec<Self>, tail: Self) -> Self {
        match tail.kind {
            Kind::List(rest, end) => {
                items.extend(rest.iter().cloned());
                Self::new(pos, Kind::List(items.into(), end))
            }
            _ if items.is_empty() => tail,
            _ => Self::new(pos, Kind::List(items.into(), Some(Arc::new(tail)))),
        }
    }

    /// The name, if it is an identifier.
    pub(crate) fn name(&self) -> Option<Name> {
        match self.kind {
            Kind::Symbol(name) => Some(name),
            _ => None,
        }
    }

    /// The items, if it is a proper list.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        match &self.kind {
            Kind::List(items, None) => Some(items),
            _ => None,
        }
    }
}
