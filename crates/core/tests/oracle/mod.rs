//! A naive model of the contract: exact rationals, waits found by search. Slow, and unlike the code.

pub mod calendar;
mod usage;

use num_bigint::BigInt;
use rl_core::{Decision, MAX_WAIT_MS, Mode, NEVER};

use crate::key::Rule;
use usage::{BigRational, Usage};

/// What one key has used, and when it is gone (BUCKET and LEAK; Unix time in microseconds).
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    usage: Usage,
    gone: i128,
    /// Keys are gone on the even second of every half minute that their first call chose.
    phase: i128,
    /// No key is kept for longer than 68 years.
    cut_short: bool,
}

/// 68 years.
const LONGEST_S: i128 = (1 << 31) - 1;

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

        // A key must not be gone before its debt is: a lower rate than it was written at keeps it longer. One that is
        // gone after 68 years at the latest need only outlive the wait that is stated.
        let wait = i128::from(decision.retry_after_ms);
        let early = match self.cut_short {
            false => seen.used(rule, now.max(self.gone)) > whole(0),
            true => (1..LONGEST_S * 1000).contains(&wait) && now + wait * 1000 > self.gone,
        };
        let early = rule.drains() && early;
        let write = cost > 0 && (allowed || back || early);
        if write {
            if matches!(self.usage, Usage::Empty) {
                self.phase = now % 15;
            }
            self.usage = if allowed {
                after
            } else {
                seen.anchored(rule, now)
            };
            if rule.drains() {
                self.keep_until_drained(rule, now);
            }
        }
        (decision, write)
    }

    fn keep_until_drained(&mut self, rule: Rule, now: i128) {
        let is_drained = |at: i128| self.usage.used(rule, at) == whole(0);
        self.cut_short = !is_drained(now + LONGEST_S * 1_000_000);
        let drained = first(LONGEST_S as u64 * 1_000_000, |us| {
            is_drained(now + i128::from(us))
        });
        // The expiry is on a grid: one step after the first moment not before. Two steps are at most a quarter of the time in
        // which a full bucket drains.
        let full_ms = match rule {
            Rule::Bucket(capacity, rate, period) | Rule::Leak(capacity, rate, period) => {
                u128::from(capacity) * u128::from(period) / u128::from(rate)
            }
            _ => 0,
        };
        let step_s = match full_ms / 1000 {
            0..960 => 15,
            960..7680 => 120,
            _ => 960,
        };
        let first_s = (now + i128::from(drained) + 999_999).div_euclid(1_000_000);
        let mut grid_s = first_s..first_s + step_s;
        let on_grid = grid_s.find(|second| second % step_s == step_s / 15 * self.phase);
        self.gone = (on_grid.unwrap() + step_s) * 1_000_000;
    }
}

fn whole(units: u64) -> BigRational {
    BigRational::from(BigInt::from(units))
}

/// The fewest milliseconds from now after which `passed`; at most the longest wait that is stated.
fn first_ms(now: i128, passed: impl Fn(i128) -> bool) -> u64 {
    first(MAX_WAIT_MS, |ms| passed(now + i128::from(ms) * 1000))
}

/// The lowest number that passes, as all greater ones do; at most `high`.
fn first(mut high: u64, passes: impl Fn(u64) -> bool) -> u64 {
    let mut low = 0;
    while low < high {
        let middle = (low + high) / 2;
        if passes(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}
