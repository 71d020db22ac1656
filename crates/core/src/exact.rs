//! Exact sliding window: admits iff what was admitted in the last `window`, and this, is within the limit.
//!
//! Units taken at `t` count until `t + window`, not included. The log that it keeps is changed in place, so
//! a call costs the same however long the log is, and replicas follow step by step.

use std::fmt;

use crate::bounds::{self, MAX_PERIOD_MS, MAX_TIME_US};
use crate::decision::{Decision, Expiry, Mode, NEVER, Outcome, ceil_ms, wait_ms};
use crate::duration::Duration;
use crate::encoding::{Blob, varint};
use crate::inspect::Field;
use crate::log::Log;
use crate::shape::{Scale, Shape};
use crate::{Error, parse};

pub(crate) const NAME: &str = "EXACT";
pub(crate) const TAG: u8 = 5;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = 2;

/// Largest limit that a log is kept for.
pub const MAX_LIMIT: u64 = 1_000_000;

const MAX_PERIOD_US: u64 = MAX_PERIOD_MS * 1000;

/// At most `limit` units in any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    limit: u64,
    window_us: u64,
}

impl Limit {
    /// A limit of 0 blocks the key; at most [`MAX_LIMIT`].
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: loggable(limit)?,
            window_us: bounds::period_us(window_ms, Error::Window)?,
        })
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape {
            amounts: [Some(self.limit), None],
            span_us: self.window_us,
        }
    }

    pub(crate) fn scaled(self, by: Scale) -> Self {
        Self {
            limit: by.apply(self.limit).min(MAX_LIMIT),
            ..self
        }
    }

    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: loggable(parse::count(words.next(), Error::LogLimit)?)?,
            window_us: parse::duration_us(words.next(), Error::Window)?,
        })
    }
}

fn loggable(limit: u64) -> Result<u64, Error> {
    if limit <= MAX_LIMIT {
        Ok(limit)
    } else {
        Err(Error::LogLimit)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = Duration::from_us(self.window_us);
        write!(f, "{NAME} {} {window}", self.limit)
    }
}

/// What was taken in the window of the last allowed call, and some of what was taken before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    window_us: u64,
    log: Log,
}

/// A step from one state to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Units were taken.
    Take {
        /// When.
        at_us: u64,
        /// Under which window.
        window_us: u64,
        /// How many.
        units: u64,
    },
    /// The clock was seen to have stepped back, or units to count for longer.
    Notice {
        /// When.
        at_us: u64,
        /// Under which window.
        window_us: u64,
    },
    /// Units were given back.
    Refund {
        /// How many.
        units: u64,
    },
}

impl State {
    pub(crate) fn apply(&mut self, next: &Next) {
        match *next {
            Next::Take {
                at_us,
                window_us,
                units,
            } => {
                self.step_back_to(at_us);
                // A gap longer than any window: nothing before it can matter again.
                if self.log.last_us() < Some(horizon(at_us, MAX_PERIOD_US)) {
                    self.log = Log::default();
                }
                let longest = self.window_us.max(window_us);
                self.log.trim(horizon(at_us, longest));
                self.log.push(at_us as i64, units);
                self.window_us = window_us;
            }
            Next::Notice { at_us, window_us } => {
                self.step_back_to(at_us);
                self.window_us = self.window_us.max(window_us);
            }
            Next::Refund { units } => {
                self.log.pop(units);
            }
        }
    }

    pub(crate) fn begin(next: &Next) -> Option<Self> {
        let Next::Take { window_us, .. } = *next else {
            return None;
        };
        let mut state = Self {
            window_us,
            log: Log::default(),
        };
        state.apply(next);
        Some(state)
    }

    /// How far a clock that reads `now` is behind the last entry.
    fn behind_us(&self, now_us: u64) -> i64 {
        let last_us = self.log.last_us().unwrap_or(0);
        last_us.saturating_sub(now_us as i64).max(0)
    }

    fn step_back_to(&mut self, at_us: u64) {
        match self.behind_us(at_us) {
            0 => {}
            by_us => self.log.shift_back(by_us),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log.entries() == 0
    }

    pub(crate) fn span_us(&self) -> u64 {
        self.window_us
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        expire_at_ms(self.log.last_us().unwrap_or(0).max(0) as u64 + self.window_us)
    }

    pub(crate) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Next>) {
        let log_now_us = now_us.saturating_add_signed(self.behind_us(now_us));
        let in_use = self.log.units_after(horizon(log_now_us, self.window_us));
        let units = units.min(in_use);
        (units, (units < in_use).then_some(Next::Refund { units }))
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        let log_now_us = now_us.saturating_add_signed(self.behind_us(now_us));
        vec![
            Field::ms("window_ms", self.window_us),
            Field::number("entries", self.log.entries()),
            Field::number("log_bytes", self.log.heap_bytes() as u64),
            Field::ms("last_ms", self.log.last_us().unwrap_or(0).max(0) as u64),
            Field::number(
                "used",
                self.log.units_after(horizon(log_now_us, self.window_us)),
            ),
        ]
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.log.heap_bytes()
    }

    pub(crate) fn pieces(&self) -> usize {
        self.log.chunks()
    }

