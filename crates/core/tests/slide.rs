//! The sliding window, boundary by boundary.

use crate::key::{Key, MINUTE, MS, NOW, SECOND, slide, wait};
use rl_core::{Decision, Error, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, Mode, NEVER};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// `previous` units in a first minute and `current` in the one that begins at the returned time.
fn two_minutes(previous: u64, current: u64) -> (Key, u64) {
    let (limit, mut key) = (slide(1000, 60_000), Key::default());
    let start = NOW + MINUTE;
    assert!(key.call(&limit, NOW, 1).allowed);
    assert!(key.call(&limit, start - 1, previous - 1).allowed);
    if current > 0 {
        assert!(key.call(&limit, start, current).allowed);
    }
    (key, start)
}

#[test]
fn a_new_window_starts_even_if_the_last_one_was_refunded() {
    let (limit, mut key) = (slide(10, 60_000), Key::default());
    key.call(&limit, NOW, 5);
    key.call(&limit, NOW + MINUTE, 3);
    // Nothing is left of the current window, so there is nothing to fade in the next one.
    assert_eq!(key.refund(NOW + MINUTE, 3), 3);
    let later = NOW + 2 * MINUTE + MINUTE / 2;
    assert_eq!(key.remaining(&limit, later), 10);
    assert_eq!(key.call(&limit, later, 10).reset_after_ms, 120_000);
    assert_eq!(wait(key.call(&limit, later + MINUTE, 1)), 6000);
}

#[test]
fn alice_has_148_left_after_a_search_at_847() {
    let (limit, mut key) = (slide(1000, 60_000), Key::default());
    key.call(&limit, NOW, 847);
    let answer = key.call(&limit, NOW + SECOND, 5);
    assert_eq!(
        answer,
        Decision {
            index: 0,
            allowed: true,
            limit: 1000,
            remaining: 148,
            retry_after_ms: 0,
            reset_after_ms: 119_000
        }
    );
}

/// As docs/commands/rl.slide.md says about small limits.
#[test]
fn a_caller_that_is_always_at_its_limit_gets_one_unit_less_per_window() {
    let per_100_windows = |units: u64| {
        let (limit, mut key) = (slide(units, 60_000), Key::default());
        let begin = NOW + 4 * MINUTE;
        let (mut now, mut allowed) = (NOW, 0);
        while now < begin + 100 * MINUTE {
            let decision = key.call(&limit, now, 1);
            if !decision.allowed {
                now += wait(decision) as u64 * MS;
            } else if now >= begin {
                allowed += 1;
            }
        }
        allowed
    };
    assert_eq!(per_100_windows(1), 50);
    for units in [2, 3, 5, 10, 50, 100] {
        assert_eq!(per_100_windows(units), 100 * (units - 1), "{units}");
    }
}

#[test]
fn half_way_the_previous_minute_counts_half() {
    let (key, start) = two_minutes(80, 40);
    assert_eq!(key.remaining(&slide(100, 60_000), start + 30 * SECOND), 20);
}

#[test]
fn the_boundary_trick_does_not_pass() {
    let (limit, mut key) = (slide(100, 60_000), Key::default());
    let noon = NOW - NOW % MINUTE;
    key.call(&limit, noon - MINUTE, 1);
    assert!(key.call(&limit, noon - SECOND, 99).allowed);
    // The window rolls over at noon, but the first unit fades only from then on.
    assert_eq!(wait(key.call(&limit, noon, 100)), 60_000);
    assert_eq!(key.remaining(&limit, noon), 0);
    assert_eq!(key.remaining(&limit, noon + SECOND), 1);
}

#[test]
fn a_window_begins_with_the_first_call_after_idleness() {
    let (limit, mut key) = (slide(10, 60_000), Key::default());
    assert_eq!(key.call(&limit, NOW, 1).reset_after_ms, 120_000);
    let later = NOW + 2 * MINUTE;
    assert_eq!(key.call(&limit, later, 1).reset_after_ms, 120_000);
}

