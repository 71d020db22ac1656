//! The debt that is kept, its bits, and when its key expires.
//!
//! Every call moves the moment at which the debt is paid off. The expiry does not follow it: it is on a grid, one step
//! after the first moment not before that one. So busy keys rarely move their expiry, and a fast bucket that is called at
//! least once per step is never deleted and re-created. A step is 15 s, or longer for buckets that take long to drain. The
//! grid of each key is shifted by its *phase*, so that keys do not all expire at once.

use super::mark::Mark;
use crate::Error;
use crate::algorithm::traits::{AlgorithmState, PackedState};
use crate::decision::ceil_ms;
use crate::encoding::{Fields, LOW_BITS, Packed, Tag};
use crate::inspect::StateField;
use crate::math::{div_ceil, mul_div_ceil, to_u64};
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, ChargedDebt, Origin};
use crate::units::{MAX_COUNT, MAX_USAGE};

/// About 68 years: no key is kept for longer.
pub(super) const LIFETIME_US: u64 = ((1 << 31) - 1) * 1_000_000;

/// The steps of the grids. A key outlives its debt by one to two steps: at most 30 s, or a quarter of the time that a full
/// bucket takes to drain.
const EXPIRY_STEPS_US: [u64; 3] = [15_000_000, 120_000_000, 960_000_000];

/// How many grids of expiries there are.
const EXPIRY_PHASES: u8 = 15;

// Low bits of a compact state, from the top: the step, the phase, the refill as amount and power of ten, and the debt in units of
// that power of ten.
const STEP_BITS: u32 = 2;
const PHASE_BITS: u32 = 4;
const AMOUNT_BITS: u32 = 10;
const POWER_BITS: u32 = 2;
const DEBT_BITS: u32 = LOW_BITS - STEP_BITS - PHASE_BITS - AMOUNT_BITS - POWER_BITS;

/// Parts of a token, as two halves: a `u128` would make every state larger, because of its alignment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts([u64; 2]);

impl Parts {
    #[inline(always)]
    pub(super) const fn new(parts: u128) -> Self {
        Self([(parts >> 64) as u64, parts as u64])
    }

    #[inline(always)]
    const fn get(self) -> u128 {
        (self.0[0] as u128) << 64 | self.0[1] as u128
    }
}

/// The debt as it stood at `updated_at_us`, in parts of `1 / period_us`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    pub(super) updated_at_us: u64,
    pub(super) period_us: u64,
    /// Parts that are refilled in each microsecond, under the limit of the last call that was stored.
    pub(super) refill: u64,
    pub(super) debt: Parts,
    /// Which of [`EXPIRY_STEPS_US`] applies, as the limit of the last call determines it.
    pub(super) expiry_step: u8,
    /// How far the grid is shifted: chosen for a new key, and kept.
    pub(super) expiry_phase: u8,
    /// Set if units of reservations may be part of the debt.
    pub(super) mark: Option<Box<Mark>>,
}

impl BucketState {
    #[inline(always)]
    fn debt(&self) -> u128 {
        self.debt.get()
    }

    /// The mark after a call that adds `cost` to `debt`, which is what this state's debt has become. It is dropped where
    /// that does not tell what has drained: if all of it has, the period has changed, or the clock has stepped back.
    #[inline(always)]
    pub(super) fn mark_after(
        &self,
        now_us: u64,
        period_us: u64,
        debt: u128,
        cost: u64,
    ) -> Option<Box<Mark>> {
        let mark = self.mark.as_ref()?;
        if debt == 0 || period_us != self.period_us || now_us < self.updated_at_us {
            return None;
        }
        mark.after_charge(debt, period_us, cost)
    }

    /// The phase of a new key. Even keys that are created within a millisecond get different ones.
    pub(super) fn phase_of_new(now_us: u64) -> u8 {
        (now_us % u64::from(EXPIRY_PHASES)) as u8
    }

    /// The debt in parts of another period, rounded up to a whole part.
    #[inline(always)]
    pub(super) fn debt_in(&self, period_us: u64) -> u128 {
        if period_us == self.period_us {
            return self.debt();
        }
        self.convert_debt(period_us)
    }

    #[cold]
    fn convert_debt(&self, period_us: u64) -> u128 {
        let old = u128::from(self.period_us);
        let (tokens, parts) = (self.debt() / old, (self.debt() % old) as u64);
        tokens * u128::from(period_us) + mul_div_ceil(parts, period_us, self.period_us)
    }

