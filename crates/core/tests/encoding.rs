//! The bytes of a state, in memory, the RDB, the AOF and on replicas.

use crate::key::{Key, MINUTE, bucket, calendar, exact, fixed, leak, lease, parts, slide};
use crate::sequence::any_calls;
use proptest::prelude::*;
use rl_core::policy::Overrides;
use rl_core::{
    Algorithm, Calendar, ENCODING_VERSION, Error, Limit, MAX_COUNT, MAX_PACKED_LEN, MAX_PERIOD_MS,
    MAX_TIME_US, Mode, State, Update, packed_len,
};

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

#[test]
fn only_states_that_own_memory_are_dropped() {
    let group = [rl_core::Rule {
        limit: slide(9, 1000),
        cost: None,
    }];
    let group = Limit::Policy(rl_core::PolicyLimits::new(&group).unwrap());
    for (limit, owns) in [
        (slide(9, 1000), false),
        (parts(9, 1000, 8), false),
        (parts(9, 1000, 9), true),
        (bucket(9, 1, 1000), false),
        (fixed(9, 1000), false),
        (leak(9, 1, 1000), false),
        (exact(9, 1000), true),
        (lease(9, 1000, b"a"), true),
        (group, true),
    ] {
        assert_eq!(state(&limit, &[(T, 1)]).owns_memory(), owns, "{limit:?}");
    }
    for limit in [bucket(9, 1, 1000), leak(9, 1, 1000)] {
        let mut key = crate::key::Key::default();
        crate::reservations::reserve(&mut key, &limit, T, 1);
        assert!(key.0.unwrap().owns_memory(), "{limit:?}");
    }
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
            "010000401e18240a26e0930400000750f0",
        ),
        (
            state(&bucket(200, 1000, 60_000), &[(T, 199), (T + 1, 1)]),
            "010001401e18240a26ff1ab700000750f0",
        ),
        (
            state(&bucket(MAX_COUNT, 1, MAX_PERIOD_MS), &[(T, MAX_COUNT)]),
            "0100401e18240a06a000b8eb6c49250000d7182fda23000000004039872ee1feff0100000000000000",
        ),
        // FIXED: packed, and wide for its window.
        (
            state(&fixed(10, DAY_MS), &[(T, 5)]),
            "013600809695250a360500000000000080",
        ),
        (
            state(&fixed(10, 90_001), &[(T, 5)]),
            "014066671d240a06b0915f01000000000000000000000000000500000000000000",
        ),
        // A month has its kind and its offset, here an hour less.
        (
            state(&calendar(10, Calendar::Month, -3_600_000), &[(T, 5)]),
            "0100dc789c660b06b00024a59f00010000ffdc6d00000000000500000000000000",
        ),
        (
            state(&leak(200, 1000, 60_000), &[(T, 5)]),
            "010000401e18240a46e0930400000750f0",
        ),
        (
            state(&leak(MAX_COUNT, 1, MAX_PERIOD_MS), &[(T, MAX_COUNT)]),
            "0100401e18240a06c000b8eb6c49250000d7182fda23000000004039872ee1feff0100000000000000",
        ),
        // Parts of 16, 32 and 64 bits.
        (
            state(&parts(100, 60_000, 2), &[(T, 30), (T + MINUTE / 2, 7)]),
            "018003e819240a067060ea00000003000007001e0000000000",
        ),
        (
            state(
                &parts(1 << 20, 60_000, 10),
                &[(T, 1 << 16), (T + MINUTE / 2, 7)],
            ),
            "018003e819240a067060ea0000008b0000070000000000000000000000000000000000000000000100000000000000000000000000000000000000000000000000",
        ),
        (
            state(&parts(1 << 40, 60_000, 3), &[(T, 1 << 32)]),
            "0100401e18240a067060ea0000000401000000000001000000000000000000000000000000000000000000000000000000",
        ),
        (
            state(
                &exact(1000, 60_000),
                &[(T, 1), (T, 2), (T + 1, 1), (T + 100_000, 300)],
            ),
            "0100000000000010f0e0d4030100401e18240a060008010302bf9a0cac02",
        ),
        (
            leases(),
            "0100000000000030f08580f9c0c1c48203c584b6c1c1c48203030100808ec7ddc1c482030108776f726b65722031",
        ),
    ]
}

