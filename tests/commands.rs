//! The commands answer as documented, and bad input gets a clear error that changes nothing.

use redis::Value;
use rl_testkit::{FrozenServer, MultiReply, NOON_US, Reply, Server, ask, ask_error};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

#[rstest]
fn slide_counts_down_and_then_denies_with_a_wait(server: Server) {
    for left in (0..3).rev() {
        let (allowed, limit, remaining, retry, reset): Reply =
            server.run("RL.SLIDE", &["k", "3", "60"]);
        assert_eq!((allowed, limit, remaining, retry), (1, 3, left, 0));
        assert!((90_000..=120_000).contains(&reset), "{reset}");
    }
    let (allowed, limit, remaining, retry, reset): Reply =
        server.run("RL.SLIDE", &["k", "3", "60"]);
    assert_eq!((allowed, limit, remaining), (0, 3, 0));
    // The window must turn, then a third of it must fade.
    assert!((60_001..=80_000).contains(&retry), "{retry}");
    assert!((90_000..=120_000).contains(&reset), "{reset}");
}

#[rstest]
fn bucket_allows_a_burst_then_a_steady_flow(server: Server) {
    // A token flows in every 86.4 s.
    let reply: Reply = server.run("RL.BUCKET", &["k", "200", "1000", "1d", "200"]);
    assert_eq!(reply, (1, 200, 0, 0, 17_280_000));
    let (allowed, _, _, retry, _): Reply = server.run("RL.BUCKET", &["k", "200", "1000", "1d"]);
    assert_eq!(allowed, 0);
    assert!((1..=86_400).contains(&retry), "{retry}");
}

#[rstest]
#[case::slide("RL.SLIDE k 4 300ms 4")]
#[case::precise("RL.SLIDE k 4 300ms 4 PRECISION 3")]
#[case::bucket("RL.BUCKET k 4 4 300ms 4")]
#[case::fixed("RL.FIXED k 4 300ms 4")]
#[case::exact("RL.EXACT k 4 300ms 4")]
#[case::leak("RL.LEAK k 4 4 300ms 4")]
#[case::lease("RL.LEASE k 4 300ms {} 4")]
fn a_denied_call_passes_after_its_retry_time(server: Server, #[case] call: &str) {
    // By the real clock; tests/clock.rs does the same to the millisecond.
    let mut con = server.connect();
    let mut call =
        |holder: usize| -> Reply { ask(&mut con, &call.replace("{}", &holder.to_string())) };
    // On a machine that stalls, the second call may come late.
    let denied = (0..100).map(&mut call).find(|reply| reply.0 == 0).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(denied.3 as u64));
    let again = call(1000);
    assert_eq!(again.0, 1, "after {} ms", denied.3);
}

#[rstest]
fn cost_defaults_to_one_and_zero_only_reports(server: Server) {
    let one: Reply = server.run("RL.SLIDE", &["k", "10", "60"]);
    let seven: Reply = server.run("RL.SLIDE", &["k", "10", "60", "7"]);
    let zero: Reply = server.run("RL.SLIDE", &["k", "10", "60", "0"]);
    assert_eq!((one.2, seven.2, zero.2, zero.0), (9, 2, 2, 1));
    let fresh: Reply = server.run("RL.BUCKET", &["new", "5", "5", "1s", "0"]);
    assert_eq!(fresh, (1, 5, 5, 0, 0));
    assert_eq!(server.run::<i64>("EXISTS", &["new"]), 0);
}

#[rstest]
#[case::slide("RL.SLIDE", &["0", "60"])]
#[case::bucket("RL.BUCKET", &["0", "1", "60"])]
#[case::fixed("RL.FIXED", &["0", "60"])]
#[case::exact("RL.EXACT", &["0", "60"])]
#[case::leak("RL.LEAK", &["0", "1", "60"])]
#[case::lease("RL.LEASE", &["0", "60", "holder"])]
fn a_limit_of_zero_blocks_for_good(server: Server, #[case] command: &str, #[case] limit: &[&str]) {
    let reply: Reply = server.run(command, &[&["k"], limit].concat());
    assert_eq!(reply, (0, 0, 0, -1, 0));
    assert_eq!(server.run::<i64>("EXISTS", &["k"]), 0);
}

#[rstest]
fn a_cost_beyond_the_limit_never_passes(server: Server) {
    let reply: Reply = server.run("RL.SLIDE", &["k", "10", "60", "11"]);
    assert_eq!(reply, (0, 10, 10, -1, 0));
}

