//! The token bucket, boundary by boundary.

use crate::key::{Key, MINUTE, MS, NOW, SECOND, bucket, leak, wait};
use rl_core::{Decision, Error, MAX_COUNT, MAX_PERIOD_MS, MAX_TIME_US, MAX_WAIT_MS, Mode, NEVER};

/// Gaps in microseconds that share no factor with any period: 1 µs to about 2 s.
fn odd_gaps() -> impl Iterator<Item = u64> {
    (1u64..).map(|n| 1 + n * n * 7919 % 2_000_003)
}

#[test]
fn a_burst_is_followed_by_a_steady_flow() {
    let (limit, mut key) = (bucket(200, 1000, 60_000), Key::default());
    assert_eq!(
        key.call(&limit, NOW, 200),
        Decision {
            index: 0,
            allowed: true,
            limit: 200,
            remaining: 0,
            retry_after_ms: 0,
            reset_after_ms: 12_000
        }
    );
    // From then on one per 60 ms, however it is asked for.
    assert_eq!(wait(key.call(&limit, NOW, 1)), 60);
    for call in 1..=1000 {
        let due = NOW + call * 60 * MS;
        assert!(!key.call(&limit, due - 1, 1).allowed);
        assert_eq!(key.call(&limit, due, 1).remaining, 0);
    }
}

#[test]
fn a_token_arrives_with_its_last_part_and_not_before() {
    let (limit, mut key) = (bucket(10, 7, 60_000), Key::default());
    key.call(&limit, NOW, 10);
    // 60 s / 7 = 8 571 428 4/7 µs for each.
    for (elapsed, remaining) in [
        (0, 0),
        (8_571_428, 0),
        (8_571_429, 1),
        (17_142_857, 1),
        (17_142_858, 2),
        (MINUTE - 1, 6),
        (MINUTE, 7),
        (85_714_285, 9),
        (85_714_286, 10),
        (10 * MINUTE, 10),
    ] {
        assert_eq!(
            (elapsed, key.remaining(&limit, NOW + elapsed)),
            (elapsed, remaining)
        );
    }
    assert_eq!(wait(key.call(&limit, NOW, 1)), 8572);
    assert_eq!(wait(key.call(&limit, NOW, 10)), 85_715);
    assert_eq!(key.peek(&limit, NOW, 0).reset_after_ms, 85_715);
    assert_eq!(key.peek(&limit, NOW + 85_714_285, 0).reset_after_ms, 1);
    assert_eq!(key.peek(&limit, NOW + 85_714_286, 0).reset_after_ms, 0);
}

#[test]
fn a_full_bucket_gains_nothing_by_waiting() {
    let (limit, mut key) = (bucket(5, 1, 1000), Key::default());
    key.call(&limit, NOW, 1);
    assert_eq!(key.call(&limit, NOW + 3600 * SECOND, 5).remaining, 0);
    assert_eq!(wait(key.call(&limit, NOW + 3600 * SECOND, 1)), 1000);
}

#[test]
fn a_million_touches_neither_leak_nor_gain_a_part_of_a_token() {
    // 7 per minute, in debt all the while: what is left at the end is what was taken minus what flowed.
    let (limit, mut key) = (bucket(MAX_COUNT, 7, 60_000), Key::default());
    let (mut now, mut taken) = (NOW, 0);
    for (call, gap) in (0..1_000_000).zip(odd_gaps()) {
        let cost = 1 + call % 3;
        assert!(key.call(&limit, now, cost).allowed);
        taken += cost;
        now += gap;
    }
    let owed = u128::from(taken) * u128::from(MINUTE) - u128::from(now - NOW) * 7;
    let last = key.peek(&limit, now, 0);
    assert_eq!(
        u128::from(MAX_COUNT - last.remaining),
        owed.div_ceil(MINUTE.into())
    );
    // 1 ms is 7000 parts of 60 000 000: the end of the debt shows the parts, too.
    let empty = now + (owed.div_ceil(7) as u64);
    assert_eq!(key.remaining(&limit, empty - 1), MAX_COUNT - 1);
    assert_eq!(key.remaining(&limit, empty), MAX_COUNT);
}

