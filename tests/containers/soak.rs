//! Every command on a million keys for a while, with a replica and the AOF on: `make soak`.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use redis::{Pipeline, RedisResult, Value};
use rstest::rstest;

use crate::load::MAX_LOAD;
use crate::network::{Network, Node};
use rl_testkit::{Random, ask, command};

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// One call on key `n`, whose kind of limit is always the same.
fn add(pipe: &mut Pipeline, random: &mut Random, n: u64, cost: u64) {
    let holder = random.below(2);
    let line = match (n % 8, random.below(10)) {
        (0, 0) => format!("RL.REFUND k:{n} {cost}"),
        (1, 0) => format!("RL.PEEK k:{n} \"BUCKET 50 10 1h {cost}\""),
        (2, 0) => format!("RL.INSPECT k:{n}"),
        (0, 1) => format!(
            "RL.MULTI k:{n} \"SLIDE 50 1h\" k:{} \"BUCKET 50 10 1h {cost}\"",
            n / 8 * 8 + 1
        ),
        (0, 2) => format!(
            "RL.FIRST k:{n} \"TIMES 3 ATLEAST 1 SLIDE 50 1h\" k:{} \"BUCKET 50 10 1h {cost}\"",
            n / 8 * 8 + 1
        ),
        (2, 1) => format!("RL.FIXED k:{n} 50 1h {cost} TIMES 2 BRIEF"),
        (5, 0) => format!("RL.RELEASE k:{n} h{holder}"),
        (0, _) => format!("RL.SLIDE k:{n} 50 1h {cost}"),
        (1, _) => format!("RL.BUCKET k:{n} 50 10 1h {cost}"),
        (2, _) => format!("RL.FIXED k:{n} 50 1h {cost}"),
        (3, _) => format!("RL.EXACT k:{n} 2 1h 1"),
        (4, _) => format!("RL.LEAK k:{n} 50 10 1h {cost}"),
        (5, _) => format!("RL.LEASE k:{n} 3 1h h{holder}"),
        // The same keys each time, so that their number does not grow.
        (6, 0) if n % 80 == 6 => format!("RL.OVERRIDE SET k:{n} one SCALE {} 1", holder + 1),
        (6, 1) => format!("RL.OVERRIDE GET k:{n}"),
        (6, _) => format!("RL.CHECK k:{n} one {cost}"),
        (_, 0) => [
            "RL.STATS",
            "RL.TOP",
            "RL.AUDIT GET 10",
            "RL.POLICY GET three",
        ][n as usize / 8 % 4]
            .to_owned(),
        (_, 1) => format!("RL.PEEK k:{n} \"POLICY three {cost}\""),
        _ => format!("RL.CHECK k:{n} three {cost}"),
    };
    pipe.add_command(command(&line));
}

/// What is looked at once in a while: memory of the data, and how long a call takes.
struct Sample {
    second: u64,
    memory: [u64; 2],
    latency: Latency,
    calls: u64,
}

fn dataset(node: &Node) -> u64 {
    node.info("memory", "used_memory_dataset").parse().unwrap()
}

/// A call's time from outside, in microseconds, and a PING's at the same time: neighbours on the machine slow down
/// both, what piles up in the module one of them.
#[derive(Debug)]
struct Latency {
    median: u64,
    p99: u64,
    ping: u64,
}

fn latency(node: &Node) -> Latency {
    let mut con = node.connect().unwrap();
    let mut time = |line: &str| {
        sleep(Duration::from_millis(1));
        let begin = Instant::now();
        let _: Value = ask(&mut con, line);
        begin.elapsed().as_micros() as u64
    };
    let (mut calls, mut pings) = (Vec::new(), Vec::new());
    for n in 0..500 {
        calls.push(time(&format!("RL.SLIDE probe:{} 1000000 1h", n % 10)));
        pings.push(time("PING"));
    }
    calls.sort_unstable();
    pings.sort_unstable();
    Latency {
        median: calls[calls.len() / 2],
        p99: calls[calls.len() * 99 / 100],
        ping: pings[pings.len() / 2].max(1),
    }
}

