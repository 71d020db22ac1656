//! The promises of the contract, for any sequence of calls.

use crate::key::{Key, MS, NOW, Rule};
use crate::oracle::Oracle;
use crate::sequence::{
    Call, Clock, any_calls, any_rule, buckets, calendars, changing_rules, exacts_of_one_window,
    fixeds, leaks, leases, leases_of_one_limit, one_rule, precise, rates, slides, under,
};
use proptest::prelude::*;
use rl_core::{MAX_TIME_US, MAX_WAIT_MS, Mode, Update};

/// A debt that drains for longer is forgotten after 68 years.
const FOR_EVER_MS: u64 = ((1 << 31) - 2) * 1000;

/// The moment after a wait, unless that is beyond all dates or the wait is only said to be long.
fn later(now_us: u64, ms: u64) -> Option<u64> {
    let at = now_us.checked_add(ms.checked_mul(MS)?)?;
    (ms < MAX_WAIT_MS && at <= MAX_TIME_US).then_some(at)
}

/// Whether the key is fully reset.
fn is_new(key: &Key, rule: Rule, at_us: u64) -> bool {
    let report = key.peek(&rule.limit(), at_us, 0);
    report.remaining == rule.size() && report.reset_after_ms == 0
}

/// The key as a committed call leaves it.
fn left_by(call: &Call) -> Key {
    let mut key = call.before.clone();
    if let Some(next) = call.outcome.update.clone() {
        key.take(next);
    }
    key
}

