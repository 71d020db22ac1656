//! `rl override set | get | del`

use std::time::Duration;

use rl_client::commands::{self, NewOverride, OverrideAction, OverrideRecord};
use rl_core::Error;
use rl_core::syntax::parse_duration_us;
use serde_json::json;

use crate::Exit;
use crate::args::Override;
use crate::failure::Failure;
use crate::output::{self, shown, table, wait};
use crate::topology::Access;

pub fn run(access: &Access, command: &Override, json: bool) -> Result<Exit, Failure> {
    match command {
        Override::Set {
            key,
            policy,
            action,
            expires_in,
            note,
        } => {
            let new = new_override(action, expires_in.as_deref(), note.as_deref())?;
            access.call(&commands::override_set(key, policy, &new))?;
            show(access, key, json)?;
            Ok(Exit::Success)
        }
        Override::Get { key } => match show(access, key, json)? {
            0 => Ok(Exit::Negative),
            _ => Ok(Exit::Success),
        },
        Override::Del { key, policy } => {
            let (removed, _) = access.call(&commands::override_del(key, policy))?;
            if json {
                output::print_json(&json!({ "key": key, "policy": policy, "removed": removed }))?;
            } else if removed {
                output::print("removed\n")?;
            } else {
                output::print("there is no such override\n")?;
            }
            Ok(if removed {
                Exit::Success
            } else {
                Exit::Negative
            })
        }
    }
}

fn new_override(
    action: &[String],
    expires_in: Option<&str>,
    note: Option<&str>,
) -> Result<NewOverride, Failure> {
    // The words may be quoted as one: 'SCALE 5 1'.
    let action: OverrideAction = action.join(" ").parse().map_err(|error| {
        Failure::new(
            format!("{error}"),
            "use SCALE num den, BLOCK, ALLOW, or limits such as SLIDE 500 1m",
        )
    })?;
    let mut new = NewOverride::new(action);
    if let Some(text) = expires_in {
        let us = parse_duration_us(Some(text.as_bytes()), Error::OverrideExpiry);
        let us = us.map_err(|error| Failure::new(error.reason(), ""))?;
        new = new.expires_in(Duration::from_micros(us));
    }
    Ok(match note {
        Some(note) => new.note(note),
        None => new,
    })
}

/// Shows the overrides of a key, and returns how many there are.
fn show(access: &Access, key: &str, json: bool) -> Result<usize, Failure> {
    let (all, _) = access.call(&commands::override_get(key))?;
    if json {
        output::print_json(&json!({ "key": key, "overrides": all }))?;
    } else if all.is_empty() {
        output::print("none\n")?;
    } else {
        let rows: Vec<_> = all.iter().map(row).collect();
        output::print(&table(&["policy", "action", "expires in", "note"], &rows))?;
    }
    Ok(all.len())
}

fn row(record: &OverrideRecord) -> Vec<String> {
    vec![
        record.policy.clone(),
        record.action.clone(),
        record.expires_in_ms.map_or("never".to_owned(), wait),
        shown(&record.note),
    ]
}