#[rstest]
#[ignore = "needs Docker: make soak"]
fn a_long_mixed_load_leaves_memory_and_latency_flat() {
    let (seconds, keys) = (
        setting("SOAK_SECONDS", 600),
        setting("SOAK_KEYS", 1_000_000),
    );
    // Calls per second and worker: enough to keep a core busy, not to queue up.
    let pause = Duration::from_secs(1) / (setting("SOAK_RATE", 5_000) / 100) as u32;
    let network = Network::new();
    let aof = ["--appendonly", "yes", "--save", ""];
    let [primary, replica] = &[network.server(&aof), network.server(&aof)];
    replica.follow(primary);

    let send = |from: u64,
                count: u64,
                costs: Range<u64>,
                random: &mut Random,
                con: &mut redis::Connection|
     -> u64 {
        let mut pipe = Pipeline::new();
        for n in 0..count {
            let key = if from == u64::MAX {
                random.below(keys)
            } else {
                from + n
            };
            let cost = random.below(costs.end - costs.start) + costs.start;
            add(&mut pipe, random, key, cost);
        }
        let replies: RedisResult<Vec<Value>> = pipe.query(con);
        let replies = replies.unwrap_or_else(|error| panic!("an error not explained: {error}"));
        let errors = replies
            .iter()
            .filter(|reply| matches!(reply, Value::ServerError(_)))
            .count();
        assert_eq!(errors, 0, "{replies:?}");
        count
    };
    // Often enough that calls of cost 0 and releases leave next to no keys unmade, and logs are full. Small counts take
    // less room than large ones: the first round makes them large.
    let mut con = primary.connect().unwrap();
    for policy in [
        "one SLIDE 50 1h",
        "three SLIDE 50 1h BUCKET 50 10 1h FIXED 50 1h",
    ] {
        let _: () = ask(&mut con, &format!("RL.POLICY SET {policy}"));
    }
    let mut random = Random(7);
    for costs in [30..41, 0..4, 0..4, 0..4, 0..4, 0..4, 0..4, 0..4] {
        for from in (0..keys).step_by(100) {
            send(from, 100, costs.clone(), &mut random, &mut con);
        }
    }

    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut samples = Vec::new();
    scope(|scope| {
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let _ends = Ends(&stop);
        for seed in 1..=2 {
            let (stop, calls, send) = (&stop, &calls, &send);
            scope.spawn(move || {
                let (mut con, mut random) = (primary.connect().unwrap(), Random(seed));
                let begin = Instant::now();
                while !stop.load(SeqCst) {
                    let longest = MAX_LOAD + Duration::from_secs(seconds);
                    assert!(begin.elapsed() < longest, "the test has not ended");
                    let next = Instant::now() + pause;
                    calls.fetch_add(send(u64::MAX, 100, 0..4, &mut random, &mut con), SeqCst);
                    sleep(next.saturating_duration_since(Instant::now()));
                }
            });
        }
        let begin = Instant::now();
        while begin.elapsed().as_secs() < seconds {
            let latency = latency(primary);
            let sample = Sample {
                second: begin.elapsed().as_secs(),
                memory: [primary, replica].map(dataset),
                latency,
                calls: calls.load(SeqCst),
            };
            println!(
                "{:>4} s: {} calls, dataset {} and {} bytes, {:?} µs",
                sample.second, sample.calls, sample.memory[0], sample.memory[1], sample.latency
            );
            samples.push(sample);
            sleep(Duration::from_secs((seconds / 40).max(1)));
        }
    });
    primary.assert_same_as(replica);

    // Memory is flat if the last third does not exceed the middle one. Logs and leases still grow in the first.
    let third = samples.len() / 3;
    assert!(third > 0, "too short to compare");
    let median = |part: &[Sample], of: &dyn Fn(&Sample) -> u64| {
        let mut all: Vec<u64> = part.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2] as f64
    };
    let (middle, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let change = |of: &dyn Fn(&Sample) -> u64| median(last, of) / median(middle, of);
    let (here, there) = (change(&|s| s.memory[0]), change(&|s| s.memory[1]));
    let (typical, slowest) = (change(&|s| s.latency.median), change(&|s| s.latency.p99));
    let beside_ping = change(&|s| 1000 * s.latency.median / s.latency.ping);
    println!(
        "measured: soak of {seconds} s, {keys} keys, {} calls, replica and AOF on: dataset ×{here:.3} and ×{there:.3}, \
         latency ×{typical:.2} (median, {} µs; beside a PING's ×{beside_ping:.2}) and ×{slowest:.2} (p99, {} µs), digests \
         equal, no errors",
        calls.load(SeqCst),
        median(last, &|s| s.latency.median),
        median(last, &|s| s.latency.p99),
    );
    assert!(here < 1.02 && there < 1.02, "memory grows");
    assert!(beside_ping < 1.5, "latency grows");
}