    /// The debt at `now_us` at the stored rate.
    fn debt_at(&self, now_us: u64) -> u128 {
        let elapsed = now_us.saturating_sub(self.updated_at_us);
        let drained = u128::from(elapsed) * u128::from(self.refill);
        self.debt().saturating_sub(drained)
    }

    fn parts(&self, units: u64) -> u128 {
        u128::from(units) * u128::from(self.period_us)
    }

    /// Whole units, rounded up.
    fn units(&self, parts: u128) -> u64 {
        to_u64(div_ceil(parts, self.period_us))
    }

    /// The whole units of a request of which nothing has drained in the time since they were charged.
    fn undrained(&self, request: &RefundRequest) -> u64 {
        let Some(age_us) = request.age_us else {
            return request.units;
        };
        let charged = u128::from(request.units) * u128::from(self.period_us);
        let drained = u128::from(age_us) * u128::from(self.refill);
        let left = charged.saturating_sub(drained);
        to_u64(left / u128::from(self.period_us))
    }

    /// The time until the debt is paid off, from the update on.
    fn drain_us(&self) -> u128 {
        div_ceil(self.debt(), self.refill)
    }

    /// Whether the debt takes longer to pay off than any key is kept.
    pub(super) fn outlives_its_key(&self) -> bool {
        self.debt() > u128::from(LIFETIME_US) * u128::from(self.refill)
    }

    pub(super) fn expire_at_us(&self) -> u64 {
        self.expiry_after(self.drain_us()) * 1000
    }

    /// The step for a bucket that takes `capacity` parts, `refill` of them per microsecond, to drain.
    #[inline(always)]
    pub(super) fn step_for(capacity: u128, refill: u64) -> u8 {
        let takes = |us: u64| capacity >= u128::from(us) * u128::from(refill);
        // Two steps are a quarter of the time.
        u8::from(takes(8 * EXPIRY_STEPS_US[1])) + u8::from(takes(8 * EXPIRY_STEPS_US[2]))
    }

    fn step_us(&self) -> u64 {
        EXPIRY_STEPS_US[usize::from(self.expiry_step).min(EXPIRY_STEPS_US.len() - 1)]
    }

    /// The expiry (Unix time, in milliseconds) if the debt is paid off `drain_us` after the update.
    #[inline(always)]
    pub(super) fn expiry_after(&self, drain_us: u128) -> u64 {
        let drained_at_us = self.updated_at_us + to_u64(drain_us).min(LIFETIME_US);
        // Inlined for each step, so that the divisions are by constants.
        let on_grid = |step_us: u64| {
            let shift_us = u64::from(self.expiry_phase) * (step_us / u64::from(EXPIRY_PHASES));
            let steps = drained_at_us.saturating_sub(shift_us).div_ceil(step_us);
            ((steps + 1) * step_us + shift_us) / 1000
        };
        match self.expiry_step {
            0 => on_grid(EXPIRY_STEPS_US[0]),
            1 => on_grid(EXPIRY_STEPS_US[1]),
            _ => on_grid(EXPIRY_STEPS_US[2]),
        }
    }

    /// Whether this is the key's expiry, given a moment on the key's grid. Multiplies where computing the expiry would
    /// divide.
    #[inline(always)]
    pub(super) fn expires_at(&self, at_ms: u64) -> bool {
        let is_drained_by = |at_us: u64| match at_us.checked_sub(self.updated_at_us) {
            Some(LIFETIME_US..) => true,
            Some(elapsed) => self.debt() <= u128::from(elapsed) * u128::from(self.refill),
            None => false,
        };
        let step_us = self.step_us();
        // Before the first moment of the grid there is none by which the debt could be paid off.
        let steps_before = |steps: u64| (at_ms * 1000).checked_sub(steps * step_us);
        steps_before(1).is_some_and(is_drained_by) && !steps_before(2).is_some_and(is_drained_by)
    }

