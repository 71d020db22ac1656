//! Replicas receive the resulting state, never the call, and reproduce the primary bit for bit.

#![allow(clippy::unwrap_used)]

mod support;

use rstest::rstest;
use support::{Five, Random, Server, ask, eventually, mixed_calls};

/// Any call on a replica other than RL.LOAD would have it decide by its own clock.
const CHECKS: [&str; 9] = [
    "rl.slide",
    "rl.bucket",
    "rl.fixed",
    "rl.exact",
    "rl.leak",
    "rl.lease",
    "rl.multi",
    "rl.refund",
    "rl.release",
];

fn assert_same(primary: &Server, replica: &Server) {
    let mut keys: Vec<String> = primary.run("KEYS", &["*"]);
    keys.sort();
    let mut compared = 0;
    for key in &keys {
        // Keys expire at any moment: both sides are looked at until they hold still.
        eventually(&format!("{key} is the same on both sides"), || {
            let look = || (primary.digest(key), primary.expire_at_ms(key));
            let (digest, here) = look();
            primary.wait_for(replica);
            let (copy, there) = (replica.digest(key), replica.expire_at_ms(key));
            let gone = look() != (digest.clone(), here) || here < 0;
            // Exact where the server tells the moment; before 7.0 it is reckoned from two readings.
            let exact = primary.has_command(&["PEXPIRETIME", key]);
            let same = digest == copy && (here - there).abs() <= if exact { 0 } else { 2 };
            assert!(
                gone || same,
                "{key}: {digest} until {here}, on the replica {copy} until {there}"
            );
            compared += usize::from(!gone);
            true
        });
    }
    assert!(compared > 0, "{keys:?}");
}

fn assert_only_loads(replica: &Server) {
    for command in CHECKS {
        assert_eq!(replica.calls(command), 0, "{command} ran on the replica");
    }
    assert!(replica.calls("rl.load") > 0);
}

#[rstest]
fn a_replica_has_the_same_state_and_expiry_after_thousands_of_calls() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    mixed_calls(&mut primary.connect(), &mut Random(1), 5000);
    // The latest expiry there can be.
    let max = "9007199254740991";
    let _: Five = primary.run("RL.BUCKET", &["deep", max, "1", "3650d", max]);
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
                mixed_calls(&mut con, &mut random, 50);
            }
        });
        for replica in &replicas {
            replica.follow(&primary);
        }
        load.join().unwrap();
    });
    for replica in &replicas {
        assert_same(&primary, replica);
        for command in CHECKS {
            assert_eq!(replica.calls(command), 0, "{command} ran on the replica");
        }
    }
}

