//! What the loop leaves out: calls of what is no closure, arguments in lists, big numbers, collections,
//! errors.

use super::fail::{Fail, out_of_range, wrong_type};
use super::long::compute_pair;
use super::machine::{ARGUMENTS_MAX, Machine, STACK_WORDS};
use super::prim::{Control, PRIMITIVES};
use super::turn::{Exit, Next, State, Turn};
use crate::code::instruction::number;
use crate::code::{Instruction, Op};
use crate::heap::word::{CLOSURE, NIL, OBJECT, PAIR, TAG_MASK, Word, boolean, fixnum, fixnum_value, is_fixnum, symbol};
use crate::heap::{Heap, Tag};
use crate::num::{BITS_MAX, Number, Pair, Round};
use crate::value;

impl Machine {
    /// Does what the loop left for, and says what ends the turn.
    pub(super) fn leave(&mut self, code: &[Instruction], state: &mut State, exit: Exit) -> Result<Option<Next>, Fail> {
        match exit {
            Exit::Raise(a, fail) => self.raise(state, a, fail)?,
            Exit::Made(a) => self.collect(state, state.base + a + 1)?,
            Exit::Slow => return self.slow(code, state),
        }
        Ok(None)
    }

    /// Runs the instruction before `pc` in full.
    fn slow(&mut self, code: &[Instruction], state: &mut State) -> Result<Option<Next>, Fail> {
        let i = code[state.pc - 1];
        match i.op() {
            Op::Entry | Op::Enter => return self.enter(state, i),
            Op::EntryOr => {
                self.gather_rest(state, i.a());
                state.arguments = i.a() + 1;
            }
            Op::Loop | Op::LoopMove => {
                state.pc = (state.pc as i64 + i.c()) as usize;
                return self.turn(state, code[state.pc - 1].a());
            }
            Op::Call => {
                state.push(i.a());
                state.arguments = i.b();
                self.call_object(state)?;
            }
            Op::TailCall => self.call_object(state)?,
            // No frame is left.
            Op::Return => return Ok(Some(Next::Return(Turn::Done(state.register(i.b()))))),
            Op::Define => {
                let number = i.index() as u32;
                // Bindings of libraries never change, also if a body is run by two processes at once, or is
                // entered again by a continuation.
                if !self.commons.program.once.contains(&number) || self.global_at(number).is_none() {
                    self.define(number, state.register(i.a()), self.heap.limit())?;
                }
                state.fuel -= std::mem::take(&mut self.charge) as i64;
            }
            Op::Global => {
                if let Some(value) = self.global_at(i.index() as u32) {
                    state.set_register(i.a(), value);
                    return Ok(None);
                }
                let name = symbol(self.commons.program.label(i.index()));
                self.raise(state, i.a(), Fail::Raise("unbound", "variable is not defined:".into(), vec![name]))?;
            }
            Op::CellRead => {
                cell(&self.heap, state.register(i.b()))?;
                let name = self.code.constants[i.index()];
                let message = "variable is used before it has a value:".into();
                self.raise(state, i.a(), Fail::Raise("unbound", message, vec![name]))?;
            }
            Op::CellWrite => {
                cell(&self.heap, state.register(i.a()))?;
                self.raise(state, i.index(), Fail::Raise("letrec", "letrec entered twice".into(), vec![]))?;
            }
            Op::PrimitiveSpread => {
                let mut arguments = state.stack.words[state.base + 1..state.base + i.a()].to_vec();
                list_items(&self.heap, state.register(i.a()), &mut arguments);
                let result = PRIMITIVES[i.index()].run(self, &arguments);
                state.fuel -= std::mem::take(&mut self.charge) as i64;
                self.put(state, i.a(), result)?;
            }
            Op::Control => return self.control(state, i),
            Op::VectorRef => {
                let result = vector_ref(&self.heap, state.register(i.b()), state.register(i.register()));
                self.put(state, i.a(), result)?;
            }
            Op::Car | Op::Cdr => self.raise(state, i.a(), wrong_type("a pair", state.register(i.b())))?,
            _ => self.number(code, state, i)?,
        }
        Ok(None)
    }

