//! The commands answer as documented, and bad input gets a clear error that changes nothing.

#![allow(clippy::unwrap_used)]

mod support;

use rstest::{fixture, rstest};
use support::{Five, Multi, Server};

#[fixture]
fn server() -> Server {
    Server::start()
}

#[rstest]
fn slide_counts_down_and_then_denies_with_a_wait(server: Server) {
    for left in (0..3).rev() {
        let (allowed, limit, remaining, retry, reset): Five =
            server.run("RL.SLIDE", &["k", "3", "60"]);
        assert_eq!((allowed, limit, remaining, retry), (1, 3, left, 0));
        assert!((119_000..=120_000).contains(&reset), "{reset}");
    }
    let (allowed, limit, remaining, retry, reset): Five = server.run("RL.SLIDE", &["k", "3", "60"]);
    assert_eq!((allowed, limit, remaining), (0, 3, 0));
    // The window must turn, then a third of it must fade.
    assert!((79_000..=80_000).contains(&retry), "{retry}");
    assert!((119_000..=120_000).contains(&reset), "{reset}");
}

#[rstest]
fn bucket_allows_a_burst_then_a_steady_flow(server: Server) {
    let five: Five = server.run("RL.BUCKET", &["k", "200", "1000", "1m", "200"]);
    assert_eq!(five, (1, 200, 0, 0, 12_000));
    let (allowed, _, _, retry, _): Five = server.run("RL.BUCKET", &["k", "200", "1000", "1m"]);
    assert_eq!(allowed, 0);
    assert!((1..=60).contains(&retry), "{retry}");
}

#[rstest]
fn a_denied_call_passes_after_its_retry_time(server: Server) {
    for (command, args) in [
        ("RL.SLIDE", &["s", "4", "200ms", "4"][..]),
        ("RL.BUCKET", &["b", "4", "4", "200ms", "4"]),
    ] {
        let first: Five = server.run(command, args);
        assert_eq!(first.0, 1);
        let denied: Five = server.run(command, args);
        assert_eq!(denied.0, 0);
        std::thread::sleep(std::time::Duration::from_millis(denied.3 as u64));
        let again: Five = server.run(command, args);
        assert_eq!(again.0, 1, "{command} after {} ms", denied.3);
    }
}

#[rstest]
fn cost_defaults_to_one_and_zero_only_reports(server: Server) {
    let one: Five = server.run("RL.SLIDE", &["k", "10", "60"]);
    let seven: Five = server.run("RL.SLIDE", &["k", "10", "60", "7"]);
    let zero: Five = server.run("RL.SLIDE", &["k", "10", "60", "0"]);
    assert_eq!((one.2, seven.2, zero.2, zero.0), (9, 2, 2, 1));
    let fresh: Five = server.run("RL.BUCKET", &["new", "5", "5", "1s", "0"]);
    assert_eq!(fresh, (1, 5, 5, 0, 0));
    assert_eq!(server.run::<i64>("EXISTS", &["new"]), 0);
}

#[rstest]
#[case::slide("RL.SLIDE", &["0", "60"])]
#[case::bucket("RL.BUCKET", &["0", "1", "60"])]
fn a_limit_of_zero_blocks_for_good(server: Server, #[case] command: &str, #[case] limit: &[&str]) {
    let five: Five = server.run(command, &[&["k"], limit].concat());
    assert_eq!(five, (0, 0, 0, -1, 0));
    assert_eq!(server.run::<i64>("EXISTS", &["k"]), 0);
}

#[rstest]
fn a_cost_beyond_the_limit_never_passes(server: Server) {
    let five: Five = server.run("RL.SLIDE", &["k", "10", "60", "11"]);
    assert_eq!(five, (0, 10, 10, -1, 0));
}

#[rstest]
fn peek_answers_like_the_call_and_consumes_nothing(server: Server) {
    let peeked: Five = server.run("RL.SLIDE", &["k", "10", "60", "3", "PEEK"]);
    assert_eq!(peeked, (1, 10, 7, 0, 120_000));
    assert_eq!(server.run::<i64>("EXISTS", &["k"]), 0);
    let made: Five = server.run("RL.SLIDE", &["k", "10", "60", "3"]);
    assert_eq!(made, peeked);
    let (allowed, _, remaining, ..): Five = server.run("RL.PEEK", &["k", "SLIDE", "10", "60", "2"]);
    assert_eq!((allowed, remaining), (1, 5));
    let (allowed, _, remaining, ..): Five = server.run("rl.slide", &["k", "10", "60", "peek"]);
    assert_eq!(
        (allowed, remaining),
        (1, 6),
        "cost may be left out, words may be in any case"
    );
}

