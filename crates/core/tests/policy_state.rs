//! Several limits on one key decide like the same limits on separate keys, keep their usage when the policy changes, and
//! survive being written and read.

use proptest::prelude::*;
use rl_core::Rule;
use rl_core::policy::Rules;
use rl_core::{CarriedUsage, Decision, Error, Limit, Mode, NEVER, State, Update};

const NOON_US: u64 = 1_700_000_000_000_000;

fn rules(text: &str) -> Rules {
    Rules::parse(&mut text.split(' ').map(str::as_bytes)).unwrap()
}

/// One key for each limit, spent all or not at all.
struct Separate(Vec<Option<State>>);

impl Separate {
    fn call(&mut self, rules: &[Rule], now_us: u64, cost: u64, mode: Mode) -> Decision {
        let mut outcomes = Vec::new();
        for (rule, state) in rules.iter().zip(&self.0) {
            let cost = rule.cost_of(cost, 1);
            let outcome = rule.limit.evaluate(state.as_ref(), now_us, cost, mode);
            outcomes.push(outcome.unwrap());
        }
        let all = outcomes.iter().all(|outcome| outcome.decision.allowed);
        for (outcome, state) in outcomes.iter().zip(&mut self.0) {
            if (all || !outcome.decision.allowed)
                && let Some(next) = outcome.update.clone()
            {
                advance(state, next);
            }
        }
        let wait = |place: &usize| match outcomes[*place].decision.retry_after_ms {
            NEVER => i64::MAX,
            ms => ms,
        };
        let places = 0..outcomes.len();
        let place = if all {
            places.min_by_key(|&place| outcomes[place].decision.remaining)
        } else {
            let denied = |place: &usize| !outcomes[*place].decision.allowed;
            // The first of equals; max_by_key finds the last.
            places.rev().filter(denied).max_by_key(wait)
        };
        let place = place.unwrap();
        let mut decision = outcomes[place].decision;
        decision.index = place as i8;
        decision
    }
}

fn advance(state: &mut Option<State>, next: Update) {
    match state {
        Some(state) => state.apply(next),
        None => *state = next.into_initial(),
    }
    if state.as_ref().is_some_and(State::is_empty) {
        *state = None;
    }
}

fn a_rule() -> impl Strategy<Value = String> {
    let cost =
        prop_oneof![3 => Just(String::new()), 1 => (1_u64..4).prop_map(|n| format!(" COST {n}"))];
    let limit = prop_oneof![
        (0_u64..12, 1_u64..9).prop_map(|(limit, s)| format!("SLIDE {limit} {s}")),
        (1_u64..12, 2_u64..5).prop_map(|(limit, n)| format!("SLIDE {limit} 7s PRECISION {n}")),
        (1_u64..9_007_199_254_740_991).prop_map(|limit| format!("SLIDE {limit} 3650d")),
        (1_u64..12, 1_u64..9, 1_u64..9).prop_map(|(c, r, s)| format!("BUCKET {c} {r} {s}")),
        // Rates that are close to each other: a change is a matter of milliseconds.
        (500_u64..3000).prop_map(|ms| format!("BUCKET 5 5 {ms}ms")),
        (500_u64..3000).prop_map(|ms| format!("LEAK 5 5 {ms}ms")),
        (1_u64..12, 1_u64..9).prop_map(|(limit, s)| format!("FIXED {limit} {s}")),
        (1_u64..12, 1_u64..9).prop_map(|(limit, s)| format!("EXACT {limit} {s}")),
        (1_u64..12, 1_u64..9, 1_u64..9).prop_map(|(c, r, s)| format!("LEAK {c} {r} {s}")),
    ];
    (limit, cost).prop_map(|(limit, cost)| limit + &cost)
}

fn some_rules() -> impl Strategy<Value = Rules> {
    prop::collection::vec(a_rule(), 2..=5).prop_map(|texts| rules(&texts.join(" ")))
}

/// Of one limit or several.
fn some_policy() -> impl Strategy<Value = Rules> {
    prop::collection::vec(a_rule(), 1..=4).prop_map(|texts| rules(&texts.join(" ")))
}

/// A key under policies that change, as the server keeps it.
#[derive(Clone, Debug, Default)]
struct Policed(Option<State>);

