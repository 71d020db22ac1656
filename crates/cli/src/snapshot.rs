//! What the nodes have counted, at one moment.

use std::collections::BTreeMap;
use std::time::Instant;

use redis::{Connection, RedisResult};
use rl_client::commands::{Counts, HotKey, Stats, TopBy};
use rl_client::{RlCommands, RlPipeline};
use serde::Serialize;

use crate::failure::Failure;
use crate::topology::Topology;

/// Keys read from each node: enough that the hottest of all nodes are among them.
const KEYS_PER_NODE: usize = 50;

/// The statistics of all primaries.
#[derive(Clone, Serialize)]
pub struct Snapshot {
    /// The sum over the nodes.
    pub all_nodes: Stats,
    pub policies: Vec<PolicyStats>,
    /// The nodes that replied.
    pub nodes: Vec<NodeStats>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<HotKey>>,
    /// The nodes that did not reply.
    pub failed_nodes: Vec<Failure>,
    /// How many primaries there are, and how many of them replied.
    #[serde(skip)]
    pub primaries: usize,
    #[serde(skip)]
    pub replied: usize,
    #[serde(skip)]
    at: Instant,
}

#[derive(Clone, Serialize)]
pub struct PolicyStats {
    pub policy: String,
    #[serde(flatten)]
    pub stats: Stats,
}

#[derive(Clone, Serialize)]
pub struct NodeStats {
    pub node: String,
    #[serde(flatten)]
    pub stats: Stats,
}

/// The statistics of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeReport {
    pub stats: Stats,
    pub policies: BTreeMap<String, Stats>,
}

impl NodeReport {
    /// Reads the totals of a node and, if wanted, of each policy.
    pub fn read(connection: &mut Connection, with_policies: bool) -> RedisResult<Self> {
        let stats = connection.rl_stats()?;
        let names = match with_policies {
            true => connection.rl_policy_list(None)?,
            false => Vec::new(),
        };
        let mut pipe = redis::pipe();
        for name in &names {
            pipe.rl_policy_stats(name);
        }
        let each: Vec<RedisResult<Stats>> = match names.is_empty() {
            true => Vec::new(),
            false => pipe.ignore_errors().query(connection)?,
        };
        // A policy that was deleted a moment ago is left out.
        let policies = names.into_iter().zip(each);
        let policies = policies.filter_map(|(name, stats)| Some((name, stats.ok()?)));
        Ok(Self {
            stats,
            policies: policies.collect(),
        })
    }
}

impl Snapshot {
    /// Reads the statistics of all primaries.
    pub fn of_stats(topology: &Topology) -> Self {
        Self::read(topology, false)
    }

    /// Reads the statistics of all primaries, and their hottest keys.
    pub fn with_keys(topology: &Topology) -> Self {
        Self::read(topology, true)
    }

    fn read(topology: &Topology, with_keys: bool) -> Self {
        let replies = topology.query(topology.primaries(), |connection| {
            let report = NodeReport::read(connection, true)?;
            let keys = match with_keys {
                true => hot_keys(connection)?,
                false => Vec::new(),
            };
            Ok((report, keys))
        });
        let mut snapshot = Self {
            all_nodes: Stats::default(),
            policies: Vec::new(),
            nodes: Vec::new(),
            keys: with_keys.then(Vec::new),
            failed_nodes: Vec::new(),
            primaries: replies.len(),
            replied: 0,
            at: Instant::now(),
        };
        let mut policies: BTreeMap<String, Stats> = BTreeMap::new();
        for (node, reply) in replies {
            match reply {
                Ok((report, keys)) => {
                    snapshot.replied += 1;
                    snapshot.all_nodes.add(&report.stats);
                    for (policy, stats) in report.policies {
                        policies.entry(policy).or_default().add(&stats);
                    }
                    snapshot.nodes.push(NodeStats {
                        node: node.name.clone(),
                        stats: report.stats,
                    });
                    if let Some(all) = &mut snapshot.keys {
                        all.extend(keys);
                    }
                }
                Err(failure) => snapshot.failed_nodes.push(failure),
            }
        }
        let policies = policies.into_iter();
        let policies = policies.map(|(policy, stats)| PolicyStats { policy, stats });
        snapshot.policies = policies.collect();
        snapshot
    }

    /// Sorts keys and policies, the most active first.
    pub fn sort(&mut self, by: TopBy) {
        let rank = |checks, denials| match by {
            TopBy::Denials => (denials, checks),
            _ => (checks, denials),
        };
        if let Some(keys) = &mut self.keys {
            keys.sort_by_cached_key(|hot| {
                let rank = rank(hot.checks, hot.denials);
                (std::cmp::Reverse(rank), hot.key.clone())
            });
        }
        self.policies.sort_by_cached_key(|one| {
            let minute = &one.stats.per_minute;
            let rank = rank(minute.checks(), minute.denied + minute.shadow_denied);
            (std::cmp::Reverse(rank), one.policy.clone())
        });
    }

