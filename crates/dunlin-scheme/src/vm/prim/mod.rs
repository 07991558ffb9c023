//! Primitives: procedures in Rust.
//!
//! A primitive gets its arguments as values, and may make objects: the collector runs only after it.

mod channels;
mod control;
mod io;
mod lists;
mod numbers;
mod processes;
mod text;
mod vectors;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::LazyLock;

use super::fail::Result;
use super::machine::Machine;
use crate::code::{Instruction, Op, Unit};
use crate::compile::Inline;
use crate::heap::Word;
use crate::heap::word::UNSPECIFIED;
use crate::names::{Name, Symbols};

type Run = fn(&mut Machine, &[Word]) -> Result;

/// As many arguments as a call may have.
const ANY: u16 = u16::MAX;

/// A procedure in Rust.
pub(super) struct Primitive {
    name: &'static str,
    least: u16,
    most: u16,
    run: Run,
}

impl Primitive {
    pub(super) fn run(&self, machine: &mut Machine, arguments: &[Word]) -> Result {
        (self.run)(machine, arguments)
    }
}

/// All primitives; code names them by their place.
pub(super) static PRIMITIVES: LazyLock<Vec<Primitive>> = LazyLock::new(|| {
    let tables = [
        lists::TABLE,
        numbers::TABLE,
        text::TABLE,
        vectors::TABLE,
        control::TABLE,
        io::TABLE,
        processes::TABLE,
        channels::TABLE,
    ];
    let all = tables.iter().flat_map(|table| table.iter());
    all.map(|&(name, least, most, run)| Primitive { name, least, most, run }).collect()
});

type Row = (&'static str, u16, u16, Run);

/// What a few procedures do with the machine itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Control {
    Apply,
    CallWithValue,
    Capture,
    Throw,
    Compile,
    Uncaught,
    Wait,
    Operate,
    Claim,
}

/// Their names, parameters, and whether more arguments come as a list.
const CONTROLS: [(&str, u16, u16, Control); 9] = [
    ("apply", 1, 1, Control::Apply),
    ("%call-with-value", 2, 0, Control::CallWithValue),
    ("%call/cc", 1, 0, Control::Capture),
    ("%throw", 2, 0, Control::Throw),
    ("%compile", 1, 0, Control::Compile),
    ("%uncaught", 1, 0, Control::Uncaught),
    ("%wait", 3, 0, Control::Wait),
    ("%operate", 2, 0, Control::Operate),
    ("%claim-body", 1, 0, Control::Claim),
];

impl Control {
    pub(super) fn of_number(number: usize) -> Self {
        CONTROLS[number].3
    }
}

/// Procedures that are instructions.
const INSTRUCTIONS: [(&str, Inline); 25] = [
    ("car", Inline::Unary(Op::Car)),
    ("cdr", Inline::Unary(Op::Cdr)),
    ("cons", Inline::Binary(Op::Cons)),
    ("%cons", Inline::Binary(Op::Cons)),
    ("%car", Inline::Unary(Op::Car)),
    ("%cdr", Inline::Unary(Op::Cdr)),
    ("null?", Inline::Unary(Op::IsNull)),
    ("pair?", Inline::Unary(Op::IsPair)),
    ("%null?", Inline::Unary(Op::IsNull)),
    ("%pair?", Inline::Unary(Op::IsPair)),
    ("not", Inline::Unary(Op::Not)),
    ("eq?", Inline::Binary(Op::Eq)),
    ("%eq?", Inline::Binary(Op::Eq)),
    ("vector-ref", Inline::Binary(Op::VectorRef)),
    ("quotient", Inline::Binary(Op::Quotient)),
    ("remainder", Inline::Binary(Op::Remainder)),
    ("modulo", Inline::Binary(Op::Modulo)),
    ("+", Inline::Arithmetic(Op::Add)),
    ("-", Inline::Arithmetic(Op::Subtract)),
    ("*", Inline::Arithmetic(Op::Multiply)),
    ("=", Inline::Compare(Op::NumberEqual)),
    ("<", Inline::Compare(Op::Less)),
    ("<=", Inline::Compare(Op::LessEqual)),
    (">", Inline::CompareSwapped(Op::Less)),
    (">=", Inline::CompareSwapped(Op::LessEqual)),
];