fn check_answers(calls: &[Call]) -> Result<(), TestCaseError> {
    let mut oracle = Oracle::default();
    for call in calls {
        let mut model = oracle.clone();
        let (decision, write) = model.call(call.rule, call.now_us, call.cost, call.mode);
        prop_assert_eq!(call.outcome.decision, decision, "{:?}", call);
        prop_assert_eq!(call.outcome.update.is_some(), write, "{:?}", call);
        if !call.peek {
            oracle = model;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::key::cases(120))]

    #[test]
    fn every_algorithm_answers_as_the_contract_reads(calls in one_rule(any_rule(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn slide_answers_as_the_contract_reads(calls in changing_rules(slides(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn precise_slide_answers_as_the_contract_reads(calls in changing_rules(precise(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn bucket_answers_as_the_contract_reads(calls in changing_rules(buckets(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn fixed_answers_as_the_contract_reads(calls in changing_rules(fixeds(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn calendar_windows_answer_as_the_contract_reads(
        calls in changing_rules(calendars(), Clock::Stepping)
    ) {
        check_answers(&calls)?;
    }

    #[test]
    fn leak_answers_as_the_contract_reads(calls in changing_rules(leaks(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn exact_answers_as_the_contract_reads(calls in under(exacts_of_one_window(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn lease_answers_as_the_contract_reads(calls in under(leases_of_one_limit(), Clock::Stepping)) {
        check_answers(&calls)?;
    }

    #[test]
    fn lease_answers_so_under_changed_limits_too(calls in changing_rules(leases(), Clock::Stepping)) {
        check_answers(&calls)?;
    }
}

proptest! {
    #![proptest_config(crate::key::cases(2000))]

    #[test]
    fn the_same_call_passes_after_the_retry_time_and_not_1_ms_sooner(calls in any_calls()) {
        for call in calls {
            let wait = call.outcome.decision.retry_after_ms;
            // A call that costs nothing does not record that the clock stepped back, so its waits start over.
            let behind = call.stored.is_some_and(|(at_us, _)| call.now_us < at_us);
            if call.outcome.decision.allowed || wait < 0 || (call.cost == 0 && behind) {
                continue;
            }
            prop_assert!(wait > 0, "{:?}", call);
            let key = left_by(&call);
            if let Some(at) = later(call.now_us, wait as u64) {
                let limit = call.rule.limit();
                prop_assert!(key.peek(&limit, at, call.cost).allowed, "{:?}", call);
                // A report cannot keep the key for as long as what it says would need.
                let forgotten = call.rule.drains() && wait as u64 >= FOR_EVER_MS;
                let sooner = match call.cost {
                    _ if forgotten => key,
                    0 => key,
                    _ => key.until_it_expires(at - MS),
                };
                prop_assert!(!sooner.peek(&limit, at - MS, call.cost).allowed, "{:?}", call);
            }
        }
    }

    #[test]
    fn a_key_is_fully_reset_after_the_reset_time_and_not_1_ms_sooner(calls in any_calls()) {
        for call in calls {
            let (key, wait) = (&call.after, call.outcome.decision.reset_after_ms);
            if call.outcome.update.is_none() || call.peek || call.rule.size() == 0 {
                continue;
            }
            prop_assert!(wait > 0, "{:?}", call);
            if let Some(at) = later(call.now_us, wait) {
                prop_assert!(is_new(key, call.rule, at), "{:?}", call);
                prop_assert!(!is_new(key, call.rule, at - MS), "{:?}", call);
            }
        }
    }

    /// What a call answers is what the state it leaves behind says.
    #[test]
    fn a_report_repeats_what_the_call_before_it_left(calls in any_calls()) {
        for call in calls.iter().filter(|call| !call.peek && call.cost > 0) {
            let report = call.after.peek(&call.rule.limit(), call.now_us, 0);
            let answer = call.outcome.decision;
            prop_assert_eq!(report.remaining, answer.remaining, "{:?}", call);
            prop_assert_eq!(report.reset_after_ms, answer.reset_after_ms, "{:?}", call);
            if answer.allowed && call.mode == Mode::Check {
                prop_assert!(report.allowed, "over the limit: {:?}", call);
            }
        }
    }

    /// In any stretch of real time: one limit at once, what flows back over the stretch, and one limit
    /// more for every step forward. A step back gives nothing. A fixed window's edge gives one more, and a
    /// step in either direction may lead to another edge.
    #[test]
    fn never_over_the_limit(calls in one_rule(rates(), Clock::Stepping)) {
        for first in 0..calls.len() {
            let edges = u128::from(matches!(calls[first].rule, Rule::Fixed(..) | Rule::Calendar(..)));
            let (mut elapsed, mut granted, mut limits) = (0, 0, 1 + edges);
            for (index, call) in calls.iter().enumerate().skip(first) {
                if index > first {
                    let before = i128::from(calls[index - 1].now_us);
                    elapsed += (i128::from(call.now_us) - before - call.stepped_us) as u128;
                    limits += u128::from(call.stepped_us > 0) + edges * u128::from(call.stepped_us != 0);
                }
                if call.outcome.decision.allowed && call.mode == Mode::Check && !call.peek {
                    granted += u128::from(call.cost);
                }
                let (size, flow) = (u128::from(call.rule.size()), u128::from(call.rule.flow()));
                let span = match call.rule {
                    Rule::Calendar(_, calendar, _) => calendar.shortest_ms() * MS,
                    rule => rule.span_us(),
                };
                let span = u128::from(span);
                let bound = limits * size * span + flow * elapsed;
                prop_assert!(granted * span <= bound, "from {}: {:?}", first, call);
            }
        }
    }

    /// However often somebody asks after the clock stepped back, the wait goes on from the first call.
    #[test]
    fn nobody_waits_longer_after_a_step_back(
        calls in one_rule(any_rule(), Clock::Steady),
        to_us in 0..NOW,
        asks in proptest::collection::vec((0..=1000u64, any::<bool>()), 1..20),
    ) {
        let Some(last) = calls.iter().rfind(|call| !call.peek && call.outcome.update.is_some()) else {
            return Ok(());
        };
        let (mut key, limit) = (last.after.clone(), last.rule.limit());
        let worst_ms = match last.rule {
            Rule::Slide(_, window_ms, n) => {
                let part_us = (window_ms * MS).div_ceil(n.into());
                (part_us * (u64::from(n) + 1)).div_ceil(MS)
            }
            Rule::Fixed(_, span_ms, _) | Rule::Exact(_, span_ms) => span_ms,
            Rule::Calendar(_, calendar, _) => calendar.longest_ms(),
            Rule::Bucket(..) | Rule::Leak(..) | Rule::Lease(..) => {
                last.outcome.decision.reset_after_ms
            }
        };
        let cost = last.rule.size();
        // A longer wait than can be stated does not shrink as it goes on.
        if cost == 0 || worst_ms == MAX_WAIT_MS {
            return Ok(());
        }
        let mut elapsed = 0;
        for (part, report) in asks {
            if report {
                key.call(&limit, to_us + elapsed, 0);
            }
            let answer = key.call(&limit, to_us + elapsed, cost);
            if answer.allowed {
                return Ok(());
            }
            // Rounding up may add a millisecond in the middle of one.
            let wait_ms = answer.retry_after_ms as u64;
            prop_assert!(elapsed / MS + wait_ms <= worst_ms + 1, "{elapsed} µs, {answer:?}");
            elapsed += (wait_ms - 1).min(1 << 40) * MS / 1000 * part;
        }
        if let Some(at) = later(to_us, worst_ms) {
            prop_assert!(key.peek(&limit, at, cost).allowed);
        }
    }

    #[test]
    fn an_expiry_comes_once_the_state_no_longer_matters_and_soon(
        calls in any_calls(),
        late_us in 0..10_000_000_000u64,
        cost in 0..=3u64,
    ) {
        for call in calls.iter().filter(|call| call.outcome.update.is_some()) {
            let (key, expiry) = (left_by(call), call.outcome.expiry);
            prop_assert_eq!(expiry.at_ms, key.0.as_ref().unwrap().expire_at_ms());
            let reset = call.outcome.decision.reset_after_ms;
            let Some(reset_us) = later(call.now_us, reset) else { continue };
            if reset >= FOR_EVER_MS && call.rule.drains() {
                continue;
            }
            // What a call is denied under may be a shorter window than the log is kept for.
            let kept_for_others = matches!(call.rule, Rule::Exact(..)) && !call.outcome.decision.allowed;
            let kept_us = call.rule.late_ms() * MS;
            prop_assert!(kept_for_others || expiry.at_ms * MS <= reset_us + kept_us, "{:?}", call);

            // Without the key, every call is answered the same and leaves the same behind.
            let limit = call.rule.limit();
            for at in [expiry.at_ms * MS, expiry.at_ms * MS + late_us] {
                for mode in [Mode::Check, Mode::Force] {
                    let kept = key.evaluate(&limit, at, cost, mode);
                    let gone = Key::default().evaluate(&limit, at, cost, mode);
                    prop_assert_eq!(kept.decision, gone.decision, "{:?}", call);
                    if call.rule.drains() {
                        // Only the seconds at which they expire differ.
                        let left = |update: Option<Update>| {
                            let state = update.and_then(Update::into_initial);
                            state.map(|state| state.inspect(at))
                        };
                        prop_assert_eq!(left(kept.update), left(gone.update), "{:?}", call);
                    } else {
                        prop_assert_eq!(kept.update, gone.update, "{:?}", call);
                    }
                }
            }
        }
    }

    #[test]
    fn an_expiry_stays_only_where_it_still_fits(calls in any_calls()) {
        for call in calls.iter().filter(|call| call.outcome.update.is_some()) {
            let new = call.outcome.expiry;
            match call.stored {
                Some((_, kept)) if call.rule.drains() => {
                    prop_assert_eq!(new.unchanged, kept.at_ms == new.at_ms, "{:?}", call);
                }
                Some((_, kept)) => prop_assert!(!new.unchanged || kept.at_ms == new.at_ms),
                None => prop_assert!(!new.unchanged),
            }
        }
    }
}
