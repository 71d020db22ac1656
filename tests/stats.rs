//! Statistics: totals, the hottest keys and the latest denials, in bounded memory.

use std::collections::HashMap;

use redis::{Connection, Value, from_redis_value};
use rl_testkit::{FrozenServer, NOON_US};
use rl_testkit::{
    MultiReply, Random, Reply, Server, ask, ask_error, eventually, random_calls, try_ask,
};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

type Hot = (String, i64, i64);
type Map = HashMap<String, Value>;

const KINDS: [&str; 5] = [
    "allowed",
    "denied",
    "shadow_denied",
    "forced",
    "refunded_units",
];

fn stats(con: &mut Connection) -> HashMap<String, i64> {
    ask(con, "RL.STATS")
}

/// All five totals, in the order of [`KINDS`].
fn totals(con: &mut Connection) -> [i64; 5] {
    let stats = stats(con);
    KINDS.map(|kind| stats[kind])
}

fn per_minute(con: &mut Connection) -> [i64; 5] {
    let stats = stats(con);
    KINDS.map(|kind| stats[&format!("{kind}_per_minute")])
}

fn audit(con: &mut Connection, count: usize) -> Vec<Map> {
    ask(con, &format!("RL.AUDIT GET {count}"))
}

fn text(entry: &Map, field: &str) -> String {
    from_redis_value(entry[field].clone()).unwrap()
}

fn number(entry: &Map, field: &str) -> i64 {
    from_redis_value(entry[field].clone()).unwrap()
}

fn ids(entries: &[Map]) -> Vec<i64> {
    entries.iter().map(|entry| number(entry, "id")).collect()
}

// HELP

#[rstest]
#[case("RL.STATS", "RL.STATS [policy]")]
#[case("rl.top", "RL.TOP [COUNT count] [BY CHECKS | DENIALS]")]
#[case("RL.AUDIT", "RL.AUDIT (GET [count] | LEN | RESET | HELP)")]
fn help_shows_the_syntax(server: Server, #[case] command: &str, #[case] syntax: &str) {
    let mut con = server.connect();
    for help in ["HELP", "help"] {
        let lines: Vec<String> = ask(&mut con, &format!("{command} {help}"));
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], syntax);
        assert!(lines[1].starts_with("    ") && lines[1].ends_with('.'));
    }
}

#[rstest]
fn a_policy_may_be_named_help(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET help SLIDE 1 1h");
    let stats: HashMap<String, i64> = ask(&mut con, "RL.STATS help");
    assert_eq!(stats["allowed"], 0);
}

// RL.STATS

/// A refund names a key and no policy.
#[rstest]
fn refunds_are_counted_for_the_server_only(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 9 1h");
    let _: Value = ask(&mut con, "RL.CHECK k p 5");
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 2"), 2);
    assert_eq!(totals(&mut con), [1, 0, 0, 0, 2]);
    let of_policy: HashMap<String, i64> = ask(&mut con, "RL.STATS p");
    let mut names: Vec<_> = of_policy.keys().map(String::as_str).collect();
    names.sort_unstable();
    let expected = [
        "allowed",
        "allowed_per_minute",
        "counting_started_at_ms",
        "denied",
        "denied_per_minute",
        "forced",
        "forced_per_minute",
        "shadow_denied",
        "shadow_denied_per_minute",
    ];
    assert_eq!(names, expected);
}

