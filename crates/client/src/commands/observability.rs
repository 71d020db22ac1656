//! The replies of RL.STATS, RL.TOP and RL.AUDIT.

use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, Value};

use super::fields::{Fields, text};

/// The reply of RL.STATS, for a node or a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Since when the totals are counted, in Unix milliseconds.
    pub counting_started_at_ms: u64,
    /// Totals since then.
    pub total: Counts,
    /// Counts of the last 60 seconds, estimated.
    pub per_minute: Counts,
}

/// Checks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Counts {
    /// Checks that were allowed.
    pub allowed: u64,
    /// Checks that were denied.
    pub denied: u64,
    /// Checks that a SHADOW limit would have denied; they are counted as allowed too.
    pub shadow_denied: u64,
    /// Checks that FORCE let exceed the limit.
    pub forced: u64,
    /// Units refunded; counted for a node, not for a policy.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub refunded_units: Option<u64>,
}

impl Stats {
    /// Adds the counts of another node. The sum starts when the first of them did.
    pub fn add(&mut self, other: &Self) {
        self.counting_started_at_ms =
            match (self.counting_started_at_ms, other.counting_started_at_ms) {
                (0, since) | (since, 0) => since,
                (one, another) => one.min(another),
            };
        self.total.add(&other.total);
        self.per_minute.add(&other.per_minute);
    }
}

impl Counts {
    /// All checks, each counted once.
    #[must_use]
    pub const fn checks(&self) -> u64 {
        self.allowed
            .saturating_add(self.denied)
            .saturating_add(self.forced)
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow_denied = self.shadow_denied.saturating_add(other.shadow_denied);
        self.forced = self.forced.saturating_add(other.forced);
        self.refunded_units = match (self.refunded_units, other.refunded_units) {
            (None, units) | (units, None) => units,
            (Some(one), Some(another)) => Some(one.saturating_add(another)),
        };
    }

    /// What was counted after `before`; `None` if the counts were reset in between.
    #[must_use]
    pub fn since(&self, before: &Self) -> Option<Self> {
        Some(Self {
            allowed: self.allowed.checked_sub(before.allowed)?,
            denied: self.denied.checked_sub(before.denied)?,
            shadow_denied: self.shadow_denied.checked_sub(before.shadow_denied)?,
            forced: self.forced.checked_sub(before.forced)?,
            refunded_units: match (self.refunded_units, before.refunded_units) {
                (Some(now), Some(then)) => Some(now.checked_sub(then)?),
                _ => None,
            },
        })
    }
}

impl FromRedisValue for Stats {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value)?;
        let mut counts = |suffix: &str| {
            let name = |name: &str| format!("{name}{suffix}");
            Ok::<_, ParsingError>(Counts {
                allowed: fields.take(&name("allowed"))?,
                denied: fields.take(&name("denied"))?,
                shadow_denied: fields.take(&name("shadow_denied"))?,
                forced: fields.take(&name("forced"))?,
                refunded_units: fields.take_optional(&name("refunded_units"))?,
            })
        };
        Ok(Self {
            total: counts("")?,
            per_minute: counts("_per_minute")?,
            counting_started_at_ms: fields.take("counting_started_at_ms")?,
        })
    }
}

/// What RL.TOP sorts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TopBy {
    /// All checks.
    #[default]
    Checks,
    /// Denied checks.
    Denials,
}

impl ToRedisArgs for TopBy {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(match self {
            Self::Checks => b"checks",
            Self::Denials => b"denials",
        });
    }
}

/// A key of RL.TOP. Both counts are estimates that are never too high.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct HotKey {
    /// The key; bytes that are not UTF-8 are escaped.
    pub key: String,
    /// Checks in the current minute of the clock and the one before.
    pub checks: u64,
    /// Denied checks in the same time.
    pub denials: u64,
}

impl FromRedisValue for HotKey {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let (key, checks, denials) = <(Value, u64, u64)>::from_redis_value(value)?;
        Ok(Self {
            key: text(key)?,
            checks,
            denials,
        })
    }
}

