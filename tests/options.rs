//! The options of a call: TIMES, ATLEAST and BRIEF mean the same for every limit and every command.

use redis::{Connection, Value};
use rl_testkit::{
    CheckReply, FrozenServer, MultiReply, NOON_US, Random, Reply, Server, ask, ask_error, ask_ok,
};
use rstest::{fixture, rstest};

const NEVER: i64 = -1;
const BRIEF_NEVER: i64 = -(1 << 53);

#[fixture]
fn server() -> Server {
    Server::start()
}

#[rstest]
#[case::slide("RL.SLIDE k 10 60")]
#[case::precise("RL.SLIDE k 10 60 PRECISION 6")]
#[case::bucket("RL.BUCKET k 10 1 60")]
#[case::fixed("RL.FIXED k 10 3650d")]
#[case::exact("RL.EXACT k 10 60")]
#[case::leak("RL.LEAK k 10 1 60")]
#[case::policy("RL.CHECK k ten")]
fn times_charges_all_of_the_calls_or_none(server: Server, #[case] call: &str) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET ten SLIDE 10 60 BUCKET 200 1 60 COST 2",
    );
    let mut with = |options: &str| -> Vec<i64> { ask(&mut con, &format!("{call}{options}")) };
    // Not the reset: the clock goes on between the two calls.
    let peeked = with(" PEEK TIMES 4");
    assert_eq!(peeked[..4], [4, 10, 6, 0]);
    let four = with(" TIMES 4");
    assert_eq!(four[..4], [4, 10, 6, 0]);
    let denied = with(" TIMES 7");
    assert_eq!(denied[..3], [0, 10, 6], "a denial charges nothing");
    assert!(denied[3] > 0);
    let never = with(" TIMES 11");
    assert_eq!(never[..4], [0, 10, 6, NEVER]);
    assert_eq!(with(" ATLEAST 7 TIMES 9")[..3], [0, 10, 6]);
    assert_eq!(with(" ATLEAST 11 TIMES 12")[3], NEVER);
    let some = with(" TIMES 64 ATLEAST 1");
    assert_eq!(some[..3], [6, 10, 0]);
    let (denied, single) = (with(" TIMES 64 ATLEAST 1"), with(" PEEK"));
    assert_eq!(denied[..3], [0, 10, 0]);
    assert!(
        denied[3].abs_diff(single[3]) <= 20_000,
        "{denied:?} {single:?}"
    );
    let forced = with(" FORCE TIMES 3");
    assert_eq!(forced[..3], [3, 10, 0]);
}

#[rstest]
fn a_call_times_one_replies_like_the_call(server: Server) {
    let mut con = server.connect();
    let one: Reply = ask(&mut con, "RL.SLIDE k 10 60 3 TIMES 1");
    let another: Reply = ask(&mut con, "RL.SLIDE l 10 60 3");
    assert_eq!(one, another);
}

#[rstest]
fn the_first_of_several_queued_calls_waits_the_least(server: Server) {
    let mut con = server.connect();
    let queued: Reply = ask(&mut con, "RL.LEAK k 10 1 1000s 1 TIMES 4");
    assert_eq!(queued, (4, 10, 6, 0, 4_000_000));
    let (allowed, _, remaining, delay, _): Reply = ask(&mut con, "RL.LEAK k 10 1 1000s 1 TIMES 2");
    assert_eq!((allowed, remaining), (2, 4));
    assert!((3_900_000..=4_000_000).contains(&delay), "{delay}");
    let brief: i64 = ask(&mut con, "RL.LEAK k 10 1 1000s BRIEF");
    assert!((5_900_000..=6_000_000).contains(&brief), "{brief}");
    let brief: i64 = ask(&mut con, "RL.LEAK k 10 1 1000s 4 BRIEF");
    assert!((-1_000_000..=-900_000).contains(&brief), "{brief}");
}

