//! What the server's policies say, as last heard: what to go by while it is away.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use redis::{FromRedisValue, Value};

use crate::Limit;

/// A policy is asked about again after this time.
const FRESH: Duration = Duration::from_secs(30);
/// As many as a server can have.
const MOST: usize = 10_000;

/// One limit of a policy, and what a call takes from it if that is not the caller's to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) limit: Limit,
    pub(crate) cost: Option<u64>,
}

#[derive(Default)]
pub(crate) struct Policies {
    heard: RwLock<HashMap<Arc<str>, Heard>>,
}

struct Heard {
    at: Instant,
    parts: Arc<[Part]>,
}

impl Policies {
    /// The limits of a policy; `None` if nothing was heard of it.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<[Part]>> {
        let heard = self.heard.read();
        let parts = Arc::clone(&heard.get(name)?.parts);
        (!parts.is_empty()).then_some(parts)
    }

    /// Whether the caller should ask about a policy now; until it answers, nobody else is told to.
    pub(crate) fn should_ask(&self, name: &Arc<str>) -> bool {
        let fresh = |heard: &Heard| heard.at.elapsed() < FRESH;
        if self.heard.read().get(name).is_some_and(fresh) {
            return false;
        }
        let mut heard = self.heard.write();
        if !heard.contains_key(name) && heard.len() >= MOST {
            heard.clear();
        }
        let entry = heard.entry(Arc::clone(name)).or_insert_with(|| Heard {
            at: Instant::now(),
            parts: Arc::new([]),
        });
        entry.at = Instant::now();
        true
    }

    /// Takes the reply of RL.POLICY GET. One that cannot be understood leaves what was known.
    pub(crate) fn learn(&self, name: &str, reply: Value) {
        if let Some(parts) = read(reply)
            && let Some(heard) = self.heard.write().get_mut(name)
        {
            heard.parts = parts;
        }
    }
}

/// The field `limits`, each as text. No such policy: no limits.
fn read(reply: Value) -> Option<Arc<[Part]>> {
    if matches!(reply, Value::Nil) {
        return Some(Arc::new([]));
    }
    let mut fields = HashMap::<String, Value>::from_redis_value(reply).ok()?;
    let limits = Vec::<String>::from_redis_value(fields.remove("limits")?).ok()?;
    limits.iter().map(|limit| part(limit)).collect()
}

/// `SLIDE 100 1m COST 1`
fn part(text: &str) -> Option<Part> {
    let mut words = text.split(' ');
    let name = words.next()?;
    let mut count = || words.next()?.parse().ok();
    let limit = match name {
        "SLIDE" => Limit::slide(count()?, duration(words.next()?)?),
        "FIXED" => Limit::fixed(count()?, duration(words.next()?)?),
        "EXACT" => Limit::exact(count()?, duration(words.next()?)?),
        "BUCKET" => Limit::bucket(count()?, count()?, duration(words.next()?)?),
        "LEAK" => Limit::leak(count()?, count()?, duration(words.next()?)?),
        _ => return None,
    };
    let mut cost = None;
    while let Some(option) = words.next() {
        let value = words.next()?.parse().ok()?;
        match option {
            "COST" => cost = Some(value),
            // How finely the server counts does not matter here.
            "PRECISION" => {}
            _ => return None,
        }
    }
    Some(Part { limit, cost })
}

/// As the server writes durations: `500ms`, `90s`, `15m`, `24h`, `30d`.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let amount: u64 = digits.parse().ok()?;
    Some(Duration::from_millis(amount.checked_mul(unit_ms)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{DAY, HOUR, MINUTE};

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn reply(limits: &[&str]) -> Value {
        let limits = limits.iter().map(|limit| bulk(limit)).collect();
        Value::Array(vec![
            bulk("name"),
            bulk("pro"),
            bulk("limits"),
            Value::Array(limits),
            bulk("shadow"),
            Value::Int(0),
        ])
    }

    #[test]
    fn a_policy_is_read_as_the_server_writes_it() {
        let plain = |limit| Part { limit, cost: None };
        let policies = Policies::default();
        let name: Arc<str> = "pro".into();
        assert!(policies.should_ask(&name));
        assert!(!policies.should_ask(&name), "someone is asking already");
        assert_eq!(policies.get("pro"), None);
        policies.learn(
            "pro",
            reply(&[
                "SLIDE 60 1m COST 1",
                "SLIDE 90000 500ms PRECISION 4",
                "BUCKET 200 1000 1h",
                "FIXED 9 2d",
            ]),
        );
        let parts = policies.get("pro").unwrap_or_default();
        let expected = [
            Part {
                limit: Limit::slide(60, MINUTE),
                cost: Some(1),
            },
            plain(Limit::slide(90_000, Duration::from_millis(500))),
            plain(Limit::bucket(200, 1000, HOUR)),
            plain(Limit::fixed(9, 2 * DAY)),
        ];
        assert_eq!(*parts, expected);

        policies.learn("pro", reply(&["SOMETHING 1 2"]));
        assert_eq!(*policies.get("pro").unwrap_or_default(), expected);
        policies.learn("pro", Value::Nil);
        assert_eq!(policies.get("pro"), None, "deleted");
    }
}
