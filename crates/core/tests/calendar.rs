//! FIXED by the calendar, and OFFSET: every boundary, compared with the crate `time`.

use proptest::prelude::*;
use proptest::sample::select;
use rl_core::syntax::Spec;
use rl_core::{Calendar, Error, FieldValue, FixedLimit, Limit, MAX_PERIOD_MS, MAX_TIME_US, Mode};
use rl_core::{State, Update};
use time::{Date, Month, OffsetDateTime, Time};

use crate::key::{Key, MS, SECOND, calendar, fixed, fixed_with_offset, wait};
use crate::oracle::calendar::window;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;
const DAY: u64 = DAY_MS as u64 * MS;

/// Midnight of a date, in microseconds.
fn date(year: i32, month: u8, day: u8) -> u64 {
    let month = Month::try_from(month).unwrap();
    let date = Date::from_calendar_date(year, month, day).unwrap();
    let at: OffsetDateTime = date.with_time(Time::MIDNIGHT).assume_utc();
    at.unix_timestamp() as u64 * SECOND
}

/// Checks one window from its first to its last moment: what is charged stays until it ends, and no longer.
fn check_window(limit: &Limit, start: u64, end: u64) {
    let mut key = Key::default();
    let reset_ms = (end - start).div_ceil(MS);
    assert_eq!(
        key.call(limit, start, 1).reset_after_ms,
        reset_ms,
        "{limit}"
    );
    for (at, wait_ms) in [
        (start, reset_ms),
        (start + 1, reset_ms),
        (
            start + (end - start) / 2,
            (end - start - (end - start) / 2).div_ceil(MS),
        ),
        (end - MS, 1),
        (end - 1, 1),
    ] {
        assert_eq!(wait(key.peek(limit, at, 1)) as u64, wait_ms, "{limit}");
    }
    let state = key.0.clone().unwrap();
    assert_eq!(state.expire_at_ms(), end / MS, "{limit}");
    assert!(key.call(limit, end, 1).allowed, "{limit}");
    // The moment before belongs to the window before.
    let mut before = Key::default();
    assert_eq!(before.call(limit, start - 1, 1).reset_after_ms, 1);
    assert!(before.call(limit, start, 1).allowed, "{limit}");
}

#[test]
fn months_are_as_long_as_they_are() {
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for year in [1972, 1999, 2000, 2023, 2024, 2100, 2400] {
        let leap = matches!(year, 1972 | 2000 | 2024 | 2400);
        for (month, days) in (1..).zip(lengths) {
            let days = days + u64::from(leap && month == 2);
            let start = date(year, month, 1);
            check_window(&calendar(1, Calendar::Month, 0), start, start + days * DAY);
        }
        let days = 365 + u64::from(leap);
        let start = date(year, 1, 1);
        check_window(&calendar(1, Calendar::Year, 0), start, start + days * DAY);
    }
}

#[test]
fn days_start_at_midnight_and_weeks_on_monday() {
    // 2026-11-16 is a Monday.
    let monday = date(2026, 11, 16);
    check_window(&calendar(1, Calendar::Week, 0), monday, monday + 7 * DAY);
    check_window(&calendar(1, Calendar::Day, 0), monday, monday + DAY);
    // As a span, a week is counted from the epoch, which was a Thursday.
    let thursday = date(2026, 11, 19);
    check_window(&fixed(1, 7 * DAY_MS as u64), thursday, thursday + 7 * DAY);
}

#[test]
fn an_offset_moves_every_boundary() {
    let hour = HOUR_MS as u64 * MS;
    // Midnight in Tokyo is nine hours before midnight in UTC.
    let tokyo = date(2024, 2, 29) - 9 * hour;
    check_window(
        &calendar(1, Calendar::Day, -9 * HOUR_MS),
        tokyo,
        tokyo + DAY,
    );
    check_window(
        &fixed_with_offset(1, DAY_MS as u64, -9 * HOUR_MS),
        tokyo,
        tokyo + DAY,
    );
    check_window(
        &calendar(1, Calendar::Month, -9 * HOUR_MS),
        date(2024, 2, 1) - 9 * hour,
        date(2024, 3, 1) - 9 * hour,
    );
    // A billing month from the 15th on, and a year from July on.
    check_window(
        &calendar(1, Calendar::Month, 14 * DAY_MS),
        date(2024, 2, 15),
        date(2024, 3, 15),
    );
    check_window(
        &calendar(1, Calendar::Year, 181 * DAY_MS),
        date(2023, 7, 1),
        date(2023, 12, 31) + 182 * DAY,
    );
    // A week from Sunday on, and an hour from a quarter past on.
    let sunday = date(2026, 11, 15);
    check_window(
        &calendar(1, Calendar::Week, -DAY_MS),
        sunday,
        sunday + 7 * DAY,
    );
    let quarter = sunday + hour / 4;
    check_window(
        &fixed_with_offset(1, HOUR_MS as u64, HOUR_MS / 4),
        quarter,
        quarter + hour,
    );
    // The longest offsets.
    for sign in [-1, 1] {
        let offset = sign * (28 * DAY_MS - 1);
        let moved = |at: u64| at.wrapping_add_signed(offset * MS as i64);
        check_window(
            &calendar(1, Calendar::Month, offset),
            moved(date(2025, 3, 1)),
            moved(date(2025, 4, 1)),
        );
    }
}

