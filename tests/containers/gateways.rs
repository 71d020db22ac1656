//! A primary that nobody reaches any more: gateways do as their failure modes say until a replica takes over, and what
//! they admitted alone is charged there.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use rl_client::{Builder, FailureMode, Limit, Limiter, Source};
use rstest::rstest;
use tokio::task::JoinHandle;

use crate::patience::eventually;
use crate::support::Five;
use crate::topology::{Kind, Topology};

const LIMIT: u64 = 1_000_000;
/// A hundred units.
const SHARE: f64 = 0.0001;
const DAY: Duration = Duration::from_secs(86_400);

/// A caller without pause, and what it was told by whom.
struct Gateway {
    key: String,
    told: Arc<Mutex<HashMap<Source, Told>>>,
    stop: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Told {
    allowed: u64,
    denied: u64,
}

impl Gateway {
    fn start(limiter: Limiter, key: String) -> Self {
        let (told, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn({
            let (told, stop, key) = (Arc::clone(&told), Arc::clone(&stop), key.clone());
            async move {
                let told: Arc<Mutex<HashMap<Source, Told>>> = told;
                while !stop.load(SeqCst) {
                    let limit = Limit::slide(LIMIT, DAY);
                    let decision = limiter.check(&key, limit, 1).await.unwrap();
                    let mut told = told.lock().unwrap();
                    let told = told.entry(decision.source).or_default();
                    *match decision.allowed {
                        true => &mut told.allowed,
                        false => &mut told.denied,
                    } += 1;
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        });
        Self {
            key,
            told,
            stop,
            task,
        }
    }

    fn by(&self, source: Source) -> Told {
        self.told
            .lock()
            .unwrap()
            .get(&source)
            .copied()
            .unwrap_or_default()
    }

    fn is_served(&self) -> bool {
        let before = self.by(Source::Redis).allowed;
        std::thread::sleep(Duration::from_millis(200));
        self.by(Source::Redis).allowed > before
    }
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
    let modes = [
        (FailureMode::Open, Source::FailOpen),
        (FailureMode::Closed, Source::FailClosed),
        (FailureMode::Local { share: SHARE }, Source::FailLocal),
    ];
    let keys = Topology::keys("gateway", modes.len());
    let gateways: Vec<Gateway> = modes
        .iter()
        .zip(keys)
        .map(|((mode, _), key)| Gateway::start(limiter.on_failure(*mode), key))
        .collect();
    eventually("all are served", || gateways.iter().all(Gateway::is_served));

    // What the replica certainly has.
    let replicated: Vec<u64> = gateways
        .iter()
        .map(|gateway| gateway.by(Source::Redis).allowed)
        .collect();
    let mut con = old.connect().unwrap();
    let _: Five = crate::support::ask(
        &mut con,
        &format!("RL.SLIDE {} 1 1d", Topology::keys("mark", 1)[0]),
    );
    assert_eq!(crate::support::ask::<u64>(&mut con, "WAIT 1 10000"), 1);

    old.cut();
    eventually("each falls back", || {
        gateways.iter().zip(modes).all(|(gateway, (_, source))| {
            let told = gateway.by(source);
            told.allowed + told.denied > 100
        })
    });
    topology.wait_for_promotion();
    eventually("all are served again", || {
        gateways.iter().all(Gateway::is_served)
    });
    old.join();
    eventually("the old primary follows", || {
        !old.is_primary() && old.info("replication", "master_link_status") == "up"
    });
    let mut ended = Vec::new();
    for gateway in gateways {
        gateway.stop.store(true, SeqCst);
        gateway.task.await.unwrap();
        ended.push((gateway.key, gateway.told.lock().unwrap().clone()));
    }

    for (((key, told), (mode, source)), replicated) in ended.iter().zip(modes).zip(replicated) {
        let by = |source| told.get(&source).copied().unwrap_or_default();
        let (server, alone) = (by(Source::Redis), by(source));
        eventually("what was admitted alone is charged", || {
            new.used(key, LIMIT) >= replicated + alone.allowed
        });
        let used = new.used(key, LIMIT);
        println!(
            "measured: {kind:?}, {mode:?}: alone {alone:?}; the server admitted {}, and counts {used} in the end",
            server.allowed
        );
        match mode {
            FailureMode::Open => assert_eq!(alone.denied, 0),
            FailureMode::Closed => assert_eq!(alone.allowed, 0),
            _ => assert!(alone.allowed <= 100 && alone.denied > 0),
        }
        // A call without an answer may have been counted all the same.
        assert!(
            used <= server.allowed + 2 * alone.allowed + alone.denied,
            "{key} counted twice"
        );
    }
    new.assert_same_as(old);
}