#[rstest]
fn limits_that_fix_their_cost_are_charged_it_for_each_call(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET llm SLIDE 10 1m COST 2 SLIDE 1000 1m",
    );
    let reply: CheckReply = ask(&mut con, "RL.CHECK k llm 100 TIMES 3");
    assert_eq!((reply.0, reply.1, reply.2, reply.5), (3, 10, 4, 0));
    // Two more calls fit the first limit, seven the second.
    let reply: CheckReply = ask(&mut con, "RL.CHECK k llm 100 TIMES 9 ATLEAST 2");
    assert_eq!((reply.0, reply.1, reply.2, reply.5), (2, 10, 0, 0));
    let reply: CheckReply = ask(&mut con, "RL.CHECK k llm 100 TIMES 9 ATLEAST 2");
    assert_eq!((reply.0, reply.2, reply.5), (0, 0, 0));
    let reply: CheckReply = ask(&mut con, "RL.CHECK k llm 0 TIMES 1000000");
    assert_eq!(
        (reply.0, reply.2),
        (1_000_000, 0),
        "a cost of 0 charges nothing"
    );
}

#[rstest]
fn several_limits_charge_as_many_calls_as_all_of_them_allow(server: Server) {
    let mut con = server.connect();
    let call = r#"RL.MULTI a "TIMES 8 ATLEAST 2 SLIDE 10 60" b "FIXED 12 3650d 2" c "SHADOW FIXED 1 3650d""#;
    let (allowed, retry, inner): MultiReply = ask(&mut con, call);
    assert_eq!((allowed, retry), (6, 0));
    let shown = |inner: &[Reply]| inner.iter().map(|one| (one.0, one.2)).collect::<Vec<_>>();
    // Alone, the first would have allowed all 8; a shadow limit always does, and has no room for 6.
    assert_eq!(shown(&inner), [(8, 4), (6, 0), (8, 1)]);
    let (allowed, retry, inner): MultiReply = ask(&mut con, call);
    assert_eq!((allowed, inner[1].3), (0, retry));
    assert_eq!(
        shown(&inner),
        [(4, 4), (0, 0), (8, 1)],
        "nothing is charged"
    );
    let without = call
        .replace(" ATLEAST 2", "")
        .replace("TIMES 8", "PEEK TIMES 4");
    let (allowed, _, inner): MultiReply = ask(&mut con, &without);
    assert_eq!((allowed, shown(&inner)), (0, vec![(4, 4), (0, 0), (4, 1)]));
    let forced: MultiReply = ask(&mut con, &without.replace("PEEK", "FORCE"));
    assert_eq!(
        (forced.0, shown(&forced.2)),
        (4, vec![(4, 0), (4, 0), (4, 0)])
    );
}

#[rstest]
fn an_override_decides_about_all_of_the_calls(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 10 60");
    ask_ok(&mut con, "RL.OVERRIDE SET vip p ALLOW");
    ask_ok(&mut con, "RL.OVERRIDE SET bad p BLOCK");
    let allowed: CheckReply = ask(&mut con, "RL.CHECK vip p 1 TIMES 50 ATLEAST 2");
    assert_eq!(allowed, (50, 10, 10, 0, 0, -1));
    assert_eq!(ask::<i64>(&mut con, "RL.CHECK vip p 1 TIMES 50 BRIEF"), 10);
    let blocked: CheckReply = ask(&mut con, "RL.CHECK bad p 1 TIMES 50 ATLEAST 2");
    assert_eq!(blocked, (0, 0, 0, NEVER, 0, -1));
    assert_eq!(ask::<i64>(&mut con, "RL.CHECK bad p BRIEF"), BRIEF_NEVER);
}

#[rstest]
fn a_shadow_policy_allows_all_of_the_calls(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET soft SLIDE 10 60 SHADOW");
    let reply: CheckReply = ask(&mut con, "RL.CHECK k soft 1 TIMES 11 ATLEAST 2");
    assert_eq!((reply.0, reply.2), (11, 10));
    let reply: CheckReply = ask(&mut con, "RL.CHECK k soft 1 TIMES 4");
    assert_eq!((reply.0, reply.2), (4, 6));
}

