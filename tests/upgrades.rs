//! Files and payloads of every released version load with the same meaning: RDB, AOF (rewritten, and with replicated
//! effects) and DUMP. `tests/fixtures/README.md` describes the files.

use std::fs;
use std::path::PathBuf;

use redis::{Connection, Value};
use rl_testkit::{Server, ask, command, eventually, root};
use rstest::rstest;

/// One folder per version of the encodings. Never remove one, and never rewrite one that has been released.
const VERSIONS: [&str; 1] = ["v1"];

const MAX: i64 = 9_007_199_254_740_991;

/// Makes a key of every kind and form. Keys with windows of ten years still count when the files are read.
fn commands() -> Vec<String> {
    let mut lines: Vec<String> = [
        "RL.POLICY SET golden SLIDE 1000 3650d EXACT 5000 3650d COST 2 BUCKET 900 1 3650d",
        "RL.POLICY SET other FIXED 10 1d LEAK 10 1 1h",
        "RL.SLIDE slide 1000 1h 847",
        "RL.SLIDE slide 1000 1h 5",
        "RL.SLIDE slide:long 1000 3650d 847",
        "RL.SLIDE slide:wide 9007199254740991 3650d 1099511627776",
        "RL.SLIDE precise 1000 1h 847 PRECISION 6",
        "RL.SLIDE precise 1000 1h 5 PRECISION 6",
        "RL.SLIDE precise:wide 9007199254740991 3650d 1099511627776 PRECISION 60",
        "RL.BUCKET bucket 200 1000 1m 123",
        "RL.BUCKET bucket:long 1000 1 3650d 847",
        "RL.BUCKET bucket:wide 9007199254740991 7 3650d 1099511627776",
        "RL.FIXED fixed 1000 3650d 847",
        "RL.FIXED fixed:wide 9007199254740991 3650d 1099511627776000",
        "RL.FIXED fixed:week 1000 week 7",
        "RL.FIXED fixed:month 1000 month 7 OFFSET -9h",
        "RL.FIXED fixed:year 1000 year 7 OFFSET 14d",
        "RL.LEAK leak 200 1000 1m 123",
        "RL.LEAK leak:long 1000 1 3650d 847",
        "RL.LEAK leak:wide 9007199254740991 7 3650d 1099511627776",
        "RL.CHECK several golden 100",
        "RL.CHECK several golden 11",
        RESERVE,
        "RL.SETTLE reservation 1 reserved:slide 30",
        "RL.SETTLE closed 1 reserved:slide 30",
        r#"RL.RESERVE settled:1 3650d settled "BUCKET 1000 1 3650d 40""#,
        r#"RL.RESERVE settled:2 3650d settled "BUCKET 1000 1 3650d 40""#,
        "RL.SETTLE settled:2 1 settled 10",
        "RL.OVERRIDE SET blocked golden BLOCK NOTE spam",
        "RL.OVERRIDE SET scaled golden SCALE 5 2",
        "RL.OVERRIDE SET own golden SLIDE 7 3650d EXACT 9 3650d",
        "RL.OVERRIDE SET own other ALLOW",
        "RL.CHECK own golden 3",
    ]
    .map(str::to_owned)
    .to_vec();
    for n in 0..400 {
        let cost = [2, 3, 4, 1][n % 4];
        lines.push(format!("RL.EXACT exact 100000 3650d {cost}"));
    }
    lines.push("RL.REFUND exact 17".to_owned());
    for n in 1..=5 {
        lines.push(format!("RL.LEASE lease 100 {}d holder:{n} {n}", 3000 + n));
    }
    lines.push("RL.RELEASE lease holder:2".to_owned());
    lines
}

/// A reservation on every algorithm, which marks the states of some.
const RESERVE: &str = r#"RL.RESERVE reservation 3650d reserved:slide "SLIDE 1000 3650d 40" reserved:precise "SLIDE 1000 3650d 40 PRECISION 6" reserved:bucket "BUCKET 1000 1 3650d 40" reserved:leak "LEAK 1000 1 3650d 40" reserved:fixed "FIXED 1000 3650d 40" reserved:exact "EXACT 1000 3650d 40" reserved:lease "LEASE 100 3650d me 4" reserved:policy "POLICY golden 40""#;

