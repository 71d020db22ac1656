//! Two counters: the previous window loses weight while the current one fills.
//!
//! A call of `cost` at `e` into a window `W` is allowed iff
//! `previous·(W−e)/W + current + cost ≤ limit`. All but the first term are integers, so comparing with
//! that term rounded up is the same comparison, exactly.

use super::SlideLimit;
use crate::Error;
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms, wait_ms};
use crate::encoding::{Fields, LOW_BITS, Packed, Tag};
use crate::inspect::StateField;
use crate::math::{mul_div_ceil, mul_div_floor, to_u64};
use crate::reservation::ChargedWindow;
use crate::units::MAX_USAGE;

const COUNT_BITS: u32 = LOW_BITS / 2;

/// Two adjacent windows; the current one starts at `start_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoWindows {
    start_us: u64,
    window_us: u64,
    current: u64,
    previous: u64,
}

impl TwoWindows {
    /// The same usage at `now_us`.
    pub(super) fn at(self, now_us: u64) -> Self {
        let Some(elapsed) = now_us.checked_sub(self.start_us) else {
            // The clock stepped back: the window restarts with its usage.
            return Self {
                start_us: now_us,
                ..self
            };
        };
        if elapsed < self.window_us {
            return self;
        }
        let next = Self {
            start_us: self.start_us + self.window_us,
            previous: self.current,
            current: 0,
            ..self
        };
        if elapsed - self.window_us < self.window_us && next.previous > 0 {
            return next;
        }
        Self {
            start_us: now_us,
            previous: 0,
            ..next
        }
    }

    /// Units in use at `now_us`, which must be in the current window. Rounded up.
    #[inline(always)]
    pub(super) fn used(&self, now_us: u64) -> u64 {
        if self.previous == 0 {
            return self.current;
        }
        let left = self.window_us - (now_us - self.start_us);
        let fading = to_u64(mul_div_ceil(self.previous, left, self.window_us));
        self.current + fading
    }

    /// The first time at which no more than `room` units are in use, if nothing is added until then.
    fn falls_to(&self, room: u64) -> u64 {
        let (end, fading, room) = match room.checked_sub(self.current) {
            Some(room) => (self.start_us + self.window_us, self.previous, room),
            None => (self.start_us + 2 * self.window_us, self.current, room),
        };
        // `fading · left / window ≤ room`, solved for the largest `left`.
        end - to_u64(mul_div_floor(room, self.window_us, fading))
    }

    pub(super) fn start_us(&self) -> u64 {
        self.start_us
    }

    /// All units that may have been charged within a window's length, without the estimate.
    pub(super) fn used_in_full(&self) -> u64 {
        self.current + self.previous
    }

    /// The first time at which no more than `room` units are in use in full, if nothing is added until then.
    pub(super) fn falls_in_full_to(&self, room: u64) -> u64 {
        let windows = match self.current <= room {
            true => 1,
            false => 2,
        };
        self.start_us + windows * self.window_us
    }

    /// The time from which the state no longer matters.
    pub(super) fn clear_at(&self) -> u64 {
        if self.current > 0 {
            self.start_us + 2 * self.window_us
        } else if self.previous > 0 {
            self.start_us + self.window_us
        } else {
            self.start_us
        }
    }

    /// A new window that starts now, with usage of another kind of window as its previous count.
    pub(super) fn carrying(now_us: u64, window_us: u64, used: u64, cost: u64) -> Self {
        Self {
            start_us: now_us,
            window_us,
            current: cost,
            previous: used.min(MAX_USAGE),
        }
    }

    /// Nothing is refunded from windows that started after `newest_us`.
    pub(super) fn refund(&self, now_us: u64, units: u64, newest_us: i64) -> (u64, Option<Self>) {
        let rolled = self.at(now_us);
        let started_us = rolled.start_us as i64;
        let refundable = |start_us, count| if start_us <= newest_us { count } else { 0 };
        let newest = units.min(refundable(started_us, rolled.current));
        let previous_us = started_us - self.window_us as i64;
        let older = (units - newest).min(refundable(previous_us, rolled.previous));
        let left = Self {
            current: rolled.current - newest,
            previous: rolled.previous - older,
            ..rolled
        };
        let in_use = left.current > 0 || left.previous > 0;
        // The refund is as much as usage drops: units that have lost weight count only as much as they still weigh.
        let refunded = rolled.used(now_us) - left.used(now_us);
        (refunded, in_use.then_some(left))
    }

