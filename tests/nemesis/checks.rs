//! What must be true whenever the traffic pauses: all nodes have the same data, and received it as states.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{RedisResult, Value};

use crate::calls::policy_keys;
use crate::topology::Node;

/// Commands that decide. A replica that runs one decides by its own clock.
const DECIDING: [&str; 12] = [
    "rl.slide",
    "rl.bucket",
    "rl.fixed",
    "rl.exact",
    "rl.leak",
    "rl.lease",
    "rl.multi",
    "rl.first",
    "rl.check",
    "rl.refund",
    "rl.release",
    "cl.throttle",
];

/// What no log may contain.
const ALARMS: [&str; 8] = [
    "CRITICAL",
    "ASSERTION FAILED",
    "crashed by signal",
    "BUG REPORT",
    "Guru Meditation",
    "panicked at",
    "Bad file format",
    "Internal error in RDB",
];

/// Keys that expire sooner than this are compared with lenience: they may be gone on one side.
const MARGIN_MS: i64 = 1500;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    digest: String,
    expires_at_ms: i64,
    kind: String,
}

/// All that a node holds.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    keys: BTreeMap<(u64, String), Entry>,
    policies: String,
    /// Each with its end, or -1 for none.
    overrides: BTreeMap<(u64, String), Vec<(String, i64)>>,
    taken_at_ms: i64,
    /// The server's own digest of everything, if every key is in the picture.
    digest: Option<String>,
}

pub fn now_ms() -> i64 {
    std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap()
        .as_millis() as i64
}

