//! `rl stats [POLICY]`: totals over all primaries.

use std::collections::BTreeMap;

use redis::{Connection, RedisResult};
use serde::Serialize;

use crate::Outcome;
use crate::failure::Failure;
use crate::fleet::{Access, Answers, Fleet};
use crate::output::{self, span, table};
use crate::wire::Stats;

use super::answered;

/// What one node has counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    #[serde(flatten)]
    pub node: Stats,
    pub policies: BTreeMap<String, Stats>,
}

impl Figures {
    pub fn add(&mut self, other: &Self) {
        self.node.add(&other.node);
        for (name, stats) in &other.policies {
            self.policies.entry(name.clone()).or_default().add(stats);
        }
    }
}

/// Asks a node for its totals, and for those of each policy.
pub fn figures(connection: &mut Connection, of_policies: bool) -> RedisResult<Figures> {
    let node = redis::cmd("RL.STATS").query(connection)?;
    let names: Vec<String> = if of_policies {
        redis::cmd("RL.POLICY").arg("LIST").query(connection)?
    } else {
        Vec::new()
    };
    if names.is_empty() {
        let policies = BTreeMap::new();
        return Ok(Figures { node, policies });
    }
    let mut pipe = redis::pipe();
    for name in &names {
        pipe.cmd("RL.STATS").arg(name);
    }
    let each: Vec<RedisResult<Stats>> = pipe.ignore_errors().query(connection)?;
    // One that was deleted a moment ago is not missed.
    let policies = names.into_iter().zip(each);
    let policies = policies.filter_map(|(name, stats)| Some((name, stats.ok()?)));
    let policies = policies.collect();
    Ok(Figures { node, policies })
}

pub fn ask(fleet: &Fleet) -> Answers<'_, Figures> {
    fleet.ask(fleet.primaries(), |connection| figures(connection, true))
}

pub fn run(access: &Access, policy: Option<&str>, json: bool) -> Result<Outcome, Failure> {
    let fleet = access.survey()?;
    match policy {
        Some(policy) => {
            let answers = fleet.ask(fleet.primaries(), |connection| {
                redis::cmd("RL.STATS")
                    .arg(policy)
                    .query::<Stats>(connection)
            });
            let (nodes, outcome) = answered(answers, json);
            show(policy, nodes, json)?;
            Ok(outcome)
        }
        None => {
            let (nodes, outcome) = answered(ask(&fleet), json);
            let mut sum = Figures::default();
            nodes.iter().for_each(|(_, figures)| sum.add(figures));
            if json {
                let nodes: BTreeMap<_, _> = nodes.into_iter().collect();
                output::print_json(&serde_json::json!({ "total": sum, "nodes": nodes }))?;
                return Ok(outcome);
            }
            show(
                "all",
                nodes
                    .into_iter()
                    .map(|(name, all)| (name, all.node))
                    .collect(),
                json,
            )?;
            if !sum.policies.is_empty() {
                let rows: Vec<_> = sum
                    .policies
                    .iter()
                    .map(|(name, stats)| row(name, stats))
                    .collect();
                output::print(&format!("\n{}", table(&titles("policy"), &rows)))?;
            }
            Ok(outcome)
        }
    }
}

fn show(what: &str, nodes: Vec<(&str, Stats)>, json: bool) -> Result<(), Failure> {
    let mut sum = Stats::default();
    nodes.iter().for_each(|(_, stats)| sum.add(stats));
    if json {
        let nodes: BTreeMap<_, _> = nodes.into_iter().collect();
        return output::print_json(&serde_json::json!({ "total": sum, "nodes": nodes }));
    }
    let mut rows: Vec<_> = nodes.iter().map(|(name, stats)| row(name, stats)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    if rows.len() > 1 {
        rows.push(row(what, &sum));
    }
    output::print(&table(&titles("node"), &rows))
}

fn titles(first: &'static str) -> [&'static str; 9] {
    [
        first,
        ">allowed",
        ">denied",
        ">shadow",
        ">forced",
        ">refunded",
        ">allowed/min",
        ">denied/min",
        ">since",
    ]
}

fn row(name: &str, stats: &Stats) -> Vec<String> {
    let (total, minute) = (&stats.total, &stats.per_minute);
    let numbers = [
        total.allowed,
        total.denied,
        total.shadow_denied,
        total.forced,
        total.refunded,
        minute.allowed,
        minute.denied,
    ];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(|number| number.to_string()));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_millis() as u64);
    row.push(match stats.since_ms {
        0 => String::new(),
        since => format!("{} ago", span(now.saturating_sub(since))),
    });
    row
}
