//! What a call answers, and what it leaves to be stored.

use crate::bounds::MAX_WAIT_MS;

/// `retry_after_ms` of a call that can never pass, because it costs more than the whole limit.
pub const NEVER: i64 = -1;

/// The index of a decision that no limit made, but an override.
pub const NO_INDEX: i8 = -1;

/// How a call treats the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Consume only within the limit.
    Check,
    /// Consume in any case, even past the limit.
    Force,
}

/// The five integers of a reply, and which limit they are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the call may go ahead.
    pub allowed: bool,
    /// Which of several limits decided; 0 where there is one, [`NO_INDEX`] where none did.
    pub index: i8,
    /// The limit or capacity that was applied.
    pub limit: u64,
    /// Whole units still available after the call.
    pub remaining: u64,
    /// 0 when allowed; else the wait after which the same call would pass, or [`NEVER`]. For LEAK, of an
    /// allowed call, the delay before it may proceed.
    pub retry_after_ms: i64,
    /// Time until the key is as good as new.
    pub reset_after_ms: u64,
}

impl Decision {
    /// A denial that is not enforced.
    #[inline]
    pub fn pass(&mut self) {
        if !self.allowed {
            self.allowed = true;
            self.retry_after_ms = 0;
        }
    }
}

/// When the key may vanish: from the moment its state stops mattering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Unix time; at most a second later than need be.
    pub at_ms: u64,
    /// The stored state had the same expiry, so it need not be set again.
    pub unmoved: bool,
}

/// The result of evaluating one limit; nothing has been stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome<S> {
    /// The answer to the caller.
    pub decision: Decision,
    /// What to store if the call is committed. `None` when there is nothing to write: a cost of 0, or
    /// a denial (but for a clock that stepped back, a rate that was lowered or an EXACT window that grew, once each).
    pub next: Option<S>,
    /// The key's expiry, if `next` is stored.
    pub expiry: Expiry,
}

impl<S> Outcome<S> {
    #[inline]
    pub(crate) fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Outcome<T> {
        Outcome {
            decision: self.decision,
            next: self.next.map(wrap),
            expiry: self.expiry,
        }
    }
}

/// Waits are rounded up: after `ceil_ms(wait)` milliseconds the wait is over, one earlier it is not.
pub(crate) fn ceil_ms(us: u64) -> u64 {
    us.div_ceil(1000)
}

/// A wait for a reply, from an exact number of microseconds.
pub(crate) fn wait_ms(us: u128) -> u64 {
    match u64::try_from(us) {
        Ok(us) => ceil_ms(us).min(MAX_WAIT_MS),
        Err(_) => MAX_WAIT_MS,
    }
}
