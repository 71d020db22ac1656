//! Fixed windows, aligned to the Unix epoch: a window of a day starts at 00:00 UTC.

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, PackedLimit, PackedState};
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms};
use crate::encoding::{Fields, LOW_BITS, Packed, Tag};
use crate::inspect::StateField;
use crate::relocate::{Relocate, Walk};
use crate::units::{self, DurationText, MAX_TIME_US, MAX_USAGE};
use crate::{Error, Scale, syntax};

/// At most `limit` units in each `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLimit {
    limit: u64,
    window_us: u64,
}

impl FixedLimit {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: units::check_count(limit, Error::Limit)?,
            window_us: units::period_us(window_ms, Error::Window)?,
        })
    }

    /// Units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window in milliseconds.
    #[must_use]
    pub const fn window_ms(&self) -> u64 {
        self.window_us / 1000
    }
}

impl<'a> AlgorithmLimit<'a> for FixedLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "FIXED",
        command: Some(c"RL.FIXED"),
        type_name: c"rl-fixed-",
        parameters: &[Parameter::integer(c"limit"), Parameter::duration(c"window")],
        options: &[],
        summary: c"Checks and counts a call against a window aligned to the Unix epoch.",
        complexity: c"O(1)",
    };

    type Owned = Self;

    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: syntax::parse_count(args.next(), Error::Limit)?,
            window_us: syntax::parse_duration_us(args.next(), Error::Window)?,
        })
    }

    fn set_option(&mut self, _token: &[u8], _value: Option<&[u8]>) -> Result<(), Error> {
        Err(Error::UnknownOption)
    }

    fn limit_value(&self) -> u64 {
        self.limit
    }

    fn span_us(&self) -> u64 {
        self.window_us
    }

    fn scaled(self, by: Scale) -> Self {
        Self {
            limit: by.apply(self.limit),
            ..self
        }
    }

    fn into_owned(self) -> (Self, &'a [u8]) {
        (self, &[])
    }
}

impl fmt::Display for FixedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = DurationText::from_us(self.window_us);
        write!(f, "{} {} {window}", Self::DESCRIPTOR.name, self.limit)
    }
}

/// Usage in the window that starts at `start_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedState {
    start_us: u64,
    window_us: u64,
    count: u64,
}

impl FixedState {
    /// The window around `now_us`, with `count` units in use.
    fn around(now_us: u64, window_us: u64, count: u64) -> Self {
        Self {
            start_us: now_us - now_us % window_us,
            window_us,
            count,
        }
    }

    /// The same usage at `now_us`: it ends with its window, but is kept if the clock stepped back.
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
}

impl PackedLimit for FixedLimit {
    type State = FixedState;

    #[inline]
    fn evaluate(
        &self,
        stored: Option<&FixedState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<FixedState> {
        let now_us = now_us.min(MAX_TIME_US);
        let rolled = match stored {
            Some(stored) => stored.at(now_us),
            None => FixedState::around(now_us, self.window_us, 0),
        };
        let allowed = mode == Mode::Force || rolled.count.saturating_add(cost) <= self.limit;

        let update = if cost == 0 {
            None
        } else if !allowed {
            // A denial writes nothing, except that a step back of the clock is recorded once.
            stored
                .is_some_and(|stored| now_us < stored.start_us)
                .then_some(rolled)
        } else {
            let count = rolled.count.saturating_add(cost).min(MAX_USAGE);
            Some(FixedState::around(now_us, self.window_us, count))
        };

        let after = update.as_ref().unwrap_or(&rolled);
        let until_ms = |us: u64| ceil_ms(us - now_us);
        Evaluation {
            decision: Decision {
                reset_after_ms: if after.count > 0 {
                    until_ms(after.end_us())
                } else {
                    0
                },
                ..Decision::new(self.limit, rolled.count, cost, allowed, |_room| {
                    until_ms(rolled.end_us())
                })
            },
            expiry: Expiry {
                at_ms: after.expire_at_ms(),
                unchanged: stored.is_some_and(|stored| stored.end_us() == after.end_us()),
            },
            update,
        }
    }
}

impl AlgorithmState for FixedState {
    type Refunded = Self;

    fn span_us(&self) -> u64 {
        self.window_us
    }

    fn expire_at_ms(&self) -> u64 {
        ceil_ms(self.end_us())
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        vec![
            StateField::ms("window_ms", self.window_us),
            StateField::ms("window_started_at_ms", self.start_us),
            StateField::number("count", self.count),
            StateField::number("used", self.at(now_us).count),
        ]
    }

    fn refund(&self, now_us: u64, units: u64) -> Result<(u64, Option<Self>), Error> {
        let rolled = self.at(now_us);
        let refunded = units.min(rolled.count);
        let count = rolled.count - refunded;
        Ok((refunded, (count > 0).then_some(Self { count, ..rolled })))
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        false
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn relocate<R: Relocate>(&mut self, _walk: &mut Walk<R>) {}
}

impl PackedState for FixedState {
    fn encode(&self) -> Packed {
        if self.count >> LOW_BITS == 0
            && let Some(packed) =
                Packed::compact(Tag::FIXED, self.start_us, self.window_us, self.count)
        {
            return packed;
        }
        Packed::wide(
            Tag::FIXED,
            self.start_us,
            self.window_us,
            0,
            self.count.into(),
        )
    }

    fn decode(fields: Fields) -> Result<Self, Error> {
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
}
