//! The module's replies as values: the only file that knows their layout.
//!
//! Maps may come as RESP3 maps or as RESP2 arrays; fields that a newer module adds are passed over.

use redis::{FromRedisValue, ParsingError, Value};
use serde::Serialize;

type Parsed<T> = Result<T, ParsingError>;

/// RL.CHECK: the five integers of the deciding limit, and its index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub allowed: bool,
    pub limit: i64,
    pub remaining: i64,
    pub retry_after_ms: i64,
    pub reset_after_ms: i64,
    /// −1: an override decided.
    pub index: i64,
}

/// RL.STATS, of a node or a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    pub since_ms: u64,
    #[serde(flatten)]
    pub total: Counts,
    pub per_minute: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    pub allowed: u64,
    pub denied: u64,
    pub shadow_denied: u64,
    pub forced: u64,
    pub refunded: u64,
}

/// A line of RL.TOP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hot {
    pub key: String,
    pub checks: u64,
    pub denials: u64,
}

/// An entry of RL.AUDIT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Denial {
    pub id: String,
    pub time_ms: u64,
    pub key: String,
    pub policy: String,
    pub denied_by: String,
    pub index: i64,
    pub cost: u64,
    pub limit: u64,
    pub retry_after_ms: i64,
    pub shadow: bool,
    pub client: String,
}

/// An entry of RL.OVERRIDE GET.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Override {
    pub policy: String,
    #[serde(rename = "override")]
    pub what: String,
    /// −1: it does not end.
    pub ends_in_ms: i64,
    pub note: String,
}

impl FromRedisValue for Check {
    fn from_redis_value(value: Value) -> Parsed<Self> {
        let numbers = Vec::<i64>::from_redis_value(value)?;
        let &[
            allowed,
            limit,
            remaining,
            retry_after_ms,
            reset_after_ms,
            index,
        ] = &numbers[..]
        else {
            return Err(format!("{} numbers in place of six", numbers.len()).into());
        };
        Ok(Self {
            allowed: allowed == 1,
            limit,
            remaining,
            retry_after_ms,
            reset_after_ms,
            index,
        })
    }
}

impl FromRedisValue for Stats {
    fn from_redis_value(value: Value) -> Parsed<Self> {
        let fields = Fields::read(value)?;
        let counts = |suffix: &str| -> Parsed<Counts> {
            let count = |name: &str| fields.get(&format!("{name}{suffix}"));
            Ok(Counts {
                allowed: count("allowed")?,
                denied: count("denied")?,
                shadow_denied: count("shadow_denied")?,
                forced: count("forced")?,
                refunded: count("refunded")?,
            })
        };
        Ok(Self {
            since_ms: fields.get("since_ms")?,
            total: counts("")?,
            per_minute: counts("_per_minute")?,
        })
    }
}

impl FromRedisValue for Hot {
    fn from_redis_value(value: Value) -> Parsed<Self> {
        let (key, checks, denials) = <(Value, u64, u64)>::from_redis_value(value)?;
        let key = text(key)?;
        Ok(Self {
            key,
            checks,
            denials,
        })
    }
}

impl FromRedisValue for Denial {
    fn from_redis_value(value: Value) -> Parsed<Self> {
        let fields = Fields::read(value)?;
        Ok(Self {
            id: fields.text("id")?,
            time_ms: fields.get("time_ms")?,
            key: fields.text("key")?,
            policy: fields.text("policy")?,
            denied_by: fields.text("denied_by")?,
            index: fields.get("index")?,
            cost: fields.get("cost")?,
            limit: fields.get("limit")?,
            retry_after_ms: fields.get("retry_after_ms")?,
            shadow: fields.get::<i64>("shadow")? == 1,
            client: fields.text("client")?,
        })
    }
}

impl FromRedisValue for Override {
    fn from_redis_value(value: Value) -> Parsed<Self> {
        let fields = Fields::read(value)?;
        Ok(Self {
            policy: fields.text("policy")?,
            what: fields.text("override")?,
            ends_in_ms: fields.get("ends_in_ms")?,
            note: fields.text("note")?,
        })
    }
}

impl Stats {
    /// Sums over nodes; they began when the first of them did.
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
    /// Calls that asked for something, each counted once.
    pub fn checks(&self) -> u64 {
        let all = self.allowed.saturating_add(self.denied);
        all.saturating_add(self.forced)
    }

