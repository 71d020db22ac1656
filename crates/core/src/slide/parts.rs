//! A window split into n parts: n + 1 counters, of which only the oldest fades.
//!
//! With n = 1 this would be [`super::Pair`]. Any n parts in a row admit at most the limit, so a window
//! that begins within a part holds at most as much more as that one part admitted.

use super::{Limit, MAX_PRECISION};
use crate::Error;
use crate::bounds::MAX_USAGE;
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, ceil_ms, wait_ms};
use crate::encoding::{self, Encoded};
use crate::inspect::Field;
use crate::math::{mul_div_ceil, mul_div_floor, to_u64};

/// Counters of adjoining parts: the newest, which begins at `start_us`, comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    start_us: u64,
    window_us: u64,
    counts: Box<[u64]>,
}

impl Parts {
    fn new(start_us: u64, window_us: u64, precision: u8) -> Self {
        Self {
            start_us,
            window_us,
            counts: vec![0; usize::from(precision) + 1].into(),
        }
    }

    /// A window that starts now, with usage from elsewhere in its latest part but one.
    pub(super) fn carrying(limit: &Limit, now_us: u64, used: u64, cost: u64) -> Self {
        let mut parts = Self::new(now_us, limit.window_us, limit.precision);
        parts.counts[0] = cost;
        parts.counts[1] = used.min(MAX_USAGE);
        parts
    }

    pub(super) fn precision(&self) -> u8 {
        (self.counts.len() - 1) as u8
    }

    /// Whole microseconds, rounded up: n parts are never shorter than the window.
    fn part_us(&self) -> u64 {
        self.window_us.div_ceil(u64::from(self.precision()))
    }

    /// The same usage as it stands at `now`.
    pub(super) fn at(&self, now_us: u64) -> Self {
        let Some(elapsed) = now_us.checked_sub(self.start_us) else {
            // The clock stepped back: begin this part anew, with its usage.
            return Self {
                start_us: now_us,
                ..self.clone()
            };
        };
        let passed = elapsed / self.part_us();
        let mut seen = Self::new(self.start_us, self.window_us, self.precision());
        if let Ok(passed) = usize::try_from(passed)
            && passed < self.counts.len()
        {
            let kept = self.counts.len() - passed;
            seen.counts[passed..].copy_from_slice(&self.counts[..kept]);
        }
        seen.start_us = if seen.is_idle() {
            now_us
        } else {
            self.start_us + passed * self.part_us()
        };
        seen
    }

    fn is_idle(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    /// Units in use at `now`, which must lie in the newest part. Rounded up.
    pub(super) fn used(&self, now_us: u64) -> u64 {
        let (oldest, whole) = match self.counts.split_last() {
            Some((oldest, whole)) => (*oldest, whole),
            None => return 0,
        };
        let left = self.part_us() - (now_us - self.start_us);
        whole.iter().sum::<u64>() + to_u64(mul_div_ceil(oldest, left, self.part_us()))
    }

    /// The first moment at which no more than `room` units are in use, if nothing is added until then.
    fn falls_to(&self, room: u64) -> u64 {
        let mut whole: u64 = self.counts.iter().sum();
        let mut end_us = self.start_us;
        for &fading in self.counts.iter().rev() {
            whole -= fading;
            end_us += self.part_us();
            if whole <= room {
                // `fading · left / part ≤ room − whole`, solved for the largest `left`.
                let left = match fading {
                    0 => self.part_us(),
                    _ => to_u64(mul_div_floor(room - whole, self.part_us(), fading)),
                };
                return end_us - left.min(self.part_us());
            }
        }
        end_us
    }

    /// The moment from which the state no longer matters.
    pub(super) fn clear_at(&self) -> u64 {
        let newest = self.counts.iter().position(|&count| count > 0);
        let parts = newest.map_or(0, |newest| self.counts.len() - newest);
        self.start_us + parts as u64 * self.part_us()
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
            let given = owed.min(*count);
            *count -= given;
            owed -= given;
        }
        // As with two counters: of units that have faded in part, no more is given back than is in use.
        let given = (units - owed).min(used);
        (given, (!left.is_idle()).then_some(left))
    }

    pub(super) fn inspect(&self, now_us: u64) -> Vec<Field> {
        vec![
            Field::ms("window_ms", self.window_us),
            Field::number("precision", self.precision().into()),
            Field::ms("part_start_ms", self.start_us),
            Field::numbers("counts", &self.counts),
            Field::number("used", self.at(now_us).used(now_us)),
        ]
    }

    pub(super) fn encode(&self) -> Encoded {
        Encoded::parts(self.start_us, self.window_us, &self.counts)
    }

    pub(super) fn decode(words: &[u64]) -> Result<Self, Error> {
        let (start_us, window_us, counts) = encoding::parts(words)?;
        let in_range = counts.iter().all(|&count| count <= MAX_USAGE);
        let parts = Self {
            start_us,
            window_us,
            counts: counts.into(),
        };
        let precise = (2..=usize::from(MAX_PRECISION)).contains(&(parts.counts.len() - 1));
        if !precise || !in_range || parts.is_idle() {
            return Err(Error::DamagedState);
        }
        Ok(parts)
    }
}

pub(super) fn evaluate(
    limit: &Limit,
    stored: Option<&Parts>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<Parts> {
    let seen = match stored {
        Some(stored) => stored.at(now_us),
        None => Parts::new(now_us, limit.window_us, limit.precision),
    };
    let used = seen.used(now_us);
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.limit;
    let retry_after_ms = match limit.limit.checked_sub(cost) {
        _ if allowed => 0,
        None => NEVER,
        Some(room) => wait_ms(u128::from(seen.falls_to(room) - now_us)) as i64,
    };

    let mut after = seen;
    let mut write = false;
    if cost > 0 && allowed {
        write = true;
        if after.window_us == limit.window_us {
            after.counts[0] = after.counts[0].saturating_add(cost).min(MAX_USAGE);
        } else {
            after = Parts::carrying(limit, now_us, used, cost);
        }
    } else if cost > 0 {
        // As with two counters: a clock that stepped back is noticed once.
        write = stored.is_some_and(|stored| now_us < stored.start_us);
    }

    let spent = if allowed { cost } else { 0 };
    let clear_at = after.clear_at();
    Outcome {
        decision: Decision {
            allowed,
            index: 0,
            limit: limit.limit,
            remaining: limit.limit.saturating_sub(used.saturating_add(spent)),
            retry_after_ms,
            reset_after_ms: wait_ms(u128::from(clear_at - now_us)),
        },
        expiry: Expiry {
            at_ms: after.expire_at_ms(),
            unmoved: stored.is_some_and(|stored| stored.clear_at() == clear_at),
        },
        next: write.then_some(after),
    }
}