#[rstest]
fn every_reply_counts_as_allowed_denied_or_forced(server: Server) {
    let mut con = server.connect();
    let mut expected = [0; 5];
    for spec in [
        "SLIDE s 2 1h",
        "SLIDE p 2 1h PRECISION 4",
        "BUCKET b 2 1 1h",
        "FIXED f 2 3650d",
        "EXACT x 2 1h",
        "LEAK l 2 1 1h",
    ] {
        let (line, precision) = match spec.split_once(" PRECISION") {
            Some((line, n)) => (line, format!(" PRECISION{n}")),
            None => (spec, String::new()),
        };
        let mut run = |rest: &str, counts: [i64; 5]| {
            ask::<Reply>(&mut con, &format!("RL.{line} {rest}{precision}"));
            for (total, count) in expected.iter_mut().zip(counts) {
                *total += count;
            }
            assert_eq!(totals(&mut con), expected, "RL.{line} {rest}");
        };
        run("1 PEEK", [0; 5]);
        run("0", [0; 5]);
        run("0 FORCE", [0; 5]);
        run("1", [1, 0, 0, 0, 0]);
        // Within the limit, to its last unit, FORCE changes nothing.
        run("1 FORCE", [1, 0, 0, 0, 0]);
        run("1", [0, 1, 0, 0, 0]);
        run("3", [0, 1, 0, 0, 0]);
        run("1 FORCE", [0, 0, 0, 1, 0]);
        run("1 PEEK", [0; 5]);
    }
    for (line, counts) in [
        ("RL.LEASE h 1 1h a", [1, 0, 0, 0, 0]),
        ("RL.LEASE h 1 1h a", [1, 0, 0, 0, 0]),
        ("RL.LEASE h 1 1h b", [0, 1, 0, 0, 0]),
        ("RL.LEASE h 1 1h b 1 FORCE", [0, 0, 0, 1, 0]),
        (r#"RL.PEEK h "LEASE 1 1h c 1""#, [0; 5]),
        ("RL.RELEASE h a", [0; 5]),
        ("RL.REFUND s 2", [0, 0, 0, 0, 2]),
        ("RL.REFUND s 9", [0, 0, 0, 0, 1]),
        ("RL.REFUND s 9", [0; 5]),
        ("RL.REFUND nobody 9", [0; 5]),
    ] {
        let _: Value = ask(&mut con, line);
        for (total, count) in expected.iter_mut().zip(counts) {
            *total += count;
        }
        assert_eq!(totals(&mut con), expected, "{line}");
    }
    for wrong in ["RL.SLIDE b 2 1h", "RL.SLIDE s 2 0", "RL.REFUND h 1"] {
        ask_error(&mut con, wrong);
    }
    assert_eq!(totals(&mut con), expected, "errors count nothing");
    let info = KINDS.map(|kind| server.info_number("rl", &format!("rl_{kind}")));
    assert_eq!(info, expected);
}

#[rstest]
fn of_several_limits_each_counts_once_and_only_the_denying_one_counts_a_denial(server: Server) {
    let mut con = server.connect();
    let call = r#"RL.MULTI a "SLIDE 5 1h 1" b "BUCKET 2 1 1h 1" c "EXACT 1 1h 1""#;
    assert_eq!(ask::<MultiReply>(&mut con, call).0, 1);
    assert_eq!(totals(&mut con), [3, 0, 0, 0, 0]);
    assert_eq!(ask::<MultiReply>(&mut con, call).0, 0);
    assert_eq!(totals(&mut con), [3, 1, 0, 0, 0], "c alone denied");
    assert_eq!(
        ask::<MultiReply>(&mut con, &call.replace("SLIDE", "PEEK SLIDE")).0,
        0
    );
    assert_eq!(totals(&mut con), [3, 1, 0, 0, 0]);
    assert_eq!(
        ask::<MultiReply>(&mut con, &call.replace("SLIDE", "FORCE SLIDE")).0,
        1
    );
    assert_eq!(totals(&mut con), [5, 1, 0, 1, 0], "c alone was forced");
    assert_eq!(ask::<MultiReply>(&mut con, call).0, 0);
    assert_eq!(totals(&mut con), [5, 3, 0, 1, 0], "b and c denied");
    let denied: Vec<Hot> = ask(&mut con, "RL.TOP BY denials");
    assert_eq!(denied, [("c".into(), 4, 2), ("b".into(), 3, 1)]);
    let keys: Vec<_> = audit(&mut con, 9).iter().map(|e| text(e, "key")).collect();
    assert_eq!(keys, ["c", "b", "c"]);
}

#[rstest]
fn cl_throttle_is_counted_too() {
    let server = Server::with_module_args(&["redis-cell-compat", "yes"]);
    let mut con = server.connect();
    for _ in 0..3 {
        let _: Reply = ask(&mut con, "CL.THROTTLE k 1 1 60");
    }
    let _: Reply = ask(&mut con, "CL.THROTTLE k 1 1 60 0");
    assert_eq!(totals(&mut con), [2, 1, 0, 0, 0]);
    let entry = &audit(&mut con, 1)[0];
    assert_eq!(text(entry, "denied_by"), "BUCKET 2 1 1m");
}

#[rstest]
fn the_last_minute_is_estimated_from_two_counters() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    // Noon is the beginning of a minute.
    let noon = NOON_US - NOON_US % 60_000_000;
    frozen.set(noon + 30_000_000);
    let mut con = frozen.server.connect();
    let _: Reply = ask(&mut con, "RL.SLIDE k 10 1h 10");
    for _ in 0..60 {
        let _: Reply = ask(&mut con, "RL.SLIDE k 10 1h");
    }
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 9"), 9);
    assert_eq!(per_minute(&mut con), [1, 60, 0, 0, 9]);
    frozen.set(noon + 75_000_000);
    assert_eq!(per_minute(&mut con), [0, 45, 0, 0, 6]);
    let _: Reply = ask(&mut con, "RL.SLIDE other 0 1h");
    assert_eq!(per_minute(&mut con), [0, 46, 0, 0, 6]);
    frozen.set(noon + 121_000_000);
    assert_eq!(per_minute(&mut con), [0, 0, 0, 0, 0]);
    frozen.set(noon + 300_000_000);
    assert_eq!(per_minute(&mut con), [0; 5]);
    assert_eq!(totals(&mut con), [1, 61, 0, 0, 9]);
    assert!(stats(&mut con)["counting_started_at_ms"] <= (NOON_US / 1000) as i64 + 5);
}

