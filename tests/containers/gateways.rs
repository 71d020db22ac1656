//! A primary that nobody reaches any more: gateways do as their failure modes say until a replica takes over, and what
//! they admitted alone is charged there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rl_client::{Builder, Decision, FailureMode, Limit, Limiter, Source};
use rstest::rstest;
use tokio::task::JoinSet;

use crate::patience::eventually;
use crate::support::{Five, ask};
use crate::topology::{Kind, Topology};

const LIMIT: u64 = 1_000_000;
const SHARE_UNITS: u64 = 20;
const DAY: Duration = Duration::from_secs(86_400);

/// What a caller was told, and by whom.
#[derive(Default)]
struct Gateway {
    key: String,
    told: Mutex<HashMap<Source, Told>>,
    stop: AtomicBool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Told {
    allowed: u64,
    denied: u64,
}

impl Gateway {
    async fn work(&self, limiter: Limiter) {
        while !self.stop.load(SeqCst) {
            let limit = Limit::slide(LIMIT, DAY);
            let decision = limiter.check(&self.key, limit, 1).await.unwrap();
            self.note(&decision);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn note(&self, decision: &Decision) {
        let mut told = self.told.lock().unwrap();
        let told = told.entry(decision.source).or_default();
        match decision.allowed {
            true => told.allowed += 1,
            false => told.denied += 1,
        }
    }

    fn by(&self, source: Source) -> Told {
        let told = self.told.lock().unwrap();
        told.get(&source).copied().unwrap_or_default()
    }

    fn is_served(&self) -> bool {
        let before = self.by(Source::Redis).allowed;
        std::thread::sleep(Duration::from_millis(200));
        self.by(Source::Redis).allowed > before
    }
}

fn served(gateways: &[Arc<Gateway>]) -> Vec<u64> {
    let each = gateways.iter();
    each.map(|gateway| gateway.by(Source::Redis).allowed)
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
        .breaker_pauses(Duration::from_millis(20), Duration::from_millis(200))
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
        let (gateway, limiter) = (Arc::clone(gateway), limiter.on_failure(mode));
        tasks.spawn(async move { gateway.work(limiter).await });
    }
    let all_served = || gateways.iter().all(|gateway| gateway.is_served());
    eventually("all are served", all_served);

    // What the replica certainly has.
    let replicated = served(&gateways);
    let mut con = old.connect().unwrap();
    let _: Five = ask(
        &mut con,
        &format!("RL.SLIDE {} 1 1d", Topology::keys("mark", 1)[0]),
    );
    assert_eq!(ask::<u64>(&mut con, "WAIT 1 10000"), 1);

    let locally = || gateways[2].by(Source::FailLocal);
    let before = locally().allowed;
    old.cut();
    eventually("each falls back", || {
        gateways.iter().zip(modes).all(|(gateway, (_, source))| {
            let told = gateway.by(source);
            told.allowed + told.denied > 2 * SHARE_UNITS
        })
    });
    let unsure: Vec<u64> = (served(&gateways).iter().zip(&replicated))
        .map(|(told, sure)| told - sure)
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
        let (key, server, alone) = (&gateway.key, gateway.by(Source::Redis), gateway.by(source));
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
