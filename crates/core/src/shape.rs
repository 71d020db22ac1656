//! A limit's numbers as a person writes them: its canonical text, and what scaling does to them.

use std::fmt;

use crate::{Error, Limit, MAX_COUNT};

/// What all limits of a policy have: one or two amounts, a window or period, and a precision.
pub(crate) struct Shape {
    pub(crate) amounts: [Option<u64>; 2],
    pub(crate) span_us: u64,
    pub(crate) precision: u8,
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

/// Canonical: `SLIDE 100 1m`, `BUCKET 200 1000 90s`, `SLIDE 100 1h PRECISION 6`.
impl fmt::Display for Limit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm().name())?;
        let Some(shape) = self.shape() else {
            return Ok(());
        };
        for amount in shape.amounts.into_iter().flatten() {
            write!(f, " {amount}")?;
        }
        write!(f, " {}", Duration(shape.span_us))?;
        if shape.precision > 1 {
            write!(f, " PRECISION {}", shape.precision)?;
        }
        Ok(())
    }
}

/// In the largest unit that divides it.
struct Duration(u64);

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u64, &str); 4] = [
            (86_400_000, "d"),
            (3_600_000, "h"),
            (60_000, "m"),
            (1000, "s"),
        ];
        let ms = self.0 / 1000;
        let unit = UNITS
            .iter()
            .find(|(unit_ms, _)| ms.is_multiple_of(*unit_ms));
        let (unit_ms, name) = unit.copied().unwrap_or((1, "ms"));
        write!(f, "{}{name}", ms / unit_ms)
    }
}
