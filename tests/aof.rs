//! The AOF contains states: replaying or rewriting it, in either format, restores the data.

use std::fs;

use rl_testkit::{
    ALL_SLOTS, MultiReply, Random, Reply, Server, Snapshot, ask, assign_slots, base_config,
    eventually, module, random_calls,
};
use rstest::rstest;

fn assert_same(before: &Snapshot, after: &Snapshot) {
    before.assert_same(after);
}

fn some_calls(server: &Server) {
    let mut con = server.connect();
    for n in 0..20 {
        for line in [
            format!(
                "RL.SLIDE p{n} 70000 1h {} PRECISION {}",
                1 + n * 3000,
                n + 2
            ),
            format!("RL.FIXED f{n} 100 3650d {}", n + 1),
            format!("RL.EXACT x{} 100 1h {}", n % 4, n % 5),
            format!("RL.LEAK l{n} 100 1 1h {}", n + 1),
            format!("RL.LEASE h{} 100 1h holder{n} 2", n % 4),
        ] {
            ask::<Reply>(&mut con, &line);
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
        let _: Reply = server.run("RL.SLIDE", &[&format!("s{n}"), "10", "1h", "3"]);
        let _: Reply = server.run(
            "RL.BUCKET",
            &[&format!("b{n}"), "100000", "1", "1h", "9999"],
        );
        let _: Reply = server.run(
            "RL.SLIDE",
            &["wide", "9007199254740991", "3650d", "1099511627776"],
        );
        let _: MultiReply = server.run(
            "RL.MULTI",
            &["s1", "SLIDE 10 1h", &format!("m{n}"), "BUCKET 5 5 1h"],
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
fn replaying_restores_the_same_states() {
    let mut server = Server::with(&["appendonly", "yes", "appendfsync", "always"]);
    some_calls(&server);
    let before = server.snapshot();
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
    assert_same(&before, &server.snapshot());
    let reply: Reply = server.run("RL.SLIDE", &["s0", "10", "1h", "0"]);
    assert_eq!(reply.2, 7);
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
    let before = server.snapshot();
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
    assert_same(&before, &server.snapshot());
    assert!(!before.keys.is_empty());
}

#[rstest]
#[case::as_commands("no")]
#[case::as_rdb("yes")]
fn a_rewrite_under_load_misses_nothing(#[case] preamble: &str) {
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
            let _: Reply = ask(
                &mut con,
                &format!("RL.EXACT log{} 9999 1h {}", n % 3, n % 4),
            );
            let _: Reply = ask(
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
        random_calls(&mut con, &mut random, 300);
        if round == 2 || round == 4 {
            eventually("a rewrite is begun", || {
                // Not while another one runs.
                server.has_command(&["BGREWRITEAOF"])
            });
        }
    }
    eventually("rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    let before = server.snapshot();
    assert!(before.keys.len() > 20, "{before:?}");
    server.kill();
    server.start_again();
    assert_same(&before, &server.snapshot());
}

#[rstest]
fn an_aof_switched_on_under_load_misses_nothing() {
    let mut server = Server::with(&["appendfsync", "always", "aof-use-rdb-preamble", "no"]);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut con = server.connect();
            for n in 0..4000 {
                let key = format!("k{}", n % 50);
                let _: Reply = redis::cmd("RL.SLIDE")
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
    let before = server.snapshot();
    server.add_config(&["appendonly", "yes"]);
    server.kill();
    server.start_again();
    assert_same(&before, &server.snapshot());
    assert!(!contains(&aof_bytes(&server), "RL.SLIDE"));
}

fn wait_until_rewritten(server: &Server) {
    eventually("rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    let status = server.info("persistence", "aof_last_bgrewrite_status");
    assert_eq!(status, "ok", "{}", server.log());
}

fn rewrite(server: &Server) {
    eventually("a rewrite starts", || server.has_command(&["BGREWRITEAOF"]));
    wait_until_rewritten(server);
}

#[rstest]
#[case::as_commands("no")]
#[case::as_rdb("yes")]
fn an_expiry_set_by_hand_survives_a_rewrite(#[case] preamble: &str) {
    let mut server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", preamble]);
    some_calls(&server);
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h SLIDE 9 1h COST 1");
    ask::<()>(&mut con, "RL.OVERRIDE SET k p BLOCK EX 1h");
    let _: Vec<i64> = ask(&mut con, "RL.CHECK c p");
    for key in ["s1", "b1", "x1", "h1", "c", "rl:override:{k}"] {
        if ask::<i64>(&mut con, &format!("EXISTS {key}")) == 1 {
            assert_eq!(ask::<i64>(&mut con, &format!("PERSIST {key}")), 1, "{key}");
        }
    }
    assert_eq!(ask::<i64>(&mut con, "PEXPIRE s2 99999999"), 1);
    rewrite(&server);
    let before = server.snapshot();
    assert_eq!(before.keys["s1"].1, -1);
    server.kill();
    server.start_again();
    assert_same(&before, &server.snapshot());
}

fn policies(server: &Server) -> String {
    server.run("RL.POLICY", &["DUMP"])
}

/// Nothing may be sent while writes are paused, so the rewritten file itself has to have the policies.
#[rstest]
fn a_rewrite_during_a_pause_contains_the_policies(
    #[values("no", "yes")] preamble: &str,
    #[values(false, true)] with_keys: bool,
) {
    let mut server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", preamble]);
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h");
    if with_keys {
        some_calls(&server);
        ask::<()>(&mut con, "SET other value");
    }
    let before = (policies(&server), server.snapshot());
    ask::<()>(&mut con, "CLIENT PAUSE 600000 WRITE");
    rewrite(&server);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), before.1.keys.len() as i64);
    server.kill();
    server.start_again();
    assert_eq!(policies(&server), before.0);
    // And nothing else: no key that only a rewrite knows of.
    before.1.assert_same(&server.snapshot());
    // The second rewrite of a process works as the first.
    rewrite(&server);
    rewrite(&server);
    server.kill();
    server.start_again();
    assert_eq!(policies(&server), before.0);
    before.1.assert_same(&server.snapshot());
}

/// The child process that rewrites gives policies a key of its own choice: nobody can take the name away from it.
#[rstest]
fn a_key_of_the_same_name_is_not_in_the_way_of_policies(#[values("no", "yes")] preamble: &str) {
    let mut server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", preamble]);
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h");
    for number in 1..=3 {
        let name = format!("\0rl: policies, while an AOF is rewritten {number}");
        redis::cmd("SET").arg(name).arg("x").exec(&mut con).unwrap();
    }
    let before = (policies(&server), server.snapshot());
    rewrite(&server);
    server.kill();
    server.start_again();
    assert_eq!(policies(&server), before.0);
    before.1.assert_same(&server.snapshot());
}

/// The child process that rewrites adds to its own copy of the dataset: nobody may notice.
#[rstest]
fn a_rewrite_in_a_cluster_contains_the_policies_and_disturbs_no_client(
    #[values("no", "yes")] preamble: &str,
) {
    let mut server = Server::with(&[
        "cluster-enabled",
        "yes",
        "appendonly",
        "yes",
        "aof-use-rdb-preamble",
        preamble,
        "lazyfree-lazy-server-del",
        "yes",
        "notify-keyspace-events",
        "KEA",
    ]);
    // Notified of new keys, too, where the server can.
    let _ = server.try_run::<()>("CONFIG", &["SET", "notify-keyspace-events", "KEAn"]);
    assign_slots(&server, ALL_SLOTS);
    let wait_until_up = |server: &Server| {
        eventually("the cluster is up", || {
            let info: String = server.run("CLUSTER", &["INFO"]);
            info.contains("cluster_state:ok")
        });
    };
    wait_until_up(&server);
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h");
    for n in 0..50 {
        let _: Reply = ask(&mut con, &format!("RL.SLIDE {{t}}{n} 5 1h"));
    }
    let mut listener = server.connect();
    let mut events = listener.as_pubsub();
    events.psubscribe("__key*").unwrap();
    events
        .set_read_timeout(Some(std::time::Duration::from_millis(200)))
        .unwrap();
    let before = (policies(&server), server.snapshot());
    for _ in 0..2 {
        rewrite(&server);
    }
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 50);
    let message = events.get_message();
    assert!(message.is_err(), "{message:?}");
    server.kill();
    server.start_again();
    wait_until_up(&server);
    assert_eq!(policies(&server), before.0);
    before.1.assert_same(&server.snapshot());
}

/// A file that was written while the AOF was off is used when it is on.
#[rstest]
fn a_rewrite_while_the_aof_is_off_contains_the_policies(
    #[values("no", "yes")] preamble: &str,
    #[values(false, true)] restart: bool,
) {
    let mut server = Server::with(&["aof-use-rdb-preamble", preamble]);
    some_calls(&server);
    ask::<()>(&mut server.connect(), "RL.POLICY SET p SLIDE 5 1h");
    rewrite(&server);
    let before = (policies(&server), server.snapshot());
    if !restart {
        let _: () = server.run("CONFIG", &["SET", "appendonly", "yes"]);
        wait_until_rewritten(&server);
    }
    server.kill();
    server.add_config(&["appendonly", "yes"]);
    server.start_again();
    assert_eq!(policies(&server), before.0);
    before.1.assert_same(&server.snapshot());
}

/// Policies from a file go to the AOF as a command, a moment after the module was loaded. A server that is paused then may
/// send nothing: it would abort.
#[rstest]
fn policies_from_a_file_wait_for_the_end_of_a_pause() {
    let mut config = base_config();
    config.extend(["appendonly", "yes"]);
    let mut server = Server::without_module(&config);
    let (path, file) = (module().to_str().unwrap(), server.path("policies.json"));
    let json = r#"{"policies":{"p":{"limits":["SLIDE 5 1h"]}}}"#;
    fs::write(&file, json).unwrap();
    let mut con = server.connect();
    let mut pipe = redis::pipe();
    pipe.cmd("MODULE")
        .arg(&["LOAD", path, "policies"])
        .arg(file.to_str().unwrap());
    pipe.cmd("CLIENT").arg(&["PAUSE", "600000", "WRITE"]);
    pipe.exec(&mut con).unwrap();
    let housekeeping = |server: &Server| {
        let uptime = || server.info_number("server", "uptime_in_seconds");
        let start = uptime();
        eventually("the housekeeping has run", || uptime() >= start + 2);
    };
    housekeeping(&server);
    ask::<()>(&mut con, "CLIENT UNPAUSE");
    housekeeping(&server);
    let before = policies(&server);
    assert!(before.contains("SLIDE 5 1h"), "{before}");
    server.kill();
    server.add_config(&["loadmodule", path]);
    server.start_again();
    assert_eq!(policies(&server), before);
}
