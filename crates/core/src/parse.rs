//! The words of a command: numbers, durations, limits, options. Bytes in, values or an [`Error`] out.

use crate::bounds::{self, MAX_COUNT};
use crate::{Algorithm, Error, Limit};

/// Most limits that one call may check.
pub const MAX_LIMITS: usize = 128;

/// A limit and what one call takes from it: `SLIDE 100 60 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The limit to check.
    pub limit: Limit<'a>,
    /// The units this call takes.
    pub cost: u64,
}

impl<'a> Spec<'a> {
    /// Reads name, parameters and cost; in a spec the cost is always given.
    pub fn parse(words: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let algorithm = words.next().and_then(Algorithm::from_name);
        Self::parse_of(algorithm.ok_or(Error::UnknownAlgorithm)?, words)
    }

    fn parse_of(
        algorithm: Algorithm,
        words: &mut (impl Iterator<Item = &'a [u8]> + Clone),
    ) -> Result<Self, Error> {
        let mut limit = Limit::parse(algorithm, words)?;
        let cost = count(words.next(), Error::Cost)?;
        if matches!(limit, Limit::Slide(_)) && precision_follows(words.clone()) {
            words.next();
            make_precise(&mut limit, words.next())?;
        }
        Ok(Self { limit, cost })
    }
}

/// What RL.MULTI and RL.PEEK are asked of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Evaluate and count, but do not enforce.
    pub shadow: bool,
    /// Where the limits come from.
    pub by: By<'a>,
}

/// Where a call's limits come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<'a> {
    /// The call itself: `SLIDE 100 60 1`.
    Spec(Spec<'a>),
    /// A policy: `POLICY name cost`.
    Policy {
        /// The policy's name.
        name: &'a [u8],
        /// The units this call takes.
        cost: u64,
    },
}

impl<'a> Ask<'a> {
    /// `[SHADOW] spec`, or `[SHADOW] POLICY name cost`.
    #[inline(always)]
    pub fn parse(words: &mut (impl Iterator<Item = &'a [u8]> + Clone)) -> Result<Self, Error> {
        let word = words.next();
        let mut algorithm = word.and_then(Algorithm::from_name);
        let shadow = algorithm.is_none() && word.is_some_and(is_shadow);
        if shadow {
            algorithm = words.next().and_then(Algorithm::from_name);
        }
        let by = match algorithm.ok_or(Error::UnknownAlgorithm)? {
            Algorithm::Group => By::Policy {
                name: words.next().ok_or(Error::IncompleteSpec)?,
                cost: count(words.next(), Error::Cost)?,
            },
            algorithm => By::Spec(Spec::parse_of(algorithm, words)?),
        };
        Ok(Self { shadow, by })
    }
}

fn is_shadow(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"SHADOW")
}

/// The words of RL.CHECK behind the policy: `[cost] [PEEK | FORCE]`.
#[inline(always)]
pub fn check<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<(u64, Options), Error> {
    let mut options = Options::default();
    let mut cost = None;
    for (place, word) in words.enumerate() {
        if !options.accept(word) {
            if place > 0 {
                return Err(Error::UnknownOption);
            }
            cost = Some(count(Some(word), Error::Cost)?);
        }
    }
    if options.peek && options.force {
        return Err(Error::ExclusiveOptions);
    }
    Ok((cost.unwrap_or(1), options))
}

/// `PRECISION n`. A key may be called PRECISION; it is followed by a limit.
#[inline(always)]
fn precision_follows<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> bool {
    words.next().is_some_and(is_precision) && !words.next().is_some_and(begins_limit)
}

#[cold]
fn begins_limit(word: &[u8]) -> bool {
    Algorithm::from_name(word).is_some() || is_shadow(word)
}

pub(crate) fn is_precision(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"PRECISION")
}

pub(crate) fn make_precise(limit: &mut Limit, word: Option<&[u8]>) -> Result<(), Error> {
    let Limit::Slide(slide) = limit else {
        return Err(Error::UnknownOption);
    };
    let precision = word.and_then(integer).and_then(|n| u8::try_from(n).ok());
    *slide = slide.with_precision(precision.ok_or(Error::Precision)?)?;
    Ok(())
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
#[inline(always)]
pub fn single<'a>(
    algorithm: Algorithm,
    words: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(Spec<'a>, Options), Error> {
    let mut limit = Limit::parse(algorithm, words)?;
    let mut options = Options::default();
    let mut cost = None;
    let mut only_options = false;
    while let Some(word) = words.next() {
        if is_precision(word) {
            make_precise(&mut limit, words.next())?;
        } else if !options.accept(word) {
            if only_options {
                return Err(Error::UnknownOption);
            }
            cost = Some(count(Some(word), Error::Cost)?);
        }
        only_options = true;
    }
    let cost = cost.unwrap_or(1);
    Ok((Spec { limit, cost }, options))
}

/// The words of RL.MULTI: `key spec [key spec …] [PEEK | FORCE]`. `each` is given every key and its position.
pub fn multi<'a>(
    mut words: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    mut each: impl FnMut(usize, &'a [u8], Ask<'a>) -> Result<(), Error>,
) -> Result<Options, Error> {
    let all = words.len();
    for limits in 0.. {
        // A key may be called PEEK; it is followed by a spec, the option by no more than options. Where words are
        // left for a key and the shortest of limits, nobody means options.
        if limits > 0
            && words.len() < 4
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
        let position = all - words.len();
        let key = words.next().ok_or(Error::IncompleteSpec)?;
        each(position, key, Ask::parse(&mut words)?)?;
    }
    Err(Error::TooManyLimits)
}

/// The positions of RL.MULTI's keys, as far as its words make sense.
pub fn multi_keys<'a>(
    mut words: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    mut each: impl FnMut(usize),
) {
    let all = words.len();
    loop {
        let position = all - words.len();
        let (Some(_), mut word) = (words.next(), words.next()) else {
            return;
        };
        if word.is_some_and(is_shadow) {
            word = words.next();
        }
        let Some(algorithm) = word.and_then(Algorithm::from_name) else {
            return;
        };
        each(position);
        words.nth(algorithm.parameters());
        if algorithm == Algorithm::Slide && precision_follows(words.clone()) {
            words.nth(1);
        }
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
