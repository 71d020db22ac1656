//! A limit's numbers, and what scaling does to them.

use std::fmt;

use crate::{Error, Limit, MAX_COUNT};

/// What all limits of a policy have: one or two amounts, and a window or period.
pub(crate) struct Shape {
    pub(crate) amounts: [Option<u64>; 2],
    pub(crate) span_us: u64,
}

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

    /// Rounded down, but something stays something.
    pub(crate) fn apply(self, amount: u64) -> u64 {
        let scaled = u128::from(amount) * u128::from(self.num) / u128::from(self.den);
        let most = u128::from(MAX_COUNT);
        scaled.clamp(u128::from(amount.min(1)), most) as u64
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SCALE {} {}", self.num, self.den)
    }
}

impl Limit<'_> {
    fn shape(&self) -> Option<Shape> {
        match self {
            Self::Slide(limit) => Some(limit.shape()),
            Self::Bucket(limit) => Some(limit.shape()),
            Self::Fixed(limit) => Some(limit.shape()),
            Self::Leak(limit) => Some(limit.shape()),
            Self::Exact(limit) => Some(limit.shape()),
            Self::Lease(_) | Self::Group(_) => None,
        }
    }

    /// The window or period; 0 for limits that have none of their own.
    pub(crate) fn span_us(&self) -> u64 {
        self.shape().map_or(0, |shape| shape.span_us)
    }

    /// The limit or capacity.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.shape().and_then(|shape| shape.amounts[0]).unwrap_or(0)
    }

    /// The same with its amounts multiplied; leases and policies stay as they are.
    #[must_use]
    pub fn scaled(self, by: Scale) -> Self {
        match self {
            Self::Slide(limit) => Self::Slide(limit.scaled(by)),
            Self::Bucket(limit) => Self::Bucket(limit.scaled(by)),
            Self::Fixed(limit) => Self::Fixed(limit.scaled(by)),
            Self::Leak(limit) => Self::Leak(limit.scaled(by)),
            Self::Exact(limit) => Self::Exact(limit.scaled(by)),
            other => other,
        }
    }
}
