//! Reservations of BUCKET and LEAK get the same back in whatever order they are settled. What the debt remembers for this is
//! bounded, and forgotten when it no longer matters.

use proptest::prelude::*;
use rl_core::reservation::{ActualUsage, KeyChange, ReservedKey};
use rl_core::{Error, Limit, MAX_COUNT, MAX_PACKED_LEN, Mode, State};

use crate::key::{Key, NOW, Rule, SECOND, bucket, leak};
use crate::ledger::Ledger;
use crate::reservations::{reserve, settle};

/// The integers of an unmarked state, and of a marked one without refunds.
const UNMARKED: usize = 2;
const MARKED: usize = 4;

/// The most refunds that a debt remembers.
const MOST_REFUNDS: usize = 128;

fn packed_len(key: &Key) -> usize {
    let state = key.0.as_ref().unwrap();
    let packed = state.packed().unwrap();
    assert_eq!(State::decode(packed.as_slice()).as_ref(), Ok(state));
    assert_eq!(State::decode_blob(&state.blob()).as_ref(), Ok(state));
    packed.as_slice().len()
}

/// How many refunds the debt remembers.
fn refunds(key: &Key) -> usize {
    let unmarked = match packed_len(key) {
        // Wide states have an odd number of integers.
        len if len % 2 == 1 => 7,
        _ => MARKED,
    };
    (packed_len(key) - unmarked) / 2
}

/// Many reservations of `units` each, one per microsecond.
fn many<'a>(key: &mut Key, limit: &Limit<'a>, count: u64, units: u64) -> Vec<ReservedKey<'a>> {
    let reserve = |n| reserve(key, limit, NOW + n, units);
    (0..count).map(reserve).collect()
}

/// The numbers below `count`, a step apart.
fn in_steps(count: usize, step: usize) -> Vec<usize> {
    (0..count).map(|n| n * step % count).collect()
}

/// As many reservations as there are in `order`, each of 100 units and settled at 10.
fn settle_all(limit: &Limit, order: &[usize]) {
    let mut key = Key::default();
    let count = order.len() as u64;
    let reserved = many(&mut key, limit, count, 100);
    let now = NOW + count;
    for &index in order {
        assert_eq!(settle(&mut key, &reserved[index], now, 10), 10, "{index}");
        assert!(refunds(&key) <= order.len() / 2);
    }
    assert_eq!(key.remaining(limit, now), 60_000 - count * 10);
    // Adjacent refunds are one.
    assert_eq!(refunds(&key), 1);
}

fn slow_limits() -> [Limit<'static>; 2] {
    [bucket(60_000, 1, 3_600_000), leak(60_000, 1, 3_600_000)]
}

#[test]
fn fifty_reservations_get_all_back_forwards_backwards_and_in_steps() {
    for limit in slow_limits() {
        for step in [1, 7, 49] {
            settle_all(&limit, &in_steps(50, step));
        }
    }
}