#[test]
fn an_offset_is_shorter_than_the_window() {
    let month = FixedLimit::calendar(1, Calendar::Month).unwrap();
    for (limit, shortest_ms) in [
        (FixedLimit::new(1, 1).unwrap(), 1),
        (FixedLimit::new(1, 90_000).unwrap(), 90_000),
        (
            FixedLimit::new(1, MAX_PERIOD_MS).unwrap(),
            MAX_PERIOD_MS as i64,
        ),
        (FixedLimit::calendar(1, Calendar::Day).unwrap(), DAY_MS),
        (FixedLimit::calendar(1, Calendar::Week).unwrap(), 7 * DAY_MS),
        (month, 28 * DAY_MS),
        (
            FixedLimit::calendar(1, Calendar::Year).unwrap(),
            365 * DAY_MS,
        ),
    ] {
        for sign in [-1, 1] {
            let longest = sign * (shortest_ms - 1);
            assert_eq!(limit.with_offset(longest).unwrap().offset_ms(), longest);
            assert_eq!(limit.with_offset(sign * shortest_ms), Err(Error::Offset));
        }
        assert_eq!(limit.with_offset(i64::MIN), Err(Error::Offset));
        assert_eq!(limit.with_offset(i64::MAX), Err(Error::Offset));
    }
    assert_eq!(
        FixedLimit::calendar(1 << 53, Calendar::Day),
        Err(Error::Limit)
    );
}

#[test]
fn the_text_form_is_what_was_written() {
    for (text, shown) in [
        ("FIXED 1000 month", "FIXED 1000 month"),
        (
            "fixed 1000 MONTH 3 offset -9h",
            "FIXED 1000 month OFFSET -9h",
        ),
        ("FIXED 5 Week OFFSET 86400", "FIXED 5 week OFFSET 1d"),
        ("FIXED 5 day 1 OFFSET 1500ms", "FIXED 5 day OFFSET 1500ms"),
        ("FIXED 5 year OFFSET -364d", "FIXED 5 year OFFSET -364d"),
        ("FIXED 5 1d OFFSET 0", "FIXED 5 1d"),
        ("FIXED 5 1d OFFSET -0h", "FIXED 5 1d"),
        ("FIXED 5 90 OFFSET 15", "FIXED 5 90s OFFSET 15s"),
    ] {
        let spec = Spec::parse(text.as_bytes()).unwrap();
        assert_eq!(spec.limit.to_string(), shown);
        assert_eq!(Spec::parse(shown.as_bytes()).unwrap().limit, spec.limit);
    }
    for (text, error) in [
        ("FIXED 5 months", Error::FixedWindow),
        ("FIXED 5 1month", Error::FixedWindow),
        ("FIXED 5 -1d", Error::FixedWindow),
        ("FIXED 5 0", Error::FixedWindow),
        ("FIXED 5", Error::MissingWindow),
        ("FIXED 5 month OFFSET", Error::Offset),
        ("FIXED 5 month OFFSET 28d", Error::Offset),
        ("FIXED 5 month OFFSET -28d", Error::Offset),
        ("FIXED 5 year OFFSET 365d", Error::Offset),
        ("FIXED 5 day OFFSET 24h", Error::Offset),
        ("FIXED 5 1m OFFSET 60", Error::Offset),
        ("FIXED 5 1m OFFSET --5", Error::Offset),
        ("FIXED 5 1m OFFSET +5", Error::Offset),
        ("FIXED 5 1m OFFSET -", Error::Offset),
        ("FIXED 5 1m OFFSET 5x", Error::Offset),
        ("FIXED 5 3650d OFFSET 9007199254740991d", Error::Offset),
        ("FIXED 5 1m OFFSET 5 OFFSET 6", Error::Offset),
        ("SLIDE 5 1m OFFSET 5", Error::TrailingWords),
        ("SLIDE 5 month", Error::Window),
        ("EXACT 5 day", Error::Window),
        ("BUCKET 5 1 day", Error::Period),
        ("LEAK 5 1 month", Error::Period),
    ] {
        assert_eq!(Spec::parse(text.as_bytes()).err(), Some(error), "{text}");
    }
}

