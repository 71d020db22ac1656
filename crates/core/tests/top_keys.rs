//! The sketch of the hottest keys, compared with exact counts.

use std::collections::HashMap;

use crate::key::cases;
use proptest::prelude::*;
use rl_core::stats::{MAX_KEY_LEN, RankBy, TopKeys};

const MINUTE: u64 = 60_000_000;
/// The beginning of a minute.
const NOON: u64 = 1_800_014_400 * 1_000_000;
const SEED: u64 = 0x1234_5678_9abc_def1;

/// A repeatable source of numbers (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Keys by rank, the k-th called 1/k as often as the first.
struct Zipf {
    sums: Vec<u64>,
}

impl Zipf {
    fn new(keys: u64) -> Self {
        let mut sum = 0;
        let sums = (1..=keys).map(|rank| {
            sum += 1_000_000_000 / rank;
            sum
        });
        Self {
            sums: sums.collect(),
        }
    }

    fn key(&self, random: &mut Random) -> usize {
        let whole = self.sums[self.sums.len() - 1];
        let at = (random.next() >> 8) % whole;
        self.sums.partition_point(|sum| *sum <= at)
    }
}

fn names(top: &mut TopKeys, most: usize, by: RankBy, now: u64) -> Vec<(String, u64, u64)> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let hottest = top.hottest(most, by, now);
    hottest
        .iter()
        .map(|hot| (text(hot.name), hot.checks, hot.denials))
        .collect()
}

#[test]
fn a_few_keys_are_counted_exactly() {
    let mut top = TopKeys::new(8, SEED, NOON);
    for n in 1..=5 {
        for call in 0..n {
            top.record(format!("key:{n}").as_bytes(), call % 2 == 1, NOON);
        }
    }
    let expected = [(5, 2), (4, 2), (3, 1)].map(|(n, denied)| (format!("key:{n}"), n, denied));
    assert_eq!(names(&mut top, 3, RankBy::Checks, NOON), expected);
    assert_eq!(
        names(&mut top, 5, RankBy::Checks, NOON).len(),
        5,
        "all of them"
    );
    let most_denied = names(&mut top, 9, RankBy::Denials, NOON);
    assert_eq!(most_denied.len(), 4, "key:1 was never denied");
    assert_eq!(most_denied[0], ("key:5".into(), 5, 2));
}

#[test]
fn a_key_that_becomes_hot_takes_a_place_from_a_flood() {
    for seed in 1..20 {
        let mut top = TopKeys::new(8, SEED ^ seed, NOON);
        for n in 0..2000 {
            top.record(format!("once:{n}").as_bytes(), false, NOON);
        }
        for _ in 0..2000 {
            top.record(b"hot", false, NOON);
        }
        let hottest = names(&mut top, 1, RankBy::Checks, NOON);
        assert_eq!(hottest[0].0, "hot");
        assert!(hottest[0].1 > 1500, "{hottest:?}");
    }
}

#[test]
fn this_minute_and_the_previous_one_are_reported() {
    let mut top = TopKeys::new(8, SEED, NOON);
    let now = NOON + 59_999_999;
    top.record(b"old", true, now);
    top.record(b"both", false, now);
    top.record(b"both", true, now + 1);
    let told = names(&mut top, 9, RankBy::Checks, now + 1);
    assert_eq!(told, [("both".into(), 2, 1), ("old".into(), 1, 1)]);
    top.record(b"new", false, now + 1 + MINUTE);
    let told = names(&mut top, 9, RankBy::Checks, now + 1 + MINUTE);
    assert_eq!(told, [("both".into(), 1, 1), ("new".into(), 1, 0)]);
    assert_eq!(names(&mut top, 9, RankBy::Checks, now + 4 * MINUTE), []);
    // A clock that steps back turns the page as well.
    top.record(b"late", false, now + 9 * MINUTE);
    top.record(b"early", false, NOON);
    assert_eq!(names(&mut top, 9, RankBy::Checks, NOON).len(), 2);
}

