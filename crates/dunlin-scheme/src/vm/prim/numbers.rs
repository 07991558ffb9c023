//! Numbers.

use super::super::fail::{Fail, Result, wrong_type};
use super::super::long::{compute_integer_root, compute_number, compute_pair, compute_square_root, compute_text};
use super::super::machine::Machine;
use super::super::run::truth;
use super::super::slow::{Cost, linear_cost, product_cost};
use super::{ANY, Row};
use crate::heap::Tag;
use crate::heap::word::{NIL, Word, fixnum, fixnum_value, is_fixnum};
use crate::num::{NumError, Number, Pair, RatioRounding, Round, is_long, is_long_text};
use crate::value;

pub(super) const TABLE: &[Row] = &[
    ("number?", 1, 1, |m, a| Ok(truth(value::number(&m.heap, a[0]).is_some()))),
    ("rational?", 1, 1, |m, a| {
        Ok(truth(value::number(&m.heap, a[0]).is_some_and(|n| n.to_f64().is_finite() || n.is_exact())))
    }),
    ("integer?", 1, 1, |m, a| Ok(truth(value::number(&m.heap, a[0]).is_some_and(|n| n.is_integer())))),
    ("exact?", 1, 1, |m, a| Ok(truth(number(m, a[0])?.is_exact()))),
    ("%finite?", 1, 1, |m, a| Ok(truth(number(m, a[0])?.is_exact() || number(m, a[0])?.to_f64().is_finite()))),
    ("nan?", 1, 1, |m, a| Ok(truth(matches!(number(m, a[0])?, Number::Flo(value) if value.is_nan())))),
    ("=", 1, ANY, |m, a| ordered(m, a, Pair::Equal)),
    ("<", 1, ANY, |m, a| ordered(m, a, Pair::Less)),
    (">", 1, ANY, |m, a| ordered(m, a, Pair::Greater)),
    ("<=", 1, ANY, |m, a| ordered(m, a, Pair::LessEqual)),
    (">=", 1, ANY, |m, a| ordered(m, a, Pair::GreaterEqual)),
    ("%sign", 1, 1, |m, a| Ok(crate::heap::word::fixnum(i64::from(number(m, a[0])?.sign())))),
    ("+", 0, ANY, |m, a| sum(m, a, Number::Fix(0), linear_cost, Number::add, Pair::Add)),
    ("*", 0, ANY, |m, a| sum(m, a, Number::Fix(1), product_cost, Number::mul, Pair::Multiply)),
    ("-", 1, ANY, |m, a| match a {
        [only] => match number(m, *only)? {
            Number::Flo(value) => put(m, Ok(Number::Flo(-value))),
            value => put(m, Number::Fix(0).sub(&value)),
        },
        _ => reduce(m, a, linear_cost, Number::sub, Pair::Subtract),
    }),
    ("/", 1, ANY, |m, a| match a {
        [only] => {
            let value = number(m, *only)?;
            put(m, Number::Fix(1).div(&value))
        }
        _ => reduce(m, a, product_cost, Number::div, Pair::Divide),
    }),
    ("floor/", 2, 2, |m, a| both(m, a, Round::Floor, Pair::FloorBoth)),
    ("truncate/", 2, 2, |m, a| both(m, a, Round::Truncate, Pair::TruncateBoth)),
    ("floor-quotient", 2, 2, |m, a| divide(m, a, Round::Floor, Pair::FloorQuotient)),
    ("floor-remainder", 2, 2, |m, a| divide(m, a, Round::Floor, Pair::FloorRemainder)),
    ("truncate-quotient", 2, 2, |m, a| divide(m, a, Round::Truncate, Pair::TruncateQuotient)),
    ("truncate-remainder", 2, 2, |m, a| divide(m, a, Round::Truncate, Pair::TruncateRemainder)),
    ("%gcd", 2, 2, |m, a| reduce(m, a, product_cost, Number::gcd, Pair::Gcd)),
    ("numerator", 1, 1, |m, a| {
        let parts = number(m, a[0])?.fraction().map(|(numerator, _)| numerator);
        put(m, parts)
    }),
    ("denominator", 1, 1, |m, a| {
        let parts = number(m, a[0])?.fraction().map(|(_, denominator)| denominator);
        put(m, parts)
    }),
    ("floor", 1, 1, |m, a| rounded(m, a, f64::floor, RatioRounding::Floor)),
    ("ceiling", 1, 1, |m, a| rounded(m, a, f64::ceil, RatioRounding::Ceiling)),
    ("truncate", 1, 1, |m, a| rounded(m, a, f64::trunc, RatioRounding::Truncate)),
    ("round", 1, 1, |m, a| rounded(m, a, f64::round_ties_even, RatioRounding::Even)),
    ("exp", 1, 1, |m, a| real(m, a, f64::exp, 0)),
    ("%log", 1, 1, |m, a| real(m, a, f64::ln, 1)),
    ("sin", 1, 1, |m, a| real(m, a, f64::sin, 0)),
    ("cos", 1, 1, |m, a| real(m, a, f64::cos, 0)),
    ("tan", 1, 1, |m, a| real(m, a, f64::tan, 0)),
    ("asin", 1, 1, |m, a| real(m, a, f64::asin, 0)),
    ("acos", 1, 1, |m, a| real(m, a, f64::acos, 1)),
    ("%atan", 1, 1, |m, a| real(m, a, f64::atan, 0)),
    ("%atan2", 2, 2, |m, a| {
        let value = number(m, a[0])?.to_f64().atan2(number(m, a[1])?.to_f64());
        put(m, Ok(Number::Flo(value)))
    }),
    ("sqrt", 1, 1, |m, a| {
        let value = number(m, a[0])?;
        if is_long(&value) {
            return Err(compute_square_root(a[0]));
        }
        put(m, Ok(value.sqrt()))
    }),
    ("exact-integer-sqrt", 1, 1, |m, a| {
        let value = number(m, a[0])?;
        if is_long(&value) {
            return Err(compute_integer_root(a[0]));
        }
        let (root, rest) = value.exact_integer_sqrt().map_err(fail)?;
        let both = [value::of_number(&mut m.heap, &root), value::of_number(&mut m.heap, &rest)];
        Ok(m.heap.make(Tag::Values, &both))
    }),
    ("%bit-length", 1, 1, |m, a| Ok(crate::heap::word::fixnum(number(m, a[0])?.bits() as i64))),
    ("%expt", 2, 2, |m, a| {
        let (base, power) = (number(m, a[0])?, number(m, a[1])?);
        m.charge += (base.bits() as u64).saturating_mul(power.to_f64().abs() as u64) / 4096;
        put(m, base.expt(&power))
    }),
    ("exact", 1, 1, |m, a| {
        let value = number(m, a[0])?.exact();
        put(m, value)
    }),
    ("inexact", 1, 1, |m, a| {
        let value = number(m, a[0])?.to_f64();
        put(m, Ok(Number::Flo(value)))
    }),
    ("number->string", 1, 2, |m, a| {
        let radix = radix(a.get(1))?;
        let value = number(m, a[0])?;
        if is_long(&value) {
            return Err(compute_text(a[0], radix));
        }
        m.charge += value.bits() as u64 / 64;
        let text = value.to_text(radix);
        Ok(m.heap.string(&text))
    }),
    ("string->number", 1, 2, |m, a| {
        let radix = radix(a.get(1))?;
        let text = m.text_argument(a[0])?;
        if is_long_text(&text) {
            return Err(compute_number(a[0], radix));
        }
        m.charge += text.len() as u64 / 16;
        match Number::parse(&text, radix) {
            Some(value) => put(m, Ok(value)),
            None => Ok(truth(false)),
        }
    }),
    ("arithmetic-shift", 2, 2, |m, a| {
        if !is_fixnum(a[1]) {
            return Err(wrong_type("an integer", a[1]));
        }
        let value = number(m, a[0])?.shift(fixnum_value(a[1]));
        put(m, value)
    }),
    ("bitwise-and", 0, ANY, |m, a| fold(m, a, Number::Fix(-1), linear_cost, |a, b| a.bitwise(b, |a, b| a & b))),
    ("bitwise-or", 0, ANY, |m, a| fold(m, a, Number::Fix(0), linear_cost, |a, b| a.bitwise(b, |a, b| a | b))),
    ("bitwise-xor", 0, ANY, |m, a| fold(m, a, Number::Fix(0), linear_cost, |a, b| a.bitwise(b, |a, b| a ^ b))),
];