#[rstest]
fn minutes_go_on_after_the_clock_steps_back() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let noon = NOON_US - NOON_US % 60_000_000;
    let mut con = frozen.server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p FIXED 1000 3650d");
    let of_policy = |con: &mut Connection| -> i64 {
        ask::<HashMap<String, i64>>(con, "RL.STATS p")["allowed_per_minute"]
    };
    frozen.set(noon + 610_000_000);
    let call = |con: &mut Connection, times: usize| {
        for _ in 0..times {
            let _: Value = ask(con, "RL.CHECK k p");
        }
    };
    call(&mut con, 60);
    // Nobody looks before the next calls: they count towards the minute that the clock shows.
    frozen.set(noon + 30_000_000);
    call(&mut con, 6);
    assert_eq!(per_minute(&mut con)[0], 6 + 30);
    assert_eq!(of_policy(&mut con), 6 + 30);
    assert_eq!(
        ask::<Vec<Hot>>(&mut con, "RL.TOP"),
        [("k".into(), 66, 0)],
        "the latest two minutes that were counted"
    );
    frozen.set(noon + 75_000_000);
    assert_eq!((per_minute(&mut con)[0], of_policy(&mut con)), (4, 4));
    // To look is enough to go on as well.
    call(&mut con, 8);
    frozen.set(noon + 15_000_000);
    assert_eq!((per_minute(&mut con)[0], of_policy(&mut con)), (6, 6));
    assert_eq!(totals(&mut con)[0], 74);
}

#[rstest]
fn totals_survive_a_flush_and_reset_with_the_server(mut server: Server) {
    let mut con = server.connect();
    for _ in 0..3 {
        let _: Reply = ask(&mut con, "RL.SLIDE k 1 1h");
    }
    ask::<()>(&mut con, "FLUSHALL");
    assert_eq!(totals(&mut con), [1, 2, 0, 0, 0]);
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 2);
    assert_eq!(ask::<Vec<Hot>>(&mut con, "RL.TOP"), [("k".into(), 3, 2)]);
    let since = stats(&mut con)["counting_started_at_ms"];
    server.shutdown("NOSAVE");
    server.start_again();
    let mut con = server.connect();
    assert_eq!(totals(&mut con), [0; 5]);
    assert!(stats(&mut con)["counting_started_at_ms"] > since);
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 0);
}