    pub fn truncate(&mut self, count: usize) {
        self.policies.truncate(count);
        if let Some(keys) = &mut self.keys {
            keys.truncate(count);
        }
    }

    /// What the nodes in both snapshots counted in between, and the seconds that took; `None` if a node was restarted.
    pub fn since(&self, before: &Self) -> Option<(Counts, f64)> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let mut sum = Counts::default();
        for now in &self.nodes {
            let then = before.nodes.iter().find(|then| then.node == now.node);
            if let Some(then) = then {
                sum.add(&now.stats.total.since(&then.stats.total)?);
            }
        }
        (seconds > 0.0).then_some((sum, seconds))
    }
}

fn hot_keys(connection: &mut Connection) -> RedisResult<Vec<HotKey>> {
    let mut keys = connection.rl_top(KEYS_PER_NODE, TopBy::Checks)?;
    // The server keeps two lists, and a key may be in either or in both. Their estimates are never too high, so the higher
    // one is closer.
    for hot in connection.rl_top(KEYS_PER_NODE, TopBy::Denials)? {
        match keys.iter_mut().find(|other| other.key == hot.key) {
            Some(other) => {
                other.checks = other.checks.max(hot.checks);
                other.denials = other.denials.max(hot.denials);
            }
            None => keys.push(hot),
        }
    }
    Ok(keys)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub mod tests {
    use super::*;
    use redis::{FromRedisValue, Value};
    use std::time::Duration;

    fn reply(fields: &[(&str, u64)]) -> Value {
        let fields = fields.iter().map(|(name, value)| {
            let name = Value::BulkString(name.as_bytes().to_vec());
            (name, Value::Int(i64::try_from(*value).unwrap()))
        });
        Value::Map(fields.collect())
    }

    pub fn stats(allowed: u64, denied: u64) -> Stats {
        let value = reply(&[
            ("counting_started_at_ms", 1),
            ("allowed", allowed),
            ("denied", denied),
            ("shadow_denied", 2),
            ("forced", 1),
            ("refunded_units", 9),
            ("allowed_per_minute", 60),
            ("denied_per_minute", 20),
            ("shadow_denied_per_minute", 0),
            ("forced_per_minute", 0),
            ("refunded_units_per_minute", 0),
        ]);
        Stats::from_redis_value(value).unwrap()
    }

    fn hot(key: &str, checks: i64, denials: i64) -> HotKey {
        let key = Value::BulkString(key.as_bytes().to_vec());
        let value = Value::Array(vec![key, Value::Int(checks), Value::Int(denials)]);
        HotKey::from_redis_value(value).unwrap()
    }

    pub fn snapshot(node: &str, allowed: u64, denied: u64, at: Instant) -> Snapshot {
        let stats = stats(allowed, denied);
        Snapshot {
            all_nodes: stats.clone(),
            policies: vec![
                PolicyStats {
                    policy: "free".into(),
                    stats: stats.clone(),
                },
                PolicyStats {
                    policy: "pro".into(),
                    stats: Stats::default(),
                },
            ],
            nodes: vec![NodeStats {
                node: node.into(),
                stats,
            }],
            keys: Some(vec![hot("often", 9, 0), hot("de\u{1b}nied", 5, 5)]),
            failed_nodes: vec![],
            primaries: 1,
            replied: 1,
            at,
        }
    }

    #[test]
    fn a_restarted_node_gives_no_rate_rather_than_a_wrong_one() {
        let start = Instant::now();
        let before = snapshot("a", 100, 10, start);
        let now = snapshot("a", 300, 20, start + Duration::from_secs(4));
        let (counts, seconds) = now.since(&before).unwrap();
        assert_eq!((counts.allowed, counts.denied, seconds), (200, 10, 4.0));
        assert_eq!(before.since(&now), None);
        let other = snapshot("b", 5000, 0, start + Duration::from_secs(4));
        let counts = other.since(&before).map(|(counts, _)| counts);
        assert_eq!(counts, Some(Counts::default()));
    }

    #[test]
    fn the_order_is_chosen() {
        let mut now = snapshot("a", 1, 1, Instant::now());
        now.sort(TopBy::Denials);
        assert_eq!(now.keys.as_ref().unwrap()[0].denials, 5);
        now.sort(TopBy::Checks);
        assert_eq!(now.keys.as_ref().unwrap()[0].key, "often");
    }
}
