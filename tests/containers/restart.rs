//! All nodes at once: counts as of the last sync, expiries to the millisecond.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rstest::rstest;

use crate::callers::Primary;
use crate::load::{Ends, Tally};
use crate::network::{Network, Node};
use rl_testkit::Reply;

/// Keys that nothing touches while the servers restart, and when they expire.
fn quiet(primary: &Node) -> Vec<(String, i64)> {
    let names = (0..50).map(|n| format!("quiet:{n}"));
    let each = names.map(|key| {
        let n = key.len() as u64 * 7;
        let _: Reply = primary.run(&format!("RL.SLIDE {key} 100 {n}h"));
        let _: Reply = primary.run(&format!("RL.BUCKET {key}:b 100 {n} 1h 9"));
        [key.clone(), format!("{key}:b")]
    });
    each.flatten()
        .map(|key| (key.clone(), primary.run(&format!("PEXPIRETIME {key}"))))
        .collect()
}

fn assert_expiries(node: &Node, expected: &[(String, i64)]) {
    for (key, at) in expected {
        assert_eq!(node.run::<i64>(&format!("PEXPIRETIME {key}")), *at, "{key}");
    }
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn after_a_power_cut_the_aof_restores_counts_as_of_the_last_sync() {
    let network = Network::new();
    let aof = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "everysec",
        "--save",
        "",
    ];
    let nodes = [network.server(&aof), network.server(&aof)];
    let [primary, replica] = &nodes;
    replica.follow(primary);
    let expiries = quiet(primary);
    let tally = Tally::new((0..20).map(|n| format!("k:{n}")), 1_000_000);
    let synced = scope(|scope| {
        let _ends = Ends(&[&tally]);
        for n in 0..3 {
            let tally = &tally;
            scope.spawn(move || tally.work(Primary::new(|| Some(primary)), n));
        }
        sleep(Duration::from_secs(1));
        // A second until the sync, which may hold up the next write by two.
        let synced = tally.snapshot();
        sleep(Duration::from_secs(3));
        for node in &nodes {
            node.kill();
        }
        tally.hold();
        synced
    });
    let begin = Instant::now();
    for node in &nodes {
        node.start();
    }
    let took = begin.elapsed();
    let mut lost = 0;
    for (n, key) in tally.keys.iter().enumerate() {
        let used = primary.used(key, tally.limit);
        let acknowledged = tally.allowed(n);
        assert!(
            used >= synced[n] && used <= acknowledged + tally.unanswered(n),
            "{key}: {used}, acknowledged {acknowledged}"
        );
        lost += acknowledged.saturating_sub(used);
    }
    println!(
        "measured: power cut with AOF everysec: {lost} of {} acknowledged were lost; both nodes back after {:.1} s",
        tally.total(),
        took.as_secs_f64()
    );
    assert_expiries(primary, &expiries);
    replica.follow(primary);
    primary.assert_same_as(replica);
    assert_expiries(replica, &expiries);
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn after_an_orderly_restart_the_rdb_restores_everything_and_after_a_power_cut_the_last_save() {
    let network = Network::new();
    let rdb = ["--save", "3600 1000000"];
    let nodes = [network.server(&rdb), network.server(&rdb)];
    let [primary, replica] = &nodes;
    replica.follow(primary);
    let expiries = quiet(primary);
    for n in 0..200 {
        let _: Reply = primary.run(&format!("RL.SLIDE k:{} 1000 1d", n % 4));
    }
    for node in &nodes {
        node.stop();
    }
    for node in &nodes {
        node.start();
    }
    assert_expiries(primary, &expiries);
    assert_eq!(primary.used("k:0", 1000), 50, "an orderly stop saves");

    let _: String = primary.run("SAVE");
    let _: Reply = primary.run("RL.SLIDE k:0 1000 1d 7");
    for node in &nodes {
        node.kill();
    }
    for node in &nodes {
        node.start();
    }
    assert_eq!(primary.used("k:0", 1000), 50, "as of the last save");
    assert_expiries(primary, &expiries);
    replica.follow(primary);
    primary.assert_same_as(replica);
    println!(
        "measured: restart from RDB: all counts as saved, {} expiries right to the millisecond",
        expiries.len()
    );
}
