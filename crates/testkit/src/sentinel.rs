//! Sentinels.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use redis::{Client, FromRedisValue, RedisResult};

use crate::{Deadline, Server, TempDir, command, eventually, free_port, server_binary};

/// A Sentinel that watches one primary under the name `main` and needs no other Sentinel's vote.
pub struct Sentinel {
    child: Child,
    port: u16,
    dir: TempDir,
}

impl Sentinel {
    /// Starts a Sentinel and waits until it knows the primary and its replica.
    pub fn start(primary: &Server, replica: &Server) -> Self {
        let (port, dir) = (free_port(), TempDir::new());
        let config = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 5000\n",
            dir.root().display(),
            primary.port(),
        );
        // Sentinel writes what it learns into this file.
        let file = dir.write("sentinel.conf", config);
        let log = fs::File::create(dir.path("sentinel.log")).unwrap();
        let child = Command::new(server_binary())
            .args([&file, "--sentinel"])
            .stdin(Stdio::null())
            .stdout(log)
            .spawn()
            .unwrap();
        let mut sentinel = Self { child, port, dir };
        sentinel.wait_until_up();
        let replica = replica.port().to_string();
        eventually("the sentinel knows the replica", || {
            let known = sentinel.try_ask::<Vec<Vec<String>>>("SENTINEL REPLICAS main");
            known.is_ok_and(|known| known.iter().flatten().any(|field| *field == replica))
        });
        sentinel
    }

    fn wait_until_up(&mut self) {
        let deadline = Deadline::start();
        while self.try_ask::<String>("SENTINEL CKQUORUM main").is_err() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "the sentinel does not start:\n{}",
                self.log()
            );
            deadline.check("the sentinel is up");
            sleep(Duration::from_millis(10));
        }
    }

    /// The address as a URL.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs a command, written as one line.
    pub fn try_ask<T: FromRedisValue>(&self, line: &str) -> RedisResult<T> {
        let mut con = Client::open(self.url())?.get_connection()?;
        command(line).query(&mut con)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path("sentinel.log")).unwrap_or_default()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- sentinel log ---\n{}", self.log());
        }
    }
}
