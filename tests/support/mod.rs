//! Real servers for tests: each on a free port, in its own folder, killed and cleaned up when dropped.
//!
//! `REDIS_SERVER` names the binary to test against, `RL_MODULE` the module; by default the server on the
//! PATH and a fresh build.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub mod clock;

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue, RedisError, RedisResult, Value};

/// Five integers: allowed, limit, remaining, retry_after_ms, reset_after_ms.
pub type Five = (i64, i64, i64, i64, i64);

/// RL.MULTI's reply.
pub type Multi = (i64, i64, Vec<Five>);

pub struct Server {
    child: Option<Child>,
    port: u16,
    dir: PathBuf,
    config: Vec<String>,
    env: Vec<(String, String)>,
}

pub fn server_binary() -> String {
    std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The repository, also when a crate in it shares this file.
pub fn root() -> &'static Path {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut roots = folders.filter(|folder| folder.join("tests/support/mod.rs").exists());
    roots.next().unwrap()
}

/// The module under test, built once for each run of a test file.
pub fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        if let Ok(path) = std::env::var("RL_MODULE") {
            let path = root().join(path);
            return fs::canonicalize(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--lib"])
            .current_dir(root())
            .status()
            .unwrap();
        assert!(built.success(), "the module does not build");
        // This test runs from target/<profile>/deps/.
        let exe = std::env::current_exe().unwrap();
        let target = exe.parent().unwrap().parent().unwrap();
        let name = format!("librl{}", std::env::consts::DLL_SUFFIX);
        target.with_file_name("debug").join(name)
    })
}

/// Whether the server has a configuration directive: versions differ, and names beat version numbers.
pub fn knows(directive: &str) -> bool {
    static KNOWN: OnceLock<Vec<String>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let server = Server::start_bare(&[], &[]);
        let all: Vec<String> = server.run("CONFIG", &["GET", "*"]);
        all.into_iter().step_by(2).collect()
    });
    known.iter().any(|name| name == directive)
}

/// What every server is started with.
pub fn basics() -> Vec<&'static str> {
    // A replica need not wait for others to join its copy.
    let mut all = vec!["save", "", "repl-diskless-sync-delay", "0"];
    for directive in ["enable-debug-command", "enable-module-command"] {
        if knows(directive) {
            all.extend([directive, "yes"]);
        }
    }
    all
}

impl Server {
    /// A server with the module loaded and nothing saved.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// The same with further configuration: pairs of directive and value.
    pub fn with(config: &[&str]) -> Self {
        Self::with_env(config, &[])
    }

    pub fn with_env(config: &[&str], env: &[(&str, &str)]) -> Self {
        let mut all = basics();
        all.extend(["loadmodule", module().to_str().unwrap()]);
        all.extend(config);
        Self::start_bare(&all, env)
    }

    /// The same with arguments for the module.
    pub fn with_arguments(arguments: &[&str]) -> Self {
        let server = Self::start_bare(&basics(), &[]);
        let mut words = vec!["LOAD", module().to_str().unwrap()];
        words.extend(arguments);
        let _: () = server.run("MODULE", &words);
        server
    }

