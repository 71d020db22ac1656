//! The arguments and the reply of RL.POLICY.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, Value};
use rl_core::policy::Rules;

use super::fields::Fields;
use crate::{Limit, Offset};

/// The limits of a policy; all of them must allow a call.
///
/// ```
/// use rl_client::{Limit, MINUTE, commands::{PolicyDefinition, PolicyRule}};
///
/// // Requests and tokens per minute. Each call is one request and brings its tokens as the cost.
/// let llm = PolicyDefinition::new([
///     PolicyRule::with_fixed_cost(Limit::slide(60, MINUTE), 1),
///     PolicyRule::new(Limit::slide(90_000, MINUTE)),
/// ]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PolicyDefinition {
    /// One to sixteen limits.
    pub rules: Vec<PolicyRule>,
    /// Whether the policy is evaluated and counted but not enforced.
    pub shadow: bool,
    /// A comment.
    pub note: String,
}

impl PolicyDefinition {
    /// An enforced policy without a note.
    #[must_use]
    pub fn new(rules: impl IntoIterator<Item = PolicyRule>) -> Self {
        Self {
            rules: rules.into_iter().collect(),
            ..Self::default()
        }
    }
}

impl ToRedisArgs for PolicyDefinition {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        for rule in &self.rules {
            rule.write_redis_args(out);
        }
        if self.shadow {
            out.write_arg(b"SHADOW");
        }
        if !self.note.is_empty() {
            out.write_arg(b"NOTE");
            out.write_arg(self.note.as_bytes());
        }
    }

    fn num_of_args(&self) -> usize {
        self.to_redis_args().len()
    }
}

impl FromRedisValue for PolicyDefinition {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value)?;
        let limits: Vec<String> = fields.take("limits")?;
        let rules = limits.iter().map(|limit| limit.parse());
        let rules = rules.collect::<Result<_, ParseLimitError>>();
        Ok(Self {
            rules: rules.map_err(|error| ParsingError::from(error.to_string()))?,
            shadow: fields.take("shadow")?,
            note: fields.take_text("note")?,
        })
    }
}

/// One limit of a policy or an override. The call supplies the cost, unless the rule fixes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PolicyRule {
    /// The limit. Leases and policies cannot be part of a policy.
    pub limit: Limit,
    /// What each call charges to this limit, whatever its own cost; `None` for the cost of the call.
    pub fixed_cost: Option<u64>,
}

impl PolicyRule {
    /// A limit charged with the cost of the call.
    #[must_use]
    pub const fn new(limit: Limit) -> Self {
        Self {
            limit,
            fixed_cost: None,
        }
    }

    /// A limit charged with the same cost by every call.
    #[must_use]
    pub const fn with_fixed_cost(limit: Limit, cost: u64) -> Self {
        Self {
            limit,
            fixed_cost: Some(cost),
        }
    }
}

/// The text form, such as `SLIDE 60 1m COST 1`.
impl fmt::Display for PolicyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.limit.fmt(f)?;
        match self.fixed_cost {
            Some(cost) => write!(f, " COST {cost}"),
            None => Ok(()),
        }
    }
}

impl ToRedisArgs for PolicyRule {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        for word in self.to_string().split(' ') {
            out.write_arg(word.as_bytes());
        }
    }

    fn num_of_args(&self) -> usize {
        self.to_string().split(' ').count()
    }
}

/// Why a text is not a limit of a policy, or not an override.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseLimitError(String);

impl ParseLimitError {
    pub(super) fn new(error: rl_core::Error) -> Self {
        Self(error.reason().to_owned())
    }
}

/// Reads the text form, such as `SLIDE 60 1m COST 1`, with the server's own parser.
impl FromStr for PolicyRule {
    type Err = ParseLimitError;

    fn from_str(text: &str) -> Result<Self, ParseLimitError> {
        Self::from_core(&text.parse().map_err(ParseLimitError::new)?)
    }
}

impl PolicyRule {
    pub(super) fn all_from_core(rules: &Rules) -> Result<Vec<Self>, ParseLimitError> {
        rules.as_slice().iter().map(Self::from_core).collect()
    }

