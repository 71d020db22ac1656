//! Limits by name: a change applies to the next call, keeps usage, and is part of the dataset.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;

use redis::{Connection, Value};
use rl_testkit::{
    CheckReply, Deadline, MultiReply, Random, Reply, Server, TempDir, ask, ask_error, ask_ok,
    eventually, try_ask,
};
use rl_testkit::{FrozenServer, NOON_US};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    Server::start()
}

/// Sends RL.POLICY LOAD.
fn load(con: &mut Connection, json: &str) -> redis::RedisResult<i64> {
    redis::cmd("RL.POLICY").arg("LOAD").arg(json).query(con)
}

#[rstest]
fn a_policy_is_set_shown_listed_and_deleted(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET free SLIDE 100 60");
    ask_ok(
        &mut con,
        "rl.policy set llm slide 60 1m cost 1 SLIDE 90000 60s SHADOW NOTE tokens",
    );
    let shown: Vec<Value> = ask(&mut con, "RL.POLICY GET llm");
    let text = |text: &str| Value::BulkString(text.into());
    let expected = vec![
        text("name"),
        text("llm"),
        text("limits"),
        Value::Array(vec![text("SLIDE 60 1m COST 1"), text("SLIDE 90000 1m")]),
        text("shadow"),
        Value::Int(1),
        text("note"),
        text("tokens"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(ask::<Value>(&mut con, "RL.POLICY GET none"), Value::Nil);
    assert_eq!(
        ask::<Vec<String>>(&mut con, "RL.POLICY LIST"),
        ["free", "llm"]
    );
    assert_eq!(ask::<Vec<String>>(&mut con, "RL.POLICY LIST l"), ["llm"]);
    assert_eq!(ask::<i64>(&mut con, "RL.POLICY DEL llm"), 1);
    assert_eq!(ask::<i64>(&mut con, "RL.POLICY DEL llm"), 0);
    assert_eq!(server.info_number("rl", "rl_policies"), 1);
    let dump: String = ask(&mut con, "RL.POLICY DUMP");
    let json: serde_json::Value = serde_json::from_str(&dump).unwrap();
    assert_eq!(json["policies"]["free"]["limits"][0], "SLIDE 100 1m");
    assert_eq!(
        load(
            &mut con,
            r#"{"policies":{"a":{"limits":["FIXED 1 1d"]},"b":{"limits":["FIXED 2 1d"]}}}"#
        ),
        Ok(2)
    );
    assert_eq!(ask::<Vec<String>>(&mut con, "RL.POLICY LIST"), ["a", "b"]);
    let refused = load(
        &mut con,
        r#"{"policies":{"c":{"limits":["FIXED 1 1d"]},"d":{"limits":["FIXED x 1d"]}}}"#,
    );
    let error = refused.unwrap_err().to_string();
    assert!(
        error.contains("policy \"d\": limit \"FIXED x 1d\": limit must be an integer"),
        "{error}"
    );
    assert_eq!(
        ask::<Vec<String>>(&mut con, "RL.POLICY LIST"),
        ["a", "b"],
        "all or nothing"
    );
    ask_ok(&mut con, "FLUSHALL");
    assert_eq!(ask::<Vec<String>>(&mut con, "RL.POLICY LIST"), ["a", "b"]);
    assert_eq!(load(&mut con, &dump), Ok(1));
}

#[rstest]
fn an_unknown_policy_counts_nothing(server: Server) {
    let mut con = server.connect();
    for line in [
        "RL.CHECK k none",
        "RL.CHECK k none 5 FORCE",
        r#"RL.PEEK k "POLICY none 1""#,
        r#"RL.MULTI a "SLIDE 5 1h 1" k "POLICY none 1""#,
        "RL.OVERRIDE SET k none BLOCK",
    ] {
        assert_eq!(
            ask_error(&mut con, line),
            "ERR no such policy 'none'",
            "{line}"
        );
    }
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(
        server.info_number("persistence", "rdb_changes_since_last_save"),
        0
    );
}

#[rstest]
fn a_policy_of_one_limit_is_that_limit(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET free SLIDE 5 1h");
    let six: CheckReply = ask(&mut con, "RL.CHECK k free 2");
    assert_eq!((six.0, six.1, six.2, six.3, six.5), (1, 5, 3, 0, 0));
    assert_eq!(ask::<String>(&mut con, "TYPE k"), "rl-slide-");
    // The same key by the inline command, and by the policy again.
    assert_eq!(ask::<Reply>(&mut con, "RL.SLIDE k 5 1h").2, 2);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free 9 PEEK").3, -1);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free 2").2, 0);
    let denied: CheckReply = ask(&mut con, "RL.CHECK k free");
    assert_eq!((denied.0, denied.5), (0, 0));
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free 4 FORCE").0, 1);
    ask_ok(&mut con, "RL.POLICY SET fixed SLIDE 5 1h COST 2");
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK f fixed 4").2,
        3,
        "the limit fixes its cost"
    );
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK f fixed 0").2,
        3,
        "a cost of 0 reports"
    );
}

#[rstest]
fn several_limits_are_one_key_and_all_must_allow(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET pro SLIDE 4 1m SLIDE 6 1h BUCKET 9 1 1d",
    );
    let six: CheckReply = ask(&mut con, "RL.CHECK k pro 3");
    assert_eq!((six.0, six.1, six.2, six.5), (1, 4, 1, 0));
    assert_eq!(ask::<String>(&mut con, "TYPE k"), "rl-policy");
    let digest = server.digest("k");
    let denied: CheckReply = ask(&mut con, "RL.CHECK k pro 2");
    assert_eq!((denied.0, denied.1, denied.2, denied.5), (0, 4, 1, 0));
    assert!(denied.3 > 0);
    // The longest wait decides: the hour's is longer than the minute's, never is the longest.
    let denied: CheckReply = ask(&mut con, "RL.CHECK k pro 4");
    assert_eq!((denied.0, denied.5), (0, 1));
    let denied: CheckReply = ask(&mut con, "RL.CHECK k pro 5");
    assert_eq!((denied.3, denied.5), (-1, 0));
    assert_eq!(server.digest("k"), digest, "a denial writes nothing");
    assert_eq!(
        ask_error(&mut con, "RL.SLIDE k 4 1m"),
        "WRONGTYPE the key holds a POLICY limit and the call is for SLIDE: use another key, or DEL this one"
    );
    ask_ok(&mut con, "SET text x");
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(ask_error(&mut con, "RL.CHECK text pro"), wrong);
    let _: Reply = ask(&mut con, "RL.LEASE lease 5 1h me");
    assert!(
        ask_error(&mut con, "RL.CHECK lease pro")
            .contains("holds a LEASE limit and the call is for POLICY")
    );
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 2"), 2);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k pro 0").2, 3);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 99"), 1);
    assert_eq!(ask::<i64>(&mut con, "EXISTS k"), 0, "nothing is left of it");
}

