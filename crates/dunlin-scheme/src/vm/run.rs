//! The loop.

use super::fail::{Fail, out_of_range, wrong_type};
use super::frames::Stack;
use super::machine::{Frame, Machine, STACK_SLACK, STACK_WORDS};
use super::prim::{Control, PRIMITIVES};
use crate::code::Instruction;
use crate::code::instruction::number;
use crate::error::Error;
use crate::heap::word::{
    CLOSURE, FALSE, NIL, OBJECT, PAIR, TAG_MASK, TRUE, UNSET, Word, boolean, fixnum, fixnum_value, is_fixnum, symbol,
};
use crate::heap::{Heap, Tag};
use crate::num::{FIXNUM_MAX, FIXNUM_MIN, Number};
use crate::value;

/// How a turn ended.
#[derive(Debug)]
pub(crate) enum Turn {
    /// With the value of the program.
    Done(Word),
    /// The fuel is used up; the next turn goes on.
    OutOfFuel,
}

/// What the loop does after it has left its fast path.
enum Next {
    /// The running procedure wants its argument compiled.
    Compile,
    Return(Turn),
}

/// Arguments that one call may have.
const ARGUMENTS_MAX: usize = STACK_SLACK - 64;

/// The loop's registers, while something slow runs.
struct State {
    stack: Stack,
    pc: usize,
    base: usize,
    arguments: usize,
}

impl State {
    /// Makes the running frame's register `a` the start of a call that returns to `pc`.
    fn push(&mut self, a: usize) {
        self.stack.frames.push(Frame { pc: self.pc as u32, base: self.base as u32 });
        self.base += a;
    }
}

fn fused(code: &[Instruction], pc: usize, truth: bool) -> usize {
    if truth { pc + 1 } else { (pc as i64 + 1 + code[pc].c()) as usize }
}

impl Machine {
    /// Runs until the program ends, fails, or has used `fuel`.
    pub(crate) fn run(&mut self, fuel: u64) -> Result<Turn, Error> {
        let mut fuel = i64::try_from(fuel).unwrap_or(i64::MAX);
        loop {
            let stack = self.take_stack();
            let text = self.text.clone();
            let mut state = State { stack, pc: self.pc, base: self.base, arguments: self.arguments };
            let next = self.steps(&text, &mut state, &mut fuel);
            let State { stack, pc, base, arguments } = state;
            (self.pc, self.base, self.arguments) = (pc, base, arguments);
            drop(text);
            self.put_stack(stack);
            match next {
                Ok(Next::Compile) => self.compile_argument(),
                Ok(Next::Return(turn)) => return Ok(turn),
                Err(Fail::Full) => {
                    let trace = self.trace(Some(self.pc.saturating_sub(1)));
                    return Err(Error::HeapLimit { limit_bytes: self.heap.limit() * 8, trace });
                }
                Err(Fail::End(error)) => return Err(self.with_trace(error)),
                Err(Fail::Raise(_, message, irritants)) => return Err(self.raised_text(&message, &irritants)),
            }
        }
    }