#[rstest]
fn replicas_and_loading_count_nothing_again() {
    let mut primary = Server::with(&["appendonly", "yes"]);
    let replica = Server::start();
    replica.follow(&primary);
    let mut random = Random(7);
    random_calls(&mut primary.connect(), &mut random, 5000);
    primary.wait_for(&replica);
    let counted = totals(&mut primary.connect());
    assert!(counted[0] > 1000 && counted[1] > 100 && counted[3] > 10 && counted[4] > 100);
    let mut con = replica.connect();
    assert_eq!(totals(&mut con), [0; 5]);
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 0);
    assert_eq!(ask::<Vec<Hot>>(&mut con, "RL.TOP"), []);
    // Read-only answers count nothing there either; a promoted replica begins to count.
    let _: Reply = ask(&mut con, r#"RL.PEEK s "SLIDE 0 1h 1""#);
    assert_eq!(totals(&mut con), [0; 5]);
    ask::<()>(&mut con, "REPLICAOF NO ONE");
    let _: Reply = ask(&mut con, "RL.SLIDE new 0 1h");
    assert_eq!(totals(&mut con), [0, 1, 0, 0, 0]);
    primary.shutdown("NOSAVE");
    primary.start_again();
    assert_eq!(totals(&mut primary.connect()), [0; 5]);
}

#[rstest]
fn maps_are_maps_in_resp3(server: Server) {
    let mut con = server.connect_resp3();
    let _: Reply = ask(&mut con, "RL.SLIDE k 0 1h");
    let [stats, entries] = ["RL.STATS", "RL.AUDIT GET"].map(|line| ask::<Value>(&mut con, line));
    // Before 7.0 modules cannot reply with maps.
    let can = server.has_command(&["COMMAND", "DOCS", "PING"]);
    assert_eq!(matches!(stats, Value::Map(_)), can, "{stats:?}");
    let Value::Array(entries) = entries else {
        panic!("{entries:?}")
    };
    assert_eq!(matches!(entries[0], Value::Map(_)), can);
    assert_eq!(totals(&mut con), [0, 1, 0, 0, 0]);
    assert_eq!(text(&audit(&mut con, 1)[0], "key"), "k");
}

// RL.TOP

#[rstest]
fn the_hottest_keys_come_first(server: Server) {
    let mut con = server.connect();
    for n in 1..=12 {
        for _ in 0..n {
            let _: Reply = ask(&mut con, &format!("RL.SLIDE key:{n} 8 1h"));
        }
    }
    let _: Reply = ask(&mut con, "RL.SLIDE key:12 8 1h 1 PEEK");
    let by_checks = |n: i64| (format!("key:{n}"), n, (n - 8).max(0));
    let top: Vec<Hot> = ask(&mut con, "RL.TOP");
    assert_eq!(top, (3..=12).rev().map(by_checks).collect::<Vec<_>>());
    let top: Vec<Hot> = ask(&mut con, "RL.TOP COUNT 2");
    assert_eq!(top, [by_checks(12), by_checks(11)]);
    let top: Vec<Hot> = ask(&mut con, "rl.top by DENIALS count 99");
    assert_eq!(top, [12, 11, 10, 9].map(by_checks));
}

#[rstest]
fn keys_are_forgotten_after_two_minutes() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let noon = NOON_US - NOON_US % 60_000_000;
    let mut con = frozen.server.connect();
    let mut at = |seconds: u64, key: &str| -> Vec<Hot> {
        frozen.set(noon + seconds * 1_000_000);
        let _: Reply = ask(&mut con, &format!("RL.SLIDE {key} 0 1h"));
        ask(&mut con, "RL.TOP")
    };
    let hot = |key: &str, n| (key.to_owned(), n, n);
    assert_eq!(at(10, "a"), [hot("a", 1)]);
    assert_eq!(at(70, "a"), [hot("a", 2)]);
    assert_eq!(at(130, "b"), [hot("a", 1), hot("b", 1)]);
    assert_eq!(at(190, "b"), [hot("b", 2)]);
    assert_eq!(at(900, "c"), [hot("c", 1)]);
}

