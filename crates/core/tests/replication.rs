//! Replicas and the AOF apply the same updates, and end up with the same bits as the primary.

use crate::key::{Key, NOW, exact, lease};
use crate::sequence::{Clock, any_calls, exacts_of_one_window, under};
use proptest::prelude::*;
use rl_core::{State, Update};

fn blob(key: &Key) -> Option<Vec<u8>> {
    key.0.as_ref().map(|state| state.blob().to_vec())
}

/// A copy of the whole, as a full synchronisation makes one.
fn copy(key: &Key) -> Key {
    Key(key
        .0
        .as_ref()
        .map(|state| State::decode_blob(&state.blob()).unwrap()))
}

/// What a replica does with what it receives.
fn follow(key: &mut Key, step: &Update) {
    let sent = step.blob();
    key.take(Update::decode_blob(&sent).unwrap());
}

proptest! {
    #![proptest_config(crate::key::cases(500))]

    #[test]
    fn a_replica_is_equal_after_every_step(
        calls in prop_oneof![any_calls(), under(exacts_of_one_window(), Clock::Stepping)],
        joins in 0..30usize,
        refunds in proptest::collection::vec(0..20u64, 30),
    ) {
        let (mut primary, mut first, mut late) = (Key::default(), Key::default(), None);
        for (index, (call, &units)) in calls.iter().zip(&refunds).enumerate() {
            if index == joins {
                late = Some(copy(&primary));
            }
            let limit = call.rule.limit();
            let outcome = primary.store(&limit, call.now_us, call.cost, call.mode);
            let mut steps = vec![outcome.update];
            // Now and then something is given back.
            let back = primary.0.as_ref().map(|state| match state {
                State::Lease(_) => state.release(call.now_us, b"ab").unwrap(),
                _ => state.refund(call.now_us, units).unwrap(),
            });
            if let (Some(back), true) = (back, units < 5)
                && back.units > 0
            {
                if back.update.is_none() {
                    return Ok(());
                }
                primary.take(back.update.clone().unwrap());
                steps.push(back.update);
            }
            for replica in [Some(&mut first), late.as_mut()].into_iter().flatten() {
                steps.iter().flatten().for_each(|step| follow(replica, step));
                prop_assert_eq!(blob(replica), blob(&primary), "{:?}", call);
                let seen = |key: &Key| key.peek(&limit, call.now_us, 1);
                prop_assert_eq!(seen(replica), seen(&primary));
            }
        }
    }
}

#[test]
fn a_log_from_before_1970_is_copied() {
    let limit = exact(10, 1000);
    let mut key = Key::default();
    for (now_us, cost) in [(NOW, 4), (NOW + 1, 1)] {
        key.store(&limit, now_us, cost, rl_core::Mode::Check);
    }
    key.store(&limit, 0, 1, rl_core::Mode::Check);
    let back = key.0.as_ref().unwrap().refund(0, 2).unwrap();
    key.take(back.update.unwrap());
    assert_eq!(copy(&key).0, key.0);
    assert_eq!(key.remaining(&limit, 0), 6);
}

#[test]
fn a_copy_of_a_long_log_drops_the_same_chunks_at_the_same_time() {
    let limit = exact(100_000, 1000);
    let (mut primary, mut replica) = (Key::default(), Key::default());
    for call in 0..30_000 {
        // Bursts and pauses, so that several chunks are over at once.
        let now_us = NOW + call * 20 + call / 5000 * 900_000;
        let outcome = primary.store(&limit, now_us, 1 + call % 3, rl_core::Mode::Check);
        if call % 4999 == 0 {
            replica = copy(&primary);
        } else if let Some(step) = &outcome.update {
            follow(&mut replica, step);
        }
        if call % 500 == 0 || call % 5000 < 40 {
            assert_eq!(blob(&replica), blob(&primary), "call {call}");
        }
    }
}

#[test]
fn a_step_begins_a_key_only_where_it_takes_something() {
    let mut key = Key::default();
    key.call(&exact(10, 1000), NOW, 10);
    let denied = key.evaluate(&exact(10, 1000), NOW - 1, 1, rl_core::Mode::Check);
    assert_eq!(denied.update.unwrap().into_initial(), None);
    let refund = key.0.as_ref().unwrap().refund(NOW, 5).unwrap();
    assert_eq!(refund.update.unwrap().into_initial(), None);

    let mut key = Key::default();
    key.call(&lease(2, 1000, b"a"), NOW, 1);
    key.call(&lease(2, 1000, b"b"), NOW, 1);
    let release = key.0.as_ref().unwrap().release(NOW, b"a").unwrap();
    assert_eq!(release.update.unwrap().into_initial(), None);
}

#[test]
fn a_step_of_another_algorithm_changes_nothing() {
    let (mut log, mut leases) = (Key::default(), Key::default());
    let take = log
        .store(&exact(10, 1000), NOW, 1, rl_core::Mode::Check)
        .update;
    let hold = leases
        .store(&lease(2, 1000, b"a"), NOW, 1, rl_core::Mode::Check)
        .update;
    let (before, held) = (log.0.clone(), leases.0.clone());
    log.take(hold.unwrap());
    leases.take(take.unwrap());
    assert_eq!((log.0, leases.0), (before, held));
}