    /// The window in which the last units were charged.
    pub(super) fn charged_window(&self) -> ChargedWindow {
        ChargedWindow {
            start_us: self.start_us,
            end_us: self.start_us + self.window_us,
            span_us: self.window_us,
            reserved_since_us: 0,
        }
    }

    /// Refunds units of the window in which they were charged, as long as it counts.
    pub(super) fn refund_window(
        &self,
        now_us: u64,
        charged: &ChargedWindow,
        units: u64,
    ) -> (u64, Option<Self>) {
        let mut left = self.at(now_us);
        if left.window_us != charged.span_us {
            return (0, None);
        }
        let count = if left.start_us == charged.start_us {
            &mut left.current
        } else if left.start_us == charged.end_us {
            &mut left.previous
        } else {
            return (0, None);
        };
        let refunded = units.min(*count);
        *count -= refunded;
        let in_use = left.current > 0 || left.previous > 0;
        (refunded, in_use.then_some(left))
    }

    pub(super) fn inspect(&self, now_us: u64) -> Vec<StateField> {
        vec![
            StateField::ms("window_ms", self.window_us),
            StateField::ms("window_started_at_ms", self.start_us),
            StateField::number("current_count", self.current),
            StateField::number("previous_count", self.previous),
            StateField::number("used", self.at(now_us).used(now_us)),
        ]
    }

    pub(super) fn span_us(&self) -> u64 {
        self.window_us
    }

    #[inline(always)]
    pub(crate) fn expire_at_ms(&self) -> u64 {
        ceil_ms(self.clear_at())
    }

    pub(crate) fn encode(&self) -> Packed {
        if self.current >> COUNT_BITS == 0 && self.previous >> COUNT_BITS == 0 {
            let low = self.current << COUNT_BITS | self.previous;
            if let Some(packed) = Packed::compact(Tag::SLIDE, self.start_us, self.window_us, low) {
                return packed;
            }
        }
        let counts = u128::from(self.current) << 64 | u128::from(self.previous);
        Packed::wide(Tag::SLIDE, self.start_us, self.window_us, 0, counts)
    }

    pub(crate) fn decode(fields: Fields) -> Result<Self, Error> {
        let (current, previous) = if fields.wide {
            ((fields.low >> 64) as u64, fields.low as u64)
        } else {
            let low = fields.low as u64;
            (low >> COUNT_BITS, low & ((1 << COUNT_BITS) - 1))
        };
        // No call leaves a state without usage.
        let idle = current == 0 && previous == 0;
        let unused = fields.extra | fields.reserved_since_us;
        if current > MAX_USAGE || previous > MAX_USAGE || idle || unused != 0 {
            return Err(Error::DamagedState);
        }
        Ok(Self {
            start_us: fields.time_us,
            window_us: fields.span_us,
            current,
            previous,
        })
    }
}

#[inline(always)]
pub(crate) fn evaluate(
    limit: &SlideLimit,
    stored: Option<&TwoWindows>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Evaluation<TwoWindows> {
    let rolled = match stored {
        Some(stored) => stored.at(now_us),
        None => TwoWindows {
            start_us: now_us,
            window_us: limit.window_us,
            current: 0,
            previous: 0,
        },
    };
    let used = rolled.used(now_us);
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.limit;

    let update = if cost == 0 {
        None
    } else if !allowed {
        // A denial writes nothing, except that a step back of the clock is recorded once: if every call found it
        // again, the wait would start over each time.
        stored
            .is_some_and(|stored| now_us < stored.start_us)
            .then_some(rolled)
    } else if limit.window_us == rolled.window_us {
        Some(TwoWindows {
            current: rolled.current.saturating_add(cost).min(MAX_USAGE),
            ..rolled
        })
    } else {
        // Another window: usage so far becomes the previous count of a new window that starts now.
        Some(TwoWindows::carrying(now_us, limit.window_us, used, cost))
    };

    let after = update.as_ref().unwrap_or(&rolled);
    Evaluation {
        decision: Decision {
            reset_after_ms: wait_ms(u128::from(after.clear_at() - now_us)),
            ..Decision::new(limit.limit, used, cost, allowed, |room| {
                wait_ms(u128::from(rolled.falls_to(room) - now_us))
            })
        },
        expiry: Expiry {
            at_ms: after.expire_at_ms(),
            unchanged: stored.is_some_and(|stored| stored.clear_at() == after.clear_at()),
        },
        update,
    }
}