#[rstest]
fn force_consumes_past_the_limit_and_later_calls_wait(server: Server) {
    let _: Five = server.run("RL.BUCKET", &["k", "1000", "1000", "1m", "1000"]);
    let forced: Five = server.run("RL.BUCKET", &["k", "1000", "1000", "1m", "430", "FORCE"]);
    assert_eq!((forced.0, forced.2, forced.3), (1, 0, 0));
    let (allowed, _, _, retry, _): Five = server.run("RL.BUCKET", &["k", "1000", "1000", "1m"]);
    assert_eq!(allowed, 0);
    // 430 of debt and the one asked for, at 60 ms each.
    assert!((25_000..=431 * 60).contains(&retry), "{retry}");

    let forced: Five = server.run("RL.SLIDE", &["s", "5", "60", "8", "FORCE"]);
    assert_eq!((forced.0, forced.1, forced.2, forced.3), (1, 5, 0, 0));
    let denied: Five = server.run("RL.SLIDE", &["s", "5", "60"]);
    assert_eq!((denied.0, denied.2), (0, 0));
}

#[rstest]
fn multi_consumes_all_or_nothing(server: Server) {
    let call = [
        "{u42}:ip",
        "SLIDE",
        "100",
        "60",
        "1",
        "{u42}:user",
        "SLIDE",
        "1000",
        "1h",
        "1",
        "{u42}:search",
        "BUCKET",
        "5",
        "5",
        "1m",
        "5",
    ];
    let (allowed, retry, each): Multi = server.run("RL.MULTI", &call);
    assert_eq!((allowed, retry), (1, 0));
    assert_eq!(
        each.iter().map(|five| five.2).collect::<Vec<_>>(),
        [99, 999, 0]
    );

    let (allowed, retry, each): Multi = server.run("RL.MULTI", &call);
    assert_eq!(allowed, 0);
    assert_eq!(
        each.iter().map(|five| five.0).collect::<Vec<_>>(),
        [1, 1, 0]
    );
    assert_eq!(
        each.iter().map(|five| five.2).collect::<Vec<_>>(),
        [99, 999, 0],
        "nothing spent"
    );
    assert_eq!(retry, each[2].3, "the wait of the limit that denies");
    assert_eq!((each[0].3, each[1].3), (0, 0));

    let (allowed, retry, each): Multi = server.run(
        "RL.MULTI",
        &[
            "{u42}:ip",
            "SLIDE",
            "100",
            "60",
            "101",
            "{u42}:search",
            "BUCKET",
            "5",
            "5",
            "1m",
            "1",
        ],
    );
    assert_eq!(
        (allowed, retry),
        (0, -1),
        "one can never pass, another has to wait"
    );
    assert_eq!((each[0].3, each[1].0), (-1, 0));
}

#[rstest]
fn multi_peeks_and_forces(server: Server) {
    let limits = [
        "a", "SLIDE", "1", "60", "1", "b", "BUCKET", "1", "1", "60", "1",
    ];
    let peeked: Multi = server.run("RL.MULTI", &[&limits[..], &["PEEK"]].concat());
    assert_eq!((peeked.0, peeked.2[0].2, peeked.2[1].2), (1, 0, 0));
    assert_eq!(server.run::<i64>("EXISTS", &["a", "b"]), 0);

    let _: Multi = server.run("RL.MULTI", &limits);
    let denied: Multi = server.run("RL.MULTI", &limits);
    assert_eq!(denied.0, 0);
    let forced: Multi = server.run("RL.MULTI", &[&limits[..], &["FORCE"]].concat());
    assert_eq!((forced.0, forced.1), (1, 0));
    let after: Five = server.run("RL.PEEK", &["b", "BUCKET", "1", "1", "60", "1"]);
    assert!(
        (118_000..=120_000).contains(&after.3),
        "debt of two: {}",
        after.3
    );
}

