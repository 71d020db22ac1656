//! Limits as values: what the server is asked to enforce.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

/// One second.
pub const SECOND: Duration = Duration::from_secs(1);
/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(3600);
/// One day.
pub const DAY: Duration = Duration::from_secs(86400);

/// A limit on one key: an algorithm and its numbers.
///
/// Counts go up to 2^53 − 1 and durations from 1 ms to 3650 days; the server refuses what lies outside.
/// Durations are sent in whole milliseconds, rounded up. A limit of 0 blocks its key.
///
/// ```
/// use rl_client::{Limit, HOUR, MINUTE};
///
/// const SEARCH: Limit = Limit::bucket(200, 1000, MINUTE); // bursts of 200, then 1000 a minute
/// assert_eq!(SEARCH.limit(), 200);
/// assert_eq!(Limit::slide(100, HOUR).to_string(), "SLIDE 100 3600");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// At most `limit` units per sliding `window`: the right default.
    #[non_exhaustive]
    Slide {
        /// Units per window.
        limit: u64,
        /// The window's length.
        window: Duration,
    },
    /// A token bucket: bursts up to `capacity`, then `refill` units per `period`, flowing in evenly.
    #[non_exhaustive]
    Bucket {
        /// The largest burst.
        capacity: u64,
        /// Units that flow back in each period.
        refill: u64,
        /// The period of the refill.
        period: Duration,
    },
    /// At most `limit` units in each window of a calendar aligned to the Unix epoch.
    #[non_exhaustive]
    Fixed {
        /// Units per window.
        limit: u64,
        /// The window's length.
        window: Duration,
    },
    /// At most `limit` units in every span of `window`, by a log that the server keeps; memory grows with the limit.
    #[non_exhaustive]
    Exact {
        /// Units per window.
        limit: u64,
        /// The window's length.
        window: Duration,
    },
    /// A queue of `capacity` that drains `rate` units per `period`. An allowed call says how long to wait.
    #[non_exhaustive]
    Leak {
        /// The queue's length.
        capacity: u64,
        /// Units that drain in each period.
        rate: u64,
        /// The period of the drain.
        period: Duration,
    },
    /// At most `limit` units held at once; each is held until released, or until `ttl` has passed.
    #[non_exhaustive]
    Lease {
        /// Units that may be held at once.
        limit: u64,
        /// After this time a holder that vanished is forgotten.
        ttl: Duration,
        /// Who holds: unique to the task, and the same again to renew.
        holder: Arc<str>,
    },
    /// Whatever the server's policy of this name says at the moment of the call.
    #[non_exhaustive]
    Policy {
        /// As RL.POLICY knows it.
        name: Arc<str>,
    },
}

impl Limit {
    /// At most `limit` units per sliding `window`.
    #[must_use]
    pub const fn slide(limit: u64, window: Duration) -> Self {
        Self::Slide { limit, window }
    }

    /// Bursts up to `capacity`, then `refill` units per `period`.
    #[must_use]
    pub const fn bucket(capacity: u64, refill: u64, period: Duration) -> Self {
        Self::Bucket {
            capacity,
            refill,
            period,
        }
    }

    /// At most `limit` units in each `window` of the calendar.
    #[must_use]
    pub const fn fixed(limit: u64, window: Duration) -> Self {
        Self::Fixed { limit, window }
    }

    /// At most `limit` units in every span of `window`, without approximation.
    #[must_use]
    pub const fn exact(limit: u64, window: Duration) -> Self {
        Self::Exact { limit, window }
    }

    /// A queue of `capacity` that drains `rate` units per `period`.
    #[must_use]
    pub const fn leak(capacity: u64, rate: u64, period: Duration) -> Self {
        Self::Leak {
            capacity,
            rate,
            period,
        }
    }

    /// At most `limit` units held at once.
    #[must_use]
    pub fn lease(limit: u64, ttl: Duration, holder: impl Into<Arc<str>>) -> Self {
        Self::Lease {
            limit,
            ttl,
            holder: holder.into(),
        }
    }

    /// The limits that the server keeps under this name, changed there while callers run.
    #[must_use]
    pub fn policy(name: impl Into<Arc<str>>) -> Self {
        Self::Policy { name: name.into() }
    }

