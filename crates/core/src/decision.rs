//! The answer to a call, and what has to be stored afterwards.

use crate::units::MAX_WAIT_MS;

/// `retry_after_ms` of a call that can never be allowed, because it costs more than the whole limit or
/// because an override blocks the key for good.
pub const NEVER: i64 = -1;

/// The reply with BRIEF to a call that can never be allowed: −2^53, less than any negated wait.
pub const BRIEF_NEVER: i64 = -(1 << 53);

/// The reply with BRIEF to a call that is denied for `retry_after_ms`.
#[must_use]
pub const fn brief_denial(retry_after_ms: i64) -> i64 {
    match retry_after_ms {
        NEVER => BRIEF_NEVER,
        // A denial without a wait must not look like an allowed call.
        ..=0 => -1,
        wait => -wait,
    }
}

/// The index of a decision that was made by an override instead of a limit.
pub const OVERRIDE_INDEX: i8 = -1;

/// How a call treats the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Charge only within the limit.
    Check,
    /// Always charge, even past the limit.
    Force,
}

/// The five integers of a reply, and the index of the limit that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// Whether the call is allowed.
    pub allowed: bool,
    /// Which of several limits decided: 0 if there is only one, [`OVERRIDE_INDEX`] if an override decided.
    pub index: i8,
    /// The limit or capacity that was applied.
    pub limit: u64,
    /// Whole units still available after the call.
    pub remaining: u64,
    /// 0 if allowed; otherwise the wait after which the same call would be allowed, or [`NEVER`]. For an allowed call
    /// under LEAK, the delay before it may proceed.
    pub retry_after_ms: i64,
    /// The time until the key is fully reset.
    pub reset_after_ms: u64,
}

impl Decision {
    /// The decision of a limit with `used` units in use about a call of `cost`. `wait_ms` computes the wait until no more
    /// than `room` units are in use. The caller adds `reset_after_ms`.
    #[inline(always)]
    pub(crate) fn new(
        limit: u64,
        used: u64,
        cost: u64,
        allowed: bool,
        wait_ms: impl FnOnce(u64) -> u64,
    ) -> Self {
        let charged = if allowed { cost } else { 0 };
        Self {
            allowed,
            index: 0,
            limit,
            remaining: limit.saturating_sub(used.saturating_add(charged)),
            retry_after_ms: match limit.checked_sub(cost) {
                _ if allowed => 0,
                None => NEVER,
                Some(room) => wait_ms(room) as i64,
            },
            reset_after_ms: 0,
        }
    }

    /// The most calls of `cost` each for which there is room.
    pub(crate) fn affordable_calls(&self, cost: u64) -> u64 {
        self.remaining.checked_div(cost).unwrap_or(u64::MAX)
    }

    /// The reply with BRIEF, one integer: `remaining` of an allowed call, otherwise the negated wait, or
    /// [`BRIEF_NEVER`]. It is negative if and only if the call is denied. If `reports_delay`, an allowed call replies its
    /// delay instead of `remaining`.
    #[must_use]
    pub const fn brief(&self, reports_delay: bool) -> i64 {
        match self.allowed {
            true if reports_delay => self.retry_after_ms,
            true => self.remaining as i64,
            false => brief_denial(self.retry_after_ms),
        }
    }

    /// The decision of a limit that is not enforced: allowed, without a wait or a delay.
    #[inline]
    pub fn allow_in_shadow(&mut self) {
        self.allowed = true;
        self.retry_after_ms = 0;
    }
}

/// When the key may expire: as soon as its state no longer matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Unix time; for BUCKET and LEAK up to 30 seconds later than necessary, for EXACT up to one.
    pub at_ms: u64,
    /// Whether the stored state has the same expiry, so that it need not be set again.
    pub unchanged: bool,
}

/// The result of evaluating one limit; nothing has been stored yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Evaluation<S> {
    /// The answer to the caller.
    pub decision: Decision,
    /// What to store if the call is committed. `None` if there is nothing to write: the cost is 0, or the call is
    /// denied. A denial is written only once after the clock stepped back, a rate was lowered or an EXACT window grew.
    pub update: Option<S>,
    /// The key's expiry, if `update` is stored.
    pub expiry: Expiry,
}

impl<S> Evaluation<S> {
    #[inline]
    pub(crate) fn map<T>(self, wrap: impl FnOnce(S) -> T) -> Evaluation<T> {
        Evaluation {
            decision: self.decision,
            update: self.update.map(wrap),
            expiry: self.expiry,
        }
    }
}

/// Rounds a wait up: after that many milliseconds the wait is over, one millisecond earlier it is not.
pub(crate) fn ceil_ms(us: u64) -> u64 {
    us.div_ceil(1000)
}

/// The wait to report, from an exact number of microseconds.
pub(crate) fn wait_ms(us: u128) -> u64 {
    match u64::try_from(us) {
        Ok(us) => ceil_ms(us).min(MAX_WAIT_MS),
        Err(_) => MAX_WAIT_MS,
    }
}
