//! The options of a call: `PEEK`, `FORCE`, `BRIEF` and `TIMES n [ATLEAST m]`.

use bitflags::bitflags;

use crate::syntax::parse_integer;
use crate::units::MAX_COUNT;
use crate::{Algorithm, Error};

bitflags! {
    /// The words that are options of a call. The names of the flags are the words.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CallFlags: u8 {
        /// Decide, but charge nothing.
        const PEEK = 1;
        /// Charge even past the limit.
        const FORCE = 1 << 1;
        /// Reply with one integer.
        const BRIEF = 1 << 2;
        /// Several such calls in one step.
        const TIMES = 1 << 3;
        /// As many of these calls as are allowed.
        const ATLEAST = 1 << 4;
    }
}

/// The options of a call. Those that are read from arguments are consistent with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOptions {
    flags: CallFlags,
    times: u64,
    at_least: u64,
}

impl Default for CallOptions {
    #[inline(always)]
    fn default() -> Self {
        Self::NONE
    }
}

impl CallOptions {
    /// One call, charged if it is allowed.
    pub const NONE: Self = Self::with_flags(CallFlags::empty());
    /// Decide, but charge nothing.
    pub const PEEK: Self = Self::with_flags(CallFlags::PEEK);
    /// Charge even past the limit.
    pub const FORCE: Self = Self::with_flags(CallFlags::FORCE);

    const fn with_flags(flags: CallFlags) -> Self {
        Self {
            flags,
            times: 1,
            at_least: 1,
        }
    }

    /// The options that were given.
    #[must_use]
    #[inline(always)]
    pub const fn flags(self) -> CallFlags {
        self.flags
    }

    /// Whether the call decides, but charges nothing.
    #[must_use]
    #[inline(always)]
    pub const fn is_peek(self) -> bool {
        self.flags.contains(CallFlags::PEEK)
    }

    /// Whether the call is charged even past the limit.
    #[must_use]
    #[inline(always)]
    pub const fn is_force(self) -> bool {
        self.flags.contains(CallFlags::FORCE)
    }

    /// The same options without FORCE.
    #[must_use]
    pub const fn without_force(self) -> Self {
        Self {
            flags: self.flags.difference(CallFlags::FORCE),
            ..self
        }
    }

    /// Whether the reply is one integer.
    #[must_use]
    #[inline(always)]
    pub const fn is_brief(self) -> bool {
        self.flags.contains(CallFlags::BRIEF)
    }

    /// The number of calls to make in one step: n of `TIMES n`, otherwise 1.
    #[must_use]
    #[inline(always)]
    pub const fn times(self) -> u64 {
        self.times
    }

    /// The fewest calls to charge, if fewer than [`CallOptions::times`] will do: m of `ATLEAST m`.
    #[must_use]
    #[inline(always)]
    pub const fn at_least(self) -> Option<u64> {
        match self.flags.contains(CallFlags::ATLEAST) {
            true => Some(self.at_least),
            false => None,
        }
    }

    /// Reads an option and, from `words`, its value. Returns `false` if the word is no option of a call.
    #[inline(never)]
    pub(crate) fn accept<'a>(
        &mut self,
        word: &[u8],
        words: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Result<bool, Error> {
        let Some(option) = option_named(word) else {
            return Ok(false);
        };
        let is_repeated = self.flags.contains(option);
        match option {
            CallFlags::TIMES => {
                self.times = number_of_calls(words.next(), is_repeated, Error::Times)?
            }
            CallFlags::ATLEAST => {
                self.at_least = number_of_calls(words.next(), is_repeated, Error::AtLeast)?;
            }
            _ => {}
        }
        self.flags.insert(option);
        Ok(true)
    }

    /// Fails if two of the options contradict each other.
    #[inline(always)]
    pub(crate) fn consistent(self) -> Result<Self, Error> {
        match self.flags.is_empty() {
            true => Ok(self),
            false => self.check_combination().map(|()| self),
        }
    }

    #[inline(never)]
    fn check_combination(self) -> Result<(), Error> {
        // PEEK charges nothing and FORCE always charges: one call cannot do both.
        if self.flags.contains(CallFlags::PEEK | CallFlags::FORCE) {
            return Err(Error::ExclusiveOptions);
        }
        if self.flags.contains(CallFlags::ATLEAST) {
            if !self.flags.contains(CallFlags::TIMES) || self.at_least > self.times {
                return Err(Error::AtLeast);
            }
            // FORCE charges all of the calls, and the one integer of BRIEF does not say how many were charged.
            if self.flags.intersects(CallFlags::FORCE | CallFlags::BRIEF) {
                return Err(Error::ExclusiveAtLeast);
            }
        }
        Ok(())
    }

    /// Fails if a limit cannot be charged this many times.
    #[inline(always)]
    pub(crate) fn check_charge(self, algorithm: Algorithm, cost: u64) -> Result<(), Error> {
        match self.flags.contains(CallFlags::TIMES) {
            true => self.check_repeated_charge(algorithm, cost),
            false => Ok(()),
        }
    }

    #[inline(never)]
    fn check_repeated_charge(self, algorithm: Algorithm, cost: u64) -> Result<(), Error> {
        // A holder that calls again renews its lease, so that n such calls are one.
        if algorithm == Algorithm::Lease {
            return Err(Error::TimesOfLease);
        }
        total_cost(cost, self.times).map(|_| ())
    }
}

/// What several calls cost together.
pub(crate) fn total_cost(cost: u64, times: u64) -> Result<u64, Error> {
    let total = cost.checked_mul(times).filter(|&total| total <= MAX_COUNT);
    total.ok_or(Error::TotalCost)
}

/// Whether a word is an option of a call.
pub(crate) fn is_call_option(word: &[u8]) -> bool {
    option_named(word).is_some()
}

fn option_named(word: &[u8]) -> Option<CallFlags> {
    let mut options = CallFlags::all().iter_names();
    let named = options.find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(word));
    named.map(|(_, option)| option)
}

pub(crate) fn number_of_calls(
    word: Option<&[u8]>,
    is_repeated: bool,
    error: Error,
) -> Result<u64, Error> {
    let calls = word.and_then(parse_integer);
    calls
        .filter(|calls| !is_repeated && (1..=MAX_COUNT).contains(calls))
        .ok_or(error)
}
