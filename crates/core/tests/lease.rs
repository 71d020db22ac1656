//! Leases: who holds what, for how long, and never more than the limit.

use std::collections::BTreeMap;

use crate::key::{HOLDERS, Key, MINUTE, MS, NOW, SECOND, lease, slide, wait};
use proptest::prelude::*;
use rl_core::{
    Decision, Error, FieldValue, MAX_COUNT, MAX_PERIOD_MS, Mode, NEVER, StateField, Update,
};
use rl_core::{MAX_HOLDER_LEN, MAX_HOLDERS};

#[test]
fn memory_is_that_of_the_list_and_of_the_names() {
    let held = |names: &[&[u8]]| {
        let mut key = Key::default();
        for name in names {
            key.call(&lease(9, 1000, name), NOW, 1);
        }
        let state = key.0.unwrap();
        (state.heap_bytes(), state.allocations())
    };
    // Two numbers, a mark and a name; the list of one holder has no room to spare.
    let entry = 40;
    assert_eq!(held(&[b"a"]), (entry + 1, 2));
    assert_eq!(held(&[b"0123456789"]), (entry + 10, 2));
    let (bytes, pieces) = held(&[b"abc", b"de", b"f"]);
    assert_eq!((bytes % entry, pieces), (6, 4));
    assert!(bytes / entry >= 3);
}

#[test]
fn a_list_is_empty_once_the_last_holder_has_let_go() {
    let mut key = Key::default();
    key.call(&lease(9, 1000, b"a"), NOW, 1);
    assert!(!key.0.as_ref().unwrap().is_empty());
    // No call leaves such a list behind, but a forged step does.
    let holder = b"a";
    key.take(Update::Lease(rl_core::LeaseUpdate::Release {
        at_us: NOW,
        holder,
    }));
    assert!(key.0.unwrap().is_empty());
}

#[test]
fn what_is_left_is_shown_by_a_clock_that_stepped_back_too() {
    let mut key = Key::default();
    key.call(&lease(9, 5000, b"a"), NOW, 2);
    let shown = |now_us: u64| {
        let fields = key.0.as_ref().unwrap().inspect(now_us);
        let leases = fields.into_iter().find(|field| field.name == "leases");
        match leases.map(|field| field.value) {
            Some(FieldValue::Leases(holders)) => holders,
            other => panic!("{other:?}"),
        }
    };
    let a: Box<[u8]> = Box::from(&b"a"[..]);
    assert_eq!(shown(NOW), [(a.clone(), 2, 5000)]);
    assert_eq!(shown(NOW + SECOND), [(a.clone(), 2, 4000)]);
    assert_eq!(shown(NOW - MINUTE), [(a, 2, 5000)]);
    assert_eq!(shown(NOW + 5 * SECOND), []);
}

#[test]
fn two_holders_are_distinguished_even_if_their_hashes_are_equal() {
    // FNV-1a of both is the same.
    let (one, other) = (lease(9, 1000, b"costarring"), lease(9, 1000, b"liquid"));
    let mut key = Key::default();
    assert_eq!(key.call(&one, NOW, 2).remaining, 7);
    assert_eq!(key.call(&other, NOW, 3).remaining, 4);
    assert_eq!(key.release(NOW, b"liquid"), 3);
    assert_eq!(key.release(NOW, b"liquid"), 0);
    assert_eq!(key.release(NOW, b"costarring"), 2);
}

#[test]
fn at_most_five_are_held_at_once() {
    let mut key = Key::default();
    for holder in [b"a", b"b", b"c", b"d", b"e"] {
        assert!(key.call(&lease(5, 60_000, holder), NOW, 1).allowed);
    }
    assert_eq!(
        key.call(&lease(5, 60_000, b"f"), NOW + SECOND, 1),
        Decision {
            index: 0,
            allowed: false,
            limit: 5,
            remaining: 0,
            retry_after_ms: 59_000,
            reset_after_ms: 59_000
        }
    );
    assert_eq!(key.release(NOW + SECOND, b"c"), 1);
    assert!(key.call(&lease(5, 60_000, b"f"), NOW + SECOND, 1).allowed);
}

#[test]
fn a_crashed_holder_loses_its_lease_after_the_ttl_and_not_a_microsecond_sooner() {
    let mut key = Key::default();
    key.call(&lease(1, 1000, b"a"), NOW, 1);
    let other = lease(1, 1000, b"b");
    assert_eq!(wait(key.call(&other, NOW + SECOND - 1, 1)), 1);
    assert!(key.call(&other, NOW + SECOND, 1).allowed);
    assert_eq!(key.release(NOW + SECOND, b"a"), 0, "it is another's now");
}

