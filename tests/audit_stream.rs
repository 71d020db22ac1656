//! Sampled denials in a stream: consumer groups read every one, it stays short, and what goes wrong with it
//! never fails a check.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;

use redis::streams::{StreamRangeReply, StreamReadReply};
use redis::{Connection, Value};
use rstest::{fixture, rstest};
use support::{Five, Multi, Server, ask, eventually};

/// Arguments, which every server takes; CONFIG came with 7.0.
#[fixture]
fn server() -> Server {
    Server::with_arguments(&["audit-stream", "rl:audit"])
}

fn deny(con: &mut Connection, key: &str) {
    assert_eq!(ask::<Five>(con, &format!("RL.SLIDE {key} 0 1h")).0, 0);
}

fn entries(con: &mut Connection) -> Vec<HashMap<String, String>> {
    let reply: StreamRangeReply = ask(con, "XRANGE rl:audit - +");
    let text = |value: Value| redis::from_redis_value::<String>(value).unwrap();
    let entry = |id: redis::streams::StreamId| {
        id.map
            .into_iter()
            .map(|(name, value)| (name, text(value)))
            .collect()
    };
    reply.ids.into_iter().map(entry).collect()
}

fn errors(server: &Server) -> i64 {
    server.info_number("rl", "rl_audit_stream_errors")
}

#[rstest]
fn a_consumer_group_reads_every_denial(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "XGROUP CREATE rl:audit kafka 0 MKSTREAM");
    let reader = server.connect();
    let read = std::thread::spawn(move || {
        let mut con = reader;
        let mut keys = Vec::new();
        while keys.len() < 1000 {
            let line = "XREADGROUP GROUP kafka c1 COUNT 50 BLOCK 5000 STREAMS rl:audit >";
            let reply: Option<StreamReadReply> = ask(&mut con, line);
            for entry in &reply.unwrap().keys[0].ids {
                keys.push(entry.get::<String>("key").unwrap());
                let _: i64 = ask(&mut con, &format!("XACK rl:audit kafka {}", entry.id));
            }
        }
        keys
    });
    for n in 0..1000 {
        deny(&mut con, &format!("k{n}"));
        let _: Five = ask(&mut con, &format!("RL.SLIDE free{n} 1 1h"));
    }
    let keys = read.join().unwrap();
    assert_eq!(keys, (0..1000).map(|n| format!("k{n}")).collect::<Vec<_>>());
    assert_eq!(errors(&server), 0);
}

#[rstest]
fn an_entry_has_the_fields_of_the_audit(server: Server) {
    let mut con = server.connect();
    let five: Five = ask(&mut con, "RL.BUCKET user:1 10 5 60 11");
    let id: i64 = ask(&mut con, "CLIENT ID");
    let in_stream = &entries(&mut con)[0];
    let mut in_ring: Vec<HashMap<String, Value>> = ask(&mut con, "RL.AUDIT GET");
    let in_ring: HashMap<String, String> = in_ring
        .remove(0)
        .into_iter()
        .map(|(name, value)| (name, redis::from_redis_value::<String>(value).unwrap()))
        .collect();
    assert_eq!(*in_stream, in_ring);
    assert_eq!(in_stream["denied_by"], "BUCKET 10 5 1m");
    assert_eq!((five.0, &*in_stream["retry_after_ms"]), (0, "-1"));
    let client = &in_stream["client"];
    assert!(
        client.starts_with(&format!("id={id} addr=127.0.0.1:")),
        "{client}"
    );
}

#[rstest]
fn the_stream_stays_short() {
    let server =
        Server::with_arguments(&["audit-stream", "rl:audit", "audit-stream-max-len", "500"]);
    let mut con = server.connect();
    let mut pipe = redis::pipe();
    for n in 0..5000 {
        pipe.cmd("RL.SLIDE")
            .arg(format!("k{n}"))
            .arg(&["0", "1h"])
            .ignore();
    }
    pipe.exec(&mut con).unwrap();
    let len: i64 = ask(&mut con, "XLEN rl:audit");
    // Whole nodes of a hundred entries are trimmed.
    assert!((500..=700).contains(&len), "{len}");
    let newest = entries(&mut con).pop().unwrap();
    assert_eq!(newest["key"], "k4999");
}

#[rstest]
fn a_sample_is_a_sample_in_the_stream_too() {
    let server = Server::with_arguments(&["audit-stream", "rl:audit", "audit-sample", "10"]);
    let mut con = server.connect();
    for n in 0..100 {
        deny(&mut con, &format!("k{n}"));
    }
    assert_eq!(ask::<i64>(&mut con, "XLEN rl:audit"), 10);
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 10);
    assert_eq!(server.info_number("rl", "rl_denied"), 100);
}

#[rstest]
fn the_ring_may_be_off() {
    let server = Server::with_arguments(&["audit-stream", "rl:audit", "audit-max-len", "0"]);
    let mut con = server.connect();
    deny(&mut con, "a");
    deny(&mut con, "b");
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 0);
    let ids: Vec<_> = entries(&mut con)
        .iter()
        .map(|entry| entry["id"].clone())
        .collect();
    assert_eq!(ids, ["0", "1"]);
}

