//! Any bytes are a state or refused; what is a state survives a round trip and every evaluation.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rl_core::parse::Spec;
use rl_core::{Mode, State};

const SPECS: [&[&[u8]]; 4] = [
    &[b"SLIDE", b"100", b"60", b"1"],
    &[b"SLIDE", b"9007199254740991", b"3650d", b"9007199254740991"],
    &[b"BUCKET", b"200", b"1000", b"1m", b"5"],
    &[b"BUCKET", b"9007199254740991", b"1", b"3650d", b"9007199254740991"],
];

fuzz_target!(|input: (u64, &[u8])| {
    let (now_us, blob) = input;
    let Ok(state) = State::decode_blob(blob) else {
        return;
    };
    let encoded = state.encode();
    assert_eq!(State::decode(encoded.words()), Ok(state));
    assert_eq!(State::decode_blob(encoded.blob().as_bytes()), Ok(state));

    for words in SPECS {
        let Ok(spec) = Spec::parse(&mut words.iter().copied()) else {
            unreachable!()
        };
        for mode in [Mode::Check, Mode::Force] {
            let Ok(outcome) = spec.limit.evaluate(Some(&state), now_us, spec.cost, mode) else {
                continue;
            };
            let decision = outcome.decision;
            assert!(decision.remaining <= decision.limit);
            assert!(decision.allowed == (decision.retry_after_ms == 0));
            if let Some(next) = outcome.next {
                assert_eq!(State::decode(next.encode().words()), Ok(next));
            }
        }
    }
});