    #[inline(always)]
    pub(in crate::algorithm) fn encode_as(&self, tag: Tag) -> Packed {
        if let Some(low) = self.compact_low()
            && let Some(packed) = Packed::compact(tag, self.updated_at_us, self.period_us, low)
        {
            return self.with_mark(packed);
        }
        let (time_us, span_us) = (self.updated_at_us, self.period_us);
        self.with_mark(Packed::wide_with_rate(
            tag,
            time_us,
            span_us,
            self.grid(),
            self.debt(),
            self.refill,
        ))
    }

    #[inline(always)]
    fn with_mark(&self, packed: Packed) -> Packed {
        match &self.mark {
            None => packed,
            Some(mark) => mark.add_to(packed),
        }
    }

    /// The low bits of the compact form, if it has room for the state. The refill is written with the largest power of ten
    /// that divides it, up to 1000. A token is a multiple of 1000 parts, so the debt is a multiple of that power, too, except
    /// after a change of the rate.
    #[inline(always)]
    fn compact_low(&self) -> Option<u64> {
        match self.refill {
            refill if refill.is_multiple_of(1000) => self.compact_low_with(3, 1000),
            refill if refill.is_multiple_of(100) => self.compact_low_with(2, 100),
            refill if refill.is_multiple_of(10) => self.compact_low_with(1, 10),
            _ => self.compact_low_with(0, 1),
        }
    }

    /// Inlined, so that the divisions are by constants.
    #[inline(always)]
    fn compact_low_with(&self, power: u64, unit: u64) -> Option<u64> {
        let debt = u64::try_from(self.debt()).ok()?;
        let (amount, units) = (self.refill / unit, debt / unit);
        if amount >> AMOUNT_BITS != 0 || units >> DEBT_BITS != 0 || units * unit != debt {
            return None;
        }
        let rate = (self.grid() << AMOUNT_BITS | amount) << POWER_BITS | power;
        Some(rate << DEBT_BITS | units)
    }

    /// The step and the phase.
    #[inline(always)]
    fn grid(&self) -> u64 {
        u64::from(self.expiry_step) << PHASE_BITS | u64::from(self.expiry_phase)
    }
}

impl AlgorithmState for BucketState {
    type Refunded = Self;

    fn span_us(&self) -> u64 {
        self.period_us
    }

    fn expire_at_ms(&self) -> u64 {
        self.expiry_after(self.drain_us())
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        self.inspect_with(now_us, "refill")
    }

    fn refund(&self, now_us: u64, request: &RefundRequest) -> Result<(u64, Option<Self>), Error> {
        Ok(self.refund_units(now_us, self.undrained(request)))
    }

    fn origin(&self) -> Option<Origin<'static>> {
        Some(Origin::Bucket(self.charged_debt()))
    }

    /// Nothing but the mark tells one debt from another.
    fn mark_reserved(&mut self, now_us: u64) {
        if self.mark.is_none() {
            let charged = self.units(self.debt());
            self.mark = Some(Box::new(Mark::new(now_us, charged)));
        }
    }

    fn refund_charge(&self, now_us: u64, charge: &Charge, units: u64) -> (u64, Option<Self>) {
        match &charge.origin {
            Origin::Bucket(debt) => self.refund_debt(now_us, debt, charge.units, units),
            _ => (0, None),
        }
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        self.mark.is_some()
    }

    fn heap_bytes(&self) -> usize {
        let bytes = |mark: &Mark| size_of::<Mark>() + mark.heap_bytes();
        self.mark.as_deref().map_or(0, bytes)
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        if let Some(mark) = &mut self.mark {
            walk.allocation(|by| by.value(mark));
            mark.relocate(walk);
        }
    }
}

impl BucketState {
    /// Subtracts units from the debt as it was stored, so that the next call drains the rest at its own rate. The mark does
    /// not count them: whose units they are is unknown, so they count as drained.
    fn refund_units(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let used = self.units(self.debt_at(now_us));
        let refunded = units.min(used);
        let parts = u128::from(refunded) * u128::from(self.period_us);
        let left = || Self {
            debt: Parts::new(self.debt().saturating_sub(parts)),
            ..self.clone()
        };
        (refunded, (refunded < used).then(left))
    }

    /// The debt that the last charge left.
    pub(in crate::algorithm) fn charged_debt(&self) -> ChargedDebt {
        let mark = self.mark.as_deref();
        ChargedDebt {
            at_us: self.updated_at_us,
            period_us: self.period_us,
            refill: self.refill,
            reserved_since_us: mark.map_or(0, |mark| mark.since_us),
            charged_until: mark.map_or(0, |mark| mark.charged),
            debt: self.debt(),
        }
    }

