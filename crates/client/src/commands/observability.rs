//! The replies of RL.STATS, RL.TOP and RL.AUDIT.

use redis::{FromRedisValue, ParsingError, RedisWrite, ToRedisArgs, Value};

use super::fields::{Fields, text};

/// The reply of RL.STATS, for a node or a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Since when the totals are counted, in Unix milliseconds.
    pub since_ms: u64,
    /// Totals since then.
    pub total: Counts,
    /// Counts of the last minute.
    pub per_minute: Counts,
}

/// Checks by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Counts {
    /// Allowed calls.
    pub allowed: u64,
    /// Denied calls.
    pub denied: u64,
    /// Allowed calls that a SHADOW limit would have denied.
    pub shadow_denied: u64,
    /// Calls with FORCE.
    pub forced: u64,
    /// Units refunded; counted for a node, not for a policy.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub refunded: Option<u64>,
}

impl Stats {
    /// Adds the counts of another node. The sum starts when the first of them did.
    pub fn add(&mut self, other: &Self) {
        self.since_ms = match (self.since_ms, other.since_ms) {
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
        self.refunded = match (self.refunded, other.refunded) {
            (None, refunded) | (refunded, None) => refunded,
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
            refunded: match (self.refunded, before.refunded) {
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
                refunded: fields.take_optional(&name("refunded"))?,
            })
        };
        Ok(Self {
            total: counts("")?,
            per_minute: counts("_per_minute")?,
            since_ms: fields.take("since_ms")?,
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
    /// Checks in the last two minutes.
    pub checks: u64,
    /// Denied checks in the last two minutes.
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
    /// When, in Unix milliseconds.
    pub time_ms: u64,
    /// The key; bytes that are not UTF-8 are escaped.
    pub key: String,
    /// The policy, empty if the call named its own limit.
    pub policy: String,
    /// The limit that denied, or `BLOCK`.
    pub denied_by: String,
    /// Its index in the policy; `None` if an override denied.
    pub index: Option<u64>,
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
            time_ms: fields.take("time_ms")?,
            key: fields.take_text("key")?,
            policy: fields.take_text("policy")?,
            denied_by: fields.take_text("denied_by")?,
            index: fields.take_unless_negative("index")?,
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
            "{head} $8 since_ms :1800000000000 $7 allowed :7 $6 denied :3 $13 shadow_denied :2 $6 forced :1 \
             $8 refunded :9 $18 allowed_per_minute :6 $17 denied_per_minute :5 $24 shadow_denied_per_minute :4 \
             $17 forced_per_minute :3 $19 refunded_per_minute :2 "
        )
    }

    #[test]
    fn stats_in_both_protocols() {
        let two: Stats = parse(&stats("*22")).unwrap();
        let three: Stats = parse(&stats("%11")).unwrap();
        assert_eq!(two, three);
        assert_eq!((two.total.checks(), two.total.refunded), (11, Some(9)));
        assert_eq!(two.per_minute.shadow_denied, 4);
        let mut sum = Stats::default();
        sum.add(&two);
        sum.add(&three);
        assert_eq!((sum.since_ms, sum.total.allowed), (1_800_000_000_000, 14));
        assert_eq!(sum.total.refunded, Some(18));
        assert_eq!(sum.total.since(&two.total), Some(two.total));
        assert_eq!(two.total.since(&sum.total), None);
        let error = parse::<Stats>("*2 $8 since_ms :7 ")
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
        let reply = "*1 *22 $2 id :12 $7 time_ms :1800000000000 $3 key $7 user:42 $6 policy $0  $9 denied_by $5 BLOCK \
            $5 index :-1 $4 cost :5 $5 limit :100 $14 retry_after_ms :900 $6 shadow :1 $6 client $4 id=7 ";
        let denials: Vec<Denial> = parse(reply).unwrap();
        let denial = &denials[0];
        assert_eq!(
            (denial.id, &*denial.key, denial.index),
            (12, "user:42", None)
        );
        assert_eq!((&*denial.policy, denial.shadow), ("", true));
        assert_eq!(denial.retry_after_ms, Some(900));
    }
}
