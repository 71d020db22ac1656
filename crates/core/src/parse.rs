//! The words of a command: numbers, durations, limits, options. Bytes in, values or an [`Error`] out.

use crate::bounds::{self, MAX_COUNT};
use crate::{Algorithm, Error, Limit};

/// Most limits that one call may check.
pub const MAX_LIMITS: usize = 128;

/// A limit and what one call takes from it: `SLIDE 100 60 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The limit to check.
    pub limit: Limit,
    /// The units this call takes.
    pub cost: u64,
}

impl Spec {
    /// Reads name, parameters and cost; in a spec the cost is always given.
    pub fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let algorithm = words.next().and_then(Algorithm::from_name);
        let limit = Limit::parse(algorithm.ok_or(Error::UnknownAlgorithm)?, words)?;
        let cost = count(words.next(), Error::Cost)?;
        Ok(Self { limit, cost })
    }
}

/// Options behind the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Decide, but consume nothing.
    pub peek: bool,
    /// Consume even past the limit.
    pub force: bool,
}

impl Options {
    fn parse<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let mut options = Self::default();
        for word in words {
            if !options.accept(word) {
                return Err(Error::UnknownOption);
            }
        }
        Ok(options)
    }

    fn accept(&mut self, word: &[u8]) -> bool {
        let option = if word.eq_ignore_ascii_case(b"PEEK") {
            &mut self.peek
        } else if word.eq_ignore_ascii_case(b"FORCE") {
            &mut self.force
        } else {
            return false;
        };
        *option = true;
        true
    }
}

/// The words of a one-limit command behind its key: `parameters… [cost] [options…]`.
#[inline]
pub fn single<'a>(
    algorithm: Algorithm,
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(Spec, Options), Error> {
    let limit = Limit::parse(algorithm, words)?;
    let mut options = Options::default();
    let mut cost = 1;
    if let Some(word) = words.next()
        && !options.accept(word)
    {
        cost = count(Some(word), Error::Cost)?;
    }
    let rest = Options::parse(words)?;
    options.peek |= rest.peek;
    options.force |= rest.force;
    Ok((Spec { limit, cost }, options))
}

/// The words of RL.MULTI: `key spec [key spec …] [PEEK | FORCE]`. `each` is given every key's position.
pub fn multi<'a>(
    mut words: impl Iterator<Item = &'a [u8]> + Clone,
    mut each: impl FnMut(usize, Spec) -> Result<(), Error>,
) -> Result<Options, Error> {
    let mut position = 0;
    for limits in 0.. {
        // A key may be called PEEK; it is followed by a spec, the option by no more than options.
        if limits > 0
            && let Ok(options) = Options::parse(words.clone())
        {
            if options.peek && options.force {
                return Err(Error::ExclusiveOptions);
            }
            return Ok(options);
        }
        if limits == MAX_LIMITS {
            return Err(Error::TooManyLimits);
        }
        words.next().ok_or(Error::IncompleteSpec)?;
        let spec = Spec::parse(&mut words)?;
        each(position, spec)?;
        position += 1 + spec.limit.algorithm().spec_words();
    }
    Err(Error::TooManyLimits)
}

/// The positions of RL.MULTI's keys, as far as its words make sense.
pub fn multi_keys<'a>(mut words: impl Iterator<Item = &'a [u8]>, mut each: impl FnMut(usize)) {
    let mut position = 0;
    while words.next().is_some()
        && let Some(algorithm) = words.next().and_then(Algorithm::from_name)
    {
        each(position);
        let skipped = algorithm.parameters();
        words.nth(skipped);
        position += 1 + algorithm.spec_words();
    }
}

/// An integer from 0 to [`MAX_COUNT`]; `error` says which argument it is.
#[inline]
pub fn count(word: Option<&[u8]>, error: Error) -> Result<u64, Error> {
    let digits = word.ok_or(Error::IncompleteSpec)?;
    let value = integer(digits).ok_or(error)?;
    bounds::count(value, error)
}

/// A duration in microseconds; `error` says which argument it is.
///
/// A bare integer is seconds; `ms`, `s`, `m`, `h` and `d` are the other units.
#[inline]
pub fn duration_us(word: Option<&[u8]>, error: Error) -> Result<u64, Error> {
    let word = word.ok_or(Error::IncompleteSpec)?;
    let (digits, unit_ms) = match word {
        [digits @ .., b'm', b's'] => (digits, 1),
        [digits @ .., b's'] => (digits, 1000),
        [digits @ .., b'm'] => (digits, 60 * 1000),
        [digits @ .., b'h'] => (digits, 60 * 60 * 1000),
        [digits @ .., b'd'] => (digits, 24 * 60 * 60 * 1000),
        digits => (digits, 1000),
    };
    let ms = integer(digits).and_then(|amount| amount.checked_mul(unit_ms));
    bounds::period_us(ms.ok_or(error)?, error)
}

/// A decimal number as Redis writes it: digits only, no sign, no leading zero.
#[inline]
fn integer(digits: &[u8]) -> Option<u64> {
    // As many digits as MAX_COUNT has: no sum below can overflow.
    const MAX_DIGITS: usize = MAX_COUNT.ilog10() as usize + 1;
    if digits.is_empty() || digits.len() > MAX_DIGITS || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let (mut value, mut strays) = (0, 0);
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        strays |= u8::from(digit > 9);
        value = value * 10 + u64::from(digit);
    }
    (strays == 0).then_some(value)
}
