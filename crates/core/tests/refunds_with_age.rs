//! RL.REFUND with AGE: a refund never takes units that may be newer than the charge, so that it cannot let more through
//! than the limit allows. Random traffic against a list of charges.

use crate::key::{Key, MS, NOW, Rule, SECOND, bucket, exact, fixed};
use proptest::prelude::*;
use rl_core::{Error, MAX_COUNT, MAX_PERIOD_MS, RefundRequest};

fn aged(units: u64, age_us: u64) -> RefundRequest {
    RefundRequest {
        units,
        age_us: Some(age_us),
        ..RefundRequest::default()
    }
}

/// A charge that was allowed, and what was refunded of it.
#[derive(Clone, Debug)]
struct Charge {
    at_us: u64,
    cost: u64,
    refunded: u64,
}

impl Charge {
    fn net(&self) -> u64 {
        self.cost - self.refunded
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Charge(u64),
    /// Refunds some units of one of the latest charges, which is said to be so much older than it is.
    Refund {
        back: usize,
        units: u64,
        slack_us: u64,
    },
}

fn rules() -> impl Strategy<Value = Rule> {
    let (limit, ms) = (1..40u64, prop_oneof![Just(7u64), Just(100), Just(1000)]);
    (limit, 1..40u64, ms, 0..6).prop_map(|(limit, rate, ms, kind)| match kind {
        0 => Rule::Slide(limit, ms, 1),
        1 => Rule::Slide(limit, ms, 5),
        2 => Rule::Fixed(limit, ms, 0),
        3 => Rule::Exact(limit, ms),
        4 => Rule::Bucket(limit, rate, ms),
        _ => Rule::Leak(limit, rate, ms),
    })
}

fn steps(span_us: u64) -> impl Strategy<Value = Vec<Step>> {
    let slack = prop_oneof![2 => Just(0), 1 => 0..span_us / 3 + 1];
    let step = prop_oneof![
        3 => (0..=span_us / 3).prop_map(Step::Wait),
        1 => Just(Step::Wait(span_us)),
        6 => (1..12u64).prop_map(Step::Charge),
        4 => (0..5usize, 1..12u64, slack)
            .prop_map(|(back, units, slack_us)| Step::Refund { back, units, slack_us }),
    ];
    proptest::collection::vec(step, 1..120)
}

/// The charges of a run. At least `kept` units of each charge are not refunded. `check` sees the key after each step.
fn run(
    rule: Rule,
    steps: &[Step],
    kept: u64,
    mut check: impl FnMut(&Key, &[Charge], u64) -> Result<(), TestCaseError>,
) -> Result<Vec<Charge>, TestCaseError> {
    let (limit, mut key, mut now_us) = (rule.limit(), Key::default(), NOW);
    let mut charges: Vec<Charge> = Vec::new();
    for step in steps {
        key = key.until_it_expires(now_us);
        match *step {
            Step::Wait(us) => now_us += us,
            Step::Charge(cost) => {
                if key.call(&limit, now_us, cost).allowed {
                    charges.push(Charge {
                        at_us: now_us,
                        cost,
                        refunded: 0,
                    });
                }
            }
            Step::Refund {
                back,
                units,
                slack_us,
            } => {
                let Some(charge) = charges.iter_mut().nth_back(back) else {
                    continue;
                };
                let units = units.min(charge.net().saturating_sub(kept));
                let age_us = now_us - charge.at_us + slack_us;
                let given = key.refund_with(now_us, aged(units, age_us));
                prop_assert!(given <= units);
                // Units that have lost weight are reported as what is left of them, but all of them are gone.
                charge.refunded += match rule {
                    Rule::Slide(_, _, 1) if given > 0 => units,
                    _ => given,
                };
            }
        }
        check(&key, &charges, now_us)?;
    }
    Ok(charges)
}

/// The most that `charges` came to in any interval, minus what the rule allows in it, both times the span.
fn excess(rule: Rule, charges: &[Charge]) -> i128 {
    let span_us = rule.span_us();
    let mut worst = i128::MIN;
    for (index, first) in charges.iter().enumerate() {
        let mut sum = 0;
        for last in &charges[index..] {
            let elapsed_us = last.at_us - first.at_us;
            let is_within = match rule {
                Rule::Fixed(..) => last.at_us / span_us == first.at_us / span_us,
                Rule::Exact(..) | Rule::Slide(..) => elapsed_us < span_us,
                _ => true,
            };
            if !is_within {
                break;
            }
            sum += i128::from(last.net()) * i128::from(span_us);
            let flow = if rule.drains() { rule.flow() } else { 0 };
            let allowed = i128::from(rule.size()) * i128::from(span_us)
                + i128::from(flow) * i128::from(elapsed_us);
            worst = worst.max(sum - allowed);
        }
    }
    worst
}

fn used(key: &Key, now_us: u64) -> u64 {
    let fields = key.0.as_ref().map(|state| state.inspect(now_us));
    let used = fields.iter().flatten().find(|field| field.name == "used");
    match used.map(|field| &field.value) {
        Some(rl_core::FieldValue::Number(used)) => *used,
        _ => 0,
    }
}

proptest! {
    #![proptest_config(crate::key::cases(1500))]

    /// Allowed minus refunded is never more than the limit: in any window, or of a bucket in any time.
    #[test]
    fn what_was_allowed_minus_what_was_refunded_stays_within_the_limit(
        (rule, steps) in rules()
            .prop_filter("an estimate", |rule| !matches!(rule, Rule::Slide(_, _, 1)))
            .prop_flat_map(|rule| (Just(rule), steps(rule.span_us()))),
    ) {
        let charges = run(rule, &steps, 0, |_, _, _| Ok(()))?;
        prop_assert!(excess(rule, &charges) <= 0, "{rule:?} {charges:?}");
    }

    /// Never less is in use than if only the rest had been charged, each at its time: for every algorithm by its own
    /// definition.
    #[test]
    fn a_refund_leaves_at_least_what_charging_less_would_have_left(
        (rule, steps) in rules().prop_flat_map(|rule| (Just(rule), steps(rule.span_us()))),
    ) {
        let limit = rule.limit();
        run(rule, &steps, 1, |key, charges, now_us| {
            let mut less = Key::default();
            for charge in charges {
                less = less.until_it_expires(charge.at_us);
                less.force(&limit, charge.at_us, charge.net());
            }
            let less = less.until_it_expires(now_us);
            prop_assert!(used(&less, now_us) <= used(key, now_us), "{rule:?} {charges:?}");
            Ok(())
        })?;
    }

    /// With a log of many chunks, the units that go are the latest of those that are old enough.
    #[test]
    fn exact_refunds_the_latest_units_that_are_old_enough(
        gaps in proptest::collection::vec((1..50u64, 1..5u64), 1..900),
        at in any::<prop::sample::Index>(),
        units in 1..3000u64,
        again in 1..300u64,
    ) {
        let (limit, mut key, mut now_us) = (exact(100_000, 1000), Key::default(), NOW);
        let mut entries = Vec::new();
        for (gap_us, cost) in gaps {
            now_us += gap_us;
            prop_assert!(key.call(&limit, now_us, cost).allowed);
            entries.push((now_us, cost));
        }
        let newest_us = entries[at.index(entries.len())].0;
        for units in [units, again] {
            let mut left = units;
            for (at_us, cost) in entries.iter_mut().rev().filter(|(at_us, _)| *at_us <= newest_us) {
                let taken = left.min(*cost);
                *cost -= taken;
                left -= taken;
                prop_assert!(*at_us <= newest_us);
            }
            let age_us = now_us - newest_us;
            prop_assert_eq!(key.refund_with(now_us, aged(units, age_us)), units - left);
            // What is left counts until its time comes, entry by entry.
            for late_us in (0..=1_000_000 + 50_000).step_by(997) {
                let at_us = now_us + late_us;
                let counts = entries.iter().filter(|(taken_us, _)| at_us - taken_us < 1_000_000);
                prop_assert_eq!(used(&key, at_us), counts.map(|(_, cost)| cost).sum::<u64>());
            }
            if let Some(state) = &key.0 {
                prop_assert_eq!(&rl_core::State::decode_blob(&state.blob()).unwrap().blob(), &state.blob());
            }
        }
    }
}

/// Today's refund of the latest units lets 200 through in a window of 100. With AGE it does not.
#[test]
fn no_200_in_a_fixed_window_of_100() {
    let window = 60 * SECOND;
    let start = NOW - NOW % window + window;
    let mut key = Key::default();
    let limit = fixed(100, 60_000);
    assert!(key.call(&limit, start - SECOND, 100).allowed);
    assert!(key.call(&limit, start, 100).allowed);
    let at = start + SECOND;
    let mut without = key.clone();
    assert_eq!(without.refund(at, 100), 100);
    assert!(without.call(&limit, at, 100).allowed, "200 in this window");
    assert_eq!(key.refund_with(at, aged(100, 2 * SECOND)), 0);
    assert!(!key.call(&limit, at, 1).allowed);
    // Of the current window, AGE refunds what it can be sure of.
    assert_eq!(key.refund_with(at, aged(30, SECOND)), 30);
    assert_eq!(key.refund_with(at, aged(30, SECOND + MS)), 0);
}

#[test]
fn no_150_within_a_third_of_a_second_of_an_exact_limit_of_100() {
    let mut key = Key::default();
    let limit = exact(100, 1000);
    assert!(key.call(&limit, NOW, 50).allowed);
    assert!(key.call(&limit, NOW + 800 * MS, 50).allowed);
    assert!(key.call(&limit, NOW + 1000 * MS, 50).allowed);
    let at = NOW + 1050 * MS;
    let mut without = key.clone();
    assert_eq!(without.refund(at, 50), 50);
    assert!(without.call(&limit, at, 50).allowed, "150 since 800 ms");
    assert_eq!(key.refund_with(at, aged(50, 1050 * MS)), 0);
    assert!(!key.call(&limit, at, 1).allowed);
    // The second charge still counts: it is refunded, and the newer one stays.
    assert_eq!(key.refund_with(at, aged(50, 250 * MS)), 50);
    assert_eq!(key.remaining(&limit, NOW + 1800 * MS), 50);
    assert_eq!(key.remaining(&limit, NOW + 2000 * MS), 100);
}

#[test]
fn no_195_at_once_from_a_bucket_of_100() {
    let mut key = Key::default();
    let limit = bucket(100, 100, 60_000);
    assert!(key.call(&limit, NOW, 100).allowed);
    let at = NOW + 57 * SECOND;
    assert!(key.call(&limit, at, 95).allowed);
    let mut without = key.clone();
    assert_eq!(without.refund(at, 100), 100);
    assert!(without.call(&limit, at, 100).allowed, "195 at once");
    // 95 of the first 100 have drained since.
    assert_eq!(key.refund_with(at, aged(100, 57 * SECOND)), 5);
    assert_eq!(key.remaining(&limit, at), 5);
    // Rounded against the caller: part of a unit is none.
    assert_eq!(key.refund_with(at, aged(10, 5 * SECOND)), 1);
    assert_eq!(key.refund_with(at, aged(1, 1)), 0);
}

#[test]
fn what_was_just_charged_is_refunded_in_full_but_for_a_bucket() {
    for rule in [
        Rule::Slide(100, 60_000, 1),
        Rule::Slide(100, 60_000, 5),
        Rule::Fixed(100, 60_000, 0),
        Rule::Exact(100, 60_000),
    ] {
        let mut key = Key::default();
        key.call(&rule.limit(), NOW, 7);
        assert_eq!(
            key.refund_with(NOW + 5 * MS, aged(7, 5 * MS)),
            7,
            "{rule:?}"
        );
        assert_eq!(key.0, None, "{rule:?}");
    }
    let mut key = Key::default();
    key.call(&bucket(100, 1, 60_000), NOW, 7);
    assert_eq!(key.refund_with(NOW + 5 * MS, aged(7, 5 * MS)), 6);
}

#[test]
fn after_a_step_back_nothing_is_surely_old_enough() {
    for rule in [Rule::Slide(100, 60_000, 1), Rule::Slide(100, 60_000, 5)] {
        let mut key = Key::default();
        key.call(&rule.limit(), NOW, 7);
        assert_eq!(key.refund_with(NOW - SECOND, aged(7, MS)), 0, "{rule:?}");
    }
    for rule in [Rule::Exact(100, 60_000), Rule::Bucket(100, 100, 60_000)] {
        for age_us in [MS, MAX_PERIOD_MS * MS] {
            let mut key = Key::default();
            key.call(&rule.limit(), NOW, 7);
            assert!(
                key.refund_with(NOW - SECOND, aged(7, age_us)) < 7,
                "{rule:?}"
            );
        }
    }
}

#[test]
fn extreme_ages_and_units_are_survived() {
    for rule in [
        Rule::Slide(MAX_COUNT, 1, 1),
        Rule::Slide(MAX_COUNT, MAX_PERIOD_MS, 5),
        Rule::Fixed(MAX_COUNT, MAX_PERIOD_MS, 0),
        Rule::Exact(1_000_000, MAX_PERIOD_MS),
        Rule::Bucket(MAX_COUNT, MAX_COUNT, 1),
        Rule::Leak(MAX_COUNT, 1, MAX_PERIOD_MS),
    ] {
        for now_us in [0, 1, NOW, u64::MAX] {
            for age_us in [1000, MAX_PERIOD_MS * MS] {
                let mut key = Key::default();
                key.call(&rule.limit(), now_us.min(NOW), 1_000_000);
                assert!(key.refund_with(now_us, aged(MAX_COUNT, age_us)) <= 1_000_000);
            }
        }
    }
}

#[test]
fn the_arguments_of_a_refund() {
    let parse = |line: &'static str| RefundRequest::parse(line.split(' ').map(str::as_bytes));
    let request = |units, calls, age_us| RefundRequest {
        units,
        calls,
        age_us,
    };
    assert_eq!(parse("0"), Ok(request(0, 0, None)));
    assert_eq!(parse("5 TIMES 2"), Ok(request(5, 2, None)));
    assert_eq!(parse("5 age 1ms"), Ok(request(5, 0, Some(1000))));
    assert_eq!(
        parse("5 AGE 2 times 1"),
        Ok(request(5, 1, Some(2 * SECOND)))
    );
    assert_eq!(
        parse("9007199254740991 TIMES 9007199254740991 AGE 3650d"),
        Ok(request(MAX_COUNT, MAX_COUNT, Some(MAX_PERIOD_MS * MS)))
    );
    for (line, error) in [
        ("x", Error::Cost),
        ("9007199254740992", Error::Cost),
        ("1 TIMES", Error::Times),
        ("1 TIMES 0", Error::Times),
        ("1 TIMES -1", Error::Times),
        ("1 TIMES 9007199254740992", Error::Times),
        ("1 TIMES AGE 1s", Error::Times),
        ("1 AGE", Error::Age),
        ("1 AGE 0", Error::Age),
        ("1 AGE 0ms", Error::Age),
        ("1 AGE 3651d", Error::Age),
        ("1 AGE 1y", Error::Age),
        ("1 TIMES 1 TIMES 1", Error::RefundOption),
        ("1 AGE 1 AGE 1", Error::RefundOption),
        ("1 FORCE", Error::RefundOption),
        ("1 1", Error::RefundOption),
    ] {
        assert_eq!(parse(line), Err(error), "{line}");
    }
    assert!(RefundRequest::parse([].into_iter()).is_err());
}
