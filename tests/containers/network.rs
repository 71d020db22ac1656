//! Containers on two networks: one for clients, one of the servers among themselves.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use redis::{Client, Connection, FromRedisValue, RedisResult, Value};

use crate::docker::{docker, image, label, try_docker};
use rl_testkit::{Reply, ask, eventually, try_ask};

pub struct Network {
    name: String,
    /// The first three numbers of every address on `back`.
    prefix: String,
    created: AtomicU32,
}

/// One container. Its address on `back` stays the same; its published port changes with every start.
pub struct Node {
    name: String,
    back: String,
    pub address: String,
    inner_port: u16,
    port: Mutex<u16>,
}

/// What a container runs.
#[derive(Default)]
pub struct Setup<'a> {
    pub image: Option<&'a str>,
    pub words: &'a [&'a str],
    pub env: &'a [&'a str],
    /// Pairs of a file here and a place there.
    pub files: &'a [(&'a str, &'a str)],
}

impl Network {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rl-test-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let label = label();
        docker(&[
            "network",
            "create",
            "--label",
            &label,
            &format!("{name}-front"),
        ]);
        let back = format!("{name}-back");
        let subnet = internal_network(&back);
        let prefix = subnet.rsplit_once('.').unwrap().0.to_owned();
        Self {
            name,
            prefix,
            created: AtomicU32::new(10),
        }
    }

    /// A server with the module and further options.
    pub fn server(&self, words: &[&str]) -> Node {
        self.start(Setup {
            words,
            ..Setup::default()
        })
    }

    pub fn sentinel(&self, primary: &Node) -> Node {
        let words = ["sentinel", "limits", &primary.address, "6379", "2"];
        self.start_on(
            26379,
            Setup {
                words: &words,
                env: &["DOWN_AFTER_MS=4000"],
                ..Setup::default()
            },
        )
    }

    pub fn start(&self, setup: Setup) -> Node {
        self.start_on(6379, setup)
    }

    fn start_on(&self, inner_port: u16, setup: Setup) -> Node {
        let number = self.created.fetch_add(1, Relaxed);
        let node = Node {
            name: format!("{}-{number}", self.name),
            back: format!("{}-back", self.name),
            address: format!("{}.{number}", self.prefix),
            inner_port,
            port: Mutex::new(0),
        };
        let image = setup.image.map_or_else(image, str::to_owned);
        let front = format!("{}-front", self.name);
        let publish = format!("127.0.0.1::{inner_port}");
        let label = label();
        let mut create = vec![
            "create",
            "--name",
            &node.name,
            "--label",
            &label,
            "--network",
            &front,
            "-p",
            &publish,
        ];
        for pair in setup.env {
            create.extend(["-e", pair]);
        }
        create.push(&image);
        // Its own address, as replicas, sentinels and cluster nodes are to know it.
        let announced: &[&str] = match setup.words {
            ["sentinel", ..] => &[],
            words if words.contains(&"--cluster-enabled") => {
                &["--cluster-announce-ip", &node.address]
            }
            _ => &["--replica-announce-ip", &node.address],
        };
        create.extend(setup.words.iter().chain(announced));
        if inner_port == 6379 {
            create.extend([
                "--enable-debug-command",
                "yes",
                "--repl-diskless-sync-delay",
                "0",
            ]);
        }
        docker(&create);
        for (here, there) in setup.files {
            docker(&["cp", here, &format!("{}:{there}", node.name)]);
        }
        node.join();
        node.start();
        node
    }
}

/// A network without a way out, and its subnet. Addresses can be fixed only on a subnet given by name: take the
/// one that Docker finds free, and another one if somebody else was quicker.
fn internal_network(name: &str) -> String {
    let label = label();
    let mut subnet = String::new();
    eventually("a subnet is free", || {
        docker(&["network", "create", name]);
        let format = "{{(index .IPAM.Config 0).Subnet}}";
        subnet = docker(&["network", "inspect", "--format", format, name]);
        docker(&["network", "rm", name]);
        let create = ["network", "create", "--label", &label, "--internal"];
        try_docker(&[&create, &["--subnet", &subnet, name][..]].concat()).is_ok()
    });
    subnet
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::env::var_os("RL_KEEP").is_some() && std::thread::panicking() {
            return;
        }
        let filter = format!("name={}-", self.name);
        if let Ok(nodes) = try_docker(&["ps", "-aq", "--filter", &filter]) {
            for node in nodes.lines() {
                let _ = try_docker(&["rm", "-f", "-v", node]);
            }
        }
        for network in ["front", "back"] {
            let _ = try_docker(&["network", "rm", &format!("{}-{network}", self.name)]);
        }
    }
}