/// Steps and their blobs in version 1: they are in somebody's AOF.
fn version_1_updates() -> Vec<(Update<'static>, &'static str)> {
    let step = |key: &mut Key, limit: &Limit<'static>, now_us, cost| {
        key.store(limit, now_us, cost, Mode::Check).update.unwrap()
    };
    let (mut log, mut held) = (Key::default(), Key::default());
    let limit = exact(300, 60_000);
    let take = step(&mut log, &limit, T, 300);
    let notice = step(&mut log, &limit, T - 1, 1);
    let refund = log.0.unwrap().refund(T, 7).unwrap().update.unwrap();
    let hold = step(&mut held, &lease(2, 60_000, b"a"), T, 1);
    step(&mut held, &lease(2, 60_000, b"bc"), T, 1);
    let back = step(&mut held, &lease(2, 60_000, b"d"), T - 1, 1);
    let release = held.0.unwrap().release(T, b"bc").unwrap().update.unwrap();
    vec![
        (take, "0100000000000020f0008080f9c0c1c48203e0d403ac02"),
        (notice, "0100000000000020f001fffff8c0c1c48203e0d40300"),
        (refund, "0100000000000020f002000007"),
        (
            hold,
            "0100000000000040f0008080f9c0c1c48203808ec7ddc1c48203010161",
        ),
        (back, "0100000000000040f002fffff8c0c1c48203000000"),
        (release, "0100000000000040f0018080f9c0c1c482030000026263"),
    ]
}

