//! Limits use the server's clock, to the millisecond, even if it steps back or forth. See `properties.rs` in the core for
//! steps of every size.

use redis::Connection;
use rl_testkit::{FrozenServer, NOON_US};
use rl_testkit::{MultiReply, Reply, ask, ask_error};
use rstest::rstest;

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// A call that passes, one after it that is denied, and the longest that anybody ever waits for it.
#[rstest]
#[case::slide("RL.SLIDE k 9 401ms 9", "RL.SLIDE k 9 401ms 2", 802)]
#[case::precise(
    "RL.SLIDE k 9 401ms 9 PRECISION 7",
    "RL.SLIDE k 9 401ms 2 PRECISION 7",
    460
)]
#[case::most_precise(
    "RL.SLIDE k 9 401ms 9 PRECISION 60",
    "RL.SLIDE k 9 401ms 2 PRECISION 60",
    408
)]
#[case::bucket("RL.BUCKET k 9 7 401ms 9", "RL.BUCKET k 9 7 401ms 2", 516)]
#[case::fixed("RL.FIXED k 9 401ms 9", "RL.FIXED k 9 401ms 2", 401)]
#[case::exact("RL.EXACT k 9 401ms 9", "RL.EXACT k 9 401ms 2", 401)]
#[case::leak("RL.LEAK k 9 7 401ms 9", "RL.LEAK k 9 7 401ms 2", 516)]
#[case::lease("RL.LEASE k 9 401ms one 9", "RL.LEASE k 9 401ms other 2", 401)]
fn waits_are_exact_to_the_millisecond_even_after_a_step_back(
    #[case] first: &str,
    #[case] call: &str,
    #[case] longest_ms: i64,
    #[values(0, 38 * MS, HOUR, 20 * 365 * DAY)] back_us: u64,
) {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let allowed: Reply = ask(&mut con, first);
    assert_eq!((allowed.0, allowed.2, allowed.3), (1, 0, 0));

    let mut now_us = NOON_US + 37 * MS - back_us;
    frozen.set(now_us);
    let mut wait_ms = longest_ms;
    // Denied calls in between do not restart the wait.
    for part in [3, 2, 1] {
        let denied: Reply = ask(&mut con, call);
        assert_eq!(denied.0, 0, "usage is kept");
        assert!(denied.2 < 2, "{denied:?}");
        assert!((1..=wait_ms).contains(&denied.3), "{denied:?} of {wait_ms}");
        let on_ms = denied.3 / part - i64::from(part == 1);
        wait_ms = denied.3 - on_ms;
        if on_ms > 0 {
            now_us += on_ms as u64 * MS;
            frozen.set(now_us);
        }
    }
    let early: Reply = ask(&mut con, call);
    assert_eq!((early.0, early.3), (0, 1), "1 ms before its time");
    frozen.set(now_us + MS);
    let again: Reply = ask(&mut con, call);
    assert_eq!(again.0, 1);
    let ttl: i64 = ask(&mut con, "PTTL k");
    // That of BUCKET and LEAK rarely moves.
    let late_ms = if call.contains(" 7 401ms") {
        30_000
    } else {
        1001
    };
    assert!(
        ttl <= again.4 + late_ms,
        "the expiry follows the clock: {ttl}"
    );
}

