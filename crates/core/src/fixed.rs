//! Fixed windows, aligned to the Unix epoch: a window of a day turns at 00:00 UTC.

use std::fmt;

use crate::bounds::{self, MAX_TIME_US, MAX_USAGE};
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, ceil_ms};
use crate::duration::Duration;
use crate::encoding::{Encoded, Fields, LOW_BITS};
use crate::inspect::Field;
use crate::shape::{Scale, Shape};
use crate::{Error, parse};

pub(crate) const NAME: &str = "FIXED";
pub(crate) const TAG: u8 = 3;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 2;

/// At most `limit` units in each `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    limit: u64,
    window_us: u64,
}

impl Limit {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: bounds::count(limit, Error::Limit)?,
            window_us: bounds::period_us(window_ms, Error::Window)?,
        })
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

    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: parse::count(words.next(), Error::Limit)?,
            window_us: parse::duration_us(words.next(), Error::Window)?,
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = Duration::from_us(self.window_us);
        write!(f, "{NAME} {} {window}", self.limit)
    }
}

/// What was used in the window that begins at `start_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    start_us: u64,
    window_us: u64,
    count: u64,
}

impl State {
    /// The window around `now`, in which `count` units are in use.
    fn around(now_us: u64, window_us: u64, count: u64) -> Self {
        Self {
            start_us: now_us - now_us % window_us,
            window_us,
            count,
        }
    }

    /// The same usage as it stands at `now`: gone with its window, but kept if the clock stepped back.
    fn at(self, now_us: u64) -> Self {
        if now_us < self.start_us {
            Self::around(now_us, self.window_us, self.count)
        } else if now_us < self.end_us() {
            self
        } else {
            Self::around(now_us, self.window_us, 0)
        }
    }

    fn end_us(&self) -> u64 {
        self.start_us + self.window_us
    }

    pub(crate) fn span_us(&self) -> u64 {
        self.window_us
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        ceil_ms(self.end_us())
    }

    pub(crate) fn encode(&self) -> Encoded {
        if self.count >> LOW_BITS == 0
            && let Some(packed) = Encoded::packed(TAG, self.start_us, self.window_us, self.count)
        {
            return packed;
        }
        Encoded::wide(TAG, self.start_us, self.window_us, 0, self.count.into())
    }

    pub(crate) fn decode(fields: Fields) -> Result<Self, Error> {
        let (start_us, window_us) = (fields.time_us, fields.span_us);
        let aligned = start_us.is_multiple_of(window_us);
        match u64::try_from(fields.low) {
            Ok(count @ 1..=MAX_USAGE) if aligned && fields.extra == 0 => Ok(Self {
                start_us,
                window_us,
                count,
            }),
            _ => Err(Error::DamagedState),
        }
    }

    pub(crate) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let seen = self.at(now_us);
        let given = units.min(seen.count);
        let count = seen.count - given;
        (given, (count > 0).then_some(Self { count, ..seen }))
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        vec![
            Field::ms("window_ms", self.window_us),
            Field::ms("window_start_ms", self.start_us),
            Field::number("count", self.count),
            Field::number("used", self.at(now_us).count),
        ]
    }
}

#[inline]
pub(crate) fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<State> {
    let now_us = now_us.min(MAX_TIME_US);
    let seen = match stored {
        Some(stored) => stored.at(now_us),
        None => State::around(now_us, limit.window_us, 0),
    };
    let allowed = mode == Mode::Force || seen.count.saturating_add(cost) <= limit.limit;

    let next = if cost == 0 {
        None
    } else if !allowed {
        // A denial leaves no trace, except that a clock which stepped back is noticed once.
        stored
            .is_some_and(|stored| now_us < stored.start_us)
            .then_some(seen)
    } else {
        let count = seen.count.saturating_add(cost).min(MAX_USAGE);
        Some(State::around(now_us, limit.window_us, count))
    };

    let after = next.as_ref().unwrap_or(&seen);
    let spent = if allowed { cost } else { 0 };
    let until_ms = |us: u64| ceil_ms(us - now_us);
    Outcome {
        decision: Decision {
            allowed,
            index: 0,
            limit: limit.limit,
            remaining: limit.limit.saturating_sub(seen.count.saturating_add(spent)),
            retry_after_ms: match limit.limit.checked_sub(cost) {
                _ if allowed => 0,
                None => NEVER,
                Some(_) => until_ms(seen.end_us()) as i64,
            },
            reset_after_ms: if after.count > 0 {
                until_ms(after.end_us())
            } else {
                0
            },
        },
        expiry: Expiry {
            at_ms: after.expire_at_ms(),
            unmoved: stored.is_some_and(|stored| stored.end_us() == after.end_us()),
        },
        next,
    }
}
