//! Arithmetic of the tower.

use std::cmp::Ordering;

use dashu_int::ops::{Abs, BitTest, DivRem, Gcd, SquareRoot, UnsignedAbs};
use dashu_int::{IBig, UBig};

use super::{BITS_MAX, FIXNUM_MAX, FIXNUM_MIN, Number};

/// Why an operation has no result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NumError {
    /// The divisor is an exact zero.
    #[error("division by zero")]
    DivisionByZero,
    /// An argument is no integer.
    #[error("expected an integer")]
    NotInteger,
    /// Infinity and not-a-number have no exact value.
    #[error("no exact value")]
    NotFinite,
    /// The result would have more than 2^26 bits.
    #[error("number too large")]
    TooLarge,
}

type Result<T = Number> = std::result::Result<T, NumError>;

/// How a division of integers rounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Round {
    /// Toward minus infinity.
    Floor,
    /// Toward zero.
    Truncate,
}

impl Number {
    /// The number of a big integer.
    pub(crate) fn from_big(value: IBig) -> Self {
        match i64::try_from(&value) {
            Ok(small) if (FIXNUM_MIN..=FIXNUM_MAX).contains(&small) => Self::Fix(small),
            _ => Self::Big(value),
        }
    }

    /// The number of an integer of 64 bits.
    pub(crate) fn from_i64(value: i64) -> Self {
        if (FIXNUM_MIN..=FIXNUM_MAX).contains(&value) { Self::Fix(value) } else { Self::Big(value.into()) }
    }

    /// The quotient of two integers, in lowest terms. `d` must not be zero.
    pub(crate) fn ratio(n: IBig, d: IBig) -> Self {
        let (n, d) = if d < IBig::ZERO { (-n, -d) } else { (n, d) };
        let divisor = IBig::from((&n).gcd(&d));
        let (n, d) = (n / &divisor, d / &divisor);
        if d == IBig::ONE { Self::from_big(n) } else { Self::Ratio(n, d) }
    }