#[rstest]
fn among_many_keys_the_busiest_are_found(server: Server) {
    let mut con = server.connect();
    let mut random = Random(11);
    for _ in 0..50 {
        let mut pipe = redis::pipe();
        for _ in 0..1000 {
            // Every fifth call is for one of ten keys.
            let key = match random.below(5) {
                0 => format!("hot:{}", random.below(10)),
                _ => format!("cold:{}", random.below(1_000_000)),
            };
            pipe.cmd("RL.SLIDE").arg(key).arg(&["0", "1h"]).ignore();
        }
        pipe.exec(&mut con).unwrap();
    }
    for line in ["RL.TOP", "RL.TOP BY denials"] {
        let top: Vec<Hot> = ask(&mut con, line);
        assert_eq!(top.len(), 10);
        for (key, checks, denials) in top {
            assert!(key.starts_with("hot:"), "{key}");
            // About 1000 each.
            assert!((800..1200).contains(&checks), "{key} {checks}");
            assert!((800..=checks).contains(&denials), "{key} {denials}");
        }
    }
}

#[rstest]
fn names_are_bytes_and_long_ones_are_cut(server: Server) {
    let mut con = server.connect();
    let odd = b"\0\xff\r\n key";
    let long = vec![b'x'; 100_000];
    for key in [&odd[..], &long, &long, b""] {
        let mut call = redis::cmd("RL.SLIDE");
        call.arg(key).arg(0).arg("1h").exec(&mut con).unwrap();
    }
    let top: Vec<(Vec<u8>, i64, i64)> = ask(&mut con, "RL.TOP");
    let cut = long[..256].to_vec();
    assert_eq!(
        top,
        [(cut.clone(), 2, 2), (vec![], 1, 1), (odd.to_vec(), 1, 1)]
    );
    let keys = audit(&mut con, 9);
    let keys: Vec<Vec<u8>> = keys
        .iter()
        .map(|entry| from_redis_value(entry["key"].clone()).unwrap())
        .collect();
    assert_eq!(keys, [vec![], cut.clone(), cut, odd.to_vec()]);
}

#[rstest]
fn a_denial_in_shadow_mode_is_not_a_denial(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET dry SLIDE 2 1h SHADOW");
    ask::<()>(&mut con, "RL.POLICY SET wet SLIDE 2 1h");
    for _ in 0..5 {
        let _: Value = ask(&mut con, "RL.CHECK dry dry");
        let _: Value = ask(&mut con, "RL.CHECK wet wet");
    }
    assert_eq!(totals(&mut con), [7, 3, 3, 0, 0]);
    let hot: Vec<Hot> = ask(&mut con, "RL.TOP BY denials");
    assert_eq!(hot, [("wet".into(), 5, 3)]);
    let mut hot: Vec<Hot> = ask(&mut con, "RL.TOP BY checks");
    hot.sort();
    assert_eq!(hot, [("dry".into(), 5, 0), ("wet".into(), 5, 3)]);
}

// RL.AUDIT

