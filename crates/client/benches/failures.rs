//! Measures how long it takes to notice that the server is unavailable and that it is back, for docs/client.md.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rl_client::{FailureMode, HOUR, Limit, Limiter};
use rl_testkit::{Server, eventually_async};
use tokio::task::JoinSet;

const ROUNDS: usize = 7;

#[derive(Clone, Copy)]
enum Fault {
    Down,
    Stalled,
    Slow,
}

struct Times {
    noticed: Duration,
    slow_calls: usize,
    slowest: Duration,
    back: Duration,
}

/// 16 callers, one call per millisecond each, with the default settings.
async fn measure(fault: Fault) -> Times {
    let mut server = Server::with(&["enable-debug-command", "yes"]);
    let limiter = Limiter::builder(server.url())
        .failure_mode(FailureMode::Open)
        .build()
        .await
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
        callers.spawn(async move {
            let mut calls = Vec::new();
            while !stop.load(Relaxed) {
                let asked = Instant::now();
                let key = format!("user:{caller}");
                let _ = limiter
                    .check(key, Limit::slide(1 << 40, HOUR), 1)
                    .await
                    .unwrap();
                calls.push((asked, asked.elapsed()));
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            calls
        });
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    eventually_async("all is well", || limiter.health().ready).await;

    let struck = Instant::now();
    let mut sleeper = None;
    match fault {
        Fault::Down => server.kill(),
        Fault::Stalled => server.pause(),
        Fault::Slow => {
            let client = server.client();
            sleeper = Some(std::thread::spawn(move || {
                let mut con = client.get_connection().unwrap();
                let _: () = redis::cmd("DEBUG")
                    .arg("SLEEP")
                    .arg("1")
                    .query(&mut con)
                    .unwrap();
            }));
        }
    }
    while limiter.health().ready {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let noticed = struck.elapsed();
    tokio::time::sleep(Duration::from_secs(1).saturating_sub(struck.elapsed())).await;
    let away_until = Instant::now();
    match fault {
        Fault::Down => server.start_again_on_same_port(),
        Fault::Stalled => server.resume(),
        Fault::Slow => sleeper.take().unwrap().join().unwrap(),
    }
    let healed = Instant::now();
    while !limiter.health().ready {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let back = healed.elapsed();
    stop.store(true, Relaxed);
    let calls: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    let during = calls
        .iter()
        .filter(|(asked, _)| (struck..away_until).contains(asked));
    let times: Vec<Duration> = during.map(|&(_, took)| took).collect();
    Times {
        noticed,
        slow_calls: times
            .iter()
            .filter(|took| **took >= Duration::from_millis(3))
            .count(),
        slowest: times.into_iter().max().unwrap(),
        back,
    }
}

fn median<T: Ord + Copy>(rounds: &[Times], of: impl Fn(&Times) -> T) -> T {
    let mut values: Vec<T> = rounds.iter().map(of).collect();
    values.sort();
    values[values.len() / 2]
}

#[tokio::main]
async fn main() {
    println!(
        "| server | noticed after | calls that waited | slowest call | back after |\n|---|---|---|---|---|"
    );
    for (name, fault) in [
        ("down (killed, restarted)", Fault::Down),
        ("stalled or partitioned (SIGSTOP, SIGCONT)", Fault::Stalled),
        ("slow (answers nothing for 1 s)", Fault::Slow),
    ] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(measure(fault).await);
        }
        println!(
            "| {name} | {:.1?} | {} | {:.1?} | {:.0?} |",
            median(&rounds, |times| times.noticed),
            median(&rounds, |times| times.slow_calls),
            median(&rounds, |times| times.slowest),
            median(&rounds, |times| times.back),
        );
    }
    println!(
        "\n16 callers, a call each millisecond, all defaults; away for a second; medians of {ROUNDS} rounds."
    );
}
