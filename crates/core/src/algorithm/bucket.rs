//! Token bucket, stored as debt: the tokens that were taken and have not been refilled yet.
//!
//! Debt is counted in parts of a token, `1 / period` (in microseconds) each. Every microsecond refills exactly
//! `refill` parts, and one token is exactly `period` parts, so nothing is ever rounded, however often a key is checked.

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, PackedLimit, PackedState};
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms, wait_ms};
use crate::encoding::{EXTRA_BITS, Fields, LOW_BITS, Packed, Tag};
use crate::inspect::StateField;
use crate::math::{div_ceil, mul_div_ceil, to_u64};
use crate::relocate::{Relocate, Walk};
use crate::units::{self, DurationText, MAX_TIME_US, MAX_USAGE};
use crate::{Error, Scale, syntax};

/// About 68 years: no key lives longer.
const FOREVER_S: u64 = (1 << EXTRA_BITS) - 1;

/// A wait that is longer than any key lives.
const FOREVER_MS: i64 = FOREVER_S as i64 * 1000;

/// Low bits of a packed state: 12 of expiry (68 minutes), then the debt.
const DEBT_BITS: u32 = LOW_BITS - 12;

/// At most `capacity` units at once; `refill` of them are added evenly over each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketLimit {
    capacity: u64,
    refill: u64,
    period_us: u64,
}

impl BucketLimit {
    /// A capacity of 0 blocks the key. `refill` is at least 1.
    pub fn new(capacity: u64, refill: u64, period_ms: u64) -> Result<Self, Error> {
        if refill == 0 {
            return Err(Error::Refill);
        }
        Ok(Self {
            capacity: units::check_count(capacity, Error::Capacity)?,
            refill: units::check_count(refill, Error::Refill)?,
            period_us: units::period_us(period_ms, Error::Period)?,
        })
    }

    /// The largest burst.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Units that are refilled in each period.
    #[must_use]
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// The period in milliseconds.
    #[must_use]
    pub const fn period_ms(&self) -> u64 {
        self.period_us / 1000
    }

    pub(crate) fn write_parameters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = DurationText::from_us(self.period_us);
        write!(f, "{} {} {period}", self.capacity, self.refill)
    }

    /// The debt at `now_us`, in parts.
    pub(crate) fn debt_at(&self, stored: &BucketState, now_us: u64) -> u128 {
        // After a step back of the clock nothing drains: the debt counts as incurred now.
        let elapsed = now_us.saturating_sub(stored.updated_at_us);
        let drained = u128::from(elapsed) * u128::from(self.refill);
        stored.debt_in(self.period_us).saturating_sub(drained)
    }

    fn parts(&self, tokens: u64) -> u128 {
        u128::from(tokens) * u128::from(self.period_us)
    }

    /// The time until `parts` have been refilled.
    pub(crate) fn drain_us(&self, parts: u128) -> u128 {
        div_ceil(parts, self.refill)
    }
}

impl<'a> AlgorithmLimit<'a> for BucketLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "BUCKET",
        command: Some(c"RL.BUCKET"),
        type_name: c"rl-bucket",
        parameters: &[
            Parameter::integer(c"capacity"),
            Parameter::integer(c"refill"),
            Parameter::duration(c"period"),
        ],
        options: &[],
        summary: c"Checks a call against a token bucket and takes its tokens.",
        complexity: c"O(1)",
    };

    type Owned = Self;

    #[inline(always)]
    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let capacity = syntax::parse_count(args.next(), Error::Capacity)?;
        let refill = syntax::parse_count(args.next(), Error::Refill)?;
        if refill == 0 {
            return Err(Error::Refill);
        }
        Ok(Self {
            capacity,
            refill,
            period_us: syntax::parse_duration_us(args.next(), Error::Period)?,
        })
    }

    fn set_option(&mut self, _token: &[u8], _value: Option<&[u8]>) -> Result<(), Error> {
        Err(Error::UnknownOption)
    }

    fn limit_value(&self) -> u64 {
        self.capacity
    }

    fn span_us(&self) -> u64 {
        self.period_us
    }

    fn scaled(self, by: Scale) -> Self {
        Self {
            capacity: by.apply(self.capacity),
            refill: by.apply(self.refill),
            ..self
        }
    }

    fn into_owned(self) -> (Self, &'a [u8]) {
        (self, &[])
    }
}