#[rstest]
fn a_key_of_another_type_fails_no_check(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "SET rl:audit something");
    deny(&mut con, "k");
    assert_eq!(errors(&server), 1);
    assert_eq!(ask::<String>(&mut con, "GET rl:audit"), "something");
    // Not even a limit in the stream's place, or a check of that very key.
    ask::<i64>(&mut con, "DEL rl:audit");
    assert_eq!(ask::<Five>(&mut con, "RL.SLIDE rl:audit 1 1h").0, 1);
    assert_eq!(ask::<Five>(&mut con, "RL.SLIDE rl:audit 1 1h").0, 0);
    assert_eq!(errors(&server), 2);
    ask::<i64>(&mut con, "DEL rl:audit");
    deny(&mut con, "rl:audit");
    assert_eq!(
        ask::<i64>(&mut con, "XLEN rl:audit"),
        1,
        "nothing was in its place"
    );
    assert_eq!(errors(&server), 2);
    // A stream that is gone is made anew.
    ask::<i64>(&mut con, "DEL rl:audit");
    deny(&mut con, "k");
    assert_eq!(ask::<i64>(&mut con, "XLEN rl:audit"), 1);
}

#[rstest]
fn a_full_server_goes_on_denying(server: Server) {
    let mut con = server.connect();
    ask::<()>(&mut con, "CONFIG SET maxmemory 1");
    deny(&mut con, "k");
    assert_eq!(
        (errors(&server), ask::<i64>(&mut con, "EXISTS rl:audit")),
        (1, 0)
    );
    ask::<()>(&mut con, "CONFIG SET maxmemory 0");
    deny(&mut con, "k");
    assert_eq!(
        (errors(&server), ask::<i64>(&mut con, "XLEN rl:audit")),
        (1, 1)
    );
}

#[rstest]
fn replicas_and_the_aof_receive_the_same_entries() {
    let arguments = ["audit-stream", "rl:audit"];
    let mut primary = Server::with(&["appendonly", "yes"]);
    if primary
        .try_run::<Value>("CONFIG", &["SET", "rl.audit-stream", "rl:audit"])
        .is_err()
    {
        primary = Server::with_arguments(&arguments);
        let _: () = primary.run("CONFIG", &["SET", "appendonly", "yes"]);
    }
    let replica = Server::with_arguments(&arguments);
    replica.follow(&primary);
    let mut con = primary.connect();
    deny(&mut con, "plain");
    let mut pipe = redis::pipe();
    pipe.atomic()
        .cmd("RL.SLIDE")
        .arg(&["t", "1", "1h"])
        .cmd("RL.SLIDE")
        .arg(&["t", "1", "1h"]);
    let _: (Five, Five) = pipe.query(&mut con).unwrap();
    let script =
        "redis.call('RL.SLIDE', KEYS[1], 1, '1h') return redis.call('RL.SLIDE', KEYS[1], 1, '1h')";
    let five: Five = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg("s")
        .query(&mut con)
        .unwrap();
    assert_eq!(five.0, 0);
    let multi: Multi = ask(&mut con, "RL.MULTI a SLIDE 0 1h 1 b SLIDE 0 1h 1");
    assert_eq!(multi.0, 0);
    primary.wait_for(&replica);
    let keys: Vec<_> = entries(&mut con)
        .iter()
        .map(|entry| entry["key"].clone())
        .collect();
    assert_eq!(keys, ["plain", "t", "s", "a", "b"]);
    assert_eq!(replica.digest_all(), primary.digest_all());
    assert_eq!(errors(&primary), 0);
    // Replicas add nothing of their own, even where they take writes.
    let mut con = replica.connect();
    let _: Five = ask(&mut con, "RL.PEEK k SLIDE 0 1h 1");
    ask::<()>(&mut con, "CONFIG SET replica-read-only no");
    deny(&mut con, "k");
    assert_eq!(replica.digest_all(), primary.digest_all());
    let digest = primary.digest_all();
    let _: () = primary.run("DEBUG", &["LOADAOF"]);
    assert_eq!(primary.digest_all(), digest);
}

#[rstest]
fn without_a_stream_a_denial_writes_nothing() {
    let server = Server::with(&["appendonly", "yes"]);
    let mut con = server.connect();
    deny(&mut con, "k");
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(
        server.info_number("persistence", "rdb_changes_since_last_save"),
        0
    );
}

#[rstest]
fn in_a_cluster_a_stream_of_another_node_fails_no_check() {
    let server = Server::with(&["cluster-enabled", "yes"]);
    if server
        .try_run::<Value>("CONFIG", &["SET", "rl.audit-stream", "rl:audit"])
        .is_err()
    {
        eprintln!(
            "NOT TESTED: this server cannot load a module with arguments from the test's configuration"
        );
        return;
    }
    let slot = |key: &str| server.run::<u16>("CLUSTER", &["KEYSLOT", key]);
    let (ours, theirs) = (slot("k"), slot("rl:audit"));
    let _: () = server.run("CLUSTER", &["ADDSLOTS", &ours.to_string()]);
    let _: () = server.run("CONFIG", &["SET", "cluster-require-full-coverage", "no"]);
    eventually("the cluster is up", || {
        let info: String = server.run("CLUSTER", &["INFO"]);
        info.contains("cluster_state:ok")
    });
    let mut con = server.connect();
    deny(&mut con, "k");
    assert_eq!(errors(&server), 1);
    let _: () = server.run("CLUSTER", &["ADDSLOTS", &theirs.to_string()]);
    deny(&mut con, "k");
    assert_eq!(
        (errors(&server), ask::<i64>(&mut con, "XLEN rl:audit")),
        (1, 1)
    );
}
