//! `rl doctor`: looks at every node for what will hurt, and says what to do.

mod findings;
mod observation;

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::Outcome;
use crate::failure::Failure;
use crate::fleet::Access;
use crate::output::{self, shown};
use findings::{Finding, Level};
use observation::Observation;

pub fn run(access: &Access, json: bool) -> Result<Outcome, Failure> {
    let mut seen = Vec::new();
    let mut found = Vec::new();
    // A policy that is on its way to a replica is not a finding.
    for pause_ms in [0, 500, 1000] {
        thread::sleep(Duration::from_millis(pause_ms));
        let fleet = access.survey()?;
        seen = Observation::of_all(&fleet);
        found = findings::examine(&seen, fleet.cluster);
        if !found.iter().any(|finding| finding.passes) {
            break;
        }
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let worst = found
        .iter()
        .map(|finding| finding.level)
        .max()
        .unwrap_or(Level::Note);
    if json {
        let nodes: Vec<_> = seen.iter().map(Observation::summary).collect();
        output::print_json(&json!({ "worst": worst, "findings": found, "nodes": nodes }))?;
    } else {
        output::print(&told(&seen, &found, worst))?;
    }
    Ok(match worst {
        Level::Note => Outcome::Well,
        Level::Warning => Outcome::No,
        Level::Problem => Outcome::Bad,
    })
}

fn told(seen: &[Observation], found: &[Finding], worst: Level) -> String {
    let mut text = String::new();
    for one in seen {
        text += &format!("  {}\n", shown(&one.told()));
    }
    text.push('\n');
    for finding in found {
        let at = finding
            .node
            .as_ref()
            .map(|node| format!("{node}: "))
            .unwrap_or_default();
        text += &format!("{:<8} {at}{}\n", finding.level.name(), shown(&finding.what));
        text += &format!("         → {}\n", finding.todo);
    }
    let count = |level| {
        found
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    text += &match worst {
        Level::Note => "All is well.\n".to_owned(),
        _ => format!(
            "{} problems, {} warnings.\n",
            count(Level::Problem),
            count(Level::Warning)
        ),
    };
    text
}
