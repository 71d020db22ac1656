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
