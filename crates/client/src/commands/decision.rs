//! The replies of the commands that check limits.

use std::time::Duration;

use redis::{FromRedisValue, ParsingError, Value};

/// The result of a check.
///
/// When several limits were checked together, the numbers are those of one limit, [`Decision::decided_by`]: the one
/// that denied the call or, if it was allowed, the one that allows the fewest further calls of the same cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied call must not proceed"]
#[non_exhaustive]
pub struct Decision {
    /// Whether the call may proceed.
    pub allowed: bool,
    /// How many calls are allowed: 0 if denied, otherwise 1 or, with [`CallOptions::times`](super::CallOptions::times), as
    /// many as were charged.
    pub allowed_calls: u64,
    /// The limit or capacity applied.
    pub limit: u64,
    /// Whole units still available after this call.
    pub remaining: u64,
    /// If denied, the wait after which the same call would be allowed, or `None` if it can never be allowed. If allowed,
    /// zero; for [`Limit::Leak`](crate::Limit::Leak), the time to wait before proceeding.
    pub retry_after: Option<Duration>,
    /// The time until the key is fully reset.
    pub reset_after: Duration,
    /// What decided.
    pub decided_by: DecidedBy,
    /// Where the decision was made.
    pub source: Source,
}

/// What decided a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecidedBy {
    /// One of the limits in the call, by its index from 0. A policy counts as one limit: RL.PEEK and RL.MULTI do not
    /// report which of its limits decided, or whether an override did.
    Limit(usize),
    /// One of the limits of the policy that the call checked by itself, by its index from 0.
    PolicyLimit(usize),
    /// An override of that policy: BLOCK or ALLOW.
    Override,
}

impl DecidedBy {
    /// The index of the limit; `None` if an override decided.
    #[must_use]
    pub const fn index(self) -> Option<usize> {
        match self {
            Self::Limit(index) | Self::PolicyLimit(index) => Some(index),
            Self::Override => None,
        }
    }
}

/// Where a decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// On the server.
    Server,
    /// In the process: the server denied the call recently, and said for how long.
    DenyCache,
    /// In the process, from a budget that the server granted.
    Budget,
    /// The server did not reply: `FailureMode::Open` allowed the call.
    FailOpen,
    /// The server did not reply: `FailureMode::Closed` denied the call.
    FailClosed,
    /// The server did not reply: the local limit of `FailureMode::Local` decided.
    FailLocal,
}

impl Source {
    /// Whether the failure mode decided because the server did not reply.
    #[must_use]
    pub const fn is_fallback(self) -> bool {
        matches!(self, Self::FailOpen | Self::FailClosed | Self::FailLocal)
    }

    /// Whether the decision was made in the process. The server may have been called, but its reply did not decide.
    #[must_use]
    pub const fn is_local(self) -> bool {
        !matches!(self, Self::Server)
    }
}

impl Decision {
    /// What denied the call; `None` if it was allowed.
    #[must_use]
    pub const fn denied_by(&self) -> Option<DecidedBy> {
        if self.allowed {
            None
        } else {
            Some(self.decided_by)
        }
    }

    #[cfg(feature = "tokio")]
    pub(crate) const fn with_source(self, source: Source) -> Self {
        Self { source, ..self }
    }

    #[cfg(feature = "tokio")]
    pub(crate) const fn at(self, index: usize, source: Source) -> Self {
        Self {
            decided_by: DecidedBy::Limit(index),
            source,
            ..self
        }
    }

    pub(crate) fn from_integers([allowed, limit, remaining, retry_ms, reset_ms]: [i64; 5]) -> Self {
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Self {
            allowed: allowed != 0,
            allowed_calls: count(allowed),
            limit: count(limit),
            remaining: count(remaining),
            retry_after: u64::try_from(retry_ms).ok().map(Duration::from_millis),
            reset_after: Duration::from_millis(count(reset_ms)),
            decided_by: DecidedBy::Limit(0),
            source: Source::Server,
        }
    }
}

