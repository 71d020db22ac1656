//! RL.MULTI with all algorithms at once, with refunds and releases in between, on a server whose clock the test sets:
//! every reply matches a naive model, and a denial charges nothing.

use std::collections::BTreeMap;
use std::fmt;

use redis::Value;
use rl_testkit::{FrozenServer, NOON_US};
use rl_testkit::{MultiReply, Random, Reply};
use rstest::rstest;

/// All times are in microseconds.
type Time = i128;

const MS: Time = 1000;

/// How a key counts. Its limit changes from call to call; its window does not.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Slide { window_ms: u64, parts: u64 },
    Bucket { refill: u64, period_ms: u64 },
    Leak { rate: u64, period_ms: u64 },
    Fixed { window_ms: u64 },
    Exact { window_ms: u64 },
    Lease,
}

/// One limit of a call.
struct Ask {
    key: usize,
    limit: u64,
    cost: u64,
    holder: u64,
    ttl_ms: u64,
}

/// What was taken from a key and still is, as simply as it can be written down.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// SLIDE, FIXED: units by the number of their part. Part 0 begins at `origin`.
    origin: Time,
    counts: BTreeMap<Time, u64>,
    /// BUCKET, LEAK: what was owed at a moment, in `1 / period` of a unit.
    owed: u128,
    owed_at: Time,
    /// EXACT: units and when.
    log: Vec<(Time, u64)>,
    /// LEASE: units and until when.
    held: BTreeMap<u64, (u64, Time)>,
}

#[derive(Clone)]
struct Key {
    name: String,
    kind: Kind,
    taken: Taken,
    /// When anything was last taken or given back.
    touched: Time,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.name, self.kind, self.taken)
    }
}

impl Key {
    /// Width of a part, and how many make up a window.
    fn parts(&self) -> (Time, Time) {
        match self.kind {
            Kind::Slide { window_ms, parts } => {
                let window = Time::from(window_ms) * MS;
                (
                    window / Time::from(parts) + Time::from(window % Time::from(parts) > 0),
                    parts.into(),
                )
            }
            Kind::Fixed { window_ms } => (Time::from(window_ms) * MS, 0),
            _ => unreachable!(),
        }
    }

    /// Units of a part that still count at `now`, as a fraction.
    fn counted(&self, part: Time, units: u64, now: Time) -> (u128, u128) {
        let (width, whole) = self.parts();
        let (age, into) = (
            (now - self.taken.origin).div_euclid(width) - part,
            (now - self.taken.origin).rem_euclid(width),
        );
        let numerator = match age {
            _ if whole == 0 => Time::from(age == 0) * width,
            age if age < whole => width,
            // Two counters estimate; sub-windows count in full.
            age if age == whole && whole == 1 => width - into,
            age if age == whole => width,
            _ => 0,
        };
        (u128::from(units) * numerator as u128, width as u128)
    }

    fn rate(&self) -> (u128, u128) {
        match self.kind {
            Kind::Bucket {
                refill: rate,
                period_ms,
            }
            | Kind::Leak { rate, period_ms } => (rate.into(), u128::from(period_ms) * MS as u128),
            _ => unreachable!(),
        }
    }

    fn owed(&self, now: Time) -> u128 {
        let drained = (now - self.taken.owed_at) as u128 * self.rate().0;
        self.taken.owed.saturating_sub(drained)
    }

    /// Units in use at `now`, rounded up; without those of one holder.
    fn used(&self, now: Time, but: Option<u64>) -> u64 {
        match self.kind {
            Kind::Slide { .. } | Kind::Fixed { .. } => {
                let (mut sum, mut of) = (0, 1);
                for (&part, &units) in &self.taken.counts {
                    let (numerator, denominator) = self.counted(part, units, now);
                    sum += numerator;
                    of = denominator;
                }
                sum.div_ceil(of) as u64
            }
            Kind::Bucket { .. } | Kind::Leak { .. } => {
                self.owed(now).div_ceil(self.rate().1) as u64
            }
            Kind::Exact { window_ms } => {
                let counts = |at: Time| at > now - Time::from(window_ms) * MS;
                let log = self.taken.log.iter();
                log.filter(|(at, _)| counts(*at)).map(|(_, n)| n).sum()
            }
            Kind::Lease => {
                let others = |holder: u64| Some(holder) != but;
                let held = self.taken.held.iter();
                held.filter(|(holder, (_, until))| *until > now && others(**holder))
                    .map(|(_, (units, _))| units)
                    .sum()
            }
        }
    }

