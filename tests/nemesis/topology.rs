//! A few servers that keep their ports and folders through every restart, and who replicates whom.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue, RedisResult, Value};

use rl_testkit::{info_field, send_signal};

/// How a node is started; what CONFIG SET changes is kept here for its next start.
#[derive(Clone, Debug)]
pub struct Settings {
    pub aof: bool,
    pub preamble: bool,
    pub fsync: &'static str,
    pub save: &'static str,
    /// Anything else: pairs of directive and value.
    pub other: Vec<(&'static str, String)>,
    /// The module's arguments; none, if the node is started without it.
    pub module: Option<Vec<String>>,
}

pub struct Node {
    pub name: char,
    pub port: u16,
    pub settings: Settings,
    pub frozen: bool,
    dir: PathBuf,
    child: Option<Child>,
    /// How much of its log has been checked.
    log_checked: usize,
}

const DEADLINE: Duration = Duration::from_secs(60);

impl Node {
    pub fn new(name: char, folder: &Path, settings: Settings) -> Self {
        let dir = folder.join(name.to_string());
        fs::create_dir_all(&dir).unwrap();
        Self {
            name,
            port: rl_testkit::free_port(),
            settings,
            frozen: false,
            dir,
            child: None,
            log_checked: 0,
        }
    }

    pub fn is_up(&self) -> bool {
        self.child.is_some()
    }