/// A denied call under a changed limit says how long to wait, and that comes true: the server does not let the key go
/// before, at whatever moment of a second the call is made.
#[rstest]
#[case::bucket("RL.BUCKET k 10 10 1s 10", "RL.BUCKET k 10 10 2s 10", 2000)]
#[case::a_little_slower("RL.BUCKET k 10 10 1s 10", "RL.BUCKET k 10 10 1001ms 10", 1001)]
#[case::fewer("RL.BUCKET k 10 10 1s 10", "RL.BUCKET k 10 9 1s 10", 1112)]
#[case::leak("RL.LEAK k 10 10 1s 10", "RL.LEAK k 10 10 2s 10", 2000)]
#[case::exact("RL.EXACT k 10 1s 10", "RL.EXACT k 10 2s 10", 2000)]
#[case::slide("RL.SLIDE k 10 1s 10", "RL.SLIDE k 10 3s 10", 2000)]
#[case::precise("RL.SLIDE k 10 1s 10 PRECISION 4", "RL.SLIDE k 10 3s 10", 1250)]
#[case::coarser(
    "RL.SLIDE k 10 1s 10 PRECISION 4",
    "RL.SLIDE k 10 1s 10 PRECISION 2",
    1250
)]
#[case::now_precise("RL.SLIDE k 10 1s 10", "RL.SLIDE k 10 1s 10 PRECISION 4", 2000)]
#[case::policy("RL.CHECK k fast 10", "RL.CHECK k slow 10", 2000)]
fn a_wait_under_a_changed_limit_is_exact(
    #[case] first: &str,
    #[case] call: &str,
    #[case] wait_ms: u64,
) {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let mut call_at = |now_us: u64, line: &str| {
        frozen.set(now_us);
        let reply: Vec<i64> = ask(&mut con, line);
        (reply[0], reply[3])
    };
    call_at(NOON_US, "RL.FIXED unused 1 1s");
    for line in [
        "RL.POLICY SET fast BUCKET 10 10 1s SLIDE 100 1s",
        "RL.POLICY SET slow SLIDE 100 1s BUCKET 10 10 2s",
    ] {
        let _: String = ask(&mut frozen.server.connect(), line);
    }
    let mut now_us = NOON_US;
    for offset_ms in [0, 1, 71, 500, 877, 998, 999] {
        now_us += 10 * SECOND + offset_ms * MS;
        assert_eq!(call_at(now_us, first).0, 1);
        assert_eq!(call_at(now_us, call), (0, wait_ms as i64));
        for early_ms in [wait_ms - 1000, wait_ms / 2, 2, 1] {
            let at_us = now_us + (wait_ms - early_ms) * MS;
            assert_eq!(call_at(at_us, call), (0, early_ms as i64), "{offset_ms} ms");
        }
        assert_eq!(call_at(now_us + wait_ms * MS, call).0, 1, "{offset_ms} ms");
    }
}

#[rstest]
#[case::slide("RL.SLIDE k 9 1h 9", "RL.SLIDE k 9 1h 2", 2)]
#[case::precise("RL.SLIDE k 9 1h 9 PRECISION 9", "RL.SLIDE k 9 1h 2 PRECISION 9", 2)]
#[case::bucket("RL.BUCKET k 9 9 1h 9", "RL.BUCKET k 9 9 1h 2", 1)]
#[case::fixed("RL.FIXED k 9 1h 9", "RL.FIXED k 9 1h 2", 1)]
#[case::exact("RL.EXACT k 9 1h 9", "RL.EXACT k 9 1h 2", 1)]
#[case::leak("RL.LEAK k 9 9 1h 9", "RL.LEAK k 9 9 1h 2", 1)]
#[case::lease("RL.LEASE k 9 1h one 9", "RL.LEASE k 9 1h other 2", 1)]
fn after_a_step_back_usage_is_kept_and_no_wait_is_longer_than_usual(
    #[case] first: &str,
    #[case] call: &str,
    #[case] longest_h: u64,
) {
    let frozen = FrozenServer::start();
    let mut con = frozen.server.connect();
    assert_eq!(ask::<Reply>(&mut con, first).0, 1);
    let earlier_us = NOON_US - 20 * 365 * DAY;
    frozen.set(earlier_us);
    let denied: Reply = ask(&mut con, call);
    assert_eq!((denied.0, denied.2), (0, 0), "usage is kept");
    assert!(denied.3 as u64 <= longest_h * HOUR / MS, "{denied:?}");
    // A few minutes later, the wait has not started over.
    frozen.set(earlier_us + 5 * 60 * SECOND);
    let again: Reply = ask(&mut con, call);
    assert_eq!(again.0, 0);
    assert!(again.3 < denied.3 - 240_000, "{again:?} after {denied:?}");
    frozen.set(earlier_us + longest_h * HOUR + 60 * SECOND);
    assert_eq!(ask::<Reply>(&mut con, call).0, 1);
}

