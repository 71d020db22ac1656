//! FIXED by the calendar, and OFFSET: on a server, in every command that takes a limit. See `calendar.rs` in the core for
//! every boundary.

use redis::Value;
use rl_testkit::{FrozenServer, MultiReply, Reply, ask, ask_error};
use rstest::rstest;

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;
const HOUR: u64 = 3600 * SECOND;
const DAY: u64 = 24 * HOUR;

/// 2028-02-29, 00:00 UTC, a Tuesday.
const LEAP_DAY: u64 = 1_835_395_200 * SECOND;

/// A limit, and when the window that contains noon of the leap day ends.
#[rstest]
#[case::day("day", LEAP_DAY + DAY)]
#[case::week("Week", LEAP_DAY + 6 * DAY)]
#[case::month("MONTH", LEAP_DAY + DAY)]
#[case::year("year", LEAP_DAY + (366 - 59) * DAY)]
#[case::tokyo("day OFFSET -9h", LEAP_DAY + 15 * HOUR)]
#[case::tokyo_month("month OFFSET -9h", LEAP_DAY + 15 * HOUR)]
#[case::billing_day("month OFFSET 14d", LEAP_DAY + 15 * DAY)]
#[case::sunday("week OFFSET -1d", LEAP_DAY + 5 * DAY)]
#[case::span("1h OFFSET 15m", LEAP_DAY + 12 * HOUR + 15 * 60 * SECOND)]
fn a_window_ends_to_the_millisecond_in_every_command(#[case] window: &str, #[case] end_us: u64) {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let noon = LEAP_DAY + 12 * HOUR;
    let (window, offset) = match window.split_once(" OFFSET ") {
        Some((window, offset)) => (window, format!(" OFFSET {offset}")),
        None => (window, String::new()),
    };
    let _: () = ask(
        &mut con,
        &format!("RL.POLICY SET p FIXED 5 {window}{offset}"),
    );
    let _: () = ask(
        &mut con,
        &format!("RL.POLICY SET two SLIDE 9 1d FIXED 5 {window}{offset} COST 5"),
    );
    let direct = format!("RL.FIXED k 5 {window} 5{offset}");
    let spec = format!("FIXED 5 {window} 5{offset}");
    let left_ms = ((end_us - noon) / MS) as i64;

    frozen.set(noon);
    let first: Reply = ask(&mut con, &direct);
    assert_eq!(first, (1, 5, 0, 0, left_ms));
    let denied: Reply = ask(&mut con, &direct);
    assert_eq!(denied, (0, 5, 0, left_ms, left_ms));
    let peeked: Reply = ask(&mut con, &format!("RL.PEEK k \"{spec}\""));
    assert_eq!(peeked, denied);
    let multi: MultiReply = ask(&mut con, &format!("RL.MULTI m \"{spec}\" k \"{spec}\""));
    assert_eq!((multi.0, multi.1), (0, left_ms));
    let multi: MultiReply = ask(&mut con, &format!("RL.MULTI m \"{spec}\""));
    assert_eq!((multi.0, &multi.2[0]), (1, &first));
    let by_policy: Vec<i64> = ask(&mut con, "RL.CHECK c p 5");
    assert_eq!(by_policy, [1, 5, 0, 0, left_ms, 0]);
    let several: Vec<i64> = ask(&mut con, "RL.CHECK s two");
    assert_eq!((several[0], several[2], several[5]), (1, 0, 1));
    let several: Vec<i64> = ask(&mut con, "RL.CHECK s two");
    assert_eq!((several[0], several[3], several[5]), (0, left_ms, 1));
    // Before 7.0 the expiry is computed from two readings of a clock.
    let ends_at = frozen.server.expire_at_ms("k");
    assert!((ends_at - (end_us / MS) as i64).abs() <= 2, "{ends_at}");

    // One millisecond before the end, and at the end.
    frozen.set(end_us - MS);
    for line in [
        direct.clone(),
        "RL.CHECK c p 5".to_owned(),
        "RL.CHECK s two".to_owned(),
    ] {
        let reply: Vec<i64> = ask(&mut con, &line);
        assert_eq!((reply[0], reply[3]), (0, 1), "{line}");
    }
    frozen.set(end_us);
    for line in [
        direct,
        "RL.CHECK c p 5".to_owned(),
        "RL.CHECK s two".to_owned(),
    ] {
        let reply: Vec<i64> = ask(&mut con, &line);
        assert_eq!(reply[0], 1, "{line}");
    }
}

#[rstest]
fn a_step_over_a_boundary_keeps_the_count_backward_and_ends_it_forward() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let march = LEAP_DAY + DAY;
    let mut call = |now_us: u64| {
        frozen.set(now_us);
        let reply: Reply = ask(&mut con, "RL.FIXED k 5 month 5");
        (reply.0, reply.3)
    };
    assert_eq!(call(march), (1, 0));
    // Back into February: what March counted counts there, for as long as February lasts.
    assert_eq!(call(march - 10 * SECOND), (0, 10_000));
    assert_eq!(call(march - MS), (0, 1));
    assert_eq!(call(march), (1, 0));
}