    fn fits(&self, ask: &Ask, now: Time) -> bool {
        // The same holder again renews, if it asks for anything.
        let but = (ask.cost > 0).then_some(ask.holder);
        self.used(now, but) + ask.cost <= ask.limit
    }

    /// Nothing of what was taken can be seen any more.
    fn is_new(&self, now: Time) -> bool {
        match self.kind {
            Kind::Bucket { .. } | Kind::Leak { .. } => self.owed(now) == 0,
            _ => self.used(now, None) == 0,
        }
    }

    fn take(&mut self, ask: &Ask, now: Time) {
        if ask.cost == 0 {
            return;
        }
        self.touched = now;
        if self.is_new(now) {
            self.taken = Taken {
                origin: now,
                ..Taken::default()
            };
        }
        match self.kind {
            Kind::Slide { .. } | Kind::Fixed { .. } => {
                if let Kind::Fixed { .. } = self.kind {
                    self.taken.origin = 0;
                }
                let part = (now - self.taken.origin).div_euclid(self.parts().0);
                *self.taken.counts.entry(part).or_default() += ask.cost;
            }
            Kind::Bucket { .. } | Kind::Leak { .. } => {
                self.taken.owed = self.owed(now) + u128::from(ask.cost) * self.rate().1;
                self.taken.owed_at = now;
            }
            Kind::Exact { .. } => self.taken.log.push((now, ask.cost)),
            Kind::Lease => {
                let until = now + Time::from(ask.ttl_ms) * MS;
                self.taken.held.insert(ask.holder, (ask.cost, until));
            }
        }
    }

    /// How many units a refund gives back: as many as usage drops by.
    fn refundable(&self, units: u64, now: Time) -> u64 {
        let mut after = self.clone();
        after.refund(units, now);
        self.used(now, None) - after.used(now, None)
    }

    /// Takes units off, the latest first.
    fn refund(&mut self, units: u64, now: Time) {
        self.touched = now;
        let mut left = units;
        let mut give = |from: &mut u64| {
            let given = left.min(*from);
            *from -= given;
            left -= given;
        };
        match self.kind {
            Kind::Slide { .. } | Kind::Fixed { .. } => {
                let mut counts = std::mem::take(&mut self.taken.counts);
                for (&part, count) in counts.iter_mut().rev() {
                    if self.counted(part, 1, now).0 > 0 {
                        give(count);
                    }
                }
                self.taken.counts = counts;
            }
            Kind::Bucket { .. } | Kind::Leak { .. } => {
                let given = u128::from(units) * self.rate().1;
                self.taken.owed = self.owed(now).saturating_sub(given);
                self.taken.owed_at = now;
            }
            Kind::Exact { window_ms } => {
                let horizon = now - Time::from(window_ms) * MS;
                let latest = self.taken.log.iter_mut().rev();
                for (_, units) in latest.take_while(|(at, _)| *at > horizon) {
                    give(units);
                }
            }
            Kind::Lease => unreachable!(),
        }
    }

    fn release(&mut self, holder: u64, now: Time) -> bool {
        self.touched = now;
        let held = self.taken.held.remove(&holder);
        held.is_some_and(|(_, until)| until > now)
    }

    fn spec(&self, ask: &Ask) -> String {
        let (limit, cost) = (ask.limit, ask.cost);
        match self.kind {
            Kind::Slide {
                window_ms,
                parts: 1,
            } => format!("SLIDE {limit} {window_ms}ms {cost}"),
            Kind::Slide { window_ms, parts } => {
                format!("SLIDE {limit} {window_ms}ms {cost} PRECISION {parts}")
            }
            Kind::Bucket { refill, period_ms } => {
                format!("BUCKET {limit} {refill} {period_ms}ms {cost}")
            }
            Kind::Leak { rate, period_ms } => format!("LEAK {limit} {rate} {period_ms}ms {cost}"),
            Kind::Fixed { window_ms } => format!("FIXED {limit} {window_ms}ms {cost}"),
            Kind::Exact { window_ms } => format!("EXACT {limit} {window_ms}ms {cost}"),
            Kind::Lease => format!("LEASE {limit} {}ms h{} {cost}", ask.ttl_ms, ask.holder),
        }
    }

