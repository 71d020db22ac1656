//! Limits, and a key as a caller keeps it: evaluates, and stores what it is told to.

// Every test binary compiles this module and uses a part of it.
#![allow(dead_code)]

use rl_core::{Decision, Limit, Mode, Outcome, State, bucket, slide};

/// 14 November 2023, and an odd microsecond of it.
pub const NOW: u64 = 1_700_000_000_123_457;
pub const MS: u64 = 1000;
pub const SECOND: u64 = 1000 * MS;
pub const MINUTE: u64 = 60 * SECOND;

pub fn slide(limit: u64, window_ms: u64) -> Limit {
    Limit::Slide(slide::Limit::new(limit, window_ms).unwrap())
}

pub fn bucket(capacity: u64, refill: u64, period_ms: u64) -> Limit {
    Limit::Bucket(bucket::Limit::new(capacity, refill, period_ms).unwrap())
}

/// A limit whose numbers can be read, in milliseconds like the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    Slide(u64, u64),
    Bucket(u64, u64, u64),
}

impl Rule {
    pub fn limit(self) -> Limit {
        match self {
            Self::Slide(limit, window_ms) => slide(limit, window_ms),
            Self::Bucket(capacity, refill, period_ms) => bucket(capacity, refill, period_ms),
        }
    }

    /// The limit or capacity.
    pub fn size(self) -> u64 {
        let (Self::Slide(size, _) | Self::Bucket(size, _, _)) = self;
        size
    }

    /// The window or period.
    pub fn span_us(self) -> u64 {
        let (Self::Slide(_, span_ms) | Self::Bucket(_, _, span_ms)) = self;
        span_ms * 1000
    }

    /// Units that come back in a span.
    pub fn flow(self) -> u64 {
        match self {
            Self::Slide(limit, _) => limit,
            Self::Bucket(_, refill, _) => refill,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Key(pub Option<State>);

impl Key {
    pub fn call(&mut self, limit: &Limit, now_us: u64, cost: u64) -> Decision {
        self.store(limit, now_us, cost, Mode::Check).decision
    }

    pub fn force(&mut self, limit: &Limit, now_us: u64, cost: u64) -> Decision {
        self.store(limit, now_us, cost, Mode::Force).decision
    }

    /// Decides without storing.
    pub fn peek(&self, limit: &Limit, now_us: u64, cost: u64) -> Decision {
        self.evaluate(limit, now_us, cost, Mode::Check).decision
    }

    pub fn store(&mut self, limit: &Limit, now_us: u64, cost: u64, mode: Mode) -> Outcome {
        let outcome = self.evaluate(limit, now_us, cost, mode);
        self.0 = outcome.next.or(self.0);
        outcome
    }

    pub fn evaluate(&self, limit: &Limit, now_us: u64, cost: u64, mode: Mode) -> Outcome {
        limit.evaluate(self.0.as_ref(), now_us, cost, mode).unwrap()
    }

    pub fn remaining(&self, limit: &Limit, now_us: u64) -> u64 {
        self.peek(limit, now_us, 0).remaining
    }
}

/// A denial, without the rest.
pub fn wait(decision: Decision) -> i64 {
    assert!(!decision.allowed, "{decision:?}");
    decision.retry_after_ms
}
