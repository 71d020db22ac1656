//! `rl audit`: the latest denials of all primaries.

use rl_client::RlCommands;
use rl_client::commands::Denial;
use serde_json::json;

use super::{finish, split};
use crate::Exit;
use crate::failure::Failure;
use crate::output::{self, shown, table, wait};
use crate::topology::Access;

/// The most that a node can keep: the denials of one key may be anywhere among them.
const ALL: usize = 100_000;

pub fn run(access: &Access, count: usize, key: Option<&str>, json: bool) -> Result<Exit, Failure> {
    let wanted = if key.is_some() { ALL } else { count.min(ALL) };
    let topology = access.discover()?;
    let replies = topology.query(topology.primaries(), |connection| {
        connection.rl_audit_get(wanted)
    });
    let (replies, failed) = split(replies);
    let denials = replies.into_iter().flat_map(|(_, denials)| denials);
    let mut denials: Vec<Denial> = denials
        .filter(|denial| key.is_none_or(|key| denial.key == key))
        .collect();
    denials.sort_by_key(|denial| std::cmp::Reverse(denial.occurred_at_ms));
    denials.truncate(count);
    if json {
        output::print_json(&json!({ "denials": denials, "failed_nodes": failed }))?;
    } else if denials.is_empty() {
        output::print("no denials are recorded\n")?;
    } else {
        let titles = [
            "time (UTC)",
            "key",
            "policy",
            "denied by",
            ">cost",
            ">limit",
            ">retry in",
            "client",
        ];
        let rows: Vec<_> = denials.iter().map(row).collect();
        output::print(&table(&titles, &rows))?;
    }
    Ok(finish(&failed, json))
}

fn row(denial: &Denial) -> Vec<String> {
    let by = match denial.shadow {
        true => format!("{} (shadow)", denial.denied_by),
        false => denial.denied_by.clone(),
    };
    vec![
        output::time(denial.occurred_at_ms),
        shown(&denial.key),
        denial.policy.clone(),
        by,
        denial.cost.to_string(),
        denial.limit.to_string(),
        denial.retry_after_ms.map_or("never".to_owned(), wait),
        shown(&denial.client),
    ]
}
