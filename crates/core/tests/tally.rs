//! Totals, and what they were in the last minute.

#![allow(missing_docs)]

use proptest::prelude::*;
use rl_core::{Counted, Tally};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// The beginning of a minute.
const NOON: u64 = 1_800_014_400 * SECOND;

#[test]
fn kinds_are_counted_apart() {
    let tally = Tally::new(NOON);
    for (n, what) in Counted::ALL.into_iter().enumerate() {
        tally.add(what, n as u64 + 1, NOON);
    }
    for (n, what) in Counted::ALL.into_iter().enumerate() {
        assert_eq!(tally.total(what), n as u64 + 1, "{}", what.name());
        assert_eq!(tally.per_minute(what, NOON), n as u64 + 1);
    }
    assert_eq!(tally.since_us(), NOON);
}

#[test]
fn the_previous_minute_fades() {
    let tally = Tally::new(NOON);
    tally.add(Counted::Denied, 600, NOON + 30 * SECOND);
    let at = |seconds: u64| tally.per_minute(Counted::Denied, NOON + seconds * SECOND);
    assert_eq!(at(59), 600);
    assert_eq!(at(60), 600);
    assert_eq!(at(75), 450);
    tally.add(Counted::Denied, 7, NOON + 75 * SECOND);
    assert_eq!(at(90), 307);
    assert_eq!(at(119), 17);
    assert_eq!(at(120), 7);
    assert_eq!(at(180), 0, "gone after an idle minute");
    assert_eq!(tally.total(Counted::Denied), 607);
}

#[test]
fn idle_minutes_are_not_the_previous_one() {
    let tally = Tally::new(NOON);
    tally.add(Counted::Allowed, 9, NOON);
    assert_eq!(tally.per_minute(Counted::Allowed, NOON + 2 * MINUTE), 0);
    tally.add(Counted::Allowed, 1, NOON + 9 * MINUTE);
    assert_eq!(tally.per_minute(Counted::Allowed, NOON + 9 * MINUTE), 1);
}

#[test]
fn a_clock_that_steps_back_loses_no_count() {
    let tally = Tally::new(NOON);
    tally.add(Counted::Allowed, 8, NOON + 5);
    tally.add(Counted::Allowed, 1, NOON - 30 * SECOND);
    assert_eq!(tally.per_minute(Counted::Allowed, NOON - 30 * SECOND), 5);
    assert_eq!(tally.total(Counted::Allowed), 9);
    assert_eq!(tally.per_minute(Counted::Allowed, 0), 1, "and far back");
}

#[test]
fn totals_end_at_the_largest_number() {
    let tally = Tally::new(u64::MAX);
    tally.add(Counted::Refunded, u64::MAX, u64::MAX);
    tally.add(Counted::Refunded, 1, u64::MAX);
    assert_eq!(tally.total(Counted::Refunded), u64::MAX);
    assert_eq!(tally.per_minute(Counted::Refunded, u64::MAX), u64::MAX);
}

proptest! {
    /// Never less than the last 60 s hold of the current minute, never more than two minutes hold.
    #[test]
    fn the_estimate_lies_between_what_surely_counts_and_what_may(
        steps in prop::collection::vec((0..40 * SECOND, 1..1000_u64), 1..60),
    ) {
        let tally = Tally::new(NOON);
        let (mut now, mut seen) = (NOON, Vec::new());
        for (step, amount) in steps {
            now += step;
            tally.add(Counted::Allowed, amount, now);
            seen.push((now, amount));
            let minute = now - now % MINUTE;
            let since = |from: u64| seen.iter().filter(|(at, _)| *at >= from).map(|(_, n)| n).sum();
            let (least, most): (u64, u64) = (since(minute), since(minute - MINUTE));
            let estimate = tally.per_minute(Counted::Allowed, now);
            prop_assert!((least..=most).contains(&estimate), "{least} <= {estimate} <= {most}");
        }
    }
}