/// Five integers, and for RL.CHECK the index of the policy's limit that decided: −1 for an override.
impl FromRedisValue for Decision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let integers = Vec::<i64>::from_redis_value(value)?;
        let &[
            allowed,
            limit,
            remaining,
            retry_ms,
            reset_ms,
            ref index @ ..,
        ] = &integers[..]
        else {
            return Err(wrong_length(&integers));
        };
        let decision = Self::from_integers([allowed, limit, remaining, retry_ms, reset_ms]);
        let decided_by = match *index {
            [] => DecidedBy::Limit(0),
            // A newer server may add to the reply.
            [index, ..] => {
                usize::try_from(index).map_or(DecidedBy::Override, DecidedBy::PolicyLimit)
            }
        };
        Ok(Self {
            decided_by,
            ..decision
        })
    }
}

fn wrong_length(integers: &[i64]) -> ParsingError {
    format!("expected at least five integers, not {}", integers.len()).into()
}

/// The reply of RL.MULTI: the result for the call as a whole and for each limit.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a denied call must not proceed"]
#[non_exhaustive]
pub struct MultiDecision {
    /// Whether all limits allow the call; if not, none of them was charged.
    pub allowed: bool,
    /// How many calls are allowed: 0 if denied, otherwise 1 or, with [`CallOptions::times`](super::CallOptions::times), as
    /// many as were charged.
    pub allowed_calls: u64,
    /// The longest wait among the limits that denied; `None` if one of them can never allow the call.
    pub retry_after: Option<Duration>,
    /// The result of each limit by itself, in the order of the call.
    pub decisions: Vec<Decision>,
}

#[cfg(feature = "tokio")]
impl MultiDecision {
    /// Combines limits that were decided one by one.
    pub(crate) fn of(decisions: Vec<Decision>) -> Self {
        let allowed_calls = decisions.iter().map(|decision| decision.allowed_calls);
        Self {
            allowed: decisions.iter().all(|decision| decision.allowed),
            allowed_calls: allowed_calls.min().unwrap_or(0),
            retry_after: None,
            decisions,
        }
    }

    /// One decision for the whole call, which had these `costs`.
    pub(crate) fn overall(&self, costs: impl Iterator<Item = u64>) -> Option<Decision> {
        let each = self.decisions.iter().enumerate();
        let (index, chosen) = if self.allowed {
            // The number of further calls of the same cost; there is no end to those that cost nothing.
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
            allowed_calls: self.allowed_calls,
            ..chosen.at(index, Source::Server)
        })
    }
}

impl FromRedisValue for MultiDecision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (allowed, retry_ms, decisions) = <(u64, i64, Vec<Decision>)>::from_redis_value(value)?;
        Ok(Self {
            allowed: allowed > 0,
            allowed_calls: allowed,
            retry_after: u64::try_from(retry_ms).ok().map(Duration::from_millis),
            decisions: at_their_index(decisions),
        })
    }
}

/// The decisions of one call, each made by the limit at its index.
pub(super) fn at_their_index(mut decisions: Vec<Decision>) -> Vec<Decision> {
    for (index, decision) in decisions.iter_mut().enumerate() {
        decision.decided_by = DecidedBy::Limit(index);
    }
    decisions
}

/// The reply of RL.FIRST: the limit that was charged or, if all of them deny the call, the one with the shortest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied call must not proceed"]
#[non_exhaustive]
pub struct FirstDecision {
    /// Which of the limits it is, from 0.
    pub index: usize,
    /// Its decision.
    pub decision: Decision,
}

impl FromRedisValue for FirstDecision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let decision = Decision::from_redis_value(value)?;
        let index = decision.decided_by.index().ok_or("expected an index")?;
        let decided_by = DecidedBy::Limit(index);
        Ok(Self {
            index,
            decision: Decision {
                decided_by,
                ..decision
            },
        })
    }
}