    /// Refunds units of an earlier charge of `cost`: at most what has not drained of the debt up to it, and never more than
    /// the debt that it left, drained at the faster of the rates then and now.
    pub(in crate::algorithm) fn refund_debt(
        &self,
        now_us: u64,
        charged: &ChargedDebt,
        cost: u64,
        units: u64,
    ) -> (u64, Option<Self>) {
        let Some(mark) = &self.mark else {
            return (0, None);
        };
        // An older copy of the key may have been restored, which does not count the charge.
        let is_counted = self.period_us == charged.period_us
            && mark.since_us == charged.reserved_since_us
            && mark.charged >= charged.charged_until;
        // How much has drained is unknown if the clock stepped back.
        if !is_counted || now_us < self.updated_at_us {
            return (0, None);
        }
        let elapsed = now_us.saturating_sub(charged.at_us);
        let fastest = self.refill.max(charged.refill);
        let drained = u128::from(elapsed).saturating_mul(fastest.into());
        let debt = self.debt_at(now_us);
        let end = charged.charged_until;
        let undrained = mark.undrained(debt, self.period_us, end);
        // To the part of a token: what has drained of a unit does not keep the rest of it charged.
        let parts = self
            .parts(units)
            .min(undrained)
            .min(charged.debt.saturating_sub(drained));
        let left = || {
            let whole = to_u64(parts / u128::from(self.period_us));
            let mark = mark.after_refund(end.saturating_sub(cost), end, whole);
            Self {
                debt: Parts::new(self.debt() - parts),
                mark: Some(Box::new(mark)),
                ..*self
            }
        };
        (self.units(parts), (parts < debt).then(left))
    }

    /// The fields for people; BUCKET and LEAK have different names for the rate.
    pub(in crate::algorithm) fn inspect_with(
        &self,
        now_us: u64,
        rate: &'static str,
    ) -> Vec<StateField> {
        let drained_at_us = u128::from(self.updated_at_us) + self.drain_us();
        vec![
            StateField::number(rate, self.refill),
            StateField::ms("period_ms", self.period_us),
            StateField::ms("updated_at_ms", self.updated_at_us),
            StateField::number("debt_at_update", self.units(self.debt())),
            StateField::number("used", self.units(self.debt_at(now_us))),
            StateField::number("resets_at_ms", ceil_ms(to_u64(drained_at_us))),
        ]
    }
}

impl PackedState for BucketState {
    fn encode(&self) -> Packed {
        self.encode_as(Tag::BUCKET)
    }

    #[inline(always)]
    fn decode(fields: Fields) -> Result<Self, Error> {
        let (grid, refill, debt) = if fields.wide {
            (fields.extra, fields.rate, fields.low)
        } else {
            let low = fields.low as u64;
            let rate = low >> DEBT_BITS;
            let unit = match rate & ((1 << POWER_BITS) - 1) {
                0 => 1,
                1 => 10,
                2 => 100,
                _ => 1000,
            };
            let amount = rate >> POWER_BITS & ((1 << AMOUNT_BITS) - 1);
            let debt = (low & ((1 << DEBT_BITS) - 1)) * unit;
            let grid = rate >> (POWER_BITS + AMOUNT_BITS);
            (grid, amount * unit, u128::from(debt))
        };
        let (expiry_step, expiry_phase) = (grid >> PHASE_BITS, grid & ((1 << PHASE_BITS) - 1));
        // No call leaves a state without debt.
        let in_range = (1..=MAX_COUNT).contains(&refill)
            && expiry_step < EXPIRY_STEPS_US.len() as u64
            && expiry_phase < EXPIRY_PHASES.into()
            && debt > 0
            && debt <= u128::from(MAX_USAGE) * u128::from(fields.span_us);
        if !in_range {
            return Err(Error::DamagedState);
        }
        Ok(Self {
            updated_at_us: fields.time_us,
            period_us: fields.span_us,
            refill,
            debt: Parts::new(debt),
            expiry_step: expiry_step as u8,
            expiry_phase: expiry_phase as u8,
            mark: match fields.reserved_since_us {
                0 => None,
                _ => Some(Box::new(Mark::decode(&fields)?)),
            },
        })
    }
}
