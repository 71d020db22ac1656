//! What the observations mean. Each finding is a function below, and says what to do.

use serde::Serialize;

use crate::fleet::Role;
use crate::output::span;

use super::observation::{Observation, Seen};

/// From this on, limits are noticeably unlike after a failover.
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
    /// A word for programs.
    pub code: &'static str,
    pub node: Option<String>,
    pub what: String,
    #[serde(rename = "do")]
    pub todo: String,
    /// It may be gone in a moment.
    #[serde(skip)]
    pub passes: bool,
}

struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        level: Level,
        code: &'static str,
        node: Option<&str>,
        what: String,
        todo: &str,
    ) {
        self.0.push(Finding {
            level,
            code,
            node: node.map(str::to_owned),
            what,
            todo: todo.to_owned(),
            passes: false,
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
        let Ok(seen) = &one.seen else { continue };
        eviction(one, seen, &mut found);
        replicas(one, seen, all, &mut found);
        persistence(one, seen, &mut found);
        audit_stream(one, seen, &mut found);
    }
    if cluster {
        cluster_state(all, &mut found);
    }
    found.0
}

fn unreachable_nodes(all: &[Observation], found: &mut Findings) {
    for one in all {
        let Err(failure) = &one.seen else { continue };
        let name = Some(&*one.node);
        let reason = failure
            .error
            .strip_prefix(&format!("{}: ", one.node))
            .unwrap_or(&failure.error);
        let (level, todo) = match (one.failed, one.role) {
            (true, _) => (
                Level::Problem,
                "start it again, or, if it is gone for good: CLUSTER FORGET its id on every node",
            ),
            _ if failure.todo.is_empty() => (Level::Problem, "start it again"),
            _ => (Level::Problem, &*failure.todo),
        };
        found.add(
            level,
            "unreachable",
            name,
            format!("no answer: {reason}"),
            todo,
        );
    }
}

fn versions(all: &[Observation], found: &mut Findings) {
    let mut versions: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in all.iter().filter(|one| one.seen.is_ok()) {
        let Some(version) = one.version() else {
            let what =
                "the RL module is not loaded: clients get errors in place of answers".to_owned();
            let todo = "add `loadmodule /path/to/librl.so` to its configuration, and restart it";
            found.add(
                Level::Problem,
                "module-missing",
                Some(&one.node),
                what,
                todo,
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
        let what = format!(
            "module versions differ: {}",
            each.collect::<Vec<_>>().join("; ")
        );
        let todo =
            "finish the upgrade, replicas first: an older module cannot read a newer one's states";
        found.add(Level::Problem, "versions-differ", None, what, todo);
    }
}

fn policies(all: &[Observation], found: &mut Findings) {
    let of = |one: &Observation| one.seen.as_ref().ok()?.policies.clone().ok();
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
                    .map(|change| change.name.to_owned())
                    .collect();
                let what = format!("policies differ from those of {node}: {}", some(&names));
                let todo = "rl policy push FILE makes all primaries hold the same";
                found.add(
                    Level::Problem,
                    "policies-differ",
                    Some(&one.node),
                    what,
                    todo,
                );
            }
            Some(_) => {}
        }
    }
    for one in all.iter().filter(|one| one.role == Role::Replica) {
        let primary = all
            .iter()
            .find(|other| Some(&other.node) == one.follows.as_ref());
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
                .map(|change| change.name.to_owned())
                .collect();
            let what = format!(
                "policies differ from those of its primary: {}",
                some(&names)
            );
            let todo =
                "see why it lags (INFO replication); a full resync (REPLICAOF again) brings them";
            found.add(
                Level::Problem,
                "replica-policies-differ",
                Some(&one.node),
                what,
                todo,
            );
            if let Some(last) = found.0.last_mut() {
                last.passes = true;
            }
        }
    }
}

/// A node with the module that does not show its policies.
fn refused(one: &Observation, found: &mut Findings) {
    if let (
        Ok(Seen {
            policies: Err(error),
            ..
        }),
        Some(_),
    ) = (&one.seen, one.version())
    {
        let todo = "allow this user RL.POLICY, or load a module that has it";
        found.add(
            Level::Problem,
            "policies-unreadable",
            Some(&one.node),
            error.clone(),
            todo,
        );
    }
}

