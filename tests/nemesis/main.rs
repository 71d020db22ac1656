//! Random traffic, random faults, and the promise that every node ends up with the same.
//!
//! From a seed follow the servers' settings, the calls and the faults; see docs/reliability.md. `make nemesis`
//! runs it for long, `make nemesis SEED=n` replays one seed.
//!
//! | variable | |
//! |---|---|
//! | `RL_NEMESIS_SECONDS` | how long, 90 unless set; 0 for not at all |
//! | `RL_NEMESIS_SEED` | the seed to begin with; drawn from the clock unless set |
//! | `RL_NEMESIS_ONCE` | only that seed |
//! | `RL_NEMESIS_KEEP_GOING` | report a seed that failed, and go on with the next |
//! | `RL_NEMESIS_VERBOSE` | print each step as it happens |

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod calls;
mod checks;
mod cluster;
mod faults;
mod history;
mod plan;
mod random;
mod seeds;
mod topology;
mod trace;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use history::History;
use plan::Plan;
use trace::Trace;

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text}")),
    )
}

/// Where servers live; what failed stays there.
fn folder(seed: u64) -> PathBuf {
    let name = format!("seed-{seed}-{}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("nemesis")
        .join(name)
}

/// Runs one seed. What failed comes with its steps and the place of its logs.
fn run(seed: u64) -> Result<(), String> {
    let folder = folder(seed);
    fs::create_dir_all(&folder).unwrap();
    let trace = Trace::new();
    let result = {
        let mut history = History::new(seed, &folder, &trace);
        let result = history.run();
        let tally = history.shared.tally();
        if std::env::var_os("RL_NEMESIS_VERBOSE").is_some() {
            eprintln!("{} answered, errors: {:#?}", tally.answered, tally.errors);
        }
        match result {
            Ok(()) if tally.answered < 200 => Err("hardly any call was answered".to_owned()),
            result => result,
        }
    };
    if result.is_ok() {
        let _ = fs::remove_dir_all(&folder);
        return Ok(());
    }
    let why = result.unwrap_err();
    let text = format!("{}\nFAILED: {why}\n", trace.text());
    fs::write(folder.join("trace.txt"), &text).unwrap();
    Err(format!(
        "seed {seed} on {}\n{text}logs: {}\nreplay: make nemesis SEED={seed}",
        rl_testkit::server_binary(),
        folder.display()
    ))
}

#[test]
fn all_nodes_end_up_equal_after_random_faults() {
    let seconds = setting("RL_NEMESIS_SECONDS").unwrap_or(90);
    let drawn = || checks::now_ms() as u64;
    let first = setting("RL_NEMESIS_SEED").unwrap_or_else(drawn);
    let once = std::env::var_os("RL_NEMESIS_ONCE").is_some();
    let keep_going = std::env::var_os("RL_NEMESIS_KEEP_GOING").is_some();
    let start = Instant::now();
    // Half of a short run is for what nobody has seen yet.
    let known = seeds::FOUND.map(|(seed, what)| (seed, what, seconds / 2));
    let new = (first..).map(|seed| (seed, "", seconds));
    let all: Box<dyn Iterator<Item = (u64, &str, u64)>> = match once {
        true => Box::new(new.take(1)),
        false => Box::new(known.into_iter().chain(new)),
    };
    let (mut passed, mut failed) = (0, Vec::new());
    for (seed, what, until) in all {
        if start.elapsed() >= Duration::from_secs(until) {
            match what {
                "" => break,
                _ => continue,
            }
        }
        let began = Instant::now();
        let result = run(seed);
        let took = began.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                passed += 1;
                eprintln!("seed {seed}: passed in {took:.1} s  {what}");
            }
            Err(why) => {
                failed.push(seed);
                let since = start.elapsed().as_secs_f64();
                eprintln!("{why}\nseed {seed}: FAILED, {since:.0} s after the start  {what}");
                if !keep_going {
                    break;
                }
            }
        }
    }
    eprintln!(
        "{}: {passed} seeds passed in {:.0} s, {} failed",
        rl_testkit::server_binary(),
        start.elapsed().as_secs_f64(),
        failed.len()
    );
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
}

#[test]
fn a_seed_always_gives_the_same_plan() {
    for seed in 0..200 {
        assert_eq!(Plan::of(seed), Plan::of(seed));
    }
    assert_ne!(Plan::of(1), Plan::of(2));
}
