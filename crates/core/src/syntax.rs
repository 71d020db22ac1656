//! The arguments of commands: numbers, durations, specs and options. Bytes in, values or an [`Error`] out.

use crate::call_options::is_call_option;
use crate::units::{self, MAX_COUNT};
use crate::{Algorithm, Error, Limit};

pub use crate::call_options::{CallFlags, CallOptions};

/// Most limits that one call may check.
pub const MAX_LIMITS: usize = 128;

/// A limit and what one call charges to it: `SLIDE 100 60 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The limit to check.
    pub limit: Limit<'a>,
    /// The units that this call charges.
    pub cost: u64,
}

impl<'a> Spec<'a> {
    /// Reads a spec of one limit: `SLIDE 100 60`, `BUCKET 200 1000 1m 5`.
    pub fn parse(text: &'a [u8]) -> Result<Self, Error> {
        let mut words = SpecWords::of(text);
        let algorithm = words.next().and_then(Algorithm::from_name);
        Self::parse_of(algorithm.ok_or(Error::UnknownAlgorithm)?, words)
    }

    /// The words after the algorithm's name: `parameters… [cost] [options…]`.
    #[inline(always)]
    fn parse_of(algorithm: Algorithm, mut words: SpecWords<'a>) -> Result<Self, Error> {
        let mut limit = Limit::parse(algorithm, &mut words)?;
        let mut word = words.next();
        let mut cost = 1;
        if let Some(value) = word.and_then(parse_integer) {
            cost = units::check_count(value, Error::Cost)?;
            word = words.next();
        } else if let Some(word) = word
            && !is_option(word)
        {
            return Err(not_a_cost(word));
        }
        if let Some(word) = word {
            set_spec_options(&mut limit, word, words)?;
        }
        Ok(Self { limit, cost })
    }
}

/// What may follow the cost, from `word` on: options of the limit's algorithm, and nothing else.
#[inline(never)]
fn set_spec_options<'a>(
    limit: &mut Limit,
    mut word: &'a [u8],
    mut words: SpecWords<'a>,
) -> Result<(), Error> {
    let mut options = LimitOptions::default();
    loop {
        if !options.accept(limit, word, &mut words)? {
            return Err(trailing(word));
        }
        match words.next() {
            Some(next) => word = next,
            None => return Ok(()),
        }
    }
}

#[cold]
fn not_a_cost(word: &[u8]) -> Error {
    match is_call_option(word) {
        true => Error::MisplacedOption,
        false => Error::Cost,
    }
}

#[cold]
fn trailing(word: &[u8]) -> Error {
    match is_call_option(word) {
        true => Error::MisplacedOption,
        false => Error::TrailingWords,
    }
}

/// The words of a spec, which is one argument. Exactly one space separates two words: if a caller's variable is empty,
/// its word is empty and rejected, and no other word takes its place.
#[derive(Clone)]
struct SpecWords<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> SpecWords<'a> {
    #[inline(always)]
    fn of(text: &'a [u8]) -> Self {
        Self { rest: Some(text) }
    }
}

impl<'a> Iterator for SpecWords<'a> {
    type Item = &'a [u8];

    #[inline(always)]
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let end = rest.iter().position(|&byte| byte == b' ');
        self.rest = end.map(|end| &rest[end + 1..]);
        Some(&rest[..end.unwrap_or(rest.len())])
    }
}

/// One spec of RL.MULTI, RL.FIRST or RL.PEEK: what to check on its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec<'a> {
    /// Evaluate and count, but do not enforce.
    pub shadow: bool,
    /// Where the limits come from.
    pub source: LimitSource<'a>,
}

/// Where a call's limits come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource<'a> {
    /// The call itself: `SLIDE 100 60 1`.
    Spec(Spec<'a>),
    /// A policy: `POLICY name cost`.
    Policy {
        /// The policy's name.
        name: &'a [u8],
        /// The units that this call charges.
        cost: u64,
    },
}

impl<'a> KeySpec<'a> {
    /// `[options…] [SHADOW] spec`, or `… [SHADOW] POLICY name [cost]`. The options in front are stored in `options`.
    #[inline(always)]
    fn parse(text: &'a [u8], options: &mut CallOptions) -> Result<Self, Error> {
        let mut words = SpecWords::of(text);
        let word = words.next();
        let mut shadow = false;
        let algorithm = match word.and_then(Algorithm::from_name) {
            Some(algorithm) => algorithm,
            None => {
                let (algorithm, is_shadow) = prefix(word, &mut words, options)?;
                shadow = is_shadow;
                algorithm
            }
        };
        let source = match algorithm {
            // Only a name: the caller probably passed each word of the spec as an argument of its own.
            _ if words.rest.is_none() => return Err(Error::UnknownAlgorithm),
            Algorithm::Policy => LimitSource::Policy {
                name: words.next().ok_or(Error::PolicyName)?,
                cost: policy_cost(words)?,
            },
            algorithm => LimitSource::Spec(Spec::parse_of(algorithm, words)?),
        };
        Ok(Self { shadow, source })
    }
}

