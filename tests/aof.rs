//! The AOF holds states: replaying or rewriting it, in either format, gives back what was.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::fs;

use rstest::rstest;
use support::{Five, Multi, Random, Server, ask, eventually, mixed_calls};

type Picture = BTreeMap<String, (String, i64)>;

fn picture(server: &Server) -> Picture {
    let keys: Vec<String> = server.run("KEYS", &["*"]);
    let one = |key: String| {
        let state = (server.digest(&key), server.expire_at_ms(&key));
        (key, state)
    };
    keys.into_iter().map(one).collect()
}

fn assert_same(before: &Picture, after: &Picture) {
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        after.keys().collect::<Vec<_>>()
    );
    for (key, (digest, expiry)) in before {
        assert_eq!(digest, &after[key].0, "state of {key}");
        assert!((expiry - after[key].1).abs() <= 2, "expiry of {key}");
    }
}

fn some_calls(server: &Server) {
    let mut con = server.connect();
    for n in 0..20 {
        for line in [
            format!(
                "RL.SLIDE p{n} 70000 1h {} PRECISION {}",
                1 + n * 3000,
                n + 1
            ),
            format!("RL.FIXED f{n} 100 3650d {}", n + 1),
            format!("RL.EXACT x{} 100 1h {}", n % 4, n % 5),
            format!("RL.LEAK l{n} 100 1 1h {}", n + 1),
            format!("RL.LEASE h{} 100 1h holder{n} 2", n % 4),
        ] {
            ask::<Five>(&mut con, &line);
        }
    }
    for line in [
        "RL.REFUND x1 3",
        "RL.REFUND l3 1",
        "RL.REFUND f4 5",
        "RL.RELEASE h2 holder2",
    ] {
        assert!(ask::<i64>(&mut con, line) > 0, "{line}");
    }
    for n in 0..20 {
        let _: Five = server.run("RL.SLIDE", &[&format!("s{n}"), "10", "1h", "3"]);
        let _: Five = server.run(
            "RL.BUCKET",
            &[&format!("b{n}"), "100000", "1", "1h", "9999"],
        );
        let _: Five = server.run(
            "RL.SLIDE",
            &["wide", "9007199254740991", "3650d", "1099511627776"],
        );
        let _: Multi = server.run(
            "RL.MULTI",
            &[
                "s1",
                "SLIDE",
                "10",
                "1h",
                "1",
                &format!("m{n}"),
                "BUCKET",
                "5",
                "5",
                "1h",
                "1",
            ],
        );
    }
}

/// Everything the AOF consists of: one file, or from 7.0 on a folder of them.
fn aof_bytes(server: &Server) -> Vec<u8> {
    let mut all = fs::read(server.path("appendonly.aof")).unwrap_or_default();
    if let Ok(files) = fs::read_dir(server.path("appendonlydir")) {
        for file in files {
            all.extend(fs::read(file.unwrap().path()).unwrap());
        }
    }
    all
}

fn contains(bytes: &[u8], word: &str) -> bool {
    bytes
        .windows(word.len())
        .any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
}

#[rstest]
fn replaying_gives_back_the_same_states() {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]);
    some_calls(&server);
    let before = picture(&server);
    let aof = aof_bytes(&server);
    assert!(contains(&aof, "RL.LOAD"));
    for command in [
        "RL.SLIDE",
        "RL.BUCKET",
        "RL.FIXED",
        "RL.EXACT",
        "RL.LEAK",
        "RL.LEASE",
        "RL.MULTI",
        "RL.REFUND",
        "RL.RELEASE",
    ] {
        assert!(!contains(&aof, command), "{command} would be decided again");
    }
    server.kill();
    server.start_again();
    assert_same(&before, &picture(&server));
    let five: Five = server.run("RL.SLIDE", &["s0", "10", "1h", "0"]);
    assert_eq!(five.2, 7);
}

#[rstest]
#[case::as_commands("no")]
#[case::as_rdb("yes")]
fn rewriting_keeps_states_and_expiry(#[case] preamble: &str) {
    let config = [
        "appendonly",
        "yes",
        "appendfsync",
        "always",
        "aof-use-rdb-preamble",
        preamble,
    ];
    let mut server = Server::with(&config);
    some_calls(&server);
    let before = picture(&server);
    let _: () = server.run("BGREWRITEAOF", &[]);
    eventually("rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    assert_eq!(
        server.info("persistence", "aof_last_bgrewrite_status"),
        "ok"
    );
    server.shutdown("NOSAVE");
    server.start_again();
    assert_same(&before, &picture(&server));
    assert!(!before.is_empty());
}

/// What does not expire within the next minute, so that a restart may take a while.
fn lasting(mut picture: Picture, server: &Server) -> Picture {
    let (seconds, _): (i64, i64) = server.run("TIME", &[]);
    picture.retain(|_, (_, expiry)| *expiry > (seconds + 60) * 1000);
    picture
}

#[rstest]
#[case::as_commands("no")]
#[case::as_rdb("yes")]
fn a_rewrite_in_the_middle_of_mixed_calls_misses_nothing(#[case] preamble: &str) {
    let mut server = Server::with(&[
        "appendonly",
        "yes",
        "appendfsync",
        "always",
        "aof-use-rdb-preamble",
        preamble,
    ]);
    let (mut con, mut random) = (server.connect(), Random(21));
    for round in 0..6 {
        // Keys that last, of the kinds that are changed in place.
        for n in 0..200 {
            let _: Five = ask(
                &mut con,
                &format!("RL.EXACT log{} 9999 1h {}", n % 3, n % 4),
            );
            let _: Five = ask(
                &mut con,
                &format!("RL.LEASE list{} 999 1h holder{n}", n % 3),
            );
        }
        assert_eq!(
            ask::<i64>(&mut con, &format!("RL.REFUND log{} 17", round % 3)),
            17
        );
        assert_eq!(
            ask::<i64>(
                &mut con,
                &format!("RL.RELEASE list1 holder{}", 1 + 3 * round)
            ),
            1
        );
        mixed_calls(&mut con, &mut random, 300);
        if round == 2 || round == 4 {
            let _: () = server.run("BGREWRITEAOF", &[]);
        }
    }
    eventually("rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    let before = lasting(picture(&server), &server);
    assert!(before.len() > 20, "{before:?}");
    server.kill();
    server.start_again();
    assert_same(&before, &lasting(picture(&server), &server));
}

#[rstest]
fn an_aof_switched_on_under_load_misses_nothing() {
    let mut server = Server::with(&["appendfsync", "always", "aof-use-rdb-preamble", "no"]);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut con = server.connect();
            for n in 0..4000 {
                let key = format!("k{}", n % 50);
                let _: Five = redis::cmd("RL.SLIDE")
                    .arg(key)
                    .arg(100_000)
                    .arg("1h")
                    .arg(1)
                    .query(&mut con)
                    .unwrap();
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        let _: () = server.run("CONFIG", &["SET", "appendonly", "yes"]);
        load.join().unwrap();
    });
    eventually("rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    let before = picture(&server);
    server.config(&["appendonly", "yes"]);
    server.kill();
    server.start_again();
    assert_same(&before, &picture(&server));
    assert!(!contains(&aof_bytes(&server), "RL.SLIDE"));
}
