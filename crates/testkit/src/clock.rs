//! A server whose clock is set by the test, through a preloaded library.

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use crate::{Reply, Server, TempDir, eventually, not_tested};

/// Noon of a day in 2027, in microseconds, plus a few so that it is not a round number.
pub const NOON_US: u64 = 1_800_014_400_000_123;

const MAX_PERIOD_MS: u64 = 3650 * 86_400_000;

/// A server whose clock stands still until the test sets it to another time.
pub struct FrozenServer {
    /// The server.
    pub server: Server,
    files: TempDir,
    drifts: bool,
}

impl FrozenServer {
    /// Starts a server at [`NOON_US`].
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Starts a server at [`NOON_US`] with further configuration: pairs of directive and value.
    pub fn with(config: &[&str]) -> Self {
        Self::launch(|env| Server::with_env(config, env))
    }

    /// Starts a server at [`NOON_US`] and loads the module with arguments.
    pub fn with_module_args(module_args: &[&str]) -> Self {
        Self::launch(|env| Server::with_module_args_and_env(module_args, env))
    }

    fn launch(start: impl FnOnce(&[(&str, &str)]) -> Server) -> Self {
        let files = TempDir::new();
        let source = files.write("clock.c", include_str!("clock.c"));
        let library = files.path("clock.so");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source)
            .status()
            .unwrap();
        assert!(compiled.success());
        let clock = files.write("clock", NOON_US.to_ne_bytes());
        let env = [("LD_PRELOAD", &*library), ("RL_TEST_CLOCK", &clock)];
        let server = start(&env);
        let mut frozen = Self {
            server,
            files,
            drifts: false,
        };
        frozen.drifts = frozen.drifts();
        frozen.set(NOON_US);
        frozen
    }

    /// Whether exact times cannot be tested with this server, which is then reported. Servers that compute the time
    /// from the processor's counter (Valkey 9) read the clock only now and then, and run on in between.
    pub fn cannot_be_tested(&self) -> bool {
        if self.drifts {
            not_tested("the clock of this server cannot be frozen");
        }
        self.drifts
    }

    /// Sets the clock. Different times should be at least a millisecond apart, or a minute if the clock cannot be
    /// frozen.
    pub fn set(&self, now_us: u64) {
        self.write(now_us);
        // Some servers read the clock only every few milliseconds. The remaining time of a fixed window shows which
        // time the module gets.
        let left_ms = MAX_PERIOD_MS - now_us / 1000 % MAX_PERIOD_MS;
        let (tolerance_ms, times) = if self.drifts { (30_000, 20) } else { (0, 1) };
        eventually("the clock is set", || {
            (0..times).all(|_| {
                if self.drifts {
                    sleep(Duration::from_millis(10));
                }
                self.left_of_window_ms().abs_diff(left_ms) <= tolerance_ms
            })
        });
    }

    fn write(&self, now_us: u64) {
        // The server has this file mapped, so it is written in place.
        let file = fs::File::options()
            .write(true)
            .open(self.files.path("clock"));
        file.unwrap()
            .write_all_at(&now_us.to_ne_bytes(), 0)
            .unwrap();
    }

    fn left_of_window_ms(&self) -> u64 {
        let reply: Reply = self.server.run("RL.PEEK", &["no-key", "FIXED 1 3650d"]);
        reply.4 as u64
    }

    /// Whether the server's time runs on while its clock stands still.
    fn drifts(&self) -> bool {
        static DRIFTS: OnceLock<bool> = OnceLock::new();
        *DRIFTS.get_or_init(|| {
            (1..=4).any(|round| {
                let now_us = NOON_US + round * 1111;
                self.write(now_us);
                sleep(Duration::from_millis(30));
                (0..25).any(|_| {
                    let (seconds, us): (u64, u64) = self.server.run("TIME", &[]);
                    seconds * 1_000_000 + us != now_us
                })
            })
        })
    }
}
