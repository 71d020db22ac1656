//! A server whose clock the test moves, by a preloaded library.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use super::{Five, Server, eventually};

/// Noon of a day in 2027, in microseconds, and not a round number of them.
pub const NOON_US: u64 = 1_800_014_400_000_123;

const LONGEST_MS: u64 = 3650 * 86_400_000;

/// Its clock stands still, until it is set to another time.
pub struct Frozen {
    pub server: Server,
    folder: PathBuf,
    drifts: bool,
}

impl Frozen {
    /// A server at [`NOON_US`].
    pub fn start() -> Self {
        Self::with(&[])
    }

    pub fn with(config: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rl-clock-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let (library, clock) = (folder.join("clock.so"), folder.join("clock"));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(super::root().join("tests/support/clock.c"))
            .status()
            .unwrap();
        assert!(compiled.success());
        fs::write(&clock, NOON_US.to_ne_bytes()).unwrap();
        let env = [
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("RL_TEST_CLOCK", clock.to_str().unwrap()),
        ];
        let server = Server::with_env(config, &env);
        let mut frozen = Self {
            server,
            folder,
            drifts: false,
        };
        frozen.drifts = frozen.seen_to_drift();
        frozen.set(NOON_US);
        frozen
    }

    /// Servers that reckon the time from the processor's counter (Valkey 9) look at our clock only now and
    /// then, and run on in between: with them no moment can be tested exactly.
    pub fn cannot_be_tested(&self) -> bool {
        if self.drifts {
            println!("NOT TESTED: the clock of this server cannot be held still");
        }
        self.drifts
    }

    /// Sets the clock; times that differ should do so by a millisecond or more, and by a minute where the
    /// clock cannot be held still.
    pub fn set(&self, now_us: u64) {
        self.write(now_us);
        // Some servers look at the clock only every few milliseconds. What they tell the module shows in
        // the time that is left of a fixed window.
        let left_ms = LONGEST_MS - now_us / 1000 % LONGEST_MS;
        let (apart_ms, times) = if self.drifts { (30_000, 20) } else { (0, 1) };
        eventually("the clock is set", || {
            (0..times).all(|_| {
                if self.drifts {
                    sleep(Duration::from_millis(10));
                }
                self.left_of_window_ms().abs_diff(left_ms) <= apart_ms
            })
        });
    }

    fn write(&self, now_us: u64) {
        // In place: the server has this very file mapped.
        let file = fs::File::options()
            .write(true)
            .open(self.folder.join("clock"))
            .unwrap();
        file.write_all_at(&now_us.to_ne_bytes(), 0).unwrap();
    }

    fn left_of_window_ms(&self) -> u64 {
        let five: Five = self
            .server
            .run("RL.PEEK", &["no-key", "FIXED", "1", "3650d", "1"]);
        five.4 as u64
    }

    fn seen_to_drift(&self) -> bool {
        (1..=4).any(|round| {
            let now_us = NOON_US + round * 1111;
            self.write(now_us);
            sleep(Duration::from_millis(30));
            (0..25).any(|_| {
                let (seconds, micros): (u64, u64) = self.server.run("TIME", &[]);
                seconds * 1_000_000 + micros != now_us
            })
        })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
