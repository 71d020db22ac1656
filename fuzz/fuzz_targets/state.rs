//! Any bytes are a state or a step, or refused; what is one survives a round trip and every evaluation.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rl_core::reservation::{
    ActualUsage, Charge, KeyChange, Reservation, ReservedKey, StoredReservation,
};
use rl_core::syntax::Spec;
use rl_core::{MAX_TIME_US, Mode, State, Update};

const SPECS: [&str; 12] = [
    "SLIDE 100 60 1",
    "SLIDE 9007199254740991 3650d 9007199254740991",
    "SLIDE 100 60 1 PRECISION 2",
    "SLIDE 9007199254740991 1ms 9007199254740991 PRECISION 60",
    "BUCKET 200 1000 1m 5",
    "BUCKET 9007199254740991 1 3650d 9007199254740991",
    "FIXED 100 60 1",
    "LEAK 9007199254740991 1 3650d 9007199254740991",
    "EXACT 100 60 1",
    "EXACT 1000000 3650d 9007199254740991",
    "LEASE 5 60 a 1",
    "LEASE 9007199254740991 3650d \0 9007199254740991",
];

fuzz_target!(|input: (u64, &[u8])| {
    let (now_us, blob) = input;
    if let Ok(stored) = StoredReservation::decode_blob(blob) {
        settle(&stored, now_us);
        return;
    }
    let Ok(next) = Update::decode_blob(blob) else {
        return;
    };
    assert_eq!(&next.blob()[..], blob, "one encoding for each state");
    if let Some(state) = next.into_initial() {
        exercise(&state, now_us);
    }
});

/// Settles every key of a reservation, on the states of other calls.
fn settle(stored: &StoredReservation, now_us: u64) {
    let Ok(Reservation::Open(open)) = stored.reservation() else {
        return;
    };
    let _ = open.spend_ms(now_us);
    for key in &open.keys {
        for units in [0, 1, u64::MAX >> 11] {
            let actual = ActualUsage {
                times: open.times,
                calls: units.min(open.times),
                units,
            };
            let _ = key.extra_charge(actual);
            for text in SPECS {
                let spec = Spec::parse(text.as_bytes()).unwrap();
                let first = spec.limit.evaluate(None, now_us, 5, Mode::Force).unwrap();
                let state = first.update.and_then(Update::into_initial);
                let _ = key.settle(state.as_ref(), now_us, actual).unwrap();
            }
        }
    }
}

/// Settles reservations that were made on the state, the later one first.
fn settle_own(state: &State, now_us: u64) {
    for text in SPECS {
        let spec = Spec::parse(text.as_bytes()).unwrap();
        let mut state = state.clone();
        let mut charges = Vec::new();
        for _ in 0..2 {
            let Ok(outcome) = spec.limit.evaluate(Some(&state), now_us, spec.cost, Mode::Force)
            else {
                return;
            };
            if let Some(mut update) = outcome.update {
                update.mark_reserved(now_us);
                state.apply(update);
            }
            charges.push(Charge::of_call(&spec.limit, &state, spec.cost));
        }
        for charges in charges.into_iter().rev() {
            let key = ReservedKey {
                key: b"",
                spec: b"",
                reserved: Some(spec.cost),
                settled: None,
                charges,
            };
            let actual = ActualUsage {
                times: 1,
                calls: 0,
                units: 0,
            };
            let settlement = key.settle(Some(&state), now_us, actual).unwrap();
            if let KeyChange::Update(next) = settlement.change {
                follow(&state, next.clone(), None);
                state.apply(next);
            }
        }
    }
}

fn exercise(state: &State, now_us: u64) {
    assert_eq!(copy(state).blob(), state.blob());
    if let Some(encoded) = state.packed() {
        assert_eq!(State::decode(encoded.as_slice()).as_ref(), Ok(state));
    }
    for text in SPECS {
        let Ok(spec) = Spec::parse(text.as_bytes()) else {
            unreachable!()
        };
        for mode in [Mode::Check, Mode::Force] {
            let Ok(outcome) = spec.limit.evaluate(Some(state), now_us, spec.cost, mode) else {
                continue;
            };
            let decision = outcome.decision;
            assert!(decision.remaining <= decision.limit);
            assert!(decision.allowed == (decision.retry_after_ms == 0) || text.starts_with("LEAK"));
            if let Some(next) = outcome.update {
                follow(state, next, Some(outcome.expiry.at_ms));
            }
        }
    }
    settle_own(state, now_us);
    assert!(!state.inspect(now_us.min(MAX_TIME_US)).is_empty());
    for back in [
        state.refund(now_us, 1),
        state.refund(now_us, u64::MAX),
        state.release(now_us, b"a"),
    ] {
        if let Ok(back) = back
            && let (1.., Some(next)) = (back.units, back.update)
        {
            follow(state, next, None);
        }
    }
}

/// A replica arrives where the primary is.
fn follow(state: &State, next: Update, expire_at_ms: Option<u64>) {
    let (mut primary, mut replica) = (state.clone(), copy(state));
    let sent = next.blob();
    match Update::decode_blob(&sent) {
        Ok(received) => replica.apply(received),
        Err(error) => panic!("{next:?}: {error}"),
    }
    primary.apply(next);
    assert_eq!(replica.blob(), primary.blob());
    assert_eq!(copy(&primary).blob(), primary.blob());
    if let Some(at_ms) = expire_at_ms {
        assert_eq!(primary.expire_at_ms(), at_ms);
    }
}

fn copy(state: &State) -> State {
    match State::decode_blob(&state.blob()) {
        Ok(state) => state,
        Err(error) => panic!("{state:?}: {error}"),
    }
}