#[test]
fn a_window_rolls_over_at_its_end_and_is_forgotten_at_twice_its_width() {
    let limit = slide(100, 60_000);
    let mut key = Key::default();
    key.call(&limit, NOW, 100);
    for (elapsed, remaining, reset_after_ms) in [
        (0, 0, 120_000),
        (MINUTE - 1, 0, 60_001),
        (MINUTE, 0, 60_000),
        (MINUTE + 1, 0, 60_000),
        // The first whole unit has faded after a hundredth of the window, not a microsecond sooner.
        (MINUTE + MINUTE / 100 - 1, 0, 59_401),
        (MINUTE + MINUTE / 100, 1, 59_400),
        (2 * MINUTE - 1, 99, 1),
        (2 * MINUTE, 100, 0),
        (2 * MINUTE + 1, 100, 0),
    ] {
        let answer = key.peek(&limit, NOW + elapsed, 0);
        let seen = (elapsed, answer.remaining, answer.reset_after_ms);
        assert_eq!(seen, (elapsed, remaining, reset_after_ms));
    }
}

#[test]
fn rolling_over_twice_keeps_only_the_last_window() {
    let (mut key, start) = two_minutes(80, 40);
    let limit = slide(1000, 60_000);
    // 40 from the minute before, of which a quarter has faded; the 80 are gone.
    assert_eq!(key.remaining(&limit, start + MINUTE + 15 * SECOND), 970);
    assert_eq!(
        key.call(&limit, start + MINUTE + 15 * SECOND, 10).remaining,
        960
    );
    assert_eq!(key.remaining(&limit, start + 2 * MINUTE), 990);
}

#[test]
fn a_denial_says_when_enough_of_the_previous_window_has_faded() {
    let (mut key, start) = two_minutes(100, 0);
    let limit = slide(100, 60_000);
    // 100 · (60 s − e) / 60 s ≤ 100 − 25 from e = 15 s.
    assert_eq!(wait(key.call(&limit, start + 1, 25)), 15_000);
    assert_eq!(wait(key.call(&limit, start + 15 * SECOND - 1, 25)), 1);
    assert!(key.call(&limit, start + 15 * SECOND, 25).allowed);
}

#[test]
fn a_denial_by_the_current_window_waits_into_the_next() {
    let (limit, mut key) = (slide(3, 1000), Key::default());
    key.call(&limit, NOW, 3);
    // 3 · (1000 ms − e) / 1000 ms ≤ 2 from e = 333⅓ ms of the next window.
    assert_eq!(wait(key.call(&limit, NOW, 1)), 1334);
    assert_eq!(wait(key.call(&limit, NOW + 333, 1)), 1334);
    assert_eq!(wait(key.call(&limit, NOW + 334, 1)), 1333);
    assert_eq!(wait(key.call(&limit, NOW, 3)), 2000);
    assert!(!key.peek(&limit, NOW + 1333 * MS, 1).allowed);
    assert!(!key.peek(&limit, NOW + 1_333_333, 1).allowed);
    assert!(key.peek(&limit, NOW + 1_333_334, 1).allowed);
}

#[test]
fn a_denial_and_a_report_leave_nothing_to_store() {
    let (limit, mut key) = (slide(10, 1000), Key::default());
    assert_eq!(key.evaluate(&limit, NOW, 0, Mode::Check).update, None);
    assert_eq!(key.evaluate(&limit, NOW, 0, Mode::Force).update, None);
    assert_eq!(key.evaluate(&limit, NOW, 11, Mode::Check).update, None);
    key.call(&limit, NOW, 10);
    let rolled = NOW + 1500 * MS;
    assert_eq!(key.evaluate(&limit, rolled, 6, Mode::Check).update, None);
    assert_eq!(key.evaluate(&limit, rolled, 0, Mode::Check).update, None);
}

#[test]
fn a_limit_of_0_blocks_the_key() {
    let (limit, mut key) = (slide(0, 60_000), Key::default());
    assert_eq!(
        key.call(&limit, NOW, 1),
        Decision {
            index: 0,
            allowed: false,
            limit: 0,
            remaining: 0,
            retry_after_ms: NEVER,
            reset_after_ms: 0
        }
    );
    assert!(key.call(&limit, NOW, 0).allowed);
}

#[test]
fn a_cost_above_the_limit_can_never_pass() {
    let limit = slide(100, 60_000);
    let mut key = Key::default();
    assert!(key.peek(&limit, NOW, 100).allowed);
    assert_eq!(wait(key.call(&limit, NOW, 101)), NEVER);
    key.call(&limit, NOW, 50);
    assert_eq!(wait(key.call(&limit, NOW, MAX_COUNT)), NEVER);
}

