//! `TIMES n` is n calls in one step, and `ATLEAST` as many of them as are allowed: both are compared with single calls that
//! follow each other at the same instant.

use crate::key::{Key, NOW};
use crate::sequence::{Call, Clock, changing_rules, rules_of};
use proptest::prelude::*;
use proptest::strategy::Union;
use rl_core::policy::Rules;
use rl_core::syntax::{CallFlags, CallOptions, check_args, multi_args, one_limit_args};
use rl_core::{
    Algorithm, BRIEF_NEVER, Decision, Error, Limit, MAX_COUNT, MAX_WAIT_MS, Mode, NEVER,
    PolicyLimits, brief_denial,
};

/// Makes single calls until one is denied. Returns how many were allowed, the first and the last decision, and the key.
fn one_by_one(
    key: &Key,
    limit: &Limit,
    now_us: u64,
    cost: u64,
    times: u64,
) -> (u64, Decision, Decision, Key) {
    let mut key = key.clone();
    let first = key.peek(limit, now_us, cost);
    let mut last = first;
    for calls in 0..times {
        let decision = key.peek(limit, now_us, cost);
        if !decision.allowed {
            return (calls, first, last, key);
        }
        last = key.call(limit, now_us, cost);
    }
    (times, first, last, key)
}

/// Compares `times` calls in one step with single calls. `in_one_step` is the same limit for calls in one step.
fn compare<'a>(
    key: &Key,
    limit: &Limit,
    in_one_step: impl Fn(u64) -> Limit<'a>,
    now_us: u64,
    cost: u64,
    times: u64,
) -> Result<(), TestCaseError> {
    let (allowed, first, last, after) = one_by_one(key, limit, now_us, cost, times);
    let affordable = limit.affordable_calls(key.0.as_ref(), now_us, cost, times);
    prop_assert_eq!(affordable, Ok(allowed));
    let all = key.peek(&in_one_step(times), now_us, cost * times);
    prop_assert_eq!(all.allowed, allowed == times, "{:?}", all);
    if allowed == 0 {
        return Ok(());
    }
    let mut key = key.clone();
    let decision = key.call(&in_one_step(allowed), now_us, cost * allowed);
    let expected = Decision {
        // A queue reports the delay of the first call.
        retry_after_ms: first.retry_after_ms,
        ..last
    };
    prop_assert_eq!(decision, expected);
    for later_us in [0, 1000, 999_983, 7_000_001, 3_600_000_000, 86_400_000_000] {
        let report = |key: &Key| key.peek(limit, now_us.saturating_add(later_us), 0);
        prop_assert_eq!(report(&key), report(&after), "{} us later", later_us);
    }
    Ok(())
}

/// Calls under changing limits of any algorithm but LEASE, which has no TIMES.
fn calls(clock: Clock) -> BoxedStrategy<Vec<Call>> {
    let algorithms = Algorithm::ALL.iter().copied();
    let algorithms = algorithms.filter(|algorithm| *algorithm != Algorithm::Lease);
    let rules = algorithms.flat_map(rules_of);
    Union::new(rules.map(|rule| changing_rules(rule, clock))).boxed()
}

proptest! {
    #![proptest_config(crate::key::cases(1500))]

    #[test]
    fn several_calls_in_one_step_equal_single_calls(
        calls in calls(Clock::Stepping),
        cost in 1..9_u64,
        times in 1..12_u64,
        share in 1..20_u64,
    ) {
        for call in calls {
            let limit = call.rule.limit();
            compare(&call.before, &limit, |_| limit, call.now_us, cost, times)?;
            // A cost of which several are just about allowed, or not.
            let left = call.before.remaining(&limit, call.now_us);
            let cost = (left / share).clamp(1, MAX_COUNT / times);
            compare(&call.before, &limit, |_| limit, call.now_us, cost, times)?;
        }
    }

    #[test]
    fn several_calls_are_allowed_after_their_wait_and_not_1_ms_sooner(
        calls in calls(Clock::Steady),
        cost in 1..9_u64,
        times in 1..12_u64,
    ) {
        for call in calls {
            let limit = call.rule.limit();
            let mut key = call.before.clone();
            let denied = key.call(&limit, call.now_us, cost * times);
            let wait_ms = denied.retry_after_ms as u64;
            if denied.allowed || denied.retry_after_ms == NEVER || wait_ms >= 1 << 40 {
                continue;
            }
            prop_assert!(wait_ms < MAX_WAIT_MS);
            let affordable = |at_us: u64| {
                limit.affordable_calls(key.0.as_ref(), at_us, cost, times).unwrap()
            };
            let at_us = call.now_us + wait_ms * 1000;
            prop_assert_eq!(affordable(at_us), times, "{:?}", call);
            prop_assert!(affordable(at_us - 1000) < times, "{:?}", call);
        }
    }
}