/// Reads what precedes the name of an algorithm, and that name.
#[inline(never)]
fn prefix<'a>(
    mut word: Option<&'a [u8]>,
    words: &mut SpecWords<'a>,
    options: &mut CallOptions,
) -> Result<(Algorithm, bool), Error> {
    while let Some(option) = word
        && options.accept(option, words)?
    {
        word = words.next();
    }
    let shadow = word.is_some_and(is_shadow);
    if shadow {
        word = words.next();
    }
    match word.and_then(Algorithm::from_name) {
        Some(algorithm) => Ok((algorithm, shadow)),
        None if word.is_some_and(is_call_option) => Err(Error::MisplacedOption),
        None => Err(Error::UnknownAlgorithm),
    }
}

/// The words after a policy's name: `[cost]`.
fn policy_cost(mut words: SpecWords) -> Result<u64, Error> {
    let cost = match words.next() {
        None => return Ok(1),
        Some(word) => parse_integer(word).ok_or_else(|| not_a_cost(word))?,
    };
    match words.next() {
        None => units::check_count(cost, Error::Cost),
        Some(word) => Err(trailing(word)),
    }
}

fn is_shadow(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"SHADOW")
}

/// Reads `[cost]`. Returns it, the argument that follows, and what is wrong with that argument if it is no option.
#[inline(always)]
fn leading_cost<'a>(
    args: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(u64, Option<&'a [u8]>, Error), Error> {
    let arg = args.next();
    match arg.and_then(parse_integer) {
        Some(value) => {
            let cost = units::check_count(value, Error::Cost)?;
            Ok((cost, args.next(), Error::UnknownOption))
        }
        None => Ok((1, arg, Error::Cost)),
    }
}

/// The arguments of RL.CHECK after the policy: `[cost] [options…]`.
#[inline(always)]
pub fn check_args<'a>(
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(u64, CallOptions), Error> {
    let mut options = CallOptions::default();
    let (cost, mut arg, mut unknown) = leading_cost(&mut args)?;
    while let Some(option) = arg {
        if !options.accept(option, &mut args)? {
            return Err(unknown);
        }
        unknown = Error::UnknownOption;
        arg = args.next();
    }
    let options = options.consistent()?;
    options.check_charge(Algorithm::Policy, cost)?;
    Ok((cost, options))
}

/// Whether a word is an option of any algorithm.
pub(crate) fn is_option(word: &[u8]) -> bool {
    Algorithm::ALL
        .iter()
        .any(|algorithm| algorithm.option_index(word).is_some())
}

/// The options of one limit that have been read: each may be given once.
#[derive(Default)]
pub(crate) struct LimitOptions {
    /// One bit per option of the algorithm.
    given: u8,
}

impl LimitOptions {
    /// Sets an option of the limit, with its value from `words`. Returns `false` if its algorithm has no such option.
    #[inline(never)]
    pub(crate) fn accept<'a>(
        &mut self,
        limit: &mut Limit,
        word: &[u8],
        words: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Result<bool, Error> {
        let Some(index) = limit.algorithm().option_index(word) else {
            return Ok(false);
        };
        let is_repeated = self.given & (1 << index) != 0;
        self.given |= 1 << index;
        // The error for a missing value also says that the option must be given once.
        limit.set_option(word, words.next().filter(|_| !is_repeated))?;
        Ok(true)
    }
}

/// The arguments of a one-limit command after its key: `parameters… [cost] [options…]`.
#[inline(always)]
pub fn one_limit_args<'a>(
    algorithm: Algorithm,
    args: &mut impl Iterator<Item = &'a [u8]>,
) -> Result<(Spec<'a>, CallOptions), Error> {
    let mut limit = Limit::parse(algorithm, args)?;
    let mut options = CallOptions::default();
    let mut limit_options = LimitOptions::default();
    let (cost, mut arg, mut unknown) = leading_cost(args)?;
    while let Some(option) = arg {
        if !options.accept(option, args)? && !limit_options.accept(&mut limit, option, args)? {
            return Err(match is_option(option) {
                true => Error::UnknownOption,
                false => unknown,
            });
        }
        unknown = Error::UnknownOption;
        arg = args.next();
    }
    let options = options.consistent()?;
    options.check_charge(algorithm, cost)?;
    Ok((Spec { limit, cost }, options))
}

