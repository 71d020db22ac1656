//! Arbitrary bytes are either read as what they are or refused. They never cause a panic, now or in a later call.

use crate::key::{MINUTE, bucket, calendar, exact, fixed, leak, lease, parts, slide};
use crate::sequence::{Call, any_calls};
use proptest::prelude::*;
use rl_core::{
    Calendar, Error, Limit, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, Mode, RefundRequest, State,
    Update,
};

const T: u64 = 1_700_000_000_000_000;

/// A limit of every algorithm and form.
fn limits(span_ms: u64) -> [Limit<'static>; 13] {
    [
        slide(0, span_ms),
        slide(100, span_ms),
        parts(100, span_ms, 2),
        parts(MAX_COUNT, span_ms, 60),
        bucket(100, 1, span_ms),
        bucket(MAX_COUNT, MAX_COUNT, span_ms),
        fixed(100, span_ms),
        calendar(100, Calendar::Month, -9 * 3_600_000),
        calendar(100, Calendar::Year, 1),
        leak(100, 1, span_ms),
        exact(100, span_ms),
        lease(100, span_ms, b"a"),
        lease(MAX_COUNT, span_ms, b"b"),
    ]
}

/// Whatever is decoded is what its bytes say, and does not break any call.
fn survives(blob: &[u8]) -> Result<(), TestCaseError> {
    let next = match Update::decode_blob(blob) {
        Ok(next) => next,
        Err(error) => {
            prop_assert!(matches!(error, Error::DamagedState | Error::NewerState));
            prop_assert!(State::decode_blob(blob).is_err());
            return Ok(());
        }
    };
    prop_assert_eq!(&next.blob()[..], blob, "{:?}", next);
    match next {
        Update::Replace(state) => usable(&state),
        step => match step.clone().into_initial() {
            Some(state) => usable(&state),
            None => Ok(()),
        },
    }
}

fn aged(age_us: u64) -> RefundRequest {
    RefundRequest {
        units: 3,
        calls: 2,
        age_us: Some(age_us),
    }
}

/// Any call may follow, and leaves what can be read back.
fn usable(state: &State) -> Result<(), TestCaseError> {
    prop_assert_eq!(
        &State::decode_blob(&state.blob()).unwrap().blob(),
        &state.blob()
    );
    for limit in [1, 60_000, MAX_PERIOD_MS].into_iter().flat_map(limits) {
        for now_us in [0, T, T + 1, T + MINUTE + 1, T + 2 * MINUTE, u64::MAX] {
            for (cost, mode) in [
                (0, Mode::Check),
                (1, Mode::Check),
                (MAX_COUNT, Mode::Check),
                (MAX_COUNT, Mode::Force),
            ] {
                let outcome = limit.evaluate(Some(state), now_us, cost, mode);
                if limit.algorithm() != state.algorithm() {
                    prop_assert_eq!(outcome, Err(Error::WrongAlgorithm));
                    continue;
                }
                let outcome = outcome.unwrap();
                if let Some(next) = outcome.update {
                    let sent = next.blob();
                    prop_assert_eq!(Update::decode_blob(&sent), Ok(next.clone()));
                    let mut after = state.clone();
                    after.apply(next);
                    prop_assert_eq!(after.expire_at_ms(), outcome.expiry.at_ms);
                    let read = State::decode_blob(&after.blob()).map(|read| read.blob());
                    prop_assert_eq!(read, Ok(after.blob()), "{:?} to {:?}", state, after);
                }
            }
        }
    }
    for now_us in [0, T, T + MINUTE, u64::MAX] {
        prop_assert!(!state.inspect(now_us.min(MAX_TIME_US)).is_empty());
        for back in [
            state.refund(now_us, 1),
            state.refund(now_us, MAX_COUNT),
            state.refund(now_us, aged(1)),
            state.refund(now_us, aged(MINUTE)),
            state.release(now_us, b"a"),
        ] {
            let Ok(back) = back else { continue };
            if let (1.., Some(next)) = (back.units, back.update) {
                let mut after = state.clone();
                let sent = next.blob();
                prop_assert_eq!(Update::decode_blob(&sent), Ok(next.clone()));
                after.apply(next);
                prop_assert_eq!(
                    &State::decode_blob(&after.blob()).unwrap().blob(),
                    &after.blob()
                );
            }
        }
    }
    Ok(())
}

