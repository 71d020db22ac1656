//! Replicas receive the resulting state, never the call, and reproduce the primary bit for bit.

use redis::Value;
use rl_testkit::{
    FrozenServer, NOON_US, Random, Reply, Server, ask, eventually, not_tested, random_calls,
};
use rstest::rstest;

fn assert_same(primary: &Server, replica: &Server) {
    primary.assert_same_on(replica);
}

fn assert_only_loads(replica: &Server) {
    // A call would make the replica decide by its own clock.
    replica.assert_received_states_only();
    assert!(replica.calls("rl.load") > 0);
}

#[rstest]
fn a_replica_has_the_same_state_and_expiry_after_thousands_of_calls() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    random_calls(&mut primary.connect(), &mut Random(1), 5000);
    // The latest expiry there can be.
    let max = "9007199254740991";
    let _: Reply = primary.run("RL.BUCKET", &["deep", max, "1", "3650d", max]);
    assert_same(&primary, &replica);
    assert_only_loads(&replica);
}

#[rstest]
fn replicas_attached_under_load_miss_nothing() {
    let primary = Server::start();
    let replicas = [Server::start(), Server::start()];
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (mut con, mut random) = (primary.connect(), Random(2));
            for _ in 0..300 {
                random_calls(&mut con, &mut random, 50);
            }
        });
        for replica in &replicas {
            replica.follow(&primary);
        }
        load.join().unwrap();
    });
    for replica in &replicas {
        assert_same(&primary, replica);
        replica.assert_received_states_only();
    }
}

#[rstest]
fn a_replica_that_lost_its_connection_resumes_and_misses_nothing() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let syncs = primary.info_number("stats", "sync_full");
    let (mut con, mut random) = (primary.connect(), Random(4));
    for _ in 0..5 {
        random_calls(&mut con, &mut random, 500);
        let resumed = primary.info_number("stats", "sync_partial_ok");
        assert_eq!(ask::<i64>(&mut con, "CLIENT KILL TYPE replica"), 1);
        random_calls(&mut con, &mut random, 500);
        eventually("the replica has come back", || {
            primary.info_number("stats", "sync_partial_ok") > resumed
                && replica.info("replication", "master_link_status") == "up"
        });
        random_calls(&mut con, &mut random, 100);
        assert_same(&primary, &replica);
    }
    assert_eq!(
        primary.info_number("stats", "sync_full"),
        syncs,
        "never copied anew"
    );
    assert_only_loads(&replica);
}

#[rstest]
fn logs_and_leases_are_the_same_after_a_copy_in_the_middle() {
    // What is replicated step by step must begin from the same state, chunks and all.
    let (primary, early, late) = (Server::start(), Server::start(), Server::start());
    early.follow(&primary);
    let mut con = primary.connect();
    let grow = |con: &mut redis::Connection, from: u64| {
        let mut pipe = redis::pipe();
        for n in from..from + 3000 {
            pipe.cmd("RL.EXACT")
                .arg("log")
                .arg(1_000_000)
                .arg("1h")
                .arg(n % 3 + 1);
            pipe.cmd("RL.EXACT").arg("short").arg(1_000_000).arg("20ms");
            let holder = format!("holder{}", n % 700);
            pipe.cmd("RL.LEASE")
                .arg("list")
                .arg(1_000_000)
                .arg("1h")
                .arg(&holder);
            if n % 7 == 0 {
                pipe.cmd("RL.REFUND").arg("log").arg(n % 40);
                pipe.cmd("RL.RELEASE").arg("list").arg(holder);
            }
        }
        pipe.exec(con).unwrap();
    };
    grow(&mut con, 0);
    late.follow(&primary);
    grow(&mut con, 3000);
    for replica in [&early, &late] {
        assert_same(&primary, replica);
        let peek = ["log", "EXACT 1000000 1h 0"];
        let here: Reply = primary.run("RL.PEEK", &peek);
        let there: Reply = replica.run("RL.PEEK", &peek);
        assert_eq!(here.2, there.2);
    }
    // And go on the same when the late one takes over.
    let _: () = late.run("REPLICAOF", &["NO", "ONE"]);
    early.follow(&late);
    grow(&mut late.connect(), 6000);
    assert_same(&late, &early);
    assert_only_loads(&early);
}

