//! `rl check KEY POLICY [COST] [options]`

use std::time::Duration;

use rl_client::commands::{self, BriefDecision, OverrideAction, PolicyRule, TypedCmd};
use rl_client::{DecidedBy, Decision, Limit};
use rl_core::Scale;
use rl_core::policy::Rules;
use serde_json::json;

use crate::Exit;
use crate::args::{CallArgs, Check};
use crate::failure::Failure;
use crate::output::{self, wait};
use crate::topology::{Access, NodeConnection};

pub fn run(access: &Access, call: &Check, json: bool) -> Result<Exit, Failure> {
    let (mode, options) = (call.options.mode(), call.options.options());
    let (key, policy) = (&*call.key, &*call.policy);
    if call.options.brief {
        let limit = Limit::policy(policy);
        let command = commands::check_limit_brief(key, &limit, call.cost, options);
        return print_brief(access, &command, mode, json);
    }
    let (decision, mut node) =
        access.call(&commands::check_with(key, policy, call.cost, options))?;
    let limit = deciding_limit(&mut node, key, policy, &decision);
    if json {
        output::print_json(&json!({
            "key": key,
            "policy": policy,
            "mode": mode,
            "allowed": decision.allowed,
            "allowed_calls": decision.allowed_calls,
            "limit": decision.limit,
            "remaining": decision.remaining,
            "retry_after_ms": decision.retry_after.map(|wait| wait.as_millis() as u64),
            "reset_after_ms": decision.reset_after.as_millis() as u64,
            "limit_index": decision.decided_by.index(),
            "decided_by": limit,
        }))?;
    } else {
        let verdict = verdict(decision.allowed_calls, &call.options);
        output::print(&describe(&decision, &verdict, limit.as_deref()))?;
    }
    Ok(exit(decision.allowed))
}

pub(super) const fn exit(allowed: bool) -> Exit {
    match allowed {
        true => Exit::Success,
        false => Exit::Negative,
    }
}

/// The outcome in words: `allowed`, or `allowed 64 calls` if the number of calls was given. It is not the outcome that the
/// server counts: the reply does not say whether the call exceeded the limit.
pub(super) fn verdict(allowed_calls: u64, options: &CallArgs) -> String {
    let word = match (allowed_calls, options.force) {
        (0, _) => return "denied".to_owned(),
        (_, true) => "forced",
        (_, false) => "allowed",
    };
    match (options.times, allowed_calls) {
        (None, _) => word.to_owned(),
        (Some(_), 1) => format!("{word} 1 call"),
        (Some(_), calls) => format!("{word} {calls} calls"),
    }
}

/// Makes a call with BRIEF, and prints its reply.
pub(super) fn print_brief(
    access: &Access,
    call: &TypedCmd<BriefDecision>,
    mode: &str,
    json: bool,
) -> Result<Exit, Failure> {
    let (decision, _) = access.call(call)?;
    let (allowed, reply) = (decision.is_allowed(), decision.as_integer());
    if json {
        output::print_json(&json!({ "mode": mode, "allowed": allowed, "reply": reply }))?;
    } else {
        output::print(&format!("{reply}\n"))?;
    }
    Ok(exit(allowed))
}

/// The limit that decided, as text: `SLIDE 100 1m`, or `BLOCK` or `ALLOW` for an override. `None` if it cannot be read, or
/// has changed since.
fn deciding_limit(
    node: &mut NodeConnection,
    key: &str,
    policy: &str,
    decision: &Decision,
) -> Option<String> {
    let overrides = node.query(&commands::override_get(key)).ok()?;
    let own = overrides.into_iter().find(|own| own.policy == policy);
    let DecidedBy::PolicyLimit(index) = decision.decided_by else {
        return own.map(|own| own.action);
    };
    let action = own.and_then(|own| own.action.parse().ok());
    let rule = match action {
        Some(OverrideAction::Limits(rules)) => rules.get(index)?.clone(),
        action => {
            let policy = node.query(&commands::policy_get(policy)).ok()??;
            let rule = policy.rules.get(index)?;
            match action {
                Some(OverrideAction::Scale { num, den }) => scaled(rule, num, den)?,
                _ => rule.clone(),
            }
        }
    };
    (rule.limit.limit() == decision.limit).then(|| rule.to_string())
}