impl fmt::Display for BucketLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", Self::DESCRIPTOR.name)?;
        self.write_parameters(f)
    }
}

/// The debt as it stood at `updated_at_us`, in parts of `1 / period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketState {
    updated_at_us: u64,
    period_us: u64,
    debt: u128,
    /// The key's expiry, in seconds after the second of `updated_at_us`. Every call moves the time at which the bucket is
    /// full again; because that is rounded up to a second, most calls on a busy key need not move the expiry. It is
    /// stored because asking the server costs a lookup, and the refill that it depends on is not part of the state.
    expires_in_s: u64,
}

impl BucketState {
    /// The debt in parts of another period, rounded up to a whole part.
    fn debt_in(&self, period_us: u64) -> u128 {
        if period_us == self.period_us {
            return self.debt;
        }
        let old = u128::from(self.period_us);
        let (tokens, parts) = (self.debt / old, (self.debt % old) as u64);
        tokens * u128::from(period_us) + mul_div_ceil(parts, period_us, self.period_us)
    }

    pub(super) fn encode_as(&self, tag: Tag) -> Packed {
        if self.debt >> DEBT_BITS == 0 && self.expires_in_s >> (LOW_BITS - DEBT_BITS) == 0 {
            let low = self.expires_in_s << DEBT_BITS | self.debt as u64;
            if let Some(packed) = Packed::compact(tag, self.updated_at_us, self.period_us, low) {
                return packed;
            }
        }
        let (time_us, span_us) = (self.updated_at_us, self.period_us);
        Packed::wide(tag, time_us, span_us, self.expires_in_s, self.debt)
    }

    /// An upper bound of the debt. The rate is not stored, but the key expires within a second of the time at which
    /// the debt is paid off, so the time left bounds the debt left.
    fn debt_at_most(&self, now_us: u64) -> u64 {
        let expire_at_us = self.expire_at_ms() * 1000;
        let whole = expire_at_us.saturating_sub(self.updated_at_us).max(1);
        let left = expire_at_us.saturating_sub(now_us).min(whole);
        let debt = to_u64(div_ceil(self.debt, self.period_us));
        match self.expires_in_s {
            FOREVER_S => debt,
            _ => to_u64(mul_div_ceil(debt, left, whole)),
        }
    }
}

impl PackedLimit for BucketLimit {
    type State = BucketState;