#[rstest]
fn peek_replies_like_the_call_and_charges_nothing(server: Server) {
    let peeked: Reply = server.run("RL.SLIDE", &["k", "10", "60", "3", "PEEK"]);
    assert_eq!(peeked, (1, 10, 7, 0, 120_000));
    assert_eq!(server.run::<i64>("EXISTS", &["k"]), 0);
    let made: Reply = server.run("RL.SLIDE", &["k", "10", "60", "3"]);
    assert_eq!(made, peeked);
    let (allowed, _, remaining, ..): Reply = server.run("RL.PEEK", &["k", "SLIDE 10 60 2"]);
    assert_eq!((allowed, remaining), (1, 5));
    let (allowed, _, remaining, ..): Reply = server.run("rl.slide", &["k", "10", "60", "peek"]);
    assert_eq!(
        (allowed, remaining),
        (1, 6),
        "cost may be left out, words may be in any case"
    );
}

#[rstest]
fn force_charges_past_the_limit_and_later_calls_wait(server: Server) {
    let _: Reply = server.run("RL.BUCKET", &["k", "1000", "1000", "1h", "1000"]);
    let forced: Reply = server.run("RL.BUCKET", &["k", "1000", "1000", "1h", "430", "FORCE"]);
    assert_eq!((forced.0, forced.2, forced.3), (1, 0, 0));
    let (allowed, _, _, retry, _): Reply = server.run("RL.BUCKET", &["k", "1000", "1000", "1h"]);
    assert_eq!(allowed, 0);
    // 430 of debt and the one asked for, at 3.6 s each.
    assert!((415 * 3600..=431 * 3600).contains(&retry), "{retry}");

    let forced: Reply = server.run("RL.SLIDE", &["s", "5", "60", "8", "FORCE"]);
    assert_eq!((forced.0, forced.1, forced.2, forced.3), (1, 5, 0, 0));
    let denied: Reply = server.run("RL.SLIDE", &["s", "5", "60"]);
    assert_eq!((denied.0, denied.2), (0, 0));
}

