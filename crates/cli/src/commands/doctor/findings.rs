//! The problems in a set of observations. Each kind has a function, and a hint that says what to do.

use serde::Serialize;

use crate::output::duration;
use crate::topology::Role;

use super::observation::{NodeState, Observation};

/// From here on, a failover noticeably changes when limits reset.
const SKEW_WARNING_US: i64 = 250_000;
const SKEW_PROBLEM_US: i64 = 5_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Note,
    Warning,
    Problem,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "WARNING",
            Self::Problem => "PROBLEM",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub level: Level,
    /// An identifier for programs.
    pub code: &'static str,
    pub node: Option<String>,
    pub message: String,
    pub hint: String,
    /// Whether it may be gone a moment later.
    #[serde(skip)]
    pub transient: bool,
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        level: Level,
        code: &'static str,
        node: Option<&str>,
        message: String,
        hint: &str,
    ) {
        self.0.push(Finding {
            level,
            code,
            node: node.map(str::to_owned),
            message,
            hint: hint.to_owned(),
            transient: false,
        });
    }
}

pub fn examine(all: &[Observation], cluster: bool) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    unreachable_nodes(all, &mut found);
    versions(all, &mut found);
    policies(all, &mut found);
    clocks(all, &mut found);
    for one in all {
        let Ok(state) = &one.state else { continue };
        eviction(one, state, &mut found);
        replicas(one, state, all, &mut found);
        persistence(one, state, &mut found);
        audit_stream(one, state, &mut found);
        replication_bugs(one, state, &mut found);
        policy_state_resets(one, state, &mut found);
    }
    if cluster {
        cluster_state(all, &mut found);
    }
    found.0
}

fn unreachable_nodes(all: &[Observation], found: &mut Findings) {
    for one in all {
        let Err(failure) = &one.state else { continue };
        let name = Some(&*one.node);
        let (level, hint) = match (one.failed, one.role) {
            (true, _) => (
                Level::Problem,
                "start it again or, if it is gone for good, run CLUSTER FORGET with its id on every node",
            ),
            _ if failure.hint.is_empty() => (Level::Problem, "start it again"),
            _ => (Level::Problem, &*failure.hint),
        };
        found.add(
            level,
            "unreachable",
            name,
            format!("no reply: {}", failure.error),
            hint,
        );
    }
}

fn versions(all: &[Observation], found: &mut Findings) {
    let mut versions: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in all.iter().filter(|one| one.state.is_ok()) {
        let Some(version) = one.version() else {
            let message = "the RL module is not loaded: clients get errors".to_owned();
            let hint = "add `loadmodule /path/to/librl.so` to its configuration, and restart it";
            found.add(
                Level::Problem,
                "module-missing",
                Some(&one.node),
                message,
                hint,
            );
            continue;
        };
        match versions.iter_mut().find(|(other, _)| *other == version) {
            Some((_, nodes)) => nodes.push(&one.node),
            None => versions.push((version, vec![&one.node])),
        }
    }
    if versions.len() > 1 {
        let each = versions
            .iter()
            .map(|(version, nodes)| format!("{version} on {}", nodes.join(", ")));
        let message = format!(
            "the module versions differ: {}",
            each.collect::<Vec<_>>().join("; ")
        );
        let hint = "finish the upgrade, replicas first: an older module cannot read the state of a newer one";
        found.add(Level::Problem, "versions-differ", None, message, hint);
    }
}

fn policies(all: &[Observation], found: &mut Findings) {
    let of = |one: &Observation| one.state.as_ref().ok()?.policies.clone().ok();
    let mut first: Option<(&str, _)> = None;
    for one in all.iter().filter(|one| one.role == Role::Primary) {
        let Some(set) = of(one) else {
            refused(one, found);
            continue;
        };
        match &first {
            None => first = Some((&one.node, set)),
            Some((node, other)) if *other != set => {
                let names: Vec<_> = other
                    .changes(&set)
                    .iter()
                    .map(|change| change.policy.to_owned())
                    .collect();
                let message = format!("policies differ from those of {node}: {}", some(&names));
                let hint = "`rl policy push FILE` gives all primaries the same policies";
                found.add(
                    Level::Problem,
                    "policies-differ",
                    Some(&one.node),
                    message,
                    hint,
                );
            }
            Some(_) => {}
        }
    }
    for one in all.iter().filter(|one| one.role == Role::Replica) {
        let primary = all
            .iter()
            .find(|other| Some(&other.node) == one.primary.as_ref());
        let Some(expected) = primary.and_then(of) else {
            continue;
        };
        let Some(set) = of(one) else {
            refused(one, found);
            continue;
        };
        if set != expected {
            let names: Vec<_> = expected
                .changes(&set)
                .iter()
                .map(|change| change.policy.to_owned())
                .collect();
            let message = format!(
                "policies differ from those of its primary: {}",
                some(&names)
            );
            let hint = "find out why it lags (INFO replication); a full resync (REPLICAOF again) copies them";
            found.add(
                Level::Problem,
                "replica-policies-differ",
                Some(&one.node),
                message,
                hint,
            );
            if let Some(last) = found.0.last_mut() {
                last.transient = true;
            }
        }
    }
}