    /// Starts, as a replica of the port if there is one, and waits until it has loaded its data.
    pub fn start(&mut self, primary: Option<u16>) -> Result<(), String> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_path())
            .unwrap();
        let yes_or_no = |on| if on { "yes" } else { "no" };
        let settings = &self.settings;
        let mut command = Command::new(rl_testkit::server_binary());
        let mut set = |name: &str, values: &[&str]| {
            command.arg(format!("--{name}")).args(values);
        };
        set("port", &[&self.port.to_string()]);
        set("dir", &[self.dir.to_str().unwrap()]);
        set("save", &[settings.save]);
        set("appendonly", &[yes_or_no(settings.aof)]);
        set("aof-use-rdb-preamble", &[yes_or_no(settings.preamble)]);
        set("appendfsync", &[settings.fsync]);
        set("repl-diskless-sync-delay", &["0"]);
        for directive in ["enable-debug-command", "enable-module-command"] {
            if rl_testkit::has_directive(directive) {
                set(directive, &["yes"]);
            }
        }
        for (name, value) in &settings.other {
            set(name, &[value]);
        }
        if let Some(primary) = primary {
            set("replicaof", &["127.0.0.1", &primary.to_string()]);
        }
        if let Some(arguments) = &settings.module {
            let mut words = vec![rl_testkit::module().to_str().unwrap()];
            words.extend(arguments.iter().map(String::as_str));
            set("loadmodule", &words);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        self.child = Some(command.spawn().expect("the server binary does not start"));
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                self.child = None;
                return Err(format!("node {} does not start: {status}", self.name));
            }
            if self.is_ready() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("node {} is not up after a minute", self.name));
            }
            sleep(Duration::from_millis(5));
        }
    }

    fn is_ready(&self) -> bool {
        let answer = self.try_run::<Value>(&["DBSIZE"]);
        answer.is_ok()
    }

    pub fn connect(&self) -> RedisResult<Connection> {
        connect(self.port)
    }

    pub fn try_run<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        redis::cmd(words[0])
            .arg(&words[1..])
            .query(&mut self.connect()?)
    }

    pub fn run<T: FromRedisValue>(&self, words: &[&str]) -> Result<T, String> {
        let failed = |error| format!("node {}: {}: {error}", self.name, words.join(" "));
        self.try_run(words).map_err(failed)
    }

    pub fn info(&self, section: &str, field: &str) -> Result<String, String> {
        let info: String = self.run(&["INFO", section])?;
        Ok(info_field(&info, field).unwrap_or_default().to_owned())
    }

    pub fn signal(&self, signal: &str) {
        if let Some(child) = &self.child {
            send_signal(child.id(), signal);
        }
    }

    pub fn freeze(&mut self) {
        self.signal("STOP");
        self.frozen = true;
    }

    pub fn thaw(&mut self) {
        self.signal("CONT");
        self.frozen = false;
    }

    /// Processes that the server forked, to save or to rewrite.
    pub fn forks(&self) -> Vec<u32> {
        let Some(child) = &self.child else {
            return Vec::new();
        };
        let path = format!("/proc/{0}/task/{0}/children", child.id());
        let list = fs::read_to_string(path).unwrap_or_default();
        list.split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.frozen = false;
    }

    /// Stops in order. A server that refuses (its save failed) stays up.
    pub fn shutdown(&mut self, how: Option<&str>) -> Result<(), String> {
        let mut words = vec!["SHUTDOWN"];
        words.extend(how);
        let answer = self.try_run::<Value>(&words);
        if let Err(error) = &answer
            && error.code().is_some()
        {
            return Err(error.to_string());
        }
        let deadline = Instant::now() + DEADLINE;
        while let Some(child) = &mut self.child {
            if child.try_wait().unwrap().is_some() {
                self.child = None;
            } else if Instant::now() > deadline {
                return Err(format!("node {} does not shut down", self.name));
            } else {
                sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    /// Whether it ended by itself, which no node may.
    pub fn has_died(&mut self) -> bool {
        let Some(child) = &mut self.child else {
            return false;
        };
        child.try_wait().unwrap().is_some()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// What has been logged since the last look.
    pub fn new_log(&mut self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let new = String::from_utf8_lossy(&log[self.log_checked.min(log.len())..]).into_owned();
        self.log_checked = log.len();
        new
    }

    pub fn whole_log(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Whatever the AOF consists of now: one file, or from 7.0 on a folder of them.
    pub fn aof_files(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.dir.join("appendonlydir"));
        let mut files: Vec<PathBuf> = match folder {
            Ok(files) => files.map(|file| file.unwrap().path()).collect(),
            Err(_) => Vec::new(),
        };
        files.push(self.dir.join("appendonly.aof"));
        files
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A connection that gives up on a server that does not answer.
pub fn connect(port: u16) -> RedisResult<Connection> {
    let client = Client::open(format!("redis://127.0.0.1:{port}/"))?;
    let connection = client.get_connection_with_timeout(DEADLINE)?;
    // On a busy disk, a server with `appendfsync always` is silent for seconds.
    connection.set_read_timeout(Some(DEADLINE))?;
    connection.set_write_timeout(Some(DEADLINE))?;
    Ok(connection)
}

/// Who replicates whom, as it was last ordered.
pub struct Topology {
    pub nodes: Vec<Node>,
    pub primary: usize,
    pub upstream: Vec<Option<usize>>,
}

impl Topology {
    pub fn replica(&self, number: usize) -> usize {
        let mut replicas = (0..self.nodes.len()).filter(|&node| node != self.primary);
        replicas.nth(number).unwrap()
    }

    pub fn upstream_port(&self, node: usize) -> Option<u16> {
        self.upstream[node].map(|upstream| self.nodes[upstream].port)
    }

    /// Where a node's data comes from in the end.
    pub fn root(&self, node: usize) -> usize {
        let mut at = node;
        while let Some(upstream) = self.upstream[at] {
            at = upstream;
        }
        at
    }

    /// Whether `node` gets its data from `other`, directly or not.
    pub fn follows(&self, node: usize, other: usize) -> bool {
        let mut at = node;
        while let Some(upstream) = self.upstream[at] {
            if upstream == other {
                return true;
            }
            at = upstream;
        }
        false
    }

    /// Makes `primary` the primary; what followed it follows the old one no longer.
    pub fn promote(&mut self, primary: usize) {
        let old = self.primary;
        self.upstream[primary] = None;
        self.upstream[old] = Some(primary);
        self.primary = primary;
    }
}