#[test]
fn the_same_holder_renews_with_what_it_asks_for_now() {
    let mut key = Key::default();
    key.call(&lease(5, 1000, b"a"), NOW, 3);
    key.call(&lease(5, 1000, b"b"), NOW, 1);
    let again = key.call(&lease(5, 60_000, b"a"), NOW + 500 * MS, 4);
    assert_eq!(
        (again.allowed, again.remaining, again.reset_after_ms),
        (true, 0, 60_000)
    );
    // More than others leave waits for them, and not for its own.
    assert_eq!(
        wait(key.call(&lease(5, 60_000, b"a"), NOW + 500 * MS, 5)),
        500
    );
    assert_eq!(wait(key.peek(&lease(5, 1000, b"a"), NOW, 6)), NEVER);
    // Less, for a shorter time, is what it then has.
    let less = key.call(&lease(5, 1, b"a"), NOW + 500 * MS, 1);
    assert_eq!((less.remaining, less.reset_after_ms), (3, 500));
    assert_eq!(key.remaining(&lease(5, 1, b"a"), NOW + 501 * MS), 4);
}

#[test]
fn a_wait_is_for_the_first_expiry_that_makes_room() {
    let mut key = Key::default();
    for (holder, ttl_ms, units) in [(&b"a"[..], 3000, 1), (b"b", 1000, 2), (b"c", 2000, 3)] {
        assert!(key.call(&lease(6, ttl_ms, holder), NOW, units).allowed);
    }
    for (cost, wait_ms) in [(1, 1000), (2, 1000), (3, 2000), (5, 2000), (6, 3000)] {
        assert_eq!(
            wait(key.peek(&lease(6, 1000, b"d"), NOW, cost)),
            wait_ms,
            "{cost}"
        );
    }
}

#[test]
fn cost_0_reports_and_writes_nothing() {
    let mut key = Key::default();
    key.call(&lease(5, 1000, b"a"), NOW, 3);
    for (now_us, holder) in [(NOW, b"a"), (NOW, b"b"), (NOW - 1, b"a")] {
        let outcome = key.evaluate(&lease(5, 60_000, holder), now_us, 0, Mode::Check);
        assert_eq!(outcome.update, None);
        let report = outcome.decision;
        assert_eq!((report.remaining, report.reset_after_ms), (2, 1000));
    }
    // Over the limit, a report says when it is not any more, whoever asks.
    key.force(&lease(5, 2000, b"a"), NOW, 9);
    for holder in [b"a", b"b"] {
        assert_eq!(wait(key.peek(&lease(5, 60_000, holder), NOW, 0)), 2000);
    }
}

#[test]
fn a_denial_leaves_no_trace_but_a_step_back_is_noticed_once() {
    let mut key = Key::default();
    key.call(&lease(1, 1000, b"a"), NOW, 1);
    let other = lease(1, 1000, b"b");
    assert_eq!(
        key.evaluate(&other, NOW + 400 * MS, 1, Mode::Check).update,
        None
    );
    let back = NOW - 86_400 * SECOND;
    let denied = key.store(&other, back, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 1000);
    assert!(denied.update.is_some());
    assert_eq!(denied.expiry.at_ms, (back + SECOND).div_ceil(MS));
    assert_eq!(key.evaluate(&other, back + 1, 1, Mode::Check).update, None);
    assert!(key.call(&other, back + SECOND, 1).allowed);
}

#[test]
fn a_release_after_a_step_back_lets_go_and_keeps_the_others() {
    let mut key = Key::default();
    for holder in [b"a", b"b"] {
        key.call(&lease(2, 1000, holder), NOW, 1);
    }
    let back = NOW - MINUTE;
    assert_eq!(key.release(back, b"a"), 1);
    assert_eq!(key.release(back, b"a"), 0);
    assert_eq!(
        key.peek(&lease(2, 1000, b"c"), back, 0).reset_after_ms,
        1000
    );
    assert_eq!(key.release(back, b"b"), 1);
    assert_eq!(key.0, None, "the last one takes the key along");
}

#[test]
fn a_release_of_nothing_changes_nothing() {
    let mut key = Key::default();
    key.call(&lease(2, 1000, b"a"), NOW, 1);
    let before = key.0.clone();
    assert_eq!(key.release(NOW, b"b"), 0);
    assert_eq!(key.0, before);
    assert_eq!(key.release(NOW + SECOND, b"a"), 0, "it is over");
    let state = key.0.as_ref().unwrap();
    assert_eq!(state.release(NOW, b""), Err(Error::Holder));
    assert_eq!(
        state.release(NOW, &[0; MAX_HOLDER_LEN + 1]),
        Err(Error::Holder)
    );
    assert_eq!(state.refund(NOW, 1), Err(Error::RefundOfLease));
    key = Key::default();
    key.call(&slide(1, 1000), NOW, 1);
    assert_eq!(
        key.0.unwrap().release(NOW, b"a"),
        Err(Error::WrongAlgorithm)
    );
}

