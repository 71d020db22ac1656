//! The compose files as users start them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use rstest::rstest;

use crate::docker::{docker, gateway_image, image, output};
use rl_testkit::eventually;

struct Project {
    file: &'static str,
    name: String,
}

impl Project {
    fn up(file: &'static str) -> Self {
        let kind = file
            .trim_start_matches("docker/compose")
            .trim_matches(|c: char| !c.is_alphabetic());
        let name = format!("rl-test-{}-{}", std::process::id(), kind.replace('.', "-"));
        let project = Self { file, name };
        project.compose(&["up", "-d", "--no-build"]).unwrap();
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
            .env("RL_GATEWAY_IMAGE", gateway_image())
            .env("RL_SUBNET", self.subnet())
            .env("RL_PORT", "127.0.0.1:0")
            .env("GATEWAY_PORT", "127.0.0.1:0");
        output(command.current_dir(env!("CARGO_MANIFEST_DIR")))
    }

    /// Away from what Docker gives out by itself, and another one in every run.
    fn subnet(&self) -> String {
        let run = std::process::id() % 120 * 2;
        format!("10.213.{}", run + u32::from(self.file.contains("cluster")))
    }

    fn cli(&self, service: &str, line: &str) -> String {
        let mut words = vec!["exec", "-T", service, "rl-entrypoint", "cli"];
        words.extend(rl_testkit::split_args(line));
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
    let project = Project::up("docker/compose.yaml");
    eventually("it answers", || {
        project
            .cli("rl", "RL.SLIDE k 100 1d")
            .starts_with("1\n100\n99")
    });
    project.compose(&["restart"]).unwrap();
    eventually("it remembers", || {
        project
            .cli("rl", r#"RL.PEEK k "SLIDE 100 1d 0""#)
            .starts_with("1\n100\n99")
    });
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn a_cluster_of_six_routes_to_the_node_of_the_key() {
    let project = Project::up("docker/compose.cluster.yaml");
    eventually("the cluster is up", || {
        project
            .cli("rl-1", "CLUSTER INFO")
            .contains("cluster_state:ok")
    });
    for n in 0..10 {
        let line = format!(
            r#"-c RL.MULTI {{u{n}}}:ip "SLIDE 100 60" {{u{n}}}:search "BUCKET 200 1000 1m 5""#
        );
        eventually("every node answers", || {
            project.cli("rl-2", &line).starts_with("1\n0\n")
        });
    }
    let nodes = project.cli("rl-3", "CLUSTER NODES");
    assert_eq!(nodes.matches("slave").count(), 3, "{nodes}");
}

#[rstest]
#[ignore = "needs Docker: make test-containers"]
fn a_gateway_over_sentinels_goes_on_counting_when_its_primary_dies() {
    let project = Project::up("docker/compose.sentinel.yaml");
    let sentinel = |line: &str| project.cli("sentinel-1", &format!("-p 26379 {line}"));
    eventually("the sentinels know the replica", || {
        sentinel("INFO sentinel").contains("slaves=1,sentinels=3")
    });
    let published = project.compose(&["port", "gateway", "8080"]).unwrap();
    let port: u16 = published.rsplit_once(':').unwrap().1.parse().unwrap();
    let login = |user: &str| -> u16 {
        let status = status(port, user);
        // Without a server, nobody logs in.
        assert!([0, 200, 429, 503].contains(&status), "{status}");
        status
    };
    eventually("the gateway finds its server", || login("first") == 200);
    let mut admitted = 0;
    let mut alice = || {
        let status = login("alice");
        admitted += u64::from(status == 200);
        status
    };
    for _ in 0..2 {
        eventually("a login passes", || alice() == 200);
    }
    let account = r#"RL.PEEK {api}:login-user:alice "SLIDE 5 1h 0""#;
    let left = |service| -> u64 {
        let reply = project.cli(service, account);
        reply.lines().nth(2).unwrap_or(&reply).parse().unwrap()
    };
    let counted = left("rl-1");
    assert!(counted <= 3, "both logins are counted");
    eventually("the replica has them too", || left("rl-2") == counted);

    let first = sentinel("SENTINEL GET-MASTER-ADDR-BY-NAME limits");
    let container = project.compose(&["ps", "-q", "rl-1"]).unwrap();
    docker(&["update", "--restart", "no", &container]);
    project.compose(&["kill", "rl-1"]).unwrap();
    eventually("the replica is promoted", || {
        sentinel("SENTINEL GET-MASTER-ADDR-BY-NAME limits") != first
            && project.cli("rl-2", "ROLE").starts_with("master")
    });
    eventually("logins pass again", || alice() == 200);
    eventually("the limit of five goes on", || alice() == 429);
    println!(
        "measured: compose with a gateway: {admitted} of 5 logins admitted in all, two before the kill"
    );
    assert!(admitted <= 5 && left("rl-2") == 0);
}

/// The status that the gateway answers to a login; 0 while it does not answer at all.
fn status(port: u16, user: &str) -> u16 {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(15)))?;
        write!(
            stream,
            "POST /login HTTP/1.1\r\nHost: gateway\r\nX-User: {user}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let response = ask().unwrap_or_default();
    let mut words = response.split(' ').skip(1);
    words
        .next()
        .map_or(0, |status| status.parse().unwrap_or_default())
}
