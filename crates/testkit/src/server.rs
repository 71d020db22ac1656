//! One server: its process, its files and its connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use redis::{Client, Connection, FromRedisValue, RedisResult, Value};

use crate::{
    Deadline, PATIENCE, TempDir, base_config, error_text, free_port, module, server_binary,
};

/// A server on a free port of this machine, with its files in a temporary folder.
pub struct Server {
    child: Option<Child>,
    port: u16,
    dir: TempDir,
    /// Pairs of directive and value.
    config: Vec<String>,
    env: Vec<(String, String)>,
    binary: String,
}

impl Server {
    /// Starts a server with the module. It saves nothing.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server with the module and further configuration: pairs of directive and value.
    pub fn with(config: &[&str]) -> Self {
        Self::with_env(config, &[])
    }

    /// Starts a server with the module, further configuration and environment variables.
    pub fn with_env(config: &[&str], env: &[(&str, &str)]) -> Self {
        let mut all = base_config();
        all.extend(["loadmodule", module().to_str().unwrap()]);
        all.extend(config);
        Self::launch_new(&all, env)
    }

    /// Starts a server and loads the module with arguments.
    pub fn with_module_args(module_args: &[&str]) -> Self {
        Self::with_module_args_and_env(module_args, &[])
    }

    pub(crate) fn with_module_args_and_env(module_args: &[&str], env: &[(&str, &str)]) -> Self {
        let server = Self::launch_new(&base_config(), env);
        let mut args = vec!["LOAD", module().to_str().unwrap()];
        args.extend(module_args);
        let _: () = server.run("MODULE", &args);
        server
    }

    /// Starts a server with this configuration and nothing else: pairs of directive and value.
    pub fn without_module(config: &[&str]) -> Self {
        Self::launch_new(config, &[])
    }

    /// Starts a particular server binary with this configuration and nothing else.
    pub fn with_binary(binary: &str, config: &[&str]) -> Self {
        Self::launch_binary(binary.to_owned(), config, &[])
    }

    fn launch_new(config: &[&str], env: &[(&str, &str)]) -> Self {
        Self::launch_binary(server_binary(), config, env)
    }

    fn launch_binary(binary: String, config: &[&str], env: &[(&str, &str)]) -> Self {
        let owned = |text: &str| text.to_owned();
        let mut server = Self {
            child: None,
            port: 0,
            dir: TempDir::new(),
            config: config.iter().map(|text| owned(text)).collect(),
            env: env.iter().map(|(k, v)| (owned(k), owned(v))).collect(),
            binary,
        };
        server.start_again();
        server
    }

    /// Starts again in the same folder, on another port.
    pub fn start_again(&mut self) {
        // A port that is free now may be taken a moment later.
        for _ in 0..5 {
            if self.launch_on(free_port()) {
                return;
            }
        }
        panic!("the server does not come up:\n{}", self.log());
    }

    /// Starts again in the same folder, on the port where its clients and replicas look for it.
    pub fn start_again_on_same_port(&mut self) {
        let up = self.launch_on(self.port);
        assert!(up, "the server does not come up:\n{}", self.log());
    }

    fn launch_on(&mut self, port: u16) -> bool {
        assert!(self.child.is_none(), "the server still runs");
        self.port = port;
        let log = fs::File::create(self.path("server.log")).unwrap();
        let mut command = Command::new(&self.binary);
        command
            .arg("--port")
            .arg(port.to_string())
            .arg("--dir")
            .arg(self.dir.root())
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        for pair in self.config.chunks_exact(2) {
            command.arg(format!("--{}", pair[0])).arg(&pair[1]);
        }
        self.child = Some(command.spawn().expect("the server binary does not start"));
        let up = self.wait_until_up();
        if !up {
            self.kill();
        }
        up
    }