impl Picture {
    pub fn take(node: &Node, databases: u64, tags: u64) -> RedisResult<Self> {
        let mut con = node.connect()?;
        let cluster = tags > 0;
        if cluster {
            redis::cmd("READONLY").exec(&mut con)?;
        }
        let mut picture = Self::default();
        let mut all_keys = 0;
        for database in 0..databases {
            redis::cmd("SELECT").arg(database).exec(&mut con)?;
            let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut con)?;
            all_keys += redis::cmd("DBSIZE").query::<usize>(&mut con)?;
            for some in names.chunks(200) {
                let mut pipe = redis::pipe();
                pipe.ignore_errors();
                for name in some {
                    pipe.cmd("DEBUG").arg("DIGEST-VALUE").arg(name);
                    pipe.cmd("TYPE").arg(name);
                    // Before 7.0, from the time and what is left.
                    pipe.cmd("TIME");
                    pipe.cmd(if is_exact() { "PEXPIRETIME" } else { "PTTL" })
                        .arg(name);
                }
                let answers: Vec<RedisResult<Value>> = pipe.query(&mut con)?;
                for (name, answer) in some.iter().zip(answers.chunks(4)) {
                    let [digest, kind, time, expiry] = answer else {
                        continue;
                    };
                    let digest: Vec<String> = redis::from_redis_value(digest.clone()?)?;
                    let (s, us): (i64, i64) = redis::from_redis_value(time.clone()?)?;
                    let expiry: i64 = redis::from_redis_value(expiry.clone()?)?;
                    let expires_at_ms = match expiry {
                        0.. if !is_exact() => s * 1000 + us / 1000 + expiry,
                        expiry => expiry,
                    };
                    if expires_at_ms == -2 {
                        continue;
                    }
                    let entry = Entry {
                        digest: digest[0].clone(),
                        expires_at_ms,
                        kind: redis::from_redis_value(kind.clone()?)?,
                    };
                    picture.keys.insert((database, name.clone()), entry);
                }
            }
            for tag in 0..tags.max(1) {
                let tag = match tags {
                    0 => String::new(),
                    _ => format!("{{t{tag}}}"),
                };
                picture.look_at_overrides(&mut con, database, &tag)?;
            }
        }
        // Without the module there are none.
        let dump: RedisResult<String> = redis::cmd("RL.POLICY").arg("DUMP").query(&mut con);
        picture.policies = dump.unwrap_or_else(|error| format!("none: {error}"));
        if picture.keys.len() == all_keys {
            picture.digest = Some(redis::cmd("DEBUG").arg("DIGEST").query(&mut con)?);
        }
        picture.taken_at_ms = now_ms();
        Ok(picture)
    }

    fn look_at_overrides(
        &mut self,
        con: &mut redis::Connection,
        database: u64,
        tag: &str,
    ) -> RedisResult<()> {
        let names: Vec<String> = policy_keys(tag).collect();
        let mut pipe = redis::pipe();
        pipe.ignore_errors();
        for name in &names {
            pipe.cmd("RL.OVERRIDE").arg("GET").arg(name);
        }
        let answers: Vec<RedisResult<Value>> = pipe.query(con)?;
        for (name, answer) in names.into_iter().zip(answers) {
            let Ok(Value::Array(all)) = answer else {
                continue;
            };
            if !all.is_empty() {
                let now = now_ms();
                let all = all.iter().map(|one| read_override(one, now)).collect();
                self.overrides.insert((database, name), all);
            }
        }
        Ok(())
    }

    fn goes_before(&self, key: &(u64, String), moment: i64) -> bool {
        match self.keys.get(key) {
            None => true,
            Some(entry) => (0..moment).contains(&entry.expires_at_ms),
        }
    }

    fn overrides_until(&self, key: &(u64, String), moment: i64) -> Vec<&str> {
        let all = self.overrides.get(key).into_iter().flatten();
        all.filter(|(_, ends_at)| !(0..moment).contains(ends_at))
            .map(|(text, _)| &**text)
            .collect()
    }

    /// In what they differ, for people. Nothing, if they do not.
    pub fn differences(&self, other: &Self, here: &str, there: &str) -> Vec<String> {
        let mut found = Vec::new();
        let names: BTreeSet<_> = self.keys.keys().chain(other.keys.keys()).collect();
        let mut skipped = false;
        let moment = self.taken_at_ms.max(other.taken_at_ms) + MARGIN_MS;
        for name in names {
            let (one, two) = (self.keys.get(name), other.keys.get(name));
            let goes = [self, other].map(|picture| picture.goes_before(name, moment));
            skipped |= goes.contains(&true);
            let same = match (one, two) {
                (Some(one), Some(two)) => {
                    one.digest == two.digest
                        && (one.expires_at_ms - two.expires_at_ms).abs() <= tolerance_ms()
                }
                _ => false,
            };
            if same || goes == [true, true] {
                continue;
            }
            let show = |entry: Option<&Entry>, taken_at_ms: i64| match entry {
                None => "absent".to_owned(),
                Some(entry) if entry.expires_at_ms < 0 => {
                    format!("{} {:.10}, no expiry", entry.kind, entry.digest)
                }
                Some(entry) => format!(
                    "{} {:.10}, expires at {} (in {} ms)",
                    entry.kind,
                    entry.digest,
                    entry.expires_at_ms,
                    entry.expires_at_ms - taken_at_ms
                ),
            };
            found.push(format!(
                "db {} key {}: {here} {}; {there} {}",
                name.0,
                name.1,
                show(one, self.taken_at_ms),
                show(two, other.taken_at_ms)
            ));
        }
        if self.policies != other.policies {
            found.push(format!(
                "policies: {here} {}; {there} {}",
                self.policies, other.policies
            ));
        }
        let names: BTreeSet<_> = self
            .overrides
            .keys()
            .chain(other.overrides.keys())
            .collect();
        for name in names {
            // Ends are as exact as the answers were quick: what lasts on one side must be on the other, lasting or not.
            let [one, two] = [self, other].map(|picture| picture.overrides_until(name, moment));
            let [all_here, all_there] =
                [self, other].map(|picture| picture.overrides_until(name, 0));
            let lacks = |some: &[&str], all: &[&str]| some.iter().any(|text| !all.contains(text));
            if lacks(&one, &all_there) || lacks(&two, &all_here) {
                found.push(format!(
                    "db {} overrides of {}: {here} {one:?}; {there} {two:?}",
                    name.0, name.1
                ));
            }
        }
        if found.is_empty()
            && !skipped
            && let (Some(one), Some(two)) = (&self.digest, &other.digest)
            && one != two
        {
            found.push(format!("DEBUG DIGEST: {here} {one}; {there} {two}"));
        }
        found
    }

    /// Whether the node has no RL commands.
    pub fn is_without_module(&self) -> bool {
        self.policies.starts_with("none:")
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn overrides(&self) -> usize {
        self.overrides.len()
    }
}

