//! The server's policies as last read, for decisions while it is unavailable.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use redis::{FromRedisValue, Value};
use rl_core::policy::MAX_POLICIES;

use crate::commands::{PolicyDefinition, PolicyRule};

/// A policy is read again after this time.
const MAX_AGE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Policies {
    cached: RwLock<HashMap<Arc<str>, CachedPolicy>>,
}

struct CachedPolicy {
    at: Instant,
    rules: Arc<[PolicyRule]>,
}

impl Policies {
    /// The limits of a policy; `None` if it was never read or does not exist.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<[PolicyRule]>> {
        let cached = self.cached.read();
        let rules = Arc::clone(&cached.get(name)?.rules);
        (!rules.is_empty()).then_some(rules)
    }

    /// Whether the caller should read a policy now. Only one caller at a time should.
    pub(crate) fn should_ask(&self, name: &Arc<str>) -> bool {
        let fresh = |cached: &CachedPolicy| cached.at.elapsed() < MAX_AGE;
        if self.cached.read().get(name).is_some_and(fresh) {
            return false;
        }
        let mut cached = self.cached.write();
        if !cached.contains_key(name) && cached.len() >= MAX_POLICIES {
            cached.clear();
        }
        let entry = cached
            .entry(Arc::clone(name))
            .or_insert_with(|| CachedPolicy {
                at: Instant::now(),
                rules: Arc::new([]),
            });
        entry.at = Instant::now();
        true
    }

    /// Stores the reply of RL.POLICY GET. A reply that cannot be parsed changes nothing.
    pub(crate) fn learn(&self, name: &str, reply: Value) {
        if let Some(rules) = read(reply)
            && let Some(cached) = self.cached.write().get_mut(name)
        {
            cached.rules = rules;
        }
    }
}

/// The limits in a reply of RL.POLICY GET; none if there is no such policy.
fn read(reply: Value) -> Option<Arc<[PolicyRule]>> {
    let policy = Option::<PolicyDefinition>::from_redis_value(reply).ok()?;
    Some(policy.unwrap_or_default().rules.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limit, MINUTE};

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn reply(limit: &str) -> Value {
        Value::Array(vec![
            bulk("limits"),
            Value::Array(vec![bulk(limit)]),
            bulk("shadow"),
            Value::Int(0),
            bulk("note"),
            bulk(""),
        ])
    }

    #[test]
    fn a_policy_is_known_once_it_was_read() {
        let policies = Policies::default();
        let name: Arc<str> = "pro".into();
        assert!(policies.should_ask(&name));
        assert!(!policies.should_ask(&name), "someone is asking already");
        assert_eq!(policies.get("pro"), None);

        policies.learn("pro", reply("SLIDE 60 1m COST 1"));
        let expected = [PolicyRule::with_fixed_cost(Limit::slide(60, MINUTE), 1)];
        assert_eq!(*policies.get("pro").unwrap_or_default(), expected);
        policies.learn("pro", reply("SOMETHING 1 2"));
        assert_eq!(*policies.get("pro").unwrap_or_default(), expected);
        policies.learn("pro", Value::Nil);
        assert_eq!(policies.get("pro"), None, "deleted");
    }
}
