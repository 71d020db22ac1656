//! What a decision costs without a server: parse, decode, evaluate, encode.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use rl_core::parse::Spec;
use rl_core::{Mode, State};

const NOW_US: u64 = 1_800_000_000_000_000;

fn spec(text: &str) -> Spec {
    match Spec::parse(&mut text.split(' ').map(str::as_bytes)) {
        Ok(spec) => spec,
        Err(error) => panic!("{text}: {error}"),
    }
}

fn stored(spec: &Spec, cost: u64, at_us: u64) -> Vec<u64> {
    let outcome = spec.limit.evaluate(None, at_us, cost, Mode::Check);
    match outcome.map(|outcome| outcome.next) {
        Ok(Some(state)) => state.encode().words().to_vec(),
        other => panic!("{other:?}"),
    }
}

fn evaluate(criterion: &mut Criterion) {
    let cases = [
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
        ("bucket, allowed", "BUCKET 200 1000 1m 1", 100, 1_000_000),
        ("bucket, denied", "BUCKET 200 1000 1m 100", 200, 1_000_000),
        (
            "bucket, wide",
            "BUCKET 9007199254740991 1000 3650d 1",
            1 << 52,
            1_000_000,
        ),
    ];
    for (name, text, used, elapsed_us) in cases {
        let spec = spec(text);
        let words = stored(&spec, used, NOW_US);
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| {
                let state = State::decode(black_box(&words)).ok();
                let now_us = black_box(NOW_US + elapsed_us);
                let outcome = spec
                    .limit
                    .evaluate(state.as_ref(), now_us, spec.cost, Mode::Check);
                outcome.map(|outcome| (outcome.decision, outcome.next.map(|next| next.encode())))
            });
        });
    }
    criterion.bench_function("parse SLIDE 1000 60 1", |bencher| {
        let words: [&[u8]; 4] = [b"SLIDE", b"1000", b"60", b"1"];
        bencher.iter(|| Spec::parse(&mut black_box(words).into_iter()));
    });
}

criterion_group!(benches, evaluate);
criterion_main!(benches);