/// Policy, override and note, and when it ends; its exact end is in the digest of its key.
fn read_override(value: &Value, now: i64) -> (String, i64) {
    let mut fields: Vec<String> = match value {
        Value::Array(fields) => fields.iter().map(text_of).collect(),
        other => vec![format!("{other:?}")],
    };
    let mut ends_at_ms = -1;
    if let Some(at) = fields.iter().position(|field| field == "expires_in_ms") {
        let ends: Vec<String> = fields.drain(at..(at + 2).min(fields.len())).collect();
        let expires_in_ms = ends.last().and_then(|ms| ms.parse().ok()).unwrap_or(-1);
        if expires_in_ms >= 0 {
            ends_at_ms = now + expires_in_ms;
        }
    }
    (fields.join(" "), ends_at_ms)
}

fn text_of(value: &Value) -> String {
    redis::from_redis_value(value.clone()).unwrap_or_else(|_| format!("{value:?}"))
}

/// Whether the server reports the moment of an expiry, and replicates the moment rather than what is left
/// (from 7.0 on).
pub fn is_exact() -> bool {
    rl_testkit::has_directive("enable-debug-command")
}

fn tolerance_ms() -> i64 {
    if is_exact() { 0 } else { 20 }
}

/// Calls of deciding commands that a node ran since its counts were reset.
pub fn decided(node: &Node) -> Result<Vec<String>, String> {
    let info: String = node.run(&["INFO", "commandstats"])?;
    let mut found = Vec::new();
    for command in DECIDING {
        let stats = rl_testkit::info_field(&info, &format!("cmdstat_{command}")).or_else(|| {
            rl_testkit::info_field(&info, &format!("cmdstat_{}", command.to_uppercase()))
        });
        let calls = stats
            .and_then(|stats| stats.strip_prefix("calls="))
            .and_then(|stats| stats.split(',').next());
        if let Some(calls) = calls
            && calls != "0"
        {
            found.push(format!("{command} ×{calls}"));
        }
    }
    Ok(found)
}

/// Lines of the log that mean a bug, each kind once.
pub fn alarms(node: &mut Node) -> Vec<String> {
    let log = node.new_log();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    // A copy over a socket that was cut off, as some faults do, is not a damaged one.
    let cut_off = |line: &&str| line.contains("assuming connection error");
    for line in log.lines().filter(|line| !cut_off(line)) {
        if let Some(at) = ALARMS.iter().filter_map(|alarm| line.find(alarm)).min() {
            *counts.entry(&line[at..]).or_default() += 1;
        }
    }
    let name = node.name;
    let show = |(line, count)| format!("log of {name}: {line} (×{count})");
    counts.into_iter().map(show).collect()
}

/// Deciding commands that the AOF holds.
pub fn decided_in_aof(node: &Node) -> Vec<String> {
    let mut found = Vec::new();
    for file in node.aof_files() {
        let Ok(bytes) = fs::read(&file) else { continue };
        let lower = bytes.to_ascii_lowercase();
        for command in DECIDING {
            // As the protocol writes it: a length, and the word on a line of its own.
            let line = format!("\r\n{command}\r\n");
            let count = lower
                .windows(line.len())
                .filter(|window| *window == line.as_bytes())
                .count();
            if count > 0 {
                let name = file.file_name().unwrap().to_string_lossy();
                found.push(format!("{name} of {}: {command} ×{count}", node.name));
            }
        }
    }
    found
}

/// Waits for something that must come.
pub fn wait_for(
    what: &str,
    within: Duration,
    mut is_so: impl FnMut() -> Result<bool, String>,
) -> Result<(), String> {
    let deadline = Instant::now() + within;
    loop {
        let last = match is_so() {
            Ok(true) => return Ok(()),
            Ok(false) => String::new(),
            Err(error) => error,
        };
        if Instant::now() > deadline {
            return Err(format!("not within {} s: {what} {last}", within.as_secs()));
        }
        sleep(Duration::from_millis(20));
    }
}
