//! Exact sliding window: a call is allowed iff its cost plus everything charged in the last `window` is within the
//! limit.
//!
//! Units charged at `t` count until just before `t + window`. The log is changed in place, so a call takes the same
//! time however long the log is, and replicas receive each change rather than the whole log.

mod log;
mod state;

use std::fmt;

use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, BoxedLimit};
use crate::decision::{Decision, Evaluation, Expiry, Mode, ceil_ms, wait_ms};
use crate::units::{self, DurationText, MAX_TIME_US};
use crate::{Error, Scale, syntax};
use state::{expire_at_ms, horizon};

pub use state::{ExactState, ExactUpdate};

/// The largest limit: the log grows with it.
pub const MAX_EXACT_LIMIT: u64 = 1_000_000;

/// At most `limit` units in any `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactLimit {
    limit: u64,
    window_us: u64,
}

impl ExactLimit {
    /// A limit of 0 blocks the key; at most [`MAX_EXACT_LIMIT`].
    pub fn new(limit: u64, window_ms: u64) -> Result<Self, Error> {
        Ok(Self {
            limit: loggable(limit)?,
            window_us: units::period_us(window_ms, Error::Window)?,
        })
    }

    /// Units per window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The window in milliseconds.
    #[must_use]
    pub const fn window_ms(&self) -> u64 {
        self.window_us / 1000
    }
}

fn loggable(limit: u64) -> Result<u64, Error> {
    if limit <= MAX_EXACT_LIMIT {
        Ok(limit)
    } else {
        Err(Error::ExactLimit)
    }
}

impl<'a> AlgorithmLimit<'a> for ExactLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "EXACT",
        command: Some(c"RL.EXACT"),
        type_name: c"rl-exact-",
        parameters: &[Parameter::integer(c"limit"), Parameter::duration(c"window")],
        options: &[],
        summary: c"Checks and logs a call against an exact sliding window.",
        complexity: c"O(1) amortised; O(log N) to find a wait, N being the calls in the window",
    };

    type Owned = Self;

    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        Ok(Self {
            limit: loggable(syntax::parse_count(args.next(), Error::ExactLimit)?)?,
            window_us: syntax::parse_duration_us(args.next(), Error::Window)?,
        })
    }

    fn set_option(&mut self, _token: &[u8], _value: Option<&[u8]>) -> Result<(), Error> {
        Err(Error::UnknownOption)
    }

    fn limit_value(&self) -> u64 {
        self.limit
    }

    fn span_us(&self) -> u64 {
        self.window_us
    }

    fn scaled(self, by: Scale) -> Self {
        Self {
            limit: by.apply(self.limit).min(MAX_EXACT_LIMIT),
            ..self
        }
    }

    fn into_owned(self) -> (Self, &'a [u8]) {
        (self, &[])
    }
}

impl fmt::Display for ExactLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let window = DurationText::from_us(self.window_us);
        write!(f, "{} {} {window}", Self::DESCRIPTOR.name, self.limit)
    }
}

impl BoxedLimit<'_> for ExactLimit {
    type State = ExactState;
    type Update = ExactUpdate;

    fn evaluate(
        &self,
        stored: Option<&ExactState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Result<Evaluation<ExactUpdate>, Error> {
        let now_us = now_us.min(MAX_TIME_US);
        let window_us = self.window_us;
        let behind_us = stored.map_or(0, |stored| stored.behind_us(now_us));
        // After a step back of the clock, time is taken from the last entry, and all usage is kept.
        let log_now_us = now_us.saturating_add_signed(behind_us);
        let used = stored.map_or(0, |stored| {
            stored.log.units_after(horizon(log_now_us, window_us))
        });
        let allowed = mode == Mode::Force || used.saturating_add(cost) <= self.limit;
        let until_us = |charged_at_us: i64| {
            let leaves_at_us = charged_at_us + window_us as i64;
            u128::from((leaves_at_us - log_now_us as i64).max(0) as u64)
        };

        let update = if cost == 0 {
            None
        } else if allowed {
            Some(ExactUpdate::Charge {
                at_us: now_us,
                window_us,
                units: cost,
            })
        } else {
            // A denial writes nothing, except in two cases in which its answer would otherwise be wrong: a clock that
            // stepped back is recorded once, and under a longer window the key would expire too early.
            let outlives = stored.is_some_and(|stored| used > 0 && stored.window_us < window_us);
            (behind_us > 0 || outlives).then_some(ExactUpdate::Adjust {
                at_us: now_us,
                window_us,
            })
        };
        let charged = allowed && cost > 0;
        let reset_after_ms = match stored.and_then(|stored| stored.log.last_us()) {
            _ if charged => ceil_ms(window_us),
            Some(last_us) if used > 0 => wait_ms(until_us(last_us)),
            _ => 0,
        };
        let kept_us = match update {
            Some(_) => window_us,
            None => 0,
        };
        let expire_at_ms = match stored {
            _ if charged => expire_at_ms(now_us + window_us),
            Some(stored) => {
                let last_us = stored.log.last_us().unwrap_or(0).min(now_us as i64);
                expire_at_ms(last_us.max(0) as u64 + stored.window_us.max(kept_us))
            }
            None => expire_at_ms(now_us),
        };
        Ok(Evaluation {
            decision: Decision {
                reset_after_ms,
                ..Decision::new(self.limit, used, cost, allowed, |room| {
                    let must_leave = used - room.min(used);
                    // Only a key with a log denies a call that is within the limit.
                    stored.map_or(0, |stored| {
                        let horizon_us = horizon(log_now_us, window_us);
                        wait_ms(until_us(stored.log.time_of(horizon_us, must_leave)))
                    })
                })
            },
            expiry: Expiry {
                at_ms: expire_at_ms,
                unchanged: stored.is_some_and(|stored| stored.expire_at_ms() == expire_at_ms),
            },
            update,
        })
    }
}
