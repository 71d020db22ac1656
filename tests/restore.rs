//! Damaged or newer states are refused with an error, however they come; the server goes on.

#![allow(clippy::unwrap_used)]

mod support;

use crc::{CRC_64_REDIS, Crc};
use redis::{Connection, RedisResult, Value};
use rstest::rstest;
use support::{Five, Server};

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

/// One key of each form: packed and wide, of each algorithm.
fn samples(server: &Server) -> Vec<Vec<u8>> {
    let max = "9007199254740991";
    let _: Five = server.run("RL.SLIDE", &["a", "10", "1h", "3"]);
    let _: Five = server.run("RL.BUCKET", &["b", "9", "1", "1h", "4"]);
    let _: Five = server.run("RL.SLIDE", &["c", max, "3650d", max]);
    let _: Five = server.run("RL.BUCKET", &["d", max, "1", "3650d", max]);
    let mut con = server.connect();
    ["a", "b", "c", "d"].map(|key| dump(&mut con, key)).to_vec()
}

#[rstest]
fn an_honest_payload_restores_the_same_state() {
    let server = Server::start();
    let samples = samples(&server);
    let mut con = server.connect();
    for (payload, original) in samples.iter().zip(["a", "b", "c", "d"]) {
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
    assert!(server.log().contains("newer version"), "the log says why");
}

#[rstest]
fn a_state_in_the_wrong_type_is_refused() {
    let server = Server::start();
    let samples = samples(&server);
    let mixed = [&samples[0][..STATE_AT], &samples[1][STATE_AT..]].concat();
    assert!(restore(&mut server.connect(), "k", &sealed(mixed)).is_err());
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
                    for call in [
                        ["SLIDE", "5", "60", "1", ""],
                        ["BUCKET", "5", "1", "60", "1"],
                    ] {
                        let call: Vec<_> = call.iter().filter(|word| !word.is_empty()).collect();
                        let _: RedisResult<Value> =
                            redis::cmd("RL.MULTI").arg("k").arg(&call).query(&mut con);
                    }
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
fn damaged_blobs_are_refused_by_load() {
    let server = Server::start();
    let _: Five = server.run("RL.SLIDE", &["k", "10", "1h", "3"]);
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
