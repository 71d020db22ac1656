//! The state of a node.

use std::time::{SystemTime, UNIX_EPOCH};

use redis::{Connection, RedisResult};
use rl_client::RlCommands;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::policy_set::PolicySet;
use crate::topology::{Info, Role, Topology};

/// Readings of a clock: the one with the shortest round trip is the most exact.
const READINGS: usize = 5;

pub struct Observation {
    pub node: String,
    pub role: Role,
    pub primary: Option<String>,
    /// Whether the cluster considers it failed.
    pub failed: bool,
    /// False for a primary without slots.
    pub holds_keys: bool,
    pub state: Result<NodeState, Failure>,
}

pub struct NodeState {
    pub info: Info,
    pub policies: Result<PolicySet, String>,
    pub clock: Clock,
    /// The `save` setting; `None` where CONFIG is not allowed.
    pub save: Option<String>,
    /// Whether cluster_state is ok; `None` outside a cluster.
    pub cluster_ok: Option<bool>,
}

/// How far a node's clock is ahead of ours, and the error of that measurement.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub ahead_us: i64,
    pub error_us: i64,
}

impl Observation {
    pub fn of_all(topology: &Topology) -> Vec<Self> {
        let replies = topology.query(topology.all(), |connection| {
            observe(connection, topology.cluster)
        });
        let each = replies.into_iter().map(|(node, state)| Self {
            node: node.name.clone(),
            role: node.role,
            primary: node.primary.clone(),
            failed: node.failed,
            holds_keys: !topology.cluster || node.slots > 0,
            state,
        });
        each.collect()
    }

    pub fn version(&self) -> Option<&str> {
        self.state.as_ref().ok()?.info.get("rl_version")
    }

    fn server(&self) -> String {
        let Ok(state) = &self.state else {
            return String::new();
        };
        // Valkey reports its own version in addition to the compatible Redis version.
        match (
            state.info.get("valkey_version"),
            state.info.get("redis_version"),
        ) {
            (Some(version), _) => format!("Valkey {version}"),
            (_, Some(version)) => format!("Redis {version}"),
            _ => String::new(),
        }
    }

    pub fn describe(&self) -> String {
        let role = match (&self.role, &self.primary) {
            (Role::Primary, _) => "primary".to_owned(),
            (Role::Replica, Some(of)) => format!("replica of {of}"),
            (Role::Replica, None) => "replica".to_owned(),
        };
        match &self.state {
            Err(_) => format!("{}  {role}  no reply", self.node),
            Ok(state) => {
                let version = self
                    .version()
                    .map_or("no module".into(), |version| format!("rl {version}"));
                let policies = state.policies.as_ref().map_or(0, |set| set.len());
                format!(
                    "{}  {role}  {}  {version}  {policies} policies",
                    self.node,
                    self.server()
                )
            }
        }
    }

    pub fn summary(&self) -> Value {
        let state = self.state.as_ref().ok();
        json!({
            "node": self.node,
            "role": self.role,
            "primary": self.primary,
            "up": state.is_some(),
            "server": self.server(),
            "module_version": self.version(),
            "policy_count": state.and_then(|state| state.policies.as_ref().ok()).map(|set| set.len()),
            "clock_ahead_us": state.map(|state| state.clock.ahead_us),
        })
    }
}

fn observe(connection: &mut Connection, cluster: bool) -> RedisResult<NodeState> {
    let info = redis::cmd("INFO").arg("everything").query(connection)?;
    let clock = clock(connection)?;
    let policies = match connection.rl_policy_dump() {
        Ok(dump) => PolicySet::read(&dump, "RL.POLICY DUMP").map_err(|failure| failure.error),
        Err(error) if error.is_io_error() => return Err(error),
        Err(error) => Err(Failure::of_node("RL.POLICY DUMP", &error).line()),
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
    Ok(NodeState {
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
