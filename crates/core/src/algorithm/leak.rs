//! Leaky bucket as a queue: allows a call while there is room and reports how long it has to wait, so that allowed
//! calls proceed evenly spaced.
//!
//! The queue is the same as the debt of a token bucket; only the answer differs.

use std::fmt;

use super::bucket::{BucketLimit, BucketState};
use super::descriptor::{Descriptor, Parameter};
use super::traits::{AlgorithmLimit, AlgorithmState, PackedLimit, PackedState};
use crate::decision::{Evaluation, Mode};
use crate::encoding::{Fields, Packed, Tag};
use crate::inspect::StateField;
use crate::refund::RefundRequest;
use crate::relocate::{Relocate, Walk};
use crate::reservation::{Charge, Origin};
use crate::{Error, Scale};

/// A queue of at most `capacity` units, of which `rate` leave evenly over each `period`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakLimit(BucketLimit);

impl LeakLimit {
    /// A capacity of 0 blocks the key. `rate` is at least 1.
    pub fn new(capacity: u64, rate: u64, period_ms: u64) -> Result<Self, Error> {
        let limit = BucketLimit::new(capacity, rate, period_ms);
        limit.map(Self).map_err(name_the_rate)
    }

    /// The length of the queue.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.0.capacity()
    }

    /// Units that leave the queue in each period.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.0.refill()
    }

    /// The period in milliseconds.
    #[must_use]
    pub const fn period_ms(&self) -> u64 {
        self.0.period_ms()
    }
}

impl<'a> AlgorithmLimit<'a> for LeakLimit {
    const DESCRIPTOR: Descriptor = Descriptor {
        name: "LEAK",
        command: Some(c"RL.LEAK"),
        type_name: c"rl-leak--",
        parameters: &[
            Parameter::integer(c"capacity"),
            Parameter::integer(c"rate"),
            Parameter::duration(c"period"),
        ],
        options: &[],
        summary: c"Queues a call in a leaky bucket and reports how long to wait.",
        complexity: c"O(1)",
    };

    type Owned = Self;

    #[inline(always)]
    fn parse(args: &mut impl Iterator<Item = &'a [u8]>) -> Result<Self, Error> {
        BucketLimit::parse(args).map(Self).map_err(name_the_rate)
    }

    fn set_option(&mut self, _token: &[u8], _value: Option<&[u8]>) -> Result<(), Error> {
        Err(Error::UnknownOption)
    }

    fn limit_value(&self) -> u64 {
        self.0.limit_value()
    }

    fn span_us(&self) -> u64 {
        self.0.span_us()
    }

    fn scaled(self, by: Scale) -> Self {
        Self(self.0.scaled(by))
    }

    fn into_owned(self) -> (Self, &'a [u8]) {
        (self, &[])
    }
}

impl fmt::Display for LeakLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", Self::DESCRIPTOR.name)?;
        self.0.write_parameters(f)
    }
}

#[cold]
fn name_the_rate(error: Error) -> Error {
    match error {
        Error::Refill => Error::Rate,
        Error::MissingRefill => Error::MissingRate,
        other => other,
    }
}

/// The queue as of the last allowed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakState(BucketState);

impl PackedLimit for LeakLimit {
    type State = LeakState;

    #[inline]
    fn evaluate(
        &self,
        stored: Option<&LeakState>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<LeakState> {
        let queue = stored.map(|stored| &stored.0);
        let (mut evaluation, delay_ms) = self.0.decide(queue, now_us, cost, mode);
        if evaluation.decision.allowed {
            evaluation.decision.retry_after_ms = delay_ms() as i64;
        }
        evaluation.map(LeakState)
    }
}

impl AlgorithmState for LeakState {
    type Refunded = Self;

    fn span_us(&self) -> u64 {
        self.0.span_us()
    }

    fn expire_at_ms(&self) -> u64 {
        self.0.expire_at_ms()
    }

    fn inspect(&self, now_us: u64) -> Vec<StateField> {
        self.0.inspect_with(now_us, "rate")
    }

    fn refund(&self, now_us: u64, request: &RefundRequest) -> Result<(u64, Option<Self>), Error> {
        let (refunded, left) = self.0.refund(now_us, request)?;
        Ok((refunded, left.map(Self)))
    }

    fn origin(&self) -> Option<Origin<'static>> {
        Some(Origin::Leak(self.0.charged_debt()))
    }

    fn mark_reserved(&mut self, now_us: u64) {
        self.0.mark_reserved(now_us);
    }

    fn refund_charge(&self, now_us: u64, charge: &Charge, units: u64) -> (u64, Option<Self>) {
        let Origin::Leak(debt) = &charge.origin else {
            return (0, None);
        };
        let (refunded, left) = self.0.refund_debt(now_us, debt, charge.units, units);
        (refunded, left.map(Self))
    }

    #[inline(always)]
    fn owns_memory(&self) -> bool {
        self.0.owns_memory()
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    fn relocate<R: Relocate>(&mut self, walk: &mut Walk<R>) {
        self.0.relocate(walk);
    }
}

impl PackedState for LeakState {
    fn encode(&self) -> Packed {
        self.0.encode_as(Tag::LEAK)
    }

    #[inline(always)]
    fn decode(fields: Fields) -> Result<Self, Error> {
        BucketState::decode(fields).map(Self)
    }
}
