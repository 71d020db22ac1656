//! SLIDE with PRECISION: a hard limit, and what happens when the precision or the window changes.

use crate::key::{Key, MINUTE, MS, NOW, SECOND, parts, slide, wait};
use proptest::prelude::*;
use rl_core::{Error, MAX_COUNT, MAX_PERIOD_MS, MAX_PRECISION, MIN_PRECISION, Mode, SlideLimit};

/// What was charged, and when: the list from which the tests recompute everything.
#[derive(Default)]
struct Charges(Vec<(u64, u64)>);

impl Charges {
    fn add(&mut self, at_us: u64, units: u64) {
        self.0.push((at_us, units));
    }

    /// Units charged in the `span_us` that end at `now_us`.
    fn within(&self, now_us: u64, span_us: u64) -> u64 {
        let counts = |&&(at_us, _): &&(u64, u64)| now_us - at_us < span_us;
        self.0.iter().filter(counts).map(|(_, units)| units).sum()
    }
}

fn part_us(window_us: u64, n: u8) -> u64 {
    window_us.div_ceil(n.into())
}

#[test]
fn every_part_counts_in_full_until_it_has_left_the_window() {
    // 10 s in 5 parts of 2 s.
    let (limit, mut key) = (parts(100, 10_000, 5), Key::default());
    assert_eq!(key.call(&limit, NOW, 60).reset_after_ms, 12_000);
    key.call(&limit, NOW + 2 * SECOND, 40);
    for (elapsed_us, remaining) in [
        (2 * SECOND, 0),
        (10 * SECOND, 0),
        (12 * SECOND - 1, 0),
        (12 * SECOND, 60),
        (14 * SECOND - 1, 60),
        (14 * SECOND, 100),
    ] {
        let left = key.remaining(&limit, NOW + elapsed_us);
        assert_eq!((elapsed_us, left), (elapsed_us, remaining));
    }
    assert_eq!(wait(key.call(&limit, NOW + 2 * SECOND, 30)), 10_000);
    assert_eq!(wait(key.call(&limit, NOW + 2 * SECOND, 61)), 12_000);
}

#[test]
fn a_part_is_rounded_up_to_whole_microseconds() {
    // 1 ms in 60 parts: 17 µs each, 61 of them in total.
    let (limit, mut key) = (parts(160, 1, 60), Key::default());
    key.call(&limit, NOW, 160);
    assert_eq!(key.remaining(&limit, NOW + 61 * 17 - 1), 0);
    assert_eq!(key.remaining(&limit, NOW + 61 * 17), 160);
}

#[test]
fn a_denial_and_a_report_leave_nothing_to_store_but_a_step_back_is_noticed_once() {
    let (limit, mut key) = (parts(10, 1000, 4), Key::default());
    key.call(&limit, NOW, 10);
    for (later, cost) in [(0, 0), (0, 1), (1249 * MS, 9)] {
        let outcome = key.evaluate(&limit, NOW + later, cost, Mode::Check);
        assert_eq!(outcome.update, None);
    }
    let back = NOW - MINUTE;
    assert_eq!(key.evaluate(&limit, back, 0, Mode::Check).update, None);
    let denied = key.store(&limit, back, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 1250);
    assert!(denied.update.is_some());
    assert_eq!(key.evaluate(&limit, back + 1, 1, Mode::Check).update, None);
    assert!(!key.peek(&limit, back + 1249 * MS, 1).allowed);
    assert!(key.call(&limit, back + 1250 * MS, 1).allowed);
}

#[test]
fn a_change_carries_everything_into_the_part_that_ends_now() {
    for (from, to, new_window_ms) in [
        (4, 2, 60_000),
        (4, 8, 30_000),
        (4, 4, 10_000),
        (1, 4, 60_000),
    ] {
        let (old, new) = (parts(100, 60_000, from), parts(100, new_window_ms, to));
        let mut key = Key::default();
        key.call(&old, NOW, 50);
        key.call(&old, NOW + 50 * SECOND, 40);
        let at = |ms: u64| NOW + 55 * SECOND + ms * MS;
        let moved = key.store(&new, at(0), 10, Mode::Check);
        assert_eq!(moved.decision.remaining, 0, "from {from} to {to}");
        // The carried 90 leave with the part that ended at the change, the new 10 one part later.
        let part_ms = new_window_ms / u64::from(to);
        assert_eq!(key.remaining(&new, at(new_window_ms) - 1), 0);
        assert_eq!(key.remaining(&new, at(new_window_ms)), 90);
        assert_eq!(key.remaining(&new, at(new_window_ms + part_ms)), 100);
        assert_eq!(moved.decision.reset_after_ms, new_window_ms + part_ms);
        assert_eq!(moved.expiry.at_ms, at(new_window_ms + part_ms).div_ceil(MS));
        assert_eq!(key.0.unwrap().expire_at_ms(), moved.expiry.at_ms);
    }
}

