//! Recent denials. The server said how long to wait, so it need not be asked again until then.

use std::time::{Duration, Instant};

use quick_cache::sync::Cache;

use crate::engine::key::{LimitedKey, LimitedKeyRef};
use crate::{Decision, Limit, Source};

#[derive(Clone, Copy)]
struct Denial {
    /// Calls that cost as much or more are denied too.
    cost: u64,
    /// From this moment on, the server is asked again.
    until: Instant,
    at: Instant,
    decision: Decision,
}

pub(crate) struct DenyCache {
    denials: Cache<LimitedKey, Denial>,
    longest: Duration,
}

impl DenyCache {
    /// Remembers up to `size` denials, each for at most `longest`.
    pub(crate) fn new(size: usize, longest: Duration) -> Self {
        let longest = if size == 0 { Duration::ZERO } else { longest };
        Self {
            denials: Cache::new(size),
            longest,
        }
    }

    /// The denial that applies to a call, if one is known.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], limit: &Limit, cost: u64) -> Option<Decision> {
        if self.longest.is_zero() {
            return None;
        }
        let denial = self.denials.get(&LimitedKeyRef(key, limit))?;
        if cost < denial.cost {
            return None;
        }
        let now = Instant::now();
        if now >= denial.until {
            return None;
        }
        let passed = now - denial.at;
        Some(Decision {
            retry_after: denial
                .decision
                .retry_after
                .map(|wait| wait.saturating_sub(passed)),
            reset_after: denial.decision.reset_after.saturating_sub(passed),
            source: Source::DenyCache,
            ..denial.decision
        })
    }

    /// Remembers a reply of the server if it is a denial that stays valid.
    pub(crate) fn learn(&self, key: &[u8], limit: &Limit, cost: u64, decision: &Decision) {
        // A lease may be released and a policy changed or overridden at any moment: their waits are upper bounds only.
        let lasts = !matches!(limit, Limit::Lease { .. } | Limit::Policy { .. });
        if decision.allowed || !lasts || self.longest.is_zero() {
            return;
        }
        let at = Instant::now();
        let valid_for = decision
            .retry_after
            .map_or(self.longest, |wait| wait.min(self.longest));
        let denial = Denial {
            cost,
            until: at + valid_for,
            at,
            decision: *decision,
        };
        self.denials
            .insert(LimitedKeyRef(key, limit).to_owned(), denial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::MINUTE;

    const LIMIT: Limit = Limit::slide(10, MINUTE);

    fn denial(retry_ms: i64) -> Decision {
        Decision::from_integers([0, 10, 3, retry_ms, 60_000])
    }

    #[test]
    fn a_denial_covers_calls_of_the_same_or_a_higher_cost() {
        let cache = DenyCache::new(8, MINUTE);
        cache.learn(b"k", &LIMIT, 5, &denial(30_000));
        assert!(cache.get(b"k", &LIMIT, 5).is_some());
        assert!(cache.get(b"k", &LIMIT, 6).is_some());
        assert!(cache.get(b"k", &LIMIT, 4).is_none(), "may fit");
        assert!(
            cache.get(b"k", &Limit::slide(20, MINUTE), 5).is_none(),
            "raised"
        );
        assert!(cache.get(b"other", &LIMIT, 5).is_none());
        let Some(hit) = cache.get(b"k", &LIMIT, 5) else {
            panic!("forgotten")
        };
        assert_eq!(hit.source, Source::DenyCache);
        assert!(hit.retry_after < Some(Duration::from_secs(30)));
        assert!(hit.retry_after > Some(Duration::from_secs(20)));
    }

    #[test]
    fn a_denial_ends_with_its_wait_or_with_the_cap() {
        let cache = DenyCache::new(8, Duration::from_millis(20));
        cache.learn(b"long", &LIMIT, 1, &denial(30_000));
        cache.learn(b"never", &LIMIT, 11, &denial(-1));
        cache.learn(b"short", &LIMIT, 1, &denial(1));
        std::thread::sleep(Duration::from_millis(2));
        assert!(cache.get(b"short", &LIMIT, 1).is_none());
        std::thread::sleep(Duration::from_millis(20));
        assert!(cache.get(b"long", &LIMIT, 1).is_none());
        assert!(cache.get(b"never", &LIMIT, 11).is_none());
    }

    #[test]
    fn leases_and_allowed_calls_are_not_remembered() {
        let cache = DenyCache::new(8, MINUTE);
        let lease = Limit::lease(5, MINUTE, "a");
        cache.learn(b"k", &lease, 1, &denial(30_000));
        assert!(cache.get(b"k", &lease, 1).is_none());
        cache.learn(
            b"k",
            &LIMIT,
            1,
            &Decision::from_integers([1, 10, 3, 0, 60_000]),
        );
        assert!(cache.get(b"k", &LIMIT, 1).is_none());
        let off = DenyCache::new(0, MINUTE);
        off.learn(b"k", &LIMIT, 1, &denial(30_000));
        assert!(off.get(b"k", &LIMIT, 1).is_none());
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = DenyCache::new(100, MINUTE);
        for n in 0..10_000_u32 {
            cache.learn(&n.to_be_bytes(), &LIMIT, 1, &denial(30_000));
        }
        assert!(cache.denials.len() <= 100);
    }
}
