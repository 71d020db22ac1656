//! Refunds: never below zero, never more than is in use, and with the same result as if it had not been charged.

use crate::key::{Key, MS, NOW, Rule, SECOND, bucket, exact, fixed, leak, parts, slide};
use crate::sequence::{Clock, changing_rules, one_rule, rates};
use proptest::prelude::*;
use rl_core::{MAX_COUNT, MAX_TIME_US, MAX_WAIT_MS, Mode};

/// What a report says, apart from when.
fn available(key: &Key, rule: Rule, now_us: u64) -> u64 {
    key.remaining(&rule.limit(), now_us)
}

proptest! {
    #![proptest_config(crate::key::cases(2000))]

    #[test]
    fn a_refund_at_once_restores_what_was_available(
        calls in rates().prop_flat_map(|rule| one_rule(Just(rule).boxed(), Clock::Steady)),
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
            // A refund of more than was charged restores what was there before, and no more.
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
                prop_assert!(state.expire_at_ms() <= before.0.as_ref().unwrap().expire_at_ms());
            }
        }
    }
}

/// Units in use, as RL.INSPECT reports them.
fn used(key: &Key, now_us: u64) -> u64 {
    let fields = key.0.as_ref().map(|state| state.inspect(now_us));
    let used = fields.iter().flatten().find(|field| field.name == "used");
    match used.map(|field| &field.value) {
        Some(rl_core::FieldValue::Number(used)) => *used,
        _ => 0,
    }
}

proptest! {
    #![proptest_config(crate::key::cases(2000))]

    /// The reply is the drop in usage, whatever has faded, rolled over or drained since.
    #[test]
    fn a_refund_reports_by_how_much_usage_drops(
        calls in rates().prop_flat_map(|rule| changing_rules(Just(rule).boxed(), Clock::Stepping)),
        units in prop_oneof![1..20u64, 1..=MAX_COUNT],
        fourths in 0..9u64,
        later_us in 0..5000u64,
    ) {
        for call in calls.iter().filter(|call| !call.peek && call.outcome.update.is_some()) {
            let rule = call.rule;
            let at = (call.now_us + fourths * (rule.span_us() / 4) + later_us).min(MAX_TIME_US / 2);
            let before = call.after.until_it_expires(at);
            let mut key = before.clone();
            let given = key.refund(at, units);
            let dropped = used(&before, at) - used(&key, at);
            prop_assert!(given <= units);
            let open = available(&key, rule, at) - available(&before, rule, at);
            prop_assert_eq!(given, dropped, "{:?}", call);
            // A change of the window or the rate counts only with the next call, so both are the same here.
            if available(&before, rule, at) > 0 {
                prop_assert_eq!(given, open, "{:?}", call);
            }
        }
    }

    /// The same against a model that knows nothing but the contract: two windows, of which the older one fades.
    #[test]
    fn a_sliding_refund_is_what_has_not_faded_of_the_latest_units(
        window_ms in 1..100_000u64,
        first in 0..1000u64,
        second in 0..1000u64,
        elapsed in 0.0..1.0f64,
        units in 1..2500u64,
    ) {
        let (limit, mut key) = (slide(MAX_COUNT, window_ms), Key::default());
        let window = window_ms * MS;
        key.call(&limit, NOW, first.max(1));
        key.call(&limit, NOW + window, second);
        let into = (window as f64 * elapsed) as u64;
        let at = NOW + window + into;
        let fading = |previous: u64| (u128::from(previous) * u128::from(window - into)).div_ceil(window.into());
        let in_use = |current: u64, previous: u64| u128::from(current) + fading(previous);
        let previous = first.max(1);
        let newest = units.min(second);
        let oldest = (units - newest).min(previous);
        let expected = in_use(second, previous) - in_use(second - newest, previous - oldest);
        prop_assert_eq!(u128::from(key.refund(at, units)), expected);
    }
}

#[test]
fn faded_units_are_reported_as_what_is_left_of_them() {
    let (limit, mut key) = (slide(100, 60_000), Key::default());
    key.call(&limit, NOW, 100);
    // Three quarters of the way through the next window, a quarter of the 100 still counts.
    let at = NOW + 105 * SECOND;
    assert_eq!(key.remaining(&limit, at), 75);
    assert_eq!(key.refund(at, 40), 10);
    assert_eq!(key.remaining(&limit, at), 85);
    assert_eq!(key.refund(at, 1000), 15);
    assert_eq!(key.0, None);
}

