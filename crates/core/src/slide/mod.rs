//! Sliding-window counter: the past fades out while the present fills.
//!
//! By default a window has two counters, [`Pair`]. With a `PRECISION` of n it is split into n parts,
//! [`Parts`], of which only the oldest fades.

mod pair;
mod parts;

use std::fmt;

use crate::bounds::{self, MAX_USAGE};
use crate::decision::{Mode, Outcome};
use crate::duration::Duration;
use crate::encoding::{Encoded, Fields};
use crate::inspect::Field;
use crate::shape::{Scale, Shape};
use crate::{Error, parse};

pub use pair::Pair;
pub use parts::Parts;

pub(crate) const NAME: &str = "SLIDE";
pub(crate) const TAG: u8 = 1;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 2;

/// Into most parts that a window can be split.
pub const MAX_PRECISION: u8 = 64;

/// At most `limit` units per sliding `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    limit: u64,
    window_us: u64,
    precision: u8,
}

impl Limit {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: bounds::count(limit, Error::Limit)?,
            window_us: bounds::period_us(window_ms, Error::Window)?,
            precision: 1,
        })
    }

    /// The same with its window split into `precision` parts, 1 to [`MAX_PRECISION`].
    pub fn with_precision(self, precision: u8) -> Result<Self, Error> {
        if !(1..=MAX_PRECISION).contains(&precision) {
            return Err(Error::Precision);
        }
        Ok(Self { precision, ..self })
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            amounts: [Some(self.limit), None],
            span_us: self.window_us,
        }
    }

    pub(crate) fn scaled(self, by: Scale) -> Self {
        Self {
            limit: by.apply(self.limit),
            ..self
        }
    }

    #[inline(always)]
    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: parse::count(words.next(), Error::Limit)?,
            window_us: parse::duration_us(words.next(), Error::Window)?,
            precision: 1,
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = Duration::from_us(self.window_us);
        write!(f, "{NAME} {} {window}", self.limit)?;
        match self.precision {
            1 => Ok(()),
            precision => write!(f, " PRECISION {precision}"),
        }
    }
}

/// Usage in the window at hand, and in those before as far as they matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Two counters.
    Pair(Pair),
    /// More of them.
    Parts(Parts),
}

impl State {
    pub(crate) fn span_us(&self) -> u64 {
        match self {
            Self::Pair(pair) => pair.span_us(),
            Self::Parts(parts) => parts.span_us(),
        }
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        match self {
            Self::Pair(pair) => pair.expire_at_ms(),
            Self::Parts(parts) => parts.expire_at_ms(),
        }
    }

    #[inline]
    pub(crate) fn encode(&self) -> Encoded {
        match self {
            Self::Pair(pair) => pair.encode(),
            Self::Parts(parts) => parts.encode(),
        }
    }

    #[inline]
    pub(crate) fn decode(fields: Fields) -> Result<Self, Error> {
        Pair::decode(fields).map(Self::Pair)
    }

    pub(crate) fn decode_parts(words: &[u64]) -> Result<Self, Error> {
        Parts::decode(words).map(Self::Parts)
    }

    /// Takes units out of the record, the latest first.
    pub(crate) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        match self {
            Self::Pair(pair) => {
                let (given, next) = pair.refund(now_us, units);
                (given, next.map(Self::Pair))
            }
            Self::Parts(parts) => {
                let (given, next) = parts.refund(now_us, units);
                (given, next.map(Self::Parts))
            }
        }
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        match self {
            Self::Pair(pair) => pair.inspect(now_us),
            Self::Parts(parts) => parts.inspect(now_us),
        }
    }

    /// Units in use, rounded up, for a limit that counts in another way.
    fn carried(&self, now_us: u64) -> u64 {
        match self {
            Self::Pair(pair) => pair.at(now_us).used(now_us),
            Self::Parts(parts) => parts.at(now_us).used(now_us),
        }
        .min(MAX_USAGE)
    }
}

#[inline(always)]
pub(crate) fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<State> {
    let now_us = now_us.min(bounds::MAX_TIME_US);
    match stored {
        None if limit.precision == 1 => {
            pair::evaluate(limit, None, now_us, cost, mode).map(State::Pair)
        }
        Some(State::Pair(stored)) if limit.precision == 1 => {
            pair::evaluate(limit, Some(stored), now_us, cost, mode).map(State::Pair)
        }
        _ => in_parts(limit, stored, now_us, cost, mode),
    }
}

/// Either the limit or what is stored has more than two counters.
#[cold]
fn in_parts(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<State> {
    // As with another window: a denied call cannot record that the precision changed, so what is stored
    // decides; the first call that is allowed carries the usage over.
    let change = |now_us, carried| {
        if limit.precision == 1 {
            State::Pair(Pair::carrying(now_us, limit.window_us, carried, cost))
        } else {
            State::Parts(Parts::carrying(limit, now_us, carried, cost))
        }
    };
    let mut outcome = match stored {
        Some(State::Pair(pair)) => {
            pair::evaluate(limit, Some(pair), now_us, cost, mode).map(State::Pair)
        }
        Some(State::Parts(stored)) => {
            parts::evaluate(limit, Some(stored), now_us, cost, mode).map(State::Parts)
        }
        None => parts::evaluate(limit, None, now_us, cost, mode).map(State::Parts),
    };
    let same = match stored {
        Some(State::Pair(_)) => limit.precision == 1,
        Some(State::Parts(parts)) => parts.precision() == limit.precision,
        None => true,
    };
    if let (Some(stored), false) = (stored, same)
        && outcome.decision.allowed
        && outcome.next.is_some()
    {
        let next = change(now_us, stored.carried(now_us));
        outcome.expiry.at_ms = next.expire_at_ms();
        outcome.expiry.unmoved = stored.expire_at_ms() == next.expire_at_ms();
        outcome.decision.reset_after_ms = next.reset_after_ms(now_us);
        outcome.next = Some(next);
    }
    outcome
}

impl State {
    fn reset_after_ms(&self, now_us: u64) -> u64 {
        let clear_at = match self {
            Self::Pair(pair) => pair.clear_at(),
            Self::Parts(parts) => parts.clear_at(),
        };
        crate::decision::wait_ms(u128::from(clear_at - now_us))
    }
}
