//! A rolling upgrade, primary and replica of different versions either way, and back.

use std::thread::{scope, sleep};
use std::time::Duration;

use redis::Value;
use rstest::rstest;

use crate::callers::Primary;
use crate::docker::{image, old_image};
use crate::load::{Ends, Tally};
use crate::network::{Network, Node, Setup};
use rl_testkit::{Reply, eventually};

/// A key of every kind, by its limit.
const KINDS: [&str; 7] = [
    "SLIDE 10 1d 3",
    "SLIDE 10 1d 3 PRECISION 6",
    "BUCKET 10 1 1d 3",
    "FIXED 10 3650d 3",
    "EXACT 10 1d 3",
    "LEAK 10 1 1d 3",
    "LEASE 10 1d alice 1",
];

/// A one-limit command, which both versions write alike.
fn call(limit: &str) -> String {
    let key = limit.replace(' ', ":");
    format!("RL.{}", limit.replacen(' ', &format!(" {key} "), 1))
}

/// Hands over in order: nothing that was acknowledged is lost.
fn hand_over(from: &Node, to: &Node) {
    eventually("the other has taken over", || {
        // Given up after its time: once more.
        if from.is_primary() && from.info("replication", "master_failover_state") == "no-failover" {
            let _: () = from.run(&format!("FAILOVER TO {} 6379 TIMEOUT 10000", to.address));
        }
        to.is_primary() && !from.is_primary()
    });
    from.wait_in_sync();
}

#[rstest]
#[case::upgrade(old_image(), image())]
#[case::rollback(image(), old_image())]
#[ignore = "needs Docker: make test-containers"]
fn a_rolling_change_of_version_loses_nothing(#[case] from: String, #[case] to: String) {
    let network = Network::new();
    let server = |image: &str| {
        network.start(Setup {
            image: Some(image),
            words: &[],
            ..Setup::default()
        })
    };
    let nodes = [server(&from), server(&from), server(&to), server(&to)];
    let [a, b, c, d] = &nodes;
    b.follow(a);
    for limit in KINDS {
        let _: Value = a.run(&call(limit));
    }
    let left = |node: &Node| KINDS.map(|limit| node.run::<Reply>(&(call(limit) + " PEEK")).2);
    let before = left(a);
    let tally = Tally::new((0..20).map(|n| format!("k:{n}")), 1_000_000);
    let find = || {
        nodes[..3]
            .iter()
            .find(|node| node.is_primary() && node.info("replication", "connected_slaves") != "0")
    };
    scope(|scope| {
        let _ends = Ends(&[&tally]);
        for n in 0..2 {
            let (tally, find) = (&tally, &find);
            scope.spawn(move || tally.work(Primary::new(find), n));
        }
        let while_loaded = |primary: &Node, replica: &Node| {
            let before = tally.total();
            sleep(Duration::from_millis(700));
            eventually("the load goes on", || tally.total() > before);
            tally.hold();
            primary.assert_same_as(replica);
            tally.go_on();
        };
        while_loaded(a, b);
        // The replica is replaced, then the roles change, then the other is replaced.
        b.kill();
        c.follow(a);
        while_loaded(a, c);
        hand_over(a, c);
        while_loaded(c, a);
        a.kill();
        d.follow(c);
        while_loaded(c, d);
    });
    assert_eq!(left(c), before, "a key of every kind is as it was");
    for (n, key) in tally.keys.iter().enumerate() {
        let reply: Reply = c.run(&format!("RL.SLIDE {key} {} 1d 0", tally.limit));
        let (used, acknowledged) = (tally.limit - reply.2 as u64, tally.allowed(n));
        assert!(
            used >= acknowledged && used <= acknowledged + tally.unanswered(n),
            "{key}: {used}, acknowledged {acknowledged}"
        );
    }
    println!(
        "measured: {from} to {to} while running: {} acknowledged, none lost; errors meanwhile {:?}",
        tally.total(),
        tally.errors()
    );
}
