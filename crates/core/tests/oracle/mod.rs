//! A naive model of the contract: exact rationals, waits found by search. Slow, and unlike the code.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::BigRational;
use rl_core::{Decision, MAX_WAIT_MS, Mode, NEVER};

use crate::key::Rule;

/// What one key has used.
#[derive(Clone, Debug, Default)]
pub enum Oracle {
    #[default]
    Empty,
    /// Units by the number of their window; window 0 begins at `start`.
    Windows {
        start: i128,
        width: i128,
        counts: BTreeMap<i128, BigInt>,
    },
    /// Tokens owed at a moment, and the second in which the key is gone.
    Debt {
        stamp: i128,
        tokens: BigRational,
        gone_s: i128,
    },
}

use Oracle::{Debt, Empty, Windows};

impl Oracle {
    /// Decides a call and keeps what it leaves behind; the flag says whether that was a write.
    pub fn call(&mut self, rule: Rule, now_us: u64, cost: u64, mode: Mode) -> (Decision, bool) {
        let now = i128::from(now_us);
        let (size, price) = (whole(rule.size()), whole(cost));
        let back = self.is_ahead_of(now_us);
        let seen = if back {
            self.anchored(rule, now)
        } else {
            self.clone()
        };

        let fits = |at: i128| seen.used(rule, at) + &price <= size;
        let allowed = mode == Mode::Force || fits(now);
        let after = if allowed && cost > 0 {
            seen.spent(rule, now, cost)
        } else {
            seen.clone()
        };
        let left = (&size - after.used(rule, now)).floor().to_integer();
        let decision = Decision {
            allowed,
            limit: rule.size(),
            remaining: u64::try_from(left).unwrap_or(0),
            retry_after_ms: match allowed {
                true => 0,
                false if price > size => NEVER,
                false => first_ms(now, fits) as i64,
            },
            reset_after_ms: first_ms(now, |at| after.used(rule, at) == whole(0)),
        };
        // A key must not be gone before its debt is: a lower rate than it was written at keeps it longer.
        let full_ms = (now + 999).div_euclid(1000) + i128::from(decision.reset_after_ms);
        let longest = now.div_euclid(1_000_000) + (1 << 31) - 1;
        let until = (full_ms + 999).div_euclid(1000).min(longest);
        let owing = seen.used(rule, now) > whole(0);
        let early = matches!(&seen, Debt { gone_s, .. } if owing && until > gone_s + 1);
        let write = cost > 0 && (allowed || back || early);
        if write {
            *self = if allowed {
                after
            } else {
                seen.anchored(rule, now)
            };
            if let Debt { gone_s, .. } = self {
                *gone_s = until;
            }
        }
        (decision, write)
    }

    /// Whether the clock stepped back behind what is kept.
    fn is_ahead_of(&self, now_us: u64) -> bool {
        let begun = match self {
            Empty => return false,
            Windows {
                start,
                width,
                counts,
            } => start + latest(counts) * width,
            Debt { stamp, .. } => *stamp,
        };
        i128::from(now_us) < begun
    }

    /// Units in use at a moment.
    fn used(&self, rule: Rule, at: i128) -> BigRational {
        match self {
            Empty => whole(0),
            Windows {
                start,
                width,
                counts,
            } => {
                let (number, into) = ((at - start).div_euclid(*width), (at - start) % width);
                let count = |number| counts.get(&number).cloned().unwrap_or_default();
                let fading = BigRational::new((width - into).into(), (*width).into());
                BigRational::from(count(number)) + BigRational::from(count(number - 1)) * fading
            }
            Debt { stamp, tokens, .. } => {
                let period = whole(rule.span_us());
                let elapsed = BigRational::from(BigInt::from((at - stamp).max(0)));
                let owed = tokens - elapsed * whole(rule.flow()) / &period;
                // Debt in a period has its parts; only a changed period leaves anything to round.
                (owed * &period).ceil().max(whole(0)) / &period
            }
        }
    }

    /// The same usage, counted as if it began now.
    fn anchored(&self, rule: Rule, now: i128) -> Self {
        match self {
            Empty => Empty,
            Windows { width, counts, .. } => Windows {
                start: now,
                width: *width,
                counts: counts
                    .iter()
                    .map(|(number, count)| (number - latest(counts), count.clone()))
                    .collect(),
            },
            Debt { gone_s, .. } => Debt {
                stamp: now,
                tokens: self.used(rule, now),
                gone_s: *gone_s,
            },
        }
    }

    fn spent(&self, rule: Rule, now: i128, cost: u64) -> Self {
        let used = self.used(rule, now);
        if let Rule::Bucket(..) = rule {
            return Debt {
                stamp: now,
                tokens: used + whole(cost),
                gone_s: 0,
            };
        }
        let window = i128::from(rule.span_us());
        match self.clone() {
            Windows {
                start,
                width,
                mut counts,
            } if width == window && used > whole(0) => {
                *counts.entry((now - start) / width).or_default() += cost;
                Windows {
                    start,
                    width,
                    counts,
                }
            }
            // Idle until now, or another window: begin here, with what is in use as the previous count.
            _ => Windows {
                start: now,
                width: window,
                counts: [(-1, used.ceil().to_integer()), (0, cost.into())].into(),
            },
        }
    }
}

fn whole(units: u64) -> BigRational {
    BigRational::from(BigInt::from(units))
}

fn latest(counts: &BTreeMap<i128, BigInt>) -> i128 {
    counts.keys().copied().max().unwrap_or_default()
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