fn number(machine: &Machine, word: Word) -> Result<Number> {
    value::number(&machine.heap, word).ok_or_else(|| wrong_type("a number", word))
}

fn fail(error: NumError) -> Fail {
    Fail::Raise("number", error.to_string(), vec![])
}

fn put(machine: &mut Machine, result: std::result::Result<Number, NumError>) -> Result {
    let value = result.map_err(fail)?;
    machine.charge += value.bits() as u64 / 4096;
    machine.heap.reserve(value.bits() / 32)?;
    Ok(value::of_number(&mut machine.heap, &value))
}

fn ordered(machine: &mut Machine, arguments: &[Word], pair: Pair) -> Result {
    let mut all = true;
    let mut last = number(machine, arguments[0])?;
    for word in &arguments[1..] {
        let next = number(machine, *word)?;
        if pair.is_long(&last, &next) {
            // The comparison ends where one does not hold; what is no number is an error all the same.
            arguments.iter().try_for_each(|word| number(machine, *word).map(drop))?;
            let all = machine.heap.list(arguments, NIL);
            return Err(Fail::Call("%long-ordered", vec![fixnum(pair as i64), all]));
        }
        all &= last.compare(&next).zip(pair.holds()).is_some_and(|(order, holds)| holds(order));
        last = next;
    }
    Ok(truth(all))
}