proptest! {
    #![proptest_config(crate::key::cases(300))]

    #[test]
    fn fifty_reservations_get_all_back_in_any_order(
        order in Just((0..50).collect::<Vec<_>>()).prop_shuffle(),
        leaks in any::<bool>(),
    ) {
        settle_all(&slow_limits()[usize::from(leaks)], &order);
    }

    /// In random order, 400 have about 100 separate refunds at once, and hardly ever more than are remembered.
    #[test]
    fn four_hundred_reservations_get_all_back_in_random_order(
        order in Just((0..400).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        settle_all(&slow_limits()[0], &order);
    }

    /// Above the most refunds that are remembered, some get less back, and none too much.
    #[test]
    fn hundreds_of_reservations_never_get_too_much_back(
        order in Just((0..800).collect::<Vec<_>>()).prop_shuffle(),
        spread in 0..3u64,
        drained in 0..100u64,
        takes_all in any::<bool>(),
    ) {
        // A unit per second, and whole seconds: nothing is rounded.
        let rule = Rule::Bucket(10_000, 1, 1000);
        let limit = rule.limit();
        let (mut key, mut ledger) = (Key::default(), Ledger::new(rule));
        let mut reserved = Vec::new();
        let mut now = NOW;
        for _ in 0..800 {
            now += spread * SECOND;
            ledger.charge(rule, now, now, 10, true);
            reserved.push(reserve(&mut key, &limit, now, 10));
        }
        now += drained * SECOND;
        for (settled, &index) in order.iter().enumerate() {
            if settled % 20 == 0 {
                now += SECOND;
                let room = if takes_all { key.remaining(&limit, now).max(1) } else { 1 };
                key.force(&limit, now, room);
                ledger.charge(rule, now, now, room, room > 1);
            }
            let refunded = 10 - settle(&mut key, &reserved[index], now, 2);
            let (_, most) = ledger.refundable(index, now, now);
            prop_assert!(refunded <= most.min(8), "{refunded} > {most}");
            ledger.refund(index, now, refunded);
            prop_assert_eq!(Some(10_000 - key.remaining(&limit, now)), ledger.used(now).map(|used| used.min(10_000)));
            prop_assert!(key.0.is_none() || refunds(&key) <= MOST_REFUNDS);
        }
    }
}

#[test]
fn at_the_cap_the_nearest_refunds_are_joined() {
    let limit = bucket(60_000, 1, 3_600_000);
    let mut key = Key::default();
    let mut reserved = Vec::new();
    let count = 2 * MOST_REFUNDS as u64 + 6;
    for n in 0..count {
        // The gap between the tenth and the eleventh refund is the smallest.
        let units = if n == 19 { 5 } else { 10 };
        reserved.push(reserve(&mut key, &limit, NOW + n, units));
    }
    let now = NOW + count;
    for n in 0..MOST_REFUNDS {
        assert_eq!(settle(&mut key, &reserved[2 * n], now, 4), 4);
    }
    assert_eq!(refunds(&key), MOST_REFUNDS);
    assert_eq!(settle(&mut key, &reserved[2 * MOST_REFUNDS], now, 4), 4);
    assert_eq!(refunds(&key), MOST_REFUNDS);
    let packed = key.0.as_ref().unwrap().packed().unwrap();
    let tail = packed.as_slice().len() - 2 * MOST_REFUNDS;
    let joined = &packed.as_slice()[tail + 2 * 9..];
    assert_eq!(joined[..2], [180, 25 << 32 | 12]);
    // What lies between counts, but not as if the refund after it were known: enough is left of what came before.
    assert_eq!(settle(&mut key, &reserved[19], now, 0), 0);
    assert_eq!(settle(&mut key, &reserved[21], now, 0), 0);
    let most = MOST_REFUNDS as u64;
    let charged = (most + 1) * 4 + (most + 3) * 10;
    assert_eq!(key.remaining(&limit, now), 60_000 - charged);
}

#[test]
fn the_longest_form_is_read_again() {
    // Neither the rate nor the debt fits into the compact form.
    let limit = bucket(MAX_COUNT, 1_000_003, 1000);
    let mut key = Key::default();
    let count = 3 * MOST_REFUNDS;
    let reserved = many(&mut key, &limit, count as u64, 1 << 40);
    let now = NOW + count as u64;
    let settled = MOST_REFUNDS + 8;
    for n in 0..settled {
        let charged = settle(&mut key, &reserved[2 * n], now, 3);
        assert!(
            (3..=3 + count as u64).contains(&charged),
            "what has drained: {charged}"
        );
    }
    assert_eq!(packed_len(&key), MAX_PACKED_LEN);
    for (n, reserved) in reserved
        .iter()
        .enumerate()
        .filter(|(n, _)| *n >= 2 * settled || n % 2 == 1)
    {
        let charged = settle(&mut key, reserved, now, 3);
        assert!((3..=1 << 40).contains(&charged), "{n}");
        packed_len(&key);
    }
}

#[test]
fn refunds_are_forgotten_once_what_came_before_has_drained() {
    let limit = bucket(1000, 10, 1000);
    let mut key = Key::default();
    let reserved = many(&mut key, &limit, 10, 20);
    for n in [1, 3, 5, 7] {
        assert_eq!(settle(&mut key, &reserved[n], NOW + 10, 10), 10);
    }
    assert_eq!(refunds(&key), 4);
    // 160 units are left. Those before the second refund are 50, of which a second drains 10.
    for (seconds, left) in [(1, 4), (2, 3), (4, 3), (5, 2), (8, 1), (11, 0)] {
        key.call(&limit, NOW + 10 + seconds * SECOND, 1);
        assert_eq!(refunds(&key), left, "{seconds} s");
    }
    // Once all has drained, nothing is marked.
    key.call(&limit, NOW + 60 * SECOND, 1);
    assert_eq!(packed_len(&key), UNMARKED);
    assert!(!key.0.unwrap().owns_memory());
}

#[test]
fn a_part_of_a_unit_is_refunded_but_not_remembered() {
    let limit = bucket(100, 1, 1000);
    let mut key = Key::default();
    let reserved = reserve(&mut key, &limit, NOW, 1);
    key.call(&limit, NOW, 5);
    let later = NOW + SECOND / 4;
    assert_eq!(settle(&mut key, &reserved, later, 0), 0);
    assert_eq!(refunds(&key), 0);
    assert_eq!(key.remaining(&limit, later), 95);
    assert_eq!(key.peek(&limit, later, 96).retry_after_ms, 1000);
}

/// Units that an older copy of the key does not count cannot be refunded from it.
#[test]
fn a_restored_older_key_refunds_nothing_of_later_charges() {
    for limit in [bucket(1000, 1, 1000), leak(1000, 1, 1000)] {
        let mut key = Key::default();
        let first = reserve(&mut key, &limit, NOW, 50);
        let mut restored = key.clone();
        let second = reserve(&mut key, &limit, NOW, 50);
        assert_eq!(settle(&mut restored, &second, NOW, 0), 50, "{limit}");
        assert_eq!(settle(&mut restored, &first, NOW, 10), 10, "{limit}");
        assert_eq!(restored.remaining(&limit, NOW), 990, "{limit}");
    }
}

/// A record that was restored may settle the same charge twice: its units are refunded, but counted once.
#[test]
fn a_charge_that_is_settled_twice_leaves_a_state_that_can_be_read() {
    let limit = bucket(1000, 1, 1000);
    let mut key = Key::default();
    let reserved = many(&mut key, &limit, 3, 50);
    for _ in 0..3 {
        settle(&mut key, &reserved[1], NOW + 3, 10);
        assert_eq!(refunds(&key), 1);
    }
    assert!(settle(&mut key, &reserved[0], NOW + 3, 0) > 0);
}

#[test]
fn nothing_is_refunded_if_the_period_was_another_in_between() {
    let (limit, other) = (bucket(1000, 1, 1000), bucket(1000, 1, 2000));
    let mut key = Key::default();
    let reserved = reserve(&mut key, &limit, NOW, 50);
    key.call(&other, NOW + 1, 1);
    assert_eq!(packed_len(&key), UNMARKED);
    let again = reserve(&mut key, &limit, NOW + 2, 50);
    assert_eq!(settle(&mut key, &reserved, NOW + 3, 0), 50);
    assert_eq!(settle(&mut key, &again, NOW + 3, 0), 0);
}

#[test]
fn a_mark_whose_numbers_are_used_up_is_dropped() {
    let limit = bucket(1000, 1, 1000);
    let mut key = Key::default();
    let reserved = reserve(&mut key, &limit, NOW, 50);
    let with_charged = |charged: u64| {
        let mut blob = key.0.as_ref().unwrap().blob().to_vec();
        let at = blob.len() - 8;
        blob[at..].copy_from_slice(&charged.to_le_bytes());
        Key(Some(State::decode_blob(&blob).unwrap()))
    };
    let mut last = with_charged(u64::MAX - 5);
    last.call(&limit, NOW, 5);
    assert_eq!(packed_len(&last), MARKED);
    last.call(&limit, NOW, 1);
    assert_eq!(packed_len(&last), UNMARKED);
    assert_eq!(settle(&mut last, &reserved, NOW, 0), 50);
}

/// Integers of a marked state with two refunds, (10, 20] and (40, 50], of 60 units.
fn with_two_refunds() -> (Vec<u64>, Key) {
    let limit = bucket(1000, 1, 1000);
    let mut key = Key::default();
    let reserved = many(&mut key, &limit, 6, 10);
    for n in [1, 4] {
        settle(&mut key, &reserved[n], NOW + 6, 7);
    }
    let packed = key.0.as_ref().unwrap().packed().unwrap();
    (packed.as_slice().to_vec(), key)
}

#[test]
fn damaged_refunds_are_refused() {
    let (packed, key) = with_two_refunds();
    let amounts = |len: u64, units: u64| len << 32 | units;
    assert_eq!(packed[3..], [60, 10, amounts(10, 3), 40, amounts(10, 3)]);
    assert_eq!(State::decode(&packed).ok(), key.0);
    for (at, value, is_valid) in [
        // The last refund ends with the last unit at the latest.
        (3, 50, true),
        (3, 49, false),
        (6, 50, true),
        (6, 51, false),
        (6, u64::MAX, false),
        // They are in order and do not touch.
        (6, 21, true),
        (6, 20, false),
        (6, 15, false),
        (4, 29, true),
        (4, 30, false),
        // Some units, and no more than were charged.
        (5, amounts(10, 10), true),
        (5, amounts(10, 11), false),
        (5, amounts(10, 0), false),
        (5, amounts(0, 0), false),
    ] {
        let mut damaged = packed.clone();
        damaged[at] = value;
        let state = State::decode(&damaged);
        assert_eq!(state.is_ok(), is_valid, "{value} at {at}");
        if let Ok(state) = state {
            assert_eq!(state.packed().unwrap().as_slice(), damaged);
        }
    }
}

#[test]
fn more_refunds_than_there_can_be_are_refused() {
    let (packed, _) = with_two_refunds();
    for count in [0, 1, 3, 128, 129, 255] {
        let mut damaged = packed.clone();
        damaged[0] = damaged[0] & !(255 << 52) | count << 52;
        let len = rl_core::packed_len(damaged[0], damaged[1]);
        assert!(len <= MAX_PACKED_LEN);
        assert_eq!(State::decode(&damaged), Err(Error::DamagedState));
        damaged.resize(len, 0);
        for pair in 0..(len - MARKED) / 2 {
            let at = MARKED + 2 * pair;
            (damaged[at], damaged[at + 1]) = (2 * pair as u64, 1 << 32 | 1);
        }
        damaged[3] = 1000;
        assert_eq!(State::decode(&damaged).is_ok(), count <= 128, "{count}");
    }
}

#[test]
fn forced_charges_count_like_others() {
    let limit = bucket(100, 1, 1000);
    let mut key = Key::default();
    let reserved = reserve(&mut key, &limit, NOW, 100);
    key.store(&limit, NOW, 300, Mode::Force);
    // All of the reservation drains, and then some of what was forced.
    let later = NOW + 150 * SECOND;
    assert_eq!(settle(&mut key, &reserved, later, 0), 100);
    assert_eq!(settle(&mut key, &reserved, NOW + 60 * SECOND, 0), 60);
}

/// Two limits of the same kind: once the first counts nothing, its charges must not be refunded from the second.
#[test]
fn each_limit_of_a_policy_refunds_its_own_charges() {
    let rules = [(100, 3), (1, 1)].map(|(refill, cost)| rl_core::Rule {
        limit: bucket(100, refill, 1000),
        cost: Some(cost),
    });
    let limit = Limit::Policy(rl_core::PolicyLimits::new(&rules).unwrap());
    let mut key = Key::default();
    let [first, second] = [0, 1].map(|n| reserve(&mut key, &limit, NOW + n, 1));
    // The first limit has one unit left, which the second reservation gets back, so that it counts nothing any more.
    let now = NOW + SECOND / 20;
    let actual = ActualUsage {
        times: 1,
        calls: 0,
        units: 0,
    };
    for (reserved, left) in [(&second, 1), (&first, 0)] {
        let settlement = reserved.settle(key.0.as_ref(), now, actual).unwrap();
        match settlement.change {
            KeyChange::Update(update) => key.take(update),
            KeyChange::Delete => key = Key::default(),
            KeyChange::Keep => {}
        }
        let used = key
            .0
            .as_ref()
            .map_or(0, |_| 100 - key.remaining(&limit, now));
        assert_eq!(used, left);
    }
}
