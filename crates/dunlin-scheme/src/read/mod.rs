//! The reader: text to data with positions.
//!
//! It keeps the open lists in a vector of its own, so that nesting costs no stack; a limit on the depth
//! protects what recurses over data later.

mod lexer;
mod sources;

pub(crate) use lexer::CHARACTER_NAMES;
pub use sources::FILE_BYTES_MAX;
pub(crate) use sources::Sources;

use std::sync::Arc;

use crate::datum::{Datum, Kind, Pos};
use crate::error::SyntaxError;
use crate::names::Symbols;
use lexer::{Lexer, Shape, Token};

/// Data nested deeper are refused.
pub(crate) const DEPTH_MAX: usize = 2_000;

/// Reads data from a text, one after the other.
pub(crate) struct Reader<'t> {
    lexer: Lexer<'t>,
    source_name: Arc<str>,
}

/// A list, a vector, a quotation or a comment that is not complete yet.
struct Open {
    pos: Pos,
    shape: Shape,
    items: Vec<Datum>,
    tail: Tail,
}

enum Tail {
    None,
    /// After the dot.
    Expected,
    Read(Datum),
}

impl<'t> Reader<'t> {
    /// A reader of `text`; `source_name` names it in errors.
    pub(crate) fn new(text: &'t str, source_name: &Arc<str>) -> Self {
        Self { lexer: Lexer::new(text, 0, false), source_name: source_name.clone() }
    }

    /// A reader of a text that another one names: the positions of its data have the number `source`.
    pub(crate) fn of_source(text: &'t str, source_name: &Arc<str>, source: u32, fold_case: bool) -> Self {
        Self { lexer: Lexer::new(text, source, fold_case), source_name: source_name.clone() }
    }

    /// How many bytes of the text were read.
    pub(crate) fn offset(&self) -> usize {
        self.lexer.offset()
    }

    /// The next datum, or `None` at the end of the text.
    ///
    /// # Errors
    /// A [`SyntaxError`] with the position; `incomplete` says that the text ended too early.
    pub(crate) fn next(&mut self, symbols: &mut Symbols) -> Result<Option<Datum>, SyntaxError> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let (pos, token) = self.lexer.next(symbols).map_err(|(pos, message, end)| self.error(pos, message, end))?;
            let mut datum = match token {
                Token::End => {
                    return match open.last() {
                        None => Ok(None),
                        Some(unclosed) => {
                            Err(self.error(unclosed.pos, format!("{} is not closed", unclosed.name()), true))
                        }
                    };
                }
                Token::Open(shape) => {
                    if open.len() >= DEPTH_MAX {
                        return Err(self.error(pos, format!("nested deeper than {DEPTH_MAX}"), false));
                    }
                    open.push(Open { pos, shape, items: Vec::new(), tail: Tail::None });
                    continue;
                }
                Token::Dot => {
                    match open.last_mut() {
                        Some(Open { shape: Shape::List, items, tail: tail @ Tail::None, .. }) if !items.is_empty() => {
                            *tail = Tail::Expected;
                        }
                        _ => return Err(self.error(pos, "a dot belongs between the items of a list".into(), false)),
                    }
                    continue;
                }
                Token::Close => match open.pop() {
                    None => return Err(self.error(pos, "unexpected )".into(), false)),
                    Some(closed) => self.close(closed, pos)?,
                },
                Token::Datum(kind) => Datum::new(pos, kind),
            };
            // A datum completes the quotations and labels before it.
            loop {
                match open.last_mut() {
                    None => return Ok(Some(datum)),
                    Some(Open { shape: Shape::Comment, .. }) => {
                        open.pop();
                        break;
                    }
                    Some(Open { shape: Shape::Quotation(name), pos, .. }) => {
                        let keyword = Datum::symbol(*pos, symbols.intern(name));
                        datum = Datum::list(*pos, vec![keyword, datum]);
                        open.pop();
                    }
                    Some(Open { shape: Shape::Label(number), pos, .. }) => {
                        datum = Datum::new(*pos, Kind::Label(*number, Arc::new(datum)));
                        open.pop();
                    }
                    Some(list) => {
                        match list.tail {
                            Tail::None => list.items.push(datum),
                            Tail::Expected => list.tail = Tail::Read(datum),
                            Tail::Read(_) => {
                                return Err(self.error(datum.pos, "more than one datum after a dot".into(), false));
                            }
                        }
                        break;
                    }
                }
            }
        }
    }

    fn close(&self, closed: Open, pos: Pos) -> Result<Datum, SyntaxError> {
        let Open { pos: start, shape, items, tail } = closed;
        match (shape, tail) {
            (Shape::List, Tail::None) => Ok(Datum::list(start, items)),
            (Shape::List, Tail::Read(tail)) => Ok(Datum::improper(start, items, tail)),
            (Shape::List, Tail::Expected) => Err(self.error(pos, "expected a datum after the dot".into(), false)),
            (Shape::Vector, _) => Ok(Datum::new(start, Kind::Vector(items.into()))),
            (Shape::Bytes, _) => {
                let bytes = items.iter().map(|item| match &item.kind {
                    Kind::Number(crate::num::Number::Fix(byte @ 0..=255)) => Ok(*byte as u8),
                    _ => Err(self.error(item.pos, "expected a byte, 0 to 255".into(), false)),
                });
                Ok(Datum::new(start, Kind::Bytes(bytes.collect::<Result<Vec<_>, _>>()?.into())))
            }
            (Shape::Quotation(_) | Shape::Comment | Shape::Label(_), _) => {
                Err(self.error(pos, "unexpected ), expected a datum".into(), false))
            }
        }
    }

    fn error(&self, pos: Pos, message: String, incomplete: bool) -> SyntaxError {
        SyntaxError { source_name: self.source_name.clone(), pos: pos.plain(), message, incomplete }
    }
}

impl Open {
    fn name(&self) -> &'static str {
        match self.shape {
            Shape::List => "list",
            Shape::Vector => "vector",
            Shape::Bytes => "bytevector",
            Shape::Quotation(_) => "quotation",
            Shape::Comment => "datum comment",
            Shape::Label(_) => "label",
        }
    }
}
