//! Limits, and a key as a caller keeps it: it evaluates calls and stores their updates.

use proptest::prelude::ProptestConfig;
use rl_core::{Calendar, Decision, Evaluation, Limit, Mode, RefundRequest, State, Update};

/// How many cases a property is tried on. `make mutants` tries fewer: RL_CASES_DIVISOR says how much so.
pub fn cases(usual: u32) -> ProptestConfig {
    let divisor = std::env::var("RL_CASES_DIVISOR").ok();
    let divisor = divisor.and_then(|text| text.parse().ok()).unwrap_or(1);
    ProptestConfig {
        cases: usual.div_ceil(divisor),
        // A failing case is printed whole: make it a test of its own rather than a seed in a file.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// 14 November 2023, and an odd microsecond of it.
pub const NOW: u64 = 1_700_000_000_123_457;
pub const MS: u64 = 1000;
pub const SECOND: u64 = 1000 * MS;
pub const MINUTE: u64 = 60 * SECOND;

pub fn slide(limit: u64, window_ms: u64) -> Limit<'static> {
    Limit::Slide(rl_core::SlideLimit::new(limit, window_ms).unwrap())
}

/// SLIDE with a precision; 1 stands for none.
pub fn parts(limit: u64, window_ms: u64, precision: u8) -> Limit<'static> {
    let limit = rl_core::SlideLimit::new(limit, window_ms).unwrap();
    Limit::Slide(match precision {
        1 => limit,
        precision => limit.with_precision(precision).unwrap(),
    })
}

pub fn bucket(capacity: u64, refill: u64, period_ms: u64) -> Limit<'static> {
    Limit::Bucket(rl_core::BucketLimit::new(capacity, refill, period_ms).unwrap())
}

pub fn fixed(limit: u64, window_ms: u64) -> Limit<'static> {
    Limit::Fixed(rl_core::FixedLimit::new(limit, window_ms).unwrap())
}

/// FIXED with every boundary moved.
pub fn fixed_with_offset(limit: u64, window_ms: u64, offset_ms: i64) -> Limit<'static> {
    let limit = rl_core::FixedLimit::new(limit, window_ms).unwrap();
    Limit::Fixed(limit.with_offset(offset_ms).unwrap())
}

/// FIXED with a window of the calendar.
pub fn calendar(limit: u64, calendar: Calendar, offset_ms: i64) -> Limit<'static> {
    let limit = rl_core::FixedLimit::calendar(limit, calendar).unwrap();
    Limit::Fixed(limit.with_offset(offset_ms).unwrap())
}

pub fn leak(capacity: u64, rate: u64, period_ms: u64) -> Limit<'static> {
    Limit::Leak(rl_core::LeakLimit::new(capacity, rate, period_ms).unwrap())
}

pub fn exact(limit: u64, window_ms: u64) -> Limit<'static> {
    Limit::Exact(rl_core::ExactLimit::new(limit, window_ms).unwrap())
}

pub fn lease(limit: u64, ttl_ms: u64, holder: &[u8]) -> Limit<'_> {
    Limit::Lease(rl_core::LeaseLimit::new(limit, ttl_ms, holder).unwrap())
}

/// Who leases: names of which one begins another, and one of any bytes.
pub const HOLDERS: [&[u8]; 4] = [b"a", b"ab", b"\0\xff", b"b"];

/// A limit whose numbers can be read, in milliseconds like the commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Limit, window, precision.
    Slide(u64, u64, u8),
    Bucket(u64, u64, u64),
    /// Limit, window, offset.
    Fixed(u64, u64, i64),
    /// Limit, window, offset.
    Calendar(u64, Calendar, i64),
    Leak(u64, u64, u64),
    Exact(u64, u64),
    /// Limit, ttl, which of [`HOLDERS`].
    Lease(u64, u64, usize),
}

