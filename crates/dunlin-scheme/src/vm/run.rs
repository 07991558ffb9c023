//! The loop.
//!
//! It runs the common case of each instruction, with its registers at hand; for anything else it stops at the
//! instruction and [`Machine::leave`] does it. So the loop calls little and keeps its state in registers.

use std::sync::Arc;

use super::fail::Fail;
use super::frames::restore;
use super::machine::{Frame, Machine, STACK_LEN, STACK_WORDS};
use super::prim::PRIMITIVES;
use super::slow::fused;
use super::turn::{Exit, Next, State, Turn};
use crate::code::Instruction;
use crate::code::instruction::number;
use crate::error::Error;
use crate::heap::Tag;
use crate::heap::word::{
    CLOSURE, FALSE, NIL, OBJECT, PAIR, TAG_MASK, UNSET, Word, boolean, code, fixnum, fixnum_value, is_fixnum,
};

/// The registers that instructions can name: any number of 16 bits is one, so none is checked.
type Window = [Word; 1 << 16];

#[inline]
fn window(words: &mut [Word; STACK_LEN], base: usize) -> &mut Window {
    words[base..].first_chunk_mut().expect("the running frame begins below `STACK_WORDS`")
}

impl Machine {
    /// Runs until the program ends, fails, or has used `fuel`.
    pub(crate) fn run(&mut self, fuel: u64) -> Result<Turn, Error> {
        self.failure = None;
        self.commons.rest();
        let all = i64::try_from(fuel).unwrap_or(i64::MAX);
        let mut fuel = all;
        loop {
            let stack = self.take_stack();
            let text = self.code.text.clone();
            let mut state = State { stack, pc: self.pc, base: self.base, arguments: self.arguments, fuel };
            let next = loop {
                let exit = self.steps(&text, &mut state);
                let left = self.leave(&text, &mut state, exit);
                self.commons.rest();
                match left {
                    Ok(None) if Arc::ptr_eq(&text, &self.code.text) => {}
                    Ok(None) => break Ok(Next::Reload),
                    Ok(Some(next)) => break Ok(next),
                    Err(fail) => break Err(fail),
                }
            };
            let State { stack, pc, base, arguments, fuel: left } = state;
            (self.pc, self.base, self.arguments, fuel) = (pc, base, arguments, left);
            self.overrun = self.overrun.max(left.min(0).unsigned_abs());
            self.used = all.saturating_sub(left).unsigned_abs();
            drop(text);
            self.put_stack(stack);
            match next {
                Ok(Next::Compile) => {
                    self.compile_argument();
                    self.commons.rest();
                }
                Ok(Next::Reload) => {}
                Ok(Next::Return(turn)) => return Ok(turn),
                Err(Fail::Halt) => return Ok(Turn::Halted),
                Err(Fail::Full) => {
                    let trace = self.trace(Some(self.pc.saturating_sub(1)));
                    return Err(Error::HeapLimit { limit_bytes: self.heap.limit() * 8, trace });
                }
                Err(Fail::End(error)) => return Err(self.with_trace(error)),
                Err(Fail::Call(name, arguments)) => return Err(self.raised_text(name, &arguments)),
                Err(Fail::Raise(_, message, irritants)) => return Err(self.raised_text(&message, &irritants)),
            }
        }
    }

    // A call: what it needs would take registers from the loop.
    #[inline(never)]
    fn primitive(&mut self, number: usize, arguments: &[Word]) -> Result<Word, Fail> {
        let result = PRIMITIVES[number].run(self, arguments);
        self.commons.rest();
        result
    }