impl Policed {
    fn call(&mut self, rules: &Rules, now_us: u64, cost: u64, mode: Mode) -> Decision {
        let limit = rules.limit().unwrap();
        let carried_over = match &self.0 {
            Some(state) if !limit.fits(state) => limit.carry_over(state).unwrap(),
            Some(state) => {
                let outcome = limit.evaluate(Some(state), now_us, cost, mode).unwrap();
                if let Some(next) = outcome.update {
                    advance(&mut self.0, next);
                }
                return outcome.decision;
            }
            None => None,
        };
        let outcome = match &carried_over {
            Some(carried_over) => carried_over.evaluate(&limit, now_us, cost, mode).unwrap(),
            None => limit.evaluate(None, now_us, cost, mode).unwrap(),
        };
        let mut state = carried_over.and_then(CarriedUsage::into_state);
        if let Some(next) = outcome.update {
            advance(&mut state, next);
            assert_eq!(
                state.as_ref().map(State::expire_at_ms),
                Some(outcome.expiry.at_ms)
            );
            self.0 = state;
        }
        outcome.decision
    }

    fn expire(&mut self, now_us: u64) {
        let expired = |state: &State| state.expire_at_ms() * 1000 <= now_us;
        if self.0.as_ref().is_some_and(expired) {
            self.0 = None;
        }
    }
}

fn a_call() -> impl Strategy<Value = (i64, u64, bool, bool)> {
    let step = prop_oneof![8 => 0_i64..3_000_000, 1 => -5_000_000_i64..0, 1 => 0_i64..60_000_000];
    (
        step,
        0_u64..6,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
    )
}