#[rstest]
fn a_changed_window_or_offset_keeps_the_count() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    frozen.set(LEAP_DAY + 12 * HOUR);
    for (line, left) in [
        ("RL.FIXED k 100 1d 10", 90),
        ("RL.FIXED k 100 day 10", 80),
        ("RL.FIXED k 100 month 10", 70),
        ("RL.FIXED k 100 month 10 OFFSET 14d", 60),
        ("RL.FIXED k 100 year 10 OFFSET -9h PEEK", 50),
        ("RL.FIXED k 100 year 10 PEEK OFFSET -9h", 50),
        ("RL.FIXED k 100 year 10 offset -9h", 50),
    ] {
        let reply: Reply = ask(&mut con, line);
        assert_eq!((reply.0, reply.2), (1, left), "{line}");
    }
    // A policy that changes its window, too.
    let mut remaining = |limits: &str| {
        let _: () = ask(&mut con, &format!("RL.POLICY SET p {limits}"));
        ask::<Vec<i64>>(&mut con, "RL.CHECK c p")[2]
    };
    assert_eq!(remaining("FIXED 100 month"), 99);
    assert_eq!(remaining("FIXED 100 month OFFSET 3d"), 98);
    assert_eq!(remaining("FIXED 100 week"), 97);
    assert_eq!(remaining("SLIDE 1000 1h FIXED 100 week"), 96);
}

#[rstest]
fn limits_are_shown_as_they_were_written() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    frozen.set(LEAP_DAY + 12 * HOUR);
    let _: () = ask(
        &mut con,
        "RL.POLICY SET p fixed 10 MONTH offset -32400 FIXED 3 week COST 1",
    );
    let json: String = ask(&mut con, "RL.POLICY DUMP");
    assert!(json.contains("FIXED 10 month OFFSET -9h"), "{json}");
    assert!(json.contains("FIXED 3 week COST 1"), "{json}");
    let mut load = redis::cmd("RL.POLICY");
    let _: Value = load.arg("LOAD").arg(&json).query(&mut con).unwrap();
    assert_eq!(ask::<String>(&mut con, "RL.POLICY DUMP"), json);
    let _: () = ask(&mut con, "RL.OVERRIDE SET k p FIXED 20 year OFFSET 1d");
    let overrides = format!("{:?}", ask::<Value>(&mut con, "RL.OVERRIDE GET k"));
    assert!(overrides.contains("FIXED 20 year OFFSET 1d"), "{overrides}");
    let by_override: Vec<i64> = ask(&mut con, "RL.CHECK k p");
    assert_eq!((by_override[0], by_override[1]), (1, 20));

    let _: Reply = ask(&mut con, "RL.FIXED m 10 month 4 OFFSET -9h");
    let fields: Vec<Value> = ask(&mut con, "RL.INSPECT m");
    let number = |name: &str| {
        let at = fields
            .iter()
            .position(|field| *field == Value::BulkString(name.into()));
        let at = at.unwrap_or_else(|| panic!("{name} is missing: {fields:?}"));
        match fields[at + 1] {
            Value::Int(number) => number as u64,
            ref other => panic!("{name}: {other:?}"),
        }
    };
    let start_us = LEAP_DAY - 28 * DAY - 9 * HOUR;
    assert_eq!(number("window_started_at_ms"), start_us / MS);
    assert_eq!(number("window_ends_at_ms"), (start_us + 29 * DAY) / MS);
    assert_eq!(number("window_ms"), 29 * DAY / MS);
    assert_eq!((number("count"), number("used")), (4, 4));
}

#[rstest]
#[case(
    "RL.FIXED k 1 months",
    "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d), or day, week, month or year"
)]
#[case("RL.FIXED k 1 month 1 OFFSET 28d", OFFSET)]
#[case("RL.FIXED k 1 month 1 OFFSET -28d", OFFSET)]
#[case("RL.FIXED k 1 year 1 OFFSET 365d", OFFSET)]
#[case("RL.FIXED k 1 day 1 OFFSET 1d", OFFSET)]
#[case("RL.FIXED k 1 1h 1 OFFSET", OFFSET)]
#[case("RL.FIXED k 1 1h 1 OFFSET +5m", OFFSET)]
#[case("RL.MULTI k \"FIXED 1 1h OFFSET 60m\"", OFFSET)]
#[case("RL.POLICY SET p FIXED 1 week OFFSET 7d", OFFSET)]
#[case(
    "RL.SLIDE k 1 month",
    "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)"
)]
#[case(
    "RL.EXACT k 1 day",
    "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)"
)]
#[case(
    "RL.BUCKET k 1 1 day",
    "ERR period must be a duration between 1ms and 3650d (ms, s, m, h, d)"
)]
#[case(
    "RL.SLIDE k 1 1h 1 OFFSET 5m",
    "ERR unknown option: use PEEK, FORCE, BRIEF, TIMES n [ATLEAST m], (for SLIDE) PRECISION n or (for FIXED) OFFSET [-]duration, after the cost"
)]
fn a_wrong_window_or_offset_gets_an_error_that_says_what_is_right(
    #[case] line: &str,
    #[case] text: &str,
) {
    let frozen = FrozenServer::start();
    let mut con = frozen.server.connect();
    assert_eq!(ask_error(&mut con, line), text);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
}

const OFFSET: &str = "ERR OFFSET must be given once, a duration (ms, s, m, h, d), also negative, that is shorter than \
                      the window (month: than 28d, year: than 365d)";
