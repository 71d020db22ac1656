//! RL.FIRST charges the first limit that allows the call, and no other.

use redis::{Connection, Value};
use rl_testkit::{CheckReply, FrozenServer, NOON_US, Random, Server, ask, ask_error, ask_ok};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

/// What is left of a limit.
fn remaining(con: &mut Connection, key: &str, spec: &str) -> i64 {
    let reply: Vec<i64> = ask(con, &format!("RL.PEEK {key} \"{spec} 0\""));
    reply[2]
}

#[rstest]
fn the_first_limit_with_room_is_charged(server: Server) {
    let mut con = server.connect();
    let call = r#"RL.FIRST included "FIXED 3 3650d" credits "BUCKET 2 1 3650d""#;
    let replies: Vec<CheckReply> = (0..6).map(|_| ask(&mut con, call)).collect();
    let shown: Vec<_> = replies.iter().map(|r| (r.0, r.1, r.2, r.5)).collect();
    let expected = [
        (1, 3, 2, 0),
        (1, 3, 1, 0),
        (1, 3, 0, 0),
        (1, 2, 1, 1),
        (1, 2, 0, 1),
    ];
    assert_eq!(shown[..5], expected);
    assert_eq!(replies[5].0, 0);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 2);
}

#[rstest]
fn if_all_deny_the_shortest_wait_is_reported_and_nothing_is_charged(server: Server) {
    let mut con = server.connect();
    let specs = r#"a "SLIDE 0 60" b "EXACT 1 500s" c "EXACT 1 100s" d "EXACT 1 100s 2""#;
    for _ in 0..2 {
        ask::<Value>(&mut con, &format!("RL.FIRST {specs}"));
    }
    let changes = || server.info_number("persistence", "rdb_changes_since_last_save");
    let before = changes();
    let denied: CheckReply = ask(&mut con, &format!("RL.FIRST {specs}"));
    assert_eq!((denied.0, denied.1, denied.2, denied.5), (0, 1, 0, 2));
    assert!((50_000..=100_000).contains(&denied.3), "{}", denied.3);
    assert_eq!(changes(), before);
    let brief: i64 = ask(
        &mut con,
        &format!("RL.FIRST {}", specs.replacen("SLIDE", "BRIEF SLIDE", 1)),
    );
    assert!((-100_000..=-50_000).contains(&brief), "{brief}");
    // The first of those that can never allow the call.
    let never: CheckReply = ask(&mut con, r#"RL.FIRST x "SLIDE 0 60" y "FIXED 1 60 2""#);
    assert_eq!(never, (0, 0, 0, -1, 0, 0));
    let brief: i64 = ask(
        &mut con,
        r#"RL.FIRST x "BRIEF SLIDE 0 60" y "FIXED 1 60 2""#,
    );
    assert_eq!(brief, -(1 << 53));
}

#[rstest]
fn peek_shows_what_would_be_charged(server: Server) {
    let mut con = server.connect();
    let call = r#"RL.FIRST a "{}SLIDE 1 60" b "SLIDE 2 60""#;
    for index in [0, 1, 1] {
        let peeked: CheckReply = ask(&mut con, &call.replace("{}", "PEEK "));
        assert_eq!((peeked.0, peeked.5), (1, index));
        let made: CheckReply = ask(&mut con, &call.replace("{}", ""));
        assert_eq!((made.0, made.2, made.5), (1, peeked.2, index));
    }
}

#[rstest]
fn force_takes_the_first_with_room_or_else_charges_the_first(server: Server) {
    let mut con = server.connect();
    let call = r#"RL.FIRST a "FORCE FIXED 2 3650d" b "FIXED 2 3650d""#;
    let shown: Vec<_> = (0..6)
        .map(|_| ask::<CheckReply>(&mut con, call))
        .map(|reply| (reply.0, reply.2, reply.5))
        .collect();
    assert_eq!(
        shown,
        [
            (1, 1, 0),
            (1, 0, 0),
            (1, 1, 1),
            (1, 0, 1),
            (1, 0, 0),
            (1, 0, 0)
        ]
    );
    let used: redis::Value = ask(&mut con, "RL.INSPECT a");
    assert!(format!("{used:?}").contains("int(4)"), "{used:?}");
    assert_eq!(server.info_number("rl", "rl_forced"), 2);
    assert_eq!(server.info_number("rl", "rl_allowed"), 4);
    // FORCE does not lift a block.
    ask_ok(&mut con, "RL.POLICY SET p FIXED 0 1s");
    ask_ok(&mut con, "RL.OVERRIDE SET x p BLOCK");
    let reply: CheckReply = ask(&mut con, r#"RL.FIRST x "FORCE POLICY p" y "POLICY p""#);
    assert_eq!((reply.0, reply.5), (1, 1));
    let reply: CheckReply = ask(&mut con, r#"RL.FIRST x "FORCE POLICY p""#);
    assert_eq!((reply.0, reply.3, reply.5), (0, -1, 0));
}

#[rstest]
fn a_shadow_limit_always_allows_the_call(server: Server) {
    let mut con = server.connect();
    let call = r#"RL.FIRST a "FIXED 1 3650d" b "SHADOW FIXED 1 3650d" c "FIXED 9 3650d""#;
    for (index, left) in [(0, 0), (1, 0), (1, 0)] {
        let reply: CheckReply = ask(&mut con, call);
        assert_eq!((reply.0, reply.2, reply.5), (1, left, index));
    }
    assert_eq!(ask::<i64>(&mut con, "EXISTS c"), 0);
    assert_eq!(server.info_number("rl", "rl_shadow_denied"), 1);
}

#[rstest]
fn several_calls_go_to_one_limit(server: Server) {
    let mut con = server.connect();
    ask::<Value>(&mut con, "RL.FIXED a 10 3650d 6");
    let reply: CheckReply = ask(
        &mut con,
        r#"RL.FIRST a "TIMES 5 FIXED 10 3650d" b "FIXED 10 3650d""#,
    );
    assert_eq!((reply.0, reply.2, reply.5), (5, 5, 1), "all in the second");
    let call = r#"RL.FIRST a "TIMES 8 ATLEAST 3 FIXED 10 3650d" b "FIXED 10 3650d""#;
    let shown: Vec<_> = (0..3)
        .map(|_| ask::<CheckReply>(&mut con, call))
        .map(|reply| (reply.0, reply.2, reply.5))
        .collect();
    assert_eq!(shown, [(4, 0, 0), (5, 0, 1), (0, 0, 0)]);
}

#[rstest]
fn only_the_limits_that_are_reached_matter(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "SET text x");
    let call = r#"RL.FIRST a "FIXED 1 3650d" text "FIXED 1 3650d""#;
    let reply: CheckReply = ask(&mut con, call);
    assert_eq!((reply.0, reply.5), (1, 0), "the other key is not reached");
    let changes = || server.info_number("persistence", "rdb_changes_since_last_save");
    let before = changes();
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value: 'text'";
    assert_eq!(ask_error(&mut con, call), wrong);
    let call = r#"RL.FIRST a "FIXED 1 3650d" a2 "POLICY none""#;
    assert_eq!(ask_error(&mut con, call), "ERR no such policy 'none'");
    let call = r#"RL.FIRST b "FIXED 1 3650d" b "FIXED 1 3650d""#;
    assert_eq!(
        ask_error(&mut con, call),
        "ERR a key may appear only once in a call"
    );
    let call = format!(
        "RL.FIRST{}",
        (0..129)
            .map(|n| format!(" k{n} \"SLIDE 1 1\""))
            .collect::<String>()
    );
    assert_eq!(
        ask_error(&mut con, &call),
        "ERR a call may check at most 128 limits"
    );
    let call = format!(
        "RL.FIRST{}",
        (0..128)
            .map(|n| format!(" k{n} \"SLIDE 0 1\""))
            .collect::<String>()
    );
    assert_eq!(ask::<CheckReply>(&mut con, &call), (0, 0, 0, -1, 0, 0));
    assert_eq!(changes(), before);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 2);
}

#[rstest]
fn only_the_limit_that_is_reported_is_counted(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET one FIXED 1 3650d");
    ask_ok(&mut con, "RL.POLICY SET two FIXED 2 3650d");
    for _ in 0..4 {
        ask::<Value>(&mut con, r#"RL.FIRST a "POLICY one" b "POLICY two""#);
    }
    let totals = |field: &str| server.info_number("rl", field);
    assert_eq!((totals("rl_allowed"), totals("rl_denied")), (3, 1));
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 1);
    assert_eq!(remaining(&mut con, "b", "POLICY two"), 0);
}

/// Asks about each limit in order with RL.PEEK, and charges the first that allows the call.
#[rstest]
fn it_replies_like_peeking_at_each_in_order() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 9 10s BUCKET 20 7 3s COST 2",
    );
    let mut random = Random(11);
    let mut chosen = [0; 6];
    for step in 1..=300 {
        frozen.set(NOON_US + step * 53_000);
        let cost = |random: &mut Random| 1 + random.below(3);
        let mut limits = vec![
            ("s", format!("SLIDE 10 2s {}", cost(&mut random))),
            ("r", format!("SLIDE 8 2s {} PRECISION 4", cost(&mut random))),
            ("b", format!("BUCKET 9 3 1s {}", cost(&mut random))),
            ("f", format!("FIXED 7 1s {}", cost(&mut random))),
            ("x", format!("EXACT 7 2s {}", cost(&mut random))),
            ("l", format!("LEAK 6 3 1s {}", cost(&mut random))),
            (
                "h",
                format!("LEASE 4 1s h{} {}", random.below(9), cost(&mut random)),
            ),
            ("c", format!("POLICY p {}", cost(&mut random))),
        ];
        for index in (1..limits.len()).rev() {
            limits.swap(index, random.below(index as u64 + 1) as usize);
        }
        limits.truncate(1 + random.below(8) as usize);
        let peeked: Vec<Vec<i64>> = limits
            .iter()
            .map(|(key, spec)| ask(&mut con, &format!("RL.PEEK {key} \"{spec}\"")))
            .collect();
        let wait = |reply: &Vec<i64>| if reply[3] < 0 { i64::MAX } else { reply[3] };
        let index = peeked
            .iter()
            .position(|reply| reply[0] == 1)
            .unwrap_or_else(|| {
                let waits = peeked.iter().map(wait).enumerate();
                chosen[5] += 1;
                waits.min_by_key(|&(_, wait)| wait).unwrap().0
            });
        chosen[index.min(4)] += 1;
        let call: String = limits
            .iter()
            .map(|(key, spec)| format!(" {key} \"{spec}\""))
            .collect();
        let reply: Vec<i64> = ask(&mut con, &format!("RL.FIRST{call}"));
        assert_eq!(reply[..5], peeked[index], "{call}");
        assert_eq!(reply[5], index as i64, "{call}");
        for (other, (key, spec)) in limits.iter().enumerate() {
            let now: Vec<i64> = ask(&mut con, &format!("RL.PEEK {key} \"{spec}\""));
            let is_charged = other == index && reply[0] == 1;
            let is_lease = spec.starts_with("LEASE");
            assert!(
                is_lease || (now != peeked[other]) == is_charged,
                "{call}: {key}"
            );
        }
    }
    assert!(chosen.iter().all(|&count| count > 2), "{chosen:?}");
}