#[rstest]
fn several_calls_in_one_step_are_one_decision(server: Server) {
    let mut con = server.connect();
    ask::<Value>(&mut con, "RL.SLIDE k 10 60 1 TIMES 8 ATLEAST 2");
    ask::<Value>(&mut con, "RL.SLIDE k 10 60 2 TIMES 4 ATLEAST 3");
    ask::<Value>(&mut con, "RL.SLIDE k 10 60 2 TIMES 4");
    let totals = |field: &str| server.info_number("rl", field);
    assert_eq!((totals("rl_allowed"), totals("rl_denied")), (1, 2));
    let entries: Vec<std::collections::HashMap<String, Value>> = ask(&mut con, "RL.AUDIT GET");
    let costs: Vec<i64> = entries
        .iter()
        .map(|entry| redis::from_redis_value(entry["cost"].clone()).unwrap())
        .collect();
    assert_eq!(costs, [8, 6], "what was asked: 4 calls, at least 3 calls");
}

#[rstest]
#[case(
    "RL.SLIDE k 1 60 1 TIMES",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 TIMES 0",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 TIMES x",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 TIMES PEEK",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 TIMES 9007199254740992",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 TIMES 2 TIMES 2",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.CHECK k p 1 TIMES",
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    r#"RL.MULTI k "TIMES SLIDE 1 60""#,
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    r#"RL.FIRST k "TIMES SLIDE 1 60""#,
    "ERR TIMES must be given once, an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 1 ATLEAST 1",
    "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
)]
#[case(
    "RL.SLIDE k 1 60 1 TIMES 2 ATLEAST",
    "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
)]
#[case(
    "RL.SLIDE k 1 60 1 TIMES 2 ATLEAST 0",
    "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
)]
#[case(
    "RL.SLIDE k 1 60 1 TIMES 2 ATLEAST 3",
    "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
)]
#[case(
    "RL.SLIDE k 1 60 1 TIMES 2 ATLEAST 1 ATLEAST 1",
    "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
)]
#[case(
    r#"RL.MULTI k "ATLEAST 1 SLIDE 1 60""#,
    "ERR ATLEAST must be given once, with TIMES n, an integer between 1 and n"
)]
#[case(
    "RL.SLIDE k 1 60 1 FORCE TIMES 2 ATLEAST 1",
    "ERR ATLEAST excludes FORCE and BRIEF"
)]
#[case(
    "RL.SLIDE k 1 60 1 TIMES 2 ATLEAST 1 BRIEF",
    "ERR ATLEAST excludes FORCE and BRIEF"
)]
#[case(
    r#"RL.FIRST k "BRIEF TIMES 2 ATLEAST 1 SLIDE 1 60""#,
    "ERR ATLEAST excludes FORCE and BRIEF"
)]
#[case(
    "RL.SLIDE k 1 60 1 BRIEF PEEK FORCE",
    "ERR PEEK and FORCE exclude each other"
)]
#[case(
    "RL.LEASE k 1 60 h 1 TIMES 1",
    "ERR TIMES does not apply to a LEASE: the same holder calling again renews it"
)]
#[case(
    r#"RL.MULTI a "TIMES 2 SLIDE 1 60" k "LEASE 1 60 h""#,
    "ERR TIMES does not apply to a LEASE: the same holder calling again renews it"
)]
#[case(
    "RL.SLIDE k 1 60 4503599627370496 TIMES 2",
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    "RL.SLIDE k 1 60 9007199254740991 TIMES 9007199254740991",
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    "RL.CHECK k p 4503599627370496 TIMES 2",
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    "RL.CHECK k p 1 TIMES 4503599627370496",
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    "RL.CHECK k p 1 TIMES 4503599627370496 ATLEAST 1",
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    r#"RL.MULTI a "TIMES 2 SLIDE 1 60" k "SLIDE 1 60 4503599627370496""#,
    "ERR the cost of all TIMES n calls must be at most 9007199254740991"
)]
#[case(
    r#"RL.MULTI a "SLIDE 1 60" k "TIMES 2 SLIDE 1 60""#,
    "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\""
)]
#[case(
    r#"RL.MULTI a "SHADOW TIMES 2 SLIDE 1 60""#,
    "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\""
)]
#[case(
    r#"RL.MULTI a "SLIDE 1 60 1 BRIEF""#,
    "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\""
)]
#[case(
    r#"RL.PEEK k "BRIEF SLIDE 1 60""#,
    "ERR RL.PEEK accepts no PEEK, FORCE, BRIEF, TIMES or ATLEAST: it never charges"
)]
#[case(
    r#"RL.PEEK k "TIMES 2 SLIDE 1 60""#,
    "ERR RL.PEEK accepts no PEEK, FORCE, BRIEF, TIMES or ATLEAST: it never charges"
)]
fn a_wrong_option_changes_nothing(server: Server, #[case] call: &str, #[case] expected: &str) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 1 60 COST 2 SLIDE 1 60");
    let changes = || server.info_number("persistence", "rdb_changes_since_last_save");
    let before = changes();
    assert_eq!(ask_error(&mut con, call), expected);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(changes(), before);
}