#[rstest]
fn a_promoted_replica_keeps_counting_and_replicates_to_its_own_replicas() {
    let (mut old, new, other) = (Server::start(), Server::start(), Server::start());
    new.follow(&old);
    other.follow(&old);
    let _: Reply = old.run("RL.SLIDE", &["k", "10", "1h", "7"]);
    let _: Reply = old.run("RL.EXACT", &["x", "10", "1h", "7"]);
    let _: Reply = old.run("RL.LEASE", &["h", "10", "1h", "a", "7"]);
    random_calls(&mut old.connect(), &mut Random(5), 1000);
    old.wait_for(&new);
    old.wait_for(&other);
    old.kill();

    let _: () = new.run("REPLICAOF", &["NO", "ONE"]);
    // The very first call after the promotion, before any fork or housekeeping.
    let reply: Reply = new.run("RL.SLIDE", &["k", "10", "1h", "2"]);
    assert_eq!((reply.0, reply.2), (1, 1));
    let reply: Reply = new.run("RL.EXACT", &["x", "10", "1h", "2"]);
    assert_eq!((reply.0, reply.2), (1, 1));
    let reply: Reply = new.run("RL.LEASE", &["h", "10", "1h", "b", "2"]);
    assert_eq!((reply.0, reply.2), (1, 1));
    random_calls(&mut new.connect(), &mut Random(6), 1000);
    let syncs = new.info_number("stats", "sync_full");
    other.follow(&new);
    assert_eq!(
        new.info_number("stats", "sync_full"),
        syncs,
        "the replica resumed, without a copy"
    );
    assert_same(&new, &other);
    other.assert_received_states_only();
    let denied: Reply = new.run("RL.SLIDE", &["k", "10", "1h", "2"]);
    assert_eq!((denied.0, denied.2), (0, 1));
}

#[rstest]
fn transactions_and_scripts_replicate_as_states_too() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let mut con = primary.connect();
    let script = "for i = 1, 3 do redis.call('RL.BUCKET', KEYS[1], 10, 1, '1h', i) end";
    let _: () = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg("b")
        .query(&mut con)
        .unwrap();
    let _: (Reply, Reply) = redis::pipe()
        .atomic()
        .cmd("RL.SLIDE")
        .arg("s")
        .arg(10)
        .arg("1h")
        .arg(2)
        .cmd("RL.SLIDE")
        .arg("s")
        .arg(10)
        .arg("1h")
        .arg(3)
        .query(&mut con)
        .unwrap();
    let script = "for i = 1, 30 do
            redis.call('RL.EXACT', KEYS[1], 100, '1h', i % 3)
            redis.call('RL.LEASE', KEYS[2], 10, '1h', 'holder' .. i % 7)
            redis.call('RL.REFUND', KEYS[1], 1)
            if i % 5 == 0 then redis.call('RL.RELEASE', KEYS[2], 'holder1') end
        end";
    let mut eval = redis::cmd("EVAL");
    eval.arg(script).arg(2).arg("x").arg("h");
    let _: () = eval.query(&mut con).unwrap();
    assert_same(&primary, &replica);
    assert_only_loads(&replica);
}

#[rstest]
fn a_chain_of_replicas_is_the_same_to_its_end() {
    let (primary, middle, last) = (Server::start(), Server::start(), Server::start());
    middle.follow(&primary);
    last.follow(&middle);
    random_calls(&mut primary.connect(), &mut Random(3), 2000);
    primary.wait_for(&middle);
    primary.wait_for(&last);
    assert_same(&primary, &last);
    assert_only_loads(&last);
}

