//! The core language: what the expander makes of every form, and what the compiler reads.
//!
//! Variables are unique, and never assigned; what is left of binding forms are `lambda`, `let`, `letrec`.

use std::sync::Arc;

use crate::datum::{Datum, Pos};
use crate::names::Name;

/// A local variable; each binding has its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Var(pub(crate) u32);

/// An expression.
#[derive(Debug)]
pub(crate) enum Core {
    Const(Datum),
    Local(Var),
    Global(Name, Pos),
    If(Box<[Self; 3]>),
    /// The value of the first that is not false, or else the last.
    Or(Box<[Self; 2]>),
    Lambda(Box<Lambda>),
    Call(Box<Self>, Vec<Self>, Pos),
    Let(Vec<(Var, Self)>, Box<Self>),
    /// Initialisers are evaluated in order; each sees all variables.
    Letrec(Vec<(Var, Name, Self)>, Box<Self>, Pos),
    /// At least one.
    Seq(Vec<Self>),
    Define(Name, Box<Self>),
}

/// A procedure: clauses by the number of arguments, of which all but `case-lambda` have one.
#[derive(Debug)]
pub(crate) struct Lambda {
    pub(crate) name: Option<Name>,
    pub(crate) clauses: Vec<Arc<Clause>>,
    pub(crate) pos: Pos,
}

#[derive(Debug)]
pub(crate) struct Clause {
    pub(crate) parameters: Vec<Var>,
    /// Takes the arguments past the parameters, as a list.
    pub(crate) rest: Option<Var>,
    pub(crate) body: Core,
}

/// Long `and`s, `cond`s and templates nest as deep as they are long: dropping them must not take the stack.
impl Drop for Core {
    fn drop(&mut self) {
        if stacker::remaining_stack().is_some_and(|bytes| bytes < 64 << 10) {
            let whole = std::mem::replace(self, Self::Local(Var(0)));
            stacker::grow(2 << 20, move || drop(whole));
        }
    }
}