#[test]
fn a_key_has_at_most_10_000_holders() {
    let mut key = Key::default();
    let name = |number: usize| number.to_string().into_bytes();
    for number in 0..MAX_HOLDERS {
        let ttl_ms = if number == 7 { 1000 } else { 60_000 };
        assert!(
            key.call(&lease(MAX_COUNT, ttl_ms, &name(number)), NOW, 1)
                .allowed
        );
    }
    let more = name(MAX_HOLDERS);
    let more = lease(MAX_COUNT, 60_000, &more);
    let state = key.0.as_ref();
    assert_eq!(
        more.evaluate(state, NOW, 1, Mode::Check),
        Err(Error::TooManyHolders)
    );
    assert_eq!(
        more.evaluate(state, NOW, 1, Mode::Force),
        Err(Error::TooManyHolders)
    );
    assert!(more.evaluate(state, NOW, 0, Mode::Check).is_ok());
    assert!(
        key.call(&lease(MAX_COUNT, 60_000, b"8"), NOW, 1).allowed,
        "a renewal"
    );
    assert!(
        key.call(&more, NOW + SECOND, 1).allowed,
        "in place of one that is over"
    );
    let state = key.0.unwrap();
    assert!(rl_core::State::decode_blob(&state.blob()).is_ok());
    assert_eq!(state.allocations(), 1 + MAX_HOLDERS);
}

#[test]
fn names_are_any_bytes_up_to_256() {
    let mut key = Key::default();
    let long = [b'x'; MAX_HOLDER_LEN];
    for name in [&b"\0"[..], b"\0\0", b"\xff\r\n ", &long, &long[1..]] {
        assert!(key.call(&lease(5, 1000, name), NOW, 1).allowed);
    }
    assert_eq!(key.remaining(&lease(5, 1000, b"a"), NOW), 0);
    assert_eq!(key.release(NOW, &long), 1);
    use rl_core::LeaseLimit;
    assert_eq!(LeaseLimit::new(1, 1, b""), Err(Error::Holder));
    assert_eq!(
        LeaseLimit::new(1, 1, &[0; MAX_HOLDER_LEN + 1]),
        Err(Error::Holder)
    );
    assert_eq!(LeaseLimit::new(MAX_COUNT + 1, 1, b"a"), Err(Error::Limit));
    assert_eq!(LeaseLimit::new(1, 0, b"a"), Err(Error::Ttl));
    assert_eq!(LeaseLimit::new(1, MAX_PERIOD_MS + 1, b"a"), Err(Error::Ttl));
}

#[test]
fn inspect_shows_who_holds_what_and_for_how_long() {
    let mut key = Key::default();
    key.call(&lease(5, 1000, b"gone"), NOW, 1);
    key.call(&lease(5, 3000, b"late"), NOW, 1);
    key.call(&lease(5, 2000, b"soon"), NOW, 2);
    let fields = key.0.unwrap().inspect(NOW + SECOND);
    let value = |name| {
        fields
            .iter()
            .find(|field: &&StateField| field.name == name)
            .unwrap()
            .value
            .clone()
    };
    assert_eq!(value("used"), FieldValue::Number(3));
    assert_eq!(value("holder_count"), FieldValue::Number(2));
    let held = vec![(b"soon"[..].into(), 2, 1000), (b"late"[..].into(), 1, 2000)];
    assert_eq!(value("leases"), FieldValue::Leases(held));
}

proptest! {
    #![proptest_config(crate::key::cases(500))]

    /// Every lease granted is checked against all that may be held at that moment, limits changing or not.
    #[test]
    fn never_more_than_the_limit_is_held_at_once(
        size in 1..8u64,
        calls in proptest::collection::vec((0..1500u64, 1..2000u64, 0..HOLDERS.len(), 1..4u64, any::<bool>()), 1..60),
    ) {
        let (mut key, mut now, mut held) = (Key::default(), NOW, BTreeMap::new());
        for (gap, ttl_ms, holder, units, release) in calls {
            now += gap * MS;
            held.retain(|_, &mut (until, _)| until > now);
            if release && gap % 3 == 0 {
                let expected = held.remove(&holder).map_or(0, |(_, units)| units);
                prop_assert_eq!(key.release(now, HOLDERS[holder]), expected);
                continue;
            }
            if key.call(&lease(size, ttl_ms, HOLDERS[holder]), now, units).allowed {
                held.insert(holder, (now + ttl_ms * MS, units));
            }
            let sum: u64 = held.values().map(|(_, units)| units).sum();
            prop_assert!(sum <= size);
            prop_assert_eq!(key.remaining(&lease(size, 1, b"?"), now), size - sum);
        }
    }
}