    fn add(&mut self, other: &Self) {
        self.allowed = self.allowed.saturating_add(other.allowed);
        self.denied = self.denied.saturating_add(other.denied);
        self.shadow_denied = self.shadow_denied.saturating_add(other.shadow_denied);
        self.forced = self.forced.saturating_add(other.forced);
        self.refunded = self.refunded.saturating_add(other.refunded);
    }
}

struct Fields(Vec<(String, Value)>);

impl Fields {
    fn read(value: Value) -> Parsed<Self> {
        let fields = value
            .into_map_iter()
            .map_err(|other| ParsingError::from(format!("a map was expected, not {other:?}")))?;
        let named = fields.map(|(name, value)| Ok((text(name)?, value)));
        named.collect::<Parsed<_>>().map(Self)
    }

    fn value(&self, name: &str) -> Parsed<Value> {
        let field = self.0.iter().find(|(field, _)| field == name);
        let value = field.map(|(_, value)| value.clone());
        value.ok_or_else(|| format!("the reply lacks the field {name}").into())
    }

    fn get<T: FromRedisValue>(&self, name: &str) -> Parsed<T> {
        T::from_redis_value(self.value(name)?)
    }

    fn text(&self, name: &str) -> Parsed<String> {
        text(self.value(name)?)
    }
}

/// Keys are any bytes; those that are no text are shown as escapes.
fn text(value: Value) -> Parsed<String> {
    match value {
        Value::BulkString(bytes) => Ok(String::from_utf8(bytes)
            .unwrap_or_else(|error| error.into_bytes().escape_ascii().to_string())),
        other => String::from_redis_value(other),
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

    #[test]
    fn a_check_has_six_integers() {
        let check: Check = parse("*6 :0 :100 :0 :-1 :60000 :2 ").unwrap();
        assert!(!check.allowed);
        assert_eq!(
            (check.limit, check.retry_after_ms, check.index),
            (100, -1, 2)
        );
        let error = parse::<Check>("*5 :0 :100 :0 :1 :60000 ").unwrap_err();
        assert!(error.to_string().contains("six"), "{error}");
    }

    /// As RESP2 (`*22`) or RESP3 (`%11`) begins it.
    fn stats(head: &str) -> String {
        format!(
            "{head} $8 since_ms :1800000000000 $7 allowed :7 $6 denied :3 $13 shadow_denied :2 $6 forced :1 \
             $8 refunded :9 $18 allowed_per_minute :6 $17 denied_per_minute :5 $24 shadow_denied_per_minute :4 \
             $17 forced_per_minute :3 $19 refunded_per_minute :2 "
        )
    }

    #[test]
    fn statistics_in_both_protocols() {
        let two: Stats = parse(&stats("*22")).unwrap();
        let three: Stats = parse(&stats("%11")).unwrap();
        assert_eq!(two, three);
        assert_eq!((two.total.checks(), two.total.refunded), (11, 9));
        assert_eq!(two.per_minute.shadow_denied, 4);
        let mut sum = Stats::default();
        sum.add(&two);
        sum.add(&three);
        assert_eq!((sum.since_ms, sum.total.allowed), (1_800_000_000_000, 14));
        let error = parse::<Stats>("*2 $7 allowed :7 ").unwrap_err().to_string();
        assert!(error.contains("since_ms"), "{error}");
    }

    #[test]
    fn hot_keys_may_be_any_bytes() {
        let hot: Vec<Hot> = from_redis_value(
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
    fn denials() {
        let reply = "*1 *22 $2 id :12 $7 time_ms :1800000000000 $3 key $7 user:42 $6 policy $0  $9 denied_by $5 BLOCK \
            $5 index :-1 $4 cost :5 $5 limit :100 $14 retry_after_ms :900 $6 shadow :1 $6 client $4 id=7 ";
        let denials: Vec<Denial> = parse(reply).unwrap();
        let denial = &denials[0];
        assert_eq!(
            (&*denial.id, &*denial.key, denial.index),
            ("12", "user:42", -1)
        );
        assert_eq!((&*denial.policy, denial.shadow), ("", true));
    }

    #[test]
    fn overrides() {
        let reply = "*1 *8 $6 policy $3 pro $8 override $5 BLOCK $10 ends_in_ms :-1 $4 note $0  ";
        let all: Vec<Override> = parse(reply).unwrap();
        assert_eq!((&*all[0].what, all[0].ends_in_ms), ("BLOCK", -1));
        assert!(parse::<Vec<Override>>("*0 ").unwrap().is_empty());
    }
}
