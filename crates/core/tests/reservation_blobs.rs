//! The bytes of reservations and of the states that they mark: what is written is read again, and nothing else.

use proptest::prelude::*;
use rl_core::reservation::{
    ActualUsage, Charge, KeyChange, OpenReservation, Reservation, ReservedKey, StoredReservation,
    digest,
};
use rl_core::{Error, Limit, MAX_COUNT, MAX_TIME_US, Mode, PolicyLimits, State};

use crate::key::{Key, NOW, bucket, exact, fixed, leak, lease, parts, slide};
use crate::reservations::{reserve, settle};

/// A policy of every algorithm that may be part of one.
fn policy() -> Limit<'static> {
    let limits = [
        slide(1000, 60_000),
        parts(1000, 60_000, 5),
        fixed(1000, 60_000),
        exact(1000, 60_000),
        bucket(1000, 10, 1000),
        leak(1000, 10, 1000),
    ];
    let rule = |(index, limit): (usize, Limit<'static>)| rl_core::Rule {
        limit,
        cost: (index % 2 == 1).then_some(2),
    };
    let rules: Vec<_> = limits.into_iter().enumerate().map(rule).collect();
    Limit::Policy(PolicyLimits::new(rules.leak()).unwrap())
}

fn limits() -> Vec<Limit<'static>> {
    vec![
        slide(1000, 60_000),
        parts(1000, 60_000, 5),
        fixed(1000, 60_000),
        exact(1000, 60_000),
        bucket(1000, 10, 1000),
        leak(1000, 10, 1000),
        // States that are too large for the compact form.
        bucket(MAX_COUNT, MAX_COUNT - 1, 1000),
        fixed(MAX_COUNT, 3650 * 86_400_000),
        lease(1000, 60_000, b"holder"),
        policy(),
    ]
}

/// The state after three reservations of which the second was settled, and the record of the first.
fn reserved_and_settled<'a>(limit: &Limit<'a>) -> (State, ReservedKey<'a>) {
    let mut key = Key::default();
    let records = [0, 1, 2].map(|n| reserve(&mut key, limit, NOW + n, 5));
    settle(&mut key, &records[1], NOW + 3, 2);
    let [first, ..] = records;
    (key.0.unwrap(), first)
}

/// The state after a reservation, and its record.
fn reserved<'a>(limit: &Limit<'a>, units: u64) -> (State, ReservedKey<'a>) {
    let mut key = Key::default();
    let mut update = key.evaluate(limit, NOW, units, Mode::Check).update.unwrap();
    update.mark_reserved(NOW);
    key.take(update);
    let state = key.0.unwrap();
    let charges = Charge::of_call(limit, &state, units);
    let record = ReservedKey {
        key: b"key",
        spec: b"spec",
        reserved: Some(units),
        settled: None,
        charges,
    };
    (state, record)
}

fn open<'a>(keys: impl IntoIterator<Item = ReservedKey<'a>>) -> Reservation<'a> {
    Reservation::Open(OpenReservation {
        charged_at_us: NOW,
        digest: 7,
        times: 1,
        keys: keys.into_iter().collect(),
    })
}

/// Reservations of one key for each limit, and of all of them together.
fn blobs() -> Vec<Vec<u8>> {
    let limits = limits();
    let records = |units| limits.iter().map(move |limit| reserved(limit, units).1);
    let mut reservations = vec![Reservation::Closed, open(records(1000))];
    reservations.extend(records(3).map(|record| open([record])));
    reservations.extend(records(3).map(|record| {
        open([ReservedKey {
            settled: Some(2),
            ..record
        }])
    }));
    reservations
        .iter()
        .map(|reservation| StoredReservation::new(reservation).blob().to_vec())
        .collect()
}

#[test]
fn what_is_written_is_read_again() {
    for blob in blobs() {
        assert!(StoredReservation::is_blob(&blob));
        let stored = StoredReservation::decode_blob(&blob).unwrap();
        assert_eq!(stored.blob().as_slice(), blob);
        let again = StoredReservation::new(&stored.reservation().unwrap());
        assert_eq!(again, stored);
        // It is no state, and a state is no reservation.
        assert!(State::decode_blob(&blob).is_err());
    }
    for limit in limits() {
        let (state, _) = reserved(&limit, 3);
        assert!(!StoredReservation::is_blob(&state.blob()));
        assert!(StoredReservation::decode_blob(&state.blob()).is_err());
    }
}

