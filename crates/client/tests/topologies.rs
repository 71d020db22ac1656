//! Clusters and Sentinels.

use std::time::Duration;

use rl_client::{Builder, Error, FailureMode, HOUR, Limit, Source, tagged_key};
use rl_testkit::{Cluster, PATIENCE, Sentinel, Server, eventually_async};

use crate::support::CALM;

fn limiter_of(cluster: &Cluster) -> Builder {
    Builder::cluster(cluster.nodes.iter().map(Server::url)).connect_timeout(CALM)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_routes_every_key_and_survives_the_loss_of_a_shard() {
    let mut cluster = Cluster::start();
    let limiter = limiter_of(&cluster).timeout(CALM).build().await.unwrap();
    let limit = || Limit::slide(10, HOUR);

    // Keys on every shard.
    for n in 0..50 {
        let decision = limiter.check(format!("k{n}"), limit(), 1).await.unwrap();
        assert_eq!((decision.source, decision.remaining), (Source::Server, 9));
    }
    let spread = cluster
        .nodes
        .iter()
        .filter(|node| node.run::<i64>("DBSIZE", &[]) > 0);
    assert_eq!(spread.count(), 3);

    // Limits can be checked together only in one slot; the error says what to do.
    let apart = [("ip:1", limit(), 1), ("user:42", limit(), 1)];
    let error = limiter.check_all(apart).await.unwrap_err();
    assert!(matches!(error, Error::CrossSlot { index: 1 }));
    assert!(
        error.to_string().contains("hash tag") && error.to_string().contains("{u42}:search"),
        "{error}"
    );
    let together = [
        (tagged_key("u42", "ip"), limit(), 1),
        (tagged_key("u42", "user"), limit(), 1),
    ];
    assert!(limiter.check_all(together).await.unwrap().allowed);

    // Budgets use scripts, which must reach the right shard too.
    let budgeted = limiter.with_budgets();
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

    // One shard is killed: the failure mode decides its keys, and the other shards decide theirs.
    let brisk = limiter_of(&cluster)
        .timeout(Duration::from_millis(500))
        .breaker_failures(2)
        .failure_mode(FailureMode::Closed)
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
        sources[&Source::Server] >= 20 && sources[&Source::FailClosed] >= 10,
        "{sources:?}"
    );
    cluster.nodes[1].start_again_on_same_port();
    eventually_async("every part is back", || brisk.health().ready).await;
    let mut redis = 0;
    for n in 0..100 {
        let decision = brisk.check(format!("later{n}"), limit(), 1).await.unwrap();
        redis += u64::from(decision.source == Source::Server);
    }
    assert!(redis >= 95, "{redis} of 100 by the shards");
}

fn serves(node: &Server, key: &str) -> bool {
    node.try_run::<i64>("TTL", &[key]).is_ok()
}

/// A node that goes silent keeps its connections open, so nothing tells the client that it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_of_a_cluster_is_replaced_by_its_replica() {
    let cluster = Cluster::start();
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
    let port = silent.port().to_string();
    let _: () = replica.run("CLUSTER", &["MEET", "127.0.0.1", &port]);
    eventually_async("they have met", || {
        let followed = replica.try_run::<()>("CLUSTER", &["REPLICATE", &id]);
        followed.is_ok()
    })
    .await;
    eventually_async("all know the replica", || {
        let mut nodes = cluster.nodes.iter().chain([&replica]);
        nodes.all(|node| {
            let known: String = node.run("CLUSTER", &["NODES"]);
            let mut lines = known.lines();
            lines.any(|line| line.contains("slave ") && line.contains(&id))
        })
    })
    .await;
    let limiter = limiter_of(&cluster)
        .connect_timeout(Duration::from_millis(500))
        .timeout(Duration::from_millis(500))
        .breaker_backoff(Duration::from_millis(20), Duration::from_millis(200))
        .failure_mode(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let limit = || Limit::slide(10, HOUR);
    let mut keys = (0..).map(|n| format!("k{n}"));
    let key = keys.find(|key| serves(silent, key)).unwrap();
    assert!(limiter.check(&key, limit(), 4).await.unwrap().allowed);
    eventually_async("the replica has it too", || {
        replica
            .run::<String>("INFO", &["keyspace"])
            .contains("keys=1")
    })
    .await;

    silent.pause();
    let start = std::time::Instant::now();
    while limiter.health().ready {
        assert!(start.elapsed() < PATIENCE, "the server counts as ready");
        let during = limiter.check(&key, limit(), 1).await.unwrap();
        assert_eq!(during.source, Source::FailClosed);
    }
    // The other shards are not affected.
    let keys = (0..).map(|n| format!("e{n}"));
    let elsewhere =
        keys.filter(|key| serves(&cluster.nodes[1], key) || serves(&cluster.nodes[2], key));
    let elsewhere: Vec<String> = elsewhere.take(20).collect();
    let (mut served, mut calls) = (0, 0);
    let start = std::time::Instant::now();
    while !limiter.health().ready {
        assert!(
            start.elapsed() < PATIENCE,
            "the server does not count as ready"
        );
        for key in &elsewhere {
            let decision = limiter.check(key, Limit::slide(1 << 40, HOUR), 1).await;
            served += u64::from(decision.unwrap().source == Source::Server);
            calls += 1;
        }
        let down = limiter.health().slot_groups_down;
        assert!(down <= 22, "a third of 64 parts, at most: {down}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(served * 100 >= calls * 95, "{served} of {calls}");
    let after = limiter.check(&key, limit(), 1).await.unwrap();
    assert_eq!(
        (after.source, after.remaining),
        (Source::Server, 5),
        "usage came along"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_by_sentinel_keeps_usage() {
    let (mut primary, replica) = (Server::start(), Server::start());
    replica.follow(&primary);
    let sentinel = Sentinel::start(&primary, &replica);

    let limiter = Builder::sentinel([sentinel.url()], "main")
        .timeout(Duration::from_millis(500))
        .breaker_backoff(Duration::from_millis(50), Duration::from_millis(500))
        .failure_mode(FailureMode::Closed)
        .build()
        .await
        .unwrap();
    let limit = || Limit::slide(10, HOUR);
    assert!(limiter.check("k", limit(), 4).await.unwrap().allowed);
    primary.wait_for(&replica);

    primary.kill();
    let killed = std::time::Instant::now();
    let during = limiter.check("k", limit(), 1).await.unwrap();
    assert_eq!(during.source, Source::FailClosed);
    eventually_async("the replica takes over", || limiter.health().ready).await;
    println!("failed over after {:?}", killed.elapsed());
    let after = limiter.check("k", limit(), 1).await.unwrap();
    assert_eq!(
        (after.source, after.remaining),
        (Source::Server, 5),
        "usage came along"
    );
}
