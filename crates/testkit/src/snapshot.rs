//! All keys of a server at one moment, to be compared with those of another server or of a later moment.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, Value};

use crate::{Deadline, Server, ask};

/// The values and expiries of all keys at one moment.
#[derive(Debug)]
pub struct Snapshot {
    at_ms: i64,
    /// Whether the server reports expiries as points in time (7.0 and later).
    exact: bool,
    /// The digest of each key, and its expiry as PEXPIRETIME reports it.
    pub keys: BTreeMap<String, (String, i64)>,
}

impl Server {
    /// Takes a snapshot of all keys.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&mut self.connect(), self.has_command(&["PEXPIRETIME", "k"]))
    }
}

fn milliseconds(time: &Value) -> i64 {
    let (seconds, us): (i64, i64) = redis::from_redis_value_ref(time).unwrap();
    seconds * 1000 + us / 1000
}

impl Snapshot {
    fn take(con: &mut Connection, exact: bool) -> Self {
        let names: Vec<String> = ask(con, "KEYS *");
        if names.is_empty() {
            let at_ms = milliseconds(&ask(con, "TIME"));
            let keys = BTreeMap::new();
            return Self { at_ms, exact, keys };
        }
        let mut pipe = redis::pipe();
        pipe.atomic();
        pipe.cmd("DEBUG").arg("DIGEST-VALUE").arg(&names);
        pipe.cmd("TIME");
        for name in &names {
            let expiry = if exact { "PEXPIRETIME" } else { "PTTL" };
            pipe.cmd(expiry).arg(name);
        }
        pipe.cmd("TIME");
        let deadline = Deadline::start();
        let (reply, at_ms) = loop {
            let reply: Vec<Value> = pipe.query(con).unwrap();
            let before = milliseconds(&reply[1]);
            let after = milliseconds(&reply[reply.len() - 1]);
            // The remaining time gives the moment of expiry only if no time passes in between.
            if exact || after - before <= 1 {
                break (reply, before);
            }
            deadline.check("expiries are read within a millisecond");
        };
        let digests: Vec<String> = redis::from_redis_value_ref(&reply[0]).unwrap();
        let mut keys = BTreeMap::new();
        for ((name, digest), expiry) in names.into_iter().zip(digests).zip(&reply[2..]) {
            let expiry: i64 = redis::from_redis_value_ref(expiry).unwrap();
            match expiry {
                // The key has expired since it was listed.
                -2 => {}
                _ if exact || expiry < 0 => drop(keys.insert(name, (digest, expiry))),
                _ => drop(keys.insert(name, (digest, at_ms + expiry))),
            }
        }
        Self { at_ms, exact, keys }
    }

    /// Checks that both snapshots have the same keys, except those that had expired when the other one was taken.
    #[track_caller]
    pub fn assert_same(&self, other: &Self) {
        let names: BTreeSet<&String> = self.keys.keys().chain(other.keys.keys()).collect();
        for name in names {
            match (self.keys.get(name), other.keys.get(name)) {
                (Some((here, expiry)), Some((there, other_expiry))) => {
                    assert_eq!(here, there, "{name}: state");
                    // Before 7.0 the expiry is computed from two readings.
                    let tolerance = if self.exact { 0 } else { 2 };
                    assert!(
                        (expiry - other_expiry).abs() <= tolerance,
                        "{name} expires at {expiry}, and at {other_expiry}"
                    );
                }
                (Some((_, expiry)), None) => other.assert_expired(name, *expiry),
                (None, Some((_, expiry))) => self.assert_expired(name, *expiry),
                (None, None) => unreachable!(),
            }
        }
    }

    #[track_caller]
    fn assert_expired(&self, name: &str, expiry: i64) {
        assert!(
            (0..=self.at_ms + 2).contains(&expiry),
            "{name} is missing at {} and expires at {expiry}",
            self.at_ms
        );
    }
}
