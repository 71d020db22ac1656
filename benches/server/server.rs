//! Servers to measure: with the release build of the module, and without persistence unless a group asks for it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Deref;

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
    /// Starts a server with further configuration: pairs of directive and value.
    pub fn start(config: &[&str]) -> Self {
        let module = std::env::var("RL_MODULE").unwrap_or("target/release/librl.so".into());
        let module = std::fs::canonicalize(&module)
            .unwrap_or_else(|_| panic!("no {module}: run `make build`"));
        let peer = std::env::var("RL_BENCH_PEER");
        let mut all = vec!["save", "", "loadmodule", module.to_str().unwrap()];
        if let Ok(peer) = &peer {
            all.extend(["loadmodule", peer]);
        }
        all.extend(config);
        Self {
            server: rl_testkit::Server::without_module(&all),
            prepared: RefCell::default(),
        }
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
        stream.write_all(&encode(args)).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        String::from_utf8_lossy(&reply).into_owned()
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

/// A command as it goes over the wire.
pub fn encode<T: AsRef<str>>(args: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        let arg = arg.as_ref();
        bytes.extend(format!("${}\r\n{arg}\r\n", arg.len()).into_bytes());
    }
    bytes
}