#[rstest]
fn a_refund_applies_to_limits_without_a_fixed_cost(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET llm SLIDE 3 1h COST 1 SLIDE 1000 1h",
    );
    for _ in 0..3 {
        assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k llm 100").0, 1);
    }
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 250"), 250);
    let denied: CheckReply = ask(&mut con, "RL.CHECK k llm 1");
    assert_eq!(
        (denied.0, denied.5),
        (0, 0),
        "three requests stay three requests"
    );
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND k 100"), 50);
}

#[rstest]
fn usage_is_kept_when_a_policy_changes(server: Server) {
    let mut con = server.connect();
    let remaining =
        |con: &mut Connection, key: &str| ask::<CheckReply>(con, &format!("RL.CHECK {key} p 0")).2;
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 10 1h");
    for key in ["a", "b"] {
        assert_eq!(
            ask::<CheckReply>(&mut con, &format!("RL.CHECK {key} p 4")).2,
            6
        );
    }
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 20 1h");
    assert_eq!(remaining(&mut con, "a"), 16, "at the next call");
    // From one limit to several and back.
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 9 1d SLIDE 20 1h");
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK a p 1").2,
        8,
        "the day begins"
    );
    assert_eq!(ask::<String>(&mut con, "TYPE a"), "rl-policy");
    assert_eq!(
        ask::<String>(&mut con, "TYPE b"),
        "rl-slide-",
        "a key changes when it is used"
    );
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 20 1h SLIDE 9 1d");
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK a p 1").2,
        7,
        "in another order"
    );
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 20 1h");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1").2, 13);
    assert_eq!(ask::<String>(&mut con, "TYPE a"), "rl-slide-");
    assert_eq!(ask::<Reply>(&mut con, "RL.SLIDE a 20 1h 0").2, 13);
    assert!(ask::<i64>(&mut con, "PTTL a") > 0);
    // A denial does not even convert.
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 2 1h SLIDE 1 1d");
    let digest = server.digest("a");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1").0, 0);
    assert_eq!(server.digest("a"), digest);
    // Another algorithm: usage starts fresh.
    ask_ok(&mut con, "RL.POLICY SET p BUCKET 10 1 1h");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1").2, 9);
    assert_eq!(ask::<String>(&mut con, "TYPE a"), "rl-bucket");
    ask_ok(&mut con, "RL.POLICY SET p EXACT 10 1h EXACT 50 1d");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 3").2, 7);
    ask_ok(&mut con, "RL.POLICY SET p EXACT 50 1d");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1").2, 46);
    assert_eq!(ask::<String>(&mut con, "TYPE a"), "rl-exact-");
}

#[rstest]
fn a_full_refund_of_a_policy_with_a_log_deletes_the_key(server: Server) {
    let mut con = server.connect();
    let mut expect = |line: &str, expected: i64| {
        assert_eq!(ask::<i64>(&mut con, line), expected, "{line}");
    };
    let replica = Server::start();
    replica.follow(&server);
    let mut other = server.connect();
    for limits in [
        "EXACT 10 1h SLIDE 10 1h",
        "SLIDE 10 1h EXACT 10 1h",
        "EXACT 10 1h EXACT 10 1d BUCKET 10 1 1h",
    ] {
        ask_ok(&mut other, &format!("RL.POLICY SET p {limits}"));
        assert_eq!(
            ask::<CheckReply>(&mut other, "RL.CHECK a p 4").2,
            6,
            "{limits}"
        );
        expect("RL.REFUND a 3", 3);
        assert_eq!(
            ask::<CheckReply>(&mut other, "RL.CHECK a p 0").2,
            9,
            "{limits}"
        );
        expect("RL.REFUND a 9", 1);
        expect("EXISTS a", 0);
        expect("RL.REFUND a 1", 0);
        server.wait_for(&replica);
        assert_eq!(replica.run::<i64>("EXISTS", &["a"]), 0, "{limits}");
    }
    // A call that was counted stays counted, though its units are given back.
    ask_ok(&mut other, "RL.POLICY SET p EXACT 10 1h SLIDE 10 1h COST 1");
    assert_eq!(ask::<CheckReply>(&mut other, "RL.CHECK b p 4").2, 6);
    expect("RL.REFUND b 9", 4);
    expect("EXISTS b", 1);
    assert_eq!(ask::<CheckReply>(&mut other, "RL.CHECK b p 0").2, 9);
    assert_eq!(ask::<CheckReply>(&mut other, "RL.CHECK b p 10").2, 0);
    server.wait_for(&replica);
    assert_eq!(replica.digest("b"), server.digest("b"));
}

/// Usage under a log that a policy no longer has in that place still decides, and a denial leaves it alone.
#[rstest]
fn a_denial_after_a_change_uses_the_log_where_it_is(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p EXACT 5 1h");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 5").2, 0);
    for limits in [
        "EXACT 5 1h SLIDE 9 1h",
        "BUCKET 9 1 1h EXACT 5 1h",
        "EXACT 3 1h EXACT 9 1d",
    ] {
        ask_ok(&mut con, &format!("RL.POLICY SET p {limits}"));
        let digest = server.digest("a");
        let denied: CheckReply = ask(&mut con, "RL.CHECK a p 1");
        assert_eq!(denied.0, 0, "{limits}");
        assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1 PEEK").0, 0);
        assert_eq!(server.digest("a"), digest, "{limits}");
    }
    // An allowed call converts; the log is all there.
    ask_ok(&mut con, "RL.POLICY SET p EXACT 7 1h SLIDE 9 1h");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1").2, 1);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 4 FORCE").0, 1);
    ask_ok(&mut con, "RL.POLICY SET p EXACT 7 1h");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a p 1").0, 0);
    assert_eq!(ask::<i64>(&mut con, "RL.REFUND a 99"), 10);
}

