//! SLIDE with PRECISION: how much a window allows at most, and what happens when the precision changes.

use crate::key::{Key, MINUTE, MS, NOW, SECOND, parts, slide, wait};
use proptest::prelude::*;
use rl_core::{Error, MAX_COUNT, MAX_PERIOD_MS, Mode};

#[test]
fn only_the_oldest_of_the_parts_fades() {
    // 10 s in 5 parts of 2 s.
    let (limit, mut key) = (parts(100, 10_000, 5), Key::default());
    assert_eq!(key.call(&limit, NOW, 60).reset_after_ms, 12_000);
    key.call(&limit, NOW + 2 * SECOND, 40);
    for (elapsed_ms, remaining) in [
        (2000, 0),
        (9999, 0),
        (10_000, 0),
        (10_033, 0),
        (10_034, 1),
        (11_000, 30),
        (12_000, 60),
        (13_000, 80),
        (14_000, 100),
    ] {
        let at = NOW + elapsed_ms * MS;
        assert_eq!(
            (elapsed_ms, key.remaining(&limit, at)),
            (elapsed_ms, remaining)
        );
    }
    assert_eq!(wait(key.call(&limit, NOW + 2 * SECOND, 30)), 9000);
    assert_eq!(wait(key.call(&limit, NOW + 2 * SECOND, 80)), 11_000);
}

#[test]
fn a_part_is_rounded_up_to_whole_microseconds() {
    // 1 ms in 64 parts: 16 µs each, 1024 in total, and one more that fades.
    let (limit, mut key) = (parts(160, 1, 64), Key::default());
    key.call(&limit, NOW, 160);
    assert_eq!(key.remaining(&limit, NOW + 1024), 0);
    assert_eq!(key.remaining(&limit, NOW + 1025), 10);
    assert_eq!(key.remaining(&limit, NOW + 1039), 150);
    assert_eq!(key.remaining(&limit, NOW + 1040), 160);
}

#[test]
fn a_denial_and_a_report_leave_nothing_to_store_but_a_step_back_is_noticed_once() {
    let (limit, mut key) = (parts(10, 1000, 4), Key::default());
    key.call(&limit, NOW, 10);
    for (later, cost) in [(0, 0), (0, 1), (1100 * MS, 9)] {
        assert_eq!(
            key.evaluate(&limit, NOW + later, cost, Mode::Check).update,
            None
        );
    }
    let back = NOW - MINUTE;
    assert_eq!(key.evaluate(&limit, back, 0, Mode::Check).update, None);
    let denied = key.store(&limit, back, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 1025);
    assert!(denied.update.is_some());
    assert_eq!(key.evaluate(&limit, back + 1, 1, Mode::Check).update, None);
    assert!(key.call(&limit, back + 1025 * MS, 1).allowed);
}

#[test]
fn another_precision_carries_the_usage_over() {
    for (from, to) in [(1, 4), (4, 1), (4, 2)] {
        let (old, new) = (parts(100, 60_000, from), parts(100, 60_000, to));
        let mut key = Key::default();
        key.call(&old, NOW, 90);
        // What is stored decides until a call is allowed.
        let before = key.peek(&old, NOW + SECOND, 20);
        assert_eq!(key.call(&new, NOW + SECOND, 20), before);
        assert_eq!(
            key.evaluate(&new, NOW + SECOND, 20, Mode::Check).update,
            None
        );
        let moved = key.store(&new, NOW + SECOND, 10, Mode::Check);
        assert_eq!(moved.decision.remaining, 0, "from {from} to {to}");
        // The carried 90 stay until the last part of the window, and have faded with it.
        let part = 60_000 / u64::from(to);
        let at = |ms: u64| NOW + SECOND + ms * MS;
        assert_eq!(key.remaining(&new, at(60_000 - part)), 0);
        assert_eq!(key.remaining(&new, at(60_000 - part / 2)), 45);
        assert_eq!(key.remaining(&new, at(60_000)), 90);
        assert_eq!(moved.decision.reset_after_ms, 60_000 + part);
        assert_eq!(moved.expiry.at_ms, at(60_000 + part).div_ceil(MS));
        assert_eq!(key.0.unwrap().expire_at_ms(), moved.expiry.at_ms);
    }
}

#[test]
fn a_precision_of_1_is_the_usual_window() {
    let (one, usual) = (parts(10, 1000, 1), slide(10, 1000));
    assert_eq!(one, usual);
    use rl_core::{MAX_PRECISION, SlideLimit};
    let limit = SlideLimit::new(10, 1000).unwrap();
    assert!(limit.with_precision(MAX_PRECISION).is_ok());
    for wrong in [0, MAX_PRECISION + 1, u8::MAX] {
        assert_eq!(limit.with_precision(wrong), Err(Error::Precision));
    }
}

#[test]
fn extremes_neither_overflow_nor_lie() {
    let (limit, mut key) = (parts(MAX_COUNT, MAX_PERIOD_MS, 64), Key::default());
    let window = MAX_PERIOD_MS * MS;
    for part in 0..65 {
        key.force(&limit, NOW + part * (window / 64), MAX_COUNT);
        key.force(&limit, NOW + part * (window / 64), 1 << 52);
    }
    assert!(wait(key.call(&limit, NOW + window, MAX_COUNT)) as u64 > MAX_PERIOD_MS);
    assert_eq!(key.remaining(&limit, NOW + 3 * window), MAX_COUNT);
    key.force(&slide(1, 1), NOW + window, 1);
    assert_eq!(key.force(&parts(1, 1, 64), NOW + window, 1).remaining, 0);
}

proptest! {
    #![proptest_config(crate::key::cases(300))]

    /// The bound that the docs state: a limit in n parts in a row, and in any window at most what one part
    /// admitted more.
    #[test]
    fn a_window_admits_at_most_one_part_too_much(
        n in 2..=16u8,
        calls in proptest::collection::vec((prop_oneof![Just(0), 0..200u64, 900..1100u64], 1..=5u64), 1..200),
    ) {
        let (size, window) = (20, 1000);
        let part = u64::div_ceil(window, n.into());
        let (limit, mut key) = (parts(size, 1, n), Key::default());
        let (mut now, mut admitted, mut anchor) = (NOW, Vec::new(), NOW);
        for (gap, cost) in calls {
            now += gap;
            if key.remaining(&limit, now) == size {
                // As good as new: parts begin here.
                anchor = now;
            }
            if key.call(&limit, now, cost).allowed {
                admitted.push((now, anchor + (now - anchor) / part * part, cost));
            }
        }
        let sum = |counts: &dyn Fn(u64, u64) -> bool| -> u64 {
            admitted.iter().filter(|&&(at, start, _)| counts(at, start)).map(|(_, _, cost)| cost).sum()
        };
        for &(at, start, _) in &admitted {
            let row = sum(&|_, begun| (start..start + part * u64::from(n)).contains(&begun));
            prop_assert!(row <= size, "{row} in {n} parts from {start}");
            let in_part = sum(&|_, begun| begun == start);
            let in_window = sum(&|when, _| (at..at + window).contains(&when));
            prop_assert!(in_window <= size + in_part, "{in_window} from {at}");
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
