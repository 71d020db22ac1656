//! Active defragmentation: values of every kind lose their fragmentation as the server's own do. Needs a server that was
//! built with its own jemalloc, which those of Linux distributions are not.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::Connection;
use rl_testkit::{Deadline, Server, ask, command, error_text, try_ask};
use rstest::rstest;

/// Keys that are made, of which one in ten stays.
const KEYS: usize = 20_000;

/// What makes one key of each kind.
fn native(n: usize) -> Vec<String> {
    // A listpack, in one piece.
    (0..8)
        .map(|f| format!("HSET {n} field{f} value-{n}-{f}"))
        .collect()
}

fn overrides(n: usize) -> Vec<String> {
    let note = "x".repeat(n % 60 + 1);
    vec![
        format!("RL.OVERRIDE SET {n} p SLIDE 5 1h SLIDE 9 1d NOTE {note}"),
        format!("RL.OVERRIDE SET {n} other BLOCK NOTE {note}"),
    ]
}

fn several_limits(n: usize) -> Vec<String> {
    vec![format!("RL.CHECK {n} several"); 3]
}

fn leases(n: usize) -> Vec<String> {
    let lease = |f: usize| format!("RL.LEASE {n} 100 1h holder-{n}-{f}-{}", "x".repeat(f * 9));
    (0..6).map(lease).collect()
}

fn logs(n: usize) -> Vec<String> {
    vec![format!("RL.EXACT {n} 1000000 1h 3"); 30]
}

fn pipeline(con: &mut Connection, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    for some in lines.chunks(10_000) {
        let mut pipe = redis::pipe();
        for line in some {
            pipe.add_command(command(line)).ignore();
        }
        pipe.exec(con).unwrap();
    }
}

fn can_defragment(con: &mut Connection) -> bool {
    match try_ask::<()>(con, "CONFIG SET activedefrag yes") {
        Ok(()) => true,
        // A server that was built without it says so; any other refusal is a failure.
        Err(error) => {
            let error = error_text(&error);
            let known = "Active defragmentation cannot be enabled: it requires";
            assert!(error.contains(known), "{error}");
            rl_testkit::not_tested("this server cannot defragment");
            false
        }
    }
}

fn tuned() -> Server {
    Server::with(&[
        "active-defrag-ignore-bytes",
        "1",
        "active-defrag-threshold-lower",
        "1",
        "active-defrag-cycle-min",
        "60",
        "active-defrag-cycle-max",
        "80",
        "jemalloc-bg-thread",
        "no",
    ])
}

/// The ratio of fragmentation before and after, with values of one kind.
fn defragment(make: fn(usize) -> Vec<String>) -> (f64, f64) {
    let server = tuned();
    let mut con = server.connect();
    for line in [
        "RL.POLICY SET p SLIDE 10 1h",
        "RL.POLICY SET other SLIDE 10 1h",
        "RL.POLICY SET several SLIDE 900 1h PRECISION 30 EXACT 900 1h FIXED 900 3650d SLIDE 900 1m LEAK 900 1 1h",
    ] {
        ask::<()>(&mut con, line);
    }
    pipeline(&mut con, (0..KEYS).flat_map(make));
    // Overrides have a key of their own.
    let names: Vec<String> = ask(&mut con, "KEYS *");
    let gone = |name: &&String| {
        let number: String = name.chars().filter(char::is_ascii_digit).collect();
        number.parse::<usize>().unwrap() % 10 != 0
    };
    pipeline(
        &mut con,
        names.iter().filter(gone).map(|name| format!("DEL {name}")),
    );
    let ratio = || -> f64 {
        server
            .info("memory", "allocator_frag_ratio")
            .parse()
            .unwrap()
    };
    sleep(Duration::from_millis(300));
    let before = ratio();
    let digest = server.digest_all();
    ask::<()>(&mut con, "CONFIG SET activedefrag yes");
    // Until it no longer gets better.
    let mut least = before;
    let mut since = Instant::now();
    while since.elapsed() < Duration::from_secs(3) {
        sleep(Duration::from_millis(100));
        if ratio() < least - 0.005 {
            least = ratio();
            since = Instant::now();
        }
    }
    assert_eq!(server.digest_all(), digest, "no value has changed");
    // What was moved can be used and freed.
    pipeline(&mut con, (0..KEYS).step_by(10).flat_map(make));
    ask::<()>(&mut con, "FLUSHALL SYNC");
    (before, least)
}

#[rstest]
fn values_lose_their_fragmentation_as_the_servers_own_do() {
    if !can_defragment(&mut Server::start().connect()) {
        return;
    }
    let (before, after) = defragment(native);
    println!("hashes: {before} → {after}");
    assert!(before > 1.5 && after < before, "{before} → {after}");
    for (kind, make) in [
        ("overrides", overrides as fn(usize) -> Vec<String>),
        ("several limits", several_limits),
        ("leases", leases),
        ("logs", logs),
    ] {
        let (ours_before, ours_after) = defragment(make);
        println!("{kind}: {ours_before} → {ours_after}");
        assert!(
            ours_before > 1.5,
            "{kind}: {ours_before} is no fragmentation"
        );
        let left = (ours_after - 1.0) / (ours_before - 1.0);
        let natives_left = (after - 1.0) / (before - 1.0);
        assert!(
            left < natives_left + 0.25,
            "{kind}: {ours_before} → {ours_after}"
        );
    }
}

/// A log so long that the server moves it in several turns: it stays what it is, also if it changes in between.
#[rstest]
fn a_long_log_is_moved_in_turns() {
    let server = tuned();
    let mut con = server.connect();
    if !can_defragment(&mut con) {
        return;
    }
    ask::<()>(&mut con, "CONFIG SET activedefrag no");
    ask::<()>(&mut con, "CONFIG SET active-defrag-max-scan-fields 10");
    // Two logs that grow in turn, one of which goes.
    let units = 400_000;
    for _ in 0..20 {
        pipeline(
            &mut con,
            (0..units / 10).map(|n| {
                format!(
                    "RL.EXACT {} 1000000 1h",
                    if n % 2 == 0 { "kept" } else { "gone" }
                )
            }),
        );
    }
    ask::<i64>(&mut con, "DEL gone");
    let digest = server.digest("kept");
    ask::<()>(&mut con, "CONFIG SET activedefrag yes");
    let hits = || server.info_number("stats", "active_defrag_hits");
    let (start, deadline) = (Instant::now(), Deadline::start());
    while start.elapsed() < Duration::from_secs(5) || hits() == 0 {
        deadline.check("the log is moved");
        let reply: rl_testkit::Reply = ask(&mut con, "RL.EXACT kept 1000000 1h 0");
        assert_eq!(reply.2, 1_000_000 - units as i64);
        sleep(Duration::from_millis(20));
    }
    assert_eq!(server.digest("kept"), digest);
    let reply: rl_testkit::Reply = ask(&mut con, "RL.EXACT kept 1000000 1h 5");
    assert_eq!((reply.0, reply.2), (1, 1_000_000 - units as i64 - 5));
}

#[rstest]
fn no_server_warns_when_the_module_is_loaded() {
    let server = Server::start();
    let log = server.log().to_lowercase();
    assert!(!log.contains("defrag"), "{log}");
}