#[test]
fn two_windows_are_carried_over_without_the_estimate() {
    let (plain, precise) = (slide(100, 60_000), parts(150, 60_000, 6));
    let mut key = Key::default();
    key.call(&plain, NOW, 80);
    let at = NOW + MINUTE + 30 * SECOND;
    key.call(&plain, at, 40);
    // The estimate is 40 + 40, but the first 80 may all be recent.
    assert_eq!(key.remaining(&plain, at), 20);
    assert_eq!(key.remaining(&precise, at), 30);
    assert_eq!(key.call(&precise, at, 20).remaining, 10);
    assert_eq!(key.remaining(&precise, at + MINUTE - 1), 10);
    assert_eq!(key.remaining(&precise, at + MINUTE), 130);
}

#[test]
fn without_a_precision_usage_becomes_the_previous_count() {
    let (precise, plain) = (parts(100, 60_000, 6), slide(100, 60_000));
    let mut key = Key::default();
    key.call(&precise, NOW, 50);
    key.call(&precise, NOW + 20 * SECOND, 30);
    let at = NOW + 30 * SECOND;
    let moved = key.call(&plain, at, 10);
    assert_eq!((moved.remaining, moved.reset_after_ms), (10, 120_000));
    // The 80 fade over the minute that has just started.
    assert_eq!(key.remaining(&plain, at + 30 * SECOND), 50);
    assert_eq!(key.remaining(&plain, at + MINUTE), 90);
}

#[test]
fn until_a_call_is_allowed_the_stored_counts_decide() {
    // (stored, asked, when the 60 and the 40 leave what is stored)
    for (stored, asked, first_ms, second_ms) in [
        (slide(100, 60_000), parts(100, 60_000, 6), 120_000, 120_000),
        (slide(100, 60_000), parts(100, 10_000, 6), 120_000, 120_000),
        (parts(100, 60_000, 6), slide(100, 60_000), 70_000, 80_000),
        (parts(100, 60_000, 6), parts(100, 60_000, 2), 70_000, 80_000),
        (parts(100, 60_000, 6), parts(100, 20_000, 6), 70_000, 80_000),
    ] {
        let mut key = Key::default();
        key.call(&stored, NOW, 60);
        key.call(&stored, NOW + 12 * SECOND, 40);
        for (cost, until_ms) in [(1, first_ms), (60, first_ms), (61, second_ms)] {
            let at = NOW + 13 * SECOND;
            let denied = key.evaluate(&asked, at, cost, Mode::Check);
            assert_eq!(denied.update, None);
            assert_eq!(wait(denied.decision) as u64, until_ms - 13_000, "{asked}");
            let until = NOW + until_ms * MS;
            assert!(!key.peek(&asked, until - 1, cost).allowed);
            assert!(key.peek(&asked, until, cost).allowed);
        }
    }
    // A previous window leaves with the current one, as a whole.
    let (plain, precise) = (slide(100, 60_000), parts(100, 60_000, 6));
    let mut key = Key::default();
    key.call(&plain, NOW, 80);
    key.call(&plain, NOW + 100 * SECOND, 30);
    let at = NOW + 100 * SECOND;
    assert_eq!(key.remaining(&precise, at), 0);
    assert_eq!(wait(key.peek(&precise, at, 70)), 20_000);
    assert_eq!(wait(key.peek(&precise, at, 71)), 80_000);
}

#[test]
fn a_precision_is_between_2_and_60() {
    let limit = SlideLimit::new(10, 1000).unwrap();
    assert_eq!(limit.precision(), None);
    for precise in [MIN_PRECISION, MAX_PRECISION] {
        let limit = limit.with_precision(precise).unwrap();
        assert_eq!(limit.precision(), Some(precise));
    }
    assert_eq!((MIN_PRECISION, MAX_PRECISION), (2, 60));
    for wrong in [0, 1, 61, u8::MAX] {
        assert_eq!(limit.with_precision(wrong), Err(Error::Precision));
    }
}

#[test]
fn extremes_neither_overflow_nor_lie() {
    let (limit, mut key) = (parts(MAX_COUNT, MAX_PERIOD_MS, 60), Key::default());
    let window = MAX_PERIOD_MS * MS;
    for part in 0..61 {
        key.force(&limit, NOW + part * (window / 60), MAX_COUNT);
        key.force(&limit, NOW + part * (window / 60), 1 << 52);
    }
    assert!(wait(key.call(&limit, NOW + window, MAX_COUNT)) as u64 > MAX_PERIOD_MS);
    assert_eq!(key.remaining(&limit, NOW + 3 * window), MAX_COUNT);
    // All of it in one part, which saturates.
    for _ in 0..20 {
        key.force(&limit, NOW + window, MAX_COUNT);
    }
    key.force(&slide(1, 1), NOW + window, 1);
    assert_eq!(key.force(&parts(1, 1, 60), NOW + window, 1).remaining, 0);
}