    pub(crate) fn write(&self, into: &mut Blob) {
        varint::write(into, self.window_us / 1000);
        self.log.write(into);
    }

    pub(crate) fn read(mut from: &[u8]) -> Result<Self, Error> {
        let window_ms = varint::read(&mut from)?;
        let state = Self {
            window_us: bounds::period_us(window_ms, Error::DamagedState)?,
            log: Log::read(&mut from)?,
        };
        let last_us = state.log.last_us().ok_or(Error::DamagedState)?;
        if !from.is_empty() || !(0..=MAX_TIME_US as i64).contains(&last_us) {
            return Err(Error::DamagedState);
        }
        Ok(state)
    }
}

impl Next {
    pub(crate) fn write(&self, into: &mut Blob) {
        let numbers = match *self {
            Self::Take {
                at_us,
                window_us,
                units,
            } => [0, at_us, window_us / 1000, units],
            Self::Notice { at_us, window_us } => [1, at_us, window_us / 1000, 0],
            Self::Refund { units } => [2, 0, 0, units],
        };
        for number in numbers {
            varint::write(into, number);
        }
    }

    pub(crate) fn read(mut from: &[u8]) -> Result<Self, Error> {
        let mut number = || varint::read(&mut from);
        let [kind, at_us, window_ms, units] = [number()?, number()?, number()?, number()?];
        if !from.is_empty() || at_us > MAX_TIME_US || units > bounds::MAX_USAGE {
            return Err(Error::DamagedState);
        }
        let window = || bounds::period_us(window_ms, Error::DamagedState);
        match (kind, units) {
            (0, 1..) => Ok(Self::Take {
                at_us,
                window_us: window()?,
                units,
            }),
            (1, 0) => Ok(Self::Notice {
                at_us,
                window_us: window()?,
            }),
            (2, 1..) if at_us == 0 && window_ms == 0 => Ok(Self::Refund { units }),
            _ => Err(Error::DamagedState),
        }
    }
}

/// Units taken at the horizon or before no longer count.
fn horizon(now_us: u64, window_us: u64) -> i64 {
    now_us as i64 - window_us as i64
}

/// By the full second, so that most calls on a busy key need not move it.
fn expire_at_ms(clear_at_us: u64) -> u64 {
    clear_at_us.div_ceil(1_000_000) * 1000
}

pub(crate) fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Result<Outcome<Next>, Error> {
    let now_us = now_us.min(MAX_TIME_US);
    let window_us = limit.window_us;
    let behind_us = stored.map_or(0, |stored| stored.behind_us(now_us));
    // A clock that stepped back counts from the last entry on, with all usage kept.
    let log_now_us = now_us.saturating_add_signed(behind_us);
    let used = stored.map_or(0, |stored| {
        stored.log.units_after(horizon(log_now_us, window_us))
    });
    let allowed = mode == Mode::Force || used.saturating_add(cost) <= limit.limit;
    let until_us = |taken_at_us: i64| {
        let leaves_at_us = taken_at_us + window_us as i64;
        u128::from((leaves_at_us - log_now_us as i64).max(0) as u64)
    };

    let next = if cost == 0 {
        None
    } else if allowed {
        Some(Next::Take {
            at_us: now_us,
            window_us,
            units: cost,
        })
    } else {
        // A denial leaves no trace, but for two cases in which its answer would not come true: a clock that
        // stepped back is noticed once, and under a longer window the key would expire too soon.
        let outlives = stored.is_some_and(|stored| used > 0 && stored.window_us < window_us);
        (behind_us > 0 || outlives).then_some(Next::Notice {
            at_us: now_us,
            window_us,
        })
    };
    let taken = allowed && cost > 0;
    let reset_after_ms = match stored.and_then(|stored| stored.log.last_us()) {
        _ if taken => ceil_ms(window_us),
        Some(last_us) if used > 0 => wait_ms(until_us(last_us)),
        _ => 0,
    };
    let kept_us = match next {
        Some(_) => window_us,
        None => 0,
    };
    let expire_at_ms = match stored {
        _ if taken => expire_at_ms(now_us + window_us),
        Some(stored) => {
            let last_us = stored.log.last_us().unwrap_or(0).min(now_us as i64);
            expire_at_ms(last_us.max(0) as u64 + stored.window_us.max(kept_us))
        }
        None => expire_at_ms(now_us),
    };
    let spent = if allowed { cost } else { 0 };
    Ok(Outcome {
        decision: Decision {
            allowed,
            index: 0,
            limit: limit.limit,
            remaining: limit.limit.saturating_sub(used.saturating_add(spent)),
            retry_after_ms: match (limit.limit.checked_sub(cost), stored) {
                _ if allowed => 0,
                (None, _) | (_, None) => NEVER,
                (Some(room), Some(stored)) => {
                    let in_the_way = used - room.min(used);
                    let taken_at_us = stored
                        .log
                        .time_of(horizon(log_now_us, window_us), in_the_way);
                    wait_ms(until_us(taken_at_us)) as i64
                }
            },
            reset_after_ms,
        },
        expiry: Expiry {
            at_ms: expire_at_ms,
            unmoved: stored.is_some_and(|stored| stored.expire_at_ms() == expire_at_ms),
        },
        next,
    })
}
