//! What a decision costs without a server: parse, decode, evaluate, encode.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rl_core::syntax::Spec;
use rl_core::{Mode, State, Update};

const NOW_US: u64 = 1_800_000_000_000_000;

fn spec(text: &str) -> Spec<'_> {
    match Spec::parse(text.as_bytes()) {
        Ok(spec) => spec,
        Err(error) => panic!("{text}: {error}"),
    }
}

fn stored(spec: &Spec, cost: u64, at_us: u64) -> State {
    let outcome = spec.limit.evaluate(None, at_us, cost, Mode::Check);
    match outcome.map(|outcome| outcome.update.and_then(Update::into_initial)) {
        Ok(Some(state)) => state,
        other => panic!("{other:?}"),
    }
}

/// Name, spec, units in use, and how long ago they were taken.
const CASES: [(&str, &str, u64, u64); 11] = [
    ("slide, allowed", "SLIDE 1000 60 1", 500, 10_000_000),
    (
        "slide, allowed, previous window fading",
        "SLIDE 1000 60 1",
        500,
        70_000_000,
    ),
    ("slide, denied", "SLIDE 1000 60 1", 1000, 10_000_000),
    (
        "slide, wide",
        "SLIDE 9007199254740991 3650d 1",
        1 << 52,
        10_000_000,
    ),
    (
        "slide in 10 parts",
        "SLIDE 1000 60 1 PRECISION 10",
        500,
        30_000_000,
    ),
    (
        "slide in 60 parts",
        "SLIDE 1000 60 1 PRECISION 60",
        500,
        30_000_000,
    ),
    ("bucket, allowed", "BUCKET 200 1000 1m 1", 100, 1_000_000),
    ("bucket, denied", "BUCKET 200 1000 1m 100", 200, 1_000_000),
    (
        "bucket, wide",
        "BUCKET 9007199254740991 1000 3650d 1",
        1 << 52,
        1_000_000,
    ),
    ("fixed, allowed", "FIXED 1000 1d 1", 500, 1_000_000),
    ("leak, allowed", "LEAK 200 1000 1m 1", 100, 1_000_000),
];

fn words(criterion: &mut Criterion) {
    for (name, text, used, elapsed_us) in CASES {
        let spec = spec(text);
        let words = stored(&spec, used, NOW_US).packed();
        let words = words
            .map(|words| words.as_slice().to_vec())
            .unwrap_or_default();
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let state = State::decode(black_box(&words)).ok();
                let now_us = black_box(NOW_US + elapsed_us);
                let outcome = spec
                    .limit
                    .evaluate(state.as_ref(), now_us, spec.cost, Mode::Check);
                outcome.map(|outcome| {
                    let next = outcome.update.and_then(Update::into_initial);
                    (outcome.decision, next.and_then(|next| next.packed()))
                })
            });
        });
    }
}

/// A state that `calls` of `text` leave behind, `apart_us` from one another.
fn grown(texts: impl Iterator<Item = String>, apart_us: u64) -> State {
    let mut state = None;
    for (text, now_us) in texts.zip((NOW_US..).step_by(apart_us as usize)) {
        let spec = spec(&text);
        let outcome = spec
            .limit
            .evaluate(state.as_ref(), now_us, spec.cost, Mode::Check);
        let Ok(Some(next)) = outcome.map(|outcome| outcome.update) else {
            panic!("{text} was denied");
        };
        match &mut state {
            Some(state) => State::apply(state, next),
            empty => *empty = next.into_initial(),
        }
    }
    state.unwrap_or_else(|| panic!("no calls"))
}

/// States that are changed in place: the next call on a busy key.
fn live(criterion: &mut Criterion) {
    const ENTRIES: u64 = 100_000;
    let log = grown((0..ENTRIES).map(|_| "EXACT 1000000 1h 1".into()), 600);
    let end_us = NOW_US + ENTRIES * 600;
    for (name, text) in [
        ("exact, allowed, 100 000 entries", "EXACT 1000000 1h 1"),
        ("exact, denied, 100 000 entries", "EXACT 100000 1h 1"),
        ("exact, denied, horizon within", "EXACT 1000 10 1"),
    ] {
        let spec = spec(text);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                spec.limit
                    .evaluate(Some(black_box(&log)), end_us, spec.cost, Mode::Check)
            });
        });
    }
    criterion.bench_function(
        "exact, allowed and stored, full window of 100 000",
        |bencher| {
            let spec = spec("EXACT 1000000 1m 1");
            let (mut log, mut now_us) = (log.clone(), end_us);
            bencher.iter(|| {
                now_us += 600;
                let outcome = spec
                    .limit
                    .evaluate(Some(&log), now_us, spec.cost, Mode::Check);
                if let Ok(Some(next)) = outcome.map(|outcome| outcome.update) {
                    log.apply(next);
                }
            });
        },
    );
    for holders in [5, 1000] {
        let texts = (0..holders).map(|holder| format!("LEASE 10000 1h holder-{holder} 1"));
        let (leases, spec) = (grown(texts, 1), spec("LEASE 10000 1h holder-3 1"));
        criterion.bench_function(&format!("lease, renewed, {holders} holders"), |bencher| {
            bencher.iter(|| {
                spec.limit.evaluate(
                    Some(black_box(&leases)),
                    NOW_US + 2000,
                    spec.cost,
                    Mode::Check,
                )
            });
        });
    }
}

fn parse(criterion: &mut Criterion) {
    criterion.bench_function("parse SLIDE 1000 60 1", |bencher| {
        bencher.iter(|| Spec::parse(black_box(b"SLIDE 1000 60 1")));
    });
}

criterion_group!(benches, words, live, parse);
criterion_main!(benches);
