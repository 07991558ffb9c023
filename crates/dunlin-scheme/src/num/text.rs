//! Numbers as text, in any radix from 2 to 36.

use dashu_int::IBig;
use dashu_int::ops::Abs;

use super::Number;

/// A literal of more characters is refused: to read its digits costs more than their number.
const LITERAL_MAX: usize = 1 << 20;

impl Number {
    /// Reads a number as R7RS writes it, with prefixes such as `#x` and `#e`. `None` if it is no number.
    pub(crate) fn parse(text: &str, radix: u32) -> Option<Self> {
        let (mut text, mut radix, mut exact) = (text, radix, None);
        while let Some(rest) = text.strip_prefix('#') {
            match rest.as_bytes().first()?.to_ascii_lowercase() {
                b'x' => radix = 16,
                b'd' => radix = 10,
                b'o' => radix = 8,
                b'b' => radix = 2,
                b'e' if exact.is_none() => exact = Some(true),
                b'i' if exact.is_none() => exact = Some(false),
                _ => return None,
            }
            text = rest.get(1..)?;
        }
        if text.len() > LITERAL_MAX || !text.is_ascii() {
            return None;
        }
        match exact {
            Some(true) => real(text, radix, true)?.exact().ok(),
            Some(false) => Some(Self::Flo(real(text, radix, false)?.to_f64())),
            None => real(text, radix, false),
        }
    }

    /// The number in a radix, as `number->string` gives it.
    pub(crate) fn to_text(&self, radix: u32) -> String {
        match self {
            Self::Fix(value) if radix == 10 => value.to_string(),
            Self::Fix(value) => IBig::from(*value).in_radix(radix as u8).to_string(),
            Self::Big(value) => value.in_radix(radix as u8).to_string(),
            Self::Ratio(n, d) => format!("{}/{}", n.in_radix(radix as u8), d.in_radix(radix as u8)),
            Self::Flo(value) => flonum_text(*value),
        }
    }
}

fn flonum_text(value: f64) -> String {
    if value.is_nan() {
        return "+nan.0".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+inf.0" } else { "-inf.0" }.into();
    }
    let size = value.abs();
    if size != 0.0 && !(1e-7..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').expect("it was asked for");
        let point = if mantissa.contains('.') { "" } else { ".0" };
        let plus = if exponent.starts_with('-') { "" } else { "+" };
        return format!("{mantissa}{point}e{plus}{exponent}");
    }
    let text = format!("{value}");
    if text.contains('.') { text } else { text + ".0" }
}

/// A real without prefixes. `exact_decimal`: decimals keep all their digits, as `#e` asks.
fn real(text: &str, radix: u32, exact_decimal: bool) -> Option<Number> {
    match text.to_ascii_lowercase().as_str() {
        "+inf.0" => return Some(Number::Flo(f64::INFINITY)),
        "-inf.0" => return Some(Number::Flo(f64::NEG_INFINITY)),
        "+nan.0" | "-nan.0" => return Some(Number::Flo(f64::NAN)),
        _ => {}
    }
    if let Some((numerator, denominator)) = text.split_once('/') {
        let (n, d) = (integer(numerator, radix)?, unsigned(denominator, radix)?);
        return if d == IBig::ZERO { None } else { Some(Number::ratio(n, d)) };
    }
    if let Some(value) = integer(text, radix) {
        return Some(Number::from_big(value));
    }
    if radix == 10 { decimal(text, exact_decimal) } else { None }
}

fn integer(text: &str, radix: u32) -> Option<IBig> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let value = unsigned(digits, radix)?;
    Some(if negative { -value } else { value })
}

fn unsigned(digits: &str, radix: u32) -> Option<IBig> {
    if digits.is_empty() || !digits.bytes().all(|byte| (byte as char).is_digit(radix)) {
        return None;
    }
    IBig::from_str_radix(digits, radix).ok().map(Abs::abs)
}

fn decimal(text: &str, exact: bool) -> Option<Number> {
    // The other letters once told the precision.
    let (mantissa, exponent) = match text.find(['e', 'E', 's', 'S', 'f', 'F', 'd', 'D', 'l', 'L']) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let digits = mantissa.strip_prefix(['+', '-']).unwrap_or(mantissa);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    if !exact {
        return format!("{mantissa}e{exponent}").parse().ok().map(Number::Flo);
    }
    // Beyond this an exact power of ten would take more memory than a number may.
    if exponent.unsigned_abs() > 100_000 {
        return None;
    }
    let digits = integer(&format!("{whole}{fraction}"), 10)?;
    let digits = if mantissa.starts_with('-') { -digits } else { digits };
    let scale = exponent - fraction.len() as i64;
    let power = IBig::from(10).pow(scale.unsigned_abs() as usize);
    Some(if scale < 0 { Number::ratio(digits, power) } else { Number::from_big(digits * power) })
}

fn exponent(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // More digits than these are zero or infinity anyway.
    let size: i64 = digits.trim_start_matches('0').get(..6).unwrap_or(digits).parse().ok()?;
    Some(if text.starts_with('-') { -size } else { size })
}
