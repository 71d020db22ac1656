//! Overrides apply to one key instead of its policy's limits, live in the slot of the key, expire, and cost other keys
//! nothing.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use redis::{Connection, Value};
use rl_testkit::{
    CheckReply, Deadline, MultiReply, Reply, Server, ask, ask_error, ask_ok, eventually, try_ask,
};
use rl_testkit::{FrozenServer, NOON_US};
use rstest::{fixture, rstest};

#[fixture]
fn server() -> Server {
    let server = Server::start();
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET free SLIDE 10 1h");
    ask_ok(
        &mut con,
        "RL.POLICY SET pro SLIDE 10 1m COST 1 BUCKET 20 6 1h",
    );
    server
}

/// Policy, override, time left, note.
type Shown = (String, String, i64, String);

fn shown(con: &mut Connection, key: &str) -> Vec<Shown> {
    let all: Vec<Vec<Value>> = ask(con, &format!("RL.OVERRIDE GET {key}"));
    let text = |value: &Value| redis::from_redis_value::<String>(value.clone()).unwrap();
    all.iter()
        .map(|fields| {
            let names: Vec<String> = fields.iter().step_by(2).map(text).collect();
            assert_eq!(names, ["policy", "action", "expires_in_ms", "note"]);
            let left = redis::from_redis_value(fields[5].clone()).unwrap();
            (text(&fields[1]), text(&fields[3]), left, text(&fields[7]))
        })
        .collect()
}

#[rstest]
fn an_override_is_set_shown_and_deleted(server: Server) {
    let mut con = server.connect();
    assert!(shown(&mut con, "k").is_empty());
    ask_ok(
        &mut con,
        "RL.OVERRIDE SET k pro slide 500 60 SLIDE 9000 1h NOTE vip",
    );
    ask_ok(&mut con, "RL.OVERRIDE SET k free SCALE 5 1 EX 30m");
    let all = shown(&mut con, "k");
    assert_eq!((&*all[0].0, &*all[0].1), ("free", "SCALE 5 1"));
    assert!((1_700_000..=1_800_000).contains(&all[0].2));
    assert_eq!(
        all[1],
        (
            "pro".into(),
            "SLIDE 500 1m SLIDE 9000 1h".into(),
            -1,
            "vip".into()
        )
    );
    assert_eq!(ask::<String>(&mut con, "TYPE rl:override:{k}"), "rl-overrd");
    assert_eq!(
        ask::<i64>(&mut con, "PTTL rl:override:{k}"),
        -1,
        "one has no end"
    );
    assert_eq!(server.info_number("rl", "rl_keys_with_overrides"), 1);
    assert_eq!(ask::<i64>(&mut con, "RL.OVERRIDE DEL k pro"), 1);
    assert_eq!(ask::<i64>(&mut con, "RL.OVERRIDE DEL k pro"), 0);
    let ttl: i64 = ask(&mut con, "PTTL rl:override:{k}");
    assert!((1_700_000..=1_800_000).contains(&ttl), "{ttl}");
    assert_eq!(ask::<i64>(&mut con, "RL.OVERRIDE DEL k free"), 1);
    assert_eq!(ask::<i64>(&mut con, "DBSIZE"), 0);
    assert_eq!(server.info_number("rl", "rl_keys_with_overrides"), 0);
}