/// The reply with BRIEF, from the long reply of the same call.
fn brief_of(call: &str, long: &Value) -> i64 {
    let denied = |retry: i64| match retry {
        NEVER => BRIEF_NEVER,
        retry => -retry,
    };
    if call.starts_with("RL.MULTI") {
        let (allowed, retry, inner): MultiReply = redis::from_redis_value(long.clone()).unwrap();
        return match allowed {
            0 => denied(retry),
            _ => inner.iter().map(|one| one.2).min().unwrap(),
        };
    }
    let five: Vec<i64> = redis::from_redis_value(long.clone()).unwrap();
    match five[0] {
        0 => denied(five[3]),
        _ if call.starts_with("RL.LEAK") || call.contains(" queue ") => five[3],
        // RL.FIRST: the third of its limits queues.
        _ if call.starts_with("RL.FIRST") && five[5] == 2 => five[3],
        _ => five[2],
    }
}

#[rstest]
fn a_brief_reply_follows_from_the_long_one() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 20 10s BUCKET 30 7 3s COST 2 LEAK 40 5 1s",
    );
    ask_ok(&mut con, "RL.POLICY SET soft FIXED 3 10s SHADOW");
    ask_ok(&mut con, "RL.POLICY SET queue LEAK 10 3 1s");
    ask_ok(&mut con, "RL.OVERRIDE SET c1 p ALLOW");
    ask_ok(&mut con, "RL.OVERRIDE SET c2 p BLOCK EX 20s");
    let mut random = Random(7);
    let (mut denied, mut allowed) = (0, 0);
    for step in 1..=400 {
        frozen.set(NOON_US + step * 31_000);
        for _ in 0..5 {
            let (call, option) = random_call(&mut random);
            let peek = |option: &str| call.replace("{}", option).trim_end().to_owned();
            let long: Value = ask(&mut con, &peek("PEEK "));
            let brief: i64 = ask(&mut con, &peek("BRIEF PEEK "));
            assert_eq!(brief, brief_of(&call, &long), "{call}: {long:?}");
            // The call itself replies what was predicted.
            let made: i64 = ask(&mut con, &peek(&format!("BRIEF {option}")));
            if option.is_empty() {
                assert_eq!(made, brief, "{call}");
            }
            if brief < 0 { denied += 1 } else { allowed += 1 }
        }
    }
    assert!(denied > 200 && allowed > 200, "{denied} {allowed}");
}

