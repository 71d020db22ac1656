//! RDB files give back what was: over reloads and restarts, and from every version ever shipped.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use rstest::rstest;
use support::{Five, Server};

fn fill(server: &Server) {
    for n in 0..50 {
        let _: Five = server.run("RL.SLIDE", &[&format!("s{n}"), "10", "1h", "3"]);
        let _: Five = server.run("RL.BUCKET", &[&format!("b{n}"), "9", "1", "1h", "4"]);
    }
    let max = "9007199254740991";
    let _: Five = server.run("RL.SLIDE", &["wide", max, "3650d", max]);
    let _: Five = server.run("RL.BUCKET", &["deep", max, "1", "3650d", max]);
}

#[rstest]
fn a_restart_gives_back_states_and_expiry() {
    let mut server = Server::with(&["dbfilename", "kept.rdb"]);
    fill(&server);
    let (digest, expiry) = (server.digest_all(), server.expire_at_ms("s1"));
    server.shutdown("SAVE");
    server.start_again();
    assert_eq!(server.digest_all(), digest);
    assert!((server.expire_at_ms("s1") - expiry).abs() <= 2);
    let five: Five = server.run("RL.SLIDE", &["s1", "10", "1h", "0"]);
    assert_eq!(five.2, 7);
}

#[rstest]
fn a_reload_gives_back_states_and_expiry() {
    let server = Server::start();
    fill(&server);
    let digest = server.digest_all();
    let _: () = server.run("DEBUG", &["RELOAD"]);
    assert_eq!(server.digest_all(), digest);
}

#[rstest]
fn enough_allowed_calls_trigger_a_save() {
    let server = Server::start();
    let _: () = server.run("CONFIG", &["SET", "save", "1 5"]);
    let before = server.info_number("persistence", "rdb_last_save_time");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    for _ in 0..10 {
        let _: Five = server.run("RL.SLIDE", &["k", "100", "1h"]);
    }
    support::eventually("saved", || {
        server.info_number("persistence", "rdb_last_save_time") > before
    });
}

/// Files written by earlier versions, and what they must still mean; see tests/fixtures/README.md.
type Fixture = (
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

const FIXTURES: [Fixture; 1] = [(
    "v1",
    &[
        (
            "slide",
            "rl-slide-",
            "1a1f12c7fc96cbb48d64636871c99ec0d6a68ae1",
        ),
        (
            "slide:wide",
            "rl-slide-",
            "ba38f3353cdb8e2842df373e2abad6f6b634f126",
        ),
        (
            "bucket",
            "rl-bucket",
            "842ffd3a4b678bc3f3ddcd37d5474680d8e356c9",
        ),
        (
            "bucket:wide",
            "rl-bucket",
            "e4a2a13ed8de9bb807e6206f63de77d0538e3489",
        ),
    ],
)];

fn assert_means_the_same(server: &Server, keys: &[(&str, &str, &str)]) {
    assert_eq!(server.run::<i64>("DBSIZE", &[]), keys.len() as i64);
    for &(key, kind, digest) in keys {
        assert_eq!(server.run::<String>("TYPE", &[key]), kind);
        // A digest tells a key that expires from one that does not.
        let _: i64 = server.run("PERSIST", &[key]);
        assert_eq!(server.digest(key), digest, "{key}");
    }
}

#[rstest]
fn every_shipped_rdb_still_loads() {
    for (version, keys) in FIXTURES {
        let mut server = Server::start();
        server.shutdown("NOSAVE");
        fs::copy(fixture(version, "dump.rdb"), server.path("dump.rdb")).unwrap();
        server.start_again();
        assert_means_the_same(&server, keys);
    }
}

#[rstest]
fn every_shipped_aof_still_loads() {
    for (version, keys) in FIXTURES {
        let mut server = Server::with(&["appendonly", "yes"]);
        server.shutdown("NOSAVE");
        // From 7.0 on a lone file of this name is taken over into a folder, if there is none yet.
        let _ = fs::remove_dir_all(server.path("appendonlydir"));
        fs::copy(
            fixture(version, "appendonly.aof"),
            server.path("appendonly.aof"),
        )
        .unwrap();
        server.start_again();
        assert_means_the_same(&server, keys);
    }
}

fn fixture(version: &str, file: &str) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures").join(version).join(file)
}
