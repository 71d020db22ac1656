//! Decisions while the server is unavailable, and the usage to reconcile with it afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use quick_cache::unsync::Cache;
use rl_core::{Algorithm, Mode, State};

use crate::commands::PolicyRule;
use crate::engine::policies::Policies;
use crate::limit::LimitArg;
use crate::limiter::Check;
use crate::{DecidedBy, Decision, Limit, MultiDecision, Source};

/// What was allowed without the server, by key. When it is full, the least used keys are dropped.
pub(crate) struct Ledger {
    usage_by_key: Mutex<Cache<Box<[u8]>, KeyUsage>>,
    pub(crate) policies: Policies,
}

struct KeyUsage {
    limit: Limit,
    /// One state, or for a policy one per limit.
    states: Vec<Option<State>>,
    /// Whether the server was sent this usage and did not reply.
    unanswered: bool,
}

/// Usage of a key that the server has not been charged yet.
pub(crate) struct OfflineUsage {
    pub(crate) key: Box<[u8]>,
    pub(crate) limit: Limit,
    pub(crate) units: u64,
    /// Whether the server was sent it before and did not reply.
    pub(crate) unanswered: bool,
}

impl Ledger {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            usage_by_key: Mutex::new(Cache::new(size)),
            policies: Policies::default(),
        }
    }

    /// The limits to apply; `None` for a policy that was never read.
    fn rules(&self, limit: &Limit) -> Option<Arc<[PolicyRule]>> {
        match limit {
            Limit::Policy { name } => self.policies.get(name),
            limit => Some(Arc::new([PolicyRule::new(limit.clone())])),
        }
    }

    /// Decides using a share of each limit, all or nothing.
    pub(crate) fn check(&self, checks: &[Check<'_>], share: f64) -> Option<Decision> {
        self.decide(checks, |limit| scaled(limit, share), Mode::Check)
    }

    /// Allows the call, and records its usage.
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
        let mut usage_by_key = self.usage_by_key.lock();
        let mut limits = Vec::with_capacity(checks.len());
        let mut next = Vec::with_capacity(checks.len());
        for check in checks {
            let stored = usage_by_key
                .get(check.key)
                .map_or(&[][..], |key_usage| &key_usage.states);
            let rules = self.rules(check.limit)?;
            let mut decisions = Vec::with_capacity(rules.len());
            let mut states = Vec::with_capacity(rules.len());
            for (index, rule) in rules.iter().enumerate() {
                let stored = stored.get(index).and_then(Option::as_ref);
                let cost = rule.fixed_cost.unwrap_or(check.cost);
                let (decision, state) =
                    evaluate(&applied(&rule.limit), stored, now_us, cost, mode)?;
                decisions.push(decision);
                states.push(state.or_else(|| stored.cloned()));
            }
            let costs = rules
                .iter()
                .map(|rule| rule.fixed_cost.unwrap_or(check.cost));
            limits.push(MultiDecision::of(decisions).overall(costs)?);
            next.push(states);
        }
        let together = MultiDecision::of(limits);
        if together.allowed {
            for (check, states) in checks.iter().zip(next) {
                if states.iter().any(Option::is_some) {
                    let key_usage = KeyUsage {
                        limit: check.limit.clone(),
                        states,
                        unanswered: usage_by_key
                            .peek(check.key)
                            .is_some_and(|key_usage| key_usage.unanswered),
                    };
                    usage_by_key.insert(check.key.into(), key_usage);
                }
            }
        }
        let source = match mode {
            Mode::Force => Source::FailOpen,
            _ => Source::FailLocal,
        };
        if let (&[mut decision], [check]) = (&together.decisions[..], checks) {
            // As in the reply of RL.CHECK: which limit of the policy decided.
            if let (Limit::Policy { .. }, DecidedBy::Limit(index)) =
                (check.limit, decision.decided_by)
            {
                decision.decided_by = DecidedBy::PolicyLimit(index);
            }
            return Some(decision.with_source(source));
        }
        let overall = together.overall(checks.iter().map(|check| check.cost))?;
        Some(overall.with_source(source))
    }

    /// The unreconciled usage of the selected keys, as far as it still counts now by the full limits. It stays recorded, and
    /// so counts against further calls, until [`Ledger::reconciled`].
    pub(crate) fn offline_usage(&self, chosen: impl Fn(&[u8]) -> bool) -> Vec<OfflineUsage> {
        let now_us = unix_us();
        let mut usage_by_key = self.usage_by_key.lock();
        let all = usage_by_key.iter().filter(|(key, _)| chosen(key));
        let all: Vec<OfflineUsage> = all
            .map(|(key, key_usage)| OfflineUsage {
                key: key.clone(),
                limit: key_usage.limit.clone(),
                units: self.used(key_usage, now_us),
                unanswered: key_usage.unanswered,
            })
            .collect();
        let (used, void): (Vec<OfflineUsage>, _) =
            all.into_iter().partition(|usage| usage.units > 0);
        for usage in void {
            usage_by_key.remove(&usage.key);
        }
        let used = used.into_iter();
        used.filter(|usage| is_owed(&usage.limit)).collect()
    }

    /// Removes usage that the server has been charged. What was allowed in the meantime stays.
    pub(crate) fn reconciled(&self, usage: &OfflineUsage) {
        let now_us = unix_us();
        let mut usage_by_key = self.usage_by_key.lock();
        let Some((key, key_usage)) = usage_by_key.remove(&usage.key) else {
            return;
        };
        let since = self.used(&key_usage, now_us).saturating_sub(usage.units);
        if since == 0 {
            return;
        }
        let rules = self.rules(&key_usage.limit).unwrap_or_default();
        let states = rules.iter().map(|rule| {
            let cost = rule.fixed_cost.unwrap_or(since);
            evaluate(&rule.limit, None, now_us, cost, Mode::Force)?.1
        });
        let key_usage = KeyUsage {
            states: states.collect(),
            limit: key_usage.limit,
            unanswered: false,
        };
        usage_by_key.insert(key, key_usage);
    }

    /// Records that the server did not reply: it may have been charged nevertheless.
    pub(crate) fn unanswered(&self, usage: &OfflineUsage) {
        if let Some(mut key_usage) = self.usage_by_key.lock().peek_mut(&usage.key) {
            key_usage.unanswered = true;
        }
    }

    fn used(&self, key_usage: &KeyUsage, now_us: u64) -> u64 {
        let rules = self.rules(&key_usage.limit).unwrap_or_default();
        let used = rules.iter().zip(&key_usage.states).map(|(rule, state)| {
            let (now, _) = evaluate(&rule.limit, state.as_ref(), now_us, 0, Mode::Check)?;
            let units = now.limit.saturating_sub(now.remaining);
            // With a fixed COST, any cost charges it for one call.
            Some(rule.fixed_cost.map_or(units, |cost| units.min(cost).min(1)))
        });
        used.flatten().max().unwrap_or(0)
    }

    /// The slot groups that have usage to reconcile.
    pub(crate) fn with_offline_usage(&self, group_of: impl Fn(&[u8]) -> usize) -> BTreeSet<usize> {
        let usage_by_key = self.usage_by_key.lock();
        let owed = usage_by_key
            .iter()
            .filter(|(_, key_usage)| is_owed(&key_usage.limit));
        owed.map(|(key, _)| group_of(key)).collect()
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.usage_by_key.lock().is_empty()
    }
}

