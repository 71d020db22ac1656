//! The sketch of the hottest keys, beside exact counts.

#![allow(missing_docs)]

use std::collections::HashMap;

use proptest::prelude::*;
use rl_core::{By, MAX_NAME, Top};

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

fn names(top: &mut Top, most: usize, by: By, now: u64) -> Vec<(String, u64, u64)> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let hottest = top.hottest(most, by, now);
    hottest
        .iter()
        .map(|hot| (text(hot.name), hot.checks, hot.denials))
        .collect()
}

#[test]
fn a_few_keys_are_counted_exactly() {
    let mut top = Top::new(8, SEED, NOON);
    for n in 1..=5 {
        for call in 0..n {
            top.saw(format!("key:{n}").as_bytes(), call % 2 == 1, NOON);
        }
    }
    let expected = [(5, 2), (4, 2), (3, 1)].map(|(n, denied)| (format!("key:{n}"), n, denied));
    assert_eq!(names(&mut top, 3, By::Checks, NOON), expected);
    let most_denied = names(&mut top, 9, By::Denials, NOON);
    assert_eq!(most_denied.len(), 4, "key:1 was never denied");
    assert_eq!(most_denied[0], ("key:5".into(), 5, 2));
}

#[test]
fn this_minute_and_the_one_before_are_told() {
    let mut top = Top::new(8, SEED, NOON);
    let now = NOON + 59_999_999;
    top.saw(b"old", true, now);
    top.saw(b"both", false, now);
    top.saw(b"both", true, now + 1);
    let told = names(&mut top, 9, By::Checks, now + 1);
    assert_eq!(told, [("both".into(), 2, 1), ("old".into(), 1, 1)]);
    top.saw(b"new", false, now + 1 + MINUTE);
    let told = names(&mut top, 9, By::Checks, now + 1 + MINUTE);
    assert_eq!(told, [("both".into(), 1, 1), ("new".into(), 1, 0)]);
    assert_eq!(names(&mut top, 9, By::Checks, now + 4 * MINUTE), []);
    // A clock that steps back turns the page as well.
    top.saw(b"late", false, now + 9 * MINUTE);
    top.saw(b"early", false, NOON);
    assert_eq!(names(&mut top, 9, By::Checks, NOON).len(), 2);
}

#[test]
fn on_a_zipf_stream_the_true_top_ten_are_found() {
    let zipf = Zipf::new(100_000);
    for seed in 1..=5 {
        let mut random = Random(seed * 0x9e37_79b9);
        let mut top = Top::new(128, random.next(), NOON);
        let mut exact = HashMap::new();
        for _ in 0..300_000 {
            let key = zipf.key(&mut random);
            top.saw(format!("user:{key}").as_bytes(), false, NOON);
            *exact.entry(format!("user:{key}")).or_insert(0_u64) += 1;
        }
        let mut truth: Vec<_> = exact.iter().collect();
        truth.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let told = names(&mut top, 20, By::Checks, NOON);
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
    let mut top = Top::new(16, SEED, NOON);
    for n in 0..200_000 {
        top.saw(format!("once:{n}").as_bytes(), true, NOON);
        if n % 100 == 0 {
            top.saw(b"attacker", true, NOON);
        }
    }
    for by in [By::Checks, By::Denials] {
        let (name, checks, denials) = &names(&mut top, 1, by, NOON)[0];
        assert_eq!(name, "attacker");
        assert!(*checks <= 2000 && *checks > 1500, "{checks}");
        assert!(*denials <= 2000 && *denials > 1500, "{denials}");
    }
}

#[test]
fn long_names_are_cut_and_told_apart() {
    let mut top = Top::new(4, SEED, NOON);
    let (a, b) = ([b'x'; 300], [b'x'; 301]);
    top.saw(&a, false, NOON);
    top.saw(&b, false, NOON);
    top.saw(&b, false, NOON);
    let hottest = top.hottest(4, By::Checks, NOON);
    let seen: Vec<_> = hottest
        .iter()
        .map(|hot| (hot.name.len(), hot.checks))
        .collect();
    assert_eq!(seen, [(MAX_NAME, 2), (MAX_NAME, 1)]);
}

#[test]
fn names_of_every_length_are_told_apart() {
    let mut top = Top::new(1000, SEED, NOON);
    let zeros = [0; 64];
    let ones = [1; 64];
    for len in 0..=64 {
        top.saw(&zeros[..len], false, NOON);
        top.saw(&ones[..len], false, NOON);
    }
    // The empty name is the same in both.
    assert_eq!(top.hottest(1000, By::Checks, NOON).len(), 129);
}

proptest! {
    #[test]
    fn counts_are_never_too_high(
        size in 1..6_usize,
        seed: u64,
        calls in prop::collection::vec((0..40_u8, any::<bool>(), 0..20_000_000_u64), 1..400),
    ) {
        let mut top = Top::new(size, seed, NOON);
        let (mut now, mut seen) = (NOON, Vec::new());
        for (key, denied, step) in calls {
            // Mostly no time passes.
            now += if step < 1_000_000 { step } else { 0 };
            top.saw(&[key], denied, now);
            seen.push((now, key, denied));
        }
        let from = now - now % MINUTE - MINUTE;
        for by in [By::Checks, By::Denials] {
            let hottest = top.hottest(100, by, now);
            prop_assert!(hottest.len() <= size);
            prop_assert!(by == By::Denials || !hottest.is_empty());
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