#[test]
fn on_a_zipf_stream_the_true_top_ten_are_found() {
    let zipf = Zipf::new(100_000);
    for seed in 1..=5 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut top = TopKeys::new(128, random.next(), NOON);
        let mut exact = HashMap::new();
        for _ in 0..300_000 {
            let key = zipf.key(&mut random);
            top.record(format!("user:{key}").as_bytes(), false, NOON);
            *exact.entry(format!("user:{key}")).or_insert(0_u64) += 1;
        }
        let mut truth: Vec<_> = exact.iter().collect();
        truth.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let told = names(&mut top, 20, RankBy::Checks, NOON);
        let ten: Vec<_> = told[..10].iter().map(|(name, ..)| name).collect();
        for (name, count) in &truth[..10] {
            // The tenth and the eleventh may be so close that a few lost counts change their order.
            let close = **count <= *truth[10].1 + truth[10].1 / 50;
            assert!(ten.contains(name) || close, "{name} of {ten:?}");
        }
        for (name, checks, _) in &told {
            let (is, says) = (exact[name], *checks);
            assert!(says <= is && is - says <= is / 20, "{name}: {says} of {is}");
        }
    }
}

#[test]
fn a_flood_of_keys_that_come_once_hides_nobody() {
    let mut top = TopKeys::new(16, SEED, NOON);
    for n in 0..200_000 {
        top.record(format!("once:{n}").as_bytes(), true, NOON);
        if n % 100 == 0 {
            top.record(b"attacker", true, NOON);
        }
    }
    for by in [RankBy::Checks, RankBy::Denials] {
        let (name, checks, denials) = &names(&mut top, 1, by, NOON)[0];
        assert_eq!(name, "attacker");
        assert!(*checks <= 2000 && *checks > 1500, "{checks}");
        assert!(*denials <= 2000 && *denials > 1500, "{denials}");
    }
}

#[test]
fn long_names_are_cut_and_distinguished() {
    let mut top = TopKeys::new(4, SEED, NOON);
    let (a, b) = ([b'x'; 300], [b'x'; 301]);
    top.record(&a, false, NOON);
    top.record(&b, false, NOON);
    top.record(&b, false, NOON);
    let hottest = top.hottest(4, RankBy::Checks, NOON);
    let seen: Vec<_> = hottest
        .iter()
        .map(|hot| (hot.name.len(), hot.checks))
        .collect();
    assert_eq!(seen, [(MAX_KEY_LEN, 2), (MAX_KEY_LEN, 1)]);
}

#[test]
fn names_of_every_length_are_distinguished() {
    let mut top = TopKeys::new(1000, SEED, NOON);
    let zeros = [0; 64];
    let ones = [1; 64];
    for len in 0..=64 {
        top.record(&zeros[..len], false, NOON);
        top.record(&ones[..len], false, NOON);
    }
    // The empty name is the same in both.
    assert_eq!(top.hottest(1000, RankBy::Checks, NOON).len(), 129);
}

/// Each name is recorded once: two that were taken for one would have a count of 2.
fn assert_distinguished(all: impl Iterator<Item = Vec<u8>>) {
    let mut top = TopKeys::new(1000, SEED, NOON);
    for name in all {
        top.record(&name, false, NOON);
    }
    for hot in top.hottest(1000, RankBy::Checks, NOON) {
        assert_eq!(hot.checks, 1, "{:?}", hot.name);
    }
}

#[test]
fn names_that_differ_in_one_bit_are_distinguished() {
    for len in [1, 2, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 33, 40] {
        let name = vec![b'a'; len];
        let other = |bit: usize| {
            let mut other = name.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            other
        };
        assert_distinguished((0..8 * len).map(other).chain([name.clone()]));
    }
}

#[test]
fn differences_in_two_places_do_not_make_up_for_each_other() {
    let name = |n: u8| {
        let mut name = *b"user:000:page:00";
        (name[7], name[15]) = (b'a' + n / 16, b'a' + n % 16);
        name.to_vec()
    };
    assert_distinguished((0..=255).map(name));
}