    /// The instructions, one after the other. It is the table of what they mean.
    fn steps(&mut self, code: &[Instruction], state: &mut State, fuel: &mut i64) -> Result<Next, Fail> {
        let (mut pc, mut base) = (state.pc, state.base);
        let stress = self.heap.is_stressed();
        macro_rules! r {
            ($at:expr) => {
                state.stack.words[base + $at]
            };
        }
        macro_rules! jump {
            ($i:expr) => {
                pc = (pc as i64 + $i.c()) as usize
            };
        }
        macro_rules! load_state {
            () => {
                (pc, base) = (state.pc, state.base)
            };
        }
        macro_rules! save_state {
            () => {
                (state.pc, state.base) = (pc, base)
            };
        }
        // After an instruction that made an object in r[a].
        macro_rules! made {
            ($a:expr) => {
                if stress {
                    save_state!();
                    self.collect(state, base + $a + 1)?;
                }
            };
        }
        // The error becomes a call of `raise` whose value goes to r[a].
        macro_rules! fail {
            ($i:expr, $fail:expr) => {{
                save_state!();
                let fail = $fail;
                self.raise(state, $i.a(), fail)?;
                load_state!();
            }};
        }
        macro_rules! attempt {
            ($i:expr, $result:expr) => {
                match $result {
                    Ok(value) => {
                        r!($i.a()) = value;
                        made!($i.a());
                    }
                    Err(fail) => fail!($i, fail),
                }
            };
        }
        macro_rules! arithmetic {
            ($i:expr, $b:expr, $c:expr, $checked:ident, $slow:ident) => {{
                let (b, c) = ($b, $c);
                let (sum, overflow) = (b as i64).$checked(c as i64);
                if (b | c) & TAG_MASK == 0 && !overflow {
                    r!($i.a()) = sum as u64;
                } else {
                    attempt!($i, binary(&mut self.heap, &mut self.charge, b, c, Number::$slow));
                }
            }};
        }
        macro_rules! compare {
            ($i:expr, $c:expr, $op:tt, $result:expr) => {{
                let (b, c) = (r!($i.b()), $c);
                let truth = if (b | c) & TAG_MASK == 0 {
                    Ok((b as i64) $op (c as i64))
                } else {
                    compare(&self.heap, b, c).map(|order| order.is_some_and(|order| (order as i64) $op 0))
                };
                match truth {
                    Ok(truth) => ($result)(truth, $i),
                    Err(fail) => fail!($i, fail),
                }
            }};
        }
        macro_rules! put {
            () => {
                |truth: bool, i: Instruction| r!(i.a()) = boolean(truth)
            };
        }
        macro_rules! branch {
            () => {
                |truth: bool, _: Instruction| pc = fused(code, pc, truth)
            };
        }
        loop {
            let i = code[pc];
            pc += 1;
            match i.number() {
                number::Entry | number::Enter => {
                    if i.number() == number::Entry && (state.arguments != i.a() || i.b() != 0) {
                        if state.arguments < i.a() || (i.b() == 0 && state.arguments > i.a()) {
                            save_state!();
                            self.wrong_arguments(state, i)?;
                            load_state!();
                            continue;
                        }
                        self.gather_rest(state, base, i.a());
                    }
                    *fuel -= 1;
                    if base + i.index() > STACK_WORDS || *fuel <= 0 || self.heap.is_due() || stress {
                        let live = if i.number() == number::Entry { i.a() + i.b() + 1 } else { state.arguments + 1 };
                        save_state!();
                        self.safepoint(state, live, i.index())?;
                        load_state!();
                        if *fuel <= 0 {
                            self.live = base + live;
                            return Ok(Next::Return(Turn::OutOfFuel));
                        }
                    }
                }
                number::EntryOr => {
                    if state.arguments < i.a() || (i.b() == 0 && state.arguments > i.a()) {
                        jump!(i);
                    } else if i.b() != 0 {
                        self.gather_rest(state, base, i.a());
                        state.arguments = i.a() + 1;
                    }
                }
                number::Move => r!(i.a()) = r!(i.b()),
                number::MoveBlock => {
                    let from = base + i.b();
                    state.stack.words.copy_within(from..from + i.index(), base + i.a());
                }
                number::LoadInt => r!(i.a()) = fixnum(i.wide_value()),
                number::LoadImmediate => r!(i.a()) = i.wide_value() as u64,
                number::Constant => r!(i.a()) = self.constants[i.index()],
                number::Global => {
                    let value = self.globals[i.index()];
                    if value == UNSET {
                        let name = symbol(self.global_names[i.index()]);
                        fail!(i, Fail::Raise("unbound", "variable is not defined:".into(), vec![name]));
                    } else {
                        r!(i.a()) = value;
                    }
                }
                number::Define => self.globals[i.index()] = r!(i.a()),
                number::Free => r!(i.a()) = self.heap.field(r!(0), 2 + i.index()),
                number::Closure | number::ClosureOpen => {
                    let at = base + i.a();
                    let entry = fixnum(pc as i64 + i.c());
                    let closure = self.heap.make_with(Tag::Closure, &[entry], &state.stack.words[at..at + i.b()]);
                    r!(i.a()) = closure;
                    if i.number() == number::Closure {
                        made!(i.a());
                    }
                }
                number::Patch => self.heap.patch(r!(i.a()), 2 + i.index(), r!(i.b())),
                number::Cell => {
                    r!(i.a()) = self.heap.make(Tag::Cell, &[UNSET]);
                    made!(i.a());
                }
                number::CellRead => {
                    let value = cell_value(&self.heap, r!(i.b()))?;
                    if value == UNSET {
                        let name = self.constants[i.index()];
                        fail!(i, Fail::Raise("unbound", "variable is used before it has a value:".into(), vec![name]));
                    } else {
                        r!(i.a()) = value;
                    }
                }
                number::CellWrite => {
                    if cell_value(&self.heap, r!(i.a()))? == UNSET {
                        self.heap.write_cell(r!(i.a()), r!(i.b()));
                    } else {
                        let free = Instruction::new(crate::code::Op::CellWrite, i.index() as u16, 0, 0);
                        fail!(free, Fail::Raise("letrec", "letrec entered twice".into(), vec![]));
                    }
                }
                number::Jump => jump!(i),
                number::JumpFalse => {
                    if r!(i.a()) == FALSE {
                        jump!(i);
                    }
                }
                number::JumpTrue => {
                    if r!(i.a()) != FALSE {
                        jump!(i);
                    }
                }
                number::JumpNull => {
                    if r!(i.a()) == NIL {
                        jump!(i);
                    }
                }
                number::JumpNotNull => {
                    if r!(i.a()) != NIL {
                        jump!(i);
                    }
                }
                number::JumpPair => {
                    if r!(i.a()) & TAG_MASK == PAIR {
                        jump!(i);
                    }
                }
                number::JumpNotPair => {
                    if r!(i.a()) & TAG_MASK != PAIR {
                        jump!(i);
                    }
                }
                number::JumpEq => {
                    if r!(i.a()) == r!(i.b()) {
                        jump!(i);
                    }
                }
                number::JumpNotEq => {
                    if r!(i.a()) != r!(i.b()) {
                        jump!(i);
                    }
                }
                number::Loop => {
                    *fuel -= 1;
                    jump!(i);
                    if *fuel <= 0 || self.heap.is_due() || stress {
                        save_state!();
                        self.collect_if_due(state, base + i.a())?;
                        if *fuel <= 0 {
                            self.live = base + i.a();
                            return Ok(Next::Return(Turn::OutOfFuel));
                        }
                    }
                }
                number::Call => {
                    let procedure = r!(i.a());
                    state.arguments = i.b();
                    if procedure & TAG_MASK == CLOSURE {
                        state.stack.frames.push(Frame { pc: pc as u32, base: base as u32 });
                        base += i.a();
                        pc = fixnum_value(self.heap.field(procedure, 1)) as usize;
                    } else {
                        save_state!();
                        state.push(i.a());
                        self.call_object(state)?;
                        load_state!();
                    }
                }
                number::TailCall => {
                    let from = base + i.a();
                    let procedure = r!(i.a());
                    state.arguments = i.b();
                    match i.b() {
                        0 => r!(0) = procedure,
                        1 => (r!(0), r!(1)) = (procedure, r!(i.a() + 1)),
                        count => state.stack.words.copy_within(from..from + count + 1, base),
                    }
                    if procedure & TAG_MASK == CLOSURE {
                        pc = fixnum_value(self.heap.field(procedure, 1)) as usize;
                    } else {
                        save_state!();
                        self.call_object(state)?;
                        load_state!();
                    }
                }
                number::Return => {
                    let value = r!(i.b());
                    match state.stack.frames.pop() {
                        Some(frame) => {
                            r!(0) = value;
                            (pc, base) = (frame.pc as usize, frame.base as usize);
                        }
                        None => match state.stack.restore(&self.heap) {
                            Some((to, at)) => {
                                (pc, base) = (to, 0);
                                r!(at) = value;
                            }
                            None => {
                                save_state!();
                                return Ok(Next::Return(Turn::Done(value)));
                            }
                        },
                    }
                }
                number::Primitive => {
                    let at = base + i.a();
                    let result = PRIMITIVES[i.index()].run(self, &state.stack.words[at..at + i.b()]);
                    *fuel -= std::mem::take(&mut self.charge) as i64;
                    attempt!(i, result);
                }
                number::PrimitiveSpread => {
                    let mut arguments = state.stack.words[base + 1..base + i.a()].to_vec();
                    list_items(&self.heap, r!(i.a()), &mut arguments);
                    let result = PRIMITIVES[i.index()].run(self, &arguments);
                    *fuel -= std::mem::take(&mut self.charge) as i64;
                    attempt!(i, result);
                }
                number::Control => {
                    save_state!();
                    let next = self.control(state, i)?;
                    load_state!();
                    if let Some(next) = next {
                        return Ok(next);
                    }
                }
                number::Add => arithmetic!(i, r!(i.b()), r!(i.index()), overflowing_add, add),
                number::Subtract => arithmetic!(i, r!(i.b()), r!(i.index()), overflowing_sub, sub),
                number::AddConstant => arithmetic!(i, r!(i.b()), fixnum(i.c()), overflowing_add, add),
                number::Multiply => {
                    let (b, c) = (r!(i.b()), r!(i.index()));
                    let product = i128::from(b as i64 >> 3) * i128::from(c as i64 >> 3);
                    let fits = (i128::from(FIXNUM_MIN)..=i128::from(FIXNUM_MAX)).contains(&product);
                    if (b | c) & TAG_MASK == 0 && fits {
                        r!(i.a()) = fixnum(product as i64);
                    } else {
                        attempt!(i, binary(&mut self.heap, &mut self.charge, b, c, Number::mul));
                    }
                }
                number::Less => compare!(i, r!(i.index()), <, put!()),
                number::LessEqual => compare!(i, r!(i.index()), <=, put!()),
                number::NumberEqual => compare!(i, r!(i.index()), ==, put!()),
                number::LessConstant => compare!(i, fixnum(i.c()), <, put!()),
                number::LessEqualConstant => compare!(i, fixnum(i.c()), <=, put!()),
                number::GreaterConstant => compare!(i, fixnum(i.c()), >, put!()),
                number::GreaterEqualConstant => compare!(i, fixnum(i.c()), >=, put!()),
                number::NumberEqualConstant => compare!(i, fixnum(i.c()), ==, put!()),
                number::LessJump => compare!(i, r!(i.index()), <, branch!()),
                number::LessEqualJump => compare!(i, r!(i.index()), <=, branch!()),
                number::NumberEqualJump => compare!(i, r!(i.index()), ==, branch!()),
                number::LessConstantJump => compare!(i, fixnum(i.c()), <, branch!()),
                number::LessEqualConstantJump => compare!(i, fixnum(i.c()), <=, branch!()),
                number::GreaterConstantJump => compare!(i, fixnum(i.c()), >, branch!()),
                number::GreaterEqualConstantJump => compare!(i, fixnum(i.c()), >=, branch!()),
                number::NumberEqualConstantJump => compare!(i, fixnum(i.c()), ==, branch!()),
                number::Car | number::Cdr => {
                    let pair = r!(i.b());
                    if pair & TAG_MASK == PAIR {
                        let field = usize::from(i.number() == number::Cdr);
                        r!(i.a()) = self.heap.field(pair, field);
                    } else {
                        fail!(i, wrong_type("a pair", pair));
                    }
                }
                number::Cons => {
                    r!(i.a()) = self.heap.cons(r!(i.b()), r!(i.index()));
                    made!(i.a());
                }
                number::IsNull => r!(i.a()) = boolean(r!(i.b()) == NIL),
                number::IsPair => r!(i.a()) = boolean(r!(i.b()) & TAG_MASK == PAIR),
                number::Not => r!(i.a()) = boolean(r!(i.b()) == FALSE),
                number::Eq => r!(i.a()) = boolean(r!(i.b()) == r!(i.index())),
                number::VectorRef => attempt!(i, vector_ref(&self.heap, r!(i.b()), r!(i.index()))),
                _ => unreachable!("code is checked before it is loaded"),
            }
        }
    }