#[rstest]
fn multi_charges_all_or_nothing(server: Server) {
    let call = [
        "{u42}:ip",
        "SLIDE 100 60",
        "{u42}:user",
        "SLIDE 1000 1h 1",
        "{u42}:search",
        "BUCKET 5 5 1h 5",
    ];
    let (allowed, retry, each): MultiReply = server.run("RL.MULTI", &call);
    assert_eq!((allowed, retry), (1, 0));
    assert_eq!(
        each.iter().map(|reply| reply.2).collect::<Vec<_>>(),
        [99, 999, 0]
    );

    let (allowed, retry, each): MultiReply = server.run("RL.MULTI", &call);
    assert_eq!(allowed, 0);
    assert_eq!(
        each.iter().map(|reply| reply.0).collect::<Vec<_>>(),
        [1, 1, 0]
    );
    assert_eq!(
        each.iter().map(|reply| reply.2).collect::<Vec<_>>(),
        [99, 999, 0],
        "nothing spent"
    );
    assert_eq!(retry, each[2].3, "the wait of the limit that denies");
    assert_eq!((each[0].3, each[1].3), (0, 0));

    let (allowed, retry, each): MultiReply = server.run(
        "RL.MULTI",
        &[
            "{u42}:ip",
            "SLIDE 100 60 101",
            "{u42}:search",
            "BUCKET 5 5 1h 1",
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
    let limits = ["a", "SLIDE 1 60", "b", "BUCKET 1 1 60"];
    let with = |first: &'static str| [limits[0], first, limits[2], limits[3]];
    let peeked: MultiReply = server.run("RL.MULTI", &with("PEEK SLIDE 1 60"));
    assert_eq!((peeked.0, peeked.2[0].2, peeked.2[1].2), (1, 0, 0));
    assert_eq!(server.run::<i64>("EXISTS", &["a", "b"]), 0);

    let _: MultiReply = server.run("RL.MULTI", &limits);
    let denied: MultiReply = server.run("RL.MULTI", &limits);
    assert_eq!(denied.0, 0);
    let forced: MultiReply = server.run("RL.MULTI", &with("FORCE SLIDE 1 60"));
    assert_eq!((forced.0, forced.1), (1, 0));
    let after: Reply = server.run("RL.PEEK", &["b", "BUCKET 1 1 60 1"]);
    assert!(
        (60_001..=120_000).contains(&after.3),
        "debt of two: {}",
        after.3
    );
}

#[rstest]
fn multi_takes_128_limits_and_no_more(server: Server) {
    let limits = |count: usize| -> Vec<String> {
        let one = |n| [format!("k{n}"), "SLIDE 9 60".into()];
        (0..count).flat_map(one).collect()
    };
    let words = limits(128);
    let (allowed, _, each): MultiReply = server.run(
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
    let _: Reply = server.run("RL.SLIDE", &["s", "100", "1h", "80"]);
    let raised: Reply = server.run("RL.SLIDE", &["s", "1000", "1h", "0"]);
    let lowered: Reply = server.run("RL.SLIDE", &["s", "50", "1h"]);
    assert_eq!((raised.2, lowered.0, lowered.2), (920, 0, 0));
    let longer: Reply = server.run("RL.SLIDE", &["s", "100", "2h", "5"]);
    assert_eq!(
        (longer.0, longer.2),
        (1, 15),
        "another window keeps the usage"
    );

    let _: Reply = server.run("RL.BUCKET", &["b", "10", "10", "1h", "10"]);
    let raised: Reply = server.run("RL.BUCKET", &["b", "15", "10", "1h", "0"]);
    assert_eq!(raised.2, 5, "the extra room, at once");
    let faster: Reply = server.run("RL.BUCKET", &["b", "10", "10", "10m"]);
    assert_eq!((faster.0, faster.2), (0, 0), "no free refill");
    assert!(
        (30_000..=60_000).contains(&faster.3),
        "drains at the new rate: {}",
        faster.3
    );
}

#[rstest]
fn a_lowered_rate_holds_though_the_key_was_to_expire_sooner() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let _: Reply = ask(&mut con, "RL.BUCKET k 10 10 500ms 10");
    let slower = "RL.BUCKET k 10 10 1h";
    assert_eq!(ask::<Reply>(&mut con, slower).3, 360_000);
    // Later than a key of the faster bucket can expire.
    frozen.set(NOON_US + 60_000_000);
    assert_eq!(
        ask::<Reply>(&mut con, slower),
        (0, 10, 0, 300_000, 3_540_000)
    );
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
        let reply: Reply = redis::cmd("RL.SLIDE")
            .arg(&key)
            .arg(5)
            .arg(window)
            .query(&mut con)
            .unwrap();
        assert_eq!(reply, (1, 5, 4, 0, reset));
    }
    let month: Reply = server.run("RL.SLIDE", &["", "5", "30d"]);
    assert_eq!(month.4, 2 * 30 * 86_400_000, "the empty key is a key");
}

#[rstest]
fn extremes_of_every_range_are_exact(server: Server) {
    let max = "9007199254740991";
    let reply: Reply = server.run("RL.SLIDE", &["s", max, "3650d", max]);
    assert_eq!(
        reply,
        (1, 9_007_199_254_740_991, 0, 0, 2 * 3650 * 86_400_000)
    );
    let denied: Reply = server.run("RL.SLIDE", &["s", max, "3650d", "1"]);
    assert_eq!((denied.0, denied.2), (0, 0));
    let reply: Reply = server.run("RL.BUCKET", &["b", max, "1", "3650d", max]);
    assert_eq!(
        reply,
        (1, 9_007_199_254_740_991, 0, 0, 9_007_199_254_740_991)
    );
    let reply: Reply = server.run("RL.BUCKET", &["c", max, max, "1ms", max]);
    assert_eq!(reply, (1, 9_007_199_254_740_991, 0, 0, 1));
    assert!(server.run::<i64>("PTTL", &["b"]) > 0);
}

#[rstest]
#[case(&["RL.SLIDE", "k", "-1", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "9007199254740992", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1.5", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1", "0"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.SLIDE", "k", "1", "3651d"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.SLIDE", "k", "1", "9007199254740991d"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.SLIDE", "k", "1", "1w"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.SLIDE", "k", "1", "ms"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.SLIDE", "k", "1", "60", "-1"], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "LOUD"], "ERR unknown option: use PEEK, FORCE, BRIEF, TIMES n [ATLEAST m], (for SLIDE) PRECISION n or (for FIXED) OFFSET [-]duration, after the cost")]
#[case(&["RL.BUCKET", "k", "x", "1", "60"], "ERR capacity must be an integer between 0 and 9007199254740991")]
#[case(&["RL.BUCKET", "k", "1", "0", "60"], "ERR refill must be an integer between 1 and 9007199254740991")]
#[case(&["RL.BUCKET", "k", "1", "1", "-5s"], "ERR period must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60", "k", "BUCKET 1 1 1"], "ERR a key may appear only once in a call")]
#[case(&["RL.MULTI", "k", "PEEK FORCE SLIDE 1 60"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.MULTI", "k", "FORCE PEEK SLIDE 1 60", "l", "SLIDE 1 60"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60", "l", "PEEK SLIDE 1 60"], "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\"")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60", "l", "FORCE SLIDE 1 60"], "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\"")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60 1 PEEK"], "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\"")]
#[case(&["RL.MULTI", "k", "SHADOW FORCE SLIDE 1 60"], "ERR PEEK, FORCE, BRIEF, TIMES and ATLEAST apply to the whole call: put them at the start of the first limit, such as \"PEEK SLIDE 100 60\"")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60", "PEEK"], "ERR keys and limits must come in pairs, each limit one argument: key \"SLIDE 100 60\" key \"BUCKET 10 5 1s\"")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60", "l"], "ERR keys and limits must come in pairs, each limit one argument: key \"SLIDE 100 60\" key \"BUCKET 10 5 1s\"")]
#[case(&["RL.MULTI", "k", "SLIDE", "1", "60", "1"], "ERR keys and limits must come in pairs, each limit one argument: key \"SLIDE 100 60\" key \"BUCKET 10 5 1s\"")]
#[case(&["RL.MULTI", "k", "SLIDE", "1", "60"], "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\"")]
#[case(&["RL.MULTI", "k", "SLOPE 1 60 1"], "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\"")]
#[case(&["RL.MULTI", "k", ""], "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\"")]
#[case(&["RL.MULTI", "k", " SLIDE 1 60"], "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\"")]
#[case(&["RL.MULTI", "k", "PEEK"], "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\"")]
#[case(&["RL.MULTI", "k", "POLICY"], "ERR expected a limit as one argument, such as \"SLIDE 100 60\" or \"POLICY name\"")]
#[case(&["RL.MULTI", "k", "BUCKET 1 1"], "ERR incomplete limit: the period is missing")]
#[case(&["RL.MULTI", "k", "LEASE 1 60"], "ERR incomplete limit: the holder is missing")]
#[case(&["RL.MULTI", "k", "LEASE 1 60 two words"], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60 "], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.MULTI", "k", "SLIDE  1 60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.PEEK", "k", "LEASE 5 60  1"], "ERR holder must be 1 to 256 bytes long")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60 x"], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60 1 1"], "ERR only PRECISION n (for SLIDE) or OFFSET [-]duration (for FIXED) may follow a limit's cost")]
#[case(&["RL.MULTI", "k", "FIXED 1 60 1 PRECISION 2"], "ERR only PRECISION n (for SLIDE) or OFFSET [-]duration (for FIXED) may follow a limit's cost")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60 1 PRECISION 61"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.MULTI", "k", "SLIDE 1 60 1 PRECISION"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.MULTI", "k"], "ERR wrong number of arguments for 'RL.MULTI' command")]
#[case(&["RL.PEEK", "k", "SLIDE 1 60 1 PRECISION 1"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.PEEK", "k", "PEEK SLIDE 1 60"], "ERR RL.PEEK accepts no PEEK, FORCE, BRIEF, TIMES or ATLEAST: it never charges")]
#[case(&["RL.PEEK", "k", "FORCE SLIDE 1 60"], "ERR RL.PEEK accepts no PEEK, FORCE, BRIEF, TIMES or ATLEAST: it never charges")]
#[case(&["RL.PEEK", "k", "SLIDE 1 60 1 PEEK"], "ERR RL.PEEK accepts no PEEK, FORCE, BRIEF, TIMES or ATLEAST: it never charges")]
#[case(&["RL.PEEK", "k", "SLIDE", "1", "60", "1"], "ERR wrong number of arguments for 'RL.PEEK' command")]
#[case(&["RL.PEEK", "k", "SLIDE 1 60", "l", "SLIDE 1 60"], "ERR wrong number of arguments for 'RL.PEEK' command")]
#[case(&["RL.SLIDE", "k", "1", "60", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.BUCKET", "k", "1", "1", "60", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.FIXED", "k", "1", "60", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.EXACT", "k", "1", "60", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.LEAK", "k", "1", "1", "60", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.LEASE", "k", "1", "60", "h", "PEEK", "FORCE"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "FORCE", "PRECISION", "2", "PEEK"], "ERR PEEK and FORCE exclude each other")]
#[case(&["RL.LOAD", "k", "1", "\u{1}x"], "ERR damaged rate-limit state")]
#[case(&["RL.LOAD", "k", "1", "\u{3}x"], "ERR rate-limit state of a newer version: upgrade this module first")]
#[case(&["RL.LOAD", "k", "-1", "x"], "ERR expire-at-ms must be a Unix time in milliseconds between 0 and 9007199254740991")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "PRECISION", "1"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "PRECISION", "61"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "PRECISION", "257"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "PRECISION"], "ERR PRECISION must be given once, an integer between 2 and 60")]
#[case(&["RL.SLIDE", "k", "1", "60", "1", "PRECISION", "2", "3"], "ERR unknown option: use PEEK, FORCE, BRIEF, TIMES n [ATLEAST m], (for SLIDE) PRECISION n or (for FIXED) OFFSET [-]duration, after the cost")]
#[case(&["RL.BUCKET", "k", "1", "1", "60", "1", "PRECISION", "2"], "ERR unknown option: use PEEK, FORCE, BRIEF, TIMES n [ATLEAST m], (for SLIDE) PRECISION n or (for FIXED) OFFSET [-]duration, after the cost")]
#[case(&["RL.FIXED", "k", "x", "60"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.FIXED", "k", "1", "0ms"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d), or day, week, month or year")]
#[case(&["RL.EXACT", "k", "1000001", "60"], "ERR limit of EXACT must be an integer between 0 and 1000000: use SLIDE for larger limits")]
#[case(&["RL.EXACT", "k", "x", "60"], "ERR limit of EXACT must be an integer between 0 and 1000000: use SLIDE for larger limits")]
#[case(&["RL.EXACT", "k", "1", "3651d"], "ERR window must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.LEAK", "k", "-1", "1", "60"], "ERR capacity must be an integer between 0 and 9007199254740991")]
#[case(&["RL.LEAK", "k", "1", "0", "60"], "ERR rate must be an integer between 1 and 9007199254740991")]
#[case(&["RL.LEAK", "k", "1", "1", "1y"], "ERR period must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.LEASE", "k", "x", "60", "h"], "ERR limit must be an integer between 0 and 9007199254740991")]
#[case(&["RL.LEASE", "k", "1", "3651d", "h"], "ERR ttl must be a duration between 1ms and 3650d (ms, s, m, h, d)")]
#[case(&["RL.LEASE", "k", "1", "60", ""], "ERR holder must be 1 to 256 bytes long")]
#[case(&["RL.LEASE", "k", "1", "60"], "ERR wrong number of arguments for 'RL.LEASE' command")]
#[case(&["RL.RELEASE", "k"], "ERR wrong number of arguments for 'RL.RELEASE' command")]
#[case(&["RL.RELEASE", "k", "h", "1"], "ERR wrong number of arguments for 'RL.RELEASE' command")]
#[case(&["RL.REFUND", "k", "-1"], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.REFUND", "k", "9007199254740992"], "ERR cost must be an integer between 0 and 9007199254740991")]
#[case(&["RL.REFUND", "k"], "ERR wrong number of arguments for 'RL.REFUND' command")]
#[case(&["RL.INSPECT", "k", "k"], "ERR wrong number of arguments for 'RL.INSPECT' command")]
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

const STANDARD: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A limit of every algorithm, behind its key.
const SPECS: [&str; 6] = [
    "SLIDE 5 60 1",
    "BUCKET 5 5 60 1",
    "FIXED 5 3650d 1",
    "EXACT 5 60 1",
    "LEAK 5 5 60 1",
    "LEASE 5 60 holder 1",
];

#[rstest]
fn keys_of_other_types_are_left_alone(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "LPUSH list x");
    for spec in SPECS {
        let (algorithm, rest) = spec.split_once(' ').unwrap();
        for call in [
            format!("RL.{algorithm} list {rest}"),
            format!("RL.PEEK list \"{spec}\""),
        ] {
            assert_eq!(ask_error(&mut con, &call), STANDARD, "{call}");
        }
        // An error at the last limit leaves the first unspent, and names its key.
        let call = format!("RL.MULTI new \"{spec}\" list \"{spec}\"");
        let expected = format!("{STANDARD}: 'list'");
        assert_eq!(ask_error(&mut con, &call), expected, "{call}");
    }
    for call in [
        "RL.REFUND list 1",
        "RL.RELEASE list holder",
        "RL.INSPECT list",
    ] {
        assert_eq!(ask_error(&mut con, call), STANDARD, "{call}");
    }
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 1);
    assert_eq!(ask::<i64>(&mut con, "LLEN list"), 1);
}