/// Some blob of a sequence: the last state, or a step on the way.
fn blobs(calls: &[Call]) -> Vec<Vec<u8>> {
    let steps = calls.iter().filter_map(|call| call.outcome.update.as_ref());
    let last = calls.last().and_then(|call| call.after.0.as_ref());
    let mut blobs: Vec<_> = steps.map(|step| step.blob().to_vec()).collect();
    blobs.extend(last.map(|state| state.blob().to_vec()));
    blobs
}

#[test]
fn a_state_that_no_call_leaves_behind_is_survived() -> Result<(), TestCaseError> {
    // Damage or RL.LOAD may: nothing in use at all, or nothing in the current window.
    for counts in [0, 1] {
        let packed = 1 << 124 | u128::from(T) << 72 | 60_000 << 54 | counts;
        for words in [
            &[(packed >> 64) as u64, packed as u64][..],
            &[9 << 60 | T, MINUTE, 0, counts as u64],
            &[10 << 60 | T, MINUTE, 0, counts as u64, 1],
        ] {
            if let Ok(state) = State::decode(words) {
                usable(&state)?;
            }
        }
    }
    Ok(())
}

/// Words that get past the first checks.
fn plausible_words() -> impl Strategy<Value = Vec<u64>> {
    let bits = || (any::<u64>(), 0..64u32).prop_map(|(word, shift)| word >> shift);
    let time = || prop_oneof![0..=MAX_TIME_US, T - MINUTE..T + MINUTE];
    prop_oneof![
        (1..=4u64, bits(), any::<u64>())
            .prop_map(|(tag, high, low)| vec![tag << 60 | high >> 4, low]),
        (9..=12u64, time(), 1..=MAX_PERIOD_MS, bits(), bits(), bits()).prop_map(
            |(tag, time, ms, high, low, rate)| {
                let mut words = vec![tag << 60 | time, ms, high, low];
                words.extend((tag % 2 == 0).then_some(rate));
                words
            }
        ),
        (
            time(),
            1..=MAX_PERIOD_MS,
            0..=64u64,
            proptest::collection::vec(bits(), 1..20)
        )
            .prop_map(|(time, ms, parts, mut counts)| {
                let mut words = vec![7 << 60 | time, (2 << 7 | parts) << 40 | ms];
                counts.resize(parts as usize, 1);
                words.append(&mut counts);
                words
            }),
    ]
}

/// The head of a live state or step, and numbers behind it.
fn plausible_bytes() -> impl Strategy<Value = Vec<u8>> {
    let kind = 0..8_u8;
    let byte = prop_oneof![3 => 0..4u8, 1 => any::<u8>()];
    (kind, proptest::collection::vec(byte, 0..60)).prop_map(|(kind, rest)| {
        let mut blob = vec![1, 0, 0, 0, 0, 0, 0, kind << 4, 0xf0];
        blob.extend(rest);
        blob
    })
}

proptest! {
    #![proptest_config(crate::key::cases(60))]

    #[test]
    fn every_flipped_bit_is_survived(calls in any_calls(), which in any::<prop::sample::Index>()) {
        let blobs = blobs(&calls);
        if blobs.is_empty() {
            return Ok(());
        }
        let blob = which.get(&blobs);
        for bit in 0..8 * blob.len().min(80) {
            let mut damaged = blob.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            survives(&damaged)?;
        }
        for len in 0..blob.len().min(80) {
            survives(&blob[..len])?;
        }
        survives(&[blob, &[0][..]].concat())?;
    }
}

proptest! {
    #![proptest_config(crate::key::cases(1000))]

    #[test]
    fn random_bytes_are_survived(
        random in proptest::collection::vec(any::<u8>(), 0..40),
        plausible in plausible_bytes(),
    ) {
        survives(&random)?;
        survives(&plausible)?;
    }

    #[test]
    fn random_payloads_are_survived(
        plausible in plausible_words(),
        random in proptest::collection::vec(any::<u64>(), 0..6),
    ) {
        for words in [plausible, random] {
            if let Ok(state) = State::decode(&words) {
                usable(&state)?;
            }
        }
    }
}