fn rule() -> impl Strategy<Value = String> {
    let limit = prop_oneof![
        (1..40_u64, 1..9_u64).prop_map(|(limit, s)| format!("SLIDE {limit} {s}s")),
        (1..40_u64, 2..5_u64).prop_map(|(limit, n)| format!("SLIDE {limit} 7s PRECISION {n}")),
        (1..40_u64, 1..9_u64).prop_map(|(size, rate)| format!("BUCKET {size} {rate} 3s")),
        (1..40_u64, 1..9_u64).prop_map(|(limit, s)| format!("FIXED {limit} {s}s")),
        (1..40_u64, 1..9_u64).prop_map(|(limit, s)| format!("EXACT {limit} {s}s")),
        (1..40_u64, 1..9_u64).prop_map(|(size, rate)| format!("LEAK {size} {rate} 3s")),
    ];
    let cost = prop_oneof![
        Just(String::new()),
        (1..4_u64).prop_map(|n| format!(" COST {n}"))
    ];
    (limit, cost).prop_map(|(limit, cost)| limit + &cost)
}

fn rules() -> impl Strategy<Value = Rules> {
    proptest::collection::vec(rule(), 1..=4).prop_map(|rules| rules.join(" ").parse().unwrap())
}

fn in_one_step<'a>(limit: Limit<'a>, times: u64) -> Limit<'a> {
    match limit {
        Limit::Policy(limits) => Limit::Policy(limits.with_times(times).unwrap()),
        limit => limit,
    }
}

proptest! {
    #![proptest_config(crate::key::cases(600))]

    #[test]
    fn so_they_do_under_a_policy(
        rules in rules(),
        steps in proptest::collection::vec((0..2_000_000_u64, 1..5_u64, 1..6_u64), 1..20),
    ) {
        let limit = rules.limit().unwrap();
        let (mut key, mut now_us) = (Key::default(), NOW);
        for (gap_us, cost, times) in steps {
            now_us += gap_us;
            // A queue that decides reports the delay of the call that is decided, so only the rest can be compared.
            if !rules.to_string().contains("LEAK") {
                compare(&key, &limit, |times| in_one_step(limit, times), now_us, cost, times)?;
            }
            let (allowed, ..) = one_by_one(&key, &limit, now_us, cost, times);
            prop_assert_eq!(limit.affordable_calls(key.0.as_ref(), now_us, cost, times), Ok(allowed));
            let calls = allowed.max(1);
            let decision = key.call(&in_one_step(limit, calls), now_us, cost * calls);
            prop_assert_eq!(decision.allowed, allowed > 0);
        }
    }

    #[test]
    fn and_after_the_policy_has_changed(
        before in rules(),
        after in rules(),
        cost in 1..4_u64,
        times in 1..6_u64,
        gap_us in 0..3_000_000_u64,
    ) {
        let mut key = Key::default();
        let _ = key.call(&before.limit().unwrap(), NOW, 3);
        let limit = after.limit().unwrap();
        let now_us = NOW + gap_us;
        if let Some(state) = &key.0
            && !limit.fits(state)
            && let Some(carried) = limit.carry_over(state).unwrap()
        {
            let affordable = carried.affordable_calls(&limit, now_us, cost, times).unwrap();
            for calls in 1..=times {
                let limit = in_one_step(limit, calls);
                let evaluation = carried.evaluate(&limit, now_us, cost * calls, Mode::Check);
                prop_assert_eq!(evaluation.unwrap().decision.allowed, calls <= affordable);
            }
        }
    }
}

#[test]
fn a_settlement_may_leave_out_the_fixed_costs() {
    let rules: Rules = "FIXED 10 1m COST 3 FIXED 10 1m".parse().unwrap();
    let limits = PolicyLimits::new(rules.as_slice()).unwrap();
    let remaining = |times: u64, cost: u64| {
        let limit = Limit::Policy(limits.with_times(times).unwrap());
        let decision = Key::default().peek(&limit, NOW, cost);
        (decision.remaining, decision.index)
    };
    assert_eq!(remaining(1, 1), (7, 0));
    assert_eq!(remaining(2, 2), (4, 0));
    assert_eq!(remaining(0, 2), (8, 1), "the fixed cost is charged 0 times");
    assert_eq!(remaining(3, 0), (10, 0), "a cost of 0 charges nothing");
    assert_eq!(limits.with_times(MAX_COUNT / 3).map(|_| ()), Ok(()));
    let too_often = limits.with_times(MAX_COUNT / 3 + 1);
    assert_eq!(too_often.map(|_| ()), Err(Error::TotalCost));
}

#[test]
fn calls_that_cost_nothing_are_all_affordable() {
    let limit: Limit = "FIXED 0 1m".parse::<Rules>().map(first_limit).unwrap();
    assert_eq!(limit.affordable_calls(None, NOW, 0, 9), Ok(9));
    assert_eq!(limit.affordable_calls(None, NOW, 1, 9), Ok(0));
}

fn first_limit(rules: Rules) -> Limit<'static> {
    rules.as_slice()[0].limit
}