proptest! {
    #[test]
    fn several_limits_on_one_key_decide_like_as_many_keys(
        rules in some_rules(),
        calls in prop::collection::vec(a_call(), 1..60),
    ) {
        let limit = rules.limit().unwrap();
        let mut separate = Separate(vec![None; rules.as_slice().len()]);
        let mut state: Option<State> = None;
        let mut replica: Option<State> = None;
        let mut now_us = NOON_US;
        for (step, cost, force, refund) in calls {
            now_us = now_us.saturating_add_signed(step);
            if refund {
                let Some(held) = &state else { continue };
                let back = held.refund(now_us, cost).unwrap();
                let mut most = 0;
                for (rule, state) in rules.as_slice().iter().zip(&mut separate.0) {
                    if rule.cost.is_some() { continue }
                    let Some(held) = state else { continue };
                    let back = held.refund(now_us, cost).unwrap();
                    most = most.max(back.units);
                    match back.update {
                        _ if back.units == 0 => {}
                        Some(next) => advance(state, next),
                        None => *state = None,
                    }
                }
                prop_assert_eq!(back.units, most);
                if most > 0 {
                    match back.update {
                        Some(next) => {
                            let blob = next.blob();
                            advance(&mut replica, Update::decode_blob(&blob).unwrap());
                            advance(&mut state, next);
                        }
                        None => {
                            prop_assert!(separate.0.iter().all(Option::is_none));
                            (state, replica) = (None, None);
                        }
                    }
                }
                continue;
            }
            let mode = if force { Mode::Force } else { Mode::Check };
            let outcome = limit.evaluate(state.as_ref(), now_us, cost, mode).unwrap();
            let expected = separate.call(rules.as_slice(), now_us, cost, mode);
            prop_assert_eq!(outcome.decision, expected);
            if let Some(next) = outcome.update {
                let before = state.as_ref().map(State::expire_at_ms);
                let blob = next.blob();
                advance(&mut replica, Update::decode_blob(&blob).unwrap());
                advance(&mut state, next);
                let after = state.as_ref().map_or(0, State::expire_at_ms);
                prop_assert_eq!(outcome.expiry.at_ms, after);
                prop_assert_eq!(outcome.expiry.unchanged, before == Some(after));
            } else {
                prop_assert!(cost == 0 || !expected.allowed);
            }
            prop_assert_eq!(&replica, &state, "a replica follows bit for bit");
            let latest = separate.0.iter().flatten().map(State::expire_at_ms).max();
            prop_assert_eq!(state.as_ref().map(State::expire_at_ms), latest);
            if let Some(state) = &state {
                prop_assert_eq!(&State::decode_blob(&state.blob()).unwrap(), state);
                prop_assert!(limit.fits(state));
            }
        }
    }

    /// Usage that stays where it is decides as a state of its own would.
    #[test]
    fn carried_over_usage_decides_like_its_copy(
        before in some_policy(),
        after in some_policy(),
        calls in prop::collection::vec(a_call(), 1..20),
        at in 0_u64..9_000_000,
        cost in 0_u64..6,
    ) {
        let mut key = Policed::default();
        let mut now_us = NOON_US;
        for (step, cost, force, _) in calls {
            now_us = now_us.saturating_add_signed(step);
            key.call(&before, now_us, cost, if force { Mode::Force } else { Mode::Check });
        }
        let limit = after.limit().unwrap();
        if let Some(state) = key.0.as_ref().filter(|state| !limit.fits(state)) {
            let Some(carried_over) = limit.carry_over(state).unwrap() else { return Ok(()) };
            for mode in [Mode::Check, Mode::Force] {
                let by_reference = carried_over.evaluate(&limit, now_us + at, cost, mode);
                let copy = limit.carry_over(state).unwrap().unwrap().into_state();
                let by_copy = limit.evaluate(copy.as_ref(), now_us + at, cost, mode);
                prop_assert_eq!(by_reference, by_copy);
            }
        }
    }

    /// The same call passes after the wait and not 1 ms sooner, though the policy changes between calls and
    /// the server lets the key go at its expiry.
    #[test]
    fn the_retry_promise_is_kept_across_policy_changes(
        policies in prop::collection::vec(some_policy(), 1..4),
        calls in prop::collection::vec((a_call(), any::<prop::sample::Index>()), 1..40),
    ) {
        let mut key = Policed::default();
        let mut now_us = NOON_US + 123_457;
        for ((step, cost, force, _), place) in calls {
            now_us += step.max(0) as u64;
            key.expire(now_us);
            let policy = place.get(&policies);
            let mode = if force { Mode::Force } else { Mode::Check };
            let decision = key.call(policy, now_us, cost, mode);
            if decision.allowed || cost == 0 || decision.retry_after_ms == NEVER {
                continue;
            }
            prop_assert!(decision.retry_after_ms > 0);
            for (ms, allowed) in [(decision.retry_after_ms - 1, false), (decision.retry_after_ms, true)] {
                let at_us = now_us + ms as u64 * 1000;
                let mut later = key.clone();
                later.expire(at_us);
                let again = later.call(policy, at_us, cost, Mode::Check);
                prop_assert_eq!(again.allowed, allowed, "{} ms after {:?}: {:?}", ms, decision, key);
            }
        }
    }

    #[test]
    fn a_corrupt_group_is_refused_or_another_group(
        rules in some_rules(),
        costs in prop::collection::vec(1_u64..3, 1..5),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let limit = rules.limit().unwrap();
        let mut state: Option<State> = None;
        let mut blobs = Vec::new();
        for cost in costs {
            let outcome = limit.evaluate(state.as_ref(), NOON_US, cost, Mode::Force).unwrap();
            let Some(next) = outcome.update else { continue };
            blobs.push(next.blob());
            advance(&mut state, next);
        }
        blobs.extend(state.as_ref().map(State::blob));
        for mut blob in blobs {
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            // Whatever it says, applying and evaluating it must not go wrong.
            if let Ok(next) = Update::decode_blob(&blob) {
                let mut other = state.clone();
                advance(&mut other, next);
                if let Some(other) = &other {
                    let _ = other.inspect(NOON_US);
                    let _ = other.expire_at_ms();
                    if limit.fits(other) {
                        let _ = limit.evaluate(Some(other), NOON_US, 1, Mode::Check);
                    } else if let Ok(Some(carried_over)) = limit.carry_over(other) {
                        let _ = carried_over.evaluate(&limit, NOON_US, 1, Mode::Check);
                    }
                }
            }
        }
    }
}

/// The state after one call of a cost under some limits.
fn used(text: &str, cost: u64) -> State {
    let rules = rules(text);
    let limit = rules.limit().unwrap();
    let outcome = limit.evaluate(None, NOON_US, cost, Mode::Force).unwrap();
    outcome.update.unwrap().into_initial().unwrap()
}

