//! Limits as values.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};
pub use rl_core::Calendar;
use rl_core::{Algorithm, Descriptor, DurationText};

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
/// Counts are at most 2^53 − 1, and durations between 1 ms and 3650 days; the server rejects others.
/// Durations are sent in whole milliseconds, rounded up. A limit of 0 blocks its key.
///
/// ```
/// use rl_client::{Limit, HOUR, MINUTE};
///
/// const SEARCH: Limit = Limit::bucket(200, 1000, MINUTE); // bursts of 200, then 1000 per minute
/// assert_eq!(SEARCH.limit(), 200);
/// assert_eq!(Limit::slide(100, HOUR).to_string(), "SLIDE 100 1h");
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
        /// Into how many sub-windows the window is split, 2 to 60: a hard limit. `None` for the plain estimate.
        precision: Option<u8>,
    },
    /// A token bucket: bursts up to `capacity`, then `refill` units per `period`, refilled evenly.
    #[non_exhaustive]
    Bucket {
        /// The largest burst.
        capacity: u64,
        /// Units refilled in each period.
        refill: u64,
        /// The period of the refill.
        period: Duration,
    },
    /// At most `limit` units per fixed window, aligned to the Unix epoch or to the calendar.
    #[non_exhaustive]
    Fixed {
        /// Units per window.
        limit: u64,
        /// The windows.
        window: FixedWindow,
        /// Where they start instead of at the epoch or with the calendar.
        offset: Option<Offset>,
    },
    /// At most `limit` units in any span of `window`. The server keeps a log, so memory grows with the limit.
    #[non_exhaustive]
    Exact {
        /// Units per window.
        limit: u64,
        /// The window's length.
        window: Duration,
    },
    /// A queue of `capacity` that drains `rate` units per `period`. The decision says how long an allowed call must wait.
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
        /// A lease that is not renewed ends after this time.
        ttl: Duration,
        /// Identifies the holder: unique to the task, and the same to renew. RL.MULTI and RL.PEEK allow no spaces in it.
        holder: Arc<str>,
    },
    /// The limits of a policy that is stored on the server.
    #[non_exhaustive]
    Policy {
        /// The name of the policy.
        name: Arc<str>,
    },
}

/// The windows of a FIXED limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FixedWindow {
    /// All of one length, counted from the Unix epoch.
    Span(Duration),
    /// Days, weeks, months or years, in UTC.
    Calendar(Calendar),
}

impl FixedWindow {
    /// The length of the shortest of these windows.
    #[cfg(feature = "tokio")]
    pub(crate) const fn shortest(self) -> Duration {
        match self {
            Self::Span(window) => window,
            Self::Calendar(calendar) => Duration::from_millis(calendar.shortest_ms()),
        }
    }

    /// The length of the longest of these windows.
    const fn longest(self) -> Duration {
        match self {
            Self::Span(window) => window,
            Self::Calendar(calendar) => Duration::from_millis(calendar.longest_ms()),
        }
    }
}

/// What is added to every boundary of a FIXED limit. It must be shorter than the window: less than 28 days for a month,
/// less than 365 days for a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Offset {
    /// Windows start this much later: `Later(14 * DAY)` starts the month on the 15th.
    Later(Duration),
    /// Windows start this much earlier: `Earlier(9 * HOUR)` starts the day at midnight in Tokyo.
    Earlier(Duration),
}

impl Offset {
    /// The offset in milliseconds, negative if it is earlier.
    pub(crate) fn ms(self) -> i64 {
        let ms = |duration| i64::try_from(ceil_ms(duration)).unwrap_or(i64::MAX);
        match self {
            Self::Later(duration) => ms(duration),
            Self::Earlier(duration) => -ms(duration),
        }
    }

    /// `None` if it is 0.
    pub(crate) fn from_ms(ms: i64) -> Option<Self> {
        let duration = Duration::from_millis(ms.unsigned_abs());
        match ms {
            0 => None,
            1.. => Some(Self::Later(duration)),
            _ => Some(Self::Earlier(duration)),
        }
    }
}

/// As in a limit: `14d`, `-9h`.
impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.ms();
        let sign = if ms < 0 { "-" } else { "" };
        write!(f, "{sign}{}", DurationText::from_ms(ms.unsigned_abs()))
    }
}

impl Limit {
    /// At most `limit` units per sliding `window`.
    #[must_use]
    pub const fn slide(limit: u64, window: Duration) -> Self {
        Self::Slide {
            limit,
            window,
            precision: None,
        }
    }