    /// The five integers are right. `self` is as before the call, `after` as it left it.
    fn check(&self, after: &Self, ask: &Ask, now: Time, forced: bool, reply: Reply) {
        let later = |ms: i64| now + Time::from(ms) * MS;
        let allowed = forced || self.fits(ask, now);
        assert_eq!(reply.0 == 1, allowed, "allowed");
        assert_eq!(reply.1 as u64, ask.limit, "limit");
        let remaining = ask.limit.saturating_sub(after.used(now, None));
        assert_eq!(reply.2 as u64, remaining, "remaining");
        // Waits are not computed but tried: over after so many milliseconds, and not one before.
        if !allowed && ask.cost > ask.limit {
            assert_eq!(reply.3, -1, "never");
        } else if !allowed {
            assert!(reply.3 > 0, "a wait");
            assert!(self.fits(ask, later(reply.3)), "passes after its wait");
            assert!(!self.fits(ask, later(reply.3 - 1)), "and not before");
        } else if let Kind::Leak { .. } = self.kind {
            let (rate, _) = self.rate();
            let delay = self.owed(now).div_ceil(rate).div_ceil(MS as u128);
            assert_eq!(reply.3 as u128, delay, "the queue ahead");
        } else {
            assert_eq!(reply.3, 0, "no wait");
        }
        assert!(after.is_new(later(reply.4)), "fully reset");
        assert!(
            reply.4 == 0 || !after.is_new(later(reply.4 - 1)),
            "and not before"
        );
    }
}

fn keys(random: &mut Random) -> Vec<Key> {
    let mut keys = Vec::new();
    for n in 0..3 {
        let mut ms = || 3 + (random.below(4000) >> random.below(9));
        for kind in [
            Kind::Slide {
                window_ms: ms(),
                parts: 1,
            },
            Kind::Slide {
                window_ms: ms(),
                parts: [2, 7, 60][n],
            },
            Kind::Bucket {
                refill: [1, 7, 1000][n],
                period_ms: ms(),
            },
            Kind::Leak {
                rate: [1, 7, 1000][n],
                period_ms: ms(),
            },
            Kind::Fixed { window_ms: ms() },
            Kind::Exact { window_ms: ms() },
            Kind::Lease,
        ] {
            let name = format!("k{}", keys.len());
            let taken = Taken::default();
            let touched = 0;
            keys.push(Key {
                name,
                kind,
                taken,
                touched,
            });
        }
    }
    keys
}

fn asks(random: &mut Random, keys: &[Key]) -> Vec<Ask> {
    let mut chosen = BTreeMap::new();
    for _ in 0..=random.below(7) {
        chosen.insert(random.below(keys.len() as u64) as usize, ());
    }
    let mut one = |key| {
        let limit = [0, 1, 10, 25, 25, 25, 1000][random.below(7) as usize];
        Ask {
            key,
            limit,
            // Mostly small; now and then the whole limit, or more.
            cost: match random.below(8) {
                0 => 0,
                1 => limit,
                2 => limit + 1,
                _ => 1 + random.below(4),
            },
            holder: random.below(6),
            ttl_ms: 1 + random.below(2000),
        }
    };
    chosen.into_keys().map(&mut one).collect()
}