/// How calls of standard procedures are compiled.
pub(crate) fn inlines(symbols: &mut Symbols) -> HashMap<Name, Vec<Inline>> {
    let mut table: HashMap<Name, Vec<Inline>> = HashMap::new();
    for (name, inline) in &INSTRUCTIONS {
        table.entry(symbols.intern(name)).or_default().push(*inline);
    }
    for (number, primitive) in PRIMITIVES.iter().enumerate() {
        let Primitive { name, least, most, .. } = primitive;
        let inline = Inline::Primitive { number: number as u16, least: *least, most: *most };
        table.entry(symbols.intern(name)).or_default().push(inline);
    }
    table
}

/// The unit that defines every primitive as a procedure.
pub(crate) fn builtins(symbols: &mut Symbols, source_name: &Arc<str>) -> Unit {
    let mut procedures: Vec<(&str, Vec<Instruction>)> = Vec::new();
    for (name, inline) in INSTRUCTIONS {
        let (count, op) = match inline {
            Inline::Unary(op) => (1, op),
            Inline::Binary(op) => (2, op),
            // These have a primitive for any number of arguments.
            _ => continue,
        };
        let result = count + 1;
        let body = [
            Instruction::new(Op::Entry, count, 0, i64::from(result) + 1),
            Instruction::new(op, result, 1, 2),
            Instruction::new(Op::Return, 0, result, 0),
        ];
        procedures.push((name, body.into()));
    }
    for (number, primitive) in PRIMITIVES.iter().enumerate() {
        procedures.push((primitive.name, primitive_body(primitive, number as i64)));
    }
    for (number, (name, count, rest, _)) in CONTROLS.iter().enumerate() {
        let body = [
            Instruction::new(Op::Entry, *count, *rest, i64::from(count + rest) + 4),
            Instruction::new(Op::Control, count + rest + 1, 0, number as i64),
            Instruction::new(Op::Return, 0, 1, 0),
        ];
        procedures.push((name, body.into()));
    }
    let definitions = 2 * procedures.len();
    let mut code = vec![Instruction::new(Op::Entry, 0, 0, 2)];
    let mut globals = Vec::new();
    // Each procedure begins after all definitions and the procedures before it.
    let mut start = definitions as i64 + 3;
    let mut named = vec![(0, "".into())];
    for (name, body) in &procedures {
        named.push((start as u32, (*name).into()));
        code.push(Instruction::new(Op::Closure, 1, 0, start - code.len() as i64 - 1));
        code.push(Instruction::new(Op::Define, 1, 0, globals.len() as i64));
        globals.push(symbols.intern(name));
        start += body.len() as i64;
    }
    code.push(Instruction::wide(Op::LoadImmediate, 1, UNSPECIFIED as i64));
    code.push(Instruction::new(Op::Return, 0, 1, 0));
    code.extend(procedures.into_iter().flat_map(|(_, body)| body));
    Unit {
        code,
        constants: Vec::new(),
        globals,
        positions: vec![(0, crate::datum::Pos { line: 1, column: 1, source: 0 })],
        procedures: named,
        source_name: source_name.clone(),
        sources: Default::default(),
    }
}

/// A clause for each number of arguments up to three more than the least, and one for any more.
fn primitive_body(primitive: &Primitive, number: i64) -> Vec<Instruction> {
    let Primitive { name, least, most, .. } = primitive;
    let (least, most) = (*least, *most);
    let mut body = Vec::new();
    let listed = if most == ANY { least + 3 } else { most };
    for count in least..=listed {
        let frame = i64::from(count) + 2;
        if count == most {
            body.push(Instruction::new(Op::Entry, count, 0, frame));
        } else {
            body.push(Instruction::new(Op::EntryOr, count, 0, 3));
            body.push(Instruction::new(Op::Enter, 0, 0, frame));
        }
        // Of two factors it is the instruction, which can give way.
        body.push(match (*name, count) {
            ("*", 2) => Instruction::new(Op::Multiply, 3, 1, 2),
            _ => Instruction::new(Op::Primitive, 1, count, number),
        });
        body.push(Instruction::new(Op::Return, 0, if (*name, count) == ("*", 2) { 3 } else { 1 }, 0));
    }
    if most == ANY {
        let count = least + 3;
        body.push(Instruction::new(Op::Entry, count, 1, i64::from(count) + 3));
        body.push(Instruction::new(Op::PrimitiveSpread, count + 1, 0, number));
        body.push(Instruction::new(Op::Return, 0, count + 1, 0));
    }
    body
}
