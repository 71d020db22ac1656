//! What is compared: the floor, our commands, the Lua scripts that people paste, and a peer module.

use crate::server::{Server, encode};

/// One way of making a check on key number `n`.
#[derive(Clone)]
pub struct Contender {
    pub name: String,
    /// Key names begin with this.
    prefix: String,
    /// The words before and after the key.
    before: Vec<String>,
    after: Vec<String>,
    /// How many keys one operation names, each followed by `after`.
    keys: usize,
    /// How many calls one operation takes, one for each key; otherwise one call has them all.
    calls: usize,
    /// Lines of the reply to each call.
    pub lines: usize,
    /// Makes a key ready, where a check alone does not, and lines of the reply.
    prepare: Option<fn(&str) -> Vec<String>>,
    prepared_lines: usize,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

impl Contender {
    fn new(name: &str, prefix: &str, before: &str, after: &str, lines: usize) -> Self {
        Self {
            name: name.into(),
            prefix: prefix.into(),
            before: words(before),
            after: words(after),
            keys: 1,
            calls: 1,
            lines,
            prepare: None,
            prepared_lines: 1,
        }
    }

    /// The same on keys of its own.
    pub fn on(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }

    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    fn key(&self, n: usize) -> String {
        format!("{}:{n:012}", self.prefix)
    }

    /// The calls of one operation on key `n`, encoded.
    pub fn encode(&self, n: usize, into: &mut Vec<u8>) {
        let key = |part: usize| match self.keys.max(self.calls) {
            1 => self.key(n),
            _ => format!("{}:{part}", self.key(n)),
        };
        for call in 0..self.calls {
            let mut line = self.before.clone();
            for part in 0..self.keys {
                line.push(key(call + part));
                line.extend(self.after.iter().cloned());
            }
            into.extend(encode(&line));
        }
    }

    /// Calls that make keys `0..count` exist.
    pub fn preparation(&self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for n in 0..count {
            match self.prepare {
                Some(prepare) => bytes.extend(encode(&prepare(&self.key(n)))),
                None => self.encode(n, &mut bytes),
            }
        }
        bytes
    }

    pub fn prepared_lines(&self) -> usize {
        match self.prepare {
            Some(_) => self.prepared_lines,
            None => self.lines_per_operation(),
        }
    }