    /// A server without the module.
    pub fn start_bare(config: &[&str], env: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rl-test-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        let mut server = Self {
            child: None,
            port: 0,
            dir,
            config: config.iter().map(|&word| word.to_owned()).collect(),
            env: env
                .iter()
                .map(|&(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        };
        server.launch();
        server
    }

    fn launch(&mut self) {
        // A port that is free now may be taken a moment later: try again with another.
        for _ in 0..5 {
            self.port = free_port();
            let log = fs::File::create(self.path("server.log")).unwrap();
            let mut command = Command::new(server_binary());
            command
                .arg("--port")
                .arg(self.port.to_string())
                .arg("--dir")
                .arg(&self.dir)
                .envs(self.env.iter().map(|(name, value)| (name, value)))
                .stdout(log.try_clone().unwrap())
                .stderr(log);
            let mut words = self.config.iter();
            while let (Some(directive), Some(value)) = (words.next(), words.next()) {
                command.arg(format!("--{directive}")).arg(value);
            }
            self.child = Some(command.spawn().expect("the server binary does not start"));
            if self.wait_until_up() {
                return;
            }
            self.kill();
        }
        panic!("the server does not come up:\n{}", self.log());
    }

    fn wait_until_up(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(ours) = self.try_connect().and_then(|mut con| self.is_at(&mut con)) {
                // Somebody else was quicker to take the port.
                return ours;
            }
            sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whether it is this server that answers, once it has loaded its data.
    fn is_at(&self, con: &mut Connection) -> RedisResult<bool> {
        let (_, dir): (String, String) = redis::cmd("CONFIG").arg(&["GET", "dir"]).query(con)?;
        redis::cmd("PING").query::<String>(con)?;
        Ok(fs::canonicalize(&self.dir).unwrap() == Path::new(&dir))
    }

    fn try_connect(&self) -> RedisResult<Connection> {
        self.client("").get_connection()
    }

    fn client(&self, query: &str) -> Client {
        Client::open(format!("redis://127.0.0.1:{}/{query}", self.port)).unwrap()
    }

    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap()
    }

    pub fn connect_resp3(&self) -> Connection {
        self.client("?protocol=resp3").get_connection().unwrap()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("server.log")).unwrap_or_default()
    }

    pub fn config(&mut self, config: &[&str]) {
        self.config
            .extend(config.iter().map(|&word| word.to_owned()));
    }

    /// One command on a connection of its own.
    pub fn run<T: FromRedisValue>(&self, command: &str, args: &[&str]) -> T {
        let reply = self.try_run(command, args);
        reply.unwrap_or_else(|error| panic!("{command} {args:?}: {error}"))
    }

    pub fn try_run<T: FromRedisValue>(&self, command: &str, args: &[&str]) -> RedisResult<T> {
        redis::cmd(command).arg(args).query(&mut self.connect())
    }

    /// The text of the error that a command answers.
    pub fn error(&self, command: &str, args: &[&str]) -> String {
        match self.try_run::<Value>(command, args) {
            Ok(value) => panic!("{command} {args:?} answered {value:?}"),
            Err(error) => error_text(&error),
        }
    }

    /// Whether the server knows a command; for what older versions lack.
    pub fn has_command(&self, command: &[&str]) -> bool {
        self.try_run::<Value>(command[0], &command[1..]).is_ok()
    }

    pub fn info(&self, section: &str, field: &str) -> String {
        let info: String = self.run("INFO", &[section]);
        let prefix = format!("{field}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("no {field} in INFO {section}"))
            .to_owned()
    }

    pub fn info_number(&self, section: &str, field: &str) -> i64 {
        self.info(section, field).parse().unwrap()
    }

    /// How often a command ran, by the server's own count.
    pub fn calls(&self, command: &str) -> i64 {
        let info: String = self.run("INFO", &["commandstats"]);
        let prefix = format!("cmdstat_{command}:calls=").to_lowercase();
        info.lines()
            .find_map(|line| line.to_lowercase().strip_prefix(&prefix).map(str::to_owned))
            .map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    /// The value's digest: equal digests, equal state.
    pub fn digest(&self, key: &str) -> String {
        let digests: Vec<String> = self.run("DEBUG", &["DIGEST-VALUE", key]);
        digests[0].clone()
    }

    /// The whole dataset's digest, expiry included.
    pub fn digest_all(&self) -> String {
        self.run("DEBUG", &["DIGEST"])
    }

    /// The key's expiry as a Unix time in milliseconds: exact from 7.0 on, within 1 ms before. As with
    /// PEXPIRETIME, -1 stands for none and -2 for a missing key.
    pub fn expire_at_ms(&self, key: &str) -> i64 {
        if let Ok(at) = self.try_run("PEXPIRETIME", &[key]) {
            return at;
        }
        let mut con = self.connect();
        let mut reading = redis::pipe();
        reading
            .atomic()
            .cmd("TIME")
            .cmd("PTTL")
            .arg(key)
            .cmd("TIME");
        loop {
            let (before, ttl, after): ((i64, i64), i64, (i64, i64)) =
                reading.query(&mut con).unwrap();
            let [before, after] = [before, after].map(|(s, us)| s * 1000 + us / 1000);
            if ttl < 0 {
                return ttl;
            }
            if before == after {
                return before + ttl;
            }
        }
    }

    /// Stops in order, as an operator would.
    pub fn shutdown(&mut self, how: &str) {
        let _: RedisResult<Value> = self.try_run("SHUTDOWN", &[how]);
        self.child.take().unwrap().wait().unwrap();
    }

    /// Stops at once, as a power cut would.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts again in the same folder.
    pub fn start_again(&mut self) {
        self.launch();
    }

    /// Makes this server a replica and waits until it is in sync.
    pub fn follow(&self, primary: &Server) {
        let port = primary.port.to_string();
        let _: () = self.run("REPLICAOF", &["127.0.0.1", &port]);
        eventually("the replica is in sync", || {
            self.info("replication", "master_link_status") == "up"
        });
    }

    /// Waits until a replica has applied all that this server wrote.
    pub fn wait_for(&self, replica: &Server) {
        let offset = self.info_number("replication", "master_repl_offset");
        eventually("the replica has caught up", || {
            replica.info_number("replication", "slave_repl_offset") >= offset
        });
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

/// One command on a given connection, written as one line with spaces between the words.
pub fn ask<T: FromRedisValue>(con: &mut Connection, line: &str) -> T {
    try_ask(con, line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

pub fn try_ask<T: FromRedisValue>(con: &mut Connection, line: &str) -> RedisResult<T> {
    let words: Vec<&str> = line.split(' ').collect();
    redis::cmd(words[0]).arg(&words[1..]).query(con)
}

/// The text of the error that a line answers.
pub fn ask_error(con: &mut Connection, line: &str) -> String {
    match try_ask::<Value>(con, line) {
        Ok(value) => panic!("{line} answered {value:?}"),
        Err(error) => error_text(&error),
    }
}

/// One that leaves room for a cluster's second port, 10000 above.
fn free_port() -> u16 {
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        if port < u16::MAX - 10_000 {
            return port;
        }
    }
}

/// The whole error line, code first, as redis-cli prints it.
pub fn error_text(error: &RedisError) -> String {
    let code = error.code().unwrap_or("ERR");
    format!("{code} {}", error.detail().unwrap_or_default())
}

pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    // On a busy machine much takes long; what never comes is no less wrong for being waited for.
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "not within two minutes: {what}");
        sleep(Duration::from_millis(10));
    }
}

/// A repeatable source of test input (xorshift).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Random calls of every kind on a few dozen keys: many denied, some forced, some with huge limits, and
/// some given back.
pub fn mixed_calls(con: &mut Connection, random: &mut Random, count: usize) {
    let mut pipe = redis::pipe();
    for _ in 0..count {
        let line = mixed_call(random);
        let words: Vec<&str> = line.split(' ').collect();
        pipe.cmd(words[0]).arg(&words[1..]);
    }
    pipe.exec(con).unwrap();
}

fn mixed_call(random: &mut Random) -> String {
    let (n, cost) = (random.below(20), random.below(4));
    let option = ["", "", "", "", " PEEK", " FORCE"][random.below(6) as usize];
    let holder = random.below(12);
    let ttl = 1 + random.below(3000);
    let precision = 2 + n % 7;
    match random.below(16) {
        0 | 1 => format!("RL.SLIDE s{n} 50 10s {cost}{option}"),
        2 => format!("RL.SLIDE p{n} 50 700ms {cost} PRECISION {precision}{option}"),
        3 => format!("RL.SLIDE p{n} 70000 1h 65000 PRECISION 64"),
        4 => format!("RL.BUCKET b{n} 60 7 3s {cost}{option}"),
        5 => format!(
            "RL.SLIDE w{n} {} 3650d {}",
            1_u64 << 50,
            1_u64 << 50 >> cost
        ),
        6 => format!("RL.FIXED f{n} 40 {}s {cost}{option}", 1 + n % 3),
        7 | 8 => format!("RL.EXACT x{n} 900 {}ms {cost}{option}", 300 + 100 * (n % 5)),
        9 => format!("RL.LEAK l{n} 60 7 3s {cost}{option}"),
        10 => format!("RL.LEASE h{n} 20 {ttl}ms holder{holder} {cost}{option}"),
        11 => format!("RL.RELEASE h{n} holder{holder}"),
        12 | 13 => {
            let key = ["s", "p", "b", "f", "x", "l"][random.below(6) as usize];
            format!(
                "RL.REFUND {key}{n} {}",
                random.below(200) >> random.below(8)
            )
        }
        14 => format!("RL.MULTI s{n} SLIDE 50 10s 1 b{n} BUCKET 60 7 3s 2"),
        _ => format!(
            "RL.MULTI x{n} EXACT 900 500ms {cost} h{n} LEASE 20 {ttl}ms holder{holder} 1 \
             p{n} SLIDE 50 700ms 1 PRECISION {precision} f{n} FIXED 40 2s 1 l{n} LEAK 60 7 3s 1"
        ),
    }
}
