//! Restarts, promotions and failovers under load: replicas receive only states, and end up the same.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{Scope, ScopedJoinHandle, sleep};
use std::time::Duration;

use redis::{Client, Connection, RedisResult, Value};
use rl_testkit::{Random, Server, ask, base_config, eventually, module, try_ask, try_random_calls};
use rstest::rstest;

/// Calls of every kind on a port, whoever answers there, until it is dropped.
struct Load<'a> {
    batches: &'a AtomicU64,
    stop: &'a AtomicBool,
}

#[derive(Default)]
struct Shared {
    batches: AtomicU64,
    stop: AtomicBool,
}

impl<'a> Load<'a> {
    fn start<'s>(scope: &'s Scope<'s, '_>, shared: &'a Shared, ports: &[u16]) -> Self
    where
        'a: 's,
    {
        let Shared { batches, stop } = shared;
        for (&port, seed) in ports.iter().zip(1..) {
            let _: ScopedJoinHandle<()> = scope.spawn(move || {
                let mut random = Random(seed);
                let deadline = rl_testkit::Deadline::start();
                while !stop.load(Relaxed) {
                    deadline.check("the load is stopped");
                    let url = format!("redis://127.0.0.1:{port}/");
                    let connected = Client::open(url).unwrap().get_connection();
                    let Ok(mut con) = connected else {
                        sleep(Duration::from_millis(2));
                        continue;
                    };
                    while !stop.load(Relaxed) && batch(&mut con, &mut random).is_ok() {
                        deadline.check("the load is stopped");
                        batches.fetch_add(1, Relaxed);
                    }
                    sleep(Duration::from_millis(2));
                }
            });
        }
        Self { batches, stop }
    }

    /// Waits until many more calls have been answered.
    fn go_on(&self) {
        let before = self.batches.load(Relaxed);
        eventually("calls are answered", || {
            self.batches.load(Relaxed) >= before + 20
        });
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

fn batch(con: &mut Connection, random: &mut Random) -> RedisResult<()> {
    try_random_calls(con, random, 50)?;
    let n = random.below(20);
    for line in [
        format!("RL.CHECK c{n} three"),
        format!("RL.CHECK e{n} logged 2"),
        format!("RL.OVERRIDE SET c{n} three SCALE {} 1 EX 1h", n + 1),
        format!("RL.POLICY SET changing SLIDE {} 1h", n + 1),
    ] {
        try_ask::<Value>(con, &line)?;
    }
    Ok(())
}

/// With room for all that a replica misses while it is away.
fn start() -> Server {
    Server::with(&["repl-backlog-size", "100mb"])
}

fn set_policies(server: &Server) {
    let mut con = server.connect();
    for line in [
        "RL.POLICY SET three SLIDE 100000 1h SLIDE 1000000 1d BUCKET 10000 1 1d",
        "RL.POLICY SET logged EXACT 100000 1h",
    ] {
        ask::<()>(&mut con, line);
    }
}

fn dump(server: &Server) -> String {
    server.run("RL.POLICY", &["DUMP"])
}

/// After the load has stopped.
fn assert_followed(primary: &Server, replicas: &[&Server]) {
    for replica in replicas {
        replica.wait_until_in_sync();
        primary.assert_same_on(replica);
        assert_eq!(dump(primary), dump(replica));
        replica.assert_received_states_only();
    }
}

fn resumed(primary: &Server) -> i64 {
    primary.info_number("stats", "sync_partial_ok")
}

fn promote(server: &Server) {
    let _: () = server.run("REPLICAOF", &["NO", "ONE"]);
}

/// From 7.0 on a primary remembers in its RDB where its replicas were.
fn resumes_after_a_restart(primary: &Server) -> bool {
    let resumes = rl_testkit::has_directive("enable-module-command");
    if !resumes {
        rl_testkit::not_tested("this server copies all data after a primary's restart");
        assert_eq!(resumed(primary), 0);
    }
    resumes
}

#[rstest]
fn a_primary_restarts_under_load_and_its_replica_resumes() {
    let (mut primary, replica) = (start(), start());
    set_policies(&primary);
    replica.follow(&primary);
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let load = Load::start(scope, &shared, &[primary.port()]);
        for _ in 0..3 {
            load.go_on();
            primary.shutdown("SAVE");
            primary.start_again_on_same_port();
            load.go_on();
            replica.wait_until_in_sync();
            load.go_on();
            if resumes_after_a_restart(&primary) {
                assert!(resumed(&primary) > 0, "the replica resumed, without a copy");
            }
        }
    });
    assert_followed(&primary, &[&replica]);
    assert!(replica.calls("rl.load") > 0);
}

#[rstest]
fn a_former_replica_has_replicas_and_restarts() {
    let (first, mut second, third) = (start(), start(), start());
    set_policies(&first);
    second.follow(&first);
    third.follow(&first);
    let shared = Shared::default();
    std::thread::scope(|scope| {
        // Whoever is a replica refuses.
        let load = Load::start(scope, &shared, &[first.port(), second.port()]);
        load.go_on();
        let _: () = first.run("CLIENT", &["PAUSE", "600000", "WRITE"]);
        first.wait_for(&second);
        first.wait_for(&third);
        promote(&second);
        third.follow(&second);
        assert!(resumed(&second) > 0, "without a copy");
        first.follow(&second);
        let _: () = first.run("CLIENT", &["UNPAUSE"]);
        load.go_on();
        second.shutdown("SAVE");
        second.start_again_on_same_port();
        load.go_on();
        first.wait_until_in_sync();
        third.wait_until_in_sync();
        load.go_on();
    });
    assert_followed(&second, &[&third]);
    // It decided calls itself, before.
    first.wait_until_in_sync();
    second.assert_same_on(&first);
    assert_eq!(dump(&second), dump(&first));
    assert_eq!(first.info("rl", "rl_replayed_decisions"), "0");
}

