//! RL.RESERVE and RL.SETTLE: each counts once, and settling refunds or charges the difference. See `idempotency.rs` for
//! lost and late messages, and `reservations.rs` in the core for what each algorithm refunds.

use redis::{Connection, Value};
use rl_testkit::{
    FrozenServer, MultiReply, NOON_US, Reply, Server, ask, ask_error, ask_ok, assign_slots,
    command, eventually,
};
use rstest::{fixture, rstest};

/// The reply of RL.RESERVE: allowed, retry_after_ms, spend_ms, and the reply of each limit.
type Reserved = (i64, i64, i64, Vec<Reply>);

const SETTLED: &str = "ERR reservation is settled";

#[fixture]
fn server() -> Server {
    Server::start()
}

/// Units in use under a limit of 100 per hour.
fn used(con: &mut Connection, key: &str) -> i64 {
    let reply: Reply = ask(con, &format!(r#"RL.PEEK {key} "SLIDE 100 1h 0""#));
    100 - reply.2
}

#[rstest]
fn an_id_goes_from_reserved_to_settled(server: Server) {
    let mut con = server.connect();
    let reserve = r#"RL.RESERVE id 5m a "SLIDE 100 1h 10" b "SLIDE 100 1h 20""#;

    // Unknown: it decides, and is recorded.
    let first: Reserved = ask(&mut con, reserve);
    assert_eq!((first.0, first.1), (1, 0));
    assert_eq!(first.2, 3_600_000);
    assert_eq!((first.3[0].2, first.3[1].2), (90, 80));
    assert_eq!(ask::<String>(&mut con, "TYPE id"), "rl-resrv-");
    let ttl: i64 = ask(&mut con, "PTTL id");
    assert!((200_000..=300_001).contains(&ttl), "{ttl}");

    // Reserved: it charges nothing, and shows current numbers.
    let _: Reply = ask(&mut con, "RL.SLIDE a 100 1h 5");
    for _ in 0..3 {
        let again: Reserved = ask(&mut con, reserve);
        assert_eq!((again.0, again.1), (1, 0));
        assert_eq!((again.3[0].2, again.3[1].2), (85, 80));
    }

    // The named key is settled, the other stays open.
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 a 4"), [4]);
    assert_eq!((used(&mut con, "a"), used(&mut con, "b")), (9, 20));
    for actual in [4, 0, 99] {
        let line = format!("RL.SETTLE id 1 a {actual}");
        assert_eq!(ask::<Vec<i64>>(&mut con, &line), [4], "the same as before");
    }
    assert_eq!(ask_error(&mut con, reserve), SETTLED);
    assert_eq!(
        ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 b 26 a 1"),
        [26, 4]
    );
    assert_eq!((used(&mut con, "a"), used(&mut con, "b")), (9, 26));
    assert_eq!(ask_error(&mut con, reserve), SETTLED);
    assert_eq!((used(&mut con, "a"), used(&mut con, "b")), (9, 26));
}

#[rstest]
fn an_unknown_id_is_closed_for_a_minute() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let reserve = r#"RL.RESERVE id 5m a "SLIDE 100 1h 10""#;
    assert_eq!(ask::<Value>(&mut con, "RL.SETTLE id 1 a 0"), Value::Nil);
    assert_eq!(ask::<i64>(&mut con, "EXISTS a"), 0, "no limit changes");
    assert_eq!(ask_error(&mut con, reserve), SETTLED);
    frozen.set(NOON_US + 59_000_000);
    assert_eq!(ask_error(&mut con, reserve), SETTLED);
    assert_eq!(ask::<Value>(&mut con, "RL.SETTLE id 1 a 7"), Value::Nil);
    frozen.set(NOON_US + 118_000_000);
    assert_eq!(ask_error(&mut con, reserve), SETTLED, "for another 60 s");
    frozen.set(NOON_US + 120_000_000);
    assert_eq!(ask::<Reserved>(&mut con, reserve).0, 1);
}

#[rstest]
fn a_denied_reservation_is_not_recorded(server: Server) {
    let mut con = server.connect();
    let _: Reply = ask(&mut con, "RL.SLIDE b 100 1h 95");
    let before = server.digest_all();
    let reserve = r#"RL.RESERVE id 5m a "SLIDE 100 1h 10" b "SLIDE 100 1h 10""#;
    let denied: Reserved = ask(&mut con, reserve);
    assert_eq!((denied.0, denied.2), (0, 0));
    assert!(denied.1 > 0);
    assert_eq!((denied.3[0].0, denied.3[1].0), (1, 0));
    assert_eq!(server.digest_all(), before);
    let _: i64 = ask(&mut con, "RL.REFUND b 50");
    assert_eq!(ask::<Reserved>(&mut con, reserve).0, 1, "the same id again");
}

#[rstest]
#[case::no_spec("RL.RESERVE new 5m a")]
#[case::no_ttl(r#"RL.RESERVE new a "SLIDE 100 1h""#)]
#[case::ttl(r#"RL.RESERVE new 0 a "SLIDE 100 1h""#)]
#[case::spec(r#"RL.RESERVE new 5m a "SLIDE x 1h""#)]
#[case::peek(r#"RL.RESERVE new 5m a "PEEK SLIDE 100 1h""#)]
#[case::brief(r#"RL.RESERVE new 5m a "BRIEF SLIDE 100 1h""#)]
#[case::repeated_key(r#"RL.RESERVE new 5m a "SLIDE 100 1h" a "SLIDE 100 1h""#)]
#[case::id_as_key(r#"RL.RESERVE new 5m new "SLIDE 100 1h""#)]
#[case::wrong_algorithm(r#"RL.RESERVE new 5m b "SLIDE 100 1h" a "FIXED 100 1h""#)]
#[case::no_policy(r#"RL.RESERVE new 5m b "SLIDE 100 1h" a "POLICY none""#)]
#[case::id_of_another_type(r#"RL.RESERVE text 5m a "SLIDE 100 1h""#)]
#[case::id_that_is_a_limit(r#"RL.RESERVE a 5m b "SLIDE 100 1h""#)]
#[case::limit_that_is_an_id(r#"RL.RESERVE new 5m id "SLIDE 100 1h""#)]
#[case::other_cost(r#"RL.RESERVE id 5m a "SLIDE 100 1h 11""#)]
#[case::other_ttl(r#"RL.RESERVE id 6m a "SLIDE 100 1h 10""#)]
#[case::other_key(r#"RL.RESERVE id 5m b "SLIDE 100 1h 10""#)]
#[case::settle_without_keys("RL.SETTLE id 1")]
#[case::settle_half_a_pair("RL.SETTLE id 1 a 5 b")]
#[case::settle_text("RL.SETTLE id 1 a x")]
#[case::settle_negative("RL.SETTLE id 1 a -1")]
#[case::settle_too_much("RL.SETTLE id 1 a 9007199254740992")]
#[case::settle_calls("RL.SETTLE id 2 a 5")]
#[case::settle_negative_calls("RL.SETTLE id -1 a 5")]
#[case::settle_key_twice("RL.SETTLE id 1 a 5 a 5")]
#[case::settle_another_key("RL.SETTLE id 1 a 5 b 5")]
#[case::settle_another_type("RL.SETTLE text 1 a 5")]
#[case::settle_a_limit("RL.SETTLE a 1 a 5")]
fn errors_change_nothing(server: Server, #[case] line: &str) {
    let mut con = server.connect();
    ask_ok(&mut con, "SET text x");
    let reserved: Reserved = ask(&mut con, r#"RL.RESERVE id 5m a "SLIDE 100 1h 10""#);
    assert_eq!(reserved.0, 1);
    let dirty = || server.info_number("persistence", "rdb_changes_since_last_save");
    // Without the expiries: before 7.0 they are computed from two readings of a clock.
    let digests = || -> Vec<String> {
        let keys = server.snapshot().keys.into_iter();
        keys.map(|(key, (digest, _))| format!("{key} {digest}"))
            .collect()
    };
    let before = (digests(), dirty());
    let error = ask_error(&mut con, line);
    assert!(
        error.starts_with("ERR ") || error.starts_with("WRONGTYPE "),
        "{error}"
    );
    assert_eq!((digests(), dirty()), before, "{error}");
}

#[rstest]
fn errors_say_what_is_wrong(server: Server) {
    let mut con = server.connect();
    let _: Reserved = ask(&mut con, r#"RL.RESERVE id 5m a "SLIDE 100 1h 10""#);
    let differs = ask_error(&mut con, r#"RL.RESERVE id 5m a "SLIDE 100 1h 11""#);
    assert_eq!(
        differs,
        "ERR the id was used with other arguments: use a new id for each reservation"
    );
    let other = ask_error(&mut con, "RL.SETTLE id 1 other 1");
    assert!(other.contains("'other'"), "{other}");
    let calls = ask_error(&mut con, "RL.SETTLE id 2 a 1");
    assert!(calls.starts_with("ERR calls must be"), "{calls}");
}

#[rstest]
fn several_calls_are_reserved_in_one_step(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 60 1h COST 2 SLIDE 1000 1h");
    let all: Reserved = ask(&mut con, r#"RL.RESERVE one 5m k "TIMES 5 POLICY p 10""#);
    assert_eq!(all.0, 5);
    let limits = |con: &mut Connection| {
        let peek = |cost: &str| format!(r#"RL.PEEK k "POLICY p {cost}""#);
        // The limit with less left decides; the fixed cost has 60, the other 1000.
        ask::<Reply>(con, &peek("0")).2
    };
    assert_eq!(limits(&mut con), 60 - 10);
    // Three of them took place, and used 44 units.
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE one 3 k 44"), [44]);
    assert_eq!(limits(&mut con), 60 - 6);
    assert_eq!(inspected_usage(&mut con, "k"), [6, 44]);

    // As many as fit.
    let some: Reserved = ask(
        &mut con,
        r#"RL.RESERVE two 5m s "TIMES 64 ATLEAST 1 SLIDE 50 1h""#,
    );
    assert_eq!((some.0, some.3[0].0, some.3[0].2), (50, 50, 0));
    let again: Reserved = ask(
        &mut con,
        r#"RL.RESERVE two 5m s "TIMES 64 ATLEAST 1 SLIDE 50 1h""#,
    );
    assert_eq!(again.0, 50, "as many as the first time");
    assert!(ask_error(&mut con, "RL.SETTLE two 51 s 1").contains("calls"));
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE two 50 s 0"), [0]);
    assert_eq!(ask::<i64>(&mut con, "EXISTS s"), 0);

    // Past the limit.
    let forced: Reserved = ask(&mut con, r#"RL.RESERVE three 5m f "FORCE SLIDE 50 1h 80""#);
    assert_eq!((forced.0, forced.3[0].2), (1, 0));
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE three 1 f 20"), [20]);
    assert_eq!(ask::<Reply>(&mut con, "RL.SLIDE f 50 1h 30").2, 0);
}

/// The reply to RL.SETTLE is what stays charged, the most of any limit, where nothing had been charged before.
#[rstest]
#[case::fixed("SLIDE 60 1h COST 3 EXACT 60 1h COST 2", "2 k 40", 6)]
#[case::no_call("SLIDE 60 1h COST 3 EXACT 60 1h COST 2", "0 k 40", 0)]
#[case::one_limit("SLIDE 60 1h COST 3", "1 k 40", 3)]
#[case::less_than_fixed("SLIDE 60 1h COST 3 SLIDE 100 1h", "2 k 1", 6)]
#[case::more_than_fixed("SLIDE 60 1h COST 3 SLIDE 100 1h", "2 k 40", 40)]
#[case::unfixed("SLIDE 100 1h", "2 k 40", 40)]
#[case::nothing_used("SLIDE 60 1h COST 3 SLIDE 100 1h", "2 k 0", 0)]
fn a_reservation_of_nothing_settles_for_what_is_charged(
    server: Server,
    #[case] limits: &str,
    #[case] settled: &str,
    #[case] charged: i64,
) {
    let mut con = server.connect();
    ask_ok(&mut con, &format!("RL.POLICY SET p {limits}"));
    let none: Reserved = ask(&mut con, r#"RL.RESERVE id 5m k "TIMES 2 POLICY p 0""#);
    assert_eq!((none.0, ask::<i64>(&mut con, "EXISTS k")), (2, 0));
    for _ in 0..2 {
        let reply: Vec<i64> = ask(&mut con, &format!("RL.SETTLE id {settled}"));
        assert_eq!(reply, [charged]);
    }
    match charged {
        0 => assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0),
        _ => {
            let used = inspected_usage(&mut con, "k");
            assert_eq!(used.into_iter().max(), Some(charged));
        }
    }
}

/// `used` of each limit of a policy.
fn inspected_usage(con: &mut Connection, key: &str) -> Vec<i64> {
    let text = format!("{:?}", ask::<Value>(con, &format!("RL.INSPECT {key}")));
    let number_after = |part: &str| -> i64 {
        let start = part.find(|c: char| c.is_ascii_digit()).unwrap();
        let digits = part[start..].chars().take_while(char::is_ascii_digit);
        digits.collect::<String>().parse().unwrap()
    };
    text.split("used").skip(1).map(number_after).collect()
}

#[rstest]
fn calls_of_a_policy_that_did_not_take_place_are_undone(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 60 1h COST 1 BUCKET 9000 1 1h",
    );
    let _: Reserved = ask(&mut con, r#"RL.RESERVE one 5m k "POLICY p 1000""#);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE one 0 k 0"), [0]);
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0, "all of it");
    // The call took place but used nothing: the request still counts.
    let _: Reserved = ask(&mut con, r#"RL.RESERVE two 5m k "POLICY p 1000""#);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE two 1 k 0"), [1]);
    let reply: Reply = ask(&mut con, r#"RL.PEEK k "POLICY p 0""#);
    assert_eq!(reply.2, 59);
}

#[rstest]
#[case::slide("SLIDE 100 1h")]
#[case::precise("SLIDE 100 1h 0 PRECISION 4")]
#[case::fixed("FIXED 100 3650d")]
#[case::exact("EXACT 100 1h")]
#[case::bucket("BUCKET 100 1 1h")]
#[case::leak("LEAK 100 1 1h")]
#[case::lease("LEASE 100 1h me")]
fn every_algorithm_is_settled(server: Server, #[case] limit: &str) {
    let mut con = server.connect();
    let spec = |cost: u64| match limit.split_once(" 0 ") {
        Some((limit, option)) => format!("{limit} {cost} {option}"),
        None => format!("{limit} {cost}"),
    };
    let left = |con: &mut Connection| -> i64 {
        let peek = spec(0).replace(" me ", " other ");
        ask::<Reply>(con, &format!(r#"RL.PEEK k "{peek}""#)).2
    };
    let is_lease = limit.starts_with("LEASE");
    for (round, (actual, stays)) in [(30, 30), (10, 10), (45, 45), (0, 0)]
        .into_iter()
        .enumerate()
    {
        let before = left(&mut con);
        let line = format!(r#"RL.RESERVE id{round} 5m k "{}""#, spec(30));
        let reserved: Reserved = ask(&mut con, &line);
        assert_eq!(reserved.0, 1, "{line}");
        let settle = format!("RL.SETTLE id{round} 1 k {actual}");
        assert_eq!(ask::<Vec<i64>>(&mut con, &settle), [stays]);
        let expected = if is_lease { 100 } else { before } - stays;
        assert_eq!(left(&mut con), expected, "{settle}");
        if !is_lease && round == 2 {
            // Room for the last round.
            let _: i64 = ask(&mut con, "RL.REFUND k 45");
        }
    }
}

#[rstest]
fn a_cost_of_0_can_be_settled_for_more(server: Server) {
    let mut con = server.connect();
    let reserved: Reserved = ask(&mut con, r#"RL.RESERVE id 5m k "SLIDE 100 1h 0""#);
    assert_eq!((reserved.0, reserved.3[0].2), (1, 100));
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 k 130"), [130]);
    let reply: Reply = ask(&mut con, r#"RL.PEEK k "SLIDE 100 1h 1""#);
    assert_eq!((reply.0, reply.2), (0, 0), "as FORCE does");
}

#[rstest]
fn units_may_be_spent_until_the_first_charged_window_ends() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let mut number = 0;
    let mut spend = |con: &mut Connection, specs: &[&str]| {
        number += 1;
        let mut call = redis::cmd("RL.RESERVE");
        call.arg(format!("id{number}")).arg("5m");
        for (index, spec) in specs.iter().enumerate() {
            call.arg(format!("k{number}:{index}")).arg(spec);
        }
        call.query::<Reserved>(con).unwrap().2
    };
    assert_eq!(spend(&mut con, &["SLIDE 9 60"]), 60_000);
    assert_eq!(spend(&mut con, &["SLIDE 9 60 PRECISION 6"]), 10_000);
    // The clock is 123 µs past noon.
    assert_eq!(spend(&mut con, &["FIXED 9 60"]), 59_999);
    assert_eq!(spend(&mut con, &["EXACT 9 60"]), 0);
    assert_eq!(spend(&mut con, &["BUCKET 9 1 60"]), -1);
    assert_eq!(spend(&mut con, &["LEAK 9 1 60"]), -1);
    assert_eq!(spend(&mut con, &["LEASE 9 60 me"]), -1);
    assert_eq!(
        spend(&mut con, &["BUCKET 9 1 60", "SLIDE 9 60", "SLIDE 9 30"]),
        30_000
    );
    assert_eq!(spend(&mut con, &["SLIDE 9 60", "EXACT 9 60"]), 0);
    // A repeated call reports what is left.
    let line = r#"RL.RESERVE again 5m again:k "SLIDE 9 60""#;
    assert_eq!(ask::<Reserved>(&mut con, line).2, 60_000);
    frozen.set(NOON_US + 45_000_000);
    assert_eq!(ask::<Reserved>(&mut con, line).2, 15_000);
    frozen.set(NOON_US + 75_000_000);
    assert_eq!(ask::<Reserved>(&mut con, line).2, 0);
}

/// The three cases that a refund of the latest units got wrong.
#[rstest]
#[case::fixed("FIXED 100 60")]
#[case::exact("EXACT 100 60")]
#[case::precise("SLIDE 100 60 PRECISION 4")]
#[case::bucket("BUCKET 100 100 60")]
#[case::leak("LEAK 100 100 60")]
fn a_late_settlement_does_not_refund_the_units_of_others(#[case] limit: &str) {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let spec = |cost: u64| match limit.split_once(" PRECISION") {
        Some((limit, n)) => format!("{limit} {cost} PRECISION{n}"),
        None => format!("{limit} {cost}"),
    };
    let reserve = format!(r#"RL.RESERVE id 5m k "{}""#, spec(100));
    assert_eq!(ask::<Reserved>(&mut con, &reserve).0, 1);
    frozen.set(NOON_US + 76_000_000);
    let others: MultiReply = ask(&mut con, &format!(r#"RL.MULTI k "{}""#, spec(100)));
    assert_eq!(others.0, 1);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 k 0"), [100]);
    let next: MultiReply = ask(&mut con, &format!(r#"RL.MULTI k "{}""#, spec(1)));
    assert_eq!(next.0, 0);
}

#[rstest]
#[case("SLIDE 100 1h")]
#[case("FIXED 100 3650d")]
#[case("EXACT 100 1h")]
#[case("BUCKET 100 1 1h")]
fn a_key_that_was_deleted_refunds_nothing_to_its_successor(server: Server, #[case] limit: &str) {
    let mut con = server.connect();
    let reserve = format!(r#"RL.RESERVE id 5m k "{limit} 50""#);
    assert_eq!(ask::<Reserved>(&mut con, &reserve).0, 1);
    assert_eq!(ask::<i64>(&mut con, "DEL k"), 1);
    let others: MultiReply = ask(&mut con, &format!(r#"RL.MULTI k "{limit} 60""#));
    assert_eq!(others.2[0].2, 40);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 k 0"), [50]);
    let left: Reply = ask(&mut con, &format!(r#"RL.PEEK k "{limit} 0""#));
    assert_eq!(left.2, 40);
    // Without the id, the estimate stays charged.
    let reserve = format!(r#"RL.RESERVE lost 5m k "{limit} 10""#);
    assert_eq!(ask::<Reserved>(&mut con, &reserve).3[0].2, 30);
    let _: i64 = ask(&mut con, "DEL lost");
    assert_eq!(ask::<Value>(&mut con, "RL.SETTLE lost 1 k 0"), Value::Nil);
    let left: Reply = ask(&mut con, &format!(r#"RL.PEEK k "{limit} 0""#));
    assert_eq!(left.2, 30);
}

#[rstest]
fn overrides_and_shadow_limits_are_respected(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 100 1h");
    ask::<Value>(&mut con, "RL.OVERRIDE SET free p ALLOW");
    ask::<Value>(&mut con, "RL.OVERRIDE SET bad p BLOCK");
    let free: Reserved = ask(&mut con, r#"RL.RESERVE one 5m free "POLICY p 1000""#);
    assert_eq!(free.0, 1);
    assert_eq!(ask::<i64>(&mut con, "EXISTS free"), 0);
    // Nothing was charged, so nothing is settled.
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE one 1 free 2000"), [0]);
    assert_eq!(ask::<i64>(&mut con, "EXISTS free"), 0);

    let blocked: Reserved = ask(
        &mut con,
        r#"RL.RESERVE two 5m bad "POLICY p 1" a "SLIDE 9 1h""#,
    );
    assert_eq!(blocked.0, 0);
    assert_eq!(ask::<i64>(&mut con, "EXISTS two a"), 0);

    let shadow = r#"RL.RESERVE three 5m s "SHADOW SLIDE 10 1h 50" t "SLIDE 100 1h 50""#;
    let reserved: Reserved = ask(&mut con, shadow);
    assert_eq!((reserved.0, reserved.3[1].0), (1, 1));
    assert_eq!(
        ask::<Vec<i64>>(&mut con, "RL.SETTLE three 1 t 20 s 20")[0],
        20
    );
    assert_eq!(used(&mut con, "t"), 20);
}

#[rstest]
fn settling_works_when_memory_is_full(server: Server) {
    let mut con = server.connect();
    let reserve = r#"RL.RESERVE id 5m a "SLIDE 100 1h 10" b "SLIDE 100 1h 10""#;
    assert_eq!(ask::<Reserved>(&mut con, reserve).0, 1);
    ask_ok(&mut con, "CONFIG SET maxmemory 1");
    let new = r#"RL.RESERVE new 5m a "SLIDE 100 1h 10""#;
    assert!(ask_error(&mut con, new).starts_with("OOM "));
    assert_eq!(ask::<Reserved>(&mut con, reserve).0, 1, "a repeated call");
    assert_eq!(
        ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 a 4 b 14"),
        [4, 14]
    );
    assert_eq!((used(&mut con, "a"), used(&mut con, "b")), (4, 14));
    assert_eq!(ask::<Value>(&mut con, "RL.SETTLE late 1 a 0"), Value::Nil);
    assert_eq!(ask::<i64>(&mut con, "EXISTS late"), 1, "it is closed");
}

#[rstest]
fn an_id_without_expiry_can_be_settled(server: Server) {
    let mut con = server.connect();
    let _: Reserved = ask(&mut con, r#"RL.RESERVE id 5m k "SLIDE 100 1h 10""#);
    assert_eq!(ask::<i64>(&mut con, "PERSIST id"), 1);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 k 4"), [4]);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 k 9"), [4]);
    assert_eq!(used(&mut con, "k"), 4);
}

#[rstest]
fn only_what_changes_something_is_seen_by_watch(server: Server) {
    let mut con = server.connect();
    let reserve = r#"RL.RESERVE id 5m k "SLIDE 100 1h 10""#;
    let mut is_aborted = |line: &str| {
        let mut watcher = server.connect();
        ask_ok(&mut watcher, "WATCH id k");
        ask_ok(&mut watcher, "MULTI");
        let _: String = ask(&mut watcher, "PING");
        let _ = command(line).query::<Value>(&mut con);
        ask::<Value>(&mut watcher, "EXEC") == Value::Nil
    };
    assert!(is_aborted(reserve));
    assert!(!is_aborted(reserve), "a repeated call");
    assert!(is_aborted("RL.SETTLE id 1 k 4"));
    assert!(!is_aborted("RL.SETTLE id 1 k 5"), "a repeated settlement");
    assert!(!is_aborted(reserve), "an error");
    assert!(
        !is_aborted(r#"RL.RESERVE new 5m k "SLIDE 100 1h 99""#),
        "a denial"
    );
}

#[rstest]
fn an_id_can_be_inspected_and_restored_but_not_copied(server: Server) {
    let mut con = server.connect();
    let _: Reserved = ask(&mut con, r#"RL.RESERVE id 5m k "SLIDE 100 1h 10""#);
    let shown = format!("{:?}", ask::<Value>(&mut con, "RL.INSPECT id"));
    for word in [
        "RESERVATION",
        "reserved",
        "SLIDE 100 1h 10",
        "charged_at_ms",
    ] {
        assert!(shown.contains(word), "{shown}");
    }
    // Both ids would refund the same charge.
    let refused = ask_error(&mut con, "COPY id copy");
    assert!(refused.contains("not supported"), "{refused}");
    assert_eq!(ask::<i64>(&mut con, "EXISTS copy"), 0);
    let dump: Vec<u8> = redis::cmd("DUMP").arg("id").query(&mut con).unwrap();
    let mut restore = redis::cmd("RESTORE");
    let restored: String = restore
        .arg("restored")
        .arg(300_000)
        .arg(&dump)
        .query(&mut con)
        .unwrap();
    assert_eq!(restored, "OK");
    assert_eq!(server.digest("id"), server.digest("restored"));
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE restored 1 k 4"), [4]);
    assert_ne!(server.digest("id"), server.digest("restored"));
    let shown = format!("{:?}", ask::<Value>(&mut con, "RL.INSPECT restored"));
    assert!(shown.contains("settled"), "{shown}");
    let _: Value = ask(&mut con, "RL.SETTLE unknown 1 k 0");
    let shown = format!("{:?}", ask::<Value>(&mut con, "RL.INSPECT unknown"));
    assert!(shown.contains("closed"), "{shown}");
    // Damaged bytes are refused.
    for position in 0..dump.len() - 10 {
        let mut damaged = dump.clone();
        damaged[position] ^= 0x11;
        let mut restore = redis::cmd("RESTORE");
        restore.arg("damaged").arg(0).arg(&damaged);
        assert!(restore.query::<Value>(&mut con).is_err());
    }
}

/// Reservations of every kind, in every status.
fn some_reservations(server: &Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 60 1h COST 1 EXACT 9000 1h BUCKET 9000 1 1h",
    );
    let specs = [
        "SLIDE 100 1h 10",
        "SLIDE 100 1h 10 PRECISION 4",
        "FIXED 100 3650d 10",
        "EXACT 100 1h 10",
        "BUCKET 100 1 1h 10",
        "LEAK 100 1 1h 10",
        "LEASE 100 1h me 10",
        "POLICY p 10",
    ];
    for (index, spec) in specs.iter().enumerate() {
        for (round, settle) in ["", "4", "10", "17", "0"].iter().enumerate() {
            let (id, key) = (format!("id:{index}:{round}"), format!("k:{index}:{round}"));
            // Other units, which have to stay.
            let other = spec.replace(" me ", " other ");
            let _: MultiReply = ask(&mut con, &format!(r#"RL.MULTI {key} "{other}""#));
            let line = format!(r#"RL.RESERVE {id} 1h {key} "{spec}""#);
            assert_eq!(ask::<Reserved>(&mut con, &line).0, 1, "{line}");
            if !settle.is_empty() {
                let line = format!("RL.SETTLE {id} 1 {key} {settle}");
                assert_eq!(ask::<Vec<i64>>(&mut con, &line).len(), 1, "{line}");
            }
        }
    }
    let mut all = redis::cmd("RL.RESERVE");
    all.arg("id:all").arg("1h");
    for (index, spec) in specs.iter().enumerate() {
        all.arg(format!("k:all:{index}")).arg(spec);
    }
    assert_eq!(all.query::<Reserved>(&mut con).unwrap().0, 1);
    assert_eq!(
        ask::<Value>(&mut con, "RL.SETTLE id:unknown 1 k 0"),
        Value::Nil
    );
}

#[rstest]
fn replicas_have_the_same_states_and_records(server: Server) {
    let replica = Server::start();
    replica.follow(&server);
    some_reservations(&server);
    server.assert_same_on(&replica);
    replica.assert_received_states_only();
    // After a promotion, everything can be settled there.
    ask_ok(&mut replica.connect(), "REPLICAOF NO ONE");
    let mut con = replica.connect();
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id:0:0 1 k:0:0 3"), [3]);
    assert_eq!(
        ask::<Vec<i64>>(&mut con, "RL.SETTLE id:0:1 1 k:0:1 9"),
        [4],
        "settled before the promotion"
    );
}

#[rstest]
fn files_restore_states_and_records(#[values("rdb", "aof", "preamble")] file: &str) {
    let mut config = vec!["appendfsync", "always"];
    match file {
        "rdb" => {}
        "aof" => config.extend(["appendonly", "yes", "aof-use-rdb-preamble", "no"]),
        _ => config.extend(["appendonly", "yes", "aof-use-rdb-preamble", "yes"]),
    }
    let mut server = Server::with(&config);
    some_reservations(&server);
    let before = server.snapshot();
    if file == "rdb" {
        server.shutdown("SAVE");
    } else {
        // What was appended, and then what a rewrite leaves.
        server.kill();
        server.start_again();
        before.assert_same(&server.snapshot());
        let _: Value = server.run("BGREWRITEAOF", &[]);
        eventually("the AOF is rewritten", || {
            server.info_number("persistence", "aof_rewrite_in_progress") == 0
                && server.info_number("persistence", "aof_rewrite_scheduled") == 0
        });
        server.kill();
    }
    server.start_again();
    before.assert_same(&server.snapshot());
    let mut con = server.connect();
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id:4:0 1 k:4:0 3"), [3]);
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id:4:1 1 k:4:1 9"), [4]);
}

/// Fifty concurrent calls end in any order, while the key is dumped and restored and the server restarts.
#[rstest]
#[case::forwards("BUCKET 60000 1 1h", 1)]
#[case::in_steps("BUCKET 60000 1 1h", 7)]
#[case::backwards("BUCKET 60000 1 1h", 49)]
#[case::leak("LEAK 60000 1 1h", 7)]
#[case::policy("POLICY p", 7)]
fn a_bucket_is_settled_in_any_order(
    #[case] limit: &str,
    #[case] step: usize,
    #[values(false, true)] appends: bool,
) {
    let yes_or_no = if appends { "yes" } else { "no" };
    let mut server = Server::with(&["appendfsync", "always", "appendonly", yes_or_no]);
    let mut con = server.connect();
    let policy = "RL.POLICY SET p BUCKET 60000 1 1h LEAK 60000 1 1h";
    ask_ok(&mut con, policy);
    for n in 0..50 {
        let reserve = format!(r#"RL.RESERVE id:{n} 1h k "{limit} 1000""#);
        assert_eq!(ask::<Reserved>(&mut con, &reserve).0, 1);
    }
    for settled in 0..50 {
        match settled {
            10 => {
                let dump: Vec<u8> = redis::cmd("DUMP").arg("k").query(&mut con).unwrap();
                let mut restore = redis::cmd("RESTORE");
                restore.arg("k").arg(3_600_000).arg(dump).arg("REPLACE");
                restore.exec(&mut con).unwrap();
            }
            20 => {
                match appends {
                    true => server.kill(),
                    false => server.shutdown("SAVE"),
                }
                server.start_again();
                con = server.connect();
            }
            _ => {}
        }
        let settle = format!("RL.SETTLE id:{} 1 k 100", settled * step % 50);
        assert_eq!(ask::<Vec<i64>>(&mut con, &settle), [100], "{settled}");
    }
    let peek = format!(r#"RL.PEEK k "{limit} 0""#);
    assert_eq!(ask::<Reply>(&mut con, &peek).2, 60_000 - 50 * 100);
}

#[rstest]
fn keys_are_found_by_position_and_share_a_slot() {
    let node = Server::with(&["cluster-enabled", "yes"]);
    assign_slots(&node, rl_testkit::ALL_SLOTS);
    eventually("the cluster is up", || {
        let info: String = node.run("CLUSTER", &["INFO"]);
        info.contains("cluster_state:ok")
    });
    let mut con = node.connect();
    let line = r#"{a}id 5m {a}k "SLIDE 100 1h 10" {a}l "SLIDE 100 1h 10""#;
    let keys: Vec<String> = ask(&mut con, &format!("COMMAND GETKEYS RL.RESERVE {line}"));
    assert_eq!(keys, ["{a}id", "{a}k", "{a}l"]);
    let keys: Vec<String> = ask(&mut con, "COMMAND GETKEYS RL.SETTLE {a}id 1 {a}k 5");
    assert_eq!(keys, ["{a}id", "{a}k"]);
    for line in [
        r#"RL.RESERVE {b}id 5m {a}k "SLIDE 100 1h""#,
        r#"RL.RESERVE {a}id 5m {a}k "SLIDE 100 1h" {b}k "SLIDE 100 1h""#,
        "RL.SETTLE {b}id 1 {a}k 5",
    ] {
        assert!(
            ask_error(&mut con, line).starts_with("CROSSSLOT "),
            "{line}"
        );
    }
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    // While the slot migrates, a new id would be in two places.
    assert_eq!(
        ask::<Reserved>(&mut con, &format!("RL.RESERVE {line}")).0,
        1
    );
    let slot: i64 = ask(&mut con, "CLUSTER KEYSLOT {a}");
    let other = Server::with(&["cluster-enabled", "yes"]);
    let port = other.port().to_string();
    let _: () = node.run("CLUSTER", &["MEET", "127.0.0.1", &port]);
    let other_id: String = other.run("CLUSTER", &["MYID"]);
    eventually("the nodes have met", || {
        let nodes: String = node.run("CLUSTER", &["NODES"]);
        nodes.contains(&other_id) && !nodes.contains("handshake")
    });
    ask_ok(
        &mut con,
        &format!("CLUSTER SETSLOT {slot} MIGRATING {other_id}"),
    );
    let known: Vec<i64> = ask(&mut con, "RL.SETTLE {a}id 1 {a}k 4");
    assert_eq!(known, [4], "all keys are still here");
    let error = ask_error(&mut con, r#"RL.RESERVE {a}new 5m {a}k "SLIDE 100 1h 10""#);
    assert!(
        error.starts_with("TRYAGAIN") || error.starts_with("ASK"),
        "{error}"
    );
}

#[rstest]
fn a_client_needs_permission_for_the_id_and_every_key(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "ACL SETUSER some on nopass ~id* ~k* +rl.reserve +rl.settle",
    );
    let mut some = server.connect();
    ask_ok(&mut some, "AUTH some x");
    for line in [
        r#"RL.RESERVE other 5m k "SLIDE 100 1h 10""#,
        r#"RL.RESERVE id 5m other "SLIDE 100 1h 10""#,
        r#"RL.RESERVE id 5m k "SLIDE 100 1h 10" other "SLIDE 100 1h 10""#,
        "RL.SETTLE other 1 k 1",
        "RL.SETTLE id 1 other 1",
    ] {
        assert!(ask_error(&mut some, line).starts_with("NOPERM"), "{line}");
    }
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    let line = r#"RL.RESERVE id 5m k "SLIDE 100 1h 10""#;
    assert_eq!(ask::<Reserved>(&mut some, line).0, 1);
    assert_eq!(ask::<Vec<i64>>(&mut some, "RL.SETTLE id 1 k 1"), [1]);
}

/// What was reserved stays reserved, even if the limits are gone when the call is repeated.
#[rstest]
fn a_call_is_repeated_after_its_limits_are_gone() {
    let server = Server::start();
    let mut con = server.connect();
    let _: () = ask(&mut con, "RL.POLICY SET p SLIDE 10 1m");
    let reserve = r#"RL.RESERVE id 5m pk "POLICY p 5" k "SLIDE 10 1m 5""#;
    let first: Value = ask(&mut con, reserve);
    let _: i64 = ask(&mut con, "RL.POLICY DEL p");
    let _: i64 = ask(&mut con, "DEL k");
    let _: () = ask(&mut con, "SET k text");
    let again: Vec<Value> = ask(&mut con, reserve);
    assert_eq!(again[0], Value::Int(1), "{first:?}");
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.SETTLE id 1 pk 2"), [2]);
    let settled = rl_testkit::try_ask::<Value>(&mut con, reserve).unwrap_err();
    assert!(settled.to_string().contains("reservation is settled"));
}
