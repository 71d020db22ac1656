//! Leaky bucket as a queue: admits while there is room, and says how long to wait, so that admitted calls
//! leave evenly spaced.
//!
//! The queue is what a [`bucket`] calls its debt; only the answer differs.

use std::fmt;

use crate::bounds::MAX_TIME_US;
use crate::decision::{Mode, Outcome, wait_ms};
use crate::encoding::{Encoded, Fields};
use crate::inspect::Field;
use crate::shape::{Scale, Shape};
use crate::{Error, bucket};

pub(crate) const NAME: &str = "LEAK";
pub(crate) const TAG: u8 = 4;
/// Words of a spec between the name and the cost.
pub(crate) const PARAMETERS: usize = bucket::PARAMETERS;

/// A queue of at most `capacity` units, of which `rate` leave evenly over each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit(bucket::Limit);

impl Limit {
    /// A capacity of 0 blocks the key. `rate` is at least 1.
    pub fn new(capacity: u64, rate: u64, period_ms: u64) -> Result<Self, Error> {
        let limit = bucket::Limit::new(capacity, rate, period_ms);
        limit.map(Self).map_err(name_the_rate)
    }

    pub(crate) fn shape(&self) -> Shape {
        self.0.shape()
    }

    pub(crate) fn scaled(self, by: Scale) -> Self {
        Self(self.0.scaled(by))
    }

    pub(crate) fn parse<'a>(words: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        bucket::Limit::parse(words).map(Self).map_err(name_the_rate)
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NAME} ")?;
        self.0.write_parameters(f)
    }
}

fn name_the_rate(error: Error) -> Error {
    match error {
        Error::Refill => Error::Rate,
        other => other,
    }
}

/// The queue as it stood when it was last joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(bucket::State);

impl State {
    pub(crate) fn span_us(&self) -> u64 {
        self.0.span_us()
    }

    pub(crate) fn expire_at_ms(&self) -> u64 {
        self.0.expire_at_ms()
    }

    pub(crate) fn encode(&self) -> Encoded {
        self.0.encode_as(TAG)
    }

    pub(crate) fn decode(fields: Fields) -> Result<Self, Error> {
        bucket::State::decode(fields).map(Self)
    }

    pub(crate) fn refund(&self, now_us: u64, units: u64) -> (u64, Option<Self>) {
        let (given, next) = self.0.refund(now_us, units);
        (given, next.map(Self))
    }

    pub(crate) fn inspect(&self, now_us: u64) -> Vec<Field> {
        self.0.inspect(now_us)
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
    let queue = stored.map(|stored| &stored.0);
    let mut outcome = bucket::evaluate(&limit.0, queue, now_us, cost, mode);
    if outcome.decision.allowed {
        let ahead = queue.map_or(0, |queue| limit.0.owed(queue, now_us));
        outcome.decision.retry_after_ms = wait_ms(limit.0.drain_us(ahead)) as i64;
    }
    outcome.map(State)
}