impl Rule {
    pub fn limit(self) -> Limit<'static> {
        match self {
            Self::Slide(limit, window_ms, precision) => parts(limit, window_ms, precision),
            Self::Bucket(capacity, refill, period_ms) => bucket(capacity, refill, period_ms),
            Self::Fixed(limit, window_ms, offset) => fixed_with_offset(limit, window_ms, offset),
            Self::Calendar(limit, window, offset_ms) => calendar(limit, window, offset_ms),
            Self::Leak(capacity, rate, period_ms) => leak(capacity, rate, period_ms),
            Self::Exact(limit, window_ms) => exact(limit, window_ms),
            Self::Lease(limit, ttl_ms, holder) => lease(limit, ttl_ms, HOLDERS[holder]),
        }
    }

    /// The limit or capacity.
    pub fn size(self) -> u64 {
        let (Self::Slide(size, ..)
        | Self::Bucket(size, ..)
        | Self::Fixed(size, ..)
        | Self::Calendar(size, ..)
        | Self::Leak(size, ..)
        | Self::Exact(size, _)
        | Self::Lease(size, ..)) = self;
        size
    }

    /// The window, period or ttl.
    pub fn span_us(self) -> u64 {
        let span_ms = match self {
            Self::Calendar(_, calendar, _) => calendar.longest_ms(),
            Self::Slide(_, span_ms, _)
            | Self::Bucket(_, _, span_ms)
            | Self::Fixed(_, span_ms, _)
            | Self::Leak(_, _, span_ms)
            | Self::Exact(_, span_ms)
            | Self::Lease(_, span_ms, _) => span_ms,
        };
        span_ms * 1000
    }

    /// Units that come back in a span.
    pub fn flow(self) -> u64 {
        match self {
            Self::Bucket(_, flow, _) | Self::Leak(_, flow, _) => flow,
            other => other.size(),
        }
    }

    /// Whether what was taken flows back evenly, at the rate of the call being made.
    pub fn drains(self) -> bool {
        matches!(self, Self::Bucket(..) | Self::Leak(..))
    }

    /// By how much a key may outlive its state.
    pub fn late_ms(self) -> u64 {
        match self {
            Self::Bucket(capacity, rate, period) | Self::Leak(capacity, rate, period) => {
                let drain = u128::from(capacity) * u128::from(period) / u128::from(rate);
                (drain / 4).clamp(30_000, 3_600_000) as u64
            }
            _ => 1001,
        }
    }
}

#[derive(Clone, Debug, Default)]
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

    pub fn store<'a>(
        &mut self,
        limit: &Limit<'a>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<Update<'a>> {
        let outcome = self.evaluate(limit, now_us, cost, mode);
        if let Some(next) = outcome.update.clone() {
            self.take(next);
        }
        outcome
    }

    /// Follows a step, as the server and its replicas do.
    pub fn take(&mut self, next: Update) {
        match &mut self.0 {
            Some(state) => state.apply(next),
            empty => *empty = next.into_initial(),
        }
    }

    pub fn evaluate<'a>(
        &self,
        limit: &Limit<'a>,
        now_us: u64,
        cost: u64,
        mode: Mode,
    ) -> Evaluation<Update<'a>> {
        limit.evaluate(self.0.as_ref(), now_us, cost, mode).unwrap()
    }

    pub fn remaining(&self, limit: &Limit, now_us: u64) -> u64 {
        self.peek(limit, now_us, 0).remaining
    }

    /// What is there at a moment: the server lets a key go at its expiry.
    pub fn until_it_expires(&self, now_us: u64) -> Self {
        let lives = |state: &&State| now_us < state.expire_at_ms() * MS;
        Self(self.0.as_ref().filter(lives).cloned())
    }

    /// Gives units back as RL.REFUND does: a key of which nothing is left is gone.
    pub fn refund(&mut self, now_us: u64, units: u64) -> u64 {
        self.refund_with(now_us, units.into())
    }

    pub fn refund_with(&mut self, now_us: u64, request: RefundRequest) -> u64 {
        let Some(state) = &self.0 else { return 0 };
        let back = state.refund(now_us, request).unwrap();
        self.give(back.units, back.update)
    }

    /// Lets go of a lease as RL.RELEASE does.
    pub fn release(&mut self, now_us: u64, holder: &[u8]) -> u64 {
        let Some(state) = &self.0 else { return 0 };
        let back = state.release(now_us, holder).unwrap();
        self.give(back.units, back.update)
    }

    fn give(&mut self, units: u64, next: Option<Update>) -> u64 {
        match next {
            _ if units == 0 => {}
            Some(next) => self.take(next),
            None => self.0 = None,
        }
        units
    }
}

/// A denial, without the rest.
pub fn wait(decision: Decision) -> i64 {
    assert!(!decision.allowed, "{decision:?}");
    decision.retry_after_ms
}