#[rstest]
fn replicas_serve_peeks_and_refuse_checks() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let _: Reply = primary.run("RL.SLIDE", &["k", "10", "1h", "4"]);
    primary.wait_for(&replica);
    let reply: Reply = replica.run("RL.PEEK", &["k", "SLIDE 10 1h"]);
    assert_eq!((reply.0, reply.2), (1, 5));
    for call in [
        "RL.SLIDE k 10 1h",
        "RL.FIXED k 10 1h",
        "RL.EXACT k 10 1h",
        "RL.LEAK k 10 1 1h",
        "RL.LEASE k 10 1h holder",
        "RL.REFUND k 1",
        "RL.RELEASE k holder",
    ] {
        let error = rl_testkit::ask_error(&mut replica.connect(), call);
        assert!(error.starts_with("READONLY"), "{call}: {error}");
    }
    for (call, spec, left) in [
        ("RL.EXACT x 10 1h 4", "EXACT 10 1h 1", 5),
        ("RL.FIXED f 10 3650d 4", "FIXED 10 3650d 1", 5),
        ("RL.LEAK l 10 1 1h 4", "LEAK 10 1 1h 1", 5),
        ("RL.LEASE h 10 1h a 4", "LEASE 10 1h b 1", 5),
        (
            "RL.SLIDE p 10 1h 4 PRECISION 9",
            "SLIDE 10 1h 1 PRECISION 9",
            5,
        ),
    ] {
        let _: Reply = ask(&mut primary.connect(), call);
        primary.wait_for(&replica);
        let key = call.split(' ').nth(1).unwrap();
        let reply: Reply = ask(&mut replica.connect(), &format!("RL.PEEK {key} \"{spec}\""));
        assert_eq!((reply.0, reply.2), (1, left), "{call}");
        let shown = |server: &Server| -> Vec<redis::Value> {
            ask(&mut server.connect(), &format!("RL.INSPECT {key}"))
        };
        let (here, there) = (shown(&primary), shown(&replica));
        assert_eq!(here[..4], there[..4], "{call}");
    }
}

#[rstest]
fn states_are_sent_unless_it_is_certain_that_nothing_can_receive_them() {
    // Building the effect costs speed, so a lone server that merely saves must not pay for it.
    let (server, replica) = (Server::start(), Server::start());
    let sends_states = |server: &Server| server.info("rl", "rl_replicating") == "1";
    let alone = || eventually("nobody listens", || !sends_states(&server));
    alone();
    let _: Reply = server.run("RL.SLIDE", &["k", "10", "1h"]);
    assert!(server.info_number("persistence", "rdb_changes_since_last_save") > 0);
    // Both in one go: a small server has saved before the next question.
    for event in ["BGSAVE", "DEBUG RELOAD", "FLUSHALL", "REPLICAOF NO ONE"] {
        let words: Vec<&str> = event.split(' ').collect();
        let (_, info): (redis::Value, String) = redis::pipe()
            .cmd(words[0])
            .arg(&words[1..])
            .cmd("INFO")
            .arg("rl")
            .query(&mut server.connect())
            .unwrap();
        // That a primary stays one is no event.
        let sends = info.contains("rl_replicating:1");
        assert_eq!(sends, event != "REPLICAOF NO ONE", "from {event} on");
        alone();
    }

    replica.follow(&server);
    assert!(sends_states(&server));
    assert!(sends_states(&replica), "a replica has a backlog of its own");
    drop(replica);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(sends_states(&server), "a replica may come back and resume");
    assert_eq!(server.info("rl", "rl_unannounced_receivers"), "0");
}

#[rstest]
fn states_are_always_sent_in_a_cluster_with_an_aof_and_with_a_backlog() {
    let sends_states = |server: &Server| server.info("rl", "rl_replicating") == "1";
    let servers = [
        Server::with(&["cluster-enabled", "yes"]),
        Server::with(&["appendonly", "yes"]),
    ];
    std::thread::sleep(std::time::Duration::from_millis(500));
    for server in &servers {
        assert!(sends_states(server));
    }
    let freed = Server::with(&["repl-backlog-ttl", "1"]);
    {
        let replica = Server::start();
        replica.follow(&freed);
    }
    assert!(sends_states(&freed));
    eventually("the backlog is freed", || {
        freed.info("replication", "repl_backlog_active") == "0"
    });
    eventually("nobody listens", || !sends_states(&freed));
}

