//! What a node shows of itself.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, RedisResult};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::fleet::{Fleet, Role};
use crate::info::Info;
use crate::policies::Policies;

/// Readings of a clock: the one with the shortest way there and back is the most exact.
const READINGS: usize = 5;

pub struct Observation {
    pub node: String,
    pub role: Role,
    pub follows: Option<String>,
    /// Whether the cluster itself counts it as lost.
    pub failed: bool,
    /// A cluster's primary without slots holds nothing.
    pub holds_keys: bool,
    pub seen: Result<Seen, Failure>,
}

pub struct Seen {
    pub info: Info,
    pub policies: Result<Policies, String>,
    pub clock: Clock,
    /// The `save` setting; `None` where CONFIG is not allowed.
    pub save: Option<String>,
    /// A cluster's own opinion; `None` without one.
    pub cluster_ok: Option<bool>,
}

/// How far a node's clock is ahead of ours, and how well we know that.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub ahead_us: i64,
    pub error_us: i64,
}

impl Observation {
    pub fn of_all(fleet: &Fleet) -> Vec<Self> {
        let answers = fleet.ask(fleet.all(), |connection| look(connection, fleet.cluster));
        let each = answers.into_iter().map(|(node, seen)| Self {
            node: node.name.clone(),
            role: node.role,
            follows: node.follows.clone(),
            failed: node.failed,
            holds_keys: !fleet.cluster || node.slots > 0,
            seen,
        });
        each.collect()
    }

    pub fn version(&self) -> Option<&str> {
        self.seen.as_ref().ok()?.info.get("rl_version")
    }

    fn server(&self) -> String {
        let Ok(seen) = &self.seen else {
            return String::new();
        };
        // Valkey gives its own version beside the one of Redis that it is compatible with.
        match (
            seen.info.get("valkey_version"),
            seen.info.get("redis_version"),
        ) {
            (Some(version), _) => format!("Valkey {version}"),
            (_, Some(version)) => format!("Redis {version}"),
            _ => String::new(),
        }
    }

    pub fn told(&self) -> String {
        let role = match (&self.role, &self.follows) {
            (Role::Primary, _) => "primary".to_owned(),
            (Role::Replica, Some(of)) => format!("replica of {of}"),
            (Role::Replica, None) => "replica".to_owned(),
        };
        match &self.seen {
            Err(_) => format!("{}  {role}  no answer", self.node),
            Ok(seen) => {
                let version = self
                    .version()
                    .map_or("no module".into(), |version| format!("rl {version}"));
                let policies = seen.policies.as_ref().map_or(0, |set| set.policies.len());
                format!(
                    "{}  {role}  {}  {version}  {policies} policies",
                    self.node,
                    self.server()
                )
            }
        }
    }

    pub fn summary(&self) -> Value {
        let seen = self.seen.as_ref().ok();
        json!({
            "node": self.node,
            "role": self.role,
            "follows": self.follows,
            "up": seen.is_some(),
            "server": self.server(),
            "version": self.version(),
            "policies": seen.and_then(|seen| seen.policies.as_ref().ok()).map(|set| set.policies.len()),
            "clock_ahead_us": seen.map(|seen| seen.clock.ahead_us),
        })
    }
}

fn look(connection: &mut Connection, cluster: bool) -> RedisResult<Seen> {
    let info = redis::cmd("INFO").arg("everything").query(connection)?;
    let clock = clock(connection)?;
    let dump = redis::cmd("RL.POLICY")
        .arg("DUMP")
        .query::<String>(connection);
    let policies = match dump {
        Ok(dump) => Policies::read(&dump, "its policies").map_err(|failure| failure.error),
        Err(error) if error.is_io_error() => return Err(error),
        Err(error) => Err(Failure::of("RL.POLICY DUMP", &error).error),
    };
    let save = redis::cmd("CONFIG")
        .arg("GET")
        .arg("save")
        .query::<Vec<String>>(connection);
    let save = save.ok().and_then(|pair| pair.get(1).cloned());
    let cluster_ok = if cluster {
        let state: Info = redis::cmd("CLUSTER").arg("INFO").query(connection)?;
        Some(state.is("cluster_state", "ok"))
    } else {
        None
    };
    Ok(Seen {
        info,
        policies,
        clock,
        save,
        cluster_ok,
    })
}

fn clock(connection: &mut Connection) -> RedisResult<Clock> {
    let now_us = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_micros() as i64)
    };
    let mut best = Clock {
        ahead_us: 0,
        error_us: i64::MAX,
    };
    for _ in 0..READINGS {
        let before = now_us();
        let (seconds, us): (i64, i64) = redis::cmd("TIME").query(connection)?;
        let after = now_us();
        let error_us = (after - before) / 2 + 1;
        if error_us < best.error_us {
            let ahead_us = seconds * 1_000_000 + us - (before + after) / 2;
            best = Clock { ahead_us, error_us };
        }
    }
    Ok(best)
}
