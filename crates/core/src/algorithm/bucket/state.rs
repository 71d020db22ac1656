//! The debt that is kept, its bits, and when its key expires.
//!
//! Every call moves the moment at which the debt is paid off. The expiry does not follow it: it is on a grid, one step
//! after the first moment not before that one. So busy keys rarely move their expiry, and a fast bucket that is called at
//! least once per step is never deleted and re-created. A step is 15 s, or longer for buckets that take long to drain. The
//! grid of each key is shifted by its *phase*, so that keys do not all expire at once.

use crate::Error;
use crate::algorithm::traits::{AlgorithmState, PackedState};
use crate::decision::ceil_ms;
use crate::encoding::{Fields, LOW_BITS, Packed, Tag};
use crate::inspect::StateField;
use crate::math::{div_ceil, mul_div_ceil, to_u64};
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{ChargedDebt, Origin};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// When the first reservation was made that may be part of the debt; 0 if there is none. It tells the debt from that of a
    /// key which was deleted and created again.
    pub(super) reserved_since_us: u64,
    /// Units that were refunded since: the debt after an earlier charge may include them.
    pub(super) refunded: u32,
    /// Whether the rate has risen since.
    pub(super) rate_rose: bool,
}

impl BucketState {
    #[inline(always)]
    fn debt(&self) -> u128 {
        self.debt.get()
    }

    /// The same state with the mark of an earlier one. It is dropped where the debt after an earlier charge says nothing
    /// about the debt now: if all of it was paid off, the period has changed, the clock has stepped back, or the rate was
    /// faster in between.
    #[inline(always)]
    pub(super) fn keeping_mark_of(self, earlier: Option<&Self>, debt: u128) -> Self {
        match earlier {
            Some(earlier) if earlier.reserved_since_us > 0 && debt > 0 => {
                self.with_mark_of(earlier)
            }
            _ => self,
        }
    }

    #[cold]
    fn with_mark_of(self, earlier: &Self) -> Self {
        let has_slowed_down = earlier.rate_rose && self.refill < earlier.refill;
        if self.period_us != earlier.period_us
            || self.updated_at_us < earlier.updated_at_us
            || has_slowed_down
        {
            return self;
        }
        Self {
            reserved_since_us: earlier.reserved_since_us,
            refunded: earlier.refunded,
            rate_rose: earlier.rate_rose || self.refill > earlier.refill,
            ..self
        }
    }

    /// The same state after a refund. The mark is dropped where its count would overflow.
    fn counting_refund(self, units: u64) -> Self {
        let refunded = u64::from(self.refunded).saturating_add(units);
        match u32::try_from(refunded) {
            _ if self.reserved_since_us == 0 => self,
            Ok(refunded) => Self { refunded, ..self },
            Err(_) => Self {
                reserved_since_us: 0,
                refunded: 0,
                rate_rose: false,
                ..self
            },
        }
    }

    fn add_mark_to(&self, packed: Packed) -> Packed {
        let tail = u64::from(self.rate_rose) << 32 | u64::from(self.refunded);
        packed.marked_with_tail(self.reserved_since_us, tail)
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
            return self.add_mark_to(packed);
        }
        let (time_us, span_us) = (self.updated_at_us, self.period_us);
        self.add_mark_to(Packed::wide_with_rate(
            tag,
            time_us,
            span_us,
            self.grid(),
            self.debt(),
            self.refill,
        ))
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
        if self.reserved_since_us == 0 {
            self.reserved_since_us = now_us;
        }
    }

    fn refund_origin(&self, now_us: u64, origin: &Origin, units: u64) -> (u64, Option<Self>) {
        match origin {
            Origin::Bucket(charged) => self.refund_debt(now_us, charged, units),
            _ => (0, None),
        }
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

impl BucketState {
    /// Subtracts units from the debt as it was stored, so that the next call drains the rest at its own rate.
    fn refund_units(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let used = self.units(self.debt_at(now_us));
        let refunded = units.min(used);
        let parts = u128::from(refunded) * u128::from(self.period_us);
        let left = Self {
            debt: Parts::new(self.debt().saturating_sub(parts)),
            ..*self
        };
        let left = left.counting_refund(refunded);
        (refunded, (refunded < used).then_some(left))
    }

    /// The debt that the last charge left.
    pub(in crate::algorithm) fn charged_debt(&self) -> ChargedDebt {
        ChargedDebt {
            at_us: self.updated_at_us,
            period_us: self.period_us,
            refill: self.refill,
            reserved_since_us: self.reserved_since_us,
            refunded: self.refunded,
            debt: self.debt(),
        }
    }

    /// Refunds units of an earlier charge: at most as much of the debt from back then as cannot have drained or been
    /// refunded since. What was refunded may have been charged later, but the state cannot tell.
    pub(in crate::algorithm) fn refund_debt(
        &self,
        now_us: u64,
        charged: &ChargedDebt,
        units: u64,
    ) -> (u64, Option<Self>) {
        let same = self.period_us == charged.period_us
            && self.reserved_since_us == charged.reserved_since_us;
        // How much has drained is unknown if the clock stepped back.
        if !same || now_us < self.updated_at_us {
            return (0, None);
        }
        let elapsed = now_us.saturating_sub(charged.at_us);
        let fastest = self.refill.max(charged.refill);
        let drained = u128::from(elapsed).saturating_mul(fastest.into());
        let since = u64::from(self.refunded.saturating_sub(charged.refunded));
        let gone = drained.saturating_add(self.parts(since));
        let undrained = charged.debt.saturating_sub(gone);
        // To the part of a token: what has drained of a unit does not keep the rest of it charged.
        let debt = self.debt_at(now_us);
        let parts = self.parts(units).min(undrained).min(debt);
        let left = Self {
            debt: Parts::new(self.debt() - parts),
            ..*self
        };
        let refunded = self.units(parts);
        let left = left.counting_refund(refunded);
        (refunded, (parts < debt).then_some(left))
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
        let in_range = fields.mark_tail >> 33 == 0
            && (1..=MAX_COUNT).contains(&refill)
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
            reserved_since_us: fields.reserved_since_us,
            refunded: fields.mark_tail as u32,
            rate_rose: fields.mark_tail >> 32 == 1,
        })
    }
}
