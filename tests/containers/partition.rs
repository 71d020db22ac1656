//! A primary cut off from the rest, which clients still reach: it stops counting before long, the rest goes
//! on with another, and once healed there is one truth.

use std::thread::scope;
use std::time::Instant;

use rstest::rstest;

use crate::callers::Primary;
use crate::load::{Ends, Tally};

use crate::topology::{Kind, Topology};
use rl_testkit::eventually;

#[rstest]
// With sentinels, a primary refuses writes without a reachable replica only if it is configured to.
#[case::sentinel(Kind::Sentinel, &["--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"])]
#[case::cluster(Kind::Cluster, &[])]
#[ignore = "needs Docker: make test-containers"]
fn an_isolated_primary_stops_and_after_healing_there_is_one_truth(
    #[case] kind: Kind,
    #[case] options: &[&str],
) {
    let topology = Topology::new(kind, options);
    let [old, new] = &topology.nodes;
    // A gateway that sees the whole, and one that sees the isolated primary only.
    let outside = Tally::new(Topology::keys("outside", 10), 1_000_000);
    let inside = Tally::new(Topology::keys("inside", 10), 1_000_000);
    let find = || topology.primary();
    let stuck = || Some(old);
    scope(|scope| {
        let _ends = Ends(&[&outside, &inside]);
        scope.spawn(|| outside.work(Primary::new(find), 1));
        scope.spawn(|| inside.work(Primary::new(stuck), 2));
        eventually("both are served", || {
            inside.total() > 1000 && outside.total() > 1000
        });

        old.cut();
        let cut = Instant::now();
        let served = inside.total();
        eventually("the isolated primary refuses", || {
            let refusals = inside.errors();
            refusals.contains_key("NOREPLICAS") || refusals.contains_key("CLUSTERDOWN")
        });
        let refused = cut.elapsed();
        topology.wait_for_promotion();
        let promoted = cut.elapsed();
        let (went_on, so_far) = (outside.total(), inside.total());
        eventually("the limits go on at the new primary", || {
            outside.total() > went_on + 100
        });
        assert_eq!(
            inside.total(),
            so_far,
            "the isolated primary admits nothing more"
        );

        old.join();
        eventually("the old primary follows", || {
            !old.is_primary() && old.info("replication", "master_link_status") == "up"
        });
        let healed = cut.elapsed();
        println!(
            "measured: {kind:?}: isolated primary refused after {:.1} s and {} calls, replica promoted after {:.1} s, healed {:.1} s",
            refused.as_secs_f64(),
            so_far - served,
            promoted.as_secs_f64(),
            healed.as_secs_f64(),
        );
    });
    new.assert_same_as(old);

    for (place, tally) in [
        ("everywhere", &outside),
        ("at the isolated primary only", &inside),
    ] {
        let mut forgotten = 0;
        for (n, key) in tally.keys.iter().enumerate() {
            let used = new.used(key, tally.limit);
            assert!(
                used <= tally.allowed(n) + tally.unanswered(n),
                "{key} counted twice"
            );
            forgotten += tally.allowed(n).saturating_sub(used);
        }
        let refusals = tally.errors();
        println!(
            "measured: {kind:?}: calling {place}: {forgotten} of {} forgotten; refusals {refusals:?}",
            tally.total()
        );
        // A client's failure mode begins with these, and each comes at once.
        let known = [
            "NOREPLICAS",
            "CLUSTERDOWN",
            "MOVED",
            "READONLY",
            "connection",
            "MASTERDOWN",
            "LOADING",
        ];
        assert!(
            refusals.keys().all(|code| known.contains(&code.as_str())),
            "{refusals:?}"
        );
    }
}
