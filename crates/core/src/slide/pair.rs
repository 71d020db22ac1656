//! Two counters: the previous window fades out while the current one fills.
//!
//! A call of `cost` at `e` into a window `W` is allowed iff
//! `previous·(W−e)/W + current + cost ≤ limit`. All but the first term are integers, so comparing with
//! that term rounded up is the same comparison, exactly.

use super::{Limit, TAG};
use crate::Error;
use crate::bounds::MAX_USAGE;
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, ceil_ms, wait_ms};
use crate::encoding::{Encoded, Fields, LOW_BITS};
use crate::inspect::Field;
use crate::math::{mul_div_ceil, mul_div_floor, to_u64};

const COUNT_BITS: u32 = LOW_BITS / 2;

/// Two adjoining windows: the current one begins at `start_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    start_us: u64,
    window_us: u64,
    current: u64,
    previous: u64,
}

impl Pair {
    /// The same usage as it stands at `now`.
    pub(super) fn at(self, now_us: u64) -> Self {
        let Some(elapsed) = now_us.checked_sub(self.start_us) else {
            // The clock stepped back: begin this window anew, with its usage.
            return Self {
                start_us: now_us,
                ..self
            };
        };
        if elapsed < self.window_us {
            return self;
        }
        let rolled = Self {
            start_us: self.start_us + self.window_us,
            previous: self.current,
            current: 0,
            ..self
        };
        if elapsed - self.window_us < self.window_us && rolled.previous > 0 {
            return rolled;
        }
        Self {
            start_us: now_us,
            previous: 0,
            ..rolled
        }
    }

    /// Units in use at `now`, which must lie in the current window. Rounded up.
    #[inline(always)]
    pub(super) fn used(&self, now_us: u64) -> u64 {
        if self.previous == 0 {
            return self.current;
        }
        let left = self.window_us - (now_us - self.start_us);
        let fading = to_u64(mul_div_ceil(self.previous, left, self.window_us));
        self.current + fading
    }

    /// The first moment at which no more than `room` units are in use, if nothing is added until then.
    fn falls_to(&self, room: u64) -> u64 {
        let (end, fading, room) = match room.checked_sub(self.current) {
            Some(room) => (self.start_us + self.window_us, self.previous, room),
            None => (self.start_us + 2 * self.window_us, self.current, room),
        };
        // `fading · left / window ≤ room`, solved for the largest `left`.
        end - to_u64(mul_div_floor(room, self.window_us, fading))
    }

    /// The moment from which the state no longer matters.
    pub(super) fn clear_at(&self) -> u64 {
        if self.current > 0 {
            self.start_us + 2 * self.window_us
        } else if self.previous > 0 {
            self.start_us + self.window_us
        } else {
            self.start_us
        }
    }

    /// A new window that starts now, with usage from elsewhere as the previous one's.
    pub(super) fn carrying(now_us: u64, window_us: u64, used: u64, cost: u64) -> Self {
        Self {
            start_us: now_us,
            window_us,
            current: cost,
            previous: used.min(MAX_USAGE),
        }
    }

    pub(super) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let seen = self.at(now_us);
        let newest = units.min(seen.current);
        let older = (units - newest).min(seen.previous);
        let left = Self {
            current: seen.current - newest,
            previous: seen.previous - older,
            ..seen
        };
        let in_use = left.current > 0 || left.previous > 0;
        // Of units that have faded in part, no more is given back than is in use.
        let given = (newest + older).min(seen.used(now_us));
        (given, in_use.then_some(left))
    }

    pub(super) fn inspect(&self, now_us: u64) -> Vec<Field> {
        vec![
            Field::ms("window_ms", self.window_us),
            Field::ms("window_start_ms", self.start_us),
            Field::number("current", self.current),
            Field::number("previous", self.previous),
            Field::number("used", self.at(now_us).used(now_us)),
        ]
    }

    pub(super) fn span_us(&self) -> u64 {
        self.window_us
    }

    #[inline(always)]
    pub(crate) fn expire_at_ms(&self) -> u64 {
        ceil_ms(self.clear_at())
    }

    pub(crate) fn encode(&self) -> Encoded {
        if self.current >> COUNT_BITS == 0 && self.previous >> COUNT_BITS == 0 {
            let low = self.current << COUNT_BITS | self.previous;
            if let Some(packed) = Encoded::packed(TAG, self.start_us, self.window_us, low) {
                return packed;
            }
        }
        let counts = u128::from(self.current) << 64 | u128::from(self.previous);
        Encoded::wide(TAG, self.start_us, self.window_us, 0, counts)
    }

    pub(crate) fn decode(fields: Fields) -> Result<Self, Error> {
        let (current, previous) = if fields.wide {
            ((fields.low >> 64) as u64, fields.low as u64)
        } else {
            let low = fields.low as u64;
            (low >> COUNT_BITS, low & ((1 << COUNT_BITS) - 1))
        };
        // No call leaves a state without usage behind.
        let idle = current == 0 && previous == 0;
        if current > MAX_USAGE || previous > MAX_USAGE || idle || fields.extra != 0 {
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
    limit: &Limit,
    stored: Option<&Pair>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<Pair> {
    let seen = match stored {
        Some(stored) => stored.at(now_us),
        None => Pair {
            start_us: now_us,
            window_us: limit.window_us,
            current: 0,
            previous: 0,
        },
    };
    let used = seen.used(now_us);
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.limit;

    let next = if cost == 0 {
        None
    } else if !allowed {
        // A denial leaves no trace, except that a clock which stepped back is noticed once: were it
        // noticed anew by every call, the wait would begin anew with each.
        stored
            .is_some_and(|stored| now_us < stored.start_us)
            .then_some(seen)
    } else if limit.window_us == seen.window_us {
        Some(Pair {
            current: seen.current.saturating_add(cost).min(MAX_USAGE),
            ..seen
        })
    } else {
        // Another window: usage so far fades over the new one, from now.
        Some(Pair::carrying(now_us, limit.window_us, used, cost))
    };

    let after = next.as_ref().unwrap_or(&seen);
    let spent = if allowed { cost } else { 0 };
    Outcome {
        decision: Decision {
            allowed,
            index: 0,
            limit: limit.limit,
            remaining: limit.limit.saturating_sub(used.saturating_add(spent)),
            retry_after_ms: match limit.limit.checked_sub(cost) {
                _ if allowed => 0,
                None => NEVER,
                Some(room) => wait_ms(u128::from(seen.falls_to(room) - now_us)) as i64,
            },
            reset_after_ms: wait_ms(u128::from(after.clear_at() - now_us)),
        },
        expiry: Expiry {
            at_ms: after.expire_at_ms(),
            unmoved: stored.is_some_and(|stored| stored.clear_at() == after.clear_at()),
        },
        next,
    }
}
