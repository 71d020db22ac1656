//! Several limits on one key decide like as many keys, keep their usage when the policy changes, and are
//! written as they are read.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rl_core::group::{self, Rule};
use rl_core::policy::Rules;
use rl_core::{Decision, Error, Limit, Mode, NEVER, Next, State};

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
            let cost = rule.cost_of(cost);
            let outcome = rule.limit.evaluate(state.as_ref(), now_us, cost, mode);
            outcomes.push(outcome.unwrap());
        }
        let all = outcomes.iter().all(|outcome| outcome.decision.allowed);
        for (outcome, state) in outcomes.iter().zip(&mut self.0) {
            if (all || !outcome.decision.allowed)
                && let Some(next) = outcome.next.clone()
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

fn advance(state: &mut Option<State>, next: Next) {
    match state {
        Some(state) => state.advance(next),
        None => *state = next.begin(),
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
        (1_u64..12, 1_u64..9).prop_map(|(limit, s)| format!("FIXED {limit} {s}")),
        (1_u64..12, 1_u64..9).prop_map(|(limit, s)| format!("EXACT {limit} {s}")),
        (1_u64..12, 1_u64..9, 1_u64..9).prop_map(|(c, r, s)| format!("LEAK {c} {r} {s}")),
    ];
    (limit, cost).prop_map(|(limit, cost)| limit + &cost)
}

fn some_rules() -> impl Strategy<Value = Rules> {
    prop::collection::vec(a_rule(), 2..=5).prop_map(|texts| rules(&texts.join(" ")))
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
        let (limit, _) = rules.limit(1).unwrap();
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
                    match back.next {
                        _ if back.units == 0 => {}
                        Some(next) => advance(state, next),
                        None => *state = None,
                    }
                }
                prop_assert_eq!(back.units, most);
                if most > 0 {
                    match back.next {
                        Some(next) => {
                            let blob = next.blob();
                            advance(&mut replica, Next::decode_blob(&blob).unwrap());
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
            if let Some(next) = outcome.next {
                let before = state.as_ref().map(State::expire_at_ms);
                let blob = next.blob();
                advance(&mut replica, Next::decode_blob(&blob).unwrap());
                advance(&mut state, next);
                let after = state.as_ref().map_or(0, State::expire_at_ms);
                prop_assert_eq!(outcome.expiry.at_ms, after);
                prop_assert_eq!(outcome.expiry.unmoved, before == Some(after));
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

    #[test]
    fn a_damaged_group_is_refused_or_another_group(
        rules in some_rules(),
        costs in prop::collection::vec(1_u64..3, 1..5),
        at in any::<prop::sample::Index>(),
        bit in 0_u8..8,
    ) {
        let (limit, _) = rules.limit(1).unwrap();
        let mut state: Option<State> = None;
        let mut blobs = Vec::new();
        for cost in costs {
            let outcome = limit.evaluate(state.as_ref(), NOON_US, cost, Mode::Force).unwrap();
            let Some(next) = outcome.next else { continue };
            blobs.push(next.blob());
            advance(&mut state, next);
        }
        blobs.extend(state.as_ref().map(State::blob));
        for mut blob in blobs {
            let at = at.index(blob.len());
            blob[at] ^= 1 << bit;
            // Whatever it says, applying and evaluating it must not go wrong.
            if let Ok(next) = Next::decode_blob(&blob) {
                let mut other = state.clone();
                advance(&mut other, next);
                if let Some(other) = &other {
                    let _ = other.inspect(NOON_US);
                    let _ = other.expire_at_ms();
                    let adopted = if limit.fits(other) { Ok(Some(other.clone())) } else { limit.adopt(other) };
                    if let Ok(Some(adopted)) = adopted {
                        let _ = limit.evaluate(Some(&adopted), NOON_US, 1, Mode::Check);
                    }
                }
            }
        }
    }
}

/// The state after one call of a cost under some limits.
fn used(text: &str, cost: u64) -> State {
    let rules = rules(text);
    let (limit, cost) = rules.limit(cost).unwrap();
    let outcome = limit.evaluate(None, NOON_US, cost, Mode::Force).unwrap();
    outcome.next.unwrap().begin().unwrap()
}

/// Usage that each limit goes on with.
fn carried(text: &str, state: Option<&State>) -> Vec<u64> {
    let all = rules(text);
    let (limit, _) = all.limit(0).unwrap();
    let state = state.map(|state| match limit.fits(state) {
        true => Some(state.clone()),
        false => limit.adopt(state).unwrap(),
    });
    let state = state.flatten();
    let inspected = state
        .map(|state| state.inspect(NOON_US))
        .unwrap_or_default();
    let used = |fields: &[rl_core::Field]| {
        let used = fields.iter().find(|field| field.name == "used");
        match used.map(|field| &field.value) {
            Some(rl_core::Shown::Number(used)) => *used,
            _ => 0,
        }
    };
    match inspected.first().map(|field| &field.value) {
        Some(rl_core::Shown::Members(members)) => {
            members.iter().map(|(_, fields)| used(fields)).collect()
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

#[test]
fn a_lease_is_not_adopted() {
    let lease = Limit::Lease(rl_core::lease::Limit::new(5, 1000, b"x").unwrap());
    let outcome = lease.evaluate(None, NOON_US, 1, Mode::Check).unwrap();
    let state = outcome.next.unwrap().begin().unwrap();
    for text in ["SLIDE 1 1", "SLIDE 1 1 SLIDE 1 2"] {
        let rules = rules(text);
        let adopted = rules.limit(1).unwrap().0.adopt(&state);
        assert_eq!(adopted, Err(Error::WrongAlgorithm));
    }
}

#[test]
fn three_usual_limits_need_no_memory_of_their_own() {
    let state = used("SLIDE 100 1m SLIDE 1000 1h BUCKET 10000 10000 1d", 5);
    assert_eq!((state.heap_bytes(), state.pieces()), (0, 1));
    assert_eq!(size_of::<State>(), 64, "as large as a bucket's");
    assert!(used("SLIDE 1 1 SLIDE 1 2 SLIDE 1 3 SLIDE 1 4", 5).heap_bytes() > 0);
}

#[test]
fn a_group_has_between_one_and_sixteen_limits() {
    assert_eq!(group::Limit::new(&[]), Err(Error::RuleCount));
    let all = rules(&["SLIDE 1 1"; 16].join(" "));
    assert!(group::Limit::new(all.as_slice()).is_ok());
    let too_many = ["SLIDE 1 1"; 17].join(" ");
    let refused = Rules::parse(&mut too_many.split(' ').map(str::as_bytes));
    assert_eq!(refused, Err(Error::RuleCount));
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
    let (limit, cost) = two.limit(2).unwrap();
    let next = limit
        .evaluate(None, NOON_US, cost, Mode::Check)
        .unwrap()
        .next
        .unwrap();
    assert_eq!(hex(&next.blob()), GOLDEN_STEP);
}

const GOLDEN: &str = "020000000000000000030111010000401e18240a1600000020000000f011012000401e18240a2600ecba8302001cf217010000000000000050e8070100401e18240a0600020103";
const GOLDEN_STEP: &str = "02000000000000008000020011010000401e18240a1600000040000000f011012000401e18240a26004827ad010068f1";