fn clocks(all: &[Observation], found: &mut Findings) {
    let clocks: Vec<_> = all
        .iter()
        .filter_map(|one| Some((&one.node, one.seen.as_ref().ok()?.clock)))
        .collect();
    let last = clocks.iter().min_by_key(|(_, clock)| clock.ahead_us);
    let first = clocks.iter().max_by_key(|(_, clock)| clock.ahead_us);
    let (Some((behind, slow)), Some((ahead, fast))) = (last, first) else {
        return;
    };
    // What is certain, whatever the way there and back took.
    let skew_us = fast.ahead_us - slow.ahead_us - fast.error_us - slow.error_us;
    if skew_us < SKEW_WARNING_US {
        return;
    }
    let level = if skew_us < SKEW_PROBLEM_US {
        Level::Warning
    } else {
        Level::Problem
    };
    let skew = span(skew_us as u64 / 1000);
    let what = format!(
        "the clock of {ahead} is {skew} ahead of that of {behind}: a failover would shift windows by that"
    );
    found.add(
        level,
        "clock-skew",
        None,
        what,
        "run an NTP client, such as chrony, on every node",
    );
}

fn eviction(one: &Observation, seen: &Seen, found: &mut Findings) {
    let policy = seen.info.get("maxmemory_policy").unwrap_or("noeviction");
    if policy == "noeviction" {
        return;
    }
    // Every counter has an expiry: the volatile policies drop it as well as the others.
    let todo = "CONFIG SET maxmemory-policy noeviction, and in the configuration file; keep caches on another server";
    if !seen.info.is("maxmemory", "0") {
        let evicted = match seen.info.number("evicted_keys") {
            Some(count) if count > 0 => format!(", and has dropped {count} keys already"),
            _ => String::new(),
        };
        let what = format!(
            "maxmemory-policy {policy} drops counters when memory is full{evicted}: limits then start anew"
        );
        found.add(Level::Problem, "eviction", Some(&one.node), what, todo);
    } else {
        let what =
            format!("maxmemory-policy {policy} would drop counters, if a maxmemory were set");
        found.add(Level::Note, "eviction", Some(&one.node), what, todo);
    }
}

fn replicas(one: &Observation, seen: &Seen, all: &[Observation], found: &mut Findings) {
    let node = Some(&*one.node);
    if one.role == Role::Replica {
        if !seen.info.is("master_link_status", "up") {
            let what = "the link to its primary is down: it falls behind".to_owned();
            let todo =
                "see its log; masterauth and the network between the two are the usual causes";
            found.add(Level::Problem, "replica-link-down", node, what, todo);
        }
        return;
    }
    let answers =
        |other: &Observation| other.follows.as_ref() == Some(&one.node) && other.seen.is_ok();
    let connected = seen.info.number("connected_slaves").unwrap_or(0);
    if one.holds_keys && connected == 0 && !all.iter().any(answers) {
        let what = "no replica: if this node dies, its counters and overrides are gone".to_owned();
        let todo = "add a replica (REPLICAOF, or redis-cli --cluster add-node --cluster-slave)";
        found.add(Level::Warning, "no-replica", node, what, todo);
    }
}

fn persistence(one: &Observation, seen: &Seen, found: &mut Findings) {
    let node = Some(&*one.node);
    let aof = seen.info.is("aof_enabled", "1");
    if !aof && seen.save.as_deref() == Some("") {
        let what = "neither AOF nor RDB is on: a restart forgets counters, overrides and policies"
            .to_owned();
        let todo = "CONFIG SET appendonly yes, or save '3600 1 300 100', and CONFIG REWRITE";
        found.add(Level::Warning, "no-persistence", node, what, todo);
    }
    if !aof && seen.save.is_none() {
        let what = "AOF is off, and this user may not see whether RDB is on".to_owned();
        found.add(
            Level::Note,
            "no-persistence",
            node,
            what,
            "allow this user CONFIG GET to know",
        );
    }
    for (field, file) in [
        ("rdb_last_bgsave_status", "RDB"),
        ("aof_last_write_status", "AOF"),
    ] {
        if seen.info.is(field, "err") {
            let what = format!("the last write of the {file} failed");
            found.add(
                Level::Problem,
                "persistence-fails",
                node,
                what,
                "see its log: the disk may be full or read-only",
            );
        }
    }
}

fn audit_stream(one: &Observation, seen: &Seen, found: &mut Findings) {
    let errors = seen.info.number("rl_audit_stream_errors").unwrap_or(0);
    if errors > 0 {
        let what =
            format!("{errors} denials could not be written to the audit stream since the start");
        let todo = "rl.audit-stream must name a stream or a free key, in a cluster one in a slot of this node; memory must not be full";
        found.add(
            Level::Warning,
            "audit-stream-errors",
            Some(&one.node),
            what,
            todo,
        );
    }
}