    /// Splits the window of a SLIDE limit into sub-windows, 2 to 60, and makes it a hard limit: no window ever allows
    /// more, whatever the traffic. Units become available again up to a sub-window late. Other limits are unchanged.
    #[must_use]
    pub fn with_precision(mut self, sub_windows: u8) -> Self {
        if let Self::Slide { precision, .. } = &mut self {
            *precision = Some(sub_windows);
        }
        self
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

    /// At most `limit` units per fixed `window`, aligned to the Unix epoch.
    #[must_use]
    pub const fn fixed(limit: u64, window: Duration) -> Self {
        Self::Fixed {
            limit,
            window: FixedWindow::Span(window),
            offset: None,
        }
    }

    /// At most `limit` units per day, week (from Monday on), month or year, in UTC.
    ///
    /// ```
    /// use rl_client::{Calendar, DAY, Limit, Offset};
    ///
    /// // A monthly quota for a customer who is billed on the 15th.
    /// let quota = Limit::fixed_calendar(10_000, Calendar::Month).with_offset(Offset::Later(14 * DAY));
    /// assert_eq!(quota.to_string(), "FIXED 10000 month OFFSET 14d");
    /// ```
    #[must_use]
    pub const fn fixed_calendar(limit: u64, calendar: Calendar) -> Self {
        Self::Fixed {
            limit,
            window: FixedWindow::Calendar(calendar),
            offset: None,
        }
    }

    /// Moves every boundary of a FIXED limit. Other limits are unchanged.
    #[must_use]
    pub fn with_offset(mut self, by: Offset) -> Self {
        if let Self::Fixed { offset, .. } = &mut self {
            *offset = Some(by);
        }
        self
    }

    /// At most `limit` units in any span of `window`, without approximation.
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

    /// The limits of a policy that is stored on the server, and may change there at any time.
    #[must_use]
    pub fn policy(name: impl Into<Arc<str>>) -> Self {
        Self::Policy { name: name.into() }
    }

    /// The limit or capacity; 0 for a policy, which only the server knows.
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

    /// The time in which the whole limit becomes available again: the window (the longest, if it is one of the calendar), or
    /// the time an empty bucket takes to fill. Zero for a policy, which only the server knows.
    #[must_use]
    pub fn refill_time(&self) -> Duration {
        match *self {
            Self::Slide { window, .. } | Self::Exact { window, .. } => window,
            Self::Fixed { window, .. } => window.longest(),
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

    /// What the commands state about the algorithm.
    const fn descriptor(&self) -> &'static Descriptor {
        match self {
            Self::Slide { .. } => Algorithm::Slide,
            Self::Bucket { .. } => Algorithm::Bucket,
            Self::Fixed { .. } => Algorithm::Fixed,
            Self::Exact { .. } => Algorithm::Exact,
            Self::Leak { .. } => Algorithm::Leak,
            Self::Lease { .. } => Algorithm::Lease,
            Self::Policy { .. } => Algorithm::Policy,
        }
        .descriptor()
    }

    /// The algorithm's name in specs.
    pub(crate) const fn name(&self) -> &'static str {
        self.descriptor().name
    }

    /// The one-limit command.
    pub(crate) fn command(&self) -> &'static str {
        let command = self.descriptor().command;
        command
            .and_then(|command| command.to_str().ok())
            .unwrap_or("RL.CHECK")
    }

    /// The arguments between the name and the cost.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = LimitArg<'_>> {
        use LimitArg::{Count, Duration, Text, Word};
        let args = match self {
            Self::Slide { limit, window, .. } | Self::Exact { limit, window } => {
                [Some(Count(*limit)), Some(Duration(*window)), None]
            }
            Self::Fixed { limit, window, .. } => {
                let window = match *window {
                    FixedWindow::Span(window) => Duration(window),
                    FixedWindow::Calendar(calendar) => Word(calendar.name()),
                };
                [Some(Count(*limit)), Some(window), None]
            }
            Self::Bucket {
                capacity: units,
                refill: rate,
                period,
            }
            | Self::Leak {
                capacity: units,
                rate,
                period,
            } => [
                Some(Count(*units)),
                Some(Count(*rate)),
                Some(Duration(*period)),
            ],
            Self::Lease { limit, ttl, holder } => [
                Some(Count(*limit)),
                Some(Duration(*ttl)),
                Some(Text(holder)),
            ],
            Self::Policy { name } => [Some(Text(name)), None, None],
        };
        args.into_iter().flatten()
    }

    /// The algorithm's own option, which follows the cost.
    pub(crate) fn option(&self) -> Option<LimitOption> {
        match self {
            Self::Slide { precision, .. } => precision.map(LimitOption::Precision),
            Self::Fixed { offset, .. } => offset.map(LimitOption::Offset),
            Self::Bucket { .. }
            | Self::Exact { .. }
            | Self::Leak { .. }
            | Self::Lease { .. }
            | Self::Policy { .. } => None,
        }
    }

    /// The spec of a call with this cost: `SLIDE 100 1m 1 PRECISION 4`.
    pub(crate) const fn with_cost(&self, cost: u64) -> SpecText<'_> {
        SpecText {
            limit: self,
            cost: Some(cost),
        }
    }
}

/// The text form: `SLIDE 100 1m`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SpecText {
            limit: self,
            cost: None,
        }
        .fmt(f)
    }
}

/// A single argument of RL.MULTI or RL.PEEK: a spec without a cost, which costs 1.
impl ToRedisArgs for Limit {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(self);
    }
}