    fn wait_until_up(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            if let Ok(is_this) = self.answers() {
                // Another process may have taken the port first.
                return is_this;
            }
            sleep(Duration::from_millis(5));
        }
        false
    }

    /// Whether it is this server that answers, once it has loaded its data.
    fn answers(&self) -> RedisResult<bool> {
        let mut con = self.client().get_connection()?;
        let (_, dir): (String, String) =
            redis::cmd("CONFIG").arg(&["GET", "dir"]).query(&mut con)?;
        redis::cmd("PING").query::<String>(&mut con)?;
        Ok(fs::canonicalize(self.dir.root()).unwrap() == Path::new(&dir))
    }

    /// Adds configuration for the next start.
    pub fn add_config(&mut self, config: &[&str]) {
        let added = config.iter().map(|&text| text.to_owned());
        self.config.extend(added);
    }

    /// Replaces a directive and its value for the next start.
    pub fn replace_config(&mut self, old: &str, new: &str, value: &str) {
        let position = self.config.iter().position(|text| text == old).unwrap();
        self.config[position] = new.to_owned();
        self.config[position + 1] = value.to_owned();
    }

    /// Removes a directive for the next start.
    pub fn remove_config(&mut self, directive: &str) {
        let position = self.config.iter().position(|text| text == directive);
        let position = position.unwrap();
        self.config.drain(position..position + 2);
    }

    /// The port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address as a URL.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// The id of the server's process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// A client that opens connections to the server.
    pub fn client(&self) -> Client {
        Client::open(self.url()).unwrap()
    }

    /// Opens a connection.
    pub fn connect(&self) -> Connection {
        self.client().get_connection().unwrap()
    }

    /// Opens a connection that speaks RESP3.
    pub fn connect_resp3(&self) -> Connection {
        let client = Client::open(format!("{}/?protocol=resp3", self.url()));
        client.unwrap().get_connection().unwrap()
    }

    /// Runs one command on its own connection.
    #[track_caller]
    pub fn run<T: FromRedisValue>(&self, command: &str, args: &[&str]) -> T {
        let reply = self.try_run(command, args);
        reply.unwrap_or_else(|error| panic!("{command} {args:?}: {error}"))
    }

    /// Runs one command on its own connection, and returns its error if there is one.
    pub fn try_run<T: FromRedisValue>(&self, command: &str, args: &[&str]) -> RedisResult<T> {
        let mut con = self.client().get_connection()?;
        redis::cmd(command).arg(args).query(&mut con)
    }

    /// Runs one command that must fail, and returns the text of its error.
    #[track_caller]
    pub fn error(&self, command: &str, args: &[&str]) -> String {
        match self.try_run::<Value>(command, args) {
            Ok(value) => panic!("{command} {args:?} answered {value:?}"),
            Err(error) => error_text(&error),
        }
    }

    /// The path of a file in the server's folder.
    pub fn path(&self, file: &str) -> PathBuf {
        self.dir.root().join(file)
    }

    /// What the server has logged since its last start.
    pub fn log(&self) -> String {
        let log = fs::read(self.path("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Sends SHUTDOWN, as an operator does, and waits until the process has ended.
    pub fn shutdown(&mut self, how: &str) {
        let _: RedisResult<Value> = self.try_run("SHUTDOWN", &[how]);
        self.wait_until_exit();
    }

    /// Waits until the process has ended.
    pub fn wait_until_exit(&mut self) {
        let deadline = Deadline::start();
        while self.child.as_mut().unwrap().try_wait().unwrap().is_none() {
            deadline.check("the server has ended");
            sleep(Duration::from_millis(5));
        }
        self.child = None;
    }

    /// Kills the process, as a power cut does.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        let _ = child.kill();
        child.wait().unwrap();
    }

    /// Stops the process but keeps its connections, like a stalled machine or a network that drops packets.
    pub fn pause(&self) {
        send_signal(self.pid(), "STOP");
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        send_signal(self.pid(), "CONT");
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
    }
}

/// Sends a signal to a process, which may be gone.
pub fn send_signal(process: u32, signal: &str) {
    let _ = Command::new("kill")
        .args([&format!("-{signal}"), &process.to_string()])
        .stderr(Stdio::null())
        .status();
}