#[rstest]
fn an_override_replaces_the_policy(server: Server) {
    let mut con = server.connect();
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free 4").2, 6);
    ask_ok(&mut con, "RL.OVERRIDE SET k free SCALE 5 1");
    let six: CheckReply = ask(&mut con, "RL.CHECK k free 1");
    assert_eq!((six.1, six.2), (50, 45), "usage is kept");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK other free 1").1, 10);
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK k pro 0").1,
        10,
        "another policy"
    );
    ask_ok(
        &mut con,
        "RL.OVERRIDE SET k free SLIDE 7 1h FIXED 3 3650d COST 2",
    );
    let six: CheckReply = ask(&mut con, "RL.CHECK k free 1");
    assert_eq!((six.1, six.2, six.5), (7, 1, 0));
    let six: CheckReply = ask(&mut con, "RL.CHECK k free 1");
    assert_eq!((six.0, six.5), (0, 1), "its own limits deny");
    ask_ok(&mut con, "RL.OVERRIDE SET k free ALLOW");
    let digest = server.digest("k");
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK k free 9"),
        (1, 10, 10, 0, 0, -1)
    );
    ask_ok(&mut con, "RL.OVERRIDE SET k free BLOCK");
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK k free"),
        (0, 0, 0, -1, 0, -1)
    );
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free 1 FORCE").0, 0);
    assert_eq!(server.digest("k"), digest, "nothing is counted");
    let (allowed, wait, each): MultiReply =
        ask(&mut con, r#"RL.MULTI k "POLICY free 1" b "SLIDE 5 1h 1""#);
    assert_eq!((allowed, wait, each[0]), (0, -1, (0, 0, 0, -1, 0)));
    assert_eq!(each[1].2, 5);
    assert_eq!(ask::<Reply>(&mut con, r#"RL.PEEK k "POLICY free 1""#).0, 0);
    assert_eq!(ask::<i64>(&mut con, "RL.OVERRIDE DEL k free"), 1);
    assert_eq!(
        ask::<CheckReply>(&mut con, "RL.CHECK k free 1").2,
        3,
        "back to the policy"
    );
    assert_eq!(ask::<String>(&mut con, "TYPE k"), "rl-slide-");
}

#[rstest]
fn an_override_ends_to_the_millisecond() {
    let frozen = FrozenServer::start();
    if frozen.cannot_be_tested() {
        return;
    }
    let server = &frozen.server;
    let mut con = server.connect();
    ask_ok(&mut con, "RL.POLICY SET free SLIDE 10 1h");
    ask_ok(&mut con, "RL.OVERRIDE SET k free BLOCK EX 1500ms");
    ask_ok(&mut con, "RL.OVERRIDE SET other free SCALE 2 1 EX 1500ms");
    let end_us = NOON_US / 1000 * 1000 + 1_500_000;
    for before_ms in [1500, 1000, 2, 1] {
        frozen.set(end_us - before_ms * 1000);
        let six: CheckReply = ask(&mut con, "RL.CHECK k free");
        assert_eq!(
            (six.0, six.3),
            (0, before_ms as i64),
            "the wait that it tells is true"
        );
        assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK other free 0").1, 20);
    }
    frozen.set(end_us);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free").0, 1);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK other free 0").1, 10);
    assert!(shown(&mut con, "k").is_empty());
    // One that ends is no longer there when another is set; the key goes with the last.
    ask_ok(&mut con, "RL.POLICY SET pro SLIDE 10 1h");
    ask_ok(&mut con, "RL.OVERRIDE SET k free BLOCK EX 1");
    ask_ok(&mut con, "RL.OVERRIDE SET k pro BLOCK EX 3");
    assert_eq!(
        server.expire_at_ms("rl:override:{k}") as u64,
        end_us / 1000 + 3000
    );
    frozen.set(end_us + 1_000_000);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k free").0, 1);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k pro").0, 0);
    assert_eq!(shown(&mut con, "k").len(), 1);
    frozen.set(end_us + 3_000_000);
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK k pro").0, 1);
    // The server's own expiry is a millisecond later.
    frozen.set(end_us + 3_002_000);
    eventually("the key has gone", || {
        server.run::<i64>("EXISTS", &["rl:override:{k}"]) == 0
    });
}