    /// The start of a procedure: its arguments, and what is due now and then.
    fn enter(&mut self, state: &mut State, i: Instruction) -> Result<Option<Next>, Fail> {
        let mut live = state.arguments + 1;
        if i.op() == Op::Entry {
            if state.arguments < i.a() || (i.b() == 0 && state.arguments > i.a()) {
                self.wrong_arguments(state, i)?;
                return Ok(None);
            }
            if i.b() != 0 {
                self.gather_rest(state, i.a());
            }
            live = i.a() + i.b() + 1;
        }
        let registers = i.index();
        if state.base + registers > STACK_WORDS {
            state.stack.move_to_heap(&mut self.heap, state.base);
            state.stack.sink(state.base, live);
            state.base = 0;
        }
        self.turn(state, live)
    }

    /// Counts one unit of fuel where `live` registers hold values: collects if that is due, and ends the
    /// turn.
    fn turn(&mut self, state: &mut State, live: usize) -> Result<Option<Next>, Fail> {
        state.fuel -= 1;
        if self.heap.is_due() {
            self.collect(state, state.base + live)?;
        }
        if state.fuel > 0 {
            return Ok(None);
        }
        self.live = state.base + live;
        Ok(Some(Next::Return(Turn::OutOfFuel)))
    }

    /// Arithmetic and comparisons on other numbers than fixnums, and on what is none.
    fn number(&mut self, code: &[Instruction], state: &mut State, i: Instruction) -> Result<(), Fail> {
        let b = state.register(i.b());
        let c = if has_constant(i.number()) { fixnum(i.c()) } else { state.register(i.register()) };
        if i.op() == Op::Multiply && product_of_words(&self.heap, b, c) > WORDS_MAX {
            return self.multiply(state, i, b, c);
        }
        if let Some(pair) = pair_of(i.op()).filter(|pair| is_long(&self.heap, *pair, b, c)) {
            return self.raise(state, i.a(), compute_pair(pair, b, c));
        }
        let operation: Operation = match i.op() {
            Op::Add | Op::AddConstant => Number::add,
            Op::Subtract => Number::sub,
            Op::Multiply => Number::mul,
            Op::Quotient => |b, c| b.divide(c, Round::Truncate).map(|both| both.0),
            Op::Remainder => |b, c| b.divide(c, Round::Truncate).map(|both| both.1),
            Op::Modulo => |b, c| b.divide(c, Round::Floor).map(|both| both.1),
            _ => return self.comparison(code, state, i, b, c),
        };
        let cost = match i.op() {
            Op::Add | Op::AddConstant | Op::Subtract => linear_cost,
            _ => product_cost,
        };
        let result = binary(&mut self.heap, &mut self.charge, b, c, cost, operation);
        state.fuel -= std::mem::take(&mut self.charge) as i64;
        self.put(state, i.a(), result)
    }

    /// A product that would take long becomes a call of a procedure that splits it.
    fn multiply(&mut self, state: &mut State, i: Instruction, b: Word, c: Word) -> Result<(), Fail> {
        let bits = |word| value::number(&self.heap, word).map_or(0, |number| number.bits());
        if bits(b) + bits(c) > BITS_MAX {
            let message = crate::num::NumError::TooLarge.to_string();
            return self.raise(state, i.a(), Fail::Raise("number", message, vec![]));
        }
        self.call_instead(state, i.a(), "%multiply", &[b, c])
    }

