//! What is compared: the floor, our commands, the Lua scripts that people paste, and a peer module.

use crate::server::{Server, encode};

/// One way of making a check on key number `n`.
#[derive(Clone)]
pub struct Contender {
    pub name: String,
    /// Key names begin with this. Contenders that are compared have prefixes of the same length, because memory is
    /// allocated in size classes.
    prefix: String,
    /// The words before and after the key.
    before: Vec<String>,
    after: Vec<String>,
    /// The words after the first key, if they are others.
    after_first: Option<Vec<String>>,
    /// What follows a new id, which is then the first argument of each call.
    after_id: Option<&'static str>,
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
            after_first: None,
            after_id: None,
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

    /// Several calls instead of one, each on a key of its own.
    fn each(mut self, calls: usize) -> Self {
        self.name = format!("{calls} × {}", self.name);
        self.calls = calls;
        self
    }

    fn key(&self, n: usize) -> String {
        format!("{}:{n:012}", self.prefix)
    }

    /// Whether each call needs an id that no other call has.
    pub fn needs_ids(&self) -> bool {
        self.after_id.is_some()
    }

    fn id(&self, serial: usize) -> String {
        format!("{}:id:{serial:012}", self.prefix)
    }

    /// The calls of one operation on key `n`, encoded. `serial` makes the id unique.
    pub fn encode(&self, n: usize, serial: usize, into: &mut Vec<u8>) {
        let key = |part: usize| match self.keys.max(self.calls) {
            1 => self.key(n),
            _ => format!("{}:{part}", self.key(n)),
        };
        for call in 0..self.calls {
            let mut line = self.before.clone();
            if let Some(after) = self.after_id {
                line.extend([self.id(serial), after.to_owned()]);
            }
            for part in 0..self.keys {
                line.push(key(call + part));
                let after = match &self.after_first {
                    Some(first) if part == 0 => first,
                    _ => &self.after,
                };
                line.extend(after.iter().cloned());
            }
            encode(&line, into);
        }
    }

    /// A call that makes key `n` exist.
    pub fn encode_preparation(&self, n: usize, into: &mut Vec<u8>) {
        match self.prepare {
            Some(prepare) => encode(&prepare(&self.key(n)), into),
            None => self.encode(n, 0, into),
        }
    }

    /// Calls that delete the ids that were created, each with one line as its reply, and their number.
    pub fn deletion(&self, serials: std::ops::Range<usize>) -> (Vec<u8>, usize) {
        let ids: Vec<String> = serials.map(|serial| self.id(serial)).collect();
        let batches = ids.chunks(1000);
        let calls = batches.len();
        let mut bytes = Vec::new();
        for batch in batches {
            encode(&[&["DEL".to_owned()], batch].concat(), &mut bytes);
        }
        (bytes, calls)
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

/// With a value of 16 bytes, like a state of RL.SLIDE.
pub fn set_ex() -> Contender {
    Contender::new("SET … EX", "e", "SET", "0123456789abcdef EX 3600", 1)
}

/// The cheapest value: servers keep small integers without a string.
pub fn set_integer_ex() -> Contender {
    Contender::new("SET … 1 EX", "i", "SET", "1 EX 3600", 1)
}

pub fn slide() -> Contender {
    Contender::new("RL.SLIDE", "s", "RL.SLIDE", "100000 60", 6)
}

pub fn slide_brief() -> Contender {
    Contender::new("RL.SLIDE … BRIEF", "t", "RL.SLIDE", "100000 60 BRIEF", 1)
}

pub fn precise_slide() -> Contender {
    Contender::new(
        "RL.SLIDE … PRECISION 8",
        "p",
        "RL.SLIDE",
        "100000 1h PRECISION 8",
        6,
    )
}

pub fn fixed() -> Contender {
    Contender::new("RL.FIXED", "f", "RL.FIXED", "100000 1h", 6)
}

/// In use, as [`bucket`].
pub fn leak() -> Contender {
    let mut leak = Contender::new("RL.LEAK", "l", "RL.LEAK", "100000 1000 1h", 6);
    leak.prepare = Some(|key| words(&format!("RL.LEAK {key} 100000 1000 1h 2000")));
    leak.prepared_lines = 6;
    leak
}

/// One limit, with a new id for each call.
pub fn reserve() -> Contender {
    let mut reserve = Contender::new("RL.RESERVE of 1 limit", "r", "RL.RESERVE", "", 11);
    reserve.after_id = Some("5m");
    reserve.after = vec!["SLIDE 100000 60".into()];
    reserve.prepare = Some(|key| words(&format!("RL.SLIDE {key} 100000 60")));
    reserve.prepared_lines = 6;
    reserve
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
    vec![
        slide(),
        precise_slide(),
        fixed(),
        bucket(),
        leak(),
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
    multi.after = vec!["SLIDE 100000 60".into()];
    multi.keys = limits;
    multi.lines = 4 + 6 * limits;
    multi
}

pub fn multi_brief(limits: usize) -> Contender {
    let mut multi = multi(limits)
        .on(&format!("n{limits}"))
        .named(&format!("RL.MULTI of {limits}, BRIEF"));
    multi.after_first = Some(vec!["BRIEF SLIDE 100000 60".into()]);
    multi.lines = 1;
    multi
}

/// As many calls as there are limits, pipelined.
pub fn slide_each(limits: usize) -> Contender {
    slide().on(&format!("s{limits}")).each(limits)
}

pub fn slide_brief_each(limits: usize) -> Contender {
    slide_brief().on(&format!("t{limits}")).each(limits)
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
    let lua = lua_slide(server).named("EVALSHA");
    lua.on(&format!("x{limits}")).each(limits)
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
