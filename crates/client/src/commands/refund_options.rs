//! The options of RL.REFUND.

use std::time::Duration;

use redis::{RedisWrite, ToRedisArgs};

/// What a refund is based on. The default refunds the latest units, whoever charged them.
///
/// ```
/// use std::time::Instant;
/// use rl_client::commands::RefundOptions;
///
/// let sent = Instant::now();
/// // … check, then fail …
/// let options = RefundOptions::new().times(1).age(sent.elapsed());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[must_use]
pub struct RefundOptions {
    times: Option<u64>,
    age: Option<Duration>,
}

impl RefundOptions {
    /// No options.
    pub const fn new() -> Self {
        Self {
            times: None,
            age: None,
        }
    }

    /// Also refunds what `calls` calls were charged by limits of a policy that fix their cost.
    pub const fn times(mut self, calls: u64) -> Self {
        self.times = Some(calls);
        self
    }

    /// Refunds nothing that may be newer than the charge. `age` is the time since the check was *sent*: an upper bound
    /// of the time since the charge.
    pub const fn age(mut self, age: Duration) -> Self {
        self.age = Some(age);
        self
    }
}

impl ToRedisArgs for RefundOptions {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        if let Some(times) = self.times {
            out.write_arg(b"TIMES");
            times.write_redis_args(out);
        }
        if let Some(age) = self.age {
            // Rounded up, because it is an upper bound.
            let ms = age.as_nanos().div_ceil(1_000_000).max(1);
            out.write_arg(b"AGE");
            out.write_arg_fmt(format_args!("{ms}ms"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_rounded_up_to_milliseconds() {
        let args = |options: RefundOptions| {
            let args = options.to_redis_args();
            let texts = args
                .iter()
                .map(|arg| String::from_utf8_lossy(arg).into_owned());
            texts.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(args(RefundOptions::new()), "");
        assert_eq!(args(RefundOptions::new().times(3)), "TIMES 3");
        for (age, expected) in [
            (Duration::ZERO, "AGE 1ms"),
            (Duration::from_millis(1), "AGE 1ms"),
            (Duration::from_nanos(1_000_001), "AGE 2ms"),
            (Duration::from_secs(90), "AGE 90000ms"),
        ] {
            assert_eq!(args(RefundOptions::new().age(age)), expected);
        }
        let both = RefundOptions::new().age(Duration::from_secs(1)).times(2);
        assert_eq!(args(both), "TIMES 2 AGE 1000ms");
    }
}