/// What is left of each key with a window of ten years. A fixed window may end sooner.
const REMAINING: [(&str, i64); 13] = [
    (r#"RL.PEEK reserved:slide "SLIDE 1000 3650d 0""#, 970),
    (r#"RL.PEEK reserved:bucket "BUCKET 1000 1 3650d 0""#, 960),
    (r#"RL.PEEK settled "BUCKET 1000 1 3650d 0""#, 950),
    (r#"RL.PEEK slide:long "SLIDE 1000 3650d 0""#, 153),
    (
        r#"RL.PEEK slide:wide "SLIDE 9007199254740991 3650d 0""#,
        MAX - 1_099_511_627_776,
    ),
    (
        r#"RL.PEEK precise:wide "SLIDE 9007199254740991 3650d 0 PRECISION 60""#,
        MAX - 1_099_511_627_776,
    ),
    (r#"RL.PEEK bucket:long "BUCKET 1000 1 3650d 0""#, 153),
    (r#"RL.PEEK leak:long "LEAK 1000 1 3650d 0""#, 153),
    (
        r#"RL.PEEK exact "EXACT 100000 3650d 0""#,
        100_000 - 1000 + 17,
    ),
    (r#"RL.PEEK lease "LEASE 100 1d nobody 0""#, 100 - 13),
    ("RL.CHECK several golden 0 PEEK", 900 - 111),
    ("RL.CHECK own golden 0 PEEK", 4),
    ("RL.CHECK scaled golden 0 PEEK", 2250),
];

/// A key as it was when the files were written.
struct Golden {
    name: String,
    kind: String,
    digest: String,
    dump: Vec<u8>,
}

fn fixture(version: &str, file: &str) -> PathBuf {
    root().join("tests/fixtures").join(version).join(file)
}

fn golden_keys(version: &str) -> Vec<Golden> {
    let text = fs::read_to_string(fixture(version, "keys.txt")).unwrap();
    let key = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, kind, digest, dump] = fields[..] else {
            panic!("{line}");
        };
        let byte = |at: usize| u8::from_str_radix(&dump[at..at + 2], 16).unwrap();
        Golden {
            name: name.to_owned(),
            kind: kind.to_owned(),
            digest: digest.to_owned(),
            dump: (0..dump.len()).step_by(2).map(byte).collect(),
        }
    };
    let keys: Vec<Golden> = text.lines().map(key).collect();
    assert!(keys.len() >= 20);
    keys
}

/// Every key has the digest that it had, and counts what it counted.
fn assert_same_meaning(server: &Server, version: &str, keys: &[Golden]) {
    let mut con = server.connect();
    assert_eq!(server.run::<usize>("DBSIZE", &[]), keys.len());
    for key in keys {
        let name = &*key.name;
        assert_eq!(server.run::<String>("TYPE", &[name]), key.kind, "{name}");
        // The digests are those of keys without an expiry.
        let _: i64 = server.run("PERSIST", &[name]);
        assert_eq!(server.digest(name), key.digest, "{name}");
    }
    for (line, remaining) in REMAINING {
        let reply: Vec<i64> = ask(&mut con, line);
        assert_eq!(reply[2], remaining, "{line}");
    }
    // What was reserved under that version is settled under this one.
    let settle = "RL.SETTLE reservation 1 reserved:slide 9 reserved:bucket 10 reserved:exact 10 reserved:policy 10";
    assert_eq!(ask::<Vec<i64>>(&mut con, settle), [30, 10, 10, 10]);
    let settle = "RL.SETTLE settled:1 1 settled 10";
    assert_eq!(ask::<Vec<i64>>(&mut con, settle), [10]);
    assert_overrides(&mut con);
    let policies = fs::read_to_string(fixture(version, "policies.json")).unwrap();
    assert_eq!(server.run::<String>("RL.POLICY", &["DUMP"]), policies);
    // The states are not only read but used.
    for (holder, released) in [(1, 1), (2, 0), (3, 1)] {
        let line = format!("RL.RELEASE lease holder:{holder}");
        assert_eq!(ask::<i64>(&mut con, &line), released, "{line}");
    }
    assert_eq!(
        ask::<Vec<i64>>(&mut con, "RL.CHECK several golden 9")[2],
        780
    );
}

fn assert_overrides(con: &mut Connection) {
    assert_eq!(
        ask::<Vec<i64>>(con, "RL.CHECK blocked golden 1 FORCE")[0],
        0
    );
    assert_eq!(ask::<Vec<i64>>(con, "RL.CHECK own other 1000")[0], 1);
    let blocked: Vec<Vec<Value>> = ask(con, "RL.OVERRIDE GET blocked");
    let note = Value::BulkString(b"spam".to_vec());
    assert!(blocked[0].contains(&note), "{blocked:?}");
}

#[rstest]
fn every_released_rdb_loads() {
    for version in VERSIONS {
        let mut server = Server::start();
        server.shutdown("NOSAVE");
        fs::copy(fixture(version, "dump.rdb"), server.path("dump.rdb")).unwrap();
        server.start_again();
        assert_same_meaning(&server, version, &golden_keys(version));
    }
}

/// Starts a server on an AOF of one file. From 7.0 on, the server moves such a file into a folder.
fn with_aof(version: &str, file: &str) -> Server {
    let mut server = Server::with(&["appendonly", "yes"]);
    server.shutdown("NOSAVE");
    let _ = fs::remove_dir_all(server.path("appendonlydir"));
    fs::copy(fixture(version, file), server.path("appendonly.aof")).unwrap();
    server.start_again();
    server
}

#[rstest]
fn every_released_aof_loads() {
    for version in VERSIONS {
        let server = with_aof(version, "rewritten.aof");
        assert_same_meaning(&server, version, &golden_keys(version));
    }
}

/// Replicas of the next version receive the same commands during a rolling upgrade.
#[rstest]
fn effects_of_every_released_version_are_applied() {
    for version in VERSIONS {
        let server = with_aof(version, "effects.aof");
        let mut keys = golden_keys(version);
        // Keys with short windows have expired since.
        keys.retain(|key| server.run::<i64>("EXISTS", &[&key.name]) == 1);
        assert!(keys.len() >= 12, "{}", keys.len());
        assert_same_meaning(&server, version, &keys);
    }
}

#[rstest]
fn every_released_dump_is_restored() {
    for version in VERSIONS {
        let server = Server::start();
        let policies = fs::read_to_string(fixture(version, "policies.json")).unwrap();
        let _: Value = server.run("RL.POLICY", &["LOAD", &policies]);
        let keys = golden_keys(version);
        let mut con = server.connect();
        for key in &keys {
            let mut restore = redis::cmd("RESTORE");
            restore.arg(&key.name).arg(0).arg(&key.dump);
            restore.exec(&mut con).unwrap();
        }
        assert_same_meaning(&server, version, &keys);
    }
}

/// Writes the files of a new version: `make fixtures VERSION=v2`.
#[rstest]
#[ignore = "writes files: make fixtures"]
fn write_fixtures() {
    let version = std::env::var("RL_FIXTURES").expect("RL_FIXTURES names the version");
    let server = Server::with(&["appendonly", "yes", "aof-use-rdb-preamble", "no"]);
    let mut con = server.connect();
    for line in commands() {
        let _: Value = ask(&mut con, &line);
    }
    fs::create_dir_all(fixture(&version, "")).unwrap();
    let aof = server.path("appendonly.aof");
    assert!(aof.exists(), "use the oldest supported server");
    eventually("the AOF is written", || {
        server.info("persistence", "aof_buffer_length") == "0"
    });
    fs::copy(&aof, fixture(&version, "effects.aof")).unwrap();

    let mut names: Vec<String> = ask(&mut con, "KEYS *");
    names.sort();
    let mut keys = String::new();
    for name in &names {
        let _: i64 = server.run("PERSIST", &[name]);
        let dump: Vec<u8> = command(&format!("DUMP {name}")).query(&mut con).unwrap();
        let dump: String = dump.iter().map(|byte| format!("{byte:02x}")).collect();
        let kind: String = server.run("TYPE", &[name]);
        keys += &format!("{name}\t{kind}\t{}\t{dump}\n", server.digest(name));
    }
    fs::write(fixture(&version, "keys.txt"), keys).unwrap();
    let policies: String = server.run("RL.POLICY", &["DUMP"]);
    fs::write(fixture(&version, "policies.json"), policies).unwrap();

    let _: Value = server.run("BGREWRITEAOF", &[]);
    eventually("the AOF is rewritten", || {
        server.info("persistence", "aof_rewrite_in_progress") == "0"
            && server.info("persistence", "aof_rewrite_scheduled") == "0"
    });
    fs::copy(&aof, fixture(&version, "rewritten.aof")).unwrap();
    let _: () = server.run("SAVE", &[]);
    fs::copy(server.path("dump.rdb"), fixture(&version, "dump.rdb")).unwrap();
}
