//! Headers that tell clients about their limits.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use super::RequestLimits;
use crate::{Decision, Limit};

/// Adds the headers that describe a decision.
pub(super) fn describe(headers: &mut HeaderMap, rules: &RequestLimits, decision: &Decision) {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let reset = whole_seconds(unix.saturating_add(decision.reset_after));
    let number =
        |name: &'static str, value: u64| (HeaderName::from_static(name), HeaderValue::from(value));
    headers.extend([
        number("x-ratelimit-limit", decision.limit),
        number("x-ratelimit-remaining", decision.remaining),
        number("x-ratelimit-reset", reset),
    ]);

    let decided = rules.decided(decision);
    let name = decided.map_or("", |rule| &rule.name);
    let mut policy = String::new();
    for rule in &rules.rules {
        let of_policy = matches!(rule.limit, Limit::Policy { .. });
        // For a policy, only the limit that decided is known, and not its window.
        if of_policy && !decided.is_some_and(|decided| std::ptr::eq(decided, rule)) {
            continue;
        }
        let limit = if of_policy {
            decision.limit
        } else {
            rule.limit.limit()
        };
        let comma = if policy.is_empty() { "" } else { ", " };
        let _ = write!(policy, "{comma}{};q={limit}", quoted(&rule.name));
        let _ = match rule.limit {
            Limit::Policy { .. } => Ok(()),
            Limit::Lease { .. } => write!(policy, ";qu=\"concurrent-requests\""),
            Limit::Slide { .. }
            | Limit::Bucket { .. }
            | Limit::Fixed { .. }
            | Limit::Exact { .. }
            | Limit::Leak { .. } => {
                write!(policy, ";w={}", whole_seconds(rule.limit.refill_time()))
            }
        };
    }
    let now = format!(
        "{};r={};t={}",
        quoted(name),
        decision.remaining,
        whole_seconds(decision.reset_after)
    );
    for (name, value) in [("ratelimit-policy", policy), ("ratelimit", now)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Rounds up, so that a retry is not too early.
pub(super) fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// A string in a structured field: printable ASCII only.
fn quoted(name: &str) -> String {
    let printable = name.chars().filter(|c| matches!(c, ' '..='~'));
    let escaped = printable.flat_map(|c| {
        matches!(c, '"' | '\\')
            .then_some('\\')
            .into_iter()
            .chain([c])
    });
    format!("\"{}\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up() {
        assert_eq!(whole_seconds(Duration::ZERO), 0);
        assert_eq!(whole_seconds(Duration::from_millis(1)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(7)), 7);
        assert_eq!(whole_seconds(Duration::from_millis(7001)), 8);
    }

    #[test]
    fn names_cannot_break_out_of_headers() {
        assert_eq!(quoted("a\"b\\c\r\nX: é"), r#""a\"b\\cX: ""#);
    }
}