#[test]
fn sub_windows_refund_the_latest_units_first_and_in_full() {
    let (limit, mut key) = (parts(100, 60_000, 2), Key::default());
    key.call(&limit, NOW, 60);
    key.call(&limit, NOW + 40 * SECOND, 30);
    let at = NOW + 75 * SECOND;
    assert_eq!(key.refund(at, 40), 40);
    assert_eq!(key.remaining(&limit, at), 50);
    // The 50 that are left belong to the first call.
    assert_eq!(key.remaining(&limit, NOW + 90 * SECOND), 100);
    assert_eq!(key.refund(at, 1000), 50);
    assert_eq!(key.0, None);
}

#[test]
fn a_refund_too_small_to_show_changes_nothing() {
    let (limit, mut key) = (slide(100, 60_000), Key::default());
    key.call(&limit, NOW, 100);
    let at = NOW + 90 * SECOND;
    let before = key.clone();
    assert_eq!(key.refund(at, 1), 0);
    assert_eq!(key.0, before.0);
    assert_eq!(key.refund(at, 2), 1);
}

#[test]
fn a_refund_after_a_step_back_does_not_bring_old_units_back() {
    let (limit, mut key) = (exact(100, 60_000), Key::default());
    key.call(&limit, NOW, 7);
    key.call(&limit, NOW + 50 * SECOND, 1);
    key.call(&limit, NOW + 100 * SECOND, 5);
    // The clock steps back to the second call; the first is over all the same.
    let at = NOW + 50 * SECOND;
    assert_eq!(key.remaining(&limit, at), 94);
    assert_eq!(key.refund(at, 5), 5);
    assert_eq!(key.remaining(&limit, at), 99);
    assert_eq!(key.refund(at, 5), 1);
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
fn a_full_refund_deletes_the_key() {
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
fn a_refund_of_all_that_is_still_owed_deletes_the_key() {
    for limit in [bucket(10, 10, 10_000), leak(10, 10, 10_000)] {
        let mut key = Key::default();
        key.call(&limit, NOW, 10);
        let at = NOW + 5 * SECOND;
        // Half has flowed back.
        assert_eq!(used(&key, at), 5, "{limit:?}");
        assert_eq!(used(&key, at + 1), 5, "{limit:?}");
        assert_eq!(used(&key, at + SECOND), 4, "{limit:?}");
        assert_eq!(key.refund(at, 10), 5, "{limit:?}");
        assert_eq!(key.0, None, "{limit:?}");
    }
}

#[test]
fn what_is_left_of_a_debt_keeps_the_key_for_as_long_as_it_takes_to_drain() {
    // 100 units drain in 256 s, half of them in 128 s.
    let (limit, mut key) = (bucket(100, 1, 2560), Key::default());
    let expiry = key.store(&limit, NOW, 100, Mode::Check).expiry.at_ms;
    let drained_ms = NOW / MS + 256_000;
    assert!((drained_ms..drained_ms + 30_000).contains(&expiry));
    assert_eq!(key.refund(NOW + 10 * SECOND, 50), 50);
    let sooner = key.0.as_ref().unwrap().expire_at_ms();
    let drained_ms = NOW / MS + 128_000;
    assert!((drained_ms..drained_ms + 30_000).contains(&sooner));
    assert_eq!((expiry - sooner) % 15_000, 0);
    // What has drained since the charge is not refunded: 50 − 46.
    assert_eq!(used(&key, NOW + 118 * SECOND), 4);
    assert_eq!(key.refund(NOW + 118 * SECOND, 1000), 4);
}

#[test]
fn a_debt_of_more_than_68_years_is_refunded_as_any_other() {
    let year = 365 * 24 * 60 * 60 * SECOND;
    let (limit, mut key) = (bucket(100, 1, 3650 * 86_400_000), Key::default());
    let expiry = key.store(&limit, NOW, 100, Mode::Check).expiry;
    assert_eq!(used(&key, NOW + 60 * year), 94);
    assert_eq!(key.refund(NOW + 60 * year, 1), 1);
    assert_eq!(key.0.as_ref().unwrap().expire_at_ms(), expiry.at_ms);
    assert_eq!(key.refund(NOW + 60 * year, 1000), 93);
}

#[test]
fn expired_usage_is_not_refunded() {
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
