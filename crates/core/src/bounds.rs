//! The ranges of every quantity, in one place. They are chosen so that no product overflows `u128`.

use crate::Error;

/// Largest limit, capacity, refill or cost: 2^53−1, which every client language holds exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// Longest window or period: 3650 days.
pub const MAX_PERIOD_MS: u64 = 3650 * 24 * 60 * 60 * 1000;

/// Latest representable time, some 36 000 years from now. A later clock reading counts as this one.
pub const MAX_TIME_US: u64 = (1 << 60) - 1;

/// Longest wait that a decision states. Only limits with drain times of geological length reach it.
pub const MAX_WAIT_MS: u64 = (1 << 53) - 1;

/// Usage beyond this many units, reachable only by forcing several huge costs, is not counted.
pub(crate) const MAX_USAGE: u64 = 1 << 56;

pub(crate) fn count(value: u64, error: Error) -> Result<u64, Error> {
    if value <= MAX_COUNT {
        Ok(value)
    } else {
        Err(error)
    }
}

/// Checks a duration and converts it to the microseconds that all arithmetic uses.
pub(crate) fn period_us(ms: u64, error: Error) -> Result<u64, Error> {
    if (1..=MAX_PERIOD_MS).contains(&ms) {
        Ok(ms * 1000)
    } else {
        Err(error)
    }
}