    /// Whether it is no flonum.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(self, Self::Flo(_))
    }

    /// Whether it has no fraction.
    pub(crate) fn is_integer(&self) -> bool {
        match self {
            Self::Fix(_) | Self::Big(_) => true,
            Self::Ratio(..) => false,
            Self::Flo(value) => value.is_finite() && value.fract() == 0.0,
        }
    }

    /// -1, 0 or 1; not-a-number counts as 0.
    pub(crate) fn sign(&self) -> i32 {
        match self {
            Self::Fix(value) => value.signum() as i32,
            Self::Big(value) | Self::Ratio(value, _) => {
                if *value < IBig::ZERO {
                    -1
                } else {
                    1
                }
            }
            Self::Flo(value) => i32::from(*value > 0.0) - i32::from(*value < 0.0),
        }
    }

    fn big(&self) -> Option<IBig> {
        match self {
            Self::Fix(value) => Some((*value).into()),
            Self::Big(value) => Some(value.clone()),
            _ => None,
        }
    }

    fn parts(&self) -> Option<(IBig, IBig)> {
        match self {
            Self::Ratio(n, d) => Some((n.clone(), d.clone())),
            _ => Some((self.big()?, IBig::ONE)),
        }
    }

    /// The nearest flonum.
    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            Self::Fix(value) => *value as f64,
            Self::Big(value) => value.to_f64().value(),
            Self::Ratio(n, d) => ratio_to_f64(n, d),
            Self::Flo(value) => *value,
        }
    }

    /// The exact number of the same value.
    ///
    /// # Errors
    /// [`NumError::NotFinite`] for infinity and not-a-number.
    pub(crate) fn exact(self) -> Result {
        let Self::Flo(value) = self else { return Ok(self) };
        if !value.is_finite() {
            return Err(NumError::NotFinite);
        }
        let bits = value.to_bits();
        let biased = ((bits >> 52) & 0x7ff) as i64;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, exponent) = if biased == 0 { (fraction, -1074) } else { (fraction | (1 << 52), biased - 1075) };
        let n = IBig::from(if value < 0.0 { -(mantissa as i64) } else { mantissa as i64 });
        let power = IBig::ONE << exponent.unsigned_abs() as usize;
        Ok(if exponent < 0 { Self::ratio(n, power) } else { Self::from_big(n * power) })
    }

    /// The bits of its parts, for limits and costs.
    pub(crate) fn bits(&self) -> usize {
        match self {
            Self::Fix(_) | Self::Flo(_) => 64,
            Self::Big(value) => value.bit_len(),
            Self::Ratio(n, d) => n.bit_len() + d.bit_len(),
        }
    }

    /// The sum.
    ///
    /// # Errors
    /// [`NumError::TooLarge`]
    pub(crate) fn add(&self, other: &Self) -> Result {
        self.linear(other, |a, b| a + b, |a, b| a + b)
    }

    /// The difference.
    ///
    /// # Errors
    /// [`NumError::TooLarge`]
    pub(crate) fn sub(&self, other: &Self) -> Result {
        self.linear(other, |a, b| a - b, |a, b| a - b)
    }

    fn linear(&self, other: &Self, big: fn(IBig, IBig) -> IBig, flo: fn(f64, f64) -> f64) -> Result {
        if let (Some(a), Some(b)) = (self.big(), other.big()) {
            return Ok(Self::from_big(big(a, b)));
        }
        let (Some((an, ad)), Some((bn, bd))) = (self.parts(), other.parts()) else {
            return Ok(Self::Flo(flo(self.to_f64(), other.to_f64())));
        };
        if self.bits() + other.bits() > BITS_MAX {
            return Err(NumError::TooLarge);
        }
        Ok(Self::ratio(big(an * &bd, bn * &ad), ad * bd))
    }

    /// The product.
    ///
    /// # Errors
    /// [`NumError::TooLarge`]
    pub(crate) fn mul(&self, other: &Self) -> Result {
        let (Some((an, ad)), Some((bn, bd))) = (self.parts(), other.parts()) else {
            return Ok(Self::Flo(self.to_f64() * other.to_f64()));
        };
        if self.bits() + other.bits() > BITS_MAX {
            return Err(NumError::TooLarge);
        }
        Ok(Self::ratio(an * bn, ad * bd))
    }

    /// The quotient.
    ///
    /// # Errors
    /// [`NumError::DivisionByZero`], [`NumError::TooLarge`]
    pub(crate) fn div(&self, other: &Self) -> Result {
        let (Some((an, ad)), Some((bn, bd))) = (self.parts(), other.parts()) else {
            if *other == Self::Fix(0) {
                return Err(NumError::DivisionByZero);
            }
            return Ok(Self::Flo(self.to_f64() / other.to_f64()));
        };
        if bn == IBig::ZERO {
            return Err(NumError::DivisionByZero);
        }
        if self.bits() + other.bits() > BITS_MAX {
            return Err(NumError::TooLarge);
        }
        Ok(Self::ratio(an * bd, ad * bn))
    }

    /// Quotient and remainder of integers.
    ///
    /// # Errors
    /// [`NumError::DivisionByZero`], [`NumError::NotInteger`]
    pub(crate) fn divide(&self, other: &Self, round: Round) -> Result<(Self, Self)> {
        if !self.is_integer() || !other.is_integer() {
            return Err(NumError::NotInteger);
        }
        if other.sign() == 0 {
            return Err(NumError::DivisionByZero);
        }
        if let (Self::Fix(a), Self::Fix(b)) = (self, other) {
            let (mut quotient, mut remainder) = (a / b, a % b);
            if round == Round::Floor && remainder != 0 && (remainder < 0) != (*b < 0) {
                quotient -= 1;
                remainder += b;
            }
            return Ok((Self::from_i64(quotient), Self::from_i64(remainder)));
        }
        if let (Some(a), Some(b)) = (self.big(), other.big()) {
            let (mut quotient, mut remainder) = (&a).div_rem(&b);
            if round == Round::Floor && remainder != IBig::ZERO && (remainder < IBig::ZERO) != (b < IBig::ZERO) {
                quotient -= IBig::ONE;
                remainder += &b;
            }
            return Ok((Self::from_big(quotient), Self::from_big(remainder)));
        }
        let (a, b) = (self.to_f64(), other.to_f64());
        let quotient = if round == Round::Floor { (a / b).floor() } else { (a / b).trunc() };
        let rest = a % b;
        let rest = if round == Round::Floor && rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest };
        Ok((Self::Flo(quotient), Self::Flo(rest)))
    }

    /// How two numbers compare, exactly; `None` where one is not-a-number.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Flo(a), Self::Flo(b)) => a.partial_cmp(b),
            (Self::Flo(a), _) if !a.is_finite() => a.partial_cmp(&0.0),
            (_, Self::Flo(b)) if !b.is_finite() => 0.0.partial_cmp(b),
            _ => {
                let (an, ad) = self.clone().exact().ok()?.parts()?;
                let (bn, bd) = other.clone().exact().ok()?.parts()?;
                Some((an * bd).cmp(&(bn * ad)))
            }
        }
    }

    /// The greatest common divisor of two integers.
    ///
    /// # Errors
    /// [`NumError::NotInteger`]
    pub(crate) fn gcd(&self, other: &Self) -> Result {
        if !self.is_integer() || !other.is_integer() {
            return Err(NumError::NotInteger);
        }
        let exact = self.is_exact() && other.is_exact();
        let (a, b) = (self.clone().exact()?, other.clone().exact()?);
        let (Some(a), Some(b)) = (a.big(), b.big()) else { return Err(NumError::NotInteger) };
        let value = match (a == IBig::ZERO, b == IBig::ZERO) {
            (true, _) => b.abs(),
            (_, true) => a.abs(),
            _ => IBig::from((&a).gcd(&b)),
        };
        let value = Self::from_big(value);
        Ok(if exact { value } else { Self::Flo(value.to_f64()) })
    }

    /// The largest integer whose square is at most this one, and what is left.
    ///
    /// # Errors
    /// [`NumError::NotInteger`] also for negative integers.
    pub(crate) fn exact_integer_sqrt(&self) -> Result<(Self, Self)> {
        let value = self.big().filter(|value| *value >= IBig::ZERO).ok_or(NumError::NotInteger)?;
        let root = IBig::from(value.clone().unsigned_abs().sqrt());
        let rest = value - &root * &root;
        Ok((Self::from_big(root), Self::from_big(rest)))
    }

    /// The square root: exact where there is an exact one; not-a-number for negative numbers.
    pub(crate) fn sqrt(&self) -> Self {
        if let Some((n, d)) = self.parts()
            && n >= IBig::ZERO
        {
            let (n_root, d_root): (UBig, UBig) = (n.clone().unsigned_abs().sqrt(), d.clone().unsigned_abs().sqrt());
            let (n_root, d_root) = (IBig::from(n_root), IBig::from(d_root));
            if &n_root * &n_root == n && &d_root * &d_root == d {
                return Self::ratio(n_root, d_root);
            }
        }
        Self::Flo(self.to_f64().sqrt())
    }

    /// This number to a power.
    ///
    /// # Errors
    /// [`NumError::TooLarge`], [`NumError::DivisionByZero`]
    pub(crate) fn expt(&self, power: &Self) -> Result {
        if let Self::Fix(exponent) = power
            && let Some((n, d)) = self.parts()
        {
            let size = exponent.unsigned_abs() as usize;
            if n == IBig::ZERO && *exponent < 0 {
                return Err(NumError::DivisionByZero);
            }
            let trivial = d == IBig::ONE && n.clone().abs() <= IBig::ONE;
            if !trivial && (n.bit_len() + d.bit_len()).saturating_mul(size) > BITS_MAX {
                return Err(NumError::TooLarge);
            }
            let size = if trivial { size & 1 | (size & 2) } else { size };
            let (n, d) = (n.pow(size), d.pow(size));
            return Ok(if *exponent < 0 { Self::ratio(d, n) } else { Self::ratio(n, d) });
        }
        if let (Self::Big(exponent), Some((n, d))) = (power, self.parts()) {
            // Only of 0, 1 and -1 is such a power small.
            return match (d == IBig::ONE).then(|| i8::try_from(&n)) {
                Some(Ok(0)) if *exponent < IBig::ZERO => Err(NumError::DivisionByZero),
                Some(Ok(base @ (0 | 1))) => Ok(Self::Fix(base.into())),
                Some(Ok(-1)) => Ok(Self::Fix(if exponent % IBig::from(2) == IBig::ZERO { 1 } else { -1 })),
                _ => Err(NumError::TooLarge),
            };
        }
        Ok(match (self, power) {
            (Self::Flo(base), Self::Fix(exponent)) if i32::try_from(*exponent).is_ok() => {
                Self::Flo(base.powi(*exponent as i32))
            }
            _ => Self::Flo(self.to_f64().powf(power.to_f64())),
        })
    }

    /// Rounded to an integer by one of four rules.
    pub(crate) fn round_by(&self, flo: fn(f64) -> f64, ratio: RatioRounding) -> Self {
        match self {
            Self::Fix(_) | Self::Big(_) => self.clone(),
            Self::Flo(value) => Self::Flo(flo(*value)),
            Self::Ratio(n, d) => {
                let (mut down, rest) = n.div_rem(d);
                if rest < IBig::ZERO {
                    down -= IBig::ONE;
                }
                let up = &down + IBig::ONE;
                let twice = (n - &down * d) * IBig::from(2);
                Self::from_big(match ratio {
                    RatioRounding::Floor => down,
                    RatioRounding::Ceiling => up,
                    RatioRounding::Truncate if *n < IBig::ZERO => up,
                    RatioRounding::Truncate => down,
                    RatioRounding::Even => match twice.cmp(d) {
                        Ordering::Less => down,
                        Ordering::Greater => up,
                        Ordering::Equal if (&down % IBig::from(2)) == IBig::ZERO => down,
                        Ordering::Equal => up,
                    },
                })
            }
        }
    }

    /// Numerator and denominator, in lowest terms.
    ///
    /// # Errors
    /// [`NumError::NotFinite`]
    pub(crate) fn fraction(&self) -> Result<(Self, Self)> {
        let exact = self.clone().exact()?;
        let (n, d) = exact.parts().ok_or(NumError::NotFinite)?;
        let (n, d) = (Self::from_big(n), Self::from_big(d));
        Ok(if self.is_exact() { (n, d) } else { (Self::Flo(n.to_f64()), Self::Flo(d.to_f64())) })
    }

    /// Shifted left by `by` bits, right if `by` is negative.
    ///
    /// # Errors
    /// [`NumError::NotInteger`], [`NumError::TooLarge`]
    pub(crate) fn shift(&self, by: i64) -> Result {
        let value = self.big().ok_or(NumError::NotInteger)?;
        let size = by.unsigned_abs() as usize;
        if by > 0 {
            if value.bit_len().saturating_add(size) > BITS_MAX {
                return Err(NumError::TooLarge);
            }
            return Ok(Self::from_big(value << size));
        }
        Ok(Self::from_big(value >> size.min(BITS_MAX)))
    }

    /// One of the bitwise operations on integers in two's complement.
    ///
    /// # Errors
    /// [`NumError::NotInteger`]
    pub(crate) fn bitwise(&self, other: &Self, operation: fn(IBig, IBig) -> IBig) -> Result {
        match (self.big(), other.big()) {
            (Some(a), Some(b)) => Ok(Self::from_big(operation(a, b))),
            _ => Err(NumError::NotInteger),
        }
    }

    /// Sign and 64-bit words of an integer, the least first.
    pub(crate) fn to_words(value: &IBig) -> (bool, Vec<u64>) {
        let bytes = value.clone().unsigned_abs().to_le_bytes();
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        (*value < IBig::ZERO, words.collect())
    }

    /// The integer of sign and words.
    pub(crate) fn from_words(negative: bool, words: &[u64]) -> IBig {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let value = IBig::from(UBig::from_le_bytes(&bytes));
        if negative { -value } else { value }
    }
}

