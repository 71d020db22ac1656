//! What a debt remembers while units of reservations may be part of it, so that each can be settled in any order.
//!
//! The debt is a queue: the oldest units drain first. All units that were ever charged are numbered in the order of the
//! queue, and a charge takes the numbers from `start` (exclusive) to `end`. What has not drained of the units up to a
//! charge is the debt now, minus the units that were charged later and not refunded. So the mark counts charged units, and
//! keeps a list of the ranges in which units were refunded.

use crate::Error;
use crate::encoding::{Fields, MARK_TIME_BITS, MAX_MARK_PAIRS, Packed};
use crate::relocate::{Relocate, Walk};

/// The mark of a debt with units of reservations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// When it was set. It tells the debt from that of a key which was deleted and created again. Not 0.
    pub(super) since_us: u64,
    /// The number of the last unit that was charged.
    pub(super) charged: u64,
    /// In the order of the queue. They neither overlap nor touch, and none ends after `charged`.
    refunds: Vec<RefundedRange>,
}

/// A range of units of which some were refunded. It may be cut short at its end, and count too few units; both only make
/// later refunds smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RefundedRange {
    start: u64,
    len: u32,
    /// Whole units, at most `len`.
    units: u32,
}

impl RefundedRange {
    fn new(start: u64, end: u64, units: u64) -> Self {
        let [len, units] = [end - start, units].map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        Self {
            start,
            len,
            units: units.min(len),
        }
    }

    fn end(&self) -> u64 {
        self.start + u64::from(self.len)
    }

    /// One range for two and what lies between. Its units count as refunded only for charges before both.
    fn joined(&self, other: &Self) -> Self {
        Self::new(
            self.start.min(other.start),
            self.end().max(other.end()),
            u64::from(self.units) + u64::from(other.units),
        )
    }
}

impl Mark {
    /// The mark of a debt of so many units.
    pub(super) fn new(now_us: u64, charged: u64) -> Self {
        Self {
            since_us: (now_us & ((1 << MARK_TIME_BITS) - 1)).max(1),
            charged,
            refunds: Vec::new(),
        }
    }

    /// What is left of `debt` up to the unit with the number `until`, if one unit is `unit` parts.
    pub(super) fn undrained(&self, debt: u128, unit: u64, until: u64) -> u128 {
        let later = self.refunds.iter().rev();
        let later = later.take_while(|range| range.start >= until);
        let refunded: u64 = later.map(|range| u64::from(range.units)).sum();
        let charged = u128::from(self.charged.saturating_sub(until)) * u128::from(unit);
        (debt + u128::from(refunded) * u128::from(unit)).saturating_sub(charged)
    }

    /// The mark after `cost` was added to `debt`. Forgets refunds before which everything has drained: they only mattered
    /// to earlier charges. `None` if the numbers are used up.
    #[cold]
    pub(super) fn after_charge(&self, debt: u128, unit: u64, cost: u64) -> Option<Box<Self>> {
        let has_drained = |range: &RefundedRange| self.undrained(debt, unit, range.start) == 0;
        let drained = self.refunds.partition_point(has_drained);
        Some(Box::new(Self {
            since_us: self.since_us,
            charged: self.charged.checked_add(cost)?,
            refunds: self.refunds[drained..].to_vec(),
        }))
    }

    /// The mark after whole `units` of the charge with the numbers from `start` to `end` were refunded.
    pub(super) fn after_refund(&self, start: u64, end: u64, units: u64) -> Self {
        let mut new = RefundedRange::new(start, end, units);
        if new.units == 0 {
            return self.clone();
        }
        let mut refunds = Vec::with_capacity(self.refunds.len() + 1);
        let before = self.refunds.iter().take_while(|range| range.end() < start);
        refunds.extend(before);
        for range in &self.refunds[refunds.len()..] {
            // Where ranges touch, no other charge lies between. They overlap only if they were joined or forged.
            if range.start <= new.end() {
                new = new.joined(range);
            } else {
                refunds.push(std::mem::replace(&mut new, *range));
            }
        }
        refunds.push(new);
        if refunds.len() > MAX_MARK_PAIRS {
            join_nearest(&mut refunds);
        }
        Self { refunds, ..*self }
    }

    #[cold]
    pub(super) fn add_to(&self, packed: Packed) -> Packed {
        let pair = |range: &RefundedRange| {
            let amounts = u64::from(range.len) << 32 | u64::from(range.units);
            [range.start, amounts]
        };
        let pairs = self.refunds.iter().map(pair);
        packed.marked_with_tail(self.since_us, self.charged, pairs)
    }

    /// The mark of a state that has one.
    #[cold]
    pub(super) fn decode(fields: &Fields) -> Result<Self, Error> {
        let [charged, pairs @ ..] = fields.mark_tail else {
            return Err(Error::DamagedState);
        };
        let (pairs, _) = pairs.as_chunks();
        let mut refunds = Vec::with_capacity(pairs.len());
        let mut last_end = None;
        for &[start, amounts] in pairs {
            let [len, units] = [(amounts >> 32) as u32, amounts as u32];
            let end = start.checked_add(len.into());
            let is_ours = (1..=len).contains(&units)
                && last_end.is_none_or(|last_end| last_end < start)
                && end.is_some_and(|end| end <= *charged);
            if !is_ours {
                return Err(Error::DamagedState);
            }
            last_end = end;
            refunds.push(RefundedRange { start, len, units });
        }
        Ok(Self {
            since_us: fields.reserved_since_us,
            charged: *charged,
            refunds,
        })
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.refunds.capacity() * size_of::<RefundedRange>()
    }

    pub(super) fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        if self.refunds.capacity() > 0 {
            walk.allocation(|by| by.list(&mut self.refunds));
        }
    }
}

/// Joins the two neighbours with the fewest units between them.
fn join_nearest(refunds: &mut Vec<RefundedRange>) {
    let gap = |index: &usize| refunds[index + 1].start - refunds[*index].end();
    if let Some(nearest) = (0..refunds.len() - 1).min_by_key(gap) {
        let next = refunds.remove(nearest + 1);
        refunds[nearest] = refunds[nearest].joined(&next);
    }
}