#[rstest]
#[case::slide("RL.SLIDE k 3 1h 1")]
#[case::precise("RL.SLIDE k 3 1h 1 PRECISION 10")]
#[case::bucket("RL.BUCKET k 3 3 1h 1")]
#[case::fixed("RL.FIXED k 3 1h 1")]
#[case::exact("RL.EXACT k 3 1h 1")]
#[case::leak("RL.LEAK k 3 3 1h 1")]
#[case::lease("RL.LEASE k 3 1h {} 1")]
fn a_step_forward_grants_at_most_one_extra_limit(#[case] call: &str) {
    let frozen = FrozenServer::start();
    let mut con = frozen.server.connect();
    let mut holder = 0;
    let mut allowed = || {
        let mut once = || {
            holder += 1;
            ask::<Reply>(&mut con, &call.replace("{}", &holder.to_string())).0
        };
        (0..10).map(|_| once()).sum::<i64>()
    };
    assert_eq!(allowed(), 3);
    frozen.set(NOON_US + 365 * DAY);
    assert_eq!(allowed(), 3);
    frozen.set(NOON_US);
    assert_eq!(allowed(), 0, "and a step back grants nothing");
}

#[rstest]
#[case::slide("RL.SLIDE k 9 1h 3")]
#[case::precise("RL.SLIDE k 9 1h 3 PRECISION 6")]
#[case::bucket("RL.BUCKET k 9 1 1h 3")]
#[case::fixed("RL.FIXED k 9 1h 3")]
#[case::exact("RL.EXACT k 9 1h 3")]
#[case::leak("RL.LEAK k 9 1 1h 3")]
fn refunds_after_a_clock_step_return_what_is_left(#[case] call: &str) {
    let frozen = FrozenServer::start();
    let mut con = frozen.server.connect();
    let _: Reply = ask(&mut con, call);
    frozen.set(NOON_US - 2 * HOUR);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 2"), 2);
    let left: Reply = ask(&mut con, call);
    assert_eq!((left.0, left.2), (1, 5), "one is left of three, then four");
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 100"), 4);
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0);
    let _: Reply = ask(&mut con, call);
    frozen.set(NOON_US + DAY);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 100"), 0, "long gone");
}

#[rstest]
fn a_fixed_day_starts_at_midnight_utc() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let midnight_us = NOON_US - NOON_US % DAY + DAY;
    let noon: Reply = ask(&mut con, "RL.FIXED k 5 1d 5");
    assert_eq!(noon, (1, 5, 0, 0, 43_200_000), "twelve hours to go");
    let denied: Reply = ask(&mut con, "RL.FIXED k 5 1d");
    assert_eq!(denied, (0, 5, 0, 43_200_000, 43_200_000));
    frozen.set(midnight_us - 1);
    let late: Reply = ask(&mut con, "RL.FIXED k 5 1d");
    assert_eq!(late, (0, 5, 0, 1, 1));
    frozen.set(midnight_us + MS - 1);
    let early: Reply = ask(&mut con, "RL.FIXED k 5 1d");
    assert_eq!((early.0, early.2, early.4), (1, 4, 86_400_000));
}

#[rstest]
fn calls_leave_a_leaky_bucket_evenly_spaced() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    // Three a second: admitted at any moment, they leave 333⅓ ms apart.
    let mut call = |now_us: u64| {
        frozen.set(now_us);
        ask::<Reply>(&mut con, "RL.LEAK k 4 3 1s")
    };
    let delays: Vec<_> = (0..4).map(|_| call(NOON_US).3).collect();
    assert_eq!(delays, [0, 334, 667, 1000]);
    let denied = call(NOON_US);
    assert_eq!((denied.0, denied.3), (0, 334), "the queue is full");
    // Half a second later one and a half have left; the next leaves after the four, on its own turn.
    let later = call(NOON_US + 500 * MS);
    assert_eq!((later.0, later.3), (1, 834));
    assert_eq!(call(NOON_US + 10 * SECOND).3, 0, "an empty queue");
}