#[rstest]
#[case("RL.SLIDE k 10 60", "SLIDE 10 1m")]
#[case("RL.SLIDE k 10 90s 1 PRECISION 6", "SLIDE 10 90s PRECISION 6")]
#[case("RL.BUCKET k 10 5 120s", "BUCKET 10 5 2m")]
#[case("RL.FIXED k 10 3650d", "FIXED 10 3650d")]
#[case("RL.EXACT k 10 500ms", "EXACT 10 500ms")]
#[case("RL.LEAK k 10 10 1h", "LEAK 10 10 1h")]
#[case("RL.LEASE k 10 1h job:7", "LEASE 10 1h job:7")]
fn an_audit_entry_shows_everything_that_led_to_the_denial(
    server: Server,
    #[case] call: &str,
    #[case] by: &str,
) {
    let mut con = server.connect();
    ask::<()>(&mut con, "CLIENT SETNAME gw1");
    let (call, precision) = call.split_once(" 1 PRECISION").unwrap_or((call, ""));
    let line = match precision {
        "" => format!("{call} 11"),
        n => format!("{call} 11 PRECISION{n}"),
    };
    let before: (i64, i64) = ask(&mut con, "TIME");
    let reply: Reply = ask(&mut con, &line);
    assert_eq!(reply.0, 0);
    let entries = audit(&mut con, 9);
    assert_eq!(entries.len(), 1);
    let entry = &entries[0];
    assert_eq!(entry.len(), 11);
    assert_eq!(
        (text(entry, "key"), text(entry, "policy")),
        ("k".into(), "".into())
    );
    assert_eq!(text(entry, "denied_by"), by);
    let numbers = [
        "id",
        "limit_index",
        "cost",
        "limit",
        "retry_after_ms",
        "shadow",
    ];
    assert_eq!(
        numbers.map(|field| number(entry, field)),
        [0, -1, 11, 10, reply.3, 0]
    );
    let since = number(entry, "occurred_at_ms") - (before.0 * 1000 + before.1 / 1000);
    assert!((-2..60_000).contains(&since), "{since}");

    let id: i64 = ask(&mut con, "CLIENT ID");
    let client = text(entry, "client");
    assert!(
        client.starts_with(&format!("id={id} addr=127.0.0.1:")),
        "{client}"
    );
    // Names came with 7.0.3.
    assert!(
        client.ends_with(" name=gw1") || !client.contains("name"),
        "{client}"
    );
    drop(con);
    eventually("the client is gone", || {
        let entry = &audit(&mut server.connect(), 1)[0];
        text(entry, "client") == format!("id={id}")
    });
}

#[rstest]
fn the_newest_audit_entries_come_first_and_the_oldest_are_dropped(server: Server) {
    let mut con = server.connect();
    let deny = |con: &mut Connection, count: usize| {
        for _ in 0..count {
            assert_eq!(ask::<Reply>(con, "RL.SLIDE k 0 1h").0, 0);
        }
    };
    assert_eq!(audit(&mut con, 9).len(), 0);
    deny(&mut con, 12);
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 12);
    let entries: Vec<Map> = ask(&mut con, "rl.audit get");
    assert_eq!(ids(&entries), [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
    assert!(audit(&mut con, 0).is_empty());
    deny(&mut con, 200);
    assert_eq!(server.info_number("rl", "rl_audit_len"), 128);
    assert_eq!(
        ids(&audit(&mut con, 1000)),
        (84..212).rev().collect::<Vec<_>>()
    );
    ask::<()>(&mut con, "RL.AUDIT RESET");
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 0);
    deny(&mut con, 1);
    assert_eq!(ids(&audit(&mut con, 9)), [212], "ids go on");
    assert_eq!(totals(&mut con)[1], 213, "and so do the totals");
}

#[rstest]
fn calls_in_scripts_and_transactions_are_audited(server: Server) {
    let mut con = server.connect();
    let script = "return redis.call('RL.SLIDE', KEYS[1], 0, '1h')";
    let reply: Reply = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg("s")
        .query(&mut con)
        .unwrap();
    assert_eq!(reply.0, 0);
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("RL.SLIDE").arg(&["t", "0", "1h"]);
    let _: (Reply,) = pipe.query(&mut con).unwrap();
    let entries = audit(&mut con, 9);
    let id: i64 = ask(&mut con, "CLIENT ID");
    assert_eq!(text(&entries[0], "key"), "t");
    assert!(text(&entries[0], "client").starts_with(&format!("id={id} addr=")));
    assert_eq!(text(&entries[1], "key"), "s");
    assert!(text(&entries[1], "client").starts_with("id="));
}

// Bounds