#[rstest]
fn without_overrides_no_call_looks_for_one(server: Server) {
    let mut con = server.connect();
    let lookups = |server: &Server| {
        server.info_number("stats", "keyspace_hits")
            + server.info_number("stats", "keyspace_misses")
    };
    let spent = |con: &mut Connection| {
        let before = lookups(&server);
        for n in 0..100 {
            let _: CheckReply = ask(con, &format!("RL.CHECK key{n} free"));
        }
        lookups(&server) - before
    };
    assert_eq!(
        spent(&mut con),
        0,
        "a key that is opened to be written is not counted"
    );
    ask_ok(&mut con, "RL.OVERRIDE SET key7 free BLOCK");
    assert_eq!(spent(&mut con), 0, "nor is the look for an override");
    let before = lookups(&server);
    let reply: Reply = ask(&mut con, r#"RL.PEEK key7 "POLICY free 1""#);
    assert_eq!(reply.0, 0);
    assert_eq!(lookups(&server), before);
    assert_eq!(ask::<i64>(&mut con, "DEL rl:override:{key7}"), 1);
    eventually("it is freed", || {
        server.info_number("rl", "rl_keys_with_overrides") == 0
    });
    assert_eq!(spent(&mut con), 0);
    // However they come and go.
    ask_ok(&mut con, "RL.OVERRIDE SET a free BLOCK");
    assert_eq!(
        ask::<i64>(&mut con, "COPY rl:override:{a} rl:override:{b}"),
        1
    );
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK b free").0, 0);
    assert_eq!(server.info_number("rl", "rl_keys_with_overrides"), 2);
    ask_ok(&mut con, "DEBUG RELOAD");
    assert_eq!(server.info_number("rl", "rl_keys_with_overrides"), 2);
    ask_ok(&mut con, "FLUSHALL");
    eventually("all are freed", || {
        server.info_number("rl", "rl_keys_with_overrides") == 0
    });
}

#[rstest]
fn replicas_and_files_contain_overrides(mut server: Server) {
    let mut con = server.connect();
    let replica = Server::start();
    replica.follow(&server);
    ask_ok(&mut con, "RL.OVERRIDE SET k free SCALE 5 1 EX 1h NOTE x");
    ask_ok(&mut con, "RL.OVERRIDE SET k pro BLOCK");
    ask_ok(&mut con, "RL.OVERRIDE SET {t}a free ALLOW EX 1h");
    server.wait_for(&replica);
    assert_eq!(server.digest_all(), replica.digest_all());
    assert_eq!(
        replica.run::<Reply>("RL.PEEK", &["k", "POLICY free 0"]).1,
        50
    );
    let (digest, expiry) = (
        server.digest_all(),
        server.expire_at_ms("rl:override:{t}:{t}a"),
    );
    assert_eq!(replica.expire_at_ms("rl:override:{t}:{t}a"), expiry);
    let dump: Vec<u8> = ask(&mut con, "DUMP rl:override:{k}");
    let mut restore = redis::cmd("RESTORE");
    restore
        .arg("copy")
        .arg(0)
        .arg(&dump)
        .exec(&mut con)
        .unwrap();
    assert_eq!(server.digest("copy"), server.digest("rl:override:{k}"));
    assert_eq!(ask::<i64>(&mut con, "RL.OVERRIDE DEL k pro"), 1);
    assert_eq!(ask::<i64>(&mut con, "RL.OVERRIDE DEL {t}a free"), 1);
    assert_eq!(ask::<i64>(&mut con, "DEL copy"), 1);
    server.wait_for(&replica);
    assert_eq!(server.digest_all(), replica.digest_all());
    assert_ne!(server.digest_all(), digest);
    server.kill();
    let _: () = replica.run("REPLICAOF", &["NO", "ONE"]);
    assert_eq!(replica.run::<CheckReply>("RL.CHECK", &["k", "free"]).1, 50);
}

/// Every single bit of what is stored, flipped: refused, or read as something else that is whole.
#[rstest]
fn corrupt_overrides_are_refused_or_harmless(server: Server) {
    let mut con = server.connect();
    let entry = "free SLIDE 7 1h COST 2 EX 1h NOTE x";
    ask_ok(&mut con, &format!("RL.OVERRIDE SET k {entry}"));
    let words: Vec<&[u8]> = entry.split(' ').map(str::as_bytes).collect();
    let entry = rl_core::policy::Override::parse(&mut words.iter().copied(), 1_700_000_000_000_000);
    let all = rl_core::policy::Overrides::default()
        .with(entry.unwrap(), 0)
        .unwrap();
    let blob = all.blob();
    let load = |con: &mut Connection, blob: &[u8]| {
        let mut call = redis::cmd("RL.LOAD");
        call.arg("rl:override:{k}")
            .arg(99_999_999_999_999_i64)
            .arg(blob)
            .exec(con)
    };
    load(&mut con, &blob).unwrap();
    for bit in 0..8 * blob.len() {
        let mut damaged = blob.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        if load(&mut con, &damaged).is_ok() {
            let _: Value = try_ask(&mut con, "RL.CHECK k free").unwrap();
            let _ = shown(&mut con, "k");
        }
        let cut = load(&mut con, &blob[..bit / 8]);
        assert!(cut.is_err(), "{bit}");
    }
    assert_eq!(ask::<String>(&mut con, "PING"), "PONG");
}

#[rstest]
fn nonsense_is_refused(server: Server) {
    let mut con = server.connect();
    for (line, error) in [
        ("RL.OVERRIDE NOPE k", "ERR unknown subcommand"),
        ("RL.OVERRIDE SET k free", "ERR wrong number of arguments"),
        ("RL.OVERRIDE SET k free MAYBE", "ERR expected limits, SCALE"),
        ("RL.OVERRIDE SET k free BLOCK EX", "ERR EX must be"),
        ("RL.OVERRIDE SET k free BLOCK NOTE", "ERR note must be"),
        ("RL.OVERRIDE SET k free SCALE 2", "ERR num and den"),
        (
            "RL.OVERRIDE SET k free BUCKET 5 1",
            "ERR incomplete limit: the period is missing",
        ),
        ("RL.OVERRIDE SET k free BLOCK EX 0", "ERR EX must be"),
        (
            "RL.OVERRIDE SET k free BLOCK EX 99999999d",
            "ERR EX must be",
        ),
        ("RL.OVERRIDE SET k free SCALE 1000001 1", "ERR num and den"),
        (
            "RL.OVERRIDE SET k free LEASE 1 1 x",
            "ERR a policy cannot contain a LEASE",
        ),
        ("RL.OVERRIDE SET k none BLOCK", "ERR no such policy 'none'"),
        ("RL.OVERRIDE SET a} free BLOCK", "ERR an empty key"),
        ("RL.OVERRIDE GET", "ERR wrong number of arguments"),
        ("RL.OVERRIDE GET k x", "ERR wrong number of arguments"),
        ("RL.OVERRIDE DEL k", "ERR wrong number of arguments"),
    ] {
        let text = ask_error(&mut con, line);
        assert!(text.starts_with(error), "{line}: {text}");
    }
    let empty = redis::cmd("RL.OVERRIDE")
        .arg("SET")
        .arg("")
        .arg("free")
        .arg("BLOCK")
        .exec(&mut con);
    assert!(empty.unwrap_err().to_string().contains("empty key"));
    // Where there can be none, none is looked for.
    ask_ok(&mut con, "RL.OVERRIDE SET k free BLOCK");
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK a} free").0, 1);
    assert!(shown(&mut con, "a}").is_empty());
    for n in 0..64 {
        ask_ok(&mut con, &format!("RL.POLICY SET p{n} SLIDE 1 1"));
    }
    for n in 0..63 {
        ask_ok(&mut con, &format!("RL.OVERRIDE SET k p{n} BLOCK"));
    }
    let error = ask_error(&mut con, "RL.OVERRIDE SET k p63 BLOCK");
    assert_eq!(error, "ERR a key can have overrides of at most 64 policies");
    ask_ok(&mut con, "SET rl:override:{s} text");
    assert!(ask_error(&mut con, "RL.OVERRIDE SET s free BLOCK").starts_with("WRONGTYPE"));
    assert_eq!(ask::<CheckReply>(&mut con, "RL.CHECK s free").0, 1);
}