    /// The instructions, one after the other. It is the table of what they mean.
    #[inline(never)]
    fn steps(&mut self, text: &[Instruction], state: &mut State) -> Exit {
        // What a call sets and its procedure reads once stays in memory: the loop has few registers.
        let State { stack, arguments, .. } = state;
        let words: &mut [Word; STACK_LEN] = stack.words.first_chunk_mut().expect("the stack has its size");
        let (frames, kont) = (&mut stack.frames, &mut stack.kont);
        let (mut pc, mut base) = (state.pc, state.base);
        let mut fuel = state.fuel;
        let mut registers = window(words, base);
        let stress = self.heap.is_stressed();
        macro_rules! r {
            ($at:expr) => {
                registers[usize::from($at as u16)]
            };
        }
        macro_rules! jump_if {
            ($i:expr, $condition:expr) => {
                if $condition {
                    pc = (pc as i64 + $i.c()) as usize;
                }
            };
        }
        macro_rules! call {
            ($procedure:expr) => {
                pc = self.heap.entry($procedure)
            };
        }
        let exit = loop {
            let i = text[pc];
            pc += 1;
            macro_rules! unless {
                ($condition:expr) => {
                    if !$condition {
                        break Exit::Slow;
                    }
                };
            }
            // After an instruction that made an object in r[a].
            macro_rules! made {
                () => {
                    if stress {
                        break Exit::Made(i.a());
                    }
                };
            }
            macro_rules! arithmetic {
                ($c:expr, $checked:ident) => {{
                    let (b, c) = (r!(i.b()), $c);
                    let (sum, overflow) = (b as i64).$checked(c as i64);
                    unless!((b | c) & TAG_MASK == 0 && !overflow);
                    r!(i.a()) = sum as u64;
                }};
            }
            macro_rules! divide {
                ($b:ident, $c:ident, $value:expr) => {{
                    let ($b, $c) = (r!(i.b()), r!(i.register()));
                    // The least fixnum by -1 is none.
                    unless!(($b | $c) & TAG_MASK == 0 && $c as i64 > 0);
                    let ($b, $c) = ($b as i64, $c as i64);
                    r!(i.a()) = $value as u64;
                }};
            }
            macro_rules! compare {
                ($c:expr, $op:tt) => {{
                    let (b, c) = (r!(i.b()), $c);
                    unless!((b | c) & TAG_MASK == 0);
                    (b as i64) $op (c as i64)
                }};
            }
            macro_rules! put {
                ($c:expr, $op:tt) => {{
                    let truth = compare!($c, $op);
                    r!(i.a()) = boolean(truth);
                }};
            }
            macro_rules! branch {
                ($c:expr, $op:tt) => {{
                    let truth = compare!($c, $op);
                    pc = fused(text, pc, truth);
                }};
            }
            match i.number() {
                number::Entry | number::Enter => {
                    let fits = *arguments == i.a() && i.b() == 0 || i.number() == number::Enter;
                    unless!(fits && base + i.index() <= STACK_WORDS && fuel > 1 && !self.heap.is_due());
                    fuel -= 1;
                }
                number::EntryOr => {
                    if *arguments < i.a() || (i.b() == 0 && *arguments > i.a()) {
                        jump_if!(i, true);
                    } else {
                        unless!(i.b() == 0);
                    }
                }
                number::Move => r!(i.a()) = r!(i.b()),
                number::MoveTwo => {
                    r!(i.a()) = r!(i.b());
                    r!(i.a() + 1) = r!(i.register());
                }
                number::LoadInt => r!(i.a()) = fixnum(i.wide_value()),
                number::LoadImmediate => r!(i.a()) = i.wide_value() as u64,
                number::Constant => r!(i.a()) = self.code.constants[i.index()],
                number::Global => {
                    let value = self.code.globals[i.index()];
                    unless!(value != UNSET);
                    r!(i.a()) = value;
                }
                number::Free => r!(i.a()) = self.heap.field(r!(0), 2 + i.index()),
                number::Closure | number::ClosureOpen => {
                    let entry = pc as i64 + i.c();
                    let variables = &registers[i.a()..i.a() + i.b()];
                    r!(i.a()) = match variables {
                        [] => code(entry as usize),
                        _ => self.heap.make_with(Tag::Closure, &[fixnum(entry)], variables),
                    };
                    if i.number() == number::Closure {
                        made!();
                    }
                }
                number::Patch => self.heap.patch(r!(i.a()), 2 + i.index(), r!(i.b())),
                number::Cell => {
                    r!(i.a()) = self.heap.make(Tag::Cell, &[UNSET]);
                    made!();
                }
                number::CellRead => {
                    let cell = r!(i.b());
                    unless!(self.heap.tag(cell) == Some(Tag::Cell));
                    let value = self.heap.field(cell, 1);
                    unless!(value != UNSET);
                    r!(i.a()) = value;
                }
                number::CellWrite => {
                    let cell = r!(i.a());
                    unless!(self.heap.tag(cell) == Some(Tag::Cell) && self.heap.field(cell, 1) == UNSET);
                    self.heap.write_cell(cell, r!(i.b()));
                }
                number::LoopHead => {}
                number::Jump => jump_if!(i, true),
                number::JumpFalse => jump_if!(i, r!(i.a()) == FALSE),
                number::JumpTrue => jump_if!(i, r!(i.a()) != FALSE),
                number::JumpNull => jump_if!(i, r!(i.a()) == NIL),
                number::JumpNotNull => jump_if!(i, r!(i.a()) != NIL),
                number::JumpPair => jump_if!(i, r!(i.a()) & TAG_MASK == PAIR),
                number::JumpNotPair => jump_if!(i, r!(i.a()) & TAG_MASK != PAIR),
                number::JumpEq => jump_if!(i, r!(i.a()) == r!(i.b())),
                number::JumpNotEq => jump_if!(i, r!(i.a()) != r!(i.b())),
                number::Loop | number::LoopMove => {
                    if i.number() == number::LoopMove {
                        r!(i.a()) = r!(i.b());
                    }
                    unless!(fuel > 1 && !self.heap.is_due());
                    fuel -= 1;
                    jump_if!(i, true);
                }
                number::Call => {
                    let procedure = r!(i.a());
                    unless!(procedure & TAG_MASK == CLOSURE);
                    *arguments = i.b();
                    frames.push(Frame { pc: pc as u32, base: base as u32 });
                    base += i.a();
                    registers = window(words, base);
                    call!(procedure);
                }
                number::TailCall => {
                    let procedure = r!(i.a());
                    *arguments = i.b();
                    r!(0) = procedure;
                    match i.b() {
                        0 => {}
                        1 => r!(1) = r!(i.a() + 1),
                        2 => (r!(1), r!(2)) = (r!(i.a() + 1), r!(i.a() + 2)),
                        3 => (r!(1), r!(2), r!(3)) = (r!(i.a() + 1), r!(i.a() + 2), r!(i.a() + 3)),
                        count => registers.copy_within(i.a()..i.a() + count + 1, 0),
                    }
                    unless!(procedure & TAG_MASK == CLOSURE);
                    call!(procedure);
                }
                number::Return => {
                    let value = r!(i.b());
                    let Some(frame) = frames.pop() else {
                        let Some((to, at)) = restore(words, kont, &self.heap) else { break Exit::Slow };
                        (pc, base) = (to, 0);
                        words[at] = value;
                        registers = window(words, 0);
                        continue;
                    };
                    r!(0) = value;
                    (pc, base) = (frame.pc as usize, frame.base as usize);
                    registers = window(words, base);
                }
                number::Primitive => {
                    let result = self.primitive(i.index(), &registers[i.a()..i.a() + i.b()]);
                    fuel -= std::mem::take(&mut self.charge) as i64;
                    match result {
                        Ok(value) => r!(i.a()) = value,
                        Err(fail) => break Exit::Raise(i.a(), fail),
                    }
                    made!();
                }
                number::Define | number::PrimitiveSpread | number::Control => break Exit::Slow,
                number::Add => arithmetic!(r!(i.register()), overflowing_add),
                number::Subtract => arithmetic!(r!(i.register()), overflowing_sub),
                number::AddConstant => arithmetic!(fixnum(i.c()), overflowing_add),
                number::Multiply => {
                    let (b, c) = (r!(i.b()), r!(i.register()));
                    // One factor keeps its tag bits, which are zero: so does the product.
                    let (product, overflow) = (b as i64 >> 3).overflowing_mul(c as i64);
                    unless!((b | c) & TAG_MASK == 0 && !overflow);
                    r!(i.a()) = product as u64;
                }
                number::Quotient => divide!(b, c, (b / c) << 3),
                number::Remainder => divide!(b, c, b % c),
                number::Modulo => divide!(b, c, b.rem_euclid(c)),
                number::Less => put!(r!(i.register()), <),
                number::LessEqual => put!(r!(i.register()), <=),
                number::NumberEqual => put!(r!(i.register()), ==),
                number::LessConstant => put!(fixnum(i.c()), <),
                number::LessEqualConstant => put!(fixnum(i.c()), <=),
                number::GreaterConstant => put!(fixnum(i.c()), >),
                number::GreaterEqualConstant => put!(fixnum(i.c()), >=),
                number::NumberEqualConstant => put!(fixnum(i.c()), ==),
                number::LessJump => branch!(r!(i.register()), <),
                number::LessEqualJump => branch!(r!(i.register()), <=),
                number::NumberEqualJump => branch!(r!(i.register()), ==),
                number::LessConstantJump => branch!(fixnum(i.c()), <),
                number::LessEqualConstantJump => branch!(fixnum(i.c()), <=),
                number::GreaterConstantJump => branch!(fixnum(i.c()), >),
                number::GreaterEqualConstantJump => branch!(fixnum(i.c()), >=),
                number::NumberEqualConstantJump => branch!(fixnum(i.c()), ==),
                number::Car => {
                    let pair = r!(i.b());
                    unless!(pair & TAG_MASK == PAIR);
                    r!(i.a()) = self.heap.car(pair);
                }
                number::Cdr => {
                    let pair = r!(i.b());
                    unless!(pair & TAG_MASK == PAIR);
                    r!(i.a()) = self.heap.cdr(pair);
                }
                number::Cons => {
                    r!(i.a()) = self.heap.cons(r!(i.b()), r!(i.register()));
                    made!();
                }
                number::IsNull => r!(i.a()) = boolean(r!(i.b()) == NIL),
                number::IsPair => r!(i.a()) = boolean(r!(i.b()) & TAG_MASK == PAIR),
                number::Not => r!(i.a()) = boolean(r!(i.b()) == FALSE),
                number::Eq => r!(i.a()) = boolean(r!(i.b()) == r!(i.register())),
                number::VectorRef => {
                    let (vector, index) = (r!(i.b()), r!(i.register()));
                    unless!(vector & TAG_MASK == OBJECT && is_fixnum(index));
                    match self.heap.item(vector, fixnum_value(index) as usize) {
                        Some(item) => r!(i.a()) = item,
                        None => break Exit::Slow,
                    }
                }
                _ => unreachable!("code is checked before it is loaded"),
            }
        };
        (state.pc, state.base) = (pc, base);
        state.fuel = fuel;
        exit
    }
}

/// The word of a truth value, for primitives.
pub(super) const fn truth(value: bool) -> Word {
    boolean(value)
}