#[rstest]
fn a_key_of_another_algorithm_is_left_alone_and_both_are_named(server: Server) {
    let mut con = server.connect();
    let name_of = |spec: &str| spec.split(' ').next().unwrap().to_owned();
    for spec in SPECS {
        let _: MultiReply = ask(&mut con, &format!("RL.MULTI {} \"{spec}\"", name_of(spec)));
    }
    let digest = server.digest_all();
    for holds in SPECS.map(name_of) {
        for spec in SPECS.iter().filter(|spec| name_of(spec) != holds) {
            let expected = |key: &str| {
                let requested = name_of(spec);
                format!(
                    "WRONGTYPE the key {key}holds a {holds} limit and the call is for {requested}: use another key, or DEL this one"
                )
            };
            let call = format!("RL.PEEK {holds} \"{spec}\"");
            assert_eq!(ask_error(&mut con, &call), expected(""), "{call}");
            // Of several keys, it is named which one.
            let call = format!("RL.MULTI new \"{spec}\" {holds} \"{spec}\"");
            let named = format!("'{holds}' ");
            assert_eq!(ask_error(&mut con, &call), expected(&named), "{call}");
        }
        let release = format!("RL.RELEASE {holds} holder");
        if holds != "LEASE" {
            let error = ask_error(&mut con, &release);
            assert!(
                error.contains(&format!("holds a {holds} limit and the call is for LEASE")),
                "{error}"
            );
        }
    }
    assert_eq!(
        ask_error(&mut con, "RL.REFUND LEASE 1"),
        "ERR a lease cannot be refunded: release it with RL.RELEASE"
    );
    assert_eq!(server.digest_all(), digest);
}