#[test]
fn another_window_or_offset_keeps_the_count() {
    let noon = date(2024, 2, 29) + DAY / 2;
    let hours = |offset| fixed_with_offset(10, DAY_MS as u64, offset * HOUR_MS);
    for (first, second, end) in [
        (
            fixed(10, 60_000),
            calendar(10, Calendar::Month, 0),
            date(2024, 3, 1),
        ),
        (
            calendar(10, Calendar::Month, 0),
            calendar(10, Calendar::Day, 0),
            date(2024, 3, 1),
        ),
        (
            calendar(10, Calendar::Month, 0),
            calendar(10, Calendar::Month, DAY_MS),
            date(2024, 3, 2),
        ),
        (
            calendar(10, Calendar::Year, 0),
            calendar(10, Calendar::Week, 0),
            date(2024, 3, 4),
        ),
        (hours(0), hours(-9), date(2024, 2, 29) + 15 * DAY / 24),
    ] {
        let mut key = Key::default();
        key.call(&first, noon, 6);
        assert_eq!(key.remaining(&second, noon), 4, "no free refill: {second}");
        let moved = key.call(&second, noon, 1);
        assert_eq!(
            (moved.remaining, moved.reset_after_ms),
            (3, (end - noon) / MS)
        );
        assert_eq!(key.remaining(&second, end - 1), 3);
        assert_eq!(key.remaining(&second, end), 10);
    }
}

#[test]
fn a_step_back_over_a_boundary_keeps_the_usage_and_forward_ends_it() {
    for (limit, boundary) in [
        (calendar(10, Calendar::Month, 0), date(2024, 3, 1)),
        (
            calendar(10, Calendar::Month, 14 * DAY_MS),
            date(2024, 3, 15),
        ),
        (calendar(10, Calendar::Year, 0), date(2024, 1, 1)),
        (calendar(10, Calendar::Week, 0), date(2024, 3, 4)),
        (
            calendar(10, Calendar::Day, -9 * HOUR_MS),
            date(2024, 3, 1) - 9 * DAY / 24,
        ),
    ] {
        let mut key = Key::default();
        key.call(&limit, boundary, 10);
        // Back to the end of the window before: counted there, and recorded once.
        let denied = key.store(&limit, boundary - 5 * SECOND, 1, Mode::Check);
        assert_eq!(wait(denied.decision), 5000, "{limit}");
        assert!(denied.update.is_some());
        assert_eq!(denied.expiry.at_ms, boundary / MS);
        let again = key.evaluate(&limit, boundary - 4 * SECOND, 1, Mode::Check);
        assert_eq!((wait(again.decision), again.update), (4000, None));
        // Forward over the boundary: a new window.
        assert_eq!(key.call(&limit, boundary, 10).remaining, 0);
        // Far back, by years: usage stays, in the window there.
        let past = window_of(&limit, boundary / 2);
        assert_eq!(
            wait(key.call(&limit, boundary / 2, 1)) as u64,
            (past.1 - boundary / 2).div_ceil(MS)
        );
        assert_eq!(key.remaining(&limit, past.1), 10);
    }
}

/// The window of a limit around a time, as the oracle sees it.
fn window_of(limit: &Limit, now: u64) -> (i128, u64) {
    let text = limit.to_string();
    let mut words = text.split(' ').skip(2);
    let calendar = Calendar::from_name(words.next().unwrap().as_bytes()).unwrap();
    let Limit::Fixed(fixed) = limit else {
        unreachable!()
    };
    let (start, end) = window(calendar, i128::from(fixed.offset_ms()) * 1000, now.into());
    (start, end as u64)
}

