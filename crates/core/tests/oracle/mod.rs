//! A naive model of the contract: exact rationals, waits found by search. Slow, and unlike the code.

mod usage;

use num_bigint::BigInt;
use rl_core::{Decision, MAX_WAIT_MS, Mode, NEVER};

use crate::key::Rule;
use usage::{BigRational, Usage};

/// What one key has used, and the second in which it is gone.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    usage: Usage,
    gone_s: i128,
    /// No key is kept for longer than 68 years.
    cut_short: bool,
}

impl Oracle {
    /// Decides a call and keeps what it leaves behind; the flag says whether that was a write.
    pub fn call(&mut self, rule: Rule, now_us: u64, cost: u64, mode: Mode) -> (Decision, bool) {
        let now = i128::from(now_us);
        let (size, price) = (whole(rule.size()), whole(cost));
        let back = self.usage.is_ahead_of(now);
        let seen = if back {
            self.usage.anchored(rule, now)
        } else {
            self.usage.clone()
        };

        let fits = |at: i128| seen.in_the_way(rule, cost, at) + &price <= size;
        let allowed = mode == Mode::Force || fits(now);
        let after = if allowed && cost > 0 {
            seen.spent(rule, now, cost)
        } else {
            seen.clone()
        };
        let left = (&size - after.used(rule, now)).floor().to_integer();
        let decision = Decision {
            index: 0,
            allowed,
            limit: rule.size(),
            remaining: u64::try_from(left).unwrap_or(0),
            retry_after_ms: match rule {
                // In a queue, an admitted call waits for what is ahead of it.
                Rule::Leak(..) if allowed => {
                    first_ms(now, |at| seen.used(rule, at) == whole(0)) as i64
                }
                _ if allowed => 0,
                _ if price > size => NEVER,
                _ => first_ms(now, fits) as i64,
            },
            reset_after_ms: first_ms(now, |at| after.used(rule, at) == whole(0)),
        };
        // A key must not be gone before its debt is: a lower rate than it was written at keeps it longer.
        let full_ms = (now + 999).div_euclid(1000) + i128::from(decision.reset_after_ms);
        let longest = now.div_euclid(1_000_000) + (1 << 31) - 1;
        let until = (full_ms + 999).div_euclid(1000).min(longest);
        // One that is gone after 68 years at the latest need only outlive the wait that is stated.
        let gone = self.gone_s * 1_000_000;
        let wait = i128::from(decision.retry_after_ms);
        let early = match self.cut_short {
            false => seen.used(rule, now.max(gone)) > whole(0),
            true => (1..((1 << 31) - 1) * 1000).contains(&wait) && now + wait * 1000 > gone,
        };
        let early = rule.drains() && early;
        let write = cost > 0 && (allowed || back || early);
        if write {
            self.usage = if allowed {
                after
            } else {
                seen.anchored(rule, now)
            };
            self.gone_s = until;
            self.cut_short = until == longest;
        }
        (decision, write)
    }
}

fn whole(units: u64) -> BigRational {
    BigRational::from(BigInt::from(units))
}

/// The fewest milliseconds from now after which `passed`; at most the longest wait that is stated.
fn first_ms(now: i128, passed: impl Fn(i128) -> bool) -> u64 {
    let (mut low, mut high) = (0, MAX_WAIT_MS);
    while low < high {
        let middle = (low + high) / 2;
        if passed(now + i128::from(middle) * 1000) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
