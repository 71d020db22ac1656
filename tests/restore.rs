//! Damaged or newer states are refused with an error, whatever their source, and the server keeps running.

use crc::{CRC_64_REDIS, Crc};
use redis::{Connection, RedisResult, Value};
use rl_testkit::{Random, Reply, Server, ask, error_text, eventually, try_ask};
use rstest::rstest;

/// A DUMP payload ends with the RDB version (2 bytes) and a checksum (8).
const CHECKSUM: usize = 8;
const FOOTER: usize = 10;

/// It begins with the kind of value (1 byte) and the type's id (a length byte and 8 more), whose lowest
/// ten bits are the encoding version.
const VERSION_AT: usize = 9;
const STATE_AT: usize = 10;

fn dump(con: &mut Connection, key: &str) -> Vec<u8> {
    redis::cmd("DUMP").arg(key).query(con).unwrap()
}

fn sealed(mut payload: Vec<u8>) -> Vec<u8> {
    let end = payload.len() - CHECKSUM;
    let checksum = Crc::<u64>::new(&CRC_64_REDIS).checksum(&payload[..end]);
    payload[end..].copy_from_slice(&checksum.to_le_bytes());
    payload
}

fn restore(con: &mut Connection, key: &str, payload: &[u8]) -> RedisResult<Value> {
    redis::cmd("RESTORE")
        .arg(key)
        .arg(60_000)
        .arg(payload)
        .arg("REPLACE")
        .query(con)
}

/// One key of each form: packed, wide and in parts; logs and leases.
const KEYS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

fn samples(server: &Server) -> Vec<Vec<u8>> {
    let max = "9007199254740991";
    let mut con = server.connect();
    for line in [
        "RL.SLIDE a 10 1h 3",
        "RL.BUCKET b 9 1 1h 4",
        &format!("RL.SLIDE c {max} 3650d {max}"),
        &format!("RL.BUCKET d {max} 1 3650d {max}"),
        "RL.FIXED e 10 3650d 3",
        "RL.LEAK f 9 1 1h 4",
        "RL.SLIDE g 10 1h 3 PRECISION 5",
        &format!("RL.SLIDE h {max} 3650d {max} PRECISION 2"),
        "RL.EXACT i 10 1h 3",
        "RL.EXACT i 10 1h 1",
        "RL.EXACT i 10 1h 2",
        "RL.LEASE j 10 1h some 3",
        "RL.LEASE j 10 2h other 4",
    ] {
        ask::<Reply>(&mut con, line);
    }
    KEYS.map(|key| dump(&mut con, key)).to_vec()
}

#[rstest]
fn an_intact_payload_restores_the_same_state() {
    let server = Server::start();
    let samples = samples(&server);
    let mut con = server.connect();
    for (payload, original) in samples.iter().zip(KEYS) {
        assert_eq!(
            &sealed(payload.clone()),
            payload,
            "the test seals as the server does"
        );
        restore(&mut con, "copy", payload).unwrap();
        assert_eq!(server.digest("copy"), server.digest(original));
    }
}

#[rstest]
fn a_newer_encoding_is_refused() {
    let server = Server::start();
    for mut payload in samples(&server) {
        payload[VERSION_AT] = payload[VERSION_AT] & 0xfc | 2;
        let refused = restore(&mut server.connect(), "k", &sealed(payload));
        assert!(refused.unwrap_err().to_string().contains("Bad data format"));
    }
    assert_eq!(server.run::<i64>("EXISTS", &["k"]), 0);
    eventually("the log says why", || {
        server.log().contains("newer version")
    });
}

/// The version that overrides are saved with is the one that they are checked against.
#[rstest]
fn overrides_are_saved_with_the_version_that_is_loaded() {
    let server = Server::start();
    let mut con = server.connect();
    ask::<()>(&mut con, "RL.POLICY SET p SLIDE 5 1h");
    ask::<()>(&mut con, "RL.OVERRIDE SET k p BLOCK");
    let mut payload = dump(&mut con, "rl:override:{k}");
    assert_eq!(payload[VERSION_AT] & 3, 1);
    restore(&mut con, "rl:override:{other}", &payload).unwrap();
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.CHECK other p")[0], 0);
    for version in [0, 2, 3] {
        payload[VERSION_AT] = payload[VERSION_AT] & 0xfc | version;
        let refused = restore(&mut con, "rl:override:{third}", &sealed(payload.clone()));
        assert!(refused.unwrap_err().to_string().contains("Bad data format"));
    }
    assert_eq!(ask::<Vec<i64>>(&mut con, "RL.CHECK third p")[0], 1);
}

#[rstest]
fn a_state_in_the_wrong_type_is_refused() {
    let server = Server::start();
    let samples = samples(&server);
    let types: Vec<String> = KEYS.map(|key| server.run("TYPE", &[key])).to_vec();
    for (one, its_type) in samples.iter().zip(&types) {
        for (other, another_type) in samples.iter().zip(&types) {
            let mixed = [&one[..STATE_AT], &other[STATE_AT..]].concat();
            let restored = restore(&mut server.connect(), "k", &sealed(mixed));
            assert_eq!(
                restored.is_ok(),
                its_type == another_type,
                "{its_type} {another_type}"
            );
        }
    }
}