/// A reply to BRIEF, which is one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a denied call must not proceed"]
pub enum BriefDecision {
    /// The call may proceed.
    Allowed {
        /// Whole units still available after this call, the lowest of several limits. For RL.LEAK, the time in milliseconds
        /// to wait before proceeding.
        value: u64,
    },
    /// The call must not proceed.
    Denied {
        /// The wait after which the same call would be allowed; `None` if it can never be allowed.
        retry_after: Option<Duration>,
    },
}

impl BriefDecision {
    /// The reply to a call that can never be allowed.
    const NEVER: i64 = -(1 << 53);

    /// Whether the call may proceed.
    #[must_use]
    pub const fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed { .. })
    }

    /// The reply as the server sent it: negative if the call is denied.
    #[must_use]
    pub fn as_integer(self) -> i64 {
        let integer = |value: u128| i64::try_from(value).unwrap_or(i64::MAX);
        match self {
            Self::Allowed { value } => integer(value.into()),
            Self::Denied { retry_after } => {
                retry_after.map_or(Self::NEVER, |wait| -integer(wait.as_millis()))
            }
        }
    }
}

impl FromRedisValue for BriefDecision {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let reply = i64::from_redis_value(value)?;
        Ok(match u64::try_from(reply) {
            Ok(value) => Self::Allowed { value },
            Err(_) => Self::Denied {
                retry_after: (reply != Self::NEVER)
                    .then(|| Duration::from_millis(reply.unsigned_abs())),
            },
        })
    }
}

#[cfg(all(test, feature = "tokio"))]
mod tests {
    use super::*;

    fn multi(allowed: bool, limits: &[[i64; 5]]) -> MultiDecision {
        MultiDecision {
            allowed,
            allowed_calls: allowed.into(),
            retry_after: None,
            decisions: limits
                .iter()
                .map(|&five| Decision::from_integers(five))
                .collect(),
        }
    }

    #[test]
    fn the_longest_wait_decides_a_denial() {
        let reply = multi(
            false,
            &[[0, 9, 0, 50, 90], [1, 9, 9, 0, 0], [0, 9, 0, 70, 90]],
        );
        let overall = reply.overall([1, 1, 1].into_iter());
        let denied_by = overall.and_then(|decision| decision.denied_by());
        assert_eq!(denied_by, Some(DecidedBy::Limit(2)));

        let never = multi(false, &[[0, 9, 0, 50, 90], [0, 9, 9, -1, 0]]);
        let overall = never.overall([1, 10].into_iter());
        assert!(overall.is_some_and(|decision| {
            decision.decided_by == DecidedBy::Limit(1) && decision.retry_after.is_none()
        }));
    }

    #[test]
    fn the_limit_with_the_fewest_calls_left_decides_an_allowed_call() {
        let reply = multi(
            true,
            &[[1, 100, 40, 0, 9], [1, 900, 60, 0, 9], [1, 5, 0, 0, 9]],
        );
        let overall = reply.overall([1, 5, 0].into_iter());
        let decided_by = overall.map(|decision| decision.decided_by);
        assert_eq!(decided_by, Some(DecidedBy::Limit(1)));
    }

    #[test]
    fn a_reply_has_five_integers_or_six() {
        let read = |integers: &[i64]| {
            let items = integers.iter().map(|&n| Value::Int(n)).collect();
            Decision::from_redis_value(Value::Array(items))
        };
        let decided_by = |integers: &[i64]| read(integers).map(|decision| decision.decided_by);
        assert_eq!(decided_by(&[1, 9, 8, 0, 5]), Ok(DecidedBy::Limit(0)));
        assert_eq!(
            decided_by(&[0, 9, 0, 7, 5, 2]),
            Ok(DecidedBy::PolicyLimit(2))
        );
        assert_eq!(decided_by(&[0, 0, 0, -1, 0, -1]), Ok(DecidedBy::Override));
        assert_eq!(
            decided_by(&[0, 9, 0, 7, 5, 2, 1]),
            Ok(DecidedBy::PolicyLimit(2)),
            "a newer server may add to the reply"
        );
        let error = read(&[1, 9, 8, 0]).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("at least five")));
    }
}