/// A node that has the module but does not return its policies.
fn refused(one: &Observation, found: &mut Findings) {
    if let (
        Ok(NodeState {
            policies: Err(error),
            ..
        }),
        Some(_),
    ) = (&one.state, one.version())
    {
        let hint = "allow this user RL.POLICY, or load a module that has it";
        found.add(
            Level::Problem,
            "policies-unreadable",
            Some(&one.node),
            error.clone(),
            hint,
        );
    }
}

fn clocks(all: &[Observation], found: &mut Findings) {
    let clocks: Vec<_> = all
        .iter()
        .filter_map(|one| Some((&one.node, one.state.as_ref().ok()?.clock)))
        .collect();
    let last = clocks.iter().min_by_key(|(_, clock)| clock.ahead_us);
    let first = clocks.iter().max_by_key(|(_, clock)| clock.ahead_us);
    let (Some((behind, slow)), Some((ahead, fast))) = (last, first) else {
        return;
    };
    // The skew that is certain, whatever the round trips took.
    let skew_us = fast.ahead_us - slow.ahead_us - fast.error_us - slow.error_us;
    if skew_us < SKEW_WARNING_US {
        return;
    }
    let level = if skew_us < SKEW_PROBLEM_US {
        Level::Warning
    } else {
        Level::Problem
    };
    let skew = duration(skew_us as u64 / 1000);
    let message = format!(
        "the clock of {ahead} is {skew} ahead of that of {behind}: a failover would shift windows by as much"
    );
    found.add(
        level,
        "clock-skew",
        None,
        message,
        "run an NTP client, such as chrony, on every node",
    );
}

fn eviction(one: &Observation, state: &NodeState, found: &mut Findings) {
    let policy = state.info.get("maxmemory_policy").unwrap_or("noeviction");
    if policy == "noeviction" {
        return;
    }
    // Every counter has an expiry, so the volatile policies evict it too.
    let hint = "CONFIG SET maxmemory-policy noeviction, and in the configuration file; keep caches on another server";
    if !state.info.is("maxmemory", "0") {
        let evicted = match state.info.number("evicted_keys") {
            Some(count) if count > 0 => format!(", and has already evicted {count} keys"),
            _ => String::new(),
        };
        let message = format!(
            "maxmemory-policy {policy} evicts counters when memory is full{evicted}: limits are then reset"
        );
        found.add(Level::Problem, "eviction", Some(&one.node), message, hint);
    } else {
        let message =
            format!("maxmemory-policy {policy} would evict counters if maxmemory were set");
        found.add(Level::Note, "eviction", Some(&one.node), message, hint);
    }
}

fn replicas(one: &Observation, state: &NodeState, all: &[Observation], found: &mut Findings) {
    let node = Some(&*one.node);
    if one.role == Role::Replica {
        if !state.info.is("master_link_status", "up") {
            let message = "the link to its primary is down: it is falling behind".to_owned();
            let hint =
                "see its log; the usual causes are masterauth and the network between the two";
            found.add(Level::Problem, "replica-link-down", node, message, hint);
        }
        return;
    }
    let answers =
        |other: &Observation| other.primary.as_ref() == Some(&one.node) && other.state.is_ok();
    let connected = state.info.number("connected_slaves").unwrap_or(0);
    if one.holds_keys && connected == 0 && !all.iter().any(answers) {
        let message =
            "no replica: if this node fails, its counters and overrides are lost".to_owned();
        let hint = "add a replica (REPLICAOF, or redis-cli --cluster add-node --cluster-slave)";
        found.add(Level::Warning, "no-replica", node, message, hint);
    }
}

