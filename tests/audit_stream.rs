//! Sampled denials in a stream: consumer groups read every one, the stream stays short, and its errors never make a check
//! fail.

use std::collections::HashMap;

use redis::streams::{StreamRangeReply, StreamReadReply};
use redis::{Connection, Value};
use rl_testkit::{Deadline, MultiReply, Reply, Server, ask, eventually, not_tested};
use rstest::{fixture, rstest};

/// Arguments, which every server takes; CONFIG came with 7.0.
#[fixture]
fn server() -> Server {
    Server::with_module_args(&["audit-stream", "rl:audit"])
}

fn deny(con: &mut Connection, key: &str) {
    assert_eq!(ask::<Reply>(con, &format!("RL.SLIDE {key} 0 1h")).0, 0);
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
        let deadline = Deadline::start();
        while keys.len() < 1000 {
            deadline.check("every denial is in the stream");
            let line = "XREADGROUP GROUP kafka c1 COUNT 50 BLOCK 1000 STREAMS rl:audit >";
            let Some(reply) = ask::<Option<StreamReadReply>>(&mut con, line) else {
                continue;
            };
            for entry in &reply.keys[0].ids {
                keys.push(entry.get::<String>("key").unwrap());
                let _: i64 = ask(&mut con, &format!("XACK rl:audit kafka {}", entry.id));
            }
        }
        keys
    });
    for n in 0..1000 {
        deny(&mut con, &format!("k{n}"));
        let _: Reply = ask(&mut con, &format!("RL.SLIDE free{n} 1 1h"));
    }
    let keys = read.join().unwrap();
    assert_eq!(keys, (0..1000).map(|n| format!("k{n}")).collect::<Vec<_>>());
    assert_eq!(errors(&server), 0);
}

#[rstest]
fn an_entry_has_the_fields_of_the_audit(server: Server) {
    let mut con = server.connect();
    let reply: Reply = ask(&mut con, "RL.BUCKET user:1 10 5 60 11");
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
    assert_eq!((reply.0, &*in_stream["retry_after_ms"]), (0, "-1"));
    let client = &in_stream["client"];
    assert!(
        client.starts_with(&format!("id={id} addr=127.0.0.1:")),
        "{client}"
    );
}

