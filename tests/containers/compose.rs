//! The compose files as users start them.

use std::process::Command;

use rstest::rstest;

use crate::docker::{docker, image, output};
use crate::patience::eventually;

struct Project {
    file: &'static str,
    name: String,
}

impl Project {
    /// Starts some services, or all.
    fn up(file: &'static str, services: &[&str]) -> Self {
        let kind = file
            .trim_start_matches("docker/compose")
            .trim_matches(|c: char| !c.is_alphabetic());
        let name = format!("rl-test-{}-{}", std::process::id(), kind.replace('.', "-"));
        let project = Self { file, name };
        let mut words = vec!["up", "-d", "--no-build"];
        words.extend(services);
        project.compose(&words).unwrap();
        project
    }

    fn compose(&self, words: &[&str]) -> Result<String, String> {
        // Compose is a plugin of docker, or a program of its own.
        let plugin = Command::new("docker").args(["compose", "version"]).output();
        let mut command = if plugin.is_ok_and(|plugin| plugin.status.success()) {
            let mut command = Command::new("docker");
            command.arg("compose");
            command
        } else {
            Command::new("docker-compose")
        };
        command
            .args(["-p", &self.name, "-f", self.file])
            .args(words);
        command
            .env("RL_IMAGE", image())
            .env("RL_PORT", "127.0.0.1:0")
            .env("GATEWAY_PORT", "127.0.0.1:0");
        output(command.current_dir(env!("CARGO_MANIFEST_DIR")))
    }

    fn cli(&self, service: &str, line: &str) -> String {
        let mut words = vec!["exec", "-T", service, "rl-entrypoint", "cli"];
        words.extend(line.split(' '));
        self.compose(&words).unwrap_or_else(|error| error)
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}",
                self.compose(&["logs", "--tail", "20"])
                    .unwrap_or_else(|error| error)
            );
        }
        let _ = self.compose(&["down", "-v", "-t", "0"]);
    }
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn one_server_keeps_its_counts_over_a_restart() {
    let project = Project::up("docker/compose.yaml", &[]);
    eventually("it answers", || {
        project
            .cli("rl", "RL.SLIDE k 100 1d")
            .starts_with("1\n100\n99")
    });
    project.compose(&["restart"]).unwrap();
    eventually("it remembers", || {
        project
            .cli("rl", "RL.PEEK k SLIDE 100 1d 0")
            .starts_with("1\n100\n99")
    });
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn a_cluster_of_six_routes_to_the_node_of_the_key() {
    let project = Project::up("docker/compose.cluster.yaml", &[]);
    eventually("the cluster is up", || {
        project
            .cli("rl-1", "CLUSTER INFO")
            .contains("cluster_state:ok")
    });
    for n in 0..10 {
        let line =
            format!("-c RL.MULTI {{u{n}}}:ip SLIDE 100 60 1 {{u{n}}}:search BUCKET 200 1000 1m 5");
        eventually("every node answers", || {
            project.cli("rl-2", &line).starts_with("1\n0\n")
        });
    }
    let nodes = project.cli("rl-3", "CLUSTER NODES");
    assert_eq!(nodes.matches("slave").count(), 3, "{nodes}");
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn a_pair_under_sentinels_survives_its_primary() {
    let project = Project::up(
        "docker/compose.sentinel.yaml",
        &["rl-1", "rl-2", "sentinel-1", "sentinel-2", "sentinel-3"],
    );
    let sentinel = |line: &str| project.cli("sentinel-1", &format!("-p 26379 {line}"));
    eventually("the sentinels know the replica", || {
        sentinel("INFO sentinel").contains("slaves=1,sentinels=3")
    });
    eventually("it counts", || {
        project
            .cli("rl-1", "RL.SLIDE k 100 1d")
            .starts_with("1\n100\n99")
    });
    let first = sentinel("SENTINEL GET-MASTER-ADDR-BY-NAME limits");
    let container = project.compose(&["ps", "-q", "rl-1"]).unwrap();
    docker(&["update", "--restart", "no", &container]);
    project.compose(&["kill", "rl-1"]).unwrap();
    eventually("the replica is promoted", || {
        sentinel("SENTINEL GET-MASTER-ADDR-BY-NAME limits") != first
            && project.cli("rl-2", "ROLE").starts_with("master")
    });
    assert!(
        project
            .cli("rl-2", "RL.SLIDE k 100 1d")
            .starts_with("1\n100\n98")
    );
}