    /// The limit or capacity: what a fresh key has to give; 0 for a policy, of which only the server knows.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        match *self {
            Self::Slide { limit, .. }
            | Self::Fixed { limit, .. }
            | Self::Exact { limit, .. }
            | Self::Lease { limit, .. } => limit,
            Self::Bucket { capacity, .. } | Self::Leak { capacity, .. } => capacity,
            Self::Policy { .. } => 0,
        }
    }

    /// The time in which the whole limit comes back: the window, or how long an empty bucket takes to fill. Zero for a
    /// policy, of which only the server knows.
    #[must_use]
    pub fn span(&self) -> Duration {
        match *self {
            Self::Slide { window, .. }
            | Self::Fixed { window, .. }
            | Self::Exact { window, .. } => window,
            Self::Lease { ttl, .. } => ttl,
            Self::Policy { .. } => Duration::ZERO,
            Self::Bucket {
                capacity: units,
                refill: rate,
                period,
            }
            | Self::Leak {
                capacity: units,
                rate,
                period,
            } => {
                let ms = u128::from(ceil_ms(period)) * u128::from(units);
                Duration::from_millis(
                    u64::try_from(ms.div_ceil(u128::from(rate.max(1)))).unwrap_or(u64::MAX),
                )
            }
        }
    }

    /// The algorithm's name, as commands and specs spell it.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Slide { .. } => "SLIDE",
            Self::Bucket { .. } => "BUCKET",
            Self::Fixed { .. } => "FIXED",
            Self::Exact { .. } => "EXACT",
            Self::Leak { .. } => "LEAK",
            Self::Lease { .. } => "LEASE",
            Self::Policy { .. } => "POLICY",
        }
    }

    /// The command for this limit alone.
    pub(crate) const fn command(&self) -> &'static str {
        match self {
            Self::Slide { .. } => "RL.SLIDE",
            Self::Bucket { .. } => "RL.BUCKET",
            Self::Fixed { .. } => "RL.FIXED",
            Self::Exact { .. } => "RL.EXACT",
            Self::Leak { .. } => "RL.LEAK",
            Self::Lease { .. } => "RL.LEASE",
            Self::Policy { .. } => "RL.CHECK",
        }
    }

    /// The words between the name and the cost.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = Word<'_>> {
        use Word::{Count, Span, Text};
        let words = match self {
            Self::Slide { limit, window }
            | Self::Fixed { limit, window }
            | Self::Exact { limit, window } => [Some(Count(*limit)), Some(Span(*window)), None],
            Self::Bucket {
                capacity: units,
                refill: rate,
                period,
            }
            | Self::Leak {
                capacity: units,
                rate,
                period,
            } => [Some(Count(*units)), Some(Count(*rate)), Some(Span(*period))],
            Self::Lease { limit, ttl, holder } => {
                [Some(Count(*limit)), Some(Span(*ttl)), Some(Text(holder))]
            }
            Self::Policy { name } => [Some(Text(name)), None, None],
        };
        words.into_iter().flatten()
    }
}

/// As in a command: `SLIDE 100 60`.
impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        self.parameters()
            .try_for_each(|word| write!(f, " {}", word.text()))
    }
}

/// A spec without its cost: the algorithm's name and its parameters.
impl ToRedisArgs for Limit {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(self.name().as_bytes());
        self.parameters()
            .for_each(|word| word.write_redis_args(out));
    }

    fn num_of_args(&self) -> usize {
        1 + self.parameters().count()
    }
}

/// One parameter of a limit.
#[derive(Clone, Copy)]
pub(crate) enum Word<'a> {
    Count(u64),
    Span(Duration),
    Text(&'a str),
}

impl<'a> Word<'a> {
    pub(crate) fn text(self) -> Cow<'a, str> {
        match self {
            Self::Count(count) => count.to_string().into(),
            Self::Span(span) => match ceil_ms(span) {
                ms if ms % 1000 == 0 => (ms / 1000).to_string().into(),
                ms => format!("{ms}ms").into(),
            },
            Self::Text(text) => text.into(),
        }
    }
}

impl ToRedisArgs for Word<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match *self {
            Self::Count(count) => count.write_redis_args(out),
            _ => out.write_arg(self.text().as_bytes()),
        }
    }
}

pub(crate) fn ceil_ms(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_commands() {
        let day_and_a_bit = DAY + Duration::from_micros(1);
        for (limit, words) in [
            (Limit::slide(100, MINUTE), "SLIDE 100 60"),
            (Limit::bucket(200, 1000, MINUTE), "BUCKET 200 1000 60"),
            (
                Limit::fixed(5, Duration::from_millis(1500)),
                "FIXED 5 1500ms",
            ),
            (Limit::exact(5, day_and_a_bit), "EXACT 5 86400001ms"),
            (Limit::leak(10, 5, SECOND), "LEAK 10 5 1"),
            (Limit::lease(5, HOUR, "job-7"), "LEASE 5 3600 job-7"),
            (Limit::policy("pro"), "POLICY pro"),
        ] {
            assert_eq!(limit.to_string(), words);
            assert_eq!(limit.num_of_args(), words.split(' ').count());
        }
    }

    #[test]
    fn a_bucket_spans_the_time_it_takes_to_fill() {
        assert_eq!(
            Limit::bucket(200, 1000, MINUTE).span(),
            Duration::from_secs(12)
        );
        assert_eq!(Limit::slide(200, MINUTE).span(), MINUTE);
        assert!(Limit::bucket(u64::MAX, 1, DAY * 3650).span() > DAY);
    }
}
