//! What each algorithm counts, written as plainly as possible.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use num_rational::Ratio;

use super::whole;
use crate::key::Rule;

pub type BigRational = Ratio<BigInt>;

#[derive(Clone, Debug, Default)]
pub enum Usage {
    #[default]
    Empty,
    /// SLIDE: units by the number of their part; part 0 begins at `start`, and `precision` make a window.
    Parts {
        start: i128,
        window: i128,
        precision: i128,
        counts: BTreeMap<i128, BigInt>,
    },
    /// BUCKET and LEAK: tokens owed at a moment.
    Debt { stamp: i128, tokens: BigRational },
    /// FIXED: units from `start` until `end`, in windows as `rule` has them.
    Window {
        rule: Rule,
        start: i128,
        end: i128,
        units: BigInt,
    },
    /// EXACT: when each unit was taken.
    Log(Vec<(i128, u64)>),
    /// LEASE: until when each holder has how much, as of `stamp`.
    Leases {
        stamp: i128,
        holders: BTreeMap<usize, (i128, u64)>,
    },
}

use Usage::{Debt, Empty, Leases, Log, Parts, Window};

impl Usage {
    /// Whether the clock stepped back behind what is kept.
    pub fn is_ahead_of(&self, now: i128) -> bool {
        let begun = match self {
            Empty => return false,
            Parts {
                start,
                window,
                precision,
                counts,
            } => start + latest(counts) * part(*window, *precision),
            Debt { stamp, .. } | Leases { stamp, .. } => *stamp,
            Window { start, .. } => *start,
            Log(entries) => entries.iter().map(|&(at, _)| at).max().unwrap_or(now),
        };
        now < begun
    }

    /// Units in use at a moment.
    pub fn used(&self, rule: Rule, at: i128) -> BigRational {
        match self {
            Empty => whole(0),
            Parts {
                start,
                window,
                precision,
                counts,
            } => {
                let width = part(*window, *precision);
                let (number, into) = ((at - start).div_euclid(width), (at - start) % width);
                // Two counters estimate; sub-windows, on either side of a change, count in full.
                let estimate = *precision == 1 && matches!(rule, Rule::Slide(_, _, 1));
                let fading = match estimate {
                    true => BigRational::new((width - into).into(), width.into()),
                    false => whole(1),
                };
                let sum = |numbers| {
                    counts
                        .range(numbers)
                        .map(|(_, count)| count)
                        .sum::<BigInt>()
                };
                let oldest = number - precision;
                BigRational::from(sum(oldest + 1..number + 1))
                    + BigRational::from(sum(oldest..oldest + 1)) * fading
            }
            Debt { stamp, tokens } => {
                let period = whole(rule.span_us());
                let elapsed = BigRational::from(BigInt::from((at - stamp).max(0)));
                let owed = tokens - elapsed * whole(rule.flow()) / &period;
                // Debt in a period has its parts; only a changed period leaves anything to round.
                (owed * &period).ceil().max(whole(0)) / &period
            }
            Window {
                start, end, units, ..
            } if (*start..*end).contains(&at) => BigRational::from(units.clone()),
            Window { .. } => whole(0),
            Log(entries) => {
                let window = i128::from(rule.span_us());
                let counts = entries.iter().filter(|&&(taken, _)| at - taken < window);
                counts.map(|&(_, units)| whole(units)).sum()
            }
            Leases { holders, .. } => {
                let held = holders.values().filter(|&&(until, _)| at < until);
                held.map(|&(_, units)| whole(units)).sum()
            }
        }
    }

    /// Units that a call of `cost` has to fit in with: a holder that renews is not in its own way.
    pub fn in_the_way(&self, rule: Rule, cost: u64, at: i128) -> BigRational {
        let mut others = self.clone();
        if let (Rule::Lease(_, _, holder), Leases { holders, .. }) = (rule, &mut others)
            && cost > 0
        {
            holders.remove(&holder);
        }
        others.used(rule, at)
    }

    /// The same usage, counted as if it began now.
    pub fn anchored(&self, rule: Rule, now: i128) -> Self {
        match self.clone() {
            Empty => Empty,
            Parts {
                window,
                precision,
                counts,
                ..
            } => Parts {
                start: now,
                window,
                precision,
                counts: counts
                    .iter()
                    .map(|(number, count)| (number - latest(&counts), count.clone()))
                    .collect(),
            },
            Debt { .. } => Debt {
                stamp: now,
                tokens: self.used(rule, now),
            },
            Window { rule, units, .. } => window(rule, now, units),
            Log(mut entries) => {
                let last = entries.iter().map(|&(at, _)| at).max().unwrap_or(now);
                entries.iter_mut().for_each(|(at, _)| *at += now - last);
                Log(entries)
            }
            Leases { stamp, mut holders } => {
                holders.retain(|_, (until, _)| *until > stamp.max(now));
                let behind = (stamp - now).max(0);
                holders.values_mut().for_each(|(until, _)| *until -= behind);
                Leases {
                    stamp: now,
                    holders,
                }
            }
        }
    }

    pub fn spent(&self, rule: Rule, now: i128, cost: u64) -> Self {
        let used = self.used(rule, now);
        let span = i128::from(rule.span_us());
        match (rule, self.clone()) {
            (Rule::Bucket(..) | Rule::Leak(..), _) => Debt {
                stamp: now,
                tokens: used + whole(cost),
            },
            (Rule::Fixed(..) | Rule::Calendar(..), _) => {
                window(rule, now, used.to_integer() + cost)
            }
            (Rule::Exact(..), Log(mut entries)) => {
                entries.push((now, cost));
                Log(entries)
            }
            (Rule::Exact(..), _) => Log(vec![(now, cost)]),
            (Rule::Lease(_, _, holder), leases) => {
                let mut holders = match leases.anchored(rule, now) {
                    Leases { holders, .. } => holders,
                    _ => BTreeMap::new(),
                };
                holders.insert(holder, (now + span, cost));
                Leases {
                    stamp: now,
                    holders,
                }
            }
            (
                Rule::Slide(_, _, parts),
                Parts {
                    start,
                    window,
                    precision,
                    mut counts,
                },
            ) if window == span && precision == i128::from(parts) && used > whole(0) => {
                *counts
                    .entry((now - start) / part(window, precision))
                    .or_default() += cost;
                Parts {
                    start,
                    window,
                    precision,
                    counts,
                }
            }
            // Idle until now, or split otherwise: begin here, with what is in use in the part before.
            (Rule::Slide(_, _, parts), _) => Parts {
                start: now,
                window: span,
                precision: parts.into(),
                counts: [(-1, used.ceil().to_integer()), (0, cost.into())].into(),
            },
        }
    }
}

/// The window of a rule around `now`.
fn window(rule: Rule, now: i128, units: BigInt) -> Usage {
    let (start, end) = match rule {
        Rule::Calendar(_, calendar, offset_ms) => {
            super::calendar::window(calendar, i128::from(offset_ms) * 1000, now)
        }
        Rule::Fixed(_, window_ms, offset_ms) => {
            let (width, offset) = (i128::from(window_ms) * 1000, i128::from(offset_ms) * 1000);
            let number = (now - offset).div_euclid(width);
            (number * width + offset, (number + 1) * width + offset)
        }
        _ => unreachable!(),
    };
    Window {
        rule,
        start,
        end,
        units,
    }
}

/// Whole microseconds, rounded up.
fn part(window: i128, precision: i128) -> i128 {
    (window + precision - 1) / precision
}

fn latest(counts: &BTreeMap<i128, BigInt>) -> i128 {
    counts.keys().copied().max().unwrap_or_default()
}