/// The count of one key, if there is one bucket and nothing has been denied: in a copy, a denial ranks the key first.
fn count_of(top: &TopKeys, name: &[u8]) -> u64 {
    let mut copy = top.clone();
    copy.record(name, true, NOON);
    copy.hottest(1, RankBy::Denials, NOON)[0].checks - 1
}

#[test]
fn a_key_without_a_slot_takes_one_off_less_often_the_larger_the_count() {
    const KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let calls = 20_000;
    // In a full bucket one call in `count` + 1 takes one off, and at most one in eight. The tolerance is in percent.
    for (count, one_in, tolerance) in [(2, 8, 5), (8, 9, 5), (99, 100, 20)] {
        let mut top = TopKeys::new(1, SEED, NOON);
        for key in KEYS {
            for _ in 0..count {
                top.record(key, false, NOON);
            }
        }
        let mut lost = [0_u64; 4];
        for _ in 0..calls {
            top.record(b"other", false, NOON);
            for (key, lost) in KEYS.into_iter().zip(&mut lost) {
                // Counted again, so that all counts stay equal.
                for _ in count_of(&top, key)..count {
                    top.record(key, false, NOON);
                    *lost += 1;
                }
            }
        }
        let all = lost.iter().sum::<u64>() * one_in;
        let off = all.abs_diff(calls) * 100 / calls;
        assert!(off < tolerance, "{lost:?} at a count of {count}");
        for one in lost {
            let share = one * one_in * 4;
            assert!(share > calls / 2 && share < calls * 2, "{lost:?}");
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    /// Up to four keys in one bucket, call by call.
    #[test]
    fn a_call_counts_its_key_or_takes_at_most_one_from_another(
        seed: u64,
        calls in prop::collection::vec(0..12_u8, 1..200),
    ) {
        let mut top = TopKeys::new(1, seed, NOON);
        let counts = |top: &TopKeys| -> Vec<u64> {
            (0..12).map(|key| count_of(top, &[key])).collect()
        };
        let mut before = counts(&top);
        for key in calls {
            let key = usize::from(key);
            top.record(&[key as u8], false, NOON);
            let after = counts(&top);
            let slots = before.iter().filter(|count| **count > 0).count();
            let mut expected = before.clone();
            if before[key] > 0 || slots < 4 {
                expected[key] += 1;
            } else if let Some(loser) = (0..12).find(|&other| after[other] < before[other]) {
                expected[loser] -= 1;
                // The slot is taken over as soon as the count reaches 0.
                expected[key] += u64::from(expected[loser] == 0);
                let largest = before.iter().enumerate().all(|(other, count)| {
                    other == loser || *count < before[loser]
                });
                prop_assert!(!largest, "{before:?} {after:?}");
            }
            prop_assert_eq!(&after, &expected, "from {:?} by {}", before, key);
            before = after;
        }
    }
}

proptest! {
    #[test]
    fn counts_are_never_too_high(
        size in 1..6_usize,
        seed: u64,
        calls in prop::collection::vec((0..40_u8, any::<bool>(), 0..20_000_000_u64), 1..400),
    ) {
        let mut top = TopKeys::new(size, seed, NOON);
        let (mut now, mut seen) = (NOON, Vec::new());
        for (key, denied, step) in calls {
            // Mostly no time passes.
            now += if step < 1_000_000 { step } else { 0 };
            top.record(&[key], denied, now);
            seen.push((now, key, denied));
        }
        let from = now - now % MINUTE - MINUTE;
        for by in [RankBy::Checks, RankBy::Denials] {
            let hottest = top.hottest(100, by, now);
            prop_assert!(hottest.len() <= size);
            prop_assert!(by == RankBy::Denials || !hottest.is_empty());
            for hot in hottest {
                let of_key = seen.iter().filter(|(at, key, _)| *at >= from && hot.name == [*key]);
                let (checks, denials) = of_key.fold((0, 0), |(checks, denials), (_, _, denied)| {
                    (checks + 1, denials + u64::from(*denied))
                });
                prop_assert!(hot.checks <= checks && hot.denials <= denials);
                prop_assert!(hot.denials <= hot.checks);
            }
        }
    }
}