#[test]
fn a_million_greedy_calls_get_what_flowed_in_and_not_one_more() {
    // Asked for more often than tokens arrive, the bucket is never full, so none may be lost.
    let (limit, mut key) = (bucket(5, 7, 60_000), Key::default());
    let (mut now, mut granted) = (NOW, 0);
    for gap in odd_gaps().take(1_000_000) {
        granted += u64::from(key.call(&limit, now, 1).allowed);
        let flowed = u128::from(now - NOW) * 7 / u128::from(MINUTE);
        // The first four calls find more in the bucket than they ask for.
        assert!(u128::from(granted) == 5 + flowed || granted < 5);
        now += gap;
    }
    assert!(granted > 100_000);
}

#[test]
fn a_denial_and_a_report_leave_nothing_to_store() {
    let (limit, mut key) = (bucket(10, 1, 1000), Key::default());
    assert_eq!(key.evaluate(&limit, NOW, 0, Mode::Check).update, None);
    assert_eq!(key.evaluate(&limit, NOW, 0, Mode::Force).update, None);
    assert_eq!(key.evaluate(&limit, NOW, 11, Mode::Check).update, None);
    key.call(&limit, NOW, 10);
    assert_eq!(
        key.evaluate(&limit, NOW + SECOND, 2, Mode::Check).update,
        None
    );
    assert_eq!(
        key.evaluate(&limit, NOW + SECOND, 0, Mode::Check).update,
        None
    );
}

#[test]
fn a_capacity_of_0_blocks_the_key() {
    let (limit, mut key) = (bucket(0, MAX_COUNT, 1), Key::default());
    assert_eq!(
        key.call(&limit, NOW, 1),
        Decision {
            index: 0,
            allowed: false,
            limit: 0,
            remaining: 0,
            retry_after_ms: NEVER,
            reset_after_ms: 0
        }
    );
    assert!(key.call(&limit, NOW, 0).allowed);
}

#[test]
fn a_cost_above_the_capacity_can_never_pass() {
    let mut key = Key::default();
    let limit = bucket(100, 1, 1000);
    assert!(key.peek(&limit, NOW, 100).allowed);
    assert_eq!(wait(key.call(&limit, NOW, 101)), NEVER);
    key.call(&limit, NOW, 50);
    assert_eq!(wait(key.call(&limit, NOW, MAX_COUNT)), NEVER);
}

#[test]
fn force_goes_past_the_capacity_and_later_calls_wait() {
    let (limit, mut key) = (bucket(1000, 10, 1000), Key::default());
    // A model call reserves 1000 tokens and used 1430.
    assert!(key.call(&limit, NOW, 1000).allowed);
    let forced = key.force(&limit, NOW, 430);
    assert_eq!((forced.allowed, forced.remaining), (true, 0));
    assert_eq!((forced.retry_after_ms, forced.reset_after_ms), (0, 143_000));
    assert_eq!(wait(key.call(&limit, NOW, 0)), 43_000);
    assert_eq!(wait(key.call(&limit, NOW, 1)), 43_100);
    assert!(key.force(&limit, NOW, 0).allowed);
    assert!(key.call(&limit, NOW + 43_100 * MS, 1).allowed);
}

#[test]
fn an_upgrade_gives_its_extra_room_at_once_and_nothing_more() {
    let mut key = Key::default();
    key.call(&bucket(100, 10, 1000), NOW, 100);
    assert_eq!(key.call(&bucket(500, 10, 1000), NOW, 1).remaining, 399);
    let lowered = key.call(&bucket(50, 10, 1000), NOW, 1);
    assert_eq!(
        (lowered.allowed, lowered.limit, lowered.remaining),
        (false, 50, 0)
    );
    assert_eq!(lowered.retry_after_ms, 5200);
}