/// A limit with or without a cost.
pub(crate) struct SpecText<'a> {
    limit: &'a Limit,
    cost: Option<u64>,
}

impl fmt::Display for SpecText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.limit.name())?;
        self.limit
            .parameters()
            .try_for_each(|arg| write!(f, " {arg}"))?;
        if let Some(cost) = self.cost {
            write!(f, " {cost}")?;
        }
        match self.limit.option() {
            Some(option) => write!(f, " {} {option}", option.token()),
            None => Ok(()),
        }
    }
}

/// An option of one algorithm, and its value.
#[derive(Clone, Copy)]
pub(crate) enum LimitOption {
    Precision(u8),
    Offset(Offset),
}

impl LimitOption {
    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Precision(_) => "PRECISION",
            Self::Offset(_) => "OFFSET",
        }
    }
}

/// The value.
impl fmt::Display for LimitOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Precision(precision) => precision.fmt(f),
            Self::Offset(offset) => offset.fmt(f),
        }
    }
}

/// One argument of a limit.
#[derive(Clone, Copy)]
pub(crate) enum LimitArg<'a> {
    Count(u64),
    Duration(Duration),
    /// A word of the limit's own, such as `month`.
    Word(&'static str),
    /// A name that the caller chose.
    Text(&'a str),
}

impl fmt::Display for LimitArg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Count(count) => count.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Duration(duration) => DurationText::from_ms(ceil_ms(duration)).fmt(f),
        }
    }
}

impl ToRedisArgs for LimitArg<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match self {
            Self::Count(count) => count.write_redis_args(out),
            Self::Word(word) => out.write_arg(word.as_bytes()),
            Self::Text(text) => out.write_arg(text.as_bytes()),
            Self::Duration(_) => out.write_arg_fmt(self),
        }
    }
}

pub(crate) fn ceil_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn limits_have_the_text_form_of_the_server() {
        let day_and_a_bit = DAY + Duration::from_micros(1);
        let limits = [
            (Limit::slide(100, MINUTE), "SLIDE 100 1m"),
            (
                Limit::slide(100, MINUTE).with_precision(4),
                "SLIDE 100 1m PRECISION 4",
            ),
            (Limit::bucket(200, 1000, MINUTE), "BUCKET 200 1000 1m"),
            (
                Limit::fixed(5, Duration::from_millis(1500)),
                "FIXED 5 1500ms",
            ),
            (Limit::fixed_calendar(5, Calendar::Month), "FIXED 5 month"),
            (
                Limit::fixed_calendar(5, Calendar::Day).with_offset(Offset::Earlier(9 * HOUR)),
                "FIXED 5 day OFFSET -9h",
            ),
            (
                Limit::fixed(5, HOUR).with_offset(Offset::Later(15 * MINUTE)),
                "FIXED 5 1h OFFSET 15m",
            ),
            (Limit::exact(5, day_and_a_bit), "EXACT 5 86400001ms"),
            (Limit::leak(10, 5, SECOND), "LEAK 10 5 1s"),
            (Limit::lease(5, HOUR, "job-7"), "LEASE 5 1h job-7"),
            (Limit::policy("pro"), "POLICY pro"),
        ];
        for (limit, text) in &limits {
            assert_eq!(limit.to_string(), *text);
            assert_eq!(limit.to_redis_args(), [text.as_bytes()]);
        }
        for algorithm in rl_core::Algorithm::ALL {
            let (name, command) = (algorithm.name(), algorithm.descriptor().command);
            let ours = limits.iter().find(|(limit, _)| limit.name() == name);
            let Some((limit, _)) = ours else {
                panic!("there is no Limit with the name {name}");
            };
            let command = command.map_or("RL.CHECK".into(), CStr::to_string_lossy);
            assert_eq!(limit.command(), command);
            assert!(
                include_str!("commands/mod.rs").contains(&format!("/// {command}: ")),
                "commands/mod.rs has no call for {command}"
            );
        }
        let precise = Limit::slide(100, MINUTE).with_precision(4);
        assert_eq!(
            precise.with_cost(3).to_string(),
            "SLIDE 100 1m 3 PRECISION 4"
        );
        let monthly = Limit::fixed_calendar(5, Calendar::Month).with_offset(Offset::Later(DAY));
        assert_eq!(
            monthly.with_cost(3).to_string(),
            "FIXED 5 month 3 OFFSET 1d"
        );
        assert_eq!(
            Limit::exact(5, DAY).with_offset(Offset::Later(HOUR)),
            Limit::exact(5, DAY)
        );
    }

    #[test]
    fn a_bucket_is_available_again_when_it_is_full() {
        assert_eq!(
            Limit::bucket(200, 1000, MINUTE).refill_time(),
            Duration::from_secs(12)
        );
        assert_eq!(Limit::slide(200, MINUTE).refill_time(), MINUTE);
        assert!(Limit::bucket(u64::MAX, 1, DAY * 3650).refill_time() > DAY);
    }
}
