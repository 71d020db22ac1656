//! `rl check`, `override`, `audit` and `stats`, and what they say when something is wrong.

use redis::Value;
use rl_testkit::{Cluster, Server};
use rstest::rstest;
use serde_json::json;

use crate::support::{command, rl};

#[rstest]
fn a_check_replies_in_text_and_by_exit_code() {
    let server = Server::start();
    let url = server.url();
    let _: () = server.run(
        "RL.POLICY",
        &["SET", "free", "SLIDE", "3", "1h", "SLIDE", "100", "1d"],
    );
    let check = rl(&url, &["check", "user:42", "free", "2"]).exits(0);
    assert!(
        check
            .out
            .starts_with("allowed: 1 of 3 left (SLIDE 3 1h); fully reset in "),
        "{}",
        check.out
    );
    let peek = rl(&url, &["check", "user:42", "free", "--peek", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        (&peek["allowed"], &peek["remaining"], &peek["limit_index"]),
        (&json!(true), &json!(0), &json!(0))
    );
    assert_eq!(
        (&peek["decided_by"], &peek["mode"]),
        (&json!("SLIDE 3 1h"), &json!("peek"))
    );
    let denied = rl(&url, &["check", "user:42", "free", "2"]).exits(1);
    assert!(
        denied
            .out
            .starts_with("denied: 1 of 3 left (SLIDE 3 1h); retry in "),
        "{}",
        denied.out
    );
    let never = rl(&url, &["check", "user:42", "free", "4"]).exits(1);
    assert!(
        never.out.contains("it can never be allowed"),
        "{}",
        never.out
    );
    let never = rl(&url, &["check", "user:42", "free", "4", "--json"]).exits(1);
    assert_eq!(never.json()["retry_after_ms"], json!(null));
    let forced = rl(&url, &["check", "user:42", "free", "2", "--force"]).exits(0);
    assert!(
        forced.out.starts_with("forced: 0 of 3 left (SLIDE 3 1h); "),
        "{}",
        forced.out
    );
    rl(&url, &["check", "user:42", "free", "--peek", "--force"]).exits(2);
}

#[rstest]
fn several_calls_and_brief_replies() {
    let server = Server::start();
    let url = server.url();
    let _: () = server.run("RL.POLICY", &["SET", "free", "FIXED", "10", "3650d"]);
    let four = rl(&url, &["check", "k", "free", "--times", "4"]).exits(0);
    assert!(
        four.out.starts_with("allowed 4 calls: 6 of 10 left"),
        "{}",
        four.out
    );
    let some = [
        "check",
        "k",
        "free",
        "--times",
        "9",
        "--at-least",
        "2",
        "--json",
    ];
    let some = rl(&url, &some).exits(0).json();
    assert_eq!(
        (&some["allowed_calls"], &some["remaining"]),
        (&json!(6), &json!(0))
    );
    let brief = rl(&url, &["check", "k", "free", "--brief"]).exits(1);
    assert!(brief.out.starts_with('-'), "{}", brief.out);
    let brief = rl(
        &url,
        &["check", "new", "free", "--brief", "--peek", "--json"],
    )
    .exits(0);
    assert_eq!(
        brief.json(),
        json!({ "mode": "peek", "allowed": true, "reply": 9 })
    );
    rl(&url, &["check", "k", "free", "--at-least", "2"]).exits(2);
    rl(&url, &["check", "k", "free", "--times", "0"]).exits(2);
    let brief = [
        "check",
        "k",
        "free",
        "--times",
        "9",
        "--at-least",
        "2",
        "--brief",
    ];
    rl(&url, &brief).exits(2);
}

#[rstest]
fn several_limits_are_charged_together_or_the_first_with_room() {
    let server = Server::start();
    let url = server.url();
    let limits = ["own", "FIXED 2 3650d", "pool", "FIXED 9 3650d 3"];
    let call =
        |command: &str, options: &[&str]| rl(&url, &[&[command][..], &limits, options].concat());
    let both = call("multi", &[]).exits(0);
    let lines: Vec<&str> = both.out.lines().collect();
    assert_eq!(lines[0], "allowed");
    assert!(lines[1].starts_with("own: allowed: 1 of 2 left (FIXED 2 3650d)"));
    assert!(lines[2].starts_with("pool: allowed: 6 of 9 left (FIXED 9 3650d 3)"));
    let some = call("multi", &["--times", "5", "--at-least", "1", "--json"]).exits(0);
    let some = some.json();
    assert_eq!(some["allowed_calls"], json!(1));
    assert_eq!(some["limits"][1]["allowed_calls"], json!(2));
    let denied = call("multi", &[]).exits(1);
    assert!(
        denied.out.starts_with("denied: retry in "),
        "{}",
        denied.out
    );
    let first = call("first", &[]).exits(0);
    assert!(
        first
            .out
            .starts_with("pool: allowed: 0 of 9 left (FIXED 9 3650d 3)"),
        "{}",
        first.out
    );
    let denied = call("first", &["--json"]).exits(1).json();
    assert_eq!(
        (&denied["index"], &denied["key"], &denied["allowed"]),
        (&json!(0), &json!("own"), &json!(false))
    );
    assert!(call("first", &["--brief"]).exits(1).out.starts_with('-'));
    let forced = call("first", &["--force", "--times", "2"]).exits(0);
    assert!(
        forced.out.starts_with("own: forced 2 calls: 0 of 2 left"),
        "{}",
        forced.out
    );
    rl(&url, &["first", "own", "FIXED 2 1h", "pool"]).exits(2);
}

#[rstest]
fn a_quota_by_the_calendar_is_checked_and_overridden() {
    let server = Server::start();
    let url = server.url();
    let words = ["SET", "plan", "FIXED", "3", "month", "OFFSET", "-9h"];
    let _: () = server.run("RL.POLICY", &words);
    let check = rl(&url, &["check", "acme", "plan", "2"]).exits(0);
    let text = "allowed: 1 of 3 left (FIXED 3 month OFFSET -9h); fully reset in ";
    assert!(check.out.starts_with(text), "{}", check.out);
    let more = ["override", "set", "acme", "plan", "FIXED", "9", "year"];
    rl(&url, &more).exits(0);
    let check = rl(&url, &["check", "acme", "plan", "2"]).exits(0);
    let text = "allowed: 5 of 9 left (FIXED 9 year); fully reset in ";
    assert!(check.out.starts_with(text), "{}", check.out);
}

#[rstest]
fn overrides_are_set_shown_and_deleted() {
    let server = Server::start();
    let url = server.url();
    let _: () = server.run("RL.POLICY", &["SET", "free", "SLIDE", "10", "1h"]);
    let set = [
        "override",
        "set",
        "user:42",
        "free",
        "SCALE",
        "5",
        "1",
        "--for",
        "30m",
        "--note",
        "until Monday",
    ];
    let set = rl(&url, &set).exits(0);
    assert!(
        set.out.contains("SCALE 5 1")
            && set.out.contains("until Monday")
            && (set.out.contains("29m ") || set.out.contains("30m ")),
        "{}",
        set.out
    );
    assert!(
        rl(&url, &["check", "user:42", "free"])
            .exits(0)
            .out
            .contains("49 of 50 left (SLIDE 50 1h)")
    );
    rl(&url, &["override", "set", "user:42", "free", "block"]).exits(0);
    let denied = rl(&url, &["check", "user:42", "free"]).exits(1);
    assert_eq!(
        denied.out,
        "denied by an override (BLOCK): it can never be allowed\n"
    );
    let denied = rl(&url, &["check", "user:42", "free", "--json"]).exits(1);
    assert_eq!(
        (&denied.json()["limit_index"], &denied.json()["decided_by"]),
        (&json!(null), &json!("BLOCK"))
    );
    let get = rl(&url, &["override", "get", "user:42", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        get,
        json!({"key": "user:42", "overrides": [
            {"policy": "free", "action": "BLOCK", "expires_in_ms": null, "note": ""}
        ]})
    );
    rl(
        &url,
        &["override", "set", "user:42", "free", "SLIDE 500 60"],
    )
    .exits(0);
    assert!(
        rl(&url, &["override", "get", "user:42"])
            .exits(0)
            .out
            .contains("SLIDE 500 1m")
    );
    assert_eq!(
        rl(&url, &["override", "del", "user:42", "free"])
            .exits(0)
            .out,
        "removed\n"
    );
    let del = ["override", "del", "user:42", "free"];
    rl(&url, &del).exits(1);
    let none = rl(&url, &[&del[..], &["--json"]].concat()).exits(1).json();
    assert_eq!(none["removed"], json!(false));
    assert_eq!(
        rl(&url, &["override", "get", "user:42"]).exits(1).out,
        "none\n"
    );
    let none = rl(&url, &["override", "get", "user:42", "--json"]).exits(1);
    assert_eq!(none.json()["overrides"], json!([]));
    for (wrong, says) in [
        (&["SCALE", "5"][..], "SCALE num den"),
        (&["SLIDE", "5", "1y"], "window must be a duration"),
        (&["BLOCK", "--for", "1y"], "duration between 1ms and 3650d"),
    ] {
        let args = [&["override", "set", "user:42", "free"], wrong].concat();
        let run = rl(&url, &args).exits(2);
        assert!(run.err.contains(says), "{wrong:?}: {}", run.err);
    }
}

#[rstest]
fn a_replica_leads_to_its_primary() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let _: () = primary.run("RL.POLICY", &["SET", "free", "SLIDE", "2", "1h"]);
    primary.wait_for(&replica);
    let url = replica.url();
    for code in [0, 0, 1] {
        rl(&url, &["check", "user:42", "free"]).exits(code);
    }
    assert_eq!(primary.run::<i64>("EXISTS", &["user:42"]), 1);
    rl(&url, &["override", "set", "user:42", "free", "ALLOW"]).exits(0);
    rl(&url, &["check", "user:42", "free"]).exits(0);
    rl(&url, &["override", "get", "user:42"]).exits(0);
    rl(&url, &["override", "del", "user:42", "free"]).exits(0);
    rl(&url, &["override", "get", "user:42"]).exits(1);
}

#[rstest]
fn a_cluster_is_used_as_a_whole() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        let _: () = node.run("RL.POLICY", &["SET", "free", "SLIDE", "2", "1h"]);
    }
    // Keys on every node, checked through one node; the third check of each is denied.
    for n in 0..12 {
        let key = format!("user:{n}");
        for code in [0, 0, 1] {
            rl(&cluster.url(), &["check", &key, "free"]).exits(code);
        }
    }
    assert!(
        cluster
            .nodes
            .iter()
            .all(|node| node.run::<i64>("DBSIZE", &[]) > 0)
    );
    rl(
        &cluster.url(),
        &["override", "set", "user:3", "free", "ALLOW"],
    )
    .exits(0);
    rl(&cluster.url(), &["check", "user:3", "free"]).exits(0);

    let stats = rl(&cluster.url(), &["stats", "--json"]).exits(0).json();
    let total = &stats["all_nodes"]["total"];
    // Compare with what the servers count, whether or not they count the check that the override allowed.
    let sum = |field: &str| -> i64 {
        let of = |node: &Server| {
            node.run::<std::collections::HashMap<String, i64>>("RL.STATS", &[])[field]
        };
        cluster.nodes.iter().map(of).sum()
    };
    assert_eq!(total["denied"], json!(12));
    assert_eq!(
        (&total["allowed"], &total["denied"]),
        (&json!(sum("allowed")), &json!(sum("denied")))
    );
    assert_eq!(stats["policies"][0]["policy"], "free");
    assert_eq!(stats["policies"][0]["total"]["denied"], json!(12));
    assert_eq!(stats["policies"][0]["total"]["refunded_units"], json!(null));
    assert_eq!(stats["nodes"].as_array().unwrap().len(), 3);
    assert!(stats["nodes"][0]["node"].is_string(), "{stats}");
    let one = rl(&cluster.url(), &["stats", "free"]).exits(0);
    assert!(
        one.out.contains("free") && one.out.contains("12"),
        "{}",
        one.out
    );
    assert_eq!(one.out.lines().count(), 5, "{}", one.out);

    let audit = rl(&cluster.url(), &["audit", "-n", "100", "--json"])
        .exits(0)
        .json();
    let audit = audit["denials"].as_array().unwrap();
    assert_eq!(audit.len(), 12);
    assert!(
        audit
            .windows(2)
            .all(|two| two[0]["occurred_at_ms"].as_u64() >= two[1]["occurred_at_ms"].as_u64())
    );
    let audit = rl(&cluster.url(), &["audit", "--key", "user:7"]).exits(0);
    assert_eq!(audit.out.lines().count(), 2, "{}", audit.out);
    assert!(
        audit.out.contains("user:7") && audit.out.contains("SLIDE 2 1h"),
        "{}",
        audit.out
    );
    assert_eq!(
        rl(&cluster.url(), &["audit", "--key", "nobody"])
            .exits(0)
            .out,
        "no denials are recorded\n"
    );
}