/// A call with a place for options, and an option.
fn random_call(random: &mut Random) -> (String, &'static str) {
    let (n, cost) = (random.below(3), random.below(8) >> random.below(3));
    let times = match random.below(3) {
        0 => format!(" TIMES {}", 1 + random.below(4)),
        _ => String::new(),
    };
    // Options may be in any order; a trailing one-limit command takes its options at the end.
    let single = |head: String| format!("{head} {cost}{times} {{}}");
    let call = match random.below(10) {
        0 => single(format!("RL.SLIDE s{n} 10 1s")),
        1 => single(format!("RL.SLIDE p{n} 10 1s PRECISION 5")).replace(
            &format!(" PRECISION 5 {cost}"),
            &format!(" {cost} PRECISION 5"),
        ),
        2 => single(format!("RL.BUCKET b{n} 10 3 1s")),
        3 => single(format!("RL.FIXED f{n} 10 1s")),
        4 => single(format!("RL.EXACT x{n} 10 1s")),
        5 => single(format!("RL.LEAK l{n} 10 3 1s")),
        6 => format!("RL.LEASE h{n} 10 700ms h{} {cost} {{}}", random.below(9)),
        7 => single(format!(
            "RL.CHECK c{n} {}",
            ["p", "soft", "queue"][random.below(3) as usize]
        )),
        8 => format!(
            "RL.MULTI s{n} \"{{}}SLIDE 10 1s {cost}\" b{n} \"BUCKET 10 3 1s\" q{n} \"POLICY soft\" l{n} \"LEAK 10 3 1s\""
        ),
        _ => format!(
            "RL.FIRST s{n} \"{{}}SLIDE 10 1s {cost}\" b{n} \"BUCKET 10 3 1s\" l{n} \"LEAK 10 3 1s 3\""
        ),
    };
    (call, ["", "", "", "FORCE "][random.below(4) as usize])
}

/// A call that checks one LEAK replies its delay, whatever command makes it and whether a policy names it.
#[rstest]
#[case("RL.LEAK k 10 1 1000s 1 BRIEF")]
#[case("RL.CHECK k queue 1 BRIEF")]
#[case("RL.CHECK k fixed 9 BRIEF")]
#[case(r#"RL.MULTI k "BRIEF LEAK 10 1 1000s""#)]
#[case(r#"RL.MULTI k "BRIEF POLICY queue""#)]
#[case(r#"RL.FIRST full "BRIEF SLIDE 0 60" k "LEAK 10 1 1000s""#)]
#[case(r#"RL.FIRST full "BRIEF SLIDE 0 60" k "POLICY queue""#)]
fn brief_replies_the_delay_of_one_queue(server: Server, #[case] call: &str) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET queue LEAK 10 1 1000s");
    ask_ok(&mut con, "RL.POLICY SET fixed LEAK 10 1 1000s COST 1");
    for n in 0..10 {
        let delay: i64 = ask(&mut con, call);
        let most = n * 1_000_000;
        assert!(
            (most - 100_000..=most).contains(&delay) && delay >= 0,
            "{n}: {delay}"
        );
    }
    let denied: i64 = ask(&mut con, call);
    assert!((-1_000_000..-900_000).contains(&denied), "{denied}");
    // An override that allows every call lets it proceed at once.
    ask_ok(&mut con, "RL.OVERRIDE SET vip queue ALLOW");
    assert_eq!(ask::<i64>(&mut con, "RL.CHECK vip queue BRIEF"), 0);
}

#[rstest]
fn brief_replies_the_lowest_remaining_of_several_limits(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET several LEAK 10 1 1000s SLIDE 100 1h",
    );
    for call in [
        "RL.CHECK a several 1 BRIEF",
        r#"RL.MULTI b "BRIEF LEAK 10 1 1000s" c "SLIDE 100 1h""#,
        r#"RL.FIRST d "BRIEF POLICY several""#,
    ] {
        let replies = [9, 8].map(|_| ask::<i64>(&mut con, call));
        assert_eq!(replies, [9, 8], "{call}");
    }
}

