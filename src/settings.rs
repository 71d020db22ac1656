//! What an operator can set: `CONFIG SET rl.<name>` where the server has it (7.0 and later), and module
//! arguments of the same names without the prefix.

use std::ffi::CStr;
use std::ops::RangeInclusive;

/// A setting that is a number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    /// Denials that RL.AUDIT keeps; 0 for none.
    AuditMaxLen,
    /// One in so many denials is recorded; 0 for none.
    AuditSample,
    /// Entries that the stream keeps, or somewhat more.
    AuditStreamMaxLen,
    /// Keys that RL.TOP can tell; 0 for none.
    TopSize,
}

impl Number {
    pub(crate) const ALL: [Self; 4] = [
        Self::AuditMaxLen,
        Self::AuditSample,
        Self::AuditStreamMaxLen,
        Self::TopSize,
    ];

    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::AuditMaxLen => c"audit-max-len",
            Self::AuditSample => c"audit-sample",
            Self::AuditStreamMaxLen => c"audit-stream-max-len",
            Self::TopSize => c"top-size",
        }
    }

    pub(crate) const fn range(self) -> RangeInclusive<i64> {
        match self {
            Self::AuditMaxLen => 0..=100_000,
            Self::AuditSample => 0..=1_000_000_000,
            Self::AuditStreamMaxLen => 1..=1_000_000_000,
            Self::TopSize => 0..=10_000,
        }
    }

    const fn default(self) -> i64 {
        match self {
            Self::AuditMaxLen | Self::TopSize => 128,
            Self::AuditSample => 1,
            Self::AuditStreamMaxLen => 10_000,
        }
    }
}

/// The key of the stream that sampled denials are added to; empty for none.
pub(crate) const AUDIT_STREAM: &CStr = c"audit-stream";

#[derive(Clone)]
pub(crate) struct Settings {
    numbers: [i64; Number::ALL.len()],
    pub(crate) audit_stream: Vec<u8>,
}

impl Settings {
    pub(crate) const fn new() -> Self {
        let mut numbers = [0; Number::ALL.len()];
        let mut place = 0;
        while place < numbers.len() {
            numbers[place] = Number::ALL[place].default();
            place += 1;
        }
        Self {
            numbers,
            audit_stream: Vec::new(),
        }
    }

    pub(crate) fn number(&self, which: Number) -> i64 {
        self.numbers[which as usize]
    }

    pub(crate) fn set(&mut self, which: Number, value: i64) {
        self.numbers[which as usize] = value;
    }
}