/// It reads every reply, uses the whole limit at the worst moments, and calls again exactly when the reply says so.
#[test]
fn an_adversary_gets_the_limit_and_no_more() {
    const SIZE: u64 = 100;
    const WINDOW: u64 = 60 * SECOND;
    for n in MIN_PRECISION..=MAX_PRECISION {
        let part = part_us(WINDOW, n);
        let (limit, mut key) = (parts(SIZE, 60_000, n), Key::default());
        let (mut now, mut charges, mut most) = (NOW, Charges::default(), 0);
        key.call(&limit, now, 1);
        charges.add(now, 1);
        for round in 0..500 {
            // The last moment of a part, the first of the next, and whenever a reply says so.
            now = match round % 3 {
                0 => NOW + ((now - NOW) / part + 1) * part - 1,
                1 => now + 1,
                _ => match key.peek(&limit, now, 1 + round % SIZE) {
                    decision if decision.allowed => now,
                    denied => now + denied.retry_after_ms as u64 * MS,
                },
            };
            let units = key.remaining(&limit, now);
            if units > 0 {
                assert!(key.call(&limit, now, units).allowed);
                charges.add(now, units);
            }
            let used = charges.within(now, WINDOW);
            assert!(used <= SIZE, "{used} within a window, PRECISION {n}");
            most = most.max(used);
        }
        assert_eq!(most, SIZE, "the whole limit is available, PRECISION {n}");
    }
}

/// A random limit: precise ones most of the time, 1 for a plain window.
fn precision() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(1u8), 3 => 2..=16u8, 1 => 17..=60u8]
}

proptest! {
    #![proptest_config(crate::key::cases(400))]

    /// One limit: hard, and every unit is back within a window and a part.
    #[test]
    fn no_window_allows_more_than_the_limit_and_units_return_in_time(
        n in 2..=60u8,
        size in 1..40u64,
        calls in proptest::collection::vec(
            (prop_oneof![Just(0), 0..60u64, 0..1200u64], 1..=9u64), 1..200),
    ) {
        let window = 1000;
        let (limit, mut key) = (parts(size, 1, n), Key::default());
        let (mut now, mut charges) = (NOW, Charges::default());
        for (gap, cost) in calls {
            now += gap;
            if key.call(&limit, now, cost).allowed {
                charges.add(now, cost);
            }
            let used = charges.within(now, window);
            prop_assert!(used <= size, "{used} within a window");
            let late = charges.within(now, part_us(window, n) * (u64::from(n) + 1));
            let counted = size - key.remaining(&limit, now);
            prop_assert!((used..=late).contains(&counted), "{used} ≤ {counted} ≤ {late}");
        }
    }

    /// The guarantee survives another precision, a shorter window, a switch from and to plain SLIDE, peeks, expiry and
    /// a clock that steps back. (Not covered: FORCE, refunds, a longer window, a clock that steps forward.)
    #[test]
    fn changes_and_steps_back_keep_the_guarantee(
        calls in proptest::collection::vec(
            (
                prop_oneof![3 => 0..200u64, 1 => 0..2500u64],
                1..=9u64,
                prop_oneof![6 => Just(None), 1 => (precision(), 0..3u64).prop_map(Some)],
                prop_oneof![9 => Just(0), 1 => 0..5000u64],
            ),
            1..150,
        ),
        first in precision(),
        size in 1..40u64,
    ) {
        let (mut n, mut window_ms) = (first, 4u64);
        let (mut key, mut charges) = (Key::default(), Charges::default());
        // The clock shows less than the time that has really passed.
        let (mut real, mut behind) = (NOW, 0);
        for (gap, cost, change, step_back) in calls {
            real += gap;
            behind += step_back;
            let now = real - behind;
            if let Some((next, shorter)) = change {
                // Two plain windows of different lengths only exchange estimates.
                let plain = n == 1 && next == 1;
                window_ms = if plain { window_ms } else { window_ms.saturating_sub(shorter).max(1) };
                n = next;
            }
            let limit = parts(size, window_ms, n);
            key = key.until_it_expires(now);
            let denied = key.peek(&limit, now, cost);
            if !denied.allowed && denied.retry_after_ms > 0 {
                // The retry promise, whatever is stored.
                let mut waiting = key.clone();
                waiting.call(&limit, now, cost);
                let later = now + denied.retry_after_ms as u64 * MS;
                prop_assert!(waiting.peek(&limit, later, cost).allowed);
                prop_assert!(!waiting.peek(&limit, later - MS, cost).allowed);
            }
            if key.call(&limit, now, cost).allowed {
                charges.add(real, cost);
                let used = charges.within(real, window_ms * MS);
                prop_assert!(n == 1 || used <= size, "{used} within {window_ms} ms, {limit}");
            }
        }
    }
}

#[test]
fn the_expiry_moves_with_the_part() {
    let (limit, mut key) = (parts(10, 60_000, 6), Key::default());
    let start = NOW.next_multiple_of(10 * SECOND);
    let mut expiry = |at_us| key.store(&limit, at_us, 1, Mode::Check).expiry;
    let first = expiry(start);
    let same = expiry(start + 9 * SECOND);
    let next = expiry(start + 10 * SECOND);
    assert!(!first.unchanged);
    assert_eq!((same.at_ms, same.unchanged), (first.at_ms, true));
    assert_eq!((next.at_ms, next.unchanged), (first.at_ms + 10_000, false));
}
