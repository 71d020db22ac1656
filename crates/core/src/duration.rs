//! A duration as a person writes it.

use std::fmt;

/// Shown in the largest unit that divides it: `1m`, `90s`, `500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Duration {
    ms: u64,
}

impl Duration {
    /// Of so many microseconds, of which full milliseconds are shown.
    pub(crate) const fn from_us(us: u64) -> Self {
        Self { ms: us / 1000 }
    }
}

impl fmt::Display for Duration {
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
