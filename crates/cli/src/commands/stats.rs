//! `rl stats [POLICY]`: totals over all primaries.

use std::time::{SystemTime, UNIX_EPOCH};

use rl_client::RlCommands;
use rl_client::commands::Stats;
use serde_json::json;

use super::{finish, split};
use crate::Exit;
use crate::failure::Failure;
use crate::output::{self, duration, table};
use crate::snapshot::{NodeStats, Snapshot};
use crate::topology::{Access, Topology};

pub fn run(access: &Access, policy: Option<&str>, json: bool) -> Result<Exit, Failure> {
    let topology = access.discover()?;
    match policy {
        Some(policy) => one(&topology, policy, json),
        None => all(&topology, json),
    }
}

fn one(topology: &Topology, policy: &str, json: bool) -> Result<Exit, Failure> {
    let replies = topology.query(topology.primaries(), |connection| {
        connection.rl_policy_stats(policy)
    });
    let (replies, failed) = split(replies);
    let mut total = Stats::default();
    replies.iter().for_each(|(_, stats)| total.add(stats));
    let nodes = replies.into_iter().map(|(node, stats)| NodeStats {
        node: node.to_owned(),
        stats,
    });
    let nodes: Vec<_> = nodes.collect();
    if json {
        output::print_json(
            &json!({ "policy": policy, "all_nodes": total, "nodes": nodes, "failed_nodes": failed }),
        )?;
    } else {
        output::print(&node_table(&nodes, policy, &total))?;
    }
    Ok(finish(&failed, json))
}

fn all(topology: &Topology, json: bool) -> Result<Exit, Failure> {
    let snapshot = Snapshot::of_stats(topology);
    if json {
        output::print_json(&snapshot)?;
    } else {
        let mut text = node_table(&snapshot.nodes, "all", &snapshot.all_nodes);
        let policies = snapshot.policies.iter();
        let rows: Vec<_> = policies.map(|one| row(&one.policy, &one.stats)).collect();
        if !rows.is_empty() {
            text += &format!("\n{}", table(&titles("policy", false), &rows));
        }
        output::print(&text)?;
    }
    Ok(finish(&snapshot.failed_nodes, json))
}

/// The nodes and, if there are several, their sum.
fn node_table(nodes: &[NodeStats], sum: &str, total: &Stats) -> String {
    let mut rows: Vec<_> = nodes.iter().map(|one| row(&one.node, &one.stats)).collect();
    if rows.is_empty() {
        return String::new();
    }
    if rows.len() > 1 {
        rows.push(row(sum, total));
    }
    table(&titles("node", total.total.refunded_units.is_some()), &rows)
}

fn titles(first: &'static str, with_refunds: bool) -> Vec<&'static str> {
    let mut titles = vec![first, ">allowed", ">denied", ">shadow", ">forced"];
    titles.extend(with_refunds.then_some(">refunded units"));
    titles.extend([">allowed/min", ">denied/min", ">since"]);
    titles
}

fn row(name: &str, stats: &Stats) -> Vec<String> {
    let (total, minute) = (&stats.total, &stats.per_minute);
    let counts = [
        total.allowed,
        total.denied,
        total.shadow_denied,
        total.forced,
    ];
    let mut row = vec![name.to_owned()];
    row.extend(counts.map(|count| count.to_string()));
    row.extend(total.refunded_units.map(|units| units.to_string()));
    row.extend([minute.allowed, minute.denied].map(|count| count.to_string()));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| now.as_millis() as u64);
    row.push(match stats.counting_started_at_ms {
        0 => String::new(),
        since => format!("{} ago", duration(now_ms.saturating_sub(since))),
    });
    row
}