impl Node {
    /// Starts a stopped container, and waits until it answers.
    pub fn start(&self) {
        docker(&["start", &self.name]);
        let inner = self.inner_port.to_string();
        let published = docker(&["port", &self.name, &inner]);
        let port = published
            .lines()
            .next()
            .unwrap()
            .rsplit_once(':')
            .unwrap()
            .1;
        *self.port.lock().unwrap() = port.parse().unwrap();
        eventually("the container answers", || {
            self.try_run::<Value>("PING").is_ok()
        });
    }

    /// SIGKILL, as a crash or a power cut.
    pub fn kill(&self) {
        docker(&["kill", "--signal", "KILL", &self.name]);
    }

    /// SIGTERM, and time to save.
    pub fn stop(&self) {
        docker(&["stop", &self.name]);
    }

    /// Cuts it off from the other servers. Clients still reach it.
    pub fn cut(&self) {
        docker(&["network", "disconnect", &self.back, &self.name]);
    }

    pub fn join(&self) {
        docker(&[
            "network",
            "connect",
            "--ip",
            &self.address,
            &self.back,
            &self.name,
        ]);
    }

    /// A program in the container: `cli`, say.
    pub fn exec(&self, words: &[&str]) -> Result<String, String> {
        let mut all = vec!["exec", &self.name, "rl-entrypoint"];
        all.extend(words);
        try_docker(&all)
    }

    pub fn log(&self) -> String {
        try_docker(&["logs", &self.name]).unwrap_or_default()
    }

    pub fn connect(&self) -> RedisResult<Connection> {
        let port = *self.port.lock().unwrap();
        let client = Client::open(("127.0.0.1", port))?;
        // Who dies is noticed at once; who is slow, on a busy machine, gets time.
        let patience = Duration::from_secs(15);
        let con = client.get_connection_with_timeout(patience)?;
        con.set_read_timeout(Some(patience))?;
        con.set_write_timeout(Some(patience))?;
        Ok(con)
    }

    pub fn try_run<T: FromRedisValue>(&self, line: &str) -> RedisResult<T> {
        try_ask(&mut self.connect()?, line)
    }

    pub fn run<T: FromRedisValue>(&self, line: &str) -> T {
        self.try_run(line)
            .unwrap_or_else(|error| panic!("{line}: {error}\n{}", self.log()))
    }

    /// A field of INFO; empty while the server does not answer.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info: String = self.try_run(&format!("INFO {section}")).unwrap_or_default();
        let prefix = format!("{field}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_default().to_owned()
    }

    pub fn is_primary(&self) -> bool {
        self.info("replication", "role") == "master"
    }

    /// Units that the server has counted for a key of the load.
    pub fn used(&self, key: &str, limit: u64) -> u64 {
        let reply: Reply = self.run(&format!("RL.PEEK {key} \"SLIDE {limit} 1d 0\""));
        limit - reply.2 as u64
    }

    pub fn follow(&self, primary: &Node) {
        let _: () = self.run(&format!("REPLICAOF {} 6379", primary.address));
        self.wait_in_sync();
    }

    pub fn wait_in_sync(&self) {
        eventually("the replica is in sync", || {
            self.info("replication", "master_link_status") == "up"
        });
    }

    /// Waits until a replica has applied all that this server wrote, then compares every key.
    pub fn assert_same_as(&self, replica: &Node) {
        eventually("the replica has caught up", || {
            let offset = self.info("replication", "master_repl_offset");
            !offset.is_empty() && replica.info("replication", "slave_repl_offset") == offset
        });
        let digests = [self, replica].map(|node| {
            let mut con = node.connect().unwrap();
            // A million keys take a while.
            con.set_read_timeout(Some(Duration::from_secs(120)))
                .unwrap();
            ask::<String>(&mut con, "DEBUG DIGEST")
        });
        assert_eq!(digests[0], digests[1], "both hold the same");
        assert_ne!(digests[0], "0".repeat(40), "and it is not nothing");
    }
}