#[rstest]
fn multi_takes_128_limits_and_no_more(server: Server) {
    let limits = |count: usize| -> Vec<String> {
        let one = |n| {
            [
                format!("k{n}"),
                "SLIDE".into(),
                "9".into(),
                "60".into(),
                "1".into(),
            ]
        };
        (0..count).flat_map(one).collect()
    };
    let words = limits(128);
    let (allowed, _, each): Multi = server.run(
        "RL.MULTI",
        &words.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!((allowed, each.len()), (1, 128));
    let words = limits(129);
    assert_eq!(
        server.error(
            "RL.MULTI",
            &words.iter().map(String::as_str).collect::<Vec<_>>()
        ),
        "ERR a call may check at most 128 limits"
    );
}

#[rstest]
fn limits_change_with_the_next_call_and_usage_is_kept(server: Server) {
    let _: Five = server.run("RL.SLIDE", &["s", "100", "1h", "80"]);
    let raised: Five = server.run("RL.SLIDE", &["s", "1000", "1h", "0"]);
    let lowered: Five = server.run("RL.SLIDE", &["s", "50", "1h"]);
    assert_eq!((raised.2, lowered.0, lowered.2), (920, 0, 0));
    let longer: Five = server.run("RL.SLIDE", &["s", "100", "2h", "5"]);
    assert_eq!(
        (longer.0, longer.2),
        (1, 15),
        "another window keeps the usage"
    );

    let _: Five = server.run("RL.BUCKET", &["b", "10", "10", "1h", "10"]);
    let raised: Five = server.run("RL.BUCKET", &["b", "15", "10", "1h", "0"]);
    assert_eq!(raised.2, 5, "the extra room, at once");
    let faster: Five = server.run("RL.BUCKET", &["b", "10", "10", "1m"]);
    assert_eq!((faster.0, faster.2), (0, 0), "no free refill");
    assert!(
        (5_000..=6_000).contains(&faster.3),
        "drains at the new rate: {}",
        faster.3
    );
}

#[rstest]
fn a_lowered_rate_holds_though_the_key_was_to_expire_sooner(server: Server) {
    let _: Five = server.run("RL.BUCKET", &["k", "10", "10", "500ms", "10"]);
    let denied: Five = server.run("RL.BUCKET", &["k", "10", "10", "1h"]);
    assert_eq!(denied.0, 0);
    assert!((350_000..=360_000).contains(&denied.3), "{}", denied.3);
    std::thread::sleep(std::time::Duration::from_millis(1600));
    let later: Five = server.run("RL.BUCKET", &["k", "10", "10", "1h"]);
    assert_eq!((later.0, later.2), (0, 0), "no free refill");
}

#[rstest]
fn keys_are_any_bytes_and_durations_have_units(server: Server) {
    let mut con = server.connect();
    for (window, reset) in [
        ("500ms", 1_000),
        ("90s", 180_000),
        ("15m", 1_800_000),
        ("24h", 172_800_000),
    ] {
        let key = [b"\xff\0 ", window.as_bytes()].concat();
        let five: Five = redis::cmd("RL.SLIDE")
            .arg(&key)
            .arg(5)
            .arg(window)
            .query(&mut con)
            .unwrap();
        assert_eq!(five, (1, 5, 4, 0, reset));
    }
    let month: Five = server.run("RL.SLIDE", &["", "5", "30d"]);
    assert_eq!(month.4, 2 * 30 * 86_400_000, "the empty key is a key");
}

#[rstest]
fn extremes_of_every_range_are_exact(server: Server) {
    let max = "9007199254740991";
    let five: Five = server.run("RL.SLIDE", &["s", max, "3650d", max]);
    assert_eq!(
        five,
        (1, 9_007_199_254_740_991, 0, 0, 2 * 3650 * 86_400_000)
    );
    let denied: Five = server.run("RL.SLIDE", &["s", max, "3650d", "1"]);
    assert_eq!((denied.0, denied.2), (0, 0));
    let five: Five = server.run("RL.BUCKET", &["b", max, "1", "3650d", max]);
    assert_eq!(
        five,
        (1, 9_007_199_254_740_991, 0, 0, 9_007_199_254_740_991)
    );
    let five: Five = server.run("RL.BUCKET", &["c", max, max, "1ms", max]);
    assert_eq!(five, (1, 9_007_199_254_740_991, 0, 0, 1));
    assert!(server.run::<i64>("PTTL", &["b"]) > 0);
}

#[rstest]
#[case(&["RL.SLIDE", "k", "-1", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "9007199254740992", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1.5", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1", "0"], "ERR window must be a duration between 1ms and 3650d")]
#[case(&["RL.SLIDE", "k", "1", "3651d"], "ERR window must be a duration between 1ms and 3650d")]
#[case(&["RL.SLIDE", "k", "1", "9007199254740991d"], "ERR window must be a duration between 1ms and 3650d")]
#[case(&["RL.SLIDE", "k", "1", "1w"], "ERR window must be a duration between 1ms and 3650d")]
#[case(&["RL.SLIDE", "k", "1", "ms"], "ERR window must be a duration between 1ms and 3650d")]
#[case(&["RL.SLIDE", "k", "1", "60", "-1"], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "LOUD"], "ERR unknown option: use PEEK or FORCE, after the cost")]
#[case(&["RL.BUCKET", "k", "x", "1", "60"], "ERR capacity must be an integer between 0 and 9007199254740991")]
#[case(&["RL.BUCKET", "k", "1", "0", "60"], "ERR refill must be an integer between 1 and 9007199254740991")]
#[case(&["RL.BUCKET", "k", "1", "1", "-5s"], "ERR period must be a duration between 1ms and 3650d")]
#[case(&["RL.MULTI", "k", "SLIDE", "1", "60", "1", "k", "BUCKET", "1", "1", "1", "1"], "ERR a key may appear only once in a call")]
#[case(&["RL.MULTI", "k", "SLIDE", "1", "60", "1", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.MULTI", "k", "SLOPE", "1", "60", "1"], "ERR expected a limit behind the key, such as SLIDE 100 60 1, or one of PEEK and FORCE at the end")]
#[case(&["RL.MULTI", "k", "BUCKET", "1", "1", "1"], "ERR incomplete limit: a parameter or the cost is missing")]
#[case(&["RL.PEEK", "k", "SLIDE", "1", "60", "1", "PEEK"], "ERR syntax error: nothing may follow the limit")]
#[case(&["RL.LOAD", "k", "1", "\u{1}x"], "ERR damaged rate-limit state")]
#[case(&["RL.LOAD", "k", "1", "\u{2}x"], "ERR rate-limit state of a newer version: upgrade this module first")]
#[case(&["RL.LOAD", "k", "-1", "x"], "ERR expire-at-ms must be a Unix time in milliseconds between 1 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1"], "ERR wrong number of arguments for 'RL.SLIDE' command")]
#[case(&["RL.LOAD", "k", "1", "x", "y"], "ERR wrong number of arguments for 'RL.LOAD' command")]
fn bad_input_gets_a_clear_error_and_changes_nothing(
    server: Server,
    #[case] call: &[&str],
    #[case] expected: &str,
) {
    let dirty = server.info_number("persistence", "rdb_changes_since_last_save");
    let error = server.error(call[0], &call[1..]);
    assert_eq!(error.to_lowercase(), expected.to_lowercase());
    assert_eq!(server.run::<i64>("DBSIZE", &[]), 0);
    assert_eq!(
        server.info_number("persistence", "rdb_changes_since_last_save"),
        dirty
    );
}

#[rstest]
fn other_keys_are_left_alone(server: Server) {
    let _: () = server.run("LPUSH", &["list", "x"]);
    let _: Five = server.run("RL.BUCKET", &["bucket", "5", "5", "60"]);
    let standard = "WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(server.error("RL.SLIDE", &["list", "1", "1"]), standard);
    assert_eq!(
        server.error("RL.PEEK", &["list", "SLIDE", "1", "1", "1"]),
        standard
    );
    assert_eq!(
        server.error("RL.SLIDE", &["bucket", "1", "1"]),
        "WRONGTYPE the key holds a BUCKET limit and the call is for SLIDE: use another key, or DEL this one"
    );
    // An error at the last limit leaves the first unspent.
    let call = [
        "new", "SLIDE", "1", "60", "1", "list", "SLIDE", "1", "60", "1",
    ];
    assert_eq!(server.error("RL.MULTI", &call), standard);
    assert_eq!(server.run::<i64>("EXISTS", &["new"]), 0);
    assert_eq!(server.run::<i64>("LLEN", &["list"]), 1);
}

#[rstest]
fn reset_is_del(server: Server) {
    let _: Five = server.run("RL.SLIDE", &["k", "1", "60"]);
    let denied: Five = server.run("RL.SLIDE", &["k", "1", "60"]);
    let _: () = server.run("DEL", &["k"]);
    let again: Five = server.run("RL.SLIDE", &["k", "1", "60"]);
    assert_eq!((denied.0, again.0), (0, 1));
}