    fn comparison(
        &mut self,
        code: &[Instruction],
        state: &mut State,
        i: Instruction,
        b: Word,
        c: Word,
    ) -> Result<(), Fail> {
        let pair = match i.number() {
            number::Less | number::LessConstant | number::LessJump | number::LessConstantJump => Pair::Less,
            number::NumberEqual | number::NumberEqualConstant => Pair::Equal,
            number::NumberEqualJump | number::NumberEqualConstantJump => Pair::Equal,
            number::GreaterConstant | number::GreaterConstantJump => Pair::Greater,
            number::GreaterEqualConstant | number::GreaterEqualConstantJump => Pair::GreaterEqual,
            _ => Pair::LessEqual,
        };
        if is_long(&self.heap, pair, b, c) {
            // (The jump that follows looks at the register, as after an error.)
            return self.raise(state, i.a(), compute_pair(pair, b, c));
        }
        let order = match compare(&self.heap, b, c) {
            Ok(order) => order,
            Err(fail) => return self.raise(state, i.a(), fail),
        };
        let truth = order.zip(pair.holds()).is_some_and(|(order, holds)| holds(order));
        if i.number() >= number::LessJump && i.number() <= number::NumberEqualConstantJump {
            state.pc = fused(code, state.pc, truth);
        } else {
            state.set_register(i.a(), boolean(truth));
        }
        Ok(())
    }

    /// The value of an instruction goes to register `a`, or its error becomes a call of `raise`.
    fn put(&mut self, state: &mut State, a: usize, result: Result<Word, Fail>) -> Result<(), Fail> {
        match result {
            Ok(value) => {
                state.set_register(a, value);
                if self.heap.is_stressed() {
                    self.collect(state, state.base + a + 1)?;
                }
                Ok(())
            }
            Err(fail) => self.raise(state, a, fail),
        }
    }

    /// Collects the arguments past the first `parameters` into a list.
    fn gather_rest(&mut self, state: &mut State, parameters: usize) {
        let first = state.base + 1 + parameters;
        let end = state.base + 1 + state.arguments;
        let list = self.heap.list(&state.stack.words[first.min(end)..end], NIL);
        state.stack.words[first] = list;
    }

    fn collect(&mut self, state: &mut State, live: usize) -> Result<(), Fail> {
        let mut registers = [state.stack.kont, self.marks];
        let mut held = self.running.roots();
        let stack = &mut state.stack.words[..live];
        let roots: &mut [&mut [Word]] = &mut [stack, &mut registers, &mut held, &mut self.parked];
        let result = self.heap.collect(roots, false);
        [state.stack.kont, self.marks] = registers;
        self.running.set_roots(&held);
        Ok(result?)
    }

    /// Makes an error the call of `raise` at register `a` of the running frame.
    fn raise(&mut self, state: &mut State, a: usize, fail: Fail) -> Result<(), Fail> {
        let (kind, message, irritants) = match fail {
            Fail::Raise(kind, message, irritants) => (kind, message, irritants),
            Fail::Call(name, arguments) => return self.call_instead(state, a, name, &arguments),
            fail => return Err(fail),
        };
        let place = state.pc as i64 - 1;
        let condition = self.condition(kind, &message, &irritants, place);
        let raise = self.global_value("%raise");
        if raise & TAG_MASK != CLOSURE {
            return Err(Fail::Raise(kind, message, irritants));
        }
        state.push(a);
        state.stack.words[state.base] = raise;
        state.stack.words[state.base + 1] = condition;
        state.arguments = 1;
        state.pc = self.heap.entry(raise);
        Ok(())
    }

    /// Makes the call of a procedure of the prelude, at register `a` of the running frame.
    fn call_instead(&mut self, state: &mut State, a: usize, name: &str, arguments: &[Word]) -> Result<(), Fail> {
        let procedure = self.global_value(name);
        state.push(a);
        let at = state.base;
        state.stack.words[at] = procedure;
        state.stack.words[at + 1..at + 1 + arguments.len()].copy_from_slice(arguments);
        state.arguments = arguments.len();
        self.dispatch(state)
    }

    /// The running frame is a call that fails: its value is that of the handler.
    fn raise_instead(&mut self, state: &mut State, fail: Fail) -> Result<(), Fail> {
        self.raise(state, 0, fail)?;
        state.stack.frames.pop();
        Ok(())
    }

