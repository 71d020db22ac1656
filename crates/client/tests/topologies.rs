//! Clusters and Sentinels.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::time::Duration;

use rl_client::{Builder, Error, FailureMode, HOUR, Limit, Source, tagged};
use support::{CALM, Server, eventually, redis_cli};

struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    async fn start() -> Self {
        let config = [
            "cluster-enabled",
            "yes",
            "cluster-node-timeout",
            "2000",
            // One shard's failure is not the others'.
            "cluster-require-full-coverage",
            "no",
        ];
        let nodes: Vec<Server> = (0..3).map(|_| Server::with(&config)).collect();
        let addresses: Vec<String> = nodes
            .iter()
            .map(|node| format!("127.0.0.1:{}", node.port))
            .collect();
        let mut args = vec!["--cluster", "create", "--cluster-yes"];
        args.splice(2..2, addresses.iter().map(String::as_str));
        let output = redis_cli(&args);
        assert!(output.contains("All 16384 slots covered"), "{output}");
        let cluster = Self { nodes };
        eventually("every node sees the cluster", || {
            let ok = |node: &Server| {
                node.run::<String>("CLUSTER", &["INFO"])
                    .contains("cluster_state:ok")
            };
            cluster.nodes.iter().all(ok)
        })
        .await;
        cluster
    }

    fn limiter(&self) -> Builder {
        Builder::cluster(self.nodes.iter().map(Server::url)).connect_timeout(CALM)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster() {
    let mut cluster = Cluster::start().await;
    let limiter = cluster.limiter().timeout(CALM).build().await.unwrap();
    let limit = || Limit::slide(10, HOUR);

    // Keys everywhere.
    for n in 0..50 {
        let decision = limiter.check(format!("k{n}"), limit(), 1).await.unwrap();
        assert_eq!((decision.source, decision.remaining), (Source::Redis, 9));
    }
    let spread = cluster
        .nodes
        .iter()
        .filter(|node| node.run::<i64>("DBSIZE", &[]) > 0);
    assert_eq!(spread.count(), 3);

    // Together only in one slot; the error says what to do.
    let apart = [("ip:1", limit(), 1), ("user:42", limit(), 1)];
    let error = limiter.check_all(apart).await.unwrap_err();
    assert!(matches!(error, Error::CrossSlot { index: 1 }));
    assert!(
        error.to_string().contains("hash tag") && error.to_string().contains("{u42}:search"),
        "{error}"
    );
    let together = [
        (tagged("u42", "ip"), limit(), 1),
        (tagged("u42", "user"), limit(), 1),
    ];
    assert!(limiter.check_all(together).await.unwrap().allowed);

    // Budgets are scripts, which must find their shard too.
    let budgeted = limiter.budgeted();
    for n in 0..60 {
        let key = format!("hot{}", n % 3);
        assert!(
            budgeted
                .check(key, Limit::slide(10_000, HOUR), 1)
                .await
                .unwrap()
                .allowed
        );
    }

    // One shard dies: its keys are decided by the failure mode, the others by their shards.
    let brisk = cluster
        .limiter()
        .timeout(Duration::from_millis(100))
        .breaker_failures(2)
        .on_failure(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    cluster.nodes[1].kill();
    let mut sources = std::collections::HashMap::new();
    for n in 0..100 {
        let key = format!("after{n}");
        let decision = brisk.check(key, limit(), 1).await.unwrap();
        *sources.entry(decision.source).or_insert(0) += 1;
    }
    assert!(
        sources[&Source::Redis] >= 20 && sources[&Source::FailClosed] >= 10,
        "{sources:?}"
    );
    cluster.nodes[1].start_again();
    eventually("every part is back", || brisk.health().ready).await;
    let mut redis = 0;
    for n in 0..100 {
        let decision = brisk.check(format!("later{n}"), limit(), 1).await.unwrap();
        redis += u64::from(decision.source == Source::Redis);
    }
    assert!(redis >= 95, "{redis} of 100 by the shards");
}

fn holds(node: &Server, key: &str) -> bool {
    node.try_run::<i64>("TTL", &[key]).is_ok()
}

/// A node that goes silent keeps its connections open: nothing tells the client that it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_of_a_cluster_is_given_up_for_its_replica() {
    let cluster = Cluster::start().await;
    let silent = &cluster.nodes[0];
    let replica = Server::with(&[
        "cluster-enabled",
        "yes",
        "cluster-node-timeout",
        "2000",
        "repl-diskless-sync-delay",
        "0",
    ]);
    let id: String = silent.run("CLUSTER", &["MYID"]);
    let port = silent.port.to_string();
    let _: () = replica.run("CLUSTER", &["MEET", "127.0.0.1", &port]);
    eventually("they have met", || {
        let followed = replica.try_run::<()>("CLUSTER", &["REPLICATE", &id]);
        followed.is_ok()
    })
    .await;
    eventually("all know the replica", || {
        let mut nodes = cluster.nodes.iter().chain([&replica]);
        nodes.all(|node| {
            let known: String = node.run("CLUSTER", &["NODES"]);
            let mut lines = known.lines();
            lines.any(|line| line.contains("slave ") && line.contains(&id))
        })
    })
    .await;
    let limiter = cluster
        .limiter()
        .connect_timeout(Duration::from_millis(500))
        .timeout(Duration::from_millis(200))
        .breaker_pauses(Duration::from_millis(20), Duration::from_millis(200))
        .on_failure(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let limit = || Limit::slide(10, HOUR);
    let mut keys = (0..).map(|n| format!("k{n}"));
    let key = keys.find(|key| holds(silent, key)).unwrap();
    assert!(limiter.check(&key, limit(), 4).await.unwrap().allowed);
    eventually("the replica has it too", || {
        replica
            .run::<String>("INFO", &["keyspace"])
            .contains("keys=1")
    })
    .await;

    silent.pause();
    while limiter.health().ready {
        let during = limiter.check(&key, limit(), 1).await.unwrap();
        assert_eq!(during.source, Source::FailClosed);
    }
    // Which concerns nobody else.
    let keys = (0..).map(|n| format!("e{n}"));
    let elsewhere =
        keys.filter(|key| holds(&cluster.nodes[1], key) || holds(&cluster.nodes[2], key));
    let elsewhere: Vec<String> = elsewhere.take(20).collect();
    let (mut served, mut calls) = (0, 0);
    while !limiter.health().ready {
        for key in &elsewhere {
            let decision = limiter.check(key, Limit::slide(1 << 40, HOUR), 1).await;
            served += u64::from(decision.unwrap().source == Source::Redis);
            calls += 1;
        }
        let down = limiter.health().parts_down;
        assert!(down <= 22, "a third of 64 parts, at most: {down}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(served * 100 >= calls * 95, "{served} of {calls}");
    let after = limiter.check(&key, limit(), 1).await.unwrap();
    assert_eq!(
        (after.source, after.remaining),
        (Source::Redis, 5),
        "usage came along"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_sentinel() {
    let mut primary = Server::start();
    let replica = Server::with(&["repl-diskless-sync-delay", "0"]);
    let port = primary.port.to_string();
    let _: () = replica.run("REPLICAOF", &["127.0.0.1", &port]);
    eventually("the replica is in sync", || {
        replica
            .run::<String>("INFO", &["replication"])
            .contains("master_link_status:up")
    })
    .await;
    let sentinel = Sentinel::start(primary.port);
    eventually("the sentinel knows the replica", || {
        redis_cli(&[
            "-p",
            &sentinel.port.to_string(),
            "SENTINEL",
            "REPLICAS",
            "main",
        ])
        .contains(&replica.port.to_string())
    })
    .await;

    let url = format!("redis://127.0.0.1:{}/", sentinel.port);
    let limiter = Builder::sentinel([url], "main")
        .timeout(Duration::from_millis(200))
        .breaker_pauses(Duration::from_millis(50), Duration::from_millis(500))
        .on_failure(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let limit = || Limit::slide(10, HOUR);
    assert!(limiter.check("k", limit(), 4).await.unwrap().allowed);
    let sync: i64 = primary.run("WAIT", &["1", "5000"]);
    assert_eq!(sync, 1);

    primary.kill();
    let killed = std::time::Instant::now();
    let during = limiter.check("k", limit(), 1).await.unwrap();
    assert_eq!(during.source, Source::FailClosed);
    eventually("the replica takes over", || limiter.health().ready).await;
    println!("failed over after {:?}", killed.elapsed());
    let after = limiter.check("k", limit(), 1).await.unwrap();
    assert_eq!(
        (after.source, after.remaining),
        (Source::Redis, 5),
        "usage came along"
    );
}

/// A Sentinel of its own, with a file that it rewrites as it learns.
struct Sentinel {
    child: std::process::Child,
    port: u16,
    dir: std::path::PathBuf,
}

impl Sentinel {
    fn start(primary: u16) -> Self {
        for _ in 0..5 {
            let port = support::free_port();
            let dir = std::env::temp_dir()
                .join(format!("rl-client-sentinel-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            let file = dir.join("sentinel.conf");
            let config = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {primary} 1\n\
                 sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n",
                dir.display()
            );
            std::fs::write(&file, config).unwrap();
            let server = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into());
            let child = std::process::Command::new(server)
                .arg(&file)
                .arg("--sentinel")
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let sentinel = Self { child, port, dir };
            for _ in 0..400 {
                let port = port.to_string();
                if redis_cli(&["-p", &port, "SENTINEL", "CKQUORUM", "main"]).starts_with("OK") {
                    return sentinel;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        panic!("the sentinel does not come up");
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