/// Usage that each limit goes on with.
fn carried(text: &str, state: Option<&State>) -> Vec<u64> {
    let all = rules(text);
    let limit = all.limit().unwrap();
    let state = state.map(|state| match limit.fits(state) {
        true => Some(state.clone()),
        false => limit
            .carry_over(state)
            .unwrap()
            .and_then(CarriedUsage::into_state),
    });
    let state = state.flatten();
    let inspected = state
        .map(|state| state.inspect(NOON_US))
        .unwrap_or_default();
    let used = |fields: &[rl_core::StateField]| {
        let used = fields.iter().find(|field| field.name == "used");
        match used.map(|field| &field.value) {
            Some(rl_core::FieldValue::Number(used)) => *used,
            _ => 0,
        }
    };
    match inspected.first().map(|field| &field.value) {
        Some(rl_core::FieldValue::Limits(limits)) => {
            limits.iter().map(|(_, fields)| used(fields)).collect()
        }
        Some(_) => vec![used(&inspected)],
        None => Vec::new(),
    }
}

#[test]
fn usage_is_kept_when_a_policy_changes() {
    let three = used(
        "SLIDE 100 1m COST 1 SLIDE 100 1h COST 2 BUCKET 100 1 1d COST 3",
        1,
    );
    for (changed, kept) in [
        ("SLIDE 9 1m SLIDE 9 1h BUCKET 9 1 1d", vec![1, 2, 3]),
        // In another order, by their windows.
        ("BUCKET 9 1 1d SLIDE 9 1h SLIDE 9 1m", vec![3, 2, 1]),
        // One window changed: it is not mistaken for the other.
        ("SLIDE 9 2m SLIDE 9 1h BUCKET 9 1 1d", vec![1, 2, 3]),
        ("SLIDE 9 2h SLIDE 9 1m", vec![2, 1]),
        // One more, one less, another algorithm.
        (
            "SLIDE 9 1m SLIDE 9 1h SLIDE 9 1d BUCKET 9 1 1d",
            vec![1, 2, 0, 3],
        ),
        ("SLIDE 9 1h BUCKET 9 1 1d", vec![2, 3]),
        ("FIXED 9 1m SLIDE 9 1h", vec![0, 2]),
        ("SLIDE 9 1h", vec![2]),
        ("SLIDE 9 3h", vec![1]),
        ("BUCKET 9 1 1h", vec![3]),
        ("FIXED 9 1m", vec![]),
        ("FIXED 9 1m EXACT 9 1m", vec![]),
    ] {
        // Calls go on as calls, and not as units that calls bring.
        let mut fixed = changed.to_owned() + " COST 5";
        for name in [" SLIDE", " BUCKET", " EXACT"] {
            fixed = fixed.replace(name, &format!(" COST 5{name}"));
        }
        assert_eq!(carried(&fixed, Some(&three)), kept, "{fixed}");
        assert!(carried(changed, Some(&three)).is_empty(), "{changed}");
    }
    let one = used("SLIDE 100 1m", 7);
    assert_eq!(carried("SLIDE 9 1h SLIDE 9 1m", Some(&one)), [0, 7]);
    assert_eq!(carried("BUCKET 9 1 1h SLIDE 9 1h", Some(&one)), [0, 7]);
    let log = used("EXACT 100 1m EXACT 100 1h", 7);
    assert_eq!(carried("EXACT 9 1h", Some(&log)), [7]);
}

/// A key under a policy as the server keeps it, and a replica that follows by what it is sent.
fn refunded(text: &str, cost: u64, units: u64) -> (u64, Option<State>) {
    let state = used(text, cost);
    let back = state.refund(NOON_US, units).unwrap();
    let (mut primary, mut replica) = (Some(state.clone()), Some(state));
    match back.update {
        _ if back.units == 0 => {}
        Some(next) => {
            let blob = next.blob();
            advance(&mut replica, Update::decode_blob(&blob).unwrap());
            advance(&mut primary, next);
            assert!(primary.is_some(), "{text}: a key with nothing in it");
        }
        None => (primary, replica) = (None, None),
    }
    assert_eq!(primary, replica, "{text}");
    (back.units, primary)
}

#[test]
fn a_full_refund_of_a_policy_with_a_log_deletes_the_key() {
    for text in [
        "EXACT 10 1m SLIDE 10 1h",
        "SLIDE 10 1h EXACT 10 1m",
        "EXACT 10 1m EXACT 10 1h",
        "EXACT 10 1m BUCKET 10 1 1h FIXED 10 1h LEAK 10 1 1h",
        "EXACT 10 1m SLIDE 10 1h PRECISION 4",
    ] {
        for (units, given) in [(4, 4), (5, 4), (u64::MAX, 4)] {
            assert_eq!(refunded(text, 4, units), (given, None), "{text}");
        }
        // In part, every limit gets back as much.
        let (given, left) = refunded(text, 4, 3);
        assert_eq!(given, 3);
        assert_eq!(
            carried(text, left.as_ref()),
            vec![1; left_of(text)],
            "{text}"
        );
        assert_eq!(refunded(text, 4, 0).0, 0);
    }
}

