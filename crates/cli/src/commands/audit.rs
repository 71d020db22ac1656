//! `rl audit`: the latest denials of all primaries.

use crate::Outcome;
use crate::failure::Failure;
use crate::fleet::Access;
use crate::output::{self, shown, span, table};
use crate::wire::Denial;

use super::answered;

/// As many as a node can keep: one key's denials may be anywhere among them.
const ALL: usize = 100_000;

pub fn run(
    access: &Access,
    count: usize,
    key: Option<&str>,
    json: bool,
) -> Result<Outcome, Failure> {
    let wanted = if key.is_some() { ALL } else { count.min(ALL) };
    let fleet = access.survey()?;
    let answers = fleet.ask(fleet.primaries(), |connection| {
        let mut command = redis::cmd("RL.AUDIT");
        command
            .arg("GET")
            .arg(wanted)
            .query::<Vec<Denial>>(connection)
    });
    let (answers, outcome) = answered(answers, json);
    let mut denials: Vec<Denial> = answers
        .into_iter()
        .flat_map(|(_, denials)| denials)
        .collect();
    denials.retain(|denial| key.is_none_or(|key| denial.key == key));
    denials.sort_by_key(|denial| std::cmp::Reverse(denial.time_ms));
    denials.truncate(count);
    if json {
        output::print_json(&denials)?;
    } else if denials.is_empty() {
        output::print("no denials are on record\n")?;
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
    Ok(outcome)
}

fn row(denial: &Denial) -> Vec<String> {
    let by = match denial.shadow {
        true => format!("{} (shadow)", denial.denied_by),
        false => denial.denied_by.clone(),
    };
    let retry = u64::try_from(denial.retry_after_ms).map_or_else(|_| "never".to_owned(), span);
    vec![
        output::time(denial.time_ms),
        shown(&denial.key),
        denial.policy.clone(),
        by,
        denial.cost.to_string(),
        denial.limit.to_string(),
        retry,
        shown(&denial.client),
    ]
}
