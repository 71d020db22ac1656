//! Servers to measure: started here, on a free port, without persistence unless asked for.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

pub struct Server {
    child: Child,
    /// Contenders whose keys exist, with how many.
    pub prepared: RefCell<HashSet<(String, usize)>>,
    pub port: u16,
    pub dir: PathBuf,
}

impl Server {
    pub fn start(options: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let dir = std::env::temp_dir().join(format!("rl-bench-{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        let module = std::env::var("RL_MODULE").unwrap_or("target/release/librl.so".into());
        let module = std::fs::canonicalize(&module)
            .unwrap_or_else(|_| panic!("no {module}: run `make build`"));
        let mut command =
            Command::new(std::env::var("REDIS_SERVER").unwrap_or("redis-server".into()));
        command
            .args(["--port", &port.to_string(), "--save", "", "--dir"])
            .arg(&dir);
        command.arg("--loadmodule").arg(module);
        if let Ok(peer) = std::env::var("RL_BENCH_PEER") {
            command.args(["--loadmodule", &peer]);
        }
        let child = command.args(options).stdout(Stdio::null()).spawn().unwrap();
        let prepared = RefCell::default();
        let server = Self {
            child,
            prepared,
            port,
            dir,
        };
        for _ in 0..500 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return server;
            }
            sleep(Duration::from_millis(10));
        }
        panic!("the server does not come up");
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// One call; the whole reply as text.
    pub fn call(&self, words: &[&str]) -> String {
        let mut stream = self.connect();
        stream.write_all(&encode(words)).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        String::from_utf8_lossy(&reply).into_owned()
    }

    pub fn info(&self, field: &str) -> u64 {
        let info = self.call(&["INFO", "everything"]);
        let prefix = format!("{field}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
        line.and_then(|value| value.trim().parse().ok())
            .unwrap_or_else(|| panic!("no {field}"))
    }

    pub fn version(&self) -> String {
        let info = self.call(&["INFO", "server"]);
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        match field("valkey_version:") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", field("redis_version:").unwrap_or_default()),
        }
    }

    /// Nanoseconds that the server's main thread has been on a CPU.
    pub fn cpu_ns(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    }

    pub fn follow(&self, primary: &Server) {
        self.call(&["REPLICAOF", "127.0.0.1", &primary.port.to_string()]);
        while !self
            .call(&["INFO", "replication"])
            .contains("master_link_status:up")
        {
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A command as it goes over the wire.
pub fn encode<T: AsRef<str>>(words: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
    }
    bytes
}
