//! Slots that move under load: no call is lost or counted twice.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::scope;
use std::time::Instant;

use redis::cmd;
use rstest::rstest;

use crate::callers::{Caller, Cluster, slot};
use crate::load::MAX_LOAD;
use crate::network::Network;
use crate::topology::join_cluster;
use rl_testkit::{Random, eventually};

const TAGS: usize = 300;
const LIMIT: u64 = 1_000_000;

/// Ends the load when the test does, even by a failure.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn resharding_under_load_loses_nothing_and_counts_nothing_twice() {
    let network = Network::new();
    let nodes = [(); 3].map(|()| network.server(&["--cluster-enabled", "yes"]));
    let [a, b, c] = &nodes;
    join_cluster(&[a, b, c]);
    // The last slots of a and those of c stay; the first of a move to b and back.
    let tags: Vec<String> = (0..TAGS).map(|n| format!("{{t{n}}}")).collect();
    let counts: Vec<[AtomicU64; 2]> = tags
        .iter()
        .map(|_| [AtomicU64::new(0), AtomicU64::new(0)])
        .collect();
    let stop = AtomicBool::new(false);

    let work = |seed: u64| -> BTreeMap<String, u64> {
        let (mut cluster, mut random) = (Cluster::new(&nodes), Random(seed));
        let begin = Instant::now();
        while !stop.load(SeqCst) {
            assert!(begin.elapsed() < MAX_LOAD, "the test has not ended");
            let n = random.below(TAGS as u64) as usize;
            let (first, second) = (format!("{}a", tags[n]), format!("{}b", tags[n]));
            let both = random.below(2) == 0;
            let mut call = cmd(if both { "RL.MULTI" } else { "RL.SLIDE" });
            if both {
                call.arg(&first).arg(format!("SLIDE {LIMIT} 1d"));
                call.arg(&second).arg(format!("BUCKET {LIMIT} 1 3650d"));
            } else {
                call.arg(&first).arg(LIMIT).arg("1d");
            }
            // Any other answer than a redirect, which the caller follows, ends the test.
            cluster.call(&first, &call).unwrap();
            counts[n][0].fetch_add(1, SeqCst);
            counts[n][1].fetch_add(u64::from(both), SeqCst);
        }
        cluster.redirects
    };
    let redirects = scope(|scope| {
        let ends = Ends(&stop);
        let workers: Vec<_> = (1..=3)
            .map(|seed| scope.spawn(move || work(seed)))
            .collect();
        let ids = [a, b].map(|node| node.run::<String>("CLUSTER MYID"));
        let keys_of_b = || b.run::<u64>("DBSIZE");
        eventually("every tag has been seen", || {
            counts.iter().all(|[_, both]| both.load(SeqCst) > 0)
        });
        let before = keys_of_b();
        for (from, to) in [(0, 1), (1, 0)] {
            let at = format!("{}:6379", a.address);
            let reshard = [
                "cli",
                "--cluster",
                "reshard",
                &at,
                "--cluster-from",
                &ids[from],
                "--cluster-to",
                &ids[to],
                "--cluster-slots",
                "500",
                "--cluster-yes",
            ];
            eventually("all agree on the slots", || {
                a.exec(&["cli", "--cluster", "check", &at]).is_ok()
            });
            a.exec(&reshard).unwrap();
            let moved = keys_of_b() != before;
            assert_eq!(moved, to == 1, "keys move with their slots, and back");
        }
        drop(ends);
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .collect::<Vec<_>>()
    });

    let mut reader = Cluster::new(&nodes);
    let mut total = 0;
    for (tag, counts) in tags.iter().zip(&counts) {
        for (n, spec) in [(0, "SLIDE 1000000 1d 0"), (1, "BUCKET 1000000 1 3650d 0")] {
            let key = format!("{tag}{}", ["a", "b"][n]);
            let mut peek = cmd("RL.PEEK");
            peek.arg(&key).arg(spec);
            let reply: rl_testkit::Reply =
                redis::from_redis_value(reader.call(&key, &peek).unwrap()).unwrap();
            let acknowledged = counts[n].load(SeqCst);
            assert_eq!(
                LIMIT - reply.2 as u64,
                acknowledged,
                "{key} in slot {}",
                slot(&key)
            );
            total += acknowledged;
        }
    }
    println!(
        "measured: resharding 2 × 500 slots: {total} units acknowledged and counted, none lost, none twice; redirects followed: {redirects:?}"
    );
}
