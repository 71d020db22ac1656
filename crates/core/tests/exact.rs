//! The exact window: no window contains more than the limit, and no call is denied without cause.

use crate::key::{Key, MS, NOW, SECOND, exact, wait};
use proptest::prelude::*;
use rl_core::MAX_EXACT_LIMIT;
use rl_core::{Error, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, Mode, NEVER};

#[test]
fn units_count_for_one_window_and_not_a_microsecond_longer() {
    let (limit, mut key) = (exact(3, 1000), Key::default());
    assert_eq!(key.call(&limit, NOW, 1).reset_after_ms, 1000);
    key.call(&limit, NOW + 400 * MS, 2);
    assert_eq!(wait(key.call(&limit, NOW + 500 * MS, 1)), 500);
    assert_eq!(wait(key.call(&limit, NOW + 500 * MS, 2)), 900);
    assert_eq!(wait(key.call(&limit, NOW + 500 * MS, 4)), NEVER);
    assert!(!key.call(&limit, NOW + SECOND - 1, 1).allowed);
    assert!(key.call(&limit, NOW + SECOND, 1).allowed);
    assert_eq!(key.remaining(&limit, NOW + 1400 * MS - 1), 0);
    assert_eq!(key.remaining(&limit, NOW + 1400 * MS), 2);
}

#[test]
fn a_denial_and_a_report_leave_nothing_to_store() {
    let (limit, mut key) = (exact(3, 1000), Key::default());
    key.call(&limit, NOW, 3);
    for (later, cost) in [(0, 0), (0, 1), (1, 4), (1000 * MS, 4)] {
        assert_eq!(
            key.evaluate(&limit, NOW + later, cost, Mode::Check).update,
            None
        );
    }
}

#[test]
fn a_longer_window_keeps_the_key_that_long_and_only_once() {
    let (short, long, mut key) = (exact(3, 1000), exact(3, 3_600_000), Key::default());
    key.call(&short, NOW, 3);
    assert_eq!(key.evaluate(&long, NOW, 0, Mode::Check).update, None);
    let denied = key.store(&long, NOW + SECOND, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 3_599_000);
    assert!(denied.update.is_some());
    let kept_ms = key.0.as_ref().unwrap().expire_at_ms();
    assert_eq!(denied.expiry.at_ms, kept_ms);
    assert!(kept_ms * MS >= NOW + 3_600_000 * MS);
    assert_eq!(
        key.evaluate(&long, NOW + 2 * SECOND, 1, Mode::Check).update,
        None
    );
    // Where nothing is in use, nothing needs to be kept.
    let (mut idle, later) = (Key::default(), NOW + 7_200_000 * MS);
    idle.call(&short, NOW, 3);
    assert_eq!(idle.evaluate(&long, later, 4, Mode::Check).update, None);
}

#[test]
fn a_step_back_moves_the_past_along_and_is_noticed_once() {
    let (limit, mut key) = (exact(3, 1000), Key::default());
    key.call(&limit, NOW, 1);
    key.call(&limit, NOW + 400 * MS, 2);
    let back = NOW - 365 * 86_400 * SECOND;
    assert_eq!(key.evaluate(&limit, back, 0, Mode::Check).update, None);
    let denied = key.store(&limit, back, 1, Mode::Check);
    // As it stood at the last call: one unit of 400 ms ago, two of now.
    assert_eq!(wait(denied.decision), 600);
    assert!(denied.update.is_some());
    assert_eq!(key.evaluate(&limit, back + 1, 1, Mode::Check).update, None);
    assert!(key.call(&limit, back + 600 * MS, 1).allowed);
    assert_eq!(wait(key.call(&limit, back + 600 * MS, 2)), 400);
}

#[test]
fn a_step_back_below_the_epoch_keeps_the_order() {
    let (limit, mut key) = (exact(3, MAX_PERIOD_MS), Key::default());
    key.call(&limit, NOW, 1);
    key.call(&limit, NOW + SECOND, 1);
    assert_eq!(key.call(&limit, 0, 1).remaining, 0);
    assert_eq!(wait(key.call(&limit, 0, 1)) as u64, MAX_PERIOD_MS - 1000);
    let blob = key.0.as_ref().unwrap().blob();
    assert_eq!(rl_core::State::decode_blob(&blob).unwrap().blob(), blob);
}