    /// Collects the arguments past the first `parameters` into a list.
    fn gather_rest(&mut self, state: &mut State, base: usize, parameters: usize) {
        let first = base + 1 + parameters;
        let end = base + 1 + state.arguments;
        let list = self.heap.list(&state.stack.words[first.min(end)..end], NIL);
        state.stack.words[first] = list;
    }

    /// At the start of a procedure with `live` registers that needs `registers`.
    fn safepoint(&mut self, state: &mut State, live: usize, registers: usize) -> Result<(), Fail> {
        if state.base + registers > STACK_WORDS {
            state.stack.move_to_heap(&mut self.heap, state.base);
            state.stack.sink(state.base, live);
            state.base = 0;
        }
        self.collect_if_due(state, state.base + live)
    }

    fn collect_if_due(&mut self, state: &mut State, live: usize) -> Result<(), Fail> {
        if self.heap.is_due() || self.heap.is_stressed() { self.collect(state, live) } else { Ok(()) }
    }

    fn collect(&mut self, state: &mut State, live: usize) -> Result<(), Fail> {
        let mut registers = [state.stack.kont, self.marks];
        let stack = &mut state.stack.words[..live];
        let roots: &mut [&mut [Word]] = &mut [stack, &mut registers, &mut self.globals, &mut self.constants];
        let result = self.heap.collect(roots, false);
        [state.stack.kont, self.marks] = registers;
        Ok(result?)
    }

