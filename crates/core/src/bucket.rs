//! Token bucket, kept as debt: what has been taken and has not yet flowed back.
//!
//! Debt is counted in parts of a token, `1 / period` (in microseconds) each. One microsecond brings back
//! exactly `refill` parts and one token is exactly `period` parts, so nothing is ever rounded however
//! often a key is touched.

use std::fmt;

use crate::bounds::{self, MAX_TIME_US, MAX_USAGE};
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, ceil_ms, wait_ms};
use crate::duration::Duration;
use crate::encoding::{EXTRA_BITS, Encoded, Fields, LOW_BITS};
use crate::inspect::Field;
use crate::math::{div_ceil, mul_div_ceil, to_u64};
use crate::shape::{Scale, Shape};
use crate::{Error, parse};

pub(crate) const NAME: &str = "BUCKET";
pub(crate) const TAG: u8 = 2;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 3;

/// Keys expire by the full second.
const EXPIRY_STEP_MS: u64 = 1000;

/// Two generations: no key is kept longer.
const FOR_EVER_S: u64 = (1 << EXTRA_BITS) - 1;

/// Low bits of a packed state: 12 of expiry (68 minutes), then the debt.
const DEBT_BITS: u32 = LOW_BITS - 12;

/// At most `capacity` units at once; `refill` of them flow in evenly over each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    capacity: u64,
    refill: u64,
    period_us: u64,
}

impl Limit {
    /// A capacity of 0 blocks the key. `refill` is at least 1.
    pub fn new(capacity: u64, refill: u64, period_ms: u64) -> Result<Self, Error> {
        if refill == 0 {
            return Err(Error::Refill);
        }
        Ok(Self {
            capacity: bounds::count(capacity, Error::Capacity)?,
            refill: bounds::count(refill, Error::Refill)?,
            period_us: bounds::period_us(period_ms, Error::Period)?,
        })
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            amounts: [Some(self.capacity), Some(self.refill)],
            span_us: self.period_us,
        }
    }

    pub(crate) fn scaled(self, by: Scale) -> Self {
        Self {
            capacity: by.apply(self.capacity),
            refill: by.apply(self.refill),
            ..self
        }
    }

    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        let capacity = parse::count(words.next(), Error::Capacity)?;
        let refill = parse::count(words.next(), Error::Refill)?;
        if refill == 0 {
            return Err(Error::Refill);
        }
        Ok(Self {
            capacity,
            refill,
            period_us: parse::duration_us(words.next(), Error::Period)?,
        })
    }

    pub(crate) fn write_parameters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = Duration::from_us(self.period_us);
        write!(f, "{} {} {period}", self.capacity, self.refill)
    }

    /// What a key owes at `now`, in parts.
    pub(crate) fn owed(&self, stored: &State, now_us: u64) -> u128 {
        // A clock that stepped back drains nothing: the debt counts as incurred now.
        let elapsed = now_us.saturating_sub(stored.stamp_us);
        let drained = u128::from(elapsed) * u128::from(self.refill);
        stored.debt_in(self.period_us).saturating_sub(drained)
    }

    fn parts(&self, tokens: u64) -> u128 {
        u128::from(tokens) * u128::from(self.period_us)
    }

    /// Time until `parts` have flowed back.
    pub(crate) fn drain_us(&self, parts: u128) -> u128 {
        div_ceil(parts, self.refill)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} ")?;
        self.write_parameters(f)
    }
}

/// The debt as it stood at `stamp_us`, in parts of `1 / period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    stamp_us: u64,
    period_us: u64,
    debt: u128,
    /// The key's expiry, in seconds from the stamp's. Every call moves the moment at which the bucket is full
    /// again; by the full second, most calls on a busy key need not move the expiry. Remembered because
    /// asking the server costs a lookup, and the refill that it depends on is not in the state.
    expires_in_s: u64,
}

impl State {
    /// The debt in parts of another period; what does not divide counts as one part more.
    fn debt_in(&self, period_us: u64) -> u128 {
        if period_us == self.period_us {
            return self.debt;
        }
        let old = u128::from(self.period_us);
        let (tokens, parts) = (self.debt / old, (self.debt % old) as u64);
        tokens * u128::from(period_us) + mul_div_ceil(parts, period_us, self.period_us)
    }

    pub(crate) fn span_us(&self) -> u64 {
        self.period_us
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        (self.stamp_us / 1_000_000 + self.expires_in_s) * 1000
    }

    pub(crate) fn encode(&self) -> Encoded {
        self.encode_as(TAG)
    }