/// With the delay that is the default, a replica waits for its snapshot longer than a round of housekeeping.
#[rstest]
fn a_replica_that_waits_for_its_snapshot_is_not_reported_as_a_surprise() {
    let (server, replica) = (
        Server::with(&["repl-diskless-sync", "yes", "repl-diskless-sync-delay", "2"]),
        Server::start(),
    );
    eventually("nobody listens", || {
        server.info("rl", "rl_replicating") == "0"
    });
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (mut con, mut random) = (server.connect(), Random(8));
            for _ in 0..100 {
                random_calls(&mut con, &mut random, 50);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        });
        replica.follow(&server);
        load.join().unwrap();
    });
    assert_same(&server, &replica);
    replica.assert_received_states_only();
    assert_eq!(server.info("rl", "rl_unannounced_receivers"), "0");
}

/// One rule, whether a replica is there or not: an expiry set by hand stays until the key's own next moves.
#[rstest]
#[case::alone(false)]
#[case::with_a_replica(true)]
fn an_expiry_set_by_hand_stays_until_the_keys_own_moves(#[case] replicated: bool) {
    let (primary, replica) = (Server::start(), Server::start());
    if replicated {
        replica.follow(&primary);
    } else {
        eventually("nobody listens", || {
            primary.info("rl", "rl_replicating") == "0"
        });
    }
    let mut con = primary.connect();
    let hour = 3_600_000;
    for (key, by_hand) in [
        ("a", "PERSIST a"),
        ("b", "PEXPIRE b 5000000"),
        ("c", "PEXPIRE c 999999999"),
    ] {
        // The window of a FIXED limit ends when it does, whatever is called or given back.
        let call = format!("RL.FIXED {key} 10 3650d");
        let _: Reply = ask(&mut con, &call);
        let own = primary.expire_at_ms(key);
        let _: i64 = ask(&mut con, by_hand);
        let set = primary.expire_at_ms(key);
        assert_ne!(set, own);
        let _: Reply = ask(&mut con, &call);
        let _: Reply = ask(&mut con, &call);
        assert_eq!(ask::<i64>(&mut con, &format!("RL.REFUND {key} 1")), 1);
        assert!((primary.expire_at_ms(key) - set).abs() <= 2, "{by_hand}");
        // A bucket's own expiry moves with its debt.
        let bucket = format!("{key}{key}");
        let call = format!("RL.BUCKET {bucket} 100 1 1h 10");
        let _: Reply = ask(&mut con, &call);
        let _: redis::Value = ask(
            &mut con,
            &by_hand.replace(&format!(" {key}"), &format!(" {bucket}")),
        );
        let set = primary.expire_at_ms(&bucket);
        let _: Reply = ask(&mut con, &call);
        let moved = primary.expire_at_ms(&bucket);
        assert!(moved > 0 && (moved - set).abs() > hour, "{by_hand}");
    }
    // A key that is restored without a ttl.
    let _: Reply = ask(&mut con, "RL.FIXED r 10 3650d");
    let dump: Vec<u8> = ask(&mut con, "DUMP r");
    let mut restore = redis::cmd("RESTORE");
    restore.arg("restored").arg(0).arg(&dump);
    restore.exec(&mut con).unwrap();
    let _: Reply = ask(&mut con, "RL.FIXED restored 10 3650d");
    assert_eq!(primary.expire_at_ms("restored"), -1);
    if replicated {
        assert_same(&primary, &replica);
        assert_only_loads(&replica);
    }
}

#[rstest]
fn a_replica_with_full_memory_receives_every_state() {
    let (primary, replica) = (Server::start(), Server::start());
    if !primary.has_command(&["PEXPIRETIME", "k"]) {
        return not_tested(
            "Redis 6.2 sends every state as a transaction, which a full replica refuses",
        );
    }
    replica.follow(&primary);
    let _: () = replica.run("CONFIG", &["SET", "replica-ignore-maxmemory", "no"]);
    let _: () = replica.run("CONFIG", &["SET", "maxmemory", "1"]);
    let mut con = primary.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 500 1h EXACT 900 1h");
    ask::<()>(&mut con, "RL.OVERRIDE SET k p BLOCK");
    // One change each: a full server refuses every command of a transaction that is not over.
    for n in 0..300 {
        for line in [
            format!("RL.SLIDE s{} 500 1h {n}", n % 20),
            format!("RL.BUCKET b{} 500 7 1h {n}", n % 20),
            format!("RL.EXACT x{} 900 1h", n % 5),
            format!("RL.LEASE h{} 900 1h holder{n}", n % 5),
            format!("RL.CHECK c{} p", n % 5),
            format!("RL.REFUND x{} 1", n % 7),
        ] {
            let _: redis::Value = ask(&mut con, &line);
        }
    }
    primary.wait_for(&replica);
    // A full server would refuse the commands below.
    let _: () = replica.run("CONFIG", &["SET", "maxmemory", "0"]);
    assert_same(&primary, &replica);
    let policies = |server: &Server| server.run::<String>("RL.POLICY", &["DUMP"]);
    assert_eq!(policies(&primary), policies(&replica));
    assert!(!replica.log().contains("CRITICAL"), "{}", replica.log());
}