#[test]
fn forced_units_push_the_next_call_back() {
    let (limit, mut key) = (exact(10, 1000), Key::default());
    let forced = key.force(&limit, NOW, MAX_COUNT);
    assert_eq!((forced.allowed, forced.remaining), (true, 0));
    assert_eq!(wait(key.call(&limit, NOW + 1, 1)), 1000);
    for _ in 0..1000 {
        key.force(&limit, NOW + 1, MAX_COUNT);
    }
    assert_eq!(wait(key.call(&limit, NOW + 1, 1)), 1000);
    assert_eq!(key.remaining(&limit, NOW + SECOND + 1), 10);
}

#[test]
fn a_key_expires_on_the_full_second_behind_its_window() {
    let (limit, mut key) = (exact(10, 1000), Key::default());
    let first = key.store(&limit, NOW, 1, Mode::Check).expiry;
    assert_eq!(
        (first.at_ms, first.unchanged),
        ((NOW + SECOND).div_ceil(SECOND) * 1000, false)
    );
    let again = key.store(&limit, NOW + 800 * MS, 1, Mode::Check).expiry;
    assert_eq!((again.at_ms, again.unchanged), (first.at_ms, true));
}

#[test]
fn a_clock_beyond_all_dates_counts_as_the_last_date() {
    let (limit, mut key) = (exact(10, 1000), Key::default());
    key.call(&limit, MAX_TIME_US, 10);
    assert_eq!(wait(key.call(&limit, u64::MAX, 1)), 1000);
    assert_eq!(wait(key.call(&limit, 0, 1)), 1000);
}

#[test]
fn a_limit_out_of_range_is_refused() {
    use rl_core::ExactLimit;
    assert!(ExactLimit::new(MAX_EXACT_LIMIT, MAX_PERIOD_MS).is_ok());
    assert_eq!(
        ExactLimit::new(MAX_EXACT_LIMIT + 1, 1),
        Err(Error::ExactLimit)
    );
    assert_eq!(ExactLimit::new(1, 0), Err(Error::Window));
    assert!(
        Error::ExactLimit
            .message()
            .contains(&MAX_EXACT_LIMIT.to_string())
    );
}

/// Gaps that often repeat a moment, or land on the edge of a window of 1 ms.
fn calls() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let gap = prop_oneof![Just(0u64), 0..300u64, 990..1010u64, Just(1000)];
    proptest::collection::vec((gap, 1..=4u64), 1..200)
}

proptest! {
    #![proptest_config(crate::key::cases(300))]

    #[test]
    fn no_window_holds_more_than_the_limit_and_no_denial_is_without_cause(
        calls in calls(),
        size in 4..40u64,
    ) {
        let (limit, mut key) = (exact(size, 1), Key::default());
        let (mut now, mut admitted) = (NOW, Vec::new());
        for (gap, cost) in calls {
            now += gap;
            // All that was admitted in the window of 1000 µs that ends now.
            let in_use: u64 = admitted.iter().filter(|&&(at, _)| now - at < 1000).map(|(_, units)| units).sum();
            let answer = key.call(&limit, now, cost);
            prop_assert_eq!(answer.allowed, in_use + cost <= size);
            if answer.allowed {
                admitted.push((now, cost));
            }
        }
        // Windows are fullest where they begin with a call.
        for &(start, _) in &admitted {
            let within = admitted.iter().filter(|&&(at, _)| (start..start + 1000).contains(&at));
            prop_assert!(within.map(|(_, units)| units).sum::<u64>() <= size);
        }
    }

    /// Usage under another window is at least what no call could have dropped, at most all of it.
    #[test]
    fn changed_windows_keep_what_is_in_use(
        calls in proptest::collection::vec((0..3000u64, 1..=4u64, 1..=3u64), 1..200),
    ) {
        let (mut key, mut now, mut taken, mut window_before) = (Key::default(), NOW, Vec::new(), 0);
        let mut kept: Vec<(u64, u64)> = Vec::new();
        for (gap, cost, window_ms) in calls {
            now += gap;
            let (limit, window) = (exact(MAX_EXACT_LIMIT, window_ms), window_ms * MS);
            let sum = |entries: &[(u64, u64)]| {
                let live = entries.iter().filter(|&&(at, _)| now - at < window);
                live.map(|(_, units)| units).sum::<u64>()
            };
            let used = MAX_EXACT_LIMIT - key.remaining(&limit, now);
            prop_assert!(sum(&kept) <= used && used <= sum(&taken));
            prop_assert!(key.call(&limit, now, cost).allowed);
            kept.retain(|&(at, _)| now - at < window.max(window_before));
            kept.push((now, cost));
            taken.push((now, cost));
            window_before = window;
        }
    }
}
