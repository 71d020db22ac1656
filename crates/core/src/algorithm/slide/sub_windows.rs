//! A window split into n sub-windows: n + 1 counts, all of which count in full.
//!
//! The n + 1 sub-windows always include the whole window before now, so no window ever allows more than the limit. The
//! price is that units become available again up to a sub-window late.

use super::counts::Counts;
use super::{MAX_PRECISION, MIN_PRECISION, SlideLimit};
use crate::Error;
use crate::encoding::{self, Packed};
use crate::inspect::StateField;
use crate::relocate::{Relocate, Walk};
use crate::reservation::ChargedWindow;
use crate::units::MAX_USAGE;

/// The counts of adjacent sub-windows; the newest, which starts at `start_us`, comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubWindows {
    start_us: u64,
    window_us: u64,
    counts: Counts,
}

impl SubWindows {
    pub(super) fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        self.counts.relocate(walk);
    }

    /// Sub-windows of which the newest starts now, with usage so far in the one that ends now.
    pub(super) fn carrying(limit: &SlideLimit, now_us: u64, used: u64) -> Self {
        let count = |index| match index {
            1 => used.min(MAX_USAGE),
            _ => 0,
        };
        Self {
            start_us: now_us,
            window_us: limit.window_us,
            counts: Counts::new((0..usize::from(limit.precision) + 1).map(count)),
        }
    }

    pub(super) fn precision(&self) -> u8 {
        (self.counts.len() - 1) as u8
    }

    pub(super) fn owns_memory(&self) -> bool {
        self.counts.owns_memory()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.counts.heap_bytes()
    }

    /// The length of a sub-window, rounded up, so that n of them are never shorter than the window.
    fn sub_window_us(&self) -> u64 {
        self.window_us.div_ceil(u64::from(self.precision()))
    }

    /// Whether a call under `limit` is counted here, rather than in new sub-windows.
    pub(super) fn fits(&self, limit: &SlideLimit) -> bool {
        self.window_us == limit.window_us && self.precision() == limit.precision
    }

    /// The same usage at `now_us`.
    pub(super) fn at(&self, now_us: u64) -> Self {
        let Some(elapsed) = now_us.checked_sub(self.start_us) else {
            // The clock stepped back: the sub-window restarts with its usage.
            return Self {
                start_us: now_us,
                ..self.clone()
            };
        };
        let sub_window_us = self.sub_window_us();
        if elapsed < sub_window_us {
            return self.clone();
        }
        let passed = elapsed / sub_window_us;
        let counts = self.counts.shifted(passed);
        let start_us = match counts.sum() {
            0 => now_us,
            _ => self.start_us + passed * sub_window_us,
        };
        Self {
            start_us,
            window_us: self.window_us,
            counts,
        }
    }

    pub(super) fn start_us(&self) -> u64 {
        self.start_us
    }

    /// Units in use; `at` has dropped those that have left the window.
    pub(super) fn used(&self) -> u64 {
        self.counts.sum()
    }

    /// Adds a call to the newest sub-window.
    pub(super) fn charge(&mut self, cost: u64) {
        let count = self.counts.get(0).saturating_add(cost).min(MAX_USAGE);
        self.counts.set(0, count);
    }

    /// The first time at which no more than `room` units are in use, if nothing is added until then.
    pub(super) fn falls_to(&self, room: u64) -> u64 {
        let sub_window_us = self.sub_window_us();
        let mut used = self.used();
        let mut at_us = self.start_us;
        for oldest in self.counts.iter().rev() {
            if used <= room {
                break;
            }
            used -= oldest;
            at_us += sub_window_us;
        }
        at_us
    }

    /// The time from which the state no longer matters.
    pub(super) fn clear_at(&self) -> u64 {
        let newest = self.counts.newest();
        let sub_windows = newest.map_or(0, |newest| self.counts.len() - newest);
        self.start_us + sub_windows as u64 * self.sub_window_us()
    }

    pub(super) fn span_us(&self) -> u64 {
        self.window_us
    }

    /// Nothing is refunded from sub-windows that started after `newest_us`.
    pub(super) fn refund(&self, now_us: u64, units: u64, newest_us: i64) -> (u64, Option<Self>) {
        let mut left = self.at(now_us);
        let mut owed = units;
        let mut started_us = left.start_us as i64;
        for index in 0..left.counts.len() {
            if started_us <= newest_us {
                let count = left.counts.get(index);
                let refunded = owed.min(count);
                left.counts.set(index, count - refunded);
                owed -= refunded;
            }
            started_us -= self.sub_window_us() as i64;
        }
        let in_use = left.used() > 0;
        (units - owed, in_use.then_some(left))
    }

    /// The sub-window in which the last units were charged.
    pub(super) fn charged_window(&self) -> ChargedWindow {
        ChargedWindow {
            start_us: self.start_us,
            end_us: self.start_us + self.sub_window_us(),
            span_us: self.window_us,
            reserved_since_us: 0,
        }
    }

    /// Refunds units of the sub-window in which they were charged, as long as it counts.
    pub(super) fn refund_sub_window(
        &self,
        now_us: u64,
        charged: &ChargedWindow,
        units: u64,
    ) -> (u64, Option<Self>) {
        let mut left = self.at(now_us);
        let sub_window_us = left.sub_window_us();
        let since_us = left.start_us.checked_sub(charged.start_us);
        let index = match since_us {
            Some(us) if left.window_us == charged.span_us && us.is_multiple_of(sub_window_us) => {
                us / sub_window_us
            }
            _ => return (0, None),
        };
        let Some(index) = usize::try_from(index)
            .ok()
            .filter(|&index| index < left.counts.len())
        else {
            return (0, None);
        };
        let count = left.counts.get(index);
        let refunded = units.min(count);
        left.counts.set(index, count - refunded);
        (refunded, (left.used() > 0).then_some(left))
    }

    pub(super) fn inspect(&self, now_us: u64) -> Vec<StateField> {
        let counts: Vec<u64> = self.counts.iter().collect();
        vec![
            StateField::ms("window_ms", self.window_us),
            StateField::number("precision", self.precision().into()),
            StateField::ms("sub_window_started_at_ms", self.start_us),
            StateField::numbers("counts", &counts),
            StateField::number("used", self.at(now_us).used()),
        ]
    }

    pub(super) fn encode(&self) -> Packed {
        Packed::sub_windows(self.start_us, self.window_us, self.counts.iter())
    }

    pub(super) fn decode(packed: &[u64]) -> Result<Self, Error> {
        let (start_us, window_us, counts) = encoding::decode_sub_windows(packed)?;
        let precise = (MIN_PRECISION..=MAX_PRECISION)
            .contains(&u8::try_from(counts.len().saturating_sub(1)).unwrap_or(0));
        // No call leaves a state without usage.
        let in_range = matches!(counts.clone().max(), Some(1..=MAX_USAGE));
        if !precise || !in_range {
            return Err(Error::DamagedState);
        }
        Ok(Self {
            start_us,
            window_us,
            counts: Counts::new(counts),
        })
    }
}