#[rstest]
fn a_million_keys_and_denials_take_no_memory(server: Server) {
    let clients = || server.info_number("clients", "connected_clients");
    let flood = |from: u64, keys: u64| {
        let mut con = server.connect();
        for start in (from..from + keys).step_by(10_000) {
            let mut pipe = redis::pipe();
            for n in start..start + 10_000 {
                pipe.cmd("RL.SLIDE")
                    .arg(format!("flood:{n:020}"))
                    .arg(&["0", "1h"])
                    .ignore();
            }
            pipe.exec(&mut con).unwrap();
        }
        // Its buffers are memory too.
        drop(con);
        eventually("the flood is over", || clients() == 1);
    };
    let used = || server.info_number("memory", "used_memory");
    flood(0, 50_000);
    let before = used();
    flood(50_000, 1_000_000);
    let grown = used() - before;
    assert!(grown < 50_000, "{grown} bytes");
    assert_eq!(server.run::<i64>("DBSIZE", &[]), 0);
}

// Hostile input

#[rstest]
#[case("RL.STATS no-policy", "ERR no such policy 'no-policy'")]
#[case("RL.STATS a b", "ERR wrong number of arguments for 'RL.STATS' command")]
#[case(
    "RL.TOP COUNT",
    "ERR COUNT must be an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.TOP COUNT 0",
    "ERR COUNT must be an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.TOP COUNT -1",
    "ERR COUNT must be an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.TOP COUNT 9007199254740992",
    "ERR COUNT must be an integer between 1 and 9007199254740991"
)]
#[case(
    "RL.TOP COUNT 1 COUNT 1",
    "ERR syntax error: use RL.TOP [COUNT n] [BY checks|denials]"
)]
#[case("RL.TOP BY", "ERR BY must be checks or denials")]
#[case("RL.TOP BY refunds", "ERR BY must be checks or denials")]
#[case(
    "RL.TOP 10",
    "ERR syntax error: use RL.TOP [COUNT n] [BY checks|denials]"
)]
#[case(
    "RL.TOP COUNT 1 BY checks 1",
    "ERR wrong number of arguments for 'RL.TOP' command"
)]
#[case("RL.AUDIT", "ERR wrong number of arguments for 'RL.AUDIT' command")]
#[case(
    "RL.AUDIT GET x",
    "ERR count must be an integer between 0 and 9007199254740991"
)]
#[case(
    "RL.AUDIT GET -1",
    "ERR count must be an integer between 0 and 9007199254740991"
)]
#[case(
    "RL.AUDIT GET 1 2",
    "ERR wrong number of arguments for 'RL.AUDIT' command"
)]
#[case(
    "RL.AUDIT LEN 1",
    "ERR syntax error: use RL.AUDIT GET [count], LEN, RESET or HELP"
)]
#[case(
    "RL.AUDIT RESET now",
    "ERR syntax error: use RL.AUDIT GET [count], LEN, RESET or HELP"
)]
#[case(
    "RL.AUDIT NOPE",
    "ERR syntax error: use RL.AUDIT GET [count], LEN, RESET or HELP"
)]
fn wrong_words_are_refused_with_what_to_do(
    server: Server,
    #[case] line: &str,
    #[case] error: &str,
) {
    let mut con = server.connect();
    let _: Reply = ask(&mut con, "RL.SLIDE k 0 1h");
    let told = ask_error(&mut con, line);
    assert_eq!(told.to_lowercase(), error.to_lowercase());
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 1, "nothing changed");
}

#[rstest]
fn random_arguments_break_nothing(server: Server) {
    let mut con = server.connect();
    let mut random = Random(23);
    let words = [
        "GET",
        "LEN",
        "COUNT",
        "BY",
        "checks",
        "denials",
        "1",
        "0",
        "-1",
        "9007199254740991",
        "",
        "x",
        "99999999999999999999",
        "k",
    ];
    for _ in 0..3000 {
        let command = ["RL.STATS", "RL.TOP", "RL.AUDIT"][random.below(3) as usize];
        let mut call = redis::cmd(command);
        for _ in 0..random.below(6) {
            call.arg(words[random.below(words.len() as u64) as usize]);
        }
        // An answer or an error: but the server answers.
        let _ = call.query::<Value>(&mut con);
        if random.below(4) == 0 {
            let _ = try_ask::<Value>(&mut con, &format!("RL.SLIDE k{} 1 1h", random.below(9)));
        }
    }
    assert_eq!(ask::<String>(&mut con, "PING"), "PONG");
    assert!(!server.log().contains("panicked"));
}
