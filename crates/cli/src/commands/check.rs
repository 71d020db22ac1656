//! `rl check KEY POLICY [COST] [--peek | --force]`

use crate::Outcome;
use crate::failure::Failure;
use crate::fleet::Access;
use crate::output::{self, span};
use crate::wire::Check;

pub fn option(peek: bool, force: bool) -> Option<&'static str> {
    match (peek, force) {
        (true, _) => Some("PEEK"),
        (_, true) => Some("FORCE"),
        _ => None,
    }
}

pub fn run(
    access: &Access,
    key: &str,
    policy: &str,
    cost: u64,
    option: Option<&str>,
    json: bool,
) -> Result<Outcome, Failure> {
    let mut command = redis::cmd("RL.CHECK");
    command.arg(key).arg(policy).arg(cost).arg(option);
    let check: Check = access.call(&command)?;
    if json {
        output::print_json(&check)?;
    } else {
        output::print(&told(&check))?;
    }
    Ok(if check.allowed {
        Outcome::Well
    } else {
        Outcome::No
    })
}

fn told(check: &Check) -> String {
    let by = match check.index {
        -1 => "an override".to_owned(),
        index => format!("limit {index} of the policy"),
    };
    let wait = match u64::try_from(check.retry_after_ms) {
        Ok(ms) => format!("retry in {} ({ms} ms)", span(ms)),
        Err(_) => "it can never pass".to_owned(),
    };
    let reset = span(check.reset_after_ms.max(0) as u64);
    match (check.allowed, check.retry_after_ms) {
        (true, 0) => format!(
            "allowed: {} of {} left, by {by}; as good as new in {reset}\n",
            check.remaining, check.limit
        ),
        // LEAK admits, and says when to go.
        (true, ms) => format!(
            "allowed after a delay of {ms} ms: {} of {} left, by {by}\n",
            check.remaining, check.limit
        ),
        (false, _) if check.index == -1 => format!("denied by {by}: {wait}\n"),
        (false, _) => format!(
            "denied by {by}: {} of {} left; {wait}\n",
            check.remaining, check.limit
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(allowed: bool, retry_after_ms: i64, index: i64) -> Check {
        Check {
            allowed,
            limit: 100,
            remaining: 7,
            retry_after_ms,
            reset_after_ms: 90_000,
            index,
        }
    }

    #[test]
    fn answers_are_told_in_words() {
        assert_eq!(
            told(&check(true, 0, 1)),
            "allowed: 7 of 100 left, by limit 1 of the policy; as good as new in 1m 30s\n"
        );
        assert!(told(&check(true, 40, 0)).contains("delay of 40 ms"));
        assert!(told(&check(false, 1500, 0)).ends_with("retry in 1.5s (1500 ms)\n"));
        assert_eq!(
            told(&check(false, -1, -1)),
            "denied by an override: it can never pass\n"
        );
    }
}
