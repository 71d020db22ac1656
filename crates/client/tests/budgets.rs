//! Budgets: most decisions are local, and the limit is never exceeded.

use std::time::{Duration, Instant};

use rl_client::{HOUR, Limit, Limiter, MINUTE, SECOND, Source};
use rl_testkit::{Deadline, PATIENCE, Server, eventually_async};
use tokio::task::JoinSet;

use crate::support::{CALM, LimiterOf, plain_server, remaining};

struct Tally {
    allowed: u64,
    decided: u64,
    local: u64,
}

/// Runs `nodes` separate limiters, each with a few tasks that call until `enough`.
async fn storm(
    server: &Server,
    nodes: usize,
    limit: &Limit,
    cost: u64,
    enough: impl Fn(u64) -> bool + Clone + Send + 'static,
) -> Tally {
    let mut tasks = JoinSet::new();
    for _ in 0..nodes {
        let limiter = server.limiter().build().await.unwrap().with_budgets();
        for _ in 0..3 {
            let (limiter, limit, enough) = (limiter.clone(), limit.clone(), enough.clone());
            tasks.spawn(async move {
                let mut tally = Tally {
                    allowed: 0,
                    decided: 0,
                    local: 0,
                };
                let start = Instant::now();
                while !enough(tally.decided) {
                    assert!(start.elapsed() < PATIENCE, "{} decisions", tally.decided);
                    let decision = limiter.check("hot", limit.clone(), cost).await.unwrap();
                    tally.decided += 1;
                    tally.allowed += if decision.allowed { cost } else { 0 };
                    tally.local += u64::from(decision.source.is_local());
                    assert!(!decision.source.is_fallback(), "{decision:?}");
                    // A request takes a while.
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                tally
            });
        }
    }
    let all = tasks.join_all().await;
    Tally {
        allowed: all.iter().map(|tally| tally.allowed).sum(),
        decided: all.iter().map(|tally| tally.decided).sum(),
        local: all.iter().map(|tally| tally.local).sum(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_nodes_decide_locally_and_never_exceed_the_limit() {
    let server = Server::start();
    let limit = Limit::slide(10_000, HOUR);
    let tally = storm(&server, 20, &limit, 1, |decided| decided >= 400).await;
    assert_eq!(tally.decided, 24_000);
    let share = tally.local as f64 / tally.decided as f64;
    println!(
        "{} of {} decisions local ({:.1} %), {} of 10000 allowed, {} calls",
        tally.local,
        tally.decided,
        share * 100.0,
        tally.allowed,
        server.calls("evalsha")
    );
    assert!(share >= 0.85, "{share}");
    assert!(tally.allowed <= 10_000, "{} allowed", tally.allowed);
    // Units in the chunks of other limiters are missing until they are refunded, so a few may go unused.
    assert!(tally.allowed >= 9_500, "{} allowed", tally.allowed);
}

/// If the calls do not reach the limit, all are allowed, and the count is exact once the unused units are refunded.
#[tokio::test(flavor = "multi_thread")]
async fn unused_units_are_returned() {
    let server = Server::start();
    let limit = Limit::slide(100_000, HOUR);
    let tally = storm(&server, 5, &limit, 2, |decided| decided >= 300).await;
    assert_eq!(tally.allowed, tally.decided * 2);
    assert!(tally.local as f64 / tally.decided as f64 > 0.85);
    eventually_async("the rest is refunded", || {
        remaining(&server, "hot", "SLIDE 100000 3600") == 100_000 - tally.allowed
    })
    .await;
}

/// Many short windows, with nodes that hold chunks across every boundary. No window allows more than the limit, by the
/// time at which each call was allowed.
#[tokio::test(flavor = "multi_thread")]
async fn no_fixed_window_is_overdrawn() {
    let server = Server::start();
    let window = Duration::from_millis(400);
    let limit = Limit::fixed(300, window);
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    let offset_us = server_clock_offset_us(&server, start);
    for _ in 0..6 {
        let limiter = server.limiter().build().await.unwrap().with_budgets();
        let limit = limit.clone();
        tasks.spawn(async move {
            let mut allowed = Vec::new();
            while start.elapsed() < Duration::from_secs(4) {
                let asked = start.elapsed();
                if limiter
                    .check("hot", limit.clone(), 1)
                    .await
                    .unwrap()
                    .allowed
                {
                    allowed.push((asked, start.elapsed()));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            allowed
        });
    }
    let window_us = window.as_micros() as i64;
    let mut counts = std::collections::BTreeMap::<i64, u64>::new();
    for (asked, answered) in tasks.join_all().await.into_iter().flatten() {
        let window_at = |time: Duration, add_us: i64| {
            (time.as_micros() as i64 + offset_us + add_us).div_euclid(window_us)
        };
        // A call at a boundary may belong to either window: the offset of the clock is not exact.
        let number = window_at(asked, -2000);
        if number == window_at(answered, 2000) {
            *counts.entry(number).or_default() += 1;
        }
    }
    assert!(counts.len() >= 5, "{counts:?}");
    assert!(counts.values().all(|&count| count <= 300), "{counts:?}");
    assert!(
        counts.values().any(|&count| count > 200),
        "the windows were in use: {counts:?}"
    );
}

/// What to add to the time since `start` to get the server's Unix time. Both run on one machine, with one clock. Each reply
/// takes a while and makes it look less: the fastest reply is the most exact.
fn server_clock_offset_us(server: &Server, start: Instant) -> i64 {
    let mut con = server.connect();
    let offsets = (0..100).map(|_| {
        let (seconds, micros): (i64, i64) = redis::cmd("TIME").query(&mut con).unwrap();
        seconds * 1_000_000 + micros - start.elapsed().as_micros() as i64
    });
    offsets.max().unwrap()
}

/// In any interval, no more is allowed than the capacity plus what is refilled.
#[tokio::test(flavor = "multi_thread")]
async fn no_bucket_is_overdrawn() {
    let server = Server::start();
    let (capacity, refill) = (200_u64, 400_u64);
    let limit = Limit::bucket(capacity, refill, SECOND);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..6 {
        let limiter = server.limiter().build().await.unwrap().with_budgets();
        let limit = limit.clone();
        tasks.spawn(async move {
            let mut allowed = Vec::new();
            // Bursts with pauses in which the bucket fills. Chunks are held across the pauses.
            while start.elapsed() < Duration::from_secs(4) {
                for _ in 0..40 {
                    let asked = start.elapsed();
                    let decision = limiter.check("hot", limit.clone(), 1).await.unwrap();
                    if decision.allowed {
                        allowed.push((asked, start.elapsed(), decision.source));
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                tokio::time::sleep(Duration::from_millis(400)).await;
            }
            allowed
        });
    }
    let mut allowed: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let local = allowed
        .iter()
        .filter(|(_, _, source)| *source == Source::Budget)
        .count();
    assert!(
        local * 4 > allowed.len(),
        "{local} of {} local",
        allowed.len()
    );
    // The interval from one request to another reply contains all calls in between. It is longer than the interval
    // between the two decisions, so its bound is weaker.
    allowed.sort_by_key(|&(asked, ..)| asked);
    let asked: Vec<Duration> = allowed.iter().map(|&(asked, ..)| asked).collect();
    let mut answered: Vec<Duration> = allowed.iter().map(|&(_, answered, _)| answered).collect();
    answered.sort();
    for (first, &from) in asked.iter().enumerate().step_by(7) {
        for (last, &to) in answered.iter().enumerate().skip(first).step_by(7) {
            let within = (last + 1).saturating_sub(first) as f64;
            let bound = capacity as f64 + (to.saturating_sub(from)).as_secs_f64() * refill as f64;
            assert!(
                within <= bound + 1.0,
                "{within} from {from:?} to {to:?}, at most {bound}"
            );
        }
    }
    assert!(allowed.len() > 600, "the bucket flowed: {}", allowed.len());
}

/// A server that stalls while a refund is in flight must not credit it to a later window.
#[tokio::test]
async fn a_late_refund_is_not_sent() {
    let limit = Limit::slide(1000, 2 * SECOND);
    let deadline = Deadline::start();
    let (server, _limiter) = loop {
        deadline.check("forty calls are made quickly");
        let server = Server::start();
        let limiter = server.limiter().build().await.unwrap().with_budgets();
        let start = Instant::now();
        // Chunks double while they are used up quickly.
        for _ in 0..40 {
            let decision = limiter.check("hot", limit.clone(), 1).await.unwrap();
            assert!(decision.allowed);
        }
        server.pause();
        // On a machine that stalls, a chunk may have been refunded in time.
        if start.elapsed() < Duration::from_millis(100) {
            break (server, limiter);
        }
    };
    // The refund is sent during the stall, when the chunk expires; the window ends before the server resumes.
    tokio::time::sleep(Duration::from_millis(2600)).await;
    server.resume();
    let other = server.limiter().build().await.unwrap();
    let full = other.check("hot", limit.clone(), 0).await.unwrap();
    // All 40 units and the rest of the chunk are in the previous window; the current one must be unchanged.
    assert!(full.allowed);
    let taken: Vec<redis::Value> = server.run("RL.PEEK", &["hot", "SLIDE 1000 2 0"]);
    assert!(!taken.is_empty());
    assert_eq!(server.calls("rl.refund"), 0, "too late");
}

#[tokio::test]
async fn a_crashed_node_loses_its_chunk_until_the_window_moves_on() {
    let server = Server::start();
    let limit = Limit::fixed(1000, SECOND);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let url = server.url();
    // A separate runtime that ends immediately: nothing is refunded.
    let node = std::thread::spawn(move || {
        runtime.block_on(async {
            let limiter = Limiter::builder(url)
                .timeout(CALM)
                .build()
                .await
                .unwrap()
                .with_budgets();
            for _ in 0..20 {
                let _ = limiter
                    .check("hot", Limit::fixed(1000, SECOND), 1)
                    .await
                    .unwrap();
            }
        });
        runtime.shutdown_background();
    });
    node.join().unwrap();
    let survivor = server.limiter().build().await.unwrap();
    eventually_async("the window moves on", || {
        remaining(&server, "hot", "FIXED 1000 1") == 1000
    })
    .await;
    assert!(survivor.check("hot", limit, 1000).await.unwrap().allowed);
}

#[tokio::test]
async fn budgets_are_returned_before_a_shutdown() {
    let server = Server::start();
    let limiter = server
        .limiter()
        .budgets(100, MINUTE)
        .build()
        .await
        .unwrap()
        .with_budgets();
    let limit = Limit::slide(10_000, HOUR);
    for _ in 0..20 {
        let _ = limiter.check("hot", limit.clone(), 1).await.unwrap();
    }
    assert!(
        remaining(&server, "hot", "SLIDE 10000 3600") < 9_980,
        "something is held"
    );
    limiter.refund_budgets().await;
    assert_eq!(remaining(&server, "hot", "SLIDE 10000 3600"), 9_980);
    assert!(limiter.check("hot", limit, 1).await.unwrap().allowed);
}

#[tokio::test]
async fn limits_without_budgets_still_work() {
    let server = Server::start();
    let limiter = server.limiter().build().await.unwrap().with_budgets();
    for (key, limit) in [
        ("exact", Limit::exact(5, HOUR)),
        ("leak", Limit::leak(5, 1, HOUR)),
        ("tiny", Limit::bucket(5, 1000, SECOND)),
    ] {
        for _ in 0..5 {
            let decision = limiter.check(key, limit.clone(), 1).await.unwrap();
            assert!(
                decision.allowed && decision.source == Source::Server,
                "{key}"
            );
        }
    }
    let lua = plain_server();
    let limiter = lua.limiter().build().await.unwrap().with_budgets();
    for _ in 0..5 {
        let decision = limiter.check("k", Limit::slide(5, HOUR), 1).await.unwrap();
        assert!(decision.allowed && decision.source == Source::Server);
    }
    assert!(
        !limiter
            .check("k", Limit::slide(5, HOUR), 1)
            .await
            .unwrap()
            .allowed
    );
}
