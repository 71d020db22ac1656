//! Load, and an independent record of the replies.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Cmd, RedisError, Value, cmd, from_redis_value};

use crate::callers::Caller;
use rl_testkit::{Random, Reply, eventually};

/// A load that no test stops fails after this time.
pub const MAX_LOAD: Duration = Duration::from_secs(1800);

/// The replies that the callers of some keys got. Every key has the same limit, over a window that does not end
/// while a test runs: so the sum of what was allowed is what the server must remember.
pub struct Tally {
    pub keys: Vec<String>,
    pub limit: u64,
    /// Whether a call counts as acknowledged only when a replica has it too (`WAIT 1`).
    safe: bool,
    /// Whether to confirm at all: without a replica, nothing can be.
    confirms: AtomicBool,
    allowed: Vec<AtomicU64>,
    denied: Vec<AtomicU64>,
    /// Calls whose answer never came: counted by the server, or not.
    unanswered: Vec<AtomicU64>,
    errors: Mutex<BTreeMap<String, u64>>,
    hold: AtomicBool,
    stop: AtomicBool,
    workers: AtomicUsize,
    held: AtomicUsize,
}

impl Tally {
    pub fn new(keys: impl IntoIterator<Item = String>, limit: u64) -> Self {
        let keys: Vec<String> = keys.into_iter().collect();
        let zeroes = || keys.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            limit,
            safe: false,
            confirms: AtomicBool::new(true),
            allowed: zeroes(),
            denied: zeroes(),
            unanswered: zeroes(),
            errors: Mutex::default(),
            hold: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            workers: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            keys,
        }
    }

    /// Confirms every allowed call by `WAIT 1` before it counts.
    pub fn safe(mut self) -> Self {
        self.safe = true;
        self
    }

    /// Calls until it is stopped, on random keys.
    pub fn work(&self, mut caller: impl Caller, seed: u64) {
        self.work_on(&mut caller, seed);
    }

    pub fn work_on(&self, caller: &mut impl Caller, seed: u64) {
        self.workers.fetch_add(1, SeqCst);
        let mut random = Random(seed * 0x9E37_79B9 + 1);
        let begin = Instant::now();
        while !self.stop.load(SeqCst) {
            assert!(begin.elapsed() < MAX_LOAD, "the test has not ended");
            if self.hold.load(SeqCst) {
                self.held.fetch_add(1, SeqCst);
                while self.hold.load(SeqCst) {
                    assert!(begin.elapsed() < MAX_LOAD, "the test has not ended");
                    sleep(Duration::from_millis(1));
                }
                self.held.fetch_sub(1, SeqCst);
            }
            let n = random.below(self.keys.len() as u64) as usize;
            self.one(caller, n);
            // A gateway has other things to do as well; and the machine is small.
            sleep(Duration::from_micros(300));
        }
        self.workers.fetch_sub(1, SeqCst);
    }

    fn one(&self, caller: &mut impl Caller, n: usize) {
        let key = &self.keys[n];
        match caller.call(key, &slide(key, self.limit)) {
            Ok(reply) => {
                let reply: Reply = from_redis_value(reply).unwrap();
                if reply.0 == 0 {
                    self.denied[n].fetch_add(1, SeqCst);
                } else if !self.safe || self.confirms.load(SeqCst) && confirmed(caller, key) {
                    self.allowed[n].fetch_add(1, SeqCst);
                } else {
                    self.unanswered[n].fetch_add(1, SeqCst);
                }
            }
            Err(error) => {
                if error.code().is_none() {
                    self.unanswered[n].fetch_add(1, SeqCst);
                }
                *self.errors.lock().unwrap().entry(kind(&error)).or_default() += 1;
                sleep(Duration::from_millis(20));
            }
        }
    }

    /// Stops calling for a while; returns once every call under way has ended.
    pub fn hold(&self) {
        self.hold.store(true, SeqCst);
        eventually("the load holds", || {
            self.held.load(SeqCst) == self.workers.load(SeqCst)
        });
    }

    /// From now on there is no replica to wait for: nothing more counts as acknowledged.
    pub fn stop_confirming(&self) {
        self.confirms.store(false, SeqCst);
    }

    pub fn go_on(&self) {
        self.hold.store(false, SeqCst);
        eventually("the load goes on", || self.held.load(SeqCst) == 0);
    }

    fn stop(&self) {
        self.stop.store(true, SeqCst);
        self.hold.store(false, SeqCst);
    }

    pub fn allowed(&self, n: usize) -> u64 {
        self.allowed[n].load(SeqCst)
    }

    pub fn unanswered(&self, n: usize) -> u64 {
        self.unanswered[n].load(SeqCst)
    }

    pub fn total(&self) -> u64 {
        sum(&self.allowed)
    }

    /// Whether the last of every key's units has been given, and a call refused since.
    pub fn is_exhausted(&self) -> bool {
        let spent = |n: usize| self.allowed(n) + self.unanswered(n) >= self.limit;
        (0..self.keys.len()).all(|n| spent(n) && self.denied[n].load(SeqCst) > 0)
    }

    pub fn snapshot(&self) -> Vec<u64> {
        (0..self.keys.len()).map(|n| self.allowed(n)).collect()
    }

    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap().clone()
    }
}

/// Ends the load when a test does, even by a failure: its threads would otherwise run on.
pub struct Ends<'a>(pub &'a [&'a Tally]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        for tally in self.0 {
            tally.stop();
        }
    }
}

/// A call of one unit over a day.
fn slide(key: &str, limit: u64) -> Cmd {
    let mut call = cmd("RL.SLIDE");
    call.arg(key).arg(limit).arg("1d");
    call
}

fn confirmed(caller: &mut impl Caller, key: &str) -> bool {
    let mut wait = cmd("WAIT");
    wait.arg(1).arg(300);
    matches!(caller.call(key, &wait), Ok(Value::Int(1..)))
}

fn sum(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|count| count.load(SeqCst)).sum()
}

fn kind(error: &RedisError) -> String {
    error
        .code()
        .map_or_else(|| "connection".into(), str::to_owned)
}
