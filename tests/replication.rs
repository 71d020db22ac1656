//! Replicas receive the resulting state, never the call, and reproduce the primary bit for bit.

#![allow(clippy::unwrap_used)]

mod support;

use redis::{Connection, Pipeline};
use rstest::rstest;
use support::{Five, Random, Server, eventually};

/// Any call on a replica other than RL.LOAD would have it decide by its own clock.
const CHECKS: [&str; 3] = ["rl.slide", "rl.bucket", "rl.multi"];

/// Mixed calls on a few dozen keys, many of them denied, some with huge limits.
fn mixed_calls(con: &mut Connection, random: &mut Random, count: usize) {
    let mut pipe = Pipeline::new();
    for _ in 0..count {
        let n = random.below(20);
        let cost = random.below(4);
        match random.below(5) {
            0 | 1 => pipe
                .cmd("RL.SLIDE")
                .arg(format!("s{n}"))
                .arg(50)
                .arg("10s")
                .arg(cost),
            2 => pipe
                .cmd("RL.BUCKET")
                .arg(format!("b{n}"))
                .arg(60)
                .arg(7)
                .arg("3s")
                .arg(cost),
            3 => {
                let huge = 1_u64 << 50;
                pipe.cmd("RL.SLIDE")
                    .arg(format!("w{n}"))
                    .arg(huge)
                    .arg("3650d")
                    .arg(huge >> cost)
            }
            _ => pipe
                .cmd("RL.MULTI")
                .arg(&[
                    format!("s{n}"),
                    "SLIDE".into(),
                    "50".into(),
                    "10s".into(),
                    "1".into(),
                ])
                .arg(&[
                    format!("b{n}"),
                    "BUCKET".into(),
                    "60".into(),
                    "7".into(),
                    "3s".into(),
                    "2".into(),
                ]),
        };
    }
    pipe.exec(con).unwrap();
}

fn assert_same(primary: &Server, replica: &Server) {
    primary.wait_for(replica);
    let mut keys: Vec<String> = primary.run("KEYS", &["*"]);
    keys.sort();
    for key in &keys {
        assert_eq!(primary.digest(key), replica.digest(key), "state of {key}");
        let (here, there) = (primary.expire_at_ms(key), replica.expire_at_ms(key));
        // Exact where the server tells the moment; before 7.0 it is reckoned from two readings.
        let exact = primary.has_command(&["PEXPIRETIME", key]);
        let apart = (here - there).abs();
        assert!(
            apart <= if exact { 0 } else { 2 },
            "expiry of {key}: {here}, {there}"
        );
    }
    assert!(!keys.is_empty());
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
fn a_promoted_replica_goes_on_counting_and_tells_its_own_replicas() {
    let (mut old, new, other) = (Server::start(), Server::start(), Server::start());
    new.follow(&old);
    other.follow(&old);
    let _: Five = old.run("RL.SLIDE", &["k", "10", "1h", "7"]);
    old.wait_for(&new);
    old.wait_for(&other);
    old.kill();

    let _: () = new.run("REPLICAOF", &["NO", "ONE"]);
    // The very first call after the promotion, before any fork or housekeeping.
    let five: Five = new.run("RL.SLIDE", &["k", "10", "1h", "2"]);
    assert_eq!((five.0, five.2), (1, 1));
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
    assert!(
        replica
            .error("RL.SLIDE", &["k", "10", "1h"])
            .starts_with("READONLY")
    );
}

#[rstest]
fn states_are_sent_only_while_something_can_receive_them() {
    // Building the effect costs speed, so a lone server that merely saves must not pay for it.
    let (server, replica) = (Server::start(), Server::start());
    let sends_states = |server: &Server| server.info("rl", "rl_sends_states") == "1";
    assert!(!sends_states(&server));
    let _: () = server.run("BGSAVE", &[]);
    assert!(
        sends_states(&server),
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