    fn from_core(rule: &rl_core::policy::Rule) -> Result<Self, ParseLimitError> {
        use rl_core::Limit as Core;
        let ms = Duration::from_millis;
        let limit = match rule.limit {
            Core::Slide(slide) => {
                let limit = Limit::slide(slide.limit(), ms(slide.window_ms()));
                match slide.precision() {
                    None => limit,
                    Some(precision) => limit.with_precision(precision),
                }
            }
            Core::Fixed(fixed) => {
                let limit = match fixed.window() {
                    rl_core::FixedWindow::Span(window_ms) => {
                        Limit::fixed(fixed.limit(), ms(window_ms))
                    }
                    rl_core::FixedWindow::Calendar(calendar) => {
                        Limit::fixed_calendar(fixed.limit(), calendar)
                    }
                };
                match Offset::from_ms(fixed.offset_ms()) {
                    Some(offset) => limit.with_offset(offset),
                    None => limit,
                }
            }
            Core::Exact(exact) => Limit::exact(exact.limit(), ms(exact.window_ms())),
            Core::Bucket(bucket) => {
                Limit::bucket(bucket.capacity(), bucket.refill(), ms(bucket.period_ms()))
            }
            Core::Leak(leak) => Limit::leak(leak.capacity(), leak.rate(), ms(leak.period_ms())),
            // Neither can be part of a policy.
            Core::Lease(_) | Core::Policy(_) => {
                return Err(ParseLimitError::new(rl_core::Error::PolicySyntax));
            }
        };
        Ok(Self {
            limit,
            fixed_cost: rule.cost,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Calendar, DAY, HOUR, MINUTE};

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_policy_is_read_as_the_server_writes_it() {
        let limits = [
            "SLIDE 60 1m COST 1",
            "SLIDE 90000 500ms PRECISION 4",
            "BUCKET 200 1000 1h",
            "FIXED 9 2d",
            "FIXED 9 month OFFSET -9h",
        ];
        let reply = Value::Array(vec![
            bulk("name"),
            bulk("pro"),
            bulk("limits"),
            Value::Array(limits.map(bulk).to_vec()),
            bulk("shadow"),
            Value::Int(1),
            bulk("note"),
            bulk("a note"),
        ]);
        let policy = PolicyDefinition::from_redis_value(reply).unwrap();
        let precise = Limit::slide(90_000, Duration::from_millis(500)).with_precision(4);
        let tokyo = Offset::Earlier(9 * HOUR);
        let monthly = Limit::fixed_calendar(9, Calendar::Month).with_offset(tokyo);
        assert_eq!(
            policy.rules,
            [
                PolicyRule::with_fixed_cost(Limit::slide(60, MINUTE), 1),
                PolicyRule::new(precise),
                PolicyRule::new(Limit::bucket(200, 1000, HOUR)),
                PolicyRule::new(Limit::fixed(9, 2 * DAY)),
                PolicyRule::new(monthly),
            ]
        );
        assert!(policy.shadow);
        assert_eq!(policy.note, "a note");
        let written: Vec<_> = policy.rules.iter().map(PolicyRule::to_string).collect();
        assert_eq!(written, limits);
        let args = policy.to_redis_args();
        let args: Vec<_> = args
            .iter()
            .map(|arg| String::from_utf8_lossy(arg))
            .collect();
        assert_eq!(
            args.join("|"),
            "SLIDE|60|1m|COST|1|SLIDE|90000|500ms|PRECISION|4|BUCKET|200|1000|1h|FIXED|9|2d|FIXED|9|month|OFFSET|-9h|SHADOW|NOTE|a note"
        );
    }

    #[test]
    fn other_texts_are_rejected_with_a_reason() {
        for (text, reason) in [
            ("", "between 1 and 16 limits"),
            ("GLIDE 5 1m", "expected a limit"),
            ("SLIDE 5 1y", "window must be a duration"),
            ("SLIDE 5 1m 7", "cost"),
            ("SLIDE 5 1m SLIDE 6 1m", "expected a limit"),
            ("LEASE 5 1m me", "LEASE"),
        ] {
            let error = text.parse::<PolicyRule>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.starts_with("ERR"), "{error}");
        }
        let lenient = "slide 60 60 cost 1 precision 4".parse::<PolicyRule>();
        assert_eq!(
            lenient.unwrap().to_string(),
            "SLIDE 60 1m PRECISION 4 COST 1"
        );
    }
}
