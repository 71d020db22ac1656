//! Totals, and the rate in the last minute.

use proptest::prelude::*;
use rl_core::stats::{Counters, Outcome};

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// The beginning of a minute.
const NOON: u64 = 1_800_014_400 * SECOND;

#[test]
fn kinds_are_counted_apart() {
    let tally = Counters::new(NOON);
    for (n, what) in Outcome::ALL.into_iter().enumerate() {
        tally.add(what, n as u64 + 1, NOON);
    }
    for (n, what) in Outcome::ALL.into_iter().enumerate() {
        assert_eq!(tally.total(what), n as u64 + 1, "{}", what.name());
        assert_eq!(tally.per_minute(what, NOON), n as u64 + 1);
    }
    assert_eq!(tally.since_us(), NOON);
    assert_eq!(
        Outcome::ALL.map(Outcome::name),
        [
            "allowed",
            "denied",
            "shadow_denied",
            "forced",
            "refunded_units"
        ]
    );
}

#[test]
fn the_previous_minute_fades() {
    let tally = Counters::new(NOON);
    tally.add(Outcome::Denied, 600, NOON + 30 * SECOND);
    let at = |seconds: u64| tally.per_minute(Outcome::Denied, NOON + seconds * SECOND);
    assert_eq!(at(59), 600);
    assert_eq!(at(60), 600);
    assert_eq!(at(75), 450);
    tally.add(Outcome::Denied, 7, NOON + 75 * SECOND);
    assert_eq!(at(90), 307);
    assert_eq!(at(119), 17);
    assert_eq!(at(120), 7);
    assert_eq!(at(180), 0, "gone after an idle minute");
    assert_eq!(tally.total(Outcome::Denied), 607);
}

#[test]
fn the_previous_minute_fades_though_nobody_looked_in_between() {
    for (seconds, left) in [(60, 600), (61, 590), (75, 450), (119, 10), (120, 0)] {
        let tally = Counters::new(NOON);
        tally.add(Outcome::Denied, 600, NOON + 30 * SECOND);
        let now = NOON + seconds * SECOND;
        assert_eq!(tally.per_minute(Outcome::Denied, now), left, "{seconds} s");
    }
}

#[test]
fn one_is_counted_in_the_minute_that_is_current() {
    let tally = Counters::new(NOON);
    tally.increment(Outcome::Allowed);
    tally.increment(Outcome::Allowed);
    assert_eq!(tally.total(Outcome::Allowed), 2);
    assert_eq!(tally.per_minute(Outcome::Allowed, NOON), 2);
    assert_eq!(tally.total(Outcome::Denied), 0);
}

#[test]
fn idle_minutes_are_not_the_previous_one() {
    let tally = Counters::new(NOON);
    tally.add(Outcome::Allowed, 9, NOON);
    assert_eq!(tally.per_minute(Outcome::Allowed, NOON + 2 * MINUTE), 0);
    tally.add(Outcome::Allowed, 1, NOON + 9 * MINUTE);
    assert_eq!(tally.per_minute(Outcome::Allowed, NOON + 9 * MINUTE), 1);
}

#[test]
fn a_clock_that_steps_back_loses_no_count() {
    let tally = Counters::new(NOON);
    tally.add(Outcome::Allowed, 8, NOON + 5);
    tally.add(Outcome::Allowed, 1, NOON - 30 * SECOND);
    assert_eq!(tally.per_minute(Outcome::Allowed, NOON - 30 * SECOND), 5);
    assert_eq!(tally.total(Outcome::Allowed), 9);
    assert_eq!(tally.per_minute(Outcome::Allowed, 0), 1, "and far back");
}

#[test]
fn totals_end_at_the_largest_number() {
    let tally = Counters::new(u64::MAX);
    tally.add(Outcome::RefundedUnits, u64::MAX, u64::MAX);
    tally.add(Outcome::RefundedUnits, 1, u64::MAX);
    assert_eq!(tally.total(Outcome::RefundedUnits), u64::MAX);
    assert_eq!(tally.per_minute(Outcome::RefundedUnits, u64::MAX), u64::MAX);
}

proptest! {
    /// Never less than the last 60 s hold of the current minute, never more than two minutes hold.
    #[test]
    fn the_estimate_lies_between_what_surely_counts_and_what_may(
        steps in prop::collection::vec((0..40 * SECOND, 1..1000_u64), 1..60),
    ) {
        let tally = Counters::new(NOON);
        let (mut now, mut seen) = (NOON, Vec::new());
        for (step, amount) in steps {
            now += step;
            tally.add(Outcome::Allowed, amount, now);
            seen.push((now, amount));
            let minute = now - now % MINUTE;
            let since = |from: u64| seen.iter().filter(|(at, _)| *at >= from).map(|(_, n)| n).sum();
            let (least, most): (u64, u64) = (since(minute), since(minute - MINUTE));
            let estimate = tally.per_minute(Outcome::Allowed, now);
            prop_assert!((least..=most).contains(&estimate), "{least} <= {estimate} <= {most}");
        }
    }
}