/// The arguments of RL.MULTI and RL.FIRST: `key spec [key spec …]`, with options at the start of the first spec. Calls `each` with
/// every key and its position.
#[inline(always)]
pub fn multi_args<'a, E: From<Error>>(
    mut args: impl ExactSizeIterator<Item = &'a [u8]>,
    mut each: impl FnMut(usize, &'a [u8], KeySpec<'a>) -> Result<(), E>,
) -> Result<CallOptions, E> {
    if args.len() == 0 || !args.len().is_multiple_of(2) {
        return Err(Error::OddArguments.into());
    }
    if args.len() > 2 * MAX_LIMITS {
        return Err(Error::TooManyLimits.into());
    }
    let mut of_call = CallOptions::default();
    let mut position = 0;
    while let (Some(key), Some(spec)) = (args.next(), args.next()) {
        let mut options = CallOptions::default();
        let key_spec = KeySpec::parse(spec, &mut options)?;
        if !options.flags().is_empty() {
            if position > 0 {
                return Err(Error::MisplacedOption.into());
            }
            of_call = options.consistent()?;
        }
        match key_spec.source {
            LimitSource::Spec(spec) => of_call.check_charge(spec.limit.algorithm(), spec.cost)?,
            LimitSource::Policy { cost, .. } => of_call.check_charge(Algorithm::Policy, cost)?,
        }
        each(position, key, key_spec)?;
        position += 2;
    }
    Ok(of_call)
}

/// A spec that [`multi_args`] has accepted before, without the options of its call.
pub fn recorded_spec(spec: &[u8]) -> Result<KeySpec<'_>, Error> {
    KeySpec::parse(spec, &mut CallOptions::default())
}

/// RL.PEEK's spec, which has no options: the command itself never charges.
pub fn peek_spec(spec: &[u8]) -> Result<KeySpec<'_>, Error> {
    let mut options = CallOptions::default();
    match KeySpec::parse(spec, &mut options) {
        Err(Error::MisplacedOption) => Err(Error::OptionInPeek),
        Ok(_) if !options.flags().is_empty() => Err(Error::OptionInPeek),
        parsed => parsed,
    }
}

/// An integer from 0 to [`MAX_COUNT`].
#[must_use]
pub fn as_count(word: &[u8]) -> Option<u64> {
    parse_integer(word).filter(|&value| value <= MAX_COUNT)
}

/// An integer from 0 to [`MAX_COUNT`]; `error` names the argument.
#[inline]
pub fn parse_count(word: Option<&[u8]>, error: Error) -> Result<u64, Error> {
    let digits = word.ok_or_else(|| error.if_missing())?;
    let value = parse_integer(digits).ok_or(error)?;
    units::check_count(value, error)
}

/// A duration in microseconds; `error` names the argument.
///
/// A bare integer is seconds; `ms`, `s`, `m`, `h` and `d` are the other units.
#[inline(always)]
pub fn parse_duration_us(word: Option<&[u8]>, error: Error) -> Result<u64, Error> {
    let word = word.ok_or_else(|| error.if_missing())?;
    units::period_us(duration_ms(word).ok_or(error)?, error)
}

/// The value of OFFSET in milliseconds: a duration that may be negative, or 0.
pub(crate) fn parse_offset_ms(word: Option<&[u8]>) -> Result<i64, Error> {
    let word = word.ok_or(Error::Offset)?;
    let (negative, duration) = match word.strip_prefix(b"-") {
        Some(duration) => (true, duration),
        None => (false, word),
    };
    let ms = duration_ms(duration).and_then(|ms| i64::try_from(ms).ok());
    let ms = ms.ok_or(Error::Offset)?;
    Ok(if negative { -ms } else { ms })
}

#[inline(always)]
fn duration_ms(word: &[u8]) -> Option<u64> {
    let (digits, unit_ms) = match word {
        [digits @ .., b'm', b's'] => (digits, 1),
        [digits @ .., b's'] => (digits, 1000),
        [digits @ .., b'm'] => (digits, 60 * 1000),
        [digits @ .., b'h'] => (digits, 60 * 60 * 1000),
        [digits @ .., b'd'] => (digits, 24 * 60 * 60 * 1000),
        digits => (digits, 1000),
    };
    parse_integer(digits).and_then(|amount| amount.checked_mul(unit_ms))
}

/// A decimal number as Redis writes it: digits only, no sign, no leading zero.
#[inline]
pub(crate) fn parse_integer(digits: &[u8]) -> Option<u64> {
    // No more digits than MAX_COUNT has, so that nothing below overflows.
    const MAX_DIGITS: usize = MAX_COUNT.ilog10() as usize + 1;
    if digits.is_empty() || digits.len() > MAX_DIGITS || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let (mut value, mut invalid) = (0, 0);
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        invalid |= u8::from(digit > 9);
        value = value * 10 + u64::from(digit);
    }
    (invalid == 0).then_some(value)
}
