//! RDB files give back what was: over reloads and restarts, and from every version ever shipped.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::path::Path;

use redis::Value;
use rstest::rstest;
use support::{Five, Server, ask};

fn fill(server: &Server) {
    for n in 0..50 {
        let _: Five = server.run("RL.SLIDE", &[&format!("s{n}"), "10", "1h", "3"]);
        let _: Five = server.run("RL.BUCKET", &[&format!("b{n}"), "9", "1", "1h", "4"]);
    }
    let mut con = server.connect();
    for n in 0..50 {
        for line in [
            format!(
                "RL.SLIDE p{n} 70000 1h {} PRECISION {}",
                1 + n * 1400,
                n + 1
            ),
            format!("RL.FIXED f{n} 100 3650d {}", n + 1),
            format!("RL.EXACT x{} 100000 1h {}", n % 4, n % 5),
            format!("RL.LEAK l{n} 100 1 1h {}", n + 1),
            format!("RL.LEASE h{} 100 1h holder{n} 2", n % 4),
        ] {
            assert_eq!(ask::<Five>(&mut con, &line).0, 1, "{line}");
        }
    }
    // A log of many chunks, some of it given back, and a list of many holders.
    let mut pipe = redis::pipe();
    for n in 0..2000 {
        pipe.cmd("RL.EXACT")
            .arg("log")
            .arg(100_000)
            .arg("1h")
            .arg(n % 3 + 1);
        pipe.cmd("RL.LEASE")
            .arg("list")
            .arg(100_000)
            .arg("1h")
            .arg(n);
    }
    pipe.cmd("RL.REFUND").arg("log").arg(1234);
    pipe.cmd("RL.RELEASE").arg("list").arg(777);
    pipe.exec(&mut con).unwrap();
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
    for (peek, left) in [
        ("RL.PEEK s1 SLIDE 10 1h 0", 7),
        ("RL.PEEK p3 SLIDE 70000 1h 0 PRECISION 4", 70_000 - 4201),
        ("RL.PEEK f3 FIXED 100 3650d 0", 96),
        ("RL.PEEK log EXACT 100000 1h 0", 100_000 - 3999 + 1234),
        ("RL.PEEK l3 LEAK 100 1 1h 0", 96),
        ("RL.PEEK list LEASE 100000 1h x 0", 100_000 - 1999),
    ] {
        let five: Five = ask(&mut server.connect(), peek);
        assert_eq!(five.2, left, "{peek}");
    }
    let again: i64 = server.run("RL.RELEASE", &["list", "777"]);
    assert_eq!(again, 0, "released before the restart");
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

const FIXTURES: [Fixture; 2] = [
    (
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
    ),
    (
        "v1-family",
        &[
            (
                "precise",
                "rl-slide-",
                "dcd5c3e2c23c707581aa4b378d89af49b9ac47d7",
            ),
            (
                "precise:wide",
                "rl-slide-",
                "67b5984b08514694d636896abcb23f0164c35bc8",
            ),
            (
                "fixed",
                "rl-fixed-",
                "693531a5900661894e4b8ab89f32ca6eee28062d",
            ),
            (
                "fixed:wide",
                "rl-fixed-",
                "b33d270323ae9e922c3c418e4e06f72ee836ba11",
            ),
            (
                "leak",
                "rl-leak--",
                "8f306e476267b651bf9e81736d504bce2e1a1e9f",
            ),
            (
                "leak:wide",
                "rl-leak--",
                "8b68911faf0bbdebbd107b6d9c1eca74cf311b7c",
            ),
            (
                "exact",
                "rl-exact-",
                "0402274c67eb48fee76d0f8d792029a52c24399c",
            ),
            (
                "lease",
                "rl-lease-",
                "3f88821c613debd7dd2301f94b62314784c9040b",
            ),
        ],
    ),
];

fn assert_means_the_same(server: &Server, keys: &[(&str, &str, &str)]) {
    assert_eq!(server.run::<i64>("DBSIZE", &[]), keys.len() as i64);
    for &(key, kind, digest) in keys {
        assert_eq!(server.run::<String>("TYPE", &[key]), kind);
        // A digest tells a key that expires from one that does not.
        let _: i64 = server.run("PERSIST", &[key]);
        assert_eq!(server.digest(key), digest, "{key}");
    }
}

/// Not only the same bits: the same usage.
fn assert_goes_on(server: &Server) {
    let mut con = server.connect();
    if ask::<i64>(&mut con, "EXISTS exact") == 0 {
        return;
    }
    let shown: Vec<Value> = ask(&mut con, "RL.INSPECT exact");
    assert!(shown.contains(&Value::Int(1000 - 17)), "{shown:?}");
    for (holder, held) in [(1, 1), (2, 0), (3, 1)] {
        let line = format!("RL.RELEASE lease holder:{holder}");
        assert_eq!(ask::<i64>(&mut con, &line), held, "{line}");
    }
    let shown: Vec<Value> = ask(&mut con, "RL.INSPECT leak");
    assert!(shown.contains(&Value::Int(123)), "{shown:?}");
}

#[rstest]
fn every_shipped_rdb_still_loads() {
    for (version, keys) in FIXTURES {
        let mut server = Server::start();
        server.shutdown("NOSAVE");
        fs::copy(fixture(version, "dump.rdb"), server.path("dump.rdb")).unwrap();
        server.start_again();
        assert_means_the_same(&server, keys);
        assert_goes_on(&server);
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
        assert_goes_on(&server);
    }
}

fn fixture(version: &str, file: &str) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/fixtures").join(version).join(file)
}