    fn evaluate(
        &self,
        stored: Option<&BucketState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<BucketState> {
        let now_us = now_us.min(MAX_TIME_US);
        let debt = stored.map_or(0, |stored| self.debt_at(stored, now_us));
        // Capacity and cost are whole tokens, so debt rounded up to tokens decides exactly.
        let used = to_u64(div_ceil(debt, self.period_us));
        let allowed = mode == Mode::Force || used.saturating_add(cost) <= self.capacity;

        let charged = if allowed { cost } else { 0 };
        let debt_after = (debt + self.parts(charged)).min(self.parts(MAX_USAGE));
        let drains_in_us = self.drain_us(debt_after);
        let reset_after_ms = wait_ms(drains_in_us);
        let decision = Decision {
            reset_after_ms,
            ..Decision::new(self.capacity, used, cost, allowed, |room| {
                wait_ms(self.drain_us(debt - self.parts(room)))
            })
        };
        let retry_after_ms = decision.retry_after_ms;
        let full_s = (ceil_ms(now_us) + reset_after_ms).div_ceil(1000);
        let after = BucketState {
            updated_at_us: now_us,
            period_us: self.period_us,
            debt: debt_after,
            expires_in_s: (full_s - now_us / 1_000_000).min(FOREVER_S),
        };

        // A denial writes nothing, except in two cases in which its answer would otherwise be wrong. A clock that
        // stepped back is recorded once: if every call found it again, the wait would start over each time. And after
        // the rate was lowered, the key would expire while it still has debt. The times are compared unrounded: at one
        // rate, every call computes the same time at which the debt is paid off, but only before rounding.
        let must_correct = |stored: &BucketState| {
            let matters_for_us = match stored.expires_in_s {
                FOREVER_S if retry_after_ms < FOREVER_MS => retry_after_ms.max(0) as u128 * 1000,
                FOREVER_S => 0,
                _ => drains_in_us,
            };
            let matters_until_us = u128::from(now_us) + matters_for_us;
            let outlives = matters_until_us > u128::from(stored.expire_at_ms()) * 1000;
            now_us < stored.updated_at_us || (matters_for_us > 0 && outlives)
        };
        let store = cost > 0 && (allowed || stored.is_some_and(must_correct));

        Evaluation {
            decision,
            update: store.then_some(after),
            expiry: Expiry {
                at_ms: after.expire_at_ms(),
                unchanged: stored
                    .is_some_and(|stored| stored.expire_at_ms() == after.expire_at_ms()),
            },
        }
    }
}

impl AlgorithmState for BucketState {
    type Refunded = Self;

    fn span_us(&self) -> u64 {
        self.period_us
    }

    fn expire_at_ms(&self) -> u64 {
        (self.updated_at_us / 1_000_000 + self.expires_in_s) * 1000
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        let debt = to_u64(div_ceil(self.debt, self.period_us));
        vec![
            StateField::ms("period_ms", self.period_us),
            StateField::ms("updated_at_ms", self.updated_at_us),
            StateField::number("debt_at_update", debt),
            StateField::number("used", self.debt_at_most(now_us)),
        ]
    }

    /// Subtracts units from the debt as it was stored: how much of it has been refilled since depends on the rate,
    /// which the next call supplies.
    fn refund(&self, now_us: u64, units: u64) -> Result<(u64, Option<Self>), Error> {
        let debt_now = self.debt_at_most(now_us);
        let refunded = units.min(debt_now);
        let parts = u128::from(refunded) * u128::from(self.period_us);
        let debt = self.debt.saturating_sub(parts);
        if debt == 0 || refunded == debt_now {
            return Ok((refunded, None));
        }
        // The rest drains in its share of the time, rounded up; rounding to whole seconds adds at most one.
        let share = u128::from(self.expires_in_s) * ((debt >> 8) + 1);
        let expires_in_s = to_u64(share.div_ceil((self.debt >> 8).max(1))) + 1;
        let left = Self {
            debt,
            // If the time was cut short, its share is unknown.
            expires_in_s: match self.expires_in_s {
                FOREVER_S => FOREVER_S,
                known => expires_in_s.min(known),
            },
            ..*self
        };
        Ok((refunded, Some(left)))
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

impl PackedState for BucketState {
    fn encode(&self) -> Packed {
        self.encode_as(Tag::BUCKET)
    }

    fn decode(fields: Fields) -> Result<Self, Error> {
        let (expires_in_s, debt) = if fields.wide {
            (fields.extra, fields.low)
        } else {
            let low = fields.low as u64;
            (low >> DEBT_BITS, u128::from(low & ((1 << DEBT_BITS) - 1)))
        };
        if debt > u128::from(MAX_USAGE) * u128::from(fields.span_us) {
            return Err(Error::DamagedState);
        }
        Ok(Self {
            updated_at_us: fields.time_us,
            period_us: fields.span_us,
            debt,
            expires_in_s,
        })
    }
}