/// Checks, refunds, inspects, copies and saves a key, whatever it holds.
fn use_it(con: &mut Connection, key: &str) {
    for line in [
        "RL.INSPECT {}",
        r#"RL.MULTI {} "SLIDE 5 60 1""#,
        r#"RL.MULTI {} "SLIDE 5 60 1 PRECISION 5""#,
        r#"RL.MULTI {} "BUCKET 5 1 60 1""#,
        r#"RL.MULTI {} "FIXED 5 3650d 1""#,
        r#"RL.MULTI {} "EXACT 5 60 1""#,
        r#"RL.MULTI {} "FORCE EXACT 5 60 1""#,
        r#"RL.MULTI {} "LEAK 5 1 60 1""#,
        r#"RL.MULTI {} "LEASE 5 60 some 1""#,
        r#"RL.MULTI {} "FORCE LEASE 5 60 new 1""#,
        "RL.RELEASE {} other",
        "RL.REFUND {} 2",
        "MEMORY USAGE {}",
        "RL.INSPECT {}",
    ] {
        let reply = try_ask::<Value>(con, &line.replace("{}", key));
        if let Err(error) = reply {
            let text = error_text(&error);
            assert!(!text.contains("internal"), "{line}: {text}");
        }
    }
    // What is there can be saved and read again.
    if let Some(payload) = try_ask::<Option<Vec<u8>>>(con, &format!("DUMP {key}")).unwrap() {
        restore(con, "again", &payload).unwrap();
        assert_eq!(
            ask::<Vec<String>>(con, &format!("DEBUG DIGEST-VALUE {key}")),
            ask::<Vec<String>>(con, "DEBUG DIGEST-VALUE again")
        );
    }
}

#[rstest]
fn every_flipped_bit_is_survived() {
    let server = Server::start();
    let mut con = server.connect();
    let (mut taken, mut refused) = (0, 0);
    for payload in samples(&server) {
        for bit in 8 * VERSION_AT..8 * (payload.len() - FOOTER) {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            match restore(&mut con, "k", &sealed(damaged)) {
                Ok(_) => {
                    taken += 1;
                    use_it(&mut con, "k");
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} {refused}");
    let _: String = redis::cmd("PING").query(&mut con).unwrap();
}

#[rstest]
fn long_logs_and_lists_with_noise_in_them_are_survived() {
    let server = Server::start();
    let mut con = server.connect();
    let mut pipe = redis::pipe();
    for n in 0..600 {
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
    pipe.exec(&mut con).unwrap();
    let mut random = Random(31);
    let (mut taken, mut refused) = (0, 0);
    for key in ["log", "list"] {
        let payload = dump(&mut con, key);
        for _ in 0..1500 {
            let mut damaged = payload.clone();
            for _ in 0..=random.below(3) {
                let at =
                    STATE_AT + random.below((payload.len() - FOOTER - STATE_AT) as u64) as usize;
                damaged[at] = match random.below(3) {
                    0 => damaged[at] ^ (1 << random.below(8)),
                    1 => random.below(256) as u8,
                    _ => [0, 0x7f, 0x80, 0xff][random.below(4) as usize],
                };
            }
            match restore(&mut con, "k", &sealed(damaged)) {
                Ok(_) => {
                    taken += 1;
                    use_it(&mut con, "k");
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(taken > 0 && refused > 0, "{taken} {refused}");
    let _: String = redis::cmd("PING").query(&mut con).unwrap();
}

#[rstest]
fn truncated_payloads_are_survived() {
    let server = Server::start();
    let mut con = server.connect();
    let mut refused = 0;
    for payload in samples(&server) {
        let footer = &payload[payload.len() - FOOTER..];
        for len in STATE_AT..payload.len() - FOOTER {
            // The server reads on into the footer, which now and then makes a whole state by chance.
            let cut = [&payload[..len], footer].concat();
            refused += i32::from(restore(&mut con, "k", &sealed(cut)).is_err());
        }
    }
    assert!(refused > 50, "{refused}");
    let _: String = redis::cmd("PING").query(&mut con).unwrap();
}

#[rstest]
fn corrupt_states_are_refused_by_load() {
    let server = Server::start();
    let _: Reply = server.run("RL.SLIDE", &["k", "10", "1h", "3"]);
    let digest = server.digest("k");
    let mut con = server.connect();
    for len in 0..40 {
        for byte in [0, 1, 2, 0x7f, 0xff] {
            let mut blob = vec![byte; len];
            // The right version in front, so that it is the state that is judged.
            if let Some(version) = blob.first_mut() {
                *version = 1;
            }
            let loaded: RedisResult<Value> = redis::cmd("RL.LOAD")
                .arg("k")
                .arg(9_000_000_000_000_u64)
                .arg(&blob)
                .query(&mut con);
            assert!(loaded.is_err(), "{blob:?}");
        }
    }
    assert_eq!(server.digest("k"), digest);
}
