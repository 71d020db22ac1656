//! What checks decided: totals since startup, and an estimate of the last minute.

use std::cell::Cell;

use crate::math::{mul_div_floor, to_u64};

/// One minute in microseconds.
pub const MINUTE_US: u64 = 60 * 1_000_000;

/// What became of a check, or of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Checks that were allowed.
    Allowed,
    /// Checks that were denied.
    Denied,
    /// Checks that a limit in shadow mode would have denied. They also count as allowed.
    ShadowDenied,
    /// Checks that were charged past the limit.
    Forced,
    /// Units that were refunded.
    RefundedUnits,
}

impl Outcome {
    /// All outcomes, in the order of declaration.
    pub const ALL: [Self; 5] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::Forced,
        Self::RefundedUnits,
    ];

    /// The name in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::Forced => "forced",
            Self::RefundedUnits => "refunded_units",
        }
    }
}

/// The counters of one node or one policy. Counting is one addition; the rest is done once per minute.
#[derive(Clone, Debug)]
pub struct Counters {
    since_us: u64,
    totals: Numbers,
    /// When the current minute of the clock started.
    minute_us: Cell<u64>,
    /// The totals at that time.
    before: Numbers,
    /// What was counted in the previous minute.
    previous: Numbers,
}

type Numbers = [Cell<u64>; 5];

impl Counters {
    /// Starts counting.
    #[must_use]
    pub const fn new(now_us: u64) -> Self {
        Self {
            since_us: now_us,
            totals: [const { Cell::new(0) }; 5],
            minute_us: Cell::new(minute_of(now_us)),
            before: [const { Cell::new(0) }; 5],
            previous: [const { Cell::new(0) }; 5],
        }
    }

    /// Adds `amount` to a counter.
    #[inline(always)]
    pub fn add(&self, outcome: Outcome, amount: u64, now_us: u64) {
        self.roll_minute(now_us);
        let total = &self.totals[outcome as usize];
        total.set(total.get().saturating_add(amount));
    }

    /// Adds one to a counter, in the minute of the last [`Counters::roll_minute`].
    #[inline(always)]
    pub fn increment(&self, outcome: Outcome) {
        let total = &self.totals[outcome as usize];
        total.set(total.get().wrapping_add(1));
    }

    /// When counting started.
    #[must_use]
    pub fn since_us(&self) -> u64 {
        self.since_us
    }

    /// The total since then.
    #[must_use]
    pub fn total(&self, outcome: Outcome) -> u64 {
        self.totals[outcome as usize].get()
    }

    /// An estimate of the last 60 seconds, which assumes that the previous minute was even.
    #[must_use]
    pub fn per_minute(&self, outcome: Outcome, now_us: u64) -> u64 {
        self.roll_minute(now_us);
        let index = outcome as usize;
        let left_us = MINUTE_US - (now_us - self.minute_us.get());
        let fading = to_u64(mul_div_floor(
            self.previous[index].get(),
            left_us,
            MINUTE_US,
        ));
        let current = self.totals[index].get() - self.before[index].get();
        current.saturating_add(fading)
    }

    /// Starts a new minute if the current one is over.
    #[inline(always)]
    pub fn roll_minute(&self, now_us: u64) {
        // Also true for a clock that stepped back.
        if now_us.wrapping_sub(self.minute_us.get()) >= MINUTE_US {
            self.begin_minute(now_us);
        }
    }

    #[cold]
    fn begin_minute(&self, now_us: u64) {
        let idle = gap_between(self.minute_us.get(), now_us) == Gap::Minutes;
        for index in 0..self.totals.len() {
            let total = self.totals[index].get();
            let counted = total - self.before[index].replace(total);
            self.previous[index].set(if idle { 0 } else { counted });
        }
        self.minute_us.set(minute_of(now_us));
    }
}

pub(crate) const fn minute_of(now_us: u64) -> u64 {
    now_us - now_us % MINUTE_US
}

/// What lies between a minute and the one around `now_us`.
#[derive(PartialEq, Eq)]
pub(crate) enum Gap {
    /// Nothing, or the clock stepped back: the minute is the previous one.
    None,
    /// At least one minute in which nothing happened.
    Minutes,
}

pub(crate) fn gap_between(minute_us: u64, now_us: u64) -> Gap {
    match now_us.checked_sub(minute_us) {
        Some(elapsed) if elapsed >= 2 * MINUTE_US => Gap::Minutes,
        _ => Gap::None,
    }
}
