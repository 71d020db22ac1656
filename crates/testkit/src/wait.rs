//! Waiting for something that takes a while, without ever hanging.

use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long tests wait for something that must happen. Busy machines are slow, and waiting longer for something that
/// never happens does not make it right.
pub const PATIENCE: Duration = Duration::from_secs(120);

const PAUSE: Duration = Duration::from_millis(5);

/// Waits until a condition is true, and fails if it stays false.
#[track_caller]
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Deadline::start();
    while !is_true() {
        deadline.check(what);
        sleep(PAUSE);
    }
}

/// Waits like [`eventually`], and lets other tasks run meanwhile.
pub async fn eventually_async(what: &str, mut is_true: impl FnMut() -> bool) {
    let deadline = Deadline::start();
    while !is_true() {
        deadline.check(what);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Bounds a loop that waits for something or that another thread ends: the test fails instead of hanging.
#[derive(Clone, Copy)]
pub struct Deadline(Instant);

impl Deadline {
    /// A deadline that is [`PATIENCE`] from now.
    pub fn start() -> Self {
        Self(Instant::now() + PATIENCE)
    }

    /// Whether the time is up.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }

    /// Fails if the time is up.
    #[track_caller]
    pub fn check(&self, what: &str) {
        assert!(!self.is_over(), "not within two minutes: {what}");
    }
}