#[rstest]
fn a_replica_that_lost_its_connection_resumes_and_misses_nothing() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let syncs = primary.info_number("stats", "sync_full");
    let (mut con, mut random) = (primary.connect(), Random(4));
    for _ in 0..5 {
        mixed_calls(&mut con, &mut random, 500);
        let resumed = primary.info_number("stats", "sync_partial_ok");
        assert_eq!(ask::<i64>(&mut con, "CLIENT KILL TYPE replica"), 1);
        mixed_calls(&mut con, &mut random, 500);
        eventually("the replica has come back", || {
            primary.info_number("stats", "sync_partial_ok") > resumed
                && replica.info("replication", "master_link_status") == "up"
        });
        mixed_calls(&mut con, &mut random, 100);
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
        let peek = ["log", "EXACT", "1000000", "1h", "0"];
        let here: Five = primary.run("RL.PEEK", &peek);
        let there: Five = replica.run("RL.PEEK", &peek);
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
fn a_promoted_replica_goes_on_counting_and_tells_its_own_replicas() {
    let (mut old, new, other) = (Server::start(), Server::start(), Server::start());
    new.follow(&old);
    other.follow(&old);
    let _: Five = old.run("RL.SLIDE", &["k", "10", "1h", "7"]);
    let _: Five = old.run("RL.EXACT", &["x", "10", "1h", "7"]);
    let _: Five = old.run("RL.LEASE", &["h", "10", "1h", "a", "7"]);
    mixed_calls(&mut old.connect(), &mut Random(5), 1000);
    old.wait_for(&new);
    old.wait_for(&other);
    old.kill();

    let _: () = new.run("REPLICAOF", &["NO", "ONE"]);
    // The very first call after the promotion, before any fork or housekeeping.
    let five: Five = new.run("RL.SLIDE", &["k", "10", "1h", "2"]);
    assert_eq!((five.0, five.2), (1, 1));
    let five: Five = new.run("RL.EXACT", &["x", "10", "1h", "2"]);
    assert_eq!((five.0, five.2), (1, 1));
    let five: Five = new.run("RL.LEASE", &["h", "10", "1h", "b", "2"]);
    assert_eq!((five.0, five.2), (1, 1));
    mixed_calls(&mut new.connect(), &mut Random(6), 1000);
    let syncs = new.info_number("stats", "sync_full");
    other.follow(&new);
    assert_eq!(
        new.info_number("stats", "sync_full"),
        syncs,
        "the replica resumed, without a copy"
    );
    assert_same(&new, &other);
    for command in CHECKS {
        assert_eq!(other.calls(command), 0, "{command} ran on the replica");
    }
    let denied: Five = new.run("RL.SLIDE", &["k", "10", "1h", "2"]);
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
    let _: (Five, Five) = redis::pipe()
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
    mixed_calls(&mut primary.connect(), &mut Random(3), 2000);
    primary.wait_for(&middle);
    primary.wait_for(&last);
    assert_same(&primary, &last);
    assert_only_loads(&last);
}

#[rstest]
fn replicas_answer_peeks_and_refuse_checks() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let _: Five = primary.run("RL.SLIDE", &["k", "10", "1h", "4"]);
    primary.wait_for(&replica);
    let five: Five = replica.run("RL.PEEK", &["k", "SLIDE", "10", "1h", "1"]);
    assert_eq!((five.0, five.2), (1, 5));
    for call in [
        "RL.SLIDE k 10 1h",
        "RL.FIXED k 10 1h",
        "RL.EXACT k 10 1h",
        "RL.LEAK k 10 1 1h",
        "RL.LEASE k 10 1h holder",
        "RL.REFUND k 1",
        "RL.RELEASE k holder",
    ] {
        let error = support::ask_error(&mut replica.connect(), call);
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
        let _: Five = ask(&mut primary.connect(), call);
        primary.wait_for(&replica);
        let key = call.split(' ').nth(1).unwrap();
        let five: Five = ask(&mut replica.connect(), &format!("RL.PEEK {key} {spec}"));
        assert_eq!((five.0, five.2), (1, left), "{call}");
        let shown = |server: &Server| -> Vec<redis::Value> {
            ask(&mut server.connect(), &format!("RL.INSPECT {key}"))
        };
        let (here, there) = (shown(&primary), shown(&replica));
        assert_eq!(here[..4], there[..4], "{call}");
    }
}

#[rstest]
fn states_are_sent_only_while_something_can_receive_them() {
    // Building the effect costs speed, so a lone server that merely saves must not pay for it.
    let (server, replica) = (Server::start(), Server::start());
    let sends_states = |server: &Server| server.info("rl", "rl_sends_states") == "1";
    assert!(!sends_states(&server));
    // Both in one go: a small server has saved before the next question.
    let (_, info): (String, String) = redis::pipe()
        .cmd("BGSAVE")
        .cmd("INFO")
        .arg("rl")
        .query(&mut server.connect())
        .unwrap();
    assert!(
        info.contains("rl_sends_states:1"),
        "from the fork on, in case it serves a replica or an AOF"
    );
    eventually("nobody listens", || !sends_states(&server));
    let _: Five = server.run("RL.SLIDE", &["k", "10", "1h"]);
    assert!(server.info_number("persistence", "rdb_changes_since_last_save") > 0);

    replica.follow(&server);
    assert!(sends_states(&server));
    eventually("the replica has a backlog of its own", || {
        sends_states(&replica)
    });
    drop(replica);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(sends_states(&server), "a replica may come back and resume");
}

#[rstest]
fn an_expiry_set_by_hand_ends_on_both_sides_with_the_next_allowed_call() {
    let (primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    for (key, by_hand) in [
        ("a", &["PERSIST"][..]),
        ("b", &["EXPIRE", "5"]),
        ("c", &["EXPIRE", "999999"]),
    ] {
        let _: Five = primary.run("RL.SLIDE", &[key, "10", "1h"]);
        let ours = primary.expire_at_ms(key);
        let _: i64 = primary.run(by_hand[0], &[&[key], &by_hand[1..]].concat());
        assert_ne!(primary.expire_at_ms(key), ours);
        let _: Five = primary.run("RL.SLIDE", &[key, "10", "1h"]);
        assert!((primary.expire_at_ms(key) - ours).abs() <= 1, "{by_hand:?}");
    }
    assert_same(&primary, &replica);
}