#[test]
fn marked_states_are_read_again_and_differ_from_unmarked_ones() {
    for limit in limits() {
        for units in [1, 3, 1000] {
            let (state, _) = reserved(&limit, units);
            assert_eq!(State::decode_blob(&state.blob()).unwrap(), state, "{limit}");
            let plain = limit.evaluate(None, NOW, units, Mode::Check).unwrap();
            let plain = plain.update.unwrap().into_initial().unwrap();
            let is_marked = matches!(
                limit,
                Limit::Fixed(_) | Limit::Bucket(_) | Limit::Leak(_) | Limit::Policy(_)
            );
            assert_eq!(plain != state, is_marked, "{limit}");
            // The mark stays as long as its units do.
            let mut key = Key(Some(state));
            key.call(&limit, NOW + 1, 1);
            let state = key.0.unwrap();
            assert_eq!(State::decode_blob(&state.blob()).unwrap(), state, "{limit}");
        }
    }
}

#[test]
fn a_newer_version_is_refused_as_such() {
    for mut blob in blobs() {
        blob[0] += 1;
        let error = StoredReservation::decode_blob(&blob).unwrap_err();
        assert_eq!(error, Error::NewerState);
        blob[0] = 0;
        let error = StoredReservation::decode_blob(&blob).unwrap_err();
        assert_eq!(error, Error::DamagedState);
    }
}

/// Settles everything that damaged bytes may still mean, on every state: any result is fine, a panic is not.
fn settle_all(stored: &StoredReservation) {
    let Ok(Reservation::Open(open)) = stored.reservation() else {
        return;
    };
    open.spend_ms(NOW);
    for record in &open.keys {
        for units in [0, 1, MAX_COUNT] {
            let actual = ActualUsage {
                times: open.times,
                calls: units.min(open.times),
                units,
            };
            record.extra_charge(actual);
            for limit in limits() {
                let (mut state, _) = reserved(&limit, 5);
                for now_us in [0, NOW, NOW + 1_000_000, MAX_TIME_US, u64::MAX] {
                    let settlement = record.settle(Some(&state), now_us, actual).unwrap();
                    if let KeyChange::Update(update) = settlement.change {
                        state.apply(update);
                    }
                }
                record.settle(None, NOW, actual).unwrap();
            }
        }
    }
}

#[test]
fn bytes_that_end_early_or_late_are_refused() {
    for blob in blobs() {
        for end in 0..blob.len() {
            assert!(StoredReservation::decode_blob(&blob[..end]).is_err());
        }
        assert!(StoredReservation::decode_blob(&[&blob[..], b"\0"].concat()).is_err());
    }
}

proptest! {
    #![proptest_config(crate::key::cases(5000))]

    #[test]
    fn damaged_bytes_never_panic(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let blobs = blobs();
        let mut blob = which.get(&blobs).clone();
        for (index, byte) in damage {
            let index = index.index(blob.len());
            blob[index] = byte;
        }
        if let Ok(stored) = StoredReservation::decode_blob(&blob) {
            let blob_again = stored.blob();
            prop_assert_eq!(blob_again.as_slice(), &blob[..]);
            settle_all(&stored);
        }
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let blobs = blobs();
        let head = &blobs[0][..9];
        bytes.splice(0..0, head.iter().copied());
        if let Ok(stored) = StoredReservation::decode_blob(&bytes) {
            settle_all(&stored);
        }
    }

    /// Damaged marks are refused, or lead to a state that writes the same bytes.
    #[test]
    fn damaged_marks_never_panic(
        which in any::<prop::sample::Index>(),
        is_settled in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let limits = limits();
        let limit = which.get(&limits);
        let (state, record) = match is_settled {
            true => reserved_and_settled(limit),
            false => reserved(limit, 5),
        };
        let mut blob = state.blob().to_vec();
        for (index, byte) in damage {
            let index = index.index(blob.len());
            blob[index] = byte;
        }
        if let Ok(state) = State::decode_blob(&blob) {
            let blob_again = state.blob();
            prop_assert_eq!(blob_again.as_slice(), &blob[..]);
            let actual = ActualUsage { times: 1, calls: 0, units: 0 };
            let settlement = record.settle(Some(&state), NOW + 3, actual).unwrap();
            // What is left can be read, by replicas too.
            if let KeyChange::Update(update) = settlement.change {
                let mut left = Key(Some(state.clone()));
                left.take(update);
                let left = left.0.unwrap();
                prop_assert_eq!(State::decode_blob(&left.blob()), Ok(left));
            }
            let is_lease = matches!(state, State::Lease(_));
            prop_assert!(is_lease || settlement.refunded <= 5);
        }
    }
}

#[test]
fn the_digest_depends_on_every_argument_and_its_length() {
    let all = [
        digest([&b"ab"[..], b"c"].into_iter()),
        digest([&b"a"[..], b"bc"].into_iter()),
        digest([&b"abc"[..]].into_iter()),
        digest([&b"abc"[..], b""].into_iter()),
        digest([&b"c"[..], b"ab"].into_iter()),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(!all[..index].contains(one));
    }
    // It is stored, so it must not change.
    assert_eq!(digest([&b"a"[..]].into_iter()), 0x529a_4ddc_8ff5_6bbf);
}