#[test]
fn a_fixed_cost_stays_when_the_rest_is_refunded() {
    for text in [
        "SLIDE 10 1m COST 1 SLIDE 10 1h",
        "BUCKET 10 1 1h COST 1 FIXED 10 1h",
        "SLIDE 10 1m PRECISION 4 COST 1 LEAK 10 1 1h",
    ] {
        for (units, given, left) in [(3, 3, [1, 1]), (9, 4, [1, 0])] {
            let (back, state) = refunded(text, 4, units);
            assert_eq!(back, given, "{text}");
            assert_eq!(carried(text, state.as_ref()), left, "{text}");
        }
    }
}

#[test]
fn a_limit_with_nothing_to_give_back_stays_as_it_is() {
    let mut state = Some(used("SLIDE 10 1s SLIDE 10 1h", 3));
    let back = state.as_ref().unwrap().refund(NOON_US + 10_000_000, 1);
    let back = back.unwrap();
    assert_eq!(back.units, 1);
    let next = back.update.unwrap().blob();
    advance(&mut state, Update::decode_blob(&next).unwrap());
    let current = [0, 1].map(|place| member_field(state.as_ref().unwrap(), place, "current_count"));
    assert_eq!(current, [3, 2]);
}

fn left_of(text: &str) -> usize {
    rules(text).as_slice().len()
}

#[test]
fn a_fixed_cost_stays_when_all_of_a_log_is_refunded() {
    for text in [
        "EXACT 10 1m SLIDE 10 1h COST 1",
        "EXACT 10 1m EXACT 10 1h COST 1",
        "EXACT 10 1m BUCKET 10 1 1h COST 1",
    ] {
        let (given, left) = refunded(text, 4, 9);
        let left = left.unwrap();
        assert_eq!(given, 4);
        assert_eq!(carried(text, Some(&left)), [0, 1], "{text}");
        // Nothing is left to refund, and the empty log takes units again.
        assert_eq!(left.refund(NOON_US, 9).unwrap().units, 0);
        let rules = rules(text);
        let (limit, cost) = (rules.limit().unwrap(), 10);
        let outcome = limit.evaluate(Some(&left), NOON_US, cost, Mode::Check);
        let outcome = outcome.unwrap();
        assert!(outcome.decision.allowed);
        let mut again = Some(left);
        advance(&mut again, outcome.update.unwrap());
        assert_eq!(carried(text, again.as_ref()), [10, 2], "{text}");
    }
    // The other way round: the log counts calls, and stays as it is.
    let text = "EXACT 10 1m COST 1 SLIDE 10 1h";
    let (given, left) = refunded(text, 4, 9);
    assert_eq!(given, 4);
    assert_eq!(carried(text, left.as_ref()), [1, 0]);
    let text = "EXACT 10 1m COST 1 SLIDE 10 1h COST 1";
    let (given, left) = refunded(text, 4, 9);
    assert_eq!(given, 0);
    assert_eq!(carried(text, left.as_ref()), [1, 1]);
}

/// As for one limit alone: a policy that drains more slowly keeps the key until its debt is paid.
#[test]
fn a_lower_rate_in_a_policy_gives_no_free_refill_when_the_key_expires() {
    for offset in 0..1000 {
        let now_us = NOON_US + offset * 1000;
        for (fast, slow) in [
            ("BUCKET 10 10 1s SLIDE 99 1s", "BUCKET 10 10 2s SLIDE 99 1s"),
            ("BUCKET 10 10 1s", "SLIDE 99 1s BUCKET 10 10 2s"),
            ("FIXED 99 1s LEAK 10 10 1s", "LEAK 10 10 2s"),
            ("EXACT 10 1s SLIDE 99 1s", "EXACT 10 2s"),
        ] {
            let (fast, slow) = (rules(fast), rules(slow));
            let mut key = Policed::default();
            key.call(&fast, now_us, 10, Mode::Check);
            let denied = key.call(&slow, now_us, 10, Mode::Check);
            assert_eq!((denied.allowed, denied.retry_after_ms), (false, 2000));
            for (ms, allowed) in [(1000, false), (1071, false), (1999, false), (2000, true)] {
                let at_us = now_us + ms * 1000;
                let mut later = key.clone();
                later.expire(at_us);
                assert_eq!(later.call(&slow, at_us, 10, Mode::Check).allowed, allowed);
            }
        }
    }
}