#[test]
fn another_refill_or_period_keeps_the_debt_and_drains_at_the_new_rate() {
    let mut key = Key::default();
    key.call(&bucket(100, 10, 1000), NOW, 100);
    for (limit, seconds) in [
        (bucket(100, 20, 1000), 5),
        (bucket(100, 10, 2000), 20),
        (bucket(100, 1, 60_000), 6000),
    ] {
        assert_eq!(key.remaining(&limit, NOW), 0);
        assert_eq!(key.peek(&limit, NOW, 0).reset_after_ms, seconds * 1000);
        assert_eq!(key.remaining(&limit, NOW + seconds * SECOND / 2), 50);
    }
}

#[test]
fn a_debt_that_does_not_divide_into_the_new_period_is_rounded_up() {
    let mut key = Key::default();
    key.call(&bucket(10, 1, 60_000), NOW, 1);
    // 59 999 999 of 60 000 000 parts are left: more than 999 of 1000, so all of the token.
    let fine = bucket(10, 1, 1);
    key.call(&bucket(10, 1, 60_000), NOW + 1, 1);
    assert_eq!(key.call(&fine, NOW + 1, 1).reset_after_ms, 3);
    assert_eq!(key.remaining(&fine, NOW + 1 + 2 * MS), 9);
    assert_eq!(key.remaining(&fine, NOW + 1 + 3 * MS - 1), 9);
    assert_eq!(key.remaining(&fine, NOW + 1 + 3 * MS), 10);
}

#[test]
fn a_step_back_drains_nothing_and_is_noticed_once() {
    let (limit, mut key) = (bucket(10, 1, 1000), Key::default());
    key.call(&limit, NOW, 10);
    let back = NOW - 3650 * 24 * 60 * MINUTE;
    let denied = key.store(&limit, back, 1, Mode::Check);
    assert_eq!(wait(denied.decision), 1000);
    assert!(
        denied.update.is_some(),
        "or every call would begin the wait anew"
    );
    assert_eq!(wait(key.call(&limit, back + 999 * MS, 1)), 1);
    assert!(key.call(&limit, back + 1000 * MS, 1).allowed);
}

#[test]
fn only_a_call_that_consumes_may_notice_a_step_back() {
    let (limit, mut key) = (bucket(10, 1, 1000), Key::default());
    key.call(&limit, NOW, 10);
    assert_eq!(key.evaluate(&limit, NOW - 1, 0, Mode::Check).update, None);
    assert_eq!(key.evaluate(&limit, NOW, 1, Mode::Check).update, None);
    assert!(
        key.evaluate(&limit, NOW - 1, 1, Mode::Check)
            .update
            .is_some()
    );
    assert!(
        key.evaluate(&limit, NOW - 1, 11, Mode::Check)
            .update
            .is_some()
    );
}

#[test]
fn a_key_expires_15_to_30_s_after_its_debt_is_paid() {
    for (offset, cost) in (0..1000).zip([1, 7, 10].into_iter().cycle()) {
        let (limit, mut key) = (bucket(10, 7, 1000), Key::default());
        let now = NOW + offset * 50_021;
        let expiry = key.store(&limit, now, cost, Mode::Check).expiry;
        let paid_us = now + (cost * SECOND).div_ceil(7);
        let at_us = expiry.at_ms * MS;
        assert!((paid_us + 15 * SECOND..paid_us + 30 * SECOND).contains(&at_us));
        assert_eq!(at_us % SECOND, 0, "on a whole second");
        // The grid of the key stays: one more token moves the expiry by a multiple of a step, if at all.
        let again = key.store(&limit, now + 40 * SECOND, 1, Mode::Check).expiry;
        assert_eq!((again.at_ms - expiry.at_ms) % 15_000, 0);
        assert_eq!(again.unchanged, again.at_ms == expiry.at_ms);
    }
}