/// Leases are held, not used up: there is nothing to charge afterwards.
fn is_owed(limit: &Limit) -> bool {
    !matches!(limit, Limit::Lease { .. })
}

/// A share of a limit, but at least one unit unless the limit is 0. A bucket refills at that share of its rate.
fn scaled(limit: &Limit, share: f64) -> Limit {
    let share = share.clamp(0.0, 1.0);
    let units = |count: u64| ((count as f64 * share) as u64).max(1).min(count);
    let slower = |period: Duration| match share > 0.0 {
        true => Duration::try_from_secs_f64(period.as_secs_f64() / share).unwrap_or(LONGEST),
        false => LONGEST,
    };
    match limit.clone() {
        Limit::Slide { limit, window, .. } => Limit::slide(units(limit), window),
        Limit::Fixed {
            limit,
            window,
            offset,
        } => Limit::Fixed {
            limit: units(limit),
            window,
            offset,
        },
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
        // A policy consists of other limits, which are scaled one by one.
        policy @ Limit::Policy { .. } => policy,
    }
}

const LONGEST: Duration = Duration::from_millis(rl_core::MAX_PERIOD_MS);

/// Decides one limit; `None` if its numbers are out of range.
///
/// Memory must stay bounded and callers must not be delayed, so EXACT and LEASE are approximated by SLIDE, and LEAK by
/// BUCKET.
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
    let args: Vec<String> = limit
        .parameters()
        .filter(|arg| !matches!(arg, LimitArg::Text(_)))
        .map(|arg| match arg {
            LimitArg::Duration(duration) => LimitArg::Duration(duration.min(LONGEST)).to_string(),
            arg => arg.to_string(),
        })
        .collect();
    let core = rl_core::Limit::parse(algorithm, &mut args.iter().map(|arg| arg.as_bytes())).ok()?;
    let core = match (core, limit) {
        (
            rl_core::Limit::Fixed(fixed),
            Limit::Fixed {
                offset: Some(offset),
                ..
            },
        ) => rl_core::Limit::Fixed(fixed.with_offset(offset.ms()).ok()?),
        (core, _) => core,
    };
    // A key whose algorithm has changed starts again.
    let stored = stored.filter(|state| state.algorithm() == algorithm);
    let outcome = core.evaluate(stored, now_us, cost, mode).ok()?;
    let five = outcome.decision;
    let count = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let decision = Decision::from_integers([
        i64::from(five.allowed),
        count(five.limit),
        count(five.remaining),
        five.retry_after_ms,
        count(five.reset_after_ms),
    ]);
    Some((
        decision,
        outcome.update.and_then(|next| next.into_initial()),
    ))
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
    use crate::{Calendar, HOUR, MINUTE, Offset};

    fn check<'a>(key: &'a str, limit: &'a Limit, cost: u64) -> Check<'a> {
        Check {
            key: key.as_bytes(),
            limit,
            cost,
        }
    }

    fn allowed(ledger: &Ledger, key: &str, limit: &Limit, share: f64, calls: u32) -> usize {
        let one = || ledger.check(&[check(key, limit, 1)], share);
        (0..calls)
            .filter(|_| one().is_some_and(|decision| decision.allowed))
            .count()
    }

    #[test]
    fn a_share_of_the_limit_is_allowed() {
        let ledger = Ledger::new(100);
        for (key, limit) in [
            ("slide", Limit::slide(100, HOUR)),
            ("fixed", Limit::fixed(100, HOUR)),
            (
                "month",
                Limit::fixed_calendar(100, Calendar::Month).with_offset(Offset::Earlier(HOUR)),
            ),
            ("exact", Limit::exact(100, HOUR)),
            ("bucket", Limit::bucket(100, 1, HOUR)),
            ("leak", Limit::leak(100, 1, HOUR)),
            ("lease", Limit::lease(100, HOUR, "me")),
        ] {
            assert_eq!(allowed(&ledger, key, &limit, 0.2, 200), 20, "{key}");
        }
        assert_eq!(allowed(&ledger, "tiny", &Limit::slide(1, HOUR), 0.2, 5), 1);
        assert_eq!(
            allowed(&ledger, "blocked", &Limit::slide(0, HOUR), 0.2, 5),
            0
        );
    }

    #[test]
    fn a_window_of_the_calendar_ends_when_it_does_on_the_server() {
        let quota = Limit::fixed_calendar(9, Calendar::Month).with_offset(Offset::Later(MINUTE));
        // 2024-02-29, 12:00 UTC.
        let decided = evaluate(&quota, None, 1_709_208_000_000_000, 1, Mode::Check);
        let reset_after = decided.map(|(decision, _)| decision.reset_after);
        assert_eq!(reset_after, Some(12 * HOUR + MINUTE));
    }

    #[test]
    fn all_or_nothing() {
        let ledger = Ledger::new(100);
        let (wide, narrow) = (Limit::slide(100, HOUR), Limit::slide(5, HOUR));
        let both = [check("wide", &wide, 1), check("narrow", &narrow, 1)];
        let answers: Vec<_> = (0..10).filter_map(|_| ledger.check(&both, 1.0)).collect();
        assert_eq!(answers.iter().filter(|answer| answer.allowed).count(), 5);
        assert_eq!(answers[9].denied_by(), Some(DecidedBy::Limit(1)));
        let offline_usage = ledger.offline_usage(|key| key == b"wide");
        assert_eq!(offline_usage.len(), 1, "narrow was not chosen");
        assert_eq!(offline_usage[0].units, 5, "denials spend nothing");
    }

    #[test]
    fn forced_usage_is_reconciled_up_to_the_limit() {
        let ledger = Ledger::new(100);
        let limit = Limit::bucket(10, 1, HOUR);
        for _ in 0..50 {
            let passed = ledger.force(&[check("k", &limit, 1)]);
            assert!(passed.is_some_and(|decision| decision.allowed));
        }
        let offline_usage = ledger.offline_usage(|_| true);
        assert_eq!(offline_usage.len(), 1);
        assert_eq!(offline_usage[0].units, 10);
        ledger.reconciled(&offline_usage[0]);
        assert!(ledger.is_empty());
    }

    /// The server may stop replying while it is being charged: no usage is lost, and no more than the share is allowed.
    #[test]
    fn offline_usage_counts_until_it_is_reconciled() {
        let ledger = Ledger::new(100);
        let limit = Limit::slide(100, HOUR);
        assert_eq!(allowed(&ledger, "k", &limit, 0.2, 15), 15);
        let offline_usage = ledger.offline_usage(|_| true);
        assert_eq!(offline_usage[0].units, 15);
        ledger.unanswered(&offline_usage[0]);
        assert_eq!(allowed(&ledger, "k", &limit, 0.2, 15), 5);
        let more = &ledger.offline_usage(|_| true)[0];
        assert_eq!(
            (more.units, more.unanswered),
            (20, true),
            "the server was not charged"
        );
        ledger.reconciled(&offline_usage[0]);
        let since = &ledger.offline_usage(|_| true)[0];
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
        assert!(ledger.offline_usage(|_| true).len() <= 100);
    }
}
