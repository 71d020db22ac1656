//! The queue: allowed calls learn how long to wait, and proceed evenly spaced.

use crate::key::{Key, MS, NOW, SECOND, bucket, leak, wait};
use rl_core::{Error, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, MAX_WAIT_MS, Mode, NEVER};

#[test]
fn departures_of_a_burst_are_evenly_spaced() {
    // 10 a second leave; 5 may queue, the one that goes at once among them.
    let (limit, mut key) = (leak(5, 10, 1000), Key::default());
    for call in 0..5 {
        let admitted = key.call(&limit, NOW, 1);
        assert!(admitted.allowed);
        assert_eq!(admitted.retry_after_ms, call * 100);
        assert_eq!(admitted.reset_after_ms as i64, call * 100 + 100);
    }
    assert_eq!(wait(key.call(&limit, NOW, 1)), 100);
    // However calls come in, each leaves 100 ms after the one before.
    let mut last = NOW + 400 * MS;
    for call in 1..200 {
        let at = NOW + call * 61 * MS;
        let answer = key.call(&limit, at, 1);
        if answer.allowed {
            let leaves = at + answer.retry_after_ms as u64 * MS;
            assert!(
                (last + 100 * MS..=last + 101 * MS).contains(&leaves),
                "call {call}"
            );
            last = leaves;
        }
    }
}

#[test]
fn a_delay_is_the_time_until_what_is_ahead_has_drained() {
    let (limit, mut key) = (leak(10, 3, 1000), Key::default());
    assert_eq!(key.call(&limit, NOW, 7).retry_after_ms, 0);
    // 7 at 3 a second: 2333⅓ ms, of which a part has passed.
    assert_eq!(key.peek(&limit, NOW, 1).retry_after_ms, 2334);
    assert_eq!(key.peek(&limit, NOW + 333, 1).retry_after_ms, 2334);
    assert_eq!(key.peek(&limit, NOW + 334, 1).retry_after_ms, 2333);
    // A call that costs nothing gets the same wait; a forced call also waits for the queue.
    assert_eq!(key.peek(&limit, NOW, 0).retry_after_ms, 2334);
    assert_eq!(key.force(&limit, NOW, 100).retry_after_ms, 2334);
    assert_eq!(key.force(&limit, NOW, 1).retry_after_ms, 35_667);
    assert_eq!(key.call(&limit, NOW + 36 * SECOND, 1).retry_after_ms, 0);
}

#[test]
fn a_denial_says_when_there_is_room_and_not_when_it_would_leave() {
    let (limit, mut key) = (leak(10, 1, 1000), Key::default());
    key.call(&limit, NOW, 10);
    assert_eq!(wait(key.call(&limit, NOW, 3)), 3000);
    assert_eq!(wait(key.call(&limit, NOW, 11)), NEVER);
    assert_eq!(key.call(&limit, NOW + 3 * SECOND, 3).retry_after_ms, 7000);
}

#[test]
fn but_for_the_delay_it_is_a_bucket() {
    let (queue, tokens) = (leak(7, 3, 1000), bucket(7, 3, 1000));
    let (mut one, mut other) = (Key::default(), Key::default());
    for call in 0..500 {
        let (at, cost) = (
            NOW + call * call * 7919 % 3_000_017 + call * 300_000,
            call % 4,
        );
        let (mut queued, taken) = (one.call(&queue, at, cost), other.call(&tokens, at, cost));
        if queued.allowed {
            queued.retry_after_ms = 0;
        }
        assert_eq!(queued, taken);
    }
}

#[test]
fn a_step_back_drains_nothing_and_is_noticed_once() {
    let (limit, mut key) = (leak(10, 1, 1000), Key::default());
    key.call(&limit, NOW, 10);
    let back = NOW - 1000 * SECOND;
    assert_eq!(wait(key.call(&limit, back, 1)), 1000);
    assert_eq!(key.evaluate(&limit, back + 1, 1, Mode::Check).update, None);
    assert_eq!(key.call(&limit, back + SECOND, 1).retry_after_ms, 9000);
}

#[test]
fn extremes_neither_overflow_nor_lie() {
    let (limit, mut key) = (leak(MAX_COUNT, 1, MAX_PERIOD_MS), Key::default());
    assert_eq!(key.call(&limit, NOW, MAX_COUNT - 1).retry_after_ms, 0);
    assert_eq!(key.call(&limit, NOW, 1).retry_after_ms as u64, MAX_WAIT_MS);
    // A clock beyond all dates counts as the last date, for the delay as well.
    let (limit, mut key) = (leak(10, 10, 1000), Key::default());
    key.call(&limit, MAX_TIME_US, 5);
    assert_eq!(key.call(&limit, u64::MAX, 1).retry_after_ms, 500);
}

#[test]
fn a_limit_out_of_range_is_refused() {
    use rl_core::LeakLimit;
    assert!(LeakLimit::new(MAX_COUNT, MAX_COUNT, MAX_PERIOD_MS).is_ok());
    assert_eq!(LeakLimit::new(MAX_COUNT + 1, 1, 1), Err(Error::Capacity));
    assert_eq!(LeakLimit::new(1, 0, 1), Err(Error::Rate));
    assert_eq!(LeakLimit::new(1, MAX_COUNT + 1, 1), Err(Error::Rate));
    assert_eq!(LeakLimit::new(1, 1, 0), Err(Error::Period));
}
