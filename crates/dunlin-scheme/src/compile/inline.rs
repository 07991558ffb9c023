//! What calls of standard procedures become.

use std::collections::HashMap;

use crate::code::Op;
use crate::names::Name;

/// How a call of a global that the program did not define is compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inline {
    /// One operand, the result in a register.
    Unary(Op),
    /// Two operands.
    Binary(Op),
    /// Two operands, and one that is a small constant in another instruction.
    Arithmetic(Op),
    /// Two numbers.
    Compare(Op),
    /// `>` and `>=` are `<` and `<=` with operands swapped.
    CompareSwapped(Op),
    /// A primitive of so many to so many arguments.
    Primitive { number: u16, least: u16, most: u16 },
}

/// What the compiler knows of globals.
pub(crate) struct Inlines<'a> {
    pub(crate) table: &'a HashMap<Name, Vec<Inline>>,
    /// Whether this global has another value than the built-in procedure.
    pub(crate) is_replaced: &'a dyn Fn(Name) -> bool,
}