#[rstest]
fn a_crashed_holder_loses_its_lease_after_its_ttl() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let lease = |con: &mut Connection, holder: &str, ttl: &str| -> Reply {
        ask(con, &format!("RL.LEASE k 2 {ttl} {holder}"))
    };
    assert_eq!(lease(&mut con, "a", "10s"), (1, 2, 1, 0, 10_000));
    assert_eq!(lease(&mut con, "b", "20s"), (1, 2, 0, 0, 20_000));
    // The earliest expiry that makes room.
    assert_eq!(lease(&mut con, "c", "10s"), (0, 2, 0, 10_000, 20_000));
    // `b` lives on and renews; `a` has crashed.
    frozen.set(NOON_US + 9 * SECOND);
    assert_eq!(lease(&mut con, "b", "20s"), (1, 2, 0, 0, 20_000));
    assert_eq!(lease(&mut con, "c", "10s"), (0, 2, 0, 1000, 20_000));
    frozen.set(NOON_US + 10 * SECOND - MS);
    assert_eq!(lease(&mut con, "c", "10s").0, 0);
    frozen.set(NOON_US + 10 * SECOND);
    assert_eq!(lease(&mut con, "c", "10s"), (1, 2, 0, 0, 19_000));
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k a"), 0, "not held");
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k b"), 1);
    let ttl: i64 = ask(&mut con, "PTTL k");
    assert!((10_000..=10_001).contains(&ttl), "as long as c's: {ttl}");
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k c"), 1);
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0, "nobody is left");
}

#[rstest]
fn the_wait_of_a_multi_is_exact_to_the_millisecond_with_all_algorithms() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let call = |holder: &str| {
        format!(
            "RL.MULTI s \"SLIDE 5 777ms 3\" p \"SLIDE 5 500ms 3 PRECISION 9\" b \"BUCKET 5 2 333ms 3\" \
             f \"FIXED 5 801ms 3\" x \"EXACT 5 601ms 3\" l \"LEAK 5 2 444ms 3\" h \"LEASE 5 901ms {holder} 3\""
        )
    };
    let first: MultiReply = ask(&mut con, &call("one"));
    assert_eq!((first.0, first.1), (1, 0));
    let denied: MultiReply = ask(&mut con, &call("other"));
    assert_eq!(denied.0, 0);
    assert!(denied.2.iter().all(|reply| reply.0 == 0 && reply.2 == 2));
    let longest = denied.2.iter().map(|reply| reply.3).max().unwrap();
    assert_eq!(denied.1, longest);
    frozen.set(NOON_US + (longest as u64 - 1) * MS);
    let early: MultiReply = ask(&mut con, &call("other"));
    assert_eq!((early.0, early.1), (0, 1));
    frozen.set(NOON_US + longest as u64 * MS);
    let late: MultiReply = ask(&mut con, &call("other"));
    assert_eq!((late.0, late.1), (1, 0));
}

#[rstest]
fn a_denial_by_a_longer_window_holds_though_the_key_was_to_expire_sooner() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    for (first, longer) in [
        ("RL.SLIDE s 5 1s 5", "RL.SLIDE s 5 1h"),
        ("RL.SLIDE p 5 1s 5 PRECISION 4", "RL.SLIDE p 5 1h"),
        ("RL.BUCKET b 5 5 1s 5", "RL.BUCKET b 5 5 1h"),
        ("RL.FIXED f 5 1s 5", "RL.FIXED f 5 1h"),
        ("RL.EXACT x 5 1s 5", "RL.EXACT x 5 1h"),
        ("RL.LEAK l 5 5 1s 5", "RL.LEAK l 5 5 1h"),
    ] {
        frozen.set(NOON_US);
        let _: Reply = ask(&mut con, first);
        let denied: Reply = ask(&mut con, longer);
        assert_eq!(denied.0, 0, "{longer}");
        let wait_us = denied.3 as u64 * MS;
        frozen.set(NOON_US + wait_us - MS);
        let early: Reply = ask(&mut con, longer);
        assert_eq!((early.0, early.3), (0, 1), "{longer} {} ms early", 1);
        frozen.set(NOON_US + wait_us);
        let late: Reply = ask(&mut con, longer);
        assert_eq!(late.0, 1, "{longer}");
    }
    assert!(ask_error(&mut con, "RL.EXACT x 5 never").starts_with("ERR window"));
}