fn cluster_state(all: &[Observation], found: &mut Findings) {
    let sick = all.iter().filter(|one| {
        matches!(
            &one.seen,
            Ok(Seen {
                cluster_ok: Some(false),
                ..
            })
        )
    });
    let sick: Vec<_> = sick.map(|one| one.node.clone()).collect();
    if !sick.is_empty() {
        let what = format!(
            "cluster_state is not ok, as {} see it: some slots are not served",
            some(&sick)
        );
        let todo = "redis-cli --cluster check HOST:PORT names the slots; start their nodes, or --cluster fix";
        found.add(Level::Problem, "cluster-state", None, what, todo);
    }
}

/// A few of the names.
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
    use crate::info::Info;
    use crate::policies::Policies;

    const WELL: &str = "redis_version:7.0.15\nmaxmemory:0\nmaxmemory_policy:noeviction\nconnected_slaves:1\n\
        aof_enabled:1\naof_last_write_status:ok\nrdb_last_bgsave_status:ok\nmaster_link_status:up\nrl_version:0.1.0\n\
        rl_audit_stream_errors:0\nevicted_keys:0";

    fn seen(change: (&str, &str)) -> Seen {
        let mut text = WELL.to_owned();
        text += &format!("\n{}:{}", change.0, change.1);
        Seen {
            info: Info::from(&*text),
            policies: Policies::read(r#"{"policies":{"free":{"limits":["SLIDE 5 1m"]}}}"#, "")
                .map_err(|e| e.error),
            clock: Clock {
                ahead_us: 0,
                error_us: 100,
            },
            save: Some(String::new()),
            cluster_ok: Some(true),
        }
    }

    fn node(name: &str, follows: Option<&str>, seen: Seen) -> Observation {
        Observation {
            node: name.to_owned(),
            role: if follows.is_some() {
                Role::Replica
            } else {
                Role::Primary
            },
            follows: follows.map(str::to_owned),
            failed: false,
            holds_keys: true,
            seen: Ok(seen),
        }
    }

    fn pair(primary: Seen, replica: Seen) -> Vec<Observation> {
        vec![node("p", None, primary), node("r", Some("p"), replica)]
    }

    fn codes(all: &[Observation]) -> Vec<(&'static str, Level)> {
        examine(all, true)
            .iter()
            .map(|finding| (finding.code, finding.level))
            .collect()
    }

    #[test]
    fn a_healthy_fleet_has_no_findings() {
        assert_eq!(codes(&pair(seen(("", "")), seen(("", "")))), []);
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
        ] {
            assert_eq!(
                codes(&pair(seen((field, value)), seen(("", "")))),
                [(code, level)],
                "{field}"
            );
        }
        let lost = pair(seen(("", "")), seen(("master_link_status", "down")));
        assert_eq!(codes(&lost), [("replica-link-down", Level::Problem)]);
        let alone = vec![node("p", None, seen(("connected_slaves", "0")))];
        assert_eq!(codes(&alone), [("no-replica", Level::Warning)]);
        let mut full = seen(("maxmemory_policy", "allkeys-lru"));
        full.info = Info::from(&*format!(
            "{WELL}\nmaxmemory:100\nmaxmemory_policy:allkeys-lru\nevicted_keys:3"
        ));
        let found = examine(&pair(full, seen(("", ""))), false);
        assert_eq!(
            (found[0].code, found[0].level),
            ("eviction", Level::Problem)
        );
        assert!(found[0].what.contains("3 keys"), "{}", found[0].what);
    }

    #[test]
    fn skew_counts_only_as_far_as_it_is_certain() {
        let at = |ahead_us, error_us| {
            let clock = Clock { ahead_us, error_us };
            Seen {
                clock,
                ..seen(("", ""))
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
        let none = || Seen {
            policies: Ok(Policies::default()),
            ..seen(("", ""))
        };
        let found = examine(&pair(seen(("", "")), none()), false);
        assert_eq!(
            (found[0].code, found[0].passes),
            ("replica-policies-differ", true)
        );
        assert!(found[0].what.ends_with(": free"), "{}", found[0].what);
        let two = vec![node("p", None, seen(("", ""))), node("q", None, none())];
        assert_eq!(codes(&two), [("policies-differ", Level::Problem)]);
    }

    #[test]
    fn a_dead_node_and_a_sick_cluster() {
        let mut all = pair(
            Seen {
                cluster_ok: Some(false),
                ..seen(("", ""))
            },
            seen(("", "")),
        );
        all[1].seen = Err(Failure::new("r: connection refused", ""));
        assert_eq!(
            codes(&all),
            [
                ("unreachable", Level::Problem),
                ("cluster-state", Level::Problem)
            ]
        );
    }
}