fn persistence(one: &Observation, state: &NodeState, found: &mut Findings) {
    let node = Some(&*one.node);
    let aof = state.info.is("aof_enabled", "1");
    if !aof && state.save.as_deref() == Some("") {
        let message =
            "neither AOF nor RDB is enabled: a restart loses counters, overrides and policies"
                .to_owned();
        let hint = "CONFIG SET appendonly yes, or save '3600 1 300 100', and CONFIG REWRITE";
        found.add(Level::Warning, "no-persistence", node, message, hint);
    }
    if !aof && state.save.is_none() {
        let message =
            "AOF is disabled, and this user may not see whether RDB is enabled".to_owned();
        found.add(
            Level::Note,
            "no-persistence",
            node,
            message,
            "allow this user CONFIG GET",
        );
    }
    for (field, file) in [
        ("rdb_last_bgsave_status", "RDB"),
        ("aof_last_write_status", "AOF"),
    ] {
        if state.info.is(field, "err") {
            let message = format!("the last write of the {file} file failed");
            found.add(
                Level::Problem,
                "persistence-fails",
                node,
                message,
                "see its log: the disk may be full or read-only",
            );
        }
    }
}

fn audit_stream(one: &Observation, state: &NodeState, found: &mut Findings) {
    let errors = state.info.number("rl_audit_stream_errors").unwrap_or(0);
    if errors > 0 {
        let message =
            format!("{errors} denials could not be written to the audit stream since startup");
        let hint = "rl.audit-stream must name a stream or an unused key, in a cluster one in a slot of this node; memory must not be full";
        found.add(
            Level::Warning,
            "audit-stream-errors",
            Some(&one.node),
            message,
            hint,
        );
    }
}

/// Counters that stay 0 unless the module has a bug.
fn replication_bugs(one: &Observation, state: &NodeState, found: &mut Findings) {
    let node = Some(&*one.node);
    let count = |field| state.info.number(field).unwrap_or(0);
    let replayed = count("rl_replayed_decisions");
    if replayed > 0 {
        let message = format!(
            "received {replayed} calls in place of states, and decided them again: its counters may be wrong"
        );
        let hint = "if it is a replica, copy the data again (REPLICAOF NO ONE, then REPLICAOF); this is a bug, please report it";
        found.add(Level::Problem, "replayed-decisions", node, message, hint);
    }
    let unannounced = count("rl_unannounced_receivers");
    if unannounced > 0 {
        let message = format!(
            "noticed a replica or the AOF too late {unannounced} times: states may be missing there"
        );
        let hint = "BGREWRITEAOF writes them to the AOF, and a full resync to a replica; this is a bug, please report it";
        found.add(Level::Warning, "unannounced-receivers", node, message, hint);
    }
}

fn policy_state_resets(one: &Observation, state: &NodeState, found: &mut Findings) {
    let resets = state.info.number("rl_policy_state_resets").unwrap_or(0);
    if resets > 0 {
        let message = format!(
            "{resets} checks by policy started from zero since startup, because the key held the state of other limits"
        );
        let hint = "normal after a policy changed its algorithms; if the number keeps growing, two policies use the same keys: give each its own";
        found.add(
            Level::Note,
            "policy-state-resets",
            Some(&one.node),
            message,
            hint,
        );
    }
}

fn cluster_state(all: &[Observation], found: &mut Findings) {
    let not_ok = all.iter().filter(|one| {
        matches!(
            &one.state,
            Ok(NodeState {
                cluster_ok: Some(false),
                ..
            })
        )
    });
    let not_ok: Vec<_> = not_ok.map(|one| one.node.clone()).collect();
    if !not_ok.is_empty() {
        let message = format!(
            "cluster_state is not ok according to {}: some slots are not served",
            some(&not_ok)
        );
        let hint = "redis-cli --cluster check HOST:PORT lists the slots; start their nodes, or use --cluster fix";
        found.add(Level::Problem, "cluster-state", None, message, hint);
    }
}