/// A policy of k limits on one key decides like RL.MULTI on k keys, at every moment.
#[rstest]
fn a_policy_decides_like_as_many_keys() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let mut random = Random(0x5eed_cafe);
    let mut now_us = NOON_US;
    for round in 0..30 {
        let limits: Vec<String> = (0..2 + random.below(4))
            .map(|_| {
                let (limit, s) = (1 + random.below(12), 1 + random.below(9));
                match random.below(5) {
                    0 => format!("SLIDE {limit} {s}"),
                    1 => format!("BUCKET {limit} {} {s}", 1 + random.below(9)),
                    2 => format!("FIXED {limit} {s}"),
                    3 => format!("EXACT {limit} {s}"),
                    _ => format!("LEAK {limit} {} {s}", 1 + random.below(9)),
                }
            })
            .collect();
        ask_ok(&mut con, &format!("RL.POLICY SET p {}", limits.join(" ")));
        for _ in 0..40 {
            now_us += random.below(3) * 700_000;
            frozen.set(now_us);
            let cost = random.below(5);
            let option = [" FORCE", " PEEK", "", "", "", ""][random.below(6) as usize];
            let each = limits.iter().enumerate();
            let each = each.map(|(n, limit)| {
                let option = if n == 0 && !option.is_empty() {
                    format!("{} ", option.trim_start())
                } else {
                    String::new()
                };
                format!(" {round}:{n} \"{option}{limit} {cost}\"")
            });
            let multi = format!("RL.MULTI{}", each.collect::<String>());
            let (allowed, retry_ms, answers): MultiReply = ask(&mut con, &multi);
            let six: CheckReply = ask(&mut con, &format!("RL.CHECK {round} p {cost}{option}"));
            let what = format!("{limits:?} {cost}{option}");
            assert_eq!(six.0, allowed, "{what}");
            let decided = answers[six.5 as usize];
            assert_eq!((six.0, six.1, six.2, six.3, six.4), decided, "{what}");
            if allowed == 1 {
                assert_eq!(
                    six.2,
                    answers.iter().map(|reply| reply.2).min().unwrap(),
                    "{what}"
                );
            } else {
                assert_eq!(six.3, retry_ms, "{what}");
            }
        }
    }
}

/// Two limits are always changed together: their sum shows whether a call saw half of a change.
#[rstest]
fn no_call_sees_half_of_a_change(server: Server) {
    let stop = AtomicBool::new(false);
    // How many of the callers have seen enough.
    let satisfied = AtomicUsize::new(0);
    ask_ok(
        &mut server.connect(),
        "RL.POLICY SET p FIXED 1000000 3650d FIXED 1000001 3649d",
    );
    thread::scope(|scope| {
        let seen: Vec<_> = (0..3)
            .map(|n| {
                let (stop, satisfied, server) = (&stop, &satisfied, &server);
                scope.spawn(move || {
                    let mut con = server.connect();
                    let (mut calls, mut pairs) = (0, std::collections::HashSet::new());
                    let mut enough = false;
                    let deadline = Deadline::start();
                    while !stop.load(Relaxed) {
                        deadline.check("the changes end");
                        let six: CheckReply = ask(&mut con, &format!("RL.CHECK k{n} p"));
                        let shown: Vec<Value> = ask(&mut con, "RL.POLICY GET p");
                        let Value::Array(limits) = &shown[3] else {
                            panic!("{shown:?}")
                        };
                        let amount = |value: &Value| -> i64 {
                            let text: String = redis::from_redis_value(value.clone()).unwrap();
                            text.split(' ').nth(1).unwrap().parse().unwrap()
                        };
                        assert_eq!(amount(&limits[1]), amount(&limits[0]) + 1, "half a change");
                        assert_eq!((six.0, six.5), (1, 0), "the smaller one decides");
                        calls += 1;
                        pairs.insert(six.1);
                        if calls > 100 && pairs.len() > 10 && !std::mem::replace(&mut enough, true)
                        {
                            satisfied.fetch_add(1, Relaxed);
                        }
                    }
                })
            })
            .collect();
        let mut con = server.connect();
        let deadline = Deadline::start();
        for n in 0.. {
            let has_failed = seen.iter().any(|caller| caller.is_finished());
            if has_failed || n >= 3000 && satisfied.load(Relaxed) == seen.len() {
                break;
            }
            deadline.check("every caller sees changes");
            let least = 1_000_000 + 2 * n;
            if n % 2 == 0 {
                ask_ok(
                    &mut con,
                    &format!(
                        "RL.POLICY SET p FIXED {least} 3650d FIXED {} 3649d",
                        least + 1
                    ),
                );
            } else {
                let json = format!(
                    r#"{{"policies":{{"p":{{"limits":["FIXED {least} 3650d","FIXED {} 3649d"]}}}}}}"#,
                    least + 1
                );
                assert_eq!(load(&mut con, &json), Ok(1));
            }
        }
        stop.store(true, Relaxed);
        for thread in seen {
            thread.join().unwrap();
        }
    });
}