#[test]
fn a_call_that_costs_nothing_takes_no_fixed_cost_either() {
    let rules = rules("SLIDE 10 1m COST 3 EXACT 10 1m");
    let (limit, cost) = (rules.limit().unwrap(), 0);
    let state = used("SLIDE 10 1m COST 3 EXACT 10 1m", 2);
    let report = limit.evaluate(Some(&state), NOON_US, cost, Mode::Check);
    let report = report.unwrap();
    assert_eq!((report.decision.remaining, report.decision.index), (7, 0));
    assert_eq!(report.update, None);
    let [fixed, free] = rules.as_slice() else {
        panic!("two rules");
    };
    assert_eq!([0, 1, 2].map(|cost| fixed.cost_of(cost, 1)), [0, 3, 3]);
    assert_eq!([0, 1, 2].map(|cost| free.cost_of(cost, 1)), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|cost| fixed.cost_of(cost, 5)), [0, 15, 15]);
    assert_eq!([0, 1, 2].map(|cost| fixed.cost_of(cost, 0)), [0, 0, 0]);
    assert_eq!([0, 1, 2].map(|cost| free.cost_of(cost, 5)), [0, 1, 2]);
}

#[test]
fn the_last_units_delete_the_key_even_if_a_limit_has_none() {
    // Of the bucket's units nearly all have flowed back, so a refund empties it first.
    let text = "EXACT 10 1h BUCKET 10 10 10s";
    let state = used(text, 4);
    let later_us = NOON_US + 3_500_000;
    let back = state.refund(later_us, 1).unwrap();
    let mut key = Some(state);
    advance(&mut key, back.update.unwrap());
    let key = key.unwrap();
    assert_eq!((back.units, carried(text, Some(&key))), (1, vec![3, 0]));
    let rest = key.refund(later_us, 9).unwrap();
    assert_eq!((rest.units, rest.update), (3, None));
}

#[test]
fn what_is_sent_of_a_log_is_a_step_and_of_the_rest_the_whole() {
    let sent = |next: &Option<Update>| match next {
        Some(Update::Policy(rl_core::PolicyUpdate::Replace(_))) => "whole",
        Some(Update::Policy(rl_core::PolicyUpdate::Rules { .. })) => "steps",
        _ => "nothing",
    };
    let long = |text: &str| {
        let rules = rules(text);
        let mut state = None;
        for call in 0..500 {
            let (limit, cost) = (rules.limit().unwrap(), 1);
            let outcome = limit.evaluate(state.as_ref(), NOON_US + call, cost, Mode::Force);
            advance(&mut state, outcome.unwrap().update.unwrap());
        }
        state.unwrap()
    };
    let log = long("EXACT 1000 1h BUCKET 10 10 1s");
    let plain = long("FIXED 1000 1h BUCKET 10 10 1s");
    let at_us = NOON_US + 500;
    // Refunds.
    let back = log.refund(at_us, 5).unwrap().update;
    assert_eq!(sent(&back), "steps");
    assert!(back.unwrap().blob().len() < 100);
    assert_eq!(sent(&plain.refund(at_us, 5).unwrap().update), "whole");
    // A denial that keeps the key for longer, because the bucket drains more slowly now.
    for (state, text, expected) in [
        (&log, "EXACT 1000 1h BUCKET 10 1 1s", "steps"),
        (&plain, "FIXED 1000 1h BUCKET 10 1 1s", "whole"),
    ] {
        let slow = rules(text);
        let (limit, cost) = (slow.limit().unwrap(), 1);
        assert!(limit.fits(state));
        let denied = limit.evaluate(Some(state), at_us, cost, Mode::Check);
        let denied = denied.unwrap();
        assert!(!denied.decision.allowed);
        assert_eq!(sent(&denied.update), expected, "{text}");
    }
}