// Of each new algorithm what is its own. What it shares with the others is tested with them.

#[rstest]
fn fixed_counts_down_and_then_denies_until_the_window_turns(server: Server) {
    let mut con = server.connect();
    for left in [2, 1, 0] {
        let reply: Reply = ask(&mut con, "RL.FIXED k 3 3650d");
        assert_eq!((reply.0, reply.1, reply.2, reply.3), (1, 3, left, 0));
    }
    let (seconds, _): (u64, u64) = ask(&mut con, "TIME");
    let denied: Reply = ask(&mut con, "RL.FIXED k 3 3650d");
    assert_eq!((denied.0, denied.2), (0, 0));
    assert_eq!(denied.3, denied.4);
    let window = 3650 * 86_400;
    let to_go_ms = (window - seconds % window) * 1000;
    assert!((denied.3 as u64).abs_diff(to_go_ms) < 60_000, "{denied:?}");
}

#[rstest]
fn exact_admits_weighted_costs_until_the_limit(server: Server) {
    let mut con = server.connect();
    for (cost, allowed, left) in [(3, 1, 7), (7, 1, 0), (1, 0, 0), (0, 1, 0), (11, 0, 0)] {
        let reply: Reply = ask(&mut con, &format!("RL.EXACT k 10 1h {cost}"));
        assert_eq!((reply.0, reply.2), (allowed, left), "{cost}");
        let wait = if allowed == 1 {
            0..=0
        } else {
            3_500_000..=3_600_000
        };
        assert!(
            wait.contains(&reply.3) || cost > 10 && reply.3 == -1,
            "{reply:?}"
        );
    }
}