fn node() -> Server {
    Server::with(&[
        "cluster-enabled",
        "yes",
        "cluster-require-full-coverage",
        "no",
    ])
}

/// Whatever happens, the callers end.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Calls without pause, and follows the server's redirections; how many calls were admitted.
fn call_on(mut here: Connection, mut there: Connection, stop: &AtomicBool) -> i64 {
    let mut admitted = 0;
    let deadline = Deadline::start();
    while !stop.load(Relaxed) {
        deadline.check("the callers are stopped");
        let six = match try_ask::<CheckReply>(&mut here, "RL.CHECK {u}load q") {
            Ok(six) => six,
            Err(error) => {
                assert!(
                    matches!(error.code(), Some("ASK" | "MOVED" | "TRYAGAIN")),
                    "only redirections: {error}"
                );
                if error.code() == Some("ASK") {
                    ask_ok(&mut there, "ASKING");
                }
                match try_ask(&mut there, "RL.CHECK {u}load q") {
                    Ok(six) => six,
                    // Until the slot has moved.
                    Err(error) => {
                        assert_eq!(error.code(), Some("TRYAGAIN"), "{error}");
                        continue;
                    }
                }
            }
        };
        assert_eq!(six.0, 1);
        admitted += 1;
    }
    admitted
}

/// A slot moves from one node to the other, key by key, while its limit is checked: no call is lost or
/// counted twice, and the override holds on both sides.
#[rstest]
fn overrides_migrate_with_their_slot_under_load() {
    let (from, to) = (node(), node());
    let _: () = from.run("CLUSTER", &["MEET", "127.0.0.1", &to.port().to_string()]);
    let slot = from.run::<i64>("CLUSTER", &["KEYSLOT", "{u}k"]).to_string();
    for key in ["rl:override:{u}:{u}k", "rl:override:{u}"] {
        assert_eq!(
            from.run::<i64>("CLUSTER", &["KEYSLOT", key]).to_string(),
            slot
        );
    }
    // A node that has another slot stays a primary.
    let _: () = from.run("CLUSTER", &["ADDSLOTS", &slot, "0"]);
    let known = |server: &Server| {
        let info: String = server.run("CLUSTER", &["INFO"]);
        info.contains("cluster_known_nodes:2") && info.contains("cluster_state:ok")
    };
    eventually("the nodes know each other", || known(&from) && known(&to));
    let id = |server: &Server| server.run::<String>("CLUSTER", &["MYID"]);
    let (from_id, to_id) = (id(&from), id(&to));
    for server in [&from, &to] {
        let mut con = server.connect();
        ask_ok(
            &mut con,
            "RL.POLICY SET p FIXED 5 3650d FIXED 1000000 3000d",
        );
        ask_ok(
            &mut con,
            "RL.POLICY SET q FIXED 2000000 3650d FIXED 1000000 3000d",
        );
    }
    let mut con = from.connect();
    ask_ok(&mut con, "RL.OVERRIDE SET {u}k p SCALE 1000 1 EX 1h");
    let stop = AtomicBool::new(false);
    let callers = [(); 3].map(|()| (from.connect(), to.connect()));
    thread::scope(|scope| {
        let stopping = Stop(&stop);
        let callers = callers.map(|(here, there)| scope.spawn(|| call_on(here, there, &stop)));
        let _: () = to.run("CLUSTER", &["SETSLOT", &slot, "IMPORTING", &from_id]);
        let mut there = to.connect();
        let mut check = |con: &mut Connection| -> CheckReply {
            match try_ask::<CheckReply>(con, "RL.CHECK {u}k p") {
                Ok(six) => six,
                // As a cluster's client follows.
                Err(_) => {
                    ask_ok(&mut there, "ASKING");
                    ask(&mut there, "RL.CHECK {u}k p")
                }
            }
        };
        let mut counted = 0;
        let mut one = |con: &mut Connection| {
            let six = check(con);
            counted += 1;
            assert_eq!(
                (six.0, six.1, six.2),
                (1, 5000, 5000 - counted),
                "call {counted}"
            );
        };
        for _ in 0..200 {
            one(&mut con);
        }
        let keys = || from.run::<Vec<String>>("CLUSTER", &["GETKEYSINSLOT", &slot, "10"]);
        eventually("the callers call", || keys().len() == 3);
        let _: () = from.run("CLUSTER", &["SETSLOT", &slot, "MIGRATING", &to_id]);
        // The override goes as a key of its own: the tool moves whatever the slot holds.
        let keys = keys();
        one(&mut con);
        let mut migrate = redis::cmd("MIGRATE");
        migrate
            .arg("127.0.0.1")
            .arg(to.port())
            .arg("")
            .arg(0)
            .arg(60_000)
            .arg("KEYS")
            .arg(&keys);
        assert_eq!(migrate.query::<String>(&mut con).unwrap(), "OK");
        for _ in 0..200 {
            one(&mut con);
        }
        for server in [&to, &from] {
            let _: () = server.run("CLUSTER", &["SETSLOT", &slot, "NODE", &to_id]);
        }
        let mut con = to.connect();
        for _ in 0..200 {
            one(&mut con);
        }
        assert_eq!(counted, 601);
        drop(stopping);
        let admitted: i64 = callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum();
        let left: CheckReply = ask(&mut to.connect(), "RL.CHECK {u}load q 0");
        println!("{admitted} calls of three callers during the move");
        assert!(admitted > 0);
        assert_eq!(
            (left.1, left.2, left.5),
            (1_000_000, 1_000_000 - admitted, 1)
        );
    });
    assert_eq!(from.info_number("rl", "rl_keys_with_overrides"), 0);
    assert_eq!(to.info_number("rl", "rl_keys_with_overrides"), 1);
}