#[rstest]
fn a_shadow_is_counted_and_never_enforced(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET dry SLIDE 3 1h FIXED 100 3650d SHADOW",
    );
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k dry 2").2, 1);
    let digest = server.digest("k");
    let passed: CheckReply = ask(&mut con, "RL.CHECK k dry 2");
    assert_eq!(
        (passed.0, passed.1, passed.2, passed.3, passed.5),
        (1, 3, 1, 0, 0)
    );
    assert_eq!(
        server.digest("k"),
        digest,
        "what would be denied consumes nothing"
    );
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k dry 1").2, 0);
    // The word before a spec does the same for one limit of a call.
    let call = r#"RL.MULTI a "SLIDE 2 1h 1" b "SHADOW SLIDE 1 1h 1" c "POLICY dry 1""#;
    let left = |(allowed, wait, each): MultiReply| {
        (
            allowed,
            wait,
            each.iter()
                .map(|reply| (reply.0, reply.2))
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(
        left(ask(&mut con, call)),
        (1, 0, vec![(1, 1), (1, 0), (1, 2)])
    );
    assert_eq!(
        left(ask(&mut con, call)),
        (1, 0, vec![(1, 0), (1, 0), (1, 1)])
    );
    // A limit that is enforced denies: nothing is spent, shadow or not.
    let (allowed, _, each) = left(ask(&mut con, call));
    assert_eq!((allowed, each), (0, vec![(0, 0), (1, 0), (1, 1)]));
    let reply: Reply = ask(&mut con, r#"RL.PEEK b "SHADOW SLIDE 1 1h 1""#);
    assert_eq!((reply.0, reply.2, reply.3), (1, 0, 0));
    assert_eq!(ask::<Reply>(&mut con, r#"RL.PEEK b "SLIDE 1 1h 1""#).0, 0);
}

#[rstest]
fn a_policy_is_one_limit_of_several(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 5 1h SLIDE 8 1d");
    let (allowed, _, each): MultiReply = ask(
        &mut con,
        r#"RL.MULTI {u}a "POLICY p 3" {u}b "SLIDE 9 1h 1""#,
    );
    assert_eq!((allowed, each[0].2, each[1].2), (1, 2, 8));
    let (allowed, _, each): MultiReply = ask(
        &mut con,
        r#"RL.MULTI {u}a "POLICY p 3" {u}b "SLIDE 9 1h 1""#,
    );
    assert_eq!((allowed, each[0].0, each[0].2, each[1].2), (0, 0, 2, 8));
    assert_eq!(ask::<Reply>(&mut con, r#"RL.PEEK {u}a "POLICY p 2""#).2, 0);
    assert_eq!(
        ask::<Vec<String>>(
            &mut con,
            r#"COMMAND GETKEYS RL.MULTI a "SHADOW POLICY p 1" b "POLICY x 2" c "SLIDE 1 1 1""#
        ),
        ["a", "b", "c"]
    );
}

fn names(server: &Server) -> Vec<String> {
    server.run("RL.POLICY", &["LIST"])
}

/// Policies, usage under them, and an override.
fn fill(server: &Server) {
    let mut con = server.connect();
    for line in [
        "RL.POLICY SET one SLIDE 100 1h",
        "RL.POLICY SET two SLIDE 60 1h COST 1 EXACT 900 1h SHADOW NOTE kept",
        "RL.POLICY SET three SLIDE 100 1h SLIDE 1000 1d BUCKET 10000 1 1d",
        "RL.POLICY SET gone SLIDE 1 1",
        "RL.OVERRIDE SET k three SCALE 5 1 EX 1h NOTE vip",
        "RL.OVERRIDE SET k one BLOCK",
    ] {
        ask_ok(&mut con, line);
    }
    for (key, policy) in [("a", "one"), ("b", "two"), ("c", "three")] {
        for cost in 1..=3 {
            let six: CheckReply = ask(&mut con, &format!("RL.CHECK {key} {policy} {cost}"));
            assert_eq!(six.0, 1);
        }
    }
    assert_eq!(ask::<i64>(&mut con, "RL.POLICY DEL gone"), 1);
}

fn assert_filled(server: &Server, dump: &str) {
    assert_eq!(server.run::<String>("RL.POLICY", &["DUMP"]), dump);
    for (key, policy, remaining, index) in [
        ("a", "one", 94, 0),
        ("b", "two", 57, 0),
        ("c", "three", 94, 0),
    ] {
        let peek: CheckReply = server.run("RL.CHECK", &[key, policy, "0"]);
        assert_eq!((peek.2, peek.5), (remaining, index), "{key}");
    }
    let blocked: CheckReply = server.run("RL.CHECK", &["k", "one", "0"]);
    assert_eq!((blocked.0, blocked.3, blocked.5), (0, -1, -1));
    let scaled: CheckReply = server.run("RL.CHECK", &["k", "three", "0"]);
    assert_eq!(scaled.1, 500);
}

#[rstest]
fn a_restart_from_an_rdb_restores_policies() {
    let mut server = Server::with(&["dbfilename", "kept.rdb"]);
    fill(&server);
    let (dump, digest) = (
        server.run::<String>("RL.POLICY", &["DUMP"]),
        server.digest_all(),
    );
    server.shutdown("SAVE");
    server.start_again();
    assert_filled(&server, &dump);
    assert_eq!(server.digest_all(), digest);
    let _: () = server.run("DEBUG", &["RELOAD"]);
    assert_filled(&server, &dump);
}

#[rstest]
#[case::with_preamble("yes")]
#[case::without_preamble("no")]
fn a_restart_from_an_aof_restores_policies(#[case] preamble: &str) {
    let mut server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", preamble]);
    fill(&server);
    let (dump, digest) = (
        server.run::<String>("RL.POLICY", &["DUMP"]),
        server.digest_all(),
    );
    server.shutdown("NOSAVE");
    server.start_again();
    assert_filled(&server, &dump);
    assert_eq!(server.digest_all(), digest, "as it was appended");
    for round in 0..2 {
        eventually("a rewrite begins", || server.has_command(&["BGREWRITEAOF"]));
        eventually("the AOF is rewritten", || {
            server.info("persistence", "aof_rewrite_in_progress") == "0"
                && server.info("persistence", "aof_rewrite_scheduled") == "0"
        });
        assert_eq!(
            server.info("persistence", "aof_last_bgrewrite_status"),
            "ok"
        );
        if round == 0 {
            server.shutdown("NOSAVE");
        } else {
            server.kill();
        }
        server.start_again();
        assert_filled(&server, &dump);
        assert_eq!(server.digest_all(), digest, "as it was rewritten");
        assert_eq!(server.calls("bgrewriteaof"), 0, "no part of the data");
    }
    // A change after the rewrite comes after it.
    ask_ok(&mut server.connect(), "RL.POLICY SET later SLIDE 1 1");
    server.shutdown("NOSAVE");
    server.start_again();
    assert_eq!(names(&server), ["later", "one", "three", "two"]);
}

#[rstest]
fn an_aof_that_is_switched_on_contains_the_existing_policies() {
    let mut server = Server::with(&["aof-use-rdb-preamble", "no"]);
    fill(&server);
    let dump: String = server.run("RL.POLICY", &["DUMP"]);
    let _: () = server.run("CONFIG", &["SET", "appendonly", "yes"]);
    eventually("the AOF is there", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    server.add_config(&["appendonly", "yes"]);
    server.shutdown("NOSAVE");
    server.start_again();
    assert_filled(&server, &dump);
}

#[rstest]
#[case::by_file(&[])]
#[case::by_socket(&["repl-diskless-load", "on-empty-db"])]
#[case::aside(&["repl-diskless-load", "swapdb"])]
fn replicas_have_the_policies_of_their_primary(#[case] config: &[&str]) {
    let primary = Server::start();
    let replica = Server::with(config);
    fill(&primary);
    ask_ok(&mut replica.connect(), "RL.POLICY SET own SLIDE 1 1");
    replica.follow(&primary);
    let dump: String = primary.run("RL.POLICY", &["DUMP"]);
    assert_filled_replica(&replica, &dump);
    // What changes later is sent.
    ask_ok(
        &mut primary.connect(),
        "RL.POLICY SET later SLIDE 1 1 NOTE x",
    );
    assert_eq!(primary.run::<i64>("RL.POLICY", &["DEL", "one"]), 1);
    primary.wait_for(&replica);
    assert_eq!(names(&replica), ["later", "three", "two"]);
    assert_eq!(primary.digest_all(), replica.digest_all());
    let error = replica.error("RL.POLICY", &["SET", "x", "SLIDE", "1", "1"]);
    assert!(error.starts_with("READONLY"), "{error}");
    assert!(
        replica
            .error("RL.POLICY", &["DEL", "two"])
            .starts_with("READONLY")
    );
    // A primary without policies takes them away by its copy, too.
    let other = Server::start();
    replica.follow(&other);
    assert!(names(&replica).is_empty());
    // Promoted, it decides by what it has.
    replica.follow(&primary);
    let _: () = replica.run("REPLICAOF", &["NO", "ONE"]);
    let six: CheckReply = replica.run("RL.CHECK", &["c", "three"]);
    assert_eq!((six.0, six.2), (1, 93));
    ask_ok(&mut replica.connect(), "RL.POLICY SET x SLIDE 1 1");
}

fn assert_filled_replica(replica: &Server, dump: &str) {
    assert_eq!(replica.run::<String>("RL.POLICY", &["DUMP"]), dump);
    let peek: Reply = replica.run("RL.PEEK", &["c", "POLICY three 0"]);
    assert_eq!(peek.2, 94);
    let scaled: Reply = replica.run("RL.PEEK", &["k", "POLICY three 0"]);
    assert_eq!(scaled.1, 500);
}

#[rstest]
fn an_aof_rewritten_during_a_pause_loses_nothing() {
    let mut server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", "no"]);
    let replica = Server::start();
    replica.follow(&server);
    fill(&server);
    let dump: String = server.run("RL.POLICY", &["DUMP"]);
    let _: () = server.run("CLIENT", &["PAUSE", "700", "WRITE"]);
    let _: Value = server.run("BGREWRITEAOF", &[]);
    eventually("the AOF is rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    thread::sleep(std::time::Duration::from_millis(1000));
    server.wait_for(&replica);
    assert_eq!(replica.run::<String>("RL.POLICY", &["DUMP"]), dump);
    server.shutdown("NOSAVE");
    server.start_again();
    assert_eq!(server.run::<String>("RL.POLICY", &["DUMP"]), dump);
}

#[rstest]
fn a_rewrite_sends_policies_and_not_the_command_that_began_it() {
    let server = Server::with(&["aof-use-rdb-preamble", "no"]);
    let replica = Server::start();
    replica.follow(&server);
    fill(&server);
    let rewritten = || {
        eventually("the AOF is rewritten", || {
            server.info("persistence", "aof_rewrite_in_progress") == "0"
                && server.info("persistence", "aof_rewrite_scheduled") == "0"
        });
    };
    let _: () = server.run("CONFIG", &["SET", "appendonly", "yes"]);
    rewritten();
    eventually("a rewrite begins", || server.has_command(&["BGREWRITEAOF"]));
    rewritten();
    let before = replica.calls("rl.policy");
    ask_ok(&mut server.connect(), "RL.POLICY SET later SLIDE 1 1");
    eventually("what was sent arrives", || {
        replica.calls("rl.policy") > before
    });
    assert_eq!(replica.calls("bgrewriteaof"), 0);
    assert_eq!(replica.info("persistence", "aof_enabled"), "0");
    let mut words = Vec::new();
    let mut folders = vec![server.path("")];
    while let Some(folder) = folders.pop() {
        for file in fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().contains(".aof") {
                words.extend(fs::read(path).unwrap().to_ascii_uppercase());
            }
        }
    }
    let words = String::from_utf8_lossy(&words).into_owned();
    assert!(
        words.contains("RL.POLICY") && !words.contains("REWRITEAOF"),
        "{words}"
    );
}

#[rstest]
fn fixed_costs_and_the_costs_of_calls_are_not_confused(server: Server) {
    let mut con = server.connect();
    let mut six = |line: &str| ask::<CheckReply>(&mut con, line);
    let set =
        |con: &mut Connection, limits: &str| ask_ok(con, &format!("RL.POLICY SET llm {limits}"));
    let mut other = server.connect();

    // Tokens stay tokens when requests are counted as well, in whatever order.
    set(&mut other, "SLIDE 90000 1m");
    assert_eq!(six("RL.CHECK k llm 80000").2, 10_000);
    set(&mut other, "SLIDE 60 1m COST 1 SLIDE 90000 1m");
    assert_eq!(six("RL.CHECK k llm 9000").0, 1);
    let denied = six("RL.CHECK k llm 9000");
    assert_eq!((denied.0, denied.2, denied.5), (0, 1000, 1));
    set(&mut other, "SLIDE 90000 1m SLIDE 60 1m COST 1");
    let denied = six("RL.CHECK k llm 9000");
    assert_eq!((denied.0, denied.2, denied.5), (0, 1000, 0));
    let one = six("RL.CHECK k llm 1");
    assert_eq!((one.0, one.1, one.2), (1, 60, 58));
    // And when they no longer are.
    set(&mut other, "SLIDE 90000 1m");
    assert_eq!(six("RL.CHECK k llm 80000").0, 0);
    set(&mut other, "SLIDE 60 1m COST 1");
    assert_eq!(six("RL.CHECK k llm 80000").2, 57, "the third call");
    // A refund is of units that a call brought.
    assert_eq!(ask::<i64>(&mut other, "RL.REFUND k 500"), 0);
}

#[rstest]
fn two_policies_on_one_key_are_noticed(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET login FIXED 2 3650d");
    ask_ok(&mut con, "RL.POLICY SET search SLIDE 100 1m");
    for _ in 0..3 {
        let _: CheckReply = ask(&mut con, "RL.CHECK k login");
        let _: CheckReply = ask(&mut con, "RL.CHECK k search");
    }
    assert_eq!(server.info_number("rl", "rl_policy_state_resets"), 5);
    // What only asks changes nothing.
    let _: CheckReply = ask(&mut con, "RL.CHECK k login 1 PEEK");
    let _: CheckReply = ask(&mut con, "RL.CHECK k login 0");
    let _: Reply = ask(&mut con, r#"RL.PEEK k "POLICY login 1""#);
    assert_eq!(server.info_number("rl", "rl_policy_state_resets"), 5);
}

#[rstest]
fn having_no_policies_is_restored_too() {
    let folder = TempDir::new();
    let file = folder.root().join("policies.json");
    fs::write(&file, r#"{"policies":{"free":{"limits":["SLIDE 5 1h"]}}}"#).unwrap();
    let module = rl_testkit::module().to_str().unwrap();
    let with_file = folder.root().join("module.conf");
    let line = format!("loadmodule {module} policies {}\n", file.display());
    fs::write(&with_file, line).unwrap();
    let bare = folder.root().join("bare.conf");
    fs::write(&bare, format!("loadmodule {module}\n")).unwrap();

    // The file applies only to data without any record of policies.
    let mut config = rl_testkit::base_config();
    config.extend(["include", bare.to_str().unwrap()]);
    let mut server = Server::without_module(&config);
    let _: () = server.run("SET", &["k", "v"]);
    server.shutdown("SAVE");
    fs::copy(&with_file, &bare).unwrap();
    server.start_again();
    assert_eq!(names(&server), ["free"]);
    // What was deleted stays deleted.
    assert_eq!(
        load(&mut server.connect(), r#"{"policies":{}}"#).unwrap(),
        0
    );
    server.shutdown("SAVE");
    server.start_again();
    assert_eq!(server.run::<String>("GET", &["k"]), "v");
    assert!(names(&server).is_empty());
}

#[rstest]
fn a_policy_state_within_another_is_refused(server: Server) {
    // The version, the head of a policy's state, one rule, no fixed cost, the bytes of its state; and so on inwards.
    let mut blob = Vec::new();
    for _ in 0..20_000 {
        let mut outer = vec![1, 0, 0, 0, 0, 0, 0, 0x50, 0xf0, 1, 0];
        let mut len = blob.len();
        while len >= 128 {
            outer.push(len as u8 | 128);
            len >>= 7;
        }
        outer.push(len as u8);
        outer.append(&mut blob);
        blob = outer;
    }
    let mut con = server.connect();
    let mut call = redis::cmd("RL.LOAD");
    let refused = call
        .arg("k")
        .arg(1_i64 << 42)
        .arg(blob)
        .query::<Value>(&mut con);
    assert!(refused.unwrap_err().to_string().contains("damaged"));
    assert_eq!(ask::<String>(&mut con, "PING"), "PONG");
}

#[rstest]
fn a_server_starts_with_the_policies_of_its_file() {
    let folder = TempDir::new();
    let file = folder.root().join("policies.json");
    fs::write(&file, r#"{"policies":{"free":{"limits":["SLIDE 5 1h"]}}}"#).unwrap();
    let module = rl_testkit::module().to_str().unwrap();
    let include = folder.root().join("module.conf");
    let line = format!("loadmodule {module} policies {}\n", file.display());
    fs::write(&include, line).unwrap();
    let mut config = rl_testkit::base_config();
    config.extend(["appendonly", "yes", "aof-use-rdb-preamble", "no"]);
    config.extend(["include", include.to_str().unwrap()]);
    let mut server = Server::without_module(&config);
    assert_eq!(names(&server), ["free"]);
    ask_ok(&mut server.connect(), "RL.POLICY SET mine SLIDE 1 1");
    server.shutdown("NOSAVE");
    server.start_again();
    assert_eq!(
        names(&server),
        ["free", "mine"],
        "its own data is what counts"
    );
    assert_eq!(server.run::<i64>("RL.POLICY", &["DEL", "free"]), 1);
    server.shutdown("NOSAVE");
    server.start_again();
    assert_eq!(names(&server), ["mine"]);
    // A bad file refuses the load.
    fs::write(
        &file,
        r#"{"policies":{"free":{"limits":["SLIDE 5 oops"]}}}"#,
    )
    .unwrap();
    let bare = Server::without_module(&rl_testkit::base_config());
    for (file, why) in [
        (
            file.to_str().unwrap(),
            "policy \"free\": limit \"SLIDE 5 oops\": window must be a duration",
        ),
        ("/no/such/file", "No such file"),
    ] {
        assert!(
            bare.try_run::<Value>("MODULE", &["LOAD", module, "policies", file])
                .is_err()
        );
        eventually("the log says why", || bare.log().contains(why));
    }
    assert!(
        bare.try_run::<Value>("MODULE", &["LOAD", module, "policies"])
            .is_err()
    );
}

#[rstest]
fn nonsense_is_refused_and_changes_nothing(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 5 1h");
    let long = "x".repeat(129);
    let many = " SLIDE 1 1".repeat(17);
    let note = "n".repeat(1025);
    for (line, error) in [
        ("RL.POLICY NOPE", "ERR unknown subcommand"),
        ("RL.POLICY SET p", "ERR wrong number of arguments"),
        (
            "RL.POLICY SET p SLIDE",
            "ERR incomplete limit: the limit is missing",
        ),
        (
            "RL.POLICY SET p SLIDE 5",
            "ERR incomplete limit: the window is missing",
        ),
        (
            "RL.POLICY SET p SLIDE 5 1m 2",
            "ERR a policy's limit takes no cost",
        ),
        ("RL.POLICY SET p SLIDE 5 1m NOTE", "ERR note must be"),
        ("RL.POLICY GET", "ERR wrong number of arguments"),
        ("RL.POLICY LIST a b", "ERR wrong number of arguments"),
        ("RL.POLICY DUMP x", "ERR wrong number of arguments"),
        ("RL.POLICY LOAD", "ERR wrong number of arguments"),
        ("RL.POLICY LOAD x", "ERR expected value"),
        (
            &format!("RL.POLICY SET {long} SLIDE 1 1"),
            "ERR policy name must be",
        ),
        (
            &format!("RL.POLICY SET p{many}"),
            "ERR a policy must have between 1 and 16",
        ),
        (
            &format!("RL.POLICY SET p SLIDE 1 1 NOTE {note}"),
            "ERR note must be",
        ),
        (
            "RL.POLICY SET p LEASE 1 1 x",
            "ERR a policy cannot contain a LEASE",
        ),
        (
            "RL.POLICY SET p SLIDE 9007199254740992 1",
            "ERR limit must be",
        ),
        ("RL.POLICY SET p SLIDE 1 1 COST -1", "ERR COST of a limit"),
        ("RL.POLICY SET p SLIDE 1 1 COST 0", "ERR COST of a limit"),
        ("RL.CHECK k p -1", "ERR cost must be"),
        ("RL.CHECK k p 9007199254740992", "ERR cost must be"),
        ("RL.CHECK k p 1 PEEK FORCE", "ERR PEEK and FORCE"),
        ("RL.CHECK k p 1 2", "ERR unknown option"),
        ("RL.CHECK k", "ERR wrong number of arguments"),
    ] {
        let text = ask_error(&mut con, line);
        assert!(text.starts_with(error), "{line}: {text}");
    }
    for name in [&b"a\0b"[..], b"a b", b"\xff", b""] {
        let mut call = redis::cmd("RL.POLICY");
        let refused = call
            .arg("SET")
            .arg(name)
            .arg("SLIDE")
            .arg(1)
            .arg(1)
            .exec(&mut con);
        assert!(refused.is_err());
        let unknown = redis::cmd("RL.CHECK").arg("k").arg(name).exec(&mut con);
        assert!(unknown.unwrap_err().to_string().contains("no such policy"));
    }
    let huge = format!(r#"{{"policies":{{}},"x":"{}"}}"#, "x".repeat(17 << 20));
    assert!(
        load(&mut con, &huge)
            .unwrap_err()
            .to_string()
            .contains("at most 16777216 bytes")
    );
    assert_eq!(names(&server), ["p"]);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
}

#[rstest]
fn a_server_keeps_ten_thousand_policies_at_most(server: Server) {
    let mut con = server.connect();
    let all: Vec<String> = (0..10_000)
        .map(|n| format!(r#""p{n}":{{"limits":["SLIDE {n} 1h"]}}"#))
        .collect();
    let json = format!(r#"{{"policies":{{{}}}}}"#, all.join(","));
    assert_eq!(load(&mut con, &json), Ok(10_000));
    let error = ask_error(&mut con, "RL.POLICY SET more SLIDE 1 1");
    assert_eq!(error, "ERR a server keeps at most 10000 policies");
    ask_ok(&mut con, "RL.POLICY SET p7 SLIDE 9 1h");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k p7").2, 8);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k2 p9999").2, 9998);
}

#[rstest]
fn a_server_with_full_memory_keeps_checking_and_refuses_new_policies(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 5 1h SLIDE 9 1d");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK old p").0, 1);
    ask_ok(&mut con, "CONFIG SET maxmemory 1");
    assert!(ask_error(&mut con, "RL.POLICY SET q SLIDE 5 1h").starts_with("OOM"));
    assert!(load(&mut con, r#"{"policies":{}}"#).is_err());
    ask_ok(&mut con, "RL.OVERRIDE SET blocked p BLOCK");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK blocked p").0, 0);
    assert!(ask_error(&mut con, "RL.CHECK new p").starts_with("OOM"));
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK old p").0, 1);
    assert_eq!(ask::<i64>(&mut con, "RL.POLICY DEL p"), 1);
}

#[rstest]
fn a_key_of_three_limits_takes_less_than_half_of_three_keys(server: Server) {
    let mut con = server.connect();
    ask_ok(
        &mut con,
        "RL.POLICY SET p SLIDE 100 1m SLIDE 1000 1h BUCKET 10000 10000 1d",
    );
    let used = |server: &Server| server.info_number("memory", "used_memory");
    // In short pipelines, whose buffers do not count for much.
    let fill = |limit: &str| {
        let mut con = server.connect();
        for n in 0..200 {
            let mut pipe = redis::pipe();
            for n in 100 * n..100 * n + 100 {
                let mut words = limit.split(' ');
                let mut call = redis::cmd(words.next().unwrap());
                let key = format!("{}:{n:012}", words.next().unwrap());
                call.arg(key).arg(words.collect::<Vec<_>>());
                pipe.add_command(call).ignore();
            }
            pipe.exec(&mut con).unwrap();
        }
    };
    fill("RL.CHECK warm p");
    ask_ok(&mut con, "FLUSHALL SYNC");
    let before = used(&server);
    fill("RL.CHECK p p");
    let one = used(&server) - before;
    ask_ok(&mut con, "FLUSHALL SYNC");
    let before = used(&server);
    fill("RL.SLIDE a 100 1m");
    fill("RL.SLIDE b 1000 1h");
    fill("RL.BUCKET c 10000 10000 1d");
    let three = used(&server) - before;
    println!(
        "one key of three limits: {} B; three keys: {} B",
        one / 20_000,
        three / 20_000
    );
    assert!(one * 2 < three, "{one} and {three}");
    let _: Value = try_ask(&mut con, "MEMORY USAGE p:000000000001").unwrap();
}

fn map(fields: &[Value]) -> std::collections::HashMap<String, String> {
    let text = |value: &Value| match value {
        Value::Int(number) => number.to_string(),
        other => redis::from_redis_value(other.clone()).unwrap(),
    };
    let pairs = fields.chunks(2);
    pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

#[rstest]
fn policies_have_statistics(server: Server) {
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 2 1h COST 1 SLIDE 100 1h");
    ask_ok(&mut con, "RL.POLICY SET dry SLIDE 1 1h SHADOW");
    for line in [
        "RL.CHECK k p 10",
        "RL.CHECK k p 10",
        "RL.CHECK k p 10",
        "RL.CHECK k p 500 FORCE",
        "RL.CHECK k p 0",
        "RL.CHECK k p 1 PEEK",
        "RL.CHECK d dry",
        "RL.CHECK d dry",
    ] {
        let _: CheckReply = ask(&mut con, line);
    }
    ask_ok(&mut con, "RL.OVERRIDE SET b p BLOCK");
    let _: CheckReply = ask(&mut con, "RL.CHECK b p 7");
    ask_ok(&mut con, "RL.OVERRIDE SET a p ALLOW");
    let _: CheckReply = ask(&mut con, "RL.CHECK a p 7");
    let stats = |con: &mut Connection, line: &str| map(&ask::<Vec<Value>>(con, line));
    let counted = |con: &mut Connection, line: &str| {
        let stats = stats(con, line);
        ["allowed", "denied", "shadow_denied", "forced"]
            .map(|name| stats[name].parse::<i64>().unwrap())
    };
    assert_eq!(counted(&mut con, "RL.STATS p"), [3, 2, 0, 1]);
    assert_eq!(counted(&mut con, "RL.STATS dry"), [2, 0, 1, 0]);
    assert_eq!(counted(&mut con, "RL.STATS"), [5, 2, 1, 1]);
    assert_eq!(
        ask_error(&mut con, "RL.STATS none"),
        "ERR no such policy 'none'"
    );
    // Usage goes on when the policy changes, and so do its counts.
    ask_ok(&mut con, "RL.POLICY SET p SLIDE 3 1h");
    assert_eq!(counted(&mut con, "RL.STATS p"), [3, 2, 0, 1]);
    let audit: Vec<Vec<Value>> = ask(&mut con, "RL.AUDIT GET");
    let told: Vec<_> = audit.iter().map(|entry| map(entry)).collect();
    let fields = |n: usize| {
        let entry: &std::collections::HashMap<String, String> = &told[n];
        [
            "key",
            "policy",
            "denied_by",
            "limit_index",
            "cost",
            "limit",
            "shadow",
        ]
        .map(|name| entry[name].clone())
    };
    assert_eq!(told.len(), 3);
    assert_eq!(fields(0), ["b", "p", "BLOCK", "-1", "7", "0", "0"]);
    assert_eq!(fields(1), ["d", "dry", "SLIDE 1 1h", "0", "1", "1", "1"]);
    assert_eq!(
        fields(2),
        ["k", "p", "SLIDE 2 1h COST 1", "0", "1", "2", "0"]
    );
    // Several limits at once: each answer counts for its policy.
    let (allowed, _, _): MultiReply = ask(
        &mut con,
        r#"RL.MULTI x "POLICY dry 1" y "POLICY dry 1" z "SLIDE 0 1h 1""#,
    );
    assert_eq!(allowed, 0);
    assert_eq!(
        counted(&mut con, "RL.STATS dry"),
        [2, 0, 1, 0],
        "nothing was decided by them"
    );
    let _: MultiReply = ask(&mut con, r#"RL.MULTI x "POLICY dry 1" d "POLICY dry 1""#);
    assert_eq!(counted(&mut con, "RL.STATS dry"), [4, 0, 2, 0]);
}

/// How a server takes a folder's `dump.rdb`: whether it comes up, and its log.
fn start_from(folder: &std::path::Path) -> (bool, String) {
    let log = folder.join("log");
    let _ = fs::remove_file(&log);
    let mut child = std::process::Command::new(rl_testkit::server_binary())
        .args(["--port", "0", "--unixsocket", "socket"])
        .args(["--save", "", "--dir"])
        .arg(folder)
        .arg("--logfile")
        .arg(&log)
        .arg("--loadmodule")
        .arg(rl_testkit::module())
        .spawn()
        .unwrap();
    let mut text = String::new();
    let mut up = false;
    eventually("the server is up or has given up", || {
        text = fs::read_to_string(&log).unwrap_or_default();
        up = text.contains("now ready to accept connections at")
            || text.contains("Ready to accept connections");
        up || child.try_wait().unwrap().is_some()
    });
    let _ = child.kill();
    let _ = child.wait();
    text = fs::read_to_string(&log).unwrap_or_default();
    (up, text)
}

/// Bits of the policies' part of a file, flipped one at a time: the file is refused in order, or has
/// other policies.
#[rstest]
fn corrupt_policies_in_an_rdb_are_refused_or_harmless() {
    let server = Server::with(&["rdbchecksum", "no", "rdbcompression", "no"]);
    ask_ok(
        &mut server.connect(),
        "RL.POLICY SET free SLIDE 5 1h NOTE x",
    );
    let _: () = server.run("SAVE", &[]);
    let saved = fs::read(server.path("dump.rdb")).unwrap();
    let json: String = server.run("RL.POLICY", &["DUMP"]);
    let start = saved
        .windows(json.len())
        .position(|part| part == json.as_bytes())
        .unwrap();
    let folder = TempDir::new();
    let (mut refused, mut taken) = (0, 0);
    let ahead = 16; // the part's head: type, version, length
    for bit in (0..8 * (ahead + json.len() + 1)).step_by(19) {
        let mut damaged = saved.clone();
        damaged[start - ahead + bit / 8] ^= 1 << (bit % 8);
        fs::write(folder.path("dump.rdb"), damaged).unwrap();
        let (up, log) = start_from(folder.root());
        assert!(!log.contains("BUG REPORT"), "bit {bit}: {log}");
        if up {
            taken += 1;
        } else {
            refused += 1;
        }
    }
    fs::write(folder.path("dump.rdb"), &saved).unwrap();
    assert!(start_from(folder.root()).0);
    println!("{refused} refused, {taken} taken");
    assert!(refused > 0, "{taken} taken");
}
