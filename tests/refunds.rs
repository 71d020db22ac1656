//! RL.REFUND with TIMES and AGE, on a server: what it refunds, and that replicas and the AOF follow.

use redis::Connection;
use rl_testkit::{FrozenServer, NOON_US, Random, Server, ask, ask_error, ask_ok};
use rstest::rstest;

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;

/// The first field of a reply: whether the call was allowed.
fn allowed(con: &mut Connection, line: &str) -> bool {
    ask::<Vec<i64>>(con, line)[0] == 1
}

/// Charges of two callers; the first one's is refunded when its window is over, or its debt has drained. Without AGE, that
/// would let more through than the limit allows.
#[rstest]
#[case::fixed("RL.FIXED k 100 1m", &[(59_000, 100), (60_000, 100)], 61_000, 0)]
#[case::exact("RL.EXACT k 100 1s", &[(0, 50), (800, 50), (1000, 50)], 1050, 0)]
#[case::bucket("RL.BUCKET k 100 100 1m", &[(0, 100), (57_000, 95)], 57_000, 5)]
#[case::leak("RL.LEAK k 100 100 1m", &[(0, 100), (57_000, 95)], 57_000, 5)]
#[case::precise("RL.SLIDE k 100 1s", &[(0, 50), (900, 50), (1300, 50)], 1350, 0)]
fn a_refund_with_age_takes_nobody_elses_units(
    #[case] call: &str,
    #[case] charges: &[(u64, u64)],
    #[case] refund_at_ms: u64,
    #[case] expected: i64,
) {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let replica = Server::start();
    replica.follow(&frozen.server);
    let mut con = frozen.server.connect();
    let precision = match call.contains("SLIDE") {
        true => " PRECISION 10",
        false => "",
    };
    let start_us = NOON_US + 60 * SECOND;
    for &(at_ms, cost) in charges {
        frozen.set(start_us + at_ms * MS);
        assert!(allowed(&mut con, &format!("{call} {cost}{precision}")));
    }
    frozen.set(start_us + refund_at_ms * MS);
    let (charged_ms, cost) = charges[0];
    let age_ms = refund_at_ms - charged_ms;
    let before: Vec<i64> = ask(&mut con, &format!("{call} 0{precision}"));
    let line = format!("RL.REFUND k {cost} AGE {age_ms}ms");
    assert_eq!(ask::<i64>(&mut con, &line), expected);
    let after: Vec<i64> = ask(&mut con, &format!("{call} 0{precision}"));
    assert_eq!(after[2] - before[2], expected);
    frozen.server.assert_same_on(&replica);
    replica.assert_received_states_only();
    // The same refund without AGE takes the units of the others.
    let latest: i64 = ask(&mut con, &format!("RL.REFUND k {cost}"));
    assert!(latest > expected);
}

#[rstest]
fn calls_are_refunded_to_limits_with_a_fixed_cost() {
    let server = Server::start();
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET llm SLIDE 3 1h COST 1 SLIDE 1000 1h FIXED 90000 3650d COST 30000",
    );
    for _ in 0..3 {
        assert!(allowed(&mut con, "RL.CHECK k llm 100"));
    }
    assert!(!allowed(&mut con, "RL.CHECK k llm 1"));
    // Without TIMES, the requests stay counted.
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 100"), 100);
    assert!(!allowed(&mut con, "RL.CHECK k llm 1"));
    // The reply is the largest amount that any of the limits refunded.
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 100 TIMES 1"), 30_000);
    assert!(allowed(&mut con, "RL.CHECK k llm 100"));
    assert!(!allowed(&mut con, "RL.CHECK k llm 1"));
    // Never more than is in use.
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 0 TIMES 1000"), 90_000);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 0 TIMES 1"), 0);
    let refunded: i64 = server.info_number("rl", "rl_refunded_units");
    assert_eq!(refunded, 100 + 30_000 + 90_000);
    // 200 tokens are left; on a key without a policy, TIMES has nothing to refund.
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 1000 TIMES 1"), 200);
    assert!(allowed(&mut con, "RL.SLIDE s 10 1h 5"));
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND s 2 TIMES 3"), 2);
}