    /// Makes an error the call of `raise` at register `a` of the running frame.
    fn raise(&mut self, state: &mut State, a: usize, fail: Fail) -> Result<(), Fail> {
        let Fail::Raise(kind, message, irritants) = fail else { return Err(fail) };
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
        state.pc = fixnum_value(self.heap.field(raise, 1)) as usize;
        Ok(())
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
        let name = self.index.place(state.pc - 1).map(|place| place.procedure).unwrap_or_default();
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
        state.pc = fixnum_value(self.heap.field(callee, 1)) as usize;
        Ok(())
    }

    /// Calls what the frame at `base` holds, in place of the procedure that runs.
    fn dispatch(&mut self, state: &mut State) -> Result<(), Fail> {
        let procedure = state.stack.words[state.base];
        if procedure & TAG_MASK == CLOSURE {
            state.pc = fixnum_value(self.heap.field(procedure, 1)) as usize;
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
            Control::Uncaught => {
                let object = argument(state, 1);
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
    while list & TAG_MASK == PAIR && items.len() <= heap.len() {
        items.push(heap.car(list));
        list = heap.cdr(list);
    }
    list == NIL
}

/// What a cell holds. Code that was compiled here has a cell there; a frame that came as bytes may not.
fn cell_value(heap: &Heap, cell: Word) -> Result<Word, Fail> {
    match heap.tag(cell) {
        Some(Tag::Cell) => Ok(heap.field(cell, 1)),
        _ => Err(Fail::Raise("type", "expected a cell, got".into(), vec![cell])),
    }
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

fn binary(heap: &mut Heap, charge: &mut u64, b: Word, c: Word, operation: Operation) -> Result<Word, Fail> {
    if let (Some(Tag::Flonum), Some(Tag::Flonum)) = (heap.tag(b), heap.tag(c)) {
        let (b, c) = (f64::from_bits(heap.field(b, 1)), f64::from_bits(heap.field(c, 1)));
        let result = operation(&Number::Flo(b), &Number::Flo(c)).unwrap_or(Number::Flo(f64::NAN));
        return Ok(value::of_number(heap, &result));
    }
    let left = value::number(heap, b).ok_or_else(|| wrong_type("a number", b))?;
    let right = value::number(heap, c).ok_or_else(|| wrong_type("a number", c))?;
    *charge += ((left.bits() + right.bits()) / 4096) as u64;
    let result = operation(&left, &right).map_err(|error| Fail::Raise("number", error.to_string(), vec![]))?;
    heap.reserve(result.bits() / 32)?;
    Ok(value::of_number(heap, &result))
}

fn compare(heap: &Heap, b: Word, c: Word) -> Result<Option<std::cmp::Ordering>, Fail> {
    let left = value::number(heap, b).ok_or_else(|| wrong_type("a number", b))?;
    let right = value::number(heap, c).ok_or_else(|| wrong_type("a number", c))?;
    Ok(left.compare(&right))
}

/// The word of a truth value, for primitives.
pub(super) const fn truth(value: bool) -> Word {
    if value { TRUE } else { FALSE }
}
