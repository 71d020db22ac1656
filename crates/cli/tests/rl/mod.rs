//! `rl` as its users run it: as a process, against real servers, and in a real terminal.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../../tests/support/mod.rs"]
pub mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use serde_json::Value;
use support::{Server, eventually};

pub const RL: &str = env!("CARGO_BIN_EXE_rl");

pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        self
    }
}

/// A command line, without the caller's own settings.
pub fn command(url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(RL);
    for name in ["RL_USER", "RL_PASSWORD"] {
        command.env_remove(name);
    }
    // No test fails on a busy machine for want of patience.
    command
        .args(["--timeout", "20"])
        .args(args)
        .env("RL_URL", url)
        .stdin(Stdio::null());
    command
}

pub fn rl(url: &str, args: &[&str]) -> Run {
    let output = command(url, args).output().unwrap();
    Run {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

pub fn url(server: &Server) -> String {
    format!("redis://{}", name(server))
}

pub fn name(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// A cluster of three primaries, with or without a replica for each.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Self {
        Self::of((0..3).map(|_| Server::with(&Self::config())).collect(), 0)
    }

    pub fn with_replicas() -> Self {
        let mut config = Self::config();
        config.extend(["appendonly", "yes"]);
        Self::of((0..6).map(|_| Server::with(&config)).collect(), 1)
    }

    pub fn config() -> Vec<&'static str> {
        let mut config = vec!["cluster-enabled", "yes", "cluster-node-timeout", "2000"];
        // One shard's failure is not the others'.
        config.extend(["cluster-require-full-coverage", "no"]);
        config
    }

    /// Makes one of servers that are up; the first three become primaries.
    pub fn of(nodes: Vec<Server>, replicas: usize) -> Self {
        let names: Vec<_> = nodes.iter().map(name).collect();
        let output = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(&names)
            .args(["--cluster-replicas", &replicas.to_string(), "--cluster-yes"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&output.stdout);
        assert!(output.contains("All 16384 slots covered"), "{output}");
        let cluster = Self { nodes };
        eventually("every node sees every node in its role", || {
            let well = |node: &Server| {
                let state: String = node.run("CLUSTER", &["INFO"]);
                let seen: String = node.run("CLUSTER", &["NODES"]);
                let replicas_seen = seen.lines().filter(|line| line.contains("slave")).count();
                state.contains("cluster_state:ok")
                    && seen.lines().count() == cluster.nodes.len()
                    && replicas_seen == 3 * replicas
            };
            let in_sync = |node: &Server| {
                node.info("replication", "role") == "master"
                    || node.info("replication", "master_link_status") == "up"
            };
            cluster.nodes.iter().all(well) && cluster.nodes.iter().all(in_sync)
        });
        cluster
    }

    pub fn url(&self) -> String {
        url(&self.nodes[0])
    }

    pub fn primaries(&self) -> Vec<&Server> {
        let all = self.nodes.iter();
        all.filter(|node| node.info("replication", "role") == "master")
            .collect()
    }

    pub fn replicas(&self) -> Vec<&Server> {
        let all = self.nodes.iter();
        all.filter(|node| node.info("replication", "role") == "slave")
            .collect()
    }
}

fn unique() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!(
        "rl-cli-test-{}-{}",
        std::process::id(),
        NUMBER.fetch_add(1, Relaxed)
    )
}

/// A folder that goes when the test does.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let path = std::env::temp_dir().join(unique());
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, file: &str) -> String {
        self.0.join(file).to_str().unwrap().to_owned()
    }

    /// Writes a file and answers its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A terminal of tmux, on a socket of its own.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    pub fn run(shell_line: &str) -> Self {
        let terminal = Self { socket: unique() };
        terminal.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "120",
            "-y",
            "40",
            shell_line,
        ]);
        terminal
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-u", "-L", &self.socket])
            .args(args)
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .output()
            .expect("tmux is missing: scripts/install-deps tmux");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Keys by tmux' names: `q`, `Tab`, `Enter`.
    pub fn press(&self, keys: &[&str]) {
        let mut args = vec!["send-keys"];
        args.extend(keys);
        self.tmux(&args);
    }

    /// Waits until the screen shows it all.
    #[track_caller]
    pub fn shows(&self, texts: &[&str]) -> String {
        let mut screen = String::new();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while std::time::Instant::now() < deadline {
            screen = self.screen();
            if texts.iter().all(|text| screen.contains(text)) {
                return screen;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the terminal does not show {texts:?}:\n{screen}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux")
            .args(["-L", &self.socket, "kill-server"])
            .output();
    }
}