#[test]
fn keys_created_at_once_do_not_expire_at_once() {
    let limit = bucket(10, 10, 1000);
    let mut expiries: Vec<_> = (0..150)
        .map(|us| Key::default().store(&limit, NOW + us, 1, Mode::Check))
        .map(|evaluation| evaluation.expiry.at_ms)
        .collect();
    expiries.sort_unstable();
    // Fifteen moments, a second apart, with as many keys each.
    for (moment, keys) in expiries.chunks(10).enumerate() {
        assert!(
            keys.iter()
                .all(|&at| at == expiries[0] + 1000 * moment as u64)
        );
    }
}

#[test]
fn a_busy_key_moves_its_expiry_once_per_step_and_is_never_gone() {
    // As many calls as the bucket refills, and a fast bucket that is full again before each call.
    for (limit, gap_us) in [
        (bucket(100, 10, 1000), 100 * MS),
        (bucket(1000, 1000, 1000), 1001),
    ] {
        let (mut key, mut moved, mut alive) = (Key::default(), 0, 0);
        let calls = 300 * SECOND / gap_us;
        for call in 0..calls {
            let evaluation = key.store(&limit, NOW + call * gap_us, 1, Mode::Check);
            assert!(evaluation.decision.allowed);
            moved += u64::from(!evaluation.expiry.unchanged);
            alive += u64::from(evaluation.expiry.at_ms * MS > NOW + (call + 1) * gap_us);
        }
        assert!((20..=22).contains(&moved), "{moved} in five minutes");
        assert_eq!(alive, calls);
    }
}

#[test]
fn a_denial_at_a_lower_rate_keeps_the_key_as_long_as_its_debt_and_only_once() {
    let (fast, slow, mut key) = (
        bucket(10, 10, 1000),
        bucket(10, 10, 3_600_000),
        Key::default(),
    );
    let first = key.store(&fast, NOW, 10, Mode::Check).expiry;
    assert_eq!(key.evaluate(&fast, NOW, 1, Mode::Check).update, None);
    assert_eq!(key.evaluate(&slow, NOW, 0, Mode::Check).update, None);
    let denied = key.store(&slow, NOW, 1, Mode::Check);
    assert_eq!(
        (denied.decision.allowed, denied.decision.retry_after_ms),
        (false, 360_000)
    );
    assert!(denied.update.is_some() && denied.expiry.at_ms > first.at_ms);
    for later in [0, 1, 999 * MS, 300 * SECOND] {
        assert_eq!(
            key.evaluate(&slow, NOW + later, 1, Mode::Check).update,
            None
        );
    }
}

#[test]
fn a_lower_rate_gives_no_free_refill_when_the_key_expires() {
    // Each moment of a second, because expiries are on full ones.
    for offset in 0..1000 {
        let now = NOW + offset * MS;
        for (fast, slow) in [
            (bucket(10, 10, 1000), bucket(10, 10, 2000)),
            (bucket(10, 10, 1000), bucket(10, 9, 1000)),
            (leak(10, 10, 1000), leak(10, 10, 1001)),
        ] {
            let mut key = Key::default();
            key.call(&fast, now, 10);
            let wait_ms = wait(key.call(&slow, now, 10)) as u64;
            for at in [now + SECOND, now + (wait_ms - 1) * MS] {
                let left = key.until_it_expires(at);
                assert!(!left.peek(&slow, at, 10).allowed, "{offset} ms, {slow:?}");
            }
            let at = now + wait_ms * MS;
            assert!(key.until_it_expires(at).peek(&slow, at, 10).allowed);
        }
    }
}

#[test]
fn a_debt_of_more_than_68_years_is_not_written_by_denials() {
    let (limit, mut key) = (bucket(100, 1, MAX_PERIOD_MS), Key::default());
    key.call(&limit, NOW, 100);
    for later in [0, SECOND, 3 * SECOND, 60 * MINUTE] {
        assert_eq!(
            key.evaluate(&limit, NOW + later, 1, Mode::Check).update,
            None
        );
    }
}