#[rstest]
fn leak_reports_to_each_call_how_long_to_wait(server: Server) {
    let mut con = server.connect();
    // One an hour: what passes between the calls does not show.
    for n in 0..5 {
        let reply: Reply = ask(&mut con, "RL.LEAK k 5 1 1h");
        assert_eq!((reply.0, reply.2), (1, 4 - n));
        let delay = 3_600_000 * n;
        assert!((delay - 60_000..=delay).contains(&reply.3), "{reply:?}");
    }
    let full: Reply = ask(&mut con, "RL.LEAK k 5 1 1h");
    assert_eq!((full.0, full.2), (0, 0));
    assert!((3_540_000..=3_600_000).contains(&full.3), "{full:?}");
    let forced: Reply = ask(&mut con, "RL.LEAK k 5 1 1h 1 FORCE");
    assert_eq!((forced.0, forced.2), (1, 0));
    assert!(
        (17_940_000..=18_000_000).contains(&forced.3),
        "behind five: {forced:?}"
    );
}

#[rstest]
fn lease_holds_renews_and_releases(server: Server) {
    let mut con = server.connect();
    let mut left = |line: &str| {
        let reply: Reply = ask(&mut con, line);
        (reply.0, reply.2)
    };
    assert_eq!(left("RL.LEASE k 5 1h a 3"), (1, 2));
    assert_eq!(left("RL.LEASE k 5 1h b 3"), (0, 2), "no room");
    assert_eq!(
        left("RL.LEASE k 5 1h a 4"),
        (1, 1),
        "the same holder again: four in place of three"
    );
    assert_eq!(
        left("RL.LEASE k 5 1h a 6"),
        (0, 1),
        "too many, and the four stay"
    );
    assert_eq!(left("RL.LEASE k 5 1h b"), (1, 0));
    assert_eq!(left("RL.LEASE k 5 1h c 0"), (1, 0), "just asking");
    assert_eq!(left("RL.LEASE k 5 1h c 2 FORCE"), (1, 0), "seven of five");
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k a"), 1);
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k a"), 0, "no longer held");
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE k z"), 0, "never held");
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE new a"), 0, "no key");
    let reply: Reply = ask(&mut con, "RL.LEASE k 5 1h d 2");
    assert_eq!((reply.0, reply.2), (1, 0));
    for holder in ["b", "c", "d"] {
        assert_eq!(ask::<i64>(&mut con, &format!("RL.RELEASE k {holder}")), 1);
    }
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
}

#[rstest]
fn holders_are_any_bytes(server: Server) {
    let mut con = server.connect();
    let longest = [b'x'; 256];
    let holders: [&[u8]; 5] = [b"\0", b"\0\0", b"\xff\xfe", b"two words", &longest];
    let lease = |holder: &[u8]| {
        let mut call = redis::cmd("RL.LEASE");
        call.arg("k").arg(5).arg("1h").arg(holder).to_owned()
    };
    for (n, holder) in holders.iter().enumerate() {
        let reply: Reply = lease(holder).query(&mut con).unwrap();
        assert_eq!((reply.0, reply.2), (1, 4 - n as i64));
    }
    let long = lease(&[b'x'; 257]).query::<Value>(&mut con).unwrap_err();
    assert!(long.to_string().contains("1 to 256 bytes"), "{long}");
    for holder in holders {
        let mut call = redis::cmd("RL.RELEASE");
        let released: i64 = call.arg("k").arg(holder).query(&mut con).unwrap();
        assert_eq!(released, 1);
    }
    // Also where there is no key to look at.
    for holder in [&[][..], &[b'x'; 257]] {
        let mut call = redis::cmd("RL.RELEASE");
        let error = call.arg("none").arg(holder).query::<Value>(&mut con);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("1 to 256 bytes"), "{error}");
    }
}

