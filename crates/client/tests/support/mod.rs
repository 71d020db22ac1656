//! Real servers for the client's tests: each on a free port, in its own folder, killed and cleaned up when dropped.
//!
//! `REDIS_SERVER` names the server's binary, `RL_MODULE` the module; without it, the module is built.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{FromRedisValue, RedisResult, Value};
use rl_client::{Builder, Limiter};

/// Long enough for a busy machine: for tests in which the server is well.
pub const CALM: Duration = Duration::from_secs(10);

pub struct Server {
    child: Option<Child>,
    pub port: u16,
    dir: PathBuf,
    config: Vec<String>,
}

fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        if let Ok(path) = std::env::var("RL_MODULE") {
            let path = root.join(path);
            return fs::canonicalize(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--lib"])
            .current_dir(root)
            .status()
            .unwrap();
        assert!(
            built.success(),
            "the module does not build; RL_MODULE names one that is built"
        );
        // This test runs from target/<profile>/deps/.
        let exe = std::env::current_exe().unwrap();
        let target = exe.parent().unwrap().parent().unwrap();
        let name = format!("librl{}", std::env::consts::DLL_SUFFIX);
        target.with_file_name("debug").join(name)
    })
}

fn binary() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

impl Server {
    /// With the module.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// With the module and further configuration: pairs of directive and value.
    pub fn with(config: &[&str]) -> Self {
        let mut all = vec!["loadmodule", module().to_str().unwrap()];
        all.extend(config);
        Self::bare(&all)
    }

    /// Without the module.
    pub fn bare(config: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("rl-client-test-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut server = Self {
            child: None,
            port: 0,
            dir,
            config: config.iter().map(|&word| word.to_owned()).collect(),
        };
        // A port that is free now may be taken a moment later: try again with another.
        for _ in 0..5 {
            server.port = free_port();
            if server.launch() {
                return server;
            }
            server.kill();
        }
        panic!("the server does not come up:\n{}", server.log());
    }

    fn launch(&mut self) -> bool {
        let log = fs::File::create(self.dir.join("server.log")).unwrap();
        let mut command = Command::new(binary());
        command
            .args(["--port", &self.port.to_string(), "--save", ""])
            .arg("--dir")
            .arg(&self.dir)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for pair in self.config.chunks(2) {
            command.arg(format!("--{}", pair[0])).arg(&pair[1]);
        }
        self.child = Some(command.spawn().expect("the server binary does not start"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok((_, dir)) = self.try_run::<(String, String)>("CONFIG", &["GET", "dir"]) {
                // Or else somebody else was quicker to take the port.
                return fs::canonicalize(&self.dir).unwrap() == Path::new(&dir);
            }
            sleep(Duration::from_millis(5));
        }
        false
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// A limiter in no hurry.
    pub fn limiter(&self) -> Builder {
        Limiter::builder(self.url())
            .timeout(CALM)
            .connect_timeout(CALM)
    }

    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).unwrap()
    }

    pub fn connect(&self) -> redis::Connection {
        self.client().get_connection().unwrap()
    }

    pub fn run<T: FromRedisValue>(&self, command: &str, args: &[&str]) -> T {
        let reply = self.try_run(command, args);
        reply.unwrap_or_else(|error| panic!("{command} {args:?}: {error}"))
    }

    pub fn try_run<T: FromRedisValue>(&self, command: &str, args: &[&str]) -> RedisResult<T> {
        redis::cmd(command)
            .arg(args)
            .query(&mut self.client().get_connection()?)
    }

    /// How often a command ran, by the server's own count.
    pub fn calls(&self, command: &str) -> u64 {
        let info: String = self.run("INFO", &["commandstats"]);
        let prefix = format!("cmdstat_{command}:calls=").to_lowercase();
        info.lines()
            .find_map(|line| line.to_lowercase().strip_prefix(&prefix).map(str::to_owned))
            .map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// Stops at once, as a power cut would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Starts again on the same port, empty.
    pub fn start_again(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.launch() {
            self.kill();
            assert!(
                Instant::now() < deadline,
                "the server does not come back:\n{}",
                self.log()
            );
        }
    }

    /// Starts without the module from now on.
    pub fn without_module(&mut self) {
        self.config
            .retain(|word| word != "loadmodule" && !word.contains("librl"));
    }

    /// Stops answering, but keeps its connections: a stalled machine, or a network that swallows packets.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- server log ---\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// One that leaves room for a cluster's second port, 10000 above.
pub fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if port < u16::MAX - 10_000 {
            return port;
        }
    }
}

pub fn redis_cli(args: &[&str]) -> String {
    let output = Command::new("redis-cli")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits for something that takes a while.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What the server has left for a key.
pub fn remaining(server: &Server, key: &str, spec: &str) -> u64 {
    let mut args = vec![key];
    args.extend(spec.split(' '));
    args.push("0");
    let reply: Vec<Value> = server.run("RL.PEEK", &args);
    u64::from_redis_value_ref(&reply[2]).unwrap()
}
