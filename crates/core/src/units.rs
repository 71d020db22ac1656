//! The range of every quantity, chosen so that no product overflows `u128`, and durations as people write them.

use std::fmt;

use crate::Error;

/// Largest limit, capacity, refill or cost: 2^53−1, which every client language holds exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// Longest window or period: 3650 days.
pub const MAX_PERIOD_MS: u64 = 3650 * 24 * 60 * 60 * 1000;

/// Latest representable time, about 36 000 years from now. A later clock reading counts as this one.
pub const MAX_TIME_US: u64 = (1 << 60) - 1;

/// Longest wait that a decision reports. Only limits that take ages to drain reach it.
pub const MAX_WAIT_MS: u64 = (1 << 53) - 1;

/// Usage beyond this many units, reachable only by forcing several huge costs, is not counted.
pub(crate) const MAX_USAGE: u64 = 1 << 56;

pub(crate) fn check_count(value: u64, error: Error) -> Result<u64, Error> {
    if value <= MAX_COUNT {
        Ok(value)
    } else {
        Err(error)
    }
}

/// Checks a duration and converts it to microseconds, which all arithmetic uses.
pub(crate) fn period_us(ms: u64, error: Error) -> Result<u64, Error> {
    if (1..=MAX_PERIOD_MS).contains(&ms) {
        Ok(ms * 1000)
    } else {
        Err(error)
    }
}

/// The text form of a duration, in the largest unit that divides it: `1m`, `90s`, `500ms`. [`syntax`](crate::syntax)
/// reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText {
    ms: u64,
}

impl DurationText {
    /// A duration in milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self { ms }
    }

    /// A duration in microseconds. What is less than a millisecond is not shown.
    pub(crate) const fn from_us(us: u64) -> Self {
        Self::from_ms(us / 1000)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 5] = [
            (24 * 60 * 60 * 1000, "d"),
            (60 * 60 * 1000, "h"),
            (60 * 1000, "m"),
            (1000, "s"),
            (1, "ms"),
        ];
        let divides = |(unit_ms, _): &&(u64, &str)| self.ms.is_multiple_of(*unit_ms);
        match UNITS.iter().find(divides) {
            Some((unit_ms, unit)) => write!(f, "{}{unit}", self.ms / unit_ms),
            None => Ok(()),
        }
    }
}