/// What would be a bug of a primary, older or newer than this module.
#[rstest]
fn replicated_calls_are_noticed() {
    let mut server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", "no"]);
    let _: Reply = server.run("RL.SLIDE", &["k", "10", "1h"]);
    let again = |server: &Server| server.info("rl", "rl_replayed_decisions");
    server.shutdown("NOSAVE");
    server.start_again();
    assert_eq!(again(&server), "0");
    server.shutdown("NOSAVE");
    let mut folders = vec![server.path("")];
    let mut file = None;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".aof") && !name.contains(".base.") {
                file = Some(path);
            }
        }
    }
    let file = file.unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let call = ["RL.SLIDE", "k", "10", "1h"];
    bytes.extend(b"*4\r\n");
    for word in call {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    std::fs::write(&file, bytes).unwrap();
    server.start_again();
    assert_eq!(again(&server), "1");
    eventually("the log says so", || {
        server.log().contains("calls instead of states")
    });
}

#[rstest]
fn a_new_state_replaces_an_expired_one_that_the_replica_still_has() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let mut con = primary.connect();
    ask::<()>(&mut con, "DEBUG SET-ACTIVE-EXPIRE 0");
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 50 1h EXACT 50 1h");
    let calls = [
        ("log", "RL.EXACT log 50 1h 3"),
        ("list", "RL.LEASE list 50 1h one"),
        ("group", "RL.CHECK group p 4"),
        ("count", "RL.SLIDE count 50 1h 2"),
    ];
    for (key, call) in calls {
        let _: Value = ask(&mut con, call);
        assert_eq!(ask::<i64>(&mut con, &format!("PEXPIRE {key} 1")), 1);
    }
    std::thread::sleep(std::time::Duration::from_millis(20));
    // Expired keys are not loaded, and nobody sends that they are gone.
    ask::<()>(&mut con, "DEBUG RELOAD");
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    primary.wait_for(&replica);
    assert_eq!(replica.run::<i64>("DBSIZE", &[]), 4, "not heard of");
    for (_, call) in calls {
        let _: Value = ask(&mut con, call);
    }
    let _: Value = ask(&mut con, "RL.LEASE list 50 1h other");
    assert_same(&primary, &replica);
}

/// A bucket that is full again within milliseconds is neither deleted and created again nor given a new expiry with each
/// call.
#[rstest]
#[case::bucket("RL.BUCKET hot 1000 1000 1s")]
#[case::leak("RL.LEAK hot 1000 1000 1s")]
fn a_fast_bucket_sends_no_deletions_and_rarely_moves_its_expiry(#[case] call: &str) {
    let (frozen, replica) = (FrozenServer::with(&["hz", "100"]), Server::start());
    if frozen.cannot_be_tested() {
        return;
    }
    let primary = &frozen.server;
    replica.follow(primary);
    let mut con = primary.connect();
    let mut expiries = Vec::new();
    for tenth in 0..80 {
        frozen.set(NOON_US + tenth * 100_000);
        for _ in 0..10 {
            let reply: Reply = ask(&mut con, call);
            assert_eq!(reply.0, 1);
        }
        expiries.push(primary.expire_at_ms("hot"));
    }
    expiries.dedup();
    assert!(expiries.len() <= 2, "{expiries:?}");
    assert_eq!(primary.info_number("stats", "expired_keys"), 0);
    assert_same(primary, &replica);
    assert_only_loads(&replica);
    assert_eq!(replica.calls("rl.load"), 800);
    assert_eq!(replica.calls("del") + replica.calls("unlink"), 0);
}
