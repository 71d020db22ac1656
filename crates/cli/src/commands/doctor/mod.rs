//! `rl doctor`: looks for problems on every node, and says what to do about them.

mod findings;
mod observation;

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::Exit;
use crate::failure::Failure;
use crate::output::{self, shown};
use crate::topology::Access;
use findings::{Finding, Level};
use observation::Observation;

pub fn run(access: &Access, json: bool) -> Result<Exit, Failure> {
    let mut observed = Vec::new();
    let mut found = Vec::new();
    // A policy that has not reached a replica yet is not a problem.
    for pause_ms in [0, 500, 1000] {
        thread::sleep(Duration::from_millis(pause_ms));
        let topology = access.discover()?;
        observed = Observation::of_all(&topology);
        found = findings::examine(&observed, topology.cluster);
        if !found.iter().any(|finding| finding.transient) {
            break;
        }
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let worst = found.iter().map(|finding| finding.level).max();
    if json {
        let nodes: Vec<_> = observed.iter().map(Observation::summary).collect();
        output::print_json(&json!({ "worst_level": worst, "findings": found, "nodes": nodes }))?;
    } else {
        output::print(&describe(&observed, &found, worst))?;
    }
    Ok(match worst {
        None | Some(Level::Note) => Exit::Success,
        Some(Level::Warning) => Exit::Negative,
        Some(Level::Problem) => Exit::Failed,
    })
}

fn describe(observed: &[Observation], found: &[Finding], worst: Option<Level>) -> String {
    let mut text = String::new();
    for one in observed {
        text += &format!("  {}\n", shown(&one.describe()));
    }
    text.push('\n');
    for finding in found {
        let at = finding
            .node
            .as_ref()
            .map(|node| format!("{node}: "))
            .unwrap_or_default();
        text += &format!(
            "{:<8} {at}{}\n",
            finding.level.name(),
            shown(&finding.message)
        );
        text += &format!("         → {}\n", finding.hint);
    }
    let count = |level| {
        found
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    text += &match worst {
        None | Some(Level::Note) => "No problems found.\n".to_owned(),
        _ => format!(
            "{} problems, {} warnings.\n",
            count(Level::Problem),
            count(Level::Warning)
        ),
    };
    text
}
