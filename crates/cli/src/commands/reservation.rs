//! `rl reserve ID TTL KEY SPEC…` and `rl settle ID CALLS KEY ACTUAL…`

use std::time::Duration;

use rl_client::commands::{self, Spec};
use rl_core::Error;
use rl_core::syntax::parse_duration_us;
use serde_json::json;

use crate::Exit;
use crate::args::{Reserve, Settle};
use crate::failure::Failure;
use crate::output::{self, shown, wait};
use crate::topology::Access;

pub fn reserve(access: &Access, call: &Reserve, json: bool) -> Result<Exit, Failure> {
    let limits = pairs(&call.limits, "a key has no limit")?;
    let limits: Vec<_> = limits.map(|(key, spec)| (key, Spec::text(spec))).collect();
    let command = commands::reserve_with(&*call.id, ttl(&call.ttl)?, &limits, call.options());
    let (reservation, _) = access.call(&command)?;
    let retry_after_ms = reservation.retry_after.map(|wait| wait.as_millis() as u64);
    let spend_ms = reservation.spend_within.map(|time| time.as_millis() as u64);
    let keys = call.limits.iter().step_by(2);
    if json {
        let limits = keys.zip(&reservation.decisions).map(|(key, decision)| {
            json!({
                "key": key,
                "allowed": decision.allowed,
                "limit": decision.limit,
                "remaining": decision.remaining,
                "retry_after_ms": decision.retry_after.map(|wait| wait.as_millis() as u64),
                "reset_after_ms": decision.reset_after.as_millis() as u64,
            })
        });
        output::print_json(&json!({
            "id": call.id,
            "allowed_calls": reservation.allowed_calls,
            "retry_after_ms": retry_after_ms,
            "spend_ms": spend_ms,
            "limits": limits.collect::<Vec<_>>(),
        }))?;
    } else {
        let verdict = match (reservation.allowed_calls, retry_after_ms, spend_ms) {
            (0, None, _) => "denied: it can never be allowed\n".to_owned(),
            (0, Some(ms), _) => format!("denied: retry in {} ({ms} ms)\n", wait(ms)),
            (calls, _, None) => format!("reserved {calls}: settle it when the cost is known\n"),
            (calls, _, Some(ms)) => {
                format!(
                    "reserved {calls}: spend it within {}\n",
                    output::duration(ms)
                )
            }
        };
        let rows = keys.zip(&reservation.decisions).map(|(key, decision)| {
            let numbers = [decision.remaining, decision.limit].map(|number| number.to_string());
            [vec![shown(key)], numbers.to_vec()].concat()
        });
        let table = output::table(&["KEY", ">LEFT", ">LIMIT"], &rows.collect::<Vec<_>>());
        output::print(&format!("{verdict}{table}"))?;
    }
    Ok(match reservation.is_allowed() {
        true => Exit::Success,
        false => Exit::Negative,
    })
}

pub fn settle(access: &Access, call: &Settle, json: bool) -> Result<Exit, Failure> {
    let usage = pairs(&call.usage, "a key has no number of units")?;
    let usage = usage.map(|(key, units)| match units.parse() {
        Ok(units) => Ok((key, units)),
        Err(_) => Err(Failure::new(
            format!("{} is not a number of units", shown(units)),
            "write an integer after each key: rl settle ID 1 {a}:tpm 640",
        )),
    });
    let usage: Vec<(&str, u64)> = usage.collect::<Result<_, _>>()?;
    let (charged, _) = access.call(&commands::settle(&*call.id, call.calls, &usage))?;
    let keys = call.usage.iter().step_by(2);
    let each = charged.iter().flatten();
    if json {
        let charged_keys = keys
            .zip(each)
            .map(|(key, units)| json!({"key": key, "charged": units}));
        output::print_json(&json!({
            "id": call.id,
            "found": charged.is_some(),
            "keys": charged_keys.collect::<Vec<_>>(),
        }))?;
    } else if charged.is_none() {
        output::print("no such reservation: the id is closed for 60 s\n")?;
    } else {
        let rows = keys
            .zip(each)
            .map(|(key, units)| vec![shown(key), units.to_string()]);
        output::print(&output::table(
            &["KEY", ">CHARGED"],
            &rows.collect::<Vec<_>>(),
        ))?;
    }
    Ok(match charged {
        Some(_) => Exit::Success,
        None => Exit::Negative,
    })
}

/// Keys, each with what follows it.
fn pairs<'a>(
    args: &'a [String],
    problem: &str,
) -> Result<impl Iterator<Item = (&'a str, &'a str)> + use<'a>, Failure> {
    let pairs = args.chunks_exact(2);
    match pairs.remainder() {
        [] => Ok(pairs.map(|pair| (&*pair[0], &*pair[1]))),
        _ => Err(Failure::new(problem, "write a key and its value in turn")),
    }
}

fn ttl(text: &str) -> Result<Duration, Failure> {
    let us = parse_duration_us(Some(text.as_bytes()), Error::Ttl);
    us.map(Duration::from_micros)
        .map_err(|error| Failure::new(error.reason(), "write it like 5m"))
}
