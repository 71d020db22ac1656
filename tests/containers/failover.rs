//! A primary is killed: the promoted replica continues its limits. Only what the replica never received is allowed
//! again, and never what `WAIT 1` confirmed.

use std::thread::scope;
use std::time::Instant;

use rstest::rstest;

use crate::callers::Primary;
use crate::load::{Ends, Tally};

use crate::topology::{Kind, Topology};
use rl_testkit::eventually;

#[rstest]
#[case::sentinel(Kind::Sentinel)]
#[case::cluster(Kind::Cluster)]
#[ignore = "needs Docker: make test-containers"]
fn a_killed_primary_costs_no_more_than_was_not_replicated(
    #[case] kind: Kind,
    // A replica that was cut off just before has certainly not received everything.
    #[values(false, true)] behind: bool,
) {
    let topology = Topology::new(kind, &[]);
    let plain = Tally::new(Topology::keys("plain", 10), 2000);
    let safe = Tally::new(Topology::keys("safe", 5), 600).safe();
    let both = [&plain, &safe];
    let find = || topology.primary();
    let [lost, lost_safe] = scope(|scope| {
        let _ends = Ends(&both);
        for n in 0..2 {
            for tally in both {
                let find = &find;
                scope.spawn(move || tally.work(Primary::new(find), n));
            }
        }
        let acknowledged = |more: u64| {
            let enough = plain.total() + more;
            eventually("the load runs", || plain.total() >= enough);
        };
        acknowledged(2000);
        eventually("WAIT confirms calls", || safe.total() >= 100);
        if behind {
            topology.nodes[1].cut();
            acknowledged(1000);
        }
        let killed = Instant::now();
        topology.nodes[0].kill();
        for tally in both {
            tally.hold();
        }
        let acknowledged = both.map(Tally::snapshot);
        assert!(!plain.is_exhausted(), "killed in the midst of it");
        if behind {
            topology.nodes[1].join();
        }
        topology.wait_for_promotion();
        let took = killed.elapsed();

        let lost = [0, 1].map(|t| {
            let tally = both[t];
            let keys = tally.keys.iter().zip(&acknowledged[t]).enumerate();
            let each = keys.map(|(n, (key, &acknowledged))| {
                let used = topology.nodes[1].used(key, tally.limit);
                assert!(
                    used <= acknowledged + tally.unanswered(n),
                    "{key}: counted more than was called"
                );
                acknowledged.saturating_sub(used)
            });
            each.sum::<u64>()
        });
        println!(
            "measured: {kind:?}, behind {behind}: promoted {:.1} s after the kill",
            took.as_secs_f64()
        );
        safe.stop_confirming();
        for tally in both {
            tally.go_on();
        }
        eventually("every limit is used up", || {
            both.iter().all(|tally| tally.is_exhausted())
        });
        lost
    });

    let extra = both.map(|tally| {
        let keys = 0..tally.keys.len();
        keys.map(|n| tally.allowed(n).saturating_sub(tally.limit))
            .sum::<u64>()
    });
    println!(
        "measured: {kind:?}, behind {behind}: of {} acknowledged, {lost} were not replicated, {} extra admitted; \
         with WAIT 1: of {} acknowledged, {lost_safe} not replicated, {} extra",
        plain.total(),
        extra[0],
        safe.total(),
        extra[1],
    );
    assert!(
        extra[0] <= lost,
        "{} extra, {lost} not replicated",
        extra[0]
    );
    assert_eq!((lost_safe, extra[1]), (0, 0), "WAIT 1 loses nothing");
    assert!(!behind || lost > 0, "the replica was behind");
}