/// A limit's field, as RL.INSPECT shows it.
fn member_field(state: &State, place: usize, name: &str) -> u64 {
    let fields = state.inspect(NOON_US);
    let rl_core::FieldValue::Limits(limits) = &fields[0].value else {
        panic!("{fields:?}");
    };
    let field = limits[place].1.iter().find(|field| field.name == name);
    match field.map(|field| &field.value) {
        Some(rl_core::FieldValue::Number(number)) => *number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn which_limits_fix_their_cost_is_shown() {
    let text = "SLIDE 9 1m SLIDE 9 1h COST 2 FIXED 9 1h BUCKET 9 1 1h COST 1";
    let state = used(text, 3);
    let fixed = [1, 3].map(|place| member_field(&state, place, "fixed_cost"));
    assert_eq!(fixed, [2, 1]);
    let State::Policy(policy) = &state else {
        panic!("{state:?}");
    };
    let fields = State::Policy(policy.clone()).inspect(NOON_US);
    let Some(rl_core::FieldValue::Limits(limits)) = fields.first().map(|field| &field.value) else {
        panic!("{fields:?}");
    };
    for place in [0, 2] {
        assert!(
            limits[place]
                .1
                .iter()
                .all(|field| field.name != "fixed_cost")
        );
    }
    let used = [0, 1, 2, 3].map(|place| member_field(&state, place, "used"));
    assert_eq!(used, [3, 2, 3, 1]);
}

#[test]
fn several_limits_are_shown_as_they_are_written() {
    let text = "SLIDE 9 1m COST 2 BUCKET 9 1 1h";
    let rules = rules(text);
    let limit = rules.limit().unwrap();
    assert_eq!(limit.to_string(), format!("POLICY {text}"));
}

#[test]
fn memory_is_that_of_the_members_and_of_what_they_have() {
    let rule = size_of::<(Option<u64>, rl_core::RuleState)>();
    let large = size_of::<State>();
    let log = used("EXACT 9 1m", 1);
    let (bytes, pieces) = (log.heap_bytes(), log.allocations());
    assert!(bytes > 0 && pieces == 1);
    for (text, heap_bytes, all_pieces) in [
        (
            "EXACT 9 1m SLIDE 9 1h",
            2 * rule + large + bytes,
            2 + 1 + pieces,
        ),
        (
            "EXACT 9 1m SLIDE 9 1h EXACT 9 1h",
            3 * rule + 2 * (large + bytes),
            2 + 2 * (1 + pieces),
        ),
        ("SLIDE 1 1 SLIDE 1 2 SLIDE 1 3 SLIDE 1 4", 4 * rule, 2),
        ("SLIDE 1 1 SLIDE 1 2 SLIDE 1 3", 0, 1),
        (
            "SLIDE 9 1m PRECISION 20 SLIDE 9 1h",
            2 * rule + large + 21 * size_of::<u64>(),
            2 + 1 + 1,
        ),
    ] {
        let state = used(text, 1);
        let found = (state.heap_bytes(), state.allocations());
        assert_eq!(found, (heap_bytes, all_pieces), "{text}");
    }
}

#[test]
fn a_lease_is_not_carried_over() {
    let lease = Limit::Lease(rl_core::LeaseLimit::new(5, 1000, b"x").unwrap());
    let outcome = lease.evaluate(None, NOON_US, 1, Mode::Check).unwrap();
    let state = outcome.update.unwrap().into_initial().unwrap();
    for text in ["SLIDE 1 1", "SLIDE 1 1 SLIDE 1 2"] {
        let rules = rules(text);
        let carried_over = rules.limit().unwrap().carry_over(&state);
        assert_eq!(carried_over.err(), Some(Error::WrongAlgorithm));
    }
}

#[test]
fn three_usual_limits_need_no_memory_of_their_own() {
    let state = used("SLIDE 100 1m SLIDE 1000 1h BUCKET 10000 10000 1d", 5);
    assert_eq!((state.heap_bytes(), state.allocations()), (0, 1));
    assert_eq!(size_of::<State>(), 64, "as large as a bucket's");
    assert!(used("SLIDE 1 1 SLIDE 1 2 SLIDE 1 3 SLIDE 1 4", 5).heap_bytes() > 0);
}

#[test]
fn a_group_has_between_one_and_sixteen_limits() {
    assert_eq!(rl_core::PolicyLimits::new(&[]), Err(Error::LimitCount));
    let all = rules(&["SLIDE 1 1"; 16].join(" "));
    assert!(rl_core::PolicyLimits::new(all.as_slice()).is_ok());
    let too_many = ["SLIDE 1 1"; 17].join(" ");
    let refused = Rules::parse(&mut too_many.split(' ').map(str::as_bytes));
    assert_eq!(refused, Err(Error::LimitCount));
}

/// As these bytes were written once, they must be read for ever.
#[test]
fn the_encoding_stays_as_it_is() {
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let state = used("SLIDE 100 1m COST 1 BUCKET 10 5 1h EXACT 9 1s", 3);
    assert_eq!(hex(&state.blob()), GOLDEN);
    let two = rules("SLIDE 100 1m BUCKET 10 5 1h");
    let (limit, cost) = (two.limit().unwrap(), 2);
    let next = limit
        .evaluate(None, NOON_US, cost, Mode::Check)
        .unwrap()
        .update
        .unwrap();
    assert_eq!(hex(&next.blob()), GOLDEN_UPDATE);
}

const GOLDEN: &str = "0100000000000050f003010111010000401e18240a1600000020000000f011012000401e18240a2600ecba83021450f1170100000000000010f0e8070100401e18240a0600020103";
const GOLDEN_UPDATE: &str = "0100000000000060f000020011010000401e18240a1600000040000000f011012000401e18240a26004827ad011450f1";

/// Fixed costs are refunded by the number of calls, the others by units; without TIMES, only the others are.
#[test]
fn a_refund_of_calls_refunds_fixed_costs() {
    // Inline, and too large for that: five limits, a log, a cost of more than two bytes.
    for (text, fixed) in [
        ("SLIDE 900000 1m COST 2 BUCKET 900000 1 1h", 2),
        ("SLIDE 900000 1m COST 65534 BUCKET 900000 1 1h", 65_534),
        ("SLIDE 900000 1m COST 65535 BUCKET 900000 1 1h", 65_535),
        ("FIXED 900000 1d COST 70000 LEAK 900000 1 1h", 70_000),
        ("SLIDE 900000 1m COST 3 EXACT 900000 1h", 3),
        (
            "SLIDE 900000 1m COST 4 SLIDE 900000 1h SLIDE 900000 1d FIXED 900000 1h FIXED 900000 1d",
            4,
        ),
    ] {
        let state = used(text, 7);
        let usage = |state: &State| [0, 1].map(|place| member_field(state, place, "used"));
        assert_eq!(usage(&state), [fixed, 7], "{text}");
        let refund = |state: &State, units, calls| {
            let request = rl_core::RefundRequest {
                units,
                calls,
                age_us: None,
            };
            let refund = state.refund(NOON_US, request).unwrap();
            let mut after = state.clone();
            match refund.update {
                Some(update) if refund.units > 0 => {
                    let sent = update.blob();
                    after.apply(Update::decode_blob(&sent).unwrap());
                }
                _ => {}
            }
            (refund.units, after)
        };
        let (units, after) = refund(&state, 5, 0);
        assert_eq!((units, usage(&after)), (5, [fixed, 2]), "{text}");
        // All of the fixed cost is refunded, so nothing is left of that limit.
        let (units, after) = refund(&state, 0, 1);
        assert_eq!(units, fixed, "{text}");
        assert_eq!(member_field(&after, 1, "used"), 7, "{text}");
        let (units, after) = refund(&after, 3, 1);
        assert_eq!(units, 3, "{text}");
        assert_eq!(member_field(&after, 1, "used"), 4, "{text}");
        // The cost survives the encoding, and the product has a range.
        let read = State::decode_blob(&state.blob()).unwrap();
        assert_eq!(read, state);
        assert_eq!(member_field(&read, 0, "fixed_cost"), fixed);
        let request = rl_core::RefundRequest {
            units: 1,
            calls: rl_core::MAX_COUNT,
            age_us: None,
        };
        assert_eq!(state.refund(NOON_US, request), Err(Error::TotalCost));
    }
}

#[test]
fn a_changed_fixed_cost_is_stored_with_the_next_charge() {
    for log in ["", " EXACT 100 1h"] {
        let state = used(&format!("SLIDE 100 1m COST 2{log}"), 1);
        let three = rules(&format!("SLIDE 100 1m COST 3{log}"));
        let limit = three.limit().unwrap();
        assert!(limit.fits(&state));
        let mut after = state.clone();
        let outcome = limit.evaluate(Some(&state), NOON_US, 1, Mode::Check);
        after.apply(outcome.unwrap().update.unwrap());
        assert_eq!(member_field(&after, 0, "fixed_cost"), 3);
        assert_eq!(member_field(&after, 0, "used"), 5);
    }
}