#[test]
fn a_key_that_is_cut_short_is_kept_for_the_wait_that_a_denial_states() {
    let year = 365 * 24 * 60 * MINUTE;
    // One unit in ten years: the debt is paid after 1000, the key is gone after 68.
    let (limit, mut key) = (bucket(100, 1, MAX_PERIOD_MS), Key::default());
    key.call(&limit, NOW, 100);
    let at = NOW + 57 * year;
    // 94.3 are owed. For six more there is room in three years, when the key is still there; for seven in thirteen.
    assert_eq!(key.evaluate(&limit, at, 6, Mode::Check).update, None);
    let denied = key.store(&limit, at, 7, Mode::Check);
    assert_eq!(wait(denied.decision) as u64, 13 * year / MS);
    assert!(denied.update.is_some());
    assert_eq!(key.evaluate(&limit, at + 1, 7, Mode::Check).update, None);
    // What can never pass keeps no key.
    assert_eq!(
        key.evaluate(&limit, at + 60 * year, 101, Mode::Check)
            .update,
        None
    );
}

#[test]
fn a_wait_that_outlasts_every_key_is_not_written() {
    // A thousand units drain in 2^31−1 seconds, which is how long a key is kept at most.
    let (limit, mut key) = (bucket(2000, 1, (1 << 31) - 1), Key::default());
    key.call(&limit, NOW, 2000);
    let denied = key.evaluate(&limit, NOW + 1, 1000, Mode::Check);
    assert_eq!(wait(denied.decision), ((1 << 31) - 1) * 1000);
    assert_eq!(denied.update, None);
    assert_eq!(
        key.evaluate(&limit, NOW + 1, 1001, Mode::Check).update,
        None
    );
    // One that does not is, if the key would be gone before: here once the first of the thousand and one has drained.
    let later = NOW + SECOND;
    let denied = key.evaluate(&limit, later, 1000, Mode::Check);
    assert_eq!(wait(denied.decision), ((1 << 31) - 2) * 1000);
    assert_eq!(denied.update, None, "the key is kept for just as long");
    let later = NOW + ((1 << 31) + 999) * MS;
    let denied = key.evaluate(&limit, later, 1001, Mode::Check);
    assert_eq!(wait(denied.decision), ((1 << 31) - 2) * 1000);
    assert!(denied.update.is_some());
}

#[test]
fn a_bucket_that_takes_long_to_drain_moves_its_expiry_even_less() {
    for (seconds, step) in [
        (959, 15),
        (960, 120),
        (7679, 120),
        (7680, 960),
        (40_000, 960),
    ] {
        // A unit per second, so that the capacity is the time.
        let (limit, mut key) = (bucket(seconds, 1, 1000), Key::default());
        let expiry = key.store(&limit, NOW, 1, Mode::Check).expiry;
        let paid_us = NOW + SECOND;
        let kept = paid_us + step * SECOND..paid_us + 2 * step * SECOND;
        assert!(kept.contains(&(expiry.at_ms * MS)), "{seconds}: {expiry:?}");
        assert!(2 * step <= 30.max(seconds / 4), "as the contract allows");
    }
}

#[test]
fn the_largest_bucket_is_exact() {
    let (limit, mut key) = (bucket(MAX_COUNT, MAX_COUNT, MAX_PERIOD_MS), Key::default());
    let period = MAX_PERIOD_MS * MS;
    key.call(&limit, NOW, MAX_COUNT);
    assert_eq!(wait(key.call(&limit, NOW, MAX_COUNT)), MAX_PERIOD_MS as i64);
    assert_eq!(key.remaining(&limit, NOW + 1), MAX_COUNT / period);
    assert_eq!(
        key.remaining(&limit, NOW + period - 1),
        MAX_COUNT - MAX_COUNT / period - 1
    );
    assert_eq!(key.remaining(&limit, NOW + period), MAX_COUNT);
}