#[rstest]
fn the_stream_stays_short() {
    let server =
        Server::with_module_args(&["audit-stream", "rl:audit", "audit-stream-max-len", "500"]);
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
fn the_stream_has_only_sampled_denials() {
    let server =
        Server::with_module_args(&["audit-stream", "rl:audit", "audit-sample-every", "10"]);
    let mut con = server.connect();
    for n in 0..100 {
        deny(&mut con, &format!("k{n}"));
    }
    assert_eq!(ask::<i64>(&mut con, "XLEN rl:audit"), 10);
    assert_eq!(ask::<i64>(&mut con, "RL.AUDIT LEN"), 10);
    assert_eq!(server.info_number("rl", "rl_denied"), 100);
}

#[rstest]
fn the_stream_works_without_the_audit_log() {
    let server = Server::with_module_args(&["audit-stream", "rl:audit", "audit-max-len", "0"]);
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
    assert_eq!(ask::<Reply>(&mut con, "RL.SLIDE rl:audit 1 1h").0, 1);
    assert_eq!(ask::<Reply>(&mut con, "RL.SLIDE rl:audit 1 1h").0, 0);
    assert_eq!(errors(&server), 2);
    ask::<i64>(&mut con, "DEL rl:audit");
    deny(&mut con, "rl:audit");
    assert_eq!(
        ask::<i64>(&mut con, "XLEN rl:audit"),
        1,
        "nothing was in its place"
    );
    assert_eq!(errors(&server), 2);
    // A stream that was deleted is created again.
    ask::<i64>(&mut con, "DEL rl:audit");
    deny(&mut con, "k");
    assert_eq!(ask::<i64>(&mut con, "XLEN rl:audit"), 1);
}

#[rstest]
fn the_stream_is_in_database_0_wherever_the_denials_are(server: Server) {
    let mut con = server.connect();
    let mut other = server.connect();
    ask::<()>(&mut con, "SELECT 3");
    ask::<()>(&mut other, "SELECT 5");
    deny(&mut con, "a");
    deny(&mut other, "b");
    let script = "return redis.call('RL.SLIDE', KEYS[1], 0, '1h')";
    let reply: Reply = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg("c")
        .query(&mut con)
        .unwrap();
    assert_eq!(reply.0, 0);
    // Two databases in one transaction.
    let mut pipe = redis::pipe();
    pipe.atomic()
        .cmd("RL.SLIDE")
        .arg(&["d", "0", "1h"])
        .ignore()
        .cmd("SELECT")
        .arg(7)
        .ignore()
        .cmd("RL.SLIDE")
        .arg(&["e", "0", "1h"])
        .ignore();
    pipe.exec(&mut con).unwrap();
    let mut con = server.connect();
    eventually("all are in the stream", || entries(&mut con).len() == 5);
    let keys: Vec<_> = entries(&mut con)
        .iter()
        .map(|entry| entry["key"].clone())
        .collect();
    assert_eq!(keys, ["a", "b", "c", "d", "e"]);
    let keyspace: String = server.run("INFO", &["keyspace"]);
    let databases = keyspace.lines().filter(|line| line.starts_with("db"));
    assert_eq!(databases.count(), 1, "{keyspace}");
    assert_eq!(errors(&server), 0);
}

#[rstest]
fn a_server_with_full_memory_keeps_denying(server: Server) {
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
        primary = Server::with_module_args(&arguments);
        let _: () = primary.run("CONFIG", &["SET", "appendonly", "yes"]);
    }
    let replica = Server::with_module_args(&arguments);
    replica.follow(&primary);
    let mut con = primary.connect();
    deny(&mut con, "plain");
    let mut pipe = redis::pipe();
    pipe.atomic()
        .cmd("RL.SLIDE")
        .arg(&["t", "1", "1h"])
        .cmd("RL.SLIDE")
        .arg(&["t", "1", "1h"]);
    let _: (Reply, Reply) = pipe.query(&mut con).unwrap();
    let script =
        "redis.call('RL.SLIDE', KEYS[1], 1, '1h') return redis.call('RL.SLIDE', KEYS[1], 1, '1h')";
    let reply: Reply = redis::cmd("EVAL")
        .arg(script)
        .arg(1)
        .arg("s")
        .query(&mut con)
        .unwrap();
    assert_eq!(reply.0, 0);
    let multi: MultiReply = ask(&mut con, r#"RL.MULTI a "SLIDE 0 1h 1" b "SLIDE 0 1h 1""#);
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
    let _: Reply = ask(&mut con, r#"RL.PEEK k "SLIDE 0 1h 1""#);
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
        not_tested("this server has no CONFIG for modules");
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

/// Entries are added a moment after the denial. A server that is paused then may not write: it would abort.
#[rstest]
fn entries_wait_while_writes_are_paused(server: Server) {
    let mut con = server.connect();
    // Something receives what is written.
    ask::<()>(&mut con, "CONFIG SET appendonly yes");
    eventually("the AOF is on", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
    });
    // In one go, so that the pause begins before the entry can be added.
    let mut pipe = redis::pipe();
    pipe.cmd("RL.SLIDE").arg(&["k", "0", "1h"]);
    pipe.cmd("CLIENT").arg(&["PAUSE", "600000", "WRITE"]);
    let (reply, ()): (Reply, ()) = pipe.query(&mut con).unwrap();
    assert_eq!(reply.0, 0);
    // Some rounds of the server's housekeeping, which tries again.
    let rounds = |server: &Server| server.info_number("server", "uptime_in_seconds");
    let start = rounds(&server);
    eventually("the housekeeping has run", || rounds(&server) >= start + 2);
    assert_eq!(ask::<i64>(&mut con, "XLEN rl:audit"), 0);
    assert_eq!(errors(&server), 0, "put off, not lost");
    ask::<()>(&mut con, "CLIENT UNPAUSE");
    eventually("the entry is added", || {
        ask::<i64>(&mut con, "XLEN rl:audit") == 1
    });
    deny(&mut con, "k");
    eventually("the next one as well", || {
        ask::<i64>(&mut con, "XLEN rl:audit") == 2
    });
    assert_eq!(errors(&server), 0);
}

/// A replica's data is its primary's alone, also if it was a primary when the call was denied.
#[rstest]
fn a_node_that_was_just_demoted_adds_nothing(server: Server) {
    let mut con = server.connect();
    deny(&mut con, "before");
    eventually("a primary adds it", || {
        ask::<i64>(&mut con, "XLEN rl:audit") == 1
    });
    // Nobody answers at that port: what is there stays as it is.
    let mut pipe = redis::pipe();
    pipe.cmd("RL.SLIDE").arg(&["k", "0", "1h"]);
    pipe.cmd("REPLICAOF").arg(&["127.0.0.1", "1"]);
    let (reply, ()): (Reply, ()) = pipe.query(&mut con).unwrap();
    assert_eq!(reply.0, 0);
    eventually("the entry is refused, and counted", || {
        errors(&server) == 1 || ask::<i64>(&mut con, "XLEN rl:audit") > 1
    });
    assert_eq!(ask::<i64>(&mut con, "XLEN rl:audit"), 1);
    ask::<()>(&mut con, "REPLICAOF NO ONE");
    deny(&mut con, "after");
    eventually("a primary adds it again", || {
        ask::<i64>(&mut con, "XLEN rl:audit") == 2
    });
    assert_eq!(errors(&server), 1);
}
