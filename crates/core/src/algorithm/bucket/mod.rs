//! Token bucket, stored as debt: the tokens that were taken and have not been refilled yet.
//!
//! Debt is counted in parts of a token, `1 / period` (in microseconds) each. Every microsecond refills exactly
//! `refill` parts, and one token is exactly `period` parts, so nothing is ever rounded, however often a key is checked.
//! `state.rs` has the state that is kept, and when its key expires.

mod mark;
mod state;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, PackedLimit};
use crate::decision::{Decision, Evaluation, Expiry, Mode, wait_ms};
use crate::math::{div_ceil, to_u64};
use crate::units::{self, DurationText, MAX_TIME_US, MAX_USAGE};
use crate::{Error, Scale, syntax};

pub use state::BucketState;
use state::{LIFETIME_US, Parts};

/// The longest time for which a key is kept.
const LIFETIME_MS: i64 = (LIFETIME_US / 1000) as i64;

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
    #[inline(always)]
    fn debt_at(&self, stored: &BucketState, now_us: u64) -> u128 {
        // After a step back of the clock nothing drains: the debt counts as incurred now.
        let elapsed = now_us.saturating_sub(stored.updated_at_us);
        let drained = u128::from(elapsed) * u128::from(self.refill);
        stored.debt_in(self.period_us).saturating_sub(drained)
    }

    fn parts(&self, tokens: u64) -> u128 {
        u128::from(tokens) * u128::from(self.period_us)
    }

    /// The time until `parts` have been refilled.
    fn drain_us(&self, parts: u128) -> u128 {
        div_ceil(parts, self.refill)
    }

    /// Decides a call, and returns the wait until the debt from before the call is paid off.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        stored: Option<&BucketState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> (Evaluation<BucketState>, impl FnOnce() -> u64) {
        let now_us = now_us.min(MAX_TIME_US);
        let debt = stored.map_or(0, |stored| self.debt_at(stored, now_us));
        // Capacity and cost are whole tokens, so debt rounded up to tokens decides exactly.
        let used = to_u64(div_ceil(debt, self.period_us));
        let allowed = mode == Mode::Force || used.saturating_add(cost) <= self.capacity;

        let charged = if allowed { cost } else { 0 };
        let debt_after = (debt + self.parts(charged)).min(self.parts(MAX_USAGE));
        let drains_in_us = self.drain_us(debt_after);
        let decision = Decision {
            reset_after_ms: wait_ms(drains_in_us),
            ..Decision::new(self.capacity, used, cost, allowed, |room| {
                wait_ms(self.drain_us(debt - self.parts(room)))
            })
        };
        let after = BucketState {
            updated_at_us: now_us,
            period_us: self.period_us,
            refill: self.refill,
            debt: Parts::new(debt_after),
            expiry_step: BucketState::step_for(self.parts(self.capacity), self.refill),
            expiry_phase: match stored {
                Some(stored) => stored.expiry_phase,
                None => BucketState::phase_of_new(now_us),
            },
            mark: None,
        };
        let store = cost > 0
            && (allowed
                || stored.is_some_and(|stored| {
                    self.must_correct(stored, now_us, drains_in_us, decision.retry_after_ms)
                }));
        let expire_at_ms = after.expiry_after(drains_in_us);
        let expiry = Expiry {
            at_ms: expire_at_ms,
            unchanged: stored.is_some_and(|stored| {
                stored.expiry_step == after.expiry_step && stored.expires_at(expire_at_ms)
            }),
        };
        let marked = || BucketState {
            mark: stored
                .and_then(|stored| stored.mark_after(now_us, self.period_us, debt, charged)),
            ..after
        };
        let evaluation = Evaluation {
            decision,
            update: store.then(marked),
            expiry,
        };
        (evaluation, move || wait_ms(self.drain_us(debt)))
    }

    /// A denial writes nothing, except in two cases in which its answer would otherwise be wrong. A clock that stepped back
    /// is recorded once: if every call found it again, the wait would start over each time. And after the rate was lowered,
    /// the key would expire while it still has debt.
    fn must_correct(
        &self,
        stored: &BucketState,
        now_us: u64,
        drains_in_us: u128,
        retry_after_ms: i64,
    ) -> bool {
        if now_us < stored.updated_at_us {
            return true;
        }
        let matters_for_us = match stored.outlives_its_key() {
            // At one rate, every call finds the same moment at which the debt is paid off, and the expiry is not before it.
            false if stored.refill == self.refill && stored.period_us == self.period_us => 0,
            false => drains_in_us,
            // A key that is gone after 68 years at the latest need only outlive the wait that is reported.
            true if retry_after_ms < LIFETIME_MS => retry_after_ms.max(0) as u128 * 1000,
            true => 0,
        };
        let matters_until_us = u128::from(now_us) + matters_for_us;
        matters_for_us > 0 && matters_until_us > u128::from(stored.expire_at_us())
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

impl PackedLimit for BucketLimit {
    type State = BucketState;

    fn evaluate(
        &self,
        stored: Option<&BucketState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<BucketState> {
        let (evaluation, _) = self.decide(stored, now_us, cost, mode);
        evaluation
    }
}
