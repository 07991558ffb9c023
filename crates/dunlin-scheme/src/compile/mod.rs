//! The compiler: core language to bytecode.
//!
//! - [`free`]: which variables a procedure takes from around it;
//! - [`loops`]: which `letrec` procedures are loops of the procedure around them;
//! - [`inline`]: what calls become instructions;
//! - [`emit`]: code, labels and tables;
//! - [`procedure`]: expressions to instructions.

mod emit;
mod free;
mod inline;
mod letrec;
mod loops;
mod procedure;

use std::sync::Arc;

use crate::code::Unit;
use crate::core::{Clause, Core, Lambda};
use crate::error::SyntaxError;
use crate::names::Symbols;
use emit::Emitter;
pub(crate) use inline::{Inline, Inlines};

/// Compiles an expression to a procedure without arguments, which is the first of the unit.
pub(crate) fn compile(
    core: Core,
    symbols: &Symbols,
    inlines: &Inlines<'_>,
    source_name: &Arc<str>,
) -> Result<Unit, SyntaxError> {
    let clause = Arc::new(Clause { parameters: Vec::new(), rest: None, body: core });
    let lambda = Lambda { name: None, clauses: vec![clause], pos: Default::default() };
    let mut emitter = Emitter::new(symbols, inlines, source_name);
    procedure::compile_all(&mut emitter, &lambda)?;
    Ok(emitter.finish())
}