/// An entry of RL.AUDIT.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Denial {
    /// A number that increases with each denial on a node.
    pub id: u64,
    /// When the call was denied, in Unix milliseconds.
    pub occurred_at_ms: u64,
    /// The key; bytes that are not UTF-8 are escaped.
    pub key: String,
    /// The policy; empty if the limit came with the call.
    pub policy: String,
    /// The limit that denied, or `BLOCK`.
    pub denied_by: String,
    /// The index of that limit in the policy; `None` if the limit came with the call, or an override denied.
    pub limit_index: Option<u64>,
    /// The cost of the call.
    pub cost: u64,
    /// The limit or capacity.
    pub limit: u64,
    /// The wait after which the call would have been allowed; `None` if never.
    pub retry_after_ms: Option<u64>,
    /// Whether the limit was a SHADOW limit, so that the call was allowed after all.
    pub shadow: bool,
    /// The client, as CLIENT LIST describes it.
    pub client: String,
}

impl FromRedisValue for Denial {
    fn from_redis_value(value: Value) -> Result<Self, ParsingError> {
        let mut fields = Fields::read(value)?;
        Ok(Self {
            id: fields.take("id")?,
            occurred_at_ms: fields.take("occurred_at_ms")?,
            key: fields.take_text("key")?,
            policy: fields.take_text("policy")?,
            denied_by: fields.take_text("denied_by")?,
            limit_index: fields.take_unless_negative("limit_index")?,
            cost: fields.take("cost")?,
            limit: fields.take("limit")?,
            retry_after_ms: fields.take_unless_negative("retry_after_ms")?,
            shadow: fields.take("shadow")?,
            client: fields.take_text("client")?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use redis::{from_redis_value, parse_redis_value};

    fn parse<T: FromRedisValue>(reply: &str) -> Result<T, ParsingError> {
        from_redis_value(parse_redis_value(reply.replace(' ', "\r\n").as_bytes()).unwrap())
    }

    /// A reply of RL.STATS after `head`, which is `*22` in RESP2 and `%11` in RESP3.
    fn stats(head: &str) -> String {
        format!(
            "{head} $22 counting_started_at_ms :1800000000000 $7 allowed :7 $6 denied :3 $13 shadow_denied :2 $6 forced :1 \
             $14 refunded_units :9 $18 allowed_per_minute :6 $17 denied_per_minute :5 $24 shadow_denied_per_minute :4 \
             $17 forced_per_minute :3 $25 refunded_units_per_minute :2 "
        )
    }

    #[test]
    fn stats_in_both_protocols() {
        let two: Stats = parse(&stats("*22")).unwrap();
        let three: Stats = parse(&stats("%11")).unwrap();
        assert_eq!(two, three);
        assert_eq!(
            (two.total.checks(), two.total.refunded_units),
            (11, Some(9))
        );
        assert_eq!(two.per_minute.shadow_denied, 4);
        let mut sum = Stats::default();
        sum.add(&two);
        sum.add(&three);
        assert_eq!(
            (sum.counting_started_at_ms, sum.total.allowed),
            (1_800_000_000_000, 14)
        );
        assert_eq!(sum.total.refunded_units, Some(18));
        assert_eq!(sum.total.since(&two.total), Some(two.total));
        assert_eq!(two.total.since(&sum.total), None);
        let error = parse::<Stats>("*2 $22 counting_started_at_ms :7 ")
            .unwrap_err()
            .to_string();
        assert!(error.contains("no field allowed"), "{error}");
    }

    #[test]
    fn hot_keys_may_be_any_bytes() {
        let hot: Vec<HotKey> = from_redis_value(
            parse_redis_value(
                b"*2\r\n*3\r\n$1\r\nk\r\n:9\r\n:4\r\n*3\r\n$2\r\n\xff\n\r\n:1\r\n:0\r\n",
            )
            .unwrap(),
        )
        .unwrap();
        assert_eq!((&*hot[0].key, hot[0].checks, hot[0].denials), ("k", 9, 4));
        assert_eq!(hot[1].key, "\\xff\\n");
    }

    #[test]
    fn a_denial_by_an_override_has_no_index() {
        let reply = "*1 *22 $2 id :12 $14 occurred_at_ms :1800000000000 $3 key $7 user:42 $6 policy $0  $9 denied_by $5 BLOCK \
            $11 limit_index :-1 $4 cost :5 $5 limit :100 $14 retry_after_ms :900 $6 shadow :1 $6 client $4 id=7 ";
        let denials: Vec<Denial> = parse(reply).unwrap();
        let denial = &denials[0];
        assert_eq!(
            (denial.id, &*denial.key, denial.limit_index),
            (12, "user:42", None)
        );
        assert_eq!((&*denial.policy, denial.shadow), ("", true));
        assert_eq!(denial.retry_after_ms, Some(900));
    }
}
