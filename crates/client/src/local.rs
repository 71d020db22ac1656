//! Limits without a server: what decides while it is away, and the ledger of what it must hear about afterwards.
//! The only file that knows `rl-core`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use rl_core::{Algorithm, Mode, State};

use crate::limit::{Word, ceil_ms};
use crate::limiter::Check;
use crate::policies::{Part, Policies};
use crate::{Decision, Limit, MultiDecision, Source};

/// What was admitted without the server, by key. The least used keys are forgotten when it is full.
pub(crate) struct Ledger {
    pages: Mutex<Cache<Box<[u8]>, Page>>,
    pub(crate) policies: Policies,
}

struct Page {
    limit: Limit,
    /// One, but for a policy one for each of its limits.
    states: Vec<Option<State>>,
    /// Whether the server was told of it, and did not answer.
    unanswered: bool,
}

/// What a key still owes to the server.
pub(crate) struct Debt {
    pub(crate) key: Box<[u8]>,
    pub(crate) limit: Limit,
    pub(crate) units: u64,
    /// Whether the server was told before, and did not answer.
    pub(crate) unanswered: bool,
}

impl Ledger {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            pages: Mutex::new(Cache::new(size)),
            policies: Policies::default(),
        }
    }

    /// What a limit consists of; `None` for a policy that nothing is known of.
    fn parts(&self, limit: &Limit) -> Option<Arc<[Part]>> {
        match limit {
            Limit::Policy { name } => self.policies.get(name),
            limit => Some(Arc::new([Part {
                limit: limit.clone(),
                cost: None,
            }])),
        }
    }

    /// Decides by a share of each limit, all or nothing.
    pub(crate) fn check(&self, checks: &[Check<'_>], share: f64) -> Option<Decision> {
        self.decide(checks, |limit| scaled(limit, share), Mode::Check)
    }

    /// Lets pass, and remembers.
    pub(crate) fn force(&self, checks: &[Check<'_>]) -> Option<Decision> {
        self.decide(checks, Limit::clone, Mode::Force)
    }

    fn decide(
        &self,
        checks: &[Check<'_>],
        applied: impl Fn(&Limit) -> Limit,
        mode: Mode,
    ) -> Option<Decision> {
        let now_us = unix_us();
        let mut pages = self.pages.lock();
        let mut limits = Vec::with_capacity(checks.len());
        let mut next = Vec::with_capacity(checks.len());
        for check in checks {
            let stored = pages.get(check.key).map_or(&[][..], |page| &page.states);
            let parts = self.parts(check.limit)?;
            let mut decisions = Vec::with_capacity(parts.len());
            let mut states = Vec::with_capacity(parts.len());
            for (place, part) in parts.iter().enumerate() {
                let stored = stored.get(place).and_then(Option::as_ref);
                let cost = part.cost.unwrap_or(check.cost);
                let (decision, state) =
                    evaluate(&applied(&part.limit), stored, now_us, cost, mode)?;
                decisions.push(decision);
                states.push(state.or_else(|| stored.cloned()));
            }
            let costs = parts.iter().map(|part| part.cost.unwrap_or(check.cost));
            limits.push(MultiDecision::of(decisions).headline(costs)?);
            next.push(states);
        }
        let together = MultiDecision::of(limits);
        if together.allowed {
            for (check, states) in checks.iter().zip(next) {
                if states.iter().any(Option::is_some) {
                    let page = Page {
                        limit: check.limit.clone(),
                        states,
                        unanswered: pages.peek(check.key).is_some_and(|page| page.unanswered),
                    };
                    pages.insert(check.key.into(), page);
                }
            }
        }
        let source = match mode {
            Mode::Force => Source::FailOpen,
            _ => Source::FailLocal,
        };
        // As the server would answer: of one policy, which of its limits decided.
        if let [decision] = together.limits[..] {
            return Some(decision.at(decision.index, source));
        }
        let headline = together.headline(checks.iter().map(|check| check.cost))?;
        Some(headline.at(headline.index, source))
    }

    /// What is owed for the keys chosen: as much as still counts now, by the limits in full. It stays in the ledger, and
    /// so in the way of further calls, until it is [`Ledger::settled`].
    pub(crate) fn debts(&self, chosen: impl Fn(&[u8]) -> bool) -> Vec<Debt> {
        let now_us = unix_us();
        let mut pages = self.pages.lock();
        let all = pages.iter().filter(|(key, _)| chosen(key));
        let all: Vec<Debt> = all
            .map(|(key, page)| Debt {
                key: key.clone(),
                limit: page.limit.clone(),
                units: self.used(page, now_us),
                unanswered: page.unanswered,
            })
            .collect();
        let (used, void): (Vec<Debt>, _) = all.into_iter().partition(|debt| debt.units > 0);
        for debt in void {
            pages.remove(&debt.key);
        }
        let used = used.into_iter();
        used.filter(|debt| is_owed(&debt.limit)).collect()
    }

    /// Strikes out what the server has been told. What was admitted in the meantime stays.
    pub(crate) fn settled(&self, debt: &Debt) {
        let now_us = unix_us();
        let mut pages = self.pages.lock();
        let Some((key, page)) = pages.remove(&debt.key) else {
            return;
        };
        let since = self.used(&page, now_us).saturating_sub(debt.units);
        if since == 0 {
            return;
        }
        let parts = self.parts(&page.limit).unwrap_or_default();
        let states = parts.iter().map(|part| {
            let cost = part.cost.unwrap_or(since);
            evaluate(&part.limit, None, now_us, cost, Mode::Force)?.1
        });
        let page = Page {
            states: states.collect(),
            limit: page.limit,
            unanswered: false,
        };
        pages.insert(key, page);
    }

    /// Remembers that the server did not answer: it may have been told nevertheless.
    pub(crate) fn unanswered(&self, debt: &Debt) {
        if let Some(mut page) = self.pages.lock().peek_mut(&debt.key) {
            page.unanswered = true;
        }
    }

    fn used(&self, page: &Page, now_us: u64) -> u64 {
        let parts = self.parts(&page.limit).unwrap_or_default();
        let used = parts.iter().zip(&page.states).map(|(part, state)| {
            let (now, _) = evaluate(&part.limit, state.as_ref(), now_us, 0, Mode::Check)?;
            let units = now.limit.saturating_sub(now.remaining);
            // Where a policy fixes what a call takes, any cost charges it for one call.
            Some(part.cost.map_or(units, |cost| units.min(cost).min(1)))
        });
        used.flatten().max().unwrap_or(0)
    }

    /// The lanes, or whatever `lane_of` makes of a key, that owe something.
    pub(crate) fn owing(&self, lane_of: impl Fn(&[u8]) -> usize) -> BTreeSet<usize> {
        let pages = self.pages.lock();
        let owed = pages.iter().filter(|(_, page)| is_owed(&page.limit));
        owed.map(|(key, _)| lane_of(key)).collect()
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.pages.lock().is_empty()
    }
}

/// Leases are held, not used up; what they were for has gone its way.
fn is_owed(limit: &Limit) -> bool {
    !matches!(limit, Limit::Lease { .. })
}

/// A share of a limit, and at least one unit unless the limit is 0. A bucket refills at the share of its rate.
fn scaled(limit: &Limit, share: f64) -> Limit {
    let share = share.clamp(0.0, 1.0);
    let units = |count: u64| ((count as f64 * share) as u64).max(1).min(count);
    let slower = |period: Duration| match share > 0.0 {
        true => Duration::try_from_secs_f64(period.as_secs_f64() / share).unwrap_or(LONGEST),
        false => LONGEST,
    };
    match limit.clone() {
        Limit::Slide { limit, window } => Limit::slide(units(limit), window),
        Limit::Fixed { limit, window } => Limit::fixed(units(limit), window),
        Limit::Exact { limit, window } => Limit::exact(units(limit), window),
        Limit::Bucket {
            capacity,
            refill,
            period,
        } => Limit::bucket(units(capacity), refill, slower(period)),
        Limit::Leak {
            capacity,
            rate,
            period,
        } => Limit::leak(units(capacity), rate, slower(period)),
        Limit::Lease { limit, ttl, holder } => Limit::lease(units(limit), ttl, holder),
        // Made of others, which are scaled one by one.
        policy @ Limit::Policy { .. } => policy,
    }
}

const LONGEST: Duration = Duration::from_secs(3650 * 86400);

/// Decides one limit; `None` if its numbers are out of range.
///
/// Memory must stay bounded here, and callers are not made to wait: the exact window and the lease become a
/// sliding window, the leaky queue a bucket.
fn evaluate(
    limit: &Limit,
    stored: Option<&State>,
    now_us: u64,
    cost: u64,
    mode: Mode,
) -> Option<(Decision, Option<State>)> {
    let name = match limit {
        Limit::Bucket { .. } | Limit::Leak { .. } => "BUCKET",
        Limit::Fixed { .. } => "FIXED",
        Limit::Slide { .. } | Limit::Exact { .. } | Limit::Lease { .. } => "SLIDE",
        Limit::Policy { .. } => return None,
    };
    let algorithm = Algorithm::from_name(name.as_bytes())?;
    let words: Vec<String> = limit
        .parameters()
        .filter(|word| !matches!(word, Word::Text(_)))
        .map(|word| match word {
            Word::Span(span) => format!("{}ms", ceil_ms(span.min(LONGEST))),
            word => word.text().into_owned(),
        })
        .collect();
    let core =
        rl_core::Limit::parse(algorithm, &mut words.iter().map(|word| word.as_bytes())).ok()?;
    // A key that changed its algorithm begins anew.
    let stored = stored.filter(|state| state.algorithm() == algorithm);
    let outcome = core.evaluate(stored, now_us, cost, mode).ok()?;
    let five = outcome.decision;
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let decision = Decision::from_five([
        i64::from(five.allowed),
        count(five.limit),
        count(five.remaining),
        five.retry_after_ms,
        count(five.reset_after_ms),
    ]);
    Some((decision, outcome.next.and_then(|next| next.begin())))
}

fn unix_us() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{HOUR, MINUTE};

    fn check<'a>(key: &'a str, limit: &'a Limit, cost: u64) -> Check<'a> {
        Check {
            key: key.as_bytes(),
            limit,
            cost,
        }
    }

    fn admitted(ledger: &Ledger, key: &str, limit: &Limit, share: f64, calls: u32) -> usize {
        let one = || ledger.check(&[check(key, limit, 1)], share);
        (0..calls)
            .filter(|_| one().is_some_and(|decision| decision.allowed))
            .count()
    }

    #[test]
    fn a_share_of_the_limit_is_admitted() {
        let ledger = Ledger::new(100);
        for (key, limit) in [
            ("slide", Limit::slide(100, HOUR)),
            ("fixed", Limit::fixed(100, HOUR)),
            ("exact", Limit::exact(100, HOUR)),
            ("bucket", Limit::bucket(100, 1, HOUR)),
            ("leak", Limit::leak(100, 1, HOUR)),
            ("lease", Limit::lease(100, HOUR, "me")),
        ] {
            assert_eq!(admitted(&ledger, key, &limit, 0.2, 200), 20, "{key}");
        }
        assert_eq!(admitted(&ledger, "tiny", &Limit::slide(1, HOUR), 0.2, 5), 1);
        assert_eq!(
            admitted(&ledger, "blocked", &Limit::slide(0, HOUR), 0.2, 5),
            0
        );
    }

    #[test]
    fn all_or_nothing() {
        let ledger = Ledger::new(100);
        let (wide, narrow) = (Limit::slide(100, HOUR), Limit::slide(5, HOUR));
        let both = [check("wide", &wide, 1), check("narrow", &narrow, 1)];
        let answers: Vec<_> = (0..10).filter_map(|_| ledger.check(&both, 1.0)).collect();
        assert_eq!(answers.iter().filter(|answer| answer.allowed).count(), 5);
        assert_eq!(answers[9].denied_by(), Some(1));
        let debts = ledger.debts(|key| key == b"wide");
        assert_eq!(debts.len(), 1, "narrow was not chosen");
        assert_eq!(debts[0].units, 5, "denials spend nothing");
    }

    #[test]
    fn what_passed_unchecked_is_owed_up_to_the_limit() {
        let ledger = Ledger::new(100);
        let limit = Limit::bucket(10, 1, HOUR);
        for _ in 0..50 {
            let passed = ledger.force(&[check("k", &limit, 1)]);
            assert!(passed.is_some_and(|decision| decision.allowed));
        }
        let debts = ledger.debts(|_| true);
        assert_eq!(debts.len(), 1);
        assert_eq!(debts[0].units, 10);
        ledger.settled(&debts[0]);
        assert!(ledger.is_empty());
    }

    /// The server may fall silent while it is told: nothing is forgotten, and nothing more admitted than the share.
    #[test]
    fn what_is_owed_stays_in_the_way_until_it_is_settled() {
        let ledger = Ledger::new(100);
        let limit = Limit::slide(100, HOUR);
        assert_eq!(admitted(&ledger, "k", &limit, 0.2, 15), 15);
        let debts = ledger.debts(|_| true);
        assert_eq!(debts[0].units, 15);
        ledger.unanswered(&debts[0]);
        assert_eq!(admitted(&ledger, "k", &limit, 0.2, 15), 5);
        let more = &ledger.debts(|_| true)[0];
        assert_eq!((more.units, more.unanswered), (20, true), "nobody was told");
        ledger.settled(&debts[0]);
        let since = &ledger.debts(|_| true)[0];
        assert_eq!(
            (since.units, since.unanswered),
            (5, false),
            "what came since"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let ledger = Ledger::new(100);
        for n in 0..10_000 {
            ledger.check(&[check(&format!("k{n}"), &Limit::slide(9, MINUTE), 1)], 0.2);
        }
        assert!(ledger.debts(|_| true).len() <= 100);
    }
}