#[test]
fn the_first_and_the_last_of_all_times_are_in_a_window() {
    for calendar_window in Calendar::ALL {
        let longest = calendar_window.shortest_ms() as i64 - 1;
        for offset_ms in [-longest, -1, 0, 1, longest] {
            let limit = calendar(10, calendar_window, offset_ms);
            // Windows that started before 1970.
            for now in [0, 1, 999, 1000, DAY] {
                let mut key = Key::default();
                let (start, end) = window_of(&limit, now);
                let reset_ms = (end - now).div_ceil(MS);
                assert_eq!(key.call(&limit, now, 3).reset_after_ms, reset_ms, "{limit}");
                assert_eq!(key.remaining(&limit, end - 1), 7, "{limit}");
                assert_eq!(key.remaining(&limit, end), 10, "{limit}");
                let state = key.0.unwrap();
                assert_eq!(State::decode_blob(&state.blob()).as_ref(), Ok(&state));
                let field = |name| {
                    let fields = state.inspect(now).into_iter();
                    fields
                        .filter(|field| field.name == name)
                        .map(|field| field.value)
                        .next()
                };
                let started_ms = u64::try_from(start / 1000).unwrap_or(0);
                assert_eq!(
                    field("window_started_at_ms"),
                    Some(FieldValue::Number(started_ms))
                );
                let length_ms = (i128::from(end) - start) as u64 / MS;
                assert_eq!(field("window_ms"), Some(FieldValue::Number(length_ms)));
                assert_eq!(
                    field("window_ends_at_ms"),
                    Some(FieldValue::Number(end / MS))
                );
            }
            // Beyond all dates.
            let mut key = Key::default();
            key.call(&limit, u64::MAX, 3);
            assert_eq!(key.remaining(&limit, MAX_TIME_US), 7, "{limit}");
            let state = key.0.unwrap();
            assert_eq!(State::decode_blob(&state.blob()), Ok(state));
        }
    }
}

#[test]
fn corrupt_calendar_windows_are_refused() {
    // Wide: the end of the window; its kind and nominal length; the offset in ms, times two; the count.
    let words = |kind: u64, end: u64, days: u64, offset: u64, count: u64| {
        [
            11 << 60 | end,
            (kind << 40) | (days * DAY_MS as u64),
            offset,
            count,
        ]
    };
    let ok = |words: [u64; 4]| State::decode(&words).is_ok();
    let (march, new_year) = (date(2024, 3, 1), date(2025, 1, 1));
    assert!(ok(words(1, march, 31, 0, 1)));
    assert!(ok(words(1, march + MS, 31, 2, 1)));
    assert!(ok(words(1, march - MS, 31, 1, 1)));
    assert!(ok(words(2, new_year, 366, 0, 1)));
    for wrong in [
        words(1, march + DAY, 31, 0, 1),
        words(1, march + 1, 31, 0, 1),
        words(1, march, 31, 2, 1),
        words(1, march, 28, 0, 1),
        words(1, march, 31, 0, 0),
        words(1, march, 31, 0, u64::MAX),
        words(1, 0, 31, 0, 1),
        // An offset of a whole window, and beyond.
        words(1, march + 28 * DAY, 31, 2 * 28 * DAY_MS as u64, 1),
        words(1, march, 31, (1 << 57) - 1, 1),
        words(2, march, 366, 0, 1),
        words(2, new_year, 31, 0, 1),
        words(3, march, 31, 0, 1),
        // Spans have no offset there.
        words(0, march, 31, 2, 1),
    ] {
        assert!(!ok(wrong), "{wrong:x?}");
    }
}

#[test]
fn a_replica_receives_what_is_stored() {
    for limit in [
        calendar(100, Calendar::Month, -9 * HOUR_MS),
        calendar(100, Calendar::Year, 364 * DAY_MS),
        calendar(100, Calendar::Week, 0),
    ] {
        let mut key = Key::default();
        let update = key
            .store(&limit, date(2024, 2, 29), 7, Mode::Check)
            .update
            .unwrap();
        assert_eq!(Update::decode_blob(&update.blob()), Ok(update));
    }
}

proptest! {
    #![proptest_config(crate::key::cases(3000))]

    /// Any time, any offset: the window is that of the crate `time`.
    #[test]
    fn every_window_is_that_of_an_independent_calendar(
        calendar_window in select(Calendar::ALL.to_vec()),
        thousandths in -1000..=1000i64,
        bits in 0..60u32,
        time in any::<u64>(),
    ) {
        let offset_ms = (calendar_window.shortest_ms() as i64 - 1) * thousandths / 1000;
        let limit = calendar(10, calendar_window, offset_ms);
        let now = time % (2 << bits).min(MAX_TIME_US - MAX_PERIOD_MS * MS);
        let (start, end) = window_of(&limit, now);
        let mut key = Key::default();
        prop_assert_eq!(key.call(&limit, now, 3).reset_after_ms, (end - now).div_ceil(MS));
        prop_assert_eq!(key.remaining(&limit, end - 1), 7);
        prop_assert_eq!(key.remaining(&limit, end), 10);
        if let Ok(start) = u64::try_from(start) {
            prop_assert_eq!(key.peek(&limit, start, 0).reset_after_ms, (end - start).div_ceil(MS));
            // A moment before, the clock has stepped back: the usage counts in the window there.
            if start > 0 {
                prop_assert_eq!(key.peek(&limit, start - 1, 0).reset_after_ms, 1);
            }
        }
    }
}