#[rstest]
fn a_failover_under_load_loses_nothing() {
    let (first, second, chained) = (start(), start(), start());
    set_policies(&first);
    second.follow(&first);
    chained.follow(&second);
    let servers = [&first, &second];
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let load = Load::start(scope, &shared, &[first.port(), second.port()]);
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            load.go_on();
            let (from, to) = (servers[from], servers[to]);
            let port = to.port().to_string();
            from.wait_until_online(to);
            let _: () = from.run("FAILOVER", &["TO", "127.0.0.1", &port, "TIMEOUT", "60000"]);
            eventually("the roles are exchanged", || {
                to.info("replication", "role") == "master"
                    && from.info("replication", "role") == "slave"
            });
            from.wait_until_in_sync();
        }
        load.go_on();
    });
    second.assert_same_on(&first);
    assert_followed(&second, &[&chained]);
    for server in servers {
        assert_eq!(dump(&second), dump(server));
        assert_eq!(server.info("rl", "rl_replayed_decisions"), "0");
    }
}

/// A file for the module argument `policies`, removed when dropped.
struct PolicyFile(PathBuf);

impl PolicyFile {
    fn write(server: &Server) -> Self {
        let file = server.path("policies.json");
        let json = r#"{"policies":{"free":{"limits":["SLIDE 5 1h"]}}}"#;
        fs::write(&file, json).unwrap();
        Self(file)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

fn assert_knows_free(replica: &Server) {
    eventually("the replica has the policies", || {
        let names: Vec<String> = replica.run("RL.POLICY", &["LIST"]);
        names.iter().any(|name| name == "free")
    });
    replica.assert_received_states_only();
    promote(replica);
    let reply: Vec<i64> = replica.run("RL.CHECK", &["k", "free"]);
    assert_eq!(reply[..3], [1, 5, 4]);
}

#[rstest]
fn a_module_loaded_into_a_live_primary_sends_states_and_its_policies() {
    let (primary, replica) = (
        Server::without_module(&base_config()),
        Server::without_module(&base_config()),
    );
    let file = PolicyFile::write(&primary);
    replica.follow(&primary);
    let path = module().to_str().unwrap();
    let _: () = replica.run("MODULE", &["LOAD", path]);
    let mut con = primary.connect();
    let _: () = ask(
        &mut con,
        &format!("MODULE LOAD {path} policies {}", file.path()),
    );
    // At once, before any event or housekeeping.
    let mut pipe = redis::pipe();
    for n in 0..100 {
        pipe.cmd("RL.SLIDE").arg(n % 10).arg(&["50", "1h"]);
    }
    pipe.exec(&mut con).unwrap();
    try_random_calls(&mut con, &mut Random(1), 1000).unwrap();
    primary.assert_same_on(&replica);
    assert_knows_free(&replica);
}

#[rstest]
fn policies_that_a_restart_brings_reach_a_replica_that_resumes() {
    let (mut primary, replica) = (Server::start(), Server::start());
    let file = PolicyFile::write(&primary);
    replica.follow(&primary);
    let _: Vec<i64> = primary.run("RL.SLIDE", &["s", "5", "1h"]);
    primary.wait_for(&replica);
    primary.shutdown("SAVE");
    let argument = format!(
        "loadmodule {} policies {}\n",
        module().display(),
        file.path()
    );
    let include = primary.path("module.conf");
    fs::write(&include, argument).unwrap();
    primary.replace_config("loadmodule", "include", include.to_str().unwrap());
    primary.start_again_on_same_port();
    replica.wait_until_in_sync();
    if resumes_after_a_restart(&primary) {
        assert!(resumed(&primary) > 0, "without a copy");
    }
    primary.assert_same_on(&replica);
    assert_knows_free(&replica);
}

/// The same if the primary had no moment in which it could tell before it stopped.
#[rstest]
fn policies_that_could_not_be_announced_before_a_restart_are_announced_after_it() {
    let bare = || Server::without_module(&base_config());
    let (mut primary, replica) = (bare(), bare());
    let file = PolicyFile::write(&primary);
    replica.follow(&primary);
    let path = module().to_str().unwrap();
    let _: () = replica.run("MODULE", &["LOAD", path]);
    let _: () = primary.run("CLIENT", &["PAUSE", "60000", "WRITE"]);
    let _: () = primary.run("MODULE", &["LOAD", path, "policies", file.path()]);
    sleep(Duration::from_millis(300));
    assert!(
        replica
            .run::<Vec<String>>("RL.POLICY", &["LIST"])
            .is_empty()
    );
    primary.shutdown("SAVE");
    primary.add_config(&["loadmodule", path]);
    primary.start_again_on_same_port();
    replica.wait_until_in_sync();
    assert_knows_free(&replica);
}