#[test]
fn the_fastest_bucket_is_full_after_a_microsecond_per_thousandth() {
    let (limit, mut key) = (bucket(MAX_COUNT, MAX_COUNT, 1), Key::default());
    key.call(&limit, NOW, MAX_COUNT);
    assert_eq!(wait(key.call(&limit, NOW, 1)), 1);
    assert_eq!(key.remaining(&limit, NOW + 1), MAX_COUNT / 1000);
    assert_eq!(key.remaining(&limit, NOW + 1000), MAX_COUNT);
}

#[test]
fn a_wait_of_geological_length_saturates() {
    // Twice the longest wait, and one that no 64 bits hold.
    for period_ms in [2, MAX_PERIOD_MS] {
        let (limit, mut key) = (bucket(MAX_COUNT, 1, period_ms), Key::default());
        key.call(&limit, NOW, MAX_COUNT);
        assert_eq!(wait(key.call(&limit, NOW, MAX_COUNT)), MAX_WAIT_MS as i64);
        assert_eq!(key.peek(&limit, NOW, 0).reset_after_ms, MAX_WAIT_MS);
        // The next token is near, and that is said exactly.
        assert_eq!(wait(key.call(&limit, NOW, 1)), period_ms as i64);
    }
}

#[test]
fn an_expiry_is_never_later_than_replicas_accept() {
    // RL.LOAD takes a time of at most 2^53−1 ms.
    let (limit, mut key) = (bucket(MAX_COUNT, 1, MAX_PERIOD_MS), Key::default());
    let expiry = key.store(&limit, NOW, MAX_COUNT, Mode::Check).expiry;
    assert!(expiry.at_ms <= MAX_COUNT, "{expiry:?}");
}

#[test]
fn a_thousand_forced_calls_of_the_largest_cost_only_saturate() {
    let (limit, mut key) = (bucket(MAX_COUNT, MAX_COUNT, 1), Key::default());
    for _ in 0..1000 {
        key.force(&limit, NOW, MAX_COUNT);
    }
    // 2^56 units at 2^53−1 per ms are a little more than 8 ms.
    assert_eq!(key.peek(&limit, NOW, 0).reset_after_ms, 9);
    assert_eq!(wait(key.call(&limit, NOW, 0)), 8);
    let slow = bucket(MAX_COUNT, 1, MAX_PERIOD_MS);
    assert_eq!(key.force(&slow, NOW, MAX_COUNT).reset_after_ms, MAX_WAIT_MS);
    assert_eq!(key.peek(&limit, NOW, 0).reset_after_ms, 9);
}

#[test]
fn a_clock_beyond_all_dates_counts_as_the_last_date() {
    let (limit, mut key) = (bucket(10, 10, 1000), Key::default());
    key.call(&limit, MAX_TIME_US, 10);
    assert_eq!(wait(key.call(&limit, u64::MAX, 1)), 100);
    assert_eq!(key.call(&limit, 0, 1).reset_after_ms, 1000);
}

#[test]
fn a_limit_out_of_range_is_refused() {
    use rl_core::BucketLimit;
    assert!(BucketLimit::new(MAX_COUNT, MAX_COUNT, MAX_PERIOD_MS).is_ok());
    assert_eq!(BucketLimit::new(MAX_COUNT + 1, 1, 1), Err(Error::Capacity));
    assert_eq!(BucketLimit::new(1, 0, 1), Err(Error::Refill));
    assert_eq!(BucketLimit::new(1, MAX_COUNT + 1, 1), Err(Error::Refill));
    assert_eq!(BucketLimit::new(1, 1, 0), Err(Error::Period));
    assert_eq!(
        BucketLimit::new(1, 1, MAX_PERIOD_MS + 1),
        Err(Error::Period)
    );
}