type Operation = fn(&Number, &Number) -> std::result::Result<Number, NumError>;

fn fold(machine: &mut Machine, arguments: &[Word], first: Number, cost: Cost, operation: Operation) -> Result {
    let mut total = first;
    for word in arguments {
        let next = number(machine, *word)?;
        machine.charge += cost(&total, &next);
        total = operation(&total, &next).map_err(fail)?;
    }
    put(machine, Ok(total))
}

/// A fold that becomes a call of a procedure if a step would take long: that one can give way between steps.
fn sum(
    machine: &mut Machine,
    arguments: &[Word],
    first: Number,
    cost: Cost,
    operation: Operation,
    pair: Pair,
) -> Result {
    let mut total = first;
    for word in arguments {
        let next = number(machine, *word)?;
        // A product that is long is the instruction's, which splits it.
        if pair.is_long(&total, &next) || (pair == Pair::Multiply && Pair::TruncateQuotient.is_long(&total, &next)) {
            let all = machine.heap.list(arguments, NIL);
            return Err(Fail::Call("%long-sum", vec![fixnum(pair as i64), all]));
        }
        machine.charge += cost(&total, &next);
        total = operation(&total, &next).map_err(fail)?;
    }
    put(machine, Ok(total))
}

fn reduce(machine: &mut Machine, arguments: &[Word], cost: Cost, operation: Operation, pair: Pair) -> Result {
    let first = number(machine, arguments[0])?;
    if let [left, right] = *arguments
        && pair.is_long(&first, &number(machine, right)?)
    {
        return Err(compute_pair(pair, left, right));
    }
    let mut total = first;
    for word in &arguments[1..] {
        let next = number(machine, *word)?;
        if pair.is_long(&total, &next) {
            let all = machine.heap.list(arguments, NIL);
            return Err(Fail::Call("%long-sum", vec![fixnum(pair as i64), all]));
        }
        machine.charge += cost(&total, &next);
        total = operation(&total, &next).map_err(fail)?;
    }
    put(machine, Ok(total))
}

fn both(machine: &mut Machine, arguments: &[Word], round: Round, pair: Pair) -> Result {
    let (left, right) = (number(machine, arguments[0])?, number(machine, arguments[1])?);
    if pair.is_long(&left, &right) {
        return Err(compute_pair(pair, arguments[0], arguments[1]));
    }
    machine.charge += product_cost(&left, &right);
    let (quotient, rest) = left.divide(&right, round).map_err(fail)?;
    let both = [value::of_number(&mut machine.heap, &quotient), value::of_number(&mut machine.heap, &rest)];
    Ok(machine.heap.make(Tag::Values, &both))
}

fn divide(machine: &mut Machine, arguments: &[Word], round: Round, pair: Pair) -> Result {
    let quotient = matches!(pair, Pair::FloorQuotient | Pair::TruncateQuotient);
    if let [a, b] = *arguments
        && is_fixnum(a)
        && is_fixnum(b)
        && fixnum_value(b) != 0
    {
        let (a, b) = (fixnum_value(a), fixnum_value(b));
        let (mut down, mut rest) = (a / b, a % b);
        if round == Round::Floor && rest != 0 && (rest < 0) != (b < 0) {
            down -= 1;
            rest += b;
        }
        return put(machine, Ok(Number::from_i64(if quotient { down } else { rest })));
    }
    let (left, right) = (number(machine, arguments[0])?, number(machine, arguments[1])?);
    if pair.is_long(&left, &right) {
        return Err(compute_pair(pair, arguments[0], arguments[1]));
    }
    machine.charge += product_cost(&left, &right);
    let divided = left.divide(&right, round).map_err(fail)?;
    put(machine, Ok(if quotient { divided.0 } else { divided.1 }))
}

fn rounded(machine: &mut Machine, arguments: &[Word], flo: fn(f64) -> f64, ratio: RatioRounding) -> Result {
    let value = number(machine, arguments[0])?.round_by(flo, ratio);
    put(machine, Ok(value))
}

/// A function of reals. At the exact argument `exact_at` its value is an exact zero, or one for `exp`.
fn real(machine: &mut Machine, arguments: &[Word], function: fn(f64) -> f64, exact_at: i64) -> Result {
    let argument = number(machine, arguments[0])?;
    let value = function(argument.to_f64());
    if argument == Number::Fix(exact_at) && value.fract() == 0.0 {
        return put(machine, Ok(Number::from_i64(value as i64)));
    }
    put(machine, Ok(Number::Flo(value)))
}

fn radix(argument: Option<&Word>) -> Result<u32> {
    match argument {
        None => Ok(10),
        Some(word) if is_fixnum(*word) && (2..=36).contains(&fixnum_value(*word)) => Ok(fixnum_value(*word) as u32),
        Some(word) => Err(wrong_type("a radix, 2 to 36", *word)),
    }
}