    pub fn lines_per_operation(&self) -> usize {
        self.lines * self.calls
    }
}

/// The floor: a counter that exists and has a TTL.
pub fn incr() -> Contender {
    let mut incr = Contender::new("INCR", "i", "INCR", "", 1);
    incr.prepare = Some(|key| words(&format!("SET {key} 0 EX 3600")));
    incr
}

pub fn set_ex() -> Contender {
    Contender::new("SET … EX", "e", "SET", "1 EX 3600", 1)
}

pub fn slide() -> Contender {
    Contender::new("RL.SLIDE", "s", "RL.SLIDE", "100000 60", 6)
}

/// In use, as with a client that keeps calling: some debt is left from before. (A key that is full again
/// expires, and the next call would create it.)
pub fn bucket() -> Contender {
    let mut bucket = Contender::new("RL.BUCKET", "b", "RL.BUCKET", "100000 1000 60", 6);
    bucket.prepare = Some(|key| words(&format!("RL.BUCKET {key} 100000 1000 60 2000")));
    bucket.prepared_lines = 6;
    bucket
}

/// The rest of the family, each in use as its kind is.
pub fn family() -> Vec<Contender> {
    let one = |name: &str, prefix: &str, command: &str, after: &str| {
        Contender::new(name, prefix, command, after, 6)
    };
    let precise = "100000 1h 1 PRECISION 8";
    let mut leak = one("RL.LEAK", "lk", "RL.LEAK", "100000 1000 1h");
    leak.prepare = Some(|key| words(&format!("RL.LEAK {key} 100000 1000 1h 2000")));
    leak.prepared_lines = 6;
    vec![
        slide(),
        one("RL.SLIDE … PRECISION 8", "sp", "RL.SLIDE", precise),
        one("RL.FIXED", "f", "RL.FIXED", "100000 1h"),
        bucket(),
        leak,
        one("RL.EXACT", "x", "RL.EXACT", "100000 1h"),
        one("RL.LEASE, renewed", "le", "RL.LEASE", "5 1h worker-1"),
    ]
}

/// Keys that outlive even the longest preparation.
pub fn lasting_slide() -> Contender {
    Contender::new("RL.SLIDE", "s", "RL.SLIDE", "100000 1h", 6)
}

pub fn lasting_bucket() -> Contender {
    Contender::new("RL.BUCKET", "b", "RL.BUCKET", "100000 1000 1h 10", 6)
}

/// Denied from the second call on a key.
pub fn denied_slide() -> Contender {
    Contender::new("RL.SLIDE, denied", "ds", "RL.SLIDE", "1 1h", 6)
}

pub fn denied_bucket() -> Contender {
    Contender::new("RL.BUCKET, denied", "db", "RL.BUCKET", "1 1 1h", 6)
}

/// About half of the calls pass once the buckets are empty.
pub fn mixed_bucket(keys: usize, rate: u64) -> Contender {
    let refill = (rate / 2 / keys as u64).max(1).to_string();
    let after = format!("1 {refill} 1s");
    Contender::new("RL.BUCKET, half denied", "mb", "RL.BUCKET", &after, 6)
}

pub fn multi(limits: usize) -> Contender {
    let mut multi = Contender::new(
        &format!("RL.MULTI of {limits}"),
        &format!("m{limits}"),
        "RL.MULTI",
        "",
        0,
    );
    multi.after = vec!["SLIDE 100000 60 1".into()];
    multi.keys = limits;
    multi.lines = 4 + 6 * limits;
    multi
}

/// For [`check`].
pub fn define_policies(server: &Server) {
    let three = "SLIDE 100000 60 SLIDE 100000 1h SLIDE 100000 1d";
    for policy in ["one SLIDE 100000 1h".to_owned(), format!("three {three}")] {
        let line = words(&format!("RL.POLICY SET {policy}"));
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        assert!(server.call(&line).starts_with("+OK"), "{line:?}");
    }
}

/// A policy's limits on one key.
pub fn check(name: &str, prefix: &str, policy: &str) -> Contender {
    Contender::new(name, prefix, "RL.CHECK", policy, 7)
}

/// As many scripts as there are limits, pipelined: how several limits are checked without RL.MULTI.
pub fn lua_each(server: &Server, limits: usize) -> Contender {
    let mut lua = lua_slide(server)
        .on(&format!("x{limits}"))
        .named(&format!("{limits} × EVALSHA"));
    lua.calls = limits;
    lua
}

/// With debt left from before, as [`bucket`].
pub fn throttle() -> Option<Contender> {
    std::env::var("RL_BENCH_PEER").ok()?;
    let mut throttle = Contender::new("CL.THROTTLE", "c", "CL.THROTTLE", "100000 1000 60 1", 6);
    throttle.prepare = Some(|key| words(&format!("CL.THROTTLE {key} 100000 1000 60 2000")));
    throttle.prepared_lines = 6;
    Some(throttle)
}

/// The sliding-window counter as it is usually pasted: a counter key for each window.
const SLIDE: &str = "
local window = tonumber(ARGV[2])
local now = redis.call('TIME')
local t = tonumber(now[1]) + tonumber(now[2]) / 1000000
local slot = math.floor(t / window)
local current_key = KEYS[1] .. ':' .. slot
local current = tonumber(redis.call('GET', current_key) or '0')
local previous = tonumber(redis.call('GET', KEYS[1] .. ':' .. (slot - 1)) or '0')
local weight = 1 - (t % window) / window
local used = previous * weight + current
local limit = tonumber(ARGV[1])
local cost = tonumber(ARGV[3] or 1)
if used + cost > limit then
  return {0, limit, math.max(0, math.floor(limit - used)), math.ceil((window - t % window) * 1000)}
end
redis.call('INCRBY', current_key, cost)
redis.call('EXPIRE', current_key, window * 2)
return {1, limit, math.floor(limit - used - cost), 0}";

/// The token bucket on a hash, likewise.
const BUCKET: &str = "
local capacity = tonumber(ARGV[1])
local rate = tonumber(ARGV[2]) / tonumber(ARGV[3])
local cost = tonumber(ARGV[4] or 1)
local now = redis.call('TIME')
local t = tonumber(now[1]) + tonumber(now[2]) / 1000000
local state = redis.call('HMGET', KEYS[1], 'tokens', 'stamp')
local tokens = tonumber(state[1]) or capacity
local stamp = tonumber(state[2]) or t
tokens = math.min(capacity, tokens + (t - stamp) * rate)
local allowed = 0
if tokens >= cost then
  tokens = tokens - cost
  allowed = 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'stamp', t)
redis.call('EXPIRE', KEYS[1], math.ceil(capacity / rate) * 2)
return {allowed, capacity, math.floor(tokens), 0}";

/// The exact log on a sorted set, likewise.
const LOG: &str = "
local window = tonumber(ARGV[2])
local now = redis.call('TIME')
local t = tonumber(now[1]) * 1000000 + tonumber(now[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, t - window * 1000000)
local used = redis.call('ZCARD', KEYS[1])
local limit = tonumber(ARGV[1])
if used >= limit then return {0, limit, 0, 0} end
redis.call('ZADD', KEYS[1], t, t .. ':' .. used)
redis.call('EXPIRE', KEYS[1], window)
return {1, limit, limit - used - 1, 0}";

fn lua(server: &Server, name: &str, prefix: &str, script: &str, after: &str) -> Contender {
    let reply = server.call(&["SCRIPT", "LOAD", script]);
    let sha = reply.lines().nth(1).unwrap();
    Contender::new(name, prefix, &format!("EVALSHA {sha} 1"), after, 5)
}

pub fn lua_slide(server: &Server) -> Contender {
    lua(server, "Lua, two counters", "ls", SLIDE, "100000 60")
}

pub fn lua_bucket(server: &Server) -> Contender {
    lua(
        server,
        "Lua, bucket on a hash",
        "lb",
        BUCKET,
        "100000 100000 60 1",
    )
}

pub fn lua_log(server: &Server) -> Contender {
    lua(server, "Lua, sorted-set log", "ll", LOG, "100 60")
}
