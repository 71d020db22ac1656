//! What a check answers.

use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

/// The answer to a check.
///
/// When several limits were checked at once, the figures are those of one limit, [`Decision::index`]: the one
/// that denied, or else the one that has the fewest such calls left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether the call may go ahead.
    pub allowed: bool,
    /// The limit or capacity applied.
    pub limit: u64,
    /// Whole units still available after this call.
    pub remaining: u64,
    /// When denied, the wait after which the same call would pass, and `None` if it never can because it costs more
    /// than the whole limit. When allowed, zero; for [`Limit::Leak`](crate::Limit::Leak), the time to wait before
    /// going ahead.
    pub retry_after: Option<Duration>,
    /// The time until the key is as good as new.
    pub reset_after: Duration,
    /// Which of the limits checked the figures belong to, from 0. Where one policy was checked, which of its limits.
    pub index: usize,
    /// Where the answer came from.
    pub source: Source,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The server decided.
    Redis,
    /// The server denied a moment ago and said for how long.
    DenyCache,
    /// Paid from a budget that the server granted to this process.
    Budget,
    /// The server did not answer: [`FailureMode::Open`](crate::FailureMode::Open) let the call pass.
    FailOpen,
    /// The server did not answer: [`FailureMode::Closed`](crate::FailureMode::Closed) refused the call.
    FailClosed,
    /// The server did not answer: the in-process limit of [`FailureMode::Local`](crate::FailureMode::Local) decided.
    FailLocal,
}

impl Source {
    /// Whether the answer was given without the server because of a fault.
    #[must_use]
    pub const fn is_fallback(self) -> bool {
        matches!(self, Self::FailOpen | Self::FailClosed | Self::FailLocal)
    }

    /// Whether the answer was given without a call to the server.
    #[must_use]
    pub const fn is_local(self) -> bool {
        !matches!(self, Self::Redis)
    }
}

impl Decision {
    /// Which limit denied, from 0; `None` when allowed.
    #[must_use]
    pub const fn denied_by(&self) -> Option<usize> {
        if self.allowed { None } else { Some(self.index) }
    }

    pub(crate) const fn at(self, index: usize, source: Source) -> Self {
        Self {
            index,
            source,
            ..self
        }
    }

    pub(crate) fn from_five([allowed, limit, remaining, retry_ms, reset_ms]: [i64; 5]) -> Self {
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Self {
            allowed: allowed != 0,
            limit: count(limit),
            remaining: count(remaining),
            retry_after: u64::try_from(retry_ms).ok().map(Duration::from_millis),
            reset_after: Duration::from_millis(count(reset_ms)),
            index: 0,
            source: Source::Redis,
        }
    }
}

impl FromRedisValue for Decision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        // RL.CHECK adds which limit of the policy decided, -1 if none did.
        if let Value::Array(items) = &value
            && items.len() == 6
        {
            let (allowed, limit, remaining, retry_ms, reset_ms, index): (_, _, _, _, _, i64) =
                FromRedisValue::from_redis_value(value)?;
            let five = Self::from_five([allowed, limit, remaining, retry_ms, reset_ms]);
            return Ok(five.at(usize::try_from(index).unwrap_or(0), Source::Redis));
        }
        let five = <(i64, i64, i64, i64, i64)>::from_redis_value(value)?;
        Ok(Self::from_five(five.into()))
    }
}

/// The reply of RL.MULTI: what each limit answered, and what they answered together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MultiDecision {
    /// Whether all limits allowed; if not, nothing was spent anywhere.
    pub allowed: bool,
    /// The longest wait of the limits that denied; `None` if one of them can never pass.
    pub retry_after: Option<Duration>,
    /// What each limit alone would have answered, in the order of the call.
    pub limits: Vec<Decision>,
}

impl MultiDecision {
    /// What limits decided one by one amounts to.
    pub(crate) fn of(limits: Vec<Decision>) -> Self {
        Self {
            allowed: limits.iter().all(|decision| decision.allowed),
            retry_after: None,
            limits,
        }
    }

    /// One decision for all. `costs` are those of the call.
    pub(crate) fn headline(&self, costs: impl Iterator<Item = u64>) -> Option<Decision> {
        let each = self.limits.iter().enumerate();
        let (index, chosen) = if self.allowed {
            // `remaining / cost`, compared as calls left; a free call has no end of them.
            let calls_left = |((_, decision), cost): &((_, &Decision), u64)| match cost {
                0 => u64::MAX,
                cost => decision.remaining / cost,
            };
            each.zip(costs).min_by_key(calls_left)?.0
        } else {
            let wait = |decision: &Decision| decision.retry_after.unwrap_or(Duration::MAX);
            each.filter(|(_, decision)| !decision.allowed)
                .max_by_key(|(_, decision)| wait(decision))?
        };
        Some(Decision {
            allowed: self.allowed,
            ..chosen.at(index, Source::Redis)
        })
    }
}

impl FromRedisValue for MultiDecision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (allowed, retry_ms, mut limits) =
            <(bool, i64, Vec<Decision>)>::from_redis_value(value)?;
        for (index, decision) in limits.iter_mut().enumerate() {
            decision.index = index;
        }
        Ok(Self {
            allowed,
            retry_after: u64::try_from(retry_ms).ok().map(Duration::from_millis),
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multi(allowed: bool, limits: &[[i64; 5]]) -> MultiDecision {
        MultiDecision {
            allowed,
            retry_after: None,
            limits: limits
                .iter()
                .map(|&five| Decision::from_five(five))
                .collect(),
        }
    }

    #[test]
    fn the_headline_of_a_denial_is_the_longest_wait() {
        let reply = multi(
            false,
            &[[0, 9, 0, 50, 90], [1, 9, 9, 0, 0], [0, 9, 0, 70, 90]],
        );
        let headline = reply.headline([1, 1, 1].into_iter());
        assert_eq!(headline.and_then(|decision| decision.denied_by()), Some(2));

        let never = multi(false, &[[0, 9, 0, 50, 90], [0, 9, 9, -1, 0]]);
        let headline = never.headline([1, 10].into_iter());
        assert!(
            headline.is_some_and(|decision| decision.index == 1 && decision.retry_after.is_none())
        );
    }

    #[test]
    fn the_headline_of_a_pass_has_the_fewest_calls_left() {
        let reply = multi(
            true,
            &[[1, 100, 40, 0, 9], [1, 900, 60, 0, 9], [1, 5, 0, 0, 9]],
        );
        let headline = reply.headline([1, 5, 0].into_iter());
        assert_eq!(headline.map(|decision| decision.index), Some(1));
    }
}