#[rstest]
fn the_calls_of_times_are_refunded_in_one_step() {
    let server = Server::start();
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p BUCKET 10 10 30d COST 2 EXACT 100 1h",
    );
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.CHECK k p 3 TIMES 5")[0], 5);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 15 TIMES 5"), 15);
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0, "as if never charged");
}

#[rstest]
#[case(
    "RL.REFUND k 1 TIMES 0",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.REFUND k 1 TIMES x",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.REFUND k 1 TIMES",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.REFUND k 1 AGE",
    "ERR AGE must be a duration between 1ms and 3650d (ms, s, m, h, d)"
)]
#[case(
    "RL.REFUND k 1 AGE 0ms",
    "ERR AGE must be a duration between 1ms and 3650d (ms, s, m, h, d)"
)]
#[case(
    "RL.REFUND k 1 AGE 3651d",
    "ERR AGE must be a duration between 1ms and 3650d (ms, s, m, h, d)"
)]
#[case(
    "RL.REFUND k 1 PEEK",
    "ERR unknown option: use TIMES n or AGE duration, each once, after the cost"
)]
#[case(
    "RL.REFUND k 1 AGE 1 AGE 1",
    "ERR unknown option: use TIMES n or AGE duration, each once, after the cost"
)]
#[case(
    "RL.REFUND k 1 TIMES 1 AGE 1 x",
    "ERR wrong number of arguments for 'RL.REFUND' command"
)]
#[case(
    "RL.REFUND k 1 TIMES 9007199254740991",
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    "RL.REFUND lease 1 AGE 1",
    "ERR a lease cannot be refunded: release it with RL.RELEASE"
)]
fn errors_change_nothing(#[case] line: &str, #[case] expected: &str) {
    let server = Server::start();
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 10 1h COST 2");
    assert!(allowed(&mut con, "RL.CHECK k p 1"));
    assert!(allowed(&mut con, "RL.LEASE lease 1 1h holder"));
    let before = server.digest_all();
    assert_eq!(ask_error(&mut con, line), expected);
    assert_eq!(server.digest_all(), before);
}

/// Random charges and refunds of every algorithm, inline and by policy: replicas and a replayed AOF have the same state.
#[rstest]
fn replicas_and_the_aof_follow_refunds_with_age() {
    let mut primary = Server::with(&["appendonly", "yes"]);
    let replica = Server::start();
    replica.follow(&primary);
    let (mut con, mut random) = (primary.connect(), Random(14));
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 90000 1h COST 2 EXACT 90000 1h BUCKET 90000 900 1h SLIDE 90000 1h PRECISION 4",
    );
    let calls = [
        "RL.SLIDE s 90000 1h",
        "RL.FIXED f 90000 3650d",
        "RL.EXACT x 90000 1h",
        "RL.BUCKET b 90000 900 1h",
        "RL.LEAK l 90000 900 1h",
        "RL.CHECK q p",
    ];
    let mut refunded = 0;
    for _ in 0..6000 {
        let call = calls[random.below(calls.len() as u64) as usize];
        let key = call.split(' ').nth(1).unwrap();
        let cost = 1 + random.below(9);
        if random.below(3) > 0 {
            let _: Vec<i64> = ask(&mut con, &format!("{call} {cost}"));
        } else {
            let (times, age) = (
                1 + random.below(2),
                1 + (random.below(600) >> random.below(10)),
            );
            let line = format!("RL.REFUND {key} {cost} TIMES {times} AGE {age}ms");
            refunded += ask::<i64>(&mut con, &line);
        }
    }
    assert!(refunded > 500, "{refunded}");
    primary.assert_same_on(&replica);
    replica.assert_received_states_only();
    let before = primary.snapshot();
    primary.kill();
    primary.start_again();
    before.assert_same(&primary.snapshot());
}