#[rstest]
fn a_rate_and_a_concurrency_limit_fit_in_one_call(server: Server) {
    let mut con = server.connect();
    let mut start = |job: i64| -> MultiReply {
        ask(
            &mut con,
            &format!(r#"RL.MULTI {{u}}jobs "SLIDE 100 1h 1" {{u}}slots "LEASE 5 1m job{job} 1""#),
        )
    };
    for job in 0..5 {
        assert_eq!(start(job).0, 1);
    }
    let (allowed, wait, each) = start(5);
    assert_eq!((allowed, each[0].0, each[1].0), (0, 1, 0));
    assert_eq!((each[0].2, each[1].2), (95, 0), "nothing spent");
    assert!(wait == each[1].3 && (1..=60_000).contains(&wait), "{wait}");
    assert_eq!(ask::<i64>(&mut con, "RL.RELEASE {u}slots job3"), 1);
    let mut con = server.connect();
    let all: MultiReply = ask(
        &mut con,
        r#"RL.MULTI {u}jobs "SLIDE 100 1h 1" {u}slots "LEASE 5 1m job5 1""#,
    );
    assert_eq!((all.0, all.2[0].2, all.2[1].2), (1, 94, 0));
}

#[rstest]
#[case::slide("SLIDE 10 1h")]
#[case::bucket("BUCKET 10 1 1h")]
#[case::fixed("FIXED 10 3650d")]
#[case::exact("EXACT 10 1h")]
#[case::leak("LEAK 10 1 1h")]
fn a_refund_returns_no_more_than_is_used(server: Server, #[case] limit: &str) {
    let mut con = server.connect();
    let mut expect = |line: &str, expected: i64| {
        assert_eq!(ask::<i64>(&mut con, line), expected, "{line}");
    };
    expect("RL.REFUND k 5", 0);
    expect("EXISTS k", 0);
    let _: MultiReply = ask(&mut server.connect(), &format!("RL.MULTI k \"{limit} 8\""));
    expect("RL.REFUND k 0", 0);
    expect("RL.REFUND k 3", 3);
    let left: Reply = ask(&mut server.connect(), &format!("RL.PEEK k \"{limit} 0\""));
    assert_eq!(left.2, 5);
    expect("RL.REFUND k 9007199254740991", 5);
    // A key of which nothing is left is gone.
    expect("EXISTS k", 0);
    expect("RL.REFUND k 1", 0);
}

#[rstest]
#[case::slide("SLIDE 1000 1h", "")]
#[case::precise("SLIDE 1000 1h", " PRECISION 5")]
#[case::bucket("BUCKET 1000 1 1h", "")]
#[case::fixed("FIXED 1000 3650d", "")]
#[case::exact("EXACT 1000 1h", "")]
#[case::leak("LEAK 1000 1 1h", "")]
fn a_reserved_cost_is_settled_by_a_refund_or_a_forced_call(
    server: Server,
    #[case] limit: &str,
    #[case] option: &str,
) {
    let mut con = server.connect();
    let mut left = |cost: u64, force: &str| {
        let all: MultiReply = ask(
            &mut con,
            &format!("RL.MULTI k \"{force}{limit} {cost}{option}\""),
        );
        (all.0, all.2[0].2)
    };
    // Reserved 900, of which 250 were used.
    assert_eq!(left(900, ""), (1, 100));
    assert_eq!(ask::<i64>(&mut server.connect(), "RL.REFUND k 650"), 650);
    assert_eq!(left(0, ""), (1, 750));
    // Reserved 700, but 800 were used.
    assert_eq!(left(700, ""), (1, 50));
    assert_eq!(left(100, "FORCE "), (1, 0));
    assert_eq!(left(1, ""), (0, 0));
    assert_eq!(ask::<i64>(&mut server.connect(), "RL.REFUND k 50"), 50);
    assert_eq!(left(1, ""), (0, 0), "the debt is gone, and no room yet");
    assert_eq!(ask::<i64>(&mut server.connect(), "RL.REFUND k 1"), 1);
    assert_eq!(left(1, ""), (1, 0));
}

#[rstest]
fn precision_follows_the_cost_in_any_order_and_may_change(server: Server) {
    let mut con = server.connect();
    for (call, left) in [
        ("RL.SLIDE k 100 1h 10 PRECISION 60", 90),
        ("RL.SLIDE k 100 1h 10 FORCE precision 59", 80),
        ("RL.SLIDE k 100 1h PRECISION 60 PEEK", 79),
        (r#"RL.PEEK k "SLIDE 100 1h 5 PRECISION 60""#, 75),
        // Another precision keeps the usage.
        ("RL.SLIDE k 100 1h 10 PRECISION 3", 70),
        ("RL.SLIDE k 100 1h 10", 60),
        ("RL.SLIDE k 100 1h 10 PRECISION 4", 50),
        ("RL.SLIDE k 100 2h 10 PRECISION 2", 40),
        ("RL.SLIDE k 100 1h 61 PRECISION 60", 40),
    ] {
        let reply: Reply = ask(&mut con, call);
        assert_eq!(reply.2, left, "{call}");
    }
    // A key may be called PRECISION.
    let all: MultiReply = ask(
        &mut con,
        r#"RL.MULTI a "SLIDE 5 1h 1" PRECISION "EXACT 5 1h 1" b "SLIDE 5 1h 1 PRECISION 9" c "FIXED 5 3650d 1""#,
    );
    assert_eq!((all.0, all.2.len()), (1, 4));
    let there: i64 = ask(&mut con, "EXISTS a PRECISION b c");
    assert_eq!(there, 4);
}

#[rstest]
#[case::slide("RL.SLIDE k 10 1h 4", &["window_ms 3600000", "window_started_at_ms *", "current_count 4", "previous_count 0", "used 4"])]
#[case::precise("RL.SLIDE k 10 1h 4 PRECISION 2", &["window_ms 3600000", "precision 2", "sub_window_started_at_ms *", "counts [4, 0, 0]", "used 4"])]
#[case::bucket("RL.BUCKET k 10 1 1h 4", &["refill 1", "period_ms 3600000", "updated_at_ms *", "debt_at_update 4", "used 4", "resets_at_ms *"])]
#[case::fixed("RL.FIXED k 10 3650d 4", &["window_ms 315360000000", "window_started_at_ms *", "count 4", "used 4", "window_ends_at_ms *"])]
#[case::exact("RL.EXACT k 10 1h 4", &["window_ms 3600000", "entry_count 1", "log_bytes *", "last_entry_at_ms *", "used 4"])]
#[case::leak("RL.LEAK k 10 1 1h 4", &["rate 1", "period_ms 3600000", "updated_at_ms *", "debt_at_update 4", "used 4", "resets_at_ms *"])]
fn inspect_shows_what_is_stored(server: Server, #[case] call: &str, #[case] fields: &[&str]) {
    let mut con = server.connect();
    assert_eq!(ask::<Value>(&mut con, "RL.INSPECT k"), Value::Nil);
    let _: Reply = ask(&mut con, call);
    let shown: Vec<Value> = ask(&mut con, "RL.INSPECT k");
    let text = |value: &Value| match value {
        Value::Int(number) => number.to_string(),
        Value::Array(_) => format!(
            "{:?}",
            redis::from_redis_value::<Vec<i64>>(value.clone()).unwrap()
        ),
        other => redis::from_redis_value(other.clone()).unwrap(),
    };
    let pairs: Vec<(String, String)> = shown
        .chunks(2)
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect();
    let algorithm = call[3..].split(' ').next().unwrap().to_owned();
    assert_eq!(pairs[0], ("algorithm".into(), algorithm));
    assert_eq!(pairs.len(), fields.len() + 2, "{pairs:?}");
    for ((name, value), field) in pairs[1..].iter().zip(fields) {
        let (expected_name, expected) = field.split_once(' ').unwrap();
        assert_eq!(name, expected_name);
        assert!(
            expected == "*" && value != "0" || value == expected,
            "{name} {value}"
        );
    }
    let (last, expiry) = pairs.last().unwrap();
    assert_eq!(last, "expires_at_ms");
    assert!((expiry.parse::<i64>().unwrap() - server.expire_at_ms("k")).abs() <= 2);
}

#[rstest]
fn inspect_shows_the_holders_of_leases(server: Server) {
    let mut con = server.connect();
    for n in 0..120 {
        let _: Reply = ask(
            &mut con,
            &format!("RL.LEASE k 1000 {}s holder{n} 2", 1000 + n),
        );
    }
    let shown: std::collections::HashMap<String, Value> = ask(&mut con, "RL.INSPECT k");
    assert_eq!(
        (&shown["used"], &shown["holder_count"]),
        (&Value::Int(240), &Value::Int(120))
    );
    let leases: Vec<std::collections::HashMap<String, Value>> =
        redis::from_redis_value(shown["leases"].clone()).unwrap();
    assert_eq!(leases.len(), 100, "the first hundred");
    for (n, lease) in leases.iter().enumerate() {
        let name: String = redis::from_redis_value(lease["holder"].clone()).unwrap();
        assert_eq!(name, format!("holder{n}"), "those that end first");
        assert_eq!(lease["units"], Value::Int(2));
        let left: i64 = redis::from_redis_value(lease["expires_in_ms"].clone()).unwrap();
        let ttl = (1000 + n as i64) * 1000;
        assert!((ttl - 900_000..=ttl).contains(&left), "{left}");
    }
}

#[rstest]
fn del_resets_a_key(server: Server) {
    let _: Reply = server.run("RL.SLIDE", &["k", "1", "60"]);
    let denied: Reply = server.run("RL.SLIDE", &["k", "1", "60"]);
    let _: () = server.run("DEL", &["k"]);
    let again: Reply = server.run("RL.SLIDE", &["k", "1", "60"]);
    assert_eq!((denied.0, again.0), (0, 1));
}