    fn wrong_arguments(&mut self, state: &mut State, entry: Instruction) -> Result<(), Fail> {
        let least = entry.a();
        let expected = match (least, entry.b()) {
            (0xffff, _) => "expected other numbers of arguments".to_owned(),
            (1, 0) => "expected 1 argument".to_owned(),
            (_, 0) => format!("expected {least} arguments"),
            _ => format!("expected at least {least} arguments"),
        };
        let name = self.commons.program.index.place(state.pc - 1).map(|place| place.procedure).unwrap_or_default();
        let name = if name.is_empty() { "procedure".into() } else { name };
        let message = format!("{name}: {expected}, got {}", state.arguments);
        // The caller is where the error is.
        let at = state.stack.frames.last().map_or(state.pc, |frame| frame.pc as usize);
        let entry_pc = std::mem::replace(&mut state.pc, at);
        let result = self.raise_instead(state, Fail::Raise("arity", message, vec![]));
        if result.is_err() {
            state.pc = entry_pc;
        }
        result
    }

    /// Calls what is no closure: the frame at `base` holds it, and its arguments.
    fn call_object(&mut self, state: &mut State) -> Result<(), Fail> {
        let object = state.stack.words[state.base];
        let callee = match self.heap.tag(object) {
            Some(Tag::Continuation) => self.global_value("%enter"),
            Some(Tag::Parameter) => self.global_value("%parameter-value"),
            _ => {
                return self
                    .raise_instead(state, Fail::Raise("type", "expected a procedure, got".into(), vec![object]));
            }
        };
        let first = state.base + 1;
        let list = self.heap.list(&state.stack.words[first..first + state.arguments], NIL);
        state.stack.words[state.base..first + 2].copy_from_slice(&[callee, object, list]);
        state.arguments = 2;
        state.pc = self.heap.entry(callee);
        Ok(())
    }

    /// Calls what the frame at `base` holds, in place of the procedure that runs.
    fn dispatch(&mut self, state: &mut State) -> Result<(), Fail> {
        let procedure = state.stack.words[state.base];
        if procedure & TAG_MASK == CLOSURE {
            state.pc = self.heap.entry(procedure);
            return Ok(());
        }
        self.call_object(state)
    }

