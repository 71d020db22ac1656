//! A factor by which an override multiplies limits.

use std::fmt;

use crate::{Error, MAX_COUNT};

/// Largest numerator or denominator of a [`Scale`].
pub const MAX_SCALE: u32 = 1_000_000;

/// A factor for limits, capacities and rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    num: u32,
    den: u32,
}

impl Scale {
    /// `num / den`, each from 1 to [`MAX_SCALE`].
    pub fn new(num: u64, den: u64) -> Result<Self, Error> {
        let part = |value: u64| match u32::try_from(value) {
            Ok(value @ 1..=MAX_SCALE) => Ok(value),
            _ => Err(Error::Scale),
        };
        Ok(Self {
            num: part(num)?,
            den: part(den)?,
        })
    }

    /// The numerator.
    #[must_use]
    pub const fn num(self) -> u32 {
        self.num
    }

    /// The denominator.
    #[must_use]
    pub const fn den(self) -> u32 {
        self.den
    }

    /// The product is rounded down, but never from more than 0 to 0.
    pub(crate) fn apply(self, amount: u64) -> u64 {
        let scaled = u128::from(amount) * u128::from(self.num) / u128::from(self.den);
        scaled.clamp(u128::from(amount.min(1)), u128::from(MAX_COUNT)) as u64
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SCALE {} {}", self.num, self.den)
    }
}
