//! Servers to measure: with the release build of the module, and without persistence unless a group asks for it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rl_testkit::eventually;

use crate::load::read_lines;

/// A server, and which keys exist on it. Load is sent over plain sockets: a client library would be measured too.
pub struct Server {
    server: rl_testkit::Server,
    /// Contenders whose keys exist, with how many.
    pub prepared: RefCell<HashSet<(String, usize)>>,
}

impl Deref for Server {
    type Target = rl_testkit::Server;

    fn deref(&self) -> &Self::Target {
        &self.server
    }
}

impl Server {
    /// Starts the server to test, with the peer if there is one and further configuration: pairs of directive and value.
    pub fn start(config: &[&str]) -> Self {
        let peer = std::env::var("RL_BENCH_PEER");
        let mut all = config.to_vec();
        if let Ok(peer) = &peer {
            all.extend(["loadmodule", peer]);
        }
        Self::start_binary(&rl_testkit::server_binary(), &all)
    }

    /// Starts a particular server, without the peer.
    pub fn start_binary(binary: &str, config: &[&str]) -> Self {
        let module = std::env::var("RL_MODULE").unwrap_or("target/release/librl.so".into());
        let module = std::fs::canonicalize(&module)
            .unwrap_or_else(|_| panic!("no {module}: run `make build`"));
        let mut all = vec!["save", "", "loadmodule", module.to_str().unwrap()];
        all.extend(config);
        let server = Self {
            server: rl_testkit::Server::with_binary(binary, &all),
            prepared: RefCell::default(),
        };
        if !config.contains(&"appendonly") {
            server.wait_until_not_replicating();
        }
        server
    }

    /// Waits until the module has found that nothing receives its states: until then, calls are slower. On servers
    /// that do not report every event, it never does.
    fn wait_until_not_replicating(&self) {
        for _ in 0..30 {
            if self.info("rl_replicating") == 0 {
                break;
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Lets the server finish growing its hash tables, which it otherwise does bit by bit during calls. Needs DEBUG.
    pub fn finish_rehashing(&self) {
        let set_hz = |hz: &str| assert!(self.call(&["CONFIG", "SET", "hz", hz]).starts_with("+OK"));
        set_hz("500");
        eventually("the hash tables are complete", || {
            let begin = Instant::now();
            let stats = self.call(&["DEBUG", "HTSTATS", "0"]);
            assert!(!stats.starts_with('-'), "{stats}");
            let complete = !stats.contains("rehashing target");
            if !complete {
                // The question takes seconds if there are many keys, and nothing else is done meanwhile.
                sleep(4 * begin.elapsed());
            }
            complete
        });
        set_hz("10");
    }

    /// Opens a socket.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends one command, and returns the whole reply as text.
    pub fn call(&self, args: &[&str]) -> String {
        let mut stream = self.connect();
        let mut bytes = Vec::new();
        encode(args, &mut bytes);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// Sends calls whose replies have this many lines in total, and waits for all of them.
    pub fn send(&self, bytes: &[u8], lines: usize) {
        let mut stream = self.connect();
        stream.write_all(bytes).unwrap();
        read_lines(&mut stream, lines, &mut vec![0; 1 << 16]);
    }

    /// A number that INFO reports.
    pub fn info(&self, field: &str) -> u64 {
        self.server
            .info("everything", field)
            .trim()
            .parse()
            .unwrap()
    }

    /// The name and version of the server.
    pub fn version(&self) -> String {
        let info: String = self.run("INFO", &["server"]);
        match rl_testkit::info_field(&info, "valkey_version") {
            Some(version) => format!("Valkey {version}"),
            None => format!("Redis {}", self.server.info("server", "redis_version")),
        }
    }

    /// Nanoseconds that the server's main thread has been on a CPU.
    pub fn cpu_ns(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid())).unwrap();
        stat.split(' ').next().unwrap().parse().unwrap()
    }
}

/// Appends a command as it goes over the wire.
pub fn encode<T: AsRef<str>>(args: &[T], into: &mut Vec<u8>) {
    write!(into, "*{}\r\n", args.len()).unwrap();
    for arg in args {
        let arg = arg.as_ref();
        write!(into, "${}\r\n{arg}\r\n", arg.len()).unwrap();
    }
}