    fn control(&mut self, state: &mut State, i: Instruction) -> Result<Option<Next>, Fail> {
        let argument = |state: &State, at: usize| state.stack.words[state.base + at];
        match Control::of_number(i.index()) {
            Control::Apply => {
                let (procedure, list) = (argument(state, 1), argument(state, 2));
                let mut all = Vec::new();
                if !list_items(&self.heap, list, &mut all) {
                    self.raise_instead(state, wrong_type("a list of arguments", list))?;
                    return Ok(None);
                }
                let Some(last) = all.pop() else {
                    let message = "apply: expected at least 2 arguments, got 1".into();
                    self.raise_instead(state, Fail::Raise("arity", message, vec![]))?;
                    return Ok(None);
                };
                if !list_items(&self.heap, last, &mut all) {
                    self.raise_instead(state, wrong_type("a list of arguments", last))?;
                    return Ok(None);
                }
                self.spread(state, procedure, &all)?;
            }
            Control::CallWithValue => {
                let (procedure, values) = (argument(state, 1), argument(state, 2));
                let all = match self.heap.tag(values) {
                    Some(Tag::Values) => self.heap.fields(values).to_vec(),
                    _ => vec![values],
                };
                self.spread(state, procedure, &all)?;
            }
            Control::Capture => {
                let procedure = argument(state, 1);
                state.stack.move_to_heap(&mut self.heap, state.base);
                state.base = 0;
                let continuation = self.heap.make(Tag::Continuation, &[state.stack.kont, self.marks]);
                self.spread(state, procedure, &[continuation])?;
            }
            Control::Throw => {
                let (continuation, list) = (argument(state, 1), argument(state, 2));
                if self.heap.tag(continuation) != Some(Tag::Continuation) {
                    self.raise_instead(state, wrong_type("a continuation", continuation))?;
                    return Ok(None);
                }
                let mut all = Vec::new();
                list_items(&self.heap, list, &mut all);
                let value = if all.len() == 1 { all[0] } else { self.heap.make(Tag::Values, &all) };
                state.stack.frames.clear();
                state.stack.kont = self.heap.field(continuation, 1);
                self.marks = self.heap.field(continuation, 2);
                state.base = 0;
                match state.stack.restore(&self.heap) {
                    Some((pc, at)) => {
                        state.pc = pc;
                        state.stack.words[at] = value;
                    }
                    None => return Ok(Some(Next::Return(Turn::Done(value)))),
                }
            }
            Control::Compile => return Ok(Some(Next::Compile)),
            Control::Wait => {
                match self.wait([1, 2, 3].map(|at| argument(state, at))) {
                    Ok(value) => state.set_register(1, value),
                    Err(deadline) => {
                        // The process goes on with this instruction: a wait is asked anew, wherever that is.
                        state.pc -= 1;
                        self.live = state.base + 4;
                        return Ok(Some(Next::Return(Turn::Waiting(deadline))));
                    }
                }
            }
            Control::Operate => {
                let operated = self.operate(argument(state, 1), argument(state, 2));
                // Before the process waits: another one would pay for it.
                state.fuel -= std::mem::take(&mut self.charge) as i64;
                match operated {
                    Ok(Ok(value)) => state.set_register(1, value),
                    Ok(Err(deadline)) => {
                        state.pc -= 1;
                        self.live = state.base + 3;
                        return Ok(Some(Next::Return(Turn::Operating(deadline))));
                    }
                    Err(fail) => self.raise_instead(state, fail)?,
                }
            }
            Control::Claim => match self.claim_body(argument(state, 1)) {
                Ok(Some(value)) => state.set_register(1, value),
                Ok(None) => {
                    state.pc -= 1;
                    self.live = state.base + 2;
                    return Ok(Some(Next::Return(Turn::Waiting(None))));
                }
                Err(fail) => self.raise_instead(state, fail)?,
            },
            Control::Uncaught => {
                let object = argument(state, 1);
                self.failure = Some(object);
                let text = self.raised(object);
                return Err(Fail::End(text));
            }
        }
        Ok(None)
    }

    fn spread(&mut self, state: &mut State, procedure: Word, arguments: &[Word]) -> Result<(), Fail> {
        if arguments.len() > ARGUMENTS_MAX {
            let message = format!("more than {ARGUMENTS_MAX} arguments");
            return self.raise_instead(state, Fail::Raise("limit", message, vec![]));
        }
        let at = state.base;
        state.stack.words[at] = procedure;
        state.stack.words[at + 1..at + 1 + arguments.len()].copy_from_slice(arguments);
        state.arguments = arguments.len();
        self.dispatch(state)
    }
}

/// The items of a list; false if it is none.
pub(super) fn list_items(heap: &Heap, mut list: Word, items: &mut Vec<Word>) -> bool {
    while list & TAG_MASK == PAIR && items.len() <= heap.span() {
        items.push(heap.car(list));
        list = heap.cdr(list);
    }
    list == NIL
}

/// Code that was compiled here has a cell there; a frame that came as bytes may not.
fn cell(heap: &Heap, cell: Word) -> Result<(), Fail> {
    match heap.tag(cell) {
        Some(Tag::Cell) => Ok(()),
        _ => Err(Fail::Raise("type", "expected a cell, got".into(), vec![cell])),
    }
}

/// Where to go on after a comparison that is fused with the `JumpFalse` at `pc`.
#[inline]
pub(super) fn fused(code: &[Instruction], pc: usize, truth: bool) -> usize {
    if truth { pc + 1 } else { (pc as i64 + 1 + code[pc].c()) as usize }
}

/// Whether `c` is the second operand itself.
const fn has_constant(number: u8) -> bool {
    number == number::AddConstant
        || (number::LessConstant <= number && number <= number::NumberEqualConstant)
        || (number::LessConstantJump <= number && number <= number::NumberEqualConstantJump)
}

