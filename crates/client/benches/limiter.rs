//! `make bench`: the cost of a check, by what decides it, compared with the alternatives.
//!
//! The contenders take turns on one server; the output is the median of all rounds.
//! `RL_MODULE` names the module, which should be a release build; `quick` runs fewer rounds.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../tests/support.rs"]
mod support;

use std::future::Future;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use redis::aio::MultiplexedConnection;
use rl_client::{HOUR, Limit, Limiter, MINUTE, SECOND, Source};
use rl_testkit::Server;
use support::LimiterOf;
use tokio::task::JoinSet;

/// Concurrent calls of the contenders that call the server.
const TASKS: usize = 64;

/// What people write themselves: a sliding window of two counters, as a Lua script.
const BY_HAND: &str = r"
local limit, window, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local start = now - now % window
local current = KEYS[1] .. ':' .. start
local previous = tonumber(redis.call('GET', KEYS[1] .. ':' .. (start - window)) or 0)
local used = tonumber(redis.call('GET', current) or 0)
if previous * (window - (now - start)) / window + used + cost > limit then return 0 end
redis.call('INCRBY', current, cost)
redis.call('PEXPIRE', current, 2 * window)
return 1";

struct Line {
    name: &'static str,
    rounds: Vec<Round>,
}

struct Round {
    per_second: f64,
    p50: Duration,
    p99: Duration,
}

impl Line {
    fn new(name: &'static str) -> Self {
        Self {
            name,
            rounds: Vec::new(),
        }
    }

    fn median<T: PartialOrd + Copy>(&self, of: impl Fn(&Round) -> T) -> T {
        let mut values: Vec<T> = self.rounds.iter().map(of).collect();
        values.sort_by(|a, b| a.partial_cmp(b).unwrap());
        values[values.len() / 2]
    }

    fn print(&self) {
        let per_second = self.median(|round| round.per_second);
        let (p50, p99) = (
            self.median(|round| round.p50),
            self.median(|round| round.p99),
        );
        println!(
            "| {} | {} | {} | {} |",
            self.name,
            thousands(per_second),
            time(p50),
            time(p99)
        );
    }
}

/// Makes many concurrent calls to the server, and times each of them.
async fn fan_out<F, Fut>(calls: usize, call: F) -> Round
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let call = call.clone();
        tasks.spawn(async move {
            let mut times = Vec::with_capacity(calls / TASKS);
            for n in 0..calls / TASKS {
                let asked = Instant::now();
                call(task * 1000 + n % 1000).await;
                times.push(asked.elapsed());
            }
            times
        });
    }
    let times: Vec<Duration> = tasks.join_all().await.into_iter().flatten().collect();
    round(times.len(), start.elapsed(), times)
}

/// Makes calls in one task. They are too short to be timed one by one, so they are timed in groups of 100.
async fn in_process<F, Fut>(calls: usize, call: F) -> Round
where
    F: Fn() -> Fut,
    Fut: Future<Output = ()>,
{
    const BATCH: usize = 100;
    let start = Instant::now();
    let mut times = Vec::with_capacity(calls / BATCH);
    for _ in 0..calls / BATCH {
        let batch = Instant::now();
        for _ in 0..BATCH {
            call().await;
        }
        times.push(batch.elapsed() / BATCH as u32);
    }
    round(calls, start.elapsed(), times)
}

fn round(calls: usize, took: Duration, mut times: Vec<Duration>) -> Round {
    times.sort();
    Round {
        per_second: calls as f64 / took.as_secs_f64(),
        p50: times[times.len() / 2],
        p99: times[times.len() * 99 / 100],
    }
}