#[test]
fn a_brief_reply_is_negative_if_the_call_is_denied() {
    let decision = |allowed, remaining, retry_after_ms| Decision {
        allowed,
        index: 0,
        limit: MAX_COUNT,
        remaining,
        retry_after_ms,
        reset_after_ms: 0,
    };
    assert_eq!(decision(true, 7, 30).brief(false), 7);
    assert_eq!(decision(true, 7, 30).brief(true), 30);
    assert_eq!(decision(true, MAX_COUNT, 0).brief(false), MAX_COUNT as i64);
    for reports_delay in [false, true] {
        assert_eq!(decision(false, 7, 30).brief(reports_delay), -30);
        assert_eq!(decision(false, 7, NEVER).brief(reports_delay), BRIEF_NEVER);
        assert_eq!(decision(false, 7, 0).brief(reports_delay), -1);
    }
    assert_eq!(BRIEF_NEVER, -9_007_199_254_740_992);
    assert!(brief_denial(MAX_WAIT_MS as i64) > BRIEF_NEVER);
}

fn read(line: &str) -> Result<CallOptions, Error> {
    let words = || {
        line.split(' ')
            .filter(|word| !word.is_empty())
            .map(str::as_bytes)
    };
    let one = one_limit_args(
        Algorithm::Slide,
        &mut [&b"1"[..], b"60"].into_iter().chain(words()),
    );
    let one = one.map(|(_, options)| options);
    assert_eq!(
        check_args(words()).map(|(_, options)| options),
        one,
        "{line}"
    );
    let spec = format!("{line} SLIDE 1 60").trim_start().to_owned();
    let several = [&b"k"[..], spec.as_bytes()];
    let several = multi_args(several.into_iter(), |_, _, _| Ok::<_, Error>(()));
    // In a spec, the name of the algorithm may be taken for the missing value, which is as wrong.
    assert_eq!(several, one, "{line}");
    one
}

#[test]
fn options_are_read_in_any_order() {
    let options = read("times 8 PEEK ATLEAST 3").unwrap();
    assert_eq!((options.times(), options.at_least()), (8, Some(3)));
    assert!(options.is_peek() && !options.is_force() && !options.is_brief());
    assert_eq!(read("AtLeast 3 peek TIMES 8"), Ok(options));
    let options = read("BRIEF TIMES 9007199254740991 FORCE").unwrap();
    assert_eq!((options.times(), options.at_least()), (MAX_COUNT, None));
    assert!(options.is_force() && options.is_brief());
    let unforced = options.without_force();
    assert_eq!(unforced.flags(), CallFlags::BRIEF | CallFlags::TIMES);
    assert_eq!(unforced.times(), MAX_COUNT);
    assert_eq!(read("PEEK PEEK"), Ok(CallOptions::PEEK));
    assert_eq!(read(""), Ok(CallOptions::NONE));
    for (line, error) in [
        ("TIMES", Error::Times),
        ("TIMES 0", Error::Times),
        ("TIMES -1", Error::Times),
        ("TIMES 01", Error::Times),
        ("TIMES 9007199254740992", Error::Times),
        ("TIMES 2 TIMES 2", Error::Times),
        ("TIMES 2 ATLEAST", Error::AtLeast),
        ("TIMES 2 ATLEAST 0", Error::AtLeast),
        ("TIMES 2 ATLEAST 3", Error::AtLeast),
        ("ATLEAST 2 TIMES 2 ATLEAST 2", Error::AtLeast),
        ("ATLEAST 1", Error::AtLeast),
        ("TIMES 2 ATLEAST 1 BRIEF", Error::ExclusiveAtLeast),
        ("TIMES 2 ATLEAST 1 FORCE", Error::ExclusiveAtLeast),
        ("BRIEF PEEK TIMES 2 FORCE", Error::ExclusiveOptions),
    ] {
        assert_eq!(read(line), Err(error), "{line}");
    }
}

#[test]
fn the_calls_together_cost_no_more_than_one_may() {
    let half = MAX_COUNT.div_ceil(2);
    let check = |line: &str| check_args(line.split(' ').map(str::as_bytes)).map(|(cost, _)| cost);
    assert_eq!(check(&format!("{} TIMES 2", half - 1)), Ok(half - 1));
    assert_eq!(check(&format!("{half} TIMES 2")), Err(Error::TotalCost));
    assert_eq!(
        check(&format!("{MAX_COUNT} TIMES {MAX_COUNT}")),
        Err(Error::TotalCost)
    );
    assert_eq!(check(&format!("0 TIMES {MAX_COUNT}")), Ok(0));
    let multi = |second: &str| {
        let args = [&b"a"[..], b"TIMES 2 SLIDE 1 60", b"b", second.as_bytes()];
        multi_args(args.into_iter(), |_, _, _| Ok::<_, Error>(())).map(CallOptions::times)
    };
    assert_eq!(multi("SLIDE 1 60"), Ok(2));
    assert_eq!(multi(&format!("SLIDE 1 60 {half}")), Err(Error::TotalCost));
    assert_eq!(multi(&format!("POLICY p {half}")), Err(Error::TotalCost));
    assert_eq!(multi("LEASE 1 60 h"), Err(Error::TimesOfLease));
}
