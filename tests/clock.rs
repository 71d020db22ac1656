//! The server's clock may step either way; see `properties.rs` in the core for every size of step.

#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

use rstest::rstest;
use support::{Five, Server, eventually};

/// A server whose clock the test moves, by a preloaded library.
struct Stepped {
    server: Server,
    folder: PathBuf,
}

impl Stepped {
    fn start() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "rl-clock-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let (library, offset) = (folder.join("clock.so"), folder.join("offset"));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/clock.c"))
            .status()
            .unwrap();
        assert!(compiled.success());
        fs::write(&offset, 0_i64.to_ne_bytes()).unwrap();
        let env = [
            ("LD_PRELOAD", library.to_str().unwrap()),
            ("RL_TEST_CLOCK", offset.to_str().unwrap()),
        ];
        let server = Server::with_env(&[], &env);
        Self { server, folder }
    }

    /// Sets the server's clock to the real time plus `seconds`.
    fn step(&self, seconds: i64) {
        // In place: the server has this very file mapped.
        let file = fs::File::options()
            .write(true)
            .open(self.folder.join("offset"))
            .unwrap();
        file.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
        // Some servers look at the clock only every few milliseconds.
        eventually("the clock has stepped", || {
            let (server_seconds, _): (i64, i64) = self.server.run("TIME", &[]);
            let real = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap()
                .as_secs() as i64;
            (server_seconds - real - seconds).abs() <= 1
        });
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[rstest]
#[case::slide("RL.SLIDE", &["k", "2", "400ms", "2"])]
#[case::bucket("RL.BUCKET", &["k", "2", "2", "400ms", "2"])]
fn after_a_step_back_usage_is_kept_and_nobody_waits_longer_than_usual(
    #[case] command: &str,
    #[case] call: &[&str],
) {
    let stepped = Stepped::start();
    let first: Five = stepped.server.run(command, call);
    assert_eq!((first.0, first.2), (1, 0));
    stepped.step(-3600);
    let denied: Five = stepped.server.run(command, call);
    assert_eq!((denied.0, denied.2), (0, 0), "usage is kept");
    assert!(
        denied.3 <= 800,
        "at most the usual worst wait: {}",
        denied.3
    );
    // Denied again half way: the wait goes on, it does not begin anew.
    std::thread::sleep(std::time::Duration::from_millis(denied.3 as u64 / 2));
    let half: Five = stepped.server.run(command, call);
    assert!(half.0 == 0 && half.3 <= denied.3 / 2 + 1, "{half:?}");
    std::thread::sleep(std::time::Duration::from_millis(half.3 as u64));
    let again: Five = stepped.server.run(command, call);
    assert_eq!(again.0, 1);
    let ttl: i64 = stepped.server.run("PTTL", &["k"]);
    assert!(ttl <= again.4 + 1001, "the expiry follows the clock: {ttl}");
}

#[rstest]
#[case::slide("RL.SLIDE", &["k", "3", "1h"])]
#[case::bucket("RL.BUCKET", &["k", "3", "3", "1h"])]
fn a_step_forward_grants_at_most_one_extra_limit(#[case] command: &str, #[case] call: &[&str]) {
    let stepped = Stepped::start();
    let allowed = || {
        (0..10)
            .map(|_| stepped.server.run::<Five>(command, call).0)
            .sum::<i64>()
    };
    assert_eq!(allowed(), 3);
    stepped.step(86_400 * 365);
    assert_eq!(allowed(), 3);
    stepped.step(0);
    assert_eq!(allowed(), 0, "and a step back grants nothing");
}