/// Scales a limit as the server does.
fn scaled(rule: &PolicyRule, num: u64, den: u64) -> Option<PolicyRule> {
    let rules: Rules = rule.to_string().parse().ok()?;
    let rules = rules.scaled(Scale::new(num, den).ok()?);
    rules.as_slice().first()?.to_string().parse().ok()
}

fn describe(decision: &Decision, verdict: &str, limit: Option<&str>) -> String {
    let DecidedBy::PolicyLimit(index) = decision.decided_by else {
        let action = limit.map_or(String::new(), |action| format!(" ({action})"));
        return match decision.allowed {
            true => format!("{verdict} by an override{action}\n"),
            false => format!(
                "{verdict} by an override{action}: {}\n",
                retry(decision.retry_after)
            ),
        };
    };
    let limit = limit.map_or_else(|| format!("limit {index} of the policy"), str::to_owned);
    describe_limit(decision, verdict, &limit)
}

/// When a denied call may be repeated.
pub(super) fn retry(after: Option<Duration>) -> String {
    match after.map(|wait| wait.as_millis() as u64) {
        Some(ms) => format!("retry in {} ({ms} ms)", wait(ms)),
        None => "it can never be allowed".to_owned(),
    }
}

/// The decision of one limit in words.
pub(super) fn describe_limit(decision: &Decision, verdict: &str, limit: &str) -> String {
    let wait_ms = decision.retry_after.map(|wait| wait.as_millis() as u64);
    let left = format!(
        "{} of {} left ({limit})",
        decision.remaining, decision.limit
    );
    match (decision.allowed, wait_ms) {
        (true, None | Some(0)) => {
            let reset = wait(decision.reset_after.as_millis() as u64);
            format!("{verdict}: {left}; fully reset in {reset}\n")
        }
        // LEAK allows the call, and says when it may proceed.
        (true, Some(ms)) => format!("{verdict} after a delay of {ms} ms: {left}\n"),
        (false, _) => format!("{verdict}: {left}; {}\n", retry(decision.retry_after)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use redis::{FromRedisValue, Value};
    use rl_client::MINUTE;

    fn decision(allowed: bool, retry_after_ms: i64, index: i64) -> Decision {
        let integers = [i64::from(allowed), 100, 7, retry_after_ms, 90_001, index];
        let reply = Value::Array(integers.map(Value::Int).to_vec());
        Decision::from_redis_value(reply).unwrap()
    }

    #[test]
    fn a_decision_in_words() {
        let text = Some("SLIDE 100 1m");
        assert_eq!(
            describe(&decision(true, 0, 1), "allowed", text),
            "allowed: 7 of 100 left (SLIDE 100 1m); fully reset in 1m 31s\n"
        );
        assert_eq!(
            describe(&decision(true, 0, 1), "forced", None),
            "forced: 7 of 100 left (limit 1 of the policy); fully reset in 1m 31s\n"
        );
        assert_eq!(
            describe(&decision(true, 40, 0), "allowed", text),
            "allowed after a delay of 40 ms: 7 of 100 left (SLIDE 100 1m)\n"
        );
        assert_eq!(
            describe(&decision(false, 1501, 0), "denied", text),
            "denied: 7 of 100 left (SLIDE 100 1m); retry in 1.6s (1501 ms)\n"
        );
        assert_eq!(
            describe(&decision(false, -1, -1), "denied", Some("BLOCK")),
            "denied by an override (BLOCK): it can never be allowed\n"
        );
        assert_eq!(
            describe(&decision(true, 0, -1), "allowed", Some("ALLOW")),
            "allowed by an override (ALLOW)\n"
        );
    }

    #[test]
    fn a_scaled_limit() {
        let rule = PolicyRule::with_fixed_cost(Limit::slide(100, MINUTE), 2);
        let scaled = scaled(&rule, 5, 2).unwrap().to_string();
        assert_eq!(scaled, "SLIDE 250 1m COST 2");
    }
}