#[rstest]
fn a_node_that_does_not_answer_is_reported() {
    let mut cluster = Cluster::start();
    cluster.nodes[1].kill();
    let down = cluster.nodes[1].address();
    for args in [&["stats"][..], &["audit"], &["top"]] {
        let run = rl(&cluster.url(), args).exits(2);
        assert!(
            run.err.contains(&down) && !run.out.is_empty(),
            "{args:?}: {}{}",
            run.out,
            run.err
        );
        let json = rl(&cluster.url(), &[args, &["--json"]].concat()).exits(2);
        assert_eq!(json.json()["failed_nodes"][0]["node"], down, "{args:?}");
    }
}

#[rstest]
fn errors_say_what_to_do() {
    let server = Server::start();
    let address = server.url();
    let unknown = rl(&address, &["check", "k", "nothing"]).exits(2);
    assert!(
        unknown.err.contains("ERR no such policy") && unknown.err.contains("rl policy push"),
        "{}",
        unknown.err
    );
    let error: serde_json::Value = serde_json::from_str(
        &rl(&address, &["check", "k", "nothing", "--json"])
            .exits(2)
            .err,
    )
    .unwrap();
    assert!(
        error["error"].as_str().unwrap().contains("no such policy") && error["hint"].is_string(),
        "{error}"
    );

    let wrong = rl(&address, &["check", "--json", "k"]).exits(2);
    let error: serde_json::Value = serde_json::from_str(&wrong.err).unwrap();
    assert!(
        error["error"].as_str().unwrap().contains("<POLICY>")
            && error["hint"].as_str().unwrap().contains("rl check"),
        "{error}"
    );
    assert!(
        rl(&address, &["--json", "--help"])
            .exits(0)
            .out
            .contains("Usage:")
    );

    let bare = Server::without_module(&[]);
    let no_module = rl(&bare.url(), &["stats"]).exits(2);
    assert!(no_module.err.contains("loadmodule"), "{}", no_module.err);

    let _: Value = bare.run("CONFIG", &["SET", "requirepass", "secret"]);
    let no_password = rl(&bare.url(), &["stats"]).exits(2);
    assert!(
        no_password.err.contains("NOAUTH") && no_password.err.contains("RL_PASSWORD"),
        "{}",
        no_password.err
    );
    let wrong = format!("redis://:wrong@{}", bare.address());
    let wrong = rl(&wrong, &["stats"]).exits(2);
    assert!(
        wrong.err.contains("RL_PASSWORD") && !wrong.err.contains("wrong@"),
        "{}",
        wrong.err
    );
    let right = command(&bare.url(), &["stats"])
        .env("RL_PASSWORD", "secret")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&right.stderr).contains("loadmodule"));

    let refused = rl("redis://127.0.0.1:1", &["doctor"]).exits(2);
    assert!(
        refused.err.contains("127.0.0.1:1: ") && refused.err.contains("--url"),
        "{}",
        refused.err
    );
    let tls = rl("rediss://127.0.0.1", &["doctor"]).exits(2);
    assert!(tls.err.contains("TLS"), "{}", tls.err);
    let nonsense = rl("http://127.0.0.1", &["doctor"]).exits(2);
    assert!(
        nonsense.err.contains("write --url redis://"),
        "{}",
        nonsense.err
    );
}

