//! `rl multi KEY LIMIT [KEY LIMIT …] [options]` and `rl first KEY LIMIT [KEY LIMIT …] [options]`

use rl_client::Decision;
use rl_client::commands::{self, Spec};
use serde_json::{Value, json};

use super::check::{describe_limit, exit, print_brief, retry, verdict};
use crate::Exit;
use crate::args::Several;
use crate::failure::Failure;
use crate::output;
use crate::topology::Access;

pub fn run_multi(access: &Access, call: &Several, json: bool) -> Result<Exit, Failure> {
    let limits = limits(call)?;
    let (mode, options) = (call.options.mode(), call.options.options());
    if call.options.brief {
        let command = commands::multi_brief(&limits, options);
        return print_brief(access, &command, mode, json);
    }
    let (multi, _) = access.call(&commands::multi_with(&limits, options))?;
    let each = || multi.decisions.iter().zip(call.limits.chunks_exact(2));
    if json {
        let limits: Vec<Value> = each()
            .map(|(decision, pair)| limit_json(decision, pair))
            .collect();
        output::print_json(&json!({
            "mode": mode,
            "allowed": multi.allowed,
            "allowed_calls": multi.allowed_calls,
            "retry_after_ms": multi.retry_after.map(|wait| wait.as_millis() as u64),
            "limits": limits,
        }))?;
    } else {
        let mut text = verdict(multi.allowed_calls, &call.options);
        if !multi.allowed {
            text += &format!(": {}", retry(multi.retry_after));
        }
        text.push('\n');
        for (decision, pair) in each() {
            let own = verdict(decision.allowed_calls, &call.options);
            text += &format!("{}: {}", pair[0], describe_limit(decision, &own, &pair[1]));
        }
        output::print(&text)?;
    }
    Ok(exit(multi.allowed))
}

pub fn run_first(access: &Access, call: &Several, json: bool) -> Result<Exit, Failure> {
    let limits = limits(call)?;
    let (mode, options) = (call.options.mode(), call.options.options());
    if call.options.brief {
        let command = commands::first_brief(&limits, options);
        return print_brief(access, &command, mode, json);
    }
    let (first, _) = access.call(&commands::first_with(&limits, options))?;
    let (index, decision) = (first.index, first.decision);
    let pair = call.limits.chunks_exact(2).nth(index).unwrap_or(&[]);
    if json {
        let mut reply = limit_json(&decision, pair);
        reply["mode"] = json!(mode);
        reply["index"] = json!(index);
        output::print_json(&reply)?;
    } else if let [key, limit] = pair {
        let verdict = verdict(decision.allowed_calls, &call.options);
        let text = describe_limit(&decision, &verdict, limit);
        output::print(&format!("{key}: {text}"))?;
    }
    Ok(exit(decision.allowed))
}

/// The keys and their limits, which the server reads.
fn limits(call: &Several) -> Result<Vec<(&str, Spec)>, Failure> {
    let pairs = call.limits.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(Failure::new(
            "a key has no limit",
            "write each limit as one argument, in quotes: user:42 'SLIDE 100 1m'",
        ));
    }
    Ok(pairs
        .map(|pair| (&*pair[0], Spec::text(&*pair[1])))
        .collect())
}

fn limit_json(decision: &Decision, pair: &[String]) -> Value {
    json!({
        "key": pair.first(),
        "spec": pair.get(1),
        "allowed": decision.allowed,
        "allowed_calls": decision.allowed_calls,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "retry_after_ms": decision.retry_after.map(|wait| wait.as_millis() as u64),
        "reset_after_ms": decision.reset_after.as_millis() as u64,
    })
}
