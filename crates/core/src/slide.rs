//! Sliding-window counter: the previous window fades out while the current one fills.
//!
//! A call of `cost` at `e` into a window `W` is allowed iff
//! `previous·(W−e)/W + current + cost ≤ limit`. All but the first term are integers, so comparing with
//! that term rounded up is the same comparison, exactly.

use crate::bounds::{self, MAX_TIME_US, MAX_USAGE};
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, ceil_ms, wait_ms};
use crate::encoding::{Encoded, Fields, LOW_BITS};
use crate::math::{mul_div_ceil, mul_div_floor, to_u64};
use crate::{Error, parse};

pub(crate) const NAME: &str = "SLIDE";
pub(crate) const TAG: u8 = 1;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 2;

const COUNT_BITS: u32 = LOW_BITS / 2;

/// At most `limit` units per sliding `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    limit: u64,
    window_us: u64,
}

impl Limit {
    /// A limit of 0 blocks the key.
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: bounds::count(limit, Error::Limit)?,
            window_us: bounds::period_us(window_ms, Error::Window)?,
        })
    }

    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: parse::count(words.next(), Error::Limit)?,
            window_us: parse::duration_us(words.next(), Error::Window)?,
        })
    }
}

/// Two adjoining windows: the current one begins at `start_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    start_us: u64,
    window_us: u64,
    current: u64,
    previous: u64,
}

impl State {
    /// The same usage as it stands at `now`.
    fn at(self, now_us: u64) -> Self {
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
    fn used(&self, now_us: u64) -> u64 {
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
    fn clear_at(&self) -> u64 {
        if self.current > 0 {
            self.start_us + 2 * self.window_us
        } else if self.previous > 0 {
            self.start_us + self.window_us
        } else {
            self.start_us
        }
    }

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

#[inline]
pub(crate) fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Outcome<State> {
    let now_us = now_us.min(MAX_TIME_US);
    let seen = match stored {
        Some(stored) => stored.at(now_us),
        None => State {
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
        Some(State {
            current: seen.current.saturating_add(cost).min(MAX_USAGE),
            ..seen
        })
    } else {
        // Another window: usage so far fades over the new one, from now.
        Some(State {
            start_us: now_us,
            window_us: limit.window_us,
            current: cost,
            previous: used.min(MAX_USAGE),
        })
    };

    let after = next.as_ref().unwrap_or(&seen);
    let spent = if allowed { cost } else { 0 };
    Outcome {
        decision: Decision {
            allowed,
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