#[rstest]
fn every_reply_is_what_the_model_predicts(#[values(1, 2, 3, 4)] seed: u64) {
    let mut random = Random(seed * 1_000_003);
    let frozen = FrozenServer::with(&["hz", "100"]);
    if frozen.cannot_be_tested() {
        return;
    }
    let mut con = frozen.server.connect();
    let mut keys = keys(&mut random);
    let mut now_us = NOON_US;
    let (mut allowed_calls, mut denied_calls, mut given_back) = (0, 0, 0);
    for round in 0..700 {
        if random.below(3) == 0 {
            now_us += 1000 + (random.below(3_000_000) >> random.below(12));
            frozen.set(now_us);
        }
        let now = Time::from(now_us);

        // No key goes before its time, or stays much longer.
        let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
        let mut there = redis::pipe();
        for name in &names {
            there.cmd("EXISTS").arg(name);
        }
        let there: Vec<bool> = there.query(&mut con).unwrap();
        for (key, there) in keys.iter_mut().zip(there) {
            match there {
                false => {
                    assert!(key.is_new(now), "gone too early: {key}");
                    key.taken = Taken::default();
                }
                true => {
                    let drains = matches!(key.kind, Kind::Bucket { .. } | Kind::Leak { .. });
                    // Two of the longest steps by which the expiry of a bucket moves.
                    let earlier = now - if drains { 1_920_000_000 } else { 1_001_000 };
                    let over = key.touched < earlier && key.is_new(earlier);
                    assert!(!over, "still there: {key}");
                }
            }
        }

        if random.below(5) == 0 {
            let place = random.below(keys.len() as u64) as usize;
            let (key, units) = (&mut keys[place], random.below(20));
            let (command, word, expected) = match key.kind {
                Kind::Lease => {
                    let released = u64::from(key.release(units % 6, now));
                    ("RL.RELEASE", format!("h{}", units % 6), released)
                }
                _ => ("RL.REFUND", units.to_string(), key.refundable(units, now)),
            };
            let given: u64 = redis::cmd(command)
                .arg(&key.name)
                .arg(&word)
                .query(&mut con)
                .unwrap();
            assert!(
                given == expected,
                "round {round} at {now_us}: {command} {word} gave {given}, not {expected}: {key}"
            );
            // What does not show is not taken off.
            if command == "RL.REFUND" && given > 0 {
                key.refund(units, now);
            }
            given_back += given;
            continue;
        }

        let asks = asks(&mut random, &keys);
        let option = [None, None, None, None, Some("PEEK"), Some("FORCE")];
        let option = option[random.below(6) as usize];
        let mut call = redis::cmd("RL.MULTI");
        for (place, ask) in asks.iter().enumerate() {
            let key = &keys[ask.key];
            let option = option.filter(|_| place == 0).map(|word| format!("{word} "));
            call.arg(&key.name);
            call.arg(option.unwrap_or_default() + &key.spec(ask));
        }
        let mut pipe = redis::pipe();
        pipe.cmd("DEBUG").arg("DIGEST").add_command(call.clone());
        pipe.cmd("DEBUG").arg("DIGEST");
        let (before, (allowed, wait, each), after): (String, MultiReply, String) =
            pipe.query(&mut con).unwrap();

        let forced = option == Some("FORCE");
        let fits = |ask: &Ask| keys[ask.key].fits(ask, now);
        let expected = forced || asks.iter().all(fits);
        let what = String::from_utf8_lossy(&call.get_packed_command()).replace("\r\n", " ");
        let context = format!("seed {seed} round {round} at {now_us}: {what} → {each:?}");
        assert_eq!(allowed == 1, expected, "{context}");
        assert_eq!(each.len(), asks.len(), "{context}");
        let mut longest = 0;
        for (ask, &reply) in asks.iter().zip(&each) {
            let key = &mut keys[ask.key];
            let old = Key {
                name: key.name.clone(),
                kind: key.kind,
                taken: key.taken.clone(),
                touched: key.touched,
            };
            if expected {
                key.take(ask, now);
            }
            let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                // If the call as a whole is denied, a limit that would have allowed it reports what remains.
                old.check(key, ask, now, forced, reply);
            }));
            assert!(checked.is_ok(), "{reply:?} of {old}\n{context}");
            if option == Some("PEEK") {
                key.taken = old.taken;
            }
            if reply.0 == 0 {
                longest = match (longest, reply.3) {
                    (-1, _) | (_, -1) => -1,
                    (one, other) => one.max(other),
                };
            }
        }
        assert_eq!(wait, longest, "{context}");
        if allowed == 0 || option == Some("PEEK") {
            assert_eq!(before, after, "a trace: {context}");
            denied_calls += 1;
        } else {
            allowed_calls += 1;
        }
    }
    assert!(allowed_calls > 100 && denied_calls > 100 && given_back > 50);
    let alive: Value = redis::cmd("PING").query(&mut con).unwrap();
    assert_eq!(alive, Value::SimpleString("PONG".into()));
}
