//! The fixed window, boundary by boundary.

use crate::key::{Key, MINUTE, MS, SECOND, fixed, wait};
use rl_core::{Decision, Error, FieldValue, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, Mode, NEVER};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const DAY: u64 = DAY_MS * MS;
/// 15 November 2023, 00:00 UTC.
const MIDNIGHT: u64 = 1_700_006_400_000_000;

#[test]
fn a_day_turns_at_midnight_utc_to_the_microsecond() {
    let (limit, mut key) = (fixed(10, DAY_MS), Key::default());
    let evening = MIDNIGHT - 3600 * SECOND;
    assert_eq!(
        key.call(&limit, evening, 10),
        Decision {
            index: 0,
            allowed: true,
            limit: 10,
            remaining: 0,
            retry_after_ms: 0,
            reset_after_ms: 3_600_000
        }
    );
    assert_eq!(wait(key.call(&limit, evening, 1)), 3_600_000);
    assert_eq!(wait(key.call(&limit, MIDNIGHT - 1, 1)), 1);
    assert_eq!(key.call(&limit, MIDNIGHT, 10).remaining, 0);
    assert_eq!(wait(key.call(&limit, MIDNIGHT, 1)), DAY_MS as i64);
}

#[test]
fn windows_are_counted_from_the_epoch_whatever_their_length() {
    for window_ms in [1, 7, 1000, 60_000, 86_400_001, MAX_PERIOD_MS] {
        let (limit, mut key) = (fixed(1, window_ms), Key::default());
        let edge = MIDNIGHT.next_multiple_of(window_ms * MS);
        assert!(key.call(&limit, edge - 1, 1).allowed);
        assert!(!key.call(&limit, edge - 1, 1).allowed);
        assert!(key.call(&limit, edge, 1).allowed, "{window_ms}");
        assert_eq!(wait(key.call(&limit, edge, 1)) as u64, window_ms);
    }
}

#[test]
fn a_denial_and_a_report_leave_nothing_to_store() {
    let (limit, mut key) = (fixed(10, 1000), Key::default());
    for (cost, mode) in [(0, Mode::Check), (0, Mode::Force), (11, Mode::Check)] {
        assert_eq!(key.evaluate(&limit, MIDNIGHT, cost, mode).update, None);
    }
    key.call(&limit, MIDNIGHT, 10);
    assert_eq!(key.evaluate(&limit, MIDNIGHT, 1, Mode::Check).update, None);
    let over = MIDNIGHT + SECOND;
    assert_eq!(key.evaluate(&limit, over, 11, Mode::Check).update, None);
}

#[test]
fn a_limit_of_0_blocks_and_a_cost_above_the_limit_never_passes() {
    let mut key = Key::default();
    assert_eq!(wait(key.call(&fixed(0, 1000), MIDNIGHT, 1)), NEVER);
    assert!(key.call(&fixed(0, 1000), MIDNIGHT, 0).allowed);
    assert_eq!(wait(key.call(&fixed(5, 1000), MIDNIGHT, 6)), NEVER);
    assert_eq!(key.call(&fixed(5, 1000), MIDNIGHT, 5).remaining, 0);
}

#[test]
fn force_goes_past_the_limit_until_the_window_turns() {
    let (limit, mut key) = (fixed(10, 60_000), Key::default());
    let forced = key.force(&limit, MIDNIGHT, 100);
    assert_eq!((forced.allowed, forced.remaining), (true, 0));
    assert_eq!(wait(key.call(&limit, MIDNIGHT + SECOND, 0)), 59_000);
    assert_eq!(key.remaining(&limit, MIDNIGHT + MINUTE), 10);
    for _ in 0..1000 {
        key.force(&fixed(MAX_COUNT, 60_000), MIDNIGHT, MAX_COUNT);
    }
    assert_eq!(
        wait(key.call(&fixed(MAX_COUNT, 60_000), MIDNIGHT, 0)),
        60_000
    );
}