/// The first few names.
fn some(names: &[String]) -> String {
    const FEW: usize = 5;
    match names.len().checked_sub(FEW) {
        Some(more) if more > 0 => format!("{} and {more} more", names[..FEW].join(", ")),
        _ => names.join(", "),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::observation::Clock;
    use super::*;
    use crate::failure::Failure;
    use crate::policy_set::PolicySet;
    use crate::topology::Info;

    const WELL: &str = "redis_version:7.0.15\nmaxmemory:0\nmaxmemory_policy:noeviction\nconnected_slaves:1\n\
        aof_enabled:1\naof_last_write_status:ok\nrdb_last_bgsave_status:ok\nmaster_link_status:up\nrl_version:0.1.0\n\
        rl_audit_stream_errors:0\nevicted_keys:0";

    fn state(change: (&str, &str)) -> NodeState {
        let mut text = WELL.to_owned();
        text += &format!("\n{}:{}", change.0, change.1);
        NodeState {
            info: Info::from(&*text),
            policies: PolicySet::read(r#"{"policies":{"free":{"limits":["SLIDE 5 1m"]}}}"#, "")
                .map_err(|e| e.error),
            clock: Clock {
                ahead_us: 0,
                error_us: 100,
            },
            save: Some(String::new()),
            cluster_ok: Some(true),
        }
    }

    fn node(name: &str, primary: Option<&str>, state: NodeState) -> Observation {
        Observation {
            node: name.to_owned(),
            role: if primary.is_some() {
                Role::Replica
            } else {
                Role::Primary
            },
            primary: primary.map(str::to_owned),
            failed: false,
            holds_keys: true,
            state: Ok(state),
        }
    }

    fn pair(primary: NodeState, replica: NodeState) -> Vec<Observation> {
        vec![node("p", None, primary), node("r", Some("p"), replica)]
    }

    fn codes(all: &[Observation]) -> Vec<(&'static str, Level)> {
        examine(all, true)
            .iter()
            .map(|finding| (finding.code, finding.level))
            .collect()
    }

    #[test]
    fn healthy_nodes_have_no_findings() {
        assert_eq!(codes(&pair(state(("", "")), state(("", "")))), []);
    }

    #[test]
    fn each_field_of_info_has_its_finding() {
        for (field, value, code, level) in [
            ("rl_version", "0.2.0", "versions-differ", Level::Problem),
            ("maxmemory_policy", "volatile-lru", "eviction", Level::Note),
            (
                "aof_last_write_status",
                "err",
                "persistence-fails",
                Level::Problem,
            ),
            (
                "rdb_last_bgsave_status",
                "err",
                "persistence-fails",
                Level::Problem,
            ),
            (
                "rl_audit_stream_errors",
                "7",
                "audit-stream-errors",
                Level::Warning,
            ),
            ("aof_enabled", "0", "no-persistence", Level::Warning),
            (
                "rl_replayed_decisions",
                "3",
                "replayed-decisions",
                Level::Problem,
            ),
            (
                "rl_unannounced_receivers",
                "1",
                "unannounced-receivers",
                Level::Warning,
            ),
            (
                "rl_policy_state_resets",
                "9",
                "policy-state-resets",
                Level::Note,
            ),
        ] {
            assert_eq!(
                codes(&pair(state((field, value)), state(("", "")))),
                [(code, level)],
                "{field}"
            );
        }
        let lost = pair(state(("", "")), state(("master_link_status", "down")));
        assert_eq!(codes(&lost), [("replica-link-down", Level::Problem)]);
        let alone = vec![node("p", None, state(("connected_slaves", "0")))];
        assert_eq!(codes(&alone), [("no-replica", Level::Warning)]);
        let mut full = state(("maxmemory_policy", "allkeys-lru"));
        full.info = Info::from(&*format!(
            "{WELL}\nmaxmemory:100\nmaxmemory_policy:allkeys-lru\nevicted_keys:3"
        ));
        let found = examine(&pair(full, state(("", ""))), false);
        assert_eq!(
            (found[0].code, found[0].level),
            ("eviction", Level::Problem)
        );
        assert!(found[0].message.contains("3 keys"), "{}", found[0].message);
    }

    #[test]
    fn skew_counts_only_as_far_as_it_is_certain() {
        let at = |ahead_us, error_us| {
            let clock = Clock { ahead_us, error_us };
            NodeState {
                clock,
                ..state(("", ""))
            }
        };
        assert_eq!(
            codes(&pair(at(0, 100), at(300_000, 100))),
            [("clock-skew", Level::Warning)]
        );
        assert_eq!(codes(&pair(at(0, 100_000), at(300_000, 100_000))), []);
        assert_eq!(
            codes(&pair(at(-3_000_000, 1), at(3_000_000, 1))),
            [("clock-skew", Level::Problem)]
        );
    }

    #[test]
    fn policies_are_compared_by_name() {
        let none = || NodeState {
            policies: Ok(PolicySet::default()),
            ..state(("", ""))
        };
        let found = examine(&pair(state(("", "")), none()), false);
        assert_eq!(
            (found[0].code, found[0].transient),
            ("replica-policies-differ", true)
        );
        assert!(found[0].message.ends_with(": free"), "{}", found[0].message);
        let two = vec![node("p", None, state(("", ""))), node("q", None, none())];
        assert_eq!(codes(&two), [("policies-differ", Level::Problem)]);
    }

    #[test]
    fn a_node_that_is_down_and_a_cluster_that_is_not_ok() {
        let mut all = pair(
            NodeState {
                cluster_ok: Some(false),
                ..state(("", ""))
            },
            state(("", "")),
        );
        all[1].state = Err(Failure::new("r: connection refused", ""));
        assert_eq!(
            codes(&all),
            [
                ("unreachable", Level::Problem),
                ("cluster-state", Level::Problem)
            ]
        );
    }
}
