//! Giving back: never below zero, never more than there is, and as if it had not been taken.

#![allow(clippy::unwrap_used, missing_docs)]

mod key;
mod sequence;

use key::{Key, MS, NOW, Rule, SECOND, bucket, exact, fixed, leak, parts, slide};
use proptest::prelude::*;
use rl_core::{MAX_COUNT, MAX_TIME_US, MAX_WAIT_MS, Mode};
use sequence::{Clock, changing_rules, rates};

/// What a report says, apart from when.
fn available(key: &Key, rule: Rule, now_us: u64) -> u64 {
    key.remaining(&rule.limit(), now_us)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_refund_at_once_restores_what_was_available(
        calls in rates().prop_flat_map(|rule| sequence::one_rule(Just(rule).boxed(), Clock::Steady)),
        more in 0..3u64,
    ) {
        for call in calls.iter().filter(|call| call.outcome.decision.allowed && call.cost > 0) {
            let (limit, now) = (call.rule.limit(), call.now_us);
            let mut key = call.before.clone();
            key.store(&limit, now, call.cost, call.mode);
            let taken = key.clone();
            prop_assert_eq!(key.refund(now, call.cost), call.cost, "{:?}", call);
            prop_assert_eq!(available(&key, call.rule, now), available(&call.before, call.rule, now), "{:?}", call);
            // Every call that follows is answered as if nothing had been taken.
            for later in [0, call.rule.span_us() / 3, call.rule.span_us(), 2 * call.rule.span_us()] {
                let at = now + later;
                prop_assert_eq!(
                    key.peek(&limit, at, 1).allowed,
                    call.before.peek(&limit, at, 1).allowed,
                    "{} µs after {:?}", later, call
                );
            }
            // More than was taken gives back what was there before, and no more.
            let mut all = taken;
            let given = all.refund(now, u64::MAX);
            prop_assert!(given >= call.cost);
            prop_assert_eq!(available(&all, call.rule, now), call.rule.size());
            prop_assert_eq!(all.refund(now, more), 0);
        }
    }

    #[test]
    fn a_refund_gives_at_most_what_it_says_and_keeps_the_key_as_long_as_it_matters(
        calls in rates().prop_flat_map(|rule| changing_rules(Just(rule).boxed(), Clock::Stepping)),
        units in 1..1000u64,
        later_us in 0..2_000_000u64,
    ) {
        for call in calls {
            let at = (call.now_us + later_us).min(MAX_TIME_US / 2);
            let (limit, before) = (call.rule.limit(), call.after.until_it_expires(at));
            let mut key = before.clone();
            let given = key.refund(at, units);
            prop_assert!(given <= units);
            let (less, more) = (available(&before, call.rule, at), available(&key, call.rule, at));
            prop_assert!(less <= more && more - less <= given, "{less} {more} {given} {call:?}");
            let Some(state) = &key.0 else { continue };
            let wait_ms = key.peek(&limit, at, 0).reset_after_ms;
            let clear = at + wait_ms.min(MAX_WAIT_MS / 4) * MS;
            // No key is kept for longer than 68 years, refund or not.
            let cut_short = before.0.as_ref().unwrap().expire_at_ms() * MS < clear;
            if wait_ms > 0 && wait_ms < MAX_WAIT_MS / 4 && given > 0 && !cut_short {
                prop_assert!(state.expire_at_ms() * MS + MS > clear, "{state:?} {call:?}");
                prop_assert!(state.expire_at_ms() <= before.0.as_ref().unwrap().expire_at_ms().max(clear / MS + 1001));
            }
        }
    }
}

#[test]
fn the_latest_units_go_first() {
    // A window of a minute, half of it old usage: what is given back is the new.
    for limit in [
        slide(100, 60_000),
        parts(100, 60_000, 2),
        exact(100, 60_000),
    ] {
        let mut key = Key::default();
        key.call(&limit, NOW, 30);
        key.call(&limit, NOW + 40 * SECOND, 30);
        let mut alone = Key::default();
        alone.call(&limit, NOW, 30);
        assert_eq!(key.refund(NOW + 40 * SECOND, 30), 30);
        for elapsed in [40, 60, 70, 90, 119] {
            let at = NOW + elapsed * SECOND;
            assert_eq!(
                key.remaining(&limit, at),
                alone.remaining(&limit, at),
                "{limit:?}"
            );
        }
    }
}

#[test]
fn all_of_it_takes_the_key_along() {
    for limit in [
        slide(10, 1000),
        parts(10, 1000, 3),
        bucket(10, 1, 1000),
        leak(10, 1, 1000),
        fixed(10, 1000),
        exact(10, 1000),
    ] {
        let mut key = Key::default();
        key.force(&limit, NOW, 15);
        assert_eq!(key.refund(NOW, 6), 6);
        assert_eq!(key.remaining(&limit, NOW), 1);
        assert_eq!(key.refund(NOW, MAX_COUNT), 9, "{limit:?}");
        assert_eq!(key.0, None);
    }
}

#[test]
fn what_is_over_is_not_given_back() {
    for limit in [
        slide(10, 1000),
        parts(10, 1000, 3),
        fixed(10, 1000),
        exact(10, 1000),
    ] {
        let mut key = Key::default();
        key.call(&limit, NOW, 10);
        assert_eq!(key.refund(NOW + 2 * SECOND, 5), 0, "{limit:?}");
        // After a step back all of it is in use again.
        assert_eq!(key.refund(NOW - SECOND, 5), 5, "{limit:?}");
        assert_eq!(key.remaining(&limit, NOW - SECOND), 5, "{limit:?}");
        assert_eq!(
            key.evaluate(&limit, NOW - SECOND, 6, Mode::Check)
                .decision
                .retry_after_ms
                .signum(),
            1
        );
    }
}
