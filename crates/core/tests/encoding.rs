//! The bytes of a state: what memory, RDB, AOF and replicas hold.

#![allow(clippy::unwrap_used, missing_docs)]

mod key;
mod sequence;

use key::{Key, MINUTE, bucket, slide};
use proptest::prelude::*;
use rl_core::{
    ENCODING_VERSION, Error, Limit, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, State, stored_words,
};
use sequence::any_calls;

const T: u64 = 1_700_000_000_000_000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const HOUR_MS: u64 = 60 * 60 * 1000;

fn state(limit: &Limit, calls: &[(u64, u64)]) -> State {
    let mut key = Key::default();
    for &(now_us, cost) in calls {
        assert!(key.call(limit, now_us, cost).allowed);
    }
    key.0.unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// States and their blobs in version 1. Never change a line: somebody's RDB file holds it.
fn version_1() -> Vec<(State, &'static str)> {
    let minute = slide(100, 60_000);
    vec![
        (
            state(&minute, &[(T, 30)]),
            "010000401e18240a16000000c0030000f0",
        ),
        (
            state(&slide(1000, 60_000), &[(T, 80), (T + MINUTE, 40)]),
            "010000c7b11b240a1650000000050000f0",
        ),
        // 90 s are counted in seconds, a day in minutes, 2047 d in days.
        (
            state(&slide(1, 90_000), &[(T, 1)]),
            "010100401e18240a160000002000000068",
        ),
        (
            state(&slide(1_000_000, DAY_MS), &[(T, 1_000_000)]),
            "013600401e18240a160000000048e80180",
        ),
        (
            state(&slide(1, 2047 * DAY_MS), &[(T, 1)]),
            "017f00401e18240a1600000020000000fc",
        ),
        // Wide, for a window, counts and a time that do not fit.
        (
            state(&slide(1, 90_001), &[(T, 1)]),
            "0100401e18240a0690915f01000000000001000000000000000000000000000000",
        ),
        (
            wide_counts(),
            "0100a0f535380a0690005c2605000000000500000000000000ffffffffffff1f00",
        ),
        (
            state(&slide(7, 1), &[(MAX_TIME_US, 7)]),
            "01ffffffffffffff9f010000000000000007000000000000000000000000000000",
        ),
        (
            state(&bucket(200, 1000, 60_000), &[(T, 5)]),
            "010000401e18240a2600a3e111004000f0",
        ),
        (
            state(&bucket(200, 1000, 60_000), &[(T, 199), (T + 1, 1)]),
            "010001401e18240a26187441cb024003f0",
        ),
        (
            state(&bucket(MAX_COUNT, 1, MAX_PERIOD_MS), &[(T, MAX_COUNT)]),
            "0100401e18240a06a000b8eb6c49ffffffd7182fda230000fe004039872ee1feff",
        ),
    ]
}

fn wide_counts() -> State {
    let (limit, mut key) = (slide(MAX_COUNT, DAY_MS), Key::default());
    key.call(&limit, T, MAX_COUNT);
    key.force(&limit, T + DAY_MS * 1000, 5);
    key.0.unwrap()
}

#[test]
fn version_1_is_what_it_was() {
    assert_eq!(ENCODING_VERSION, 1);
    for (state, golden) in version_1() {
        assert_eq!(hex(&state.blob()), golden, "{state:?}");
        assert_eq!(State::decode_blob(&bytes(golden)), Ok(state));
        assert_eq!(
            State::decode_blob(&bytes(golden)).unwrap().blob()[..],
            bytes(golden)
        );
    }
}

#[test]
fn usual_limits_take_16_bytes_when_full() {
    for limit in [
        slide(100, 60_000),
        slide(10_000, 60_000),
        slide(1_000_000, DAY_MS),
        bucket(200, 1000, 60_000),
    ] {
        let full = Key::default().peek(&limit, T, 0).remaining;
        let encoded = state(&limit, &[(T, full)]).words().unwrap();
        assert_eq!(encoded.words().len(), 2, "{limit:?}");
        assert_eq!(encoded.blob().len(), 17);
    }
}

#[test]
fn the_packed_form_ends_where_its_fields_end() {
    let words = |limit: &Limit, now_us, cost| {
        state(limit, &[(now_us, cost)])
            .words()
            .unwrap()
            .words()
            .len()
    };
    let year = slide(MAX_COUNT, 1000);
    assert_eq!(words(&year, (1 << 52) - 1, 1), 2);
    assert_eq!(words(&year, 1 << 52, 1), 4);
    assert_eq!(words(&year, T, (1 << 29) - 1), 2);
    assert_eq!(words(&year, T, 1 << 29), 4);
    let carried = |count| {
        let mut key = Key::default();
        key.call(&year, T, count);
        key.call(&year, T + 1_000_000, 1);
        key.0.unwrap().words().unwrap().words().len()
    };
    assert_eq!(carried((1 << 29) - 1), 2);
    assert_eq!(carried(1 << 29), 4);
    let tokens = (1 << 46) / 1000;
    assert_eq!(words(&bucket(MAX_COUNT, MAX_COUNT, 1), T, tokens), 2);
    assert_eq!(words(&bucket(MAX_COUNT, MAX_COUNT, 1), T, tokens + 1), 4);
    for (span_ms, expected) in [
        (1, 2),
        (2047, 2),
        (2049, 4),
        (20_470, 2),
        (20_490, 4),
        (204_700, 2),
        (204_900, 4),
        (2047 * 1000, 2),
        (2049 * 1000, 4),
        (2047 * 60_000, 2),
        (2049 * 60_000, 4),
        (2047 * HOUR_MS, 2),
        (2049 * HOUR_MS, 4),
        (2047 * DAY_MS, 2),
        (2048 * DAY_MS, 4),
        (MAX_PERIOD_MS, 4),
    ] {
        assert_eq!(
            (span_ms, words(&slide(1, span_ms), T, 1)),
            (span_ms, expected)
        );
    }
}

#[test]
fn a_newer_version_is_refused_as_such() {
    for (_, golden) in version_1() {
        let mut blob = bytes(golden);
        for version in ENCODING_VERSION + 1..=u8::MAX {
            blob[0] = version;
            assert_eq!(State::decode_blob(&blob), Err(Error::NewerState));
        }
        blob[0] = 0;
        assert_eq!(State::decode_blob(&blob), Err(Error::DamagedState));
    }
}

#[test]
fn a_blob_of_another_length_is_damaged() {
    for (_, golden) in version_1() {
        let mut blob = bytes(golden);
        for len in 0..blob.len() {
            assert_eq!(State::decode_blob(&blob[..len]), Err(Error::DamagedState));
        }
        for _ in 0..40 {
            blob.push(0);
            assert_eq!(State::decode_blob(&blob), Err(Error::DamagedState));
        }
    }
}

#[test]
fn fields_out_of_range_are_damaged() {
    let span = MAX_PERIOD_MS;
    let slide = 9 << 60 | T;
    let bucket = 10 << 60 | T;
    let expiry = |seconds: u64| seconds << 40 | 1;
    assert!(State::decode(&[slide, span, 1 << 56, 1 << 56]).is_ok());
    assert!(State::decode(&[bucket, expiry(255), 1000 >> 8, 1000 << 56]).is_ok());
    for words in [
        // No algorithm has these tags.
        [0, 1, 0, 1],
        [8 << 60, 1, 0, 1],
        [13 << 60, 1, 0, 1],
        [14 << 60, 1, 0, 1],
        [15 << 60, 1, 0, 1],
        // Spans.
        [slide, 0, 0, 1],
        [slide, span + 1, 0, 1],
        [slide, u64::MAX, 0, 1],
        // Usage beyond 2^56 units, or none.
        [slide, span, (1 << 56) + 1, 0],
        [slide, span, 0, (1 << 56) + 1],
        [slide, span, 0, 0],
        [bucket, 1, 1000 >> 8, (1000 << 56) + 1],
        [bucket, 1, u64::MAX, u64::MAX],
        // What only a bucket has.
        [slide, expiry(1), 0, 1],
        [slide, 1, 1 << 57, 1],
    ] {
        assert_eq!(
            State::decode(&words),
            Err(Error::DamagedState),
            "{words:x?}"
        );
    }
    // Packed: an amount of 0 in each unit, and a unit that there is not.
    for span in (0..8).map(|unit| unit << 11).chain([7 << 11 | 1]) {
        let bits = 1 << 124 | u128::from(T) << 72 | span << 58 | 1;
        let words = [(bits >> 64) as u64, bits as u64];
        assert_eq!(State::decode(&words), Err(Error::DamagedState), "{span:x}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_state_survives_the_round_trip_and_has_one_encoding(calls in any_calls()) {
        let states: Vec<_> = calls.iter().filter_map(|call| call.after.0.clone()).collect();
        for state in &states {
            let blob = state.blob();
            let copy = State::decode_blob(&blob).unwrap();
            // Of a log, how much was dropped before it is no part of the encoding.
            prop_assert_eq!(&copy.blob(), &blob);
            prop_assert_eq!(copy.expire_at_ms(), state.expire_at_ms());
            if let Some(encoded) = state.words() {
                let words = encoded.words();
                prop_assert_eq!(words.len(), stored_words(words[0], words[1]));
                prop_assert_eq!(State::decode(words), Ok(state.clone()));
                prop_assert_eq!(State::decode_known(state.algorithm(), words), Ok(state.clone()));
                prop_assert_eq!(&copy, state);
                prop_assert_eq!(blob.len(), 1 + 8 * words.len());
            }
            for other in &states {
                prop_assert!(state != other || blob == other.blob());
                prop_assert!(blob != other.blob() || state.words() == other.words());
            }
        }
    }
}
