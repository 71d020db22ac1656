//! A window split into n sub-windows: n + 1 counters, of which only the oldest loses weight.
//!
//! With n = 1 this would be [`super::TwoWindows`]. Any n adjacent sub-windows allow at most the limit, so a window that
//! starts within a sub-window allows at most as much more as that one sub-window.

use super::{MAX_PRECISION, SlideLimit};
use crate::Error;
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms, wait_ms};
use crate::encoding::{self, Packed};
use crate::inspect::StateField;
use crate::math::{mul_div_ceil, mul_div_floor, to_u64};
use crate::relocate::{Relocate, Walk};
use crate::units::MAX_USAGE;

/// Counters of adjacent sub-windows; the newest, which starts at `start_us`, comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubWindows {
    start_us: u64,
    window_us: u64,
    counts: Box<[u64]>,
}

impl SubWindows {
    pub(crate) fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        walk.allocation(|by| by.slice(&mut self.counts));
    }

    fn new(start_us: u64, window_us: u64, precision: u8) -> Self {
        Self {
            start_us,
            window_us,
            counts: vec![0; usize::from(precision) + 1].into(),
        }
    }

    /// A window that starts now, with usage of another kind of window in its second-newest sub-window.
    pub(super) fn carrying(limit: &SlideLimit, now_us: u64, used: u64, cost: u64) -> Self {
        let mut windows = Self::new(now_us, limit.window_us, limit.precision);
        windows.counts[0] = cost;
        windows.counts[1] = used.min(MAX_USAGE);
        windows
    }

    pub(super) fn precision(&self) -> u8 {
        (self.counts.len() - 1) as u8
    }

    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.counts)
    }

    /// The length of a sub-window, rounded up, so that n of them are never shorter than the window.
    fn sub_window_us(&self) -> u64 {
        self.window_us.div_ceil(u64::from(self.precision()))
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
        let passed = elapsed / self.sub_window_us();
        let mut rolled = Self::new(self.start_us, self.window_us, self.precision());
        if let Ok(passed) = usize::try_from(passed)
            && passed < self.counts.len()
        {
            let kept = self.counts.len() - passed;
            rolled.counts[passed..].copy_from_slice(&self.counts[..kept]);
        }
        rolled.start_us = if rolled.is_idle() {
            now_us
        } else {
            self.start_us + passed * self.sub_window_us()
        };
        rolled
    }

    fn is_idle(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Units in use at `now_us`, which must be in the newest sub-window. Rounded up.
    pub(super) fn used(&self, now_us: u64) -> u64 {
        let (oldest, whole) = match self.counts.split_last() {
            Some((oldest, whole)) => (*oldest, whole),
            None => return 0,
        };
        let left = self.sub_window_us() - (now_us - self.start_us);
        whole.iter().sum::<u64>() + to_u64(mul_div_ceil(oldest, left, self.sub_window_us()))
    }

    /// The first time at which no more than `room` units are in use, if nothing is added until then.
    fn falls_to(&self, room: u64) -> u64 {
        let mut whole: u64 = self.counts.iter().sum();
        let mut end_us = self.start_us;
        for &fading in self.counts.iter().rev() {
            whole -= fading;
            end_us += self.sub_window_us();
            if whole <= room {
                // `fading · left / sub-window ≤ room − whole`, solved for the largest `left`.
                let left = match fading {
                    0 => self.sub_window_us(),
                    _ => to_u64(mul_div_floor(room - whole, self.sub_window_us(), fading)),
                };
                return end_us - left.min(self.sub_window_us());
            }
        }
        end_us
    }

    /// The time from which the state no longer matters.
    pub(super) fn clear_at(&self) -> u64 {
        let newest = self.counts.iter().position(|&count| count > 0);
        let parts = newest.map_or(0, |newest| self.counts.len() - newest);
        self.start_us + parts as u64 * self.sub_window_us()
    }

    pub(super) fn span_us(&self) -> u64 {
        self.window_us
    }

    pub(super) fn expire_at_ms(&self) -> u64 {
        ceil_ms(self.clear_at())
    }

    pub(super) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let mut left = self.at(now_us);
        let used = left.used(now_us);
        let mut owed = units;
        for count in &mut left.counts {
            let refunded = owed.min(*count);
            *count -= refunded;
            owed -= refunded;
        }
        // As with two counters, the refund is as much as usage drops.
        let refunded = used - left.used(now_us);
        (refunded, (!left.is_idle()).then_some(left))
    }

    pub(super) fn inspect(&self, now_us: u64) -> Vec<StateField> {
        vec![
            StateField::ms("window_ms", self.window_us),
            StateField::number("precision", self.precision().into()),
            StateField::ms("sub_window_started_at_ms", self.start_us),
            StateField::numbers("counts", &self.counts),
            StateField::number("used", self.at(now_us).used(now_us)),
        ]
    }

    pub(super) fn encode(&self) -> Packed {
        Packed::sub_windows(self.start_us, self.window_us, &self.counts)
    }

    pub(super) fn decode(words: &[u64]) -> Result<Self, Error> {
        let (start_us, window_us, counts) = encoding::decode_sub_windows(words)?;
        let in_range = counts.iter().all(|&count| count <= MAX_USAGE);
        let windows = Self {
            start_us,
            window_us,
            counts: counts.into(),
        };
        let precise = (2..=usize::from(MAX_PRECISION)).contains(&(windows.counts.len() - 1));
        if !precise || !in_range || windows.is_idle() {
            return Err(Error::DamagedState);
        }
        Ok(windows)
    }
}

pub(super) fn evaluate(
    limit: &SlideLimit,
    stored: Option<&SubWindows>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Evaluation<SubWindows> {
    let rolled = match stored {
        Some(stored) => stored.at(now_us),
        None => SubWindows::new(now_us, limit.window_us, limit.precision),
    };
    let used = rolled.used(now_us);
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.limit;
    let mut decision = Decision::new(limit.limit, used, cost, allowed, |room| {
        wait_ms(u128::from(rolled.falls_to(room) - now_us))
    });

    let mut after = rolled;
    let mut write = false;
    if cost > 0 && allowed {
        write = true;
        if after.window_us == limit.window_us {
            after.counts[0] = after.counts[0].saturating_add(cost).min(MAX_USAGE);
        } else {
            after = SubWindows::carrying(limit, now_us, used, cost);
        }
    } else if cost > 0 {
        // As with two counters, a step back of the clock is recorded once.
        write = stored.is_some_and(|stored| now_us < stored.start_us);
    }

    let clear_at = after.clear_at();
    decision.reset_after_ms = wait_ms(u128::from(clear_at - now_us));
    Evaluation {
        decision,
        expiry: Expiry {
            at_ms: after.expire_at_ms(),
            unchanged: stored.is_some_and(|stored| stored.clear_at() == clear_at),
        },
        update: write.then_some(after),
    }
}