fn vector_ref(heap: &Heap, vector: Word, index: Word) -> Result<Word, Fail> {
    if vector & TAG_MASK != OBJECT || heap.tag(vector) != Some(Tag::Vector) {
        return Err(wrong_type("a vector", vector));
    }
    let items = heap.fields(vector);
    if !is_fixnum(index) {
        return Err(wrong_type("an index", index));
    }
    usize::try_from(fixnum_value(index))
        .ok()
        .and_then(|at| items.get(at).copied())
        .ok_or_else(|| out_of_range(index, items.len().saturating_sub(1)))
}

type Operation = fn(&Number, &Number) -> Result<Number, crate::num::NumError>;

fn binary(heap: &mut Heap, charge: &mut u64, b: Word, c: Word, cost: Cost, operation: Operation) -> Result<Word, Fail> {
    if let (Some(Tag::Flonum), Some(Tag::Flonum)) = (heap.tag(b), heap.tag(c)) {
        let (b, c) = (f64::from_bits(heap.field(b, 1)), f64::from_bits(heap.field(c, 1)));
        let result = operation(&Number::Flo(b), &Number::Flo(c)).unwrap_or(Number::Flo(f64::NAN));
        return Ok(value::of_number(heap, &result));
    }
    let left = value::number(heap, b).ok_or_else(|| wrong_type("a number", b))?;
    let right = value::number(heap, c).ok_or_else(|| wrong_type("a number", c))?;
    *charge += cost(&left, &right);
    let result = operation(&left, &right).map_err(|error| Fail::Raise("number", error.to_string(), vec![]))?;
    heap.reserve(result.bits() / 32)?;
    Ok(value::of_number(heap, &result))
}

/// The product of the lengths of two bignums that one instruction multiplies: more would take longer than a
/// turn.
const WORDS_MAX: usize = 1 << 18;

fn product_of_words(heap: &Heap, b: Word, c: Word) -> usize {
    let words = |word| if heap.tag(word) == Some(Tag::Bignum) { heap.fields(word).len() } else { 1 };
    words(b).saturating_mul(words(c))
}

/// The operation on two numbers that an instruction is, if it can take long.
fn pair_of(op: Op) -> Option<Pair> {
    Some(match op {
        Op::Add | Op::AddConstant => Pair::Add,
        Op::Subtract => Pair::Subtract,
        Op::Multiply => Pair::Multiply,
        Op::Quotient => Pair::TruncateQuotient,
        Op::Remainder => Pair::TruncateRemainder,
        Op::Modulo => Pair::FloorRemainder,
        _ => return None,
    })
}

/// Whether an operation on two numbers takes long. Most are short, which the sizes of their objects tell.
fn is_long(heap: &Heap, pair: Pair, b: Word, c: Word) -> bool {
    let is_large = |word| match heap.tag(word) {
        Some(Tag::Bignum) => heap.fields(word).len() > 8,
        tag => tag == Some(Tag::Ratio),
    };
    if !is_large(b) && !is_large(c) {
        return false;
    }
    match (value::number(heap, b), value::number(heap, c)) {
        (Some(left), Some(right)) => pair.is_long(&left, &right),
        _ => false,
    }
}

/// What an operation on two numbers costs, in fuel.
pub(super) type Cost = fn(&Number, &Number) -> u64;

/// An operation that looks at each word once.
pub(super) fn linear_cost(left: &Number, right: &Number) -> u64 {
    (left.bits() + right.bits()) as u64 / 2048
}

/// A product, a quotient, a greatest common divisor: at most.
pub(super) fn product_cost(left: &Number, right: &Number) -> u64 {
    let words = (left.bits() as u64 / 64).saturating_mul(right.bits() as u64 / 64);
    linear_cost(left, right) + words / 512
}

fn compare(heap: &Heap, b: Word, c: Word) -> Result<Option<std::cmp::Ordering>, Fail> {
    let left = value::number(heap, b).ok_or_else(|| wrong_type("a number", b))?;
    let right = value::number(heap, c).ok_or_else(|| wrong_type("a number", c))?;
    Ok(left.compare(&right))
}
