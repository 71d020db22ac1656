//! The examples in docs/clients, each in its own language, on a cluster of three: `make test-clients`.

#![allow(clippy::unwrap_used)]

mod support;

use std::process::Command;

use rstest::rstest;
use support::{Server, eventually};

fn cluster() -> [Server; 3] {
    let nodes = [(); 3].map(|()| Server::with(&["cluster-enabled", "yes"]));
    for (n, node) in nodes.iter().enumerate() {
        let slots = n * 16384 / 3..(n + 1) * 16384 / 3;
        let mut add = redis::cmd("CLUSTER");
        add.arg("ADDSLOTS").arg(slots.collect::<Vec<_>>());
        add.exec(&mut node.connect()).unwrap();
        let port = node.port().to_string();
        let _: () = nodes[0].run("CLUSTER", &["MEET", "127.0.0.1", &port]);
    }
    for node in &nodes {
        eventually("the cluster is up", || {
            let info: String = node.run("CLUSTER", &["INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        });
    }
    nodes
}

/// A command that comes from `scripts/test-clients`, which installs what it needs.
#[rstest]
#[case::python("RL_CLIENT_PYTHON")]
#[case::node("RL_CLIENT_NODE")]
#[case::go("RL_CLIENT_GO")]
#[case::php("RL_CLIENT_PHP")]
#[case::c("RL_CLIENT_C")]
#[case::rust("RL_CLIENT_RUST")]
#[ignore = "needs other languages: make test-clients"]
fn the_example_counts_through_a_cluster(#[case] client: &str) {
    let command = std::env::var(client)
        .unwrap_or_else(|_| panic!("{client} is not set: run this by `make test-clients`"));
    let nodes = cluster();
    let address = format!("127.0.0.1:{}", nodes[0].port());
    // Users whose keys live on different nodes, so that every client has to find its way.
    for user in ["alice", "bob", "carol"] {
        let mut words = command.split(' ');
        let output = Command::new(words.next().unwrap())
            .args(words)
            .args([&address, user])
            .output()
            .unwrap();
        let (said, complaints) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert_eq!(
            said.trim(),
            "SLIDE allowed=1 limit=100 remaining=99\nBUCKET allowed=1 limit=200 remaining=195\nMULTI allowed=1 remaining=98,190",
            "{complaints}"
        );
    }
    let homes = nodes
        .iter()
        .filter(|node| node.run::<i64>("DBSIZE", &[]) > 0)
        .count();
    assert!(homes > 1, "the keys live on several nodes");
}