#[test]
fn force_goes_past_the_limit_and_later_calls_wait() {
    let (limit, mut key) = (slide(100, 60_000), Key::default());
    let forced = key.force(&limit, NOW, 1000);
    assert_eq!((forced.allowed, forced.remaining), (true, 0));
    assert_eq!(forced.retry_after_ms, 0);
    // A report is a call too: 1000 fall to 100 after nine tenths of the next window.
    assert_eq!(wait(key.call(&limit, NOW, 0)), 60_000 + 54_000);
    assert_eq!(wait(key.call(&limit, NOW, 1)), 60_000 + 54_060);
    assert!(key.force(&limit, NOW, 0).allowed);
    assert_eq!(key.force(&slide(2000, 60_000), NOW, 100).remaining, 900);
}

#[test]
fn a_new_limit_applies_at_once_and_keeps_the_usage() {
    let mut key = Key::default();
    key.call(&slide(100, 60_000), NOW, 90);
    assert_eq!(key.call(&slide(1000, 60_000), NOW, 10).remaining, 900);
    let lowered = key.call(&slide(50, 60_000), NOW, 1);
    assert_eq!(
        (lowered.allowed, lowered.limit, lowered.remaining),
        (false, 50, 0)
    );
    // 100 fall to 49 after 51 % of the next window.
    assert_eq!(lowered.retry_after_ms, 60_000 + 30_600);
}

#[test]
fn another_window_carries_the_estimate_over_rounded_up() {
    let (mut key, start) = two_minutes(80, 40);
    let hour = slide(100, 3_600_000);
    let at = start + 30 * SECOND + 1;
    // 40 + 39.999… in use: 80, and no free refill.
    assert_eq!(key.peek(&hour, at, 0).remaining, 20);
    let moved = key.call(&hour, at, 5);
    assert_eq!((moved.remaining, moved.reset_after_ms), (15, 2 * 3_600_000));
    // The 80 fade over the new hour: a quarter of it leaves 60.
    assert_eq!(key.remaining(&hour, at + 15 * MINUTE), 100 - 60 - 5);
    assert_eq!(key.remaining(&hour, at + 60 * MINUTE), 95);
}

#[test]
fn a_denial_under_another_window_waits_by_the_window_in_store() {
    let mut key = Key::default();
    key.call(&slide(100, 60_000), NOW, 100);
    let hour = slide(100, 3_600_000);
    let denied = key.evaluate(&hour, NOW, 50, Mode::Check);
    assert_eq!(denied.update, None);
    assert_eq!(wait(denied.decision), 90_000);
    assert!(!key.peek(&hour, NOW + 90 * SECOND - 1, 50).allowed);
    assert!(key.call(&hour, NOW + 90 * SECOND, 50).allowed);
}

#[test]
fn a_step_back_restarts_the_window_with_its_usage() {
    let (mut key, start) = two_minutes(80, 40);
    let limit = slide(100, 60_000);
    let back = start - 3650 * 24 * 60 * MINUTE;
    assert_eq!(key.remaining(&limit, start + 30 * SECOND), 20);
    // 80 + 40 count in full again; 100 from the one, 20 from the other.
    let denied = key.store(&limit, back, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 15_750);
    assert!(
        denied.update.is_some(),
        "or every call would begin the wait anew"
    );
    assert_eq!(wait(key.call(&limit, back + 15 * SECOND, 1)), 750);
    assert!(key.call(&limit, back + 15_750 * MS, 1).allowed);
}

#[test]
fn a_small_step_back_within_the_window_is_no_event() {
    let (mut key, start) = two_minutes(80, 40);
    let limit = slide(1000, 60_000);
    key.call(&limit, start + 30 * SECOND, 1);
    assert_eq!(key.remaining(&limit, start), 1000 - 80 - 41);
    assert_eq!(
        key.call(&slide(100, 60_000), start, 1).retry_after_ms,
        16_500
    );
    assert_eq!(key.call(&limit, start, 1).reset_after_ms, 120_000);
}

#[test]
fn only_a_call_that_consumes_may_notice_a_step_back() {
    let (limit, mut key) = (slide(10, 1000), Key::default());
    key.call(&limit, NOW, 10);
    let back = NOW - 1;
    assert_eq!(key.evaluate(&limit, back, 0, Mode::Check).update, None);
    assert_eq!(key.evaluate(&limit, NOW, 1, Mode::Check).update, None);
    assert!(key.evaluate(&limit, back, 1, Mode::Check).update.is_some());
    assert!(key.evaluate(&limit, back, 11, Mode::Check).update.is_some());
}

