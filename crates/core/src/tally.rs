//! What limits answered: totals since the start, and an estimate of the last minute.

use std::cell::Cell;

use crate::math::{mul_div_floor, to_u64};

/// In the microseconds of all times here.
pub const MINUTE_US: u64 = 60 * 1_000_000;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Calls that may go ahead.
    Allowed,
    /// Calls that may not.
    Denied,
    /// Calls that a limit on trial would have denied. They are allowed calls too.
    ShadowDenied,
    /// Calls that consumed past the limit.
    Forced,
    /// Units given back.
    Refunded,
}

impl Counted {
    /// All of them, in the order of declaration.
    pub const ALL: [Self; 5] = [
        Self::Allowed,
        Self::Denied,
        Self::ShadowDenied,
        Self::Forced,
        Self::Refunded,
    ];

    /// The name in replies.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::ShadowDenied => "shadow_denied",
            Self::Forced => "forced",
            Self::Refunded => "refunded",
        }
    }
}

/// Counts of one node or one policy. A count is one addition; minutes are told apart when one ends.
#[derive(Clone, Debug)]
pub struct Tally {
    since_us: u64,
    totals: Numbers,
    /// When the current minute of the clock began.
    minute_us: Cell<u64>,
    /// The totals at that moment.
    before: Numbers,
    /// What was counted in the minute before.
    previous: Numbers,
}

type Numbers = [Cell<u64>; 5];

impl Tally {
    /// Begins to count.
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

    /// Counts so many of a kind.
    #[inline(always)]
    pub fn add(&self, what: Counted, amount: u64, now_us: u64) {
        self.turn(now_us);
        let total = &self.totals[what as usize];
        total.set(total.get().saturating_add(amount));
    }

    /// Counts one of a kind in the minute that was current last.
    #[inline(always)]
    pub fn add_one_now(&self, what: Counted) {
        let total = &self.totals[what as usize];
        total.set(total.get().wrapping_add(1));
    }

    /// When counting began.
    #[must_use]
    pub fn since_us(&self) -> u64 {
        self.since_us
    }

    /// All that was counted of a kind.
    #[must_use]
    pub fn total(&self, what: Counted) -> u64 {
        self.totals[what as usize].get()
    }

    /// What was counted of a kind in the last 60 seconds, the previous minute taken to have been even.
    #[must_use]
    pub fn per_minute(&self, what: Counted, now_us: u64) -> u64 {
        self.turn(now_us);
        let what = what as usize;
        let left_us = MINUTE_US - (now_us - self.minute_us.get());
        let fading = to_u64(mul_div_floor(self.previous[what].get(), left_us, MINUTE_US));
        let current = self.totals[what].get() - self.before[what].get();
        current.saturating_add(fading)
    }

    /// Begins a new minute, if it is time.
    #[inline(always)]
    pub fn turn(&self, now_us: u64) {
        // True as well for a clock that stepped back.
        if now_us.wrapping_sub(self.minute_us.get()) >= MINUTE_US {
            self.begin_minute(now_us);
        }
    }

    #[cold]
    fn begin_minute(&self, now_us: u64) {
        let idle = follows(self.minute_us.get(), now_us) == Gap::Minutes;
        for what in 0..self.totals.len() {
            let total = self.totals[what].get();
            let counted = total - self.before[what].replace(total);
            self.previous[what].set(if idle { 0 } else { counted });
        }
        self.minute_us.set(minute_of(now_us));
    }
}

pub(crate) const fn minute_of(now_us: u64) -> u64 {
    now_us - now_us % MINUTE_US
}

/// How the minute around `now` comes after another one.
#[derive(PartialEq, Eq)]
pub(crate) enum Gap {
    /// At once, or by a clock that stepped back: the other is the previous one.
    None,
    /// With at least a minute between in which nothing happened.
    Minutes,
}

pub(crate) fn follows(minute_us: u64, now_us: u64) -> Gap {
    match now_us.checked_sub(minute_us) {
        Some(elapsed) if elapsed >= 2 * MINUTE_US => Gap::Minutes,
        _ => Gap::None,
    }
}
