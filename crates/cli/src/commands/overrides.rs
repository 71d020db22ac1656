//! `rl override set | get | del`

use serde_json::json;

use crate::Outcome;
use crate::args::Override;
use crate::failure::Failure;
use crate::fleet::Access;
use crate::output::{self, shown, span, table};
use crate::wire;

pub fn run(access: &Access, what: &Override, json: bool) -> Result<Outcome, Failure> {
    match what {
        Override::Set {
            key,
            policy,
            what,
            lasting,
            note,
        } => {
            let mut command = redis::cmd("RL.OVERRIDE");
            command.arg("SET").arg(key).arg(policy);
            // Words may come quoted as one: 'SCALE 5 1'.
            let words = what.iter().flat_map(|word| word.split_ascii_whitespace());
            command.arg(words.collect::<Vec<_>>());
            if let Some(lasting) = lasting {
                command.arg("EX").arg(lasting);
            }
            if let Some(note) = note {
                command.arg("NOTE").arg(note);
            }
            access.call::<()>(&command)?;
            get(access, key, json)
        }
        Override::Get { key } => get(access, key, json),
        Override::Del { key, policy } => {
            let mut command = redis::cmd("RL.OVERRIDE");
            let removed: i64 = access.call(command.arg("DEL").arg(key).arg(policy))?;
            if json {
                output::print_json(&json!({ "removed": removed }))?;
            } else if removed == 0 {
                output::print("there is no such override\n")?;
            } else {
                output::print("removed\n")?;
            }
            Ok(if removed == 0 {
                Outcome::No
            } else {
                Outcome::Well
            })
        }
    }
}

fn get(access: &Access, key: &str, json: bool) -> Result<Outcome, Failure> {
    let mut command = redis::cmd("RL.OVERRIDE");
    let all: Vec<wire::Override> = access.call(command.arg("GET").arg(key))?;
    if json {
        output::print_json(&all)?;
    } else if all.is_empty() {
        output::print("none\n")?;
    } else {
        let rows: Vec<_> = all.iter().map(row).collect();
        output::print(&table(&["policy", "override", "ends in", "note"], &rows))?;
    }
    Ok(Outcome::Well)
}

fn row(one: &wire::Override) -> Vec<String> {
    let ends = u64::try_from(one.ends_in_ms).map_or_else(|_| "never".to_owned(), span);
    vec![one.policy.clone(), one.what.clone(), ends, shown(&one.note)]
}