#[test]
fn calls_within_a_window_leave_the_expiry_alone() {
    let (limit, mut key) = (slide(100, 60_000), Key::default());
    let first = key.store(&limit, NOW, 1, Mode::Check).expiry;
    assert!(!first.unchanged);
    assert_eq!(first.at_ms, (NOW + 2 * MINUTE).div_ceil(1000));
    assert!(
        key.store(&limit, NOW + MINUTE - 1, 1, Mode::Check)
            .expiry
            .unchanged
    );
    let rolled = key.store(&limit, NOW + MINUTE, 1, Mode::Check).expiry;
    assert!(!rolled.unchanged);
    assert_eq!(rolled.at_ms, first.at_ms + 60_000);
}

#[test]
fn the_largest_limit_is_exact_over_the_longest_window() {
    let (limit, mut key) = (slide(MAX_COUNT, MAX_PERIOD_MS), Key::default());
    let window = MAX_PERIOD_MS * MS;
    assert_eq!(key.call(&limit, NOW, MAX_COUNT).remaining, 0);
    assert_eq!(
        wait(key.call(&limit, NOW, MAX_COUNT)),
        2 * MAX_PERIOD_MS as i64
    );
    assert_eq!(wait(key.call(&limit, NOW, 1)), MAX_PERIOD_MS as i64 + 1);
    // One microsecond fades (2^53−1) / window = 28.56… units, of which 28 are whole.
    assert_eq!(key.remaining(&limit, NOW + window), 0);
    assert_eq!(key.remaining(&limit, NOW + window + 1), MAX_COUNT / window);
    assert_eq!(
        key.remaining(&limit, NOW + 2 * window - 1),
        MAX_COUNT - MAX_COUNT / window - 1
    );
    assert_eq!(key.remaining(&limit, NOW + 2 * window), MAX_COUNT);
}

#[test]
fn the_shortest_window_is_exact_to_the_microsecond() {
    let (limit, mut key) = (slide(MAX_COUNT, 1), Key::default());
    key.call(&limit, NOW, 1000);
    assert_eq!(key.remaining(&limit, NOW + 1999), MAX_COUNT - 1);
    assert_eq!(key.remaining(&limit, NOW + 1001), MAX_COUNT - 999);
    assert_eq!(key.remaining(&limit, NOW + 2000), MAX_COUNT);
    assert_eq!(wait(key.peek(&limit, NOW, MAX_COUNT)), 2);
}

#[test]
fn a_thousand_forced_calls_of_the_largest_cost_only_saturate() {
    let (limit, mut key) = (slide(MAX_COUNT, DAY_MS), Key::default());
    for _ in 0..1000 {
        key.force(&limit, NOW, MAX_COUNT);
    }
    // 2^56 units fall to 2^53−2, a little less than 1/8, at 7/8 of the next window.
    let waiting = wait(key.call(&limit, NOW, 1));
    assert_eq!(waiting as u64, 2 * DAY_MS - DAY_MS / 8 + 1);
    assert!(!key.peek(&limit, NOW + (waiting as u64 - 1) * MS, 1).allowed);
    assert!(key.peek(&limit, NOW + waiting as u64 * MS, 1).allowed);
    // Carried over into another window, and again.
    for window_ms in [1, DAY_MS, MAX_PERIOD_MS] {
        assert_eq!(key.force(&slide(1, window_ms), NOW, MAX_COUNT).remaining, 0);
    }
    assert_eq!(
        key.remaining(&limit, NOW + 2 * MAX_PERIOD_MS * MS),
        MAX_COUNT
    );
}

#[test]
fn a_clock_beyond_all_dates_counts_as_the_last_date() {
    let (limit, mut key) = (slide(10, 1000), Key::default());
    key.call(&limit, MAX_TIME_US, 10);
    assert_eq!(wait(key.call(&limit, u64::MAX, 1)), 1100);
    assert_eq!(key.call(&limit, 0, 1).reset_after_ms, 2000);
}

#[test]
fn a_limit_out_of_range_is_refused() {
    use rl_core::SlideLimit;
    assert!(SlideLimit::new(MAX_COUNT, MAX_PERIOD_MS).is_ok());
    assert_eq!(SlideLimit::new(MAX_COUNT + 1, 1), Err(Error::Limit));
    assert_eq!(SlideLimit::new(1, 0), Err(Error::Window));
    assert_eq!(SlideLimit::new(1, MAX_PERIOD_MS + 1), Err(Error::Window));
}
