//! The examples in docs/clients, each in its own language, on a cluster of three: `make test-clients`.

use std::process::Command;

use rl_testkit::Cluster;
use rstest::rstest;

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
    let nodes = Cluster::start().nodes;
    let address = nodes[0].address();
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