    pub(crate) fn encode_as(&self, tag: u8) -> Encoded {
        if self.debt >> DEBT_BITS == 0 && self.expires_in_s >> (LOW_BITS - DEBT_BITS) == 0 {
            let low = self.expires_in_s << DEBT_BITS | self.debt as u64;
            if let Some(packed) = Encoded::packed(tag, self.stamp_us, self.period_us, low) {
                return packed;
            }
        }
        let (time_us, span_us) = (self.stamp_us, self.period_us);
        Encoded::wide(tag, time_us, span_us, self.expires_in_s, self.debt)
    }

    /// Takes units off the debt as it stood when it was stored: how much of it has flowed back since
    /// depends on the rate, which the next call brings.
    pub(crate) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let owed = self.owed_at_most(now_us);
        let given = units.min(owed);
        let back = u128::from(given) * u128::from(self.period_us);
        let debt = self.debt.saturating_sub(back);
        if debt == 0 || given == owed {
            return (given, None);
        }
        // The rest drains in its share of the time, to which whole seconds add at most one.
        let share = u128::from(self.expires_in_s) * (debt >> 8).max(1);
        let expires_in_s = to_u64(share.div_ceil((self.debt >> 8).max(1))) + 1;
        let left = Self {
            debt,
            // Of a time that was cut short, the share is unknown.
            expires_in_s: match self.expires_in_s {
                FOR_EVER_S => FOR_EVER_S,
                known => expires_in_s.min(known),
            },
            ..*self
        };
        (given, Some(left))
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        let debt = to_u64(div_ceil(self.debt, self.period_us));
        vec![
            Field::ms("period_ms", self.period_us),
            Field::ms("stored_at_ms", self.stamp_us),
            Field::number("debt_then", debt),
            Field::number("used", self.owed_at_most(now_us)),
        ]
    }

    /// The rate is not stored. But the key expires within a second of the moment at which nothing is owed any more,
    /// so what is left of its time says how much is left of the debt, at most.
    fn owed_at_most(&self, now_us: u64) -> u64 {
        let expire_at_us = self.expire_at_ms() * 1000;
        let whole = expire_at_us.saturating_sub(self.stamp_us).max(1);
        let left = expire_at_us.saturating_sub(now_us).min(whole);
        let debt = to_u64(div_ceil(self.debt, self.period_us));
        match self.expires_in_s {
            FOR_EVER_S => debt,
            _ => to_u64(mul_div_ceil(debt, left, whole)),
        }
    }

    pub(crate) fn decode(fields: Fields) -> Result<Self, Error> {
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
            stamp_us: fields.time_us,
            period_us: fields.span_us,
            debt,
            expires_in_s,
        })
    }
}

pub(crate) fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<State> {
    let now_us = now_us.min(MAX_TIME_US);
    let debt = stored.map_or(0, |stored| limit.owed(stored, now_us));
    // Capacity and cost are whole tokens, so debt rounded up to tokens decides exactly.
    let used = to_u64(div_ceil(debt, limit.period_us));
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.capacity;

    let spent = if allowed { cost } else { 0 };
    let debt_after = (debt + limit.parts(spent)).min(limit.parts(MAX_USAGE));
    let reset_after_ms = wait_ms(limit.drain_us(debt_after));
    let full_s = (ceil_ms(now_us) + reset_after_ms).div_ceil(1000);
    let after = State {
        stamp_us: now_us,
        period_us: limit.period_us,
        debt: debt_after,
        expires_in_s: (full_s - now_us / 1_000_000).min(FOR_EVER_S),
    };

    // A denial leaves no trace, but for two cases in which its answer would not come true. A clock that
    // stepped back is noticed once: were it noticed anew by every call, the wait would begin anew with
    // each. And after the rate was lowered, the key would expire while it still owes.
    let untrue = |stored: &State| {
        let outlives = after.expire_at_ms() > stored.expire_at_ms() + EXPIRY_STEP_MS;
        now_us < stored.stamp_us || (debt > 0 && outlives)
    };
    let store = cost > 0 && (allowed || stored.is_some_and(untrue));

    Outcome {
        decision: Decision {
            allowed,
            index: 0,
            limit: limit.capacity,
            remaining: limit.capacity.saturating_sub(used.saturating_add(spent)),
            retry_after_ms: match limit.capacity.checked_sub(cost) {
                _ if allowed => 0,
                None => NEVER,
                Some(room) => wait_ms(limit.drain_us(debt - limit.parts(room))) as i64,
            },
            reset_after_ms,
        },
        next: store.then_some(after),
        expiry: Expiry {
            at_ms: after.expire_at_ms(),
            unmoved: stored.is_some_and(|stored| stored.expire_at_ms() == after.expire_at_ms()),
        },
    }
}