/// The rules of rounding, for ratios.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RatioRounding {
    /// Down.
    Floor,
    /// Up.
    Ceiling,
    /// Toward zero.
    Truncate,
    /// To the nearest, and to even where two are as near.
    Even,
}

/// Scales the quotient to 64 significant bits, then rounds once.
fn ratio_to_f64(n: &IBig, d: &IBig) -> f64 {
    let shift = 66 - (n.bit_len() as i64 - d.bit_len() as i64);
    let size = n.clone().abs();
    let (scaled_n, scaled_d) = if shift >= 0 {
        (size << shift as usize, d.clone())
    } else {
        (size, d.clone() << shift.unsigned_abs() as usize)
    };
    let (quotient, rest) = (&scaled_n).div_rem(&scaled_d);
    // A sticky bit keeps the one rounding below right.
    let quotient = if rest == IBig::ZERO { quotient << 1usize } else { (quotient << 1usize) + IBig::ONE };
    let bits = Number::from_big(quotient).to_f64();
    let exponent = -(shift + 1);
    // In two steps, since a power of two alone may be below the least flonum.
    let half = exponent / 2;
    let value = bits * 2f64.powi(half as i32) * 2f64.powi((exponent - half) as i32);
    if *n < IBig::ZERO { -value } else { value }
}