/// TIMES and ATLEAST keep the retry promise: the same call is denied a millisecond before its wait is over, and allowed
/// when it is.
#[rstest]
#[case::slide("RL.SLIDE k 10 60s 3")]
#[case::precise("RL.SLIDE k 10 60s 3 PRECISION 6")]
#[case::bucket("RL.BUCKET k 10 7 60s 3")]
#[case::fixed("RL.FIXED k 10 60s 3")]
#[case::exact("RL.EXACT k 10 60s 3")]
#[case::leak("RL.LEAK k 10 7 60s 3")]
#[case::policy("RL.CHECK k p 3")]
fn several_calls_are_allowed_after_their_wait(#[case] call: &str) {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 10 60s BUCKET 9 1 10s COST 2",
    );
    let charged: Vec<i64> = ask(&mut con, &format!("{call} TIMES 2"));
    assert_eq!(charged[0], 2);
    frozen.set(NOON_US + 3_000_000);
    for options in [" TIMES 3", " TIMES 3 ATLEAST 2"] {
        let wanted = |con: &mut Connection, peek: &str| -> Vec<i64> {
            ask(con, &format!("{call}{options}{peek}"))
        };
        frozen.set(NOON_US + 3_000_000);
        let denied = wanted(&mut con, "");
        assert_eq!(denied[0], 0, "{denied:?}");
        let wait = denied[3] as u64;
        frozen.set(NOON_US + 3_000_000 + wait * 1000 - 1000);
        assert_eq!(wanted(&mut con, " PEEK")[0], 0, "1 ms before {wait} ms");
        frozen.set(NOON_US + 3_000_000 + wait * 1000);
        assert!(wanted(&mut con, " PEEK")[0] >= 2, "after {wait} ms");
    }
}

/// Otherwise the last one would apply, and the caller would never know of the other.
#[rstest]
#[case("RL.SLIDE k 1 60 PRECISION 2 PRECISION 3", "PRECISION")]
#[case("RL.FIXED k 1 day OFFSET 0 PEEK OFFSET 1h", "OFFSET")]
#[case("RL.SLIDE k 1 60 TIMES 2 TIMES 3", "TIMES")]
#[case("RL.CHECK k p TIMES 2 ATLEAST 1 ATLEAST 2", "ATLEAST")]
#[case("RL.PEEK k \"FIXED 1 day OFFSET 1h OFFSET 2h\"", "OFFSET")]
#[case("RL.MULTI k \"SLIDE 1 60 1 PRECISION 2 PRECISION 3\"", "PRECISION")]
#[case(
    "RL.FIRST k \"SLIDE 1 60\" l \"FIXED 1 day OFFSET 1h OFFSET 2h\"",
    "OFFSET"
)]
#[case(
    "RL.RESERVE id 60 k \"SLIDE 1 60 PRECISION 2 PRECISION 3\"",
    "PRECISION"
)]
#[case("RL.RESERVE id 60 k \"TIMES 2 TIMES 3 SLIDE 1 60\"", "TIMES")]
#[case("RL.POLICY SET q SLIDE 1 60 PRECISION 2 PRECISION 3", "PRECISION")]
#[case("RL.POLICY SET q SLIDE 1 60 COST 2 COST 3", "COST of a limit")]
#[case("RL.OVERRIDE SET k p FIXED 1 day OFFSET 1h OFFSET 2h", "OFFSET")]
fn an_option_is_given_once(server: Server, #[case] line: &str, #[case] option: &str) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 10 60");
    let text = ask_error(&mut con, line);
    let expected = format!("ERR {option} must be given once, ");
    assert!(text.starts_with(&expected), "{line}: {text}");
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
}

#[rstest]
fn an_option_that_a_limit_does_not_have_gets_an_error_that_lists_those_it_has(server: Server) {
    let mut con = server.connect();
    for line in [
        "RL.POLICY SET p SLIDE 10 1m OFFSET 1s",
        "RL.POLICY SET p SLIDE 10 1m COST 2 BUCKET 5 1 1s PRECISION 2",
        "RL.OVERRIDE SET k p EXACT 10 1m OFFSET 1s",
    ] {
        assert_eq!(
            ask_error(&mut con, line),
            "ERR this limit has no such option: SLIDE accepts PRECISION n, FIXED accepts OFFSET \
             [-]duration, and every limit COST n",
            "{line}"
        );
    }
}