fn leases() -> State {
    let mut key = Key::default();
    key.call(&lease(5, 60_000, b"worker 1"), T, 1);
    key.call(&lease(5, 1000, b"\0"), T + 5, 3);
    key.0.unwrap()
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
fn the_updates_of_version_1_are_what_they_were() {
    for (step, golden) in version_1_updates() {
        assert_eq!(hex(&step.blob()), golden, "{step:?}");
        assert_eq!(Update::decode_blob(&bytes(golden)), Ok(step));
        assert_eq!(State::decode_blob(&bytes(golden)), Err(Error::DamagedState));
    }
}

#[test]
fn parts_are_as_wide_as_the_largest_needs() {
    let words = |n: u8, cost| {
        let state = state(&parts(MAX_COUNT, 60_000, n), &[(T, cost)]);
        state.packed().unwrap().as_slice().len()
    };
    for (precision, cost, expected) in [
        (2, (1 << 16) - 1, 3),
        (3, (1 << 16) - 1, 3),
        (4, (1 << 16) - 1, 4),
        (60, (1 << 16) - 1, 2 + 16),
        (2, 1 << 16, 4),
        (60, (1 << 32) - 1, 2 + 31),
        (60, 1 << 32, 2 + 61),
    ] {
        assert_eq!(words(precision, cost), expected, "{precision} {cost}");
    }
    assert!(words(60, MAX_COUNT) <= MAX_PACKED_LEN);
}

#[test]
fn usual_limits_take_16_bytes_when_full() {
    for limit in [
        slide(100, 60_000),
        slide(10_000, 60_000),
        slide(1_000_000, DAY_MS),
        bucket(200, 1000, 60_000),
        leak(200, 1000, 60_000),
        fixed(1_000_000, DAY_MS),
        bucket(10_000, 100, 60_000),
        bucket(10_000, 1000, HOUR_MS),
        bucket(10_000, 10_000, DAY_MS),
        bucket(1_000_000, 1000, 1000),
        bucket(300, 5, HOUR_MS),
        bucket(1000, 100, DAY_MS),
    ] {
        let full = Key::default().peek(&limit, T, 0).remaining;
        let encoded = state(&limit, &[(T, full)]).packed().unwrap();
        assert_eq!(encoded.as_slice().len(), 2, "{limit:?}");
        assert_eq!(encoded.blob().len(), 17);
    }
}

#[test]
fn the_packed_form_ends_where_its_fields_end() {
    let words = |limit: &Limit, now_us, cost| {
        state(limit, &[(now_us, cost)])
            .packed()
            .unwrap()
            .as_slice()
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
        key.0.unwrap().packed().unwrap().as_slice().len()
    };
    assert_eq!(carried((1 << 29) - 1), 2);
    assert_eq!(carried(1 << 29), 4);
    // 40 bits of debt, in units of the power of ten that divides the refill; 10 bits of refill.
    for (refill, unit) in [(7, 1), (70, 10), (700, 100), (7000, 1000), (70_000, 1000)] {
        let tokens = (1 << 40) / (1000 / unit);
        let tokens = tokens - u64::from(unit == 1000);
        assert_eq!(words(&bucket(MAX_COUNT, refill, 1), T, tokens), 2);
        assert_eq!(words(&leak(MAX_COUNT, refill, 1), T, tokens), 2);
        assert_eq!(words(&bucket(MAX_COUNT, refill, 1), T, tokens + 1), 5);
        assert_eq!(words(&leak(MAX_COUNT, refill, 1), T, tokens + 1), 5);
    }
    for (refill, expected) in [
        (1, 2),
        (1023, 2),
        (1024, 5),
        (10_230, 2),
        (10_240, 5),
        (102_300, 2),
        (102_400, 5),
        (1_023_000, 2),
        (1_024_000, 5),
        (MAX_COUNT, 5),
    ] {
        assert_eq!(words(&bucket(10, refill, 1000), T, 1), expected, "{refill}");
    }
    assert_eq!(words(&bucket(10, 1, 2049), T, 1), 5);
    assert_eq!(words(&bucket(10, 1, 1000), (1 << 52) - 1, 1), 2);
    assert_eq!(words(&bucket(10, 1, 1000), 1 << 52, 1), 5);
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
            match State::decode_blob(&blob[..len]) {
                // Holders are not counted: the list may end behind any of them.
                Ok(State::Lease(fewer)) => assert_eq!(State::Lease(fewer).blob()[..], blob[..len]),
                other => assert_eq!(other, Err(Error::DamagedState)),
            }
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
    let phase = |phase: u64| phase << 40 | 1;
    assert!(State::decode(&[slide, span, 1 << 56, 1 << 56]).is_ok());
    for words in [
        // No state has these tags, and no packed state has a kind.
        [0, 1, 0, 1],
        [8 << 60, 1, 0, 1],
        [15 << 60 | 1 << 52, 1, 0, 1],
        [15 << 60 | 7 << 52, 1, 0, 1],
        // Spans.
        [slide, 0, 0, 1],
        [slide, span + 1, 0, 1],
        [slide, u64::MAX, 0, 1],
        // Usage beyond 2^56 units, or none.
        [slide, span, (1 << 56) + 1, 0],
        [slide, span, 0, (1 << 56) + 1],
        [slide, span, 0, 0],
        // What only a bucket has.
        [slide, phase(1), 0, 1],
        [slide, 1, 1 << 57, 1],
    ] {
        assert_eq!(
            State::decode(&words),
            Err(Error::DamagedState),
            "{words:x?}"
        );
    }
    let bucket = 10 << 60 | T;
    assert!(State::decode(&[bucket, phase(14), 1000 >> 8, 1000 << 56, MAX_COUNT]).is_ok());
    for words in [
        [bucket, 1, 1000 >> 8, (1000 << 56) + 1, 1],
        [bucket, 1, u64::MAX, u64::MAX, 1],
        [bucket, 1, 0, 0, 1],
        [bucket, 1, 0, 1, 0],
        [bucket, 1, 0, 1, MAX_COUNT + 1],
        [bucket, phase(15), 0, 1, 1],
        [slide, 1, 0, 1, 1],
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

/// What a later version adds is recognised as such: free tags and unknown kinds.
#[test]
fn an_unknown_tag_or_kind_is_newer() {
    for packed in [
        &[6 << 60, 1][..],
        &[13 << 60, 1, 0, 1],
        &[14 << 60, 1, 0, 1],
    ] {
        assert_eq!(State::decode(packed), Err(Error::NewerState), "{packed:x?}");
    }
    let known = 1..=8;
    for kind in (0..=u8::MAX).filter(|kind| !known.contains(kind)) {
        let head = 15 << 60 | u64::from(kind) << 52;
        assert_eq!(State::decode(&[head, 1, 0, 1]), Err(Error::NewerState));
        for len in [0, 1, 8, 100] {
            let mut blob = vec![ENCODING_VERSION];
            blob.extend(head.to_le_bytes());
            blob.resize(9 + len, 1);
            assert_eq!(Update::decode_blob(&blob), Err(Error::NewerState));
            assert_eq!(State::decode_blob(&blob), Err(Error::NewerState));
            assert_eq!(Overrides::decode_blob(&blob), Err(Error::NewerState));
        }
    }
}

proptest! {
    #![proptest_config(crate::key::cases(500))]

    #[test]
    fn a_state_survives_the_round_trip_and_has_one_encoding(calls in any_calls()) {
        let states: Vec<_> = calls.iter().filter_map(|call| call.after.0.clone()).collect();
        for state in &states {
            let blob = state.blob();
            let copy = State::decode_blob(&blob).unwrap();
            // Of a log, how much was dropped before it is no part of the encoding.
            prop_assert_eq!(&copy.blob(), &blob);
            prop_assert_eq!(copy.expire_at_ms(), state.expire_at_ms());
            if let Some(encoded) = state.packed() {
                let words = encoded.as_slice();
                prop_assert_eq!(words.len(), packed_len(words[0], words[1]));
                prop_assert_eq!(State::decode(words), Ok(state.clone()));
                // Also where another algorithm is expected.
                for &algorithm in Algorithm::ALL {
                    prop_assert_eq!(State::decode_as(algorithm, words), Ok(state.clone()));
                }
                prop_assert_eq!(&copy, state);
                prop_assert_eq!(blob.len(), 1 + 8 * words.len());
            }
            for other in &states {
                prop_assert!(state != other || blob == other.blob());
                prop_assert!(blob != other.blob() || state.packed() == other.packed());
            }
        }
    }
}