#[tokio::main]
async fn main() {
    let quick = std::env::args().any(|word| word == "quick");
    let (rounds, remote, local) = if quick {
        (3, 20_000, 200_000)
    } else {
        (7, 60_000, 1_000_000)
    };

    let server = Server::start();
    let limiter = server.limiter().build().await.unwrap();
    // It remembers a denial for longer than the benchmark runs.
    let patient = server
        .limiter()
        .deny_cache(100, HOUR)
        .build()
        .await
        .unwrap();
    let connection = server
        .client()
        .get_multiplexed_async_connection()
        .await
        .unwrap();
    let script = redis::Script::new(BY_HAND);
    script.load_async(&mut connection.clone()).await.unwrap();

    let abuser = Limit::slide(1, HOUR);
    for _ in 0..3 {
        let _ = patient.check("abuser", abuser.clone(), 1).await.unwrap();
    }
    let denied = patient.check("abuser", abuser.clone(), 1).await.unwrap();
    assert_eq!(denied.source, Source::DenyCache);
    let governor = RateLimiter::keyed(Quota::per_second(NonZeroU32::MAX));
    let hot = limiter.with_budgets();

    let mut lines = [
        Line::new("limiter → server"),
        Line::new("limiter → server, three limits"),
        Line::new("redis-rs, EVALSHA by hand"),
        Line::new("redis-rs, EVALSHA by hand, three limits"),
        Line::new("limiter, deny cache"),
        Line::new("limiter, budget"),
        Line::new("governor (one process only)"),
    ];
    for _ in 0..rounds {
        let [one, three, script_one, script_three, cache, budget, peer] = &mut lines;
        one.rounds
            .push(fan_out(remote, call_one(limiter.clone())).await);
        let call = script_call(connection.clone(), script.clone(), 1);
        script_one.rounds.push(fan_out(remote, call).await);
        three
            .rounds
            .push(fan_out(remote / 2, call_three(limiter.clone())).await);
        let call = script_call(connection.clone(), script.clone(), 3);
        script_three.rounds.push(fan_out(remote / 2, call).await);
        cache.rounds.push(
            in_process(local, || async {
                let decision = patient
                    .check("abuser", Limit::slide(1, HOUR), 1)
                    .await
                    .unwrap();
                assert!(!decision.allowed);
            })
            .await,
        );
        budget.rounds.push(
            in_process(local, || async {
                let decision = hot
                    .check("hot", Limit::slide(1 << 50, MINUTE), 1)
                    .await
                    .unwrap();
                assert!(decision.allowed);
            })
            .await,
        );
        peer.rounds.push(
            in_process(local, || async {
                assert!(governor.check_key(&"hot").is_ok())
            })
            .await,
        );
    }

    println!("\n| check | checks/s | p50 | p99 |\n|---|---|---|---|");
    lines.iter().for_each(Line::print);
    println!(
        "\nTo the server: {TASKS} calls in flight on one connection. In process: one task, times by the hundred. Medians of {rounds} \
         rounds."
    );
}

fn call_one(
    limiter: Limiter,
) -> impl Fn(usize) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Clone {
    move |n| {
        let limiter = limiter.clone();
        Box::pin(async move {
            let key = format!("user:{n}");
            let decision = limiter
                .check(key, Limit::slide(1 << 40, MINUTE), 1)
                .await
                .unwrap();
            assert!(decision.allowed && decision.source == Source::Server);
        })
    }
}

fn call_three(
    limiter: Limiter,
) -> impl Fn(usize) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Clone {
    move |n| {
        let limiter = limiter.clone();
        Box::pin(async move {
            let limits = ["ip", "user", "key"].map(|kind| {
                (
                    format!("{{{n}}}:{kind}"),
                    Limit::slide(1 << 40, SECOND * 30),
                    1,
                )
            });
            assert!(limiter.check_all(limits).await.unwrap().allowed);
        })
    }
}

fn script_call(
    connection: MultiplexedConnection,
    script: redis::Script,
    limits: usize,
) -> impl Fn(usize) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> + Clone {
    move |n| {
        let (mut connection, script) = (connection.clone(), script.clone());
        Box::pin(async move {
            for limit in 0..limits {
                let mut call = script.key(format!("script:{n}:{limit}"));
                call.arg(1_u64 << 40).arg(60_000).arg(1);
                let allowed: i64 = call.invoke_async(&mut connection).await.unwrap();
                assert_eq!(allowed, 1);
            }
        })
    }
}

fn thousands(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.1} M", n / 1e6),
        n => format!("{:.1} K", n / 1e3),
    }
}

fn time(time: Duration) -> String {
    match time.as_nanos() {
        ns if ns < 1000 => format!("{ns} ns"),
        ns if ns < 1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        ns => format!("{:.2} ms", ns as f64 / 1e6),
    }
}