#[test]
fn another_window_carries_what_is_used_and_the_stored_one_ends_a_denial() {
    let mut key = Key::default();
    key.call(&fixed(10, 60_000), MIDNIGHT, 10);
    let hour = fixed(15, 3_600_000);
    // The minute's usage counts while the minute lasts: 10 and 6 are too many until then.
    assert_eq!(wait(key.call(&hour, MIDNIGHT + SECOND, 6)), 59_000);
    assert_eq!(key.call(&hour, MIDNIGHT + SECOND, 5).remaining, 0);
    // Carried into the hour, all 15 stay until it is over.
    assert_eq!(wait(key.call(&hour, MIDNIGHT + MINUTE, 1)), 3_540_000);
    assert_eq!(
        wait(key.call(&fixed(10, 1000), MIDNIGHT + MINUTE, 1)),
        3_540_000
    );
    assert_eq!(key.remaining(&hour, MIDNIGHT + 60 * MINUTE), 15);
}

#[test]
fn a_step_back_keeps_the_usage_for_one_window_and_is_noticed_once() {
    let (limit, mut key) = (fixed(10, 60_000), Key::default());
    key.call(&limit, MIDNIGHT, 10);
    let back = MIDNIGHT - 365 * DAY + 20 * SECOND;
    assert_eq!(key.evaluate(&limit, back, 0, Mode::Check).update, None);
    let denied = key.store(&limit, back, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 40_000);
    assert!(denied.update.is_some());
    assert_eq!(denied.expiry.at_ms, (back + 40 * SECOND) / MS);
    assert_eq!(key.evaluate(&limit, back + 1, 1, Mode::Check).update, None);
    assert_eq!(wait(key.call(&limit, back + 39_999 * MS, 1)), 1);
    assert!(key.call(&limit, back + 40 * SECOND, 1).allowed);
}

#[test]
fn a_key_expires_with_its_window() {
    let (limit, mut key) = (fixed(10, 60_000), Key::default());
    let first = key.store(&limit, MIDNIGHT + 1, 1, Mode::Check).expiry;
    assert_eq!(
        (first.at_ms, first.unchanged),
        ((MIDNIGHT + MINUTE) / MS, false)
    );
    let again = key
        .store(&limit, MIDNIGHT + MINUTE - 1, 1, Mode::Check)
        .expiry;
    assert_eq!((again.at_ms, again.unchanged), (first.at_ms, true));
    let next = key.store(&limit, MIDNIGHT + MINUTE, 1, Mode::Check).expiry;
    assert_eq!((next.at_ms, next.unchanged), (first.at_ms + 60_000, false));
}

#[test]
fn a_clock_beyond_all_dates_counts_as_the_last_date() {
    let (limit, mut key) = (fixed(10, 1000), Key::default());
    // The longest window must still end at a representable time.
    let last = MAX_TIME_US - MAX_PERIOD_MS * MS;
    key.call(&limit, last, 10);
    let left = (1000 - last % SECOND / MS) as i64;
    assert_eq!(wait(key.call(&limit, last + 1, 1)), left);
    assert_eq!(wait(key.call(&limit, u64::MAX, 1)), left);
    assert_eq!(wait(key.call(&limit, 0, 1)), 1000);
}

#[test]
fn times_are_shown_in_milliseconds() {
    let mut key = Key::default();
    key.call(&fixed(5, 60_000), MIDNIGHT + 20 * SECOND, 2);
    let fields = key.0.unwrap().inspect(MIDNIGHT + MINUTE);
    let fields = fields.into_iter().map(|field| (field.name, field.value));
    let expected = [
        ("window_ms", 60_000),
        ("window_started_at_ms", MIDNIGHT / MS),
        ("count", 2),
        ("used", 0),
        ("window_ends_at_ms", MIDNIGHT / MS + 60_000),
    ];
    assert!(fields.eq(expected.map(|(name, value)| (name, FieldValue::Number(value)))));
}

#[test]
fn a_limit_out_of_range_is_refused() {
    use rl_core::FixedLimit;
    assert!(FixedLimit::new(MAX_COUNT, MAX_PERIOD_MS).is_ok());
    assert_eq!(FixedLimit::new(MAX_COUNT + 1, 1), Err(Error::Limit));
    assert_eq!(FixedLimit::new(1, 0), Err(Error::FixedWindow));
    let too_long = FixedLimit::new(1, MAX_PERIOD_MS + 1);
    assert_eq!(too_long, Err(Error::FixedWindow));
}
