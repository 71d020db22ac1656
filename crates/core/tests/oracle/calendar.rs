//! The calendar as the crate `time` knows it, which has nothing in common with the code.

use rl_core::Calendar;
use time::{Date, Duration, OffsetDateTime, Time};

/// The calendar repeats every 400 years, weekdays included. The crate knows fewer years than a clock may show.
const ERA_US: i128 = 146_097 * 86_400_000_000;

/// Start and end of the window that contains `now`, in microseconds.
pub fn window(calendar: Calendar, offset: i128, now: i128) -> (i128, i128) {
    let eras = (now - offset).div_euclid(ERA_US) * ERA_US;
    let at = OffsetDateTime::from_unix_timestamp_nanos((now - offset - eras) * 1000).unwrap();
    let today = at.date();
    let start = match calendar {
        Calendar::Day => today,
        Calendar::Week => today - Duration::days(today.weekday().number_days_from_monday().into()),
        Calendar::Month => today.replace_day(1).unwrap(),
        Calendar::Year => Date::from_ordinal_date(today.year(), 1).unwrap(),
    };
    let end = match calendar {
        Calendar::Day => start.next_day().unwrap(),
        Calendar::Week => start + Duration::WEEK,
        Calendar::Month => {
            let days = start.month().length(start.year());
            start + Duration::days(days.into())
        }
        Calendar::Year => Date::from_ordinal_date(start.year() + 1, 1).unwrap(),
    };
    let us = |date: Date| {
        date.with_time(Time::MIDNIGHT)
            .assume_utc()
            .unix_timestamp_nanos()
            / 1000
    };
    (us(start) + eras + offset, us(end) + eras + offset)
}
