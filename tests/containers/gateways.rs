//! A primary that nobody reaches any more: gateways do as their failure modes say until a replica takes over, and what
//! they admitted alone is charged there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rl_client::{Builder, Decision, FailureMode, Limit, Limiter, Source};
use rstest::rstest;
use tokio::task::JoinSet;

use crate::load::MAX_LOAD;
use crate::topology::{Kind, Topology};
use rl_testkit::{Reply, ask, eventually};

const LIMIT: u64 = 1_000_000;
const SHARE_UNITS: u64 = 20;
const DAY: Duration = Duration::from_secs(86_400);

/// The decisions that a caller got, by their source.
#[derive(Default)]
struct Gateway {
    key: String,
    acknowledged: Mutex<HashMap<Source, Counts>>,
    stop: AtomicBool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Counts {
    allowed: u64,
    denied: u64,
}

impl Gateway {
    async fn work(&self, limiter: Limiter) {
        let begin = Instant::now();
        while !self.stop.load(SeqCst) {
            assert!(begin.elapsed() < MAX_LOAD, "the test has not ended");
            let limit = Limit::slide(LIMIT, DAY);
            let decision = limiter.check(&self.key, limit, 1).await.unwrap();
            self.note(&decision);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn note(&self, decision: &Decision) {
        let mut acknowledged = self.acknowledged.lock().unwrap();
        let acknowledged = acknowledged.entry(decision.source).or_default();
        match decision.allowed {
            true => acknowledged.allowed += 1,
            false => acknowledged.denied += 1,
        }
    }

    fn by(&self, source: Source) -> Counts {
        let acknowledged = self.acknowledged.lock().unwrap();
        acknowledged.get(&source).copied().unwrap_or_default()
    }

    fn is_served(&self) -> bool {
        let before = self.by(Source::Server).allowed;
        std::thread::sleep(Duration::from_millis(200));
        self.by(Source::Server).allowed > before
    }
}

fn served(gateways: &[Arc<Gateway>]) -> Vec<u64> {
    let each = gateways.iter();
    each.map(|gateway| gateway.by(Source::Server).allowed)
        .collect()
}

#[rstest]
#[case::sentinel(Kind::Sentinel)]
#[case::cluster(Kind::Cluster)]
#[ignore = "needs Docker: make test-containers"]
#[tokio::test(flavor = "multi_thread")]
async fn failure_modes_hold_while_the_primary_is_cut_off_and_afterwards_there_is_one_truth(
    #[case] kind: Kind,
) {
    let topology = Topology::new(kind, &[]);
    let [old, new] = &topology.nodes;
    // By the addresses that are cut, not by published ports.
    let seeds = topology.seeds();
    let builder = match kind {
        Kind::Sentinel => Builder::sentinel(seeds, "limits"),
        Kind::Cluster => Builder::cluster(seeds),
    };
    let limiter = builder
        .timeout(Duration::from_millis(200))
        .connect_timeout(Duration::from_secs(1))
        .breaker_backoff(Duration::from_millis(20), Duration::from_millis(200))
        .build()
        .await
        .unwrap();
    let share = SHARE_UNITS as f64 / LIMIT as f64;
    let modes = [
        (FailureMode::Open, Source::FailOpen),
        (FailureMode::Closed, Source::FailClosed),
        (FailureMode::Local { share }, Source::FailLocal),
    ];
    let keys = Topology::keys("gateway", modes.len());
    let gateways = keys.into_iter().map(|key| Gateway {
        key,
        ..Gateway::default()
    });
    let gateways: Vec<Arc<Gateway>> = gateways.map(Arc::new).collect();
    let mut tasks = JoinSet::new();
    for (gateway, (mode, _)) in gateways.iter().zip(modes) {
        let (gateway, limiter) = (Arc::clone(gateway), limiter.with_failure_mode(mode));
        tasks.spawn(async move { gateway.work(limiter).await });
    }
    let all_served = || gateways.iter().all(|gateway| gateway.is_served());
    eventually("all are served", all_served);

    // What the replica certainly has.
    let replicated = served(&gateways);
    let mut con = old.connect().unwrap();
    let _: Reply = ask(
        &mut con,
        &format!("RL.SLIDE {} 1 1d", Topology::keys("mark", 1)[0]),
    );
    assert_eq!(ask::<u64>(&mut con, "WAIT 1 10000"), 1);

    let locally = || gateways[2].by(Source::FailLocal);
    let before = locally().allowed;
    old.cut();
    eventually("each falls back", || {
        gateways.iter().zip(modes).all(|(gateway, (_, source))| {
            let acknowledged = gateway.by(source);
            acknowledged.allowed + acknowledged.denied > 2 * SHARE_UNITS
        })
    });
    let unsure: Vec<u64> = (served(&gateways).iter().zip(&replicated))
        .map(|(acknowledged, sure)| acknowledged - sure)
        .collect();
    topology.wait_for_promotion();
    let alone = locally().allowed - before;
    assert!(alone <= SHARE_UNITS && locally().denied > 0, "{alone}");
    eventually("all are served again", all_served);
    old.join();
    eventually("the old primary follows", || {
        !old.is_primary() && old.info("replication", "master_link_status") == "up"
    });
    for gateway in &gateways {
        gateway.stop.store(true, SeqCst);
    }
    tasks.join_all().await;

    for ((gateway, (mode, source)), unsure) in gateways.iter().zip(modes).zip(unsure) {
        let (key, server, alone) = (&gateway.key, gateway.by(Source::Server), gateway.by(source));
        eventually("what was admitted alone is charged", || {
            new.used(key, LIMIT) >= server.allowed - unsure + alone.allowed
        });
        let used = new.used(key, LIMIT);
        println!(
            "measured: {kind:?}, {mode:?}: alone {alone:?}; the servers admitted {} ({unsure} of them at the moment of the \
             cut), and count {used} in the end",
            server.allowed
        );
        match mode {
            FailureMode::Open => assert_eq!(alone.denied, 0),
            FailureMode::Closed => assert_eq!(alone.allowed, 0),
            _ => {}
        }
        // What the old primary counted without an answer is gone; one or the other at the new one may not have been answered.
        assert!(
            used <= server.allowed + alone.allowed + 20,
            "{key} counted twice"
        );
    }
    new.assert_same_as(old);
}