#[rstest]
fn a_reservation_is_settled_once() {
    let server = Server::start();
    let url = server.url();
    let reserve = |id: &str, cost: &str| {
        let spec = format!("SLIDE 1000 1h {cost}");
        rl(&url, &["reserve", id, "5m", "{a}:tpm", &spec, "--json"])
    };
    let reserved = reserve("{a}:r1", "600").exits(0).json();
    assert_eq!(
        (
            &reserved["allowed_calls"],
            &reserved["limits"][0]["remaining"]
        ),
        (&json!(1), &json!(400))
    );
    assert_eq!(reserved["limits"][0]["key"], json!("{a}:tpm"));
    assert!(
        reserved["spend_ms"]
            .as_u64()
            .is_some_and(|ms| ms > 3_500_000)
    );
    assert_eq!(
        reserve("{a}:r2", "600").exits(1).json()["allowed_calls"],
        json!(0)
    );
    let settle = |actual: &str| rl(&url, &["settle", "{a}:r1", "1", "{a}:tpm", actual]);
    for actual in ["140", "900"] {
        let settled = settle(actual).exits(0);
        assert_eq!(settled.out, "KEY      CHARGED\n{a}:tpm      140\n");
    }
    let text = rl(
        &url,
        &["reserve", "{a}:r3", "5m", "{a}:tpm", "SLIDE 1000 1h 60"],
    )
    .exits(0);
    assert!(
        text.out.starts_with("reserved 1: spend it within "),
        "{}",
        text.out
    );
    assert!(
        text.out
            .ends_with("KEY      LEFT  LIMIT\n{a}:tpm   800   1000\n"),
        "{}",
        text.out
    );
    let unknown = rl(&url, &["settle", "{a}:r4", "1", "{a}:tpm", "1", "--json"]).exits(1);
    assert_eq!(unknown.json()["found"], json!(false));
    rl(&url, &["reserve", "{a}:r5", "5m", "{a}:tpm"]).exits(2);
}
