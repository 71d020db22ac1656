//! `rl check`, `override`, `audit` and `stats`, and what they say when something is wrong.

#![allow(clippy::unwrap_used)]

mod rl;

use redis::Value;
use rl::support::Server;
use rl::{Cluster, command, name, rl, url};
use rstest::rstest;
use serde_json::json;

#[rstest]
fn a_check_answers_by_words_and_exit_code() {
    let server = Server::start();
    let url = url(&server);
    let _: () = server.run(
        "RL.POLICY",
        &["SET", "free", "SLIDE", "3", "1h", "SLIDE", "100", "1d"],
    );
    let check = rl(&url, &["check", "user:42", "free", "2"]).exits(0);
    assert!(
        check
            .out
            .starts_with("allowed: 1 of 3 left, by limit 0 of the policy"),
        "{}",
        check.out
    );
    let peek = rl(&url, &["check", "user:42", "free", "--peek", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        (&peek["allowed"], &peek["remaining"], &peek["index"]),
        (&json!(true), &json!(0), &json!(0))
    );
    let denied = rl(&url, &["check", "user:42", "free", "2"]).exits(1);
    assert!(
        denied
            .out
            .starts_with("denied by limit 0 of the policy: 1 of 3 left; retry in "),
        "{}",
        denied.out
    );
    let never = rl(&url, &["check", "user:42", "free", "4"]).exits(1);
    assert!(never.out.contains("it can never pass"), "{}", never.out);
    rl(&url, &["check", "user:42", "free", "2", "--force"]).exits(0);
    rl(&url, &["check", "user:42", "free", "--peek", "--force"]).exits(2);
}

#[rstest]
fn overrides_come_and_go() {
    let server = Server::start();
    let url = url(&server);
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
            .contains("49 of 50 left")
    );
    rl(&url, &["override", "set", "user:42", "free", "block"]).exits(0);
    let denied = rl(&url, &["check", "user:42", "free"]).exits(1);
    assert_eq!(denied.out, "denied by an override: it can never pass\n");
    let get = rl(&url, &["override", "get", "user:42", "--json"])
        .exits(0)
        .json();
    assert_eq!(
        get,
        json!([{"policy": "free", "override": "BLOCK", "ends_in_ms": -1, "note": ""}])
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
    rl(&url, &["override", "del", "user:42", "free"]).exits(1);
    assert_eq!(
        rl(&url, &["override", "get", "user:42"]).exits(0).out,
        "none\n"
    );
    let wrong = rl(&url, &["override", "set", "user:42", "free", "SCALE", "5"]).exits(2);
    assert!(wrong.err.contains("ERR"), "{}", wrong.err);
}

#[rstest]
fn a_cluster_is_one() {
    let cluster = Cluster::start();
    for node in &cluster.nodes {
        let _: () = node.run("RL.POLICY", &["SET", "free", "SLIDE", "2", "1h"]);
    }
    // Keys everywhere, asked at one node; the third check of each is denied.
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
    let total = &stats["total"];
    // The override's check is in both or in neither: the servers say.
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
    assert_eq!(total["policies"]["free"]["denied"], json!(12));
    assert_eq!(stats["nodes"].as_object().unwrap().len(), 3);
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
    let audit = audit.as_array().unwrap();
    assert_eq!(audit.len(), 12);
    assert!(
        audit
            .windows(2)
            .all(|two| two[0]["time_ms"].as_u64() >= two[1]["time_ms"].as_u64())
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
        "no denials are on record\n"
    );
}

#[rstest]
fn figures_that_are_missing_are_told() {
    let mut cluster = Cluster::start();
    cluster.nodes[1].kill();
    let dead = name(&cluster.nodes[1]);
    for args in [&["stats"][..], &["audit"], &["top"]] {
        let run = rl(&cluster.url(), args).exits(2);
        assert!(
            run.err.contains(&dead) && !run.out.is_empty(),
            "{args:?}: {}{}",
            run.out,
            run.err
        );
    }
}

#[rstest]
fn errors_say_what_to_do() {
    let server = Server::start();
    let address = url(&server);
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
        error["error"].as_str().unwrap().contains("no such policy") && error["do"].is_string(),
        "{error}"
    );

    let bare = Server::start_bare(&[], &[]);
    let no_module = rl(&url(&bare), &["stats"]).exits(2);
    assert!(no_module.err.contains("loadmodule"), "{}", no_module.err);

    let _: Value = bare.run("CONFIG", &["SET", "requirepass", "secret"]);
    let no_password = rl(&url(&bare), &["stats"]).exits(2);
    assert!(
        no_password.err.contains("NOAUTH") && no_password.err.contains("RL_PASSWORD"),
        "{}",
        no_password.err
    );
    let wrong = format!("redis://:wrong@{}", name(&bare));
    let wrong = rl(&wrong, &["stats"]).exits(2);
    assert!(
        wrong.err.contains("RL_PASSWORD") && !wrong.err.contains("wrong@"),
        "{}",
        wrong.err
    );
    let right = command(&url(&bare), &["stats"])
        .env("RL_PASSWORD", "secret")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&right.stderr).contains("loadmodule"));

    let nobody = rl("redis://127.0.0.1:1", &["doctor"]).exits(2);
    assert!(
        nobody.err.contains("127.0.0.1:1: ") && nobody.err.contains("--url"),
        "{}",
        nobody.err
    );
    let tls = rl("rediss://127.0.0.1", &["doctor"]).exits(2);
    assert!(tls.err.contains("no TLS"), "{}", tls.err);
    let nonsense = rl("http://127.0.0.1", &["doctor"]).exits(2);
    assert!(
        nonsense.err.contains("write --url redis://"),
        "{}",
        nonsense.err
    );
}
